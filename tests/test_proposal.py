"""Decisions: calls, a final text, or a fault that is fed back, each within its bound and under its own name."""

from __future__ import annotations

import itertools
from typing import Any

import attrs
import pytest
from by_hand import Hand, a_tool, off
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.agent import Agent
from fsm_agent.core.answers import answer_of
from fsm_agent.core.effects import CallTools, Compose, Decide
from fsm_agent.core.events import Composed, DecisionFailed
from fsm_agent.core.limits import Limits
from fsm_agent.core.proposal import CUT_OFF, take_text
from fsm_agent.core.saving import load, save
from fsm_agent.core.typed_answer import typed_answer
from fsm_agent.core.values import Decision, Policy, Status, StopReason, ToolCall, Usage
from fsm_agent.testing import ScriptedDecider

LOOK = ToolCall("look", {"q": "x"})
NAMELESS = [ToolCall("", {}), ToolCall(None, {}), ToolCall(7, {}), ToolCall(["look"], {})]  # type: ignore[arg-type]


# ---- what a decision is


@pytest.mark.parametrize("text", [None, "", "  ", "thinking aloud", 7, ["x"]])
@pytest.mark.parametrize("finish", ["", "tool_calls", "end_turn", "stop"])
def test_calls_are_taken_unless_a_final_text_stands_beside_a_stop(text: Any, finish: str) -> None:
    hand = Hand().decides(LOOK, text=text, finish=finish)
    if text == "thinking aloud" and finish == "stop":
        assert hand.words == ["skipped:final"]
        assert hand.reason is StopReason.ANSWERED
        assert hand.run.draft == Decision(text=text, finish=finish)
    else:
        assert isinstance(hand.effect, CallTools)


def test_a_final_text_ends_the_run_and_the_calls_beside_its_stop_get_a_skipped_result() -> None:
    hand = Hand().decides(LOOK, ToolCall("ghost"), NAMELESS[0], text="done", finish="stop")
    assert hand.words == ["skipped:final"] * 3
    assert [tuple(row[2:]) for row in hand.run.trace if row[0] == "call_refused"] == [(call.id, "skipped:final") for call in hand.calls]
    assert (hand.run.body_runs, hand.run.tool_calls, hand.run.emitted_calls, hand.run.bad_arguments) == (0, 0, 3, 0)
    answer = answer_of(hand.run)
    assert answer is not None
    assert (answer.status, answer.text, answer.stop_reason) == (Status.OK, "done", StopReason.ANSWERED)


def test_a_call_carries_what_was_said_of_it() -> None:
    call = Hand().decides(ToolCall("look", {"q": 1}, "id", "find x", "because")).effect.calls[0]
    assert (call.id, call.tool, call.args, call.turn) == ("id", "look", {"q": 1}, 1)
    assert (call.intent, call.reason) == ("find x", "because")


@pytest.mark.parametrize("citations", [(), ("c1",), ("look",)])
@pytest.mark.parametrize("question", [None, "which one?"])
@pytest.mark.parametrize("text", ["done", None])
def test_a_final_decision_has_a_text_or_one_question_and_citations(
    citations: tuple[str, ...], question: str | None, text: str | None
) -> None:
    hand = Hand(limits=off(max_invalid_decisions=0)).asks("look").gives("c1")
    hand.decides(text=text, question=question, citations=citations)
    answer = answer_of(hand.run)
    assert answer is not None
    if text or question:
        assert answer.ok
        assert answer.text == "\n".join(part for part in (text, question) if part)
        assert answer.stop_reason is (StopReason.QUESTION if question else StopReason.ANSWERED)
        assert answer.citations == citations
        assert answer.next_questions == ((question,) if question else ())
    else:
        assert answer.stop_reason is StopReason.MODEL_EMPTY


def test_a_question_is_asked_as_it_is_also_where_a_typed_answer_is_wanted() -> None:
    hand = Hand(limits=off(max_invalid_decisions=0), answer=typed_answer(int)).decides(question="which one?")
    assert hand.reason is StopReason.QUESTION


# ---- ids


