"""Observations: equal results are counted and new facts told apart, and the first of them waits for another to be compared with."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.core.keys import leaves, observation_key
from fsm_agent.core.limits import Limits
from fsm_agent.core.replay import replay
from fsm_agent.core.saving import load, save
from fsm_agent.core.values import StopReason, ToolCall
from tests.by_hand import Hand, a_tool, off

RESULTS = st.sampled_from(["a", "b", [1], [1, 2], {"x": 1}, {"x": 1, "y": [2]}, 0, False])
LIMITS = st.sampled_from([off(max_same_observation=9), off(max_stale_turns=9), off(max_same_observation=9, max_stale_turns=9)])


def turn(hand: Hand, *values: Any) -> Hand:
    """One turn in which a call for each value returns it."""
    first = len(hand.run.call_ids) + 1
    ids = [f"c{n}" for n in range(first, first + len(values))]
    hand.decides(*[ToolCall("look", {"q": call_id}, call_id) for call_id in ids])
    for call_id, value in zip(ids, values, strict=True):
        hand.gives(call_id, value)
    return hand


@given(turns=st.lists(st.lists(RESULTS, min_size=1, max_size=2), min_size=1, max_size=6), limits=LIMITS)
def test_from_the_second_observation_on_all_are_counted_as_if_each_had_been_at_once(turns: list[list[Any]], limits: Limits) -> None:
    hand = Hand(limits=limits)
    counts: dict[str, int] = {}
    facts: dict[str, bool] = {}
    stale = 0
    for values in turns:
        turn(hand, *values)
        before = len(facts)
        for value in values:
            counts[observation_key(value)] = counts.get(observation_key(value), 0) + 1
            facts |= dict.fromkeys(leaves(value), True)
        stale = 0 if len(facts) > before else stale + 1
        run = hand.run
        assert run.same_observation == (max(counts.values()) if limits.max_same_observation else 0)
        assert run.stale_turns == (stale if limits.max_stale_turns else 0)
        if sum(counts.values()) > 1:
            assert run.only_observation == ""
            assert run.observations == (counts if limits.max_same_observation else {})
            assert run.facts == (facts if limits.max_stale_turns else {})
        assert load(save(run), hand.engine.setup) == run == replay(hand.engine, run)


def test_an_only_observation_waits_uncounted_and_is_counted_with_the_next() -> None:
    hand = turn(Hand(limits=off(max_same_observation=3, max_stale_turns=3)), "a")
    assert (hand.run.only_observation, hand.run.observations, hand.run.facts) == ("c1", {}, {})
    assert hand.call("c1").observation == ""
    turn(hand, "a")
    assert hand.call("c1").observation == hand.call("c2").observation == observation_key("a")
    assert hand.run.observations == {observation_key("a"): 2}


def test_a_limit_of_one_observation_stops_at_the_first_and_names_it() -> None:
    hand = turn(Hand(limits=off(max_same_observation=1)), "a")
    assert hand.reason is StopReason.REPEATED_OBSERVATION
    assert hand.run.stop is not None
    assert hand.run.stop.closed[0].calls == ("c1",)


@pytest.mark.parametrize("loads", [False, True], ids=["at once", "after a load"])
def test_equal_results_stop_a_run_at_their_number_and_all_of_them_are_named(loads: bool) -> None:
    hand = turn(Hand(limits=off(max_same_observation=3)), "a")
    if loads:
        hand.run = load(save(hand.run), hand.engine.setup)
    turn(turn(hand, "a"), "a")
    assert hand.reason is StopReason.REPEATED_OBSERVATION
    assert hand.run.stop is not None
    assert hand.run.stop.closed[0].calls == ("c1", "c2", "c3")


def test_an_empty_result_that_is_normal_is_no_observation_to_wait_with() -> None:
    hand = turn(Hand(a_tool(empty_ok=True), limits=off(max_same_observation=2, max_stale_turns=2)), [])
    assert (hand.run.only_observation, hand.run.same_observation, hand.run.stale_turns) == ("", 0, 0)
    assert turn(turn(hand, []), []).reason is None
