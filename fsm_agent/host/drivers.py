"""The drivers: loops that ask a run what it needs, get it, and tell it; one for threads and one for tasks.

Nothing below them knows whether it is awaited. A run belongs to one driver at a time.
"""

from __future__ import annotations

import inspect
import threading
from typing import Any

import attrs

from fsm_agent.core.effects import CallTools, Compose, Decide, Effect, Judge, Wait
from fsm_agent.core.engine import Engine
from fsm_agent.core.errors import RunBusy, RunError
from fsm_agent.core.events import (
    CallEvent,
    Cancelled,
    Composed,
    ComposeFailed,
    Decided,
    DecisionFailed,
    Event,
    Judged,
    JudgeFailed,
    Lost,
    Waited,
)
from fsm_agent.core.run import Run
from fsm_agent.core.values import Decision
from fsm_agent.host import perform
from fsm_agent.host.bodies import cancelled_by_host, is_async, run_here, run_in_threads
from fsm_agent.host.clock import SystemClock
from fsm_agent.host.perform import Performance
from fsm_agent.host.ports import Closer, Decider, Host, Verifier, as_decision, as_judgement

_TAKING = threading.Lock()


def take(run: Run) -> None:
    """Take a run for one driver; raises RunBusy while another has it."""
    with _TAKING:
        if run.driven:
            raise RunBusy(f"run {run.id!r} is being driven already; wait for that driver, or start a run of its own")
        run.driven = True


