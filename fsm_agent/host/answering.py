"""Getting what a run asks for that is no call: decisions, texts, verdicts, effects of one's own, and time that has to pass."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, cast

import attrs

from fsm_agent.core.effects import Compose, Decide, Effect, Judge, Wait
from fsm_agent.core.events import ComposeFailed, Decided, DecisionFailed, Event, Waited
from fsm_agent.core.run import Run
from fsm_agent.core.short_text import first_half, paired
from fsm_agent.core.values import Decision
from fsm_agent.host.bodies import Left, awaitable, is_async, passes
from fsm_agent.host.clock import SystemClock
from fsm_agent.host.in_time import ask_in_time, await_in_time, in_thread
from fsm_agent.host.interrupt import Interrupt
from fsm_agent.host.ports import Closer, Decider, Host, Performer, Verifier, as_decision
from fsm_agent.host.replies import event_of_answer, event_of_failure
from fsm_agent.host.resolve import at_once
from fsm_agent.host.watching import Watch
from fsm_agent.host.workers import Workers


@attrs.frozen(kw_only=True, eq=False)
class Answerer:
    """Asks the host's decider, verifier, closer and performers, and waits no longer than the run has time.

    Where it has a deadline, whoever is no coroutine function is asked in a thread, for nothing else ends the wait for a function
    that hangs; without one, in the driver's own. In an event loop a model is always asked beside it, unless it says by `in_loop`
    that it has to be asked inside.
    """

    host: Host
    decide: Decider | None
    verify: Verifier | None
    close: Closer | None
    performers: Mapping[type[Any], Performer]
    workers: Workers = attrs.field(factory=Workers)
    decides_in_loop: bool = attrs.field(init=False, repr=False)

    @decides_in_loop.default
    def _asked_in_loop(self) -> bool:
        # Looked up once, for it is asked at every turn.
        return self.decide is not None and not (_is_blocking(self.decide) and _is_model(self.decide))

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
            seconds = self._seconds(run, effect)
            if seconds is not None:
                pace = None if watch is None else watch.pace
                ask, results = partial(self._at_once, effect), interrupt.results()
                return event_of_answer(effect, ask_in_time(ask, seconds, self.host.clock, results, self.workers, pace))
            if type(effect) is Decide:
                return self.decided(run, effect, watch)
            return event_of_answer(effect, at_once(self._asked(effect)))
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
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        ear = None if watch is None else _listen(run, effect, watch, loop)
        try:
            seconds = self._seconds(run, effect)
            if self._beside(effect, seconds, loop):
                end = None if seconds is None else loop.time() + seconds
                answer, error = await in_thread(partial(self._asked, effect), seconds, self.workers)
                if error is not None:
                    raise error
                seconds = None if end is None else max(0.0, end - loop.time())
            else:
                answer = self._asked(effect)
            if awaitable(answer):
                answer = await answer if seconds is None else await await_in_time(answer, seconds)
            return event_of_answer(effect, answer)
        except BaseException as error:
            if passes(error, task):
                raise
            return self._failed(run, effect, error, watch)
        finally:
            if ear is not None:
                ear.closed = True

    def decided(self, run: Run, effect: Decide, watch: Watch | None) -> Event:
        """The event of a decision that is made in this thread."""
        try:
            proposal = self.decide(effect)  # type: ignore[misc]
            return Decided(proposal if type(proposal) is Decision else as_decision(at_once(proposal)))
        except BaseException as error:
            return self._failed(run, effect, error, watch)

    def decided_or_left(self, run: Run, effect: Decide, task: Any) -> Event | Left:
        """The event of a decision that is asked for in the loop of `task`, or what it left to be awaited there."""
        try:
            proposal = self.decide(effect)  # type: ignore[misc]
            if type(proposal) is Decision:
                return Decided(proposal)
            return Left(proposal) if awaitable(proposal) else Decided(as_decision(proposal))
        except BaseException as error:
            return self.failed(run, effect, error, task)

    def failed(self, run: Run, effect: Decide, error: BaseException, task: Any) -> Event:
        """The event of a decision that could not be had in the loop of `task`; raises what passes through."""
        if passes(error, task):
            raise error
        return self._failed(run, effect, error, None)

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

    def _part(self, effect: Effect) -> Any:
        if isinstance(effect, Decide):
            return self.decide
        if isinstance(effect, Judge):
            return self.verify
        return self.close if isinstance(effect, Compose) else self.performers.get(type(effect))

    def _is_model(self, effect: Effect) -> bool:
        # The closer of a model is a method of the decider that asks it.
        part = self._part(effect)
        return bool(getattr(getattr(part, "__self__", part), "is_model", False))

    def _beside(self, effect: Effect, seconds: float | None, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether a running event loop asks in a thread; never where its own time is the clock's, which no thread lives in."""
        part, clock = self._part(effect), cast(object, self.host.clock)
        if part is None or clock is loop or not _is_blocking(part):
            return False
        return seconds is not None or _is_model(part)

    def _seconds(self, run: Run, effect: Effect) -> float | None:
        """What is left for this request: the last answer may take the time that is reserved for it."""
        limits = run.limits
        until = limits.deadline_s if isinstance(effect, Compose) and effect.closing else limits.work_until_s
        return None if until is None else max(0.0, until - run.spent_s)

    def _failed(self, run: Run, effect: Effect, error: BaseException, watch: Watch | None) -> Event:
        if passes(error):
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
    half: str = ""

    def hear(self, text: str) -> None:
        if self.closed or not isinstance(text, str):
            return
        # A character may come in two halves, and half of one is no text to show.
        text = paired(self.half + text)
        self.half = first_half(text)
        if text := text.removesuffix(self.half):
            self.watch.delta(self.run, text)


def _owner(part: Any) -> Any:
    return getattr(part, "__self__", part)


def _is_blocking(part: Any) -> bool:
    """Whether who asks it in an event loop waits for it there; one that says `in_loop` has to be asked there all the same."""
    return not (is_async(part) or getattr(_owner(part), "in_loop", False))


def _is_model(part: Any) -> bool:
    return bool(getattr(_owner(part), "is_model", False))


def _listen(run: Run, effect: Effect, watch: Watch, loop: asyncio.AbstractEventLoop | None = None) -> _Ear | None:
    if not isinstance(effect, Decide | Compose):
        return None
    ear = _Ear(run, watch)
    effect.on_delta = ear.hear if loop is None else partial(_hear_in, loop, threading.get_ident(), ear)
    return ear


def _hear_in(loop: asyncio.AbstractEventLoop, thread: int, ear: _Ear, text: str) -> None:
    """Hear a piece in the loop's own thread, whichever thread it comes from."""
    if threading.get_ident() == thread:
        ear.hear(text)
    else:
        # A loop that was closed in the meantime hears nothing any more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(ear.hear, text)
