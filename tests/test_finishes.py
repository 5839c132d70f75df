"""Finish reasons in the core's words, and usage that adds up."""

from __future__ import annotations

from typing import Any

import pytest

from fsm_agent.core.errors import BuildError
from fsm_agent.core.proposal import CUT_OFF
from fsm_agent.core.values import Usage
from fsm_agent.host.model import FailureKind, ModelFailed
from fsm_agent.models.finishes import checked_price, finish_word, usage_of


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("completed", "stop"),
        ("tool_use", "tool_calls"),
        ("max_tokens", "length"),
        ("max_output_tokens", "length"),
        ("model_length", "length"),
        ("safety", "content_filter"),
        ("eos_token", "stop"),
        ("refusal", "refusal"),
        ("content_filter", "content_filter"),
        ("stop", "stop"),
        ("odd", "odd"),
        (None, ""),
        (4, ""),
    ],
)
def test_a_reason_is_told_in_the_words_of_the_core(reason: Any, word: str) -> None:
    assert finish_word(reason) == word


def test_whatever_stops_a_reply_is_known_to_the_core() -> None:
    assert {finish_word(one) for one in ("max_tokens", "max_output_tokens", "model_context_window_exceeded", "refusal")} <= CUT_OFF


@pytest.mark.parametrize(
    ("counts", "usage"),
    [
        ((3, 4), Usage(input_tokens=3, output_tokens=4, cost=11e-6)),
        ((3, None), Usage(input_tokens=3, cost=3e-6)),
        ((-3, 4), Usage(output_tokens=4, cost=8e-6)),
        ((None, None), None),
        (("3", "4"), None),
    ],
)
def test_usage_counts_what_was_told(counts: Any, usage: Usage | None) -> None:
    assert usage_of(*counts, (1.0, 2.0)) == usage


@pytest.mark.parametrize("reason", ["error", "abort", "insufficient_system_resource"])
def test_a_reply_that_broke_is_no_reply(reason: str) -> None:
    with pytest.raises(ModelFailed, match=f"ended its reply with '{reason}'") as failed:
        finish_word(reason)
    assert failed.value.kind is FailureKind.SERVER_ERROR


@pytest.mark.parametrize("price", [(1.0,), (1, 2, 3), 4, "ab", (1, "2"), (-1, 2), (1, float("nan")), {1: 2}])
def test_a_price_that_is_no_two_amounts_is_refused(price: Any) -> None:
    with pytest.raises(BuildError, match="give two amounts"):
        checked_price(price)


def test_a_price_is_two_amounts_or_none() -> None:
    assert checked_price((0, 2.5)) == (0, 2.5)
    assert checked_price(None) is None


def test_without_a_price_there_is_no_cost() -> None:
    assert usage_of(3, 4, None) == Usage(input_tokens=3, output_tokens=4)
