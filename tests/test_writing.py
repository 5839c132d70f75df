"""Work that writes: a draft from the evidence that is verified, and the last answer of a run."""

from __future__ import annotations

from typing import Any

import pytest
from by_hand import Hand, a_tool, off

from fsm_agent.core.answers import answer_of
from fsm_agent.core.effects import Compose, Decide, Judge, Wait
from fsm_agent.core.errors import WrongEvent
from fsm_agent.core.events import Cancelled, Composed, ComposeFailed, Decided, JudgeFailed
from fsm_agent.core.limits import Limits
from fsm_agent.core.messages import Role
from fsm_agent.core.replay import replay
from fsm_agent.core.saving import load, save
from fsm_agent.core.table import Row, State, Table
from fsm_agent.core.transcript import transcript
from fsm_agent.core.typed_answer import typed_answer
from fsm_agent.core.values import Decision, Policy, Status, StopReason, ToolCall, Usage

WRITING = Table(
    "writing",
    "gather",
    [
        State("gather", work="gather", tools=None),
        State("write", work="synthesize"),
        State("check", work="verify"),
        State("end", work="answer"),
    ],
    [
        *(Row("gather", outcome, "write") for outcome in ("called", "no_progress", "proposed")),
        *(Row("gather", outcome, "end") for outcome in ("failed", "stopped")),
        Row("write", "written", "check"),
        Row("write", "stopped", "end"),
        *(Row("check", outcome, "end") for outcome in ("passed", "insufficient", "stopped")),
    ],
)


def writing(**parts: Any) -> Hand:
    """A run that has found something and is about to write it down."""
    limits = parts.pop("limits", off())
    hand = Hand(a_tool("look"), **{"table": WRITING, "limits": limits, "composes": True, "verifies": True, **parts})
    return hand.asks("look").gives("c1", {"n": 5})


def test_a_text_is_asked_for_that_does_not_close_the_run() -> None:
    hand = writing()
    assert isinstance(hand.effect, Compose)
    assert hand.effect.closing is False
    hand.tell(Composed("five", Usage(input_tokens=3, output_tokens=4, cost=0.5), "stop"))
    assert isinstance(hand.effect, Judge)
    assert (hand.run.turns, hand.run.tokens, hand.run.cost, hand.run.finish) == (2, 7, 0.5, "stop")
    answer = answer_of(hand.judges("done").run)
    assert answer is not None
    assert (answer.status, answer.text) == (Status.OK, "five")


def test_where_nobody_writes_the_evidence_itself_is_the_draft() -> None:
    hand = writing(composes=False)
    assert isinstance(hand.effect, Judge)
    assert hand.run.draft == Decision(text='Found so far:\n- look: {"n":5}')


def test_a_model_that_cannot_write_ends_the_run_with_what_was_found() -> None:
    hand = writing().tell(ComposeFailed("OSError", "down"))
    answer = answer_of(hand.run)
    assert answer is not None
    assert (answer.stop_reason, answer.status) == (StopReason.MODEL_ERROR, Status.PARTIAL)
    assert '{"n":5}' in answer.text
    hand.engine.resume(hand.run)
    assert isinstance(hand.effect, Compose)


def test_one_that_fails_for_the_moment_is_asked_again() -> None:
    hand = writing().tell(ComposeFailed("rate_limited", "slow", "passing", 2.0))
    assert isinstance(hand.effect, Wait)
    hand.waits().tell(Composed("five"))
    assert isinstance(hand.effect, Judge)
    assert hand.run.failed_requests == 0
    worse = writing(policy=Policy(model_attempts=2))
    worse.tell(ComposeFailed("rate_limited", "slow", "passing")).waits().tell(ComposeFailed("rate_limited", "slow", "passing"))
    assert worse.reason is StopReason.MODEL_ERROR


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_text_is_no_draft_and_is_asked_for_again(text: str) -> None:
    hand = writing(limits=off(max_invalid_decisions=1)).tell(Composed(text))
    assert isinstance(hand.effect, Compose)
    hand.tell(Composed(text))
    assert hand.reason is StopReason.MODEL_EMPTY
    answer = answer_of(hand.run)
    assert answer is not None
    assert answer.text.strip()


@pytest.mark.parametrize(
    ("finish", "reason"),
    [("length", StopReason.TRUNCATED), ("content_filter", StopReason.CONTENT_FILTER), ("refusal", StopReason.CONTENT_FILTER)],
)
@pytest.mark.parametrize("goes_on", [False, True])
def test_a_text_that_was_cut_off_is_no_success(finish: str, reason: StopReason, goes_on: bool) -> None:
    hand = writing(policy=Policy(on_finish={finish: "continue"} if goes_on else {})).tell(Composed("fi", finish=finish))
    if goes_on:
        assert isinstance(hand.effect, Compose)
        return
    answer = answer_of(hand.run)
    assert answer is not None
    assert (answer.stop_reason, answer.status) == (reason, Status.PARTIAL)
    assert "fi" in answer.text


