"""What the keywords of JSON Schema say of a value, where the package's own answer will not do.

The package ``jsonschema`` walks the schema and resolves references. What it says of single values is replaced, for four
reasons: integers and ``enum`` are strict, NaN breaks every bound, each missing or extra key is a fault of its own with
its own place, and no message writes out the value, which may be too long, too deep or refuse to be shown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sized
from fractions import Fraction
from typing import Any

import attrs

from fsm_agent.core.json_kinds import is_number, key_name, same
from fsm_agent.core.patterns import found

# The schema that nothing keeps; it stands where a schema is `false`, for which the package writes out the value.
NEVER: Mapping[str, Any] = {"not": {}}
Keyword = Callable[[Any, Any, Any, Any], Iterator[Any]]


def _bounded(keeps: Callable[[Any, Any], bool]) -> Callable[..., bool]:
    return lambda validator, bound, value, schema: not is_number(value) or keeps(value, bound)


def _sized(kind: type[Sized], keeps: Callable[[int, int], bool]) -> Callable[..., bool]:
    return lambda validator, bound, value, schema: not isinstance(value, kind) or keeps(len(value), bound)


def _is_multiple(value: Any, bound: Any) -> bool:
    # Through decimal text, so that 0.3 is a multiple of 0.1 as its writer means it.
    exact = [Fraction(one) if isinstance(one, int) else Fraction(repr(one)) for one in (value, bound)]
    return (exact[0] / exact[1]).denominator == 1


def _is_unique(value: Any) -> bool:
    seen: set[str] = set()
    odd: list[Any] = []
    for one in value:
        try:
            key = json.dumps(one, sort_keys=True)
        except (TypeError, ValueError, RecursionError):
            if any(same(one, other) for other in odd):
                return False
            odd.append(one)
            continue
        if key in seen:
            return False
        seen.add(key)
    return True


def _contains(validator: Any, bound: Any, value: Any, schema: Any) -> bool:
    if not isinstance(value, list):
        return True
    inner = validator.evolve(schema=bound)
    count = sum(inner.is_valid(one) for one in value)
    return bool(schema.get("minContains", 1) <= count <= schema.get("maxContains", len(value)))


_TESTS: Mapping[str, Callable[..., bool]] = {
    "type": lambda validator, bound, value, schema: any(
        validator.is_type(value, one) for one in ([bound] if isinstance(bound, str) else bound)
    ),
    "minimum": _bounded(lambda value, bound: value >= bound),
    "maximum": _bounded(lambda value, bound: value <= bound),
    "exclusiveMinimum": _bounded(lambda value, bound: value > bound),
    "exclusiveMaximum": _bounded(lambda value, bound: value < bound),
    "multipleOf": _bounded(_is_multiple),
    "minLength": _sized(str, lambda size, bound: size >= bound),
    "maxLength": _sized(str, lambda size, bound: size <= bound),
    "minItems": _sized(list, lambda size, bound: size >= bound),
    "maxItems": _sized(list, lambda size, bound: size <= bound),
    "minProperties": _sized(dict, lambda size, bound: size >= bound),
    "maxProperties": _sized(dict, lambda size, bound: size <= bound),
    "uniqueItems": lambda validator, bound, value, schema: not bound or not isinstance(value, list) or _is_unique(value),
    "pattern": lambda validator, bound, value, schema: not isinstance(value, str) or found(bound, value),
    "format": lambda validator, bound, value, schema: validator.format_checker.conforms(value, bound),
    "contains": _contains,
    "not": lambda validator, bound, value, schema: not validator.evolve(schema=bound).is_valid(value),
}


class _Watched:
    """A validator that notes at which keys the package's own code finds something wrong."""

    def __init__(self, validator: Any) -> None:
        self._validator = validator
        self.keys: dict[Any, None] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._validator, name)

    def descend(self, value: Any, schema: Any, path: Any = None, **rest: Any) -> Iterator[Any]:
        found = list(self._validator.descend(value, schema, path=path, **rest))
        if found and path is not None:
            self.keys[path] = None
        return iter(found)


