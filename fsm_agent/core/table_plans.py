"""A table of rules written out as a function that measures by it, for as long as the table is what it was written from.

A table may be edited at any time and counts as it stands, so the function is kept beside a copy of the table and a look whether
both are still equal. It holds what nearly every table is made of; for the rest, and for every odd value, the rule itself is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from fsm_agent.core.generated import written
from fsm_agent.core.rules import Broken, Rule, broken, first_kind, fits, is_rule
from fsm_agent.core.storable import SMALL, small_copy, storable
from fsm_agent.core.table_faults import deciding, in_argument_order

_KINDS = {"str": str, "int": int, "float": float, "bool": bool, "list": list, "object": dict, "dict": dict, "null": type(None)}
_NOTES = frozenset({"type", "required", "description", "default"})
_FIGURES = frozenset({int, float, type(None)})
# Lists within lists that are written out; Python nests no more than twenty loops.
_DEEPEST = 10
# What an argument's row says: its name, exact type (None: read the rule), options, and bounds.
ArgumentRow = tuple[str, "type[Any] | None", "list[str] | None", Any, Any]
ArgumentsTest = Callable[[dict[str, Any], Mapping[str, Rule]], str]


@attrs.define
class ArgumentsPlan:
    """The rows of a table of arguments, in its order, and the copy that tells whether it was edited.

    `first` gives the first fault of arguments of which each has a row, in the order of the rows, and an empty text where there is
    none; it takes the table too, for what takes a closer look, and may raise for an odd value. `first_of_some` is the same for
    arguments of which some are absent.
    """

    like: dict[str, Any]
    order: list[str]
    rows: list[ArgumentRow]
    first: ArgumentsTest
    _some: ArgumentsTest | None = None

    def first_of_some(self, args: dict[str, Any], spec: Mapping[str, Rule]) -> str:
        """See the class."""
        if self._some is None:
            self._some = _arguments_test(self.rows, some=True)
        return self._some(args, spec)

    def __reduce__(self) -> tuple[Any, ...]:
        """A function that was written here cannot be pickled, and need not be."""
        return arguments_plan, (self.like,)


@attrs.define
class ResultPlan:
    """What measures a result by a table, the names of its lists, and the copy that tells whether it was edited.

    `measure` gives a copy of a value that nobody else has, and ``too_big``, ``range`` or an empty text where that copy keeps the table;
    or None where it takes a closer look. It raises KeyError for a value of as many keys that lacks one, which takes that too.
    """

    like: dict[str, Any]
    measure: Callable[[Any], tuple[str, Any] | None]
    lists: list[str]

    def __reduce__(self) -> tuple[Any, ...]:
        """See `ArgumentsPlan`."""
        return result_plan, (self.like,)


def arguments_plan(spec: Any) -> ArgumentsPlan:
    """Write out a table of arguments; raises where it holds what cannot be copied and compared."""
    like = _copied(spec)
    rows = [_argument_row(name, rule) for name, rule in like.items()]
    return ArgumentsPlan(like, [*like], rows, _arguments_test(rows, some=False))


def planned_faults(plan: ArgumentsPlan, spec: Mapping[str, Rule], args: dict[str, Any]) -> list[Broken]:
    """Every way in which arguments of exactly its names break the table that was planned, in its order; may raise for an odd value."""
    found: list[Broken] = []
    for name, kind, options, low, high in plan.rows:
        one, rule = args[name], spec[name]
        if type(one) is not kind:
            found += broken(rule, one, (name,))
        elif options is not None:
            if one not in options:
                found.append(("allowed", (name,), rule, one))
        elif (low is not None and not one >= low) or (high is not None and not one <= high):
            found.append(("range", (name,), rule, one))
    return in_argument_order(found, spec) if len(found) > 1 else found


def result_plan(spec: Any) -> ResultPlan:
    """Write out a table of a result; raises where it holds what cannot be copied and compared."""
    like = _copied(spec)
    names: dict[str, Any] = {"storable": storable}
    lines = [' worst = ""', *_value_lines(like, names, "value", 1), " return worst, value"]
    return ResultPlan(like, written("(value)", lines, names), _lists(like))


def _copied(spec: Any) -> dict[str, Any]:
    made: dict[str, Any] = small_copy(spec, [SMALL])
    if type(made) is not dict or not all(type(rule) is dict for rule in made.values()):
        raise TypeError("only a dict of dicts is written out")
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


def _arguments_test(rows: list[ArgumentRow], some: bool) -> ArgumentsTest:
    names: dict[str, Any] = {"fits": fits, "first_kind": first_kind}
    lines: list[str] = []
    for number, (name, kind, options, low, high) in enumerate(rows):
        word, pad = ascii(name), "  " if some else " "
        if some:
            lines.append(f" if {word} in args:")
        # Of a rule that has to be read the type is none that anything has.
        names[f"kind_{number}"] = kind
        lines += [f"{pad}one = args[{word}]", f"{pad}if type(one) is not kind_{number}:"]
        closer = f"first_kind(spec[{word}], one, ({word},)) + {':' + name!a}"
        lines.append(f"{pad} if not fits(spec[{word}], one): return {closer}")
        if options is not None:
            names[f"options_{number}"] = options
            lines.append(f"{pad}elif one not in options_{number}: return {'allowed:' + name!a}")
        elif outside := _outside("one", low, high, names):
            lines.append(f"{pad}elif {outside}: return {'range:' + name!a}")
    return written("(args, spec)", [*lines, ' return ""'], names)


def _value_lines(like: dict[str, Any], names: dict[str, Any], value: str, depth: int) -> list[str]:
    """The lines that copy one mapping and measure it by its rules, so many loops down; figures and texts are shared."""
    pad = " " * depth
    lines = [
        f"{pad}if type({value}) is not dict or len({value} := {value}.copy()) != {len(like)}: return None",
        f"{pad}for key in {value}:",
        f"{pad} if type(key) is not str: return None",
    ]
    for name, rule in like.items():
        one, kind = f"one_{depth}", _result_kind(rule)
        if kind is None or depth > _DEEPEST:
            return [f"{pad}return None"]
        names[f"kind_{rule['type']}"] = kind
        lines += [f"{pad}{one} = {value}[{name!a}]", f"{pad}if type({one}) is not kind_{rule['type']}: return None"]
        if kind is list and rule.get("item") is not None:
            part, made = f"part_{depth}", f"made_{depth}"
            lines += [
                f"{pad}{made} = []",
                f"{pad}for {part} in {one}:",
                *_value_lines(rule["item"], names, part, depth + 1),
                f"{pad} {made}.append({part})",
                f"{pad}{value}[{name!a}] = {one} = {made}",
            ]
        elif kind is list or kind is dict:
            lines.append(f"{pad}{value}[{name!a}] = {one} = storable({one})")
        if kind is list and rule.get("max_len") is not None:
            lines.append(f'{pad}if len({one}) > {_named(rule["max_len"], names)}: worst = "too_big"')
        elif outside := _outside(one, rule.get("min"), rule.get("max"), names):
            lines.append(f'{pad}if {outside}: worst = worst or "range"')
    return lines


def _result_kind(rule: dict[str, Any]) -> type[Any] | None:
    """The exact type of what a rule measures; None where the rule itself has to be read."""
    kind = _KINDS.get(rule["type"]) if type(rule.get("type")) is str else None
    more = rule.keys() - _NOTES
    if kind is list and more <= {"max_len", "item"}:
        most, item = rule.get("max_len"), rule.get("item")
        simple = item is None or (type(item) is dict and not is_rule(item) and all(type(inner) is dict for inner in item.values()))
        return kind if simple and type(most) in _FIGURES else None
    return kind if not more or (kind is not None and _measures(kind) and more <= {"min", "max"} and _bounded(rule)) else None


def _outside(one: str, low: Any, high: Any, names: dict[str, Any]) -> str:
    """The condition that a figure is not within its bounds; NaN is within none."""
    bounds = ((low, ">="), (high, "<="))
    return " or ".join([f"not {one} {sign} {_named(bound, names)}" for bound, sign in bounds if bound is not None])


def _named(figure: Any, names: dict[str, Any]) -> str:
    name = f"figure_{len(names)}"
    names[name] = figure
    return name


def _lists(like: dict[str, Any]) -> list[str]:
    return [name for name, rule in deciding(like).items() if rule.get("type") == "list"]


def _measures(kind: type[Any]) -> bool:
    return kind is int or kind is float


def _bounded(rule: dict[str, Any]) -> bool:
    return type(rule.get("min")) in _FIGURES and type(rule.get("max")) in _FIGURES
