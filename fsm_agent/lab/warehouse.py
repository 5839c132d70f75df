"""The lab's warehouse as typed tools, for questions in natural language."""

from __future__ import annotations

from typing import Annotated, Literal

from fsm_agent.core.contracts import Range
from fsm_agent.host.tool_forms import tool
from fsm_agent.lab.stock import MAX_ROWS, REGIONS, STOCK

Region = Literal["seoul", "busan", "jeju"]
Sku = Literal["A-1001", "A-1002", "B-2001", "B-2002"]


@tool(effect="pure")
def stock_lookup(sku: Sku, region: Region, limit: Annotated[int, Range(1, MAX_ROWS)] = MAX_ROWS) -> list[dict[str, object]]:
    """Say in which warehouses of a region an item is in stock, and how many of it, the fullest first."""
    counts = STOCK[sku]
    rows = sorted(((counts[name], name) for name in REGIONS[region] if name in counts), key=lambda row: (-row[0], row[1]))
    return [{"warehouse": name, "count": count} for count, name in rows[:limit]]


@tool(effect="pure", constant=True)
def list_warehouses(region: Region) -> list[str]:
    """Name the warehouses of a region."""
    return REGIONS[region]


@tool(effect="pure", constant=True)
def list_items() -> list[str]:
    """Name all items that are stocked anywhere."""
    return list(STOCK)


TOOLS = [stock_lookup, list_warehouses, list_items]
