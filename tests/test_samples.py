"""The sample orders: each shows the path that it says it shows."""

from __future__ import annotations

from typing import Any

import pytest
from lab_world import SAMPLES, sample_orders

from fsm_agent import adapter

# What an order shows -> its reasons, its repairs, how often a body ran, and whether it was answered.
PATHS: dict[str, tuple[list[str], list[str], int, bool]] = {
    "found at once": ([], [], 1, True),
    "no preference is the default tool": ([], [], 1, True),
    "the same order in other words is answered from memory": ([], [], 0, True),
    "a region that does not exist is repaired": (["args:allowed:region"], ["region"], 1, True),
    "a limit out of range is repaired": (["args:range:limit"], ["limit"], 1, True),
    "a limit far out of range is repaired": (["args:range:limit"], ["limit"], 1, True),
    "a tool that returns too much is repaired": (["result:too_big"], ["tool"], 2, True),
    "two faults, two repairs": (["args:allowed:region", "args:range:limit"], ["region", "limit"], 1, True),
    "three faults are one too many for three tries": (
        ["args:allowed:region", "args:range:limit", "result:too_big"],
        ["region", "limit"],
        1,
        False,
    ),
    "an unknown tool has no repair": (["args:unknown_tool"], [], 0, False),
    "a missing argument has no repair": (["args:missing:region"], [], 0, False),
    "nothing at all is missing its first argument": (["args:missing:sku"], [], 0, False),
    "a number in a text stays a text": (["args:type:limit"], [], 0, False),
    "true is no number": (["args:type:limit"], [], 0, False),
    "2.0 is no whole number": (["args:type:limit"], [], 0, False),
    "no stock there is no answer about stock": (["result:empty"], [], 1, False),
    "no such item": (["result:empty"], [], 1, False),
    "an order that gives orders": (["result:empty"], [], 1, False),
    "a huge number for a name": (["args:type:sku"], [], 0, False),
    "half a character": (["result:empty"], [], 1, False),
    "a query where a name belongs": (["args:type:sku"], [], 0, False),
    "a list around the region": (["args:type:region"], [], 0, False),
}


@pytest.fixture
def answers() -> list[tuple[Any, dict[str, Any]]]:
    """Every sample with its answer, handled in order by a desk that remembers nothing yet."""
    adapter.CACHE.clear()
    found = [(order, adapter.handle(order)) for order in sample_orders()]
    adapter.CACHE.clear()
    return found


def test_each_sample_walks_the_path_that_it_names(answers: list[tuple[Any, dict[str, Any]]]) -> None:
    walked = {
        order["about"]: (answer["errors"], answer["fixes"], answer["tool_runs"], answer["ok"])
        for order, answer in answers
        if isinstance(order, dict)
    }

    assert walked == PATHS


def test_the_last_two_samples_are_no_orders(answers: list[tuple[Any, dict[str, Any]]]) -> None:
    *_, one, other = answers

    assert [type(one[0]), type(other[0])] == [list, str]
    assert one[1]["errors"] == other[1]["errors"] == ["args:type:order"]


def test_the_samples_show_every_repair_and_a_refusal_of_every_kind(answers: list[tuple[Any, dict[str, Any]]]) -> None:
    reasons = {":".join(reason.split(":")[:2]) for _, answer in answers for reason in answer["errors"]}

    assert {fix for _, answer in answers for fix in answer["fixes"]} == set(adapter.REPAIRS.values())
    assert {"args:unknown_tool", "args:missing", "args:type", "args:allowed", "args:range"} <= reasons
    assert {"result:empty", "result:too_big"} <= reasons


def test_an_order_that_gives_orders_gets_no_stock(answers: list[tuple[Any, dict[str, Any]]]) -> None:
    (answer,) = [a for order, a in answers if isinstance(order, dict) and order["about"] == "an order that gives orders"]

    assert answer["rows"] == []
    assert "999" not in answer["answer"]


def test_the_file_has_one_utf8_line_an_order() -> None:
    lines = SAMPLES.read_text("utf-8").splitlines()

    assert len(lines) == len(sample_orders()) == len(PATHS) + 2
