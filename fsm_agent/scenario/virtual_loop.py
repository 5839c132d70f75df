"""An event loop in which time passes only when every task waits for it, and then at once."""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from fsm_agent.core.figures import finite_seconds
from fsm_agent.scenario.virtual_clock import NANO, StandsStill

T = TypeVar("T")
# How long a real event (a thread's result) is waited for when no task waits for time.
_REAL_S = 2.0
# Parts of a nanosecond that come from adding floats and mean nothing.
_NOISE = 0.01


class _Jumping(selectors.DefaultSelector):
    """A selector that does not wait: it moves the time of its loop by the timeout instead."""

    passed = 0

    def select(self, timeout: float | None = None) -> Any:
        """What is ready now; where that is nothing, the time that would have been waited has passed."""
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None:
            # No task waits for time, so only another thread can bring news.
            ready = super().select(_REAL_S)
            if not ready:
                raise StandsStill("every task of the scenario waits for another one, and none for time to pass")
            return ready
        # Never less than a nanosecond, or a task that waits for a smaller part of one would wait for ever.
        self.passed += max(1, math.ceil(timeout * NANO - _NOISE))
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time starts at `start` seconds and jumps to the next instant that a task waits for.

    It keeps the protocol `Clock` as well: `now`, `wall`, `sleep`, `asleep`.
    """

    def __init__(self, start: float = 0.0) -> None:
        self._jumping = _Jumping()
        self._jumping.passed = round(start * NANO)
        self._slept = 0
        super().__init__(self._jumping)

    @property
    def _clock_resolution(self) -> float:
        """How much earlier than its instant a timer may fire: far from 0 two instants are further apart than the loop reckons."""
        return max(1e-9, 2 * math.ulp(self.time()))

    @_clock_resolution.setter
    def _clock_resolution(self, seconds: float) -> None:
        """The base class sets it for the machine's clock, which is not this one's."""

    @property
    def slept_s(self) -> float:
        """Seconds that were slept in all by `asleep`."""
        return self._slept / NANO

    def time(self) -> float:
        """Virtual seconds."""
        return self._jumping.passed / NANO

    def now(self) -> float:
        """Virtual seconds."""
        return self.time()

    def wall(self) -> float:
        """The same, as seconds since the epoch."""
        return self.time()

    def sleep(self, seconds: float) -> None:
        """Let time pass at once, for code that cannot await; BuildError if `seconds` are no finite number."""
        self._jumping.passed += max(0, round(finite_seconds(seconds, "VirtualLoop.sleep") * NANO))

    async def asleep(self, seconds: float) -> None:
        """Suspend this task until `seconds` have passed; BuildError if they are no finite number."""
        before = self._jumping.passed
        try:
            await asyncio.sleep(max(0.0, finite_seconds(seconds, "VirtualLoop.asleep")))
        finally:
            self._slept += self._jumping.passed - before


def run_virtually(main: Coroutine[Any, Any, T], loop: VirtualLoop) -> T:
    """Run a coroutine to its end in a virtual loop and close the loop; tasks that are left are cancelled."""
    asyncio.set_event_loop(None)
    try:
        return loop.run_until_complete(main)
    finally:
        _end(loop)


def _end(loop: VirtualLoop) -> None:
    loop.set_exception_handler(_say_nothing)
    try:
        for _ in range(3):
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left, timeout=1.0))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


def _say_nothing(loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
    """What goes wrong in tasks that are left behind concerns nobody any more."""
