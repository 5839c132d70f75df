"""What deciders, verifiers and classifiers say, made exact: texts are texts, figures are figures, and a run of it can be saved.

A value of another kind says nothing in its place; nothing of it is called, so a value that raises at every look does no harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

import attrs

from fsm_agent.core.decoding import nests_too_deep
from fsm_agent.core.plain import CONTAINERS, LEAVES, OPAQUE, opaque_text, short, storable, unwrap
from fsm_agent.core.values import Decision, Judgement, ToolCall, Usage, Verdict

_NO_CALLS: Any = None
_NOTHING = ""
# What is left out is these very objects.
_MOST_TOLD = 60
_TOO_DEEP = "<nested deeper than 200 levels>"


def word(value: Any, default: str = "") -> str:
    """A text of another class as an exact one, and `default` for what is no text."""
    kind = type(value)
    if kind is str:
        return str(value)
    try:
        return str.__str__(value) if issubclass(kind, str) else default
    except Exception:
        return default


def exact_args(args: Any) -> Any:
    """Arguments whose outermost value is of an exact plain type; what is none, or cannot be read, is named by its type."""
    kind = type(args)
    if kind is dict or kind is str or args is None:
        return args
    try:
        if kind in LEAVES or kind in CONTAINERS:
            return args
        form = unwrap(args) if issubclass(kind, str | bytes | Mapping) else OPAQUE
    except Exception:
        form = OPAQUE
    return opaque_text(args) if form is OPAQUE else form


def seen_exact(decision: Decision) -> int:
    """How a decision was found: 0 where `exact_decision` may change it, else 1, or 2 where there are words beside its calls.

    Only the commonest decisions are looked at so closely; it is asked at every turn.
    """
    if type(decision) is not Decision or type(decision.calls) is not tuple or type(decision.finish) is not str:
        return 0
    found, text = 1, decision.text
    if text is not None:
        if type(text) is not str:
            return 0
        if text and decision.calls:
            found = 2
    if decision.question is not None or decision.usage is not None or decision.kept is not None:
        return 0
    if type(decision.citations) is not tuple or decision.citations:
        return 0
    for call in decision.calls:
        if type(call) is not ToolCall or not (type(call.args) is dict or call.args is None or type(call.args) is str):
            return 0
        if not type(call.tool) is type(call.id) is str:
            return 0
        # Most say nothing beside; there is one empty text.
        if not call.intent is call.reason is call.changed is _NOTHING:
            if not type(call.intent) is type(call.reason) is type(call.changed) is str:
                return 0
            if call.intent or call.reason or call.changed:
                found = 2
    return found


def exact_decision(decision: Decision) -> Decision:
    """A decision of exact parts; calls that are none are None, which is no list of calls, as it was none before."""
    if not issubclass(type(decision), Decision):
        return Decision(calls=_NO_CALLS)
    text, question = decision.text, decision.question
    return Decision(
        calls=_calls(decision.calls),
        text=None if text is None else word(text),
        citations=_citations(decision.citations),
        question=None if question is None else word(question),
        finish=word(decision.finish),
        usage=exact_usage(decision.usage),
        kept=storable(decision.kept),
    )


def savable(decision: Decision) -> Decision:
    """The decision without arguments that no saved run could hold: they are named in their place, and are no arguments then."""
    # Most arguments hold no container, and every decision of a model comes here.
    for call in decision.calls or ():
        args = call.args
        for part in args.values() if type(args) is dict else args if type(args) is list else ():
            if (type(part) is dict or type(part) is list) and nests_too_deep(args):
                return attrs.evolve(decision, calls=tuple(map(_shallow, decision.calls)))
    return decision


def _shallow(call: ToolCall) -> ToolCall:
    nests = type(call.args) is dict or type(call.args) is list
    return attrs.evolve(call, args=_TOO_DEEP) if nests and nests_too_deep(call.args) else call


def exact_call(call: ToolCall) -> ToolCall:
    """A call of exact parts; a tool's name that is no text names no tool."""
    return ToolCall(word(call.tool), exact_args(call.args), word(call.id), word(call.intent), word(call.reason), word(call.changed))


def exact_usage(usage: Any) -> Usage | None:
    """The usage of exact figures, those that are none left out; None for what is no usage."""
    if type(usage) is not Usage:
        return None
    return Usage(input_tokens=_count(usage.input_tokens), output_tokens=_count(usage.output_tokens), cost=_cost(usage.cost))


def exact_judgement(judgement: Judgement) -> Judgement:
    """A verdict of exact parts; a next action that is no call is none."""
    action = judgement.next_action
    return Judgement(
        decision=word(judgement.decision),
        reason=word(judgement.reason),
        next_action=exact_call(action) if type(action) is ToolCall else None,
    )


def exact_verdict(verdict: Verdict) -> Verdict:
    """A classifier's verdict of exact parts; seconds that are no finite number say nothing."""
    after = verdict.retry_after_s
    seconds = after if type(after) is int or (type(after) is float and after == after) else None
    if type(verdict.reason) is str and seconds is after:
        return verdict
    reason = word(verdict.reason, "") or short(verdict.reason, 200) if verdict.reason is not None else ""
    return attrs.evolve(verdict, reason=reason, retry_after_s=seconds)


def _calls(calls: Any) -> Any:
    if not _listed(calls) or not all(type(call) is ToolCall for call in calls):
        return _NO_CALLS
    return tuple([exact_call(call) for call in calls])


def _citations(citations: Any) -> tuple[str, ...]:
    if citations is None:
        return ()
    given = citations if _listed(citations) else (citations,)
    # What is no text points at nothing, and must not be taken for the id that it looks like.
    return tuple([word(one) if type(one) is str or word(one) else f"<{short(one, _MOST_TOLD)}>" for one in given])


def _count(value: Any) -> int:
    return value if type(value) is int and value > 0 else 0


def _cost(value: Any) -> float:
    return value if (type(value) is int or type(value) is float) and _finite(value) and value > 0 else 0.0


def _finite(value: float) -> bool:
    try:
        return isfinite(value)
    except OverflowError:
        return False


def _listed(value: Any) -> bool:
    # By identity: a metaclass may raise where its classes are compared.
    return type(value) is tuple or type(value) is list
