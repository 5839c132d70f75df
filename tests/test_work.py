"""What each state does: what it asks for, what it takes for an answer, and what it refuses to be told."""

from __future__ import annotations

import copy
import itertools
import time
import unicodedata
from typing import Any

import attrs
import pytest
from by_hand import Hand, a_tool, off, says

from fsm_agent.core.agent_table import AGENT
from fsm_agent.core.answers import answer_of
from fsm_agent.core.autogpt_table import AUTOGPT
from fsm_agent.core.effects import CallTools, Compose, Decide, Judge, Wait
from fsm_agent.core.errors import WrongEvent
from fsm_agent.core.events import (
    Composed,
    ComposeFailed,
    Decided,
    DecisionFailed,
    Event,
    Judged,
    JudgeFailed,
    Returned,
    Started,
    Waited,
)
from fsm_agent.core.guards import steps_left, turns_left
from fsm_agent.core.limits import Limits
from fsm_agent.core.run import Run
from fsm_agent.core.table import Kind, Row, State, Table
from fsm_agent.core.tools import Retry
from fsm_agent.core.typed_answer import typed_answer
from fsm_agent.core.values import Decision, Judgement, Policy, Status, StopReason, ToolCall, Usage
from fsm_agent.core.work import WORK

# ---- normalize


@pytest.mark.parametrize(
    ("given", "request_"),
    [
        ("find x", "find x"),
        ("  find x \n", "find x"),
        ("a\r\nb\rc\nd", "a\nb\nc\nd"),
        (unicodedata.normalize("NFD", "é"), unicodedata.normalize("NFC", "é")),
        ("\ud800", "\ud800"),
        ([{"role": "user", "content": " x "}], [{"role": "user", "content": "x"}]),
        ([{"role": "system", "text": " x "}], [{"role": "system", "text": " x "}]),
    ],
)
def test_a_request_is_trimmed_and_made_canonical(given: Any, request_: Any) -> None:
    hand = Hand(request=given)
    assert (hand.run.request, hand.run.given) == (request_, given)
    assert isinstance(hand.effect, Decide)


@pytest.mark.parametrize("given", [None, "", "  ", "\r\n", "\t\u3000", [], {}, ()])
def test_an_empty_request_is_refused_before_anybody_is_asked(given: Any) -> None:
    hand = Hand(request=given)
    assert (hand.reason, hand.run.turns, hand.run.path) == (StopReason.INVALID_REQUEST, 0, ["normalize", "final"])
    answer = answer_of(hand.run)
    assert answer is not None
    assert (answer.status, "the request is empty" in answer.text) == (Status.FAILED, True)


USER = {"role": "user", "text": "x"}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (7, "the request is 7; give a text"),
        (0, "the request is 0"),
        (True, "the request is True"),
        (b"x", "the request is b'x'"),
        ({"query": "x"}, "give a text, or a list of messages with role and text"),
        (["x"], "message 1 of the request is 'x'"),
        ([USER, 5, None], "message 2 of the request is 5; give a mapping"),
        ([{"text": "x"}], "message 1 of the request has the role None; there are system, user, assistant, tool"),
        ([{"role": ["user"], "text": "x"}], "has the role ['user']"),
        ([USER, {"role": "robot", "text": "x"}], "message 2 of the request has the role 'robot'"),
        ([USER, {"role": "user"}], "message 2 of the request (user) has the text None; give a text"),
        ([USER, {"role": "user", "content": [{"type": "text"}]}], "give a text"),
        ([USER, {"role": "assistant"}], "message 2 of the request (assistant) has the text None; give a text, or calls"),
        ([USER, {"role": "assistant", "calls": [7]}], "has the calls [7]; give a list of mappings with id, tool and args"),
        ([USER, {"role": "assistant", "text": 7, "calls": [{"id": "a", "tool": "t"}]}], "has the text 7"),
    ],
)
def test_what_is_neither_a_text_nor_a_history_is_refused_with_what_would_have_been_one(given: Any, why: str) -> None:
    hand = Hand(request=given)
    assert (hand.reason, hand.run.turns, hand.run.path) == (StopReason.INVALID_REQUEST, 0, ["normalize", "final"])
    assert why in hand.run.note


