"""A JSON Schema in the narrow form that some APIs enforce, and as words for those that enforce none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fsm_agent.models.wire_values import wire_json, wire_value

_KEPT: Final = ("$ref", "enum", "const", "title")
_LISTS: Final = {"anyOf": "anyOf", "oneOf": "anyOf", "allOf": "allOf"}
_FORMATS: Final = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"})
_SIMPLE: Final = ("string", "integer", "number", "boolean", "null")


class _TooWide(Exception):
    """A part of the schema has no narrow form."""


def narrow_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The schema with closed objects and basic keywords only; other keywords are said in its descriptions.

    None where it has no such form: an object with free keys, or a part that says no type.
    """
    try:
        return _narrow(wire_value(dict(schema)))
    except _TooWide:
        return None


def schema_words(schema: Mapping[str, Any]) -> str:
    """The instruction to answer with JSON of a schema and nothing else."""
    return f"Answer with one JSON value of this JSON Schema and with nothing around it:\n{wire_json(dict(schema))}"


def _narrow(schema: Any) -> dict[str, Any]:
    if not isinstance(schema, Mapping):
        raise _TooWide
    rest = {key: value for key, value in schema.items() if not key.startswith("$")}
    made: dict[str, Any] = {key: schema[key] for key in _KEPT if key in schema}
    for group in ("$defs", "definitions"):
        if group in schema:
            made[group] = {name: _narrow(one) for name, one in schema[group].items()}
    for key, narrow in _LISTS.items():
        if key in rest:
            made[narrow] = [_narrow(one) for one in rest[key]]
    kind = rest.get("type")
    if isinstance(kind, list):
        made["anyOf"] = [_narrow({**rest, "type": one}) for one in kind]
    elif kind == "object":
        made |= _object(rest)
    elif kind == "array":
        made |= {"type": "array", "items": _narrow(rest.get("items"))}
        if rest.get("minItems") in (0, 1):
            made["minItems"] = rest["minItems"]
    elif kind in _SIMPLE:
        made["type"] = kind
        if rest.get("format") in _FORMATS:
            made["format"] = rest["format"]
    elif not made.keys() & {"$ref", "enum", "const", "anyOf", "allOf"}:
        raise _TooWide
    return _described(made, rest)


def _object(schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties", {})
    if schema.get("additionalProperties") not in (None, False) or not properties or "patternProperties" in schema:
        raise _TooWide
    made = {"type": "object", "properties": {name: _narrow(one) for name, one in properties.items()}}
    return {**made, "required": list(schema.get("required", ())), "additionalProperties": False}


def _described(made: dict[str, Any], rest: Mapping[str, Any]) -> dict[str, Any]:
    """With a description that says what the narrow form leaves out."""
    said = {*made, *_LISTS, "type", "description", "definitions", "additionalProperties", "default", "examples"}
    left = ", ".join(f"{key}: {wire_json(value)}" for key, value in rest.items() if key not in said)
    text = "; ".join(part for part in (rest.get("description", ""), left) if part)
    return {**made, "description": text} if text else made
