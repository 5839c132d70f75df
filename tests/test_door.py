"""The door: calls outside any run, measured, remembered, and told apart from each other."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from fsm_agent.core.tools import Tool, Toolset
from fsm_agent.host.door import Door
from fsm_agent.host.memory import DictMemory
from fsm_agent.host.ports import ToolContext


def door(*tools: Tool) -> tuple[Door, dict[str, Any]]:
    kept: dict[str, Any] = {}
    return Door(Toolset(tools), DictMemory(kept)), kept


def tool(fn: Any, **fields: Any) -> Tool:
    return Tool(**{"name": "t", "fn": fn, "effect": "pure", **fields})


@pytest.mark.parametrize(("effect", "runs"), [("pure", 1), ("idempotent", 2), ("at_most_once", 2), ("undeclared", 2)])
def test_only_what_is_pure_is_remembered(effect: str, runs: int) -> None:
    ran: list[int] = []
    one, kept = door(tool(lambda n: ran.append(n) or {"n": n}, effect=effect))

    assert [one.call_tool("t", {"n": 1})["value"] for _ in range(2)] == [{"n": 1}] * 2
    assert (len(ran), list(kept.values())) == (runs, [{"n": 1}] * (effect == "pure"))


@pytest.mark.parametrize(("polling", "ttl", "runs"), [(True, None, 2), (True, 60.0, 1), (False, 0.0, 2), (False, 60.0, 1)])
def test_who_polls_is_answered_anew_unless_a_time_to_remember_is_given(polling: bool, ttl: float | None, runs: int) -> None:
    ran: list[int] = []
    one, _ = door(tool(lambda: ran.append(1) or 1, polling=polling, cache_ttl_s=ttl))
    for _ in range(2):
        one.call_tool("t", {})

    assert len(ran) == runs


def test_an_interrupt_in_a_body_passes_through() -> None:
    def body() -> None:
        raise KeyboardInterrupt

    one, kept = door(tool(body))
    with pytest.raises(KeyboardInterrupt):
        one.call_tool("t", {})
    assert kept == {}


def test_without_a_contract_any_mapping_goes_in_and_anything_comes_out() -> None:
    one, _ = door(tool(lambda **args: sorted(args)))

    assert one.validate_args("t", {"any": 1}) == one.validate_result("t", object()) == ""
    assert one.call_tool("t", {"b": 1, "a": 2})["value"] == ["a", "b"]
    for args in (None, [], "text", 5):
        assert one.call_tool("t", args)["error"] == "args:type:args"
    assert (one.validate_args("u", {}), one.validate_result("u", {})) == ("unknown_tool", "unknown_tool")


def test_every_call_has_a_name_of_its_own() -> None:
    contexts: list[ToolContext] = []
    one, _ = door(tool(lambda context: contexts.append(context), context_parameter="context", effect="idempotent"))
    for _ in range(3):
        one.call_tool("t", {})

    assert len({context.idempotency_key for context in contexts}) == 3
    assert len({one.numbered() for _ in range(100)} | {door()[0].numbered()}) == 101


def test_an_exclusive_body_holds_the_turn_of_the_door_in_its_time_or_without() -> None:
    held: list[bool] = []
    for seconds in (None, 20.0):
        one, _ = door(tool(lambda: held.append(one.turn.locked()), exclusive=True, timeout_s=seconds))  # noqa: B023
        one.call_tool("t", {})
        assert not one.turn.locked()
    assert held == [True, True]


def test_a_body_that_outlives_its_time_is_given_up() -> None:
    gate = threading.Event()
    one, kept = door(tool(lambda: gate.wait(20.0), timeout_s=0.05))

    assert one.call_tool("t", {}) == {"ok": False, "value": None, "error": "raised:TimeoutError"}
    gate.set()
    assert kept == {}
