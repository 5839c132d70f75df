from __future__ import annotations

import asyncio
import inspect
import json
import sys
from typing import Annotated, Any, Literal

import pytest

from fsm_agent import Limits
from fsm_agent.core.contracts import Range
from fsm_agent.core.errors import MissingExtra
from fsm_agent.core.tools import Tool
from fsm_agent.guarded import Guarded, Session
from fsm_agent.guarded_functions import annotation_of
from fsm_agent.host.tool_forms import make_tool

# What the models below ask for, one call a turn: the same call three times, two that break the contract, two that keep it.
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("find", {"word": "a"}),
    ("find", {"word": "a"}),
    ("find", {"word": 3}),
    ("find", {"word": "a", "colour": "red"}),
    ("find", {"word": "b"}),
    ("find", {"word": "c"}),
    ("find", {"word": "a"}),
    ("find", {"word": "d"}),
]
TOLD = [
    "found a",
    "found a",
    "args:type:word",
    "args:extra:colour",
    "found b",
    "skipped:max_tool_calls",
    "stopped:max_tool_calls",
    "stopped:max_tool_calls",
]
LIMITS = Limits(max_turns=None, max_tool_calls=3)
REPEATED = [("find", {"word": "a"})] * 4
TOLD_REPEATED = ["found a", "found a", "refused:duplicate", "stopped:duplicate_call"]


