"""The lab's two machines, row by row, and the limits that bound them."""

from __future__ import annotations

import itertools

import attrs
import pytest
from mutants import mutants, rows_written, states_written

from fsm_agent.core.checks import check_bounds, check_table
from fsm_agent.core.errors import TableError
from fsm_agent.core.limits import Limits
from fsm_agent.core.table import KINDS, Table
from fsm_agent.lab.tables import DESK, NAIVE

Written = list[tuple[str, str, str, tuple[str, ...], tuple[str, ...]]]

PICK: Written = [
    ("pick", "decided", "fetch", (), ()),
    ("pick", "proposed", "reply", (), ()),
    ("pick", "failed", "giveup", (), ()),
    ("pick", "stopped", "giveup", (), ()),
    ("fetch", "called", "reply", (), ()),
]
GIVE_UP: Written = [
    ("fetch", "failed", "giveup", (), ()),
    ("fetch", "no_progress", "giveup", (), ()),
    ("fetch", "stopped", "giveup", (), ()),
]
REPAIR: Written = [
    ("repair", "repaired", "fetch", (), ()),
    ("repair", "exhausted", "giveup", (), ()),
]
ROWS: dict[str, Written] = {
    "naive desk": [*PICK, *GIVE_UP],
    "desk": [*PICK, ("fetch", "failed", "repair", ("has_repair", "attempts_left", "steps_left"), ("attempts",)), *GIVE_UP, *REPAIR],
}
STATES: dict[str, list[tuple[str, str, frozenset[str] | None]]] = {
    "naive desk": [
        ("pick", "decide", frozenset()),
        ("fetch", "call", None),
        ("reply", "answer", frozenset()),
        ("giveup", "answer", frozenset()),
    ],
    "desk": [
        ("pick", "decide", frozenset()),
        ("fetch", "call", None),
        ("repair", "repair", frozenset()),
        ("reply", "answer", frozenset()),
        ("giveup", "answer", frozenset()),
    ],
}
TABLES = [NAIVE, DESK]
CHANGED = [(table.name, name, mutant) for table in TABLES for name, mutant in mutants(table)]
each_table = pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)


def accepted(table: Table, limits: Limits) -> bool:
    try:
        check_bounds(table, limits)
    except TableError:
        return False
    return True


@each_table
def test_the_machine_is_the_one_written_down(table: Table) -> None:
    assert states_written(table) == STATES[table.name]
    assert rows_written(table) == ROWS[table.name]
    assert (table.initial, table.kinds) == ("pick", KINDS)


@each_table
def test_the_machine_passes_its_own_checks(table: Table) -> None:
    check_table(table)
    check_bounds(table, Limits())


@each_table
def test_there_is_a_changed_machine_for_every_way_to_change_a_row(table: Table) -> None:
    names = [name for of, name, _ in CHANGED if of == table.name]
    rows, states = ROWS[table.name], STATES[table.name]
    assert len(set(names)) == len(names) == len(rows) * len(states) + sum(1 for row in rows if row[3])


@pytest.mark.parametrize(("of", "name", "table"), CHANGED, ids=[f"{of}: {name}" for of, name, _ in CHANGED])
def test_no_row_can_be_changed_unnoticed(of: str, name: str, table: Table) -> None:
    try:
        check_table(table)
        check_bounds(table, Limits.lab())
    except TableError:
        return
    assert rows_written(table) != ROWS[of], name


@pytest.mark.parametrize("figures", list(itertools.product([None, 3], repeat=3)))
def test_only_steps_bound_the_machine_that_repairs(figures: tuple[int | None, ...]) -> None:
    """Tries are counted within a turn, and no row of this machine would stop a run whose turns rose without end."""
    named = dict(zip(["max_steps", "max_turns", "max_attempts"], figures, strict=True))
    assert accepted(DESK, Limits.off(**named)) is (named["max_steps"] is not None)


@pytest.mark.parametrize("name", [field.name for field in attrs.fields(Limits)])
def test_of_all_limits_only_steps_bound_it_alone(name: str) -> None:
    assert accepted(DESK, Limits.off(**{name: 3})) is (name == "max_steps")


def test_the_machine_without_repair_has_no_cycle_to_bound() -> None:
    check_bounds(NAIVE, Limits.off())


@each_table
@pytest.mark.parametrize("preset", ["lab", "loop_guard", "react", "autogpt", "agent_loop"])
def test_every_preset_bounds_it(table: Table, preset: str) -> None:
    check_bounds(table, getattr(Limits, preset)())


def test_a_refusal_names_the_cycle_and_the_limit_that_would_bound_it() -> None:
    with pytest.raises(TableError) as refused:
        check_bounds(DESK, Limits.off(max_attempts=3, max_turns=3))
    assert str(refused.value) == (
        "machine 'desk': no limit in force bounds the cycle fetch -> repair -> fetch; set one of max_steps"
    )
