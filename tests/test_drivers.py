"""Both drivers: what they make of answers, failures, interrupts, time and second drivers; a run is never lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs
import pytest

from fsm_agent import Agent, Decision, Judgement, Limits, Policy, Retry, Run, ToolCall, ToolContext, Verdict
from fsm_agent.core.answers import Answer
from fsm_agent.core.errors import RunBusy, RunError
from fsm_agent.core.events import Decided
from fsm_agent.core.tools import BreakerPolicy, Tool
from fsm_agent.host.breaker import BreakerState
from fsm_agent.host.clock import ScriptedClock
from fsm_agent.host.hooks import Hooks
from fsm_agent.host.memory import Remembered, TtlMemory

SOON = 0.25
LONG = 20.0


def off(**named: Any) -> Limits:
    """Nothing but steps bounds a run, and what is named."""
    return Limits.off(**{"max_steps": 50_000, **named})


FREE = off(max_turns=20)


def tool(name: str, fn: Callable[..., Any], **fields: Any) -> Tool:
    return Tool(**{"name": name, "fn": fn, "effect": "pure", "breaker": None, **fields})


def script(*turns: Any) -> Callable[[Any], Any]:
    """A decider that gives one turn after another by the run's own count, and a final text after the last."""

    def decide(ask: Any) -> Any:
        turn = turns[ask.run.turns] if ask.run.turns < len(turns) else "done"
        if isinstance(turn, BaseException):
            raise turn
        return turn() if callable(turn) else turn

    return decide


def agent(*tools: Tool, decide: Any = None, **more: Any) -> Agent:
    wanted = decide if decide is not None else script(ToolCall("t"))
    return Agent(tools, wanted, **{"limits": FREE, "clock": ScriptedClock(), **more})


def sync(one: Agent, run: Run | None = None, **more: Any) -> Answer:
    return one.drive(run if run is not None else one.start("go"), **more)


def tasks(one: Agent, run: Run | None = None, **more: Any) -> Answer:
    return asyncio.run(one.adrive(run if run is not None else one.start("go"), **more))


Drive = Callable[..., Answer]
both = pytest.mark.parametrize("drive", [sync, tasks])


def calls_of(answer: Answer) -> list[tuple[str, Any]]:
    assert answer.run is not None
    return [(call.tool, call.value if call.ok else call.error) for call in answer.run.calls]


# -- deciders, verifiers, closers ------------------------------------------------------------------------------------


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


FAILURES = [
    ValueError("x"),
    TimeoutError(),
    StopIteration(),
    Unprintable(),
    asyncio.CancelledError("own"),
    ExceptionGroup("x", [ValueError()]),
]
failing = pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
NONSENSE = [5, {}, {"tool": "t"}, [1], object(), b"text", Judgement(decision="done")]


@both
@failing
def test_a_decider_that_raises_stops_the_run_with_its_name(drive: Drive, error: BaseException) -> None:
    one = agent(decide=script(error))
    answer = drive(one)

    assert (answer.stop_reason, answer.status) == ("model_error", "failed")
    assert type(error).__name__ in answer.text
    assert one.resume(answer.run, max_turns=30).text.startswith("done")  # type: ignore[arg-type]


@both
@pytest.mark.parametrize("nonsense", NONSENSE, ids=lambda one: type(one).__name__)
def test_a_decider_that_answers_nonsense_is_told_what_is_understood(drive: Drive, nonsense: Any) -> None:
    answer = drive(agent(decide=script(nonsense)))

    assert answer.stop_reason == "model_error"
    assert "it may give a Decision, a ToolCall, a list of them, a text or None" in answer.text


@both
@pytest.mark.parametrize(
    "verify", [lambda ask: True, lambda ask: {"decision": "done"}, lambda ask: Judgement(decision="done")]
)
def test_a_verifier_that_says_yes(drive: Drive, verify: Any) -> None:
    assert drive(agent(tool("t", lambda: 1), verify=verify)).ok


def raiser(error: BaseException) -> Callable[[Any], Any]:
    def part(ask: Any) -> Any:
        raise error

    return part


@both
@pytest.mark.parametrize(
    "verify",
    [*map(raiser, FAILURES), *(lambda ask, value=value: value for value in [*NONSENSE[:2], None, 1, "done", False])],
)
def test_a_verifier_that_raises_or_gives_no_verdict_said_no(drive: Drive, verify: Any) -> None:
    answer = drive(agent(tool("t", lambda: 1), verify=verify, limits=off(max_turns=9, max_verify_rounds=2)))

    assert (answer.stop_reason, answer.status) == ("unverified", "partial")
    assert answer.run is not None
    assert answer.run.verify_rounds == 2


@both
@pytest.mark.parametrize(
    "close", [*map(raiser, FAILURES), *(lambda ask, value=value: value for value in [5, None, [], b"text"])]
)
def test_a_closer_that_raises_or_gives_no_text_leaves_the_text_to_the_template(drive: Drive, close: Any) -> None:
    closing = agent(
        tool("t", lambda: "found"),
        decide=lambda ask: ToolCall("t"),
        close=close,
        limits=off(max_turns=9, max_tool_calls=2),
    )
    answer = drive(closing)

    assert answer.stop_reason == "max_tool_calls"
    assert "found" in answer.text


