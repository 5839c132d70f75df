"""Getting what a run asks for that is no call: decisions, texts, verdicts, effects of one's own, and time that has to pass."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import attrs

from fsm_agent.core.effects import Compose, Decide, Effect, Judge, Wait
from fsm_agent.core.events import ComposeFailed, Decided, DecisionFailed, Event, Waited
from fsm_agent.core.run import Run
from fsm_agent.core.values import Decision
from fsm_agent.host.bodies import cancelled_by_host
from fsm_agent.host.clock import SystemClock
from fsm_agent.host.in_time import ask_in_time, await_in_time
from fsm_agent.host.interrupt import Interrupt, Interrupted
from fsm_agent.host.ports import Closer, Decider, Host, Performer, Verifier, as_decision
from fsm_agent.host.replies import event_of_answer, event_of_failure
from fsm_agent.host.resolve import at_once
from fsm_agent.host.watch import Watch


@attrs.frozen(kw_only=True, eq=False)
class Answerer:
    """Asks the host's decider, verifier, closer and performers.

    A model is waited for no longer than the run has time; a plain function of the host's is called in the driver's own thread and
    keeps its own time (`here` says that the decider is one).
    """

    host: Host
    decide: Decider | None
    verify: Verifier | None
    close: Closer | None
    performers: Mapping[type[Any], Performer]
    here: bool = attrs.field(init=False)

    @here.default
    def _decides_here(self) -> bool:
        return not getattr(self.decide, "is_model", False)

    def answer(self, run: Run, effect: Effect, interrupt: Interrupt, watch: Watch | None) -> Event:
        """The event of what was answered, in this thread."""
        if isinstance(effect, Wait):
            clock = self.host.clock
            if clock is None or type(clock) is SystemClock:
                interrupt.sleep(effect.seconds)
            else:
                clock.sleep(effect.seconds)
                interrupt.check()
            return Waited()
        ear = None if watch is None else _listen(run, effect, watch)
        try:
            if self.here and type(effect) is Decide:
                return self.decided(run, effect, watch)
            seconds = self._seconds(run, effect)
            if seconds is None or not self._is_model(effect):
                return event_of_answer(effect, at_once(self._asked(effect)))
            ask = partial(self._at_once, effect)
            return event_of_answer(effect, ask_in_time(ask, seconds, self.host.clock, interrupt.results()))
        except BaseException as error:
            return self._failed(run, effect, error, watch)
        finally:
            if ear is not None:
                ear.closed = True

    async def aanswer(self, run: Run, effect: Effect, watch: Watch | None) -> Event:
        """The event of what was answered, inside the running event loop."""
        if isinstance(effect, Wait):
            await (self.host.clock or SystemClock()).asleep(effect.seconds)
            return Waited()
        ear = None if watch is None else _listen(run, effect, watch)
        try:
            answer = self._asked(effect)
            if hasattr(type(answer), "__await__"):
                seconds = self._seconds(run, effect)
                answer = await answer if seconds is None else await await_in_time(answer, seconds)
            return event_of_answer(effect, answer)
        except BaseException as error:
            if cancelled_by_host(error):
                raise
            return self._failed(run, effect, error, watch)
        finally:
            if ear is not None:
                ear.closed = True

    def decided(self, run: Run, effect: Decide, watch: Watch | None) -> Event:
        """The event of a plain function's decision."""
        try:
            proposal = self.decide(effect)  # type: ignore[misc]
            return Decided(proposal if type(proposal) is Decision else as_decision(at_once(proposal)))
        except BaseException as error:
            return self._failed(run, effect, error, watch)

    def _at_once(self, effect: Effect) -> Any:
        return at_once(self._asked(effect))

    def _asked(self, effect: Effect) -> Any:
        if isinstance(effect, Decide):
            assert self.decide is not None
            return self.decide(effect)
        if isinstance(effect, Judge):
            return self.verify(effect) if self.verify is not None else True
        if isinstance(effect, Compose):
            return self.close(effect) if self.close is not None else ""
        performer = self.performers.get(type(effect))
        if performer is None:
            known = ", ".join(kind.__name__ for kind in self.performers) or "none"
            raise LookupError(f"nobody performs {type(effect).__name__}; give effects={{...}} to the agent (it has {known})")
        return performer(effect)

    def _is_model(self, effect: Effect) -> bool:
        part: Any = self.decide if isinstance(effect, Decide) else self.verify if isinstance(effect, Judge) else self.close
        # The closer of a model is a method of the decider that asks it.
        return bool(getattr(getattr(part, "__self__", part), "is_model", False))

    def _seconds(self, run: Run, effect: Effect) -> float | None:
        """What is left for this request: the last answer may take the time that is reserved for it."""
        limits = run.limits
        until = limits.deadline_s if isinstance(effect, Compose) and effect.closing else limits.work_until_s
        return None if until is None else max(0.0, until - run.spent_s)

    def _failed(self, run: Run, effect: Effect, error: BaseException, watch: Watch | None) -> Event:
        if isinstance(error, Interrupted | GeneratorExit):
            raise error
        event = event_of_failure(effect, error, model=self._is_model(effect))
        if watch is not None and isinstance(event, DecisionFailed | ComposeFailed):
            watch.discarded(run)
        return event


@attrs.define(eq=False)
class _Ear:
    """Hears pieces of text until the request is over; what a model says later is dropped."""

    run: Run
    watch: Watch
    closed: bool = False

    def hear(self, text: str) -> None:
        if not self.closed:
            self.watch.delta(self.run, text)


def _listen(run: Run, effect: Effect, watch: Watch) -> _Ear | None:
    if not isinstance(effect, Decide | Compose):
        return None
    ear = _Ear(run, watch)
    effect.on_delta = ear.hear
    return ear
