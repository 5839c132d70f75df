"""Python annotations read as rules of a contract's table, with the way from plain values back to what they name."""

from __future__ import annotations

import collections.abc
import enum
import inspect
import json
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NoReturn, Union

import attrs

from fsm_agent.core.errors import ContractError
from fsm_agent.core.json_kinds import describe, kind_of, same
from fsm_agent.core.markers import constraints, holds_marker
from fsm_agent.core.model_types import ModelForm, holds_model
from fsm_agent.core.rules import Rule, fits
from fsm_agent.core.spec_check import APPLIES_TO

Convert = Callable[[Any], Any]
_SCALARS = ((str, "str"), (int, "int"), (float, "float"), (bool, "bool"), (type(None), "null"), (None, "null"))
_LISTS = (
    list, tuple, collections.abc.Sequence, collections.abc.MutableSequence, collections.abc.Collection,
    collections.abc.Iterable,
)  # fmt: skip
_OBJECTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_CONTEXT = re.compile(r"""['"\s]*[\w.]*\bToolContext(\s*\|\s*None)?['"\s]*""")
# The context's type is often imported for type checkers alone, so it need not be there when the code runs.
_CONTEXT_STAND_IN = type("ToolContext", (), {})
_SUPPORTED = (
    "use str, int, float, bool, None, list[T], dict[str, T], tuple[T, ...], Literal, an Enum, an attrs class, a Pydantic "
    "model, a union of these, or Any"
)


@attrs.frozen
class Annotation:
    """What an annotation says: the rule that measures a plain value, and how that value becomes what the code takes.

    `convert` is None where the plain value is taken as it is; else it takes a value that the rule accepts. `model` is set
    where a model's own schema measures in the rule's place.
    """

    rule: dict[str, Any]
    convert: Convert | None = None
    model: ModelForm | None = None


@attrs.frozen
class Place:
    """The function and the parameter (or return annotation) being read, for errors; `inside` are the open classes."""

    function: str
    what: str
    inside: tuple[type, ...] = ()

    def fail(self, problem: str, mend: str) -> NoReturn:
        """Raise ContractError that names the function, the parameter, the problem and the mend."""
        raise ContractError(f"function {self.function!r}, {self.what}: {problem}; {mend}")


def resolve(annotation: object, names: Mapping[str, Any], place: Place) -> Any:
    """An annotation with its texts evaluated among `names`, ``Annotated`` kept; ContractError for an unknown name."""
    if isinstance(annotation, str) and _CONTEXT.fullmatch(annotation):
        return _CONTEXT_STAND_IN
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(holder, {"ToolContext": _CONTEXT_STAND_IN, **names}, {}, include_extras=True)["it"]
    except Exception as why:
        told = f"{type(why).__name__}: {describe(str(why))}"
    place.fail(f"the annotation {describe(annotation)} cannot be resolved ({told})",
               "import what it names at the top of the module, outside TYPE_CHECKING")  # fmt: skip


def is_context(annotation: Any) -> bool:
    """True when an annotation, or a member of a union, is a type called ToolContext."""
    if typing.get_origin(annotation) in (Union, types.UnionType, Annotated):
        return any(is_context(one) for one in typing.get_args(annotation))
    return getattr(typing.get_origin(annotation) or annotation, "__name__", "") == "ToolContext"


def read_annotation(annotation: Any, place: Place) -> Annotation:
    """Read a resolved annotation; ContractError names the function and parameter of one that no rule can say."""
    if annotation is Any or annotation is object or annotation is inspect.Parameter.empty:
        return Annotation({"type": "any"})
    if holds_model(annotation):
        return _model(annotation, place)
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        base = read_annotation(args[0], place)
        return attrs.evolve(base, rule=base.rule | constraints(annotation.__metadata__))
    if origin is Literal:
        return _choices(args, place)
    if origin in (Union, types.UnionType):
        return _union([read_annotation(one, place) for one in args], place)
    if (origin or annotation) in _LISTS:
        if origin is tuple and not args:
            args = ((),)
        return _list(origin or annotation, args, place)
    if (origin or annotation) in _OBJECTS:
        return _object(args, place)
    scalar = next((name for one, name in _SCALARS if annotation is one), "")
    if scalar:
        return Annotation({"type": scalar})
    if isinstance(annotation, typing.NewType):
        return read_annotation(annotation.__supertype__, place)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return _choices(tuple(annotation), place)
    if isinstance(annotation, type) and attrs.has(annotation):
        return _attrs_class(annotation, place)
    place.fail(f"the annotation {_name(annotation)} is not supported", _SUPPORTED)


