"""Contracts given as JSON Schema (Draft 2020-12), with the reasons of the other forms; needs the extra ``jsonschema``.

True and 2.0 are no integers (`integral_floats` lets 2.0 pass), NaN breaks every bound, ``enum`` and ``const`` compare
by JSON type, formats are checked, nothing is fetched. A schema is read once, when the contract is made.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import attrs

from fsm_agent.core.contracts import ArgumentsContract, ResultContract, TableArguments, TableResult
from fsm_agent.core.errors import ContractError
from fsm_agent.core.json_kinds import describe
from fsm_agent.core.rules import Broken
from fsm_agent.core.schema_check import compile_schema
from fsm_agent.core.schema_validator import CompiledSchema, Unmet
from fsm_agent.core.spec_check import check_arguments, check_returns
from fsm_agent.core.table_faults import RESULT_RANK, argument_reason, in_argument_order
from fsm_agent.core.values import Fault

_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_LENGTHS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "uniqueItems", "contains")
# What a broken keyword is called; anyOf, oneOf, not and whatever else is a `type`.
_KINDS: Mapping[str, str] = {
    **dict.fromkeys(("required", "dependentRequired"), "missing"),
    **dict.fromkeys(("additionalProperties", "unevaluatedProperties", "propertyNames"), "extra"),
    **dict.fromkeys(("enum", "const"), "allowed"),
    **dict.fromkeys(_BOUNDS, "range"),
    **dict.fromkeys(_LENGTHS, "length"),
    **dict.fromkeys(("pattern", "format"), "pattern"),
}


def _copied(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        return copy.deepcopy(schema)
    except Exception:  # what cannot be copied cannot be compiled either, and is told there
        return schema


@attrs.frozen(eq=False)
class SchemaArguments:
    """Arguments measured by a JSON Schema of an object; `tool` is the name in errors.

    Raises ContractError where the schema is none, is no object's, contradicts itself or refers to what would have to be
    fetched, and MissingExtra where the package is not installed.
    """

    schema: Mapping[str, Any] = attrs.field(converter=_copied)
    integral_floats: bool = False
    tool: str = ""
    _compiled: CompiledSchema = attrs.field(init=False, repr=False)

    @_compiled.default
    def _compile(self) -> CompiledSchema:
        what = f"tool {self.tool!r}, arguments"
        compiled = compile_schema(self.schema, what, self.integral_floats)
        if self.schema.get("type", "object") != "object":
            raise ContractError(f"{what}: their type is {describe(self.schema['type'])}; arguments are always an object")
        return compiled

    def first_fault(self, args: object) -> str:
        """The first reason in the order missing, extra, then by argument; empty when all is well. Never raises."""
        found = self._broken(args)
        return argument_reason(found[0]) if found else ""

    def faults(self, args: object) -> tuple[Fault, ...]:
        """Every fault with its place, in the order of `first_fault`. Never raises."""
        return tuple(_fault(argument_reason(one), one[2]) for one in self._broken(args))

    def with_defaults(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """A copy of the arguments with the ``default`` of each absent property that is not required."""
        filled, required = dict(args), self.schema.get("required", ())
        for name, part in self.schema.get("properties", {}).items():
            if name not in filled and isinstance(part, Mapping) and "default" in part and name not in required:
                filled[name] = copy.deepcopy(part["default"])
        return filled

    def json_schema(self) -> dict[str, Any]:
        """The schema as it was given, copied."""
        return copy.deepcopy(dict(self.schema))

    def _broken(self, args: object) -> list[Broken]:
        try:
            given = args if isinstance(args, dict) else dict(args) if isinstance(args, Mapping) else None
        except Exception:  # a mapping that cannot be read is none
            given = None
        if given is None:
            return [("type", (), Unmet("type", (), "object", args), args)]
        found: dict[Any, Broken] = {}
        for one in self._compiled.unmet(given):
            kind = _KINDS.get(one.keyword, "type")
            found.setdefault((kind, one.path), (kind, one.path, one, one.value))
        return in_argument_order(found.values(), self.schema.get("properties", {}))


@attrs.frozen(eq=False)
class SchemaResult:
    """A result measured by a JSON Schema; `empty_ok` lets an empty list pass where ``minItems`` wants it longer.

    Raises like `SchemaArguments`, for schemas of any type.
    """

    schema: Mapping[str, Any] = attrs.field(converter=_copied)
    empty_ok: bool = False
    integral_floats: bool = False
    tool: str = ""
    _compiled: CompiledSchema = attrs.field(init=False, repr=False)

    @_compiled.default
    def _compile(self) -> CompiledSchema:
        return compile_schema(self.schema, f"tool {self.tool!r}, result", self.integral_floats)

    def first_fault(self, value: object) -> str:
        """The first of shape, empty, too_big and range over the whole value; empty when all is well. Never raises."""
        return min((reason for reason, _ in self._broken(value)), key=RESULT_RANK.__getitem__, default="")

    def faults(self, value: object) -> tuple[Fault, ...]:
        """Every fault with its place, in the order of `first_fault`. Never raises."""
        found = sorted(self._broken(value), key=lambda pair: RESULT_RANK[pair[0]])
        return tuple(_fault(reason, one) for reason, one in found)

    def json_schema(self) -> dict[str, Any]:
        """The schema as it was given, copied."""
        return copy.deepcopy(dict(self.schema))

    def _broken(self, value: object) -> list[tuple[str, Unmet]]:
        found: dict[Any, tuple[str, Unmet]] = {}
        for one in self._compiled.unmet(value):
            reason = _result_reason(one)
            if not (self.empty_ok and reason == "empty"):
                found.setdefault((reason, one.path), (reason, one))
        return list(found.values())


def _result_reason(one: Unmet) -> str:
    if one.keyword == "minItems" and not one.value:
        return "empty"
    if one.keyword == "maxItems":
        return "too_big"
    return "range" if one.keyword in _BOUNDS else "shape"


def _fault(reason: str, one: Unmet) -> Fault:
    kind = _KINDS.get(one.keyword, "")
    if kind == "missing":
        return Fault(reason=reason, path=one.path, expected="a value", got="nothing")
    if kind == "extra":
        return Fault(reason=reason, path=one.path, expected="no such key")
    bound = one.bound if isinstance(one.bound, str) and one.keyword in ("type", "nesting", "unreadable") else None
    return Fault(
        reason=reason, path=one.path, expected=bound or f"{one.keyword} {describe(one.bound, 200)}", got=describe(one.value)
    )


def arguments_contract(form: object, tool: str = "") -> ArgumentsContract:
    """The contract of arguments in the form it was given in, checked for contradictions.

    A mapping whose ``type`` is a text is JSON Schema, another mapping is a table, None takes any mapping, and a
    contract is itself (`signatures.arguments_of` makes one of a function). ContractError, naming `tool`, for all else.
    """
    if form is None:
        return TableArguments(None)
    if isinstance(form, Mapping):
        if isinstance(form.get("type"), str):
            return SchemaArguments(form, tool=tool)
        check_arguments(form, tool)
        return TableArguments(form)
    if isinstance(form, ArgumentsContract) and not isinstance(form, type):
        return form
    raise ContractError(f"tool {tool!r}: its arguments' contract is {describe(form)}; {_FORMS}, or arguments_of(function)")


def result_contract(form: object, empty_ok: bool = False, tool: str = "") -> ResultContract | None:
    """The contract of a result in the form it was given in, checked for contradictions; None where anything goes.

    The forms and errors are those of `arguments_contract`; a contract that is made already keeps its own `empty_ok`.
    """
    if form is None:
        return None
    if isinstance(form, Mapping):
        if isinstance(form.get("type"), str):
            return SchemaResult(form, empty_ok, tool=tool)
        check_returns(form, tool)
        return TableResult(form, empty_ok)
    if isinstance(form, ResultContract) and not isinstance(form, type):
        return form
    raise ContractError(f"tool {tool!r}: its result's contract is {describe(form)}; {_FORMS}, or result_of(function)")


_FORMS = "give a table of names to rules, a JSON Schema whose 'type' is a text, None"
