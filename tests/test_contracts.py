"""The table form of contracts: reasons, their order, places, defaults, live tables and hostile values."""

from __future__ import annotations

import copy
import math
from collections import OrderedDict, UserDict
from enum import IntEnum
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.core.contracts import ArgumentsContract, ResultContract, TableArguments, TableResult
from fsm_agent.core.spec_check import check_arguments
from fsm_agent.core.table_faults import (
    argument_fault,
    argument_faults,
    result_fault,
    result_faults,
    value_fault,
    value_faults,
)

ARGS: dict[str, Any] = {
    "sku": {"type": "str", "required": True},
    "region": {"type": "str", "required": True, "allowed": ["seoul", "busan", "jeju"]},
    "limit": {"type": "int", "required": True, "min": 1, "max": 2},
}
RETURNS: dict[str, Any] = {
    "sku": {"type": "str"},
    "rows": {
        "type": "list",
        "max_len": 2,
        "item": {"warehouse": {"type": "str"}, "count": {"type": "int", "min": 0}},
    },
}
GOOD: dict[str, Any] = {"sku": "A-1001", "region": "seoul", "limit": 2}
ROW: dict[str, Any] = {"warehouse": "mapo", "count": 7}


class Two(IntEnum):
    TWO = 2


class Angry:
    """Raises whatever is asked of it."""

    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError

    def __repr__(self) -> str:
        raise ZeroDivisionError

    def __len__(self) -> int:
        raise ZeroDivisionError

    __hash__ = None  # type: ignore[assignment]


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def looped() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


