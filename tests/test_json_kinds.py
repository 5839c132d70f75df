"""JSON types of Python values, equality by type and value, and one short line for any value."""

from __future__ import annotations

import enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.core.json_kinds import describe, key_name, kind_of, nests_within, of_type, same


class Word(enum.StrEnum):
    A = "a"


class Number(enum.IntEnum):
    ONE = 1


class Shouting(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise ZeroDivisionError


class Loud(metaclass=Shouting):
    def __repr__(self) -> str:
        raise ZeroDivisionError


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


VALUES: list[Any] = [
    None, True, False, 0, 1, 1.0, 0.0, "", "1", "a", [], [1], [1.0], [True], [[1]], {}, {"a": 1}, {"a": True}, {"b": 1},
    {"a": 1, "b": 2},
]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "null"), (True, "bool"), (1, "int"), (1.0, "float"), ("a", "str"), ([], "list"), ({}, "object"),
        (Word.A, "str"),
        (Number.ONE, "int"), ((), ""), (b"", ""), (set(), ""), (object(), ""), (1j, ""),
    ],
)  # fmt: skip
def test_each_value_has_one_kind(value: Any, kind: str) -> None:
    assert kind_of(value) == kind
    names = {"null", "bool", "int", "float", "str", "list", "object"}
    fitting = {name for name in names if of_type(name, value)}
    assert fitting == ({kind} if kind else set()) | ({"float"} if kind == "int" else set())
    assert of_type("any", value)
    assert not of_type("string", value)
    assert of_type(["null", "any"], value)
    assert not of_type([], value)


@pytest.mark.parametrize("left", range(len(VALUES)))
@pytest.mark.parametrize("right", range(len(VALUES)))
def test_values_are_the_same_only_by_type_and_value(left: int, right: int) -> None:
    assert same(VALUES[left], VALUES[right]) is (left == right)


def test_same_is_for_any_depth_and_for_values_that_hold_themselves() -> None:
    one: list[Any] = []
    one.append(one)
    other: list[Any] = []
    other.append(other)
    assert same(deep(100_000), deep(100_000))
    assert not same(deep(100_000), deep(99_999))
    assert same(one, other)
    assert not same(float("nan"), float("nan"))
    assert not same(Loud(), Loud())
    assert same({1: 2, None: 3}, {None: 3, 1: 2})


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_a_value_is_the_same_as_itself(value: Any) -> None:
    assert same(value, value)
    assert not same(value, [value])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"), (True, "True"), (1, "1"), (1.5, "1.5"), ("a", "'a'"),
        ([1, "a"], "[1, 'a']"), ({"a": [1]}, "{'a': [1]}"),
        ({"a": {"b": {"c": 1}}}, "{'a': {'b': {...}}}"), (list(range(20)), "[0, 1, 2, 3, 4, 5, 6, 7, ...]"),
        (10**5000, "an int of 16610 bits"), ("\ud800", "'\\ud800'"), ((1,), "a value of type tuple"),
        (Loud(), "a value of type Loud"), ([], "[]"), ({}, "{}"), ([[[[]]]], "[[[...]]]"),
    ],
    ids=range(16),
)  # fmt: skip
def test_a_value_is_described_in_a_few_words(value: Any, text: str) -> None:
    assert describe(value) == text


@pytest.mark.parametrize(
    "value", ["x" * 10**6, ["x" * 10**6] * 10**4, deep(100_000), {"x" * 10**6: 1}, 10**100000], ids=range(5)
)
@pytest.mark.parametrize("limit", [10, 40, 80])
def test_a_description_is_capped(value: Any, limit: int) -> None:
    assert len(describe(value, limit)) <= limit


def test_a_key_stands_as_itself_or_is_described() -> None:
    assert key_name("x" * 100) == "x" * 100
    assert key_name(5) == "5"
    assert len(key_name(10**5000)) <= 40


@pytest.mark.parametrize("levels", range(5))
@pytest.mark.parametrize("limit", range(1, 5))
def test_nesting_is_counted_in_levels(levels: int, limit: int) -> None:
    value: Any = "leaf"
    for _ in range(levels):
        value = {"k": [value]}
    assert nests_within(value, limit) is (2 * levels <= limit)


def test_what_holds_itself_nests_without_an_end() -> None:
    value: list[Any] = [1, 2]
    value += [value, value]
    assert not nests_within(value, 1000)
