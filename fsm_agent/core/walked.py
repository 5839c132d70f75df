"""Which rows of its table a run has walked, read from its trace alone."""

from __future__ import annotations

from fsm_agent.core.errors import RunError
from fsm_agent.core.run import Run
from fsm_agent.core.short_text import short
from fsm_agent.core.table import Row, Table


def walked(table: Table, run: Run) -> list[Row]:
    """The rows that the run walked, in order; a row walked twice is there twice.

    Works for a run that is still going on, was resumed or was loaded. Raises RunError when the run walked another machine.
    """
    rows: list[Row] = []
    state: str | None = None
    for kind, _, subject, detail in run.trace:
        if kind == "resumed" and detail is not None:
            state = detail
        elif kind == "state_entered":
            if state is not None and detail is not None:
                rows.append(_row(table, run, state, detail, subject))
            state = subject
    return rows


def _row(table: Table, run: Run, source: str, by: str, target: str) -> Row:
    """The row of an outcome; ``outcome#2`` is the second of those that it has in that state."""
    outcome, _, number = by.rpartition("#")
    for wanted, at in ((by, 0), (outcome, int(number) - 1 if number.isdecimal() else 0)):
        rows = table.rows_of(source, wanted)
        if at < len(rows) and rows[at].target == target:
            return rows[at]
    raise RunError(
        f"run {run.id!r} went from {short(source, 40)} to {short(target, 40)} by {short(by, 40)}, "
        f"which is no row of machine {table.name!r}; give the machine that the run belongs to"
    )
