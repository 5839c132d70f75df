"""A machine as data: its states, its rows, and what kind of work each state does.

A table is all that decides where a run goes. Diagrams, prompts, bounds and test paths are derived from it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any

import attrs

from fsm_agent.core.callables import wrong_manner
from fsm_agent.core.errors import TableError
from fsm_agent.core.guards import GIVE_A_GUARD, Guard, is_guard, spendings
from fsm_agent.core.known_names import mend
from fsm_agent.core.limits import Limits
from fsm_agent.core.plain import short
from fsm_agent.core.run import Run


def _word(owner: object, attribute: Any, value: Any) -> None:
    if not isinstance(value, str) or not value:
        raise TableError(f"{type(owner).__name__}({attribute.name}=) is {short(value, 60)}; give a non-empty text")


def _claims(outcomes: Any) -> Mapping[str, tuple[str, ...]]:
    if not isinstance(outcomes, Mapping):
        raise TableError(f"Kind(outcomes=) is {short(outcomes, 60)}; give a mapping of outcomes to the counters that each spends")
    for outcome, counters in outcomes.items():
        if not isinstance(outcome, str) or not isinstance(counters, tuple | list) or not all(isinstance(c, str) for c in counters):
            what = f"{short(outcome, 40)}: {short(counters, 40)}"
            raise TableError(f"Kind(outcomes=) has {what}; give a text and a tuple of counters, such as 'done': ('turns',)")
    return {outcome: tuple(counters) for outcome, counters in outcomes.items()}


@attrs.frozen(kw_only=True)
class Kind:
    """A kind of work that states can do: the outcomes it may report, and the counters each of them is sure to spend.

    ``outcomes["called"] == ("turns",)`` claims that between two such outcomes at least one turn was spent. Proofs of ending
    rest on these claims. A law over random runs tests those of the built-in kinds; those of the user's own are held against
    every run, which is ended (`fatal`) where one does not hold.
    """

    name: str = attrs.field(validator=_word)
    outcomes: Mapping[str, tuple[str, ...]] = attrs.field(converter=_claims)
    about: str = ""


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(name="normalize", outcomes={"ready": (), "rejected": ()}, about="canonicalizes and checks the request"),
        Kind(
            name="decide",
            outcomes={"decided": ("turns",), "proposed": ("turns",), "failed": ("turns",), "stopped": ()},
            about="asks the decider what to do next",
        ),
        Kind(
            name="call",
            outcomes={"called": (), "failed": (), "no_progress": (), "stopped": ()},
            about="passes the gate and runs the calls",
        ),
        Kind(
            name="gather",
            outcomes={"called": (), "failed": (), "no_progress": (), "proposed": ("turns",), "stopped": ()},
            about="asks the decider, passes the gate, runs the calls",
        ),
        Kind(
            name="plan",
            outcomes={"rejected": (), "planned": ("turns",), "called": (), "failed": (), "stopped": ()},
            about="checks the request and asks the decider for a plan",
        ),
        Kind(
            name="synthesize",
            outcomes={"written": ("turns",), "stopped": ()},
            about="writes the answer from the evidence",
        ),
        Kind(
            name="verify",
            outcomes={"passed": ("verify_rounds",), "insufficient": ("verify_rounds",), "stopped": ("verify_rounds",)},
            about="asks whether the evidence suffices",
        ),
        Kind(name="repair", outcomes={"repaired": ("attempts",), "exhausted": ()}, about="changes failed calls by their reason"),
        Kind(name="answer", outcomes={}, about="gives the final answer"),
    )
}


def state_name(state: Any) -> str:
    """The text that a state goes by: a text itself (of a text enum its value), any other enum member by its name.

    Raises TableError for an empty name or another kind of value.
    """
    name = state.value if isinstance(state, Enum) and isinstance(state, str) else state.name if isinstance(state, Enum) else state
    if not isinstance(name, str) or not name:
        raise TableError(f"{short(state, 60)} cannot name a state; give a non-empty text or an enum member")
    return str(name)


def _listed(parts: Any, what: str, kind: type | None = None) -> tuple[Any, ...]:
    if isinstance(parts, str) or not isinstance(parts, Iterable):
        raise TableError(f"the {what} are a list, not {short(parts, 60)}")
    found = tuple(parts)
    for part in found:
        if kind is not None and not isinstance(part, kind):
            raise TableError(f"{short(part, 60)} stands among the {what}; give a {kind.__name__}")
    return found


def _tool_names(names: Iterable[str] | None) -> frozenset[str] | None:
    if names is None:
        return None
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise TableError(f"the tools of a state are {short(names, 60)}; give a list of names, or None for every tool")
    found = list(names)
    for name in found:
        if not isinstance(name, str):
            raise TableError(f"{short(name, 60)} stands among the tools of a state; give the names of tools")
    return frozenset(found)


def _observer(_: object, attribute: Any, value: object) -> None:
    what = wrong_manner(value, given=("run",)) if callable(value) else short(value, 60)
    if value is not None and what:
        raise TableError(f"State({attribute.name}=) is {what}; give a plain function of the run, or leave it out")


@attrs.frozen
class State:
    """One state: its name, the kind of work done in it, and the tools that may be called there.

    `tools` is None for every tool of the agent, else the names allowed. Where a state decides on calls that the next one makes, and
    names no tools itself, the decider is offered those of the next. A state whose work is ``answer`` is final.
    `on_enter` and `on_leave` look on: pure functions of the run that may write its `fields`; one that raises is noted in
    the trace and changes nothing else.
    """

    name: str = attrs.field(converter=state_name)
    work: str = attrs.field(validator=_word)
    tools: frozenset[str] | None = attrs.field(default=frozenset(), converter=_tool_names)
    on_enter: Callable[[Run], Any] | None = attrs.field(default=None, eq=False, kw_only=True, validator=_observer)
    on_leave: Callable[[Run], Any] | None = attrs.field(default=None, eq=False, kw_only=True, validator=_observer)

    @property
    def final(self) -> bool:
        """True when a run that enters here goes nowhere else."""
        return self.work == "answer"


def _guards(guards: Iterable[Guard]) -> tuple[Guard, ...]:
    found = _listed(guards, "guards of a row")
    for guard in found:
        if not is_guard(guard):
            raise TableError(f"{short(guard, 60)} is no guard; {GIVE_A_GUARD}")
    return found


def _counters(names: Iterable[str]) -> tuple[str, ...]:
    return _listed(names, "counters that a row spends")


@attrs.frozen
class Row:
    """One row: from `source`, on `outcome`, to `target`, if every guard is open; of several, the first open row wins.

    `spends` claims further counters that are sure to rise between two walks of this row, where the kind of work alone
    cannot promise it; a run in which they do not is ended there (`fatal`).
    """

    source: str = attrs.field(converter=state_name)
    outcome: str = attrs.field(converter=str)
    target: str = attrs.field(converter=state_name)
    guards: tuple[Guard, ...] = attrs.field(default=(), converter=_guards)
    spends: tuple[str, ...] = attrs.field(default=(), converter=_counters)

    def __str__(self) -> str:
        guards = f" [{', '.join(guard.name for guard in self.guards)}]" if self.guards else ""
        return f"{self.source} --{self.outcome}--> {self.target}{guards}"


def _states(states: Iterable[State]) -> tuple[State, ...]:
    return _listed(states, "states of a machine", State)


def _rows(rows: Iterable[Row]) -> tuple[Row, ...]:
    return _listed(rows, "rows of a machine", Row)


def _with_own(kinds: Mapping[str, Kind]) -> Mapping[str, Kind]:
    if not isinstance(kinds, Mapping):
        raise TableError(f"the kinds of a machine are {short(kinds, 60)}; give a mapping of names to Kinds")
    for name, kind in kinds.items():
        if not isinstance(kind, Kind):
            raise TableError(f"the kind {short(name, 60)} is {short(kind, 60)}; give a Kind")
    return {**KINDS, **kinds}


def _limits(_: object, __: object, value: Any) -> None:
    if not isinstance(value, Limits):
        raise TableError(f"Table(limits=) is {short(value, 60)}; give Limits(...), or leave it out")


@attrs.frozen(repr=False)
class Table:
    """A machine: name, initial state, states and rows, in the order they were written.

    `kinds` adds the user's own kinds of work to the built-in ones, and `limits` are the figures of a run that is given
    none. The table is not checked here; `checks.check_table` is what an engine calls when it is built.
    """

    name: str = attrs.field(validator=_word)
    initial: str = attrs.field(converter=state_name)
    states: tuple[State, ...] = attrs.field(converter=_states)
    rows: tuple[Row, ...] = attrs.field(converter=_rows)
    kinds: Mapping[str, Kind] = attrs.field(default=KINDS, converter=_with_own)
    limits: Limits = attrs.field(factory=Limits, kw_only=True, validator=_limits)
    _cells: dict[tuple[str, str], tuple[Row, ...]] = attrs.field(init=False, eq=False)

    @_cells.default
    def _by_cell(self) -> dict[tuple[str, str], tuple[Row, ...]]:
        cells: dict[tuple[str, str], tuple[Row, ...]] = {}
        for row in self.rows:
            cells[row.source, row.outcome] = (*cells.get((row.source, row.outcome), ()), row)
        return cells

    def __repr__(self) -> str:
        return f"<Table {self.name!r}: {len(self.states)} states, {len(self.rows)} rows>"

    def state(self, name: str) -> State:
        """The state of that name; raises TableError when there is none."""
        for state in self.states:
            if state.name == name:
                return state
        raise TableError(f"machine {self.name!r} has no state {name!r}; {mend(name, [s.name for s in self.states], 'it has')}")

    def rows_of(self, source: str, outcome: str | None = None) -> tuple[Row, ...]:
        """The rows that leave a state, or those for one outcome, in order."""
        if outcome is not None:
            return self._cells.get((source, outcome), ())
        return tuple(row for row in self.rows if row.source == source)

    def allowing(self, allowed: Mapping[str, Iterable[str] | None]) -> Table:
        """The same machine with other tools allowed in the states named; raises TableError for a state that it lacks."""
        if not isinstance(allowed, Mapping):
            raise TableError(f"allowed is {short(allowed, 60)}; give a mapping of states to lists of tools (None: every tool)")
        named = {state_name(name): tools for name, tools in allowed.items()}
        for name in named:
            self.state(name)
        changed = tuple(attrs.evolve(state, tools=named[state.name]) if state.name in named else state for state in self.states)
        return attrs.evolve(self, states=changed)

    def hash(self) -> str:
        """A short text that two machines share only when they have the same states, rows, guards and allowed tools."""
        return hashlib.blake2b(json.dumps(self.as_json(), sort_keys=True).encode(), digest_size=8).hexdigest()

    def as_json(self) -> dict[str, Any]:
        """The machine as plain data; opaque guards go by their names."""
        return {
            "name": self.name,
            "initial": self.initial,
            "states": [
                {"name": s.name, "work": s.work, "tools": None if s.tools is None else sorted(s.tools)} for s in self.states
            ],
            "rows": [
                {
                    "source": row.source,
                    "outcome": row.outcome,
                    "target": row.target,
                    "guards": [guard.name for guard in row.guards],
                    "spends": [f"{part.counter}<{part.limit}" for guard in row.guards for part in spendings(guard)],
                }
                for row in self.rows
            ],
        }
