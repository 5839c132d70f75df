"""Prompts: the figures in the words are those in force, whatever they are, and what is not limited is not spoken of."""

from __future__ import annotations

import re
from typing import Any

import attrs
import pytest
from by_hand import Hand, a_tool, off, says, taking
from hypothesis import given, settings
from strategies import REPAIRS, World, an_engine, limits, policies, step, worlds

from fsm_agent.core.limits import Limits
from fsm_agent.core.messages import Message, Role
from fsm_agent.core.prompts import (
    Standing,
    agent_policy,
    closing_prompt,
    left_of,
    state_summary,
    stop_contract,
    stubs,
    synthesis_prompt,
    task_policy,
    verifier_prompt,
)
from fsm_agent.core.schemas import SchemaArguments
from fsm_agent.core.transcript import transcript
from fsm_agent.core.values import Decision, Policy, ToolCall

PRESETS = {name: getattr(Limits, name)() for name in ("loop_guard", "react", "autogpt", "lab", "agent_loop")} | {
    "default": Limits(),
    "off": Limits.off(),
}
# Every line of the policy with a figure, and the limit that the figure is.
LINES = {
    "max_tool_calls": "  - Tool calls in all: {}",
    "max_turns": "  - Turns: {}",
    "max_calls_per_turn": "  - Tool calls in one turn: {}",
    "max_same_tool_calls": "  - Calls of one tool: {}",
    "stop_after_tool_calls": "  - Tool calls asked for after which no turn begins: {}",
    "deadline_s": "  - Time: {:g} s",
    "max_empty_results": ") A tool finds nothing {} times for the same intent.",
    "max_tool_errors": ") Tools have failed {} times in all.",
}


def figures(text: str) -> list[str]:
    """Every figure in a text but the numbers of its items."""
    return re.findall(r"\d+(?:\.\d+)?", re.sub(r"^\s*\d\) ", "", text, flags=re.MULTILINE))


# ---- figures


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", LINES)
def test_the_policy_names_each_limit_in_force_with_its_figure(preset: str, name: str) -> None:
    text, figure = agent_policy(PRESETS[preset], Policy()), getattr(PRESETS[preset], name)
    before = LINES[name].split("{")[0]
    lines = [line for line in text.splitlines() if before in line]
    assert len(lines) == (figure is not None)
    if lines:
        assert lines[0].endswith(LINES[name].format(figure))


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("duplicates", ["stop", "refuse", "first"])
def test_no_word_holds_a_figure_that_is_not_in_force(preset: str, duplicates: str) -> None:
    bounds, policy = PRESETS[preset], Policy(duplicates=duplicates)
    known = {f"{value:g}" for value in attrs.asdict(bounds).values() if value is not None}
    for text in (agent_policy(bounds, policy, ["look"], "gather"), stop_contract(bounds, policy)):
        assert set(figures(text)) <= known


@settings(max_examples=200)
@given(limits, policies)
def test_any_figures_in_force_are_those_in_the_words(bounds: Limits, policy: Policy) -> None:
    same = bounds.max_same_tool_calls
    known = {f"{value:g}" for value in attrs.asdict(bounds).values() if isinstance(value, int | float)}
    known |= {str(figure) for figure in same.values() if figure is not None} if isinstance(same, dict) else set()
    text = agent_policy(bounds, policy)
    assert set(figures(re.sub("Time: .*", "", text))) <= known
    for name in ("max_tool_calls", "max_turns", "max_calls_per_turn", "stop_after_tool_calls", "deadline_s"):
        figure, lines = getattr(bounds, name), [line for line in text.splitlines() if line.startswith(LINES[name].split("{")[0])]
        assert lines == ([LINES[name].format(figure)] if figure is not None else [])
    assert not [line for line in text.splitlines() if line.endswith(": ") or "None" in line]


@pytest.mark.parametrize(
    ("named", "policy", "words"),
    [
        ({"max_same_call": 2}, "stop", "more than 2 times."),
        ({"max_same_call": 1}, "stop", "more than once."),
        ({"max_same_call": 2}, "first", "more than once."),
        ({"max_same_call": 2, "dedup_window": 10}, "stop", "more than 2 times among the last 10 calls."),
        ({"dedup_window": 12}, "stop", "Do not repeat any of the last 12 calls with the same arguments."),
        ({}, "stop", "unless its result can have changed."),
    ],
)
def test_what_is_said_of_repetitions_is_what_the_gate_does(named: dict[str, int], policy: str, words: str) -> None:
    """Rule 2 of seed 000's contract forbade what its own figure allowed."""
    bounds, chosen = Limits.off(max_steps=99, **named), Policy(duplicates=policy)
    for text in (stop_contract(bounds, chosen), agent_policy(bounds, chosen)):
        assert words in text
    hand = Hand(limits=bounds, policy=chosen)
    made = 0
    while made < 5 and hand.reason is None:
        hand.decides(ToolCall("look", {"q": 1})).plays()
        made += hand.words[-1] == "ok"
    assert made == (5 if not named else 1 if "once" in words or "Do not repeat any" in words else 2)


