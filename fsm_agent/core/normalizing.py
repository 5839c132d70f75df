"""The request as a run works with it: trimmed and canonical, and refused where it says nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsm_agent.core.canonical import nfc
from fsm_agent.core.effects import Effect
from fsm_agent.core.errors import PASSES, WrongEvent
from fsm_agent.core.events import Event
from fsm_agent.core.exact_values import word
from fsm_agent.core.messages import Role
from fsm_agent.core.plain import short
from fsm_agent.core.run import Run
from fsm_agent.core.setup import Setup
from fsm_agent.core.short_text import said_by
from fsm_agent.core.transcript import first_messages, given_ids, is_history

_ROLES = tuple(role.value for role in Role)
_KINDS = (list, tuple, dict)


class Normalize:
    """Trim and canonicalize the request (NFC, line ends), apply the host's normalizer, and refuse an empty one.

    Of a message history it is what the user said; one in which nobody said anything is empty. What is neither a text nor a history
    that can be read is refused too, with what would have been one.
    """

    def enter(self, setup: Setup, run: Run) -> str | None:
        given = request = run.request
        if type(request) is str and setup.normalizer is None and (text := canonical_text(request)):
            run.request = text
            return "ready"
        if issubclass(type(request), str):
            request = canonical_text(word(request))
        elif is_history(request):
            request = [_said(entry) for entry in request]
        before = request
        if setup.normalizer is not None:
            try:
                request = setup.normalizer(request)
            except PASSES:
                raise
            except BaseException as error:
                run.note = f"the normalizer refused the request: {said_by(error)}"
                return "rejected"
        run.request = request
        # No call of the run may have the id of one that the history brings along.
        if ids := given_ids(request):
            run.call_ids |= dict.fromkeys(ids, True)
        if _is_empty(request):
            run.note = "the request is empty"
            return "rejected"
        # What the host's normalizer made of it is the host's own affair.
        if (request is before or request is given) and (fault := _fault(request)):
            run.note = fault
            return "rejected"
        return "ready"

    def ask(self, setup: Setup, run: Run) -> Effect:
        raise WrongEvent(f"run {run.id!r} asks for nothing in state {run.state!r}")

    def tell(self, setup: Setup, run: Run, event: Event) -> str | None:
        raise WrongEvent(f"run {run.id!r} was told {type(event).__name__} in state {run.state!r}; it waits for nothing")


def canonical_text(text: str) -> str:
    """What a user said, trimmed, in NFC and with one kind of line end."""
    return nfc(text.replace("\r\n", "\n").replace("\r", "\n")).strip()


def _said(entry: Mapping[Any, Any]) -> Any:
    """A message of a given history, its text canonicalized where a user said it."""
    if entry.get("role") != "user":
        return entry
    return {key: canonical_text(value) if key in ("text", "content") and isinstance(value, str) else value for key, value in entry.items()}


def _fault(request: Any) -> str:
    """Why a request is neither a text nor a message history, or an empty text."""
    kind = type(request)
    if issubclass(kind, str):
        return ""
    if not issubclass(kind, list | tuple):
        return f"the request is {short(request, 60)}; give a text, or a list of messages with role and text"
    try:
        return next((fault for number, entry in enumerate(request, 1) if (fault := _entry_fault(number, entry))), "")
    except Exception as error:
        return f"the request cannot be read: {said_by(error)}; give a text, or a list of messages with role and text"


def _entry_fault(number: int, entry: Any) -> str:
    where = f"message {number} of the request"
    if not issubclass(type(entry), Mapping):
        return f"{where} is {short(entry, 60)}; give a mapping with role and text"
    role = entry.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        return f"{where} has the role {short(role, 60)}; there are {', '.join(_ROLES)}"
    said, calls = entry.get("text", entry.get("content")), entry.get("calls")
    if role == Role.ASSISTANT and calls:
        if not (isinstance(calls, list | tuple) and all(isinstance(call, Mapping) for call in calls)):
            return f"{where} has the calls {short(calls, 60)}; give a list of mappings with id, tool and args"
        if said is None:
            return ""
    if role != Role.TOOL and not isinstance(said, str):
        mend = ", or calls" if role == Role.ASSISTANT else ""
        return f"{where} ({role}) has the text {short(said, 60)}; give a text{mend}"
    return ""


def _is_empty(request: Any) -> bool:
    kind = type(request)
    if issubclass(kind, str):
        return not word(request).strip()
    if request is None:
        return True
    if any(kind is one for one in _KINDS) and not request:
        return True
    return is_history(request) and not first_messages(request)
