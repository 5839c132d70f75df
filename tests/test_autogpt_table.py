"""The machine of seed 002, row by row, and how its runs walk it."""

from __future__ import annotations

import itertools

import attrs
import pytest
from by_hand import Hand, a_tool, off, says
from mutants import mutants, rows_written, states_written

from fsm_agent.agent import Agent
from fsm_agent.core.agent_table import AGENT
from fsm_agent.core.answers import answer_of
from fsm_agent.core.autogpt_table import AUTOGPT
from fsm_agent.core.checks import check_bounds, check_table
from fsm_agent.core.effects import CallTools, Compose, Decide, Judge
from fsm_agent.core.errors import TableError
from fsm_agent.core.events import Composed, ComposeFailed, DecisionFailed, Stopped
from fsm_agent.core.guards import spendings, within_limits
from fsm_agent.core.limits import Limits
from fsm_agent.core.table import KINDS, Table
from fsm_agent.core.values import Status, StopReason, ToolCall
from fsm_agent.host.clock import ScriptedClock
from fsm_agent.testing import ScriptedDecider

STATES: list[tuple[str, str, frozenset[str] | None]] = [
    ("plan", "plan", frozenset()),
    ("fetch", "gather", None),
    ("synth", "synthesize", frozenset()),
    ("verify", "verify", frozenset()),
    ("done", "answer", frozenset()),
]
ROWS: list[tuple[str, str, str, tuple[str, ...], tuple[str, ...]]] = [
    ("plan", "rejected", "done", (), ()),
    ("plan", "planned", "fetch", (), ()),
    ("plan", "called", "plan", ("within_limits",), ()),
    ("plan", "called", "done", (), ()),
    ("plan", "failed", "plan", ("may_redecide", "within_limits"), ("turns",)),
    ("plan", "failed", "done", (), ()),
    ("plan", "stopped", "done", (), ()),
    ("fetch", "called", "synth", ("enough_evidence",), ()),
    ("fetch", "called", "fetch", ("within_limits",), ()),
    ("fetch", "called", "done", (), ()),
    ("fetch", "failed", "fetch", ("may_redecide", "within_limits"), ("turns",)),
    ("fetch", "failed", "done", (), ()),
    ("fetch", "no_progress", "verify", (), ()),
    ("fetch", "proposed", "verify", (), ()),
    ("fetch", "stopped", "done", (), ()),
    ("synth", "written", "verify", (), ()),
    ("synth", "stopped", "done", (), ()),
    ("verify", "passed", "done", (), ()),
    ("verify", "insufficient", "fetch", ("verify_rounds_left", "gather_rounds_left", "within_limits"), ("gather_rounds",)),
    ("verify", "insufficient", "done", (), ()),
    ("verify", "stopped", "done", (), ()),
]


def accepted(table: Table, limits: Limits) -> bool:
    """Whether the machine ends under these limits, whatever happens."""
    try:
        check_bounds(table, limits)
    except TableError:
        return False
    return True


def test_the_machine_is_the_one_written_down() -> None:
    assert states_written(AUTOGPT) == STATES
    assert rows_written(AUTOGPT) == ROWS
    assert (AUTOGPT.name, AUTOGPT.initial, AUTOGPT.kinds) == ("autogpt", "plan", KINDS)


@pytest.mark.parametrize("limits", [Limits(), Limits.autogpt(), Limits.off(max_steps=3)])
def test_the_machine_passes_its_own_checks(limits: Limits) -> None:
    check_table(AUTOGPT)
    check_bounds(AUTOGPT, limits)


@pytest.mark.parametrize("name", [field.name for field in attrs.fields(Limits)])
def test_of_all_limits_only_steps_bound_the_machine_alone(name: str) -> None:
    assert accepted(AUTOGPT, Limits.off(**{name: 3})) is (name == "max_steps")


@pytest.mark.parametrize("figures", list(itertools.product([None, 3], repeat=3)))
def test_without_steps_turns_bound_it_and_rounds_of_verifying_or_gathering(figures: tuple[int | None, ...]) -> None:
    """A verifier's next action is written about without a turn of the decider, so turns alone do not."""
    turns, attempts, rounds = figures
    bounds = Limits.off(max_turns=turns, max_attempts=attempts, max_verify_rounds=rounds)
    assert accepted(AUTOGPT, bounds) is bool(turns and (attempts or rounds))


def test_every_row_that_comes_back_to_deciding_needs_the_limits() -> None:
    back = [row for row in AUTOGPT.rows if row.target in ("plan", "fetch") and row.outcome != "planned"]
    assert [row for row in back if within_limits not in row.guards] == []
    assert len(back) == 5


def test_a_guard_stands_under_its_own_name() -> None:
    by_name: dict[str, set[int]] = {}
    for row in AUTOGPT.rows:
        for guard in row.guards:
            for part in [guard, *spendings(guard)]:
                by_name.setdefault(part.name, set()).add(id(part))
    assert [name for name, parts in by_name.items() if len(parts) > 1] == []


