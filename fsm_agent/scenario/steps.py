"""The steps of a scenario file, those of lists that are played at once as well, each with its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

DRIVES = ("run", "resume")
"""The steps that drive a run."""


def steps(ops: Any, place: str = "ops") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every step, in order of writing."""
    for number, step in enumerate(ops or ()):
        here = f"{place}/{number}"
        yield here, step
        for other, listed in enumerate(step.get("together", ())):
            yield from steps(listed, f"{here}/together/{other}")


def models(keys: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The models of a file and of its steps."""
    if "model" in keys:
        yield "model", keys["model"]
    for place, step in steps(keys.get("ops")):
        run = step.get("run") or {}
        if "model" in run:
            yield f"{place}/run/model", run["model"]


def people(keys: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What people decide, in the file and in its steps."""
    yield from ((f"person/{number}", one) for number, one in enumerate(keys.get("person", ())))
    for place, step in steps(keys.get("ops")):
        if "person" in step:
            yield f"{place}/person", step["person"]


def expectations(keys: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What a file expects, and what its steps do."""
    yield "expect", keys.get("expect", {})
    for place, step in steps(keys.get("ops")):
        yield f"{place}/expect", step.get("expect", {})
