"""What a host gave when it built an agent, checked; its repairs get names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from fsm_agent.core.callables import function_of, wrong_manner
from fsm_agent.core.effects import OwnEffect
from fsm_agent.core.errors import BuildError
from fsm_agent.core.known_names import mend
from fsm_agent.core.plain import short
from fsm_agent.core.run import Run
from fsm_agent.core.table import KINDS, Table
from fsm_agent.core.tool_check import is_kind
from fsm_agent.core.tools import Toolset
from fsm_agent.core.turn import Repair

Fix = Callable[[str, Any], "tuple[str, Any] | None"]
# The built-in kinds of work that make calls.
_CALLING = ("gather", "call")


def check_kinds(**parts: tuple[Any, type]) -> None:
    """Raise BuildError for a part that is there and of another kind, a class of that kind included."""
    for name, (part, kind) in parts.items():
        if part is not None and not is_kind(part, kind):
            raise BuildError(f"{name} is {short(part, 60)}; give {instance_of(part, kind)}, or leave it out")


def check_machine(name: str, machine: Any) -> None:
    """Raise BuildError for what is no machine."""
    if not isinstance(machine, Table):
        raise BuildError(f"{name} is {short(machine, 60)}; give {instance_of(machine, Table)}")


def check_text(**parts: Any) -> None:
    """Raise BuildError for a part that is no text."""
    for name, part in parts.items():
        if not isinstance(part, str):
            raise BuildError(f"{name} is {short(part, 60)}; give a text")


def check_mappings(**parts: Any) -> None:
    """Raise BuildError for a part that is there and no mapping."""
    for name, part in parts.items():
        if part is not None and not isinstance(part, Mapping):
            raise BuildError(f"{name} is {short(part, 60)}; give a mapping, or leave it out")


def instance_of(part: Any, kind: type) -> str:
    """What to give in place of a part: where it is a class of the right kind, an instance of that."""
    meant = isinstance(part, type) and all(hasattr(part, name) for name in vars(kind) if not name.startswith("_"))
    return f"an instance of it, {part.__name__}(...)" if meant else f"a {kind.__name__}"


def check_callables(**parts: Any) -> None:
    """Raise BuildError for a part that is there and no function."""
    for name, part in parts.items():
        if part is not None and not callable(part):
            wanted = "a model (an object with reply) or a function" if name in ("model", "verify") else "a function"
            raise BuildError(f"{name} is {short(part, 60)}; give {wanted}")
        if isinstance(part, type) and name in ("model", "verify", "close"):
            raise BuildError(f"{name} is the class {part.__name__}; give an instance of it, {part.__name__}(...), or a function")
        given = _CALLED_WITH.get(name, ())
        if manner := wrong_manner(part, awaited=name != "normalizer", given=given):
            raise BuildError(f"{name} is {manner}; {function_of(given)}")


_CALLED_WITH: Mapping[str, tuple[str, ...]] = {
    "model": ("decide",), "verify": ("judge",), "close": ("compose",), "normalizer": ("request",),
}  # fmt: skip


def check_own(work: Any, effects: Any) -> None:
    """Raise BuildError for kinds of work that can do none, and performers of what is no effect of the user's own."""
    check_mappings(work=work, effects=effects)
    for kind, one in (work or {}).items():
        if isinstance(one, type) or not all(callable(getattr(one, step, None)) for step in ("enter", "ask", "tell")):
            raise BuildError(f"work[{short(kind, 60)}] is {short(one, 60)}; give an object with the methods enter, ask and tell")
        for step in ("enter", "ask", "tell"):
            if manner := wrong_manner(getattr(one, step)):
                raise BuildError(f"work[{short(kind, 60)}].{step} is {manner}; give a plain method, and ask for an effect where it waits")
    for effect, performer in (effects or {}).items():
        if not (isinstance(effect, type) and issubclass(effect, OwnEffect)):
            raise BuildError(f"effects has the key {short(effect, 60)}; give classes derived from OwnEffect")
        if not callable(performer):
            raise BuildError(f"effects[{effect.__name__}] is {short(performer, 60)}; give a function of the effect")
        if manner := wrong_manner(performer, awaited=True, given=("effect",)):
            raise BuildError(f"effects[{effect.__name__}] is {manner}; {function_of(('effect',))}")


def own_kinds(machine: Table, work: Any) -> Table:
    """The machine with the kinds of work that the host performs itself as kinds of its own: no proof takes those for the built-in ones.

    Raises BuildError for work of a kind that the machine does not have, which would never be done.
    """
    known = {**machine.kinds, **dict.fromkeys(state.work for state in machine.states)}
    for name in work or ():
        if name not in known:
            raise BuildError(f"work has {short(name, 60)}, which is no kind of work of machine {machine.name!r}; {mend(name, known)}")
    replaced = {name: attrs.evolve(kind) for name, kind in machine.kinds.items() if name in (work or {}) and kind is KINDS.get(name)}
    return attrs.evolve(machine, kinds={**machine.kinds, **replaced}) if replaced else machine


def check_allows(given: Table, table: Table, box: Toolset) -> None:
    """Raise BuildError where there are tools and states that would call them, and the machine as it is given allows none anywhere."""
    if not box.names() or any(state.tools != frozenset() for state in (*given.states, *table.states)):
        return
    calling = next((state.name for state in table.states if state.work in _CALLING), None)
    if calling is not None:
        raise BuildError(
            f"machine {table.name!r} allows no tool in any state; name them where they are called, as in"
            f" State({calling!r}, tools={{{box.names()[0]!r}}}), or give tools=None for all of them"
        )


# How the error word of a call may begin.
_REASONS = ("args:", "result:", "raised:", "refused:", "skipped:", "denied", "cancelled", "superseded", "unknown_outcome")
_SUCH = "'args:range:limit', 'result:too_big' or 'raised:TimeoutError'"


def check_fix(name: str, fix: Any) -> None:
    """Raise BuildError for a repair that can change no call."""
    if not callable(fix):
        raise BuildError(f"{name} is {short(fix, 60)}; give a function of tool and arguments")
    if manner := wrong_manner(fix, given=("tool", "args")):
        raise BuildError(f"{name} is {manner}; give a plain function of tool and arguments")


def named_repairs(repairs: Mapping[str, Fix]) -> dict[str, tuple[str, Repair]]:
    """Repairs by error word, each under a name of its own; the same function under two words is the same repair."""
    named: dict[str, tuple[str, Repair]] = {}
    taken: dict[str, Fix] = {}
    for error, fix in repairs.items():
        if not (isinstance(error, str) and error.startswith(_REASONS)):
            raise BuildError(f"repairs has the reason {short(error, 60)}, with which no call fails; give one like {_SUCH}")
        check_fix(f"the repair of {short(error, 60)}", fix)
        name = getattr(fix, "__name__", "<lambda>")
        if name == "<lambda>" or taken.setdefault(name, fix) is not fix:
            name = error
        named[error] = (name, _repair(fix))
    return named


def _repair(fix: Fix) -> Repair:
    def repair(tool: str, args: Any, run: Run) -> tuple[str, Any] | None:
        return fix(tool, args)

    return repair
