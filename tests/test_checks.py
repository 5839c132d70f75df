"""What is refused when a machine is built, and the proof that what is accepted ends."""

from __future__ import annotations

import itertools
import math
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import attrs
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from fsm_agent.core._machine import Machine
from fsm_agent.core.checks import check_bounds, check_table, unbounded_cycle
from fsm_agent.core.errors import BuildError, TableError
from fsm_agent.core.guards import (
    AllOf,
    Guard,
    Opaque,
    Spending,
    attempts_left,
    cost_left,
    few_tool_errors,
    spendings,
    steps_left,
    time_left,
    turns_left,
    verify_rounds_left,
    within_limits,
)
from fsm_agent.core.limits import Limits
from fsm_agent.core.run import Run
from fsm_agent.core.table import KINDS as BUILT_IN
from fsm_agent.core.table import Kind, Row, State, Table
from fsm_agent.core.values import StopReason

asked = Opaque("asked", lambda run: bool(run.fields["asked"]))
drafts_left = Spending("drafts_left", "drafts", "max_tool_calls", StopReason.MAX_TOOL_CALLS)

# A machine of two working states and a final one, each outcome with its unguarded last row.
KINDS = {
    "draft": Kind(name="draft", outcomes={"good": ("drafts",), "bad": ("drafts",)}),
    "polish": Kind(name="polish", outcomes={"done": (), "again": ()}),
}
STATES = (State("write", work="draft"), State("mend", work="polish"), State("end", work="answer"))
ROWS = (
    Row("write", "good", "end"),
    Row("write", "bad", "mend", (drafts_left,)),
    Row("write", "bad", "end"),
    Row("mend", "done", "end"),
    Row("mend", "again", "write"),
)


def machine(
    rows: Iterable[Row] = ROWS, states: Iterable[State] = STATES, initial: str = "write", kinds: dict[str, Kind] = KINDS
) -> Table:
    return Table("author", initial, states, rows, kinds)


def refusal(check: Callable[[], Any]) -> str:
    with pytest.raises(TableError) as refused:
        check()
    assert "\n" not in str(refused.value)
    return str(refused.value)


# ---- what no run can use


def test_a_table_that_every_run_can_use_is_accepted() -> None:
    check_table(machine())
    check_bounds(machine(), Limits())


def test_an_unknown_initial_state_is_refused() -> None:
    said = refusal(lambda: check_table(machine(initial="begin")))
    assert said == "machine 'author' starts in 'begin', which is no state of it; it has write, mend, end"


def test_a_state_named_twice_is_refused() -> None:
    said = refusal(lambda: check_table(machine(states=[*STATES, State("mend", work="answer")])))
    assert said == "machine 'author' has the state 'mend' twice; give each state its own name"


def test_an_unknown_kind_of_work_is_refused_with_those_there_are() -> None:
    said = refusal(lambda: check_table(machine(states=[State("write", work="scribble"), *STATES[1:]])))
    assert "state 'write' does 'scribble', which is no kind of work; there are " in said
    assert [kind for kind in ("answer", "call", "draft", "gather", "polish", "verify") if kind not in said] == []


@pytest.mark.parametrize("row", [Row("writ", "good", "end"), Row("write", "good", "ende")], ids=["source", "target"])
def test_a_row_at_an_unknown_state_is_refused(row: Row) -> None:
    wrong, near = ("writ", "write") if row.source == "writ" else ("ende", "end")
    said = refusal(lambda: check_table(machine(rows=[row, *ROWS])))
    assert said == f"row {row}: there is no state {wrong!r}; did you mean {near!r}? the machine has write, mend, end"


def test_a_row_that_leaves_a_final_state_is_refused() -> None:
    said = refusal(lambda: check_table(machine(rows=[*ROWS, Row("end", "good", "write")])))
    assert said == "row end --good--> write: 'end' is final, so no row can leave it; drop the row"


def test_an_outcome_that_the_work_never_reports_is_refused() -> None:
    said = refusal(lambda: check_table(machine(rows=[*ROWS, Row("mend", "good", "end")])))
    assert said == "row mend --good--> end: 'polish' work never reports 'good'; it reports done, again"


