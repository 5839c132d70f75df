"""Numbers that come from outside, checked where they enter."""

from __future__ import annotations

import math

from fsm_agent.core.errors import BuildError


def finite_seconds(value: object, place: str) -> float:
    """Return `value` as a finite float of seconds.

    Raises `BuildError`, which names `place`, for anything but a finite int or float (a bool is neither).
    """
    # Every comparison with NaN is false, so an unchecked NaN would keep a breaker open or an entry stale for ever.
    if type(value) is float and math.isfinite(value):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
        raise BuildError(f"{place}: expected a finite number of seconds, got {number}")
    raise BuildError(f"{place}: expected a number of seconds (int or float), got {type(value).__name__}")
