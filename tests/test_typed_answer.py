"""Typed answers: read without guessing, measured like a result, repaired so many times, and built into what was asked for."""

from __future__ import annotations

import json
import re
from enum import Enum
from typing import Any, Literal

import attrs
import pytest
from by_hand import Hand, off
from hypothesis import given
from hypothesis import strategies as st
from strategies import odd_values

from fsm_agent.agent import Agent
from fsm_agent.core.answers import answer_of
from fsm_agent.core.errors import BuildError
from fsm_agent.core.events import Composed
from fsm_agent.core.limits import Limits
from fsm_agent.core.replay import replay
from fsm_agent.core.saving import load, save
from fsm_agent.core.typed_answer import TypedAnswer, typed_answer
from fsm_agent.core.values import Status, StopReason
from fsm_agent.testing import ScriptedDecider

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"sku": {"type": "string"}, "count": {"type": "integer", "minimum": 0}},
    "required": ["sku", "count"],
    "additionalProperties": False,
}
GOOD = '{"sku": "A", "count": 3}'


@attrs.frozen
class Place:
    """Where something is."""

    name: str
    rows: list[int] = attrs.field(factory=list)


@attrs.frozen
class Even:
    """A number with a validator of its own."""

    n: int = attrs.field()

    @n.validator
    def _check(self, attribute: Any, value: int) -> None:
        if value % 2:
            raise ValueError(f"{value} is odd")


class Colour(Enum):
    """A closed set."""

    RED = "red"


# ---- reading


@pytest.mark.parametrize(
    ("form", "text", "value"),
    [
        (SCHEMA, GOOD, {"sku": "A", "count": 3}),
        (SCHEMA, f"```json\n{GOOD}\n```", {"sku": "A", "count": 3}),
        (SCHEMA, f"```\n{GOOD}```", {"sku": "A", "count": 3}),
        (list[int], "```[1, 2]```", [1, 2]),
        (SCHEMA, f"  {GOOD}\n", {"sku": "A", "count": 3}),
        ({"type": "string"}, "just a text", "just a text"),
        ({"type": "string"}, '"in quotes"', "in quotes"),
        ({"type": "string"}, "42", "42"),
        ({"type": "integer"}, "42", 42),
        ({"type": "array", "items": {"type": "integer"}}, "[1, 2]", [1, 2]),
        (int, "42", 42),
        (bool, "true", True),
        (list[int], "[1]", [1]),
        (Literal["yes", "no"], '"yes"', "yes"),
        (Literal["yes", "no"], "yes", "yes"),
        (Place, '{"name": "x"}', {"name": "x"}),
    ],
)
def test_what_decodes_without_guessing_is_read(form: Any, text: str, value: Any) -> None:
    assert typed_answer(form).read(text) == (value, "")


@pytest.mark.parametrize(
    ("form", "text", "fault"),
    [
        (SCHEMA, "not json", "type:answer"),
        (SCHEMA, "[]", "type:answer"),
        (SCHEMA, '{"sku": "A"}', "missing"),
        (SCHEMA, '{"sku": "A", "count": "3"}', "type:answer"),
        (SCHEMA, '{"sku": "A", "count": -1}', "range:answer"),
        (SCHEMA, '{"sku": "A", "count": 3, "more": 1}', "extra"),
        (SCHEMA, f"Here it is: {GOOD}", "type:answer"),
        (SCHEMA, '{"sku": "A", "count": NaN}', "type:answer"),
        (int, "4.0", "type:answer"),
        (int, "true", "type:answer"),
        (int, "four", "type:answer"),
        (Even, '{"n": 3}', "ValueError: 3 is odd"),
    ],
)
def test_what_is_of_another_form_is_named_with_its_faults(form: Any, text: str, fault: str) -> None:
    value, why = typed_answer(form).read(text)
    assert value is None
    assert fault in why


def test_every_fault_is_told_and_not_without_end() -> None:
    _, why = typed_answer(SCHEMA).read('{"sku": 1, "count": "3"}')
    assert "/sku" in why
    assert "/count" in why
    form = {"type": "array", "items": {"type": "integer"}}
    assert typed_answer(form).read(json.dumps(["x"] * 1_000))[1].count("type:answer") <= 40


@given(st.text(max_size=40) | st.just("[" * 100_000) | st.just("1" * 5_000) | st.just("1e999"))
def test_any_text_is_read_or_has_a_fault(text: str) -> None:
    for form in (SCHEMA, int, str):
        value, fault = typed_answer(form).read(text)
        assert (value is None) is bool(fault)


@given(odd_values)
def test_plain_data_stay_as_they_are_where_no_class_was_asked_for(value: Any) -> None:
    assert typed_answer(SCHEMA).made(value) is value


def test_a_class_is_made_of_what_was_read() -> None:
    typed = typed_answer(Place)
    assert typed.made(typed.read('{"name": "x", "rows": [1]}')[0]) == Place("x", [1])
    assert typed_answer(Colour).made(typed_answer(Colour).read('"red"')[0]) is Colour.RED
    assert typed.made(None) is None


