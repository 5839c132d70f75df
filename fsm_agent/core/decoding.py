"""Arguments as they come from a decider, decoded where that takes no guessing."""

from __future__ import annotations

import json
import string
from collections.abc import Mapping
from typing import Any, NoReturn

_TAG = string.ascii_letters + string.digits


def decoded(args: Any) -> Any:
    """Arguments (of exact types) as an object where that takes no guessing, else as they came.

    None and blank text mean no arguments. JSON text is decoded, also inside a code fence, and once more when it is a JSON
    string that holds an object. NaN and Infinity are no JSON.
    """
    if type(args) is dict:
        return args
    if args is None:
        return {}
    if type(args) is not str:
        return args
    text: Any = without_fence(args)
    for _ in range(2):
        if not isinstance(text, str):
            break
        if not text.strip():
            return {}
        try:
            text = strict_json(text)
        except (ValueError, RecursionError):
            return args
    return {} if text is None else text if isinstance(text, Mapping) else args


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
