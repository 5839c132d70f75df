"""The desk: orders repaired by reason, over a table that changes, beside a plain loop, and by hosts of their own."""

from __future__ import annotations

import asyncio
import copy
import random
import threading
from collections import OrderedDict, UserDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Any

import attrs
import pytest
from lab_world import (
    CASES,
    GOOD,
    KEYS,
    ODD,
    Evil,
    Unreadable,
    expected_rows,
    fresh,
    giving,
    install,
    kind,
    order,
    raising,
    ran,
    result,
)

from fsm_agent import BreakerPolicy
from fsm_agent import adapter as lab
from fsm_agent.core.errors import BuildError, ContractError, LimitsError
from fsm_agent.core.events import Stopped
from fsm_agent.core.tools import Retry
from fsm_agent.core.values import Verdict
from fsm_agent.desk import ToolDesk
from fsm_agent.host.ports import ToolContext

__all__ = ["fresh"]


# -- orders and their repairs


@pytest.mark.parametrize(("given_order", "errors", "fixes", "attempts", "runs", "ok"), CASES)
def test_an_order_is_repaired_by_its_reasons(
    given_order: dict[str, Any], errors: list[str], fixes: list[str], attempts: int, runs: int, ok: bool
) -> None:
    kept = copy.deepcopy(given_order)
    answer = lab.handle(given_order)

    assert list(answer) == KEYS
    assert (answer["errors"], answer["fixes"], answer["attempts"], answer["tool_runs"], answer["ok"]) == (
        errors,
        fixes,
        attempts,
        runs,
        ok,
    )
    assert len(answer["calls"]) == attempts
    assert ran() == runs
    assert given_order == kept


def test_each_call_made_is_listed_as_it_was_made() -> None:
    answer = lab.handle(order(prefer="legacy_stock", limit=5, note="x"))

    assert answer["calls"] == [
        {"tool": "legacy_stock", "args": order(limit=5)},
        {"tool": "legacy_stock", "args": GOOD},
        {"tool": "stock_lookup", "args": GOOD},
    ]


def test_an_answer_from_memory_ran_no_body_and_still_counts_its_tries() -> None:
    lab.handle(order(region="x"))
    answer = lab.handle(order(region="x"))

    assert (answer["tool_runs"], answer["attempts"], len(answer["calls"]), answer["errors"]) == (
        0,
        2,
        2,
        ["args:allowed:region"],
    )
    assert lab.handle(order(prefer="legacy_stock"))["tool_runs"] == 1


def test_a_repair_is_tried_once_and_then_the_order_is_given_up() -> None:
    lab.TOOLS["stock_lookup"]["args"]["limit"]["max"] = 1
    answer = lab.handle(order(limit=7))
    assert (answer["errors"], answer["fixes"], answer["attempts"]) == (["args:range:limit"] * 2, ["limit"], 2)

    lab.FALLBACK_REGION = "mars"
    answer = lab.handle(order(region="x", limit=1))
    assert (answer["errors"], answer["fixes"], answer["attempts"]) == (["args:allowed:region"] * 2, ["region"], 2)


def test_a_repair_that_would_change_nothing_is_not_tried() -> None:
    install(giving(result(1, 2, 3)))
    answer = lab.handle(GOOD)
    assert (answer["errors"], answer["fixes"], answer["attempts"]) == (["result:too_big"], [], 1)

    lab.TOOLS["stock_lookup"]["args"]["region"]["allowed"] = ["busan"]
    lab.TOOLS["stock_lookup"]["args"]["limit"]["max"] = 1
    for faulty in (order(region="seoul"), order(region="busan", limit=lab.MAX_ROWS)):
        answer = lab.handle(faulty)
        assert (answer["fixes"], answer["attempts"], ran()) == ([], 1, 0)


@pytest.mark.parametrize(
    ("most", "attempts", "fixes"),
    [(0, 1, 0), (-5, 1, 0), (1, 1, 0), (2, 2, 1), (3, 3, 2), (4, 4, 3), (9, 4, 3), (10**5000, 4, 3), (None, 4, 3)],
    ids=kind,
)
def test_tries_are_capped_by_max_attempts_as_it_is_bound(most: Any, attempts: int, fixes: int) -> None:
    lab.MAX_ATTEMPTS = most
    answer = lab.handle(order(prefer="legacy_stock", region="x", limit=9))

    assert (answer["attempts"], len(answer["fixes"]), answer["ok"]) == (attempts, fixes, attempts == 4)
    assert lab.can_repair("result:too_big", 3) is (most is None or most > 3)


class Three(IntEnum):
    THREE = 3


@pytest.mark.parametrize("most", [True, False, 2.5, 2.0, "3", [], {}, float("nan"), float("inf"), object(), Evil()], ids=kind)
def test_attempts_that_are_no_number_end_an_order_with_a_reason_and_repair_nothing(most: Any) -> None:
    lab.MAX_ATTEMPTS = most

    for given_order in (GOOD, order(region="x"), None):
        answer = lab.handle(given_order)
        assert list(answer) == KEYS
        assert (answer["ok"], answer["errors"], answer["attempts"], answer["calls"]) == (False, ["limits:MAX_ATTEMPTS"], 0, [])
        assert "give a whole number from 1, or None" in answer["answer"]
    assert (ran(), lab.CACHE) == (0, {})
    assert not lab.can_repair("args:allowed:region", 1)
    assert not lab.can_repair({"errors": ["args:allowed:region"]})
    assert lab.run_naive(GOOD)["ok"]
    assert lab.call_tool("stock_lookup", GOOD)["ok"]


def test_a_number_of_another_class_is_a_number_of_attempts() -> None:
    lab.MAX_ATTEMPTS = Three.THREE
    assert lab.handle(order(prefer="legacy_stock", region="x", limit=9))["attempts"] == 3


def test_who_wants_the_run_itself_is_told_of_odd_attempts_by_an_error() -> None:
    desk = desk_of(first={"fn": ask_for})
    desk.max_attempts = "3"  # type: ignore[assignment]

    with pytest.raises(LimitsError, match=r"max_attempts is '3'; give a whole number from 1, or None"):
        desk.run({"n": 1})
    assert desk.run({"n": 1}, naive=True).done
    assert asyncio.run(desk.ahandle({"n": 1}))["errors"] == ["limits:MAX_ATTEMPTS"]


