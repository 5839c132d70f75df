"""Tools out of the definitions that are written for model providers: a JSON Schema with a name, and a body beside it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from fsm_agent.core.contracts import ArgumentsContract
from fsm_agent.core.errors import ContractError
from fsm_agent.core.foreign_schemas import foreign_arguments
from fsm_agent.core.json_kinds import describe
from fsm_agent.core.tools import Tool
from fsm_agent.host.tool_forms import make_tool

_SCHEMAS = ("parameters", "input_schema", "inputSchema")
_FORMS = (
    "give {'type': 'function', 'function': {'name', 'description', 'parameters'}},"
    " {'name', 'description', 'input_schema'} or {'name', 'description', 'parameters'}"
)


@attrs.frozen
class Definition:
    """What a definition says: the tool's `name`, its `description` and the JSON Schema of its arguments."""

    name: str
    description: str
    schema: Mapping[str, Any]


def read_definition(definition: Mapping[str, Any]) -> Definition:
    """Read a definition in the form of Chat Completions, Responses, Messages or MCP; without a schema it takes nothing.

    Raises ContractError for what is none of these, naming the forms.
    """
    if not isinstance(definition, Mapping):
        raise ContractError(f"the definition of a tool is {describe(definition)}; {_FORMS}")
    inner = definition.get("function", definition)
    if not isinstance(inner, Mapping):
        raise ContractError(f"the definition's 'function' is {describe(inner)}; {_FORMS}")
    name, description = inner.get("name"), inner.get("description") or ""
    if not isinstance(name, str) or not name:
        raise ContractError(f"the definition's name is {describe(name)}; {_FORMS}")
    if not isinstance(description, str):
        raise ContractError(f"tool {name!r}: its description is {describe(description)}; give a text")
    given = [word for word in _SCHEMAS if inner.get(word) is not None]
    if len(given) > 1:
        raise ContractError(f"tool {name!r}: its definition has {' and '.join(given)}; give one of them")
    schema = inner[given[0]] if given else {"type": "object", "properties": {}}
    if not isinstance(schema, Mapping):
        raise ContractError(f"tool {name!r}: its {given[0]} are {describe(schema)}; give a JSON Schema of an object")
    return Definition(name, description, schema)


def tool_from_schema(definition: Mapping[str, Any], fn: Callable[..., Any], **declared: Any) -> Tool:
    """A tool out of a provider's definition and its body; `declared` are fields of `Tool`, which win over the definition.

    Where the schema does not say whether other arguments may come, they are refused, unless the body takes ``**kwargs``.
    Raises ContractError for a definition that cannot be read, a schema that contradicts itself and a body that cannot
    be called by it, and MissingExtra without the extra ``jsonschema``.
    """
    read = read_definition(definition)
    if "args" in declared:
        raise ContractError(f"tool {read.name!r}: args is given twice; its contract is the definition's schema")
    said = {"name": read.name, **({"description": read.description} if read.description else {})}
    return make_tool(fn, **{**said, "args": _contract(read, fn), **declared})


def _contract(read: Definition, fn: Callable[..., Any]) -> ArgumentsContract:
    if _takes_any(fn):
        from fsm_agent.core.schemas import SchemaArguments

        return SchemaArguments({"type": "object", **read.schema}, tool=read.name)
    return foreign_arguments(read.schema, read.name, deep=False)


def _takes_any(fn: Callable[..., Any]) -> bool:
    try:
        return any(one.kind is one.VAR_KEYWORD for one in inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return False
