"""A machine as data: names of states, rows, allowed tools, and the text that tells two machines apart."""

from __future__ import annotations

import json
import subprocess
import sys
from enum import Enum, IntEnum, StrEnum
from typing import Any

import attrs
import pytest
from mutants import mutants

from fsm_agent.core.agent_table import AGENT
from fsm_agent.core.autogpt_table import AUTOGPT
from fsm_agent.core.checks import check_table
from fsm_agent.core.errors import BuildError, TableError
from fsm_agent.core.guards import AllOf, Opaque, Spending, steps_left, turns_left, within_limits
from fsm_agent.core.table import KINDS, Kind, Row, State, Table, state_name
from fsm_agent.core.values import StopReason
from fsm_agent.lab.tables import DESK, NAIVE

TABLES = [AGENT, AUTOGPT, DESK, NAIVE]


class Numbered(IntEnum):
    ZERO = 0
    ONE = 1


class Worded(StrEnum):
    GATHER = "gather"
    BLANK = ""


class Mixed(str, Enum):  # noqa: UP042  the older way to write such an enum
    A = "a b"
    BLANK = ""


class Plain(Enum):
    EMPTY = ""
    NONE = None
    PAIR = (1, 2)


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


# ---- names of states


@pytest.mark.parametrize(
    ("state", "name"),
    [
        ("gather", "gather"),
        ("a b", "a b"),
        ("状態", "状態"),
        ("0", "0"),
        (" ", " "),
        (Numbered.ZERO, "ZERO"),
        (Numbered.ONE, "ONE"),
        (Worded.GATHER, "gather"),
        (Mixed.A, "a b"),
        (Plain.EMPTY, "EMPTY"),
        (Plain.NONE, "NONE"),
        (Plain.PAIR, "PAIR"),
    ],
)
def test_a_state_goes_by_its_text_or_the_name_of_its_member(state: Any, name: str) -> None:
    for got in (state_name(state), State(state, "call").name, Row(state, "called", "z").source, Row("a", "x", state).target):
        assert got == name
        assert type(got) is str
    assert Table("m", state, [], []).initial == name


NAMELESS: list[Any] = ["", Worded.BLANK, Mixed.BLANK, None, 0, 1, True, b"gather", ["gather"], ("gather",), {}, Plain, 1.5]


@pytest.mark.parametrize("state", [*NAMELESS, 10**5000, Unspeakable()], ids=range(len(NAMELESS) + 2))
def test_what_cannot_name_a_state_is_refused_wherever_it_stands(state: Any) -> None:
    for make in (
        lambda: state_name(state),
        lambda: State(state, work="call"),
        lambda: Row(state, "called", "z"),
        lambda: Row("a", "called", state),
        lambda: Table("m", state, [], []),
    ):
        with pytest.raises(TableError, match="cannot name a state; give a non-empty text or an enum member"):
            make()


# ---- states and rows


def test_only_a_state_that_answers_is_final() -> None:
    assert {work: State("s", work=work).final for work in KINDS} == {work: work == "answer" for work in KINDS}


@pytest.mark.parametrize(
    ("given", "kept"), [(None, None), ((), frozenset()), (["a", "b", "a"], frozenset("ab")), (frozenset("a"), frozenset("a"))]
)
def test_the_tools_of_a_state_are_a_set_or_none_for_all(given: Any, kept: frozenset[str] | None) -> None:
    assert State("s", work="call", tools=given).tools == kept


def test_a_state_allows_no_tool_unless_it_says_so() -> None:
    assert State("s", work="call").tools == frozenset()


def test_a_row_keeps_what_it_is_given_as_tuples() -> None:
    row = Row("a", "called", "b", [steps_left, turns_left], ["turns"])
    assert (row.source, row.outcome, row.target) == ("a", "called", "b")
    assert (row.guards, row.spends) == ((steps_left, turns_left), ("turns",))
    assert (Row("a", "called", "b").guards, Row("a", "called", "b").spends) == ((), ())


def test_a_row_reads_as_an_arrow() -> None:
    assert str(Row("a", "called", "b")) == "a --called--> b"
    assert str(Row("a", "called", "b", (steps_left, within_limits))) == "a --called--> b [steps_left, within_limits]"


# ---- what is forgotten easily


def check(**changed: Any) -> None:
    check_table(attrs.evolve(NAIVE, **changed))


def test_a_text_is_no_list_of_tools() -> None:
    with pytest.raises(BuildError):
        check(states=[State("fetch", "call", "stock_lookup") if s.name == "fetch" else s for s in NAIVE.states])


