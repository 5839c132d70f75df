"""Virtual time: it passes only when everybody waits, in a fixed order, for threads and for tasks alike."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.core.errors import BuildError
from fsm_agent.host.clock import Clock, TurnClock, turns_of
from fsm_agent.scenario.virtual_clock import StandsStill, VirtualClock
from fsm_agent.scenario.virtual_loop import VirtualLoop, run_virtually


def beside(clock: VirtualClock, *plays: Callable[[], None], body: bool = True) -> None:
    """Run functions as threads that share the clock, and wait for all of them in its time."""
    done: list[int] = []

    def thread(place: Any, number: int) -> None:
        clock.begin(place)
        try:
            plays[number]()
        finally:
            done.append(number)
            clock.leave()

    for number in range(len(plays)):
        threading.Thread(target=thread, args=(clock.enter(body=body), number), daemon=True).start()
    clock.wait(lambda: len(done) == len(plays))


def test_it_keeps_both_ports() -> None:
    clock = VirtualClock()
    assert isinstance(clock, Clock)
    assert isinstance(clock, TurnClock)
    assert turns_of(clock) is clock
    loop = VirtualLoop()
    assert isinstance(loop, Clock)
    assert turns_of(loop) is None  # type: ignore[arg-type]
    loop.close()


def test_it_starts_at_nought_and_a_sleep_takes_no_real_time() -> None:
    clock, began = VirtualClock(), time.monotonic()
    assert (clock.now(), clock.wall()) == (0.0, 0.0)
    clock.sleep(86_400)
    assert (clock.now(), clock.wall(), clock.slept_s) == (86_400.0, 86_400.0, 86_400.0)
    clock.sleep(-1)
    assert clock.now() == 86_400.0
    assert time.monotonic() - began < 1


@pytest.mark.parametrize("seconds", [None, "1", True, float("nan"), float("inf")])
def test_what_is_no_time_is_refused(seconds: Any) -> None:
    with pytest.raises(BuildError):
        VirtualClock().sleep(seconds)


def test_sleeps_of_threads_overlap_and_end_in_order() -> None:
    clock, ended = VirtualClock(), []

    def sleeper(seconds: float) -> Callable[[], None]:
        def body() -> None:
            clock.wait(None, clock.now() + seconds)
            ended.append((clock.now(), seconds))

        return body

    with clock.acting():
        beside(clock, sleeper(3), sleeper(1), sleeper(2), sleeper(1))
        assert clock.now() == 3.0
    assert ended == [(1.0, 1), (1.0, 1), (2.0, 2), (3.0, 3)]


@given(st.lists(st.lists(st.integers(0, 5), max_size=4), max_size=5))
def test_what_threads_do_is_the_same_each_time(plans: list[list[int]]) -> None:
    def told() -> list[tuple[float, int, int]]:
        clock: VirtualClock = VirtualClock()
        lines: list[tuple[float, int, int]] = []

        def play(number: int) -> Callable[[], None]:
            def body() -> None:
                for seconds in plans[number]:
                    clock.wait(None, clock.now() + seconds)
                    lines.append((clock.now(), number, seconds))

            return body

        with clock.acting():
            beside(clock, *map(play, range(len(plans))))
            assert clock.now() == max(map(sum, plans), default=0)
        return lines

    first = told()
    assert first == told()
    assert [line[0] for line in first] == sorted(line[0] for line in first)


def test_an_item_is_taken_when_it_comes_and_not_waited_for_beyond_the_end() -> None:
    clock: VirtualClock = VirtualClock()
    queue: SimpleQueue[str] = SimpleQueue()

    def giver() -> None:
        clock.wait(None, 2.0)
        queue.put("late")

    with clock.acting():
        threading.Thread(target=lambda place: (clock.begin(place), giver(), clock.leave()), args=(clock.enter(),), daemon=True).start()
        with pytest.raises(Empty):
            clock.take(queue, 1.0)
        assert clock.now() == 1.0
        assert clock.take(queue, None) == "late"
        assert clock.now() == 2.0


def test_at_one_instant_bodies_go_before_drivers() -> None:
    clock: VirtualClock = VirtualClock()
    queue: SimpleQueue[str] = SimpleQueue()

    def giver() -> None:
        clock.wait(None, 1.0)
        queue.put("in time")

    with clock.acting():
        threading.Thread(target=lambda place: (clock.begin(place), giver(), clock.leave()), args=(clock.enter(),), daemon=True).start()
        assert clock.take(queue, 1.0) == "in time"


def test_where_nobody_can_ever_go_on_the_driver_hears_of_it() -> None:
    clock = VirtualClock()
    with clock.acting(), pytest.raises(StandsStill, match="waits for another one"):
        clock.wait(lambda: False)
    clock.sleep(1)
    assert clock.now() == 1.0


def test_a_thread_that_is_ended_gets_a_system_exit_before_the_caller_goes_on() -> None:
    clock, told = VirtualClock(), []

    def body(place: Any) -> None:
        clock.begin(place)
        try:
            clock.wait(lambda: False)
        except SystemExit:
            told.append("ended")
        clock.leave()

    with clock.acting():
        place = clock.enter()
        threading.Thread(target=body, args=(place,), daemon=True).start()
        clock.sleep(1)
        clock.end(place)
        assert told == ["ended"]
        assert clock.now() == 1.0


def test_closing_ends_whoever_waits() -> None:
    clock, ended = VirtualClock(), threading.Event()

    def body(place: Any) -> None:
        try:
            clock.begin(place)
            clock.wait(None, 1e6)
        except SystemExit:
            ended.set()

    with clock.acting():
        threading.Thread(target=body, args=(clock.enter(),), daemon=True).start()
        clock.sleep(1)
        clock.close()
    assert ended.wait(5)
    assert clock.now() == 1.0


def test_who_is_left_alone_goes_on_in_time() -> None:
    clock, ended = VirtualClock(), threading.Event()

    def body(place: Any) -> None:
        clock.begin(place)
        clock.wait(None, 100.0)
        clock.leave()
        ended.set()

    with clock.acting():
        threading.Thread(target=body, args=(clock.enter(),), daemon=True).start()
        clock.sleep(1)
    assert ended.wait(5)
    assert clock.now() == 100.0


def test_a_task_may_await_it_as_any_clock() -> None:
    clock = VirtualClock()
    asyncio.run(clock.asleep(5))
    assert clock.now() == 5.0


# ---- the loop


def test_tasks_sleep_beside_each_other_in_no_real_time() -> None:
    async def main() -> float:
        began = loop.time()
        await asyncio.gather(loop.asleep(100), asyncio.sleep(50), asyncio.sleep(3600))
        return loop.time() - began

    loop, began = VirtualLoop(7.0), time.monotonic()
    assert run_virtually(main(), loop) == 3600.0
    assert loop.slept_s == 100.0
    assert time.monotonic() - began < 1


def test_timeouts_of_tasks_happen_in_virtual_time() -> None:
    async def main() -> tuple[float, int]:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(10), 2)
        task = asyncio.ensure_future(asyncio.sleep(10))
        done, _ = await asyncio.wait([task], timeout=3)
        return loop.time(), len(done)

    loop = VirtualLoop()
    assert run_virtually(main(), loop) == (5.0, 0)
    assert loop.is_closed()


def test_the_loop_is_a_clock_for_code_that_cannot_await() -> None:
    loop = VirtualLoop()
    loop.sleep(2)
    loop.sleep(-1)
    assert (loop.now(), loop.wall()) == (2.0, 2.0)
    with pytest.raises(BuildError):
        loop.sleep(float("nan"))
    loop.close()


def test_a_result_of_a_real_thread_is_waited_for_in_real_time() -> None:
    async def main() -> tuple[str, float]:
        return await asyncio.to_thread(lambda: "came"), loop.time()

    loop = VirtualLoop()
    assert run_virtually(main(), loop) == ("came", 0.0)


def test_tasks_that_wait_for_each_other_for_ever_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsm_agent.scenario.virtual_loop._REAL_S", 0.01)

    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(StandsStill):
        run_virtually(main(), VirtualLoop())


def test_tasks_left_behind_are_cancelled_without_a_word() -> None:
    seen: list[str] = []

    async def left() -> None:
        try:
            await asyncio.sleep(1e6)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise RuntimeError("nobody hears this") from None

    async def main() -> str:
        task = asyncio.ensure_future(left())
        await asyncio.sleep(1)
        assert not task.done()
        return "done"

    assert run_virtually(main(), VirtualLoop()) == "done"
    assert seen == ["cancelled"]


@pytest.mark.parametrize("start", [0.284918163, 1 / 3, 1e6 / 7, 86_400.1])
@pytest.mark.parametrize("seconds", [1.5, 0.1, 1e-10, 1e-9, 1 / 3])
def test_an_end_that_is_no_whole_number_of_nanoseconds_is_reached(start: float, seconds: float) -> None:
    async def main() -> float:
        end = loop.time() + seconds
        forever = loop.create_future()
        for _ in range(20):
            if loop.time() >= end:
                break
            await asyncio.wait([forever], timeout=end - loop.time())
        assert loop.time() >= end
        return loop.time()

    loop = VirtualLoop(start)
    assert run_virtually(main(), loop) == pytest.approx(start + seconds, abs=3e-9)
