"""What a run did, line by line, and what a decider is shown of a result."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from by_hand import Hand, a_tool, off, says, taking
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.core.events import Cancelled, CircuitOpen, ComposeFailed, DecisionFailed, Reused, Skipped
from fsm_agent.core.run import Call
from fsm_agent.core.tools import Retry, Toolset
from fsm_agent.core.trace import TraceEvent, result_text, trace_of
from fsm_agent.core.values import Policy, ToolCall

# ---- lines


def told(hand: Hand, kind: str) -> list[tuple[str, Any]]:
    return [(line.subject, line.detail) for line in trace_of(hand.run) if line.kind == kind]


def test_a_runs_lines_come_in_order_with_run_number_and_time() -> None:
    hand = Hand(run_id="r7").asks("look", now=1.0).begins(now=2.0).gives("c1", now=3.5).decides(text="done", now=4.0)
    lines = trace_of(hand.run)
    assert [(line.kind, line.at_s, line.subject) for line in lines] == [
        ("run_started", 0.0, "r7"),
        ("state_entered", 0.0, "normalize"),
        ("state_entered", 0.0, "gather"),
        ("decision", 1.0, "1"),
        ("call_admitted", 1.0, "c1"),
        ("call_started", 2.0, "c1"),
        ("call_finished", 3.5, "c1"),
        ("state_entered", 3.5, "gather"),
        ("decision", 4.0, "2"),
        ("state_entered", 4.0, "verify"),
        ("judged", 4.0, "done"),
        ("state_entered", 4.0, "final"),
        ("answer", 4.0, "answered"),
    ]
    assert [line.number for line in lines] == list(range(len(lines)))
    assert {line.run_id for line in lines} == {"r7"}


def test_the_lines_from_a_number_on_are_the_rest_of_all_lines() -> None:
    hand = Hand().asks("look").plays().decides(text="done")
    lines = trace_of(hand.run)
    for since in range(len(lines) + 2):
        assert trace_of(hand.run, since) == lines[since:]


def test_each_thing_that_happens_to_a_call_has_a_line_of_its_own() -> None:
    tool = a_tool(args=taking(q={"type": "str"}), retry=Retry(attempts=2, backoff_s=[1.0]))

    def other(tool: str, args: Any, run: Any) -> tuple[str, Any]:
        return "other", args

    limits = off(max_attempts=3, max_turns=9)
    hand = Hand(tool, a_tool("other"), limits=limits, repairs={"raised:ValueError": ("elsewhere", other)})
    hand.decides(*(ToolCall("look", {"q": 7 if n == 3 else str(n)}, f"c{n}") for n in range(7))).begins()
    hand.gives("c0").tell(Reused("c1", 1)).tell(CircuitOpen("c2")).tell(Skipped("c4", "hook"))
    hand.gives("c5", None, says("RETRYABLE")).fails("c6").waits().gives("c5").gives("c6")
    lines = [(line.kind, line.subject, line.detail) for line in trace_of(hand.run) if line.kind.startswith("call_")]
    assert [line for line in lines if line[0] not in ("call_admitted", "call_started")] == [
        ("call_refused", "c3", "args:type:q"),
        ("call_finished", "c0", ""),
        ("call_reused", "c1", ""),
        ("call_refused", "c2", "refused:circuit_open"),
        ("call_finished", "c4", "skipped:hook"),
        ("call_retried", "c5", "result:retryable"),
        ("call_finished", "c6", "raised:ValueError"),
        ("call_finished", "c5", ""),
        ("call_repaired", "c6", "elsewhere"),
        ("call_finished", "c6", ""),
    ]
    assert [line[1] for line in lines if line[0] == "call_admitted"] == ["c0", "c1", "c2", "c4", "c5", "c6", "c6"]
    assert told(hand, "waiting") == [("run", 1.0)]


def test_decisions_that_fail_guards_that_close_and_resumes_have_lines_too() -> None:
    hand = Hand(limits=off(max_invalid_decisions=1, max_turns=3), composes=True)
    hand.tell(DecisionFailed("JSONDecodeError", "no JSON", "malformed")).decides()
    assert told(hand, "decision_failed") == [("JSONDecodeError", "no JSON")]
    assert [subject for subject, _ in told(hand, "malformed")] == ["1", "2"]
    assert told(hand, "guard_closed") == [("decisions_usable", "model_empty")]
    stop = hand.run.stop
    assert stop is not None
    hand.engine.resume(hand.run, stop.raise_to)
    hand.tell(Cancelled())
    assert told(hand, "resumed") == [("run", "gather")]
    assert told(hand, "answer") == [("model_empty", None), ("cancelled", None)]


def test_a_closing_answer_that_fails_has_a_line() -> None:
    hand = Hand(limits=off(max_tool_calls=0, max_turns=5), composes=True).asks("look").tell(ComposeFailed("APIError", "busy"))
    assert told(hand, "compose_failed") == [("APIError", "busy")]
    assert told(hand, "guard_closed") == [("calls_left", "max_tool_calls")]


def test_a_line_in_words_is_one_line() -> None:
    line = TraceEvent("r", 7, 1.5, "call_refused", "c1", "args:missing:q")
    assert str(line) == "   7     1.500 call_refused   c1 args:missing:q"
    assert str(attrs.evolve(line, detail=None)) == str(attrs.evolve(line, detail="")) == "   7     1.500 call_refused   c1"
    assert str(attrs.evolve(line, detail=0)).endswith("c1 0")


# ---- what a decider is shown


def shown(value: Any, **declared: Any) -> str:
    hand = Hand(a_tool(**declared)).asks("look").gives("c1", value)
    return result_text(hand.call("c1"), hand.engine.setup.box)


SHOWN: list[tuple[Any, str]] = [
    ("hit", "hit"), ("", ""), (7, "7"), (None, "null"), ({"a": [1, "ü"]}, '{"a":[1,"ü"]}'), ([], "[]"), (True, "true"),
    ("7", "7"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), SHOWN)
def test_a_value_is_shown_as_json_and_a_text_as_itself(value: Any, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, b"\x00", (1,), {1: 2}, object(), 10**5000, "\ud800"], ids=range(8))
def test_odd_values_are_shown_somehow(value: Any) -> None:
    assert shown(value)


def test_a_reused_value_says_so() -> None:
    hand = Hand().asks("look").tell(Reused("c1", {"a": 1}))
    assert result_text(hand.call("c1"), hand.engine.setup.box) == '(reused) {"a":1}'


def test_a_failure_is_shown_by_its_word_and_what_would_have_worked() -> None:
    hand = Hand(a_tool(args=taking(q={"type": "int"})), limits=off(max_turns=9)).asks("look").asks("ghost")
    texts = [result_text(call, hand.engine.setup.box) for call in hand.calls]
    assert texts[0].startswith("args:type:q (type:q at q (expected int; got ")
    assert texts[1] == "args:unknown_tool (tools allowed in state gather: look)"
    hand.decides(ToolCall("look", {"q": 1}, "c3")).fails("c3", message="")
    assert result_text(hand.call("c3"), hand.engine.setup.box) == "raised:ValueError"


HOOKED = [(None, "skipped:hook"), ({"a": 1}, 'skipped:hook: {"a":1}'), ("instead", "skipped:hook: instead")]


@pytest.mark.parametrize(("value", "text"), HOOKED)
def test_what_a_hook_gave_in_the_bodys_place_is_shown(value: Any, text: str) -> None:
    hand = Hand().asks("look").tell(Skipped("c1", "hook", value))
    assert result_text(hand.call("c1"), hand.engine.setup.box) == text


@pytest.mark.parametrize("most", [1, 20, 40, 100, 1000, None])
@pytest.mark.parametrize("text", ["x" * 100, "ü" * 50, "x" * 101, "日本" * 200, "\ud800" * 60, "😀" * 30], ids=range(6))
def test_over_the_size_cap_a_result_is_cut_with_a_mark_and_the_full_size(most: int | None, text: str) -> None:
    size = len(text.encode("utf-8", "surrogatepass"))
    told = shown(text, max_result_bytes=most)
    if most is None or size <= most:
        assert told == text
        return
    mark = f" [cut: {size} bytes in all]"
    assert told.endswith(mark)
    assert text.startswith(told.removesuffix(mark))
    assert len(told.encode("utf-8", "surrogatepass")) <= max(most, len(mark))


@given(text=st.text(alphabet=st.characters(codec="utf-8"), max_size=200), most=st.integers(30, 300))
def test_a_cut_keeps_as_much_as_fits(text: str, most: int) -> None:
    tool = a_tool(max_result_bytes=most)
    call = Call(id="c", tool="look", args={}, ok=True, value=text)
    shown = result_text(call, Toolset([tool]))
    size = len(text.encode())
    if size <= most:
        assert shown == text
    else:
        kept = shown.removesuffix(f" [cut: {size} bytes in all]")
        assert text.startswith(kept)
        assert most - 3 <= len(shown.encode()) <= most


def test_the_run_keeps_the_whole_value_and_a_tool_that_is_gone_has_no_cap() -> None:
    hand = Hand(a_tool(max_result_bytes=50)).asks("look").gives("c1", "x" * 200)
    assert hand.call("c1").value == "x" * 200
    assert result_text(hand.call("c1"), Toolset()) == "x" * 200


def test_what_is_shown_of_a_refused_call_holds_no_secret() -> None:
    tool = a_tool(args=taking(key={"type": "int"}), secret=["key"])
    hand = Hand(tool, policy=Policy()).decides(ToolCall("look", {"key": "hunter2"}))
    assert "hunter2" not in result_text(hand.calls[0], hand.engine.setup.box)
    assert "hunter2" not in "\n".join(map(str, trace_of(hand.run)))
