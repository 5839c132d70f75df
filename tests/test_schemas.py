"""Contracts given as JSON Schema, the choice of the form, and that the three forms say the same of the same fault."""

from __future__ import annotations

import copy
import math
import socket
import subprocess
import sys
import threading
from collections import UserDict
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.core.contracts import (
    ArgumentsContract,
    Length,
    Pattern,
    Range,
    ResultContract,
    TableArguments,
    TableResult,
)
from fsm_agent.core.errors import ContractError
from fsm_agent.core.schemas import SchemaArguments, SchemaResult, arguments_contract, result_contract
from fsm_agent.core.signatures import arguments_of, result_of


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def looped() -> Any:
    value: dict[str, Any] = {"list": []}
    value["list"].append(value)
    value["self"] = value
    return value


class Angry:
    """Raises whatever is asked of it."""

    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError

    def __repr__(self) -> str:
        raise ZeroDivisionError

    __hash__ = None  # type: ignore[assignment]


ODD_VALUES: dict[str, Any] = {
    "nothing": None,
    "nan": math.nan,
    "infinity": math.inf,
    "huge int": 10**5000,
    "lone surrogate": "\ud800",
    "tuple": (1, 2),
    "set": {1},
    "angry": Angry(),
    "deep": deep(100_000),
    "looped": looped(),
    "odd keys": {1: 2, None: 3, (1, 2): 4},
    "one": 1,
    "true": True,
    "text": "a",
    "list": [1],
    "object": {"x": 1},
}

# --- the three forms -------------------------------------------------------------------------------------------------


@attrs.frozen
class At:
    x: int
    y: Annotated[float, Range(max=10)] = 0.5


def tool(
    sku: Annotated[str, Length(1, 4), Pattern("^A")],
    region: Literal["seoul", "busan"],
    limit: Annotated[int, Range(1, 2)],
    note: Annotated[str, Length(max=3)] | None = None,
    ratio: Annotated[float, Range(0, 1)] = 0.5,
    flag: bool = False,
    at: At | None = None,
    tags: Annotated[list[str], Length(1, 2)] = ["t"],  # noqa: B006
    points: list[At] = [],  # noqa: B006
    counts: dict[str, int] = {},  # noqa: B006
    level: Literal[1, 2] = 1,
) -> None: ...