# ---- the schema that a model is shown


def test_the_schema_is_that_of_the_answer_alone() -> None:
    assert typed_answer(SCHEMA).schema == SCHEMA
    assert typed_answer(int).schema == {"type": "integer"}
    shown = typed_answer(Place).schema
    assert set(shown["properties"]) == {"name", "rows"}


def test_definitions_are_kept() -> None:
    form = {"$defs": {"n": {"type": "integer"}}, "type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "required": ["a"]}
    typed = typed_answer(form)
    assert typed.schema == form
    assert typed.read('{"a": 1}') == ({"a": 1}, "")
    assert typed.read('{"a": "1"}')[1]


@pytest.mark.parametrize("form", [5, object(), {"type": "nonsense"}, {"$ref": "https://elsewhere"}, {"type": 5}])
def test_what_is_no_form_is_refused_at_build(form: Any) -> None:
    with pytest.raises(BuildError, match="answer="):
        typed_answer(form)


@pytest.mark.parametrize(
    ("form", "place"),
    [
        ({"type": "object", "properties": {"n": {"type": "whole"}}}, "at #/properties/n/type: "),
        ({"type": "array", "items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"type": "whole"}}}, "at #/$defs/a/type: "),
        (5, "function 'answer', parameter 'answer': the annotation '5'"),
    ],
)
def test_what_is_wrong_in_a_form_is_told_where_the_user_wrote_it(form: Any, place: str) -> None:
    with pytest.raises(BuildError) as refused:
        typed_answer(form)

    assert place in str(refused.value)
    assert not re.search("properties/answer|<locals>", str(refused.value))


# ---- a run


def run_of(*texts: str, form: Any = SCHEMA, **limits: Any) -> Hand:
    hand = Hand(limits=off(**limits), answer=typed_answer(form))
    for text in texts:
        hand.decides(text=text)
    return hand


def test_an_answer_of_the_form_is_the_runs_value() -> None:
    hand = run_of(GOOD)
    answer = answer_of(hand.run)
    assert answer is not None
    assert (answer.status, answer.value, answer.text) == (Status.OK, {"sku": "A", "count": 3}, GOOD)
    assert load(save(hand.run), hand.engine.setup).answer == answer.value
    assert replay(hand.engine, hand.run) == hand.run


@pytest.mark.parametrize("most", [0, 1, 2])
def test_a_fault_is_fed_back_so_many_times_and_then_ends_the_run(most: int) -> None:
    hand = run_of(*["no"] * most, max_invalid_decisions=most)
    assert hand.reason is None
    hand.decides(text="no")
    assert hand.reason is StopReason.INVALID_DECISION
    answer = answer_of(hand.run)
    assert answer is not None
    assert (answer.value, answer.ok) == (None, False)


def test_a_fault_in_between_is_mended_and_forgotten() -> None:
    hand = run_of("no", max_invalid_decisions=1)
    assert "the answer is not of the form that was asked for: type:answer" in hand.run.note
    hand.asks("look").gives("c1").decides(text="no").decides(text=GOOD)
    assert (hand.reason, hand.run.answer) == (StopReason.ANSWERED, {"sku": "A", "count": 3})


def test_a_question_to_the_user_need_not_have_the_form() -> None:
    hand = Hand(limits=off(), answer=typed_answer(SCHEMA)).decides(question="Which one?")
    assert hand.reason is StopReason.QUESTION


def test_a_closing_text_is_not_measured_and_no_value() -> None:
    hand = Hand(limits=off(max_tool_calls=1), answer=typed_answer(SCHEMA), composes=True).asks("look", "look").plays()
    hand.tell(Composed("so far"))
    answer = answer_of(hand.run)
    assert answer is not None
    assert (answer.status, answer.value) == (Status.PARTIAL, None)
    assert "so far" in answer.text


@pytest.mark.parametrize(("form", "text", "value"), [(Place, '{"name": "x"}', Place("x")), (int, "7", 7), (SCHEMA, GOOD, json.loads(GOOD))])
def test_an_agent_gives_the_instance_that_was_asked_for(form: Any, text: str, value: Any) -> None:
    agent = Agent([], ScriptedDecider([text]), limits=Limits(min_evidence=0), answer=form)
    answer = agent.run("x")
    assert answer.value == value
    assert answer.run is not None
    assert agent.answer(agent.load(agent.save(answer.run))).value == value


def test_a_class_that_does_not_take_the_value_has_it_fed_back_and_nothing_is_raised() -> None:
    agent = Agent([], ScriptedDecider(['{"n": 3}', '{"n": 4}']), limits=Limits(min_evidence=0), answer=Even)
    answer = agent.run("x")
    assert (answer.value, answer.usage["turns"]) == (Even(4), 2)
    assert not Agent([], ScriptedDecider(['{"n": 3}'], then="repeat-last"), limits=Limits(min_evidence=0), answer=Even).run("x").ok


def test_a_contract_of_ones_own_can_be_given() -> None:
    typed = TypedAnswer(typed_answer(int).contract)
    assert (typed.read("3"), typed.made(3)) == ((3, ""), 3)
