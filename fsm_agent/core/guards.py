"""Guards: true-or-false sentences over a run. They look and never touch.

A spending guard is a record of a counter and a limit, so a bound can be computed from it; an opaque guard (a function) is
allowed and counts as always open for every proof.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import dropwhile, takewhile
from operator import attrgetter
from typing import Any, Protocol

import attrs

from fsm_agent.core.callables import wrong_manner
from fsm_agent.core.errors import TableError
from fsm_agent.core.generated import all_below
from fsm_agent.core.independence import independent
from fsm_agent.core.limits import Limits
from fsm_agent.core.plain import short
from fsm_agent.core.run import Run
from fsm_agent.core.values import StopReason


class Guard(Protocol):
    """Anything with a name that says yes or no to a run."""

    @property
    def name(self) -> str:
        """The sentence that it is drawn and told under, as one word."""

    def __call__(self, run: Run) -> bool: ...


def is_guard(value: Any) -> bool:
    """True for what can be asked about a run and has a name; a class of guards is none."""
    return not isinstance(value, type) and callable(value) and isinstance(getattr(value, "name", None), str)


def _word(value: str) -> str:
    if not isinstance(value, str) or not value:
        raise TableError(f"{short(value, 60)} names no guard, counter or limit; give a non-empty text")
    return value


def _maybe_word(value: str) -> str:
    return value if value == "" else _word(value)


def _stop_reason(value: StopReason | str) -> StopReason:
    try:
        return StopReason(value)
    except ValueError:
        raise TableError(f"Spending(reason=) is {short(value, 60)}; it may be {', '.join(StopReason)}") from None


def _test(_: object, __: object, value: Any) -> None:
    if isinstance(value, type) or not callable(value):
        raise TableError(f"Opaque(test=) is {short(value, 60)}; give a function of the run")
    if manner := wrong_manner(value, given=("run",)):
        raise TableError(f"Opaque(test=) is {manner}, whose answer is no word about the run; give a plain function of the run")


GIVE_A_GUARD = "give one of fsm_agent.core.guards, such as Opaque(name, function)"


def _parts(guards: Any) -> tuple[Guard, ...]:
    found = tuple(guards) if isinstance(guards, Iterable) and not isinstance(guards, str) else (guards,)
    for guard in found:
        if not is_guard(guard):
            raise TableError(f"AllOf(guards=) has {short(guard, 60)}, which is no guard; {GIVE_A_GUARD}")
    return found


@attrs.frozen(eq=False)
class Spending:
    """Open while `counter` of the run is below `limit` of its limits, or while that limit is off.

    `bound` names what is compared with, where that is not the limit itself. `tripwire` limits stop at the n-th, budgets
    refuse the n + 1-th; both are open below n. `within` names the counter in whose one unit this one counts: it may start
    anew only when that one has risen. A counter that the run has no field for is looked up in `run.fields`. `test` is what the guard
    calls to be asked.
    """

    name: str = attrs.field(converter=_word)
    counter: str = attrs.field(converter=_word)
    limit: str = attrs.field(converter=_word)
    reason: StopReason = attrs.field(converter=_stop_reason)
    tripwire: bool = False
    within: str = attrs.field(default="", converter=_maybe_word)
    bound: str = attrs.field(default="", converter=_maybe_word)
    test: Callable[[Run], bool] = attrs.field(init=False)
    _used: Callable[[Any], Any] = attrs.field(init=False)
    _allowed: Callable[[Any], Any] = attrs.field(init=False)

    @test.default
    def _make_test(self) -> Callable[[Run], bool]:
        return all_below([(self.counter, self.limit, self.bound or self.limit)]) if _is_of_runs(self) else self._has_left

    @_used.default
    def _make_used(self) -> Callable[[Any], Any]:
        counter = self.counter
        return attrgetter(counter) if counter in _RUN_FIELDS else lambda run: run.fields.get(counter, 0)

    @_allowed.default
    def _make_allowed(self) -> Callable[[Any], Any]:
        return attrgetter(self.bound or self.limit)

    def __call__(self, run: Run) -> bool:
        return self.test(run)

    def _has_left(self, run: Run) -> bool:
        allowed = self._allowed(run.limits)
        return allowed is None or self._used(run) < allowed

    def used(self, run: Run) -> float:
        """What the run has spent of it."""
        amount: float = self._used(run)
        return amount

    def allowed(self, run: Run) -> float | None:
        """What the run may spend, or None."""
        amount: float | None = self._allowed(run.limits)
        return amount


_RUN_FIELDS = frozenset(field.name for field in attrs.fields(Run))
_FIGURES = frozenset({"work_until_s", *(field.name for field in attrs.fields(Limits))})


@attrs.frozen(eq=False)
class Opaque:
    """A guard that is any function of a run; every proof treats it as open. One that raises is closed, and the trace says why."""

    name: str = attrs.field(converter=_word)
    test: Callable[[Run], bool] = attrs.field(validator=_test)

    def __call__(self, run: Run) -> bool:
        return bool(self.test(run))


@attrs.frozen(eq=False)
class AllOf:
    """Open when all of its parts are; it is drawn under its own name. `test` is what it calls to be asked."""

    name: str = attrs.field(converter=_word)
    guards: tuple[Guard, ...] = attrs.field(converter=_parts)
    test: Callable[[Run], bool] = attrs.field(init=False)
    _within: Callable[[Run], bool] = attrs.field(init=False)
    _others: tuple[Guard, ...] = attrs.field(init=False)

    @test.default
    def _make_test(self) -> Callable[[Run], bool]:
        return self._first_spendings() if all(map(_is_of_runs, self.guards)) else self._all_open

    @_within.default
    def _first_spendings(self) -> Callable[[Run], bool]:
        first: Iterator[Any] = takewhile(_is_of_runs, self.guards)
        return all_below((one.counter, one.limit, one.bound or one.limit) for one in first)

    @_others.default
    def _behind_them(self) -> tuple[Guard, ...]:
        return tuple(dropwhile(_is_of_runs, self.guards))

    def __call__(self, run: Run) -> bool:
        return self.test(run)

    def _all_open(self, run: Run) -> bool:
        if not self._within(run):
            return False
        for guard in self._others:  # noqa: SIM110  a generator would cost more than the guards
            if not guard(run):
                return False
        return True


def _is_of_runs(guard: Any) -> bool:
    """Whether a guard compares a run's own counter with a figure of its limits."""
    known = type(guard) is Spending and guard.counter in _RUN_FIELDS
    return known and {guard.limit, guard.bound or guard.limit} <= _FIGURES


