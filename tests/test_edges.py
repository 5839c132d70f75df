"""Edges that were walked and those that never were: counted from runs, by a recorder, across processes and by the pytest plugin."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fsm_agent import adapter
from fsm_agent.agent import Agent
from fsm_agent.core.agent_table import AGENT
from fsm_agent.core.errors import BuildError, RunError, TableError
from fsm_agent.core.values import ToolCall
from fsm_agent.edges import Edges, recorded_edges
from fsm_agent.host.clock import ScriptedClock
from fsm_agent.lab.tables import DESK, NAIVE
from fsm_agent.testing import ScriptedDecider, paths

HAPPY = [("normalize", "ready"), ("gather", "called"), ("gather", "proposed"), ("verify", "passed")]


def look(q: str) -> list[str]:
    """Find one thing."""
    return [f"hit for {q}"]


def agent() -> Agent:
    """An agent that looks once and then answers."""
    return Agent([look], ScriptedDecider([ToolCall("look", {"q": "x"}), "done"]), clock=ScriptedClock())


def test_what_no_run_walked_is_missing_in_the_order_of_the_table() -> None:
    edges, one = Edges(), agent()
    assert edges.missing(one) == list(AGENT.rows)
    edges.add(one, one.run("x"))
    edges.add(AGENT, one.run("x").run)
    missing = edges.missing(AGENT)
    assert [row for row in AGENT.rows if row not in missing] == [row for row in AGENT.rows if edges.walked(one, row)]
    assert [edges.walked(AGENT, AGENT.rows_of(*edge)[0]) for edge in HAPPY] == [2, 2, 2, 2]
    assert edges.report()[0] == f"machine 'agent': 4 of {len(AGENT.rows)} edges walked"
    assert edges.report()[1:] == [f"  never: {row}" for row in missing]


@pytest.mark.parametrize(
    ("machine", "ran", "error", "says"),
    [
        (5, None, TableError, "a int has no table"),
        (AGENT, 5, BuildError, "a int is no run"),
        (DESK, "run", RunError, "no row of machine 'desk'"),
    ],
)
def test_what_is_no_machine_or_no_run_of_it_is_refused(machine: Any, ran: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        Edges().add(machine, agent().run("x") if ran == "run" else ran)


def test_the_recorder_counts_runs_of_every_machine_whoever_drives_them() -> None:
    adapter.CACHE.clear()
    # Both were there before anybody recorded.
    made, _ = agent(), adapter.desk()
    with recorded_edges() as edges:
        made.run("x")
        inside = agent()
        adapter.handle({"sku": "A-1001", "region": "seoul", "limit": 2})
        adapter.run_naive({"sku": "A-1001", "region": "nowhere", "limit": 2})
    assert {line.split(":")[0] for line in edges.report() if not line.startswith(" ")} == {
        f"machine {table.name!r}" for table in (AGENT, DESK, NAIVE)
    }
    before = edges.as_json()
    for one in (made, inside, agent()):
        one.run("x")
    assert edges.as_json() == before


def test_the_recorder_lets_go_of_the_machines_when_its_block_fails() -> None:
    with pytest.raises(KeyError), recorded_edges() as edges:
        raise KeyError("x")
    agent().run("x")
    assert edges.report() == []


def test_threads_that_run_at_once_are_all_counted() -> None:
    with recorded_edges() as edges:
        threads = [threading.Thread(target=lambda: [agent().run("x") for _ in range(10)]) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert edges.walked(AGENT, AGENT.rows_of("normalize", "ready")[0]) == 80


def test_what_other_processes_counted_is_added() -> None:
    ours, theirs = Edges(), Edges()
    one = agent()
    ours.add(one, one.run("x"))
    theirs.add(one, one.run("x"))
    theirs.add(DESK, None)
    ours.merge(json.loads(json.dumps(theirs.as_json())))
    assert ours.walked(AGENT, AGENT.rows_of("verify", "passed")[0]) == 2
    assert ours.missing(DESK) == list(DESK.rows)


# ---- the plugin, in a session of its own

TESTS = """
import pytest
from test_edges import agent

@pytest.mark.parametrize("n", range(4))
def test_one(n):
    assert agent().run("x").text == "done"
"""


@pytest.fixture
def session(tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """Run pytest over one small file with these arguments; returns the exit code and what was printed."""
    (tmp_path / "test_small.py").write_text(TESTS)
    here = Path(__file__).parent
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
    env["PYTHONPATH"] = os.pathsep.join([str(here), str(here.parent)])
    # Whatever else is installed here would be loaded by each process of each session.
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"

    def run(*arguments: str) -> tuple[int, str]:
        plugins = [part for name in ("fsm_agent.pytest_edges", "xdist", "no:cacheprovider") for part in ("-p", name)]
        command = [sys.executable, "-m", "pytest", "-q", *plugins, "--rootdir=.", "."]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, cwd=tmp_path, env=env, check=False, timeout=120)
        return done.returncode, done.stdout + done.stderr

    return run


def test_a_session_ends_with_the_edges_that_no_test_of_any_worker_walked(session: Callable[..., tuple[int, str]]) -> None:
    code, said = session("--edges", "-n", "2")
    assert code == 0, said
    assert f"machine 'agent': 4 of {len(AGENT.rows)} edges walked" in said
    assert len(re.findall("^  never: ", said, re.M)) == len(AGENT.rows) - 4
    assert "  never: normalize --rejected--> final\n" in said


def test_a_session_without_the_option_says_nothing_of_edges(session: Callable[..., tuple[int, str]]) -> None:
    code, said = session()
    assert (code, "edges" in said) == (0, False), said


def test_a_required_machine_with_edges_that_no_test_walked_fails_the_session(session: Callable[..., tuple[int, str]]) -> None:
    code, said = session("--edges-require", "agent", "--edges-require", "fsm_agent.lab.tables:NAIVE")
    assert code == 1, said
    assert f"required agent: {len(AGENT.rows) - 4} of {len(AGENT.rows)} edges not walked" in said
    assert f"required fsm_agent.lab.tables:NAIVE: {len(NAIVE.rows)} of {len(NAIVE.rows)} edges not walked" in said
    assert "4 passed" in said


def test_a_required_machine_that_is_none_ends_the_session_before_any_test(session: Callable[..., tuple[int, str]]) -> None:
    code, said = session("--edges-require", "nobody")
    assert code == 4, said
    assert "--edges-require: there is no machine 'nobody'; take agent, autogpt, desk, naive or module:attribute" in said
    assert "Traceback" not in said


def test_paths_and_edges_speak_of_the_same_rows() -> None:
    assert {str(row) for row, _ in paths(AGENT)} == {str(row) for row in Edges().missing(AGENT)}
