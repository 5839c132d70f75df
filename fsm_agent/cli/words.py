"""Texts of others made fit for a terminal."""

from __future__ import annotations

from fsm_agent.core.short_text import printable


def shown(text: object, limit: int = 200) -> str:
    """Return a text in one line of at most `limit` printable characters; the rest of it as escapes, and cut by a ``…``."""
    cut = printable(str(text)[: limit + 1])
    return cut if len(cut) <= limit else cut[: max(limit - 1, 0)] + "…"
