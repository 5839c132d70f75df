"""A queue that threads and tasks stand in together: one at a time, in the order of their coming."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager

import attrs

from fsm_agent.core.errors import RunError


@attrs.frozen(eq=False)
class Ticket:
    """One place in the queue; `turn` is done once it has come, `loop` is the event loop that waits for it, if one does."""

    loop: asyncio.AbstractEventLoop | None
    turn: Future[None] = attrs.field(factory=Future)

    def __attrs_post_init__(self) -> None:
        # Running already, so that a task which stops waiting cannot cancel a turn that is about to come.
        self.turn.set_running_or_notify_cancel()


@attrs.define(eq=False)
class Queue:
    """Turns taken one after the other, by threads (`taken`) and by tasks (`ataken`)."""

    _lock: threading.Lock = attrs.field(init=False, factory=threading.Lock)
    _tickets: deque[Ticket] = attrs.field(init=False, factory=deque)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for a turn in this thread and hold it.

        Raises RunError where the thread's own event loop has to run before the turn can come.
        """
        here = _running_loop()
        with self._lock:
            if here is not None and any(ticket.loop is here for ticket in self._tickets):
                raise RunError("a call of this session is under way in this event loop; await acall here")
            ticket = self._draw(None)
        try:
            ticket.turn.result()
            yield
        finally:
            self._leave(ticket)

    @asynccontextmanager
    async def ataken(self) -> AsyncIterator[None]:
        """Wait for a turn in this task and hold it; a task that is cancelled gives its place up."""
        with self._lock:
            ticket = self._draw(asyncio.get_running_loop())
        try:
            if not ticket.turn.done():
                await asyncio.wrap_future(ticket.turn)
            yield
        finally:
            self._leave(ticket)

    def _draw(self, loop: asyncio.AbstractEventLoop | None) -> Ticket:
        ticket = Ticket(loop)
        self._tickets.append(ticket)
        if self._tickets[0] is ticket:
            ticket.turn.set_result(None)
        return ticket

    def _leave(self, ticket: Ticket) -> None:
        with self._lock:
            first = self._tickets[0] is ticket
            self._tickets.remove(ticket)
            if first and self._tickets:
                self._tickets[0].turn.set_result(None)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
