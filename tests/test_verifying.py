"""Verify: whether evidence suffices, who is asked, and what a no leads to."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from by_hand import Hand, a_tool, off, says, taking

from fsm_agent.agent import Agent
from fsm_agent.core.answers import answer_of
from fsm_agent.core.effects import Decide, Judge
from fsm_agent.core.events import Judged, JudgeFailed
from fsm_agent.core.limits import Limits
from fsm_agent.core.plain import dumps
from fsm_agent.core.run import Call, Run
from fsm_agent.core.values import Decision, Judgement, Policy, ResultClass, Status, StopReason, ToolCall, Usage
from fsm_agent.core.verifying import missing_evidence
from fsm_agent.testing import ScriptedDecider


def piece(tool: str = "a", q: Any = 1, value: Any = 1, source: str = "", **more: Any) -> Call:
    """A settled call that found something."""
    return Call(id=more.pop("id", f"{tool}{q}"), tool=tool, args={"q": q}, ok=True, value=value, source=source, **more)


def a_run(*calls: Call, draft: Decision | None = None, **limits: Any) -> Run:
    return Run(id="r", request="", state="verify", limits=off(**limits), calls=list(calls), draft=draft)


# ---- what is missing


@pytest.mark.parametrize("least", [None, 0, 1, 2, 3])
@pytest.mark.parametrize("found", range(4))
def test_so_many_independent_pieces_are_needed(least: int | None, found: int) -> None:
    run = a_run(*(piece("a", n, n) for n in range(found)), min_evidence=least)
    lack = missing_evidence(run, ())
    assert lack == (f"{found} independent pieces of evidence, {least} needed by min_evidence" if found < (least or 0) else "")


def test_one_piece_by_default_and_three_in_seed_002() -> None:
    assert (Limits().min_evidence, Limits.autogpt().min_evidence) == (1, 3)


NO_EVIDENCE = [
    piece(value=None, result_class=ResultClass.EMPTY),
    piece(result_class=ResultClass.NO_PROGRESS),
    Call(id="c", tool="a", args={}, ok=False, error="raised:ValueError"),
    Call(id="c", tool="a", args={}, ok=False, value=1, error="skipped:hook"),
]


@pytest.mark.parametrize("call", NO_EVIDENCE, ids=["empty", "no progress", "failed", "skipped"])
def test_what_found_nothing_is_no_evidence(call: Call) -> None:
    assert missing_evidence(a_run(call, min_evidence=1), ()) == "0 independent pieces of evidence, 1 needed by min_evidence"
    assert missing_evidence(a_run(call), ["a"]) == "no evidence yet from a"


def test_an_honest_empty_answer_is_evidence() -> None:
    assert missing_evidence(a_run(piece(value=[], result_class=ResultClass.OK), min_evidence=1), ["a"]) == ""


@pytest.mark.parametrize("required", [r for n in range(4) for r in itertools.combinations("abc", n)])
@pytest.mark.parametrize("have", [h for n in range(4) for h in itertools.combinations("abc", n)])
def test_required_outputs_are_named_while_they_are_missing(required: tuple[str, ...], have: tuple[str, ...]) -> None:
    lack = missing_evidence(a_run(*(piece(name) for name in have)), required)
    lacking = [name for name in required if name not in have]
    assert lack == (f"no evidence yet from {', '.join(lacking)}" if lacking else "")


@pytest.mark.parametrize(
    ("citations", "dangling"),
    [
        ((), ""),
        (("a1",), ""),
        (("a",), ""),
        (("archive",), ""),
        (("a1", "a", "archive"), ""),
        (("b1",), "'b1'"),
        (("failed",), "'failed'"),
        (("a1", "ghost", "b1"), "'ghost', 'b1'"),
        (("",), "''"),
        ((None, ["a1"], 7), "None, ['a1'], 7"),
    ],
)
def test_citations_point_at_evidence_by_call_tool_or_source(citations: Any, dangling: str) -> None:
    failed = Call(id="failed", tool="b", args={}, ok=False, error="raised:ValueError")
    run = a_run(piece(source="archive"), failed, draft=Decision(text="x", citations=citations))
    mend = "cite the id or the tool of a call, or an address that it found"
    assert missing_evidence(run, ()) == (f"citations point at no evidence: {dangling}; {mend}" if dangling else "")


PAGES = [{"title": "Two words", "url": "https://a.example/x?q=1#top", "snippet": "see (https://b.example/y), or \"https://c.example\"."}]


@pytest.mark.parametrize("value", [{"items": PAGES}, dumps({"items": PAGES}), str(PAGES)])
@pytest.mark.parametrize(
    ("cited", "held"),
    [
        ("https://a.example/x?q=1#top", True),
        ("https://b.example/y", True),
        ("https://c.example", True),
        ("https://a.example/x", False),
        ("https://a.example/x?q=1#top/more", False),
        ("https://d.example", False),
        ("://", False),
        ("words", False),
        ("see", False),
        ("title", False),
        ("\ud800", False),
        (" ", False),
    ],
)
def test_an_address_that_was_found_can_be_cited(value: Any, cited: str, held: bool) -> None:
    run = a_run(piece(value=value), draft=Decision(text="x", citations=(cited,)))
    assert (missing_evidence(run, ()) == "") is held


def test_a_whole_text_of_a_result_can_be_cited_and_a_failed_call_has_none() -> None:
    failed = Call(id="failed", tool="b", args={}, ok=False, value="https://d.example", error="result:shape")
    run = a_run(piece(value={"items": PAGES}), failed, draft=Decision(text="x", citations=("Two words", "https://d.example")))
    assert missing_evidence(run, ()).startswith("citations point at no evidence: 'https://d.example';")


def test_without_a_source_nothing_is_cited_by_an_empty_name() -> None:
    assert missing_evidence(a_run(piece(), draft=Decision(text="x", citations=("",))), ()) != ""


@pytest.mark.parametrize("finish", ["length", "max_tokens", "content_filter", "refusal"])
def test_a_text_that_was_cut_off_is_no_answer(finish: str) -> None:
    run = a_run(piece(), draft=Decision(text="the ans", finish=finish))
    assert missing_evidence(run, ()) == f"the text was cut off: the reply ended with {finish!r}"


def test_what_is_required_comes_first_then_pieces_then_citations() -> None:
    draft = Decision(text="x", citations=("ghost",))
    assert missing_evidence(a_run(draft=draft, min_evidence=1), ["a"]) == "no evidence yet from a"
    assert missing_evidence(a_run(draft=draft, min_evidence=1), ()).startswith("0 independent")
    assert missing_evidence(a_run(piece(), draft=draft, min_evidence=1), ["a"]).startswith("citations")


# ---- the state


def rounds(**parts: Any) -> Hand:
    """A run whose verifier is asked about its first answer."""
    limits = parts.pop("limits", off(max_verify_rounds=3, max_attempts=9))
    return Hand(a_tool(args=taking(q={"type": "any"})), limits=limits, verifies=True, **parts).decides(text="done")


def test_the_verifier_is_asked_once_evidence_suffices_and_its_yes_is_the_answer() -> None:
    hand = Hand(limits=off(min_evidence=1, max_verify_rounds=3), verifies=True).decides(text="done")
    assert isinstance(hand.effect, Decide)
    assert hand.run.note == "0 independent pieces of evidence, 1 needed by min_evidence"
    hand.asks("look").gives("c1").decides(text="done")
    assert isinstance(hand.effect, Judge)
    hand.judges("done", reason="all there")
    assert (hand.reason, hand.run.judgement) == (StopReason.ANSWERED, Judgement(decision="done", reason="all there"))


def test_without_a_verifier_evidence_that_suffices_is_enough() -> None:
    hand = Hand(limits=off(min_evidence=1)).asks("look").gives("c1").decides(text="done")
    assert hand.reason is StopReason.ANSWERED


@pytest.mark.parametrize("verifies", [True, False])
@pytest.mark.parametrize("text", [None, "", " ", 7, "some text"])
def test_a_question_to_the_user_is_no_answer_and_needs_no_evidence(verifies: bool, text: Any) -> None:
    hand = Hand(limits=off(min_evidence=1, max_verify_rounds=3), verifies=verifies).decides(text=text, question="which one?")
    assert hand.reason is StopReason.QUESTION
    answer = answer_of(hand.run)
    assert answer is not None
    said = "some text\nwhich one?" if text == "some text" else "which one?"
    assert (answer.status, answer.text, answer.next_questions) == (Status.OK, said, ("which one?",))


@pytest.mark.parametrize("question", [None, "", " ", 7])
def test_what_is_no_question_is_verified_like_any_answer(question: Any) -> None:
    hand = Hand(limits=off(min_evidence=1, max_verify_rounds=3)).decides(text="done", question=question)
    assert isinstance(hand.effect, Decide)
    assert hand.run.note == "0 independent pieces of evidence, 1 needed by min_evidence"


def test_where_there_is_no_tool_no_evidence_is_asked_for() -> None:
    answer = Agent([], ScriptedDecider(["done"]), limits=off(min_evidence=1)).run("find x")
    assert (answer.status, answer.text) == (Status.OK, "done")


NOES = [
    Judged(Judgement(decision="need_more", reason="no source")),
    Judged(Judgement(decision="maybe")),
    Judged(Judgement(decision="")),
    Judged(Judgement(decision="DONE")),
    JudgeFailed("ValueError", "no JSON"),
    JudgeFailed("TimeoutError"),
]


@pytest.mark.parametrize("event", NOES, ids=range(len(NOES)))
def test_whatever_is_no_clear_yes_is_a_no_and_leads_back_to_gathering(event: Any) -> None:
    hand = rounds().tell(event)
    assert isinstance(hand.effect, Decide)
    assert hand.run.path == ["normalize", "gather", "verify", "gather"]
    assert hand.run.judgement is not None
    assert hand.run.judgement.decision != "done"
    if isinstance(event, JudgeFailed):
        assert hand.run.note == f"the verifier gave no verdict: {event.error} {event.message}".rstrip()


@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize("event", NOES[:1] + NOES[-1:], ids=["no", "raised"])
def test_rounds_of_verifying_are_bounded_and_the_run_ends_unverified(most: int, event: Any) -> None:
    hand = rounds(limits=off(max_verify_rounds=most))
    for n in range(1, most + 1):
        assert isinstance(hand.effect, Judge)
        hand.tell(event)
        if n < most:
            hand.decides(text=f"done {n}")
    assert (hand.reason, hand.run.verify_rounds) == (StopReason.UNVERIFIED, most)
    answer = answer_of(hand.run)
    assert answer is not None
    assert answer.status is Status.PARTIAL
    assert any("did not pass verification" in unknown for unknown in answer.unknowns)
    stop = hand.run.stop
    assert stop is not None
    hand.engine.resume(hand.run, stop.raise_to)
    assert isinstance(hand.effect, Decide)


@pytest.mark.parametrize("most", [1, 2, 3])
def test_rounds_of_gathering_after_a_no_are_bounded_and_only_go_up(most: int) -> None:
    """Seed 000's verify set its attempts back to 1 and never ended."""
    hand = rounds(limits=off(max_attempts=most))
    seen = []
    while hand.reason is None:
        seen.append(hand.run.gather_rounds)
        hand.judges("need_more")
        if hand.reason is None:
            hand.asks("look").plays().decides(text="done")
    assert seen == list(range(most + 1))
    assert hand.reason is StopReason.MAX_ATTEMPTS
    stop = hand.run.stop
    assert stop is not None
    hand.engine.resume(hand.run, stop.raise_to)
    assert isinstance(hand.effect, Decide)
    assert hand.run.gather_rounds == most + 1