ODD_VALUES = {
    "none": None,
    "nan": math.nan,
    "infinity": math.inf,
    "huge int": 10**5000,
    "lone surrogate": "\ud800",
    "deep": deep(100_000),
    "looped": looped(),
    "angry": Angry(),
    "tuple": (1, 2),
    "bytes": b"x",
    "set": {1},
    "class": int,
    "odd keys": {1: 2, None: 3, (1, 2): 4, b"x": 5},
    "long text": "x" * 1_000_000,
}
ARGUMENT_CASES = {
    "good": (GOOD, ""),
    "an IntEnum member is an int": (GOOD | {"limit": Two.TWO}, ""),
    "a mapping that is no dict": (MappingProxyType(GOOD), ""),
    "another mapping that is no dict": (UserDict(GOOD), ""),
    "no argument": ({}, "missing:sku"),
    "one missing": ({"sku": "a", "limit": 1}, "missing:region"),
    "missing comes before extra": ({"sku": "a", "color": 1, "limit": 1}, "missing:region"),
    "extra": (GOOD | {"color": "red"}, "extra:color"),
    "extra comes before type": (GOOD | {"color": "red", "sku": 1}, "extra:color"),
    "an extra key that is no text": (GOOD | {7: 1}, "extra:7"),
    "an extra key that is a tuple": (GOOD | {(1, 2): 1}, "extra:a value of type tuple"),
    "type": (GOOD | {"sku": 7}, "type:sku"),
    "the first argument in the contract's order": ({"limit": "2", "region": 1, "sku": "a"}, "type:region"),
    "an earlier range comes before a later type": (GOOD | {"region": "x", "limit": "2"}, "allowed:region"),
    "True is no int": (GOOD | {"limit": True}, "type:limit"),
    "2.0 is no int": (GOOD | {"limit": 2.0}, "type:limit"),
    "a text is no int": (GOOD | {"limit": "2"}, "type:limit"),
    "not allowed": (GOOD | {"region": "incheon"}, "allowed:region"),
    "unhashable where a choice is asked": (GOOD | {"region": []}, "type:region"),
    "too small": (GOOD | {"limit": 0}, "range:limit"),
    "too great": (GOOD | {"limit": 3}, "range:limit"),
    "far too great": (GOOD | {"limit": 10**5000}, "range:limit"),
    "arguments that are None": (None, "type:args"),
    "arguments that are a list": ([GOOD], "type:args"),
    "arguments that are a text": ("sku", "type:args"),
}
# One rule, a value and the reason's kind (empty: kept).
RULE_CASES: list[tuple[dict[str, Any], Any, str]] = [
    ({"type": "float"}, 1, ""),
    ({"type": "float"}, 1.5, ""),
    ({"type": "float"}, True, "type"),
    ({"type": "float"}, "1.5", "type"),
    ({"type": "float"}, math.nan, ""),
    ({"type": "float"}, math.inf, ""),
    ({"type": "float", "min": 0}, math.nan, "range"),
    ({"type": "float", "max": 0}, math.nan, "range"),
    ({"type": "float", "min": 0}, math.inf, ""),
    ({"type": "float", "max": 10**400}, math.inf, "range"),
    ({"type": "float", "min": -1, "max": 1}, -1, ""),
    ({"type": "int", "min": 1}, 10**5000, ""),
    ({"type": "int", "min": 1.5}, 1, "range"),
    ({"type": "int", "exclusive_min": 1}, 1, "range"),
    ({"type": "int", "exclusive_min": 1}, 2, ""),
    ({"type": "int", "exclusive_max": 1}, 1, "range"),
    ({"type": "float", "exclusive_min": 1}, 1.0, "range"),
    ({"type": "float", "exclusive_max": 1}, 1.0, "range"),
    ({"type": "float", "min": 1, "max": 1}, 1.0, ""),
    ({"type": "float", "min": 1}, 0.5, "range"),
    ({"type": "float", "max": 1}, 1.5, "range"),
    ({"type": "int", "min": None, "max": 5}, 9, "range"),
    ({"type": "int", "min": None, "max": None}, 9, ""),
    ({"type": "float", "exclusive_min": None, "exclusive_max": None, "min": None, "max": None}, 9.5, ""),
    ({"type": "str", "min_len": None, "max_len": None, "pattern": None, "allowed": None}, "abc", ""),
    ({"type": "any", "item": None, "fields": None, "values": None}, [1], ""),
    ({"type": "any", "item": None, "fields": None, "values": None}, {"a": 1}, ""),
    ({"type": "any", "min": 5, "max": 6, "min_len": 5, "max_len": 6, "pattern": "b"}, None, ""),
    ({"type": "any", "exclusive_min": 5, "exclusive_max": 6}, None, ""),
    ({"type": ["list", "str"], "item": {"type": "int"}}, "abc", ""),
    ({"type": ["list", "object"], "values": {"type": "int"}, "item": {"type": "str"}}, ["a"], ""),
    ({"type": ["list", "object"], "fields": {"a": {"type": "int"}}}, [1], ""),
    ({"type": "bool"}, True, ""),
    ({"type": "bool"}, 1, "type"),
    ({"type": "null"}, None, ""),
    ({"type": "null"}, 0, "type"),
    ({"type": "any"}, {1, 2}, ""),
    ({}, None, ""),
    ({"type": ["int", "null"]}, None, ""),
    ({"type": ["int", "null"], "min": 1}, 0, "range"),
    ({"type": ["int", "null"]}, "1", "type"),
    ({"type": "str", "min_len": 1}, "", "length"),
    ({"type": "str", "max_len": 2}, "abc", "length"),
    ({"type": "str", "min_len": 1, "max_len": 2}, "ab", ""),
    ({"type": "str", "pattern": "^A"}, "B", "pattern"),
    ({"type": "str", "pattern": "1"}, "A1B", ""),
    ({"type": "str", "pattern": "^A", "max_len": 1}, "BB", "length"),
    ({"type": "str", "allowed": ["a"], "pattern": "b"}, "c", "allowed"),
    ({"type": "list", "min_len": 1}, [], "length"),
    ({"type": "list"}, (1,), "type"),
    ({"type": "object", "max_len": 1}, {"a": 1, "b": 2}, "length"),
    ({"type": "int", "allowed": [1, 2]}, 1, ""),
    ({"type": "any", "allowed": [1, 2]}, True, "allowed"),
    ({"type": "any", "allowed": [1, 2]}, 1.0, "allowed"),
    ({"type": "any", "allowed": [True]}, 1, "allowed"),
    ({"type": "any", "allowed": [[1, {"a": None}]]}, [1, {"a": None}], ""),
    ({"type": "any", "allowed": [[1, {"a": None}]]}, [1, {"a": False}], "allowed"),
    ({"type": "any", "allowed": [None]}, None, ""),
    ({"type": "any", "allowed": {"a": 1}.keys()}, "a", ""),
    ({"type": "any", "allowed": [1]}, Angry(), "allowed"),
    ({"type": "str", "allowed": [Angry(), "b"]}, "a", "allowed"),
    ({"type": "any", "allowed": [[1]]}, looped(), "allowed"),
    ({"type": "any", "allowed": [1]}, deep(100_000), "allowed"),
    ({"type": "list", "item": {"type": "int"}}, [1, 2], ""),
    ({"type": "list", "item": {"type": "int"}}, [1, "2"], "type"),
    ({"type": "list", "item": {"type": ["int", "null"]}}, [1, None], ""),
    ({"type": "list", "item": {}}, [1, "2", None], ""),
    ({"type": "list", "item": {"type": "int", "min": 1}}, [1, 0], "range"),
    ({"type": "list", "item": {"id": {"type": "int"}}}, [{"id": 1}], ""),
    ({"type": "list", "item": {"id": {"type": "int"}}}, [{"id": 1}, {}], "missing"),
    ({"type": "list", "item": {"id": {"type": "int"}}}, [{"id": 1, "x": 1}], "extra"),
    ({"type": "list", "item": {"type": {"type": "int"}}}, [{"type": 1}], ""),
    ({"type": "list", "item": {"id": {"type": "int"}}, "max_len": 1}, [{"id": "a"}, {"id": 1}], "type"),
    ({"type": "object"}, {"whatever": 1}, ""),
    ({"type": "object", "fields": {}}, {"whatever": 1}, "extra"),
    ({"type": "object", "fields": {"a": {"type": "int", "required": False}}}, {}, ""),
    (
        {"type": "object", "fields": {"a": {"type": "object", "fields": {"b": {"type": "int"}}}}},
        {"a": {"b": "1"}},
        "type",
    ),
    ({"type": "object", "values": {"type": "int"}}, {"a": 1, "b": 2}, ""),
    ({"type": "object", "values": {"type": "int"}}, {"a": 1, "b": "2"}, "type"),
]
RESULT_CASES: dict[str, tuple[Any, str]] = {
    "good": ({"sku": "a", "rows": [ROW, ROW]}, ""),
    "None": (None, "shape"),
    "a list": ([], "shape"),
    "a key too few": ({"rows": [ROW]}, "shape"),
    "a key too many": ({"sku": "a", "rows": [ROW], "x": 1}, "shape"),
    "a type": ({"sku": 1, "rows": [ROW]}, "shape"),
    "rows that are no list": ({"sku": "a", "rows": (ROW,)}, "shape"),
    "a row that is no object": ({"sku": "a", "rows": ["mapo"]}, "shape"),
    "a row with a key too few": ({"sku": "a", "rows": [{"warehouse": "m"}]}, "shape"),
    "a row with a key too many": ({"sku": "a", "rows": [ROW | {"x": 1}]}, "shape"),
    "a count that is True": ({"sku": "a", "rows": [ROW | {"count": True}]}, "shape"),
    "a count that is 2.0": ({"sku": "a", "rows": [ROW | {"count": 2.0}]}, "shape"),
    "empty": ({"sku": "a", "rows": []}, "empty"),
    "too many rows": ({"sku": "a", "rows": [ROW] * 3}, "too_big"),
    "out of range": ({"sku": "a", "rows": [ROW | {"count": -1}]}, "range"),
    "too big comes before range": ({"sku": "a", "rows": [ROW | {"count": -1}] * 3}, "too_big"),
    "shape comes before too big": ({"sku": 1, "rows": [ROW] * 3}, "shape"),
    "a late shape comes before too big and range": (
        {"sku": "a", "rows": [ROW | {"count": -1}, ROW, ROW | {"count": "1"}]},
        "shape",
    ),
    "shape comes before empty": ({"sku": 1, "rows": []}, "shape"),
}
# A table for a result, a value and the reason.
RETURN_CASES: list[tuple[dict[str, Any], Any, str]] = [
    ({"n": {"type": "int"}}, {"n": 1}, ""),
    ({"n": {"type": "int", "required": False}}, {}, ""),
    ({"a": {"type": "list"}, "b": {"type": "list"}}, {"a": [], "b": []}, "empty"),
    ({"a": {"type": "list"}, "b": {"type": "list"}}, {"a": [], "b": [1]}, ""),
    ({"rows": {"type": "list"}, "notes": {"type": "list"}}, {"rows": [], "notes": ["x"]}, "empty"),
    ({"notes": {"type": "list"}, "rows": {"type": "list"}}, {"notes": ["x", "y"], "rows": []}, "empty"),
    ({"rows": {"type": "list"}, "notes": {"type": "list"}}, {"rows": [1], "notes": []}, ""),
    ({"rows": {"type": "list", "min_len": 0}, "notes": {"type": "list"}}, {"rows": [], "notes": []}, ""),
    ({"rows": {"type": "int"}, "notes": {"type": "list"}}, {"rows": 0, "notes": []}, "empty"),
    ({"rows": {"type": ["list", "null"]}, "notes": {"type": "list"}}, {"rows": [], "notes": ["x"]}, "empty"),
    ({"rows": {"type": "list", "required": False}, "notes": {"type": "list"}}, {"notes": []}, "empty"),
    ({"a": {"type": "list", "min_len": 0}}, {"a": []}, ""),
    ({"a": {"type": "list", "min_len": 0}, "b": {"type": "list"}}, {"a": [], "b": []}, "empty"),
    ({"a": {"type": "list", "min_len": 0}, "b": {"type": "list"}}, {"a": [1], "b": []}, ""),
    ({"a": {"type": ["list", "null"]}}, {"a": None}, ""),
    ({"a": {"type": "list", "min_len": 2}}, {"a": [1]}, "shape"),
    ({"a": {"type": "list", "min_len": 2, "max_len": 3}}, {"a": []}, "empty"),
    ({"a": {"type": "list", "item": {"b": {"type": "list"}}}}, {"a": [{"b": []}]}, ""),
    ({"a": {"type": "list", "item": {"b": {"type": "list", "min_len": 1}}}}, {"a": [{"b": []}]}, "empty"),
    ({"a": {"type": "list", "item": {"b": {"type": "list", "max_len": 1}}}}, {"a": [{"b": [1, 2]}]}, "too_big"),
    ({"a": {"type": "any"}}, {"a": []}, ""),
    ({"a": {"type": "str", "allowed": ["x"]}}, {"a": "y"}, "shape"),
    ({"a": {"type": "str", "pattern": "^x"}}, {"a": "y"}, "shape"),
    ({"a": {"type": "str", "max_len": 1}}, {"a": "yy"}, "shape"),
    ({"a": {"type": "object", "max_len": 1}, "b": {"type": "int", "max": 1}}, {"a": {1: 1, 2: 2}, "b": 2}, "shape"),
    ({"a": {"type": "list", "item": {"type": "int"}}, "b": {"type": "int", "max": 1}}, {"a": ["1"], "b": 2}, "shape"),
    ({"a": {"type": "float", "max": 1}}, {"a": math.nan}, "range"),
    ({"a": {"type": "object", "fields": {"b": {"type": "int", "max": 1}}}}, {"a": {"b": 2}}, "range"),
]
BROKEN_RULES: dict[str, Any] = {
    "no rule": None,
    "a text": "str",
    "a list": ["str"],
    "an unknown type": {"type": "string"},
    "a type that is a number": {"type": 5},
    "a type that is a list of itself": {"type": looped()},
    "a bound that is a text": {"type": "any", "min": "1", "max": "2"},
    "a pattern that is none": {"type": "any", "pattern": "("},
    "a pattern that is a number": {"type": "any", "pattern": 5},
    "allowed that is a text": {"type": "any", "allowed": "abc"},
    "allowed that is a number": {"type": "any", "allowed": 5},
    "an item that is a text": {"type": "list", "item": "str"},
    "fields that are a list": {"type": "object", "fields": ["a"]},
    "values that are a text": {"type": "object", "values": "int"},
}


