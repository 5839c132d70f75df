"""How a run comes to its end: the stop is explained, and a closing turn asked for where one is due."""

from __future__ import annotations

from fsm_agent.core.gate import Toolbox, refuse
from fsm_agent.core.run import Call, Run
from fsm_agent.core.setup import Setup
from fsm_agent.core.stops import explain
from fsm_agent.core.turn import fold
from fsm_agent.core.values import OF_ITSELF, EffectClass


def stop_here(setup: Setup, run: Run) -> None:
    """Explain the stop; where a closing turn is due and possible it is asked for, else the run is over."""
    if run.open_calls:
        _settle_unbegun(run)
        fold(run, setup.box)
    stop = run.stop = explain(run, setup.table)
    if (stop.closed or (run.came_by[1] == "passed" and _is_unsaid(run))) and _closing_turn(setup, run):
        run.closing = True
    else:
        finish(run, stop.reason)


def _settle_unbegun(run: Run) -> None:
    """Settle what was asked for and not begun when the run ended: every call gets one result."""
    why = run.closed[0].reason if run.closed else run.stopping or "final"
    for call in run.open_calls:
        if call.ok is None:
            refuse(run, call, f"skipped:{why}", "the run ended before the call was begun")


def finish(run: Run, reason: str) -> None:
    """The run is over."""
    run.closing = False
    run.flat_trace.extend(("answer", run.spent_s, str(reason), None))


def abandon(run: Run, box: Toolbox, call: Call) -> None:
    """Settle an open call of a run that is stopped in the middle: nothing is known of a body that must run only once."""
    tool = box.get(call.tool)
    once = tool is not None and tool.effect is EffectClass.AT_MOST_ONCE
    call.ok, call.error = False, "unknown_outcome" if once and call.started else "cancelled"
    call.detail = "the run was stopped while the call was open"
    if call.started:
        call.body_runs += 1
        run.body_runs += 1
    run.errors.append(call.error)
    run.flat_trace.extend(("call_finished", run.spent_s, call.id, call.error))


def _is_unsaid(run: Run) -> bool:
    """True where the evidence passed and nobody has said anything of it yet."""
    return run.stop is not None and run.stop.reason in OF_ITSELF and run.draft is None


def _closing_turn(setup: Setup, run: Run) -> bool:
    if not (setup.composes and setup.policy.reserve_answer):
        return False
    # A decider that gave nothing usable so often will not be asked for the answer either.
    if any(guard.guard == "decisions_usable" for guard in run.closed):
        return False
    limits = run.limits
    in_time = limits.deadline_s is None or run.spent_s < limits.deadline_s
    return in_time and (limits.max_turns is None or run.turns < limits.max_turns)
