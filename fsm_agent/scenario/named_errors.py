"""Exceptions by name: Python's own where there is one, else a class made for the name."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Callable
from functools import cache

# Python's own classes that take more than a message.
_MADE: dict[str, Callable[[str], BaseException]] = {
    "UnicodeDecodeError": lambda message: UnicodeDecodeError("utf-8", b"\xff", 0, 1, message),
    "UnicodeEncodeError": lambda message: UnicodeEncodeError("utf-8", "\ud800", 0, 1, message),
    "UnicodeTranslateError": lambda message: UnicodeTranslateError("\ud800", 0, 1, message),
    "ExceptionGroup": lambda message: ExceptionGroup(message, [Exception(message)]),
    "BaseExceptionGroup": lambda message: BaseExceptionGroup(message, [Exception(message)]),
}


def exception_named(name: str, message: str = "") -> BaseException:
    """An exception whose type has this name; of a dotted name the last part is the type's."""
    last = name.rpartition(".")[2] or name
    if last in _MADE:
        return _MADE[last](message)
    kind = _class_of(last)
    error = kind(message) if message else kind()
    if not isinstance(error, Exception):
        # An interrupt that a scenario raises is told from one that comes from outside.
        error.of_scenario = True  # type: ignore[attr-defined]
    return error


@cache
def _class_of(name: str) -> type[BaseException]:
    own = asyncio.CancelledError if name == "CancelledError" else getattr(builtins, name, None)
    if isinstance(own, type) and issubclass(own, BaseException):
        return own
    return type(name, (Exception,), {"__module__": __name__, "__doc__": "An exception of a scenario."})


def names_of(error: BaseException) -> list[str]:
    """The names by which an exception may be expected: those of its type and of the types that it extends."""
    found: list[str] = []
    for kind in type(error).__mro__:
        if kind is not object:
            found += [kind.__name__, f"{kind.__module__}.{kind.__name__}"]
    if isinstance(error, asyncio.CancelledError):
        found.append("asyncio.CancelledError")
    return found
