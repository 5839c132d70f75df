"""What a decision makes of a run: calls to pass through the gate, a text to verify, or a fault to feed back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from fsm_agent.core.decoding import decoded
from fsm_agent.core.events import DecisionFailed
from fsm_agent.core.exact_values import exact_args, exact_usage, word
from fsm_agent.core.gate import Toolbox, know_secrets
from fsm_agent.core.plain import storable
from fsm_agent.core.run import ClosedGuard, Run, new_call
from fsm_agent.core.secret_seals import seal_call
from fsm_agent.core.typed_answer import TypedAnswer
from fsm_agent.core.values import Decision, Policy, StopReason, ToolCall, Usage

# What a finish reason means when the decision itself does not say enough; the rest counts as a plain stop.
FINISHES = {
    "length": StopReason.TRUNCATED,
    "max_tokens": StopReason.TRUNCATED,
    "content_filter": StopReason.CONTENT_FILTER,
    "refusal": StopReason.CONTENT_FILTER,
}
CUT_OFF = frozenset(FINISHES)
_MOST_COST = 1e15


def accept(run: Run, decision: Decision, policy: Policy, box: Toolbox, typed: TypedAnswer | None = None) -> str:
    """Take a decision of exact parts in; returns ``decided``, ``proposed``, ``failed`` (fed back) or ``stopped``.

    A call that names no tool is refused alone where another one can be taken. A final text is measured where a `typed` answer is
    wanted, and fed back like any fault.
    """
    run.turns += 1
    if decision.usage is not None:
        spend(run, decision.usage)
    calls: tuple[ToolCall, ...] | None = decision.calls
    if calls is None:
        run.last_emitted = 0
        run.flat_trace.extend(("decision", run.spent_s, str(run.turns), 0))
        return malformed(run, "the calls of the decision are no calls", StopReason.INVALID_DECISION)
    emitted, usable = len(calls), False
    for call in calls:
        if call.tool:
            usable = True
    run.flat_trace.extend(("decision", run.spent_s, str(run.turns), emitted))
    run.emitted_calls += emitted
    run.last_emitted = emitted
    if run.failed_requests:
        run.failed_requests, run.note = 0, ""
    run.finish = ended = decision.finish
    if ended in CUT_OFF:
        return _cut_off(run, decision, FINISHES[ended], policy, box)
    text = _text(decision) if decision.text is not None else ""
    if usable and not (text and ended == "stop"):
        if run.invalid_decisions:
            overcome(run)
        open_calls(run, calls)
        return "decided"
    if text or _question(decision):
        if calls:
            _skip(run, box, decision, "final", "the decision was final")
        if typed is not None and text:
            run.answer, fault = typed.read(text)
            if fault:
                return malformed(run, f"the answer is not of the form that was asked for: {fault}", StopReason.INVALID_DECISION)
        if run.invalid_decisions:
            overcome(run)
        run.draft = attrs.evolve(decision, calls=()) if calls else decision
        return "proposed"
    if calls:
        why = "no call of the decision names a tool"
        _skip(run, box, decision, StopReason.INVALID_DECISION, why)
        return malformed(run, why, StopReason.INVALID_DECISION)
    if policy.on_finish.get("empty", "continue") == "end":
        return _stop(run, StopReason.MODEL_EMPTY, "the decision held neither a call nor a text")
    return malformed(run, "the decision held neither a call nor a text", StopReason.MODEL_EMPTY)


def count_turn(run: Run) -> None:
    """Count a model turn that has asked for no call."""
    run.turns += 1
    run.last_emitted = 0


def reject(run: Run, event: DecisionFailed) -> str:
    """Take in that no decision could be had: a fault is fed back, bounded; an error ends the run, or passes (``passing``)."""
    count_turn(run)
    event.usage = exact_usage(event.usage)
    if event.usage is not None:
        spend(run, event.usage)
    run.flat_trace.extend(("decision_failed", run.spent_s, event.error, event.message))
    text = f"{event.error}: {event.message}" if event.message else event.error
    if event.kind == "malformed":
        return malformed(run, text, StopReason.INVALID_DECISION)
    if event.kind == "passing":
        run.note = text
        return "passing"
    return _stop(run, StopReason.MODEL_ERROR, text)


def take_text(run: Run, text: Any) -> None:
    """Keep the closing answer, where it says anything."""
    said = word(text)
    if said.strip():
        run.closing_text = said


def _text(decision: Decision) -> str:
    return decision.text.strip() if decision.text is not None else ""


def _question(decision: Decision) -> str:
    return decision.question.strip() if decision.question is not None else ""


def spend(run: Run, usage: Usage) -> None:
    """Count what a model's reply cost, as `exact_usage` read it: a counter never falls."""
    run.tokens += usage.input_tokens + usage.output_tokens
    if usage.cost < _MOST_COST:
        run.cost += usage.cost


