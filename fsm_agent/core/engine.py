"""The engine: what does this run need now (`ask`), and here is what came back (`tell`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from fsm_agent.core.claims import Claim, broken_claim
from fsm_agent.core.effects import Effect, Wait
from fsm_agent.core.ending import abandon, finish, stop_here
from fsm_agent.core.errors import PASSES, CannotResume, LimitsError, TableError, WrongEvent
from fsm_agent.core.events import Cancelled, Decided, DecisionFailed, Event, Resumed, Started, Stopped, Waited
from fsm_agent.core.limits import Limits
from fsm_agent.core.plain import plain_copy, short
from fsm_agent.core.repairing import repair_interrupted
from fsm_agent.core.run import ROW, Call, Run, Stop, new_run
from fsm_agent.core.secret_seals import seal_journal
from fsm_agent.core.setup import Setup
from fsm_agent.core.short_text import said_by
from fsm_agent.core.stops import note_closed, still_closed, with_all_closed
from fsm_agent.core.values import GOES_ON, EffectClass, StopReason
from fsm_agent.core.work import begin

_MOST_KNOWN, _CALLING = 64, ("call", "gather", "plan")
_STOPS = frozenset({Cancelled, Stopped})
# Of these the run is not told as it is of an answer: it ends by them, they let time pass, or they are refused too early.
_ODD = frozenset({Waited, Started}) | _STOPS


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
        run = new_run(
            run_id, request, request, setup.table.initial, limits, setup.hash, scope, seed, setup.policy.redecide
        )
        if fields:
            # What the caller gave and a replay starts from stays as it was, whatever the run's work does to its fields.
            run.first_fields = plain_copy(dict(fields))
            run.fields = plain_copy(run.first_fields)
        run.flat_trace.extend(("run_started", 0.0, run_id, None))
        self._walk(run, None)
        return run

    def ask(self, run: Run) -> Effect | None:
        """What the run needs now, or None once it is over; asking changes nothing."""
        if run.stop is not None and not run.closing:
            return None
        setup = self.setup
        return setup.asks[run.state](setup, run)

    def tell(self, run: Run, event: Event, now: float | None = None) -> None:
        """Fold in what came back; `now` is the time the run has spent so far, in seconds (it never falls).

        Raises WrongEvent, the run unchanged, for an event that the run did not ask for.
        """
        if run.stop is not None and not run.closing:
            raise WrongEvent(
                f"run {run.id!r} is over ({run.stop.reason.value}) and was told {type(event).__name__}; resume it first"
            )
        kind, told = type(event), len(run.flat_trace)
        before, waited = run.spent_s, run.waited_s
        if kind in _ODD or run.not_before_s > before:
            if kind in _STOPS:
                self._stop_midway(run, event, now)
                if run.unsealed:
                    seal_journal(run)
                return
            if kind is Waited:
                now = self._let_time_pass(run, now)
            else:
                _refuse_early(run, event)
        if now is not None and now > before:
            run.spent_s = now
        setup = self.setup
        try:
            outcome = setup.tells[run.state](setup, run, event)
        except WrongEvent:
            run.spent_s, run.waited_s = before, waited
            del run.flat_trace[told:]
            raise
        except PASSES:
            # A repair was interrupted; what the run was told, it was told all the same.
            if len(run.flat_trace) > told and run.flat_trace[-ROW] == "repair_failed":
                run.flat_journal.extend((run.spent_s, event))
            raise
        run.flat_journal.extend((run.spent_s, event))
        if outcome is not None:
            self._walk(run, outcome)
        elif run.stop is not None:
            # The closing turn took a turn and time of its own, which a raise has to make good too.
            run.stop = with_all_closed(run, setup.table, run.stop)
        if run.unsealed:
            seal_journal(run)

    def begin(self, run: Run, calls: Sequence[Call], now: float | None = None) -> None:
        """Note that the bodies of these open calls may run from now on; the same as telling Started, without its checks."""
        if now is not None and now > run.spent_s:
            run.spent_s = now
        known = self.setup.started
        if (event := known.get(ids := begin(run, calls))) is None:
            event = Started(ids)
            if len(known) < _MOST_KNOWN:
                known[ids] = event
        run.flat_journal.extend((run.spent_s, event))

    def resume(self, run: Run, raises: Mapping[str, Any] | None = None, *, again: bool = True) -> None:
        """Let a stopped or paused run go on where it stopped, with the limits named raised.

        With `again` false the calls that a cancellation cut off are not begun again. Raises CannotResume, the run unchanged, when
        it is not stopped, ended of itself, or a guard stays closed.
        """
        stop = run.stop
        if stop is None and run.flat_journal:
            self._raise_limits(run, self._raised(run, raises))
            return
        if stop is None or run.closing:
            raise CannotResume(f"run {run.id!r} has not stopped; drive it on")
        if not stop.closed and stop.reason not in GOES_ON:
            raise CannotResume(f"run {run.id!r} ended by {stop.reason.value!r}; no raise of a limit lets it go on")
        limits = self._raised(run, raises)
        if closed := still_closed(run, stop, limits):
            need = ", ".join(f"{name}={short(value, 40)}" for name, value in stop.raise_to.items())
            raise CannotResume(f"run {run.id!r} stays closed by {', '.join(closed)}; it goes on with {need}")
        self.go_on(run, limits, again)

    def go_on(self, run: Run, limits: Limits, again: bool = True) -> None:
        """Take a stopped run up again under these limits, unchecked; `resume` is the door, a replay comes here."""
        stop = run.stop
        if stop is None:
            self._raise_limits(run, limits)
            return
        run.flat_journal.extend((run.spent_s, Resumed(limits, run.limits, again)))
        run.limits = limits
        run.flat_trace.extend(("resumed", run.spent_s, run.id, stop.state))
        run.resumed += 1
        run.failed_requests = 0
        run.stop, run.stopping, run.closed, run.closing_text, run.note = None, None, (), "", ""
        # A row that is walked because somebody took the run up again has spent nothing, and is bounded by them.
        run.claimed = None
        self.setup.machine.rewind(run, stop.state)
        cut_off = self._reopen(run, stop, again)
        on: str | None = stop.outcome
        if not on:
            # In a state that only calls nothing is left to do where no call was cut off.
            on = "called" if self.setup.table.state(stop.state).work == "call" else None
        self._walk(run, None if cut_off else on)
        if run.unsealed:
            # The calls that were taken up again may be settled by now; the decision that is told next is another one.
            seal_journal(run)

    def _raised(self, run: Run, raises: Mapping[str, Any] | None) -> Limits:
        try:
            limits = run.limits.raised(raises or {})
            self.setup.check_raised(limits)
        except (LimitsError, TableError) as error:
            raise CannotResume(f"run {run.id!r} cannot go on: {error}") from error
        return limits

    def _raise_limits(self, run: Run, limits: Limits) -> None:
        """Give a run that stands still, but is not stopped, other limits; whoever drives it on goes by them."""
        run.flat_journal.extend((run.spent_s, Resumed(limits, run.limits)))
        run.limits = limits

    def _reopen(self, run: Run, stop: Stop, again: bool) -> bool:
        """Take up again the calls of the last turn: those cut off or whose repair was (then true), or those a repair was due for.

        Where the decider is asked next, a call that a limit kept from running keeps that result, and it is the decider's to ask
        again; one that was cancelled is begun again.
        """
        last = run.calls[-1].turn if run.calls else 0
        turn = [call for call in run.calls if call.turn == last]
        calls_here = self.setup.table.state(stop.state).work in _CALLING
        cut_off = [call for call in turn if calls_here and self._may_begin_again(call, stop)]
        if stop.outcome:
            cut_off = [call for call in cut_off if again and call.error == "cancelled"]
        interrupted = any(map(repair_interrupted, turn))
        if not cut_off and not interrupted and not (stop.outcome == "failed" and run.repair_due):
            return False
        run.calls = [call for call in run.calls if call.turn != last]
        run.open_calls = turn
        for call in cut_off:
            call.ok, call.error, call.detail, call.counted, call.started = None, "", "", False, False
        run.held = sum(call.ok is None and bool(call.awaits) for call in turn)
        return bool(cut_off) or interrupted

    def _may_begin_again(self, call: Call, stop: Stop) -> bool:
        """Whether the stop alone kept a call from its result, and a body of it that had begun may be begun again."""
        # A raise does not make the calls of a cut-off reply whole, nor those of one that could not be used.
        closed = [guard for guard in stop.closed if guard.guard != "decisions_usable"]
        words = {"cancelled", *(f"skipped:{guard.reason.value}" for guard in closed)}
        if call.error not in words or call.secret:
            # Of a secret only its seal is left by now, and no body can be begun with that.
            return False
        tool = self.setup.box.get(call.tool)
        return not call.started or (tool is not None and tool.effect in (EffectClass.PURE, EffectClass.IDEMPOTENT))

    def _walk(self, run: Run, outcome: str | None) -> None:
        """Walk the row of an outcome, enter where it leads, and so on until something is asked for; None enters the state at once."""
        setup, state = self.setup, run.state
        machine, ways = setup.machine, setup.ways
        observers, enters = setup.observers, setup.enters
        # The row walked, as `walked` reads it: each row passed over has one closed guard, so their number tells which of its outcome.
        by: str | None = None
        passing: BaseException | None = None
        while True:
            if outcome is not None:
                if observers:
                    passing = self._observe(run, "leave") or passing
                run.came_by, claims = ways[state].get(outcome) or ((state, outcome), None)
                closed = machine.fire(run, outcome)
                state = run.state
                if claims is not None and (claim := claims.get(state)) is not None and self._breaks_claim(run, claim):
                    break
                if closed:
                    by = f"{outcome}#{len(closed) + 1}"
                    if state in setup.finals:
                        note_closed(run, closed)
                else:
                    by = outcome
            run.steps += 1
            run.flat_trace.extend(("state_entered", run.spent_s, state, by))
            if observers:
                passing = self._observe(run, "enter") or passing
            outcome = enters[state](setup, run)
            if outcome is None:
                break
        if passing is not None:
            raise passing

    def _breaks_claim(self, run: Run, claim: Claim) -> bool:
        """Whether the row that was just walked has not spent what it claims; the run is then over."""
        if claim.stepped and run.limits.max_steps is not None:
            return False
        setup, (state, outcome) = self.setup, run.came_by
        counter = broken_claim(run, (state, outcome, run.state), claim.counters, setup.restarts)
        if not counter:
            return False
        run.stopping, run.closed = StopReason.FATAL, ()
        run.note = f"row {state} --{outcome}--> {run.state} is sure to spend {counter!r}, says the machine, and has not; so it need not end"
        stop_here(setup, run)
        return True

    def _observe(self, run: Run, when: str) -> BaseException | None:
        """Let who looks on look; what passes through is given back, for the run goes where it goes all the same."""
        observer = self.setup.observers.get((when, run.state))
        if observer is None:
            return None
        try:
            observer(run)
        except PASSES as error:
            return error
        except Exception as error:
            # It only looks on: what it failed at is told, and the run goes its way.
            why = f"on_{when} raised {said_by(error)}"
            run.flat_trace.extend(("observer_failed", run.spent_s, run.state, why))
        return None

    def _let_time_pass(self, run: Run, now: float | None) -> float:
        """The time after a wait, which is counted as one."""
        effect, before = self.ask(run), run.spent_s
        if not isinstance(effect, Wait):
            raise WrongEvent(f"run {run.id!r} was told Waited in state {run.state!r} and waits for no time to pass")
        after = max(before, effect.until_s if now is None else now)
        run.waited_s += after - before
        run.flat_trace.extend(("waiting", before, run.id, after - before))
        return after

    def _stop_midway(self, run: Run, event: Event, now: float | None) -> None:
        reason = StopReason.CANCELLED
        if isinstance(event, Stopped):
            try:
                reason = StopReason(event.reason)
            except ValueError:
                raise WrongEvent(f"run {run.id!r} was told Stopped({short(event.reason, 40)}), which is no stop reason") from None
        if now is not None and now > run.spent_s:
            run.spent_s = now
        run.flat_journal.extend((run.spent_s, event))
        if run.stop is not None:
            finish(run, run.stop.reason)
            run.stop = with_all_closed(run, self.setup.table, run.stop)
            return
        for call in run.open_calls:
            if call.ok is None:
                abandon(run, self.setup.box, call)
        run.stopping, run.note, run.closed = reason, getattr(event, "detail", ""), ()
        if "stopped" in self.setup.machine.outcomes(run.state):
            self._walk(run, "stopped")
        else:
            run.came_by = (run.state, "stopped")
            stop_here(self.setup, run)


def _refuse_early(run: Run, event: Event) -> None:
    """Refuse a decision that the run still waits for, and the beginning of calls that are not open."""
    if isinstance(event, Started):
        open_ids = [call.id for call in run.open_calls if call.ok is None]
        for call_id in event.call_ids if open_ids else ():
            if call_id not in open_ids:
                raise WrongEvent(f"run {run.id!r} has no open call {short(call_id, 60)}; it waits for {', '.join(map(repr, open_ids))}")
    elif isinstance(event, Decided | DecisionFailed):
        raise WrongEvent(
            f"run {run.id!r} was told {type(event).__name__} and waits until it has spent {run.not_before_s:g} s; tell Waited first"
        )
