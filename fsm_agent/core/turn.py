"""One turn: which of its calls run next, what each result does to it, and how they are folded into the run.

Results are folded in the order of the calls, so a run is the same whatever order they arrived in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from fsm_agent.core.events import CallEvent, CircuitOpen, Lost, Raised, Returned, Reused, Skipped
from fsm_agent.core.gate import Toolbox
from fsm_agent.core.keys import leaves, observation_key
from fsm_agent.core.plain import storable
from fsm_agent.core.redact import seal_call
from fsm_agent.core.results import RETRYABLE, Reading, backoff_s, class_of, read_again, read_raised, read_value
from fsm_agent.core.run import Call, ClosedGuard, Run
from fsm_agent.core.tools import Tool
from fsm_agent.core.values import EffectClass, ResultClass, StopReason

# A repair is a pure function of the failed call: (tool, arguments, run) -> (tool, arguments), or None when it has no idea.
Repair = Callable[[str, Any, Run], "tuple[str, Any] | None"]


class Repairs(Protocol):
    """Where the repair of an error word is looked up, as its name and function; a mapping will do."""

    def get(self, error: str, /) -> tuple[str, Repair] | None: ...


def next_batch(run: Run, box: Toolbox) -> list[Call]:
    """The calls to perform beside each other now: pure ones together, one with effects alone; empty when all have to wait.

    `exclusive` calls never share a batch, and a batch has at most `max_parallel` calls.
    """
    if len(run.open_calls) == 1:
        only = run.open_calls[0]
        return [only] if only.ok is None and only.not_before_s <= run.spent_s else []
    batch: list[Call] = []
    exclusive = False
    most = run.limits.max_parallel
    for call in run.open_calls:
        if call.ok is not None or call.leader:
            continue
        tool = box.get(call.tool)
        alone = tool is None or not tool.pure
        if batch and (alone or (most is not None and len(batch) >= most)):
            break
        if call.not_before_s > run.spent_s:
            if alone:
                break
            continue
        if tool is not None and tool.exclusive:
            if exclusive:
                continue
            exclusive = True
        batch.append(call)
        if alone:
            break
    return batch


def waits_until(run: Run) -> float:
    """The spent time at which the first waiting call may be tried again."""
    return min((c.not_before_s for c in run.open_calls if c.ok is None and not c.leader), default=run.spent_s)


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
    call.started = False
    kind = type(event)
    if kind is Returned or kind is Raised:
        _settle_body(run, box.get(call.tool), call, event, explain)
    elif isinstance(event, Reused):
        call.reused = True
        _finish(run, call, _remembered(box.get(call.tool), event))
    elif isinstance(event, CircuitOpen):
        _finish(run, call, Reading(False, None, "refused:circuit_open", f"a probe may run in {event.retry_after_s:g} s"))
    elif isinstance(event, Lost):
        _lose(run, box.get(call.tool), call)
    elif isinstance(event, Skipped):
        _finish(run, call, Reading(False, event.value, f"skipped:{event.why}"))
    return call


def _settle_body(run: Run, tool: Tool | None, call: Call, event: CallEvent, explain: bool) -> None:
    ran = True
    if isinstance(event, Returned):
        reading = _returned(tool, event, explain)
    else:
        assert isinstance(event, Raised)
        ran = event.ran
        reading = _raised(tool, event)
    if ran:
        run.body_runs += 1
        call.body_runs += 1
    if tool is not None and reading.result_class in RETRYABLE and _waits(run, tool, call, reading):
        return
    _finish(run, call, reading)


def _lose(run: Run, tool: Tool | None, call: Call) -> None:
    if tool is not None and tool.effect in (EffectClass.PURE, EffectClass.IDEMPOTENT):
        run.trace.append(("call_retried", run.spent_s, call.id, "lost"))
        return
    _finish(run, call, Reading(False, None, "unknown_outcome", "the body was begun and its driver is gone"))


def _returned(tool: Tool | None, event: Returned, explain: bool) -> Reading:
    if tool is None:
        return Reading(True, storable(event.value))
    if event.fault is None:
        reading = read_value(tool, event.value, event.verdict, explain)
        # The journal keeps what the run keeps: a plain value, and how the one that the body returned was read.
        event.value, event.fault = reading.value if reading.ok else storable(event.value), reading.error
        return reading
    return read_again(tool, event.value, event.verdict, event.fault)


def _remembered(tool: Tool | None, event: Reused) -> Reading:
    # What is remembered was measured when it was stored.
    if event.error:
        return Reading(False, None, event.error, "remembered")
    return Reading(True, event.value, result_class=ResultClass.OK if tool is None else class_of(tool, event.value))


def _raised(tool: Tool | None, event: Raised) -> Reading:
    if tool is None:
        return Reading(False, None, f"raised:{event.error}", event.message)
    if event.ran and tool.effect is EffectClass.AT_MOST_ONCE:
        # The body began and gave no result: what it did is not known, and it must not be begun again.
        return Reading(False, None, "unknown_outcome", f"{event.error}: {event.message}".rstrip(": "))
    return read_raised(tool, event.error, event.message, event.verdict)


def _finish(run: Run, call: Call, reading: Reading) -> None:
    call.ok, call.value, call.error, call.detail = reading.ok, reading.value, reading.error, reading.detail
    call.result_class = reading.result_class
    if reading.error:
        run.errors.append(reading.error)
    run.trace.append(("call_reused" if call.reused else "call_finished", run.spent_s, call.id, reading.error))


def _waits(run: Run, tool: Tool, call: Call, reading: Reading) -> bool:
    """Decide whether a retryable failure is tried again; the wait is kept before the next turn when it is not."""
    wait = backoff_s(tool, run.seed, call.id, call.body_runs, reading.retry_after_s)
    most = run.limits.max_attempts
    again = call.body_runs < tool.retry.attempts and (most is None or call.tries < most)
    closed = wait_closes(run, wait)
    if closed is not None:
        run.closed.append(closed)
        run.trace.append(("guard_closed", run.spent_s, closed.guard, closed.reason.value))
        return False
    if not again:
        run.not_before_s = max(run.not_before_s, run.spent_s + wait)
        return False
    call.tries += 1
    call.not_before_s = run.spent_s + wait
    run.tried.append((call.tool, call.args))
    run.errors.append(reading.error)
    run.trace.append(("call_retried", run.spent_s, call.id, reading.error))
    return True


def wait_closes(run: Run, wait: float) -> ClosedGuard | None:
    """The guard that a wait of so many seconds would outlive, or None."""
    limits = run.limits
    until = limits.work_until_s
    if until is not None and run.spent_s + wait >= until and wait > 0:
        return ClosedGuard(
            guard="time_left", limit="deadline_s", allowed=until, used=run.spent_s, reason=StopReason.DEADLINE,
            opens_at=(run.spent_s + wait) * 1.25,
        )
    if limits.max_wait_s is not None and run.waited_s + wait > limits.max_wait_s:
        return ClosedGuard(
            guard="waits_left", limit="max_wait_s", allowed=limits.max_wait_s, used=run.waited_s,
            reason=StopReason.MAX_WAIT, opens_at=run.waited_s + wait,
        )
    return None


def share_results(run: Run) -> None:
    """Give every follower the result of the identical call that ran for it."""
    for call in run.open_calls:
        if call.leader and call.ok is None:
            leader = next(c for c in run.open_calls if c.id == call.leader)
            call.ok, call.value, call.error, call.detail = leader.ok, leader.value, leader.error, leader.detail
            call.result_class, call.reused = leader.result_class, True
            run.trace.append(("call_reused", run.spent_s, call.id, call.error))


def plan_repairs(run: Run, repairs: Repairs) -> bool:
    """Find for each failed call of the turn the repair of its reason; true when one of them may still be tried.

    A repair is tried once per call, and not when it would change nothing. `run.repair_due` says that one was found, also
    when no attempt is left for it.
    """
    most = run.limits.max_attempts
    found = False
    run.attempts, run.repair_due = 0, False
    for call in run.open_calls:
        call.repair = None
        if call.ok is not False or run.closed:
            continue
        named = repairs.get(call.error)
        if named is None or named[0] in call.tried_repairs:
            continue
        changed = _apply(named[1], call, run)
        if changed is None or (changed[0] == call.tool and changed[1] == call.args):
            continue
        call.repair = (named[0], *changed)
        run.attempts, run.repair_due = max(run.attempts, call.tries), True
        found = found or most is None or call.tries < most
    return found


def _apply(repair: Repair, call: Call, run: Run) -> tuple[str, Any] | None:
    try:
        changed = repair(call.tool, call.args, run)
    except Exception:
        # A repair is a function of the host; one that fails has no idea how to mend the call.
        return None
    return changed


def apply_repairs(run: Run) -> bool:
    """Change the failed calls as planned and open them again; false when none was planned."""
    any_changed = False
    for call in run.open_calls:
        if call.repair is None:
            continue
        name, call.tool, call.args = call.repair
        call.tried_repairs.append(name)
        run.fixes.append(name)
        call.repair, call.ok, call.error, call.detail, call.result_class = None, None, "", "", None
        call.admitted = call.started = call.reused = False
        call.leader = ""
        run.trace.append(("call_repaired", run.spent_s, call.id, name))
        any_changed = True
    return any_changed


def fold(run: Run, box: Toolbox) -> str:
    """Count the turn's results in call order, move its calls into the record, and name the turn's outcome."""
    calls, run.open_calls = run.open_calls, []
    limits = run.limits
    watches = limits.max_same_observation is not None or limits.max_stale_turns is not None
    new_fact = watched = failed = stale_class = fatal = False
    for call in calls:
        error = call.error
        if error:
            if error.startswith("args:"):
                failed = True
                run.bad_arguments += not call.counted
            elif error.startswith(("raised:", "result:", "unknown_outcome")):
                failed = True
                run.tool_errors += error != "result:empty" and not call.counted
        if call.counted:
            continue
        call.counted = True
        if call.secret:
            seal_call(run, call)
        result_class = call.result_class
        tool = box.get(call.tool) if watches or result_class is ResultClass.EMPTY else None
        if result_class is ResultClass.FATAL:
            fatal = True
        elif result_class is ResultClass.NO_PROGRESS:
            stale_class = True
        elif result_class is ResultClass.EMPTY and not (tool is not None and tool.empty_ok):
            intent = call.intent or call.tool
            count = run.empties[intent] = run.empties.get(intent, 0) + 1
            run.empty_results = max(run.empty_results, count)
        if watches and not (tool is not None and (tool.polling or tool.constant)):
            watched = True
            if call.ok and not call.leader:
                new_fact = _observe(run, call, tool) or new_fact
    run.calls += calls
    if watched and limits.max_stale_turns is not None:
        run.stale_turns = 0 if new_fact else run.stale_turns + 1
    if fatal:
        run.note = "a tool reported a fatal result"
        return "stopped"
    if run.closed:
        return "stopped"
    return "failed" if failed else "no_progress" if stale_class else "called"


def _observe(run: Run, call: Call, tool: Tool | None) -> bool:
    """Count an observation and its facts; true when one of them is new."""
    limits = run.limits
    empty_is_normal = tool is not None and tool.empty_ok and _nothing(call.value)
    if limits.max_same_observation is not None and not empty_is_normal:
        key = call.observation = observation_key(call.value)
        count = run.observations[key] = run.observations.get(key, 0) + 1
        run.same_observation = max(run.same_observation, count)
    if limits.max_stale_turns is None:
        return True
    facts = run.facts
    before = len(facts)
    for leaf in leaves(call.value):
        facts[leaf] = True
    return len(facts) > before or empty_is_normal


def _nothing(value: Any) -> bool:
    return value is None or value == [] or (isinstance(value, str) and not value.strip())
