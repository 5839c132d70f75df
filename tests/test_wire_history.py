"""A history in groups: one result for each call, ids of their own, and the same whether it grew or came at once."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.core.messages import Message, Role
from fsm_agent.core.values import ToolCall
from fsm_agent.models.wire_history import Group, WireHistory, leading_system

USER, ASSISTANT, TOOL, SYSTEM = Role.USER, Role.ASSISTANT, Role.TOOL, Role.SYSTEM
IDS = st.sampled_from(["", "a", "b", "a-2", "a b", "x" * 50])
CALLS = st.lists(st.builds(ToolCall, st.sampled_from(["t", "u"]), st.just({}), IDS), max_size=3).map(tuple)
MESSAGES = st.lists(
    st.builds(Message, role=st.sampled_from(list(Role)), text=st.sampled_from(["", " ", "x", "y "]), calls=CALLS, call_id=IDS)
)


def keep(made: list[Any], group: Group) -> None:
    made.append(group)


def groups(messages: Sequence[Message], history: WireHistory | None = None) -> list[Group]:
    return (history or WireHistory(keep)).of(messages)


def result(call_id: str, text: str = "r", error: str = "") -> Message:
    return Message(role=TOOL, call_id=call_id, tool="t", text=text, error=error)


def asking(*ids: str, text: str = "") -> Message:
    return Message(role=ASSISTANT, text=text, calls=tuple(ToolCall("t", {}, id=one) for one in ids))


def answers(group: Group) -> list[tuple[str, str, bool]]:
    return [(one.id, one.text, one.failed) for one in group.answered]


def test_results_stand_behind_their_calls_in_the_order_of_the_calls() -> None:
    (group,) = groups([asking("a", "b"), result("b", "2"), result("a", "1")])

    assert answers(group) == [("a", "1", False), ("b", "2", False)]


def test_a_call_without_a_result_has_one_that_says_so() -> None:
    (group, after) = groups([asking("a"), Message(role=USER, text="x")])

    assert answers(group) == [("a", "no result of this call is known", True)]
    assert after.text == "x"


def test_a_result_that_nobody_asked_for_is_a_users_word() -> None:
    first, second, third = groups([result("a"), asking("b"), result("b"), result("b", "", "late")])

    assert (first.role, first.text) == (USER, "Result of t: r")
    assert answers(second) == [("b", "r", False)]
    assert third.text == "Result of t: late"


def test_results_of_one_id_answer_its_calls_in_order() -> None:
    (group,) = groups([asking("a", "a"), result("a", "1"), result("a", "2")])

    assert answers(group) == [("a", "1", False), ("a-2", "2", False)]


def test_an_error_word_stands_in_the_text_once() -> None:
    told = [result("a", "no", "denied"), result("b", "denied: no", "denied"), result("c", "", "x")]
    (group,) = groups([asking("a", "b", "c"), *told])

    assert answers(group) == [("a", "denied: no", True), ("b", "denied: no", True), ("c", "x", True)]


def test_only_a_models_text_loses_white_space_at_its_end() -> None:
    made = groups([Message(role=USER, text="x \n"), Message(role=ASSISTANT, text="y \n"), Message(role=USER, text=" \n")])

    assert [one.text for one in made] == ["x \n", "y", ""]


def test_calls_of_another_role_ask_for_nothing() -> None:
    made = groups([Message(role=USER, text="x", calls=(ToolCall("t"),))])

    assert made == [Group(role=USER, text="x")]


@given(MESSAGES)
def test_any_history_has_one_result_for_each_call_and_ids_of_their_own(messages: list[Message]) -> None:
    made = groups(messages)
    ids = [one.id for group in made for one in group.answered]
    asked = [call for message in messages if message.role is ASSISTANT for call in message.calls]

    assert len(ids) == len(set(ids)) == len(asked)
    assert all(one.text.strip() for group in made for one in group.answered)


@given(MESSAGES, st.data())
def test_a_history_that_grows_is_as_one_that_came_at_once(messages: list[Message], data: st.DataObject) -> None:
    growing, history = list(messages[:0]), WireHistory(keep)
    while len(growing) < len(messages):
        growing += messages[len(growing) : len(growing) + data.draw(st.integers(1, 4))]
        assert history.of(growing) == groups(list(growing))
        assert history.of(growing, "left: 1") == [*groups(list(growing)), Group(role=USER, text="left: 1")]
    # The same provider goes on with what another list holds, and with a history that was cut at its beginning.
    assert history.of(tuple(messages)) == groups(messages)
    assert history.of(messages[1:]) == groups(messages[1:])


def test_a_message_that_was_replaced_is_seen() -> None:
    history, growing = WireHistory(keep), [Message(role=USER, text=str(n)) for n in range(5)]
    history.of(growing)
    growing[2] = Message(role=USER, text="shorter")

    assert [group.text for group in history.of(growing)] == ["0", "1", "shorter", "3", "4"]


def test_what_was_turned_once_is_not_turned_again() -> None:
    turned: list[str] = []

    def count(made: list[Any], group: Group) -> None:
        turned.append(group.text)
        made.append(group)

    history, growing = WireHistory(count), [Message(role=USER, text="0")]
    for n in range(1, 50):
        growing.append(Message(role=USER, text=str(n)))
        turned.clear()
        assert len(history.of(growing)) == n + 1
        assert len(turned) == 2


def test_what_goes_on_after_an_earlier_point_was_asked_from_again_is_not_turned_again() -> None:
    turned: list[str] = []

    def count(made: list[Any], group: Group) -> None:
        turned.append(group.text)
        made.append(group)

    history, said = WireHistory(count), [Message(role=USER, text=str(n)) for n in range(9)]
    history.of(said[:8])
    history.of(said[:3])
    turned.clear()

    assert [group.text for group in history.of(said)] == [str(n) for n in range(9)]
    assert turned == ["7", "8"]


def test_only_a_few_histories_are_kept() -> None:
    history = WireHistory(keep)
    for n in range(50):
        history.of([Message(role=USER, text=str(n)), Message(role=USER, text="x")])

    assert len(history._kept) == 8
    assert history._kept[-1].read == [Message(role=USER, text="49")]


def test_two_runs_that_part_ways_do_not_disturb_each_other() -> None:
    history, begun = WireHistory(keep), [Message(role=USER, text="0"), Message(role=USER, text="1")]
    history.of(begun)
    one = [*begun, Message(role=USER, text="a"), Message(role=USER, text="b")]
    other = [*begun, Message(role=USER, text="c"), Message(role=USER, text="d")]

    for messages in (one, other, one, other):
        assert history.of(messages) == groups(messages)


def test_threads_may_share_it() -> None:
    history, wrong = WireHistory(keep), []

    def work(name: str) -> None:
        growing: list[Message] = []
        for n in range(60):
            growing.append(Message(role=USER, text=f"{name}{n}"))
            if history.of(growing) != [Group(role=USER, text=one.text) for one in growing]:
                wrong.append(name)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_callers_list_is_its_own() -> None:
    history, messages = WireHistory(keep), [Message(role=USER, text="0"), Message(role=USER, text="1")]
    history.of(messages).clear()

    assert len(history.of(messages)) == 2


def test_system_messages_that_lead_belong_to_the_instructions() -> None:
    lead = [Message(role=SYSTEM, text=" a "), Message(role=SYSTEM), Message(role=USER, text="x"), Message(role=SYSTEM, text="b")]
    system, rest = leading_system("i \ud835", lead)

    assert (system, list(rest)) == ("i \ufffd\n\na", lead[2:])
    assert leading_system("", lead[2:]) == ("", lead[2:])
