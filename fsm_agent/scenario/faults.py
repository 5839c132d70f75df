"""What a document breaks of the published format, in one sentence that names the place and the key."""

from __future__ import annotations

import difflib
from typing import Any

from fsm_agent.core.short_text import short
from fsm_agent.scenario.matching import listed

_VERBS = "run resume person client message save load advance_s cancel crash together"
_KEYS = ("required", "additionalProperties")


def fault_of(error: Any) -> str:
    """The most telling fault of a validation error and of those it is made of."""
    error = _deepest(error)
    place = "/".join(map(str, error.absolute_path)) or "the file"
    return f"{place}: {_words(error)}"


def _deepest(error: Any) -> Any:
    """Of alternatives follow the one whose type fits, and in it the fault that lies deepest."""
    found = [(len(faults), _worst(faults)) for faults in _fitting(error) or _lacking(error)]
    return min(found, key=lambda one: (one[0], -_depth(one[1])))[1] if found else error


def _worst(faults: list[Any]) -> Any:
    return _deepest(max(faults, key=lambda one: (_depth(one), one.validator == "additionalProperties")))


def _depth(error: Any) -> int:
    return len(error.absolute_path)


def _fitting(error: Any) -> list[list[Any]]:
    """The faults of each alternative that the value is a kind of."""
    return [faults for faults in _branches(error) if not any(map(_is_other, _here(error, faults)))]


def _lacking(error: Any) -> list[list[Any]]:
    """Those of the one alternative that lacks nothing but a key, where every other is of another kind."""
    lacking = [faults for faults in _branches(error) if all(one.validator in _KEYS for one in _here(error, faults))]
    return lacking if len(lacking) == 1 else []


def _branches(error: Any) -> list[list[Any]]:
    branches: dict[Any, list[Any]] = {}
    for one in error.context:
        branches.setdefault(one.schema_path[0], []).append(one)
    return list(branches.values())


def _here(error: Any, faults: list[Any]) -> list[Any]:
    return [one for one in faults if one.absolute_path == error.absolute_path]


def _is_other(error: Any) -> bool:
    """Whether something of another kind is wanted, or one of alternatives that are all of another kind."""
    return error.validator in ("type", "const", "enum", "required") or (bool(error.context) and not _fitting(error))


def _words(error: Any) -> str:
    got = short(error.instance, 60)
    match error.validator:
        case "additionalProperties":
            return _unknown_key(error)
        case "required":
            missing = [key for key in error.validator_value if key not in error.instance]
            return f"the key {missing[0]!r} is missing"
        case "oneOf" if not any(one["required"] == ["run"] for one in error.validator_value):
            return _one_of(error)
        case "oneOf":
            verbs = [verb for verb in _VERBS.split() if isinstance(error.instance, dict) and verb in error.instance]
            return f"a step has exactly one of {', '.join(_VERBS.split())}; this one has {', '.join(verbs) or 'none'}"
        case "dependentRequired":
            key, needed = next((key, one) for key, of in error.validator_value.items() for one in of if one not in error.instance)
            return f"the key {key!r} says nothing without {needed!r}"
        case "minProperties":
            return "it is empty, and so it says nothing"
        case "not":
            return f"the keys {' and '.join(error.validator_value.get('required', ['?']))} exclude each other"
        case "enum":
            return f"{got} is none of {', '.join(short(one, 40) for one in error.validator_value)}"
        case "const":
            return f"{got} is not {short(error.validator_value, 60)}"
        case "type":
            return f"expected {' or '.join(listed(error.validator_value))}, got {got}"
        case "anyOf" if all("required" in one for one in error.validator_value):
            return f"one of {' and '.join(one['required'][0] for one in error.validator_value)} is missing"
        case "anyOf":
            return f"expected {_alternatives(error)}, got {got}"
    return short(error.message, 200)[1:-1]


def _one_of(error: Any) -> str:
    wanted = [one["required"][0] for one in error.validator_value]
    has = [key for key in wanted if key in error.instance]
    return f"it has exactly one of {', '.join(wanted)}; this one has {', '.join(has) or 'none'}"


def _unknown_key(error: Any) -> str:
    known = list(error.schema.get("properties", {}))
    unknown = next(key for key in error.instance if key not in known)
    near = difflib.get_close_matches(unknown, known, 1)
    mend = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known) or 'none'}"
    return f"unknown key {unknown!r}; {mend}"


def _alternatives(error: Any) -> str:
    return " or ".join(dict.fromkeys(_kinds(error))) or "another value"


def _kinds(error: Any) -> list[str]:
    kinds: list[str] = []
    for one in error.context:
        wanted = one.validator_value
        if one.validator == "type":
            kinds.append(wanted)
        elif one.validator in ("const", "enum"):
            kinds += [short(value, 40) for value in listed(wanted)]
        elif one.context:
            kinds += _kinds(one)
    return kinds
