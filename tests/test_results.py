"""What a body's outcome means: how it is measured, classified and kept, and how long to wait before another try."""

from __future__ import annotations

import itertools
import math
from collections import UserDict
from types import MappingProxyType
from typing import Any

import pytest
from by_hand import a_tool, says
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.core.contracts import TableResult
from fsm_agent.core.results import (
    FAILING,
    RETRYABLE,
    TRANSIENT,
    Reading,
    backoff_s,
    class_of,
    read_again,
    read_raised,
    read_unmeasured,
    read_value,
    says_nothing,
)
from fsm_agent.core.tools import Retry
from fsm_agent.core.values import EffectClass, ResultClass

ROWS = TableResult({"rows": {"type": "list", "max_len": 2, "item": {"n": {"type": "int", "min": 0}}}})
GOOD = {"rows": [{"n": 1}]}


# ---- measuring


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (GOOD, ""),
        ("text", "result:shape"),
        ({"rows": 1}, "result:shape"),
        ({"rows": [], "more": 1}, "result:shape"),
        ({"rows": []}, "result:empty"),
        ({"rows": [{"n": 1}] * 3}, "result:too_big"),
        ({"rows": [{"n": -1}]}, "result:range"),
        ({"rows": [{"n": -1}] * 3}, "result:too_big"),
        (None, "result:shape"),
    ],
)
@pytest.mark.parametrize("explain", [True, False])
def test_a_result_keeps_its_contract_or_has_the_first_reason(value: Any, error: str, explain: bool) -> None:
    reading = read_value(a_tool(returns=ROWS), value, explain=explain)
    assert (reading.ok, reading.error) == (not error, error)
    assert reading.value == (None if error else value)
    assert bool(reading.detail) is bool(error and explain)
    empty = ResultClass.EMPTY if error == "result:empty" else None
    assert reading.result_class == (empty if error else ResultClass.OK)


def test_without_a_contract_every_result_is_good() -> None:
    for value in ("text", 7, {"a": [1]}, 1.5, True):
        assert read_value(a_tool(), value) == Reading(True, value, result_class=ResultClass.OK)


@pytest.mark.parametrize(
    ("text", "value", "error"),
    [
        ('{"rows": [{"n": 1}]}', GOOD, ""),
        (b'{"rows": [{"n": 1}]}', GOOD, ""),
        ('{"rows": []}', None, "result:empty"),
        ('{"rows": 1}', None, "result:shape"),
        ("{", None, "result:not_json"),
        ("", None, "result:not_json"),
        ("hit", None, "result:not_json"),
        ("NaN", None, "result:not_json"),
        (b"\xff\xff", None, "result:not_json"),
        ("[" * 100_000, None, "result:not_json"),
        ('{"rows": [{"n": 1' + "0" * 5000 + "}]}", None, "result:not_json"),
        (GOOD, GOOD, ""),
        (None, None, "result:shape"),
    ],
    ids=range(13),
)
def test_json_text_is_decoded_where_the_contract_asks_and_then_measured(text: Any, value: Any, error: str) -> None:
    reading = read_value(a_tool(returns=ROWS, decode_json=True), text)
    assert (reading.value, reading.error) == (value, error)


@pytest.mark.parametrize("text", ['{"a": 1}', "[1]", "7", '"x"'])
def test_json_text_stays_text_where_nobody_asks(text: str) -> None:
    assert read_value(a_tool(), text).value == text
    assert read_value(a_tool(decode_json=True), text).value != text


def boom(value: Any) -> bool:
    raise RuntimeError("no idea")


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
def test_a_post_condition_that_does_not_hold_is_the_reason_by_its_name(first: bool, second: bool) -> None:
    post = {"sums_up": lambda value: first, "is_fresh": lambda value: second}
    reading = read_value(a_tool(post=post), {"a": 1})
    broken = [name for name, holds in (("sums_up", first), ("is_fresh", second)) if not holds]
    assert reading.error == (f"result:{broken[0]}" if broken else "")
    if broken:
        assert broken[0] in reading.detail


