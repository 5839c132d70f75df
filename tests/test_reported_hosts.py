"""Reports about threads, tasks and memory, each under the id that it has in the scenarios' README."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fsm_agent import Agent, Decision, Limits, Run, Tool, ToolCall, ToolContext, tool
from fsm_agent.core.errors import RunError
from fsm_agent.core.events import Decided

LONG = 20.0
BOUNDS = Limits.off(max_steps=500, max_turns=20)


def scripted(*turns: Any) -> Callable[[Any], Any]:
    """A decider that gives one turn after another by the run's own count."""
    return lambda ask: turns[ask.run.turns]


def asleep() -> Tool:
    async def slow(q: str = "") -> str:
        await asyncio.sleep(LONG)
        return "late"

    return Tool(name="slow", fn=slow, effect="pure")


def test_br_089_a_cancelled_task_gets_its_cancellation_and_every_call_has_a_result() -> None:
    one = Agent([asleep()], scripted(ToolCall("slow", {"q": "x"}, "call_1"), "hello"), limits=BOUNDS)
    run = one.start("go")

    async def main() -> None:
        task = asyncio.create_task(one.adrive(run))
        while not run.open_calls or not run.open_calls[0].started:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert run.stop is not None
    assert run.stop.reason == "cancelled"
    assert [(call.id, call.ok, call.error) for call in run.calls] == [("call_1", False, "cancelled")]
    saved = one.load(one.save(run))
    assert [(call.id, call.error) for call in saved.calls] == [("call_1", "cancelled")]
    history = one.history(saved)
    assert [message.error for message in history if message.call_id == "call_1"] == ["cancelled"]
    assert Agent([asleep()], scripted("hello"), limits=BOUNDS).run(history).text == "hello"


async def _by_wait_for(awaitable: Awaitable[Any]) -> None:
    await asyncio.wait_for(awaitable, 0.02)


async def _by_timeout(awaitable: Awaitable[Any]) -> None:
    async with asyncio.timeout(0.02):
        await awaitable


@pytest.mark.parametrize("bounded", [_by_wait_for, _by_timeout])
def test_br_137_a_timeout_around_a_run_reaches_its_caller(bounded: Callable[[Awaitable[Any]], Awaitable[None]]) -> None:
    one = Agent([asleep()], scripted(ToolCall("slow"), "late"), limits=BOUNDS)
    run = one.start("go")
    flag: list[str] = []

    async def main() -> None:
        await bounded(one.adrive(run))
        flag.append("set")

    began = time.monotonic()
    with pytest.raises(TimeoutError):
        asyncio.run(main())

    assert time.monotonic() - began < 1
    assert (flag, run.turns) == ([], 1)
    assert run.stop is not None
    assert run.stop.reason == "cancelled"


def both_kinds() -> Agent:
    async def later() -> str:
        await asyncio.sleep(0)
        return "y"

    calls = [ToolCall("sync_t", {}, "a"), ToolCall("async_t", {}, "b")]
    tools = [Tool(name="sync_t", fn=lambda: "x", effect="pure"), Tool(name="async_t", fn=later, effect="pure")]
    return Agent(tools, scripted(calls, "done"), limits=BOUNDS)


def values(answer: Any) -> list[Any]:
    return [answer.stop_reason.value, *(piece.value for piece in answer.evidence)]


@pytest.mark.filterwarnings("error")
def test_br_143_the_sync_entry_works_plainly_inside_a_loop_and_beside_one() -> None:
    async def inside() -> Any:
        return both_kinds().run("go")

    async def beside() -> Any:
        return await asyncio.to_thread(both_kinds().run, "go")

    wanted = ["answered", "x", "y"]
    assert values(both_kinds().run("go")) == wanted
    assert values(asyncio.run(inside())) == wanted
    assert values(asyncio.run(beside())) == wanted
    with ThreadPoolExecutor(1) as pool:
        assert values(pool.submit(both_kinds().run, "go").result(LONG)) == wanted
    gc.collect()


