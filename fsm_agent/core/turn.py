"""One turn: which of its calls run next, what each result does to it, and how they are folded into the run.

Results are folded in the order of the calls, so a run is the same whatever order they arrived in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from fsm_agent.core.events import CallEvent, CircuitOpen, Gone, Lost, Raised, Returned, Reused, Skipped
from fsm_agent.core.gate import Toolbox, fault_text, learn_secrets, refuse
from fsm_agent.core.observing import observe
from fsm_agent.core.plain import storable
from fsm_agent.core.redact import marked
from fsm_agent.core.results import (
    LONGEST_S,
    Reading,
    backoff_s,
    class_of,
    read_again,
    read_raised,
    read_unmeasured,
    read_value,
)
from fsm_agent.core.run import Call, ClosedGuard, Run, deadline_after, reserve_of
from fsm_agent.core.secret_seals import marked_event, seal_call
from fsm_agent.core.tools import Tool
from fsm_agent.core.values import EMPTY, FATAL, NO_PROGRESS, OK, RATE_LIMITED, RETRYABLE, EffectClass, StopReason

# A repair is a pure function of the failed call: (tool, arguments, run) -> (tool, arguments), or None when it has no idea.
Repair = Callable[[str, Any, Run], "tuple[str, Any] | None"]

# What a remembered failure was read as, where its word says so.
_FAILED_CLASSES = {"result:empty": EMPTY, "result:fatal": FATAL}


class Repairs(Protocol):
    """Where the repair of an error word is looked up, as its name and function; a mapping will do."""

    def get(self, error: str, /) -> tuple[str, Repair] | None:
        """The repair of an error word, or None where there is none."""


def next_batch(run: Run, box: Toolbox) -> list[Call]:
    """The calls to perform beside each other now: pure ones together, one with effects alone; empty when all have to wait.

    `exclusive` calls never share a batch, and a batch has at most `max_parallel` calls.
    """
    if run.program is not None and (made := run.waiting_for()) is not None:
        if made.ok is None:
            return [made] if made.not_before_s <= run.spent_s else []
        return [call for call in run.open_calls if call.id == run.program.call_id]
    batch: list[Call] = []
    exclusive = waiting = False
    most = run.limits.max_parallel
    for call in run.open_calls:
        if call.ok is not None or call.leader:
            continue
        tool = box.get(call.tool)
        alone = tool is None or not tool.pure
        # What has effects also waits for the calls before it that wait themselves.
        if (alone and (batch or waiting)) or (most is not None and len(batch) >= most):
            break
        if call.not_before_s > run.spent_s:
            if alone:
                break
            waiting = True
            continue
        if tool is not None and tool.exclusive:
            if exclusive:
                continue
            exclusive = True
        batch.append(call)
        if alone:
            break
    return batch


def waits_until(run: Run, box: Toolbox) -> float:
    """The spent time at which the first of the waiting calls may be tried again; those behind a barrier wait for it."""
    if run.program is not None and (made := run.waiting_for()) is not None and made.ok is None:
        return made.not_before_s
    first: float | None = None
    for call in run.open_calls:
        if call.ok is not None or call.leader:
            continue
        tool = box.get(call.tool)
        alone = tool is None or not tool.pure
        if first is None or (not alone and call.not_before_s < first):
            first = call.not_before_s
        if alone:
            break
    return run.spent_s if first is None else first


def settle(run: Run, box: Toolbox, event: CallEvent, explain: bool = True) -> Call | None:
    """Take one answer about one open call; returns the call, or None when no such call waits for an answer.

    A result that may be tried again leaves the call open, with the time from which it may run. `explain` keeps the detail of
    each fault for whoever decides next.
    """
    for call in run.open_calls:
        if call.ok is None and call.id == event.call_id:
            break
    else:
        return None
    kind = type(event)
    # What was begun as one tool is measured as that one, whatever became of it while its body ran.
    begun: Tool | None = event.contract if kind is Returned or kind is Raised else None  # type: ignore[union-attr]
    tool = box.get(call.tool) if begun is None else begun
    reading: Reading | None
    row = "call_finished"
    if kind is Returned or kind is Raised:
        reading = _read_body(run, tool, call, event, explain)
        event.contract = None  # type: ignore[union-attr]
    elif isinstance(event, Reused):
        call.reused, row = True, "call_reused"
        reading = _remembered(tool, event)
    elif isinstance(event, CircuitOpen):
        row = "call_refused"
        reading = Reading(False, None, "refused:circuit_open", f"a probe may run in {event.retry_after_s:g} s")
    elif isinstance(event, Gone):
        row = "call_refused"
        reading = Reading(False, None, "args:unknown_tool", "the tool was removed before its body began")
    elif isinstance(event, Lost):
        # A body that was begun is counted, like one that was stopped; the tries of its call are those that told something.
        run.body_runs += call.started
        reading = _lost(run, tool, call)
    else:
        assert isinstance(event, Skipped)
        reading = Reading(False, storable(event.value), f"skipped:{event.why}")
    # Not before: who is interrupted while a result is read leaves a call whose body has run.
    call.started = False
    if reading is not None:
        call.ok, call.value, call.result_class = reading.ok, reading.value, reading.result_class
        call.error, call.detail = reading.error, reading.detail
        if reading.error:
            run.errors.append(reading.error)
        run.flat_trace.extend((row, run.spent_s, call.id, reading.error))
    return call


def _read_body(run: Run, tool: Tool | None, call: Call, event: CallEvent, explain: bool) -> Reading | None:
    """How the outcome of a body is to be read; None where the call is tried again."""
    ran = True
    texts = marked_event(run, call, tool, event) if tool is not None and (tool.secret or run.former is not None) else ()
    if type(event) is Returned:
        if tool is None:
            event.value, event.fault = storable(event.value), event.fault or ""
            reading = read_unmeasured(event.value, event.fault)
        elif event.fault is None:
            reading = read_value(tool, event.value, event.verdict, explain)
            # The journal keeps what the run keeps: a plain value, and how the one that the body returned was read.
            event.value, event.fault = reading.value if reading.ok else storable(event.value), reading.error
        else:
            reading = read_again(tool, event.value, event.verdict, event.fault)
    else:
        assert isinstance(event, Raised)
        ran = event.ran
        reading = _raised(tool, event)
    if ran and (tool is None or tool.where != "client"):
        # What a client ran is no body of this host's.
        run.body_runs += 1
        call.body_runs += 1
    if tool is not None:
        if texts and reading.detail:
            reading.detail = marked(reading.detail, texts)
        kind = reading.result_class
        # A client that asks to be let alone for a while is waited for, and asked again by the decider alone.
        if (kind is RETRYABLE or kind is RATE_LIMITED) and (tool.where == "host" or reading.retry_after_s is not None):
            # A body that could not begin is a try as well, or one that never can would be tried for ever.
            made = call.body_runs if ran else max(call.body_runs, call.tries)
            if _waits(run, tool, call, reading, made):
                return None
    return reading


def _lost(run: Run, tool: Tool | None, call: Call) -> Reading | None:
    if tool is not None and tool.effect in (EffectClass.PURE, EffectClass.IDEMPOTENT):
        run.flat_trace.extend(("call_retried", run.spent_s, call.id, "lost"))
        return None
    return Reading(False, None, "unknown_outcome", "the body was begun and its driver is gone")


def _remembered(tool: Tool | None, event: Reused) -> Reading:
    # What is remembered was measured when it was stored.
    if event.error:
        detail = f"remembered: {event.detail}" if event.detail else "remembered"
        return Reading(False, None, event.error, detail, _FAILED_CLASSES.get(event.error))
    # A memory that is the host's own, or that others put something into, may hold what no run can keep.
    value = event.value = storable(event.value)
    return Reading(True, value, result_class=OK if tool is None else class_of(tool, value))


def _raised(tool: Tool | None, event: Raised) -> Reading:
    if tool is None:
        return Reading(False, None, f"raised:{event.error}", event.message)
    if event.ran and tool.effect is EffectClass.AT_MOST_ONCE:
        # The body began and gave no result: what it did is not known, and it must not be begun again.
        fatal = event.verdict is not None and event.verdict.result_class is FATAL
        detail = f"{event.error}: {event.message}".rstrip(": ")
        return Reading(False, None, "unknown_outcome", detail, FATAL if fatal else None)
    return read_raised(tool, event.error, event.message, event.verdict)


def _waits(run: Run, tool: Tool, call: Call, reading: Reading, made: int) -> bool:
    """Decide after so many tries whether there is another; the wait is kept before the next turn when there is none."""
    wait = backoff_s(tool, run.seed, call.id, made, reading.retry_after_s)
    most = run.limits.max_attempts
    # What must run once is not begun again once it has begun, whatever its contract says of retries.
    once = tool.effect is EffectClass.AT_MOST_ONCE and call.body_runs > 0
    again = not once and tool.where == "host" and made < tool.retry.attempts and (most is None or call.tries < most)
    closed = wait_closes(run, wait, call.id)
    for guard in closed:
        _close_by_wait(run, guard)
    if not closed and wait >= LONGEST_S:
        wait = backoff_s(tool, run.seed, call.id, made, None)
    if closed or not again:
        run.not_before_s = max(run.not_before_s, run.spent_s + wait)
        return False
    call.tries += 1
    call.not_before_s = run.spent_s + wait
    run.tried.append((call.tool, call.args))
    run.errors.append(reading.error)
    run.flat_trace.extend(("call_retried", run.spent_s, call.id, reading.error))
    return True


def _close_by_wait(run: Run, closed: ClosedGuard) -> None:
    """Note a guard that a wait closes; of several waits the longest says what would open it, whichever asked first."""
    known = next((one for one in run.closed if one.guard == closed.guard), None)
    if known is None:
        run.flat_trace.extend(("guard_closed", run.spent_s, closed.guard, closed.reason.value))
    else:
        closed = min(known, closed, key=_place_among_closed)
    others = [one for one in run.closed if one is not known]
    run.closed = tuple(sorted([*others, closed], key=_place_among_closed))


def _place_among_closed(closed: ClosedGuard) -> tuple[int, float, tuple[str, ...]]:
    kind = {"time_left": 1, "waits_left": 2}.get(closed.guard, 0)
    return (kind, -closed.opens_at, closed.calls) if kind else (0, 0.0, ())


def wait_closes(run: Run, wait: float, call_id: str = "") -> list[ClosedGuard]:
    """The guards that a wait of so many seconds, for this call or for the model, would outlive."""
    limits = run.limits
    calls = (call_id,) if call_id else ()
    until = limits.work_until_s
    closed: list[ClosedGuard] = []
    if until is not None and run.spent_s + wait >= until and wait > 0:
        closed += [ClosedGuard(
            guard="time_left", limit="deadline_s", allowed=until, used=run.spent_s, reason=StopReason.DEADLINE,
            # How long the wait is, is known; how long the next try takes is not.
            opens_at=deadline_after(run, run.spent_s + wait, 0.25), calls=calls, reserve=reserve_of(run), wait_s=wait,
        )]  # fmt: skip
    if limits.max_wait_s is not None and run.waited_s + wait > limits.max_wait_s:
        closed += [ClosedGuard(
            guard="waits_left", limit="max_wait_s", allowed=limits.max_wait_s, used=run.waited_s,
            reason=StopReason.MAX_WAIT, opens_at=run.waited_s + wait, calls=calls, wait_s=wait,
        )]  # fmt: skip
    return closed


def share_results(run: Run) -> None:
    """Give every follower the result of the identical call that ran for it."""
    for call in run.open_calls:
        if call.leader and call.ok is None:
            leader = next(c for c in run.open_calls if c.id == call.leader)
            call.ok, call.value, call.error, call.detail = leader.ok, leader.value, leader.error, leader.detail
            call.result_class, call.reused = leader.result_class, True
            run.flat_trace.extend(("call_reused", run.spent_s, call.id, call.error))


def fold(run: Run, box: Toolbox) -> str:
    """Count the turn's results in call order, move its calls into the record, and name the turn's outcome."""
    calls, run.open_calls = run.open_calls, []
    if run.held:
        run.held, run.paused = 0, False
    limits = run.limits
    watches = limits.max_same_observation is not None or limits.max_stale_turns is not None
    new_fact = watched = failed = stale_class = planned = False
    fatal: Call | None = None
    for call in calls:
        error = call.error
        if error:
            if error.startswith("args:"):
                failed = failed or not call.parent
                run.bad_arguments += not call.counted
            elif error.startswith(("raised:", "result:", "unknown_outcome")):
                failed = failed or not call.parent
                run.tool_errors += error != "result:empty" and not (call.counted or call.leader)
        if call.secret or (not call.admitted and (not call.tries or call.tried_repairs) and learn_secrets(box, call)):
            # The gate has learned those of a call that came to it.
            seal_call(run, call)
        if call.repair is not None:
            planned = True
        if call.counted:
            continue
        call.counted = True
        result_class = call.result_class
        if not watches and (result_class is OK or result_class is None):
            continue
        tool = box.get(call.tool) if watches or result_class is EMPTY else None
        if result_class is FATAL:
            fatal = fatal or call
        elif result_class is NO_PROGRESS:
            stale_class = True
        elif result_class is EMPTY and not (call.leader or (tool is not None and tool.empty_ok)):
            intent = call.intent or call.tool
            count = run.empties[intent] = run.empties.get(intent, 0) + 1
            run.empty_results = max(run.empty_results, count)
        if watches and not (tool is not None and (tool.polling or tool.constant)):
            watched = True
            if call.ok and not call.leader:
                # What says itself that it got no further has no fact for the run either.
                new_fact = (observe(run, call, tool, calls) and result_class is not NO_PROGRESS) or new_fact
    run.calls += calls
    run.repair_due = run.repair_due and planned
    if watched and limits.max_stale_turns is not None:
        run.stale_turns = 0 if new_fact else run.stale_turns + 1
    if fatal is not None:
        # It says more about the run than any limit that was closed in the same turn, and no raise undoes it.
        run.closed = ()
        run.note = f"{fatal.tool} reported a fatal result: {fault_text(fatal)}"
        return "stopped"
    if run.closed:
        return "stopped"
    return "failed" if failed else "no_progress" if stale_class else "called"


def leave_unbegun(run: Run, box: Toolbox) -> None:
    """Settle what a decider wanted and its machine did not come to call before it asks again; a verifier's next action stays open."""
    if not any(call.ok is None and not call.by_verifier for call in run.open_calls):
        return
    for call in run.open_calls:
        if call.ok is None and not call.by_verifier:
            refuse(run, call, "skipped:not_called", "the machine asked for the next decision before the call was begun")
    ahead = [call for call in run.open_calls if call.ok is None]
    run.open_calls = [call for call in run.open_calls if call.ok is not None]
    fold(run, box)
    run.open_calls = ahead
