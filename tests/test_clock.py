"""The clocks: time comes from one place, and a scripted one moves only when it is told to."""

from __future__ import annotations

import asyncio
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.core.errors import BuildError
from fsm_agent.host.clock import Clock, ScriptedClock, SystemClock, TurnClock, finite_seconds, turns_of
from fsm_agent.scenario.virtual_clock import VirtualClock

NO_SECONDS: list[Any] = [None, "1", b"1", True, [], {}, object(), 1j, math.nan, math.inf, -math.inf, 10**5000]
CLOCKS: list[Callable[[], Clock]] = [SystemClock, ScriptedClock]


@pytest.mark.parametrize("make", CLOCKS)
def test_every_clock_fits_the_port(make: Callable[[], Clock]) -> None:
    assert isinstance(make(), Clock)


@pytest.mark.parametrize("value", NO_SECONDS, ids=lambda v: type(v).__name__)
def test_what_is_no_finite_number_of_seconds_is_refused_by_name(value: Any) -> None:
    with pytest.raises(BuildError, match=r"^here: expected a (finite )?number of seconds"):
        finite_seconds(value, "here")


@pytest.mark.parametrize("value", [0, 0.0, -1, 1.5, 10**300], ids=lambda v: f"{v:g}")
def test_a_finite_number_of_seconds_comes_back_as_a_float(value: float) -> None:
    seconds = finite_seconds(value, "here")
    assert type(seconds) is float
    assert seconds == float(value)


@pytest.mark.parametrize("value", NO_SECONDS, ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("make", CLOCKS)
def test_no_clock_sleeps_for_what_is_no_time(make: Callable[[], Clock], value: Any) -> None:
    with pytest.raises(BuildError):
        make().sleep(value)
    with pytest.raises(BuildError):
        asyncio.run(make().asleep(value))


@pytest.mark.parametrize("make", CLOCKS)
def test_a_wait_longer_than_the_platform_can_make_is_refused(make: Callable[[], Clock]) -> None:
    with pytest.raises(BuildError, match="at most"):
        make().sleep(1e300)


@pytest.mark.parametrize("seconds", [0, 0.0, -0.0, -1, -1e308])
@pytest.mark.parametrize("make", CLOCKS)
def test_a_wait_that_is_over_already_returns(make: Callable[[], Clock], seconds: float) -> None:
    clock = make()
    clock.sleep(seconds)
    asyncio.run(clock.asleep(seconds))
    assert not isinstance(clock, ScriptedClock) or (clock.now(), clock.slept_s) == (0.0, 0.0)


def test_the_system_clock_tells_the_machines_times() -> None:
    clock = SystemClock()
    before, wall_before = time.monotonic(), time.time()
    now, wall = clock.now(), clock.wall()
    assert before <= now <= time.monotonic()
    assert wall_before <= wall <= time.time()


def test_the_system_clock_lets_real_time_pass() -> None:
    """A millisecond each way: the only test here that real time passes in."""
    clock = SystemClock()
    start = clock.now()
    clock.sleep(0.001)
    middle = clock.now()
    asyncio.run(clock.asleep(0.001))
    assert middle - start >= 0.001
    assert clock.now() - middle >= 0.001


def test_a_scripted_clock_stands_still_by_itself() -> None:
    clock = ScriptedClock()
    assert [clock.now(), clock.wall(), clock.now(), clock.wall(), clock.slept_s] == [0.0] * 5


@pytest.mark.parametrize("move", ["sleep", "asleep", "advance"])
@pytest.mark.parametrize("wall_start", [0.0, 1_790_000_000.25])
@pytest.mark.parametrize("start", [0.0, -5.0, 12.5])
def test_both_times_of_a_scripted_clock_move_together(start: float, wall_start: float, move: str) -> None:
    clock = ScriptedClock(start, wall_start)
    if move == "asleep":
        asyncio.run(clock.asleep(2.5))
    else:
        getattr(clock, move)(2.5)
    assert (clock.now(), clock.wall()) == (start + 2.5, wall_start + 2.5)
    assert clock.slept_s == (0.0 if move == "advance" else 2.5)


@pytest.mark.parametrize("seconds", [-1e-9, -1, *NO_SECONDS], ids=lambda v: type(v).__name__)
def test_a_scripted_clock_advances_by_nothing_but_time(seconds: Any) -> None:
    clock = ScriptedClock(7.0)
    with pytest.raises(BuildError):
        clock.advance(seconds)
    assert clock.now() == 7.0


@pytest.mark.parametrize("value", [*NO_SECONDS, 1e300], ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("which", ["start", "wall_start"])
def test_a_scripted_clock_starts_at_a_time(which: str, value: Any) -> None:
    with pytest.raises(BuildError, match=which):
        ScriptedClock(**{which: value})


@given(st.lists(st.integers(0, 10_000), max_size=50))
def test_steps_written_as_decimals_add_up_exactly(tenths: list[int]) -> None:
    clock = ScriptedClock()
    for tenth in tenths:
        clock.sleep(tenth / 10)
    assert clock.now() == clock.slept_s == sum(tenths) / 10


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Let threads change places between almost any two steps, so that a missing lock shows."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("eager_threads")
def test_sleeps_of_many_threads_are_all_counted() -> None:
    clock = ScriptedClock()
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        for _ in range(500):
            clock.sleep(0.001)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.now() == clock.slept_s == 4.0


def test_a_scripted_sleep_lets_other_tasks_take_their_turn() -> None:
    clock = ScriptedClock()
    seen: list[str] = []

    async def worker(name: str) -> None:
        for _ in range(2):
            seen.append(name)
            await clock.asleep(1)

    async def both() -> None:
        await asyncio.gather(worker("a"), worker("b"))

    asyncio.run(both())
    assert seen == ["a", "b", "a", "b"]
    assert clock.slept_s == 4.0


@pytest.mark.parametrize("clock", [None, SystemClock(), ScriptedClock()], ids=lambda clock: type(clock).__name__)
def test_in_most_clocks_threads_take_no_turns(clock: Clock | None) -> None:
    assert turns_of(clock) is None
    assert not isinstance(clock, TurnClock)


def test_a_clock_in_whose_time_threads_take_turns_is_known() -> None:
    clock = VirtualClock()
    assert turns_of(clock) is clock
