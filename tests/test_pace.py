"""Time in which a drive waits for its reader is not spent: by any clock, for sync and async streams, for lines and pieces."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import Any

import pytest

from fsm_agent import Agent, Decision, Limits, ToolCall
from fsm_agent.core.stream_events import TextDelta
from fsm_agent.core.trace import TraceEvent
from fsm_agent.host.clock import ScriptedClock
from fsm_agent.host.model import ModelRequest
from fsm_agent.host.pace import Began, Pace, began
from fsm_agent.models.client_call import ask

LONG = 20.0




def an_agent(clock: ScriptedClock, later: bool) -> Agent:
    """Three turns of one call each, of which each body takes a second."""

    def wait(n: int) -> int:
        clock.advance(1.0)
        return n

    async def wait_later(n: int) -> int:
        return wait(n)

    def decide(ask: Any) -> Any:
        return ToolCall(tool.__name__, {"n": ask.run.turns}) if ask.run.turns < 3 else "done"

    limits = Limits.off(max_steps=99, max_turns=9, deadline_s=5.0, reserve_s=1.0)
    tool = wait_later if later else wait
    return Agent([tool], decide, clock=clock, limits=limits)


def read(agent: Agent, clock: ScriptedClock, later: bool, slow_s: float) -> Any:
    """Drive a run by a reader that takes its time over each event; what the run was by the times in its events."""
    run, at = agent.start("go"), []

    def taken(event: Any) -> None:
        at.append(event.at_s)
        clock.advance(slow_s)

    async def main() -> None:
        async for event in agent.astream(run):
            # By then the driver has come to where it waits for this reader.
            for _ in range(5):
                await asyncio.sleep(0)
            taken(event)

    if later:
        asyncio.run(main())
    else:
        # A reader in the driver's own thread, so that it is slow at no other time than while that waits for it.
        agent.driver.drive(run, None, agent._feed(run, taken))
    return run, at


@pytest.mark.parametrize("later", [False, True], ids=["sync", "async"])
def test_readers_of_streams_may_take_longer_than_the_run_has_time(later: bool) -> None:
    def decide(ask: Any) -> Any:
        return ToolCall("look", {"n": ask.run.turns}) if ask.run.turns < 3 else "done"

    agent = Agent([look], decide, limits=Limits.off(max_steps=99, max_turns=9, deadline_s=0.3, reserve_s=0.0))
    run = agent.start("go")

    async def main() -> None:
        async for _ in agent.astream(run):
            await asyncio.sleep(0.03)

    if later:
        asyncio.run(main())
    else:
        for _ in agent.stream(run):
            time.sleep(0.03)
    assert len(run.trace) * 0.03 > 0.45
    assert agent.answer(run).text == "done"


async def look(n: int) -> int:
    """Looks."""
    return n


@pytest.mark.parametrize("later", [False, True], ids=["sync", "async"])
def test_a_slow_reader_costs_a_run_nothing(later: bool) -> None:
    clock = ScriptedClock()
    run, at = read(an_agent(clock, later), clock, later, 100.0)

    assert run.stop is not None
    assert (run.stop.reason, run.spent_s) == ("answered", 3.0)
    assert at == sorted(at)
    assert at[-1] == 3.0
    assert clock.now() > 500.0


@pytest.mark.parametrize("later", [False, True], ids=["sync", "async"])
def test_what_the_run_itself_takes_counts_as_ever(later: bool) -> None:
    clock = ScriptedClock()
    agent = an_agent(clock, later)
    run = agent.start("go", limits=Limits.off(max_steps=99, max_turns=9, deadline_s=2.5, reserve_s=0.5))
    if later:
        async def main() -> None:
            async for _ in agent.astream(run):
                pass

        asyncio.run(main())
    else:
        list(agent.stream(run))
    assert run.stop is not None
    assert (run.stop.reason, run.spent_s) == ("deadline", 2.0)


class Speaks:
    """A model that says its answer in pieces."""

    def reply(self, request: ModelRequest) -> Decision:
        for piece in ("a", "b", "c"):
            if request.on_delta is not None:
                request.on_delta(piece)
        return Decision(text="abc", finish="stop")


def test_a_reader_that_is_slow_over_pieces_does_not_use_up_the_time_for_the_reply() -> None:
    agent = Agent([], Speaks(), limits=Limits.off(max_steps=50, max_turns=5, deadline_s=0.3, reserve_s=0.0))
    run = agent.start("go")
    for event in agent.stream(run):
        if isinstance(event, TextDelta):
            time.sleep(0.12)
    assert agent.answer(run).text == "abc"
    assert run.spent_s < 0.3


def test_a_model_that_hangs_behind_a_slow_reader_is_given_up_all_the_same() -> None:
    gate = threading.Event()

    class Hangs:
        def reply(self, request: ModelRequest) -> Decision:
            assert request.on_delta is not None
            request.on_delta("a")
            gate.wait(LONG)
            return Decision(text="late", finish="stop")

    agent = Agent([], Hangs(), limits=Limits.off(max_steps=50, max_turns=5, deadline_s=0.05, reserve_s=0.0))
    run, begun = agent.start("go"), time.monotonic()
    for event in agent.stream(run):
        if isinstance(event, TextDelta):
            time.sleep(0.03)
    gate.set()
    assert agent.answer(run).stop_reason == "deadline"
    assert time.monotonic() - begun < LONG / 2


def test_bodies_beside_each_other_do_not_lose_the_time_of_a_slow_reader() -> None:
    gate = threading.Event()

    def look(n: int) -> int:
        return n if n else (gate.wait(LONG), n)[1]

    agent = Agent(
        [look],
        lambda ask: "done" if ask.run.turns else [ToolCall("look", {"n": 1}), ToolCall("look", {"n": 0})],
        limits=Limits.off(max_steps=50, max_turns=5, deadline_s=0.3, reserve_s=0.0),
    )
    agent = Agent([agent.engine.setup.box.get("look")], agent.driver.decide, limits=agent.engine.setup.limits)
    run = agent.start("go")
    for event in agent.stream(run):
        if isinstance(event, TraceEvent) and event.kind == "call_finished" and not gate.is_set():
            time.sleep(0.35)
            threading.Timer(0.005, gate.set).start()
    assert [call.value for call in run.calls] == [1, 0]
    assert agent.answer(run).text == "done"


class Stream:
    """Three pieces of a reply."""

    def __iter__(self) -> Any:
        return iter("abc")


class Taking:
    """A reader of a reply that takes its time over each piece."""

    def __init__(self) -> None:
        self.text = ""

    def take(self, piece: str) -> None:
        self.text += piece
        time.sleep(0.1)

    def decision(self) -> Decision:
        return Decision(text=self.text)

    def usage(self) -> None:
        return None


def test_the_time_of_a_streamed_reply_is_not_that_of_who_listens() -> None:
    request = ModelRequest(on_delta=print, seconds_left=0.25)
    assert ask(lambda **body: Stream(), {}, request, lambda whole: Decision(), Taking()) == Decision(text="abc")


# ---- the instant


def test_the_instant_at_which_a_drive_began_moves_on_with_each_wait() -> None:
    clock = ScriptedClock(start=10.0)
    pace = Pace(clock)
    at = began(clock.now() - 2.0, pace)
    assert isinstance(at, Began)
    clock.advance(1.0)
    assert clock.now() - at == 3.0
    with pace.waiting():
        clock.advance(50.0)
    assert clock.now() - at == 3.0
    clock.advance(1.0)
    assert (clock.now() - at, pace.waited_s) == (4.0, 50.0)


def test_a_wait_that_ends_badly_is_a_wait() -> None:
    clock = ScriptedClock()
    pace = Pace(clock)
    with suppress(ValueError), pace.waiting():
        clock.advance(5.0)
        raise ValueError("x")
    assert pace.waited_s == 5.0


def test_a_wait_that_goes_on_can_be_read_by_others() -> None:
    pace = Pace(ScriptedClock())
    assert pace.held() == 0.0
    with pace.waiting():
        time.sleep(0.002)
        first = pace.held()
        assert first >= 0.002
    over = pace.held()
    time.sleep(0.002)
    assert pace.held() == over >= first


def test_without_a_reader_it_is_an_instant_like_any() -> None:
    assert began(5.0, None) == 5.0
    assert type(began(5.0, None)) is float