def test_rebinding_takes_effect_at_once() -> None:
    lab.REPAIRS = {"result:empty": "region"}
    assert lab.handle(order(sku="A-1002", region="jeju"))["rows"] == [{"warehouse": "guro", "count": 5}]
    assert lab.handle(order(region="x"))["fixes"] == []
    lab.REPAIRS["args:allowed:region"] = "region"
    lab.FALLBACK_REGION = "busan"
    assert lab.handle(order(region="x"))["rows"] == [{"warehouse": "sasang", "count": 1}]
    lab.REPAIRS["args:range:limit"] = "limit"
    lab.MAX_ROWS = 1
    assert len(lab.handle(order(limit=7))["rows"]) == 1
    lab.REPAIRS = {}
    assert lab.handle(order(limit=7))["attempts"] == 1
    lab.TOOLS = {"stock_lookup": {"fn": giving({"n": 1}), "args": {}, "returns": {"n": {"type": "int"}}}}
    assert lab.call_tool("stock_lookup", {})["value"] == {"n": 1}
    assert lab.validate_args("legacy_stock", GOOD) == "unknown_tool"


@pytest.mark.parametrize("repairs", [None, 5, [], "region"])
def test_repairs_that_are_no_mapping_repair_nothing(repairs: Any) -> None:
    lab.REPAIRS = repairs

    assert lab.handle(order(region="x"))["errors"] == ["args:allowed:region"]
    assert not lab.can_repair("args:allowed:region", 1)


class Raising(dict[Any, Any]):
    def _raise(self, *args: Any) -> Any:
        raise RuntimeError("no")

    get = __getitem__ = __iter__ = __len__ = __contains__ = keys = items = values = __bool__ = __eq__ = _raise
    __hash__ = None


class Unhashable(str):
    def __hash__(self) -> int:
        raise RuntimeError("no")


@pytest.mark.parametrize("repairs", [Raising(lab.REPAIRS), Unreadable(), {"result:too_big": Unhashable("x")}], ids=range(3))
def test_repairs_that_raise_when_they_are_read_repair_nothing(repairs: Any) -> None:
    lab.REPAIRS = repairs

    assert lab.handle(order(prefer="legacy_stock"))["errors"] == ["result:too_big"]
    assert not lab.can_repair("result:too_big", 1)
    desk = attrs.evolve(desk_of(first={"fn": ask_for}), fixes=Raising())
    assert desk.handle({"n": 99})["errors"] == ["args:range:n"]
    assert not desk.can_repair("args:range:n", 1)


@pytest.mark.parametrize("name", ["TOOLS", "CACHE"])
@pytest.mark.parametrize("bound", [None, 5, [], Raising()], ids=kind)
def test_a_table_or_memory_that_is_none_or_raises_ends_in_an_answer(name: str, bound: Any) -> None:
    setattr(lab, name, bound)
    answers = [lab.handle(GOOD), lab.handle(GOOD), lab.run_naive(GOOD)]

    assert [answer["ok"] for answer in answers] == [name == "CACHE"] * 3
    assert answers[0]["errors"] == ([] if name == "CACHE" else ["args:unknown_tool"])
    assert lab.call_tool("stock_lookup", GOOD)["error"] == ("" if name == "CACHE" else "args:unknown_tool")


@pytest.mark.parametrize("part", ["entry", "args", "returns"])
def test_an_entry_that_raises_when_it_is_read_is_a_reason(part: str) -> None:
    entry = lab.TOOLS["stock_lookup"]
    lab.TOOLS["t"] = Raising(entry) if part == "entry" else {**entry, part: Raising(entry[part])}

    assert lab.call_tool("t", GOOD)["error"]
    assert lab.handle(order(prefer="t"))["errors"]
    assert lab.validate_args("t", GOOD) or part == "returns"
    assert lab.validate_result("t", result(1))


def breaking(**policy: Any) -> tuple[ToolDesk, list[int]]:
    """A desk with one tool that fails as long as the list is empty, and has a breaker."""
    works: list[int] = []

    def body() -> int:
        if not works:
            raise ValueError("down")
        return 1

    entry = {"fn": body, "effect": "undeclared", "breaker": BreakerPolicy(**policy)}
    return ToolDesk(tools={"t": entry}, default_tool="t", cache={}), works


def test_a_breaker_that_a_tool_declares_opens_for_orders_and_for_single_calls_alike() -> None:
    desk, works = breaking(failures=2, open_s=1000)
    assert desk.handle({})["errors"] == ["raised:ValueError"]
    assert desk.call_tool("t", {})["error"] == "raised:ValueError"
    works.append(1)

    assert desk.handle({})["errors"] == ["refused:circuit_open"]
    assert desk.call_tool("t", {}) == {"ok": False, "value": None, "error": "refused:circuit_open"}


def test_a_circuit_of_a_desk_closes_again_in_real_time() -> None:
    desk, works = breaking(failures=1, open_s=0.005)
    assert desk.call_tool("t", {})["error"] == "raised:ValueError"
    works.append(1)

    while not desk.call_tool("t", {})["ok"]:
        pass
    assert desk.handle({})["ok"]


def test_a_tool_without_a_breaker_is_called_however_often_it_fails() -> None:
    desk = ToolDesk(tools={"t": {"fn": lambda: 1 / 0, "effect": "undeclared"}}, default_tool="t")

    assert [desk.handle({})["errors"] for _ in range(5)] == [["raised:ZeroDivisionError"]] * 5


# -- the table changes while it is loaded ----------------------------------------------------------------------------


def test_a_function_that_is_replaced_runs_at_once() -> None:
    install(giving(result(5)))
    assert lab.handle(GOOD)["rows"] == result(5)["rows"]
    install(giving(result(6)))
    assert lab.handle(GOOD)["rows"] == result(5)["rows"]
    lab.CACHE.clear()
    assert lab.handle(GOOD)["rows"] == result(6)["rows"]


