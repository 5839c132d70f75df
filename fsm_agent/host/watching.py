"""Hearing of a run while it is driven: by those who drive it by reading, and by those who only look on."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from queue import SimpleQueue
from typing import Any

from fsm_agent.core.errors import PASSES, BuildError
from fsm_agent.core.plain import short
from fsm_agent.core.run import Run
from fsm_agent.core.stream_events import DeltasDiscarded, Gap, StreamEvent, TextDelta
from fsm_agent.core.trace import trace_of
from fsm_agent.host.bodies import Passing, Through
from fsm_agent.host.clock import Clock
from fsm_agent.host.interrupt import Interrupt
from fsm_agent.host.pace import Pace

Take = Callable[[StreamEvent], None]


class Watch:
    """Who hears of a run while it is driven: each new line of its trace once, with the UTC second, and text in between.

    What observers or the reader raise ends the drive. `asks`, where there is one, is called between the steps of a thread, and `turn`
    is awaited between those of a task, so that a reader can set the pace; `pace`, where there is a reader, is how long it held the
    drive up.
    """

    def __init__(self, run: Run, clock: Clock, observers: list[Take], reader: Take | None = None) -> None:
        self._clock, self._observers, self._reader = clock, observers, reader
        self.pace = Pace(clock) if reader is not None else None
        self.asks: Callable[[], None] | None = None
        self.turn: Callable[[], Awaitable[None]] | None = None
        # What happened since the last drive, or before the first, nobody has heard yet.
        self._told = run.heard
        self._deltas = False

    def happened(self, run: Run) -> None:
        """Hand on what is new in the trace."""
        if run.row_count > self._told:
            for event in trace_of(run, self._told, self._clock.wall()):
                self._told = run.heard = self._told + 1
                self._deltas = False
                self._emit(event)

    def delta(self, run: Run, text: str) -> None:
        """Hand on a piece of text."""
        self.happened(run)
        self._deltas = True
        self._emit(TextDelta(run.id, self._told - 1, text))

    def discarded(self, run: Run) -> None:
        """Say that the pieces since the last line are void, where there were any."""
        if self._deltas:
            self._deltas = False
            self._emit(DeltasDiscarded(run.id, self._told - 1))

    def wanted(self) -> None:
        """Wait until the reader wants to hear more, where it is one that says so; raises what it raises once it has left."""
        if self.asks is not None and self._reader is not None:
            self._held_up(self.asks)

    async def at_its_pace(self, wait: Callable[[], Awaitable[None]]) -> None:
        """Wait for a reader that is a task; it spends none of the run's time."""
        assert self.pace is not None
        with self.pace.waiting():
            await wait()

    def _emit(self, event: StreamEvent) -> None:
        for take in self._observers:
            take(event)
        if self._reader is not None:
            self._held_up(partial(self._reader, event))

    def _held_up(self, by: Callable[[], None]) -> None:
        assert self.pace is not None
        try:
            with self.pace.waiting():
                by()
        except BaseException:
            # Who left hears no more of it; those who only look on hear how it ends.
            self._reader = None
            raise


class Left(Passing):
    """The reader has left; it never leaves the thread that drives."""


class Handoff:
    """Events from the thread that drives to the one that reads, one at a time and only when asked for.

    `ear` gives what interrupts the drive; it is asked in the thread that drives, at its first event.
    """

    def __init__(self, ear: Callable[[], Interrupt | None]) -> None:
        self._ear = ear
        self._interrupt: Interrupt | None = None
        self._asked = self._left = False
        self._wants: SimpleQueue[bool] = SimpleQueue()
        self._items: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def asks(self) -> None:
        """Wait until the reader asks for an event; raises Left once the reader has left."""
        if self._interrupt is None:
            self._interrupt = self._ear()
        if not self._asked and (self._left or not self._wants.get()):
            raise Left
        self._asked = True

    def give(self, event: StreamEvent) -> None:
        """Wait until the reader asks, and hand it the event; raises Left once the reader has left."""
        self.asks()
        self._asked = False
        self._items.put(("event", event))

    def read(self, drive: Callable[[], None]) -> Iterator[StreamEvent]:
        """Drive in a thread of its own, as far as events are asked for; leaving the iterator ends the drive."""
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run, drive), name="stream", daemon=True)
        self._thread.start()
        try:
            while True:
                self._wants.put(True)
                kind, item = self._items.get()
                if kind == "event":
                    yield item
                elif item is None:
                    return
                else:
                    raise item
        finally:
            self._left = True
            self._wants.put(False)
            if self._interrupt is not None:
                # It may be waiting for something else than its reader.
                self._interrupt.ask()
            self._thread.join()

    def _run(self, drive: Callable[[], None]) -> None:
        try:
            drive()
        except Left:
            return
        except BaseException as error:
            self._items.put(("end", error))
        else:
            self._items.put(("end", None))


