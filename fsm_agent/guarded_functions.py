"""A session's tools as plain typed Python functions: name, documentation and signature come from the contract."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, Union

from fsm_agent.core.tools import Tool


class Said(Protocol):
    """The outcome of a call, as a model is shown it."""

    @property
    def text(self) -> str:
        """The value as JSON text, or why the call failed."""


class Calls(Protocol):
    """Where calls are made, and the tools that can be called: a session."""

    @property
    def tools(self) -> list[Tool]:
        """The tools that can be called, in order."""

    def call(self, tool: str, args: Any = None) -> Said:
        """Make one call and wait for its outcome; a failure is a value."""

    async def acall(self, tool: str, args: Any = None) -> Said:
        """`call` inside the running event loop."""


_TYPES: Mapping[str, Any] = {
    "string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict[str, Any], "null": None,
}  # fmt: skip


def functions(session: Calls, asynchronous: bool) -> list[Callable[..., Any]]:
    """One function a tool, each returning what the model is shown: the result as a text, or why there is none.

    Arguments go through the contract as they come. An optional argument without a default is None in the signature, and
    a None that its contract does not take counts as absent.
    """
    return [_function(session, tool, asynchronous) for tool in session.tools]


def _function(session: Calls, tool: Tool, asynchronous: bool) -> Callable[..., Any]:
    schema = tool.argument_schema()
    signature = _signature(schema)
    names = [name for name, one in signature.parameters.items() if one.kind is not one.VAR_KEYWORD]
    absent = _absent_when_none(schema)

    def given(args: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        if len(args) > len(names):
            raise TypeError(f"{tool.name}() takes {len(names)} arguments and {len(args)} were given; name them")
        placed = dict(zip(names, args, strict=False))
        twice = [name for name in placed if name in named]
        if twice:
            raise TypeError(f"{tool.name}() got the argument {twice[0]!r} twice")
        return {name: value for name, value in (placed | named).items() if value is not None or name not in absent}

    def call(*args: Any, **named: Any) -> str:
        return session.call(tool.name, given(args, named)).text

    async def acall(*args: Any, **named: Any) -> str:
        return (await session.acall(tool.name, given(args, named))).text

    made: Any = acall if asynchronous else call
    made.__name__ = made.__qualname__ = tool.name
    made.__doc__ = _documentation(tool, schema)
    made.__signature__ = signature
    made.__annotations__ = {name: one.annotation for name, one in signature.parameters.items()} | {"return": str}
    function: Callable[..., Any] = made
    return function


def _signature(schema: Mapping[str, Any]) -> inspect.Signature:
    """Required arguments first, then optional ones; ``**arguments`` where a name is none of Python's, or any may come."""
    properties = schema.get("properties") or {}
    required = set(schema.get("required") or ())
    open_ended = schema.get("additionalProperties", True) is not False and not properties
    if open_ended or not all(name.isidentifier() and not keyword.iskeyword(name) for name in properties):
        anything = inspect.Parameter("arguments", inspect.Parameter.VAR_KEYWORD, annotation=Any)
        return inspect.Signature([anything], return_annotation=str)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    made = [inspect.Parameter(name, kind, annotation=annotation_of(properties[name])) for name in properties if name in required]
    for name, part in properties.items():
        if name not in required:
            default = part.get("default") if isinstance(part, Mapping) else None
            wanted = annotation_of(part)
            made.append(
                inspect.Parameter(name, kind, default=default, annotation=_union(wanted, None) if default is None else wanted)
            )
    return inspect.Signature(made, return_annotation=str)


def annotation_of(schema: Any) -> Any:
    """The Python type that a part of a schema names, as near as an annotation can say it; Any where none can."""
    if not isinstance(schema, Mapping):
        return Any
    choices = schema.get("enum")
    if isinstance(choices, list) and choices and all(isinstance(one, str | int | bool | None) for one in choices):
        return Literal[tuple(choices)]
    for word in ("anyOf", "oneOf"):
        if isinstance(schema.get(word), list) and schema[word]:
            return _union(*(annotation_of(one) for one in schema[word]))
    kinds = schema.get("type")
    if isinstance(kinds, list) and kinds:
        return _union(*(annotation_of({**schema, "type": kind}) for kind in kinds))
    if kinds == "array" and isinstance(schema.get("items"), Mapping):
        return list[annotation_of(schema["items"])]  # type: ignore[misc]
    if kinds == "object" and isinstance(schema.get("additionalProperties"), Mapping) and not schema.get("properties"):
        return dict[str, annotation_of(schema["additionalProperties"])]  # type: ignore[misc]
    return _TYPES.get(kinds, Any) if isinstance(kinds, str) else Any


def _union(*types: Any) -> Any:
    # The | of two types does not take what a schema may hold beside them, such as None with None.
    return Union[types]  # noqa: UP007


def _absent_when_none(schema: Mapping[str, Any]) -> set[str]:
    """The optional arguments whose contract does not take null."""
    required = schema.get("required") or ()
    parts = (schema.get("properties") or {}).items()
    return {name for name, part in parts if name not in required and not _takes_null(part)}


def _takes_null(part: Any) -> bool:
    if not isinstance(part, Mapping):
        return True
    for word in ("anyOf", "oneOf"):
        if isinstance(part.get(word), list):
            return any(_takes_null(one) for one in part[word])
    kinds = part.get("type")
    if "enum" in part:
        return None in part["enum"]
    return kinds is None or kinds == "null" or (isinstance(kinds, list) and "null" in kinds)


def _documentation(tool: Tool, schema: Mapping[str, Any]) -> str:
    described = {
        name: part["description"]
        for name, part in (schema.get("properties") or {}).items()
        if isinstance(part, Mapping) and isinstance(part.get("description"), str)
    }
    lines = [tool.description or tool.name]
    if described:
        lines += ["", "Args:", *(f"    {name}: {text}" for name, text in described.items())]
    return "\n".join(lines)
