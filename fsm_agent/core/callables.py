"""Functions that cannot answer when they are called: nothing of them runs, or they take other arguments than they are given."""

from __future__ import annotations

from inspect import (
    Parameter,
    isasyncgen,
    isasyncgenfunction,
    iscoroutine,
    iscoroutinefunction,
    isgenerator,
    isgeneratorfunction,
    signature,
)
from typing import Any


def wrong_manner(part: Any, *, awaited: bool = False, given: tuple[str, ...] = ()) -> str:
    """What keeps a function from answering when it is called, in words; an empty text for one that answers.

    Of generator functions nothing runs; coroutine functions will do where they are `awaited`. `given` names what it is called with,
    by position; where that is left out, its parameters are not looked at.
    """
    for fn in (part, type(part).__call__ if callable(part) else None):
        if isgeneratorfunction(fn) or isasyncgenfunction(fn):
            return "a generator function"
        if not awaited and iscoroutinefunction(fn):
            return "a coroutine function"
    return _wrong_parameters(part, given) if given and callable(part) else ""


def function_of(given: tuple[str, ...]) -> str:
    """What to give in place of a function that cannot answer."""
    return f"give a function of {' and '.join(given)} that returns its answer" if given else "give a function that returns its answer"


def _wrong_parameters(fn: Any, given: tuple[str, ...]) -> str:
    try:
        parameters = signature(fn)
    except (TypeError, ValueError):
        # Of some that are written in C nobody knows what they take.
        return ""
    try:
        parameters.bind(*given)
    except TypeError:
        named = [_MARKS[one.kind].format(one.name) for one in parameters.parameters.values()]
        return f"a function of ({', '.join(named)}) that is called with ({', '.join(given)})"
    return ""


_MARKS = {Parameter.KEYWORD_ONLY: "{}=", Parameter.VAR_POSITIONAL: "*{}", Parameter.VAR_KEYWORD: "**{}"} | dict.fromkeys(
    (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD), "{}"
)


def says_yes(answer: Any) -> bool:
    """Whether an answer is true; what would have to be awaited or gone through to know it has said nothing, and is not."""
    if iscoroutine(answer):
        answer.close()
        return False
    return bool(answer) and not (isgenerator(answer) or isasyncgen(answer) or hasattr(type(answer), "__await__"))
