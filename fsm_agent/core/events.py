"""What a driver tells a run: the answers to what it asked, each of which is one line of its journal."""

from __future__ import annotations

from typing import Any

import attrs

from fsm_agent.core.limits import Limits
from fsm_agent.core.values import Decision, Judgement, Usage, Verdict


@attrs.define(slots=True)
class Decided:
    """The decider's answer."""

    decision: Decision


@attrs.define(slots=True)
class DecisionFailed:
    """The decider raised or its provider failed; `error` is the type's name, `message` its redacted text.

    `kind` is ``error`` (the run stops with `model_error`), ``malformed`` (fed back, bounded) or ``passing``: the same may be
    answered later, after `retry_after_s` where the provider said so.
    """

    error: str
    message: str = ""
    kind: str = "error"
    retry_after_s: float | None = None
    usage: Usage | None = None


@attrs.define(slots=True)
class Started:
    """The driver is about to run the bodies of these calls."""

    call_ids: tuple[str, ...]


@attrs.define(slots=True)
class Returned:
    """A body returned `value`. `verdict` is what the contract's classifier said, if it has one.

    Once it is told, `value` is the form that the run keeps and `fault` how it was read (empty: it kept the contract), so that a
    replay reads it alike. `contract` is the tool under which the body was begun, for the case that it is there no more; it is
    never saved.
    """

    call_id: str
    value: Any
    verdict: Verdict | None = None
    fault: str | None = None
    contract: Any = attrs.field(default=None, eq=False, repr=False)


@attrs.define(slots=True)
class Raised:
    """A body raised, or ran out of its time (`error` is then ``TimeoutError``).

    `ran` is false when the body never began, as when its thread could not take an exclusive turn in time. `contract` is as for a
    value.
    """

    call_id: str
    error: str
    message: str = ""
    verdict: Verdict | None = None
    ran: bool = True
    contract: Any = attrs.field(default=None, eq=False, repr=False)


@attrs.define(slots=True)
class Reused:
    """Memory answered: a remembered value, or a remembered failure (`error` set)."""

    call_id: str
    value: Any = None
    error: str = ""
    detail: str = ""


@attrs.define(slots=True)
class CircuitOpen:
    """The tool's circuit breaker is open; `retry_after_s` seconds until a probe may run."""

    call_id: str
    retry_after_s: float = 0.0


@attrs.define(slots=True)
class Lost:
    """The driver that had begun a call is gone, and no result of it will come.

    A call that may be tried again is performed anew; of any other nothing is known, and it is not begun a second time.
    """

    call_id: str


@attrs.define(slots=True)
class Gone:
    """The tool of a call that the gate let pass is not there any more; nothing ran, and the call is one of an unknown tool."""

    call_id: str


@attrs.define(slots=True)
class Skipped:
    """A hook answered in the body's place; the body did not run."""

    call_id: str
    why: str
    value: Any = None


@attrs.define(slots=True)
class Checked:
    """The host's hooks let the call pass; `approval` says whether a person has to be asked first."""

    call_id: str
    approval: bool = False


@attrs.define(slots=True)
class Paused:
    """The driver stops here, for people; their approval expires at this UTC second, where it does."""

    expires_at: float | None = None


@attrs.define(slots=True)
class Approved:
    """A person lets the call run, with these arguments in place of its own where `edited` is true."""

    call_id: str
    args: Any = None
    edited: bool = False


@attrs.define(slots=True)
class Denied:
    """A person does not let the call run."""

    call_id: str
    reason: str = ""


@attrs.define(slots=True)
class Superseded:
    """The user says something new, and the calls that wait are not wanted any more."""

    message: str


@attrs.define(slots=True)
class ProgramCalled:
    """A program stands still at a call: its tool and arguments, what was printed so far, and the snapshot to go on from."""

    call_id: str
    tool: str
    args: Any
    snapshot: bytes
    printed: str = ""


@attrs.define(slots=True)
class Performed:
    """What came of an effect of the user's own, as plain data."""

    value: Any = None


@attrs.define(slots=True)
class PerformFailed:
    """An effect of the user's own failed."""

    error: str
    message: str = ""


@attrs.define(slots=True)
class Judged:
    """The verifier's verdict, and what it cost."""

    judgement: Judgement
    usage: Usage | None = None


@attrs.define(slots=True)
class JudgeFailed:
    """The verifier raised or gave no verdict, which counts as a no; what it cost, where that is known."""

    error: str
    message: str = ""
    usage: Usage | None = None


@attrs.define(slots=True)
class Composed:
    """The text that was asked for, what it cost, and what its provider wants back with it (`Decision.kept`)."""

    text: str
    usage: Usage | None = None
    finish: str = ""
    kept: Any = None


@attrs.define(slots=True)
class ComposeFailed:
    """No text could be had. `kind` and the rest are as for a decision; the last answer is not asked for twice."""

    error: str
    message: str = ""
    kind: str = "error"
    retry_after_s: float | None = None
    usage: Usage | None = None


@attrs.define(slots=True)
class Waited:
    """The time that was asked for has passed."""


@attrs.define(slots=True)
class Stopped:
    """A strategy or hook ended the run; `reason` is its stop reason."""

    reason: str
    detail: str = ""


@attrs.define(slots=True)
class Cancelled:
    """The host cancelled the drive; the run stands still and can be resumed."""

    detail: str = ""


@attrs.define(slots=True)
class Resumed:
    """A driver takes a stopped run up again, with the limits it has from now on and those it had before.

    `again` says whether calls that were cancelled are begun again.
    """

    limits: Limits
    before: Limits
    again: bool = True


PeopleEvent = Checked | Paused | Approved | Denied | Superseded
CallEvent = Returned | Raised | Reused | CircuitOpen | Gone | Lost | Skipped
Event = (
    Decided
    | DecisionFailed
    | Started
    | CallEvent
    | PeopleEvent
    | ProgramCalled
    | Performed
    | PerformFailed
    | Judged
    | JudgeFailed
    | Composed
    | ComposeFailed
    | Waited
    | Stopped
    | Cancelled
    | Resumed
)