@pytest.mark.parametrize(
    "more",
    [
        {"role": "assistant", "text": ""},
        {"role": "assistant", "text": None, "calls": [{"id": "a", "tool": "t", "args": {}}]},
        {"role": "tool", "call_id": "a", "text": {"n": 1}},
    ],
)
def test_a_history_may_hold_calls_their_results_and_silence(more: Any) -> None:
    assert isinstance(Hand(request=[USER, more, USER]).effect, Decide)


def test_what_the_hosts_normalizer_makes_of_a_request_is_its_own_affair() -> None:
    assert isinstance(Hand(request="x", normalizer=lambda request: {"query": request}).effect, Decide)
    assert isinstance(Hand(request={"query": "x"}, normalizer=lambda request: request["query"]).effect, Decide)
    assert Hand(request=7, normalizer=lambda request: request).reason is StopReason.INVALID_REQUEST


@pytest.mark.parametrize("error", [GeneratorExit("x"), BaseException("x")], ids=repr)
def test_whatever_a_normalizer_raises_refuses_the_request_by_its_name(error: BaseException) -> None:
    hand = Hand(normalizer=lambda request: _raises(error))
    assert hand.reason is StopReason.INVALID_REQUEST
    assert type(error).__name__ in hand.run.note
    with pytest.raises(KeyboardInterrupt):
        Hand(normalizer=lambda request: _raises(KeyboardInterrupt()))


def _raises(error: BaseException) -> Any:
    raise error


@pytest.mark.parametrize("made", ["", " ", None, [], {}])
def test_what_the_hosts_normalizer_makes_empty_is_refused_too(made: Any) -> None:
    assert Hand(normalizer=lambda request: made).reason is StopReason.INVALID_REQUEST


def test_the_hosts_normalizer_gets_the_canonical_request_and_its_word_is_kept() -> None:
    seen: list[Any] = []
    hand = Hand(request=" A\r\nB ", normalizer=lambda request: seen.append(request) or request.lower())
    assert (seen, hand.run.request) == (["A\nB"], "a\nb")


class Wordless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(("error", "word"), [(ValueError("no verb"), "no verb"), (Wordless(), "Wordless")])
def test_a_normalizer_that_raises_refuses_the_request_with_its_reason(error: Exception, word: str) -> None:
    def refuse(request: Any) -> Any:
        raise error

    hand = Hand(normalizer=refuse)
    assert hand.reason is StopReason.INVALID_REQUEST
    assert hand.run.note.startswith(f"the normalizer refused the request: {type(error).__name__}: ")
    assert word in hand.run.note


def test_a_normalizer_that_raises_without_a_word_refuses_by_its_name_alone() -> None:
    def refuse(request: Any) -> Any:
        raise ValueError

    assert Hand(normalizer=refuse).run.note == "the normalizer refused the request: ValueError"


class Unequal:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparing")

    def __len__(self) -> int:
        raise RuntimeError("no length")

    __hash__ = None  # type: ignore[assignment]


def test_an_odd_request_is_refused_without_being_looked_into() -> None:
    for request in (Unequal(), 10**5000, float("nan"), {1, 2}, b"x"):
        assert Hand(request=request).reason is StopReason.INVALID_REQUEST


def test_a_request_of_many_combining_marks_is_taken_in_little_time() -> None:
    started = time.perf_counter()
    Hand(request="a" + "\u0301\u0316" * 200_000)
    assert time.perf_counter() - started < 2


# ---- what a state refuses to be told

EVENTS: list[Event] = [
    Decided(Decision(text="x")), DecisionFailed("E"), Started(("c1",)), Returned("c1", 1), Judged(Judgement(decision="done")),
    JudgeFailed("E"), Composed("x"), ComposeFailed("E"), Waited(),
]  # fmt: skip


def at(effect: type[Any]) -> Hand:
    """A run that asks for this."""
    if effect is Decide:
        return Hand()
    if effect is CallTools:
        return Hand().asks("look")
    if effect is Judge:
        return Hand(verifies=True).decides(text="done")
    if effect is Compose:
        return Hand(limits=off(max_tool_calls=0, max_turns=9), composes=True).asks("look")
    return Hand().asks("look").gives("c1", None, says("RETRYABLE", retry_after_s=5.0))


