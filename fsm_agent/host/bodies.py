"""Running bodies in the caller's thread, or beside each other in threads of their own.

A thread cannot be killed. One that outlives its time is given up: its late result is dropped, and as long as it runs it
keeps the turn of an exclusive tool, so that no other exclusive body overlaps it.
"""

from __future__ import annotations

import contextvars
import inspect
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from queue import Empty, SimpleQueue
from types import FunctionType, MethodType
from typing import Any
from weakref import WeakKeyDictionary

import attrs

from fsm_agent.core.errors import PASSES
from fsm_agent.core.events import CallEvent
from fsm_agent.host import perform
from fsm_agent.host.clock import Clock, TurnClock, turns_of
from fsm_agent.host.perform import Performance
from fsm_agent.host.reentrance import inside, is_inside

# What most bodies return, of which it is known without a look that nobody has to await it.
_PLAIN = frozenset({dict, list, str, int, float, bool, type(None)})

Told = Callable[[int, CallEvent], None]

# Who is told when an exclusive turn is free again; an event loop must not wait for a lock.
_WANTED: WeakKeyDictionary[Any, deque[Callable[[], None]]] = WeakKeyDictionary()
_WANTING = threading.Lock()


class Passing(BaseException):
    """A word between the parts of a driver; it passes through as an interrupt from the keyboard does."""


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
    if type(fn) is FunctionType and fn.__code__.co_flags & inspect.CO_COROUTINE:
        return True
    called = type(fn).__call__ if callable(fn) else None
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(called)


def cancelled_by_host(error: BaseException) -> bool:
    """True for a CancelledError that somebody outside asked of the running task."""
    import asyncio

    if not issubclass(type(error), asyncio.CancelledError):
        return False
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def passes(error: BaseException, task: Any = None) -> bool:
    """True for what passes through drivers; anything else that a function of the host's raises is its failure.

    `task` is the one that drives, where one does: a GeneratorExit that the function raised in it is its own, and any other the end
    of a coroutine that is closed while it waits. Where a thread drives, a cancellation is the function's own.
    """
    kind = type(error)  # an exception may raise where its attributes are looked at
    if issubclass(kind, (*PASSES, Passing)):
        return True
    if task is None or issubclass(kind, Exception):
        return False
    if issubclass(kind, GeneratorExit):
        # What closes a coroutine that waits is raised there, and no frame of a function stands below.
        trace = error.__traceback__
        return not _runs(task) or (trace is not None and trace.tb_next is None)
    return cancelled_by_host(error)


def _runs(task: Any) -> bool:
    import asyncio

    try:
        return asyncio.current_task() is task
    except RuntimeError:
        # No loop runs in this thread.
        return False


def run_here(job: Performance, clock: Clock | None = None) -> CallEvent:
    """Run a body in the caller's thread, without a time limit; a coroutine runs in a thread with a loop of its own."""
    turn, tool = job.turn, job.tool
    if turn is not None:
        if is_inside(turn):
            return perform.reentered(job.call)
        take_turn(turn, turns_of(clock))
        job.turn = None
        try:
            with inside(turn):
                return run_here(job, clock)
        finally:
            job.turn = turn
            give_turn_back(turn)
    try:
        value = tool.fn(**job.args)
        # Of a class that cannot even be looked up nothing can be told, so it is as if the body had raised.
        plain = type(value) in _PLAIN
    except PASSES:
        raise
    except BaseException as error:
        return perform.raised(tool, job.call, error, ran=began(tool.fn, error))
    if plain or not awaitable(value):
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


def awaitable(value: Any) -> bool:
    """True for what somebody has to await; what cannot even be asked is no such thing."""
    try:
        return type(value) not in _PLAIN and hasattr(type(value), "__await__")
    except Exception:
        return False


def began(fn: Any, error: BaseException) -> bool:
    """False where the arguments did not fit the signature, so that the error is ours and no line of the body ran."""
    while issubclass(type(fn), partial):
        fn = fn.func
    if type(error) is not TypeError or not issubclass(type(fn), FunctionType | MethodType):
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
    if not awaitable(value):
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


