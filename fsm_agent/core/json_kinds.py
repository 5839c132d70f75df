"""What JSON type a Python value has, whether two values are the same JSON, and any value shown in one short line."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

KINDS: Mapping[type, str] = {
    str: "str", int: "int", float: "float", bool: "bool", list: "list", dict: "object", type(None): "null",
}  # fmt: skip
# A table may say `dict` for `object`: it is Python's word, as `str` and `list` are.
ALSO: Mapping[str, str] = {"dict": "object"}
TYPE_NAMES = (*KINDS.values(), "any")
_BASES = ((int, "int"), (str, "str"), (float, "float"), (list, "list"), (dict, "object"))


def kind_of(value: object) -> str:
    """The contract's word for a value's type; empty for what no JSON value is (a tuple, an instance, bytes)."""
    exact = KINDS.get(type(value))
    if exact is not None:
        return exact
    return next((name for base, name in _BASES if isinstance(value, base)), "")


def is_number(value: object) -> bool:
    """True for an int or a float that is no bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def of_type(wanted: object, value: object) -> bool:
    """True when a value has the wanted type: a name, or a list of names of which one fits.

    True and 2.0 are no `int`, True is no `float`, an int is a `float`, a tuple is no `list`, `dict` is `object`. An
    unknown name fits nothing.
    """
    if isinstance(wanted, list | tuple):
        return any(of_type(one, value) for one in wanted)
    kind = kind_of(value)
    if kind == "object" and wanted == "dict":
        return True
    return wanted == "any" or (kind != "" and wanted == kind) or (wanted == "float" and kind == "int")


def same(left: object, right: object) -> bool:
    """True when two values are equal by JSON type and value: True is not 1 and 1.0 is not 1.

    Any depth, also of values that hold themselves; values that cannot be compared are not the same. Never raises.
    """
    pending: list[tuple[Any, Any]] = [(left, right)]
    seen: set[tuple[int, int]] = set()
    try:
        while pending:
            one, other = pending.pop()
            kind = kind_of(one)
            if one is other and kind not in ("list", "object"):
                continue
            if kind != kind_of(other) or not kind:
                return False
            if kind not in ("list", "object"):
                if one != other:
                    return False
            elif (id(one), id(other)) not in seen:
                seen.add((id(one), id(other)))
                if len(one) != len(other):
                    return False
                keys = one.keys() if kind == "object" else range(len(one))
                pending += [(one[key], other[key]) for key in keys]
    except Exception:
        return False
    return True


def describe(value: object, limit: int = 80) -> str:
    """A value in at most `limit` characters, without running code of the value's own; never raises, whatever it is."""
    try:
        kind = type(value)
        # Most are texts and small figures.
        if kind is str:
            text = repr(value[:400])  # type: ignore[index]
        elif kind is int and -(2**63) < value < 2**63:  # type: ignore[operator]
            text = repr(value)
        else:
            text = _short(value, 2)
    except Exception:
        text = "a value that cannot be shown"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def nests_within(value: object, levels: int) -> bool:
    """True when lists and dicts in each other go at most so many levels down; a value that holds itself does not."""
    level: list[Any] = [value]
    for _ in range(levels):
        inner: dict[int, Any] = {}
        for one in level:
            parts = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
            inner |= {id(part): part for part in parts if isinstance(part, dict | list)}
        if not inner:
            return True
        level = list(inner.values())
    return False


def key_name(key: object) -> str:
    """A key as it stands in a path: itself when it is a text, else a short description."""
    return key if isinstance(key, str) else describe(key, 40)


def _short(value: Any, depth: int) -> str:
    kind = type(value)
    if kind is int:
        # Python refuses to write out very long integers, and nobody reads them.
        return repr(value) if value.bit_length() <= 256 else f"an int of {value.bit_length()} bits"
    if kind is str:
        return repr(value[:400])
    if kind in (float, bool, type(None)):
        return repr(value)
    if kind is list:
        parts = [_short(one, depth - 1) for one in value[:8]] if depth else []
        return f"[{', '.join(parts + ['...'] * (len(value) > len(parts)))}]"
    if kind is dict:
        pairs = itertools.islice(value.items(), 8 if depth else 0)
        parts = [f"{_short(key, 0)}: {_short(one, depth - 1)}" for key, one in pairs]
        return f"{{{', '.join(parts + ['...'] * (len(value) > len(parts)))}}}"
    # A metaclass may answer `__name__` with code of its own.
    return f"a value of type {type.__dict__['__name__'].__get__(kind)}"
