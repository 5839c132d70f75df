"""The lab's API as its grader uses it: fresh values each time, bodies counted, names rebound while it is loaded."""

from __future__ import annotations

import asyncio
import copy
import importlib.util
import inspect
import random
import sys
from collections import Counter, OrderedDict, UserDict
from collections.abc import Callable
from enum import Enum
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab_world import (
    CASES,
    GOOD,
    KEYS,
    NO_INT,
    ODD,
    Evil,
    Unreadable,
    expected_rows,
    fresh,
    giving,
    install,
    kind,
    odd,
    order,
    raising,
    ran,
    result,
)

from fsm_agent import adapter as lab
from fsm_agent import diagrams
from fsm_agent.testing import paths

__all__ = ["fresh"]


# -- the data and the tools ------------------------------------------------------------------------------------------


def test_the_data_are_those_of_the_lab() -> None:
    assert lab.REGIONS == {"seoul": ["gasan", "guro", "mapo"], "busan": ["sasang", "haeundae"], "jeju": ["hallim"]}
    assert lab.STOCK == {
        "A-1001": {"gasan": 4, "guro": 2, "mapo": 7, "sasang": 1},
        "A-1002": {"guro": 5, "haeundae": 3},
        "B-2001": {"gasan": 9, "guro": 1, "mapo": 9, "hallim": 2},
        "B-2002": {"sasang": 6, "haeundae": 6},
    }
    assert (lab.MAX_ROWS, lab.MAX_ATTEMPTS, lab.FALLBACK_REGION) == (2, 3, "seoul")
    assert lab.REPAIRS == {"args:allowed:region": "region", "args:range:limit": "limit", "result:too_big": "tool"}


@pytest.mark.parametrize("name", ["stock_lookup", "legacy_stock"])
def test_an_entry_of_the_table_has_the_form_of_the_lab(name: str) -> None:
    assert lab.TOOLS[name] == {
        "fn": getattr(lab, name),
        "args": {
            "sku": {"type": "str", "required": True},
            "region": {"type": "str", "required": True, "allowed": list(lab.REGIONS)},
            "limit": {"type": "int", "required": True, "min": 1, "max": lab.MAX_ROWS},
        },
        "returns": {
            "sku": {"type": "str"},
            "rows": {
                "type": "list",
                "max_len": lab.MAX_ROWS,
                "item": {"warehouse": {"type": "str"}, "count": {"type": "int", "min": 0}},
            },
        },
    }
    assert list(inspect.signature(lab.TOOLS[name]["fn"]).parameters) == ["sku", "region", "limit"]
    assert list(lab.TOOLS) == ["stock_lookup", "legacy_stock"]


def test_the_two_entries_share_no_part_of_their_contracts() -> None:
    lab.TOOLS["stock_lookup"]["args"]["limit"]["max"] = 9
    lab.TOOLS["stock_lookup"]["returns"]["rows"]["item"]["count"]["min"] = 9

    assert lab.TOOLS["legacy_stock"]["args"]["limit"]["max"] == 2
    assert lab.TOOLS["legacy_stock"]["returns"]["rows"]["item"]["count"]["min"] == 0


@pytest.mark.parametrize("sku", ["A-1001", "A-1002", "B-2001", "B-2002", "Z-0"])
@pytest.mark.parametrize("region", ["seoul", "busan", "jeju"])
@pytest.mark.parametrize("limit", [-1, 0, 1, 2, 3, 99])
def test_rows_come_by_count_down_then_by_name_and_each_body_counts_itself(sku: str, region: str, limit: int) -> None:
    wanted = expected_rows(sku, region)

    assert lab.stock_lookup(sku, region, limit) == {"sku": sku, "rows": wanted[: max(0, limit)]}
    assert lab.legacy_stock(sku=sku, region=region, limit=limit) == {"sku": sku, "rows": wanted}
    assert lab.CALLS == {"stock_lookup": 1, "legacy_stock": 1}


def test_equal_counts_are_ordered_by_name() -> None:
    assert [row["warehouse"] for row in lab.legacy_stock("B-2001", "seoul", 1)["rows"]] == ["gasan", "mapo", "guro"]
    assert [row["warehouse"] for row in lab.stock_lookup("B-2002", "busan", 2)["rows"]] == ["haeundae", "sasang"]


def test_a_body_counts_itself_before_it_can_fail() -> None:
    with pytest.raises(KeyError):
        lab.stock_lookup("A-1001", "nowhere", 1)
    assert lab.CALLS["stock_lookup"] == 1


@given(
    st.dictionaries(st.text(max_size=3), st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3)), max_size=4),
    st.data(),
)
def test_bodies_read_stock_and_regions_when_they_run(stock: dict[str, Any], data: st.DataObject) -> None:
    lab.STOCK.clear()
    lab.STOCK.update(stock)
    lab.REGIONS["here"] = data.draw(st.lists(st.sampled_from("abcdef"), unique=True))
    sku, limit = data.draw(st.sampled_from([*stock, "Z"])), data.draw(st.integers(0, 4))

    assert lab.stock_lookup(sku, "here", limit)["rows"] == expected_rows(sku, "here")[:limit]
    assert lab.legacy_stock(sku, "here", limit)["rows"] == expected_rows(sku, "here")