@both
def test_a_closer_has_the_last_word(drive: Drive) -> None:
    closing = agent(
        tool("t", lambda: 1),
        decide=lambda ask: ToolCall("t"),
        close=lambda ask: "in short",
        limits=off(max_turns=9, max_tool_calls=2),
    )

    assert drive(closing).text.startswith("in short")


@both
@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), SystemExit()], ids=lambda error: type(error).__name__
)
@pytest.mark.parametrize("part", ["decide", "verify", "close"])
def test_an_interrupt_of_a_part_passes_through_and_the_run_goes_on_later(
    drive: Drive, error: BaseException, part: str
) -> None:
    told: list[int] = []

    def interrupted(ask: Any) -> Any:
        told.append(1)
        if len(told) == 1:
            raise error
        return {"decide": "done", "verify": True, "close": "closed"}[part]

    limits = off(max_turns=3, max_tool_calls=1 if part == "close" else None)
    calls = lambda ask: ToolCall("t")  # noqa: E731
    one = agent(
        tool("t", lambda: 1),
        **{"decide": calls if part == "close" else script(ToolCall("t")), "limits": limits, part: interrupted},
    )
    run = one.start("go")
    with pytest.raises(type(error)):
        drive(one, run)

    assert run.stop is not None
    assert not run.driven
    if part == "close":
        assert run.stop.reason == "max_tool_calls"
    else:
        assert run.stop.reason == "cancelled"
        assert one.resume(run).run is run
        assert run.stop.reason == "answered"


class Own(BaseException):
    """One that is no Exception."""


@both
@pytest.mark.parametrize("error", [GeneratorExit, Own])
@pytest.mark.parametrize("part", ["decide", "verify", "close"])
@pytest.mark.parametrize("deadline_s", [None, 20])
def test_whatever_else_a_part_raises_is_its_failure(drive: Drive, error: type[BaseException], part: str, deadline_s: int | None) -> None:
    def fails(ask: Any) -> Any:
        raise error("x")

    limits = off(max_turns=3, max_tool_calls=1 if part == "close" else None, max_attempts=1, deadline_s=deadline_s)
    calls = lambda ask: ToolCall("t")  # noqa: E731
    decide = calls if part == "close" else script(ToolCall("t"))
    answer = drive(agent(tool("t", lambda: 1), **{"decide": decide, "limits": limits, part: fails}))

    assert answer.stop_reason == {"decide": "model_error", "verify": "max_attempts", "close": "max_tool_calls"}[part]
    assert error.__name__ in str([*answer.run.trace, answer.stop])


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("part", ["decide", "verify"])
@pytest.mark.parametrize("deadline_s", [None, 20])
def test_an_interrupt_of_a_coroutine_is_heard_by_nobody_but_who_drives(
    error: type[BaseException], part: str, deadline_s: int | None
) -> None:
    told: list[int] = []

    async def fails(ask: Any) -> Any:
        told.append(await later(1))
        if len(told) == 1:
            raise error
        return {"decide": "done", "verify": True}[part]

    one = agent(tool("t", lambda: 1), **{"decide": script(ToolCall("t")), "limits": off(max_turns=4, deadline_s=deadline_s), part: fails})
    run = one.start("go")

    async def drives() -> str:
        try:
            await one.adrive(run)
        except error as heard:
            return type(heard).__name__
        return ""

    assert asyncio.run(drives()) == error.__name__
    assert run.stop is not None
    assert run.stop.reason == "cancelled"
    assert asyncio.run(one.aresume(run)).ok