@pytest.mark.parametrize("odd", ["", None, 7, "taken", ["id"], b"id"])
def test_a_missing_or_repeated_id_gets_a_fresh_one(odd: Any) -> None:
    hand = Hand().decides(ToolCall("look", {"q": 0}, "taken")).gives("taken")
    hand.decides(ToolCall("look", {"q": 1}, odd), ToolCall("look", {"q": 2}, odd), ToolCall("look", {"q": 3}, "own"))
    ids = [call.id for call in hand.calls]
    assert len(set(ids)) == 4
    assert (ids[0], ids[3]) == ("taken", "own")
    assert all(type(one) is str and one for one in ids)


def test_a_fresh_id_steps_aside_for_one_that_is_taken() -> None:
    hand = Hand().decides(ToolCall("look", {}, "call-2"), ToolCall("look", {"q": 1}), ToolCall("look", {"q": 2}))
    assert [call.id for call in hand.calls] == ["call-2", "call-3", "call-4"]


@given(turns=st.lists(st.lists(st.sampled_from(["", "a", "call-1", "call-3", "verify-1"]), min_size=1, max_size=3), max_size=4))
def test_ids_are_unique_within_a_run(turns: list[list[str]]) -> None:
    hand = Hand(limits=off())
    for ids in turns:
        hand.decides(*(ToolCall("look", {"q": n}, one) for n, one in enumerate(ids))).plays()
    made = [call.id for call in hand.calls]
    assert len(made) == len(set(made)) == sum(map(len, turns))
    assert all(call.ok for call in hand.calls)


# ---- malformed, empty and cut off


@pytest.mark.parametrize("calls", [made for n in (1, 2) for made in itertools.combinations(NAMELESS, n)], ids=range(10))
def test_a_decision_without_a_usable_call_and_without_text_is_malformed(calls: tuple[ToolCall, ...]) -> None:
    hand = Hand().decides(*calls)
    assert isinstance(hand.effect, Decide)
    assert hand.run.invalid_decisions == 1
    assert hand.run.note == "no call of the decision names a tool"
    assert hand.words == ["skipped:invalid_decision"] * len(calls)
    assert load(save(hand.run), hand.engine.setup) == hand.run


@pytest.mark.parametrize("call", NAMELESS, ids=range(4))
def test_a_nameless_call_beside_a_usable_one_is_refused_alone(call: ToolCall) -> None:
    hand = Hand().decides(call, LOOK, call)
    assert hand.words == ["args:unknown_tool", "open", "args:unknown_tool"]
    assert hand.run.invalid_decisions == 0


@pytest.mark.parametrize("call", NAMELESS, ids=range(4))
def test_a_nameless_call_beside_a_text_is_skipped(call: ToolCall) -> None:
    hand = Hand().decides(call, text="done")
    assert (hand.words, hand.reason) == (["skipped:final"], StopReason.ANSWERED)


@pytest.mark.parametrize("calls", [None, 7, ["look"], [None], [LOOK, "look"], "look"], ids=range(6))
def test_what_are_no_calls_at_all_is_malformed(calls: Any) -> None:
    agent = Agent([a_tool()], ScriptedDecider([Decision(calls=calls), "done"]), limits=off())
    answer = agent.run("find x")
    assert answer.ok
    assert answer.run is not None
    assert (answer.run.turns, answer.run.calls) == (2, [])
    assert [detail for kind, _, _, detail in answer.run.trace if kind == "decision"] == [0, 0]


KINDS: dict[str, tuple[Any, Any, StopReason]] = {
    "nameless": (Decision(calls=(NAMELESS[0],)), {}, StopReason.INVALID_DECISION),
    "no json": (DecisionFailed("JSONDecodeError", "no JSON", "malformed"), {}, StopReason.INVALID_DECISION),
    "empty": (Decision(), {}, StopReason.MODEL_EMPTY),
    "blank": (Decision(text=" \n"), {}, StopReason.MODEL_EMPTY),
    "empty stop": (Decision(finish="stop"), {}, StopReason.MODEL_EMPTY),
    "length": (Decision(calls=(LOOK,), finish="length"), {"length": "continue"}, StopReason.TRUNCATED),
    "max_tokens": (Decision(finish="max_tokens"), {"length": "continue"}, StopReason.TRUNCATED),
    "filter": (Decision(text="so far", finish="content_filter"), {"content_filter": "continue"}, StopReason.CONTENT_FILTER),
    "refusal": (Decision(finish="refusal"), {"refusal": "continue"}, StopReason.CONTENT_FILTER),
}
EVERY_KIND = Policy(on_finish={"length": "continue", "content_filter": "continue", "refusal": "continue"})


