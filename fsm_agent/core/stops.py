"""An explained stop: every closed guard, what consumed it, and the joint raise that lets the run go on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from fsm_agent.core.events import PerformFailed
from fsm_agent.core.gate import fault_text
from fsm_agent.core.guards import (
    AllOf,
    Guard,
    Opaque,
    Spending,
    budget_left,
    spendings,
)
from fsm_agent.core.limits import Limits
from fsm_agent.core.run import Call, ClosedGuard, Run, Stop, deadline_after, new_stop, reserve_of
from fsm_agent.core.table import Row, Table
from fsm_agent.core.values import ANSWERED, ResultClass, StopReason

# What a final state means when no guard was closed and nothing else said why.
_BY_OUTCOME = {
    "rejected": StopReason.INVALID_REQUEST,
    "insufficient": StopReason.UNVERIFIED,
    "no_progress": StopReason.NO_PROGRESS,
    "failed": StopReason.FATAL,
    "exhausted": StopReason.FATAL,
    "stopped": StopReason.FATAL,
}

# The kinds of work that begin with a model turn, and need what such a turn needs.
_ASKING = frozenset({"decide", "gather", "plan", "synthesize"})


def closed_guard(run: Run, guard: Spending) -> ClosedGuard:
    """The record of a spending guard that is closed for this run."""
    used, allowed = guard.used(run), guard.allowed(run)
    opens_at: float = used + 1
    if guard.limit == "deadline_s":
        opens_at = deadline_after(run, used)
    elif isinstance(used, float):
        opens_at = used * 1.5 + 1e-9
    return ClosedGuard(
        guard=guard.name, limit=guard.limit, allowed=allowed, used=used, opens_at=opens_at, reason=guard.reason,
        calls=consumers(run, guard.limit), reserve=reserve_of(run) if guard.limit == "deadline_s" else 0.0,
    )


def closed_among(run: Run, guards: Iterable[Guard]) -> list[ClosedGuard]:
    """The records of all spending guards among these that are closed, in their order."""
    return [closed_guard(run, part) for guard in guards for part in spendings(guard) if _is_closed(part, run)]


def _is_closed(part: Spending, run: Run) -> bool:
    try:
        return not part(run)
    except Exception:
        # A counter of the user's own that is no number closes its rows, and there is no figure to explain it by.
        return False


def note_closed(run: Run, guards: Iterable[Guard]) -> None:
    """Keep what closed the rows that would have let the run go on.

    A closed guard explains a stop only where the run ends by it; elsewhere another row was simply open.
    """
    for guard in guards:
        if type(guard) is not Opaque:
            for closed in closed_among(run, (guard,)):
                if all(known.guard != closed.guard for known in run.closed):
                    run.close(closed)


def consumers(run: Run, limit: str) -> tuple[str, ...]:
    """The ids of the calls that used up a limit, in order."""
    calls = [*run.calls, *run.open_calls]
    if limit == "max_stale_turns":
        # A turn without a call says nothing of facts, and is none of those that are counted.
        stale = sorted({call.turn for call in calls})[-max(run.stale_turns, 1) :]
        return tuple(call.id for call in calls if call.turn in stale)
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
        return run.observations.get(call.observation) == run.same_observation
    if limit == "max_attempts":
        return call.repair is not None
    return limit == "deadline_s" and call.body_runs > 0


def explain(run: Run, table: Table) -> Stop:
    """Say why the run ends where it is; `run.came_by` is the state and outcome that led here."""
    state, outcome = run.came_by
    note = run.note if run.judgement is None else _note(run, outcome)
    if run.stopping is None and (not run.closed or (outcome == "stopped" and _fatal(run))):
        # The run came to an end of its own; there is nothing to raise and nowhere to go on.
        if outcome == "failed" and not note:
            note = _failure(run)
        return new_stop(_BY_OUTCOME.get(outcome) or _own_reason(run, table, state), note, state, outcome)
    on = _goes_on_by(table, state, outcome)
    if not note and run.closed and run.closed[0].limit == "max_stale_turns":
        # No raise of this limit alone brings a fact where calls are refused for another reason.
        last = run.last
        note = f"{last.tool}: {fault_text(last)}" if last is not None and last.error.startswith("refused:") else ""
    if run.stopping is not None and not run.closed:
        return Stop(reason=run.stopping, detail=note, state=state, outcome=on)
    stop = Stop(reason=run.closed[0].reason, detail=note, closed=run.closed, state=state, outcome=on)
    return with_all_closed(run, table, stop)


def _note(run: Run, outcome: str) -> str:
    """What there is to say of the end; of a verifier's no, only where the run ended by it and did not go on to gather more."""
    judged = run.judgement
    stale = judged is not None and run.note == judged.reason and outcome != "insufficient"
    return run.note if isinstance(run.note, str) and not stale else ""


def _failure(run: Run) -> str:
    """The last failure, by which a run ends that neither repairs it nor asks its decider again."""
    told = run.flat_journal[-1] if run.flat_journal else None
    if type(told) is PerformFailed:
        # Of an effect of the user's own, whose work has noted nothing.
        return f"{told.error}: {told.message}" if told.message else told.error
    for call in reversed(run.calls):
        if call.error:
            return f"{call.tool} failed: {fault_text(call)}"
    return ""


def _fatal(run: Run) -> bool:
    last = run.calls[-1].turn if run.calls else 0
    return any(call.result_class is ResultClass.FATAL for call in run.calls if call.turn == last)