@pytest.mark.parametrize(
    ("value", "more", "told"),
    [
        ({"isError": True, "content": "no such table"}, {}, " of {'isError': True, 'content': 'no such table'}"),
        ("x" * 1000, {}, " of 'xxx"),
        ({"content": "no such table"}, {"secret": frozenset({"key"})}, ""),
    ],
)
def test_a_post_condition_that_does_not_hold_is_told_with_what_the_tool_gave(value: Any, more: dict[str, Any], told: str) -> None:
    tool = a_tool(post={"holds": lambda given: False}, **more)
    detail = read_value(tool, value).detail
    words = "the post-condition 'holds' does not hold"

    assert detail.startswith(words + told)
    assert len(detail) < 400
    assert (detail == words) is bool(more)
    assert read_value(tool, value, explain=False).detail == words


def test_a_post_condition_that_raises_does_not_hold() -> None:
    assert read_value(a_tool(post={"holds": boom}), 1).error == "result:holds"


def test_post_conditions_see_what_kept_the_contract_only() -> None:
    seen: list[Any] = []
    tool = a_tool(returns=ROWS, decode_json=True, post={"seen": lambda value: seen.append(value) or True})
    for text in ("{", '{"rows": 1}', '{"rows": [{"n": 1}]}'):
        read_value(tool, text)
    assert seen == [GOOD]


def test_a_contract_that_accepts_nothing_found_has_no_empty_results() -> None:
    tool = a_tool(returns=TableResult({"rows": {"type": "list"}}, empty_ok=True), empty_ok=True)
    reading = read_value(tool, {"rows": []})
    assert (reading.ok, reading.result_class) == (True, ResultClass.OK)


def test_what_a_run_keeps_is_a_copy_of_plain_values() -> None:
    value = {"list": [1, {"a": (1, 2)}]}
    kept = read_value(a_tool(), value).value
    value["list"][1]["a"] = "changed"  # type: ignore[index]
    assert kept == {"list": [1, {"a": (1, 2)}]}


class Odd:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparing")

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        raise RuntimeError("no words")


def deep(levels: int) -> Any:
    value: Any = "end"
    for _ in range(levels):
        value = [value]
    return value


ODD = [Odd(), 10**5000, float("nan"), deep(100_000), {Odd: Odd()}, "\ud800", {1, 2}, b"\x00", print, {"found": Odd()}]


@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
@pytest.mark.parametrize("returns", [None, ROWS], ids=["anything", "rows"])
@pytest.mark.parametrize("verdict", [None, says("OK"), says("RETRYABLE")], ids=["none", "ok", "retryable"])
def test_odd_results_are_read_and_never_raise(value: Any, returns: Any, verdict: Any) -> None:
    reading = read_value(a_tool(returns=returns, decode_json=True), value, verdict)
    assert bool(reading.error) is not reading.ok


# ---- classes


class Mapped(UserDict[str, Any]):
    pass


class Broken(UserDict[str, Any]):
    def get(self, key: str, default: Any = None) -> Any:
        raise RuntimeError("no reading")


FOUND_NOTHING = {"found": False, "items": [], "confidence": 0.2, "retryable": False, "reason": "Index has no documents"}
EMPTY: list[Any] = [
    None, "", " ", "\n\t", [], (), FOUND_NOTHING, {"found": False}, {**FOUND_NOTHING, "items": [1, 2]},
    {**FOUND_NOTHING, "retryable": True}, MappingProxyType(FOUND_NOTHING), Mapped(FOUND_NOTHING),
]  # fmt: skip
FULL: list[Any] = [
    0, False, 0.0, "x", [None], [[]], {}, set(), b"", {"found": True}, {"found": 0}, {"found": None}, {"found": "false"},
    {"items": []}, ("",), Mapped({"found": True}), Broken(), {"deep": {"found": False}},
]  # fmt: skip


@pytest.mark.parametrize("value", EMPTY, ids=range(len(EMPTY)))
def test_null_blank_text_an_empty_list_and_a_search_that_found_nothing_are_empty(value: Any) -> None:
    assert class_of(a_tool(), value) is ResultClass.EMPTY
    assert class_of(a_tool(empty_ok=True), value) is ResultClass.OK
    assert says_nothing(value) is True
    assert read_value(a_tool(), value).ok is True


