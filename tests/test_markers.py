from __future__ import annotations

from typing import Annotated, Any, Literal

import attrs
import pytest

from fsm_agent.core.contracts import Length, Pattern, Range
from fsm_agent.core.markers import constraints, holds_marker


@attrs.frozen
class Between:
    """A marker in the manner of the package for annotated types."""

    ge: int | None = None
    lt: int | None = None
    max_length: int | None = None


class Hostile:
    """A marker of someone else's whose attributes cannot be read."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


@pytest.mark.parametrize(
    ("markers", "rule"),
    [
        ((), {}),
        ((Range(1, None),), {"min": 1}),
        ((Length(1, 2), Pattern("^a")), {"min_len": 1, "max_len": 2, "pattern": "^a"}),
        (("what it is", "what it really is"), {"description": "what it really is"}),
        ((Between(ge=0, lt=9), Between(max_length=3)), {"min": 0, "exclusive_max": 9, "max_len": 3}),
        ((Hostile(), object(), 3), {}),
    ],
)
def test_markers_become_the_keys_of_a_rule(markers: tuple[Any, ...], rule: dict[str, Any]) -> None:
    assert constraints(markers) == rule


@pytest.mark.parametrize(
    ("annotation", "found"),
    [
        (Range(1, 2), True),
        (list[Annotated[int, Range(1, 2)]], True),
        (dict[str, list[Annotated[str, Length(1)]]] | None, True),
        (Annotated[str, "a text", Between(ge=1)], False),
        (Literal["Range"], False),
        (int, False),
    ],
)
def test_markers_are_found_inside_annotations(annotation: Any, found: bool) -> None:
    assert holds_marker(annotation) is found
