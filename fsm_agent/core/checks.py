"""What is refused when a machine is built: what no run can use, and what no run may be left to.

The proof of ending: take the rows that an endless run would walk for ever. They are a strongly connected part of the
graph. If a limited counter guards some of them and some of them are sure to spend it, then either the guarded rows are
walked no more or the counter never rises again; both smaller parts are examined in the same way, until none is left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import attrs

from fsm_agent.core.errors import BuildError, LimitsError, TableError
from fsm_agent.core.guards import AllOf, Guard, Spending, spendings
from fsm_agent.core.known_names import mend
from fsm_agent.core.limits import OTHERS, Limits
from fsm_agent.core.plain import short
from fsm_agent.core.run import Run
from fsm_agent.core.table import KINDS, Row, Table


def check_table(table: Table) -> None:
    """Refuse a table with a state or row that no run can use; raises TableError naming the row and the mend."""
    for _, check in CHECKS:
        check(table)


def check_names(table: Table, limits: Limits, required: object, tools: Collection[str]) -> None:
    """Refuse a name of a tool that is not there, in the states, among the required ones or in the limits.

    Raises TableError for a state, LimitsError for a limit, else BuildError; each names what is unknown and what there is.
    """
    if isinstance(required, str | bytes) or not isinstance(required, Collection):
        raise BuildError(f"required is {short(required, 60)}; give a list of the names of tools")
    for name in required:
        if name not in tools:
            raise BuildError(f"required names the tool {short(name, 60)}, which is not there; {mend(name, tools)}")
    for state in table.states:
        for name in sorted(state.tools or ()):
            if name not in tools:
                raise TableError(f"state {state.name!r} allows the tool {short(name, 60)}, which is not there; {mend(name, tools)}")
    check_limit_names(limits, tools)


def check_limit_names(limits: Limits, tools: Collection[str]) -> None:
    """Refuse a limit of a tool that is not there, which would limit nothing; raises LimitsError."""
    figure = limits.max_same_tool_calls
    for name in figure if isinstance(figure, Mapping) else ():
        if name != OTHERS and name not in tools:
            raise LimitsError(f"Limits.max_same_tool_calls names the tool {short(name, 60)}, which is not there; {mend(name, tools)}")


def check_bounds(
    table: Table, limits: Limits, shut: frozenset[str] = frozenset(), settled: frozenset[str] = frozenset()
) -> None:
    """Refuse a machine with a cycle that the limits in force leave unbounded; raises TableError naming it and the mend.

    `shut` names guards that are never open, such as `has_repair` where there is no repair; no run walks their rows. `settled` names
    further outcomes that leave no call open, such as ``insufficient`` where no verifier proposes one.
    """
    _check_spendings(table, limits)
    cycle = unbounded_cycle(table, limits, shut, settled)
    if cycle is None:
        return
    walk = " -> ".join([*(row.source for row in cycle), cycle[-1].target])
    mends = _mends(table, limits, cycle)
    how = f"set one of {', '.join(mends)}" if mends else "guard one of its rows by a spending guard"
    raise TableError(f"machine {table.name!r}: no limit in force bounds the cycle {walk}; {how}")


def _mends(table: Table, limits: Limits, cycle: list[Row]) -> list[str]:
    """The limits that are off and, set alone, would bound this cycle."""
    off = {s.limit for row in cycle for guard in row.guards for s in spendings(guard) if getattr(limits, s.limit) is None}
    return [name for name in sorted(off) if _endless(table, attrs.evolve(limits, **{name: 1}), cycle, frozenset(), _LEAVES_NO_CALL) is None]


def _check_spendings(table: Table, limits: Limits) -> None:
    fields = attrs.fields_dict(Run)
    for row in table.rows:
        for part in (part for guard in row.guards for part in spendings(guard)):
            for name in (part.limit, part.bound):
                if name and not hasattr(limits, name):
                    known = ", ".join(attrs.fields_dict(type(limits)))
                    raise TableError(f"row {row}: {part.name} compares with {name!r}, which is no limit; there are {known}")
            if part.counter in fields and type(fields[part.counter].default) not in (int, float):
                raise TableError(f"row {row}: {part.name} counts {part.counter!r}, which is no number of a run; name a counter")


def _check_own_names(table: Table) -> None:
    names = [state.name for state in table.states]
    for name in names:
        if names.count(name) > 1:
            raise TableError(f"machine {table.name!r} has the state {name!r} twice; give each state its own name")


def _check_known(table: Table) -> None:
    names = [state.name for state in table.states]
    if table.initial not in names:
        what = f"machine {table.name!r} starts in {table.initial!r}, which is no state of it"
        raise TableError(f"{what}; {mend(table.initial, names, 'it has')}")
    for state in table.states:
        if state.work not in table.kinds:
            what = f"state {state.name!r} does {state.work!r}, which is no kind of work"
            raise TableError(f"{what}; {mend(state.work, sorted(table.kinds))}")
    for row in table.rows:
        for end in (row.source, row.target):
            if end not in names:
                raise TableError(f"row {row}: there is no state {end!r}; {mend(end, names, 'the machine has')}")
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
    for at, row in enumerate(table.rows):
        for earlier in table.rows[:at]:
            if (earlier.source, earlier.outcome) != (row.source, row.outcome):
                continue
            if _names(earlier.guards) <= _names(row.guards):
                raise TableError(f"row {row} can never win: {earlier} comes first and is open whenever it is; drop or reorder one")


def _names(guards: Iterable[Guard]) -> set[str]:
    """What must be open for these to be: a guard of several parts is open when they are."""
    return {name for g in guards for name in (_names(g.guards) if isinstance(g, AllOf) else (g.name,))}


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
    ("every row can win", _check_order),
    ("every outcome has rows, the last of them unguarded", _check_outcomes),
    ("every state can be reached, and can reach a final one", _check_reach),
)
"""The checks of a table, each with the sentence it proves, in the order in which they rely on each other."""


def unbounded_cycle(
    table: Table, limits: Limits, shut: frozenset[str] = frozenset(), settled: frozenset[str] = frozenset()
) -> list[Row] | None:
    """A cycle that a run could walk for ever under these limits, as its rows in order, or None when every run ends."""
    rows = [row for row in table.rows if not shut or not _names(row.guards) & shut]
    return _endless(table, limits, rows, frozenset(), _LEAVES_NO_CALL | settled)


def _endless(
    table: Table, limits: Limits, rows: Sequence[Row], frozen: frozenset[str], settled: frozenset[str]
) -> list[Row] | None:
    for part in _strong_parts(rows):
        counter = _splitting(table, limits, part, frozen, settled)
        if counter is None:
            return _one_cycle(part)
        unguarded = [row for row in part if counter not in {s.counter for s in _limited(limits, row, frozen)}]
        unspent = [row for row in part if counter not in _sure(table, row, settled)]
        found = _endless(table, limits, unguarded, frozen, settled)
        found = found or _endless(table, limits, unspent, frozen | {counter}, settled)
        if found is not None:
            return found
    return None


_LEAVES_NO_CALL = frozenset({"ready", "called", "no_progress", "proposed", "passed", "planned", "written"})


def _splitting(
    table: Table, limits: Limits, part: list[Row], frozen: frozenset[str], settled: frozenset[str]
) -> str | None:
    """A limited counter that parts the rows: one that they spend, or one within which another of their counters counts."""
    spent = {name for row in part for name in _sure(table, row, settled)}
    within = {s.within for row in part for guard in row.guards for s in spendings(guard)}
    limited = {s.counter for row in part for s in _limited(limits, row, frozen)}
    return min(((spent | within) & limited) - frozen, default=None)


def _sure(table: Table, row: Row, settled: frozenset[str]) -> set[str]:
    source, target = table.state(row.source).work, table.state(row.target).work
    # What follows a row that leads to a decision with no call open is a turn, whoever asked for the calls before it. Only
    # built-in work is known to leave none open; an own kind may report the same word and mean something else.
    leaves_none = table.kinds[source] is KINDS.get(source) and row.outcome in settled
    built_in = table.kinds[target] is KINDS.get(target)
    decides = built_in and (target == "decide" or (target in ("gather", "plan") and leaves_none))
    # Where no turn is left the state is stopped instead; that must be the end, or the run comes by here for nothing.
    ends = all(table.state(other.target).final for other in table.rows_of(row.target, "stopped"))
    turn = {"turns"} if decides and ends else set[str]()
    return {"steps", *turn, *row.spends, *table.kinds[source].outcomes.get(row.outcome, ())}


def _limited(limits: Limits, row: Row, frozen: frozenset[str]) -> list[Spending]:
    """The row's spending guards that have a limit and, if they count within another counter, that one frozen."""
    found = [part for guard in row.guards for part in spendings(guard)]
    return [s for s in found if getattr(limits, s.bound or s.limit, None) is not None and (not s.within or s.within in frozen)]


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