def test_a_row_of_work_that_reports_nothing_is_refused() -> None:
    states = [*STATES, State("idle", work="idle")]
    kinds = {**KINDS, "idle": Kind(name="idle", outcomes={})}
    said = refusal(lambda: check_table(machine(rows=[*ROWS, Row("idle", "good", "end")], states=states, kinds=kinds)))
    assert said == "row idle --good--> end: 'idle' work never reports 'good'; it reports nothing"


@pytest.mark.parametrize("missing", [row for row in ROWS if not row.guards], ids=str)
def test_an_outcome_without_an_unguarded_last_row_is_refused(missing: Row) -> None:
    rows = [row for row in ROWS if row is not missing]
    said = refusal(lambda: check_table(machine(rows=rows)))
    assert said.startswith(f"state {missing.source!r} may report {missing.outcome!r} and ")
    assert said.endswith(f"; add a last row {missing.source} --{missing.outcome}--> <state> without guards")
    others = [row for row in rows if (row.source, row.outcome) == (missing.source, missing.outcome)]
    why = f"every row for it is guarded (the last is {others[-1]})" if others else "it has no row"
    assert why in said


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((), ()),
        ((), (drafts_left,)),
        ((drafts_left,), (drafts_left,)),
        ((drafts_left,), (drafts_left, asked)),
        ((drafts_left, asked), (asked, drafts_left)),
        ((asked,), (drafts_left, asked, turns_left)),
        ((steps_left,), (within_limits,)),
        ((turns_left, steps_left), (asked, within_limits)),
        ((AllOf("both", (asked, drafts_left)),), (drafts_left, asked)),
        ((), (within_limits,)),
    ],
    ids=range(10),
)
def test_a_row_that_can_never_win_is_refused(before: tuple[Guard, ...], after: tuple[Guard, ...]) -> None:
    first, second = Row("write", "good", "end", before), Row("write", "good", "mend", after)
    last = () if not after else (ROWS[0],)
    said = refusal(lambda: check_table(machine(rows=[first, second, *last, *ROWS[1:]])))
    assert f"row {second} can never win" in said
    assert str(first) in said


def test_a_guarded_row_after_the_unguarded_one_is_what_is_refused() -> None:
    late = Row("mend", "again", "end", (drafts_left,))
    said = refusal(lambda: check_table(machine(rows=[*ROWS, late])))
    assert f"row {late} can never win: {ROWS[-1]} comes first" in said


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_same_row_twice_is_refused(row: Row) -> None:
    for again in (row, attrs.evolve(row)):
        rows = [each for one in ROWS for each in ((one, again) if one is row else (one,))]
        assert f"row {row} can never win" in refusal(lambda rows=rows: check_table(machine(rows=rows)))  # type: ignore[misc]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((drafts_left,), (asked,)),
        ((drafts_left, asked), (drafts_left,)),
        ((within_limits,), (steps_left,)),
        ((drafts_left, asked), (asked, turns_left)),
    ],
    ids=range(4),
)
def test_a_row_with_a_guard_less_may_win_later(before: tuple[Guard, ...], after: tuple[Guard, ...]) -> None:
    rows = [Row("write", "good", "end", before), Row("write", "good", "mend", after), *ROWS]
    check_table(machine(rows=rows))


def test_a_state_that_cannot_be_reached_is_refused() -> None:
    rows = [row for row in ROWS if row.target != "mend"]
    said = refusal(lambda: check_table(machine(rows=rows)))
    assert said == "state 'mend' cannot be reached from 'write'; add a row to it or drop it"


def test_a_final_state_that_cannot_be_reached_is_refused() -> None:
    said = refusal(lambda: check_table(machine(states=[*STATES, State("other end", work="answer")])))
    assert said == "state 'other end' cannot be reached from 'write'; add a row to it or drop it"


def test_a_state_that_reaches_no_final_state_is_refused() -> None:
    rows = [attrs.evolve(row, target="mend") if row.source == "mend" else row for row in ROWS]
    said = refusal(lambda: check_table(machine(rows=rows)))
    assert said.startswith("state 'mend' can never reach a final state; add a row that leads to one")
    assert "'answer'" in said


def test_a_machine_without_a_final_state_is_refused() -> None:
    kinds = {"spin": Kind(name="spin", outcomes={"on": ()})}
    said = refusal(lambda: check_table(Table("m", "a", [State("a", "spin")], [Row("a", "on", "a")], kinds)))
    assert said.startswith("state 'a' can never reach a final state")


