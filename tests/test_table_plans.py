"""Tables laid out in rows: they say what the rules say, whatever the table, the value and the edits in between."""

from __future__ import annotations

import copy
import pickle
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.core.contracts import TableArguments, TableResult
from fsm_agent.core.storable import storable
from fsm_agent.core.table_faults import argument_fault, argument_faults, result_fault


class Two(IntEnum):
    TWO = 2


BOUNDS = st.sampled_from([0, 1, 2, 1.5, None, True, float("nan"), float("inf")])
ITEMS = [{"type": "int"}, {}, {"n": {"type": "int", "min": 1}}, {"t": {"type": "str"}, "n": {"type": "float"}}, None]
RULES = st.fixed_dictionaries(
    {"type": st.sampled_from(["str", "int", "float", "bool", "list", "object", "null", "any", ["int", "null"], "none such"])},
    optional={
        "required": st.booleans(),
        "default": st.sampled_from([1, None]),
        "description": st.just("what it is"),
        "min": BOUNDS,
        "max": BOUNDS,
        "exclusive_max": BOUNDS,
        "min_len": st.sampled_from([0, 1, None]),
        "max_len": st.sampled_from([0, 1, 2, None, "two"]),
        "allowed": st.sampled_from([["a", "b"], ["a", 1], [True], ("a",), None]),
        "item": st.sampled_from(ITEMS),
    },
)
SPECS = st.dictionaries(st.sampled_from(["a", "b", "c"]), RULES, max_size=3)
LEAVES = st.sampled_from(["a", "b", "", 0, 1, 2, 3, 1.5, float("nan"), True, False, None, Two.TWO, b"a"])
ROWS = st.dictionaries(st.sampled_from(["n", "t"]), LEAVES, max_size=2)
PARTS = LEAVES | st.lists(LEAVES | ROWS, max_size=3) | ROWS
VALUES = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), PARTS, max_size=4)
EDITS = st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), RULES | st.none()), max_size=3)


def edit(spec: dict[str, Any], edits: list[tuple[str, dict[str, Any] | None]]) -> None:
    """Take rules out of a table, put others in, or put one behind the rest."""
    for name, rule in edits:
        spec.pop(name, None)
        if rule is not None:
            spec[name] = copy.deepcopy(rule)


@given(spec=SPECS, first=VALUES, edits=EDITS, then=VALUES)
def test_arguments_laid_out_have_the_reasons_of_the_rules(
    spec: dict[str, Any], first: Any, edits: list[tuple[str, Any]], then: Any
) -> None:
    contract = TableArguments(spec)
    assert contract.first_fault(first) == argument_fault(spec, first)
    assert contract.faults(first) == argument_faults(spec, first)
    edit(spec, edits)
    assert contract.faults(then) == argument_faults(spec, then)
    assert contract.first_fault(then) == argument_fault(spec, then)


@given(spec=SPECS, first=VALUES, edits=EDITS, then=VALUES, empty_ok=st.booleans())
def test_a_result_laid_out_has_the_first_reason_of_the_rules(
    spec: dict[str, Any], first: Any, edits: list[tuple[str, Any]], then: Any, empty_ok: bool
) -> None:
    contract = TableResult(spec, empty_ok)
    assert contract.first_fault(first) == result_fault(spec, first, empty_ok)
    edit(spec, edits)
    assert contract.first_fault(then) == result_fault(spec, then, empty_ok)


@given(spec=SPECS, value=VALUES, empty_ok=st.booleans())
def test_a_result_is_measured_as_the_copy_that_is_kept_of_it(spec: dict[str, Any], value: Any, empty_ok: bool) -> None:
    fault, made = TableResult(spec, empty_ok).measured(value)
    assert fault == result_fault(spec, value, empty_ok)
    if made is not None:
        assert repr(made) == repr(storable(value))
        assert not containers(made) & containers(value)


def containers(value: Any) -> set[int]:
    """The identities of every list and dict in a value."""
    if not isinstance(value, list | dict):
        return set()
    return {id(value)}.union(*map(containers, value.values() if isinstance(value, dict) else value))


def test_a_usual_result_is_copied_while_it_is_measured() -> None:
    spec = {"sku": {"type": "str"}, "rows": {"type": "list", "item": {"n": {"type": "int", "min": 0}}}, "notes": {"type": "object"}}
    value = {"rows": [{"n": 1}, {"n": 2}], "notes": {"a": [1]}, "sku": "x"}
    found = TableResult(spec).measured(value)
    assert found == ("", value)
    assert list(found[1]) == ["rows", "notes", "sku"]


class Likeness(type):
    """A class that says it is any other."""

    def __eq__(cls, other: object) -> bool:
        return True

    __hash__ = type.__hash__


class Key(str, metaclass=Likeness):
    """A text that is none to whoever looks closely."""


