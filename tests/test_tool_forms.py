"""Tools out of functions, table entries, JSON Schemas and Tools; what contradicts itself is refused with the mend."""

from __future__ import annotations

import asyncio
import functools
import inspect
from typing import Annotated, Any, Literal

import attrs
import pytest

from fsm_agent import Agent, Range, ToolCall, ToolContext
from fsm_agent.core.contracts import TableArguments, TableResult
from fsm_agent.core.errors import ContractError
from fsm_agent.core.schemas import SchemaArguments, SchemaResult
from fsm_agent.core.signatures import TypedResult, arguments_of, result_of
from fsm_agent.core.tools import BreakerPolicy, Retry, Tool, Toolset
from fsm_agent.core.values import EffectClass
from fsm_agent.host.tool_forms import arguments_form, is_schema, make_tool, result_form, tool, toolset


@attrs.frozen
class Place:
    city: str
    zip: int = 0


def look_up(sku: str, region: Literal["seoul", "busan"], limit: Annotated[int, Range(1, 2)] = 2) -> list[str]:
    """Find the item.

    Args:
        sku: the item
    """
    return [f"{sku} {region}"] * limit


async def alook_up(sku: str) -> list[str]:
    """Find the item, later."""
    await asyncio.sleep(0)
    return [sku]


def greet(place: Place, context: ToolContext | None = None) -> str:
    return f"{type(place).__name__} {place.city} {'-' if context is None else context.context}"


class Callable_:
    def __call__(self, n: int) -> int:
        """Add one."""
        return n + 1

    def method(self, n: int) -> int:
        return n + 2


SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "maximum": 9}},
    "required": ["n"],
    "additionalProperties": False,
}
TABLE = {"n": {"type": "int", "max": 9}}


def call(made: Tool, **args: Any) -> Any:
    """What an agent with this one tool finds when it calls it once, or the error word."""
    turns = iter([ToolCall(made.name, args)])
    answer = Agent([made], lambda ask: next(turns, "done")).run("go", context="mine")
    assert answer.run is not None
    last = answer.run.calls[-1]
    return last.value if last.ok else last.error


# -- functions -------------------------------------------------------------------------------------------------------


def test_a_typed_function_is_a_tool() -> None:
    made = make_tool(look_up)

    assert (made.name, made.description, made.effect) == ("look_up", "Find the item.", EffectClass.UNDECLARED)
    assert made.args is not None
    assert made.args.first_fault({"sku": "a"}) == "missing:region"
    assert made.args.first_fault({"sku": "a", "region": "jeju"}) == "allowed:region"
    assert made.args.first_fault({"sku": "a", "region": "busan", "limit": 3}) == "range:limit"
    assert made.args.json_schema()["properties"]["sku"]["description"] == "the item"
    assert call(made, sku="a", region="busan", limit=1) == ["a busan"]
    assert call(made, sku="a", region="busan") == ["a busan"] * 2


@pytest.mark.parametrize(
    ("fn", "name", "args", "found"),
    [
        (alook_up, "alook_up", {"sku": "a"}, ["a"]),
        (functools.partial(look_up, region="seoul"), "look_up", {"sku": "a", "limit": 1}, ["a seoul"]),
        (functools.partial(functools.partial(alook_up)), "alook_up", {"sku": "a"}, ["a"]),
        (Callable_().method, "method", {"n": 1}, 3),
        (greet, "greet", {"place": {"city": "Ulsan"}}, "Place Ulsan mine"),
    ],
)  # fmt: skip
def test_any_named_function_will_do(fn: Any, name: str, args: dict[str, Any], found: Any) -> None:
    made = make_tool(fn)

    assert made.name == name
    assert call(made, **args) == found


def test_an_object_that_can_be_called_needs_a_name() -> None:
    with pytest.raises(ContractError, match="a tool's name must be a non-empty text; give it one"):
        make_tool(Callable_())
    assert call(make_tool(Callable_(), name="plus"), n=1) == 2


def test_what_a_partial_binds_is_no_argument() -> None:
    made = make_tool(functools.partial(look_up, sku="secret"))

    assert made.args is not None
    assert list(made.args.json_schema()["properties"]) == ["region", "limit"]
    assert call(made, region="seoul", sku="mine") == "args:extra:sku"


def test_the_signature_is_read_once_and_not_at_each_call(capsys: pytest.CaptureFixture[str]) -> None:
    class Chatty:
        __name__ = "chatty"

        @property
        def __signature__(self) -> inspect.Signature:
            print("read")
            return inspect.signature(lambda n: n)

        def __call__(self, n: int) -> int:
            return n

    made = make_tool(Chatty())
    capsys.readouterr()
    assert call(made, n=1) == 1
    assert "read" not in capsys.readouterr().out


