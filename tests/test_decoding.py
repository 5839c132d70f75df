"""Arguments from a decider: what decodes without guessing is decoded, and nothing else is touched."""

from __future__ import annotations

import itertools
import json
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.core.decoding import decoded, strict_json

OBJECTS: list[dict[str, Any]] = [{}, {"q": "x"}, {"n": "7", "deep": {"list": [1, 2.5, None, True, "ü"]}}]
SPACE = ["", " ", "\n", "\t\r\n "]


def fenced(text: str, tag: str, newline: str) -> str:
    return f"```{tag}{newline}{text}{newline}```"


NOTHING = [None, "", " ", "\n\t ", "null", " null ", '""', '" "', "``````", "```json\n```", "```\nnull\n```"]


@pytest.mark.parametrize("nothing", NOTHING)
def test_empty_null_and_missing_arguments_are_no_arguments(nothing: Any) -> None:
    assert decoded(nothing) == {}


@pytest.mark.parametrize("args", OBJECTS)
@pytest.mark.parametrize(("before", "after"), list(itertools.product(SPACE, repeat=2)))
def test_json_text_and_a_json_string_that_holds_an_object_are_decoded(args: dict[str, Any], before: str, after: str) -> None:
    text = json.dumps(args)
    assert decoded(before + text + after) == args
    assert decoded(before + json.dumps(before + text + after) + after) == args


@pytest.mark.parametrize("args", OBJECTS)
@pytest.mark.parametrize("tag", ["", "json", "JSON", "json5", "js"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\n\n"])
def test_a_code_fence_around_either_is_taken_off(args: dict[str, Any], tag: str, newline: str) -> None:
    text = json.dumps(args)
    assert decoded(fenced(text, tag, newline)) == args
    assert decoded(f"  {fenced(json.dumps(text), tag, newline)}\n") == args


def test_a_fence_on_one_line_is_a_fence() -> None:
    assert decoded('```json {"q": "x"}```') == {"q": "x"}
    assert decoded('```{"q": "x"}```') == {"q": "x"}


@pytest.mark.parametrize(("opens", "closes"), [('{"q":', "}"), ('{"q":[', "]}")])
def test_what_nests_too_deep_for_a_saved_run_stays_a_text(opens: str, closes: str) -> None:
    levels = 200 // len(closes)
    kept, deep = (opens * n + "7" + closes * n for n in (levels, levels + 1))
    for dress in (str, json.dumps, lambda text: json.dumps(text).replace("{", "\\u007b")):
        assert decoded(dress(kept)) == json.loads(kept)
        assert decoded(dress(deep)) == dress(deep)
    assert len(decoded(json.dumps({"q": [[]] * 300}))["q"]) == 300


@pytest.mark.parametrize("args", OBJECTS)
def test_an_object_stays_the_very_object(args: dict[str, Any]) -> None:
    assert decoded(args) is args


def test_numbers_in_strings_stay_strings() -> None:
    assert decoded('{"n": "1", "b": "true", "l": "[1]", "o": "{}"}') == {"n": "1", "b": "true", "l": "[1]", "o": "{}"}


OTHERS: list[Any] = [
    "x", "q=x", "{'q': 'x'}", '{"q": "x"', '{"q": "x"} {}', '{"q": "x",}', "[1]", "7", "true", '"x"', "```", "````", "`````",
    '```{"q": 1}', '{"q": 1}```', '{"q": NaN}', '{"q": Infinity}', '{"q": -Infinity}', "NaN", '\ufeff{"q": 1}',
    json.dumps(json.dumps(json.dumps({"q": "x"}))), json.dumps("```{}```"), '{"n": ' + "9" * 5000 + "}", "[" * 100_000,
    '{"a":' * 100_000, "\ud800", 7, 7.5, True, False, 10**5000, [1], ["q"], (1,), b"{}", {1, 2}, object(),
]  # fmt: skip


@pytest.mark.parametrize("args", OTHERS, ids=range(len(OTHERS)))
def test_what_would_take_guessing_stays_as_it_came(args: Any) -> None:
    assert decoded(args) is args


def test_a_mapping_of_another_class_stays_as_it_came() -> None:
    args = MappingProxyType({"q": "x"})
    assert decoded(args) is args


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), json_values, max_size=4))
def test_an_object_comes_through_every_dress_unchanged(args: dict[str, Any]) -> None:
    text = json.dumps(args)
    for dress in (text, json.dumps(text), fenced(text, "json", "\n"), fenced(json.dumps(text), "", "\n")):
        assert decoded(dress) == args


@given(st.text())
def test_no_text_makes_it_raise_and_only_objects_come_out(text: str) -> None:
    made = decoded(text)
    assert made is text or isinstance(made, dict)


@pytest.mark.parametrize("text", ["{}", b"{}", "[1]", "7", '"x"', "null"])
def test_strict_json_reads_what_json_reads(text: str | bytes) -> None:
    assert strict_json(text) == json.loads(text)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "[NaN]", "", "nope", b"\xff\xfe\xfd"])
def test_strict_json_refuses_what_is_no_json(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        strict_json(text)
