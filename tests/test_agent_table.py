"""The default machine, row by row, and the limits that bound it."""

from __future__ import annotations

import itertools
from typing import Any

import attrs
import pytest
from mutants import mutants, rows_written, states_written

from fsm_agent.core.agent_table import AGENT
from fsm_agent.core.checks import check_bounds, check_table
from fsm_agent.core.errors import TableError
from fsm_agent.core.guards import spendings, within_limits
from fsm_agent.core.limits import Limits
from fsm_agent.core.table import KINDS, Table

STATES: list[tuple[str, str, frozenset[str] | None]] = [
    ("normalize", "normalize", frozenset()),
    ("gather", "gather", None),
    ("verify", "verify", frozenset()),
    ("repair", "repair", frozenset()),
    ("final", "answer", frozenset()),
]
ROWS: list[tuple[str, str, str, tuple[str, ...], tuple[str, ...]]] = [
    ("normalize", "ready", "gather", (), ()),
    ("normalize", "rejected", "final", (), ()),
    ("gather", "called", "gather", ("within_limits",), ()),
    ("gather", "called", "final", (), ()),
    ("gather", "failed", "repair", ("has_repair", "attempts_left"), ("attempts",)),
    ("gather", "failed", "gather", ("may_redecide", "within_limits"), ("turns",)),
    ("gather", "failed", "final", (), ()),
    ("gather", "no_progress", "verify", (), ()),
    ("gather", "proposed", "verify", (), ()),
    ("gather", "stopped", "final", (), ()),
    ("verify", "passed", "final", (), ()),
    ("verify", "insufficient", "gather", ("verify_rounds_left", "gather_rounds_left", "within_limits"), ("gather_rounds",)),
    ("verify", "insufficient", "final", (), ()),
    ("verify", "stopped", "final", (), ()),
    ("repair", "repaired", "gather", ("attempts_left", "within_limits"), ()),
    ("repair", "repaired", "final", (), ()),
    ("repair", "exhausted", "final", (), ()),
]
FIGURES = ["max_steps", "max_turns", "max_attempts", "max_verify_rounds"]
# Every cycle spends steps. Without them, gathering over and over spends turns, and repairing over and over spends attempts,
# which only start anew with another turn; going round by verify spends turns as well as rounds.
BOUNDING: set[frozenset[str]] = {
    frozenset(names)
    for n in range(5)
    for names in itertools.combinations(FIGURES, n)
    if "max_steps" in names or {"max_turns", "max_attempts"} <= set(names)
}


def accepted(table: Table, limits: Limits) -> bool:
    try:
        check_bounds(table, limits)
    except TableError:
        return False
    return True


def test_the_machine_is_the_one_written_down() -> None:
    assert states_written(AGENT) == STATES
    assert rows_written(AGENT) == ROWS
    assert (AGENT.name, AGENT.initial, AGENT.kinds) == ("agent", "normalize", KINDS)


def test_the_machine_passes_its_own_checks() -> None:
    check_table(AGENT)
    check_bounds(AGENT, Limits())


def test_every_row_that_comes_back_to_gathering_needs_the_limits() -> None:
    back = [row for row in AGENT.rows if row.target == "gather" and row.source != "normalize"]
    assert [row for row in back if within_limits not in row.guards] == []
    assert len(back) == 4


def test_a_guard_stands_under_its_own_name() -> None:
    """Two guards of one name would be told as one."""
    by_name: dict[str, set[int]] = {}
    for row in AGENT.rows:
        for guard in row.guards:
            for part in [guard, *spendings(guard)]:
                by_name.setdefault(part.name, set()).add(id(part))
    assert [name for name, parts in by_name.items() if len(parts) > 1] == []


def changed() -> list[tuple[str, Table]]:
    return list(mutants(AGENT))


def test_there_is_a_changed_machine_for_every_way_to_change_a_row() -> None:
    assert len(changed()) == len(ROWS) * len(STATES) + sum(1 for row in ROWS if row[3])
    assert len({name for name, _ in changed()}) == len(changed())


@pytest.mark.parametrize(("name", "table"), changed(), ids=[name for name, _ in changed()])
def test_no_row_can_be_changed_unnoticed(name: str, table: Table) -> None:
    try:
        check_table(table)
        check_bounds(table, Limits())
    except TableError:
        return
    assert rows_written(table) != ROWS, name


# ---- the limits that bound it


@pytest.mark.parametrize("figures", list(itertools.product([None, 3], repeat=4)))
def test_the_limits_that_bound_the_machine(figures: tuple[int | None, ...]) -> None:
    named = dict(zip(FIGURES, figures, strict=True))
    on = frozenset(name for name, figure in named.items() if figure is not None)
    assert accepted(AGENT, Limits.off(**named)) is (on in BOUNDING)


@pytest.mark.parametrize("name", [field.name for field in attrs.fields(Limits)])
def test_of_all_limits_only_steps_bound_the_machine_alone(name: str) -> None:
    assert accepted(AGENT, Limits.off(**{name: 3})) is (name == "max_steps")


@pytest.mark.parametrize("missing", FIGURES)
def test_all_other_limits_together_do_not_stand_in_for_those_that_bound(missing: str) -> None:
    others: dict[str, Any] = {field.name: 3 for field in attrs.fields(Limits)}
    for off in ({missing}, {missing, "max_steps"}):
        limits = Limits(**{**others, **dict.fromkeys(off)})
        assert accepted(AGENT, limits) is ("max_steps" not in off or not off & {"max_turns", "max_attempts"})


@pytest.mark.parametrize("preset", ["__call__", "loop_guard", "react", "autogpt", "lab", "agent_loop"])
def test_every_preset_bounds_the_machine(preset: str) -> None:
    check_bounds(AGENT, Limits() if preset == "__call__" else getattr(Limits, preset)())


@pytest.mark.parametrize(
    ("named", "cycle", "mend"),
    [
        ({}, "gather -> gather", "set one of max_steps, max_turns"),
        ({"max_attempts": 3, "max_verify_rounds": 3, "deadline_s": 25}, "gather -> gather", "set one of max_steps, max_turns"),
        ({"max_turns": 3}, "gather -> repair -> gather", "set one of max_attempts, max_steps"),
        ({"max_turns": 3, "max_verify_rounds": 3}, "gather -> repair -> gather", "set one of max_attempts, max_steps"),
    ],
    ids=range(4),
)
def test_a_refusal_names_the_cycle_and_the_limits_that_would_bound_it(named: dict[str, Any], cycle: str, mend: str) -> None:
    with pytest.raises(TableError) as refused:
        check_bounds(AGENT, Limits.off(**named))
    assert str(refused.value) == f"machine 'agent': no limit in force bounds the cycle {cycle}; {mend}"