@pytest.mark.parametrize(
    "reset", [lambda: lab.CALLS.clear(), lambda: setattr(lab, "CALLS", Counter())], ids=["cleared", "rebound"]
)
def test_calls_may_be_reset_by_who_counts(reset: Callable[[], None]) -> None:
    lab.call_tool("stock_lookup", GOOD)
    reset()
    lab.call_tool("legacy_stock", GOOD)

    assert lab.CALLS == {"legacy_stock": 1}


# -- arguments -------------------------------------------------------------------------------------------------------


@given(sku=st.text(), region=st.sampled_from(["seoul", "busan", "jeju"]), limit=st.integers(1, 2))
def test_arguments_that_keep_the_contract_have_no_reason(sku: str, region: str, limit: int) -> None:
    args = {"limit": limit, "sku": sku, "region": region}

    assert lab.validate_args("stock_lookup", args) == lab.validate_args("legacy_stock", args) == ""


@pytest.mark.parametrize("tool", ["stock_lookup", "legacy_stock"])
@pytest.mark.parametrize("name", ["sku", "region", "limit"])
def test_one_argument_missing_or_of_another_name(tool: str, name: str) -> None:
    rest = {key: value for key, value in GOOD.items() if key != name}

    assert lab.validate_args(tool, rest) == f"missing:{name}"
    assert lab.validate_args(tool, order(**{f"{name}s": 1})) == f"extra:{name}s"
    assert lab.validate_args(tool, {**rest, f"{name}s": GOOD[name]}) == f"missing:{name}"


NO_TEXT = [None, True, 0, 2.0, [], {}, ("A-1001",), b"A-1001", object(), float("nan"), 10**5000, Evil()]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("sku", value) for value in NO_TEXT),
        *(("region", value) for value in NO_TEXT),
        *(("limit", value) for value in NO_INT),
    ],
    ids=kind,
)
def test_one_argument_of_another_type(name: str, value: Any) -> None:
    assert lab.validate_args("stock_lookup", order(**{name: value})) == f"type:{name}"


@given(st.text().filter(lambda text: text not in ("seoul", "busan", "jeju")))
def test_one_region_that_is_not_allowed(region: str) -> None:
    assert lab.validate_args("stock_lookup", order(region=region)) == "allowed:region"


@given(st.integers().filter(lambda number: not 1 <= number <= 2))
def test_one_limit_out_of_range(limit: int) -> None:
    assert lab.validate_args("stock_lookup", order(limit=limit)) == "range:limit"


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ({}, "missing:sku"),
        ({"skus": 1}, "missing:sku"),
        ({"sku": 1, "region": "x"}, "missing:limit"),
        (order(sku=1, extra=1), "extra:extra"),
        (order(sku=1, region="x", limit=9), "type:sku"),
        (order(region=1, limit="9"), "type:region"),
        (order(region="x", limit="9"), "allowed:region"),
        (order(region="x", limit=9), "allowed:region"),
        ({1: 2, **GOOD}, "extra:1"),
        ({None: 2, **GOOD}, "extra:None"),
    ],
)
def test_of_several_faults_the_first_is_told(args: dict[Any, Any], reason: str) -> None:
    assert lab.validate_args("stock_lookup", args) == reason
    assert lab.validate_args("stock_lookup", dict(reversed(args.items()))) == reason


class Named(Enum):
    LOOKUP = "stock_lookup"


class NamedText(str, Enum):  # noqa: UP042
    LOOKUP = "stock_lookup"


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize("name", [NamedText.LOOKUP, Text("stock_lookup")], ids=["enum", "subclass"])
def test_a_text_of_a_class_of_its_own_names_what_its_text_names_at_every_door(name: Any) -> None:
    assert lab.validate_args(name, GOOD) == lab.validate_result(name, result(1)) == ""
    assert lab.validate_args(name, {**GOOD, "limit": 9}) == "range:limit"
    assert lab.call_tool(name, GOOD)["ok"]
    assert lab.cache_key(name, GOOD) == lab.cache_key("stock_lookup", GOOD)
    assert lab.handle({**GOOD, "prefer": name})["tool_runs"] == 0
    assert lab.fetch({"tool": name, "args": GOOD})["result"]["ok"]
    assert lab.validate_args(Named.LOOKUP, GOOD) == "unknown_tool"


@odd
def test_what_names_no_tool_is_unknown(value: Any) -> None:
    assert lab.validate_args(value, GOOD) == "unknown_tool"
    assert lab.call_tool(value, GOOD) == {"ok": False, "value": None, "error": "args:unknown_tool"}


