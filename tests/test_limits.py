"""Limits: each figure, what it takes and refuses, the presets, and raising them."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.agent import Agent
from fsm_agent.core.answers import Answer
from fsm_agent.core.autogpt_table import AUTOGPT
from fsm_agent.core.effects import Decide
from fsm_agent.core.errors import LimitsError
from fsm_agent.core.limits import Limits
from fsm_agent.core.values import ToolCall

HUGE = 10**5000

# name -> (kind, smallest value, default)
FIELDS: dict[str, tuple[str, int, Any]] = {
    "max_steps": ("whole", 1, 64),
    "max_turns": ("whole", 0, 10),
    "max_tool_calls": ("whole", 0, 20),
    "max_same_tool_calls": ("per tool", 0, 6),
    "max_calls_per_turn": ("whole", 0, 8),
    "stop_after_tool_calls": ("whole", 0, None),
    "max_same_call": ("whole", 0, 2),
    "max_same_observation": ("whole", 1, 3),
    "max_stale_turns": ("whole", 1, 4),
    "max_empty_results": ("whole", 1, 2),
    "max_tool_errors": ("whole", 1, 5),
    "max_bad_arguments": ("whole", 1, 5),
    "max_attempts": ("whole", 1, 3),
    "max_verify_rounds": ("whole", 1, 3),
    "max_invalid_decisions": ("whole", 0, 2),
    "max_parallel": ("whole", 1, None),
    "max_tokens": ("whole", 0, None),
    "max_cost": ("amount", 0, None),
    "deadline_s": ("amount", 0, 25.0),
    "reserve_s": ("amount", 0, 2.0),
    "max_wait_s": ("amount", 0, 60.0),
    "dedup_window": ("whole", 1, None),
    "min_evidence": ("whole", 0, 1),
}
DEFAULTS = {name: default for name, (_, _, default) in FIELDS.items()}
# Figures of which more is no longer leash: raising them asks more of the run, so both directions are open.
NO_LEASH = {"min_evidence", "reserve_s"}
LEASHES = [name for name in FIELDS if name not in NO_LEASH]


class Unspeakable:
    """A value that can be neither shown nor compared."""

    def __repr__(self) -> str:
        raise RuntimeError("no words")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparing")

    __hash__ = None  # type: ignore[assignment]


NEVER: list[Any] = [
    True,
    False,
    -1,
    -HUGE,
    math.nan,
    -math.nan,
    math.inf,
    -math.inf,
    -0.5,
    "",
    "3",
    "9" * 100_000,
    "\ud800",
    b"3",
    [],
    (3,),
    {3},
    1j,
    Decimal(3),
    Fraction(3),
    object(),
    Unspeakable(),
    int,
]
BAD: dict[str, list[Any]] = {
    "whole": [*NEVER, {}, 3.0, 0.5],
    "amount": [*NEVER, {}, HUGE],
    "per tool": [*NEVER, 3.0, *({"a": bad} for bad in NEVER), {"a": 3.0}, {"a": {}}, {"a": 1, "b": -1}],
}


def good(name: str) -> list[Any]:
    kind, least, _ = FIELDS[name]
    common = [None, least, least + 1, 10**18]
    if kind == "whole":
        return [*common, HUGE]
    if kind == "amount":
        return [*common, 0.0, -0.0, 0.5, 5e-324, 1e308, 10**300]
    return [*common, HUGE, {}, {"a": 0}, {"a": None, "b": HUGE}]


def figures(limits: Limits) -> dict[str, Any]:
    return attrs.asdict(limits, recurse=False)


# ---- what each field takes


def test_the_fields_and_defaults_are_those_written_down() -> None:
    assert figures(Limits()) == DEFAULTS
    assert list(figures(Limits())) == list(DEFAULTS)


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_takes_every_good_value_and_keeps_it(name: str) -> None:
    for value in good(name):
        assert figures(Limits(**{name: value})) == {**DEFAULTS, name: value}


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_refuses_a_bad_value_and_says_what_would_do(name: str) -> None:
    kind = FIELDS[name][0]
    for bad in BAD[kind]:
        with pytest.raises(LimitsError) as refused:
            Limits(**{name: bad})
        said = str(refused.value)
        assert f"Limits.{name} is " in said
        assert {"whole": "whole number from ", "amount": "finite number from 0", "per tool": "whole number from 0"}[kind] in said
        assert "None" in said
        assert len(said) < 250


def test_a_text_that_is_no_figure_is_quoted_in_its_refusal() -> None:
    with pytest.raises(LimitsError, match=r"Limits\.max_turns is '9'; give a whole number"):
        Limits(max_turns="9")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [name for name, (kind, _, _) in FIELDS.items() if kind == "whole"])
def test_a_whole_number_has_a_smallest_value_which_the_message_names(name: str) -> None:
    least = FIELDS[name][1]
    assert getattr(Limits(**{name: least}), name) == least
    with pytest.raises(LimitsError, match=f"is {least - 1}; give a whole number from {least},"):
        Limits(**{name: least - 1})


def test_limits_cannot_be_changed() -> None:
    limits = Limits()
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        limits.max_steps = 1  # type: ignore[misc]


def test_limits_are_equal_by_their_figures() -> None:
    assert Limits(max_steps=3) == Limits(max_steps=3)
    assert Limits(max_steps=3) != Limits(max_steps=4)


def test_an_unknown_figure_is_no_argument() -> None:
    with pytest.raises(TypeError, match="max_stpes"):
        Limits(max_stpes=3)  # type: ignore[call-arg]


# ---- one tool


def test_a_mapping_given_is_not_shared_with_its_giver() -> None:
    mapping = {"a": 1}
    limits = Limits(max_same_tool_calls=mapping)
    mapping["a"] = 9
    assert limits.for_tool("a") == 1


@pytest.mark.parametrize(
    ("figure", "of_a", "of_b"),
    [(6, 6, 6), (None, None, None), ({"a": 2}, 2, None), ({"a": None, "b": 0}, None, 0), ({}, None, None)],
)
def test_a_tool_has_its_own_figure_or_the_one_for_all(figure: Any, of_a: int | None, of_b: int | None) -> None:
    limits = Limits(max_same_tool_calls=figure)
    assert (limits.for_tool("a"), limits.for_tool("b")) == (of_a, of_b)


# ---- time for work


@pytest.mark.parametrize(
    ("deadline", "reserve", "until"),
    [
        (None, 2.0, None),
        (None, None, None),
        (25.0, 2.0, 23.0),
        (25, None, 25.0),
        (25, 0, 25.0),
        (25, 2.5, 22.5),
        (25, 100, 22.5),
        (10.0, 2.0, 8.0),
        (9.9, 2.0, 8.91),
        (10, 1, 9),
        (0, 2.0, 0),
        (0.0, None, 0.0),
    ],
)
def test_the_last_part_of_the_deadline_is_kept_for_the_answer(deadline: Any, reserve: Any, until: float | None) -> None:
    assert Limits(deadline_s=deadline, reserve_s=reserve).work_until_s == until


SECONDS = st.floats(min_value=0, max_value=1e9) | st.integers(0, 10**9)


@given(deadline=SECONDS, reserve=st.none() | SECONDS)
def test_the_reserve_is_kept_or_a_tenth_of_a_deadline_that_is_short_for_it(deadline: float, reserve: float | None) -> None:
    until = Limits(deadline_s=deadline, reserve_s=reserve).work_until_s
    assert until is not None
    kept = deadline - until
    wanted = reserve or 0
    assert kept == pytest.approx(wanted if deadline >= 5 * wanted else deadline / 10, abs=1e-5)
    assert 0 <= kept <= min(wanted, deadline / 5) * (1 + 1e-9) + 1e-5


# ---- presets

OFF: dict[str, Any] = {**dict.fromkeys(DEFAULTS), "min_evidence": 0}
PRESETS: dict[str, dict[str, Any]] = {
    "off": OFF,
    "loop_guard": {
        **DEFAULTS,
        "max_tool_calls": 12,
        "max_same_call": 2,
        "max_same_observation": 3,
        "max_attempts": 2,
        "max_same_tool_calls": None,
        "max_turns": None,
    },
    "react": {
        **DEFAULTS,
        "max_tool_calls": 6,
        "max_turns": 10,
        "max_same_call": 1,
        "max_tool_errors": 2,
        "max_empty_results": 2,
        "max_stale_turns": 4,
        "max_same_tool_calls": None,
    },
    "autogpt": {
        **DEFAULTS,
        "max_steps": 12,
        "max_tool_calls": 20,
        "max_same_tool_calls": 6,
        "deadline_s": 25.0,
        "max_verify_rounds": 3,
        "dedup_window": 12,
        "max_same_call": None,
        "min_evidence": 3,
        "max_turns": None,
    },
    "lab": {**OFF, "max_attempts": 3, "max_steps": 64},
    "agent_loop": {
        **DEFAULTS,
        "max_turns": 5,
        "max_calls_per_turn": 10,
        "stop_after_tool_calls": 20,
        "max_tool_calls": None,
        "max_same_tool_calls": None,
        "min_evidence": 0,
    },
}


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_has_the_figures_of_its_seed(preset: str) -> None:
    assert figures(getattr(Limits, preset)()) == PRESETS[preset]


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", FIELDS)
def test_a_preset_takes_every_figure_by_name(preset: str, name: str) -> None:
    for value in good(name):
        assert figures(getattr(Limits, preset)(**{name: value})) == {**PRESETS[preset], name: value}


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_refuses_what_limits_refuse(preset: str) -> None:
    make = getattr(Limits, preset)
    with pytest.raises(LimitsError, match="max_steps"):
        make(max_steps=0)
    with pytest.raises(TypeError, match="max_stpes"):
        make(max_stpes=3)


# ---- raising


@pytest.mark.parametrize("name", FIELDS)
def test_raising_takes_the_same_figure_a_higher_one_and_none(name: str) -> None:
    limits = Limits(**{name: 5})
    for value in (5, 6, None):
        assert figures(limits.raised({name: value})) == {**DEFAULTS, name: value}
    assert getattr(limits, name) == 5


@pytest.mark.parametrize("name", LEASHES)
def test_lowering_is_refused_and_the_message_names_both_figures(name: str) -> None:
    with pytest.raises(LimitsError, match=rf"Limits\.{name} would fall from 5 to 4"):
        Limits(**{name: 5}).raised({name: 4})


@pytest.mark.parametrize("name", LEASHES)
def test_a_limit_that_is_off_cannot_be_set(name: str) -> None:
    with pytest.raises(LimitsError, match=rf"Limits\.{name} would fall from None to 10"):
        Limits(**{name: None}).raised({name: 10})


@pytest.mark.parametrize("name", sorted(NO_LEASH))
def test_what_is_asked_of_a_run_may_be_changed_either_way(name: str) -> None:
    for before in (0, 5, None):
        for after in (0, 5, 9, None):
            assert getattr(Limits(**{name: before}).raised({name: after}), name) == after


@pytest.mark.parametrize("name", FIELDS)
def test_raising_to_a_bad_value_is_refused(name: str) -> None:
    for bad in BAD[FIELDS[name][0]]:
        with pytest.raises(LimitsError, match=name):
            Limits().raised({name: bad})


UNKNOWN: list[Any] = ["max_stpes", "", "off", "work_until_s", "\ud800", 3, None, HUGE, ("max_steps",)]


@pytest.mark.parametrize("name", UNKNOWN, ids=range(len(UNKNOWN)))
def test_raising_an_unknown_figure_is_refused_with_the_names_there_are(name: Any) -> None:
    with pytest.raises(LimitsError) as refused:
        Limits().raised({name: 3})
    assert "no field" in str(refused.value)
    assert [known for known in FIELDS if known not in str(refused.value)] == []


@pytest.mark.parametrize("name", [name for name in LEASHES if FIELDS[name][0] == "whole"])
def test_lowering_a_figure_that_cannot_be_written_is_refused_in_words(name: str) -> None:
    with pytest.raises(LimitsError, match=name):
        Limits(**{name: HUGE + 1}).raised({name: HUGE})


@pytest.mark.parametrize("changes", [None, 3, "max_steps", [("max_steps", 70)]])
def test_only_a_mapping_is_a_raise(changes: Any) -> None:
    with pytest.raises(LimitsError):
        Limits().raised(changes)


def test_several_figures_are_raised_together_or_not_at_all() -> None:
    limits = Limits()
    raised = limits.raised({"max_steps": 100, "deadline_s": None, "max_turns": 11})
    assert figures(raised) == {**DEFAULTS, "max_steps": 100, "deadline_s": None, "max_turns": 11}
    with pytest.raises(LimitsError, match="max_turns"):
        limits.raised({"max_steps": 100, "max_turns": 9})
    assert figures(limits) == DEFAULTS


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        (6, 9, 9),
        ({"a": 2, "b": 3}, {"b": 5}, {"a": 2, "b": 5}),
        ({"a": 2, "b": 3}, {"a": 2, "b": None}, {"a": 2, "b": None}),
        ({"a": 2}, {}, {"a": 2}),
        ({"a": 2}, None, None),
        (6, None, None),
    ],
)
def test_the_figure_of_one_tool_is_raised_and_the_others_stay(before: Any, change: Any, after: Any) -> None:
    limits = Limits(max_same_tool_calls=before)
    assert limits.raised({"max_same_tool_calls": change}).max_same_tool_calls == after
    assert limits.max_same_tool_calls == before


def test_raising_one_tool_above_the_figure_for_all_leaves_the_others_at_it() -> None:
    raised = Limits(max_same_tool_calls=6).raised({"max_same_tool_calls": {"a": 9}})
    assert (raised.for_tool("a"), raised.for_tool("b")) == (9, 6)


@pytest.mark.parametrize(
    ("before", "change"), [({"a": 2}, {"a": 1}), ({"a": 2, "b": None}, {"b": 7}), (6, {"a": 5}), ({"a": 9}, 3)]
)
def test_no_tool_is_given_less(before: Any, change: Any) -> None:
    with pytest.raises(LimitsError, match="max_same_tool_calls"):
        Limits(max_same_tool_calls=before).raised({"max_same_tool_calls": change})


COUNTS = [name for name in LEASHES if name != "max_same_tool_calls"]


@given(st.dictionaries(st.sampled_from(COUNTS), st.none() | st.integers(1, 9)), st.data())
def test_raising_never_lowers_a_figure_and_twice_is_once(start: dict[str, Any], data: st.DataObject) -> None:
    limits = Limits.off(**start)
    changes = data.draw(st.dictionaries(st.sampled_from(COUNTS), st.none() | st.integers(1, 9)))
    allowed = all(
        new is None or (figures(limits)[name] is not None and new >= figures(limits)[name]) for name, new in changes.items()
    )
    if not allowed:
        with pytest.raises(LimitsError, match="would fall"):
            limits.raised(changes)
        return
    raised = limits.raised(changes)
    assert figures(raised) == {**figures(limits), **changes}
    assert raised.raised(changes) == raised
    assert limits.raised({}) == limits


# ---- a preset in an agent of one tool: no limit that its seed does not have ends the run before those that it has


def asking(limits: Limits, *turns: int) -> Answer:
    """A run whose decider asks for so many calls a turn, none twice, the last figure for good."""
    numbers = itertools.count()

    def decide(ask: Decide) -> list[ToolCall]:
        return [ToolCall("look", {"n": next(numbers)}) for _ in range(turns[min(ask.run.turns, len(turns) - 1)])]

    return Agent({"look": {"fn": lambda n: f"seen {n}", "args": {"n": {"type": "int"}}, "effect": "pure"}}, decide, limits=limits).run("x")


@pytest.mark.parametrize(("preset", "most"), [("loop_guard", 12), ("react", 6)])
def test_a_preset_lets_one_tool_have_all_calls_and_stops_at_the_next(preset: str, most: int) -> None:
    answer = asking(getattr(Limits, preset)(), 1)
    assert (answer.stop_reason, answer.usage["body_runs"]) == ("max_tool_calls", most)


def test_the_loop_guard_gathers_twice_more_however_often_the_verifier_says_no() -> None:
    def decide(ask: Decide) -> ToolCall | str:
        return ToolCall("look", {"n": ask.run.turns}) if len(ask.run.calls) <= ask.run.gather_rounds else "so it is"

    tools = {"look": {"fn": lambda n: f"seen {n}", "args": {"n": {"type": "int"}}, "effect": "pure"}}
    answer = Agent(tools, decide, verify=lambda judge: False, limits=Limits.loop_guard()).run("x")
    assert (answer.stop_reason, answer.usage["body_runs"], answer.path.count("gather")) == ("unverified", 3, 3)


def test_the_machine_of_seed_002_may_take_all_of_its_twelve_steps() -> None:
    def decide(ask: Decide) -> ToolCall | str:
        tool = ("web_search", "http_get")[ask.run.turns % 2]
        return ToolCall(tool, {"n": ask.run.turns}) if ask.run.state == "fetch" else "first look, then write"

    # What all calls find comes from one source, so there is never evidence enough to write from.
    look = {"fn": lambda n: f"seen {n}", "args": {"n": {"type": "int"}}, "source": "one"}
    answer = Agent({"web_search": look, "http_get": look}, decide, machine=AUTOGPT).run("x")
    # A plan and eleven calls, each a state entered.
    assert (answer.stop_reason, answer.usage["turns"], answer.usage["body_runs"]) == ("max_steps", 12, 11)


def test_the_agent_loop_runs_ten_calls_of_one_tool_in_a_turn() -> None:
    assert answer_errors(asking(Limits.agent_loop(max_turns=1), 12)) == [""] * 10 + ["skipped:max_calls_per_turn"] * 2


def test_the_agent_loop_lets_the_turn_that_crosses_its_twenty_calls_finish() -> None:
    answer = asking(Limits.agent_loop(), 9, 9, 9)
    assert (answer.stop_reason, answer.usage["body_runs"], answer_errors(answer)) == ("stop_after_tool_calls", 27, [""] * 27)


def test_the_agent_loop_ends_with_a_text_that_needed_no_tool() -> None:
    answer = Agent({"look": {"fn": lambda: 1, "args": {}}}, lambda ask: "Hello.", limits=Limits.agent_loop()).run("hello")
    assert (answer.status, answer.text, answer.usage["turns"]) == ("ok", "Hello.", 1)


def answer_errors(answer: Answer) -> list[str]:
    """The error words of a run's calls, in order."""
    assert answer.run is not None
    return [call.error for call in answer.run.calls]
