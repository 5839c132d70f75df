"""Exceptions: two families, each with a message that says what, where and what would have worked."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from fsm_agent.core import errors
from fsm_agent.core.errors import FsmAgentError, MissingExtra, NoRow

BASES = {
    "FsmAgentError": (Exception,),
    "BuildError": (errors.FsmAgentError, ValueError),
    "TableError": (errors.BuildError,),
    "ContractError": (errors.BuildError,),
    "LimitsError": (errors.BuildError,),
    "MissingExtra": (errors.BuildError, ImportError),
    "RunError": (errors.FsmAgentError,),
    "NoRow": (errors.RunError,),
    "WrongEvent": (errors.RunError,),
    "RunBusy": (errors.RunError,),
    "CannotResume": (errors.RunError,),
    "CannotDecide": (errors.RunError,),
    "SavedRunError": (errors.RunError, ValueError),
}
EXAMPLES: list[FsmAgentError] = [
    *(getattr(errors, name)("what, where, mend") for name in BASES if name not in ("MissingExtra", "NoRow")),
    MissingExtra("rich", "cli", "the viewer"),
    NoRow("gather", "passed", ("called", "failed"), ("turns_left",)),
    NoRow("final", "called", ()),
]


def test_the_families_are_those_written_down() -> None:
    found = {name: kind.__bases__ for name, kind in inspect.getmembers(errors, inspect.isclass)}
    assert found == BASES


def test_every_exception_is_drawn_in_the_tree_of_the_docstring() -> None:
    drawn = errors.__doc__ or ""
    assert [name for name in BASES if name not in drawn] == []


@pytest.mark.parametrize("name", BASES)
def test_one_word_catches_everything_and_two_catch_the_families(name: str) -> None:
    kind = getattr(errors, name)
    assert issubclass(kind, FsmAgentError)
    if name != "FsmAgentError":
        assert issubclass(kind, errors.BuildError) != issubclass(kind, errors.RunError)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling_and_copying(error: FsmAgentError) -> None:
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert again.__dict__ == error.__dict__


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_is_told_in_one_line(error: FsmAgentError) -> None:
    assert str(error)
    assert "\n" not in str(error)


def test_a_missing_extra_names_the_package_the_extra_and_the_purpose() -> None:
    error = MissingExtra("rich", "cli", "the viewer")
    assert (error.package, error.extra, error.purpose) == ("rich", "cli", "the viewer")
    assert str(error) == "the viewer needs the package 'rich': pip install \"fsm-agent[cli]\""


def test_no_row_names_the_cell_what_was_closed_and_what_the_state_takes() -> None:
    error = NoRow("gather", "passed", ("called", "failed"), ("turns_left", "time_left"))
    assert (error.state, error.outcome) == ("gather", "passed")
    assert (error.takes, error.closed) == (("called", "failed"), ("turns_left", "time_left"))
    assert str(error) == (
        "no open row for 'passed' in state 'gather' (closed: turns_left, time_left); this state takes: called, failed"
    )


def test_no_row_of_a_final_state_says_that_it_is_final() -> None:
    assert str(NoRow("final", "called", ())) == (
        "no open row for 'called' in state 'final'; this state takes: nothing, it is final"
    )
