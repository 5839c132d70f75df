"""Time that nobody waits for: a clock for threads that jumps to the next instant once every thread waits.

One thread runs at a time and the order is fixed, so that what a scenario shows it shows every time. Threads take part
while they drive a run (`acting`) or run a body (`enter`, `begin`, `leave`). When all of them wait, the clock moves to the
soonest instant that one of them waits for.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TypeVar

import attrs

from fsm_agent.core.errors import RunError
from fsm_agent.core.figures import finite_seconds

T = TypeVar("T")
NANO = 1_000_000_000
# A thread that has its turn computes for less; one that takes longer will never give it back.
_PATIENCE_S = 60.0


class StandsStill(RunError):
    """Every thread waits for another one and none for time, so that nothing would ever happen again."""


@attrs.define(eq=False)
class Place:
    """The place of one thread among those that share a clock: what it waits for, and until when."""

    body: bool
    ready: Callable[[], bool] | None = None
    until: int | None = None
    error: BaseException | None = None
    go: threading.Event = attrs.field(factory=threading.Event)

    def due(self, now: int) -> bool:
        """True when the thread may go on now."""
        return (self.until is not None and self.until <= now) or (self.ready is not None and self.ready())


def _at_once() -> bool:
    return True


class VirtualClock:
    """A clock whose sleeps take no real time; it keeps the protocols `Clock` and `TurnClock`.

    It counts whole nanoseconds from 0, and wall time is the same. At one instant bodies go before drivers, and each in the
    order in which they began to wait.
    """

    def __init__(self) -> None:
        self._now = 0
        self._lock = threading.Lock()
        self._waiting: list[Place] = []
        self._running: Place | None = None
        self._mine = threading.local()
        self._closed = False
        self._slept = 0

    @property
    def slept_s(self) -> float:
        """Seconds that were slept in all, by whoever called `sleep`; waits of other kinds do not count."""
        return self._slept / NANO

    def now(self) -> float:
        """Seconds since the clock was made."""
        return self._now / NANO

    def wall(self) -> float:
        """The same, as seconds since the epoch."""
        return self._now / NANO

    def sleep(self, seconds: float) -> None:
        """Let other threads go on and return when `seconds` have passed; BuildError if they are no finite number."""
        before = self._now
        try:
            self.wait(None, self.now() + max(0.0, finite_seconds(seconds, "VirtualClock.sleep")))
        finally:
            self._slept += self._now - before

    async def asleep(self, seconds: float) -> None:
        """Let `seconds` pass; an event loop has virtual time of its own (`virtual_loop`), and this only moves the clock."""
        self.sleep(seconds)
        await asyncio.sleep(0)

    # ---- taking part

    @contextmanager
    def acting(self) -> Iterator[Place]:
        """Take part from here on as a thread that drives, and no longer afterwards; does nothing where it does already."""
        if self.place is not None:
            yield self.place
            return
        place = self.enter(body=False)
        self.begin(place)
        try:
            yield place
        finally:
            self.leave()

    @property
    def place(self) -> Place | None:
        """The place of the calling thread, or None where it takes no part."""
        place: Place | None = getattr(self._mine, "place", None)
        return place

    def end(self, place: Place) -> None:
        """End a thread that waits: it gets SystemExit when its turn comes, which is before the caller goes on."""
        with self._lock:
            if place in self._waiting:
                place.error, place.ready = SystemExit("its process is gone"), _at_once
        self.wait(None, self.now())

    def enter(self, *, body: bool = True) -> Place:
        """A place for a thread that is about to begin; it counts from now on."""
        place = Place(body=body, ready=_at_once)
        with self._lock:
            self._waiting.append(place)
        return place

    def begin(self, place: Place) -> None:
        """Take the place in the thread that is to have it, and wait for its turn."""
        self._mine.place = place
        with self._lock:
            if self._running is None:
                self._next()
        self._stand(place)

    def leave(self) -> None:
        """Give the place up; another thread has its turn."""
        place = self._mine.place
        self._mine.place = None
        with self._lock:
            if place in self._waiting:
                self._waiting.remove(place)
            if self._running is place:
                self._next()

    def interrupt(self, place: Place, error: BaseException) -> None:
        """Let a thread that only sleeps raise an error when it has its turn again; does nothing to one that waits for more."""
        with self._lock:
            if place in self._waiting and place.ready is None:
                place.error, place.ready = error, _at_once

    # ---- waiting

    def wait(self, ready: Callable[[], bool] | None, until: float | None = None) -> bool:
        """Wait until `ready` says so or the instant has come; True where `ready` does then.

        `ready` is asked while nothing else runs, must not wait itself and may be None. Raises StandsStill when nobody that
        takes part can ever go on.
        """
        with self.acting() as place:
            place.ready, place.until = ready, None if until is None else round(until * NANO)
            with self._lock:
                self._waiting.append(place)
                self._next()
            self._stand(place)
            return ready is not None and ready()

    def take(self, queue: SimpleQueue[T], until: float | None) -> T:
        """The next item of a queue; raises Empty when there is none at that instant (None: there will be one)."""
        if not self.wait(lambda: not queue.empty(), until):
            raise Empty
        return queue.get_nowait()

    def close(self) -> None:
        """End every body that still waits: its thread gets SystemExit, which no result comes of."""
        with self._lock:
            self._closed = True
            for place in self._waiting:
                place.error = SystemExit("the clock was closed")
                place.go.set()
            self._waiting.clear()
            self._running = None

    def _stand(self, place: Place) -> None:
        if not place.go.wait(None if place.body else _PATIENCE_S):
            raise StandsStill(f"no other thread of the scenario gave its turn back in {_PATIENCE_S:g} real seconds")
        place.go.clear()
        if place.error is not None:
            error, place.error = place.error, None
            raise error

    def _next(self) -> None:
        """Hand the turn on; the lock is held."""
        self._running = None
        if self._closed:
            return
        place = self._first_due()
        if place is None:
            instants = [one.until for one in self._waiting if one.until is not None]
            if instants:
                self._now = max(self._now, min(instants))
                place = self._first_due()
        if place is None:
            for one in self._waiting:
                if not one.body:
                    one.ready = _at_once
                    one.error = StandsStill("every thread of the scenario waits for another one, and none for time to pass")
            place = self._first_due()
            if place is None:
                return
        self._waiting.remove(place)
        self._running = place
        place.go.set()

    def _first_due(self) -> Place | None:
        due = [place for place in self._waiting if place.due(self._now)]
        return min(due, key=lambda place: not place.body, default=None)
