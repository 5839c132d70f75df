"""Streams and observers of an agent: the same events in threads and tasks, at the reader's pace, and a run that is left well."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

import pytest

from fsm_agent import Agent, Decision, Limits, Policy, Retry, Run, Tool, ToolCall
from fsm_agent.core.errors import CannotResume, RunBusy, RunError
from fsm_agent.core.strategies import max_iterations
from fsm_agent.core.stream_events import DeltasDiscarded, Gap, StreamEvent, TextDelta
from fsm_agent.core.trace import TraceEvent, trace_of
from fsm_agent.host.clock import ScriptedClock
from fsm_agent.host.model import FailureKind, MalformedDecision, ModelFailed, ModelRequest

FREE = Limits.off(max_steps=500, max_turns=20)
LONG = 20.0


def tool(name: str, fn: Callable[..., Any], **fields: Any) -> Tool:
    return Tool(**{"name": name, "fn": fn, "effect": "pure", "breaker": None, **fields})


class Speaker:
    """A model that gives its turns in order by the run's history, each text in pieces of three letters where somebody listens.

    A turn is a Decision, or a pair of a text begun and the exception that breaks it off.
    """

    def __init__(self, *turns: Any) -> None:
        self.turns, self.asked = list(turns), 0

    def reply(self, request: ModelRequest) -> Decision:
        self.asked += 1
        turn = self.turns[min(self.asked, len(self.turns)) - 1]
        decision, error = turn if isinstance(turn, tuple) else (turn, None)
        text = decision if isinstance(decision, str) else decision.text or ""
        for at in range(0, len(text), 3):
            if request.on_delta is not None:
                request.on_delta(text[at : at + 3])
        if error is not None:
            raise error
        return Decision(text=decision, finish="stop") if isinstance(decision, str) else decision


def calls(*made: tuple[str, str, dict[str, Any]], text: str | None = None) -> Decision:
    return Decision(calls=tuple(ToolCall(name, args, call_id) for call_id, name, args in made), text=text, finish="tool_calls")


MANY = Limits.off(max_turns=500, max_steps=5000)
LIMITED = Limits.off(max_steps=500, max_turns=20, max_tool_calls=1)
READ = calls(("a", "read", {"k": 1}), text="let me read")
TWICE = calls(("b", "read", {"k": 2}), ("c", "pay", {"k": 3}))
MODELS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "a text": (["hello you"], {}),
    "calls": ([READ, TWICE, "done"], {}),
    "a failed request": ([READ, ("half a te", ModelFailed(FailureKind.CONNECTION, "cut", 1.0)), "whole text"], {}),
    "a malformed reply": ([("half", MalformedDecision("no JSON")), "whole text"], {}),
    "an error": ([("half", ModelFailed(FailureKind.AUTHENTICATION, "no key"))], {}),
    "a failed call": ([calls(("a", "fail", {})), "done"], {}),
    "a pause": ([calls(("a", "ask", {}), ("b", "read", {"k": 1})), "done"], {}),
    "a closing text": ([READ, calls(("d", "read", {"k": 4})), "that is all"], {"limits": LIMITED}),
    "a closing text that fails": ([READ, calls(("d", "read", {"k": 4})), ("that", ValueError("x"))], {"limits": LIMITED}),
    "a strategy": ([READ, "done"], {"strategy": [max_iterations(1)]}),
    "calls in time": ([READ, TWICE, "done"], {"limits": Limits()}),
    "a closing text in time": ([READ, calls(("d", "read", {"k": 4})), "that is all"], {"limits": Limits(max_tool_calls=1)}),
    "nothing": ([Decision(), Decision(), Decision()], {}),
}


class Desk:
    """An agent of these turns and a log of the bodies that ran."""

    def __init__(self, *turns: Any, **more: Any) -> None:
        self.ran: list[Any] = []
        self.model = Speaker(*turns)

        def read(k: int) -> str:
            self.ran.append(("read", k))
            return f"read {k}"

        def pay(k: int) -> str:
            self.ran.append(("pay", k))
            return f"paid {k}"

        def fail() -> None:
            raise ValueError("no")

        tools = [tool("read", read), tool("pay", pay, effect="at_most_once"), tool("fail", fail), tool("ask", print, approval=True)]
        settings = {"limits": FREE, "clock": ScriptedClock(wall_start=1000.0), "policy": Policy(model_attempts=3), **more}
        self.agent = Agent(tools, self.model, **settings)

    @property
    def run(self) -> Run:
        return self.agent.start("go", run_id="r")


def sync(agent: Agent, run: Run) -> list[StreamEvent]:
    return list(agent.stream(run))


def tasks(agent: Agent, run: Run) -> list[StreamEvent]:
    async def main() -> list[StreamEvent]:
        return [event async for event in agent.astream(run)]

    return asyncio.run(main())


both = pytest.mark.parametrize("stream", [sync, tasks])
Stream = Callable[[Agent, Run], list[StreamEvent]]


@pytest.fixture(autouse=True)
def _nothing_stays_behind(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    yield
    gc.collect()
    until = time.monotonic() + 5.0
    while [one for one in threading.enumerate() if one.name == "stream"] and time.monotonic() < until:
        time.sleep(0.001)
    assert [one for one in threading.enumerate() if one.name == "stream"] == []
    assert unraisable == []


# -- the same events, the whole of them ------------------------------------------------------------------------------


@pytest.mark.parametrize(("turns", "more"), MODELS.values(), ids=MODELS)
def test_threads_and_tasks_tell_the_same_and_the_run_is_as_if_nobody_read(turns: list[Any], more: dict[str, Any]) -> None:
    desks = [Desk(*turns, **more) for _ in range(3)]
    told, runs = [], []
    for desk, way in zip(desks, (sync, tasks, None), strict=True):
        run = desk.run
        runs.append(run)
        if way is None:
            desk.agent.drive(run)
        else:
            told.append(way(desk.agent, run))
    lines = [event for event in told[0] if isinstance(event, TraceEvent)]

    assert told[0] == told[1]
    assert [(line.number, line.kind, line.subject, line.detail, line.at_s) for line in lines] == [
        (line.number, line.kind, line.subject, line.detail, line.at_s) for line in trace_of(runs[0])
    ]
    assert {line.run_id for line in lines} == {"r"}
    assert all(line.time is not None and line.time >= 1000.0 for line in lines)
    assert lines[-1].kind in ("answer", "paused")
    assert runs[0] == runs[1] == runs[2]
    assert desks[0].ran == desks[1].ran == desks[2].ran


@pytest.mark.parametrize(("turns", "more"), MODELS.values(), ids=MODELS)
@both
def test_pieces_of_text_stand_between_their_lines_and_what_failed_is_void(
    stream: Stream, turns: list[Any], more: dict[str, Any]
) -> None:
    desk = Desk(*turns, **more)
    events = stream(desk.agent, desk.run)
    number = -1
    open_: list[str] = []
    for event in events:
        if isinstance(event, TraceEvent):
            assert event.number == number + 1
            number = event.number
            assert event.kind not in ("decision_failed", "compose_failed") or open_ == []
            open_ = []
        else:
            assert isinstance(event, TextDelta | DeltasDiscarded)
            assert (event.run_id, event.after) == ("r", number)
            open_ = [*open_, event.text] if isinstance(event, TextDelta) else []
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "".join(
        turn[0] if isinstance(turn, tuple) else turn if isinstance(turn, str) else turn.text or ""
        for turn in turns[: desk.model.asked]
    )


@both
def test_a_request_made_again_says_that_its_text_begins_anew(stream: Stream) -> None:
    desk = Desk(*MODELS["a failed request"][0])
    events = stream(desk.agent, desk.run)
    shown = [event for event in events if not isinstance(event, TraceEvent) or event.kind in ("decision_failed", "decision", "waiting")]

    assert [type(event).__name__ if not isinstance(event, TraceEvent) else event.kind for event in shown] == [
        *["TextDelta"] * 4, "decision", *["TextDelta"] * 3, "DeltasDiscarded", "decision_failed", "waiting", *["TextDelta"] * 4, "decision",
    ]


@both
def test_a_stream_takes_a_request_too_and_its_own_way_of_starting(stream: Stream) -> None:
    agent = Agent([], lambda ask: "done", limits=FREE)

    async def main() -> list[StreamEvent]:
        return [event async for event in agent.astream("go", run_id="x", limits=LIMITED)]

    events = list(agent.stream("go", run_id="x", limits=LIMITED)) if stream is sync else asyncio.run(main())
    assert {event.run_id for event in events if isinstance(event, TraceEvent)} == {"x"}


def kinds(events: Iterable[StreamEvent]) -> list[str]:
    return [event.kind for event in events]


async def acollected(events: AsyncIterator[StreamEvent]) -> list[StreamEvent]:
    return [event async for event in events]


@pytest.mark.parametrize("in_loop", [False, True], ids=["sync", "async"])
def test_a_stream_takes_up_a_stopped_run_with_the_limits_named_raised(in_loop: bool) -> None:
    def read(run: Run, **raises: Any) -> list[StreamEvent]:
        streamed = desk.agent.astream(run, **raises) if in_loop else desk.agent.stream(run, **raises)
        return asyncio.run(acollected(streamed)) if in_loop else list(streamed)  # type: ignore[arg-type]

    desk = Desk(READ, calls(("d", "read", {"k": 4})), "so far", calls(("e", "read", {"k": 5})), "that is all", limits=LIMITED)
    run = desk.run
    assert kinds(read(run))[-2:] == ["composed", "answer"]
    before = run.row_count
    with pytest.raises(CannotResume, match="goes on with max_tool_calls=2"):
        read(run)
    with pytest.raises(CannotResume, match="Limits has no field 'scope'"):
        read(run, scope="x")
    assert run.row_count == before
    events = read(run, max_tool_calls=9)
    assert kinds(events)[0] == "resumed"
    assert [event.number for event in events if isinstance(event, TraceEvent)] == list(range(before, run.row_count))
    assert desk.agent.answer(run).text == "that is all"
    assert desk.ran == [("read", 1), ("read", 5)]
    assert read(run) == [], "it ended of itself"
    with pytest.raises(CannotResume, match="ended by 'answered'"):
        read(run, max_tool_calls=10)


@both
def test_a_stream_that_was_left_goes_on_as_a_stream(stream: Stream) -> None:
    desk = Desk(READ, TWICE, "done")
    run = desk.run
    for event in desk.agent.stream(run):
        if event.kind == "call_finished":
            break
    assert run.stop is not None
    assert run.stop.reason == "cancelled"
    assert kinds(stream(desk.agent, run))[-1] == "answer"
    assert (desk.agent.answer(run).text, desk.ran) == ("done", [("read", 1), ("read", 2), ("pay", 3)])


@both
def test_a_stream_tells_how_a_run_came_to_its_end_before_it_was_driven(stream: Stream) -> None:
    desk = Desk("done", limits=Limits(deadline_s=0.0))
    run = desk.run
    assert run.done
    assert kinds(stream(desk.agent, run))[-1] == "answer"
    with pytest.raises(CannotResume, match="goes on with deadline_s="):
        stream(desk.agent, run)


def test_a_stream_raises_the_limits_of_a_run_that_stands() -> None:
    desk = Desk(calls(("a", "ask", {})), TWICE, "done", limits=LIMITED)
    run = desk.run
    assert kinds(desk.agent.stream(run))[-1] == "paused"
    desk.agent.deny(run, "a")
    list(desk.agent.stream(run, max_tool_calls=5))
    assert (run.limits.max_tool_calls, desk.agent.answer(run).text) == (5, "done")
    fresh = desk.run
    with pytest.raises(CannotResume, match="has not stopped; drive it on"):
        desk.agent.stream(fresh, max_tool_calls=5)


@both
def test_nobody_is_asked_for_pieces_where_nobody_reads(stream: Stream) -> None:
    heard: list[bool] = []

    class Model:
        def reply(self, request: ModelRequest) -> Decision:
            heard.append(request.on_delta is not None)
            return Decision(text="done")

    agent = Agent([], Model(), limits=FREE)
    agent.run("go")
    asyncio.run(agent.arun("go"))
    stream(agent, agent.start("go"))
    with agent.observe():
        agent.run("go")

    assert heard == [False, False, True, True]


@both
def test_the_callers_context_variables_and_context_reach_the_bodies(stream: Stream) -> None:
    from fsm_agent import ToolContext

    who = contextvars.ContextVar("who", default="nobody")
    seen: list[Any] = []

    def body(about: ToolContext) -> str:
        seen.append((who.get(), about.context))
        return "x"

    agent = Agent([tool("t", body, context_parameter="about")], lambda ask: "done" if ask.run.turns else ToolCall("t"), limits=FREE)
    who.set("me")
    if stream is sync:
        list(agent.stream("go", context={"user": 1}))
    else:

        async def main() -> None:
            async for _ in agent.astream("go", context={"user": 1}):
                pass

        asyncio.run(main())
    assert seen == [("me", {"user": 1})]


# -- at the reader's pace --------------------------------------------------------------------------------------------


def test_nothing_runs_before_the_reader_asks_in_a_thread() -> None:
    desk = Desk(*MODELS["calls"][0])
    run = desk.run
    events = desk.agent.stream(run)
    time.sleep(0.002)
    assert (desk.model.asked, run.driven) == (0, False)
    seen: dict[str, tuple[int, int]] = {}
    for event in events:
        time.sleep(0.001)
        if isinstance(event, TraceEvent) and event.kind not in seen:
            seen[event.kind] = (desk.model.asked, len(desk.ran))
    # When the reader has a line, at most the step behind it has been done.
    assert seen["run_started"] == (0, 0)
    assert seen["decision"] == (1, 0)
    assert seen["call_admitted"] == (1, 0)
    assert seen["call_finished"][1] == 1


def test_nothing_runs_before_the_reader_asks_in_a_task() -> None:
    desk = Desk(*MODELS["calls"][0])

    async def main() -> list[tuple[str, int, int]]:
        seen = []
        async for event in desk.agent.astream(desk.run):
            for _ in range(5):
                await asyncio.sleep(0)
            if isinstance(event, TraceEvent):
                seen.append((event.kind, desk.model.asked, len(desk.ran)))
        return seen

    seen = asyncio.run(main())
    assert seen[0] == ("run_started", 0, 0)
    at = [kind for kind, *_ in seen].index("call_admitted")
    assert seen[at] == ("call_admitted", 1, 0)
    assert [ran for kind, _, ran in seen if kind == "decision"] == [0, 1, 3]


def test_what_came_in_time_is_not_lost_to_a_slow_reader() -> None:
    agent = Agent(
        [tool("t", lambda n: n, timeout_s=0.05)],
        lambda ask: "done" if ask.run.turns else [ToolCall("t", {"n": n}) for n in range(3)],
        limits=FREE,
    )
    run = agent.start("go")
    for event in agent.stream(run):
        if isinstance(event, TraceEvent) and event.kind == "call_finished":
            time.sleep(0.06)

    assert [call.value for call in run.calls] == [0, 1, 2]


# -- leaving, at every event and in every way ------------------------------------------------------------------------


class Thrown(Exception):
    """What a reader throws into a stream."""


def closes(events: Any) -> None:
    events.close()


def throws(events: Any) -> None:
    with pytest.raises(Thrown):
        events.throw(Thrown())


def drops(events: Any) -> None:
    pass


async def acloses(events: Any) -> None:
    await events.aclose()


async def athrows(events: Any) -> None:
    with pytest.raises(Thrown):
        await events.athrow(Thrown())


async def adrops(events: Any) -> None:
    pass


@pytest.mark.parametrize("which", MODELS)
def test_every_event_says_its_kind_and_its_subject(which: str) -> None:
    desk = Desk(*MODELS[which][0], **MODELS[which][1])
    with desk.agent.observe(buffer=2) as observer:
        read = sync(desk.agent, desk.run)
        told = [*read, *observer.take()]
    assert all(type(event.kind) is str and type(event.subject) is str for event in told)
    spoken = "".join(event.subject for event in read if event.kind == "text_delta")
    assert spoken == "".join(event.text for event in read if isinstance(event, TextDelta))
    assert [event.kind for event in told if isinstance(event, Gap)] == ["gap"] * (len(read) > 2)
    assert {event.kind for event in told if isinstance(event, DeltasDiscarded)} <= {"deltas_discarded"}


LEFT_FROM = ["calls", "calls in time", "a closing text in time", "a failed request", "a pause", "a closing text", "a failed call"]


def count_of(which: str) -> int:
    desk = Desk(*MODELS[which][0], **MODELS[which][1])
    return len(sync(desk.agent, desk.run))


def left_well(desk: Desk, run: Run, before: list[Any], whole: bool) -> None:
    """The run is over or stands still, nothing goes on, and it can be resumed to its end."""
    assert (run.driven, run.interrupt) == (False, None)
    time.sleep(0.0005)
    assert desk.ran == before
    assert desk.agent.replay(run) == run
    assert desk.agent.load(desk.agent.save(run)) == run
    if run.stop is None:
        assert whole
        assert run.paused
        return
    assert run.done
    assert whole or run.stop.reason in ("cancelled", "max_tool_calls", "answered")
    if run.stop.reason == "cancelled":
        desk.model.turns = ["done"]
        answer = desk.agent.resume(run)
        assert answer.text.startswith("done") or answer.status == "paused"
    assert len([one for one in desk.ran if one[0] == "pay"]) <= 1


@pytest.mark.parametrize("leave", [closes, throws, drops])
@pytest.mark.parametrize("which", LEFT_FROM)
def test_a_reader_in_a_thread_may_leave_at_any_event(which: str, leave: Callable[[Any], None]) -> None:
    turns, more = MODELS[which]
    for heard in range(1, count_of(which) + 1):
        desk = Desk(*turns, **more)
        run = desk.run
        events = desk.agent.stream(run)
        for _ in range(heard):
            last = next(events)
        leave(events)
        del events
        left_well(desk, run, list(desk.ran), isinstance(last, TraceEvent) and last.kind in ("answer", "paused"))


@pytest.mark.parametrize("leave", [acloses, athrows, adrops])
@pytest.mark.parametrize("which", LEFT_FROM)
def test_a_reader_in_a_task_may_leave_at_any_event(which: str, leave: Callable[[Any], Any]) -> None:
    turns, more = MODELS[which]

    async def main(heard: int) -> None:
        desk = Desk(*turns, **more)
        run = desk.run
        events = desk.agent.astream(run)
        for _ in range(heard):
            last = await anext(events)
        await leave(events)
        del events
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1
        left_well(desk, run, list(desk.ran), isinstance(last, TraceEvent) and last.kind in ("answer", "paused"))

    for heard in range(1, count_of(which) + 1):
        asyncio.run(main(heard))


def test_a_stream_that_is_left_before_its_first_event_has_not_begun() -> None:
    desk = Desk("done")
    run = desk.run
    events: Any = desk.agent.stream(run)
    events.close()

    async def main() -> None:
        unread: Any = desk.agent.astream(run)
        await unread.aclose()

    asyncio.run(main())
    assert (run.stop, run.driven, desk.model.asked) == (None, False, 0)
    assert desk.agent.drive(run).text == "done"


@pytest.mark.parametrize("way", ["thread", "task"])
def test_leaving_in_the_middle_of_parallel_bodies_does_not_wait_for_them(gate: threading.Event, way: str) -> None:
    begun = threading.Semaphore(0)
    ends: list[int] = []

    def body(n: int) -> int:
        begun.release()
        if n:
            gate.wait(LONG)
        ends.append(n)
        return n

    decide = lambda ask: "done" if ask.run.turns else [ToolCall("t", {"n": n}, f"c{n}") for n in range(3)]  # noqa: E731
    agent = Agent([tool("t", body, timeout_s=LONG)], decide, limits=FREE)
    run = agent.start("go")
    began = time.monotonic()
    if way == "thread":
        for event in agent.stream(run):
            if isinstance(event, TraceEvent) and event.kind == "call_finished":
                break
    else:

        async def main() -> None:
            events: Any = agent.astream(run)
            async for event in events:
                if isinstance(event, TraceEvent) and event.kind == "call_finished":
                    break
            await events.aclose()

        asyncio.run(main())
    gc.collect()

    assert time.monotonic() - began < LONG / 2
    assert [(call.id, call.value if call.ok else call.error) for call in run.calls] == [("c0", 0), ("c1", "cancelled"), ("c2", "cancelled")]
    saved = agent.save(run)
    gate.set()
    time.sleep(0.01)
    assert agent.save(run) == saved
    assert agent.resume(run).text == "done"


@pytest.mark.parametrize("way", ["thread", "task"])
def test_leaving_in_a_wait_does_not_wait_it_out(way: str) -> None:
    def fails() -> None:
        raise TimeoutError

    tools = [tool("t", fails, retry=Retry(attempts=2, backoff_s=[LONG]))]
    agent = Agent(tools, lambda ask: "done" if ask.run.turns else ToolCall("t"), limits=FREE)
    run = agent.start("go")
    began = time.monotonic()
    if way == "thread":
        events: Any = agent.stream(run)
        while next(events).kind != "call_retried":
            pass
        time.sleep(0.005)
        events.close()
    else:

        async def main() -> None:
            events: Any = agent.astream(run)
            while (await anext(events)).kind != "call_retried":
                pass
            await events.aclose()

        asyncio.run(main())

    assert time.monotonic() - began < LONG / 2
    assert agent.answer(run).stop_reason == "cancelled"


@pytest.mark.parametrize("way", ["thread", "task"])
def test_leaving_while_a_model_thinks_does_not_wait_for_it_and_its_late_words_are_dropped(gate: threading.Event, way: str) -> None:
    begun, late = threading.Event(), threading.Event()

    class Thinking:
        def reply(self, request: ModelRequest) -> Decision:
            assert request.on_delta is not None
            request.on_delta("hm")
            begun.set()
            gate.wait(LONG)
            request.on_delta("late")
            late.set()
            return Decision(text="late", finish="stop")

    class Later(Thinking):
        async def reply(self, request: ModelRequest) -> Decision:  # type: ignore[override]
            return await asyncio.to_thread(super().reply, request)

    agent = Agent([], Thinking() if way == "thread" else Later(), limits=Limits(deadline_s=LONG))
    run = agent.start("go")
    began = time.monotonic()
    with agent.observe() as observer:
        if way == "thread":
            events: Any = agent.stream(run)
            while not isinstance(next(events), TextDelta):
                pass
            assert begun.wait(LONG)
            events.close()
            saved = agent.save(run)
            gate.set()
        else:

            async def main() -> str:
                events: Any = agent.astream(run)
                while not isinstance(await anext(events), TextDelta):
                    pass
                await asyncio.to_thread(begun.wait, LONG)
                await events.aclose()
                saved = agent.save(run)
                gate.set()
                return saved

            saved = asyncio.run(main())
        assert late.wait(LONG)
        told = observer.take()

    assert time.monotonic() - began < LONG / 2
    assert agent.save(run) == saved
    assert agent.answer(run).stop_reason == "cancelled"
    assert [event.text for event in told if isinstance(event, TextDelta)] == ["hm"]


def test_a_model_that_swallows_the_leaving_of_its_reader_holds_nobody_up() -> None:
    class Stubborn:
        def reply(self, request: ModelRequest) -> Decision:
            for _ in range(5):
                try:
                    assert request.on_delta is not None
                    request.on_delta("piece")
                except BaseException:
                    continue
            return Decision(text="done", finish="stop")

    agent = Agent([], Stubborn(), limits=FREE)
    run = agent.start("go")
    events: Any = agent.stream(run)
    while not isinstance(next(events), TextDelta):
        pass
    events.close()

    assert run.done
    assert not run.driven


@both
def test_cancelling_ends_the_stream_with_an_answer(stream: Stream) -> None:
    def decide(ask: Any) -> Any:
        agent.cancel(ask.run)
        return ToolCall("t")

    agent = Agent([tool("t", lambda: 1)], decide, limits=FREE)
    run = agent.start("go")
    last = stream(agent, run)[-1]

    assert isinstance(last, TraceEvent)
    assert (last.kind, last.subject) == ("answer", "cancelled")


# -- what cannot be streamed -----------------------------------------------------------------------------------------


def test_a_run_that_another_drives_is_not_streamed_and_the_other_goes_on(gate: threading.Event) -> None:
    begun = threading.Event()

    def body() -> str:
        begun.set()
        gate.wait(LONG)
        return "x"

    agent = Agent([tool("t", body, timeout_s=LONG)], lambda ask: "done" if ask.run.turns else ToolCall("t"), limits=FREE)
    run = agent.start("go")
    thread = threading.Thread(target=agent.drive, args=(run,))
    thread.start()
    assert begun.wait(LONG)
    with pytest.raises(RunBusy):
        next(agent.stream(run))
    with pytest.raises(RunBusy):
        tasks(agent, run)
    gate.set()
    thread.join(LONG)

    assert agent.answer(run).text == "done"


def test_a_model_that_has_to_be_awaited_is_named_before_anything_is_called() -> None:
    class Later:
        async def reply(self, request: ModelRequest) -> Decision:
            return Decision(text="done")

    agent = Agent([], Later(), limits=FREE)
    run = agent.start("go")
    with pytest.raises(RunError, match="await arun or adrive instead"):
        list(agent.stream(run))
    assert tasks(agent, run)[-1].subject == "answered"  # type: ignore[union-attr]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_of_a_body_passes_through_to_the_reader(error: type[BaseException]) -> None:
    armed = [True]

    def body() -> None:
        if armed:
            armed.clear()
            raise error

    agent = Agent([tool("t", body)], lambda ask: "done" if ask.run.turns else ToolCall("t"), limits=FREE)
    run = agent.start("go")
    with pytest.raises(error):
        list(agent.stream(run))

    assert agent.answer(run).stop_reason == "cancelled"
    assert agent.resume(run).text == "done"


def test_a_run_that_is_over_has_no_more_events() -> None:
    desk = Desk("done")
    run = desk.run
    assert sync(desk.agent, run)
    assert sync(desk.agent, run) == []
    assert tasks(desk.agent, run) == []


# -- observers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("turns", "more"), MODELS.values(), ids=MODELS)
def test_observers_hear_what_a_reader_hears_and_change_nothing(turns: list[Any], more: dict[str, Any]) -> None:
    desk, alone = Desk(*turns, **more), Desk(*turns, **more)
    run = desk.run
    with desk.agent.observe() as one, desk.agent.observe(buffer=2) as two:
        read = sync(desk.agent, run)
        all_of_it, last = one.take(), two.take()
    plain = alone.run
    alone.agent.drive(plain)

    assert all_of_it == read
    assert last == [Gap(len(read) - 2), *read[-2:]] if len(read) > 2 else read
    assert run == plain


@pytest.mark.parametrize("how", ["drive", "adrive"])
def test_an_observer_hears_of_a_run_that_is_only_driven(how: str) -> None:
    desk = Desk(*MODELS["calls"][0])
    run = desk.run
    with desk.agent.observe() as observer:
        desk.agent.drive(run) if how == "drive" else asyncio.run(desk.agent.adrive(run))
        told = observer.take()

    assert [event.number for event in told if isinstance(event, TraceEvent)] == list(range(len(run.trace)))


def test_an_observer_hears_how_a_run_ends_that_its_reader_leaves() -> None:
    for heard in range(1, count_of("calls")):
        desk = Desk(*MODELS["calls"][0])
        run = desk.run
        with desk.agent.observe() as observer:
            events: Any = desk.agent.stream(run)
            for _ in range(heard):
                next(events)
            events.close()
            lines = [event for event in observer.take() if isinstance(event, TraceEvent)]

        assert [line.number for line in lines] == list(range(len(run.trace)))
        assert lines[-1].kind == "answer"


@pytest.mark.parametrize("way", ["a body", "a model that speaks"])
def test_an_observer_hears_the_end_also_where_the_reader_leaves_while_somebody_works(gate: threading.Event, way: str) -> None:
    begun = threading.Event()

    def works() -> str:
        begun.set()
        gate.wait(LONG)
        return "late"

    class Thinking:
        def reply(self, request: ModelRequest) -> Decision:
            if way == "a body":
                return calls(("a", "work", {}))
            if way == "a model that speaks" and request.on_delta is not None:
                request.on_delta("hm")
            return Decision(text=works(), finish="stop")

    agent = Agent([tool("work", works, timeout_s=LONG)], Thinking(), limits=Limits(deadline_s=LONG))
    run, last = agent.start("go"), "call_started" if way == "a body" else "text_delta"
    with agent.observe() as observer:
        events: Any = agent.stream(run)
        while next(events).kind != last:
            pass
        assert begun.wait(LONG)
        events.close()
        lines = [event for event in observer.take() if isinstance(event, TraceEvent)]

    assert [line.number for line in lines] == list(range(len(run.trace)))
    assert (lines[-1].kind, lines[-1].subject) == ("answer", "cancelled")


@pytest.mark.parametrize("effect", ["pure", "idempotent", "at_most_once", "undeclared"])
@pytest.mark.parametrize("deadline_s", [None, LONG])
@pytest.mark.parametrize("twin", ["stream", "astream"])
def test_no_body_begins_before_its_reader_asks_what_comes_of_it(effect: str, deadline_s: float | None, twin: str) -> None:
    ran: list[int] = []
    agent = Agent(
        [tool("work", lambda: ran.append(1) or "done", effect=effect)],
        lambda ask: "all done" if ask.run.calls else ToolCall("work", {}),
        limits=Limits(deadline_s=deadline_s),
    )
    run = agent.start("go")

    async def left() -> None:
        events: Any = agent.astream(run)
        async for event in events:
            if event.kind == "call_admitted":
                break
        await events.aclose()

    if twin == "astream":
        asyncio.run(left())
    else:
        events: Any = agent.stream(run)
        while next(events).kind != "call_admitted":
            pass
        events.close()

    assert (ran, [call.error for call in run.calls], run.stop and run.stop.reason) == ([], ["cancelled"], "cancelled")
    assert agent.resume(run).text == "all done"
    assert ran == [1]


def test_an_observer_hears_of_a_run_whose_task_is_cancelled_that_its_text_is_void() -> None:
    class Slow:
        async def reply(self, request: ModelRequest) -> Decision:
            assert request.on_delta is not None
            request.on_delta("half")
            begun.set()
            await asyncio.sleep(LONG)
            raise AssertionError

    agent = Agent([], Slow(), limits=FREE)
    begun = asyncio.Event()

    async def main() -> list[StreamEvent]:
        with agent.observe() as observer:
            task = asyncio.create_task(agent.arun("go"))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return observer.take()

    told = asyncio.run(main())
    kinds = [event.kind if isinstance(event, TraceEvent) else type(event).__name__ for event in told]
    assert kinds[-4:] == ["TextDelta", "DeltasDiscarded", "state_entered", "answer"]


def test_runs_in_many_threads_are_each_heard_in_order() -> None:
    agent = Agent(
        [tool("t", lambda n: n)],
        lambda ask: "done" if ask.run.turns == 3 else [ToolCall("t", {"n": (ask.run.turns, n)}) for n in range(2)],
        limits=FREE,
    )
    runs = [agent.start("go", run_id=f"run-{n}") for n in range(16)]
    with agent.observe(buffer=100_000) as observer:
        threads = [threading.Thread(target=agent.drive, args=(run,)) for run in runs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG)
        told = observer.take()
    numbers: dict[str, list[int]] = {}
    for event in told:
        assert isinstance(event, TraceEvent)
        numbers.setdefault(event.run_id, []).append(event.number)

    assert numbers == {run.id: list(range(len(run.trace))) for run in runs}


def test_an_observer_in_a_task_reads_while_runs_go_on_and_ends_when_it_is_closed() -> None:
    desk = Desk(*MODELS["calls"][0])

    async def main() -> tuple[list[StreamEvent], Run]:
        observer = desk.agent.observe()

        async def reads() -> list[StreamEvent]:
            return [event async for event in observer]

        reading = asyncio.create_task(reads())
        run = desk.run
        await desk.agent.adrive(run)
        observer.close()
        return await asyncio.wait_for(reading, LONG), run

    told, run = asyncio.run(main())
    assert [event.number for event in told if isinstance(event, TraceEvent)] == list(range(len(run.trace)))


def test_an_observer_that_nobody_reads_holds_no_run_up() -> None:
    agent = Agent([tool("t", lambda n: n)], lambda ask: ToolCall("t", {"n": ask.run.turns}), limits=MANY)
    with agent.observe(buffer=1) as observer, agent.observe(buffer=1):
        run = agent.start("go")
        thread = threading.Thread(target=agent.drive, args=(run,))
        thread.start()
        thread.join(LONG)

        assert run.done
        assert observer.seen == len(run.trace)
        assert observer.take()[0] == Gap(len(run.trace) - 1)


def test_an_observer_that_was_dropped_is_not_kept_and_one_that_is_read_is() -> None:
    agent = Agent([], lambda ask: "done", limits=FREE)
    dropped = [weakref.ref(agent.observe()) for _ in range(20)]
    reading = iter(agent.observe())
    gc.collect()
    assert [ref() for ref in dropped] == [None] * 20
    agent.run("go")
    first = next(reading)
    assert isinstance(first, TraceEvent)
    assert first.kind == "run_started"


def test_runs_that_were_read_and_observed_are_not_kept() -> None:
    agent = Agent([tool("t", lambda n: [n])], lambda ask: "done" if ask.run.turns else ToolCall("t", {"n": 1}), limits=FREE)
    kept: list[weakref.ref[Run]] = []

    async def reads(run: Run) -> None:
        async for _ in agent.astream(run):
            pass

    async def main() -> None:
        for _ in range(100):
            run = agent.start("go")
            kept.append(weakref.ref(run))
            await reads(run)

    with agent.observe(buffer=10):
        for n in range(400):
            run = agent.start("go")
            kept.append(weakref.ref(run))
            events: Any = agent.stream(run)
            if n % 2:
                next(events)
                events.close()
            else:
                list(events)
            del events
        del run
        asyncio.run(main())
        gc.collect()
        assert len(kept) == 500
        assert sum(ref() is not None for ref in kept) == 0


@pytest.mark.parametrize(
    ("pieces", "told"),
    [
        (["a", "\ud83d", "\ude00", "b"], ["a", "\U0001f600", "b"]),
        (["a\ud83d", "\ude00b"], ["a", "\U0001f600b"]),
        (["\ud83d\ude00"], ["\U0001f600"]),
        (["\ud83d", "b", "\ude00"], ["\ud83db", "\ude00"]),
        (["a", "\ud83d"], ["a"]),
        (["\ud83d", "\ud83d", "\ude00"], ["\ud83d", "\U0001f600"]),
        (["", "a", ""], ["a"]),
    ],
)
@pytest.mark.parametrize("later", [False, True], ids=["sync", "async"])
def test_a_character_that_comes_in_two_halves_is_told_whole(pieces: list[str], told: list[str], later: bool) -> None:
    class Halves:
        def reply(self, request: Any) -> Decision:
            for piece in pieces:
                request.on_delta(piece)
            return Decision(text="x", finish="stop")

    agent = Agent([], Halves(), limits=FREE)

    async def main() -> list[Any]:
        return [event async for event in agent.astream("go")]

    events = asyncio.run(main()) if later else list(agent.stream("go"))
    assert [event.text for event in events if isinstance(event, TextDelta)] == told