CHANGED = list(mutants(AUTOGPT))


def test_there_is_a_changed_machine_for_every_way_to_change_a_row() -> None:
    assert len(CHANGED) == len(ROWS) * len(STATES) + sum(1 for row in ROWS if row[3])
    assert len({name for name, _ in CHANGED}) == len(CHANGED)


@pytest.mark.parametrize(("name", "table"), CHANGED, ids=[name for name, _ in CHANGED])
def test_no_row_can_be_changed_unnoticed(name: str, table: Table) -> None:
    """By the checks, or by the walks below: each row is walked by one of them, and ends where the row leads."""
    try:
        check_table(table)
        check_bounds(table, Limits.autogpt())
    except TableError:
        return
    assert [walk for walk in WALKS if walked(table, walk) != WALKS[walk][1]] != [], name


# ---- walks


def _two(hand: Hand) -> Hand:
    return hand.decides(ToolCall("look", {"q": 1}, "c1"), ToolCall("look", {"q": 2}, "c2")).plays()


def _planned(hand: Hand) -> Hand:
    return hand.decides(text="the plan")


# What is told, and the states that are walked then; at least two pieces of evidence are needed.
WALKS: dict[str, tuple[list[str], list[str]]] = {
    "an empty request": (["empty"], ["plan", "done"]),
    "straight through": (["plan", "two", "write", "yes"], ["plan", "fetch", "synth", "verify", "done"]),
    "a call while planning": (["call", "plan"], ["plan", "plan", "fetch"]),
    "too many calls while planning": (["call"] * 4, ["plan"] * 4 + ["done"]),
    "a malformed plan": (["malformed", "plan"], ["plan", "plan", "fetch"]),
    "plans that stay malformed": (["malformed"] * 4, ["plan"] * 4 + ["done"]),
    "no plan to be had": (["error"], ["plan", "done"]),
    "a piece at a time": (["plan", "one", "one", "write"], ["plan", "fetch", "fetch", "synth", "verify"]),
    "never enough": (["plan", *["nothing"] * 3], ["plan", "fetch", "fetch", "fetch", "done"]),
    "a bad call": (["plan", "bad", "two"], ["plan", "fetch", "fetch", "synth"]),
    "bad calls only": (["plan", *["bad"] * 3], ["plan", "fetch", "fetch", "fetch", "done"]),
    "no progress": (["plan", "one", "one", "write", "no", "stale"], ["plan", "fetch", "fetch", "synth", "verify", "fetch", "verify"]),
    "an answer of the model's own": (["plan", "final"], ["plan", "fetch", "verify", "fetch"]),
    "no decision to be had": (["plan", "error"], ["plan", "fetch", "done"]),
    "nothing written": (["plan", "two", "unwritten"], ["plan", "fetch", "synth", "done"]),
    "sent back": (["plan", "two", "write", "no"], ["plan", "fetch", "synth", "verify", "fetch"]),
    "sent back until no round is left": (
        ["plan", "two", "write", "no", "one", "write", "no"],
        ["plan", "fetch", "synth", "verify", "fetch", "synth", "verify", "done"],
    ),
    "no turn left to write in": (["plan", "five", "two"], ["plan", *["fetch"] * 6, "synth", "done"]),
    "stopped while judging": (["plan", "two", "write", "stop"], ["plan", "fetch", "synth", "verify", "done"]),
}
BOUNDS = off(
    max_steps=9,
    max_turns=7,
    min_evidence=2,
    max_invalid_decisions=9,
    max_bad_arguments=3,
    max_empty_results=3,
    max_verify_rounds=2,
)


def walked(table: Table, name: str) -> list[str] | str:
    """The states that a run enters while it is told a walk, or what it refused of it."""
    words = WALKS[name][0]
    tools = [a_tool("look"), a_tool("strict", args=None)]
    bounds = attrs.evolve(BOUNDS, max_turns=None) if "malformed" in words or "call" in words else BOUNDS
    bounds = attrs.evolve(bounds, max_steps=4) if words[0] in ("call", "malformed") and len(words) > 2 else bounds
    try:
        hand = Hand(*tools, table=table, limits=bounds, verifies=True, composes=True, request="" if words == ["empty"] else "find x")
        for word in words:
            _tell(hand, word)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return [row[2] for row in hand.run.trace if row[0] == "state_entered"]


def _tell(hand: Hand, word: str) -> None:
    n = len(hand.run.call_ids)
    if word == "plan":
        _planned(hand)
    elif word in ("one", "two", "call", "nothing", "stale", "bad"):
        tool = "ghost" if word == "bad" else "look"
        hand.decides(*(ToolCall(tool, {"q": n + k}, f"c{n + k}") for k in range(2 if word == "two" else 1)))
        while hand.batch:
            call_id = hand.batch[0]
            verdict = says("NO_PROGRESS") if word == "stale" else None
            hand.gives(call_id, [] if word == "nothing" else f"hit {call_id}", verdict)
    elif word == "five":
        for _ in range(5):
            _tell(hand, "nothing") if hand.run.empty_results < 2 else _tell(hand, "bad") if hand.run.bad_arguments < 2 else hand.decides()
    elif word == "write":
        hand.tell(Composed("written"))
    elif word == "unwritten":
        hand.tell(ComposeFailed("OSError"))
    elif word in ("yes", "no"):
        hand.judges("done" if word == "yes" else "need_more")
    elif word == "final":
        hand.decides(text="I know it")
    elif word == "malformed":
        hand.decides()
    elif word == "error":
        hand.tell(DecisionFailed("OSError"))
    elif word == "stop":
        hand.tell(Stopped("strategy", "enough"))


