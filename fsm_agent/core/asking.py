"""Whether the decider may be asked, and asked again once it gave no answer for the moment."""

from __future__ import annotations

from fsm_agent.core.guards import budget_left, calls_below_stop, spendings, time_left
from fsm_agent.core.results import LONGEST_S, wait_s
from fsm_agent.core.run import Run
from fsm_agent.core.stops import closed_guard
from fsm_agent.core.tools import Retry
from fsm_agent.core.turn import wait_closes
from fsm_agent.core.values import Policy, StopReason


def ask_again(run: Run, retry_after_s: float | None, policy: Policy) -> bool:
    """Keep the wait before the next request; false when the run ends here, with the reason noted.

    A retry-after is honoured; a wait that would outlive the deadline or the wait budget ends the run now.
    """
    run.failed_requests += 1
    if not time_left(run):
        return may_decide(run)
    if not calls_below_stop(run):
        # Asking again begins a turn, also where this request would have been the first.
        run.close(closed_guard(run, calls_below_stop))
        return False
    if run.failed_requests >= policy.model_attempts:
        run.stopping = StopReason.MODEL_ERROR
        return False
    retry = Retry(attempts=policy.model_attempts, backoff_s=policy.model_backoff_s)
    wait = wait_s(retry, run.seed, f"request-{run.turns}", run.failed_requests, retry_after_s)
    closed = wait_closes(run, wait)
    if not closed and wait >= LONGEST_S:
        wait = wait_s(retry, run.seed, f"request-{run.turns}", run.failed_requests, None)
    for guard in closed:
        run.close(guard)
    if closed:
        return False
    run.not_before_s = max(run.not_before_s, run.spent_s + wait)
    return True


def may_decide(run: Run) -> bool:
    """True while a turn is left, and time, tokens and money for it; notes the guard that is closed otherwise.

    After so many calls no further turn begins, also where no row that leads here looks at them; the first is none of those.
    """
    if run.limits.stop_after_tool_calls is not None and run.turns and not calls_below_stop(run):
        run.close(closed_guard(run, calls_below_stop))
        return False
    if budget_left.test(run):
        return True
    run.close(closed_guard(run, next(guard for guard in spendings(budget_left) if not guard(run))))
    return False