def test_a_text_is_no_list_of_counters() -> None:
    with pytest.raises(BuildError):
        check(rows=[Row("pick", "decided", "fetch", (), "turns"), *NAIVE.rows[1:]])


NO_GUARDS: list[Any] = [steps_left, "steps_left", ("steps_left",), (None,), (lambda run: True,), 3, None, [[steps_left]]]


@pytest.mark.parametrize("guards", NO_GUARDS, ids=range(len(NO_GUARDS)))
def test_what_is_no_list_of_guards_is_refused(guards: Any) -> None:
    with pytest.raises(BuildError):
        check(rows=[Row("pick", "decided", "fetch", guards), *NAIVE.rows])


@pytest.mark.parametrize("make", [lambda guard: Row("a", "called", "b", [guard]), lambda guard: AllOf("all", [guard])])
@pytest.mark.parametrize("guard", ["turns_left", lambda run: True])
def test_what_is_no_guard_is_told_where_there_are_some(make: Any, guard: Any) -> None:
    with pytest.raises(TableError, match=r"no guard; give one of fsm_agent\.core\.guards, such as Opaque\(name, function\)"):
        make(guard)


@pytest.mark.parametrize("part", ["states", "rows"])
@pytest.mark.parametrize("wrong", [None, 3, "abc", [("pick", "decided", "fetch")], [None]], ids=range(5))
def test_what_is_no_list_of_states_or_rows_is_refused(part: str, wrong: Any) -> None:
    with pytest.raises(BuildError):
        check(**{part: wrong})


def test_the_table_that_these_are_changes_of_is_accepted() -> None:
    check()
    check(rows=[Row("pick", "decided", "fetch", [steps_left], ["turns"]), *NAIVE.rows])


# ---- look-ups


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_table_finds_its_states(table: Table) -> None:
    assert [table.state(state.name) for state in table.states] == list(table.states)


def test_an_unknown_state_is_an_error_that_names_those_there_are() -> None:
    with pytest.raises(TableError, match="machine 'desk' has no state 'nowhere'; it has pick, fetch, repair, reply, giveup"):
        DESK.state("nowhere")


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_the_rows_of_a_state_come_in_the_order_written(table: Table) -> None:
    outcomes = {row.outcome for row in table.rows} | {"never"}
    for state in [*(state.name for state in table.states), "nowhere"]:
        assert table.rows_of(state) == tuple(row for row in table.rows if row.source == state)
        for outcome in outcomes:
            expected = tuple(row for row in table.rows if (row.source, row.outcome) == (state, outcome))
            assert table.rows_of(state, outcome) == expected


# ---- other tools


def test_allowing_changes_the_tools_of_the_states_named_and_nothing_else() -> None:
    changed = DESK.allowing({"fetch": ["stock_lookup"], "repair": None})
    tools = {state.name: state.tools for state in changed.states}
    assert tools == {**{state.name: state.tools for state in DESK.states}, "fetch": frozenset({"stock_lookup"}), "repair": None}
    assert (changed.rows, changed.kinds, changed.initial, changed.name) == (DESK.rows, DESK.kinds, DESK.initial, DESK.name)
    assert DESK.state("fetch").tools is None
    assert DESK.allowing({}) == DESK


def test_allowing_tools_in_an_unknown_state_is_refused() -> None:
    with pytest.raises(TableError, match="no state 'nowhere'"):
        DESK.allowing({"nowhere": None})


# ---- kinds of work


def test_the_kinds_of_work_are_those_written_down() -> None:
    assert {name: dict(kind.outcomes) for name, kind in KINDS.items()} == {
        "normalize": {"ready": (), "rejected": ()},
        "decide": {"decided": ("turns",), "proposed": ("turns",), "failed": ("turns",), "stopped": ()},
        "call": {"called": (), "failed": (), "no_progress": (), "stopped": ()},
        "gather": {"called": (), "failed": (), "no_progress": (), "proposed": ("turns",), "stopped": ()},
        "plan": {"rejected": (), "planned": ("turns",), "called": (), "failed": (), "stopped": ()},
        "synthesize": {"written": ("turns",), "stopped": ()},
        "verify": {"passed": ("verify_rounds",), "insufficient": ("verify_rounds",), "stopped": ("verify_rounds",)},
        "repair": {"repaired": ("attempts",), "exhausted": ()},
        "answer": {},
    }
    assert [kind for name, kind in KINDS.items() if kind.name != name or not kind.about] == []


