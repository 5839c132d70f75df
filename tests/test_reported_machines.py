"""Reports about state machines themselves, each under the id that it has in the scenarios' README."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from fsm_agent import Agent, BuildError, Limits, Row, Run, Setup, State, StopReason, Table
from fsm_agent.core.errors import RunBusy
from fsm_agent.core.guards import Opaque, steps_left
from fsm_agent.core.table import Kind

OFF = Limits.off(max_steps=50)

class Step:
    """Work that is done on entering: it calls its hooks in order and reports one outcome."""

    def __init__(self, outcome: str, *hooks: Callable[[Run], None]) -> None:
        self.outcome, self.hooks = outcome, list(hooks)

    def enter(self, setup: Setup, run: Run) -> str | None:
        for hook in self.hooks:
            hook(run)
        return self.outcome

    def ask(self, setup: Setup, run: Run) -> Any:
        raise AssertionError("it asks for nothing")

    def tell(self, setup: Setup, run: Run, event: Any) -> str | None:
        raise AssertionError("it is told nothing")


def machine(initial: str, states: dict[str, str], rows: list[Row], works: dict[str, Step]) -> Agent:
    """An agent over a table of states and their kinds of work, with the user's own kinds as they are given here."""
    kinds = {name: Kind(name=name, outcomes={work.outcome: ()}) for name, work in works.items()}
    table = Table(
        name="reported",
        initial=initial,
        states=[State(name, work=work) for name, work in states.items()],
        rows=rows,
        kinds=kinds,
    )
    return Agent([], lambda ask: "unused", machine=table, limits=OFF, work=works)


def two_ways(one: Agent) -> list[Run]:
    """The same run driven in a thread and in a loop."""
    runs = [one.start("go"), one.start("go")]
    one.drive(runs[0])
    asyncio.run(one.adrive(runs[1]))
    return runs


def test_br_141_a_closed_condition_keeps_the_next_one_from_being_asked_in_both_drivers() -> None:
    asked: list[str] = []

    def no(run: Run) -> bool:
        asked.append("c1")
        return False

    def broken(run: Run) -> bool:
        asked.append("c2")
        raise ValueError("c2 was asked")

    rows = [Row("a", "go", "taken", (Opaque("c1", no), Opaque("c2", broken))), Row("a", "go", "not taken")]
    one = machine("a", {"a": "step", "taken": "answer", "not taken": "answer"}, rows, {"step": Step("go")})

    assert [run.path for run in two_ways(one)] == [["a", "not taken"]] * 2
    assert asked == ["c1", "c1"]


def test_br_145_a_state_that_moves_on_as_it_is_entered_is_left_only_when_its_hook_is_done() -> None:
    seen: list[tuple[str, str]] = []

    def begin(run: Run) -> None:
        seen.append(("begin", run.state))

    def end(run: Run) -> None:
        seen.append(("end", run.state))

    rows = [Row("A", "e0", "B"), Row("B", "e1", "C")]
    works = {"first": Step("e0", begin, end), "second": Step("e1", begin, end)}
    one = machine("A", {"A": "first", "B": "second", "C": "answer"}, rows, works)
    run = one.start("go")

    assert seen == [("begin", "A"), ("end", "A"), ("begin", "B"), ("end", "B")]
    assert (run.state, run.path) == ("C", ["A", "B", "C"])
    assert [row[2] for row in run.trace if row[0] == "state_entered"] == ["A", "B", "C"]


def test_br_148_a_hook_that_raises_leaves_the_run_in_the_state_entered_and_the_run_goes_on_once_it_is_mended() -> None:
    ran: list[str] = []
    mended = False

    def h2(run: Run) -> None:
        if not mended:
            raise RuntimeError("h2 is broken")
        ran.append("h2")

    def decide(ask: Any) -> Any:
        return "yes"

    works = {"hooked": Step("go", lambda run: ran.append("h1"), h2, lambda run: ran.append("h3"))}
    table = Table(
        name="half done",
        initial="A",
        states=[State("A", work="decide"), State("B", work="hooked"), State("C", work="answer")],
        rows=[Row("B", "go", "C"), *(Row("A", word, "B") for word in ("decided", "proposed", "failed", "stopped"))],
        kinds={"hooked": Kind(name="hooked", outcomes={"go": ()})},
    )
    one = Agent([], decide, machine=table, limits=OFF, work=works)
    run = one.start("go")
    with pytest.raises(RuntimeError, match="h2 is broken"):
        one.drive(run)

    assert (run.state, ran, run.driven) == ("B", ["h1"], False)
    assert [row[2] for row in run.trace if row[0] == "state_entered"] == ["A", "B"]
    assert run.stop is not None
    assert run.stop.reason is StopReason.CANCELLED
    mended = True
    one.resume(run)
    assert (run.state, ran) == ("C", ["h1", "h1", "h2", "h3"])


