"""Chat Completions: what goes out is what the API takes, what comes back is one decision, streamed or not."""

from __future__ import annotations

import gc
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
from fsm_agent.models.openai_chat import OpenAIChat

USER, ASSISTANT, TOOL, SYSTEM = Role.USER, Role.ASSISTANT, Role.TOOL, Role.SYSTEM

WAYS = ways(openai, "OpenAI", OpenAIChat, "/v1")
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
            Said(calls=(("c1", "add", '{"a": '),), finish="length"),
            Decision(calls=(ToolCall("add", '{"a": ', id="c1"),), finish="length"),
        ),
        (Said(calls=(("c1", "add", ""),)), Decision(calls=(ToolCall("add", "", id="c1"),), finish="tool_calls")),
        (Said(calls=(("c1", "nothing", "{}"),)), Decision(calls=(ToolCall("nothing", "{}", id="c1"),), finish="tool_calls")),
        (Said(refusal="I will not."), Decision(text="I will not.", finish="refusal")),
        (Said(text="It is", finish="content_filter"), Decision(text="It is", finish="content_filter")),
        (Said(), Decision(text=None, finish="stop")),
        (Said(text="x", finish="eos"), Decision(text="x", finish="eos")),
        (Said(text="日本 \ud83d\ude00 \ud835"), Decision(text="日本 😀 \ufffd", finish="stop")),
    ],
    ids=lambda value: value.finish if isinstance(value, Decision) else "",
)
def test_a_reply_is_one_decision(server: ModelServer, ask: Any, said: Said, decision: Decision) -> None:
    server.say(attrs.evolve(said, text=said.text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")))

    assert ask(server) == attrs.evolve(decision, usage=Usage(input_tokens=11, output_tokens=7))


@each_way
def test_a_tools_name_goes_out_as_the_api_takes_it_and_comes_back_as_it_is(server: ModelServer, ask: Any) -> None:
    server.say(Said(text="x"))
    ask(server)
    name = server.body["tools"][1]["function"]["name"]
    server.say(Said(calls=(("c1", name, "{}"),)), Said(calls=(("c1", name, "{}"),)))

    assert ask(server).calls[0].tool == "web.search"
    spent = [Message(role=ASSISTANT, calls=(ToolCall("web.search", {}, id="c0"),)), Message(role=TOOL, call_id="c0")]
    assert ask(server, attrs.evolve(ASKED, tools=(ADD,), messages=spent)).calls[0].tool == "web.search"


@each_way
def test_usage_costs_what_its_price_says(server: ModelServer, ask: Any) -> None:
    server.say(Said(text="x", tokens=(1_000_000, 500_000)))

    assert ask(server, price=(2.0, 10.0)).usage == Usage(input_tokens=1_000_000, output_tokens=500_000, cost=7.0)


def test_the_request_is_in_the_apis_own_form(server: ModelServer) -> None:
    server.say(Said(text="x"))
    sync_reply(server, temperature=0, parallel_tool_calls=False)

    assert server.body == {
        "model": "m",
        "temperature": 0,
        "parallel_tool_calls": False,
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}],
        "tools": [
            {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": dict(ADD.schema)}},
            {
                "type": "function",
                "function": {
                    "name": server.body["tools"][1]["function"]["name"],
                    "parameters": {"type": "object", "properties": {}},
                },
            },
        ],
    }


def test_without_tools_nothing_is_said_of_tools(server: ModelServer) -> None:
    server.say(Said(text="x"))
    sync_reply(server, attrs.evolve(ASKED, tools=()), tool_choice="auto", parallel_tool_calls=False)

    assert set(server.body) == {"model", "messages"}


def test_a_typed_answer_is_asked_for_as_a_response_format(server: ModelServer) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    server.say(Said(text="x"), Said(text="x"))
    sync_reply(server, attrs.evolve(ASKED, schema=schema))

    wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": False}}
    assert server.body["response_format"] == wanted
    sync_reply(server, attrs.evolve(ASKED, schema=schema), strict_schema=True)
    assert server.body["response_format"]["json_schema"]["strict"] is True


def call(call_id: str, args: Any = None, tool: str = "add") -> ToolCall:
    return ToolCall(tool, args if args is not None else {"a": 1}, id=call_id)


def result(call_id: str, text: str = "2", error: str = "") -> Message:
    return Message(role=TOOL, call_id=call_id, tool="add", text=text, error=error)


HISTORY = [
    Message(role=SYSTEM, text="Know this."),
    Message(role=USER, text="one"),
    Message(role=USER, text="two \ud835"),
    Message(role=ASSISTANT, text="Let me see.  ", calls=(call("c1"), call("c2", "{oops", "we b"), call("x" * 60, "[1]"))),
    result("x" * 60, error="refused:not_allowed"),
    result("c2", "denied: no", "denied"),
    result("c1"),
    result("lost", "found"),
    Message(role=ASSISTANT),
    Message(role=USER, text=" "),
    Message(role=ASSISTANT, calls=(call("c1", '"{}"'), call("", {"a": float("nan"), "b": {1, 2}}))),
    Message(role=SYSTEM, text="Calls left: 1"),
    Message(role=ASSISTANT, text="So it is 2.\n"),
]


def test_an_odd_history_goes_out_as_one_that_the_api_takes(server: ModelServer) -> None:
    server.say(Said(text="x"))
    sync_reply(server, attrs.evolve(ASKED, messages=HISTORY))

    sent = server.body["messages"]
    odd = sent[2]["tool_calls"][1]["function"]
    assert odd["name"].startswith("we_b_")
    assert odd["arguments"] == '{"_raw": "{oops"}'
    assert sent[0] == {"role": "system", "content": "Be brief.\n\nKnow this."}
    assert sent[1] == {"role": "user", "content": "one\n\ntwo \ufffd"}
    assert sent[2]["content"] == "Let me see."
    assert sent[2]["tool_calls"][0] == {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    assert [one["content"] for one in sent[3:6]] == ["2", "denied: no", "refused:not_allowed: 2"]
    assert sent[6] == {"role": "user", "content": "Result of add: found"}
    again = sent[7]["tool_calls"]
    assert (again[0]["id"], again[0]["function"]["arguments"]) == ("c1-2", "{}")
    assert again[1]["function"]["arguments"] == '{"a": {"$float": "nan"}, "b": {"$set": [1, 2]}}'
    assert [one["content"] for one in sent[8:10]] == ["no result of this call is known"] * 2
    assert [one["role"] for one in sent[10:]] == ["system", "assistant", "user"]
    assert sent[11]["content"] == "So it is 2."


def test_a_growing_history_goes_out_as_a_whole_one(server: ModelServer) -> None:
    growing: list[Message] = []
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as own:
        model = OpenAIChat(own, "m", later_system="user")
        for message in HISTORY:
            growing.append(message)
            server.say(Said(text="x"), Said(text="x"))
            model.reply(attrs.evolve(ASKED, messages=growing))
            OpenAIChat(own, "m", later_system="user").reply(attrs.evolve(ASKED, messages=list(growing)))
            assert server.bodies[-1] == server.bodies[-2]


def test_where_a_run_stands_is_said_behind_the_history_and_not_kept(server: ModelServer) -> None:
    server.say(*[Said(text="x")] * 3)
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as own:
        model = OpenAIChat(own, "m")
        for summary in ("2 calls left", "1 call left", ""):
            model.reply(attrs.evolve(ASKED, summary=summary))
            assert server.body["messages"][1:] == [{"role": "user", "content": f"2+2?\n\n{summary}".strip()}]


def test_an_empty_history_still_asks_something(server: ModelServer) -> None:
    server.say(Said(text="x"))
    sync_reply(server, ModelRequest())

    assert server.body == {"model": "m", "messages": [{"role": "user", "content": "Go on."}]}


# ---- failures

FAILURES: list[tuple[Any, FailureKind, float | None]] = [
    (Fails(status=429, headers={"Retry-After": "7"}), FailureKind.RATE_LIMITED, 7.0),
    (Fails(status=429, headers={"Retry-After": "Wed, 21 Oct 2015 07:28:30 GMT"}), FailureKind.RATE_LIMITED, 30.0),
    (Fails(status=429, body={"error": {"code": "insufficient_quota", "message": "pay"}}), FailureKind.AUTHENTICATION, None),
    (Fails(status=500, body="<html>broken</html>"), FailureKind.SERVER_ERROR, None),
    (Fails(status=503, headers={"Retry-After": "1.5"}), FailureKind.SERVER_ERROR, 1.5),
    (Fails(status=401, body={"error": {"message": "who"}}), FailureKind.AUTHENTICATION, None),
    (Fails(status=404, body={"error": {"message": "no such model"}}), FailureKind.INVALID_REQUEST, None),
    (Fails(status=400, body={"error": {"code": "context_length_exceeded", "message": "long"}}), FailureKind.CONTEXT_LENGTH, None),
    (
        Fails(status=400, body={"error": {"message": "This model's maximum context length is 8192 tokens."}}),
        FailureKind.CONTEXT_LENGTH,
        None,
    ),
    (Fails(status=400, body={"error": {"message": "bad"}}), FailureKind.INVALID_REQUEST, None),
]


@each_way
@pytest.mark.parametrize(("reply", "kind", "wait"), FAILURES)
def test_a_failure_says_its_kind_and_when_to_ask_again(
    server: ModelServer, ask: Any, reply: Fails, kind: FailureKind, wait: float | None
) -> None:
    server.say(reply)
    with pytest.raises(ModelFailed) as failed:
        ask(server)

    assert (failed.value.kind, failed.value.retry_after_s) == (kind, wait)
    assert isinstance(failed.value.__cause__, openai.APIStatusError)


@each_whole
@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"error": {"code": 429, "type": "rate_limit_exceeded"}}, FailureKind.RATE_LIMITED),
        ({"id": "x", "choices": []}, FailureKind.SERVER_ERROR),
        ({"choices": [{"index": 0}]}, FailureKind.SERVER_ERROR),
        ("<html>a page</html>", FailureKind.SERVER_ERROR),
    ],
)
def test_a_good_status_with_no_reply_is_a_failure(server: ModelServer, ask: Any, body: Any, kind: FailureKind) -> None:
    server.say(Fails(status=200, body=body))
    with pytest.raises(ModelFailed) as failed:
        ask(server)

    assert failed.value.kind is kind


