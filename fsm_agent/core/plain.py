"""Plain values and their lossless, strict JSON text; what is plain `storable` says, the tags `json_tags`.

A dict that could be taken for a tag, or has keys that are no text, is ``{"$dict": [key, value, key, value, ...]}``.
"""

from __future__ import annotations

import json
import re
from enum import Enum
from math import isfinite, isinf
from typing import Any, Final

from fsm_agent.core.errors import SavedRunError
from fsm_agent.core.json_tags import DECODED, ENCODED, escaped
from fsm_agent.core.short_text import EnumName, cut, enum_name, opaque_text, printable, short, type_name
from fsm_agent.core.small_json import is_small_json, is_unicode
from fsm_agent.core.storable import (
    CONTAINERS,
    FREE_SHARED,
    LEAVES,
    OPAQUE,
    SHARED_FOR_NEW,
    plain_copy,
    storable,
    unwrap,
)

__all__ = [
    "CONTAINERS",
    "LEAVES",
    "OPAQUE",
    "EnumName",
    "cut",
    "dumps",
    "enum_name",
    "from_json",
    "loads",
    "opaque_text",
    "plain_copy",
    "short",
    "storable",
    "to_json",
    "type_name",
    "unwrap",
]

# A run puts a stored value some levels down in a larger whole, which must still be saved.
_MAX_SAVED_DEPTH: Final = 240
_NO_STACK: Final = "nests deeper than the stack allows from here"


class _Refused(Exception):
    """Why a value has no JSON form, or JSON no value; `steps` leads to the place, the innermost first."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps: list[str] = []

    def at(self, where: str) -> SavedRunError:
        place = "/".join([where, *reversed(self.steps)])
        return SavedRunError(f"{place if len(place) <= 300 else place[:299] + '…'}: {self.reason}")


class _Bad:
    """What the JSON reader leaves where the text is no strict JSON, so that the walk can say where it stands."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


def _step(key: object) -> str:
    return printable(key[:60]) if type(key) is str else short(key, 60)


