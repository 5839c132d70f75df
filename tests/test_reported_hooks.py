"""Reports about hooks, each under the id that it has in the scenarios' README."""

from __future__ import annotations

from typing import Any

import pytest

from fsm_agent import Agent, Limits, Tool, ToolCall
from fsm_agent.host.hooks import HookCall, HookContext, Hooks
from fsm_agent.host.memory import TtlMemory

BOUNDS = Limits.off(max_steps=500, max_turns=4)


def raising(error: Exception) -> Any:
    def hook(*about: Any) -> None:
        raise error

    return hook


@pytest.mark.parametrize(
    ("hooks", "ran", "told"),
    [
        (Hooks(before_tool_call=raising(ValueError("blocked"))), 0, "before_tool_call raised ValueError"),
        (Hooks(after_tool_phase=raising(ValueError("lost"))), 1, "after_tool_phase raised ValueError: lost"),
    ],
    ids=["before", "after"],
)
def test_br_094_a_hook_that_raises_refuses_its_call_or_ends_the_run_and_is_never_passed_over(
    hooks: Hooks, ran: int, told: str
) -> None:
    bodies: list[str] = []
    tools = [Tool(name="t", fn=lambda: bodies.append("ran") or "x", effect="at_most_once")]
    one = Agent(tools, lambda ask: "done" if ask.run.calls else ToolCall("t", {}, "a"), limits=BOUNDS, hooks=hooks)
    answer = one.run("go")
    assert answer.run is not None

    assert len(bodies) == ran
    (call,) = answer.run.calls
    assert call.ok is (ran == 1)
    assert told in " ".join([call.error, str(call.detail), str(answer.stop), answer.text])
    if ran:
        assert (answer.stop_reason, answer.evidence[0].value) == ("strategy", "x")
    else:
        assert call.error.startswith("skipped:before_tool_call raised ValueError")
        assert "blocked" in str(call.value)
        assert answer.stop_reason == "answered"


def test_br_115_what_a_hook_does_to_its_copy_reaches_neither_the_run_nor_the_memory() -> None:
    def spoil(about: HookContext, calls: tuple[HookCall, ...]) -> None:
        for call in calls:
            call.value["rows"].clear()

    one = Agent(
        [Tool(name="get", fn=lambda k: {"rows": [1, 2, 3]}, effect="pure", cache_ttl_s=60)],
        lambda ask: "ok" if len(ask.run.calls) == 2 else ToolCall("get", {"k": "x"}),
        limits=BOUNDS,
        memory=TtlMemory(),
        hooks=Hooks(after_tool_phase=spoil),
    )
    answer = one.run("go")

    assert [piece.value for piece in answer.evidence] == [{"rows": [1, 2, 3]}] * 2
    assert answer.usage["body_runs"] == 1