def test_seed_000_gathers_twice_more() -> None:
    limits = Limits.loop_guard(max_verify_rounds=None, min_evidence=0, max_turns=None)
    hand = rounds(limits=limits)
    while hand.reason is None:
        hand.judges("need_more")
        if hand.reason is None:
            hand.decides(text="done")
    assert (hand.reason, hand.run.gather_rounds, hand.run.turns) == (StopReason.MAX_ATTEMPTS, 2, 3)


def test_missing_evidence_counts_as_a_round_too() -> None:
    hand = Hand(limits=off(min_evidence=1, max_verify_rounds=2)).decides(text="done").decides(text="done")
    assert (hand.reason, hand.run.verify_rounds) == (StopReason.UNVERIFIED, 2)


def test_no_progress_is_verified_without_a_text_and_nothing_found_is_no_answer() -> None:
    """Seed 002 could say ok with an empty answer."""
    hand = Hand(limits=off(), verifies=True).asks("look").gives("c1", "hint", says("NO_PROGRESS")).judges("done")
    assert hand.reason is StopReason.NO_PROGRESS
    answer = answer_of(hand.run)
    assert answer is not None
    assert answer.status is not Status.OK
    assert answer.text


@pytest.mark.parametrize("least", [0, 1, None])
def test_where_nothing_was_found_or_said_and_nobody_is_asked_it_is_gathered_on(least: int | None) -> None:
    hand = Hand(limits=off(min_evidence=least, max_verify_rounds=2)).asks("look").gives("c1", "hint", says("NO_PROGRESS"))
    assert isinstance(hand.effect, Decide)
    assert hand.run.path == ["normalize", "gather", "verify", "gather"]
    hand.asks("look").gives("c2", "hit")
    assert hand.decides(text="one hit").reason is StopReason.ANSWERED

    stuck = Hand(limits=off(min_evidence=least, max_verify_rounds=2)).asks("look").gives("c1", "hint", says("NO_PROGRESS"))
    stuck.asks("look").gives("c2", "hint", says("NO_PROGRESS"))
    assert (stuck.reason, stuck.run.verify_rounds) == (StopReason.UNVERIFIED, 2)


