"""A history as groups that every provider takes, turned into a provider's messages once and kept while the history grows.

A group is one message of a user, a system or a model, with the results of the calls it asked for: one for each call,
directly after it and in the order of the calls, whatever the history held.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import attrs

from fsm_agent.core.messages import Message, Role
from fsm_agent.core.values import ToolCall
from fsm_agent.models.wire_values import wire_id, wire_text

# What a history that does not end with a user's or a tool's word is closed with: some providers refuse it, others take
# the model's last text as the beginning of its next.
GO_ON: Final = "Go on."
_NO_RESULT: Final = "no result of this call is known"
_KEPT: Final = 8


@attrs.frozen(kw_only=True, slots=False)
class Answered:
    """A call with its one result: an id that is unique in the history, the text (never empty) and whether it failed."""

    call: ToolCall
    id: str
    text: str
    failed: bool


@attrs.frozen(kw_only=True, slots=False)
class Group:
    """A message's role and text, the calls it asked for with their results, and what was kept of it; blank text is empty.

    A model's text has no white space at its end: some providers refuse it.
    """

    role: Role
    text: str = ""
    answered: tuple[Answered, ...] = ()
    kept: Any = None


Add = Callable[[list[Any], Group], None]


@attrs.define(eq=False)
class _Grown:
    """How far one history has been turned: the messages read, what was made of them, the ids and tool names met."""

    read: list[Message] = attrs.field(factory=list)
    made: list[Any] = attrs.field(factory=list)
    ids: set[str] = attrs.field(factory=set)


class WireHistory:
    """Turns histories into a provider's messages; `add` puts one group behind those made so far.

    `add` changes no message it finds in the list, it puts another in its place. Up to eight growing histories are kept. A
    history that is no continuation of a kept one is turned from its beginning. `id_of` makes of a call's id one that the
    provider takes. It may be shared between threads.
    """

    def __init__(self, add: Add, id_of: Callable[[str], str] = wire_id) -> None:
        self._add, self._id_of = add, id_of
        self._kept: list[_Grown] = []
        self._lock = threading.Lock()

    def of(self, messages: Sequence[Message], summary: str = "") -> list[Any]:
        """The provider's messages for a history, with a user's word behind it that is not kept; the list is the caller's own."""
        with self._lock:
            grown = self._continued(messages)
            done = len(grown.read)
            starts = [done + at for at, message in enumerate(messages[done:]) if message.role is not Role.TOOL]
            last = starts[-1] if starts else done
            for group in _groups(messages[done:last], grown.ids, self._id_of):
                self._add(grown.made, group)
            # The caller's own objects, so that the next comparison looks at identities alone.
            grown.read = list(messages[:last])
            self._keep(grown)
            made = list(grown.made)
            # The last group may still get results, so it is not kept.
            for group in _groups(messages[last:], _Above(grown.ids), self._id_of):
                self._add(made, group)
        if summary.strip():
            self._add(made, Group(role=Role.USER, text=wire_text(summary)))
        return made

    def _continued(self, messages: Sequence[Message]) -> _Grown:
        """The longest kept beginning of a history, or a new one."""
        fitting = [grown for grown in self._kept if _begins(messages, grown.read)]
        return max(fitting, key=lambda grown: len(grown.read), default=None) or _Grown()

    def _keep(self, grown: _Grown) -> None:
        """Put it behind the others, and let the one go that was not used for the longest time."""
        if grown.read:
            others = [one for one in self._kept if one is not grown]
            self._kept = [*others[1 - _KEPT :], grown]


class _Above(set[str]):
    """A set of ids on top of another that it does not change."""

    def __init__(self, below: set[str]) -> None:
        super().__init__()
        self._below = below

    def __contains__(self, one: object) -> bool:
        return super().__contains__(one) or one in self._below


def _begins(messages: Sequence[Message], read: list[Message]) -> bool:
    # Compared as lists, equal items cost no more than a look at their identity.
    return bool(read) and len(read) <= len(messages) and messages[0] == read[0] and list(messages[: len(read)]) == read


def _groups(messages: Sequence[Message], ids: set[str], id_of: Callable[[str], str]) -> Iterator[Group]:
    at = 0
    while at < len(messages):
        head = messages[at]
        end = at + (head.role is not Role.TOOL)
        while end < len(messages) and messages[end].role is Role.TOOL:
            end += 1
        results = [message for message in messages[at:end] if message.role is Role.TOOL]
        answered, rest = _answered(head.calls if head.role is Role.ASSISTANT else (), results, ids, id_of)
        if head.role is not Role.TOOL:
            text = wire_text(head.text)
            trimmed = text.rstrip() if head.role is Role.ASSISTANT or not text.strip() else text
            kept = head.kept if head.role is Role.ASSISTANT else None
            yield Group(role=head.role, text=trimmed, answered=answered, kept=kept)
        for result in rest:
            yield Group(role=Role.USER, text=f"Result of {wire_text(result.tool or 'a tool')}: {_result_text(result)}")
        at = end


def _answered(
    calls: Sequence[ToolCall], results: Sequence[Message], ids: set[str], id_of: Callable[[str], str]
) -> tuple[tuple[Answered, ...], list[Message]]:
    """Each call with its result, and the results that no call asked for."""
    waiting: dict[str, deque[Message]] = {}
    for one in results:
        waiting.setdefault(one.call_id, deque()).append(one)
    answered = []
    for call in calls:
        queue = waiting.get(call.id)
        result: Message | None = queue.popleft() if queue else None
        text = _result_text(result) if result is not None else _NO_RESULT
        failed = result is None or bool(result.error)
        answered.append(Answered(call=call, id=_unique(id_of(call.id), ids), text=text, failed=failed))
    left = {id(one) for queue in waiting.values() for one in queue}
    return tuple(answered), [one for one in results if id(one) in left]


def _unique(wanted: str, ids: set[str]) -> str:
    one, number = wanted, 1
    while one in ids:
        number += 1
        one = f"{wanted[:32]}-{number}"
    ids.add(one)
    return one


def _result_text(result: Message) -> str:
    """A result's text with its error word, which some providers have no other place for; never empty."""
    text = wire_text(result.text)
    if result.error and result.error not in text:
        text = f"{wire_text(result.error)}: {text}" if text.strip() else wire_text(result.error)
    return text if text.strip() else "(empty)"


def leading_system(instructions: str, messages: Sequence[Message]) -> tuple[str, Sequence[Message]]:
    """The system text, of the instructions and the system messages that lead a history, and the rest of the history."""
    lead = 0
    while lead < len(messages) and messages[lead].role is Role.SYSTEM:
        lead += 1
    texts = [instructions, *(message.text for message in messages[:lead])]
    return "\n\n".join(wire_text(text).strip() for text in texts if text.strip()), messages[lead:] if lead else messages
