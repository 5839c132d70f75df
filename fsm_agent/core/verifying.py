"""What an answer needs before anybody is asked: required outputs, enough independent evidence, citations that hold."""

from __future__ import annotations

import re
from collections.abc import Collection

from fsm_agent.core.independence import independent
from fsm_agent.core.plain import dumps, short, storable
from fsm_agent.core.proposal import CUT_OFF
from fsm_agent.core.run import Run


def missing_evidence(run: Run, required: Collection[str]) -> str:
    """What is still missing, as one sentence, or an empty text when the evidence suffices.

    `required` names tools that must have given evidence. Two pieces are independent when they come from another declared
    source, else from another tool or other arguments, *and* differ in content (seed 002). A citation is the id, tool or source of
    a piece, a whole text of its value, or an address in it (seed 000's results have one each).
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
            return f"{count} independent pieces of evidence, {least} needed by min_evidence"
    draft = run.draft
    if draft is not None and draft.finish in CUT_OFF:
        return f"the text was cut off: the reply ended with {draft.finish!r}"
    if draft is not None and draft.citations:
        known = {name for call in run.evidence() for name in (call.id, call.tool, call.source)} - {""}
        dangling = _nowhere([name for name in draft.citations if type(name) is not str or name not in known], run)
        if dangling:
            told = ", ".join(short(name, 60) for name in dangling[:20])
            return f"citations point at no evidence: {told}; cite the id or the tool of a call, or an address that it found"
    return ""


def _nowhere(citations: list[str], run: Run) -> list[str]:
    """Those of the citations that are neither a whole text of a result nor an address that stands in one."""
    found = [dumps(storable(call.value)) for call in run.evidence()] if citations else []
    addresses = {word.rstrip(".!?") for text in found for word in _BETWEEN.split(text) if "://" in word}
    return [one for one in citations if not (type(one) is str and (one in addresses or any(_holds(text, one) for text in found)))]


def _holds(text: str, cited: str) -> bool:
    """Whether a text is one of those of a value that is written as JSON; the name of a field is none."""
    return bool(cited.strip()) and re.search(re.escape(dumps(storable(cited))) + "(?!:)", text) is not None


# What parts one address of a text, written as JSON, from what is around it.
_BETWEEN = re.compile(r"""[\s"'<>()\[\]{},;|`\\]+""")