AT_TABLE: dict[str, Any] = {"x": {"type": "int"}, "y": {"type": "float", "max": 10, "default": 0.5}}
TABLE: dict[str, Any] = {
    "sku": {"type": "str", "required": True, "min_len": 1, "max_len": 4, "pattern": "^A"},
    "region": {"type": "str", "required": True, "allowed": ["seoul", "busan"]},
    "limit": {"type": "int", "required": True, "min": 1, "max": 2},
    "note": {"type": ["str", "null"], "max_len": 3, "default": None},
    "ratio": {"type": "float", "min": 0, "max": 1, "default": 0.5},
    "flag": {"type": "bool", "default": False},
    "at": {"type": ["object", "null"], "fields": AT_TABLE, "default": None},
    "tags": {"type": "list", "item": {"type": "str"}, "min_len": 1, "max_len": 2, "default": ["t"]},
    "points": {"type": "list", "item": AT_TABLE, "default": []},
    "counts": {"type": "object", "values": {"type": "int"}, "default": {}},
    "level": {"type": "int", "allowed": [1, 2], "default": 1},
}
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "sku": {"type": "string", "minLength": 1, "maxLength": 4, "pattern": "^A"},
        "region": {"enum": ["seoul", "busan"], "type": "string"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 2},
        "note": {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}], "default": None},
        "ratio": {"type": "number", "minimum": 0, "maximum": 1, "default": 0.5},
        "flag": {"type": "boolean", "default": False},
        "at": {"oneOf": [{"type": "null"}, {"$ref": "#/$defs/at"}], "default": None},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2, "default": ["t"]},
        "points": {"type": "array", "items": {"$ref": "#/$defs/at"}, "default": []},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}, "default": {}},
        "level": {"type": "integer", "enum": [1, 2], "default": 1},
    },
    "required": ["sku", "region", "limit"],
    "additionalProperties": False,
    "$defs": {
        "at": {
            "type": "object",
            "properties": {"x": {"type": "integer"}, "y": {"type": "number", "maximum": 10, "default": 0.5}},
            "required": ["x"],
            "unevaluatedProperties": False,
        }
    },
}
FORMS: dict[str, ArgumentsContract] = {
    "table": TableArguments(TABLE),
    "function": arguments_of(tool),
    "schema": SchemaArguments(SCHEMA),
    "schema of the table": SchemaArguments(TableArguments(TABLE).json_schema()),
    "schema of the function": SchemaArguments(arguments_of(tool).json_schema()),
}
GOOD: dict[str, Any] = {"sku": "A1", "region": "seoul", "limit": 2}
# Arguments, and all their reasons with their places.
ARGUMENTS: dict[str, tuple[Any, list[tuple[str, tuple[Any, ...]]]]] = {
    "good": (GOOD, []),
    "good and whole": (
        GOOD | {"note": "n", "ratio": 1, "flag": True, "at": {"x": 1}, "tags": ["a"], "points": [{"x": 1, "y": 2}]},
        [],
    ),
    "another mapping": (UserDict(GOOD), []),
    "none": (None, [("type:args", ())]),
    "a list": ([GOOD], [("type:args", ())]),
    "a text": ("{}", [("type:args", ())]),
    "empty": ({}, [("missing:sku", ("sku",)), ("missing:region", ("region",)), ("missing:limit", ("limit",))]),
    "missing": ({"sku": "A1", "limit": 1}, [("missing:region", ("region",))]),
    "extras": (GOOD | {"b": 1, "a": 2}, [("extra:b", ("b",)), ("extra:a", ("a",))]),
    "an extra that is no text": (GOOD | {5: 1}, [("extra:5", ("5",))]),
    "missing before extra": (
        {"region": "seoul", "limit": 1, "x": 1},
        [("missing:sku", ("sku",)), ("extra:x", ("x",))],
    ),
    "extra before type": (GOOD | {"x": 1, "sku": 5}, [("extra:x", ("x",)), ("type:sku", ("sku",))]),
    "in the contract's order": (
        GOOD | {"limit": "2", "region": 5},
        [("type:region", ("region",)), ("type:limit", ("limit",))],
    ),
    "type": (GOOD | {"sku": 5}, [("type:sku", ("sku",))]),
    "a wrong type breaks nothing else": (GOOD | {"region": 5}, [("type:region", ("region",))]),
    "true": (GOOD | {"limit": True}, [("type:limit", ("limit",))]),
    "2.0": (GOOD | {"limit": 2.0}, [("type:limit", ("limit",))]),
    "'2'": (GOOD | {"limit": "2"}, [("type:limit", ("limit",))]),
    "true as a number": (GOOD | {"ratio": True}, [("type:ratio", ("ratio",))]),
    "1 as a bool": (GOOD | {"flag": 1}, [("type:flag", ("flag",))]),
    "allowed": (GOOD | {"region": "jeju"}, [("allowed:region", ("region",))]),
    "allowed number": (GOOD | {"level": 3}, [("allowed:level", ("level",))]),
    "too small": (GOOD | {"limit": 0}, [("range:limit", ("limit",))]),
    "too great": (GOOD | {"limit": 10**5000}, [("range:limit", ("limit",))]),
    "nan": (GOOD | {"ratio": math.nan}, [("range:ratio", ("ratio",))]),
    "infinity": (GOOD | {"ratio": -math.inf}, [("range:ratio", ("ratio",))]),
    "too long": (GOOD | {"sku": "A1234"}, [("length:sku", ("sku",))]),
    "length and pattern": (GOOD | {"sku": ""}, [("length:sku", ("sku",)), ("pattern:sku", ("sku",))]),
    "pattern": (GOOD | {"sku": "B1"}, [("pattern:sku", ("sku",))]),
    "surrogate": (GOOD | {"sku": "\ud800"}, [("pattern:sku", ("sku",))]),
    "a nullable one is null": (GOOD | {"note": None, "at": None}, []),
    "a nullable one is too long": (GOOD | {"note": "long"}, [("length:note", ("note",))]),
    "a nullable one is of another type": (GOOD | {"note": 5}, [("type:note", ("note",))]),
    "null where none is taken": (GOOD | {"ratio": None}, [("type:ratio", ("ratio",))]),
    "nested missing": (GOOD | {"at": {}}, [("missing:at", ("at", "x"))]),
    "nested extra": (GOOD | {"at": {"x": 1, "z": 1}}, [("extra:at", ("at", "z"))]),
    "nested type": (GOOD | {"at": {"x": "1"}}, [("type:at", ("at", "x"))]),
    "nested range": (GOOD | {"at": {"x": 1, "y": 11}}, [("range:at", ("at", "y"))]),
    "no object": (GOOD | {"at": [1]}, [("type:at", ("at",))]),
    "items": (GOOD | {"tags": ["a", 1]}, [("type:tags", ("tags", 1))]),
    "too few items": (GOOD | {"tags": []}, [("length:tags", ("tags",))]),
    "too many items": (GOOD | {"tags": ["a"] * 3}, [("length:tags", ("tags",))]),
    "an item's type before the list's length": (
        GOOD | {"tags": ["a", 1, 2]},
        [("type:tags", ("tags", 1)), ("type:tags", ("tags", 2)), ("length:tags", ("tags",))],
    ),
    "a tuple": (GOOD | {"tags": ("a",)}, [("type:tags", ("tags",))]),
    "rows": (
        GOOD | {"points": [{"x": 1}, {"x": "1", "y": 11}, {"z": 1}, 5]},
        [
            ("missing:points", ("points", 2, "x")),
            ("extra:points", ("points", 2, "z")),
            ("type:points", ("points", 1, "x")),
            ("type:points", ("points", 3)),
            ("range:points", ("points", 1, "y")),
        ],
    ),
    "values": (GOOD | {"counts": {"a": 1, "b": "2"}}, [("type:counts", ("counts", "b"))]),
    "everything": (
        {"region": "jeju", "limit": 9, "x": 1, "sku": "B2345"},
        [
            ("extra:x", ("x",)),
            ("length:sku", ("sku",)),
            ("pattern:sku", ("sku",)),
            ("allowed:region", ("region",)),
            ("range:limit", ("limit",)),
        ],
    ),
}


