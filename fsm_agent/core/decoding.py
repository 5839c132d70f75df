"""Arguments as they come from a decider, decoded where that takes no guessing."""

from __future__ import annotations

import json
import string
from collections.abc import Mapping
from typing import Any, NoReturn

_TAG = string.ascii_letters + string.digits
# What nests deeper has no form in a saved run; as the text that it came as it has one.
_DEEPEST = 200


def decoded(args: Any) -> Any:
    """Arguments (of exact types) as an object where that takes no guessing, else as they came.

    None and blank text mean no arguments. JSON text is decoded, also inside a code fence, and once more when it is a JSON
    string that holds an object. NaN and Infinity are no JSON, and what nests below 200 levels stays a text.
    """
    if type(args) is dict:
        return args
    if args is None:
        return {}
    if type(args) is not str:
        return args
    text: Any = without_fence(args)
    source = ""
    for _ in range(2):
        if not isinstance(text, str):
            break
        if not text.strip():
            return {}
        source = text
        try:
            text = strict_json(source)
        except (ValueError, RecursionError):
            return args
    if text is None:
        return {}
    if not isinstance(text, Mapping) or (source.count("{") + source.count("[") > _DEEPEST and nests_too_deep(text)):
        return args
    return text


def nests_too_deep(value: Any) -> bool:
    """Whether lists and dicts of a value nest below 200 levels, as those do that hold themselves; a saved run cannot hold them."""
    level = [value]
    for _ in range(_DEEPEST):
        parts = [part for one in level for part in (one.values() if type(one) is dict else one)]
        # Each once: what stands in many places would be gone through as often as there are ways to it.
        level = [*{id(part): part for part in parts if type(part) is dict or type(part) is list}.values()]
        if not level:
            return False
    return True


def without_fence(text: str) -> str:
    """A text without the blanks around it, and without the code fence and its tag where it stands in one."""
    text = text.strip()
    if len(text) >= 6 and text.startswith("```") and text.endswith("```"):
        return text[3:-3].lstrip(_TAG).strip()
    return text


def strict_json(text: str | bytes) -> Any:
    """JSON text as a value; raises ValueError for NaN and Infinity too, which are no JSON, and RecursionError for deep nesting."""
    return json.loads(text, parse_constant=_no_constant)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