def test_the_decorator_takes_fields_of_the_tool_or_none() -> None:
    @tool
    def one(n: int) -> int:
        return n

    @tool(name="other", effect="pure", timeout_s=5, retry=Retry(attempts=2), breaker=None, secret=["n"])
    def two(n: int) -> int:
        """Two."""
        return n

    assert isinstance(one, Tool)
    assert (one.name, one.timeout_s, one.breaker) == ("one", None, BreakerPolicy())
    assert (two.name, two.effect, two.timeout_s, two.retry.attempts, two.breaker) == ("other", "pure", 5, 2, None)
    assert (two.secret, two.description) == (frozenset({"n"}), "Two.")


@pytest.mark.parametrize("fn", [lambda *args: 1, lambda **args: 1, print, 5, None])
def test_a_signature_that_makes_no_contract_is_refused(fn: Any) -> None:
    with pytest.raises(ContractError):
        make_tool(fn)


# -- contracts in other forms ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        (TABLE, TableArguments),
        ({}, TableArguments),
        (SCHEMA, SchemaArguments),
        (arguments_of(look_up), TableArguments),
        (None, type(None)),
    ],
)
@pytest.mark.parametrize("name", ["", "t"])
def test_arguments_come_in_three_forms(form: Any, kind: type, name: str) -> None:
    made = arguments_form(form, name)

    assert type(made) is kind
    assert made is form or is_schema(form) or isinstance(form, dict)


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        (TABLE, TableResult),
        ({}, TableResult),
        ({"type": "array"}, SchemaResult),
        (result_of(look_up), TypedResult),
        (None, type(None)),
        ({"type": "list", "item": {"type": "str"}}, TypedResult),
        ({"type": "int"}, TypedResult),
        ({"type": "any"}, TypedResult),
    ],
)
@pytest.mark.parametrize("name", ["", "t"])
@pytest.mark.parametrize("empty_ok", [True, False])
def test_results_come_in_four(form: Any, kind: type, name: str, empty_ok: bool) -> None:
    made = result_form(form, name, empty_ok=empty_ok)

    assert type(made) is kind
    if isinstance(form, dict):
        assert getattr(made, "empty_ok", None) is empty_ok


@pytest.mark.parametrize(
    ("form", "wanted"),
    [(SCHEMA, True), ({"type": {"type": "str"}}, False), ({}, False), (None, False), ("type", False)],
)
def test_a_mapping_with_a_type_of_text_is_a_schema(form: Any, wanted: bool) -> None:
    assert is_schema(form) is wanted


@pytest.mark.parametrize("args", [TABLE, SCHEMA, arguments_of(lambda n: n)], ids=["table", "schema", "contract"])
@pytest.mark.parametrize(
    "returns", [None, {"m": {"type": "int"}}, {"type": "object", "required": ["m"]}], ids=["none", "table", "schema"]
)
def test_every_form_of_arguments_goes_with_every_form_of_result(args: Any, returns: Any) -> None:
    made = make_tool(lambda n: {"m": n}, name="t", args=args, returns=returns)

    assert call(made, n=3) == {"m": 3}
    assert call(made) == "args:missing:n"
    wrong = make_tool(lambda n: {"k": n}, name="t", args=args, returns=returns)
    assert call(wrong, n=3) == ({"k": 3} if returns is None else "result:shape")


def test_a_context_is_given_whatever_the_form_of_the_contract() -> None:
    def body(n: int, context: ToolContext) -> Any:
        return context.context

    assert call(make_tool(body, args=TABLE), n=1) == "mine"
    assert call(make_tool(body), n=1) == "mine"
    assert call(make_tool(lambda n, c: c.context, name="t", args=TABLE, context_parameter="c"), n=1) == "mine"


def test_annotations_that_nobody_needs_may_be_unreadable() -> None:
    def body(n: Nowhere) -> Nowhere:  # type: ignore[name-defined]  # noqa: F821
        return n

    assert call(make_tool(body, args=TABLE, returns={"type": "int"}), n=1) == 1
    with pytest.raises(ContractError, match="cannot be resolved"):
        make_tool(body)


# -- refusals --------------------------------------------------------------------------------------------------------

