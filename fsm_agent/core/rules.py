"""One rule of a contract's table, and a value measured against it.

A rule is a mapping: ``{"type": "int", "min": 1, "max": 2}``. Rules by name are *fields*; a list's ``item`` is either
one rule (its ``type`` is a text or a list of texts) or fields. Rules are read anew at every measurement, so one that is
edited in place counts at once; one that cannot be read is broken by every value.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping
from typing import Any

from fsm_agent.core.json_kinds import KINDS, describe, is_number, key_name, of_type, same
from fsm_agent.core.patterns import found

Rule = Mapping[str, Any]
Path = tuple[str | int, ...]
Broken = tuple[str, Path, Any, Any]

# The order in which the faults of one argument are told; a nested missing or extra key is a fault of its argument.
RANK: Mapping[str, int] = {
    "missing": 0, "extra": 1, "type": 2, "allowed": 3, "range": 4, "length": 5, "pattern": 6,
}  # fmt: skip


def required(rule: Rule) -> bool:
    """True when the key of this rule must be present: as declared, else when there is no default."""
    return bool(rule.get("required", "default" not in rule))


def is_rule(item: Rule) -> bool:
    """True when a list's ``item`` is one rule, false when it is fields; an empty one is a rule that takes anything."""
    return not item or isinstance(item.get("type"), str | list | tuple)


def allows(options: Any, value: object) -> bool:
    """True when a value is among the options, compared by JSON type as well."""
    if options is None:
        return True
    if type(options) is list and type(value) is str:
        return value in options
    if isinstance(options, str | bytes) or not isinstance(options, Collection):
        return False
    return any(same(option, value) for option in options)


# A bound that is None is none. NaN compares false with everything, so it breaks every bound.
def at_least(bound: Any, value: Any) -> bool:
    """True when a number is not below its bound."""
    return bound is None or (type(value) is not int and not is_number(value)) or value >= bound


def at_most(bound: Any, value: Any) -> bool:
    """True when a number is not above its bound."""
    return bound is None or (type(value) is not int and not is_number(value)) or value <= bound


def _above(bound: Any, value: Any) -> bool:
    return bound is None or (type(value) is not int and not is_number(value)) or value > bound


def _below(bound: Any, value: Any) -> bool:
    return bound is None or (type(value) is not int and not is_number(value)) or value < bound


def _long_enough(bound: Any, value: Any) -> bool:
    return bound is None or not isinstance(value, str | list | dict) or len(value) >= bound


def _short_enough(bound: Any, value: Any) -> bool:
    return bound is None or not isinstance(value, str | list | dict) or len(value) <= bound


def _matches(pattern: Any, value: Any) -> bool:
    return pattern is None or not isinstance(value, str) or found(pattern, value)


def _items_fit(item: Any, value: Any) -> bool:
    if item is None or not isinstance(value, list):
        return True
    measure = fits if is_rule(item) else fields_fit
    return all(measure(item, one) for one in value)


def _fields_fit(fields: Any, value: Any) -> bool:
    return fields is None or not isinstance(value, dict) or fields_fit(fields, value)


def _values_fit(rule: Any, value: Any) -> bool:
    return rule is None or not isinstance(value, dict) or all(fits(rule, one) for one in value.values())


TESTS: Mapping[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "allowed": ("allowed", allows),
    "min": ("range", at_least),
    "max": ("range", at_most),
    "exclusive_min": ("range", _above),
    "exclusive_max": ("range", _below),
    "min_len": ("length", _long_enough),
    "max_len": ("length", _short_enough),
    "pattern": ("pattern", _matches),
}
_ALL_TESTS: Mapping[str, Callable[[Any, Any], bool]] = {
    **{key: test for key, (_, test) in TESTS.items()},
    "item": _items_fit,
    "fields": _fields_fit,
    "values": _values_fit,
}


def fits(rule: Rule, value: object) -> bool:
    """True when a value keeps one rule, nested rules too; may raise for an unreadable rule or an odd value."""
    wanted = rule.get("type", "any")
    if KINDS.get(type(value)) != wanted and not of_type(wanted, value):
        return False
    for key, bound in rule.items():
        test = _ALL_TESTS.get(key)
        if test is not None and not test(bound, value):
            return False
    return True


