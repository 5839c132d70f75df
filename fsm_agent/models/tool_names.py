"""Tool names as providers take them, and back.

Providers take letters, digits, ``_`` and ``-``, up to 64 of them. Any other name goes out as its fit part with a digest. A
name that looks as if it had one gets one too: so no two names meet, and a name is the same in each turn, whatever else
is offered.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Final

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


def is_made(name: str) -> bool:
    """True for a wire name that may stand for another name than itself."""
    return _MARKED.fullmatch(name) is not None


def own_names(names: Iterable[str]) -> Mapping[str, str]:
    """The own name of each wire name; look up with the wire name itself as the default: a name nobody gave is unknown."""
    return {wire_name(name): name for name in names}
