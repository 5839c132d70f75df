"""Asking the decider (core/asking): whether it may be asked, and how often again once it gave no answer for the moment."""

from __future__ import annotations

from typing import Any

import pytest
from by_hand import Hand, a_tool, off
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.core.answers import answer_of
from fsm_agent.core.asking import may_decide
from fsm_agent.core.effects import Decide, Wait
from fsm_agent.core.errors import BuildError
from fsm_agent.core.events import DecisionFailed
from fsm_agent.core.replay import replay
from fsm_agent.core.run import Run
from fsm_agent.core.saving import load, save
from fsm_agent.core.values import Policy, Status, StopReason, Usage


def failing(hand: Hand, retry_after_s: Any = None, now: float | None = None) -> Hand:
    """The model gives no answer for the moment."""
    return hand.tell(DecisionFailed("rate_limited", "slow down", "passing", retry_after_s), now)


@pytest.mark.parametrize("attempts", [1, 2, 3, 5])
def test_a_model_is_asked_so_often_in_all(attempts: int) -> None:
    hand = Hand(limits=off(), policy=Policy(model_attempts=attempts))
    for _ in range(attempts - 1):
        failing(hand)
        assert isinstance(hand.effect, Wait)
        hand.waits()
        assert isinstance(hand.effect, Decide)
    failing(hand)
    assert hand.reason is StopReason.MODEL_ERROR
    answer = answer_of(hand.run)
    assert answer is not None
    assert answer.status is Status.FAILED
    assert "rate_limited: slow down" in answer.text


def test_an_answer_in_between_gives_all_attempts_back() -> None:
    hand = Hand(limits=off(), policy=Policy(model_attempts=2))
    for n in range(4):
        failing(hand).waits().asks("look").gives(f"c{n + 1}")
    assert isinstance(hand.effect, Decide)
    assert (hand.run.failed_requests, hand.run.note) == (0, "")


def test_the_waits_double_with_jitter_from_the_runs_own_seed() -> None:
    waits: list[list[float]] = []
    for seed in (1, 1, 2):
        hand = Hand(limits=off(), policy=Policy(model_attempts=4, model_backoff_s=1.0), seed=seed)
        waits.append([])
        for _ in range(3):
            before = hand.run.spent_s
            failing(hand)
            waits[-1].append(hand.effect.until_s - before)
            hand.waits()
    assert waits[0] == waits[1] != waits[2]
    for made in waits:
        assert all(full / 2 <= wait <= full for wait, full in zip(made, (1.0, 2.0, 4.0), strict=True))


@pytest.mark.parametrize(("said", "wait"), [(0.0, 0.0), (7.5, 7.5), (0, 0), (-3.0, 0.0)])
def test_a_retry_after_is_honoured(said: Any, wait: float) -> None:
    hand = failing(Hand(limits=off()), said, 2.0)
    assert hand.run.not_before_s == 2.0 + wait
    assert isinstance(hand.effect, Wait if wait else Decide)


@pytest.mark.parametrize("said", [None, float("nan"), float("inf"), "soon", True, 10**400])
def test_a_retry_after_that_is_no_number_says_nothing(said: Any) -> None:
    hand = failing(Hand(limits=off(), policy=Policy(model_backoff_s=1.0)), said)
    assert 0.5 <= hand.effect.until_s <= 1.0


def test_a_wait_that_outlives_the_deadline_ends_the_run_now() -> None:
    hand = failing(Hand(limits=off(deadline_s=10.0)), 30.0, 1.0)
    assert (hand.reason, hand.run.spent_s, hand.run.waited_s) == (StopReason.DEADLINE, 1.0, 0.0)
    stop = hand.run.stop
    assert stop is not None
    # Of ten seconds one was used; without the wait nobody would see why that is the end.
    assert str(stop.closed[0]) == "time_left: deadline_s is 10, 1 used, with 30 s to wait"
    assert load(save(hand.run), hand.engine.setup) == hand.run
    hand.engine.resume(hand.run, stop.raise_to)
    assert isinstance(hand.effect, Decide | Wait)


def test_a_wait_that_outlives_the_wait_budget_ends_the_run_now() -> None:
    hand = failing(Hand(limits=off(max_wait_s=5.0)), 3.0).waits()
    assert isinstance(hand.effect, Decide)
    failing(hand, 3.0)
    assert hand.reason is StopReason.MAX_WAIT
    assert hand.run.stop is not None
    assert hand.run.stop.raise_to == {"max_wait_s": 6.0}
    assert str(hand.run.stop.closed[0]) == "waits_left: max_wait_s is 5, 3 used, with 3 s to wait"


