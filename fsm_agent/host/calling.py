"""Performing the calls of a turn: memory and breaker first, then the bodies beside each other, each result told as it comes."""

from __future__ import annotations

import threading
from collections.abc import Awaitable
from functools import partial
from typing import Any

import attrs

from fsm_agent.core.effects import CallTools
from fsm_agent.core.engine import Engine
from fsm_agent.core.events import CallEvent
from fsm_agent.core.run import Call, Run
from fsm_agent.core.tools import Tool
from fsm_agent.host import perform
from fsm_agent.host.bodies import PASSES, began, cancelled_by_host, is_async, run_here, run_in_threads
from fsm_agent.host.clock import turns_of
from fsm_agent.host.interrupt import Interrupt
from fsm_agent.host.perform import Performance
from fsm_agent.host.ports import Host
from fsm_agent.host.watch import Watch


@attrs.frozen(kw_only=True, eq=False)
class Caller:
    """What performs calls for a driver; `turn` is held by one exclusive body at a time."""

    engine: Engine
    host: Host
    turn: threading.Lock
    _here: bool = attrs.field(init=False)

    @_here.default
    def _runs_here(self) -> bool:
        # Where threads take turns in the clock's time, even a single body has a thread of its own.
        return turns_of(self.host.clock) is None

    def call(self, run: Run, effect: CallTools, context: Any, origin: float, interrupt: Interrupt, watch: Watch | None) -> None:
        """Perform them in threads, or in this one where that is enough; each result is told as it arrives."""
        if self._here and (tool := self._alone(run, effect)) is not None:
            self._call_here(run, effect.calls, tool, context, origin, watch)
            return
        jobs: list[Performance] = []
        try:
            self._prepare(run, effect, context, origin, jobs)
            if watch is not None:
                watch.happened(run)
            if len(jobs) == 1 and jobs[0].seconds is None and self._here:
                self._told(run, jobs[0], run_here(jobs[0]), origin)
            elif jobs:
                told = partial(self._told_of, run, jobs, origin, watch)
                run_in_threads(jobs, told, clock=self.host.clock, results=interrupt.results())
        except BaseException:
            perform.release(self.host, jobs)
            raise

    def acall(self, run: Run, effect: CallTools, context: Any, origin: float, watch: Watch | None) -> Awaitable[None]:
        """Perform them beside the tasks of the running event loop; each result is told as it arrives."""
        tool = self._alone(run, effect)
        if tool is not None and not tool.exclusive and is_async(tool.fn):
            return self._await_here(run, effect.calls, tool, context, origin, watch)
        return self._in_loop(run, effect, context, origin, watch)

    async def _in_loop(self, run: Run, effect: CallTools, context: Any, origin: float, watch: Watch | None) -> None:
        jobs: list[Performance] = []
        try:
            self._prepare(run, effect, context, origin, jobs)
            if watch is not None:
                watch.happened(run)
            if jobs:
                from fsm_agent.host.tasks import run_in_loop

                await run_in_loop(jobs, partial(self._told_of, run, jobs, origin, watch))
        except BaseException:
            perform.release(self.host, jobs)
            raise

    def _alone(self, run: Run, effect: CallTools) -> Tool | None:
        """The tool of a call that is performed alone and may take its time, so that nobody need watch over it; else None."""
        if len(effect.calls) != 1 or run.limits.deadline_s is not None:
            return None
        tool = self.engine.setup.box.get(effect.calls[0].tool)
        return tool if tool is not None and tool.timeout_s is None else None

    def _call_here(
        self, run: Run, calls: list[Call], tool: Tool, context: Any, origin: float, watch: Watch | None
    ) -> None:
        """Perform one call in this thread."""
        job = perform.before(self.host, run, calls[0], tool)
        try:
            event = job.event or self._unfit(job, run, context)
            if event is None:
                if tool.exclusive:
                    job.turn = self.turn
                self._begin(run, calls, origin, watch)
                event = run_here(job)
            self._told(run, job, event, origin)
        except BaseException:
            perform.release(self.host, (job,))
            raise

    async def _await_here(
        self, run: Run, calls: list[Call], tool: Tool, context: Any, origin: float, watch: Watch | None
    ) -> None:
        """Perform one call of a coroutine function in the driver's own task."""
        job = perform.before(self.host, run, calls[0], tool)
        try:
            event = job.event or self._unfit(job, run, context)
            if event is None:
                self._begin(run, calls, origin, watch)
                try:
                    event = perform.returned(tool, job.call, await tool.fn(**job.args))
                except (*PASSES, GeneratorExit):
                    raise
                except BaseException as error:
                    if cancelled_by_host(error):
                        raise
                    event = perform.raised(tool, job.call, error, ran=began(tool.fn, error))
            self._told(run, job, event, origin)
        except BaseException:
            perform.release(self.host, (job,))
            raise

    def _begin(self, run: Run, calls: list[Call], origin: float, watch: Watch | None) -> None:
        self.engine.begin(run, calls, self._now(origin))
        if watch is not None:
            watch.happened(run)

    def _unfit(self, job: Performance, run: Run, context: Any) -> CallEvent | None:
        """Give a job the arguments of its body; an event where they cannot be made."""
        try:
            job.args = perform.arguments(job.tool, job.call, run, job.seconds, context)
        except Exception as error:
            return perform.raised(job.tool, job.call, error, ran=False)
        return None

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
                event = self._unfit(job, run, context)
                if event is None:
                    continue
                jobs.pop()
            self._told(run, job, event, origin)
            told = True
        if told and jobs:
            perform.release(host, [job for job in jobs if job.call.ok is not None])
            jobs[:] = [job for job in jobs if job.call.ok is None]
        if jobs:
            self.engine.begin(run, [job.call for job in jobs], self._now(origin))

    def _told_of(
        self, run: Run, jobs: list[Performance], origin: float, watch: Watch | None, position: int, event: CallEvent
    ) -> None:
        self._told(run, jobs[position], event, origin)
        if watch is not None:
            watch.happened(run)

    def _told(self, run: Run, performance: Performance, event: CallEvent, origin: float) -> None:
        performance.event = event
        self.engine.tell(run, event, self._now(origin))
        perform.after(self.host, run, performance)

    def _now(self, origin: float) -> float | None:
        return None if self.host.clock is None else self.host.clock.now() - origin
