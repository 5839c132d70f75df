"""Whether the present code runs inside of an exclusive body: who waits there for the same turn waits for itself, for good."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock

import attrs


@attrs.define(eq=False)
class _Holder:
    """A body that has a turn; what it has begun and left behind outlives it and is inside of it no more."""

    turn: Lock
    running: bool = True


_INSIDE: ContextVar[tuple[_Holder, ...]] = ContextVar("fsm_agent_exclusive", default=())


def is_inside(turn: Lock) -> bool:
    """True in a body that has this turn, and in the threads and tasks that took its context along while it runs."""
    return any(holder.turn is turn and holder.running for holder in _INSIDE.get())


@contextmanager
def inside(turn: Lock) -> Iterator[None]:
    """Run a body that has this turn."""
    holder = _Holder(turn)
    token = _INSIDE.set((*_INSIDE.get(), holder))
    try:
        yield
    finally:
        holder.running = False
        _INSIDE.reset(token)