@attrs.frozen
class Row:
    warehouse: str
    count: Annotated[int, Range(min=0)]


@attrs.frozen
class Found:
    sku: str
    rows: Annotated[list[Row], Length(max=2)]


def find() -> Found:
    return Found("a", [])


ROWS_TABLE: dict[str, Any] = {
    "sku": {"type": "str"},
    "rows": {"type": "list", "max_len": 2, "item": {"warehouse": {"type": "str"}, "count": {"type": "int", "min": 0}}},
}
ROWS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "sku": {"type": "string"},
        "rows": {
            "type": "array",
            "minItems": 1,
            "maxItems": 2,
            "items": {
                "type": "object",
                "properties": {"warehouse": {"type": "string"}, "count": {"type": "integer", "minimum": 0}},
                "required": ["warehouse", "count"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["sku", "rows"],
    "additionalProperties": False,
}
ROW: dict[str, Any] = {"warehouse": "mapo", "count": 7}
# A result, and all its reasons with their places.
RESULTS: dict[str, tuple[Any, list[tuple[str, tuple[Any, ...]]]]] = {
    "good": ({"sku": "a", "rows": [ROW]}, []),
    "none": (None, [("shape", ())]),
    "a list": ([ROW], [("shape", ())]),
    "missing": ({"rows": [ROW]}, [("shape", ("sku",))]),
    "extra": ({"sku": "a", "rows": [ROW], "x": 1}, [("shape", ("x",))]),
    "type": ({"sku": 1, "rows": [ROW]}, [("shape", ("sku",))]),
    "no list": ({"sku": "a", "rows": {}}, [("shape", ("rows",))]),
    "a row": ({"sku": "a", "rows": [5]}, [("shape", ("rows", 0))]),
    "a row's key": ({"sku": "a", "rows": [{"count": 1}]}, [("shape", ("rows", 0, "warehouse"))]),
    "true": ({"sku": "a", "rows": [ROW | {"count": True}]}, [("shape", ("rows", 0, "count"))]),
    "2.0": ({"sku": "a", "rows": [ROW | {"count": 2.0}]}, [("shape", ("rows", 0, "count"))]),
    "empty": ({"sku": "a", "rows": []}, [("empty", ("rows",))]),
    "too big": ({"sku": "a", "rows": [ROW] * 3}, [("too_big", ("rows",))]),
    "range": ({"sku": "a", "rows": [ROW, ROW | {"count": -1}]}, [("range", ("rows", 1, "count"))]),
    "huge": ({"sku": "a", "rows": [ROW | {"count": -(10**5000)}]}, [("range", ("rows", 0, "count"))]),
    "shape before empty": ({"sku": 1, "rows": []}, [("shape", ("sku",)), ("empty", ("rows",))]),
    "shape before too big before range": (
        {"sku": 1, "rows": [ROW | {"count": -1}] * 3},
        [
            ("shape", ("sku",)),
            ("too_big", ("rows",)),
            ("range", ("rows", 0, "count")),
            ("range", ("rows", 1, "count")),
            ("range", ("rows", 2, "count")),
        ],
    ),
}


def result_forms(empty_ok: bool) -> dict[str, ResultContract]:
    function = result_of(find, empty_ok)
    assert function is not None
    return {
        "table": TableResult(ROWS_TABLE, empty_ok),
        "function": function,
        "schema": SchemaResult(ROWS_SCHEMA, empty_ok),
        "schema of the table": SchemaResult(TableResult(ROWS_TABLE).json_schema(), empty_ok),
    }


RESULT_FORMS = {empty_ok: result_forms(empty_ok) for empty_ok in (False, True)}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", ARGUMENTS)
def test_every_form_gives_the_same_reasons_and_places_for_the_same_arguments(form: str, case: str) -> None:
    args, told = ARGUMENTS[case]
    faults = FORMS[form].faults(args)
    assert [(fault.reason, fault.path) for fault in faults] == told
    assert FORMS[form].first_fault(args) == (told[0][0] if told else "")
    assert all(fault.expected and len(fault.got) <= 80 for fault in faults)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_fills_the_same_defaults(form: str) -> None:
    assert FORMS[form].with_defaults(GOOD) == GOOD | {
        "note": None, "ratio": 0.5, "flag": False, "at": None, "tags": ["t"], "points": [], "counts": {}, "level": 1,
    }  # fmt: skip
    FORMS[form].with_defaults(GOOD)["tags"].append("x")
    assert FORMS[form].with_defaults(GOOD)["tags"] == ["t"]


@pytest.mark.parametrize("empty_ok", [False, True])
@pytest.mark.parametrize("form", RESULT_FORMS[False])
@pytest.mark.parametrize("case", RESULTS)
def test_every_form_gives_the_same_reasons_and_places_for_the_same_result(form: str, case: str, empty_ok: bool) -> None:
    value, told = RESULTS[case]
    told = [one for one in told if not (empty_ok and one[0] == "empty")]
    contract = RESULT_FORMS[empty_ok][form]
    assert [(fault.reason, fault.path) for fault in contract.faults(value)] == told
    assert contract.first_fault(value) == (told[0][0] if told else "")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("odd", ODD_VALUES)
def test_every_form_gives_the_same_reason_for_odd_values(form: str, odd: str) -> None:
    for name in TABLE:
        args = GOOD | {name: ODD_VALUES[odd]}
        assert FORMS[form].first_fault(args) == FORMS["table"].first_fault(args), name


class Torn(Mapping[str, Any]):
    """A mapping that cannot be read."""

    def __getitem__(self, key: str) -> Any:
        raise OSError("gone")

    def __iter__(self) -> Any:
        raise OSError("gone")

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize("form", FORMS)
def test_to_every_form_a_mapping_that_cannot_be_read_is_none(form: str) -> None:
    assert FORMS[form].first_fault(Torn()) == "type:args"
    assert [(fault.reason, fault.path) for fault in FORMS[form].faults(Torn())] == [("type:args", ())]


@pytest.mark.parametrize("form", RESULT_FORMS[False])
@pytest.mark.parametrize("odd", ODD_VALUES)
def test_every_form_finds_no_shape_in_odd_results(form: str, odd: str) -> None:
    contract = RESULT_FORMS[False][form]
    for value in (ODD_VALUES[odd], {"sku": "a", "rows": ODD_VALUES[odd]}, {"sku": "a", "rows": [ODD_VALUES[odd]]}):
        assert contract.first_fault(value) == "shape"


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1, 12)
    | st.floats()
    | st.sampled_from(["", "A", "A1", "seoul", "long text"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "y", "z"]), inner, max_size=3),
    max_leaves=6,
)


