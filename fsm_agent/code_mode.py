"""Code mode: one program of the model's, run in a sandbox, calls several tools; extra ``code`` (pydantic-monty).

The sandbox knows no file, no network and no clock, and of modules only those that compute, with random numbers from the run's
own seed; a program can do nothing but compute and call the tools that the state allows. Each of its calls passes the same gate,
budgets and approvals as any other. A call that is refused or fails is raised inside the program, as a RuntimeError that it may
catch.
"""

from __future__ import annotations

import threading
import weakref
import zlib
from collections.abc import Callable
from fractions import Fraction
from typing import Any
from uuid import UUID

import attrs

from fsm_agent.core.contracts import TableArguments
from fsm_agent.core.effects import RunProgram
from fsm_agent.core.errors import BuildError, MissingExtra
from fsm_agent.core.events import CallEvent, ProgramCalled, Raised, Returned
from fsm_agent.core.figures import finite_seconds
from fsm_agent.core.gate import Toolbox, fault_text
from fsm_agent.core.plain import CONTAINERS, EnumName, cut, short, storable
from fsm_agent.core.tools import Tool

_MOST_PRINTED = 20_000
_MOST_SOURCE = 100_000
_MOST_SNAPSHOT = 2_000_000
_ABOUT = (
    "Run one Python program that calls tools as functions, with keyword arguments; its last expression is the result."
    " Nothing else can be reached: no files, network or clock. A failed call raises RuntimeError."
)


@attrs.frozen(kw_only=True)
class CodeMode:
    """Lets a model answer with programs, through a tool of this `name`.

    A program may compute `limit_s` seconds in all, what it waits for its calls aside, and hold `max_bytes` of memory. Raises
    BuildError for figures that are none.
    """

    name: str = "run_program"
    limit_s: float = 1.0
    max_bytes: int = 50_000_000

    def __attrs_post_init__(self) -> None:
        if finite_seconds(self.limit_s, "CodeMode(limit_s=)") <= 0:
            raise BuildError(f"CodeMode(limit_s=): expected seconds above 0, got {self.limit_s:g}")
        if type(self.max_bytes) is not int or self.max_bytes < 1_000_000:
            raise BuildError(f"CodeMode(max_bytes=): expected at least 1000000, got {short(self.max_bytes, 40)}")

    def tool(self) -> Tool:
        """The tool that a model is offered."""
        rule = {"type": "str", "required": True, "min_len": 1, "max_len": _MOST_SOURCE}
        return Tool(
            name=self.name, fn=_never, description=_ABOUT, args=TableArguments({"program": rule}), where="program", breaker=None
        )


