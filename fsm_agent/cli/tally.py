"""What became of all orders of one command, counted as they are handled."""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs

from fsm_agent.cli.exits import NO_ORDER, OK, SOME_FAILED
from fsm_agent.core.run import Run
from fsm_agent.core.short_text import one_line

_MOST_REASONS = 12


@attrs.define
class Tally:
    """Counts of orders; a line that was no order counts as a bad line and nowhere else."""

    handled: int = 0
    ok: int = 0
    naive_ok: int | None = None
    from_memory: int = 0
    body_runs: int = 0
    bad_lines: int = 0
    gave_up: Counter[str] = attrs.field(factory=Counter)
    repaired: Counter[str] = attrs.field(factory=Counter)

    def add(self, run: Run, answer: dict[str, Any]) -> None:
        """Count one order by its run and its answer."""
        self.handled += 1
        self.body_runs += run.body_runs
        if not answer["ok"]:
            self.gave_up[answer["errors"][-1]] += 1
            return
        self.ok += 1
        self.from_memory += any(call.reused for call in run.calls)
        self.repaired.update(answer["fixes"])

    def add_naive(self, ok: bool) -> None:
        """Count one order handled without repair."""
        self.naive_ok = (self.naive_ok or 0) + ok

    @property
    def exit_code(self) -> int:
        """0 when every order was answered, 1 when one was not, 3 when a line was no order."""
        return NO_ORDER if self.bad_lines else SOME_FAILED if self.gave_up else OK

    def rows(self) -> list[tuple[str, int]]:
        """The counts with their names, in the order they are read in; parts are indented."""
        naive = [] if self.naive_ok is None else [("ok without repair", self.naive_ok)]
        return [
            ("orders handled", self.handled),
            *naive,
            ("ok", self.ok),
            *_parts("repaired: ", self.repaired),
            ("  from memory", self.from_memory),
            ("gave up", self.gave_up.total()),
            *_parts("", self.gave_up),
            ("bad lines", self.bad_lines),
            ("body runs", self.body_runs),
        ]


def _parts(word: str, counts: Counter[str]) -> list[tuple[str, int]]:
    most = counts.most_common(_MOST_REASONS)
    rest = counts.total() - sum(count for _, count in most)
    named = [(f"  {word}{one_line(name, 48)}", count) for name, count in most]
    return [*named, (f"  {word}others", rest)] if rest else named
