"""The lab for tests: put back after each, its answers by a plain rule, and values that nothing may stumble over."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import fsm_agent
from fsm_agent import adapter as lab

SAMPLES = Path(fsm_agent.__file__).parent / "lab" / "orders.jsonl"
KEYS = ["ok", "answer", "rows", "errors", "fixes", "attempts", "calls", "tool_runs"]
GOOD: dict[str, Any] = {"sku": "A-1001", "region": "seoul", "limit": 2}
REBOUND = ("TOOLS", "CACHE", "CALLS", "STOCK", "REGIONS", "REPAIRS", "MAX_ATTEMPTS", "MAX_ROWS", "FALLBACK_REGION")


def sample_orders() -> list[Any]:
    """The orders of ``--samples``, each fresh; what an order shows is its ``about``. The last two are no orders."""
    return [json.loads(line) for line in SAMPLES.read_bytes().splitlines()]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Each test gets the module as it is loaded, whatever the one before did to it."""
    bound = {name: getattr(lab, name) for name in REBOUND}
    inner = {name: copy.deepcopy(value) for name, value in bound.items() if isinstance(value, dict) and name != "CACHE"}
    lab.CACHE.clear()
    lab.CALLS.update(stock_lookup=0, legacy_stock=0)
    yield
    for name, value in bound.items():
        setattr(lab, name, value)
        if name in inner:
            value.clear()
            value.update(inner[name])
    lab.CACHE.clear()


def ran() -> int:
    return sum(lab.CALLS.values())


def order(**changed: Any) -> dict[str, Any]:
    return {**GOOD, **changed}


def result(*counts: Any, sku: Any = "A-1001") -> dict[str, Any]:
    return {"sku": sku, "rows": [{"warehouse": f"w{n}", "count": count} for n, count in enumerate(counts)]}


def install(fn: Any, name: str = "stock_lookup") -> None:
    lab.TOOLS[name]["fn"] = fn


def giving(value: Any) -> Callable[..., Any]:
    return lambda **_: value


def raising(error: BaseException) -> Callable[..., Any]:
    def body(**_: Any) -> Any:
        raise error

    return body


class Unreadable(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise RuntimeError("no")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("no")

    def __len__(self) -> int:
        raise RuntimeError("no")


class Evil:
    """Everything that is asked of it raises."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    def __repr__(self) -> str:
        raise RuntimeError("no")

    def __bool__(self) -> bool:
        raise RuntimeError("no")

    __hash__ = None  # type: ignore[assignment]


def holding_itself() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["self"] = [value]
    return value


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


ODD: dict[str, Any] = {
    "None": None,
    "true": True,
    "float": 2.0,
    "text of digits": "2",
    "nan": float("nan"),
    "inf": float("inf"),
    "huge": 10**5000,
    "-huge": -(10**5000),
    "surrogate": "\ud800",
    "zero byte": "\x00",
    "bytes": b"2",
    "list": [1],
    "dict": {"a": 1},
    "tuple": (1,),
    "set": {1},
    "complex": 1j,
    "object": object(),
    "type": int,
    "cycle": holding_itself(),
    "deep": nested(100_000),
    "evil": Evil(),
    "empty": "",
    "long": "x" * 100_000,
}


def kind(value: object) -> str:
    """The id of a case; pytest cannot print every value."""
    return value if isinstance(value, str) and value.isascii() and len(value) < 30 else type(value).__name__


odd = pytest.mark.parametrize("value", list(ODD.values()), ids=list(ODD))


NO_INT = [None, True, False, 1.0, 2.0, "2", "", [2], {}, b"2", 1j, object(), float("nan"), float("inf"), Evil()]


def expected_rows(sku: str, region: str) -> list[dict[str, Any]]:
    here = [(count, name) for name, count in lab.STOCK.get(sku, {}).items() if name in lab.REGIONS[region]]
    return [{"warehouse": name, "count": count} for count, name in sorted(here, key=lambda one: (-one[0], one[1]))]


CASES: list[tuple[dict[str, Any], list[str], list[str], int, int, bool]] = [
    (order(), [], [], 1, 1, True),
    (order(region="x"), ["args:allowed:region"], ["region"], 2, 1, True),
    (order(limit=0), ["args:range:limit"], ["limit"], 2, 1, True),
    (order(limit=10**5000), ["args:range:limit"], ["limit"], 2, 1, True),
    (order(prefer="legacy_stock"), ["result:too_big"], ["tool"], 2, 2, True),
    (order(prefer="legacy_stock", limit=9), ["args:range:limit", "result:too_big"], ["limit", "tool"], 3, 2, True),
    (
        order(prefer="legacy_stock", region="x"),
        ["args:allowed:region", "result:too_big"],
        ["region", "tool"],
        3,
        2,
        True,
    ),
    (order(region="x", limit=9), ["args:allowed:region", "args:range:limit"], ["region", "limit"], 3, 1, True),
    (
        order(prefer="legacy_stock", region="x", limit=9),
        ["args:allowed:region", "args:range:limit", "result:too_big"],
        ["region", "limit"],
        3,
        1,
        False,
    ),
    (order(prefer="legacy_stock", sku="A-1002"), [], [], 1, 1, True),
    (order(sku="Z"), ["result:empty"], [], 1, 1, False),
    (order(sku="Z", region="x"), ["args:allowed:region", "result:empty"], ["region"], 2, 1, False),
    (order(sku=5), ["args:type:sku"], [], 1, 0, False),
    (order(limit="2"), ["args:type:limit"], [], 1, 0, False),
    (order(region=None), ["args:type:region"], [], 1, 0, False),
    (order(prefer="nothing"), ["args:unknown_tool"], [], 1, 0, False),
    (order(sku="A-1002", region="jeju"), ["result:empty"], [], 1, 1, False),
]