def test_no_progress_after_a_cut_off_text_does_not_pass_it_off_as_the_answer() -> None:
    policy = Policy(on_finish={"length": "continue"})
    hand = Hand(limits=off(max_verify_rounds=2), policy=policy).decides(text="the ans", finish="length")
    hand.asks("look").gives("c1", "hint", says("NO_PROGRESS"))
    assert isinstance(hand.effect, Decide)
    assert hand.run.judgement is not None
    assert "cut off" in hand.run.judgement.reason


# ---- a next action


def test_a_next_action_is_performed_before_anybody_decides() -> None:
    hand = rounds().judges("need_more", next_action=ToolCall("look", {"q": 1}, "mine", "find the source"))
    call = hand.effect.calls[0]
    assert (call.id, call.tool, call.args, call.intent) == ("verify-1", "look", {"q": 1}, "find the source")
    assert (hand.run.turns, hand.run.emitted_calls, hand.run.tool_calls) == (1, 0, 1)
    hand.gives("verify-1")
    assert isinstance(hand.effect, Decide)
    assert (hand.run.gather_rounds, hand.words) == (1, ["ok"])


def test_its_id_is_unique_too() -> None:
    hand = Hand(limits=off(max_verify_rounds=9, max_attempts=9), verifies=True)
    hand.decides(ToolCall("look", {}, "verify-1")).gives("verify-1")
    hand.decides(text="done").judges("need_more", next_action=ToolCall("look", {"q": 1})).plays()
    hand.decides(ToolCall("look", {"q": 2}, "verify-2")).plays()
    hand.decides(text="done").judges("need_more", next_action=ToolCall("look", {"q": 3})).plays()
    ids = [call.id for call in hand.calls]
    assert len(set(ids)) == len(ids) == 4
    assert hand.words == ["ok"] * 4


