"""The stage of threads: drives and bodies in threads that take turns in virtual time."""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from fsm_agent.agent import Agent
from fsm_agent.core.answers import Answer
from fsm_agent.core.run import Run
from fsm_agent.host.interrupt import Interrupted
from fsm_agent.host.watching import Left
from fsm_agent.scenario.stage import Drive, Flag, Stage, Steps, at_once
from fsm_agent.scenario.virtual_clock import Place, VirtualClock

T = TypeVar("T")


class _ThreadFlag:
    def __init__(self, clock: VirtualClock) -> None:
        self.on, self._clock = False, clock

    def set(self) -> None:
        self.on = True

    async def wait(self) -> None:
        self._clock.wait(lambda: self.on)


class Threads(Stage):
    """The stage of threads."""

    asynchronous = False
    clock: VirtualClock

    def __init__(self) -> None:
        self.clock = VirtualClock()

    def flag(self) -> Flag:
        return _ThreadFlag(self.clock)

    async def sleep(self, seconds: float) -> None:
        self.clock.wait(None, self.clock.now() + seconds)

    async def drive(self, agent: Agent, run: Run) -> Answer:
        return agent.drive(run)

    async def resume(self, agent: Agent, run: Run, raises: dict[str, Any]) -> Answer:
        return agent.resume(run, **raises)

    async def events(self, agent: Agent, run: Run, happened: Callable[[Any], bool]) -> None:
        # A stream drives in a thread of its own; here the reader's thread is the one that has its turn.
        def take(event: Any) -> None:
            if not happened(event):
                raise Left

        with contextlib.suppress(Left):
            agent.driver.drive(run, None, agent._feed(run, take))

    def place(self) -> Place | None:
        return self.clock.place

    def interrupt(self, place: Place | None) -> None:
        if place is not None:
            self.clock.interrupt(place, Interrupted())

    async def undriven(self, run: Run) -> None:
        self.clock.wait(lambda: not run.driven)

    def begin(self, drive: Drive, steps: Callable[[], Steps[None]]) -> None:
        place = drive.place = self.clock.enter(body=False)

        def thread() -> None:
            try:
                self.clock.begin(place)
                at_once(steps())
            except BaseException as error:
                drive.error = error
            finally:
                drive.news.set()
                drive.done.set()
                self.clock.leave()

        _start(thread)

    async def end(self, drive: Drive, place: Any) -> None:
        drive.dead = True
        for one in (drive.place, place):
            if one is not None:
                self.clock.end(one)

    def play(self, steps: Callable[[], Steps[T]]) -> T:
        with self.clock.acting():
            try:
                return at_once(steps())
            finally:
                # While this thread has its turn, so that bodies left behind do not come to their end first.
                self.clock.close()


def _start(target: Callable[[], None]) -> None:
    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(target,), name="scenario", daemon=True).start()
