"""The drivers: loops that ask a run what it needs, get it, and tell it; one for threads and one for tasks.

Nothing below them knows whether it is awaited. A run belongs to one driver at a time.
"""

from __future__ import annotations

import threading
from typing import Any

import attrs

from fsm_agent.core.effects import CallTools, Compose, Decide, Effect, Judge, Wait
from fsm_agent.core.engine import Engine
from fsm_agent.core.errors import RunBusy
from fsm_agent.core.events import (
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
from fsm_agent.host.bodies import run_as_task, run_here, run_in_threads
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

    `context` is given anew at each drive and reaches tools only. Sync deciders, verifiers and tools work in both drivers;
    async ones need `adrive`, but for tools, which `drive` runs in a thread with a loop of its own.
    """

    engine: Engine
    decide: Decider
    host: Host = attrs.field(factory=Host)
    verify: Verifier | None = None
    close: Closer | None = None
    turn: threading.Lock = attrs.field(factory=threading.Lock)

    def drive(self, run: Run, context: Any = None) -> None:
        """Drive a run until it is over or pauses; what passes through leaves it stopped and resumable."""
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
                    tell(run, event, None if clock is None else clock.now() - origin)
        except BaseException:
            self._cancel(run)
            raise
        finally:
            run.driven = False

    async def adrive(self, run: Run, context: Any = None) -> None:
        """Drive a run inside the running event loop; cancelling the task leaves it stopped and resumable."""
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
                    tell(run, event, None if clock is None else clock.now() - origin)
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
                proposal = self.decide(effect)
                return Decided(proposal if type(proposal) is Decision else as_decision(proposal))
            except Exception as error:
                return DecisionFailed(type(error).__name__, str(error)[:2000])
        if isinstance(effect, Wait):
            (self.host.clock or SystemClock()).sleep(effect.seconds)
            return Waited()
        if isinstance(effect, Judge):
            try:
                return Judged(as_judgement(self.verify(effect) if self.verify is not None else True))
            except Exception as error:
                return JudgeFailed(type(error).__name__, str(error)[:2000])
        assert isinstance(effect, Compose)
        try:
            return _composed(self.close(effect) if self.close is not None else "")
        except Exception as error:
            return ComposeFailed(type(error).__name__, str(error)[:2000])

    async def _aanswer(self, effect: Effect) -> Event:
        if isinstance(effect, Decide):
            try:
                return Decided(as_decision(await _ready(self.decide(effect))))
            except Exception as error:
                return DecisionFailed(type(error).__name__, str(error)[:2000])
        if isinstance(effect, Wait):
            await (self.host.clock or SystemClock()).asleep(effect.seconds)
            return Waited()
        if isinstance(effect, Judge):
            try:
                return Judged(as_judgement(await _ready(self.verify(effect)) if self.verify is not None else True))
            except Exception as error:
                return JudgeFailed(type(error).__name__, str(error)[:2000])
        assert isinstance(effect, Compose)
        try:
            return _composed(await _ready(self.close(effect)) if self.close is not None else "")
        except Exception as error:
            return ComposeFailed(type(error).__name__, str(error)[:2000])

    def _call(self, run: Run, effect: CallTools, context: Any, origin: float) -> None:
        jobs = self._prepare(run, effect, context, origin)
        if not jobs:
            return
        self.engine.begin(run, [job.call for job in jobs], self._now(origin))
        if len(jobs) == 1 and jobs[0].seconds is None:
            jobs[0].event = run_here(jobs[0])
            self._told(run, jobs[0], origin)
            return

        def told(position: int, event: Any) -> None:
            jobs[position].event = event
            self._told(run, jobs[position], origin)

        run_in_threads(jobs, told)

    async def _acall(self, run: Run, effect: CallTools, context: Any, origin: float) -> None:
        jobs = self._prepare(run, effect, context, origin)
        if not jobs:
            return
        self.engine.begin(run, [job.call for job in jobs], self._now(origin))
        if len(jobs) == 1:
            jobs[0].event = await run_as_task(jobs[0])
            self._told(run, jobs[0], origin)
            return
        import asyncio

        async def one(job: Performance) -> None:
            job.event = await run_as_task(job)
            self._told(run, job, origin)

        tasks = [asyncio.ensure_future(one(job)) for job in jobs]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    def _prepare(self, run: Run, effect: CallTools, context: Any, origin: float) -> list[Performance]:
        """The bodies that have to run; calls that memory or breaker answer for are told at once."""
        host, box = self.host, self.engine.setup.box
        jobs: list[Performance] = []
        for call in effect.calls:
            tool = box.get(call.tool)
            if tool is None:
                self.engine.tell(run, perform.removed(call), self._now(origin))
                continue
            job = perform.before(host, run, call, tool)
            if job.event is None:
                job.seconds = perform.seconds_left(tool, run)
                job.turn = self.turn if tool.exclusive else None
                try:
                    job.args = perform.arguments(tool, call, run, job.seconds, context)
                    jobs.append(job)
                    continue
                except Exception as error:
                    job.event = perform.raised(tool, call, error, ran=False)
            self._told(run, job, origin)
        return jobs

    def _told(self, run: Run, performance: Performance, origin: float) -> None:
        assert performance.event is not None
        self.engine.tell(run, performance.event, self._now(origin))
        perform.after(self.host, run, performance)


def _composed(text: Any) -> Event:
    if not isinstance(text, str):
        return ComposeFailed("TypeError", f"the closing answer is a {type(text).__name__}; give a text")
    return Composed(text)


async def _ready(value: Any) -> Any:
    return await value if hasattr(value, "__await__") else value