def test_a_machine_of_a_final_state_alone_is_accepted() -> None:
    check_table(Table("m", "z", [State("z", work="answer")], []))
    check_bounds(Table("m", "z", [State("z", work="answer")], []), Limits.off())


def test_a_machine_without_states_is_refused() -> None:
    assert "starts in 'a'" in refusal(lambda: check_table(Table("m", "a", [], [])))


@pytest.mark.parametrize(
    ("guard", "wrong"),
    [
        (Spending("drafts_left", "drafts", "max_drafts", StopReason.MAX_ATTEMPTS), "max_drafts"),
        (Spending("hurries", "spent_s", "deadline_s", StopReason.DEADLINE, bound="work_til_s"), "work_til_s"),
        (Spending("few_errors", "errors", "max_tool_errors", StopReason.MAX_TOOL_ERRORS), "errors"),
        (Spending("short_note", "note", "max_tokens", StopReason.MAX_TOKENS), "note"),
    ],
    ids=["no such limit", "no such bound", "a list", "a text"],
)
@pytest.mark.parametrize("within", [False, True])
def test_a_spending_guard_that_could_only_raise_is_refused(guard: Spending, wrong: str, within: bool) -> None:
    guards = (AllOf("both", (drafts_left, guard)) if within else guard,)
    with pytest.raises(BuildError, match=wrong):
        check_bounds(machine(rows=[Row("mend", "done", "end", guards), *ROWS]), Limits())


def test_limits_of_the_users_own_may_have_further_figures() -> None:
    @attrs.frozen(kw_only=True)
    class More(Limits):
        max_drafts: int | None = 2

    guard = Spending("drafts_left", "drafts", "max_drafts", StopReason.MAX_ATTEMPTS)
    table = machine(rows=[attrs.evolve(row, guards=(guard,)) if row.guards else row for row in ROWS])
    check_table(table)
    check_bounds(table, More())
    assert "set one of max_drafts" in refusal(lambda: check_bounds(table, More(max_drafts=None)))


# ---- what no run may be left to


def loop(*guards: Guard, claims: tuple[str, ...] = (), spends: tuple[str, ...] = ()) -> Table:
    """One state that may go round: the kind of work claims some counters, the row others."""
    kind = Kind(name="spin", outcomes={"on": claims, "off": ()})
    rows = [Row("a", "on", "a", guards, spends), *([Row("a", "on", "z")] if guards else []), Row("a", "off", "z")]
    table = Table("spinner", "a", [State("a", "spin"), State("z", "answer")], rows, {"spin": kind})
    check_table(table)
    return table


def bounded(table: Table, limits: Limits) -> bool:
    try:
        check_bounds(table, limits)
    except TableError:
        return False
    return True


@pytest.mark.parametrize(
    ("table", "limits", "accepted"),
    [
        (loop(), Limits(), False),
        (loop(steps_left), Limits.off(max_steps=3), True),
        (loop(steps_left), Limits.off(), False),
        (loop(steps_left), Limits.off(max_turns=3), False),
        (loop(turns_left), Limits.off(max_turns=3), False),
        (loop(turns_left, claims=("turns",)), Limits.off(max_turns=3), True),
        (loop(turns_left, spends=("turns",)), Limits.off(max_turns=3), True),
        (loop(turns_left, spends=("tokens",)), Limits.off(max_turns=3), False),
        (loop(turns_left, spends=("turns",)), Limits.off(max_turns=0), True),
        (loop(within_limits, claims=("turns",)), Limits.off(max_turns=3), True),
        (loop(within_limits), Limits.off(max_steps=3), True),
        (loop(AllOf("one", (AllOf("two", (asked, turns_left)),)), claims=("turns",)), Limits.off(max_turns=3), True),
        (loop(asked, claims=("turns",)), Limits(), False),
        (loop(asked, steps_left), Limits(), True),
        (loop(drafts_left, spends=("drafts",)), Limits.off(max_tool_calls=1), True),
        (loop(drafts_left), Limits.off(max_tool_calls=1), False),
        (loop(time_left, spends=("spent_s",)), Limits.off(deadline_s=1), True),
        (loop(time_left, spends=("spent_s",)), Limits.off(), False),
        (loop(time_left), Limits.off(deadline_s=1), False),
        (loop(few_tool_errors, spends=("tool_errors",)), Limits.off(max_tool_errors=1), True),
        (loop(few_tool_errors), Limits.off(max_tool_errors=1), False),
        (loop(attempts_left, spends=("attempts",)), Limits.off(max_attempts=3), False),
        (loop(attempts_left, spends=("attempts",)), Limits.off(max_attempts=3, max_turns=3), False),
        (loop(attempts_left, turns_left, spends=("attempts",)), Limits.off(max_attempts=3, max_turns=3), True),
        (loop(attempts_left, turns_left, spends=("attempts", "turns")), Limits.off(max_attempts=3), False),
    ],
    ids=range(25),
)
def test_a_loop_is_bounded_by_a_guard_whose_counter_it_is_sure_to_spend(table: Table, limits: Limits, accepted: bool) -> None:
    assert bounded(table, limits) is accepted


