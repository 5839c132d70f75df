"""Chat Completions through the host's own client: OpenAI's service, and servers that speak it (vLLM, Ollama, llama.cpp)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final

from fsm_agent.core.messages import Role, ToolOffer
from fsm_agent.core.plain import short
from fsm_agent.core.values import Decision, ToolCall, Usage
from fsm_agent.host.model import FailureKind, ModelFailed, ModelRequest
from fsm_agent.models.client_call import ask, awaits, creator, free_options
from fsm_agent.models.failures import failure_of_body
from fsm_agent.models.finishes import Price, checked_price, finish_word, usage_of
from fsm_agent.models.kept import Kind, Part, grown, kept_of, placed, text_of
from fsm_agent.models.offered import Offered, wire_name
from fsm_agent.models.wire_history import GO_ON, Group, WireHistory, leading_system
from fsm_agent.models.wire_values import arguments_text, object_schema, wire_id, wire_text, wire_value

# Some models know their own ids by their form, so an id that the API takes stays as it is.
_CHAT_ID: Final = re.compile(r"[!-~]{1,40}")
_BY: Final = "openai.chat"
_TOOLS_ONLY: Final = ("tools", "tool_choice", "parallel_tool_calls")


class OpenAIChat:
    """A model behind Chat Completions; `client` is an `openai.OpenAI`, an `AsyncOpenAI` or anything with the same method.

    `options` go into each request as they are (`temperature`, `max_completion_tokens`, `extra_body`); `tool_choice` and
    `parallel_tool_calls` only where tools are offered, as the API asks. `price` is money for a million tokens in and out.
    `strict_schema` asks for the strict form of a typed answer, which takes a part of JSON Schema only. `later_system` is the
    role of a system message inside the history; templates of some open models take ``user`` alone. `kept_fields` names what some
    servers put into a message or a call, beyond the protocol, and want back with it: OpenRouter's reasoning and Gemini's signatures.
    Add ``reasoning_content`` only for a server that wants its own back; others refuse it.

    Give the client ``max_retries=0``: a run asks again by itself, in sight of its limits, and its time is for one request.
    Raises BuildError for a client of another kind, an option that it does not take, and one that each request sets by itself.
    """

    def __init__(
        self,
        client: Any,
        model: str,
        *,
        price: Price | None = None,
        strict_schema: bool = False,
        later_system: str = "system",
        kept_fields: Sequence[str] = ("reasoning_details", "extra_content"),
        **options: Any,
    ) -> None:
        self._create = creator(client, "chat.completions.create")
        # Nothing of an async client blocks an event loop.
        self.in_loop = awaits(self._create)
        self.model, self.price, self.strict_schema = model, checked_price(price), strict_schema
        self.options = free_options(self._create, options, ("messages", "tools", "stream"))
        self._later_system, self._kept_fields = later_system, tuple(kept_fields)
        self._history = WireHistory(self._add, _chat_id)
        self._offered = Offered(_tool)

    def reply(self, request: ModelRequest) -> Decision | Awaitable[Decision]:
        """The decision, awaitable for an async client; raises ModelFailed."""
        reader = _Reader(self, request)
        return ask(self._create, self._body(request), request, lambda reply: self._decision(reply, request), reader)

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        body = {"model": self.model, **self.options, "messages": self._messages(request)}
        if request.tools:
            body["tools"] = self._offered.of(request.tools)
        else:
            body = {name: value for name, value in body.items() if name not in _TOOLS_ONLY}
        if request.schema is not None:
            schema = {"name": "answer", "schema": wire_value(dict(request.schema)), "strict": self.strict_schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        if request.on_delta is not None:
            body.setdefault("stream_options", {"include_usage": True})
        return body

    def _messages(self, request: ModelRequest) -> list[Any]:
        system, rest = leading_system(request.instructions, request.messages)
        made = self._history.of(rest, request.summary)
        if not made or made[-1]["role"] == "assistant":
            made.append({"role": "user", "content": GO_ON})
        return [{"role": "system", "content": system}, *made] if system else made

    def _add(self, made: list[Any], group: Group) -> None:
        role: str = self._later_system if group.role is Role.SYSTEM else group.role.value
        parts = placed(_BY, group)
        kept = {name: value for part in parts if part.kind is Kind.OPAQUE for name, value in part.value.items()}
        if group.answered:
            calls = [{**_call(part.value), **part.more} for part in parts if part.kind is Kind.CALL]
            made.append({"role": role, "content": group.text or None, "tool_calls": calls, **kept})
            made += ({"role": "tool", "tool_call_id": one.id, "content": one.text} for one in group.answered)
        elif not group.text:
            return
        elif made and not kept and made[-1].keys() == {"role", "content"} and made[-1]["role"] == role:
            # Templates of some open models want user and assistant in turn.
            made[-1] = {"role": role, "content": f"{made[-1]['content']}\n\n{group.text}"}
        else:
            made.append({"role": role, "content": group.text, **kept})

    def _decision(self, reply: Any, request: ModelRequest) -> Decision:
        choices = getattr(reply, "choices", None)
        if not choices:
            raise _no_choices(reply)
        message = choices[0].message
        calls = [
            Part(Kind.CALL, (one.id, one.function.name, one.function.arguments), self._kept_of(one))
            for one in message.tool_calls or ()
            if getattr(one, "function", None) is not None
        ]
        kept, text = self._kept_of(message), _text(message.content)
        parts = [*([Part(Kind.OPAQUE, kept)] if kept else []), Part(Kind.TEXT, text), *calls]
        refusal, usage = getattr(message, "refusal", None), self._usage(getattr(reply, "usage", None))
        return self._made(request, parts, refusal, choices[0].finish_reason, usage)

    def _made(
        self, request: ModelRequest, parts: Sequence[Part], refusal: str | None, finish: Any, usage: Usage | None
    ) -> Decision:
        """The decision of a reply's parts, however they came."""
        calls = [part.value for part in parts if part.kind is Kind.CALL]
        return Decision(
            calls=tuple(
                ToolCall(self._offered.own_name(name, request), args, id=call_id if isinstance(call_id, str) else "")
                for call_id, name, args in calls
            ),
            text=text_of(parts) or refusal or None,
            finish="refusal" if refusal else finish_word(finish, usage),
            usage=usage,
            kept=kept_of(_BY, parts),
        )

    def _kept_of(self, owner: Any) -> dict[str, Any]:
        return {name: value for name in self._kept_fields if (value := getattr(owner, name, None))}

    def _grown(self, pieces: list[dict[str, Any]]) -> dict[str, Any]:
        return grown(pieces, self._kept_fields)

    def _usage(self, usage: Any) -> Usage | None:
        return usage_of(getattr(usage, "prompt_tokens", None), getattr(usage, "completion_tokens", None), self.price)


