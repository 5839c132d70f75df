"""Repairs: which failed calls of a turn are changed by their reason and tried again."""

from __future__ import annotations

from typing import Any

from fsm_agent.core.gate import Toolbox
from fsm_agent.core.keys import call_key
from fsm_agent.core.plain import plain_copy
from fsm_agent.core.redact import seal_tries
from fsm_agent.core.run import Call, Run
from fsm_agent.core.tools import Tool
from fsm_agent.core.turn import Repair, Repairs
from fsm_agent.core.values import EffectClass, ResultClass


def plan_repairs(run: Run, box: Toolbox, repairs: Repairs) -> bool:
    """Find for each failed call of the turn the repair of its reason; true when one of them may still be tried.

    A repair is tried once per call, and not when it would change nothing. `run.repair_due` says that one was found, also
    when no attempt is left for it.
    """
    most = run.limits.max_attempts
    ready: list[tuple[Call, tuple[str, str, Any]]] = []
    spent: list[tuple[Call, tuple[str, str, Any]]] = []
    ends = bool(run.closed) or any(call.result_class is ResultClass.FATAL for call in run.open_calls)
    for call in run.open_calls:
        call.repair = None
        if call.ok is not False or ends or _begun_for_good(call, box.get(call.tool)):
            continue
        named = repairs.get(call.error)
        if named is None or named[0] in call.tried_repairs:
            continue
        changed = _apply(named[1], call, run)
        if changed is not None:
            (ready if most is None or call.tries < most else spent).append((call, (named[0], *changed)))
    for call, repair in ready or spent:
        call.repair = repair
    run.attempts = max((call.tries for call, _ in ready or spent), default=0)
    run.repair_due = bool(ready or spent)
    return bool(ready)


def _begun_for_good(call: Call, tool: Tool | None) -> bool:
    """Whether a body that must run at most once has begun for this call: it is run no second time, changed or not."""
    return bool(call.body_runs) and tool is not None and tool.effect is EffectClass.AT_MOST_ONCE


def _apply(repair: Repair, call: Call, run: Run) -> tuple[str, Any] | None:
    """The changed tool and arguments, or None where the repair changes nothing, fails or gives something else."""
    try:
        tool, args = repair(call.tool, plain_copy(call.args), run)  # type: ignore[misc]
    except Exception:
        # A repair is a function of the host; one that fails has no idea how to mend the call.
        return None
    if not isinstance(tool, str) or (tool == call.tool and call_key(tool, args) == call_key(tool, call.args)):
        return None
    return tool, args


def apply_repairs(run: Run) -> bool:
    """Change the failed calls as planned and open them again; false when none was planned."""
    any_changed = False
    for call in run.open_calls:
        if call.repair is None:
            continue
        if call.secret:
            seal_tries(run, call)
        name, call.tool, call.args = call.repair
        call.tried_repairs.append(name)
        run.fixes.append(name)
        call.repair, call.ok, call.error, call.detail, call.result_class = None, None, "", "", None
        call.admitted = call.started = call.reused = False
        call.leader = ""
        run.trace.append(("call_repaired", run.spent_s, call.id, name))
        any_changed = True
    return any_changed
