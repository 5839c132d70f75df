"""Expectations: each key holds where it is right, and a wrong one makes the scenario fail with both sides told."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.scenario.expecting import CHECKS
from fsm_agent.scenario.matching import (
    equal,
    error_fits,
    figure_fits,
    figure_words,
    in_order,
    lacking,
    standing,
    word_fits,
    word_or,
)
from fsm_agent.scenario.reading import format_schema, scenario_of
from fsm_agent.scenario.runner import Verdict, run_scenario

OFF: dict[str, Any] = {"*": None, "max_turns": 9, "max_steps": 100}
TOOL: dict[str, Any] = {"args": {"q": {"type": "str", "required": True}}, "effect": "pure"}
# Two tools, a failure, a wait, a verifier, a strategy: something for every key to look at.
WORLD: dict[str, Any] = {
    "tools": {
        "s": {**TOOL, "does": [{"return": {"n": 1, "x": 1.5}, "sleep_s": 1}, {"return": [True, None]}], "then": "repeat-last"},
        "f": {
            **TOOL,
            "retry": {"attempts": 2, "backoff_s": [3]},
            "does": [{"raise": "Boom", "message": "why", "class": "RETRYABLE"}, {"raise": "Boom", "message": "why"}],
        },
        "slow": {**TOOL, "does": [{"return": "late", "sleep_s": 1}]},
    },
    "limits": OFF,
    "strategy": [{"record": True}],
    "model": [
        {"calls": [{"id": "a", "tool": "s", "args": {"q": "é"}}, {"id": "b", "tool": "slow", "args": {"q": "1"}}]},
        {"calls": [{"id": "c", "tool": "f", "args": {"q": "x"}}, {"id": "d", "tool": "slow", "args": {"q": "2"}}]},
        {"final": "found it", "finish": "end_turn", "usage": {"input_tokens": 7, "output_tokens": 3, "cost": 0.5}},
    ],
    "verifier": [{"decision": "done"}],
}
# key -> expectations that hold, expectations that do not
CASES: dict[str, tuple[list[Any], list[Any]]] = {
    "status": (["ok", ["partial", "ok"]], ["partial", ["failed", "paused"], None]),
    "stop_reason": (["answered", ["fatal", "answered"]], ["question", "", None]),
    "finish_reason": (["end_turn"], ["stop", None]),
    "state": (["final"], ["gather"]),
    "text": (["found it", ["x", "found it"]], ["found", "Found it", ["x", "y"]]),
    "text_has": (["found", ["found", "it"], [["no", "it"]], []], ["nothing", ["found", "no"], [["no", "none"]]]),
    "text_lacks": (["nothing", ["no", ["none", "nil"]]], ["found", ["no", "it"], [["no", "it"]]]),
    "fields": (
        [{"evidence": 3, "assumptions": 0, "citations": 0}, {"unknowns": {"min": 1}, "next_questions": {"max": 5}}],
        [{"evidence": 2}],
    ),
    "tool_runs": (
        [{"s": 1, "f": 2, "slow": {"min": 2, "max": 2}, "none": 0}, {"s": [0, 1]}, {"s": [5, {"max": 1}]}],
        [{"s": 2}, {"f": {"max": 1}}, {"slow": {"min": 3}}, {"none": 1}, {"s": [0, 2]}],
    ),
    "tool_args": (
        [{"s": [{"q": "é"}]}, {"s": {"q": "é"}, "slow": [{"q": "1"}, {"q": "2"}]}, {"none": []}],
        [{"s": [{"q": "e\u0301"}]}, {"slow": [{"q": "2"}, {"q": "1"}]}, {"slow": [{"q": "1"}]}, {"slow": [{"q": 1}, {"q": "2"}]}],
    ),
    "tool_args_in": (
        [{"slow": [{"q": "2"}, {"q": "1"}, {"q": "3"}]}, {"slow": {"q": ["1", "2"]}}, {"s": [[{"q": "x"}], [{"q": "é"}]]}],
        [{"slow": [{"q": "1"}]}, {"slow": {"q": ["1"]}}, {"s": [[{"q": "x"}]]}, {"slow": {"z": ["1"]}}],
    ),
    "distinct_args": ([{"slow": 2, "f": 1}, {"slow": True, "f": False}, {"none": 0}], [{"slow": 1}, {"f": True}, {"slow": False}]),
    "max_active": ([2, {"max": 2}, [1, 2], {"slow": 1, "s": 1, "none": 0}], [1, {"min": 3}, {"slow": 2}, [3, 4]]),
    "results": (
        [
            [{"call": "a", "ok": True, "value": {"n": 1, "x": 1.5}, "error": None, "class": "OK", "has": ["n", ["y", "1.5"]]}],
            [{"call": "a"}, {"call": "c", "ok": False, "error": "raised:Boom", "class": None, "lacks": "late"}, {"call": "d"}],
            [{"call": "c", "error": ["x", "raised:Boom"], "has": "why"}, {"call": "d", "chars": 4, "tool": "slow", "reused": False}],
            [{"ok": False}, {"ok": True}],
            [],
        ],
        [
            [{"call": "z"}],
            [{"call": "d"}, {"call": "a"}],
            [{"call": "a", "ok": False}],
            [{"call": "a", "value": {"n": 1.0, "x": 1.5}}],
            [{"call": "a", "value": {"n": True, "x": 1.5}}],
            [{"call": "a", "value": {"n": 1}}],
            [{"call": "a", "error": "raised:Boom"}],
            [{"call": "c", "error": "raised:boom"}],
            [{"call": "c", "error": None}],
            [{"call": "a", "class": "EMPTY"}],
            [{"call": "c", "class": "FATAL"}],
            [{"call": "a", "has": "nothing"}],
            [{"call": "c", "lacks": ["why"]}],
            [{"call": "d", "chars": {"max": 3}}],
            [{"call": "d", "tool": "s"}],
            [{"call": "d", "reused": True}],
            [{"ok": False}, {"ok": False}],
        ],
    ),
    "errors": (
        [["raised:Boom"], ["raised:Boom", "raised:Boom"], 2, {"max": 2}, [["x", "raised:Boom"]], [{"min": 2}]],
        [[], ["raised:X"], 3, {"max": 0}, [{"min": 3}], ["raised:Boom", "raised:Boom", "raised:Boom"]],
    ),
    "path": (
        [["normalize", "gather", "verify", "final"], ["...", "verify|repair", "..."], ["normalize", "..."]],
        [["gather", "final"], []],
    ),
    "events": (
        [
            ["run_started", "...", "answer"],
            ["...", "call_started:a", "call_started:b", "...", "answer:answered"],
            ["...", "call_finished:c|call_finished:d", "..."],
            ["...", "waiting", "...", "state_entered:final", "answer"],
            ["...", "judged:done", "..."],
        ],
        [
            ["run_started", "answer"],
            ["...", "call_started:z", "..."],
            ["answer", "..."],
            [],
            ["...", "paused", "..."],
            ["...", "waiting:z", "..."],
        ],
    ),
    "events_once": ([["answer", "run_started", "call_started:a"], "waiting"], ["decision", ["answer", "paused"]]),
    "events_none": ([["paused", "call_refused"], "guard_closed"], ["answer", ["paused", "decision"]]),
    "pending": ([{}], [{"a": "approval"}]),
    "model_saw": (
        ["why", ["late", ["nope", "why"], "slow"], {"has": "why", "lacks": ["nope"]}],
        ["nope", ["why", ["x1", "x2"]], {"lacks": "why"}],
    ),
    "model_turns": ([3, {"min": 3, "max": 3}, [1, 3]], [2, {"max": 2}, [1, 2]]),
    "verifier_runs": ([1], [0, {"min": 2}]),
    "waited_s": ([2, 2.0, {"min": 1.9, "max": 2.1}], [0, {"max": 1.9}]),
    "usage": (
        [{"input_tokens": 7, "output_tokens": 3, "tokens": 10, "cost": 0.5}, {"turns": 3, "tool_calls": 4, "spent_s": {"min": 3}}],
        [{"tokens": 9}, {"cost": {"max": 0.4}}, {"turns": [1, 2]}],
    ),
    "strategy_saw": (
        [
            2,
            [{"iteration_count": 1, "finish_reason": "tool_calls"}, {"iteration_count": 2, "tool_call_count": 4, "messages": {"min": 2}}],
            [{"last_turn_tool_call_count": 2}, {"finish_reason": ["stop", "tool_calls"]}],
        ],
        [1, [{}], [{"iteration_count": 1}, {"iteration_count": 1}], [{"finish_reason": "stop"}, {}]],
    ),
    "raises": ([None, [None, "ValueError"]], ["ValueError", ["ValueError", "OSError"]]),
    "every_call_has_one_result": ([True], [False]),
}  # fmt: skip


def show(document: dict[str, Any], mode: str = "sync") -> Verdict:
    return run_scenario(scenario_of(copy.deepcopy(document), "x.json"), mode)


def each(holds: bool) -> list[Any]:
    return [
        pytest.param(key, one, id=f"{key}-{number}") for key, sides in CASES.items() for number, one in enumerate(sides[0 if holds else 1])
    ]


def test_every_key_of_the_format_is_tried_both_ways() -> None:
    known = set(format_schema()["$defs"]["expect"]["properties"])
    assert set(CASES) == known == set(CHECKS)


@pytest.mark.parametrize(("key", "wanted"), each(True))
def test_what_is_expected_rightly_holds(key: str, wanted: Any) -> None:
    verdict = show({**WORLD, "expect": {key: wanted}})
    assert verdict.faults == ()
    assert verdict.holds


@pytest.mark.parametrize(("key", "wanted"), each(False))
def test_what_is_expected_wrongly_makes_the_scenario_fail(key: str, wanted: Any) -> None:
    verdict = show({**WORLD, "expect": {key: wanted}})
    assert not verdict.holds
    assert all(fault.startswith(f"{key}: ") for fault in verdict.faults), verdict.faults
    assert not show({**WORLD, "ops": [{"run": {}, "expect": {key: wanted}}]}).holds


def test_tasks_see_what_threads_see() -> None:
    for key, (right, wrong) in CASES.items():
        assert show({**WORLD, "expect": {key: right[0]}}, "async").faults == ()
        assert not show({**WORLD, "expect": {key: wrong[0]}}, "async").holds


def test_a_fault_tells_both_sides() -> None:
    verdict = show({**WORLD, "expect": {"status": "partial", "tool_runs": {"s": {"max": 0}}, "text_has": ["nothing"]}})
    assert verdict.faults == (
        "status: expected partial, came ok",
        "tool_runs: s: expected at most 0, came 1",
        "text_has: nothing does not stand in 'found it'",
    )


def test_a_pause_has_a_status_and_says_whom_it_waits_for() -> None:
    model = [{"calls": [{"id": "a", "tool": "s", "args": {"q": "x"}}]}]
    world = {"tools": {"s": {**TOOL, "approval": True}}, "limits": OFF, "model": model}
    right = {"status": "paused", "stop_reason": None, "pending": {"a": "approval"}, "tool_runs": {"s": 0}}
    assert show({**world, "expect": right}).faults == ()
    for wrong in ({"status": "ok"}, {"pending": {}}, {"pending": {"a": "client"}}, {"stop_reason": "answered"}):
        assert not show({**world, "expect": wrong}).holds


# ---- matching


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text()


@given(st.recursive(LEAVES, lambda one: st.lists(one) | st.dictionaries(st.text(), one)))
def test_a_value_is_equal_to_its_copy(value: Any) -> None:
    assert equal(value, copy.deepcopy(value))


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, True), (1, 1.0), (0, False), ("1", 1), (None, False), ([1], (1,)), ([1], [True]), ({"a": 1}, {"a": 1.0}), ("é", "e\u0301"),
     ({1}, {1.0}), ([], {}), (b"a", "a"), ([1, 2], [2, 1]), ({"a": 1}, {"a": 1, "b": None})],
)  # fmt: skip
def test_what_differs_in_type_or_code_point_is_not_equal(one: Any, other: Any) -> None:
    assert not equal(one, other)
    assert not equal(other, one)


def test_equal_values_of_odd_kinds() -> None:
    assert equal(math.nan, math.nan)
    assert equal([{"a": math.nan}], [{"a": math.nan}])
    assert equal({1, 2}, {2, 1})
    assert equal({"b": 1, "a": 2}, {"a": 2, "b": 1})


def test_figures() -> None:
    assert figure_fits(1, 1.0)
    assert figure_fits(0.1 + 0.2, 0.3)
    assert figure_fits({}, 5)
    assert not figure_fits(1, True)
    assert not figure_fits(True, 1)
    assert not figure_fits(1, None)
    assert not figure_fits({"min": 1, "max": 2}, 3)
    assert [figure_words(one) for one in (1, [1, {"min": 2}], {"min": 1, "max": 2}, {})] == [
        "1", "1 or at least 2", "at least 1 and at most 2", "any number",
    ]  # fmt: skip


def test_words_and_errors() -> None:
    assert word_fits(None, "")
    assert word_fits([None, "a"], "a")
    assert not word_fits("a", None)
    assert error_fits("denied", "denied:no")
    assert error_fits(["x", "skipped"], "skipped:fatal")
    assert not error_fits("raised", "raised:X")
    assert not error_fits("denied:no", "denied")


def test_texts() -> None:
    assert lacking("a", "abc") == []
    assert lacking(["a", "z", ["y", "b"], ["y", "z"]], "abc") == ["z", ["y", "z"]]
    assert standing(["a", "z", ["y", "b"]], "abc") == ["a", ["y", "b"]]


@pytest.mark.parametrize(
    ("patterns", "came", "fits"),
    [
        ([], "", True), ([], "a", False), (["..."], "", True), (["..."], "abc", True), (["a"], "a", True), (["a"], "aa", False),
        (["a", "...", "c"], "abbc", True), (["a", "...", "c"], "ac", True), (["a", "...", "c"], "abcd", False),
        (["...", "b", "..."], "abc", True), (["...", "b", "...", "b"], "bab", True), (["...", "b", "b"], "bab", False),
        (["a|b", "a|b"], "ba", True), (["a|b"], "c", False), (["...", "...", "c"], "abc", True),
    ],
)  # fmt: skip
def test_orders(patterns: list[str], came: str, fits: bool) -> None:
    assert in_order(patterns, list(came), word_or) is fits
