"""A copy of what a JSON text would hold, made in one pass: the quick way for large results."""

from __future__ import annotations

from collections.abc import Container
from typing import Any


class NotTree(Exception):
    """A value is not dicts with text keys, lists and leaves throughout, or it nests too deep or holds one of them twice."""


def tree_copy(value: Any, leaves: Container[type], levels: int) -> Any:
    """A copy of dicts and lists down to so many levels, sharing values of the `leaves` types; raises NotTree for all else."""
    return _copied(value, leaves, levels, set())


def _copied(value: Any, leaves: Container[type], levels: int, met: set[int]) -> Any:
    kind = type(value)
    if (kind is not dict and kind is not list) or levels <= 0:
        raise NotTree
    known = id(value)
    if known in met:
        # Written out each time, forty nested pairs would make 2**40 values of it.
        raise NotTree
    met.add(known)
    made = value.copy()
    if kind is dict:
        for key, item in made.items():
            if type(key) is not str:
                raise NotTree
            if type(item) not in leaves:
                made[key] = _copied(item, leaves, levels - 1, met)
        return made
    for index, item in enumerate(made):
        if type(item) not in leaves:
            made[index] = _copied(item, leaves, levels - 1, met)
    return made
