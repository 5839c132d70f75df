"""A JSON Schema that any value can be generated from in bounded length, and the schema of a JSON decision.

A small model that is held to a schema may still go on for ever inside one string or list. Here each string and list has a
greatest length, each integer a range, each object its keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from fsm_agent.core.messages import ToolOffer

MAX_TEXT: Final = 80
_MAX_ITEMS: Final = 4
_MAX_DEPTH: Final = 8
_WIDEST: Final = 1_000_000


def decision_schema(tools: Iterable[ToolOffer], max_text: int = MAX_TEXT) -> dict[str, Any]:
    """The bounded schema of a JSON decision (seed 000): one of the tools with its arguments, or a final answer."""
    text = {"type": "string", "minLength": 1, "maxLength": max_text}
    forms = [
        _closed({"type": {"const": "tool"}, "toolName": {"const": tool.name}, "args": bounded_schema(_object(tool), max_text)})
        for tool in tools
    ]
    return {"oneOf": [*forms, _closed({"type": {"const": "final"}, "finalAnswer": text})]}


def bounded_schema(schema: Mapping[str, Any], max_text: int = MAX_TEXT) -> dict[str, Any]:
    """The schema with bounds, of basic keywords only: a value of it may still break what the schema says beyond them.

    What says no type is a text, and what refers to itself ends as null.
    """
    return _Bounding(schema, max_text).of(schema, 0)


def _object(tool: ToolOffer) -> dict[str, Any]:
    return {"type": "object", **tool.schema}


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


class _Bounding:
    """One walk of `bounded_schema`."""

    def __init__(self, root: Mapping[str, Any], max_text: int) -> None:
        self.root, self.max_text = root, max_text

    def of(self, schema: Any, depth: int) -> dict[str, Any]:
        if depth > _MAX_DEPTH or schema is False:
            return {"type": "null"}
        if not isinstance(schema, Mapping):
            return self.text({})
        if "$ref" in schema:
            return self.of(self.target(schema["$ref"]), depth + 1)
        for key in ("const", "enum"):
            if key in schema:
                return {key: schema[key]}
        for key in ("anyOf", "oneOf"):
            if schema.get(key):
                return {"anyOf": [self.of(one, depth + 1) for one in schema[key]]}
        if schema.get("allOf"):
            return self.of(_merged(schema), depth + 1)
        kind = schema.get("type", "object" if "properties" in schema else "array" if "items" in schema else "string")
        if isinstance(kind, list):
            return {"anyOf": [self.of({**schema, "type": one}, depth) for one in kind]}
        return self.typed(kind, schema, depth)

    def typed(self, kind: Any, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        if kind == "object":
            return self.object(schema, depth)
        if kind == "array":
            least = int(schema.get("minItems", 0))
            most = max(least, min(schema.get("maxItems", _MAX_ITEMS), _MAX_ITEMS))
            return {"type": "array", "items": self.of(schema.get("items", {}), depth + 1), "minItems": least, "maxItems": most}
        if kind == "integer":
            return _integer(schema)
        return {"type": kind} if kind in ("number", "boolean", "null") else self.text(schema)

    def object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties = {name: self.of(one, depth + 1) for name, one in schema.get("properties", {}).items()}
        required = list(schema.get("required", ()))
        for name in required:
            properties.setdefault(name, self.text({}))
        return {**_closed(properties), "required": required}

    def text(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        least = int(schema.get("minLength", 0))
        most = max(least, min(schema.get("maxLength", self.max_text), self.max_text))
        return {"type": "string", "minLength": least, "maxLength": most}

    def target(self, ref: Any) -> Any:
        found: Any = self.root
        for step in str(ref).removeprefix("#").strip("/").split("/") if ref != "#" else ():
            found = found.get(step) if isinstance(found, Mapping) else None
        return found


def _integer(schema: Mapping[str, Any]) -> dict[str, Any]:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is None and "exclusiveMinimum" in schema:
        least = schema["exclusiveMinimum"] + 1
    if most is None and "exclusiveMaximum" in schema:
        most = schema["exclusiveMaximum"] - 1
    least = min(-_WIDEST, most if most is not None else 0) if least is None else least
    most = max(_WIDEST, least) if most is None else most
    return {"type": "integer", "minimum": int(least), "maximum": int(most)}


def _merged(schema: Mapping[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {key: value for key, value in schema.items() if key != "allOf"}
    for part in schema["allOf"]:
        if not isinstance(part, Mapping):
            continue
        properties = {**merged.get("properties", {}), **part.get("properties", {})}
        required = [*merged.get("required", ()), *part.get("required", ())]
        merged |= part
        if properties:
            merged["properties"] = properties
        if required:
            merged["required"] = required
    return merged