@pytest.mark.parametrize(("args", "reason"), ARGUMENT_CASES.values(), ids=ARGUMENT_CASES)
def test_arguments_get_the_first_reason_in_order(args: Any, reason: str) -> None:
    assert argument_fault(ARGS, args) == reason
    assert TableArguments(ARGS).first_fault(args) == reason


@pytest.mark.parametrize(
    ("rule", "value", "kind"), RULE_CASES, ids=[f"{n}-{one[2]}" for n, one in enumerate(RULE_CASES)]
)
def test_one_rule_measures_one_argument(rule: dict[str, Any], value: Any, kind: str) -> None:
    assert argument_fault({"x": rule}, {"x": value}) == (f"{kind}:x" if kind else "")
    assert [fault.reason for fault in argument_faults({"x": rule}, {"x": value})][:1] == ([f"{kind}:x"] if kind else [])


def test_every_fault_of_arguments_is_told_with_its_place() -> None:
    spec = ARGS | {"points": {"type": "list", "item": {"x": {"type": "int", "max": 5}}, "max_len": 1}}
    args = {"color": "red", "region": "incheon", "limit": "2", "points": [{"x": 9}, {"x": "1"}, {"y": 1}]}
    told = [(fault.reason, fault.path) for fault in argument_faults(spec, args)]
    assert told == [
        ("missing:sku", ("sku",)),
        ("extra:color", ("color",)),
        ("allowed:region", ("region",)),
        ("type:limit", ("limit",)),
        ("missing:points", ("points", 2, "x")),
        ("extra:points", ("points", 2, "y")),
        ("type:points", ("points", 1, "x")),
        ("range:points", ("points", 0, "x")),
        ("length:points", ("points",)),
    ]


