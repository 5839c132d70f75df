"""Reports about runs that are read while they go on, each under the id that it has in the scenarios' README."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fsm_agent import Agent, Decision, Limits, Run, Tool, ToolCall
from fsm_agent.core.stream_events import Gap, TextDelta
from fsm_agent.core.trace import TraceEvent, trace_of
from fsm_agent.host.clock import ScriptedClock
from fsm_agent.host.model import ModelRequest


def limits(**named: Any) -> Limits:
    return Limits.off(**{"max_steps": 500, "max_turns": 20, **named})


def plain(one: Agent, run: Run) -> list[Any]:
    one.drive(run)
    return []


def task(one: Agent, run: Run) -> list[Any]:
    asyncio.run(one.adrive(run))
    return []


def streamed(one: Agent, run: Run) -> list[Any]:
    return list(one.stream(run))


def streamed_in_a_task(one: Agent, run: Run) -> list[Any]:
    async def main() -> list[Any]:
        return [event async for event in one.astream(run)]

    return asyncio.run(main())


WAYS: list[Callable[[Agent, Run], list[Any]]] = [plain, task, streamed, streamed_in_a_task]
each_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


class Talking:
    """A model that says a text before the call of its first turn, in pieces where somebody listens."""

    def reply(self, request: ModelRequest) -> Decision:
        if any(message.call_id for message in request.messages):
            return Decision(text="Created t.md", finish="stop")
        for piece in ("I will ", "create it."):
            if request.on_delta is not None:
                request.on_delta(piece)
        return Decision(text="I will create it.", calls=(ToolCall("create", {"f": "t.md"}, "c"),), finish="tool_calls")


def test_br_057_a_text_before_a_call_is_no_answer_in_any_way_of_driving() -> None:
    runs: list[str] = []
    tools = [Tool(name="create", fn=lambda f: runs.append(f) or "Created", effect="idempotent")]
    seen: list[Any] = []
    for way in WAYS:
        one = Agent(tools, Talking(), limits=limits(), clock=ScriptedClock())
        run = one.start("create it", run_id="r")
        events = way(one, run)
        seen.append((one.answer(run).text, [str(line) for line in trace_of(run)]))
        pieces = [event.text for event in events if isinstance(event, TextDelta)]
        lines = [event for event in events if isinstance(event, TraceEvent)]
        assert pieces == (["I will ", "create it."] if lines else [])
        assert [line.number for line in lines] == list(range(len(lines)))
        assert len(lines) in (0, len(run.trace))

    assert seen == [seen[0]] * 4
    assert seen[0][0] == "Created t.md"
    assert runs == ["t.md"] * 4


@each_way
def test_br_068_a_budget_of_one_call_allows_exactly_one(way: Callable[[Agent, Run], list[Any]]) -> None:
    ran: list[int] = []
    one = Agent(
        [Tool(name="t", fn=lambda n: ran.append(n) or "x", effect="pure")],
        lambda ask: [ToolCall("t", {"n": 1}), ToolCall("t", {"n": 2}), "done"][ask.run.turns],
        limits=limits(max_tool_calls=1),
    )
    run = one.start("go")
    way(one, run)

    assert ran == [1]
    assert one.answer(run).stop_reason in ("max_tool_calls", "answered")


@each_way
def test_br_071_three_turns_are_three_turns(way: Callable[[Agent, Run], list[Any]]) -> None:
    ran: list[int] = []
    one = Agent(
        [Tool(name="t", fn=lambda n: ran.append(n) or "x", effect="pure")],
        lambda ask: ToolCall("t", {"n": ask.run.turns}),
        limits=limits(max_turns=3),
    )
    run = one.start("go")
    way(one, run)

    assert (one.answer(run).stop_reason, run.turns, ran) == ("max_turns", 3, [0, 1, 2])


def test_br_112_what_an_observer_keeps_is_bounded_and_its_count_is_not() -> None:
    one = Agent(
        [Tool(name="t", fn=lambda n: "x", effect="pure")],
        lambda ask: "done" if ask.run.calls else ToolCall("t", {"n": 1}),
        limits=limits(),
    )
    with one.observe() as observer:
        for _ in range(1000):
            one.run("go")
        per_run = len(one.run("go").run.trace)  # type: ignore[union-attr]
        first, *kept = observer.take()

    assert observer.seen == 1001 * per_run
    assert len(kept) == 1000
    assert first == Gap(observer.seen - 1000)
    assert observer.take() == []


def test_br_112_an_observer_that_was_closed_hears_no_more() -> None:
    one = Agent([], lambda ask: "done", limits=limits())
    observer = one.observe()
    observer.close()
    one.run("go")

    assert observer.take() == []


class Thrown(Exception):
    """What a reader throws into a stream."""


def closed(events: Iterator[Any]) -> None:
    next(events)
    events.close()  # type: ignore[attr-defined]


def broken_off(events: Iterator[Any]) -> None:
    for _ in events:
        break
    del events
    gc.collect()


def dropped(events: Iterator[Any]) -> None:
    next(events)
    del events
    gc.collect()


def thrown_into(events: Iterator[Any]) -> None:
    next(events)
    with pytest.raises(Thrown):
        events.throw(Thrown())  # type: ignore[attr-defined]


def two_calls(ran: list[int]) -> Agent:
    return Agent(
        [Tool(name="t", fn=lambda n: ran.append(n) or "x", effect="pure")],
        lambda ask: [ToolCall("t", {"n": 1}), ToolCall("t", {"n": 2}), "done"][ask.run.turns],
        limits=limits(),
    )


@pytest.mark.parametrize("leave", [closed, broken_off, dropped, thrown_into], ids=lambda leave: leave.__name__)
def test_br_167_a_reader_who_leaves_cancels_the_run_and_nothing_runs_any_more(
    leave: Callable[[Iterator[Any]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    ran: list[int] = []
    one = two_calls(ran)
    run = one.start("go")
    # The only reference to the stream is the reader's own, so that dropping it is leaving it.
    leave(one.stream(run))
    after = list(ran)
    gc.collect()

    assert one.answer(run).stop_reason == "cancelled"
    assert (ran, unraisable) == (after, [])
    assert after == []
    assert [row[0] for row in run.trace][:2] == ["run_started", "state_entered"]
    assert one.resume(run).text == "done"
    assert ran == [1, 2]


@pytest.mark.parametrize("how", ["aclose", "break", "throw"])
def test_br_167_the_same_in_a_task(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    ran: list[int] = []
    one = two_calls(ran)
    run = one.start("go")

    async def main() -> None:
        events: Any = one.astream(run)
        if how == "break":
            async for _ in events:
                break
            await events.aclose()
            return
        await anext(events)
        if how == "aclose":
            await events.aclose()
        else:
            with pytest.raises(Thrown):
                await events.athrow(Thrown())

    asyncio.run(main())
    gc.collect()

    assert one.answer(run).stop_reason == "cancelled"
    assert (ran, unraisable) == ([], [])
    assert one.resume(run).text == "done"


def test_br_167_steps_that_were_finished_can_be_read_after_leaving() -> None:
    ran: list[int] = []
    one = two_calls(ran)
    run = one.start("go")
    for event in one.stream(run):
        if isinstance(event, TraceEvent) and event.kind == "call_finished":
            break
    gc.collect()

    assert ran == [1]
    assert [(call.id != "", call.value) for call in run.calls] == [(True, "x")]
    assert one.answer(run).evidence[0].value == "x"
