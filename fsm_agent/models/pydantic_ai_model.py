"""Any model that pydantic-ai knows, as a neutral step: its request and its reply, nothing of its agent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from queue import SimpleQueue
from typing import Any

from fsm_agent.core.errors import MissingExtra
from fsm_agent.core.messages import Role, ToolOffer
from fsm_agent.core.values import Decision, ToolCall
from fsm_agent.host.model import FailureKind, ModelFailed, ModelRequest
from fsm_agent.models.failures import failure_of
from fsm_agent.models.finishes import Price, checked_price, finish_word, usage_of
from fsm_agent.models.kept import Kind, Part, kept_of, placed, text_of
from fsm_agent.models.narrow_schema import schema_words
from fsm_agent.models.offered import Offered, wire_name
from fsm_agent.models.own_loop import OwnLoop
from fsm_agent.models.wire_history import GO_ON, Group, WireHistory, leading_system
from fsm_agent.models.wire_values import arguments_object, object_schema, wire_text

_BY = "pydantic-ai"
_FILES = ("file", "speech")


class PydanticAIModel:
    """A model of pydantic-ai, or the name of one (``openai:gpt-5``), asked through `pydantic_ai.direct`.

    Inside a running event loop a reply is awaitable, elsewhere it is not. `settings` are its ModelSettings (`temperature`,
    `max_tokens`); the time left bounds the request as a whole. A typed answer is asked for in words. `price` is money for a
    million tokens in and out. What the model thought, and the signatures and ids of its parts, go back in their place with later
    requests; the package sees to it that no other provider gets them. Files that a model makes are not kept.

    Raises MissingExtra naming ``pydantic-ai`` where the package is missing.
    """

    in_loop = True

    def __init__(self, model: Any, *, price: Price | None = None, **settings: Any) -> None:
        if find_spec("pydantic_ai") is None:
            raise MissingExtra("pydantic-ai-slim", "pydantic-ai", "PydanticAIModel")
        self.model, self.price, self.settings = model, checked_price(price), settings
        self._history = WireHistory(_add)
        self._offered = Offered(_tool)
        # The package's clients are async ones, and belong to the loop that they were first asked in.
        self._loop = OwnLoop()

    def reply(self, request: ModelRequest) -> Decision | Awaitable[Decision]:
        """The decision, awaitable inside a running event loop; raises ModelFailed, at once or when awaited."""
        if request.seconds_left is not None and request.seconds_left <= 0:
            raise ModelFailed(FailureKind.TIMEOUT, "no time is left for a request")
        asked = self._asked(request)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            said: SimpleQueue[str] = SimpleQueue()
            tell = None if request.on_delta is None else said.put
            return self._loop.result(self._later(asked, request, tell), said, request.on_delta)
        return self._later(asked, request, request.on_delta)

    async def _later(self, asked: dict[str, Any], request: ModelRequest, tell: Callable[[str], None] | None) -> Decision:
        direct = import_module("pydantic_ai.direct")
        with _Listener(tell) as listener:
            if tell is None:
                response = await direct.model_request(self.model, **asked)
            else:
                async with direct.model_request_stream(self.model, **asked) as stream:
                    async for event in stream:
                        listener.hear(event)
                    response = stream.get()
        return self._decision(response, request)

    def _asked(self, request: ModelRequest) -> dict[str, Any]:
        settings = dict(self.settings)
        if request.seconds_left is not None:
            settings |= {"timeout": request.seconds_left, "request_timeout": request.seconds_left}
        parameters = import_module("pydantic_ai.models").ModelRequestParameters
        return {
            "messages": self._messages(request),
            "model_settings": settings or None,
            "model_request_parameters": parameters(function_tools=self._offered.of(request.tools), allow_text_output=True),
        }

    def _messages(self, request: ModelRequest) -> list[Any]:
        system, rest = leading_system(request.instructions, request.messages)
        if request.schema is not None:
            system = f"{system}\n\n{schema_words(request.schema)}".strip()
        made = self._history.of(rest, request.summary)
        if not made or made[-1].kind != "request":
            _add(made, Group(role=Role.USER, text=GO_ON))
        made[-1] = replace(made[-1], instructions=system or None)
        return made

    def _decision(self, response: Any, request: ModelRequest) -> Decision:
        parts = [part for one in response.parts if (part := _part(one, response)) is not None]
        calls = [part.value for part in parts if part.kind is Kind.CALL]
        usage = usage_of(response.usage.input_tokens, response.usage.output_tokens, self.price)
        return Decision(
            calls=tuple(ToolCall(self._offered.own_name(one.tool_name, request), one.args, id=one.tool_call_id) for one in calls),
            text=text_of(parts) or None,
            finish=finish_word(getattr(response, "finish_reason", None), usage),
            usage=usage,
            kept=kept_of(_BY, parts),
        )


def _part(one: Any, response: Any) -> Part | None:
    """A part of a response with what its provider wants back; None for a file."""
    if one.part_kind not in ("text", "tool-call"):
        if one.part_kind in _FILES:
            return None
        kinds = import_module("pydantic_ai.messages")
        (whole,) = kinds.ModelMessagesTypeAdapter.dump_python([kinds.ModelResponse(parts=[one])], mode="json")
        return Part(Kind.OPAQUE, {name: value for name, value in whole["parts"][0].items() if value is not None})
    more = {name: value for name in ("id", "provider_details") if (value := getattr(one, name, None))}
    if more:
        # The package judges a part without a name by its response, which is not kept.
        more["provider_name"] = one.provider_name or getattr(response, "provider_name", None)
    return Part(Kind.TEXT, one.content, more) if one.part_kind == "text" else Part(Kind.CALL, one, more)


class _Listener:
    """Passes pieces of text on; what is raised meanwhile is a ModelFailed, unless the host's own listener raised it."""

    def __init__(self, tell: Callable[[str], None] | None) -> None:
        self._tell = tell
        self._raised: Exception | None = None

    def __enter__(self) -> _Listener:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and error is not self._raised:
            raise failure_of(error, otherwise=FailureKind.UNKNOWN if self._tell is None else FailureKind.CONNECTION) from error

    def hear(self, event: Any) -> None:
        """Take an event of the stream in."""
        text = ""
        if event.event_kind == "part_start" and event.part.part_kind == "text":
            text = event.part.content
        elif event.event_kind == "part_delta" and event.delta.part_delta_kind == "text":
            text = event.delta.content_delta
        if text and self._tell is not None:
            try:
                self._tell(text)
            except Exception as error:
                self._raised = error
                raise


