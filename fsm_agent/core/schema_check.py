"""A JSON Schema prepared for use, and its contradictions, found when the contract is made and told with the mend."""

from __future__ import annotations

import graphlib
from collections.abc import Mapping
from typing import Any, NoReturn

from fsm_agent.core.errors import ContractError
from fsm_agent.core.json_kinds import describe, nests_within
from fsm_agent.core.rule_schema import JSON_TYPES
from fsm_agent.core.schema_keywords import NEVER
from fsm_agent.core.schema_parts import changed, children, parts
from fsm_agent.core.schema_validator import CompiledSchema, Resolver, library, make_validator

_PAIRS = (
    ("minimum", "maximum"), ("exclusiveMinimum", "maximum"), ("minimum", "exclusiveMaximum"),
    ("exclusiveMinimum", "exclusiveMaximum"), ("minLength", "maxLength"), ("minItems", "maxItems"),
    ("minProperties", "maxProperties"), ("minContains", "maxContains"),
)  # fmt: skip
# Keywords whose schemas are applied to the value itself, not to a part of it.
_IN_PLACE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"})
# Checking a schema takes about six times as many frames of the interpreter's stack as it has levels.
_DEEPEST = 64


def compile_schema(schema: object, what: str, integral_floats: bool = False) -> CompiledSchema:
    """A schema ready to measure; `what` is the contract's name in errors. The schema is copied.

    Raises ContractError for what is no schema of Draft 2020-12, a reference that cannot be resolved without fetching,
    and a schema that contradicts itself; MissingExtra where the package is not installed.
    """
    jsonschema = library()
    if not isinstance(schema, Mapping):
        _fail(what, "", f"the schema is {describe(schema)}", "give a mapping")
    if not nests_within(schema, _DEEPEST):
        _fail(what, "", "the schema is nested too deeply or holds itself", f"nest at most {_DEEPEST} levels")
    try:
        # On a copy without `$schema`, so that the older drafts' schemas are judged by the draft that will measure.
        prepared = changed(schema, _prepared)
        jsonschema.Draft202012Validator.check_schema(prepared)
    except jsonschema.SchemaError as why:
        word = JSON_TYPES.get(why.instance) if isinstance(why.instance, str) else None
        mend = f"JSON Schema says {word!r}" if word else "mend it there; Draft 2020-12 is the dialect"
        _fail(what, _pointer(why.path), f"this is no JSON Schema ({describe(why.message, 160)})", mend)
    except Exception as why:
        _fail(what, "", f"the schema cannot be read ({type(why).__name__}: {describe(str(why), 120)})",
              "give plain JSON data, nested a few levels")  # fmt: skip
    compiled = CompiledSchema(make_validator(prepared, integral_floats), _check_references(prepared, what))
    for path, part in parts(prepared):
        _check_part(part, path, compiled, what)
    return compiled


def _prepared(part: Any) -> Any:
    if part is False:
        return dict(NEVER)
    # The package would change to its own, lenient reader wherever a part names its dialect.
    if isinstance(part, dict) and isinstance(part.get("$schema"), str):
        del part["$schema"]
    return part


def _check_references(schema: Any, what: str) -> bool:
    """True when the schema refers to itself; ContractError where a reference leads nowhere, or round without an end."""
    links = _applied(_links(schema, what), id(schema))
    staying = {one: [other for other, stays in others if stays] for one, others in links.items()}
    if _has_circle(staying):
        _fail(what, "", "the schema refers to itself without going into the value", "break the circle of references")
    return _has_circle({one: [other for other, _ in others] for one, others in links.items()})


def _links(schema: Any, what: str) -> dict[int, list[tuple[int, bool]]]:
    """The parts of a schema by identity: which others each applies, and whether to the same place of the value."""
    pending = [(schema, Resolver.of(schema))]
    links: dict[int, list[tuple[int, bool]]] = {}
    while pending:
        part, resolver = pending.pop()
        if not isinstance(part, Mapping) or id(part) in links:
            continue
        links[id(part)] = found = []
        for reference in (part[word] for word in ("$ref", "$dynamicRef") if isinstance(part.get(word), str)):
            target = resolver.follow(reference)
            if target is None:
                _fail(what, "", f"the reference {describe(reference, 200)} leads nowhere here, and nothing is fetched",
                      "put what it means under '$defs' and refer to it as '#/$defs/<name>'")  # fmt: skip
            found.append((id(target[0]), True))
            pending.append(target)
        for steps, one in children(part):
            if steps[0] not in ("$defs", "definitions"):
                found.append((id(one), steps[0] in _IN_PLACE))
            if isinstance(one, Mapping):
                pending.append((one, resolver.inside(one)))
    return links


def _applied(links: Mapping[int, list[tuple[int, bool]]], root: int) -> dict[int, list[tuple[int, bool]]]:
    """The links of the parts that measuring from the root can come to; definitions that nobody uses do not count."""
    found: dict[int, list[tuple[int, bool]]] = {}
    pending = [root]
    while pending:
        one = pending.pop()
        if one in links and one not in found:
            found[one] = links[one]
            pending += [other for other, _ in links[one]]
    return found


def _has_circle(links: Mapping[int, list[int]]) -> bool:
    try:
        graphlib.TopologicalSorter(links).prepare()
    except graphlib.CycleError:
        return True
    return False


def _check_part(part: Mapping[str, Any], path: tuple[Any, ...], compiled: CompiledSchema, what: str) -> None:
    place = _pointer(path)
    for low, high in _PAIRS:
        if low in part and high in part and part[low] > part[high]:
            _fail(what, place, f"{low} {describe(part[low])} is greater than {high} {describe(part[high])}", "swap them")
    if part.get("additionalProperties") == NEVER and "patternProperties" not in part:
        lost = [key for key in part.get("required", ()) if key not in part.get("properties", {})]
        if lost:
            _fail(what, place, f"{describe(lost[0])} is required and not among the properties", "declare it, or take it out")
    if part.get("enum"):
        inner = compiled.part({key: bound for key, bound in part.items() if key != "enum"})
        if all(inner.unmet(option) for option in part["enum"]):
            _fail(what, place, f"no value of enum {describe(part['enum'])} keeps the rest", "mend the enum or the type")
    if "default" in part:
        for one in compiled.part(part).unmet(part["default"]):
            _fail(what, place, f"the default {describe(part['default'])} breaks {one.keyword} {describe(one.bound)}",
                  "give a default that the schema takes")  # fmt: skip


def _pointer(path: Any) -> str:
    return "/".join(("#", *map(str, path)))


def _fail(what: str, place: str, problem: str, mend: str) -> NoReturn:
    raise ContractError(f"{what}{f' at {place}' if place else ''}: {problem}; {mend}") from None
