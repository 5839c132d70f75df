"""Tools of a live table: what is changed in it counts at the next look, and what was not changed is not made again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import pytest

from fsm_agent.core.contracts import TableArguments
from fsm_agent.core.signatures import arguments_of
from fsm_agent.core.tools import Retry
from fsm_agent.core.values import EffectClass
from fsm_agent.host.live_tools import LiveTools


def body(n: int) -> dict[str, int]:
    return {"n": n}


def entry(**more: Any) -> dict[str, Any]:
    return {"fn": body, "args": {"n": {"type": "int"}}, "returns": {"n": {"type": "int"}}, **more}


def test_a_tool_is_made_once_while_its_entry_stays_as_it_is() -> None:
    tools = LiveTools({"t": entry()})
    tool = tools.get("t")

    assert tool is not None
    assert tools.get("t") is tool
    assert (tool.name, tool.fn, tool.effect, tool.breaker, tool.timeout_s) == ("t", body, EffectClass.PURE, None, None)


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "entry replaced": lambda tools: tools.update(t=entry()),
    "fn replaced": lambda tools: tools["t"].update(fn=lambda n: n),
    "args replaced": lambda tools: tools["t"].update(args={"n": {"type": "int"}}),
    "returns replaced": lambda tools: tools["t"].update(returns=None),
    "returns left out": lambda tools: tools["t"].pop("returns"),
    "a field added": lambda tools: tools["t"].update(timeout_s=1.0),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_makes_another_tool(change: Callable[[dict[str, Any]], Any]) -> None:
    entries = {"t": entry()}
    tools = LiveTools(entries)
    before = tools.get("t")
    change(entries)

    assert tools.get("t") not in (None, before)


FIELDS: dict[str, tuple[dict[str, Any], Callable[[dict[str, Any]], Any]]] = {
    "a field changed": ({"timeout_s": 1.0}, lambda one: one.update(timeout_s=2.0)),
    "a field removed": ({"timeout_s": 1.0}, lambda one: one.pop("timeout_s")),
    "a list edited": ({"secret": []}, lambda one: one["secret"].append(next(iter(one["args"])))),
    "a dict edited": ({"post": {}}, lambda one: one["post"].update(fine=bool)),
    "a schema edited": ({"args": {"type": "object"}}, lambda one: one["args"].update(maxProperties=1)),
    "a key swapped": ({"timeout_s": 1.0}, lambda one: (one.pop("timeout_s"), one.update(exclusive=True))),
}


@pytest.mark.parametrize(("more", "change"), FIELDS.values(), ids=FIELDS)
def test_a_field_beside_the_three_is_watched_too(more: dict[str, Any], change: Callable[[dict[str, Any]], Any]) -> None:
    entries = {"t": entry(**more)}
    tools = LiveTools(entries)
    before = tools.get("t")

    assert before is not None
    assert tools.get("t") is before
    change(entries["t"])
    assert tools.get("t") not in (None, before)


def test_a_table_edited_in_place_is_the_same_tool_with_another_measure() -> None:
    entries = {"t": entry()}
    tools = LiveTools(entries)
    tool = tools.get("t")
    entries["t"]["args"]["n"]["max"] = 1

    assert tools.get("t") is tool
    assert tool is not None
    assert isinstance(tool.args, TableArguments)
    assert tool.args.first_fault({"n": 2}) == "range:n"


def test_a_field_that_cannot_be_compared_is_read_anew() -> None:
    class Odd:
        def __eq__(self, other: object) -> bool:
            raise RuntimeError("no")

        __hash__ = None  # type: ignore[assignment]

    entries = {"t": entry(note=Odd())}
    tools = LiveTools(entries)

    assert tools.get("t") is not None
    entries["t"]["note"] = Odd()
    assert tools.get("t") is not None


@pytest.mark.parametrize(
    ("declared", "name", "value"),
    [
        ({"effect": "at_most_once"}, "effect", EffectClass.AT_MOST_ONCE),
        ({"retry": Retry(attempts=2)}, "retry", Retry(attempts=2)),
        ({"exclusive": True, "unknown": 5}, "exclusive", True),
        ({"secret": {"n"}}, "secret", frozenset({"n"})),
        ({"name": "other"}, "name", "t"),
    ],
)
def test_further_keys_are_fields_of_the_tool(declared: dict[str, Any], name: str, value: Any) -> None:
    assert getattr(LiveTools({"t": entry(**declared)}).get("t"), name) == value


class Unreadable(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class Named(StrEnum):
    T = "t"


class Unhashable(str):
    def __hash__(self) -> int:
        raise RuntimeError("no")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")


@pytest.mark.parametrize("name", [Named.T, type("Text", (str,), {})("t"), Unhashable("t")], ids=range(3))
def test_a_text_of_a_class_of_its_own_names_what_its_text_names(name: Any) -> None:
    tools = LiveTools({"t": entry()})

    assert tools.get(name) is tools.get("t") is not None
    assert tools.argument_names(name) == ["n"]
    assert LiveTools({Named.T: entry()}).names() == ["t"]


class Raising(dict[Any, Any]):
    def _raise(self, *args: Any) -> Any:
        raise RuntimeError("no")

    get = __getitem__ = __iter__ = __len__ = __contains__ = keys = items = values = __eq__ = _raise
    __hash__ = None


@pytest.mark.parametrize("entries", [Raising(t=entry()), {"t": Raising(entry())}, {"t": entry(args=Raising(n={}))}], ids=range(3))
def test_a_table_an_entry_or_a_contract_that_raises_when_it_is_read_makes_no_tool(entries: Any) -> None:
    tools = LiveTools(entries)

    for _ in range(2):
        assert tools.get("t") is None
        assert tools.argument_names("t") is None
        assert tools.names() in ([], ["t"])


def test_the_names_of_arguments_may_be_gone_through_while_the_contract_is_edited() -> None:
    entries = {"t": entry()}
    names = LiveTools(entries).argument_names("t")
    entries["t"]["args"]["more"] = {}

    assert names == ["n"]


@pytest.mark.parametrize("name", [None, 5, [], {}, b"t", "T", "", "\ud800", object()], ids=range(9))
def test_what_is_no_text_of_the_table_is_no_name(name: Any) -> None:
    tools = LiveTools({"t": entry()})

    assert tools.get(name) is None
    assert tools.argument_names(name) is None


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        5,
        "t",
        [],
        entry(effect="odd"),
        entry(retry=3),
        entry(secret=5),
        entry(timeout_s=0),
        entry(timeout_s="1"),
        entry(cache_ttl_s=1, effect="idempotent"),
        entry(args={"type": "nothing"}),
        entry(returns={"type": "nothing"}),
    ],

)
def test_an_entry_that_makes_no_tool_is_none(wrong: Any) -> None:
    entries = {"t": wrong}
    tools = LiveTools(entries)

    assert tools.get("t") is None
    entries["t"] = entry()
    assert tools.get("t") is not None


@pytest.mark.parametrize("made", [{}, Unreadable(), entry(fn=None), entry(fn="body"), MappingProxyType({})], ids=range(5))
def test_an_entry_without_a_function_can_be_measured_and_not_called(made: Any) -> None:
    tool = LiveTools({"t": made}).get("t")

    assert tool is not None
    assert tool.build is not None
    for call in (tool.build, tool.fn):
        with pytest.raises(TypeError, match="the tool's entry has no function under 'fn'"):
            call({})


@pytest.mark.parametrize(
    ("args", "names"),
    [
        ({"n": {"type": "int"}, "m": {}}, ["n", "m"]), ({}, []), (None, None), (5, None),
        ({"type": "object", "properties": {"a": {}, "b": {}}}, ["a", "b"]), ({"type": "object"}, []),
        (MappingProxyType({"n": {"type": "int"}}), ["n"]), (arguments_of(body), ["n"]),
    ],
)  # fmt: skip
def test_the_names_of_arguments_are_those_of_the_contract(args: Any, names: list[str] | None) -> None:
    found = LiveTools({"t": entry(args=args)}).argument_names("t")

    assert (None if found is None else list(found)) == names


@pytest.mark.parametrize("made", [None, 5, [], {"fn": body}])
def test_without_a_contract_there_are_no_names(made: Any) -> None:
    assert LiveTools({"t": made}).argument_names("t") is None
    assert LiveTools({}).argument_names("t") is None


def test_the_names_of_tools_are_the_texts_among_the_keys() -> None:
    entries: dict[Any, Any] = {"a": entry(), 5: entry(), "b": None}
    tools = LiveTools(entries)

    assert list(tools.names()) == ["a", "b"]
    del entries["a"]
    assert list(tools.names()) == ["b"]


def test_a_ready_contract_is_taken_as_it_is() -> None:
    contract = arguments_of(body)
    tool = LiveTools({"t": entry(args=contract)}).get("t")

    assert tool is not None
    assert tool.args is contract