def test_a_contract_that_is_edited_in_place_counts_at_once() -> None:
    args, returns = lab.TOOLS["legacy_stock"]["args"], lab.TOOLS["legacy_stock"]["returns"]
    args["limit"]["max"] = 5
    assert lab.validate_args("legacy_stock", order(limit=5)) == ""
    args["limit"]["min"] = 3
    assert lab.validate_args("legacy_stock", GOOD) == "range:limit"
    args["region"]["allowed"].append("mars")
    assert lab.validate_args("legacy_stock", order(region="mars", limit=4)) == ""
    args["note"] = {"type": "str", "required": False}
    assert lab.validate_args("legacy_stock", order(limit=4, note="x")) == ""
    del args["note"], args["limit"]
    assert lab.validate_args("legacy_stock", GOOD) == "extra:limit"
    returns["rows"]["max_len"] = 3
    assert lab.validate_result("legacy_stock", result(1, 2, 3)) == ""
    returns["rows"]["item"]["count"]["max"] = 5
    assert lab.validate_result("legacy_stock", result(6)) == "range"
    returns["rows"]["item"] = {"type": "int"}
    assert lab.validate_result("legacy_stock", {"sku": "x", "rows": [1]}) == ""
    lab.TOOLS["legacy_stock"]["returns"] = None
    assert lab.validate_result("legacy_stock", "anything") == ""
    del lab.TOOLS["legacy_stock"]["args"]
    assert lab.validate_args("legacy_stock", {"any": 1}) == ""
    assert lab.validate_args("legacy_stock", None) == "type:args"


def test_other_fields_of_an_entry_count_at_once_too() -> None:
    install(giving(result()))
    assert lab.call_tool("stock_lookup", GOOD)["error"] == "result:empty"
    lab.TOOLS["stock_lookup"]["empty_ok"] = True
    assert lab.call_tool("stock_lookup", GOOD)["value"] == result()
    lab.CACHE.clear()
    lab.TOOLS["stock_lookup"]["empty_ok"] = False
    assert lab.call_tool("stock_lookup", GOOD)["error"] == "result:empty"
    install(giving(result(1)))
    lab.TOOLS["stock_lookup"]["effect"] = "idempotent"
    lab.call_tool("stock_lookup", GOOD)
    assert lab.CACHE == {}


def test_tools_may_be_added_and_removed() -> None:
    lab.TOOLS["new"] = {**lab.TOOLS["stock_lookup"], "fn": giving(result(3))}
    assert lab.handle(order(prefer="new"))["rows"] == result(3)["rows"]
    del lab.TOOLS["new"]
    assert lab.handle(order(prefer="new"))["errors"] == ["args:unknown_tool"]
    saved = lab.TOOLS.pop("stock_lookup")
    assert lab.handle(GOOD)["errors"] == ["args:unknown_tool"]
    lab.TOOLS["stock_lookup"] = saved
    assert lab.handle(GOOD)["ok"]


class Vanishing(dict[str, Any]):
    """Its tool `t` is gone once it has been looked at so often."""

    looks = 0

    def get(self, name: str, default: Any = None) -> Any:
        if name == "t":
            self.looks -= 1
            if self.looks < 0:
                self.pop("t", None)
        return super().get(name, default)


@pytest.mark.parametrize("looks", range(8))
def test_a_tool_that_is_removed_while_an_order_is_under_way_is_unknown_or_was_called(looks: int) -> None:
    desk = desk_of(first={"fn": ask_for})
    tools = Vanishing({**desk.tools, "t": desk.tools["first"]})
    tools.looks = looks
    answer = attrs.evolve(desk, tools=tools).handle({"n": 1, "prefer": "t"})

    assert (answer["errors"], answer["tool_runs"]) in ((["args:unknown_tool"], 0), ([], 1))
    assert answer["attempts"] == 1


@pytest.mark.parametrize("entry", [None, 5, [], "fn", {"effect": "strange"}, {"retry": 5}])
def test_an_entry_that_makes_no_tool_is_unknown(entry: Any) -> None:
    lab.TOOLS["odd"] = {**lab.TOOLS["stock_lookup"], **entry} if isinstance(entry, dict) else entry

    assert lab.validate_args("odd", GOOD) == "unknown_tool"
    assert lab.call_tool("odd", GOOD)["error"] == "args:unknown_tool"
    assert lab.handle(order(prefer="odd"))["errors"] == ["args:unknown_tool"]


def test_any_mapping_is_an_entry() -> None:
    lab.TOOLS["proxy"] = MappingProxyType(
        {**lab.TOOLS["stock_lookup"], "args": {"item": {"type": "str"}}, "fn": giving(result(4))}
    )

    assert lab.handle({"prefer": "proxy", "item": "x"})["rows"] == result(4)["rows"]


OTHER: dict[str, tuple[dict[str, Any], dict[str, Any], list[Any], str]] = {
    "optional": ({"sku": {"type": "str"}, "note": {"type": "str", "required": False}}, {"sku": "x"}, [], ""),
    "one-sided": ({"n": {"type": "int", "min": 3}}, {"n": 10**60}, [], ""),
    "too low": ({"n": {"type": "int", "min": 3}}, {"n": 2}, [], "range:n"),
    "upper only": ({"n": {"type": "int", "max": 3}}, {"n": -(10**60)}, [], ""),
    "too high": ({"n": {"type": "int", "max": 3}}, {"n": 4}, [], "range:n"),
    "float": ({"x": {"type": "float", "min": 0}}, {"x": 0.5}, [], ""),
    "bool": ({"x": {"type": "bool"}}, {"x": 1}, [], "type:x"),
    "allowed ints": ({"n": {"type": "int", "allowed": [1, 2]}}, {"n": 3}, [], "allowed:n"),
    "none at all": ({}, {}, [], ""),
    "a key too many": ({}, {"n": 1}, [], "extra:n"),
    "called prefer": ({"prefer": {"type": "str"}}, {"prefer": "t"}, [], ""),
    "called type": ({"type": {"type": "str"}}, {"type": "x"}, [], ""),
}


@pytest.mark.parametrize(("spec", "args", "_", "reason"), OTHER.values(), ids=OTHER)
def test_contracts_of_arguments_in_other_forms(spec: dict[str, Any], args: dict[str, Any], _: Any, reason: str) -> None:
    lab.TOOLS["t"] = {"fn": giving({"n": 1}), "args": spec, "returns": {"n": {"type": "int"}}}
    word = f"args:{reason}" if reason else ""

    assert lab.validate_args("t", args) == reason
    assert lab.call_tool("t", args)["error"] == word
    answer = lab.handle({**args, "prefer": "t"})
    assert answer["errors"] == ([word] if word and not reason.startswith("extra") else [])


