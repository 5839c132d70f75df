"""Hooks and strategies of a run: seed 004's budget of tool calls as a host writes it, and what a hook may not do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from fsm_agent import Agent, Decision, Limits, Policy, Run, Tool, ToolCall
from fsm_agent.core.answers import Answer
from fsm_agent.core.autogpt_table import AUTOGPT
from fsm_agent.core.errors import BuildError, RunError
from fsm_agent.core.strategies import LoopState, combine, max_iterations, until_finish_reason
from fsm_agent.core.values import StopReason
from fsm_agent.host.clock import ScriptedClock, SystemClock
from fsm_agent.host.hooks import HookCall, HookContext, Hooks, Skip
from fsm_agent.host.memory import TtlMemory

FREE = Limits.off(max_steps=500, max_turns=20)


def sync(agent: Agent, run: Run | None = None, **more: Any) -> Answer:
    return agent.drive(run if run is not None else agent.start("go"), **more)


def tasks(agent: Agent, run: Run | None = None, **more: Any) -> Answer:
    return asyncio.run(agent.adrive(run if run is not None else agent.start("go"), **more))


Drive = Callable[..., Answer]
both = pytest.mark.parametrize("drive", [sync, tasks])


def script(*turns: Any) -> Callable[[Any], Any]:
    def decide(ask: Any) -> Any:
        return turns[ask.run.turns] if ask.run.turns < len(turns) else "done"

    return decide


def reads(*numbers: int) -> list[ToolCall]:
    return [ToolCall("read", {"n": n}) for n in numbers]


class Desk:
    """An agent with a pure tool, `read`, and a log of its bodies."""

    def __init__(self, *turns: Any, tools: tuple[Tool, ...] = (), **more: Any) -> None:
        self.ran: list[int] = []

        def read(n: int) -> dict[str, Any]:
            self.ran.append(n)
            return {"rows": [n]}

        box = [Tool(name="read", fn=read, effect="pure"), *tools]
        self.agent = Agent(box, script(*turns), **{"limits": FREE, "clock": ScriptedClock(), **more})


def settled(answer: Answer) -> list[str]:
    assert answer.run is not None
    return ["reused" if call.reused else call.error or "ok" for call in answer.run.calls]


# -- seed 004: a budget of tool calls, as an application writes it ---------------------------------------------------


def tool_call_budget(most: int | None = None, per_turn: int | None = None) -> Hooks:
    """Skip what is over the budget of one turn, and begin no further turn once so many calls were emitted."""
    made = 0

    def reset(*about: Any) -> None:
        nonlocal made
        made = 0

    def before(about: HookContext, call: HookCall) -> Skip | None:
        nonlocal made
        if per_turn is None:
            return None
        made += 1
        if made > per_turn:
            return Skip({"error": f"Skipped: exceeded maxToolCallsPerTurn ({per_turn})"})
        return None

    def go_on(about: HookContext, state: LoopState) -> bool | None:
        return False if most is not None and state.tool_call_count >= most else None

    return Hooks(on_iteration=reset, after_tool_phase=reset, before_tool_call=before, should_continue=go_on)


@both
def test_a_turn_may_not_fan_out_over_its_budget_and_the_next_has_a_fresh_one(drive: Drive) -> None:
    desk = Desk(reads(1, 2, 3, 4), reads(5, 6, 7), hooks=tool_call_budget(per_turn=2))
    answer = drive(desk.agent)

    assert settled(answer) == ["ok", "ok", "skipped:hook", "skipped:hook", "ok", "ok", "skipped:hook"]
    assert sorted(desk.ran) == [1, 2, 5, 6]
    assert (answer.text, answer.stop_reason) == ("done", "answered")
    assert answer.run is not None
    history = desk.agent.history(answer.run)
    assert sum("exceeded maxToolCallsPerTurn (2)" in message.text for message in history) == 3
    assert desk.agent.replay(answer.run) == answer.run


@both
def test_no_turn_begins_once_so_many_calls_were_emitted_skipped_ones_included(drive: Drive) -> None:
    desk = Desk(reads(1, 2, 3), reads(4), reads(5), hooks=tool_call_budget(most=4, per_turn=1))
    answer = drive(desk.agent)

    # The turn that crosses the budget is brought to its end.
    assert desk.ran == [1, 4]
    assert (answer.stop_reason, answer.status) == ("strategy", "partial")
    assert "should_continue said stop" in str(answer.stop)
    assert answer.usage["turns"] == 2


@both
def test_a_batch_that_is_resumed_after_a_pause_has_a_fresh_budget(drive: Drive) -> None:
    asks = Tool(name="ask", fn=lambda n: n, effect="pure", approval=True)
    turn = [ToolCall("ask", {"n": n}, f"c{n}") for n in range(3)]
    desk = Desk(turn, reads(7, 8, 9), tools=(asks,), hooks=tool_call_budget(per_turn=2))
    run = desk.agent.start("go")
    answer = drive(desk.agent, run)
    assert [one.call_id for one in answer.pending] == ["c0", "c1"]
    for one in answer.pending:
        desk.agent.approve(run, one.call_id)
    answer = drive(desk.agent, run)

    assert settled(answer) == ["ok", "ok", "skipped:hook", "ok", "ok", "skipped:hook"]


@both
def test_a_skip_for_the_budget_wins_over_what_is_remembered(drive: Drive) -> None:
    desk = Desk(reads(1), reads(2, 1), reads(1), memory=TtlMemory(), ttl_s=60.0, hooks=tool_call_budget(per_turn=1))
    answer = drive(desk.agent)

    assert settled(answer) == ["ok", "ok", "skipped:hook", "reused"]
    assert desk.ran == [1, 2]


# -- when hooks come, and what they are shown ------------------------------------------------------------------------


class Log:
    """Hooks that abstain and write down when they came."""

    def __init__(self) -> None:
        self.came: list[tuple[str, Any]] = []

    def hooks(self) -> Hooks:
        return Hooks(
            on_iteration=lambda about: self.came.append(("iteration", about.iteration_count)),
            before_tool_call=lambda about, call: self.came.append(("before", (call.id, call.ok))),
            after_tool_phase=lambda about, calls: self.came.append(("after", [(call.id, call.ok) for call in calls])),
            should_continue=lambda about, state: self.came.append(("continue", state.iteration_count)),
        )


@both
def test_hooks_come_in_the_order_of_the_seed(drive: Drive) -> None:
    log = Log()
    desk = Desk([ToolCall("read", {"n": 1}, "a"), ToolCall("nothing", {}, "b")], [ToolCall("read", {"n": 2}, "c")], hooks=log.hooks())
    drive(desk.agent)

    assert log.came == [
        ("iteration", 0), ("before", ("a", None)), ("after", [("a", True), ("b", False)]),
        ("continue", 1), ("iteration", 1), ("before", ("c", None)), ("after", [("c", True)]),
        ("continue", 2), ("iteration", 2),
    ]  # fmt: skip


@both
def test_the_last_calls_of_a_run_are_shown_too(drive: Drive) -> None:
    log = Log()
    desk = Desk(reads(1), limits=Limits.off(max_steps=500, max_turns=1), hooks=log.hooks())
    answer = drive(desk.agent)

    assert answer.stop_reason == "max_turns"
    assert [what for what, _ in log.came] == ["iteration", "before", "after"]


@both
def test_one_that_fails_after_the_calls_that_ended_a_run_leaves_it_its_reason_and_its_last_words(drive: Drive) -> None:
    def fails(*about: Any) -> Any:
        raise OSError("the log is full")

    limits = Limits.off(max_steps=500, max_turns=9, max_tool_calls=1)
    desk = Desk(reads(1, 2), limits=limits, close=lambda ask: "so far one", hooks=Hooks(after_tool_phase=fails))
    answer = drive(desk.agent)

    assert answer.stop_reason == "max_tool_calls"
    assert answer.text.startswith("so far one")


def waiting(log: Log, **more: Any) -> Desk:
    turn = [ToolCall("ask", {"n": 1}, "a"), ToolCall("where", {"n": 1}, "w")]
    tools = (
        Tool(name="ask", fn=lambda n: n, effect="pure", approval=True),
        Tool(name="where", fn=print, effect="pure", where="client"),
    )
    return Desk(turn, tools=tools, hooks=log.hooks(), **more)


def approved_and_delivered(agent: Agent, run: Run) -> None:
    agent.approve(run, "a")
    agent.deliver(run, "w", 1)


def denied_and_delivered(agent: Agent, run: Run) -> None:
    agent.deliver_error(run, "w", "OfflineError")
    agent.deny(run, "a")


def superseded(agent: Agent, run: Run) -> None:
    agent.message(run, "something else")


@both
@pytest.mark.parametrize("decide", [approved_and_delivered, denied_and_delivered, superseded])
@pytest.mark.parametrize("saved", [False, True])
def test_a_turn_that_people_settle_is_shown_once_when_the_run_goes_on(drive: Drive, decide: Any, saved: bool) -> None:
    log = Log()
    desk = waiting(log)
    run = desk.agent.start("go")
    drive(desk.agent, run)
    drive(desk.agent, run)
    assert log.came == [("iteration", 0), ("before", ("a", None)), ("before", ("w", None))]
    log.came.clear()
    decide(desk.agent, run)
    if saved:
        run = desk.agent.load(desk.agent.save(run))
    assert drive(desk.agent, run).text == "done"

    assert [what for what, _ in log.came] == ["after", "continue", "iteration"]
    assert [call for call, _ in log.came[0][1]] == ["a", "w"]


@both
def test_a_turn_is_not_shown_again_to_the_hooks_of_a_later_drive(drive: Drive) -> None:
    log = Log()
    fails = [KeyboardInterrupt()]

    def decide(ask: Any) -> Any:
        if not ask.run.turns:
            return ToolCall("ask", {"n": 1}, "a")
        if fails:
            raise fails.pop()
        return "done"

    agent = Agent([Tool(name="ask", fn=lambda n: n, approval=True)], decide, limits=FREE, hooks=log.hooks())
    run = agent.start("go")
    drive(agent, run)
    agent.deny(run, "a")
    with pytest.raises(KeyboardInterrupt):
        drive(agent, run)
    run = agent.load(agent.save(run))
    agent.engine.resume(run)
    assert drive(agent, run).text == "done"

    assert [what for what, _ in log.came].count("after") == 1


@both
def test_a_turn_whose_driver_was_lost_is_shown_when_another_takes_over(drive: Drive) -> None:
    log = Log()
    pay = Tool(name="pay", fn=lambda n: n, effect="at_most_once")
    desk = Desk(ToolCall("pay", {"n": 1}, "a"), tools=(pay,), hooks=log.hooks())
    engine, run = desk.agent.engine, desk.agent.start("go")
    from fsm_agent.core.events import Checked, Decided, Started

    engine.tell(run, Decided(Decision(calls=(ToolCall("pay", {"n": 1}, "a"),))))
    engine.tell(run, Checked("a"))
    engine.tell(run, Started(("a",)))
    answer = drive(desk.agent, run)

    assert settled(answer) == ["unknown_outcome"]
    assert log.came[0] == ("after", [("a", False)])


@both
def test_the_callers_context_reaches_hooks_and_no_saved_run(drive: Drive) -> None:
    seen: list[Any] = []
    hooks = Hooks(
        on_iteration=lambda about: seen.append(about.context),
        before_tool_call=lambda about, call: seen.append(about.context),
        after_tool_phase=lambda about, calls: seen.append(about.context),
        should_continue=lambda about, state: seen.append(about.context),
    )
    desk = Desk(reads(1), hooks=hooks)
    context = object()
    answer = drive(desk.agent, context=context)
    assert answer.run is not None

    assert len(seen) == 5
    assert all(one is context for one in seen)
    assert "object" not in desk.agent.save(answer.run)


@both
def test_what_hooks_do_to_what_they_are_shown_reaches_neither_run_nor_memory_nor_results(drive: Drive) -> None:
    def spoil(*shown: Any) -> None:
        for one in shown:
            for part in one if isinstance(one, tuple) else (one,):
                for value in (getattr(part, "args", None), getattr(part, "value", None)):
                    if isinstance(value, dict):
                        for inner in value.values():
                            if isinstance(inner, list):
                                inner.append("spoilt")
                        value["n"] = "spoilt"

    def strategy(state: LoopState) -> None:
        if isinstance(state.messages, list):
            state.messages.clear()

    hooks = Hooks(on_iteration=spoil, before_tool_call=spoil, after_tool_phase=spoil, should_continue=spoil)
    spoilt = Desk(reads(1), reads(1), hooks=hooks, strategy=strategy, memory=TtlMemory(), ttl_s=60.0)
    plain = Desk(reads(1), reads(1), hooks=Hooks(before_tool_call=lambda about, call: None), memory=TtlMemory(), ttl_s=60.0)
    one, two = (desk.agent.start("go", run_id="r") for desk in (spoilt, plain))
    drive(spoilt.agent, one)
    drive(plain.agent, two)

    assert one == two
    assert spoilt.agent.save(one) == plain.agent.save(two)
    assert spoilt.agent.history(one) == plain.agent.history(two)
    assert [call.value for call in one.calls] == [{"rows": [1]}] * 2


@both
def test_what_a_strategy_does_to_the_arguments_in_the_history_does_not_reach_the_run(drive: Drive) -> None:
    def strategy(state: LoopState) -> None:
        for message in state.messages:
            for call in message.calls:
                call.args["n"] = "spoilt"

    desk = Desk(reads(1), reads(2), strategy=strategy)
    answer = drive(desk.agent)
    assert answer.run is not None

    assert [call.args for call in answer.run.calls] == [{"n": 1}, {"n": 2}]
    assert "spoilt" not in desk.agent.save(answer.run)


@both
def test_what_a_hook_answered_may_be_changed_by_it_later_without_harm(drive: Drive) -> None:
    result: dict[str, Any] = {"rows": []}
    desk = Desk(reads(1), hooks=Hooks(before_tool_call=lambda about, call: Skip(result, "no")))
    answer = drive(desk.agent)
    result["rows"].append("later")
    assert answer.run is not None

    assert answer.run.calls[0].value == {"rows": []}
    assert desk.agent.replay(answer.run) == answer.run
    assert "later" not in desk.agent.save(answer.run)


# -- nonsense and failures -------------------------------------------------------------------------------------------


class Falseless:
    def __bool__(self) -> bool:
        raise ValueError("neither")


@both
@pytest.mark.parametrize("word", [5, "no", False, {"skip": True}, Falseless(), object(), Skip], ids=lambda word: type(word).__name__)
def test_whatever_is_said_before_a_call_but_none_keeps_its_body_from_running(drive: Drive, word: Any) -> None:
    desk = Desk(reads(1), hooks=Hooks(before_tool_call=lambda about, call: word))
    answer = drive(desk.agent)
    assert answer.run is not None

    assert (desk.ran, settled(answer), answer.text) == ([], ["skipped:hook"], "done")
    run = desk.agent.load(desk.agent.save(answer.run))
    assert run == answer.run == desk.agent.replay(answer.run)


@both
@pytest.mark.parametrize("why", ["budget", "", " ", None, 5, ...], ids=repr)
def test_a_skip_goes_by_a_text(drive: Drive, why: Any) -> None:
    desk = Desk(reads(1), hooks=Hooks(before_tool_call=lambda about, call: Skip({1: object()}, why)))
    answer = drive(desk.agent)
    assert answer.run is not None

    assert settled(answer) == ["skipped:budget" if why == "budget" else "skipped:hook"]
    assert desk.agent.load(desk.agent.save(answer.run)) == answer.run == desk.agent.replay(answer.run)


FAILURES = [
    ValueError("blocked"), StopIteration("blocked"), asyncio.CancelledError("blocked"), GeneratorExit("blocked"),
    ExceptionGroup("blocked", [ValueError()]),
]  # fmt: skip


def raising(error: BaseException) -> Any:
    def hook(*about: Any) -> Any:
        raise error

    return hook


def araising(error: BaseException) -> Any:
    async def hook(*about: Any) -> Any:
        await asyncio.sleep(0)
        raise error

    return hook


@pytest.mark.parametrize("made", [raising, araising])
@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("hook", ["on_iteration", "after_tool_phase", "should_continue", "strategy"])
@both
def test_one_that_raises_ends_the_run_with_its_name_and_no_closing_turn(drive: Drive, hook: str, error: BaseException, made: Any) -> None:
    if made is araising and (drive is sync or isinstance(error, StopIteration)):
        made = raising
    more: dict[str, Any] = {"strategy": made(error)} if hook == "strategy" else {"hooks": Hooks(**{hook: made(error)})}
    closed: list[Any] = []
    desk = Desk(reads(1), reads(2), close=lambda ask: closed.append(ask) or "closing", **more)
    answer = drive(desk.agent)

    name = "hook" if hook == "strategy" else hook
    assert answer.stop_reason == "strategy"
    assert f"{name} raised {type(error).__name__}: blocked" in str(answer.stop)
    assert (closed, desk.ran) == ([], [] if hook == "on_iteration" else [1])
    assert answer.status == ("failed" if hook == "on_iteration" else "partial")
    assert answer.run is not None
    assert desk.agent.replay(answer.run) == answer.run
    assert not answer.run.driven


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
@both
def test_one_that_raises_before_a_call_refuses_that_call_alone(drive: Drive, error: BaseException) -> None:
    def before(about: HookContext, call: HookCall) -> None:
        if call.args["n"] == 1:
            raise error

    desk = Desk(reads(1, 2), hooks=Hooks(before_tool_call=before))
    answer = drive(desk.agent)

    assert settled(answer) == [f"skipped:before_tool_call raised {type(error).__name__}", "ok"]
    assert (desk.ran, answer.text) == ([2], "done")
    assert answer.run is not None
    assert answer.run.tool_errors == 0


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)], ids=repr)
@pytest.mark.parametrize("hook", ["on_iteration", "before_tool_call", "after_tool_phase", "should_continue"])
@both
def test_an_interrupt_of_a_hook_passes_through_and_leaves_the_run_resumable(drive: Drive, hook: str, error: BaseException) -> None:
    armed = [True]

    def interrupts(*about: Any) -> None:
        if armed:
            armed.clear()
            raise error

    desk = Desk(reads(1), hooks=Hooks(**{hook: interrupts}))
    run = desk.agent.start("go")
    with pytest.raises(type(error)):
        drive(desk.agent, run)

    assert desk.agent.answer(run).stop_reason == "cancelled"
    assert desk.agent.resume(run).text == "done"


@both
def test_a_secret_in_the_words_of_a_hook_that_raises_is_not_told(drive: Drive) -> None:
    def before(about: HookContext, call: HookCall) -> None:
        raise ValueError(f"bad token {call.args['token']}")

    login = Tool(name="login", fn=print, secret=["token"])
    desk = Desk(ToolCall("login", {"token": "hunter2hunter2"}), tools=(login,), hooks=Hooks(before_tool_call=before))
    answer = drive(desk.agent)
    assert answer.run is not None

    assert "hunter2hunter2" not in desk.agent.save(answer.run)
    assert "hunter2hunter2" not in str(desk.agent.history(answer.run))
    assert "bad token" in str(answer.run.calls[0].value)


def test_the_hosts_cancellation_in_a_hook_is_the_hosts() -> None:
    async def main() -> tuple[Desk, Run]:
        begun = asyncio.Event()

        async def hook(*about: Any) -> None:
            begun.set()
            await asyncio.sleep(20)

        desk = Desk(reads(1), hooks=Hooks(before_tool_call=hook))
        run = desk.agent.start("go")
        task = asyncio.create_task(desk.agent.adrive(run))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return desk, run

    desk, run = asyncio.run(main())
    assert desk.agent.answer(run).stop_reason == "cancelled"


# -- coroutine functions ---------------------------------------------------------------------------------------------


def test_coroutine_functions_serve_in_a_task() -> None:
    came: list[str] = []

    def hook(name: str, word: Any = None) -> Any:
        async def one(*about: Any) -> Any:
            await asyncio.sleep(0)
            came.append(name)
            return word

        return one

    async def go_on(state: LoopState) -> bool:
        return state.iteration_count < 2

    hooks = Hooks(
        on_iteration=hook("i"), before_tool_call=hook("b", Skip("mine")), after_tool_phase=hook("a"), should_continue=hook("c", True)
    )
    desk = Desk(reads(1), reads(2), reads(3), hooks=hooks, strategy=go_on)
    answer = tasks(desk.agent)

    assert came == ["i", "b", "a", "c", "i", "b", "a", "c"]
    assert (desk.ran, settled(answer), answer.stop_reason) == ([], ["skipped:hook"] * 2, "strategy")


async def never(*about: Any, **args: Any) -> None:
    """What nobody answers."""
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"hooks": Hooks(on_iteration=never)}, "on_iteration"),
        ({"hooks": Hooks(should_continue=never)}, "should_continue"),
        ({"hooks": Hooks(after_tool_phase=never)}, "after_tool_phase"),
        ({"strategy": never}, "never"),
    ],
)
def test_one_that_is_never_answered_ends_the_run_with_its_name_when_the_time_is_up(more: dict[str, Any], why: str) -> None:
    limits = Limits.off(max_turns=20, max_steps=500, deadline_s=0.03)
    answer = tasks(Desk(reads(1), clock=SystemClock(), limits=limits, **more).agent)
    assert answer.run is not None
    assert answer.run.stop is not None
    assert (answer.stop_reason, answer.run.stop.detail.partition(": ")[0]) == ("strategy", f"{why} raised OutOfTime")


def test_one_that_is_never_answered_before_a_call_refuses_that_call_and_an_approval_waits_for_a_person() -> None:
    limits = Limits.off(max_turns=20, max_steps=500, deadline_s=0.03)
    refused = Desk(reads(1), clock=SystemClock(), limits=limits, hooks=Hooks(before_tool_call=never))
    answer = tasks(refused.agent)
    assert (settled(answer), refused.ran) == (["skipped:before_tool_call raised OutOfTime"], [])

    asks = Tool(name="pay", fn=lambda: 1, effect="at_most_once", approval=never)
    paused = Desk([ToolCall("pay", {})], tools=(asks,), clock=SystemClock(), limits=limits)
    assert tasks(paused.agent).status == "paused"


async def later(*about: Any) -> None:
    """A hook or strategy that only a task can await."""


@pytest.mark.parametrize("inside", [False, True], ids=["outside a loop", "inside a loop"])
@pytest.mark.parametrize(
    ("more", "name"),
    [
        *(({"hooks": Hooks(**{hook: later})}, f"Hooks.{hook}") for hook in
          ("on_iteration", "before_tool_call", "after_tool_phase", "should_continue")),
        ({"hooks": [Hooks(), Hooks(on_iteration=later)]}, "Hooks.on_iteration"),
        ({"strategy": later}, "the strategy later"),
        ({"strategy": combine([max_iterations(3), later])}, "the strategy later"),  # type: ignore[list-item]
    ],
)  # fmt: skip
def test_a_sync_run_names_the_async_one_before_anything_is_called(more: dict[str, Any], name: str, inside: bool) -> None:
    asked: list[Any] = []
    agent = Agent([], lambda ask: asked.append(ask) or "done", limits=FREE, **more)
    run = agent.start("go")
    before = agent.save(run)

    async def main() -> None:
        agent.drive(run)

    with pytest.raises(RunError, match=f"^{name} is a coroutine function; await arun or adrive instead"):
        asyncio.run(main()) if inside else agent.drive(run)

    assert (asked, run.driven, agent.save(run)) == ([], False, before)
    assert asyncio.run(agent.adrive(run)).text == "done"


def test_what_a_plain_function_gives_to_be_awaited_is_a_failure_of_a_sync_run() -> None:
    desk = Desk(reads(1), hooks=Hooks(before_tool_call=lambda about, call: later()))
    answer = sync(desk.agent)

    assert settled(answer) == ["skipped:before_tool_call raised TypeError"]
    assert desk.ran == []


# -- strategies ------------------------------------------------------------------------------------------------------


def says(word: Any, log: list[Any]) -> Callable[[LoopState], Any]:
    def opinion(state: LoopState) -> Any:
        log.append(word)
        return word

    return opinion


@both
@pytest.mark.parametrize("kind", ["list", "combined", "nested"])
def test_all_have_to_agree_and_the_one_that_said_no_is_named(drive: Drive, kind: str) -> None:
    log: list[Any] = []
    parts: list[Any] = [says(None, log), says(True, log), max_iterations(1), says(True, log)]
    strategy: Any = {"list": parts, "combined": combine(parts), "nested": [combine(parts[:2]), combine([combine(parts[2:])])]}[kind]
    desk = Desk(reads(1), reads(2), strategy=strategy, close=lambda ask: pytest.fail("no closing turn"))
    answer = drive(desk.agent)

    assert (answer.stop_reason, answer.status) == ("strategy", "partial")
    assert "max_iterations(1) said stop" in str(answer.stop)
    assert (log, desk.ran) == ([None, True], [1])
    assert answer.evidence[0].value == {"rows": [1]}


@both
def test_a_finish_reason_that_was_asked_for_has_a_stop_reason_of_its_own(drive: Drive) -> None:
    turns = [Decision(calls=tuple(reads(n)), finish=finish) for n, finish in enumerate(["tool_calls", "pause_turn", "tool_calls"])]
    desk = Desk(*turns, strategy=[max_iterations(9), until_finish_reason(["pause_turn"])])
    answer = drive(desk.agent)

    assert (answer.stop_reason, answer.finish_reason, desk.ran) == ("finish_reason", "pause_turn", [0, 1])
    assert "until_finish_reason(pause_turn) said stop" in str(answer.stop)


@both
def test_what_a_strategy_looks_at_is_how_the_run_stands(drive: Drive) -> None:
    seen: list[LoopState] = []
    turns = [Decision(calls=tuple(reads(1, 2)), finish="tool_calls"), Decision(calls=tuple(reads(3, 3)), finish="x")]
    desk = Desk(*turns, strategy=lambda state: seen.append(state), limits=Limits.off(max_steps=50, max_turns=9, max_calls_per_turn=1))
    drive(desk.agent)

    assert [(s.iteration_count, s.finish_reason, s.tool_call_count, s.last_turn_tool_call_count) for s in seen] == [
        (1, "tool_calls", 2, 2), (2, "x", 4, 2),
    ]  # fmt: skip
    assert [len(state.messages) for state in seen] == [4, 7]
    assert seen[0].messages[0].text == "go"


@both
def test_a_turn_that_called_nothing_is_told_to_have_called_nothing(drive: Drive) -> None:
    seen: list[tuple[int, int, int]] = []

    def look(state: LoopState) -> None:
        seen.append((state.iteration_count, state.tool_call_count, state.last_turn_tool_call_count))

    def decide(ask: Any) -> Any:
        return [reads(1), Decision(calls=None), reads(2, 3), "done"][ask.run.turns]  # type: ignore[arg-type]

    tool = Tool(name="read", fn=lambda n: n, effect="pure")
    drive(Agent([tool], decide, limits=FREE, clock=ScriptedClock(), strategy=look))
    assert seen == [(1, 1, 1), (2, 1, 0), (3, 3, 2)]

    seen.clear()
    script_of_002 = script("plan", reads(1), "", reads(2), "")
    verdicts = iter([{"decision": "need_more"}, {"decision": "done"}])
    limits = Limits.autogpt(min_evidence=1, max_steps=30)
    more: dict[str, Any] = {"machine": AUTOGPT, "limits": limits, "clock": ScriptedClock(), "strategy": look}
    drive(Agent([tool], script_of_002, verify=lambda ask: next(verdicts), close=lambda ask: "written", **more))
    assert seen == [(1, 0, 0), (2, 1, 1), (3, 1, 0), (4, 2, 1)]


@both
def test_strategies_are_asked_between_turns_only(drive: Drive) -> None:
    desk = Desk(strategy=lambda state: pytest.fail("there is no turn before the first"))
    assert drive(desk.agent).text == "done"


@both
def test_a_strategy_that_cannot_be_taken_for_true_or_false_has_failed(drive: Drive) -> None:
    desk = Desk(reads(1), strategy=lambda state: Falseless())  # type: ignore[arg-type,return-value]
    answer = drive(desk.agent)

    assert answer.stop_reason == "strategy"
    assert "raised ValueError: neither" in str(answer.stop)


@both
def test_a_run_that_a_strategy_stopped_cannot_be_resumed_by_a_limit(drive: Drive) -> None:
    from fsm_agent.core.errors import CannotResume

    desk = Desk(reads(1), strategy=max_iterations(1))
    answer = drive(desk.agent)
    assert answer.run is not None
    saved = desk.agent.save(answer.run)
    with pytest.raises(CannotResume):
        desk.agent.resume(answer.run, max_turns=50)
    assert desk.agent.save(answer.run) == saved


@both
def test_hooks_of_several_sets_are_asked_in_order_and_the_first_skip_decides(drive: Drive) -> None:
    log: list[str] = []

    def named(name: str, word: Any) -> Hooks:
        return Hooks(before_tool_call=lambda about, call: (log.append(name), word)[1])

    desk = Desk(reads(1), hooks=[named("a", None), named("b", Skip(why="b")), named("c", Skip(why="c"))])
    answer = drive(desk.agent)

    assert (log, settled(answer)) == (["a", "b"], ["skipped:b"])


# -- built wrong -----------------------------------------------------------------------------------------------------


class Own:
    """A strategy with a stop reason of its own."""

    def __init__(self, stop_reason: Any) -> None:
        self.stop_reason = stop_reason

    def __call__(self, state: LoopState) -> bool:
        return False


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"strategy": 5}, "strategy is 5; give functions of a LoopState"),
        ({"strategy": [5]}, "5 is no strategy; give functions of a LoopState"),
        ({"strategy": "max_iterations"}, "strategy is 'max_iterations'; give functions of a LoopState"),
        ({"strategy": Own("bored")}, "the strategy Own has the stop_reason 'bored'; give a StopReason"),
        ({"hooks": 5}, "hooks is 5; give Hooks"),
        ({"hooks": [len]}, "is no set of hooks; give Hooks"),
        ({"hooks": {"on_iteration": len}}, "is no set of hooks; give Hooks"),
    ],
)
def test_wrong_strategies_and_hooks_fail_at_build_and_name_the_mend(more: dict[str, Any], words: str) -> None:
    with pytest.raises(BuildError) as raised:
        Agent([], lambda ask: "done", **more)
    assert words in str(raised.value)


@pytest.mark.parametrize("name", ["on_iteration", "before_tool_call", "after_tool_phase", "should_continue"])
def test_a_hook_is_a_function(name: str) -> None:
    with pytest.raises(BuildError, match=f"Hooks.{name} is 'no'; give a function, or leave it out"):
        Hooks(**{name: "no"})


@both
def test_a_strategy_may_bring_a_stop_reason_of_its_own(drive: Drive) -> None:
    desk = Desk(reads(1), strategy=Own(StopReason.NO_PROGRESS), policy=Policy())
    answer = drive(desk.agent)

    assert answer.stop_reason == "no_progress"
    assert "Own said stop" in str(answer.stop)


@both
@pytest.mark.parametrize(("most", "path"), [(2, "plan fetch synth done"), (3, "plan fetch synth verify done")])
def test_the_text_that_the_machine_of_seed_002_writes_is_a_turn_that_is_asked_about_and_told(drive: Drive, most: int, path: str) -> None:
    began: list[tuple[str, int]] = []
    hooks = Hooks(on_iteration=lambda about: began.append((about.state, about.iteration_count)))
    limits = Limits.autogpt(min_evidence=1)
    desk = Desk("plan", reads(1), close=lambda ask: "written", machine=AUTOGPT, limits=limits, strategy=max_iterations(most), hooks=hooks)
    answer = drive(desk.agent)
    assert " ".join(answer.path) == path
    assert began == [("plan", 0), ("fetch", 1), ("synth", 2)][:most]
    assert answer.stop_reason is (StopReason.STRATEGY if most == 2 else StopReason.ANSWERED)
    assert answer.usage["turns"] == most
