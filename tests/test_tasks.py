"""Bodies inside a running event loop: coroutines in that loop, the rest in threads, and the host's cancellation."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fsm_agent.core.events import Raised, Returned
from fsm_agent.core.run import Call
from fsm_agent.core.tools import Tool
from fsm_agent.host import bodies, tasks
from fsm_agent.host.perform import Performance
from fsm_agent.host.tasks import run_in_loop
from fsm_agent.scenario.virtual_loop import VirtualLoop, run_virtually

NAME: contextvars.ContextVar[str] = contextvars.ContextVar("NAME", default="nobody")
SOON = 0.15
LONG = 20.0


def job(
    fn: Callable[..., Any], *, seconds: float | None = None, turn: Any = None, number: int = 0, **fields: Any
) -> Performance:
    tool = Tool(name="t", fn=fn, **fields)
    return Performance(Call(id=f"c{number}", tool="t", args={}), tool, seconds=seconds, turn=turn)


async def all_of(*jobs: Performance) -> list[tuple[int, Any]]:
    """What was told of each, in the order of arrival."""
    told: list[tuple[int, Any]] = []
    await run_in_loop(list(jobs), lambda position, event: told.append((position, event)))
    return told


def run_one(one: Performance) -> Any:
    ((position, event),) = asyncio.run(all_of(one))
    assert position == 0
    return event


async def soon(value: Any = "later") -> Any:
    await asyncio.sleep(0)
    return value


class Called:
    async def __call__(self) -> Any:
        return await soon("called")


def araising(error: BaseException, *, awaits: bool = True) -> Callable[[], Coroutine[Any, Any, Any]]:
    async def body() -> Any:
        if awaits:
            await asyncio.sleep(0)
        raise error

    return body


def raising(error: BaseException) -> Callable[[], Any]:
    def body() -> Any:
        raise error

    return body


# A body alone without a time limit is awaited as it is; any other way it gets a task of its own.
ways = pytest.mark.parametrize("seconds", [None, LONG], ids=["alone", "in its time"])
turns = pytest.mark.parametrize("turn", [None, threading.Lock], ids=["shared", "exclusive"])


@ways
@turns
@pytest.mark.parametrize(
    ("fn", "value"),
    [
        (soon, "later"),
        (functools.partial(soon, 1), 1),
        (Called(), "called"),
        (lambda: soon("plain"), "plain"),
        (lambda: "now", "now"),
        (lambda: None, None),
    ],
)
def test_a_body_comes_back_with_its_value(fn: Any, value: Any, seconds: float | None, turn: Any) -> None:
    lock = turn and turn()

    assert run_one(job(fn, seconds=seconds, turn=lock)) == Returned("c0", value)
    assert lock is None or not lock.locked()


@ways
@turns
@pytest.mark.parametrize("error", [ValueError("x"), asyncio.CancelledError("x"), TimeoutError("x"), BaseException("x")])
@pytest.mark.parametrize(
    "make", [araising, raising, lambda error: lambda: araising(error)()], ids=["coroutine", "plain", "left"]
)
def test_what_a_body_raises_is_its_event(error: BaseException, make: Any, seconds: float | None, turn: Any) -> None:
    lock = turn and turn()

    assert run_one(job(make(error), seconds=seconds, turn=lock)) == Raised("c0", type(error).__name__, str(error))
    assert lock is None or not lock.locked()


@ways
@pytest.mark.parametrize("error", [KeyboardInterrupt("x"), SystemExit(3)])
@pytest.mark.parametrize(
    "make", [araising, raising, lambda error: lambda: araising(error)()], ids=["coroutine", "plain", "left"]
)
def test_an_interrupt_passes_through_to_whoever_awaits(error: BaseException, make: Any, seconds: float | None) -> None:
    async def caught() -> BaseException | None:
        try:
            await all_of(job(make(error), seconds=seconds))
        except BaseException as passed:
            return passed
        return None

    assert asyncio.run(caught()) is error


@ways
@pytest.mark.parametrize("fn", [lambda n: n, functools.partial(soon, 1, 2), functools.partial(soon, nothing=1)])
def test_a_body_that_cannot_take_its_arguments_did_not_begin(fn: Any, seconds: float | None) -> None:
    event = run_one(job(fn, seconds=seconds))

    assert (event.error, event.ran) == ("TypeError", False)


def test_coroutines_run_in_the_hosts_loop_also_those_that_a_plain_function_returns() -> None:
    async def loop() -> Any:
        return asyncio.get_running_loop()

    async def same() -> bool:
        turn = threading.Lock()
        told = await all_of(job(loop), job(lambda: loop(), number=1), job(loop, number=2, turn=turn, seconds=LONG))
        return all(event.value is asyncio.get_running_loop() for _, event in told)

    assert asyncio.run(same())


@pytest.mark.parametrize("make", [lambda fn: fn, lambda fn: lambda: fn()], ids=["coroutine", "left"])
def test_an_exclusive_body_holds_its_turn_until_what_it_awaits_has_ended(make: Any) -> None:
    turn = threading.Lock()

    async def body() -> bool:
        await asyncio.sleep(0)
        return turn.locked()

    assert run_one(job(make(body), turn=turn)) == Returned("c0", True)
    assert not turn.locked()


def test_a_plain_body_does_not_hold_up_the_loop() -> None:
    let_go = threading.Event()

    async def other() -> None:
        let_go.set()

    told = asyncio.run(all_of(job(lambda: let_go.wait(LONG)), job(other, number=1)))
    assert dict(told)[0].value is True


def test_bodies_really_run_beside_each_other() -> None:
    meet = threading.Barrier(3, timeout=LONG)
    told = asyncio.run(all_of(*(job(lambda: meet.wait() * 0, number=n) for n in range(3))))
    assert [event.value for _, event in told] == [0, 0, 0]

    async def both() -> list[tuple[int, Any]]:
        meeting = asyncio.Barrier(3)

        async def body() -> int:
            return await meeting.wait() * 0

        return await all_of(*(job(body, number=n) for n in range(3)))

    assert sorted(position for position, _ in asyncio.run(both())) == [0, 1, 2]


def test_results_are_told_as_they_arrive() -> None:
    async def run() -> list[int]:
        first = asyncio.Event()
        seen: list[int] = []

        def told(position: int, event: Any) -> None:
            seen.append(position)
            first.set()

        await run_in_loop([job(first.wait), job(soon, number=1)], told)
        return seen

    assert asyncio.run(run()) == [1, 0]


@pytest.mark.parametrize("make", [lambda: soon(NAME.get()), NAME.get], ids=["coroutine", "plain"])
@ways
def test_context_variables_reach_a_body(make: Any, seconds: float | None) -> None:
    async def run() -> Any:
        NAME.set("somebody")
        return await all_of(job(make, seconds=seconds))

    assert asyncio.run(run())[0][1].value == "somebody"


# -- time ------------------------------------------------------------------------------------------------------------


async def endless() -> None:
    await asyncio.Event().wait()


@turns
def test_a_body_that_outlives_its_time_is_given_up_and_cancelled(turn: Any) -> None:
    cleaned: list[str] = []

    async def body() -> None:
        try:
            await endless()
        finally:
            cleaned.append("up")

    event = run_one(job(body, seconds=SOON, turn=turn and turn()))
    assert event == Raised("c0", "TimeoutError", "the body did not end in 0.15 s", None, True)
    assert cleaned == ["up"]


def test_a_body_that_refuses_to_be_cancelled_is_given_up_all_the_same_and_keeps_its_turn() -> None:
    turn = threading.Lock()
    log: list[str] = []

    async def stubborn() -> str:
        nonlocal release
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                log.append("refused")
        log.append("ended")
        return "late"

    async def next_one() -> None:
        log.append("began")

    async def run() -> tuple[Any, Any]:
        nonlocal release
        release = asyncio.Event()
        ((_, late),) = await all_of(job(stubborn, seconds=SOON, turn=turn))
        gc.collect()
        following = asyncio.ensure_future(all_of(job(next_one, turn=turn)))
        for _ in range(5):
            await asyncio.sleep(0)
        log.append("held" if turn.locked() else "free")
        release.set()
        return late, await following

    release: Any = None
    late, following = asyncio.run(run())
    assert (late.error, late.ran) == ("TimeoutError", True)
    assert following == [(0, Returned("c0", None))]
    assert log == ["refused", "held", "ended", "began"]
    assert not tasks._LEFT_BEHIND


def test_a_body_that_was_given_up_and_hangs_on_nothing_else_is_kept_alive() -> None:
    log: list[str] = []

    async def stubborn() -> None:
        try:
            await endless()
        except asyncio.CancelledError:
            log.append("refused")
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            log.append("ended")

    async def run() -> list[str]:
        await all_of(job(stubborn, seconds=SOON))
        await asyncio.sleep(0)
        gc.collect()
        return list(log)

    assert asyncio.run(run()) == ["refused"]
    assert (log, len(tasks._LEFT_BEHIND)) == (["refused", "ended"], 0)


def test_a_coroutine_that_ends_late_on_being_cancelled_is_late() -> None:
    async def body() -> str:
        try:
            await endless()
        except asyncio.CancelledError:
            return "just in time"
        return ""

    assert run_one(job(body, seconds=SOON)).error == "TimeoutError"


def test_a_thread_that_outlives_its_time_is_given_up_and_its_late_result_dropped(gate: threading.Event) -> None:
    ended = threading.Event()

    def slow() -> Any:
        gate.wait(LONG)
        ended.set()
        return soon("never awaited")

    async def run() -> Any:
        told = await all_of(job(slow, seconds=SOON))
        gate.set()
        await asyncio.to_thread(ended.wait, LONG)
        await asyncio.to_thread(_joined, "tool t")
        await asyncio.sleep(0)
        return told

    ((_, event),) = asyncio.run(run())
    assert (event.error, event.ran) == ("TimeoutError", True)
    gc.collect()


def _joined(name: str) -> None:
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(LONG)


def test_a_thread_that_outlives_its_loop_is_no_trouble(gate: threading.Event) -> None:
    def slow() -> Any:
        gate.wait(LONG)
        return soon("never awaited")

    assert run_one(job(slow, seconds=SOON)).error == "TimeoutError"
    gate.set()
    _joined("tool t")
    gc.collect()


@pytest.mark.parametrize("fn", [soon, lambda: "x"], ids=["coroutine", "plain"])
def test_a_body_that_never_got_its_turn_did_not_run_and_never_will(fn: Any) -> None:
    turn = threading.Lock()
    ran: list[int] = []

    async def acounted() -> None:
        ran.append(1)

    async def run() -> Any:
        with turn:
            told = await all_of(job(acounted if fn is soon else lambda: ran.append(1), seconds=SOON, turn=turn))
        await asyncio.to_thread(_joined, "tool t")
        return told

    ((_, event),) = asyncio.run(run())
    assert (event.error, event.ran, ran) == ("TimeoutError", False, [])
    assert not turn.locked()


def test_bodies_with_and_without_a_time_share_a_turn_of_calls(gate: threading.Event) -> None:
    told = asyncio.run(
        all_of(
            job(soon), job(endless, seconds=SOON, number=1), job(lambda: gate.wait(LONG) and 1, seconds=SOON, number=2)
        )
    )

    assert told[0] == (0, Returned("c0", "later"))
    assert {position: event.error for position, event in told[1:]} == {1: "TimeoutError", 2: "TimeoutError"}


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_no_time_at_all_is_over_at_once(seconds: float) -> None:
    assert run_one(job(endless, seconds=seconds)).error == "TimeoutError"


# -- cancelling ------------------------------------------------------------------------------------------------------


async def cancelled(*jobs: Performance, after: Callable[[], Any]) -> bool:
    """Start the jobs, wait for `after`, cancel; true when the cancellation came back."""
    running = asyncio.ensure_future(all_of(*jobs))
    await after()
    running.cancel()
    try:
        await running
    except asyncio.CancelledError:
        return True
    return False


@ways
@turns
def test_the_hosts_cancellation_reaches_the_body_and_comes_back(seconds: float | None, turn: Any) -> None:
    async def run() -> tuple[bool, list[str]]:
        began = asyncio.Event()
        log: list[str] = []

        async def body() -> None:
            began.set()
            try:
                await endless()
            finally:
                await asyncio.sleep(0)
                log.append("cleaned up")

        return await cancelled(job(body, seconds=seconds, turn=turn and turn()), after=began.wait), list(log)

    assert asyncio.run(run()) == (True, ["cleaned up"])


def test_cancelling_reaches_every_body_that_has_not_ended(gate: threading.Event) -> None:
    async def run() -> tuple[bool, list[int]]:
        began = asyncio.Semaphore(0)
        log: list[int] = []

        async def body(number: int) -> None:
            began.release()
            try:
                await endless()
            finally:
                log.append(number)

        async def both() -> None:
            await began.acquire()
            await began.acquire()

        jobs = [job(functools.partial(body, n), number=n) for n in range(2)]
        return await cancelled(*jobs, job(soon, number=2), job(gate.wait, number=3), after=both), sorted(log)

    assert asyncio.run(run()) == (True, [0, 1])


def test_cancelling_waits_no_longer_for_a_body_that_refuses_than_its_time() -> None:
    async def run() -> bool:
        began, release = asyncio.Event(), asyncio.Event()

        async def stubborn() -> None:
            while not release.is_set():
                began.set()
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue

        came_back = await cancelled(job(stubborn, seconds=SOON * 2), after=began.wait)
        release.set()
        return came_back

    assert asyncio.run(run())


def test_cancelling_while_a_turn_is_awaited_takes_nothing() -> None:
    turn = threading.Lock()

    async def run() -> bool:
        with turn:
            return await cancelled(job(soon, turn=turn), after=lambda: asyncio.sleep(0))

    assert asyncio.run(run())
    assert not turn.locked()


def test_a_body_whose_own_task_somebody_cancels_has_failed() -> None:
    async def run() -> Any:
        before = asyncio.all_tasks()
        running = asyncio.ensure_future(all_of(job(endless), job(endless, number=1)))
        await asyncio.sleep(0)
        for task in asyncio.all_tasks() - before - {running}:
            task.cancel()
        return await running

    assert {event.error for _, event in asyncio.run(run())} == {"CancelledError"}


@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize("error", [LookupError, asyncio.CancelledError])
def test_a_listener_that_raises_leaves_no_body_running(error: type[BaseException], beside: bool) -> None:
    log: list[str] = []

    async def body() -> None:
        try:
            await endless()
        finally:
            log.append("cancelled")

    async def run() -> None:
        def told(position: int, event: Any) -> None:
            raise error

        with pytest.raises(error):
            await run_in_loop([job(soon, seconds=LONG), *[job(body, number=1)] * beside], told)
        await asyncio.sleep(0)

    asyncio.run(run())
    assert log == ["cancelled"] * beside


def test_a_coroutine_that_is_closed_ends_quietly() -> None:
    async def run() -> None:
        alone = run_in_loop([job(endless)], lambda position, event: None)
        alone.send(None)
        alone.close()
        several = run_in_loop([job(endless), job(endless, number=1)], lambda position, event: None)
        several.send(None)
        several.close()
        await asyncio.sleep(0)

    asyncio.run(run())


# ---- virtual time


def virtually(*jobs: Performance) -> list[tuple[int, Any, float]]:
    """What was told of each body, and when, in a virtual event loop."""
    loop, told = VirtualLoop(), []

    def tell(position: int, event: Any) -> None:
        told.append((position, getattr(event, "value", None) or event.error, loop.time()))

    run_virtually(run_in_loop(list(jobs), tell), loop)
    return told


def sleeper(seconds: float) -> Callable[[], Any]:
    async def body() -> str:
        await asyncio.sleep(seconds)
        return "slept"

    return body


def test_bodies_sleep_and_time_out_in_virtual_time() -> None:
    jobs = [job(sleeper(3)), job(sleeper(9), seconds=2, number=1), job(sleeper(4), seconds=4, number=2)]
    assert virtually(*jobs) == [(1, "TimeoutError", 2.0), (0, "slept", 3.0), (2, "slept", 4.0)]


def test_an_exclusive_turn_is_taken_the_moment_it_is_free() -> None:
    turn = threading.Lock()
    jobs = [job(sleeper(3), turn=turn), job(sleeper(3), turn=turn, number=1), job(sleeper(1), turn=turn, seconds=2, number=2)]
    assert virtually(*jobs) == [(2, "TimeoutError", 2.0), (0, "slept", 3.0), (1, "slept", 6.0)]
    assert not turn.locked()


def test_a_turn_that_a_thread_gives_back_wakes_a_task() -> None:
    turn = threading.Lock()
    turn.acquire()
    threading.Timer(0.01, bodies.give_turn_back, [turn]).start()
    told: list[Any] = []
    asyncio.run(run_in_loop([job(soon, turn=turn)], lambda position, event: told.append(event)))
    assert type(told[0]) is Returned


def test_a_turn_wanted_in_a_loop_that_is_closed_goes_to_others() -> None:
    turn = threading.Lock()
    turn.acquire()

    async def gives_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run_in_loop([job(soon, turn=turn, seconds=LONG)], lambda position, event: None), 0.01)

    asyncio.run(gives_up())
    bodies.give_turn_back(turn)
    assert not turn.locked()
