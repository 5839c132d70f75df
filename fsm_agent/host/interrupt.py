"""Interrupting a drive from elsewhere: another thread or task says stop, and the driver hears it where it waits."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from fsm_agent.host.bodies import Passing, Through


class Interrupted(Passing):
    """The drive was told to stop; it never leaves the driver."""


class Interrupt:
    """One drive's ear: `ask` may be called from any thread, `check` raises Interrupted once it was."""

    # One is made at every drive, and few of them are ever written to.
    asked = False
    _woken: threading.Event | None = None
    _results: SimpleQueue[Any] | None = None
    _loop: asyncio.AbstractEventLoop | None = None
    task: asyncio.Task[Any] | None = None
    _cancels = 0

    def ask(self) -> None:
        """Tell the drive to stop, wherever it waits; a body in the driver's own thread is let come to its end."""
        self.asked = True
        if self._woken is not None:
            self._woken.set()
        if self._results is not None:
            self._results.put((-1, Through(Interrupted())))
        if self._loop is not None:
            # A loop that was closed in the meantime drives nothing any more.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._cancel_task)

    def check(self) -> None:
        """Raise Interrupted once the drive was told to stop."""
        if self.asked:
            raise Interrupted

    def sleep(self, seconds: float) -> None:
        """Sleep in real time, or until the drive is told to stop."""
        if self._woken is None:
            self._woken = threading.Event()
        self.check()
        self._woken.wait(min(seconds, threading.TIMEOUT_MAX))
        self.check()

    def results(self) -> SimpleQueue[Any]:
        """A queue for the results of bodies, into which `ask` puts its word."""
        queue: SimpleQueue[Any] = SimpleQueue()
        self._results = queue
        if self.asked:
            raise Interrupted
        return queue

    def in_task(self) -> None:
        """From here on the drive is this task, and `ask` cancels it."""
        self._loop, self.task = asyncio.get_running_loop(), asyncio.current_task()

    def took(self, error: BaseException) -> bool:
        """True where the cancellation of the task is this interrupt's own and nobody else's."""
        if not isinstance(error, asyncio.CancelledError) or self.task is None:
            return False
        return self._cancels > 0 and self.task.cancelling() <= self._cancels

    def over(self) -> None:
        """The drive has ended: its task is left alone from now on, and no longer cancelled where this interrupt did that."""
        task, self.task = self.task, None
        for _ in range(self._cancels if task is not None else 0):
            task.uncancel()  # type: ignore[union-attr]

    def _cancel_task(self) -> None:
        # The drive may have ended in the meantime, and its task does something else now.
        if self.task is not None:
            self._cancels += 1
            self.task.cancel()
