"""The quick copy of what JSON holds: equal, apart, and refused for all else."""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.core.storable import LEAVES
from fsm_agent.core.tree_copy import NotTree, tree_copy

TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)
PAIR = [1]


@given(value=st.lists(TREES, max_size=4) | st.dictionaries(st.text(max_size=3), TREES, max_size=4))
def test_a_copy_is_equal_and_shares_no_container(value: Any) -> None:
    made, kept = tree_copy(value, LEAVES, 50), copy.deepcopy(value)
    assert made == value
    for place in [*value] if type(value) is dict else range(len(value)):
        assert made[place] is not value[place] or type(value[place]) in LEAVES
        if type(made[place]) is list:
            made[place].append("mine")
    made.clear()
    assert value == kept


@pytest.mark.parametrize(
    "value",
    [5, (1,), {1}, {1: 2}, [(1,)], [[object()]], OrderedDict(a=1), [PAIR, PAIR], {"a": PAIR, "b": [PAIR]}, {"a": {"b": {1}}}],
    ids=range(10),
)
def test_what_is_no_tree_is_refused(value: Any) -> None:
    with pytest.raises(NotTree):
        tree_copy(value, LEAVES, 50)


@pytest.mark.parametrize(("levels", "fits"), [(3, True), (2, False)])
def test_what_nests_too_deep_is_refused(levels: int, fits: bool) -> None:
    if fits:
        assert tree_copy([[[1]]], LEAVES, levels) == [[[1]]]
    else:
        with pytest.raises(NotTree):
            tree_copy([[[1]]], LEAVES, levels)


def test_what_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value.append([value])
    with pytest.raises(NotTree):
        tree_copy(value, LEAVES, 50)
