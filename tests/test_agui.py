"""Runs as events of the Agent User Interaction Protocol: each stream keeps the protocol's rules, and its answers come back."""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import sys
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import closing
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import REPAIRS, World, limits, policies, step, the_tools, worlds

from fsm_agent import Agent, Decision, Limits, Policy, Run, Tool, ToolCall, tool
from fsm_agent.agui import FAILURES, aagui_events, aencode, agui_events, apply_resume, encode
from fsm_agent.agui_resume import interrupt_fields
from fsm_agent.code_mode import CodeMode
from fsm_agent.core.errors import BuildError, CannotDecide, MissingExtra, RunBusy, RunError, TableError
from fsm_agent.core.pending import Pending
from fsm_agent.core.stream_events import Gap, StreamEvent, TextDelta
from fsm_agent.core.trace import TraceEvent, trace_of
from fsm_agent.core.values import Judgement, StopReason, Usage
from fsm_agent.host.clock import ScriptedClock
from fsm_agent.host.model import ModelFailed, ModelRequest
from fsm_agent.people import taken

core = pytest.importorskip("ag_ui.core", reason='no AG-UI package; pip install "fsm-agent[agui]"')

from jsonschema import Draft202012Validator  # noqa: E402
from pydantic import TypeAdapter  # noqa: E402

EVENT: Any = TypeAdapter(core.Event)
TYPE = core.EventType


# ---- the protocol's rules


def checked(events: Iterable[Any]) -> list[Any]:
    """The events, each the same after a round trip through the protocol's own models, in an order that it allows."""
    made = list(events)
    for event in made:
        assert EVENT.validate_json(event.model_dump_json(by_alias=True)) == event
    check_order(made)
    return made


def check_order(events: list[Any]) -> None:
    """One run: it begins, ends once, and all that is opened in between is closed, and nothing that is not open is."""
    ends = (TYPE.RUN_FINISHED, TYPE.RUN_ERROR)
    assert [event.type for event in events].count(TYPE.RUN_STARTED) == 1
    assert events[0].type == TYPE.RUN_STARTED
    assert [event.type in ends for event in events] == [False] * (len(events) - 1) + [True]
    if events[-1].type == TYPE.RUN_FINISHED:
        assert (events[-1].run_id, events[-1].thread_id) == (events[0].run_id, events[0].thread_id)
    messages, calls, steps = set[str](), set[str](), set[str]()
    for event in events:
        if event.type == TYPE.TEXT_MESSAGE_START:
            opened(messages, event.message_id)
        elif event.type == TYPE.TEXT_MESSAGE_CONTENT:
            assert event.message_id in messages
        elif event.type == TYPE.TEXT_MESSAGE_END:
            messages.remove(event.message_id)
        elif event.type == TYPE.TOOL_CALL_START:
            opened(calls, event.tool_call_id)
        elif event.type == TYPE.TOOL_CALL_ARGS:
            assert event.tool_call_id in calls
            json.loads(event.delta)
        elif event.type == TYPE.TOOL_CALL_END:
            calls.remove(event.tool_call_id)
        elif event.type == TYPE.STEP_STARTED:
            opened(steps, event.step_name)
        elif event.type == TYPE.STEP_FINISHED:
            steps.remove(event.step_name)
    assert (messages, calls, steps) == (set(), set(), set())
    for kind, name in (
        (TYPE.TEXT_MESSAGE_START, "message_id"),
        (TYPE.TOOL_CALL_START, "tool_call_id"),
        (TYPE.TOOL_CALL_RESULT, "tool_call_id"),
        (TYPE.TOOL_CALL_RESULT, "message_id"),
    ):
        ids = ids_of(events, kind, name)
        assert len(ids) == len(set(ids))


def opened(open_ones: set[str], name: str) -> None:
    assert name not in open_ones
    open_ones.add(name)


def ids_of(events: list[Any], kind: Any, name: str = "tool_call_id") -> list[str]:
    return [getattr(event, name) for event in events if event.type == kind]


def texts(events: list[Any]) -> list[str]:
    """The text messages, whole."""
    made: dict[str, str] = {}
    for event in events:
        if event.type == TYPE.TEXT_MESSAGE_CONTENT:
            made[event.message_id] = made.get(event.message_id, "") + event.delta
    return list(made.values())


def customs(events: list[Any]) -> list[str]:
    return [event.name for event in events if event.type == TYPE.CUSTOM]


def results(events: list[Any]) -> dict[str, str]:
    return {event.tool_call_id: event.content for event in events if event.type == TYPE.TOOL_CALL_RESULT}


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        ["end"],
        ["start"],
        ["start", "end", "end"],
        ["start", "start", "end"],
        ["start", "open", "end"],
        ["start", "close", "end"],
        ["start", "open", "open", "close", "end"],
        ["start", "end", "open", "close"],
    ],
)
def test_the_check_of_the_order_can_fail(wrong: list[str]) -> None:
    made = {
        "start": core.RunStartedEvent(thread_id="t", run_id="r"),
        "end": core.RunFinishedEvent(thread_id="t", run_id="r"),
        "open": core.StepStartedEvent(step_name="s"),
        "close": core.StepFinishedEvent(step_name="s"),
    }
    with pytest.raises((AssertionError, KeyError, IndexError)):
        check_order([made[name] for name in wrong])


# ---- agents


class Scripted:
    """A model that goes through its turns; texts are spoken in two pieces where somebody listens, unless it is `silent`."""

    def __init__(self, *turns: Decision | Exception, silent: bool = False) -> None:
        self.turns, self.silent = list(turns), silent

    def reply(self, request: ModelRequest) -> Decision:
        turn = self.turns.pop(0)
        text = "lost" if isinstance(turn, Exception) else turn.text or ""
        if request.on_delta is not None and not self.silent:
            for piece in (text[:2], text[2:]):
                request.on_delta(piece)
        if isinstance(turn, Exception):
            raise turn
        return turn


RAN: list[Any] = []