@pytest.mark.parametrize(
    ("figure", "line"),
    [
        ({"look": 3, "*": 5}, "  - Calls of one tool: look: 3, any other: 5"),
        ({"look": 3, "poll": None}, "  - Calls of one tool: look: 3"),
        ({"poll": None}, None),
        ({}, None),
        (0, "  - Calls of one tool: 0"),
    ],
)
def test_figures_by_tool_are_named_by_tool(figure: Any, line: str | None) -> None:
    lines = [one for one in agent_policy(Limits(max_same_tool_calls=figure), Policy()).splitlines() if "Calls of one tool" in one]
    assert lines == ([line] if line else [])


def test_steps_are_told_where_they_are_what_bounds_the_turns() -> None:
    line = "  - Steps, each turn being one: 12"
    assert line in agent_policy(Limits.autogpt(), Policy()).splitlines()
    assert "Steps" not in agent_policy(Limits.autogpt(max_turns=10), Policy())
    assert "Steps" not in agent_policy(Limits.autogpt(max_steps=None), Policy())


def test_the_policy_names_the_tools_of_the_state() -> None:
    told = agent_policy(Limits(), Policy(), ["look", "poll"], "gather")
    assert told.endswith("- Tools you may call now in the state 'gather': look, poll")
    assert agent_policy(Limits(), Policy(), []).endswith("- Tools you may call now: none; answer in text")
    assert "Tools you may call" not in agent_policy(Limits(), Policy())


def test_the_policy_asks_for_what_the_fallback_answer_holds() -> None:
    text = agent_policy(Limits(), Policy())
    assert [word for word in ("assumptions", "unknowns", "next questions", "what changed") if word not in text] == []
    assert [line[:5] for line in stop_contract(Limits(), Policy()).splitlines()[1:]] == ["1) Ca", "2) Do", "3) Wh", "4) Gi"]


# ---- the task


def test_a_task_in_four_parts() -> None:
    assert task_policy("find x") == "Goal: find x"
    assert task_policy("find x", ["it is found", "it is cited"], "one line", ["no guesses"]) == (
        "Goal: find x\nDone when:\n- it is found\n- it is cited\nOutput: one line\nRules for tools:\n- no guesses"
    )


# ---- where a run stands


@settings(max_examples=60)
@given(worlds, limits, policies)
def test_what_is_left_is_the_limit_less_what_was_used(world: World, bounds: Limits, policy: Policy) -> None:
    engine = an_engine(policy=policy, repairs=REPAIRS)
    run, answers = engine.start("x", limits=attrs.evolve(bounds, max_attempts=3)), world.answers()
    used = {"max_turns": "turns", "max_tool_calls": "tool_calls", "max_steps": "steps", "max_tokens": "tokens", "max_cost": "cost"}
    going = True
    while going:
        left = left_of(run)
        for name, counter in {**used, "deadline_s": "spent_s"}.items():
            limit = getattr(run.limits, name)
            assert left[name] == (None if limit is None else max(0, limit - getattr(run, counter)))
        summary = state_summary(run, transcript(run, engine.setup.box))
        assert (f"{left['max_tool_calls']} call" in summary) is (left["max_tool_calls"] is not None)
        assert (f"{left['max_turns']} turn" in summary) is (left["max_turns"] is not None)
        going = step(engine, run, answers)


def test_a_summary_says_what_is_left_what_is_known_and_what_failed() -> None:
    bounds = off(max_turns=10, max_tool_calls=20, max_tokens=12_345)
    hand = Hand(a_tool("look"), a_tool("strict", args=taking(n={"type": "int"})), limits=bounds)
    summary = state_summary(hand.run, transcript(hand.run, hand.engine.setup.box))
    assert summary == "Left: 20 calls, 10 turns, 12345 tokens. Known: nothing yet."
    hand.asks("look", "strict").gives("c1", {"a": 1})
    summary = state_summary(hand.run, transcript(hand.run, hand.engine.setup.box))
    assert summary == 'Left: 19 calls, 9 turns, 12345 tokens. Known: look: {"a":1}. Failed: strict: args:missing:n.'


def test_money_and_time_are_told_in_four_figures() -> None:
    spent = Standing(off(max_cost=1.0, deadline_s=25.0), turns=1, tool_calls=0, steps=1, tokens=0, cost=0.333333, spent_s=1.23456)
    assert state_summary(spent, []).startswith("Left: 23.77 seconds, 0.6667 cost. ")