@pytest.mark.parametrize("name", WALKS)
def test_a_run_walks_as_written(name: str) -> None:
    assert walked(AUTOGPT, name) == WALKS[name][1]


# ---- what is special to it


def autogpt(**parts: object) -> Hand:
    """A run of this machine with its own limits."""
    return Hand(a_tool("look"), **{"table": AUTOGPT, "limits": Limits.autogpt(), "composes": True, "verifies": True, **parts})  # type: ignore[arg-type]


def test_a_plan_is_kept_as_a_note_and_is_no_answer() -> None:
    hand = autogpt().decides(text="first this, then that")
    assert (hand.run.plan, hand.run.draft, hand.run.state) == ("first this, then that", None, "fetch")


def test_no_tool_is_offered_or_run_while_planning() -> None:
    hand = autogpt()
    assert isinstance(hand.effect, Decide)
    assert hand.effect.tools == ()
    hand.decides(ToolCall("look", {"q": 1}))
    assert (hand.words, hand.run.state, hand.run.body_runs) == (["refused:not_allowed"], "plan", 0)


def test_three_independent_pieces_are_enough_to_write_from() -> None:
    hand = autogpt().decides(text="plan").asks("look", "look")
    hand.plays(lambda call: "the same")
    assert hand.run.state == "fetch"
    hand.asks("look", "look").plays()
    assert isinstance(hand.effect, Compose)
    assert hand.effect.closing is False


def test_what_is_written_is_verified_and_is_the_answer() -> None:
    hand = autogpt().decides(text="plan").asks("look", "look", "look").plays().tell(Composed("written"))
    assert isinstance(hand.effect, Judge)
    hand.judges("done")
    answer = answer_of(hand.run)
    assert answer is not None
    assert (answer.status, answer.text, answer.usage["turns"]) == (Status.OK, "written", 3)


def test_a_next_action_is_performed_and_written_about_without_a_decision() -> None:
    hand = autogpt().decides(text="plan").asks("look", "look", "look").plays().tell(Composed("written"))
    hand.judges("need_more", next_action=ToolCall("look", {"q": 9}))
    assert isinstance(hand.effect, CallTools)
    hand.plays()
    assert isinstance(hand.effect, Compose)


def test_the_end_is_explained_like_any() -> None:
    hand = autogpt(limits=Limits.autogpt(max_steps=3), composes=False).decides(text="plan").asks("look").plays().asks("look").plays()
    assert hand.reason is StopReason.MAX_STEPS
    assert hand.run.stop is not None
    hand.engine.resume(hand.run, hand.run.stop.raise_to)
    assert isinstance(hand.effect, Decide)


def test_a_run_without_limits_of_its_own_gets_the_figures_of_its_machine_and_not_of_a_name() -> None:
    assert Agent([], None, machine=AUTOGPT).engine.setup.limits == Limits.autogpt()
    assert Agent([], None, machine=AUTOGPT.allowing({"fetch": None})).engine.setup.limits == Limits.autogpt()
    assert Agent([], None, machine=AUTOGPT, limits=Limits(max_turns=4)).engine.setup.limits == Limits(max_turns=4)
    assert Agent([], None, machine=attrs.evolve(AGENT, name="autogpt")).engine.setup.limits == Limits()


def test_after_so_many_calls_no_turn_begins_behind_a_plan_either() -> None:
    decider = ScriptedDecider(["a plan"], then="repeat-last")
    agent = Agent([], decider, machine=AUTOGPT, limits=Limits.off(max_steps=50, stop_after_tool_calls=0), clock=ScriptedClock())
    answer = agent.run("what is it?")
    assert (answer.stop_reason, decider.asked) == (StopReason.STOP_AFTER_TOOL_CALLS, 1)


def test_the_raise_of_a_run_that_stopped_before_it_wrote_has_room_for_the_closing_turn_too() -> None:
    limits = Limits.autogpt(max_turns=3, stop_after_tool_calls=3)
    hand = autogpt(limits=limits).decides(text="plan").asks("look", "look", "look").plays()
    assert hand.effect.closing is True
    hand.tell(Composed("so far"))
    stop = hand.run.stop
    assert stop is not None
    assert (stop.state, stop.raise_to) == ("synth", {"stop_after_tool_calls": 4, "max_turns": 4})
    hand.engine.resume(hand.run, stop.raise_to)
    assert (hand.reason, hand.effect.closing) == (None, False)
