"""What is said between a user, a model and tools, in words that belong to no provider."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from typing import Any, overload

import attrs

from fsm_agent.core.errors import BuildError
from fsm_agent.core.generated import maker
from fsm_agent.core.values import ToolCall, told


class Role(StrEnum):
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


def _role(role: Role | str) -> Role:
    if type(role) is Role:
        return role
    try:
        return Role(role)
    except ValueError:
        raise BuildError(f"Message(role=) is {told(role)}; it may be {', '.join(Role)}") from None


@attrs.frozen(kw_only=True)
class Message:
    """One message of a history that any provider takes.

    An assistant's message holds `text`, `calls` or both, and `kept`, what its provider wants back with it (`Decision.kept`); any
    other provider leaves that out. A tool's message answers exactly one of them: `call_id` and `tool` say
    which, `text` is its result, and `error` the stable word where it failed.
    """

    role: Role = attrs.field(converter=_role)
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    tool: str = ""
    error: str = ""
    kept: Any = None


new_message = maker(Message, "role", "text", "calls", "call_id", "tool", "error")


@attrs.frozen(kw_only=True)
class ToolOffer:
    """A tool as a model is told of it: its name, what it does, and the JSON Schema of its arguments (an object)."""

    name: str
    description: str = ""
    schema: Mapping[str, Any] = attrs.field(factory=dict)


class History(Sequence[Message]):
    """A history as it stood at one moment: a view of a list that only grows, made in no time however long that is."""

    __slots__ = ("_all", "_length")

    def __init__(self, messages: list[Message]) -> None:
        self._all, self._length = messages, len(messages)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        """One message, or a list of several."""
        length = self._length
        if isinstance(index, slice):
            return [self._all[n] for n in range(*index.indices(length))]
        if not -length <= index < length:
            raise IndexError(f"message {index} of a history of {length}")
        return self._all[index if index >= 0 else index + length]

    def __iter__(self) -> Iterator[Message]:
        return islice(self._all, self._length)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, History | list | tuple):
            return NotImplemented
        return len(other) == self._length and all(one == two for one, two in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))


class Purpose(StrEnum):
    """What a model is asked for: the next decision, the closing text, a text out of the evidence, or a verdict."""

    DECIDE = "decide"
    CLOSE = "close"
    SYNTHESIZE = "synthesize"
    VERIFY = "verify"
