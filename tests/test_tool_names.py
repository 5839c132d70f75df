"""Tool names for providers: fit, told apart, the same in each turn, and found again."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.models.tool_names import own_names, wire_name

FIT = re.compile(r"[a-zA-Z0-9_-]{1,64}")
NAMES = st.text() | st.from_regex(r"\A[a-z._]{1,70}(_[0-9a-f]{12})?\Z")


@pytest.mark.parametrize("name", ["add", "web-search", "A_1", "x" * 64, "_", "get_deadbeef"])
def test_a_fit_name_stays_as_it_is(name: str) -> None:
    assert wire_name(name) == name


@pytest.mark.parametrize("name", ["", "web.search", "we b", "日本", "x" * 65, "a/b:c", "\ud835", "add\n", "t_0123456789ab"])
def test_any_other_name_goes_out_fit_and_is_found_again(name: str) -> None:
    wire = wire_name(name)

    assert FIT.fullmatch(wire)
    assert wire != name
    assert own_names([name])[wire] == name


def test_a_fit_part_can_still_be_read() -> None:
    assert wire_name("web.search").startswith("web_search_")
    assert wire_name("").startswith("tool_")


def test_a_name_that_looks_like_anothers_wire_name_is_told_apart() -> None:
    taken = wire_name("web.search")

    assert len(own_names(["web.search", "web/search", "web search", taken, wire_name(taken)])) == 5


@given(st.sets(NAMES, max_size=30))
def test_no_two_names_meet(names: set[str]) -> None:
    own = own_names(names)

    assert set(own.values()) == names
    assert all(FIT.fullmatch(wire) for wire in own)
