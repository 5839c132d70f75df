"""A verdict in one line, for people or as JSON."""

from __future__ import annotations

import json
from typing import Any

from fsm_agent.core.plain import storable
from fsm_agent.core.short_text import cut, printable
from fsm_agent.scenario.expecting import Outcome
from fsm_agent.scenario.matching import figure_words, shown
from fsm_agent.scenario.runner import Verdict

_LONGEST = 1200
_FIGURES = frozenset({"model_turns", "verifier_runs", "waited_s"})


def line(verdict: Verdict) -> str:
    """One line: whether the scenario holds, its name and mode, what was expected and what came."""
    word = "ok  " if verdict.holds else "FAIL"
    # Of a run that was refused before it began, and of which nothing else is expected, it is not said that it ended.
    held = [_held(verdict)] if verdict.outcomes or not verdict.refusals else []
    said = "; ".join([*(held if verdict.holds else verdict.faults), *verdict.refusals])
    return cut(printable(" ".join(f"{word} {verdict.scenario.id} [{verdict.mode}] {said}".split())), _LONGEST)


def _held(verdict: Verdict) -> str:
    outcomes = [outcome for outcome in verdict.outcomes if not outcome.faults]
    wanted = ", ".join(f"{one.key} {_wanted(one)}" for one in outcomes) or "that it ends"
    came = ", ".join(f"{one.key} {shown(one.came, 60)}" for one in outcomes) or "that"
    return f"expected {cut(wanted, 500)}; came {cut(came, 500)}"


def _wanted(outcome: Outcome) -> str:
    return figure_words(outcome.wanted) if outcome.key in _FIGURES else shown(outcome.wanted, 60)


def report(verdict: Verdict) -> str:
    """One line of JSON: id, file, mode, whether it holds, what was expected, what came, and the faults in words."""
    came: dict[str, Any] = {
        "id": verdict.scenario.id,
        "file": str(verdict.scenario.path),
        "mode": verdict.mode,
        "holds": verdict.holds,
        "expected": {one.key: _plain(one.wanted) for one in verdict.outcomes},
        "came": {one.key: _plain(one.came) for one in verdict.outcomes},
        "faults": list(verdict.faults),
        "refusals": list(verdict.refusals),
    }
    return json.dumps(came, ensure_ascii=True)


def _plain(value: Any) -> Any:
    """A value as JSON, long texts cut, and what JSON cannot hold in words."""
    value = storable(value)
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, str):
        return cut(value, 2000)
    if value is None or (isinstance(value, int) and abs(value) < 2**63):
        return value
    return value if isinstance(value, float) and value == value and abs(value) != float("inf") else shown(value)
