"""Questions to a host, resolved by a thread or a task: one after another, failures handed in, interrupts passed through."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from fsm_agent.host.resolve import ONLY_ASYNC, Questions, aresolve, at_once, resolve


def in_thread(questions: Questions[Any]) -> Any:
    return resolve(questions)


def in_task(questions: Questions[Any]) -> Any:
    return asyncio.run(aresolve(questions))


both = pytest.mark.parametrize("ask", [in_thread, in_task])
Ask = Callable[[Questions[Any]], Any]
OWN = asyncio.CancelledError("own")
FAILURES = [
    ValueError("x"), StopIteration("x"), StopAsyncIteration("x"), OWN, ExceptionGroup("x", [ValueError()]),
    GeneratorExit("x"), BaseException("x"),
]
PASS = [KeyboardInterrupt(), SystemExit(1)]
by_type = {"ids": lambda error: type(error).__name__}


def raiser(error: BaseException) -> Callable[[], Any]:
    def question() -> Any:
        raise error

    return question


@both
def test_questions_are_asked_in_order_and_each_hears_its_own_answer(ask: Ask) -> None:
    asked: list[int] = []

    def answers(n: int) -> Callable[[], int]:
        return lambda: (asked.append(n), n * n)[1]

    def questions() -> Questions[list[int]]:
        got = []
        for n in range(5):
            got.append((yield answers(n)))
            assert asked == list(range(n + 1))
        return got

    assert ask(questions()) == [0, 1, 4, 9, 16]


@both
def test_nothing_asked_is_an_answer_too(ask: Ask) -> None:
    def questions() -> Questions[str]:
        return "at once"
        yield

    assert ask(questions()) == "at once"


@both
@pytest.mark.parametrize("error", FAILURES, **by_type)
def test_a_failure_is_handed_to_the_one_who_asked_who_may_go_on(ask: Ask, error: BaseException) -> None:
    def questions() -> Questions[tuple[Any, int]]:
        caught: Any = None
        try:
            yield raiser(error)
        except BaseException as one:
            caught = one
        return caught, (yield lambda: 5)

    def others() -> Questions[tuple[Any, int]]:
        return (yield from questions())

    for asking in (questions, others):
        caught, answer = ask(asking())
        assert (type(caught).__name__, caught.args, answer) == (type(error).__name__, error.args, 5)


@both
@pytest.mark.parametrize("error", PASS, **by_type)
def test_an_interrupt_is_handed_to_nobody(ask: Ask, error: BaseException) -> None:
    caught: list[BaseException] = []

    def questions() -> Questions[None]:
        try:
            yield raiser(error)
        except BaseException as one:
            caught.append(one)
            raise

    with pytest.raises(type(error)):
        ask(questions())
    assert error not in caught


def test_an_answer_with_all_the_time_there_is_is_awaited_in_the_askers_own_task() -> None:
    async def answer() -> Any:
        return asyncio.current_task()

    def questions() -> Questions[Any]:
        return (yield answer)

    async def whole() -> list[bool]:
        return [await aresolve(questions(), left) is asyncio.current_task() for left in (None, lambda: None, lambda: 5.0)]

    assert asyncio.run(whole()) == [True, True, False]


@both
def test_a_failure_that_nobody_takes_is_raised(ask: Ask) -> None:
    def questions() -> Questions[None]:
        yield raiser(ValueError("x"))

    with pytest.raises(ValueError, match="x"):
        ask(questions())


async def later(value: Any) -> Any:
    await asyncio.sleep(0)
    return value


class Awaitable:
    def __await__(self) -> Any:
        return later(7).__await__()


@pytest.mark.parametrize("made", [lambda: later(7), Awaitable], ids=["coroutine", "awaitable"])
def test_an_answer_may_be_awaited_in_a_task_and_is_a_failure_in_a_thread(made: Callable[[], Any]) -> None:
    def questions() -> Questions[Any]:
        try:
            return (yield made)
        except TypeError as error:
            return str(error)

    assert in_task(questions()) == 7
    assert in_thread(questions()) == f"the answer has to be awaited; {ONLY_ASYNC}"


@pytest.mark.parametrize("error", [ValueError("x"), OWN], **by_type)
def test_what_fails_while_it_is_awaited_is_handed_in_too(error: BaseException) -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise error

    def questions() -> Questions[str]:
        try:
            yield fails
        except BaseException as one:
            return type(one).__name__
        return "no failure"

    assert in_task(questions()) == type(error).__name__


def test_the_hosts_cancellation_is_the_hosts() -> None:
    caught: list[BaseException] = []

    async def question() -> None:
        await asyncio.sleep(20)

    def questions() -> Questions[None]:
        try:
            yield question
        except asyncio.CancelledError as error:
            caught.append(error)

    async def main() -> None:
        task = asyncio.create_task(aresolve(questions()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert caught == []


def test_what_is_at_hand_is_given_as_it_is() -> None:
    value = object()
    assert at_once(value) is value
    assert at_once(None) is None
    # A class whose instances can be awaited is a value like any.
    assert at_once(Awaitable) is Awaitable
