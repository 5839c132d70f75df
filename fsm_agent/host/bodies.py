"""Running bodies: in the caller's thread, in threads of their own, or as tasks.

A thread cannot be killed. One that outlives its time is given up: its late result is dropped, and as long as it runs it
keeps the turn of an exclusive tool, so that no other exclusive body overlaps it.
"""

from __future__ import annotations

import contextvars
import inspect
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from fsm_agent.core.events import CallEvent
from fsm_agent.host import perform
from fsm_agent.host.perform import Performance

# What passes through every driver untouched; a body's own cancellation is a failure of the body.
_PASSES = (KeyboardInterrupt, SystemExit, GeneratorExit)


def run_here(job: Performance) -> CallEvent:
    """Run a body in the caller's thread, without a time limit."""
    tool = job.tool
    if job.turn is not None:
        with job.turn:
            return _run(job)
    try:
        value = tool.fn(**job.args)
    except _PASSES:
        raise
    except BaseException as error:
        return perform.raised(tool, job.call, error)
    if hasattr(value, "__await__"):
        return run_in_threads([job], awaited={job.call.id: value})[0]
    return perform.returned(tool, job.call, value)


def _run(job: Performance, awaitable: Any = None) -> CallEvent:
    try:
        value = job.tool.fn(**job.args) if awaitable is None else awaitable
        if inspect.isawaitable(value):
            value = _run_awaitable(value)
    except _PASSES:
        raise
    except BaseException as error:
        return perform.raised(job.tool, job.call, error)
    return perform.returned(job.tool, job.call, value)


def _run_awaitable(awaitable: Any) -> Any:
    import asyncio

    async def wait() -> Any:
        return await awaitable

    return asyncio.run(wait())


def run_in_threads(jobs: list[Performance], told: Callable[[int, CallEvent], None] | None = None, awaited: Any = None) -> list[CallEvent]:
    """Run bodies beside each other, each in a thread of its own with the caller's context variables.

    `told` hears of each result as it arrives, with the job's position. Whatever passes through drivers is raised here.
    """
    results: SimpleQueue[tuple[int, CallEvent | None, BaseException | None]] = SimpleQueue()
    begun = [threading.Event() for _ in jobs]
    given_up = [threading.Event() for _ in jobs]
    started = time.monotonic()
    for position, job in enumerate(jobs):
        context = contextvars.copy_context()
        awaitable = (awaited or {}).get(job.call.id)
        target = _thread_body(job, position, begun[position], given_up[position], results, awaitable)
        threading.Thread(target=context.run, args=(target,), name=f"tool {job.tool.name}", daemon=True).start()
    events: dict[int, CallEvent] = {}
    while len(events) < len(jobs):
        position, event = _next_event(jobs, events, begun, given_up, results, started)
        if position not in events:
            events[position] = event
            if told is not None:
                told(position, event)
    return [events[position] for position in range(len(jobs))]


def _next_event(
    jobs: list[Performance],
    events: dict[int, CallEvent],
    begun: list[threading.Event],
    given_up: list[threading.Event],
    results: SimpleQueue[tuple[int, CallEvent | None, BaseException | None]],
    started: float,
) -> tuple[int, CallEvent]:
    ends = [(started + job.seconds, n) for n, job in enumerate(jobs) if n not in events and job.seconds is not None]
    end, first = min(ends, default=(None, -1))
    try:
        position, event, error = results.get(timeout=None if end is None else max(0.0, end - time.monotonic()))
    except Empty:
        given_up[first].set()
        seconds = jobs[first].seconds or 0.0
        return first, perform.late(jobs[first].call, seconds, ran=begun[first].is_set())
    if error is not None:
        raise error
    assert event is not None
    return position, event


def _thread_body(
    job: Performance,
    position: int,
    begun: threading.Event,
    given_up: threading.Event,
    results: SimpleQueue[tuple[int, CallEvent | None, BaseException | None]],
    awaitable: Any,
) -> Callable[[], None]:
    def body() -> None:
        if job.turn is None:
            begun.set()
            _put(job, position, results, awaitable)
            return
        with job.turn:
            if given_up.is_set():
                return
            begun.set()
            _put(job, position, results, awaitable)

    return body


def _put(
    job: Performance, position: int, results: SimpleQueue[tuple[int, CallEvent | None, BaseException | None]], awaitable: Any
) -> None:
    try:
        results.put((position, _run(job, awaitable), None))
    except BaseException as error:
        results.put((position, None, error))


async def run_as_task(job: Performance) -> CallEvent:
    """Run a body inside the running event loop; a body that is no coroutine function runs in a thread."""
    import asyncio

    tool, call = job.tool, job.call
    here = inspect.iscoroutinefunction(tool.fn)
    if not here or job.turn is not None:
        return await _in_thread(job)
    try:
        if job.seconds is None:
            return perform.returned(tool, call, await tool.fn(**job.args))
        async with asyncio.timeout(job.seconds) as timer:
            return perform.returned(tool, call, await tool.fn(**job.args))
    except _PASSES:
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return perform.raised(tool, call, error)
    except TimeoutError as error:
        if job.seconds is not None and timer.expired():
            return perform.late(call, job.seconds, ran=True)
        return perform.raised(tool, call, error)
    except BaseException as error:
        return perform.raised(tool, call, error)


async def _in_thread(job: Performance) -> CallEvent:
    import asyncio

    loop = asyncio.get_running_loop()
    done: asyncio.Future[CallEvent] = loop.create_future()

    def arrive(event: CallEvent | None, error: BaseException | None) -> None:
        if done.cancelled() or done.done():
            return
        if error is not None:
            done.set_exception(error)
        elif event is not None:
            done.set_result(event)

    def body() -> None:
        event: CallEvent | None = None
        error: BaseException | None = None
        try:
            event = run_in_threads([job])[0]
        except BaseException as raised:
            error = raised
        try:
            loop.call_soon_threadsafe(arrive, event, error)
        except RuntimeError:
            # The loop was closed in the meantime; nobody waits for this result any more.
            return

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(body,), name=f"tool {job.tool.name}", daemon=True).start()
    return await done
