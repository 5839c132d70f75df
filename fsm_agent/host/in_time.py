"""Asking a model no longer than there is time: whoever has not answered by then is given up, and what comes later is dropped."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
import time
from collections.abc import Awaitable, Callable
from queue import Empty, SimpleQueue
from typing import Any

from fsm_agent.host.bodies import Through, event_of
from fsm_agent.host.clock import Clock, turns_of

# Given up and still running; the event loop alone would not keep them alive.
_LEFT_BEHIND: set[asyncio.Future[Any]] = set()


class OutOfTime(TimeoutError):
    """A model did not answer in the time that the run had left for it."""


def ask_in_time(ask: Callable[[], Any], seconds: float, clock: Clock | None, results: SimpleQueue[Any]) -> Any:
    """Ask in a thread with the caller's context variables; raises what it raised, and OutOfTime when the time is over.

    The time is the clock's where threads take turns in it, else the machine's. Whoever puts ``(-1, Through(error))`` into `results`
    ends the wait with that error. A thread cannot be killed: one that is given up works on, and its answer is dropped.
    """
    turns = turns_of(clock)
    mark = object()
    place = None if turns is None else turns.enter()

    def thread() -> None:
        if turns is not None:
            turns.begin(place)
        try:
            try:
                outcome: tuple[Any, Any] = (ask(), None)
            except BaseException as error:
                outcome = (None, error)
            results.put((mark, outcome))
        finally:
            if turns is not None:
                turns.leave()

    end = (time.monotonic() if turns is None else turns.now()) + seconds
    threading.Thread(target=contextvars.copy_context().run, args=(thread,), name="model", daemon=True).start()
    while True:
        try:
            if turns is None:
                who, what = results.get(timeout=max(0.0, end - time.monotonic()))
            else:
                who, what = turns.take(results, end)
        except Empty:
            raise OutOfTime(f"no answer came in {seconds:g} s") from None
        if isinstance(what, Through):
            event_of(what)
        if who is mark:
            value, error = what
            if error is not None:
                raise error
            return value


async def await_in_time(answer: Awaitable[Any], seconds: float) -> Any:
    """Await in a task of its own; raises OutOfTime when the time is over, and cancels what it was waiting for."""
    task = asyncio.ensure_future(answer)
    try:
        await asyncio.wait([task], timeout=seconds)
        if not task.done():
            raise OutOfTime(f"no answer came in {seconds:g} s")
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            _LEFT_BEHIND.add(task)
            task.add_done_callback(_forget)


def _forget(task: asyncio.Future[Any]) -> None:
    _LEFT_BEHIND.discard(task)
    if not task.cancelled():
        task.exception()


def drop(answer: Any) -> None:
    """Close a coroutine that nobody will await."""
    if inspect.iscoroutine(answer):
        answer.close()
