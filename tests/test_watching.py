"""Feeds, hand-offs, buffers and observers, each by itself: what they keep, drop and say, and what they leave behind."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent import Limits, Run
from fsm_agent.core.errors import BuildError
from fsm_agent.core.stream_events import DeltasDiscarded, Gap, StreamEvent, TextDelta
from fsm_agent.core.trace import TraceEvent
from fsm_agent.host.clock import ScriptedClock
from fsm_agent.host.interrupt import Interrupt
from fsm_agent.host.watching import Buffer, Handoff, Left, Observer, Watch

LONG = 20.0


def run_with(*kinds: str) -> Run:
    run = Run(id="r", request="go", state="s", limits=Limits())
    run.flat_trace += [entry for n, kind in enumerate(kinds) for entry in (kind, 0.5 * n, "x", None)]
    return run


def piece(n: int) -> TextDelta:
    return TextDelta("r", n, f"{n}")


def refuses(event: StreamEvent) -> None:
    raise Left


# -- the feed --------------------------------------------------------------------------------------------------------


def test_each_line_is_handed_on_once_in_order_with_its_number_and_the_time_of_the_world() -> None:
    heard: list[Any] = []
    clock = ScriptedClock(wall_start=100.0)
    run = run_with("a", "b")
    feed = Watch(run, clock, [heard.append])
    feed.happened(run)
    feed.happened(run)
    clock.advance(5.0)
    run.flat_trace.extend(("c", 1.5, "y", {"k": 1}))
    feed.happened(run)

    assert heard == [
        TraceEvent("r", 0, 0.0, "a", "x", None, 100.0),
        TraceEvent("r", 1, 0.5, "b", "x", None, 100.0),
        TraceEvent("r", 2, 1.5, "c", "y", {"k": 1}, 105.0),
    ]


def test_it_begins_with_what_nobody_has_heard_yet() -> None:
    heard: list[Any] = []
    run = run_with("a", "b", "c")
    run.heard = 2
    Watch(run, ScriptedClock(), [heard.append]).happened(run)

    assert [(event.number, event.kind) for event in heard] == [(2, "c")]


def test_text_stands_between_the_lines_and_is_void_only_where_there_was_some() -> None:
    heard: list[Any] = []
    run = run_with("a")
    feed = Watch(run, ScriptedClock(), [heard.append])
    feed.discarded(run)
    feed.delta(run, "he")
    feed.delta(run, "llo")
    feed.discarded(run)
    feed.discarded(run)
    feed.delta(run, "hi")
    run.flat_trace.extend(("b", 0.0, "x", None))
    feed.happened(run)
    feed.discarded(run)

    assert [event if not isinstance(event, TraceEvent) else event.kind for event in heard] == [
        "a", TextDelta("r", 0, "he"), TextDelta("r", 0, "llo"), DeltasDiscarded("r", 0), TextDelta("r", 0, "hi"), "b",
    ]


def test_observers_hear_to_the_end_what_a_reader_who_has_left_does_not() -> None:
    heard: list[Any] = []
    run = run_with("a", "b", "c")
    feed = Watch(run, ScriptedClock(), [heard.append], refuses)
    with pytest.raises(Left):
        feed.happened(run)
    feed.happened(run)

    assert [event.kind for event in heard] == ["a", "b", "c"]


# -- from one thread to another --------------------------------------------------------------------------------------


def hand() -> Handoff:
    return Handoff(lambda: None)


def streams() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "stream"]


@pytest.fixture(autouse=True)
def _nothing_stays_behind() -> Iterator[None]:
    yield
    gc.collect()
    until = time.monotonic() + 5.0
    while streams() and time.monotonic() < until:
        time.sleep(0.001)
    assert streams() == []


def test_the_drive_goes_on_only_when_it_is_asked_to() -> None:
    made: list[int] = []
    one = hand()

    def drive() -> None:
        for n in range(4):
            made.append(n)
            one.give(piece(n))

    events = one.read(drive)
    assert made == []
    for n in range(4):
        assert next(events) == piece(n)
        time.sleep(0.002)
        # It may stand at the door with the next, and no further.
        assert len(made) <= n + 2
    assert list(events) == []


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_what_ends_the_drive_reaches_the_reader_after_its_events(error: BaseException) -> None:
    one = hand()

    def drive() -> None:
        one.give(piece(0))
        raise error

    events = one.read(drive)
    assert next(events) == piece(0)
    with pytest.raises(type(error)) as raised:
        next(events)
    assert raised.value is error


def test_a_drive_without_events_has_none() -> None:
    assert list(hand().read(lambda: None)) == []


def test_a_drive_that_does_not_hear_the_first_word_hears_every_later_one() -> None:
    heard: list[str] = []
    one = hand()

    def drive() -> None:
        one.give(piece(0))
        for n in range(3):
            try:
                one.give(piece(n))
            except Left:
                heard.append("left")

    events: Any = one.read(drive)
    next(events)
    events.close()

    assert heard == ["left"] * 3


def test_a_drive_that_waits_elsewhere_is_interrupted_when_its_reader_leaves() -> None:
    ear = Interrupt()
    one = Handoff(lambda: ear)

    def drive() -> None:
        one.give(piece(0))
        ear.sleep(LONG)

    events: Any = one.read(drive)
    next(events)
    began = time.monotonic()
    events.close()

    assert time.monotonic() - began < LONG / 2


def test_only_ones_own_drive_is_interrupted() -> None:
    ears = [Interrupt(), Interrupt()]
    one = Handoff(lambda: ears[0])

    def refused() -> None:
        raise RuntimeError("another drives it")

    with pytest.raises(RuntimeError, match="another"):
        next(one.read(refused))
    assert not ears[0].asked

    two = Handoff(lambda: ears[1])
    list(two.read(lambda: two.give(piece(0))))
    assert not ears[0].asked


def test_nothing_begins_before_the_first_event_is_asked_for() -> None:
    began: list[int] = []
    events: Any = hand().read(lambda: began.append(1))
    events.close()

    assert (began, streams()) == ([], [])


def test_dropping_the_reader_is_leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    left = threading.Event()
    one = hand()

    def drive() -> None:
        try:
            one.give(piece(0))
            one.give(piece(1))
        except Left:
            left.set()
            raise

    events = one.read(drive)
    next(events)
    del events
    gc.collect()

    assert left.wait(LONG)
    assert unraisable == []


# -- from one task to another ----------------------------------------------------------------------------------------


def test_a_task_waits_for_its_reader_between_its_steps() -> None:
    async def main() -> None:
        made: list[int] = []
        buffer = Buffer()

        async def drive() -> None:
            for n in range(4):
                made.append(n)
                buffer.give(piece(n))
                await buffer.drained()

        events = buffer.read(drive())
        for n in range(4):
            assert await anext(events) == piece(n)
            for _ in range(5):
                await asyncio.sleep(0)
            assert len(made) == n + 1
        assert [event async for event in events] == []

    asyncio.run(main())


@pytest.mark.parametrize("error", [ValueError("x"), asyncio.CancelledError("own"), SystemExit(3)], ids=repr)
def test_what_ends_a_task_reaches_its_reader_after_its_events(error: BaseException) -> None:
    async def main() -> None:
        buffer = Buffer()

        async def drive() -> None:
            buffer.give(piece(0))
            buffer.give(piece(1))
            raise error

        events = buffer.read(drive())
        assert [await anext(events), await anext(events)] == [piece(0), piece(1)]
        with pytest.raises(type(error)):
            await anext(events)

    asyncio.run(main())


@pytest.mark.parametrize("ending", ["clean", "raises", "returns"])
def test_a_task_whose_reader_has_left_is_cancelled_and_waited_for(ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)

    async def main() -> list[str]:
        told: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(str(context)))
        buffer = Buffer()

        async def drive() -> None:
            try:
                buffer.give(piece(0))
                await asyncio.sleep(LONG)
            except asyncio.CancelledError:
                await asyncio.sleep(0)
                told.append("over")
                if ending == "raises":
                    raise ValueError("nobody reads it") from None
                if ending == "clean":
                    raise

        events: Any = buffer.read(drive())
        await anext(events)
        await events.aclose()
        assert len(asyncio.all_tasks()) == 1
        gc.collect()
        await asyncio.sleep(0)
        return told

    assert (asyncio.run(main()), unraisable) == (["over"], [])


# -- observers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [0, -1, 1.5, True, "9", None])
def test_a_buffer_holds_at_least_one_event(most: Any) -> None:
    with pytest.raises(BuildError, match="give a whole number from 1; it looks at every run of the agent"):
        Observer(most)


@given(st.integers(1, 6), st.lists(st.one_of(st.integers(0, 9), st.none()), max_size=40))
def test_what_is_kept_and_what_is_missed_add_up_to_what_was_given(most: int, acts: list[int | None]) -> None:
    observer = Observer(most)
    given: list[int] = []
    taken: list[int] = []
    for act in [*acts, None]:
        if act is not None:
            for _ in range(act):
                observer.give(piece(len(given)))
                given.append(len(given))
            continue
        gap, events = 0, observer.take()
        if events and isinstance(events[0], Gap):
            gap = events.pop(0).missed  # type: ignore[union-attr]
            assert gap > 0
            # Where something was dropped, the buffer is full.
            assert len(events) == most
        assert len(events) <= most
        taken += range(len(taken), len(taken) + gap)
        assert [event.after for event in events] == list(range(len(taken), len(taken) + len(events)))  # type: ignore[union-attr]
        taken += range(len(taken), len(taken) + len(events))
    assert taken == given
    assert observer.seen == len(given)


def test_a_closed_observer_gives_what_it_had_and_ends() -> None:
    left: list[Observer] = []
    with Observer(2, leave=left.append) as observer:
        for n in range(3):
            observer.give(piece(n))
    observer.give(piece(9))

    assert list(observer) == [Gap(1), piece(1), piece(2)]
    assert list(observer) == []
    assert left == [observer]


def test_a_thread_reads_on_until_it_is_closed() -> None:
    observer, read = Observer(), list[Any]()
    got = threading.Event()

    def reader() -> None:
        for event in observer:
            read.append(event)
            got.set()

    thread = threading.Thread(target=reader)
    thread.start()
    for n in range(5):
        got.clear()
        observer.give(piece(n))
        assert got.wait(LONG)
    observer.close()
    thread.join(LONG)

    assert not thread.is_alive()
    assert read == [piece(n) for n in range(5)]


def test_a_task_reads_what_threads_give_until_it_is_closed() -> None:
    async def main() -> list[Any]:
        observer = Observer()

        def gives() -> None:
            for n in range(20):
                observer.give(piece(n))
            observer.close()

        async def reads() -> list[Any]:
            return [event async for event in observer]

        reading = asyncio.create_task(reads())
        await asyncio.sleep(0)
        await asyncio.to_thread(gives)
        return await asyncio.wait_for(reading, LONG)

    assert asyncio.run(main()) == [piece(n) for n in range(20)]


def test_a_task_that_stops_reading_leaves_nothing_behind() -> None:
    observer = Observer()

    async def main() -> None:
        observer.give(piece(0))
        async for event in observer:
            assert event == piece(0)
            break
        reading = asyncio.create_task(anext(observer.__aiter__()))
        await asyncio.sleep(0)
        reading.cancel()

    asyncio.run(main())
    gc.collect()
    # Its loop is closed, and nobody is harmed by that.
    observer.give(piece(1))
    assert observer._wakes == []
    assert observer.take() == [piece(1)]


def test_a_loop_that_was_closed_in_the_middle_does_not_hurt_who_gives() -> None:
    observer = Observer()
    loop = asyncio.new_event_loop()
    reading = observer.__aiter__()
    task = loop.create_task(anext(reading))
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert len(observer._wakes) == 1
    loop.close()
    observer.give(piece(0))

    assert observer.take() == [piece(0)]
    task._log_destroy_pending = False


def test_an_observer_keeps_no_event_longer_than_its_buffer() -> None:
    class Detail:
        pass

    observer = Observer(3)
    details = [Detail() for _ in range(50)]
    kept = [weakref.ref(detail) for detail in details]
    for n, detail in enumerate(details):
        observer.give(TraceEvent("r", n, 0.0, "a", "x", detail))
    del details, detail
    gc.collect()

    assert sum(ref() is not None for ref in kept) == 3