@pytest.mark.parametrize(
    "args", [*(value for value in ODD.values() if not isinstance(value, dict)), Unreadable()], ids=kind
)
def test_arguments_that_are_no_mapping(args: Any) -> None:
    assert lab.validate_args("stock_lookup", args) == "type:args"
    assert lab.call_tool("stock_lookup", args) == {"ok": False, "value": None, "error": "args:type:args"}
    assert ran() == 0


@pytest.mark.parametrize(
    "kind", [dict, OrderedDict, UserDict, MappingProxyType, lambda one: type("D", (dict,), {})(one)]
)
def test_any_mapping_will_do(kind: Any) -> None:
    assert lab.validate_args("stock_lookup", kind(GOOD)) == ""
    assert lab.call_tool("stock_lookup", kind(GOOD)) == lab.call_tool("stock_lookup", GOOD)
    assert lab.validate_args("stock_lookup", kind(order(limit=3))) == "range:limit"


def test_what_is_measured_is_what_the_body_gets() -> None:
    class TwoFaced(dict[str, Any]):
        def __getitem__(self, key: str) -> Any:
            return GOOD[key]

    got: list[Any] = []
    install(lambda **args: got.append(args) or result(1))

    assert lab.call_tool("stock_lookup", TwoFaced(order(limit=99)))["error"] in ("", "args:range:limit")
    assert all(args == GOOD for args in got)


# -- results ---------------------------------------------------------------------------------------------------------


@given(st.text(), st.lists(st.integers(min_value=0), min_size=1, max_size=2))
def test_results_that_keep_the_contract_have_no_reason(sku: str, counts: list[int]) -> None:
    assert lab.validate_result("stock_lookup", result(*counts, sku=sku)) == ""


ROW = {"warehouse": "w", "count": 1}


@pytest.mark.parametrize(
    "value",
    [
        *ODD.values(),
        {},
        {"sku": "x"},
        {"rows": [ROW]},
        {"sku": "x", "rows": [ROW], "more": 1},
        {"sku": 1, "rows": [ROW]},
        {"sku": None, "rows": [ROW]},
        {"sku": "x", "rows": None},
        {"sku": "x", "rows": (ROW,)},
        {"sku": "x", "rows": {}},
        {"sku": "x", "rows": "w"},
        {"sku": "x", "rows": [None]},
        {"sku": "x", "rows": [[]]},
        {"sku": "x", "rows": [{}]},
        {"sku": "x", "rows": [{"warehouse": "w"}]},
        {"sku": "x", "rows": [{"count": 1}]},
        {"sku": "x", "rows": [{**ROW, "more": 1}]},
        {"sku": "x", "rows": [{**ROW, "warehouse": 1}]},
        *({"sku": "x", "rows": [ROW, {**ROW, "count": count}]} for count in NO_INT),
        {"sku": 1, "rows": []},
        {"sku": 1, "rows": [ROW] * 3},
        {"sku": "x", "rows": [ROW, ROW, None]},
    ],
    ids=kind,
)
def test_a_result_of_another_shape(value: Any) -> None:
    assert lab.validate_result("stock_lookup", value) == "shape"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (result(), "empty"),
        (result(1, 2, 3), "too_big"),
        (result(*range(100)), "too_big"),
        (result(-1, 2, 3), "too_big"),
        (result(-1), "range"),
        (result(1, -(10**5000)), "range"),
        (result(0, 10**5000), ""),
    ],
    ids=kind,
)
def test_a_result_without_rows_with_too_many_or_out_of_range(value: Any, reason: str) -> None:
    assert lab.validate_result("stock_lookup", value) == lab.validate_result("legacy_stock", value) == reason


def test_the_result_of_no_tool_is_told_as_such() -> None:
    assert lab.validate_result("nothing", result(1)) == "unknown_tool"


# -- the door --------------------------------------------------------------------------------------------------------


@given(
    st.sampled_from(["A-1001", "A-1002", "B-2001", "B-2002"]),
    st.sampled_from(["seoul", "busan", "jeju"]),
    st.integers(1, 2),
)
def test_a_call_that_keeps_the_contract_runs_its_body_once(sku: str, region: str, limit: int) -> None:
    lab.CACHE.clear()
    lab.CALLS.clear()
    args = {"sku": sku, "region": region, "limit": limit}
    rows = expected_rows(sku, region)[:limit]

    came = lab.call_tool("stock_lookup", args)

    assert came == (
        {"ok": True, "value": {"sku": sku, "rows": rows}, "error": ""}
        if rows
        else {"ok": False, "value": None, "error": "result:empty"}
    )
    assert lab.CALLS == {"stock_lookup": 1}
    assert args == {"sku": sku, "region": region, "limit": limit}


@pytest.mark.parametrize("tool", ["stock_lookup", "legacy_stock"])
@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ({}, "missing:sku"),
        (order(more=1), "extra:more"),
        (order(sku=[]), "type:sku"),
        (order(limit=True), "type:limit"),
        (order(region="x"), "allowed:region"),
        (order(limit=0), "range:limit"),
        (order(limit=3), "range:limit"),
    ],
)
def test_bad_arguments_never_reach_the_body(tool: str, args: dict[str, Any], reason: str) -> None:
    assert lab.call_tool(tool, args) == {"ok": False, "value": None, "error": f"args:{reason}"}
    assert ran() == 0