class _Reader:
    """A streamed reply, put together piece by piece."""

    def __init__(self, model: OpenAIChat, request: ModelRequest) -> None:
        self._model, self._request = model, request
        self._finish = ""
        # Joined once: a text that grew with each piece would be copied as often.
        self._texts: list[str] = []
        self._refusals: list[str] = []
        self._counted: Any = None
        self._calls: list[dict[str, Any]] = []
        self._kept: list[dict[str, Any]] = []

    def take(self, piece: Any) -> str:
        """Take a chunk in; returns the text that it tells."""
        told = ""
        self._counted = getattr(piece, "usage", None) or self._counted
        for choice in piece.choices or ():
            if getattr(choice, "index", 0) not in (0, None):
                continue
            self._finish = choice.finish_reason or self._finish
            delta = choice.delta
            if delta is None:
                continue
            if kept := self._model._kept_of(delta):
                self._kept.append(kept)
            for call in delta.tool_calls or ():
                self._take_call(call)
            refusal = getattr(delta, "refusal", None) or ""
            self._refusals.append(refusal)
            if text := _text(delta.content):
                self._texts.append(text)
            # What is told in pieces is the decision's text: the reply's, or its refusal where it has none.
            told += text or (refusal if not self._texts else "")
        return told

    def _take_call(self, piece: Any) -> None:
        call = next((one for one in reversed(self._calls) if one["index"] == piece.index), None)
        # Some servers give every call the same index; a new id is a new call.
        if call is None or (piece.id and call["id"] and piece.id != call["id"]):
            call = {"index": piece.index, "id": "", "name": "", "arguments": [], "kept": []}
            self._calls.append(call)
        function = piece.function
        call["id"] = call["id"] or piece.id or ""
        call["name"] = call["name"] or getattr(function, "name", None) or ""
        call["arguments"].append(getattr(function, "arguments", None) or "")
        if kept := self._model._kept_of(piece):
            call["kept"].append(kept)

    def decision(self) -> Decision:
        """The decision of the whole reply; raises ModelFailed where it broke off before its finish reason."""
        if not self._finish:
            raise ModelFailed(FailureKind.CONNECTION, "the stream ended before its finish reason")
        grow, kept = self._model._grown, self._model._grown(self._kept)
        calls = [
            Part(Kind.CALL, (one["id"], one["name"], "".join(one["arguments"])), grow(one["kept"])) for one in self._calls
        ]
        parts = [*([Part(Kind.OPAQUE, kept)] if kept else []), Part(Kind.TEXT, "".join(self._texts)), *calls]
        return self._model._made(self._request, parts, "".join(self._refusals), self._finish, self.usage())

    def usage(self) -> Usage | None:
        """What was counted so far."""
        return self._model._usage(self._counted)


def _tool(offer: ToolOffer) -> dict[str, Any]:
    described = {"description": wire_text(offer.description)} if offer.description.strip() else {}
    function = {"name": wire_name(offer.name), **described, "parameters": object_schema(offer.schema)}
    return {"type": "function", "function": function}


def _call(one: Any) -> dict[str, Any]:
    function = {"name": wire_name(one.call.tool), "arguments": arguments_text(one.call.args)}
    return {"id": one.id, "type": "function", "function": function}


def _chat_id(call_id: str) -> str:
    return call_id if _CHAT_ID.fullmatch(call_id) else wire_id(call_id)


def _text(content: Any) -> str:
    """A reply's text; some servers give it as a list of parts."""
    if isinstance(content, list):
        return "".join(_text(part.get("text") if isinstance(part, Mapping) else getattr(part, "text", "")) for part in content)
    return content if isinstance(content, str) else ""


def _no_choices(reply: Any) -> ModelFailed:
    body = {"error": getattr(reply, "error", None)}
    return failure_of_body(body, f"the reply holds no choice: {short(body['error'] or reply, 200)}")