@pytest.mark.parametrize("part", ["decide", "body", "hook"])
def test_a_drive_that_is_closed_while_it_waits_ends_there(part: str) -> None:
    async def waits(*_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()

    hooks = Hooks(on_iteration=waits) if part == "hook" else None
    decide = waits if part == "decide" else script(ToolCall("t"))
    one = agent(tool("t", waits if part == "body" else lambda: 1), decide=decide, limits=off(max_turns=3), hooks=hooks)
    run = one.start("go")

    async def begins() -> Any:
        drive = one.adrive(run)
        task = asyncio.ensure_future(_stepped(drive))
        await task
        drive.close()

    asyncio.run(begins())
    assert run.stop is not None
    assert run.stop.reason == "cancelled"


async def _stepped(drive: Any) -> None:
    """Take one step of a coroutine and leave it where it waits."""
    drive.send(None)


async def later(value: Any) -> Any:
    await asyncio.sleep(0)
    return value


def test_coroutine_functions_serve_in_a_loop() -> None:
    async def decide(ask: Any) -> Any:
        return await later(script(ToolCall("t"))(ask))

    async def verify(ask: Any) -> Any:
        return await later(len(ask.run.calls) == 1)

    assert tasks(agent(tool("t", lambda: 1), decide=decide, verify=verify)).ok

    async def close(ask: Any) -> Any:
        return await later("closed")

    closing = agent(
        tool("t", lambda: 1),
        decide=lambda ask: later(ToolCall("t")),
        close=close,
        limits=off(max_turns=9, max_tool_calls=1),
    )
    assert tasks(closing).text.startswith("closed")


@pytest.mark.parametrize("part", ["decide", "verify", "close"])
@pytest.mark.parametrize("inside", [True, False])
def test_a_sync_run_names_the_async_one_before_anything_is_called(part: str, inside: bool) -> None:
    called: list[str] = []

    async def coroutine(ask: Any) -> Any:
        called.append(part)

    def decide(ask: Any) -> Any:
        called.append("decide")
        return "done"

    one = agent(**{"decide": decide, part: coroutine})
    run = one.start("go")

    async def inside_a_loop() -> None:
        one.drive(run)

    with pytest.raises(
        RunError, match=f"{part} is a coroutine function; await arun or adrive instead, or give a plain function"
    ):
        asyncio.run(inside_a_loop()) if inside else one.drive(run)
    assert called == []
    assert run.stop is None


@pytest.mark.parametrize("part", ["decide", "close", "nobody"])
def test_a_resume_that_can_drive_nothing_leaves_the_run_as_it_was(part: str) -> None:
    async def coroutine(ask: Any) -> Any:
        return "done"

    one = Agent([], None) if part == "nobody" else agent(**{"decide": script("done"), part: coroutine})
    run = one.start("go")
    one.cancel(run)
    before = one.save(run)

    with pytest.raises(RunError, match="there is no decider" if part == "nobody" else f"{part} is a coroutine function"):
        one.resume(run)
    if part == "nobody":
        with pytest.raises(RunError, match="there is no decider"):
            asyncio.run(one.aresume(run))
    assert one.save(run) == before
    assert one.answer(run).stop_reason == "cancelled"


@pytest.mark.parametrize("part", ["decide", "verify", "close"])
@pytest.mark.parametrize(
    "awaitable",
    [lambda: later("done"), lambda: type("A", (), {"__await__": lambda self: iter(())})()],
    ids=["coroutine", "object"],
)
def test_an_answer_that_has_to_be_awaited_is_a_failure_of_a_sync_run(part: str, awaitable: Any) -> None:
    limits = off(max_turns=4, max_verify_rounds=1, max_tool_calls=1)
    one = agent(
        tool("t", lambda: 1), **{"decide": lambda ask: ToolCall("t"), "limits": limits, part: lambda ask: awaitable()}
    )
    if part == "verify":
        one = agent(tool("t", lambda: 1), limits=limits, verify=lambda ask: awaitable())
    answer = sync(one)

    assert answer.stop_reason == {"decide": "model_error", "verify": "unverified", "close": "max_tool_calls"}[part]
    assert answer.run is not None
    assert any("the answer has to be awaited; await arun" in str(detail) for *_, detail in answer.run.trace)


@both
def test_tools_of_either_kind_work_in_either_driver_also_inside_a_running_loop(drive: Drive) -> None:
    async def asynchronous() -> str:
        return str(await later("async"))

    tools = [
        tool("t", lambda: "plain"),
        tool("a", asynchronous),
        tool("l", lambda: later("left")),
        tool("x", asynchronous, exclusive=True),
    ]
    one = agent(*tools, decide=script([ToolCall(each.name) for each in tools]))
    wanted = [("t", "plain"), ("a", "async"), ("l", "left"), ("x", "async")]

    async def inside() -> Answer:
        return sync(one)

    assert calls_of(drive(one)) == wanted
    assert calls_of(asyncio.run(inside())) == wanted


# -- one driver at a time --------------------------------------------------------------------------------------------


def test_a_second_thread_is_refused_and_the_first_run_ends_well(gate: threading.Event) -> None:
    began = threading.Event()

    def body() -> str:
        began.set()
        gate.wait(LONG)
        return "x"

    one = agent(tool("t", body))
    run = one.start("go", run_id="r7")
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(one.drive, run)
        assert began.wait(LONG)
        for second in (lambda: one.drive(run), lambda: asyncio.run(one.adrive(run))):
            with pytest.raises(
                RunBusy, match="run 'r7' is being driven already; wait for that driver, or start a run of its own"
            ):
                second()
        gate.set()
        assert first.result().ok
    assert not run.driven


def test_a_second_task_is_refused_and_the_first_run_ends_well() -> None:
    async def together() -> list[Any]:
        meet = asyncio.Event()
        one = agent(tool("t", meet.wait))
        run = one.start("go")
        first = asyncio.ensure_future(one.adrive(run))
        await asyncio.sleep(0)
        with pytest.raises(RunBusy):
            await one.adrive(run)
        with pytest.raises(RunBusy):
            one.drive(run)
        meet.set()
        return [(await first).ok, run.driven]

    assert asyncio.run(together()) == [True, False]


@both
def test_a_body_cannot_drive_its_own_run(drive: Drive) -> None:
    one = agent(tool("t", lambda: one.drive(run)))
    run = one.start("go")

    assert calls_of(drive(one, run)) == [("t", "raised:RunBusy")]


@both
def test_a_run_that_is_over_is_driven_nowhere(drive: Drive) -> None:
    one = agent()
    run = one.start("go")
    before = drive(one, run)

    assert drive(one, run) == before


# -- interrupts and cancellation -------------------------------------------------------------------------------------


def until_found(turn: Any) -> Callable[[Any], Any]:
    """A decider that asks for the same until all of the last turn's calls have a result."""

    def decide(ask: Any) -> Any:
        last = [call for call in ask.run.calls if call.turn == ask.run.turns]
        return "done" if last and all(call.ok for call in last) else turn

    return decide


@both
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("timeout", [None, LONG], ids=["here", "in its time"])
@pytest.mark.parametrize("beside", [0, 1])
@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_bodys_interrupt_passes_through_and_leaves_the_run_cancelled_and_resumable(
    drive: Drive, error: type[BaseException], timeout: Any, beside: int, asynchronous: bool
) -> None:
    ran: list[int] = []

    def body() -> str:
        ran.append(1)
        if len(ran) == 1:
            raise error
        return "second"

    async def abody() -> str:
        return body()

    fn = abody if asynchronous else body
    turn = [ToolCall("t"), *[ToolCall("u")] * beside]
    one = agent(tool("t", fn, timeout_s=timeout), tool("u", lambda: "beside"), decide=until_found(turn))
    run = one.start("go")
    with pytest.raises(error):
        drive(one, run)

    assert run.stop is not None
    assert (run.stop.reason, run.stop.detail, run.driven) == ("cancelled", "the drive was interrupted", False)
    assert run.calls[0].error == "cancelled"
    answer = one.resume(run)
    assert ("t", "second") in calls_of(answer)
    assert (answer.ok, len(ran)) == (True, 2)


@both
@pytest.mark.parametrize("effect", ["pure", "at_most_once", "undeclared"])
def test_an_interrupt_while_a_result_is_measured_does_not_undo_that_the_body_ran(drive: Drive, effect: str) -> None:
    ran: list[str] = []

    def holds(_: Any) -> bool:
        if len(ran) == 1:
            ran.append("measured")
            raise KeyboardInterrupt
        return True

    paid = tool("t", lambda: ran.append("ran"), effect=effect, post={"holds": holds})
    one = agent(paid, decide=script(ToolCall("t")))
    run = one.start("go")
    with pytest.raises(KeyboardInterrupt):
        drive(one, run)

    assert one.replay(run) == run
    assert (run.body_runs, run.calls[0].error) == (1, "unknown_outcome" if effect == "at_most_once" else "cancelled")
    one.resume(run)
    assert ran.count("ran") == (2 if effect == "pure" else 1)


@pytest.mark.parametrize("effect", ["pure", "idempotent", "undeclared", "at_most_once"])
def test_an_effect_that_was_begun_and_cut_off_is_not_begun_again(effect: str) -> None:
    ran: list[int] = []

    def body() -> str:
        ran.append(1)
        raise KeyboardInterrupt

    one = agent(tool("t", body, effect=effect))
    run = one.start("go")
    with pytest.raises(KeyboardInterrupt):
        one.drive(run)

    assert run.calls[0].error == ("unknown_outcome" if effect == "at_most_once" else "cancelled")
    assert len(ran) == 1


async def cancelled_in(part: str, how: Callable[..., Awaitable[Any]]) -> tuple[Agent, Run, str]:
    """Drive a run that hangs in one part, end the drive from outside once it does, and tell what came back."""
    hangs = asyncio.Event()

    async def hang(value: Any) -> Any:
        if not hangs.is_set():
            hangs.set()
            await asyncio.Event().wait()
        return value

    async def decide(ask: Any) -> Any:
        turn = until_found(ToolCall("t"))(ask)
        return await hang(turn) if part == "decide" else turn

    one = Agent(
        [tool("t", (lambda: hang("x")) if part == "left" else hang_of(hang, part))],
        decide,
        limits=off(max_turns=9, deadline_s=LONG if part == "timed" else None),
        verify=(lambda ask: hang(True)) if part == "verify" else None,
    )
    run = one.start("go")
    try:
        await how(one.adrive(run), hangs)
    except BaseException as error:
        return one, run, type(error).__name__
    return one, run, ""


def hang_of(hang: Any, part: str) -> Any:
    async def body() -> Any:
        return await hang("x") if part in ("tool", "timed") else "x"

    return body


async def cancel_task(drive: Awaitable[Any], hangs: asyncio.Event) -> None:
    task = asyncio.ensure_future(drive)
    await hangs.wait()
    task.cancel()
    await task


async def within_timeout(drive: Awaitable[Any], hangs: asyncio.Event) -> None:
    async def expire() -> None:
        await hangs.wait()
        timer.reschedule(0.0)

    async with asyncio.timeout(LONG) as timer:
        watch = asyncio.ensure_future(expire())
        await drive
        await watch


async def in_a_group(drive: Awaitable[Any], hangs: asyncio.Event) -> None:
    async def fail() -> None:
        await hangs.wait()
        raise LookupError

    async def whole() -> None:
        await drive

    async with asyncio.TaskGroup() as group:
        group.create_task(whole())
        group.create_task(fail())


@pytest.mark.parametrize("part", ["decide", "tool", "timed", "left", "verify"])
@pytest.mark.parametrize(
    ("how", "error"),
    [(cancel_task, "CancelledError"), (within_timeout, "TimeoutError"), (in_a_group, "ExceptionGroup")],
)
def test_the_hosts_cancellation_reaches_the_caller_and_the_run_goes_on_later(part: str, how: Any, error: str) -> None:
    async def cancelled() -> tuple[Agent, Run, str, Any]:
        one, run, came_back = await cancelled_in(part, how)
        reason = run.stop.reason if run.stop is not None else None
        await one.aresume(run)
        return one, run, came_back, reason

    _, run, came_back, reason = asyncio.run(cancelled())
    assert (came_back, reason) == (error, "cancelled")
    assert run.stop is not None
    assert (run.stop.reason, run.calls[-1].value) == ("answered", "x")
    # The pure call that was cut off was begun again; nobody had to ask for it a second time.
    assert [call.body_runs for call in run.calls] == [2 if part in ("tool", "timed", "left") else 1]


@pytest.mark.parametrize("part", ["decider", "left by a decider", "tool"])
def test_a_drive_that_is_closed_leaves_its_run_cancelled(part: str) -> None:
    async def stuck(*_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()

    if part == "tool":
        one = Agent({"wait": {"fn": stuck, "args": {}}}, lambda ask: ToolCall("wait"), limits=Limits(deadline_s=None))
    else:
        one = agent(decide=stuck if part == "decider" else lambda ask: stuck())
    run = one.start("go")

    async def close() -> None:
        driving = one.adrive(run)
        driving.send(None)
        driving.close()

    asyncio.run(close())
    assert run.stop is not None
    assert run.stop.reason == "cancelled"


# -- time ------------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_late_result_never_reaches_trace_memory_or_breaker(
    drive: Drive, asynchronous: bool, gate: threading.Event
) -> None:
    ended = threading.Event()

    def body() -> str:
        gate.wait(LONG)
        ended.set()
        return "late"

    async def abody() -> str:
        try:
            while not gate.is_set():
                await asyncio.sleep(0.01)
        finally:
            ended.set()
        return "late"

    memory = TtlMemory()
    fn = abody if asynchronous else body
    one = agent(
        tool("t", fn, timeout_s=SOON, breaker=BreakerPolicy(failures=9), retry=Retry()), memory=memory, ttl_s=60.0
    )
    answer = drive(one)
    trace = list(answer.run.trace)  # type: ignore[union-attr]
    gate.set()
    assert ended.wait(LONG)

    assert calls_of(answer) == [("t", "raised:TimeoutError")]
    assert [row for row in trace if row[0] == "call_finished"] == [
        ("call_finished", 0.0, "call-1", "raised:TimeoutError")
    ]
    assert answer.run is not None
    assert (answer.run.trace, answer.run.body_runs, len(memory)) == (trace, 1, 0)
    assert one.driver.host.breakers is not None
    assert one.driver.host.breakers.snapshot()["t"].failures == 1


@both
def test_what_is_left_of_the_deadline_bounds_a_body(drive: Drive, gate: threading.Event) -> None:
    one = agent(tool("t", gate.wait, timeout_s=LONG), limits=off(max_turns=9, deadline_s=0.2), clock=None)
    answer = drive(one)

    assert calls_of(answer) == [("t", "raised:TimeoutError")]
    assert answer.stop_reason == "deadline"


@both
def test_a_retry_waits_on_the_hosts_clock_and_adds_up(drive: Drive) -> None:
    clock = ScriptedClock(start=100.0)
    tries: list[int] = []

    def body() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError
        return "x"

    answer = drive(agent(tool("t", body, retry=Retry(attempts=3, backoff_s=(1.5, 2.5))), clock=clock))

    assert (answer.ok, len(tries), clock.slept_s) == (True, 3, 4.0)
    assert (answer.usage["spent_s"], answer.usage["waited_s"], answer.usage["body_runs"]) == (4.0, 4.0, 3)


@both
def test_a_wait_is_kept_before_the_next_turn_where_the_call_is_not_retried(drive: Drive) -> None:
    clock = ScriptedClock()
    verdict = Verdict(result_class="RATE_LIMITED", retry_after_s=7.0)
    drive(agent(tool("t", lambda: 1, classify=lambda outcome: verdict), clock=clock))

    assert clock.slept_s == 7.0


class Standing(ScriptedClock):
    """A clock that does not move, whoever sleeps on it."""

    def sleep(self, seconds: float) -> None:
        """Return at once."""

    async def asleep(self, seconds: float) -> None:
        """Return at once."""


@both
def test_a_wait_comes_to_an_end_on_a_clock_that_stands_still(drive: Drive) -> None:
    answer = drive(
        agent(
            tool("t", lambda: (_ for _ in ()).throw(ConnectionError()), retry=Retry(attempts=3, backoff_s=(5.0,))),
            clock=Standing(),
        )
    )

    # Two waits between three tries, and one before the next turn.
    assert (answer.usage["waited_s"], answer.usage["body_runs"]) == (15.0, 3)


@both
def test_time_is_counted_only_while_a_run_is_driven(drive: Drive) -> None:
    clock = ScriptedClock()
    one = agent(decide=lambda ask: clock.advance(2.0) or "done", clock=clock)
    run = one.start("go")
    clock.advance(50.0)

    assert drive(one, run).usage["spent_s"] == 2.0


class Slow:
    """A memory whose every look takes its time, and then finds something."""

    def __init__(self, clock: ScriptedClock, seconds: float, found: tuple[str, ...]) -> None:
        self.clock, self.seconds, self.found = clock, seconds, found

    def get(self, key: str, scope: str, now: float) -> Remembered | None:
        """Found for the tools named."""
        self.clock.advance(self.seconds)
        return Remembered(ok=True, value="known", stored_at=0.0) if key[1] in self.found else None

    def put(self, key: str, scope: str, value: Remembered) -> None:
        """Nothing is kept."""

    def forget(self, scope: str) -> None:
        """Nothing was kept."""


@both
@pytest.mark.parametrize("found", [("a",), ("b",), ("c",), ("a", "b"), ("a", "b", "c"), ("a", "c"), ()])
@pytest.mark.parametrize("seconds", [0.0, 5.0, 9.5])
def test_time_that_runs_out_between_two_calls_settles_each_of_them_once(
    drive: Drive, found: tuple[str, ...], seconds: float
) -> None:
    clock = ScriptedClock()
    tools = [tool(name, lambda: "new", breaker=BreakerPolicy(failures=1)) for name in "abc"]
    one = agent(
        *tools,
        decide=script([ToolCall(name) for name in "abc"]),
        clock=clock,
        memory=Slow(clock, seconds, found),
        ttl_s=60.0,
        limits=off(max_turns=9, deadline_s=10.0, reserve_s=1.0),
    )
    run = one.start("go")
    drive(one, run)

    assert [call.tool for call in run.calls] == ["a", "b", "c"]
    assert all(call.ok is not None for call in run.calls)
    assert run.stop is not None
    assert run.stop.reason == ("answered" if seconds == 0.0 else "deadline")
    assert one.driver.host.breakers is not None
    assert {snapshot.state for snapshot in one.driver.host.breakers.snapshot().values()} <= {BreakerState.CLOSED}


# -- the circuit -----------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("seconds", [None, LONG])
def test_a_probe_that_is_interrupted_leaves_its_place_free(drive: Drive, seconds: Any) -> None:
    clock = ScriptedClock()
    errors: list[BaseException | None] = [ValueError(), KeyboardInterrupt(), None]

    def body() -> str:
        error = errors.pop(0)
        if error is not None:
            raise error
        return "x"

    one = agent(tool("t", body, timeout_s=seconds, breaker=BreakerPolicy(failures=1, open_s=5.0)), clock=clock)
    assert calls_of(drive(one)) == [("t", "raised:ValueError")]
    assert calls_of(drive(one)) == [("t", "refused:circuit_open")]
    clock.advance(5.0)
    with pytest.raises(KeyboardInterrupt):
        drive(one)
    assert calls_of(drive(one)) == [("t", "x")]


@both
def test_a_probe_whose_time_ran_out_before_it_began_leaves_its_place_free(drive: Drive) -> None:
    clock = ScriptedClock()
    errors = [ValueError()]

    def body() -> str:
        if errors:
            raise errors.pop()
        return "x"

    tools = [tool("a", body, breaker=BreakerPolicy(failures=1, open_s=100.0)), tool("b", lambda: "new")]
    one = agent(
        *tools, decide=script([ToolCall("a"), ToolCall("b")]), clock=clock, memory=Slow(clock, 5.0, ("b",)), ttl_s=60.0
    )
    drive(one)
    clock.advance(100.0)
    answer = drive(one, one.start("go", limits=off(max_turns=9, deadline_s=10.0, reserve_s=1.0)))
    assert calls_of(answer) == [("a", "skipped:deadline"), ("b", "known")]
    assert calls_of(drive(one)) == [("a", "x"), ("b", "known")]


@both
def test_a_memory_that_raises_gives_its_tickets_back_and_loses_nothing(drive: Drive) -> None:
    class Broken(TtlMemory):
        broken = True

        def get(self, key: str, scope: str, now: float) -> Remembered | None:
            if self.broken and "'b'" in key:
                raise OSError("no memory")
            return super().get(key, scope, now)

    memory, ran = Broken(), []
    one = agent(
        tool("a", lambda: ran.append("a") or 1, breaker=BreakerPolicy(failures=1)),
        tool("b", lambda: 2),
        memory=memory,
        ttl_s=60.0,
        decide=until_found([ToolCall("a"), ToolCall("b")]),
    )
    run = one.start("go")
    with pytest.raises(OSError, match="no memory"):
        drive(one, run)
    assert ran == []
    memory.broken = False
    assert calls_of(one.resume(run))[-2:] == [("a", 1), ("b", 2)]


@both
def test_what_a_memory_raises_when_the_run_is_over_changes_nothing_any_more(drive: Drive) -> None:
    class Full(TtlMemory):
        def put(self, key: str, scope: str, value: Remembered) -> None:
            raise OSError("full")

    one = agent(tool("t", lambda: 1), memory=Full(), ttl_s=60.0, limits=off(max_turns=1))
    run = one.start("go")
    with pytest.raises(OSError, match="full"):
        drive(one, run)

    assert run.stop is not None
    assert (run.stop.reason, calls_of(drive(one, run)), run.driven) == ("max_turns", [("t", 1)], False)


@both
@pytest.mark.parametrize(
    ("effect", "tries", "error"),
    [
        ("pure", 2, ""),
        ("idempotent", 2, ""),
        ("undeclared", 1, "unknown_outcome"),
        ("at_most_once", 1, "unknown_outcome"),
    ],
)
def test_a_call_whose_driver_is_gone_is_begun_again_only_where_that_does_no_harm(
    drive: Drive, effect: str, tries: int, error: str
) -> None:
    ran: list[str] = []

    def body(context: ToolContext) -> str:
        ran.append(context.idempotency_key)
        return "x"

    one = agent(
        tool("t", body, effect=effect, context_parameter="context"),
        tool("u", lambda: "y"),
        decide=script([ToolCall("u"), ToolCall("t")]),
    )
    crashed = one.start("go", run_id="r1")
    one.engine.tell(crashed, Decided(Decision(calls=(ToolCall("t"), ToolCall("u")))))
    first = crashed.open_calls[:1]
    one.engine.begin(crashed, first)
    ran.append("r1:call-1")
    answer = drive(one, one.load(one.save(crashed)))

    assert ran == ["r1:call-1"] * tries
    assert calls_of(answer) == [("t", error or "x"), ("u", "y")]


# -- calls beside each other -----------------------------------------------------------------------------------------


@both
def test_pure_calls_of_one_turn_really_overlap_and_fold_in_call_order(drive: Drive) -> None:
    meet = threading.Barrier(3, timeout=LONG)
    tools = [tool(name, lambda name=name: meet.wait() * 0 or name) for name in "cab"]

    assert calls_of(drive(agent(*tools, decide=script([ToolCall(name) for name in "cab"])))) == [
        ("c", "c"),
        ("a", "a"),
        ("b", "b"),
    ]


@both
@pytest.mark.parametrize("effect", ["idempotent", "undeclared", "at_most_once"])
def test_effects_of_one_turn_run_one_after_another_in_order(drive: Drive, effect: str) -> None:
    log: list[str] = []

    def body(name: str) -> str:
        log.append(f"+{name}")
        log.append(f"-{name}")
        return name

    tools = [
        tool(name, lambda name=name: body(name), effect="pure" if name == "b" else effect, timeout_s=LONG)
        for name in "abc"
    ]
    drive(agent(*tools, decide=script([ToolCall(name) for name in "abcab"])))

    assert log == ["+a", "-a", "+b", "-b", "+c", "-c", "+a", "-a", "+b", "-b"]


@both
@pytest.mark.parametrize("most", [1, 2])
def test_no_more_bodies_run_at_once_than_max_parallel(drive: Drive, most: int) -> None:
    inside, seen, lock = [0], [0], threading.Lock()
    meet = threading.Barrier(most, timeout=LONG)

    def body(n: int) -> int:
        with lock:
            inside[0] += 1
            seen[0] = max(seen[0], inside[0])
        meet.wait()
        with lock:
            inside[0] -= 1
        return n

    drive(
        agent(
            tool("t", body),
            decide=script([ToolCall("t", {"n": n}) for n in range(4)]),
            limits=off(max_turns=9, max_parallel=most),
        )
    )
    assert seen == [most]


@both
@pytest.mark.parametrize("asynchronous", [True, False])
def test_exclusive_bodies_never_overlap_also_across_runs(drive: Drive, asynchronous: bool) -> None:
    inside, most, lock = [0], [0], threading.Lock()

    def enter(step: int) -> None:
        with lock:
            inside[0] += step
            most[0] = max(most[0], inside[0])

    def body(n: int) -> int:
        enter(1)
        threading.Event().wait(0.001)
        enter(-1)
        return n

    async def abody(n: int) -> int:
        enter(1)
        await asyncio.sleep(0.001)
        enter(-1)
        return n

    fn = abody if asynchronous else body
    one = agent(
        tool("t", fn, exclusive=True, effect="undeclared"), decide=script(*[ToolCall("t", {"n": n}) for n in range(3)])
    )
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: drive(one).ok, range(8)))

    assert (all(answers), most) == (True, [1])