ENTRY: dict[str, Any] = {"name": "t", "args": TABLE}
WRONG: dict[str, tuple[Any, dict[str, Any], str]] = {
    "unknown field": (
        lambda n: n,
        {"timeout": 5},
        r"tool 't': there is no field 'timeout'; did you mean 'timeout_s'\? a tool has approval, breaker, build, ",
    ),
    "no name": (lambda n: n, {"name": ""}, "a tool's name must be a non-empty text; give it one"),
    "a number for a name": (lambda n: n, {"name": 5}, "tool 5: a tool's name must be a non-empty text"),
    "no body": (5, {}, "tool 't': its body is 5; give a function"),
    "bad table": (
        lambda n: n,
        {"args": {"n": {"type": "integer"}}},
        "tool 't', argument 'n': the type 'integer' is unknown",
    ),
    "table of nothing": (lambda n: n, {"args": 5}, "tool 't': its arguments' contract is 5"),
    "bad schema": (lambda n: n, {"args": {"type": "string"}}, "tool 't', arguments: their type is 'string'"),
    "bad result": (
        lambda n: n,
        {"returns": {"n": {"type": "int", "min": 2, "max": 1}}},
        "tool 't', result 'n': min 2 is greater than max 1",
    ),
    "bad rule": (lambda n: n, {"returns": {"type": "list", "max_len": -1}}, "tool 't', result 'result': max_len is -1"),
    "result of nothing": (lambda n: n, {"returns": 5}, "tool 't': its result's contract is 5"),
    "unknown effect": (
        lambda n: n,
        {"effect": "odd"},
        "tool 't': effect is 'odd'; it may be pure, idempotent, at_most_once, undeclared",
    ),
    "text for seconds": (lambda n: n, {"timeout_s": "5"}, "tool 't': timeout_s is '5'; give a number above 0, or None"),
    "number for retry": (lambda n: n, {"retry": 5}, r"tool 't': retry is 5; give a Retry\(\.\.\.\)"),
    "number for secrets": (lambda n: n, {"secret": 5}, "tool 't': secret is 5; give a list of argument names"),
    "memory of effects": (
        lambda n: n,
        {"cache_ttl_s": 5},
        "memory is for pure tools and this one is undeclared; declare effect='pure'",
    ),
    "not taken": (
        lambda m: m,
        {},
        "its contract has the argument 'n', which its function does not take; give the function that parameter",
    ),
    "not named": (
        lambda n, m: n,
        {},
        "its function needs 'm', which its contract does not name; require it in the contract",
    ),
    "left out": (
        lambda n: n,
        {"args": {"n": {"type": "int", "required": False}}},
        "its function needs 'n', which its contract may leave out; .* or give the parameter a default",
    ),
    "left out of a schema": (
        lambda n: n,
        {"args": {"type": "object", "properties": {"n": {}}}},
        "needs 'n', which its contract may leave out",
    ),
}


@pytest.mark.parametrize(("fn", "fields", "words"), WRONG.values(), ids=WRONG)
def test_what_contradicts_itself_is_refused_with_the_mend(fn: Any, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ContractError, match=words) as refused:
        make_tool(fn, **{**ENTRY, **fields})
    assert str(refused.value).count("tool 't'") <= 1


@pytest.mark.parametrize(
    "fn",
    [
        lambda n: n,
        lambda n, m=1: n,
        lambda **args: args["n"],
        lambda n, *rest: n,
        lambda n, **rest: n,
        functools.partial(lambda n, m: n, m=1),
        int.__new__,
    ],
)
def test_a_function_that_can_be_called_by_its_contract_is_taken(fn: Any) -> None:
    assert make_tool(fn, **ENTRY).fn is fn
    assert make_tool(min, **ENTRY, returns={"type": "any"}).fn is min


def test_a_builder_may_make_other_arguments_of_them() -> None:
    made = make_tool(lambda total: total, name="t", args=TABLE, build=lambda args: {"total": args["n"] + 1})

    assert call(made, n=1) == 2


# -- toolsets --------------------------------------------------------------------------------------------------------


def plain(n: int) -> int:
    return n


READY = make_tool(plain, name="ready")


def test_a_list_of_tools_and_functions() -> None:
    tools = toolset([READY, look_up, alook_up])

    assert list(tools.names()) == ["ready", "look_up", "alook_up"]
    assert tools.get("ready") is READY


def test_a_mapping_names_tools_functions_and_entries() -> None:
    tools = toolset(
        {
            "a": READY,
            "b": plain,
            "c": {"fn": lambda n: n, "args": TABLE, "effect": "pure"},
            "d": {"fn": plain, "name": "x"},
        }
    )

    assert list(tools.names()) == ["a", "b", "c", "d"]
    assert [tools.get(name).name for name in "abcd"] == ["a", "b", "c", "d"]  # type: ignore[union-attr]
    assert READY.name == "ready"


@pytest.mark.parametrize("tools", [[], {}, ()])
def test_no_tools_are_a_toolset_too(tools: Any) -> None:
    assert isinstance(toolset(tools), Toolset)


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ([plain, plain], "two tools are named 'plain'; give each its own name"),
        ([READY, make_tool(plain, name="ready")], "two tools are named 'ready'"),
        ([5], "5 makes no tool; give a Tool, a typed function or a mapping with 'fn'"),
        ({"t": None}, "None makes no tool"),
        ({"t": {}}, "tool 't': its entry has no function under 'fn'; give one"),
        ({"t": {"fn": 5}}, "tool 't': its entry has no function under 'fn'"),
        ({"t": {"fn": plain, 5: 6}}, "tool 't': there is no field '5'"),
        ({5: plain}, "tool 5: a tool's name must be a non-empty text"),
        ({"": plain}, "a tool's name must be a non-empty text"),
        ({5: READY}, "tool 5: a tool's name must be"),
        (5, "5 is no set of tools; give a list of tools, or a mapping of names to them"),
        (None, "None is no set of tools"),
        ("plain", "'plain' is no set of tools"),
        (plain, "is no set of tools"),
        (READY, "is no set of tools"),
    ],
)
def test_what_makes_no_tools_is_refused(tools: Any, words: str) -> None:
    with pytest.raises(ContractError, match=words):
        toolset(tools)
