"""The floor to measure against: the lab by hand, one while-loop over a table of contracts, without a trace or a budget."""

from __future__ import annotations

import json

from fsm_agent import adapter
from fsm_agent.lab.stock import REGIONS

ORDERS = [
    {"sku": "A-1001", "region": "seoul", "limit": 2},
    {"sku": "B-2001", "region": "incheon", "limit": 2},
    {"sku": "A-1002", "region": "seoul", "limit": 9},
    {"sku": "B-2001", "region": "seoul", "limit": 1, "prefer": "legacy_stock"},
    {"sku": "A-1002", "region": "jeju", "limit": 2},
    {"sku": "A-1001", "region": "seoul", "limit": 2, "prefer": "warehouse_ai"},
    {"sku": "A-1001", "region": "seoul", "limit": 2},
    {"sku": "B-2001", "region": "daegu", "limit": 0},
    {"sku": "B-2001", "region": "daegu", "limit": 0, "prefer": "legacy_stock"},
    {"sku": "A-1001", "region": "seoul", "limit": True},
    {"sku": "A-1001", "region": "seoul"},
    {"sku": "A-1002", "region": "busan", "limit": 1},
]
TYPES = {"str": str, "int": int, "list": list}
CACHE: dict[str, object] = {}


def is_kind(value, kind):
    return isinstance(value, TYPES[kind]) and not (kind == "int" and isinstance(value, bool))


def args_fault(spec, args):
    for name, rule in spec.items():
        if rule["required"] and name not in args:
            return f"missing:{name}"
    for name in args:
        if name not in spec:
            return f"extra:{name}"
    for name, rule in spec.items():
        value = args[name]
        if not is_kind(value, rule["type"]):
            return f"type:{name}"
        if "allowed" in rule and value not in rule["allowed"]:
            return f"allowed:{name}"
        if ("min" in rule and value < rule["min"]) or ("max" in rule and value > rule["max"]):
            return f"range:{name}"
    return ""


def result_fault(spec, value):
    if not isinstance(value, dict) or value.keys() != spec.keys():
        return "shape"
    for name, rule in spec.items():
        if not is_kind(value[name], rule["type"]):
            return "shape"
    item = spec["rows"]["item"]
    for row in value["rows"]:
        if not isinstance(row, dict) or row.keys() != item.keys():
            return "shape"
        for name, rule in item.items():
            if not is_kind(row[name], rule["type"]):
                return "shape"
    if not value["rows"]:
        return "empty"
    if len(value["rows"]) > spec["rows"]["max_len"]:
        return "too_big"
    return "range" if any(row["count"] < 0 for row in value["rows"]) else ""


def call(name, args):
    entry = adapter.TOOLS.get(name)
    if entry is None:
        return None, "args:unknown_tool", 0
    fault = args_fault(entry["args"], args)
    if fault:
        return None, f"args:{fault}", 0
    key = f"{name}|{json.dumps(args, sort_keys=True)}"
    if key in CACHE:
        return CACHE[key], "", 0
    try:
        value = entry["fn"](**args)
    except Exception as error:
        return None, f"raised:{type(error).__name__}", 1
    fault = result_fault(entry["returns"], value)
    if fault:
        return None, f"result:{fault}", 1
    CACHE[key] = value
    return value, "", 1


def handle(order):
    tool = order.get("prefer") or "stock_lookup"
    args = {name: order[name] for name in ("sku", "region", "limit") if name in order}
    errors, fixes, calls, runs = [], [], [], 0
    while True:
        value, error, ran = call(tool, args)
        calls.append({"tool": tool, "args": args})
        runs += ran
        if not error:
            rows = [dict(row) for row in value["rows"]]
            text = f"{value['sku']}: " + ", ".join(f"{row['warehouse']} {row['count']}" for row in rows)
            break
        errors.append(error)
        name = adapter.REPAIRS.get(error)
        if name is None or name in fixes or len(calls) >= adapter.MAX_ATTEMPTS:
            rows, text = [], f"gave up: {error}"
            break
        fixes.append(name)
        if name == "region":
            args = {**args, "region": next(iter(REGIONS))}
        elif name == "limit":
            args = {**args, "limit": adapter.MAX_ROWS}
        else:
            tool = "stock_lookup"
    return {
        "ok": not error, "answer": text, "rows": rows, "errors": errors, "fixes": fixes,
        "attempts": len(calls), "calls": calls, "tool_runs": runs,
    }  # fmt: skip
