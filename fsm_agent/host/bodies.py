"""Running bodies in the caller's thread, or beside each other in threads of their own.

A thread cannot be killed. One that outlives its time is given up: its late result is dropped, and as long as it runs it
keeps the turn of an exclusive tool, so that no other exclusive body overlaps it.
"""

from __future__ import annotations

import contextvars
import inspect
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from queue import Empty, SimpleQueue
from types import FunctionType, MethodType
from typing import Any

import attrs

from fsm_agent.core.events import CallEvent
from fsm_agent.host import perform
from fsm_agent.host.perform import Performance

# What passes through every driver untouched; a body's own cancellation is a failure of the body.
PASSES = (KeyboardInterrupt, SystemExit)

Told = Callable[[int, CallEvent], None]


@attrs.frozen
class Through:
    """What passes through drivers, on its way out of a thread or task."""

    error: BaseException


@attrs.frozen
class Left:
    """What a body that is no coroutine function returned for an event loop to await."""

    awaitable: Any


Outcome = CallEvent | Through | Left | None


def is_async(fn: Any) -> bool:
    """True for a coroutine function, a partial of one, and an object whose ``__call__`` is one."""
    called = type(fn).__call__ if callable(fn) else None
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(called)


def cancelled_by_host(error: BaseException) -> bool:
    """True for a CancelledError that somebody outside asked of the running task."""
    import asyncio

    if not isinstance(error, asyncio.CancelledError):
        return False
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


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
        return perform.raised(tool, job.call, error, ran=began(tool.fn, error))
    if not hasattr(type(value), "__await__"):
        return perform.returned(tool, job.call, value)
    results: SimpleQueue[Outcome] = SimpleQueue()
    start(job, lambda: results.put(outcome(job, lambda: _awaited(value))))
    return event_of(results.get())


def outcome(job: Performance, body: Callable[[], Any]) -> Outcome:
    """What became of a body: its event, what passes through, or what it left to be awaited."""
    try:
        value = body()
        return value if type(value) is Left else perform.returned(job.tool, job.call, value)
    except PASSES as error:
        return Through(error)
    except BaseException as error:
        return perform.raised(job.tool, job.call, error, ran=began(job.tool.fn, error))


def event_of(result: Outcome) -> CallEvent:
    """The event of a body; raises what passes through."""
    if isinstance(result, Through):
        raise result.error
    assert result is not None
    assert not isinstance(result, Left)
    return result


def began(fn: Any, error: BaseException) -> bool:
    """False where the arguments did not fit the signature, so that the error is ours and no line of the body ran."""
    while isinstance(fn, partial):
        fn = fn.func
    if type(error) is not TypeError or not isinstance(fn, FunctionType | MethodType):
        return True
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or trace.tb_frame.f_globals.get("__package__") != __package__:
        return True
    # What failed while the body's own awaitable was awaited failed after the body had returned.
    return trace.tb_frame.f_code.co_name in ("_awaited", "wait")


def call(job: Performance, *, leave: bool = False) -> Any:
    """Call a body; what it returns to be awaited runs in a loop of its own here, or is left to the caller's."""
    value = job.tool.fn(**job.args)
    if not hasattr(type(value), "__await__"):
        return value
    return Left(value) if leave else _awaited(value)


def _awaited(awaitable: Awaitable[Any]) -> Any:
    import asyncio

    async def wait() -> Any:
        return await awaitable

    return asyncio.run(wait())


def start(job: Performance, target: Callable[[], None]) -> None:
    """Start a thread that has the caller's context variables and does not keep the interpreter alive."""
    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(target,), name=f"tool {job.tool.name}", daemon=True).start()


def in_turn(job: Performance, token: threading.Lock, body: Callable[[], Outcome]) -> Outcome:
    """Run a body once its turn has come; None for one that was given up before.

    Whoever takes the token first, the body or who gives it up, decides whether it ran.
    """
    if job.turn is None:
        return body() if token.acquire(blocking=False) else None
    with job.turn:
        return body() if token.acquire(blocking=False) else None


def give_up(job: Performance, token: threading.Lock) -> CallEvent:
    """The event of a body whose time is over; one that has not begun will not begin any more."""
    return perform.late(job.call, job.seconds or 0.0, ran=not token.acquire(blocking=False))


def run_in_threads(jobs: list[Performance], told: Told) -> None:
    """Run bodies beside each other, each in a thread of its own with the caller's context variables.

    `told` hears of each result as it arrives, with the job's position. Whatever passes through drivers is raised here.
    """
    results: SimpleQueue[tuple[int, Outcome]] = SimpleQueue()
    tokens = [threading.Lock() for _ in jobs]
    began_at = time.monotonic()

    def thread(position: int) -> None:
        job = jobs[position]
        results.put((position, in_turn(job, tokens[position], lambda: outcome(job, lambda: call(job)))))

    for position, job in enumerate(jobs):
        start(job, partial(thread, position))
    waiting = dict.fromkeys(range(len(jobs)))
    while waiting:
        ends = [(began_at + seconds, n) for n in waiting if (seconds := jobs[n].seconds) is not None]
        end, first = min(ends, default=(None, -1))
        result: Outcome
        try:
            position, result = results.get(timeout=None if end is None else max(0.0, end - time.monotonic()))
        except Empty:
            position, result = first, give_up(jobs[first], tokens[first])
        if position in waiting:
            del waiting[position]
            told(position, event_of(result))
