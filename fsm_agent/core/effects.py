"""What a run asks of its driver, at most one thing at a time."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from fsm_agent.core.run import Call, Run


@attrs.define(slots=True)
class Decide:
    """Ask the decider what to do next; answer with Decided or DecisionFailed.

    `tools` are the names the decider may call now: allowed in this state and with budget left. `on_delta` takes pieces of text as
    they arrive, where somebody listens.
    """

    run: Run
    tools: tuple[str, ...] = ()
    on_delta: Callable[[str], None] | None = None


@attrs.define(slots=True)
class CallTools:
    """Perform these calls beside each other; answer each with Returned, Raised, Reused, CircuitOpen or Gone."""

    run: Run
    calls: list[Call]


@attrs.define(slots=True)
class RunProgram:
    """Run a program to its next call or its end; answer with ProgramCalled, Returned or Raised.

    `snapshot` is where it stands (empty: it begins), `printed` what it printed so far, `made` the settled call whose result it
    goes on with.
    """

    run: Run
    call: Call
    snapshot: bytes = b""
    printed: str = ""
    made: Call | None = None


@attrs.define(slots=True)
class Check:
    """Ask the host's hooks and approval functions about these calls, in order; answer each with Checked or Skipped."""

    run: Run
    calls: list[Call]


@attrs.define(slots=True)
class Pause:
    """These calls wait for a person or a client; the driver tells Paused and stops until somebody has decided."""

    run: Run
    calls: list[Call]


@attrs.define(slots=True)
class Judge:
    """Ask the verifier whether the evidence suffices; answer with Judged or JudgeFailed."""

    run: Run


@attrs.define(slots=True)
class Compose:
    """Ask for a text, without tools; answer with Composed or ComposeFailed.

    `closing` is true for the last answer of a run, false for a text that is written from the evidence; there a reply that calls
    tools is answered with Decided, so that each of its calls is refused.
    """

    run: Run
    closing: bool = True
    on_delta: Callable[[str], None] | None = None


@attrs.define(slots=True)
class Wait:
    """Let time pass until the run has spent `until_s` seconds; answer with Waited."""

    run: Run
    until_s: float

    @property
    def seconds(self) -> float:
        """How long that is from the run's present time."""
        return max(0.0, self.until_s - self.run.spent_s)


@attrs.define
class OwnEffect:
    """Base of the effects of a user's own kinds of work; a subclass adds what its performer has to know.

    The host gives one performer for each such class; the work is told Performed with what it gave, or PerformFailed.
    """

    run: Run


Effect = Decide | CallTools | RunProgram | Check | Pause | Judge | Compose | Wait | OwnEffect