@both
def test_an_exclusive_tool_waits_for_its_own_body_that_was_given_up(drive: Drive, gate: threading.Event) -> None:
    order: list[str] = []

    def body(n: int) -> int:
        order.append(f"+{n}")
        if n == 0:
            gate.wait(LONG)
        order.append(f"-{n}")
        return n

    def second() -> ToolCall:
        threading.Timer(0.01, gate.set).start()
        return ToolCall("t", {"n": 1})

    one = agent(
        tool("t", body, exclusive=True, effect="undeclared", timeout_s=SOON * 2),
        decide=script(ToolCall("t", {"n": 0}), second),
    )
    assert calls_of(drive(one)) == [("t", "raised:TimeoutError"), ("t", 1)]
    assert order == ["+0", "-0", "+1", "-1"]


# -- what reaches a body ---------------------------------------------------------------------------------------------


@both
def test_the_callers_context_reaches_bodies_and_no_saved_run(drive: Drive) -> None:
    secret = type("Client", (), {"__reduce__": None})()
    seen: list[ToolContext] = []
    one = agent(
        tool(
            "t",
            lambda context: seen.append(context) or 1,
            context_parameter="context",
            timeout_s=5.0,
            retry=Retry(attempts=2, backoff_s=(0.0,)),
            effect="idempotent",
            classify=lambda outcome: Verdict(result_class="RETRYABLE") if len(seen) == 1 else None,
        ),
    )
    run = one.start("go", run_id="r1")
    drive(one, run, context=secret)

    assert [context.context for context in seen] == [secret, secret]
    assert {context.idempotency_key for context in seen} == {"r1:call-1"}
    assert [(context.run_id, context.call_id, context.tool, context.attempt, context.left_s) for context in seen] == [
        ("r1", "call-1", "t", 1, 5.0), ("r1", "call-1", "t", 2, 5.0),
    ]  # fmt: skip
    assert "Client" not in one.save(run)
    assert one.load(one.save(run)) == run


