"""The path of one run in words: the states walked, and in each of them the calls and the reasons."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

from fsm_agent.core.keys import call_key
from fsm_agent.core.redact import without_secrets
from fsm_agent.core.run import Run
from fsm_agent.core.short_text import one_line, short

_COLUMNS = 80
_UNSAID = frozenset({"run_started", "call_started", "answer", "decision", "guard_closed"})
# Words of results that no body gave, and that say so themselves.
_NOT_RUN = ("refused:", "skipped:", "denied", "cancelled", "superseded")


def trace_lines(run: Run) -> list[str]:
    """The run as indented lines of at most 80 columns; arguments are shortened, and secret ones marked or told by their seal."""
    steps: list[tuple[str, list[str]]] = []
    tried = _shown(run)
    for kind, _, subject, detail in run.trace:
        if kind == "state_entered":
            steps.append((subject, []))
        elif steps:
            steps[-1][1].extend(_said(kind, subject, detail, tried))
    if steps and run.stop is not None:
        steps[-1][1].append(str(run.stop))
    width = min(max((len(state) for state, _ in steps), default=0), 20)
    return [line for state, said in steps for line in _step(state, said, width)]


def _shown(run: Run) -> Iterator[tuple[str, Any]]:
    """The tries of the run as they may be shown: a call that is not settled yet holds its secrets still."""
    secret = {call_key(call.tool, call.args): call.secret for call in run.open_calls if call.secret}
    for tool, args in run.tried:
        yield tool, without_secrets(args, secret.get(call_key(tool, args), ()) if secret else ())


def _said(kind: str, subject: str, detail: Any, tried: Iterator[tuple[str, Any]]) -> Iterable[str]:
    word = _word(detail)
    if kind == "call_admitted":
        return [_call(tried)]
    if kind == "call_refused":
        # A call that is skipped was never tried, so it is in no list of tries.
        return [] if word.startswith("skipped:") else [_call(tried), word if word.startswith(_NOT_RUN) else f"refused: {word}"]
    if kind == "call_finished":
        return [word if word.startswith(_NOT_RUN) else f"ran: {word or 'ok'}"]
    if kind == "call_reused":
        return [f"from memory: {word or 'ok'}"]
    if kind == "call_retried":
        return [f"ran: {word}; tried again", _call(tried)]
    if kind == "call_repaired":
        return [f"changed: {word}"]
    if kind in _UNSAID:
        return []
    return [f"{kind.replace('_', ' ')}: {_word(subject)} {word}".rstrip()]


def _call(tried: Iterator[tuple[str, Any]]) -> str:
    name, args = next(tried, ("?", {}))
    if not isinstance(args, dict):
        return f"{_word(name)}({short(args, 40)})"
    return f"{_word(name)}({', '.join(f'{_word(key)}={short(value, 24)}' for key, value in args.items())})"


def _word(text: Any) -> str:
    return "" if text is None else one_line(text, 80)


def _step(state: str, said: list[str], width: int) -> Iterator[str]:
    lead = f"  {_word(state):<{width}}  "
    if not said:
        yield lead.rstrip()
    for line in said:
        yield from textwrap.wrap(line, _COLUMNS, initial_indent=lead, subsequent_indent=" " * (width + 6))
        lead = " " * (width + 4)
