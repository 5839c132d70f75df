"""The lab of seed 003, name for name: a thin face over a `ToolDesk` and the library's contracts, door and machine.

Nothing is baked in at import. `TOOLS`, `CACHE`, `CALLS`, `STOCK` and `REGIONS` are live, and rebinding a name of this
module (`REPAIRS`, `MAX_ATTEMPTS`, ...) takes effect with the next call. Many threads may call `handle` at once.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from threading import Lock
from typing import Any, TypedDict

from fsm_agent.core._machine import Machine
from fsm_agent.desk import Fix, OrderFault, ToolDesk
from fsm_agent.desk_answers import rows_of
from fsm_agent.lab import stock
from fsm_agent.lab.stock import FALLBACK_REGION, MAX_ATTEMPTS, MAX_ROWS

__all__ = [
    "CACHE",
    "CALLS",
    "FALLBACK_REGION",
    "MAX_ATTEMPTS",
    "MAX_ROWS",
    "REGIONS",
    "REPAIRS",
    "STOCK",
    "TOOLS",
    "State",
    "build_graph",
    "build_naive",
    "cache_key",
    "call_tool",
    "can_repair",
    "fetch",
    "giveup",
    "handle",
    "legacy_stock",
    "pick",
    "repair",
    "reply",
    "run_naive",
    "stock_lookup",
    "validate_args",
    "validate_result",
]

# Copies of this module's own, so that loading it anew gives the data as they were.
REGIONS: dict[str, list[str]] = {region: list(names) for region, names in stock.REGIONS.items()}
STOCK: dict[str, dict[str, int]] = {sku: dict(counts) for sku, counts in stock.STOCK.items()}
REPAIRS: dict[str, str] = dict(stock.REPAIRS)
CALLS: dict[str, int] = {"stock_lookup": 0, "legacy_stock": 0}
CACHE: dict[str, Any] = {}
_COUNTING = Lock()


def stock_lookup(sku: str, region: str, limit: int) -> dict[str, Any]:
    """At most `limit` warehouses of the region that have the item, the fullest first."""
    _count("stock_lookup")
    return {"sku": sku, "rows": _rows(sku, region)[: max(limit, 0)]}


def legacy_stock(sku: str, region: str, limit: int) -> dict[str, Any]:
    """Every warehouse of the region that has the item; the old version, which ignores `limit`."""
    _count("legacy_stock")
    return {"sku": sku, "rows": _rows(sku, region)}


def _count(name: str) -> None:
    with _COUNTING:
        CALLS[name] = CALLS.get(name, 0) + 1


def _rows(sku: str, region: str) -> list[dict[str, Any]]:
    have = STOCK.get(sku, {})
    found = sorted([(-have[name], name) for name in REGIONS[region] if name in have])
    return [{"warehouse": name, "count": -less} for less, name in found]


def _entry(fn: Any) -> dict[str, Any]:
    return {
        "fn": fn,
        "args": {
            "sku": {"type": "str", "required": True},
            "region": {"type": "str", "required": True, "allowed": list(REGIONS)},
            "limit": {"type": "int", "required": True, "min": 1, "max": MAX_ROWS},
        },
        "returns": {
            "sku": {"type": "str"},
            "rows": {
                "type": "list",
                "max_len": MAX_ROWS,
                "item": {"warehouse": {"type": "str"}, "count": {"type": "int", "min": 0}},
            },
        },
    }


TOOLS: dict[str, Any] = {"stock_lookup": _entry(stock_lookup), "legacy_stock": _entry(legacy_stock)}

_FIXES: dict[str, Fix] = {
    "region": lambda tool, args: (tool, {**args, "region": FALLBACK_REGION}),
    "limit": lambda tool, args: (tool, {**args, "limit": MAX_ROWS}),
    "tool": lambda tool, args: ("stock_lookup", args),
}
_made: list[ToolDesk] = []


def desk() -> ToolDesk:
    """The desk over this module's names as they are bound now."""
    made = _made[-1] if _made else None
    if made is None or made.tools is not TOOLS or made.repairs is not REPAIRS or made.cache is not CACHE:
        # What is no mapping holds no tool, repairs nothing and remembers nothing: a step of the lab never raises.
        tools, repairs = (bound if issubclass(type(bound), Mapping) else {} for bound in (TOOLS, REPAIRS))
        cache = CACHE if issubclass(type(CACHE), MutableMapping) else {}
        made = ToolDesk(tools=tools, default_tool="stock_lookup", repairs=repairs, fixes=_FIXES, cache=cache)
        _made[:] = [made]
    if made.max_attempts is not MAX_ATTEMPTS:
        made.max_attempts = MAX_ATTEMPTS
    return made