@given(
    changes=st.dictionaries(st.sampled_from([*TABLE, "other"]), JSON, max_size=4),
    drop=st.sets(st.sampled_from([*GOOD])),
)
def test_the_forms_agree_on_all_arguments(changes: dict[str, Any], drop: set[str]) -> None:
    """Whatever JSON the arguments hold, each form tells the same faults in the same order."""
    args = {name: value for name, value in (GOOD | changes).items() if name not in drop}
    told = {form: [(fault.reason, fault.path) for fault in contract.faults(args)] for form, contract in FORMS.items()}
    assert all(one == told["table"] for one in told.values()), told


def frames_left() -> int:
    frame, used = sys._getframe(), 0
    while frame is not None:
        frame, used = frame.f_back, used + 1  # type: ignore[assignment]
    return sys.getrecursionlimit() - used


def lower(levels: int, measure: Callable[[], str]) -> str:
    return measure() if levels <= 0 else lower(levels - 1, measure)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("frames", [20, 40, 80, 120, 160, 200])
def test_with_little_stack_left_nothing_is_accepted_that_is_wrong_and_nothing_escapes(form: str, frames: int) -> None:
    for args in ({}, GOOD | {"limit": 3}, GOOD | {"points": [{"x": "1"}]}):
        reason = lower(frames_left() - frames, lambda args=args: FORMS[form].first_fault(args))  # type: ignore[misc]
        assert reason in (FORMS["table"].first_fault(args), "type:args", "type:sku")


# --- JSON Schema by itself -------------------------------------------------------------------------------------------

