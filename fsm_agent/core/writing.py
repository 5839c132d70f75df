"""Work that writes: the answer from the evidence, and the final answer of a run."""

from __future__ import annotations

from fsm_agent.core.answers import findings
from fsm_agent.core.asking import ask_again, may_decide
from fsm_agent.core.effects import Compose, Effect, Wait
from fsm_agent.core.ending import finish, stop_here
from fsm_agent.core.errors import WrongEvent
from fsm_agent.core.events import Composed, ComposeFailed, Event, Waited
from fsm_agent.core.plain import storable
from fsm_agent.core.proposal import FINISHES, ends_run, malformed, spend, take_text
from fsm_agent.core.run import Run
from fsm_agent.core.setup import Setup
from fsm_agent.core.values import Decision, StopReason


class Synthesize:
    """Ask for a text out of the evidence, and keep it as the draft that is verified (seed 002).

    Where nobody can write, the evidence itself is the draft: an answer is never empty.
    """

    def enter(self, setup: Setup, run: Run) -> str | None:
        if not may_decide(run):
            return "stopped"
        if setup.composes:
            return None
        # Written by template, it is a turn all the same: between two of these one is spent.
        run.turns += 1
        return self._keep(run, "")

    def ask(self, setup: Setup, run: Run) -> Effect:
        return Wait(run, run.not_before_s) if run.not_before_s > run.spent_s else Compose(run, closing=False)

    def tell(self, setup: Setup, run: Run, event: Event) -> str | None:
        if isinstance(event, Composed):
            _take(run, event)
            return self._read(setup, run, event)
        if isinstance(event, ComposeFailed):
            _note(run, event)
            run.note = f"{event.error}: {event.message}" if event.message else event.error
            if event.kind == "passing":
                return None if ask_again(run, event.retry_after_s, setup.policy) and may_decide(run) else "stopped"
            run.stopping = StopReason.MODEL_ERROR
            return "stopped"
        if isinstance(event, Waited):
            return None if may_decide(run) else "stopped"
        raise _unexpected(run, event)

    def _read(self, setup: Setup, run: Run, event: Composed) -> str | None:
        """What a written text makes of the run: cut off and empty ones are told apart, and are no success (03.1)."""
        cut_off = FINISHES.get(event.finish)
        if cut_off is not None:
            if event.text.strip():
                run.draft = Decision(text=event.text, finish=event.finish)
            why = f"the reply ended with {event.finish!r}"
            if ends_run(setup.policy, event.finish):
                run.stopping, run.note = cut_off, why
                return "stopped"
            return self._again(setup, run, why, cut_off)
        if not event.text.strip():
            return self._again(setup, run, "the reply held no text", StopReason.MODEL_EMPTY)
        if setup.answer is not None:
            run.answer, fault = setup.answer.read(event.text)
            if fault:
                why = f"the answer is not of the form that was asked for: {fault}"
                return self._again(setup, run, why, StopReason.INVALID_DECISION)
        run.invalid_decisions = 0
        return self._keep(run, event.text)

    def _again(self, setup: Setup, run: Run, why: str, reason: StopReason) -> str | None:
        if malformed(run, why, reason) == "stopped":
            return "stopped"
        if run.limits.max_invalid_decisions is None and run.invalid_decisions >= setup.policy.model_attempts:
            # No row of the machine is walked meanwhile, so no other limit would be sure to end it.
            run.stopping = reason
            return "stopped"
        return None if may_decide(run) else "stopped"

    def _keep(self, run: Run, text: str) -> str:
        run.draft = Decision(text=text if isinstance(text, str) and text.strip() else findings(run.evidence()))
        return "written"


class Answer:
    """Give the final answer: a closing one where the run was stopped and a turn is left for it, else by template."""

    def enter(self, setup: Setup, run: Run) -> str | None:
        stop_here(setup, run)
        return None

    def ask(self, setup: Setup, run: Run) -> Effect:
        return Compose(run)

    def tell(self, setup: Setup, run: Run, event: Event) -> str | None:
        if isinstance(event, Composed):
            _take(run, event)
            take_text(run, event.text)
        elif isinstance(event, ComposeFailed):
            _note(run, event)
        else:
            raise _unexpected(run, event)
        assert run.stop is not None
        finish(run, run.stop.reason)
        return None


def _take(run: Run, event: Composed) -> None:
    run.turns += 1
    run.failed_requests = 0
    if event.usage is not None:
        spend(run, event.usage)
    if event.kept is not None:
        # The journal keeps what can be saved.
        event.kept = storable(event.kept)
    run.finish = event.finish or run.finish
    run.trace.append(("composed", run.spent_s, str(run.turns), event.finish))


def _note(run: Run, event: ComposeFailed) -> None:
    run.turns += 1
    if event.usage is not None:
        spend(run, event.usage)
    run.trace.append(("compose_failed", run.spent_s, event.error, event.message))


def _unexpected(run: Run, event: Event) -> WrongEvent:
    return WrongEvent(f"run {run.id!r} was told {type(event).__name__} in state {run.state!r}; it waits for Composed or ComposeFailed")
