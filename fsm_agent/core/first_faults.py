"""The first reason why a value breaks a table, for the rules that nearly every table is made of.

`rules` finds every fault of any rule; the door needs one word of it for most calls that fail, and none for those that do not.
What is not read here raises LookupError, and the caller takes the closer look.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsm_agent.core.json_kinds import KINDS, key_name, of_type
from fsm_agent.core.rules import RANK, TESTS, Path, Rule, allows, at_least, at_most, broken, is_rule, required


def first_fault(fields: Mapping[str, Rule], args: dict[str, Any]) -> str:
    """The first reason why arguments break fields, or an empty text; raises LookupError where that takes a closer look.

    Only types, choices and bounds are read here, one pass over the fields for each step of the order.
    """
    if args.keys() != fields.keys():
        for name, rule in fields.items():
            if name not in args and required(rule):
                return f"missing:{name}"
        for key in args:
            if key not in fields:
                return f"extra:{key_name(key)}"
    for name, rule in fields.items():
        if name not in args:
            continue
        one, wanted = args[name], rule["type"]
        kind = type(one)
        if KINDS.get(kind) != wanted and not of_type(wanted, one):
            return f"type:{name}"
        left = len(rule) - 2 if "required" in rule else len(rule) - 1
        if not left:
            continue
        chosen, low, high = "allowed" in rule, "min" in rule, "max" in rule
        if chosen + low + high != left:
            raise LookupError(name)
        # What a whole number cannot be compared with raises TypeError, which takes the closer look too.
        if chosen:
            options = rule["allowed"]
            if not (one in options if kind is str and type(options) is list else allows(options, one)):
                return f"allowed:{name}"
        if low and not (one >= rule["min"] if kind is int else at_least(rule["min"], one)):
            return f"range:{name}"
        if high and not (one <= rule["max"] if kind is int else at_most(rule["max"], one)):
            return f"range:{name}"
    return ""


_NESTS = ("item", "fields", "values")


def first_kind(rule: Rule, value: object, path: Path) -> str:
    """The kind of the first fault of a value that breaks its rule; may raise for an unreadable rule or an odd value."""
    for key in _NESTS:
        if key in rule:
            return min((one[0] for one in broken(rule, value, path)), key=RANK.__getitem__)
    wanted = rule.get("type", "any")
    if KINDS.get(type(value)) != wanted and not of_type(wanted, value):
        return "type"
    for key, (kind, test) in TESTS.items():
        if key in rule and not test(rule[key], value):
            return kind
    return "type"


_PLAIN_KEYS = frozenset({"type", "required", "description", "min", "max", "max_len", "item"})


def first_reason(fields: Mapping[str, Rule], value: Any) -> str:
    """Why a value breaks fields: ``shape``, ``too_big`` or ``range``; LookupError where that takes a closer look.

    Only rules of types, bounds and longest lists are read here; an empty text says that none of them is broken.
    """
    if type(value) is not dict:
        if isinstance(value, dict):
            raise LookupError("a dict of another class")
        return "shape"
    for name in value:
        if name not in fields:
            return "shape"
    worst = ""
    for name, rule in fields.items():
        if name not in value:
            if required(rule):
                return "shape"
            continue
        for key in rule:
            if key not in _PLAIN_KEYS:
                raise LookupError(key)
        one, wanted = value[name], rule["type"]
        if KINDS.get(type(one)) != wanted and not of_type(wanted, one):
            return "shape"
        if type(one) is list:
            if (most := rule.get("max_len")) is not None and len(one) > most:
                worst = "too_big"
            item = rule.get("item")
            if item is not None:
                if is_rule(item):
                    raise LookupError(name)
                for row in one:
                    inner = first_reason(item, row)
                    if inner == "shape":
                        return inner
                    worst = inner if inner == "too_big" or not worst else worst
        elif "max_len" in rule or isinstance(one, list):
            raise LookupError(name)
        elif not (at_least(rule.get("min"), one) and at_most(rule.get("max"), one)):
            worst = worst or "range"
    return worst