def _own_reason(run: Run, table: Table, state: str) -> StopReason:
    if (run.draft is not None and run.draft.question) or unclear_calls(run):
        return StopReason.QUESTION
    if run.draft is None and run.judgement is not None and table.state(state).work == "verify" and not run.evidence():
        # Nothing was said and nothing was found: that nobody objected makes no answer of it (seed 002).
        return StopReason.NO_PROGRESS
    return ANSWERED


def unclear_calls(run: Run) -> list[Call]:
    """The calls that were begun and of which nobody knows whether they took effect: a run that had them asks (03, sections 5 and 6).

    What an earlier stop of the run has said already is not asked again: whoever took the run up knows. A pause has said nothing of it,
    and what a cancelled run says may have reached nobody: who cancels it, or leaves its stream, does not wait for its answer.
    """
    if not run.tool_errors or "unknown_outcome" not in run.errors:
        return []
    unclear: dict[str, bool] = {}
    taken_up = False
    for kind, _, subject, detail in run.backwards():
        # Of a stop this line names the state; people who settled a pause leave one that names none.
        taken_up = taken_up or (kind == "resumed" and detail is not None)
        if taken_up and kind == "answer":
            if subject != StopReason.CANCELLED:
                break
            taken_up = False
        if kind == "call_finished" and detail == "unknown_outcome":
            unclear[subject] = True
    return [call for call in run.calls if call.id in unclear]


def with_all_closed(run: Run, table: Table, stop: Stop) -> Stop:
    """The stop with all that is closed by now where the run would go on, and the joint raise that opens it."""
    if not stop.closed:
        # It came to an end of its own.
        return stop
    known = {guard.guard for guard in stop.closed}
    closed = [one if one.calls else attrs.evolve(one, calls=consumers(run, one.limit)) for one in stop.closed]
    for guard in _ahead(run, table, stop.state, stop.outcome):
        for part in spendings(guard):
            if part.name not in known and _is_closed(part, run):
                known.add(part.name)
                closed.append(closed_guard(run, part))
    return Stop(
        reason=stop.reason, detail=stop.detail, closed=tuple(closed), raise_to=joint_raise(run, closed), state=stop.state,
        outcome=stop.outcome,
    )


def _ahead(run: Run, table: Table, state: str, on: str) -> Iterator[Guard]:
    """The guards between a stopped run and the next thing that it asks for; rows that no raise can open are left out."""
    landing = [] if on else [state]
    for row in _openable(run, table.rows_of(state, on) if on else ()):
        yield from row.guards
        landing.append(row.target)
        if table.state(row.target).work == "repair":
            for later in _openable(run, table.rows_of(row.target, "repaired")):
                yield from later.guards
                landing.append(later.target)
    for name in [name for name in landing if table.state(name).work == "call"]:
        # Of a state that only calls nothing may be left to call.
        for row in _openable(run, table.rows_of(name, "called")):
            yield from row.guards
            landing.append(row.target)
    if any(table.state(name).work in _ASKING for name in landing):
        yield budget_left


def _openable(run: Run, rows: Iterable[Row]) -> Iterator[Row]:
    return (row for row in rows if not any(_shut(run, guard) for guard in row.guards))


def _shut(run: Run, guard: Guard) -> bool:
    """Whether a guard is closed for another reason than a limit."""
    if isinstance(guard, Spending):
        return False
    if isinstance(guard, AllOf):
        return any(_shut(run, part) for part in guard.guards)
    try:
        return not guard(run)
    except Exception:
        return True


def _goes_on_by(table: Table, state: str, outcome: str) -> str:
    """The outcome by which a stopped run goes on; empty when it enters its state anew."""
    if outcome != "stopped":
        return outcome
    returns = any(row.target == state for row in table.rows_of(state, "called"))
    return "called" if returns else ""


def joint_raise(run: Run, closed: Iterable[ClosedGuard]) -> dict[str, Any]:
    """New values of the limits that open all these guards; None where only switching a limit off does."""
    raises: dict[str, Any] = {}
    for guard in closed:
        least = guard.opens_at
        if guard.limit == "max_steps":
            # The end was a state entered too, and so is the one that the run goes on to.
            least = max(least, run.steps + 1)
        elif guard.limit == "deadline_s":
            least = max(least, deadline_after(run, run.spent_s))
        before = raises.get(guard.limit, 0)
        # Of the policy that needs no figure there is none to raise.
        is_off = guard.limit == "dedup_window" or (guard.guard == "call_is_new" and run.limits.max_same_call is None)
        if is_off or before is None or (isinstance(least, float) and not math.isfinite(least)):
            raises[guard.limit] = None
        else:
            raises[guard.limit] = max(before, least)
    return raises


def still_closed(run: Run, stop: Stop, limits: Limits) -> list[str]:
    """The limits of a stop that would not let the run go on even so."""
    shut = [guard.limit for guard in stop.closed if not _opens(run, guard, limits, stop.raise_to.get(guard.limit))]
    # Several guards may look at one limit.
    return list(dict.fromkeys(shut))


def _opens(run: Run, guard: ClosedGuard, limits: Limits, least: Any) -> bool:
    allowed = getattr(limits, guard.limit)
    if allowed is None:
        return True
    ran_out = isinstance(guard.used, float) and guard.allowed is not None and guard.used >= guard.allowed
    if ran_out and guard.limit != "max_wait_s":
        # Time or money: anything above what is used will do, also less than the raise that was proposed.
        if guard.limit == "deadline_s":
            until = limits.work_until_s
            return until is None or until > run.spent_s
        return bool(allowed > guard.used)
    return least is not None and bool(allowed >= least)