def test_a_typed_answer_is_measured_and_asked_for_again() -> None:
    hand = writing(answer=typed_answer(int), limits=off(max_invalid_decisions=1)).tell(Composed("five"))
    assert isinstance(hand.effect, Compose)
    assert "the answer is not of the form that was asked for" in hand.run.note
    hand.tell(Composed("5"))
    assert (hand.run.answer, hand.run.invalid_decisions) == (5, 0)
    assert replay(hand.engine, load(save(hand.run), hand.engine.setup)) == hand.run


@pytest.mark.parametrize("event", [Composed(" "), Composed("five"), Composed("fi", finish="length")], ids=["empty", "untyped", "cut off"])
@pytest.mark.parametrize("attempts", [1, 3])
def test_without_any_limit_on_faults_it_ends_all_the_same(event: Composed, attempts: int) -> None:
    """Nothing of the table is walked while a text is asked for again, so no limit of rows bounds it."""
    policy = Policy(model_attempts=attempts, on_finish={"length": "continue"})
    hand = writing(answer=typed_answer(int), limits=Limits.off(max_steps=50), policy=policy)
    asked = 0
    while isinstance(hand.effect, Compose):
        hand.tell(event)
        asked += 1
        assert asked <= 10
    assert asked == attempts
    assert hand.reason in (StopReason.INVALID_DECISION, StopReason.MODEL_EMPTY, StopReason.TRUNCATED)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [({"max_turns": 1}, StopReason.MAX_TURNS), ({"max_tokens": 1}, StopReason.MAX_TOKENS), ({"deadline_s": 2.0}, StopReason.DEADLINE)],
)
def test_nothing_is_written_without_a_turn_for_it(limits: dict[str, Any], reason: StopReason) -> None:
    hand = Hand(a_tool("look"), table=WRITING, limits=off(**limits), composes=True, policy=Policy(reserve_answer=False))
    hand.decides(ToolCall("look", {}, "c1"), usage=Usage(input_tokens=1)).begins().gives("c1", 5, now=2.0)
    assert hand.reason is reason
    answer = answer_of(hand.run)
    assert answer is not None
    assert "- look: 5" in answer.text


def test_only_what_was_asked_for_is_taken() -> None:
    hand = writing()
    for wrong in (Decided(Decision(text="x")), "text"):
        with pytest.raises(WrongEvent, match="it waits for Composed or ComposeFailed"):
            hand.tell(wrong)  # type: ignore[arg-type]
    assert isinstance(hand.effect, Compose)


def test_a_run_that_was_cancelled_while_writing_writes_again() -> None:
    hand = writing().tell(Cancelled())
    hand.engine.resume(hand.run)
    assert isinstance(hand.effect, Compose)
    assert hand.effect.closing is False


# ---- the last answer


def test_a_stopped_run_is_closed_by_one_text_and_the_reason_stays() -> None:
    hand = Hand(limits=off(max_tool_calls=1), composes=True).asks("look", "look").plays()
    assert isinstance(hand.effect, Compose)
    assert hand.effect.closing
    hand.tell(Composed("so far", Usage(output_tokens=2), "stop"))
    answer = answer_of(hand.run)
    assert answer is not None
    assert (answer.stop_reason, answer.status) == (StopReason.MAX_TOOL_CALLS, Status.PARTIAL)
    assert answer.text.startswith("so far\n\nFound so far:")
    assert (hand.run.turns, hand.run.tokens) == (2, 2)


@pytest.mark.parametrize("event", [Composed(" "), ComposeFailed("OSError", "down")])
def test_a_closing_turn_that_gives_nothing_leaves_the_template(event: Any) -> None:
    hand = Hand(limits=off(max_tool_calls=1), composes=True).asks("look", "look").plays().tell(event)
    answer = answer_of(hand.run)
    assert answer is not None
    assert answer.text.startswith("Found so far:\n- look: hit c1\n\nStopped: max_tool_calls")


def test_the_closing_turn_takes_no_other_event() -> None:
    hand = Hand(limits=off(max_tool_calls=1), composes=True).asks("look", "look").plays()
    with pytest.raises(WrongEvent, match="it waits for Composed or ComposeFailed"):
        hand.decides(text="x")


def test_a_run_that_answered_needs_no_closing_turn() -> None:
    hand = Hand(limits=off(), composes=True).decides(text="it is so")
    assert hand.effect is None
    assert not isinstance(hand.effect, Decide)


# ---- what was written is part of the history, and what it cost is counted