@pytest.mark.parametrize("part", within_limits.guards, ids=lambda part: part.name)
def test_any_limit_bounds_a_loop_that_is_sure_to_spend_its_counter(part: Spending) -> None:
    assert bounded(loop(part, spends=(part.counter,)), Limits.off(**{part.limit: 3}))
    assert not bounded(loop(part, spends=("other",)), Limits.off(**{part.limit: 3})) or part is steps_left
    assert not bounded(loop(part, spends=(part.counter,)), Limits.off())


def two_loops(first: Row, second: Row) -> Table:
    kind = Kind(name="spin", outcomes={"on": (), "by": (), "off": ()})
    ends = [Row("a", row.outcome, "z") for row in (first, second) if row.guards]
    table = Table(
        "spinner", "a", [State("a", "spin"), State("z", "answer")], [first, second, *ends, Row("a", "off", "z")], {"spin": kind}
    )
    check_table(table)
    return table


@pytest.mark.parametrize(
    ("guards", "spends", "accepted"),
    [
        # Each loop is guarded by what it spends itself.
        (((turns_left,), (drafts_left,)), (("turns",), ("drafts",)), True),
        # The second spends nothing that guards it.
        (((turns_left,), (turns_left,)), (("turns",), ()), False),
        # Each is guarded by what only the other spends.
        (((turns_left,), (drafts_left,)), (("drafts",), ("turns",)), False),
        # The first is bounded by its own counter; then only the second is left, bounded by its own.
        (((turns_left,), (turns_left, drafts_left)), (("turns",), ("drafts",)), True),
        # Walking the second once more needs the first, which is guarded by the second's counter and its own.
        (((turns_left, drafts_left), (drafts_left,)), (("turns",), ("drafts",)), True),
        (((turns_left,), ()), (("turns",), ()), False),
        # Attempts start anew whenever a turn is spent, and the second loop spends turns without end.
        (((attempts_left,), ()), (("attempts",), ("turns",)), False),
        (((attempts_left,), (turns_left,)), (("attempts",), ("turns",)), False),
        (((attempts_left, turns_left), (turns_left,)), (("attempts",), ("turns",)), True),
    ],
    ids=range(9),
)
def test_two_loops_are_bounded_together(
    guards: Sequence[tuple[Guard, ...]], spends: Sequence[tuple[str, ...]], accepted: bool
) -> None:
    first, second = Row("a", "on", "a", guards[0], spends[0]), Row("a", "by", "a", guards[1], spends[1])
    limits = Limits.off(max_turns=2, max_tool_calls=2, max_attempts=2)
    assert bounded(two_loops(first, second), limits) is accepted


def test_the_refusal_names_the_loop_that_nothing_bounds_not_a_bounded_one_beside_it() -> None:
    a_to_b, b_to_a = Row("a", "on", "b", (turns_left,), ("turns",)), Row("b", "on", "a")
    kind = Kind(name="spin", outcomes={"on": (), "by": (), "off": ()})
    rows = [a_to_b, Row("a", "on", "z"), Row("a", "by", "z"), b_to_a, Row("b", "by", "b", (steps_left,)), Row("b", "by", "z")]
    ends = [Row("a", "off", "z"), Row("b", "off", "z")]
    table = Table("m", "a", [State("a", "spin"), State("b", "spin"), State("z", "answer")], [*rows, *ends], {"spin": kind})
    check_table(table)
    said = refusal(lambda: check_bounds(table, Limits.off(max_turns=2)))
    assert said == "machine 'm': no limit in force bounds the cycle b -> b; set one of max_steps"