class _Encoding:
    """One walk of `to_json`."""

    __slots__ = ("met", "shared")

    def __init__(self) -> None:
        self.met: set[int] = set()
        self.shared = -FREE_SHARED

    def of(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is str:
            return value if value.isascii() or is_unicode(value) else {"$str": escaped(value)}
        if value is None or kind is bool:
            return value
        if kind is int:
            # Beyond 64 bits many readers of JSON round, and Python's own refuses 4301 digits.
            return value if -(2**63) <= value < 2**63 else {"$int": hex(value)}
        if kind is float:
            return value if isfinite(value) else {"$float": repr(value)}
        if kind in CONTAINERS:
            return self.filled(value, kind, depth)
        if (row := ENCODED.get(kind)) is not None:
            try:
                payload = row[1](value)
            except Exception as error:
                raise _Refused(f"this {kind.__name__} cannot be saved ({type(error).__name__})") from None
            return {row[0]: [self.of(x, depth) for x in payload] if type(payload) is list else self.of(payload, depth)}
        if issubclass(kind, Enum):
            plain = unwrap(value)
            return self.of(enum_name(value) if plain is value else plain, depth)
        raise _Refused(
            f"a {kind.__name__} cannot be saved (its type is {type_name(kind)}); save its storable() form, or keep it"
            " in the caller's context, which is never saved"
        )

    def filled(self, value: Any, kind: type, depth: int) -> Any:
        if depth >= _MAX_SAVED_DEPTH:
            raise _Refused(f"nests deeper than {_MAX_SAVED_DEPTH} levels or holds itself, which cannot be saved")
        self.shared += len(value) if id(value) in self.met else -SHARED_FOR_NEW * len(value)
        if self.shared > 0:
            raise _Refused("shared references would blow this up to over ten times its size")
        self.met.add(id(value))
        if kind is dict:
            return self.entries(value, depth + 1)
        made: list[Any] = []
        try:
            for item in value:
                made.append(self.of(item, depth + 1))
        except _Refused as refused:
            refused.steps.append(str(len(made)))
            raise
        if kind is list:
            return made
        if kind is not tuple:
            # Text hashes differ from run to run; equal sets must give equal texts.
            made.sort(key=json.dumps)
        return {f"${kind.__name__}": made}

    def entries(self, value: dict[Any, Any], depth: int) -> Any:
        made: dict[str, Any] = {}
        flat: list[Any] = []
        key: Any = None
        try:
            if all(type(key) is str and key[:1] != "$" and is_unicode(key) for key in value):
                for key, item in value.items():
                    made[key] = self.of(item, depth)
                return made
            for key, item in value.items():
                flat += self.of(key, depth), self.of(item, depth)
        except _Refused as refused:
            refused.steps.append(_step(key))
            raise
        return {"$dict": flat}


def to_json(value: object, where: str = "value") -> Any:
    """Return a storable value as strict JSON data, from which `from_json` makes it again, equal and of its types.

    Enum members that are a str or a number are written as that. Raises SavedRunError with the place (`where`, then keys
    and indexes) and the type for what cannot be saved.
    """
    try:
        return _Encoding().of(value, 0)
    except _Refused as refused:
        raise refused.at(where) from None
    except RecursionError:
        raise SavedRunError(f"{where}: {_NO_STACK}") from None
    except Exception as error:
        raise SavedRunError(f"{where}: cannot be saved ({type(error).__name__}: {short(str(error))})") from error


def _decoded(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None or (kind is float and isfinite(value)):
        return value
    if depth > 2 * _MAX_SAVED_DEPTH:
        raise _Refused("nests too deep for a saved value")
    if kind is list:
        items: list[Any] = []
        try:
            for item in value:
                items.append(_decoded(item, depth + 1))
        except _Refused as refused:
            refused.steps.append(str(len(items)))
            raise
        return items
    if kind is not dict:
        raise _Refused(value.reason if kind is _Bad else f"{short(value)} is no JSON")
    made: dict[str, Any] = {}
    key: Any = None
    try:
        for key, item in value.items():
            if type(key) is not str:
                raise _Refused("a key that is no text is no JSON")
            if key[:1] != "$":
                made[key] = _decoded(item, depth + 1)
            elif len(value) == 1:
                return _built(key, _decoded(item, depth + 1))
            else:
                raise _Refused("a tag stands alone in its object; a dict with such a key is written as $dict")
    except _Refused as refused:
        refused.steps.append(_step(key))
        raise
    return made


def _built(tag: str, payload: Any) -> Any:
    shape, build = DECODED.get(tag, (object, None))
    if build is None:
        raise _Refused(f"unknown tag; known are {' '.join(DECODED)}")
    if type(payload) is shape:
        try:
            return build(payload)
        except (ValueError, TypeError, ArithmeticError, LookupError):
            pass
    raise _Refused(f"{short(payload)} is no content of {tag}")


def from_json(value: object, where: str = "value") -> Any:
    """Return the value that `to_json` wrote; nothing named in the data is imported or called.

    Raises SavedRunError with the place for an unknown tag, a tag with wrong content, and what is no JSON data.
    """
    try:
        return _decoded(value, 0)
    except _Refused as refused:
        raise refused.at(where) from None
    except RecursionError:
        raise SavedRunError(f"{where}: {_NO_STACK}") from None


_WRITER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"))


def dumps(value: object, where: str = "value") -> str:
    """Return a storable value as one line of strict JSON, writable as UTF-8; raises SavedRunError as `to_json` does."""
    try:
        return _WRITER.encode(value if is_small_json(value) else to_json(value, where))
    except RecursionError:
        raise SavedRunError(f"{where}: {_NO_STACK}") from None
    except RuntimeError as error:
        raise SavedRunError(f"{where}: cannot be saved, it changed meanwhile ({error})") from None


def _entries(pairs: list[tuple[str, Any]]) -> Any:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    names = [name for name, _ in pairs]
    return _Bad(f"the key {short(next(name for name in names if names.count(name) > 1), 60)} stands twice")


def _number(text: str) -> Any:
    try:
        number: Any = float(text) if set(text) & set(".eE") else int(text)
    except ValueError:
        return _Bad(f"a number of {len(text)} digits is too long")
    return _Bad(f"the number {text} is too large") if type(number) is float and isinf(number) else number


_READER: Final = json.JSONDecoder(
    object_pairs_hook=_entries,
    parse_constant=lambda name: _Bad(f"{name} is no JSON"),
    parse_float=_number,
    parse_int=_number,
)


def loads(text: object, where: str = "value") -> Any:
    """Return the value whose text `dumps` wrote.

    Raises SavedRunError, with the place, for a text that is no strict JSON (NaN, a key that stands twice, a number out
    of range, anything after the end), nests too deep, or holds an unknown tag.
    """
    if type(text) is not str:
        raise SavedRunError(f"{where}: a saved value is a text (str), not a {type(text).__name__}")
    try:
        read = _READER.decode(text)
    except ValueError as error:
        raise SavedRunError(f"{where}: no JSON text: {short(str(error))[1:-1]}; it begins {short(text, 40)}") from None
    except RecursionError:
        raise SavedRunError(f"{where}: {_deep_place(text)}") from None
    return from_json(read, where)


def _deep_place(text: str) -> str:
    depth = 0
    for found in re.finditer(r'"(?:[^"\\]|\\.)*"|[\[{\]}]', text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
        if depth > 2 * _MAX_SAVED_DEPTH:
            return f"the text nests too deep, at character {found.start()}"
    return _NO_STACK
