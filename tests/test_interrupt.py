"""Cancelling a run that is driven in a thread or a task, wherever its driver waits; what else the thread or task does is left alone."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from fsm_agent import Agent, Limits, Policy, Retry, Run, Tool, ToolCall, ToolContext
from fsm_agent.core.answers import Answer
from fsm_agent.core.errors import RunBusy
from fsm_agent.core.events import Cancelled
from fsm_agent.host.clock import ScriptedClock
from fsm_agent.host.hooks import Hooks
from fsm_agent.host.interrupt import Interrupt, Interrupted

FREE = Limits.off(max_steps=500, max_turns=20)
LONG = 20.0


def one_tool(fn: Callable[..., Any], **fields: Any) -> list[Tool]:
    return [Tool(**{"name": "t", "fn": fn, "effect": "pure", "breaker": None, **fields})]


def calls_t(ask: Any) -> Any:
    return ToolCall("t") if not ask.run.turns else "done"


class Threaded:
    """A run that is driven in a thread of its own."""

    def __init__(self, agent: Agent) -> None:
        self.agent, self.run = agent, agent.start("go")
        self.answers: list[Any] = []
        self.thread = threading.Thread(target=self._drive, daemon=True)
        self.thread.start()

    def _drive(self) -> None:
        try:
            self.answers.append(self.agent.drive(self.run))
        except BaseException as error:
            self.answers.append(error)

    def ends(self) -> Answer:
        self.thread.join(LONG)
        assert not self.thread.is_alive()
        (answer,) = self.answers
        assert isinstance(answer, Answer), answer
        return answer


def left_well(agent: Agent, run: Run, answer: Answer) -> None:
    """The run is stopped, nobody has it, and it is the same as its journal and its text say."""
    assert (answer.stop_reason, run.driven, run.interrupt) == ("cancelled", False, None)
    assert "the run was cancelled" in str(run.stop)
    assert agent.replay(run) == run
    assert agent.load(agent.save(run)) == run


# -- in a thread -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("calls", [1, 2])
def test_a_driver_that_waits_for_bodies_with_a_timeout_does_not_wait_on(gate: threading.Event, calls: int) -> None:
    begun = threading.Semaphore(0)

    def body() -> str:
        begun.release()
        gate.wait(LONG)
        return "late"

    tools = one_tool(body, timeout_s=LONG, polling=True)
    agent = Agent(tools, lambda ask: "done" if ask.run.turns else [ToolCall("t")] * calls, limits=FREE)
    driven = Threaded(agent)
    for _ in range(calls):
        assert begun.acquire(timeout=LONG)
    agent.cancel(driven.run)
    answer = driven.ends()
    left_well(agent, driven.run, answer)
    assert [call.error for call in driven.run.calls] == ["cancelled"] * calls

    saved = agent.save(driven.run)
    gate.set()
    time.sleep(0.01)
    assert agent.save(driven.run) == saved
    assert agent.resume(driven.run).text == "done"


def test_a_body_in_the_drivers_own_thread_is_let_come_to_its_end(gate: threading.Event) -> None:
    begun = threading.Event()

    def body() -> str:
        begun.set()
        gate.wait(LONG)
        return "whole"

    agent = Agent(one_tool(body, effect="at_most_once"), calls_t, limits=FREE)
    driven = Threaded(agent)
    assert begun.wait(LONG)
    agent.cancel(driven.run)
    assert driven.thread.is_alive()
    gate.set()
    left_well(agent, driven.run, driven.ends())

    assert [(call.value, call.body_runs) for call in driven.run.calls] == [("whole", 1)]
    assert agent.resume(driven.run).text == "done"


@pytest.mark.parametrize(
    ("effect", "word", "runs"), [("pure", "cancelled", 2), ("at_most_once", "unknown_outcome", 1), ("undeclared", "cancelled", 1)]
)
def test_what_is_not_known_of_a_body_that_was_left_is_said(gate: threading.Event, effect: str, word: str, runs: int) -> None:
    ran: list[int] = []
    begun = threading.Event()

    def body() -> str:
        ran.append(1)
        begun.set()
        gate.wait(LONG)
        return "late"

    agent = Agent(one_tool(body, timeout_s=LONG, effect=effect), calls_t, limits=FREE)
    driven = Threaded(agent)
    assert begun.wait(LONG)
    agent.cancel(driven.run)
    answer = driven.ends()

    assert [call.error for call in driven.run.calls] == [word]
    assert any("take effect" in question for question in answer.next_questions) is (effect == "at_most_once")
    gate.set()
    done = agent.resume(driven.run)
    # Whoever cancels a run does not wait for its answer, so what is not known is asked once more.
    assert done.text.splitlines()[0] == "done"
    assert done.stop_reason == ("question" if effect == "at_most_once" else "answered")
    # What may be begun again is, and nothing else.
    assert len(ran) == runs


def test_a_wait_of_the_machines_own_clock_is_broken_off() -> None:
    begun = threading.Event()

    def body() -> str:
        begun.set()
        raise TimeoutError

    agent = Agent(one_tool(body, retry=Retry(attempts=3, backoff_s=[LONG])), calls_t, limits=FREE)
    driven = Threaded(agent)
    assert begun.wait(LONG)
    while "call_retried" not in [kind for kind, *_ in driven.run.trace]:
        time.sleep(0.001)
    agent.cancel(driven.run)
    left_well(agent, driven.run, driven.ends())
    assert driven.run.spent_s < LONG


@pytest.mark.parametrize("part", ["decide", "verify", "close"])
def test_a_part_that_cannot_be_broken_off_is_heard_and_nothing_is_asked_after_it(gate: threading.Event, part: str) -> None:
    begun, asked = threading.Event(), []

    def slow(ask: Any) -> Any:
        begun.set()
        gate.wait(LONG)
        return "word"

    def quick(ask: Any) -> Any:
        asked.append(type(ask).__name__)
        return ToolCall("t") if part == "close" else "done"

    parts: dict[str, Any] = {"model": quick, "verify": None, "close": None} | {"model" if part == "decide" else part: slow}
    limits = Limits.off(max_steps=500, max_turns=2, max_tool_calls=0) if part == "close" else FREE
    agent = Agent(one_tool(lambda: 1), limits=limits, **parts)
    driven = Threaded(agent)
    assert begun.wait(LONG)
    agent.cancel(driven.run)
    gate.set()
    answer = driven.ends()

    # A final word that came is the run's own end; anything else is cut off.
    assert answer.stop_reason in ("cancelled", "answered", "max_tool_calls")
    assert len(asked) <= 1
    assert not driven.run.driven
    assert agent.replay(driven.run) == driven.run


def test_cancelling_twice_is_cancelling_once(gate: threading.Event) -> None:
    begun = threading.Event()

    def body() -> None:
        begun.set()
        gate.wait(LONG)

    agent = Agent(one_tool(body, timeout_s=LONG), calls_t, limits=FREE)
    driven = Threaded(agent)
    assert begun.wait(LONG)
    for _ in range(3):
        agent.cancel(driven.run)
    left_well(agent, driven.run, driven.ends())
    agent.cancel(driven.run)
    assert [type(event) for _, event in driven.run.journal].count(Cancelled) == 1


def test_the_breakers_place_is_free_again_after_a_cancelled_probe(gate: threading.Event) -> None:
    begun, slow = threading.Event(), [True]

    def body() -> str:
        begun.set()
        if slow:
            gate.wait(LONG)
        return "x"

    agent = Agent([Tool(name="t", fn=body, effect="pure", timeout_s=LONG)], calls_t, limits=FREE)
    for _ in range(5):
        begun.clear()
        driven = Threaded(agent)
        assert begun.wait(LONG)
        agent.cancel(driven.run)
        driven.ends()
    gate.set()
    slow.clear()

    assert [piece.value for piece in agent.run("go").evidence] == ["x"]


def test_a_run_that_pauses_as_it_is_cancelled_is_cancelled() -> None:
    asked: list[str] = []

    def hook(about: Any, call: Any) -> None:
        asked.append(call.id)
        agent.cancel(run)

    agent = Agent(one_tool(lambda: 1, approval=True), calls_t, limits=FREE, hooks=Hooks(before_tool_call=hook))
    run = agent.start("go")
    answer = agent.drive(run)

    assert (answer.stop_reason, agent.pending(run), len(asked)) == ("cancelled", (), 1)
    left_well(agent, run, answer)


@pytest.mark.parametrize("way", ["thread", "task"])
def test_a_cancel_that_comes_while_the_run_pauses_is_heard_of_too(way: str) -> None:
    class Clock(ScriptedClock):
        """It is asked for the time when the run pauses, and when there is something new to be heard of."""

        def wall(self) -> float:
            heard = not watched or run.heard == len(run.trace)
            if any(call.awaits for call in run.open_calls) and run.driven and heard:
                agent.cancel(run)
            return super().wall()

    agent = Agent(one_tool(lambda: 1, approval=True), calls_t, limits=FREE, clock=Clock(), policy=Policy(approval_ttl_s=60.0))
    watched = False
    run = agent.start("go")
    answer = agent.drive(run) if way == "thread" else asyncio.run(agent.adrive(run))
    left_well(agent, run, answer)

    watched = True
    run = agent.start("go")
    with agent.observe() as observer:
        agent.drive(run) if way == "thread" else asyncio.run(agent.adrive(run))
        last = observer.take()[-1]
    assert (last.kind, last.subject) == ("answer", "cancelled")  # type: ignore[union-attr]


def test_a_cancel_that_comes_when_the_drive_has_just_ended_reaches_the_paused_run() -> None:
    agent = Agent(one_tool(lambda: 1, approval=True), calls_t, limits=FREE)
    run = agent.start("go")
    assert agent.drive(run).status == "paused"

    class Late(Interrupt):
        """The drive ends between the look at it and the word to it."""

        def ask(self) -> None:
            super().ask()
            run.interrupt = None

    run.interrupt = Late()
    agent.cancel(run)

    left_well(agent, run, agent.answer(run))


@pytest.mark.parametrize("round_", range(20))
def test_a_cancel_at_any_moment_leaves_the_run_over_or_cancelled_and_never_paused(round_: int) -> None:
    agent = Agent(one_tool(lambda: 1, approval=True, timeout_s=LONG), calls_t, limits=FREE)
    run = agent.start("go")
    agent.drive(run)
    agent.approve(run, agent.pending(run)[0].call_id)
    driven = threading.Thread(target=agent.drive, args=(run,))
    driven.start()
    for _ in range(round_ * 20):
        pass
    while True:
        try:
            agent.cancel(run)
        except RunBusy:
            continue
        break
    driven.join(LONG)

    assert run.done
    assert run.stop is not None
    assert run.stop.reason in ("cancelled", "answered")
    assert not run.driven
    assert agent.replay(run) == run


@pytest.mark.parametrize("way", ["thread", "task"])
def test_a_body_that_waits_for_its_exclusive_turn_does_not_begin_after_its_run_was_cancelled(
    gate: threading.Event, way: str
) -> None:
    ran: list[str] = []
    begun = threading.Event()

    def body(context: ToolContext) -> None:
        ran.append(context.run_id)
        begun.set()
        gate.wait(LONG)

    tools = one_tool(body, timeout_s=LONG, effect="at_most_once", exclusive=True, context_parameter="context")
    agent = Agent(tools, calls_t, limits=FREE)
    first = Threaded(agent)
    assert begun.wait(LONG)
    if way == "thread":
        second = Threaded(agent)
        run = second.run
        while "call_started" not in [kind for kind, *_ in run.trace]:
            time.sleep(0.001)
        agent.cancel(run)
        second.ends()
    else:
        run = agent.start("go")

        async def main() -> None:
            task = asyncio.create_task(agent.adrive(run))
            while "call_started" not in [kind for kind, *_ in run.trace]:
                await asyncio.sleep(0.001)
            agent.cancel(run)
            await task

        asyncio.run(main())
    gate.set()
    first.ends()
    time.sleep(0.02)

    assert ran == [first.run.id]


# -- in a task -------------------------------------------------------------------------------------------------------


async def hangs(started: asyncio.Event) -> None:
    started.set()
    await asyncio.sleep(LONG)


class Clock(ScriptedClock):
    """A clock whose waits really last."""

    started: asyncio.Event

    async def asleep(self, seconds: float) -> None:
        await hangs(self.started)


def in_a_task(part: str, started: asyncio.Event, gate: threading.Event) -> Agent:
    async def slow(*asked: Any) -> None:
        await hangs(started)

    def in_thread() -> None:
        loop.call_soon_threadsafe(started.set)
        gate.wait(LONG)

    def fails() -> None:
        raise TimeoutError

    async def model(ask: Any) -> Any:
        return calls_t(ask)

    loop, clock = asyncio.get_running_loop(), Clock()
    clock.started = started
    tools: dict[str, list[Tool]] = {
        "body": one_tool(slow),
        "body with a timeout": one_tool(slow, timeout_s=LONG),
        "sync body": one_tool(in_thread),
        "wait": one_tool(fails, retry=Retry(attempts=2)),
    }
    more: dict[str, Any] = {"limits": FREE, "clock": clock}
    if part == "hook":
        more["hooks"] = Hooks(on_iteration=slow)
    if part == "verify":
        more["verify"] = slow
    return Agent(tools.get(part, one_tool(lambda: 1)), slow if part == "model" else model, **more)


PARTS = ["body", "body with a timeout", "sync body", "wait", "model", "verify", "hook"]


@pytest.mark.parametrize("from_thread", [False, True], ids=["task", "thread"])
@pytest.mark.parametrize("part", PARTS)
def test_a_task_is_interrupted_where_it_waits_and_goes_on_with_what_it_does_next(
    part: str, from_thread: bool, gate: threading.Event
) -> None:
    async def main() -> tuple[Agent, Run, Answer]:
        started = asyncio.Event()
        agent = in_a_task(part, started, gate)
        run = agent.start("go")

        async def caller() -> Answer:
            answer = await agent.adrive(run)
            # The task that drove it is not being cancelled any more.
            current = asyncio.current_task()
            assert current is not None
            assert current.cancelling() == 0
            for _ in range(3):
                await asyncio.sleep(0)
            return answer

        task = asyncio.create_task(caller())
        await started.wait()
        await (asyncio.to_thread(agent.cancel, run) if from_thread else asyncio.sleep(0, agent.cancel(run)))
        return agent, run, await asyncio.wait_for(task, LONG)

    agent, run, answer = asyncio.run(main())
    left_well(agent, run, answer)


def test_a_decider_that_cancels_its_own_run_does_not_cancel_the_callers_task() -> None:
    def decide(ask: Any) -> Any:
        agent.cancel(ask.run)
        return ToolCall("t")

    agent = Agent(one_tool(lambda: 1), decide, limits=FREE)

    async def main() -> Answer:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        answer = await agent.arun("go")
        for _ in range(5):
            await asyncio.sleep(0)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        return answer

    failures: list[Any] = []
    assert asyncio.run(main()).stop_reason == "cancelled"
    assert failures == []


def test_a_body_that_will_not_be_cancelled_ends_and_its_run_does_too() -> None:
    async def stubborn() -> str:
        with suppress(asyncio.CancelledError):
            await hangs(started)
        return "mine"

    started = asyncio.Event()
    agent = Agent(one_tool(stubborn), calls_t, limits=FREE)

    async def main() -> tuple[Run, int]:
        run = agent.start("go")

        async def caller() -> int:
            await agent.adrive(run)
            await asyncio.sleep(0)
            task = asyncio.current_task()
            assert task is not None
            return task.cancelling()

        task = asyncio.create_task(caller())
        await started.wait()
        agent.cancel(run)
        return run, await asyncio.wait_for(task, LONG)

    run, cancelling = asyncio.run(main())
    assert [call.value for call in run.calls] == ["mine"]
    assert cancelling == 0
    left_well(agent, run, agent.answer(run))


@pytest.mark.parametrize("first", ["run", "task"])
def test_a_host_that_cancels_both_gets_its_own_cancellation(first: str) -> None:
    async def main() -> tuple[Agent, Run]:
        started = asyncio.Event()
        agent = Agent(one_tool(lambda: 1), lambda ask: hangs(started), limits=FREE)
        run = agent.start("go")
        task = asyncio.create_task(agent.adrive(run))
        await started.wait()
        if first == "run":
            agent.cancel(run)
            task.cancel()
        else:
            task.cancel()
            agent.cancel(run)
        with pytest.raises(asyncio.CancelledError):
            await task
        return agent, run

    agent, run = asyncio.run(main())
    assert (agent.answer(run).stop_reason, run.driven) == ("cancelled", False)


def test_a_timeout_of_the_host_around_a_cancelled_run_still_times_what_comes_after() -> None:
    async def main() -> str:
        started = asyncio.Event()
        agent = Agent(one_tool(lambda: 1), lambda ask: hangs(started), limits=FREE)
        run = agent.start("go")
        asyncio.get_running_loop().call_later(0.005, agent.cancel, run)
        try:
            async with asyncio.timeout(0.03):
                await agent.adrive(run)
                await asyncio.sleep(LONG)
        except TimeoutError:
            return str(run.stop)
        return "no timeout"

    assert asyncio.run(main()).startswith("cancelled")


def test_a_word_to_a_drive_whose_loop_is_closed_is_no_error() -> None:
    interrupt = Interrupt()

    async def main() -> None:
        interrupt.in_task()

    asyncio.run(main())
    interrupt.ask()
    assert interrupt.asked


# -- the ear itself --------------------------------------------------------------------------------------------------


def test_a_word_is_heard_once_it_was_said_and_not_before() -> None:
    interrupt = Interrupt()
    interrupt.check()
    interrupt.sleep(0.0)
    interrupt.ask()
    for heard in (interrupt.check, lambda: interrupt.sleep(LONG), interrupt.results):
        with pytest.raises(Interrupted):
            heard()


def test_no_wait_is_too_long_to_be_waited_or_broken_off() -> None:
    interrupt = Interrupt()
    threading.Timer(0.005, interrupt.ask).start()
    with pytest.raises(Interrupted):
        interrupt.sleep(1e300)


def test_nothing_but_its_own_cancellation_is_its_own() -> None:
    async def main() -> list[bool]:
        interrupt = Interrupt()
        before = interrupt.took(asyncio.CancelledError())
        interrupt.in_task()
        took = [before, interrupt.took(asyncio.CancelledError()), interrupt.took(ValueError())]
        interrupt.ask()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(1)
        took += [interrupt.took(asyncio.CancelledError()), interrupt.took(ValueError())]
        interrupt.over()
        interrupt.over()
        task = asyncio.current_task()
        assert task is not None
        return [*took, task.cancelling() == 0, interrupt.took(asyncio.CancelledError())]

    assert asyncio.run(main()) == [False, False, False, True, False, True, False]