@both
def test_arguments_that_a_builder_refuses_are_a_failure_of_a_body_that_did_not_run(drive: Drive) -> None:
    def build(args: Any) -> Any:
        raise LookupError("no")

    answer = drive(
        agent(tool("t", lambda: 1, build=build), tool("u", lambda: 2), decide=script([ToolCall("t"), ToolCall("u")]))
    )

    assert calls_of(answer) == [("t", "raised:LookupError"), ("u", 2)]
    assert answer.usage["body_runs"] == 1


@both
def test_a_tool_that_goes_while_its_call_is_on_its_way_is_told(drive: Drive) -> None:
    one = agent(tool("t", lambda: 1), tool("u", lambda: 2), decide=script([ToolCall("t"), ToolCall("u")]))
    box = one.engine.setup.box

    class Going:
        """A toolbox that forgets a tool once its calls were admitted."""

        def get(self, name: Any) -> Tool | None:
            return None if name == "t" and any(call.admitted for call in run.open_calls) else box.get(name)

        def names(self) -> Any:
            return box.names()

    engine = type(one.engine)(attrs.evolve(one.engine.setup, box=Going()))
    run = engine.start("go")
    driver = attrs.evolve(one.driver, engine=engine)
    driver.drive(run) if drive is sync else asyncio.run(driver.adrive(run))

    assert [(call.tool, call.error) for call in run.calls] == [("t", "args:unknown_tool"), ("u", "")]


