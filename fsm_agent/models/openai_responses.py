"""OpenAI's Responses through the host's own client."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final

from fsm_agent.core.messages import Role, ToolOffer
from fsm_agent.core.plain import short
from fsm_agent.core.values import Decision, ToolCall, Usage
from fsm_agent.host.model import FailureKind, ModelFailed, ModelRequest
from fsm_agent.models.client_call import ask, awaits, creator, free_options
from fsm_agent.models.failures import failure_of_body
from fsm_agent.models.finishes import Price, checked_price, finish_word, usage_of
from fsm_agent.models.kept import Kind, Part, api_form, kept_of, placed, text_of
from fsm_agent.models.offered import Offered, wire_name
from fsm_agent.models.wire_history import GO_ON, Group, WireHistory, leading_system
from fsm_agent.models.wire_values import arguments_text, object_schema, wire_text, wire_value

_BY: Final = "openai.responses"
_TOOLS_ONLY: Final = ("tool_choice", "parallel_tool_calls", "max_tool_calls")
_ENDS: Final = ("response.completed", "response.incomplete", "response.failed")


class OpenAIResponses:
    """A model behind the Responses API; `client` is an `openai.OpenAI`, an `AsyncOpenAI` or anything with the same method.

    Each request holds the whole history, so nothing depends on what the service stores (``store=False`` is a fine option).
    Reasoning goes back in its place where it came encrypted, which a reasoning model is asked for by the option
    ``include=["reasoning.encrypted_content"]``. `options` go into each request as they are; `tool_choice` and
    `parallel_tool_calls` only where tools are offered. `price` is money for a million tokens in and out. `strict_schema` asks
    for the strict form of a typed answer, which takes a part of JSON Schema only.

    Give the client ``max_retries=0``: a run asks again by itself, in sight of its limits, and its time is for one request.
    Raises BuildError for a client of another kind, an option that it does not take, and one that each request sets by itself.
    """

    def __init__(self, client: Any, model: str, *, price: Price | None = None, strict_schema: bool = False, **options: Any) -> None:
        self._create = creator(client, "responses.create")
        # Nothing of an async client blocks an event loop.
        self.in_loop = awaits(self._create)
        self.model, self.price, self.strict_schema = model, checked_price(price), strict_schema
        self.options = free_options(self._create, options, ("input", "tools", "stream", "instructions"))
        self._history = WireHistory(_add)
        self._offered = Offered(_tool)

    def reply(self, request: ModelRequest) -> Decision | Awaitable[Decision]:
        """The decision, awaitable for an async client; raises ModelFailed."""
        reader = _Reader(self, request)
        return ask(self._create, self._body(request), request, lambda reply: self._decision(reply, request), reader)

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        system, rest = leading_system(request.instructions, request.messages)
        made = self._history.of(rest, request.summary)
        if not made or made[-1].get("role") == "assistant":
            made.append({"role": "user", "content": GO_ON})
        body = {"model": self.model, **self.options, "input": made}
        if system:
            body["instructions"] = system
        if request.tools:
            body["tools"] = self._offered.of(request.tools)
        else:
            body = {name: value for name, value in body.items() if name not in _TOOLS_ONLY}
        if request.schema is not None:
            schema = {"name": "answer", "schema": wire_value(dict(request.schema)), "strict": self.strict_schema}
            body["text"] = {**body.get("text", {}), "format": {"type": "json_schema", **schema}}
        return body

    def _decision(self, reply: Any, request: ModelRequest) -> Decision:
        status = reply.status
        if status not in ("completed", "incomplete"):
            raise _failed(reply, self._usage(reply))
        said = [part for item in reply.output if item.type == "message" for part in item.content]
        refusal = "".join(part.refusal for part in said if part.type == "refusal")
        calls = [item for item in reply.output if item.type == "function_call"]
        parts = [part for item in reply.output if (part := _part(item)) is not None]
        text, usage = text_of(parts), self._usage(reply)
        reason = getattr(reply.incomplete_details, "reason", None) or status
        finish = "tool_calls" if calls and status == "completed" else finish_word(reason, usage)
        if status == "incomplete" and finish != "content_filter":
            # Whatever broke it off, the service says itself that the reply is not whole.
            finish = "length"
        return Decision(
            calls=tuple(ToolCall(self._offered.own_name(one.name, request), one.arguments, id=one.call_id) for one in calls),
            text=text or refusal or None,
            finish="refusal" if refusal else finish,
            usage=usage,
            kept=kept_of(_BY, parts),
        )

    def _usage(self, reply: Any) -> Usage | None:
        usage = getattr(reply, "usage", None)
        return usage_of(getattr(usage, "input_tokens", None), getattr(usage, "output_tokens", None), self.price)


def _part(item: Any) -> Part | None:
    """An item of a reply; None for one that can only be told again by an id that the service may not know."""
    if item.type == "message":
        return Part(Kind.TEXT, "".join(part.text for part in item.content if part.type == "output_text"))
    if item.type == "function_call":
        return Part(Kind.CALL, item)
    if not getattr(item, "encrypted_content", None):
        return None
    # The API sends nulls that it does not take.
    return Part(Kind.OPAQUE, {name: value for name, value in api_form(item).items() if value is not None})


class _Reader:
    """A streamed reply: its texts are passed on as they come, its last event holds it whole."""

    def __init__(self, model: OpenAIResponses, request: ModelRequest) -> None:
        self._model, self._request = model, request
        self._whole: Any = None
        self._told = False

    def take(self, piece: Any) -> str:
        """Take an event in; returns the text that it tells. Raises ModelFailed for an error event."""
        if piece.type == "error":
            raise failure_of_body(piece, f"the stream holds an error: {short(getattr(piece, 'message', piece), 200)}")
        if piece.type in _ENDS:
            self._whole = piece.response
        if piece.type == "response.output_text.delta":
            self._told = True
            return piece.delta or ""
        return piece.delta or "" if piece.type == "response.refusal.delta" and not self._told else ""

    def decision(self) -> Decision:
        """The decision of the whole reply; raises ModelFailed where it broke off before its last event."""
        if self._whole is None:
            raise ModelFailed(FailureKind.CONNECTION, "the stream ended before the end of the response")
        return self._model._decision(self._whole, self._request)

    def usage(self) -> Usage | None:
        """What the last event counted."""
        return self._model._usage(self._whole)


def _failed(reply: Any, usage: Usage | None) -> ModelFailed:
    error = getattr(reply, "error", None)
    said = getattr(error, "message", None) or f"its status is {short(reply.status, 40)}"
    failed = failure_of_body({"error": error}, f"the response failed: {said}")
    failed.usage = usage
    return failed


def _add(made: list[Any], group: Group) -> None:
    """Put a group behind the items made so far."""
    role = "developer" if group.role is Role.SYSTEM else group.role.value
    for part in placed(_BY, group):
        if part.kind is Kind.TEXT:
            made.append({"role": role, "content": part.value})
        elif part.kind is Kind.OPAQUE:
            made.append(dict(part.value))
        else:
            one = part.value
            call = {"name": wire_name(one.call.tool), "arguments": arguments_text(one.call.args)}
            made.append({"type": "function_call", "call_id": one.id, **call})
    made += ({"type": "function_call_output", "call_id": one.id, "output": one.text} for one in group.answered)


def _tool(offer: ToolOffer) -> dict[str, Any]:
    described = {"description": wire_text(offer.description)} if offer.description.strip() else {}
    made = {"type": "function", "name": wire_name(offer.name), **described, "parameters": object_schema(offer.schema)}
    # Left out, it would be strict, which takes a part of JSON Schema only.
    return {**made, "strict": False}