class Liar:
    """Says that it is a text."""

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        return str


class Uncounted(list[Any]):
    def __len__(self) -> int:
        raise OSError("len")


def test_what_a_value_says_of_itself_makes_it_neither_empty_nor_an_error() -> None:
    assert [says_nothing(value) for value in (Liar(), Uncounted(), Uncounted([1]))] == [False, True, False]


@pytest.mark.parametrize("value", FULL, ids=range(len(FULL)))
def test_everything_else_is_ok(value: Any) -> None:
    assert class_of(a_tool(), value) is ResultClass.OK
    assert says_nothing(value) is False


@pytest.mark.parametrize("said", ResultClass)
@pytest.mark.parametrize("value", [GOOD, None, {"rows": []}, "text"], ids=["good", "null", "empty", "shape"])
@pytest.mark.parametrize("returns", [None, ROWS], ids=["anything", "rows"])
def test_the_contracts_classifier_comes_before_the_shape(said: ResultClass, value: Any, returns: Any) -> None:
    tool = a_tool(returns=returns)
    reading = read_value(tool, value, says(said, reason="because", retry_after_s=3.0))
    fault = read_value(tool, value).error
    assert reading.result_class is said
    assert reading.retry_after_s == 3.0
    assert reading.ok is (not fault and said not in FAILING)
    assert reading.error == (fault or (f"result:{said.value.lower()}" if said in FAILING else ""))
    assert reading.value == (value if reading.ok else None)
    assert reading.detail


@pytest.mark.parametrize("error", [*sorted(TRANSIENT), "ValueError", "CancelledError", "HTTPError"])
@pytest.mark.parametrize("effect", EffectClass)
def test_an_exceptions_type_says_whether_another_try_may_help_where_one_is_safe(error: str, effect: EffectClass) -> None:
    reading = read_raised(a_tool(effect=effect), error, "why")
    again = error in TRANSIENT and effect in (EffectClass.PURE, EffectClass.IDEMPOTENT)
    assert (reading.ok, reading.error, reading.detail) == (False, f"raised:{error}", "why")
    assert reading.result_class is (ResultClass.RETRYABLE if again else None)


@pytest.mark.parametrize("said", ResultClass)
@pytest.mark.parametrize("error", ["TimeoutError", "ValueError"])
def test_the_classifier_comes_before_the_exceptions_type(said: ResultClass, error: str) -> None:
    reading = read_raised(a_tool(), error, "", says(said, reason="because", retry_after_s=1.0))
    assert (reading.result_class, reading.error, reading.detail) == (said, f"raised:{error}", "because")


def test_the_classes_that_fail_and_those_that_may_be_tried_again() -> None:
    assert set(FAILING) == {ResultClass.RETRYABLE, ResultClass.RATE_LIMITED, ResultClass.FATAL}
    assert set(RETRYABLE) == {ResultClass.RETRYABLE, ResultClass.RATE_LIMITED}


@pytest.mark.parametrize("value", [GOOD, None, {"rows": []}, "text", {"rows": [{"n": -1}]}, {"found": False}], ids=range(6))
@pytest.mark.parametrize("said", [None, *ResultClass])
@pytest.mark.parametrize("returns", [None, ROWS], ids=["anything", "rows"])
def test_a_journaled_value_is_read_as_it_was_the_first_time(value: Any, said: ResultClass | None, returns: Any) -> None:
    tool, verdict = a_tool(returns=returns), None if said is None else says(said)
    first = read_value(tool, value, verdict)
    again = read_again(tool, first.value if first.ok else value, verdict, first.error)
    assert (again.ok, again.value, again.error, again.result_class) == (first.ok, first.value, first.error, first.result_class)


