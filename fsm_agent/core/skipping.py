"""What a turn's results make of its calls that have not begun: they are skipped once time is out, or after a fatal result.

A call is skipped for the same reason whatever order the results arrive in.
"""

from __future__ import annotations

from fsm_agent.core.gate import refuse
from fsm_agent.core.guards import time_left
from fsm_agent.core.run import Call, Run
from fsm_agent.core.stops import closed_guard
from fsm_agent.core.values import FATAL, StopReason

_OUT_OF_TIME = (StopReason.DEADLINE, StopReason.MAX_WAIT)


def skip_late(run: Run) -> None:
    """Once the time for work is up, or a wait would outlive it, settle what has not begun.

    While calls of the turn run it waits for their results: a fatal one, or a longer wait, says more.
    """
    until = run.limits.work_until_s
    up = until is not None and run.spent_s >= until
    if not up and not run.closed:
        return
    reason = _out_of_time(run)
    if reason is None and not up:
        return
    late = [call for call in run.open_calls if call.ok is None and not call.started and not call.leader]
    if late and reason is None:
        reason = StopReason.DEADLINE
        run.close(closed_guard(run, time_left))
    for call in () if _running(run) else late:
        refuse(run, call, f"skipped:{reason}", "the time for calls is used up")


def running_late(run: Run) -> list[Call]:
    """The calls whose results are waited for where time is out: nothing else of the turn begins."""
    return [] if _out_of_time(run) is None else _running(run)


def skip_after_fatal(run: Run) -> None:
    """After a fatal result nothing of the turn begins any more, no other try either."""
    fatal = next((call for call in run.open_calls if call.result_class is FATAL), None)
    for call in run.open_calls if fatal is not None else ():
        if call.ok is None and not call.started and not call.leader:
            refuse(run, call, "skipped:fatal", "a call of the turn had a fatal result")


def _out_of_time(run: Run) -> StopReason | None:
    return next((guard.reason for guard in run.closed if guard.reason in _OUT_OF_TIME), None)


def _running(run: Run) -> list[Call]:
    return [call for call in run.open_calls if call.started and call.ok is None]
