"""Values that are JSON already: most of what tools return, and what need not be written out by the longer way."""

from __future__ import annotations

from math import isfinite
from typing import Any

from fsm_agent.core.storable import SMALL


def is_unicode(text: str) -> bool:
    """True for a text that UTF-8 can write: one without half of a surrogate pair."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def is_small_json(value: Any) -> bool:
    """True for what strict JSON holds as it stands, without a tag, where that is small; raises RecursionError where no stack is left."""
    return _fits(value, [SMALL])


def _fits(value: Any, room: list[int]) -> bool:
    # What is left of the room bounds depth, cycles and sharing alike.
    kind = type(value)
    if kind is str:
        return value.isascii() or is_unicode(value)
    if kind is not dict and kind is not list:
        return value is None or kind is bool or (kind is int and -(2**63) <= value < 2**63) or (kind is float and isfinite(value))
    room[0] -= len(value) + 10
    if room[0] < 0:
        return False
    # What most items are is seen here, for a call of each would cost more than the look.
    if kind is list:
        for item in value:
            kind = type(item)
            if not ((kind is str and item.isascii()) or (kind is int and -(2**31) < item < 2**31) or _fits(item, room)):
                return False
        return True
    for key, item in value.items():
        if type(key) is not str or key[:1] == "$" or not (key.isascii() or is_unicode(key)):
            return False
        kind = type(item)
        if not ((kind is str and item.isascii()) or (kind is int and -(2**31) < item < 2**31) or _fits(item, room)):
            return False
    return True
