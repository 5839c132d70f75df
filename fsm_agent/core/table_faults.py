"""Arguments and results measured by a table: the first reason why they break it, and every fault with its place.

The words are those of `contracts`. The table is read anew each time, so one that is edited in place counts at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fsm_agent.core.json_kinds import describe, is_number, key_name
from fsm_agent.core.rules import (
    RANK,
    Broken,
    Rule,
    broken,
    broken_fields,
    expected,
    fields_fit,
    first_kind,
    fits,
    required,
)
from fsm_agent.core.values import Fault, new_fault

# The list of a result that holds what was found; others beside it are notes.
ROWS = "rows"
RESULT_RANK: Mapping[str, int] = {"shape": 0, "empty": 1, "too_big": 2, "range": 3}


def argument_fault(spec: Mapping[str, Rule] | None, args: object) -> str:
    """The first reason why arguments break a table, or an empty text; never raises. None takes any mapping.

    A table edited into something unreadable is broken by every value: the argument's reason, or ``type:args``.
    """
    try:
        if not isinstance(args, Mapping):
            return "type:args"
        if spec is None:
            return ""
        if amiss := missing_or_extra(spec, args):
            return amiss
        for name, rule in spec.items():
            if name in args and not fits(rule, args[name]):
                return f"{first_kind(rule, args[name], (name,))}:{name}"
    except Exception:  # what raised is told apart below, one argument at a time
        pass
    found = _broken_arguments(spec, args)
    return argument_reason(found[0]) if found else ""


def missing_or_extra(spec: Mapping[str, Rule], args: Mapping[str, Any]) -> str:
    """The first argument that is missing, else the first that the table does not know, else an empty text; may raise."""
    for name, rule in spec.items():
        if name not in args and required(rule):
            return f"missing:{name}"
    for key in args:
        if key not in spec:
            return f"extra:{key_name(key)}"
    return ""


def argument_faults(spec: Mapping[str, Rule] | None, args: object) -> tuple[Fault, ...]:
    """Every fault of arguments against a table, in the order of `argument_fault`; never raises."""
    return told_faults(_broken_arguments(spec, args))


def told_faults(found: Iterable[Broken]) -> tuple[Fault, ...]:
    """What breaks a table of arguments, as faults in the order given."""
    return tuple([_fault(argument_reason(one), one) for one in found])


def argument_reason(one: Broken) -> str:
    """The word of a broken rule with the argument that it belongs to."""
    kind, path = one[:2]
    return f"{kind}:{path[0] if path else 'args'}"


def _broken_arguments(spec: Mapping[str, Rule] | None, args: object) -> list[Broken]:
    try:
        if type(args) is not dict and not isinstance(args, Mapping):
            return [("type", (), {"type": "object"}, args)]
        if spec is None:
            return []
        found = broken_fields(spec, args if isinstance(args, dict) else dict(args))
        return in_argument_order(found, spec) if len(found) > 1 else found
    except Exception:
        return [("type", (), spec, args)]


def in_argument_order(found: Iterable[Broken], names: Iterable[str]) -> list[Broken]:
    """Faults in the order in which they are told: missing arguments, extra ones, then by argument and kind."""
    place = {name: index for index, name in enumerate(names)}

    def key(one: Broken) -> tuple[int, int, int]:
        kind, path = one[:2]
        rank, index = RANK[kind], place.get(str(path[0]), len(place)) if path else -1
        return (rank, index, 0) if len(path) == 1 and rank < RANK["type"] else (RANK["type"], index, rank)

    return sorted(found, key=key)


def _fault(reason: str, one: Broken) -> Fault:
    kind, path, rule, value = one
    # What an unknown key holds says nothing of what would be right, and may be taken for an example.
    got = "nothing" if kind == "missing" else "" if kind == "extra" else describe(value)
    return new_fault(reason, path, expected(kind, rule), got)


def result_fault(spec: Mapping[str, Rule] | None, value: object, empty_ok: bool = False) -> str:
    """The first reason why a result breaks a table, or an empty text; never raises. None takes anything.

    ``empty``: the table declares a list ``rows`` at its top, and that is empty; where it declares other lists only, all that
    came are. A ``min_len`` of 0 says that a list may be empty.
    """
    if spec is None:
        return ""
    try:
        if fields_fit(spec, value):
            return "" if empty_ok or not empty_lists(spec, value) else "empty"
    except Exception:  # what raised, or takes a closer look, is told apart below
        pass
    reasons = {_result_reason(one) for one in broken_fields(spec, value)}
    if empty_ok:
        reasons.discard("empty")
    elif "shape" not in reasons and _nothing_found({"fields": spec}, value):
        return "empty"
    return min(reasons, key=RESULT_RANK.__getitem__, default="")


def result_faults(spec: Mapping[str, Rule] | None, value: object, empty_ok: bool = False) -> tuple[Fault, ...]:
    """Every fault of a result against a table, in the order of `result_fault`; never raises."""
    return () if spec is None else value_faults({"type": "object", "fields": spec}, value, empty_ok)


def value_fault(rule: Rule, value: object, empty_ok: bool = False) -> str:
    """The first reason why a result of any type breaks one rule, or an empty text; never raises."""
    found = _broken_result(rule, value, empty_ok)
    return found[0][0] if found else ""


def value_faults(rule: Rule, value: object, empty_ok: bool = False) -> tuple[Fault, ...]:
    """Every fault of a result of any type against one rule; never raises."""
    return tuple(_fault(reason, one) for reason, one in _broken_result(rule, value, empty_ok))


def _broken_result(rule: Rule, value: object, empty_ok: bool) -> list[tuple[str, Broken]]:
    found = [(_result_reason(one), one) for one in broken(rule, value)]
    if empty_ok:
        found = [pair for pair in found if pair[0] != "empty"]
    else:
        told = {one[1] for reason, one in found if reason == "empty"}
        found += [("empty", one) for one in _nothing_found(rule, value) if one[1] not in told]
    return sorted(found, key=lambda pair: RESULT_RANK[pair[0]])


def _result_reason(one: Broken) -> str:
    kind, _, rule, value = one
    try:
        if kind == "length" and isinstance(value, list):
            most = rule.get("max_len")
            if is_number(most) and len(value) > most:
                return "too_big"
            return "shape" if value else "empty"
    except Exception:  # a list of another class that cannot even be counted
        return "shape"
    return "range" if kind == "range" else "shape"


def _nothing_found(rule: Rule, value: Any) -> list[Broken]:
    try:
        fields = rule.get("fields")
        if fields is not None and isinstance(value, dict):
            return [("length", (name,), {"min_len": 1}, []) for name in empty_lists(fields, value)]
        if value == [] and isinstance(value, list) and _declares_list(rule) and rule.get("min_len") != 0:
            return [("length", (), {"min_len": 1}, [])]
    except Exception:  # an unreadable rule has been told as a fault of its own
        pass
    return []


def _declares_list(rule: Rule) -> bool:
    wanted = rule.get("type")
    return wanted == "list" or (isinstance(wanted, list | tuple) and "list" in wanted)


def deciding(fields: Mapping[str, Rule]) -> Mapping[str, Rule]:
    """The rules of the lists that say whether anything was found: of ``rows`` alone where that is one, else of all."""
    rows = fields.get(ROWS)
    return {ROWS: rows} if rows is not None and _declares_list(rows) else fields


def empty_lists(fields: Mapping[str, Rule], value: Any) -> list[str]:
    """The lists of a value that are empty and may not be, where all of those that decide are."""
    if value.get(ROWS) is not None:
        fields = deciding(fields)
    empty: list[str] = []
    for name, rule in fields.items():
        one = value.get(name)
        if isinstance(one, list) and _declares_list(rule):
            if one:
                return []
            if rule.get("min_len") != 0:
                empty.append(name)
    return empty
