"""Programs by hand: told call by call, without a sandbox; each call passes the same gate, and no budget is ever overrun."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent import Limits, Policy, Retry, Row, State, Table, ToolCall
from fsm_agent.core.agent_table import AGENT
from fsm_agent.core.effects import CallTools, RunProgram, Wait
from fsm_agent.core.errors import WrongEvent
from fsm_agent.core.events import (
    Approved,
    Cancelled,
    Checked,
    Denied,
    Event,
    Lost,
    Paused,
    ProgramCalled,
    Raised,
    Returned,
    Reused,
    Skipped,
    Started,
    Superseded,
)
from fsm_agent.core.guards import calls_below_stop, turns_left
from fsm_agent.core.messages import Role
from fsm_agent.core.prompts import stubs
from fsm_agent.core.replay import replay
from fsm_agent.core.saving import load, save
from fsm_agent.core.tools import Tool
from fsm_agent.core.transcript import transcript
from fsm_agent.core.values import ResultClass, StopReason
from tests.by_hand import Hand, a_tool, never, off, says, taking

PROGRAM = Tool(name="code", fn=never, args=taking(program={"type": "str"}), where="program", breaker=None)
LOOK = a_tool("look", args=taking(q={"type": "str"}))
PAY = a_tool("pay", args=taking(x={"type": "int", "max": 9}), effect="at_most_once")

# A machine in which a stopped turn is taken up again where it was cut off.
TWO_STEPS = Table(
    name="think and act",
    initial="think",
    states=(State("think", work="decide"), State("act", work="call", tools=None), State("done", work="answer")),
    rows=(
        Row("think", "decided", "act"),
        *(Row("think", outcome, "done") for outcome in ("proposed", "failed", "stopped")),
        *(Row("act", outcome, "think", (turns_left, calls_below_stop)) for outcome in ("called", "failed", "no_progress")),
        *(Row("act", outcome, "done") for outcome in ("called", "failed", "no_progress", "stopped")),
    ),
)


def hand(*tools: Tool, **parts: Any) -> Hand:
    """A run whose model may write programs."""
    return Hand(*(tools or (LOOK, PAY)), PROGRAM, runs_programs=True, **{"limits": off(max_turns=9), **parts})


def asking(*names: str, tools: tuple[Tool, ...] = (), **parts: Any) -> Hand:
    """A run whose first turn asks for these calls: p and p2 are programs, the rest calls of the tool of that name."""
    calls = {"p": ToolCall("code", {"program": "p"}, "p"), "p2": ToolCall("code", {"program": "p2"}, "p2")}
    return hand(*tools, **parts).decides(*(calls.get(name) or ToolCall(name, FIRST[name], f"{name}-0") for name in names))


FIRST = {"look": {"q": "0"}, "pay": {"x": 0}}


def program(**parts: Any) -> Hand:
    """A run that stands before its first program, p."""
    return asking("p", **parts)


def calling(mine: Hand, tool: str = "look", args: Any = None, call_id: str = "p", snapshot: bytes = b"", printed: str = "") -> Hand:
    """The program makes a call; by default one that it has not made before."""
    number = mine.run.emitted_calls
    given = args if args is not None else {"x": number % 10} if tool == "pay" else {"q": f"v{number}"}
    return mine.tell(ProgramCalled(call_id, tool, given, snapshot or b"s%d" % number, printed))


def asked(mine: Hand) -> Any:
    """What the run asks for, in few words."""
    effect = mine.effect
    if isinstance(effect, RunProgram):
        return ("program", effect.call.id, effect.snapshot, effect.made.id if effect.made is not None else "")
    if isinstance(effect, CallTools):
        return ("calls", *(call.id for call in effect.calls))
    return type(effect).__name__


def made(mine: Hand) -> list[tuple[str, str]]:
    """The calls that programs made, and how each ended."""
    return [(call.id, "open" if call.ok is None else call.error or "ok") for call in mine.calls if call.parent]


# ---- from call to call


def test_a_program_stands_still_at_each_call_and_goes_on_with_its_result() -> None:
    mine = program()
    assert asked(mine) == ("program", "p", b"", "")

    calling(mine, "look", {"q": "a"}, snapshot=b"one", printed="so far")
    assert asked(mine) == ("calls", "p.1")
    mine.begins().gives("p.1", "A")

    effect = mine.effect
    assert (effect.call.id, effect.snapshot, effect.printed, effect.made.value) == ("p", b"one", "so far", "A")
    calling(mine, "look", {"q": "b"}, snapshot=b"two").begins().fails("p.2")
    assert asked(mine) == ("program", "p", b"two", "p.2")
    mine.gives("p", "all of it")

    assert [(call.id, call.parent, call.ok) for call in mine.run.calls] == [("p", "", True), ("p.1", "p", True), ("p.2", "p", False)]
    assert mine.run.program is None
    assert asked(mine) == "Decide"


def test_a_program_that_calls_nothing_is_a_call_like_any() -> None:
    mine = program().gives("p", 3)

    assert (mine.words, asked(mine)) == (["ok"], "Decide")


def test_the_calls_of_a_program_are_counted_like_those_of_a_turn() -> None:
    mine = calling(calling(program()).gives("p.1"), "pay").gives("p.2").gives("p", 1)
    run = mine.run

    assert (run.turns, run.emitted_calls, run.tool_calls, run.tool_counts) == (1, 3, 3, {"code": 1, "look": 1, "pay": 1})
    assert [call.turn for call in run.calls] == [1, 1, 1]
    assert run.last_emitted == 3


def test_a_call_that_the_program_made_and_mended_is_no_failure_of_the_turn() -> None:
    mine = program(table=AGENT, policy=Policy(redecide=False))
    calling(mine).fails("p.1").gives("p", "mended")

    assert mine.run.stop is None
    assert mine.run.tool_errors == 1


def test_ids_that_are_taken_are_not_given_again() -> None:
    mine = hand().decides(ToolCall("code", {"program": ""}, "p"), ToolCall("look", {"q": "x"}, "p.1"))
    calling(mine)

    assert [call.id for call in mine.calls] == ["p", "p.1", "p.2"]


# ---- one gate


@pytest.mark.parametrize(
    ("tool", "args", "parts", "word", "detail"),
    [
        ("lookk", {"q": "a"}, {}, "args:unknown_tool", "tools allowed in state gather: look, pay, code"),
        ("", {}, {}, "args:unknown_tool", "look, pay"),
        (None, {}, {}, "args:unknown_tool", "look, pay"),
        ("pay", {"x": 1}, {"allowed": ["look", "code"]}, "refused:not_allowed", "tools allowed in state gather: look, code"),
        ("pay", {}, {}, "args:missing:x", "missing:x"),
        ("pay", {"x": "1", "y": 2}, {}, "args:extra:y", "; type:x at x (expected int; got '1')"),
        ("pay", {"x": 10}, {}, "args:range:x", "range:x at x"),
        ("look", {"argument_1": "a"}, {}, "args:missing:q", "extra:argument_1"),
        ("look", {"q": "a"}, {"limits": off(max_turns=9, max_calls_per_turn=1)}, "skipped:max_calls_per_turn", "at most 1 calls"),
        ("look", {"q": "a"}, {"limits": off(max_turns=9, max_same_tool_calls={"look": 0})}, "refused:budget:max_same_tool_calls", "look"),
        ("code", {"program": "1"}, {}, "refused:not_allowed", "a program cannot run another one"),
    ],
)
def test_a_call_that_the_gate_refuses_is_raised_in_the_program(tool: Any, args: Any, parts: Any, word: str, detail: str) -> None:
    mine = program(**parts)
    calling(mine, tool, args)

    assert mine.call("p.1").error == word
    assert detail in mine.call("p.1").detail
    assert asked(mine)[0::3] == ("program", "p.1")


def test_the_same_call_stops_the_run_in_a_program_too() -> None:
    mine = program(limits=off(max_turns=9, max_same_call=2))
    for number in (1, 2):
        calling(mine, "look", {"q": "a"}).gives(f"p.{number}", number)
    calling(mine, "look", {"q": "a"})

    assert made(mine)[-1] == ("p.3", "refused:duplicate")
    assert mine.call("p").error == "skipped:duplicate_call"
    assert mine.reason is StopReason.DUPLICATE_CALL
    assert mine.run.stop is not None
    assert mine.run.stop.closed[0].calls == ("p.1", "p.2", "p.3")


def test_the_same_call_may_be_refused_instead_and_the_program_goes_on() -> None:
    mine = program(limits=off(max_turns=9, max_same_call=1), policy=Policy(duplicates="refuse"))
    calling(mine, "look", {"q": "a"}).gives("p.1")
    calling(mine, "look", {"q": "a"})

    assert made(mine)[-1] == ("p.2", "refused:duplicate")
    assert asked(mine) == ("program", "p", b"s2", "p.2")


def test_what_memory_and_the_breaker_answer_is_a_result_like_any() -> None:
    mine = calling(program())
    mine.tell(Reused("p.1", "remembered"))
    assert (mine.effect.made.value, mine.effect.made.reused) == ("remembered", True)

    calling(mine)
    mine.tell(Skipped("p.2", "hook", "instead"))
    assert (mine.effect.made.ok, mine.effect.made.error, mine.effect.made.value) == (False, "skipped:hook", "instead")


def test_a_tool_with_secrets_cannot_be_called_by_a_program_and_nothing_of_them_is_kept() -> None:
    login = a_tool("login", args=taking(token={"type": "str"}), secret=["token"])
    mine = program(tools=(login,))
    calling(mine, "login", {"token": "hunter2"})

    assert made(mine) == [("p.1", "refused:not_allowed")]
    assert "takes secrets" in mine.call("p.1").detail
    assert "hunter2" not in save(mine.run)
    assert replay(mine.engine, mine.run) == mine.run


# ---- budgets and tripwires


def test_the_budget_of_the_run_ends_the_program_at_the_call_beyond_it() -> None:
    mine = program(limits=off(max_turns=9, max_tool_calls=3))
    calling(calling(mine).gives("p.1")).gives("p.2")
    calling(mine)

    assert [*made(mine), mine.call("p").error] == [
        ("p.1", "ok"), ("p.2", "ok"), ("p.3", "skipped:max_tool_calls"), "skipped:max_tool_calls",
    ]  # fmt: skip
    assert (mine.run.tool_calls, mine.reason) == (3, StopReason.MAX_TOOL_CALLS)


@pytest.mark.parametrize(
    ("limits", "play", "reason"),
    [
        ({"max_tool_errors": 3}, lambda mine, call_id: mine.fails(call_id), StopReason.MAX_TOOL_ERRORS),
        ({"max_same_observation": 3}, lambda mine, call_id: mine.gives(call_id, "equal"), StopReason.REPEATED_OBSERVATION),
        ({"max_empty_results": 3}, lambda mine, call_id: mine.gives(call_id, []), StopReason.EMPTY_RESULTS),
        ({"max_bad_arguments": 3}, None, StopReason.MAX_BAD_ARGUMENTS),
    ],
)
def test_a_tripwire_ends_the_program_at_the_nth(limits: Any, play: Any, reason: StopReason) -> None:
    mine = program(limits=off(max_turns=9, **limits), policy=Policy(duplicates="refuse"))
    for number in (1, 2, 3):
        calling(mine, "look", None if play is not None else {"q": number})
        if play is not None:
            play(mine, f"p.{number}")
        assert asked(mine)[0::3] == ("program", f"p.{number}")
    calling(mine)

    assert [name for name, _ in made(mine)] == ["p.1", "p.2", "p.3"]
    assert mine.call("p").error == f"skipped:{reason.value}"
    assert mine.reason is reason
    assert mine.run.stop is not None
    assert mine.run.stop.closed[0].used == 3


@pytest.mark.parametrize(
    ("declared", "value"), [({"polling": True}, "equal"), ({"constant": True}, "equal"), ({"empty_ok": True}, [])]
)
def test_what_is_normal_for_a_tool_trips_nothing_in_a_program(declared: Any, value: Any) -> None:
    mine = program(tools=(a_tool("look", **declared),), limits=off(max_turns=9, max_same_observation=2, max_empty_results=2))
    for number in (1, 2, 3, 4):
        calling(mine).gives(f"p.{number}", value)

    assert asked(mine)[0] == "program"


def test_what_earlier_turns_used_up_counts_in_a_program() -> None:
    mine = program(limits=off(max_turns=9, max_tool_errors=2))
    calling(mine).fails("p.1").gives("p")
    mine.decides(ToolCall("code", {"program": "2"}, "q"))
    calling(mine, call_id="q").fails("q.1")
    calling(mine, call_id="q")

    assert mine.reason is StopReason.MAX_TOOL_ERRORS
    assert mine.run.tool_errors == 2


def test_an_empty_result_where_something_was_due_is_no_error_of_the_tool() -> None:
    mine = program(limits=off(max_turns=9, max_tool_errors=2))
    for number in (1, 2, 3):
        calling(mine).tell(Returned(f"p.{number}", [], None, "result:empty"))
    calling(mine)

    assert made(mine) == [*((f"p.{number}", "result:empty") for number in (1, 2, 3)), ("p.4", "open")]


def test_what_was_counted_before_a_stop_is_not_counted_again_after_it() -> None:
    mine = program(table=TWO_STEPS, limits=off(max_turns=9, max_tool_errors=3, max_tool_calls=3))
    for number in (1, 2):
        calling(mine).fails(f"p.{number}")
    calling(mine)
    assert (mine.reason, mine.run.tool_errors) == (StopReason.MAX_TOOL_CALLS, 2)
    mine.engine.resume(mine.run, {"max_tool_calls": 9})
    calling(mine.gives("p.3"))

    assert asked(mine) == ("calls", "p.4")
    calling(mine.fails("p.4"))
    assert (mine.reason or mine.call("p").error) == "skipped:max_tool_errors"
    assert mine.run.tool_errors == 3


def test_a_program_that_catches_everything_and_calls_for_ever_is_ended() -> None:
    mine = program(policy=Policy(program_calls=5))
    for number in range(1, 6):
        calling(mine, "nothing", {})
        assert asked(mine) == ("program", "p", b"s%d" % number, f"p.{number}")
    calling(mine, "nothing", {})

    assert mine.call("p").error == "refused:budget:program_calls"
    assert (len(made(mine)), mine.run.program, asked(mine)) == (5, None, "Decide")


def test_a_program_may_make_exactly_as_many_calls_as_it_may() -> None:
    mine = program(policy=Policy(program_calls=2))
    calling(calling(mine).gives("p.1")).gives("p.2").gives("p", "fine")

    assert mine.call("p").ok


def test_time_that_runs_out_in_a_call_ends_the_program() -> None:
    mine = program(limits=off(max_turns=9, deadline_s=10.0, reserve_s=0.0))
    calling(mine).begins().gives("p.1", now=11.0)

    assert (mine.call("p").error, mine.reason) == ("skipped:deadline", StopReason.DEADLINE)


STEP = st.tuples(
    st.sampled_from(["look", "pay", "nothing", "code"]),
    st.sampled_from([{"q": "a"}, {"q": "b"}, {"q": 1}, {"x": 1}, {"x": 2}, {}, None]),
    st.sampled_from(["gives", "same", "empty", "fails", "retry", "ends"]),
)


@given(
    st.lists(STEP, max_size=25),
    st.integers(0, 5), st.integers(1, 5), st.integers(1, 4), st.integers(1, 6), st.sampled_from(["stop", "refuse", "first"]),
)
def test_no_budget_is_ever_overrun_and_no_tripwire_beyond_its_nth(
    steps: list[Any], total: int, per_turn: int, per_tool: int, most: int, duplicates: str
) -> None:
    limits = Limits(
        max_tool_calls=total + 1, max_calls_per_turn=per_turn, max_same_tool_calls=per_tool, max_tool_errors=2, max_bad_arguments=3,
        max_same_observation=3, max_empty_results=2, min_evidence=0,
    )
    mine = program(limits=limits, policy=Policy(duplicates=duplicates, program_calls=most))
    run = mine.run
    for tool, args, result in steps:
        if not isinstance(mine.effect, RunProgram):
            break
        if result == "ends":
            mine.gives("p", "end")
            break
        calling(mine, tool, args)
        for call_id in mine.batch:
            mine.begins(call_id)
            if result == "fails":
                mine.fails(call_id)
            elif result == "retry":
                mine.fails(call_id, verdict=says("RETRYABLE"))
            else:
                mine.gives(call_id, {"gives": f"r{run.body_runs}", "same": "equal", "empty": []}[result])
        assert load(save(run), mine.engine.setup) == run
    counts = [sum(call.admitted and call.tool == name for call in mine.calls) for name in ("look", "pay", "code")]

    assert run.tool_calls == sum(counts) <= total + 1
    assert max(counts) <= per_tool
    assert run.tool_errors <= 2
    assert run.bad_arguments <= 3
    assert run.same_observation <= 3
    assert run.empty_results <= 2
    assert len(made(mine)) <= most
    assert sum(call.admitted for call in mine.calls if call.turn == 1) <= per_turn
    assert replay(mine.engine, run) == run
    assert mine.effect is not None or run.stop is not None


def test_what_a_program_finds_again_counts_with_the_only_observation_before_it() -> None:
    mine = hand(limits=off(max_turns=9, max_same_observation=2)).decides(ToolCall("look", {"q": "x"}, "c1")).gives("c1", "same")
    mine.decides(ToolCall("code", {"program": "p"}, "p"))
    calling(mine).begins().gives("p.1", "same")
    calling(mine)

    assert mine.reason is StopReason.REPEATED_OBSERVATION
    assert mine.run.body_runs == 2


# ---- beside other calls


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (("p", "pay"), ["p", "p.1", "p", "pay-0"]),
        (("p", "look"), ["p", "p.1", "p", "look-0"]),
        (("pay", "p"), ["pay-0", "p", "p.1", "p"]),
        (("look", "p", "pay"), ["look-0", "p", "p.1", "p", "pay-0"]),
        (("p", "p2"), ["p", "p.1", "p", "p2", "p2.1", "p2"]),
    ],
)
def test_a_program_is_a_barrier_and_what_stands_behind_it_waits(names: tuple[str, ...], order: list[str]) -> None:
    mine, seen = asking(*names), []
    while (effect := mine.effect) is not None and not mine.run.turns > 1:
        if isinstance(effect, RunProgram):
            seen.append(effect.call.id)
            if effect.made is None:
                calling(mine, call_id=effect.call.id)
            else:
                mine.gives(effect.call.id)
        elif isinstance(effect, CallTools):
            seen += mine.batch
            mine.begins().gives(mine.batch[0])
        else:
            break

    assert seen == order


@pytest.mark.parametrize("checked", [False, True])
def test_a_call_of_a_program_shares_no_run_with_a_call_behind_the_program(checked: bool) -> None:
    mine = asking("p", "look", checks=checked)
    for call_id in ("p", "look-0") if checked else ():
        mine.tell(Checked(call_id))
    calling(mine, "look", FIRST["look"])
    if checked:
        mine.tell(Checked("p.1"))
    assert (asked(mine), mine.call("p.1").leader) == (("calls", "p.1"), "")
    mine.gives("p.1", "before").gives("p", "end")

    assert asked(mine) == ("calls", "look-0")


def test_a_call_that_may_be_tried_again_is_waited_for_in_the_program() -> None:
    retried = a_tool("look", retry=Retry(attempts=2, backoff_s=[3.0]))
    mine = calling(program(tools=(retried,))).begins().fails("p.1", verdict=says("RETRYABLE"))

    assert isinstance(mine.effect, Wait)
    assert mine.effect.until_s == 3.0
    mine.waits()
    assert asked(mine) == ("calls", "p.1")
    assert asked(mine.begins().gives("p.1", "late")) == ("program", "p", b"s1", "p.1")


def test_a_fatal_result_ends_the_program_and_the_run() -> None:
    mine = calling(program()).begins().gives("p.1", "broken", says(ResultClass.FATAL))

    assert (mine.call("p").error, mine.reason) == ("skipped:fatal", StopReason.FATAL)


# ---- people


HELD = a_tool("pay", args=taking(x={"type": "int", "max": 9}), effect="at_most_once", approval=True)


def paused(**parts: Any) -> Hand:
    """A run that is paused in the middle of a program, at its second call."""
    mine = calling(program(tools=(LOOK, HELD), **parts)).begins().gives("p.1")
    calling(mine, "pay", {"x": 5}, snapshot=b"here")
    assert asked(mine) == "Pause"
    return mine.tell(Paused())


@pytest.mark.parametrize(
    ("word", "then", "error"),
    [
        (Approved("p.2"), ("calls", "p.2"), ""),
        (Approved("p.2", {"x": 6}, True), ("calls", "p.2"), ""),
        (Approved("p.2", {"x": 60}, True), ("program", "p", b"here", "p.2"), "args:range:x"),
        (Denied("p.2", "no money"), ("program", "p", b"here", "p.2"), "denied:no money"),
    ],
)
def test_a_person_decides_in_the_middle_of_a_program(word: Event, then: Any, error: str) -> None:
    mine = paused()
    mine.run = load(save(mine.run), mine.engine.setup)
    mine.tell(word)

    assert (asked(mine), mine.call("p.2").error) == (then, error)


def test_a_denial_that_ends_the_run_ends_the_program() -> None:
    mine = paused(policy=Policy(on_denied="stop")).tell(Denied("p.2"))

    assert (mine.call("p").error, mine.reason) == ("skipped:denied", StopReason.DENIED)
    assert [call.id for call in mine.run.calls] == ["p", "p.1", "p.2"]


def test_a_new_message_supersedes_the_program_with_its_call() -> None:
    mine = paused().tell(Superseded("never mind"))

    assert (mine.call("p").error, mine.call("p.2").error, asked(mine)) == ("superseded", "superseded", "Decide")

    mine.decides(ToolCall("look", {"q": "next"}, "n"))
    assert asked(mine) == ("calls", "n")
    assert asked(mine.begins("n").gives("n")) == "Decide"


def test_a_client_answers_a_call_of_a_program() -> None:
    mine = calling(program(tools=(a_tool("look", where="client"),)))
    assert asked(mine) == "Pause"
    mine.tell(Paused()).gives("p.1", "from the client")

    assert mine.effect.made.value == "from the client"


def test_hooks_look_at_the_program_and_at_each_of_its_calls() -> None:
    mine = program(checks=True)
    assert asked(mine) == "Check"
    calling(mine.tell(Checked("p")))
    assert [call.id for call in mine.effect.calls] == ["p.1"]
    mine.tell(Skipped("p.1", "hook", "instead"))

    assert asked(mine) == ("program", "p", b"s1", "p.1")
    assert mine.effect.made.error == "skipped:hook"


# ---- stopped and taken up again


def test_a_cancelled_program_goes_on_from_its_last_call() -> None:
    mine = program(table=TWO_STEPS)
    calling(calling(mine, "pay", {"x": 1}).gives("p.1"), snapshot=b"here").begins("p.2").tell(Cancelled())
    assert [call.error for call in mine.run.calls] == ["cancelled", "", "cancelled"]
    mine.engine.resume(mine.run)

    assert asked(mine) == ("calls", "p.2")
    assert asked(mine.gives("p.2", "again")) == ("program", "p", b"here", "p.2")
    assert replay(mine.engine, mine.run) == mine.run


def test_a_cancelled_program_is_told_that_nobody_knows_what_its_payment_did() -> None:
    mine = calling(program(table=TWO_STEPS), "pay", {"x": 1}, snapshot=b"here").begins("p.1").tell(Cancelled())
    mine.engine.resume(mine.run)

    assert asked(mine) == ("program", "p", b"here", "p.1")
    assert mine.effect.made.error == "unknown_outcome"


def test_a_cancelled_program_that_told_a_secret_is_not_gone_on_with() -> None:
    login = a_tool("login", args=taking(token={"type": "str"}), secret=["token"])
    mine = calling(asking("p", "look", tools=(LOOK, login), table=TWO_STEPS), "login", {"token": "hunter2"})
    calling(mine, "look").begins("p.2").tell(Cancelled())
    mine.engine.resume(mine.run)
    mine.gives("p.2")
    assert (mine.call("p").error, asked(mine)) == ("cancelled", ("calls", "look-0"))
    mine.gives("look-0")

    assert (mine.call("p").error, asked(mine)) == ("cancelled", "Decide")
    assert replay(mine.engine, mine.run) == mine.run


def test_a_program_that_a_budget_stopped_goes_on_where_it_stood_once_that_is_raised() -> None:
    mine = program(table=TWO_STEPS, limits=off(max_turns=9, max_tool_calls=2))
    calling(mine, "pay", {"x": 1}).gives("p.1")
    calling(mine, "pay", {"x": 2}, snapshot=b"here")
    assert mine.reason is StopReason.MAX_TOOL_CALLS
    mine.run = load(save(mine.run), mine.engine.setup)
    mine.engine.resume(mine.run, mine.run.stop.raise_to)  # type: ignore[union-attr]

    assert asked(mine) == ("calls", "p.2")
    mine.begins("p.2").gives("p.2", "paid")
    assert asked(mine) == ("program", "p", b"here", "p.2")
    assert mine.run.tool_counts["pay"] == 2


def test_a_call_that_was_begun_when_its_driver_died_is_never_begun_again() -> None:
    mine = calling(program(), "pay", {"x": 1}).begins("p.1")
    mine.run = load(save(mine.run), mine.engine.setup)
    mine.tell(Lost("p.1"))

    assert asked(mine) == ("program", "p", b"s1", "p.1")
    assert mine.effect.made.error == "unknown_outcome"


def test_a_repaired_program_begins_anew() -> None:
    def shorter(tool: str, args: Any, run: Any) -> Any:
        return tool, {"program": "shorter"}

    mine = program(repairs={"raised:NameError": ("shorter", shorter)}, limits=off(max_turns=9, max_attempts=3))
    calling(mine).gives("p.1").fails("p", "NameError")

    assert asked(mine) == ("program", "p", b"", "")
    assert mine.effect.call.args == {"program": "shorter"}
    calling(mine)
    assert made(mine) == [("p.1", "ok"), ("p.2", "open")]


def test_a_failed_call_of_a_program_is_not_repaired_behind_its_back() -> None:
    def mended(tool: str, args: Any, run: Any) -> Any:
        return tool, {"q": "mended"}

    mine = program(repairs={"raised:ValueError": ("mended", mended)}, limits=off(max_turns=9, max_attempts=3))
    calling(mine).fails("p.1").gives("p", "as it is")

    assert (mine.run.fixes, asked(mine)) == ([], "Decide")


# ---- events that nobody asked for


def before_a_call() -> Hand:
    return program()


def at_a_call() -> Hand:
    return calling(program())


def after_a_call() -> Hand:
    return calling(asking("p", "p2", "look")).gives("p.1")


def of_no_program() -> Hand:
    return asking("look")


def deciding() -> Hand:
    return hand()


@pytest.mark.parametrize(
    ("where", "event"),
    [
        (before_a_call, ProgramCalled("q", "look", {}, b"")),
        (at_a_call, ProgramCalled("p", "look", {"q": "x"}, b"")),
        (at_a_call, ProgramCalled("p.1", "look", {"q": "x"}, b"")),
        (at_a_call, Returned("p", "too early")),
        (at_a_call, Raised("p", "TimeoutError")),
        (after_a_call, ProgramCalled("p2", "look", {"q": "x"}, b"")),
        (after_a_call, ProgramCalled("look-0", "look", {"q": "x"}, b"")),
        (after_a_call, Returned("p.1", "twice")),
        (of_no_program, ProgramCalled("look-0", "look", {"q": "x"}, b"")),
        (deciding, ProgramCalled("p", "look", {"q": "x"}, b"")),
        (paused, ProgramCalled("p", "look", {"q": "x"}, b"")),
        (paused, Returned("p", "too early")),
    ],
)
def test_what_no_program_was_asked_for_is_refused_and_the_run_stays_as_it_was(where: Callable[[], Hand], event: Event) -> None:
    mine = where()
    before = save(mine.run)
    with pytest.raises(WrongEvent):
        mine.tell(event, 1.0)

    assert save(mine.run) == before


def test_where_programs_are_not_run_none_is_taken() -> None:
    mine = Hand(LOOK, PROGRAM).decides(ToolCall("code", {"program": ""}, "p"))

    assert asked(mine) == ("calls", "p")
    with pytest.raises(WrongEvent):
        calling(mine)


# ---- a run is data


def test_a_run_is_the_same_after_every_step_saved_loaded_and_replayed() -> None:
    mine = program(tools=(LOOK, HELD))
    steps: list[Event] = [
        ProgramCalled("p", "look", {"q": "a"}, b"\x00\xff one", "said\n"),
        Started(("p.1",)),
        Returned("p.1", {"found": [1, 2]}),
        ProgramCalled("p", "look", {"q": 3}, b"two", "said\nmore\n"),
        ProgramCalled("p", "pay", {"x": 5}, b"three"),
        Paused(12.5),
        Approved("p.3", {"x": 6}, True),
        Started(("p.3",)),
        Returned("p.3", "paid"),
        ProgramCalled("p", "nothing", {"any": object()}, b"four"),
        Raised("p", "ZeroDivisionError", "division by zero (line 3)"),
    ]
    for count, event in enumerate(steps, 2):
        mine.tell(event)
        assert load(save(mine.run), mine.engine.setup) == mine.run
        assert replay(mine.engine, mine.run) == mine.run
        assert replay(mine.engine, mine.run, count).journal == mine.run.journal

    assert mine.words == ["raised:ZeroDivisionError", "ok", "args:type:q", "ok", "args:unknown_tool"]


# ---- what a model is shown


def shown(mine: Hand) -> list[str]:
    return [message.text for message in transcript(mine.run, mine.engine.setup.box) if message.role is Role.TOOL]


def test_a_model_is_shown_what_its_program_gave_and_nothing_of_its_calls() -> None:
    mine = calling(program()).gives("p.1", "inside").gives("p", {"total": 7})

    assert shown(mine) == ['{"total":7}']


def test_a_model_is_shown_what_a_program_that_failed_had_done_by_then() -> None:
    mine = calling(program(), "pay", {"x": 7}).gives("p.1", "paid 7")
    calling(mine, "look", {"q": 1})
    mine.fails("p", "KeyError", message="'x' (line 4)")

    assert shown(mine)[0].splitlines() == [
        "raised:KeyError ('x' (line 4))",
        "What the program called before that:",
        '- pay {"x":7}: paid 7',
        "- look {\"q\":1}: args:type:q (type:q at q (expected str; got 1))",
    ]


def test_a_long_list_of_calls_and_a_long_result_are_cut() -> None:
    mine = program()
    for number in range(1, 30):
        calling(mine).gives(f"p.{number}", "x" * 1000)
    lines = shown(mine.fails("p"))[0].splitlines()

    assert len(lines) == 22
    assert max(map(len, lines)) <= 200
    assert lines[-1].startswith('- look {"q":"v29"}: xxx')


@pytest.mark.parametrize(
    ("tool", "stub"),
    [
        (LOOK, "def look(q: str): ..."),
        (
            a_tool("find", args=taking(q={"type": "str"}, n={"type": "int", "required": False}), description="Find.\nMore of it."),
            "def find(q: str, n: int = ...): ...  # Find.",
        ),
        (a_tool("anything", args=None), "def anything(): ..."),
        (
            a_tool("odd", args=taking(**{"a b": {"type": "str"}, "class": {"type": "bool"}})),
            "def odd(**{'a b': str}, **{'class': bool}): ...",
        ),
        (a_tool("any"), ""),
        (a_tool("my-tool"), ""),
        (a_tool("class"), ""),
        (a_tool("login", args=taking(token={"type": "str"}), secret=["token"]), ""),
        (PROGRAM, ""),
    ],
)
def test_tools_are_shown_as_functions_where_a_program_can_call_them(tool: Tool, stub: str) -> None:
    assert stubs([tool, PROGRAM]) == stub
