"""Where a scenario is played: threads that take turns in virtual time, or tasks in a virtual event loop.

The steps of a scenario are written once, as coroutines. On the stage of threads nothing they await ever suspends, so they run
like plain functions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Protocol, TypeVar

import attrs

from fsm_agent.agent import Agent
from fsm_agent.core.answers import Answer
from fsm_agent.core.run import Run
from fsm_agent.scenario.virtual_clock import Place, VirtualClock
from fsm_agent.scenario.virtual_loop import VirtualLoop

T = TypeVar("T")
Steps = Coroutine[Any, Any, T]


def at_once(steps: Steps[T]) -> T:
    """The result of steps on the stage of threads, which suspend nowhere."""
    try:
        steps.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    steps.close()
    raise RuntimeError("steps on the stage of threads must not suspend")


class Flag(Protocol):
    """Something that comes true once and may be waited for."""

    on: bool

    def set(self) -> None:
        """It is true from now on."""
        ...

    async def wait(self) -> None:
        """Return when it is true."""
        ...


@attrs.define(eq=False)
class Drive:
    """A drive that goes on beside the steps: `news` when its body is held or it has ended, `done` when it has ended."""

    news: Flag
    done: Flag
    error: BaseException | None = None
    place: Place | None = None
    task: asyncio.Task[None] | None = None
    dead: bool = False


class Stage(Protocol):
    """What steps need of the place where they are played; `clock` is virtual time."""

    asynchronous: bool
    clock: VirtualClock | VirtualLoop

    def flag(self) -> Flag:
        """A new flag that is not set."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        ...

    async def drive(self, agent: Agent, run: Run) -> Answer:
        """Drive a run to its answer or its pause."""
        ...

    async def resume(self, agent: Agent, run: Run, raises: dict[str, Any]) -> Answer:
        """Let a stopped or paused run go on with limits raised."""
        ...

    async def events(self, agent: Agent, run: Run, happened: Callable[[Any], bool]) -> None:
        """Drive a run event by event; the reader leaves once `happened` says false."""
        ...

    def place(self) -> Place | None:
        """The place of whoever drives here, where threads take turns."""
        ...

    def interrupt(self, place: Place | None) -> None:
        """Cut short the sleep of a drive that was told to stop."""
        ...

    async def undriven(self, run: Run) -> None:
        """Return when nobody drives a run any more."""
        ...

    def begin(self, drive: Drive, steps: Callable[[], Steps[None]]) -> None:
        """Let steps go on beside the present ones; `drive` hears of their end."""
        ...

    async def end(self, drive: Drive, place: Any) -> None:
        """End a drive and the body that it holds as if their process were gone."""
        ...

    async def beside(self, lists: Iterable[Callable[[], Steps[None]]]) -> list[BaseException | None]:
        """Play several lists of steps at once; what each raised, or None."""
        drives = []
        for steps in lists:
            drives.append(drive := Drive(self.flag(), self.flag()))
            self.begin(drive, steps)
        for drive in drives:
            await drive.done.wait()
        return [drive.error for drive in drives]

    def play(self, steps: Callable[[], Steps[T]]) -> T:
        """Play steps from the beginning to the end of the scenario."""
        ...
