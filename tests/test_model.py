"""The words of the port that models keep: requests, failures and what passes by itself."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import attrs
import pytest

from fsm_agent import Decision
from fsm_agent.core.errors import BuildError
from fsm_agent.core.messages import Purpose
from fsm_agent.host.model import FailureKind, MalformedDecision, Model, ModelFailed, ModelRequest


@pytest.mark.parametrize(
    ("kind", "passes"),
    [
        ("rate_limited", True),
        ("server_error", True),
        ("timeout", True),
        ("connection", True),
        ("context_length", False),
        ("invalid_request", False),
        ("authentication", False),
        ("unknown", False),
    ],
)
def test_every_kind_of_failure_passes_or_does_not(kind: str, passes: bool) -> None:
    assert FailureKind(kind).passes is passes


def test_the_table_of_kinds_is_whole() -> None:
    assert [kind.value for kind in FailureKind] == [
        "rate_limited", "server_error", "timeout", "connection", "context_length", "invalid_request", "authentication", "unknown",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["rate_limit", "", None, 429])
def test_a_failure_of_no_known_kind_names_those_there_are(kind: Any) -> None:
    with pytest.raises(BuildError, match=r"^ModelFailed\(kind=\) is .*; it may be rate_limited, server_error, timeout, .*unknown$"):
        ModelFailed(kind)


def test_a_failure_says_its_kind_its_words_and_when_it_may_be_asked_again() -> None:
    failed = ModelFailed("rate_limited", "slow down", 2.5)
    assert (failed.kind, str(failed), failed.retry_after_s) == (FailureKind.RATE_LIMITED, "slow down", 2.5)
    assert ModelFailed(FailureKind.TIMEOUT).retry_after_s is None


def test_a_kind_that_nobody_knows_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="overloaded"):
        ModelFailed("overloaded")


@pytest.mark.parametrize("error", [ModelFailed, MalformedDecision])
def test_failures_are_plain_exceptions(error: type[BaseException]) -> None:
    assert issubclass(error, Exception)
    assert not issubclass(error, OSError | RuntimeError)


def test_a_request_has_a_default_for_everything_and_shares_none_of_it() -> None:
    one, two = ModelRequest(), ModelRequest()
    assert (one.purpose, one.attempt, one.tools, one.schema, one.on_delta, one.seconds_left) == (Purpose.DECIDE, 1, (), None, None, None)
    assert one.left is not two.left
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        one.attempt = 2  # type: ignore[misc]


def test_a_request_without_a_listener_can_be_sent_elsewhere() -> None:
    request = ModelRequest(run_id="r", instructions="be brief", left={"max_turns": 3})
    assert pickle.loads(pickle.dumps(request)) == request


def test_a_model_is_whatever_replies() -> None:
    class Sync:
        def reply(self, request: ModelRequest) -> Decision:
            return Decision(text="x")

    class Async:
        async def reply(self, request: ModelRequest) -> Decision:
            return Decision(text="x")

    sync: Any = Sync()
    later: Any = Async()
    assert isinstance(sync, Model)
    assert isinstance(later, Model)
    assert not isinstance(lambda request: None, Model)
    assert sync.reply(ModelRequest()) == asyncio.run(later.reply(ModelRequest()))
