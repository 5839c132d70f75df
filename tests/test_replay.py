"""Replay: the journal rebuilds the run, whole or up to any event, and asks nobody."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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
    step,
    ways,
    worlds,
)

from fsm_agent.core.engine import Engine
from fsm_agent.core.errors import RunError
from fsm_agent.core.events import Cancelled, Decided, DecisionFailed, Resumed, Returned, Started, Stopped
from fsm_agent.core.limits import Limits
from fsm_agent.core.replay import replay
from fsm_agent.core.run import Run
from fsm_agent.core.saving import load, save
from fsm_agent.core.tools import Toolset
from fsm_agent.core.values import Decision, Policy, ResultClass, ToolCall, Verdict


def _bounded(bounds: Limits) -> Limits:
    return attrs.evolve(bounds, max_attempts=3)


def _same(one: Run, other: Run) -> bool:
    """Equal, but for what is only said for people: the details of faults, in brackets, are not measured again."""
    return _without_details(one) == _without_details(other) and [row[:3] for row in one.trace] == [row[:3] for row in other.trace]


def _holds_a_secret(run: Run) -> bool:
    """Whether a secret is in the run that is a seal in the journal of its end, or sealed what was equal to it.

    Its call was open then; or a repair took it along to another tool, whose tries with the same arguments are sealed as well, which
    nobody can tell who knows the seal alone.
    """
    taken_along = any(tool != "pin" and "redacted" in repr(args) for tool, args in run.tried)
    return taken_along or any(call.secret or call.tool == "pin" for call in run.open_calls)


def _without_details(run: Run) -> Run:
    stop = attrs.evolve(run.stop, detail=run.stop.detail.split(" (")[0]) if run.stop is not None else None
    return attrs.evolve(run, note=run.note.split(" (")[0], stop=stop, flat_trace=[])


def _every_step(engine: Engine, run: Run, answers: Answers) -> list[Run]:
    """The run after each event of its journal."""
    stages = [copy.deepcopy(run)]
    while step(engine, run, answers):
        stages.append(copy.deepcopy(run))
    return stages


@settings(max_examples=60)
@given(worlds, limits, policies, ways, st.booleans())
def test_a_replay_equals_the_run_at_its_end_and_at_every_step(
    world: World, bounds: Limits, policy: Policy, way: Mapping[str, Any], verifies: bool
) -> None:
    engine = an_engine(policy=policy, verifies=verifies, repairs=REPAIRS, **way)
    run = engine.start("  x ", limits=_bounded(bounds), run_id="r7", scope="tenant", seed=3, fields={"a": [1]})
    stages = _every_step(engine, run, world.answers())
    assert _holds_a_secret(run) or _same(replay(engine, run), run)
    for number, stage in enumerate(stages):
        assert len(stage.journal) == number
        assert _holds_a_secret(stage) or _same(replay(engine, run, number), stage)


@settings(max_examples=40)
@given(worlds, limits, policies, ways)
def test_a_replay_follows_a_run_through_its_resumption(
    world: World, bounds: Limits, policy: Policy, way: Mapping[str, Any]
) -> None:
    engine = an_engine(policy=policy, repairs=REPAIRS, **way)
    run = play(engine, engine.start("x", limits=_bounded(bounds)), world.answers())
    stages: list[Run] = []
    for _ in range(3):
        if run.stop is None or not run.stop.raise_to:
            break
        engine.resume(run, run.stop.raise_to)
        stages += _every_step(engine, run, world.answers())
    for stage in [*stages, run]:
        assert _holds_a_secret(stage) or _same(replay(engine, run, len(stage.journal)), stage)


@settings(max_examples=40)
@given(worlds, limits, ways, st.integers(0, 12), st.booleans())
def test_a_replay_follows_a_run_that_was_cancelled_and_went_on(
    world: World, bounds: Limits, way: Mapping[str, Any], after: int, loaded: bool
) -> None:
    engine = an_engine(repairs=REPAIRS, **way)
    run, answers = engine.start("x", limits=_bounded(bounds)), world.answers()
    for _ in range(after):
        if not step(engine, run, answers):
            return
    if engine.ask(run) is None:
        return
    closing = run.closing
    engine.tell(run, Cancelled("deploy"))
    assert _same(replay(engine, run), run)
    if closing:
        return
    if loaded:
        run = load(save(run), engine.setup)
    engine.resume(run)
    play(engine, run, answers)
    assert _holds_a_secret(run) or _same(replay(engine, run), run)


def test_a_replay_asks_neither_decider_nor_tool() -> None:
    """The bodies of these tools raise when they run, and a replay is given nobody to ask."""
    engine = an_engine(limits=off(max_turns=3))
    run = play(engine, engine.start("x"), Answers())
    again = replay(engine, run)
    assert _same(again, run)
    assert again is not run


def test_a_replay_leaves_the_other_run_as_it_is() -> None:
    engine = an_engine(limits=off(max_turns=3, max_tool_calls=2))
    run = play(engine, engine.start("x"), Answers())
    before = copy.deepcopy(run)
    again = replay(engine, run, 3)
    play(engine, again, Answers())
    assert alike(run, before)


def test_a_run_that_was_rebuilt_goes_on() -> None:
    engine = an_engine(limits=off(max_turns=3))
    run = play(engine, engine.start("x"), Answers())
    for steps in range(len(run.journal)):
        assert _same(play(engine, replay(engine, run, steps), Answers()), run)


def test_the_limits_that_a_run_began_with_are_those_its_replay_begins_with() -> None:
    engine = an_engine(limits=off(max_turns=9))
    run = play(engine, engine.start("x", limits=off(max_turns=2)), Answers())
    for turns in (3, 4):
        engine.resume(run, {"max_turns": turns})
        play(engine, run, Answers())
    first = replay(engine, run, 0)
    assert (first.limits.max_turns, first.journal) == (2, [])
    assert [event.limits.max_turns for _, event in run.journal if isinstance(event, Resumed)] == [3, 4]
    assert replay(engine, run).limits.max_turns == 4


def test_the_fields_that_a_run_began_with_are_those_its_replay_begins_with() -> None:
    engine = an_engine()
    run = engine.start("x", fields={"notes": ["first"]})
    run.fields["notes"].append("second")
    assert replay(engine, run).fields == {"notes": ["first"]}


def test_times_are_replayed_as_they_were() -> None:
    engine = an_engine(limits=off(max_turns=4, deadline_s=100.0))
    run = play(engine, engine.start("x"), Answers(seconds=lambda run: 0.7))
    again = replay(engine, run)
    assert (again.spent_s, [at for at, _ in again.journal]) == (run.spent_s, [at for at, _ in run.journal])
    assert again.trace == run.trace


@pytest.mark.parametrize("value", [{1, 2}, (1, 2), object(), float("nan"), 10**5000, b"\xff", {"a": object()}, "\ud835"], ids=range(8))
def test_a_value_that_was_told_is_replayed_in_the_form_that_the_run_keeps(value: Any) -> None:
    engine = an_engine()
    run = engine.start("x")
    engine.tell(run, Decided(Decision(calls=(ToolCall("look", {}, "c1"),))))
    engine.tell(run, Started(("c1",)))
    engine.tell(run, Returned("c1", value))
    again = replay(engine, run)
    assert alike(again.calls[0].value, run.calls[0].value)
    assert save(again) == save(run)


def test_a_result_that_broke_its_contract_is_replayed_as_broken() -> None:
    engine = an_engine()
    run = engine.start("x")
    engine.tell(run, Decided(Decision(calls=(ToolCall("count", {}, "c1"),))))
    engine.tell(run, Returned("c1", {"rows": [1, 2, 3]}))
    assert [call.error for call in run.calls] == ["result:too_big"]
    assert _same(replay(engine, run), run)


def test_a_fatal_result_that_broke_its_contract_is_replayed_to_an_equal_run() -> None:
    engine = an_engine()
    run = engine.start("x")
    engine.tell(run, Decided(Decision(calls=(ToolCall("count", {}, "c1"),))))
    engine.tell(run, Returned("c1", "no rows", Verdict(result_class=ResultClass.FATAL)))
    assert replay(engine, run) == run


def test_a_machine_that_takes_the_events_otherwise_says_so() -> None:
    engine = an_engine(limits=off(max_turns=3))
    run = play(engine, engine.start("x"), Answers())
    other = an_engine(box=Toolset([a_tool("other")]), limits=off(max_turns=3))
    with pytest.raises(RunError):
        replay(other, run)


@pytest.mark.parametrize("last", [Stopped("strategy", "enough"), Cancelled(), DecisionFailed("OSError")])
def test_however_a_run_ended_its_replay_ends_so(last: Any) -> None:
    engine = an_engine()
    run = engine.start("x")
    engine.tell(run, last, 3.0)
    again = replay(engine, run)
    assert _same(again, run)
    assert engine.ask(again) is None
