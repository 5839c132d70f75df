"""What a host gave when it built an agent, checked; its repairs get names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fsm_agent.core.effects import OwnEffect
from fsm_agent.core.errors import BuildError
from fsm_agent.core.plain import short
from fsm_agent.core.run import Run
from fsm_agent.core.turn import Repair

Fix = Callable[[str, Any], "tuple[str, Any] | None"]


def check_kinds(**parts: tuple[Any, type]) -> None:
    """Raise BuildError for a part that is there and of another kind."""
    for name, (part, kind) in parts.items():
        if part is not None and not isinstance(part, kind):
            raise BuildError(f"{name} is {short(part, 60)}; give a {kind.__name__}, or leave it out")


def check_callables(**parts: Any) -> None:
    """Raise BuildError for a part that is there and no function."""
    for name, part in parts.items():
        if part is not None and not callable(part):
            wanted = "a model (an object with reply) or a function" if name in ("model", "verify") else "a function"
            raise BuildError(f"{name} is {short(part, 60)}; give {wanted}")


def check_own(work: Any, effects: Any) -> None:
    """Raise BuildError for kinds of work that can do none, and performers of what is no effect of the user's own."""
    for name, parts in (("work", work), ("effects", effects)):
        if parts is not None and not isinstance(parts, Mapping):
            raise BuildError(f"{name} is {short(parts, 60)}; give a mapping, or leave it out")
    for kind, one in (work or {}).items():
        if isinstance(one, type) or not all(callable(getattr(one, step, None)) for step in ("enter", "ask", "tell")):
            raise BuildError(f"work[{short(kind, 60)}] is {short(one, 60)}; give an object with the methods enter, ask and tell")
    for effect, performer in (effects or {}).items():
        if not (isinstance(effect, type) and issubclass(effect, OwnEffect)):
            raise BuildError(f"effects has the key {short(effect, 60)}; give classes derived from OwnEffect")
        if not callable(performer):
            raise BuildError(f"effects[{effect.__name__}] is {short(performer, 60)}; give a function of the effect")


def named_repairs(repairs: Mapping[str, Fix]) -> dict[str, tuple[str, Repair]]:
    """Repairs by error word, each under a name of its own; the same function under two words is the same repair."""
    named: dict[str, tuple[str, Repair]] = {}
    taken: dict[str, Fix] = {}
    for error, fix in repairs.items():
        if not callable(fix):
            what = f"the repair of {short(error, 60)} is {short(fix, 60)}"
            raise BuildError(f"{what}; give a function of tool and arguments")
        name = getattr(fix, "__name__", "<lambda>")
        if name == "<lambda>" or taken.setdefault(name, fix) is not fix:
            name = error
        named[error] = (name, _repair(fix))
    return named


def _repair(fix: Fix) -> Repair:
    def repair(tool: str, args: Any, run: Run) -> tuple[str, Any] | None:
        return fix(tool, args)

    return repair
