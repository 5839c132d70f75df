"""Offered tools in a provider's form: made once for the same offers, and found again by their wire names."""

from __future__ import annotations

from typing import Any

import attrs

from fsm_agent.core.messages import Message, Role, ToolOffer
from fsm_agent.core.values import ToolCall
from fsm_agent.host.model import ModelRequest
from fsm_agent.models.offered import Offered
from fsm_agent.models.tool_names import wire_name

ADD, DOTTED = ToolOffer(name="add"), ToolOffer(name="web.search")


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
