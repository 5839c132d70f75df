"""How what came is compared with what was expected: by JSON type and code point, in figures, words, texts and orders."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fsm_agent.core.plain import storable
from fsm_agent.core.short_text import short

GAP = "..."
# Figures of seconds and money are sums of floats.
_NEAR = 1e-6


def equal(wanted: Any, came: Any) -> bool:
    """True when two values are the same by type and content; NaN is NaN, 1 is neither 1.0 nor true."""
    wanted, came = storable(wanted), storable(came)
    if type(wanted) is not type(came):
        return False
    if isinstance(wanted, float):
        return wanted == came or (math.isnan(wanted) and math.isnan(came))
    if isinstance(wanted, list | tuple):
        return len(wanted) == len(came) and all(map(equal, wanted, came))
    if isinstance(wanted, dict):
        return wanted.keys() == came.keys() and all(equal(value, came[key]) for key, value in wanted.items())
    if isinstance(wanted, set | frozenset):
        return len(wanted) == len(came) and all(any(equal(one, other) for other in came) for one in wanted)
    return bool(wanted == came)


def figure_fits(wanted: Any, came: Any) -> bool:
    """True for a number that is the wanted one, lies between ``min`` and ``max``, or fits one of a list."""
    if isinstance(wanted, list):
        return any(figure_fits(one, came) for one in wanted)
    if isinstance(came, bool) or not isinstance(came, int | float):
        return False
    if isinstance(wanted, Mapping):
        return bool(wanted.get("min", -math.inf) - _NEAR <= came <= wanted.get("max", math.inf) + _NEAR)
    return not isinstance(wanted, bool) and isinstance(wanted, int | float) and abs(wanted - came) <= _NEAR


def figures_off(wanted: Mapping[str, Any], came: Mapping[str, float]) -> list[str]:
    """A sentence for each figure of a mapping that is not the wanted one."""
    return [
        f"{name}: expected {figure_words(one)}, came {came[name]:g}" for name, one in wanted.items() if not figure_fits(one, came[name])
    ]


def word_fits(wanted: Any, came: str | None) -> bool:
    """True for a word that is the wanted one or one of a list; null stands for none."""
    if isinstance(wanted, list):
        return any(word_fits(one, came) for one in wanted)
    return came == wanted or (not came and not wanted)


def error_fits(wanted: Any, came: str) -> bool:
    """True for an error word that is the wanted one; ``denied`` and ``skipped`` stand for themselves with any reason."""
    if isinstance(wanted, list):
        return any(error_fits(one, came) for one in wanted)
    return word_fits(wanted, came) or (wanted in ("denied", "skipped") and came.startswith(f"{wanted}:"))


def listed(wanted: Any) -> list[Any]:
    """The alternatives that an expectation names: a list itself, anything else alone."""
    return wanted if isinstance(wanted, list) else [wanted]


def lacking(wanted: Any, text: str) -> list[Any]:
    """The texts of a list, or the one text, that do not stand in a text; of a list inside, one is enough."""
    return [one for one in listed(wanted) if not _stands(one, text)]


def standing(wanted: Any, text: str) -> list[Any]:
    """The texts of a list, or the one text, that stand in a text and must not."""
    return [one for one in listed(wanted) if _stands(one, text)]


def _stands(one: Any, text: str) -> bool:
    return one in text if isinstance(one, str) else any(each in text for each in one)


Fits = Callable[[str, Any], bool]


def in_order(patterns: Sequence[str], came: Sequence[Any], fits: Fits) -> bool:
    """True when the patterns fit what came, one for one; ``...`` stands for any number of them, also none."""
    reached = {0}
    for pattern in patterns:
        if pattern == GAP:
            reached = set(range(min(reached), len(came) + 1)) if reached else set()
        else:
            reached = {at + 1 for at in reached if at < len(came) and fits(pattern, came[at])}
    return len(came) in reached


def word_or(pattern: str, came: str) -> bool:
    """True when a word is one of those that a pattern ``a|b`` names."""
    return came in pattern.split("|")


def shown(value: Any, limit: int = 120) -> str:
    """A value in one short line."""
    return value[:limit] if isinstance(value, str) and value.isprintable() and value and " " not in value else short(value, limit)


def figure_words(wanted: Any) -> str:
    """A wanted figure in words."""
    if isinstance(wanted, list):
        return " or ".join(map(figure_words, wanted))
    if not isinstance(wanted, Mapping):
        return f"{wanted}"
    parts = [f"at {word} {wanted[key]:g}" for key, word in (("min", "least"), ("max", "most")) if key in wanted]
    return " and ".join(parts) or "any number"
