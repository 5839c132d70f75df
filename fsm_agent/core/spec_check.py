"""Contradictions in a contract's table, found when the tool is built and told with the mend."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from typing import Any, NoReturn

import attrs

from fsm_agent.core.errors import ContractError
from fsm_agent.core.json_kinds import ALSO, TYPE_NAMES, describe, is_number
from fsm_agent.core.known_names import mend
from fsm_agent.core.rules import broken, expected, is_rule

_BOUNDS = ("min", "max", "exclusive_min", "exclusive_max")
_LENGTHS = ("min_len", "max_len")
# Each key that narrows a rule, with the types that it can narrow.
APPLIES_TO: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(_BOUNDS, frozenset({"int", "float"})),
    **dict.fromkeys(_LENGTHS, frozenset({"str", "list", "object"})),
    "pattern": frozenset({"str"}),
    "item": frozenset({"list"}),
    "fields": frozenset({"object"}),
    "values": frozenset({"object"}),
}
_KEYS = ("type", "required", "default", "description", "allowed", *APPLIES_TO)
# Deeper than any contract that a person writes, and shallow enough to be measured inside any call stack.
_DEEPEST = 32


@attrs.frozen
class _Place:
    """Where in which contract a rule stands, for the error."""

    tool: str
    what: str
    path: tuple[str, ...] = ()

    def inside(self, *steps: str) -> _Place:
        return _Place(self.tool, self.what, (*self.path, *steps))

    def fail(self, problem: str, mend: str) -> NoReturn:
        inner = "/".join(self.path[1:6]) + "/..." * (len(self.path) > 6)
        where = f"{self.what} {self.path[0]!r}" + f" at {inner}" * bool(inner) if self.path else f"its {self.what}s"
        raise ContractError(f"tool {self.tool!r}, {where}: {problem}; {mend}")


def check_arguments(spec: object, tool: str) -> None:
    """Refuse a table of arguments that contradicts itself: ContractError names tool, argument, mend. None is fine."""
    if spec is not None:
        _check_fields(spec, _Place(tool, "argument"))


def check_returns(spec: object, tool: str) -> None:
    """Refuse a table of a result that contradicts itself: ContractError names tool, key and mend. None is fine."""
    if spec is not None:
        _check_fields(spec, _Place(tool, "result"))


def _check_fields(fields: object, place: _Place) -> None:
    if not isinstance(fields, Mapping):
        place.fail(f"the contract is {describe(fields)}", "give a mapping of names to rules, or None for anything")
    for name, rule in fields.items():
        if not isinstance(name, str) or not name:
            place.fail(f"the name {describe(name)} is no text", "name it with a non-empty text")
        if name == "type" and isinstance(rule, str):
            place.fail(f"its `type` is the text {rule!r}, so it is a JSON Schema or one rule",
                       "give it to `arguments_contract` or `result_contract`, or map names to rules")  # fmt: skip
        _check_rule(rule, place.inside(name))


def _check_rule(rule: object, place: _Place) -> None:
    if not isinstance(rule, Mapping):
        place.fail(f"the rule is {describe(rule)}", "give a mapping such as {'type': 'str'}")
    if len(place.path) > _DEEPEST:
        place.fail("it is nested too deeply or holds itself", f"nest at most {_DEEPEST} levels")
    for key in rule:
        if key not in _KEYS:
            place.fail(f"the key {describe(key)} is unknown", mend(key, _KEYS, "the keys are"))
    kinds = _check_type(rule, place)
    if not isinstance(rule.get("required", True), bool):
        place.fail(f"required is {describe(rule['required'])}", "give True or False")
    if not isinstance(rule.get("description", ""), str):
        place.fail(f"description is {describe(rule['description'])}", "give a text")
    for key, fitting in APPLIES_TO.items():
        if rule.get(key) is not None and not fitting & kinds:
            names = " or ".join(sorted(fitting))
            place.fail(f"{key} is no key of type {' or '.join(sorted(kinds))}", f"leave it out, or make the type {names}")
    _check_bounds(rule, kinds, place)
    _check_lengths(rule, place)
    _check_pattern(rule, place)
    _check_nested(rule, place)
    _check_values(rule, place)


def _check_type(rule: Mapping[str, Any], place: _Place) -> set[str]:
    wanted = rule.get("type", "any")
    names = wanted if isinstance(wanted, list | tuple) else [wanted]
    for name in names:
        if not isinstance(name, str) or ALSO.get(name, name) not in TYPE_NAMES:
            place.fail(f"the type {describe(name)} is unknown", f"the types are {', '.join(TYPE_NAMES)}, or a list of them")
    if not names:
        place.fail("the list of types is empty", f"name at least one of {', '.join(TYPE_NAMES)}")
    return set(TYPE_NAMES) if "any" in names else {ALSO.get(name, name) for name in names}


def _check_bounds(rule: Mapping[str, Any], kinds: set[str], place: _Place) -> None:
    bounds = {key: rule[key] for key in _BOUNDS if rule.get(key) is not None}
    for key, bound in bounds.items():
        if not is_number(bound) or math.isnan(bound):
            place.fail(f"{key} is {describe(bound)}", "give a number")
    for low, least in bounds.items():
        for high, most in bounds.items():
            if "min" not in low or "max" not in high:
                continue
            if least > most:
                place.fail(f"{low} {describe(least)} is greater than {high} {describe(most)}", "swap them, or leave one out")
            if least == most and "exclusive" in low + high:
                place.fail(f"no number lies between {low} and {high} {describe(most)}", "use min and max, which are included")


def _check_lengths(rule: Mapping[str, Any], place: _Place) -> None:
    lengths = {key: rule[key] for key in _LENGTHS if rule.get(key) is not None}
    for key, length in lengths.items():
        if not isinstance(length, int) or isinstance(length, bool) or length < 0:
            place.fail(f"{key} is {describe(length)}", "give a whole number from 0")
    if len(lengths) == 2 and lengths["min_len"] > lengths["max_len"]:
        least, most = (describe(lengths[key]) for key in _LENGTHS)
        place.fail(f"min_len {least} is greater than max_len {most}", "swap them, or leave one out")


def _check_pattern(rule: Mapping[str, Any], place: _Place) -> None:
    pattern = rule.get("pattern")
    if pattern is None:
        return
    if not isinstance(pattern, str):
        place.fail(f"pattern is {describe(pattern)}", "give a regular expression as text")
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as why:
        place.fail(f"pattern {describe(pattern)} is no regular expression ({why})", "mend it, or escape it with re.escape")


def _check_nested(rule: Mapping[str, Any], place: _Place) -> None:
    item = rule.get("item")
    if item is not None and not isinstance(item, Mapping):
        place.fail(f"item is {describe(item)}", "give one rule such as {'type': 'str'}, or names mapped to rules")
    if item is not None and is_rule(item):
        _check_rule(item, place.inside("item"))
    elif item is not None:
        _check_fields(item, place.inside("item"))
    if rule.get("fields") is not None and rule.get("values") is not None:
        place.fail("fields and values are both given", "use fields for known keys, values for keys that are not known")
    if rule.get("fields") is not None:
        _check_fields(rule["fields"], place.inside("fields"))
    if rule.get("values") is not None:
        _check_rule(rule["values"], place.inside("values"))


def _check_values(rule: Mapping[str, Any], place: _Place) -> None:
    options = rule.get("allowed")
    if options is not None:
        if isinstance(options, str | bytes) or not isinstance(options, Collection) or not len(options):
            place.fail(f"allowed is {describe(options)}", "give a non-empty list of values")
        others = {key: part for key, part in rule.items() if key != "allowed"}
        for option in options:
            for kind, _, part, _ in broken(others, option):
                place.fail(f"the allowed value {describe(option)} breaks its {kind}: expected {expected(kind, part)}",
                           "take it out, or widen the rule")  # fmt: skip
    if "default" in rule:
        for kind, _, part, _ in broken(rule, rule["default"]):
            place.fail(f"the default {describe(rule['default'])} breaks its {kind}: expected {expected(kind, part)}",
                       "give a default that the rule takes, or add 'null' to its types")  # fmt: skip
