"""A model made to write JSON decisions: what it is told, what is read, and what is fed back."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import attrs
import openai
import pytest
from model_server import ModelServer
from model_server import server as server
from model_speech import Said
from model_ways import ASKED

from fsm_agent.agent import Agent
from fsm_agent.core.errors import BuildError
from fsm_agent.core.json_decisions import decision_of_json
from fsm_agent.core.messages import Message, Purpose, Role
from fsm_agent.core.values import Decision, ToolCall, Usage
from fsm_agent.host.model import FailureKind, MalformedDecision, Model, ModelFailed, ModelRequest
from fsm_agent.models.json_model import CONTRACT, JsonDecisions
from fsm_agent.models.openai_chat import OpenAIChat

TOOL = '{"type": "tool", "toolName": "add", "args": {"a": 1}, "reason": "why"}'
USAGE = Usage(input_tokens=1, output_tokens=2)


class Says:
    """A model that says what it is told to, and keeps what it was asked."""

    def __init__(self, reply: Decision | Exception, later: bool = False) -> None:
        self.answer, self.later = reply, later
        self.asked: list[ModelRequest] = []

    def reply(self, request: ModelRequest) -> Any:
        self.asked.append(request)
        return self._later() if self.later else self._now()

    def _now(self) -> Decision:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def _later(self) -> Decision:
        return self._now()


def read(reply: Decision | Exception, request: ModelRequest = ASKED, later: bool = False) -> Any:
    answer: Any = JsonDecisions(Says(reply, later)).reply(request)
    if not later:
        return answer

    async def ask() -> Any:
        return await answer

    return asyncio.run(ask())


each_way = pytest.mark.parametrize("later", [False, True], ids=["sync", "async"])


@each_way
@pytest.mark.parametrize(
    ("reply", "decision"),
    [
        (Decision(text=TOOL, finish="stop"), Decision(calls=(ToolCall("add", {"a": 1}, reason="why"),), finish="stop")),
        (
            Decision(text='{"type": "final", "finalAnswer": "4", "citations": ["c1"]}', finish="stop"),
            Decision(text="4", citations=("c1",), finish="stop"),
        ),
        (Decision(text=" ", finish="stop"), Decision(text=" ", finish="stop")),
        (Decision(finish="content_filter"), Decision(finish="content_filter")),
        (Decision(calls=(ToolCall("add"),), text="x"), Decision(calls=(ToolCall("add"),), text="x")),
        (Decision(text='{"type": "to', finish="length"), Decision(finish="length")),
        (Decision(text=TOOL, finish="length"), Decision(calls=(ToolCall("add", {"a": 1}, reason="why"),), finish="length")),
        (Decision(text="I will not.", finish="refusal"), Decision(text="I will not.", finish="refusal")),
    ],
)
def test_a_reply_is_the_decision_that_its_text_holds(later: bool, reply: Decision, decision: Decision) -> None:
    assert read(attrs.evolve(reply, usage=USAGE), later=later) == attrs.evolve(decision, usage=USAGE)


@each_way
def test_a_text_that_is_no_decision_is_malformed_with_its_reason(later: bool) -> None:
    with pytest.raises(MalformedDecision, match='the decision has the type \'call\'; its type is "tool" or "final"'):
        read(Decision(text='{"type": "call"}'), later=later)


@each_way
def test_a_failure_of_the_model_passes_through(later: bool) -> None:
    with pytest.raises(ModelFailed):
        read(ModelFailed(FailureKind.TIMEOUT), later=later)


def asked(request: ModelRequest) -> ModelRequest:
    model = Says(Decision(text=TOOL))
    assert isinstance(model, Model)
    JsonDecisions(model).reply(request)
    return model.asked[0]


def test_the_model_is_told_the_contract_and_the_tools_in_words_alone() -> None:
    told = asked(attrs.evolve(ASKED, schema={"type": "integer"}, on_delta=print, summary="1 left", seconds_left=3.0))

    assert told.instructions.startswith(f"Be brief.\n\n{CONTRACT}\n\nTools that may be called now")
    assert '- add: Adds.; args: {"type": "object"' in told.instructions
    assert "- web.search: no description; args: {}" in told.instructions
    assert told.instructions.endswith('this JSON Schema: {"type": "integer"}')
    assert (told.tools, told.schema, told.on_delta) == ((), None, None)
    assert (told.summary, told.seconds_left) == ("1 left", 3.0)


def test_without_tools_the_model_is_told_to_answer() -> None:
    assert asked(attrs.evolve(ASKED, tools=())).instructions.endswith("No tool may be called now; decide for a final answer.")


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("purpose", [Purpose.CLOSE, Purpose.SYNTHESIZE, Purpose.VERIFY])
def test_texts_and_verdicts_are_asked_for_and_taken_as_they_are(purpose: Purpose, later: bool) -> None:
    request = attrs.evolve(ASKED, purpose=purpose, schema={}, on_delta=print)
    told = asked(request)

    assert (told.instructions, told.schema, told.on_delta) == (request.instructions, {}, print)
    assert read(Decision(text="plain"), request, later) == Decision(text="plain")


HISTORY = [
    Message(role=Role.USER, text="2+2?"),
    Message(
        role=Role.ASSISTANT,
        text="Let me see.",
        calls=(ToolCall("add", '{"a": 1}', id="c1", reason="why"), ToolCall("add", id="c2")),
    ),
    Message(role=Role.TOOL, call_id="c1", text="4"),
    Message(role=Role.TOOL, call_id="c2", text="no", error="refused:duplicate"),
    Message(role=Role.ASSISTANT),
    Message(role=Role.USER, text="now?"),
]


def test_calls_and_results_of_the_history_go_out_as_text() -> None:
    sent = [(one.role, one.text) for one in asked(attrs.evolve(ASKED, messages=HISTORY)).messages]

    assert sent[1][1].splitlines() == [
        "Let me see.",
        json.dumps({"type": "tool", "toolName": "add", "args": {"a": 1}, "reason": "why"}),
        json.dumps({"type": "tool", "toolName": "add", "args": {}}),
    ]
    assert sent[2] == (Role.USER, "Result of add: 4\nError of add: refused:duplicate: no")
    assert [role for role, _ in sent] == [Role.USER, Role.ASSISTANT, Role.USER, Role.USER]


def test_a_provider_takes_it_all(server: ModelServer) -> None:
    growing: list[Message] = []
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as own:
        model = JsonDecisions(OpenAIChat(own, "m"))
        for message in HISTORY:
            growing.append(message)
            server.say(Said(text=TOOL))
            decision: Any = model.reply(attrs.evolve(ASKED, messages=growing))
            assert decision.calls == (ToolCall("add", {"a": 1}, reason="why"),)
            assert "tools" not in server.body
    roles = [message["role"] for message in server.body["messages"]]
    assert roles == ["system", "user", "assistant", "user"]


FINAL = '{"type": "final", "finalAnswer": "It is 3.", "citations": ["c1"], "question": "Which one?"}'


@each_way
@pytest.mark.parametrize("purpose", [Purpose.CLOSE, Purpose.SYNTHESIZE])
def test_a_decision_in_place_of_a_text_is_read_as_one(purpose: Purpose, later: bool) -> None:
    request = attrs.evolve(ASKED, purpose=purpose)
    said = Decision(text=FINAL, finish="stop", usage=USAGE)

    # What closes a run is a text alone; an answer from evidence may cite it and ask.
    whole = attrs.evolve(decision_of_json(FINAL), finish="stop", usage=USAGE)
    assert read(said, request, later) == (whole if purpose == "synthesize" else attrs.evolve(said, text="It is 3.\nWhich one?"))
    assert read(attrs.evolve(said, text=TOOL), request, later).calls[0].tool == "add"
    for text in ("It is 3.", '{"type": "sum", "value": 3}', "", None):
        assert read(attrs.evolve(said, text=text), request, later).text == text


@pytest.mark.parametrize(("closing", "text"), [(FINAL, "It is 3.\nWhich one?\n\nFound so far:"), (TOOL, "Found so far:")])
def test_a_stopped_run_ends_with_what_a_closing_decision_says(closing: str, text: str) -> None:
    class Loops:
        """Asks for the same call for good, and closes with a decision too."""

        def reply(self, request: ModelRequest) -> Decision:
            return Decision(text=TOOL if request.purpose is Purpose.DECIDE else closing, finish="stop")

    answer = Agent({"add": {"fn": lambda a: a, "args": {"a": {"type": "int"}}}}, JsonDecisions(Loops())).run("x")
    assert (answer.stop_reason, answer.text.startswith(text), "toolName" in answer.text) == ("duplicate_call", True, False)


def test_an_answer_that_was_not_taken_is_shown_as_the_decision_that_it_was() -> None:
    history = [Message(role=Role.USER, text="2+2?"), Message(role=Role.ASSISTANT, text="3"), Message(role=Role.USER, text="No.")]
    sent = asked(attrs.evolve(ASKED, messages=history)).messages
    assert [message.text for message in sent] == ["2+2?", '{"type": "final", "finalAnswer": "3"}', "No."]


def test_a_model_that_has_to_be_asked_in_the_event_loop_is_when_it_is_wrapped() -> None:
    class Inside(Says):
        in_loop = True

        def _later(self) -> Any:
            return asyncio.get_running_loop().create_task(asyncio.sleep(0, self._now()))

    wrapped = JsonDecisions(Inside(Decision(text='{"type": "final", "finalAnswer": "4"}', finish="stop"), later=True))
    assert asyncio.run(Agent([], wrapped).arun("go")).text == "4"


@pytest.mark.parametrize("model", [None, "a model", lambda request: "{}", Says])
def test_what_has_no_reply_is_refused_before_it_is_asked(model: Any) -> None:
    with pytest.raises(BuildError, match=r"JsonDecisions\(model=\) is .*; give a model \(an object with reply\)"):
        JsonDecisions(model)
