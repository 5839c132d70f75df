"""A tool as verifier: seed 002's own, called with what it takes of the four inputs, explicitly or by the table of allowed tools."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from fsm_agent.agent import Agent
from fsm_agent.core.autogpt_table import AUTOGPT
from fsm_agent.core.errors import BuildError
from fsm_agent.core.limits import Limits
from fsm_agent.core.tools import Tool
from fsm_agent.core.values import ToolCall
from fsm_agent.host.tool_forms import make_tool
from fsm_agent.host.tool_verifier import INPUTS

ALLOWED = {"plan": set[str](), "fetch": {"look"}, "synth": set[str](), "verify": {"verifier"}, "done": set[str]()}


def look(q: str) -> str:
    """Look something up."""
    return f"hit {q}"


def decide(ask: Any) -> Any:
    """A plan first, then another call each time."""
    return "first look, then write" if ask.run.state == "plan" else ToolCall("look", {"q": f"q{ask.run.turns}"})


def judging(seen: list[Any], verdicts: list[Any]) -> Tool:
    """Seed 002's verifier, which keeps what it was given."""
    said = iter(verdicts)

    def verifier(goal: str, current_answer: str, evidence_summaries: list[str], tool_call_stats: dict[str, int]) -> Any:
        seen.append((goal, current_answer, evidence_summaries, tool_call_stats))
        return next(said)

    return make_tool(verifier)


def run(*tools: Any, **more: Any) -> Any:
    """A run of seed 002's machine."""
    return Agent([look, *tools], decide, machine=AUTOGPT, limits=Limits.autogpt(min_evidence=1), **more).run("goal")


@pytest.mark.parametrize("way", ["given", "allowed"])
def test_the_verifier_tool_of_the_seed_is_asked_with_its_four_inputs(way: str) -> None:
    seen: list[Any] = []
    made = judging(seen, [{"decision": "need_more", "reason": "one more."}, {"decision": "done"}])
    answer = run(verify=made) if way == "given" else run(made, allowed=ALLOWED)

    first = "call-1 look: hit q1"
    assert (answer.status, answer.run.verify_rounds, answer.usage["tool_calls"]) == ("ok", 2, 2)
    assert seen[0] == ("goal", "Found so far:\n- look: hit q1", [first], {"look": 1})
    assert [(pieces, stats) for _, _, pieces, stats in seen[1:]] == [([first, "call-2 look: hit q3"], {"look": 2})]


def test_a_verifier_tool_that_says_no_for_good_ends_unverified_and_is_no_call() -> None:
    seen: list[Any] = []
    answer = run(judging(seen, [{"decision": "need_more", "reason": "no."}] * 9), allowed=ALLOWED)

    assert (answer.stop_reason, len(seen)) == ("unverified", 3)
    assert "verifier" not in [call.tool for call in answer.run.calls]


@pytest.mark.parametrize("key", ["tool", "tool_name", "toolName"])
def test_its_next_action_is_taken_by_each_name_that_a_source_has_for_the_tool(key: str) -> None:
    action = {key: "look", "args": {"q": "this"}}
    answer = run(judging([], [{"decision": "need_more", "next_action": action}, {"decision": "done"}]), allowed=ALLOWED)

    assert [(call.id, call.args) for call in answer.run.calls] == [("call-1", {"q": "q1"}), ("verify-1", {"q": "this"})]


def test_an_async_tool_verifies_in_a_task() -> None:
    @make_tool
    async def verifier(goal: str) -> bool:
        return goal == "goal"

    agent = Agent([look], decide, machine=AUTOGPT, limits=Limits.autogpt(min_evidence=1), verify=verifier)
    assert asyncio.run(agent.arun("goal")).ok


def test_a_verifier_tool_that_raises_says_no() -> None:
    def verifier(goal: str) -> bool:
        raise OSError(goal)

    answer = run(make_tool(verifier), allowed=ALLOWED)
    assert (answer.stop_reason, "OSError goal" in answer.unknowns[-1]) == ("unverified", True)


def test_a_tool_that_needs_what_no_verifier_is_given_is_refused() -> None:
    with pytest.raises(BuildError, match=rf"verify is the tool 'look', which needs 'q'; a verifier is given {', '.join(INPUTS)}"):
        run(verify=make_tool(look))


@pytest.mark.parametrize(
    ("way", "changed"), [("given", {"approval": True}), ("allowed", {"approval": True}), ("given", {"where": "client"})]
)
def test_a_tool_that_may_not_just_run_is_refused_as_a_verifier(way: str, changed: dict[str, Any]) -> None:
    seen: list[Any] = []
    made = attrs.evolve(judging(seen, [{"decision": "done"}]), **changed)
    with pytest.raises(BuildError, match=r"verify is the tool 'verifier', which (asks for approval|runs at the client); "):
        run(verify=made) if way == "given" else run(made, allowed=ALLOWED)
    assert seen == []


NO_VERIFIER: dict[str, Callable[[Tool], dict[str, Any]]] = {
    "another is given": lambda made: {"tools": [made], "verify": lambda judge: True, "allowed": ALLOWED},
    "several are allowed": lambda made: {"tools": [made], "allowed": {"verify": {"verifier", "look"}}},
    "it needs more": lambda made: {"tools": [made], "allowed": {"verify": {"look"}}},
    "none is allowed": lambda made: {"tools": [made]},
}


@pytest.mark.parametrize("why", NO_VERIFIER)
def test_a_tool_verifies_only_where_it_alone_can_be_meant(why: str) -> None:
    seen: list[Any] = []
    given = NO_VERIFIER[why](judging(seen, []))
    assert run(*given.pop("tools"), **given).ok
    assert seen == []


def test_a_tool_that_takes_nothing_of_what_a_verifier_is_given_is_none() -> None:
    seen: list[str] = []

    def beep() -> bool:
        seen.append("beep")
        return False

    assert run(make_tool(beep), allowed={"verify": {"beep"}}).ok
    assert seen == []
