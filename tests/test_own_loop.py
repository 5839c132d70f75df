"""A loop in a thread of its own: who waits gets what its coroutine gives, whoever else asks, fails or is interrupted beside it."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import threading
from concurrent.futures import CancelledError
from queue import SimpleQueue
from typing import Any

import pytest

from fsm_agent.models.own_loop import OwnLoop

LONG = 20.0
NAMED = contextvars.ContextVar("NAMED", default="nobody")


async def where() -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
    return asyncio.get_running_loop(), threading.current_thread()


def test_threads_that_ask_at_once_are_answered_by_one_loop() -> None:
    own, met, came = OwnLoop(), asyncio.Barrier(8), SimpleQueue[Any]()

    async def together(number: int) -> tuple[int, Any]:
        async with asyncio.timeout(LONG), met:
            return number, asyncio.get_running_loop()

    threads = [threading.Thread(target=lambda n=n: came.put(own.result(together(n), SimpleQueue()))) for n in range(8)]
    for thread in threads:
        thread.start()
    found = [came.get(timeout=LONG) for _ in threads]
    assert sorted(number for number, _ in found) == [*range(8)]
    assert len({loop for _, loop in found}) == 1


def test_what_is_said_is_heard_in_the_thread_that_waits_and_in_order() -> None:
    said, heard = SimpleQueue[int](), list[Any]()

    async def counts() -> str:
        for number in range(5):
            said.put(number)
            await asyncio.sleep(0)
        return "done"

    assert OwnLoop().result(counts(), said, lambda piece: heard.append((piece, threading.get_ident()))) == "done"
    assert heard == [(number, threading.get_ident()) for number in range(5)]


@pytest.mark.parametrize(
    ("kind", "comes"),
    [
        (ZeroDivisionError, ZeroDivisionError),
        (KeyboardInterrupt, KeyboardInterrupt),
        (SystemExit, SystemExit),
        (asyncio.CancelledError, CancelledError),
    ],
)
def test_what_a_coroutine_raises_comes_to_whoever_waits_and_the_loop_goes_on(kind: type[BaseException], comes: type[BaseException]) -> None:
    own = OwnLoop()
    first = own.result(where(), SimpleQueue())

    async def fails() -> None:
        raise kind

    with pytest.raises(comes):
        own.result(fails(), SimpleQueue())
    assert own.result(where(), SimpleQueue()) == first


def test_who_raises_at_what_is_heard_cancels_what_is_asked() -> None:
    said, ended = SimpleQueue[str](), threading.Event()

    async def talks() -> None:
        said.put("piece")
        try:
            await asyncio.sleep(LONG)
        finally:
            ended.set()

    def leaves(piece: str) -> None:
        raise KeyboardInterrupt(piece)

    own = OwnLoop()
    with pytest.raises(KeyboardInterrupt, match="piece"):
        own.result(talks(), said, leaves)
    assert ended.wait(LONG)


def test_a_coroutine_runs_in_the_context_of_who_asks() -> None:
    async def named() -> str:
        return NAMED.get()

    def asks() -> str:
        NAMED.set("somebody")
        return own.result(named(), SimpleQueue())

    own = OwnLoop()
    assert own.result(named(), SimpleQueue()) == "nobody"
    assert contextvars.copy_context().run(asks) == "somebody"


def test_the_thread_ends_with_the_loops_owner() -> None:
    own = OwnLoop()
    loop, thread = own.result(where(), SimpleQueue())
    assert thread.daemon
    del own
    gc.collect()
    thread.join(LONG)
    assert (thread.is_alive(), loop.is_closed()) == (False, True)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_forked_process_has_a_loop_of_its_own() -> None:
    own = OwnLoop()
    own.result(where(), SimpleQueue())
    child = os.fork()
    if not child:
        try:
            own.result(where(), SimpleQueue())
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert own.result(where(), SimpleQueue())
