"""What goes out is JSON that UTF-8 can carry, and arguments are an object."""

from __future__ import annotations

import json
from collections import UserDict
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.models.wire_values import (
    arguments_object,
    arguments_text,
    object_schema,
    wire_id,
    wire_json,
    wire_text,
    wire_value,
)

ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=4) | st.just("\ud835"),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers() | st.just("\ud835"), inner) | st.tuples(inner),
)


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("", ""),
        ("a", "a"),
        ("日本", "日本"),
        ("a\ud835b", "a\ufffdb"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ud83d\ude00", "😀"),
    ],
)
def test_a_text_loses_only_its_lone_surrogates(text: str, sent: str) -> None:
    assert wire_text(text) == sent


@given(ODD)
def test_any_value_is_strict_json_that_utf8_carries(value: Any) -> None:
    text = wire_json(value)
    text.encode("utf-8")

    json.loads(text, parse_constant=pytest.fail)


@given(ODD)
def test_any_arguments_are_an_object(value: Any) -> None:
    held = json.loads(arguments_text(value), parse_constant=pytest.fail)

    assert isinstance(held, dict)
    assert held == arguments_object(value)


@pytest.mark.parametrize(
    ("args", "sent"),
    [
        (None, {}),
        ("", {}),
        ({}, {}),
        ('{"a": 1}', {"a": 1}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        (UserDict(a=1), {"a": 1}),
        ('{"a": ', {"_raw": '{"a": '}),
        ("[1]", {"_raw": "[1]"}),
        ([1], {"_raw": "[1]"}),
        (4, {"_raw": "4"}),
        ("\ud835", {"_raw": "\ufffd"}),
        ({"d": date(2020, 1, 2)}, {"d": {"$date": "2020-01-02"}}),
        ({1: 2}, {"1": 2}),
        ({(1, 2): 3}, {"$dict": [{"$tuple": [1, 2]}, 3]}),
    ],
)
def test_arguments_go_out_as_they_came_or_as_what_they_were(args: Any, sent: Any) -> None:
    assert arguments_object(args) == sent


def test_arguments_without_end_are_capped() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]

    assert len(arguments_text("x" * 1_000_000)) < 2100
    assert len(arguments_text(deep)) < 2100


@pytest.mark.parametrize("call_id", ["c1", "call-3", "toolu_01A", "x" * 40])
def test_an_id_that_every_api_takes_stays(call_id: str) -> None:
    assert wire_id(call_id) == call_id


def test_any_other_id_is_one_that_every_api_takes_and_its_own() -> None:
    odd = ["", "a b", "x" * 41, "x" * 42, "é", "\ud835", "functions.add:0"]
    ids = {wire_id(one) for one in odd}

    assert len(ids) == len(odd)
    assert all(wire_id(one) == one for one in ids)


def test_a_schema_is_an_object_schema_and_is_not_changed() -> None:
    free: dict[str, Any] = {}

    assert object_schema(free) == {"type": "object", "properties": {}}
    assert free == {}
    assert object_schema({"properties": {"a": {}}, "title": "\ud835"}) == {
        "type": "object", "properties": {"a": {}}, "title": "\ufffd",
    }


def test_a_fit_value_is_not_copied() -> None:
    value = {"a": [1, "é"]}

    assert wire_value(value) is value
    assert wire_value(UserDict(a=1)) == {"a": 1}
