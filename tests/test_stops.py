"""Stops: each guard of the specification stops a run at exactly its figure, explains it, and a raise lets the run go on."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from strategies import (
    REPAIRS,
    Answers,
    World,
    a_tool,
    alike,
    an_engine,
    limits,
    off,
    play,
    policies,
    search,
    step,
    ways,
    worlds,
)

from fsm_agent.agent import Agent
from fsm_agent.core import guards
from fsm_agent.core.agent_table import AGENT
from fsm_agent.core.answers import answer_of
from fsm_agent.core.checks import check_bounds
from fsm_agent.core.effects import CallTools, Check, Compose, Decide, Judge, Pause, Wait
from fsm_agent.core.engine import Engine
from fsm_agent.core.errors import CannotResume, TableError
from fsm_agent.core.events import (
    Approved,
    CallEvent,
    Cancelled,
    Composed,
    ComposeFailed,
    Decided,
    DecisionFailed,
    Judged,
    Lost,
    Paused,
    Raised,
    Returned,
    Reused,
    Started,
    Stopped,
    Waited,
)
from fsm_agent.core.guards import AllOf, Opaque, Spending, time_left
from fsm_agent.core.limits import Limits
from fsm_agent.core.run import Call, ClosedGuard, Run, Stop
from fsm_agent.core.stops import closed_among, closed_guard, consumers, explain, joint_raise, still_closed
from fsm_agent.core.table import Row, State, Table
from fsm_agent.core.tools import Retry, Toolset
from fsm_agent.core.values import (
    Decision,
    Judgement,
    Policy,
    ResultClass,
    Status,
    StopReason,
    ToolCall,
    Usage,
    Verdict,
)
from tests import by_hand
from tests.by_hand import Hand, says

# ---- one case for each guard of the specification's table


def calling(*wanted: ToolCall, **more: Any) -> Decided:
    return Decided(Decision(calls=wanted, **more))


def same(run: Run) -> Decided:
    return calling(ToolCall("look", {"q": "x"}))


def returning(value: Any, verdict: Verdict | None = None) -> Callable[[Run, Call], CallEvent]:
    return lambda run, call: Returned(call.id, copy.deepcopy(value), verdict)


def raising(run: Run, call: Call) -> CallEvent:
    return Raised(call.id, f"Error{call.tries}", "broken")


def spending(run: Run) -> Decided:
    return calling(ToolCall("look", {"q": f"v{run.turns}"}), usage=Usage(input_tokens=7, output_tokens=3, cost=0.5))


def periodic(period: int) -> Callable[[Run], Decided]:
    return lambda run: calling(ToolCall("look", {"q": f"v{run.turns % period}"}))


def repairs(most: int) -> dict[str, Any]:
    return {f"raised:Error{n}": (f"repair {n}", lambda tool, args, run: (tool, {"q": f"{args} again"})) for n in range(1, most)}


def no(run: Run) -> Judged:
    return Judged(Judgement(decision="need_more", reason="too little"))


def answering(run: Run) -> Decided:
    return Decided(Decision(text="it is so"))


SLOW_DOWN = Verdict(result_class=ResultClass.RATE_LIMITED, retry_after_s=2.0)


@attrs.frozen(kw_only=True)
class Case:
    """How a guard is closed at n: the limit that says n, who answers, and what the record of the stop has to say."""

    reason: str
    guard: str
    limit: str
    figure: Callable[[int], Any] = lambda n: n
    allowed: Callable[[int], Any] = lambda n: n
    used: Callable[[int], Any] = lambda n: n
    least: Callable[[int], Any] = lambda n: n + 1
    answers: Callable[[int], Answers] = lambda n: Answers()
    parts: dict[str, Any] = attrs.field(factory=dict)
    counted: Callable[[Run], int] = lambda run: len(run.calls)
    by: Callable[[int], list[int]] = lambda n: list(range(1, n + 1))

    def engine(self, n: int, **more: Any) -> Engine:
        """An engine whose only limits are this one and enough steps."""
        figures = {self.limit: self.figure(n), **({"reserve_s": 0.0} if self.limit == "deadline_s" else {})}
        return an_engine(limits=off(**figures), **{**self.parts, **more})

    def stopped(self, n: int, **more: Any) -> tuple[Engine, Run]:
        """A run that this guard has stopped."""
        engine = self.engine(n, **more)
        return engine, play(engine, engine.start("x"), self.answers(n))


def admitted(run: Run) -> int:
    return sum(kind == "call_admitted" for kind, *_ in run.trace)


def decided(run: Run) -> int:
    return sum(isinstance(event, Decided | DecisionFailed) for _, event in run.journal)


CASES: dict[str, Case] = {
    "steps": Case(
        reason="max_steps", guard="steps_left", limit="max_steps", figure=lambda n: n + 2, allowed=lambda n: n + 2,
        used=lambda n: n + 2, least=lambda n: n + 4, by=lambda n: list(range(1, n + 2)),
        counted=lambda run: sum(kind == "state_entered" and subject != "final" for kind, _, subject, _ in run.trace) - 2,
    ),
    "turns": Case(reason="max_turns", guard="turns_left", limit="max_turns", counted=decided),
    "calls": Case(reason="max_tool_calls", guard="calls_left", limit="max_tool_calls", counted=admitted),
    "calls after which no turn begins": Case(
        reason="stop_after_tool_calls", guard="calls_below_stop", limit="stop_after_tool_calls",
    ),
    "same call": Case(
        reason="duplicate_call", guard="call_is_new", limit="max_same_call", used=lambda n: n + 1, least=lambda n: n + 2,
        answers=lambda n: Answers(decide=same), counted=admitted, by=lambda n: list(range(1, n + 2)),
    ),
    "same call in a window": Case(
        reason="duplicate_call", guard="call_is_new", limit="dedup_window", allowed=lambda n: n, used=lambda n: 2,
        least=lambda n: None, answers=lambda n: Answers(decide=periodic(n)), counted=admitted, by=lambda n: [1, n + 1],
    ),
    "same observation": Case(
        reason="repeated_observation", guard="observations_differ", limit="max_same_observation",
        answers=lambda n: Answers(body=returning(["same"])),
    ),
    "no new fact": Case(
        reason="no_progress", guard="makes_progress", limit="max_stale_turns",
        answers=lambda n: Answers(body=returning(["same"])), counted=lambda run: len(run.calls) - 1,
        by=lambda n: list(range(2, n + 2)),
    ),
    "nothing found": Case(
        reason="empty_results", guard="finds_something", limit="max_empty_results", answers=lambda n: Answers(body=returning([])),
    ),
    "tool errors": Case(
        reason="max_tool_errors", guard="few_tool_errors", limit="max_tool_errors", answers=lambda n: Answers(body=raising),
    ),
    "bad arguments": Case(
        reason="max_bad_arguments", guard="few_bad_arguments", limit="max_bad_arguments",
        answers=lambda n: Answers(decide=lambda run: calling(ToolCall("look", {"z": run.turns}))),
    ),
    "tries of one call": Case(
        reason="max_attempts", guard="attempts_left", limit="max_attempts", answers=lambda n: Answers(body=raising),
        parts={"policy": Policy(redecide=False), "repairs": repairs(9)}, by=lambda n: [1],
        counted=lambda run: sum(call.tries for call in [*run.calls, *run.open_calls]),
    ),
    "rounds of gathering after a no": Case(
        reason="max_attempts", guard="gather_rounds_left", limit="max_attempts",
        answers=lambda n: Answers(decide=answering, judge=no), parts={"verifies": True}, by=lambda n: [],
        counted=lambda run: decided(run) - 1,
    ),
    "verifier rounds": Case(
        reason="unverified", guard="verify_rounds_left", limit="max_verify_rounds",
        answers=lambda n: Answers(decide=answering, judge=no), parts={"verifies": True}, by=lambda n: [],
        counted=lambda run: sum(isinstance(event, Judged) for _, event in run.journal),
    ),
    "time": Case(
        reason="deadline", guard="time_left", limit="deadline_s", figure=lambda n: 3.0 * n, allowed=lambda n: 3.0 * n,
        used=lambda n: 3.0 * n, least=lambda n: 4.5 * n, answers=lambda n: Answers(seconds=lambda run: 1.0),
    ),
    "waits": Case(
        reason="max_wait", guard="waits_left", limit="max_wait_s", figure=lambda n: 2.0 * n, allowed=lambda n: 2.0 * n,
        used=lambda n: 2.0 * n, least=lambda n: 2.0 * n + 2.0, answers=lambda n: Answers(body=returning(1, SLOW_DOWN)),
        counted=lambda run: sum(kind == "waiting" for kind, *_ in run.trace), by=lambda n: [n + 1],
    ),
    "tokens": Case(
        reason="max_tokens", guard="tokens_left", limit="max_tokens", figure=lambda n: 10 * n, allowed=lambda n: 10 * n,
        used=lambda n: 10 * n, least=lambda n: 10 * n + 1, answers=lambda n: Answers(decide=spending), by=lambda n: [],
    ),
    "cost": Case(
        reason="max_cost", guard="cost_left", limit="max_cost", figure=lambda n: 0.5 * n, allowed=lambda n: 0.5 * n,
        used=lambda n: 0.5 * n, least=lambda n: 0.75 * n + 1e-9, answers=lambda n: Answers(decide=spending), by=lambda n: [],
    ),
    **{
        name: Case(
            reason=reason, guard="decisions_usable", limit="max_invalid_decisions", used=lambda n: n + 1,
            answers=lambda n, decide=decide: Answers(decide=decide),  # type: ignore[misc]
            parts={"policy": Policy(on_finish={"length": "continue"})}, counted=lambda run: decided(run) - 1, by=lambda n: [],
        )
        for name, reason, decide in (
            ("decisions without a call", "invalid_decision", lambda run: calling(ToolCall(""))),
            ("decisions that are malformed", "invalid_decision", lambda run: DecisionFailed("ValueError", "no JSON", "malformed")),
            ("decisions that are empty", "model_empty", lambda run: Decided(Decision(text="  "))),
            ("decisions that are cut off", "truncated", lambda run: Decided(Decision(text="it is", finish="length"))),
        )
    },
}
FIGURES = (1, 2, 3)
EVERY = [(name, n) for name in CASES for n in FIGURES]


def test_every_limit_that_stops_a_run_has_its_case() -> None:
    """Those left out stop no run: two bound one tool or one turn, one paces, one reserves and one asks for evidence."""
    names = {field.name for field in attrs.fields(Limits)}
    other = {"max_same_tool_calls", "max_calls_per_turn", "max_parallel", "reserve_s", "min_evidence"}
    assert {case.limit for case in CASES.values()} == names - other


def test_every_reason_for_which_a_limit_stops_a_run_has_its_case() -> None:
    spent = {guard.reason for guard in vars(guards).values() if isinstance(guard, Spending)}
    assert spent < {StopReason(case.reason) for case in CASES.values()}


@pytest.mark.parametrize(("name", "n"), EVERY)
def test_a_guard_stops_the_run_at_its_figure(name: str, n: int) -> None:
    case = CASES[name]
    _, run = case.stopped(n)
    assert run.stop is not None
    assert run.stop.reason == case.reason
    assert case.counted(run) == n


@pytest.mark.parametrize(("name", "n"), EVERY)
def test_a_stop_names_the_guard_its_limit_and_what_used_it(name: str, n: int) -> None:
    case = CASES[name]
    _, run = case.stopped(n)
    assert run.stop is not None
    (closed,) = run.stop.closed
    assert (closed.guard, closed.limit, closed.reason) == (case.guard, case.limit, case.reason)
    assert (closed.allowed, closed.used) == (case.allowed(n), case.used(n))
    assert list(closed.calls) == [f"call-{number}" for number in case.by(n)]
    assert run.stop.raise_to == {case.limit: case.least(n)}


@pytest.mark.parametrize(("name", "n"), EVERY)
def test_the_answer_of_a_stopped_run_has_everything(name: str, n: int) -> None:
    case = CASES[name]
    _, run = case.stopped(n)
    answer = answer_of(run)
    assert answer is not None
    assert answer.stop_reason == case.reason
    something = bool(answer.evidence) or run.closing_text or run.draft is not None
    assert answer.status is (Status.PARTIAL if something else Status.FAILED)
    assert f"Stopped: {case.reason} ({case.guard}: {case.limit} is " in answer.text
    assert answer.unknowns
    assert answer.next_questions[0].startswith("May the run go on with ")
    assert ("guard_closed", run.spent_s, case.guard, case.reason) in run.trace or case.guard == "decisions_usable"


@pytest.mark.parametrize(("name", "n"), EVERY)
def test_the_raise_that_a_stop_names_lets_the_run_go_on(name: str, n: int) -> None:
    case = CASES[name]
    engine, run = case.stopped(n)
    assert run.stop is not None
    before = copy.deepcopy(run)
    engine.resume(run, run.stop.raise_to)
    assert run.stop is None
    effect = engine.ask(run)
    assert isinstance(effect, Decide | CallTools | Wait)
    assert step(engine, run, case.answers(n))
    assert case.counted(run) >= case.counted(before)
    for counter in ("steps", "turns", "tool_calls", "emitted_calls", "tool_errors", "bad_arguments", "tokens", "cost"):
        assert getattr(run, counter) >= getattr(before, counter)
    assert run.journal[: len(before.journal)] == before.journal
    assert run.trace[: len(before.trace)] == before.trace
    assert run.resumed == 1


@pytest.mark.parametrize(("name", "n"), EVERY)
def test_a_run_that_went_on_stops_again_one_further(name: str, n: int) -> None:
    case = CASES[name]
    engine, run = case.stopped(n)
    assert run.stop is not None
    counted, raises = case.counted(run), run.stop.raise_to
    engine.resume(run, raises)
    play(engine, run, case.answers(99) if name == "same call in a window" else case.answers(n))
    assert run.stop is not None
    if raises[case.limit] is None:
        assert run.stop.reason == StopReason.MAX_STEPS
        return
    assert run.stop.reason == case.reason
    assert case.counted(run) > counted


def _less(limit: str, raises: dict[str, Any], run: Run) -> list[Any]:
    """Values of a limit that are below the raise and leave it closed; the present one among them."""
    now, needed = getattr(run.limits, limit), raises[limit]
    if needed is None:
        return [now, now + 1]
    if limit in ("deadline_s", "max_cost"):
        return [now]
    return [now, needed - 1] if isinstance(needed, int) else [now, needed - 0.5]


@pytest.mark.parametrize(("name", "n"), EVERY)
def test_a_smaller_raise_is_refused_and_the_run_is_as_it_was(name: str, n: int) -> None:
    case = CASES[name]
    engine, run = case.stopped(n)
    assert run.stop is not None
    before = copy.deepcopy(run)
    for value in (*_less(case.limit, run.stop.raise_to, run), ...):
        with pytest.raises(CannotResume, match=f"stays closed by {case.limit}"):
            engine.resume(run, {} if value is ... else {case.limit: value})
        assert alike(run, before)


@pytest.mark.parametrize(("name", "n"), EVERY)
def test_a_limit_that_is_switched_off_lets_the_run_go_on(name: str, n: int) -> None:
    case = CASES[name]
    engine, run = case.stopped(n)
    if case.limit == "max_steps":
        # Some other limit has to bound the run then.
        engine.resume(run, {"max_steps": None} if accepted_without_steps(run) else {"max_steps": 10**6})
    else:
        engine.resume(run, {case.limit: None})
    assert engine.ask(run) is not None


def accepted_without_steps(run: Run) -> bool:
    try:
        check_bounds(AGENT, attrs.evolve(run.limits, max_steps=None))
    except TableError:
        return False
    return True


@pytest.mark.parametrize("n", FIGURES)
def test_any_time_or_money_beyond_what_is_spent_will_do(n: int) -> None:
    for name, limit in (("time", "deadline_s"), ("cost", "max_cost")):
        engine, run = CASES[name].stopped(n)
        spent = run.spent_s if name == "time" else run.cost
        engine.resume(run, {limit: math.nextafter(spent, math.inf)})
        assert engine.ask(run) is not None


def test_a_deadline_counts_what_is_reserved_for_the_answer() -> None:
    engine = an_engine(limits=off(deadline_s=10.0, reserve_s=0.5))
    run = play(engine, engine.start("x"), Answers(seconds=lambda run: 1.9))
    assert run.stop is not None
    (closed,) = run.stop.closed
    assert (closed.allowed, closed.used) == (9.5, pytest.approx(11.4))
    with pytest.raises(CannotResume):
        engine.resume(run, {"deadline_s": run.spent_s + 0.5})
    engine.resume(run, {"deadline_s": run.spent_s + 0.51})
    assert engine.ask(run) is not None


# ---- what stops no run


def test_a_tool_that_is_used_up_is_refused_and_the_run_goes_on() -> None:
    engine = an_engine(limits=off(max_turns=5, max_same_tool_calls=2))
    run = play(engine, engine.start("x"), Answers())
    assert [call.error for call in run.calls] == ["", "", *["refused:budget:max_same_tool_calls"] * 3]
    assert run.stop is not None
    assert run.stop.reason is StopReason.MAX_TURNS


def test_calls_beyond_those_of_one_turn_are_skipped_and_the_run_goes_on() -> None:
    engine = an_engine(limits=off(max_turns=2, max_calls_per_turn=2))
    decide = Answers(decide=lambda run: calling(*(ToolCall("look", {"q": f"{run.turns} {n}"}) for n in range(3))))
    run = play(engine, engine.start("x"), decide)
    assert [call.error for call in run.calls] == ["", "", "skipped:max_calls_per_turn"] * 2
    assert run.stop is not None
    assert run.stop.reason is StopReason.MAX_TURNS


@pytest.mark.parametrize("policy", ["refuse", "error"])
def test_a_repetition_that_is_only_refused_stops_nothing(policy: str) -> None:
    engine = an_engine(limits=off(max_turns=4, max_same_call=2), policy=Policy(duplicates=policy))
    run = play(engine, engine.start("x"), Answers(decide=same))
    assert [call.error for call in run.calls] == ["", "", "refused:duplicate", "refused:duplicate"]
    assert run.stop is not None
    assert run.stop.reason is StopReason.MAX_TURNS


def test_the_first_repetition_may_end_the_run() -> None:
    engine = an_engine(limits=off(max_turns=4, max_same_call=2), policy=Policy(duplicates="first"))
    run = play(engine, engine.start("x"), Answers(decide=same))
    assert run.stop is not None
    assert (run.stop.reason, run.stop.closed[0].allowed, admitted(run)) == (StopReason.DUPLICATE_CALL, 1, 1)


# ---- several guards at once

# Every turn spends one of each: an error, a bad argument, an empty result, an equal observation, and so on.
AT_ONCE: dict[str, tuple[str, Any]] = {
    "few_tool_errors": ("max_tool_errors", 3),
    "few_bad_arguments": ("max_bad_arguments", 3),
    "finds_something": ("max_empty_results", 3),
    "observations_differ": ("max_same_observation", 3),
    "makes_progress": ("max_stale_turns", 2),
    "time_left": ("deadline_s", 3.0),
    "tokens_left": ("max_tokens", 30),
    "cost_left": ("max_cost", 1.5),
    "calls_below_stop": ("stop_after_tool_calls", 12),
    "turns_left": ("max_turns", 3),
    "steps_left": ("max_steps", 4),
}


def _everything(run: Run) -> Decided:
    wanted = (ToolCall("look"), ToolCall("fetch"), ToolCall("look", {"z": 1}), ToolCall("count"))
    return calling(*wanted, usage=Usage(input_tokens=10, cost=0.5))


def _all_sorts(run: Run, call: Call) -> CallEvent:
    if call.tool == "fetch":
        return Raised(call.id, "KeyError")
    return Returned(call.id, [] if call.tool == "look" else {"rows": [1]})


def _last_of_a_turn(run: Run) -> float:
    return 1.0 if sum(call.ok is None for call in run.open_calls) == 1 else 0.0


ALL_SORTS = Answers(decide=_everything, body=_all_sorts, seconds=_last_of_a_turn)


def test_the_guards_that_may_close_at_once_are_all_of_those_within_limits() -> None:
    assert list(AT_ONCE) == [guard.name for guard in guards.within_limits.guards]


def _closed_at_once(*names: str, **more: Any) -> tuple[Engine, Run]:
    figures = {"reserve_s": 0.0, **dict(AT_ONCE[name] for name in names)}
    engine = an_engine(limits=off(**figures), **more)
    return engine, play(engine, engine.start("x"), ALL_SORTS)


@pytest.mark.parametrize("names", [*itertools.combinations(AT_ONCE, 2), tuple(AT_ONCE)], ids=" and ".join)
def test_guards_that_close_at_once_need_the_joint_raise(names: tuple[str, ...]) -> None:
    engine, run = _closed_at_once(*names)
    assert run.stop is not None
    assert [closed.guard for closed in run.stop.closed] == list(names)
    assert run.stop.reason is run.stop.closed[0].reason
    raises = run.stop.raise_to
    assert set(raises) == {AT_ONCE[name][0] for name in names}
    before = copy.deepcopy(run)
    for limit in raises:
        with pytest.raises(CannotResume, match=f"stays closed by {limit};"):
            engine.resume(run, {name: value for name, value in raises.items() if name != limit})
        assert alike(run, before)
    engine.resume(run, raises)
    assert isinstance(engine.ask(run), Decide)


def test_each_closed_guard_is_named_once_and_told_in_the_trace() -> None:
    _, run = _closed_at_once(*AT_ONCE)
    told = [subject for kind, _, subject, _ in run.trace if kind == "guard_closed"]
    assert told == list(AT_ONCE)
    assert [row[3] for row in run.trace if row[0] == "guard_closed"] == [g.reason.value for g in run.closed]


def test_a_guard_further_on_is_raised_with_the_one_that_closed() -> None:
    """The gate closes on its own; what the next turn needs beside it is in the same raise."""
    engine = an_engine(limits=off(max_tool_calls=2, max_turns=3), composes=False)
    run = play(engine, engine.start("x"), Answers())
    assert run.stop is not None
    assert run.stop.reason is StopReason.MAX_TOOL_CALLS
    assert run.stop.raise_to == {"max_tool_calls": 3, "max_turns": 4}


def test_the_turn_and_the_time_of_the_closing_answer_are_in_the_raise_too() -> None:
    engine = an_engine(limits=off(max_tool_errors=2, max_turns=3, deadline_s=10.0))
    answers = Answers(body=raising, seconds=lambda run: 12.0 if run.closing else 0.0)
    run = play(engine, engine.start("x"), answers)
    assert run.stop is not None
    assert (run.turns, run.stop.reason) == (3, StopReason.MAX_TOOL_ERRORS)
    assert run.stop.raise_to == {"max_tool_errors": 3, "max_turns": 4, "deadline_s": 18.0}
    assert [closed.guard for closed in run.stop.closed] == ["few_tool_errors", "time_left", "turns_left"]
    engine.resume(run, run.stop.raise_to)
    assert isinstance(engine.ask(run), Decide)


def test_a_row_that_no_raise_can_open_asks_for_none() -> None:
    """The repair is used up in the first turn; the second one fails without a repair, and only its own guard is raised."""
    engine = an_engine(limits=off(max_attempts=1, max_turns=2), repairs=repairs(9), composes=False)
    answers = Answers(
        decide=lambda run: search(run) if not run.turns else DecisionFailed("ValueError", "no JSON", "malformed"), body=raising
    )
    run = play(engine, engine.start("x"), answers)
    assert run.stop is not None
    assert (run.attempts, run.stop.raise_to) == (1, {"max_turns": 3})


def test_the_guards_on_the_way_out_of_a_repair_are_in_the_raise_too() -> None:
    engine = an_engine(
        limits=off(max_attempts=1, max_turns=1), repairs=repairs(9), policy=Policy(redecide=False), composes=False
    )
    run = play(engine, engine.start("x"), Answers(body=raising))
    assert run.stop is not None
    assert run.stop.raise_to == {"max_attempts": 2, "max_turns": 2}
    engine.resume(run, run.stop.raise_to)
    effect = engine.ask(run)
    assert isinstance(effect, CallTools)
    assert [(call.id, call.tries, call.tried_repairs) for call in effect.calls] == [("call-1", 2, ("repair 1",))]


def test_a_repair_that_was_due_is_taken_up_again_after_the_closing_turn() -> None:
    engine, run = CASES["tries of one call"].stopped(1)
    assert (run.closing_text, run.turns) == ("closing", 2)
    engine.resume(run, {"max_attempts": 2})
    effect = engine.ask(run)
    assert isinstance(effect, CallTools)
    assert [(call.tool, call.args) for call in effect.calls] == [("look", {"q": "{'q': 'v0'} again"})]
    assert run.calls == []


# ---- machines with states of their own to stop in

DECIDING = Table(
    name="deciding",
    initial="pick",
    states=(State("pick", work="decide"), State("fetch", work="call", tools=None), State("end", work="answer")),
    rows=(
        Row("pick", "decided", "fetch"),
        Row("pick", "failed", "pick", (guards.steps_left,)),
        *(Row("pick", outcome, "end") for outcome in ("proposed", "failed", "stopped")),
        Row("fetch", "called", "pick", (guards.steps_left,)),
        *(Row("fetch", outcome, "end") for outcome in ("called", "failed", "no_progress", "stopped")),
    ),
)


def test_a_state_that_finds_its_turns_and_money_used_up_names_both() -> None:
    engine = an_engine(table=DECIDING, limits=off(max_turns=2, max_cost=1.0), composes=False)
    run = play(engine, engine.start("x"), Answers(decide=spending))
    assert run.stop is not None
    assert (run.stop.state, run.stop.outcome, run.stop.reason) == ("pick", "", StopReason.MAX_COST)
    assert run.stop.raise_to == {"max_cost": 1.5 + 1e-9, "max_turns": 3}
    with pytest.raises(CannotResume):
        engine.resume(run, {"max_cost": 9.0})
    engine.resume(run, run.stop.raise_to)
    assert isinstance(engine.ask(run), Decide)


def test_a_row_back_whose_own_guard_closed_is_raised() -> None:
    engine = an_engine(table=DECIDING, limits=off(max_steps=3), composes=False)
    run = play(engine, engine.start("x"), Answers())
    assert run.stop is not None
    assert (run.stop.state, run.stop.outcome, run.stop.raise_to) == ("fetch", "called", {"max_steps": 6})
    engine.resume(run, {"max_steps": 6})
    assert isinstance(engine.ask(run), Decide)


# ---- the reserved answer


@pytest.mark.parametrize(("name", "n"), EVERY)
@pytest.mark.parametrize("reserves", [True, False])
@pytest.mark.parametrize("composes", [True, False])
def test_a_closing_turn_is_made_where_one_is_left(name: str, n: int, reserves: bool, composes: bool) -> None:
    case = CASES[name]
    policy = attrs.evolve(case.parts.get("policy", Policy()), reserve_answer=reserves)
    _, run = case.stopped(n, policy=policy, composes=composes)
    asked = [event for _, event in run.journal if isinstance(event, Composed)]
    possible = case.limit not in ("max_turns", "max_invalid_decisions", "deadline_s")
    made = reserves and composes and possible
    assert len(asked) == made
    assert run.turns == decided(run) + made
    assert run.stop is not None
    assert run.stop.reason == case.reason


@pytest.mark.parametrize("left", [0, 1])
def test_the_closing_answer_takes_a_turn_of_those_that_are_left(left: int) -> None:
    engine = an_engine(limits=off(max_tool_errors=2, max_turns=2 + left))
    run = play(engine, engine.start("x"), Answers(body=raising))
    assert (run.turns, run.closing_text) == ((3, "closing") if left else (2, ""))


@pytest.mark.parametrize(("spent", "made"), [(22.9, True), (23.0, True), (24.9, True), (25.0, False), (26.0, False)])
def test_the_closing_answer_is_made_in_the_time_reserved_for_it(spent: float, made: bool) -> None:
    engine = an_engine(limits=off(deadline_s=25.0, reserve_s=2.0))
    run = engine.start("x")
    engine.tell(run, search(run), spent)
    if spent < 23:
        engine.tell(run, Returned("call-1", ["hit"]), 23.0)
    assert isinstance(engine.ask(run), Compose) is made
    assert run.stop is not None
    assert run.stop.reason is StopReason.DEADLINE


@pytest.mark.parametrize("answer", [ComposeFailed("OSError", "down"), Composed(""), Composed(" \n"), Composed("said")])
def test_a_closing_answer_that_fails_leaves_the_template_and_the_reason(answer: Composed | ComposeFailed) -> None:
    engine = an_engine(limits=off(max_tool_calls=2))
    run = play(engine, engine.start("x"), Answers(close=lambda run: answer))
    final = answer_of(run)
    assert final is not None
    assert final.stop_reason is StopReason.MAX_TOOL_CALLS
    said = answer == Composed("said")
    assert final.text.startswith("said\n\nFound so far:" if said else "Found so far:")
    assert '["hit 1"]' in final.text
    assert ("compose_failed" in [row[0] for row in run.trace]) is isinstance(answer, ComposeFailed)


def test_the_closing_answer_stands_beside_what_was_found() -> None:
    """The scenario that the specification gives: the third identical call does not run, and the answer has the first hit."""
    engine = an_engine(limits=Limits.off(max_turns=10, max_steps=100, max_same_call=2))
    run = play(engine, engine.start("x"), Answers(decide=same))
    answer = answer_of(run)
    assert answer is not None
    assert (answer.status, answer.stop_reason) == (Status.PARTIAL, StopReason.DUPLICATE_CALL)
    assert answer.text.startswith("closing")
    assert "hit 1" in answer.text
    assert (run.body_runs, run.turns) == (2, 4)
    assert all(call.ok is not None for call in run.calls)


@pytest.mark.parametrize("event", [Stopped("strategy"), Stopped("finish_reason"), Cancelled()])
def test_there_is_no_closing_turn_after_a_stop_from_outside(event: Stopped | Cancelled) -> None:
    engine = an_engine()
    run = engine.start("x")
    engine.tell(run, search(run))
    engine.tell(run, Returned("call-1", ["hit"]))
    engine.tell(run, event)
    assert engine.ask(run) is None
    assert run.closing_text == ""


def test_a_cancellation_during_the_closing_turn_leaves_the_guards_reason() -> None:
    engine = an_engine(limits=off(max_tool_calls=1))
    run = engine.start("x")
    answers = Answers()
    while not isinstance(engine.ask(run), Compose):
        step(engine, run, answers)
    engine.tell(run, Cancelled())
    answer = answer_of(run)
    assert answer is not None
    assert (answer.stop_reason, answer.status) == (StopReason.MAX_TOOL_CALLS, Status.PARTIAL)
    engine.resume(run, {"max_tool_calls": 2})
    assert isinstance(engine.ask(run), Decide)


# ---- what says more than a limit


def test_a_fatal_result_says_more_than_a_limit_that_closed_in_the_same_turn() -> None:
    engine = an_engine(limits=off(max_tool_calls=1))
    run = engine.start("x")
    engine.tell(run, calling(ToolCall("look", {}, "c1"), ToolCall("poll", {}, "c2")))
    engine.tell(run, Returned("c1", 1, Verdict(result_class=ResultClass.FATAL, reason="no such tenant")))
    answer = answer_of(run)
    assert answer is not None
    assert (answer.status, answer.stop_reason, answer.stop.raise_to) == (Status.FAILED, StopReason.FATAL, {})
    with pytest.raises(CannotResume, match="ended by 'fatal'"):
        engine.resume(run, {"max_tool_calls": 9})


def test_that_nobody_objects_makes_no_answer_of_nothing() -> None:
    """Seed 002 could say ok with an empty answer."""
    engine = an_engine(limits=off(), verifies=True)
    run = engine.start("x")
    engine.tell(run, calling(ToolCall("look", {}, "c1")))
    engine.tell(run, Returned("c1", "nothing new", Verdict(result_class=ResultClass.NO_PROGRESS)))
    engine.tell(run, Judged(Judgement(decision="done")))
    answer = answer_of(run)
    assert answer is not None
    assert (answer.status, answer.stop_reason) == (Status.FAILED, StopReason.NO_PROGRESS)
    assert run.path == ["normalize", "gather", "verify", "final"]


def test_a_no_that_nothing_follows_is_an_unverified_end() -> None:
    rows = [row for row in AGENT.rows if (row.source, row.outcome, row.target) != ("verify", "insufficient", "gather")]
    engine = an_engine(table=attrs.evolve(AGENT, rows=rows), limits=off(min_evidence=1))
    run = engine.start("x")
    engine.tell(run, Decided(Decision(text="it is so")))
    answer = answer_of(run)
    assert answer is not None
    assert (answer.status, answer.stop_reason, answer.stop.raise_to if answer.stop else None) == (Status.PARTIAL, StopReason.UNVERIFIED, {})


def test_what_was_found_is_an_answer_where_the_verifier_says_so() -> None:
    engine = an_engine(limits=off())
    run = engine.start("x")
    engine.tell(run, calling(ToolCall("look", {}, "c1"), ToolCall("poll", {}, "c2")))
    engine.tell(run, Returned("c1", "a fact"))
    engine.tell(run, Returned("c2", "nothing new", Verdict(result_class=ResultClass.NO_PROGRESS)))
    # Nobody has said anything of it yet.
    assert isinstance(engine.ask(run), Compose)
    engine.tell(run, ComposeFailed("OSError", "down"))
    answer = answer_of(run)
    assert answer is not None
    assert (answer.status, answer.stop_reason) == (Status.OK, StopReason.ANSWERED)
    assert "a fact" in answer.text


def test_a_call_that_the_verifier_wanted_and_no_limit_allowed_has_its_result() -> None:
    engine = an_engine(limits=off(max_verify_rounds=1), verifies=True)
    run = engine.start("x")
    engine.tell(run, Decided(Decision(text="it is so")))
    engine.tell(run, Judged(Judgement(decision="need_more", reason="look", next_action=ToolCall("look", {}))))
    assert [(call.ok, call.error) for call in run.calls] == [(False, "skipped:unverified")]
    assert not run.open_calls


def test_calls_of_a_machine_that_never_makes_them_have_their_results() -> None:
    heedless = Table(
        name="heedless",
        initial="pick",
        states=(State("pick", work="decide"), State("end", work="answer")),
        rows=[Row("pick", outcome, "end") for outcome in ("decided", "proposed", "failed", "stopped")],
    )
    engine = an_engine(table=heedless, limits=off())
    run = engine.start("x")
    engine.tell(run, calling(ToolCall("look", {}, "c1")))
    assert [(call.ok, call.error) for call in run.calls] == [(False, "skipped:final")]


# ---- the parts


def a_run(limits: Limits | None = None, **counters: Any) -> Run:
    run = Run(id="r", request="x", state="gather", limits=limits or off())
    for name, value in counters.items():
        setattr(run, name, value)
    return run


@pytest.mark.parametrize("used", [0.0, 5.0, math.inf, math.nan], ids=str)
def test_money_that_cannot_be_raised_is_switched_off(used: Any) -> None:
    run = a_run(off(max_cost=1.0), cost=used)
    closed = closed_among(run, [guards.cost_left])
    assert bool(closed) is not (used == 0.0)
    for guard in closed:
        raised = joint_raise(run, [guard])["max_cost"]
        assert raised is None or run.limits.raised({"max_cost": raised}).max_cost > used


def test_a_counter_of_ones_own_that_is_no_number_has_no_figure_to_explain_it_by() -> None:
    sketches_left = Spending("sketches_left", "sketches", "max_attempts", StopReason.MAX_ATTEMPTS)
    for sketches, closed in ((2, []), (3, ["sketches_left"]), ("many", []), (None, [])):
        run = a_run(off(max_attempts=3), fields={"sketches": sketches})
        assert [guard.guard for guard in closed_among(run, [sketches_left])] == closed


def test_a_fatal_result_stays_the_reason_where_a_guarded_row_would_go_on() -> None:
    table = Table(
        name="stubborn",
        initial="gather",
        states=(State("gather", work="gather", tools=None), State("end", work="answer")),
        rows=(
            Row("gather", "stopped", "gather", (guards.turns_left, guards.steps_left)),
            *(Row("gather", outcome, "end") for outcome in ("called", "failed", "no_progress", "proposed", "stopped")),
        ),
    )
    engine = an_engine(table=table, limits=off(max_turns=1))
    run = engine.start("x")
    engine.tell(run, calling(ToolCall("look", {}, "c1")))
    engine.tell(run, Returned("c1", 1, Verdict(result_class=ResultClass.FATAL)))
    assert run.stop is not None
    assert [closed.guard for closed in run.closed] == ["turns_left"]
    assert (run.stop.reason, run.stop.closed, run.stop.raise_to, run.closing) == (StopReason.FATAL, (), {}, False)


@pytest.mark.parametrize(("one", "other"), [(3, 5), (5, 3), (None, 5), (5, None)])
def test_two_guards_of_one_limit_take_the_higher_raise(one: Any, other: Any) -> None:
    def closed(opens_at: Any) -> ClosedGuard:
        at = math.inf if opens_at is None else opens_at
        return ClosedGuard(guard="g", limit="max_attempts", allowed=2, used=2, opens_at=at, reason=StopReason.MAX_ATTEMPTS)

    raised = joint_raise(a_run(), [closed(one), closed(other)])
    assert raised == {"max_attempts": None if None in (one, other) else 5}


def test_a_guard_that_closed_two_rows_is_named_once() -> None:
    table = Table(
        name="twice",
        initial="gather",
        states=(State("gather", work="gather", tools=None), State("check", work="verify"), State("end", work="answer")),
        rows=(
            Row("gather", "called", "check", (guards.steps_left, guards.turns_left)),
            Row("gather", "called", "gather", (guards.steps_left, guards.tokens_left)),
            *(Row("gather", outcome, "end") for outcome in ("called", "failed", "no_progress", "proposed", "stopped")),
            *(Row("check", outcome, "end") for outcome in ("passed", "insufficient", "stopped")),
        ),
    )
    engine = an_engine(table=table, limits=off(max_steps=1), composes=False)
    run = play(engine, engine.start("x"), Answers())
    assert run.stop is not None
    assert [closed.guard for closed in run.stop.closed] == ["steps_left"]
    assert [row[2] for row in run.trace if row[0] == "guard_closed"] == ["steps_left"]


def test_an_opaque_guard_within_others_keeps_a_row_shut() -> None:
    never = AllOf("never", (guards.turns_left, Opaque("no", lambda run: False)))
    broken = Opaque("broken", lambda run: bool(run.fields["sketches"] < 1))
    table = Table(
        name="shut",
        initial="gather",
        states=(State("gather", work="gather"), State("end", work="answer")),
        rows=(
            Row("gather", "called", "gather", (never,)),
            Row("gather", "called", "gather", (broken, guards.steps_left)),
            Row("gather", "called", "end"),
        ),
    )
    run = a_run(off(max_turns=0, max_tokens=0), came_by=("gather", "called"), turns=1)
    run.closed = closed_among(run, [guards.tokens_left])
    stop = explain(run, table)
    assert stop.raise_to == {"max_tokens": 1}


def test_a_stop_with_nothing_closed_leaves_nothing_closed() -> None:
    run = a_run()
    assert still_closed(run, Stop(reason=StopReason.CANCELLED), off()) == []


def test_a_limit_that_keeps_several_guards_closed_is_named_once() -> None:
    hand = Hand(limits=off(max_same_call=1)).decides(*(ToolCall("look", {"q": q}) for q in (1, 2))).plays()
    hand.decides(*(ToolCall("look", {"q": q}) for q in (1, 2)))
    assert hand.run.stop is not None
    twice = attrs.evolve(hand.run.stop, closed=hand.run.stop.closed * 2)

    assert still_closed(hand.run, twice, hand.run.limits) == ["max_same_call"]


@pytest.mark.parametrize("limit", [field.name for field in attrs.fields(Limits)])
def test_a_run_without_calls_has_no_call_that_consumed_anything(limit: str) -> None:
    assert consumers(a_run(), limit) == ()


def test_the_empty_results_of_one_intent_are_not_laid_at_the_door_of_another() -> None:
    engine = an_engine(limits=off(max_empty_results=2), composes=False)
    run = engine.start("x")
    price, stock = (ToolCall("look", {"q": intent}, intent, intent) for intent in ("price", "stock"))
    for wanted in ((price, stock), (ToolCall("look", {"q": "again"}, "again", "stock"),)):
        engine.tell(run, calling(*wanted))
        for call in wanted:
            engine.tell(run, Returned(call.id, []))
    assert run.stop is not None
    assert [(guard.limit, guard.calls) for guard in run.stop.closed] == [("max_empty_results", ("stock", "again"))]


def test_time_is_used_by_every_call_whose_body_ran_and_by_no_other() -> None:
    hand = Hand(by_hand.a_tool(), by_hand.a_tool("free"), limits=off(deadline_s=9.0, reserve_s=0.0)).asks("look", "ghost").begins("c1")
    hand.gives("c1", now=4.0).asks("free").tell(Reused("c3", "known")).asks("look").begins("c4").gives("c4", now=9.0)
    assert hand.run.stop is not None
    assert [(guard.limit, guard.calls) for guard in hand.run.stop.closed] == [("deadline_s", ("c1", "c4"))]


def test_turns_without_a_call_are_none_of_those_without_a_new_fact() -> None:
    hand = Hand(limits=off(max_stale_turns=2)).asks("look").plays(lambda call: "hit").asks("look").plays(lambda call: "hit").decides()
    hand.asks("look").plays(lambda call: "hit")
    assert hand.run.stop is not None
    assert [(guard.limit, guard.calls) for guard in hand.run.stop.closed] == [("max_stale_turns", ("c2", "c3"))]


def test_the_text_of_a_stop_says_it_all_in_one_line() -> None:
    _, run = CASES["same call"].stopped(2)
    assert str(run.stop) == (
        "duplicate_call; call_is_new: max_same_call is 2, 3 used, used by call-1, call-2, call-3; goes on with max_same_call=4"
    )


# ---- laws


@settings(max_examples=120)
@given(worlds, limits, policies, ways)
def test_a_stop_that_names_a_raise_goes_on_with_it_and_with_nothing_less(
    world: World, bounds: Limits, policy: Policy, way: Mapping[str, Any]
) -> None:
    engine = an_engine(policy=policy, verifies=True, repairs=REPAIRS, **way)
    run = play(engine, engine.start("x", limits=attrs.evolve(bounds, max_attempts=3)), world.answers())
    assert run.stop is not None
    raises = run.stop.raise_to
    assert set(raises) == {closed.limit for closed in run.stop.closed}
    if not raises:
        return
    before = copy.deepcopy(run)
    # Where the policy `first` stopped a run that has no figure for it, there is none to leave out.
    for limit in [name for name in raises if getattr(run.limits, name) is not None]:
        with pytest.raises(CannotResume):
            engine.resume(run, {name: value for name, value in raises.items() if name != limit})
        assert alike(run, before)
    engine.resume(run, raises)
    effect = engine.ask(run)
    assert isinstance(effect, Decide | CallTools | Judge | Compose | Wait | Check | Pause)
    play(engine, run, world.answers())


@settings(max_examples=60)
@given(worlds, limits, policies)
def test_the_reason_of_a_guard_is_that_of_the_first_one_closed(world: World, bounds: Limits, policy: Policy) -> None:
    engine = an_engine(policy=policy, repairs=REPAIRS)
    run = play(engine, engine.start("x", limits=attrs.evolve(bounds, max_attempts=3)), world.answers())
    assert run.stop is not None
    assert len({closed.guard for closed in run.stop.closed}) == len(run.stop.closed)
    if run.stop.closed:
        assert run.stop.reason is run.stop.closed[0].reason
    for closed in run.stop.closed:
        assert set(closed.calls) <= {call.id for call in run.calls}


def test_a_tool_whose_retries_wait_too_long_ends_the_run_now() -> None:
    box = Toolset([a_tool("fetch", retry=Retry(attempts=5, backoff_s=(2.0, 100.0)))])
    engine = an_engine(box=box, limits=off(max_wait_s=50.0, max_attempts=9))
    run = engine.start("x")
    engine.tell(run, calling(ToolCall("fetch", {}, "c1")))
    engine.tell(run, Started(("c1",)))
    engine.tell(run, Raised("c1", "TimeoutError"))
    assert isinstance(engine.ask(run), Wait)
    engine.tell(run, *_waited(engine, run))
    engine.tell(run, Raised("c1", "TimeoutError"))
    assert run.stop is not None
    assert (run.stop.reason, run.stop.raise_to) == (StopReason.MAX_WAIT, {"max_wait_s": 102.0})


def _waited(engine: Engine, run: Run) -> tuple[Any, float]:
    return Answers().to(engine.ask(run))  # type: ignore[arg-type, return-value]


def test_a_figure_too_large_to_be_written_out_does_not_keep_a_stop_from_being_told() -> None:
    huge = 10**5000
    guard = ClosedGuard(guard="tokens_left", limit="max_tokens", allowed=1, used=huge, opens_at=huge, reason=StopReason.MAX_TOKENS)
    told = str(Stop(reason=StopReason.MAX_TOKENS, closed=(guard,), raise_to={"max_tokens": huge}))
    assert told.startswith("max_tokens; tokens_left: max_tokens is 1, ")


# ---- time, told and raised with what is kept of it for the answer


@pytest.mark.parametrize("reserve", [None, 0.0, 2.0, 3.0])
@pytest.mark.parametrize("seconds", [0.5, 4.0, 8.0, 8.5, 9.0, 12.0, 100.0])
def test_a_deadline_that_is_named_for_some_seconds_of_work_leaves_them(reserve: float | None, seconds: float) -> None:
    limits = off(deadline_s=1.0, reserve_s=reserve)
    until = attrs.evolve(limits, deadline_s=limits.deadline_until(seconds)).work_until_s

    assert until == pytest.approx(seconds)


@pytest.mark.parametrize("wait", [2.0, 6.5, 7.9, 8.0, 8.1, 30.0])
def test_the_deadline_that_a_wait_asks_for_lets_the_wait_end_in_time(wait: float) -> None:
    retry = Retry(attempts=2, backoff_s=[wait])
    box = Toolset([a_tool("look", effect="pure", retry=retry)])
    limits = off(max_turns=3, deadline_s=1.5, reserve_s=2.0)
    engine = an_engine(box=box, limits=limits, policy=Policy(reserve_answer=False))
    run = engine.start("x")
    engine.tell(run, calling(ToolCall("look")), now=0.0)
    (call,) = engine.ask(run).calls  # type: ignore[union-attr]
    engine.tell(run, Returned(call.id, 1, Verdict(result_class="RETRYABLE")), now=0.0)
    assert run.stop is not None
    assert run.stop.reason is StopReason.DEADLINE
    engine.resume(run, run.stop.raise_to)
    until = engine.ask(run).until_s  # type: ignore[union-attr]
    engine.tell(run, Waited())

    assert until == wait
    assert run.stop is None


def test_a_deadline_is_told_with_what_is_kept_of_it_for_the_answer() -> None:
    run = a_run(Limits(deadline_s=25.0, reserve_s=2.0), spent_s=23.5)
    closed = closed_guard(run, time_left)

    assert (closed.allowed, closed.reserve) == (23.0, 2.0)
    assert str(closed) == "time_left: deadline_s is 25 (2 of it for the answer), 23.5 used"
    assert closed.opens_at == 23.5 * 1.5 + 2.0


def test_a_cancelled_run_that_has_all_it_needs_goes_on() -> None:
    engine = an_engine(limits=off(max_turns=2))
    run = engine.start("x")
    engine.tell(run, Cancelled())
    engine.resume(run)

    assert isinstance(engine.ask(run), Decide)


DONE = Decision(text="done", finish="stop")
OVERCOME: dict[str, tuple[list[Any], list[str]]] = {
    "an unusable reply": ([Decision(), DONE], []),
    "an unusable reply before a call": ([Decision(), (ToolCall("look", {"q": "x"}),), DONE], []),
    "a verifier's no": ([DONE, DONE], ["not yet"]),
    "a verifier's no before a question": ([DONE, Decision(question="Which one?")], ["not yet"]),
    "too little evidence": ([DONE, (ToolCall("look", {"q": "x"}),), DONE], []),
}


@pytest.mark.parametrize("what", OVERCOME)
def test_a_run_that_ended_well_says_nothing_of_what_was_overcome(what: str) -> None:
    turns, noes = OVERCOME[what]
    said, verdicts = iter(turns), iter([Judgement(decision="need_more", reason=no) for no in noes])
    answer = Agent(
        {"look": {"fn": lambda q: q, "args": {"q": {"type": "str"}}}},
        lambda ask: next(said),
        verify=lambda ask: next(verdicts, True),
        limits=Limits(min_evidence=1 if what == "too little evidence" else 0),
    ).run("find")

    assert answer.ok
    assert str(answer.stop) == answer.stop_reason


def test_a_closed_window_is_told_by_its_own_figure_and_the_calls_that_are_in_it() -> None:
    asked = iter("abcba")
    answer = Agent(
        {"look": {"fn": lambda q: q, "args": {"q": {"type": "str"}}}},
        lambda ask: ToolCall("look", {"q": next(asked, "a")}, id=f"c{ask.run.turns}"),
        limits=Limits(max_same_call=None, dedup_window=2),
    ).run("find")

    assert answer.stop is not None
    (closed,) = answer.stop.closed
    assert (closed.limit, closed.allowed, closed.calls) == ("dedup_window", 2, ("c1", "c3"))
    assert str(closed) == "call_is_new: dedup_window is 2, 2 equal calls in it, used by c1, c3"
    assert answer.stop.raise_to == {"dedup_window": None}


def test_of_a_call_that_the_window_has_passed_by_only_what_is_in_it_is_told() -> None:
    asked = iter("abaa")
    answer = Agent(
        {"look": {"fn": lambda q: q, "args": {"q": {"type": "str"}}}},
        lambda ask: ToolCall("look", {"q": next(asked)}, id=f"c{ask.run.turns}"),
        limits=Limits(max_same_call=None, dedup_window=1),
    ).run("find")

    assert answer.stop is not None
    assert answer.stop.closed[0].calls == ("c2", "c3")


# ---- what nobody knows of


def paying(**parts: Any) -> Hand:
    """A run whose first turn pays; the body has begun."""
    limits = off(**parts.pop("extra", {}))
    hand = Hand(by_hand.a_tool("pay", effect="at_most_once"), by_hand.a_tool(), limits=limits, **parts)
    return hand.decides(ToolCall("pay", {"eur": 5}, "p")).begins("p")


ASKED = "Did pay (p) take effect? It was begun, and what became of it is not known."


@pytest.mark.parametrize("lost", [False, True], ids=["the body raised", "the driver was lost"])
def test_a_run_that_does_not_know_what_became_of_a_call_asks_whatever_its_model_says(lost: bool) -> None:
    hand = paying()
    hand = hand.tell(Lost("p")) if lost else hand.fails("p", "TimeoutError")
    hand.decides(text="paid", finish="stop")
    answer = answer_of(hand.run)
    assert answer is not None
    assert (answer.stop_reason, answer.status) == (StopReason.QUESTION, Status.OK)
    assert answer.next_questions == (ASKED,)
    assert answer.text == f"paid\n\n{ASKED}"


def test_a_run_without_a_word_of_its_model_has_the_question_as_its_text() -> None:
    hand = paying().fails("p", "TimeoutError").decides(ToolCall("look", {}, "c2")).gives("c2", "nothing new", says("NO_PROGRESS"))
    answer = answer_of(hand.run)
    assert answer is not None
    assert (answer.stop_reason, answer.text) == (StopReason.QUESTION, ASKED)


def test_what_a_stop_has_asked_is_not_asked_again_by_the_run_that_was_taken_up() -> None:
    hand = paying(extra={"max_turns": 1}).fails("p", "TimeoutError")
    stopped = answer_of(hand.run)
    assert stopped is not None
    assert stopped.stop_reason is StopReason.MAX_TURNS
    assert stopped.next_questions[0] == ASKED
    assert ASKED in stopped.text
    hand.engine.resume(hand.run, stopped.stop.raise_to if stopped.stop else None)
    hand.decides(text="as you like", finish="stop")
    answer = answer_of(hand.run)
    assert answer is not None
    assert (answer.stop_reason, answer.text, answer.next_questions) == (StopReason.ANSWERED, "as you like", (ASKED,))


@pytest.mark.parametrize("times", [1, 2])
def test_what_a_cancelled_run_has_asked_may_have_reached_nobody_and_is_asked_again(times: int) -> None:
    hand = paying()
    for _ in range(times):
        hand.tell(Cancelled())
        stopped = answer_of(hand.run)
        assert stopped is not None
        assert stopped.next_questions == (ASKED, "May the run go on?")
        hand.engine.resume(hand.run)
    hand.decides(text="all paid", finish="stop")
    answer = answer_of(hand.run)
    assert answer is not None
    assert (answer.stop_reason, answer.text) == (StopReason.QUESTION, f"all paid\n\n{ASKED}")


def test_a_pause_has_asked_nothing_so_the_run_that_people_let_go_on_asks_at_its_end() -> None:
    tools = by_hand.a_tool("pay", effect="at_most_once"), by_hand.a_tool(approval=True)
    hand = Hand(*tools, limits=off()).decides(ToolCall("pay", {"eur": 5}, "p")).begins("p").fails("p", "TimeoutError")
    hand.decides(ToolCall("look", {}, "c2")).tell(Paused()).tell(Approved("c2")).plays().decides(text="paid", finish="stop")
    answer = answer_of(hand.run)
    assert answer is not None
    assert (answer.stop_reason, answer.text, answer.next_questions) == (StopReason.QUESTION, f"paid\n\n{ASKED}", (ASKED,))


def test_a_call_that_was_never_begun_is_no_question() -> None:
    hand = Hand(by_hand.a_tool("pay", effect="at_most_once"), limits=off()).decides(ToolCall("pay", {"eur": 5}, "p"))
    hand.fails("p", "TimeoutError", ran=False).decides(text="not paid", finish="stop")
    assert hand.reason is StopReason.ANSWERED


def test_a_stop_by_a_failure_that_nobody_is_asked_about_says_which() -> None:
    def fails(n: int) -> int:
        if n:
            raise OSError("disk full")
        return n

    entry = {"fn": fails, "args": {"n": {"type": "int"}}, "effect": "pure"}
    calls = [ToolCall("look", {"n": 1}), ToolCall("look", {"n": 0})]
    answer = Agent({"look": entry}, lambda ask: calls, policy=Policy(redecide=False)).run("x")
    assert answer.stop_reason == "fatal"
    assert answer.text.endswith("Stopped: fatal (look failed: raised:OSError (disk full)).")
    assert answer.stop is not None
    assert str(answer.stop) == "fatal; look failed: raised:OSError (disk full)"


@pytest.mark.parametrize(
    ("turns", "told"),
    [
        (
            ["a"] * 3,
            "unverified (verify_rounds_left: max_verify_rounds is 3, 3 used; 0 independent pieces of evidence, 1 needed by min_evidence).",
        ),
        (["a", 1, 2, 3], "max_turns (turns_left: max_turns is 4, 4 used, used by call-1, call-2, call-3)."),
    ],
)
def test_what_was_missing_is_told_of_a_run_that_ended_for_it_and_not_of_one_that_went_on(turns: list[Any], told: str) -> None:
    entry = {"fn": lambda n: f"seen {n}", "args": {"n": {"type": "int"}}, "effect": "pure"}
    script = [turn if isinstance(turn, str) else ToolCall("look", {"n": turn}) for turn in turns]
    answer = Agent({"look": entry}, lambda ask: script[ask.run.turns], limits=Limits(max_turns=4)).run("x")
    assert answer.text.endswith(f"Stopped: {told}")
    assert ("pieces of evidence" in str(answer.stop)) is ("pieces of evidence" in told)


@pytest.mark.parametrize(("limits", "why"), [
    ({"max_same_tool_calls": 1}, "look: refused:budget:max_same_tool_calls (look may be called 1 times in a run)"), ({}, ""),
])  # fmt: skip
def test_a_run_that_got_no_further_says_what_its_calls_were_refused_for(limits: dict[str, Any], why: str) -> None:
    hand = Hand(limits=off(max_stale_turns=2, **limits)).decides(ToolCall("look", {}, "c1")).begins().gives("c1", "hit")
    for n in (2, 3):
        hand.decides(ToolCall("look", {}, f"c{n}"))
        if not limits:
            hand.begins(f"c{n}").gives(f"c{n}", "hit")

    assert hand.run.stop is not None
    assert (hand.run.stop.reason, hand.run.stop.detail) == (StopReason.NO_PROGRESS, why)
