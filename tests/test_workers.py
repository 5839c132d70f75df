"""Threads that ask: used again, more when all are held up, and none that waits behind one that hangs."""

from __future__ import annotations

import threading
import time
from queue import SimpleQueue
from typing import Any

import pytest

from fsm_agent.host.workers import HELD_UP_S, Job, Workers

LONG = 20.0


class Asked:
    """Jobs of one set of workers, and what came of them."""

    def __init__(self) -> None:
        self.workers = Workers()
        self.told: SimpleQueue[Any] = SimpleQueue()

    def do(self, ask: Any, *, at_once: bool = True) -> Job:
        job = Job(ask, self.told.put)
        self.workers.do(job, at_once=at_once)
        return job

    def next(self) -> Any:
        return self.told.get(timeout=LONG)


def test_one_after_the_other_is_asked_by_the_same_thread() -> None:
    asked, seen = Asked(), set()
    for _ in range(20):
        asked.do(threading.get_ident)
        seen.add(asked.next()[0])
        # Until it is free again, another one would have to be found.
        while not asked.workers._free:
            time.sleep(0)
    assert len(seen) == 1


def test_what_is_raised_is_told() -> None:
    asked, error = Asked(), KeyboardInterrupt("x")

    def fails() -> None:
        raise error

    asked.do(fails)
    assert asked.next() == (None, error)


def test_whoever_cannot_wait_for_another_does_not(gate: threading.Event) -> None:
    asked = Asked()
    hung = asked.do(lambda: gate.wait(LONG))
    while not hung.begun:
        time.sleep(0)
    asked.do(lambda: 1)
    assert asked.next() == (1, None)


def test_those_that_are_held_up_are_made_more_when_somebody_hurries(gate: threading.Event) -> None:
    asked = Asked()
    for _ in range(5):
        asked.do(lambda: gate.wait(LONG), at_once=False)
    asked.do(lambda: 1, at_once=False)
    until = time.monotonic() + LONG
    while asked.told.empty() and time.monotonic() < until:
        asked.workers.hurry()
        time.sleep(HELD_UP_S)
    assert asked.next() == (1, None)
    assert asked.workers._threads <= 8


def test_one_that_is_left_is_asked_no_more_and_its_thread_is_none_of_these(gate: threading.Event) -> None:
    asked = Asked()
    hung = asked.do(lambda: gate.wait(LONG))
    while not hung.begun:
        time.sleep(0)
    behind = asked.do(lambda: 2, at_once=False)
    asked.workers.leave(behind)
    asked.workers.leave(hung)
    asked.workers.leave(hung)
    assert asked.workers._threads == 0
    asked.do(lambda: 3, at_once=False)
    assert asked.next() == (3, None)
    gate.set()
    assert asked.told.empty()


def test_those_that_have_nothing_to_do_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsm_agent.host.workers._IDLE_S", 0.001)
    asked = Asked()
    asked.do(lambda: 1)
    assert asked.next() == (1, None)
    until = time.monotonic() + LONG
    while asked.workers._threads and time.monotonic() < until:
        time.sleep(0.001)
    assert asked.workers._threads == 0
    asked.do(lambda: 2)
    assert asked.next() == (2, None)


def test_however_many_hurry_there_are_only_so_many(gate: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsm_agent.host.workers._MOST", 2)
    monkeypatch.setattr("fsm_agent.host.workers.HELD_UP_S", 0.0)
    asked = Asked()
    for _ in range(9):
        asked.do(lambda: gate.wait(LONG), at_once=False)
    for _ in range(9):
        asked.workers.hurry()
    assert asked.workers._threads == 2