def test_faults_say_what_was_expected_and_what_came() -> None:
    spec = ARGS | {"name": {"type": "str", "max_len": 3, "pattern": "^A", "min_len": 1}}
    args = {"color": "red", "region": "incheon", "limit": 9, "name": "BBBB"}
    told = {fault.reason: (fault.expected, fault.got) for fault in argument_faults(spec, args)}
    assert told == {
        "missing:sku": ("str", "nothing"),
        "extra:color": ("only sku, region, limit, name", ""),
        "allowed:region": ("one of 'seoul', 'busan', 'jeju'", "'incheon'"),
        "range:limit": (">= 1 and <= 2", "9"),
        "length:name": ("a length of at least 1 and a length of at most 3", "'BBBB'"),
        "pattern:name": ("a text that matches '^A'", "'BBBB'"),
    }


@pytest.mark.parametrize(("value", "reason"), RESULT_CASES.values(), ids=RESULT_CASES)
def test_results_get_the_first_reason_in_order(value: Any, reason: str) -> None:
    assert result_fault(RETURNS, value) == reason
    assert TableResult(RETURNS).first_fault(value) == reason


@pytest.mark.parametrize(("spec", "value", "reason"), RETURN_CASES, ids=range(len(RETURN_CASES)))
def test_results_of_other_tables(spec: dict[str, Any], value: Any, reason: str) -> None:
    assert result_fault(spec, value) == reason
    assert [fault.reason for fault in result_faults(spec, value)][:1] == ([reason] if reason else [])


