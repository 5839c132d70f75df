"""Small changes of a table, each of which some test has to notice."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from fsm_agent.core.table import Row, Table


def mutants(table: Table) -> Iterator[tuple[str, Table]]:
    """Every table that differs from this one in a single row, with a word on how.

    The row is missing, or leads to another state, or has lost its guards.
    """
    for row in table.rows:
        yield f"{row} dropped", _with(table, row, None)
        for state in table.states:
            if state.name != row.target:
                yield f"{row} redirected to {state.name}", _with(table, row, attrs.evolve(row, target=state.name))
        if row.guards:
            yield f"{row} unguarded", _with(table, row, attrs.evolve(row, guards=()))


def _with(table: Table, old: Row, new: Row | None) -> Table:
    rows = [new if row is old else row for row in table.rows]
    return attrs.evolve(table, rows=[row for row in rows if row is not None])


def rows_written(table: Table) -> list[tuple[str, str, str, tuple[str, ...], tuple[str, ...]]]:
    """The rows as plain tuples of source, outcome, target, names of guards, further claims."""
    return [(r.source, r.outcome, r.target, tuple(guard.name for guard in r.guards), r.spends) for r in table.rows]


def states_written(table: Table) -> list[tuple[str, str, frozenset[str] | None]]:
    """The states as plain tuples of name, kind of work, allowed tools."""
    return [(state.name, state.work, state.tools) for state in table.states]
