"""Anthropic's Messages through the host's own client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from fsm_agent.core.decoding import decoded
from fsm_agent.core.messages import Role, ToolOffer
from fsm_agent.core.values import Decision, ToolCall, Usage
from fsm_agent.host.model import FailureKind, ModelFailed, ModelRequest
from fsm_agent.models.client_call import ask, awaits, creator, free_options, takes
from fsm_agent.models.finishes import Price, checked_price, finish_word, usage_of
from fsm_agent.models.kept import Kind, Part, api_form, kept_of, placed, text_of
from fsm_agent.models.narrow_schema import narrow_schema, schema_words
from fsm_agent.models.offered import Offered, wire_name
from fsm_agent.models.wire_history import GO_ON, Group, WireHistory, leading_system
from fsm_agent.models.wire_values import arguments_object, object_schema, wire_text

_BY: Final = "anthropic"
_COUNTS: Final = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class AnthropicMessages:
    """A model behind the Messages API; `client` is an `anthropic.Anthropic`, an `AsyncAnthropic` or alike.

    `max_tokens` bounds each reply, as the API demands. `options` go into each request as they are; `tool_choice` only where
    tools are offered. `price` is money for a million tokens in and out. A typed answer is asked for through `output_config`
    where the client has it and the schema has a form that the API enforces, else in words; `native_schema` False is for
    models that know no `output_config`. `declare_used_tools` is for gateways that refuse a history with calls where no tools
    are offered: those that were used are then declared, and forbidden.

    Thinking blocks, and any other block that is neither text nor a call of a tool, go back in their place with later requests.
    Give the client ``max_retries=0``: a run asks again by itself, in sight of its limits, and its time is for one request.
    Raises BuildError for a client of another kind, an option that it does not take, and one that each request sets by itself.
    """

    def __init__(
        self,
        client: Any,
        model: str,
        *,
        max_tokens: int = 4096,
        price: Price | None = None,
        native_schema: bool = True,
        declare_used_tools: bool = False,
        **options: Any,
    ) -> None:
        self._create = creator(client, "messages.create")
        # Nothing of an async client blocks an event loop.
        self.in_loop = awaits(self._create)
        self.model, self.max_tokens, self.price = model, max_tokens, checked_price(price)
        self.options = free_options(self._create, options, ("messages", "tools", "stream", "system"))
        self._native_schema = native_schema and takes(self._create, "output_config")
        self._declare_used = declare_used_tools
        self._history = WireHistory(_add)
        self._offered = Offered(_tool)

    def reply(self, request: ModelRequest) -> Decision | Awaitable[Decision]:
        """The decision, awaitable for an async client; raises ModelFailed."""
        reader = _Reader(self, request)
        return ask(self._create, self._body(request), request, lambda reply: self._decision(reply, request), reader)

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        system, rest = leading_system(request.instructions, request.messages)
        made = self._history.of(rest, request.summary)
        if not made or made[0]["role"] != "user":
            made.insert(0, _user(GO_ON))
        if made[-1]["role"] != "user":
            made.append(_user(GO_ON))
        body = {"model": self.model, "max_tokens": self.max_tokens, **self.options, "messages": made}
        if request.schema is not None:
            narrow = narrow_schema(request.schema) if self._native_schema else None
            if narrow is None:
                system = f"{system}\n\n{schema_words(request.schema)}".strip()
            else:
                body["output_config"] = {**body.get("output_config", {}), "format": {"type": "json_schema", "schema": narrow}}
        if system:
            body["system"] = system
        return self._with_tools(body, request)

    def _with_tools(self, body: dict[str, Any], request: ModelRequest) -> dict[str, Any]:
        if request.tools:
            return {**body, "tools": self._offered.of(request.tools)}
        body.pop("tool_choice", None)
        used = {call.tool: None for message in request.messages for call in message.calls} if self._declare_used else {}
        if used:
            tools = [_tool(ToolOffer(name=name, description="No longer offered.")) for name in used]
            return {**body, "tools": tools, "tool_choice": {"type": "none"}}
        return body

    def _decision(self, reply: Any, request: ModelRequest) -> Decision:
        counts = {name: getattr(reply.usage, name, None) for name in (*_COUNTS, "output_tokens")}
        return self._made(request, [_part(block) for block in reply.content], reply.stop_reason, self._usage(counts))

    def _made(self, request: ModelRequest, parts: Sequence[Part], reason: Any, usage: Usage | None) -> Decision:
        """The decision of a reply's parts, however they came."""
        blocks = [part.value for part in parts if part.kind is Kind.CALL]
        return Decision(
            calls=tuple(ToolCall(self._offered.own_name(name, request), args, id=call_id) for call_id, name, args in blocks),
            text=text_of(parts) or None,
            finish=finish_word(reason, usage),
            usage=usage,
            kept=kept_of(_BY, parts),
        )

    def _usage(self, counts: dict[str, Any]) -> Usage | None:
        into = [counts[name] for name in _COUNTS if isinstance(counts.get(name), int)]
        return usage_of(sum(into) if into else None, counts.get("output_tokens"), self.price)


