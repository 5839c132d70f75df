"""A table of rules laid out in rows for measuring, for as long as the table is what they were laid out from.

A table may be edited at any time and counts as it stands, so the rows are kept beside a copy of it and a look whether both
are still equal. Rows hold what nearly every table is made of; for the rest, and for every odd value, the rule itself is read.
"""

from __future__ import annotations

from typing import Any

import attrs

from fsm_agent.core.rules import is_rule
from fsm_agent.core.storable import SMALL, small_copy
from fsm_agent.core.table_faults import deciding

_KINDS = {"str": str, "int": int, "float": float, "bool": bool, "list": list, "object": dict, "dict": dict, "null": type(None)}
_NOTES = frozenset({"type", "required", "description", "default"})
_FIGURES = frozenset({int, float, type(None)})
# What an argument's row says: its name, exact type (None: read the rule), options, and bounds.
ArgumentRow = tuple[str, "type[Any] | None", "list[str] | None", Any, Any]
# What a row of a result says: its name, exact type, bounds, longest list, and the rows of a list's items.
ResultRow = tuple[str, "type[Any] | None", Any, Any, Any, "ResultPlan | None"]


@attrs.define(slots=True)
class ArgumentsPlan:
    """The rows of a table of arguments, in its order, and the copy that tells whether it was edited."""

    like: dict[str, Any]
    order: list[str]
    rows: list[ArgumentRow]


@attrs.define(slots=True)
class ResultPlan:
    """The rows of a table of a result, the names of its lists, and the copy that tells whether it was edited."""

    like: dict[str, Any]
    rows: list[ResultRow]
    lists: list[str]


def arguments_plan(spec: Any) -> ArgumentsPlan:
    """Lay out a table of arguments; raises where it holds what cannot be copied and compared."""
    like = _copied(spec)
    return ArgumentsPlan(like, [*like], [_argument_row(name, rule) for name, rule in like.items()])


def result_plan(spec: Any) -> ResultPlan:
    """Lay out a table of a result; raises where it holds what cannot be copied and compared."""
    return _result_plan(_copied(spec))


def planned_reason(plan: ResultPlan, value: Any) -> str | None:
    """``too_big`` or ``range``, an empty text where the value keeps the table, or None where that takes a closer look.

    Raises KeyError for a value of as many keys that lacks one, which takes a closer look too.
    """
    if type(value) is not dict or len(value) != len(plan.rows):
        return None
    worst = ""
    for name, kind, low, high, most, item in plan.rows:
        one = value[name]
        if type(one) is not kind:
            return None
        if kind is list:
            if most is not None and len(one) > most:
                worst = "too_big"
            if item is not None:
                for part in one:
                    inner = planned_reason(item, part)
                    if inner is None:
                        return None
                    if inner and worst != "too_big":
                        worst = inner
        elif (low is not None and not one >= low) or (high is not None and not one <= high):
            worst = worst or "range"
    return worst


def _copied(spec: Any) -> dict[str, Any]:
    made: dict[str, Any] = small_copy(spec, [SMALL])
    if type(made) is not dict or not all(type(rule) is dict for rule in made.values()):
        raise TypeError("only a dict of dicts is laid out")
    return made


def _argument_row(name: str, rule: dict[str, Any]) -> ArgumentRow:
    kind = _KINDS.get(rule["type"]) if type(rule.get("type")) is str else None
    more = rule.keys() - _NOTES
    if kind is str and more == {"allowed"}:
        options = rule["allowed"]
        if type(options) is list and all(type(option) is str for option in options):
            return name, kind, options, None, None
    elif kind is not None and (not more or (_measures(kind) and more <= {"min", "max"} and _bounded(rule))):
        return name, kind, None, rule.get("min"), rule.get("max")
    return name, None, None, None, None


def _result_plan(like: dict[str, Any]) -> ResultPlan:
    return ResultPlan(like, [_result_row(name, rule) for name, rule in like.items()], _lists(like))


def _result_row(name: str, rule: dict[str, Any]) -> ResultRow:
    kind = _KINDS.get(rule["type"]) if type(rule.get("type")) is str else None
    more = rule.keys() - _NOTES
    if kind is list and more <= {"max_len", "item"}:
        most, item = rule.get("max_len"), rule.get("item")
        simple = item is None or (type(item) is dict and not is_rule(item) and all(type(inner) is dict for inner in item.values()))
        if simple and type(most) in _FIGURES:
            return name, kind, None, None, most, None if item is None else _result_plan(item)
    elif kind is not None and (not more or (_measures(kind) and more <= {"min", "max"} and _bounded(rule))):
        return name, kind, rule.get("min"), rule.get("max"), None, None
    return name, None, None, None, None, None


def _lists(like: dict[str, Any]) -> list[str]:
    return [name for name, rule in deciding(like).items() if rule.get("type") == "list"]


def _measures(kind: type[Any]) -> bool:
    return kind is int or kind is float


def _bounded(rule: dict[str, Any]) -> bool:
    return type(rule.get("min")) in _FIGURES and type(rule.get("max")) in _FIGURES
