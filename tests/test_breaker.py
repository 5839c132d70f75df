"""The breaker: three failures in a row open it, then one probe at a time decides."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fsm_agent.core.errors import BuildError
from fsm_agent.core.table import State, Table
from fsm_agent.host.breaker import (
    Admission,
    BreakerOutcome,
    BreakerPolicy,
    Breakers,
    BreakerState,
    Ticket,
    rows,
)

POLICY = BreakerPolicy()
NO_COUNT: list[Any] = [0, -1, -(10**5000), True, 3.0, "3", None, math.nan]
NO_TIME: list[Any] = [0, 0.0, -1, True, "30", None, math.nan, math.inf, 10**5000]
OUTCOMES = ["succeed", "fail", "release"]


def admitted(breakers: Breakers, now: float, policy: BreakerPolicy = POLICY, tool: str = "t") -> Ticket:
    admission = breakers.admit(tool, policy, now)
    assert not admission.open
    assert admission.ticket is not None
    return admission.ticket


def opened(at: float, policy: BreakerPolicy = POLICY) -> Breakers:
    """Breakers whose tool "t" just opened at `at`."""
    breakers = Breakers()
    for _ in range(policy.failures):
        assert breakers.fail("t", admitted(breakers, at, policy), at)
    return breakers


def state(breakers: Breakers, tool: str = "t") -> BreakerState:
    return breakers.snapshot()[tool].state


# ---- the policy


def test_the_defaults_are_those_of_seed_000() -> None:
    assert (POLICY.failures, POLICY.open_s) == (3, 30.0)


@pytest.mark.parametrize("failures", NO_COUNT, ids=lambda v: type(v).__name__)
def test_a_policy_needs_a_whole_number_of_failures(failures: Any) -> None:
    with pytest.raises(BuildError, match="failures"):
        BreakerPolicy(failures=failures)


@pytest.mark.parametrize("open_s", NO_TIME, ids=lambda v: type(v).__name__)
def test_a_policy_needs_a_time_above_nothing(open_s: Any) -> None:
    with pytest.raises(BuildError, match="open_s"):
        BreakerPolicy(open_s=open_s)


def test_the_error_names_the_mend() -> None:
    with pytest.raises(BuildError, match="leave the policy out"):
        BreakerPolicy(failures=0)


# ---- opening


@pytest.mark.parametrize("start", [0.0, -100.0, 1e6])
@pytest.mark.parametrize("failures", [1, 2, 3, 5])
def test_it_opens_at_the_nth_failure_in_a_row_and_not_before(failures: int, start: float) -> None:
    """Also with a clock at 0, where seed 000's breaker blocked after one failure."""
    breakers, policy = Breakers(), BreakerPolicy(failures=failures)
    for _ in range(failures):
        assert not breakers.admit("t", policy, start).open
        breakers.fail("t", admitted(breakers, start, policy), start)
    admission = breakers.admit("t", policy, start)
    assert admission == Admission(open=True, retry_after_s=30.0, probing=False, ticket=None)
    assert breakers.snapshot() == {"t": (BreakerState.OPEN, failures, start)}


@pytest.mark.parametrize("between", ["succeed", "release"])
def test_only_a_success_between_ends_the_row_of_failures(between: str) -> None:
    breakers = Breakers()
    for _ in range(2):
        breakers.fail("t", admitted(breakers, 0.0), 0.0)
    getattr(breakers, between)("t", admitted(breakers, 0.0), 0.0)
    breakers.fail("t", admitted(breakers, 0.0), 0.0)
    assert state(breakers) is (BreakerState.CLOSED if between == "succeed" else BreakerState.OPEN)


def test_tools_have_breakers_of_their_own() -> None:
    breakers = opened(0.0)
    assert not breakers.admit("other", POLICY, 0.0).open
    assert {tool: view.state for tool, view in breakers.snapshot().items()} == {"t": "open", "other": "closed"}


