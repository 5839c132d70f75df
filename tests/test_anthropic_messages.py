"""Anthropic's Messages: what goes out is what the API takes, what comes back is one decision, streamed or not."""

from __future__ import annotations

import gc
from typing import Any

import anthropic
import attrs
import pytest
from model_server import Breaks, Drips, Fails, Hangs, ModelServer
from model_server import server as server
from model_speech import Said
from model_ways import ADD, ASKED, ways

from fsm_agent.core.errors import BuildError
from fsm_agent.core.messages import Message, Role
from fsm_agent.core.values import Decision, ToolCall, Usage
from fsm_agent.host.model import FailureKind, ModelFailed, ModelRequest
from fsm_agent.models.anthropic_messages import AnthropicMessages

USER, ASSISTANT, TOOL, SYSTEM = Role.USER, Role.ASSISTANT, Role.TOOL, Role.SYSTEM
WAYS = ways(anthropic, "Anthropic", AnthropicMessages)
each_way, each_stream, each_whole = WAYS
sync_reply = WAYS.sync


@each_way
@pytest.mark.parametrize(
    ("said", "decision"),
    [
        (Said(text="It is 4."), Decision(text="It is 4.", finish="stop")),
        (Said(text="x", finish="stop_sequence"), Decision(text="x", finish="stop")),
        (Said(calls=(("c1", "add", '{"a": 1}'),)), Decision(calls=(ToolCall("add", {"a": 1}, id="c1"),), finish="tool_calls")),
        (
            Said(text="Let me see.", calls=(("c1", "add", '{"a": 1}'), ("c2", "add", "{}"))),
            Decision(
                calls=(ToolCall("add", {"a": 1}, id="c1"), ToolCall("add", {}, id="c2")), text="Let me see.", finish="tool_calls"
            ),
        ),
        (Said(calls=(("c1", "add", ""),)), Decision(calls=(ToolCall("add", {}, id="c1"),), finish="tool_calls")),
        (Said(text="It i", finish="max_tokens"), Decision(text="It i", finish="length")),
        (Said(text="It i", finish="model_context_window_exceeded"), Decision(text="It i", finish="length")),
        (Said(finish="refusal"), Decision(finish="refusal")),
        (Said(text="x", finish="pause_turn"), Decision(text="x", finish="pause_turn")),
        (Said(), Decision(finish="stop")),
        (Said(text="日本 😀"), Decision(text="日本 😀", finish="stop")),
    ],
    ids=lambda value: value.finish if isinstance(value, Decision) else "",
)
def test_a_reply_is_one_decision(server: ModelServer, ask: Any, said: Said, decision: Decision) -> None:
    server.say(said)

    assert ask(server) == attrs.evolve(decision, usage=Usage(input_tokens=11, output_tokens=7))


@each_stream
def test_arguments_that_are_cut_off_stay_the_text_that_came(server: ModelServer, ask: Any) -> None:
    server.say(Said(calls=(("c1", "add", '{"a": '),), finish="max_tokens"))
    decision = ask(server)

    assert (decision.calls, decision.finish) == ((ToolCall("add", '{"a": ', id="c1"),), "length")


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
    sync_reply(server, stop_sequences=["END"], max_tokens=9)

    assert server.body == {
        "model": "m",
        "max_tokens": 9,
        "stop_sequences": ["END"],
        "system": "Be brief.",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "2+2?"}]}],
        "tools": [
            {"name": "add", "description": "Adds.", "input_schema": dict(ADD.schema)},
            {"name": server.body["tools"][1]["name"], "input_schema": {"type": "object", "properties": {}}},
        ],
    }


def test_without_tools_nothing_is_said_of_tools(server: ModelServer) -> None:
    server.say(Said(text="x"))
    sync_reply(server, attrs.evolve(ASKED, tools=()), tool_choice={"type": "auto"})

    assert set(server.body) == {"model", "max_tokens", "system", "messages"}


USED = [
    Message(role=USER, text="2+2?"),
    Message(role=ASSISTANT, calls=(ToolCall("add", {}, id="c1"), ToolCall("add", {}, id="c2"))),
    Message(role=TOOL, call_id="c1", text="2"),
    Message(role=TOOL, call_id="c2", text="2"),
]


def test_tools_that_were_used_may_be_declared_where_none_are_offered(server: ModelServer) -> None:
    server.say(Said(text="x"), Said(text="x"))
    asked = attrs.evolve(ASKED, tools=(), messages=USED)
    sync_reply(server, asked)
    assert "tools" not in server.body
    sync_reply(server, asked, declare_used_tools=True)

    assert [tool["name"] for tool in server.body["tools"]] == ["add"]
    assert server.body["tool_choice"] == {"type": "none"}