# A schema of the argument `x`, a value, and all reasons with the place below `x`.
KEYWORDS: list[tuple[Any, Any, list[tuple[str, tuple[Any, ...]]]]] = [
    (True, 5, []),
    ({}, {1, 2}, []),
    ({"type": ["integer", "null"]}, "a", [("type", ())]),
    ({"const": 1}, True, [("allowed", ())]),
    ({"const": 1}, 1.0, [("allowed", ())]),
    ({"const": [1, {"a": None}]}, [1, {"a": None}], []),
    ({"const": {"on": False, "$schema": "s"}}, {"on": False, "$schema": "s"}, []),
    ({"enum": [1, "a"]}, "b", [("allowed", ())]),
    ({"enum": [1, "a"]}, Angry(), [("allowed", ())]),
    ({"enum": [[1]]}, deep(100_000), [("allowed", ())]),
    ({"exclusiveMinimum": 1}, 1, [("range", ())]),
    ({"exclusiveMaximum": 1}, 1, [("range", ())]),
    ({"exclusiveMaximum": 1}, math.nan, [("range", ())]),
    ({"multipleOf": 2}, 3, [("range", ())]),
    ({"multipleOf": 2}, 4, []),
    ({"multipleOf": 0.1}, 0.3, []),
    ({"multipleOf": 0.1}, 10**5000, []),
    ({"multipleOf": 0.1}, 0.35, [("range", ())]),
    ({"multipleOf": 2}, math.inf, [("range", ())]),
    ({"multipleOf": 2}, math.nan, [("range", ())]),
    ({"minimum": 5}, "a", []),
    ({"minProperties": 1}, {}, [("length", ())]),
    ({"maxProperties": 1}, {"a": 1, "b": 1}, [("length", ())]),
    ({"uniqueItems": True}, [1, True, 1.0, "1"], []),
    ({"uniqueItems": True}, [{"a": 1, "b": 2}, {"b": 2, "a": 1}], [("length", ())]),
    ({"uniqueItems": True}, [10**5000, 10**5000], [("length", ())]),
    ({"uniqueItems": True}, [deep(100_000), Angry()], []),
    ({"uniqueItems": False}, [1, 1], []),
    ({"contains": {"type": "integer"}}, ["a"], [("length", ())]),
    ({"contains": {"type": "integer"}}, 5, []),
    ({"contains": {"type": "integer"}}, ["a", 1], []),
    ({"contains": {"type": "integer"}, "maxContains": 1}, [1, 1], [("length", ())]),
    ({"contains": {"type": "integer"}, "minContains": 2}, [1], [("length", ())]),
    ({"contains": {"type": "integer"}, "minContains": 0}, [], []),
    ({"format": "date"}, "2020-13-01", [("pattern", ())]),
    ({"format": "date"}, "2020-12-01", []),
    ({"format": "date"}, 5, []),
    ({"format": "ipv4"}, "1.2.3.4.5", [("pattern", ())]),
    ({"format": "uuid"}, "\ud800" * 36, [("pattern", ())]),
    ({"format": "email"}, "nobody", [("pattern", ())]),
    ({"format": "date-time"}, "2020-01-01", [("pattern", ())]),
    ({"format": "date-time"}, "2020-01-01T00:00:00Z", []),
    ({"format": "uri"}, "no uri", [("pattern", ())]),
    ({"format": "no-such-format"}, "whatever", []),
    ({"pattern": "^a"}, "b", [("pattern", ())]),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "a", [("type", ())]),
    ({"anyOf": [{"type": "integer", "minimum": 5}, {"type": "null"}]}, 1, [("range", ())]),
    ({"anyOf": [{"minimum": 5}, {"maximum": 1}]}, 3, [("type", ())]),
    ({"anyOf": [{"$ref": "#/$defs/odd"}, {"type": "null"}]}, {"id": "1"}, [("type", ("id",))]),
    ({"anyOf": [False, {"type": "integer"}]}, 10**5000, []),
    ({"allOf": [False]}, 10**5000, [("type", ())]),
    ({"prefixItems": [False]}, [10**5000], [("type", (0,))]),
    ({"oneOf": [{"type": "integer"}, {"minimum": 2}]}, 5, [("type", ())]),
    ({"oneOf": [{"type": "integer"}, {"minimum": 2}]}, 1, []),
    ({"not": {"type": "integer"}}, 5, [("type", ())]),
    ({"not": {"type": "integer"}}, "5", []),
    ({"allOf": [{"minimum": 5}, {"enum": [1, 2]}]}, 3, [("allowed", ()), ("range", ())]),
    ({"if": {"type": "integer"}, "then": {"minimum": 5}, "else": {"maxLength": 1}}, 3, [("range", ())]),
    ({"if": {"type": "integer"}, "then": {"minimum": 5}, "else": {"maxLength": 1}}, "abc", [("length", ())]),
    ({"type": "object", "required": ["a", "b"]}, {"b": 1}, [("missing", ("a",))]),
    ({"dependentRequired": {"a": ["b", "c"]}}, {"a": 1}, [("missing", ("b",)), ("missing", ("c",))]),
    ({"dependentSchemas": {"a": {"required": ["b"]}}}, {"a": 1}, [("missing", ("b",))]),
    ({"additionalProperties": False}, {"a": 1, 5: 2}, [("extra", ("a",)), ("extra", ("5",))]),
    ({"additionalProperties": {"type": "integer"}}, {"a": "1"}, [("type", ("a",))]),
    ({"patternProperties": {"^a": {"type": "integer"}}}, {"a": "1", "b": "1", 5: "1"}, [("type", ("a",))]),
    ({"patternProperties": {"^a": {}}, "additionalProperties": False}, {"a": 1, "b": 1}, [("extra", ("b",))]),
    ({"propertyNames": {"maxLength": 1}}, {"a": 1, "bb": 1}, [("extra", ("bb",))]),
    ({"properties": {"a": False}}, {"a": 10**5000}, [("type", ("a",))]),
    ({"properties": {"enum": False}}, {"enum": 1}, [("type", ("enum",))]),
    ({"properties": {"a": {}}, "unevaluatedProperties": False}, {"a": 1, "b": 10**5000}, [("extra", ("b",))]),
    ({"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False}, {"a": 1, "c": 1}, [("extra", ("c",))]),
    ({"unevaluatedProperties": {"type": "integer"}}, {"a": "1"}, [("type", ("a",))]),
    ({"prefixItems": [{"type": "integer"}], "items": False}, [1, 2, 3], [("type", (1,)), ("type", (2,))]),
    ({"prefixItems": [{"type": "integer"}]}, ["1", 2], [("type", (0,))]),
    ({"prefixItems": [{}], "unevaluatedItems": False}, [1, 10**5000], [("type", ())]),
    ({"items": {"type": "integer"}}, [1, "2", None], [("type", (1,)), ("type", (2,))]),
    ({"items": {"type": "integer"}}, (1, "2"), []),
    ({"$ref": "#/$defs/tree"}, [[], [[]]], []),
    ({"$ref": "#/$defs/tree"}, [[], [5]], [("type", (1, 0))]),
    ({"$ref": "#/$defs/tree"}, deep(49), []),
    ({"$ref": "#/$defs/tree"}, deep(100_000), [("type", ())]),
    ({"$ref": "#/$defs/tree"}, looped(), [("type", ())]),
    ({"type": "array", "items": {}}, deep(100_000), []),
    ({"$ref": "#/properties/other"}, "a", [("type", ())]),
    ({"$ref": "#named"}, "a", [("type", ())]),
    ({"$ref": "https://json-schema.org/draft/2020-12/schema"}, {"type": "object"}, []),
    ({"$ref": "https://json-schema.org/draft/2020-12/schema"}, {"type": 5}, [("type", ("type",))]),
]  # fmt: skip


def schema_of_x(x: Any) -> dict[str, Any]:
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"x": x, "other": {"type": "integer"}},
        "$defs": {
            "tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
            "odd": {"type": "object", "properties": {"id": {"type": "integer"}}},
            "named": {"$anchor": "named", "type": "integer"},
        },
    }


