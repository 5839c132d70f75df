"""The tags by which JSON holds the types that it lacks: what each is written as, and how it is read back."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any, Final
from uuid import UUID

from fsm_agent.core.short_text import EnumName
from fsm_agent.core.storable import Plain, zone_key


def escaped(text: str) -> str:
    """The text with backslashes doubled and lone surrogates as ``\\\\uXXXX``, so that it is UTF-8."""
    return text.replace("\\", "\\\\").encode("utf-8", "backslashreplace").decode("utf-8")


def _unescaped(text: str) -> str:
    return re.sub(r"\\(?:u([0-9a-f]{4})|\\)", lambda found: chr(int(found[1], 16)) if found[1] else "\\", text)


def _moment(value: Any) -> list[Any]:
    """Return a datetime or time as its ISO 8601 text, the key of its zone if it has one, and its fold."""
    return [value.isoformat(), zone_key(value.tzinfo), value.fold]


def _placed(value: Any, key: str | None, fold: int) -> Any:
    value = value.replace(fold=fold)
    if key is None:
        return value
    from zoneinfo import ZoneInfo

    try:
        return value.replace(tzinfo=ZoneInfo(key))
    except (LookupError, ValueError, OSError):
        # This machine does not know the zone; the instant is right by its offset.
        return value


def _paired(items: list[Any]) -> dict[Any, Any]:
    made = dict(zip(items[::2], items[1::2], strict=True))
    if 2 * len(made) != len(items):
        raise ValueError("a key stands twice")
    return made


ENCODED: Final[Mapping[type, tuple[str, Plain]]] = {
    bytes: ("$bytes", lambda value: base64.b64encode(value).decode("ascii")),
    bytearray: ("$bytearray", lambda value: base64.b64encode(value).decode("ascii")),
    EnumName: ("$enum", str),
    Decimal: ("$decimal", str),
    Fraction: ("$fraction", lambda value: [value.numerator, value.denominator]),
    complex: ("$complex", lambda value: [value.real, value.imag]),
    UUID: ("$uuid", str),
    datetime: ("$datetime", _moment),
    date: ("$date", date.isoformat),
    time: ("$time", _moment),
    timedelta: ("$timedelta", lambda value: [value.days, value.seconds, value.microseconds]),
    range: ("$range", lambda value: [value.start, value.stop, value.step]),
    PurePosixPath: ("$path", str),
}
DECODED: Final[Mapping[str, tuple[type, Plain]]] = {
    "$str": (str, _unescaped),
    "$int": (str, lambda text: int(text, 16)),
    "$float": (str, {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}.__getitem__),
    "$tuple": (list, tuple),
    "$set": (list, set),
    "$frozenset": (list, frozenset),
    "$dict": (list, _paired),
    "$bytes": (str, lambda text: base64.b64decode(text, validate=True)),
    "$bytearray": (str, lambda text: bytearray(base64.b64decode(text, validate=True))),
    "$enum": (str, EnumName),
    "$decimal": (str, Decimal),
    "$fraction": (list, lambda items: Fraction(*items)),
    "$complex": (list, lambda items: complex(*items)),
    "$uuid": (str, UUID),
    "$datetime": (list, lambda items: _placed(datetime.fromisoformat(items[0]), *items[1:])),
    "$date": (str, date.fromisoformat),
    "$time": (list, lambda items: _placed(time.fromisoformat(items[0]), *items[1:])),
    "$timedelta": (list, lambda items: timedelta(*items)),
    "$range": (list, lambda items: range(*items)),
    "$path": (str, PurePosixPath),
}
