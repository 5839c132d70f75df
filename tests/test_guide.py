"""What strategies, hooks and approval functions are asked, and what is told to the run of their answers."""

from __future__ import annotations

from typing import Any

import pytest
from by_hand import Hand, a_tool

from fsm_agent import Limits, Run, Tool, ToolCall
from fsm_agent.core.errors import BuildError
from fsm_agent.core.events import Approved, Checked, Denied, Paused, Returned, Skipped, Stopped, Superseded
from fsm_agent.core.run import Call
from fsm_agent.core.strategies import combine, max_iterations
from fsm_agent.core.tools import Toolset
from fsm_agent.host.guide import Guide, loop_state, unseen_calls
from fsm_agent.host.hooks import Hooks, Skip
from fsm_agent.host.resolve import resolve

CALL = Call(id="a", tool="t", args={"n": [1]})


def a_run(**fields: Any) -> Run:
    return Run(**{"id": "r", "request": "go", "state": "gather", "limits": Limits(), **fields})


def box(**fields: Any) -> Toolset:
    return Toolset([Tool(name="t", fn=print, **fields)])


def check(guide: Guide, call: Call = CALL, **fields: Any) -> Checked | Skipped:
    return resolve(guide.check(a_run(), box(**fields), call, None))


def raises(*about: Any, **args: Any) -> Any:
    raise ValueError("no")


def test_a_guide_with_nothing_to_say_looks_at_nothing() -> None:
    guide = Guide()
    assert (guide.checks, guide.looks, guide.needs_loop) == (False, False, "")
    assert check(guide) == Checked("a", False)
    assert resolve(guide.before_turn(a_run(turns=3), box(), None)) is None
    assert resolve(guide.after_calls(a_run(), [CALL], None)) is None


@pytest.mark.parametrize(
    ("hooks", "checks", "looks"),
    [
        (Hooks(), False, True),
        (Hooks(on_iteration=print), False, True),
        (Hooks(before_tool_call=print), True, True),
        ([Hooks(), Hooks(before_tool_call=print)], True, True),
        ([], False, False),
        (None, False, False),
    ],
)
def test_calls_are_checked_only_where_somebody_wants_to_see_them(hooks: Any, checks: bool, looks: bool) -> None:
    guide = Guide((), hooks)
    assert (guide.checks, guide.looks) == (checks, looks)


@pytest.mark.parametrize("odd", ["max_iterations", b"stop", 5, None], ids=repr)
def test_what_is_no_list_of_strategies_or_hooks_is_named_as_a_whole_with_the_mend(odd: Any) -> None:
    with pytest.raises(BuildError, match=f"^strategy is {odd!r}; give functions of a LoopState$"):
        Guide(odd)
    if odd is not None:
        with pytest.raises(BuildError, match=rf"^hooks is {odd!r}; give Hooks\(...\), or a list of them$"):
            Guide((), odd)


def test_a_strategy_alone_or_in_a_list_or_combined_is_the_same() -> None:
    one = max_iterations(1)
    for given in (one, [one], combine([one]), [combine([combine([one])])]):
        assert Guide(given).strategies == [one]


@pytest.mark.parametrize(
    ("approval", "asks"),
    [(False, False), (True, True), (lambda n: False, False), (lambda n: True, True), (lambda n: None, True), (lambda n: 0, True),
     (raises, True), (lambda: False, True)],
)  # fmt: skip
def test_a_person_is_asked_unless_that_is_ruled_out(approval: Any, asks: bool) -> None:
    assert check(Guide(), approval=approval) == Checked("a", asks)


def test_what_an_approval_function_does_to_its_arguments_stays_with_it() -> None:
    check(Guide(), approval=lambda n: n.append(2))
    assert CALL.args == {"n": [1]}


@pytest.mark.parametrize(
    ("word", "told"),
    [
        (None, Checked("a", False)),
        (Skip(), Skipped("a", "hook", None)),
        (Skip({"error": "no"}, "budget"), Skipped("a", "budget", {"error": "no"})),
        (Skip(1, " \n"), Skipped("a", "hook", 1)),
        (False, Skipped("a", "hook", False)),
        ("no", Skipped("a", "hook", "no")),
        (Checked("a"), Skipped("a", "hook", {"call_id": "a", "approval": False})),
    ],
)
def test_a_word_before_a_call(word: Any, told: Any) -> None:
    assert check(Guide((), Hooks(before_tool_call=lambda about, call: word))) == told


