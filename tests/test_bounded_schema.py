"""Bounded schemas: every value of one has an end, and a decision is one of the tools or an answer."""

from __future__ import annotations

from typing import Any

import pytest

from fsm_agent.core.messages import ToolOffer
from fsm_agent.models.bounded_schema import bounded_schema, decision_schema

TEXT = {"type": "string", "minLength": 0, "maxLength": 80}
NUMBER = {"type": "integer", "minimum": -1_000_000, "maximum": 1_000_000}


def closed(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "bounded"),
    [
        ({}, TEXT),
        ({"type": "string"}, TEXT),
        ({"type": "string", "maxLength": 5, "pattern": "x", "format": "date"}, {**TEXT, "maxLength": 5}),
        ({"type": "string", "maxLength": 10_000}, TEXT),
        ({"type": "string", "minLength": 100}, {"type": "string", "minLength": 100, "maxLength": 100}),
        ({"type": "integer"}, NUMBER),
        ({"type": "integer", "minimum": 3}, {**NUMBER, "minimum": 3}),
        ({"type": "integer", "minimum": 3_000_000}, {"type": "integer", "minimum": 3_000_000, "maximum": 3_000_000}),
        ({"type": "integer", "maximum": -3_000_000}, {"type": "integer", "minimum": -3_000_000, "maximum": -3_000_000}),
        ({"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 5}, {"type": "integer", "minimum": 1, "maximum": 4}),
        ({"type": "number", "minimum": 1}, {"type": "number"}),
        ({"type": "boolean"}, {"type": "boolean"}),
        ({"type": "null"}, {"type": "null"}),
        ({"const": 4, "type": "integer"}, {"const": 4}),
        ({"enum": ["a", "b"], "description": "d"}, {"enum": ["a", "b"]}),
        ({"type": ["integer", "null"]}, {"anyOf": [NUMBER, {"type": "null"}]}),
        ({"oneOf": [{"type": "integer"}, True, False]}, {"anyOf": [NUMBER, TEXT, {"type": "null"}]}),
        ({"type": "array"}, {"type": "array", "items": TEXT, "minItems": 0, "maxItems": 4}),
        (
            {"items": {"type": "integer"}, "minItems": 6, "maxItems": 9},
            {"type": "array", "items": NUMBER, "minItems": 6, "maxItems": 6},
        ),
        ({"type": "object"}, closed([])),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, closed([])),
        ({"properties": {"a": {"type": "integer"}}, "required": ["a", "b"]}, closed(["a", "b"], a=NUMBER, b=TEXT)),
        (
            {"$defs": {"n": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/n"}, "b": {"$ref": "#/odd"}}},
            closed([], a=NUMBER, b=TEXT),
        ),
        (
            {"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"b": {}}}, True]},
            closed(["a"], a=NUMBER, b=TEXT),
        ),
        ({"type": "odd"}, TEXT),
    ],
)
def test_a_schema_gets_bounds(schema: Any, bounded: Any) -> None:
    assert bounded_schema(schema) == bounded
    assert bounded_schema(bounded) == bounded


def test_a_schema_that_refers_to_itself_ends() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    bounded, depth = bounded_schema(node), 0
    while bounded["type"] == "object":
        bounded, depth = bounded["properties"]["next"], depth + 1

    assert (bounded, depth) == ({"type": "null"}, 5)


def test_a_decision_is_one_of_the_tools_or_an_answer() -> None:
    tools = [ToolOffer(name="add", schema={"properties": {"a": {"type": "integer"}}}), ToolOffer(name="web.search")]
    add, search, final = decision_schema(tools, 9)["oneOf"]

    assert add["properties"] == {"type": {"const": "tool"}, "toolName": {"const": "add"}, "args": closed([], a=NUMBER)}
    assert search["properties"]["args"] == closed([])
    text = {"type": "string", "minLength": 1, "maxLength": 9}
    assert final == closed(["type", "finalAnswer"], type={"const": "final"}, finalAnswer=text)
    assert [one["required"] for one in (add, search)] == [["type", "toolName", "args"]] * 2
    assert decision_schema(())["oneOf"][0]["properties"]["type"] == {"const": "final"}
