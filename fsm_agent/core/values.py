"""The closed sets and the frozen records that everything else speaks in."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import attrs

from fsm_agent.core.errors import BuildError
from fsm_agent.core.generated import maker, quickly_made


class EffectClass(StrEnum):
    """What calling a tool does to the world; it decides sharing, retries and what a crash means.

    ``pure`` calls may be repeated, shared and run beside others; ``idempotent`` ones get a key and may be tried again; the body of an
    ``at_most_once`` call is never begun twice; ``undeclared`` is tried again only where its classifier says so.
    """

    PURE = "pure"
    IDEMPOTENT = "idempotent"
    AT_MOST_ONCE = "at_most_once"
    UNDECLARED = "undeclared"


class ResultClass(StrEnum):
    """How a result is to be read (seed 002); a failure that nobody classified has none."""

    OK = "OK"
    EMPTY = "EMPTY"
    NO_PROGRESS = "NO_PROGRESS"
    RETRYABLE = "RETRYABLE"
    RATE_LIMITED = "RATE_LIMITED"
    FATAL = "FATAL"


# A member looked up in its class costs ten times as much as a name, and these are looked at several times a call.
PURE = EffectClass.PURE
OK, EMPTY, FATAL, NO_PROGRESS = ResultClass.OK, ResultClass.EMPTY, ResultClass.FATAL, ResultClass.NO_PROGRESS
RETRYABLE, RATE_LIMITED = ResultClass.RETRYABLE, ResultClass.RATE_LIMITED


class Status(StrEnum):
    """How a run stands: answered (``ok``), stopped with something (``partial``) or nothing (``failed``), or waiting (``paused``)."""

    OK = "ok"
    PARTIAL = "partial"
    FAILED = "failed"
    PAUSED = "paused"


class StopReason(StrEnum):
    """Why a run ended."""

    ANSWERED = "answered"
    QUESTION = "question"
    MAX_STEPS = "max_steps"
    MAX_TURNS = "max_turns"
    MAX_TOOL_CALLS = "max_tool_calls"
    STOP_AFTER_TOOL_CALLS = "stop_after_tool_calls"
    DUPLICATE_CALL = "duplicate_call"
    REPEATED_OBSERVATION = "repeated_observation"
    NO_PROGRESS = "no_progress"
    EMPTY_RESULTS = "empty_results"
    MAX_TOOL_ERRORS = "max_tool_errors"
    MAX_BAD_ARGUMENTS = "max_bad_arguments"
    MAX_ATTEMPTS = "max_attempts"
    UNVERIFIED = "unverified"
    DEADLINE = "deadline"
    MAX_WAIT = "max_wait"
    MAX_TOKENS = "max_tokens"
    MAX_COST = "max_cost"
    STRATEGY = "strategy"
    FINISH_REASON = "finish_reason"
    FATAL = "fatal"
    CANCELLED = "cancelled"
    DENIED = "denied"
    MODEL_ERROR = "model_error"
    MODEL_EMPTY = "model_empty"
    TRUNCATED = "truncated"
    CONTENT_FILTER = "content_filter"
    INVALID_DECISION = "invalid_decision"
    INVALID_REQUEST = "invalid_request"


ANSWERED = StopReason.ANSWERED
# The ends to which a run comes of itself, with an answer.
OF_ITSELF = (ANSWERED, StopReason.QUESTION)
# Ends that need no raise: whoever stopped the run, or failed it, may let it go on as it is.
GOES_ON = (StopReason.CANCELLED, StopReason.MODEL_ERROR)


@attrs.frozen(kw_only=True)
class Fault:
    """One way in which a value breaks its contract.

    `reason` is the short machine-readable word (``missing:limit``, ``range:limit``, ``shape``), `path` the place as keys
    and indexes from the top, `expected` what would have been right, `got` a short, capped description of what came.
    """

    reason: str
    path: tuple[str | int, ...] = ()
    expected: str = ""
    got: str = ""

    def __str__(self) -> str:
        place = "/".join(map(str, self.path))
        told = f"expected {self.expected}" if self.expected else ""
        if self.got:
            told = f"{told}; got {self.got}" if told else f"got {self.got}"
        where = f"{self.reason} at {place}" if place else self.reason
        return f"{where} ({told})" if told else where


new_fault = maker(Fault, "reason", "path", "expected", "got")


def _result_class(value: ResultClass | str) -> ResultClass:
    try:
        return ResultClass(value)
    except ValueError:
        raise BuildError(f"Verdict(result_class=) is {told(value)}; it may be {', '.join(ResultClass)}") from None


@attrs.frozen(kw_only=True)
class Verdict:
    """What a classifier says of a body's outcome (seed 002): `result_class`, `reason`, and `retry_after_s` seconds to wait before
    asking again.
    """

    result_class: ResultClass = attrs.field(converter=_result_class)
    reason: str = ""
    retry_after_s: float | None = None


@quickly_made
@attrs.frozen
class ToolCall:
    """One call of a `tool` that a decision asks for; `args` may be text that still has to be decoded.

    Without an `id` it gets one. `intent` is what is looked for (empty results are counted by it), `reason` why, and `changed` what has
    changed since the same call was made before.
    """

    tool: str
    args: Any = attrs.field(factory=dict)
    id: str = ""
    intent: str = ""
    reason: str = ""
    changed: str = ""


@attrs.frozen(kw_only=True)
class Usage:
    """What one decision cost: `input_tokens`, `output_tokens`, and `cost` in the host's money."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0


