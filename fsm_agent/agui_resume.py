"""Interrupts of the Agent User Interaction Protocol: what a paused run asks of people and clients, and what their answers do.

A call that waits becomes one interrupt, whose id is the call's. An approval has the reason ``tool_call`` and is answered with

    {"approved": true, "editedArgs": {...}, "token": "..."}     editedArgs and token may be left out
    {"approved": false, "reason": "..."}                        reason may be left out

`editedArgs` replace all arguments and are measured like any; a secret one that still stands there as it was shown
(``[redacted]``) keeps its value. `token`, from the interrupt's metadata, makes sure that the call is the one that was shown.

A client's call has the reason ``input_required`` and is answered with ``{"value": ...}``, or with ``{"error": "...", "message": "..."}``
where it failed. An entry of the status ``cancelled`` denies an approval (``denied:abandoned``) and fails a client's call
(``raised:Abandoned``). A late approval is refused; a late denial is taken. Entries that leave calls uncovered are taken: the run
stays paused for the others, and its next stream ends with their interrupts again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from fsm_agent.core.errors import CannotDecide
from fsm_agent.core.held_calls import APPROVAL
from fsm_agent.core.pending import Pending, decidable
from fsm_agent.core.plain import cut, dumps, short, storable, to_json
from fsm_agent.core.run import Run
from fsm_agent.core.tools import Tool
from fsm_agent.host.clock import SystemClock

if TYPE_CHECKING:
    from fsm_agent.agent import Agent

METADATA: Final = "fsm_agent"
"""The key under which interrupts and results carry what the protocol has no field for."""
_ANYTHING: Final[dict[str, Any]] = {"type": "object"}
_MOST_ARGS: Final = 300


def unicode_text(text: str) -> str:
    """The text with each lone surrogate spelled out, since the protocol's models take none."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def interrupt_fields(agent: Agent, pending: Pending) -> dict[str, Any]:
    """The fields of the protocol's Interrupt for one call that waits."""
    tool = agent.engine.setup.box.get(pending.tool)
    approval = pending.kind == APPROVAL
    why = pending.reason or pending.intent
    shown = cut(dumps(storable(pending.args)), _MOST_ARGS)
    asked = f"May {pending.tool} run with {shown}?" if approval else f"{pending.tool} is for the client to run with {shown}."
    call_id = unicode_text(pending.call_id)
    known = {"tool": pending.tool, "args": pending.args, "kind": pending.kind, "token": pending.token, "intent": pending.intent}
    return {
        "id": call_id,
        "reason": "tool_call" if approval else "input_required",
        "message": unicode_text(f"{asked} {why}" if why else asked),
        "tool_call_id": call_id,
        "response_schema": _approval_schema(tool) if approval else _client_schema(tool),
        "expires_at": _instant(pending.expires_at),
        "metadata": {METADATA: to_json(storable(known))},
    }


def apply_resume(agent: Agent, run: Run, entries: Iterable[Any] | None) -> tuple[Pending, ...]:
    """Tell a paused run what people and clients answered, and return the calls that it waits for still; drive it on then.

    `entries` are the protocol's ResumeEntry objects, or mappings of the same fields (``RunAgentInput.resume``; None: no answer).
    Raises CannotDecide, the run unchanged, for an id that the run does not wait for, a second answer to one call, a payload
    that is not of the form this module's head gives, and an approval that comes too late or was shown for another call.
    """
    if entries is not None and not (isinstance(entries, Iterable) and not isinstance(entries, str | bytes | Mapping)):
        raise CannotDecide(f"the resume is {short(entries, 60)}; give the request's list of entries, or None")
    waiting = {unicode_text(one.call_id): one for one in agent.pending(run)}
    decisions: dict[str, _Decision] = {}
    for entry in entries or ():
        name, status, payload = (_field(entry, field) for field in ("interrupt_id", "status", "payload"))
        one = waiting.get(unicode_text(name)) if isinstance(name, str) else None
        if one is None:
            # It raises, and says what became of the call, or whom the run does wait for.
            decidable(run, name, APPROVAL, None)
        assert one is not None
        if one.call_id in decisions:
            raise CannotDecide(f"the resume entries answer the call {one.call_id!r} twice; give one answer to each")
        decisions[one.call_id] = _decided(agent, run, one, status, payload)
    # A denial may end the run. What a client did already is kept before that, and nothing is approved that would still run.
    for call_id, (_, tell) in sorted(decisions.items(), key=lambda decided: decided[1][0]):
        if any(one.call_id == call_id for one in agent.pending(run)):
            tell()
    return agent.pending(run)


_DELIVERY, _DENIAL, _APPROVAL = range(3)
_Decision = tuple[int, Callable[[], None]]


