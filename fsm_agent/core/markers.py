"""What stands beside a type in ``Annotated``: bounds, patterns and descriptions, as the keys of a rule."""

from __future__ import annotations

import typing
from collections.abc import Iterable
from typing import Any

from fsm_agent.core.contracts import Length, Pattern, Range

# The attributes by which the constraint objects of the ``annotated-types`` package are known; it is not imported.
_CONSTRAINTS = {
    "ge": "min", "le": "max", "gt": "exclusive_min", "lt": "exclusive_max",
    "min_length": "min_len", "max_length": "max_len",
}  # fmt: skip


def constraints(markers: Iterable[Any]) -> dict[str, Any]:
    """The keys of a rule that these markers say; a text is a description, and a marker of someone else's says nothing."""
    found: dict[str, Any] = {}
    for marker in markers:
        if isinstance(marker, str):
            found["description"] = marker
        elif isinstance(marker, Range):
            found |= {"min": marker.min, "max": marker.max}
        elif isinstance(marker, Length):
            found |= {"min_len": marker.min, "max_len": marker.max}
        elif isinstance(marker, Pattern):
            found["pattern"] = marker.regex
        else:
            found |= {key: _attribute(marker, name) for name, key in _CONSTRAINTS.items() if _attribute(marker, name) is not None}
    return {key: bound for key, bound in found.items() if bound is not None}


def _attribute(marker: object, name: str) -> Any:
    try:
        return getattr(marker, name, None)
    except Exception:  # a marker of someone else's, which means nothing here
        return None


def holds_marker(annotation: Any) -> bool:
    """True for a Range, a Length or a Pattern, and for an annotation that has one inside."""
    return isinstance(annotation, Range | Length | Pattern) or any(holds_marker(one) for one in typing.get_args(annotation))