def fields_fit(fields: Mapping[str, Rule], value: Any) -> bool:
    """True when a value is a dict with exactly the declared keys (optional ones may be absent), each fitting its rule.

    Every yes of a table comes from here, so the commonest rules are read in line and their keys counted off; what is
    left over goes to `fits`. May raise like `fits`.
    """
    if type(value) is not dict and not isinstance(value, dict):
        return False
    present = 0
    for name, rule in fields.items():
        if name not in value:
            if required(rule):
                return False
            continue
        present += 1
        one, wanted = value[name], rule["type"]
        kind = type(one)
        left = len(rule) - 2 if "required" in rule else len(rule) - 1
        if not left:
            if KINDS.get(kind) != wanted and not of_type(wanted, one):
                return False
        elif kind is str and wanted == "str":
            if "allowed" in rule and type(rule["allowed"]) is list:
                if one not in rule["allowed"]:
                    return False
                left -= 1
        elif kind is int and wanted == "int":
            if "min" in rule:
                if not one >= rule["min"]:
                    return False
                left -= 1
            if left and "max" in rule:
                if not one <= rule["max"]:
                    return False
                left -= 1
        elif kind is list and wanted == "list":
            if "max_len" in rule:
                if len(one) > rule["max_len"]:
                    return False
                left -= 1
            if left and "item" in rule and not is_rule(rule["item"]):
                item = rule["item"]
                for row in one:
                    if not fields_fit(item, row):
                        return False
                left -= 1
        if left and not fits(rule, one):
            return False
    return present == len(value)


def _keeps(measure: Callable[[Any, Any], bool], rule: Any, value: object) -> bool:
    try:
        return measure(rule, value)
    except Exception:
        return False


def broken(rule: Any, value: Any, path: Path = ()) -> list[Broken]:
    """Every way in which a value breaks one rule, as (kind, path, rule, value); never raises."""
    found: list[Broken] = []
    try:
        wanted = rule.get("type", "any")
        if KINDS.get(type(value)) != wanted and not of_type(wanted, value):
            return [("type", path, rule, value)]
        found += [(kind, path, rule, value) for kind in broken_kinds(rule, value)]
        if isinstance(value, list) and rule.get("item") is not None:
            item = rule["item"]
            inner, measure = (broken, fits) if is_rule(item) else (broken_fields, fields_fit)
            for index, one in enumerate(value):
                if not _keeps(measure, item, one):
                    found += inner(item, one, (*path, index))
        elif isinstance(value, dict):
            if rule.get("fields") is not None:
                found += broken_fields(rule["fields"], value, path)
            if rule.get("values") is not None:
                for key, one in value.items():
                    found += broken(rule["values"], one, (*path, key_name(key)))
    except Exception:
        found.append(("type", path, rule, value))
    return found


def broken_kinds(rule: Rule, value: object) -> list[str]:
    """The kinds of fault that a value of the right type has itself, nested ones aside, in their order; never raises."""
    kinds: list[str] = []
    for key, bound in rule.items():
        if key in TESTS:
            kind, test = TESTS[key]
            if kind not in kinds and not _keeps(test, bound, value):
                kinds.append(kind)
    return kinds if len(kinds) < 2 else sorted(kinds, key=RANK.__getitem__)


def broken_fields(fields: Any, value: Any, path: Path = ()) -> list[Broken]:
    """Every way in which a value breaks fields: missing keys, extra keys, then each key's own faults; never raises."""
    found: list[Broken] = []
    try:
        if not isinstance(value, dict):
            return [("type", path, {"type": "object"}, value)]
        for name, rule in fields.items():
            if name not in value and required(rule):
                found.append(("missing", (*path, key_name(name)), rule, None))
        for key, one in value.items():
            if key not in fields:
                found.append(("extra", (*path, key_name(key)), fields, one))
        for name, rule in fields.items():
            if name in value:
                one = value[name]
                try:
                    kept = fits(rule, one)
                except Exception:
                    kept = False
                if not kept:
                    found += broken(rule, one, (*path, key_name(name)))
    except Exception:
        found.append(("type", path, fields, value))
    return found


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


_BOUNDS = {"min": ">=", "exclusive_min": ">", "max": "<=", "exclusive_max": "<"}
_LENGTHS = {"min_len": "a length of at least", "max_len": "a length of at most"}


def expected(kind: str, rule: Any) -> str:
    """What would have been right where a rule was broken in this way, in one line; never raises."""
    try:
        return _expected(kind, rule) or "a value that the contract can measure"
    except Exception:
        return "a contract that can be read"


def _expected(kind: str, rule: Any) -> str:
    if kind == "extra":
        return f"only {', '.join(rule)}" if rule else "no key at all"
    if kind == "allowed":
        return "one of " + ", ".join([describe(one, 60) for one in itertools.islice(rule["allowed"], 40)])
    if kind in ("range", "length"):
        words = _BOUNDS if kind == "range" else _LENGTHS
        return " and ".join([f"{word} {describe(rule[key])}" for key, word in words.items() if rule.get(key) is not None])
    if kind == "pattern":
        return f"a text that matches {describe(rule['pattern'], 200)}"
    wanted = rule.get("type", "any")
    return str.__str__(wanted) if isinstance(wanted, str) else " or ".join(wanted)
