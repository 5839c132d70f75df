"""What a decider, verifier or closer answered, or raised, as the event that a run is told."""

from __future__ import annotations

import math
from typing import Any

from fsm_agent.core.effects import Compose, Decide, Effect, Judge, OwnEffect
from fsm_agent.core.errors import PASSES
from fsm_agent.core.events import (
    Composed,
    ComposeFailed,
    Decided,
    DecisionFailed,
    Event,
    Judged,
    JudgeFailed,
    Performed,
    PerformFailed,
)
from fsm_agent.core.plain import short, storable
from fsm_agent.core.results import TRANSIENT
from fsm_agent.core.values import Decision, Judgement, Usage
from fsm_agent.host import perform
from fsm_agent.host.in_time import OutOfTime
from fsm_agent.host.logs import log_raised
from fsm_agent.host.model import FailureKind, MalformedDecision, ModelFailed
from fsm_agent.host.ports import as_decision, as_judgement, judgement_of_text


def event_of_answer(effect: Effect, answer: Any) -> Event:
    """The event of what was answered; raises TypeError, ValueError or MalformedDecision where it is no answer to that."""
    if isinstance(effect, Decide):
        return Decided(as_decision(answer))
    if isinstance(effect, Judge):
        return _judged(answer)
    if not isinstance(effect, Compose):
        return Performed(storable(answer))
    if isinstance(answer, Composed):
        return answer
    if isinstance(answer, Decision):
        if not effect.closing and (answer.calls or answer.question or (answer.text and answer.citations)):
            # Each call needs its result, which says that none is allowed there, and the rest is part of the answer.
            return Decided(as_decision(answer))
        usage = answer.usage if isinstance(answer.usage, Usage) else None
        if effect.closing and not (isinstance(answer.text, str) and answer.text.strip()):
            # It was paid for all the same.
            why = f"the model was asked for a text and gave none (finish reason {short(answer.finish, 40)})"
            raise MalformedDecision(why, usage)
        finish = answer.finish if type(answer.finish) is str else ""
        return Composed(answer.text if isinstance(answer.text, str) else "", usage, finish, answer.kept)
    if not isinstance(answer, str):
        raise TypeError(f"the closing answer is a {type(answer).__name__}; give a text")
    return Composed(answer)


def _judged(answer: Any) -> Judged:
    if not isinstance(answer, Decision):
        return Judged(as_judgement(answer))
    usage = answer.usage if isinstance(answer.usage, Usage) else None
    try:
        if not isinstance(answer.text, str):
            raise TypeError("the verifying model gave no text")
        return Judged(judgement_of_text(answer.text), usage)
    except (TypeError, ValueError) as error:
        # It was paid for all the same.
        why = f"the verifier gave no verdict: {perform.name_of(error)} {perform.message_of(error)}"
        return Judged(Judgement(decision="need_more", reason=why), usage)


def _seconds(value: Any) -> float | None:
    """Seconds, or None for what a provider sent in their place and no run can keep."""
    return value if type(value) in (int, float) and math.isfinite(value) else None


def event_of_failure(effect: Effect, error: BaseException, *, model: bool = False) -> Event:
    """The event of an answer that could not be had; raises what passes through.

    A `model` that was not reached, or not in time, may be asked again; a function of the host's may not.
    """
    if issubclass(type(error), PASSES):
        raise error
    log_raised(f"whoever was asked to {type(effect).__name__}", error)
    # Any other exception may raise where its attributes are looked at.
    known = error if issubclass(type(error), ModelFailed | MalformedDecision | OutOfTime) else None
    late = isinstance(known, OutOfTime)
    name, message = "TimeoutError" if late else perform.name_of(error), perform.message_of(error)
    if isinstance(effect, OwnEffect):
        return PerformFailed(name, message)
    usage = known.usage if isinstance(known, ModelFailed | MalformedDecision) and isinstance(known.usage, Usage) else None
    if isinstance(effect, Judge):
        return JudgeFailed(name, message, usage)
    retry_after_s = None
    kind = "passing" if late or (model and name in TRANSIENT) else "error"
    if isinstance(known, ModelFailed):
        kind, retry_after_s = "passing" if known.kind.passes else "error", _seconds(known.retry_after_s)
        name = known.kind.value if known.kind is not FailureKind.UNKNOWN else name
    if isinstance(effect, Compose):
        return ComposeFailed(name, message, kind, retry_after_s, usage)
    if isinstance(known, MalformedDecision):
        return DecisionFailed(name, message, "malformed", usage=usage)
    return DecisionFailed(name, message, kind, retry_after_s, usage)