def tools() -> list[Tool]:
    def look(q: int) -> str:
        return f"found {q}"

    def pay(sum: int, pin: str = "") -> str:
        RAN.append((sum, pin))
        return f"paid {sum}"

    def fail(q: int) -> str:
        raise ValueError(f"cannot {q}")

    return [
        Tool(name="look", fn=look, effect="pure"),
        Tool(name="fail", fn=fail, effect="pure"),
        Tool(name="pay", fn=pay, effect="at_most_once", approval=True, secret={"pin"}),
        Tool(name="show", fn=lambda q: None, effect="idempotent", where="client"),
        Tool(name="risk", fn=lambda q: None, effect="idempotent", where="client", approval=True),
    ]


def agent(*turns: Decision | Exception, silent: bool = False, **more: Any) -> Agent:
    RAN.clear()
    given = {"limits": Limits.off(max_steps=60, max_turns=20), "clock": ScriptedClock(wall_start=1e9), **more}
    return Agent(tools(), Scripted(*turns, silent=silent), **given)


def calls(*asked: tuple[str, str, Any], text: str | None = None) -> Decision:
    return Decision(calls=tuple(ToolCall(name, args, id) for id, name, args in asked), text=text, finish="tool_calls")


DONE = Decision(text="done", finish="stop")


def streamed(one: Agent, run: Run, **more: Any) -> list[Any]:
    return checked(agui_events(one.stream(run), thread_id="t", run=run, agent=one, **more))


def resolved(call_id: str, **payload: Any) -> dict[str, Any]:
    return {"interruptId": call_id, "status": "resolved", "payload": payload}


# ---- one run


def test_a_run_of_one_call_is_told_in_the_protocols_words() -> None:
    one = agent(calls(("c", "look", {"q": 1}), text="I look."), DONE)
    run = one.start("go", run_id="r")
    events = streamed(one, run, run_id="req-1")

    told = [event.type.value for event in events if "STEP" not in event.type.value]
    assert told == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END",
        "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT",
        "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END",
        "CUSTOM",
        "RUN_FINISHED",
    ]  # fmt: skip
    first, last = events[0], events[-1]
    assert (first.thread_id, first.run_id, first.protocol_version) == ("t", "req-1", "1.0")
    assert (last.outcome.type, last.result["status"], last.result["text"], last.usage) == ("success", "ok", "done", None)
    start = next(event for event in events if event.type == TYPE.TOOL_CALL_START)
    spoken = next(event for event in events if event.type == TYPE.TEXT_MESSAGE_START)
    assert (start.tool_call_id, start.tool_call_name, start.parent_message_id) == ("c", "look", spoken.message_id)
    assert ids_of(events, TYPE.TOOL_CALL_ARGS, "delta") == ['{"q":1}']
    assert results(events) == {"c": "found 1"}
    assert customs(events) == ["fsm_agent:judged"]
    assert {event.timestamp for event in events[1:]} == {10**12}


def test_states_are_steps() -> None:
    one = agent(calls(("c", "look", {"q": 1})), DONE)
    run = one.start("go")
    events = streamed(one, run)

    entered = [line.subject for line in trace_of(run) if line.kind == "state_entered"]
    assert ids_of(events, TYPE.STEP_STARTED, "step_name") == entered == ids_of(events, TYPE.STEP_FINISHED, "step_name")


def test_a_model_that_does_not_stream_is_heard_all_the_same() -> None:
    def said(silent: bool) -> list[str]:
        one = agent(calls(("c", "look", {"q": 1}), text="I look."), DONE, silent=silent)
        return texts(streamed(one, one.start("go")))

    assert said(silent=True) == said(silent=False) == ["I look.", "done"]


def test_pieces_that_are_void_end_their_message_and_are_named() -> None:
    one = agent(ModelFailed("rate_limited", "slow", 0.5), DONE)
    events = streamed(one, one.start("go"))

    assert texts(events) == ["lost", "done"]
    void = next(event for event in events if event.type == TYPE.CUSTOM and event.name == "fsm_agent:deltas_discarded")
    assert void.value == {"messageId": ids_of(events, TYPE.TEXT_MESSAGE_END, "message_id")[0]}
    assert [name for name in customs(events) if "judged" not in name] == [
        "fsm_agent:deltas_discarded", "fsm_agent:decision_failed", "fsm_agent:waiting",
    ]  # fmt: skip


def test_void_pieces_are_not_taken_for_the_answer() -> None:
    one = agent(ModelFailed("rate_limited", "slow", 0.5), Decision(text="lost", finish="stop"), silent=True)
    run = one.start("go")

    def events() -> Iterator[StreamEvent]:
        yield TextDelta(run.id, 0, "lost")
        yield from (event for event in one.stream(run))

    assert texts(checked(agui_events(events(), thread_id="t", run=run, agent=one))) == ["lost"]


def test_what_a_stop_adds_to_a_streamed_text_is_a_message_of_its_own() -> None:
    spoken = Decision(text="so far", finish="stop")
    one = agent(calls(("c", "look", {"q": 1})), spoken, limits=Limits.off(max_turns=2, max_steps=60))
    run = one.start("go")
    one_turn = streamed(one, run)
    one = agent(calls(("c", "look", {"q": 1})), calls(("d", "look", {"q": 2})), spoken, limits=Limits.off(max_tool_calls=1, max_steps=60))
    run = one.start("go")
    stopped = streamed(one, run)

    assert texts(one_turn) == ["so far"]
    first, rest = texts(stopped)
    assert (first, rest.splitlines()[0]) == ("so far", "Found so far:")
    assert one.answer(run).text == f"{first}\n\n{rest}"