def test_a_run_that_gave_up_on_its_model_can_be_taken_up_again_with_all_attempts() -> None:
    hand = failing(failing(Hand(limits=off(), policy=Policy(model_attempts=2))).waits())
    assert hand.reason is StopReason.MODEL_ERROR
    hand.engine.resume(hand.run)
    failing(hand)
    assert isinstance(hand.effect, Wait)
    hand.waits().decides(text="done")
    assert hand.reason is StopReason.ANSWERED
    assert replay(hand.engine, load(save(hand.run), hand.engine.setup)) == hand.run


def test_each_request_counts_as_a_turn() -> None:
    hand = failing(Hand(limits=off(max_turns=2), policy=Policy(model_attempts=9))).waits()
    failing(hand)
    assert (hand.run.turns, hand.reason) == (2, StopReason.MAX_TURNS)


@pytest.mark.parametrize("kind", ["error", "malformed"])
def test_what_does_not_pass_is_not_waited_for(kind: str) -> None:
    hand = Hand(limits=off()).tell(DecisionFailed("OSError", "down", kind, 5.0))
    assert not isinstance(hand.effect, Wait)
    assert hand.reason is (StopReason.MODEL_ERROR if kind == "error" else None)


@given(st.lists(st.sampled_from([None, 0.0, 1.0, 4.0]), min_size=1, max_size=6), st.integers(1, 4), st.integers(0, 12))
def test_however_often_it_fails_the_budgets_hold(said: list[float | None], attempts: int, budget: int) -> None:
    hand = Hand(limits=off(max_wait_s=float(budget)), policy=Policy(model_attempts=attempts))
    for number in range(20):
        if hand.effect is None:
            break
        if isinstance(hand.effect, Wait):
            hand.waits()
        failing(hand, said[number % len(said)])
    assert hand.reason in (StopReason.MODEL_ERROR, StopReason.MAX_WAIT)
    assert hand.run.turns <= attempts
    assert hand.run.waited_s <= budget


@pytest.mark.parametrize(
    ("limits", "spent", "reason"),
    [
        ({}, {}, None),
        ({"max_turns": 2}, {"turns": 1}, None),
        ({"max_turns": 2}, {"turns": 2}, StopReason.MAX_TURNS),
        ({"deadline_s": 5.0}, {"spent_s": 5.0}, StopReason.DEADLINE),
        ({"max_tokens": 5}, {"tokens": 5}, StopReason.MAX_TOKENS),
        ({"max_cost": 1.0}, {"cost": 1.0}, StopReason.MAX_COST),
        ({"max_tokens": 5, "deadline_s": 9.0, "max_turns": 1}, {"tokens": 5, "spent_s": 9.0, "turns": 1}, StopReason.DEADLINE),
    ],
)
def test_the_first_guard_that_is_closed_is_noted(limits: dict[str, Any], spent: dict[str, Any], reason: StopReason | None) -> None:
    run = Run(id="r", request="x", state="gather", limits=off(**limits), **spent)
    assert may_decide(run) is (reason is None)
    assert [guard.reason for guard in run.closed] == ([reason] if reason else [])
    assert [row[0] for row in run.trace] == (["guard_closed"] if reason else [])


def test_tokens_that_are_spent_let_no_turn_begin() -> None:
    hand = Hand(limits=off(max_tokens=10, max_cost=9.0)).decides(text=None, usage=Usage(input_tokens=10))
    assert hand.reason is StopReason.MAX_TOKENS


@pytest.mark.parametrize(
    "wrong",
    [
        *({"model_attempts": value} for value in (0, True, 1.5)),
        *({"model_backoff_s": value} for value in (-1, float("inf"), "1")),
        *({"approval_ttl_s": value} for value in (-1, "soon")),
        {"on_denied": "ask"},
    ],
    ids=str,
)
def test_a_policy_of_the_wrong_kind_is_refused(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(BuildError, match=f"Policy.{name} is"):
        Policy(**wrong)


def test_a_tool_is_not_asked_about_here() -> None:
    assert Hand(a_tool("look"), limits=off()).effect.tools == ("look",)


def test_a_first_request_that_failed_is_not_made_again_where_no_turn_may_follow() -> None:
    hand = Hand(limits=off(stop_after_tool_calls=0)).tell(DecisionFailed("rate_limited", "slow", "passing"))

    assert hand.run.stop is not None
    assert (hand.run.stop.reason, [closed.limit for closed in hand.run.stop.closed]) == (
        StopReason.STOP_AFTER_TOOL_CALLS, ["stop_after_tool_calls"],
    )  # fmt: skip