@pytest.mark.parametrize(
    ("table", "limits", "mend"),
    [
        (loop(steps_left), Limits.off(), "set one of max_steps"),
        (loop(within_limits, claims=("turns",)), Limits.off(), "set one of max_steps, max_turns"),
        (loop(within_limits, claims=("turns",)), Limits.off(deadline_s=5, max_tokens=9), "set one of max_steps, max_turns"),
        (loop(within_limits, claims=("turns", "cost")), Limits.off(), "set one of max_cost, max_steps, max_turns"),
        (loop(turns_left, few_tool_errors, cost_left, spends=("turns",)), Limits.off(), "set one of max_turns"),
        (loop(), Limits(), "guard one of its rows by a spending guard"),
        (loop(asked), Limits(), "guard one of its rows by a spending guard"),
        (loop(turns_left), Limits(), "guard one of its rows by a spending guard"),
    ],
    ids=range(8),
)
def test_the_refusal_names_the_cycle_and_only_mends_that_work(table: Table, limits: Limits, mend: str) -> None:
    said = refusal(lambda: check_bounds(table, limits))
    assert said.startswith(f"machine 'spinner': no limit in force bounds the cycle a -> a; {mend}")
    assert said.count("max_") == mend.count("max_")


def test_a_ring_of_many_states_is_measured_without_deep_recursion() -> None:
    n = 300
    kind = Kind(name="spin", outcomes={"on": (), "off": ()})
    names = [f"s{at}" for at in range(n)]
    rows = [Row(name, "on", names[(at + 1) % n], (steps_left,) if at == n - 1 else ()) for at, name in enumerate(names)]
    rows += [Row(names[-1], "on", "z"), *(Row(name, "off", "z") for name in names)]
    table = Table("ring", "s0", [*(State(name, "spin") for name in names), State("z", "answer")], rows, {"spin": kind})
    check_table(table)
    assert bounded(table, Limits())
    assert refusal(lambda: check_bounds(table, Limits.off())).count(" -> ") == n


SOME_LIMITS = [
    "max_steps", "max_turns", "max_tool_calls", "stop_after_tool_calls", "max_same_call", "max_same_observation",
    "max_stale_turns", "max_empty_results", "max_tool_errors", "max_bad_arguments",
]


def many_counters(n: int, own: bool) -> Table:
    """A state with n loops, each guarded by a counter of its own, which it spends itself or only the others do."""
    kind = Kind(name="spin", outcomes=dict.fromkeys([*(f"o{at}" for at in range(n)), "off"], ()))
    rows = [Row("a", "off", "z")]
    for at, limit in enumerate(SOME_LIMITS[:n]):
        guard = Spending(f"g{at}", f"c{at}", limit, StopReason.MAX_STEPS)
        spends = tuple(f"c{other}" for other in range(n) if (other == at) is own)
        rows += [Row("a", f"o{at}", "a", (guard,), spends), Row("a", f"o{at}", "z")]
    return Table("m", "a", [State("a", "spin"), State("z", "answer")], rows, {"spin": kind})


class TooManyCalls(BaseException):
    pass


@pytest.mark.parametrize(("own", "accepted"), [(True, True), (False, False)])
def test_a_machine_of_many_counters_is_measured_in_little_time(own: bool, accepted: bool) -> None:
    calls = 0

    def count(frame: Any, what: str, arg: Any) -> None:
        nonlocal calls
        calls += what == "call"
        if calls > 200_000:
            raise TooManyCalls

    table, limits = many_counters(len(SOME_LIMITS), own), Limits.off(**dict.fromkeys(SOME_LIMITS, 3))
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        found = bounded(table, limits)
    finally:
        sys.setprofile(before)
    assert found is accepted


# ---- the law: what is accepted ends, what is refused does not

POOL: list[Guard] = [
    steps_left,
    turns_left,
    attempts_left,
    verify_rounds_left,
    drafts_left,
    asked,
    AllOf("both", (turns_left, verify_rounds_left)),
    AllOf("asked_and_steps", (asked, steps_left)),
]
COUNTERS = ["turns", "attempts", "verify_rounds", "drafts"]
FIGURES = ["max_steps", "max_turns", "max_attempts", "max_verify_rounds", "max_tool_calls"]