def test_every_call_has_one_result_also_when_it_was_refused_or_skipped() -> None:
    one = agent(calls(("a", "nowhere", {}), ("b", "look", {"q": 1}), ("c", "fail", {"q": 2}), ("d", "look", "text")), DONE)
    events = streamed(one, one.start("go"))

    told = results(events)
    assert sorted(ids_of(events, TYPE.TOOL_CALL_START)) == sorted(told) == ["a", "b", "c", "d"]
    assert told["b"] == "found 1"
    errors = {event.tool_call_id: event.metadata for event in events if event.type == TYPE.TOOL_CALL_RESULT}
    assert errors["b"] is None
    assert {name: errors[name]["fsm_agent"]["error"] for name in "acd"} == {
        "a": "args:unknown_tool", "c": "raised:ValueError", "d": "args:type:args",
    }  # fmt: skip
    assert told["c"].startswith("raised:ValueError (")


def test_a_repaired_call_has_the_arguments_that_were_asked_for_and_one_result() -> None:
    mend = {"raised:ValueError": lambda tool, args: ("look", {"q": 9}), "args:unknown_tool": lambda tool, args: ("look", {"q": 8})}
    one = agent(calls(("c", "fail", {"q": 2}), ("d", "nowhere", {"z": 1})), DONE, repairs=mend)
    events = streamed(one, one.start("go"))

    names = ids_of(events, TYPE.TOOL_CALL_START, "tool_call_name")
    assert list(zip(names, ids_of(events, TYPE.TOOL_CALL_ARGS, "delta"), strict=True)) == [("fail", '{"q":2}'), ("nowhere", '{"z":1}')]
    assert results(events) == {"c": "found 9", "d": "found 8"}
    assert customs(events).count("fsm_agent:call_repaired") == 2


def test_a_failure_that_a_repair_gives_up_has_its_result() -> None:
    one = agent(calls(("c", "fail", {"q": 2})), DONE, repairs={"raised:ValueError": lambda tool, args: ("fail", {"q": 3})})
    events = streamed(one, one.start("go"))

    assert results(events)["c"].startswith("raised:ValueError (")


def test_the_verifiers_next_action_is_a_call_like_any() -> None:
    judged = iter([Judgement(decision="need_more", reason="look", next_action=ToolCall("look", {"q": 5})), Judgement(decision="done")])
    one = agent(DONE, Decision(text="again", finish="stop"), verify=lambda ask: next(judged))
    events = streamed(one, one.start("go"))

    assert results(events) == {"verify-1": "found 5"}
    assert ids_of(events, TYPE.TOOL_CALL_START) == ["verify-1"]


def test_the_calls_of_a_program_are_calls_like_any_in_the_same_message() -> None:
    pytest.importorskip("pydantic_monty", reason='no sandbox; pip install "fsm-agent[code]"')
    program = 'a = look(q=1)\ntry:\n  fail(q=2)\nexcept RuntimeError:\n  pass\na + show(q=3)'
    one = agent(calls(("p", "run_program", {"program": program})), DONE, code_mode=CodeMode(limit_s=5))
    run = one.start("go")
    first = streamed(one, run)
    [asked] = first[-1].outcome.interrupts
    apply_resume(one, run, [resolved(asked.id, value=", seen")])
    second = streamed(one, run)

    assert ids_of(first, TYPE.TOOL_CALL_START, "tool_call_name") == ["run_program", "look", "fail", "show"]
    assert len(set(ids_of(first, TYPE.TOOL_CALL_START, "parent_message_id"))) == 1
    assert ids_of(first, TYPE.TOOL_CALL_ARGS, "delta")[1:] == ['{"q":1}', '{"q":2}', '{"q":3}']
    assert [text.partition(" (")[0] for text in results(first).values()] == ["found 1", "raised:ValueError"]
    assert list(results(second).values()) == [", seen", "found 1, seen"]


def test_secrets_are_marked_and_odd_texts_spelled_out() -> None:
    odd = "id \ud835\n"
    one = agent(calls((odd, "pay", {"sum": float("nan"), "pin": "s3cret"})), Decision(text="\udc00 \u2028 \U0001d518", finish="stop"))
    run = one.start("go", run_id="run \ud800")
    first = streamed(one, run)
    [asked] = first[-1].outcome.interrupts
    apply_resume(one, run, [resolved(asked.id, approved=False, reason="no")])
    second = streamed(one, run)

    assert asked.id == "id \\ud835\n"
    assert not any("s3cret" in event.model_dump_json() for event in (*first, *second))
    assert ids_of(first, TYPE.TOOL_CALL_ARGS, "delta") == ['{"sum":{"$float":"nan"},"pin":"[redacted]"}']
    assert texts(second) == ["\\udc00 \u2028 \U0001d518"]
    assert b"".join(encode(second)).decode("utf-8").count("data: ") == len(second)


def test_tokens_are_those_of_the_stream_alone() -> None:
    asked = attrs.evolve(calls(("c", "pay", {"sum": 1})), usage=Usage(input_tokens=5, output_tokens=2))
    one = agent(asked, attrs.evolve(DONE, usage=Usage(input_tokens=10, output_tokens=1)))
    run = one.start("go")
    first = streamed(one, run)
    apply_resume(one, run, [resolved("c", approved=True)])
    second = streamed(one, run)

    assert [[use.total_tokens for use in events[-1].usage or ()] for events in (first, second)] == [[7], [11]]


# ---- how it ends


def test_a_limit_ends_with_the_cancelled_outcome_and_the_answer_before_it() -> None:
    turns = [calls((f"c{n}", "look", {"q": n})) for n in range(9)]
    one = agent(*turns, limits=Limits.off(max_tool_calls=2, max_steps=60), close=lambda ask: "")
    events = streamed(one, one.start("go"))

    assert (events[-1].type, events[-1].outcome.type, events[-1].result) == (TYPE.RUN_FINISHED, "cancelled", None)
    assert (events[-2].name, events[-2].value["status"], events[-2].value["stop_reason"]) == (
        "fsm_agent:answer", "partial", "max_tool_calls",
    )  # fmt: skip
    assert "fsm_agent:guard_closed" in customs(events)