def _back_and_forth(*guards: Any) -> Agent:
    true = Opaque("true", lambda run: True)
    rows = [
        *(Row("verify", "not ok", "repair", (true, *guards)), Row("verify", "not ok", "done")),
        *(Row("repair", "changed", "verify", (true,)), Row("repair", "changed", "done")),
    ]
    states = {"verify": "checking", "repair": "changing", "done": "answer"}
    return machine("verify", states, rows, {"checking": Step("not ok"), "changing": Step("changed")})


def test_br_150_two_states_that_send_a_run_to_each_other_for_ever_are_refused_when_the_agent_is_built() -> None:
    with pytest.raises(BuildError, match=r"verify -> repair -> verify|repair -> verify -> repair"):
        _back_and_forth()


def test_br_150_moves_that_ask_nobody_are_bounded_by_their_guard() -> None:
    one = _back_and_forth(steps_left)
    answer = one.run("go")

    assert answer.stop_reason == "max_steps"
    assert answer.usage["steps"] <= OFF.max_steps + 2  # type: ignore[operator]
    assert answer.text


def test_br_150_many_moves_in_a_row_need_no_deep_stack() -> None:
    one = _back_and_forth(steps_left)
    run = one.start("go", limits=Limits.off(max_steps=20_000))

    assert run.stop is not None
    assert run.stop.reason is StopReason.MAX_STEPS
    assert run.steps >= 20_000


def test_br_152_a_second_thread_meets_a_run_before_or_after_a_decision_and_never_in_between() -> None:
    asked, gate = threading.Event(), threading.Event()

    def slow_no(run: Run) -> bool:
        asked.set()
        return not gate.wait(20)

    rows = [Row("a", word, "first", (Opaque("slow", slow_no),)) for word in ("decided", "proposed", "failed", "stopped")]
    table = Table(
        name="two candidates",
        initial="a",
        states=[State("a", work="decide"), State("first", work="answer"), State("second", work="answer")],
        rows=[*rows, *(Row("a", row.outcome, "second") for row in rows)],
    )
    one = Agent([], lambda ask: "go on", machine=table, limits=OFF)
    for _ in range(50):
        asked.clear()
        gate.clear()
        run = one.start("go")
        thread = threading.Thread(target=one.drive, args=(run,))
        thread.start()
        assert asked.wait(20)
        assert run.state == "a"
        with pytest.raises(RunBusy, match="is being driven already"):
            one.drive(run)
        assert run.state == "a"
        gate.set()
        thread.join(20)
        assert run.path == ["a", "second"]


def test_br_139_a_second_task_on_the_same_run_is_refused_and_cancels_nobody() -> None:
    done: list[str] = []

    async def main() -> str:
        begun, gate = asyncio.Event(), asyncio.Event()

        async def decide(ask: Any) -> str:
            begun.set()
            await gate.wait()
            return "slow but sure"

        one = Agent([], decide, limits=OFF)
        run = one.start("go")
        first = asyncio.create_task(one.adrive(run))
        await begun.wait()
        with pytest.raises(RunBusy, match="is being driven already"):
            await asyncio.create_task(one.adrive(run))
        gate.set()
        answer = await first
        await asyncio.sleep(0)
        done.append("other work")
        current = asyncio.current_task()
        assert current is not None
        assert (current.cancelling(), first.cancelled()) == (0, False)
        return answer.text

    assert asyncio.run(main()) == "slow but sure"
    assert done == ["other work"]
