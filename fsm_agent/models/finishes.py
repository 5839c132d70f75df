"""A provider's finish reasons in the words that the core knows, and its counts of tokens as usage."""

from __future__ import annotations

import math
from typing import Any, Final

from fsm_agent.core.errors import BuildError
from fsm_agent.core.plain import short
from fsm_agent.core.values import Usage
from fsm_agent.host.model import FailureKind, ModelFailed

Price = tuple[float, float]
_PER: Final = 1_000_000
_WORDS: Final = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "completed": "stop",
    "eos_token": "stop",
    "tool_use": "tool_calls",
    "tool_call": "tool_calls",
    "function_call": "tool_calls",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_context_window_exceeded": "length",
    "model_length": "length",
    "safety": "content_filter",
}
# With these some servers end a reply that they could not finish; its text is no answer.
_BROKEN: Final = frozenset({"error", "abort", "insufficient_system_resource"})


def finish_word(reason: object, usage: Usage | None = None) -> str:
    """`stop`, `tool_calls`, `length`, `content_filter` or `refusal` where the reason means one of them, else as received.

    Raises ModelFailed, with the reply's usage, where it says that the reply broke.
    """
    if not isinstance(reason, str):
        return ""
    if reason in _BROKEN:
        raise ModelFailed(FailureKind.SERVER_ERROR, f"the provider ended its reply with {reason!r}", usage=usage)
    return _WORDS.get(reason, reason)


def usage_of(input_tokens: object, output_tokens: object, price: Price | None) -> Usage | None:
    """The usage of one reply, or None where the provider counted nothing.

    `price` is money for a million tokens in and out. Tokens read from a provider's cache count as full ones, so the cost is
    the most that it can be.
    """
    if not isinstance(input_tokens, int) and not isinstance(output_tokens, int):
        return None
    into, out = _count(input_tokens), _count(output_tokens)
    cost = (into * price[0] + out * price[1]) / _PER if price is not None else 0.0
    return Usage(input_tokens=into, output_tokens=out, cost=cost)


def checked_price(price: Price | None) -> Price | None:
    """The price as it is; raises BuildError for anything but two amounts of money, or None."""
    if price is None:
        return None
    amounts = price if isinstance(price, tuple | list) else ()
    if len(amounts) != 2 or not all(isinstance(one, int | float) and math.isfinite(one) and one >= 0 for one in amounts):
        raise BuildError(f"the price is {short(price, 60)}; give two amounts, for a million tokens in and out, or leave it out")
    return price


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