@pytest.mark.parametrize(
    ("returns", "value", "reason", "rows"),
    [
        ({"found": {"type": "list"}}, {"found": [1, "x"]}, "", [1, "x"]),
        ({"found": {"type": "list"}}, {"found": []}, "empty", []),
        ({"found": {"type": "list", "min_len": 0}}, {"found": []}, "", []),
        ({"found": {"type": "list", "max_len": 1}}, {"found": [1, 2]}, "too_big", []),
        ({"n": {"type": "int"}}, {"n": 3}, "", []),
        ({"n": {"type": "int", "max": 2}}, {"n": 3}, "range", []),
        ({"n": {"type": "int", "required": False}}, {}, "", []),
        (
            {"a": {"type": "str"}, "items": {"type": "list", "item": {"type": "str"}}},
            {"a": "x", "items": ["y"]},
            "",
            ["y"],
        ),
        ({"type": "list", "max_len": 2, "item": {"type": "int"}}, [1, 2], "", [1, 2]),
        ({"type": "list", "max_len": 2, "item": {"type": "int"}}, [1, 2, 3], "too_big", []),
        ({"type": "list", "item": {"type": "int"}}, [], "empty", []),
        ({"type": "int", "min": 0}, -1, "range", []),
        ({"type": "str"}, "text", "", []),
        ({"type": "array", "items": {"type": "integer"}, "maxItems": 2}, [1, 2], "", [1, 2]),
        ({"type": "array", "items": {"type": "integer"}, "maxItems": 2}, [1, 2, 3], "too_big", []),
        (None, {"rows": [{"a": [1]}]}, "", [{"a": [1]}]),
        (None, None, "", []),
    ],
)
def test_contracts_of_results_in_other_forms(returns: Any, value: Any, reason: str, rows: list[Any]) -> None:
    lab.TOOLS["t"] = {"fn": giving(value), "args": {}, "returns": returns}
    word = f"result:{reason}" if reason else ""

    assert lab.validate_result("t", value) == reason
    assert lab.call_tool("t", {}) == {"ok": not word, "value": None if word else value, "error": word}
    lab.CACHE.clear()
    answer = lab.handle({"prefer": "t"})
    assert (answer["ok"], answer["rows"], answer["errors"][:1]) == (not word, rows, [word] if word else [])


def test_a_json_schema_that_is_edited_in_place_counts_at_once() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"n": {"type": "integer", "maximum": 2}},
        "required": ["n"],
    }
    lab.TOOLS["t"] = {"fn": lambda n: {"rows": [n]}, "args": schema, "returns": {"type": "object"}}
    assert lab.handle({"prefer": "t", "n": 3})["errors"] == ["args:range:n"]
    schema["properties"]["n"]["maximum"] = 3
    assert lab.handle({"prefer": "t", "n": 3})["rows"] == [3]


def test_a_tool_without_a_contract_gets_the_default_tools_arguments() -> None:
    lab.TOOLS["t"] = {"fn": lambda **args: {"rows": sorted(args)}}

    assert lab.handle(order(prefer="t", more=1))["rows"] == ["limit", "region", "sku"]


# -- orders ----------------------------------------------------------------------------------------------------------


class Tool(StrEnum):
    LEGACY = "legacy_stock"


@pytest.mark.parametrize(
    ("prefer", "tool"),
    [(None, "stock_lookup"), ("", "stock_lookup"), ("legacy_stock", "legacy_stock"), (Tool.LEGACY, "legacy_stock")],
)
def test_prefer_names_the_tool(prefer: Any, tool: str) -> None:
    answer = lab.handle(order(sku="A-1002", prefer=prefer))

    assert answer["calls"] == [{"tool": tool, "args": order(sku="A-1002")}]
    assert type(answer["calls"][0]["tool"]) is str
    assert lab.CALLS[tool] == 1


@pytest.mark.parametrize(
    "prefer", [value for name, value in ODD.items() if name not in ("None", "empty")] + [[], {}, 0, False], ids=kind
)
def test_a_preference_for_no_tool_is_refused(prefer: Any) -> None:
    answer = lab.handle(order(prefer=prefer))

    assert not answer["ok"]
    assert answer["errors"] in (["args:unknown_tool"], ["args:type:order"])
    assert (answer["tool_runs"], ran()) == (0, 0)


@pytest.mark.parametrize("prefer", [5, 0, True, 2.5, [], ["a", (1,)], {"a": 1}, ("stock_lookup",), b"x", 10**5000], ids=kind)
def test_a_preference_that_is_no_name_is_listed_as_it_was_asked_for(prefer: Any) -> None:
    lab.REPAIRS["args:unknown_tool"] = "tool"
    asked, called = lab.handle(order(prefer=prefer))["calls"]

    assert (asked["tool"], type(asked["tool"])) == (prefer, type(prefer))
    assert called["tool"] == "stock_lookup"
    listed = lab.handle(order(prefer=(kept := [1, object()])))["calls"][0]["tool"]
    assert (type(listed), len(kept)) == (str, 2)


def test_an_object_that_only_looks_like_a_tools_name_names_none() -> None:
    looks = type("Looks", (), {"__repr__": lambda self: "stock_lookup"})()

    assert lab.handle(order(prefer=looks))["errors"] == ["args:unknown_tool"]


NO_ORDERS: dict[str, Any] = {
    **{name: value for name, value in ODD.items() if not isinstance(value, dict)}, "unreadable": Unreadable(),
}  # fmt: skip


@pytest.mark.parametrize("handler", [lab.handle, lab.run_naive])
@pytest.mark.parametrize("given_order", NO_ORDERS.values(), ids=NO_ORDERS)
def test_what_is_no_order_ends_with_a_reason(handler: Callable[[Any], dict[str, Any]], given_order: Any) -> None:
    answer = handler(given_order)

    assert (answer["ok"], answer["rows"], answer["errors"], answer["tool_runs"]) == (False, [], ["args:type:order"], 0)
    assert (answer["attempts"], answer["calls"], answer["fixes"]) == (0, [], [])
    assert "args:type:order" in answer["answer"]


