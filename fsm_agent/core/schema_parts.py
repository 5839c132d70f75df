"""The schemas that a JSON Schema is made of: walked with their places, or copied with each of them changed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_ONE = frozenset({
    "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames", "then",
    "unevaluatedItems", "unevaluatedProperties",
})  # fmt: skip
_LISTED = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
Steps = tuple[Any, ...]


def children(schema: Mapping[str, Any]) -> Iterator[tuple[Steps, Any]]:
    """The schemas directly inside one, each with the way to it."""
    for word, part in schema.items():
        if word in _ONE:
            yield (word,), part
        elif word in _LISTED and isinstance(part, list):
            yield from (((word, index), one) for index, one in enumerate(part))
        elif word in _NAMED and isinstance(part, Mapping):
            yield from (((word, name), one) for name, one in part.items())


def parts(schema: Any, place: Steps = ()) -> Iterator[tuple[Steps, Mapping[str, Any]]]:
    """The schema itself and all that are inside it, each with its place; True and False have nothing to walk."""
    if isinstance(schema, Mapping):
        yield place, schema
        for steps, part in children(schema):
            yield from parts(part, (*place, *steps))


def changed(schema: Any, change: Callable[[Any], Any]) -> Any:
    """A copy of a schema in which every part, the root too, has been changed, those inside first."""
    if not isinstance(schema, Mapping):
        return change(copy.deepcopy(schema))
    made: dict[str, Any] = {}
    for word, part in schema.items():
        if word in _ONE:
            made[word] = changed(part, change)
        elif word in _LISTED and isinstance(part, list):
            made[word] = [changed(one, change) for one in part]
        elif word in _NAMED and isinstance(part, Mapping):
            made[word] = {name: changed(one, change) for name, one in part.items()}
        else:
            made[word] = copy.deepcopy(part)
    return change(made)
