"""Tools out of what a host has: a typed function, a table entry, a JSON Schema, or a Tool already made."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, overload

import attrs

from fsm_agent.core.callables import wrong_manner
from fsm_agent.core.contracts import ArgumentsContract, ResultContract, TableArguments, TableResult
from fsm_agent.core.errors import ContractError, FsmAgentError
from fsm_agent.core.known_names import mend
from fsm_agent.core.plain import short
from fsm_agent.core.spec_check import check_returns
from fsm_agent.core.tools import Tool, Toolset

DECLARED = frozenset(field.name for field in attrs.fields(Tool) if field.init) - {"name", "fn", "args", "returns"}
# Types that a table knows and JSON Schema does not: a result of one rule, such as a bare list.
_RULE_TYPES = frozenset({"str", "int", "float", "bool", "list", "dict", "any"})


def is_schema(form: Any) -> bool:
    """True for a JSON Schema: a mapping whose ``type`` at the top is a text."""
    return isinstance(form, Mapping) and isinstance(form.get("type"), str)


def arguments_form(form: Any, tool: str = "") -> ArgumentsContract | None:
    """The contract of arguments in either form, a ready one as it is, or None for none.

    With a `tool` name the form is checked: a contract that contradicts itself raises ContractError.
    """
    if form is None or isinstance(form, ArgumentsContract):
        return form
    if tool or is_schema(form):
        from fsm_agent.core.schemas import arguments_contract

        return arguments_contract(form, tool)
    return TableArguments(form)


def result_form(form: Any, tool: str = "", *, empty_ok: bool = False) -> ResultContract | None:
    """The contract of a result in either form, a ready one as it is, or None for none; checked like arguments.

    A single rule of a table (``{"type": "list", ...}``) measures a result that is no mapping.
    """
    if form is None or isinstance(form, ResultContract):
        return form
    if is_schema(form) and form["type"] in _RULE_TYPES:
        from fsm_agent.core.signatures import TypedResult

        if tool:
            check_returns({"result": form}, tool)
        return TypedResult(form, empty_ok)
    if tool or is_schema(form):
        from fsm_agent.core.schemas import result_contract

        return result_contract(form, empty_ok, tool)
    return TableResult(form, empty_ok=empty_ok)


def check_entries(entries: Mapping[Any, Any]) -> None:
    """Raise ContractError for a contract in a table of tools that contradicts itself; what cannot be read holds none."""
    try:
        for name, entry in entries.items():
            if isinstance(name, str) and isinstance(entry, Mapping):
                arguments_form(entry.get("args"), name)
                result_form(entry.get("returns"), name)
    except FsmAgentError:
        raise
    except Exception:
        return


def make_tool(fn: Callable[..., Any], **declared: Any) -> Tool:
    """A tool out of a typed function: contract, description and context parameter are read from its signature.

    `args` and `returns` may give the contracts in another form; the rest of `declared` are fields of `Tool`. Raises
    ContractError for a signature that makes no contract, for a contract that the function cannot be called by, and for
    a field that is unknown or of the wrong kind.
    """
    from fsm_agent.core import signatures

    name = declared.pop("name", None)
    if name is None:
        name = _name_of(fn)
    if not callable(fn):
        raise ContractError(f"tool {name!r}: its body is {short(fn, 60)}; give a function")
    if manner := wrong_manner(fn, awaited=True):
        raise ContractError(f"tool {name!r}: its function is {manner}, of which nothing runs; return a list of what it yields")
    unknown = sorted(set(declared) - DECLARED - {"args", "returns"}, key=str)
    if unknown:
        raise ContractError(f"tool {name!r}: there is no field {unknown[0]!r}; {mend(unknown[0], sorted(DECLARED), 'a tool has')}")
    args, returns = declared.pop("args", None), declared.pop("returns", None)
    empty_ok = bool(declared.get("empty_ok", False))
    contract: ArgumentsContract | None
    if args is None:
        contract = signatures.arguments_of(fn)
        declared.setdefault("context_parameter", signatures.context_parameter(fn))
        declared.setdefault("build", signatures.argument_builder(fn))
    else:
        contract = arguments_form(args, name)
        declared.setdefault("context_parameter", _context_parameter(fn))
        if contract is not None and "build" not in declared:
            _check_signature(name, fn, contract, declared["context_parameter"])
    declared.setdefault("description", signatures.description_of(fn))
    result = signatures.result_of(fn, empty_ok) if returns is None else result_form(returns, name, empty_ok=empty_ok)
    try:
        return Tool(name=name, fn=fn, args=contract, returns=result, **declared)
    except FsmAgentError as error:
        if str(error).startswith("tool "):
            raise
        # What converts a field does not know whose it is.
        raise ContractError(f"tool {name!r}: {error}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise ContractError(f"tool {name!r}: a field is of the wrong kind ({error}); see the fields of Tool") from error


def _name_of(fn: Any) -> str:
    while isinstance(fn, partial):
        fn = fn.func
    return getattr(fn, "__name__", "")


def _context_parameter(fn: Callable[..., Any]) -> str | None:
    from fsm_agent.core import signatures

    try:
        return signatures.context_parameter(fn)
    except ContractError:
        # The contract came in another form, so annotations need not be readable.
        return None


def _check_signature(name: str, fn: Callable[..., Any], contract: ArgumentsContract, context: str | None) -> None:
    """Refuse a contract by which the function can never be called, or not without its optional arguments."""
    try:
        parameters = dict(inspect.signature(fn).parameters)
    except (TypeError, ValueError):
        return
    schema = contract.json_schema()
    named, required = schema.get("properties", {}), schema.get("required", ())
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    for argument in named:
        if argument not in parameters and not takes_any:
            raise ContractError(
                f"tool {name!r}: its contract has the argument {argument!r}, which its function does not take;"
                " give the function that parameter, or take it out of the contract"
            )
    for parameter in parameters.values():
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise ContractError(
                f"tool {name!r}: its function takes {parameter.name!r} by position only, and calls name their arguments;"
                " take the / out of its signature"
            )
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL) or parameter.name == context:
            continue
        if parameter.default is parameter.empty and parameter.name not in required:
            what = "may leave out" if parameter.name in named else "does not name"
            raise ContractError(
                f"tool {name!r}: its function needs {parameter.name!r}, which its contract {what};"
                " require it in the contract, or give the parameter a default"
            )


@overload
def tool(fn: Callable[..., Any], /) -> Tool: ...
@overload
def tool(**declared: Any) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(fn: Callable[..., Any] | None = None, /, **declared: Any) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Declare a function as a tool: ``@tool`` or ``@tool(effect="pure", timeout_s=5)``; the words are the fields of `Tool`."""
    if fn is not None:
        return make_tool(fn, **declared)
    return lambda body: make_tool(body, **declared)


