"""The answer that every run ends with, composed from what the run holds."""

from __future__ import annotations

from typing import Any

import attrs

from fsm_agent.core.generated import maker
from fsm_agent.core.pending import Pending, pending_of
from fsm_agent.core.plain import cut, dumps, storable
from fsm_agent.core.run import Call, Run, Stop
from fsm_agent.core.short_text import printable
from fsm_agent.core.stops import unclear_calls
from fsm_agent.core.values import EMPTY, GOES_ON, OF_ITSELF, Status, StopReason

_OK, _UNVERIFIED = Status.OK, StopReason.UNVERIFIED
_PIECE = 500
_MOST_PIECES = 50


@attrs.frozen(kw_only=True)
class Evidence:
    """One piece of what was found: the call that found it, its tool, its value, and its declared source."""

    call_id: str
    tool: str
    value: Any
    source: str = ""


@attrs.frozen(kw_only=True)
class Answer:
    """What a run ends with: it always has a text and a reason (seed 001's fallback: assumptions, unknowns, questions).

    `usage` holds the counters: turns, tool_calls, body_runs, steps, tokens, cost, spent_s, waited_s. `path` is the states
    walked, repeats collapsed. `run` is the run itself, with its calls and trace. `stop` explains the end and names the
    raise that would let the run go on; of a run that is paused there is no stop and no reason, and `pending` says whom it
    waits for. `finish_reason` is the model's last one as received. `value` is the typed answer, where one was asked for.
    """

    status: Status
    text: str
    stop_reason: StopReason | None
    stop: Stop | None
    evidence: tuple[Evidence, ...] = ()
    assumptions: tuple[str, ...] = ()
    unknowns: tuple[str, ...] = ()
    next_questions: tuple[str, ...] = ()
    citations: tuple[str, ...] = ()
    usage: dict[str, float] = attrs.field(factory=dict)
    path: tuple[str, ...] = ()
    finish_reason: str = ""
    pending: tuple[Pending, ...] = ()
    value: Any = None
    run: Run | None = attrs.field(default=None, eq=False, repr=False)

    @property
    def ok(self) -> bool:
        """True when the run finished of itself, false when something stopped it."""
        return self.status is Status.OK


new_evidence = maker(Evidence, "call_id", "tool", "value", "source")
new_answer = maker(
    Answer, "status", "text", "stop_reason", "stop", "evidence", "assumptions", "unknowns", "next_questions", "citations", "usage",
    "path", "finish_reason", "value", "run",
)  # fmt: skip


def answer_of(run: Run, value: Any = None, whole: Run | None = None) -> Answer | None:
    """The run's answer, or None while it goes on; `value` is a typed answer as it was built, `whole` the run to hand out with it."""
    stop = run.stop
    if stop is None or run.closing:
        return None
    found = run.evidence()
    said = _said(run)
    return new_answer(
        _status(stop.reason, bool(found or said)),
        _text(run, stop, found, said),
        stop.reason,
        stop,
        _evidence(found),
        _assumptions(run) if run.fixes else (),
        _unknowns(run, stop),
        _questions(run, stop),
        run.draft.citations if run.draft is not None else (),
        usage_of(run),
        tuple(run.path),
        run.finish,
        run.answer if value is None else value,
        whole,
    )


def paused_answer(run: Run, whole: Run | None = None) -> Answer:
    """What can be said of a run that waits for people: whom it waits for, and what was found so far."""
    pending = pending_of(run)
    found = run.evidence()
    waits = ", ".join(f"{one.tool} ({one.call_id}, {one.kind})" for one in pending)
    parts = [findings(found), f"Paused: waits for {waits}."]
    return Answer(
        status=Status.PAUSED,
        text="\n\n".join(part for part in parts if part),
        stop_reason=None,
        stop=None,
        evidence=_evidence(found),
        usage=usage_of(run),
        path=tuple(run.path),
        finish_reason=run.finish,
        pending=pending,
        run=whole,
    )


def _evidence(found: list[Call]) -> tuple[Evidence, ...]:
    return tuple([new_evidence(call.id, call.tool, call.value, call.source) for call in found])


def usage_of(run: Run) -> dict[str, float]:
    """The run's counters as plain figures."""
    return {
        "turns": run.turns,
        "tool_calls": run.tool_calls,
        "body_runs": run.body_runs,
        "steps": run.steps,
        "tokens": run.tokens,
        "cost": run.cost,
        "spent_s": run.spent_s,
        "waited_s": run.waited_s,
    }


