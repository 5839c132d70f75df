"""The request as a run works with it: trimmed and canonical, and refused where it says nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsm_agent.core.canonical import nfc
from fsm_agent.core.effects import Effect
from fsm_agent.core.errors import WrongEvent
from fsm_agent.core.events import Event
from fsm_agent.core.run import Run
from fsm_agent.core.setup import Setup
from fsm_agent.core.short_text import said_by
from fsm_agent.core.transcript import first_messages, given_ids, is_history

_KINDS = frozenset({list, tuple, dict})


class Normalize:
    """Trim and canonicalize the request (NFC, line ends), apply the host's normalizer, and refuse an empty one.

    Of a message history it is what the user said; one in which nobody said anything is empty.
    """

    def enter(self, setup: Setup, run: Run) -> str | None:
        request = run.request
        if isinstance(request, str):
            request = _canonical(request)
        elif is_history(request):
            request = [_said(entry) for entry in request]
        if setup.normalizer is not None:
            try:
                request = setup.normalizer(request)
            except Exception as error:
                run.note = f"the normalizer refused the request: {said_by(error)}"
                return "rejected"
        run.request = request
        # No call of the run may have the id of one that the history brings along.
        run.call_ids |= dict.fromkeys(given_ids(request), True)
        if _is_empty(request):
            run.note = "the request is empty"
            return "rejected"
        return "ready"

    def ask(self, setup: Setup, run: Run) -> Effect:
        raise WrongEvent(f"run {run.id!r} asks for nothing in state {run.state!r}")

    def tell(self, setup: Setup, run: Run, event: Event) -> str | None:
        raise WrongEvent(f"run {run.id!r} was told {type(event).__name__} in state {run.state!r}; it waits for nothing")


def _canonical(text: str) -> str:
    return nfc(text.replace("\r\n", "\n").replace("\r", "\n")).strip()


def _said(entry: Mapping[Any, Any]) -> Any:
    """A message of a given history, its text canonicalized where a user said it."""
    if entry.get("role") != "user":
        return entry
    return {key: _canonical(value) if key in ("text", "content") and isinstance(value, str) else value for key, value in entry.items()}


def _is_empty(request: Any) -> bool:
    if request is None or (isinstance(request, str) and not request.strip()) or (type(request) in _KINDS and not request):
        return True
    return is_history(request) and not first_messages(request)
