"""What is said of a name that nobody knows: the one that is probably meant, and those there are."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MOST = 40


def mend(name: object, known: Iterable[object], there: str = "there are") -> str:
    """``did you mean 'search'? there are fetch, search`` for a name that is none of these; without a near one only what there is."""
    names = [str(one) for one in known]
    near = difflib.get_close_matches(name, names, 1) if isinstance(name, str) else []
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return f"{f'did you mean {near[0]!r}? ' if near else ''}{there} {', '.join(names[:_MOST]) or 'none'}{more}"
