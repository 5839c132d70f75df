"""An event loop in a thread of its own, for a client that belongs to one loop and is asked by threads."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Final, TypeVar

T = TypeVar("T")
_END: Final = object()


class OwnLoop:
    """Runs coroutines for threads that wait for them; its thread begins with the first one and ends with this object."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0

    def result(self, asked: Coroutine[Any, Any, T], said: SimpleQueue[Any], hear: Callable[[Any], None] | None = None) -> T:
        """What a coroutine returns or raises; what it puts into `said` meanwhile is heard here, in the thread that waits.

        Whoever is interrupted here, or raises at what is heard, cancels it.
        """
        future = self._begun(asked)
        future.add_done_callback(lambda _: said.put(_END))
        try:
            while (piece := said.get()) is not _END:
                if hear is not None:
                    hear(piece)
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _begun(self, asked: Coroutine[Any, Any, T]) -> Future[T]:
        context = contextvars.copy_context()
        with self._lock:
            # The thread of a process that was forked stays behind.
            if self._loop is None or self._process != os.getpid():
                self._process = os.getpid()
                loop = self._loop = asyncio.new_event_loop()
                threading.Thread(target=_run, args=(loop,), name="own loop", daemon=True).start()
                weakref.finalize(self, loop.call_soon_threadsafe, loop.stop)
            return asyncio.run_coroutine_threadsafe(_within(context, asked), self._loop)


async def _within(context: contextvars.Context, asked: Coroutine[Any, Any, T]) -> T:
    return await asyncio.get_running_loop().create_task(asked, context=context)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    while True:
        try:
            loop.run_forever()
        except BaseException:  # What passes through a task is told to whoever waits for it, and ends no other.
            continue
        break
    loop.close()