@attrs.frozen(kw_only=True, eq=False)
class Driver:
    """An engine with the host that answers it: decider, verifier, closing answer, tools' surroundings.

    `context` is given anew at each drive and reaches tools only. Sync deciders, verifiers and tools work in both
    drivers; async ones need `adrive`, but for tools, which `drive` runs in a thread with a loop of its own.
    """

    engine: Engine
    decide: Decider | None
    host: Host = attrs.field(factory=Host)
    verify: Verifier | None = None
    close: Closer | None = None
    turn: threading.Lock = attrs.field(factory=threading.Lock)
    _needs_loop: str = attrs.field(init=False)

    @_needs_loop.default
    def _async_part(self) -> str:
        parts = {"decide": self.decide, "verify": self.verify, "close": self.close}
        return next((name for name, part in parts.items() if is_async(part)), "")

    def drive(self, run: Run, context: Any = None) -> None:
        """Drive a run until it is over or pauses; what passes through leaves it stopped and resumable.

        Raises RunBusy while another driver has the run, RunError where there is no decider, or decider, verifier or
        closer is a coroutine function.
        """
        if self._needs_loop:
            raise RunError(f"{self._needs_loop} is a coroutine function; {_MEND}")
        if self.decide is None:
            raise RunError(_BY_HAND)
        engine, clock = self.engine, self.host.clock
        ask, tell = engine.ask, engine.tell
        take(run)
        try:
            origin = 0.0 if clock is None else clock.now() - run.spent_s
            if run.open_calls:
                self._recover(run)
            while (effect := ask(run)) is not None:
                if type(effect) is CallTools:
                    self._call(run, effect, context, origin)
                else:
                    event = self._answer(effect)
                    now = None if clock is None else clock.now() - origin
                    # A wait that has ended was long enough, whatever the clock says, or there is none.
                    tell(run, event, max(now or 0.0, effect.until_s) if type(effect) is Wait else now)
        except BaseException:
            self._cancel(run)
            raise
        finally:
            run.driven = False

    async def adrive(self, run: Run, context: Any = None) -> None:
        """Drive a run inside the running event loop; cancelling the task leaves it stopped and resumable.

        Raises RunBusy while another driver has the run.
        """
        if self.decide is None:
            raise RunError(_BY_HAND)
        engine, clock = self.engine, self.host.clock
        ask, tell = engine.ask, engine.tell
        take(run)
        try:
            origin = 0.0 if clock is None else clock.now() - run.spent_s
            if run.open_calls:
                self._recover(run)
            while (effect := ask(run)) is not None:
                if type(effect) is CallTools:
                    await self._acall(run, effect, context, origin)
                else:
                    event = await self._aanswer(effect)
                    now = None if clock is None else clock.now() - origin
                    # A wait that has ended was long enough, whatever the clock says, or there is none.
                    tell(run, event, max(now or 0.0, effect.until_s) if type(effect) is Wait else now)
        except BaseException:
            self._cancel(run)
            raise
        finally:
            run.driven = False

    def _recover(self, run: Run) -> None:
        """Say of every call that an earlier driver began and left without a result that it is lost."""
        for call in list(run.open_calls):
            if call.started and call.ok is None:
                self.engine.tell(run, Lost(call.id))

    def _cancel(self, run: Run) -> None:
        if run.stop is None or run.closing:
            self.engine.tell(run, Cancelled("the drive was interrupted"))

    def _now(self, origin: float) -> float | None:
        return None if self.host.clock is None else self.host.clock.now() - origin

    def _answer(self, effect: Effect) -> Event:
        if type(effect) is Decide:
            try:
                proposal = self.decide(effect)  # type: ignore[misc]
                return Decided(proposal if type(proposal) is Decision else as_decision(_at_once(proposal)))
            except BaseException as error:
                return _failed(effect, error)
        if isinstance(effect, Wait):
            (self.host.clock or SystemClock()).sleep(effect.seconds)
            return Waited()
        try:
            return _read(effect, _at_once(self._asked(effect)))
        except BaseException as error:
            return _failed(effect, error)

    async def _aanswer(self, effect: Effect) -> Event:
        if isinstance(effect, Wait):
            await (self.host.clock or SystemClock()).asleep(effect.seconds)
            return Waited()
        try:
            answer = self._asked(effect)
            return _read(effect, await answer if hasattr(type(answer), "__await__") else answer)
        except BaseException as error:
            if cancelled_by_host(error):
                raise
            return _failed(effect, error)

    def _asked(self, effect: Effect) -> Any:
        if isinstance(effect, Decide):
            assert self.decide is not None
            return self.decide(effect)
        if isinstance(effect, Judge):
            return self.verify(effect) if self.verify is not None else True
        assert isinstance(effect, Compose)
        return self.close(effect) if self.close is not None else ""

    def _call(self, run: Run, effect: CallTools, context: Any, origin: float) -> None:
        jobs: list[Performance] = []
        try:
            self._prepare(run, effect, context, origin, jobs)
            if len(jobs) == 1 and jobs[0].seconds is None:
                self._told(run, jobs[0], run_here(jobs[0]), origin)
            elif jobs:
                run_in_threads(jobs, lambda position, event: self._told(run, jobs[position], event, origin))
        except BaseException:
            perform.release(self.host, jobs)
            raise

    async def _acall(self, run: Run, effect: CallTools, context: Any, origin: float) -> None:
        jobs: list[Performance] = []
        try:
            self._prepare(run, effect, context, origin, jobs)
            if jobs:
                from fsm_agent.host.tasks import run_in_loop

                await run_in_loop(jobs, lambda position, event: self._told(run, jobs[position], event, origin))
        except BaseException:
            perform.release(self.host, jobs)
            raise

    def _prepare(self, run: Run, effect: CallTools, context: Any, origin: float, jobs: list[Performance]) -> None:
        """Begin the bodies that have to run, as `jobs`; calls that memory or breaker answer for are told at once."""
        host, box = self.host, self.engine.setup.box
        told = False
        for call in effect.calls:
            # What was told of a call before it may have settled this one too: the time for calls can run out here.
            if call.ok is not None:
                continue
            tool = box.get(call.tool)
            if tool is None:
                self.engine.tell(run, perform.removed(call), self._now(origin))
                told = True
                continue
            job = perform.before(host, run, call, tool)
            event = job.event
            if event is None:
                jobs.append(job)
                job.seconds = perform.seconds_left(tool, run)
                job.turn = self.turn if tool.exclusive else None
                try:
                    job.args = perform.arguments(tool, call, run, job.seconds, context)
                    continue
                except Exception as error:
                    event = perform.raised(tool, jobs.pop().call, error, ran=False)
            self._told(run, job, event, origin)
            told = True
        if told and jobs:
            perform.release(host, [job for job in jobs if job.call.ok is not None])
            jobs[:] = [job for job in jobs if job.call.ok is None]
        if jobs:
            self.engine.begin(run, [job.call for job in jobs], self._now(origin))

    def _told(self, run: Run, performance: Performance, event: CallEvent, origin: float) -> None:
        performance.event = event
        self.engine.tell(run, event, self._now(origin))
        perform.after(self.host, run, performance)


_BY_HAND = "there is no decider; give one as decide=, or drive the engine by hand with ask and tell"
_MEND = "await arun or adrive instead, or give a plain function"


def _failed(effect: Effect, error: BaseException) -> Event:
    """The event of an answer that could not be had; raises what passes through."""
    if not isinstance(error, Exception):
        from asyncio import CancelledError

        # Where it is not the host's, it is a failure like any other.
        if not isinstance(error, CancelledError):
            raise error
    kind = DecisionFailed if isinstance(effect, Decide) else JudgeFailed if isinstance(effect, Judge) else ComposeFailed
    return kind(perform.name_of(error), perform.message_of(error))


def _read(effect: Effect, answer: Any) -> Event:
    if isinstance(effect, Decide):
        return Decided(as_decision(answer))
    if isinstance(effect, Judge):
        return Judged(as_judgement(answer))
    if not isinstance(answer, str):
        raise TypeError(f"the closing answer is a {type(answer).__name__}; give a text")
    return Composed(answer)


def _at_once(answer: Any) -> Any:
    """An answer that needs no event loop; raises TypeError for one that does."""
    if not hasattr(type(answer), "__await__"):
        return answer
    if inspect.iscoroutine(answer):
        answer.close()
    raise TypeError(f"the answer has to be awaited; {_MEND}")
