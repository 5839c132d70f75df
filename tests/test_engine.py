"""The engine: asking changes nothing, telling takes what was asked for and nothing else, and only the table moves a run."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import (
    REPAIRS,
    Answers,
    World,
    a_setup,
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

from fsm_agent.core import events
from fsm_agent.core.agent_table import AGENT
from fsm_agent.core.answers import answer_of
from fsm_agent.core.effects import CallTools, Check, Compose, Decide, Effect, Judge, Pause, Wait
from fsm_agent.core.engine import Engine
from fsm_agent.core.errors import CannotResume, TableError, WrongEvent
from fsm_agent.core.events import (
    Approved,
    Cancelled,
    Checked,
    CircuitOpen,
    Composed,
    ComposeFailed,
    Decided,
    DecisionFailed,
    Denied,
    Event,
    Gone,
    Judged,
    JudgeFailed,
    Lost,
    Paused,
    Performed,
    PerformFailed,
    ProgramCalled,
    Raised,
    Resumed,
    Returned,
    Reused,
    Skipped,
    Started,
    Stopped,
    Superseded,
    Waited,
)
from fsm_agent.core.guards import Opaque, Spending
from fsm_agent.core.limits import Limits
from fsm_agent.core.replay import replay
from fsm_agent.core.run import Run
from fsm_agent.core.saving import save
from fsm_agent.core.setup import Setup
from fsm_agent.core.table import Kind, Row, State, Table
from fsm_agent.core.tools import Retry, Toolset
from fsm_agent.core.values import Decision, Judgement, Policy, ResultClass, Status, StopReason, ToolCall, Verdict
from fsm_agent.core.work import WORK

SLOW_DOWN = Verdict(result_class=ResultClass.RATE_LIMITED, retry_after_s=4.0)


def calls(*names: str, **args: Any) -> Decided:
    return Decided(Decision(calls=tuple(ToolCall(name, dict(args), f"c{n}") for n, name in enumerate(names, 1))))


# ---- every place where a run can stand, and every event


def _engine() -> Engine:
    held = [a_tool("pay", approval=True), a_tool("paste", where="client"), a_tool("maybe", approval=lambda **args: True)]
    box = Toolset([a_tool("look"), a_tool("once"), a_tool("fetch", retry=Retry(attempts=3, backoff_s=(2.0,))), *held])
    return an_engine(box=box, verifies=True, limits=off(max_turns=9, max_tool_calls=2))


def _at(*told: Event) -> Callable[[Engine], Run]:
    def make(engine: Engine) -> Run:
        run = engine.start("what is it?")
        for event in told:
            engine.tell(run, copy.deepcopy(event), run.spent_s)
        return run

    return make


PLACES: dict[str, tuple[Callable[[Engine], Run], type[Effect] | None, str]] = {
    "deciding": (_at(), Decide, "Decided DecisionFailed Stopped Cancelled"),
    "waiting for the next turn": (
        _at(calls("look"), Returned("c1", 1, SLOW_DOWN)),
        Wait,
        "Waited Stopped Cancelled",
    ),
    "calling": (
        _at(calls("look")),
        CallTools,
        "Started Returned Raised Reused CircuitOpen Gone Lost Skipped Stopped Cancelled",
    ),
    "calling, begun": (
        _at(calls("look"), Started(("c1",))),
        CallTools,
        "Started Returned Raised Reused CircuitOpen Gone Lost Skipped Stopped Cancelled",
    ),
    "waiting for the next try": (
        _at(calls("fetch"), Started(("c1",)), Returned("c1", 1, SLOW_DOWN)),
        Wait,
        "Started Returned Raised Reused CircuitOpen Gone Lost Skipped Waited Stopped Cancelled",
    ),
    "checking": (_at(calls("maybe")), Check, "Checked Skipped Reused CircuitOpen Superseded Stopped Cancelled"),
    "waiting for a person": (_at(calls("pay")), Pause, "Paused Approved Denied Superseded Stopped Cancelled"),
    "paused for a person": (_at(calls("pay", "look"), Paused()), Pause, "Paused Approved Denied Superseded Stopped Cancelled"),
    "waiting for a client": (_at(calls("paste")), Pause, "Paused Returned Raised Lost Superseded Stopped Cancelled"),
    "judging": (
        _at(calls("look"), Returned("c1", ["hit"]), Decided(Decision(text="it"))),
        Judge,
        "Judged JudgeFailed Stopped Cancelled",
    ),
    "composing": (
        _at(calls("look", "once", "look"), Returned("c1", ["hit"]), Returned("c2", ["hit"])),
        Compose,
        "Composed ComposeFailed Stopped Cancelled",
    ),
    "over": (_at(Decided(Decision(question="which?"))), None, ""),
    "stopped": (_at(Cancelled()), None, ""),
}
EVENTS: dict[str, Any] = {
    "Decided": Decided(Decision(text="it")),
    "DecisionFailed": DecisionFailed("OSError"),
    "Started": Started(("c1",)),
    "Returned": Returned("c1", ["found"]),
    "Raised": Raised("c1", "OSError"),
    "Reused": Reused("c1", ["found"]),
    "CircuitOpen": CircuitOpen("c1", 3.0),
    "Gone": Gone("c1"),
    "Lost": Lost("c1"),
    "Skipped": Skipped("c1", "hook"),
    "Checked": Checked("c1"),
    "Paused": Paused(),
    "Approved": Approved("c1"),
    "Denied": Denied("c1", "no"),
    "Superseded": Superseded("never mind"),
    "ProgramCalled": ProgramCalled("c1", "look", {}, b"here"),
    "Performed": Performed(1),
    "PerformFailed": PerformFailed("OSError"),
    "Judged": Judged(Judgement(decision="done")),
    "JudgeFailed": JudgeFailed("OSError"),
    "Composed": Composed("so far"),
    "ComposeFailed": ComposeFailed("OSError"),
    "Waited": Waited(),
    "Stopped": Stopped("strategy"),
    "Cancelled": Cancelled(),
    "Resumed": Resumed(Limits(), Limits()),
    "nothing": None,
    "a text": "Decided",
    "a class": Decided,
    "stopped for no known reason": Stopped("weather"),
    "stopped for no text": Stopped([]),  # type: ignore[arg-type]
}


def test_every_kind_of_event_is_in_the_table() -> None:
    assert {kind.__name__ for kind in events.Event.__args__} <= set(EVENTS)


@pytest.mark.parametrize("place", PLACES)
def test_a_run_asks_for_what_its_place_needs(place: str) -> None:
    make, asked, _ = PLACES[place]
    engine = _engine()
    effect = engine.ask(make(engine))
    assert type(effect) is asked if asked else effect is None


@pytest.mark.parametrize(("place", "event"), list(itertools.product(PLACES, EVENTS)))
def test_only_what_was_asked_for_is_taken_and_the_rest_leaves_the_run_as_it_was(place: str, event: str) -> None:
    make, _, taken = PLACES[place]
    engine = _engine()
    run = make(engine)
    before = copy.deepcopy(run)
    if event in taken.split():
        engine.tell(run, copy.deepcopy(EVENTS[event]), run.spent_s + 1)
        assert len(run.journal) == len(before.journal) + 1
        assert run.spent_s == before.spent_s + 1
    else:
        with pytest.raises(WrongEvent, match=r"told|no open call|is over|waits"):
            engine.tell(run, copy.deepcopy(EVENTS[event]), run.spent_s + 1)
        assert alike(run, before)


@pytest.mark.parametrize("place", [place for place in PLACES if place not in ("over", "stopped")])
@pytest.mark.parametrize(
    "event", ["Started", "Returned", "Raised", "Reused", "CircuitOpen", "Gone", "Lost", "Skipped", "Checked", "Approved", "Denied"]
)
def test_an_answer_for_a_call_that_is_not_open_is_refused(place: str, event: str) -> None:
    engine = _engine()
    run = PLACES[place][0](engine)
    wrong = copy.deepcopy(EVENTS[event])
    setattr(wrong, *(("call_ids", ("c7",)) if event == "Started" else ("call_id", "c7")))
    before = copy.deepcopy(run)
    with pytest.raises(WrongEvent):
        engine.tell(run, wrong)
    assert alike(run, before)


def test_a_second_result_for_a_call_is_refused() -> None:
    engine = _engine()
    run = _at(calls("look", "once"), Started(("c1", "c2")), Returned("c1", 1))(engine)
    before = copy.deepcopy(run)
    for again in (Returned("c1", 2), Started(("c1",)), Started(("c2", "c1"))):
        with pytest.raises(WrongEvent, match="no open call 'c1'; it waits for 'c2'"):
            engine.tell(run, again)
        assert alike(run, before)


def test_a_run_that_is_over_says_why_and_what_would_help() -> None:
    engine = _engine()
    run = PLACES["over"][0](engine)
    with pytest.raises(WrongEvent, match="is over \\(question\\) and was told Waited; resume it first"):
        engine.tell(run, Waited())


# ---- asking


@settings(max_examples=60)
@given(worlds, limits, policies, ways)
def test_asking_changes_nothing_and_asks_for_the_same_again(
    world: World, bounds: Limits, policy: Policy, way: Mapping[str, Any]
) -> None:
    engine = an_engine(policy=policy, verifies=True, repairs=REPAIRS, **way)
    run, answers = engine.start("x", limits=attrs.evolve(bounds, max_attempts=3)), world.answers()
    while True:
        before = copy.deepcopy(run)
        effects = [engine.ask(run) for _ in range(3)]
        assert alike(run, before)
        one, *others = effects
        assert all(type(other) is type(one) for other in others)
        if isinstance(one, CallTools | Check | Pause):
            assert all([call.id for call in other.calls] == [call.id for call in one.calls] for other in others)
            assert all(call is mine for call in one.calls for mine in run.open_calls if mine.id == call.id)
        elif isinstance(one, Wait):
            assert {other.until_s for other in others} == {one.until_s}
            assert one.seconds == one.until_s - run.spent_s > 0
        elif isinstance(one, Decide):
            assert {other.tools for other in others} == {one.tools}
        if not step(engine, run, answers):
            break


# ---- time


@pytest.mark.parametrize("now", [None, 0.0, -5.0, 6.9, 7.0, math.nan, -math.inf])
def test_time_never_falls(now: float | None) -> None:
    engine = _engine()
    run = engine.start("x")
    engine.tell(run, calls("look"), 7.0)
    engine.tell(run, Returned("c1", 1), now)
    assert run.spent_s == 7.0
    assert [at for at, _ in run.journal] == [7.0, 7.0]


@given(st.lists(st.none() | st.floats(-10, 10), min_size=1, max_size=20))
def test_the_times_of_a_run_are_in_order(times: list[float | None]) -> None:
    engine = an_engine(limits=off(max_turns=100))
    run = engine.start("x")
    highest = 0.0
    for now in times:
        engine.tell(run, Decided(Decision(calls=(ToolCall("look", {}),))), now)
        highest = max(highest, now or 0.0)
        assert run.spent_s == highest
        engine.tell(run, Returned(run.open_calls[0].id, 1))
    told = [row[1] for row in run.trace]
    assert told == sorted(told)


def test_a_wait_that_is_over_has_taken_the_time_asked_for_where_nobody_has_a_clock() -> None:
    engine = _engine()
    run = PLACES["waiting for the next try"][0](engine)
    engine.tell(run, Waited())
    assert (run.spent_s, run.waited_s) == (4.0, 4.0)
    assert isinstance(engine.ask(run), CallTools)


def test_a_wait_that_was_cut_short_is_asked_for_again() -> None:
    engine = _engine()
    run = PLACES["waiting for the next try"][0](engine)
    engine.tell(run, Waited(), 1.5)
    effect = engine.ask(run)
    assert isinstance(effect, Wait)
    assert (effect.until_s, effect.seconds, run.waited_s) == (4.0, 2.5, 1.5)


def test_what_waits_for_a_turn_is_counted_as_waited() -> None:
    engine = _engine()
    run = PLACES["waiting for the next turn"][0](engine)
    engine.tell(run, Waited(), 4.0)
    assert (run.spent_s, run.waited_s) == (4.0, 4.0)
    assert isinstance(engine.ask(run), Decide)
    assert ("waiting", 0.0, "run", 4.0) in run.trace


# ---- steps and path


@settings(max_examples=60)
@given(worlds, limits)
def test_steps_count_every_state_entered_and_the_path_collapses_repeats(world: World, bounds: Limits) -> None:
    engine = an_engine(verifies=True, repairs=REPAIRS)
    run = play(engine, engine.start("x", limits=attrs.evolve(bounds, max_attempts=3)), world.answers())
    entered = [subject for kind, _, subject, _ in run.trace if kind == "state_entered"]
    assert run.steps == len(entered)
    assert run.path == [state for state, _ in itertools.groupby(entered)]
    assert (run.path[0], run.path[-1], run.state) == ("normalize", "final", "final")


def test_a_self_loop_is_a_step_and_no_new_place_of_the_path() -> None:
    engine = _engine()
    run = engine.start("x")
    assert (run.steps, run.path) == (2, ["normalize", "gather"])
    _tell_all(engine, run, calls("look"), Returned("c1", 1))
    assert (run.steps, run.path) == (3, ["normalize", "gather"])


def _tell_all(engine: Engine, run: Run, *told: Event) -> Run:
    for event in told:
        engine.tell(run, event)
    return run


# ---- starting


def test_a_run_starts_with_what_it_is_given_and_what_the_engine_has() -> None:
    engine = an_engine(limits=off(max_turns=3), policy=Policy(redecide=False))
    run = engine.start("  x ", run_id="r7", scope="tenant", seed=5, fields={"drafts": 1})
    assert (run.id, run.given, run.request, run.scope, run.seed) == ("r7", "  x ", "x", "tenant", 5)
    assert (run.fields, run.first_fields, run.redecide) == ({"drafts": 1}, {"drafts": 1}, False)
    assert (run.limits, run.machine, run.state) == (off(max_turns=3), AGENT.hash(), "gather")
    assert run.trace[0] == ("run_started", 0.0, "r7", None)


def test_a_run_may_have_limits_of_its_own() -> None:
    engine = an_engine(limits=off(max_turns=9))
    run = play(engine, engine.start("x", limits=off(max_turns=2)), Answers())
    assert (run.turns, run.stop.reason if run.stop else None) == (2, StopReason.MAX_TURNS)
    assert play(engine, engine.start("x"), Answers()).turns == 9


def test_limits_that_leave_a_run_unbounded_are_refused_before_it_begins() -> None:
    with pytest.raises(TableError, match="no limit in force bounds the cycle"):
        an_engine(limits=off()).start("x", limits=Limits.off())


@pytest.mark.parametrize("request_", [None, "", "  \r\n ", [], {}, ()])
def test_an_empty_request_ends_at_once_with_a_reason(request_: Any) -> None:
    engine = _engine()
    run = engine.start(request_)
    answer = answer_of(run)
    assert engine.ask(run) is None
    assert answer is not None
    assert (answer.status, answer.stop_reason) == (Status.FAILED, StopReason.INVALID_REQUEST)
    assert run.path == ["normalize", "final"]


def test_the_engines_own_limits_may_be_named() -> None:
    engine = _engine()
    assert engine.start("x", limits=engine.setup.limits).limits is engine.setup.limits


def test_runs_of_one_engine_share_nothing() -> None:
    engine = _engine()
    one, other = engine.start("x"), engine.start("x")
    fresh = copy.deepcopy(other)
    play(engine, one, Answers())
    assert alike(other, fresh)


def test_what_a_replay_starts_from_is_not_what_the_work_changes() -> None:
    given_fields = {"notes": ["first"]}
    run = _engine().start("x", fields=given_fields)
    run.fields["notes"].append("second")
    assert run.first_fields == {"notes": ["first"]}


def test_calls_may_be_begun_without_a_round_through_tell() -> None:
    engine = _engine()
    told, begun = (_at(calls("look", "once"))(engine) for _ in range(2))
    engine.tell(told, Started(("c1", "c2")), 3.0)
    engine.begin(begun, begun.open_calls, 3.0)
    assert alike(told, begun)
    engine.begin(begun, [])
    assert begun.spent_s == 3.0


# ---- stopping and cancelling in the middle


@pytest.mark.parametrize("place", [name for name, (_, asked, _) in PLACES.items() if asked])
@pytest.mark.parametrize("event", [Stopped("strategy", "enough"), Cancelled("deploy")], ids=["stopped", "cancelled"])
def test_a_run_may_be_stopped_anywhere_and_every_call_has_its_result(place: str, event: Stopped | Cancelled) -> None:
    engine = _engine()
    run = PLACES[place][0](engine)
    before = run.stop
    engine.tell(run, event, run.spent_s + 1)
    assert engine.ask(run) is None
    assert run.stop is not None
    if before is None:
        wanted = StopReason.STRATEGY if isinstance(event, Stopped) else StopReason.CANCELLED
        assert (run.stop.reason, run.stop.detail, run.stop.closed) == (wanted, event.detail, ())
    else:
        assert (run.stop.reason, run.closing) == (StopReason.MAX_TOOL_CALLS, False)
    assert not run.open_calls
    assert all(call.ok is not None for call in run.calls)
    answer = answer_of(run)
    assert answer is not None
    assert answer.text


@pytest.mark.parametrize("effect", ["pure", "idempotent", "at_most_once", "undeclared"])
@pytest.mark.parametrize("begun", [False, True])
def test_what_an_interrupted_call_came_to_depends_on_what_it_does(effect: str, begun: bool) -> None:
    engine = an_engine(box=Toolset([a_tool("look", effect=effect)]), limits=off(max_turns=9))
    run = _at(calls("look"), *([Started(("c1",))] if begun else []), Cancelled())(engine)
    once = effect == "at_most_once" and begun
    assert [call.error for call in run.calls] == ["unknown_outcome" if once else "cancelled"]


def test_what_was_settled_before_an_interruption_keeps_its_result() -> None:
    engine = _engine()
    run = _at(calls("look", "once"), Started(("c1", "c2")), Returned("c1", 1), Cancelled())(engine)
    assert [(call.id, call.ok, call.value, call.error) for call in run.calls] == [
        ("c1", True, 1, ""),
        ("c2", False, None, "cancelled"),
    ]


@pytest.mark.parametrize("last", [Returned("c1", 1), Cancelled()], ids=["settled", "interrupted"])
def test_no_secret_stays_in_a_run_whose_call_is_settled(last: Event) -> None:
    engine = an_engine(box=Toolset([a_tool("look", secret=["q"])]), limits=off(max_turns=9))
    run = _at(calls("look", q="hunter2"), Started(("c1",)))(engine)
    assert "hunter2" in save(run)
    engine.tell(run, last)
    assert "hunter2" not in save(run)


def test_a_run_that_was_cancelled_goes_on_with_the_call_that_was_cut_off() -> None:
    engine = _engine()
    run = _at(calls("look"), Started(("c1",)), Cancelled())(engine)
    turns = run.turns
    engine.resume(run)
    effect = engine.ask(run)
    assert isinstance(effect, CallTools)
    assert [(call.id, call.started, call.error) for call in effect.calls] == [("c1", False, "")]
    assert (run.resumed, run.turns, run.stop, run.state) == (1, turns, None, "gather")
    assert run.trace[-2][0] == "resumed"


def test_of_a_run_that_was_cancelled_the_calls_of_the_last_turn_alone_are_begun_again() -> None:
    engine = _engine()
    later = Decided(Decision(calls=(ToolCall("look", {"q": "more"}, "c2"),)))
    run = _at(calls("look"), Started(("c1",)), Returned("c1", 1), later, Started(("c2",)), Cancelled())(engine)
    engine.resume(run)
    effect = engine.ask(run)
    assert isinstance(effect, CallTools)
    assert ([call.id for call in effect.calls], [call.id for call in run.calls]) == (["c2"], ["c1"])


@pytest.mark.parametrize("place", [name for name, (_, asked, _) in PLACES.items() if asked and name != "composing"])
def test_a_run_that_was_cancelled_anywhere_goes_on(place: str) -> None:
    engine = _engine()
    run = PLACES[place][0](engine)
    engine.tell(run, Cancelled())
    engine.resume(run)
    assert engine.ask(run) is not None
    assert play(engine, run, Answers()).stop is not None


CALLING = Table(
    name="calling",
    initial="pick",
    states=(State("pick", work="decide"), State("fetch", work="call", tools=None), State("end", work="answer")),
    rows=(
        Row("pick", "decided", "fetch"),
        *(Row("pick", outcome, "end") for outcome in ("proposed", "failed", "stopped")),
        *(Row("fetch", outcome, "end") for outcome in ("called", "failed", "no_progress", "stopped")),
    ),
)


@pytest.mark.parametrize("effect", ["pure", "idempotent", "at_most_once", "undeclared"])
@pytest.mark.parametrize("begun", [False, True])
def test_a_call_that_was_cut_off_is_begun_again_where_that_is_safe(effect: str, begun: bool) -> None:
    engine = an_engine(table=CALLING, box=Toolset([a_tool("look", effect=effect)]), limits=off())
    run = _at(calls("look"), *([Started(("c1",))] if begun else []), Cancelled())(engine)
    assert run.state == "end"
    engine.resume(run)
    if begun and effect in ("at_most_once", "undeclared"):
        assert engine.ask(run) is None
        assert [call.ok for call in run.calls] == [False]
        return
    effects = engine.ask(run)
    assert isinstance(effects, CallTools)
    assert [(call.id, call.started, call.admitted) for call in effects.calls] == [("c1", False, True)]
    _tell_all(engine, run, Started(("c1",)), Returned("c1", ["hit"]))
    assert [(call.id, call.ok) for call in run.calls] == [("c1", True)]
    assert run.tool_calls == 1


def test_a_call_that_only_a_limit_kept_back_is_made_after_the_raise() -> None:
    engine = an_engine(table=CALLING, box=Toolset([a_tool("look"), a_tool("once")]), limits=off(max_tool_calls=1))
    run = _at(calls("look", "once"), Started(("c1",)), Returned("c1", 1), Composed("closing"))(engine)
    assert [(call.id, call.error) for call in run.calls] == [("c1", ""), ("c2", "skipped:max_tool_calls")]
    engine.resume(run, {"max_tool_calls": 2})
    effect = engine.ask(run)
    assert isinstance(effect, CallTools)
    assert [call.id for call in effect.calls] == ["c2"]
    _tell_all(engine, run, Started(("c2",)), Returned("c2", 2))
    assert [(call.id, call.ok, call.value) for call in run.calls] == [("c1", True, 1), ("c2", True, 2)]
    assert (run.tool_calls, run.body_runs) == (2, 2)


ONCE = Table(
    name="once",
    initial="gather",
    states=(State("gather", work="gather", tools=None), State("end", work="answer")),
    rows=tuple(Row("gather", outcome, "end") for outcome in ("called", "failed", "no_progress", "proposed", "stopped")),
)


def test_no_raise_begins_the_calls_of_a_reply_that_was_cut_off() -> None:
    policy = Policy(on_finish={"length": "continue"})
    engine = an_engine(table=ONCE, box=Toolset([a_tool("look")]), limits=off(max_invalid_decisions=0), policy=policy)
    run = _at(Decided(Decision(calls=(ToolCall("look", {}, "c1"),), finish="length")))(engine)
    assert run.stop is not None
    assert (run.stop.reason, run.stop.raise_to) == (StopReason.TRUNCATED, {"max_invalid_decisions": 1})
    engine.resume(run, run.stop.raise_to)
    assert isinstance(engine.ask(run), Decide)
    assert [(call.id, call.error) for call in run.calls] == [("c1", "skipped:truncated")]


def test_a_machine_without_a_row_for_it_stops_where_it_stands() -> None:
    asking = Table(
        name="asking",
        initial="ask",
        states=(State("ask", work="sketch"), State("end", work="answer")),
        rows=(Row("ask", "good", "end"), Row("ask", "bad", "end")),
        kinds=SKETCHING,
    )
    engine = Engine(Setup(table=asking, box=Toolset(), work={**WORK, "sketch": Sketching()}, limits=off()))
    run = engine.start("x")
    engine.tell(run, Cancelled("deploy"))
    assert (run.state, run.stop.reason if run.stop else None, engine.ask(run)) == ("ask", StopReason.CANCELLED, None)
    engine.resume(run)
    assert isinstance(engine.ask(run), Sketch)


# ---- resuming


GOING_ON = [name for name, (_, asked, _) in PLACES.items() if asked]


@pytest.mark.parametrize("place", ["deciding", "composing"])
def test_a_run_that_has_not_begun_or_is_about_to_end_cannot_be_resumed(place: str) -> None:
    engine = _engine()
    run = PLACES[place][0](engine)
    before = copy.deepcopy(run)
    with pytest.raises(CannotResume, match="has not stopped; drive it on"):
        engine.resume(run, {"max_turns": 20})
    assert alike(run, before)


@pytest.mark.parametrize("place", [place for place in GOING_ON if place not in ("deciding", "composing")])
def test_a_run_that_stands_still_is_given_other_limits_and_waits_for_the_same(place: str) -> None:
    engine = _engine()
    run = PLACES[place][0](engine)
    before, asked = copy.deepcopy(run), engine.ask(run)
    engine.resume(run, {"max_turns": 20})
    assert run.limits == attrs.evolve(before.limits, max_turns=20)
    assert type(engine.ask(run)) is type(asked)
    assert run.trace == before.trace
    assert replay(engine, run) == run
    with pytest.raises(CannotResume, match=r"cannot go on: Limits.max_turns would fall from 20 to 3"):
        engine.resume(run, {"max_turns": 3})
    assert run.limits.max_turns == 20


ENDS: dict[str, tuple[Event, ...]] = {
    "answered": (calls("look"), Returned("c1", ["hit"]), Decided(Decision(text="it")), Judged(Judgement(decision="done"))),
    "question": (Decided(Decision(question="which?")),),
    "fatal": (calls("look"), Returned("c1", 1, Verdict(result_class=ResultClass.FATAL))),
    "strategy": (Stopped("strategy"),),
    "finish_reason": (Stopped("finish_reason"),),
    "denied": (Stopped("denied"),),
    "truncated": (Decided(Decision(text="it", finish="length")),),
    "content_filter": (Decided(Decision(text="it", finish="content_filter")),),
}


@pytest.mark.parametrize("reason", ENDS)
def test_a_run_that_ended_of_itself_cannot_be_resumed(reason: str) -> None:
    engine = _engine()
    run = _at(*ENDS[reason])(engine)
    assert run.stop is not None
    assert run.stop.reason == reason
    before = copy.deepcopy(run)
    with pytest.raises(CannotResume, match=f"ended by '{reason}'; no raise of a limit lets it go on"):
        engine.resume(run, {"max_turns": 99})
    assert alike(run, before)


def test_a_run_whose_decider_failed_may_be_resumed_as_it_is() -> None:
    engine = _engine()
    run = _at(DecisionFailed("OSError", "down"))(engine)
    assert run.stop is not None
    assert (run.stop.reason, run.stop.raise_to) == (StopReason.MODEL_ERROR, {})
    engine.resume(run)
    assert isinstance(engine.ask(run), Decide)


@pytest.mark.parametrize(
    ("raises", "why"),
    [
        ({"max_turns": 2}, "would fall from 3 to 2"),
        ({"max_turns": 3}, "stays closed by max_turns; it goes on with max_turns=4"),
        ({}, "stays closed by max_turns; it goes on with max_turns=4"),
        ({"max_turnips": 4}, "no field 'max_turnips'"),
        ({"max_turns": "many"}, "give a whole number"),
        ({"max_turns": True}, "give a whole number"),
        ({"max_turns": 4, "deadline_s": 3}, "would fall from None to 3"),
        ({"max_turns": None, "max_steps": None}, "no limit in force bounds the cycle"),
    ],
)
def test_a_raise_that_does_not_do_is_refused_and_the_run_is_as_it_was(raises: dict[str, Any], why: str) -> None:
    engine = an_engine(limits=off(max_turns=3), composes=False)
    run = play(engine, engine.start("x"), Answers())
    before = copy.deepcopy(run)
    with pytest.raises(CannotResume, match=why):
        engine.resume(run, raises)
    assert alike(run, before)


# ---- a machine of the user's own: states, rows, guards, kinds of work, effects, events, fields


@attrs.define
class Sketch:
    """An effect of the machine's own."""

    run: Run
    number: int


