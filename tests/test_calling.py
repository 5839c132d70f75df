"""Performing the calls of a turn: who answers for a body, what is begun, and in which order it is told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from fsm_agent import BreakerPolicy, Decision, Limits, Policy, Run, Tool, ToolCall
from fsm_agent.core.agent_table import AGENT
from fsm_agent.core.effects import CallTools
from fsm_agent.core.engine import Engine
from fsm_agent.core.events import CircuitOpen, Decided, Gone, Raised, Returned, Reused, Started
from fsm_agent.core.setup import Setup
from fsm_agent.core.tools import Toolset
from fsm_agent.core.work import WORK
from fsm_agent.host.breaker import Breakers
from fsm_agent.host.calling import Caller
from fsm_agent.host.clock import ScriptedClock
from fsm_agent.host.interrupt import Interrupt
from fsm_agent.host.memory import TtlMemory
from fsm_agent.host.ports import Host

FREE = Limits.off(max_steps=500, max_turns=20)


class Bench:
    """A caller over these tools, and a run that asks for the calls of one turn."""

    def __init__(self, *tools: Tool, limits: Limits = FREE, **host: Any) -> None:
        self.box = Toolset(tools)
        self.engine = Engine(Setup(table=AGENT, box=self.box, work=WORK, limits=limits, policy=Policy()))
        self.host = Host(**{"clock": ScriptedClock(), **host})
        self.caller = Caller(engine=self.engine, host=self.host, turn=threading.Lock())
        self.heard: list[int] = []
        self.turn: Any = None
        self.origin = 0.0

    def happened(self, run: Run) -> None:
        self.heard.append(len(run.trace))

    def asked(self, *calls: ToolCall) -> tuple[Run, CallTools]:
        run = self.engine.start("go", run_id="r")
        self.engine.tell(run, Decided(Decision(calls=calls)))
        effect = self.engine.ask(run)
        assert isinstance(effect, CallTools)
        return run, effect

    def threads(self, run: Run, effect: CallTools, context: Any = None) -> None:
        self.caller.call(run, effect, context, self.origin, Interrupt(), self)  # type: ignore[arg-type]

    def tasks(self, run: Run, effect: CallTools, context: Any = None) -> None:
        asyncio.run(self.caller.in_loop(run, effect, context, self.origin, self))  # type: ignore[arg-type]


def tool(name: str, fn: Callable[..., Any], **fields: Any) -> Tool:
    return Tool(**{"name": name, "fn": fn, "effect": "pure", "breaker": None, **fields})


def never(**args: Any) -> None:
    """A body that must not run."""
    raise AssertionError(f"a body ran with {args}")


both = pytest.mark.parametrize("way", ["threads", "tasks"])


def told(run: Run) -> list[Any]:
    return [event for _, event in run.journal[1:]]


@both
def test_a_body_is_begun_before_it_runs_and_its_result_told_after_it(way: str) -> None:
    seen: list[list[str]] = []

    def body(n: int) -> int:
        seen.append([type(event).__name__ for event in told(run)])
        return n

    bench = Bench(tool("t", body))
    run, effect = bench.asked(ToolCall("t", {"n": 7}, "a"))
    getattr(bench, way)(run, effect)

    assert seen == [["Started"]]
    assert told(run) == [Started(("a",)), Returned("a", 7, None, "")]


@both
def test_those_who_listen_hear_of_the_beginning_and_of_each_result(way: str) -> None:
    bench = Bench(tool("t", lambda n: n, timeout_s=5.0))
    run, effect = bench.asked(*(ToolCall("t", {"n": n}, f"c{n}") for n in range(3)))
    before = len(run.trace)
    getattr(bench, way)(run, effect)

    assert bench.heard[0] == before + 3
    assert len(bench.heard) == 4
    assert bench.heard == sorted(bench.heard)


@both
def test_what_memory_answers_for_is_not_begun(way: str) -> None:
    ran: list[int] = []
    bench = Bench(tool("t", lambda n: ran.append(n) or n, cache_ttl_s=60.0), memory=TtlMemory())
    first, effect = bench.asked(ToolCall("t", {"n": 1}, "a"))
    getattr(bench, way)(first, effect)
    second, effect = bench.asked(ToolCall("t", {"n": 1}, "a"), ToolCall("t", {"n": 2}, "b"))
    getattr(bench, way)(second, effect)

    assert ran == [1, 2]
    assert told(second) == [Reused("a", 1), Started(("b",)), Returned("b", 2, None, "")]


@both
def test_an_open_circuit_answers_for_its_tool(way: str) -> None:
    def fails(n: int) -> None:
        raise ValueError("no")

    breaker = BreakerPolicy(failures=1, open_s=30.0)
    bench = Bench(tool("t", fails, breaker=breaker), breakers=Breakers())
    first, effect = bench.asked(ToolCall("t", {"n": 1}, "a"))
    getattr(bench, way)(first, effect)
    second, effect = bench.asked(ToolCall("t", {"n": 2}, "a"))
    getattr(bench, way)(second, effect)

    assert told(first) == [Started(("a",)), Raised("a", "ValueError", "no")]
    assert told(second) == [CircuitOpen("a", 30.0)]


@both
def test_a_tool_that_is_gone_and_arguments_that_cannot_be_built_are_told_and_not_begun(way: str) -> None:
    def build(args: Any) -> Any:
        raise ValueError("odd")

    bench = Bench(tool("t", print), tool("built", print, build=build))
    run, effect = bench.asked(ToolCall("t", {}, "a"), ToolCall("built", {}, "b"))
    del bench.box._tools["t"]
    getattr(bench, way)(run, effect)

    assert told(run) == [Gone("a"), Raised("b", "ValueError", "odd", None, False)]
    assert run.errors == ["args:unknown_tool", "raised:ValueError"]


@both
def test_a_body_gets_its_own_arguments_its_time_and_the_callers_context(way: str) -> None:
    from fsm_agent import ToolContext

    seen: list[Any] = []

    def body(n: list[int], about: ToolContext) -> int:
        seen.append((about.call_id, about.attempt, about.left_s, about.idempotency_key, about.context))
        n.append(2)
        return len(n)

    bench = Bench(
        tool("t", body, context_parameter="about", timeout_s=5.0),
        limits=Limits.off(max_steps=50, max_turns=5, deadline_s=4.0, reserve_s=1.0),
    )
    run, effect = bench.asked(ToolCall("t", {"n": [1]}, "a"))
    getattr(bench, way)(run, effect, {"user": 1})

    assert seen == [("a", 1, 3.6, "r:a", {"user": 1})]
    assert run.calls[0].args == {"n": [1]}


class Slow(TtlMemory):
    """A memory that takes two seconds to look something up."""

    def __init__(self, clock: ScriptedClock) -> None:
        super().__init__()
        self.clock = clock

    def get(self, key: str, scope: str, now: float) -> Any:
        self.clock.advance(2.0)
        return super().get(key, scope, now)


@both
@pytest.mark.parametrize("count", [1, 3])
def test_bodies_begin_when_memory_has_been_asked_for_all_of_them(way: str, count: int) -> None:
    clock = ScriptedClock()
    bench = Bench(tool("t", lambda n: n, cache_ttl_s=60.0), clock=clock, memory=Slow(clock))
    bench.origin = clock.now()
    run, effect = bench.asked(*(ToolCall("t", {"n": n}, f"c{n}") for n in range(count)))
    getattr(bench, way)(run, effect)

    assert [at for at, event in run.journal if isinstance(event, Started)] == [2.0 * count]


@both
def test_time_that_passes_while_memory_is_asked_settles_the_rest_once(way: str) -> None:
    clock = ScriptedClock()
    limits = Limits.off(max_steps=50, max_turns=5, deadline_s=3.0, reserve_s=0.0)
    bench = Bench(tool("t", lambda n: n, cache_ttl_s=60.0), limits=limits, clock=clock, memory=Slow(clock))
    first, effect = bench.asked(ToolCall("t", {"n": 1}, "a"))
    getattr(bench, way)(first, effect)
    bench.origin = clock.now()
    run, effect = bench.asked(ToolCall("t", {"n": 2}, "a"), ToolCall("t", {"n": 1}, "b"), ToolCall("t", {"n": 3}, "c"))
    getattr(bench, way)(run, effect)

    assert [call.error or "ok" for call in run.calls] == ["skipped:deadline", "ok", "skipped:deadline"]
    assert [event.call_id for event in told(run)] == ["b"]


@both
def test_time_that_passes_before_a_tool_is_found_to_be_gone_settles_the_rest_once(way: str) -> None:
    clock = ScriptedClock()
    limits = Limits.off(max_steps=50, max_turns=5, deadline_s=3.0, reserve_s=0.0)
    bench = Bench(tool("t", never, build=lambda args: clock.advance(4.0) or args), tool("gone", never), limits=limits, clock=clock)
    run, effect = bench.asked(ToolCall("t", {"n": 1}, "a"), ToolCall("gone", {}, "b"))
    del bench.box._tools["gone"]
    getattr(bench, way)(run, effect)

    assert [call.error for call in run.calls] == ["skipped:deadline", "args:unknown_tool"]
    assert told(run) == [Gone("b")]


@both
@pytest.mark.parametrize("timeout_s", [None, 5.0])
def test_an_interrupt_gives_the_tickets_of_the_breaker_back(way: str, timeout_s: float | None) -> None:
    armed = [True]

    def body(n: int) -> int:
        if armed:
            armed.clear()
            raise KeyboardInterrupt
        return n

    breaker = BreakerPolicy(failures=1, open_s=30.0)
    bench = Bench(tool("t", body, breaker=breaker, timeout_s=timeout_s), breakers=Breakers())
    assert bench.host.breakers is not None
    ticket = bench.host.breakers.admit("t", breaker, 0.0).ticket
    bench.host.breakers.fail("t", ticket, 0.0)
    clock: Any = bench.host.clock
    clock.advance(31.0)
    run, effect = bench.asked(ToolCall("t", {"n": 1}, "a"))
    with pytest.raises(KeyboardInterrupt):
        getattr(bench, way)(run, effect)
    # The place of the probe is free at once.
    other, effect = bench.asked(ToolCall("t", {"n": 2}, "a"))
    getattr(bench, way)(other, effect)

    assert [call.value for call in other.calls] == [2]


def test_a_single_body_without_a_limit_runs_in_the_callers_thread_and_others_do_not() -> None:
    where: list[int] = []
    note = lambda n: where.append(threading.get_ident())  # noqa: E731
    bench = Bench(tool("here", note), tool("timed", note, timeout_s=5.0))
    for calls in ([ToolCall("here", {"n": 0})], [ToolCall("timed", {"n": 0})], [ToolCall("here", {"n": 0}), ToolCall("timed", {"n": 0})]):
        bench.threads(*bench.asked(*calls))

    mine = threading.get_ident()
    assert [one == mine for one in where] == [True, False, False, False]
