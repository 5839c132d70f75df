"""A run as text and back: strict JSON, equal after the round trip, refused with a reason where it is no such run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from math import isfinite
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import attrs

from fsm_agent.core import events
from fsm_agent.core.effects import Wait
from fsm_agent.core.errors import FsmAgentError, LimitsError, SavedRunError
from fsm_agent.core.gate import call_fault
from fsm_agent.core.held_calls import APPROVAL, CHECK, CLIENT
from fsm_agent.core.limits import Limits
from fsm_agent.core.plain import loads, short, to_json
from fsm_agent.core.run import Call, ClosedGuard, Program, Run, Stop, TraceRow, flat_rows
from fsm_agent.core.setup import Setup
from fsm_agent.core.turn import wait_closes
from fsm_agent.core.values import Decision, Judgement, ResultClass, StopReason, ToolCall, Usage, Verdict

FORMAT = "fsm_agent.run"
VERSION = 1

_EVENTS = {kind.__name__: kind for kind in (*get_args(events.Event),)}
_LEFT_OUT = frozenset({"driven", "replaying", "interrupt", "history", "contract", "texts"})


def save(run: Run) -> str:
    """The run as strict JSON text; raises SavedRunError, naming the place, for a value that cannot be saved."""
    tree = {"format": FORMAT, "version": VERSION, "run": _record_out(run, "run")}
    return json.dumps(tree, ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"))


def load(text: object, setup: Setup) -> Run:
    """The run that a text holds, ready to go on.

    Raises SavedRunError when the text is no saved run, comes from another machine, or waits for a tool that is not there.
    """
    run = read(text)
    _check(run, setup)
    return run


def read(text: object) -> Run:
    """The run that a text holds, to be looked at and not to be driven: nobody asked whether its machine and tools are there.

    Raises SavedRunError when the text is no saved run.
    """
    saved = loads(text, "saved run")
    if not isinstance(saved, dict) or saved.get("format") != FORMAT:
        raise SavedRunError(f"the text is no saved run; a saved run is an object whose format is {FORMAT!r}")
    if type(saved.get("version")) is not int or saved["version"] != VERSION:
        raise SavedRunError(f"the saved run has version {short(saved.get('version'), 40)}; this library reads version {VERSION}")
    run: Run = _record_in(Run, saved.get("run"), "run")
    return run


def _check(run: Run, setup: Setup) -> None:
    if run.machine != setup.hash:
        raise SavedRunError(
            f"run {run.id!r} was saved on machine {run.machine!r}; this one is {setup.hash!r} ({setup.table.name}),"
            " so its states, rows, guards or allowed tools differ; load it with the machine it was saved on"
        )
    if run.state not in setup.works:
        raise SavedRunError(f"run {run.id!r} is in state {run.state!r}, which machine {setup.table.name!r} does not have")
    waits = ((f"open_calls/{n}/not_before_s", call.not_before_s) for n, call in enumerate(run.open_calls))
    for name, seconds in (("spent_s", run.spent_s), ("not_before_s", run.not_before_s), *waits):
        if not 0 <= seconds <= _LONGEST_S:
            raise SavedRunError(f"run/{name}: {short(seconds, 40)} seconds are no time that a run can spend")
    _check_stop(run, setup)
    held = sum(call.ok is None and bool(call.awaits) for call in run.open_calls)
    if run.held != held or (run.paused and not held):
        raise SavedRunError(f"run/held: {held} calls of run {run.id!r} wait to begin, and the text says {short(run.held, 40)}")
    known = {call.id for call in run.open_calls}
    for n, call in enumerate(run.open_calls):
        if call.ok is None and call.admitted:
            if (tool := setup.box.get(call.tool)) is None:
                raise SavedRunError(f"run {run.id!r} waits for the tool {call.tool!r}, which is not among {_names(setup)}")
            # The gate has let it pass, and does not look at it again before its body runs.
            if not call.started and (fault := call_fault(tool, call.args)):
                raise SavedRunError(
                    f"run/open_calls/{n}/args: the contract that {call.tool!r} has here does not take them ({fault});"
                    " load the run with the tools that it was saved with"
                )
        if call.awaits not in ("", CHECK, APPROVAL, CLIENT):
            raise SavedRunError(f"run/open_calls/{n}/awaits: {short(call.awaits, 40)} is nothing that a call waits for")
        if call.leader and call.leader not in known:
            raise SavedRunError(f"run/open_calls/{n}/leader: there is no open call {call.leader!r}")
    for n, (kind, _, subject, detail) in enumerate(run.trace):
        if kind in ("state_entered", "resumed") and not isinstance(detail, str | None):
            raise SavedRunError(f"run/trace/{n}: {kind} is told with a word, and this one with {short(detail, 40)}")
        if kind == "decision" and not (subject.isdecimal() and len(subject) <= 18):
            raise SavedRunError(f"run/trace/{n}: a decision is told with the number of its turn, and this one with {short(subject, 40)}")
    if run.stop is None and (run.closing or run.state in setup.finals):
        raise SavedRunError(f"run/stop: run {run.id!r} is at its end in state {run.state!r} and does not say why")
    if run.done:
        return
    try:
        effect = setup.works[run.state].ask(setup, run)
    except Exception as error:
        raise SavedRunError(f"run {run.id!r} cannot go on in state {run.state!r}: {short(error, 200)}") from error
    if isinstance(effect, Wait) and (closed := wait_closes(run, effect.until_s - run.spent_s - _ROUNDED_S)):
        raise SavedRunError(f"run {run.id!r} waits until {effect.until_s:g} s, and {closed[0].limit} ends a run that would wait so long")


def _check_stop(run: Run, setup: Setup) -> None:
    stop = run.stop
    if stop is None:
        return
    if stop.state not in setup.works or (stop.outcome and stop.outcome not in setup.machine.outcomes(stop.state)):
        where = f"state {short(stop.state, 40)} by {short(stop.outcome, 40)}"
        raise SavedRunError(f"run/stop: it goes on in {where}, which machine {setup.table.name!r} does not have")
    known = {field.name for field in attrs.fields(Limits)}
    for name in (*(guard.limit for guard in stop.closed), *stop.raise_to):
        if name not in known:
            raise SavedRunError(f"run/stop: {short(name, 40)} is no limit")
    try:
        attrs.evolve(run.limits, **stop.raise_to)
    except LimitsError as error:
        raise SavedRunError(f"run/stop/raise_to: {error}") from error


# A hundred years; what is beyond it was never spent.
_LONGEST_S = 100 * 366 * 86_400.0
# What adding a wait to the time spent, and taking that off again, may have made of it.
_ROUNDED_S = 0.001


def _names(setup: Setup) -> str:
    return ", ".join(map(str, setup.box.names())) or "no tools"


Shape = tuple[Callable[[Any, str], Any], Callable[[Any, str], Any]]


def _record_out(record: Any, where: str) -> dict[str, Any]:
    shapes = _SHAPES.get(type(record))
    if shapes is None:
        raise SavedRunError(f"{where}: a {type(record).__name__} cannot be saved; its kind of record is not the library's own")
    return {
        (key := _key(field.name)): shapes.get(field.name, _PLAIN)[0](getattr(record, field.name), f"{where}/{key}")
        for field in attrs.fields(type(record))
        if field.name not in _LEFT_OUT
    }


def _record_in(kind: Any, saved: Any, where: str) -> Any:
    if not isinstance(saved, dict):
        raise SavedRunError(f"{where}: expected an object, got {short(saved, 60)}")
    fields = _fields(kind)
    if saved.keys() != fields.keys():
        key = min(saved.keys() ^ fields.keys(), key=short)
        raise SavedRunError(f"{where}: {'unknown' if key in saved else 'missing'} key {short(key, 60)}")
    made: dict[str, Any] = {}
    for key, (name, read, hint) in fields.items():
        value = read(saved[key], f"{where}/{key}")
        if not _fits(hint, value):
            raise SavedRunError(f"{where}/{key}: expected {_said(hint)}, got {short(value, 60)}")
        made[name] = value
    try:
        return kind(**made)
    except (FsmAgentError, TypeError, ValueError) as error:
        raise SavedRunError(f"{where}: {short(str(error), 300)[1:-1]}") from error


# What deciders and verifiers say is kept as they said it, whatever its types; the engine reads it with that in mind.
_AS_SAID: Mapping[type[Any], frozenset[str]] = {
    Call: frozenset({"intent", "reason"}),
    Decision: frozenset({"calls", "text", "citations", "question", "finish"}),
    events.Denied: frozenset({"reason"}),
    events.Skipped: frozenset({"why"}),
    Judgement: frozenset({"decision", "reason"}),
    Run: frozenset({"note", "empties"}),
    Stop: frozenset({"detail"}),
    ToolCall: frozenset({"tool", "id", "intent", "reason", "changed"}),
    Usage: frozenset({"input_tokens", "output_tokens", "cost"}),
    Verdict: frozenset({"reason", "retry_after_s"}),
}


@cache
def _fields(kind: Any) -> Mapping[str, tuple[str, Callable[[Any, str], Any], Any]]:
    """By its key, each field of a record, how it is read, and the type that is then checked; Any for what is kept as it was said."""
    said, hints, shapes = _AS_SAID.get(kind, frozenset()), get_type_hints(kind), _SHAPES[kind]
    names = [field.name for field in attrs.fields(kind) if field.name not in _LEFT_OUT]
    return {_key(name): (name, shapes.get(name, _PLAIN)[1], Any if name in said else hints[name]) for name in names}


def _key(name: str) -> str:
    # What lies flat in a run is written row by row.
    return name.removeprefix("flat_")


@cache
def _parts(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(hint), get_args(hint)


def _fits(hint: Any, value: Any) -> bool:
    if hint is Any:
        return True
    origin, parts = _parts(hint)
    if origin is None:
        # No counter and no time is NaN or infinite, and with one that is a guard might never close.
        return type(value) is hint if hint is not float else type(value) is int or (type(value) is float and isfinite(value))
    if origin is UnionType or origin is Union:
        return any(_fits(part, value) for part in parts)
    if origin is tuple:
        if type(value) is not tuple:
            return False
        if parts[-1] is Ellipsis:
            return all(_fits(parts[0], item) for item in value)
        return len(value) == len(parts) and all(map(_fits, parts, value))
    if origin is list:
        return type(value) is list and all(_fits(parts[0], item) for item in value)
    return type(value) is dict and all(_fits(parts[0], key) and _fits(parts[1], item) for key, item in value.items())


def _said(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and get_origin(hint) is None else str(hint)


# `loads` has read the tags of plain values already.
_PLAIN: Shape = (to_json, lambda saved, where: saved)


def _one(kind: type[Any]) -> Shape:
    return (
        lambda value, where: None if value is None else _record_out(value, where),
        lambda saved, where: None if saved is None else _record_in(kind, saved, where),
    )


def _many(kind: type[Any], make: Callable[[Any], Any]) -> Shape:
    def write(values: Any, where: str) -> list[Any] | None:
        if values is None:
            # What a decision gave as its calls was no calls.
            return None
        if not isinstance(values, list | tuple):
            raise SavedRunError(f"{where}: a {type(values).__name__} cannot be saved; it should be a list of {kind.__name__}")
        return [_record_out(value, f"{where}/{n}") for n, value in enumerate(values)]

    return (
        write,
        lambda saved, where: None if saved is None else make(_records_in(kind, saved, where)),
    )


def _records_in(kind: type[Any], saved: Any, where: str) -> list[Any]:
    return [_record_in(kind, one, f"{where}/{n}") for n, one in enumerate(_listed(saved, where))]


def _enum(kind: Any) -> Shape:
    def read(saved: Any, where: str) -> Any:
        try:
            return None if saved is None else kind(saved)
        except ValueError:
            raise SavedRunError(f"{where}: {short(saved, 60)} is no {kind.__name__}") from None

    return (lambda value, where: None if value is None else value.value, read)


def _listed(saved: Any, where: str) -> list[Any]:
    if not isinstance(saved, list):
        raise SavedRunError(f"{where}: expected a list, got {short(saved, 60)}")
    return saved


def _trace_in(saved: Any, where: str) -> list[Any]:
    if not _fits(list[TraceRow], saved):
        raise SavedRunError(f"{where}: expected {_said(list[TraceRow])}, got {short(saved, 60)}")
    return [entry for row in saved for entry in row]


def _journal_out(journal: list[Any], where: str) -> list[Any]:
    pairs = zip(journal[::2], journal[1::2], strict=True)
    return [[to_json(at), type(event).__name__, _record_out(event, f"{where}/{n}")] for n, (at, event) in enumerate(pairs)]


def _journal_in(saved: Any, where: str) -> list[Any]:
    journal: list[Any] = []
    for n, entry in enumerate(_listed(saved, where)):
        if not isinstance(entry, list) or len(entry) != 3 or type(entry[1]) is not str or entry[1] not in _EVENTS:
            raise SavedRunError(f"{where}/{n}: expected [time, event, fields], got {short(entry, 80)}")
        if not _fits(float, entry[0]):
            raise SavedRunError(f"{where}/{n}/0: expected seconds, got {short(entry[0], 60)}")
        journal += (entry[0], _record_in(_EVENTS[entry[1]], entry[2], f"{where}/{n}"))
    return journal


# Names in a tuple, which a text holds as a list.
_TUPLE: Shape = (lambda value, where: to_json(list(value), where), lambda saved, where: tuple(_listed(saved, where)))
_SHAPES: dict[type[Any], dict[str, Shape]] = {kind: {} for kind in _EVENTS.values()}
_SHAPES |= {
    Limits: {},
    Usage: {},
    ToolCall: {},
    Verdict: {"result_class": _enum(ResultClass)},
    Judgement: {"next_action": _one(ToolCall)},
    Decision: {"calls": _many(ToolCall, tuple), "usage": _one(Usage)},
    ClosedGuard: {"reason": _enum(StopReason)},
    Stop: {"reason": _enum(StopReason), "closed": _many(ClosedGuard, tuple)},
    Program: {},
    Call: {"result_class": _enum(ResultClass), "tried_repairs": _TUPLE},
    events.Decided: {"decision": _one(Decision)},
    events.DecisionFailed: {"usage": _one(Usage)},
    events.Returned: {"verdict": _one(Verdict)},
    events.Raised: {"verdict": _one(Verdict)},
    events.Judged: {"judgement": _one(Judgement), "usage": _one(Usage)},
    events.JudgeFailed: {"usage": _one(Usage)},
    events.Composed: {"usage": _one(Usage)},
    events.ComposeFailed: {"usage": _one(Usage)},
    events.Resumed: {"limits": _one(Limits), "before": _one(Limits)},
    Run: {
        "limits": _one(Limits),
        "calls": _many(Call, list),
        "open_calls": _many(Call, list),
        "draft": _one(Decision),
        "program": _one(Program),
        "judgement": _one(Judgement),
        "closed": _many(ClosedGuard, tuple),
        "stopping": _enum(StopReason),
        "stop": _one(Stop),
        "flat_trace": (lambda flat, where: to_json(flat_rows(flat), where), _trace_in),
        "flat_journal": (_journal_out, _journal_in),
    },
}
