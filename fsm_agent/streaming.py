"""Reading a run while it goes on: streams that drive it at their reader's pace, and observers that only look on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial
from threading import Lock
from typing import Any
from weakref import WeakSet

from fsm_agent.core.errors import RunError
from fsm_agent.core.known_names import mend
from fsm_agent.core.run import Run
from fsm_agent.core.stream_events import StreamEvent
from fsm_agent.core.values import GOES_ON
from fsm_agent.host.clock import SystemClock
from fsm_agent.host.drivers import Driver
from fsm_agent.host.watching import Buffer, Handoff, Observer, Take, Watch

_START = ("limits", "run_id", "scope", "seed", "fields", "context")


class Streams:
    """The part of an agent that is read; what is streamed is the run's own trace, and text between its lines."""

    driver: Driver
    start: Callable[..., Run]
    _take_up: Callable[..., None]

    def __init__(self) -> None:
        # Weakly: one that nobody holds any more cannot be read, and need not be fed.
        self._observers: WeakSet[Observer] = WeakSet()
        self._observing = Lock()

    def stream(self, request: Any, *, context: Any = None, **words: Any) -> Iterator[StreamEvent]:
        """Drive a request, or a run that stands or was stopped, and give its events as they come, at the reader's pace.

        A request takes the words of `start`, and a run the limits to raise, as `resume` does; what those raise, this raises too.
        Leaving the iterator (break, close, an exception) cancels the run, which can then be resumed; `answer(run)` is its answer once
        the events have ended.
        """
        run = self._begun(request, words)
        hand = Handoff(lambda: run.interrupt)
        watch = self._feed(run, hand.give)
        watch.asks = hand.asks
        return hand.read(lambda: self.driver.drive(run, context, watch))

    async def astream(self, request: Any, *, context: Any = None, **words: Any) -> AsyncIterator[StreamEvent]:
        """`stream` inside the running event loop."""
        run = self._begun(request, words, in_loop=True)
        buffer = Buffer()
        watch = self._feed(run, buffer.give)
        watch.turn = partial(watch.at_its_pace, buffer.drained)
        events = buffer.read(self.driver.adrive(run, context, watch))
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()  # type: ignore[attr-defined]

    def _begun(self, request: Any, words: Mapping[str, Any], in_loop: bool = False) -> Run:
        if isinstance(request, Run):
            stop = request.stop
            # How one came to its end is told first, where nobody has heard it yet; and one that ended of itself tells nothing more.
            heard = request.done and request.heard >= request.row_count
            if words or (heard and stop is not None and (stop.closed or stop.reason in GOES_ON)):
                self._take_up(request, words, in_loop)
            return request
        return self._started(request, words)

    def _started(self, request: Any, start: Mapping[str, Any]) -> Run:
        for name in start:
            if name not in _START:
                raise RunError(f"a run is started with no {name!r}; {mend(name, _START, 'it takes')}")
        return self.start(request, **start)

    def observe(self, buffer: int = 1000) -> Observer:
        """An observer of every run that this agent drives from now on; it never slows or cancels one.

        It keeps the last `buffer` events and tells of a gap where it lost some. Close it, or use it as a context manager.
        """
        observer = Observer(buffer, leave=self._leave)
        with self._observing:
            self._observers.add(observer)
        return observer

    def _leave(self, observer: Observer) -> None:
        with self._observing:
            self._observers.discard(observer)

    def _watch(self, run: Run) -> Watch | None:
        return self._feed(run) if self._observers else None

    def _feed(self, run: Run, reader: Take | None = None) -> Watch:
        with self._observing:
            return Watch(run, self.driver.host.clock or SystemClock(), [one.give for one in self._observers], reader)