COST = Usage(input_tokens=3, output_tokens=4, cost=0.5)


def said(hand: Hand) -> list[tuple[str, str]]:
    """What users and the model said so far."""
    return [(str(one.role), one.text) for one in transcript(hand.run, hand.engine.setup.box) if one.role is not Role.TOOL and one.text]


def test_a_draft_is_in_the_history_and_so_is_each_one_that_was_not_taken() -> None:
    hand = writing().tell(Composed(" ")).tell(Composed("five", kept={"by": "me"}))
    reply = "Your reply could not be taken: the reply held no text. Answer again."
    assert said(hand) == [("user", "find x"), ("user", reply), ("assistant", "five")]
    assert transcript(hand.run, hand.engine.setup.box)[-1].kept == {"by": "me"}
    hand.judges("need_more", reason="two sources")
    assert said(hand)[-2:] == [("assistant", "five"), ("user", "The answer is not accepted yet: two sources.")]
    again = load(save(hand.run), hand.engine.setup)
    assert transcript(again, hand.engine.setup.box) == transcript(hand.run, hand.engine.setup.box)
    assert replay(hand.engine, again) == hand.run


def closing(event: Any, **bounds: Any) -> Hand:
    hand = Hand(a_tool("look"), limits=off(max_tool_calls=1, max_turns=9, **bounds), composes=True)
    return hand.asks("look").gives("c1", {"n": 5}).asks("look").tell(event)


def test_a_closing_text_is_in_the_history_also_once_the_run_went_on() -> None:
    hand = closing(Composed("So far five.", COST))
    assert said(hand) == [("user", "find x"), ("assistant", "So far five.")]
    assert (hand.run.tokens, hand.run.cost) == (7, 0.5)
    stop = hand.run.stop
    assert stop is not None
    hand.engine.resume(hand.run, stop.raise_to)
    hand.decides(text="Five.")
    assert said(hand) == [("user", "find x"), ("assistant", "So far five."), ("assistant", "Five.")]


@pytest.mark.parametrize("event", [Composed(" ", COST), ComposeFailed("MalformedDecision", "no text", usage=COST)])
def test_a_closing_reply_without_a_text_costs_what_it_cost(event: Any) -> None:
    hand = closing(event)
    assert said(hand) == [("user", "find x")]
    assert (hand.run.tokens, hand.run.cost, hand.run.turns) == (7, 0.5, 3)
    assert replay(hand.engine, load(save(hand.run), hand.engine.setup)) == hand.run


def test_a_draft_that_could_not_be_had_costs_what_it_cost() -> None:
    hand = writing().tell(ComposeFailed("rate_limited", "slow", "passing", usage=COST)).waits().tell(Composed("five", COST))
    assert (hand.run.tokens, hand.run.cost) == (14, 1.0)


def test_a_verdict_that_could_not_be_had_costs_what_it_cost() -> None:
    hand = writing().tell(Composed("five")).tell(JudgeFailed("timeout", "late", COST))
    assert (hand.run.tokens, hand.run.cost) == (7, 0.5)


ASKS = Decided(Decision(calls=(ToolCall("look", {"q": 2}),)))


def test_a_reply_that_calls_tools_where_a_text_was_asked_for_is_refused_and_asked_again() -> None:
    hand = writing(limits=off(max_turns=4)).tell(ASKS)
    assert isinstance(hand.effect, Compose)
    assert [call.error for call in hand.run.calls] == ["", "refused:not_allowed"]
    assert hand.run.turns == 2
    told = transcript(hand.run, hand.engine.setup.box)
    assert [message.role for message in told[-2:]] == [Role.ASSISTANT, Role.TOOL]
    hand.tell(Composed("five"))
    assert isinstance(hand.effect, Judge)


@pytest.mark.parametrize("calls", ["look", 5, {"tool": "look"}], ids=repr)
def test_what_are_no_calls_at_all_is_a_fault_there_too_and_a_text_asked_for_again(calls: Any) -> None:
    hand = writing(limits=off(max_turns=4)).tell(Decided(Decision(calls=calls)))
    assert isinstance(hand.effect, Compose)
    assert (hand.run.note, hand.run.turns, len(hand.run.calls)) == ("the calls of the decision are no calls", 2, 1)


def test_such_replies_are_bounded_by_the_turns_and_without_those_by_the_policy() -> None:
    hand = writing(limits=off(max_turns=3))
    hand.tell(ASKS).tell(ASKS)
    assert hand.reason is StopReason.MAX_TURNS
    free = writing(policy=Policy(model_attempts=3))
    for _ in range(3):
        assert isinstance(free.effect, Compose)
        free.tell(ASKS)
    assert free.reason is StopReason.INVALID_DECISION


