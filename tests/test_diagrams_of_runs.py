"""A run drawn on its machine: the rows it walked and how often, the states it was in, and how it ended."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from test_diagrams import both, drawn, shown_by_mermaid, words

from fsm_agent import diagrams
from fsm_agent.agent import Agent
from fsm_agent.cli.app import run as command
from fsm_agent.core.agent_table import AGENT
from fsm_agent.core.errors import BuildError, RunError
from fsm_agent.core.limits import Limits
from fsm_agent.core.saving import save
from fsm_agent.core.values import Policy, ToolCall
from fsm_agent.core.walked import walked
from fsm_agent.host.clock import ScriptedClock
from fsm_agent.lab.tables import DESK
from fsm_agent.testing import ScriptedDecider

TIMES = "\u00d7"


def look(q: str) -> list[str]:
    """Find one thing."""
    return [f"hit for {q}"]


def agent(turns: int = 2, **tool: Any) -> Agent:
    """An agent that looks so often and then answers."""
    script = [*(ToolCall("look", {"q": str(n)}) for n in range(turns)), "done"]
    tools = {"look": {"fn": look, "args": {"q": {"type": "str"}}, **tool}}
    return Agent(tools, ScriptedDecider(script), limits=Limits(max_turns=9), policy=Policy(), clock=ScriptedClock())


@both
def test_each_row_walked_says_how_often_and_the_others_stay_as_they_were(language: str) -> None:
    one = agent()
    run = one.run("x").run
    times = Counter(map(str, walked(AGENT, run)))
    assert max(times.values()) == 2
    plain, told = drawn(language, AGENT).arrows, drawn(language, one, run=run).arrows
    assert list(told) == list(plain)
    for row in AGENT.rows:
        found = " ".join(" ".join(told[row.source, row.target]).split())
        label, count = words(row, AGENT), times[str(row)]
        assert label in found
        assert re.findall(rf"{re.escape(label)} {TIMES}(\d)", found) == ([str(count)] if count else [])


@both
def test_an_answer_is_drawn_as_its_run(language: str) -> None:
    answer = agent().run("x")
    draw = getattr(diagrams, language)
    assert draw(AGENT, run=answer) == draw(AGENT, run=answer.run) != draw(AGENT)


@both
def test_no_run_is_the_machine_alone(language: str) -> None:
    draw = getattr(diagrams, language)
    assert draw(AGENT, run=None) == draw(AGENT)
    assert "walked" not in draw(AGENT)
    assert "penwidth" not in draw(AGENT)


@both
def test_the_state_that_it_stands_in_says_how_it_ended_paused_or_goes_on(language: str) -> None:
    ended, paused, going = agent().run("x").run, agent(approval=True).run("x").run, agent().start("x")
    assert "ended: answered" in drawn(language, AGENT, run=ended).bodies["final"]
    assert "paused here" in drawn(language, AGENT, run=paused).bodies["gather"]
    assert "is here" in drawn(language, AGENT, run=going).bodies["gather"]
    assert "here" not in drawn(language, AGENT, run=ended).bodies["gather"]


def test_the_states_it_was_in_are_coloured() -> None:
    run = agent().run("x").run
    assert "    class normalize,gather,verify,final walked\n" in diagrams.mermaid(AGENT, run=run)
    coloured = re.findall(r'^    (\w+) \[.*penwidth=2\]$', diagrams.dot(AGENT, run=run), re.M)
    assert coloured == ["normalize", "gather", "verify", "final"]
    thick = re.findall(r"^    (\w+) -> (\w+) \[.*penwidth=2.4\]$", diagrams.dot(AGENT, run=run), re.M)
    assert thick == [("normalize", "gather"), ("gather", "gather"), ("gather", "verify"), ("verify", "final")]


@both
def test_without_labels_the_way_is_shown_all_the_same(language: str) -> None:
    run = agent().run("x").run
    text = getattr(diagrams, language)(AGENT, labels=False, run=run)
    assert TIMES not in text
    assert "walked" in text or "penwidth=2.4" in text


def test_mermaid_itself_shows_the_counts_and_the_end() -> None:
    shown = shown_by_mermaid(diagrams.mermaid(AGENT, run=agent().run("x")))
    assert f"called[within_limits]{TIMES}2" in shown
    assert "ended:answered" in shown


@pytest.mark.parametrize("form", diagrams.IMAGES)
def test_an_image_with_a_run_is_one_and_the_same_each_time_and_another_than_without(form: str, tmp_path: Path) -> None:
    run = agent().run("x")
    path = diagrams.image(AGENT, tmp_path / f"run.{form}", run=run)
    assert path.read_bytes() == diagrams.render(AGENT, form, run=run) != diagrams.render(AGENT, form)


@pytest.mark.parametrize("run", [5, "run", {"state": "gather"}, AGENT])
def test_what_is_no_run_is_refused(run: Any) -> None:
    with pytest.raises(BuildError, match="is no run that could be drawn; give a Run, an Answer, or leave it out"):
        diagrams.mermaid(AGENT, run=run)


def test_a_run_of_another_machine_is_refused() -> None:
    with pytest.raises(RunError, match="no row of machine 'desk'"):
        diagrams.dot(DESK, run=agent().run("x"))


# ---- the command


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_saved_run_is_drawn_by_the_command(encoding: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = agent().run("x").run
    (tmp_path / "run.json").write_text(save(run), encoding=encoding)
    assert command(["diagram", "--run", str(tmp_path / "run.json")]) == 0
    assert capsys.readouterr().out == diagrams.mermaid(AGENT, run=run)


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        (b"{}", [], "the text is no saved run"),
        (b"nonsense", [], "saved run"),
        (b"\xff\xfe", [], "is no UTF-8 text"),
        (None, [], "No such file or directory"),
        (b"run", ["--machine", "desk"], "no row of machine 'desk'; give the machine that the run belongs to"),
    ],
)
def test_what_is_no_saved_run_of_the_machine_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: bytes | None, options: list[str], says: str
) -> None:
    path = tmp_path / "run.json"
    if text is not None:
        path.write_bytes(save(agent().run("x").run).encode() if text == b"run" else text)
    assert command(["diagram", "--run", str(path), *options]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert says in err