@odd
@pytest.mark.parametrize("name", ["sku", "region", "limit"])
def test_no_value_of_an_argument_makes_the_door_raise(name: str, value: Any) -> None:
    came = lab.call_tool("stock_lookup", order(**{name: value}))

    assert not came["ok"]
    assert came["error"].startswith(("args:type:", "args:allowed:", "args:range:", "result:empty"))
    assert ran() == (came["error"] == "result:empty")


class OfItsOwn(BaseException):
    pass


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


FAILURES = [
    ValueError("x"),
    TypeError("x"),
    KeyError("x"),
    TimeoutError(),
    ConnectionError(),
    ZeroDivisionError(),
    MemoryError(),
    RecursionError(),
    StopIteration(1),
    StopAsyncIteration(),
    AssertionError(),
    OSError(5, "x"),
    UnicodeError(),
    Unprintable(),
    ExceptionGroup("x", [ValueError()]),
    NotImplementedError(),
    asyncio.CancelledError(),
    GeneratorExit(),
    OfItsOwn(),
    UnicodeEncodeError("utf-8", "\ud800", 0, 1, "\ud800"),
]
failures = pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)


@failures
def test_whatever_a_body_raises_is_a_value(error: BaseException) -> None:
    install(raising(error))
    word = f"raised:{type(error).__name__}"

    assert lab.call_tool("stock_lookup", GOOD) == {"ok": False, "value": None, "error": word}
    answer = lab.handle(GOOD)
    assert (answer["ok"], answer["errors"], answer["attempts"], answer["tool_runs"]) == (False, [word], 1, 1)
    assert lab.CACHE == {}


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_is_nobodys_value(error: type[BaseException]) -> None:
    install(raising(error()))

    with pytest.raises(error):
        lab.call_tool("stock_lookup", GOOD)
    with pytest.raises(error):
        lab.handle(GOOD)
    install(lab.stock_lookup)
    assert lab.handle(GOOD)["ok"]


@pytest.mark.parametrize("value", [*ODD.values(), Unreadable(), iter([1]), (n for n in (1,))], ids=kind)
def test_whatever_a_body_returns_is_measured(value: Any) -> None:
    install(giving(value))

    assert lab.call_tool("stock_lookup", GOOD) == {"ok": False, "value": None, "error": "result:shape"}
    assert lab.handle(GOOD)["errors"] == ["result:shape"]
    assert lab.CACHE == {}


@pytest.mark.parametrize(
    ("value", "reason"), [(result(), "empty"), (result(1, 2, 3), "too_big"), (result(-1), "range")]
)
def test_a_result_out_of_contract_is_no_success(value: Any, reason: str) -> None:
    install(giving(value), "legacy_stock")

    assert lab.call_tool("legacy_stock", GOOD) == {"ok": False, "value": None, "error": f"result:{reason}"}


def test_a_body_that_calls_itself_without_end_is_a_failure() -> None:
    def body(**args: Any) -> Any:
        return body(**args)

    install(body)
    assert lab.call_tool("stock_lookup", GOOD)["error"] == "raised:RecursionError"
    assert sys.getrecursionlimit() >= 1000


def test_what_a_body_does_to_its_arguments_reaches_nobody() -> None:
    def body(**args: Any) -> Any:
        args["sku"] = args["region"] = None
        args.clear()
        return result(1)

    install(body)
    args = order()
    lab.call_tool("stock_lookup", args)
    answer = lab.handle(args)

    assert args == GOOD
    assert answer["calls"] == [{"tool": "stock_lookup", "args": GOOD}]


def test_nested_arguments_are_the_bodys_own_copy() -> None:
    lab.TOOLS["sum"] = {
        "fn": lambda numbers: {"total": sum(numbers.pop() for _ in range(2))},
        "args": {"numbers": {"type": "list", "item": {"type": "int"}}},
        "returns": {"total": {"type": "int"}},
    }
    given_order = {"prefer": "sum", "numbers": [1, 2, 3]}
    kept = copy.deepcopy(given_order)

    assert lab.call_tool("sum", {"numbers": given_order["numbers"]})["value"] == {"total": 5}
    lab.CACHE.clear()
    answer = lab.handle(given_order)
    answer["calls"][0]["args"]["numbers"].clear()

    assert given_order == kept


@pytest.mark.parametrize("fn", [None, 5, "stock_lookup", []])
def test_an_entry_without_a_function_is_measured_and_fails_when_it_is_called(fn: Any) -> None:
    install(fn)

    assert lab.validate_args("stock_lookup", order(limit=3)) == "range:limit"
    assert lab.validate_result("stock_lookup", result()) == "empty"
    assert lab.call_tool("stock_lookup", GOOD)["error"] == "raised:TypeError"
    assert (lab.handle(GOOD)["errors"], lab.handle(GOOD)["tool_runs"]) == (["raised:TypeError"], 0)


