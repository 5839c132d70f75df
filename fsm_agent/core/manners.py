"""Functions of which nothing runs when they are called: what they give is true whatever they would have said."""

from __future__ import annotations

from inspect import isasyncgen, isasyncgenfunction, iscoroutine, iscoroutinefunction, isgenerator, isgeneratorfunction
from typing import Any


def wrong_manner(part: Any, *, awaited: bool = False) -> str:
    """What keeps a function from answering when it is called, in words; an empty text for one that answers.

    Of generator functions nothing runs; coroutine functions will do where they are `awaited`.
    """
    for fn in (part, type(part).__call__ if callable(part) else None):
        if isgeneratorfunction(fn) or isasyncgenfunction(fn):
            return "a generator function"
        if not awaited and iscoroutinefunction(fn):
            return "a coroutine function"
    return ""


def says_yes(answer: Any) -> bool:
    """Whether an answer is true; what would have to be awaited or gone through to know it has said nothing, and is not."""
    if iscoroutine(answer):
        answer.close()
        return False
    return bool(answer) and not (isgenerator(answer) or isasyncgen(answer) or hasattr(type(answer), "__await__"))
