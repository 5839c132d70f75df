"""What a desk answers: the rows of a result, words that claim nothing beside them, and what an order asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsm_agent.core.plain import LEAVES, plain_copy, short
from fsm_agent.core.storable import own_args
from fsm_agent.host.memory import is_plain


def unhandled(reason: str, error: Exception) -> dict[str, Any]:
    """The answer to an order of which nothing was tried."""
    told = {"ok": False, "answer": f"gave up: {reason}: {error}", "rows": [], "errors": [reason]}
    return {**told, "fixes": [], "attempts": 0, "calls": [], "tool_runs": 0}


def no_name(preferred: object) -> str:
    """A name that stands for what an order preferred and is none."""
    return f"<{short(preferred, 60)}>"


def as_asked(order: Any, tool: str) -> Any:
    """What an order asked for in place of a tool's name, where that was plain; else the name."""
    try:
        preferred = order.get("prefer")
        plainly = not issubclass(type(preferred), str) and no_name(preferred) == tool and is_plain(preferred)
        return plain_copy(preferred) if plainly else tool
    except Exception:
        return tool


def rows_of(value: Any) -> list[Any]:
    """The rows of a result: its ``rows``, else the first list it holds, else itself where it is a list; a copy."""
    if type(value) is dict or isinstance(value, Mapping):
        value = value["rows"] if "rows" in value else next((item for item in value.values() if isinstance(item, list)), [])
    return [own_args(row) for row in value] if type(value) is list else []


def _bare(value: Any) -> Any:
    """A result without what it holds beside its rows: a list of notes is no stock, whatever stands in it."""
    if type(value) is not dict:
        return value
    return {name: one for name, one in value.items() if type(one) in LEAVES or not one}


def found_text(value: Any, rows: list[Any]) -> str:
    """The answer in words; it claims nothing that is not in the rows."""
    if not rows:
        return f"no rows: {short(_bare(value))}"
    try:
        name = value.get("sku", "found") if isinstance(value, dict) else "found"
        texts = [" ".join(map(str, row.values())) if type(row) is dict else str(row) for row in rows]
        return f"{name}: {', '.join(texts)}"
    except Exception:
        # Python writes out no integer of several thousand digits, whatever holds it.
        return f"found: {short(rows)}"
