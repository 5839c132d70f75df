"""Sealing in a run: what its calls, tries, words and journal hold of secrets, taken out once a call is settled.

Until then a call is made with them, and what was measured of them is noted, for a seal cannot be measured in a replay.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

import attrs

from fsm_agent.core.decoding import decoded
from fsm_agent.core.events import Approved, CallEvent, Decided, Judged, Raised, Returned
from fsm_agent.core.exact_values import exact_args
from fsm_agent.core.keys import call_key
from fsm_agent.core.plain import dumps
from fsm_agent.core.redact import MARK, marked, redacted, sealed, secret_texts, told_words
from fsm_agent.core.run import Call, Run
from fsm_agent.core.tools import Tool
from fsm_agent.core.values import Decision, Judgement

# Noted before the faults of a call that had no secrets at first.
_LATE = "late"


class Lookup(Protocol):
    """Where a tool is looked up by its name."""

    def get(self, name: Any) -> Tool | None:
        """The tool of that name, or None."""


def seal_call(run: Run, call: Call) -> None:
    """Seal the secrets of a settled call, wherever the run holds them but for its journal.

    A repair that was due is given up with them: it would change the arguments, and only a seal of those is left.
    """
    seal_tries(run, call)
    former = former_secrets(run, call)
    call.args = sealed(call.args, call.secret, run.id, former)
    call.edited = sealed(call.edited, call.secret, run.id, former)
    call.repair = None
    if call.parent or _came_late(run, call):
        # What a program called stands in no decision, and what was asked for of another tool was no secret.
        return
    if run.unsealed is None:
        run.unsealed = {}
    run.unsealed[call.id] = list(call.secret)


def seal_tries(run: Run, call: Call) -> None:
    """Seal the secrets of a call where the run lists its tries, also as it was before a person changed it."""
    keys = {call_key(call.tool, args) for args in (call.args, call.edited) if args is not None}
    tried: list[tuple[str, Any]] = []
    for tool, args in run.tried:
        ours = tool == call.tool and call_key(tool, args) in keys
        tried.append((tool, sealed(args, call.secret, run.id, former_secrets(run, call)) if ours else args))
    run.tried = tried


def former_secrets(run: Run, call: Call) -> Collection[str]:
    """The texts that may tell the secrets which an open call had before it was changed."""
    return () if run.former is None else run.former.get(call.id, ())


def keep_former(run: Run, call: Call) -> None:
    """Keep in mind the secrets of an open call that is going to be changed: other arguments may repeat them still."""
    if texts := secret_texts(call.args, call.secret):
        if run.former is None:
            run.former = {}
        run.former[call.id] = sorted({*former_secrets(run, call), *texts})


def noted_fault(run: Run, call: Call, fault: str) -> str:
    """The fault of the arguments of a call with secrets, noted in the run: what was sealed cannot be measured in a replay again."""
    if run.faults is None:
        run.faults = {}
    noted = run.faults.setdefault(call.id, [_LATE] if call.tried_repairs else [])
    if run.replaying is not None:
        known = (run.replaying.faults or {}).get(call.id, ())
        fault = known[len(noted)] if len(noted) < len(known) else fault
    noted.append(fault)
    return fault


def _came_late(run: Run, call: Call) -> bool:
    """Whether a repair gave the call to a tool that takes secrets: what was asked for before that was none."""
    return bool(call.tried_repairs) and (run.faults or {}).get(call.id, [_LATE])[0] == _LATE


def marked_event(run: Run, call: Call, tool: Tool, event: CallEvent) -> Collection[str]:
    """Take the secrets of a call out of what the host says of it, before it is journaled; returns the texts that may tell them.

    What a body returns is not the call's secret.
    """
    texts = [*secret_texts(tool.filled(call.args), tool.secret), *former_secrets(run, call)]
    if isinstance(event, Raised):
        event.message = marked(event.message, texts)
    if isinstance(event, Raised | Returned) and event.verdict is not None:
        event.verdict = attrs.evolve(event.verdict, reason=marked(event.verdict.reason, texts))
    return texts


def seal_journal(run: Run) -> None:
    """Seal the secrets of the calls that were just folded in the decision and the verdict that asked for them."""
    seals, run.unsealed = run.unsealed or {}, None
    former, run.former = run.former or {}, {name: texts for name, texts in (run.former or {}).items() if name not in seals} or None
    for _, event in run.journal:
        if isinstance(event, Approved) and event.edited and event.call_id in seals:
            event.args = sealed(decoded(event.args), seals[event.call_id], run.id, former.get(event.call_id, ()))
    settled = [call for call in (*run.calls, *run.open_calls) if not call.parent]
    for call_id in [call.id for call in settled if call.by_verifier and call.id in seals]:
        verdicts = (event for _, event in reversed(run.journal) if isinstance(event, Judged) and event.judgement.next_action)
        if (verdict := next(verdicts, None)) is None:
            # The journal of a saved run need not hold what its calls were asked for by.
            del seals[call_id]
            continue
        action = _sealed_call(verdict.judgement.next_action, seals.pop(call_id), run.id, former.get(call_id, ()))
        verdict.judgement = run.judgement = attrs.evolve(verdict.judgement, next_action=action)
    if seals:
        calls = [call for call in settled if not call.by_verifier]
        turn = max(call.turn for call in calls if call.id in seals)
        asked = [call.id for call in calls if call.turn == turn]
        decided = next((event for _, event in reversed(run.journal) if isinstance(event, Decided)), None)
        if decided is None:
            return
        pairs = zip(decided.decision.calls or (), asked, strict=False)
        decision, sealing = decided.decision, []
        for call, call_id in pairs:
            seal = seals.get(call_id)
            if seal is not None and decision.kept is not None and _names_secret(decision.kept, seal, call.args):
                # Nothing of it may be changed, so what its provider would have back is given up as a whole.
                decision = attrs.evolve(decision, kept=None)
            sealing.append(_sealed_call(call, seal, run.id, former.get(call_id, ())))
        decided.decision = attrs.evolve(decision, calls=tuple(sealing))


def _names_secret(kept: Any, secret: Collection[str], args: Any) -> bool:
    given, text = decoded(exact_args(args)), dumps(kept)
    return not isinstance(given, Mapping) or redacted(text, secret, given) != text


def guarded_words(box: Lookup, decision: Decision) -> Decision:
    """A decision whose words tell nothing of the secrets that its calls take; one without calls as it is."""
    calls, texts, readable = list(decision.calls or ()), set[str](), True
    for n, call in enumerate(calls):
        tool = box.get(call.tool)
        if tool is not None and tool.secret:
            calls[n] = told_words(call, tool.secret)
            args = decoded(exact_args(call.args))
            readable = readable and isinstance(args, Mapping)
            texts.update(secret_texts(args, tool.secret))
    if not calls:
        return decision
    # As of the words of the call itself: where its secret cannot be told from the rest, nobody knows what tells of it.
    text, question = [words and _told(words, texts, readable) for words in (decision.text, decision.question)]
    citations = tuple([_told(one, texts, readable) for one in decision.citations])
    return attrs.evolve(decision, calls=tuple(calls), text=text, question=question, citations=citations)


def _told(words: str, texts: Collection[str], readable: bool) -> str:
    return marked(words, texts) if readable else MARK


def guarded_verdict(box: Lookup, judgement: Judgement) -> Judgement:
    """A verdict whose words tell nothing of the secrets that its next action takes."""
    action = judgement.next_action
    tool = box.get(action.tool) if action is not None else None
    if action is None or tool is None or not tool.secret:
        return judgement
    args = decoded(exact_args(action.args))
    reason = judgement.reason and (redacted(judgement.reason, tool.secret, args) if isinstance(args, Mapping) else MARK)
    return attrs.evolve(judgement, reason=reason, next_action=told_words(action, tool.secret))


def _sealed_call(call: Any, secret: list[str] | None, run_id: str, former: Collection[str]) -> Any:
    return call if secret is None else attrs.evolve(call, args=sealed(decoded(call.args), secret, run_id, former))
