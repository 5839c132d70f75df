"""For tests of hosts: deciders and clocks by script, paths walked from the table, edges that no test walked, and scenario files."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from fsm_agent.core.answers import Answer
from fsm_agent.core.effects import Compose, Decide
from fsm_agent.core.plain import short
from fsm_agent.core.run import Run
from fsm_agent.core.table import Row, Table
from fsm_agent.edges import Edges, recorded_edges
from fsm_agent.host.clock import ScriptedClock
from fsm_agent.scenario.script import ScriptEnded, step_of

__all__ = [
    "Edges",
    "ScriptEnded",
    "ScriptedClock",
    "ScriptedDecider",
    "expect_path",
    "paths",
    "recorded_edges",
    "run_scenario",
    "scenario_files",
]


class ScriptedDecider:
    """A decider that gives its turns in order, whatever happens.

    A turn is what a decider may answer with, an exception to raise, or a function of the `Decide`. `then` says what follows the
    last turn: ``fail``, ``repeat-last`` or ``repeat-all``. `closing` answers the request for a closing answer; None gives none.
    `asked` counts the turns given, `closed` the closing answers.
    """

    def __init__(self, turns: Sequence[Any], *, then: str = "fail", closing: str | None = "closing") -> None:
        if isinstance(turns, str) or not hasattr(turns, "__iter__"):
            raise ValueError(f"turns is {short(turns, 60)}; give a list of turns, also of one")
        if then not in ("fail", "repeat-last", "repeat-all"):
            raise ValueError(f"then is {then!r}; it may be 'fail', 'repeat-last' or 'repeat-all'")
        if not turns and then != "fail":
            raise ValueError("an empty script has nothing to repeat; give a turn, or then='fail'")
        self.turns, self.then, self.closing = list(turns), then, closing
        self.asked = self.closed = 0
        self._lock = Lock()

    def __call__(self, ask: Decide) -> Any:
        """The turn of the run's own count, so that runs sharing a script do not take each other's turns."""
        with self._lock:
            self.asked += 1
        turn = self._turn(ask.run.turns)
        if isinstance(turn, BaseException):
            raise turn
        return turn(ask) if callable(turn) else turn

    def _turn(self, number: int) -> Any:
        step = step_of(self.turns, number, self.then)
        if step is None:
            raise ScriptEnded(f"the script has {len(self.turns)} turns and was asked for turn {number + 1}")
        return step.value

    def close(self, ask: Compose) -> str:
        """The closing answer."""
        with self._lock:
            self.closed += 1
        if self.closing is None:
            raise ScriptEnded("the script has no closing answer")
        return self.closing


def paths(table: Table) -> Iterator[tuple[Row, list[str]]]:
    """For every row a shortest list of outcomes that walks it last, guards aside; one test for each covers every edge."""
    first: dict[str, list[str]] = {table.initial: []}
    todo = deque([table.initial])
    while todo:
        state = todo.popleft()
        for row in table.rows_of(state):
            if row.target not in first:
                first[row.target] = [*first[state], row.outcome]
                todo.append(row.target)
    for row in table.rows:
        if row.source in first:
            yield row, [*first[row.source], row.outcome]


def expect_path(ran: Answer | Run, wanted: Sequence[str]) -> None:
    """Compare the states a run walked, repeats collapsed; the AssertionError shows both lists."""
    walked, expected = list(ran.path), list(wanted)
    if walked != expected:
        raise AssertionError(f"the run walked {' -> '.join(walked)}; expected {' -> '.join(expected)}")


def scenario_files(*places: str | Path, mode: str | None = None) -> list[Any]:
    """Scenario files as pytest parameters of path and mode, one test each, for ``@pytest.mark.parametrize(("path", "mode"), ...)``.

    `places` are files and folders, searched however deep; `mode` keeps one mode only. A file that is no scenario makes one test,
    which fails and says why. Raises ScenarioError for a place that is not there or a folder that holds none.
    """
    import pytest

    from fsm_agent.scenario.reading import ScenarioError, files_in, read_file

    made: list[Any] = []
    for path in files_in(places):
        try:
            modes = read_file(path).modes
        except ScenarioError:
            modes = ("unreadable",)
        wanted = [one for one in modes if mode is None or one in (mode, "unreadable")]
        made += [pytest.param(path, one, id=f"{path.stem}-{one}") for one in wanted]
    return made


def run_scenario(path: str | Path, mode: str | None = None) -> None:
    """Run a scenario file in one mode, or in all of its modes; raises AssertionError with everything that came otherwise."""
    from fsm_agent.scenario import runner
    from fsm_agent.scenario.reading import ScenarioError, read_file

    try:
        scenario = read_file(path)
    except ScenarioError as error:
        raise AssertionError(str(error)) from None
    for one in [mode] if mode is not None else scenario.modes:
        verdict = runner.run_scenario(scenario, one)
        if not verdict.holds:
            faults = "\n".join(f"  {fault}" for fault in verdict.faults)
            raise AssertionError(f"scenario {scenario.id} [{one}] in {path} does not hold:\n{faults}")