def test_a_body_that_cannot_take_the_arguments_did_not_run() -> None:
    install(lambda sku: result(1))

    assert lab.call_tool("stock_lookup", GOOD)["error"] == "raised:TypeError"
    assert lab.handle(GOOD)["tool_runs"] == 0


def test_a_coroutine_function_is_a_body_too_also_inside_a_running_loop() -> None:
    async def body(sku: str, region: str, limit: int) -> Any:
        await asyncio.sleep(0)
        return result(limit)

    async def inside() -> Any:
        return lab.call_tool("stock_lookup", order(limit=1)), lab.handle(GOOD)

    install(body)
    called, answer = asyncio.run(inside())
    assert called["value"] == result(1)
    assert (answer["ok"], answer["rows"], answer["tool_runs"]) == (True, result(2)["rows"], 1)


# -- memory ----------------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def typed(value: Any) -> Any:
    """A form in which two values are equal when they are the same call: by type and value, the order of keys aside."""
    if isinstance(value, dict):
        return ("dict", frozenset((key, typed(item)) for key, item in value.items()))
    if isinstance(value, list):
        return ("list", tuple(typed(item) for item in value))
    return (type(value), repr(value))


@given(JSON, JSON)
def test_two_calls_have_one_key_only_when_they_are_the_same(left: Any, right: Any) -> None:
    same = typed(left) == typed(right)

    assert (lab.cache_key("t", {"a": left}) == lab.cache_key("t", {"a": right})) is same
    assert (lab.cache_key("t", left) == lab.cache_key("t", right)) is same


@given(st.dictionaries(st.text(max_size=3), JSON, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_keys_makes_no_other_call(args: dict[str, Any], shuffle: random.Random) -> None:
    items = list(args.items())
    shuffle.shuffle(items)

    assert lab.cache_key("t", dict(items)) == lab.cache_key("t", args)
    assert lab.cache_key("u", args) != lab.cache_key("t", args)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"a": 1}, {"a": True}),
        ({"a": 1}, {"a": 1.0}),
        ({"a": 1}, {"a": "1"}),
        ({"a": None}, {"a": "None"}),
        ({"a": None}, {}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": {"b": 1}}, {"a": {"b": 2}}),
        ({"a": {"b": 1}}, {"a": {"c": 1}}),
        ({"a": [[1], 2]}, {"a": [[1, 2]]}),
        ({"a": 1, "b": 2}, {"a": 2, "b": 1}),
        ({"a": "x,b:y"}, {"a": "x", "b": "y"}),
        ({"a": "'"}, {"a": '"'}),
        ({"a": (1,)}, {"a": [1]}),
        ({"a": 0.0}, {"a": -0.0}),
        ({"a": "é"}, {"a": "e\u0301"}),
        ({1: 1}, {"1": 1}),
        ({"a": 10**5000}, {"a": 10**5000 + 1}),
        ({"a": b"x"}, {"a": "x"}),
        (None, {}),
        ([], {}),
    ],
)
def test_different_calls_have_different_keys(left: Any, right: Any) -> None:
    assert lab.cache_key("t", left) != lab.cache_key("t", right)


@odd
def test_every_call_has_a_key(value: Any) -> None:
    assert all(isinstance(lab.cache_key(name, args), str) for name, args in [("t", {"a": value}), (value, value)])


def test_a_hit_does_not_run_the_body() -> None:
    first = lab.call_tool("stock_lookup", GOOD)
    again = lab.call_tool("stock_lookup", dict(reversed(GOOD.items())))

    assert again == first
    assert again is not first
    assert ran() == 1
    assert list(lab.CACHE) == [lab.cache_key("stock_lookup", GOOD)]
    assert lab.CACHE[lab.cache_key("stock_lookup", GOOD)] == first["value"]


def test_another_tool_or_value_is_another_call() -> None:
    for tool, args in [("stock_lookup", GOOD), ("stock_lookup", order(limit=1)), ("legacy_stock", order(sku="A-1002"))]:
        lab.call_tool(tool, args)

    assert (ran(), len(lab.CACHE)) == (3, 3)


@pytest.mark.parametrize("args", [order(region="x"), order(limit=9), order(sku="Z"), {}, None])
def test_a_failure_is_not_remembered(args: Any) -> None:
    first = lab.call_tool("stock_lookup", args)

    assert lab.call_tool("stock_lookup", args) == first
    assert not first["ok"]
    assert lab.CACHE == {}


def test_a_failure_that_is_mended_succeeds_the_next_time() -> None:
    install(raising(ValueError()))
    lab.call_tool("stock_lookup", GOOD)
    install(lab.stock_lookup)

    assert lab.call_tool("stock_lookup", GOOD)["ok"]
    assert lab.handle(GOOD)["tool_runs"] == 0


