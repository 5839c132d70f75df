"""Answers: a status for every way to end, a text that is never empty, and what was found, assumed, unknown and asked next."""

from __future__ import annotations

import itertools
from datetime import date
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from strategies import REPAIRS, Answers, World, an_engine, limits, odd_values, off, play, policies, step, worlds

from fsm_agent.core.answers import Answer, Evidence, answer_of, usage_of
from fsm_agent.core.effects import Compose
from fsm_agent.core.limits import Limits
from fsm_agent.core.run import Call, ClosedGuard, Run, Stop
from fsm_agent.core.values import Decision, Judgement, Policy, ResultClass, Status, StopReason

GOOD = (StopReason.ANSWERED, StopReason.QUESTION)
ALWAYS_FAILED = (StopReason.FATAL, StopReason.INVALID_REQUEST)
CLOSED = ClosedGuard(
    guard="turns_left", limit="max_turns", allowed=3, used=3, opens_at=4, reason=StopReason.MAX_TURNS, calls=("c1",)
)


def a_run(reason: StopReason = StopReason.MAX_TURNS, *, stop: dict[str, Any] | None = None, **fields: Any) -> Run:
    run = Run(id="r", request="x", state="final", limits=off(), stop=Stop(reason=reason, **(stop or {})))
    for name, value in fields.items():
        setattr(run, name, value)
    return run


def a_call(value: Any = ("hit",), number: int = 1, **fields: Any) -> Call:
    return Call(**{"id": f"c{number}", "tool": "look", "args": {}, "ok": True, "value": value, **fields})


def answered(run: Run) -> Answer:
    answer = answer_of(run)
    assert answer is not None
    return answer


# ---- status


@pytest.mark.parametrize("reason", list(StopReason))
@pytest.mark.parametrize(("found", "drafted", "closed"), list(itertools.product([False, True], repeat=3)))
def test_every_way_to_end_has_a_status_and_a_text(reason: StopReason, found: bool, drafted: bool, closed: bool) -> None:
    run = a_run(
        reason,
        calls=[a_call(["a fact"])] if found else [],
        draft=Decision(text="a draft") if drafted else None,
        closing_text="closing" if closed else "",
    )
    answer = answered(run)
    if reason in GOOD:
        wanted = Status.OK
    elif reason in ALWAYS_FAILED or not (found or drafted or closed):
        wanted = Status.FAILED
    else:
        wanted = Status.PARTIAL
    assert (answer.status, answer.stop_reason, answer.ok) == (wanted, reason, wanted is Status.OK)
    assert answer.text.strip()
    assert (f"Stopped: {reason.value}." in answer.text) is (reason not in GOOD)
    said = "closing" if closed else "a draft" if drafted else ""
    assert answer.text.startswith(said)
    if reason not in GOOD or not said:
        assert ("a fact" in answer.text) is found


@pytest.mark.parametrize(
    ("draft", "text"),
    [
        (Decision(text=" it is so \n"), "it is so"),
        (Decision(question="which one?"), "which one?"),
        (Decision(text="this or that", question=" which one? "), "this or that\nwhich one?"),
        (Decision(text="", question=""), "Done; nothing was found."),
        (Decision(text=7), "Done; nothing was found."),  # type: ignore[arg-type]
        (None, "Done; nothing was found."),
    ],
)
def test_an_answer_says_what_was_decided(draft: Decision | None, text: str) -> None:
    assert answered(a_run(StopReason.ANSWERED, draft=draft)).text == text


def test_an_answer_without_words_of_its_own_gives_what_was_found() -> None:
    answer = answered(a_run(StopReason.ANSWERED, calls=[a_call(["a fact"]), a_call("a text", 2)]))
    assert answer.text == 'Found so far:\n- look: ["a fact"]\n- look: a text'


# ---- a run that is not over


def test_a_run_that_goes_on_has_no_answer() -> None:
    engine = an_engine(limits=off(max_tool_calls=1))
    run = engine.start("x")
    answers = Answers()
    while not isinstance(engine.ask(run), Compose):
        assert answer_of(run) is None
        step(engine, run, answers)
    assert answer_of(run) is None
    step(engine, run, answers)
    assert answer_of(run) is not None


# ---- evidence and text


@pytest.mark.parametrize("result_class", [None, *ResultClass])
@pytest.mark.parametrize("ok", [True, False])
def test_what_was_found_is_what_succeeded_and_says_something(result_class: ResultClass | None, ok: bool) -> None:
    answer = answered(a_run(calls=[a_call(["hit"], ok=ok, result_class=result_class, source="archive")]))
    says = ok and result_class not in (ResultClass.EMPTY, ResultClass.NO_PROGRESS)
    wanted = (Evidence(call_id="c1", tool="look", value=["hit"], source="archive"),)
    assert answer.evidence == (wanted if says else ())