claims = st.lists(st.sampled_from(COUNTERS), max_size=2, unique=True).map(tuple)
guard_sets = st.lists(st.sampled_from(POOL), min_size=1, max_size=2, unique=True).map(tuple)
some_limits = st.fixed_dictionaries({name: st.sampled_from([None, 1, 2]) for name in FIGURES}).map(lambda d: Limits.off(**d))


def flat(guards: Iterable[Guard]) -> set[str]:
    """The names of all that must be open."""
    return {
        name for guard in guards for name in (flat(guard.guards) if isinstance(guard, AllOf) else (guard.name,))
    }


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """A small table that every run can use: up to three working states, two outcomes each beside `stop`."""
    names = ["a", "b", "c"][: draw(st.integers(1, 3))]
    kinds: dict[str, Kind] = {}
    rows: list[Row] = []
    for name in names:
        outcomes = {outcome: draw(claims) for outcome in ("go", "on")[: draw(st.integers(1, 2))]}
        kinds[f"work {name}"] = Kind(name=f"work {name}", outcomes={**outcomes, "stop": ()})
        targets = st.sampled_from([*names, "z"])
        for outcome in outcomes:
            earlier: list[set[str]] = []
            for guards in [*draw(st.lists(guard_sets, max_size=2)), ()]:
                # A guarded row that an earlier one is always open before could never win.
                if guards and any(known <= flat(guards) for known in earlier):
                    continue
                earlier.append(flat(guards))
                rows.append(Row(name, outcome, draw(targets), guards, draw(claims) if draw(st.booleans()) else ()))
        rows.append(Row(name, "stop", "z"))
    reached, todo = set[str](), ["a"]
    while todo:
        here = todo.pop()
        if here not in reached:
            reached.add(here)
            todo += [row.target for row in rows if row.source == here]
    states = [State(name, f"work {name}") for name in names if name in reached]
    return Table("m", "a", [*states, State("z", "answer")], [row for row in rows if row.source in reached], kinds)


def sure(table: Table, row: Row) -> set[str]:
    return {"steps", *row.spends, *table.kinds[table.state(row.source).work].outcomes[row.outcome]}


def caps(limits: Limits, rows: Iterable[Row]) -> dict[str, int]:
    """The counters that matter, each with its limit."""
    parts = [part for row in rows for guard in row.guards for part in spendings(guard)]
    return {part.counter: limit for part in parts if (limit := getattr(limits, part.limit)) is not None}


# A place of a walk and what was spent, each counter up to its limit.
Here = tuple[int, tuple[tuple[str, int], ...]]


def goes_on_for_ever(table: Table, limits: Limits, ways: Sequence[Sequence[tuple[Row, int]]]) -> bool:
    """True when some walk over numbered places, each with its ways on, never ends under the claims.

    Counters rise as the rows claim and no more, but for turns, which may always rise too, so that attempts start anew. The
    order of rows is not looked at. All that can be spent is finite, so a walk without end comes back to where it was.
    """
    most = caps(limits, (row for way in ways for row, _ in way))

    def onward(here: Here) -> Iterator[Here]:
        place, spent = here[0], dict(here[1])
        for row, target in ways[place]:
            parts = [part for guard in row.guards for part in spendings(guard)]
            if any(spent.get(part.counter, -1) >= most.get(part.counter, math.inf) for part in parts):
                continue
            for risen in (sure(table, row), sure(table, row) | {"turns"}):
                after = {name: min(most[name], used + (name in risen)) for name, used in spent.items()}
                if "turns" in risen and "attempts" in after:
                    after["attempts"] = 0
                yield target, tuple(after.items())

    done: set[Here] = set()
    for place in range(len(ways)):
        start = (place, tuple(dict.fromkeys(most, 0).items()))
        trail = {} if start in done else {start: onward(start)}
        while trail:
            here = next(reversed(trail))
            there = next(trail[here], None)
            if there is None:
                del trail[here]
                done.add(here)
            elif there in trail:
                return True
            elif there not in done:
                trail[there] = onward(there)
    return False


def whole(table: Table) -> list[list[tuple[Row, int]]]:
    number = {state.name: at for at, state in enumerate(table.states)}
    return [[(row, number[row.target]) for row in table.rows_of(state.name)] for state in table.states]


def ring(rows: Sequence[Row]) -> list[list[tuple[Row, int]]]:
    return [[(row, (at + 1) % len(rows))] for at, row in enumerate(rows)]


