"""Held calls: who has to speak before a turn begins, what each word does, and that nothing begins before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import attrs
import pytest
from by_hand import Hand, a_tool, off, says, taking
from hypothesis import given, settings
from strategies import ASKING, HELD, REPAIRS, World, an_engine, limits, policies, step, ways, worlds

from fsm_agent.core.effects import CallTools, Check, Compose, Decide, Pause
from fsm_agent.core.errors import WrongEvent
from fsm_agent.core.events import (
    Approved,
    Cancelled,
    Checked,
    Decided,
    Denied,
    Lost,
    Paused,
    Raised,
    Returned,
    Skipped,
    Started,
    Superseded,
)
from fsm_agent.core.held_calls import approval_token, held_calls, is_people_event, may_settle
from fsm_agent.core.limits import Limits
from fsm_agent.core.replay import replay
from fsm_agent.core.saving import load, save
from fsm_agent.core.table import Row, State, Table
from fsm_agent.core.transcript import transcript
from fsm_agent.core.values import Decision, Policy, StopReason, ToolCall

ARGS = taking(x={"type": "int", "required": False, "max": 9})


def tools() -> list[Any]:
    """A tool of each sort that is held or not."""
    return [
        a_tool("look"),
        a_tool("pay", approval=True, effect="at_most_once", args=ARGS),
        a_tool("maybe", approval=lambda **args: True),
        a_tool("paste", where="client"),
        a_tool("sign", where="client", approval=True, effect="idempotent", args=ARGS),
    ]


def hand(*calls: str, **parts: Any) -> Hand:
    """A run that has asked for these calls, with ids p1, p2, ..."""
    made = Hand(*tools(), **{"limits": off(), **parts})
    return made.decides(*(ToolCall(name, {"x": n}, f"p{n}") for n, name in enumerate(calls, 1)))


# ---- laws


@settings(max_examples=150)
@given(worlds, limits, policies, ways)
def test_nothing_of_a_turn_begins_before_everybody_has_spoken(
    world: World, bounds: Limits, policy: Policy, way: Mapping[str, Any]
) -> None:
    engine = an_engine(policy=policy, verifies=True, repairs=REPAIRS, **way)
    run, answers = engine.start("x", limits=attrs.evolve(bounds, max_attempts=3)), world.answers()
    going = True
    while going:
        effect = engine.ask(run)
        assert run.held == len(held_calls(run))
        assert isinstance(effect, Check | Pause) is bool(run.held)
        assert not run.paused or run.held
        if isinstance(effect, Check):
            assert {call.awaits for call in effect.calls} == {"check"}
        elif isinstance(effect, Pause):
            assert {call.awaits for call in effect.calls} <= {"approval", "client"}
            assert effect.calls == held_calls(run)
        elif isinstance(effect, CallTools):
            assert not [call for call in effect.calls if call.awaits or call.tool in ("paste", "sign")]
        going = step(engine, run, answers)
    _check_words(run, way["checks"])


def _check_words(run: Any, checks: bool) -> None:
    """Every body that began of a tool that asks was let run by a person, unless memory or a hook answered in its place."""
    told: dict[type, Counter[str]] = {kind: Counter() for kind in (Checked, Approved, Denied, Started)}
    for _, event in run.journal:
        if type(event) in told:
            told[type(event)].update(event.call_ids if isinstance(event, Started) else [event.call_id])
    for call in run.calls:
        if call.tried_repairs:
            continue
        begun = told[Started][call.id]
        if call.tool in ASKING and begun:
            assert told[Approved][call.id] >= 1
            assert told[Denied][call.id] == 0
        if call.tool in ("paste", "sign"):
            assert begun == 0
        assert told[Checked][call.id] <= (1 if checks or call.tool == "maybe" else 0)
        assert told[Approved][call.id] + told[Denied][call.id] <= 1
        if call.error.startswith("denied"):
            assert (told[Denied][call.id], call.body_runs) == (1, 0)


@settings(max_examples=100)
@given(worlds, limits, policies)
def test_a_held_run_is_loaded_and_replayed_as_it_was(world: World, bounds: Limits, policy: Policy) -> None:
    engine = an_engine(policy=policy, checks=True)
    run, answers = engine.start("x", limits=attrs.evolve(bounds, max_attempts=3)), world.answers()
    while step(engine, run, answers):
        if run.held:
            assert load(save(run), engine.setup) == run
        if run.held and not any(call.tool == "pin" for call in run.open_calls):
            again = replay(engine, run)
            assert (again.held, again.paused, again.open_calls) == (run.held, run.paused, run.open_calls)


# ---- whom a call waits for


@pytest.mark.parametrize(
    ("tool", "checks", "waits"),
    [
        ("look", False, []),
        ("look", True, ["check"]),
        ("pay", False, ["approval"]),
        ("pay", True, ["check", "approval"]),
        ("maybe", False, ["check", "approval"]),
        ("maybe", True, ["check", "approval"]),
        ("paste", False, ["client"]),
        ("paste", True, ["check", "client"]),
        ("sign", False, ["approval", "client"]),
        ("sign", True, ["check", "approval", "client"]),
    ],
)
def test_a_call_waits_for_a_check_then_a_person_then_a_client(tool: str, checks: bool, waits: list[str]) -> None:
    made, seen = hand(tool, checks=checks), []
    while made.run.held:
        seen.append(made.call("p1").awaits)
        words: dict[str, Any] = {"check": Checked("p1", tool in ASKING), "approval": Approved("p1"), "client": Returned("p1", "hit")}
        made.tell(words[seen[-1]])
    assert seen == waits
    assert isinstance(made.effect, Decide if "client" in waits else CallTools)


@pytest.mark.parametrize("approval", [False, True])
def test_a_check_says_whether_a_person_has_to_be_asked(approval: bool) -> None:
    made = hand("maybe").tell(Checked("p1", approval))
    assert isinstance(made.effect, Pause if approval else CallTools)


def test_a_hook_may_answer_in_the_place_of_a_call_that_is_checked() -> None:
    made = hand("pay", checks=True).tell(Skipped("p1", "hook", {"ok": 1}))
    assert made.words == ["skipped:hook"]
    assert made.call("p1").value == {"ok": 1}
    assert isinstance(made.effect, Decide)


def test_calls_that_wait_for_nobody_wait_behind_those_that_do() -> None:
    made = hand("look", "pay", "look")
    assert [call.id for call in made.effect.calls] == ["p2"]
    made.tell(Approved("p2"))
    assert made.batch == ["p1"]
    assert [call.id for call in made.calls] == ["p1", "p2", "p3"]


def test_decisions_come_one_at_a_time_and_in_any_order() -> None:
    made = hand("pay", "sign", "pay").tell(Paused())
    made.tell(Denied("p3", "no")).tell(Approved("p2")).tell(Returned("p2", "signed"))
    assert [call.id for call in made.effect.calls] == ["p1"]
    made.tell(Approved("p1"))
    assert made.batch == ["p1"]
    assert made.words == ["open", "ok", "denied:no"]


def test_a_refused_call_waits_for_nobody() -> None:
    made = Hand(*tools(), limits=off()).decides(ToolCall("pay", {"x": 10}, "p1"), ToolCall("ghost", {}, "p2"))
    assert made.words == ["args:range:x", "args:unknown_tool"]
    assert made.run.held == 0


def test_budgets_are_counted_once_however_long_it_waits() -> None:
    made = hand("pay", "look", limits=off(max_tool_calls=2))
    assert (made.run.tool_calls, made.run.emitted_calls) == (2, 2)
    made.tell(Paused()).tell(Approved("p1", {"x": 3}, True))
    made.plays()
    assert (made.run.tool_calls, made.run.emitted_calls, made.run.body_runs) == (2, 2, 2)


# ---- the pause


def test_a_pause_is_told_once_and_its_end_when_nobody_is_waited_for() -> None:
    made = hand("pay", "paste").tell(Paused(50.0)).tell(Paused(90.0)).tell(Approved("p1"))
    assert made.run.paused
    made.tell(Returned("p2", "hit"))
    assert not made.run.paused
    told = [row for row in made.run.trace if row[0] in ("paused", "resumed")]
    assert told == [("paused", 0.0, "p1", {"p1": "approval", "p2": "client"}), ("resumed", 0.0, "run", None)]


def test_only_approvals_expire_and_the_first_pause_says_when() -> None:
    made = hand("pay", "paste").tell(Paused(50.0)).tell(Paused(90.0))
    assert (made.call("p1").expires_at, made.call("p2").expires_at) == (50.0, None)


def test_a_run_does_not_pause_while_the_host_still_has_to_look() -> None:
    made = hand("pay", "pay", checks=True).tell(Checked("p1", True))
    with pytest.raises(WrongEvent, match="told Paused and waits for checks first"):
        made.tell(Paused())
    assert not made.run.paused


# ---- words


def test_an_edit_is_measured_and_the_decider_is_told_what_it_had_asked_for() -> None:
    made = hand("pay").tell(Approved("p1", '{"x": 5}', True))
    call = made.call("p1")
    assert (call.args, call.edited, call.ok) == ({"x": 5}, {"x": 1}, None)
    assert made.batch == ["p1"]


@pytest.mark.parametrize(
    ("args", "error"), [({"x": 10}, "args:range:x"), ({"y": 1}, "args:extra:y"), ("no json", "args:type:args"), (7, "args:type:args")]
)
def test_an_edit_that_breaks_the_contract_is_refused_like_any(args: Any, error: str) -> None:
    made = hand("pay", "look").tell(Approved("p1", args, True))
    assert made.words == [error, "open"]
    assert made.batch == ["p2"]
    assert made.call("p1").detail


def test_an_edit_to_nothing_means_no_arguments() -> None:
    assert hand("pay").tell(Approved("p1", None, True)).call("p1").args == {}


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("", "denied"),
        ("  ", "denied"),
        ("too dear", "denied:too dear"),
        (5, "denied"),
        (None, "denied"),
        ("x" * 400, f"denied:{'x' * 300}"),
    ],
)
def test_a_denial_keeps_its_reason(reason: Any, word: str) -> None:
    made = hand("pay").tell(Denied("p1", reason))
    assert made.words == [word]
    assert load(save(made.run), made.engine.setup) == made.run
    assert (made.run.tool_errors, made.run.bad_arguments) == (0, 0)
    assert isinstance(made.effect, Decide)


def test_a_denial_may_end_the_run_and_nothing_of_the_turn_begins() -> None:
    made = hand("look", "pay", "paste", policy=Policy(on_denied="stop")).tell(Denied("p2", "no"))
    assert made.words == ["skipped:denied", "denied:no", "skipped:denied"]
    assert made.reason is StopReason.DENIED
    assert made.run.stop is not None
    assert made.run.stop.detail == "the call p2 of pay was denied: no"


WRITTEN_UP = Table(
    "written up",
    "gather",
    (State("gather", work="gather", tools=None), State("write", work="synthesize"), State("end", work="answer")),
    (
        *(Row("gather", outcome, "write") for outcome in ("called", "failed", "no_progress", "proposed", "stopped")),
        *(Row("write", outcome, "end") for outcome in ("written", "stopped")),
    ),
)


def test_a_denial_that_ends_the_calling_is_in_the_history_of_whoever_writes_it_up() -> None:
    made = hand("look", "pay", policy=Policy(on_denied="stop"), table=WRITTEN_UP, composes=True).tell(Denied("p2", "no"))
    assert isinstance(made.effect, Compose)
    assert [message.error for message in transcript(made.run, made.engine.setup.box)[-2:]] == ["skipped:denied", "denied:no"]


def test_a_new_message_supersedes_every_call_of_the_turn() -> None:
    made = hand("look", "pay", "paste").tell(Paused()).tell(Approved("p2")).tell(Superseded("never mind"))
    assert made.words == ["superseded"] * 3
    assert isinstance(made.effect, Decide)
    assert ("message", 0.0, "run", "never mind") in made.run.trace
    assert (made.run.body_runs, made.run.tool_errors, made.run.bad_arguments) == (0, 0, 0)


def test_a_clients_answer_is_measured_like_any_result() -> None:
    made = Hand(a_tool("paste", where="client", decode_json=True, post={"positive": lambda value: value > 0}), limits=off())
    made.decides(*(ToolCall("paste", {"n": n}, f"p{n}") for n in range(4)))
    made.tell(Returned("p0", "5")).tell(Returned("p1", "-5")).tell(Returned("p2", "five")).tell(Raised("p3", "OSError", "gone"))
    assert made.words == ["ok", "result:positive", "result:not_json", "raised:OSError"]
    assert made.call("p0").value == 5


def test_a_client_that_asks_for_another_try_gets_none() -> None:
    made = hand("paste").tell(Returned("p1", 1, says("RETRYABLE")))
    assert made.words == ["result:retryable"]


def test_a_clients_call_that_is_lost_is_not_begun_by_the_host() -> None:
    made = hand("paste").tell(Lost("p1"))
    assert isinstance(made.effect, Pause)
    assert hand("sign").tell(Approved("p1")).tell(Lost("p1")).batch == []


def test_after_a_clients_fatal_result_nothing_of_the_turn_begins() -> None:
    made = hand("look", "paste").tell(Returned("p2", 1, says("FATAL", reason="closed")))
    assert made.words == ["skipped:fatal", "result:fatal"]
    assert made.reason is StopReason.FATAL


# ---- what is refused

WORDS: dict[str, Any] = {
    "checked": Checked("p1"),
    "approved": Approved("p1"),
    "denied": Denied("p1"),
    "returned": Returned("p1", 1),
    "raised": Raised("p1", "OSError"),
    "skipped": Skipped("p1", "hook"),
    "another call": Approved("p9"),
    "no name": Approved([]),  # type: ignore[arg-type]
}
TAKEN = {
    "maybe": {"checked", "skipped"},
    "pay": {"approved", "denied"},
    "paste": {"returned", "raised"},
    "look": {"returned", "raised", "skipped"},
}


@pytest.mark.parametrize("tool", TAKEN)
@pytest.mark.parametrize("word", WORDS)
def test_a_call_takes_the_word_that_it_waits_for_and_no_other(tool: str, word: str) -> None:
    made = hand(tool, "look")
    before = save(made.run)
    if word in TAKEN[tool]:
        made.tell(WORDS[word])
        assert save(made.run) != before
    else:
        with pytest.raises(WrongEvent, match="run 'run'"):
            made.tell(WORDS[word])
        assert save(made.run) == before


def test_a_decided_call_is_not_decided_again() -> None:
    made = hand("pay", "pay").tell(Approved("p1"))
    for word in (Approved("p1"), Denied("p1")):
        with pytest.raises(WrongEvent, match=r"no call 'p1' that waits for approval; it waits for 'p2' \(approval\)"):
            made.tell(word)


def test_what_people_say_is_told_apart_from_what_bodies_do() -> None:
    for event in (Checked("c"), Paused(), Approved("c"), Denied("c"), Superseded("m")):
        assert is_people_event(event)
    for other in (Returned("c", 1), Skipped("c", "hook"), Decided(Decision()), Cancelled()):
        assert not is_people_event(other)
    assert not may_settle(hand("look").run, Returned("p1", 1))
    assert not may_settle(hand("pay").run, Returned("p9", 1))


# ---- the token


def test_a_token_stands_for_the_exact_call() -> None:
    made = hand("pay", "pay", "sign")
    tokens = [approval_token(made.run, call) for call in made.run.open_calls]
    assert len(set(tokens)) == 3
    again = hand("pay", "pay", "sign")
    assert [approval_token(again.run, call) for call in again.run.open_calls] == tokens


@pytest.mark.parametrize(
    ("name", "value"), [("tool", "sign"), ("args", {"x": 2}), ("args", {"x": 1.0}), ("args", {"x": True}), ("id", "p9")]
)
def test_a_changed_call_has_another_token(name: str, value: Any) -> None:
    made = hand("pay")
    call = made.call("p1")
    assert approval_token(made.run, attrs.evolve(call, **{name: value})) != approval_token(made.run, call)


def test_another_run_machine_or_state_has_another_token() -> None:
    made = hand("pay")
    runs = [made.run, *(attrs.evolve(made.run, **{name: "other"}) for name in ("id", "machine", "state"))]
    assert len({approval_token(run, made.call("p1")) for run in runs}) == 4


# ---- cancelled, repaired, out of time


def test_a_call_that_nobody_has_decided_is_asked_for_again_after_a_cancellation() -> None:
    made = hand("pay", "sign", "look").tell(Paused(50.0)).tell(Approved("p2")).tell(Cancelled())
    assert made.words == ["cancelled"] * 3
    made.engine.resume(made.run)
    assert [(call.id, call.awaits) for call in made.effect.calls] == [("p1", "approval"), ("p2", "client")]
    made.tell(Approved("p1")).tell(Returned("p2", "signed")).plays()
    assert made.words == ["ok"] * 3
    assert made.run.tool_calls == 3


def test_a_repaired_call_is_asked_about_anew() -> None:
    made = hand("pay", repairs={"args:range:x": ("x", lambda tool, args, run: ("pay", {"x": 9}))})
    made.tell(Approved("p1", {"x": 10}, True))
    assert (made.call("p1").args, made.call("p1").awaits, made.run.held) == ({"x": 9}, "approval", 1)
    other = hand("pay", repairs={"args:range:x": ("x", lambda tool, args, run: ("look", {}))})
    other.tell(Approved("p1", {"x": 10}, True))
    assert (other.call("p1").awaits, other.run.held, other.batch) == ("", 0, ["p1"])


def test_time_that_ran_out_while_the_host_looked_keeps_the_bodies_from_beginning() -> None:
    made = hand("look", checks=True, limits=off(deadline_s=10.0, max_turns=9)).tell(Checked("p1"), 10.5)
    assert made.words == ["skipped:deadline"]
    assert made.reason is StopReason.DEADLINE


# ---- secrets


def test_a_secret_that_a_person_changed_is_in_no_text_once_the_call_is_settled() -> None:
    pin = a_tool("pin", secret=("q",), approval=True, args=taking(q={"type": "str", "max_len": 8}))
    made = Hand(pin, limits=off()).decides(ToolCall("pin", {"q": "swordfis"}, "p1")).tell(Approved("p1", {"q": "hunter22"}, True))
    made.plays()
    assert not [secret for secret in ("swordfis", "hunter22") if secret in save(made.run)]
    assert replay(made.engine, made.run) == made.run


def test_a_bad_secret_that_a_person_gave_is_replayed_as_refused() -> None:
    pin = a_tool("pin", secret=("q",), approval=True, args=taking(q={"type": "str", "max_len": 8}))
    made = Hand(pin, limits=off()).decides(ToolCall("pin", {"q": "good"}, "p1")).tell(Approved("p1", {"q": "much too long"}, True))
    (word,) = made.words
    assert word.startswith("args:")
    assert "much too long" not in save(made.run)
    assert replay(made.engine, made.run) == made.run


def test_the_tools_that_are_held_are_those_of_the_worlds() -> None:
    box = an_engine().setup.box
    assert [name for name in box.names() if (tool := box.get(name)) is not None and tool.held] == list(HELD)


def test_identical_reads_share_one_body_once_everybody_has_spoken() -> None:
    made = Hand(a_tool("ask", approval=True), limits=off()).decides(*(ToolCall("ask", {"q": 1}, f"p{n}") for n in range(3)))
    made.tell(Denied("p0", "no")).tell(Approved("p1")).tell(Approved("p2"))
    assert made.batch == ["p1"]
    made.begins("p1").gives("p1")
    assert made.words == ["denied:no", "ok", "ok"]
    assert [call.reused for call in made.calls] == [False, False, True]
    assert made.run.body_runs == 1


# ---- a person's arguments count as any


def edited(args: Any, *before: Any, **parts: Any) -> Hand:
    """A run in which the calls of `before` were let run as they were, and one more with `args` in place of its own."""
    made = Hand(*tools(), **{"limits": off(max_same_call=1), **parts})
    for n, x in enumerate((*before, 9), 1):
        made.decides(ToolCall("pay", {"x": x}, f"p{n}"))
        last = n > len(before)
        made.tell(Approved(f"p{n}", args if last else None, last))
        if not last:
            made.tell(Returned(f"p{n}", n))
    return made


def test_a_call_that_a_person_made_the_same_as_an_earlier_one_is_a_repetition() -> None:
    made = edited({"x": 1}, 1)
    assert made.words == ["ok", "refused:duplicate"]
    assert made.run.stop is not None
    assert made.run.stop.reason is StopReason.DUPLICATE_CALL
    assert made.run.stop.closed[0].calls == ("p1", "p2")


def test_a_call_that_a_person_changed_is_a_request_of_its_new_key() -> None:
    made = edited({"x": 2}, 1).tell(Returned("p2", "paid"))
    made.decides(ToolCall("pay", {"x": 2}, "p3"))
    assert made.words == ["ok", "ok", "refused:duplicate"]


def test_arguments_that_a_person_left_the_same_are_no_request_more() -> None:
    made = edited({"x": 9}).tell(Returned("p1", "paid"))
    assert made.words == ["ok"]
    assert set(made.run.requests.values()) == {1}


def test_a_person_s_repetition_is_refused_alone_where_the_policy_says_so() -> None:
    made = edited({"x": 1}, 1, policy=Policy(duplicates="refuse"))
    assert made.words == ["ok", "refused:duplicate"]
    assert isinstance(made.effect, Decide)


def test_a_person_s_arguments_that_break_the_contract_are_a_request_too() -> None:
    made = edited({"x": 10}, 1, policy=Policy(duplicates="refuse"))
    assert made.words == ["ok", "args:range:x"]
    assert sorted(made.run.requests.values()) == [1, 1, 1]


def test_the_place_in_the_window_is_that_of_the_arguments_that_run() -> None:
    made = edited({"x": 2}, 1, limits=off(max_same_call=None, dedup_window=2)).tell(Returned("p2", "paid"))
    before = list(made.run.window)
    made.decides(ToolCall("pay", {"x": 9}, "p3"))
    assert len(before) == 2
    assert made.call("p3").admitted
    made.tell(Approved("p3", {"x": 2}, True))
    assert made.words[-1] == "refused:duplicate"


def test_what_is_behind_a_person_s_repetition_begins_no_more() -> None:
    made = Hand(*tools(), limits=off(max_same_call=1)).decides(ToolCall("pay", {"x": 1}, "p1")).tell(Approved("p1"))
    made.tell(Returned("p1", "paid"))
    made.decides(*(ToolCall("pay", {"x": n + 1}, f"p{n}") for n in (2, 3, 4)))
    made.tell(Approved("p2")).tell(Approved("p3", {"x": 1}, True))
    assert made.words == ["ok", "open", "refused:duplicate", "skipped:duplicate_call"]
    assert made.batch == ["p2"]
    made.tell(Started(("p2",))).tell(Returned("p2", "paid"))
    assert made.run.stop is not None
    assert made.run.stop.reason is StopReason.DUPLICATE_CALL
    assert replay(made.engine, made.run) == made.run
