"""What a tool may declare of itself, and what is refused when it is made."""

from __future__ import annotations

from typing import Any

import pytest

from fsm_agent import BreakerPolicy, BuildError, Policy, Retry, Tool
from fsm_agent.core.tools import Toolset


def body(**args: Any) -> None:
    """Do nothing."""


def test_what_a_tool_is_that_declares_nothing() -> None:
    one = Tool(name="t", fn=body)
    assert (one.effect, one.retry.attempts, one.max_result_bytes, one.timeout_s, one.cache_ttl_s) == ("undeclared", 1, 65_536, None, None)
    assert (one.breaker, one.approval, one.where) == (BreakerPolicy(failures=3, open_s=30.0), False, "host")
    assert [name for name in ("polling", "constant", "empty_ok", "exclusive", "decode_json") if getattr(one, name)] == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"secret": "token"},
        {"secret": [5]},
        {"secret": 5},
        {"effect": "safe"},
        {"identity": "token"},
        {"identity": 5},
        {"effect": "pure", "timeout_s": 0},
        {"effect": "idempotent", "cache_ttl_s": 5},
        {"cache_ttl_s": -1, "effect": "pure"},
        {"max_result_bytes": 0},
        {"name": ""},
        {"fn": 5},
    ],
    ids=range(12),
)
def test_a_tool_that_contradicts_itself_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(BuildError):
        Tool(**{"name": "t", "fn": body, **wrong})


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempts": "2"}, {"attempts": True}, {"backoff_s": "x"}, {"backoff_s": float("nan")}, {"backoff_s": [1, -1]},
        {"backoff_s": -1}, {"most_s": "x"}, {"most_s": float("inf")},
    ],
    ids=range(8),
)  # fmt: skip
def test_waits_that_are_no_seconds_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BuildError, match="Retry"):
        Retry(**wrong)


@pytest.mark.parametrize(
    "wrong", [{"duplicates": "x"}, {"on_finish": 5}, {"on_finish": {"lenght": "end"}}, {"on_finish": {"length": "stop"}}], ids=range(4)
)
def test_a_policy_that_says_nothing_known_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BuildError, match="Policy"):
        Policy(**wrong)


class Unhashable(str):
    def __hash__(self) -> int:
        raise RuntimeError("no")


def test_a_text_of_a_class_of_its_own_names_what_its_text_names() -> None:
    one = Tool(name="t", fn=body)
    box = Toolset([one])

    assert box.get(type("Text", (str,), {})("t")) is box.get(Unhashable("t")) is one
    assert [box.get(name) for name in ("u", None, 5, [], b"t")] == [None] * 5


def test_tools_come_in_the_order_they_were_given() -> None:
    made = [Tool(name=name, fn=body) for name in "bac"]
    assert (list(Toolset(made)), Toolset(made).names()) == (made, ("b", "a", "c"))


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(BuildError, match="two tools are named 't'"):
        Toolset([Tool(name="t", fn=body), Tool(name="t", fn=body)])
