"""What people say to a paused run: it is done once, refused with a reason, and nothing is lost on the way."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent import Agent, Decision, Limits, Policy, Run, Tool, ToolCall
from fsm_agent.core.agent_table import AGENT
from fsm_agent.core.answers import Answer
from fsm_agent.core.contracts import TableArguments
from fsm_agent.core.errors import CannotDecide, CannotResume, RunBusy, SavedRunError
from fsm_agent.core.guards import within_limits
from fsm_agent.core.messages import Role
from fsm_agent.core.table import Row, State, Table
from fsm_agent.core.tools import BreakerPolicy, Outcome, Retry
from fsm_agent.core.trace import TraceEvent
from fsm_agent.core.values import ResultClass, Verdict
from fsm_agent.host.clock import ScriptedClock
from fsm_agent.host.tool_forms import result_form

FREE = Limits.off(max_steps=500, max_turns=20)
INT = TableArguments({"x": {"type": "int"}})


def script(*turns: Any) -> Callable[[Any], Any]:
    def decide(ask: Any) -> Any:
        return turns[ask.run.turns] if ask.run.turns < len(turns) else "done"

    return decide


class Shop:
    """An agent whose `pay` needs a person, whose `where` needs a client, and a log of the bodies that ran."""

    def __init__(self, *turns: Any, tools: tuple[Tool, ...] = (), **more: Any) -> None:
        self.ran: list[Any] = []
        self.clock = ScriptedClock(wall_start=1_000_000.0)
        known = {one.name: one for one in (*self._tools(), *tools)}
        settings = {"limits": FREE, "clock": self.clock, **more}
        self.agent = Agent(known.values(), script(*turns), **settings)

    def _tools(self) -> list[Tool]:
        def pay(x: int) -> str:
            self.ran.append(("pay", x))
            return f"paid {x}"

        def read(x: int) -> str:
            self.ran.append(("read", x))
            return f"read {x}"

        def where() -> str:
            raise AssertionError("the client runs it")

        return [
            Tool(name="pay", fn=pay, effect="at_most_once", approval=True, args=INT),
            Tool(name="read", fn=read, effect="pure", args=INT),
            Tool(name="where", fn=where, effect="pure", where="client", returns=result_form({"place": {"type": "str"}})),
            Tool(name="send", fn=where, effect="at_most_once", where="client"),
        ]

    def paused(self, **start: Any) -> Run:
        run = self.agent.start("go", **{"run_id": "r", **start})
        assert self.agent.drive(run).status == "paused"
        return run


def turn(*calls: tuple[str, str, dict[str, Any]]) -> Decision:
    return Decision(calls=tuple(ToolCall(name, args, call_id) for call_id, name, args in calls))


PAY = turn(("a", "pay", {"x": 5}))
WHERE = turn(("w", "where", {}))
MIXED = turn(("a", "pay", {"x": 5}), ("b", "read", {"x": 1}), ("c", "pay", {"x": 6}), ("w", "where", {}))


def sync(agent: Agent, run: Run) -> Answer:
    return agent.drive(run)


def tasks(agent: Agent, run: Run) -> Answer:
    return asyncio.run(agent.adrive(run))


Drive = Callable[[Agent, Run], Answer]
both = pytest.mark.parametrize("drive", [sync, tasks])


def words(run: Run) -> dict[str, str]:
    return {call.id: "ok" if call.ok else call.error for call in run.calls}


# -- what is said is done --------------------------------------------------------------------------------------------


@both
def test_a_run_waits_for_the_exact_call_and_says_so(drive: Drive) -> None:
    shop = Shop(turn(("a", "pay", {"x": 5})))
    run = shop.agent.start("go")
    answer = drive(shop.agent, run)

    (pending,) = answer.pending
    assert (answer.status, answer.stop_reason, answer.ok, answer.stop) == ("paused", None, False, None)
    assert (pending.call_id, pending.kind, pending.tool, pending.args) == ("a", "approval", "pay", {"x": 5})
    assert shop.agent.pending(run) == answer.pending
    assert "pay (a, approval)" in answer.text
    assert shop.ran == []
    pending.args["x"] = 10_000
    assert shop.agent.pending(run)[0].args == {"x": 5}


@both
def test_an_approved_call_runs_once(drive: Drive) -> None:
    shop = Shop(PAY)
    run = shop.paused()
    shop.agent.approve(run, "a")

    assert drive(shop.agent, run).text == "done"
    assert shop.ran == [("pay", 5)]
    assert words(run) == {"a": "ok"}
    assert shop.agent.replay(run) == run


@both
@pytest.mark.parametrize(("reason", "word"), [("", "denied"), ("too dear", "denied:too dear"), ("  ", "denied")])
def test_a_denied_call_never_runs_and_the_decider_is_told_why(drive: Drive, reason: str, word: str) -> None:
    shop = Shop(PAY)
    run = shop.paused()
    shop.agent.deny(run, "a", reason)

    assert drive(shop.agent, run).text == "done"
    assert (shop.ran, words(run)) == ([], {"a": word})
    assert any(message.error == word for message in shop.agent.history(run))
    assert (run.tool_errors, run.bad_arguments) == (0, 0)
    assert shop.agent.replay(run) == run


@both
def test_a_denial_ends_the_run_where_the_policy_says_so(drive: Drive) -> None:
    shop = Shop(MIXED, policy=Policy(on_denied="stop"))
    run = shop.paused()
    shop.agent.deny(run, "c", "no")
    answer = drive(shop.agent, run)

    assert answer.stop_reason == "denied"
    assert words(run) == {"a": "skipped:denied", "b": "skipped:denied", "c": "denied:no", "w": "skipped:denied"}
    assert (shop.ran, shop.agent.pending(run)) == ([], ())


@both
def test_a_person_may_change_the_arguments(drive: Drive) -> None:
    shop = Shop(PAY)
    run = shop.paused()
    args = {"x": 3}
    shop.agent.approve(run, "a", args)
    args["x"] = 10_000

    assert drive(shop.agent, run).text == "done"
    assert shop.ran == [("pay", 3)]
    (call,) = run.calls
    assert (call.args, call.edited) == ({"x": 3}, {"x": 5})
    assert any("a person changed the arguments" in message.text for message in shop.agent.history(run))
    assert shop.agent.replay(run) == run


@both
@pytest.mark.parametrize(
    ("args", "word"), [({"x": "5"}, "args:type:x"), ({}, "args:missing:x"), ({"x": 5, "y": 1}, "args:extra:y"), ([1], "args:type:args")]
)
def test_changed_arguments_are_measured_like_any(drive: Drive, args: Any, word: str) -> None:
    shop = Shop(PAY)
    run = shop.paused()
    shop.agent.approve(run, "a", args)

    assert drive(shop.agent, run).text == "done"
    assert (shop.ran, words(run)) == ([], {"a": word})


CLIENT = [
    ({"place": "Rome"}, "ok"),
    ({"place": 5}, "result:shape"),
    ({}, "result:shape"),
    (None, "result:shape"),
    ("Rome", "result:shape"),
]


@both
@pytest.mark.parametrize(("value", "word"), CLIENT)
def test_a_clients_answer_is_measured_like_any_result(drive: Drive, value: Any, word: str) -> None:
    shop = Shop(WHERE)
    run = shop.paused()
    shop.agent.deliver(run, "w", value)

    assert drive(shop.agent, run).text == "done"
    assert words(run) == {"w": word}
    assert run.tool_errors == (word != "ok")
    assert shop.agent.replay(run) == run


@both
def test_nothing_from_a_client_is_an_empty_result(drive: Drive) -> None:
    shop = Shop(turn(("w", "look", {})), tools=(Tool(name="look", fn=print, where="client"),))
    run = shop.paused()
    shop.agent.deliver(run, "w", [])
    drive(shop.agent, run)

    assert (run.calls[0].result_class, run.empty_results) == ("EMPTY", 1)


@both
@pytest.mark.parametrize(("tool", "word"), [("where", "raised:OfflineError"), ("send", "unknown_outcome")])
def test_a_clients_failure_is_a_failure_of_the_call(drive: Drive, tool: str, word: str) -> None:
    shop = Shop(turn(("w", tool, {})))
    run = shop.paused()
    shop.agent.deliver_error(run, "w", "OfflineError", "no net")

    answer = drive(shop.agent, run)
    asked = "\n\nDid send (w) take effect? It was begun, and what became of it is not known."
    assert answer.text == ("done" if tool == "where" else f"done{asked}")
    assert answer.stop_reason == ("answered" if tool == "where" else "question")
    assert words(run) == {"w": word}
    assert "no net" in run.calls[0].detail


def test_what_a_client_does_to_its_value_later_does_not_reach_the_run() -> None:
    shop = Shop(WHERE)
    run = shop.paused()
    value = {"place": "Rome"}
    shop.agent.deliver(run, "w", value)
    value["place"] = "Oslo"

    assert run.calls[0].value == {"place": "Rome"}
    assert shop.agent.replay(run) == run


def test_a_new_message_is_heard_trimmed_and_canonical_as_a_request_is() -> None:
    shop = Shop(MIXED)
    run = shop.paused()
    shop.agent.message(run, "  cafe\u0301,\r\nplease ")

    shop.agent.resume(run)
    assert [message.text for message in shop.agent.history(run) if message.role is Role.USER] == ["go", "caf\u00e9,\nplease"]


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("tasks", [False, True])
def test_resuming_gives_the_closing_turn_where_an_approval_edited_to_a_repetition_stopped_the_run(tasks: bool, loaded: bool) -> None:
    turns = ToolCall("pay", {"x": 1}, id="a"), ToolCall("pay", {"x": 2}, id="b")
    shop = Shop(*turns, limits=Limits(max_same_call=1), close=lambda ask: "That was paid already.")
    run = shop.agent.run("go").run
    assert run is not None
    shop.agent.approve(run, "a")
    shop.agent.resume(run)
    shop.agent.approve(run, "b", args={"x": 1})
    if loaded:
        run = shop.agent.load(shop.agent.save(run))

    answer = asyncio.run(shop.agent.aresume(run)) if tasks else shop.agent.resume(run)
    assert (answer.stop_reason, answer.text.splitlines()[0], shop.ran) == ("duplicate_call", "That was paid already.", [("pay", 1)])
    with pytest.raises(CannotResume, match="goes on with max_same_call=3"):
        shop.agent.resume(run)


@both
def test_a_new_message_supersedes_what_waits_and_is_heard(drive: Drive) -> None:
    shop = Shop(MIXED)
    run = shop.paused()
    shop.agent.approve(run, "a")
    shop.agent.message(run, "forget it")

    assert not run.paused
    assert drive(shop.agent, run).text == "done"
    assert (shop.ran, set(words(run).values())) == ([], {"superseded"})
    history = shop.agent.history(run)
    assert [message.call_id for message in history if message.role is Role.TOOL] == ["a", "b", "c", "w"]
    assert [message.text for message in history if message.role is Role.USER] == ["go", "forget it"]
    assert shop.agent.replay(run) == run


# -- several decisions, several pauses -------------------------------------------------------------------------------


@both
def test_siblings_wait_for_the_last_decision_and_run_once(drive: Drive) -> None:
    shop = Shop(MIXED)
    run = shop.paused()
    for act, left in (
        (lambda: shop.agent.approve(run, "c"), ["a", "w"]),
        (lambda: shop.agent.deliver(run, "w", {"place": "Rome"}), ["a"]),
    ):
        act()
        answer = drive(shop.agent, run)
        assert (answer.status, [one.call_id for one in answer.pending]) == ("paused", left)
        assert shop.ran == []
    shop.agent.deny(run, "a", "no")

    assert drive(shop.agent, run).text == "done"
    assert sorted(shop.ran) == [("pay", 6), ("read", 1)]
    assert words(run) == {"a": "denied:no", "b": "ok", "c": "ok", "w": "ok"}
    assert (run.tool_calls, run.body_runs, run.turns, run.emitted_calls) == (4, 2, 2, 4)
    assert [kind for kind, *_ in run.trace].count("paused") == 1
    assert [kind for kind, *_ in run.trace].count("resumed") == 1
    assert shop.agent.replay(run) == run


ACTS = ("approve", "edit", "deny", "message", "save", "drive", "resume", "wait")


@given(st.lists(st.tuples(st.sampled_from(ACTS), st.sampled_from("acdw")), max_size=14), st.booleans())
def test_whatever_is_said_in_whatever_order_each_call_runs_at_most_once_and_nothing_is_counted_twice(
    acts: list[tuple[str, str]], asynchronous: bool
) -> None:
    four = turn(("a", "pay", {"x": 1}), ("b", "read", {"x": 2}), ("c", "pay", {"x": 3}), ("d", "pay", {"x": 4}), ("w", "where", {}))
    shop = Shop(four)
    agent, run = shop.agent, shop.paused()
    allowed: dict[str, int] = {}
    said: set[str] = set()
    for act, call_id in acts:
        before = agent.save(run)
        waits = call_id not in said and run.paused
        try:
            if act == "approve":
                agent.approve(run, call_id)
                allowed[call_id] = {"a": 1, "c": 3, "d": 4}[call_id]
            elif act == "edit":
                agent.approve(run, call_id, {"x": 9})
                allowed[call_id] = 9
            elif act == "deny":
                agent.deny(run, call_id, "no")
            elif act == "message":
                agent.message(run, "stop it")
                allowed.clear()
            elif act == "save":
                run = agent.load(before)
            elif act == "wait":
                shop.clock.advance(100)
            elif act == "resume":
                agent.resume(run, max_turns=30)
            else:
                (tasks if asynchronous else sync)(agent, run)
            if act in ("approve", "edit", "deny"):
                assert waits
                said.add(call_id)
        except (CannotDecide, CannotResume):
            assert act == "resume" or not waits or call_id == "w"
            assert agent.save(run) == before
    assert run.paused or (tasks if asynchronous else sync)(agent, run).text == "done"
    if run.paused:
        assert shop.ran == []
    else:
        assert sorted(x for name, x in shop.ran if name == "pay") == sorted(allowed.values())
        assert len(run.calls) == 5
    assert (run.tool_calls, run.emitted_calls, run.spent_s) == (5, 5, 0.0)
    assert run.body_runs == len(shop.ran)
    assert agent.replay(run) == run
    assert agent.load(agent.save(run)) == run


def test_time_passes_for_nobody_while_people_think() -> None:
    shop = Shop(PAY, turn(("b", "read", {"x": 1})), limits=Limits(deadline_s=25.0))
    run = shop.paused()
    shop.clock.advance(10_000.0)
    shop.agent.approve(run, "a")
    shop.clock.advance(10_000.0)
    answer = shop.agent.drive(run)

    assert (answer.text, run.spent_s, run.waited_s) == ("done", 0.0, 0.0)


def test_the_breaker_is_asked_again_when_the_run_goes_on() -> None:
    def flaky(x: int) -> int:
        raise ValueError("down")

    shop = Shop(
        turn(("a", "flaky", {"x": 1})),
        tools=(Tool(name="flaky", fn=flaky, effect="pure", approval=True, breaker=BreakerPolicy(failures=1)),),
    )
    first, second = shop.paused(run_id="1"), shop.paused(run_id="2")
    for run in (first, second):
        shop.agent.approve(run, "a")
        shop.agent.drive(run)

    assert (words(first), words(second)) == ({"a": "raised:ValueError"}, {"a": "refused:circuit_open"})


def test_a_paused_run_may_be_given_more_and_still_waits() -> None:
    shop = Shop(PAY)
    run = shop.paused()
    answer = shop.agent.resume(run, max_turns=40)

    assert (answer.status, run.limits.max_turns, shop.ran) == ("paused", 40, [])


@pytest.mark.parametrize(
    ("says", "paused"), [(True, True), (False, False), (None, True), (0, True), ("", True), (ValueError("x"), True)], ids=repr
)
@both
def test_an_approval_function_that_does_not_say_no_has_a_person_asked(drive: Drive, says: Any, paused: bool) -> None:
    seen: list[Any] = []

    def needed(x: dict[str, int]) -> Any:
        seen.append(dict(x))
        x.clear()
        if isinstance(says, Exception):
            raise says
        return says

    ran: list[Any] = []
    tools = [Tool(name="t", fn=lambda x: ran.append(x) or "ok", approval=needed)]
    agent = Agent(tools, script(ToolCall("t", {"x": {"n": 1}})), limits=FREE)
    run = agent.start("go")

    assert (drive(agent, run).status == "paused") is paused
    assert seen == [{"n": 1}]
    assert ran == ([] if paused else [{"n": 1}])


# -- refusals: a reason, and nothing changed -------------------------------------------------------------------------


def decided(shop: Shop, run: Run) -> None:
    shop.agent.approve(run, "a")


def finished(shop: Shop, run: Run) -> None:
    for call_id in "ac":
        shop.agent.approve(run, call_id)
    shop.agent.deliver(run, "w", {"place": "Rome"})
    assert shop.agent.drive(run).ok


def stopped(shop: Shop, run: Run) -> None:
    shop.agent.cancel(run)


def late(shop: Shop, run: Run) -> None:
    shop.clock.advance(61.0)


def as_it_is(shop: Shop, run: Run) -> None:
    pass


Act = Callable[[Agent, Run], Any]
REFUSALS: dict[str, tuple[Callable[[Shop, Run], None], Act, str]] = {
    "decided": (decided, lambda one, run: one.approve(run, "a"), "'a' of run 'r' is decided already (it may run)"),
    "decided, denied now": (decided, lambda one, run: one.deny(run, "a"), "is decided already"),
    "over": (finished, lambda one, run: one.approve(run, "a"), "run 'r' is over (answered)"),
    "over, deny": (finished, lambda one, run: one.deny(run, "a"), "run 'r' is over (answered)"),
    "over, deliver": (finished, lambda one, run: one.deliver(run, "w", {}), "run 'r' is over (answered)"),
    "over, deliver error": (finished, lambda one, run: one.deliver_error(run, "w", "E"), "run 'r' is over (answered)"),
    "over, message": (finished, lambda one, run: one.message(run, "hi"), "start a run with its history"),
    "over, resume": (finished, lambda one, run: one.resume(run, max_turns=99), "ended by 'answered'"),
    "cancelled": (stopped, lambda one, run: one.approve(run, "a"), "run 'r' is over (cancelled)"),
    "cancelled, message": (stopped, lambda one, run: one.message(run, "hi"), "is not paused"),
    "expired": (late, lambda one, run: one.approve(run, "a"), "the approval of call 'a' has expired"),
    "expired, edited": (late, lambda one, run: one.approve(run, "a", {"x": 1}), "has expired; deny it, or say something new"),
    "of a client": (as_it_is, lambda one, run: one.approve(run, "w"), "waits for a client's answer, not for a person's approval"),
    "of a client, deny": (as_it_is, lambda one, run: one.deny(run, "w"), "waits for a client's answer"),
    "of a person": (as_it_is, lambda one, run: one.deliver(run, "a", 1), "waits for a person's approval, not for a client's answer"),
    "of a person, error": (as_it_is, lambda one, run: one.deliver_error(run, "a", "E"), "waits for a person's approval"),
    "of nobody": (as_it_is, lambda one, run: one.approve(run, "b"), "'b'"),
    "unknown": (as_it_is, lambda one, run: one.approve(run, "z"), "has no call 'z'; it waits for 'a', 'c', 'w'"),
    "no id": (as_it_is, lambda one, run: one.approve(run, None), "has no call None"),  # type: ignore[arg-type]
    "other token": (as_it_is, lambda one, run: one.approve(run, "a", token="0123456789abcdef"), "is not the one that was shown"),
    "token of another": (
        as_it_is, lambda one, run: one.deny(run, "a", token=one.pending(run)[1].token), "is not the one that was shown"
    ),
    "no message": (as_it_is, lambda one, run: one.message(run, " \n"), "a text that says something"),
    "message of another kind": (as_it_is, lambda one, run: one.message(run, 5), "a text that says something"),  # type: ignore[arg-type]
    "reason of another kind": (as_it_is, lambda one, run: one.deny(run, "a", 5), "reason is 5; give a text"),  # type: ignore[arg-type]
    "error of another kind": (
        as_it_is, lambda one, run: one.deliver_error(run, "w", ValueError("x")), "error is"  # type: ignore[arg-type]
    ),
    "error without a name": (as_it_is, lambda one, run: one.deliver_error(run, "w", " "), "has no name"),
    "limit lowered": (as_it_is, lambda one, run: one.resume(run, max_turns=1), "max_turns"),
    "limit unknown": (as_it_is, lambda one, run: one.resume(run, nothing=1), "nothing"),
    "unbounded": (as_it_is, lambda one, run: one.resume(run, max_turns=None, max_steps=None), "cannot go on"),
}


@pytest.mark.parametrize(("before", "act", "told"), REFUSALS.values(), ids=REFUSALS)
def test_what_cannot_be_done_is_refused_with_a_reason_and_the_run_is_as_it_was(
    before: Callable[[Shop, Run], None], act: Act, told: str
) -> None:
    shop = Shop(MIXED, policy=Policy(approval_ttl_s=60.0))
    run = shop.paused()
    before(shop, run)
    saved, ran = shop.agent.save(run), list(shop.ran)
    with pytest.raises((CannotDecide, CannotResume)) as raised:
        act(shop.agent, run)

    assert told in str(raised.value)
    assert (shop.agent.save(run), shop.ran, run.driven) == (saved, ran, False)


def test_a_token_stands_for_tool_arguments_machine_state_and_run() -> None:
    def token(shop: Shop, run_id: str = "r") -> str:
        run = shop.paused(run_id=run_id)
        return next(one.token for one in shop.agent.pending(run) if one.call_id == "a")

    first = token(Shop(PAY))
    assert first == token(Shop(PAY))
    others = [
        token(Shop(turn(("a", "pay", {"x": 6})))),
        token(Shop(turn(("a", "buy", {"x": 5})), tools=(Tool(name="buy", fn=print, approval=True),))),
        token(Shop(PAY), run_id="s"),
        token(Shop(PAY, allowed={"gather": ["pay"]})),
    ]
    assert len({first, *others}) == 5


def test_a_decision_for_arguments_that_have_changed_is_refused() -> None:
    shop, other = Shop(PAY), Shop(turn(("a", "pay", {"x": 5_000})))
    shown = shop.agent.pending(shop.paused())[0].token
    run = other.paused()
    saved = other.agent.save(run)
    with pytest.raises(CannotDecide, match="is not the one that was shown; look at it again"):
        other.agent.approve(run, "a", token=shown)

    assert other.agent.save(run) == saved
    other.agent.approve(run, "a", token=other.agent.pending(run)[0].token)


def test_an_approval_is_taken_until_its_second_and_a_denial_later_too() -> None:
    shop = Shop(MIXED, policy=Policy(approval_ttl_s=60.0))
    run = shop.paused()
    assert [one.expires_at for one in shop.agent.pending(run)] == [1_000_060.0, 1_000_060.0, None]
    shop.clock.advance(60.0)
    shop.agent.approve(run, "a")
    shop.agent.drive(run)
    shop.clock.advance(0.001)
    with pytest.raises(CannotDecide, match="expired"):
        shop.agent.approve(run, "c")
    assert [one.expires_at for one in shop.agent.pending(run)] == [1_000_060.0, None]
    shop.agent.deny(run, "c")
    shop.agent.deliver(run, "w", {"place": "Rome"})

    assert shop.agent.drive(run).text == "done"
    assert sorted(shop.ran) == [("pay", 5), ("read", 1)]


def test_expiry_is_a_time_of_the_world_and_travels_with_the_run() -> None:
    shop, late_shop = Shop(PAY, policy=Policy(approval_ttl_s=60.0)), Shop(PAY)
    text = shop.agent.save(shop.paused())
    late_shop.clock.advance(61.0)
    run = late_shop.agent.load(text)
    with pytest.raises(CannotDecide, match="expired"):
        late_shop.agent.approve(run, "a")
    late_shop.agent.message(run, "then not")

    assert late_shop.agent.drive(run).text == "done"


@pytest.mark.parametrize(("policy", "days", "taken"), [({}, 6.9, True), ({}, 7.1, False), ({"approval_ttl_s": None}, 3650, True)])
def test_an_approval_waits_a_week_unless_the_policy_says_otherwise(policy: dict[str, Any], days: float, taken: bool) -> None:
    shop = Shop(PAY, policy=Policy(**policy))
    run = shop.paused()
    shop.clock.advance(days * 24 * 3600)
    if taken:
        shop.agent.approve(run, "a")
    else:
        with pytest.raises(CannotDecide, match=r"expired; deny it, or say something new; Policy\(approval_ttl_s=\)"):
            shop.agent.approve(run, "a")
        shop.agent.deny(run, "a")

    assert shop.agent.drive(run).text == "done"
    assert len(shop.ran) == taken


def test_another_machine_does_not_take_the_run() -> None:
    shop, other = Shop(PAY), Shop(PAY, allowed={"gather": ["pay"]})
    text = shop.agent.save(shop.paused())
    with pytest.raises(SavedRunError, match="was saved on machine"):
        other.agent.load(text)

    run = shop.agent.load(text)
    shop.agent.approve(run, "a")
    assert shop.agent.drive(run).text == "done"


def test_a_run_that_waits_for_a_tool_that_is_gone_is_not_loaded() -> None:
    shop = Shop(turn(("a", "gone", {})), tools=(Tool(name="gone", fn=print, approval=True),))
    text = shop.agent.save(shop.paused())
    with pytest.raises(SavedRunError, match="waits for the tool 'gone'"):
        Shop(PAY).agent.load(text)


def test_nobody_decides_about_a_run_that_is_being_driven() -> None:
    told: list[str] = []

    def nosy(ask: Any) -> Any:
        for act in (agent.approve, agent.deny, agent.deliver_error):
            with pytest.raises(RunBusy):
                    act(ask.run, "a", **({"error": "E"} if act == agent.deliver_error else {}))
        with pytest.raises(RunBusy):
            agent.message(ask.run, "hi")
        with pytest.raises(RunBusy):
            agent.resume(ask.run)
        told.append("five")
        return "done"

    agent = Agent([], nosy, limits=FREE)
    assert agent.run("go").text == "done"
    assert told == ["five"]


# -- elsewhere: another agent, another process -----------------------------------------------------------------------


@both
def test_a_new_agent_decides_about_a_saved_run(drive: Drive) -> None:
    first, second = Shop(MIXED), Shop(MIXED)
    run = second.agent.load(first.agent.save(first.paused()))
    assert [one.call_id for one in second.agent.pending(run)] == ["a", "c", "w"]
    second.agent.approve(run, "a")
    second.agent.deny(run, "c")
    run = second.agent.load(second.agent.save(run))
    second.agent.deliver(run, "w", {"place": "Rome"})

    assert drive(second.agent, run).text == "done"
    assert (first.ran, sorted(second.ran)) == ([], [("pay", 5), ("read", 1)])
    assert second.agent.replay(run) == run


def test_one_text_loaded_twice_is_two_runs() -> None:
    shop = Shop(PAY)
    text = shop.agent.save(shop.paused())
    one, two = shop.agent.load(text), shop.agent.load(text)
    shop.agent.approve(one, "a")
    shop.agent.deny(two, "a")

    assert (words_of(shop, one), words_of(shop, two)) == ({"a": "ok"}, {"a": "denied"})


def words_of(shop: Shop, run: Run) -> dict[str, str]:
    shop.agent.drive(run)
    return words(run)


SHOP = '''
import sys
from fsm_agent import Agent, ToolCall, Decision, tool

@tool(effect="at_most_once", approval=True)
def pay(x: int) -> str:
    print("paid", x)
    return f"paid {x}"

@tool(effect="pure")
def read(k: str) -> str:
    print("read", k)
    return f"read {k}"

def decide(ask):
    if ask.run.turns:
        return "done"
    return Decision(calls=(ToolCall("pay", {"x": 5}, "a"), ToolCall("read", {"k": "1"}, "b"), ToolCall("pay", {"x": 6}, "c")))

agent = Agent([pay, read], decide)

if __name__ == "__main__":
    run = agent.load(open(sys.argv[1], encoding="utf-8").read())
    agent.approve(run, "a", token=sys.argv[2])
    assert agent.drive(run).status == "paused"
    agent.deny(run, "c", "nej \\u00e5")
    answer = agent.drive(run)
    open(sys.argv[1], "w", encoding="utf-8").write(agent.save(run))
    print(answer.text, answer.stop_reason.value)
'''


def test_a_new_process_decides_and_gives_the_run_back(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "shop.py"
    place.write_text(SHOP, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("shop_of_a_process", place)
    assert spec is not None
    assert spec.loader is not None
    shop = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(shop)
    run = shop.agent.start("go")
    shop.agent.drive(run)
    saved = tmp_path / "run.json"
    saved.write_text(shop.agent.save(run), encoding="utf-8")
    token = shop.agent.pending(run)[0].token
    there = [sys.executable, str(place), str(saved), token]
    done = subprocess.run(there, capture_output=True, encoding="utf-8", timeout=60, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == sorted(["paid 5", "read 1", "done answered"])
    back = shop.agent.load(saved.read_text(encoding="utf-8"))
    assert words(back) == {"a": "ok", "b": "ok", "c": "denied:nej å"}
    assert shop.agent.replay(back) == back
    assert capfd.readouterr().out == ""


def test_a_paused_run_is_plain_json() -> None:
    shop = Shop(MIXED, policy=Policy(approval_ttl_s=60.0))
    saved = json.loads(shop.agent.save(shop.paused()), parse_constant=lambda word: pytest.fail(word))

    assert saved["run"]["held"] == 3
    assert [call["awaits"] for call in saved["run"]["open_calls"]] == ["approval", "", "approval", "client"]


# -- cancelling a run that is not driven; `test_interrupt` has those that are ----------------------------------------


TWO_STATES = Table(
    name="two",
    initial="ask",
    states=(State("ask", work="decide", tools=None), State("act", work="call", tools=None), State("end", work="answer")),
    rows=(
        Row("ask", "decided", "act"),
        Row("ask", "proposed", "end"),
        Row("ask", "failed", "end"),
        Row("ask", "stopped", "end"),
        *(Row("act", outcome, "ask", (within_limits,)) for outcome in ("called", "failed", "no_progress")),
        *(Row("act", outcome, "end") for outcome in ("called", "failed", "no_progress", "stopped")),
    ),
)


@both
@pytest.mark.parametrize("machine", [AGENT, TWO_STATES], ids=lambda table: table.name)
def test_held_calls_of_a_cancelled_run_wait_again_when_it_is_resumed_and_what_was_approved_stays_so(
    drive: Drive, machine: Table
) -> None:
    shop = Shop(MIXED, policy=Policy(approval_ttl_s=60.0), machine=machine)
    run = shop.paused()
    shop.agent.approve(run, "a")
    shop.agent.cancel(run)
    assert words(run) == dict.fromkeys("abcw", "cancelled")
    run = shop.agent.load(shop.agent.save(run))
    shop.clock.advance(30.0)
    answer = shop.agent.resume(run)

    assert [(one.call_id, one.expires_at) for one in answer.pending] == [("c", 1_000_060.0), ("w", None)]
    assert shop.ran == []
    shop.agent.deny(run, "c")
    shop.agent.deliver(run, "w", {"place": "Rome"})
    assert drive(shop.agent, run).text == "done"
    assert sorted(shop.ran) == [("pay", 5), ("read", 1)]
    assert (run.tool_calls, run.body_runs) == (4, 2)
    assert shop.agent.replay(run) == run


def test_cancelling_twice_and_cancelling_what_is_over_changes_nothing() -> None:
    shop = Shop(PAY)
    run = shop.paused()
    shop.agent.cancel(run)
    once = shop.agent.save(run)
    shop.agent.cancel(run)
    assert shop.agent.save(run) == once

    done = shop.agent.start("go")
    shop.agent.drive(done)
    shop.agent.deny(done, "a")
    assert shop.agent.drive(done).ok
    over = shop.agent.save(done)
    shop.agent.cancel(done)
    assert shop.agent.save(done) == over


def test_a_run_that_was_never_driven_can_be_cancelled_and_resumed() -> None:
    shop = Shop(turn(("b", "read", {"x": 1})))
    run = shop.agent.start("go")
    shop.agent.cancel(run)

    assert shop.agent.answer(run).stop_reason == "cancelled"
    assert shop.agent.resume(run).text == "done"
    assert shop.ran == [("read", 1)]


def test_what_is_said_while_a_run_is_paused_begins_its_next_stream() -> None:
    shop = Shop(PAY)
    run = shop.agent.start("go")
    first = [event for event in shop.agent.stream(run) if isinstance(event, TraceEvent)]
    shop.agent.approve(run, "a")
    second = [event for event in shop.agent.stream(run) if isinstance(event, TraceEvent)]

    assert first[-1].kind == "paused"
    assert (second[0].kind, second[-1].kind) == ("resumed", "answer")
    assert [event.number for event in first + second] == list(range(len(run.trace)))


@both
@pytest.mark.parametrize("word", ["EMPTY", "NO_PROGRESS", "FATAL"])
def test_a_clients_answer_is_classified_by_its_contract_as_a_bodys_is(drive: Drive, word: str) -> None:
    heard: list[Outcome] = []

    def classify(outcome: Outcome) -> Any:
        heard.append(outcome)
        return ResultClass(word)

    for how in ("returned", "raised"):
        look = Tool(name="look", fn=int, args=INT, where="client", effect="pure", classify=classify)
        shop = Shop(ToolCall("look", {"x": 1}, id="l"), tools=(look,))
        run = shop.paused()
        if how == "returned":
            shop.agent.deliver(run, "l", 7)
        else:
            shop.agent.deliver_error(run, "l", "OSError", "gone")
        answer = drive(shop.agent, run)

        assert run.calls[0].result_class == word
        assert (answer.stop_reason == "fatal") is (word == "FATAL")
        assert shop.agent.replay(run) == run
    assert heard == [Outcome(value=7), Outcome(error="OSError", message="gone")]


@pytest.mark.parametrize("seconds", [None, 7.0])
def test_a_client_that_is_asked_too_often_is_waited_for_not_asked_again_and_no_body_runs_in_its_place(seconds: float | None) -> None:
    ran: list[int] = []
    look = Tool(
        name="look", fn=ran.append, args=INT, where="client", effect="pure", retry=Retry(attempts=3),
        classify=lambda outcome: Verdict(result_class="RATE_LIMITED", retry_after_s=seconds),
    )  # fmt: skip
    shop = Shop(ToolCall("look", {"x": 1}, id="l"), tools=(look,))
    run = shop.paused()
    shop.agent.deliver_error(run, "l", "OSError")

    assert shop.agent.resume(run).text == "done"
    assert (run.calls[0].result_class, run.calls[0].error, ran) == ("RATE_LIMITED", "raised:OSError", [])
    assert (shop.clock.slept_s, run.calls[0].tries) == (seconds or 0.0, 1)
