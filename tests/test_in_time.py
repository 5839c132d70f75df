"""Nobody is waited for longer than a run has time: functions and models that hang, in a thread's drive and in a task's."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import attrs
import pytest

from fsm_agent import Agent, Decision, Limits, ToolCall
from fsm_agent.core.answers import Answer
from fsm_agent.core.effects import OwnEffect
from fsm_agent.core.run import Run
from fsm_agent.core.stream_events import TextDelta
from fsm_agent.core.values import StopReason
from fsm_agent.host.clock import ScriptedClock
from fsm_agent.host.in_time import OutOfTime, ask_in_time, await_in_time, in_thread
from fsm_agent.host.interrupt import Interrupt, Interrupted
from fsm_agent.host.workers import Workers
from fsm_agent.scenario.virtual_clock import VirtualClock

LONG = 20.0
SOON = Limits.off(max_steps=50, max_turns=9, deadline_s=0.04, reserve_s=0.01)
# With a clock that stands still each question has this time for itself, however busy the machine is.
SLOW = attrs.evolve(SOON, deadline_s=0.5)
LATER = attrs.evolve(SOON, deadline_s=LONG)
FREE = Limits.off(max_steps=50, max_turns=9)


def sync(agent: Agent, run: Run) -> Answer:
    return agent.drive(run)


def tasks(agent: Agent, run: Run) -> Answer:
    return asyncio.run(agent.adrive(run))


each_drive = pytest.mark.parametrize("drive", [sync, tasks])
Drive = Callable[[Agent, Run], Answer]


def look(n: int = 1) -> int:
    """Looks."""
    return n


class Model:
    """A model whose reply is a function of the request."""

    def __init__(self, reply: Callable[[Any], Any]) -> None:
        self._reply = reply

    def reply(self, request: Any) -> Any:
        return self._reply(request)


def hangs(gate: threading.Event, word: Any = "late") -> Callable[[Any], Any]:
    def wait(_: Any) -> Any:
        gate.wait(LONG)
        return word

    return wait


def hanging(what: str, gate: threading.Event) -> Agent:
    """An agent one part of which hangs."""
    wait, tools = hangs(gate), [look]
    if what == "decider":
        return Agent(tools, wait, limits=SOON)
    if what == "model":
        return Agent(tools, Model(wait), limits=SOON)
    if what == "closer":
        limits = attrs.evolve(SLOW, max_tool_calls=1)
        return Agent(tools, lambda ask: ToolCall("look"), close=wait, limits=limits, clock=ScriptedClock())
    return Agent(tools, lambda ask: "seen", verify=wait if what == "verifier" else Model(wait), limits=SOON)


@each_drive
@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("decider", StopReason.DEADLINE),
        ("model", StopReason.DEADLINE),
        ("verifier", StopReason.DEADLINE),
        ("verifying model", StopReason.DEADLINE),
        ("closer", StopReason.MAX_TOOL_CALLS),
    ],
)
def test_a_part_that_hangs_is_given_up_and_the_run_has_an_answer(
    what: str, reason: StopReason, drive: Drive, gate: threading.Event
) -> None:
    agent = hanging(what, gate)
    begun = time.monotonic()
    answer = drive(agent, agent.start("go"))

    assert time.monotonic() - begun < LONG / 4
    assert (answer.stop_reason, bool(answer.text)) == (reason, True)
    assert answer.usage["spent_s"] >= 0.03 or what == "closer"
    assert not answer.ok


@each_drive
def test_an_effect_of_ones_own_that_hangs_is_given_up(drive: Drive, gate: threading.Event) -> None:
    class Fetch(OwnEffect):
        """One thing to fetch."""

    told: list[Any] = []

    class Fetching:
        def enter(self, setup: Any, run: Any) -> None:
            return None

        def ask(self, setup: Any, run: Any) -> Any:
            return Fetch(run)

        def tell(self, setup: Any, run: Any, event: Any) -> str:
            told.append(event)
            return "passed"

    agent = Agent([], lambda ask: "seen", work={"verify": Fetching()}, effects={Fetch: hangs(gate)}, limits=SLOW, clock=ScriptedClock())
    drive(agent, agent.start("go"))
    assert [event.error for event in told] == ["TimeoutError"]


# ---- where it is asked


@pytest.mark.parametrize("drive", [sync, tasks])
def test_without_a_deadline_a_function_is_called_where_the_driver_is(drive: Drive) -> None:
    seen: list[int] = []
    agent = Agent([look], lambda ask: seen.append(threading.get_ident()) or "seen", limits=FREE)  # type: ignore[func-returns-value]
    assert drive(agent, agent.start("go")).text == "seen"
    assert seen == [threading.get_ident()]


WHO = contextvars.ContextVar("WHO", default="nobody")


@each_drive
@pytest.mark.parametrize("kind", ["function", "model"])
@pytest.mark.parametrize("limits", [FREE, LATER], ids=["free", "deadline"])
def test_context_variables_go_along(kind: str, limits: Limits, drive: Drive) -> None:
    def said(_: Any) -> Any:
        return WHO.get() if kind == "function" else Decision(text=WHO.get(), finish="stop")

    agent = Agent([], said if kind == "function" else Model(said), limits=limits)
    token = WHO.set("me")
    try:
        assert drive(agent, agent.start("go")).text == "me"
    finally:
        WHO.reset(token)


@pytest.mark.parametrize("limits", [FREE, LATER], ids=["free", "deadline"])
def test_a_sync_model_leaves_the_event_loop_to_others(limits: Limits, gate: threading.Event) -> None:
    agent = Agent([look], Model(lambda request: gate.wait(LONG) and Decision(text="seen", finish="stop")), limits=limits)

    async def main() -> Answer:
        asyncio.get_running_loop().call_later(0.001, gate.set)
        return await agent.arun("go")

    begun = time.monotonic()
    assert asyncio.run(main()).text == "seen"
    assert time.monotonic() - begun < LONG / 2


def test_a_model_that_has_to_be_asked_in_the_loop_is() -> None:
    class Inside(Model):
        in_loop = True

    def later(request: Any) -> Any:
        return asyncio.get_running_loop().create_task(asyncio.sleep(0, Decision(text="seen", finish="stop")))

    answer = asyncio.run(Agent([look], Inside(later), limits=LATER).arun("go"))
    assert answer.text == "seen"


@pytest.mark.parametrize("part", ["function", "model"])
def test_what_is_to_be_awaited_is_awaited_in_the_loop_in_what_is_left_of_the_time(part: str) -> None:
    loops: list[Any] = []

    def later(_: Any) -> Any:
        async def answer() -> Any:
            loops.append(asyncio.get_running_loop())
            return "seen" if part == "function" else Decision(text="seen", finish="stop")

        return answer()

    async def main() -> Any:
        agent = Agent([look], later if part == "function" else Model(later), limits=LATER)
        return (await agent.arun("go")).text, loops == [asyncio.get_running_loop()]

    assert asyncio.run(main()) == ("seen", True)


@each_drive
@pytest.mark.parametrize("error", [StopIteration("x"), ValueError("x"), asyncio.CancelledError("x")], ids=repr)
def test_what_it_raises_is_told_as_if_it_were_called_here(error: BaseException, drive: Drive) -> None:
    def fails(_: Any) -> Any:
        raise error

    answers = [drive(agent, agent.start("go")) for agent in (Agent([], fails, limits=FREE), Agent([], fails, limits=LATER))]
    assert [(one.stop_reason, one.status) for one in answers] == [("model_error", "failed")] * 2
    assert type(error).__name__ in answers[1].text


@each_drive
def test_an_interrupt_passes_through(drive: Drive) -> None:
    def stops(_: Any) -> Any:
        raise KeyboardInterrupt

    agent = Agent([], stops, limits=LATER)
    run = agent.start("go")
    with pytest.raises(KeyboardInterrupt):
        drive(agent, run)
    assert run.stop is not None
    assert run.stop.reason is StopReason.CANCELLED


# ---- cancelling


@pytest.mark.parametrize("kind", ["function", "model"])
def test_a_cancelled_task_leaves_the_run_resumable_and_a_late_answer_is_dropped(kind: str, gate: threading.Event) -> None:
    asked, words = threading.Event(), iter(["late", "seen"])

    def wait(_: Any) -> Any:
        asked.set()
        word = next(words)
        if word == "late":
            gate.wait(LONG)
        return word if kind == "function" else Decision(text=word, finish="stop")

    agent = Agent([], wait if kind == "function" else Model(wait), limits=LATER)
    run = agent.start("go")

    async def main() -> Answer:
        task = asyncio.ensure_future(agent.adrive(run))
        while not asked.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert run.stop is not None
        assert run.stop.reason is StopReason.CANCELLED
        gate.set()
        return await agent.aresume(run)

    assert asyncio.run(main()).text == "seen"


def test_a_drive_that_is_told_to_stop_does_not_wait_for_a_function(gate: threading.Event) -> None:
    asked = threading.Event()

    def wait(_: Any) -> Any:
        asked.set()
        gate.wait(LONG)
        return "late"

    agent = Agent([], wait, limits=LATER)
    run = agent.start("go")
    thread = threading.Thread(target=agent.drive, args=(run,))
    thread.start()
    assert asked.wait(LONG)
    agent.cancel(run)
    thread.join(LONG)
    assert not thread.is_alive()
    assert run.stop is not None
    assert run.stop.reason is StopReason.CANCELLED


# ---- many at once


def test_tasks_that_all_have_to_wait_do_not_wait_for_each_other() -> None:
    meet = threading.Barrier(24, timeout=LONG)

    def decide(_: Any) -> str:
        meet.wait()
        return "seen"

    async def main() -> list[Answer]:
        agent = Agent([], decide, limits=LATER)
        return await asyncio.gather(*[agent.arun(str(n)) for n in range(24)])

    assert {answer.text for answer in asyncio.run(main())} == {"seen"}


def test_quick_functions_of_many_tasks_need_few_threads() -> None:
    seen: set[int] = set()

    async def main() -> list[Answer]:
        agent = Agent([], lambda ask: seen.add(threading.get_ident()) or "seen", limits=LATER)  # type: ignore[func-returns-value]
        return await asyncio.gather(*[agent.arun(str(n)) for n in range(200)])

    assert len(asyncio.run(main())) == 200
    assert 1 <= len(seen) <= 50
    assert threading.get_ident() not in seen


def test_pieces_of_a_sync_model_are_heard_in_the_loop_and_in_order() -> None:
    def reply(request: Any) -> Decision:
        for piece in "abc":
            request.on_delta(piece)
        return Decision(text="abc", finish="stop")

    async def main() -> list[Any]:
        agent = Agent([], Model(reply), limits=LATER)
        return [event async for event in agent.astream("go")]

    events = asyncio.run(main())
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["a", "b", "c"]
    kinds = [getattr(event, "kind", "") for event in events]
    assert kinds.index("decision") > max(n for n, event in enumerate(events) if isinstance(event, TextDelta))


# ---- the two ways to ask, by themselves


def test_whoever_ends_the_wait_is_heard(gate: threading.Event) -> None:
    interrupt = Interrupt()
    results = interrupt.results()
    threading.Timer(0.001, interrupt.ask).start()
    with pytest.raises(Interrupted):
        ask_in_time(lambda: gate.wait(LONG), LONG, None, results, Workers())


def test_without_any_time_a_thread_is_given_up_at_once(gate: threading.Event) -> None:
    with pytest.raises(OutOfTime, match="no answer came in 0 s"):
        ask_in_time(lambda: gate.wait(LONG), 0.0, None, Interrupt().results(), Workers())
    with pytest.raises(OutOfTime, match="no answer came in 0 s"):
        asyncio.run(in_thread(lambda: gate.wait(LONG), 0.0, Workers()))


def test_in_a_clocks_time_an_answer_is_waited_for_as_long_as_there_is_time_there() -> None:
    clock = VirtualClock()

    def after(seconds: float) -> str:
        clock.sleep(seconds)
        return "seen"

    with clock.acting():
        assert ask_in_time(lambda: after(4.0), 5.0, clock, SimpleQueue(), Workers()) == "seen"
        assert clock.now() == 4.0
        with pytest.raises(OutOfTime, match="no answer came in 5 s"):
            ask_in_time(lambda: after(6.0), 5.0, clock, SimpleQueue(), Workers())
        assert clock.now() == 9.0
    clock.close()


class Held(asyncio.SelectorEventLoop):
    """An event loop whose time goes on only when it is told to, and that says when a thread has told it something."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.heard = threading.Event()
        self.failed: list[Any] = []
        self.set_exception_handler(lambda loop, context: self.failed.append(context))

    def time(self) -> float:
        return self.now

    def call_soon_threadsafe(self, callback: Any, *args: Any, **more: Any) -> Any:
        handle = super().call_soon_threadsafe(callback, *args, **more)
        self.heard.set()
        return handle


