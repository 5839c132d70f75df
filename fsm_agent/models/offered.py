"""The tools of a request in a provider's form, made anew only where others are offered, and the own names behind theirs.

Providers take names of letters, digits, ``_`` and ``-``, up to 64 of them. Any other name goes out as its fit part with a digest.
A name that looks as if it had one gets one too: so no two names meet, and a name is the same in each turn, whatever else is
offered.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from fsm_agent.core.messages import ToolOffer
from fsm_agent.host.model import ModelRequest

_FIT: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MARKED: Final = re.compile(r".*_[0-9a-f]{12}", re.DOTALL)
_UNFIT: Final = re.compile(r"[^a-zA-Z0-9_-]+")
_STEM: Final = 64 - 13


def wire_name(name: str) -> str:
    """The name that a provider is told."""
    if _FIT.fullmatch(name) and not _MARKED.fullmatch(name):
        return name
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    return f"{_UNFIT.sub('_', name)[:_STEM] or 'tool'}_{digest}"


@attrs.frozen(eq=False)
class _Made:
    tools: tuple[ToolOffer, ...]
    forms: list[dict[str, Any]]
    names: Mapping[str, str]


class Offered:
    """Turns offers into a provider's tools with `form`; the last ones are kept, and it may be shared between threads."""

    def __init__(self, form: Callable[[ToolOffer], dict[str, Any]]) -> None:
        self._form = form
        self._last = _Made((), [], {})

    def of(self, tools: tuple[ToolOffer, ...]) -> list[dict[str, Any]]:
        """The provider's tools; the list is the caller's own."""
        return list(self._made(tools).forms)

    def own_name(self, name: object, request: ModelRequest) -> str:
        """The own name of a tool that a model calls: one offered now or called before, else the name as it came."""
        told = name if isinstance(name, str) else ""
        own = self._made(request.tools).names.get(told)
        if own is not None or not _MARKED.fullmatch(told):
            return told if own is None else own
        # A tool that is spent is no longer offered, and is still refused under its own name.
        called = (call.tool for message in reversed(request.messages) for call in message.calls)
        return next((tool for tool in called if wire_name(tool) == told), told)

    def _made(self, tools: tuple[ToolOffer, ...]) -> _Made:
        made = self._last
        if made.tools != tools:
            made = _Made(tools, [self._form(offer) for offer in tools], {wire_name(offer.name): offer.name for offer in tools})
            self._last = made
        return made