def take_turn(turn: threading.Lock, turns: TurnClock | None = None) -> None:
    """Wait for an exclusive turn, in the clock's time where threads take turns in it."""
    if turns is None:
        turn.acquire()
    while turns is not None and not turn.acquire(blocking=False):
        turns.wait(lambda: not turn.locked())


def give_turn_back(turn: threading.Lock) -> None:
    """End an exclusive turn and tell those who want it."""
    turn.release()
    with _WANTING:
        wanted = _WANTED.pop(turn, ())
    for tell in wanted:
        tell()


def want_turn(turn: threading.Lock, tell: Callable[[], None]) -> None:
    """Have `tell` called, from any thread, when the turn has been given back the next time."""
    with _WANTING:
        _WANTED.setdefault(turn, deque()).append(tell)


def in_turn(job: Performance, token: threading.Lock, body: Callable[[], Outcome], turns: TurnClock | None = None) -> Outcome:
    """Run a body once its turn has come; None for one that was given up before.

    Whoever takes the token first, the body or who gives it up, decides whether it ran.
    """
    if job.turn is None:
        return body() if token.acquire(blocking=False) else None
    if is_inside(job.turn):
        return perform.reentered(job.call)
    take_turn(job.turn, turns)
    try:
        with inside(job.turn):
            return body() if token.acquire(blocking=False) else None
    finally:
        give_turn_back(job.turn)


def give_up(job: Performance, token: threading.Lock) -> CallEvent:
    """The event of a body whose time is over; one that has not begun will not begin any more."""
    return perform.late(job.call, job.seconds or 0.0, ran=not token.acquire(blocking=False))


def run_in_threads(
    jobs: list[Performance], told: Told, clock: Clock | None = None, results: SimpleQueue[Any] | None = None
) -> None:
    """Run bodies beside each other, each in a thread of its own with the caller's context variables.

    `told` hears of each result as it arrives, with the job's position. Whatever passes through drivers is raised here. Their
    time is the clock's where threads take turns in it (`TurnClock`), else the machine's. `results` is where the bodies put what
    became of them; whoever puts ``(-1, Through(error))`` there ends the wait with that error.
    """
    if results is None:
        results = SimpleQueue()
    turns = turns_of(clock)
    now = time.monotonic if turns is None else turns.now
    tokens = [threading.Lock() for _ in jobs]
    began_at = now()
    for position, job in enumerate(jobs):
        place = None if turns is None else turns.enter()
        start(job, partial(_in_thread, job, (position, tokens), results, turns, place))
    waiting = dict.fromkeys(range(len(jobs)))
    try:
        while waiting:
            ends = [(began_at + seconds, n) for n in waiting if (seconds := jobs[n].seconds) is not None]
            end, first = min(ends, default=(None, -1))
            result: Outcome
            try:
                if turns is None:
                    position, result, *batch = results.get(timeout=None if end is None else max(0.0, end - now()))
                else:
                    position, result, *batch = turns.take(results, end)
            except Empty:
                position, result, batch = first, give_up(jobs[first], tokens[first]), [tokens]
            if position < 0:
                event_of(result)
            elif position in waiting and batch[0] is tokens:
                del waiting[position]
                before = now()
                told(position, event_of(result))
                # While a reader holds the driver up, nobody's time runs out.
                began_at += now() - before
    except BaseException:
        # What has not begun by now must not begin any more.
        for token in tokens:
            token.acquire(blocking=False)
        raise


def _in_thread(
    job: Performance, mark: tuple[int, list[threading.Lock]], results: SimpleQueue[Any], turns: TurnClock | None, place: Any
) -> None:
    """Run a body and put what became of it where its driver looks; the mark tells it from bodies of other turns."""
    position, tokens = mark
    try:
        if turns is not None:
            turns.begin(place)
        results.put((position, in_turn(job, tokens[position], lambda: outcome(job, lambda: call(job)), turns), tokens))
    except SystemExit:
        # What a body raises is its outcome; this is the word of a clock in whose time nothing happens any more.
        return
    finally:
        if turns is not None:
            turns.leave()