def test_a_skip_is_said_before_a_person_is_asked() -> None:
    asked: list[int] = []
    told = check(Guide((), Hooks(before_tool_call=lambda *about: Skip())), approval=lambda n: asked.append(1))
    assert (told, asked) == (Skipped("a", "hook"), [])


def test_one_that_raises_before_a_call_skips_it_with_its_message() -> None:
    assert check(Guide((), Hooks(before_tool_call=raises))) == Skipped("a", "before_tool_call raised ValueError", "no")


def test_between_turns_hooks_are_asked_before_strategies_and_then_told_that_it_goes_on() -> None:
    log: list[str] = []
    hooks = Hooks(on_iteration=lambda about: log.append("iteration"), should_continue=lambda about, state: log.append("hook"))
    guide = Guide([lambda state: log.append("strategy")], hooks)
    assert resolve(guide.before_turn(a_run(turns=1), box(), None)) is None
    assert log == ["hook", "strategy", "iteration"]
    log.clear()
    assert resolve(guide.before_turn(a_run(turns=0), box(), None)) is None
    assert log == ["iteration"]


@pytest.mark.parametrize(
    ("guide", "told"),
    [
        (Guide(max_iterations(1)), Stopped("strategy", "max_iterations(1) said stop")),
        (Guide((), Hooks(should_continue=lambda *about: False)), Stopped("strategy", "should_continue said stop")),
        (Guide((), Hooks(should_continue=lambda *about: 0)), Stopped("strategy", "should_continue said stop")),
        (Guide((), Hooks(should_continue=raises)), Stopped("strategy", "should_continue raised ValueError: no")),
        (Guide(raises), Stopped("strategy", "raises raised ValueError: no")),
        (Guide((), Hooks(on_iteration=raises)), Stopped("strategy", "on_iteration raised ValueError: no")),
        (Guide((), Hooks(on_iteration=lambda *about: False)), None),
        (Guide(lambda state: "go"), None),  # type: ignore[arg-type,return-value]
    ],
)
def test_a_word_between_turns(guide: Guide, told: Any) -> None:
    assert resolve(guide.before_turn(a_run(turns=1), box(), None)) == told


def test_results_are_shown_as_copies() -> None:
    seen: list[Any] = []
    call = Call(id="a", tool="t", args={"n": [1]}, ok=True, value={"rows": [1]})
    resolve(Guide((), Hooks(after_tool_phase=lambda about, calls: seen.extend(calls))).after_calls(a_run(), [call], None))
    seen[0].args["n"].clear()
    seen[0].value["rows"].clear()
    assert (call.args, call.value) == ({"n": [1]}, {"rows": [1]})


def test_the_state_of_the_loop_is_the_runs() -> None:
    run = a_run(turns=3, finish="tool_calls", emitted_calls=7, last_emitted=2)
    state = loop_state(run, box())
    assert (state.iteration_count, state.finish_reason, state.tool_call_count, state.last_turn_tool_call_count) == (3, "tool_calls", 7, 2)
    assert isinstance(state.messages, tuple)
    assert [message.text for message in state.messages] == ["go"]


# -- where the calls begin that no hook has seen ---------------------------------------------------------------------


def held(*calls: str) -> Hand:
    hand = Hand(a_tool("ask", approval=True), a_tool("where", where="client"), a_tool("look"))
    hand.decides(ToolCall("look", {"q": 0}, "z")).plays()
    hand.decides(*(ToolCall(name, {"q": n}, f"c{n}") for n, name in enumerate(calls)))
    hand.tell(Paused())
    return hand


def test_a_run_that_was_never_driven_has_no_calls_to_show() -> None:
    assert unseen_calls(Hand().run) == -1


def test_a_turn_that_is_open_begins_behind_those_that_are_settled() -> None:
    assert unseen_calls(held("ask", "look").run) == 1


@pytest.mark.parametrize("events", [
    (Returned("c1", 1), Denied("c0")),
    (Denied("c0"), Returned("c1", 1)),
    (Superseded("no"),),
    (Approved("c0", 5, True), Returned("c1", 1)),
])  # fmt: skip
def test_a_turn_that_people_settled_is_shown_from_its_first_call_on(events: Any) -> None:
    hand = held("ask", "where")
    for event in events:
        assert unseen_calls(hand.run) == 1
        hand.tell(event)
    assert hand.run.open_calls == []
    assert unseen_calls(hand.run) == 1
    hand.decides(text="done")
    assert unseen_calls(hand.run) == -1


def test_a_turn_that_went_on_after_its_pause_was_seen() -> None:
    hand = held("ask")
    hand.tell(Approved("c0")).plays()
    assert unseen_calls(hand.run) == -1
