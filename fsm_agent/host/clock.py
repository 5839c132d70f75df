"""Where a host reads the time and waits: the port, the machine's own clock, and one that is moved by hand.

Two times, never mixed: *monotonic* seconds measure what was spent, *wall* seconds (UTC, since the epoch) serve expiry
and what processes share. 0 is a time like any other in both.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar, runtime_checkable

from fsm_agent.core.errors import BuildError
from fsm_agent.core.figures import finite_seconds

__all__ = ["Clock", "ScriptedClock", "SystemClock", "TurnClock", "finite_seconds"]

T = TypeVar("T")
_NANO = 1_000_000_000


@runtime_checkable
class Clock(Protocol):
    """What a driver asks for the time and waits with; an implementation is safe under threads."""

    def now(self) -> float:
        """Return monotonic seconds from any fixed start."""
        ...

    def wall(self) -> float:
        """Return UTC seconds since the epoch."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return when `seconds` have passed; at once if they are not above 0."""
        ...

    async def asleep(self, seconds: float) -> None:
        """Return when `seconds` have passed, leaving the event loop to others meanwhile."""
        ...


@runtime_checkable
class TurnClock(Clock, Protocol):
    """A clock in whose time threads take turns, so that no real time passes while all of them wait.

    A driver gives every body that it starts a place (`enter`), which the body's thread takes (`begin`) and gives up
    (`leave`), and waits for results by `take`.
    """

    def enter(self) -> Any:
        """Return a place for a thread that is about to begin."""
        ...

    def begin(self, place: Any) -> None:
        """Take a place in the calling thread; returns when it has its turn."""
        ...

    def leave(self) -> None:
        """Give up the calling thread's place."""
        ...

    def wait(self, ready: Callable[[], bool] | None, until: float | None = None) -> bool:
        """Wait until `ready` says so or the instant has come; True where `ready` does then."""
        ...

    def take(self, queue: SimpleQueue[T], until: float | None) -> T:
        """Return the next item of a queue; raises `queue.Empty` when there is none at that instant (None: no end)."""
        ...


def turns_of(clock: Clock | None) -> TurnClock | None:
    """The clock, if threads take turns in its time."""
    return clock if clock is not None and type(clock) is not SystemClock and isinstance(clock, TurnClock) else None


def _duration(value: object, place: str) -> float:
    seconds = finite_seconds(value, place)
    # The longest wait that the platform's calls take; beyond it they raise an OverflowError of their own.
    if seconds > threading.TIMEOUT_MAX:
        raise BuildError(f"{place}: expected at most {threading.TIMEOUT_MAX:.0f} seconds, got {seconds:g}")
    return max(0.0, seconds)


class SystemClock:
    """The machine's own clock."""

    __slots__ = ()

    def now(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    def wall(self) -> float:
        """Return UTC seconds since the epoch."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Block this thread for `seconds`; `BuildError` if they are no finite number."""
        time.sleep(_duration(seconds, "SystemClock.sleep"))

    async def asleep(self, seconds: float) -> None:
        """Suspend this task for `seconds`; `BuildError` if they are no finite number."""
        await asyncio.sleep(_duration(seconds, "SystemClock.asleep"))


class ScriptedClock:
    """A clock for tests and scenario files: it stands still until it is slept on or advanced.

    Both times move together and waits add up, whichever thread or task makes them. It counts whole nanoseconds, so ten
    steps of 0.1 are 1.0 and an instant written down as a decimal number is reached exactly.
    """

    __slots__ = ("_lock", "_moved_ns", "_slept_ns", "_start_ns", "_wall_ns")

    def __init__(self, start: float = 0.0, wall_start: float = 0.0) -> None:
        """Stand at `start` (monotonic) and `wall_start` (UTC since the epoch); `BuildError` if no finite numbers."""
        self._start_ns = _nanoseconds(start, "ScriptedClock(start=)")
        self._wall_ns = _nanoseconds(wall_start, "ScriptedClock(wall_start=)")
        self._moved_ns = 0
        self._slept_ns = 0
        self._lock = threading.Lock()

    def now(self) -> float:
        """Return monotonic seconds: the start and all that was slept or advanced."""
        return (self._start_ns + self._moved_ns) / _NANO

    def wall(self) -> float:
        """Return UTC seconds: the wall start and all that was slept or advanced."""
        return (self._wall_ns + self._moved_ns) / _NANO

    @property
    def slept_s(self) -> float:
        """Seconds slept in all, without those advanced."""
        return self._slept_ns / _NANO

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass; `BuildError` if they are below 0 or no finite number."""
        if finite_seconds(seconds, "ScriptedClock.advance") < 0:
            raise BuildError(f"ScriptedClock.advance: monotonic time does not run backwards, got {seconds:g}")
        self._move(seconds, slept=False)

    def sleep(self, seconds: float) -> None:
        """Advance by `seconds` and return at once; `BuildError` if they are no finite number."""
        self._move(seconds, slept=True)

    async def asleep(self, seconds: float) -> None:
        """Advance by `seconds` and give every other ready task one turn; `BuildError` if they are no finite number."""
        self._move(seconds, slept=True)
        await asyncio.sleep(0)

    def _move(self, seconds: float, *, slept: bool) -> None:
        step = _whole_nanoseconds(_duration(seconds, "ScriptedClock"))
        with self._lock:
            self._moved_ns += step
            if slept:
                self._slept_ns += step


def _nanoseconds(value: object, place: str) -> int:
    seconds = finite_seconds(value, place)
    if abs(seconds) > threading.TIMEOUT_MAX:
        raise BuildError(f"{place}: expected at most {threading.TIMEOUT_MAX:.0f} seconds from 0, got {seconds:g}")
    return _whole_nanoseconds(seconds)


def _whole_nanoseconds(seconds: float) -> int:
    # Seconds of this century times 10**9 have no exact float, so the two parts go separately.
    part, whole = math.modf(seconds)
    return int(whole) * _NANO + round(part * _NANO)
