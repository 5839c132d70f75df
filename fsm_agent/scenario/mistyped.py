"""Mistyped event names, tools, states, stop reasons and templates in a scenario, by which an expectation would hold without meaning.

What could still be meant is left alone: a word that is unlike every known one may be another reader's name for a thing.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fsm_agent.core.known_names import mend
from fsm_agent.core.short_text import short
from fsm_agent.core.table import Table
from fsm_agent.core.values import Status, StopReason
from fsm_agent.scenario.matching import GAP, figure_fits, listed
from fsm_agent.scenario.steps import expectations, models, people

# The events that every reader of a run may rely on; others are looked at only where an expectation names them.
NAMED = frozenset({
    "run_started", "state_entered", "guard_closed", "decision", "call_admitted", "call_refused", "call_reused", "call_started",
    "call_finished", "waiting", "paused", "resumed", "answer",
})  # fmt: skip
# Every kind of line that a run's trace has.
KINDS = NAMED | {
    "call_repaired", "call_retried", "compose_failed", "composed", "decision_failed", "guard_failed", "judged", "malformed", "message",
    "observer_failed", "repair_failed",
}  # fmt: skip
# How like a word must be to be the other one mistyped, and to be nothing else beside one that is right.
_NEAR, _SURELY = 0.75, 0.9
_TURN, _BODY = ("turn", "query"), ("n", "args")
_SAID = ("calls", "text", "final", "raw", "deltas", "message")
_TEMPLATE = re.compile(r"\$\{\s*([^{}.\s]*)[^{}]*\}")


def wrong_word(keys: Mapping[str, Any], machine: Table) -> str:
    """The first word of a scenario that nobody has, with its place and the one that is probably meant; an empty text for none."""
    return next((f"{place}: {what}" for place, what in _wrong_words(keys, machine)), "")


def _wrong_words(keys: Mapping[str, Any], machine: Table) -> Iterator[tuple[str, str]]:
    states = [state.name for state in machine.states]
    for place, model in models(keys):
        for state in model if isinstance(model, dict) else ():
            if state not in states:
                yield place, f"the machine has no state {short(state, 60)}; {mend(state, states, 'it has')}"
    for place, one in people(keys):
        if one.get("approve") is False and "edit" in one:
            yield place, "a call that is not approved has no edit"
    yield from _templates(keys)
    known = {"status": [*Status, "running"], "stop_reason": [*StopReason], "state": states}
    for place, expect in expectations(keys):
        for key in ("events", "events_once", "events_none"):
            if key in expect:
                yield from ((f"{place}/{key}", what) for what in _events(expect[key], key, states))
        for key, words in known.items():
            if isinstance(expect.get(key), list):
                yield from ((f"{place}/{key}", what) for what in _mistyped(expect[key], words))
        yield from _tools(expect, place, list(keys.get("tools", ())))


def _mistyped(words: Sequence[Any], known: Sequence[str]) -> Iterator[str]:
    """Alternatives that nobody has and that are nearly a word; beside that word itself they do no harm."""
    for word in words:
        if isinstance(word, str) and word and word not in known and (near := _near(word, known)) and near not in words:
            yield f"nobody says {short(word, 60)}; did you mean {near!r}?"


def _near(word: str, known: Sequence[str], least: float = _NEAR) -> str:
    return next(iter(difflib.get_close_matches(word, [str(one) for one in known], 1, least)), "")


# ---- events


def _events(patterns: Any, key: str, states: Sequence[str]) -> Iterator[str]:
    for pattern in listed(patterns):
        if pattern == GAP and key == "events":
            continue
        names = [word.partition(":")[0] for word in pattern.split("|")]
        for name in names:
            # Beside a name that there is, another one may be a further word for the same thing.
            if name not in KINDS and (key == "events_none" or not KINDS & set(names) or _near(name, sorted(KINDS), _SURELY)):
                yield f"there is no event {short(name, 60)}; {mend(name, sorted(NAMED))}"
        for word in pattern.split("|"):
            name, _, subject = word.partition(":")
            known = {"state_entered": states, "answer": [*StopReason, *Status]}.get(name, ())
            if subject and subject not in known and (near := _near(subject, known)):
                yield f"{short(word, 60)} names nothing; did you mean {f'{name}:{near}'!r}?"


# ---- tools


def _tools(expect: Mapping[str, Any], place: str, tools: Sequence[str]) -> Iterator[tuple[str, str]]:
    for key in ("tool_runs", "tool_args", "tool_args_in", "distinct_args", "max_active"):
        wanted = expect.get(key)
        if not isinstance(wanted, Mapping) or (key == "max_active" and wanted.keys() <= {"min", "max"}):
            continue
        for tool, one in wanted.items():
            # A tool that is not there never runs, which may be said of it; a figure that it keeps either way is said of another one.
            never = one == [] or figure_fits(one, 0) is not figure_fits(one, 1)
            if tool not in tools and not (never and (key == "tool_runs" or not _near(tool, tools))):
                yield f"{place}/{key}", f"there is no tool {short(tool, 60)}; {mend(tool, tools)}"


# ---- templates


def _templates(keys: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for place, model in models(keys):
        turns = {place: model} if isinstance(model, list) else {f"{place}/{state}": of for state, of in (model or {}).items()}
        for at, of in turns.items():
            for number, turn in enumerate(of):
                yield from ((f"{at}/{number}", what) for what in _misplaced(_said_in(turn), _TURN, "a turn"))
    for name, tool in keys.get("tools", {}).items():
        yield from ((f"tools/{name}/does", what) for what in _misplaced(tool.get("does"), _BODY, "a body"))


def _said_in(turn: Mapping[str, Any]) -> list[Any]:
    return [turn[key] for key in _SAID if key in turn]


def _misplaced(value: Any, fitting: Sequence[str], where: str) -> Iterator[str]:
    """Templates that are filled in elsewhere, or are nearly one that is filled in somewhere; any other is a text."""
    for text in texts_in(value):
        for found in _TEMPLATE.finditer(text) if "${" in text else ():
            name = found[1]
            if name not in fitting and (name in (*_TURN, *_BODY) or _near(name, (*_TURN, *_BODY))):
                known = " and ".join("${args.NAME}" if one == "args" else f"${{{one}}}" for one in fitting)
                yield f"the template {found[0]!r} is none of {where}; {where} has {known}"


def texts_in(value: Any) -> Iterator[str]:
    """Every text in a value, keys of objects and fields of instances as well."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from (key, *texts_in(one))
    elif isinstance(value, list | tuple | set):
        for one in value:
            yield from texts_in(one)
    elif hasattr(value, "__dataclass_fields__"):
        yield from texts_in(vars(value))
