"""What is said between a user, a model and tools, in words that belong to no provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import attrs

from fsm_agent.core.values import ToolCall


class Role(StrEnum):
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


def _role(role: Role | str) -> Role:
    return role if type(role) is Role else Role(role)


# Made at every turn, and frozen records without slots are made three times as fast.
@attrs.frozen(kw_only=True, slots=False)
class Message:
    """One message of a history that any provider takes.

    An assistant's message holds `text`, `calls` or both. A tool's message answers exactly one of them: `call_id` and `tool` say
    which, `text` is its result, and `error` the stable word where it failed.
    """

    role: Role = attrs.field(converter=_role)
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    tool: str = ""
    error: str = ""


@attrs.frozen(kw_only=True, slots=False)
class ToolOffer:
    """A tool as a model is told of it: its name, what it does, and the JSON Schema of its arguments (an object)."""

    name: str
    description: str = ""
    schema: Mapping[str, Any] = attrs.field(factory=dict)


class Purpose(StrEnum):
    """What a model is asked for: the next decision, the closing text, a text out of the evidence, or a verdict."""

    DECIDE = "decide"
    CLOSE = "close"
    SYNTHESIZE = "synthesize"
    VERIFY = "verify"


def texts(messages: Sequence[Message]) -> str:
    """All that the messages say, one below the other: what a model has in front of it."""
    return "\n".join(message.text for message in messages)
