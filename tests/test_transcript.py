"""The history that a model is shown: one result right behind every call, in order, under ids of their own, however a run went."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import pytest
from by_hand import Hand, a_tool, off, says, taking
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import REPAIRS, World, accepted, an_engine, limits, machines, policies, reached, step, ways, worlds

from fsm_agent.core.engine import Engine
from fsm_agent.core.events import (
    Approved,
    Cancelled,
    Decided,
    DecisionFailed,
    Denied,
    Judged,
    JudgeFailed,
    Paused,
    Returned,
    Superseded,
)
from fsm_agent.core.gate import Toolbox
from fsm_agent.core.limits import Limits
from fsm_agent.core.messages import Message, Role
from fsm_agent.core.run import Run
from fsm_agent.core.saving import load, save
from fsm_agent.core.table import Table
from fsm_agent.core.transcript import as_plain, first_messages, given_ids, has_messages, is_history, transcript
from fsm_agent.core.values import Decision, Judgement, Policy, ToolCall

SYSTEM, USER, ASSISTANT, TOOL = Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.TOOL


def check_valid(messages: Sequence[Message]) -> None:
    """Every call has exactly one result, right behind it and in order; ids are unique; nobody says nothing."""
    ids = [call.id for message in messages for call in message.calls]
    assert len(ids) == len(set(ids))
    assert all(ids)
    due: list[ToolCall] = []
    for message in messages:
        if message.role is TOOL:
            assert due, f"the result of {message.call_id!r} answers no call"
            call = due.pop(0)
            assert (message.call_id, message.tool) == (call.id, message.tool)
            assert message.tool
        else:
            assert due == [], f"{due} have no result before the next message"
            assert message.text.strip() or message.calls
            assert not message.calls or message.role is ASSISTANT
            due = list(message.calls)
    assert due == []


def fresh(run: Run, box: Toolbox) -> list[Message]:
    """The transcript built from scratch, by somebody who has not read this run before."""
    history, run.history = run.history, None
    made = list(transcript(run, box))
    run.history = history
    return made


def check(engine: Engine, run: Run) -> None:
    """The transcript as it grew, checked; it is the one built from scratch, and the same once the run was loaded."""
    box = engine.setup.box
    grown = transcript(run, box)
    check_valid(grown)
    assert grown == fresh(run, box)
    assert transcript(run, box) is grown
    settled = {call.id for call in run.calls if not call.parent} | set(given_ids(run.request))
    shown = {call.id for message in grown for call in message.calls}
    if run.stop is None and not run.open_calls:
        assert shown == settled


# ---- laws


@settings(max_examples=70)
@given(worlds, limits, policies, ways, st.booleans(), st.integers(0, 3))
def test_whatever_happened_every_call_has_one_result_behind_it(
    world: World, bounds: Limits, policy: Policy, way: Mapping[str, Any], verifies: bool, every: int
) -> None:
    """Read at every step, or at some of them only, or loaded in between: it makes no difference to what is read."""
    engine = an_engine(policy=policy, verifies=verifies, repairs=REPAIRS, **way)
    run, answers, number = engine.start("x", limits=attrs.evolve(bounds, max_attempts=3)), world.answers(), 0
    for _ in range(3):
        going = True
        while going:
            if number % (every + 1) == 0:
                check(engine, run)
                again = load(save(run), engine.setup)
                assert transcript(again, engine.setup.box) == fresh(run, engine.setup.box)
            going = step(engine, run, answers)
            number += 1
        check(engine, run)
        assert {call.id for message in transcript(run, engine.setup.box) for call in message.calls} == {c.id for c in run.calls}
        if run.stop is None or not (run.stop.raise_to or run.stop.reason == "cancelled"):
            return
        engine.resume(run, run.stop.raise_to)


@settings(max_examples=60)
@given(machines(), worlds, limits, policies, ways)
def test_the_same_holds_on_any_machine(table: Table, world: World, bounds: Limits, policy: Policy, way: Mapping[str, Any]) -> None:
    table, bounds = reached(table), attrs.evolve(bounds, max_attempts=bounds.max_attempts or 3)
    if not accepted(table, bounds):
        return
    engine = an_engine(policy=policy, verifies=True, repairs=REPAIRS, **{**way, "table": table, "limits": bounds})
    run, answers = engine.start("x"), world.answers()
    while step(engine, run, answers):
        check(engine, run)
    check(engine, run)


_said = st.sampled_from([None, "", " ", "hello", 5, ["part"]])
_ids = st.sampled_from(["a", "b", "call-1", "", None])
_entries = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "assistant", "tool", "tool", "developer", 5, None])},
    optional={
        "text": _said,
        "content": _said,
        "calls": st.sampled_from([None, 5, "calls"])
        | st.lists(
            st.fixed_dictionaries({}, optional={"id": _ids, "tool": st.just("look"), "args": _said})
            | st.just("odd"),
            max_size=3,
        ),
        "call_id": _ids,
        "tool": st.sampled_from(["look", None]),
        "error": st.sampled_from(["", "raised:OSError"]),
    },
)


@settings(max_examples=150)
@given(st.lists(_entries, min_size=1, max_size=8), worlds, policies)
def test_any_history_is_mended_and_goes_on_under_ids_of_its_own(history: list[dict[str, Any]], world: World, policy: Policy) -> None:
    before = copy.deepcopy(history)
    check_valid(first_messages(history))
    assert history == before
    engine = an_engine(policy=policy, limits=off(max_turns=4))
    run, answers = engine.start(history), world.answers()
    while step(engine, run, answers):
        check(engine, run)
    check(engine, run)
    if given_ids(history):
        assert set(given_ids(history)) <= set(run.call_ids)


@settings(max_examples=60)
@given(worlds, limits, policies, ways)
def test_a_history_is_taken_up_by_a_new_run_as_it_is(world: World, bounds: Limits, policy: Policy, way: Mapping[str, Any]) -> None:
    engine = an_engine(policy=policy, repairs=REPAIRS, **way)
    run = engine.start("x", limits=attrs.evolve(bounds, max_attempts=3))
    while step(engine, run, world.answers()):
        pass
    said = list(transcript(run, engine.setup.box))
    again = first_messages(as_plain(said))
    shown = [[(call.id, call.tool) for call in message.calls] for message in said]
    assert [(m.role, m.text, m.call_id, m.error) for m in again] == [(m.role, m.text, m.call_id, m.error) for m in said]
    assert [[(call.id, call.tool) for call in message.calls] for message in again] == shown


# ---- what stands in it


def said(hand: Hand) -> list[tuple[str, str]]:
    """Role and text of each message, calls as their tools."""
    box = hand.engine.setup.box
    return [(m.role.value, m.text or " ".join(call.tool for call in m.calls)) for m in transcript(hand.run, box)]


def test_a_plain_run_reads_as_it_went() -> None:
    hand = Hand(limits=off()).asks("look").gives("c1", {"a": 1}).decides(text="it is so")
    assert said(hand) == [("user", "find x"), ("assistant", "look"), ("tool", '{"a":1}'), ("assistant", "it is so")]


def test_failures_are_shown_by_their_words_and_what_would_have_worked() -> None:
    hand = Hand(a_tool(args=taking(n={"type": "int"})), limits=off()).decides(ToolCall("look", {"n": "1"}), ToolCall("ghost"))
    one, other = transcript(hand.run, hand.engine.setup.box)[-2:]
    assert (one.error, other.error) == ("args:type:n", "args:unknown_tool")
    assert one.text.startswith("args:type:n (type:n at n (expected int; got '1'))")
    assert other.text == "args:unknown_tool (tools allowed in state gather: look)"


def test_what_was_asked_for_is_shown_under_its_own_name_and_a_nameless_call_under_one() -> None:
    hand = Hand(limits=off()).decides(ToolCall("look", {"q": 1}), ToolCall(""), ToolCall(7))  # type: ignore[arg-type]
    hand.plays()
    assert said(hand)[1] == ("assistant", "look unknown unknown")
    assert [message.tool for message in transcript(hand.run, hand.engine.setup.box)[2:]] == ["look", "unknown", "unknown"]


def test_a_repeated_id_is_shown_under_the_fresh_one() -> None:
    hand = Hand(limits=off()).decides(ToolCall("look", {"q": 1}, "c"), ToolCall("look", {"q": 2}, "c")).plays()
    ids = [call.id for call in hand.run.calls]
    assert ids[0] == "c"
    assert [message.call_id for message in transcript(hand.run, hand.engine.setup.box)[2:]] == ids


def test_a_malformed_decision_is_fed_back_and_the_next_one_is_shown_as_it_is() -> None:
    hand = Hand(limits=off(max_invalid_decisions=5))
    hand.tell(Decided(Decision(calls=5))).tell(DecisionFailed("ValueError", "no JSON", "malformed")).decides()  # type: ignore[arg-type]
    hand.asks("look").gives("c1").decides(text="done")
    assert said(hand) == [
        ("user", "find x"),
        ("user", "Your reply could not be taken: the calls of the decision are no calls. Answer again."),
        ("user", "Your reply could not be taken: ValueError: no JSON. Answer again."),
        ("user", "Your reply could not be taken: the decision held neither a call nor a text. Answer again."),
        ("assistant", "look"),
        ("tool", "hit"),
        ("assistant", "done"),
    ]


def test_a_cut_off_turn_keeps_its_text_and_its_calls_are_skipped() -> None:
    hand = Hand(limits=off(max_invalid_decisions=5), policy=Policy(on_finish={"length": "continue"}))
    hand.decides(ToolCall("look", {}, "c1"), text="first I", finish="length")
    assert said(hand)[1:3] == [("assistant", "first I"), ("tool", "skipped:truncated (the reply ended with 'length')")]


def test_a_question_is_part_of_what_was_said() -> None:
    assert said(Hand(limits=off()).decides(text="I know two", question="Which one?"))[-1] == ("assistant", "I know two\nWhich one?")


def test_a_verdict_is_told_and_its_next_action_is_a_call_like_any() -> None:
    hand = Hand(limits=off(max_verify_rounds=9, max_attempts=9), verifies=True).decides(text="done")
    hand.tell(JudgeFailed("OSError")).decides(text="done 2")
    hand.judges("need_more", reason="no source", next_action=ToolCall("look", {"q": 1}, "mine")).gives("verify-2").decides(text="done 3")
    assert said(hand)[1:] == [
        ("assistant", "done"),
        ("user", "The answer is not accepted yet: the verifier gave no verdict: OSError."),
        ("assistant", "done 2"),
        ("user", "The answer is not accepted yet: no source."),
        ("assistant", "look"),
        ("tool", "hit"),
        ("assistant", "done 3"),
    ]


@pytest.mark.parametrize("own", ["verify-1", "verify-x", "verify-"])
def test_a_model_may_use_the_ids_that_a_verifier_would(own: str) -> None:
    hand = Hand(limits=off(max_verify_rounds=9, max_attempts=9), verifies=True)
    hand.decides(ToolCall("look", {"q": 1}, own), ToolCall("look", {"q": 2}, "b")).plays().decides(text="done")
    hand.judges("need_more", reason="no", next_action=ToolCall("look", {"q": 3})).plays().decides(text="done")
    check(hand.engine, hand.run)
    asked = [[call.args["q"] for call in message.calls] for message in transcript(hand.run, hand.engine.setup.box) if message.calls]
    assert asked == [[1, 2], [3]]


def test_evidence_that_is_missing_takes_no_verdict_from_the_verifier() -> None:
    hand = Hand(limits=off(min_evidence=1, max_verify_rounds=9, max_attempts=9), verifies=True).decides(text="done")
    hand.asks("look").gives("c1").decides(text="done").judges("need_more", next_action=ToolCall("look", {"q": 1})).plays()
    check(hand.engine, hand.run)
    assert [text for role, text in said(hand) if role == "user"][1:] == [
        "The answer is not accepted yet: 0 independent pieces of evidence, 1 needed by min_evidence.",
        "The answer is not accepted yet: more is needed.",
    ]


# ---- while a turn is open


def paused() -> Hand:
    """A run that waits for a person about the second of its turns."""
    hand = Hand(a_tool("look"), a_tool("pay", approval=True), limits=off()).asks("look").gives("c1")
    return hand.decides(ToolCall("pay", {"x": 1}, "p"), ToolCall("look", {"q": 5}, "l"), text="I pay").tell(Paused())


def test_an_open_turn_is_not_in_it_and_stands_there_once_it_is_settled() -> None:
    hand = paused()
    assert said(hand) == [("user", "find x"), ("assistant", "look"), ("tool", "hit")]
    hand.tell(Approved("p")).plays()
    assert said(hand)[3:] == [("assistant", "I pay"), ("tool", "hit p"), ("tool", "hit l")]
    check(hand.engine, hand.run)


def test_changed_arguments_are_told_and_what_was_asked_for_stays() -> None:
    hand = paused().tell(Approved("p", {"x": 2}, True)).plays()
    (asked,) = (message for message in transcript(hand.run, hand.engine.setup.box) if len(message.calls) == 2)
    assert asked.calls[0].args == {"x": 1}
    assert said(hand)[4] == ("tool", '(a person changed the arguments to {"x":2}) hit p')


def test_a_denied_call_and_its_neighbours_have_their_results() -> None:
    hand = paused().tell(Denied("p", "no money")).plays()
    assert said(hand)[4:] == [("tool", "denied:no money (a person did not let the call run)"), ("tool", "hit l")]


def test_a_new_message_comes_behind_the_calls_that_it_superseded() -> None:
    hand = paused()
    said(hand)
    hand.tell(Superseded("rather not"))
    assert [role for role, _ in said(hand)[3:]] == ["assistant", "tool", "tool", "user"]
    assert said(hand)[-1] == ("user", "rather not")
    check(hand.engine, hand.run)


def test_a_run_that_was_cancelled_and_taken_up_again_shows_what_became_of_its_calls() -> None:
    hand = Hand(limits=off()).asks("look", "look").begins().gives("c1").tell(Cancelled())
    assert [text for _, text in said(hand)[2:]] == ["hit", "cancelled (the run was stopped while the call was open)"]
    hand.engine.resume(hand.run)
    assert said(hand) == [("user", "find x")]
    hand.plays()
    assert [text for _, text in said(hand)[2:]] == ["hit", "hit c2"]
    check(hand.engine, hand.run)


def test_a_repaired_call_is_shown_once_with_what_became_of_it_and_its_last_result() -> None:
    hand = Hand(a_tool(args=taking(n={"type": "int", "max": 3})), limits=off(), repairs={"args:range:n": ("n", _three)})
    hand.decides(ToolCall("look", {"n": 9}, "c1")).plays()
    assert said(hand)[1:] == [("assistant", "look"), ("tool", '(the call was repaired to look {"n":3}) hit c1')]


def test_a_call_whose_repair_had_no_idea_is_shown_as_it_was_asked_for() -> None:
    hand = Hand(a_tool(args=taking(n={"type": "int", "max": 3})), limits=off(), repairs={"args:range:n": ("n", lambda *_: None)})
    hand.decides(ToolCall("look", {"n": 9}, "c1"))
    assert [text.partition(" ")[0] for _, text in said(hand)[2:]] == ["args:range:n"]


def _three(tool: str, args: Any, run: Run) -> tuple[str, Any]:
    return tool, {"n": 3}


def test_a_result_that_is_too_large_is_shown_cut() -> None:
    hand = Hand(a_tool(max_result_bytes=40), limits=off()).asks("look").gives("c1", "x" * 100)
    text = said(hand)[-1][1]
    assert len(text) <= 40
    assert text.endswith("[cut: 100 bytes in all]")


def test_a_tool_that_is_tried_again_is_one_call() -> None:
    hand = Hand(limits=off(max_turns=9)).asks("look").begins().gives("c1", 1, says("EMPTY"))
    hand.tell(Decided(Decision(text="done"))) if hand.reason is None else None
    assert [role for role, _ in said(hand)].count("tool") == 1


# ---- what a run was asked


@pytest.mark.parametrize(
    ("request_", "wanted"),
    [
        ("hello", [(USER, "hello")]),
        ({"a": 1}, [(USER, '{"a":1}')]),
        ([1, 2], [(USER, "[1,2]")]),
        ([], [(USER, "[]")]),
        ([{"text": "no role"}], [(USER, '[{"text":"no role"}]')]),
        ([{"role": "system", "text": "Be brief."}, {"role": "user", "content": "hi"}], [(SYSTEM, "Be brief."), (USER, "hi")]),
        ([{"role": "developer", "text": "hi"}], [(USER, "hi")]),
        ([{"role": "user", "content": [{"type": "text"}]}], [(USER, '[{"type":"text"}]')]),
        ([{"role": "user", "text": "hi"}, {"role": "assistant", "text": " "}], [(USER, "hi")]),
        ([{"role": "tool", "text": "a result of nothing", "call_id": "c"}, {"role": "user", "text": "hi"}], [(USER, "hi")]),
    ],
)
def test_a_request_as_messages(request_: Any, wanted: list[tuple[Role, str]]) -> None:
    assert [(message.role, message.text) for message in first_messages(request_)] == wanted


def test_a_call_of_a_given_history_without_a_result_gets_one_and_repeated_ids_fresh_ones() -> None:
    calls = [{"id": "a", "tool": "look", "args": {"q": 1}}, {"id": "a", "tool": "look", "args": {"q": 2}}, {"tool": "look"}]
    history = [
        {"role": "user", "text": "hi"},
        {"role": "assistant", "calls": calls},
        {"role": "tool", "call_id": "a", "text": "one"},
        {"role": "tool", "call_id": "a", "text": "two"},
    ]
    asked, *results = first_messages(history)[1:]
    assert [call.id for call in asked.calls] == ["a", "call-2", "call-3"]
    assert [(result.call_id, result.text) for result in results] == [
        ("a", "one"),
        ("call-2", "two"),
        ("call-3", "cancelled (no result is known)"),
    ]
    assert given_ids(history) == ["a", "call-2", "call-3"]


@pytest.mark.parametrize("named", [{}, {"tool": None}, {"tool": ""}])
def test_a_call_of_a_given_history_that_names_no_tool_is_shown_under_one_name(named: dict[str, Any]) -> None:
    _, result = messages = first_messages([{"role": "assistant", "calls": [{"id": "a", **named}]}])
    assert [(call.tool, call.id) for call in messages[0].calls] == [("unknown", "a")]
    assert (result.role, result.tool, result.call_id) == (TOOL, "unknown", "a")


def test_a_run_gives_no_id_that_its_history_has_already() -> None:
    history = [{"role": "user", "text": "hi"}, {"role": "assistant", "calls": [{"id": "call-1", "tool": "look"}]}]
    hand = Hand(request=history, limits=off()).decides(ToolCall("look", {"q": 1}), ToolCall("look", {"q": 2}, "call-1")).plays()
    assert [call.id for call in hand.run.calls] == ["call-2", "call-3"]
    check(hand.engine, hand.run)


def test_histories_and_messages_are_told_apart_from_other_requests() -> None:
    assert is_history([{"role": "user"}])
    assert has_messages([Message(role=USER, text="hi")])
    assert has_messages([Message(role=USER), {"role": "user"}])
    for other in ("hi", [], [{"text": "hi"}], [1], {"role": "user"}, None, [Message(role=USER)]):
        assert not is_history(other)
    for other in ("hi", [], [{"role": "user"}], None):
        assert not has_messages(other)


class Unread(list[Any]):
    """A list that cannot be gone through."""

    def __iter__(self) -> Any:
        raise RuntimeError("no reading")


def test_what_cannot_be_read_is_no_history() -> None:
    for odd in (Unread([{"role": "user"}]), [{"role": "user"}, Unmapped()]):
        assert is_history(odd) is False
        assert given_ids(odd) == []


class Unmapped(dict[str, Any]):
    """A mapping that says of nothing whether it is in it."""

    def __contains__(self, key: object) -> bool:
        raise RuntimeError("no looking")


def test_what_a_provider_wants_back_goes_along_with_a_history_of_the_models_messages_alone() -> None:
    kept = {"thinking": ["signed"]}
    mine, theirs = Message(role=Role.ASSISTANT, text="seven", kept=kept), {"role": "user", "text": "why?", "kept": kept}
    plain = as_plain([mine])
    assert plain == [{"role": "assistant", "text": "seven", "kept": kept}]
    assert first_messages([*plain, theirs]) == [mine, Message(role=USER, text="why?")]


def test_what_was_redacted_is_not_in_it() -> None:
    hand = Hand(a_tool("pin", approval=True, secret=("q",)), limits=off(max_verify_rounds=9, max_attempts=9), verifies=True)
    hand.decides(ToolCall("pin", {"q": "swordfish"}, "p")).tell(Paused()).tell(Approved("p", {"q": "hunter22"}, True)).plays()
    hand.decides(text="done").tell(
        Judged(Judgement(decision="need_more", next_action=ToolCall("pin", {"q": "tr0ub4dor"})))
    ).tell(Approved("verify-1")).tell(Returned("verify-1", "in")).decides(text="done")
    told = repr(transcript(hand.run, hand.engine.setup.box)) + save(hand.run)
    assert not [secret for secret in ("swordfish", "hunter22", "tr0ub4dor") if secret in told]
    check(hand.engine, hand.run)