def test_each_call_is_judged_by_the_policy_it_was_admitted_with() -> None:
    breakers, strict = Breakers(), BreakerPolicy(failures=1)
    lax_ticket, strict_ticket = admitted(breakers, 0.0), admitted(breakers, 0.0, strict)
    breakers.fail("t", lax_ticket, 0.0)
    assert state(breakers) is BreakerState.CLOSED
    breakers.fail("t", strict_ticket, 0.0)
    assert state(breakers) is BreakerState.OPEN


def test_any_record_with_the_two_figures_serves_as_a_policy() -> None:
    @attrs.frozen
    class Figures:
        failures: int = 1
        open_s: float = 5.0

    breakers = Breakers()
    first = breakers.admit("t", Figures(), 0.0)
    breakers.fail("t", first.ticket, 0.0)
    assert breakers.admit("t", Figures(), 0.0).retry_after_s == 5.0


# ---- while open, and the probe


@pytest.mark.parametrize(
    ("now", "is_open"),
    [(0.0, True), (29.0, True), (math.nextafter(30.0, 0.0), True), (30.0, False), (30.1, False), (1e9, False)],
)
def test_it_is_open_up_to_but_not_at_the_instant(now: float, is_open: bool) -> None:
    admission = opened(0.0).admit("t", POLICY, now)
    assert admission.open is is_open
    assert admission.retry_after_s == (30.0 - now if is_open else 0.0)


@given(
    at=st.floats(-1e9, 1e9),
    open_s=st.floats(1e-6, 1e6),
    share=st.floats(0.0, 1.0),
)
def test_after_the_wait_that_was_told_a_probe_is_let_in(at: float, open_s: float, share: float) -> None:
    policy = BreakerPolicy(failures=1, open_s=open_s)
    breakers, now = opened(at, policy), at + open_s * share
    admission = breakers.admit("t", policy, now)
    if admission.open:
        assert admission.retry_after_s > 0.0
        assert not breakers.admit("t", policy, now + admission.retry_after_s).open


@pytest.mark.parametrize(
    ("at", "open_s", "now"), [(-48.9, 50.5, -14.9), (-16.7, 34.2, -14.6), (-29.0, 39.4, -28.2), (-23.4, 50.0, -14.7)]
)
def test_rounding_never_tells_a_wait_that_is_too_short(at: float, open_s: float, now: float) -> None:
    """Here the plain difference, added again, falls short of the instant."""
    policy = BreakerPolicy(failures=1, open_s=open_s)
    breakers = opened(at, policy)
    assert now + ((at + open_s) - now) < at + open_s
    assert not breakers.admit("t", policy, now + breakers.admit("t", policy, now).retry_after_s).open


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_probe_alone_is_in_flight_and_its_verdict_decides(outcome: str) -> None:
    breakers = opened(0.0)
    probe = admitted(breakers, 30.0)
    assert breakers.admit("t", POLICY, 30.0) == Admission(open=True, retry_after_s=0.0, probing=True, ticket=None)
    assert getattr(breakers, outcome)("t", probe, 31.0)
    after = breakers.admit("t", POLICY, 31.0)
    if outcome == "fail":
        assert after == Admission(open=True, retry_after_s=30.0, probing=False, ticket=None)
        assert breakers.snapshot()["t"] == (BreakerState.OPEN, 4, 31.0)
    elif outcome == "succeed":
        assert not breakers.admit("t", POLICY, 31.0).open, "closed takes more than one call"
        assert breakers.snapshot()["t"] == (BreakerState.CLOSED, 0, None)
    else:
        assert not after.open
        assert breakers.admit("t", POLICY, 31.0).probing, "the place given back was one place"


def test_a_success_of_the_probe_ends_the_row_of_failures() -> None:
    breakers = opened(0.0)
    breakers.succeed("t", admitted(breakers, 30.0), 30.0)
    for _ in range(2):
        breakers.fail("t", admitted(breakers, 30.0), 30.0)
    assert state(breakers) is BreakerState.CLOSED


