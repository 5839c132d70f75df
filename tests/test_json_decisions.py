"""Decisions written as JSON: what is read, and what is said of those that are none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.core.json_decisions import decision_of_json
from fsm_agent.core.values import Decision, ToolCall

TOOL = {"type": "tool", "toolName": "search", "args": {"q": "x"}, "reason": "to know"}
FINAL = {"type": "final", "finalAnswer": "It is 4.", "citations": ["c1"]}
CALLED = Decision(calls=(ToolCall("search", {"q": "x"}, reason="to know"),))
ANSWERED = Decision(text="It is 4.", citations=("c1",))


@pytest.mark.parametrize("decision", [(TOOL, CALLED), (FINAL, ANSWERED)], ids=["tool", "final"])
@pytest.mark.parametrize(
    "written",
    ["{}", " \n{}\n", "```json\n{}\n```", "```\n{}\n```", "```{}```", "```JSON\r\n{}\r\n```"],
    ids=["plain", "spaced", "fence", "bare fence", "fence in a line", "odd fence"],
)
def test_a_decision_is_read_as_it_is_and_inside_a_fence(decision: Any, written: str) -> None:
    assert decision_of_json(written.replace("{}", json.dumps(decision[0]))) == decision[1]


def test_a_json_string_that_holds_the_object_is_decoded_once() -> None:
    once = json.dumps(json.dumps(TOOL))

    assert decision_of_json(once) == CALLED
    assert decision_of_json(f"```json\n{once}\n```") == CALLED
    with pytest.raises(ValueError, match="write one JSON object"):
        decision_of_json(json.dumps(once))


@pytest.mark.parametrize(
    ("held", "decision"),
    [
        ({"type": "tool", "toolName": "t"}, Decision(calls=(ToolCall("t", None),))),
        ({"type": "tool", "toolName": "t", "args": '{"a":1}'}, Decision(calls=(ToolCall("t", '{"a":1}'),))),
        ({"type": "tool", "toolName": "t", "args": [1]}, Decision(calls=(ToolCall("t", [1]),))),
        (
            {"type": "tool", "toolName": "t", "args": {}, "intent": "i", "changed": "c", "reason": None, "more": 1},
            Decision(calls=(ToolCall("t", {}, intent="i", changed="c"),)),
        ),
        ({"type": "final", "finalAnswer": "x"}, Decision(text="x")),
        ({"type": "final", "finalAnswer": "x", "citations": None, "question": "y?"}, Decision(text="x", question="y?")),
        ({"type": "final", "finalAnswer": "", "question": "y?"}, Decision(question="y?")),
    ],
)
def test_only_what_a_decision_needs_must_be_there(held: Any, decision: Decision) -> None:
    assert decision_of_json(json.dumps(held)) == decision


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("  ", "is empty"),
        ("I will search.", "is no JSON"),
        ('{"type": "tool", "toolName": "t", ', "is no JSON"),
        ('Sure: {"type": "final", "finalAnswer": "x"}', "is no JSON"),
        ('{"type": "final", "finalAnswer": "x"} {"type": "final", "finalAnswer": "y"}', "is no JSON"),
        ('{"type": "final", "finalAnswer": NaN}', "NaN is no JSON"),
        ("[" * 100_000, "nests too deep"),
        ("[]", r"the decision is \[\]"),
        ("null", "the decision is None"),
        ("4", "the decision is 4"),
        ("{}", 'no type; its type is "tool" or "final"'),
        ('{"type": "Tool", "toolName": "t"}', "the type 'Tool'"),
        ('{"type": ["tool"], "toolName": "t"}', r"the type \['tool'\]"),
        ('{"type": "tool"}', "no toolName"),
        ('{"type": "tool", "tool": "t"}', "no toolName"),
        ('{"type": "tool", "toolName": " "}', "the toolName ' '"),
        ('{"type": "tool", "toolName": 4}', "the toolName 4"),
        ('{"type": "tool", "toolName": "t", "reason": 4}', "reason is 4; give a text"),
        ('{"type": "final"}', "no finalAnswer"),
        ('{"type": "final", "answer": "x"}', "no finalAnswer"),
        ('{"type": "final", "finalAnswer": " "}', "no finalAnswer"),
        ('{"type": "final", "finalAnswer": 4}', "finalAnswer is 4"),
        ('{"type": "final", "finalAnswer": "x", "citations": "c1"}', "the citations are 'c1'"),
        ('{"type": "final", "finalAnswer": "x", "citations": [1]}', r"the citations are \[1\]"),
    ],
)
def test_what_is_no_decision_is_refused_with_its_reason(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        decision_of_json(text)


def test_what_is_no_text_is_refused_too() -> None:
    with pytest.raises(ValueError, match="is empty"):
        decision_of_json(None)  # type: ignore[arg-type]


VALUES = st.recursive(st.none() | st.text() | st.integers(), lambda inner: st.dictionaries(st.text(), inner) | st.lists(inner))


@given(st.text() | VALUES.map(json.dumps))
def test_any_text_is_a_decision_or_a_value_error(text: str) -> None:
    try:
        decision = decision_of_json(text)
    except ValueError:
        return
    assert decision.calls or decision.text or decision.question


@given(st.text(min_size=1).filter(str.strip), st.dictionaries(st.text(), st.text()))
def test_a_call_comes_back_as_it_was_written(name: str, args: dict[str, str]) -> None:
    (call,) = decision_of_json(json.dumps({"type": "tool", "toolName": name, "args": args})).calls

    assert (call.tool, call.args) == (name, args)
