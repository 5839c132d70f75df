"""Repairs: which failed calls of a turn are changed by their reason and tried again."""

from __future__ import annotations

from typing import Any

from fsm_agent.core.errors import PASSES
from fsm_agent.core.exact_values import exact_args, word
from fsm_agent.core.gate import Toolbox
from fsm_agent.core.keys import call_key
from fsm_agent.core.run import ROW, Call, Run
from fsm_agent.core.secret_seals import keep_former, seal_tries
from fsm_agent.core.short_text import opaque_text, said_by
from fsm_agent.core.storable import own_args
from fsm_agent.core.tools import Tool
from fsm_agent.core.turn import Repair, Repairs
from fsm_agent.core.values import FATAL, EffectClass


def plan_repairs(run: Run, box: Toolbox, repairs: Repairs) -> bool | None:
    """Find for each failed call of the turn the repair of its reason; true when one of them may still be tried.

    A repair is tried once per call, and not when it would change nothing. `run.repair_due` says that one was found, also
    when no attempt is left for it. What passes through leaves the repair due, to be asked again once the run is taken up; None where
    a replay comes to that point.
    """
    run.attempts, run.repair_due = 0, False
    named: list[tuple[Call, tuple[str, Repair]]] = []
    fatal = False
    for call in run.open_calls:
        call.repair = None
        if call.result_class is FATAL:
            fatal = True
        if call.ok is False and not call.parent:
            repair = repairs.get(call.error)
            if repair is not None and repair[0] not in call.tried_repairs:
                named.append((call, repair))
    if not named or run.closed or fatal:
        return False
    most = run.limits.max_attempts
    ready: list[tuple[Call, tuple[str, str, Any]]] = []
    spent: list[tuple[Call, tuple[str, str, Any]]] = []
    for call, (name, function) in named:
        if run.replaying is not None and _was_interrupted(run, call, name):
            _leave_due(run, call, name)
            return None
        changed = None if call.body_runs and _only_once(box.get(call.tool)) else _apply(name, function, call, run)
        if changed is not None:
            (ready if most is None or call.tries < most else spent).append((call, (name, *changed)))
    for call, planned in ready or spent:
        call.repair = planned
        run.attempts = max(run.attempts, call.tries)
        run.repair_due = True
    return bool(ready)


def _only_once(tool: Tool | None) -> bool:
    """Whether a body that has begun must not be begun a second time, with changed arguments neither."""
    return tool is not None and tool.effect is EffectClass.AT_MOST_ONCE


def _apply(name: str, repair: Repair, call: Call, run: Run) -> tuple[str, Any] | None:
    """The changed tool and arguments, or None where the repair has no idea, changes nothing, fails or gives something else."""
    try:
        changed: Any = repair(call.tool, own_args(call.args), run)
    except PASSES:
        _leave_due(run, call, name)
        raise
    except BaseException as error:
        # What it says may hold the arguments, and with them a secret.
        _note(run, call, name, f"raised {said_by(error).partition(':')[0] if call.secret else said_by(error)}")
        return None
    if changed is None:
        return None
    pair: Any = changed if type(changed) is tuple or type(changed) is list else ()
    tool = "" if len(pair) != 2 else pair[0] if type(pair[0]) is str else word(pair[0])
    if not tool:
        _note(run, call, name, f"gave {opaque_text(changed)[1:-1].rpartition('.')[2]} and no pair of tool and arguments")
        return None
    args = pair[1] if type(pair[1]) is dict else exact_args(pair[1])
    return None if tool == call.tool and same_args(tool, args, call.args) else (tool, args)


def _note(run: Run, call: Call, name: str, what: str) -> None:
    """Say that a repair failed; it is not asked about this call again."""
    call.tried_repairs += (name,)
    run.flat_trace.extend(("repair_failed", run.spent_s, call.id, f"{name} {what}"))


def _leave_due(run: Run, call: Call, name: str) -> None:
    """Note a repair that was interrupted: it is owed to the call until the run goes on."""
    call.repair, run.repair_due = (name, "", None), True
    run.flat_trace.extend(_interruption(run, call, name))


def repair_interrupted(call: Call) -> bool:
    """Whether the repair of a call was asked for and interrupted, so that it names no tool yet."""
    return call.repair is not None and not call.repair[1]


def _was_interrupted(run: Run, call: Call, name: str) -> bool:
    """Whether the run that is replayed was interrupted here; what is asked again now would not be."""
    at = len(run.flat_trace)
    return tuple(run.replaying.flat_trace[at : at + ROW]) == _interruption(run, call, name)


def _interruption(run: Run, call: Call, name: str) -> tuple[str, float, str, str]:
    return ("repair_failed", run.spent_s, call.id, f"{name} was interrupted")


def same_args(tool: str, changed: Any, args: Any) -> bool:
    """Whether a repair of the arguments has changed nothing that tells two calls apart."""
    if type(changed) is dict and type(args) is dict:
        for name, value in changed.items():
            before = args.get(name, value)
            if value is not before and type(value) is type(before) and type(value) in _SIMPLE and value != before:
                return False
    return call_key(tool, changed) == call_key(tool, args)


_SIMPLE = frozenset({str, int})


def apply_repairs(run: Run) -> bool:
    """Change the failed calls as planned and open them again; false when none was planned."""
    any_changed = False
    for call in run.open_calls:
        if call.repair is None:
            continue
        if call.secret:
            seal_tries(run, call)
            keep_former(run, call)
        name, call.tool, call.args = call.repair
        call.tried_repairs += (name,)
        call.repaired += (name,)
        run.fixes.append(name)
        call.repair, call.ok, call.error, call.detail, call.result_class = None, None, "", "", None
        call.admitted = call.started = call.reused = False
        call.awaits, call.expires_at, call.edited = "", None, None
        call.leader = ""
        run.flat_trace.extend(("call_repaired", run.spent_s, call.id, name))
        any_changed = True
    return any_changed
