"""The rows that a run walked, read back from its trace: the rows that the machine really fired, whatever happened to the run."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from strategies import World, accepted, an_engine, limits, machines, play, reached, worlds

from fsm_agent.agent import Agent
from fsm_agent.core._machine import Machine
from fsm_agent.core.agent_table import AGENT
from fsm_agent.core.errors import RunError
from fsm_agent.core.guards import Opaque
from fsm_agent.core.limits import Limits
from fsm_agent.core.replay import replay
from fsm_agent.core.run import Run
from fsm_agent.core.saving import load, save
from fsm_agent.core.table import Row, State, Table
from fsm_agent.core.values import ToolCall
from fsm_agent.core.walked import walked
from fsm_agent.edges import Edges, recorded_edges
from fsm_agent.host.clock import ScriptedClock
from fsm_agent.lab.tables import DESK
from fsm_agent.testing import ScriptedDecider


class Fired:
    """A machine that writes down each row it fires, found by asking the guards itself."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.rows: list[Row] = []

    def fire(self, run: Run, outcome: str) -> Any:
        for row in self.machine.table.rows_of(run.state, outcome):
            if all(guard(run) for guard in row.guards):
                self.rows.append(row)
                break
        return self.machine.fire(run, outcome)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.machine, name)


@settings(max_examples=60)
@given(machines().map(reached), limits, worlds)
def test_what_a_run_walked_is_what_its_machine_fired(table: Table, bounds: Limits, world: World) -> None:
    if not accepted(table, bounds):
        return
    engine = an_engine(table=table, limits=bounds)
    fired = Fired(engine.setup.machine)
    object.__setattr__(engine.setup, "machine", fired)
    run = play(engine, engine.start("x"), world.answers())
    assert walked(table, run) == fired.rows
    assert fired.rows


def two_ways() -> Table:
    """A machine that goes from one state to another by two rows of the same outcome."""
    return Table(
        name="two-ways",
        initial="ask",
        states=[State("ask", work="gather", tools=None), State("end", work="answer")],
        rows=[
            Row("ask", "called", "ask", (Opaque("first", lambda run: run.turns == 1), AGENT.rows_of("gather", "called")[0].guards[0])),
            Row("ask", "called", "ask", (Opaque("second", lambda run: run.turns == 2), AGENT.rows_of("gather", "called")[0].guards[0])),
            *(Row("ask", outcome, "end") for outcome in ("called", "failed", "no_progress", "proposed", "stopped")),
        ],
    )


def look(q: str) -> list[str]:
    """Find one thing."""
    return [f"hit for {q}"]


def agent(table: Table = AGENT, turns: int = 3, bounds: Limits | None = None) -> Agent:
    """An agent that asks so many different things and then answers."""
    script = [*(ToolCall("look", {"q": str(n)}) for n in range(turns)), "done"]
    return Agent([look], ScriptedDecider(script), machine=table, limits=bounds or Limits(), clock=ScriptedClock())


def test_two_rows_between_the_same_states_by_the_same_outcome_are_told_apart() -> None:
    table = two_ways()
    run = agent(table).run("x").run
    assert [table.rows.index(row) for row in walked(table, run)] == [0, 1, 2]
    assert [detail for kind, _, _, detail in run.trace if kind == "state_entered"] == [None, "called", "called#2", "called#3"]


def test_a_resumed_run_goes_on_from_the_state_it_stopped_in() -> None:
    one = agent(bounds=Limits(max_tool_calls=1))
    first = one.run("x")
    assert first.stop is not None
    again = one.resume(first.run, **first.stop.raise_to)
    rows = walked(AGENT, again.run)
    ends = [number for number, row in enumerate(rows) if row.target == "final"]
    assert len(ends) == 2
    assert rows[ends[0] + 1].source == "gather"
    assert all(a.target == b.source for n, (a, b) in enumerate(pairwise(rows)) if n != ends[0])


def test_a_loaded_and_a_replayed_run_walked_the_same() -> None:
    one = agent()
    run = one.run("x").run
    rows = walked(AGENT, run)
    assert [row.outcome for row in rows] == ["ready", "called", "called", "called", "proposed", "passed"]
    assert walked(AGENT, load(save(run), one.engine.setup)) == rows
    assert walked(AGENT, replay(one.engine, run)) == rows


def test_a_run_that_has_just_begun_walked_what_led_it_there() -> None:
    assert [row.outcome for row in walked(AGENT, agent().start("x"))] == ["ready"]


def test_a_run_of_another_machine_is_refused_by_name() -> None:
    with pytest.raises(RunError, match="went from 'normalize' to 'gather' by 'ready', which is no row of machine 'desk'"):
        walked(DESK, agent().run("x").run)


def test_an_outcome_with_a_number_in_its_name_is_itself() -> None:
    table = attrs.evolve(two_ways(), rows=[Row("ask", "x#2", "end"), *two_ways().rows])
    run = agent(two_ways()).run("x").run
    run.flat_trace[:] = ["state_entered", 0.0, "ask", None, "state_entered", 0.0, "end", "x#2"]
    assert walked(table, run) == [table.rows[0]]


def test_what_is_recorded_of_runs_is_what_they_walked() -> None:
    counted = Edges()
    with recorded_edges() as recorded:
        for turns in range(4):
            counted.add(AGENT, agent(turns=turns).run("x"))
        counted.add(two_ways(), agent(two_ways()).run("x"))
    assert recorded.as_json() == counted.as_json()
