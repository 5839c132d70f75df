"""Reports about diagrams, each under the id that it has in the scenarios' README."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from fsm_agent import Row, State, Table
from fsm_agent.core.agent_table import AGENT
from fsm_agent.diagrams import dot, mermaid

NAMES = ["ask user", "wait-for-it", "end", "Übergang", "状態", "1st", "a:b", 'a"b']
TWINS = ["ask user", "ask-user", "ask_user", "Ask User"]
RESERVED = {"end", "state", "note", "graph", "node", "edge", "subgraph", "digraph", "strict", "class", "direction"}
PROBE = """
import sys
from fsm_agent import Agent, BuildError, Limits, MissingExtra
from fsm_agent.core.agent_table import AGENT
from fsm_agent.diagrams import dot, mermaid, render
from importlib import metadata
def nothing(name):
    raise metadata.PackageNotFoundError(name)
metadata.distribution = nothing
answer = Agent([], lambda ask: "yes", limits=Limits(min_evidence=0)).run("go")
print(answer.text, "stateDiagram" in mermaid(AGENT), "digraph" in dot(AGENT))
print([name for name in sys.modules if "graphviz" in name])
try:
    render(AGENT, "png")
except MissingExtra as error:
    print(error)
"""
both = pytest.mark.parametrize("draw", [mermaid, dot])


def chain(names: list[str]) -> Table:
    """A machine that goes from state to state by the outcome ``on``, and from the last to its end."""
    return Table(
        name="chain",
        initial=names[0],
        states=[*(State(name, work="gather") for name in names), State("the last", work="answer")],
        rows=[Row(a, "on", b) for a, b in zip(names, [*names[1:], "the last"], strict=True)],
    )


def states_of(text: str) -> dict[str, str]:
    """Label by identifier, read from Mermaid text with the entities undone."""
    found = re.findall(r'^\s*state "([^"]*)" as (\S+)$', text, re.MULTILINE)
    return {id: re.sub(r"#(\d+);", lambda e: chr(int(e[1])), label).replace("#quot;", '"') for label, id in found}


def arrows_of(text: str) -> set[tuple[str, str]]:
    """The connected pairs of identifiers, in either language; where the drawing starts and ends is no pair."""
    return {(a, b) for a, b in re.findall(r"^\s*(\w+) (?:-->|->) (\w+)\b", text, re.MULTILINE) if a != "_start"}


def test_br_154_identifiers_are_plain_words_of_their_own_and_labels_show_the_names() -> None:
    text = mermaid(chain(NAMES))
    states = states_of(text)

    assert list(states.values()) == [*NAMES, "the last"]
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", id) for id in states)
    assert not {id.lower() for id in states} & RESERVED
    for line in text.splitlines():
        arrow = re.fullmatch(r"\s*(\S+) --> (\S+)(?: : .+)?", line)
        assert arrow is None or {arrow[1], arrow[2]} <= {*states, "[*]"}


def test_br_154_two_names_that_clean_to_the_same_word_stay_apart() -> None:
    states = states_of(mermaid(chain(TWINS)))

    assert list(states.values()) == [*TWINS, "the last"]
    assert len({id.lower() for id in states}) == len(TWINS) + 1


@both
def test_br_157_every_row_between_the_same_two_states_is_drawn(draw: Callable[[Table], str]) -> None:
    outcomes = ("alpha", "beta", "gamma", "delta")
    table = Table(
        name="six",
        initial="S",
        states=[State("S", work="gather"), State("T", work="answer"), State("U", work="answer")],
        rows=[*(Row("S", name, "T") for name in outcomes), Row("S", "again", "S"), Row("S", " ", "U")],
    )
    text = draw(table)

    for name in (*outcomes, "again"):
        assert len(re.findall(rf"\b{name}\b", text)) == 1
    assert arrows_of(text) == {("S", "T"), ("S", "S"), ("S", "U")}


@both
def test_br_158_without_labels_the_same_states_are_connected(draw: Callable[..., str]) -> None:
    with_labels, without = draw(AGENT), draw(AGENT, labels=False)

    assert arrows_of(without) == arrows_of(with_labels)
    assert len(arrows_of(without)) == len({(row.source, row.target) for row in AGENT.rows})
    assert not [line for line in without.splitlines() if line.rstrip().endswith(":")]


def test_br_160_everything_but_a_picture_works_without_a_drawing_package() -> None:
    ran = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    answered, loaded, error = ran.stdout.splitlines()

    assert answered == "yes True True"
    assert loaded == "[]"
    assert "fsm-agent[diagram]" in error