def test_a_long_piece_is_cut_and_many_pieces_are_counted() -> None:
    run = a_run(calls=[a_call("word " * 1000, 1), *(a_call(n, n) for n in range(2, 60))])
    answer = answered(run)
    lines = answer.text.splitlines()
    assert len(lines[1]) < 520
    assert lines[1].endswith("[cut: 5000 characters in all]")
    assert lines[51] == "- and 9 more"
    assert len(answer.evidence) == 59


@settings(max_examples=150)
@given(odd_values)
def test_any_value_can_be_shown(value: Any) -> None:
    text = answered(a_run(calls=[a_call(value)])).text
    assert text.startswith("Found so far:\n- look: ")


class Odd:
    """Its text cannot be had."""

    def __repr__(self) -> str:
        raise ValueError("no text")


ANY_VALUES = [Odd(), [Odd()], {1: Odd()}, object(), lambda: 0, 10**5000, "\ud835", date(2026, 1, 2), ...]


@pytest.mark.parametrize("value", ANY_VALUES, ids=range(9))
def test_a_value_that_no_run_should_hold_can_be_shown_too(value: Any) -> None:
    assert answered(a_run(calls=[a_call(value)])).text.startswith("Found so far:\n- look: ")


def test_the_text_names_every_guard_that_closed_and_why_the_run_was_stopped() -> None:
    closed = a_run(stop={"closed": (CLOSED,), "detail": "the verifier said no"})
    assert answered(closed).text == "Stopped: max_turns (turns_left: max_turns is 3, 3 used, used by c1; the verifier said no)."
    both = a_run(stop={"closed": (CLOSED, attrs.evolve(CLOSED, guard="steps_left", limit="max_steps", calls=()))})
    assert answered(both).text == "Stopped: max_turns (turns_left: max_turns is 3, 3 used, used by c1; steps_left: max_steps is 3, 3 used)."
    told = a_run(StopReason.STRATEGY, stop={"detail": "enough"})
    assert answered(told).text == "Stopped: strategy (enough)."
    long = a_run(StopReason.STRATEGY, stop={"detail": "so " * 1000})
    assert len(answered(long).text) < 340


# ---- what is assumed, unknown and asked


def test_each_repair_is_an_assumption() -> None:
    assert answered(a_run(fixes=["region", "limit"])).assumptions == (
        "the call was changed by the repair 'region'",
        "the call was changed by the repair 'limit'",
    )


NOTHING = {
    "a text": ("", "look (c1): nothing found"),
    "seed 001's form": ({"found": False, "items": [], "reason": "no documents"}, "look (c1): nothing found (no documents)"),
    "its form without a reason": ({"found": False, "reason": None}, "look (c1): nothing found"),
}


@pytest.mark.parametrize("form", NOTHING)
def test_what_a_stopped_run_found_nothing_about_is_unknown_with_the_reason_that_there_is(form: str) -> None:
    value, told = NOTHING[form]
    call = a_call(value, result_class=ResultClass.EMPTY)
    assert told in answered(a_run(StopReason.EMPTY_RESULTS, calls=[call, a_call(number=2)])).unknowns
    assert answered(a_run(StopReason.ANSWERED, calls=[call])).unknowns == ()


@pytest.mark.parametrize("seconds", [47.0, 7.424511580262333, 8.123456789, 0.1 + 0.2, 123456.789, 1e9 / 3])
def test_the_raise_that_is_told_is_one_that_is_enough(seconds: float) -> None:
    stop = Stop(reason=StopReason.MAX_WAIT, raise_to={"max_wait_s": seconds, "dedup_window": None})
    told = answered(a_run(StopReason.MAX_WAIT, stop={"raise_to": stop.raise_to})).next_questions

    assert told == (f"May the run go on with {stop.raises()}?",)
    figure = float(stop.raises().removeprefix("max_wait_s=").removesuffix(", dedup_window=None"))
    assert seconds <= figure <= seconds * 1.0001
    assert f"goes on with {stop.raises()}" in str(stop)


def test_what_failed_is_unknown_open_calls_included() -> None:
    run = a_run(
        StopReason.ANSWERED,
        calls=[a_call(ok=False, error="raised:OSError"), a_call(number=2)],
        open_calls=[a_call(number=3, ok=False, error="cancelled")],
    )
    assert answered(run).unknowns == ("look (c1): raised:OSError", "look (c3): cancelled")


def test_a_call_that_names_no_tool_is_told_as_unknown() -> None:
    run = a_run(StopReason.ANSWERED, calls=[attrs.evolve(a_call(ok=False, error="skipped:invalid_decision"), tool="")])
    assert answered(run).unknowns == ("unknown (c1): skipped:invalid_decision",)


