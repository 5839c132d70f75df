"""What a run asks of its driver, at most one thing at a time."""

from __future__ import annotations

import attrs

from fsm_agent.core.run import Call, Run


@attrs.define(slots=True)
class Decide:
    """Ask the decider what to do next; answer with Decided or DecisionFailed.

    `tools` are the names the decider may call now: allowed in this state and with budget left.
    """

    run: Run
    tools: tuple[str, ...] = ()


@attrs.define(slots=True)
class CallTools:
    """Perform these calls beside each other; answer each with Returned, Raised, Reused or CircuitOpen."""

    run: Run
    calls: list[Call]


@attrs.define(slots=True)
class Judge:
    """Ask the verifier whether the evidence suffices; answer with Judged or JudgeFailed."""

    run: Run


@attrs.define(slots=True)
class Compose:
    """Ask for the closing answer, without tools; answer with Composed or ComposeFailed."""

    run: Run


@attrs.define(slots=True)
class Wait:
    """Let time pass until the run has spent `until_s` seconds; answer with Waited."""

    run: Run
    until_s: float

    @property
    def seconds(self) -> float:
        """How long that is from the run's present time."""
        return max(0.0, self.until_s - self.run.spent_s)


Effect = Decide | CallTools | Judge | Compose | Wait

