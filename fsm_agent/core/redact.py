"""Keeping the secrets that a contract declares out of what people read and out of what is written down.

A secret argument is needed until its call is settled. Then the run keeps a seal of it: equal secrets of one run have equal
seals, so that repetitions are still told, and nothing else can be read from it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Protocol

import attrs

from fsm_agent.core.decoding import decoded
from fsm_agent.core.events import Approved, CallEvent, Decided, Judged, Raised, Returned
from fsm_agent.core.exact import exact_args
from fsm_agent.core.exact import word as exact_word
from fsm_agent.core.keys import call_key
from fsm_agent.core.plain import CONTAINERS, LEAVES, dumps, storable
from fsm_agent.core.run import Call, Run
from fsm_agent.core.tools import Tool
from fsm_agent.core.values import Decision, Judgement, ToolCall


class Lookup(Protocol):
    """Where a tool is looked up by its name."""

    def get(self, name: Any) -> Tool | None: ...


MARK = "[redacted]"
_SEAL = re.compile(r"\[redacted [0-9a-f]{8}\]")
_SHORTEST = 3
_MOST_PARTS = 10_000
# Noted before the faults of a call that had no secrets at first.
_LATE = "late"


def redacted(text: str, secret: Collection[str], args: Any) -> str:
    """The text without the values of secret arguments, nested ones and their escaped spellings too.

    What has fewer than three characters stays: it says nothing.
    """
    return marked(text, secret_texts(args, secret)) if secret and text else text


def secret_texts(args: Any, secret: Collection[str]) -> list[str]:
    """Every text in which the secret arguments may be told, sorted; none where the arguments are no mapping. A seal is no secret."""
    if not isinstance(args, Mapping):
        return []
    parts = (part for name in secret for part in _parts(_value(args, name)) if not is_sealed(part))
    return sorted({spelling for part in parts for spelling in _spellings(part)})


def marked(text: str, spellings: Collection[str]) -> str:
    """The text with a mark in place of each of these."""
    if not spellings:
        return text
    # In one pass with the longest first, so that a short secret leaves no rest of a longer one and none touches a mark.
    return re.sub("|".join(map(re.escape, sorted(spellings, key=len, reverse=True))), MARK, text)


def without_secrets(args: Any, secret: Collection[str]) -> Any:
    """The arguments with the secret ones marked, for everything that is shown or written down.

    Arguments that are no mapping are marked as a whole: nobody can say which part of them is the secret one.
    """
    if not secret:
        return args
    if not isinstance(args, Mapping):
        return MARK
    return {name: MARK if name in secret else value for name, value in args.items()}


def _value(args: Mapping[str, Any], name: str) -> Any:
    try:
        return args.get(name)
    except Exception:
        return None


def _parts(value: Any) -> Iterator[Any]:
    """The leaves of a value, keys of its mappings included; each container is looked into once, and not without bound.

    An object is looked into as far as it has a plain form, and is told by its text too, as it would be written out.
    """
    todo, seen = [storable(value)], set()
    if (said := _text_of(value)) is not None:
        todo.append(said)
    for part in todo:
        if isinstance(part, dict | list | tuple | set | frozenset):
            if id(part) not in seen and len(todo) < _MOST_PARTS:
                seen.add(id(part))
                todo += [*part.keys(), *part.values()] if isinstance(part, dict) else part
        else:
            yield part


def _text_of(value: Any) -> str | None:
    """How an object that is not plain would be written out; None for a plain value and for one that cannot be."""
    try:
        return None if type(value) in LEAVES or type(value) in CONTAINERS else exact_word(str(value))
    except Exception:
        return None


def _spellings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if len(value) >= _SHORTEST:
            yield from (value, repr(value)[1:-1], json.dumps(value)[1:-1])
    elif isinstance(value, bytes | bytearray):
        if len(value) >= _SHORTEST:
            yield repr(bytes(value))[2:-1]
            yield bytes(value).decode("utf-8", "backslashreplace")
    elif value is not None and not isinstance(value, bool):
        try:
            text = str(value)
        except ValueError:
            # An integer beyond Python's digit limit is written out nowhere.
            return
        if len(text) >= _SHORTEST:
            yield text


def is_sealed(value: Any) -> bool:
    """True for the seal of a secret."""
    return type(value) is str and _SEAL.fullmatch(value) is not None


def key_form(args: Any, secret: Collection[str], run_id: str, former: Collection[str] = ()) -> Any:
    """The arguments as a repetition is told by: seals in place of secrets.

    Of arguments that are no mapping nobody can say which part is the secret one, so they are sealed as a whole.
    """
    return sealed(args, secret, run_id, former) if isinstance(args, Mapping) else _seal(args, run_id)


def memory_form(args: Any, secret: Collection[str], former: Collection[str] = ()) -> Any:
    """The arguments as a result is remembered by, where others may look: digests in place of secrets, too long to coincide."""
    if not isinstance(args, Mapping):
        return args
    texts = [*secret_texts(args, secret), *former]
    hidden = {name for name, value in args.items() if name in secret or _repeats(value, texts)}
    # An object that only its identity tells apart stays what it is, so that no result is remembered by it.
    known = {name for name in hidden if call_key("", (args[name],), True)}
    return {name: _digest("memory", value, 16) if name in known else value for name, value in args.items()}


def told_words(call: ToolCall, secret: Collection[str]) -> ToolCall:
    """A call whose intent, reason and change tell nothing of the secrets that it takes."""
    args = decoded(exact_args(call.args))
    words = {name: word for name in ("intent", "reason", "changed") if (word := getattr(call, name))}
    # Where nobody can say which part of the arguments is the secret one, nobody can say what tells of it.
    readable = isinstance(args, Mapping)
    return attrs.evolve(call, **{name: redacted(word, secret, args) if readable else MARK for name, word in words.items()})


def sealed(args: Any, secret: Collection[str], run_id: str, former: Collection[str] = ()) -> Any:
    """The arguments with a seal in place of each secret one; what repeats a secret under another name is marked, or sealed too.

    So is what repeats one of the `former` texts, of secrets that others have taken the place of. Arguments that are no mapping are
    sealed as a whole.
    """
    if not (secret or former) or args is None:
        return args
    if not isinstance(args, Mapping):
        return _seal(args, run_id)
    texts = [*secret_texts(args, secret), *former]
    return {
        name: _seal(value, run_id) if name in secret else _without_repeats(value, texts, run_id) for name, value in args.items()
    }


def _repeats(value: Any, texts: Collection[str]) -> bool:
    """Whether a value has one of these texts somewhere in it."""
    if type(value) is not str and type(value) not in CONTAINERS:
        return False
    parts = [value] if type(value) is str else _parts(value)
    return any(type(part) is str and marked(part, texts) != part for part in parts)


def _without_repeats(value: Any, texts: Collection[str], run_id: str) -> Any:
    if type(value) is str:
        return marked(value, texts)
    return _seal(value, run_id) if _repeats(value, texts) else value


def _seal(value: Any, run_id: str) -> str:
    return str(value) if is_sealed(value) else f"[redacted {_digest(run_id, value, 4)}]"


def _digest(whose: str, value: Any, size: int) -> str:
    text = call_key(whose, (value,)).encode("utf-8", "backslashreplace")
    return hashlib.blake2b(text, digest_size=size).hexdigest()


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
    """In which texts the secrets may be told that an open call had before it was changed."""
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
    """Take the secrets of a call out of what the host says of it, before it is journaled; in which texts they may be told.

    What a body returns is not the call's secret.
    """
    texts = [*secret_texts(call.args, tool.secret), *former_secrets(run, call)]
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
        verdict = next(event for _, event in reversed(run.journal) if isinstance(event, Judged) and event.judgement.next_action)
        action = _sealed_call(verdict.judgement.next_action, seals.pop(call_id), run.id, former.get(call_id, ()))
        verdict.judgement = run.judgement = attrs.evolve(verdict.judgement, next_action=action)
    if seals:
        calls = [call for call in settled if not call.by_verifier]
        turn = max(call.turn for call in calls if call.id in seals)
        asked = [call.id for call in calls if call.turn == turn]
        decided = next(event for _, event in reversed(run.journal) if isinstance(event, Decided))
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
    """A decision whose words tell nothing of the secrets that its calls take; of another one itself."""
    text, calls = decision.text, list(decision.calls or ())
    for n, call in enumerate(calls):
        tool = box.get(call.tool)
        if tool is not None and tool.secret:
            calls[n] = told_words(call, tool.secret)
            text = None if text is None else redacted(text, tool.secret, decoded(exact_args(call.args)))
    return attrs.evolve(decision, calls=tuple(calls), text=text) if calls else decision


def guarded_verdict(box: Lookup, judgement: Judgement) -> Judgement:
    """A verdict whose words tell nothing of the secrets that its next action takes."""
    action = judgement.next_action
    tool = box.get(action.tool) if action is not None else None
    if action is None or tool is None or not tool.secret:
        return judgement
    reason = redacted(judgement.reason, tool.secret, decoded(exact_args(action.args)))
    return attrs.evolve(judgement, reason=reason, next_action=told_words(action, tool.secret))


def _sealed_call(call: Any, secret: list[str] | None, run_id: str, former: Collection[str]) -> Any:
    return call if secret is None else attrs.evolve(call, args=sealed(decoded(call.args), secret, run_id, former))
