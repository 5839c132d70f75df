"""A call that is performed alone gives the run that the longer way gives, event for event."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.core.agent_table import AGENT
from fsm_agent.core.effects import CallTools, Decide
from fsm_agent.core.engine import Engine
from fsm_agent.core.limits import Limits
from fsm_agent.core.run import Run
from fsm_agent.core.saving import save
from fsm_agent.core.setup import Setup
from fsm_agent.core.tools import BreakerPolicy, Retry, Tool, Toolset
from fsm_agent.core.values import ResultClass, ToolCall, Verdict
from fsm_agent.core.work import WORK
from fsm_agent.host.breaker import Breakers
from fsm_agent.host.calling import Caller
from fsm_agent.host.clock import ScriptedClock
from fsm_agent.host.drivers import Driver
from fsm_agent.host.memory import TtlMemory
from fsm_agent.host.ports import Host, ToolContext


class TheLongWay(Caller):
    """Performs every call as if others ran beside it."""

    def _alone(self, run: Run, effect: CallTools) -> None:
        return None


class Heard:
    """What a watch saw: how long the trace was each time that there was something new in it."""

    pace = None
    turn = None

    def __init__(self) -> None:
        self.lengths: list[int] = []

    def happened(self, run: Run) -> None:
        if self.lengths[-1:] != [len(run.trace)]:
            self.lengths.append(len(run.trace))

    def wanted(self) -> None:
        """Nobody reads, so nobody is waited for."""

    def delta(self, run: Run, text: str) -> None:
        raise AssertionError("nobody streams here")

    discarded = happened


def looked(n: int) -> Any:
    if n == 3:
        raise ConnectionError("come again")
    if n == 4:
        raise KeyError(n)
    return {"n": n, "rows": [{"count": n}] if n else []}


async def awaited(n: int) -> Any:
    await asyncio.sleep(0)
    return looked(n)


def refused(args: dict[str, Any]) -> dict[str, Any]:
    if args["n"] == 2:
        raise ValueError("cannot be built")
    return args


def told(n: int, ctx: ToolContext) -> Any:
    return [ctx.call_id, ctx.attempt, ctx.left_s, n]


def judged(outcome: Any) -> Verdict | None:
    return Verdict(result_class=ResultClass.RATE_LIMITED, retry_after_s=0.005) if outcome.value == [1] else None


# Without a clock these waits are real.
SOON = Retry(backoff_s=0.001)
NEVER_OPEN = BreakerPolicy(failures=1000)


def tools(breaker: BreakerPolicy = NEVER_OPEN) -> list[Tool]:
    return [
        Tool(name="look", fn=looked, effect="pure", cache_ttl_s=60.0, breaker=breaker, retry=Retry(attempts=2, backoff_s=0.001)),
        Tool(name="wait", fn=awaited, effect="pure", negative_ttl_s=60.0, breaker=None, retry=SOON),
        Tool(name="write", fn=looked, effect="at_most_once", breaker=breaker, retry=SOON),
        Tool(name="own", fn=lambda n: [n], effect="idempotent", exclusive=True, classify=judged, breaker=breaker, retry=SOON),
        Tool(name="built", fn=lambda n: n, effect="pure", build=refused, breaker=breaker),
        Tool(name="told", fn=told, effect="pure", context_parameter="ctx", breaker=breaker, retry=SOON),
        Tool(name="odd", fn=lambda: 1, effect="pure", breaker=breaker),
    ]


def driven(plan: list[tuple[str, int]], *, long: bool, tasks: bool, watched: bool, clocked: bool) -> Any:
    def decide(ask: Decide) -> Any:
        turn = ask.run.turns
        return ToolCall(plan[turn][0], {"n": plan[turn][1]}) if turn < len(plan) else "done"

    clock = ScriptedClock() if clocked else None
    limits = Limits(deadline_s=None, max_same_call=3, max_same_observation=None, max_stale_turns=None)
    # In real time no two runs are told the same of an open circuit.
    box = Toolset(tools(BreakerPolicy() if clocked else NEVER_OPEN))
    engine = Engine(Setup(table=AGENT, box=box, work=WORK, limits=limits))
    host = Host(clock=clock, memory=TtlMemory(), breakers=Breakers())
    driver = Driver(engine=engine, decide=decide, host=host)
    if long:
        object.__setattr__(driver, "_caller", TheLongWay(engine=engine, host=host, turn=driver.turn))
    run = engine.start("go", run_id="r", seed=1)
    watch = Heard() if watched else None
    if tasks:
        asyncio.run(driver.adrive(run, "context", watch))
    else:
        driver.drive(run, "context", watch)
    assert host.breakers is not None
    return save(run), watch and watch.lengths, host.breakers.snapshot()


calls = st.tuples(st.sampled_from([tool.name for tool in tools()] + ["none"]), st.integers(0, 4))
turns = st.lists(calls, min_size=1, max_size=6)


@given(plan=turns, tasks=st.booleans(), watched=st.booleans(), clocked=st.booleans())
def test_what_is_performed_alone_goes_as_it_would_beside_others(
    plan: list[tuple[str, int]], tasks: bool, watched: bool, clocked: bool
) -> None:
    short = driven(plan, long=False, tasks=tasks, watched=watched, clocked=clocked)
    assert short == driven(plan, long=True, tasks=tasks, watched=watched, clocked=clocked)


def test_the_bodies_of_that_test_run() -> None:
    plan = [(tool, 1) for tool in ("look", "wait", "told", "look", "write")]
    text, lengths, breakers = driven(plan, long=False, tasks=True, watched=True, clocked=True)
    assert text.count('"Returned"') == 4
    assert text.count('"Reused"') == 1
    assert len(lengths) > len(plan)
    assert set(breakers) == {"look", "write", "told"}