@attrs.define
class Sketched:
    """The answer to it."""

    text: str


class Sketching:
    """Asks for one sketch and counts it in a field of the machine's own."""

    def enter(self, setup: Setup, run: Run) -> str | None:
        run.fields["drafts"] = run.fields.get("drafts", 0) + 1
        return None

    def ask(self, setup: Setup, run: Run) -> Any:
        return Sketch(run, run.fields["drafts"])

    def tell(self, setup: Setup, run: Run, event: Any) -> str | None:
        if not isinstance(event, Sketched):
            raise WrongEvent(f"run {run.id!r} waits for a sketch")
        run.fields["text"] = event.text
        return "good" if len(event.text) > 3 else "bad"


SKETCHING = {"sketch": Kind(name="sketch", outcomes={"good": ("drafts",), "bad": ("drafts",)})}
sketches_left = Spending("sketches_left", "drafts", "max_attempts", StopReason.MAX_ATTEMPTS)
patient = Opaque("patient", lambda run: bool(run.fields.get("patient", True)))
SKETCHER = Table(
    name="sketcher",
    initial="sketch",
    states=(State("sketch", work="sketch"), State("done", work="answer"), State("given up", work="answer")),
    rows=(
        Row("sketch", "good", "done"),
        Row("sketch", "bad", "sketch", (patient, sketches_left)),
        Row("sketch", "bad", "given up"),
    ),
    kinds=SKETCHING,
)