def validate_args(name: object, args: object) -> str:
    """An empty text, or ``unknown_tool`` or ``missing|extra|type|allowed|range:<argument>``."""
    return desk().validate_args(name, args)


def validate_result(name: object, value: object) -> str:
    """An empty text, or ``shape``, ``empty``, ``too_big`` or ``range``."""
    return desk().validate_result(name, value)


def call_tool(name: object, args: object) -> dict[str, Any]:
    """One call through the door: ``{"ok", "value", "error"}``; it never raises."""
    return desk().call_tool(name, args)


def cache_key(name: object, args: object) -> str:
    """The key of a call in `CACHE`: the same whatever the order of its keys, different for different calls."""
    return desk().cache_key(name, args)


def can_repair(state: object = None, attempts: int | None = None, *, reason: object = None) -> bool:
    """True while the last reason has a repair, attempts are left, and that repair has not been tried.

    Takes a state, or a reason (in its place or by its name) and the attempts so far. With a `MAX_ATTEMPTS` that is neither an
    int nor None nothing is repaired.
    """
    return desk().can_repair(state, attempts, reason=reason)


def run_naive(order: object) -> dict[str, Any]:
    """Pick, fetch, then reply or give up; the answer of `handle` with the `path` walked. `MAX_ATTEMPTS` is none of its concern."""
    return desk().run_naive(order)


def handle(order: object) -> dict[str, Any]:
    """Handle one order, repaired by reason where that helps, in at most `MAX_ATTEMPTS` tries; it never raises.

    None is no cap. The first try is always made, so an int below 1 is as good as 1. Anything else, a bool included, ends in
    ``ok: False`` with the reason ``limits:MAX_ATTEMPTS``.
    """
    return desk().handle(order)


class State(TypedDict, total=False):
    """The lab's state of one order, as its steps read and write it."""

    order: Mapping[str, Any]
    tool: str
    args: dict[str, Any]
    result: dict[str, Any]
    attempts: int
    errors: list[str]
    fixes: list[str]
    calls: list[dict[str, Any]]
    path: list[str]
    ok: bool
    rows: list[Any]
    answer: str


def pick(state: State) -> State:
    """The step that chooses the tool and the arguments of the order."""
    path = [*_listed(state, "path"), "pick"]
    try:
        tool, args = desk().choose(state.get("order"))
    except OrderFault as fault:
        return {"tool": "", "args": {}, "errors": [*_listed(state, "errors"), str(fault)], "path": path}
    return {"tool": tool, "args": args, "path": path}


def fetch(state: State) -> State:
    """The step that makes the call and keeps its result or its reason; without a tool that is ``args:unknown_tool``."""
    tool, args = state.get("tool", ""), state.get("args", {})
    result = desk().call_tool(tool, args)
    errors = _listed(state, "errors")
    return {
        "result": result,
        "attempts": (state.get("attempts") or 0) + 1,
        "errors": [*errors, result["error"]] if result["error"] else errors,
        "calls": [*_listed(state, "calls"), {"tool": tool, "args": args}],
        "path": [*_listed(state, "path"), "fetch"],
    }


def repair(state: State) -> State:
    """The step that changes the call by the reason of its failure; it changes nothing where there is no repair."""
    errors, path = _listed(state, "errors"), [*_listed(state, "path"), "repair"]
    mended = desk().repaired(errors[-1], state.get("tool", ""), state.get("args", {})) if errors else None
    if mended is None:
        return {"path": path}
    name, tool, args = mended
    return {"tool": tool, "args": args, "fixes": [*_listed(state, "fixes"), name], "path": path}


def reply(state: State) -> State:
    """The step that answers from the result; where none was had there is nothing to say but the reason, as `giveup` does."""
    result, path = state.get("result"), [*_listed(state, "path"), "reply"]
    if not result or result.get("ok") is False:
        return {**giveup(state), "path": path}
    value = result.get("value")
    return {"ok": True, "rows": rows_of(value), "answer": desk().reply(value), "path": path}


def giveup(state: State) -> State:
    """The step that answers with the reason when nothing could be had."""
    errors = _listed(state, "errors") or ["stopped"]
    return {"ok": False, "rows": [], "answer": desk().giveup(errors), "path": [*_listed(state, "path"), "giveup"]}


def _listed(state: State, name: str) -> list[Any]:
    """A copy of a list of the state; empty where it has none yet."""
    kept: Any = state.get(name)
    return list(kept) if kept else []


def build_naive() -> Machine:
    """The compiled machine without repair (step 6); it can be drawn and walked."""
    return desk().engine(naive=True).setup.machine


def build_graph() -> Machine:
    """The compiled machine with repair (step 7); it can be drawn and walked."""
    return desk().engine().setup.machine