def test_a_summary_is_short_however_much_is_known() -> None:
    messages = [Message(role=Role.TOOL, tool="look", text="x" * 10_000, call_id=str(n)) for n in range(100)]
    assert len(state_summary(Hand(limits=off()).run, messages)) < 1_500
    assert state_summary(Hand(limits=off()).run, []) == "Left: no limit. Known: nothing yet."


# ---- the verifier's prompt


def test_the_verifier_sees_goal_answer_evidence_counts_and_the_last_five_calls() -> None:
    hand = Hand(a_tool("look"), limits=off(min_evidence=3, max_tool_calls=20), verifies=True)
    for n in range(7):
        hand.asks("look").gives(f"c{n + 1}", [] if n == 6 else f"hit {n}", says("EMPTY") if n == 6 else None)
    hand.decides(text="it is so")
    text = verifier_prompt(hand.run, ["look", "check"])
    assert "Answer with one JSON object and nothing else" in text
    assert [word for word in ('"decision"', '"done"', '"need_more"', '"reason"', '"next_action"') if word not in text] == []
    assert "with evidence from look, check?" in text
    checklist = [line for line in text.splitlines() if line[:2] in ("1)", "2)", "3)", "4)")]
    asked_for = ("goal", "at least 3 pieces", "last 5 calls", "budget")
    assert all(word in line for word, line in zip(asked_for, checklist, strict=True))
    assert "goal: find x" in text
    assert "current_answer: it is so" in text
    assert [line for line in text.splitlines() if line.startswith("- c")] == [f"- c{n + 1} look: hit {n}" for n in range(6)]
    assert 'tool_call_stats: {"look":7}' in text
    last = text[text.index("last_calls:") :].splitlines()[1:6]
    assert last[0] == '- look {"q":"v3"} -> found something'
    assert last[4] == '- look {"q":"v7"} -> nothing'
    assert text.endswith("left: 13 calls")


def test_a_call_that_was_refused_is_none_of_the_last_calls_that_a_verifier_sees() -> None:
    hand = Hand(a_tool("look"), limits=off(min_evidence=0), verifies=True).asks("look").gives("c1").asks("ghost").decides(text="it is so")
    text = verifier_prompt(hand.run)
    assert text[text.index("last_calls:") :].splitlines()[1:-1] == ['- look {"q":"v1"} -> found something']


def test_the_verifiers_prompt_is_bounded_however_large_the_run() -> None:
    hand = Hand(a_tool("look"), limits=off(), request="x" * 100_000, verifies=True)
    for n in range(60):
        hand.decides(ToolCall("look", {"q": "y" * 10_000, "n": n}, f"c{n}")).gives(f"c{n}", f"{n}" + "z" * 10_000)
    hand.decides(text="a" * 100_000)
    assert len(verifier_prompt(hand.run)) < 25_000


def test_a_draft_that_is_no_text_is_no_answer() -> None:
    hand = Hand(limits=off(), verifies=True)
    hand.run.draft = Decision(text=5)  # type: ignore[arg-type]
    assert "current_answer: \n" in verifier_prompt(hand.run)


# ---- texts without tools


def test_the_closing_prompt_names_why_and_the_synthesis_prompt_shows_the_evidence() -> None:
    hand = Hand(limits=off(max_tool_calls=1), composes=True).asks("look", "look").plays()
    assert "No further tool can be called (max_tool_calls)" in closing_prompt(hand.run)
    assert synthesis_prompt(hand.run).splitlines()[1:] == ["Evidence:", "- c1 look: hit c1"]


def test_tools_as_signatures() -> None:
    strict = a_tool("strict", args=taking(n={"type": "int"}, q={"type": "str", "required": False}), description="Count it.\nAnd more.")
    assert stubs([strict, a_tool("look")]) == "def strict(n: int, q: str = ...): ...  # Count it.\ndef look(): ..."
    loose = a_tool("loose", args=SchemaArguments({"type": "object", "properties": {"a": True, "b": {"type": ["string", "null"]}}}))
    assert stubs([loose]) == "def loose(a: Any = ..., b: Any = ...): ..."
    assert stubs([a_tool("not a name"), a_tool("print"), a_tool("pin", secret=("q",))]) == ""


def test_one_of_a_thing_is_told_as_one() -> None:
    policy = agent_policy(Limits(max_empty_results=1, max_tool_errors=1), Policy())
    assert "A tool finds nothing 1 time for the same intent." in policy
    assert "Tools have failed 1 time in all." in policy
    one = Standing(Limits.off(max_tool_calls=1, max_turns=2), turns=1, tool_calls=0, steps=1, tokens=0, cost=0.0, spent_s=0.0)
    assert state_summary(one, []).startswith("Left: 1 call, 1 turn. ")