@pytest.mark.parametrize(("x", "value", "told"), KEYWORDS, ids=range(len(KEYWORDS)))
def test_a_keyword_is_told_by_its_reason(x: Any, value: Any, told: list[tuple[str, tuple[Any, ...]]]) -> None:
    contract = SchemaArguments(schema_of_x(x))
    faults = contract.faults({"x": value})
    assert [(fault.reason, fault.path) for fault in faults] == [(f"{kind}:x", ("x", *path)) for kind, path in told]
    assert contract.first_fault({"x": value}) == (f"{told[0][0]}:x" if told else "")
    assert contract.first_fault({}) == ""


def test_faults_say_what_was_expected_and_what_came() -> None:
    args = {"region": "jeju", "limit": 10**5000, "x": [1], "at": {"x": "1"}, "note": {}}
    told = {fault.path: (fault.expected, fault.got) for fault in FORMS["schema"].faults(args)}
    assert told == {
        ("sku",): ("a value", "nothing"),
        ("x",): ("no such key", ""),
        ("region",): ("enum ['seoul', 'busan']", "'jeju'"),
        ("limit",): ("maximum 2", "an int of 16610 bits"),
        ("note",): ("anyOf [{'type': 'string', 'maxLength': 3}, {'type': 'null'}]", "{}"),
        ("at", "x"): ("integer", "'1'"),
    }


def test_faults_of_the_whole_belong_to_the_arguments() -> None:
    contract = SchemaArguments(
        {"type": "object", "minProperties": 1, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    )
    assert [fault.reason for fault in contract.faults({})] == ["type:args", "length:args"]
    assert contract.first_fault({"a": 1}) == ""


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        ({"type": "string"}, "a", ""),
        ({"type": "string", "maxLength": 1}, "ab", "shape"),
        ({"type": "string", "format": "date"}, "ab", "shape"),
        ({"type": "array", "minItems": 1}, [], "empty"),
        ({"type": "array", "minItems": 2}, [1], "shape"),
        ({"type": "array", "maxItems": 2}, [1, 2, 3], "too_big"),
        ({"type": "array"}, [], ""),
        ({"type": "array", "items": {"type": "integer", "multipleOf": 2}}, [3], "range"),
        ({"type": "array", "contains": {"type": "integer"}}, [], "shape"),
        ({"type": "array", "uniqueItems": True}, [1, 1], "shape"),
        ({"type": "number", "maximum": 1}, math.nan, "range"),
        ({"type": "object", "properties": {"a": {"type": "array", "minItems": 1}}}, {"a": []}, "empty"),
        ({"type": "object", "additionalProperties": False}, {"a": 1}, "shape"),
        ({"type": "array", "items": {"$ref": "#"}}, deep(100_000), "shape"),
        ({"type": "array", "items": {"$ref": "#"}}, deep(40), ""),
    ],
)
def test_a_result_of_any_type_is_measured(schema: dict[str, Any], value: Any, reason: str) -> None:
    assert SchemaResult(schema).first_fault(value) == reason
    assert SchemaResult(schema, empty_ok=True).first_fault(value) == ("" if reason == "empty" else reason)