@pytest.mark.parametrize("name", ["sku", "region", "limit"])
@pytest.mark.parametrize("value", [*ODD.values(), ...], ids=[*ODD, "absent"])
def test_an_order_with_one_odd_value_ends_with_an_answer(name: str, value: Any) -> None:
    given_order = {key: one for key, one in order(**{name: value}).items() if one is not ...}
    keys = list(given_order)
    answer = lab.handle(given_order)

    assert list(answer) == KEYS
    assert answer["ok"] or answer["errors"]
    assert isinstance(answer["answer"], str)
    assert answer["tool_runs"] == ran()
    assert list(given_order) == keys
    assert value is ... or given_order[name] is value


@pytest.mark.parametrize(
    "extra",
    [{"note": object()}, {"path": [1]}, {"errors": ["x"]}, {5: 6}, {None: None}, {"order": 1, "tool": "x", "args": 1}],
)
def test_extra_keys_of_an_order_are_ignored(extra: dict[Any, Any]) -> None:
    assert lab.handle({**GOOD, **extra})["calls"] == [{"tool": "stock_lookup", "args": GOOD}]


@pytest.mark.parametrize("kind", [OrderedDict, UserDict, MappingProxyType])
def test_any_mapping_is_an_order(kind: Any) -> None:
    assert lab.handle(kind(order(prefer="legacy_stock")))["fixes"] == ["tool"]


# -- answers ---------------------------------------------------------------------------------------------------------

WAREHOUSES = ["gasan", "guro", "mapo", "sasang", "haeundae", "hallim"]


def test_an_answer_tells_what_was_found_and_nothing_else() -> None:
    answer = lab.handle(GOOD)

    assert answer["rows"] == [{"warehouse": "mapo", "count": 7}, {"warehouse": "gasan", "count": 4}]
    assert all(part in answer["answer"] for part in ("A-1001", "mapo 7", "gasan 4"))
    assert "guro" not in answer["answer"]


@pytest.mark.parametrize("returns", [None, {"sku": {"type": "str"}, "rows": {"type": "list", "min_len": 0}}])
def test_an_answer_over_no_rows_never_claims_stock(returns: Any) -> None:
    lab.TOOLS["t"] = {"fn": giving(result(sku="mapo 7")), "args": {}, "returns": returns}
    for answer in (lab.handle({"prefer": "t"}), lab.handle(order(sku="Z")), lab.handle(order(region="jeju"))):
        assert answer["rows"] == []
        assert answer["answer"].startswith(("gave up: ", "no rows: "))


def test_an_answer_over_no_rows_does_not_tell_of_what_lies_beside_them() -> None:
    value = {"rows": [], "notes": ["mapo 7 in stock"], "by": {"mapo": 7}, "total": 0}
    spec = {"rows": {"type": "list", "min_len": 0}, "notes": {"type": "list"}, "by": {"type": "object"}, "total": {"type": "int"}}
    lab.TOOLS["t"] = {"fn": giving(value), "args": {}, "returns": spec}
    answer = lab.handle({"prefer": "t"})

    assert (answer["ok"], answer["rows"], answer["answer"]) == (True, [], "no rows: {'rows': [], 'total': 0}")
    spec["rows"].pop("min_len")
    lab.CACHE.clear()
    assert lab.handle({"prefer": "t"})["errors"] == ["result:empty"]


def test_an_answer_survives_what_python_will_not_print() -> None:
    install(giving(result(10**5000)))
    for _ in range(2):
        answer = lab.handle(GOOD)
        assert (answer["ok"], answer["rows"]) == (True, result(10**5000)["rows"])
        assert answer["answer"].startswith("found: ")


# -- beside a plain loop ---------------------------------------------------------------------------------------------


def plain_reason(args: dict[str, Any]) -> str:
    for name in ("sku", "region", "limit"):
        if name not in args:
            return f"missing:{name}"
    if type(args["sku"]) is not str:
        return "type:sku"
    if type(args["region"]) is not str:
        return "type:region"
    if args["region"] not in lab.REGIONS:
        return "allowed:region"
    if type(args["limit"]) is not int:
        return "type:limit"
    return "" if 1 <= args["limit"] <= 2 else "range:limit"


def plain_try(tool: str, args: dict[str, Any], memory: dict[Any, Any]) -> tuple[str, list[Any], int]:
    if tool not in ("stock_lookup", "legacy_stock"):
        return "args:unknown_tool", [], 0
    if reason := plain_reason(args):
        return f"args:{reason}", [], 0
    known = (tool, tuple(args.values()))
    if known in memory:
        return "", memory[known], 0
    rows = expected_rows(args["sku"], args["region"])
    rows = rows[: args["limit"]] if tool == "stock_lookup" else rows
    if not rows:
        return "result:empty", [], 1
    if len(rows) > 2:
        return "result:too_big", [], 1
    memory[known] = rows
    return "", rows, 1


def plain_handle(given_order: dict[str, Any], memory: dict[Any, Any], repairs: bool = True) -> dict[str, Any]:
    tool = given_order.get("prefer") or "stock_lookup"
    args = {name: given_order[name] for name in ("sku", "region", "limit") if name in given_order}
    errors: list[str] = []
    fixes: list[str] = []
    calls: list[Any] = []
    runs = 0
    while True:
        calls.append({"tool": tool, "args": dict(args)})
        error, rows, ran_now = plain_try(tool, args, memory)
        runs += ran_now
        if not error:
            break
        errors.append(error)
        fix = lab.REPAIRS.get(error, "")
        if not repairs or not fix or fix in fixes or len(calls) >= lab.MAX_ATTEMPTS:
            break
        changed = {
            "region": (tool, {**args, "region": "seoul"}),
            "limit": (tool, {**args, "limit": 2}),
            "tool": ("stock_lookup", args),
        }[fix]
        if changed == (tool, args):
            break
        fixes.append(fix)
        tool, args = changed
    return {
        "ok": not error,
        "rows": rows,
        "errors": errors,
        "fixes": fixes,
        "attempts": len(calls),
        "calls": calls,
        "tool_runs": runs,
    }


