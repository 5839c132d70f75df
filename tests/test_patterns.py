"""Patterns of contracts: `$` is the end of the text, as in JSON Schema."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.core.contracts import TableArguments
from fsm_agent.core.patterns import found
from fsm_agent.core.schemas import arguments_contract

ENDS = [
    ("^[a-z]+$", "rm\n", False), ("^[a-z]+$", "rm", True), ("^[a-z\n]+$", "rm\n", True), (r"^a\$", "a$\n", True), ("a[$]", "a$\n", True),
    ("a[]$]", "a$\n", True), ("a[^]$]", "a\n", True), (r"a\n$", "a\n", True), ("a$|b", "a\n", False), ("a$|b", "b\n", True),
    (r"a[\]$]b?$", "a$\n", False), ("(?m)^a$", "a\n", True), ("(?s)^a.$", "a\n", True), ("(?:a$)", "a\n", False), ("", "\n", True),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "text", "fits"), ENDS)
def test_the_end_of_a_text_is_not_before_a_line_break(pattern: str, text: str, fits: bool) -> None:
    assert found(pattern, text) is fits


@given(st.text("ab\n", max_size=6), st.sampled_from(["^a*$", "a+b$", "^(a|b)$", "a$|b$", "[$]$", r"\$$"]))
def test_it_is_what_pythons_own_end_of_the_text_finds(text: str, pattern: str) -> None:
    assert found(pattern, text) is (re.search(re.sub(r"(?<![\\[])\$", r"\\Z", pattern), text) is not None)


@pytest.mark.parametrize("value", ["rm", "rm\n"])
def test_tables_and_schemas_agree_on_it(value: str) -> None:
    told = "" if value == "rm" else "pattern:cmd"
    schema = {"type": "object", "properties": {"cmd": {"type": "string", "pattern": "^[a-z]+$"}}}

    assert TableArguments({"cmd": {"type": "str", "pattern": "^[a-z]+$"}}).first_fault({"cmd": value}) == told
    assert arguments_contract(schema).first_fault({"cmd": value}) == told
