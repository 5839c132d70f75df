"""What is refused when a machine is built: what no run can use, and what no run may be left to.

The proof of ending: take the rows that an endless run would walk for ever. They are a strongly connected part of the
graph. If a limited counter guards some of them and some of them are sure to spend it, then either the guarded rows are
walked no more or the counter never rises again; both smaller parts are examined in the same way, until none is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import attrs

from fsm_agent.core.errors import TableError
from fsm_agent.core.guards import Spending, spendings
from fsm_agent.core.limits import Limits
from fsm_agent.core.table import Row, Table


def check_table(table: Table) -> None:
    """Refuse a table with a state or row that no run can use; raises TableError naming the row and the mend."""
    for _, check in CHECKS:
        check(table)


def check_bounds(table: Table, limits: Limits) -> None:
    """Refuse a machine with a cycle that the limits in force leave unbounded; raises TableError naming it and the mend."""
    cycle = unbounded_cycle(table, limits)
    if cycle is None:
        return
    walk = " -> ".join([*(row.source for row in cycle), cycle[-1].target])
    mend = _mends(table, limits, cycle)
    how = f"set one of {', '.join(mend)}" if mend else "guard one of its rows by a spending guard"
    raise TableError(f"machine {table.name!r}: no limit in force bounds the cycle {walk}; {how}")


def _mends(table: Table, limits: Limits, cycle: list[Row]) -> list[str]:
    """The limits that would bound this cycle if they were set."""
    known = {field.name for field in attrs.fields(Limits)}
    guards = {part.limit for row in cycle for guard in row.guards for part in spendings(guard)}
    return sorted(
        name for name in guards & known if unbounded_cycle(table, attrs.evolve(limits, **{name: 1})) != cycle
    )


def _check_own_names(table: Table) -> None:
    names = [state.name for state in table.states]
    for name in names:
        if names.count(name) > 1:
            raise TableError(f"machine {table.name!r} has the state {name!r} twice; give each state its own name")


def _check_known(table: Table) -> None:
    names = [state.name for state in table.states]
    if table.initial not in names:
        raise TableError(f"machine {table.name!r} starts in {table.initial!r}, which is no state of it; it has {', '.join(names)}")
    for state in table.states:
        if state.work not in table.kinds:
            raise TableError(
                f"state {state.name!r} does {state.work!r}, which is no kind of work; there are {', '.join(sorted(table.kinds))}"
            )
    for row in table.rows:
        for end in (row.source, row.target):
            if end not in names:
                raise TableError(f"row {row}: there is no state {end!r}; the machine has {', '.join(names)}")
        if table.state(row.source).final:
            raise TableError(f"row {row}: {row.source!r} is final, so no row can leave it; drop the row")


def _check_outcomes(table: Table) -> None:
    for state in table.states:
        outcomes = table.kinds[state.work].outcomes
        for row in table.rows_of(state.name):
            if row.outcome not in outcomes:
                raise TableError(
                    f"row {row}: {state.work!r} work never reports {row.outcome!r}; it reports {', '.join(outcomes) or 'nothing'}"
                )
        for outcome in outcomes:
            rows = table.rows_of(state.name, outcome)
            if not rows or rows[-1].guards:
                missing = f"every row for it is guarded (the last is {rows[-1]})" if rows else "it has no row"
                raise TableError(
                    f"state {state.name!r} may report {outcome!r} and {missing}; add a last row"
                    f" {state.name} --{outcome}--> <state> without guards"
                )


def _check_order(table: Table) -> None:
    for row in table.rows:
        for earlier in table.rows_of(row.source, row.outcome):
            if earlier is row:
                break
            if {guard.name for guard in earlier.guards} <= {guard.name for guard in row.guards}:
                raise TableError(f"row {row} can never win: {earlier} comes first and is open whenever it is; drop or reorder one")


def _check_reach(table: Table) -> None:
    forward = {state.name: {row.target for row in table.rows_of(state.name)} for state in table.states}
    backward = {name: {source for source, targets in forward.items() if name in targets} for name in forward}
    reached = _spread({table.initial}, forward)
    for state in table.states:
        if state.name not in reached:
            raise TableError(f"state {state.name!r} cannot be reached from {table.initial!r}; add a row to it or drop it")
    ending = _spread({state.name for state in table.states if state.final}, backward)
    for state in table.states:
        if state.name not in ending:
            raise TableError(
                f"state {state.name!r} can never reach a final state; add a row that leads to one (a state whose work is 'answer')"
            )


def _spread(seeds: Iterable[str], edges: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    todo = list(seeds)
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo.extend(edges[name])
    return seen


CHECKS: tuple[tuple[str, Callable[[Table], None]], ...] = (
    ("every state has a name of its own", _check_own_names),
    ("every state and kind of work that is named is there", _check_known),
    ("every outcome has rows, the last of them unguarded", _check_outcomes),
    ("every row can win", _check_order),
    ("every state can be reached, and can reach a final one", _check_reach),
)
"""The checks of a table, each with the sentence it proves, in the order in which they rely on each other."""


def unbounded_cycle(table: Table, limits: Limits) -> list[Row] | None:
    """A cycle that a run could walk for ever under these limits, as its rows in order, or None when every run ends."""
    return _endless(table, limits, list(table.rows), frozenset())


def _endless(table: Table, limits: Limits, rows: Sequence[Row], frozen: frozenset[str]) -> list[Row] | None:
    for part in _strong_parts(rows):
        if not any(_part_is_safe(table, limits, part, frozen, counter) for counter in _counters(limits, part, frozen)):
            return _one_cycle(part)
    return None


def _part_is_safe(table: Table, limits: Limits, part: list[Row], frozen: frozenset[str], counter: str) -> bool:
    spending = [row for row in part if counter in _sure(table, row)]
    if not spending:
        return False
    unguarded = [row for row in part if counter not in {s.counter for s in _limited(limits, row, frozen)}]
    unspent = [row for row in part if row not in spending]
    return (
        _endless(table, limits, unguarded, frozen) is None
        and _endless(table, limits, unspent, frozen | {counter}) is None
    )


def _sure(table: Table, row: Row) -> set[str]:
    return {"steps", *row.spends, *table.kinds[table.state(row.source).work].outcomes.get(row.outcome, ())}


def _limited(limits: Limits, row: Row, frozen: frozenset[str]) -> list[Spending]:
    """The row's spending guards that have a limit and, if they count within another counter, that one frozen."""
    found = [part for guard in row.guards for part in spendings(guard)]
    return [s for s in found if getattr(limits, s.bound or s.limit, None) is not None and (not s.within or s.within in frozen)]


def _counters(limits: Limits, part: list[Row], frozen: frozenset[str]) -> list[str]:
    return sorted({s.counter for row in part for s in _limited(limits, row, frozen)})


def _strong_parts(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each strongly connected part that holds a cycle."""
    edges: dict[str, set[str]] = {}
    for row in rows:
        edges.setdefault(row.source, set()).add(row.target)
        edges.setdefault(row.target, set())
    reach = {name: _spread(edges[name], edges) for name in edges}
    parts: dict[frozenset[str], list[Row]] = {}
    for row in rows:
        if row.source in reach[row.target] or row.source == row.target:
            members = frozenset(n for n in edges if n in reach[row.source] and row.source in reach[n])
            parts.setdefault(members, []).append(row)
    return list(parts.values())


def _one_cycle(part: list[Row]) -> list[Row]:
    walk: list[Row] = [part[0]]
    while walk[-1].target not in [row.source for row in walk]:
        here = walk[-1].target
        walk.append(next(row for row in part if row.source == here))
    start = [row.source for row in walk].index(walk[-1].target)
    return walk[start:]