def test_whole_floats_pass_as_integers_only_where_asked_for() -> None:
    schema = schema_of_x({"type": "integer", "enum": [1, 2]})
    strict, lax = SchemaArguments(schema), SchemaArguments(schema, integral_floats=True)
    assert [strict.first_fault({"x": value}) for value in (2, 2.0, 2.5, True, math.inf, 3)] == [
        "", "type:x", "type:x", "type:x", "type:x", "allowed:x",
    ]  # fmt: skip
    assert [lax.first_fault({"x": value}) for value in (2, 2.0, 2.5, True, math.inf, 3.0)] == [
        "", "", "type:x", "type:x", "type:x", "allowed:x",
    ]  # fmt: skip
    assert SchemaResult({"type": "integer"}, integral_floats=True).first_fault(2.0) == ""


# A schema that is refused when the contract is made, and words of the error.
REFUSED: dict[str, tuple[Any, list[str]]] = {
    "no mapping": (5, ["the schema is 5", "give a mapping"]),
    "a table's type word": (
        {"type": "object", "properties": {"a": {"type": "str"}}},
        ["#/properties/a/type", "'string'"],
    ),
    "an unknown type": ({"type": "object", "properties": {"a": {"type": "strng"}}}, ["#/properties/a/type", "mend it"]),
    "a bad pattern": ({"type": "object", "properties": {"a": {"pattern": "("}}}, ["#/properties/a/pattern"]),
    "a list of properties": ({"type": "object", "properties": ["a"]}, ["#/properties"]),
    "another draft's bound": ({"type": "object", "properties": {"a": {"exclusiveMinimum": True}}}, ["2020-12"]),
    "not an object": ({"type": "string"}, ["arguments are always an object"]),
    "a remote reference": (
        schema_of_x({"$ref": "https://example.invalid/x.json"}),
        ["example.invalid/x.json", "$defs"],
    ),
    "a local file": (schema_of_x({"$ref": "file:///etc/passwd"}), ["file:///etc/passwd", "nothing is fetched"]),
    "a relative reference": (schema_of_x({"$ref": "other.json"}), ["other.json", "$defs"]),
    "a dangling pointer": (schema_of_x({"$ref": "#/$defs/no"}), ["#/$defs/no", "$defs"]),
    "a dangling anchor": (schema_of_x({"$ref": "#nobody"}), ["#nobody", "$defs"]),
    "a remote reference behind a local one": (
        schema_of_x({"$ref": "#/x-parts/a"}) | {"x-parts": {"a": {"$ref": "https://example.invalid/y"}}},
        ["example.invalid/y"],
    ),
    "itself": ({"type": "object", "$ref": "#"}, ["without going into the value", "circle"]),
    "itself by two": (
        schema_of_x({"$ref": "#/$defs/a"})
        | {"$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}},
        ["without going into the value"],
    ),
    "min above max": (schema_of_x({"minimum": 3, "maximum": 1}), ["#/properties/x", "minimum 3", "maximum 1", "swap"]),
    "lengths": (schema_of_x({"minLength": 3, "maxLength": 1}), ["minLength 3", "swap"]),
    "items": (schema_of_x({"items": {"minItems": 3, "maxItems": 1}}), ["#/properties/x/items", "minItems 3"]),
    "a required key that is closed out": (
        schema_of_x({"required": ["a"], "properties": {}, "additionalProperties": False}),
        ["'a'", "declare it"],
    ),
    "an enum that nothing keeps": (schema_of_x({"type": "string", "enum": [1, 2]}), ["enum", "mend"]),
    "a default that breaks the rest": (
        schema_of_x({"type": "integer", "default": "a"}),
        ["default 'a'", "give a default"],
    ),
    "a default that breaks a reference": (schema_of_x({"$ref": "#/$defs/tree", "default": 1}), ["default 1"]),
    "too deep": (schema_of_x({"const": deep(100_000)}), ["nested too deeply", "64"]),
    "holding itself": (looped() | {"type": "object"}, ["nested too deeply", "64"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_schema_that_contradicts_itself_is_refused_with_the_mend(case: str) -> None:
    schema, words = REFUSED[case]
    with pytest.raises(ContractError) as caught:
        SchemaArguments(schema, tool="find")
    for word in ["tool 'find', arguments", *words]:
        assert word in str(caught.value)
    assert len(str(caught.value)) < 600


def test_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(0.2)
    port = server.getsockname()[1]
    with server, pytest.raises(ContractError, match=str(port)):
        SchemaArguments(schema_of_x({"$ref": f"http://127.0.0.1:{port}/schema.json"}))
    with pytest.raises(OSError, match=r"closed|Bad file|descriptor"):
        server.accept()


def test_a_schema_is_read_once_and_copied() -> None:
    schema = copy.deepcopy(SCHEMA)
    contract = SchemaArguments(schema)
    schema["properties"]["limit"]["maximum"] = 99
    assert contract.first_fault(GOOD | {"limit": 50}) == "range:limit"
    contract.json_schema()["properties"].clear()
    assert contract.json_schema() == SCHEMA
    assert SchemaResult(ROWS_SCHEMA).json_schema() == ROWS_SCHEMA


def test_a_default_is_no_value_for_a_required_argument() -> None:
    schema = {"type": "object", "properties": {"a": {"default": 1}, "b": {"default": 2}, "c": True}, "required": ["a"]}
    assert SchemaArguments(schema).with_defaults({}) == {"b": 2}


def test_one_contract_may_be_used_by_many_threads() -> None:
    contract = FORMS["schema"]
    told: list[bool] = []

    def measure() -> None:
        told.append(
            all(contract.first_fault(args) == (want[0][0] if want else "") for args, want in ARGUMENTS.values())
        )

    threads = [threading.Thread(target=measure) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told == [True] * 8


@given(
    schema=st.dictionaries(st.sampled_from(["type", "properties", "items", "enum", "$ref", "minimum", "not"]), JSON),
    value=JSON,
)
def test_any_schema_measures_or_is_refused(schema: dict[str, Any], value: Any) -> None:
    """Whatever stands in a schema: a ContractError when it is made, or a reason; nothing else."""
    try:
        contract = SchemaResult(schema)
    except ContractError:
        return
    assert contract.first_fault(value) in ("", "shape", "empty", "too_big", "range")


# --- the choice of the form ------------------------------------------------------------------------------------------


def test_the_form_decides_which_contract_is_made() -> None:
    assert isinstance(arguments_contract({"type": "object"}), SchemaArguments)
    assert isinstance(result_contract({"type": "array"}), SchemaResult)
    assert isinstance(arguments_contract({"type": {"type": "str"}}), TableArguments)
    assert isinstance(result_contract({"type": {"type": "str"}}), TableResult)
    assert isinstance(arguments_contract({}), TableArguments)
    assert arguments_contract(None).first_fault({"a": 1}) == ""
    assert arguments_contract(None).first_fault(5) == "type:args"
    assert result_contract(None) is None
    assert arguments_contract(FORMS["function"]) is FORMS["function"]
    made = SchemaResult({"type": "array"})
    assert result_contract(made) is made


def test_a_live_table_stays_live() -> None:
    spec: dict[str, Any] = {"a": {"type": "int"}}
    contract = arguments_contract(spec)
    spec["a"]["type"] = "str"
    assert contract.first_fault({"a": "x"}) == ""


@pytest.mark.parametrize("empty_ok", [False, True])
@pytest.mark.parametrize("form", [{"rows": {"type": "list"}}, ROWS_SCHEMA | {"properties": {"rows": {"minItems": 1}}}])
def test_empty_ok_reaches_every_form(form: dict[str, Any], empty_ok: bool) -> None:
    contract = result_contract(form | {"required": []} if "type" in form else form, empty_ok)
    assert contract is not None
    assert contract.first_fault({"rows": []}) == ("" if empty_ok else "empty")


@pytest.mark.parametrize(
    "form", [5, "table", [{"a": {}}], TableArguments, len, {"a": "int"}, {"a": {"type": "strng"}}], ids=str
)
def test_what_is_no_form_is_refused_and_names_the_tool(form: Any) -> None:
    for make in (arguments_contract, result_contract):
        with pytest.raises(ContractError, match="tool 'find'"):
            make(form, tool="find")


def test_without_the_package_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['jsonschema'] = None\n"
        "from fsm_agent.core.schemas import arguments_contract\n"
        "from fsm_agent.core.errors import MissingExtra\n"
        "assert arguments_contract({'a': {'type': 'int'}}).first_fault({'a': 1}) == ''\n"
        "try: arguments_contract({'type': 'object'})\n"
        "except MissingExtra as why: print(why)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert 'pip install "fsm-agent[jsonschema]"' in done.stdout


def test_importing_the_contracts_does_not_import_the_package() -> None:
    code = (
        "import sys, fsm_agent.core.schemas, fsm_agent.core.signatures\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('jsonschema', 'referencing', 'rpds')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
