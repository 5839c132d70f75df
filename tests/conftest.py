"""What all tests share: in CI a skipped test is a failure, and Hypothesis has no deadline on a loaded machine."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("suite", max_examples=60, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays to the end; looking through it again and again while it grows would cost a third of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """What was collected stays to the end; looking through it at each collection of garbage would cost minutes."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _what_is_left_of_earlier_modules_is_not_looked_through_again() -> None:
    gc.freeze()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What must not end yet waits for it; opened at the end, so that no thread stays behind."""
    event = threading.Event()
    yield event
    event.set()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A green run that skipped a test is not green in CI."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = len(reporter.stats.get("skipped", [])) if reporter is not None else 0
    if os.environ.get("CI") and skipped and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
