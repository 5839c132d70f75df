from __future__ import annotations

import sys
from typing import Any

import pytest

from fsm_agent import Agent, ToolCall
from fsm_agent.core.errors import ContractError, MissingExtra
from fsm_agent.core.run import Call
from fsm_agent.core.tools import Tool
from fsm_agent.core.values import EffectClass
from fsm_agent.host.definitions import read_definition, tool_from_schema
from fsm_agent.host.ports import ToolContext

pytest.importorskip("jsonschema", reason='no JSON Schema; pip install "fsm-agent[jsonschema]"')

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "minLength": 1}, "days": {"type": "integer", "minimum": 1, "default": 3}},
    "required": ["city"],
}
FORMS: dict[str, dict[str, Any]] = {
    "chat completions": {"type": "function", "function": {"name": "weather", "description": "Tells.", "parameters": SCHEMA}},
    "responses": {"type": "function", "name": "weather", "description": "Tells.", "parameters": SCHEMA, "strict": False},
    "messages": {"name": "weather", "description": "Tells.", "input_schema": SCHEMA},
    "mcp": {"name": "weather", "description": "Tells.", "inputSchema": SCHEMA},
}


def weather(city: str, days: int = 3) -> str:
    """Own words."""
    return f"{city} {days}"


def only_call(tool: Tool, args: Any) -> Call:
    left = [ToolCall(tool.name, args)]
    answer = Agent([tool], lambda ask: left.pop() if left else "done").run("go")
    assert answer.run is not None
    return answer.run.calls[0]


@pytest.mark.parametrize("definition", FORMS.values(), ids=FORMS)
def test_the_definitions_of_providers_and_a_body_make_a_tool(definition: dict[str, Any]) -> None:
    tool = tool_from_schema(definition, weather, effect="pure", timeout_s=5)
    assert (tool.name, tool.description, tool.effect, tool.timeout_s) == ("weather", "Tells.", EffectClass.PURE, 5)
    assert only_call(tool, {"city": "Bonn"}).value == "Bonn 3"
    assert only_call(tool, '{"city": "Bonn", "days": 1}').value == "Bonn 1"


@pytest.mark.parametrize(
    ("args", "error"),
    [
        ({}, "args:missing:city"),
        ({"city": "Bonn", "hour": 1}, "args:extra:hour"),
        ({"city": ""}, "args:length:city"),
        ({"city": "Bonn", "days": "1"}, "args:type:days"),
        ({"city": "Bonn", "days": 0}, "args:range:days"),
    ],
)
def test_calls_are_measured_by_the_schema(args: Any, error: str) -> None:
    call = only_call(tool_from_schema(FORMS["messages"], weather), args)
    assert (call.error, call.body_runs) == (error, 0)


def test_the_definition_is_not_changed_and_not_shared() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    tool = tool_from_schema({"name": "t", "input_schema": schema}, lambda city="": city)
    assert schema == {"type": "object", "properties": {"city": {"type": "string"}}}
    schema["properties"] = {}
    assert only_call(tool, {"city": "Bonn"}).ok


def test_other_arguments_are_left_to_a_body_that_takes_any() -> None:
    def note(**args: Any) -> Any:
        return args

    assert only_call(tool_from_schema(FORMS["messages"], note), {"city": "Bonn", "hour": 1}).value == {"city": "Bonn", "hour": 1}
    closed = {"name": "note", "input_schema": {**SCHEMA, "additionalProperties": False}}
    assert only_call(tool_from_schema(closed, note), {"city": "Bonn", "hour": 1}).error == "args:extra:hour"


def test_a_definition_without_a_schema_takes_nothing() -> None:
    tool = tool_from_schema({"name": "now"}, lambda: "noon")
    assert only_call(tool, None).value == "noon"
    assert only_call(tool, {"zone": "utc"}).error == "args:extra:zone"


def test_declared_fields_win_and_the_bodys_words_fill_in() -> None:
    tool = tool_from_schema({"name": "weather", "input_schema": SCHEMA}, weather, name="forecast")
    assert (tool.name, tool.description) == ("forecast", "Own words.")


def test_a_body_may_take_the_context_beside_the_schemas_arguments() -> None:
    def who(city: str, context: ToolContext) -> str:
        return f"{city} for {context.tool}"

    definition = {"name": "who", "input_schema": {"type": "object", "properties": {"city": {}}, "required": ["city"]}}
    assert only_call(tool_from_schema(definition, who), {"city": "Bonn"}).value == "Bonn for who"


WRONG: dict[str, tuple[Any, Any, str]] = {
    "no mapping": (3, weather, "the definition of a tool is 3; give {'type': 'function'"),
    "no inner mapping": ({"function": "weather"}, weather, "the definition's 'function' is 'weather'"),
    "no name": ({"input_schema": SCHEMA}, weather, "the definition's name is None"),
    "odd description": ({"name": "t", "description": 3}, weather, "its description is 3; give a text"),
    "two schemas": ({"name": "t", "parameters": SCHEMA, "input_schema": SCHEMA}, weather, "has parameters and input_schema"),
    "schema is a list": ({"name": "t", "parameters": [1]}, weather, "give a JSON Schema of an object"),
    "no schema": ({"name": "t", "parameters": {"type": "objekt"}}, weather, "this is no JSON Schema"),
    "of a text": ({"name": "t", "parameters": {"type": "string"}}, weather, "arguments are always an object"),
    "body lacks one": (FORMS["messages"], lambda city: city, "has the argument 'days', which its function does not take"),
    "body wants more": (FORMS["messages"], lambda city, days, hour: city, "its function needs 'days', which its contract may leave out"),
    "no body": (FORMS["messages"], None, "give a function"),
}


@pytest.mark.parametrize(("definition", "fn", "words"), WRONG.values(), ids=WRONG)
def test_what_makes_no_tool_is_refused_with_the_mend(definition: Any, fn: Any, words: str) -> None:
    with pytest.raises(ContractError) as told:
        tool_from_schema(definition, fn)
    assert words in str(told.value)


def test_a_second_contract_is_refused() -> None:
    with pytest.raises(ContractError, match="args is given twice"):
        tool_from_schema(FORMS["messages"], weather, args={})


def test_a_definition_is_read_without_making_anything_of_it() -> None:
    read = read_definition(FORMS["chat completions"])
    assert (read.name, read.description, read.schema) == ("weather", "Tells.", SCHEMA)


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(MissingExtra, match=r'pip install "fsm-agent\[jsonschema\]"'):
        tool_from_schema(FORMS["messages"], weather)