class Shop:
    """One tool that notes what reached its body."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.calls: list[str] = []
        self.session: Session = Guarded([self.find], limits=limits).session()

    def find(self, word: str, limit: Annotated[int, Range(1, 9)] = 5) -> str:
        """Find things.

        Args:
            word: what is looked for
        """
        self.calls.append(word)
        return f"found {word}"

    def check(self, told: list[str], wanted: list[str], reached: list[str]) -> None:
        assert [text.split(" (")[0] for text in told] == wanted
        assert self.calls == reached


def test_functions_have_name_documentation_and_signature_of_the_contract() -> None:
    shop = Shop()
    (find,) = shop.session.as_functions()
    assert (find.__name__, inspect.iscoroutinefunction(find)) == ("find", False)
    assert find.__doc__ == "Find things.\n\nArgs:\n    word: what is looked for"
    assert str(inspect.signature(find)) == "(word: str, limit: int = 5) -> str"
    assert find.__annotations__ == {"word": str, "limit": int, "return": str}
    assert find("a") == find(word="a", limit=5) == "found a"
    assert find("b", 99).startswith("args:range:limit")
    assert find("b", colour="red").startswith("args:extra:colour")
    with pytest.raises(TypeError, match="takes 2 arguments and 3 were given"):
        find("a", 1, 2)
    with pytest.raises(TypeError, match="got the argument 'word' twice"):
        find("a", word="b")


def test_coroutine_functions_are_given_where_they_are_asked_for() -> None:
    shop = Shop()
    (find,) = shop.session.as_functions(asynchronous=True)
    assert inspect.iscoroutinefunction(find)
    assert asyncio.run(find("a")) == "found a"
    assert str(inspect.signature(find)) == "(word: str, limit: int = 5) -> str"


def test_an_optional_argument_that_is_none_is_absent_unless_its_contract_takes_null() -> None:
    got: list[Any] = []

    def note(**args: Any) -> str:
        got.append(args)
        return "ok"

    table = {"a": {"type": "int", "required": False}, "b": {"type": ["int", "null"], "required": False}, "c": {"type": "str"}}
    (function,) = Guarded([make_tool(note, args=table)]).session().as_functions()
    assert str(inspect.signature(function)) == "(c: str, a: Optional[int] = None, b: Optional[int] = None) -> str"
    assert function("x", None, None) == "ok"
    assert got == [{"c": "x", "b": None}]
    assert function(None).startswith("args:type:c")


def test_names_that_python_does_not_take_are_given_by_keyword() -> None:
    table = {"from": {"type": "str"}, "to-day": {"type": "str", "required": False}}
    (function,) = Guarded([make_tool(lambda **args: json.dumps(args), name="log", args=table)]).session().as_functions()
    assert str(inspect.signature(function)) == "(**arguments: Any) -> str"
    assert function(**{"from": "a", "to-day": "b"}) == '{"from": "a", "to-day": "b"}'
    assert function(to="a").startswith("args:missing:from")


def test_none_is_left_to_a_contract_that_takes_it_in_another_way() -> None:
    got: list[Any] = []

    def note(**args: Any) -> str:
        got.append(args)
        return "ok"

    properties: dict[str, Any] = {
        "a": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "b": {"enum": ["x", None]},
        "c": {"enum": ["x"]},
        "d": {"oneOf": [{"type": "integer"}]},
        "e": True,
    }
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    (function,) = Guarded([make_tool(note, args=schema)]).session().as_functions()
    assert function(None, None, None, None, None) == "ok"
    assert got == [{"a": None, "b": None, "e": None}]


def test_a_tool_without_a_contract_takes_anything_by_name() -> None:
    bare = Tool(name="bare", fn=lambda **args: sorted(args))
    (function,) = Guarded([bare]).session().as_functions()
    assert str(inspect.signature(function)) == "(**arguments: Any) -> str"
    assert (function(b=1, a=2), function.__doc__) == ('["a","b"]', "bare")


@pytest.mark.parametrize(
    ("schema", "annotation"),
    [
        ({"type": "string"}, str),
        ({"type": "number"}, float),
        ({"enum": ["a", 1, None]}, Literal["a", 1, None]),
        ({"enum": [[1]]}, Any),
        ({"type": ["integer", "null"]}, int | None),
        ({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer"}}]}, str | list[int]),
        ({"type": "array"}, list),
        ({"type": "object"}, dict[str, Any]),
        ({"type": "object", "additionalProperties": {"type": "boolean"}}, dict[str, bool]),
        ({"type": "null"}, None),
        ({"$ref": "#/$defs/x"}, Any),
        (True, Any),
    ],
)
def test_annotations_say_what_the_schema_says(schema: Any, annotation: Any) -> None:
    assert annotation_of(schema) == annotation


@pytest.mark.parametrize(
    ("module", "method", "extra"),
    [
        ("pydantic_ai", "for_pydantic_ai", "pydantic-ai"),
        ("agents", "for_openai_agents", "openai-agents"),
        ("langchain_core.tools", "for_langchain", "langchain"),
    ],
)
def test_a_framework_that_is_not_installed_is_named(module: str, method: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf'pip install "fsm-agent\[{extra}\]"'):
        getattr(Shop().session, method)()


@pytest.mark.parametrize(
    ("asked", "told", "limits", "reached"),
    [(ASKED, TOLD, LIMITS, ["a", "a", "b"]), (REPEATED, TOLD_REPEATED, None, ["a", "a"])],
)
class TestFrameworks:
    """Each framework's own loop, driven by a model with a script, over the same calls."""

    def test_a_pydantic_ai_agent_is_guarded(self, asked: Any, told: Any, limits: Any, reached: Any) -> None:
        pydantic_ai = pytest.importorskip("pydantic_ai", reason="no Pydantic AI; pip install pydantic-ai-slim")
        from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
        from pydantic_ai.models.function import FunctionModel

        shop, left = Shop(limits), list(asked)

        def model(messages: list[Any], info: Any) -> ModelResponse:
            (offered,) = info.function_tools
            assert offered.parameters_json_schema == shop.session.tools[0].args.json_schema()
            if not left:
                return ModelResponse(parts=[TextPart("done")])
            name, args = left.pop(0)
            return ModelResponse(parts=[ToolCallPart(name, args)])

        agent = pydantic_ai.Agent(FunctionModel(model), tools=shop.session.for_pydantic_ai())
        result = asyncio.run(agent.run("go"))
        assert result.output == "done"
        parts = [part for message in result.all_messages() for part in message.parts]
        shop.check([part.content for part in parts if isinstance(part, ToolReturnPart)], told, reached)

    def test_an_agent_of_the_openai_sdk_is_guarded(self, asked: Any, told: Any, limits: Any, reached: Any) -> None:
        agents = pytest.importorskip("agents", reason="no OpenAI Agents SDK; pip install openai-agents")
        from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

        shop, left = Shop(limits), list(asked)

        class Scripted(agents.Model):  # type: ignore[name-defined, misc]
            async def get_response(self, *args: Any, **named: Any) -> Any:
                number = len(left)
                if left:
                    name, wanted = left.pop(0)
                    item: Any = ResponseFunctionToolCall(
                        type="function_call", call_id=f"c{number}", name=name, arguments=json.dumps(wanted)
                    )
                else:
                    text = ResponseOutputText(type="output_text", text="done", annotations=[])
                    item = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
                return agents.ModelResponse(output=[item], usage=agents.Usage(), response_id=None)

            def stream_response(self, *args: Any, **named: Any) -> Any:
                raise NotImplementedError

        tools = shop.session.for_openai_agents()
        assert tools[0].params_json_schema == shop.session.tools[0].args.json_schema()  # type: ignore[union-attr]
        agent = agents.Agent(name="a", model=Scripted(), tools=tools)
        config = agents.RunConfig(tracing_disabled=True)
        result = asyncio.run(agents.Runner.run(agent, "go", max_turns=20, run_config=config))
        assert result.final_output == "done"
        outputs = [item.output for item in result.new_items if item.type == "tool_call_output_item"]
        shop.check(outputs, told, reached)

    @pytest.mark.parametrize("asynchronous", [False, True])
    def test_langchain_tools_are_guarded(self, asked: Any, told: Any, limits: Any, reached: Any, asynchronous: bool) -> None:
        pytest.importorskip("langchain_core", reason="no LangChain; pip install langchain-core")
        from langchain_core.messages import AIMessage
        from langchain_core.utils.function_calling import convert_to_openai_tool

        shop = Shop(limits)
        (find,) = shop.session.for_langchain()
        assert convert_to_openai_tool(find)["function"]["parameters"] == shop.session.tools[0].args.json_schema()  # type: ignore[union-attr]
        texts: list[str] = []
        for number, (name, args) in enumerate(asked):
            message = AIMessage("", tool_calls=[{"name": name, "args": args, "id": str(number)}])
            call = message.tool_calls[0]
            answer = asyncio.run(find.ainvoke(call)) if asynchronous else find.invoke(call)
            assert answer.tool_call_id == str(number)
            texts.append(answer.content)
        shop.check(texts, told, reached)


def test_parallel_calls_of_a_pydantic_ai_turn_share_the_budget() -> None:
    pydantic_ai = pytest.importorskip("pydantic_ai", reason="no Pydantic AI; pip install pydantic-ai-slim")
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    shop = Shop(Limits(max_turns=None, max_tool_calls=2))
    turns = [ModelResponse(parts=[ToolCallPart("find", {"word": word}) for word in "abcd"]), ModelResponse(parts=[TextPart("done")])]
    agent = pydantic_ai.Agent(FunctionModel(lambda messages, info: turns.pop(0)), tools=shop.session.for_pydantic_ai())
    assert asyncio.run(agent.run("go")).output == "done"
    assert shop.calls == ["a", "b"]