class Buffer:
    """Events for a task that reads, kept until it asks; the drive waits for it between steps."""

    def __init__(self) -> None:
        self._events: deque[StreamEvent] = deque()
        self._filled = asyncio.Event()
        self._drained = asyncio.Event()

    def give(self, event: StreamEvent) -> None:
        """Keep an event for the reader."""
        self._events.append(event)
        self._drained.clear()
        self._filled.set()

    async def drained(self) -> None:
        """Wait until the reader has taken everything and asks for more."""
        await self._drained.wait()

    async def read(self, drive: Any) -> AsyncIterator[StreamEvent]:
        """Drive in a task of its own at the reader's pace; leaving the iterator cancels it."""
        task = asyncio.ensure_future(_driven(drive))
        task.add_done_callback(lambda _: self._filled.set())
        try:
            while True:
                while self._events:
                    yield self._events.popleft()
                if task.done():
                    if (through := await task) is not None:
                        raise through.error
                    return
                self._filled.clear()
                self._drained.set()
                await self._filled.wait()
        finally:
            if not task.done():
                task.cancel()
                # However the drive ends, the run has been told; who left does not want to hear of it.
                await asyncio.wait([task])
            if not task.cancelled():
                task.exception()


async def _driven(drive: Awaitable[None]) -> Through | None:
    """Drive; what passes through is handed on, for a task that raises it would end the event loop before the reader hears of it."""
    try:
        await drive
    except PASSES as error:
        return Through(error)
    return None


class Observer:
    """Looks on without driving: a bounded buffer of events, read by a thread or a task, that never slows a run down.

    When it is full the oldest events are dropped, and a Gap says how many. It ends when it is closed.
    """

    def __init__(self, most: int = 1000, *, leave: Callable[[Observer], None] | None = None) -> None:
        if type(most) is not int or most < 1:
            raise BuildError(f"observe(buffer={short(most, 40)}): give a whole number from 1; it looks at every run of the agent")
        self._events: deque[StreamEvent] = deque()
        self._most, self._leave = most, leave
        self._missed = self.seen = 0
        self._closed = False
        self._more = threading.Condition()
        self._wakes: list[Callable[[], None]] = []

    def give(self, event: StreamEvent) -> None:
        """Keep an event, at the cost of the oldest where there is no room."""
        with self._more:
            self.seen += 1
            if self._closed:
                return
            if len(self._events) >= self._most:
                self._events.popleft()
                self._missed += 1
            self._events.append(event)
            self._wake()

    def close(self) -> None:
        """End it; what is in the buffer can still be read."""
        with self._more:
            self._closed = True
            self._wake()
        if self._leave is not None:
            self._leave(self)

    def take(self) -> list[StreamEvent]:
        """What is in the buffer now, emptied, a Gap first where something was dropped."""
        with self._more:
            return self._take()

    def __enter__(self) -> Observer:
        """Close it at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def __iter__(self) -> Iterator[StreamEvent]:
        """Events as they come, until it is closed; the thread waits in between."""
        while True:
            with self._more:
                while not self._events and not self._closed:
                    self._more.wait()
                batch, over = self._take(), self._closed
            yield from batch
            if over and not batch:
                return

    async def __aiter__(self) -> AsyncIterator[StreamEvent]:
        """Events as they come, until it is closed; the task waits in between."""
        loop, filled = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(filled.set)

        with self._more:
            self._wakes.append(wake)
        try:
            while True:
                filled.clear()
                with self._more:
                    batch, over = self._take(), self._closed
                for event in batch:
                    yield event
                if not batch:
                    if over:
                        return
                    await filled.wait()
        finally:
            with self._more:
                self._wakes.remove(wake)

    def _take(self) -> list[StreamEvent]:
        batch: list[StreamEvent] = [Gap(self._missed)] if self._missed else []
        batch += self._events
        self._events.clear()
        self._missed = 0
        return batch

    def _wake(self) -> None:
        self._more.notify_all()
        for wake in self._wakes:
            try:
                wake()
            except RuntimeError:
                # The reader's loop is closed; it will not read on.
                continue