def some_order(dice: random.Random) -> dict[str, Any]:
    made: dict[str, Any] = {
        "sku": dice.choice([*lab.STOCK, *lab.STOCK, "Z-9", "", 5, None, "\ud800"]),
        "region": dice.choice([*lab.REGIONS, *lab.REGIONS, "mars", "", None, 1.5]),
        "limit": dice.choice([1, 2, 1, 2, 0, 3, -1, 10**5000, True, 2.0, "2", None]),
    }
    if dice.random() < 0.5:
        made["prefer"] = dice.choice(["stock_lookup", "legacy_stock", "legacy_stock", None, "", "nothing"])
    if dice.random() < 0.1:
        made.pop(dice.choice(["sku", "region", "limit"]))
    if dice.random() < 0.2:
        made["note"] = [dice.random()]
    items = list(made.items())
    dice.shuffle(items)
    return dict(items)


@pytest.mark.parametrize("seed", range(8))
def test_thousands_of_orders_end_as_in_a_plain_loop(seed: int) -> None:
    dice = random.Random(seed)
    memory: dict[Any, Any] = {}
    for _ in range(400):
        if dice.random() < 0.03:
            lab.CACHE.clear()
            memory.clear()
        if dice.random() < 0.03:
            lab.MAX_ATTEMPTS = dice.randint(1, 4)
        given_order = some_order(dice)
        kept = dict(given_order)
        naive = dice.random() < 0.3
        wanted = plain_handle(given_order, memory, not naive)
        before = ran()
        answer = lab.run_naive(given_order) if naive else lab.handle(given_order)

        assert {key: answer[key] for key in wanted} == wanted
        assert answer["tool_runs"] == ran() - before
        assert given_order == kept
        assert all(str(row["count"]) in answer["answer"] for row in answer["rows"])
        assert answer["ok"] or not any(name in answer["answer"] for name in WAREHOUSES)


def test_eight_threads_at_once_lose_no_count_and_no_answer() -> None:
    begin = threading.Barrier(8)

    def work(seed: int) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        dice = random.Random(seed)
        orders = [some_order(dice) for _ in range(150)]
        begin.wait()
        done = []
        for number, one in enumerate(orders):
            done.append((one, lab.handle(one)))
            if number % 40 == 0:
                lab.CACHE.clear()
        return done

    with ThreadPoolExecutor(8) as pool:
        handled = [pair for pairs in pool.map(work, range(8)) for pair in pairs]

    assert sum(answer["tool_runs"] for _, answer in handled) == ran()
    for given_order, answer in handled:
        wanted = plain_handle(given_order, {})
        del wanted["tool_runs"]
        assert {key: answer[key] for key in wanted} == wanted


# -- a desk of one's own ---------------------------------------------------------------------------------------------


def ask_for(n: int) -> dict[str, int]:
    return {"n": n}


def desk_of(**entries: Any) -> ToolDesk:
    """A desk whose tools take a number and give one, unless their entries say otherwise."""
    spec = {"args": {"n": {"type": "int", "max": 9}}, "returns": {"n": {"type": "int"}}}
    return ToolDesk(
        tools={name: {**spec, **entry} for name, entry in entries.items()},
        default_tool=next(iter(entries)),
        repairs={
            "args:range:n": "lower",
            "raised:ValueError": "other",
            "result:shape": "broken",
            "result:range": "none",
        },
        fixes={
            "lower": lambda tool, args: (tool, {"n": 9}),
            "other": lambda tool, args: ("second", args),
            "broken": lambda tool, args: args["nothing"],
        },
    )


def test_a_host_has_the_same_doors_over_its_own_tools() -> None:
    desk = desk_of(first={"fn": ask_for})

    assert desk.handle({"n": 99}) == {
        "ok": True,
        "answer": "no rows: {'n': 9}",
        "rows": [],
        "errors": ["args:range:n"],
        "fixes": ["lower"],
        "attempts": 2,
        "calls": [{"tool": "first", "args": {"n": 99}}, {"tool": "first", "args": {"n": 9}}],
        "tool_runs": 1,
    }
    assert desk.run_naive({"n": 99})["path"] == ["pick", "fetch", "giveup"]
    assert desk.call_tool("first", {"n": 9})["value"] == {"n": 9}
    assert desk.can_repair("args:range:n", 1)
    assert list(desk.cache.values()) == [{"n": 9}]


def test_two_desks_share_nothing() -> None:
    one, two = desk_of(first={"fn": ask_for}), desk_of(first={"fn": lambda n: {"n": -n}})
    one.handle({"n": 1})

    assert two.call_tool("first", {"n": 1})["value"] == {"n": -1}
    assert one.call_tool("first", {"n": 1})["value"] == {"n": 1}


def test_a_repair_may_take_another_tool_and_one_that_fails_has_no_idea() -> None:
    desk = desk_of(first={"fn": raising(ValueError())}, second={"fn": ask_for}, third={"fn": giving("x")})

    answer = desk.handle({"n": 1})
    assert [call["tool"] for call in answer["calls"]] == ["first", "second"]
    assert desk.handle({"n": 1, "prefer": "third"})["errors"] == ["result:shape"]


def test_a_name_without_a_fix_is_no_repair() -> None:
    desk = desk_of(first={"fn": giving({"n": 1}), "returns": {"n": {"type": "int", "min": 2}}})

    assert desk.handle({"n": 1})["fixes"] == []
    assert not desk.can_repair("result:range", 1)


@pytest.mark.parametrize("fix", ["eu", lambda args: ("first", args), None], ids=kind)
def test_a_fix_that_can_change_no_call_is_refused_when_the_desk_is_made(fix: Any) -> None:
    with pytest.raises(BuildError, match=r"^fixes\['lower'\] is .*; give a (plain )?function of tool and arguments$"):
        ToolDesk(tools={"first": ask_for}, default_tool="first", repairs={"args:range:n": "lower"}, fixes={"lower": fix})


@pytest.mark.parametrize("name", ["tools", "repairs", "fixes", "cache", "table", "naive_table"])
def test_what_a_desk_is_built_over_cannot_be_swapped_behind_its_back(name: str) -> None:
    desk = desk_of(first={"fn": ask_for})

    with pytest.raises(attrs.exceptions.FrozenAttributeError):
        setattr(desk, name, {})