def test_a_run_that_was_stopped_with_nothing_found_is_no_error() -> None:
    one = agent(DONE)
    run = one.start("go")
    one.cancel(run)
    events = checked(agui_events(trace_of(run), thread_id="t", run=run, agent=one))

    assert (events[-2].value["status"], events[-2].value["stop_reason"]) == ("failed", "cancelled")
    assert events[-1].outcome.type == "cancelled"


@pytest.mark.parametrize("turns", [[ValueError("broken")], [ModelFailed("authentication", "no key")]])
def test_a_model_that_fails_is_a_run_that_failed(turns: list[Exception]) -> None:
    one = agent(*turns)
    events = streamed(one, one.start("go"))

    assert (events[-1].type, events[-1].code) == (TYPE.RUN_ERROR, "model_error")
    assert (events[-2].name, events[-2].value["status"]) == ("fsm_agent:answer", "failed")


def test_a_failure_with_something_found_is_a_failure_and_what_was_found_is_told() -> None:
    one = agent(calls(("c", "look", {"q": 1})), ValueError("broken"))
    events = streamed(one, one.start("go"))

    assert (events[-1].type, events[-2].value["status"]) == (TYPE.RUN_ERROR, "partial")
    assert "look: found 1" in texts(events)[-1]


def test_every_stop_reason_is_an_answer_a_failure_or_a_stop() -> None:
    answers = {StopReason.ANSWERED, StopReason.QUESTION}

    assert not answers & FAILURES
    stops = {reason for reason in StopReason if reason.value.startswith(("max_", "cancel", "denied", "deadline", "strategy"))}
    assert not stops & FAILURES
    assert {reason for reason in StopReason if reason.value.startswith(("model_", "invalid_", "fatal"))} <= FAILURES


def test_a_stream_that_raises_is_told_as_an_error_and_raises() -> None:
    one = agent(DONE)
    run = one.start("go")
    heard: list[Any] = []
    events = agui_events(one.stream(run), thread_id="t", run=run, agent=one)
    with taken(run):
        assert raised_by(events, heard) is RunBusy

    assert [event.type for event in checked(heard)] == [TYPE.RUN_STARTED, TYPE.RUN_ERROR]
    assert (heard[-1].code, run.id in heard[-1].message) == ("RunBusy", True)


def raised_by(events: Iterable[Any], heard: list[Any]) -> type[Exception] | None:
    try:
        for event in events:
            heard.append(event)
    except Exception as error:
        return type(error)
    return None


def test_what_is_open_when_the_stream_raises_is_closed() -> None:
    one = agent(DONE)
    run = one.start("go")

    def broken() -> Iterator[StreamEvent]:
        yield from trace_of(run)
        yield TextDelta(run.id, 1, "half")
        raise ValueError("password")

    heard: list[Any] = []
    assert raised_by(agui_events(broken(), thread_id="t", run=run, agent=one), heard) is ValueError
    checked(heard)
    assert (heard[-1].code, "password" in heard[-1].message, texts(heard)) == ("ValueError", False, ["half"])


def test_a_stream_that_ends_before_its_run_is_an_error() -> None:
    one = agent(DONE)
    run = one.start("go")
    heard: list[Any] = []

    assert raised_by(agui_events(trace_of(run), thread_id="t", run=run, agent=one), heard) is RunError
    assert checked(heard)[-1].code == "RunError"


@pytest.mark.parametrize("wrong", [{"thread_id": None}, {"run_id": 7}])
def test_ids_that_are_no_text_are_refused_at_once(wrong: dict[str, Any]) -> None:
    one = agent(DONE)
    with pytest.raises(BuildError, match="give the request's"):
        agui_events([], **{"thread_id": "t", "run": one.start("go"), "agent": one, **wrong})


# ---- pausing and coming back


def test_a_pause_is_one_interrupt_for_each_call_that_waits() -> None:
    one = agent(
        calls(("a", "pay", {"sum": 5, "pin": "1234"}), ("b", "look", {"q": 1}), ("c", "show", {"q": 2})), DONE,
        policy=Policy(approval_ttl_s=60),
    )  # fmt: skip
    run = one.start("go")
    events = streamed(one, run)
    approval, client = events[-1].outcome.interrupts
    token = one.pending(run)[0].token

    assert (approval.id, approval.tool_call_id, approval.reason, approval.expires_at) == ("a", "a", "tool_call", "2001-09-09T01:47:40Z")
    assert approval.message == 'May pay run with {"sum":5,"pin":"[redacted]"}?'
    assert approval.metadata["fsm_agent"] == {
        "tool": "pay", "args": {"sum": 5, "pin": "[redacted]"}, "kind": "approval", "token": token, "intent": "",
    }  # fmt: skip
    assert (client.id, client.tool_call_id, client.reason, client.expires_at) == ("c", "c", "input_required", None)
    assert (ids_of(events, TYPE.TOOL_CALL_START), results(events), texts(events)) == (["a", "b", "c"], {}, [])

    client_side = core.ResumeEntry(interrupt_id="c", status="resolved", payload={"value": [1]})
    apply_resume(one, run, [resolved("a", approved=True, token=token), client_side])
    after = streamed(one, run, run_id="second")
    assert ids_of(after, TYPE.TOOL_CALL_START) == []
    assert results(after) == {"a": "paid 5", "b": "found 1", "c": "[1]"}
    assert (RAN, after[-1].outcome.type) == ([(5, "1234")], "success")
    assert after[1].step_name == "gather"


def test_a_run_that_nobody_decided_about_ends_with_the_same_interrupts() -> None:
    one = agent(calls(("a", "pay", {"sum": 5})), DONE)
    run = one.start("go")
    first, second = streamed(one, run), streamed(one, run)

    assert second[-1].outcome == first[-1].outcome
    assert [event.type for event in second] == [TYPE.RUN_STARTED, TYPE.RUN_FINISHED]


def test_answers_that_leave_a_call_uncovered_leave_the_run_paused_for_it() -> None:
    one = agent(calls(("a", "pay", {"sum": 5}), ("b", "pay", {"sum": 6}), ("c", "fail", {"q": 1})), DONE)
    run = one.start("go")
    streamed(one, run)
    left = apply_resume(one, run, [resolved("b", approved=True)])
    again = streamed(one, run)

    assert [one.call_id for one in left] == ["a"]
    assert [asked.id for asked in again[-1].outcome.interrupts] == ["a"]
    assert RAN == []


