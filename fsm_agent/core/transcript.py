"""The history of a run as a model is shown it: always valid, one result for each call id, in order.

It is derived from the run's trace and journal and only ever grows, so that a turn costs the same however long the run is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from fsm_agent.core.errors import RunError
from fsm_agent.core.events import Composed, Decided, Judged, JudgeFailed, Superseded
from fsm_agent.core.exact_values import word
from fsm_agent.core.gate import Toolbox
from fsm_agent.core.generated import maker
from fsm_agent.core.messages import Message, Role, new_message
from fsm_agent.core.plain import cut, dumps, short, storable
from fsm_agent.core.run import ROW, Call, Run
from fsm_agent.core.storable import own_args
from fsm_agent.core.trace import result_text
from fsm_agent.core.values import ToolCall

_USER, _ASSISTANT, _TOOL = Role.USER, Role.ASSISTANT, Role.TOOL
# The lines of a trace that a message is made of.
_TOLD = frozenset({"decision", "malformed", "judged", "message", "composed"})
_asked = maker(ToolCall, "tool", "args", "id")
# The name under which a call is shown that names no tool.
NO_NAME = "unknown"
# Of a program that has failed, so many of its last calls are told, in so many characters each.
_MOST_TOLD = 20
_LONGEST_TOLD = 200


@attrs.define
class _Reader:
    """How far a run has been read: rows of its trace, events of its journal, calls of its record."""

    messages: list[Message]
    resumed: int
    rows: int = 0
    events: int = 0
    calls: int = 0
    by_turn: dict[int, list[Call]] = attrs.field(factory=dict)
    made: dict[str, list[Call]] | None = None
    verifier: list[Call] | None = None


_new_reader = maker(_Reader, "messages", "resumed")


def transcript(run: Run, box: Toolbox) -> list[Message]:
    """The run's messages so far; the same list each time, longer by what has happened since.

    Calls that are still open are not in it; while there are any, no model is asked.
    """
    reader: _Reader | None = run.history
    if reader is None or reader.resumed != run.resumed:
        # A resume opens settled calls again, so what was said of them does not stand.
        reader = run.history = _new_reader(first_messages(run.request), run.resumed)
    _read(reader, run, box)
    return reader.messages


def first_messages(request: Any) -> list[Message]:
    """A request as messages: a text, a history (mappings of role and text or content), or any other value as JSON.

    A call of a given history that has no result gets one that says so, a repeated or missing id a fresh one, and what says nothing
    or answers no call is left out, so that any provider takes it.
    """
    if issubclass(type(request), str):
        return [new_message(_USER, word(request), (), "", "", "")]
    if is_history(request):
        return _mended([_message(entry) for entry in request])
    return [Message(role=Role.USER, text=dumps(storable(request)))]


def is_history(request: Any) -> bool:
    """True for a list of mappings, each with a role."""
    if type(request) is str:
        return False
    try:
        if not issubclass(type(request), list | tuple) or not request:
            return False
        return all(issubclass(type(one), Mapping) and "role" in one for one in request)
    except Exception:
        # A list or mapping of another class may raise at every look; what cannot be read is no history.
        return False


def given_ids(request: Any) -> list[str]:
    """The ids of the calls that a request brings along, which no call of the run may have again."""
    return [call.id for message in first_messages(request) for call in message.calls] if is_history(request) else []


def has_messages(request: Any) -> bool:
    """True for a list with Message records in it, alone or beside the mappings of whoever goes on talking."""
    return (type(request) is list or type(request) is tuple) and any(type(one) is Message for one in request)


def as_plain(messages: Sequence[Any]) -> list[Any]:
    """Messages as plain mappings: what a request may be made of, and what can be saved; the rest of the list as it is."""
    plain: list[Any] = []
    for n, message in enumerate(messages):
        if type(message) is not Message:
            plain.append(message)
            continue
        if not isinstance(message.text, str):
            raise RunError(f"message {n} of the history has the text {short(message.text, 60)}; give a text")
        if not isinstance(message.calls, list | tuple) or not all(isinstance(call, ToolCall) for call in message.calls):
            raise RunError(f"message {n} of the history has the calls {short(message.calls, 60)}; give a tuple of ToolCalls")
        entry: dict[str, Any] = {"role": message.role.value, "text": message.text}
        if message.calls:
            entry["calls"] = [{"id": call.id, "tool": call.tool, "args": storable(call.args)} for call in message.calls]
        if message.kept is not None:
            entry["kept"] = storable(message.kept)
        if message.role is Role.TOOL:
            entry |= {"call_id": message.call_id, "tool": message.tool, "error": message.error}
        plain.append(entry)
    return plain


def _message(entry: Mapping[Any, Any]) -> Message:
    try:
        role = Role(str(entry["role"]))
    except ValueError:
        role = Role.USER
    text = entry.get("text", entry.get("content"))
    said = text if isinstance(text, str) else "" if text is None else dumps(storable(text))
    asked = entry.get("calls") if role is Role.ASSISTANT else ()
    calls = tuple(
        ToolCall(tool=str(call.get("tool") or NO_NAME), args=own_args(call.get("args")), id=str(call.get("id") or ""))
        for call in (asked if isinstance(asked, list | tuple) else ())
        if isinstance(call, Mapping)
    )
    named = {name: str(entry.get(name) or "") for name in ("call_id", "tool", "error")}
    kept = storable(entry.get("kept")) if role is Role.ASSISTANT else None
    return Message(role=role, text=said, calls=calls, kept=kept, **named)


def _mended(messages: list[Message]) -> list[Message]:
    """Messages in which every call has one result right behind it, and every result its call."""
    made: list[Message] = []
    results: dict[str, list[Message]] = {}
    for message in messages:
        if message.role is Role.TOOL:
            results.setdefault(message.call_id, []).append(message)
    taken: dict[str, bool] = {}
    for message in messages:
        if message.role is Role.TOOL or not (message.calls or message.text.strip()):
            continue
        calls = tuple(attrs.evolve(call, id=_own_id(call.id, taken)) for call in message.calls)
        made.append(attrs.evolve(message, calls=calls))
        for wanted, call in zip(message.calls, calls, strict=True):
            known = results.get(wanted.id)
            lost = Message(role=Role.TOOL, text="cancelled (no result is known)", error="cancelled")
            made.append(attrs.evolve(known.pop(0) if known else lost, call_id=call.id, tool=call.tool))
    return made


def _own_id(wanted: str, taken: dict[str, bool]) -> str:
    number = len(taken) + 1
    while not wanted or wanted in taken:
        wanted = f"call-{number}"
        number += 1
    taken[wanted] = True
    return wanted


def _read(reader: _Reader, run: Run, box: Toolbox) -> None:
    for call in run.calls[reader.calls :]:
        if call.parent:
            # The model asked for the program; what that called is part of its result, or of the reason why it has none.
            reader.made = {} if reader.made is None else reader.made
            reader.made.setdefault(call.parent, []).append(call)
        elif call.by_verifier:
            reader.verifier = [] if reader.verifier is None else reader.verifier
            reader.verifier.append(call)
        else:
            reader.by_turn.setdefault(call.turn, []).append(call)
    reader.calls = len(run.calls)
    open_turns = [call.turn for call in run.open_calls if not (call.by_verifier or call.parent)] if run.open_calls else ()
    flat = run.flat_trace
    for number, kind in enumerate(flat[ROW * reader.rows :: ROW], reader.rows):
        if kind not in _TOLD:
            continue
        # Where the reading stops at what is still open, it begins again with that.
        reader.rows = number
        subject, detail = flat[ROW * number + 2 : ROW * (number + 1)]
        if kind == "decision":
            turn = int(subject)
            if turn in open_turns:
                return
            _decision(reader, run, box, turn)
        elif kind == "malformed":
            reader.messages.append(new_message(_USER, f"Your reply could not be taken: {detail}. Answer again.", (), "", "", ""))
        elif kind == "judged":
            if not _verdict(reader, run, box, subject, detail):
                return
        elif kind == "composed":
            composed = _next(reader, run, Composed)
            if composed is not None and isinstance(composed.text, str) and composed.text.strip():
                reader.messages.append(Message(role=_ASSISTANT, text=composed.text, kept=composed.kept))
        else:
            event = _next(reader, run, Superseded)
            reader.messages.append(new_message(_USER, event.message if event is not None else str(detail), (), "", "", ""))
    reader.rows = len(flat) // ROW


def _decision(reader: _Reader, run: Run, box: Toolbox, turn: int) -> None:
    event = _next(reader, run, Decided)
    if event is None:
        return
    decision, messages = event.decision, reader.messages
    text = decision.text if isinstance(decision.text, str) else ""
    if decision.question is not None and isinstance(decision.question, str) and decision.question.strip():
        text = f"{text}\n{decision.question}".strip()
    calls = reader.by_turn.pop(turn, ())
    # An answer that was not taken for its calls alone still shows what it asked for.
    asked: tuple[ToolCall, ...] = ()
    if calls:
        pairs = zip(decision.calls or (), calls, strict=False)
        asked = tuple([_asked(_name(wanted), own_args(wanted.args), call.id) for wanted, call in pairs])
    if asked or text.strip():
        said = new_message(_ASSISTANT, text, asked, "", "", "")
        messages.append(said if decision.kept is None else attrs.evolve(said, kept=decision.kept))
    for call in calls:
        messages.append(_result(reader, box, call))


def _verdict(reader: _Reader, run: Run, box: Toolbox, decision: str, reason: Any) -> bool:
    """Tell a verdict and its next action; false while that is still open."""
    # A verdict for want of evidence is no event: then the next one is about something else.
    event = next((event for event in run.flat_journal[2 * reader.events + 1 :: 2] if type(event) in _VERDICTS), None)
    action = event.judgement.next_action if isinstance(event, Judged) and decision == "need_more" else None
    if isinstance(action, ToolCall) and not reader.verifier:
        return False
    if isinstance(event, Judged | JudgeFailed):
        _next(reader, run, type(event))
    if decision != "need_more":
        return True
    reader.messages.append(Message(role=Role.USER, text=f"The answer is not accepted yet: {reason or 'more is needed'}."))
    if isinstance(action, ToolCall):
        assert reader.verifier is not None  # else the reading has stopped above
        call = reader.verifier.pop(0)
        asked = ToolCall(tool=call.tool or NO_NAME, args=action.args, id=call.id)
        reader.messages.append(Message(role=Role.ASSISTANT, calls=(asked,)))
        reader.messages.append(_result(reader, box, call))
    return True


_VERDICTS = (Judged, JudgeFailed, Decided)


def told_result(box: Toolbox, call: Call) -> str:
    """A call's result for whoever asked for it; what a repair made of the call stands before it, or it would be taken for another's."""
    text = result_text(call, box)
    if call.repaired:
        return f"(the call was repaired to {call.tool} {dumps(storable(call.args))}) {text}"
    return text


def _result(reader: _Reader, box: Toolbox, call: Call) -> Message:
    text = told_result(box, call)
    if call.edited is not None:
        text = f"(a person changed the arguments to {dumps(call.args)}) {text}"
    if reader.made and (made := reader.made.pop(call.id, None)) and not call.ok:
        text = "\n".join([text, "What the program called before that:", *(_told(one, box) for one in made[-_MOST_TOLD:])])
    return new_message(_TOOL, text, (), call.id, call.tool or NO_NAME, "" if call.ok else call.error)


def _told(call: Call, box: Toolbox) -> str:
    """One line about a call that a program made."""
    return cut(f"- {call.tool or NO_NAME} {dumps(storable(call.args))}: {result_text(call, box)}", _LONGEST_TOLD)


def _next(reader: _Reader, run: Run, kind: type[Any]) -> Any:
    """The next event of that kind in the journal, or None."""
    journal = run.flat_journal
    for at in range(2 * reader.events + 1, len(journal), 2):
        event = journal[at]
        if type(event) is kind:
            reader.events = (at + 1) // 2
            return event
    return None


def _name(call: ToolCall) -> str:
    return call.tool if isinstance(call.tool, str) and call.tool else NO_NAME