def test_a_key_that_is_no_exact_text_is_never_taken_for_one() -> None:
    value = {Key("n"): 1}
    contract = TableResult({"n": {"type": "int"}})
    assert contract.measured(value) == ("", None)
    assert [type(key) is str for key in storable(value)] == [True]


@pytest.mark.parametrize("contract", [TableArguments({"a": {"type": "int"}}), TableResult({"a": {"type": "int"}})])
def test_a_contract_that_has_measured_can_be_copied_and_pickled(contract: Any) -> None:
    assert contract.first_fault({"a": 1}) == ""
    for again in (copy.deepcopy(contract), pickle.loads(pickle.dumps(contract))):
        assert again.first_fault({"a": 1}) == ""
        assert again.first_fault({"a": "1"}) == contract.first_fault({"a": "1"}) != ""


def test_names_and_bounds_of_any_kind_are_written_out_as_they_are() -> None:
    names = ['"', "'", "\\", "\n", "\ud800", "{x}", "é", "", "import os"]
    spec = {name: {"type": "float", "min": float("-inf"), "max": 2.5} for name in names}
    assert TableArguments(spec).first_fault(dict.fromkeys(names, 1.5)) == ""
    for name in names:
        assert TableArguments(spec).first_fault(dict.fromkeys(names, 1.5) | {name: 3.0}) == f"range:{name}"
    assert TableResult(spec).measured(dict.fromkeys(names, 1.5)) == ("", dict.fromkeys(names, 1.5))
    assert TableResult(spec).first_fault(dict.fromkeys(names, 3.0)) == "range"


def test_lists_in_lists_are_measured_however_deep() -> None:
    spec: dict[str, Any] = {"n": {"type": "int"}}
    value: dict[str, Any] = {"n": 1}
    for _ in range(15):
        spec, value = {"rows": {"type": "list", "item": spec}}, {"rows": [value]}
    assert TableResult(spec).first_fault(value) == ""


def test_a_rule_moved_behind_another_is_told_in_the_new_order() -> None:
    spec: dict[str, Any] = {"a": {"type": "int"}, "b": {"type": "int"}}
    contract = TableArguments(spec)
    assert contract.first_fault({"a": "x", "b": "x"}) == "type:a"
    spec["a"] = spec.pop("a")
    assert [fault.reason for fault in contract.faults({"a": "x", "b": "x"})] == ["type:b", "type:a"]
    assert contract.first_fault({"a": "x", "b": "x"}) == "type:b"


def test_an_option_added_and_a_bound_changed_inside_a_rule_count_at_once() -> None:
    spec: dict[str, Any] = {"a": {"type": "str", "allowed": ["x"]}, "b": {"type": "int", "max": 1}}
    contract = TableArguments(spec)
    assert contract.first_fault({"a": "y", "b": 2}) == "allowed:a"
    spec["a"]["allowed"].append("y")
    assert contract.first_fault({"a": "y", "b": 2}) == "range:b"
    spec["b"]["max"] = 2
    assert contract.first_fault({"a": "y", "b": 2}) == ""


def test_a_table_stays_the_contract_s_own() -> None:
    contract = TableResult({"a": {"type": "int"}})
    with pytest.raises(AttributeError):
        contract.spec = None


ENDS: list[dict[str, Any]] = [{}, {"min": 1}, {"max": 2}, {"min": 1, "max": 2}]
ONE_RULE: list[dict[str, Any]] = [
    *({"type": kind, **ends} for kind in ("int", "float", "str", "bool") for ends in ENDS),
    *({"type": "int", key: 1} for key in ("exclusive_min", "exclusive_max")),
    *({"type": "str", key: 1} for key in ("min_len", "max_len")),
    *({"type": kind, "allowed": options} for kind, options in (("str", ["a"]), ("str", []), ("int", [1]))),
    *({"type": "list", "item": item} for item in ITEMS),
    *({"type": "list", "max_len": 1, "item": item} for item in ITEMS),
]  # fmt: skip
ONE_VALUE: list[Any] = [
    0, 1, 2, 3, 0.5, 1.0, 2.0, 2.5, "", "a", "aa", True, None, [], [1], ["a"], [1, 2], [{}], [{"n": 0}], [{"n": 1}],
    [{"n": 0}, {"n": 1}], [{"n": 1}, {"n": 0}], [{"n": 1, "t": "a"}],
]  # fmt: skip


@pytest.mark.parametrize("rule", ONE_RULE, ids=str)
def test_a_rule_laid_out_ends_where_the_rule_ends(rule: dict[str, Any]) -> None:
    spec = {"a": rule, "b": {"type": "int", "max": 2}}
    arguments, result = TableArguments(spec), TableResult(spec)
    for one in ONE_VALUE:
        for other in (2, 3):
            value = {"a": one, "b": other}
            assert arguments.first_fault(value) == argument_fault(spec, value)
            assert result.first_fault(value) == result_fault(spec, value, False)
