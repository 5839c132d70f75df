"""A run as an object of Python's: copied and pickled at any moment, also while somebody drives it."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest

from fsm_agent import Agent, Run, ToolCall, tool
from fsm_agent.core.limits import Limits
from fsm_agent.core.values import StopReason

COPIES: dict[str, Callable[[Run], Run]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda run: pickle.loads(pickle.dumps(run)),
}


@tool(effect="pure")
def look(q: str) -> str:
    """Look something up."""
    return f"hit {q}"


def copying(made: list[Run], how: Callable[[Run], Run]) -> Agent:
    """An agent of two calls in a turn whose run is copied whenever its decider is asked."""

    def decide(ask: Any) -> Any:
        if ask.run.driven:
            made.append(how(ask.run))
        return [ToolCall("look", {"q": n}) for n in "ab"] if not ask.run.calls else f"found {len(ask.run.calls)}"

    return Agent([look], decide)


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_of_a_driven_run_is_a_run_of_its_own(how: str) -> None:
    for awaited in (False, True):
        made: list[Run] = []
        agent = copying(made, COPIES[how])
        answer = asyncio.run(agent.arun("x")) if awaited else agent.run("x")

        assert (answer.text, len(made)) == ("found 2", 2)
        for one in tuple(made):
            assert (one.driven, one.interrupt, one.done) == (False, None, False)
            assert one.calls is not answer.run.calls
            assert agent.drive(one).text == "found 2"
        assert agent.replay(answer.run) == answer.run


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_between_two_events_of_a_stream_goes_on_by_itself(how: str) -> None:
    agent = copying([], copy.deepcopy)
    run = agent.start("x")
    for _ in agent.stream(run):
        one = COPIES[how](run)
        assert one == run
        assert agent.load(agent.save(one)) == one
        if not one.done:
            assert agent.drive(one).stop_reason is StopReason.ANSWERED
    assert agent.answer(run).text == "found 2"


@pytest.mark.parametrize("how", COPIES)
def test_a_finished_run_and_its_answer_are_copied_whole(how: str) -> None:
    agent = copying([], copy.deepcopy)
    answer = agent.run("x")
    one = COPIES[how](answer.run)

    assert one == answer.run
    assert (agent.save(one), agent.history(one)) == (agent.save(answer.run), agent.history(answer.run))
    assert agent.answer(one) == agent.answer(answer.run)


def test_trace_and_journal_are_lists_of_rows_that_a_reader_may_change_without_the_run() -> None:
    run = copying([], copy.copy).run("x").run
    rows, told = run.trace, run.journal
    assert [len(row) for row in rows] == [4] * run.row_count
    assert rows[0] == ("run_started", 0.0, run.id, None)
    assert rows[-1] == ("answer", run.spent_s, "answered", None)
    assert [type(event).__name__ for _, event in told] == ["Decided", "Started", "Returned", "Returned", "Decided"]
    assert all(0.0 <= at <= run.spent_s for at, _ in told)
    rows.clear()
    told.clear()
    assert (len(run.trace), len(run.journal)) == (run.row_count, 5)


def test_the_rows_from_a_number_on_are_the_rest_of_the_trace() -> None:
    run = copying([], copy.copy).run("x").run
    for since in range(run.row_count + 2):
        assert run.rows(since) == run.trace[since:]


def test_the_trace_is_read_backwards_one_row_at_a_time() -> None:
    run = copying([], copy.copy).run("x").run
    assert list(run.backwards()) == run.trace[::-1]
    rows = run.backwards()
    assert next(rows)[0] == "answer"
    run.flat_trace.extend(("resumed", 0.0, run.id, "gather"))
    assert next(rows)[0] == "state_entered", "what comes after the reading began is no part of it"


def test_a_run_can_be_read_from_another_thread_while_it_is_driven() -> None:
    run, over = Run(id="r", request="x", state="s", limits=Limits()), threading.Event()

    def drive() -> None:
        for n in range(20_000):
            run.flat_trace.extend(("state_entered", 0.0, f"s{n % 3}", None))
            run.flat_journal.extend((0.0, n))
        over.set()

    threading.Thread(target=drive).start()
    while not over.is_set():
        assert all(kind == "state_entered" for kind, *_ in run.trace)
        assert [event for _, event in run.journal][:3] in ([], [0], [0, 1], [0, 1, 2])
        assert run.row_count * 4 <= len(run.flat_trace)
    assert (run.row_count, len(run.journal), len(run.path)) == (20_000, 20_000, 20_000)
