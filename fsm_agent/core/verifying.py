"""What an answer needs before anybody is asked: required outputs, enough independent evidence, citations that hold."""

from __future__ import annotations

from collections.abc import Collection

from fsm_agent.core.keys import call_key, observation_key
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
        count = independent(found)
        if count < least:
            return f"{count} independent pieces of evidence, {least} needed"
    if run.draft is not None and run.draft.citations:
        known = {call.id for call in found} | have
        dangling = [name for name in run.draft.citations if name not in known]
        if dangling:
            return f"citations point at no evidence: {', '.join(map(str, dangling))}"
    return ""


def independent(found: list[Call]) -> int:
    """How many of these pieces are independent of each other."""
    origins: set[str] = set()
    contents: set[str] = set()
    count = 0
    for call in found:
        origin = call.source or call_key(call.tool, call.args)
        content = call.observation or observation_key(call.value)
        if origin not in origins and content not in contents:
            count += 1
        origins.add(origin)
        contents.add(content)
    return count
