"""Bodies in the caller's thread and in threads of their own: their time, their turn, and what passes through."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pytest

from fsm_agent.core.events import Raised, Returned
from fsm_agent.core.run import Call
from fsm_agent.core.tools import Outcome, Tool
from fsm_agent.core.values import ResultClass, Verdict
from fsm_agent.host import bodies
from fsm_agent.host.bodies import is_async, run_here, run_in_threads
from fsm_agent.host.perform import Performance
from fsm_agent.scenario.virtual_clock import VirtualClock

NAME: contextvars.ContextVar[str] = contextvars.ContextVar("NAME", default="nobody")
SOON = 0.15
LONG = 20.0


def job(
    fn: Callable[..., Any], *, seconds: float | None = None, turn: Any = None, number: int = 0, **fields: Any
) -> Performance:
    tool = Tool(name="t", fn=fn, **fields)
    return Performance(Call(id=f"c{number}", tool="t", args={}), tool, seconds=seconds, turn=turn)


def run_all(*jobs: Performance) -> list[tuple[int, Any]]:
    """What was told of each, in the order of arrival."""
    told: list[tuple[int, Any]] = []
    run_in_threads(list(jobs), lambda position, event: told.append((position, event)))
    return told


def run_one(one: Performance) -> Any:
    (told,) = run_all(one)
    assert told[0] == 0
    return told[1]


def raising(error: BaseException) -> Callable[[], Any]:
    def body() -> Any:
        raise error

    return body


async def soon(value: Any = "later") -> Any:
    await asyncio.sleep(0)
    return value


async def araising(error: BaseException) -> Any:
    await asyncio.sleep(0)
    raise error


class Awaitable_:
    def __await__(self) -> Any:
        yield from asyncio.sleep(0).__await__()
        return "awaited"


each_way = pytest.mark.parametrize("way", [run_here, run_one], ids=["here", "in a thread"])
Way = Callable[[Performance], Any]


@each_way
@pytest.mark.parametrize(
    ("fn", "value"),
    [
        (lambda: "now", "now"),
        (soon, "later"),
        (lambda: soon("by a plain function"), "by a plain function"),
        (Awaitable_, "awaited"),
        (lambda: None, None),
    ],
)
def test_a_body_comes_back_with_its_value(way: Way, fn: Any, value: Any) -> None:
    assert way(job(fn)) == Returned("c0", value)


@each_way
@pytest.mark.parametrize(
    "error", [ValueError("x"), StopIteration(), asyncio.CancelledError("x"), GeneratorExit("x"), BaseException("x")]
)
def test_what_a_body_raises_is_its_event(way: Way, error: BaseException) -> None:
    assert way(job(raising(error))) == Raised("c0", type(error).__name__, str(error))


@each_way
@pytest.mark.parametrize("error", [ValueError("x"), asyncio.CancelledError("x"), TimeoutError("x")])
def test_what_a_coroutine_raises_is_its_event_too(way: Way, error: BaseException) -> None:
    assert way(job(lambda: araising(error))) == Raised("c0", type(error).__name__, str(error))


class Blind(Exception):
    """An exception that raises where any of its attributes is looked at."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class Opaque:
    """A body that raises where any of its attributes is looked at, and where it is called."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __call__(self) -> Any:
        raise Blind


@each_way
@pytest.mark.parametrize("make", [lambda: raising(Blind()), Opaque], ids=["a function", "an object"])
def test_an_exception_that_cannot_be_looked_at_is_its_bodys_event(way: Way, make: Any) -> None:
    event = way(job(make()))
    assert (event.error, event.ran) == ("Blind", True)


@each_way
@pytest.mark.parametrize("error", [KeyboardInterrupt("x"), SystemExit(3)])
@pytest.mark.parametrize("make", [raising, lambda error: lambda: araising(error)], ids=["plain", "coroutine"])
def test_an_interrupt_passes_through(way: Way, error: BaseException, make: Any) -> None:
    with pytest.raises(type(error)) as passed:
        way(job(make(error)))
    assert passed.value.args == error.args


@each_way
def test_a_body_that_cannot_take_its_arguments_did_not_begin(way: Way) -> None:
    def needs(n: int) -> int:
        return n

    def calls_wrongly() -> Any:
        return needs()  # type: ignore[call-arg]

    def raises() -> Any:
        raise TypeError("mine")

    for fn in (needs, functools.partial(needs, m=1), functools.partial(functools.partial(needs))):
        event = way(job(fn))
        assert (event.error, event.ran) == ("TypeError", False)
    for fn in (calls_wrongly, raises, functools.partial(raises), int.from_bytes):
        event = way(job(fn))
        assert (event.error, event.ran) == ("TypeError", True)


def test_an_error_without_a_traceback_is_the_bodys() -> None:
    assert bodies.began(raising, TypeError())


@each_way
def test_a_classifier_that_is_interrupted_passes_through(way: Way) -> None:
    def classify(outcome: Outcome) -> Verdict:
        if outcome.value == "stop":
            raise SystemExit
        return Verdict(result_class=ResultClass.NO_PROGRESS)

    assert way(job(lambda: "x", classify=classify)).verdict.result_class is ResultClass.NO_PROGRESS
    with pytest.raises(SystemExit):
        way(job(lambda: "stop", classify=classify))


@each_way
def test_context_variables_reach_a_body(way: Way) -> None:
    async def later() -> str:
        return NAME.get()

    token = NAME.set("somebody")
    try:
        assert way(job(NAME.get)) == Returned("c0", "somebody")
        assert way(job(later)) == Returned("c0", "somebody")
    finally:
        NAME.reset(token)


def test_a_body_in_a_thread_changes_no_variable_of_the_caller() -> None:
    run_one(job(lambda: NAME.set("changed") and None))
    assert NAME.get() == "nobody"


@each_way
def test_a_coroutine_runs_inside_a_running_loop_too(way: Way) -> None:
    async def inside() -> Any:
        return way(job(soon))

    assert asyncio.run(inside()) == Returned("c0", "later")


@pytest.mark.parametrize("fn", [lambda: "x", soon], ids=["plain", "coroutine"])
def test_an_exclusive_body_holds_its_turn_to_its_end(fn: Any) -> None:
    turn = threading.Lock()
    held: list[bool] = []

    def body() -> Any:
        held.append(turn.locked())
        return fn()

    async def inside() -> None:
        run_here(job(body, turn=turn))

    for way in (run_here, run_one):
        assert isinstance(way(job(body, turn=turn)), Returned)
    asyncio.run(inside())

    assert held == [True] * 3
    assert not turn.locked()


def test_bodies_really_run_beside_each_other() -> None:
    meet = threading.Barrier(4, timeout=LONG)
    told = run_all(*(job(lambda: meet.wait() * 0, number=n) for n in range(4)))

    assert sorted(told, key=lambda one: one[0]) == [(n, Returned(f"c{n}", 0)) for n in range(4)]


def test_results_are_told_as_they_arrive() -> None:
    first = threading.Event()
    seen: list[int] = []

    def told(position: int, event: Any) -> None:
        seen.append(position)
        first.set()

    run_in_threads([job(lambda: first.wait(LONG)), job(lambda: "x", number=1)], told)
    assert seen == [1, 0]


def test_a_body_that_outlives_its_time_is_given_up(gate: threading.Event) -> None:
    event = run_one(job(gate.wait, seconds=SOON))

    assert event == Raised("c0", "TimeoutError", "the body did not end in 0.15 s", None, True)


def test_a_late_result_is_dropped_while_another_is_awaited(gate: threading.Event) -> None:
    late = threading.Event()

    def slow() -> str:
        gate.wait(LONG)
        late.set()
        return "late"

    def other() -> str:
        late.wait(LONG)
        return "other"

    told: list[tuple[int, Any]] = []

    def hear(position: int, event: Any) -> None:
        told.append((position, event))
        gate.set()

    run_in_threads([job(slow, seconds=SOON), job(other, number=1)], hear)
    assert [(position, type(event)) for position, event in told] == [(0, Raised), (1, Returned)]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError()])
def test_what_a_body_raises_too_late_reaches_nobody(gate: threading.Event, error: BaseException) -> None:
    late = threading.Event()

    def slow() -> Any:
        gate.wait(LONG)
        late.set()
        raise error

    def hear(position: int, event: Any) -> None:
        gate.set()

    run_in_threads([job(slow, seconds=SOON), job(lambda: late.wait(LONG), number=1)], hear)


def test_the_shortest_time_is_over_first(gate: threading.Event) -> None:
    told = run_all(job(gate.wait, seconds=SOON * 2), job(gate.wait, seconds=SOON, number=1))

    assert [position for position, _ in told] == [1, 0]


def test_no_time_at_all_is_over_at_once(gate: threading.Event) -> None:
    assert run_one(job(gate.wait, seconds=0.0)).error == "TimeoutError"


def test_a_body_that_never_got_its_turn_did_not_run_and_never_will(gate: threading.Event) -> None:
    turn = threading.Lock()
    ran: list[int] = []
    zombie = run_one(job(gate.wait, seconds=SOON, turn=turn))
    waiting = run_one(job(lambda: ran.append(1), seconds=SOON, turn=turn))

    assert (zombie.ran, waiting.ran) == (True, False)
    assert waiting.message == "the body could not begin in 0.15 s"
    gate.set()
    assert run_here(job(lambda: ran.append(2), turn=turn)) == Returned("c0", None)
    assert ran == [2]


def test_an_exclusive_body_waits_for_a_given_up_one_that_still_runs(gate: threading.Event) -> None:
    turn = threading.Lock()
    order: list[str] = []

    def slow() -> None:
        gate.wait(LONG)
        order.append("slow ended")

    assert run_one(job(slow, seconds=SOON, turn=turn)).error == "TimeoutError"
    opener = threading.Thread(target=gate.set)
    opener.start()
    run_here(job(lambda: order.append("next began"), turn=turn))
    opener.join()

    assert order == ["slow ended", "next began"]


def test_an_interrupt_of_one_body_passes_through_while_others_run(gate: threading.Event) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_all(job(gate.wait), job(raising(KeyboardInterrupt()), number=1))


def test_threads_are_daemons_and_named_after_their_tool() -> None:
    seen = run_one(job(lambda: (threading.current_thread().daemon, threading.current_thread().name))).value

    assert seen == (True, "tool t")


class Called:
    async def __call__(self) -> None:
        """Nothing."""


class Plain:
    def __call__(self) -> None:
        """Nothing."""


@pytest.mark.parametrize(
    ("fn", "wanted"),
    [
        (soon, True),
        (functools.partial(soon, 1), True),
        (Called(), True),
        (Called().__call__, True),
        (Plain(), False),
        (len, False),
        (lambda: soon(), False),
        (Called, False),
        (int, False),
        (None, False),
        (5, False),
        (functools.partial(len), False),
    ],
)
def test_coroutine_functions_are_known_without_a_call(fn: Any, wanted: bool) -> None:
    assert is_async(fn) is wanted


def test_nothing_is_left_of_a_coroutine_that_could_not_be_called() -> None:
    event = run_here(job(functools.partial(soon, 1, 2)))

    assert (event.error, event.ran) == ("TypeError", False)


# ---- results that others put, and clocks in whose time threads take turns


def test_whoever_has_the_queue_of_results_can_end_the_wait(gate: threading.Event) -> None:
    results: SimpleQueue[Any] = SimpleQueue()
    results.put((-1, bodies.Through(LookupError("stop"))))
    with pytest.raises(LookupError, match="stop"):
        run_in_threads([job(gate.wait)], lambda position, event: None, results=results)


def test_a_late_result_of_another_turn_is_not_taken_for_one_of_this(gate: threading.Event) -> None:
    results: SimpleQueue[Any] = SimpleQueue()
    told: list[Any] = []
    late = job(lambda: gate.wait() and "late", seconds=0.01)
    run_in_threads([late], lambda position, event: told.append(event.error), results=results)
    gate.set()
    while results.empty():
        time.sleep(0.001)
    run_in_threads([job(lambda: "own")], lambda position, event: told.append(event.value), results=results)
    assert told == ["TimeoutError", "own"]


def in_time(clock: VirtualClock, *jobs: Performance) -> list[tuple[int, Any, float]]:
    """What was told of each body, and when, in the clock's time."""
    told: list[tuple[int, Any, float]] = []

    def tell(position: int, event: Any) -> None:
        told.append((position, getattr(event, "value", None) or event.error, clock.now()))

    with clock.acting():
        run_in_threads(list(jobs), tell, clock=clock)
    return told


