"""The one living thing: a run, which is plain data from its first step to its answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from itertools import compress, groupby
from typing import Any

import attrs

from fsm_agent.core.generated import Later, made_when_read, maker
from fsm_agent.core.limits import Limits
from fsm_agent.core.short_text import short
from fsm_agent.core.values import EMPTY, NO_PROGRESS, Decision, Judgement, ResultClass, StopReason

_NOTHING = (EMPTY, NO_PROGRESS)
# One line of the trace: what happened, when (spent seconds), to what (state, tool or call id), and its detail.
TraceRow = tuple[str, float, str, Any]
# So many entries of a flat trace are one row.
ROW = 4


def flat_rows(flat: list[Any]) -> list[TraceRow]:
    """The rows of a flat trace that nobody adds to meanwhile."""
    entries = iter(flat)
    return list(zip(entries, entries, entries, entries, strict=True))


@attrs.define(kw_only=True)
class Call:
    """One call of a turn, from the decision that asked for it to its one result.

    `key` is the canonical key that repetitions are counted by. `tries` are the bodies and refusals so far, `tried_repairs`
    the repairs that were applied or failed, `repaired` those of them that changed it, and `repair` the next one as (name, tool, arguments),
    where there is one. Until it is settled `ok` is None; then `value` or `error` (a stable word, with `detail`) is its result, read as
    `result_class`; `reused` says that no body ran for it. `intent` and `reason` are the decider's, `source` and `secret` (names of
    arguments) the tool's.
    `started` is true from the moment the driver may run the body. `awaits` says what has to come before that: ``check``
    (the host's hooks and approval function), ``approval`` (a person, until the UTC second `expires_at`) or ``client``
    (whose answer is the result); `edited` holds the arguments that the decider gave where a person changed them. `parent` is the
    id of the program that made it; `by_verifier` is true for a verdict's next action. `leader`
    is the id of an identical pure call of the same turn whose result this one shares.
    """

    id: str
    tool: str
    args: Any
    turn: int = 0
    intent: str = ""
    reason: str = ""
    key: str = ""
    admitted: bool = False
    started: bool = False
    tries: int = 0
    body_runs: int = 0
    tried_repairs: tuple[str, ...] = ()
    repaired: tuple[str, ...] = ()
    repair: tuple[str, str, Any] | None = None
    not_before_s: float = 0.0
    leader: str = ""
    ok: bool | None = None
    value: Any = None
    error: str = ""
    detail: str = attrs.field(default="", eq=False)
    result_class: ResultClass | None = None
    reused: bool = False
    observation: str = ""
    source: str = ""
    counted: bool = False
    secret: tuple[str, ...] = ()
    awaits: str = ""
    expires_at: float | None = None
    edited: Any = None
    parent: str = ""
    program: bool = False
    by_verifier: bool = False


@attrs.define(kw_only=True)
class Program:
    """A program that stands still at a call it made: the call that it is, where it stands, what it printed, how often it asked.

    `hides` is true once it gave what a tool declares secret; `texts` are those, which are never saved and are taken out of the
    run with its end.
    """

    call_id: str
    snapshot: bytes = b""
    printed: str = ""
    waits_for: str = ""
    asked: int = 0
    hides: bool = False
    texts: list[str] = attrs.field(factory=list, eq=False, repr=False)


@attrs.frozen(kw_only=True)
class ClosedGuard:
    """One guard that was closed when a run stopped: its limit, what was used, and the calls that used it.

    `opens_at` is a value of the limit that would have let the run go on: the smallest for what is counted and for waits; for time
    and money, of which nobody knows how much the next step takes, half as much again as was spent. Of a deadline `allowed` is what
    the work may spend, and `reserve` is kept for the answer. `wait_s` are the seconds that the run would have had to wait, where that is
    what closed it.
    """

    guard: str
    limit: str
    allowed: float | None
    used: float
    opens_at: float
    reason: StopReason
    tool: str = ""
    calls: tuple[str, ...] = ()
    reserve: float = 0.0
    wait_s: float = 0.0

    def __str__(self) -> str:
        by = f", used by {', '.join(self.calls)}" if self.calls else ""
        whose = f" of {self.tool}" if self.tool else ""
        is_now = _figure(self.allowed)
        if self.reserve and self.allowed is not None:
            is_now = f"{_figure(self.allowed + self.reserve)} ({_figure(self.reserve)} of it for the answer)"
        # A window's figure is no number of calls that may be equal, but of those among which none may come again.
        used = "equal calls in it" if self.limit == "dedup_window" else "used"
        ahead = f", with {_figure(self.wait_s)} s to wait" if self.wait_s else ""
        return f"{self.guard}: {self.limit}{whose} is {is_now}, {_figure(self.used)} {used}{by}{ahead}"


@attrs.frozen(kw_only=True)
class Stop:
    """Why a run ended, and what would let it go on.

    `raise_to` is the joint raise of limits that opens every closed guard; it is empty when none was closed or none can be
    raised. `state` and `outcome` are where the run goes on from.
    """

    reason: StopReason
    detail: str = attrs.field(default="", eq=False)
    closed: tuple[ClosedGuard, ...] = ()
    raise_to: dict[str, Any] = attrs.field(factory=dict)
    state: str = ""
    outcome: str = ""

    def __str__(self) -> str:
        parts = [self.reason.value, *map(str, self.closed)]
        if isinstance(self.detail, str) and self.detail:
            parts.append(self.detail)
        if self.raise_to:
            parts.append(f"goes on with {self.raises()}")
        return "; ".join(parts)

    def raises(self) -> str:
        """The joint raise in words, as arguments that `resume` takes; empty when nothing can be raised."""
        return ", ".join(f"{name}={_least(value)}" for name, value in self.raise_to.items())


def _figure(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else short(value, 40)


def _least(value: Any) -> str:
    """A figure that must be reached, not rounded down."""
    told = _figure(value)
    return _figure(value * (1 + 1e-5)) if isinstance(value, float) and float(told) < value else told


@attrs.define(kw_only=True)
class Run(Later):
    """Everything one run knows; only the engine writes it, only the machine moves its `state`.

    Counters only rise. Times are seconds spent; a run holds no instant of any clock, so it can be saved at any step and go
    on elsewhere. `given` is the request as it came, `request` as it was normalized. `held` counts the open calls that wait
    for a check, a person or a client. `open_calls` are the calls of the present turn that are not folded in yet.
    `only_observation` is the call whose result is not counted among the `observations` and `facts` yet, for there is no other to
    compare it with. One run belongs to one driver at a time. `stop` is set once the run is over, or while it stands still after a
    cancellation. The trace and the journal lie flat in their lists, four entries a row and two an event: a tuple for each would be
    most of what the garbage collector goes through in a long run, and in many that wait.
    """

    id: str
    request: Any
    given: Any = None
    state: str
    limits: Limits
    machine: str = ""
    scope: str = ""
    seed: int = 0
    redecide: bool = True
    repair_due: bool = False
    came_by: tuple[str, str] = ("", "")

    steps: int = 0
    turns: int = 0
    tool_calls: int = 0
    emitted_calls: int = 0
    body_runs: int = 0
    tool_errors: int = 0
    bad_arguments: int = 0
    stale_turns: int = 0
    same_observation: int = 0
    only_observation: str = ""
    empty_results: int = 0
    verify_rounds: int = 0
    gather_rounds: int = 0
    attempts: int = 0
    invalid_decisions: int = 0
    tokens: int = 0
    cost: float = 0.0
    spent_s: float = 0.0
    waited_s: float = 0.0
    not_before_s: float = 0.0
    calls: list[Call] = attrs.field(factory=list)
    open_calls: list[Call] = attrs.field(factory=list)
    tool_counts: dict[str, int] = attrs.field(factory=dict)
    requests: dict[str, int] = attrs.field(factory=dict)
    window: list[str] = attrs.field(factory=list)
    observations: dict[str, int] = attrs.field(factory=dict)
    empties: dict[str, int] = attrs.field(factory=dict)
    facts: dict[str, bool] = attrs.field(factory=dict)
    fields: dict[str, Any] = attrs.field(factory=dict)
    first_fields: dict[str, Any] = attrs.field(factory=dict)
    claimed: dict[str, list[float]] | None = None
    unsealed: dict[str, list[str]] | None = None
    faults: dict[str, list[str]] | None = None
    former: dict[str, list[str]] | None = None
    call_ids: dict[str, bool] = attrs.field(factory=dict)
    tried: list[tuple[str, Any]] = attrs.field(factory=list)
    errors: list[str] = attrs.field(factory=list)
    fixes: list[str] = attrs.field(factory=list)

    draft: Decision | None = None
    program: Program | None = None
    answer: Any = None
    plan: str = ""
    closing_text: str = ""
    judgement: Judgement | None = None
    note: str = attrs.field(default="", eq=False)
    closing: bool = False
    stopping: StopReason | None = None
    closed: tuple[ClosedGuard, ...] = ()
    stop: Stop | None = None
    resumed: int = 0
    held: int = 0
    paused: bool = False
    failed_requests: int = 0
    last_emitted: int = 0
    finish: str = ""
    driven: bool = attrs.field(default=False, eq=False, repr=False)
    replaying: Any = attrs.field(default=None, eq=False, repr=False)
    interrupt: Any = attrs.field(default=None, eq=False, repr=False)
    history: Any = attrs.field(default=None, eq=False, repr=False)
    heard: int = attrs.field(default=0, eq=False, repr=False)
    flat_trace: list[Any] = attrs.field(factory=list)
    flat_journal: list[Any] = attrs.field(factory=list)

    def __getstate__(self) -> dict[str, Any]:
        """What a copy and a pickle of it hold: everything but who drives it, for nobody drives the copy."""
        return {**{field.name: getattr(self, field.name) for field in attrs.fields(Run)}, **_UNDRIVEN}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    def __copy__(self) -> Run:
        """A run of its own, as `deepcopy` makes it: two that share their containers could not both be driven."""
        return deepcopy(self)

    @property
    def done(self) -> bool:
        """True once nothing more will be asked of anybody."""
        return self.stop is not None and not self.closing

    @property
    def path(self) -> list[str]:
        """The states that were entered, in order; one that was entered again and again stands once."""
        flat = self.flat_trace[:]
        entered = compress(flat[2::ROW], map("state_entered".__eq__, flat[::ROW]))
        return [state for state, _ in groupby(entered)]

    @property
    def trace(self) -> list[TraceRow]:
        """What the run did: (kind, seconds spent, subject, detail), a list of its own; see `TraceEvent`."""
        return self.rows()

    def rows(self, since: int = 0) -> list[TraceRow]:
        """The trace from the row of that number on; also while a driver in another thread adds to it."""
        return flat_rows(self.flat_trace[since * ROW :])

    def backwards(self) -> Iterator[TraceRow]:
        """The rows of the trace from the last one on; none is made before it is asked for, however long the run."""
        flat = self.flat_trace
        for at in range(len(flat) - ROW, -1, -ROW):
            yield from flat_rows(flat[at : at + ROW])

    @property
    def row_count(self) -> int:
        """How many rows the trace has."""
        return len(self.flat_trace) // ROW

    @property
    def journal(self) -> list[tuple[float, Any]]:
        """What the run was told: (seconds spent, event), a list of its own."""
        entries = iter(self.flat_journal[:])
        return list(zip(entries, entries, strict=True))

    @property
    def last(self) -> Call | None:
        """The call that was settled last, or None."""
        return self.calls[-1] if self.calls else None

    def close(self, guard: ClosedGuard) -> None:
        """Note a guard that is closed for this run, and say so in the trace."""
        self.closed = (*self.closed, guard)
        self.flat_trace.extend(("guard_closed", self.spent_s, guard.guard, guard.reason.value))

    def waiting_for(self) -> Call | None:
        """The call that the open program has made and stands still at, or None."""
        program = self.program
        if program is None or not program.waits_for:
            return None
        if not any(call.id == program.call_id and call.ok is None for call in self.open_calls):
            return None
        return next((call for call in self.open_calls if call.id == program.waits_for), None)

    def evidence(self) -> list[Call]:
        """The calls whose results count as found: successful, not empty, some progress; of a program those that it made."""
        return [call for call in self.calls if call.ok and call.result_class not in _NOTHING and not call.program]


_UNDRIVEN: Mapping[str, Any] = {"driven": False, "interrupt": None, "history": None}

# Most runs never count these, and of many runs that wait at once the containers would be what costs most.
made_when_read(Run, "requests", "window", "observations", "empties", "facts", "fields", "first_fields", "errors", "fixes")

def reserve_of(run: Run) -> float:
    """The part of the run's deadline that is kept for the answer, in seconds; 0 where there is no deadline."""
    deadline, until = run.limits.deadline_s, run.limits.work_until_s
    return 0.0 if deadline is None or until is None else deadline - until


def deadline_after(run: Run, seconds: float, share: float = 0.5) -> float:
    """A deadline with time to go on after these seconds (a half of them, or another `share`), and the reserve for the answer."""
    return run.limits.deadline_until((seconds or 1.0) * (1 + share))


# What the engine makes at every run and every call; the fields are those that it knows then, in this order.
new_run = maker(Run, "id", "request", "given", "state", "limits", "machine", "scope", "seed", "redecide")
new_call = maker(Call, "id", "tool", "args", "turn", "intent", "reason", "by_verifier")
new_stop = maker(Stop, "reason", "detail", "state", "outcome")
