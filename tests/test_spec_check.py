"""Tables that contradict themselves are refused when the tool is built, with the place and the mend."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from fsm_agent.core.errors import ContractError
from fsm_agent.core.spec_check import check_arguments, check_returns


def looped() -> dict[str, Any]:
    rule: dict[str, Any] = {"type": "list"}
    rule["item"] = rule
    return rule


# A rule, what is wrong with it, and the mend.
RULES: list[tuple[Any, str, str]] = [
    ("str", "the rule is 'str'", "{'type': 'str'}"),
    (None, "the rule is None", "give a mapping"),
    ({"type": "string"}, "the type 'string' is unknown", "str, int, float, bool, list, object, null, any"),
    ({"type": 5}, "the type 5 is unknown", "the types are"),
    ({"type": ["int", "nul"]}, "the type 'nul' is unknown", "the types are"),
    ({"type": []}, "the list of types is empty", "name at least one"),
    ({"typ": "str"}, "the key 'typ' is unknown", "did you mean 'type'?"),
    ({"type": "str", "maximum": 5}, "the key 'maximum' is unknown", "did you mean 'max'?"),
    ({"type": "str", "zzz": 5}, "the key 'zzz' is unknown", "the keys are"),
    ({"type": "str", 5: 5}, "the key 5 is unknown", "the keys are"),
    ({"type": "str", "required": "yes"}, "required is 'yes'", "True or False"),
    ({"type": "str", "description": 5}, "description is 5", "give a text"),
    ({"type": "int", "min": 3, "max": 1}, "min 3 is greater than max 1", "swap them"),
    ({"type": "int", "exclusive_min": 3, "max": 1}, "exclusive_min 3 is greater than max 1", "swap them"),
    ({"type": "int", "min": 3, "exclusive_max": 3}, "no number lies between", "use min and max"),
    ({"type": "int", "min": "1"}, "min is '1'", "give a number"),
    ({"type": "int", "min": True}, "min is True", "give a number"),
    ({"type": "float", "max": math.nan}, "max is nan", "give a number"),
    ({"type": "str", "min": 1}, "min is no key of type str", "make the type float or int"),
    ({"type": "list", "exclusive_max": 1}, "exclusive_max is no key of type list", "leave it out"),
    ({"type": "str", "min_len": 3, "max_len": 1}, "min_len 3 is greater than max_len 1", "swap them"),
    ({"type": "str", "min_len": -1}, "min_len is -1", "a whole number from 0"),
    ({"type": "str", "max_len": 1.5}, "max_len is 1.5", "a whole number from 0"),
    ({"type": "str", "max_len": True}, "max_len is True", "a whole number from 0"),
    ({"type": "int", "min_len": 1}, "min_len is no key of type int", "make the type list or object or str"),
    ({"type": "str", "pattern": "("}, "pattern '(' is no regular expression", "re.escape"),
    ({"type": "str", "pattern": 5}, "pattern is 5", "regular expression as text"),
    ({"type": "int", "pattern": "a"}, "pattern is no key of type int", "make the type str"),
    ({"type": "str", "item": {"type": "int"}}, "item is no key of type str", "make the type list"),
    ({"type": "list", "item": "int"}, "item is 'int'", "give one rule"),
    ({"type": "list", "fields": {}}, "fields is no key of type list", "make the type object"),
    ({"type": "object", "fields": []}, "the contract is []", "names to rules"),
    (
        {"type": "object", "fields": {}, "values": {}},
        "fields and values are both given",
        "values for keys that are not",
    ),
    ({"type": "str", "allowed": "abc"}, "allowed is 'abc'", "non-empty list"),
    ({"type": "str", "allowed": []}, "allowed is []", "non-empty list"),
    ({"type": "str", "allowed": 5}, "allowed is 5", "non-empty list"),
    ({"type": "str", "allowed": ["a", 5]}, "the allowed value 5 breaks its type: expected str", "take it out"),
    ({"type": "int", "allowed": [1, True]}, "the allowed value True breaks its type", "take it out"),
    ({"type": "int", "allowed": [1, 9], "max": 5}, "the allowed value 9 breaks its range: expected <= 5", "widen"),
    ({"type": "str", "allowed": ["ab"], "max_len": 1}, "the allowed value 'ab' breaks its length", "widen"),
    ({"type": "int", "default": "a"}, "the default 'a' breaks its type: expected int", "add 'null'"),
    ({"type": "int", "default": None}, "the default None breaks its type: expected int", "add 'null'"),
    ({"type": "int", "default": 9, "max": 5}, "the default 9 breaks its range", "give a default"),
    (
        {"type": "str", "default": "b", "allowed": ["a"]},
        "the default 'b' breaks its allowed: expected one of 'a'",
        "give",
    ),
    ({"type": "list", "item": {"type": "int"}, "default": ["a"]}, "breaks its type: expected int", "give a default"),
    ({"type": "object", "fields": {"a": {"type": "int"}}, "default": {}}, "breaks its missing", "give a default"),
    (looped(), "it is nested too deeply or holds itself", "nest at most 32 levels"),
]
TYPED = [one for one in RULES if isinstance(one[0], dict) and isinstance(one[0].get("type"), str)]
NESTED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "item": (lambda rule: {"type": "list", "item": rule}, "at item"),
    "item's fields": (lambda rule: {"type": "list", "item": {"k": rule}}, "at item/k"),
    "fields": (lambda rule: {"type": "object", "fields": {"k": rule}}, "at fields/k"),
    "values": (lambda rule: {"type": "object", "values": rule}, "at values"),
}
FINE: list[Any] = [
    None,
    {},
    {"a": {}},
    {"a": {"type": "any", "min": 1, "max_len": 2, "pattern": "a", "item": {}}},
    {"a": {"type": "int", "min": 1}},
    {"a": {"type": "int", "max": 1, "min": None}},
    {"a": {"type": "int", "min": 1, "max": 1}},
    {"a": {"type": ["int", "null"], "max": 1, "default": None}},
    {"a": {"type": "float", "max": math.inf}},
    {"a": {"type": "str", "allowed": {"x": 1}.keys()}},
    {"a": {"type": "str", "allowed": ("x", "y"), "default": "y"}},
    {"a": {"type": "list", "item": {"type": {"type": "int"}}}},
    {"type": {"type": "str"}},
    {"a": {"type": "int", "required": True, "default": 1}},
]


@pytest.mark.parametrize("check", [check_arguments, check_returns])
@pytest.mark.parametrize(("rule", "problem", "mend"), RULES, ids=[f"{n}-{one[1][:40]}" for n, one in enumerate(RULES)])
def test_a_rule_that_contradicts_itself_is_refused(check: Any, rule: Any, problem: str, mend: str) -> None:
    with pytest.raises(ContractError) as caught:
        check({"ok": {"type": "int"}, "bad": rule}, "find")
    for words in ("tool 'find'", "'bad'", problem, mend, "argument" if check is check_arguments else "result"):
        assert words in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("way", NESTED)
@pytest.mark.parametrize(("rule", "problem", "mend"), TYPED, ids=range(len(TYPED)))
def test_a_nested_rule_is_refused_with_its_place(way: str, rule: Any, problem: str, mend: str) -> None:
    nest, place = NESTED[way]
    with pytest.raises(ContractError) as caught:
        check_arguments({"bad": nest(rule)}, "find")
    for words in ("tool 'find', argument 'bad'", place, problem, mend):
        assert words in str(caught.value)


@pytest.mark.parametrize("spec", FINE, ids=range(len(FINE)))
def test_a_sound_table_passes(spec: Any) -> None:
    check_arguments(spec, "find")
    check_returns(spec, "find")


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (5, "the contract is 5"),
        ([{"type": "int"}], "the contract is [{'type': 'int'}]"),
        ({1: {"type": "int"}}, "the name 1 is no text"),
        ({"": {"type": "int"}}, "the name '' is no text"),
        ({"type": "object", "properties": {}}, "so it is a JSON Schema"),
    ],
)
def test_what_is_no_table_is_refused(spec: Any, problem: str) -> None:
    with pytest.raises(ContractError) as caught:
        check_arguments(spec, "find")
    assert problem in str(caught.value)
    assert "tool 'find'" in str(caught.value)


@pytest.mark.parametrize(("levels", "sound"), [(31, True), (32, False)])
def test_a_table_may_be_nested_to_a_bound(levels: int, sound: bool) -> None:
    rule: dict[str, Any] = {"type": "int"}
    for _ in range(levels):
        rule = {"type": "list", "item": rule}
    if sound:
        check_arguments({"x": rule}, "find")
    else:
        with pytest.raises(ContractError, match="nested too deeply"):
            check_arguments({"x": rule}, "find")
