"""The one file that knows the package ``jsonschema``: a schema compiled, and what a value breaks of it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import attrs

from fsm_agent.core.errors import MissingExtra
from fsm_agent.core.json_kinds import describe, is_number, key_name, kind_of, nests_within
from fsm_agent.core.rules import Path
from fsm_agent.core.schema_keywords import Keywords
from fsm_agent.core.text_formats import FORMATS

# A schema that refers to itself is walked this deep; each level takes several frames of the interpreter's stack.
_DEEPEST = 50


@attrs.frozen
class Unmet:
    """One keyword of a schema that a value does not keep: the word, the place in the value, the word's own value."""

    keyword: str
    path: Path
    bound: Any
    value: Any


@attrs.frozen
class CompiledSchema:
    """A schema ready to measure: the package's `validator`, and whether the schema refers to itself (`recursive`)."""

    validator: Any
    recursive: bool

    def part(self, schema: Mapping[str, Any]) -> CompiledSchema:
        """Another schema, or a part of this one, read in the same way and with the same definitions."""
        return CompiledSchema(self.validator.evolve(schema=schema), self.recursive)

    def unmet(self, value: object) -> list[Unmet]:
        """Every keyword that a value does not keep; never raises. One too deep to walk breaks the word ``nesting``."""
        try:
            return (_too_deep(value) if self.recursive else []) or _unmet(self.validator, value)
        except RecursionError:
            return [_nesting((), value)]
        except Exception as why:
            return [Unmet("unreadable", (), f"a schema and a value that can be read ({describe(str(why), 120)})", value)]
        except BaseException as why:
            # Out of stack the package's compiled parts do not raise but panic, which is no Exception.
            if type(why).__name__ != "PanicException":
                raise
            return [_nesting((), value)]


def _nesting(path: Path, value: object) -> Unmet:
    return Unmet("nesting", path, f"at most {_DEEPEST} levels", value)


def _too_deep(value: object) -> list[Unmet]:
    if isinstance(value, dict):
        return [_nesting((key_name(key),), one) for key, one in value.items() if not nests_within(one, _DEEPEST)]
    return [] if nests_within(value, _DEEPEST) else [_nesting((), value)]


def _unmet(validator: Any, value: object) -> list[Unmet]:
    found = [Unmet(str(one.validator), tuple(one.path), one.validator_value, one.instance) for one in validator.iter_errors(value)]
    # A value of the wrong type breaks nothing else worth telling.
    mistyped = {one.path for one in found if one.keyword == "type"}
    return [one for one in found if one.keyword == "type" or one.path not in mistyped]


def library(purpose: str = "a contract given as JSON Schema") -> Any:
    """The package ``jsonschema``; MissingExtra, with what it is needed for, where it is not installed."""
    try:
        import jsonschema  # type: ignore[import-untyped]
    except ImportError:
        raise MissingExtra("jsonschema", "jsonschema", purpose) from None
    return jsonschema


def make_validator(schema: Mapping[str, Any], integral_floats: bool) -> Any:
    """A validator of `schema` that fetches nothing; `integral_floats` lets 2.0 pass as an integer."""
    cls, formats = _validator_class(integral_floats)
    return cls(schema, registry=_closed_registry(), format_checker=formats)


def _closed_registry() -> Any:
    import referencing

    def refuse(uri: str) -> Any:
        raise LookupError(uri)

    registry: Any = referencing.Registry
    return registry(retrieve=refuse)


@attrs.frozen
class Resolver:
    """Follows the references of a schema, from the part where it stands, without fetching anything."""

    inner: Any

    @classmethod
    def of(cls, schema: Mapping[str, Any]) -> Resolver:
        """A resolver that stands at the root of a schema; it knows the dialects' own schemas too."""
        import jsonschema_specifications  # type: ignore[import-untyped]
        from referencing.jsonschema import DRAFT202012

        registry = jsonschema_specifications.REGISTRY.combine(_closed_registry())
        return cls(registry.resolver_with_root(DRAFT202012.create_resource(schema)))

    def inside(self, part: Mapping[str, Any]) -> Resolver:
        """The resolver of a part of the schema where this one stands."""
        from referencing.jsonschema import DRAFT202012

        return Resolver(self.inner.in_subresource(DRAFT202012.create_resource(part)))

    def follow(self, reference: str) -> tuple[Any, Resolver] | None:
        """What a reference means, with its own resolver; None where it leads nowhere."""
        from referencing.exceptions import Unresolvable

        try:
            found = self.inner.lookup(reference)
        except Unresolvable:
            return None
        return found.contents, Resolver(found.resolver)


@functools.cache
def _validator_class(integral_floats: bool) -> tuple[Any, Any]:
    jsonschema = library()
    draft = jsonschema.Draft202012Validator

    def is_integer(_: object, value: object) -> bool:
        return kind_of(value) == "int" or (integral_floats and isinstance(value, float) and value.is_integer())

    checker = draft.TYPE_CHECKER.redefine_many({"integer": is_integer, "number": lambda _, value: is_number(value)})
    keywords = Keywords(jsonschema.ValidationError, draft.VALIDATORS, integral_floats).table()
    formats = jsonschema.FormatChecker(draft.FORMAT_CHECKER.checkers)
    for name, test in FORMATS.items():
        if name not in formats.checkers:
            formats.checks(name)(lambda value, test=test: not isinstance(value, str) or test(value))
    return jsonschema.validators.extend(draft, validators=keywords, type_checker=checker), formats
