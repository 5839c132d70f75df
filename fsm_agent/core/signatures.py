"""Contracts read from typed Python functions, and the way back: from measured arguments to what the function takes.

Annotations, ``Annotated``, ``Literal``, enums, defaults, docstrings and attrs classes become the rules of a table, so a
function is measured by the same code, with the same reasons, as a table written by hand. Models keep their own schema.
"""

from __future__ import annotations

import functools
import inspect
import re
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs

from fsm_agent.core.annotations import Annotation, Place, is_context, optional, read_annotation, resolve, to_plain
from fsm_agent.core.contracts import ArgumentsContract, ResultContract, TableArguments
from fsm_agent.core.errors import ContractError
from fsm_agent.core.json_kinds import describe
from fsm_agent.core.model_types import ModelForm, ModelResult, model_arguments
from fsm_agent.core.rule_schema import rule_schema
from fsm_agent.core.rules import Rule
from fsm_agent.core.spec_check import check_arguments, check_returns
from fsm_agent.core.table_faults import value_fault, value_faults
from fsm_agent.core.values import Fault

_SECTION = re.compile(r"(Args|Arguments|Parameters|Params):\s*")
_ENTRY = re.compile(r"(?P<indent>\s+)\*{0,2}(?P<name>\w+)\s*(\([^)]*\))?\s*:(?P<text>.*)")
_FIELD = re.compile(r"\s*:(?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?\*{0,2}(?P<name>\w+)\s*:(?P<text>.*)")
_WRAPPERS = 50


@attrs.frozen(eq=False)
class TypedResult:
    """A result measured by a function's return annotation, as `rule`; attrs instances and tuples count as plain data.

    `empty_ok` makes results without rows an honest answer.
    """

    rule: Rule
    empty_ok: bool = False

    def first_fault(self, value: object) -> str:
        """The first of shape, empty, too_big and range; empty when all is well. Never raises."""
        return value_fault(self.rule, self._plain(value), self.empty_ok)

    def faults(self, value: object) -> tuple[Fault, ...]:
        """Every fault with its place. Never raises."""
        return value_faults(self.rule, self._plain(value), self.empty_ok)

    def json_schema(self) -> dict[str, Any]:
        """The return annotation as a JSON Schema."""
        return rule_schema(self.rule)

    def _plain(self, value: object) -> object:
        try:
            return to_plain(self.rule, value)
        except Exception:  # an odd instance is measured as what it is, and breaks the shape
            return value


def arguments_of(fn: Callable[..., Any]) -> ArgumentsContract:
    """The contract of a function's arguments: one rule a parameter, by its annotation, default and docstring.

    Where a parameter is a model it is one JSON Schema with the model's own inside, which needs the extra ``jsonschema``.

    A parameter without annotation takes anything; the one that takes the ToolContext, and those bound by
    ``functools.partial``, are no arguments. Raises ContractError, naming function and parameter, for an annotation that
    cannot be read, ``*args``, ``**kwargs``, positional-only parameters and defaults that break their own annotation.
    """
    described = argument_descriptions(fn)
    fields: dict[str, Rule] = {}
    models: dict[str, ModelForm] = {}
    for parameter, read in _parameters(fn):
        rule = read.rule
        if read.model is not None:
            models[parameter.name] = read.model
        if parameter.default is not inspect.Parameter.empty:
            rule = optional(rule, parameter.default)
        if parameter.name in described:
            rule = {"description": described[parameter.name], **rule}
        fields[parameter.name] = rule
    check_arguments(fields, _name(fn))
    return model_arguments(fields, models, _name(fn)) if models else TableArguments(fields)


