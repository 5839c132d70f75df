"""Repairs: by reason, each once per call, within the attempts, and never what must run only once."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from by_hand import Hand, a_tool, off, says, taking

from fsm_agent.agent import Agent
from fsm_agent.core.effects import CallTools, Decide
from fsm_agent.core.events import CircuitOpen, Event, Raised, Returned, Reused
from fsm_agent.core.limits import Limits
from fsm_agent.core.results import RETRYABLE
from fsm_agent.core.run import Run
from fsm_agent.core.saving import load, save
from fsm_agent.core.tools import Retry
from fsm_agent.core.turn import Repair
from fsm_agent.core.values import Policy, ResultClass, StopReason, ToolCall
from fsm_agent.testing import ScriptedClock, ScriptedDecider

Fix = Callable[[str, Any, Run], Any]
ONE_TO_THREE = taking(n={"type": "int", "min": 1, "max": 3}, q={"type": "str", "required": False})


def fix(**changes: Any) -> Repair:
    """A repair that changes arguments."""
    return lambda tool, args, run: (tool, {**args, **changes})


def to(other: str) -> Repair:
    """A repair that changes the tool."""
    return lambda tool, args, run: (other, args)


def repaired(*tools: Any, limits: Limits | None = None, policy: Policy | None = None, **repairs: Any) -> Hand:
    """A run with these repairs, by error words whose colons are written as two underscores."""
    named = {error.replace("__", ":"): (error, repair) for error, repair in repairs.items()}
    parts = {} if policy is None else {"policy": policy}
    return Hand(*tools, limits=limits or off(max_attempts=3, max_turns=9), repairs=named, **parts)


def test_the_reason_chooses_the_repair() -> None:
    tools = a_tool(args=ONE_TO_THREE), a_tool("other")
    for error, call, then in (
        ("args__range__n", {"n": 9}, {"n": 3}),
        ("args__missing__n", {}, {"n": 1}),
        ("args__type__n", {"n": "2"}, {"n": 2}),
    ):
        repairs = {"args__range__n": fix(n=3), "args__missing__n": fix(n=1), "args__type__n": fix(n=2)}
        hand = repaired(*tools, **repairs, args__extra__z=fix(n=9)).decides(ToolCall("look", call, "c1"))
        assert hand.batch == ["c1"]
        assert hand.call("c1").args == then
        assert hand.gives("c1").words == ["ok"]
        assert (hand.run.fixes, hand.run.errors) == ([error], [error.replace("__", ":")])
        assert hand.run.path == ["normalize", "gather", "repair", "gather"]


FAILURES: dict[str, Event | None] = {
    "args:unknown_tool": None,
    "raised:ValueError": Raised("c1", "ValueError"),
    "result:empty": Reused("c1", None, "result:empty"),
    "result:retryable": Returned("c1", None, says("RETRYABLE", retry_after_s=0.0)),
    "refused:circuit_open": CircuitOpen("c1"),
}


@pytest.mark.parametrize("error", FAILURES)
def test_failures_of_every_kind_may_have_a_repair(error: str) -> None:
    hand = Hand(a_tool(), a_tool("other"), limits=off(max_attempts=3, max_turns=9), repairs={error: ("tool", to("other"))})
    event = FAILURES[error]
    if event is None:
        hand.asks("ghost")
    else:
        hand.asks("look").tell(event)
    assert hand.call("c1").tool == "other"
    assert hand.gives("c1").words == ["ok"]


def test_a_repaired_call_passes_the_gate_anew_and_counts_anew() -> None:
    limits = off(max_attempts=3, max_tool_calls=2, max_turns=9)
    hand = repaired(a_tool(), a_tool("other"), limits=limits, raised__ValueError=to("other"))
    hand.asks("look").fails("c1")
    assert (hand.run.tool_calls, hand.run.tool_counts, hand.run.emitted_calls) == (2, {"look": 1, "other": 1}, 1)
    assert len(hand.run.tried) == 2
    repairs = {"raised:ValueError": ("tool", to("other"))}
    gone = Hand(a_tool(), a_tool("other"), allowed=["look"], repairs=repairs, limits=off(max_turns=9))
    gone.asks("look").fails("c1")
    assert gone.words == ["refused:not_allowed"]


@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_tries_of_one_call_and_its_repairs_are_n(most: int) -> None:
    tools = [a_tool(name) for name in "abcdef"]
    names = iter("bcdef")
    hand = Hand(*tools, limits=off(max_attempts=most, max_turns=9), repairs=_Fresh(lambda: next(names)))
    hand.asks("a")
    for n in range(1, most + 1):
        assert hand.batch == ["c1"]
        hand.fails("c1")
        assert hand.call("c1").tries == min(n + 1, most)
    assert isinstance(hand.effect, Decide)
    assert (hand.run.body_runs, len(hand.run.fixes)) == (most, most - 1)


class _Fresh:
    """A repair of another name each time it is looked up."""

    def __init__(self, make: Callable[[], str]) -> None:
        self._make, self._looked_up = make, 0

    def get(self, error: str) -> tuple[str, Repair] | None:
        self._looked_up += 1
        return f"repair {self._looked_up}", lambda tool, args, run: (chr(ord(tool) + 1), args)


def test_each_repair_is_tried_once_per_call() -> None:
    count = itertools.count()
    limits = off(max_attempts=9, max_turns=9)
    hand = repaired(a_tool(), raised__ValueError=lambda tool, args, run: (tool, {"n": next(count)}), limits=limits)
    hand.asks("look", "look").begins().fails("c1").fails("c2").fails("c1").fails("c2")
    assert hand.words == ["raised:ValueError"] * 2
    assert hand.run.fixes == ["raised__ValueError"] * 2
    assert [call.tried_repairs for call in hand.calls] == [("raised__ValueError",)] * 2


def test_two_reasons_have_two_repairs_one_after_the_other() -> None:
    hand = repaired(a_tool(args=ONE_TO_THREE), a_tool("other"), args__range__n=fix(n=3), raised__ValueError=to("other"))
    hand.decides(ToolCall("look", {"n": 9}, "c1")).fails("c1").gives("c1")
    assert (hand.run.fixes, hand.words) == (["args__range__n", "raised__ValueError"], ["ok"])
    assert [tool for tool, _ in hand.run.tried] == ["look", "look", "other"]


def forgetful(tool: str, args: Any, run: Run) -> None:
    return None


def raising(tool: str, args: Any, run: Run) -> Any:
    raise KeyError("region")


def changing_in_place(tool: str, args: Any, run: Run) -> Any:
    args["n"] = 3
    return tool, args


NOTHING: list[Any] = [
    lambda tool, args, run: (tool, args),
    lambda tool, args, run: (tool, dict(args)),
    fix(n=9),
    forgetful,
    raising,
    lambda tool, args, run: "look",
    lambda tool, args, run: (tool, args, "more"),
    lambda tool, args, run: 7,
    lambda tool, args, run: (None, args),
    lambda tool, args, run: (["look"], args),
]


@pytest.mark.parametrize("repair", NOTHING, ids=range(len(NOTHING)))
@pytest.mark.parametrize("redecide", [True, False])
def test_a_repair_that_changes_nothing_raises_or_gives_no_call_is_not_tried(repair: Any, redecide: bool) -> None:
    hand = repaired(a_tool(args=ONE_TO_THREE), args__range__n=repair, policy=Policy(redecide=redecide))
    hand.decides(ToolCall("look", {"n": 9}, "c1"))
    assert hand.words == ["args:range:n"]
    assert (hand.run.fixes, hand.run.repair_due, len(hand.run.tried)) == ([], False, 1)
    assert isinstance(hand.effect, Decide) is redecide
    assert "repair" not in hand.run.path


SAID: dict[str, tuple[Any, str]] = {
    "raises": (raising, "r raised KeyError: 'region'"),
    "a text": (lambda tool, args, run: "look", "r gave str and no pair of tool and arguments"),
    "three": (lambda tool, args, run: (tool, args, "more"), "r gave tuple and no pair of tool and arguments"),
    "a number": (lambda tool, args, run: 7, "r gave int and no pair of tool and arguments"),
    "no name": (lambda tool, args, run: (None, args), "r gave tuple and no pair of tool and arguments"),
    "a mapping": (lambda tool, args, run: {"tool": tool, "args": args}, "r gave dict and no pair of tool and arguments"),
}


@pytest.mark.parametrize(("repair", "said"), SAID.values(), ids=SAID)
def test_a_repair_that_fails_or_gives_nonsense_is_named_in_the_run(repair: Any, said: str) -> None:
    def r(tool: str, args: Any) -> Any:
        return repair(tool, args, None)

    decide = ScriptedDecider([ToolCall("look", {"n": 9}, "c1"), "done"])
    agent = Agent([a_tool(args=ONE_TO_THREE)], decide, repairs={"args:range:n": r}, clock=ScriptedClock())
    run = agent.start("go")
    agent.drive(run)
    loaded = agent.load(agent.save(run))

    assert [row for row in run.trace if row[0] == "repair_failed"] == [("repair_failed", 0.0, "c1", said)]
    assert loaded == run
    assert agent.replay(run) == run


def test_a_repair_that_failed_is_not_asked_about_the_call_again_and_others_of_the_turn_are_repaired() -> None:
    asked: list[Any] = []

    def failing(tool: str, args: Any, run: Run) -> Any:
        asked.append(args)
        raise RuntimeError

    hand = repaired(a_tool(args=ONE_TO_THREE), args__range__n=failing, args__missing__n=fix(n=1))
    hand.decides(ToolCall("look", {"n": 9}, "c1"), ToolCall("look", {}, "c2"))
    hand.gives("c2")

    assert asked == [{"n": 9}]
    assert hand.words == ["args:range:n", "ok"]


def test_a_repair_without_an_idea_and_one_that_changes_nothing_are_no_failures() -> None:
    for repair in (lambda tool, args, run: None, fix(n=9)):
        hand = repaired(a_tool(args=ONE_TO_THREE), args__range__n=repair).decides(ToolCall("look", {"n": 9}, "c1"))
        assert not [row for row in hand.run.trace if row[0] == "repair_failed"]


def test_what_a_failed_repair_says_holds_no_secret() -> None:
    def telling(tool: str, args: Any, run: Run) -> Any:
        raise ValueError(f"cannot mend {args}")

    args = taking(n={"type": "int", "max": 3}, key={"type": "str"})
    hand = repaired(a_tool(args=args, secret=["key"]), args__range__n=telling)
    hand.decides(ToolCall("look", {"n": 9, "key": "canary-key"}, "c1"))

    assert [row[3] for row in hand.run.trace if row[0] == "repair_failed"] == ["args__range__n raised ValueError"]
    assert "canary-key" not in save(hand.run)


@pytest.mark.parametrize(("before", "after"), [(1, True), (1, 1.0), (True, 1), ([1], (1,)), (1, "1")])
def test_a_change_of_type_is_a_change(before: Any, after: Any) -> None:
    hand = repaired(a_tool(), raised__ValueError=fix(n=after)).decides(ToolCall("look", {"n": before}, "c1")).fails("c1")
    assert hand.batch == ["c1"]
    assert type(hand.call("c1").args["n"]) is type(after)


class Unequal:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparing")

    __hash__ = None  # type: ignore[assignment]


def test_values_that_cannot_be_compared_are_told_apart_all_the_same() -> None:
    value, other = Unequal(), Unequal()
    for given, batch in ((value, []), (other, ["c1"])):
        hand = repaired(a_tool(), raised__ValueError=lambda tool, args, run, given=given: (tool, {"n": given}))
        assert hand.decides(ToolCall("look", {"n": value}, "c1")).fails("c1").batch == batch


def test_a_repair_works_on_a_copy_so_arguments_are_never_changed() -> None:
    asked = {"n": 9, "deep": [1]}
    hand = repaired(a_tool(args=taking(n={"type": "int", "max": 3}, deep={"type": "list"})), args__range__n=changing_in_place)
    hand.decides(ToolCall("look", asked, "c1"))
    assert hand.call("c1").args == {"n": 3, "deep": [1]}
    assert asked == {"n": 9, "deep": [1]}
    assert hand.run.tried[0] == ("look", {"n": 9, "deep": [1]})


@pytest.mark.parametrize("passes", [KeyboardInterrupt, SystemExit])
def test_what_passes_through_drivers_passes_through_a_repair(passes: type[BaseException]) -> None:
    def interrupted(tool: str, args: Any, run: Run) -> Any:
        raise passes

    hand = repaired(a_tool(), raised__ValueError=interrupted).asks("look")
    with pytest.raises(passes):
        hand.fails("c1")


def test_without_a_repair_the_reason_is_fed_back() -> None:
    hand = repaired(a_tool(args=ONE_TO_THREE), raised__ValueError=fix(n=1)).decides(ToolCall("look", {"n": 9}))
    assert isinstance(hand.effect, Decide)
    assert hand.words == ["args:range:n"]


@pytest.mark.parametrize("error", ["unknown_outcome", "result:retryable"])
def test_a_body_that_must_run_at_most_once_is_not_begun_again_by_a_repair(error: str) -> None:
    for repair in (fix(q="other"), to("look")):
        hand = repaired(a_tool("pay", effect="at_most_once"), a_tool(), **{error.replace(":", "__"): repair}).asks("pay").begins()
        if error == "unknown_outcome":
            hand.fails("c1")
        else:
            hand.gives("c1", None, says("RETRYABLE", retry_after_s=0.0))
        assert hand.words == [error]
        assert (hand.run.body_runs, hand.run.fixes) == (1, [])


def test_one_that_never_began_may_be_repaired() -> None:
    pay = a_tool("pay", effect="at_most_once", args=ONE_TO_THREE)
    hand = repaired(pay, args__range__n=fix(n=1)).decides(ToolCall("pay", {"n": 9}, "c1"))
    assert hand.batch == ["c1"]
    hand = repaired(pay, raised__TimeoutError=fix(n=2)).decides(ToolCall("pay", {"n": 1}, "c1"))
    hand.fails("c1", "TimeoutError", ran=False)
    assert hand.batch == ["c1"]


@pytest.mark.parametrize("said", ResultClass)
def test_a_fatal_result_is_not_repaired_and_nothing_beside_it(said: ResultClass) -> None:
    hand = repaired(a_tool(retry=Retry()), a_tool("other"), raised__ValueError=to("other"))
    hand.asks("look", "look").begins().fails("c1", "ValueError", says(said, retry_after_s=0.0)).fails("c2")
    assert hand.run.fixes == ([] if said is ResultClass.FATAL else ["raised__ValueError"] * 2)
    assert said not in RETRYABLE or hand.run.body_runs == 2


def test_a_run_that_is_stopping_repairs_nothing() -> None:
    limits = off(max_attempts=3, max_tool_calls=1, max_turns=9)
    hand = repaired(a_tool(), a_tool("other"), raised__ValueError=to("other"), limits=limits)
    hand.asks("look", "look").fails("c1")
    assert (hand.reason, hand.run.fixes) == (StopReason.MAX_TOOL_CALLS, [])


def test_calls_of_a_turn_are_repaired_beside_each_other_and_good_ones_left_alone() -> None:
    hand = repaired(a_tool(args=ONE_TO_THREE), args__range__n=fix(n=3))
    hand.decides(*(ToolCall("look", {"n": n, "q": str(n)}, f"c{n}") for n in (9, 2, 8)))
    hand.gives("c2")
    assert hand.batch == ["c9", "c8"]
    hand.gives("c9").gives("c8")
    assert (hand.words, hand.run.body_runs, hand.run.bad_arguments) == (["ok"] * 3, 3, 0)
    assert hand.run.path == ["normalize", "gather", "repair", "gather"]


def test_a_call_without_attempts_left_is_no_bar_to_one_that_has_some() -> None:
    tools = a_tool(retry=Retry(attempts=2, backoff_s=[0.0])), a_tool("other")
    hand = repaired(*tools, limits=off(max_attempts=2, max_turns=9), result__retryable=fix(q="z"), raised__ValueError=to("other"))
    hand.asks("look", "look").begins()
    hand.gives("c1", None, says("RETRYABLE")).gives("c1", None, says("RETRYABLE")).fails("c2")
    assert hand.batch == ["c2"]
    assert hand.gives("c2").words == ["result:retryable", "ok"]
    assert (hand.run.fixes, hand.call("c1").tries) == (["raised__ValueError"], 2)
    assert isinstance(hand.effect, Decide)


def test_identical_calls_that_fail_together_are_repaired_together_and_share_again() -> None:
    hand = repaired(a_tool(), a_tool("other"), raised__ValueError=to("other"))
    hand.decides(*[ToolCall("look", {"q": 1})] * 3).fails("call-1")
    assert hand.batch == ["call-1"]
    assert hand.gives("call-1").words == ["ok"] * 3
    assert hand.run.body_runs == 2


def test_when_no_attempt_is_left_and_nobody_decides_again_the_run_says_so_and_goes_on_with_a_raise() -> None:
    hand = repaired(
        a_tool(args=ONE_TO_THREE), args__range__n=fix(n=0), args__missing__n=fix(n=1), limits=off(max_attempts=1, max_turns=9),
        policy=Policy(redecide=False),
    )  # fmt: skip
    hand.decides(ToolCall("look", {"n": 9}, "c1"), ToolCall("look", {}, "c2"))
    stop = hand.run.stop
    assert stop is not None
    assert (stop.reason, stop.raise_to) == (StopReason.MAX_ATTEMPTS, {"max_attempts": 2})
    assert stop.closed[0].calls == ("c1", "c2")
    hand.engine.resume(hand.run, stop.raise_to)
    assert hand.batch == ["c2"]
    hand.gives("c2")
    assert hand.words == ["args:range:n", "ok"]
    assert hand.run.bad_arguments == 2


def test_a_repair_waiting_for_its_turn_survives_saving() -> None:
    hand = repaired(a_tool(), raised__ValueError=fix(q="z")).asks("look").fails("c1")
    again = load(save(hand.run), hand.engine.setup)
    assert again == hand.run
    effect = hand.engine.ask(again)
    assert isinstance(effect, CallTools)
    assert effect.calls[0].args == {"q": "z"}


def test_an_agents_repairs_are_functions_of_tool_and_arguments() -> None:
    seen: list[Any] = []

    def look(n: int) -> str:
        seen.append(n)
        if n > 3:
            raise ValueError(n)
        return f"hit {n}"

    def smaller(tool: str, args: Any) -> tuple[str, Any]:
        return tool, {"n": args["n"] // 3}

    agent = Agent([look], ScriptedDecider([ToolCall("look", {"n": 10}), "done"]), repairs={"raised:ValueError": smaller})
    answer = agent.run("find x")
    assert answer.ok
    assert seen == [10, 3]
    assert answer.assumptions == ("the call was changed by the repair 'smaller' and became look {\"n\":3}",)


def test_each_repair_of_a_turn_is_told_with_what_became_of_its_own_call() -> None:
    entry = {"fn": lambda n, pin: n, "args": {"n": {"type": "int", "max": 3}, "pin": {"type": "str"}}, "secret": ["pin"]}
    calls = [ToolCall("look", {"n": n, "pin": f"hush-{n}"}) for n in (1, 7, 8)]
    answer = Agent({"look": entry}, ScriptedDecider([calls, "done"]), repairs={"args:range:n": halved}).run("find x")

    told = [line.removeprefix("the call was changed by the repair 'halved' and became look ") for line in answer.assumptions]
    assert ["hush" in line for line in told] == [False, False]
    assert [line.partition(",")[0] for line in told] == ['{"n":3', '{"n":2']


def halved(name: str, args: Any) -> tuple[str, Any]:
    """The call with a smaller number, which tells apart which of the calls it was."""
    return name, {**args, "n": {7: 3, 8: 2}[args["n"]]}


def test_a_call_whose_repair_failed_is_not_told_as_repaired_when_the_same_repair_changed_another() -> None:
    entry = {"fn": lambda n: n, "args": {"n": {"type": "int", "max": 3}}}
    model = ScriptedDecider([[ToolCall("look", {"n": n}, id=f"c{n}") for n in (8, 7, 9)], "done"])
    agent = Agent({"look": entry}, model, repairs={"args:range:n": halved})
    answer = agent.run("find x")

    assert answer.run.fixes == ["halved", "halved"]
    assert [(call.id, call.repaired) for call in answer.run.calls] == [("c8", ("halved",)), ("c7", ("halved",)), ("c9", ())]
    told = [message.text.startswith("(the call was repaired") for message in agent.history(answer.run) if message.call_id]
    assert told == [True, True, False]


@pytest.mark.parametrize("passes", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("n", [2, 9], ids=["of a body", "of arguments"])
@pytest.mark.parametrize("kept", [True, False], ids=["saved", "at hand"])
def test_an_interrupted_repair_is_tried_again_once_the_run_is_taken_up(passes: type[BaseException], n: int, kept: bool) -> None:
    asked: list[Any] = []

    def repair(tool: str, args: Any) -> Any:
        asked.append(args)
        if len(asked) == 1:
            raise passes
        return tool, {"n": 1}

    def body(n: int) -> int:
        if n == 2:
            raise ValueError
        return n

    agent = Agent(
        {"look": {"fn": body, "args": {"n": {"type": "int", "max": 3}}}},
        ScriptedDecider([ToolCall("look", {"n": n}), "done"]),
        repairs={"raised:ValueError": repair, "args:range:n": repair},
    )
    run = agent.start("go")
    with pytest.raises(passes):
        agent.drive(run)

    assert run.stop is not None
    assert run.stop.reason is StopReason.CANCELLED
    assert agent.replay(run) == run
    assert len(asked) == 1
    run = agent.load(agent.save(run)) if kept else run
    answer = agent.resume(run)
    assert (answer.stop_reason, [call.value for call in run.calls]) == (StopReason.ANSWERED, [1])
    assert agent.replay(run) == run