def _add(made: list[Any], group: Group) -> None:
    """Put a group behind the messages made so far; requests that follow each other are one."""
    kinds = import_module("pydantic_ai.messages")
    if group.role is not Role.ASSISTANT:
        part = kinds.SystemPromptPart if group.role is Role.SYSTEM else kinds.UserPromptPart
        _request(made, kinds, [part(content=group.text)] if group.text else [])
        return
    parts = [made_of for part in placed(_BY, group) if (made_of := _again(kinds, part)) is not None]
    if not parts:
        return
    made.append(kinds.ModelResponse(parts=parts))
    _request(
        made,
        kinds,
        [kinds.ToolReturnPart(tool_name=wire_name(one.call.tool), content=one.text, tool_call_id=one.id) for one in group.answered],
    )


def _again(kinds: Any, part: Part) -> Any:
    """A part as the package knows it; None for one that it does not know any more."""
    if part.kind is Kind.OPAQUE:
        try:
            (message,) = kinds.ModelMessagesTypeAdapter.validate_python([{"kind": "response", "parts": [part.value]}])
        except ValueError:
            return None
        return message.parts[0]
    more = {name: part.more[name] for name in ("id", "provider_details", "provider_name") if name in part.more}
    if part.kind is Kind.TEXT:
        return kinds.TextPart(content=part.value, **more)
    one = part.value
    return kinds.ToolCallPart(tool_name=wire_name(one.call.tool), args=arguments_object(one.call.args), tool_call_id=one.id, **more)


def _request(made: list[Any], kinds: Any, parts: list[Any]) -> None:
    if not parts:
        return
    if made and made[-1].kind == "request":
        made[-1] = kinds.ModelRequest(parts=[*made[-1].parts, *parts])
    else:
        made.append(kinds.ModelRequest(parts=parts))


def _tool(offer: ToolOffer) -> Any:
    definition = import_module("pydantic_ai.tools").ToolDefinition
    description = wire_text(offer.description) or None
    return definition(name=wire_name(offer.name), description=description, parameters_json_schema=object_schema(offer.schema))
