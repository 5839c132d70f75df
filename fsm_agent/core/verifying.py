"""What an answer needs before anybody is asked: required outputs, enough independent evidence, citations that hold."""

from __future__ import annotations

from collections.abc import Collection

from fsm_agent.core.keys import call_key, observation_key
from fsm_agent.core.plain import short
from fsm_agent.core.proposal import CUT_OFF
from fsm_agent.core.run import Call, Run


def missing_evidence(run: Run, required: Collection[str]) -> str:
    """What is still missing, as one sentence, or an empty text when the evidence suffices.

    `required` names tools that must have given evidence. Two pieces are independent when they come from another declared
    source, else from another tool or other arguments, *and* differ in content (seed 002).
    """
    found = run.evidence()
    have = {call.tool for call in found}
    lacking = [name for name in required if name not in have]
    if lacking:
        return f"no evidence yet from {', '.join(lacking)}"
    least = run.limits.min_evidence
    if least:
        count = independent(found, least)
        if count < least:
            return f"{count} independent pieces of evidence, {least} needed"
    draft = run.draft
    if draft is not None and isinstance(draft.finish, str) and draft.finish in CUT_OFF:
        return f"the text was cut off: the reply ended with {draft.finish!r}"
    if draft is not None and draft.citations:
        known = {name for call in found for name in (call.id, call.tool, call.source)} - {""}
        dangling = [name for name in draft.citations if not isinstance(name, str) or name not in known]
        if dangling:
            return f"citations point at no evidence: {', '.join(short(name, 60) for name in dangling[:20])}"
    return ""


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
