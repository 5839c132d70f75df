"""How many pieces of evidence are independent of each other (seed 002)."""

from __future__ import annotations

from fsm_agent.core.keys import call_key, observation_key
from fsm_agent.core.run import Call


def independent(found: list[Call], enough: int | None = None) -> int:
    """How many of these pieces are independent of each other, counted up to `enough`.

    Each of them has an origin and a content that none of the others has, so this is the largest matching of origins and
    contents.
    """
    contents_of: dict[str, list[str]] = {}
    for call in found:
        origin = f"source {call.source}" if call.source else call.key or call_key(call.tool, call.args)
        contents_of.setdefault(origin, []).append(call.observation or observation_key(call.value))
    holds: dict[str, str] = {}
    owner: dict[str, str] = {}
    for origin in contents_of:
        if enough is not None and len(holds) >= enough:
            break
        _match(origin, contents_of, holds, owner)
    return len(holds)


def _match(origin: str, contents_of: dict[str, list[str]], holds: dict[str, str], owner: dict[str, str]) -> None:
    """Give an origin a content of its own, moving others to another content of theirs where that makes room."""
    asked_by: dict[str, str] = {}
    todo = [origin]
    for asking in todo:
        for content in contents_of[asking]:
            if content in asked_by:
                continue
            asked_by[content] = asking
            if content in owner:
                todo.append(owner[content])
                continue
            # A free one: along the way by which it was found each takes what it asked for and leaves what it had.
            free: str | None = content
            while free is not None:
                taker = asked_by[free]
                left = holds.get(taker)
                holds[taker], owner[free] = free, taker
                free = left
            return
