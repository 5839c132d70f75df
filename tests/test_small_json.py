"""What is JSON already is found by a look, and its text is the one that the longer way writes."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsm_agent.core.plain import dumps, to_json
from fsm_agent.core.small_json import is_small_json, is_unicode

TEXTS = st.text(max_size=3) | st.sampled_from(["", "$", "$int", "a$", "é", "\ud835", "\udc00", "e\u0301"])
LEAVES = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | TEXTS | st.binary(max_size=2)
    | st.sampled_from([2**63, 2**63 - 1, -(2**63), -(2**63) - 1, 2**31, math.nan, math.inf])
)  # fmt: skip
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(TEXTS, inner, max_size=3)
    | st.dictionaries(st.integers(), inner, max_size=1)
    | st.tuples(inner)
    | st.frozensets(st.integers(), max_size=1),
    max_leaves=8,
)


@settings(max_examples=300)
@given(VALUES)
def test_what_is_found_to_be_json_is_what_the_longer_way_gives_back_and_all_that_is_small_is_found(value: Any) -> None:
    longer = json.dumps(to_json(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    plain = json.dumps(value, ensure_ascii=False, separators=(",", ":")) if is_small_json(value) else longer
    assert dumps(value) == longer == plain


@pytest.mark.parametrize("value", [None, True, 1, -1.5, "x", "é", [], {}, {"a": [1, {"b": None}]}, [2**63 - 1], {"a$": "$a"}])
def test_json_is_found(value: Any) -> None:
    assert is_small_json(value)


class Text(str):
    """A text of another type."""


SHARED: list[Any] = [[]]
for _ in range(20):
    SHARED = [SHARED, SHARED]
CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    "value",
    [
        (1,), {1}, b"", math.nan, math.inf, 2**63, -(2**63) - 1, "\ud800", {"\ud800": 1}, {"$a": 1}, {1: 2}, Text("x"), [Text("x")],
        {Text("x"): 1}, [(1,)], {"a": [math.nan]}, [[2**63]], ["\ud800"], SHARED, CYCLE, list(range(2000)),
    ],
)  # fmt: skip
def test_what_needs_a_tag_or_is_large_is_left_to_the_longer_way(value: Any) -> None:
    assert not is_small_json(value)


@given(TEXTS)
def test_a_text_is_unicode_where_utf_8_can_write_it(text: str) -> None:
    assert is_unicode(text) is (text.encode("utf-8", "ignore").decode("utf-8") == text)
