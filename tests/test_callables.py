"""Functions that do not answer when they are called: refused where they are given, for their answer would always be yes."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import attrs
import pytest

from fsm_agent import Agent, Limits, ToolCall
from fsm_agent.core.callables import says_yes, wrong_manner
from fsm_agent.core.effects import OwnEffect
from fsm_agent.core.errors import BuildError, ContractError, FsmAgentError, TableError
from fsm_agent.core.guards import Opaque
from fsm_agent.core.table import State
from fsm_agent.host.hooks import Hooks
from fsm_agent.host.tool_forms import make_tool


async def coroutine(*given: Any, **named: Any) -> None:
    """Answers when it is awaited."""


def generator(*given: Any, **named: Any) -> Iterator[bool]:
    """Answers to nobody."""
    yield False


async def async_generator(*given: Any, **named: Any) -> AsyncIterator[bool]:
    """Answers to nobody."""
    yield False


class Calls:
    """An object that is called as this function."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn

    def __call__(self, *given: Any, **named: Any) -> Any:
        """What the function gives."""
        return self.fn(*given, **named)


class Generates:
    """An object whose call generates."""

    def __call__(self, *given: Any) -> Iterator[bool]:
        """Answers to nobody."""
        yield False


@attrs.define
class Look(OwnEffect):
    """An effect of a user's own."""


GENERATORS = [generator, async_generator, partial(generator, 1), Generates()]
NEITHER = [*GENERATORS, coroutine, partial(coroutine, 1)]


def entry(**declared: Any) -> dict[str, Any]:
    """A table of one tool."""
    return {"look": {"fn": lambda q: q, "args": {"q": {"type": "str"}}, **declared}}


def test_what_a_function_gives_instead_of_an_answer_is_told() -> None:
    assert [wrong_manner(fn) for fn in (len, print, Calls(coroutine), lambda: 1, None, 5, int)] == [""] * 7
    assert [wrong_manner(fn) for fn in GENERATORS] == ["a generator function"] * 4
    assert [wrong_manner(fn) for fn in (coroutine, partial(coroutine))] == ["a coroutine function"] * 2
    assert wrong_manner(coroutine, awaited=True) == ""


ASKED_AT_ONCE: dict[str, Callable[[Any], Any]] = {
    "classify": lambda fn: Agent(entry(classify=fn), None),
    "build": lambda fn: Agent(entry(build=fn), None),
    "post": lambda fn: Agent(entry(post={"holds": fn}), None),
    "normalizer": lambda fn: Agent(entry(), None, normalizer=fn),
    "repair": lambda fn: Agent(entry(), None, repairs={"raised:OSError": fn}),
    "test": lambda fn: Opaque("open", fn),
    "on_enter": lambda fn: State("a", work="gather", on_enter=fn),
}
MAY_BE_AWAITED: dict[str, Callable[[Any], Any]] = {
    "approval": lambda fn: Agent(entry(approval=fn), None),
    "model": lambda fn: Agent(entry(), fn),
    "verify": lambda fn: Agent(entry(), None, verify=fn),
    "close": lambda fn: Agent(entry(), None, close=fn),
    "strategy": lambda fn: Agent(entry(), None, strategy=[fn]),
    "should_continue": lambda fn: Agent(entry(), None, hooks=Hooks(should_continue=fn)),
    "before_tool_call": lambda fn: Agent(entry(), None, hooks=Hooks(before_tool_call=fn)),
    "effects": lambda fn: Agent(entry(), None, effects={Look: fn}),
    "function": lambda fn: make_tool(fn, name="look", args={}),
}


@pytest.mark.parametrize("where", ASKED_AT_ONCE)
def test_where_an_answer_is_needed_at_once_neither_coroutines_nor_generators_will_do(where: str) -> None:
    for fn in NEITHER:
        with pytest.raises((BuildError, ContractError, TableError), match=where) as told:
            ASKED_AT_ONCE[where](fn)
        assert wrong_manner(fn) in str(told.value)


@pytest.mark.parametrize("where", MAY_BE_AWAITED)
def test_where_an_answer_may_be_awaited_generators_will_not_do(where: str) -> None:
    MAY_BE_AWAITED[where](coroutine)
    for fn in GENERATORS:
        with pytest.raises(FsmAgentError, match=where) as told:
            MAY_BE_AWAITED[where](fn)
        assert "a generator function" in str(told.value)