TAKES: dict[type[Any], tuple[type[Any], ...]] = {
    Decide: (Decided, DecisionFailed),
    CallTools: (Started, Returned),
    Judge: (Judged, JudgeFailed),
    Compose: (Composed, ComposeFailed),
    Wait: (Waited,),
}


def named(one: Any) -> str:
    return one.__name__ if isinstance(one, type) else type(one).__name__


@pytest.mark.parametrize(("effect", "event"), list(itertools.product(TAKES, EVENTS)), ids=named)
def test_a_state_takes_what_it_asked_for_and_refuses_the_rest_unchanged(effect: type[Any], event: Event) -> None:
    hand = at(effect)
    assert isinstance(hand.effect, effect)
    if isinstance(event, TAKES[effect]):
        hand.tell(copy.deepcopy(event), 5.0)
        assert hand.run.journal[-1][1] == event or isinstance(event, Returned)
        return
    if isinstance(event, Started) and effect is Decide:
        return
    before = copy.deepcopy(hand.run)
    with pytest.raises(WrongEvent, match=type(event).__name__ if effect is not CallTools else "."):
        hand.tell(event, 5.0)
    assert hand.run == before


def test_normalize_and_repair_ask_for_nothing() -> None:
    hand = Hand()
    for state, work in (("normalize", "normalize"), ("repair", "repair")):
        run = copy.deepcopy(hand.run)
        run.state = state
        with pytest.raises(WrongEvent, match=f"asks for nothing in state '{state}'"):
            WORK[work].ask(hand.engine.setup, run)
        with pytest.raises(WrongEvent, match="waits for nothing"):
            WORK[work].tell(hand.engine.setup, run, Waited())


def test_a_second_answer_about_a_settled_turn_names_what_is_open() -> None:
    hand = Hand().asks("look", "look").gives("c1")
    with pytest.raises(WrongEvent, match=r"no open call 'c1'; it waits for 'c2'"):
        hand.gives("c1")


# ---- deciding


@pytest.mark.parametrize("offers", [True, False])
def test_the_decider_is_told_which_tools_it_may_call_where_it_wants_to_know(offers: bool) -> None:
    hand = Hand(a_tool("a"), a_tool("b"), allowed=["b"], offers=offers)
    assert hand.effect.tools == (("b",) if offers else ())


SPENT: list[tuple[dict[str, Any], StopReason]] = [
    ({"max_turns": 1}, StopReason.MAX_TURNS),
    ({"max_tokens": 5}, StopReason.MAX_TOKENS),
    ({"max_cost": 0.5}, StopReason.MAX_COST),
    ({"deadline_s": 4.0}, StopReason.DEADLINE),
]


@pytest.mark.parametrize(("limits", "reason"), SPENT, ids=[str(reason) for _, reason in SPENT])
def test_no_turn_begins_once_turns_tokens_money_or_time_are_spent(limits: dict[str, Any], reason: StopReason) -> None:
    hand = Hand(limits=off(**limits)).decides(ToolCall("look", {}, "c1"), usage=Usage(input_tokens=5, cost=0.5), now=3.0)
    hand.gives("c1", now=4.0)
    assert (hand.reason, hand.words) == (reason, ["ok"])


@pytest.mark.parametrize("limit", ["max_turns", "max_tokens", "max_cost"])
def test_a_budget_of_nothing_asks_nobody_and_still_answers(limit: str) -> None:
    hand = Hand(limits=off(**{limit: 0}))
    assert (hand.reason, hand.run.turns) == (StopReason(limit), 0)
    answer = answer_of(hand.run)
    assert answer is not None
    assert answer.text


@pytest.mark.parametrize("n", [1, 2, 5, 10])
def test_so_many_turns_are_so_many_turns(n: int) -> None:
    """Seed 001's ten steps gave nine turns."""
    hand = Hand(limits=off(max_turns=n))
    for _ in range(n):
        assert isinstance(hand.effect, Decide)
        hand.asks("look").plays()
    assert (hand.reason, hand.run.turns) == (StopReason.MAX_TURNS, n)