def test_what_a_caller_does_to_a_value_reaches_neither_memory_nor_tool() -> None:
    kept = result(1, 2)
    install(giving(kept))
    for _ in range(3):
        value = lab.call_tool("stock_lookup", GOOD)["value"]
        assert value == result(1, 2)
        value["rows"][0]["count"] = 99
        value["rows"].clear()
        answer = lab.handle(GOOD)
        assert answer["rows"] == result(1, 2)["rows"]
        answer["rows"][0]["count"] = 99
        answer["calls"][0]["args"].clear()
    assert kept == result(1, 2)


def test_what_a_tool_does_to_its_own_object_later_does_not_reach_memory() -> None:
    kept = result(1)
    install(giving(kept))
    lab.call_tool("stock_lookup", GOOD)
    lab.handle(order(limit=1))
    kept["rows"][0]["count"] = 99
    kept["rows"].append("broken")

    assert lab.call_tool("stock_lookup", GOOD)["value"] == result(1)
    assert lab.handle(order(limit=1))["rows"] == result(1)["rows"]


def test_the_calls_of_one_answer_share_no_arguments() -> None:
    answer = lab.handle(order(prefer="legacy_stock"))
    assert answer["attempts"] == 2
    answer["calls"][0]["args"].clear()

    assert answer["calls"][1]["args"] == GOOD


def test_an_entry_that_somebody_put_there_is_a_hit() -> None:
    lab.CACHE[lab.cache_key("stock_lookup", GOOD)] = result(77, sku="put")

    assert lab.call_tool("stock_lookup", GOOD) == {"ok": True, "value": result(77, sku="put"), "error": ""}
    assert (lab.handle(GOOD)["rows"], lab.handle(GOOD)["tool_runs"], ran()) == (result(77)["rows"], 0, 0)
    assert lab.handle(GOOD)["attempts"] == len(lab.handle(GOOD)["calls"]) == 1


class Liar:
    """Says that it is of another type."""

    def __init__(self, kind: type) -> None:
        self.kind = kind

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        return self.kind


HOSTILE = [*ODD.values(), *map(Liar, (str, int, list, dict, type(None))), Unreadable(), {"rows": 5}, [1]]


@pytest.mark.parametrize("value", HOSTILE, ids=range(len(HOSTILE)))
def test_no_entry_that_somebody_put_there_makes_a_door_raise(value: Any) -> None:
    lab.CACHE[lab.cache_key("stock_lookup", GOOD)] = value

    for answer in (lab.handle(GOOD), lab.run_naive(GOOD)):
        assert (answer["ok"], type(answer["answer"]), type(answer["rows"]), answer["tool_runs"]) == (True, str, list, 0)
    assert lab.call_tool("stock_lookup", GOOD)["ok"]
    assert ran() == 0


def test_memory_may_be_cleared_or_rebound_at_any_time() -> None:
    lab.handle(GOOD)
    lab.CACHE.clear()
    lab.handle(GOOD)
    lab.CACHE = {}
    lab.handle(GOOD)
    lab.handle(GOOD)

    assert (ran(), len(lab.CACHE)) == (3, 1)


def test_memory_that_is_cleared_while_a_body_runs_is_filled_all_the_same() -> None:
    def body(**args: Any) -> Any:
        lab.CACHE.clear()
        return result(1)

    install(body)
    assert lab.handle(GOOD)["ok"]
    assert len(lab.CACHE) == 1


def test_the_door_and_the_machine_share_one_memory() -> None:
    lab.handle(GOOD)
    lab.call_tool("stock_lookup", GOOD)
    lab.run_naive(GOOD)
    lab.call_tool("stock_lookup", order(limit=1))
    lab.run_naive(order(limit=1))

    assert ran() == 2


def test_bad_arguments_are_refused_before_memory_is_asked() -> None:
    lab.CACHE[lab.cache_key("stock_lookup", order(limit=9))] = result(1)

    assert lab.call_tool("stock_lookup", order(limit=9))["error"] == "args:range:limit"