@settings(max_examples=120)
@given(tables(), some_limits)
def test_what_is_accepted_always_ends_and_what_is_refused_need_not(table: Table, limits: Limits) -> None:
    check_table(table)
    endless = goes_on_for_ever(table, limits, whole(table))
    event(f"endless: {endless}")
    assert bounded(table, limits) is not endless


@settings(max_examples=200)
@given(tables(), some_limits)
def test_a_refusal_names_a_cycle_without_end_and_the_limits_that_would_bound_it(table: Table, limits: Limits) -> None:
    try:
        check_bounds(table, limits)
    except TableError as refused:
        said = str(refused)
    else:
        return
    walk = said.split(" the cycle ")[1].split(";")[0].split(" -> ")
    assert walk[0] == walk[-1]
    named = set(said.split("set one of ")[1].split(", ")) if "set one of" in said else set()
    between = [[row for row in table.rows_of(here) if row.target == there] for here, there in itertools.pairwise(walk)]
    cycles = [cycle for cycle in itertools.product(*between) if goes_on_for_ever(table, limits, ring(cycle))]
    assert cycles != [], said
    assert named in [mends(table, limits, cycle) for cycle in cycles], said


def mends(table: Table, limits: Limits, cycle: Sequence[Row]) -> set[str]:
    """The limits that are off and, set alone, would bound the cycle."""
    off = [name for name in FIGURES if getattr(limits, name) is None]
    return {name for name in off if not goes_on_for_ever(table, attrs.evolve(limits, **{name: 1}), ring(cycle))}


@given(tables(), some_limits, st.integers(0, 2**32))
def test_a_run_of_an_accepted_machine_ends_whoever_chooses_the_outcomes(table: Table, limits: Limits, seed: int) -> None:
    """The chooser avoids the end where it can, opens and closes opaque guards at will, and spends as little as is claimed."""
    if not bounded(table, limits):
        return
    chance = random.Random(seed)
    engine = Machine(table)
    run = Run(id="r", request="", state=table.initial, limits=limits, fields={"asked": True})
    bound = len(table.states) * math.prod(most + 1 for most in caps(limits, table.rows).values())
    walked = 0
    while not table.state(run.state).final:
        run.fields["asked"] = chance.random() < 0.5
        rows = [first_open(table, run, outcome) for outcome in engine.outcomes(run.state)]
        row = chance.choice([row for row in rows if not table.state(row.target).final] or rows)
        engine.fire(run, row.outcome)
        assert run.state == row.target
        spend(run, sure(table, row))
        walked += 1
        assert walked <= bound


def first_open(table: Table, run: Run, outcome: str) -> Row:
    return next(row for row in table.rows_of(run.state, outcome) if all(guard(run) for guard in row.guards))


def spend(run: Run, risen: set[str]) -> None:
    for name in risen:
        if name == "drafts":
            run.fields["drafts"] = run.fields.get("drafts", 0) + 1
        else:
            setattr(run, name, getattr(run, name) + 1)
    if "turns" in risen:
        run.attempts = 0


@pytest.mark.parametrize("target", ["decide", "gather"])
@pytest.mark.parametrize("own", ["source", "target", "neither"])
def test_only_built_in_work_is_known_to_be_followed_by_a_turn(target: str, own: str) -> None:
    """An own kind may call what it does `called` and leave a call open, and one in a built-in's place may ask nobody."""
    mine = Kind(name="mine", outcomes=dict.fromkeys(BUILT_IN[target if own == "target" else "call"].outcomes, ()))
    kinds = {"source": {"mine": mine}, "target": {target: mine}, "neither": {}}[own]
    states = (State("think", target), State("act", "mine" if own == "source" else "call"), State("end", "answer"))
    onward = {("think", "decided"): "act", ("think", "no_progress"): "act"}
    rows = [Row("act", "called", "think", (turns_left,))]
    for state in states[:2]:
        for outcome in (mine if state.work in ("mine", *kinds) else BUILT_IN[state.work]).outcomes:
            rows.append(Row(state.name, outcome, onward.get((state.name, outcome), "end")))
    table = Table("m", "think", states, rows, kinds)
    check_table(table)
    bounded = unbounded_cycle(table, Limits.off(max_turns=3)) is None
    assert bounded is (own == "neither" or (own == "source" and target == "decide"))