@pytest.mark.parametrize(("spec", "value", "reason"), RETURN_CASES, ids=range(len(RETURN_CASES)))
def test_empty_ok_takes_the_reason_empty_away_and_no_other(spec: dict[str, Any], value: Any, reason: str) -> None:
    assert result_fault(spec, value, empty_ok=True) == ("" if reason == "empty" else reason)
    assert all(fault.reason != "empty" for fault in result_faults(spec, value, empty_ok=True))


def test_every_fault_of_a_result_is_told_with_its_place() -> None:
    value = {"sku": 1, "rows": [ROW | {"count": -1}, {"warehouse": "m", "x": 1}, ROW]}
    assert [(fault.reason, fault.path) for fault in result_faults(RETURNS, value)] == [
        ("shape", ("sku",)),
        ("shape", ("rows", 1, "count")),
        ("shape", ("rows", 1, "x")),
        ("too_big", ("rows",)),
        ("range", ("rows", 0, "count")),
    ]
    assert [(fault.reason, fault.path) for fault in result_faults(RETURNS, {"sku": "a", "rows": []})] == [
        ("empty", ("rows",))
    ]


def test_empty_comes_before_range_and_range_is_left_where_empty_is_fine() -> None:
    spec: dict[str, Any] = {"a": {"type": "list"}, "b": {"type": "int", "max": 1}}
    assert result_fault(spec, {"a": [], "b": 2}) == "empty"
    assert result_fault(spec, {"a": [], "b": 2}, empty_ok=True) == "range"


class Rows(list[Any]):
    """A list of another class."""


@pytest.mark.parametrize(("value", "reason"), RESULT_CASES.values(), ids=RESULT_CASES)
def test_results_of_other_classes_get_the_same_reason(value: Any, reason: str) -> None:
    if not isinstance(value, dict):
        assert reason == "shape"
        return
    value = dict(value)
    if isinstance(value.get("rows"), list):
        value["rows"] = Rows(OrderedDict(row) if isinstance(row, dict) else row for row in value["rows"])
    for other in (value, OrderedDict(value)):
        assert result_fault(RETURNS, other) == reason
        assert [fault.reason for fault in result_faults(RETURNS, other)][:1] == ([reason] if reason else [])


def test_an_empty_list_is_told_once() -> None:
    assert len(result_faults({"a": {"type": "list", "min_len": 1}}, {"a": []})) == 1
    assert len(result_faults({"a": {"type": "list"}, "b": {"type": "list", "min_len": 1}}, {"a": [], "b": []})) == 2
    assert len(value_faults({"type": "list", "min_len": 1}, [])) == 1


