"""An explained stop: every closed guard, what consumed it, and the joint raise that lets the run go on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fsm_agent.core.guards import Guard, Opaque, Spending, spendings
from fsm_agent.core.run import Call, ClosedGuard, Run, Stop
from fsm_agent.core.table import Table
from fsm_agent.core.values import ResultClass, StopReason

# What a final state means when no guard was closed and nothing else said why.
_BY_OUTCOME = {
    "rejected": StopReason.INVALID_REQUEST,
    "insufficient": StopReason.UNVERIFIED,
    "no_progress": StopReason.NO_PROGRESS,
    "failed": StopReason.FATAL,
    "exhausted": StopReason.FATAL,
    "stopped": StopReason.FATAL,
}


def closed_guard(run: Run, guard: Spending) -> ClosedGuard:
    """The record of a spending guard that is closed for this run."""
    used, allowed = guard.used(run), guard.allowed(run)
    opens_at: float = used + 1
    if guard.limit == "deadline_s":
        # At most a tenth is reserved, so half as much again as was spent leaves time to go on with.
        opens_at = (used or 1.0) * 1.5
    elif isinstance(used, float):
        opens_at = used * 1.5 + 1e-9
    return ClosedGuard(
        guard=guard.name, limit=guard.limit, allowed=allowed, used=used, opens_at=opens_at, reason=guard.reason,
        calls=consumers(run, guard.limit),
    )


def closed_among(run: Run, guards: Iterable[Guard]) -> list[ClosedGuard]:
    """The records of all spending guards among these that are closed, in their order."""
    return [closed_guard(run, part) for guard in guards for part in spendings(guard) if not part(run)]


def note_closed(run: Run, guards: Iterable[Guard]) -> None:
    """Keep what closed the rows that would have let the run go on.

    A closed guard explains a stop only where the run ends by it; elsewhere another row was simply open.
    """
    for guard in guards:
        if type(guard) is not Opaque:
            for closed in closed_among(run, (guard,)):
                run.closed.append(closed)
                run.trace.append(("guard_closed", run.spent_s, closed.guard, closed.reason.value))


def consumers(run: Run, limit: str) -> tuple[str, ...]:
    """The ids of the calls that used up a limit, in order."""
    calls = [*run.calls, *run.open_calls]
    return tuple(call.id for call in calls if _consumes(run, call, limit))


def _consumes(run: Run, call: Call, limit: str) -> bool:
    if limit in ("max_tool_calls", "max_same_tool_calls"):
        return call.admitted
    if limit in ("stop_after_tool_calls", "max_steps", "max_turns"):
        return True
    if limit == "max_tool_errors":
        return call.error.startswith(("raised:", "result:", "unknown_outcome")) and call.error != "result:empty"
    if limit == "max_bad_arguments":
        return call.error.startswith("args:")
    if limit == "max_empty_results":
        worst = [intent for intent, count in run.empties.items() if count == run.empty_results]
        return call.result_class is ResultClass.EMPTY and (call.intent or call.tool) in worst
    if limit == "max_same_observation":
        return bool(call.observation) and run.observations.get(call.observation) == run.same_observation
    if limit == "max_attempts":
        return call.repair is not None
    return limit in ("max_stale_turns", "deadline_s") and call.turn > run.turns - max(run.stale_turns, 1)


def explain(run: Run, table: Table) -> Stop:
    """Say why the run ends where it is; `run.came_by` is the state and outcome that led here."""
    state, outcome = run.came_by
    if run.closed:
        reason = run.closed[0].reason
    elif run.stopping is not None:
        reason = run.stopping
    elif outcome in _BY_OUTCOME:
        reason = _BY_OUTCOME[outcome]
    elif run.draft is not None and run.draft.question:
        reason = StopReason.QUESTION
    else:
        reason = StopReason.ANSWERED
    if not run.closed and run.stopping is None:
        # The run came to an end of its own; there is nothing to raise and nowhere to go on.
        return Stop(reason=reason, detail=run.note, state=state, outcome=outcome)
    on = _goes_on_by(table, state, outcome)
    closed = list(run.closed)
    if closed:
        known = {guard.limit for guard in closed}
        ahead = [guard for row in table.rows_of(state, on) for guard in row.guards]
        closed += [guard for guard in closed_among(run, ahead) if guard.limit not in known]
    return Stop(
        reason=reason, detail=run.note, closed=tuple(closed), raise_to=joint_raise(run, closed), state=state, outcome=on
    )


def _goes_on_by(table: Table, state: str, outcome: str) -> str:
    """The outcome by which a stopped run goes on; empty when it enters its state anew."""
    if outcome != "stopped":
        return outcome
    returns = any(row.target == state for row in table.rows_of(state, "called"))
    return "called" if returns else ""


def joint_raise(run: Run, closed: Iterable[ClosedGuard]) -> dict[str, Any]:
    """The smallest new values of the limits that open all these guards."""
    raises: dict[str, Any] = {}
    for guard in closed:
        if guard.limit == "dedup_window":
            raises[guard.limit] = None
        else:
            raises[guard.limit] = max(raises.get(guard.limit, 0), guard.opens_at)
    return raises