# -- repair ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reason", ["args:allowed:region", "args:range:limit", "result:too_big", "result:empty", "", "x", None, 5, ["x"]]
)
@pytest.mark.parametrize("attempts", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("fixes", [[], ["region"], ["limit", "tool"], ["region", "limit", "tool"]])
def test_can_repair_is_a_sentence_about_reason_attempts_and_fixes(reason: Any, attempts: int, fixes: list[str]) -> None:
    name = {"args:allowed:region": "region", "args:range:limit": "limit", "result:too_big": "tool"}.get(str(reason))
    wanted = name is not None and attempts < 3
    state = {"errors": ["result:too_big", reason], "attempts": attempts, "fixes": fixes}

    assert lab.can_repair(state) is (wanted and name not in fixes)
    assert lab.can_repair(MappingProxyType(state)) is lab.can_repair(state)
    assert lab.can_repair(reason, attempts) is wanted
    assert state == {"errors": ["result:too_big", reason], "attempts": attempts, "fixes": fixes}


@pytest.mark.parametrize(
    ("state", "wanted"),
    [
        ({}, False),
        ({"errors": []}, False),
        ({"errors": ["args:range:limit"]}, True),
        ({"errors": ("args:range:limit",), "attempts": None, "fixes": None}, True),
        ({"attempts": 1, "fixes": []}, False),
        ({"errors": 5}, False),
        ({"errors": ["args:range:limit"], "attempts": "2"}, False),
        ({"errors": ["args:range:limit"], "fixes": 5}, False),
        ({"errors": ["args:range:limit"], "attempts": float("nan")}, False),
        ({"errors": [[]]}, False),
        ({"errors": Evil()}, False),
        (Unreadable(), False),
        (None, False),
    ],
)
def test_a_state_that_says_little_or_nonsense(state: Any, wanted: bool) -> None:
    assert lab.can_repair(state) is wanted


def test_can_repair_reads_repairs_and_attempts_as_they_are_bound() -> None:
    lab.REPAIRS = {"result:empty": "region", "result:shape": "unheard of"}
    assert lab.can_repair("result:empty", 2)
    assert not lab.can_repair("args:range:limit", 1)
    assert not lab.can_repair("result:shape", 1)
    lab.MAX_ATTEMPTS = 2
    assert not lab.can_repair("result:empty", 2)
    lab.REPAIRS["args:range:limit"] = "limit"
    assert lab.can_repair({"errors": ["args:range:limit"], "attempts": 1})


def test_can_repair_takes_a_reason_and_attempts_by_name() -> None:
    assert lab.can_repair(reason="result:too_big", attempts=1)
    assert not lab.can_repair(reason="result:too_big", attempts=3)
    assert not lab.can_repair(reason="result:empty", attempts=1)
    assert lab.can_repair(state={"errors": ["result:too_big"]})
    assert not lab.can_repair()


# -- the naive run ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("given_order", "errors", "fixes", "attempts", "runs", "ok"), CASES)
def test_the_naive_run_tries_once_and_a_failure_is_a_path(
    given_order: dict[str, Any], errors: list[str], fixes: list[str], attempts: int, runs: int, ok: bool
) -> None:
    answer = lab.run_naive(given_order)

    assert list(answer) == [*KEYS, "path"]
    assert answer["path"] == ["pick", "fetch", "giveup" if errors else "reply"]
    assert (answer["ok"], answer["errors"], answer["fixes"], answer["attempts"]) == (not errors, errors[:1], [], 1)
    assert answer["tool_runs"] == ran()


def test_the_naive_run_of_no_order_gives_up_where_it_picks() -> None:
    assert lab.run_naive(None)["path"] == ["pick", "giveup"]


# -- the lab's text, step by step ------------------------------------------------------------------------------------


def walk(given_order: Any, repairs: bool) -> dict[str, Any]:
    """Walk the lab's steps along the rows of its machine, as its text does."""
    state: dict[str, Any] = {"order": given_order}
    state.update(lab.pick(state))
    while state.get("ok") is None:
        if "result" not in state and state.get("errors"):
            state.update(lab.giveup(state))
            break
        state.update(lab.fetch(state))
        if state["result"]["ok"]:
            state.update(lab.reply(state))
        elif repairs and lab.can_repair(state):
            before = (state["tool"], state["args"])
            state.update(lab.repair(state))
            if (state["tool"], state["args"]) == before:
                state.update(lab.giveup(state))
        else:
            state.update(lab.giveup(state))
    return state


@pytest.mark.parametrize(("given_order", "errors", "fixes", "attempts", "runs", "ok"), CASES)
@pytest.mark.parametrize("repairs", [True, False])
def test_the_steps_walked_by_hand_end_as_the_machine_does(
    given_order: Any, errors: list[str], fixes: list[str], attempts: int, runs: int, ok: bool, repairs: bool
) -> None:
    answer = lab.handle(given_order) if repairs else lab.run_naive(given_order)
    lab.CACHE.clear()
    state = walk(given_order, repairs)

    for key in ("ok", "rows", "errors", "attempts", "calls", "answer"):
        assert state.get(key) == answer[key]
    assert state.get("fixes", []) == answer["fixes"]
    if not repairs:
        assert state["path"] == answer["path"]


def test_the_steps_of_no_order_give_up_with_its_reason() -> None:
    state = walk(None, repairs=True)

    assert (state["ok"], state["errors"], state["path"]) == (False, ["args:type:order"], ["pick", "giveup"])
    assert lab.giveup({})["ok"] is False
    assert lab.repair({"errors": ["result:empty"]}) == {"path": ["repair"]}
    assert lab.repair({}) == {"path": ["repair"]}


def test_the_repair_step_leaves_a_call_that_its_repair_would_not_change_and_lists_no_fix() -> None:
    lab.TOOLS["stock_lookup"]["args"]["region"]["allowed"].remove("seoul")
    state = walk(order(region="seoul"), repairs=True)

    assert (state["errors"], state.get("fixes", []), state["path"]) == (
        ["args:allowed:region"], [], ["pick", "fetch", "repair", "giveup"],
    )  # fmt: skip
    assert lab.handle(order(region="seoul"))["fixes"] == []


@pytest.mark.parametrize(
    "state",
    [{}, {"order": 5}, {"tool": None, "args": None}, {"tool": "zz", "args": 5}, {"result": None}, {"result": {}, "errors": None},
     {"path": None, "errors": None, "fixes": None, "attempts": None, "calls": None}],
    ids=range(7),
)  # fmt: skip
def test_a_step_on_a_state_that_lacks_what_it_needs_gives_a_reason(state: Any) -> None:
    fetched = lab.fetch(state)
    assert (fetched["result"]["ok"], fetched["errors"], fetched["attempts"]) == (False, ["args:unknown_tool"], 1)
    replied = lab.reply(state)
    assert (replied["ok"], replied["rows"], replied["answer"], replied["path"]) == (False, [], "gave up: stopped", ["reply"])
    assert lab.repair({**state, "errors": ["args:allowed:region"], "args": 5}) == {"path": ["repair"]}
    assert lab.pick(state)["tool"] == ""
    assert lab.giveup(state)["answer"] == "gave up: stopped"


def test_steps_return_what_they_change_and_change_nothing() -> None:
    state: Any = {"order": GOOD, "errors": [], "path": []}
    kept = copy.deepcopy(state)
    picked = lab.pick(state)
    fetched = lab.fetch({**state, **picked})

    assert state == kept
    assert set(picked) | set(fetched) <= set(lab.State.__annotations__)


def test_no_step_has_the_name_of_a_key_of_the_state() -> None:
    steps = {"pick", "fetch", "reply", "giveup", "repair"}

    assert steps.isdisjoint(lab.State.__annotations__)
    assert all(callable(getattr(lab, name)) for name in steps)


@pytest.mark.parametrize(
    ("build", "states"),
    [
        (lab.build_naive, ["pick", "fetch", "reply", "giveup"]),
        (lab.build_graph, ["pick", "fetch", "repair", "reply", "giveup"]),
    ],
)
def test_the_builders_return_machines_that_can_be_drawn_and_walked(build: Callable[[], Any], states: list[str]) -> None:
    machine = build()

    assert [state.name for state in machine.table.states] == states
    assert all(name in diagrams.mermaid(machine) for name in states)
    walked = {row.target for row, _ in paths(machine.table)}
    assert walked == set(states) - {"pick"}
    assert set(machine.outcomes("fetch")) == {"called", "failed", "no_progress", "stopped"}


def test_every_name_of_the_lab_is_there() -> None:
    names = (
        "REGIONS STOCK MAX_ROWS CALLS TOOLS stock_lookup legacy_stock validate_args validate_result call_tool CACHE "
        "cache_key run_naive MAX_ATTEMPTS REPAIRS FALLBACK_REGION can_repair handle State pick fetch reply giveup "
        "repair build_naive build_graph"
    )
    assert set(names.split()) == set(lab.__all__)
    assert all(hasattr(lab, name) for name in names.split())


def test_the_module_loaded_anew_has_its_data_as_they_were_and_counts_for_itself() -> None:
    spec = importlib.util.spec_from_file_location("tools", lab.__file__)
    assert spec is not None
    assert spec.loader is not None
    lab.STOCK["A-1001"]["gasan"] = 99
    lab.REGIONS["seoul"].clear()
    lab.REPAIRS.clear()
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)

    assert again.handle(order(region="x"))["rows"] == [
        {"warehouse": "mapo", "count": 7},
        {"warehouse": "gasan", "count": 4},
    ]
    assert (again.CALLS["stock_lookup"], ran(), lab.CACHE) == (1, 0, {})