@pytest.mark.parametrize(
    ("rule", "value", "reason"),
    [
        ({"type": "list"}, [], "empty"),
        ({"type": "list", "min_len": 0}, [], ""),
        ({"type": "list"}, [1], ""),
        ({"type": "str"}, "", ""),
        ({"type": "int", "max": 1}, 2, "range"),
        ({"type": ["list", "null"]}, None, ""),
        ({"type": "list", "max_len": 1}, [1, 2], "too_big"),
        ({"type": "dict"}, {"a": 1}, ""),
        ({"type": "dict"}, [], "shape"),
        ({"type": ["dict", "null"]}, None, ""),
        ({"type": "dict", "fields": {"n": {"type": "int", "min": 1}}}, {"n": 0}, "range"),
        ({"type": "dict", "values": {"type": "int"}}, {"n": "0"}, "shape"),
    ],
)
def test_a_result_may_be_of_one_rule(rule: dict[str, Any], value: Any, reason: str) -> None:
    assert value_fault(rule, value) == reason
    assert [fault.reason for fault in value_faults(rule, value)] == ([reason] if reason else [])


@pytest.mark.parametrize("value", ODD_VALUES.values(), ids=ODD_VALUES)
@pytest.mark.parametrize("name", ARGS)
def test_odd_values_of_arguments_get_a_reason(name: str, value: Any) -> None:
    reason = argument_fault(ARGS, GOOD | {name: value})
    faults = argument_faults(ARGS, GOOD | {name: value})
    assert [fault.reason for fault in faults] == ([reason] if reason else [])
    assert (reason == "") == (name == "sku" and isinstance(value, str))
    assert all(len(fault.got) <= 80 for fault in faults)


@pytest.mark.parametrize("value", ODD_VALUES.values(), ids=ODD_VALUES)
def test_odd_values_in_place_of_arguments_and_results_get_a_reason(value: Any) -> None:
    assert argument_fault(ARGS, value) in ("type:args", "missing:sku")
    assert argument_faults(ARGS, value)[0].reason == argument_fault(ARGS, value)
    for result in (
        value,
        {"sku": "a", "rows": value},
        {"sku": "a", "rows": [value]},
        {"sku": "a", "rows": [ROW], 5: value},
    ):
        assert result_fault(RETURNS, result) == "shape"
        assert result_faults(RETURNS, result)[0].reason == "shape"


@pytest.mark.parametrize("rule", BROKEN_RULES.values(), ids=BROKEN_RULES)
@pytest.mark.parametrize("value", [5, "a", [1], {"a": 1}], ids=repr)
def test_a_broken_live_rule_is_never_an_exception(rule: Any, value: Any) -> None:
    spec = {"x": rule, "y": {"type": "int"}}
    assert argument_fault(spec, {"x": value, "y": 1}) == next(
        (fault.reason for fault in argument_faults(spec, {"x": value, "y": 1})), ""
    )
    assert result_fault(spec, {"x": value, "y": 1}) == next(
        (fault.reason for fault in result_faults(spec, {"x": value, "y": 1})), ""
    )
    assert argument_fault(spec, {"y": 1})
    assert TableArguments(spec).with_defaults({"y": 1}) == {"y": 1}
    assert TableArguments(spec).json_schema()["type"] == "object"


@pytest.mark.parametrize(
    ("rule", "value", "reason"),
    [
        (None, 5, "type:x"),
        ({"type": "string"}, "a", "type:x"),
        ({"type": "any", "min": "1"}, 5, "range:x"),
        ({"type": "any", "pattern": "("}, "a", "pattern:x"),
        ({"type": "any", "allowed": "abc"}, "a", "allowed:x"),
        ({"type": "list", "item": "str"}, [1], "type:x"),
        ({"type": "object", "fields": ["a"]}, {"a": 1}, "type:x"),
    ],
)
def test_a_broken_live_rule_is_broken_by_what_it_measures(rule: Any, value: Any, reason: str) -> None:
    assert argument_fault({"x": rule}, {"x": value}) == reason


@pytest.mark.parametrize("spec", [5, "x", [1], Angry()], ids=["number", "text", "list", "angry"])
def test_a_table_that_is_none_breaks_every_call(spec: Any) -> None:
    assert argument_fault(spec, {"x": 1}) == "type:args"
    assert result_fault(spec, {"x": 1}) == "shape"


def test_a_table_is_read_anew_each_time() -> None:
    spec = copy.deepcopy(ARGS)
    contract = TableArguments(spec)
    assert contract.first_fault(GOOD | {"limit": 3}) == "range:limit"
    spec["limit"]["max"] = 3
    assert contract.first_fault(GOOD | {"limit": 3}) == ""
    spec["color"] = {"type": "str"}
    assert contract.first_fault(GOOD) == "missing:color"
    del spec["color"], spec["region"]
    assert contract.first_fault(GOOD) == "extra:region"


