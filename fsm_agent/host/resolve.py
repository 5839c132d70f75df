"""One way to ask a host that may answer at once or later: a generator of questions, resolved by a thread or by a task."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from fsm_agent.host.bodies import awaitable, passes
from fsm_agent.host.in_time import await_in_time

T = TypeVar("T")
# It yields what is to be called, is sent what that gave, and is thrown what it raised.
Questions = Generator[Callable[[], Any], Any, T]

# What questions are thrown where a function of the host's fails: anything but what passes through, of which they never hear.
FAILURES = (BaseException,)
ONLY_ASYNC = "await arun or adrive instead, or give a plain function"


class _Exit(Exception):
    """Stands for a GeneratorExit that a function raised: thrown itself, it would close questions that are asked by way of others."""


_Exit.__name__ = GeneratorExit.__name__


def _thrown(error: BaseException) -> BaseException:
    return _Exit(*error.args) if issubclass(type(error), GeneratorExit) else error


def at_once(answer: Any) -> Any:
    """An answer that needs no event loop; raises TypeError for one that does."""
    if not awaitable(answer):
        return answer
    if inspect.iscoroutine(answer):
        answer.close()
    raise TypeError(f"the answer has to be awaited; {ONLY_ASYNC}")


def resolve(questions: Questions[T]) -> T:
    """Ask them one after the other in this thread."""
    try:
        question = next(questions)
        while True:
            try:
                answer = at_once(question())
            except BaseException as error:
                if passes(error):
                    raise
                question = questions.throw(_thrown(error))
            else:
                question = questions.send(answer)
    except StopIteration as end:
        value: T = end.value
        return value


async def aresolve(questions: Questions[T], left: Callable[[], float | None] | None = None) -> T:
    """Ask them one after the other in the running event loop; `left` says how many seconds an answer may be awaited (None: any).

    A question whose time is over is thrown OutOfTime, and what it awaited is cancelled.
    """
    task = asyncio.current_task()
    try:
        question = next(questions)
        while True:
            try:
                answer = question()
                if awaitable(answer):
                    seconds = None if left is None else left()
                    answer = await answer if seconds is None else await await_in_time(answer, seconds)
            except BaseException as error:
                if passes(error, task):
                    raise
                question = questions.throw(_thrown(error))
            else:
                question = questions.send(answer)
    except StopIteration as end:
        value: T = end.value
        return value
