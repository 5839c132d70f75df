"""What is done in each state: every kind of work says what it asks for, and what the answer makes of the run.

Work never moves a run. It reports an outcome, and the table decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import attrs

from fsm_agent.core.asking import ask_again, may_decide
from fsm_agent.core.effects import CallTools, Decide, Effect, Judge, Wait
from fsm_agent.core.errors import WrongEvent
from fsm_agent.core.events import (
    CallEvent,
    CircuitOpen,
    Decided,
    DecisionFailed,
    Event,
    Gone,
    Judged,
    JudgeFailed,
    Lost,
    Paused,
    ProgramCalled,
    Raised,
    Returned,
    Reused,
    Skipped,
    Started,
    Waited,
)
from fsm_agent.core.exact_values import exact_decision, exact_judgement, exact_usage, savable, seen_exact
from fsm_agent.core.gate import admit, admit_turn, allowed_now
from fsm_agent.core.held_calls import ask_held, is_people_event, may_settle, release, tell_held
from fsm_agent.core.normalizing import Normalize
from fsm_agent.core.programs import is_program, open_program_call, program_step, settle_call, tend_program
from fsm_agent.core.proposal import accept, open_calls, reject, spend
from fsm_agent.core.repairing import apply_repairs, plan_repairs
from fsm_agent.core.run import Call, Run
from fsm_agent.core.secret_seals import guarded_verdict, guarded_words
from fsm_agent.core.setup import Setup, Work
from fsm_agent.core.skipping import running_late, skip_after_fatal, skip_late
from fsm_agent.core.stops import unclear_calls
from fsm_agent.core.turn import fold, leave_unbegun, next_batch, settle, share_results, waits_until
from fsm_agent.core.values import FATAL, Judgement
from fsm_agent.core.verifying import missing_evidence
from fsm_agent.core.writing import Answer, Synthesize

# One for all runs whose evidence suffices and that nobody else is asked about.
_DONE = Judgement(decision="done")
_CALL_EVENTS = frozenset({Returned, Raised, Reused, CircuitOpen, Gone, Lost, Skipped})


class _AsksNothing:
    """Work that is done on entering."""

    def ask(self, setup: Setup, run: Run) -> Effect:
        raise WrongEvent(f"run {run.id!r} asks for nothing in state {run.state!r}")

    def tell(self, setup: Setup, run: Run, event: Event) -> str | None:
        raise unexpected(run, event, "nothing")


class DecideOnly:
    """Ask the decider; the calls it wants are left open for the state that follows.

    A final text is measured where a typed answer is wanted and `answers` is true.
    """

    def __init__(self, answers: bool = True) -> None:
        self._answers = answers

    def enter(self, setup: Setup, run: Run) -> str | None:
        if run.open_calls:
            leave_unbegun(run, setup.box)
        if run.came_by[1] == "insufficient":
            run.gather_rounds += 1
        return None if may_decide(run) else "stopped"

    def ask(self, setup: Setup, run: Run) -> Effect:
        if run.not_before_s > run.spent_s:
            return Wait(run, run.not_before_s)
        if not setup.offers:
            return Decide(run)
        return Decide(run, allowed_now(run, setup.box, setup.offered[run.state]))

    def tell(self, setup: Setup, run: Run, event: Event) -> str | None:
        if type(event) is Decided:
            exact = seen_exact(event.decision)
            if exact != 1:
                # The journal keeps what the run goes by, and no word of a secret.
                made = event.decision if exact else exact_decision(event.decision)
                event.decision = guarded_words(setup.box, made)
            if setup.policy.redecide:
                event.decision = savable(event.decision)
            return accept(run, event.decision, setup.policy, setup.box, setup.answer if self._answers else None)
        if isinstance(event, DecisionFailed):
            outcome = reject(run, event)
            if outcome != "passing":
                return outcome
            return None if ask_again(run, event.retry_after_s, setup.policy) and may_decide(run) else "stopped"
        if isinstance(event, Waited):
            return None if may_decide(run) else "stopped"
        raise unexpected(run, event, "Decided or DecisionFailed")


class CallOnly:
    """Pass the open calls through the gate, run those that were admitted, and fold their results."""

    def enter(self, setup: Setup, run: Run) -> str | None:
        calls = run.open_calls
        if len(calls) != 1:
            admit_turn(run, setup.box, setup.allowed[run.state], setup.policy, setup.checks, setup.peeks)
        elif (call := calls[0]).ok is None and not call.admitted:
            admit(run, call, setup.box, setup.allowed[run.state], setup.policy, 0, setup.checks, setup.peeks)
        return self._after(setup, run)

    def ask(self, setup: Setup, run: Run) -> Effect:
        if run.held:
            return ask_held(run)
        calls = run.open_calls
        if len(calls) == 1 and run.program is None:
            batch = [only] if (only := calls[0]).ok is None and only.not_before_s <= run.spent_s else []
        else:
            batch = next_batch(run, setup.box)
            if run.closed and (running := running_late(run)):
                batch = running
        if setup.runs_programs and len(batch) == 1 and is_program(setup.box, batch[0]):
            return program_step(run, batch[0])
        return CallTools(run, batch) if batch else Wait(run, waits_until(run, setup.box))

    def tell(self, setup: Setup, run: Run, event: Event) -> str | None:
        kind = type(event)
        if run.held:
            return self._tell_held(setup, run, event)
        if kind is Started:
            begin(run, [call for call in run.open_calls if call.id in event.call_ids and call.ok is None])  # type: ignore[union-attr]
            return None
        if kind in _CALL_EVENTS:
            answered = settle if run.program is None else settle_call
            call = answered(run, setup.box, event, setup.policy.redecide)  # type: ignore[arg-type]
            if call is None:
                named = event.call_id  # type: ignore[union-attr]
                raise WrongEvent(f"run {run.id!r} has no open call {named!r}; it waits for {_waiting(run)}")
            if call.ok is None or call.result_class is FATAL:
                skip_after_fatal(run)
            return self._after(setup, run)
        if kind is Waited:
            return self._after(setup, run)
        if isinstance(event, ProgramCalled) and setup.runs_programs:
            if open_program_call(run, setup.box, setup.policy, event) is not None:
                admit_turn(run, setup.box, setup.allowed[run.state], setup.policy, setup.checks, setup.peeks)
            return self._after(setup, run)
        raise unexpected(run, event, "the results of calls")

    def _tell_held(self, setup: Setup, run: Run, event: Event) -> str | None:
        if is_people_event(event):
            tell_held(run, setup.box, setup.policy, event)
        elif type(event) in _CALL_EVENTS and may_settle(run, cast(CallEvent, event)):
            call = settle_call(run, setup.box, cast(CallEvent, event), setup.policy.redecide)
            if call is not None and call.ok is not None:
                call.awaits = ""
                skip_after_fatal(run)
        else:
            raise unexpected(run, event, f"a word about the held calls {_waiting(run)}")
        if isinstance(event, Paused) or not release(run, setup.box):
            return None
        return self._after(setup, run)

    def _after(self, setup: Setup, run: Run) -> str | None:
        if run.closed or run.limits.deadline_s is not None:
            skip_late(run)
        if run.program is not None:
            tend_program(run, setup.box)
        calls = run.open_calls
        failed = False
        for call in calls:
            if not call.ok:
                if call.ok is None and not call.leader:
                    return None
                failed = True
        if len(calls) > 1:
            share_results(run)
        if run.stopping is not None:
            fold(run, setup.box)
            return "stopped"
        if failed and setup.mends and (planned := plan_repairs(run, setup.box, setup.repairs)) is not False:
            return "failed" if planned else None
        return fold(run, setup.box)


class Gather:
    """Ask the decider, pass the gate, run the calls: deciding and calling in one state."""

    def __init__(self, answers: bool = True) -> None:
        self._decide, self._call = DecideOnly(answers), CallOnly()

    def enter(self, setup: Setup, run: Run) -> str | None:
        if not run.open_calls:
            return self._decide.enter(setup, run)
        if run.came_by[1] == "insufficient":
            run.gather_rounds += 1
        return self._call.enter(setup, run)

    def ask(self, setup: Setup, run: Run) -> Effect:
        return self._call.ask(setup, run) if run.open_calls else self._decide.ask(setup, run)

    def tell(self, setup: Setup, run: Run, event: Event) -> str | None:
        if run.open_calls:
            return self._call.tell(setup, run, event)
        outcome = self._decide.tell(setup, run, event)
        return self._call.enter(setup, run) if outcome == "decided" else outcome


class Plan:
    """Ask the decider for a plan (seed 002): its text is kept as a note and is no answer; calls are refused by the gate.

    Where a machine begins with it, the request is normalized first.
    """

    def __init__(self) -> None:
        self._normalize, self._gather = Normalize(), Gather(answers=False)

    def enter(self, setup: Setup, run: Run) -> str | None:
        if run.steps == 1 and self._normalize.enter(setup, run) == "rejected":
            return "rejected"
        return self._gather.enter(setup, run)

    def ask(self, setup: Setup, run: Run) -> Effect:
        return self._gather.ask(setup, run)

    def tell(self, setup: Setup, run: Run, event: Event) -> str | None:
        outcome = self._gather.tell(setup, run, event)
        if outcome == "no_progress":
            return "called"
        if outcome != "proposed":
            return outcome
        run.plan = run.draft.text if run.draft is not None and isinstance(run.draft.text, str) else ""
        run.draft = None
        return "planned"


class Repair(_AsksNothing):
    """Change the failed calls by their reason and open them again."""

    def enter(self, setup: Setup, run: Run) -> str | None:
        return "repaired" if apply_repairs(run) else "exhausted"


class Verify:
    """Ask whether the evidence suffices: what is required first, then the host's verifier."""

    def enter(self, setup: Setup, run: Run) -> str | None:
        run.verify_rounds += 1
        run.judgement = None
        draft = run.draft
        if draft is not None and isinstance(draft.question, str) and draft.question.strip():
            # What is asked of the user is no answer, and needs no evidence (seed 000).
            run.note = ""
            return "passed"
        # Where there is no tool there is nothing to find evidence with.
        lack = missing_evidence(run, setup.required) if setup.box.names() else ""
        # Nor does a text after which the run asks what became of a call, whatever its model says.
        if lack and (draft is None or not unclear_calls(run)):
            return self._no(run, Judgement(decision="need_more", reason=lack))
        if setup.verifies:
            return None
        if draft is None and run.calls and not (run.evidence() or unclear_calls(run)):
            # Nobody is asked, nothing was said and nothing found: of that no answer can be made, so it is gathered on.
            return self._no(run, Judgement(decision="need_more", reason="nothing was found yet"))
        return self._yes(run, _DONE)

    def ask(self, setup: Setup, run: Run) -> Effect:
        return Judge(run)

    def tell(self, setup: Setup, run: Run, event: Event) -> str | None:
        if isinstance(event, Judged):
            event.judgement = guarded_verdict(setup.box, exact_judgement(event.judgement))
            event.usage = exact_usage(event.usage)
            if event.usage is not None:
                spend(run, event.usage)
            if event.judgement.decision == "done":
                return self._yes(run, event.judgement)
            return self._no(run, event.judgement)
        if isinstance(event, JudgeFailed):
            event.usage = exact_usage(event.usage)
            if event.usage is not None:
                spend(run, event.usage)
            why = f"the verifier gave no verdict: {event.error} {event.message}".rstrip()
            return self._no(run, Judgement(decision="need_more", reason=why))
        raise unexpected(run, event, "Judged or JudgeFailed")

    def _yes(self, run: Run, judgement: Judgement) -> str:
        # What was missing before is no word about an answer that passed.
        run.judgement, run.note = judgement, ""
        run.flat_trace.extend(("judged", run.spent_s, "done", judgement.reason))
        return "passed"

    def _no(self, run: Run, judgement: Judgement) -> str:
        run.judgement = judgement
        run.note = judgement.reason
        run.flat_trace.extend(("judged", run.spent_s, "need_more", judgement.reason))
        action = judgement.next_action
        if action is not None:
            open_calls(run, (attrs.evolve(action, id=f"verify-{run.verify_rounds}"),), by_verifier=True)
        return "insufficient"


def begin(run: Run, calls: Sequence[Call]) -> tuple[str, ...]:
    """Note that the bodies of these calls may run from now on: what comes of one that gives no result is not known; their ids."""
    for call in calls:
        call.started = True
        run.flat_trace.extend(("call_started", run.spent_s, call.id, call.tool))
    return (calls[0].id,) if len(calls) == 1 else tuple([call.id for call in calls])


def unexpected(run: Run, event: Any, wanted: str) -> WrongEvent:
    """The error for an event that the run's state did not ask for."""
    return WrongEvent(f"run {run.id!r} was told {type(event).__name__} in state {run.state!r}; it waits for {wanted}")


def _waiting(run: Run) -> str:
    return ", ".join(repr(call.id) for call in run.open_calls if call.ok is None) or "nothing"


WORK: Mapping[str, Work] = {
    "normalize": Normalize(),
    "decide": DecideOnly(),
    "call": CallOnly(),
    "gather": Gather(),
    "verify": Verify(),
    "repair": Repair(),
    "plan": Plan(),
    "synthesize": Synthesize(),
    "answer": Answer(),
}
