"""Texts, arguments, schemas and call ids in the form in which any JSON API takes them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from fsm_agent.core.decoding import decoded
from fsm_agent.core.plain import dumps, storable

# Arguments that are no object go out under this name, as the text that came.
RAW: Final = "_raw"
# What every API takes as the id of a call; Chat Completions takes no more than 40 characters.
_PLAIN_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,40}")
_MOST_RAW: Final = 2000


def wire_text(text: str) -> str:
    """The text as UTF-8 can carry it: a surrogate pair becomes its character, a lone surrogate U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def wire_json(value: object) -> str:
    """Any value as one strict JSON text that UTF-8 can carry.

    What is no JSON is written as its stored form (``{"$float": "nan"}``).
    """
    try:
        return wire_text(json.dumps(value, ensure_ascii=False, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return wire_text(dumps(storable(value)))


def wire_value(value: Any) -> Any:
    """The same value as plain JSON data; what is fit already comes back as it is, unless it is a Mapping of another type."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (TypeError, ValueError, RecursionError):
        return json.loads(wire_json(dict(value) if isinstance(value, Mapping) else value))
    return value


def arguments_object(args: Any) -> dict[str, Any]:
    """A call's arguments as the JSON object that APIs ask for in a history.

    No arguments are ``{}``. What does not decode to an object without guessing goes out as ``{"_raw": <the text>}``, so that
    the model sees what it sent.
    """
    held = decoded(args)
    if isinstance(held, Mapping):
        plain: dict[str, Any] = json.loads(wire_json(dict(held)))
        return plain
    text = held if isinstance(held, str) else wire_json(held)
    return {RAW: wire_text(text[:_MOST_RAW])}


def arguments_text(args: Any) -> str:
    """A call's arguments as JSON text that holds an object; see `arguments_object`."""
    return wire_json(arguments_object(args))


def wire_id(call_id: str) -> str:
    """An id that every API takes: as it is, or a digest of it where it has other characters or more than 40."""
    if _PLAIN_ID.fullmatch(call_id):
        return call_id
    return f"call_{hashlib.blake2b(call_id.encode('utf-8', 'surrogatepass'), digest_size=10).hexdigest()}"


def object_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A tool's schema as an object schema with `type` and `properties`, which some servers insist on."""
    return {"type": "object", "properties": {}, **wire_value(dict(schema))}
