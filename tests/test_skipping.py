"""Why calls that have not begun are skipped: the same whatever order the results of their turn arrive in."""

from __future__ import annotations

import itertools

import pytest
from by_hand import Hand, a_tool, off, says

from fsm_agent.core.effects import CallTools
from fsm_agent.core.limits import Limits
from fsm_agent.core.replay import replay
from fsm_agent.core.tools import Retry
from fsm_agent.core.values import StopReason

TRIES = a_tool(retry=Retry(attempts=2, backoff_s=[1.0]))
BUDGETED = off(max_wait_s=30.0, deadline_s=70.0, max_turns=9)
# What is said of a call that is tried again soon, of one whose wait outlives the wait budget, of one whose wait outlives both.
WORDS = {"soon": says("RETRYABLE"), "longer": says("RETRYABLE", retry_after_s=40.0), "far": says("RETRYABLE", retry_after_s=90.0)}


@pytest.mark.parametrize("limits", [Limits(), BUDGETED])
@pytest.mark.parametrize(
    ("kinds", "word", "reason"),
    [
        (("soon", "far", "fatal"), "skipped:fatal", StopReason.FATAL),
        (("soon", "far", "longer"), "skipped:deadline", StopReason.DEADLINE),
        (("soon", "far", "ok"), "skipped:deadline", StopReason.DEADLINE),
    ],
)
def test_a_call_that_waits_is_skipped_for_the_same_reason_in_any_order(
    kinds: tuple[str, ...], word: str, reason: StopReason, limits: Limits
) -> None:
    for order in itertools.permutations(range(3)):
        hand = Hand(TRIES, limits=limits).asks("look", "look", "look").begins()
        for place in order:
            hand.gives(f"c{place + 1}", place, says("FATAL") if kinds[place] == "fatal" else WORDS.get(kinds[place]))
        assert (hand.words[0], hand.reason) == (word, reason), order


def test_the_shorter_wait_alone_names_the_wait_budget() -> None:
    for order in (("c1", "c2"), ("c2", "c1")):
        hand = Hand(TRIES, limits=BUDGETED).asks("look", "look").begins()
        for call_id in order:
            hand.gives(call_id, None, WORDS["soon" if call_id == "c1" else "longer"])
        assert (hand.words[0], hand.reason) == ("skipped:max_wait", StopReason.MAX_WAIT), order


def test_nothing_more_begins_while_the_results_of_what_runs_are_waited_for() -> None:
    hand = Hand(TRIES, limits=off(max_parallel=2, max_wait_s=30.0, max_turns=9)).asks("look", "look", "look").begins()
    hand.gives("c1", None, WORDS["far"])
    assert isinstance(hand.effect, CallTools)
    assert hand.batch == ["c2"]
    assert hand.words[2] == "open"
    hand.gives("c2")
    assert hand.words == ["result:retryable", "ok", "skipped:max_wait"]
    assert replay(hand.engine, hand.run) == hand.run


def test_when_the_time_is_up_what_runs_is_heard_and_a_fatal_result_says_more() -> None:
    for last, word in ((None, "skipped:deadline"), (says("FATAL"), "skipped:fatal")):
        hand = Hand(TRIES, limits=off(max_parallel=2, deadline_s=10.0, max_turns=9)).asks("look", "look", "look").begins()
        hand.gives("c1", now=10.0)
        assert (hand.batch, hand.words[2]) == (["c2"], "open")
        hand.gives("c2", 2, last, now=10.0)
        assert hand.words[2] == word
