"""The stage of tasks: drives and bodies as tasks of a virtual event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from fsm_agent.agent import Agent
from fsm_agent.core.answers import Answer
from fsm_agent.core.run import Run
from fsm_agent.scenario.stage import Drive, Flag, Stage, Steps
from fsm_agent.scenario.virtual_clock import Place
from fsm_agent.scenario.virtual_loop import VirtualLoop, run_virtually

# How often other tasks have their turn until a cancelled one has ended.
_TICKS = 100
T = TypeVar("T")


class _TaskFlag:
    def __init__(self) -> None:
        self.on, self._event = False, asyncio.Event()

    def set(self) -> None:
        self.on = True
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()


class Tasks(Stage):
    """The stage of tasks."""

    asynchronous = True
    clock: VirtualLoop

    def __init__(self) -> None:
        self.clock = VirtualLoop()

    def flag(self) -> Flag:
        return _TaskFlag()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def drive(self, agent: Agent, run: Run) -> Answer:
        return await agent.adrive(run)

    async def resume(self, agent: Agent, run: Run, raises: dict[str, Any]) -> Answer:
        return await agent.aresume(run, **raises)

    async def events(self, agent: Agent, run: Run, happened: Callable[[Any], bool]) -> None:
        stream: Any = agent.astream(run)
        try:
            async for event in stream:
                if not happened(event):
                    break
        finally:
            await stream.aclose()

    def place(self) -> Place | None:
        return None

    def interrupt(self, place: Place | None) -> None:
        """See `Stage`; the task is cancelled already."""

    async def undriven(self, run: Run) -> None:
        for _ in range(_TICKS):
            if not run.driven:
                return
            await asyncio.sleep(0)

    def begin(self, drive: Drive, steps: Callable[[], Steps[None]]) -> None:
        async def task() -> None:
            try:
                await steps()
            except BaseException as error:
                drive.error = error
            finally:
                drive.news.set()
                drive.done.set()

        drive.task = asyncio.get_running_loop().create_task(task())

    async def end(self, drive: Drive, place: Any) -> None:
        drive.dead = True
        if drive.task is not None:
            drive.task.cancel()
            await drive.done.wait()

    def play(self, steps: Callable[[], Steps[T]]) -> T:
        return run_virtually(steps(), self.clock)