def _sketcher(**named: Any) -> Engine:
    bounds = Limits.off(max_attempts=3, **named)
    return Engine(Setup(table=SKETCHER, box=Toolset(), work={**WORK, "sketch": Sketching()}, limits=bounds))


def test_a_machine_of_ones_own_runs_on_its_own_work_effects_events_and_fields() -> None:
    engine = _sketcher()
    run = engine.start("a house", fields={"drafts": 0})
    for text in ("no", "so", "house"):
        effect: Any = engine.ask(run)
        assert (type(effect), effect.number) == (Sketch, run.fields["drafts"])
        engine.tell(run, Sketched(text))  # type: ignore[arg-type]
    answer = answer_of(run)
    assert answer is not None
    assert (answer.status, run.state, run.fields) == (Status.OK, "done", {"drafts": 3, "text": "house"})
    assert (run.steps, run.path) == (4, ["sketch", "done"])


def test_a_guard_of_ones_own_over_a_field_of_ones_own_stops_a_run_and_is_raised() -> None:
    engine = _sketcher()
    run = engine.start("a house")
    for _ in range(3):
        engine.tell(run, Sketched("no"))  # type: ignore[arg-type]
    assert run.stop is not None
    assert [(g.guard, g.limit, g.allowed, g.used) for g in run.stop.closed] == [("sketches_left", "max_attempts", 3, 3)]
    assert (run.state, run.stop.reason, run.stop.raise_to) == ("given up", StopReason.MAX_ATTEMPTS, {"max_attempts": 4})
    engine.resume(run, {"max_attempts": 4})
    assert isinstance(engine.ask(run), Sketch)


