"""Reports about names and enum members, each under the id that it has in the scenarios' README."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, IntEnum, StrEnum
from typing import Any

import pytest

from fsm_agent import Agent, Limits, Row, State, Table, ToolCall
from fsm_agent.core.errors import TableError
from fsm_agent.core.guards import attempts_left, steps_left
from fsm_agent.diagrams import dot, mermaid
from fsm_agent.testing import expect_path

OFF = Limits.off(max_steps=50)
OUTCOMES = ("decided", "proposed", "failed", "stopped")
NAMES = [
    *("run", "state", "model", "trigger", "machine", "initial", "may_run", "is_final", "to_gather", "add_model", "states"),
    *("events", "__init__", "self", "class", "None"),
]


def _there_and_back(here: Any, there: Any) -> Table:
    return Table(
        name="there and back",
        initial=there,
        states=[State(here, work="decide"), State(there, work="decide"), State("end", work="answer")],
        rows=[
            *(Row(there, word, here, (steps_left,)) for word in OUTCOMES),
            *(Row(here, word, there, (steps_left,)) for word in OUTCOMES),
            *(Row(state, word, "end") for state in (here, there) for word in OUTCOMES),
        ],
    )


class Number(IntEnum):
    ZERO = 0
    ONE = 1


class Plain(Enum):
    NOTHING = None
    SOMETHING = 1


class Text(StrEnum):
    EMPTY = ""
    FULL = "full"


@pytest.mark.parametrize(("here", "there"), [(Number.ZERO, Number.ONE), (Plain.NOTHING, Plain.SOMETHING)], ids=["int", "plain"])
def test_br_165_a_member_whose_value_is_zero_or_none_is_a_state_like_any_other(here: Enum, there: Enum) -> None:
    table = _there_and_back(here, there)
    one = Agent([], lambda ask: "on", machine=table, limits=Limits.off(max_steps=4))
    run = one.start("go")
    again = one.load(one.save(run))
    for each in (run, again):
        one.drive(each)
        expect_path(each, [there.name, here.name, there.name, here.name, "end"])
    assert one.load(one.save(again)).state == "end"
    for text in (mermaid(table), dot(table)):
        assert here.name in text
        assert there.name in text


def test_br_165_a_member_with_an_empty_name_is_refused_at_build() -> None:
    with pytest.raises(TableError, match="cannot name a state"):
        _there_and_back(Text.EMPTY, Text.FULL)
    assert _there_and_back("other", Text.FULL).initial == "full"


@pytest.mark.parametrize("name", NAMES)
def test_br_162_no_name_of_a_state_is_taken_for_a_function_of_the_library(name: str) -> None:
    table = Table(
        name=name,
        initial=name,
        states=[State(name, work="decide"), State("gather", work="gather"), State("end of it", work="answer")],
        rows=[
            *(Row(name, word, "gather", (attempts_left,)) for word in OUTCOMES),
            *(Row(name, word, "end of it") for word in OUTCOMES),
            *(Row("gather", word, "end of it") for word in ("called", "failed", "no_progress", "proposed", "stopped")),
        ],
    )
    one = Agent([], lambda ask: "on", machine=table, limits=OFF)
    run = one.start("go")
    first = run.state
    one.drive(run)

    assert (first, run.path) == (name, [name, "gather", "end of it"])
    assert one.load(one.save(run)).path == run.path
    assert callable(one.run)
    assert callable(one.start)


@pytest.mark.parametrize("name", NAMES)
def test_br_162_every_name_of_a_tool_works(name: str) -> None:
    tools = {name: {"fn": lambda n: n + 1, "args": {"n": {"type": "int"}}}}
    one = Agent(tools, _once(name), limits=OFF)
    before = {part: getattr(one, part) for part in ("engine", "driver")}
    answer = one.run("go")

    assert [(piece.tool, piece.value) for piece in answer.evidence] == [(name, 2)]
    assert {part: getattr(one, part) for part in ("engine", "driver")} == before


def _once(name: str) -> Callable[[Any], Any]:
    return lambda ask: "done" if ask.run.calls else ToolCall(name, {"n": 1})