def test_no_table_takes_any_mapping_and_any_result() -> None:
    assert TableArguments(None).first_fault({"a": 1, 2: 3}) == ""
    assert TableArguments(None).faults(UserDict()) == ()
    assert TableArguments(None).first_fault(None) == "type:args"
    assert TableArguments(None).with_defaults({"a": 1}) == {"a": 1}
    assert TableResult(None).first_fault(object()) == ""
    assert TableResult(None).faults(None) == ()
    assert TableResult(None).json_schema() == {}


def test_an_argument_is_required_unless_it_says_otherwise_or_has_a_default() -> None:
    spec: dict[str, Any] = {
        "a": {"type": "int"},
        "b": {"type": "int", "required": False},
        "c": {"type": "int", "default": 1},
    }
    assert [fault.reason for fault in argument_faults(spec, {})] == ["missing:a"]


def test_defaults_are_filled_into_a_copy_and_never_shared() -> None:
    spec: dict[str, Any] = {
        "a": {"type": "list", "default": [1]},
        "b": {"type": "int", "default": 2},
        "c": {"type": "int", "required": True, "default": 3},
        "d": {"type": "any", "default": None},
    }
    given_args = {"b": 5}
    filled = TableArguments(spec).with_defaults(given_args)
    assert filled == {"a": [1], "b": 5, "d": None}
    assert given_args == {"b": 5}
    filled["a"].append(2)
    assert spec["a"]["default"] == [1]
    assert TableArguments(spec).with_defaults({}) == {"a": [1], "b": 2, "d": None}


def test_the_json_schema_says_what_the_table_says() -> None:
    spec: dict[str, Any] = {
        "sku": {"type": "str", "description": "the item", "min_len": 1, "pattern": "^A"},
        "limit": {"type": ["int", "null"], "exclusive_min": 0, "max": 2, "default": 1},
        "any": {"type": "any", "required": False, "max_len": 3},
        "at": {"type": "object", "fields": {"x": {"type": "float"}}},
        "tags": {"type": "list", "max_len": 2, "item": {"type": "str", "allowed": ("a", "b")}},
        "rows": {"type": "list", "item": {"n": {"type": "int"}}},
        "map": {"type": "object", "values": {"type": "bool"}},
    }
    closed = {"type": "object", "additionalProperties": False}
    assert TableArguments(spec).json_schema() == {
        **closed,
        "required": ["sku", "at", "tags", "rows", "map"],
        "properties": {
            "sku": {"type": "string", "description": "the item", "minLength": 1, "pattern": "^A"},
            "limit": {"type": ["integer", "null"], "exclusiveMinimum": 0, "maximum": 2, "default": 1},
            "any": {"maxLength": 3, "maxItems": 3, "maxProperties": 3},
            "at": {**closed, "properties": {"x": {"type": "number"}}, "required": ["x"]},
            "tags": {"type": "array", "maxItems": 2, "items": {"type": "string", "enum": ["a", "b"]}},
            "rows": {
                "type": "array",
                "items": {**closed, "properties": {"n": {"type": "integer"}}, "required": ["n"]},
            },
            "map": {"type": "object", "additionalProperties": {"type": "boolean"}},
        },
    }
    assert TableResult(RETURNS).json_schema()["properties"]["rows"]["minItems"] == 1
    assert "minItems" not in TableResult(RETURNS, empty_ok=True).json_schema()["properties"]["rows"]
    two = TableResult({"notes": {"type": "list"}, "rows": {"type": "list"}}).json_schema()["properties"]
    assert (two["rows"].get("minItems"), two["notes"].get("minItems")) == (1, None)
    for alone in ({"n": {"type": "int"}}, {"rows": {"type": "object"}}, {"n": {"type": "int"}, "rows": {"type": "str"}}):
        assert all("minItems" not in part for part in TableResult(alone).json_schema()["properties"].values())


def test_the_contracts_are_the_protocols() -> None:
    assert isinstance(TableArguments(ARGS), ArgumentsContract)
    assert isinstance(TableResult(RETURNS), ResultContract)


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.floats(), st.text("ab", max_size=3), st.binary(max_size=1)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3),
        st.tuples(inner),
    ),
    max_leaves=8,
)
KEYS: dict[str, st.SearchStrategy[Any]] = {
    "type": st.sampled_from(
        ["str", "int", "float", "bool", "list", "object", "null", "any", ["int", "null"], ["str", "list"]]
    ),
    "required": st.booleans(),
    "default": VALUES,
    "allowed": st.none() | st.lists(VALUES, max_size=3),
    "min": st.none() | st.integers(-2, 2) | st.floats(),
    "max": st.none() | st.integers(-2, 2) | st.floats(),
    "exclusive_min": st.integers(-2, 2),
    "exclusive_max": st.integers(-2, 2),
    "min_len": st.integers(0, 2),
    "max_len": st.none() | st.integers(0, 2),
    "pattern": st.sampled_from(["a", "^b", "("]),
}