def test_what_has_ended_when_the_loop_finds_that_the_time_is_over_has_ended_in_time() -> None:
    with asyncio.Runner(loop_factory=Held) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, Held)

        async def main() -> Any:
            answer = asyncio.ensure_future(await_in_time(asyncio.sleep(2.0, "seen"), 1.0))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            loop.now = 3.0
            return await answer

        assert (runner.run(main()), loop.failed) == ("seen", [])


def test_an_answer_that_the_loop_finds_with_the_end_of_its_time_is_taken_and_nothing_fails() -> None:
    with asyncio.Runner(loop_factory=Held) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, Held)

        async def main() -> Any:
            answer = asyncio.ensure_future(in_thread(lambda: "seen", 1.0, Workers()))
            await asyncio.sleep(0)
            assert loop.heard.wait(LONG)
            loop.now = 2.0
            return await answer

        assert (runner.run(main()), loop.failed) == (("seen", None), [])


def test_an_answer_for_a_loop_that_was_closed_while_it_was_awaited_is_dropped(gate: threading.Event) -> None:
    begun, workers, loop = threading.Event(), Workers(), asyncio.new_event_loop()

    async def never() -> None:
        raise AssertionError

    answer = never()

    def ask() -> Any:
        begun.set()
        gate.wait(LONG)
        return answer

    async def main() -> Any:
        task = asyncio.ensure_future(in_thread(ask, LONG, workers))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        return task

    task = loop.run_until_complete(main())
    # That the task is pending still, which the loop says of it in the end, is meant here.
    loop.set_exception_handler(lambda loop, context: None)
    loop.close()
    gate.set()
    until = time.monotonic() + LONG
    while inspect.getcoroutinestate(answer) != inspect.CORO_CLOSED:
        assert time.monotonic() < until
        time.sleep(0.001)
    assert not task.done()


def test_an_answer_that_comes_after_its_loop_was_closed_is_dropped(gate: threading.Event) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def never() -> None:
        raise AssertionError

    def ask() -> Any:
        begun.set()
        gate.wait(LONG)
        ended.set()
        return never()

    async def main() -> None:
        task = asyncio.ensure_future(in_thread(ask, LONG, Workers()))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        task.cancel()

    asyncio.run(main())
    gate.set()
    assert ended.wait(LONG)
