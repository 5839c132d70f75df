"""An exclusive body that makes another exclusive call of the same agent gets a failed result; it does not wait for itself."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any

import pytest

from fsm_agent import Agent, Limits, Tool, ToolCall, ToolDesk
from fsm_agent.core.answers import Answer
from fsm_agent.core.replay import replay
from fsm_agent.core.run import Run
from fsm_agent.core.saving import load, save
from fsm_agent.guarded import Guarded
from fsm_agent.host.reentrance import inside, is_inside

LONG = 20.0


def one(tool: str) -> Callable[[Any], Any]:
    return lambda ask: ToolCall(tool) if ask.run.turns == 0 else "done"


def errors_of(answer: Answer | None) -> list[str]:
    assert answer is not None
    assert answer.run is not None
    return [call.error for call in answer.run.calls]


def in_time(ask: Callable[[], Any]) -> Any:
    """What a function gives, or a failure where it waits for itself."""
    given: list[Any] = []
    thread = threading.Thread(target=lambda: given.append(ask()), daemon=True)
    thread.start()
    thread.join(LONG)
    assert given, "it waits for itself"
    return given[0]


@pytest.fixture(params=["no limit of time", "a deadline"])
def limits(request: pytest.FixtureRequest) -> Limits:
    """Bodies run in the driver's own thread where nothing limits their time, else in threads of their own."""
    return Limits() if request.param == "a deadline" else Limits(deadline_s=None)


def nested(limits: Limits, again: Callable[[Agent], Any]) -> Agent:
    """An agent whose exclusive tool `outer` drives a run of it that calls the exclusive tool `inner`."""
    decide = lambda ask: one("inner" if ask.run.request == "inner" else "outer")(ask)  # noqa: E731
    outer = Tool(name="outer", fn=lambda: (again(agent), 1)[1], exclusive=True)
    agent = Agent([outer, Tool(name="inner", fn=lambda: 1, exclusive=True)], decide, limits=limits)
    return agent


def test_a_body_that_has_ended_leaves_nothing_in_its_context() -> None:
    before = dict(contextvars.copy_context())
    with inside(threading.Lock()):
        assert dict(contextvars.copy_context()) != before
    assert dict(contextvars.copy_context()) == before


def test_a_run_that_a_body_drives_is_told_why_its_call_fails(limits: Limits) -> None:
    heard: list[Answer] = []
    agent = nested(limits, lambda agent: heard.append(agent.run("inner")))
    answer = in_time(lambda: agent.run("outer"))

    assert answer.ok
    assert errors_of(heard[0]) == ["raised:RuntimeError"]
    (call,) = heard[0].run.calls  # type: ignore[union-attr]
    assert call.detail.startswith("'inner' is exclusive and was called inside of an exclusive tool of the same agent")
    assert call.body_runs == 0


def test_the_turn_is_free_again_afterwards(limits: Limits) -> None:
    agent = nested(limits, lambda agent: agent.run("inner") and None)
    in_time(lambda: agent.run("outer"))

    assert errors_of(in_time(lambda: agent.run("inner"))) == [""]


@pytest.mark.parametrize("asynchronous", [True, False])
def test_tasks_are_told_too(limits: Limits, asynchronous: bool) -> None:
    heard: list[Answer] = []

    async def outer() -> int:
        heard.append(await agent.arun("inner"))
        return 1

    async def inner_body() -> int:
        return 1

    inner = Tool(name="inner", fn=inner_body if asynchronous else lambda: 1, exclusive=True)
    decide = lambda ask: one("inner" if ask.run.request == "inner" else "outer")(ask)  # noqa: E731
    agent = Agent([Tool(name="outer", fn=outer, exclusive=True), inner], decide, limits=limits)
    answer = in_time(lambda: asyncio.run(agent.arun("outer")))

    assert answer.ok
    assert errors_of(heard[0]) == ["raised:RuntimeError"]


def test_a_thread_that_a_body_starts_with_its_context_is_inside_of_it_while_it_runs() -> None:
    heard: list[Answer] = []

    def outer(agent: Agent) -> None:
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(lambda: heard.append(agent.run("inner")),), daemon=True)
        thread.start()
        thread.join(LONG)

    in_time(lambda: nested(Limits(deadline_s=None), outer).run("outer"))
    assert errors_of(heard[0]) == ["raised:RuntimeError"]


def test_what_a_body_has_left_behind_is_inside_of_it_no_more() -> None:
    contexts: list[contextvars.Context] = []
    agent = nested(Limits(deadline_s=None), lambda agent: contexts.append(contextvars.copy_context()))
    in_time(lambda: agent.run("outer"))

    assert errors_of(contexts[0].run(agent.run, "inner")) == [""]


def test_another_agents_exclusive_tools_and_tools_that_are_not_exclusive_are_called_as_ever(limits: Limits) -> None:
    other = Agent([Tool(name="inner", fn=lambda: 1, exclusive=True)], one("inner"), limits=limits)
    plain = Agent([Tool(name="inner", fn=lambda: 1)], one("inner"), limits=limits)
    heard: list[Answer] = []
    agent = nested(limits, lambda agent: heard.extend((other.run("go"), plain.run("go"))))
    in_time(lambda: agent.run("outer"))

    assert [errors_of(answer) for answer in heard] == [[""], [""]]


def test_a_desk_and_a_session_are_told_too() -> None:
    heard: list[Any] = []
    desk = ToolDesk(
        tools={
            "outer": {"fn": lambda: heard.append(desk.call_tool("inner", {})), "exclusive": True},
            "inner": {"fn": lambda: 1, "exclusive": True},
        },
        default_tool="outer",
    )
    in_time(lambda: desk.call_tool("outer", {}))
    outer = Tool(name="outer", fn=lambda: heard.append(guard.session().call("inner").error), exclusive=True)
    guard = Guarded([outer, Tool(name="inner", fn=lambda: 1, exclusive=True)])
    in_time(lambda: guard.session().call("outer"))

    assert heard == [{"ok": False, "value": None, "error": "raised:RuntimeError"}, "raised:RuntimeError"]


def test_a_body_is_inside_of_its_own_turn_alone() -> None:
    turn, other = threading.Lock(), threading.Lock()
    with inside(turn):
        assert is_inside(turn)
        assert not is_inside(other)
        with inside(other):
            assert is_inside(turn)
    assert not is_inside(turn)


# ---- a tool that is gone before its body ends

RETURNS = {"n": {"type": "int", "max": 3}}


@pytest.mark.parametrize(("value", "word"), [({"n": 2}, ""), ({"n": 9}, "result:range"), ("x", "result:shape")])
def test_a_result_is_measured_by_the_contract_under_which_its_body_was_begun(value: Any, word: str) -> None:
    def gone() -> Any:
        del tools["look"]
        return value

    tools: dict[str, Any] = {"look": {"fn": gone, "returns": RETURNS}}
    desk = ToolDesk(tools=tools, default_tool="look")
    run: Run = desk.run({})

    assert [(call.ok, call.error) for call in run.calls] == [(not word, word)]
    tools["look"] = {"fn": gone, "returns": RETURNS}
    assert replay(desk.engine(), run) == run
    assert load(save(run), desk.engine().setup) == run


def test_what_a_removed_tool_raises_is_read_as_it_would_have_been() -> None:
    def gone() -> Any:
        del tools["look"]
        raise ValueError("no")

    tools: dict[str, Any] = {"look": {"fn": gone, "effect": "at_most_once"}}
    run = ToolDesk(tools=tools, default_tool="look").run({})

    assert [call.error for call in run.calls] == ["unknown_outcome"]