def _said(run: Run) -> str:
    if run.closing_text:
        closing, draft = run.closing_text.strip(), run.draft.text if run.draft is not None else None
        if isinstance(draft, str) and draft.strip() and draft.strip() not in closing:
            return f"{closing}\n\nNot verified: {draft.strip()}"
        return closing
    if run.draft is None:
        return ""
    text, asked = run.draft.text, run.draft.question
    said = text.strip() if isinstance(text, str) else ""
    if asked is None:
        return said
    return "\n".join([part for part in (said, asked.strip() if isinstance(asked, str) else "") if part])


def _status(reason: StopReason, something: bool) -> Status:
    if reason in OF_ITSELF:
        return _OK
    if reason in (StopReason.FATAL, StopReason.INVALID_REQUEST) or not something:
        return Status.FAILED
    return Status.PARTIAL


def _text(run: Run, stop: Stop, found: list[Call], said: str) -> str:
    # Of an answer of a form that was asked for the text is that form and nothing else.
    unclear = [] if run.answer is not None else [_whether(call) for call in unclear_calls(run)]
    if stop.reason in OF_ITSELF:
        parts = [said or findings(found) or ("" if unclear else "Done; nothing was found."), *unclear]
    else:
        parts = [said, findings(found), *unclear, f"Stopped: {_why(stop)}."]
    return "\n\n".join(part for part in parts if part)


def _why(stop: Stop) -> str:
    said = cut(printable(stop.detail), 300) if isinstance(stop.detail, str) else ""
    detail = "; ".join(part for part in (*map(str, stop.closed), said) if part)
    return f"{stop.reason.value} ({detail})" if detail else stop.reason.value


def findings(found: list[Call]) -> str:
    """What was found, a line each, cut; empty where that is nothing."""
    if not found:
        return ""
    lines = [f"- {call.tool}: {_piece(call.value)}" for call in found[:_MOST_PIECES]]
    if len(found) > _MOST_PIECES:
        lines.append(f"- and {len(found) - _MOST_PIECES} more")
    return "Found so far:\n" + "\n".join(lines)


def _piece(value: Any) -> str:
    return cut(value if isinstance(value, str) else dumps(storable(value)), _PIECE)


def _assumptions(run: Run) -> tuple[str, ...]:
    """That each repaired call meant what the repair made of it, and what that is."""
    repaired = [(name, call) for call in run.calls for name in call.repaired]
    told = []
    for fix in run.fixes:
        place = next((n for n, (name, _) in enumerate(repaired) if name == fix), None)
        became = "" if place is None else f" and became {repaired[place][1].tool} {_piece(repaired.pop(place)[1].args)}"
        told.append(f"the call was changed by the repair {fix!r}{became}")
    return tuple(told)


def _unknowns(run: Run, stop: Stop) -> tuple[str, ...]:
    calls = [*run.calls, *run.open_calls] if run.open_calls else run.calls
    failed = [f"{call.tool or 'unknown'} ({call.id}): {call.error}" for call in calls if call.error]
    if stop.reason not in OF_ITSELF:
        failed += [f"{call.tool} ({call.id}): {_nothing(call)}" for call in calls if call.ok and call.result_class is EMPTY]
    judgement = run.judgement
    refused = judgement is not None and judgement.decision != "done"
    if stop.reason is _UNVERIFIED or refused:
        why = judgement.reason if judgement is not None else ""
        why = why or ("the verifier said no" if refused else "it was not checked")
        failed.append(f"the answer did not pass verification: {why}")
    elif stop.reason not in OF_ITSELF:
        failed.append(f"the answer was not verified: the run stopped ({stop.reason.value})")
    return tuple(failed)


def _nothing(call: Call) -> str:
    """That a call found nothing, with the reason that its result gives in seed 001's form."""
    why = call.value.get("reason") if type(call.value) is dict else None
    return f"nothing found ({cut(why, _PIECE)})" if type(why) is str and why.strip() else "nothing found"


def _questions(run: Run, stop: Stop) -> tuple[str, ...]:
    unclear = [_whether(call) for call in run.calls if call.error == "unknown_outcome"]
    return (*unclear, *_next(run, stop))


def _whether(call: Call) -> str:
    return f"Did {call.tool} ({call.id}) take effect? It was begun, and what became of it is not known."


def _next(run: Run, stop: Stop) -> tuple[str, ...]:
    draft = run.draft
    if draft is not None and draft.question:
        return (draft.question,)
    if stop.raise_to:
        return (f"May the run go on with {stop.raises()}?",)
    if stop.reason in OF_ITSELF:
        return ()
    if stop.reason in GOES_ON:
        return ("May the run go on?",)
    return ("What should be tried instead?",)
