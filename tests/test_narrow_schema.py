"""The narrow form of a schema: what is kept, what is said in words, and what has no such form."""

from __future__ import annotations

from typing import Any

import pytest

from fsm_agent.models.narrow_schema import narrow_schema, schema_words


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "narrow"),
    [
        ({"type": "string"}, {"type": "string"}),
        ({"type": "string", "maxLength": 5, "pattern": "a"}, {"type": "string", "description": 'maxLength: 5, pattern: "a"'}),
        ({"type": "string", "format": "date", "description": "d"}, {"type": "string", "format": "date", "description": "d"}),
        ({"type": "string", "format": "odd", "description": "d"}, {"type": "string", "description": 'd; format: "odd"'}),
        ({"enum": ["a", 1, None]}, {"enum": ["a", 1, None]}),
        ({"const": 4, "default": 4}, {"const": 4}),
        ({"type": ["string", "null"]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"oneOf": [{"type": "null"}, closed(a={"const": 1})]}, {"anyOf": [{"type": "null"}, closed(a={"const": 1})]}),
        (
            {"type": "object", "properties": {"a": {"type": "number", "minimum": 0}}, "minProperties": 1},
            {**closed(a={"type": "number", "description": "minimum: 0"}), "required": [], "description": "minProperties: 1"},
        ),
        (
            {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 4},
            {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "description": "maxItems: 4"},
        ),
        (
            {"$schema": "x", "$defs": {"n": {"type": "integer"}}, **closed(a={"$ref": "#/$defs/n"})},
            {"$defs": {"n": {"type": "integer"}}, **closed(a={"$ref": "#/$defs/n"})},
        ),
    ],
)
def test_a_schema_is_narrowed_and_the_rest_is_said(schema: Any, narrow: Any) -> None:
    assert narrow_schema(schema) == narrow


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": "object", "properties": {"a": {"type": "object"}}},
        {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": True},
        {"type": "object", "properties": {"a": {"type": "integer"}}, "patternProperties": {}},
        {"type": "object", "properties": {"a": {}}},
        {"type": "array"},
        {"type": "array", "items": True},
        {"anyOf": [{"type": "integer"}, {}]},
        {"type": "odd"},
    ],
)
def test_a_schema_without_a_narrow_form_has_none(schema: Any) -> None:
    assert narrow_schema(schema) is None


def test_a_schema_is_not_changed() -> None:
    schema = closed(a={"type": "string", "minLength": 1})
    narrow_schema(schema)

    assert schema == closed(a={"type": "string", "minLength": 1})


def test_in_words_a_schema_is_whole() -> None:
    assert schema_words({"type": "object"}).endswith('\n{"type": "object"}')
