"""The end of a run: every open call gets its result, a closing turn is asked for where one is due, and then it is over."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from by_hand import Hand
from strategies import a_setup, a_tool, off

from fsm_agent.core.ending import abandon, finish, stop_here
from fsm_agent.core.events import Cancelled
from fsm_agent.core.guards import time_left, tokens_left, turns_left
from fsm_agent.core.limits import Limits
from fsm_agent.core.run import Call, ClosedGuard, Run
from fsm_agent.core.setup import Setup
from fsm_agent.core.stops import closed_guard
from fsm_agent.core.tools import Toolset
from fsm_agent.core.values import Decision, EffectClass, Policy, StopReason

USABLE = ClosedGuard(
    guard="decisions_usable", limit="max_invalid_decisions", allowed=2, used=3, opens_at=3, reason=StopReason.MODEL_EMPTY
)


def a_run(setup: Setup, limits: Limits | None = None, **fields: Any) -> Run:
    run = Run(id="r", request="x", state="final", limits=limits or off(), machine=setup.hash, came_by=("gather", "stopped"))
    for name, value in fields.items():
        setattr(run, name, value)
    return run


def a_call(number: int, **fields: Any) -> Call:
    return Call(**{"id": f"c{number}", "tool": "look", "args": {}, "turn": 1, **fields})


@pytest.mark.parametrize("composes", [True, False])
@pytest.mark.parametrize("reserves", [True, False])
@pytest.mark.parametrize("turns", [2, 3, 4, None])
@pytest.mark.parametrize("deadline", [5.0, 4.9, None])
@pytest.mark.parametrize("closed", [True, False])
def test_a_closing_turn_needs_a_closed_guard_a_closer_a_turn_and_time(
    composes: bool, reserves: bool, turns: int | None, deadline: float | None, closed: bool
) -> None:
    setup = a_setup(composes=composes, policy=Policy(reserve_answer=reserves))
    run = a_run(setup, off(max_turns=turns, deadline_s=deadline, max_tokens=7), turns=3, spent_s=4.9, tokens=7)
    if closed:
        run.closed = [closed_guard(run, tokens_left)]
    stop_here(setup, run)
    due = closed and composes and reserves and turns in (4, None) and deadline in (5.0, None)
    assert (run.closing, run.done) == (due, not due)
    assert run.stop is not None
    assert run.stop.reason is (StopReason.MAX_TOKENS if closed else StopReason.FATAL)
    assert [kind for kind, *_ in run.trace] == ([] if due else ["answer"])


@pytest.mark.parametrize("composes", [True, False])
@pytest.mark.parametrize("reserves", [True, False])
@pytest.mark.parametrize("turns", [3, 4])
@pytest.mark.parametrize("outcome", ["passed", "called"])
@pytest.mark.parametrize("draft", [None, Decision(text="x")])
def test_an_answer_that_nobody_has_written_yet_is_asked_for(
    composes: bool, reserves: bool, turns: int, outcome: str, draft: Decision | None
) -> None:
    setup = a_setup(composes=composes, policy=Policy(reserve_answer=reserves))
    found = a_call(1, ok=True, value="x")
    run = a_run(setup, off(max_turns=turns), turns=3, came_by=("verify", outcome), draft=draft, calls=[found])
    stop_here(setup, run)
    assert run.closing == (composes and reserves and turns == 4 and outcome == "passed" and draft is None)
    assert run.stop is not None
    assert (run.stop.reason, run.stop.closed) == (StopReason.ANSWERED, ())


@pytest.mark.parametrize("guards", [[USABLE], [USABLE, "tokens"], ["tokens", USABLE]])
def test_who_gave_nothing_usable_is_not_asked_for_the_answer(guards: list[Any]) -> None:
    setup = a_setup()
    run = a_run(setup, off(max_tokens=7), tokens=7)
    run.closed = [closed_guard(run, tokens_left) if guard == "tokens" else guard for guard in guards]
    stop_here(setup, run)
    assert run.done


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({}, "skipped:final"),
        ({"stopping": StopReason.STRATEGY}, "skipped:strategy"),
        ({"closed": [USABLE]}, "skipped:model_empty"),
        ({"closed": [USABLE], "stopping": StopReason.STRATEGY}, "skipped:model_empty"),
    ],
)
def test_a_call_that_was_not_begun_is_skipped_with_the_reason(fields: dict[str, Any], word: str) -> None:
    setup = a_setup()
    run = a_run(setup, **fields, open_calls=[a_call(1), a_call(2, ok=True, value=["hit"]), a_call(3)])
    stop_here(setup, run)
    assert run.open_calls == []
    assert [(call.id, call.ok, call.error) for call in run.calls] == [("c1", False, word), ("c2", True, ""), ("c3", False, word)]
    assert run.errors == [word, word]


def test_results_are_counted_before_the_stop_is_explained() -> None:
    setup = a_setup()
    failed = a_call(1, ok=False, error="raised:OSError")
    run = a_run(setup, off(max_turns=1), open_calls=[failed], turns=1)
    run.closed = [closed_guard(run, turns_left)]
    stop_here(setup, run)
    assert (run.tool_errors, run.calls) == (1, [failed])


@pytest.mark.parametrize("reason", [StopReason.DEADLINE, "deadline"])
def test_a_run_that_is_over_says_so_in_its_trace(reason: str) -> None:
    run = a_run(a_setup(), closing=True, spent_s=2.0)
    finish(run, reason)
    assert run.closing is False
    assert run.trace == [("answer", 2.0, "deadline", None)]
    assert type(run.trace[0][2]) is str


@pytest.mark.parametrize("effect", list(EffectClass))
@pytest.mark.parametrize("started", [True, False])
@pytest.mark.parametrize("known", [True, False])
def test_nothing_is_known_of_an_interrupted_body_that_must_run_only_once(
    effect: EffectClass, started: bool, known: bool
) -> None:
    box = Toolset([a_tool("look", effect=effect)] if known else [])
    run = a_run(a_setup(), spent_s=3.0)
    call = a_call(1, started=started)
    abandon(run, box, call)
    word = "unknown_outcome" if known and started and effect is EffectClass.AT_MOST_ONCE else "cancelled"
    assert (call.ok, call.error, run.errors) == (False, word, [word])
    assert call.detail
    assert run.trace == [("call_finished", 3.0, "c1", word)]


def test_time_that_is_up_is_no_time_for_a_closing_turn() -> None:
    setup = a_setup()
    limits = Limits.off(max_steps=9, deadline_s=20.0, reserve_s=2.0)
    for spent, due in ((18.0, True), (19.9, True), (20.0, False), (99.0, False)):
        run = a_run(setup, attrs.evolve(limits), spent_s=spent)
        run.closed = [closed_guard(run, time_left)]
        stop_here(setup, run)
        assert run.closing is due


@pytest.mark.parametrize("begun", [True, False])
def test_a_body_that_was_begun_and_abandoned_is_a_run_of_a_body(begun: bool) -> None:
    hand = Hand(limits=off()).asks("look", "look")
    if begun:
        hand.begins("c1")
    hand.tell(Cancelled())

    assert [call.body_runs for call in hand.run.calls] == [int(begun), 0]
    assert hand.run.body_runs == int(begun)