@pytest.mark.parametrize("reason", list(StopReason))
@pytest.mark.parametrize(
    "judgement", [None, Judgement(decision="done"), Judgement(decision="need_more", reason="too little"), Judgement(decision="need_more")]
)
def test_an_answer_that_was_not_verified_says_so(reason: StopReason, judgement: Judgement | None) -> None:
    unknowns = answered(a_run(reason, judgement=judgement)).unknowns
    refused = judgement is not None and judgement.decision != "done"
    if reason is StopReason.UNVERIFIED or refused:
        said = "the verifier said no" if refused else "it was not checked"
        why = "too little" if judgement is not None and judgement.reason else said
        assert unknowns == (f"the answer did not pass verification: {why}",)
    elif reason in GOOD:
        assert unknowns == ()
    else:
        assert unknowns == (f"the answer was not verified: the run stopped ({reason.value})",)


@pytest.mark.parametrize(
    ("reason", "fields", "stop", "asked"),
    [
        (StopReason.ANSWERED, {}, {}, ()),
        (StopReason.QUESTION, {"draft": Decision(question="which one?")}, {}, ("which one?",)),
        (StopReason.MAX_TURNS, {}, {"raise_to": {"max_turns": 4}}, ("May the run go on with max_turns=4?",)),
        (
            StopReason.MAX_TURNS, {}, {"raise_to": {"max_turns": 4, "dedup_window": None}},
            ("May the run go on with max_turns=4, dedup_window=None?",),
        ),
        (StopReason.FATAL, {}, {}, ("What should be tried instead?",)),
        (StopReason.CANCELLED, {}, {}, ("May the run go on?",)),
        (StopReason.MODEL_ERROR, {}, {}, ("May the run go on?",)),
        (StopReason.MAX_TURNS, {"draft": Decision(text="so", question="which?")}, {"raise_to": {"max_turns": 4}}, ("which?",)),
    ],
)
def test_an_answer_asks_what_would_help(
    reason: StopReason, fields: dict[str, Any], stop: dict[str, Any], asked: tuple[str, ...]
) -> None:
    assert answered(a_run(reason, stop=stop, **fields)).next_questions == asked


def test_an_answer_asks_first_what_became_of_a_body_that_nobody_heard_of() -> None:
    run = a_run(StopReason.CANCELLED, calls=[a_call(ok=False, error="unknown_outcome", tool="send")])
    first, second = answered(run).next_questions
    assert first.startswith("Did send (c1) take effect?")
    assert second == "May the run go on?"


@pytest.mark.parametrize("draft", [None, Decision(text="it is so"), Decision(text="it is so", citations=("c1", "look"))])
def test_citations_are_those_of_the_draft(draft: Decision | None) -> None:
    assert answered(a_run(StopReason.ANSWERED, draft=draft)).citations == (draft.citations if draft else ())


# ---- usage


def test_usage_is_the_counters_of_the_run() -> None:
    names = ("turns", "tool_calls", "body_runs", "steps", "tokens", "cost", "spent_s", "waited_s")
    run = a_run(**{name: number for number, name in enumerate(names, 1)})
    assert usage_of(run) == answered(run).usage == {name: number for number, name in enumerate(names, 1)}


def test_an_answer_does_not_follow_the_run_when_that_goes_on() -> None:
    entered = ["state_entered", 0.0, "normalize", None, "state_entered", 0.0, "final", None]
    run = a_run(flat_trace=entered, calls=[a_call()])
    answer = answered(run)
    before = attrs.evolve(answer)
    run.flat_trace.extend(("state_entered", 0.0, "gather", None))
    run.calls.append(a_call(number=2))
    run.turns = 9
    assert answer == before
    assert (answer.path, len(answer.evidence), answer.usage["turns"]) == (("normalize", "final"), 1, 0)


@settings(max_examples=80)
@given(worlds, limits, policies)
def test_every_run_has_an_answer_that_says_something(world: World, bounds: Limits, policy: Policy) -> None:
    engine = an_engine(policy=policy, verifies=True, repairs=REPAIRS)
    run = play(engine, engine.start("x", limits=attrs.evolve(bounds, max_attempts=3)), world.answers())
    answer = answered(run)
    assert answer.text.strip()
    assert answer.status in (Status.OK, Status.PARTIAL, Status.FAILED)
    assert answer.ok is (answer.stop_reason in GOOD)
    if answer.status is Status.FAILED:
        assert answer.stop_reason in ALWAYS_FAILED or not answer.evidence
    assert answer.path[-1] == "final"
    assert answer.stop is run.stop
