"""Orders read line by line, as strict JSON; a line that is none is told with its number, and the rest goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, Any, NoReturn

import attrs

from fsm_agent.core.short_text import one_line, short

MOST_BYTES = 64 * 1024 * 1024
"""The longest line that is read; of a longer one only the fault is told."""

_BOM = b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


@attrs.frozen(kw_only=True)
class Line:
    """One line that is not blank: its number from 1, its bytes, and its order, or the `error` that says why it is none.

    What is JSON and no object has both: it is handed on, and it is told.
    """

    number: int
    size: int
    order: Any = None
    error: str = ""
    is_json: bool = False


class _NotJson(Exception):
    """Why a text is no strict JSON."""


def read_lines(stream: IO[bytes], most_bytes: int = MOST_BYTES) -> Iterator[Line]:
    """Read the lines of a stream one by one; never more than one of them, and at most `most_bytes` of it, is held."""
    number = 0
    while raw := stream.readline(most_bytes + 1):
        number += 1
        size = len(raw)
        if size > most_bytes:
            while raw and not raw.endswith(b"\n"):
                raw = stream.readline(most_bytes)
                size += len(raw)
            yield Line(number=number, size=size, error=f"the line is longer than {most_bytes} bytes")
            continue
        if number == 1:
            raw = raw.removeprefix(_BOM)
        if raw.strip():
            yield parse_line(number, raw, size)


def parse_line(number: int, raw: bytes, size: int) -> Line:
    """Read one line of UTF-8 JSON; never raises."""
    try:
        text = _text(raw).strip()
        order = _READER.decode(text)
    except _NotJson as error:
        return Line(number=number, size=size, error=f"no JSON: {error}")
    except json.JSONDecodeError as error:
        place = f"column {error.colno}" if error.lineno == 1 else f"line {error.lineno} column {error.colno}"
        return Line(number=number, size=size, error=f"no JSON: {error.msg} at {place}")
    except RecursionError:
        return Line(number=number, size=size, error="no JSON that can be read: it nests too deep")
    if isinstance(order, dict):
        return Line(number=number, size=size, order=order, is_json=True)
    why = f'no order: expected an object such as {{"sku": ...}}, got {one_line(text, 40)}'
    return Line(number=number, size=size, order=order, error=why, is_json=True)


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        hint = "; it looks like UTF-16, save it as UTF-8" if raw.startswith(_UTF_16) else ""
        raise _NotJson(f"byte 0x{raw[error.start]:02x} at position {error.start} is not UTF-8{hint}") from None


def _entries(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in pairs:
        if name in made:
            raise _NotJson(f"the key {short(name, 40)} stands twice")
        made[name] = value
    return made


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise _NotJson(f"a number of {len(text)} digits is too long") from None


def _real(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise _NotJson(f"the number {text[:40]} is too large")
    return number


def _constant(name: str) -> NoReturn:
    raise _NotJson(f"{name} is no JSON number")


_READER = json.JSONDecoder(object_pairs_hook=_entries, parse_int=_whole, parse_float=_real, parse_constant=_constant)