def _name(annotation: Any) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else describe(str(annotation), 120)


def _choices(members: tuple[Any, ...], place: Place) -> Annotation:
    plain = [member.value if isinstance(member, enum.Enum) else member for member in members]
    kinds = list(dict.fromkeys(kind_of(value) for value in plain))
    odd = [value for value in plain if kind_of(value) in ("", "list", "object")]
    if odd or not plain:
        place.fail(f"the choice {describe(odd[0])} is no plain value" if odd else "there is no choice to take",
                   "give choices that are texts, numbers, booleans or None")  # fmt: skip
    rule = {"type": kinds[0] if len(kinds) == 1 else kinds, "allowed": plain}
    if not any(isinstance(member, enum.Enum) for member in members):
        return Annotation(rule)
    return Annotation(rule, lambda value: next(m for m, one in zip(members, plain, strict=True) if same(one, value)))


def _list(origin: Any, args: tuple[Any, ...], place: Place) -> Annotation:
    if origin is tuple and args and (len(args) != 2 or args[1] is not Ellipsis):
        place.fail("a tuple of fixed length is not supported", "use tuple[T, ...], or an attrs class with a field for each part")
    item = read_annotation(args[0] if args else Any, place)
    rule: dict[str, Any] = {"type": "list"} if item.rule == {"type": "any"} else {"type": "list", "item": item.rule}
    make, convert = (tuple if origin is tuple else list), item.convert
    if convert is not None:
        return Annotation(rule, lambda value: make(convert(one) for one in value))
    return Annotation(rule, tuple if origin is tuple else None)


def _object(args: tuple[Any, ...], place: Place) -> Annotation:
    if args and args[0] not in (str, Any):
        place.fail(f"an object with keys of type {_name(args[0])} is not supported", "JSON has text keys only: use dict[str, T]")
    each = read_annotation(args[1] if args else Any, place)
    if each.rule == {"type": "any"}:
        return Annotation({"type": "object"})
    rule, convert = {"type": "object", "values": each.rule}, each.convert
    if convert is None:
        return Annotation(rule)
    return Annotation(rule, lambda value: {key: convert(one) for key, one in value.items()})


def _model(annotation: Any, place: Place) -> Annotation:
    """A model, or an annotation that holds one: all of it is the model's library's, but for the markers outside."""
    outer = getattr(annotation, "__metadata__", ()) if typing.get_origin(annotation) is Annotated else ()
    if any(holds_marker(one) for one in typing.get_args(annotation)[: 1 if outer else None]):
        place.fail("Range, Length or Pattern stands inside an annotation with a model", "constrain it by the model's Field")
    if place.inside:
        place.fail(f"the class {place.inside[-1].__qualname__} holds the model {_name(annotation)}",
                   "make that class a model too, or take a dict for the inner one")  # fmt: skip
    extra = constraints(one for one in outer if isinstance(one, str) or holds_marker(one))
    try:
        form = ModelForm(annotation, extra)
        form.schema("validation")
    except Exception as why:
        told = f"{type(why).__name__}: {describe(str(why), 200)}"
    else:
        return Annotation({"type": "any"}, form.build, form)
    place.fail(f"the model {_name(annotation)} has no JSON Schema ({told})", "mend the model, or take a dict")


