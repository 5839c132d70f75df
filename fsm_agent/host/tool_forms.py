"""Tools out of what a host has: a typed function, a table entry, a JSON Schema, or a Tool already made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, overload

import attrs

from fsm_agent.core.contracts import ArgumentsContract, ResultContract, TableArguments, TableResult
from fsm_agent.core.errors import ContractError
from fsm_agent.core.plain import short
from fsm_agent.core.spec_check import check_arguments, check_returns
from fsm_agent.core.tools import Tool, Toolset

DECLARED = frozenset(field.name for field in attrs.fields(Tool) if field.init) - {"name", "fn", "args", "returns"}


def is_schema(form: Any) -> bool:
    """True for a JSON Schema: a mapping whose ``type`` at the top is a text."""
    return isinstance(form, Mapping) and isinstance(form.get("type"), str)


def arguments_form(form: Any, tool: str = "") -> ArgumentsContract | None:
    """The contract of arguments in either form, a ready one as it is, or None for none.

    With a `tool` name the form is checked: a contract that contradicts itself raises ContractError.
    """
    if form is None or isinstance(form, ArgumentsContract):
        return form
    if is_schema(form):
        from fsm_agent.core.schemas import SchemaArguments

        return SchemaArguments(form)
    if tool:
        check_arguments(form, tool)
    return TableArguments(form)


def result_form(form: Any, tool: str = "", *, empty_ok: bool = False) -> ResultContract | None:
    """The contract of a result in either form, a ready one as it is, or None for none; checked like arguments."""
    if form is None or isinstance(form, ResultContract):
        return form
    if is_schema(form):
        from fsm_agent.core.schemas import SchemaResult

        return SchemaResult(form, empty_ok=empty_ok)
    if tool:
        check_returns(form, tool)
    return TableResult(form, empty_ok=empty_ok)


def make_tool(fn: Callable[..., Any], **declared: Any) -> Tool:
    """A tool out of a typed function: contract, description and context parameter are read from its signature.

    `args` and `returns` may give the contracts in another form; the rest of `declared` are fields of `Tool`. Raises
    ContractError for a signature that makes no contract, or for an unknown field.
    """
    from fsm_agent.core import signatures

    name = declared.pop("name", None) or getattr(fn, "__name__", "")
    unknown = sorted(set(declared) - DECLARED - {"args", "returns"})
    if unknown:
        raise ContractError(f"tool {name!r}: there is no field {unknown[0]!r}; a tool has {', '.join(sorted(DECLARED))}")
    args, returns = declared.pop("args", None), declared.pop("returns", None)
    empty_ok = bool(declared.get("empty_ok", False))
    typed = args is None
    if typed:
        declared.setdefault("context_parameter", signatures.context_parameter(fn))
        declared.setdefault("build", lambda given: signatures.build_arguments(fn, given))
    declared.setdefault("description", signatures.description_of(fn))
    return Tool(
        name=name,
        fn=fn,
        args=signatures.arguments_of(fn) if typed else arguments_form(args, name),
        returns=signatures.result_of(fn, empty_ok) if returns is None else result_form(returns, name, empty_ok=empty_ok),
        **declared,
    )


@overload
def tool(fn: Callable[..., Any], /) -> Tool: ...
@overload
def tool(**declared: Any) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(fn: Callable[..., Any] | None = None, /, **declared: Any) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Declare a function as a tool: ``@tool`` or ``@tool(effect="pure", timeout_s=5)``; see `make_tool`."""
    if fn is not None:
        return make_tool(fn, **declared)
    return lambda body: make_tool(body, **declared)


def toolset(tools: Iterable[Any] | Mapping[str, Any]) -> Toolset:
    """The tools of a host by name: Tools and typed functions, or a mapping of name to one of these or a table entry.

    Raises ContractError for two tools of one name and for what makes no tool.
    """
    if isinstance(tools, Mapping):
        return Toolset(_named(name, form) for name, form in tools.items())
    return Toolset(form if isinstance(form, Tool) else _from_function(form) for form in tools)


def _named(name: Any, form: Any) -> Tool:
    if isinstance(form, Tool):
        return attrs.evolve(form, name=name)
    if isinstance(form, Mapping):
        entry = dict(form)
        fn = entry.pop("fn", None)
        if not callable(fn):
            raise ContractError(f"tool {name!r}: its entry has no function under 'fn'; give one")
        return make_tool(fn, **{**entry, "name": name})
    return _from_function(form, name)


def _from_function(form: Any, name: str | None = None) -> Tool:
    if not callable(form):
        raise ContractError(f"{short(form, 60)} makes no tool; give a Tool, a typed function or a mapping with 'fn'")
    return make_tool(form, name=name)
