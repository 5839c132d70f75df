"""The lab's report (step 8 of seed 003): what the adapter does, measured by calling it, never copied from a text.

Every figure comes from the calls that one `measure` makes. Bodies are counted where they run. Probes that need a tool that
misbehaves put it into a copy of the table, and memory is one of its own, so `TOOLS` and `CACHE` stay as they are.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from fsm_agent import adapter
from fsm_agent._version import __version__
from fsm_agent.core.plain import to_json
from fsm_agent.core.storable import plain_copy
from fsm_agent.desk import ToolDesk

_SKU, _OTHER_SKU = "A-1001", "A-1002"
_GOOD: Mapping[str, Any] = {"sku": _SKU, "region": "seoul", "limit": 2}


@attrs.define
class _Bench:
    """A desk over a copy of the lab's tools, each of which counts its runs here."""

    runs: int = 0
    tools: dict[str, Any] = attrs.field(factory=dict)
    desk: ToolDesk = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        for name, entry in adapter.TOOLS.items():
            self.add(name, entry["fn"], entry)
        self.desk = attrs.evolve(adapter.desk(), tools=self.tools, cache={})

    def add(self, name: str, body: Callable[..., Any], entry: Mapping[str, Any]) -> None:
        """Put a tool with the contract of `entry` on the bench."""

        def counted(**args: Any) -> Any:
            self.runs += 1
            return body(**args)

        self.tools[name] = {**entry, "fn": counted}

    def call(self, tool: Any, args: Any) -> dict[str, Any]:
        """Make one call; what was asked, what came back, and how often a body ran for it."""
        before = self.runs
        came_back = self.desk.call_tool(tool, args)
        return {
            "probe": {"tool": tool, "args": args},
            "came_back": came_back,
            "body_runs": self.runs - before,
            "body_ran": self.runs > before,
        }

    def order(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Handle one order; the order, the answer, and how often a body ran for it."""
        before = self.runs
        answer = self.desk.handle(order)
        return {"order": dict(order), "answer": answer, "body_runs": self.runs - before}


def measure() -> dict[str, Any]:
    """Call the adapter and return what came back, as strict JSON data; every part says whether it is `as_promised`.

    Its parts: `arguments` and `results` (one probe a reason), `memory`, `repairs`, `attempts`, `naive`, `machine`.
    """
    parts: dict[str, Any] = {
        "arguments": _arguments(),
        "results": _results(),
        "memory": _memory(),
        "repairs": _repairs(),
        "attempts": _attempts(),
        "naive": _naive(),
    }
    probes = [probe for part in parts.values() for probe in part]
    machine = adapter.build_graph().table
    report = {
        "fsm_agent": __version__,
        "python": platform.python_version(),
        "machine": {"name": machine.name, "hash": machine.hash(), "states": len(machine.states), "rows": len(machine.rows)},
        "probes": len(probes),
        "as_promised": sum(probe["as_promised"] for probe in probes),
        **parts,
    }
    made: dict[str, Any] = to_json(report)
    return made


def write(report: Mapping[str, Any], directory: str | Path) -> tuple[Path, Path]:
    """Write ``tool_report.json`` and ``tool_report.md`` into a directory, made if need be; returns their paths.

    Raises OSError when they cannot be written.
    """
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    as_json, as_text = folder / "tool_report.json", folder / "tool_report.md"
    as_json.write_text(json.dumps(report, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    as_text.write_text(markdown(report), encoding="utf-8")
    return as_json, as_text


# -- what is measured --------------------------------------------------------------------------------------------------


def _arguments() -> list[dict[str, Any]]:
    """One probe for each reason of refused arguments; none of them may reach a body."""
    probes: list[tuple[str, Any, Any]] = [
        ("unknown_tool", "no_such_tool", dict(_GOOD)),
        ("missing:region", "stock_lookup", {"sku": _SKU, "limit": 2}),
        ("extra:warehouse", "stock_lookup", {**_GOOD, "warehouse": "mapo"}),
        ("type:sku", "stock_lookup", {**_GOOD, "sku": 1001}),
        ("type:limit", "stock_lookup", {**_GOOD, "limit": True}),
        ("type:limit", "stock_lookup", {**_GOOD, "limit": 2.0}),
        ("type:limit", "stock_lookup", {**_GOOD, "limit": "2"}),
        ("allowed:region", "stock_lookup", {**_GOOD, "region": "atlantis"}),
        ("range:limit", "stock_lookup", {**_GOOD, "limit": 0}),
        ("range:limit", "stock_lookup", {**_GOOD, "limit": adapter.MAX_ROWS + 1}),
        ("type:args", "stock_lookup", ["A-1001", "seoul", 2]),
    ]
    return [_argument(reason, tool, args) for reason, tool, args in probes]


def _argument(reason: str, tool: Any, args: Any) -> dict[str, Any]:
    before = sum(adapter.CALLS.values())
    found = adapter.validate_args(tool, args)
    came_back = adapter.call_tool(tool, args)
    runs = sum(adapter.CALLS.values()) - before
    kept = found == reason and came_back == {"ok": False, "value": None, "error": f"args:{reason}"} and not runs
    return {
        "reason": f"args:{reason}",
        "probe": {"tool": tool, "args": args},
        "came_back": came_back,
        "body_runs": runs,
        "body_ran": runs > 0,
        "as_promised": kept,
    }


def _results() -> list[dict[str, Any]]:
    """One probe for each reason of a refused result, and a body that raises; the body has run each time."""
    bench = _Bench()
    contract = adapter.TOOLS["stock_lookup"]
    rows = [{"warehouse": f"w{number}", "count": number} for number in range(adapter.MAX_ROWS + 1)]
    bodies: list[tuple[str, str, Callable[..., Any]]] = [
        ("result:shape", "says_nothing", lambda **args: None),
        ("result:shape", "says_text", lambda **args: {"sku": args["sku"], "rows": "three warehouses"}),
        ("result:empty", "finds_nothing", lambda **args: {"sku": args["sku"], "rows": []}),
        ("result:too_big", "says_too_much", lambda **args: {"sku": args["sku"], "rows": rows}),
        ("result:range", "owes", lambda **args: {"sku": args["sku"], "rows": [{"warehouse": "mapo", "count": -1}]}),
        ("raised:ConnectionError", "breaks", _breaks),
    ]
    for _, name, body in bodies:
        bench.add(name, body, contract)
    probes = [(reason, name, dict(_GOOD)) for reason, name, _ in bodies]
    # The lab's own tools come to two of these reasons by themselves.
    probes += [
        ("result:empty", "stock_lookup", {**_GOOD, "region": "jeju"}),
        ("result:too_big", "legacy_stock", dict(_GOOD)),
    ]
    return [_result(bench, reason, name, args) for reason, name, args in probes]


def _breaks(**args: Any) -> Any:
    raise ConnectionError("the shelf does not answer")


def _result(bench: _Bench, reason: str, name: str, args: dict[str, Any]) -> dict[str, Any]:
    seen = bench.call(name, args)
    kept = seen["came_back"] == {"ok": False, "value": None, "error": reason} and seen["body_runs"] == 1
    return {"reason": reason, **seen, "as_promised": kept}


def _memory() -> list[dict[str, Any]]:
    """What is remembered and what is not; each entry is one call after those before it."""
    bench = _Bench()
    other_order = dict(reversed(list(_GOOD.items())))
    calls: list[tuple[str, str, Any, int]] = [
        ("the first call runs the body", "stock_lookup", dict(_GOOD), 1),
        ("the same call is answered from memory", "stock_lookup", dict(_GOOD), 0),
        ("so it is with its keys in another order", "stock_lookup", other_order, 0),
        ("another value is another call", "stock_lookup", {**_GOOD, "limit": 1}, 1),
        ("so is another region", "stock_lookup", {**_GOOD, "region": "busan"}, 1),
        ("and another tool", "legacy_stock", {**_GOOD, "region": "busan"}, 1),
        ("a failure runs the body", "stock_lookup", {**_GOOD, "region": "jeju"}, 1),
        ("and is not remembered", "stock_lookup", {**_GOOD, "region": "jeju"}, 1),
    ]
    found = []
    for what, tool, args, runs in calls:
        seen = bench.call(tool, args)
        found.append({"what": what, **seen, "as_promised": seen["body_runs"] == runs})
    found.append(_spoilt(bench))
    return found


def _spoilt(bench: _Bench) -> dict[str, Any]:
    """A caller who changes what was handed out changes nothing of what is remembered."""
    first = bench.desk.call_tool("stock_lookup", dict(_GOOD))
    kept = plain_copy(first)
    first["value"]["rows"].clear()
    seen = bench.call("stock_lookup", dict(_GOOD))
    return {
        "what": "a caller who changes the answer does not change the memory",
        **seen,
        "as_promised": seen["came_back"] == kept and seen["body_runs"] == 0,
    }


def _repairs() -> list[dict[str, Any]]:
    """One order for each repair, two repairs in a row, and faults that have none."""
    orders: list[tuple[str, Mapping[str, Any], list[str], bool]] = [
        ("args:allowed:region", {"sku": _SKU, "region": "atlantis", "limit": 2}, ["region"], True),
        ("args:range:limit", {"sku": _SKU, "region": "busan", "limit": 50}, ["limit"], True),
        ("result:too_big", {"sku": "B-2001", "region": "seoul", "limit": 2, "prefer": "legacy_stock"}, ["tool"], True),
        ("two in a row", {"sku": _OTHER_SKU, "region": "atlantis", "limit": 50}, ["region", "limit"], True),
        ("args:unknown_tool", {**_GOOD, "prefer": "no_such_tool"}, [], False),
        ("args:missing:region", {"sku": _SKU, "limit": 2}, [], False),
        ("args:type:limit", {**_GOOD, "limit": "2"}, [], False),
        ("result:empty", {**_GOOD, "region": "jeju"}, [], False),
    ]
    bench = _Bench()
    found = []
    for reason, order, fixes, ok in orders:
        seen = bench.order(order)
        found.append({"reason": reason, **seen, "as_promised": _repaired(seen, fixes, ok)})
    return found


def _repaired(seen: Mapping[str, Any], fixes: list[str], ok: bool) -> bool:
    """True when these repairs were made, as far as the cap on attempts lets them, and the answer claims no more."""
    answer = seen["answer"]
    made = fixes[: adapter.MAX_ATTEMPTS - 1]
    ok = ok and made == fixes
    counted = answer["attempts"] == len(made) + 1 and answer["tool_runs"] == seen["body_runs"]
    return counted and answer["fixes"] == made and answer["ok"] is ok and bool(answer["rows"]) is ok


def _attempts() -> list[dict[str, Any]]:
    """More faults than tries: the order gives up at the cap, and the last repair is not made."""
    seen = _Bench().order({"sku": _SKU, "region": "atlantis", "limit": 50, "prefer": "legacy_stock"})
    kept = _repaired(seen, ["region", "limit", "tool"], True)
    return [{"max_attempts": adapter.MAX_ATTEMPTS, **seen, "as_promised": kept}]


def _naive() -> list[dict[str, Any]]:
    """The same orders without repair: a failure is a path, not an exception."""
    bench = _Bench()
    orders: list[tuple[Mapping[str, Any], list[str]]] = [
        (_GOOD, ["pick", "fetch", "reply"]),
        ({"sku": _SKU, "region": "atlantis", "limit": 2}, ["pick", "fetch", "giveup"]),
        ({"sku": _SKU, "region": "seoul", "limit": 2, "prefer": "legacy_stock"}, ["pick", "fetch", "giveup"]),
    ]
    found = []
    for order, path in orders:
        before = bench.runs
        answer = bench.desk.run_naive(order)
        kept = answer["path"] == path and answer["ok"] is (path[-1] == "reply") and answer["fixes"] == []
        found.append({"order": dict(order), "answer": answer, "body_runs": bench.runs - before, "as_promised": kept})
    return found


# -- the report as text ------------------------------------------------------------------------------------------------


def markdown(report: Mapping[str, Any]) -> str:
    """Return the report as Markdown; it holds no figure that is not in the report."""
    machine = report["machine"]
    lines = [
        "# Tool report",
        "",
        f"Measured by `fsm-agent report` (fsm_agent {report['fsm_agent']}, Python {report['python']}) on machine"
        f" `{machine['name']}`: {machine['states']} states, {machine['rows']} rows, hash `{machine['hash']}`."
        f" {report['as_promised']} of {report['probes']} probes came back as promised.",
        "",
    ]
    for title, key, names, row in _SECTIONS:
        lines += [f"## {title}", "", _row(names), _row(["---"] * len(names))]
        lines += [_row([*row(probe), "yes" if probe["as_promised"] else "**no**"]) for probe in report[key]]
        lines.append("")
    return "\n".join(lines)


def _called(probe: Mapping[str, Any]) -> list[str]:
    asked, back = probe["probe"], probe["came_back"]
    came = "ok, " + _code(back["value"]) if back["ok"] else _code(back["error"])
    ran = f"{'yes' if probe['body_ran'] else 'no'} ({probe['body_runs']})"
    return [f"{_code(asked['tool'])} {_code(asked['args'])}", came, ran]


def _answered(probe: Mapping[str, Any]) -> list[str]:
    answer = probe["answer"]
    how = " ".join(answer.get("path") or answer["fixes"]) or "none"
    return [_code(probe["order"]), _escaped(answer["answer"]), how, str(answer["attempts"]), str(probe["body_runs"])]


_CALL = ("probe", "came back", "body ran", "as promised")
_ORDER = ("order", "answer", "fixes", "attempts", "body runs", "as promised")
_Rows = Callable[[Mapping[str, Any]], list[str]]
_SECTIONS: tuple[tuple[str, str, tuple[str, ...], _Rows], ...] = (
    ("Arguments, measured before the body", "arguments", ("reason", *_CALL), lambda p: [_code(p["reason"]), *_called(p)]),
    ("Results, measured after the body", "results", ("reason", *_CALL), lambda p: [_code(p["reason"]), *_called(p)]),
    ("Memory", "memory", ("what", *_CALL), lambda p: [_escaped(p["what"]), *_called(p)]),
    ("Repairs", "repairs", ("reason", *_ORDER), lambda p: [_code(p["reason"]), *_answered(p)]),
    ("The cap on attempts", "attempts", ("cap", *_ORDER), lambda p: [str(p["max_attempts"]), *_answered(p)]),
    ("Without repair", "naive", tuple("path" if n == "fixes" else n for n in _ORDER), _answered),
)


def _row(cells: tuple[str, ...] | list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _code(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"`{text.replace('|', '&#124;').replace('`', chr(39))}`"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