GATE: list[tuple[str, ToolCall, dict[str, Any]]] = [
    ("args:unknown_tool", ToolCall("ghost", {}), {}),
    ("refused:not_allowed", ToolCall("other", {}), {}),
    ("args:missing:q", ToolCall("look", {}), {}),
    ("args:type:args", ToolCall("look", "["), {}),
    ("skipped:max_calls_per_turn", ToolCall("look", {"q": 1}), {"max_calls_per_turn": 0}),
    ("refused:budget:max_same_tool_calls", ToolCall("look", {"q": 1}), {"max_same_tool_calls": 0}),
    ("skipped:max_tool_calls", ToolCall("look", {"q": 1}), {"max_tool_calls": 0}),
    ("refused:duplicate", ToolCall("look", {"q": 0}), {"max_same_call": 1}),
]


@pytest.mark.parametrize(("word", "action", "limits"), GATE, ids=[word for word, *_ in GATE])
def test_a_next_action_passes_the_same_gate(word: str, action: ToolCall, limits: dict[str, Any]) -> None:
    tools = a_tool(args=taking(q={"type": "any"})), a_tool("other")
    hand = Hand(*tools, limits=off(max_verify_rounds=3, max_turns=9, **limits), verifies=True, allowed=["look"])
    if word == "refused:duplicate":
        hand.decides(ToolCall("look", {"q": 0})).plays()
    hand.decides(text="done").judges("need_more", next_action=action)
    assert hand.words[-1] == word
    assert hand.run.body_runs == (word == "refused:duplicate")
    ends = {"skipped:max_tool_calls": StopReason.MAX_TOOL_CALLS, "refused:duplicate": StopReason.DUPLICATE_CALL}
    assert hand.reason is ends.get(word)


