"""Keeping the secrets that a contract declares out of what people read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

MARK = "[redacted]"


def redacted(text: str, secret: Collection[str], args: Any) -> str:
    """The text without the values of secret arguments; values of fewer than three characters stay, they say nothing."""
    if not secret or not isinstance(args, Mapping):
        return text
    for name in secret:
        value = args.get(name)
        if isinstance(value, str) and len(value) >= 3:
            text = text.replace(value, MARK)
        elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 10**300:
            text = text.replace(str(value), MARK) if len(str(value)) >= 3 else text
    return text


def without_secrets(args: Any, secret: Collection[str]) -> Any:
    """The arguments with the secret ones marked, for everything that is shown or written down."""
    if not secret or not isinstance(args, Mapping):
        return args
    return {name: MARK if name in secret else value for name, value in args.items()}
