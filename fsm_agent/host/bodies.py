"""Running bodies: in the caller's thread, in threads of their own, or beside the tasks of a running event loop.

A thread cannot be killed, and a coroutine may refuse to be cancelled. A body that outlives its time is given up: its late
result is dropped, and as long as it runs it keeps the turn of an exclusive tool, so that no other exclusive body
overlaps it.
"""

from __future__ import annotations

import contextvars
import inspect
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from fsm_agent.core.events import CallEvent
from fsm_agent.host import perform
from fsm_agent.host.perform import Performance

if TYPE_CHECKING:
    import asyncio

# What passes through every driver untouched; a body's own cancellation is a failure of the body.
PASSES = (KeyboardInterrupt, SystemExit)

Told = Callable[[int, CallEvent], None]
# A body's event, or what passes through; neither for one that was given up before it began.
Outcome = tuple[CallEvent | None, BaseException | None]


def run_here(job: Performance) -> CallEvent:
    """Run a body in the caller's thread, without a time limit; a coroutine runs in a thread with a loop of its own."""
    if job.turn is not None:
        with job.turn:
            return _here(job)
    return _here(job)


def _here(job: Performance) -> CallEvent:
    tool = job.tool
    try:
        value = tool.fn(**job.args)
    except PASSES:
        raise
    except BaseException as error:
        return perform.raised(tool, job.call, error, ran=perform.began(tool.fn, error))
    if hasattr(value, "__await__"):
        results: SimpleQueue[Outcome] = SimpleQueue()
        _start(job, lambda: results.put(_outcome(job, lambda: _run_awaitable(value))))
        event, error_through = results.get()
        if event is None:
            assert error_through is not None
            raise error_through
        return event
    return perform.returned(tool, job.call, value)


def _outcome(job: Performance, body: Callable[[], Any]) -> Outcome:
    try:
        return perform.returned(job.tool, job.call, body()), None
    except PASSES as error:
        return None, error
    except BaseException as error:
        return perform.raised(job.tool, job.call, error, ran=perform.began(job.tool.fn, error)), None


def _called(job: Performance) -> Any:
    value = job.tool.fn(**job.args)
    return _run_awaitable(value) if inspect.isawaitable(value) else value


def _run_awaitable(awaitable: Any) -> Any:
    import asyncio

    async def wait() -> Any:
        return await awaitable

    return asyncio.run(wait())


def _start(job: Performance, target: Callable[[], None]) -> None:
    """Start a thread that has the caller's context variables and does not keep the interpreter alive."""
    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(target,), name=f"tool {job.tool.name}", daemon=True).start()


def _threaded(job: Performance, token: threading.Lock, body: Callable[[], Any]) -> Outcome:
    """Run a body in this thread once its turn has come; `token` is taken by whoever is first, its body or who gives it up."""
    if job.turn is None:
        return _outcome(job, body) if token.acquire(blocking=False) else (None, None)
    with job.turn:
        return _outcome(job, body) if token.acquire(blocking=False) else (None, None)


def run_in_threads(jobs: list[Performance], told: Told) -> None:
    """Run bodies beside each other, each in a thread of its own with the caller's context variables.

    `told` hears of each result as it arrives, with the job's position. Whatever passes through drivers is raised here.
    """
    results: SimpleQueue[tuple[int, Outcome]] = SimpleQueue()
    tokens = [threading.Lock() for _ in jobs]
    started = time.monotonic()

    def body(position: int) -> None:
        job = jobs[position]
        results.put((position, _threaded(job, tokens[position], lambda: _called(job))))

    for position, job in enumerate(jobs):
        _start(job, partial(body, position))
    waiting = dict.fromkeys(range(len(jobs)))
    while waiting:
        ends = [(started + seconds, n) for n in waiting if (seconds := jobs[n].seconds) is not None]
        end, first = min(ends, default=(None, -1))
        try:
            position, (event, error) = results.get(timeout=None if end is None else max(0.0, end - time.monotonic()))
        except Empty:
            position, event, error = first, given_up(jobs[first], tokens[first]), None
        if position not in waiting:
            continue
        del waiting[position]
        if error is not None:
            raise error
        assert event is not None
        told(position, event)