def test_a_next_action_behind_the_last_round_is_not_performed_and_has_its_result() -> None:
    hand = rounds(limits=off(max_verify_rounds=1)).judges("need_more", next_action=ToolCall("look", {"q": 1}))
    assert (hand.words, hand.reason) == (["skipped:unverified"], StopReason.UNVERIFIED)


@pytest.mark.parametrize("action", [None, "look", {"tool": "look"}, 7])
def test_what_is_no_call_is_no_next_action(action: Any) -> None:
    hand = rounds().tell(Judged(Judgement(decision="need_more", next_action=action)))
    assert isinstance(hand.effect, Decide)


def test_a_next_action_beside_a_yes_is_not_performed() -> None:
    hand = rounds().judges("done", next_action=ToolCall("look", {"q": 1}))
    assert (hand.reason, hand.calls) == (StopReason.ANSWERED, [])


# ---- verifiers of a host


@pytest.mark.parametrize(
    "verdict",
    [True, {"decision": "done"}, Judgement(decision="done"), {"decision": "done", "reason": "fine", "next_action": None}],
    ids=range(4),
)
def test_a_host_says_yes_in_several_ways(verdict: Any) -> None:
    answer = Agent([a_tool()], ScriptedDecider(["done"]), limits=off(), verify=lambda ask: verdict).run("find x")
    assert answer.ok


BAD: list[Any] = [False, None, 7, "done", [], {}, {"decision": "yes"}, {"decision": None}, Judgement(decision="maybe"), object()]


@pytest.mark.parametrize("verdict", BAD, ids=range(len(BAD)))
def test_a_host_that_gives_no_verdict_said_no(verdict: Any) -> None:
    decide = ScriptedDecider(["done"], then="repeat-last")
    answer = Agent([a_tool()], decide, limits=off(max_verify_rounds=2), verify=lambda ask: verdict).run("find x")
    assert (answer.stop_reason, decide.asked) == (StopReason.UNVERIFIED, 2)


def test_a_host_that_raises_said_no_and_its_next_action_is_a_mapping() -> None:
    action = {"tool": "look", "args": {"q": 1}}
    said: list[Any] = [RuntimeError("no verdict"), {"decision": "need_more", "next_action": action}, True]

    def verify(ask: Judge) -> Any:
        verdict = said[ask.run.verify_rounds - 1]
        if isinstance(verdict, Exception):
            raise verdict
        return verdict

    seen: list[Any] = []
    look = a_tool(fn=lambda q: seen.append(q) or f"hit {q}")
    decide = ScriptedDecider(["done"], then="repeat-last")
    answer = Agent([look], decide, limits=off(max_verify_rounds=3), verify=verify).run("find x")
    assert answer.ok
    assert seen == [1]


def test_a_verdict_that_could_not_be_had_costs_what_it_cost() -> None:
    hand = Hand(limits=off(max_verify_rounds=9), verifies=True).decides(text="done")
    hand.tell(JudgeFailed("ValueError", "no JSON", Usage(input_tokens=3, output_tokens=4, cost=0.5)))

    assert (hand.run.tokens, hand.run.cost) == (7, 0.5)