def argument_builder(fn: Callable[..., Any]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """A function that makes measured plain arguments into what `fn` takes: attrs and model instances, members, tuples.

    Read once, when the tool is built. What the class's own validators raise passes through. ContractError as in
    `arguments_of`.
    """
    converts = {parameter.name: read.convert for parameter, read in _parameters(fn) if read.convert is not None}

    def build(args: Mapping[str, Any]) -> dict[str, Any]:
        return {name: converts[name](value) if name in converts else value for name, value in args.items()}

    return build


def result_of(fn: Callable[..., Any], empty_ok: bool = False) -> ResultContract | None:
    """The contract of a function's result by its return annotation; None where there is none, or it is Any.

    Raises ContractError for a return annotation that cannot be read.
    """
    place = Place(_name(fn), "its return annotation")
    annotation = resolve(_signature(fn).return_annotation, _names(fn), place)
    read = read_annotation(annotation, place)
    if read.model is not None:
        return ModelResult(read.model, _name(fn), empty_ok)
    rule = read.rule
    if rule == {"type": "any"}:
        return None
    check_returns({"return": rule}, _name(fn))
    return TypedResult(rule, empty_ok)


def context_parameter(fn: Callable[..., Any]) -> str | None:
    """The name of the parameter whose annotation is called ToolContext; None where a function takes no context."""
    for name, parameter in _signature(fn).parameters.items():
        if is_context(resolve(parameter.annotation, _names(fn), Place(_name(fn), f"parameter {name!r}"))):
            return name
    return None


def description_of(fn: Callable[..., Any]) -> str:
    """The first paragraph of a function's docstring in one line; empty where there is none."""
    paragraph = _docstring(fn).strip().partition("\n\n")[0]
    return " ".join(paragraph.split())


def argument_descriptions(fn: Callable[..., Any]) -> dict[str, str]:
    """What a docstring says of each parameter, in the styles of Google (``Args:``) and Sphinx (``:param name:``)."""
    found: dict[str, list[str]] = {}
    for name, text in _described(_docstring(fn).splitlines()):
        found.setdefault(name, []).append(text.strip())
    return {name: text for name, parts in found.items() if (text := " ".join(" ".join(parts).split()))}


def _described(lines: list[str]) -> Iterator[tuple[str, str]]:
    section, indent, name = False, "", ""
    for line in lines:
        field = _FIELD.fullmatch(line)
        entry = _ENTRY.fullmatch(line) if section else None
        own = len(line) - len(line.lstrip())
        if field:
            section, indent, name = False, line[:own], field["name"]
            yield name, field["text"]
        elif _SECTION.fullmatch(line):
            section, indent, name = True, "", ""
        elif entry and (not indent or entry["indent"] == indent):
            indent, name = entry["indent"], entry["name"]
            yield name, entry["text"]
        elif name and own > len(indent):
            yield name, line
        elif line.strip() or not section:
            # A line no deeper than the entry ends it; a blank one ends a Sphinx field, not a Google section.
            section, name = False, ""


def _parameters(fn: Callable[..., Any]) -> Iterator[tuple[inspect.Parameter, Annotation]]:
    bound = _bound_names(fn)
    for name, parameter in _signature(fn).parameters.items():
        place = Place(_name(fn), f"parameter {name!r}")
        if name in bound:
            continue
        if parameter.kind is parameter.VAR_POSITIONAL or parameter.kind is parameter.VAR_KEYWORD:
            place.fail("it takes arguments that no contract names", "name each argument as a parameter of its own")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            place.fail("it is positional-only, and calls name their arguments", "take the / out of the signature")
        annotation = resolve(parameter.annotation, _names(fn), place)
        if not is_context(annotation):
            yield parameter, read_annotation(annotation, place)


def _signature(fn: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError, NameError) as why:
        raise ContractError(
            f"function {_name(fn)!r}: its signature cannot be read ({describe(str(why), 160)}); "
            "give a Python function, or a table of its arguments"
        ) from None


def _bound_names(fn: Any) -> set[str]:
    # What partial binds by name is the host's (a key, a client): a model must neither see nor override it.
    return set(fn.keywords) if isinstance(fn, functools.partial) else set()


def _layers(fn: Any) -> Iterator[Any]:
    """A callable and what it wraps, from the outside to the plain function."""
    for _ in range(_WRAPPERS):
        yield fn
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif isinstance(fn, types.MethodType):
            fn = fn.__func__
        elif hasattr(fn, "__wrapped__"):
            fn = fn.__wrapped__
        elif isinstance(fn, type):
            fn = inspect.getattr_static(fn, "__init__")
        elif callable(fn) and not inspect.isroutine(fn):
            fn = type(fn).__call__
        else:
            return


def _names(fn: Callable[..., Any]) -> Mapping[str, Any]:
    return next((layer.__globals__ for layer in reversed(list(_layers(fn))) if hasattr(layer, "__globals__")), {})


def _name(fn: Callable[..., Any]) -> str:
    named = (getattr(layer, "__qualname__", None) for layer in _layers(fn))
    return next((name for name in named if isinstance(name, str)), type(fn).__qualname__)


def _docstring(fn: Callable[..., Any]) -> str:
    layers = [fn] if isinstance(fn, type) else list(_layers(fn))
    # An instance answers with its class's documentation, so it comes after `__call__`; a partial's is about partial.
    layers = sorted((layer for layer in layers if not isinstance(layer, functools.partial)), key=_is_object)
    documented = (getattr(layer, "__doc__", None) for layer in layers)
    return next((inspect.cleandoc(text) for text in documented if isinstance(text, str) and text.strip()), "")


def _is_object(layer: object) -> bool:
    return not inspect.isroutine(layer)