@attrs.frozen
class Keywords:
    """The keywords that are read here, not by the package: `error` makes its errors, `own` are its own readers."""

    error: Any
    own: Mapping[str, Keyword]
    integral_floats: bool

    def table(self) -> dict[str, Keyword]:
        """Every keyword that a validator made with these goes by, by its name."""
        tests = {
            **_TESTS,
            "enum": lambda validator, bound, value, schema: any(self._equal(one, value) for one in bound),
            "const": lambda validator, bound, value, schema: self._equal(bound, value),
            "unevaluatedItems": lambda *given: next(self.own["unevaluatedItems"](*given), None) is None,
        }
        return {
            **{word: self._tested(test) for word, test in tests.items()},
            "required": self._required,
            "dependentRequired": self._dependent,
            "properties": self.own["properties"],
            "patternProperties": self._patterns,
            "additionalProperties": self._additional,
            "unevaluatedProperties": self._unevaluated,
            "propertyNames": self._names,
            "anyOf": self._any_of,
            "oneOf": self._one_of,
        }

    def _equal(self, one: Any, other: Any) -> bool:
        if self.integral_floats and is_number(one) and is_number(other):
            return bool(one == other)
        return same(one, other)

    def _tested(self, test: Callable[..., bool]) -> Keyword:
        def keyword(validator: Any, bound: Any, value: Any, schema: Any) -> Iterator[Any]:
            try:
                kept = test(validator, bound, value, schema)
            except RecursionError:  # the whole value is too deep; half of an answer would be wrong under `not`
                raise
            except Exception:
                kept = False
            if not kept:
                yield self.error("")

        return keyword

    def _at(self, key: Any, value: Any = None) -> Any:
        return self.error("", path=(key_name(key),), instance=value)

    def _required(self, validator: Any, bound: Any, value: Any, schema: Any) -> Iterator[Any]:
        if isinstance(value, dict):
            yield from (self._at(key) for key in bound if key not in value)

    def _dependent(self, validator: Any, bound: Any, value: Any, schema: Any) -> Iterator[Any]:
        for key, wanted in bound.items() if isinstance(value, dict) else ():
            if key in value:
                yield from (self._at(other) for other in wanted if other not in value)

    def _patterns(self, validator: Any, bound: Any, value: Any, schema: Any) -> Iterator[Any]:
        for key, part in value.items() if isinstance(value, dict) else ():
            for pattern, inner in bound.items():
                if isinstance(key, str) and found(pattern, key):
                    yield from validator.descend(part, inner, path=key, schema_path=pattern)

    def _additional(self, validator: Any, bound: Any, value: Any, schema: Any) -> Iterator[Any]:
        declared, patterns = schema.get("properties", ()), schema.get("patternProperties", ())
        for key, part in value.items() if isinstance(value, dict) else ():
            if key in declared or (isinstance(key, str) and any(found(one, key) for one in patterns)):
                continue
            yield from self._surplus(validator, bound, key, part)

    def _unevaluated(self, validator: Any, bound: Any, value: Any, schema: Any) -> Iterator[Any]:
        if isinstance(value, dict):
            watched = _Watched(validator)
            for _ in self.own["unevaluatedProperties"](watched, bound, value, schema):
                pass
            for key in watched.keys:
                yield from self._surplus(validator, bound, key, value[key])

    def _surplus(self, validator: Any, bound: Any, key: Any, part: Any) -> Iterator[Any]:
        if bound == NEVER:
            yield self._at(key, part)
        else:
            yield from validator.descend(part, bound, path=key_name(key))

    def _names(self, validator: Any, bound: Any, value: Any, schema: Any) -> Iterator[Any]:
        inner = validator.evolve(schema=bound)
        for key, part in value.items() if isinstance(value, dict) else ():
            if not inner.is_valid(key):
                yield self._at(key, part)

    def _any_of(self, validator: Any, bound: Any, value: Any, schema: Any) -> Iterator[Any]:
        tried = [list(validator.descend(value, one, schema_path=index)) for index, one in enumerate(bound)]
        if all(tried):
            yield from self._meant(tried)

    def _one_of(self, validator: Any, bound: Any, value: Any, schema: Any) -> Iterator[Any]:
        tried = [list(validator.descend(value, one, schema_path=index)) for index, one in enumerate(bound)]
        if all(tried):
            yield from self._meant(tried)
        elif sum(not found for found in tried) > 1:
            yield self.error("")

    def _meant(self, tried: list[list[Any]]) -> Iterator[Any]:
        # Where one branch alone takes values of this type (the usual "T or null"), its own faults say what is wrong.
        fitting = [found for found in tried if not any(one.validator == "type" and not one.path for one in found)]
        yield from fitting[0] if len(fitting) == 1 else [self.error("")]
