"""What was answered or raised, as the event that a run is told: every kind of question, answer and failure."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from fsm_agent import Decision, Judgement, Limits, Run, ToolCall, Usage
from fsm_agent.core.effects import Compose, Decide, Judge
from fsm_agent.core.events import Composed, ComposeFailed, Decided, DecisionFailed, Judged, JudgeFailed
from fsm_agent.host.model import FailureKind, MalformedDecision, ModelFailed
from fsm_agent.host.replies import event_of_answer, event_of_failure

RUN = Run(id="r", request="go", state="s", limits=Limits())
DECIDE, JUDGE, COMPOSE = Decide(RUN), Judge(RUN), Compose(RUN)
USAGE = Usage(input_tokens=3, output_tokens=4, cost=0.5)
CALL = ToolCall("t", {"n": 1})


@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        (Decision(text="x", usage=USAGE), Decision(text="x", usage=USAGE)),
        ("x", Decision(text="x")),
        (CALL, Decision(calls=(CALL,))),
        ([CALL, CALL], Decision(calls=(CALL, CALL))),
        ((), Decision()),
        (None, Decision()),
    ],
)
def test_a_decision_in_any_form(answer: Any, decision: Decision) -> None:
    assert event_of_answer(DECIDE, answer) == Decided(decision)


@pytest.mark.parametrize("effect", [DECIDE, JUDGE, COMPOSE])
@pytest.mark.parametrize("answer", [5, object(), {"tool": "t"}, [5], b"x"], ids=lambda one: type(one).__name__)
def test_what_is_no_answer_is_said_to_be_none(effect: Any, answer: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"may give|may be|give a text"):
        event_of_answer(effect, answer)


DONE = Judgement(decision="done", reason="enough")
MORE = Judgement(decision="need_more", reason="two sources", next_action=ToolCall("t", {"n": 2}))


@pytest.mark.parametrize(
    ("answer", "judgement"),
    [
        (True, Judgement(decision="done")),
        (False, Judgement(decision="need_more", reason="the verifier said no")),
        (MORE, MORE),
        ({"decision": "done", "reason": "enough"}, DONE),
        ({"decision": "need_more", "reason": "two sources", "next_action": {"tool": "t", "args": {"n": 2}}}, MORE),
    ],
)
def test_a_verdict_in_any_form(answer: Any, judgement: Judgement) -> None:
    assert event_of_answer(JUDGE, answer) == Judged(judgement)


@pytest.mark.parametrize(
    ("text", "judgement"),
    [
        ('{"decision": "done", "reason": "enough", "next_action": null}', DONE),
        ('```json\n{"decision": "done", "reason": "enough"}\n```', DONE),
        ('{"decision": "need_more", "reason": "two sources", "next_action": {"tool": "t", "args": {"n": 2}}}', MORE),
    ],
)
def test_a_verdict_of_a_model_is_json_and_what_it_cost_is_told(text: str, judgement: Judgement) -> None:
    assert event_of_answer(JUDGE, Decision(text=text, usage=USAGE)) == Judged(judgement, USAGE)


@pytest.mark.parametrize(
    "text", ["", "yes", "[]", "5", '"done"', '{"decision": "maybe"}', '{"reason": "x"}', '{"decision": NaN}', "{", None, 5]
)
def test_a_model_that_gives_no_verdict_said_no_and_is_paid_for_it(text: Any) -> None:
    told = event_of_answer(JUDGE, Decision(text=text, usage=USAGE))
    assert isinstance(told, Judged)
    assert (told.judgement.decision, told.usage) == ("need_more", USAGE)
    assert told.judgement.reason.startswith("the verifier gave no verdict: ")


def test_a_text_in_any_form() -> None:
    assert event_of_answer(COMPOSE, "x") == Composed("x")
    assert event_of_answer(COMPOSE, Composed("x", USAGE)) == Composed("x", USAGE)
    assert event_of_answer(COMPOSE, Decision(text="x", usage=USAGE, finish="stop")) == Composed("x", USAGE, "stop")


@pytest.mark.parametrize("usage", [5, {"input_tokens": 3}, "much"])
@pytest.mark.parametrize("finish", [5, None, ["stop"]])
def test_what_is_no_usage_and_no_finish_reason_is_none(usage: Any, finish: Any) -> None:
    assert event_of_answer(COMPOSE, Decision(text="x", usage=usage, finish=finish)) == Composed("x")
    verdict = event_of_answer(JUDGE, Decision(text='{"decision": "done"}', usage=usage, finish=finish))
    assert verdict == Judged(Judgement(decision="done"))


@pytest.mark.parametrize("text", ["", " \n", None, 5])
def test_a_model_that_was_asked_for_a_text_and_gave_none_is_told_so(text: Any) -> None:
    with pytest.raises(MalformedDecision, match="gave none \\(finish reason 'length'\\)") as raised:
        event_of_answer(COMPOSE, Decision(text=text, finish="length", usage=USAGE))
    assert raised.value.usage == USAGE


# -- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FailureKind)
@pytest.mark.parametrize("retry_after_s", [None, 0.0, 2.5, 3])
def test_every_kind_of_failure_of_a_model(kind: FailureKind, retry_after_s: float | None) -> None:
    told = event_of_failure(DECIDE, ModelFailed(kind, "words", retry_after_s), model=True)
    word = "ModelFailed" if kind is FailureKind.UNKNOWN else kind.value
    assert told == DecisionFailed(word, "words", "passing" if kind.passes else "error", retry_after_s)


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), "7", True, ...], ids=repr)
def test_a_time_that_no_run_can_keep_is_none(odd: Any) -> None:
    assert event_of_failure(DECIDE, ModelFailed("timeout", "x", odd)) == DecisionFailed("timeout", "x", "passing", None)


@pytest.mark.parametrize(
    ("error", "model", "kind"),
    [
        (TimeoutError("x"), True, "passing"),
        (ConnectionResetError("x"), True, "passing"),
        (ConnectionError("x"), True, "passing"),
        (TimeoutError("x"), False, "error"),
        (ConnectionError("x"), False, "error"),
        (ValueError("x"), True, "error"),
        (OSError("x"), True, "error"),
        (asyncio.CancelledError("x"), True, "error"),
        (MalformedDecision("x"), True, "malformed"),
        (MalformedDecision("x"), False, "malformed"),
    ],
    ids=repr,
)
def test_a_model_that_was_not_reached_may_be_asked_again_and_a_function_may_not(error: Any, model: bool, kind: str) -> None:
    assert event_of_failure(DECIDE, error, model=model) == DecisionFailed(type(error).__name__, "x", kind)


@pytest.mark.parametrize("error", [ValueError("x"), ModelFailed("timeout", "x"), MalformedDecision("x"), asyncio.CancelledError("x")])
def test_failures_of_verifiers_and_closers(error: BaseException) -> None:
    name = type(error).__name__
    assert event_of_failure(JUDGE, error, model=True) == JudgeFailed(name, "x")
    told = event_of_failure(COMPOSE, error, model=True)
    assert told == (ComposeFailed("timeout", "x", "passing") if name == "ModelFailed" else ComposeFailed(name, "x"))


@pytest.mark.parametrize("error", [ModelFailed("timeout", "x", usage=USAGE), MalformedDecision("x", USAGE)], ids=repr)
@pytest.mark.parametrize("effect", [DECIDE, JUDGE, COMPOSE], ids=lambda one: type(one).__name__)
def test_a_failure_that_says_what_it_cost_is_told_with_it(effect: Any, error: BaseException) -> None:
    told: Any = event_of_failure(effect, error, model=True)
    assert told.usage == USAGE
    assert event_of_failure(effect, ModelFailed("timeout", "x", usage=cast(Any, 5)), model=True).usage is None  # type: ignore[union-attr]


def test_what_a_provider_wants_back_with_a_text_stays_with_it() -> None:
    assert event_of_answer(COMPOSE, Decision(text="x", kept={"by": "me"})) == Composed("x", kept={"by": "me"})


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit()], ids=repr)
@pytest.mark.parametrize("effect", [DECIDE, JUDGE, COMPOSE])
def test_what_passes_through_is_raised(effect: Any, error: BaseException) -> None:
    with pytest.raises(type(error)) as raised:
        event_of_failure(effect, error)
    assert raised.value is error


@pytest.mark.parametrize("error", [GeneratorExit("x"), BaseException("x")], ids=repr)
@pytest.mark.parametrize("effect", [DECIDE, JUDGE, COMPOSE], ids=lambda one: type(one).__name__)
def test_whatever_else_is_raised_is_a_failure_with_its_name(effect: Any, error: BaseException) -> None:
    told: Any = event_of_failure(effect, error)
    assert (told.error, told.message) == (type(error).__name__, "x")


def test_a_reply_that_calls_tools_where_a_text_was_asked_for_is_a_decision() -> None:
    calls = Decision(calls=(ToolCall("t"),), text="x")
    assert event_of_answer(Compose(RUN, closing=False), calls) == Decided(calls)
    assert event_of_answer(Compose(RUN), calls) == Composed("x")
    assert event_of_answer(Compose(RUN, closing=False), Decision(text="x")) == Composed("x")


@pytest.mark.parametrize("more", [{"citations": ("c1",)}, {"question": "y?"}], ids=str)
def test_what_a_written_text_cites_or_asks_is_told_with_it(more: dict[str, Any]) -> None:
    written = Decision(text="x", **more)
    assert event_of_answer(Compose(RUN, closing=False), written) == Decided(written)
    assert event_of_answer(Compose(RUN), written) == Composed("x")
    assert event_of_answer(Compose(RUN, closing=False), Decision(citations=("c1",))) == Composed("")


def test_an_exception_that_cannot_be_read_is_named() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert event_of_failure(DECIDE, Mute()) == DecisionFailed("Mute", "(the message of the Mute could not be read)")


@pytest.mark.parametrize("effect", [DECIDE, JUDGE, COMPOSE], ids=lambda one: type(one).__name__)
def test_an_exception_that_raises_at_every_look_is_a_failure_with_its_name(effect: Any) -> None:
    class Blind(Exception):
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError(name)

    told: Any = event_of_failure(effect, Blind("x"))
    assert (told.error, told.message) == ("Blind", "x")
