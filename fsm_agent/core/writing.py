"""Work that writes: the answer from the evidence, and the final answer of a run."""

from __future__ import annotations

from fsm_agent.core.answers import findings
from fsm_agent.core.asking import ask_again, may_decide
from fsm_agent.core.effects import Compose, Effect, Wait
from fsm_agent.core.ending import finish, stop_here
from fsm_agent.core.errors import WrongEvent
from fsm_agent.core.events import Composed, ComposeFailed, Decided, Event, Waited
from fsm_agent.core.exact_values import exact_decision, exact_usage, savable, word
from fsm_agent.core.gate import admit_turn
from fsm_agent.core.plain import storable
from fsm_agent.core.proposal import FINISHES, accept, count_turn, ends_run, malformed, overcome, spend, take_text
from fsm_agent.core.run import Run
from fsm_agent.core.secret_seals import guarded_words
from fsm_agent.core.setup import Setup
from fsm_agent.core.turn import fold
from fsm_agent.core.values import OF_ITSELF, Decision, StopReason


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
        count_turn(run)
        run.draft = Decision(text=findings(run.evidence()))
        return "written"

    def ask(self, setup: Setup, run: Run) -> Effect:
        return Wait(run, run.not_before_s) if run.not_before_s > run.spent_s else Compose(run, closing=False)

    def tell(self, setup: Setup, run: Run, event: Event) -> str | None:
        if isinstance(event, Composed):
            _take(run, event)
            return self._read(setup, run, event)
        if isinstance(event, Decided) and _is_more_than_text(event.decision):
            return self._decided(setup, run, event)
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

    def _decided(self, setup: Setup, run: Run, event: Decided) -> str | None:
        """A reply with citations, a question or calls: no tool is allowed here, which each call is told; the rest is the draft."""
        event.decision = decision = savable(guarded_words(setup.box, exact_decision(event.decision)))
        before = run.invalid_decisions
        outcome = accept(run, decision, setup.policy, setup.box, setup.answer)
        if outcome == "decided":
            run.invalid_decisions = before
            admit_turn(run, setup.box, frozenset(), setup.policy)
            outcome = fold(run, setup.box)
        elif outcome == "failed":
            return self._once_more(setup, run, FINISHES.get(decision.finish, StopReason.INVALID_DECISION))
        if outcome == "stopped":
            return "stopped"
        if isinstance(decision.text, str) and decision.text.strip():
            return self._written(setup, run, Decision(text=decision.text, citations=decision.citations, question=decision.question))
        if outcome == "proposed":
            return "written"
        if run.limits.max_turns is None:
            return self._again(setup, run, "the reply called tools, and a text was asked for", StopReason.INVALID_DECISION)
        return None if may_decide(run) else "stopped"

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
            why = "the reply held no text"
            if setup.policy.on_finish.get("empty", "continue") == "end":
                run.stopping, run.note = StopReason.MODEL_EMPTY, why
                return "stopped"
            return self._again(setup, run, why, StopReason.MODEL_EMPTY)
        return self._written(setup, run, Decision(text=event.text))

    def _written(self, setup: Setup, run: Run, draft: Decision) -> str | None:
        if setup.answer is not None:
            run.answer, fault = setup.answer.read(draft.text or "")
            if fault:
                why = f"the answer is not of the form that was asked for: {fault}"
                return self._again(setup, run, why, StopReason.INVALID_DECISION)
        overcome(run)
        run.draft = draft
        return "written"

    def _again(self, setup: Setup, run: Run, why: str, reason: StopReason) -> str | None:
        return "stopped" if malformed(run, why, reason) == "stopped" else self._once_more(setup, run, reason)

    def _once_more(self, setup: Setup, run: Run, reason: StopReason) -> str | None:
        if run.limits.max_invalid_decisions is None and run.invalid_decisions >= setup.policy.model_attempts:
            # No row of the machine is walked meanwhile, so no other limit would be sure to end it.
            run.stopping = reason
            return "stopped"
        return None if may_decide(run) else "stopped"


class Answer:
    """Give the final answer: a closing one where the run was stopped and a turn is left for it, else by template."""

    def enter(self, setup: Setup, run: Run) -> str | None:
        stop_here(setup, run)
        return None

    def ask(self, setup: Setup, run: Run) -> Effect:
        return Compose(run)

    def tell(self, setup: Setup, run: Run, event: Event) -> str | None:
        assert run.stop is not None
        if isinstance(event, Composed):
            _take(run, event)
            self._keep(setup, run, event, run.stop.reason)
        elif isinstance(event, ComposeFailed):
            _note(run, event)
        else:
            raise _unexpected(run, event)
        finish(run, run.stop.reason)
        return None

    def _keep(self, setup: Setup, run: Run, event: Composed, reason: StopReason) -> None:
        """Keep the text; as the answer of a run that nothing stopped only a whole one, of the form that was asked for."""
        if reason not in OF_ITSELF:
            take_text(run, event.text)
        elif event.finish not in FINISHES:
            read, fault = (None, "") if setup.answer is None else setup.answer.read(event.text)
            if not fault:
                run.answer = read
                take_text(run, event.text)


def _is_more_than_text(decision: Decision) -> bool:
    calls: object = decision.calls
    # What is no list of calls is refused as one, and not asked whether it is empty; nor are citations.
    has_calls = bool(calls) if type(calls) is tuple or type(calls) is list else True
    return has_calls or decision.question is not None or type(decision.citations) is not tuple or decision.citations != ()


def _take(run: Run, event: Composed) -> None:
    count_turn(run)
    run.failed_requests = 0
    event.text, event.usage, event.finish = word(event.text), exact_usage(event.usage), word(event.finish)
    if event.usage is not None:
        spend(run, event.usage)
    if event.kept is not None:
        # The journal keeps what can be saved.
        event.kept = storable(event.kept)
    run.finish = event.finish or run.finish
    run.flat_trace.extend(("composed", run.spent_s, str(run.turns), event.finish))


def _note(run: Run, event: ComposeFailed) -> None:
    count_turn(run)
    event.usage = exact_usage(event.usage)
    if event.usage is not None:
        spend(run, event.usage)
    run.flat_trace.extend(("compose_failed", run.spent_s, event.error, event.message))


def _unexpected(run: Run, event: Event) -> WrongEvent:
    return WrongEvent(f"run {run.id!r} was told {type(event).__name__} in state {run.state!r}; it waits for Composed or ComposeFailed")