def test_a_typed_answer_is_asked_for_in_the_form_that_the_api_has(server: ModelServer) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}
    free = {"type": "object"}
    asked = attrs.evolve(ASKED, schema=schema)
    server.say(*[Said(text="x")] * 3)
    sync_reply(server, asked, output_config={"effort": "low"})

    narrow = {"type": "object", "properties": {"n": {"type": "integer", "description": "minimum: 1"}}}
    sent = {"type": "json_schema", "schema": {**narrow, "required": ["n"], "additionalProperties": False}}
    assert server.body["output_config"] == {"effort": "low", "format": sent}
    for options, wanted in (({"native_schema": False}, schema), ({}, free)):
        sync_reply(server, attrs.evolve(ASKED, schema=wanted), **options)
        assert "output_config" not in server.body
        assert server.body["system"].startswith("Be brief.\n\nAnswer with one JSON value")


HISTORY = [
    Message(role=SYSTEM, text="Know this."),
    Message(role=ASSISTANT, text="Hello."),
    Message(role=USER, text="one"),
    Message(role=USER, text="two \ud835"),
    Message(
        role=ASSISTANT,
        text="Let me see.  ",
        calls=(
            ToolCall("add", '{"a": "\\ud835"}', id="c1"), ToolCall("we b", "{oops", id="c|2"), ToolCall("add", [1], id="x" * 60),
        ),
    ),
    Message(role=TOOL, call_id="x" * 60, text="", error="refused:not_allowed"),
    Message(role=TOOL, call_id="c|2", text="denied: no", error="denied"),
    Message(role=TOOL, call_id="c1", text=" "),
    Message(role=TOOL, call_id="lost", text="found"),
    Message(role=USER, text="now?"),
    Message(role=ASSISTANT, text="\n"),
    Message(role=USER, text=" "),
    Message(role=ASSISTANT, calls=(ToolCall("add", None, id="c1"), ToolCall("add", {"a": float("nan")}))),
    Message(role=SYSTEM, text="Calls left: 1"),
    Message(role=ASSISTANT, text="So it is 2.\n"),
]


def test_an_odd_history_goes_out_as_one_that_the_api_takes(server: ModelServer) -> None:
    server.say(Said(text="x"))
    sync_reply(server, attrs.evolve(ASKED, messages=HISTORY))

    sent = [(one["role"], one["content"]) for one in server.body["messages"]]
    assert server.body["system"] == "Be brief.\n\nKnow this."
    assert sent[0] == ("user", [{"type": "text", "text": "Go on."}])
    assert sent[2] == ("user", [{"type": "text", "text": "one"}, {"type": "text", "text": "two \ufffd"}])
    text, first, second, third = sent[3][1]
    assert text == {"type": "text", "text": "Let me see."}
    assert [first["input"], second["input"], third["input"]] == [{"a": "\ufffd"}, {"_raw": "{oops"}, {"_raw": "[1]"}]
    assert second["name"].startswith("we_b_")
    assert sent[4][1] == [
        {"type": "tool_result", "tool_use_id": "c1", "content": "(empty)"},
        {"type": "tool_result", "tool_use_id": second["id"], "content": "denied: no", "is_error": True},
        {"type": "tool_result", "tool_use_id": third["id"], "content": "refused:not_allowed", "is_error": True},
        {"type": "text", "text": "Result of a tool: found"},
        {"type": "text", "text": "now?"},
    ]
    again, odd = sent[5][1]
    assert (again["id"], again["input"], odd["input"]) == ("c1-2", {}, {"a": {"$float": "nan"}})
    assert [one["type"] for one in sent[6][1]] == ["tool_result", "tool_result", "text"]
    assert sent[7:] == [("assistant", [{"type": "text", "text": "So it is 2."}]), ("user", [{"type": "text", "text": "Go on."}])]


def test_a_growing_history_goes_out_as_a_whole_one(server: ModelServer) -> None:
    growing: list[Message] = []
    with anthropic.Anthropic(base_url=server.url, api_key="x", max_retries=0) as own:
        model = AnthropicMessages(own, "m")
        for message in HISTORY:
            growing.append(message)
            server.say(Said(text="x"), Said(text="x"))
            model.reply(attrs.evolve(ASKED, messages=growing))
            AnthropicMessages(own, "m").reply(attrs.evolve(ASKED, messages=list(growing)))
            assert server.bodies[-1] == server.bodies[-2]


def test_where_a_run_stands_is_said_behind_the_results_and_not_kept(server: ModelServer) -> None:
    server.say(Said(text="x"), Said(text="x"))
    asked = attrs.evolve(ASKED, messages=USED, summary="2 calls left")
    sync_reply(server, asked)
    blocks = server.body["messages"][-1]["content"]
    sync_reply(server, attrs.evolve(asked, summary=""))

    assert [one["type"] for one in blocks] == ["tool_result", "tool_result", "text"]
    assert server.body["messages"][-1]["content"] == blocks[:2]


def test_an_empty_history_still_asks_something(server: ModelServer) -> None:
    server.say(Said(text="x"))
    sync_reply(server, ModelRequest())

    assert server.body["messages"] == [{"role": "user", "content": [{"type": "text", "text": "Go on."}]}]
    assert "system" not in server.body


# ---- failures


def failed(kind: str, message: str = "no") -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


