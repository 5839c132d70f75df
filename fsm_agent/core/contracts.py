"""What a tool's calls are measured by: its arguments before the body runs, its result before anyone believes it.

A contract comes in three forms: the table (here), a typed Python function (`signatures`) and JSON Schema (`schemas`).
All of them speak one vocabulary. Arguments: ``missing|extra|type|allowed|range|length|pattern:<argument>``, where a
fault inside a list or an object belongs to its top-level argument, and ``type:args`` for what is no mapping. Results:
``shape``, ``empty``, ``too_big``, ``range``. An empty text means that the contract is kept.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import attrs

from fsm_agent.core.rule_schema import fields_schema
from fsm_agent.core.rules import Rule, required
from fsm_agent.core.table_faults import (
    ROWS,
    argument_fault,
    argument_faults,
    empty_lists,
    missing_or_extra,
    result_fault,
    result_faults,
    told_faults,
)
from fsm_agent.core.table_plans import (
    ArgumentsPlan,
    ResultPlan,
    arguments_plan,
    planned_faults,
    result_plan,
)
from fsm_agent.core.values import Fault


@runtime_checkable
class ArgumentsContract(Protocol):
    """What the arguments of a call must be."""

    def first_fault(self, args: object) -> str:
        """The first reason in the order missing, extra, then by argument; empty when all is well. Never raises."""
        ...

    def faults(self, args: object) -> tuple[Fault, ...]:
        """Every fault with its place, in the order of `first_fault`. Never raises."""
        ...

    def with_defaults(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """A copy of the arguments in which absent optional ones have their declared defaults."""
        ...

    def json_schema(self) -> dict[str, Any]:
        """The contract as a JSON Schema (Draft 2020-12) of an object, for model providers; a fresh copy."""
        ...


@runtime_checkable
class ResultContract(Protocol):
    """What the result of a call must be."""

    def first_fault(self, value: object) -> str:
        """The first of shape, empty, too_big and range over the whole value; empty when all is well. Never raises."""
        ...

    def faults(self, value: object) -> tuple[Fault, ...]:
        """Every fault with its place, in the order of `first_fault`. Never raises."""
        ...

    def json_schema(self) -> dict[str, Any]:
        """The contract as a JSON Schema (Draft 2020-12); a fresh copy."""
        ...


@attrs.frozen
class Range:
    """Marker for ``Annotated``: a number from `min` to `max`, both included; None leaves a side open."""

    min: float | None = None
    max: float | None = None


@attrs.frozen
class Length:
    """Marker for ``Annotated``: a text, list or object of `min` to `max` characters, items or keys; None: no bound."""

    min: int | None = None
    max: int | None = None


@attrs.frozen
class Pattern:
    """Marker for ``Annotated``: a text in which `regex` is found somewhere, as in JSON Schema (anchor it yourself)."""

    regex: str


_AS_IT_IS = attrs.setters.frozen


@attrs.define(eq=False)
class TableArguments:
    """Arguments measured by a table (argument name -> rule) that is read anew each time; None takes any mapping.

    The table is held, not copied, so editing it in place counts at once. `spec_check.check_arguments` finds its
    contradictions at build.
    """

    spec: Mapping[str, Rule] | None = attrs.field(default=None, on_setattr=_AS_IT_IS)
    _plan: ArgumentsPlan | None = attrs.field(init=False, default=None, repr=False)

    def first_fault(self, args: object) -> str:
        """See `argument_fault`."""
        spec, plan = self.spec, self._plan
        if type(args) is not dict or type(spec) is not dict:
            return argument_fault(spec, args)
        try:
            if plan is None or plan.like != spec:
                plan = self._plan = arguments_plan(spec)
            some = len(args) != len(spec)
            if some and (amiss := missing_or_extra(spec, args)):
                return amiss
            # As many arguments as rules and each rule's is there, or it raises.
            fault = plan.first_of_some(args, spec) if some else plan.first(args, spec)
            # Which fault is the first depends on the order of the rules, and on whether an argument is missing.
            if not fault or (plan.order == [*spec] and (some or args.keys() == spec.keys())):
                return fault
            return argument_fault(spec, args)
        except Exception:  # an odd table or value: looked at more closely
            return argument_fault(spec, args)

    def faults(self, args: object) -> tuple[Fault, ...]:
        """See `argument_faults`."""
        spec, plan = self.spec, self._plan
        try:
            if plan is not None and type(args) is dict and args.keys() == plan.like.keys() and plan.like == spec:
                return told_faults(planned_faults(plan, spec, args))
        except Exception:  # an odd table or value: looked at more closely
            pass
        return argument_faults(spec, args)

    def with_defaults(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """A copy of the arguments with the defaults of absent optional ones, each a copy of its own."""
        filled = dict(args)
        try:
            for name, rule in (self.spec or {}).items():
                if name not in filled and "default" in rule and not required(rule):
                    filled[name] = copy.deepcopy(rule["default"])
        except Exception:  # an unreadable table refuses the call when it is measured; nothing to add here
            return filled
        return filled

    def json_schema(self) -> dict[str, Any]:
        """An object schema that takes no other keys; what cannot be read becomes a schema that takes anything."""
        return {"type": "object"} if self.spec is None else fields_schema(self.spec)


@attrs.define(eq=False)
class TableResult:
    """A result measured by a table (key -> rule) that is read anew each time; None takes anything.

    `empty_ok` makes results without rows an honest answer.
    """

    spec: Mapping[str, Rule] | None = attrs.field(default=None, on_setattr=_AS_IT_IS)
    empty_ok: bool = attrs.field(default=False, on_setattr=_AS_IT_IS)
    _plan: ResultPlan | None = attrs.field(init=False, default=None, repr=False)

    def first_fault(self, value: object) -> str:
        """See `result_fault`."""
        return self.measured(value)[0]

    def measured(self, value: object) -> tuple[str, Any]:
        """The first fault, and the copy of plain types that was made while it was measured; None where none was made.

        Of a value that somebody else changes meanwhile the copy is what was measured. Never raises.
        """
        spec, plan = self.spec, self._plan
        if type(value) is dict and type(spec) is dict:
            try:
                if plan is None or plan.like != spec:
                    plan = self._plan = result_plan(spec)
                found = plan.measure(value)
                if found is not None:
                    made = found[1]
                    for name in plan.lists:
                        if made[name]:
                            return found
                    nothing = plan.lists and not self.empty_ok and empty_lists(spec, made)
                    return ("empty", made) if nothing else found
            except Exception:  # an odd table or value: looked at more closely
                pass
        return result_fault(spec, value, self.empty_ok), None

    def faults(self, value: object) -> tuple[Fault, ...]:
        """See `result_faults`."""
        return result_faults(self.spec, value, self.empty_ok)

    def json_schema(self) -> dict[str, Any]:
        """An object schema that takes no other keys; a list that must not be empty has a ``minItems`` of 1."""
        if self.spec is None:
            return {}
        schema = fields_schema(self.spec)
        lists = {name: part for name, part in schema.get("properties", {}).items() if part.get("type") == "array"}
        found = lists.get(ROWS) or (next(iter(lists.values())) if len(lists) == 1 else None)
        if found is not None and not self.empty_ok:
            found.setdefault("minItems", 1)
        return schema