@pytest.mark.parametrize(
    ("value", "fault", "read"),
    [
        (GOOD, "", ResultClass.OK),
        (None, "", ResultClass.EMPTY),
        ({"found": False}, "", ResultClass.EMPTY),
        ({"rows": []}, "result:empty", ResultClass.EMPTY),
        ("text", "result:shape", None),
    ],
)
def test_a_journaled_value_of_a_tool_that_is_gone_is_read_by_its_fault_alone(value: Any, fault: str, read: ResultClass | None) -> None:
    assert read_unmeasured(value, fault) == Reading(not fault, None if fault else value, fault, "", read)


# ---- waits


@pytest.mark.parametrize("seed", [0, 1, 2**32, -5])
@pytest.mark.parametrize("call_id", ["c1", "c2", "\ud800"])
@pytest.mark.parametrize("base", [0.5, 1, 3.0])
@pytest.mark.parametrize("tries", [1, 2, 3, 7, 200])
def test_the_first_wait_doubles_up_to_the_cap_and_half_of_it_is_jitter(seed: int, call_id: str, base: float, tries: int) -> None:
    tool = a_tool(retry=Retry(attempts=9, backoff_s=base, most_s=30.0))
    full = min(30.0, base * 2 ** (tries - 1))
    wait = backoff_s(tool, seed, call_id, tries, None)
    assert full / 2 <= wait <= full
    assert backoff_s(tool, seed, call_id, tries, None) == wait


def test_the_jitter_is_the_runs_the_calls_and_the_tries_own() -> None:
    tool = a_tool(retry=Retry(attempts=9, backoff_s=1.0, most_s=1.0))
    waits = [backoff_s(tool, seed, call, n, None) for seed, call, n in itertools.product(range(8), ("a", "b"), (1, 2))]
    assert len(set(waits)) == len(waits)
    assert max(waits) - min(waits) > 0.3


@pytest.mark.parametrize("tries", range(1, 7))
@pytest.mark.parametrize("waits", [[0.5, 1.0, 4.0], (2,), [0.0]])
def test_declared_waits_are_used_as_they_are_and_the_last_repeats(tries: int, waits: Any) -> None:
    tool = a_tool(retry=Retry(attempts=9, backoff_s=waits, most_s=0.1))
    assert backoff_s(tool, 3, "c", tries, None) == waits[min(tries, len(waits)) - 1]


def test_an_empty_list_of_waits_is_no_wait() -> None:
    assert backoff_s(a_tool(retry=Retry(backoff_s=())), 0, "c", 1, None) == 0.0


@pytest.mark.parametrize(("said", "wait"), [(0, 0.0), (0.0, 0.0), (7, 7.0), (100.5, 100.5), (-3, 0.0)])
@pytest.mark.parametrize("waits", [0.5, [9.0]])
def test_a_retry_after_is_honoured_as_it_is_also_over_the_cap(said: float, wait: float, waits: Any) -> None:
    assert backoff_s(a_tool(retry=Retry(backoff_s=waits, most_s=1.0)), 0, "c", 1, said) == wait


@pytest.mark.parametrize("said", [math.nan, True, "30", [30]], ids=range(4))
def test_a_retry_after_that_is_no_number_says_nothing(said: Any) -> None:
    tool = a_tool(retry=Retry(backoff_s=1.0))
    assert backoff_s(tool, 0, "c", 1, said) == backoff_s(tool, 0, "c", 1, None)


@pytest.mark.parametrize(
    ("said", "wait"), [(math.inf, 1e9), (10**5000, 1e9), (2e9, 1e9), (-math.inf, 0.0), (-(10**5000), 0.0)], ids=range(5)
)
def test_a_retry_after_without_end_is_the_longest_wait(said: Any, wait: float) -> None:
    assert backoff_s(a_tool(), 0, "c", 1, said) == wait


@given(
    base=st.floats(0, 1e6), most=st.floats(0, 1e6), seed=st.integers(), call_id=st.text(max_size=20), tries=st.integers(1, 10**6)
)
def test_a_wait_lies_in_the_upper_half_of_what_it_may_be(base: float, most: float, seed: int, call_id: str, tries: int) -> None:
    full = min(most, base * 2.0 ** min(tries - 1, 60))
    assert full / 2 <= backoff_s(a_tool(retry=Retry(backoff_s=base, most_s=most)), seed, call_id, tries, None) <= full