@each_way
def test_a_silent_server_is_a_timeout_within_the_time_left(server: ModelServer, ask: Any) -> None:
    server.say(Hangs())
    with pytest.raises(ModelFailed) as failed:
        ask(server, attrs.evolve(ASKED, seconds_left=0.05), timeout=30)

    assert failed.value.kind is FailureKind.TIMEOUT


@each_way
def test_no_time_left_asks_nobody(server: ModelServer, ask: Any) -> None:
    with pytest.raises(ModelFailed) as failed:
        ask(server, attrs.evolve(ASKED, seconds_left=0.0))

    assert (failed.value.kind, server.bodies) == (FailureKind.TIMEOUT, [])


@each_way
def test_nobody_there_is_a_connection_failure(server: ModelServer, ask: Any) -> None:
    gone = ModelServer()
    gone.close()
    with pytest.raises(ModelFailed) as failed:
        ask(gone)

    assert failed.value.kind is FailureKind.CONNECTION


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
def test_an_error_inside_a_stream_says_its_kind(server: ModelServer, ask: Any) -> None:
    error = {"error": {"code": "rate_limit_exceeded", "message": "slow"}}
    server.say(Breaks(said=Said(text="It is 4"), events=2, error=error))
    with pytest.raises(ModelFailed) as failed:
        ask(server)

    assert failed.value.kind is FailureKind.RATE_LIMITED


