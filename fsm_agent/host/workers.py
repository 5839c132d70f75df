"""Threads that ask for drivers, so that whoever hangs is waited for no longer than there is time.

A driver in a thread always finds one that is free, for it waits itself meanwhile. Thousands of tasks share as few as keep up:
quick functions need one, and as long as all of them are held up their number doubles.
"""

from __future__ import annotations

import contextvars
import inspect
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

import attrs

# One that had nothing to do for so long ends.
_IDLE_S = 5.0
# Whoever has not come to its turn after that long asks for more of them.
HELD_UP_S = 0.005
_MOST = 1000

Outcome = tuple[Any, BaseException | None]


@attrs.define(eq=False)
class Job:
    """One question: what asks it, and who is told what came of it. `left` once nobody waits for it any more."""

    ask: Callable[[], Any]
    told: Callable[[Outcome], None]
    context: contextvars.Context = attrs.field(factory=contextvars.copy_context)
    begun: bool = False
    left: bool = False


class Workers:
    """Threads of one host; they keep no interpreter alive, and end when there is nothing to ask."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = self._free = self._ended = 0
        self._looked: tuple[int, float] = (0, 0.0)

    def do(self, job: Job, *, at_once: bool) -> None:
        """Have a question asked; `at_once` where the caller can wait for no other one first."""
        with self._lock:
            self._jobs.put(job)
            if not self._threads or (at_once and self._free < self._jobs.qsize()):
                self._start()

    def hurry(self) -> None:
        """Somebody's turn has not come: where nothing has come to its end since this was said before, there are more of them."""
        with self._lock:
            ended, at = self._looked
            now = time.monotonic()
            if ended != self._ended or self._jobs.empty():
                self._looked = (self._ended, now)
            elif now - at >= HELD_UP_S:
                self._looked = (ended, now)
                # Those that were lost with a process that was forked are counted still, and are made good here.
                with suppress(RuntimeError):
                    for _ in range(min(max(1, self._threads), self._jobs.qsize(), _MOST - self._threads)):
                        self._start()

    def leave(self, job: Job) -> None:
        """Wait for it no longer: it is not asked any more, or its thread, which cannot be ended, is no longer one of these."""
        with self._lock:
            if not job.left:
                job.left = True
                self._threads -= job.begun

    def _start(self) -> None:
        threading.Thread(target=self._work, name="fsm_agent asks", daemon=True).start()
        self._threads += 1

    def _work(self) -> None:
        while (job := self._next()) is not None:
            try:
                outcome: Outcome = (job.context.run(job.ask), None)
            except BaseException as error:
                outcome = (None, error)
            with self._lock:
                self._ended += 1
                waited_for = not job.left
                job.left, job.begun = True, False
            if not waited_for:
                drop(outcome)
                return
            job.told(outcome)
            # What came of it is nobody's but the asker's.
            del job, outcome

    def _next(self) -> Job | None:
        """The next question that somebody waits for; None where there was none for a while."""
        while True:
            with self._lock:
                self._free += 1
            try:
                job = self._jobs.get(timeout=_IDLE_S)
            except Empty:
                job = None
            with self._lock:
                self._free -= 1
                if job is None:
                    if not self._jobs.empty():
                        continue
                    self._threads -= 1
                    return None
                if not job.left:
                    job.begun = True
                    return job


def drop(outcome: Outcome) -> None:
    """Close a coroutine that nobody will await."""
    if inspect.iscoroutine(outcome[0]):
        outcome[0].close()
