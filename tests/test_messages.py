"""The words between a user, a model and tools: records that belong to no provider."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from fsm_agent.core.messages import History, Message, Purpose, Role, ToolOffer
from fsm_agent.core.values import ToolCall


def test_the_roles_and_purposes_are_those_written_down() -> None:
    assert [role.value for role in Role] == ["system", "user", "assistant", "tool"]
    assert [purpose.value for purpose in Purpose] == ["decide", "close", "synthesize", "verify"]


@pytest.mark.parametrize("role", [*Role, *(role.value for role in Role)])
def test_a_message_takes_its_role_as_member_or_text(role: Any) -> None:
    message = Message(role=role)
    assert type(message.role) is Role
    assert (message.text, message.calls, message.call_id, message.tool, message.error) == ("", (), "", "", "")


@pytest.mark.parametrize("role", ["developer", "", None, 5])
def test_an_unknown_role_is_refused(role: Any) -> None:
    with pytest.raises(ValueError, match=r"^Message\(role=\) is .*; it may be system, user, assistant, tool$"):
        Message(role=role)


def test_messages_are_equal_by_what_they_hold_and_cannot_be_changed() -> None:
    one = Message(role=Role.ASSISTANT, text="hi", calls=(ToolCall("look", {"q": 1}, "c1"),))
    assert one == Message(role=Role.ASSISTANT, text="hi", calls=(ToolCall("look", {"q": 1}, "c1"),))
    assert one != attrs.evolve(one, text="ho")
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        one.text = "ho"  # type: ignore[misc]


def test_an_offer_without_a_schema_has_one_of_its_own() -> None:
    one, other = ToolOffer(name="look"), ToolOffer(name="look")
    assert (one.description, one.schema) == ("", {})
    assert one.schema is not other.schema


def test_a_history_is_the_list_as_it_stood_then() -> None:
    said = [Message(role=Role.USER, text=str(n)) for n in range(3)]
    then, history = list(said), History(said)
    said.append(Message(role=Role.ASSISTANT, text="later"))

    assert (len(history), list(history), repr(history)) == (3, then, repr(then))
    assert (history[0], history[-1], history[-3], history[1:], history[::-1]) == (then[0], then[2], then[0], then[1:], then[::-1])
    for beyond in (3, -4):
        with pytest.raises(IndexError, match=f"message {beyond} of a history of 3"):
            history[beyond]


def test_a_history_equals_what_holds_the_same_messages() -> None:
    said = [Message(role=Role.USER, text=str(n)) for n in range(3)]
    history = History(said)

    assert [history == one for one in (said, tuple(said), History(list(said)))] == [True] * 3
    assert [history == one for one in (said[:2], [*said, said[0]], said[::-1], History([]), "012", None)] == [False] * 6