def test_a_repeated_call_there_is_a_repetition() -> None:
    hand = writing(limits=off(max_turns=9, max_same_call=2))
    for _ in range(3):
        hand.tell(ASKS)
    assert hand.run.stop is not None or isinstance(hand.effect, Compose)
    assert [guard.guard for guard in hand.run.closed] == ["call_is_new"]


def test_the_text_beside_such_calls_is_the_draft() -> None:
    for finish in ("tool_calls", "stop"):
        hand = writing().tell(Decided(Decision(calls=(ToolCall("look"),), text="five", finish=finish)))
        assert isinstance(hand.effect, Judge)
        assert hand.run.draft == Decision(text="five")
        assert not hand.run.calls[-1].ok


def test_a_question_beside_a_call_that_names_no_tool_is_what_was_written() -> None:
    hand = writing().tell(Decided(Decision(calls=(ToolCall(""),), question="Which five?")))
    answer = answer_of(hand.run)
    assert answer is not None
    assert (answer.stop_reason, answer.next_questions) == (StopReason.QUESTION, ("Which five?",))
    assert hand.run.calls[-1].error == "skipped:final"


def test_what_is_written_keeps_its_citations_and_they_are_looked_at_like_any() -> None:
    hand = writing().tell(Decided(Decision(text="five", citations=("c1",), finish="stop")))
    assert hand.run.draft == Decision(text="five", citations=("c1",))
    answer = answer_of(hand.judges("done").run)
    assert answer is not None
    assert (answer.stop_reason, answer.text, answer.citations) == (StopReason.ANSWERED, "five", ("c1",))
    dangling = writing().tell(Decided(Decision(text="five", citations=("c7",))))
    assert dangling.reason is StopReason.UNVERIFIED
    assert replay(dangling.engine, dangling.run) == dangling.run


@pytest.mark.parametrize("text", ["I found five.", None])
def test_a_question_that_is_written_is_asked(text: str | None) -> None:
    hand = writing().tell(Decided(Decision(text=text, question="Which five?")))
    answer = answer_of(hand.run)
    assert answer is not None
    assert (answer.stop_reason, answer.next_questions) == (StopReason.QUESTION, ("Which five?",))


def test_an_empty_text_ends_the_run_where_the_policy_says_so() -> None:
    hand = writing(policy=Policy(on_finish={"empty": "end"})).tell(Composed(" "))
    assert (hand.reason, hand.run.turns) == (StopReason.MODEL_EMPTY, 2)


@pytest.mark.parametrize("most", [None, 2])
def test_a_text_of_another_form_beside_calls_is_bounded_as_well(most: int | None) -> None:
    form = typed_answer({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
    hand = writing(answer=form, limits=off(max_invalid_decisions=most))
    for _ in range(3):
        assert hand.reason is None
        hand.tell(Decided(Decision(calls=(ToolCall("look"),), text="five", finish="stop")))
    assert hand.reason is StopReason.INVALID_DECISION


def test_a_cut_off_reply_with_calls_ends_the_run_and_its_text_is_kept() -> None:
    hand = writing().tell(Decided(Decision(calls=(ToolCall("look"),), text="fi", finish="length")))
    assert hand.reason is StopReason.TRUNCATED
    assert hand.run.calls[-1].error == "skipped:truncated"


UNSAID = Table(
    "unsaid",
    "gather",
    [State("gather", work="gather", tools=None), State("check", work="verify"), State("end", work="answer")],
    [
        *(Row("gather", outcome, "check") for outcome in ("called", "no_progress", "proposed")),
        *(Row("gather", outcome, "end") for outcome in ("failed", "stopped")),
        *(Row("check", outcome, "end") for outcome in ("passed", "insufficient", "stopped")),
    ],
)


@pytest.mark.parametrize(
    ("event", "said", "value"),
    [
        (Composed('{"n": 1}', finish="stop"), '{"n": 1}', {"n": 1}),
        (Composed("not of that form"), "Found so far", None),
        (Composed('{"n": 1}', finish="length"), "Found so far", None),
        (ComposeFailed("OSError", "down"), "Found so far", None),
        (Cancelled(""), "Found so far", None),
    ],
)
def test_the_answer_that_passed_unsaid_is_the_models_where_it_is_whole_and_of_the_form(event: Any, said: str, value: Any) -> None:
    typed = typed_answer({"type": "object", "required": ["n"]})
    hand = writing(table=UNSAID, verifies=False, answer=typed)
    assert isinstance(hand.effect, Compose)
    hand.tell(event)
    answer = answer_of(hand.run)
    assert answer is not None
    assert (answer.status, answer.stop_reason, answer.value) == (Status.OK, StopReason.ANSWERED, value)
    assert answer.text.startswith(said)
