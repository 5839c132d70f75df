"""Asking no longer than there is time: whoever has not answered by then is given up, and what comes later is dropped."""

from __future__ import annotations

import asyncio
import contextvars
import math
import threading
import time
from collections.abc import Awaitable, Callable
from queue import Empty, SimpleQueue
from typing import Any

from fsm_agent.host.bodies import Through, event_of
from fsm_agent.host.clock import Clock, TurnClock, turns_of
from fsm_agent.host.pace import Pace
from fsm_agent.host.workers import HELD_UP_S, Job, Outcome, Workers, drop

# Given up and still running; the event loop alone would not keep them alive.
_LEFT_BEHIND: set[asyncio.Future[Any]] = set()


class OutOfTime(TimeoutError):
    """Whoever was asked did not answer in the time that the run had left for it."""


def ask_in_time(
    ask: Callable[[], Any],
    seconds: float,
    clock: Clock | None,
    results: SimpleQueue[Any],
    workers: Workers,
    pace: Pace | None = None,
) -> Any:
    """Ask in a thread with the caller's context variables; raises what it raised, and OutOfTime when the time is over.

    The time is the clock's where threads take turns in it, else the machine's; while a reader holds it up (`pace`) it stands
    still. Whoever puts ``(-1, Through(error))`` into `results` ends the wait with that error. A thread cannot be killed: one that
    is given up works on, and its answer is dropped.
    """
    turns = turns_of(clock)
    if turns is not None:
        return _ask_in_turn(ask, seconds, turns, results)
    end, held = time.monotonic() + seconds, 0.0 if pace is None else pace.held()
    job = Job(ask, lambda outcome: results.put((job, outcome)))
    workers.do(job, at_once=True)
    try:
        while True:
            left = end - time.monotonic() + (0.0 if pace is None else pace.held() - held)
            try:
                who, what = results.get(timeout=max(0.0, left if job.begun else min(left, HELD_UP_S)))
            except Empty:
                if left <= 0:
                    raise _out_of_time(seconds) from None
                if not job.begun:
                    workers.hurry()
                continue
            if isinstance(what, Through):
                event_of(what)
            if who is job:
                return _value(what)
    finally:
        workers.leave(job)


def _ask_in_turn(ask: Callable[[], Any], seconds: float, turns: TurnClock, results: SimpleQueue[Any]) -> Any:
    """The same in a clock's time, in a thread of its own that has its place in it."""
    mark, place = object(), turns.enter()

    def thread() -> None:
        turns.begin(place)
        try:
            results.put((mark, _outcome(ask)))
        finally:
            turns.leave()

    end = turns.now() + seconds
    threading.Thread(target=contextvars.copy_context().run, args=(thread,), name="model", daemon=True).start()
    while True:
        try:
            who, what = turns.take(results, end)
        except Empty:
            raise _out_of_time(seconds) from None
        if isinstance(what, Through):
            event_of(what)
        if who is mark:
            return _value(what)


async def in_thread(ask: Callable[[], Any], seconds: float | None, workers: Workers) -> Outcome:
    """Ask in a thread with the task's context variables, beside the running event loop: the value, or what was raised.

    Raises OutOfTime when the time is over. One that is given up, then or because the task is cancelled, works on, and its answer
    is dropped.
    """
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[Outcome | None] = loop.create_future()
    end = math.inf if seconds is None else loop.time() + seconds
    timer: asyncio.TimerHandle | None = None

    def told(outcome: Outcome) -> None:
        try:
            loop.call_soon_threadsafe(_arrive, arrived, outcome)
        except RuntimeError:
            # The loop was closed in the meantime; nobody waits any more.
            drop(outcome)

    def look() -> None:
        nonlocal timer
        if arrived.done():
            return
        now = loop.time()
        if now >= end:
            arrived.set_result(None)
            return
        if not job.begun:
            workers.hurry()
        soon = min(end, now + HELD_UP_S) if not job.begun else end
        timer = None if soon == math.inf else loop.call_at(soon, look)

    job = Job(ask, told)
    workers.do(job, at_once=False)
    timer = loop.call_at(min(end, loop.time() + HELD_UP_S), look)
    try:
        outcome = await arrived
    finally:
        if timer is not None:
            timer.cancel()
        workers.leave(job)
    if outcome is None:
        raise _out_of_time(seconds or 0.0)
    return outcome


def _arrive(arrived: asyncio.Future[Outcome | None], outcome: Outcome) -> None:
    if arrived.done():
        drop(outcome)
    else:
        arrived.set_result(outcome)


def _outcome(ask: Callable[[], Any]) -> Outcome:
    try:
        return ask(), None
    except BaseException as error:
        return None, error


def _value(outcome: Outcome) -> Any:
    value, error = outcome
    if error is not None:
        raise error
    return value


def _out_of_time(seconds: float) -> OutOfTime:
    return OutOfTime(f"no answer came in {seconds:g} s")


async def await_in_time(answer: Awaitable[Any], seconds: float) -> Any:
    """Await in a task of its own; raises OutOfTime when the time is over, and cancels what it was waiting for."""
    task = asyncio.ensure_future(_awaited(answer))
    try:
        await asyncio.wait([task], timeout=seconds)
        if not task.done():
            # What ends in the very instant in which its time is over has ended in time.
            await asyncio.sleep(0)
        if not task.done():
            raise _out_of_time(seconds)
        return _value(task.result())
    finally:
        if not task.done():
            task.cancel()
            _LEFT_BEHIND.add(task)
            task.add_done_callback(_forget)


async def _awaited(answer: Awaitable[Any]) -> Outcome:
    """What came of it: a task that raises KeyboardInterrupt or SystemExit ends the event loop before anybody hears of it."""
    try:
        return await answer, None
    except BaseException as error:
        return None, error


def _forget(task: asyncio.Future[Any]) -> None:
    _LEFT_BEHIND.discard(task)
    if not task.cancelled():
        task.exception()