def test_time_that_passes_while_waiting_for_the_next_turn_may_end_the_run() -> None:
    hand = Hand(limits=off(deadline_s=10.0, max_turns=9)).asks("look").gives("c1", None, says("RETRYABLE", retry_after_s=5.0))
    hand.tell(Waited(), 10.5)
    assert (hand.reason, hand.run.waited_s) == (StopReason.DEADLINE, 10.5)


def test_a_final_text_that_comes_late_is_still_the_answer() -> None:
    hand = Hand(limits=off(deadline_s=10.0)).decides(text="done", now=30.0)
    assert hand.reason is StopReason.ANSWERED


# ---- calling, and the time for it


def test_a_call_that_runs_at_the_deadline_is_heard_and_what_has_not_begun_is_skipped() -> None:
    write = a_tool("write", effect="idempotent")
    hand = Hand(a_tool(), write, limits=off(deadline_s=10.0, reserve_s=1.0)).asks("look", "look", "write", now=1.0).begins()
    hand.gives("c1", now=9.5)
    assert (hand.words, hand.batch) == (["ok", "open", "open"], ["c2"])
    hand.fails("c2", "TimeoutError", now=9.6)
    assert (hand.words, hand.reason) == (["ok", "raised:TimeoutError", "skipped:deadline"], StopReason.DEADLINE)
    assert [row[2] for row in hand.run.trace if row[0] == "guard_closed"] == ["time_left"]


def test_a_run_that_is_stopping_already_still_runs_what_was_admitted_until_time_is_up() -> None:
    write = a_tool("write", effect="idempotent")
    hand = Hand(write, limits=off(max_tool_calls=2, deadline_s=10.0)).asks("write", "write", "write", now=1.0)
    hand.gives("c1", now=11.0)
    assert hand.words == ["ok", "skipped:deadline", "skipped:max_tool_calls"]
    stop = hand.run.stop
    assert stop is not None
    assert [guard.limit for guard in stop.closed] == ["max_tool_calls", "deadline_s"]


def test_a_follower_hears_what_its_leader_gave_at_the_deadline() -> None:
    hand = Hand(limits=off(deadline_s=10.0)).decides(*[ToolCall("look", {})] * 2).begins().gives("call-1", "hit", now=11.0)
    assert (hand.words, hand.calls[1].value) == (["ok", "ok"], "hit")


def test_a_wait_that_runs_over_the_deadline_skips_the_try_it_was_for() -> None:
    hand = Hand(a_tool(retry=Retry(attempts=2, backoff_s=[1.0])), limits=off(deadline_s=10.0)).asks("look")
    hand.gives("c1", None, says("RETRYABLE")).tell(Waited(), 12.0)
    assert (hand.words, hand.reason) == (["skipped:deadline"], StopReason.DEADLINE)


def test_begun_calls_are_marked_and_beginning_changes_nothing_else() -> None:
    hand = Hand().asks("look", "look").begins("c2")
    assert [call.started for call in hand.calls] == [False, True]
    assert hand.run.trace[-1] == ("call_started", 0.0, "c2", "look")
    assert hand.gives("c2").call("c2").started is False


def test_a_turn_whose_calls_were_all_refused_goes_on_at_once() -> None:
    hand = Hand(limits=off(max_turns=9)).asks("ghost", "ghost")
    assert isinstance(hand.effect, Decide)
    assert hand.run.turns == 1


# ---- the closing answer


@pytest.mark.parametrize("event", [Composed("all in all"), ComposeFailed("APIError", "busy")])
def test_a_run_that_a_limit_stopped_asks_for_one_closing_answer_and_keeps_its_reason(event: Event) -> None:
    hand = Hand(limits=off(max_tool_calls=1, max_turns=9), composes=True).asks("look").plays().asks("look")
    assert isinstance(hand.effect, Compose)
    assert answer_of(hand.run) is None
    hand.tell(event)
    answer = answer_of(hand.run)
    assert answer is not None
    assert (answer.stop_reason, answer.status) == (StopReason.MAX_TOOL_CALLS, Status.PARTIAL)
    assert ("all in all" in answer.text) is isinstance(event, Composed)
    assert "hit c1" in answer.text
    assert hand.run.turns == 3
    with pytest.raises(WrongEvent, match="is over"):
        hand.tell(event)


