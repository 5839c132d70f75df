"""Guards: when each is open, in what order they are asked, and what they are made of."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.core import guards
from fsm_agent.core.guards import AllOf, Guard, Opaque, Spending, has_repair, may_redecide, spendings, within_limits
from fsm_agent.core.limits import Limits
from fsm_agent.core.run import Run
from fsm_agent.core.values import StopReason

# name -> (counter, limit, reason, tripwire, within, bound)
WRITTEN: dict[str, tuple[str, str, StopReason, bool, str, str]] = {
    "steps_left": ("steps", "max_steps", StopReason.MAX_STEPS, False, "", ""),
    "turns_left": ("turns", "max_turns", StopReason.MAX_TURNS, False, "", ""),
    "calls_below_stop": (
        "emitted_calls", "stop_after_tool_calls", StopReason.STOP_AFTER_TOOL_CALLS, False, "", "",
    ),
    "time_left": ("spent_s", "deadline_s", StopReason.DEADLINE, False, "", "work_until_s"),
    "tokens_left": ("tokens", "max_tokens", StopReason.MAX_TOKENS, False, "", ""),
    "cost_left": ("cost", "max_cost", StopReason.MAX_COST, False, "", ""),
    "observations_differ": (
        "same_observation", "max_same_observation", StopReason.REPEATED_OBSERVATION, True, "", "",
    ),
    "makes_progress": ("stale_turns", "max_stale_turns", StopReason.NO_PROGRESS, True, "", ""),
    "finds_something": ("empty_results", "max_empty_results", StopReason.EMPTY_RESULTS, True, "", ""),
    "few_tool_errors": ("tool_errors", "max_tool_errors", StopReason.MAX_TOOL_ERRORS, True, "", ""),
    "few_bad_arguments": ("bad_arguments", "max_bad_arguments", StopReason.MAX_BAD_ARGUMENTS, True, "", ""),
    "attempts_left": ("attempts", "max_attempts", StopReason.MAX_ATTEMPTS, False, "turns", ""),
    "gather_rounds_left": ("gather_rounds", "max_attempts", StopReason.MAX_ATTEMPTS, False, "", ""),
    "verify_rounds_left": ("verify_rounds", "max_verify_rounds", StopReason.UNVERIFIED, False, "", ""),
}
ORDER = [
    "few_tool_errors",
    "few_bad_arguments",
    "finds_something",
    "observations_differ",
    "makes_progress",
    "time_left",
    "tokens_left",
    "cost_left",
    "calls_below_stop",
    "turns_left",
    "steps_left",
]
FOUND = {name: guard for name, guard in vars(guards).items() if isinstance(guard, Spending)}
EVERY: list[Guard] = [*FOUND.values(), has_repair, may_redecide, within_limits]


def a_run(limits: Limits | None = None, **counters: Any) -> Run:
    run = Run(id="r", request="", state="gather", limits=limits or Limits.off())
    for name, value in counters.items():
        setattr(run, name, value)
    return run


def limited(guard: Spending, n: float | None, **counters: Any) -> Run:
    """A run whose one limit is that of the guard, with nothing reserved."""
    return a_run(Limits.off(reserve_s=0, **{guard.limit: n}), **counters)


# ---- spending guards


def test_the_spending_guards_are_those_written_down() -> None:
    fields = attrs.fields(Spending)
    said = {
        name: (g.counter, g.limit, g.reason, g.tripwire, g.within, g.bound) for name, g in FOUND.items() if g.name == name
    }
    assert said == WRITTEN
    assert [f.name for f in fields if f.init] == ["name", "counter", "limit", "reason", "tripwire", "within", "bound"]


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("n", [1, 2, 3, 64])
@pytest.mark.parametrize("over", [None, -1, 0, 1])
def test_a_spending_guard_is_open_below_its_limit_and_closed_from_it(name: str, n: int, over: int | None) -> None:
    guard, used = FOUND[name], 0 if over is None else n + over
    run = limited(guard, n, **{guard.counter: used})
    assert guard(run) is (used < n)
    assert (guard.used(run), guard.allowed(run)) == (used, n)


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("used", [0, 1, 3, 10**5000], ids=range(4))
def test_a_spending_guard_is_open_while_its_limit_is_off(name: str, used: int) -> None:
    guard = FOUND[name]
    run = limited(guard, None, **{guard.counter: used})
    assert guard(run) is True
    assert guard.allowed(run) is None


@pytest.mark.parametrize(("name", "other"), list(itertools.permutations(WRITTEN, 2)))
def test_a_spending_guard_looks_at_no_other_counter(name: str, other: str) -> None:
    guard, spent = FOUND[name], FOUND[other]
    run = limited(guard, 3, **{spent.counter: 99})
    assert guard(run) is (guard.counter != spent.counter)


def test_time_is_left_until_what_is_reserved_for_the_answer() -> None:
    limits = Limits(deadline_s=25.0, reserve_s=2.0)
    for spent, left in ((0.0, True), (22.999, True), (23.0, False), (24.0, False), (25.0, False)):
        assert guards.time_left(a_run(limits, spent_s=spent)) is left
    assert guards.time_left.allowed(a_run(limits)) == 23.0


@given(
    name=st.sampled_from(sorted(WRITTEN)),
    limit=st.none() | st.integers(1, 10**6),
    used=st.integers(0, 10**6),
    more=st.integers(0, 10**6),
)
def test_more_spent_never_opens_and_more_allowed_never_closes(name: str, limit: int | None, used: int, more: int) -> None:
    guard = FOUND[name]
    now = guard(limited(guard, limit, **{guard.counter: used}))
    assert now or not guard(limited(guard, limit, **{guard.counter: used + more}))
    assert not now or guard(limited(guard, None if limit is None else limit + more, **{guard.counter: used}))


# ---- counters of the user


@pytest.mark.parametrize("used", [None, 0, 1, 2, 3, 4, 2.5, 10**5000], ids=range(8))
def test_a_counter_that_a_run_has_no_field_for_is_one_of_its_own_fields(used: Any) -> None:
    guard = Spending("drafts_left", "drafts", "max_attempts", StopReason.MAX_ATTEMPTS)
    run = a_run(Limits.off(max_attempts=3), fields={} if used is None else {"drafts": used})
    assert guard(run) is ((used or 0) < 3)
    assert guard.used(run) == (used or 0)
    assert guard.allowed(run) == 3
    assert (guard.tripwire, guard.within, guard.bound) == (False, "", "")


def test_a_field_of_the_run_comes_before_one_of_the_users() -> None:
    run = a_run(Limits.off(max_turns=3), turns=3, fields={"turns": 0})
    assert guards.turns_left(run) is False


def test_a_guard_may_compare_with_another_bound_than_its_limit() -> None:
    guard = Spending("hurries", "spent_s", "deadline_s", StopReason.DEADLINE, bound="reserve_s")
    limits = Limits.off(deadline_s=100.0, reserve_s=4.0)
    assert [guard(a_run(limits, spent_s=float(spent))) for spent in (3, 4, 5)] == [True, False, False]


def test_limits_of_the_users_own_are_looked_up_like_the_others() -> None:
    @attrs.frozen(kw_only=True)
    class More(Limits):
        max_drafts: int | None = 2

    guard = Spending("drafts_left", "drafts", "max_drafts", StopReason.MAX_ATTEMPTS)
    assert [guard(a_run(More(), fields={"drafts": n})) for n in (0, 1, 2, 3)] == [True, True, False, False]
    assert guard(a_run(More(max_drafts=None), fields={"drafts": 9})) is True


# ---- opaque guards


@pytest.mark.parametrize("said", [True, 1, 2, "yes", ["x"], (0,), 0.1, object(), False, 0, "", [], None, 0.0, {}])
def test_an_opaque_guard_says_what_its_function_means(said: Any) -> None:
    assert Opaque("asked", lambda run: said)(a_run()) is bool(said)


def test_an_opaque_guard_that_raises_has_said_nothing() -> None:
    def test(run: Run) -> bool:
        raise LookupError(run.id)

    with pytest.raises(LookupError):
        Opaque("asked", test)(a_run())


@pytest.mark.parametrize("due", [True, False])
@pytest.mark.parametrize("may", [True, False])
def test_repair_and_deciding_again_are_what_the_run_says(due: bool, may: bool) -> None:
    run = a_run(repair_due=due, redecide=may)
    assert (has_repair(run), may_redecide(run)) == (due, may)
    assert (has_repair.name, may_redecide.name) == ("has_repair", "may_redecide")


# ---- all of several


@pytest.mark.parametrize("truths", [t for n in range(4) for t in itertools.product([True, False], repeat=n)])
def test_all_of_asks_in_order_until_one_is_closed(truths: tuple[bool, ...]) -> None:
    asked: list[int] = []

    def part(at: int) -> Opaque:
        def test(run: Run) -> bool:
            asked.append(at)
            return truths[at]

        return Opaque(f"g{at}", test)

    assert AllOf("all", tuple(part(at) for at in range(len(truths))))(a_run()) is all(truths)
    first = truths.index(False) + 1 if False in truths else len(truths)
    assert asked == list(range(first))


@pytest.mark.parametrize("turns", [0, 3])
def test_all_of_asks_nothing_behind_a_limit_that_is_used_up(turns: int) -> None:
    asked: list[int] = []
    behind = Opaque("behind", lambda run: asked.append(run.turns) is None)
    run = a_run(Limits(max_turns=3), turns=turns)

    assert AllOf("all", (guards.turns_left, behind))(run) is (turns < 3)
    assert asked == [turns] * (turns < 3)


def test_the_limits_are_asked_in_the_order_that_says_most_about_the_run() -> None:
    assert [guard.name for guard in within_limits.guards] == ORDER
    assert within_limits.name == "within_limits"


@pytest.mark.parametrize("closed", [c for n in range(3) for c in itertools.combinations(ORDER, n)])
def test_within_limits_is_closed_by_any_of_its_parts(closed: tuple[str, ...]) -> None:
    run = a_run(Limits(reserve_s=0, **{FOUND[name].limit: 3 for name in ORDER}), **{FOUND[name].counter: 3 for name in closed})
    assert within_limits(run) is (not closed)


# ---- what a guard is made of


def test_a_guard_is_made_of_the_spendings_in_it_however_deep() -> None:
    steps, turns, time = guards.steps_left, guards.turns_left, guards.time_left
    nested = AllOf("outer", (steps, AllOf("inner", (has_repair, turns, AllOf("none", ()))), time, steps))
    assert list(spendings(nested)) == [steps, turns, time, steps]
    assert list(spendings(steps)) == [steps]
    assert list(spendings(has_repair)) == []
    assert [part.name for part in spendings(within_limits)] == ORDER


def test_a_guard_is_itself_and_no_other() -> None:
    again = Spending("steps_left", "steps", "max_steps", StopReason.MAX_STEPS)
    assert again != guards.steps_left
    assert Opaque("has_repair", has_repair.test) != has_repair
    assert AllOf("within_limits", within_limits.guards) != within_limits
    assert len({again, guards.steps_left, guards.steps_left, within_limits, has_repair}) == 4


@pytest.mark.parametrize("guard", EVERY, ids=lambda guard: guard.name)
@pytest.mark.parametrize("limits", [Limits(), Limits.off()], ids=["on", "off"])
@pytest.mark.parametrize("spent", [0, 99])
def test_a_guard_looks_and_never_touches(guard: Guard, limits: Limits, spent: int) -> None:
    run = a_run(limits, **{counter: spent for counter, *_ in WRITTEN.values()})
    before = copy.deepcopy(run)
    first = guard(run)
    assert run == before
    assert guard(run) is first
