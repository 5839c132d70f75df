"""Performing the calls of a turn: memory and breaker first, then the bodies beside each other, each result told as it comes."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import attrs

from fsm_agent.core.effects import CallTools
from fsm_agent.core.engine import Engine
from fsm_agent.core.events import CallEvent, Gone
from fsm_agent.core.run import Run
from fsm_agent.core.tools import Tool
from fsm_agent.host import perform
from fsm_agent.host.bodies import began, is_async, passes, run_here, run_in_threads
from fsm_agent.host.clock import turns_of
from fsm_agent.host.interrupt import Interrupt
from fsm_agent.host.perform import Performance
from fsm_agent.host.ports import Host
from fsm_agent.host.watching import Watch


@attrs.frozen(kw_only=True, eq=False)
class Caller:
    """What performs calls for a driver; `turn` is held by one exclusive body at a time."""

    engine: Engine
    host: Host
    turn: threading.Lock
    _here: bool = attrs.field(init=False, repr=False)

    @_here.default
    def _runs_here(self) -> bool:
        # Where threads take turns in the clock's time, even a single body has a thread of its own.
        return turns_of(self.host.clock) is None

    def call(self, run: Run, effect: CallTools, context: Any, origin: float, interrupt: Interrupt, watch: Watch | None) -> None:
        """Perform them in threads, or in this one where that is enough; each result is told as it arrives."""
        if self._here and (tool := self._alone(run, effect)) is not None:
            job = self.begin(run, effect, tool, context, origin, watch)
            if job is not None:
                try:
                    event = run_here(job)
                except BaseException:
                    perform.release(self.host, (job,))
                    raise
                self.end(run, job, event, origin)
            return
        jobs: list[Performance] = []
        try:
            self._prepare(run, effect, context, origin, jobs)
            if watch is not None:
                watch.happened(run)
            if len(jobs) == 1 and jobs[0].seconds is None and self._here:
                self.end(run, jobs[0], run_here(jobs[0]), origin)
            elif jobs:
                told = partial(self._told_of, run, jobs, origin, watch)
                run_in_threads(jobs, told, clock=self.host.clock, results=interrupt.results())
        except BaseException:
            perform.release(self.host, jobs)
            raise

    def to_await(self, run: Run, effect: CallTools) -> Tool | None:
        """The tool of a call that its driver begins, awaits in its own task and ends; None where `in_loop` performs them."""
        tool = self._alone(run, effect)
        return tool if tool is not None and not tool.exclusive and is_async(tool.fn) else None

    async def in_loop(self, run: Run, effect: CallTools, context: Any, origin: float, watch: Watch | None) -> None:
        """Perform them beside the tasks of the running event loop; each result is told as it arrives."""
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

    def begin(
        self, run: Run, effect: CallTools, tool: Tool, context: Any, origin: float, watch: Watch | None
    ) -> Performance | None:
        """Begin one call that is performed alone; None where memory or the breaker answered it, or its arguments do not fit."""
        job = perform.before(self.host, run, effect.calls[0], tool, context=context)
        event = job.event
        try:
            if event is None:
                if tool.exclusive:
                    job.turn = self.turn
                clock = self.host.clock
                self.engine.begin(run, effect.calls, None if clock is None else clock.now() - origin)
                if watch is not None:
                    watch.happened(run)
                return job
        except BaseException:
            perform.release(self.host, (job,))
            raise
        self.end(run, job, event, origin)
        return None

    def failed(self, job: Performance, error: BaseException, task: Any = None) -> CallEvent:
        """The event of a body that raised in its driver's own task; raises what passes through."""
        if passes(error, task):
            perform.release(self.host, (job,))
            raise error
        return perform.raised(job.tool, job.call, error, ran=began(job.tool.fn, error))

    def end(self, run: Run, job: Performance, event: CallEvent, origin: float) -> None:
        """Tell the run what became of a call, and then memory and breaker."""
        clock = self.host.clock
        job.event = event
        try:
            self.engine.tell(run, event, None if clock is None else clock.now() - origin)
            perform.after(self.host, run, job)
        except BaseException:
            perform.release(self.host, (job,))
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
                self.engine.tell(run, Gone(call.id), self._now(origin))
                told = True
                continue
            job = perform.before(host, run, call, tool, perform.seconds_left(tool, run), context)
            if job.event is None:
                job.turn = self.turn if tool.exclusive else None
                jobs.append(job)
            else:
                self.end(run, job, job.event, origin)
                told = True
        if told and jobs:
            perform.release(host, [job for job in jobs if job.call.ok is not None])
            jobs[:] = [job for job in jobs if job.call.ok is None]
        if jobs:
            self.engine.begin(run, [job.call for job in jobs], self._now(origin))

    def _told_of(
        self, run: Run, jobs: list[Performance], origin: float, watch: Watch | None, position: int, event: CallEvent
    ) -> None:
        self.end(run, jobs[position], event, origin)
        if watch is not None:
            watch.happened(run)

    def _now(self, origin: float) -> float | None:
        return None if self.host.clock is None else self.host.clock.now() - origin
