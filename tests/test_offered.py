"""Offered tools in a provider's form: made once for the same offers, and found again by their wire names."""

from __future__ import annotations

import re
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.core.messages import Message, Role, ToolOffer
from fsm_agent.core.values import ToolCall
from fsm_agent.host.model import ModelRequest
from fsm_agent.models.offered import Offered, wire_name

ADD, DOTTED = ToolOffer(name="add"), ToolOffer(name="web.search")
FIT = re.compile(r"[a-zA-Z0-9_-]{1,64}")
NAMES = st.text() | st.from_regex(r"\A[a-z._]{1,70}(_[0-9a-f]{12})?\Z")


def test_the_same_offers_are_turned_once() -> None:
    turned: list[str] = []

    def form(offer: ToolOffer) -> dict[str, Any]:
        turned.append(offer.name)
        return {"name": offer.name}

    offered = Offered(form)
    for tools in ((ADD, DOTTED), (ADD, DOTTED), (ADD,), ()):
        assert offered.of(tuple(tools)) == [{"name": tool.name} for tool in tools]
    assert turned == ["add", "web.search", "add"]


def test_the_callers_list_is_its_own() -> None:
    offered, tools = Offered(lambda offer: {}), (ADD,)
    offered.of(tools).clear()

    assert offered.of(tools) == [{}]


def test_a_name_is_found_among_the_offers_and_in_the_history_else_it_stays() -> None:
    offered = Offered(lambda offer: {})
    now = ModelRequest(tools=(ADD, DOTTED))
    called = Message(role=Role.ASSISTANT, calls=(ToolCall("old.one"), ToolCall("web.search")))
    spent = ModelRequest(tools=(ADD,), messages=[called, Message(role=Role.USER, text="x")])

    assert offered.own_name(wire_name("web.search"), now) == "web.search"
    assert offered.own_name("add", now) == "add"
    assert offered.own_name(wire_name("web.search"), spent) == "web.search"
    assert offered.own_name(wire_name("old.one"), spent) == "old.one"
    assert offered.own_name("nothing", spent) == "nothing"
    assert offered.own_name(None, now) == ""
    assert offered.own_name(wire_name("web.search"), attrs.evolve(spent, messages=())) == wire_name("web.search")


def test_a_name_that_stands_for_itself_is_not_looked_for_in_the_history() -> None:
    class Unread(list[Message]):
        def __reversed__(self) -> Any:
            raise AssertionError("the history was read")

    assert Offered(lambda offer: {}).own_name("nothing", ModelRequest(tools=(ADD,), messages=Unread())) == "nothing"


# ---- names


@pytest.mark.parametrize("name", ["add", "web-search", "A_1", "x" * 64, "_", "get_deadbeef"])
def test_a_fit_name_stays_as_it_is(name: str) -> None:
    assert wire_name(name) == name


@pytest.mark.parametrize("name", ["", "web.search", "we b", "日本", "x" * 65, "a/b:c", "\ud835", "add\n", "t_0123456789ab"])
def test_any_other_name_goes_out_fit_and_is_found_again(name: str) -> None:
    wire = wire_name(name)

    assert FIT.fullmatch(wire)
    assert wire != name
    assert Offered(lambda offer: {}).own_name(wire, ModelRequest(tools=(ToolOffer(name=name),))) == name


def test_a_fit_part_can_still_be_read() -> None:
    assert wire_name("web.search").startswith("web_search_")
    assert wire_name("").startswith("tool_")


def test_a_name_that_looks_like_anothers_wire_name_is_told_apart() -> None:
    taken = wire_name("web.search")

    assert len(set(map(wire_name, ["web.search", "web/search", "web search", taken, wire_name(taken)]))) == 5


@given(st.sets(NAMES, max_size=30))
def test_no_two_names_meet(names: set[str]) -> None:
    wire = set(map(wire_name, names))

    assert len(wire) == len(names)
    assert all(map(FIT.fullmatch, wire))