# -- the journal -----------------------------------------------------------------------------------------------------


@both
def test_the_journal_of_a_drive_replays_to_the_same_run(drive: Drive) -> None:
    tries: list[int] = []

    def flaky() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError
        return "x"

    one = agent(
        tool("t", flaky, retry=Retry(attempts=2)),
        tool("u", lambda: 1),
        decide=script([ToolCall("t"), ToolCall("u")], ToolCall("none")),
    )
    run = one.start("go")
    drive(one, run)

    assert one.replay(run) == run
    assert one.load(one.save(run)) == run


def test_ten_thousand_steps_of_one_run_work_and_the_run_ends() -> None:
    one = Agent(
        [tool("t", lambda n: n)],
        lambda ask: ToolCall("t", {"n": ask.run.turns}),
        limits=off(max_turns=10_000),
        policy=Policy(reserve_answer=False),
        clock=ScriptedClock(),
    )
    answer = one.run("go")

    assert (answer.stop_reason, answer.usage["turns"], answer.usage["body_runs"]) == ("max_turns", 10_000, 10_000)
    assert len({call.id for call in answer.run.calls}) == 10_000  # type: ignore[union-attr]


@both
def test_a_call_that_was_settled_while_another_one_was_checked_is_not_checked(drive: Drive) -> None:
    memory, fatal = TtlMemory(), lambda outcome: Verdict(result_class="FATAL")
    asked: list[str] = []
    told = Hooks(before_tool_call=lambda about, call: asked.append(call.id))
    gone = tool("gone", lambda: 1, effect="pure", negative_ttl_s=60, approval=True, classify=fatal)
    one = agent(gone, tool("u", lambda: 1), decide=script([ToolCall("gone", id="a"), ToolCall("u", id="b")]), memory=memory, hooks=told)
    for pauses in (True, False):
        run = one.start("go", scope="all")
        drive(one, run)
        if pauses:
            one.approve(run, "a")
            drive(one, run)

    assert asked == ["a", "b", "a"]
    assert [call.error for call in run.calls] == ["result:fatal", "skipped:fatal"]
    assert run.stop is not None
    assert run.stop.reason == "fatal"
    assert one.replay(run) == run
