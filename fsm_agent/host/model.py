"""What a model is asked and what it may answer: the one protocol that every provider's file keeps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

import attrs

from fsm_agent.core import prompts
from fsm_agent.core.errors import BuildError
from fsm_agent.core.generated import Later, MadeWhenRead, maker
from fsm_agent.core.messages import Message, Purpose, ToolOffer
from fsm_agent.core.run import Run
from fsm_agent.core.values import Decision, Usage, told


@attrs.frozen(kw_only=True)
class ModelRequest(Later):
    """One request to a model.

    `instructions` is the system text, `messages` the history (valid for every provider: one result for each call id, in order),
    `tools` what may be called now. `schema` is the JSON Schema of the text that is wanted, where a typed answer or a verdict is.
    `summary` is a short paragraph on where the run stands, to be shown behind the messages and never kept among them.
    `left` holds what is left of each limit by its name (None: no limit), `seconds_left` the time for this request. `attempt` counts
    from 1 and rises when a failed request is made again. `on_delta` takes pieces of text as they arrive; it is None where nobody
    listens, so that there is no need to stream.
    """

    run_id: str = ""
    state: str = ""
    purpose: Purpose = Purpose.DECIDE
    instructions: str = ""
    messages: Sequence[Message] = ()
    tools: tuple[ToolOffer, ...] = ()
    schema: Mapping[str, Any] | None = None
    summary: str = ""
    left: Mapping[str, float | None] = attrs.field(factory=dict)
    seconds_left: float | None = None
    attempt: int = 1
    on_delta: Callable[[str], None] | None = None
    # Those that the two fields which are left out are made of.
    _figures: tuple[Any, ...] = attrs.field(default=(), init=False, eq=False, repr=False)


class _WhenRead(MadeWhenRead):
    """A field that a request of a run leaves out: it is made of the run's figures when a model first reads it, as most never do."""

    def __get__(self, request: Any, kind: type[Any] | None = None) -> Any:
        if request is None:
            return self
        made = vars(request)[self._name] = self._make(prompts.Standing(*request._figures), request.messages)
        return made


# What stands in a request itself goes before these.
setattr(ModelRequest, "left", _WhenRead("left", lambda standing, _: prompts.left_of(standing)))  # noqa: B010  no method is meant
setattr(ModelRequest, "summary", _WhenRead("summary", prompts.state_summary))  # noqa: B010


def request_of(
    run: Run,
    instructions: str,
    messages: Sequence[Message],
    tools: tuple[ToolOffer, ...],
    schema: Mapping[str, Any] | None,
    on_delta: Callable[[str], None] | None,
) -> ModelRequest:
    """The request for a run's next decision, as the run stands now, whenever its figures are read."""
    limits = run.limits
    until = limits.work_until_s if limits.deadline_s is not None else None
    made = _new_request(
        run.id,
        run.state,
        _DECIDE,
        instructions,
        messages,
        tools,
        schema,
        None if until is None else max(0.0, until - run.spent_s),
        run.failed_requests + 1,
        on_delta,
        (limits, run.turns, run.tool_calls, run.steps, run.tokens, run.cost, run.spent_s),
    )
    if not run.calls:
        vars(made)["summary"] = ""
    return made


_DECIDE = Purpose.DECIDE
_new_request = maker(
    ModelRequest, "run_id", "state", "purpose", "instructions", "messages", "tools", "schema", "seconds_left", "attempt", "on_delta",
    "_figures",
)  # fmt: skip


@runtime_checkable
class Model(Protocol):
    """Anything that answers a request with a decision, at once or as an awaitable.

    A model that cannot answer raises ModelFailed; whatever else it raises ends the run as `model_error`. In an event loop a
    `reply` that is no coroutine function is called in a thread beside it, and what it returns to be awaited is awaited in the
    loop; one that has to be called in the loop itself says so by an attribute `in_loop` that is true.
    """

    def reply(self, request: ModelRequest) -> Decision | Awaitable[Decision]:
        """The decision: calls, a text or both, the provider's finish reason as received, and the usage."""
        ...


class FailureKind(StrEnum):
    """Why a model gave no answer; the first four may be asked again."""

    RATE_LIMITED = "rate_limited"
    SERVER_ERROR = "server_error"
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    CONTEXT_LENGTH = "context_length"
    INVALID_REQUEST = "invalid_request"
    AUTHENTICATION = "authentication"
    UNKNOWN = "unknown"

    @property
    def passes(self) -> bool:
        """True where the same request may be answered later."""
        return self in (FailureKind.RATE_LIMITED, FailureKind.SERVER_ERROR, FailureKind.TIMEOUT, FailureKind.CONNECTION)


class ModelFailed(Exception):
    """A provider gave no answer: `kind` says why, `retry_after_s` when it may be asked again, where it said so.

    `usage` is what the request cost all the same, where that is known. Raises BuildError for another kind.
    """

    def __init__(
        self, kind: FailureKind | str, message: str = "", retry_after_s: float | None = None, usage: Usage | None = None
    ) -> None:
        super().__init__(message)
        try:
            self.kind = FailureKind(kind)
        except ValueError:
            raise BuildError(f"ModelFailed(kind=) is {told(kind)}; it may be {', '.join(FailureKind)}") from None
        self.retry_after_s, self.usage = retry_after_s, usage


class MalformedDecision(Exception):
    """A model answered with something that is no decision; the message is fed back to it, so many times at most.

    `usage` is what the reply cost all the same.
    """

    def __init__(self, message: str = "", usage: Usage | None = None) -> None:
        super().__init__(message)
        self.usage = usage
