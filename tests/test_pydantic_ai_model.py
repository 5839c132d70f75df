"""Models of pydantic-ai: what they are asked, and that what they reply is one decision, streamed or not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import attrs
import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RequestUsage

from fsm_agent.core.errors import MissingExtra
from fsm_agent.core.messages import Message, Role, ToolOffer
from fsm_agent.core.plain import dumps, loads
from fsm_agent.core.values import Decision, ToolCall, Usage
from fsm_agent.host.model import FailureKind, ModelFailed, ModelRequest
from fsm_agent.models import pydantic_ai_model
from fsm_agent.models.offered import wire_name
from fsm_agent.models.pydantic_ai_model import PydanticAIModel

TestModel.__test__ = False  # type: ignore[attr-defined]
ADD = ToolOffer(name="add", description="Adds.", schema={"type": "object", "properties": {"a": {"type": "integer"}}})
DOTTED = ToolOffer(name="web.search")
ASKED = ModelRequest(instructions="Be brief.", messages=[Message(role=Role.USER, text="2+2?")], tools=(ADD, DOTTED))


def now(model: PydanticAIModel, request: ModelRequest) -> Any:
    return model.reply(request)


def later(model: PydanticAIModel, request: ModelRequest) -> Any:
    async def ask() -> Any:
        return await model.reply(request)  # type: ignore[misc]

    return asyncio.run(ask())


each_way = pytest.mark.parametrize("ask", [now, later], ids=["sync", "async"])
Ask = Callable[[PydanticAIModel, ModelRequest], Any]
REPLY = ModelResponse(
    parts=[TextPart("Let me "), ToolCallPart("add", '{"a": 1}', tool_call_id="c1"), TextPart("see.")],
    usage=RequestUsage(input_tokens=1_000_000, output_tokens=3),
    finish_reason="tool_call",
)


@each_way
def test_a_reply_is_one_decision(ask: Ask) -> None:
    model = PydanticAIModel(FunctionModel(lambda messages, info: REPLY), price=(2.0, 0.0))

    assert ask(model, ASKED) == Decision(
        calls=(ToolCall("add", '{"a": 1}', id="c1"),),
        text="Let me see.",
        finish="tool_calls",
        usage=Usage(input_tokens=1_000_000, output_tokens=3, cost=2.0),
    )


@each_way
@pytest.mark.parametrize(
    ("reason", "finish"), [("stop", "stop"), ("length", "length"), ("content_filter", "content_filter"), (None, "")]
)
def test_a_finish_reason_is_told_in_the_words_of_the_core(ask: Ask, reason: Any, finish: str) -> None:
    response = ModelResponse(parts=[TextPart("x")], finish_reason=reason)

    assert ask(PydanticAIModel(FunctionModel(lambda messages, info: response)), ASKED).finish == finish


@each_way
def test_an_empty_reply_is_an_empty_decision(ask: Ask) -> None:
    decision = ask(PydanticAIModel(FunctionModel(lambda messages, info: ModelResponse(parts=[]))), ASKED)

    assert (decision.calls, decision.text) == ((), None)


@each_way
def test_a_streamed_reply_is_told_in_pieces_and_is_the_same_decision(ask: Ask) -> None:
    async def stream(messages: Any, info: AgentInfo) -> AsyncIterator[Any]:
        for piece in ("Let ", "me ", "see."):
            yield piece
        yield {1: DeltaToolCall(name="add", tool_call_id="c1")}
        for piece in ('{"a"', ": 1}"):
            yield {1: DeltaToolCall(json_args=piece)}

    told: list[str] = []
    decision = ask(PydanticAIModel(FunctionModel(stream_function=stream)), attrs.evolve(ASKED, on_delta=told.append))

    assert told == ["Let ", "me ", "see."]
    assert (decision.text, decision.calls) == ("Let me see.", (ToolCall("add", '{"a": 1}', id="c1"),))


@each_way
def test_a_tools_name_goes_out_as_providers_take_it_and_comes_back_as_it_is(ask: Ask) -> None:
    response = ModelResponse(parts=[ToolCallPart(wire_name("web.search"), {})])

    assert ask(PydanticAIModel(FunctionModel(lambda messages, info: response)), ASKED).calls[0].tool == "web.search"


THOUGHT = ThinkingPart("I have to add.", signature="sig", provider_name="google", provider_details={"n": 1})
SIGNED = ToolCallPart("add", {"a": 1}, tool_call_id="c1", provider_name="google", provider_details={"thought_signature": "Zm9v"})
SAID = TextPart("Let me see.", id="msg_1")


@each_way
def test_thoughts_and_signatures_go_back_in_their_place(ask: Ask) -> None:
    seen: list[Any] = []

    def reply(messages: Any, info: AgentInfo) -> ModelResponse:
        seen.append(list(messages))
        return ModelResponse(parts=[THOUGHT, SAID, SIGNED], provider_name="google")

    model = PydanticAIModel(FunctionModel(reply))
    decision = ask(model, ASKED)
    assert "have to add" not in str(decision.text)
    assert loads(dumps(decision.kept), "kept") == decision.kept
    answered = Message(role=Role.TOOL, call_id="c1", tool="add", text="2")
    turn = Message(role=Role.ASSISTANT, text=decision.text, calls=decision.calls, kept=decision.kept)
    ask(model, attrs.evolve(ASKED, messages=[*ASKED.messages, turn, answered]))

    assert seen[1][1].parts == [THOUGHT, replace(SAID, provider_name="google"), SIGNED]


@each_way
def test_a_part_that_the_package_does_not_know_any_more_is_left_out(ask: Ask) -> None:
    seen: list[Any] = []

    def reply(messages: Any, info: AgentInfo) -> ModelResponse:
        seen.append(list(messages))
        return REPLY

    kept = {"by": "pydantic-ai", "parts": [{"opaque": {"part_kind": "dream"}}, {"text": 2}]}
    turn = Message(role=Role.ASSISTANT, text="So", kept=kept)
    ask(PydanticAIModel(FunctionModel(reply)), attrs.evolve(ASKED, messages=[*ASKED.messages, turn, *ASKED.messages]))
    assert [part.content for part in seen[0][1].parts] == ["So"]


HISTORY = [
    Message(role=Role.SYSTEM, text="Know this."),
    Message(role=Role.USER, text="one \ud835"),
    Message(role=Role.ASSISTANT, text="Let me see. ", calls=(ToolCall("add", "{oops", id="c1"), ToolCall("add", id="c2"))),
    Message(role=Role.TOOL, call_id="c2", text="no", error="denied"),
    Message(role=Role.ASSISTANT),
    Message(role=Role.SYSTEM, text="1 left"),
    Message(role=Role.ASSISTANT, text="So 2."),
]


def test_a_request_is_in_its_own_form() -> None:
    seen: list[tuple[Any, AgentInfo]] = []

    def reply(messages: Any, info: AgentInfo) -> ModelResponse:
        seen.append((list(messages), info))
        return REPLY

    model = PydanticAIModel(FunctionModel(reply), temperature=0.5)
    asked = attrs.evolve(ASKED, messages=HISTORY, summary="go", schema={"type": "integer"}, seconds_left=9.0)
    now(model, asked)
    ((first, response, results, said, last), info) = seen[0]

    assert [part.content for part in first.parts] == ["one \ufffd"]
    assert [part.part_kind for part in response.parts] == ["text", "tool-call", "tool-call"]
    assert [part.args for part in response.parts[1:]] == [{"_raw": "{oops"}, {}]
    kinds = [(part.part_kind, part.content) for part in results.parts]
    assert kinds == [
        ("tool-return", "no result of this call is known"), ("tool-return", "denied: no"), ("system-prompt", "1 left"),
    ]
    assert [part.content for part in said.parts] == ["So 2."]
    assert [part.content for part in last.parts] == ["go"]
    assert info.instructions == last.instructions
    assert last.instructions.startswith("Be brief.\n\nKnow this.\n\nAnswer with one JSON value")
    assert [tool.name for tool in info.function_tools] == ["add", wire_name("web.search")]
    assert info.function_tools[0].parameters_json_schema == dict(ADD.schema)
    assert (info.model_settings or {})["temperature"] == 0.5
    assert (info.model_settings or {})["timeout"] == 9.0

    now(model, ModelRequest())
    ((only,), info) = seen[1]
    assert ([part.content for part in only.parts], only.instructions, info.function_tools) == (["Go on."], None, [])


@each_way
@pytest.mark.parametrize("streamed", [False, True])
def test_a_failure_says_its_kind_and_when_to_ask_again(ask: Ask, streamed: bool) -> None:
    error = ModelHTTPError(429, "m", {"error": {"message": "slow"}}, headers={"Retry-After": "7"})

    def reply(messages: Any, info: AgentInfo) -> ModelResponse:
        raise error

    async def stream(messages: Any, info: AgentInfo) -> AsyncIterator[str]:
        raise error
        yield ""

    model = PydanticAIModel(FunctionModel(reply, stream_function=stream))
    with pytest.raises(ModelFailed) as failed:
        ask(model, attrs.evolve(ASKED, on_delta=print if streamed else None))

    assert (failed.value.kind, failed.value.retry_after_s) == (FailureKind.RATE_LIMITED, 7.0)


@each_way
def test_a_stream_that_breaks_off_is_a_connection_failure(ask: Ask) -> None:
    async def stream(messages: Any, info: AgentInfo) -> AsyncIterator[str]:
        yield "Let me"
        raise ValueError("broken")

    with pytest.raises(ModelFailed) as failed:
        ask(PydanticAIModel(FunctionModel(stream_function=stream)), attrs.evolve(ASKED, on_delta=print))

    assert failed.value.kind is FailureKind.CONNECTION


@each_way
def test_what_a_listener_raises_is_its_own(ask: Ask) -> None:
    async def stream(messages: Any, info: AgentInfo) -> AsyncIterator[str]:
        yield "Let me"
        yield "see"

    def listener(text: str) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ask(PydanticAIModel(FunctionModel(stream_function=stream)), attrs.evolve(ASKED, on_delta=listener))


@each_way
@pytest.mark.parametrize("seconds", [0.0, 0.02])
def test_time_that_is_over_is_a_timeout(ask: Ask, seconds: float) -> None:
    async def reply(messages: Any, info: AgentInfo) -> ModelResponse:
        await asyncio.sleep(20)
        return REPLY

    with pytest.raises(ModelFailed) as failed:
        ask(PydanticAIModel(FunctionModel(reply)), attrs.evolve(ASKED, seconds_left=seconds))

    assert failed.value.kind is FailureKind.TIMEOUT


@each_way
def test_its_own_test_model_calls_each_tool_and_answers(ask: Ask) -> None:
    model = PydanticAIModel(TestModel())
    decision = ask(model, ASKED)
    assert [call.tool for call in decision.calls] == ["add", "web.search"]

    asking = Message(role=Role.ASSISTANT, calls=decision.calls)
    results = [Message(role=Role.TOOL, call_id=call.id, text="2") for call in decision.calls]
    answer = ask(model, attrs.evolve(ASKED, messages=[*ASKED.messages, asking, *results]))
    assert (answer.calls, bool(answer.text)) == ((), True)


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pydantic_ai_model, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"fsm-agent\[pydantic-ai\]"):
        PydanticAIModel("test")
