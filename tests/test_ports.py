"""What a decider and a verifier may answer with, and what is said to them when it is something else."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import attrs
import pytest

from fsm_agent.core.values import Decision, Judgement, ToolCall
from fsm_agent.host.ports import Host, ToolContext, as_decision, as_judgement

CALL = ToolCall("t", {"n": 1})
DECISION = Decision(calls=(CALL,), text="both")
JUDGEMENT = Judgement(decision="need_more", reason="why", next_action=CALL)


@pytest.mark.parametrize(
    ("proposal", "decision"),
    [
        (DECISION, DECISION),
        (None, Decision()),
        ("text", Decision(text="text")),
        ("", Decision(text="")),
        (CALL, Decision(calls=(CALL,))),
        ([CALL, CALL], Decision(calls=(CALL, CALL))),
        ((CALL,), Decision(calls=(CALL,))),
        ([], Decision()),
    ],
)
def test_a_proposal_is_a_decision(proposal: Any, decision: Decision) -> None:
    assert as_decision(proposal) == decision


@pytest.mark.parametrize(
    "proposal", [5, True, 1.5, b"text", {}, {"tool": "t"}, [CALL, "text"], {CALL.tool}, object, object()]
)
def test_any_other_proposal_is_refused_with_what_is_understood(proposal: Any) -> None:
    name = type(proposal).__name__
    with pytest.raises(
        TypeError, match=f"answered with a {name}; it may give a Decision, a ToolCall, a list of them, a text or None"
    ):
        as_decision(proposal)


@pytest.mark.parametrize(
    ("verdict", "judgement"),
    [
        (JUDGEMENT, JUDGEMENT),
        (True, Judgement(decision="done")),
        (False, Judgement(decision="need_more", reason="the verifier said no")),
        ({"decision": "done"}, Judgement(decision="done")),
        ({"decision": "need_more", "reason": None, "next_action": None}, Judgement(decision="need_more")),
        (
            MappingProxyType(
                {"decision": "need_more", "reason": "why", "next_action": {"tool": "t", "args": {"n": 1}}}
            ),
            JUDGEMENT,
        ),
        ({"decision": "need_more", "next_action": CALL, "reason": "why", "more": 1}, JUDGEMENT),
        (
            {"decision": "need_more", "reason": "why", "next_action": {"tool": 5}},
            Judgement(decision="need_more", reason="why"),
        ),
        ({"decision": "need_more", "reason": "why", "next_action": "t"}, Judgement(decision="need_more", reason="why")),
        ('{"decision": "need_more", "reason": "why", "next_action": {"tool_name": "t", "args": {"n": 1}}}', JUDGEMENT),
        ('```json\n{"decision": "done"}\n```', Judgement(decision="done")),
    ],
)
def test_a_verdict_is_a_judgement(verdict: Any, judgement: Judgement) -> None:
    assert as_judgement(verdict) == judgement


@pytest.mark.parametrize("verdict", [None, 0, 1, "done", "[1]", "{", [], object()])
def test_what_gives_no_verdict_is_refused(verdict: Any) -> None:
    name = type(verdict).__name__
    with pytest.raises(
        TypeError, match=f"a verifier answered with a {name}; it may give a Judgement, a bool or a mapping"
    ):
        as_judgement(verdict)


@pytest.mark.parametrize("decision", [None, "", "DONE", "yes", 5, []])
@pytest.mark.parametrize(
    "form", [lambda decision: {"decision": decision}, lambda decision: Judgement(decision=decision)]
)
def test_a_verdict_of_unknown_words_is_refused(form: Any, decision: Any) -> None:
    with pytest.raises(ValueError, match=r"a verifier's decision is .*; it may be 'done' or 'need_more'"):
        as_judgement(form(decision))


def test_a_mapping_without_a_decision_is_refused() -> None:
    with pytest.raises(ValueError, match="a verifier's decision is 'None'"):
        as_judgement({})


def test_a_host_brings_nothing_by_default() -> None:
    assert set(attrs.asdict(Host(), recurse=False).values()) == {None}


def test_the_context_of_a_call_says_who_calls_and_how_long_it_has() -> None:
    context = ToolContext(run_id="r", call_id="c", tool="t", attempt=1, idempotency_key="r:c")

    assert (context.left_s, context.context) == (None, None)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        context.attempt = 2  # type: ignore[misc]