def test_own_kinds_of_work_stand_beside_the_built_in_ones() -> None:
    shout = Kind(name="shout", outcomes={"shouted": ("turns",)})
    own = Kind(name="call", outcomes={"done": ()})
    table = Table("m", "a", [], [], {"shout": shout, "call": own})
    assert table.kinds == {**KINDS, "shout": shout, "call": own}
    assert Table("m", "a", [], []).kinds == KINDS
    assert set(KINDS) == {"normalize", "decide", "call", "gather", "plan", "synthesize", "verify", "repair", "answer"}


# ---- the machine as plain data


def test_a_small_machine_as_plain_data() -> None:
    ask = Opaque("asked", lambda run: True)
    table = Table(
        "m",
        "a",
        [State("a", work="call", tools=["y", "x"]), State("b", work="call", tools=None), State("z", work="answer")],
        [Row("a", "called", "b", (ask, AllOf("both", (steps_left, turns_left))), ("turns",)), Row("b", "called", "z")],
    )
    assert table.as_json() == {
        "name": "m",
        "initial": "a",
        "states": [
            {"name": "a", "work": "call", "tools": ["x", "y"]},
            {"name": "b", "work": "call", "tools": None},
            {"name": "z", "work": "answer", "tools": []},
        ],
        "rows": [
            {
                "source": "a",
                "outcome": "called",
                "target": "b",
                "guards": ["asked", "both"],
                "spends": ["steps<max_steps", "turns<max_turns"],
            },
            {"source": "b", "outcome": "called", "target": "z", "guards": [], "spends": []},
        ],
    }


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_plain_data_is_json(table: Table) -> None:
    assert json.loads(json.dumps(table.as_json())) == table.as_json()


# ---- the hash


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_no_changed_row_keeps_the_hash(table: Table) -> None:
    changed = [table, *(mutant for _, mutant in mutants(table)), attrs.evolve(table, rows=table.rows[::-1])]
    assert len({mutant.hash() for mutant in changed}) == len(changed)
    assert attrs.evolve(table).hash() == table.hash()


def test_each_part_of_a_machine_changes_the_hash() -> None:
    other = Spending("within_limits", "turns", "max_turns", StopReason.MAX_TURNS)
    changed = [
        DESK,
        NAIVE,
        AGENT,
        attrs.evolve(DESK, name="other"),
        attrs.evolve(DESK, initial="fetch"),
        DESK.allowing({"fetch": ()}),
        DESK.allowing({"fetch": ("a", "b")}),
        DESK.allowing({"fetch": ("ab",)}),
        attrs.evolve(DESK, states=[attrs.evolve(s, work="verify") if s.name == "repair" else s for s in DESK.states]),
        attrs.evolve(DESK, rows=[attrs.evolve(row, guards=(other,)) if row.guards else row for row in DESK.rows]),
        attrs.evolve(DESK, rows=[attrs.evolve(row, guards=(within_limits,)) if row.guards else row for row in DESK.rows]),
    ]
    assert len({table.hash() for table in changed}) == len(changed)


def test_the_order_in_which_tools_are_named_does_not_matter() -> None:
    assert DESK.allowing({"fetch": ("a", "b", "c")}).hash() == DESK.allowing({"fetch": ("c", "a", "b", "a")}).hash()


def test_the_hash_is_the_same_in_every_interpreter() -> None:
    code = (
        "from fsm_agent.lab.tables import DESK, NAIVE; from fsm_agent.core.agent_table import AGENT;"
        "print(DESK.allowing({'fetch': list('abcdef')}).hash(), NAIVE.hash(), AGENT.hash())"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True,
        ).stdout.split()
        for seed in ("1", "2")
    ]
    assert said == [[DESK.allowing({"fetch": list("abcdef")}).hash(), NAIVE.hash(), AGENT.hash()]] * 2


def test_a_name_that_is_no_proper_unicode_still_has_a_hash() -> None:
    assert len(Table("\ud800", "a", [State("a", work="answer")], []).hash()) == 16


def test_a_table_is_shown_in_one_short_line() -> None:
    assert repr(NAIVE) == "<Table 'naive desk': 4 states, 8 rows>"


@pytest.mark.parametrize("allowed", [5, "gather", ["gather"], None])
def test_what_is_no_mapping_of_states_allows_nothing(allowed: Any) -> None:
    with pytest.raises(TableError, match="give a mapping of states to lists of tools"):
        AGENT.allowing(allowed)