def test_what_failed_before_the_pause_and_may_be_mended_has_its_result_after_it() -> None:
    mend = {"args:unknown_tool": lambda tool, args: ("look", {"q": 8})}
    one = agent(calls(("a", "pay", {"sum": 5}), ("b", "nowhere", {})), DONE, repairs=mend)
    run = one.start("go")
    first = streamed(one, run)
    apply_resume(one, run, [resolved("a", approved=True)])
    second = streamed(one, run)

    assert (results(first), results(second)) == ({}, {"a": "paid 5", "b": "found 8"})


def test_edited_arguments_replace_all_and_keep_a_secret_that_still_stands_as_it_was_shown() -> None:
    one = agent(calls(("a", "pay", {"sum": 5, "pin": "1234"}), ("b", "pay", {"sum": 5, "pin": "1234"})), DONE)
    run = one.start("go")
    shown = streamed(one, run)[-1].outcome.interrupts[0].metadata["fsm_agent"]["args"]
    edits = {"a": {**shown, "sum": 7}, "b": {"sum": 8}}
    apply_resume(one, run, [resolved(name, approved=True, editedArgs=args) for name, args in edits.items()])
    one.drive(run)

    assert RAN == [(7, "1234"), (8, "")]


def test_edited_arguments_are_described_and_measured_by_the_tools_own_contract() -> None:
    sent: list[int] = []

    def send(n: int) -> int:
        sent.append(n)
        return n

    made = tool(effect="at_most_once", approval=True)(send)
    one = Agent([made], Scripted(calls(("a", "send", {"n": 5}), ("b", "send", {"n": 6})), DONE))
    run = one.start("go")
    schema = streamed(one, run)[-1].outcome.interrupts[0].response_schema
    wrong, right = {"approved": True, "editedArgs": {"n": "many"}}, {"approved": True, "editedArgs": {"n": 7}}
    apply_resume(one, run, [resolved("a", **wrong), resolved("b", **right)])
    events = streamed(one, run)

    check = Draft202012Validator(schema)
    assert (check.is_valid(wrong), check.is_valid(right)) == (False, True)
    assert results(events)["a"].startswith("args:type:n")
    assert (results(events)["b"], sent) == ("7", [7])


def test_a_clients_value_is_described_by_the_tools_own_contract() -> None:
    def seen(n: int) -> list[int]:
        return [n]

    one = Agent([tool(effect="idempotent", where="client")(seen)], Scripted(calls(("a", "seen", {"n": 5}))))
    check = Draft202012Validator(streamed(one, one.start("go"))[-1].outcome.interrupts[0].response_schema)

    answers = [{"value": [1]}, {"error": "Closed"}, {"value": "x"}, {}, {"value": [1], "error": "Closed"}]
    assert [check.is_valid(answer) for answer in answers] == [True, True, False, False, False]


CASES: list[tuple[str, dict[str, Any], str]] = [
    ("pay", {"status": "resolved", "payload": {"approved": True}}, "paid 5"),
    ("pay", {"status": "resolved", "payload": {"approved": True, "editedArgs": None, "token": None, "reason": None}}, "paid 5"),
    ("pay", {"status": "resolved", "payload": {"approved": True, "editedArgs": {"sum": 6}}}, "paid 6"),
    ("pay", {"status": "resolved", "payload": {"approved": False, "reason": "too much"}}, "denied:too much"),
    ("pay", {"status": "resolved", "payload": {"approved": False}}, "denied ("),
    ("pay", {"status": "cancelled"}, "denied:abandoned"),
    ("show", {"status": "resolved", "payload": {"value": {"seen": True}}}, '{"seen":true}'),
    ("show", {"status": "resolved", "payload": {"value": None}}, "null"),
    ("show", {"status": "resolved", "payload": {"error": "Closed", "message": "the tab"}}, "raised:Closed (the tab)"),
    ("show", {"status": "cancelled"}, "raised:Abandoned"),
]


@pytest.mark.parametrize("form", ["object", "camel", "snake"])
@pytest.mark.parametrize(("name", "entry", "result"), CASES)
def test_each_answer_does_what_it_says(name: str, entry: dict[str, Any], result: str, form: str) -> None:
    one = agent(calls(("c", name, {"sum": 5} if name == "pay" else {"q": 5})), DONE)
    run = one.start("go")
    schema = streamed(one, run)[-1].outcome.interrupts[0].response_schema
    if "payload" in entry and "token" not in entry["payload"]:
        Draft202012Validator(schema).validate(entry["payload"])
    given = {"interruptId" if form == "camel" else "interrupt_id": "c", **entry}
    apply_resume(one, run, [core.ResumeEntry(**given) if form == "object" else given])

    assert results(streamed(one, run))["c"].startswith(result)


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("pay", {"status": "done"}, "resolved"),
    ("pay", {"status": "resolved"}, "give an object"),
    ("pay", {"status": "resolved", "payload": True}, "give an object"),
    ("pay", {"status": "resolved", "payload": {}}, "give true or false"),
    ("pay", {"status": "resolved", "payload": {"approved": 1}}, "give true or false"),
    ("pay", {"status": "resolved", "payload": {"approved": True, "edited_args": {}}}, "it may have approved, editedArgs"),
    ("pay", {"status": "resolved", "payload": {"approved": True, "editedArgs": [1]}}, "give an object with all"),
    ("pay", {"status": "resolved", "payload": {"approved": False, "reason": 3}}, "give a text"),
    ("pay", {"status": "resolved", "payload": {"approved": True, "token": 3}}, "give a text"),
    ("pay", {"status": "resolved", "payload": {"approved": True, "token": "other"}}, "not the one that was shown"),
    ("pay", {"status": "resolved", "payload": {"value": 1}}, "it may have approved"),
    ("show", {"status": "resolved", "payload": {"approved": True}}, "it may have value"),
    ("show", {"status": "resolved", "payload": {}}, "either"),
    ("show", {"status": "resolved", "payload": {"value": 1, "error": "x"}}, "either"),
    ("show", {"status": "resolved", "payload": {"error": " "}}, "name it"),
    ("show", {"status": "resolved", "payload": {"error": 5}}, "give a text"),
]