def give(hand: Hand, decision: Any) -> Hand:
    return hand.tell(decision) if isinstance(decision, DecisionFailed) else hand.decides(*decision.calls, **_rest(decision))


def _rest(decision: Decision) -> dict[str, Any]:
    return {name: value for name, value in attrs.asdict(decision, recurse=False).items() if name != "calls"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("most", [0, 1, 2, 3])
def test_so_many_in_a_row_are_fed_back_and_the_next_ends_the_run_under_its_own_reason(kind: str, most: int) -> None:
    decision, on_finish, reason = KINDS[kind]
    hand = Hand(limits=off(max_invalid_decisions=most), policy=Policy(on_finish=on_finish), composes=True)
    for _ in range(most):
        assert isinstance(give(hand, decision).effect, Decide)
        assert hand.run.note
    give(hand, decision)
    assert hand.reason is reason
    assert hand.effect is None
    stop = hand.run.stop
    assert stop is not None
    (closed,) = stop.closed
    assert (closed.limit, closed.allowed, closed.used) == ("max_invalid_decisions", most, most + 1)
    hand.engine.resume(hand.run, stop.raise_to)
    assert isinstance(hand.effect, Decide)


@pytest.mark.parametrize(("first", "second"), list(itertools.product(KINDS, repeat=2)))
def test_the_kinds_share_one_bound_and_the_last_names_the_reason(first: str, second: str) -> None:
    hand = Hand(limits=off(max_invalid_decisions=1), policy=EVERY_KIND)
    give(give(hand, KINDS[first][0]), KINDS[second][0])
    assert hand.reason is KINDS[second][2]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("usable", ["calls", "refused calls"])
def test_a_usable_decision_between_them_starts_the_count_anew(kind: str, usable: str) -> None:
    hand = Hand(limits=off(max_invalid_decisions=2, max_turns=99), policy=EVERY_KIND)
    for _ in range(3):
        give(give(hand, KINDS[kind][0]), KINDS[kind][0])
        hand.decides(ToolCall("look" if usable == "calls" else "ghost", {"q": hand.run.turns})).plays()
    assert hand.reason is None
    assert hand.run.invalid_decisions == 0


def test_two_in_a_row_by_default() -> None:
    assert Limits().max_invalid_decisions == 2


def test_a_turn_of_any_kind_is_a_model_turn() -> None:
    hand = Hand(limits=off(max_turns=len(KINDS) + 1), policy=EVERY_KIND)
    for decision, *_ in KINDS.values():
        give(hand, decision)
    assert hand.run.turns == len(KINDS)
    hand.decides(LOOK).plays()
    assert hand.reason is StopReason.MAX_TURNS


# ---- finishes


NAMES = {"length": "length", "max_tokens": "length", "content_filter": "content_filter", "refusal": "refusal", "stop": "empty"}


@pytest.mark.parametrize(("finish", "name"), list(NAMES.items()))
@pytest.mark.parametrize("declared", [None, "end", "continue"])
@pytest.mark.parametrize("other", ["end", "continue"])
def test_each_kind_of_finish_is_handled_as_declared_for_it_alone(
    finish: str, name: str, declared: str | None, other: str
) -> None:
    rest = {kind: other for kind in ("length", "content_filter", "refusal", "empty") if kind != name}
    policy = Policy(on_finish=rest if declared is None else {**rest, name: declared})
    hand = Hand(policy=policy).decides(finish=finish)
    default = "continue" if name == "empty" else "end"
    if (declared or default) == "continue":
        assert isinstance(hand.effect, Decide)
        return
    assert hand.reason is {"length": StopReason.TRUNCATED, "empty": StopReason.MODEL_EMPTY}.get(name, StopReason.CONTENT_FILTER)
    stop = hand.run.stop
    assert stop is not None
    assert finish == "stop" or repr(finish) in stop.detail
    answer = answer_of(hand.run)
    assert answer is not None
    assert answer.status is Status.FAILED
    assert answer.text


@pytest.mark.parametrize("finish", sorted(CUT_OFF))
@pytest.mark.parametrize("text", ["so far", None])
@pytest.mark.parametrize("then", ["end", "continue"])
def test_calls_of_a_cut_off_turn_do_not_run_its_text_is_kept_and_it_is_never_a_success(
    finish: str, text: str | None, then: str
) -> None:
    policy = Policy(on_finish=dict.fromkeys(("length", "content_filter", "refusal"), then))
    hand = Hand(policy=policy, limits=off(max_invalid_decisions=0))
    hand.decides(LOOK, ToolCall("ghost"), text=text, finish=finish)
    reason = StopReason.TRUNCATED if finish in ("length", "max_tokens") else StopReason.CONTENT_FILTER
    assert hand.words == [f"skipped:{reason}"] * 2
    assert (hand.run.emitted_calls, hand.run.tool_calls, hand.run.body_runs) == (2, 0, 0)
    answer = answer_of(hand.run)
    assert answer is not None
    assert answer.stop_reason is reason
    assert answer.status is (Status.PARTIAL if text else Status.FAILED)
    assert ("so far" in answer.text) is bool(text)


def test_a_cut_off_text_that_was_continued_gives_way_to_the_whole_one() -> None:
    hand = Hand(policy=EVERY_KIND).decides(text="the ans", finish="length").decides(text="the answer is 7")
    answer = answer_of(hand.run)
    assert answer is not None
    assert (answer.status, answer.text) == (Status.OK, "the answer is 7")


# ---- a provider that fails, what it costs, the closing answer


@pytest.mark.parametrize("message", ["", "overloaded"])
@pytest.mark.parametrize("found", [True, False])
def test_a_model_that_fails_ends_the_run_and_what_was_found_is_kept(message: str, found: bool) -> None:
    hand = Hand()
    if found:
        hand.asks("look").gives("c1", "hit")
    hand.tell(DecisionFailed("APIError", message))
    answer = answer_of(hand.run)
    assert answer is not None
    assert (answer.stop_reason, answer.status) == (StopReason.MODEL_ERROR, Status.PARTIAL if found else Status.FAILED)
    assert hand.run.note == f"APIError{': ' if message else ''}{message}"
    hand.engine.resume(hand.run)
    assert isinstance(hand.effect, Decide)


def test_a_request_that_failed_for_the_moment_is_told_in_the_trace_and_forgotten_with_the_next_decision() -> None:
    hand = Hand(limits=off(max_turns=9)).tell(DecisionFailed("timeout", "late", "passing"), now=0.5)
    assert hand.run.trace[-1] == ("decision_failed", 0.5, "timeout", "late")
    assert (hand.run.failed_requests, hand.run.note) == (1, "timeout: late")
    hand.waits().decides(LOOK)
    assert (hand.run.failed_requests, hand.run.note) == (0, "")


ODD_USAGES = [
    Usage(input_tokens=-5, output_tokens=-1, cost=-1.0), Usage(cost=float("nan")), Usage(cost=float("inf")),
    Usage(input_tokens=None, output_tokens="7", cost=None),  # type: ignore[arg-type]
]  # fmt: skip


def test_tokens_and_cost_add_up() -> None:
    hand = Hand(limits=off(max_turns=9))
    for usage in (Usage(input_tokens=3, output_tokens=4, cost=0.5), None, Usage(input_tokens=1), Usage(cost=1)):
        hand.decides(LOOK, usage=usage).plays()
    assert (hand.run.tokens, hand.run.cost) == (8, 1.5)


@pytest.mark.parametrize("usage", ODD_USAGES, ids=range(len(ODD_USAGES)))
def test_what_does_not_add_up_is_not_added_for_a_counter_never_falls(usage: Usage) -> None:
    hand = Hand(limits=off(max_tokens=100, max_cost=9.0)).decides(LOOK, usage=Usage(input_tokens=5, cost=1.0)).plays()
    hand.decides(LOOK, usage=usage)
    assert (hand.run.tokens, hand.run.cost) == (5, 1.0)


@pytest.mark.parametrize("limit", [{"max_tokens": 5}, {"max_cost": 1.0}])
def test_a_spent_budget_lets_the_turn_finish_and_no_other_begin(limit: dict[str, Any]) -> None:
    hand = Hand(limits=off(**limit)).decides(LOOK, usage=Usage(input_tokens=5, cost=1.0)).plays()
    assert hand.words == ["ok"]
    assert hand.reason is (StopReason.MAX_TOKENS if "max_tokens" in limit else StopReason.MAX_COST)


@pytest.mark.parametrize("finish", ["length", "stop", ""])
def test_every_emitted_call_counts_also_skipped_ones_and_the_crossing_turn_finishes(finish: str) -> None:
    """Seed 004's cumulative maximum."""
    hand = Hand(limits=off(stop_after_tool_calls=3, max_calls_per_turn=1), policy=EVERY_KIND)
    hand.decides(LOOK, ToolCall("ghost"), finish=finish, text=None).plays()
    assert isinstance(hand.effect, Decide)
    hand.decides(ToolCall("look", {"q": "y"}), ToolCall("look", {"q": "z"})).plays()
    assert hand.words[-2:] == ["ok", "skipped:max_calls_per_turn"]
    assert hand.reason is StopReason.STOP_AFTER_TOOL_CALLS
    assert hand.run.emitted_calls == 4


@pytest.mark.parametrize("text", ["the end", " the end ", "", "  ", None, 7])
def test_a_closing_answer_is_kept_where_it_says_anything(text: Any) -> None:
    hand = Hand(limits=off(max_tool_calls=0, max_turns=9), composes=True).asks("look")
    assert isinstance(hand.effect, Compose)
    hand.tell(Composed(text))
    assert hand.run.closing_text == (text if isinstance(text, str) and text.strip() else "")
    answer = answer_of(hand.run)
    assert answer is not None
    assert answer.text.startswith("the end" if hand.run.closing_text else "Stopped: max_tool_calls")
    before = hand.run.closing_text
    take_text(hand.run, None)
    assert hand.run.closing_text == before


odd_values = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.lists(st.text(max_size=3), max_size=2)


@given(
    calls=st.lists(st.builds(ToolCall, tool=odd_values, args=odd_values, id=odd_values, intent=st.text(max_size=3)), max_size=4),
    text=odd_values,
    question=st.none() | st.text(max_size=5),
    finish=st.sampled_from(["", "stop", "length", "refusal", "odd"]),
    policy=st.sampled_from([Policy(), EVERY_KIND, Policy(on_finish={"empty": "end"})]),
)
def test_every_call_of_every_decision_has_exactly_one_result_and_the_run_goes_on_or_says_why(
    calls: list[ToolCall], text: Any, question: str | None, finish: str, policy: Policy
) -> None:
    hand = Hand(a_tool(), limits=off(max_turns=9), policy=policy)
    hand.decides(*calls, text=text, question=question, finish=finish).plays()
    assert len(hand.calls) == len(calls)
    assert all(call.ok is not None for call in hand.calls)
    assert (hand.reason is None) is isinstance(hand.effect, Decide)
    assert hand.run.emitted_calls == len(calls)


@pytest.mark.parametrize(
    "odd", [{"usage": {"input_tokens": 5}}, {"usage": 5}, {"finish": ["stop"]}, {"finish": 5}, {"question": 5}], ids=range(5)
)
def test_a_part_of_the_wrong_kind_is_left_out_and_the_text_is_taken(odd: dict[str, Any]) -> None:
    answer = Agent([], lambda ask: Decision(text="the answer", **odd), limits=Limits.off(max_turns=3, max_attempts=3)).run("x")
    assert (answer.status, answer.text) == ("ok", "the answer")


@pytest.mark.parametrize("question", ["   ", 5, "", None], ids=range(4))
def test_a_question_that_asks_nothing_is_no_decision(question: Any) -> None:
    answer = Agent([], lambda ask: Decision(question=question), limits=Limits.off(max_turns=9, max_attempts=3)).run("x")
    assert answer.stop_reason != "question"


def test_a_request_that_failed_called_nothing() -> None:
    hand = Hand(limits=off(max_turns=9)).asks("look", "look").plays()
    assert hand.run.last_emitted == 2
    hand.tell(DecisionFailed("timeout", "late", "passing"), now=0.5)
    assert (hand.run.turns, hand.run.emitted_calls, hand.run.last_emitted) == (2, 2, 0)


def test_a_text_that_its_verifier_sends_back_ends_a_row_of_unusable_replies_too() -> None:
    hand = Hand(limits=off(max_invalid_decisions=1, max_verify_rounds=9), verifies=True).decides()
    assert hand.run.invalid_decisions == 1
    hand.decides(text="a guess")
    assert (hand.run.invalid_decisions, hand.run.note) == (0, "")
    hand.judges("need_more", reason="too little").decides()

    assert (hand.run.stop, hand.run.invalid_decisions) == (None, 1)
