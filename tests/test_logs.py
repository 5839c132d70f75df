"""What the host's logs hear of functions of its own that raised."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from fsm_agent import Agent, Hooks, Limits, ToolCall
from fsm_agent.host.logs import log_raised
from fsm_agent.host.tool_forms import make_tool

SECRET = "hunter2-canary"


def pay(key: str) -> str:
    raise ValueError(f"bad key {key}")


def fails(*given: Any) -> Any:
    raise LookupError(SECRET)


def an_agent(**parts: Any) -> Agent:
    tool = make_tool(pay, secret=["key"], **parts.pop("tool", {}))
    decide = lambda ask: "done" if ask.run.calls else ToolCall("pay", {"key": SECRET})  # noqa: E731
    return Agent([tool], decide, limits=Limits(min_evidence=0), **parts)


PARTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "a tool": ({}, "the tool pay raised ValueError", "in pay"),
    "a verifier": ({"verify": fails}, "whoever was asked to Judge raised LookupError", "in fails"),
    "a hook before a call": ({"hooks": Hooks(before_tool_call=fails)}, "before_tool_call raised LookupError", "in fails"),
    "another hook": ({"hooks": Hooks(on_iteration=fails)}, "on_iteration raised LookupError", "in fails"),
    "an approval function": ({"tool": {"approval": lambda key: fails()}}, "the approval function of pay raised LookupError", "in fails"),
}


@pytest.fixture
def heard(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.DEBUG, logger="fsm_agent"):
        yield caplog


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("twin", ["run", "arun"])
def test_the_frames_of_what_raised_are_told_and_no_message(name: str, twin: str, heard: pytest.LogCaptureFixture) -> None:
    parts, who, frame = PARTS[name]
    agent = an_agent(**parts)
    agent.run("go") if twin == "run" else asyncio.run(agent.arun("go"))
    told = next(record.getMessage() for record in heard.records if record.getMessage().startswith(who))

    assert told.splitlines()[0] == who
    assert frame in told
    assert SECRET not in heard.text


def test_a_decider_that_raises_is_told_of_too(heard: pytest.LogCaptureFixture) -> None:
    assert Agent([], fails).run("go").stop_reason == "model_error"
    assert heard.records[0].getMessage().startswith("whoever was asked to Decide raised LookupError\n")


def test_nothing_is_told_where_nobody_wants_to_hear_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="fsm_agent"):
        an_agent().run("go")
    assert not caplog.records


class Odd(Exception):
    """It raises wherever it is looked at."""

    def __getattribute__(self, name: str) -> Any:
        raise ValueError("no look")


def test_what_cannot_be_looked_at_is_no_failure_of_the_run(heard: pytest.LogCaptureFixture) -> None:
    log_raised("somebody", Odd())
    assert not heard.records


def test_a_handler_that_fails_is_no_failure_of_the_run(heard: pytest.LogCaptureFixture) -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError("the disk is full")

    logger, handler = logging.getLogger("fsm_agent"), Broken()
    logger.addHandler(handler)
    try:
        assert an_agent().run("go").text == "done"
    finally:
        logger.removeHandler(handler)