def test_a_body_may_come_back_through_the_same_door() -> None:
    def body(sku: str, region: str, limit: int) -> Any:
        return (
            lab.legacy_stock(sku, region, limit)
            if limit == 1
            else lab.call_tool("stock_lookup", order(sku=sku, limit=1))["value"]
        )

    install(body)
    assert lab.call_tool("stock_lookup", order(sku="A-1002"))["value"]["rows"] == [{"warehouse": "guro", "count": 5}]
    assert lab.handle(order(sku="A-1002"))["tool_runs"] == 0


class Unseen:
    """An object that nothing but its identity tells apart."""

    def __init__(self, x: int) -> None:
        self.x = x


@pytest.mark.parametrize("rule", [{"type": "any", "required": True}, {"required": True}])
def test_an_object_never_gets_what_was_remembered_of_another(monkeypatch: pytest.MonkeyPatch, rule: dict[str, Any]) -> None:
    tool = {"fn": lambda a: {"sku": str(a.x)}, "args": {"a": rule}, "returns": {"sku": {"type": "str"}}}
    monkeypatch.setitem(lab.TOOLS, "unseen", tool)
    assert [lab.call_tool("unseen", {"a": Unseen(n)})["value"]["sku"] for n in range(30)] == [str(n) for n in range(30)]
    one = Unseen(0)
    for one.x in (1, 2):
        assert lab.call_tool("unseen", {"a": one})["value"] == {"sku": str(one.x)}
