"""The worst case is never exceeded, and is said before the first call."""

from __future__ import annotations

from collections import Counter

import attrs
import pytest
from hypothesis import given
from strategies import REPAIRS, World, an_engine, limits, play, policies, the_tools, worlds

from fsm_agent.core.agent_table import AGENT
from fsm_agent.core.autogpt_table import AUTOGPT
from fsm_agent.core.bounds import WorstCase, worst_case
from fsm_agent.core.engine import Engine
from fsm_agent.core.limits import Limits
from fsm_agent.core.table import Table
from fsm_agent.core.tools import Retry, Tool, Toolset
from fsm_agent.core.values import Policy
from fsm_agent.lab.tables import DESK, NAIVE


def within(spent: float, most: float | None) -> bool:
    return most is None or spent <= most


ONE_TOOL = attrs.evolve(AGENT.allowing({"gather": ["look"]}), name="agent of one tool")


@pytest.mark.parametrize("table", [AGENT, AUTOGPT, ONE_TOOL], ids=lambda table: table.name)
@given(world=worlds, bounds=limits, policy=policies)
def test_no_run_spends_more_than_its_worst_case(table: Table, world: World, bounds: Limits, policy: Policy) -> None:
    bounds = attrs.evolve(bounds, max_attempts=bounds.max_attempts or 3, max_steps=bounds.max_steps or 60)
    engine: Engine = an_engine(table=table, limits=bounds, policy=policy, repairs=REPAIRS, verifies=True)
    run = play(engine, engine.start("x"), world.answers())
    names = {name for name, _ in REPAIRS.values()}
    worst = worst_case(table, bounds, the_tools(), policy, names)
    assert within(run.turns, worst.model_turns)
    assert within(run.tool_calls, worst.tool_calls)
    assert within(run.verify_rounds, worst.verify_rounds)
    assert within(run.waited_s, worst.wait_s)
    assert within(sum(call.body_runs for call in run.calls), worst.tool_runs)
    mending = {state.name for state in table.states if state.work == "repair"}
    rounds = sum(kind == "state_entered" and subject in mending for kind, _, subject, _ in run.trace)
    assert within(rounds, worst.repair_rounds)
    assert within(rounds, worst_case(table, bounds, the_tools(), policy, None).repair_rounds)
    # By the tool that was begun: a repair may have made the call another tool's since.
    begun = Counter(detail for kind, _, _, detail in run.trace if kind == "call_started")
    for name, most in worst.per_tool.items():
        assert within(begun[name], most)


FIGURES = {
    "the agent's own": (AGENT, Limits(), {"model_turns": 10, "tool_calls": 20, "tool_runs": 24, "wait_s": 25.0, "seconds": 25.0}),
    "nothing retried": (AGENT, Limits(max_tool_calls=3), {"tool_calls": 3, "tool_runs": 9, "per_tool": {"a": 9, "b": 3}}),
    "one of a tool": (AGENT, Limits(max_same_tool_calls={"a": 1, "b": 2}), {"per_tool": {"a": 3, "b": 2}, "tool_runs": 5}),
    "one tool allowed": (AGENT.allowing({"gather": ["b"]}), Limits(), {"per_tool": {"a": 0, "b": 6}, "tool_runs": 6}),
    "no turn": (AGENT, Limits(max_turns=0), {"model_turns": 0}),
    "calls by turns": (AGENT, Limits(max_tool_calls=None, max_turns=2, max_same_tool_calls=None), {"tool_calls": 120}),
    "no limit of turns": (AGENT, Limits(max_turns=None), {"model_turns": 64 * 3 + 1}),
    "no repair": (NAIVE, Limits.lab(), {"repair_rounds": 0, "verify_rounds": 0}),
}


@pytest.mark.parametrize("name", FIGURES)
def test_the_worst_case_in_figures(name: str) -> None:
    table, bounds, wanted = FIGURES[name]
    tools = Toolset(
        [
            Tool(name="a", fn=print, effect="pure", retry=Retry(attempts=5)),
            Tool(name="b", fn=print, effect="at_most_once"),
        ]
    )
    worst = worst_case(table, bounds, tools)
    assert {key: getattr(worst, key) for key in wanted} == wanted


def test_what_nothing_bounds_is_said_to_be_unbounded() -> None:
    worst = worst_case(AGENT, Limits.off(max_turns=5), Toolset([Tool(name="a", fn=print)]))
    assert worst == WorstCase(
        model_turns=5, tool_calls=None, tool_runs=None, per_tool={"a": None}, repair_rounds=0, verify_rounds=None, wait_s=None,
        seconds=None,
    )


def test_a_clients_body_never_runs_here() -> None:
    assert worst_case(AGENT, Limits(), Toolset([Tool(name="a", fn=print, where="client")])).per_tool == {"a": 0}


def test_a_body_that_must_run_once_is_reckoned_once_a_call_whatever_it_declares_of_retries() -> None:
    once = Tool(name="a", fn=print, effect="at_most_once", retry=Retry(attempts=3))
    worst = worst_case(AGENT, Limits(max_same_tool_calls=2), Toolset([once]))
    assert (worst.per_tool, worst.tool_runs) == ({"a": 2}, 2)


def test_repairs_bound_the_rounds_of_repair() -> None:
    worst = worst_case(DESK, Limits.lab(max_turns=1), Toolset(), Policy(reserve_answer=False), {"region", "limit", "tool"})
    assert worst.repair_rounds == 2


@pytest.mark.parametrize(("attempts", "rounds"), [(3, 2), (1, 0), (None, None)])
def test_where_nobody_knows_the_repairs_the_attempts_bound_their_rounds(attempts: int | None, rounds: int | None) -> None:
    limits = Limits.lab(max_turns=1, max_attempts=attempts)
    assert worst_case(DESK, limits, Toolset(), Policy(reserve_answer=False), None).repair_rounds == rounds