@pytest.mark.parametrize(("name", "entry", "why"), WRONG)
def test_an_answer_of_another_form_changes_nothing(name: str, entry: dict[str, Any], why: str) -> None:
    one = agent(calls(("c", name, {"sum": 5} if name == "pay" else {"q": 5}), ("d", "pay", {"sum": 1})), DONE)
    run = one.start("go")
    one.drive(run)
    before = one.save(run)
    with pytest.raises(CannotDecide, match=why):
        apply_resume(one, run, [resolved("d", approved=True), {"interruptId": "c", **entry}])

    assert one.save(run) == before


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ([resolved("x", approved=True)], "has no call"),
        ([resolved("b", approved=True)], "decided already"),
        ([{"status": "resolved"}], "has no call None"),
        ([resolved("a", approved=True), resolved("a", approved=False)], "twice"),
        ([None], "has no call None"),
        (5, "the resume is 5; give the request's list of entries"),
        ("a", "the resume is 'a'"),
        ({"interrupt_id": "a"}, "the resume is {"),
    ],
)
def test_an_answer_to_no_call_that_waits_is_refused(entries: Any, why: str) -> None:
    one = agent(calls(("a", "pay", {"sum": 1}), ("b", "look", {"q": 1})), DONE)
    run = one.start("go")
    one.drive(run)
    before = one.save(run)
    with pytest.raises(CannotDecide, match=why):
        apply_resume(one, run, entries)

    assert one.save(run) == before


def test_an_answer_that_is_sent_again_is_refused_and_changes_nothing() -> None:
    one = agent(calls(("a", "pay", {"sum": 1})), DONE)
    run = one.start("go")
    one.drive(run)
    assert apply_resume(one, run, [resolved("a", approved=True)]) == ()
    for drive in (False, True):
        if drive:
            one.drive(run)
        before = one.save(run)
        with pytest.raises(CannotDecide, match="is over" if drive else "decided already"):
            apply_resume(one, run, [resolved("a", approved=True)])
        assert one.save(run) == before
    assert RAN == [(1, "")]


@pytest.mark.parametrize("entries", [None, [], ()])
def test_no_answers_are_none(entries: Any) -> None:
    one = agent(calls(("a", "pay", {"sum": 1})), DONE)
    run = one.start("go")
    one.drive(run)

    assert [waiting.call_id for waiting in apply_resume(one, run, entries)] == ["a"]


def test_a_late_approval_is_refused_and_a_late_denial_taken() -> None:
    clock = ScriptedClock(wall_start=1e9)
    one = agent(calls(("a", "pay", {"sum": 1})), DONE, policy=Policy(approval_ttl_s=60), clock=clock)
    run = one.start("go")
    one.drive(run)
    clock.advance(61)
    with pytest.raises(CannotDecide, match="expired"):
        apply_resume(one, run, [resolved("a", approved=True)])
    apply_resume(one, run, [resolved("a", approved=False)])

    assert one.drive(run).text == "done"


def test_a_denial_that_ends_the_run_leaves_no_answer_over() -> None:
    one = agent(
        calls(*((name, "pay", {"sum": n}) for n, name in enumerate("abcd")), ("e", "show", {"q": 1})), DONE,
        policy=Policy(on_denied="stop"),
    )  # fmt: skip
    run = one.start("go")
    one.drive(run)
    left = apply_resume(
        one,
        run,
        [
            resolved("a", approved=False),
            resolved("b", approved=True),
            resolved("c", approved=False),
            resolved("d", approved=True),
            resolved("e", value=1),
        ],
    )
    events = streamed(one, run)

    assert left == ()
    told = results(events)
    assert (events[-1].outcome.type, run.stop.reason if run.stop else None, RAN) == ("cancelled", "denied", [])
    assert {name: text.partition(" ")[0] for name, text in told.items()} == {
        "a": "denied", "b": "skipped:denied", "c": "skipped:denied", "d": "skipped:denied", "e": "1",
    }  # fmt: skip


def test_a_client_tool_that_needs_approval_asks_twice() -> None:
    one = agent(calls(("a", "risk", {"q": 1})), DONE)
    run = one.start("go")
    first = streamed(one, run)
    left = apply_resume(one, run, [resolved("a", approved=True)])
    second = streamed(one, run)
    apply_resume(one, run, [resolved("a", value="seen")])
    third = streamed(one, run)

    assert [events[-1].outcome.interrupts[0].reason for events in (first, second)] == ["tool_call", "input_required"]
    assert [waiting.kind for waiting in left] == ["client"]
    assert results(third) == {"a": "seen"}


INSTANTS = [(None, None), (0.0, "1970-01-01T00:00:00Z"), (1.5, "1970-01-01T00:00:01.500000Z"), (1e300, None)]


@pytest.mark.parametrize(("seconds", "instant"), INSTANTS)
def test_an_expiry_is_an_iso_instant_or_none(seconds: float | None, instant: str | None) -> None:
    one = agent(DONE)
    waiting = Pending(call_id="c", kind="approval", tool="gone", args=[1], token="t", intent="find", expires_at=seconds)
    fields = interrupt_fields(one, waiting)

    assert fields["expires_at"] == instant
    assert fields["message"] == "May gone run with [1]? find"
    core.Interrupt(**fields)


def test_a_schema_that_is_no_json_takes_any_object() -> None:
    for more in ({"approval": True}, {"where": "client", "returns": Odd()}):
        one = Agent([Tool(name="t", fn=lambda n: n, args=Odd(), effect="idempotent", **more)], Scripted(calls(("c", "t", {"n": 1}))))
        [waiting] = streamed(one, one.start("go"))[-1].outcome.interrupts
        described = waiting.response_schema["properties"]

        assert "maxProperties" not in described.get("editedArgs", described.get("value"))


