"""What a desk answers: rows found and copied, words that claim nothing beside them, and a preference as it was asked for."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from fsm_agent.desk_answers import as_asked, found_text, no_name, rows_of


@pytest.mark.parametrize(
    ("value", "rows"),
    [
        ({"rows": [{"a": 1}, 2]}, [{"a": 1}, 2]),
        ({"rows": 5}, []),
        ({"a": 1, "b": [3], "c": [4]}, [3]),
        ([1, [2]], [1, [2]]),
        ((1,), []),
        (None, []),
        ({}, []),
        (MappingProxyType({"x": [1]}), [1]),
        ("text", []),
    ],
)
def test_rows_are_found_in_a_result_and_copied(value: Any, rows: list[Any]) -> None:
    found = rows_of(value)

    assert found == rows
    found.append("mine")
    assert rows_of(value) == rows


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"rows": [], "notes": ["mapo 7"], "sku": "a"}, "no rows: {'rows': [], 'sku': 'a'}"),
        ({"total": 5, "by": {"mapo": 7}}, "no rows: {'total': 5}"),
        ([], "no rows: []"),
        (None, "no rows: None"),
        ({"sku": "a", "rows": [{"w": "m", "n": 1}], "notes": ["x"]}, "a: m 1"),
    ],
)
def test_words_tell_of_rows_and_of_nothing_beside_them(value: Any, text: str) -> None:
    assert found_text(value, rows_of(value)) == text


@pytest.mark.parametrize("prefer", [5, None, [1, {"a": (2,)}], 10**5000], ids=range(4))
def test_a_plain_preference_is_given_back_and_a_copy_of_it(prefer: Any) -> None:
    given = as_asked({"prefer": prefer}, no_name(prefer))

    assert given == prefer
    assert given is not prefer or type(prefer) is not list


@pytest.mark.parametrize(
    ("order", "tool"),
    [({"prefer": object()}, no_name(object())), ({"prefer": 5}, "<6>"), ({"prefer": "<5>"}, "<5>"), (None, "<5>"), ({}, "<5>")],
)
def test_what_is_not_plain_or_was_not_asked_for_stays_a_name(order: Any, tool: str) -> None:
    assert as_asked(order, tool) == tool
