"""How many pieces of evidence are independent of each other: another origin, and another content."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.core.independence import independent
from fsm_agent.core.run import Call


def piece(tool: str = "a", q: Any = 1, value: Any = 1, source: str = "", **more: Any) -> Call:
    """A settled call that found something."""
    return Call(id=more.pop("id", f"{tool}{q}"), tool=tool, args={"q": q}, ok=True, value=value, source=source, **more)


@pytest.mark.parametrize(
    ("one", "other", "count"),
    [
        (piece("a", 1, 1), piece("b", 1, 2), 2),
        (piece("a", 1, 1), piece("b", 1, 1), 1),
        (piece("a", 1, 1), piece("a", 2, 2), 2),
        (piece("a", 1, 1), piece("a", 2, 1), 1),
        (piece("a", 1, 1), piece("a", 1, 2), 1),
        (piece("a", 1, 1), piece("a", 1, 1), 1),
        (piece("a", 1, 1, "web"), piece("b", 1, 2, "web"), 1),
        (piece("a", 1, 1, "web"), piece("a", 1, 2, "wiki"), 2),
        (piece("a", 1, 1, "web"), piece("a", 1, 1, "wiki"), 1),
        (piece("a", 1, 1, "web"), piece("a", 2, 2, ""), 2),
        (piece("a", 1, 1, "'a'{'q':1,}"), piece("a", 1, 2, ""), 2),
        (piece("a", 1, {"x": [1, 2]}), piece("b", 1, {"x": [1, 2]}), 1),
        (piece("a", 1, {"x": 1, "y": 2}), piece("b", 1, {"y": 2, "x": 1}), 1),
        (piece("a", 1, 1), piece("b", 1, "1"), 2),
        (piece("a", {"deep": 1}, 1), piece("a", {"deep": 2}, 2), 2),
    ],
)
def test_two_pieces_are_independent_when_both_origin_and_content_differ(one: Call, other: Call, count: int) -> None:
    assert independent([one, other]) == independent([other, one]) == count


def test_nothing_found_is_no_piece() -> None:
    assert independent([]) == 0


def test_another_spelling_of_the_same_call_is_the_same_origin() -> None:
    same = [piece("a", q, value=q, key="'a'{'q':1,}") for q in ("1", " 1")]
    assert independent(same) == 1


def most_independent(pairs: list[tuple[int, int]]) -> int:
    """The size of the largest set of pieces no two of which share an origin or a content, by trying all."""
    for size in range(len(pairs), 0, -1):
        for chosen in itertools.combinations(pairs, size):
            if len({origin for origin, _ in chosen}) == len({content for _, content in chosen}) == size:
                return size
    return 0


few = st.integers(0, 4)


@given(pairs=st.lists(st.tuples(few, few), max_size=8), enough=st.none() | st.integers(1, 5), data=st.data())
def test_pieces_are_counted_so_that_no_choice_among_them_would_find_more(
    pairs: list[tuple[int, int]], enough: int | None, data: st.DataObject
) -> None:
    most = most_independent(list(dict.fromkeys(pairs)))
    found = [piece("a", origin, content) for origin, content in data.draw(st.permutations(pairs))]
    count = independent(found, enough)
    assert count == (most if enough is None else min(most, enough))


def test_a_piece_that_is_needed_elsewhere_makes_room() -> None:
    """Counted one after the other, only the first of these would count."""
    assert independent([piece("a", 1, 1), piece("a", 1, 2), piece("b", 1, 1)]) == 2


def test_many_pieces_are_counted_in_little_time() -> None:
    found = [piece("a", n, n % 7) for n in range(3000)]
    assert independent(found) == 7
    assert independent([piece("a", n, n) for n in range(3000)]) == 3000


def test_enough_is_enough() -> None:
    found = [piece("a", n, n) for n in range(5)]
    assert [independent(found, enough) for enough in (0, 1, 4, 5, 6, None)] == [0, 1, 4, 5, 5, 5]


def test_the_keys_that_a_run_keeps_already_are_taken_as_they_are() -> None:
    one, other = piece("a", 1, 1, key="k", observation="seen"), piece("b", 2, 2, key="k", observation="seen")
    assert independent([one, other]) == 1
    assert independent([one, piece("b", 2, 2, key="k2", observation="seen 2")]) == 2