@pytest.mark.parametrize("step", ["enter", "ask", "tell"])
def test_work_of_a_users_own_does_not_wait_itself(step: str) -> None:
    work = type("Work", (), {"enter": lambda *given: None, "ask": lambda *given: None, "tell": lambda *given: None})()
    setattr(work, step, coroutine)

    with pytest.raises(BuildError, match=rf"work\['own'\]\.{step} is a coroutine function; give a plain method"):
        Agent(entry(), None, work={"own": work})


def test_a_body_that_takes_its_argument_by_position_only_is_refused_with_a_contract_too() -> None:
    def body(q: str, /) -> str:
        return q

    with pytest.raises(ContractError, match="tool 'look': its function takes 'q' by position only"):
        Agent({"look": {"fn": body, "args": {"q": {"type": "str", "required": True}}}}, None)


@pytest.mark.parametrize("fn", [coroutine, generator, async_generator])
def test_a_condition_that_gives_no_answer_after_all_does_not_hold(fn: Any) -> None:
    tools = {"look": {"fn": lambda q: q, "args": {"q": {"type": "str"}}, "post": {"holds": Calls(fn)}}}
    agent = Agent(tools, lambda ask: "done" if ask.run.calls else ToolCall("look", {"q": "x"}), limits=Limits(min_evidence=0))

    assert [call.error for call in agent.run("x").run.calls] == ["result:holds"]
    gc.collect()


def test_an_answer_is_yes_by_its_truth() -> None:
    assert [says_yes(one) for one in (1, "x", [0], True)] == [True] * 4
    assert [says_yes(one) for one in (0, "", [], None, (n for n in [1]))] == [False] * 5


def of_none() -> None:
    """Takes nothing."""


def of_five(one: Any, two: Any, three: Any, four: Any, *, five: Any) -> None:
    """Takes more than anybody gives."""


def of_any(*given: Any, **named: Any) -> None:
    """Takes whatever comes."""


CALLED = {**ASKED_AT_ONCE, **{name: give for name, give in MAY_BE_AWAITED.items() if name not in ("approval", "function")}}


@pytest.mark.parametrize("where", CALLED)
def test_a_function_of_other_arguments_than_it_is_called_with_is_refused_where_it_is_given(where: str) -> None:
    CALLED[where](of_any)
    for fn in (of_none, of_five):
        with pytest.raises((BuildError, ContractError, TableError), match=where) as told:
            CALLED[where](fn)
        assert " that is called with (" in str(told.value)


def test_the_arguments_are_told_that_a_function_takes_and_those_that_it_gets() -> None:
    def verify(goal, answer="", *, stats):  # type: ignore[no-untyped-def]  # as a host may write it
        return True

    with pytest.raises(BuildError, match=r"^verify is a function of \(goal, answer, stats=\) that is called with \(judge\); give a"):
        Agent(entry(), None, verify=verify)


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ("Hooks.before_tool_call", "of context and call"),
        ("verify", "of judge"),
        ("effects", "of effect"),
        ("strategy", "of state"),
    ],
)
def test_what_to_give_in_its_place_takes_what_it_is_called_with(where: str, wanted: str) -> None:
    def nothing() -> None:
        """Takes nothing."""

    given: dict[str, Any] = {
        "Hooks.before_tool_call": lambda: Hooks(before_tool_call=nothing),  # type: ignore[arg-type]
        "verify": lambda: Agent(entry(), None, verify=nothing),  # type: ignore[arg-type]
        "effects": lambda: Agent(entry(), None, effects={OwnEffect: nothing}),  # type: ignore[dict-item]
        "strategy": lambda: Agent(entry(), None, strategy=[nothing]),  # type: ignore[list-item]
    }
    with pytest.raises(BuildError, match=rf"; give a function {wanted} that returns its answer$"):
        given[where]()


def test_what_a_function_in_c_takes_is_not_guessed() -> None:
    assert [wrong_manner(fn, given=("value",)) for fn in (bool, dict.fromkeys, print, [].append, max)] == [""] * 5
