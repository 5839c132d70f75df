"""Models of Pydantic as types of arguments and results: their own JSON Schema measures, and bodies get real instances.

The package is never imported here. A class is a model by what it can do (``model_json_schema``, ``model_validate``), and
what a model stands in (``list[Order]``, a union) is read by the package that the model's class has imported already.
"""

from __future__ import annotations

import json
import sys
import typing
from collections.abc import Mapping
from typing import Any

import attrs

from fsm_agent.core.contracts import ArgumentsContract, ResultContract
from fsm_agent.core.foreign_schemas import foreign_arguments, foreign_result
from fsm_agent.core.rule_schema import fields_schema, rule_schema
from fsm_agent.core.rules import Rule
from fsm_agent.core.values import Fault

_DEEPEST = 50


def is_model(annotation: Any) -> bool:
    """True for a class that describes itself as JSON Schema and makes instances of plain values."""
    if not isinstance(annotation, type):
        return False
    makes = all(callable(getattr(annotation, name, None)) for name in ("model_json_schema", "model_validate"))
    return makes or hasattr(annotation, "__pydantic_validator__")


def holds_model(annotation: Any) -> bool:
    """True for a model and for an annotation that has one inside, such as ``list[Order]`` or ``Order | None``."""
    return is_model(annotation) or any(holds_model(one) for one in typing.get_args(annotation))


@attrs.frozen(eq=False)
class ModelForm:
    """How an annotation that holds a model is measured and made; `extra` are further bounds, in the keys of a rule.

    Whatever its methods raise is the model's own, or its package's.
    """

    annotation: Any
    extra: Mapping[str, Any] = attrs.field(factory=dict)
    _reader: Any = attrs.field(init=False)

    @_reader.default
    def _find_reader(self) -> Any:
        if hasattr(self.annotation, "model_json_schema"):
            return self.annotation
        return sys.modules["pydantic"].TypeAdapter(self.annotation)

    def schema(self, mode: str, prefix: str = "") -> dict[str, Any]:
        """The JSON Schema for ``validation`` or ``serialization``; `prefix` stands before the names of its definitions."""
        describe = getattr(self._reader, "model_json_schema", None) or self._reader.json_schema
        schema = dict(describe(mode=mode, ref_template=f"#/$defs/{prefix}{{model}}"))
        if "$defs" in schema:
            schema["$defs"] = {prefix + name: part for name, part in schema["$defs"].items()}
        return schema | rule_schema({"type": "any", **self.extra}) if self.extra else schema

    def build(self, value: Any) -> Any:
        """An instance out of a measured plain value, read as the JSON it came as."""
        for name in ("model_validate_json", "validate_json"):
            validate = getattr(self._reader, name, None)
            if validate is not None:
                return validate(json.dumps(value))
        return self._reader.model_validate(value)


def model_arguments(fields: Mapping[str, Rule], models: Mapping[str, ModelForm], tool: str) -> ArgumentsContract:
    """The contract of arguments some of which are models: the rules of `fields` with the models' schemas in place.

    Keys that a model does not name are refused, unless it says that it takes others. Raises ContractError naming `tool`,
    and MissingExtra without the extra ``jsonschema``.
    """
    schema = fields_schema(fields)
    definitions: dict[str, Any] = {}
    for name, form in models.items():
        part = form.schema("validation")
        if _clash(definitions, part):
            # Two classes of one name are two classes.
            part = form.schema("validation", prefix=f"{name}.")
        definitions |= part.pop("$defs", {})
        schema["properties"][name] = {**part, **schema["properties"][name]}
    if definitions:
        schema["$defs"] = definitions
    return foreign_arguments(schema, tool, deep=True)


def _clash(known: Mapping[str, Any], part: Mapping[str, Any]) -> bool:
    return any(name in known and known[name] != one for name, one in part.get("$defs", {}).items())


@attrs.frozen(eq=False)
class ModelResult:
    """A result measured by a model's schema; instances count as the plain data they write themselves as.

    Raises like `model_arguments`. `empty_ok` makes results without rows an honest answer.
    """

    form: ModelForm
    tool: str = ""
    empty_ok: bool = False
    _measure: ResultContract = attrs.field(init=False)

    @_measure.default
    def _make_measure(self) -> ResultContract:
        return foreign_result(self.form.schema("serialization"), self.tool, empty_ok=self.empty_ok)

    def first_fault(self, value: object) -> str:
        """The first of shape, empty, too_big and range; empty when all is well. Never raises."""
        return self._measure.first_fault(_plain(value))

    def faults(self, value: object) -> tuple[Fault, ...]:
        """Every fault with its place. Never raises."""
        return self._measure.faults(_plain(value))

    def json_schema(self) -> dict[str, Any]:
        """The model's schema; a fresh copy."""
        return self._measure.json_schema()


def _plain(value: Any, depth: int = 0) -> Any:
    """A value with its models, also those inside lists and dicts, written out; an odd one stays and breaks the shape."""
    if depth > _DEEPEST:
        return value
    if isinstance(value, list | tuple):
        return [_plain(one, depth + 1) for one in value]
    if isinstance(value, dict):
        return {key: _plain(one, depth + 1) for key, one in value.items()}
    dump = getattr(value, "model_dump", None)
    if not callable(dump):
        return value
    try:
        return dump(mode="json", by_alias=True)
    except Exception:
        return value