@each_way
@pytest.mark.parametrize(
    ("reply", "kind", "wait"),
    [
        (Fails(status=429, body=failed("rate_limit_error"), headers={"retry-after": "7"}), FailureKind.RATE_LIMITED, 7.0),
        (Fails(status=529, body=failed("overloaded_error")), FailureKind.SERVER_ERROR, None),
        (Fails(status=500, body="broken"), FailureKind.SERVER_ERROR, None),
        (Fails(status=504, body=failed("timeout_error")), FailureKind.TIMEOUT, None),
        (Fails(status=401, body=failed("authentication_error")), FailureKind.AUTHENTICATION, None),
        (Fails(status=403, body=failed("permission_error")), FailureKind.AUTHENTICATION, None),
        (Fails(status=413, body=failed("request_too_large")), FailureKind.CONTEXT_LENGTH, None),
        (
            Fails(status=400, body=failed("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum")),
            FailureKind.CONTEXT_LENGTH,
            None,
        ),
        (
            Fails(
                status=400,
                body=failed("invalid_request_error", "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"),
            ),
            FailureKind.CONTEXT_LENGTH,
            None,
        ),
        (Fails(status=400, body=failed("invalid_request_error", "bad")), FailureKind.INVALID_REQUEST, None),
        (Fails(status=400, body=failed("billing_error", "your credit is too low")), FailureKind.AUTHENTICATION, None),
    ],
)
def test_a_failure_says_its_kind_and_when_to_ask_again(
    server: ModelServer, ask: Any, reply: Fails, kind: FailureKind, wait: float | None
) -> None:
    server.say(reply)
    with pytest.raises(ModelFailed) as told:
        ask(server)

    assert (told.value.kind, told.value.retry_after_s) == (kind, wait)


@each_whole
@pytest.mark.parametrize("body", ["<html>a page</html>", {"type": "message"}, {"content": None}])
def test_a_good_status_with_no_reply_is_a_failure(server: ModelServer, ask: Any, body: Any) -> None:
    server.say(Fails(status=200, body=body))
    with pytest.raises(ModelFailed) as told:
        ask(server)

    assert told.value.kind is FailureKind.SERVER_ERROR


@each_way
def test_a_silent_server_is_a_timeout_within_the_time_left(server: ModelServer, ask: Any) -> None:
    server.say(Hangs())
    with pytest.raises(ModelFailed) as told:
        ask(server, attrs.evolve(ASKED, seconds_left=0.05))

    assert told.value.kind is FailureKind.TIMEOUT


@each_stream
@pytest.mark.parametrize("events", [0, 1, 4, 8])
@pytest.mark.parametrize("clean", [True, False])
def test_a_stream_that_breaks_off_is_a_connection_failure(server: ModelServer, ask: Any, events: int, clean: bool) -> None:
    server.say(Breaks(said=Said(text="It is 4 and so on."), events=events, clean=clean))
    with pytest.raises(ModelFailed) as told:
        ask(server)

    assert told.value.kind is FailureKind.CONNECTION
    gc.collect()


@each_stream
@pytest.mark.parametrize(
    ("word", "kind"), [("overloaded_error", FailureKind.SERVER_ERROR), ("rate_limit_error", FailureKind.RATE_LIMITED)]
)
def test_an_error_inside_a_stream_says_its_kind(server: ModelServer, ask: Any, word: str, kind: FailureKind) -> None:
    server.say(Breaks(said=Said(text="It is 4"), events=4, error=failed(word)))
    with pytest.raises(ModelFailed) as told:
        ask(server)

    assert told.value.kind is kind


@each_stream
def test_a_stream_that_drips_is_over_with_its_time(server: ModelServer, ask: Any) -> None:
    server.say(Drips(said=Said(text="a long text " * 40), seconds=0.01))
    with pytest.raises(ModelFailed) as told:
        ask(server, attrs.evolve(ASKED, seconds_left=0.1))

    assert told.value.kind is FailureKind.TIMEOUT


def test_a_client_without_output_config_is_told_the_schema_in_words() -> None:
    class Old:
        def __init__(self) -> None:
            self.messages = self

        def create(self, *, model: str, max_tokens: int, messages: Any, tools: Any, system: str) -> Any:
            usage = attrs.make_class("U", ["input_tokens"])(1)
            return attrs.make_class("R", ["content", "stop_reason", "usage"])([], system[-2:], usage)

    decision: Any = AnthropicMessages(Old(), "m").reply(attrs.evolve(ASKED, schema={"type": "integer"}))
    assert decision == Decision(finish='"}', usage=Usage(input_tokens=1))


def test_a_wrong_client_and_an_option_that_is_ours_are_refused_when_it_is_made() -> None:
    with pytest.raises(BuildError, match=r"which has no messages\.create\(\)"):
        AnthropicMessages(anthropic, "m")
    with anthropic.Anthropic(api_key="x") as own, pytest.raises(BuildError, match="the option 'system' is set by each request"):
        AnthropicMessages(own, "m", system="x")
    with anthropic.Anthropic(api_key="x") as own, pytest.raises(BuildError, match=r"takes no 'top_q'.*extra_body=\{'top_q'"):
        AnthropicMessages(own, "m", top_q=1)