def test_br_143_a_sync_run_that_would_have_to_await_its_decider_says_so_before_anything_is_called() -> None:
    asked: list[str] = []

    async def decide(ask: Any) -> str:
        asked.append("asked")
        return "done"

    with pytest.raises(RunError, match="await arun or adrive instead"):
        Agent([], decide, limits=BOUNDS).run("go")
    assert asked == []


def _failing() -> str:
    raise ValueError("no")


def test_br_110_no_run_is_kept_by_the_agent_that_drove_it() -> None:
    tools = [Tool(name="t", fn=lambda n: "x", effect="pure"), Tool(name="bad", fn=_failing)]
    good = Agent(tools, scripted(ToolCall("t", {"n": 1}), "done"), limits=BOUNDS)
    bad = Agent(tools, scripted(ToolCall("bad"), ToolCall("nobody"), RuntimeError), limits=BOUNDS)
    known: list[weakref.ref[Run]] = []

    def drop(run: Run) -> None:
        known.append(weakref.ref(run))

    async def several() -> None:
        for _ in range(500):
            run = good.start("go")
            await good.adrive(run)
            drop(run)

    for n in range(1500):
        one = good if n % 3 else bad
        run = one.start("go")
        one.drive(run)
        drop(run)
    asyncio.run(several())
    left = good.start("go")
    good.engine.tell(left, Decided(Decision(calls=(ToolCall("t", {"n": 1}),))))
    drop(left)
    del run, left
    gc.collect()

    assert len(known) == 2001
    assert sum(ref() is not None for ref in known) <= 3


def test_br_110_the_tables_of_an_agent_do_not_grow_with_its_runs() -> None:
    one = Agent([Tool(name="t", fn=lambda n: "x", effect="pure")], scripted(ToolCall("t", {"n": 1}), "done"), limits=BOUNDS)

    def held() -> int:
        gc.collect()
        return len(gc.get_objects())

    for _ in range(20):
        one.run("go")
    before = held()
    for _ in range(500):
        one.run("go")
    assert held() - before < 200


@tool(effect="at_most_once", approval=True)
def whose(context: ToolContext) -> object:
    """What the caller gave."""
    return context.context["u"]


def test_br_127_an_approval_belongs_to_the_run_and_the_context_to_the_drive() -> None:
    one = Agent([whose], scripted(ToolCall("whose", {}, "a"), "done"), limits=BOUNDS)
    paused = one.run("go", context={"u": "user-1"})
    assert paused.run is not None
    text = one.save(paused.run)
    run = one.load(text)
    one.approve(run, "a")
    answer = one.drive(run, context={"u": "user-2"})

    assert (paused.status, paused.usage["turns"], paused.usage["body_runs"]) == ("paused", 1, 0)
    assert (answer.stop_reason, answer.evidence[0].value) == ("answered", "user-2")
    assert (answer.usage["turns"], answer.usage["body_runs"]) == (2, 1)
    assert "user-" not in text
    assert "user-1" not in one.save(run)


def test_br_086_a_body_that_outlives_its_timeout_keeps_the_turn_of_exclusive_tools_and_its_word_is_dropped() -> None:
    let_go, ended, overlapped = threading.Event(), threading.Event(), []

    def slow() -> str:
        let_go.wait(LONG)
        ended.set()
        return "late"

    def following() -> str:
        overlapped.append(not ended.is_set())
        return "ran"

    def decide(ask: Any) -> Any:
        if ask.run.turns == 1:
            threading.Timer(0.05, let_go.set).start()
        return [ToolCall("slow", {}, "a"), ToolCall("next", {}, "b"), "done"][ask.run.turns]

    tools = [Tool(name="slow", fn=slow, effect="pure", timeout_s=0.02, exclusive=True)]
    tools.append(Tool(name="next", fn=following, effect="pure", exclusive=True))
    answer = Agent(tools, decide, limits=BOUNDS).run("go")
    assert answer.run is not None

    assert [(call.id, call.error or call.value) for call in answer.run.calls] == [("a", "raised:TimeoutError"), ("b", "ran")]
    assert overlapped == [False]
    assert "late" not in answer.text