def open_calls(run: Run, calls: Sequence[ToolCall], by_verifier: bool = False) -> None:
    """Open calls that were asked for; a missing or repeated id gets a fresh one, and what is no name names no tool."""
    known = run.call_ids
    for call in calls:
        wanted, tool = call.id, call.tool
        if not wanted or wanted in known:
            number = len(known) + 1
            while (wanted := f"call-{number}") in known:
                number += 1
        known[wanted] = True
        run.open_calls.append(new_call(wanted, tool, call.args, run.turns, call.intent, call.reason, by_verifier))


def _skip(run: Run, box: Toolbox, decision: Decision, word: str, why: str) -> None:
    """Give every call of a decision its one result without taking it."""
    if not decision.calls:
        return
    open_calls(run, decision.calls)
    for call in run.open_calls:
        call.args = storable(decoded(exact_args(call.args)))
        call.ok, call.error, call.detail = False, f"skipped:{word}", why
        run.flat_trace.extend(("call_refused", run.spent_s, call.id, call.error))
        tool = box.get(call.tool)
        if tool is not None and tool.secret:
            know_secrets(call, tool)
            seal_call(run, call)
    run.calls += run.open_calls
    run.open_calls = []


def _cut_off(run: Run, decision: Decision, reason: StopReason, policy: Policy, box: Toolbox) -> str:
    """A cut-off or filtered turn: its calls do not run, its text is kept, and it never counts as a success."""
    why = f"the reply ended with {decision.finish!r}"
    _skip(run, box, decision, reason, why)
    if _text(decision):
        run.draft = attrs.evolve(decision, calls=())
    return _stop(run, reason, why) if ends_run(policy, decision.finish) else malformed(run, why, reason)


def ends_run(policy: Policy, finish: str) -> bool:
    """Whether a reply that was cut off or filtered, by its finish reason, ends the run, or is fed back."""
    name = "length" if FINISHES[finish] is StopReason.TRUNCATED else finish
    return policy.on_finish.get(name, "end") == "end"


def malformed(run: Run, why: str, reason: StopReason) -> str:
    """Feed a fault back, so many times in a row: ``failed``, or ``stopped`` with the guard noted."""
    run.invalid_decisions += 1
    run.repair_due = False
    run.note = why
    run.flat_trace.extend(("malformed", run.spent_s, str(run.turns), why))
    most = run.limits.max_invalid_decisions
    if most is not None and run.invalid_decisions > most:
        run.close(
            ClosedGuard(
                guard="decisions_usable", limit="max_invalid_decisions", allowed=most,
                used=run.invalid_decisions, opens_at=run.invalid_decisions, reason=reason,
            )
        )
        return "stopped"
    return "failed"


def overcome(run: Run) -> None:
    """Note that a reply is usable again: what was wrong before it is no word about how the run ends."""
    run.invalid_decisions, run.note = 0, ""


def _stop(run: Run, reason: StopReason, why: str) -> str:
    run.stopping = reason
    run.note = why
    return "stopped"