class Odd:
    """A contract that takes anything and describes itself badly."""

    empty_ok = True

    def first_fault(self, args: object, *more: Any) -> str:
        return ""

    def faults(self, args: object) -> tuple[Any, ...]:
        return ()

    def with_defaults(self, args: Any) -> dict[str, Any]:
        return dict(args)

    def json_schema(self) -> dict[str, Any]:
        return {"type": "object", "maxProperties": float("inf")}


# ---- leaving, tasks, observers, the encoder


def test_leaving_cancels_the_run() -> None:
    one = agent(calls(("a", "look", {"q": 1})), DONE)
    run = one.start("go")
    with closing(encode(agui_events(one.stream(run), thread_id="t", run=run, agent=one))) as chunks:  # type: ignore[type-var]
        while b"TOOL_CALL_RESULT" not in next(chunks):
            pass
    gc.collect()

    assert (one.answer(run).stop_reason, run.driven) == ("cancelled", False)
    assert one.resume(run).text == "done"


def test_tasks_are_told_the_same() -> None:
    def turns() -> list[Decision | Exception]:
        return [calls(("a", "look", {"q": 1}), ("b", "nowhere", {})), ModelFailed("timeout", "slow"), DONE]

    async def main() -> tuple[list[Any], list[bytes]]:
        one = agent(*turns())
        run = one.start("go", run_id="r")
        events = [event async for event in aagui_events(one.astream(run), thread_id="t", run=run, agent=one)]
        again = agent(*turns())
        run = again.start("go", run_id="r")
        chunks = aencode(aagui_events(again.astream(run), thread_id="t", run=run, agent=again))
        return events, [chunk async for chunk in chunks]

    one = agent(*turns())
    events, chunks = asyncio.run(main())
    assert checked(events) == streamed(one, one.start("go", run_id="r"))
    assert chunks == list(encode(events))


def test_leaving_a_task_cancels_the_run() -> None:
    one = agent(calls(("a", "look", {"q": 1})), DONE)
    run = one.start("go")

    async def main() -> None:
        chunks: Any = aencode(aagui_events(one.astream(run), thread_id="t", run=run, agent=one))
        async for chunk in chunks:
            if b"TOOL_CALL_START" in chunk:
                break
        await chunks.aclose()

    asyncio.run(main())
    assert (one.answer(run).stop_reason, run.driven) == ("cancelled", False)


def test_in_a_task_too_a_stream_that_raises_is_an_error() -> None:
    one = agent(DONE)
    run = one.start("go")
    heard: list[Any] = []

    async def broken() -> AsyncIterator[StreamEvent]:
        yield TextDelta(run.id, 0, "half")
        raise ValueError("no")

    async def main() -> None:
        async for event in aagui_events(broken(), thread_id="t", run=run, agent=one):
            heard.append(event)

    with pytest.raises(ValueError, match="no"):
        asyncio.run(main())
    assert checked(heard)[-1].code == "ValueError"


def test_an_observer_of_many_runs_gives_those_of_one() -> None:
    one = agent(calls(("a", "look", {"q": 1})), DONE, calls(("a", "look", {"q": 2})), DONE)
    observer = one.observe()
    one.run("other")
    run = one.start("go")
    one.drive(run)
    observer.close()

    assert results(checked(agui_events(observer, thread_id="t", run=run, agent=one))) == {"a": "found 2"}


def test_lines_that_were_dropped_are_a_gap_and_the_rest_keeps_the_rules() -> None:
    one = agent(calls(("a", "look", {"q": 1}), ("b", "look", {"q": 2})), DONE)
    run = one.start("go")
    one.drive(run)
    for kept in range(len(run.trace)):
        events = checked(agui_events([Gap(kept), *trace_of(run, kept)], thread_id="t", run=run, agent=one))
        assert events[1].value == {"missed": kept}
        assert events[-1].outcome.type == "success"


def test_a_call_that_the_run_does_not_have_is_left_out() -> None:
    one = agent(DONE)
    run = one.start("go")
    one.drive(run)
    foreign = [TraceEvent(run.id, 99, 0.0, kind, "x", "look") for kind in ("call_admitted", "call_finished", "decision")]
    foreign[-1] = attrs.evolve(foreign[-1], subject="77", detail=3)
    events = checked(agui_events([*trace_of(run), *foreign], thread_id="t", run=run, agent=one))

    assert ids_of(events, TYPE.TOOL_CALL_START) == []


def test_a_call_that_is_on_its_way_into_the_record_is_waited_for() -> None:
    one = agent(calls(("a", "look", {"q": 1})), DONE)
    run = one.start("go")
    one.drive(run)
    lines, [call] = trace_of(run), run.calls
    run.calls = []
    foreign = attrs.evolve(lines[0], kind="call_finished", subject="x")

    def events() -> Iterator[StreamEvent]:
        with taken(run):
            arriving = threading.Timer(0.003, run.calls.append, [call])
            arriving.start()
            yield from (line for line in lines if line.kind.startswith("call"))
            arriving.join()
            yield foreign
        yield from (line for line in lines if not line.kind.startswith("call"))

    told = checked(agui_events(events(), thread_id="t", run=run, agent=one))
    assert (ids_of(told, TYPE.TOOL_CALL_START), results(told)) == (["a"], {"a": "found 1"})


def test_the_encoder_is_the_protocols_own() -> None:
    [chunk] = encode([core.StepStartedEvent(step_name="a\nb\u2028")])

    assert chunk == 'data: {"type":"STEP_STARTED","stepName":"a\\nb\u2028"}\n\n'.encode()


