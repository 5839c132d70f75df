"""What a provider wants back with a turn: it goes back in its place, verbatim, to that provider alone, also out of a saved run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from anthropic.types import Container
from model_server import Breaks, ModelServer
from model_server import server as server
from model_speech import Said

from fsm_agent import Agent, Limits, Tool
from fsm_agent.core.contracts import TableArguments
from fsm_agent.core.messages import Message, Role
from fsm_agent.core.saving import save
from fsm_agent.core.values import ToolCall
from fsm_agent.host.model import ModelFailed, ModelRequest
from fsm_agent.models.anthropic_messages import AnthropicMessages
from fsm_agent.models.json_model import JsonDecisions
from fsm_agent.models.kept import Kind, Part, api_form, grown, kept_of, placed, text_of
from fsm_agent.models.openai_chat import OpenAIChat
from fsm_agent.models.openai_responses import OpenAIResponses
from fsm_agent.models.wire_history import Answered, Group

THOUGHT = {"type": "thinking", "thinking": "I have to add, and then add again.", "signature": "c2lnbmVk"}
HIDDEN = {"type": "redacted_thinking", "data": "ZW5jcnlwdGVk"}
ITEM = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Adds."}], "encrypted_content": "gAAAA1"}
OTHER = {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "gAAAA2"}
DETAIL = {"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "I have to add.", "signature": "sig"},
                                {"type": "reasoning.encrypted", "index": 1, "data": "abcd"}]}  # fmt: skip
SIGNED = {"extra_content": {"google": {"thought_signature": "Zm9v"}}}
CALLS = (("c1", "add", '{"a": 1, "b": 2}'), ("c2", "add", '{"a": 3, "b": 4}'))


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@pytest.fixture
def clients() -> Iterator[list[Any]]:
    """The sync clients that a test makes, closed at its end."""
    made: list[Any] = []
    yield made
    for client in made:
        client.close()


def client_of(kind: Any, server: ModelServer, *, later: bool = False) -> Any:
    sdk = anthropic if kind is AnthropicMessages else openai
    client = getattr(sdk, ("Async" if later else "") + ("Anthropic" if sdk is anthropic else "OpenAI"))
    return client(base_url=server.url if sdk is anthropic else f"{server.url}/v1", api_key="x", max_retries=0)


def agent(kind: Any, client: Any, **options: Any) -> Agent:
    args = TableArguments({"a": {"type": "int"}, "b": {"type": "int"}})
    return Agent([Tool(name="add", fn=add, args=args, approval=True)], kind(client, "m", **options))


def paused(one: Agent, *, streamed: bool = False) -> Any:
    """A run that was driven to the approval of its calls."""
    run = one.start("1+2 and 3+4?")
    if streamed:
        list(one.stream(run))
    else:
        one.drive(run)
    return run


def approved(one: Agent, run: Any, saved: bool) -> Any:
    """The run with its calls let run, perhaps as another process has it."""
    if saved:
        run = one.load(json.dumps(json.loads(save(run))))
    for call in run.open_calls:
        one.approve(run, call.id)
    return run


def talk(one: Agent, streamed: bool, saved: bool) -> Any:
    run = approved(one, paused(one, streamed=streamed), saved)
    return one.drive(run)


async def talk_later(kind: Any, server: ModelServer, options: Any, streamed: bool, saved: bool) -> tuple[Agent, Any]:
    async with client_of(kind, server, later=True) as client:
        one = agent(kind, client, **options)
        run = one.start("1+2 and 3+4?")
        if streamed:
            async for _ in one.astream(run):
                pass
        else:
            await one.adrive(run)
        run = approved(one, run, saved)
        return one, await one.adrive(run)


THINKING = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
INCLUDE = {"include": ["reasoning.encrypted_content"], "store": False}
KINDS = pytest.mark.parametrize(
    ("kind", "thinks", "between", "options"),
    [
        (AnthropicMessages, (THOUGHT, HIDDEN), (), THINKING),
        (AnthropicMessages, (HIDDEN,), (THOUGHT,), THINKING),
        (OpenAIResponses, (ITEM,), (OTHER,), INCLUDE),
        (OpenAIChat, (DETAIL,), (SIGNED,), {}),
    ],
    ids=["anthropic", "anthropic between", "responses", "chat"],
)
EACH_WAY = pytest.mark.parametrize(("streamed", "later"), [(False, False), (True, False), (False, True), (True, True)])


def turn_of(kind: Any, body: dict[str, Any]) -> list[Any]:
    """What a request says the model said in its first turn, in order: blocks as they are, texts and calls by their names."""
    if kind is OpenAIResponses:
        said = [one for one in body["input"] if one.get("role") != "user" and one.get("type") != "function_call_output"]
        return [one["call_id"] if one.get("type") == "function_call" else one["content"] if "role" in one else one for one in said]
    message = next(one for one in body["messages"] if one["role"] == "assistant")
    if kind is AnthropicMessages:
        return [one.get("id") or one.get("text") or one for one in message["content"]]
    fields = {name: value for name, value in message.items() if name not in ("role", "content", "tool_calls")}
    more = [{k: v for k, v in one.items() if k not in ("id", "type", "function")} for one in message["tool_calls"]]
    return [fields, message["content"], *((one["id"], extra) for one, extra in zip(message["tool_calls"], more, strict=True))]


def expected(kind: Any, text: str, thinks: Any, between: Any) -> list[Any]:
    if kind is OpenAIChat:
        return [thinks[0], text or None, ("c1", between[0]), ("c2", {})]
    return [*thinks, *([text] if text else []), "c1", *between, "c2"]


@KINDS
@EACH_WAY
@pytest.mark.parametrize("text", ["", "Let me see."])
@pytest.mark.parametrize("saved", [False, True], ids=["", "saved"])
def test_the_next_request_holds_what_came_with_the_turn_in_its_place(
    kind: Any, thinks: Any, between: Any, options: Any, streamed: bool, later: bool, text: str, saved: bool,
    server: ModelServer, clients: list[Any],
) -> None:
    server.say(Said(text=text, calls=CALLS, thinks=thinks, between=between), Said(text="3 and 7."))
    if later:
        one, answer = asyncio.run(talk_later(kind, server, options, streamed, saved))
    else:
        clients.append(client_of(kind, server))
        one = agent(kind, clients[0], **options)
        answer = talk(one, streamed, saved)

    assert (answer.text, answer.status) == ("3 and 7.", "ok")
    assert turn_of(kind, server.body) == expected(kind, text, thinks, between)
    assert one.replay(answer.run) == answer.run
    assert "have to add" not in answer.text


@KINDS
def test_a_new_run_that_begins_with_the_history_of_another_sends_it_too(
    kind: Any, thinks: Any, between: Any, options: Any, server: ModelServer, clients: list[Any]
) -> None:
    server.say(Said(calls=CALLS, thinks=thinks, between=between), Said(text="3 and 7."), Said(text="Yes."))
    clients.append(client_of(kind, server))
    one = agent(kind, clients[0], **options)
    run = paused(one)
    one.approve(run, "c1")
    one.deny(run, "c2")
    one.drive(run)
    history = [*one.history(run), *one.history(one.start("Sure?"))]
    again = one.start(history, limits=Limits.off(max_steps=50, max_turns=9))
    first = expected(kind, "", thinks, between)

    assert one.drive(again).text == "Yes."
    assert turn_of(kind, server.body)[: len(first)] == first


@pytest.mark.parametrize("reader", [AnthropicMessages, OpenAIResponses, OpenAIChat])
@KINDS
def test_another_provider_never_sees_it(
    kind: Any, thinks: Any, between: Any, options: Any, reader: Any, server: ModelServer, clients: list[Any]
) -> None:
    if reader is kind:
        return
    server.say(Said(calls=CALLS, thinks=thinks, between=between), Said(text="3 and 7."))
    clients += client_of(kind, server), client_of(reader, server)
    other = agent(reader, clients[1])
    run = approved(other, paused(agent(kind, clients[0], **options)), True)

    assert other.drive(run).text == "3 and 7."
    for word in ("signature", "c2lnbmVk", "ZW5jcnlwdGVk", "gAAAA", "reasoning", "extra_content"):
        assert word not in json.dumps(server.body)


@KINDS
def test_a_closing_text_keeps_what_came_with_it(
    kind: Any, thinks: Any, between: Any, options: Any, server: ModelServer, clients: list[Any]
) -> None:
    said = Said(calls=CALLS, thinks=thinks, between=between)
    server.say(said, Said(text="So far.", thinks=thinks))
    clients.append(client_of(kind, server))
    one = agent(kind, clients[0], **options)
    run = one.start("go", limits=Limits.off(max_steps=50, max_turns=9, max_tool_calls=1))
    one.drive(run)
    one.approve(run, "c1")
    answer = one.drive(run)

    assert (answer.stop_reason, answer.status) == ("max_tool_calls", "partial")
    last = one.history(run)[-1]
    assert (last.role, last.text) == (Role.ASSISTANT, "So far.")
    assert last.kept["parts"][0] == {"opaque": dict(thinks[0])}


def test_what_names_a_secret_is_given_up_once_the_secret_is_sealed(server: ModelServer, clients: list[Any]) -> None:
    told = {**THOUGHT, "thinking": "The key is hunter22."}
    server.say(Said(calls=(("c1", "open_it", '{"key": "hunter22"}'),), thinks=(told,)), Said(text="Open."))
    args = TableArguments({"key": {"type": "str"}})
    clients.append(client_of(AnthropicMessages, server))
    one = Agent([Tool(name="open_it", fn=lambda key: "open", args=args, secret=["key"])], AnthropicMessages(clients[0], "m"))
    answer = one.run("open it")

    assert answer.text == "Open."
    assert answer.run is not None
    assert "hunter22" not in save(answer.run)


def test_reasoning_that_came_by_its_id_alone_is_left_with_the_service(server: ModelServer, clients: list[Any]) -> None:
    server.say(Said(calls=CALLS[:1]), Said(text="3."))
    clients.append(client_of(OpenAIResponses, server))
    one = agent(OpenAIResponses, clients[0])
    run = paused(one)
    one.approve(run, "c1")

    assert one.drive(run).text == "3."
    assert turn_of(OpenAIResponses, server.body) == ["c1"]


# ---- the form in which it is kept

CALL = ToolCall("t", {}, "c")


def group(text: str, calls: int, kept: Any) -> Group:
    answered = tuple(Answered(call=CALL, id=f"c{n}", text="x", failed=False) for n in range(calls))
    return Group(role=Role.ASSISTANT, text=text, answered=answered, kept=kept)


def told(parts: list[Part]) -> list[Any]:
    return [part.value.id if part.kind is Kind.CALL else part.value for part in parts]


def text(value: str) -> Part:
    return Part(Kind.TEXT, value)


@pytest.mark.parametrize(
    ("parts", "said", "calls", "order"),
    [
        ([Part(Kind.OPAQUE, {"n": 1}), text("ab"), Part(Kind.CALL, None)], "ab", 1, [{"n": 1}, "ab", "c0"]),
        ([text("ab"), Part(Kind.OPAQUE, {"n": 1}), text("cd")], "abcd", 0, ["ab", {"n": 1}, "cd"]),
        ([text("ab"), Part(Kind.OPAQUE, {"n": 1}), text("cd ")], "abcd", 0, ["ab", {"n": 1}, "cd"]),
        ([text("\n\n"), Part(Kind.OPAQUE, {"n": 1}), text("cd")], "\n\ncd", 0, [{"n": 1}, "cd"]),
        ([Part(Kind.OPAQUE, {"n": 1}), Part(Kind.CALL, None)], "more", 1, [{"n": 1}, "more", "c0"]),
        ([Part(Kind.OPAQUE, {"n": 1}), Part(Kind.CALL, None), Part(Kind.CALL, None)], "", 1, [{"n": 1}, "c0"]),
        ([Part(Kind.CALL, None), Part(Kind.OPAQUE, {"n": 1})], "", 3, ["c0", {"n": 1}, "c1", "c2"]),
        ([text("ab")], "ab", 2, ["ab", "c0", "c1"]),
    ],
)
def test_parts_find_their_place_again(parts: list[Part], said: str, calls: int, order: list[Any]) -> None:
    assert told(placed("me", group(said, calls, kept_of("me", parts)))) == order
    assert told(placed("you", group(said, calls, kept_of("me", parts)))) == [*([said] if said.strip() else []),
                                                                            *(f"c{n}" for n in range(calls))]  # fmt: skip


def test_what_holds_nothing_to_keep_is_not_kept() -> None:
    assert kept_of("me", [text("ab"), Part(Kind.CALL, None)]) is None
    assert kept_of("me", [Part(Kind.CALL, None, {"id": "x"})]) == {"by": "me", "parts": [{"call": True, "more": {"id": "x"}}]}


@pytest.mark.parametrize(
    "kept", [None, 5, "x", {}, {"by": "me"}, {"by": "me", "parts": 5}, {"by": "me", "parts": [5, {}, {"opaque": 5}, {"odd": 1}]},
             {"by": "me", "parts": [{"text": "x"}, {"call": 1, "more": 5}]}]
)  # fmt: skip
def test_a_history_may_hold_anything_in_its_place(kept: Any) -> None:
    assert told(placed("me", group("ab", 1, kept))) == ["ab", "c0"]


def test_a_character_that_came_in_two_halves_is_one() -> None:
    assert text_of([text("a\ud83d"), Part(Kind.CALL, None), text("\ude00b")]) == "a\U0001f600b"
    assert text_of([text("a\ud83d"), text("b")]) == "a\ud83db"


@pytest.mark.parametrize(("came", "goes"), [("\ud83d\ude00 \ud83d", "\U0001f600 \ufffd"), (float("nan"), {"$float": "nan"})])
def test_what_no_json_can_carry_goes_back_all_the_same(came: Any, goes: Any) -> None:
    kept = kept_of("a", [Part(Kind.OPAQUE, {"x": came}), Part(Kind.TEXT, "t", {"y": came})])

    parts = placed("a", Group(role=Role.ASSISTANT, text="t", kept=kept))

    assert parts == [Part(Kind.OPAQUE, {"x": goes}), Part(Kind.TEXT, "t", {"y": goes})]


def test_a_streamed_mapping_grows_by_its_pieces() -> None:
    one = {"details": [{"index": 0, "type": "a", "text": "x", "signature": None}]}
    two = {"details": [{"index": 0, "type": "a", "text": "y", "signature": "s"}, {"index": 1, "type": "a", "text": "z"}]}
    both = {"details": [{"index": 0, "type": "a", "text": "xy", "signature": "s"}, {"index": 1, "type": "a", "text": "z"}]}
    assert grown([one, two]) == both
    assert grown([{"a": {"b": 1}, "c": "x"}, {"a": {"d": 2}, "c": "y"}]) == {"a": {"b": 1, "d": 2}, "c": "y"}
    assert grown([{"c": "x"}, {"c": None}, {"c": "y"}], ("c",)) == {"c": "xy"}
    assert grown([{"l": [1]}, {"l": [1, {"text": "x"}]}]) == {"l": [1, 1, {"text": "x"}]}
    assert grown([{"c": None}]) == {"c": None}
    assert grown([]) == {}


def test_an_object_of_an_sdk_is_kept_as_the_json_that_it_came_as() -> None:
    came = {"id": "box", "expires_at": "2026-11-30T12:00:00Z"}
    assert api_form(Container.model_validate(came)) == came


def test_a_model_of_json_decisions_gets_its_own_back(server: ModelServer, clients: list[Any]) -> None:
    decision = '{"type": "tool", "toolName": "add", "args": {"a": 1, "b": 2}}'
    server.say(Said(text=decision, thinks=(THOUGHT, HIDDEN)), Said(text='{"type": "final", "finalAnswer": "3."}'))
    clients.append(client_of(AnthropicMessages, server))
    one = Agent([add], JsonDecisions(AnthropicMessages(clients[0], "m")))

    assert one.run("1+2?").text == "3."
    (said,) = [message for message in server.body["messages"] if message["role"] == "assistant"]
    assert said["content"][:2] == [THOUGHT, HIDDEN]
    assert [block["type"] for block in said["content"]] == ["thinking", "redacted_thinking", "text"]


# ---- what a reply that broke has cost


@pytest.mark.parametrize(
    ("kind", "reply", "streamed", "tokens"),
    [
        (AnthropicMessages, Breaks(said=Said(text="abcdefgh"), events=4), True, 12),
        (OpenAIChat, Said(text="x", finish="error"), False, 18),
        (OpenAIChat, Said(text="x", finish="error"), True, 18),
        (OpenAIResponses, Said(text="x", finish="failed"), False, 18),
        (OpenAIResponses, Said(text="x", finish="failed"), True, 18),
    ],
)
@pytest.mark.parametrize("later", [False, True], ids=["", "async"])
def test_a_reply_that_broke_is_paid_for(
    kind: Any, reply: Any, streamed: bool, tokens: int, later: bool, server: ModelServer, clients: list[Any]
) -> None:
    server.say(reply)
    request = ModelRequest(messages=[Message(role=Role.USER, text="go")], on_delta=(lambda text: None) if streamed else None)

    async def ask() -> None:
        async with client_of(kind, server, later=True) as client:
            await kind(client, "m").reply(request)

    clients.append(client_of(kind, server))
    with pytest.raises(ModelFailed) as failed:
        asyncio.run(ask()) if later else kind(clients[0], "m").reply(request)
    assert failed.value.usage is not None
    assert failed.value.usage.input_tokens + failed.value.usage.output_tokens == tokens
