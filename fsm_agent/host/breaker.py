"""Circuit breakers, one a tool, kept by the host and shared by its runs (seed 000).

A breaker is a machine of three states, and `rows()` is all of it: closed takes every call, open takes none, half-open
takes one probe at a time. A call is admitted when its state has an open row for `admitted`, and refused otherwise.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

import attrs

from fsm_agent.core.figures import finite_seconds
from fsm_agent.core.table import Row
from fsm_agent.core.tools import BreakerPolicy

__all__ = ["Admission", "BreakerOutcome", "BreakerSnapshot", "BreakerState", "Breakers", "Ticket", "rows"]


class BreakerState(StrEnum):
    """How a breaker stands."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class BreakerOutcome(StrEnum):
    """What moves a breaker: a call let in, and what became of it."""

    ADMITTED = "admitted"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    RELEASED = "released"


@attrs.define(eq=False, kw_only=True)
class Ticket:
    """What an admitted call hands back with its outcome; opaque, good for one outcome."""

    _tool: str
    _generation: int
    _policy: BreakerPolicy
    _spent: bool = False


@attrs.frozen(kw_only=True)
class Admission:
    """A breaker's answer to one call.

    `open` is True when the call is refused. Then `ticket` is None and `retry_after_s` the seconds until a probe, or 0.0
    and `probing` True while somebody else's probe is in flight and its verdict is all there is to wait for.
    """

    open: bool
    retry_after_s: float = 0.0
    probing: bool = False
    ticket: Ticket | None = None


class BreakerSnapshot(NamedTuple):
    """How one breaker stands: its state, failures in a row, and the instant it last opened (None while closed)."""

    state: BreakerState
    failures: int
    opened_at: float | None


@attrs.define(eq=False)
class _Breaker:
    state: BreakerState = BreakerState.CLOSED
    failures: int = 0
    # Looked at in open and half-open only; which state it is says whether it holds, never its being 0.
    opened_at: float = 0.0
    probe_at: float | None = None
    # Tickets of an earlier generation are stale. Closed is one generation; every probe is one of its own.
    generation: int = 0


@attrs.frozen(eq=False)
class _BreakerGuard:
    """A named sentence over what a breaker is asked with: itself, the figures it goes by, and now."""

    name: str
    _holds: Callable[[_Breaker, BreakerPolicy, float], bool]

    def __call__(self, run: Any) -> bool:
        return self._holds(*run)


_FAILURES_REACHED = _BreakerGuard("failures_reached", lambda b, figures, now: b.failures + 1 >= figures.failures)
_OPEN_S_PASSED = _BreakerGuard("open_s_passed", lambda b, figures, now: now >= b.opened_at + figures.open_s)
# A probe whose thread died never answers; without a term to its lease the tool would be shut out for ever.
_PROBE_FREE = _BreakerGuard("probe_free", lambda b, figures, now: b.probe_at is None or now >= b.probe_at + figures.open_s)

_CLOSED, _OPEN, _HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN
_ADMITTED, _SUCCEEDED = BreakerOutcome.ADMITTED, BreakerOutcome.SUCCEEDED
_FAILED, _RELEASED = BreakerOutcome.FAILED, BreakerOutcome.RELEASED

# Open has no row for a call's end: whatever comes back then was admitted before the opening and is stale.
_ROWS: tuple[Row, ...] = (
    Row(_CLOSED, _ADMITTED, _CLOSED),
    Row(_CLOSED, _SUCCEEDED, _CLOSED),
    Row(_CLOSED, _FAILED, _OPEN, (_FAILURES_REACHED,)),
    Row(_CLOSED, _FAILED, _CLOSED),
    Row(_CLOSED, _RELEASED, _CLOSED),
    Row(_OPEN, _ADMITTED, _HALF_OPEN, (_OPEN_S_PASSED,)),
    Row(_HALF_OPEN, _ADMITTED, _HALF_OPEN, (_PROBE_FREE,)),
    Row(_HALF_OPEN, _SUCCEEDED, _CLOSED),
    Row(_HALF_OPEN, _FAILED, _OPEN),
    Row(_HALF_OPEN, _RELEASED, _HALF_OPEN),
)


def rows() -> tuple[Row, ...]:
    """Return the breaker's whole table, in rows like those of an agent's; it starts in ``closed`` and never ends."""
    return _ROWS


_Ways = list[tuple[BreakerState, tuple[Callable[[Any], bool], ...]]]


def _indexed(table: tuple[Row, ...]) -> dict[tuple[str, str], _Ways]:
    index: dict[tuple[str, str], _Ways] = {}
    for row in table:
        index.setdefault((row.source, row.outcome), []).append((BreakerState(row.target), row.guards))
    return index