def spendings(guard: Guard) -> Iterator[Spending]:
    """The spending guards that a guard is made of."""
    if isinstance(guard, Spending):
        yield guard
    elif isinstance(guard, AllOf):
        for part in guard.guards:
            yield from spendings(part)


def _has_repair(run: Run) -> bool:
    return run.repair_due


def _may_redecide(run: Run) -> bool:
    return run.redecide


def _enough_evidence(run: Run) -> bool:
    found = run.evidence()
    # Before anything was found there is nothing to write from, whatever number suffices.
    return bool(found) and independent(found, run.limits.min_evidence) >= (run.limits.min_evidence or 0)


has_repair = Opaque("has_repair", _has_repair)
may_redecide = Opaque("may_redecide", _may_redecide)
enough_evidence = Opaque("enough_evidence", _enough_evidence)

steps_left = Spending("steps_left", "steps", "max_steps", StopReason.MAX_STEPS)
turns_left = Spending("turns_left", "turns", "max_turns", StopReason.MAX_TURNS)
calls_below_stop = Spending(
    "calls_below_stop", "emitted_calls", "stop_after_tool_calls", StopReason.STOP_AFTER_TOOL_CALLS
)
time_left = Spending("time_left", "spent_s", "deadline_s", StopReason.DEADLINE, bound="work_until_s")
tokens_left = Spending("tokens_left", "tokens", "max_tokens", StopReason.MAX_TOKENS)
cost_left = Spending("cost_left", "cost", "max_cost", StopReason.MAX_COST)
observations_differ = Spending(
    "observations_differ", "same_observation", "max_same_observation", StopReason.REPEATED_OBSERVATION, tripwire=True
)
makes_progress = Spending("makes_progress", "stale_turns", "max_stale_turns", StopReason.NO_PROGRESS, tripwire=True)
finds_something = Spending(
    "finds_something", "empty_results", "max_empty_results", StopReason.EMPTY_RESULTS, tripwire=True
)
few_tool_errors = Spending("few_tool_errors", "tool_errors", "max_tool_errors", StopReason.MAX_TOOL_ERRORS, tripwire=True)
few_bad_arguments = Spending(
    "few_bad_arguments", "bad_arguments", "max_bad_arguments", StopReason.MAX_BAD_ARGUMENTS, tripwire=True
)
attempts_left = Spending("attempts_left", "attempts", "max_attempts", StopReason.MAX_ATTEMPTS, within="turns")
gather_rounds_left = Spending("gather_rounds_left", "gather_rounds", "max_attempts", StopReason.MAX_ATTEMPTS)
verify_rounds_left = Spending("verify_rounds_left", "verify_rounds", "max_verify_rounds", StopReason.UNVERIFIED)

# The order decides which reason is named when several close at once: what says most about the run comes first.
within_limits = AllOf(
    "within_limits",
    (
        few_tool_errors,
        few_bad_arguments,
        finds_something,
        observations_differ,
        makes_progress,
        time_left,
        tokens_left,
        cost_left,
        calls_below_stop,
        turns_left,
        steps_left,
    ),
)

# What a request to the decider needs; the order decides which of them is named.
budget_left = AllOf("budget_left", (time_left, tokens_left, cost_left, turns_left))