@pytest.mark.parametrize("probe_at", [30.0, 0.0])
def test_a_probe_that_never_comes_back_gives_way_to_another(probe_at: float) -> None:
    breakers = opened(probe_at - 30.0)
    lost = admitted(breakers, probe_at)
    assert breakers.admit("t", POLICY, math.nextafter(probe_at + 30.0, -math.inf)).probing
    second = admitted(breakers, probe_at + 30.0)
    assert breakers.admit("t", POLICY, probe_at + 30.0).probing
    for outcome in OUTCOMES:
        assert not getattr(breakers, outcome)("t", lost, probe_at + 30.0)
    assert state(breakers) is BreakerState.HALF_OPEN
    assert breakers.succeed("t", second, probe_at + 31.0)
    assert state(breakers) is BreakerState.CLOSED


# ---- tickets that say nothing any more


def while_open(breakers: Breakers) -> None:
    """Leave it open."""


def while_probing(breakers: Breakers) -> None:
    admitted(breakers, 30.0)


def after_released_probe(breakers: Breakers) -> None:
    breakers.release("t", admitted(breakers, 30.0), 30.0)


def after_closing_again(breakers: Breakers) -> None:
    breakers.succeed("t", admitted(breakers, 30.0), 30.0)


def after_opening_again(breakers: Breakers) -> None:
    breakers.fail("t", admitted(breakers, 30.0), 30.0)


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize(
    "then", [while_open, while_probing, after_released_probe, after_closing_again, after_opening_again]
)
def test_a_late_outcome_of_a_call_admitted_before_the_opening_changes_nothing(
    then: Callable[[Breakers], None], outcome: str
) -> None:
    breakers = Breakers()
    late = admitted(breakers, 0.0)
    for _ in range(3):
        breakers.fail("t", admitted(breakers, 0.0), 0.0)
    then(breakers)
    before = breakers.snapshot()
    assert not getattr(breakers, outcome)("t", late, 31.0)
    assert breakers.snapshot() == before


@pytest.mark.parametrize("second", OUTCOMES)
@pytest.mark.parametrize("first", OUTCOMES)
def test_the_first_word_of_a_call_stands(first: str, second: str) -> None:
    """A timeout fails its call; what the late thread says after that is dropped."""
    breakers = Breakers()
    breakers.fail("t", admitted(breakers, 0.0), 0.0)
    ticket = admitted(breakers, 0.0)
    assert getattr(breakers, first)("t", ticket, 0.0)
    before = breakers.snapshot()
    assert not getattr(breakers, second)("t", ticket, 0.0)
    assert breakers.snapshot() == before


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_refused_call_has_no_ticket_and_so_no_say(outcome: str) -> None:
    breakers = opened(0.0)
    refused = breakers.admit("t", POLICY, 1.0)
    before = breakers.snapshot()
    assert not getattr(breakers, outcome)("t", refused.ticket, 1.0)
    assert breakers.snapshot() == before


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("tool", ["other", "never asked"])
def test_a_ticket_speaks_for_its_own_tool_only(tool: str, outcome: str) -> None:
    breakers = Breakers()
    ticket = admitted(breakers, 0.0)
    admitted(breakers, 0.0, tool="other")
    before = breakers.snapshot()
    assert not getattr(breakers, outcome)(tool, ticket, 0.0)
    assert breakers.snapshot() == before