def _attrs_class(cls: type, place: Place) -> Annotation:
    if cls in place.inside:
        place.fail(f"the class {cls.__qualname__} holds itself", "a contract ends: use dict for the inner one, or a flat class")
    place = Place(place.function, place.what, (*place.inside, cls))
    fields: dict[str, Any] = {}
    converts: dict[str, Convert] = {}
    for one in attrs.fields(cls):
        if not one.init:
            continue
        read = read_annotation(resolve(Any if one.type is None else one.type, _names(cls, one.name), place), place)
        if one.default is attrs.NOTHING:
            fields[one.alias] = read.rule
        elif isinstance(one.default, attrs.Factory):  # type: ignore[arg-type]
            # What a factory makes stays the class's own business: calling it here could do anything.
            fields[one.alias] = {**read.rule, "required": False}
        else:
            fields[one.alias] = optional(read.rule, one.default)
        if read.convert is not None:
            converts[one.alias] = read.convert

    def build(value: Mapping[str, Any]) -> Any:
        return cls(**{key: converts[key](part) if key in converts else part for key, part in value.items()})

    return Annotation({"type": "object", "fields": fields}, build)


def _names(cls: type, field: str) -> dict[str, Any]:
    owner = next((base for base in cls.__mro__ if field in vars(base).get("__annotations__", ())), cls)
    return {cls.__name__: cls, **vars(sys.modules.get(owner.__module__, types))}


def optional(rule: Rule, default: Any) -> dict[str, Any]:
    """A rule that may be absent, with its default where JSON can hold that; else the code's own default holds."""
    plain = to_plain(rule, default)
    try:
        json.dumps(plain)
    except (TypeError, ValueError, RecursionError):
        return {**rule, "required": False}
    return {**rule, "required": False, "default": plain}


def _union(members: list[Annotation], place: Place) -> Annotation:
    rules = [one.rule for one in members]
    kinds = [set(_listed(rule["type"])) for rule in rules]
    if any("any" in names for names in kinds):
        return Annotation({"type": "any"})
    types_ = list(dict.fromkeys(kind for rule in rules for kind in _listed(rule["type"])))
    merged: dict[str, Any] = {"type": types_[0] if len(types_) == 1 else types_}
    merged |= next(({"description": rule["description"]} for rule in rules if "description" in rule), {})
    for key, applies in APPLIES_TO.items():
        concerned = [rule.get(key) for rule, names in zip(rules, kinds, strict=True) if names & applies]
        if any(bound != concerned[0] for bound in concerned[1:]):
            place.fail(f"the members of the union differ in {key}", "give one of them up, or take Any and measure in the body")
        if concerned and concerned[0] is not None:
            merged[key] = concerned[0]
    if any("allowed" in rule for rule in rules):
        if any("allowed" not in rule and rule["type"] != "null" for rule in rules):
            place.fail("some members of the union are choices and some are not", "use choices alone, with None at most")
        merged["allowed"] = [value for rule in rules for value in rule.get("allowed", (None,))]
    if all(one.convert is None for one in members):
        return Annotation(merged)

    def convert(value: Any) -> Any:
        one = next((one for one in members if fits(one.rule, value)), None)
        return value if one is None or one.convert is None else one.convert(value)

    return Annotation(merged, convert)


def _listed(kind: Any) -> list[str]:
    return [kind] if isinstance(kind, str) else list(kind)


def to_plain(rule: Rule, value: Any) -> Any:
    """A value as plain data as far as its rule tells: attrs instances as dicts, members as values, tuples as lists."""
    kinds = _listed(rule.get("type", "any"))
    if "any" in kinds:
        return value
    if isinstance(value, enum.Enum):
        return value.value
    if "list" in kinds and isinstance(value, list | tuple):
        return [to_plain(rule.get("item", {}), one) for one in value]
    if "object" not in kinds:
        return value
    if "fields" in rule and attrs.has(type(value)):
        value = {one.alias: getattr(value, one.name) for one in attrs.fields(type(value)) if one.init}
    if isinstance(value, dict):
        inner = rule.get("fields", {})
        return {key: to_plain(inner.get(key) or rule.get("values", {}), one) for key, one in value.items()}
    return value
