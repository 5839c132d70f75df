"""What a paused run waits for, and which decisions about it are taken."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from by_hand import Hand, a_tool, off

from fsm_agent.core.errors import CannotDecide
from fsm_agent.core.events import Approved, Cancelled, Checked, Denied, Paused, Returned
from fsm_agent.core.held_calls import APPROVAL, CLIENT, approval_token
from fsm_agent.core.pending import decidable, pending_of
from fsm_agent.core.saving import load, save
from fsm_agent.core.values import ToolCall


def paused(**parts: Any) -> Hand:
    """A run that waits for a person about p1 until second 50, and for a client about p2."""
    tools = [a_tool("pay", approval=True), a_tool("paste", where="client"), a_tool("look")]
    made = Hand(*tools, limits=off(), **parts)
    made.decides(ToolCall("pay", {"x": [1]}, "p1", "buy", "because"), ToolCall("paste", {}, "p2"), ToolCall("look", {}, "p3"))
    return made.tell(Paused(50.0))


def test_each_call_is_told_with_all_that_a_decision_needs() -> None:
    made = paused()
    one, other = pending_of(made.run)
    assert (one.call_id, one.kind, one.tool, one.args, one.intent, one.reason, one.expires_at) == (
        "p1", "approval", "pay", {"x": [1]}, "buy", "because", 50.0,
    )  # fmt: skip
    assert (other.call_id, other.kind, other.tool, other.expires_at) == ("p2", "client", "paste", None)
    assert one.token == approval_token(made.run, made.call("p1")) != other.token


def test_what_is_shown_is_a_copy() -> None:
    made = paused()
    pending_of(made.run)[0].args["x"].append(2)
    assert made.call("p1").args == {"x": [1]}


def test_an_intent_that_is_no_text_is_not_shown() -> None:
    made = Hand(a_tool("pay", approval=True), limits=off()).decides(ToolCall("pay", {}, "p1", 5, ["why"]))  # type: ignore[arg-type]
    assert (pending_of(made.run)[0].intent, pending_of(made.run)[0].reason) == ("", "")


def test_a_call_that_the_host_still_looks_at_is_nobodys() -> None:
    made = Hand(a_tool("pay", approval=True), checks=True, limits=off()).decides(ToolCall("pay", {}, "p1"))
    assert pending_of(made.run) == ()
    made.tell(Checked("p1", True))
    assert [one.kind for one in pending_of(made.run)] == ["approval"]


def test_a_run_that_waits_for_nobody_has_none() -> None:
    made = paused().tell(Approved("p1")).tell(Returned("p2", 1))
    assert pending_of(made.run) == ()
    assert pending_of(Hand(limits=off()).run) == ()
    assert pending_of(paused().tell(Cancelled()).run) == ()


def test_they_are_the_same_once_the_run_was_loaded() -> None:
    made = paused()
    assert pending_of(load(save(made.run), made.engine.setup)) == pending_of(made.run)


# ---- decisions

WRONG: dict[str, tuple[tuple[Any, ...], str]] = {
    "another kind": (("p1", CLIENT, None), "the call 'p1' of run 'run' waits for a person's approval, not for a client's answer"),
    "another kind, the other way": (("p2", APPROVAL, None), "'p2' of run 'run' waits for a client's answer, not for a person's approval"),
    "another token": (("p1", APPROVAL, "0" * 16), "the call 'p1' of run 'run' is not the one that was shown; look at it again"),
    "too late": (("p1", APPROVAL, None, 50.1), "the approval of call 'p1' has expired; deny it, or say something new"),
    "one that waits for nobody": (("p3", APPROVAL, None), "the call 'p3' of run 'run' is decided already \\(it may run\\)"),
    "an unknown one": (("p9", APPROVAL, None), "run 'run' has no call 'p9'; it waits for 'p1', 'p2'"),
    "no id": (([], APPROVAL, None), "run 'run' has no call \\[\\]; it waits for 'p1', 'p2'"),
}


@pytest.mark.parametrize(("asked", "why"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_decided_says_why_and_changes_nothing(asked: tuple[Any, ...], why: str) -> None:
    made = paused()
    before = copy.deepcopy(made.run)
    with pytest.raises(CannotDecide, match=why):
        decidable(made.run, *asked)
    assert made.run == before


@pytest.mark.parametrize("wall", [None, 0.0, 49.9, 50.0])
def test_what_waits_can_be_decided_in_time(wall: float | None) -> None:
    made = paused()
    token = pending_of(made.run)[0].token
    assert decidable(made.run, "p1", APPROVAL, token, wall) is made.call("p1")
    assert decidable(made.run, "p2", CLIENT, None) is made.call("p2")


def test_an_approval_without_an_end_waits_for_good() -> None:
    made = Hand(a_tool("pay", approval=True), limits=off()).decides(ToolCall("pay", {}, "p1")).tell(Paused())
    assert decidable(made.run, "p1", APPROVAL, None, 1e12).id == "p1"


@pytest.mark.parametrize(
    ("word", "why"),
    [
        (Denied("p1", "no"), "is decided already \\(denied:no\\)"),
        (Approved("p1"), "is decided already \\(it may run\\)"),
        (Approved("p1", {"x": 2}, True), "is decided already \\(it may run\\)"),
    ],
)
def test_a_decided_call_is_not_decided_again(word: Any, why: str) -> None:
    made = paused().tell(word)
    with pytest.raises(CannotDecide, match=why):
        decidable(made.run, "p1", APPROVAL, None)


def test_a_token_is_void_once_the_call_has_changed() -> None:
    made = paused()
    token = pending_of(made.run)[0].token
    made.call("p1").args["x"].append(2)
    with pytest.raises(CannotDecide, match="is not the one that was shown"):
        decidable(made.run, "p1", APPROVAL, token)


def test_a_run_that_is_over_says_so() -> None:
    made = paused().tell(Cancelled())
    with pytest.raises(CannotDecide, match=r"run 'run' is over \(cancelled\); nothing of it is left to decide"):
        decidable(made.run, "p1", APPROVAL, None)


def test_a_call_of_an_earlier_turn_is_named_as_decided() -> None:
    made = Hand(a_tool("look"), a_tool("pay", approval=True), limits=off()).asks("look").gives("c1").asks("pay")
    with pytest.raises(CannotDecide, match="'c1' of run 'run' is decided already"):
        decidable(made.run, "c1", APPROVAL, None)