_INDEX = _indexed(_ROWS)


class Breakers:
    """One breaker for each tool name, safe under threads; `now` is always monotonic seconds of one clock.

    Each call is judged by the policy it was admitted with. Raises `BuildError` for a `now` that is no finite number.
    """

    __slots__ = ("_breakers", "_lock")

    def __init__(self) -> None:
        self._breakers: dict[str, _Breaker] = {}
        self._lock = threading.Lock()

    def admit(self, tool: str, policy: BreakerPolicy, now: float) -> Admission:
        """Let one call of `tool` in, with a ticket, or refuse it with the time until a probe.

        Every ticket is owed back through `succeed`, `fail` or `release`.
        """
        now = finite_seconds(now, "Breakers.admit(now=)")
        with self._lock:
            breaker = self._breakers.get(tool)
            if breaker is None:
                breaker = self._breakers[tool] = _Breaker()
            if _fire(breaker, _ADMITTED, policy, now):
                return Admission(open=False, ticket=Ticket(tool=tool, generation=breaker.generation, policy=policy))
            if breaker.state is _HALF_OPEN:
                return Admission(open=True, probing=True)
            return Admission(open=True, retry_after_s=_wait(now, breaker.opened_at + policy.open_s))

    def shut_for(self, tool: str, policy: BreakerPolicy, now: float) -> float | None:
        """The seconds until a probe where a call of `tool` would be refused now, or None; nothing changes by asking."""
        now = finite_seconds(now, "Breakers.shut_for(now=)")
        with self._lock:
            breaker = self._breakers.get(tool)
            if breaker is None or _target(breaker, _ADMITTED, policy, now) is not None:
                return None
            return 0.0 if breaker.state is _HALF_OPEN else _wait(now, breaker.opened_at + policy.open_s)

    def succeed(self, tool: str, ticket: Ticket | None, now: float) -> bool:
        """Count a success; False, and nothing changed, for a ticket that is stale, spent, of another tool, or None."""
        return self._settle(tool, ticket, _SUCCEEDED, now)

    def fail(self, tool: str, ticket: Ticket | None, now: float) -> bool:
        """Count a failure; False, and nothing changed, for a ticket that is stale, spent, of another tool, or None."""
        return self._settle(tool, ticket, _FAILED, now)

    def release(self, tool: str, ticket: Ticket | None, now: float) -> bool:
        """Give a ticket back without a verdict, for a call that never ran, was cancelled or says nothing of its tool.

        A probe's place is free at once. False for a ticket that is stale, spent, of another tool, or None.
        """
        return self._settle(tool, ticket, _RELEASED, now)

    def snapshot(self) -> dict[str, BreakerSnapshot]:
        """Return how each breaker that was ever asked stands, by tool name."""
        with self._lock:
            return {
                tool: BreakerSnapshot(b.state, b.failures, None if b.state is _CLOSED else b.opened_at)
                for tool, b in self._breakers.items()
            }

    def _settle(self, tool: str, ticket: Ticket | None, outcome: BreakerOutcome, now: float) -> bool:
        now = finite_seconds(now, "Breakers(now=)")
        if ticket is None:
            return False
        with self._lock:
            breaker = self._breakers.get(tool)
            # A call may speak twice: its timeout fails it, then its late thread succeeds. The first word stands.
            if breaker is None or ticket._spent or ticket._tool != tool or ticket._generation != breaker.generation:
                return False
            ticket._spent = True
            return _fire(breaker, outcome, ticket._policy, now)


def _target(breaker: _Breaker, outcome: BreakerOutcome, policy: BreakerPolicy, now: float) -> BreakerState | None:
    asked = (breaker, policy, now)
    for target, guards in _INDEX.get((breaker.state, outcome), ()):
        if all(guard(asked) for guard in guards):
            return target
    return None


def _fire(breaker: _Breaker, outcome: BreakerOutcome, policy: BreakerPolicy, now: float) -> bool:
    """Move `breaker` along the first open row for `outcome`; False, and nothing changed, when there is none."""
    source, target = breaker.state, _target(breaker, outcome, policy, now)
    if target is None:
        return False
    if outcome is _SUCCEEDED:
        breaker.failures = 0
    elif outcome is _FAILED:
        breaker.failures += 1
    if source is _CLOSED and target is _CLOSED:
        return True
    breaker.state = target
    breaker.generation += 1
    breaker.probe_at = now if outcome is _ADMITTED else None
    if target is _OPEN:
        breaker.opened_at = now
    return True


def _wait(now: float, until: float) -> float:
    """Return a wait after which a caller of the same clock is surely there, in spite of rounding."""
    wait = until - now
    return wait if now + wait >= until else math.nextafter(wait, math.inf)
