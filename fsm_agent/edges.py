"""Which rows of which machines have been walked, so that a test suite can say which edges no test has tried."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from fsm_agent.core._machine import Machine
from fsm_agent.core.guards import Guard
from fsm_agent.core.run import Run
from fsm_agent.core.table import Row, Table
from fsm_agent.core.walked import walked
from fsm_agent.diagrams import run_of, table_of

# A machine as it is told apart from others: its name and its rows in words. Tools allowed make no other machine of it.
_Key = tuple[str, tuple[str, ...]]


class Edges:
    """How often each row was walked, by machine; safe between threads.

    Machines are one where name and rows are the same, whatever tools they allow.
    """

    def __init__(self) -> None:
        self._times: dict[_Key, list[int]] = {}
        self._lock = Lock()

    def add(self, machine: Any, ran: Any) -> None:
        """Count the rows that a run walked; `machine` has a table, `ran` is a Run or has one as `.run`.

        Raises TableError or BuildError for what is neither, RunError for a run of another machine.
        """
        table, run = table_of(machine), run_of(ran)
        rows = [] if run is None else walked(table, run)
        self._count(_key(table), [table.rows.index(row) for row in rows])

    def walked(self, machine: Any, row: Row) -> int:
        """How often a row of a machine was walked."""
        table = table_of(machine)
        times = self._times.get(_key(table))
        return 0 if times is None else times[table.rows.index(row)]

    def missing(self, machine: Any) -> list[Row]:
        """The rows of a machine that nothing has walked, in the order of its table."""
        table = table_of(machine)
        times = self._times.get(_key(table), [0] * len(table.rows))
        return [row for row, count in zip(table.rows, times, strict=True) if not count]

    def report(self) -> list[str]:
        """For each machine seen, one line of how many rows were walked, and one for each row that was not."""
        lines = []
        for (name, rows), times in sorted(self._times.items()):
            lines.append(f"machine {name!r}: {sum(map(bool, times))} of {len(rows)} edges walked")
            lines += [f"  never: {row}" for row, count in zip(rows, times, strict=True) if not count]
        return lines

    def as_json(self) -> list[Any]:
        """All that was counted as plain data, for another process."""
        with self._lock:
            return [[name, list(rows), list(times)] for (name, rows), times in self._times.items()]

    def merge(self, counted: Iterable[Any]) -> None:
        """Add what another process counted, as its `as_json` gave it."""
        for name, rows, times in counted:
            self._count((name, tuple(rows)), [number for number, count in enumerate(times) for _ in range(count)])

    def _count(self, key: _Key, numbers: Iterable[int]) -> None:
        with self._lock:
            times = self._times.setdefault(key, [0] * len(key[1]))
            for number in numbers:
                times[number] += 1


@contextmanager
def recorded_edges() -> Iterator[Edges]:
    """Count every row that any run of this process walks inside the block, whoever drives it; not to be nested.

    It wraps the one function that moves runs, so it is for tests: outside the block nothing is counted and nothing costs.
    """
    edges, fire = Edges(), Machine.fire
    places: dict[int, tuple[Table, _Key, dict[tuple[str, str], list[int]]]] = {}

    def counting(machine: Machine, run: Run, outcome: str) -> list[Guard]:
        source = run.state
        closed = fire(machine, run, outcome)
        table = machine.table
        if id(table) not in places:
            # The table is kept with what was found of it, so that its identity stays its own.
            places[id(table)] = (table, _key(table), _places(table))
        _, key, numbers = places[id(table)]
        # Each row passed over has one closed guard.
        edges._count(key, [numbers[source, outcome][len(closed)]])
        return closed

    Machine.fire = counting  # type: ignore[method-assign, assignment]
    try:
        yield edges
    finally:
        Machine.fire = fire  # type: ignore[method-assign]


def _key(table: Table) -> _Key:
    return table.name, tuple(map(str, table.rows))


def _places(table: Table) -> dict[tuple[str, str], list[int]]:
    found: dict[tuple[str, str], list[int]] = {}
    for number, row in enumerate(table.rows):
        found.setdefault((row.source, row.outcome), []).append(number)
    return found
