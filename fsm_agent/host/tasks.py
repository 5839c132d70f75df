"""Running bodies beside the tasks of a running event loop: coroutines in that loop, everything else in threads.

A coroutine may refuse to be cancelled, as a thread cannot be killed. One that outlives its time is given up like a
thread: its late result is dropped, and as long as it runs it keeps the turn of an exclusive tool.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import math
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from fsm_agent.core.errors import PASSES
from fsm_agent.core.events import CallEvent
from fsm_agent.host import bodies, perform
from fsm_agent.host.bodies import Left, Outcome, Through, Told, is_async
from fsm_agent.host.perform import Performance
from fsm_agent.host.reentrance import inside, is_inside

# Given up and still running; the event loop alone would not keep them alive.
_LEFT_BEHIND: set[asyncio.Task[Outcome]] = set()


async def run_in_loop(jobs: list[Performance], told: Told) -> None:
    """Run bodies beside each other inside the running event loop.

    `told` hears of each result as it arrives, with the job's position. Whatever passes through drivers is raised here.
    When the host cancels it, the coroutines are cancelled, and it waits until they have ended or their time is over.
    """
    if len(jobs) == 1 and jobs[0].turn is None and is_async(jobs[0].tool.fn):
        told(0, await _one(jobs[0]))
        return
    now = asyncio.get_running_loop().time
    ends = [math.inf if job.seconds is None else now() + job.seconds for job in jobs]
    tokens = [threading.Lock() for _ in jobs]
    tasks = [asyncio.ensure_future(_task(job, token)) for job, token in zip(jobs, tokens, strict=True)]
    waiting = {task: position for position, task in enumerate(tasks)}
    try:
        while waiting:
            soonest = min(ends[n] for n in waiting.values())
            done, _ = await asyncio.wait(waiting, timeout=_seconds(soonest, now()), return_when=asyncio.FIRST_COMPLETED)
            if not done:
                # What ends in the very instant in which its time is over has ended in time.
                await asyncio.sleep(0)
            for task, n in list(waiting.items()):
                if task.done():
                    del waiting[task]
                    told(n, _result_of(task, jobs[n]))
                elif ends[n] <= now():
                    del waiting[task]
                    _leave(task)
                    told(n, bodies.give_up(jobs[n], tokens[n]))
    except asyncio.CancelledError:
        for task in waiting:
            task.cancel()
        if waiting:
            await asyncio.wait(waiting, timeout=_seconds(max(ends[n] for n in waiting.values()), now()))
        raise
    finally:
        for task, n in waiting.items():
            # What has not begun by now must not begin any more.
            tokens[n].acquire(blocking=False)
            _leave(task)


async def _one(job: Performance) -> CallEvent:
    """`run_in_loop` for one coroutine function that takes no turn: a task, a future and a timer are enough for it."""
    loop = asyncio.get_running_loop()
    end = math.inf if job.seconds is None else loop.time() + job.seconds
    # The body's own copy of the context serves its callbacks too, which would each make one.
    context = contextvars.copy_context()
    task = loop.create_task(_body(job), context=context)
    over: asyncio.Future[None] = loop.create_future()
    task.add_done_callback(partial(_set, over), context=context)
    timer = None if end == math.inf else loop.call_at(end, _set, over, context=context)
    try:
        await over
        if not task.done():
            # What ends in the very instant in which its time is over has ended in time.
            await asyncio.sleep(0)
        return _result_of(task, job) if task.done() else perform.late(job.call, job.seconds or 0.0, ran=True)
    except asyncio.CancelledError:
        if not task.done():
            task.cancel()
            await asyncio.wait((task,), timeout=_seconds(end, loop.time()))
        raise
    finally:
        if timer is not None:
            timer.cancel()
        _leave(task)


async def _body(job: Performance) -> Outcome:
    try:
        return perform.returned(job.tool, job.call, await job.tool.fn(**job.args))
    except PASSES as error:
        return Through(error)
    except BaseException as error:
        return perform.raised(job.tool, job.call, error, ran=bodies.began(job.tool.fn, error))


def _seconds(end: float, now: float) -> float | None:
    return None if end == math.inf else max(0.0, end - now)


def _leave(task: asyncio.Task[Outcome]) -> None:
    if not task.done():
        task.cancel()
        _LEFT_BEHIND.add(task)
        task.add_done_callback(_LEFT_BEHIND.discard)


def _result_of(task: asyncio.Task[Outcome], job: Performance) -> CallEvent:
    if task.cancelled():
        # By somebody who cancelled this task and not the one that waits for it.
        return perform.raised(job.tool, job.call, asyncio.CancelledError())
    return bodies.event_of(task.result())


async def _task(job: Performance, token: threading.Lock) -> Outcome:
    """One body in a task of its own, so that the host's cancellation is told from the body's."""
    if not is_async(job.tool.fn):
        return await _in_thread(job, token)
    turn = job.turn
    if turn is None:
        return await _begun(job, token)
    if is_inside(turn):
        return perform.reentered(job.call)
    await _take_turn(turn)
    try:
        with inside(turn):
            return await _begun(job, token)
    finally:
        bodies.give_turn_back(turn)


async def _begun(job: Performance, token: threading.Lock) -> Outcome:
    return await _awaited(job, lambda: job.tool.fn(**job.args)) if token.acquire(blocking=False) else None


async def _awaited(job: Performance, start: Callable[[], Awaitable[Any]]) -> Outcome:
    try:
        return perform.returned(job.tool, job.call, await start())
    except PASSES as error:
        return Through(error)
    except BaseException as error:
        return perform.raised(job.tool, job.call, error, ran=bodies.began(job.tool.fn, error))


async def _in_thread(job: Performance, token: threading.Lock) -> Outcome:
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[Outcome] = loop.create_future()

    def arrive(result: Outcome) -> None:
        if arrived.done():
            _drop(result)
        else:
            arrived.set_result(result)

    def thread() -> None:
        # An exclusive body keeps its turn to its end, so what it leaves to be awaited is awaited in its thread.
        leave = job.turn is None
        result = bodies.in_turn(job, token, lambda: bodies.outcome(job, lambda: bodies.call(job, leave=leave)))
        try:
            loop.call_soon_threadsafe(arrive, result)
        except RuntimeError:
            # The loop was closed in the meantime; nobody waits for this result any more.
            _drop(result)

    bodies.start(job, thread)
    result = await arrived
    return await _awaited(job, lambda: result.awaitable) if isinstance(result, Left) else result


def _drop(result: Outcome) -> None:
    if isinstance(result, Left) and inspect.iscoroutine(result.awaitable):
        result.awaitable.close()


async def _take_turn(turn: threading.Lock) -> None:
    # The lock is shared with threads, and a loop must not wait for those.
    loop = asyncio.get_running_loop()
    while not turn.acquire(blocking=False):
        free: asyncio.Future[None] = loop.create_future()
        bodies.want_turn(turn, lambda free=free: _tell(loop, free))  # type: ignore[misc]
        if turn.locked():
            await free


def _tell(loop: asyncio.AbstractEventLoop, free: asyncio.Future[None]) -> None:
    # A loop that was closed in the meantime wants no turn any more.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(_set, free)


def _set(free: asyncio.Future[None], _: object = None) -> None:
    if not free.done():
        free.set_result(None)
