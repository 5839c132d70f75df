"""Texts of others made fit for a terminal."""

from __future__ import annotations


def shown(text: object, limit: int = 200) -> str:
    """Return a text in one line of at most `limit` printable characters; the rest of it as escapes, and cut by a ``…``."""
    whole = str(text)
    cut = whole[: limit + 1]
    if not cut.isprintable():
        cut = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in cut)
    return cut if len(cut) <= limit else cut[: max(limit - 1, 0)] + "…"