def sleeper(clock: VirtualClock, seconds: float, value: str = "slept") -> Callable[[], str]:
    def body() -> str:
        clock.wait(None, clock.now() + seconds)
        return value

    return body


def test_bodies_sleep_and_time_out_in_the_time_of_such_a_clock() -> None:
    clock = VirtualClock()
    jobs = [job(sleeper(clock, 3)), job(sleeper(clock, 9), seconds=2, number=1), job(sleeper(clock, 4), seconds=4, number=2)]
    assert in_time(clock, *jobs) == [(1, "TimeoutError", 2.0), (0, "slept", 3.0), (2, "slept", 4.0)]


def test_exclusive_bodies_wait_for_their_turn_in_the_time_of_such_a_clock() -> None:
    clock, turn = VirtualClock(), threading.Lock()
    jobs = [job(sleeper(clock, 3), turn=turn), job(sleeper(clock, 3), turn=turn, number=1), job(sleeper(clock, 1), turn=turn, seconds=2)]
    assert in_time(clock, *jobs) == [(2, "TimeoutError", 2.0), (0, "slept", 3.0), (1, "slept", 6.0)]
    assert not turn.locked()


def test_a_turn_that_is_given_back_is_told_to_those_who_want_it() -> None:
    turn, told = threading.Lock(), []
    turn.acquire()
    bodies.want_turn(turn, lambda: told.append(1))
    bodies.want_turn(turn, lambda: told.append(2))
    bodies.give_turn_back(turn)
    turn.acquire()
    bodies.give_turn_back(turn)
    assert told == [1, 2]