@pytest.mark.parametrize("now", [None, "0", True, math.nan, math.inf, 10**5000], ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("call", ["admit", *OUTCOMES])
def test_a_clock_that_tells_no_time_is_named_and_changes_nothing(call: str, now: Any) -> None:
    breakers = Breakers()
    ticket = admitted(breakers, 0.0)
    before = breakers.snapshot()
    with pytest.raises(BuildError, match="now"):
        getattr(breakers, call)("t", POLICY if call == "admit" else ticket, now)
    assert breakers.snapshot() == before
    assert breakers.fail("t", ticket, 0.0), "the ticket is still good"


# ---- threads

@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Let threads change places between almost any two steps, so that a missing lock shows."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def at_once(work: Callable[[], Any], threads: int = 8) -> list[Any]:
    """What `work` returned in each of `threads` threads that began together."""
    barrier = threading.Barrier(threads)
    answers: list[Any] = []

    def run() -> None:
        barrier.wait()
        answers.append(work())

    running = [threading.Thread(target=run) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return answers


@pytest.mark.usefixtures("eager_threads")
@pytest.mark.parametrize("lost_probe", [False, True])
def test_of_eight_threads_that_ask_at_once_exactly_one_probes(lost_probe: bool) -> None:
    for _ in range(100):
        breakers, now = opened(0.0), 30.0
        if lost_probe:
            admitted(breakers, now)
            now = 60.0
        answers = at_once(lambda b=breakers, n=now: b.admit("t", POLICY, n))  # type: ignore[misc]
        assert sorted((a.open, a.probing) for a in answers) == [(False, False)] + [(True, True)] * 7


@pytest.mark.usefixtures("eager_threads")
def test_failures_of_many_threads_are_all_counted() -> None:
    breakers, policy = Breakers(), BreakerPolicy(failures=801)

    def work() -> None:
        for _ in range(100):
            breakers.fail("t", breakers.admit("t", policy, 0.0).ticket, 0.0)

    at_once(work)
    assert breakers.snapshot()["t"] == (BreakerState.CLOSED, 800, None)
    breakers.fail("t", admitted(breakers, 0.0, policy), 5.0)
    assert breakers.snapshot()["t"] == (BreakerState.OPEN, 801, 5.0)


@pytest.mark.usefixtures("eager_threads")
def test_one_ticket_handed_back_by_many_threads_counts_once() -> None:
    for _ in range(100):
        breakers = Breakers()
        ticket = admitted(breakers, 0.0)
        assert sorted(at_once(lambda b=breakers, t=ticket: b.fail("t", t, 0.0))) == [False] * 7 + [True]  # type: ignore[misc]
        assert breakers.snapshot()["t"].failures == 1


class Interrupting:
    """Figures that let another thread in, if nothing holds it up, in the middle of being read for the first time."""

    def __init__(self, failures: int, open_s: float, meanwhile: Callable[[], Any]) -> None:
        self._figures = BreakerPolicy(failures=failures, open_s=open_s)
        self._thread = threading.Thread(target=meanwhile)
        self._begun = False

    def _let_in(self) -> None:
        if not self._begun:
            self._begun = True
            self._thread.start()
            self._thread.join(0.05)

    def join(self) -> None:
        self._thread.join()

    @property
    def failures(self) -> int:
        self._let_in()
        return self._figures.failures

    @property
    def open_s(self) -> float:
        self._let_in()
        return self._figures.open_s


def test_a_call_that_asks_while_another_is_being_let_in_waits_its_turn() -> None:
    breakers, answers = opened(0.0), []
    figures = Interrupting(3, 30.0, lambda: answers.append(breakers.admit("t", POLICY, 30.0)))
    answers.append(breakers.admit("t", figures, 30.0))
    figures.join()
    assert [answer.open for answer in answers] == [False, True]


def test_a_failure_that_comes_while_another_is_being_counted_waits_its_turn() -> None:
    breakers, policy = Breakers(), BreakerPolicy(failures=2)
    other = admitted(breakers, 0.0, policy)
    figures = Interrupting(2, 30.0, lambda: breakers.fail("t", other, 0.0))
    breakers.fail("t", breakers.admit("t", figures, 0.0).ticket, 0.0)
    figures.join()
    assert breakers.snapshot()["t"] == (BreakerState.OPEN, 2, 0.0)


# ---- the table


def test_the_rows_are_those_of_an_agents_table_and_can_be_drawn_like_them() -> None:
    table = Table(name="breaker", initial="closed", states=[State(s, "breaker") for s in BreakerState], rows=rows())
    assert [str(row) for row in table.rows if row.guards] == [
        "closed --failed--> open [failures_reached]",
        "open --admitted--> half_open [open_s_passed]",
        "half_open --admitted--> half_open [probe_free]",
    ]
    assert table.rows_of("open", "succeeded") == ()


def test_every_state_is_reachable_and_none_is_a_dead_end() -> None:
    table = rows()
    assert {row.target for row in table} == set(BreakerState)
    for source in BreakerState:
        reached: set[str] = {source}
        frontier: set[str] = {source}
        while frontier := {row.target for row in table if row.source in frontier} - reached:
            reached |= frontier
        assert reached == set(BreakerState)


def test_no_row_is_shadowed_by_an_unguarded_one_before_it() -> None:
    settled: set[tuple[str, str]] = set()
    for row in rows():
        assert (row.source, row.outcome) not in settled
        if not row.guards:
            settled.add((row.source, row.outcome))


def test_every_row_can_be_walked_and_nothing_else_happens() -> None:
    """All ways that five calls can go cover the table, and every move is one of its rows."""
    walked: set[tuple[str, str, str]] = set()
    words = {"succeed": BreakerOutcome.SUCCEEDED, "fail": BreakerOutcome.FAILED, "release": BreakerOutcome.RELEASED}
    policy = BreakerPolicy(failures=2, open_s=1.0)

    def go(steps: tuple[str, ...]) -> None:
        breakers, now = Breakers(), 0.0
        for step in steps:
            now += 1.0
            before = breakers.snapshot().get("t", (BreakerState.CLOSED,))[0]
            ticket = admitted(breakers, now, policy)
            between = state(breakers)
            getattr(breakers, step)("t", ticket, now)
            walked.update({(before, BreakerOutcome.ADMITTED, between), (between, words[step], state(breakers))})
        if len(steps) < 5:
            for outcome in OUTCOMES:
                go((*steps, outcome))

    go(())
    assert walked == {(row.source, row.outcome, row.target) for row in rows()}


# ---- against a model


class BreakerModel(RuleBasedStateMachine):
    """One tool's breaker against the law told in other words: a log of verdicts and two instants."""

    def __init__(self) -> None:
        super().__init__()
        self.breakers = Breakers()
        self.policy = BreakerPolicy(failures=3, open_s=10.0)
        self.now = 0.0
        self.in_flight: list[tuple[Ticket, int]] = []
        self.era = 0
        self.row = 0
        self.blocked_until: float | None = None
        self.lease_until: float | None = None

    @rule(seconds=st.sampled_from([0.0, 0.5, 3.0, 9.5, 10.0, 25.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def ask(self) -> None:
        admission = self.breakers.admit("t", self.policy, self.now)
        waits_for = [instant for instant in (self.blocked_until, self.lease_until) if instant is not None]
        probe = bool(waits_for) and self.now >= max(waits_for)
        assert admission.open == (bool(waits_for) and not probe)
        if admission.open:
            assert admission.ticket is None
            assert admission.probing == (self.lease_until is not None)
            left = 0.0 if admission.probing else (self.blocked_until or 0.0) - self.now
            assert admission.retry_after_s == left
            return
        assert admission.ticket is not None
        if probe:
            self.era += 1
            self.lease_until = self.now + 10.0
        self.in_flight.append((admission.ticket, self.era))

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), outcome=st.sampled_from(OUTCOMES), again=st.booleans())
    def come_back(self, data: st.DataObject, outcome: str, again: bool) -> None:
        index = data.draw(st.integers(0, len(self.in_flight) - 1))
        ticket, era = self.in_flight.pop(index)
        counts = era == self.era
        assert getattr(self.breakers, outcome)("t", ticket, self.now) == counts
        if again:
            self.in_flight.append((ticket, -1))
        if not counts:
            return
        probing = self.blocked_until is not None
        if outcome == "succeed":
            self.row, self.blocked_until = 0, None
        elif outcome == "fail":
            self.row += 1
            if probing or self.row >= 3:
                self.blocked_until = self.now + 10.0
        if probing or self.blocked_until is not None:
            self.era += 1
        self.lease_until = None

    @invariant()
    def they_agree(self) -> None:
        view = self.breakers.snapshot().get("t")
        if view is None:
            return
        assert (view.state is BreakerState.CLOSED) == (self.blocked_until is None)
        assert view.failures == self.row
        assert view.opened_at == (None if self.blocked_until is None else self.blocked_until - 10.0)


TestBreakerModel = BreakerModel.TestCase
