"""Regular expressions of contracts, which mean what JSON Schema says they do: ``$`` is the end, and not before a line break there."""

from __future__ import annotations

import re

# What may stand in a pattern: something escaped, a set of characters, or any one character.
_PART = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)


def found(pattern: str, text: str) -> bool:
    """Whether a pattern is found somewhere in a text (JSON Schema's ``pattern``, ECMA-262).

    Python's own ``$`` also takes a text with a line break behind what the pattern allows. Raises what `re` raises for no pattern.
    """
    if re.search(pattern, text) is None:
        return False
    if not text.endswith("\n") or "$" not in pattern or ("(?" in pattern and re.compile(pattern).flags & re.MULTILINE):
        return True
    strict = "".join(r"\Z" if part == "$" else part for part in _PART.findall(pattern))
    return re.search(strict, text) is not None