@pytest.mark.parametrize("old", [True, False])
def test_a_missing_or_older_package_names_the_extra(old: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    module = type(sys)("ag_ui.core") if old else None
    monkeypatch.setitem(sys.modules, "ag_ui.core", module)
    one = agent(DONE)
    with pytest.raises(MissingExtra, match=r"fsm-agent\[agui\]"):
        agui_events([], thread_id="t", run=one.start("go"), agent=one)
    with pytest.raises(MissingExtra):
        encode([])


def test_the_package_is_not_loaded_by_importing_the_module() -> None:
    importlib.import_module("fsm_agent.agui")
    source = importlib.import_module("fsm_agent.agui_lines")

    assert not any(getattr(value, "__module__", "").startswith("ag_ui") for value in vars(source).values())


# ---- laws


@settings(max_examples=30)
@given(worlds, limits, policies, st.booleans())
def test_any_run_keeps_the_rules_of_the_protocol(world: World, bounds: Limits, policy: Policy, repaired: bool) -> None:
    box = the_tools()
    mend = {word: (lambda tool, args, made=made: made[1](tool, args, None)) for word, made in REPAIRS.items()} if repaired else {}
    try:
        one = Agent([box.get(name) for name in box.names()], None, limits=bounds, policy=policy, repairs=mend, close=lambda ask: "end",
                    verify=lambda ask: True)  # fmt: skip
    except TableError:
        return
    run, answers = one.start("go"), world.answers()

    def live() -> Iterator[StreamEvent]:
        told = 0
        more = True
        while more:
            lines, told = trace_of(run, told, 1.0), len(run.trace)
            yield from lines
            more = step(one.engine, run, answers)
        yield from trace_of(run, told, 1.0)

    events = checked(agui_events(live(), thread_id="t", run=run, agent=one))
    every = [call.id for call in run.calls]
    assert sorted(ids_of(events, TYPE.TOOL_CALL_START)) == sorted(every)
    assert sorted(ids_of(events, TYPE.TOOL_CALL_RESULT)) == sorted(every)
    again = list(agui_events(trace_of(run), thread_id="t", run=run, agent=one))
    check_order(again)
    assert sorted(ids_of(again, TYPE.TOOL_CALL_RESULT)) == sorted(every)
    assert again[-1].type == events[-1].type
    answer = one.answer(run)
    assert (events[-1].type == TYPE.RUN_ERROR) is (answer.stop_reason in FAILURES)
    assert answer.text.strip().endswith((texts(events) or [""])[-1].strip())


asked_calls = st.lists(
    st.tuples(st.sampled_from(["look", "fail", "pay", "show", "risk", "nowhere"]), st.integers(0, 3)), min_size=1, max_size=4
)
spoken = st.sampled_from([None, "", "I will.", "done", "\ud835 odd"])
decisions = st.one_of(
    st.builds(lambda asked, text: (asked, text), asked_calls, spoken),
    st.builds(lambda text: ([], text or "done"), spoken),
    st.just(ModelFailed("timeout", "slow")),
    st.just(ModelFailed("authentication", "no")),
)
words = st.sampled_from(["yes", "no", "edit", "leave", "wait"])


def answered(waiting: Any, word: str) -> dict[str, Any] | None:
    if word == "wait":
        return None
    if word == "leave":
        return {"interruptId": waiting.id, "status": "cancelled"}
    if waiting.reason == "input_required":
        return resolved(waiting.id, **({"error": "No"} if word == "no" else {"value": word}))
    shown = waiting.metadata["fsm_agent"]
    edited = {"editedArgs": shown["args"]} if word == "edit" else {}
    return resolved(waiting.id, approved=word != "no", token=shown["token"], **edited)


@given(st.lists(decisions, min_size=1, max_size=4), st.lists(words, min_size=1, max_size=6), st.booleans(), st.booleans(), st.booleans())
def test_any_conversation_keeps_the_rules_and_begins_and_ends_each_call_once(
    script: list[Any], said: list[str], in_task: bool, silent: bool, saved: bool
) -> None:
    turns: list[Decision | Exception] = []
    for turn in script:
        if isinstance(turn, Exception):
            turns.append(turn)
            continue
        asked, text = turn
        made = [(f"{len(turns)}.{n}", name, {"sum" if name == "pay" else "q": q}) for n, (name, q) in enumerate(asked)]
        turns.append(calls(*made, text=text) if made else Decision(text=text, finish="stop"))
    one = agent(*turns, *[DONE] * 4, silent=silent)
    run = one.start("go")
    streams: list[list[Any]] = []
    for visit in range(30):
        streams.append(checked(asyncio.run(visited(one, run))) if in_task else streamed(one, run))
        if run.done:
            break
        waiting = streams[-1][-1].outcome.interrupts
        assert [asked.id for asked in waiting] == [pending.call_id for pending in one.pending(run)]
        words_now = ["yes"] * len(waiting) if visit > 9 else [said[(visit + n) % len(said)] for n in range(len(waiting))]
        entries = [answered(asked, word) for asked, word in zip(waiting, words_now, strict=True)]
        if saved:
            run = one.load(one.save(run))
        apply_resume(one, run, [entry for entry in entries if entry is not None])
    assert run.done
    whole = [event for stream in streams for event in stream]
    begun, ended = ids_of(whole, TYPE.TOOL_CALL_START), ids_of(whole, TYPE.TOOL_CALL_RESULT)
    assert sorted(begun) == sorted(ended) == sorted(call.id for call in run.calls)
    places = {name: (index, -1) for index, event in enumerate(whole) if event.type == TYPE.TOOL_CALL_START for name in [event.tool_call_id]}
    for index, event in enumerate(whole):
        if event.type == TYPE.TOOL_CALL_RESULT:
            assert places[event.tool_call_id][0] < index
    messages = ids_of(whole, TYPE.TEXT_MESSAGE_START, "message_id") + ids_of(whole, TYPE.TOOL_CALL_RESULT, "message_id")
    assert len(messages) == len(set(messages))


async def visited(one: Agent, run: Run) -> list[Any]:
    return [event async for event in aagui_events(one.astream(run), thread_id="t", run=run, agent=one)]