@pytest.mark.parametrize(
    ("limits", "parts"),
    [
        (off(max_tool_calls=0, max_turns=1), {"composes": True}),
        (off(max_tool_calls=0, max_turns=9), {"composes": False}),
        (off(max_tool_calls=0, max_turns=9), {"composes": True, "policy": Policy(reserve_answer=False)}),
    ],
    ids=["no turn left", "nobody composes", "not reserved"],
)
def test_without_a_turn_left_or_anybody_to_ask_the_text_is_composed_from_what_was_found(
    limits: Limits, parts: dict[str, Any]
) -> None:
    hand = Hand(limits=limits, **parts).asks("look")
    assert hand.effect is None
    answer = answer_of(hand.run)
    assert answer is not None
    assert answer.text


# ---- other machines over the same work

LOOP = Table(
    name="loop",
    initial="pick",
    states=(
        State("pick", work="decide"),
        State("do", work="call", tools=None),
        State("check", work="verify"),
        State("end", work="answer"),
    ),
    rows=(
        Row("pick", "decided", "do"),
        Row("pick", "proposed", "check"),
        Row("pick", "failed", "pick", (turns_left, steps_left)),
        Row("pick", "failed", "end"),
        Row("pick", "stopped", "end"),
        *(Row("do", outcome, "pick", (turns_left, steps_left)) for outcome in ("called", "failed", "no_progress")),
        *(Row("do", outcome, "end") for outcome in ("called", "failed", "no_progress", "stopped")),
        Row("check", "passed", "end"),
        Row("check", "insufficient", "pick", (turns_left, steps_left)),
        Row("check", "insufficient", "end"),
        Row("check", "stopped", "end"),
    ),
)


def test_deciding_and_calling_work_as_states_of_their_own() -> None:
    hand = Hand(table=LOOP, limits=off(max_turns=9), verifies=True).asks("look", "look")
    assert hand.run.state == "do"
    hand.plays()
    assert hand.run.state == "pick"
    hand.decides(text="done").judges("need_more")
    assert (hand.run.state, hand.run.gather_rounds) == ("pick", 1)
    hand.decides(text="done").judges("done")
    assert (hand.reason, hand.run.path) == (StopReason.ANSWERED, ["pick", "do", "pick", "check", "pick", "check", "end"])


def test_a_next_action_runs_with_what_is_decided_next_where_deciding_is_a_state_of_its_own() -> None:
    hand = Hand(table=LOOP, limits=off(max_turns=9), verifies=True).decides(text="done")
    hand.judges("need_more", next_action=ToolCall("look", {"q": 1})).asks("look")
    assert hand.batch == ["verify-1", hand.calls[1].id]
    assert hand.plays().words == ["ok", "ok"]


def test_a_plan_is_not_measured_as_the_typed_answer() -> None:
    hand = Hand(table=AUTOGPT, limits=off(max_turns=9), answer=typed_answer(int)).decides(text="look first, then count")
    assert (hand.run.state, hand.run.plan, hand.run.draft) == ("fetch", "look first, then count", None)
    hand.decides(text="seven")
    assert hand.run.invalid_decisions == 1


def test_a_kind_of_work_of_ones_own_asks_by_its_own_effect() -> None:
    @attrs.define
    class Paint:
        run: Run

    @attrs.define
    class Painted:
        colour: str

    class Painting:
        def enter(self, setup: Any, run: Run) -> str | None:
            return None

        def ask(self, setup: Any, run: Run) -> Any:
            return Paint(run)

        def tell(self, setup: Any, run: Run, event: Any) -> str | None:
            run.fields["colour"] = event.colour
            return "painted"

    table = Table(
        name="painter",
        initial="paint",
        states=(State("paint", work="painting"), State("end", work="answer")),
        rows=(Row("paint", "painted", "end"),),
        kinds={"painting": Kind(name="painting", outcomes={"painted": ()})},
    )
    hand = Hand(table=table, work={**WORK, "painting": Painting()})
    assert isinstance(hand.effect, Paint)
    hand.tell(Painted("blue"))  # type: ignore[arg-type]
    assert (hand.run.fields, hand.reason) == ({"colour": "blue"}, StopReason.ANSWERED)


def test_every_kind_of_work_of_the_default_machine_is_there() -> None:
    assert {state.work for state in AGENT.states} <= set(WORK)
