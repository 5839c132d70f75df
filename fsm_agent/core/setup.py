"""What an engine is built from, checked once and shared by all of its runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

import attrs

from fsm_agent.core._machine import Machine
from fsm_agent.core.checks import check_bounds, check_limit_names, check_names, check_table
from fsm_agent.core.claims import Claim, Claims, claims_of, restarts_of
from fsm_agent.core.effects import Effect
from fsm_agent.core.errors import TableError
from fsm_agent.core.events import Event, Started
from fsm_agent.core.gate import Toolbox
from fsm_agent.core.limits import Limits
from fsm_agent.core.run import Run
from fsm_agent.core.table import Table
from fsm_agent.core.tools import Toolset
from fsm_agent.core.turn import Repair, Repairs
from fsm_agent.core.typed_answer import TypedAnswer
from fsm_agent.core.values import Policy


class Work(Protocol):
    """One kind of work. `enter` and `tell` return an outcome, or None while something is still asked for; none of them moves the run."""

    def enter(self, setup: Setup, run: Run) -> str | None:
        """Begin, as the run enters a state of this work: the outcome where that is all, or None where something is to be asked."""

    def ask(self, setup: Setup, run: Run) -> Effect:
        """What the run needs now; the run stays as it is, and is asked for the same again until it is told."""

    def tell(self, setup: Setup, run: Run, event: Event) -> str | None:
        """Fold in what came back: the outcome, or None where there is more to ask; raises WrongEvent for what was not asked for."""


Observer = Callable[[Run], Any]

# How a state is left by an outcome: what runs keep of it, and what rows claim to have spent, by where they lead. The tuple is one for
# all runs that came that way, since of many runs each would cost its own.
Way = tuple[tuple[str, str], "Mapping[str, Claim] | None"]


def _no_repairs() -> dict[str, tuple[str, Repair]]:
    return {}


@attrs.frozen(kw_only=True, eq=False)
class Setup:
    """A machine with its tools, policy and repairs; it holds no run.

    `box` is where tools are looked up; the names that states, `required` and limits give are checked where it is a Toolset, while
    a live table may get its tools later. `repairs` maps an error word to a repair's name and function. `required` names tools
    whose evidence an answer needs. `answer` is the form that the final text has to have. `verifies` and `composes` say
    whether the driver can answer Judge and Compose; `offers` whether the decider wants the names of the tools it may call,
    `checks` whether the host looks at each call before it begins, `peeks` at those that people would be asked about. `work`
    gives each kind of work its implementation, `normalizer` is the host's word on a request, and with `runs_programs` programs are run.

    Raises TableError for a table that no run can use or that the limits leave unbounded, BuildError for a name of no tool.
    """

    table: Table
    box: Toolbox
    work: Mapping[str, Work]
    limits: Limits = attrs.field(factory=Limits)
    policy: Policy = attrs.field(factory=Policy)
    repairs: Repairs = attrs.field(factory=_no_repairs)
    required: Collection[str] = ()
    normalizer: Callable[[Any], Any] | None = None
    answer: TypedAnswer | None = None
    verifies: bool = False
    composes: bool = False
    offers: bool = True
    checks: bool = False
    peeks: bool = False
    runs_programs: bool = False
    works: dict[str, Work] = attrs.field(init=False, repr=False)
    enters: dict[str, Callable[[Setup, Run], str | None]] = attrs.field(init=False, repr=False)
    asks: dict[str, Callable[[Setup, Run], Effect]] = attrs.field(init=False, repr=False)
    tells: dict[str, Callable[[Setup, Run, Event], str | None]] = attrs.field(init=False, repr=False)
    machine: Machine = attrs.field(init=False, repr=False)
    allowed: dict[str, frozenset[str] | None] = attrs.field(init=False, repr=False)
    offered: dict[str, frozenset[str] | None] = attrs.field(init=False, repr=False)
    finals: frozenset[str] = attrs.field(init=False, repr=False)
    mends: bool = attrs.field(init=False, repr=False)
    observers: dict[tuple[str, str], Observer] = attrs.field(init=False, repr=False)
    claims: Claims = attrs.field(init=False, repr=False)
    restarts: Mapping[str, str] = attrs.field(init=False, repr=False)
    hash: str = attrs.field(init=False, repr=False)
    ways: dict[str, dict[str, Way]] = attrs.field(init=False, repr=False)
    # One event for all runs that begin calls of these ids, since of many runs each would cost its own.
    started: dict[tuple[str, ...], Started] = attrs.field(init=False, repr=False, factory=dict)
    _bounded: dict[int, Limits] = attrs.field(init=False, repr=False, factory=dict)

    @works.default
    def _implement(self) -> dict[str, Work]:
        check_table(self.table)
        if isinstance(self.box, Toolset):
            check_names(self.table, self.limits, self.required, self.box.names())
        check_bounds(self.table, self.limits, *self.certain())
        for state in self.table.states:
            if state.work not in self.work:
                raise TableError(f"state {state.name!r} does {state.work!r}, for which no work was given; pass work={{...}}")
        return {state.name: self.work[state.work] for state in self.table.states}

    # What is looked up at every step, by the state that a run is in.
    @enters.default
    def _entering(self) -> dict[str, Callable[[Setup, Run], str | None]]:
        return {state: work.enter for state, work in self.works.items()}

    @asks.default
    def _asking(self) -> dict[str, Callable[[Setup, Run], Effect]]:
        return {state: work.ask for state, work in self.works.items()}

    @tells.default
    def _telling(self) -> dict[str, Callable[[Setup, Run, Event], str | None]]:
        return {state: work.tell for state, work in self.works.items()}

    @machine.default
    def _compile(self) -> Machine:
        return Machine(self.table)

    @allowed.default
    def _allow(self) -> dict[str, frozenset[str] | None]:
        return {state.name: state.tools for state in self.table.states}

    @offered.default
    def _offer(self) -> dict[str, frozenset[str] | None]:
        offered = dict(self.allowed)
        for state, tools in self.allowed.items():
            if tools == frozenset():
                # Calls that are decided on in one state and made in the next may be those that are allowed there.
                later = [self.allowed[row.target] for row in self.table.rows_of(state, "decided")]
                offered[state] = None if None in later else frozenset(name for names in later for name in names or ())
        return offered

    @finals.default
    def _end(self) -> frozenset[str]:
        return frozenset(state.name for state in self.table.states if state.final)

    @mends.default
    def _mend(self) -> bool:
        return any(state.work == "repair" for state in self.table.states)

    @observers.default
    def _observe(self) -> dict[tuple[str, str], Observer]:
        found = {}
        for state in self.table.states:
            for when, observer in (("enter", state.on_enter), ("leave", state.on_leave)):
                if observer is not None:
                    found[when, state.name] = observer
        return found

    @claims.default
    def _claim(self) -> Claims:
        return claims_of(self.table)

    @ways.default
    def _lead(self) -> dict[str, dict[str, Way]]:
        ways: dict[str, dict[str, Way]] = {state.name: {} for state in self.table.states}
        for state, leading in ways.items():
            for outcome in self.machine.outcomes(state):
                claims = {target: claim for (by, target), claim in self.claims.get(state, {}).items() if by == outcome}
                leading[outcome] = ((state, outcome), claims or None)
        return ways

    @restarts.default
    def _restart(self) -> Mapping[str, str]:
        return restarts_of(self.table) if self.claims else {}

    @hash.default
    def _hash(self) -> str:
        return self.table.hash()

    def certain(self) -> tuple[frozenset[str], frozenset[str]]:
        """Guards that are never open here, and further outcomes that leave no call open; repairs that may come later are not ruled out."""
        repairs: object = self.repairs
        shut = frozenset({"has_repair"}) if type(repairs) is dict and not repairs else frozenset[str]()
        return shut, frozenset[str]() if self.verifies else frozenset({"insufficient"})

    def check_raised(self, limits: Limits) -> None:
        """Refuse limits that leave the machine unbounded or name a tool that is not there; raises TableError or LimitsError."""
        check_bounds(self.table, limits, *self.certain())
        if isinstance(self.box, Toolset):
            check_limit_names(limits, self.box.names())

    def check_limits(self, limits: Limits) -> None:
        """`check_raised`, for the same object only once."""
        if self._bounded.get(id(limits)) is limits:
            return
        self.check_raised(limits)
        if len(self._bounded) >= _MOST_KNOWN_LIMITS:
            self._bounded.clear()
        self._bounded[id(limits)] = limits


_MOST_KNOWN_LIMITS = 64
