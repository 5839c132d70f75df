"""Strategies of seed 004: who may go on, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.core.errors import BuildError
from fsm_agent.core.strategies import LoopState, combine, max_iterations, name_of, parts_of, until_finish_reason


@given(st.integers(0, 50), st.integers(0, 100))
def test_so_many_turns_and_no_more(most: int, made: int) -> None:
    assert max_iterations(most)(LoopState(iteration_count=made)) is (made < most)


@pytest.mark.parametrize("most", [-1, True, 1.0, "5", None, [1]])
def test_a_number_of_turns_is_a_whole_number(most: Any) -> None:
    with pytest.raises(BuildError, match=r"max_iterations\(.*\): give a whole number from 0"):
        max_iterations(most)


@pytest.mark.parametrize("finish", ["stop", "length", "tool_calls", "", "STOP"])
@pytest.mark.parametrize("reasons", [["stop"], ("stop", "length"), {"tool_calls"}, [], iter(["stop"])], ids=range(5))
def test_a_run_goes_on_until_a_turn_ends_for_one_of_the_reasons(finish: str, reasons: Any) -> None:
    wanted = list(reasons)
    strategy = until_finish_reason(iter(wanted))
    for _ in range(2):
        assert strategy(LoopState(finish_reason=finish)) is (finish not in wanted)
    assert strategy.stop_reason == "finish_reason"  # type: ignore[attr-defined]


@pytest.mark.parametrize("reasons", ["stop", 5, None, ["stop", 5], [["stop"]]])
def test_finish_reasons_are_a_list_of_texts(reasons: Any) -> None:
    with pytest.raises(BuildError, match="until_finish_reason"):
        until_finish_reason(reasons)


_words = st.sampled_from([True, False, None, 0, 1, "", "yes"])


@given(st.lists(_words, max_size=5))
def test_all_must_go_on_those_who_abstain_aside(words: list[Any]) -> None:
    asked: list[Any] = []

    def saying(word: Any) -> Any:
        return lambda state: asked.append(word) or word

    goes_on = combine([saying(word) for word in words])(LoopState())
    noes = [n for n, word in enumerate(words) if word is not None and not word]
    assert goes_on is (not noes)
    assert asked == words[: noes[0] + 1 if noes else None]


@pytest.mark.parametrize("strategies", [5, None, [5], [max_iterations(1), "stop"], "stop"])
def test_only_functions_are_combined(strategies: Any) -> None:
    with pytest.raises(BuildError, match=r"^combine\((5|None|'stop')\): give a list|^combine: (5|'stop') is no strategy"):
        combine(strategies)


def test_a_strategy_goes_by_its_name() -> None:
    class Asked:
        def __call__(self, state: LoopState) -> bool:
            return True

    def mine(state: LoopState) -> None:
        return None

    several = combine([max_iterations(3), until_finish_reason(["stop", "length"]), mine])
    assert [name_of(one) for one in (max_iterations(3), mine, Asked(), several)] == [
        "max_iterations(3)",
        "mine",
        "Asked",
        "combine(max_iterations(3), until_finish_reason(length, stop), mine)",
    ]


def test_combined_ones_are_taken_apart_in_order() -> None:
    one, two, three, four = (max_iterations(n) for n in range(1, 5))
    assert parts_of([one, combine([two, combine([three])]), four]) == [one, two, three, four]
    assert parts_of([]) == parts_of([combine([])]) == []


def test_a_state_that_nothing_was_said_of_is_that_of_a_run_that_begins() -> None:
    state = LoopState()
    assert (state.iteration_count, state.finish_reason, state.messages, state.tool_call_count, state.last_turn_tool_call_count) == (
        0, "", (), 0, 0,
    )  # fmt: skip
