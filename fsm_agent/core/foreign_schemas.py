"""JSON Schemas of others made into contracts: closed where they are silent, and without defaults that break them.

Servers and classes drop the keys they do not know without a word, so what a schema does not name is refused before.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fsm_agent.core.contracts import ArgumentsContract, ResultContract
from fsm_agent.core.errors import ContractError
from fsm_agent.core.json_kinds import describe
from fsm_agent.core.schema_parts import changed, parts

T = TypeVar("T")
# Keywords by which other schemas name properties of the same object.
_BESIDE = frozenset({"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas"})
# With one of these the parts of a schema overlap, and one that is closed alone would refuse the other's properties.
_OVERLAP = frozenset({"$dynamicRef", "allOf", "dependentSchemas", "if", "not"})
_SAYS = ("additionalProperties", "unevaluatedProperties")


def foreign_arguments(schema: Mapping[str, Any], tool: str, *, deep: bool) -> ArgumentsContract:
    """The contract of arguments by the schema of somebody else, closed by `closed_schema`.

    A default that breaks its own schema is left out, since it is the other side that fills it in. Raises ContractError
    for what is no schema of an object, and MissingExtra without the extra ``jsonschema``.
    """
    from fsm_agent.core.schemas import SchemaArguments

    if not isinstance(schema, Mapping):
        raise ContractError(f"tool {tool!r}, arguments: the schema is {describe(schema)}; give a mapping")
    form = closed_schema({"type": "object", **schema}, deep=deep)
    return _made(form, lambda one: SchemaArguments(one, tool=tool))


def foreign_result(schema: Mapping[str, Any], tool: str, *, empty_ok: bool = False) -> ResultContract:
    """The contract of a result by the schema of somebody else, its objects closed as deep as `closed_schema` does.

    Raises like `foreign_arguments`, for schemas of any type.
    """
    from fsm_agent.core.schemas import SchemaResult

    return _made(closed_schema(schema, deep=True), lambda one: SchemaResult(one, empty_ok, tool=tool))


def _made(form: dict[str, Any], make: Callable[[dict[str, Any]], T]) -> T:
    try:
        return make(form)
    except ContractError:
        try:
            return make(changed(form, _without_default))
        except (ContractError, RecursionError):
            pass
        raise


def closed_schema(schema: Mapping[str, Any], *, deep: bool) -> dict[str, Any]:
    """A copy of an object's schema that takes no other properties, where it does not say so itself.

    With `deep` the objects inside it that name properties are closed too, unless parts of the schema overlap
    (``allOf``, ``if`` and the like), where one part knows nothing of the other's properties.
    """
    try:
        if deep and not any(_overlaps(part) for _, part in parts(schema)):
            return _closed(changed(schema, lambda part: _closed(part) if isinstance(part, dict) and "properties" in part else part))
        return _closed(copy.deepcopy(dict(schema)))
    except RecursionError:
        # A schema that holds itself is refused where it is compiled, with its reason.
        return dict(schema)


def _closed(part: dict[str, Any]) -> dict[str, Any]:
    if any(word in part for word in _SAYS):
        return part
    word = "unevaluatedProperties" if _BESIDE & part.keys() else "additionalProperties"
    return {**part, word: False}


def _without_default(part: Any) -> Any:
    return {word: bound for word, bound in part.items() if word != "default"} if isinstance(part, dict) else part


def _overlaps(part: Mapping[str, Any]) -> bool:
    return bool(_OVERLAP & part.keys()) or ("properties" in part and bool(_BESIDE & part.keys()))
