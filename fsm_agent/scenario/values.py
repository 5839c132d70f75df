"""Values that JSON cannot hold, as scenario files write them, and templates that are filled in when they are used."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import difflib
import json
import re
import threading
from collections.abc import Mapping
from typing import Any

import attrs

NULL = "$null"
SPECIAL = ("$float", "$int", "$bytes", "$set", "$object", "$repeat")
# A typing error in one of these would otherwise be an ordinary object.
_NEAR = 0.7
_LONGEST = 10_000_000
# What is repeated may be long itself.
_MOST_IN_ALL = 100_000_000
_MOST_BITS = 4_000_000
_ARGUMENT = re.compile(r"\$\{\s*args\.([^{}.]*)[^{}]*\}")
_TEMPLATE = re.compile(r"\$\{([^{}]*)\}")


class BadValue(Exception):
    """A special value that cannot be read; the message says which and why."""


@attrs.frozen
class Arg:
    """``{"$arg": "x"}``: the argument of that name that the body got, with its type."""

    name: str


class Unsavable:
    """``{"$object": null}``: an instance that no saved run can hold."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unsavable)

    def __hash__(self) -> int:
        return 0

    def __reduce__(self) -> Any:
        raise TypeError("this instance cannot be copied or saved")


def with_nulls(value: Any, place: tuple[str, ...] = ()) -> Any:
    """A document with null wherever ``{"$null": true}`` stands, which TOML needs; raises BadValue, with the place, for another one.

    The innermost come first, so that ``{"$object": {"$null": true}}`` is ``{"$object": null}``.
    """
    if isinstance(value, list):
        return [with_nulls(one, (*place, str(n))) for n, one in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if value.keys() == {NULL}:
        if value[NULL] is not True:
            where = "/".join(place) or "the file"
            raise BadValue(f'{where}: {{"$null"}} takes true, not {json.dumps(value[NULL], default=str)[:60]}')
        return None
    return {key: with_nulls(one, (*place, key)) for key, one in value.items()}


def decoded(value: Any, *, in_body: bool = False) -> Any:
    """A value with its special forms read; raises BadValue for one that is none.

    ``{"$arg": "x"}`` is read in bodies only, as an `Arg`. An object of one key that begins with ``$`` and is none of the forms
    is an ordinary object, unless it is a typing error of one of them.
    """
    if isinstance(value, list):
        return [decoded(one, in_body=in_body) for one in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        key, inner = next(iter(value.items()))
        if key == "$arg":
            return _arg(inner, in_body)
        if key in SPECIAL:
            return _special(key, inner, in_body)
        if len(key) > 4 and key.startswith("$") and (near := difflib.get_close_matches(key, (*SPECIAL, NULL, "$arg"), 1, _NEAR)):
            raise BadValue(f"unknown key {key!r}; did you mean {near[0]!r}?")
    elif beside := next((key for key in (*SPECIAL, "$arg") if key in value and not isinstance(value[key], dict)), None):
        # ``{"$set": {...}, "$inc": {...}}`` is what databases take, and no value of ours.
        raise BadValue(f"{beside!r} stands alone in its object; beside it there is {next(key for key in value if key != beside)!r}")
    return {key: decoded(one, in_body=in_body) for key, one in value.items()}


def _arg(name: Any, in_body: bool) -> Arg:
    if not in_body:
        raise BadValue('{"$arg"} stands for an argument of a body, and this is no body')
    if not isinstance(name, str):
        raise BadValue(f'{{"$arg"}} takes the name of an argument, not a {type(name).__name__}')
    return Arg(name)


def _special(key: str, inner: Any, in_body: bool) -> Any:
    if key == "$float":
        if inner not in ("nan", "inf", "-inf"):
            raise BadValue(f'{{"$float"}} takes "nan", "inf" or "-inf", not {json.dumps(inner, default=str)[:60]}')
        return float(inner)
    if key == "$int":
        return whole(inner)
    if key == "$bytes":
        try:
            return base64.b64decode(inner, validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise BadValue('{"$bytes"} takes a text in base64') from None
    if key == "$set":
        if not isinstance(inner, list):
            raise BadValue('{"$set"} takes a list')
        try:
            return set(decoded(inner, in_body=in_body))
        except TypeError:
            raise BadValue('{"$set"} takes a list of values that a set can hold (no lists, no objects)') from None
    if key == "$repeat":
        return _repeated(inner, in_body)
    if inner is None:
        return Unsavable()
    if not isinstance(inner, dict):
        raise BadValue('{"$object"} takes an object of fields, or null')
    return instance(decoded(inner, in_body=in_body))


def _repeated(inner: Any, in_body: bool) -> Any:
    if not isinstance(inner, list) or len(inner) != 2 or type(inner[1]) is not int or inner[1] < 0:
        raise BadValue('{"$repeat"} takes a value and a whole number from 0')
    value, times = decoded(inner[0], in_body=in_body), inner[1]
    if times * (len(value) if isinstance(value, str) else 1) > _LONGEST:
        raise BadValue(f'{{"$repeat"}} makes more than {_LONGEST} characters or items')
    if times * _size(value, {}) > _MOST_IN_ALL:
        raise BadValue(f'{{"$repeat"}} makes more than {_MOST_IN_ALL} characters and items in all')
    return value * times if isinstance(value, str) else [value] * times


def _size(value: Any, known: dict[int, int]) -> int:
    """How many characters and items a value has in all; what is repeated in it is measured once."""
    if isinstance(value, str):
        return len(value) or 1
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        known[id(value)] = 1 + sum([_size(one, known) for one in (value.values() if isinstance(value, dict) else value)])
    return known[id(value)]


def instance(fields: Mapping[str, Any]) -> Any:
    """An instance of a class with these fields."""
    names = [name for name in fields if name.isidentifier()]
    made = dataclasses.make_dataclass("Thing", [(name, Any, None) for name in names])
    one = made(**{name: fields[name] for name in names})
    for name in fields.keys() - set(names):
        setattr(one, name, fields[name])
    return one


def whole(text: Any) -> int:
    """A whole number out of digits, ``+``, ``-``, ``*`` and ``**`` (``2**64 - 1``); raises BadValue."""
    parts = re.findall(r"\*\*|[*+-]|\d+|\S", text) if isinstance(text, str) else []
    total, sign, at = 0, 1, 0
    try:
        while at < len(parts):
            while at < len(parts) and parts[at] in "+-":
                sign, at = (-sign if parts[at] == "-" else sign), at + 1
            value, at = _power(parts, at)
            while at < len(parts) and parts[at] == "*":
                factor, at = _power(parts, at + 1)
                value *= factor
            total, sign = total + sign * value, 1
            if at < len(parts) and parts[at] not in ("+", "-"):
                raise IndexError
        if not parts or total.bit_length() > _MOST_BITS or parts[-1] in ("+", "-"):
            raise IndexError
        return total
    except (IndexError, ValueError):
        raise BadValue(f'{{"$int"}} takes a text such as "2**64", not {json.dumps(text, default=str)[:60]}') from None


def _power(parts: list[str], at: int) -> tuple[int, int]:
    if not parts[at].isdigit():
        raise ValueError(parts[at])
    base, at = int(parts[at]), at + 1
    if at < len(parts) and parts[at] == "**":
        exponent, at = _power(parts, at + 1)
        if base.bit_length() * exponent > _MOST_BITS:
            raise ValueError("too large")
        return base**exponent, at
    return base, at


def filled(value: Any, names: Mapping[str, Any], wants: Any = None) -> Any:
    """A value with its templates and arguments filled in; what it does not know stays as it is.

    ``${args.x}`` looks `x` up in the value of `args`. A text that is exactly one template becomes the value itself where
    `wants`, a JSON Schema, asks for its type; everywhere else it becomes text, a number in its JSON form.
    """
    if isinstance(value, Arg):
        args = names.get("args")
        return args.get(value.name) if isinstance(args, Mapping) else None
    if isinstance(value, str):
        whole_text = _TEMPLATE.fullmatch(value)
        if whole_text and (found := _look_up(whole_text[1], names)) is not _MISSING and _wanted(found, wants):
            return found
        return _TEMPLATE.sub(lambda one: _shown(one, names), value)
    if isinstance(value, list):
        items = wants.get("items") if isinstance(wants, Mapping) else None
        return [filled(one, names, items) for one in value]
    if type(value) is set:
        return {filled(one, names) for one in value}
    if type(value) is dict:
        parts = wants.get("properties") if isinstance(wants, Mapping) else None
        parts = parts if isinstance(parts, Mapping) else {}
        return {filled(key, names): filled(one, names, parts.get(key)) for key, one in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return instance({key: filled(one, names) for key, one in vars(value).items()})
    return value


_MISSING = object()


def arguments_in(value: Any) -> frozenset[str]:
    """The names of the arguments that a body's values ask for, as ``${args.x}`` or ``{"$arg": "x"}``."""
    if isinstance(value, Arg):
        return frozenset({value.name})
    if isinstance(value, str):
        return frozenset(found[1].strip() for found in _ARGUMENT.finditer(value))
    if isinstance(value, Mapping):
        return arguments_in([*value, *value.values()])
    if isinstance(value, list | set):
        return frozenset().union(*map(arguments_in, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return arguments_in(vars(value))
    return frozenset()


def _look_up(path: str, names: Mapping[str, Any]) -> Any:
    found: Any = names
    for step in path.strip().split("."):
        if isinstance(found, Mapping) and step in found:
            found = found[step]
        elif isinstance(found, list) and step.isdigit() and int(step) < len(found):
            found = found[int(step)]
        else:
            return "" if path.strip().startswith("args.") and "args" in names else _MISSING
    return found


def _shown(template: re.Match[str], names: Mapping[str, Any]) -> str:
    found = _look_up(template[1], names)
    if found is _MISSING:
        return template[0]
    if isinstance(found, str):
        return found
    try:
        return json.dumps(found, ensure_ascii=False, default=str)
    except (TypeError, ValueError):
        return str(found)


_TYPES = {bool: "boolean", int: "integer", float: "number", list: "array", dict: "object", type(None): "null"}


def _wanted(value: Any, schema: Any) -> bool:
    """Whether a schema asks for the type of a value that is no text."""
    if isinstance(value, str) or not isinstance(schema, Mapping):
        return False
    wanted = schema.get("type")
    kinds = {wanted} if isinstance(wanted, str) else set(wanted) if isinstance(wanted, list) else set()
    own = _TYPES.get(type(value), "")
    return own in kinds or (own == "integer" and "number" in kinds)