def test_an_opaque_guard_that_is_closed_leaves_nothing_to_raise() -> None:
    engine = _sketcher()
    run = engine.start("a house", fields={"patient": False})
    engine.tell(run, Sketched("no"))  # type: ignore[arg-type]
    assert run.stop is not None
    assert (run.state, run.stop.closed, run.stop.raise_to) == ("given up", (), {})


def test_work_that_refuses_an_event_leaves_the_run_as_it_was() -> None:
    engine = _sketcher()
    run = engine.start("a house")
    before = copy.deepcopy(run)
    with pytest.raises(WrongEvent, match="waits for a sketch"):
        engine.tell(run, Returned("c1", 1), 9.0)
    assert alike(run, before)


def test_a_kind_of_work_may_replace_a_built_in_one() -> None:
    class Shouting:
        def enter(self, setup: Setup, run: Run) -> str | None:
            run.request = str(run.request).upper()
            return "ready"

        def ask(self, setup: Setup, run: Run) -> Effect:
            raise AssertionError("it asks for nothing")

        def tell(self, setup: Setup, run: Run, event: Event) -> str | None:
            raise AssertionError("it is told nothing")

    engine = Engine(a_setup(work={**WORK, "normalize": Shouting()}))
    assert engine.start("x").request == "X"


def test_the_decider_is_offered_what_the_state_allows_and_has_budget_left() -> None:
    box = Toolset([a_tool("look"), a_tool("once"), a_tool("never")])
    engine = an_engine(
        table=AGENT.allowing({"gather": ["look", "once"]}), box=box, limits=off(max_turns=9, max_same_tool_calls={"once": 1})
    )
    run = engine.start("x")
    first = engine.ask(run)
    assert isinstance(first, Decide)
    assert first.tools == ("look", "once")
    _tell_all(engine, run, calls("once"), Returned("c1", 1))
    later = engine.ask(run)
    assert isinstance(later, Decide)
    assert later.tools == ("look",)


def test_a_decider_that_wants_no_names_gets_none() -> None:
    engine = an_engine(offers=False)
    effect = engine.ask(engine.start("x"))
    assert isinstance(effect, Decide)
    assert effect.tools == ()


def test_a_search_is_played_to_its_end() -> None:
    """The helpers of these tests themselves: a run is answered turn by turn, each with something new."""
    engine = an_engine(limits=off(max_turns=3), composes=False)
    run = play(engine, engine.start("x"), Answers(decide=search))
    assert [call.value for call in run.calls] == [["hit 1"], ["hit 2"], ["hit 3"]]