@each_stream
def test_a_stream_that_drips_is_over_with_its_time(server: ModelServer, ask: Any) -> None:
    server.say(Drips(said=Said(text="a long text " * 40), seconds=0.01))
    with pytest.raises(ModelFailed) as failed:
        ask(server, attrs.evolve(ASKED, seconds_left=0.1))

    assert failed.value.kind is FailureKind.TIMEOUT


@each_stream
def test_what_a_listener_raises_is_its_own(server: ModelServer, ask: Any) -> None:
    def listener(text: str) -> None:
        raise ZeroDivisionError(text)

    server.say(Said(text="It is 4."))
    with pytest.raises(ZeroDivisionError):
        ask(server, attrs.evolve(ASKED, on_delta=listener))
    gc.collect()


# ---- odd servers


class Chunk:
    """A chunk as some servers write it."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


def scripted(*deltas: dict[str, Any], finish: str = "tool_calls") -> Any:
    """A client whose streams are these deltas."""

    def chunk(delta: dict[str, Any], end: str | None) -> Chunk:
        empty = {"index": None, "id": None}
        calls = [Chunk(**{**empty, **one, "function": Chunk(**one["function"])}) for one in delta.get("calls", ())]
        inner = Chunk(content=delta.get("content"), tool_calls=calls)
        return Chunk(choices=[Chunk(delta=inner, finish_reason=end)])

    def create(**body: Any) -> Any:
        return iter([*(chunk(delta, None) for delta in deltas), Chunk(choices=None), chunk({}, finish)])

    return Chunk(chat=Chunk(completions=Chunk(create=create)))


def test_calls_that_share_an_index_are_told_apart_by_their_ids() -> None:
    own = scripted(
        {"calls": [{"index": 0, "id": "a", "function": {"name": "add", "arguments": "{}"}}]},
        {"calls": [{"index": 0, "id": "b", "function": {"name": "add", "arguments": '{"a"'}}]},
        {"calls": [{"index": 0, "id": "b", "function": {"name": "add", "arguments": ":1}"}}]},
    )
    decision: Any = OpenAIChat(own, "m").reply(attrs.evolve(ASKED, on_delta=print))

    assert decision.calls == (ToolCall("add", "{}", id="a"), ToolCall("add", '{"a":1}', id="b"))
    assert decision.usage is None


def test_a_second_choice_and_a_chunk_without_a_delta_say_nothing() -> None:
    said = Chunk(content="It is", tool_calls=None)
    chunks = [
        Chunk(choices=[Chunk(index=0, delta=None, finish_reason=None)]),
        Chunk(choices=[Chunk(index=0, delta=said, finish_reason=None), Chunk(index=1, delta=said, finish_reason="length")]),
        Chunk(choices=[Chunk(index=0, delta=None, finish_reason="stop")]),
    ]
    own = Chunk(chat=Chunk(completions=Chunk(create=lambda **body: iter(chunks))))

    assert OpenAIChat(own, "m").reply(attrs.evolve(ASKED, on_delta=print)) == Decision(text="It is", finish="stop")


def test_arguments_that_are_an_object_already_and_text_in_parts_are_taken() -> None:
    function = Chunk(name="add", arguments={"a": 1})
    message = Chunk(content=[{"type": "text", "text": "It "}, Chunk(text="is")], tool_calls=[Chunk(id=None, function=function)])
    reply = Chunk(choices=[Chunk(message=message, finish_reason=None)])
    own = Chunk(chat=Chunk(completions=Chunk(create=lambda **body: reply)))

    decision = OpenAIChat(own, "m").reply(ASKED)
    assert decision == Decision(calls=(ToolCall("add", {"a": 1}),), text="It is")


def test_a_wrong_client_and_an_option_that_is_ours_are_refused_when_it_is_made() -> None:
    with pytest.raises(BuildError, match=r"the client is 'gpt', which has no chat\.completions\.create\(\)"):
        OpenAIChat("gpt", "m")
    with pytest.raises(BuildError, match="the option 'stream' is set by each request"):
        OpenAIChat(scripted(), "m", stream=True)