def given_up(job: Performance, token: threading.Lock) -> CallEvent:
    """The event of a body whose time is over; one that has not begun will not begin any more."""
    return perform.late(job.call, job.seconds or 0.0, ran=not token.acquire(blocking=False))


async def run_in_loop(jobs: list[Performance], told: Told) -> None:
    """Run bodies beside each other: coroutines in the running event loop, everything else in threads.

    `told` hears of each result as it arrives, with the job's position. Whatever passes through drivers is raised here.
    Cancelled, it cancels the coroutines and waits until they have ended or their time is over.
    """
    import asyncio

    if len(jobs) == 1 and jobs[0].seconds is None and jobs[0].turn is None and _is_async(jobs[0].tool.fn):
        told(0, await _directly(jobs[0]))
        return
    now = asyncio.get_running_loop().time
    started = now()
    tokens = [threading.Lock() for _ in jobs]
    tasks = {asyncio.ensure_future(_as_task(job, token)): n for n, (job, token) in enumerate(zip(jobs, tokens, strict=True))}
    waiting = dict(tasks)

    def left(n: int) -> float | None:
        seconds = jobs[n].seconds
        return None if seconds is None else started + seconds - now()

    try:
        while waiting:
            soonest = min((s for n in waiting.values() if (s := left(n)) is not None), default=None)
            done, _ = await asyncio.wait(waiting, timeout=soonest, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=waiting.__getitem__):
                event, error = task.result()
                position = waiting.pop(task)
                if error is not None:
                    raise error
                assert event is not None
                told(position, event)
            for task, n in [(task, n) for task, n in waiting.items() if not task.done() and (left(n) or 0.0) < 0.0]:
                del waiting[task]
                event = given_up(jobs[n], tokens[n])
                task.cancel()
                told(n, event)
    except asyncio.CancelledError:
        await _cancelled(waiting, min((s for n in waiting.values() if (s := left(n)) is not None), default=None))
        raise
    finally:
        for task in waiting:
            task.cancel()


async def _cancelled(tasks: dict[asyncio.Task[Outcome], int], seconds: float | None) -> None:
    import asyncio

    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=seconds)


def _is_async(fn: Any) -> bool:
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


async def _directly(job: Performance) -> CallEvent:
    import asyncio

    tool, call = job.tool, job.call
    try:
        return perform.returned(tool, call, await tool.fn(**job.args))
    except (*PASSES, GeneratorExit):
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return perform.raised(tool, call, error)
    except BaseException as error:
        return perform.raised(tool, call, error, ran=perform.began(tool.fn, error))


async def _as_task(job: Performance, token: threading.Lock) -> Outcome:
    """Run one body in a task of its own, so that a cancellation that is the body's own is told from the host's."""
    if not _is_async(job.tool.fn):
        return await _in_thread(job, token)
    turn = job.turn
    if turn is not None:
        await _turn_of(job, turn)
    try:
        if not token.acquire(blocking=False):
            return None, None
        return perform.returned(job.tool, job.call, await job.tool.fn(**job.args)), None
    except (*PASSES, GeneratorExit) as error:
        return None, error
    except BaseException as error:
        return perform.raised(job.tool, job.call, error, ran=perform.began(job.tool.fn, error)), None
    finally:
        if turn is not None:
            turn.release()


async def _in_thread(job: Performance, token: threading.Lock) -> Outcome:
    def body() -> Outcome:
        # An exclusive body keeps its turn to its end, so what it leaves to be awaited is awaited in its thread.
        whole = job.turn is not None
        return _threaded(job, token, lambda: _called(job) if whole else job.tool.fn(**job.args))

    event, error = await _off_loop(job, body)
    value = getattr(event, "value", None)
    return (event, error)


async def _turn_of(job: Performance, turn: threading.Lock) -> None:
    raise NotImplementedError


async def _off_loop(job: Performance, body: Callable[[], Any]) -> Any:
    raise NotImplementedError
