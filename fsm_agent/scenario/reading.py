"""Scenario files read: JSON or TOML, checked against the published format, their special values made.

Everything that is wrong with a file is one line with the file and the place in it.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NoReturn

import attrs

from fsm_agent.core.errors import BuildError
from fsm_agent.core.schema_validator import library
from fsm_agent.core.short_text import short
from fsm_agent.core.table import Table
from fsm_agent.scenario.faults import fault_of
from fsm_agent.scenario.matching import listed
from fsm_agent.scenario.mistyped import wrong_word
from fsm_agent.scenario.steps import DRIVES, steps
from fsm_agent.scenario.values import BadValue, decoded, with_nulls

MODES = ("sync", "async")
ENDINGS = (".json", ".toml")
_TOO_DEEP = "it nests too deep to be read"
# Folders of tools and of other people's packages, in which a file that ends in .json is no scenario.
_NOT_OURS = frozenset({"__pycache__", "node_modules"})


class ScenarioError(BuildError):
    """A scenario file cannot be read or is no scenario; the message names the file and the place in it."""


@attrs.frozen(kw_only=True)
class Scenario:
    """One scenario: its name, the file it stands in, and the keys of the file with special values made.

    `modes` are those in which it is to run, in order.
    """

    id: str
    path: Path
    keys: dict[str, Any]
    modes: tuple[str, ...] = MODES


def files_in(places: Iterable[str | Path]) -> list[Path]:
    """The scenario files that are named or stand in named folders, however deep, sorted by path within each folder.

    Hidden folders inside of a named one are left out, and those of packages and caches (``node_modules``, ``__pycache__``).
    Raises ScenarioError for a place that is not there and for a folder that holds none.
    """
    found: list[Path] = []
    for place in map(Path, places):
        if place.is_dir():
            inside = sorted(path for path in place.rglob("*") if path.suffix in ENDINGS and _is_ours(path, place) and path.is_file())
            if not inside:
                raise ScenarioError(f"{place}: the folder holds no scenario (*.json, *.toml)")
            found += inside
        elif place.exists():
            found.append(place)
        else:
            raise ScenarioError(f"{place}: there is no such file or folder")
    return found


def _is_ours(path: Path, place: Path) -> bool:
    return not any(folder.startswith(".") or folder in _NOT_OURS for folder in path.relative_to(place).parts[:-1])


def read_file(path: str | Path) -> Scenario:
    """The scenario in a file; raises ScenarioError for what is none, MissingExtra without the package ``jsonschema``."""
    path = Path(path)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ScenarioError(f"{path}: {error.strerror or type(error).__name__}") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path}: byte 0x{raw[error.start]:02x} at position {error.start} is not UTF-8") from None
    return scenario_of(_parsed(path, text), path)


def scenario_of(document: Any, path: str | Path = "scenario") -> Scenario:
    """The scenario that a document (plain JSON data) describes; `path` is what errors call it."""
    path = Path(path)
    try:
        document = with_nulls(document)
        if fault := _fault(document):
            raise ScenarioError(f"{path}: {fault}")
        keys = _decoded(document, ())
    except RecursionError:
        raise ScenarioError(f"{path}: {_TOO_DEEP}") from None
    except BadValue as error:
        raise ScenarioError(f"{path}: {error}") from None
    if fault := _not_finite(keys) or wrong_word(keys, machine_named(keys.get("machine", "agent"))):
        raise ScenarioError(f"{path}: {fault}")
    modes = tuple(dict.fromkeys(listed(keys.get("mode", list(MODES)))))
    return Scenario(id=keys.get("id") or path.stem, path=path, keys=keys, modes=modes)


@cache
def format_schema() -> dict[str, Any]:
    """The published format, a JSON Schema (Draft 2020-12)."""
    text = files("fsm_agent.scenario").joinpath("format.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


@cache
def _validator() -> Any:
    return library("a scenario file").Draft202012Validator(format_schema())


def _fault(document: Any) -> str:
    validator = _validator()
    errors = sorted(validator.iter_errors(document), key=lambda error: (len(error.absolute_path), str(error.absolute_path)))
    return fault_of(errors[0]) if errors else ""


def _not_finite(keys: dict[str, Any]) -> str:
    """The first limit that TOML wrote as ``nan`` or ``inf``, with its place."""
    places = [("limits", keys), *((f"{at}/{verb}/limits", step.get(verb) or {}) for at, step in steps(keys.get("ops")) for verb in DRIVES)]
    for place, one in places:
        for name, figure in one.get("limits", {}).items():
            if isinstance(figure, float) and not math.isfinite(figure):
                return f"{place}/{name}: {figure} is no limit; give a finite number, or leave the limit out"
    return ""


def machine_named(name: str) -> Table:
    """The machine that a file names: ``agent``, or ``autogpt`` of seed 002."""
    if name == "autogpt":
        from fsm_agent.core.autogpt_table import AUTOGPT

        return AUTOGPT
    from fsm_agent.core.agent_table import AGENT

    return AGENT


def _decoded(value: Any, place: tuple[str, ...]) -> Any:
    """The document with the special values of its free places made; contracts in JSON Schema and templates stay."""
    if _is_free(place):
        try:
            return decoded(value, in_body="does" in place)
        except BadValue as error:
            raise BadValue(f"{'/'.join(place)}: {error}") from None
    if isinstance(value, dict):
        return {key: _decoded(one, (*place, key)) for key, one in value.items()}
    if isinstance(value, list):
        return [_decoded(one, (*place, str(n))) for n, one in enumerate(value)]
    return value


# What stands below these keys are values of the author's own, or texts that may be written as repetitions.
_FREE = frozenset({
    "query", "args", "args_raw", "return", "value", "raw", "final", "message", "edit", "verifier", "reason", "text", "intent", "changed",
    "sleep_s", "retry_after_s", "cache_ttl_s", "negative_ttl_s", "ttl_s", "text_has", "text_lacks", "has", "lacks", "model_saw",
    "tool_args", "tool_args_in", "deltas", "tool", "returns", "closing",
})  # fmt: skip
_NAMED = frozenset({"tools", "tool_runs", "distinct_args", "allowed", "max_same_tool_calls", "pending", "post"})


def _is_free(place: tuple[str, ...]) -> bool:
    return bool(place) and place[-1] in _FREE and (len(place) < 2 or place[-2] not in _NAMED)


def _parsed(path: Path, text: str) -> Any:
    kind = "TOML" if path.suffix == ".toml" else "JSON"
    try:
        return tomllib.loads(text) if kind == "TOML" else _READER.decode(text.strip())
    except json.JSONDecodeError as error:
        why = f"no JSON: {error.msg} at line {error.lineno} column {error.colno}"
    except ValueError as error:
        why = f"no {kind}: {error}"
    except RecursionError:
        why = _TOO_DEEP
    raise ScenarioError(f"{path}: {why}")


def _entries(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in pairs:
        if name in made:
            raise ValueError(f"the key {short(name, 60)} stands twice in one object")
        made[name] = value
    return made


def _constant(name: str) -> NoReturn:
    raise ValueError(f'{name} is no JSON number; write {{"$float": "{name.lower().replace("infinity", "inf")}"}}')


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f'a number of {len(text)} digits is too long; write {{"$int": ...}}') from None


_READER = json.JSONDecoder(object_pairs_hook=_entries, parse_constant=_constant, parse_int=_whole)