def toolset(tools: Iterable[Any] | Mapping[str, Any]) -> Toolset:
    """The tools of a host by name: Tools and typed functions, or a mapping of name to one of these or a table entry.

    Raises ContractError for two tools of one name and for what makes no tool.
    """
    if isinstance(tools, Mapping):
        return Toolset(_named(name, form) for name, form in tools.items())
    if not isinstance(tools, Iterable) or isinstance(tools, str | bytes):
        mend = "give a list of tools, or a mapping of names to them"
        raise ContractError(f"{short(tools, 60)} is no set of tools; {mend}")
    return Toolset(form if isinstance(form, Tool) else _from_function(form) for form in tools)


def _named(name: Any, form: Any) -> Tool:
    if isinstance(form, Tool):
        return attrs.evolve(form, name=name)
    if isinstance(form, Mapping):
        entry = {str(key): value for key, value in form.items()}
        fn = entry.pop("fn", None)
        if not callable(fn):
            raise ContractError(f"tool {name!r}: its entry has no function under 'fn'; give one")
        return make_tool(fn, **{**entry, "name": name})
    return _from_function(form, name)


def _from_function(form: Any, name: str | None = None) -> Tool:
    if not callable(form):
        raise ContractError(f"{short(form, 60)} makes no tool; give a Tool, a typed function or a mapping with 'fn'")
    return make_tool(form, name=name)
