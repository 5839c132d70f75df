from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.core.errors import ContractError
from fsm_agent.core.foreign_schemas import closed_schema, foreign_arguments, foreign_result

pytest.importorskip("jsonschema", reason='no JSON Schema; pip install "fsm-agent[jsonschema]"')

INNER: dict[str, Any] = {"properties": {"p": {"items": {"properties": {"a": {}}}}}}


@pytest.mark.parametrize(
    ("schema", "args", "reason"),
    [
        ({"type": "object", "additionalProperties": True}, {"x": 1}, ""),
        ({"unevaluatedProperties": True}, {"x": 1}, ""),
        ({"properties": {}}, {"x": 1}, "extra:x"),
        ({"allOf": [{"properties": {"a": {}}}], "properties": {"b": {}}}, {"a": 1, "b": 2}, ""),
        ({"allOf": [{"properties": {"a": {}}}], "properties": {"b": {}}}, {"a": 1, "c": 2}, "extra:c"),
        ({"anyOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}}]}, {"a": 1}, ""),
        ({"$defs": {"P": {"properties": {"a": {}}}}, "$ref": "#/$defs/P"}, {"a": 1}, ""),
        ({"$defs": {"P": {"properties": {"a": {}}}}, "$ref": "#/$defs/P"}, {"b": 1}, "extra:b"),
        (INNER, {"p": [{"a": 1}]}, ""),
        (INNER, {"p": [{"b": 1}]}, "extra:p"),
        ({"properties": {"p": {"type": "object"}}}, {"p": {"b": 1}}, ""),
        ({"properties": {"p": {"additionalProperties": {"properties": {"a": {}}}}}}, {"p": {"k": {"b": 1}}}, "extra:p"),
        ({"properties": {"p": {"allOf": [{"properties": {"a": {}}}]}}}, {"p": {"b": 1}}, ""),
        ({"patternProperties": {"^x": {}}}, {"x1": 1}, ""),
        ({"patternProperties": {"^x": {}}}, {"y1": 1}, "extra:y1"),
    ],
)
def test_a_schema_is_closed_where_it_is_silent(schema: dict[str, Any], args: dict[str, Any], reason: str) -> None:
    before = copy.deepcopy(schema)
    assert foreign_arguments(schema, "t", deep=True).first_fault(args) == reason
    assert schema == before


def test_only_the_top_is_closed_where_it_is_asked_for() -> None:
    assert foreign_arguments(INNER, "t", deep=False).first_fault({"p": [{"b": 1}]}) == ""
    assert foreign_arguments(INNER, "t", deep=False).first_fault({"q": 1}) == "extra:q"


def test_a_default_that_breaks_its_own_schema_is_left_out_and_no_other() -> None:
    broken = foreign_arguments({"properties": {"n": {"type": "integer", "default": None}}}, "t", deep=True)
    assert (broken.with_defaults({}), broken.first_fault({"n": None})) == ({}, "type:n")
    kept = foreign_arguments({"properties": {"n": {"type": "integer", "default": 3}}}, "t", deep=True)
    assert kept.with_defaults({}) == {"n": 3}


def test_a_property_that_is_called_default_stays() -> None:
    schema = {"properties": {"default": {"type": "string"}, "n": {"type": "integer", "default": "x"}}}
    contract = foreign_arguments(schema, "t", deep=True)
    assert contract.first_fault({"default": "a"}) == ""
    assert contract.first_fault({"default": 1}) == "type:default"


@pytest.mark.parametrize("schema", [3, {"properties": {"n": {"type": "numero"}}}, {"type": "array"}, {"$ref": "http://x.invalid/y"}])
def test_what_is_no_schema_of_an_object_is_refused(schema: Any) -> None:
    with pytest.raises(ContractError, match="tool 't', arguments"):
        foreign_arguments(schema, "t", deep=True)


def test_a_schema_that_holds_itself_is_refused() -> None:
    schema: dict[str, Any] = {"type": "object"}
    schema["properties"] = {"a": schema}
    with pytest.raises(ContractError, match="nested too deeply or holds itself"):
        foreign_arguments(schema, "t", deep=True)


def test_results_of_any_type_are_closed_inside() -> None:
    contract = foreign_result({"type": "array", "items": {"properties": {"a": {}}}}, "t")
    assert [contract.first_fault(value) for value in ([], [{"a": 1}], [{"b": 1}], {})] == ["", "", "shape", "shape"]
    most = foreign_result({"type": "array", "minItems": 1}, "t", empty_ok=True)
    assert most.first_fault([]) == ""


NAMES = st.sampled_from(["a", "b", "c"])
PARTS = st.recursive(
    st.sampled_from([{}, {"type": "string"}, {"type": "object"}, {"type": "integer", "default": 1}]),
    lambda inner: st.builds(lambda named: {"type": "object", "properties": named}, st.dictionaries(NAMES, inner, max_size=3))
    | st.builds(lambda one: {"type": "array", "items": one}, inner)
    | st.builds(lambda one: {"anyOf": one}, st.lists(inner, min_size=1, max_size=2)),
    max_leaves=6,
)
VALUES = st.recursive(
    st.sampled_from([None, 1, "x"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(NAMES, PARTS, max_size=3), st.dictionaries(NAMES, VALUES, max_size=3))
def test_closing_takes_nothing_new_and_changes_nothing_twice(named: dict[str, Any], args: dict[str, Any]) -> None:
    from fsm_agent.core.schemas import SchemaArguments

    schema = {"type": "object", "properties": named}
    closed = closed_schema(schema, deep=True)
    assert closed_schema(closed, deep=True) == closed
    if not SchemaArguments(closed).first_fault(args):
        assert not SchemaArguments(schema).first_fault(args)