@pytest.mark.parametrize(("result_class", "kept"), [("OK", 1), ("NO_PROGRESS", 0), ("EMPTY", 0)])
def test_a_value_of_a_class_of_its_own_is_classified_each_time(result_class: str, kept: int) -> None:
    desk = desk_of(first={"fn": ask_for, "classify": lambda outcome: Verdict(result_class=result_class)})

    assert desk.call_tool("first", {"n": 1})["ok"]
    assert len(desk.cache) == kept
    assert desk.handle({"n": 1}) == desk.handle({"n": 1}) or kept
    assert len(desk.cache) == kept


def test_more_repairs_than_the_usual_number_of_steps_are_all_tried() -> None:
    names = [f"fix{n}" for n in range(60)]
    calls = iter(range(1000))
    desk = ToolDesk(
        tools={"t": {"fn": raising(ValueError()), "args": {}}},
        default_tool="t",
        repairs=_Counted(calls),
        fixes={name: (lambda tool, args, name=name: (tool, {"try": name})) for name in names},
        max_attempts=50,
    )

    assert desk.handle({})["attempts"] == 50


class _Counted(dict[str, str]):
    """Another repair each time it is asked, the same one within a try."""

    def __init__(self, numbers: Any) -> None:
        super().__init__()
        self.numbers = numbers

    def get(self, error: str, default: Any = None) -> Any:
        return f"fix{next(self.numbers)}"


def test_only_pure_tools_are_remembered() -> None:
    desk = desk_of(first={"fn": ask_for, "effect": "idempotent"})
    desk.call_tool("first", {"n": 1})

    assert (desk.handle({"n": 1})["tool_runs"], desk.cache) == (1, {})


def test_identity_arguments_make_two_calls_the_same_at_both_doors() -> None:
    entry = {
        "fn": lambda n, note: {"n": n},
        "args": {"n": {"type": "int"}, "note": {"type": "str"}},
        "identity": ("n",),
    }
    desk = desk_of(first=entry)
    desk.handle({"n": 1, "note": "x"})

    assert desk.handle({"n": 1, "note": "y"})["tool_runs"] == 0
    assert desk.call_tool("first", {"n": 1, "note": "z"})["ok"]
    assert len(desk.cache) == 1


def test_a_default_spelled_out_is_the_same_call_at_both_doors() -> None:
    ran: list[int] = []
    entry = {"fn": lambda n=5: ran.append(n) or {"n": n}, "args": {"n": {"type": "int", "default": 5}}, "returns": {"n": {"type": "int"}}}
    desk = desk_of(first=entry)

    assert desk.call_tool("first", {}) == desk.call_tool("first", {"n": 5}) == {"ok": True, "value": {"n": 5}, "error": ""}
    assert (desk.handle({})["tool_runs"], desk.handle({"n": 5})["tool_runs"], ran) == (0, 0, [5])
    assert [*desk.cache] == [desk.cache_key("first", {})] == [desk.cache_key("first", {"n": 5})]
    assert desk.cache_key("first", {"n": 6}) != desk.cache_key("first", {})


class Thing:
    """Nothing but its identity tells it from another."""

    def __init__(self, n: int) -> None:
        self.n = n


def test_the_answer_to_a_call_with_an_object_is_nobody_elses() -> None:
    desk = desk_of(first={"fn": lambda one: {"n": one.n}, "args": {"one": {"type": "any"}}})

    for n in range(20):
        assert desk.call_tool("first", {"one": Thing(n)})["value"] == {"n": n}
        assert desk.handle({"one": Thing(n)})["tool_runs"] == 1
    thing = Thing(1)
    assert desk.call_tool("first", {"one": thing})["value"] == {"n": 1}
    thing.n = 2
    assert desk.call_tool("first", {"one": thing})["value"] == {"n": 2}
    assert desk.cache == {}
    assert desk.cache_key("first", {"one": thing}) == desk.cache_key("first", {"one": thing}) != ""


@pytest.mark.parametrize("field", [{"polling": True}, {"cache_ttl_s": 0}], ids=["polling", "no reuse"])
def test_what_must_not_be_reused_is_not_remembered_at_either_door(field: dict[str, Any]) -> None:
    ran: list[int] = []
    desk = desk_of(first={"fn": lambda n: ran.append(n) or {"n": n}, **field})
    for _ in range(2):
        desk.call_tool("first", {"n": 1})
        desk.handle({"n": 1})

    assert (len(ran), desk.cache) == (4, {})


def test_every_order_has_an_idempotency_key_of_its_own_and_every_try_of_it_the_same() -> None:
    keys: list[str] = []

    def body(n: int, context: ToolContext) -> dict[str, int]:
        keys.append(context.idempotency_key)
        if len(keys) % 2:
            raise ConnectionError
        return {"n": n}

    desk = desk_of(
        first={
            "fn": body,
            "effect": "idempotent",
            "context_parameter": "context",
            "retry": Retry(attempts=2, backoff_s=(0.0,)),
        }
    )
    for _ in range(3):
        assert desk.handle({"n": 1})["tool_runs"] == 2
    desk.call_tool("first", {"n": 1})

    assert len(set(keys)) == 4
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_retry_waits_and_comes_to_an_end_though_no_clock_runs(asynchronous: bool) -> None:
    tries: list[int] = []

    def body(n: int) -> dict[str, int]:
        tries.append(n)
        if len(tries) < 3:
            raise ConnectionError
        return {"n": n}

    desk = desk_of(first={"fn": body, "retry": Retry(attempts=3, backoff_s=(0.001, 0.001))})
    answer = asyncio.run(desk.ahandle({"n": 1})) if asynchronous else desk.handle({"n": 1})

    assert (answer["ok"], answer["errors"], answer["tool_runs"]) == (True, ["raised:ConnectionError"] * 2, 3)


def test_a_body_has_its_time_at_both_doors() -> None:
    release = threading.Event()
    desk = desk_of(first={"fn": lambda n: release.wait(5) and {"n": n}, "timeout_s": 0.02, "effect": "undeclared"})
    try:
        assert desk.call_tool("first", {"n": 1})["error"] == "raised:TimeoutError"
        assert desk.handle({"n": 1})["errors"] == ["raised:TimeoutError"]
        assert desk.run_naive({"n": 1})["tool_runs"] == 1
    finally:
        release.set()


