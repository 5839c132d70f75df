"""What an answer needs before anybody is asked: required outputs, enough independent evidence, citations that hold."""

from __future__ import annotations

from collections.abc import Collection

from fsm_agent.core.independence import independent
from fsm_agent.core.plain import short
from fsm_agent.core.proposal import CUT_OFF
from fsm_agent.core.run import Run


def missing_evidence(run: Run, required: Collection[str]) -> str:
    """What is still missing, as one sentence, or an empty text when the evidence suffices.

    `required` names tools that must have given evidence. Two pieces are independent when they come from another declared
    source, else from another tool or other arguments, *and* differ in content (seed 002).
    """
    if required:
        have = {call.tool for call in run.evidence()}
        lacking = [name for name in required if name not in have]
        if lacking:
            return f"no evidence yet from {', '.join(lacking)}"
    least = run.limits.min_evidence
    if least:
        count = independent(run.evidence(), least)
        if count < least:
            return f"{count} independent pieces of evidence, {least} needed"
    draft = run.draft
    if draft is not None and draft.finish in CUT_OFF:
        return f"the text was cut off: the reply ended with {draft.finish!r}"
    if draft is not None and draft.citations:
        known = {name for call in run.evidence() for name in (call.id, call.tool, call.source)} - {""}
        dangling = [name for name in draft.citations if type(name) is not str or name not in known]
        if dangling:
            return f"citations point at no evidence: {', '.join(short(name, 60) for name in dangling[:20])}"
    return ""
