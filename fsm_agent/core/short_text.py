"""Short texts of any value: names of types, one-line descriptions, and long texts cut with a mark."""

from __future__ import annotations

import re
from enum import Enum
from itertools import islice
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Final


class EnumName(str):
    """The text ``module.Class.NAME`` that stands for an enum member after a run was loaded; its key is the member's."""

    __slots__ = ()


def type_name(named: object) -> str:
    """Return ``module.QualName`` of a class or function as printable text, or ``unknown`` where it does not say."""
    try:
        return printable(f"{named.__module__ or 'builtins'}.{named.__qualname__}"[:200])  # type: ignore[attr-defined]
    except Exception:
        return "unknown"


def opaque_text(value: object) -> str:
    """Return ``<module.QualName>``, the text that replaces a value without a plain form; it holds no address."""
    named = issubclass(type(value), type | FunctionType | MethodType | BuiltinFunctionType)
    return f"<{type_name(value if named else type(value))}>"


def enum_name(member: Enum) -> EnumName:
    """Return ``module.Class.NAME`` of an enum member; an unnamed combination of flags is named by its value."""
    return EnumName(f"{type_name(type(member))}.{member._name_ or short(member._value_)}")


def printable(text: str) -> str:
    """The text with every character that does not print escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def short(value: object, limit: int = 200) -> str:
    """Return a one-line description of any value in at most `limit` printable characters; never raises."""
    try:
        text = _brief(value, max(limit, 0) + 1, 4)
    except Exception:
        text = opaque_text(value)
    return one_line(text, limit)


def one_line(text: object, limit: int = 200) -> str:
    """Return a text in one line of at most `limit` printable characters; the rest of it as escapes, and cut by a ``…``."""
    line = printable(str(text)[: max(limit, 0) + 1])
    return line if len(line) <= limit else line[: max(limit - 1, 0)] + "…"[:limit]


_BRACKETS: Final = ((dict, "{", "}"), (list, "[", "]"), (tuple, "(", ")"), (set, "{", "}"), (frozenset, "{", "}"))


def _brief(value: Any, room: int, depth: int) -> str:
    kind = type(value)
    if kind is str or kind is bytes:
        return repr(value[:room])
    if kind is int and value.bit_length() > 1000:
        return f"<int of {value.bit_length()} bits>"
    for base, left, right in _BRACKETS:
        if not issubclass(kind, base):
            continue
        pieces: list[str] = []
        for item in islice(value.items() if base is dict else value, room // 2 + 1 if depth else 0):
            pieces.append(": ".join(_brief(part, room, depth - 1) for part in (item if base is dict else (item,))))
            room -= len(pieces[-1]) + 2
            if room <= 0:
                break
        return f"{left}{', '.join(pieces)}{'…' if len(pieces) < len(value) else ''}{right}"
    # An address differs from run to run and tells nobody anything.
    return re.sub(r" at 0x[0-9a-fA-F]+", "", str(repr(value)))


def said_by(error: BaseException) -> str:
    """``ValueError: no such region``: an exception's type and message, if any, on one line; never raises, whatever its class does."""
    try:
        name = str.__str__(type(error).__name__)
    except Exception:
        name = "Exception"
    try:
        message = short(str.__str__(str(error)))[1:-1]
    except Exception:
        message = "(its message could not be read)"
    return f"{name}: {message}" if message else name


def cut(text: str, limit: int) -> str:
    """Cut a text to `limit` characters, the mark that says the full size included.

    A limit too small for the mark gives the mark alone: a cut is never silent.
    """
    if len(text) <= limit:
        return text
    mark = f"… [cut: {len(text)} characters in all]"
    return text[: max(limit - len(mark), 0)] + mark


def paired(text: str) -> str:
    """The text with halves of a character (surrogates) that stand beside each other put together; a lone one stays."""
    if text.isascii() or not _HALVES.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def first_half(text: str) -> str:
    """The half of a character that a text ends with, whose other half may be the next to come; else an empty text."""
    return text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""


_HALVES: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
