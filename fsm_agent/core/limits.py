"""The figures that bound a run, with the seeds' own as presets."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from fsm_agent.core.errors import LimitsError
from fsm_agent.core.known_names import mend

# The largest float: a larger whole number cannot be compared with the seconds of a clock.
_LARGEST = sys.float_info.max


# The key of a mapping of tool to number under which every other tool stands.
OTHERS = "*"


def _whole(least: int) -> Any:
    def check(_: Limits, attribute: attrs.Attribute[Any], value: object) -> None:
        if value is None:
            return
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise LimitsError(f"Limits.{attribute.name} is {_said(value)}; give a whole number from {least}, or None for no limit")

    return check


def _amount(_: Limits, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LARGEST:
        raise LimitsError(f"Limits.{attribute.name} is {_said(value)}; give a finite number from 0, or None for no limit")


def _per_tool(_: Limits, attribute: attrs.Attribute[Any], value: object) -> None:
    figures = value.values() if isinstance(value, Mapping) else [value]
    for figure in figures:
        if figure is not None and (isinstance(figure, bool) or not isinstance(figure, int) or figure < 0):
            raise LimitsError(
                f"Limits.{attribute.name} is {_said(value)}; give a whole number from 0, a mapping of tool to such numbers, or None"
            )


def _said(value: object) -> str:
    return f"{value!r:.60}" if isinstance(value, int | float | str) and abs(_size(value)) < 10**60 else f"a {type(value).__name__}"


def _size(value: float | str) -> float:
    return len(value) if isinstance(value, str) else value


def _figures(value: object) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


@attrs.frozen(kw_only=True)
class Limits:
    """What one run may spend; None switches a limit off.

    Budgets of n allow n and refuse n + 1: `max_steps` states entered, `max_turns` replies of the decider, `max_tool_calls` calls
    admitted, `max_calls_per_turn` of one turn, `max_same_call` identical ones (within the last `dedup_window` admitted, where that is
    set), `max_attempts` tries of one call and rounds of gathering after a verifier's no, `max_verify_rounds`, `max_invalid_decisions`
    unusable ones in a row, `max_tokens`, `max_cost` in the host's money. After `stop_after_tool_calls` calls asked for no turn begins.
    Tripwires stop at the n-th: `max_same_observation` equal results, `max_stale_turns` without a new fact, `max_empty_results` of one
    intent, `max_tool_errors` failed bodies, `max_bad_arguments` refused calls. `deadline_s` and `max_wait_s` are seconds the run has
    spent and waited, never instants. `max_parallel` bodies run beside each other; an answer needs `min_evidence` independent pieces.
    `max_same_tool_calls` is one number for every tool or a mapping of tool to number (a tool it lacks has no limit).
    `reserve_s` is the part of the deadline kept for the answer; of a deadline under five times as long it is a tenth.

    Raises LimitsError for a figure of the wrong kind.
    """

    max_steps: int | None = attrs.field(default=64, validator=_whole(1))
    max_turns: int | None = attrs.field(default=10, validator=_whole(0))
    max_tool_calls: int | None = attrs.field(default=20, validator=_whole(0))
    max_same_tool_calls: int | Mapping[str, int | None] | None = attrs.field(default=6, validator=_per_tool, converter=_figures)
    max_calls_per_turn: int | None = attrs.field(default=8, validator=_whole(0))
    stop_after_tool_calls: int | None = attrs.field(default=None, validator=_whole(0))
    max_same_call: int | None = attrs.field(default=2, validator=_whole(0))
    max_same_observation: int | None = attrs.field(default=3, validator=_whole(1))
    max_stale_turns: int | None = attrs.field(default=4, validator=_whole(1))
    max_empty_results: int | None = attrs.field(default=2, validator=_whole(1))
    max_tool_errors: int | None = attrs.field(default=5, validator=_whole(1))
    max_bad_arguments: int | None = attrs.field(default=5, validator=_whole(1))
    max_attempts: int | None = attrs.field(default=3, validator=_whole(1))
    max_verify_rounds: int | None = attrs.field(default=3, validator=_whole(1))
    max_invalid_decisions: int | None = attrs.field(default=2, validator=_whole(0))
    max_parallel: int | None = attrs.field(default=None, validator=_whole(1))
    max_tokens: int | None = attrs.field(default=None, validator=_whole(0))
    max_cost: float | None = attrs.field(default=None, validator=_amount)
    deadline_s: float | None = attrs.field(default=25.0, validator=_amount)
    reserve_s: float | None = attrs.field(default=2.0, validator=_amount)
    max_wait_s: float | None = attrs.field(default=60.0, validator=_amount)
    dedup_window: int | None = attrs.field(default=None, validator=_whole(1))
    min_evidence: int | None = attrs.field(default=1, validator=_whole(0))

    @property
    def work_until_s(self) -> float | None:
        """The spent time from which no further turn or call begins; what follows is reserved for the answer."""
        if self.deadline_s is None:
            return None
        reserve = self.reserve_s or 0.0
        # Of a deadline that is short for its reserve a tenth is kept.
        return self.deadline_s - (reserve if self.deadline_s >= 5 * reserve else self.deadline_s / 10)

    def deadline_until(self, seconds: float) -> float:
        """The deadline of which the work has these seconds and the answer its reserve on top: `work_until_s` the other way round."""
        reserve = self.reserve_s or 0.0
        return seconds + reserve if seconds + reserve >= 5 * reserve else seconds / 0.9

    def for_tool(self, tool: str) -> int | None:
        """How many admitted calls one tool may have, or None."""
        figure = self.max_same_tool_calls
        return figure if figure is None or type(figure) is int else figure.get(tool, figure.get(OTHERS))  # type: ignore[union-attr]

    @classmethod
    def off(cls, **named: Any) -> Limits:
        """Every limit off but those named; `min_evidence` is then 0."""
        nothing: dict[str, Any] = {field.name: None for field in attrs.fields(cls)}
        return cls(**{**nothing, "min_evidence": 0, **named})

    @classmethod
    def loop_guard(cls, **named: Any) -> Limits:
        """The figures of seed 000: 12 calls, of one tool too, 2 of one call, the third equal observation, 2 rounds of gathering."""
        figures = {"max_tool_calls": 12, "max_same_call": 2, "max_same_observation": 3, "max_attempts": 2}
        # What the seed does not count must not end a run before what it does.
        return cls(**{**figures, "max_same_tool_calls": None, "max_turns": None, **named})

    @classmethod
    def react(cls, **named: Any) -> Limits:
        """The figures of seed 001: 6 calls, of one tool too, 10 turns, no call twice, the second error or empty result of one intent."""
        figures = {"max_tool_calls": 6, "max_turns": 10, "max_same_call": 1, "max_tool_errors": 2, "max_empty_results": 2}
        return cls(**{**figures, "max_same_tool_calls": None, **named})

    @classmethod
    def autogpt(cls, **named: Any) -> Limits:
        """The figures of seed 002: 12 steps, 20 calls, 6 of one tool, 25 s, a window of 12 calls, 3 pieces of evidence."""
        figures: dict[str, Any] = {"max_steps": 12, "max_tool_calls": 20, "max_same_tool_calls": 6, "deadline_s": 25.0}
        window = {"dedup_window": 12, "max_same_call": None, "min_evidence": 3}
        # The plan is a turn and a step, so 10 turns would end a run before its 12 steps.
        return cls(**{**figures, **window, "max_turns": None, **named})

    @classmethod
    def lab(cls, **named: Any) -> Limits:
        """The figures of seed 003: 3 tries of one order and nothing else; steps stay bounded."""
        return cls.off(**{"max_attempts": 3, "max_steps": 64, **named})

    @classmethod
    def agent_loop(cls, **named: Any) -> Limits:
        """The figures of seed 004: 5 turns, 10 calls a turn, no further turn after 20 emitted calls; a text without calls is an answer."""
        figures = {"max_turns": 5, "max_calls_per_turn": 10, "stop_after_tool_calls": 20}
        # The turn that crosses the 20 is let finish, and one tool may have all of its calls.
        return cls(**{**figures, "max_tool_calls": None, "max_same_tool_calls": None, "min_evidence": 0, **named})

    def raised(self, changes: Mapping[str, Any]) -> Limits:
        """These limits with some of them raised or switched off; lowering one raises LimitsError.

        `max_same_tool_calls` takes a number or a mapping; a mapping is laid over the figures in force.
        """
        if not isinstance(changes, Mapping):
            raise LimitsError(f"a raise is a mapping of limit to figure, not {_said(changes)}")
        known = attrs.fields_dict(Limits)
        merged: dict[str, Any] = {}
        for name, value in changes.items():
            if name not in known:
                raise LimitsError(f"Limits has no field {_said(name)}; {mend(name, known, 'it has')}")
            merged[name] = self._merged(value) if name == "max_same_tool_calls" else value
        new = attrs.evolve(self, **merged)
        for name in merged:
            if name == "max_same_tool_calls":
                for tool in {OTHERS, *_tools(self), *_tools(new)}:
                    _refuse_lower(name, self.for_tool(tool), new.for_tool(tool))
            elif name not in ("min_evidence", "reserve_s"):
                _refuse_lower(name, getattr(self, name), getattr(new, name))
        return new

    def _merged(self, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        before = self.max_same_tool_calls
        return {**(before if isinstance(before, Mapping) else {OTHERS: before}), **value}


def _tools(limits: Limits) -> Iterable[str]:
    figure = limits.max_same_tool_calls
    return figure if isinstance(figure, Mapping) else ()


def _refuse_lower(name: str, before: float | None, after: float | None) -> None:
    if after is not None and (before is None or after < before):
        was = "None" if before is None else _said(before)
        raise LimitsError(f"Limits.{name} would fall from {was} to {_said(after)}; a run in progress can only be given more")
