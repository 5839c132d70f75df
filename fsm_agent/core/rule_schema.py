"""A contract's table written as JSON Schema (Draft 2020-12), for model providers and for whoever reads it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from fsm_agent.core.json_kinds import KINDS
from fsm_agent.core.rules import Rule, is_rule, required

JSON_TYPES: Mapping[str, str] = {
    "str": "string", "int": "integer", "float": "number", "bool": "boolean", "list": "array", "object": "object",
    "dict": "object", "null": "null",
}  # fmt: skip
_BOUNDS = {"min": "minimum", "max": "maximum", "exclusive_min": "exclusiveMinimum", "exclusive_max": "exclusiveMaximum"}
_LENGTHS = {"str": "Length", "list": "Items", "object": "Properties", "dict": "Properties"}


def fields_schema(fields: Mapping[str, Rule]) -> dict[str, Any]:
    """The schema of an object with these keys and no others; an unreadable rule takes anything. Never raises."""
    schema: dict[str, Any] = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    try:
        for name, rule in fields.items():
            schema["properties"][name] = rule_schema(rule)
            if required(rule):
                schema["required"].append(name)
    except Exception:
        return {"type": "object"}
    return schema


def rule_schema(rule: Rule) -> dict[str, Any]:
    """The schema of one rule; one that cannot be read takes anything. Never raises."""
    try:
        return _rule_schema(rule)
    except Exception:
        return {}


def _rule_schema(rule: Rule) -> dict[str, Any]:
    wanted = rule.get("type", "any")
    names = [wanted] if isinstance(wanted, str) else list(wanted)
    schema: dict[str, Any] = {}
    if "any" in names:
        names = list(KINDS.values())
    else:
        types = [JSON_TYPES[name] for name in names]
        schema["type"] = types[0] if len(types) == 1 else types
    if isinstance(rule.get("description"), str):
        schema["description"] = rule["description"]
    if rule.get("allowed") is not None:
        schema["enum"] = copy.deepcopy(list(rule["allowed"]))
    schema |= {word: rule[key] for key, word in _BOUNDS.items() if rule.get(key) is not None}
    for side in ("min", "max"):
        if rule.get(f"{side}_len") is not None:
            schema |= {f"{side}{_LENGTHS[name]}": rule[f"{side}_len"] for name in names if name in _LENGTHS}
    if rule.get("pattern") is not None:
        schema["pattern"] = rule["pattern"]
    if "default" in rule:
        schema["default"] = copy.deepcopy(rule["default"])
    if rule.get("item") is not None:
        schema["items"] = rule_schema(rule["item"]) if is_rule(rule["item"]) else fields_schema(rule["item"])
    if rule.get("fields") is not None:
        schema |= {key: part for key, part in fields_schema(rule["fields"]).items() if key != "type"}
    elif rule.get("values") is not None:
        schema["additionalProperties"] = rule_schema(rule["values"])
    return schema