def _part(block: Any) -> Part:
    if block.type == "text":
        return Part(Kind.TEXT, block.text)
    if block.type == "tool_use":
        return Part(Kind.CALL, (block.id, block.name, block.input))
    return Part(Kind.OPAQUE, api_form(block))


class _Reader:
    """A streamed reply, put together event by event."""

    def __init__(self, model: AnthropicMessages, request: ModelRequest) -> None:
        self._model, self._request = model, request
        # Each with the pieces that are to be put behind its fields; joined once, no text is copied as often as it grows.
        self._blocks: dict[int, tuple[dict[str, Any], dict[str, list[str]]]] = {}
        self._counts: dict[str, Any] = {}
        self._reason: Any = None
        self._ended = False

    def take(self, piece: Any) -> str:
        """Take an event in; returns the text that it tells."""
        if piece.type == "message_start":
            self._count(piece.message.usage)
        elif piece.type == "content_block_start":
            block = api_form(piece.content_block)
            self._blocks[piece.index] = (block, {})
            if block["type"] == "text":
                return block["text"] or ""
        elif piece.type == "content_block_delta" and piece.index in self._blocks:
            pieces, grown = self._blocks[piece.index][1], api_form(piece.delta)
            # A delta brings what is to be put behind the block's own field of that name.
            for name, more in grown.items():
                if name != "type" and isinstance(more, str):
                    pieces.setdefault(name, []).append(more)
            if grown["type"] == "text_delta":
                return grown["text"] or ""
        elif piece.type == "message_delta":
            self._reason = piece.delta.stop_reason
            self._count(piece.usage)
        elif piece.type == "message_stop":
            self._ended = True
        return ""

    def _count(self, usage: Any) -> None:
        for name in (*_COUNTS, "output_tokens"):
            if isinstance(count := getattr(usage, name, None), int):
                self._counts[name] = count

    def decision(self) -> Decision:
        """The decision of the whole reply; raises ModelFailed where it broke off before its end."""
        if not self._ended:
            raise ModelFailed(FailureKind.CONNECTION, "the stream ended before the end of the message")
        return self._model._made(self._request, [_whole(*block) for block in self._blocks.values()], self._reason, self.usage())

    def usage(self) -> Usage | None:
        """What was counted so far."""
        return self._model._usage(self._counts)


def _whole(begun: dict[str, Any], pieces: dict[str, list[str]]) -> Part:
    """A streamed block, as it would have come whole."""
    block = {**begun, **{name: f"{begun.get(name) or ''}{''.join(more)}" for name, more in pieces.items()}}
    if block["type"] == "text":
        return Part(Kind.TEXT, block["text"])
    if text := block.pop("partial_json", ""):
        # Whole arguments are an object, as in a reply that is not streamed; cut-off ones stay the text that came.
        block["input"] = decoded(text)
    return Part(Kind.CALL, (block["id"], block["name"], block["input"])) if block["type"] == "tool_use" else Part(Kind.OPAQUE, block)


def _add(made: list[Any], group: Group) -> None:
    """Put a group behind the messages made so far, so that user and assistant take turns and no text is empty."""
    if group.role is not Role.ASSISTANT:
        _say(made, "user", [_text(group.text)] if group.text else [])
        return
    _say(made, "assistant", [_FORMS[part.kind](part.value) for part in placed(_BY, group)])
    _say(made, "user", [_result(one) for one in group.answered])


def _say(made: list[Any], role: str, blocks: list[dict[str, Any]]) -> None:
    if not blocks:
        return
    if made and made[-1]["role"] == role:
        made[-1] = {"role": role, "content": [*made[-1]["content"], *blocks]}
    else:
        made.append({"role": role, "content": blocks})


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [_text(text)]}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _use(one: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": one.id, "name": wire_name(one.call.tool), "input": arguments_object(one.call.args)}


_FORMS: Final[Mapping[Kind, Callable[[Any], dict[str, Any]]]] = {Kind.TEXT: _text, Kind.CALL: _use, Kind.OPAQUE: dict}


def _result(one: Any) -> dict[str, Any]:
    made = {"type": "tool_result", "tool_use_id": one.id, "content": one.text}
    return {**made, "is_error": True} if one.failed else made


def _tool(offer: ToolOffer) -> dict[str, Any]:
    described = {"description": wire_text(offer.description)} if offer.description.strip() else {}
    return {"name": wire_name(offer.name), **described, "input_schema": object_schema(offer.schema)}