def rules(depth: int = 2) -> st.SearchStrategy[dict[str, Any]]:
    keys = dict(KEYS)
    if depth:
        inner = rules(depth - 1)
        fields = st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2)
        keys |= {"item": inner | fields, "fields": fields, "values": inner}
    return st.fixed_dictionaries({}, optional=keys)


@given(spec=st.dictionaries(st.sampled_from(["a", "b", "c"]), rules(), max_size=3), value=VALUES)
def test_the_first_reason_is_the_reason_of_the_first_fault(spec: dict[str, Any], value: Any) -> None:
    """The quick way and the way that tells all agree, for any table and any value."""
    faults = argument_faults(spec, value)
    assert argument_fault(spec, value) == (faults[0].reason if faults else "")
    for empty_ok in (False, True):
        told = result_faults(spec, value, empty_ok)
        assert result_fault(spec, value, empty_ok) == (told[0].reason if told else "")


@given(spec=st.dictionaries(st.text(max_size=3), rules(1) | VALUES, max_size=3), value=VALUES)
def test_nothing_escapes_whatever_the_table_and_the_value(spec: dict[str, Any], value: Any) -> None:
    contract, result = TableArguments(spec), TableResult(spec)
    kinds = {fault.reason.partition(":")[0] for fault in contract.faults(value)}
    assert kinds <= {"missing", "extra", "type", "allowed", "range", "length", "pattern"}
    assert {fault.reason for fault in result.faults(value)} <= {"shape", "empty", "too_big", "range"}
    assert isinstance(contract.json_schema(), dict)
    if isinstance(value, dict):
        filled = contract.with_defaults(value)
        assert all(filled[key] is value[key] for key in value)


@given(spec=st.dictionaries(st.sampled_from(["a", "b", "c"]), rules(1), max_size=3), value=VALUES)
def test_measuring_changes_nothing(spec: dict[str, Any], value: Any) -> None:
    before = repr((spec, value))
    argument_faults(spec, value)
    result_faults(spec, value)
    assert repr((spec, value)) == before


@pytest.mark.parametrize(
    ("lists", "value", "reason"),
    [
        (("rows", "notes"), {"rows": [], "notes": ["x"]}, "empty"),
        (("notes", "rows"), {"rows": [], "notes": ["x"]}, "empty"),
        (("rows", "notes"), {"rows": ["x"], "notes": []}, ""),
        (("rows", "notes"), {"rows": [], "notes": []}, "empty"),
        (("found", "notes"), {"found": [], "notes": ["x"]}, ""),
        (("found", "notes"), {"found": [], "notes": []}, "empty"),
    ],
)
def test_the_list_called_rows_says_whether_anything_was_found_and_without_one_all_lists_do(
    lists: tuple[str, ...], value: dict[str, Any], reason: str
) -> None:
    result = TableResult({name: {"type": "list", "item": {"type": "str"}} for name in lists})
    assert result.first_fault(value) == reason
    assert {fault.reason for fault in result.faults(value)} == ({reason} if reason else set())
    assert TableResult(result.spec, empty_ok=True).first_fault(value) == ""


@pytest.mark.parametrize("value", [{}, {"a": 1}, {"a": 1, "b": 2}, {"a": "x"}, [], None, "a", 1], ids=repr)
def test_a_table_may_say_dict_for_object_everywhere(value: Any) -> None:
    rule = {"fields": {"a": {"type": "int"}, "b": {"type": "int", "required": False}}, "min_len": 1}
    dicts, objects = ({"x": {"type": word, **rule}} for word in ("dict", "object"))
    plain, plain_objects = ({"x": {"type": word}} for word in ("dict", "object"))

    check_arguments(dicts, "find")
    for one, other in ((dicts, objects), (plain, plain_objects)):
        assert TableArguments(one).first_fault({"x": value}) == TableArguments(other).first_fault({"x": value})
        assert TableResult(one).first_fault({"x": value}) == TableResult(other).first_fault({"x": value})
        assert TableArguments(one).json_schema() == TableArguments(other).json_schema()
