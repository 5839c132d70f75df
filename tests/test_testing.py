"""The testing kit: scripted deciders in every mode, paths that walk every row, and expectations that show both lists."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from strategies import Answers, accepted, an_engine, machines, off, play, reached

from fsm_agent.agent import Agent
from fsm_agent.core._machine import Machine
from fsm_agent.core.agent_table import AGENT
from fsm_agent.core.effects import Compose, Decide
from fsm_agent.core.errors import BuildError
from fsm_agent.core.guards import Opaque
from fsm_agent.core.limits import Limits
from fsm_agent.core.run import Run
from fsm_agent.core.table import KINDS, Row, State, Table
from fsm_agent.core.values import Decision, Status, StopReason, ToolCall
from fsm_agent.host import clock
from fsm_agent.lab.tables import DESK, NAIVE
from fsm_agent.testing import (
    ScriptedClock,
    ScriptedDecider,
    ScriptEnded,
    expect_path,
    paths,
    run_scenario,
    scenario_files,
)


def asking(turn: int) -> Decide:
    return Decide(Run(id="r", request="x", state="gather", limits=off(), turns=turn), ("look",))


# ---- scripted deciders


@pytest.mark.parametrize(
    ("then", "given_turns"),
    [("fail", "abc"), ("repeat-last", "abccccc"), ("repeat-all", "abcabca")],
)
def test_a_script_gives_its_turns_and_then_what_it_says(then: str, given_turns: str) -> None:
    decider = ScriptedDecider(["a", "b", "c"], then=then)
    assert [decider(asking(turn)) for turn in range(len(given_turns))] == list(given_turns)
    assert decider.asked == len(given_turns)


@pytest.mark.parametrize("number", [3, 4, 99])
def test_a_script_that_is_over_says_how_long_it_is(number: int) -> None:
    decider = ScriptedDecider(["a", "b", "c"])
    with pytest.raises(ScriptEnded, match=f"the script has 3 turns and was asked for turn {number + 1}"):
        decider(asking(number))
    assert decider.asked == 1
    assert issubclass(ScriptEnded, AssertionError)


def test_a_turn_may_be_raised() -> None:
    with pytest.raises(OSError, match="down"):
        ScriptedDecider([OSError("down")])(asking(0))
    with pytest.raises(KeyboardInterrupt):
        ScriptedDecider([KeyboardInterrupt()])(asking(0))


def test_a_turn_may_be_worked_out() -> None:
    decider = ScriptedDecider([lambda ask: ask.tools], then="repeat-last")
    assert decider(asking(5)) == ("look",)


def test_the_turns_of_a_script_are_its_own() -> None:
    turns: list[Any] = ["a"]
    decider = ScriptedDecider(turns)
    turns[0] = "b"
    assert decider(asking(0)) == "a"


@pytest.mark.parametrize("closing", ["closing", "bye", "", None])
def test_a_script_gives_its_closing_answer(closing: str | None) -> None:
    decider = ScriptedDecider(["a"], closing=closing)
    compose = Compose(asking(1).run)
    if closing is None:
        with pytest.raises(ScriptEnded, match="the script has no closing answer"):
            decider.close(compose)
    else:
        assert decider.close(compose) == closing
    assert (decider.asked, decider.closed) == (0, 1)


@pytest.mark.parametrize("then", ["stop", "", None, "repeat_last"])
def test_an_unknown_end_of_a_script_is_refused(then: Any) -> None:
    with pytest.raises(ValueError, match="it may be 'fail', 'repeat-last' or 'repeat-all'"):
        ScriptedDecider(["a"], then=then)


@pytest.mark.parametrize("turn", ["done", ToolCall("look", {}), None])
def test_one_turn_is_no_script(turn: Any) -> None:
    with pytest.raises(ValueError, match="; give a list of turns, also of one"):
        ScriptedDecider(turn)


@pytest.mark.parametrize("then", ["repeat-last", "repeat-all"])
def test_an_empty_script_has_nothing_to_repeat(then: str) -> None:
    with pytest.raises(ValueError, match="an empty script has nothing to repeat"):
        ScriptedDecider([], then=then)
    with pytest.raises(ScriptEnded, match="the script has 0 turns"):
        ScriptedDecider([])(asking(0))


def test_runs_that_share_a_script_do_not_take_each_others_turns() -> None:
    decider = ScriptedDecider(list("abcdef"))
    heard: dict[int, list[str]] = {}

    def ask(number: int) -> None:
        heard[number] = [decider(asking(turn)) for turn in range(6)]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert heard == {number: list("abcdef") for number in range(8)}
    assert decider.asked == 48


def _look(q: str) -> list[str]:
    return [f"hit for {q}"]


def _agent(*turns: Any, limits: Limits | None = None, **script: Any) -> tuple[Agent, ScriptedDecider]:
    decider = ScriptedDecider(turns, **script)
    tools = {"look": {"fn": _look, "args": {"q": {"type": "str"}}, "effect": "pure"}}
    return Agent(tools, decider, limits=limits or Limits(), clock=ScriptedClock()), decider


def test_a_scripted_agent_runs_in_no_time() -> None:
    agent, decider = _agent(ToolCall("look", {"q": "x"}), "it is so")
    answer = agent.run("what is it?")
    assert (answer.status, answer.text, decider.asked, decider.closed) == (Status.OK, "it is so", 2, 0)
    expect_path(answer, ["normalize", "gather", "verify", "final"])
    assert answer.usage["spent_s"] == 0.0


def test_a_scripted_agent_closes_with_the_scripts_answer() -> None:
    agent, decider = _agent(
        Decision(calls=(ToolCall("look", {"q": "x"}),)), then="repeat-last", closing="bye", limits=Limits(max_same_call=1)
    )
    answer = agent.run("what is it?")
    assert (answer.stop_reason, decider.asked, decider.closed) == (StopReason.DUPLICATE_CALL, 2, 1)
    assert answer.text.startswith("bye\n\nFound so far:\n- look: [\"hit for x\"]")


def test_a_script_that_ends_too_early_is_told_in_the_answer() -> None:
    agent, _ = _agent(ToolCall("look", {"q": "x"}))
    answer = agent.run("what is it?")
    assert (answer.stop_reason, answer.status) == (StopReason.MODEL_ERROR, Status.PARTIAL)
    assert "ScriptEnded: the script has 1 turns and was asked for turn 2" in answer.text


def test_the_scripted_clock_is_that_of_the_host() -> None:
    assert ScriptedClock is clock.ScriptedClock


# ---- paths


def _forced(table: Table, chosen: Row) -> tuple[Table, Callable[[Run], list[Row]]]:
    """The table with guards that are open only as far as a path to one row needs it."""
    wanted: set[int] = set()
    rows = []
    for number, row in enumerate(table.rows):
        guard = Opaque(f"forced {number}", lambda run, number=number: number in wanted)  # type: ignore[misc]
        rows.append(attrs.evolve(row, guards=(guard,)) if row.guards else row)
    first = _first_rows(table, chosen)
    wanted.update(number for number, row in enumerate(table.rows) if any(row is step for step in first))
    return attrs.evolve(table, rows=rows), lambda run: first


def _first_rows(table: Table, chosen: Row) -> list[Row]:
    """The rows of the shortest way to a row, in order; the first that leads to each state, as they are written."""
    came: dict[str, list[Row]] = {table.initial: []}
    todo = [table.initial]
    for state in todo:
        for row in table.rows_of(state):
            if row.target not in came:
                came[row.target] = [*came[state], row]
                todo.append(row.target)
    return [*came[chosen.source], chosen]


@pytest.mark.parametrize("table", [AGENT, DESK, NAIVE], ids=lambda table: table.name)
def test_there_is_one_path_for_every_row(table: Table) -> None:
    assert [row for row, _ in paths(table)] == list(table.rows)


@pytest.mark.parametrize(
    ("table", "number"), [(table, number) for table in (AGENT, DESK, NAIVE) for number in range(len(table.rows))],
    ids=lambda part: getattr(part, "name", part),
)  # fmt: skip
def test_a_path_walked_with_its_guards_forced_ends_at_the_row(table: Table, number: int) -> None:
    row, outcomes = list(paths(table))[number]
    assert outcomes[-1] == row.outcome
    forced, first = _forced(table, row)
    machine = Machine(forced)
    run = Run(id="r", request="x", state=table.initial, limits=off())
    for step, outcome in zip(first(run), outcomes, strict=True):
        assert (run.state, outcome) == (step.source, step.outcome)
        machine.fire(run, outcome)
        assert run.state == step.target
    assert run.state == row.target


@pytest.mark.parametrize("table", [AGENT, DESK, NAIVE], ids=lambda table: table.name)
def test_a_path_is_a_shortest_one(table: Table) -> None:
    distance = {table.initial: 0}
    for _ in table.states:
        for row in table.rows:
            if row.source in distance:
                distance[row.target] = min(distance.get(row.target, 99), distance[row.source] + 1)
    assert all(len(outcomes) == distance[row.source] + 1 for row, outcomes in paths(table))


@settings(max_examples=40)
@given(machines())
def test_the_paths_of_any_machine_walk_each_of_its_rows(table: Table) -> None:
    whole = reached(table)
    assert accepted(whole, Limits()) in (True, False)
    found = list(paths(whole))
    assert [row for row, _ in found] == list(whole.rows)
    for row, outcomes in found:
        assert outcomes == [step.outcome for step in _first_rows(whole, row)]


def test_a_row_that_nothing_leads_to_has_no_path() -> None:
    states = (State("a", work="repair"), State("b", work="repair"), State("end", work="answer"))
    rows = [Row(source, outcome, "end") for source in "ab" for outcome in KINDS["repair"].outcomes]
    table = Table("apart", "a", states, rows)
    assert [(str(row), outcomes) for row, outcomes in paths(table)] == [
        ("a --repaired--> end", ["repaired"]),
        ("a --exhausted--> end", ["exhausted"]),
    ]


# ---- expectations


def test_a_path_that_is_as_expected_says_nothing() -> None:
    engine = an_engine(limits=off(max_turns=2), composes=False)
    run = play(engine, engine.start("x"), Answers())
    expect_path(run, ["normalize", "gather", "final"])
    expect_path(run, ("normalize", "gather", "final"))


@pytest.mark.parametrize("wanted", [[], ["normalize"], ["normalize", "final", "gather"], ["normalize", "gather", "gather", "final"]])
def test_a_path_that_differs_shows_both_lists(wanted: list[str]) -> None:
    engine = an_engine(limits=off(max_turns=2), composes=False)
    run = play(engine, engine.start("x"), Answers())
    with pytest.raises(AssertionError) as raised:
        expect_path(run, wanted)
    assert str(raised.value) == f"the run walked normalize -> gather -> final; expected {' -> '.join(wanted)}"


# ---- scenario files


GOOD = '{"id": "good", "limits": {"min_evidence": 0}, "model": [{"final": "x"}], "expect": {"status": "ok"}}'


def test_scenario_files_are_tests_of_path_and_mode(tmp_path: Path) -> None:
    (tmp_path / "good.json").write_text(GOOD)
    (tmp_path / "one.toml").write_text('mode = "async"\n[[model]]\nfinal = "x"\n')
    (tmp_path / "odd.json").write_text("{")
    made = scenario_files(tmp_path)
    assert [one.id for one in made] == ["good-sync", "good-async", "odd-unreadable", "one-async"]
    assert made[0].values == (tmp_path / "good.json", "sync")
    assert [one.id for one in scenario_files(tmp_path / "good.json", tmp_path / "one.toml", mode="async")] == ["good-async", "one-async"]
    with pytest.raises(AssertionError, match="no JSON"):
        run_scenario(*made[2].values)
    with pytest.raises(BuildError, match="no such file"):
        scenario_files(tmp_path / "nowhere")


@pytest.mark.parametrize("mode", ["sync", "async", None])
def test_a_scenario_that_holds_says_nothing_and_one_that_does_not_says_what_came(tmp_path: Path, mode: str | None) -> None:
    path = tmp_path / "one.json"
    path.write_text(GOOD)
    run_scenario(path, mode)
    path.write_text(GOOD.replace('"status": "ok"', '"status": "failed", "model_turns": 2'))
    with pytest.raises(AssertionError) as caught:
        run_scenario(str(path), mode)
    faults = "  status: expected failed, came ok\n  model_turns: expected 2, came 1"
    assert str(caught.value) == f"scenario good [{mode or 'sync'}] in {path} does not hold:\n{faults}"
