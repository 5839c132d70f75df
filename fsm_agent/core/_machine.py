"""The one file that knows `transitions`, and the one that moves a run.

One machine is shared by all runs of a table; no run is ever registered with it and no callback ever is, so the lean event,
which enters through the library's public hook, only has to look at conditions. A test drives it beside the stock classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from transitions import Machine as _Machine
from transitions import MachineError as _MachineError
from transitions.core import Event as _Event
from transitions.core import EventData as _EventData
from transitions.core import Transition as _Transition

from fsm_agent.core.errors import NoRow
from fsm_agent.core.guards import AllOf, Guard, Opaque, Spending
from fsm_agent.core.run import Run
from fsm_agent.core.short_text import said_by
from fsm_agent.core.table import Table

# The guards that are asked by their own test, without a call in between.
_TESTED = (AllOf, Opaque, Spending)
_Check = Callable[[_EventData], bool]


def _condition(guard: Guard) -> _Check:
    # transitions opens an edge only for values equal to True, so the adapter hands over real booleans. A guard that raises has not said
    # yes; the trace says so, it is named among the closed ones, and the run goes the way of a closed guard.
    def condition(event: _EventData) -> bool:
        run = cast(Run, event.model)
        try:
            if guard(run):
                return True
        except Exception as error:
            _note_failed(run, guard, error)
        closed: list[Guard] = next(iter(event.args))
        closed.append(guard)
        return False

    condition.__name__ = guard.name
    return condition


def _note_failed(run: Run, guard: Guard, error: Exception) -> None:
    run.flat_trace.extend(("guard_failed", run.spent_s, guard.name, said_by(error)))


class _LeanTransition(_Transition):
    """A transition that knows the guards which its conditions stand for, each with what is called to ask it."""

    guards: tuple[tuple[Guard, Callable[[Run], Any]], ...] = ()


class _LeanEvent(_Event):
    """An event without the log calls, records and repeated look-ups of the stock one; it asks the guards themselves."""

    def trigger(self, model: Any, closed: list[Guard] | None = None) -> bool:
        """Move a run along its first open row; `closed` takes the guards that were closed in the rows before it."""
        for row in self.transitions.get(model.state, ()):
            for guard, test in row.guards:  # type: ignore[attr-defined]
                try:
                    if test(model):
                        continue
                except Exception as error:
                    _note_failed(model, guard, error)
                if closed is not None:
                    closed.append(guard)
                break
            else:
                model.state = row.dest
                return True
        return False


class _StockMachine(_Machine):
    # Names that mean something to the library and could be those of states.
    wildcard_all = "\0any"
    wildcard_same = "\0same"


class _LeanMachine(_StockMachine):
    event_cls = _LeanEvent
    transition_cls = _LeanTransition


class Machine:
    """A table compiled once, shared by every run of it and safe between threads."""

    __slots__ = ("_events", "_machine", "_triggers", "table")

    def __init__(self, table: Table, *, stock: bool = False) -> None:
        """Compile a checked table; `stock` takes the library's own classes, for comparison."""
        self.table = table
        build = _StockMachine if stock else _LeanMachine
        self._machine = build(
            model=None,
            states=[state.name for state in table.states],
            initial=table.initial,
            auto_transitions=False,
            send_event=True,
            queued=False,
        )
        for row in table.rows:
            self._machine.add_transition(
                _trigger(row.outcome), row.source, row.target, conditions=[_condition(guard) for guard in row.guards]
            )
            if not stock:
                made = self._machine.events[_trigger(row.outcome)].transitions[row.source][-1]
                tests = [(guard, cast(Any, guard).test if type(guard) in _TESTED else guard) for guard in row.guards]
                cast(_LeanTransition, made).guards = tuple(tests)
        self._events = {row.outcome: self._machine.events[_trigger(row.outcome)] for row in table.rows}
        self._triggers = {outcome: event.trigger for outcome, event in self._events.items()}

    def fire(self, run: Run, outcome: str) -> list[Guard]:
        """Walk the first open row and move the run; returns the guards that were closed in the rows before it.

        Raises NoRow, the run unmoved, when the state has no open row for the outcome.
        """
        closed: list[Guard] = []
        try:
            if self._triggers[outcome](run, closed):
                return closed
        except (KeyError, _MachineError, ValueError):
            # No such outcome, no row for this state, or a state that the machine does not have; a guard's own error never
            # comes here.
            pass
        raise NoRow(run.state, outcome, self.outcomes(run.state), tuple(guard.name for guard in closed))

    def outcomes(self, state: str) -> tuple[str, ...]:
        """The outcomes that a state has rows for, in the order of the table."""
        return tuple(outcome for outcome, event in self._events.items() if state in event.transitions)

    def rewind(self, run: Run, state: str) -> None:
        """Put a stopped run back into the state that it stopped in, so that it can go on from there."""
        run.state = self.table.state(state).name


def _trigger(outcome: str) -> str:
    # A bare outcome could be a name that the library keeps for itself, such as `state`.
    return f"on {outcome}"