class Sandbox:
    """Runs programs from call to call in workers of their own; one of it serves all runs of an agent, under threads too."""

    def __init__(self, mode: CodeMode, box: Toolbox) -> None:
        self._mode, self._box = mode, box
        self._lock = threading.Lock()
        self._pool: Any = None
        self._release: Callable[[], Any] = _nothing
        _monty()

    def step(self, effect: RunProgram, seconds_left: float | None = None) -> CallEvent | ProgramCalled:
        """Run a program to its next call or its end; whatever it does is an event."""
        monty = _monty()
        call_id = effect.call.id
        try:
            try:
                return self._stretch(monty, effect, seconds_left)
            except monty.MontyCrashedError as error:
                if error.timed_out:
                    raise
                # A worker was killed or broke down. A stretch has no effects, so another worker runs it again.
                return self._stretch(monty, effect, seconds_left)
        except monty.MontyError as error:
            return Raised(call_id, _kind(error), _message(error))
        except Exception as error:
            # A worker that cannot be had, or a value that neither side knows.
            return Raised(call_id, type(error).__name__, short(str(error), 1000)[1:-1])

    def close(self) -> None:
        """Let the workers go; the next program starts new ones."""
        with self._lock:
            release, self._pool, self._release = self._release, None, _nothing
        release()

    def _workers(self) -> Any:
        with self._lock:
            if self._pool is None:
                self._pool = _monty().Monty()
                self._pool.__enter__()
                # Nobody has to close a sandbox: its workers end with it.
                self._release = weakref.finalize(self, self._pool.__exit__, None, None, None)
            return self._pool

    def _stretch(self, monty: Any, effect: RunProgram, seconds_left: float | None) -> CallEvent | ProgramCalled:
        limit_s = self._mode.limit_s if seconds_left is None else min(self._mode.limit_s, max(0.001, seconds_left))
        printed = monty.CollectString()
        with self._workers().checkout(
            limits={"max_feed_duration_secs": limit_s, "max_memory": self._mode.max_bytes, "max_recursion_depth": 500},
            os_policy={"datetime": "call_host", "random_start": {"seed": effect.run.seed}},
        ) as session:
            if effect.snapshot or effect.made is not None:
                at = session.load_snapshot(_unpacked(effect.snapshot), print_callback=printed)
                at = at.resume(_result(effect))
            else:
                at = session.feed_start(effect.call.args["program"], print_callback=printed)
            return self._event(monty, effect, at, printed)

    def _event(self, monty: Any, effect: RunProgram, at: Any, collected: Any) -> CallEvent | ProgramCalled:
        call = effect.call
        for _ in range(_MOST_LOOKUPS):
            if isinstance(at, monty.MontyComplete):
                value, printed = storable(at.output), effect.printed + str(collected.output)
                return Returned(call.id, {"result": value, "printed": cut(printed, _MOST_PRINTED)} if printed else value)
            if isinstance(at, monty.NameLookupSnapshot):
                at = at.resume()
            elif not isinstance(at, monty.FunctionSnapshot) or at.is_os_function:
                if not hasattr(at, "resume_not_handled"):
                    return Raised(call.id, "RuntimeError", "the program waits for something that no sandbox gives")
                at = at.resume_not_handled()
            else:
                snapshot = at.dump()
                if len(snapshot) > _MOST_SNAPSHOT:
                    held = f"the program holds {len(snapshot)} bytes where it makes a call; at most {_MOST_SNAPSHOT} can be kept"
                    return Raised(call.id, "MemoryError", held)
                # One more than is shown, so that the cut at the end is told.
                printed = (effect.printed + str(collected.output))[: _MOST_PRINTED + 1]
                return ProgramCalled(call.id, at.function_name, self._named(at), _packed(snapshot), printed)
        return Raised(call.id, "RuntimeError", "the program asks for ever for names that there are not")

    def _named(self, at: Any) -> Any:
        """The arguments by name; positional ones take the names of the tool's contract in order."""
        tool = self._box.get(at.function_name)
        named = dict(at.kwargs)
        if at.args:
            names = list(tool.argument_schema().get("properties", {})) if tool is not None else []
            for number, value in enumerate(at.args):
                name = names[number] if number < len(names) else ""
                # What has no name, or one that is given already, is left for the contract to refuse.
                named[name if name and name not in named else f"argument_{number + 1}"] = value
        return named


def _packed(snapshot: bytes) -> bytes:
    """A snapshot as the run keeps it: each is kept, for the run as it stood at any step can be rebuilt and driven on."""
    return zlib.compress(snapshot)


def _unpacked(kept: bytes) -> bytes:
    """The snapshot; raises RuntimeError for what is none, or is longer than one may be."""
    reader = zlib.decompressobj()
    try:
        snapshot = reader.decompress(kept, _MOST_SNAPSHOT)
    except zlib.error as error:
        raise RuntimeError(f"where the program stood cannot be read: {error}") from None
    if not reader.eof or reader.unused_data:
        raise RuntimeError("where the program stood cannot be read: it is cut off, or too long")
    return snapshot


def _result(effect: RunProgram) -> dict[str, Any]:
    made = effect.made
    if made is not None and made.ok:
        return {"return_value": _given(made.value)}
    return {"exception": RuntimeError(fault_text(made) if made is not None else "the call is not known any more")}


def _given(value: Any) -> Any:
    """A plain value as the sandbox can hold it: what it has no type for becomes a text, a half character a mark."""
    kind = type(value)
    if kind is str:
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if kind is dict:
        return {_given(key): _given(item) for key, item in value.items()}
    if kind in CONTAINERS:
        return kind(map(_given, value))
    return str(value) if kind in _FOREIGN else value


def _message(error: Any) -> str:
    """What a program failed at, without its exception's name, and in which line."""
    said = str(error).removeprefix(f"{_kind(error)}: ")
    frames = error.traceback() if hasattr(error, "traceback") else ()
    return short(f"{said} (line {frames[-1].line})" if frames else said, 1000)[1:-1]


def _kind(error: Any) -> str:
    """The name of the exception that ended the program, as it was raised inside."""
    try:
        return type(error.exception()).__name__
    except Exception:
        return type(error).__name__


def _nothing() -> None:
    """What an unused sandbox has to let go."""


def _never(program: str) -> None:
    raise RuntimeError("a program is run by a sandbox; build the agent with code_mode=CodeMode()")


def _monty() -> Any:
    try:
        import pydantic_monty
    except ImportError as error:
        raise MissingExtra("pydantic-monty", "code", "code mode") from error
    return pydantic_monty


_MOST_LOOKUPS = 10_000
_FOREIGN = frozenset({Fraction, UUID, range, bytearray, EnumName})
