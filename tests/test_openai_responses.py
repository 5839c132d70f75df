"""OpenAI's Responses: what goes out is what the API takes, what comes back is one decision, streamed or not."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import attrs
import openai
import pytest
from model_server import Breaks, Drips, Fails, Hangs, ModelServer
from model_server import server as server
from model_speech import Said
from model_ways import ADD, ASKED, ways

from fsm_agent.core.errors import BuildError
from fsm_agent.core.messages import Message, Role
from fsm_agent.core.values import Decision, ToolCall, Usage
from fsm_agent.host.model import FailureKind, ModelFailed, ModelRequest
from fsm_agent.models.openai_responses import OpenAIResponses

USER, ASSISTANT, TOOL, SYSTEM = Role.USER, Role.ASSISTANT, Role.TOOL, Role.SYSTEM
WAYS = ways(openai, "OpenAI", OpenAIResponses, "/v1")
each_way, each_stream, each_whole = WAYS
sync_reply = WAYS.sync
CALL = ToolCall("add", '{"a": 1}', id="c1")


@each_way
@pytest.mark.parametrize(
    ("said", "decision"),
    [
        (Said(text="It is 4."), Decision(text="It is 4.", finish="stop")),
        (Said(calls=(("c1", "add", '{"a": 1}'),)), Decision(calls=(CALL,), finish="tool_calls")),
        (
            Said(text="Let me see.", calls=(("c1", "add", '{"a": 1}'), ("c2", "add", '{"a":2}'))),
            Decision(calls=(CALL, ToolCall("add", '{"a":2}', id="c2")), text="Let me see.", finish="tool_calls"),
        ),
        (
            Said(calls=(("c1", "add", '{"a": '),), finish="max_output_tokens"),
            Decision(calls=(ToolCall("add", '{"a": ', id="c1"),), finish="length"),
        ),
        (Said(refusal="I will not."), Decision(text="I will not.", finish="refusal")),
        (Said(text="It", refusal="I will not."), Decision(text="It", finish="refusal")),
        (Said(text="It is", finish="content_filter"), Decision(text="It is", finish="content_filter")),
        (Said(), Decision(finish="stop")),
        (Said(text="日本 😀"), Decision(text="日本 😀", finish="stop")),
    ],
    ids=lambda value: value.finish if isinstance(value, Decision) else "",
)
def test_a_reply_is_one_decision(server: ModelServer, ask: Any, said: Said, decision: Decision) -> None:
    server.say(said)

    assert ask(server) == attrs.evolve(decision, usage=Usage(input_tokens=11, output_tokens=7))


@each_way
def test_a_tools_name_goes_out_as_the_api_takes_it_and_comes_back_as_it_is(server: ModelServer, ask: Any) -> None:
    server.say(Said(text="x"))
    ask(server)
    server.say(Said(calls=(("c1", server.body["tools"][1]["name"], "{}"),)))

    assert ask(server).calls[0].tool == "web.search"


@each_way
def test_usage_costs_what_its_price_says(server: ModelServer, ask: Any) -> None:
    server.say(Said(text="x", tokens=(1_000_000, 500_000)))

    assert ask(server, price=(2.0, 10.0)).usage == Usage(input_tokens=1_000_000, output_tokens=500_000, cost=7.0)


def test_the_request_is_in_the_apis_own_form(server: ModelServer) -> None:
    server.say(Said(text="x"))
    sync_reply(server, store=False, parallel_tool_calls=False)

    empty = {"type": "object", "properties": {}}
    assert server.body == {
        "model": "m",
        "store": False,
        "parallel_tool_calls": False,
        "instructions": "Be brief.",
        "input": [{"role": "user", "content": "2+2?"}],
        "tools": [
            {"type": "function", "name": "add", "description": "Adds.", "parameters": dict(ADD.schema), "strict": False},
            {"type": "function", "name": server.body["tools"][1]["name"], "parameters": empty, "strict": False},
        ],
    }


def test_without_tools_nothing_is_said_of_tools(server: ModelServer) -> None:
    server.say(Said(text="x"))
    sync_reply(server, attrs.evolve(ASKED, tools=()), tool_choice="auto", parallel_tool_calls=False)

    assert set(server.body) == {"model", "input", "instructions"}


def test_a_typed_answer_is_asked_for_as_a_text_format(server: ModelServer) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    server.say(Said(text="x"))
    sync_reply(server, attrs.evolve(ASKED, schema=schema), text={"verbosity": "low"})

    wanted = {"type": "json_schema", "name": "answer", "schema": schema, "strict": False}
    assert server.body["text"] == {"verbosity": "low", "format": wanted}


HISTORY = [
    Message(role=SYSTEM, text="Know this."),
    Message(role=USER, text="one \ud835"),
    Message(role=ASSISTANT, text="Let me see. ", calls=(CALL, ToolCall("we b", "{oops", id="c|2"), ToolCall("add", [1], id="c3"))),
    Message(role=TOOL, call_id="c|2", text="denied: no", error="denied"),
    Message(role=TOOL, call_id="c1", text=""),
    Message(role=TOOL, call_id="lost", text="found"),
    Message(role=SYSTEM, text="Calls left: 1"),
    Message(role=ASSISTANT, text="So it is 2.\n"),
]


def test_an_odd_history_goes_out_as_one_that_the_api_takes(server: ModelServer) -> None:
    server.say(Said(text="x"))
    sync_reply(server, attrs.evolve(ASKED, messages=HISTORY))

    sent = server.body["input"]
    assert server.body["instructions"] == "Be brief.\n\nKnow this."
    assert sent[:2] == [{"role": "user", "content": "one \ufffd"}, {"role": "assistant", "content": "Let me see."}]
    assert sent[2] == {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'}
    assert [one["arguments"] for one in sent[3:5]] == ['{"_raw": "{oops"}', '{"_raw": "[1]"}']
    assert [one["output"] for one in sent[5:8]] == ["(empty)", "denied: no", "no result of this call is known"]
    assert sent[8:] == [
        {"role": "user", "content": "Result of a tool: found"},
        {"role": "developer", "content": "Calls left: 1"},
        {"role": "assistant", "content": "So it is 2."},
        {"role": "user", "content": "Go on."},
    ]


def test_a_growing_history_goes_out_as_a_whole_one(server: ModelServer) -> None:
    growing: list[Message] = []
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as own:
        model = OpenAIResponses(own, "m")
        for message in HISTORY:
            growing.append(message)
            server.say(Said(text="x"), Said(text="x"))
            model.reply(attrs.evolve(ASKED, messages=growing, summary="1 call left"))
            OpenAIResponses(own, "m").reply(attrs.evolve(ASKED, messages=list(growing), summary="1 call left"))
            assert server.bodies[-1] == server.bodies[-2]
            assert server.body["input"][-1] == {"role": "user", "content": "1 call left"}


def test_an_empty_history_still_asks_something(server: ModelServer) -> None:
    server.say(Said(text="x"))
    sync_reply(server, ModelRequest())

    assert server.body == {"model": "m", "input": [{"role": "user", "content": "Go on."}]}


@each_way
@pytest.mark.parametrize(
    ("reply", "kind", "wait"),
    [
        (Fails(status=429, headers={"Retry-After": "7"}), FailureKind.RATE_LIMITED, 7.0),
        (Fails(status=500, body="broken"), FailureKind.SERVER_ERROR, None),
        (Fails(status=400, body={"error": {"code": "context_length_exceeded"}}), FailureKind.CONTEXT_LENGTH, None),
        (Said(finish="failed"), FailureKind.SERVER_ERROR, None),
    ],
)
def test_a_failure_says_its_kind_and_when_to_ask_again(
    server: ModelServer, ask: Any, reply: Any, kind: FailureKind, wait: float | None
) -> None:
    server.say(reply)
    with pytest.raises(ModelFailed) as failed:
        ask(server)

    assert (failed.value.kind, failed.value.retry_after_s) == (kind, wait)


@each_whole
def test_a_response_that_was_cancelled_is_a_failure(server: ModelServer, ask: Any) -> None:
    server.say(Said(finish="cancelled"))
    with pytest.raises(ModelFailed, match="the response failed: its status is 'cancelled'"):
        ask(server)


@each_way
def test_a_silent_server_is_a_timeout_within_the_time_left(server: ModelServer, ask: Any) -> None:
    server.say(Hangs())
    with pytest.raises(ModelFailed) as failed:
        ask(server, attrs.evolve(ASKED, seconds_left=0.05))

    assert failed.value.kind is FailureKind.TIMEOUT


@each_stream
@pytest.mark.parametrize("events", [0, 1, 3])
@pytest.mark.parametrize("clean", [True, False])
def test_a_stream_that_breaks_off_is_a_connection_failure(server: ModelServer, ask: Any, events: int, clean: bool) -> None:
    server.say(Breaks(said=Said(text="It is 4 and more"), events=events, clean=clean))
    with pytest.raises(ModelFailed) as failed:
        ask(server)

    assert failed.value.kind is FailureKind.CONNECTION
    gc.collect()


@each_stream
@pytest.mark.parametrize(
    ("code", "kind"), [("rate_limit_exceeded", FailureKind.RATE_LIMITED), ("odd", FailureKind.SERVER_ERROR)]
)
def test_an_error_inside_a_stream_says_its_kind(server: ModelServer, ask: Any, code: str, kind: FailureKind) -> None:
    error = {"type": "error", "code": code, "message": "slow", "param": None, "sequence_number": 9}
    server.say(Breaks(said=Said(text="It is 4"), events=2, error=error))
    with pytest.raises(ModelFailed) as failed:
        ask(server)

    assert failed.value.kind is kind


@each_stream
def test_a_stream_that_drips_is_over_with_its_time(server: ModelServer, ask: Any) -> None:
    server.say(Drips(said=Said(text="a long text " * 40), seconds=0.01))
    with pytest.raises(ModelFailed) as failed:
        ask(server, attrs.evolve(ASKED, seconds_left=0.1))

    assert failed.value.kind is FailureKind.TIMEOUT


@each_whole
@pytest.mark.parametrize("body", ["<html>a page</html>", {"object": "response"}])
def test_a_good_status_with_no_reply_is_a_failure(server: ModelServer, ask: Any, body: Any) -> None:
    server.say(Fails(status=200, body=body))
    with pytest.raises(ModelFailed) as failed:
        ask(server)

    assert failed.value.kind is FailureKind.SERVER_ERROR


def test_a_wrong_client_and_an_option_that_is_ours_are_refused_when_it_is_made() -> None:
    with pytest.raises(BuildError, match=r"which has no responses\.create\(\)"):
        OpenAIResponses(None, "m")
    with openai.OpenAI(api_key="x") as own, pytest.raises(BuildError, match="the option 'input' is set by each request"):
        OpenAIResponses(own, "m", input="x")


@pytest.mark.parametrize("reason", [None, "", "new_reason", 5])
def test_a_reply_that_is_not_whole_is_cut_off_for_whatever_reason(reason: Any) -> None:
    text = SimpleNamespace(type="output_text", text="The first ha")
    reply = SimpleNamespace(
        status="incomplete",
        output=[SimpleNamespace(type="message", content=[text])],
        incomplete_details=SimpleNamespace(reason=reason) if reason != "" else None,
    )
    client = SimpleNamespace(responses=SimpleNamespace(create=lambda **body: reply))

    assert OpenAIResponses(client, "m").reply(ModelRequest()) == Decision(text="The first ha", finish="length")
