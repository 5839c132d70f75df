"""The engine: what does this run need now (`ask`), and here is what came back (`tell`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from fsm_agent.core.checks import check_bounds
from fsm_agent.core.effects import Effect
from fsm_agent.core.ending import abandon, finish, stop_here
from fsm_agent.core.errors import CannotResume, LimitsError, TableError, WrongEvent
from fsm_agent.core.events import Cancelled, Event, Resumed, Started, Stopped, Waited
from fsm_agent.core.limits import Limits
from fsm_agent.core.run import Call, Run
from fsm_agent.core.setup import Setup
from fsm_agent.core.stops import note_closed
from fsm_agent.core.values import StopReason
from fsm_agent.core.work import begin

# Ends that need no raise: whoever stopped the run, or failed it, may let it go on.
_MAY_GO_ON = (StopReason.CANCELLED, StopReason.MODEL_ERROR)


@attrs.frozen(eq=False)
class Engine:
    """Drives runs of one setup by pure steps; it changes nothing but the run it is given."""

    setup: Setup

    def start(
        self,
        request: Any,
        *,
        run_id: str = "run",
        limits: Limits | None = None,
        scope: str = "",
        seed: int = 0,
        fields: Mapping[str, Any] | None = None,
    ) -> Run:
        """A new run, driven to the first thing it asks for; raises TableError when its own limits leave it unbounded."""
        setup = self.setup
        if limits is None:
            limits = setup.limits
        elif limits is not setup.limits:
            setup.check_limits(limits)
        run = Run(
            id=run_id,
            request=request,
            given=request,
            state=setup.table.initial,
            limits=limits,
            machine=setup.hash,
            scope=scope,
            seed=seed,
            redecide=setup.policy.redecide,
        )
        if fields:
            run.fields.update(fields)
            run.first_fields.update(fields)
        run.trace.append(("run_started", 0.0, run_id, None))
        outcome = self._enter(run)
        if outcome is not None:
            self._advance(run, outcome)
        return run

    def ask(self, run: Run) -> Effect | None:
        """What the run needs now, or None once it is over; asking changes nothing."""
        if run.stop is not None and not run.closing:
            return None
        return self.setup.works[run.state].ask(self.setup, run)

    def tell(self, run: Run, event: Event, now: float | None = None) -> None:
        """Fold in what came back; `now` is the time the run has spent so far, in seconds (it never falls).

        Raises WrongEvent, the run unchanged, for an event that the run did not ask for.
        """
        if run.stop is not None and not run.closing:
            raise WrongEvent(
                f"run {run.id!r} is over ({run.stop.reason.value}) and was told {type(event).__name__}; resume it first"
            )
        before, waited, rows = run.spent_s, run.waited_s, len(run.trace)
        if now is not None and now > before:
            run.spent_s = now
        kind = type(event)
        if kind is Waited:
            run.waited_s += run.spent_s - before
            run.trace.append(("waiting", before, run.id, run.spent_s - before))
        elif kind is Cancelled or kind is Stopped:
            run.journal.append((run.spent_s, event))
            self._stop_midway(run, event)
            return
        setup = self.setup
        try:
            outcome = setup.works[run.state].tell(setup, run, event)
        except WrongEvent:
            run.spent_s, run.waited_s = before, waited
            del run.trace[rows:]
            raise
        run.journal.append((run.spent_s, event))
        if outcome is not None:
            self._advance(run, outcome)

    def begin(self, run: Run, calls: Sequence[Call], now: float | None = None) -> None:
        """Note that the bodies of these open calls may run from now on; the same as telling Started, without its checks."""
        if now is not None and now > run.spent_s:
            run.spent_s = now
        begin(run, calls)
        run.journal.append((run.spent_s, Started(tuple([call.id for call in calls]))))

    def resume(self, run: Run, raises: Mapping[str, Any] | None = None) -> None:
        """Let a stopped run go on where it stopped, with the limits named raised.

        Raises CannotResume, the run unchanged, when it is not stopped, ended of itself, or a guard stays closed.
        """
        stop = run.stop
        if stop is None or run.closing:
            raise CannotResume(f"run {run.id!r} is not stopped; drive it on")
        if not stop.closed and stop.reason not in _MAY_GO_ON:
            raise CannotResume(f"run {run.id!r} ended by {stop.reason.value!r}; no raise of a limit lets it go on")
        try:
            limits = run.limits.raised(raises or {})
            check_bounds(self.setup.table, limits)
        except (LimitsError, TableError) as error:
            raise CannotResume(f"run {run.id!r} cannot go on: {error}") from error
        short = [name for name, value in stop.raise_to.items() if not _reaches(getattr(limits, name), value)]
        if short:
            need = ", ".join(f"{name}={value}" for name, value in stop.raise_to.items())
            raise CannotResume(f"run {run.id!r} stays closed by {', '.join(short)}; it goes on with {need}")
        self.go_on(run, limits)

    def go_on(self, run: Run, limits: Limits) -> None:
        """Take a stopped run up again under these limits, unchecked; `resume` is the door, a replay comes here."""
        stop = run.stop
        if stop is None:
            raise CannotResume(f"run {run.id!r} is not stopped")
        run.journal.append((run.spent_s, Resumed(limits, run.limits)))
        run.limits = limits
        run.trace.append(("resumed", run.spent_s, run.id, None))
        run.resumed += 1
        run.stop, run.stopping, run.closed, run.closing_text, run.note = None, None, [], "", ""
        self.setup.machine.rewind(run, stop.state)
        self._reopen(run, stop.outcome)
        outcome = stop.outcome or self._enter(run)
        if outcome is not None:
            self._advance(run, outcome)

    def _reopen(self, run: Run, outcome: str) -> None:
        """Take up again the calls of the last turn: those a repair was due for, or those that were cut off."""
        turn = [call for call in run.calls if call.turn == run.turns]
        cut_off = not outcome and any(call.error == "cancelled" for call in turn)
        if not cut_off and not (outcome == "failed" and run.repair_due):
            return
        run.calls = [call for call in run.calls if call.turn != run.turns]
        run.open_calls = turn
        for call in turn:
            if call.error == "cancelled":
                call.ok, call.error, call.detail, call.counted, call.started = None, "", "", False, False

    def _advance(self, run: Run, outcome: str) -> None:
        fire, finals = self.setup.machine.fire, self.setup.finals
        step: str | None = outcome
        while step is not None:
            run.came_by = (run.state, step)
            closed = fire(run, step)
            if closed and run.state in finals:
                note_closed(run, closed)
            step = self._enter(run)

    def _enter(self, run: Run) -> str | None:
        state = run.state
        run.steps += 1
        path = run.path
        if not path or path[-1] != state:
            path.append(state)
        run.trace.append(("state_entered", run.spent_s, state, None))
        return self.setup.works[state].enter(self.setup, run)

    def _stop_midway(self, run: Run, event: Event) -> None:
        if run.closing:
            finish(run, run.stop.reason if run.stop is not None else "")
            return
        for call in run.open_calls:
            if call.ok is None:
                abandon(run, self.setup.box, call)
        run.stopping = StopReason(event.reason) if isinstance(event, Stopped) else StopReason.CANCELLED
        run.note, run.closed = getattr(event, "detail", ""), []
        if "stopped" in self.setup.machine.outcomes(run.state):
            self._advance(run, "stopped")
        else:
            run.came_by = (run.state, "stopped")
            stop_here(self.setup, run)


def _reaches(limit: Any, needed: Any) -> bool:
    return limit is None or (needed is not None and bool(limit >= needed))