def _decided(agent: Agent, run: Run, one: Pending, status: Any, payload: Any) -> _Decision:
    """What an entry does, once all entries have been looked at, and its place among theirs."""
    if status not in ("resolved", "cancelled"):
        raise _wrong(one, f"has the status {short(status, 40)}; it may be 'resolved' or 'cancelled'")
    if one.kind == APPROVAL:
        if status == "cancelled":
            return _DENIAL, partial(agent.deny, run, one.call_id, "abandoned")
        return _approval(agent, run, one, _checked(one, payload, ("approved", "editedArgs", "reason", "token")))
    if status == "cancelled":
        return _DELIVERY, partial(agent.deliver_error, run, one.call_id, "Abandoned", "nobody answered the client's call")
    given = _checked(one, payload, ("value", "error", "message"))
    if ("value" in given) is (given.get("error") is not None):
        raise _wrong(one, 'has to hold either {"value": ...} or {"error": "...", "message": "..."}')
    if "value" in given:
        return _DELIVERY, partial(agent.deliver, run, one.call_id, given["value"])
    error = _text(one, given, "error")
    if not error.strip():
        raise _wrong(one, "has an empty error; name it")
    return _DELIVERY, partial(agent.deliver_error, run, one.call_id, error, _text(one, given, "message"))


def _approval(agent: Agent, run: Run, one: Pending, given: Mapping[str, Any]) -> _Decision:
    approved, edited, reason = given.get("approved"), given.get("editedArgs"), _text(one, given, "reason")
    if type(approved) is not bool:
        raise _wrong(one, f"has approved: {short(approved, 40)}; give true or false")
    if edited is not None and not isinstance(edited, Mapping):
        raise _wrong(one, f"has editedArgs that are {short(edited, 40)}; give an object with all arguments")
    token = _text(one, given, "token") if given.get("token") is not None else None
    wall = (agent.driver.host.clock or SystemClock()).wall() if approved else None
    decidable(run, one.call_id, APPROVAL, token, wall)
    if not approved:
        return _DENIAL, partial(agent.deny, run, one.call_id, reason, token=token)
    args = None if edited is None else dict(edited)
    return _APPROVAL, partial(agent.approve, run, one.call_id, args, token=token)


def _checked(one: Pending, payload: Any, names: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(payload, Mapping):
        raise _wrong(one, f"is {short(payload, 40)}; give an object with {', '.join(names)}")
    # A misspelled name must not approve arguments that were meant to be changed.
    for name in payload:
        if name not in names:
            raise _wrong(one, f"has {short(name, 40)}; it may have {', '.join(names)}")
    return payload


def _text(one: Pending, given: Mapping[str, Any], name: str) -> str:
    text = given.get(name)
    if text is not None and not isinstance(text, str):
        raise _wrong(one, f"has {name}: {short(text, 40)}; give a text")
    return text or ""


def _wrong(one: Pending, what: str) -> CannotDecide:
    return CannotDecide(f"the answer to the call {one.call_id!r} ({one.kind}) {what}")


def _field(entry: Any, name: str) -> Any:
    if not isinstance(entry, Mapping):
        return getattr(entry, name, None)
    head, _, tail = name.partition("_")
    return entry.get(name, entry.get(head + tail.capitalize()))


def _approval_schema(tool: Tool | None) -> dict[str, Any]:
    edited = _json(tool.argument_schema()) if tool is not None else _ANYTHING
    return {
        "type": "object",
        "properties": {
            "approved": {"type": "boolean"},
            "editedArgs": {**edited, "description": "All arguments of the call, in place of those shown; they are measured like any."},
            "reason": {"type": "string", "description": "Why not; it is told to whoever asked for the call."},
            "token": {"type": "string", "description": "The token of the call that was shown; another call is refused."},
        },
        "required": ["approved"],
        "additionalProperties": False,
    }


def _client_schema(tool: Tool | None) -> dict[str, Any]:
    value = _json(tool.returns.json_schema()) if tool is not None and tool.returns is not None else {}
    return {
        "type": "object",
        "properties": {"value": value, "error": {"type": "string", "minLength": 1}, "message": {"type": "string"}},
        "oneOf": [{"required": ["value"]}, {"required": ["error"]}],
        "additionalProperties": False,
    }


def _json(schema: Any) -> dict[str, Any]:
    """A copy of a contract's schema, or one that takes any object where it holds what no JSON text may."""
    try:
        json.dumps(schema, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (TypeError, ValueError, RecursionError):
        return dict(_ANYTHING)
    return dict(schema)


def _instant(seconds: float | None) -> str | None:
    """A UTC second as an ISO 8601 text; an instant beyond the calendar is none, for nobody will come to it."""
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return None