def test_exclusive_bodies_of_all_doors_never_overlap() -> None:
    inside, most = [0], [0]

    def body(n: int) -> dict[str, int]:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        threading.Event().wait(0.002)
        inside[0] -= 1
        return {"n": n}

    desk = desk_of(first={"fn": body, "exclusive": True, "effect": "undeclared"})
    doors = [desk.handle, desk.run_naive, lambda order: desk.call_tool("first", order)] * 3
    with ThreadPoolExecutor(9) as pool:
        answers = list(pool.map(lambda door: door({"n": 1})["ok"], doors))

    assert (all(answers), most) == (True, [1])


def test_a_context_that_cannot_be_built_is_a_failure_at_both_doors() -> None:
    def build(args: Any) -> Any:
        raise LookupError("no")

    desk = desk_of(first={"fn": ask_for, "build": build})

    assert desk.call_tool("first", {"n": 1})["error"] == "raised:LookupError"
    assert (desk.handle({"n": 1})["errors"], desk.handle({"n": 1})["tool_runs"]) == (["raised:LookupError"], 0)


def test_json_text_is_decoded_where_the_entry_asks() -> None:
    desk = desk_of(first={"fn": lambda n: f'{{"n": {n}}}', "decode_json": True})

    assert desk.call_tool("first", {"n": 1})["value"] == {"n": 1}
    desk.cache.clear()
    assert desk.handle({"n": 1})["ok"]
    assert list(desk.cache.values()) == [{"n": 1}]


def test_a_tool_that_handles_an_order_of_its_own() -> None:
    desk = desk_of(first={"fn": lambda n: {"n": desk.handle({"n": n - 1})["tool_runs"] if n else 0}})

    assert desk.handle({"n": 5})["ok"]


def test_many_orders_at_once_inside_a_loop() -> None:
    async def body(n: int) -> dict[str, int]:
        await asyncio.sleep(0)
        return {"n": n}

    async def both(desk: ToolDesk) -> list[Any]:
        return await asyncio.gather(*(desk.ahandle({"n": n % 10}) for n in range(200)))

    desk = desk_of(first={"fn": body, "effect": "undeclared"})
    answers = asyncio.run(both(desk))

    assert [answer["calls"][0]["args"]["n"] for answer in answers] == [n % 10 for n in range(200)]
    assert all(answer["ok"] and answer["tool_runs"] == 1 for answer in answers)


def test_a_run_tells_how_it_ended() -> None:
    desk = desk_of(first={"fn": ask_for})
    good, bad = desk.explain(desk.run({"n": 1})), desk.explain(desk.run(None))

    assert good is not None
    assert good.ok
    assert bad is not None
    assert (bad.status, bad.stop_reason) == ("failed", "model_error")
    assert desk.explain(desk.engine().start({"n": 1})) is None
    assert desk.engine() is not desk.engine(naive=True)


def test_an_answer_in_words_takes_rows_of_any_kind() -> None:
    desk = desk_of(first={"fn": giving([1, "x", {"a": 2, "b": 3}]), "returns": {"type": "list"}})

    assert desk.handle({"n": 1})["answer"] == "found: 1, x, 2 3"
    assert desk.reply({"sku": "S", "rows": [{"a": 1}]}) == "S: 1"
    assert desk.giveup(["a", "b"]) == "gave up: b"


def test_a_run_that_was_stopped_says_so_in_its_errors() -> None:
    desk = desk_of(first={"fn": ask_for})
    run = desk.engine().start({"n": 1})
    desk.engine().tell(run, Stopped("strategy"))

    assert desk.answer(run)["errors"] == ["stopped"]


@pytest.mark.parametrize("way", ["handle", "ahandle", "run"])
def test_what_a_desk_remembers_is_nobody_elses(way: str) -> None:
    found = {"rows": [{"bins": [1, 2]}, [3]], "notes": ["n"]}
    ran: list[Any] = []
    tool = {"fn": lambda q: ran.append(q) or found, "args": {"q": {"type": "str", "required": True}}}
    desk = ToolDesk(tools={"look": tool}, default_tool="look")

    def spoil() -> Any:
        order = {"q": "x"}
        if way == "run":
            run = desk.run(order)
            value = copy.deepcopy(run.calls[-1].value)
            run.calls[-1].value["rows"][0]["bins"].append("run")
            run.journal[-1][1].value["notes"].append("journal")
            rows = desk.answer(run)["rows"]
            assert value == {"rows": [{"bins": [1, 2]}, [3]], "notes": ["n"]}
        else:
            rows = desk.handle(order)["rows"] if way == "handle" else asyncio.run(desk.ahandle(order))["rows"]
            assert rows == [{"bins": [1, 2]}, [3]]
        rows[0]["bins"].append("answer")
        rows[1].append("answer")
        return rows

    first = spoil()
    found["rows"][0]["bins"].append("tool")  # type: ignore[index]
    assert list(desk.cache.values()) == [{"rows": [{"bins": [1, 2]}, [3]], "notes": ["n"]}]
    assert spoil() is not first
    assert spoil() is not first
    assert list(desk.cache.values()) == [{"rows": [{"bins": [1, 2]}, [3]], "notes": ["n"]}]
    assert ran == ["x"]


@pytest.mark.parametrize(
    ("contracts", "why"),
    [
        ({"args": {"q": {"type": "string"}}}, "argument 'q': the type 'string' is unknown"),
        ({"args": {"q": {"type": "int", "min": 5, "max": 1}}}, "argument 'q': min 5 is greater than max 1"),
        ({"args": {"q": {"typ": "int"}}}, "did you mean 'type'"),
        ({"args": [1]}, "its arguments' contract is"),
        ({"returns": {"rows": {"type": "list", "max_len": -1}}}, "result 'rows': max_len is -1"),
    ],
)
def test_a_contract_that_contradicts_itself_is_refused_when_the_desk_is_made(contracts: dict[str, Any], why: str) -> None:
    with pytest.raises(ContractError, match=why):
        ToolDesk(tools={"look": {"fn": print, **contracts}}, default_tool="look")

    tools: dict[str, Any] = {}
    desk = ToolDesk(tools=tools, default_tool="look")
    tools["look"] = {"fn": print, **contracts}
    assert desk.handle({"q": "x"})["ok"] is False
