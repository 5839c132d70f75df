"""Reports about what a run tells and keeps, each under the id that it has in the scenarios' README."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from fsm_agent import Agent, Decision, Limits, Tool, ToolCall
from fsm_agent.core.errors import RunBusy
from fsm_agent.core.events import Decided, Returned
from fsm_agent.core.keys import call_key
from fsm_agent.core.trace import trace_of
from fsm_agent.host.clock import ScriptedClock
from fsm_agent.host.memory import TtlMemory
from fsm_agent.testing import ScriptedDecider, expect_path

LONG = 20.0


def off(**named: Any) -> Limits:
    """Every limit off but steps and those named."""
    return Limits.off(**{"max_steps": 500, "max_turns": 50, **named})


def tool(name: str, fn: Callable[..., Any], **fields: Any) -> Tool:
    return Tool(**{"name": name, "fn": fn, "effect": "pure", **fields})


def agent(*tools: Tool, turns: Any, then: str = "fail", **more: Any) -> Agent:
    decider = ScriptedDecider(turns, then=then)
    return Agent(tools, decider, **{"limits": off(), "clock": ScriptedClock(), **more})


def test_br_003_the_text_says_why_the_run_stopped_and_what_was_found() -> None:
    written: list[str] = []
    turns = [ToolCall("retrieve", {"q": "x"}), ToolCall("save_note", {"text": "fact"})]
    one = agent(
        *(tool("retrieve", lambda q: "fact"), tool("save_note", lambda text: written.append(text), effect="at_most_once")),
        turns=turns, then="repeat-last", limits=off(max_same_call=1),
    )
    answer = one.run("note it")

    assert answer.stop_reason == "duplicate_call"
    assert "duplicate_call" in answer.text
    assert "max_same_call" in answer.text
    assert answer.evidence[0].value == "fact"
    assert written == ["fact"]


def test_br_005_a_tool_whose_budget_is_spent_is_no_longer_offered() -> None:
    offered: list[tuple[str, ...]] = []

    def decide(ask: Any) -> Any:
        offered.append(ask.tools)
        return ToolCall("search", {"q": f"v{ask.run.turns}"}) if "search" in ask.tools else "summary"

    one = Agent([tool("search", lambda q: "hit")], decide, limits=off(max_turns=15, max_same_tool_calls={"search": 3}))
    answer = one.run("search")

    assert (answer.stop_reason, answer.text) == ("answered", "summary")
    assert offered == [("search",)] * 3 + [()]


def test_br_025_the_saved_run_and_its_trace_are_utf_8() -> None:
    half = "a \udc00"
    one = agent(
        tool("scrape", lambda u: "bold \ud835 text"), turns=[ToolCall("scrape", {"u": half})], then="repeat-last",
        limits=off(max_same_call=2),
    )
    answer = one.run("go")
    assert answer.run is not None
    saved = one.save(answer.run)

    assert answer.stop_reason == "duplicate_call"
    assert saved.encode()
    assert "\n".join(map(str, trace_of(answer.run))).encode()
    assert one.load(saved) == answer.run
    assert call_key("scrape", {"u": half}) == call_key("scrape", {"u": "a " + chr(0xDC00)})


def test_br_051_two_calls_of_one_id_get_two_ids_and_a_result_each() -> None:
    seen: list[list[tuple[str, Any]]] = []

    def decide(ask: Any) -> Any:
        seen.append([(call.id, call.value) for call in ask.run.calls])
        return "done" if ask.run.calls else [ToolCall("ev", {"x": 1}, "same"), ToolCall("ev", {"x": 2}, "same")]

    answer = Agent([tool("ev", lambda x: x)], decide, limits=off()).run("go")

    assert answer.stop_reason == "answered"
    (first, one), (second, two) = seen[-1]
    assert (first, one, two) == ("same", 1, 2)
    assert second not in ("", "same")


def test_br_076_a_caller_who_repeats_on_exceptions_has_nothing_to_catch() -> None:
    runs: list[int] = []
    one = Agent(
        [tool("t", lambda n: runs.append(n) or "x")],
        lambda ask: ToolCall("t", {"n": ask.run.turns}),
        limits=off(max_turns=3, max_attempts=3),
    )

    def stubborn() -> Any:
        for _ in range(3):
            try:
                return one.run("go")
            except Exception:
                continue
        return None

    answer = stubborn()
    assert (answer.stop_reason, runs) == ("max_turns", [0, 1, 2])


def test_br_081_runs_that_share_their_limits_leave_them_as_they_were() -> None:
    per_tool = {"t": 5}
    limits = off(max_tool_calls=5, max_same_tool_calls=per_tool)
    before = repr(limits)
    turns = [*(ToolCall("t", {"n": n}) for n in range(5)), "done"]
    one = agent(tool("t", lambda n: "x"), turns=turns, limits=limits)
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(one.run("go"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)

    assert [(a.stop_reason, a.usage["tool_calls"]) for a in answers] == [("answered", 5)] * 3
    assert (repr(limits), per_tool) == (before, {"t": 5})


def test_br_083_a_run_that_is_active_is_not_started_again_and_the_agent_goes_on() -> None:
    begun, gate = threading.Event(), threading.Event()

    def slow() -> str:
        begun.set()
        gate.wait(LONG)
        return "x"

    one = agent(tool("t", slow), turns=[ToolCall("t"), "done"])
    run = one.start("go")
    answers: list[Any] = []
    first = threading.Thread(target=lambda: answers.append(one.drive(run)))
    first.start()
    assert begun.wait(LONG)
    with pytest.raises(RunBusy, match="is being driven already"):
        one.drive(run)
    gate.set()
    first.join(LONG)

    assert [answer.stop_reason for answer in answers] == ["answered"]
    assert len(run.calls) == 1
    assert one.run("again").stop_reason == "answered"


def test_br_105_the_verifier_is_given_the_newest_text() -> None:
    seen: list[str | None] = []

    def verify(ask: Any) -> bool:
        seen.append(ask.run.draft.text)
        return bool(ask.run.draft.text == "good")

    answer = agent(turns=["bad", "good"], verify=verify).run("go")

    assert (answer.stop_reason, answer.text, seen) == ("answered", "good", ["bad", "good"])


def test_br_115_nothing_that_is_done_to_a_value_reaches_what_is_remembered() -> None:
    kept = {"rows": [1, 2, 3]}
    seen: list[Any] = []

    def decide(ask: Any) -> Any:
        if ask.run.last is not None:
            seen.append(list(ask.run.last.value["rows"]))
            ask.run.last.value["rows"].clear()
            kept["rows"].clear()
        return "ok" if len(seen) == 2 else ToolCall("get", {"k": "x"})

    one = Agent([tool("get", lambda k: kept, cache_ttl_s=60)], decide, limits=off(), memory=TtlMemory(), clock=ScriptedClock())
    answer = one.run("go")
    assert answer.run is not None

    assert seen == [[1, 2, 3], [1, 2, 3]]
    assert [call.reused for call in answer.run.calls] == [False, True]
    assert answer.usage["body_runs"] == 1


def test_br_169_a_run_is_tested_without_a_model_and_step_by_step() -> None:
    one = agent(tool("search", lambda q: pytest.fail("a body ran")), turns=[])
    run = one.start("go")
    assert run.state == "gather"
    one.engine.tell(run, Decided(Decision(calls=(ToolCall("search", {"q": "x"}, "a"),))))
    assert run.state == "gather"
    one.engine.tell(run, Returned("a", "hit"))
    one.engine.tell(run, Decided(Decision(text="answer")))

    expect_path(run, ["normalize", "gather", "verify", "final"])
    with pytest.raises(AssertionError, match=r"normalize -> gather -> verify -> final; expected normalize -> final"):
        expect_path(run, ["normalize", "final"])