@quickly_made
@attrs.frozen(kw_only=True)
class Decision:
    """What to do next: call tools, or give a final answer (text, citations, at most one question to the user).

    `finish` is the provider's finish reason as received; it is empty where there is none. `kept` is what a provider wants back
    with this turn and nobody else can read (signed or encrypted reasoning): plain JSON, a mapping that names under ``by`` who
    made it. It is no part of the text.
    """

    calls: tuple[ToolCall, ...] = ()
    text: str | None = None
    citations: tuple[str, ...] = ()
    question: str | None = None
    finish: str = ""
    usage: Usage | None = None
    kept: Any = None


new_tool_call = maker(ToolCall, "tool", "args")
new_decision = maker(Decision, "calls")


@attrs.frozen(kw_only=True)
class Judgement:
    """A verifier's verdict (seed 002): `decision` is ``done`` or ``need_more``, with a reason and one next action."""

    decision: str
    reason: str = ""
    next_action: ToolCall | None = None


def told(value: object) -> str:
    """A value in few words for an error: a plain one as it is written, any other by its type; nothing of it is called."""
    kind = type(value)
    plain = kind in (str, float, bool, type(None)) or (isinstance(value, int) and kind is int and value.bit_length() <= 100)
    return repr(value)[:40] if plain else f"an instance of {kind.__name__}"


_DUPLICATES = ("stop", "refuse", "error", "first")
_FINISHES = ("length", "content_filter", "refusal", "empty")


def _duplicates(_: object, __: object, value: object) -> None:
    if not isinstance(value, str) or value not in _DUPLICATES:
        raise BuildError(f"Policy.duplicates is {told(value)}; it may be {', '.join(_DUPLICATES)}")


def _on_finish(_: object, __: object, value: object) -> None:
    if not isinstance(value, Mapping):
        raise BuildError(f"Policy.on_finish is a {type(value).__name__}; give a mapping of finish to end or continue")
    for finish, what in value.items():
        if not (isinstance(finish, str) and finish in _FINISHES and isinstance(what, str) and what in ("end", "continue")):
            raise BuildError(
                f"Policy.on_finish has {told(finish)}: {told(what)}; it maps {', '.join(_FINISHES)} to 'end' or 'continue'"
            )


def _on_denied(_: object, __: object, value: object) -> None:
    if not isinstance(value, str) or value not in ("continue", "stop"):
        raise BuildError(f"Policy.on_denied is {told(value)}; it may be 'continue' or 'stop'")


def _flag(_: object, attribute: Any, value: object) -> None:
    if not isinstance(value, bool):
        raise BuildError(f"Policy.{attribute.name} is {told(value)}; give True or False")


def _attempts(_: object, attribute: Any, value: object) -> None:
    if type(value) is not int or value < 1:
        raise BuildError(f"Policy.{attribute.name} is {told(value)}; give a whole number from 1")


def _seconds(_: object, attribute: Any, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise BuildError(f"Policy.{attribute.name} is {told(value)}; give seconds from 0")


def _maybe_seconds(_: object, attribute: Any, value: object) -> None:
    if value is not None:
        _seconds(_, attribute, value)


WEEK_S = 7 * 24 * 3600.0


@attrs.frozen(kw_only=True)
class Policy:
    """Choices that are no figures: what a repetition does, whether a last turn is kept for the answer, how finishes end.

    `duplicates` is ``stop``, ``refuse`` (``error`` means the same) or ``first``. `on_finish` maps ``length``,
    ``content_filter``, ``refusal`` and ``empty`` to ``end`` or ``continue``. `reserve_answer` keeps a turn for the answer of a
    run that is stopped. `redecide` says whether a failure is handed back to the decider, and `on_denied` whether a person's no
    to a call ends the run (``stop``) or not (``continue``). A model that fails for the moment is asked `model_attempts` times
    in all, after `model_backoff_s` seconds that double. `approval_ttl_s` seconds after a pause (a week, unless it says
    otherwise) no approval is taken any more; None waits for good. One program makes at most `program_calls` calls.
    """

    duplicates: str = attrs.field(default="stop", validator=_duplicates)
    reserve_answer: bool = attrs.field(default=True, validator=_flag)
    redecide: bool = attrs.field(default=True, validator=_flag)
    on_finish: Mapping[str, str] = attrs.field(factory=dict, validator=_on_finish)
    on_denied: str = attrs.field(default="continue", validator=_on_denied)
    model_attempts: int = attrs.field(default=3, validator=_attempts)
    model_backoff_s: float = attrs.field(default=0.5, validator=_seconds)
    program_calls: int = attrs.field(default=100, validator=_attempts)
    approval_ttl_s: float | None = attrs.field(default=WEEK_S, validator=_maybe_seconds)
