"""Scenario files: what is read, what is refused, and that every refusal names the file, the place and the key."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.core.errors import BuildError
from fsm_agent.scenario.reading import ScenarioError, files_in, format_schema, read_file, scenario_of
from fsm_agent.scenario.values import Arg, BadValue, Unsavable, decoded, filled, whole

EVERYTHING: dict[str, Any] = {
    "id": "all",
    "about": "every key once",
    "query": "find it",
    "machine": "agent",
    "tools": {
        "s": {
            "args": {"q": {"type": "str", "required": True}},
            "returns": {"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"type": "integer"}}},
            "effect": "pure",
            "approval": [True, False, {"raise": "X"}],
            "where": "host",
            "timeout_s": 1,
            "cache_ttl_s": {"$float": "inf"},
            "negative_ttl_s": 2,
            "retry": {"attempts": 2, "backoff_s": [1, 2]},
            "breaker": {"failures": 2, "open_s": 3},
            "identity": ["q"],
            "polling": False,
            "empty_ok": True,
            "exclusive": False,
            "max_result_bytes": 100,
            "decode_json": False,
            "secret": [],
            "post": {"small": {"type": "object"}},
            "does": [{"return": {"a": 1}, "message": "m", "sleep_s": 1, "class": "OK", "retry_after_s": 1}, {"raise": "X"}],
            "then": "repeat-all",
        }
    },
    "allowed": {"gather": ["s"]},
    "limits": {"*": None, "max_turns": 3, "max_steps": 9, "max_same_tool_calls": {"s": 2}, "deadline_s": 1.5},
    "memory": {"ttl_s": 1, "negative_ttl_s": 2, "duplicates": "error"},
    "strategy": [{"max_iterations": 2}, {"until_finish_reason": ["stop"]}, {"messages_below": 9}, {"record": True}, {"raise": "X"}],
    "on_finish": {"length": "end", "content_filter": "continue", "empty": "continue"},
    "mode": ["sync"],
    "model": {"gather": [{"calls": [{"id": "a", "tool": "s", "args": {"q": "x"}, "intent": "i", "reason": "r"}], "text": "t"}]},
    "model_then": "fail",
    "closing": None,
    "verifier": [{"decision": "done"}, "odd", {"raise": "X"}],
    "person": [{"call": "a", "approve": True, "edit": {"q": "y"}, "reason": "r"}],
    "client": [{"call": "a", "return": 1}, {"call": "b", "raise": "X"}],
    "ops": [
        {"run": {"query": "q", "model": [{"final": "x", "finish": "stop", "times": 2, "usage": {"cost": 1}, "deltas": ["x"]}]}},
        {"resume": {"process": "fresh", "limits": {"max_turns": 9}, "until": {"started": "a"}, "save": "each-step"}},
        {"run": {"take_events": 2}},
        {"person": {"call": "a", "approve": True}},
        {"client": {"call": "a", "return": None}},
        {"message": "m"},
        {"save": "S"},
        {"load": {"name": "S", "process": "fresh"}},
        {"advance_s": 1},
        {"cancel": {}},
        {"crash": {}, "may_refuse": True},
        {"together": [[{"run": {}}], [{"advance_s": 1}, {"cancel": {}, "expect": {"status": "ok"}}]]},
    ],
    "expect": {
        "status": ["ok", None],
        "text_has": ["a", ["b", "c"]],
        "fields": {"unknowns": {"min": 1}},
        "tool_runs": {"s": [1, {"max": 2}]},
        "results": [{"call": "a", "ok": True, "value": {"$set": [1]}, "error": None, "class": "OK", "has": "x", "chars": 3}],
        "events": ["run_started", "...", "answer|paused:c"],
        "raises": [None, "Name"],
        "every_call_has_one_result": True,
    },
    "may_refuse": False,
    "unchecked": "prose",
}  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of every object of a document whose keys are the format's own."""
    if isinstance(value, dict):
        yield path
        for key, one in value.items():
            yield from places(one, (*path, key))
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from places(one, (*path, number))


OWN = {"args", "returns", "value", "return", "edit", "verifier", "post", "approval", "cache_ttl_s", "allowed"}
NAMES = {"tools", "tool_runs", "model", "max_same_tool_calls"}
CLOSED = [path for path in places(EVERYTHING) if not OWN & set(path) and not (path and path[-1] in NAMES)]


def at(document: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        document = document[step]
    return document


def test_a_file_with_every_key_is_read() -> None:
    scenario = scenario_of(EVERYTHING, "x.json")
    assert (scenario.id, scenario.modes) == ("all", ("sync",))
    assert scenario.keys["tools"]["s"]["cache_ttl_s"] == math.inf
    assert scenario.keys["expect"]["results"][0]["value"] == {1}


@pytest.mark.parametrize("path", CLOSED, ids=lambda path: "/".join(map(str, path)) or "top")
def test_an_unknown_key_anywhere_is_an_error_that_names_it_and_its_place(path: tuple[Any, ...]) -> None:
    document = copy.deepcopy(EVERYTHING)
    at(document, path)["speling"] = 1
    place = "/".join(map(str, path)) or "the file"
    with pytest.raises(ScenarioError) as caught:
        scenario_of(document, "x.json")
    said = str(caught.value)
    assert said.startswith("x.json: ")
    # A key of a table of figures by name may be one of those names; all other places are closed.
    assert "'speling'" in said
    assert f"{place}:" in said


def test_a_typing_error_gets_the_word_that_was_meant() -> None:
    with pytest.raises(ScenarioError, match=r"^x: tools/s: unknown key 'dose'; did you mean 'does'\?$"):
        scenario_of({"tools": {"s": {"dose": []}}}, "x")


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "the file: expected object"),
        ({"machine": "x"}, "machine: 'x' is none of 'agent', 'autogpt'"),
        ({"mode": "both"}, "mode: expected 'sync' or 'async' or array, got 'both'"),
        ({"limits": {"*": 1}}, "limits/*: expected null, got 1"),
        ({"limits": {"max_turns": "x"}}, "limits/max_turns"),
        ({"limits": {"max_turns": True}}, "limits/max_turns"),
        ({"tools": {"s": {"does": [{"return": 1, "raise": "X"}]}}}, "the keys return and raise exclude each other"),
        ({"model": [{"calls": [], "final": "x"}]}, "exclude each other"),
        ({"ops": [{"run": {}, "resume": {}}]}, "this one has run, resume"),
        ({"ops": [{"expect": {}}]}, "this one has none"),
        ({"person": [{"approve": True}]}, "person/0: the key 'call' is missing"),
        ({"expect": {"tool_runs": {"s": "two"}}}, "expect/tool_runs/s: expected number or object or array, got 'two'"),
        ({"expect": {"pending": {"a": "boss"}}}, "'boss' is none of 'approval', 'client'"),
        ({"model": [{"final": {"$arg": "x"}}]}, "model/0/final"),
        ({"model": [{"calls": [{"args": {"a": {"$arg": "x"}}}]}]}, "this is no body"),
        ({"tools": {"s": {"does": [{"return": {"$flaot": "nan"}}]}}}, "unknown key '$flaot'; did you mean '$float'?"),
        ({"tools": {"s": {"does": [{"return": {"$float": "big"}}]}}}, '{"$float"} takes'),
        ({"tools": {"s": {"does": [{"return": {"$int": "2**"}}]}}}, '{"$int"} takes'),
        ({"tools": {"s": {"does": [{"return": {"$bytes": "?"}}]}}}, "base64"),
        ({"tools": {"s": {"does": [{"return": {"$set": [[]]}}]}}}, "a set can hold"),
        ({"tools": {"s": {"does": [{"return": {"$object": 1}}]}}}, '{"$object"} takes'),
        ({"tools": {"s": {"does": [{"return": {"$repeat": ["x", -1]}}]}}}, '{"$repeat"} takes'),
        ({"tools": {"s": {"does": [{"return": {"$repeat": ["x", 10**9]}}]}}}, "makes more than"),
        ({"tools": {"s": {"does": [{"return": {"$repeat": [{"$repeat": [["a"], 10**5]}, 10**5]}}]}}}, "characters and items in all"),
        ({"closing": 7}, "closing: expected string or object or null, got 7"),
        ({"expect": {"text_has": [5]}}, "expect/text_has/0: expected string or object or array, got 5"),
        ({"tools": {"s": {"does": [{"return": {"$float": "nan", "x": 1}}]}}}, "'$float' stands alone in its object"),
        ({"tools": {"s": {"does": [{"return": {"x": 1, "$arg": "q"}}]}}}, "'$arg' stands alone in its object"),
        ({"tools": {"s": {"does": [{}]}}}, "tools/s/does/0: it is empty"),
        ({"expect": {"results": [{}]}}, "expect/results/0: it is empty"),
        ({"expect": {"tool_runs": {"s": {}}}}, "expect/tool_runs/s: it is empty"),
        ({"strategy": [{"max_iterations": 1, "record": True}]}, "strategy/0: it has exactly one of"),
        ({"strategy": [{}]}, "this one has none"),
        ({"person": [{"call": "a"}]}, "person/0: one of approve and edit is missing"),
        ({"ops": [{"person": {"call": "a", "reason": "no"}}]}, "ops/0/person: one of approve and edit is missing"),
        ({"person": [{"call": "a", "approve": False, "edit": {}}]}, "person/0: a call that is not approved has no edit"),
        (
            {"ops": [{"run": {}}, {"person": {"call": "a", "approve": False, "edit": {}}}]},
            "ops/1/person: a call that is not approved has no edit",
        ),
        ({"tools": {"s": {"does": [{"return": {"$set": ["${turn}"]}}]}}}, "tools/s/does: the template '${turn}' is none of a body"),
        ({"model": [{"final": "x", "retry_after_s": 1}]}, "model/0: the key 'retry_after_s' says nothing without 'raise'"),
        ({"model": [{"final": {"txt": "x"}}]}, "model/0/final: unknown key 'txt'; did you mean 'text'?"),
        ({"ops": [{"run": {"until": {"begun": "a"}}}]}, "ops/0/run/until: unknown key 'begun'; known are started"),
        ({"ops": [{"load": {"nme": "a"}}]}, "ops/0/load: unknown key 'nme'; did you mean 'name'?"),
        ({"ops": [{"load": {"process": "fresh"}}]}, "ops/0/load: the key 'name' is missing"),
        ({"ops": [{"load": {"process": 5}}]}, "ops/0/load/process: 5 is none of 'fresh', 'same'"),
        ({"ops": [{"message": {"txt": "a"}}]}, "ops/0/message: unknown key 'txt'; did you mean 'text'?"),
        ({"ops": [{"message": 5}]}, "ops/0/message: expected string or object, got 5"),
        ({"expect": {"max_active": {"s": {"mn": 1}}}}, "expect/max_active/s: unknown key 'mn'; did you mean 'min'?"),
        ({"expect": {"errors": [["a", 1]]}}, "expect/errors/0/1: expected string, got 1"),
        ({"expect": {"errors": [{"mn": 1}]}}, "expect/errors/0: unknown key 'mn'; did you mean 'min'?"),
        ({"limits": {"deadline_s": math.nan}}, "limits/deadline_s: nan is no limit"),
        ({"ops": [{"resume": {"limits": {"max_cost": math.inf}}}]}, "ops/0/resume/limits/max_cost: inf is no limit"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(document: Any, said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        scenario_of(document, "x")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "no JSON"),
        ("", "no JSON"),
        ('{"id": "a", "id": "b"}', "stands twice"),
        ('{"query": NaN}', "no JSON number"),
        ("[" * 100_000, "too deep"),
        ('{"query": ' + "[" * 150 + "]" * 150 + "}", ""),
        ('{"query": ' + "9" * 5000 + "}", "5000 digits"),
    ],
)
def test_a_file_that_is_no_json_is_an_error_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text, encoding="utf-8")
    if not said:
        read_file(path)
        return
    with pytest.raises(ScenarioError) as caught:
        read_file(path)
    assert str(caught.value).startswith(str(path))
    assert said in str(caught.value)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="No such file"):
        read_file(tmp_path / "none.json")
    (tmp_path / "x.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ScenarioError, match="byte 0xff at position 0 is not UTF-8"):
        read_file(tmp_path / "x.json")
    (tmp_path / "x.toml").write_text("a = ")
    with pytest.raises(ScenarioError, match="no TOML"):
        read_file(tmp_path / "x.toml")
    (tmp_path / "x.toml").write_text(f"a = {'9' * 5000}")
    with pytest.raises(ScenarioError, match=r"no TOML.*5000 digits"):
        read_file(tmp_path / "x.toml")
    assert issubclass(ScenarioError, BuildError)


def test_json_and_toml_say_the_same(tmp_path: Path) -> None:
    toml = 'query = "q"\n[tools.s]\neffect = "pure"\n[[tools.s.does]]\nreturn = {"$int" = "2**64"}\n[[model]]\nfinal = "x"\n'
    (tmp_path / "one.toml").write_text(toml)
    (tmp_path / "one.json").write_text(
        json.dumps({"query": "q", "tools": {"s": {"effect": "pure", "does": [{"return": {"$int": "2**64"}}]}}, "model": [{"final": "x"}]}),
        encoding="utf-8-sig",
    )
    one, other = read_file(tmp_path / "one.toml"), read_file(tmp_path / "one.json")
    assert one.keys == other.keys
    assert one.keys["tools"]["s"]["does"][0]["return"] == 2**64
    assert (one.id, one.modes) == ("one", ("sync", "async"))


def test_null_can_be_said_in_toml_wherever_it_may_stand(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text(
        'closing = {"$null" = true}\n'
        'limits = {"*" = {"$null" = true}, max_steps = 9}\n'
        '[tools.s]\nbreaker = {"$null" = true}\n'
        '[[tools.s.does]]\nreturn = {a = {"$null" = true}, b = [{"$null" = true}], c = {"$object" = {"$null" = true}}}\n'
        '[[model]]\nfinal = "x"\n'
    )
    keys = read_file(tmp_path / "one.toml").keys

    assert keys["closing"] is None
    assert keys["limits"] == {"*": None, "max_steps": 9}
    assert keys["tools"]["s"]["breaker"] is None
    given = keys["tools"]["s"]["does"][0]["return"]
    assert (given["a"], given["b"], type(given["c"]).__name__) == (None, [None], "Unsavable")
    (tmp_path / "one.json").write_text(json.dumps({"limits": {"*": {"$null": True}}, "closing": None}))
    assert read_file(tmp_path / "one.json").keys == {"limits": {"*": None}, "closing": None}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"closing": {"$null": False}}, 'closing: {"$null"} takes true, not false'),
        ({"limits": {"max_turns": {"$null": 1}}}, 'limits/max_turns: {"$null"} takes true, not 1'),
        ({"tools": {"s": {"does": [{"return": [{"$null": None}]}]}}}, 'tools/s/does/0/return/0: {"$null"} takes true, not null'),
        ({"tools": {"s": {"does": [{"return": {"$nulls": True}}]}}}, "unknown key '$nulls'; did you mean '$null'?"),
        ({"id": {"$null": True}}, "id: "),
    ],
)
def test_a_null_that_is_none_and_one_where_none_may_stand_are_refused(document: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError) as raised:
        scenario_of(document, "x")
    assert words in str(raised.value)


def test_folders_are_searched_in_order_and_an_empty_one_is_an_error(tmp_path: Path) -> None:
    for name in ("b.json", "a/z.toml", "a/b/c.json", "notes.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    found = [str(path.relative_to(tmp_path)) for path in files_in([tmp_path])]
    assert found == ["a/b/c.json", "a/z.toml", "b.json"]
    assert files_in([tmp_path / "b.json"]) == [tmp_path / "b.json"]
    for name in (".git/a.json", "a/.hidden/b.json", ".venv/c.toml", "a/__pycache__/d.json", "node_modules/x/e.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    assert [str(path.relative_to(tmp_path)) for path in files_in([tmp_path])] == found
    # What is named is looked into, whatever it is called.
    assert files_in([tmp_path / ".git"]) == [tmp_path / ".git" / "a.json"]
    (tmp_path / "void").mkdir()
    with pytest.raises(ScenarioError, match="holds no scenario"):
        files_in([tmp_path / "void"])
    with pytest.raises(ScenarioError, match="no such file or folder"):
        files_in([tmp_path / "nowhere"])


def test_the_published_format_is_closed_everywhere() -> None:
    def check(schema: Any, place: str) -> None:
        if isinstance(schema, dict):
            if "properties" in schema:
                assert schema.get("additionalProperties") is False, place
            for key, one in schema.items():
                check(one, f"{place}/{key}")
        elif isinstance(schema, list):
            for number, one in enumerate(schema):
                check(one, f"{place}/{number}")

    schema = format_schema()
    check(schema, "")
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"


# ---- special values and templates


@pytest.mark.parametrize(
    ("text", "value"),
    [("2**64", 2**64), ("-5", -5), ("2**64 - 1", 2**64 - 1), ("10 ** 3 * 2 + 1", 2001), ("2**3**2", 512), ("7", 7), ("3-2-1", 0)],
)
def test_a_whole_number_may_be_worked_out(text: str, value: int) -> None:
    assert whole(text) == value


@pytest.mark.parametrize("text", ["", "x", "2**", "+", "9**9**9**9", "1.5", "2//1", "__import__", None, 5, "2 3", "*2"])
def test_what_is_no_whole_number_is_refused(text: Any) -> None:
    with pytest.raises(BadValue):
        whole(text)


@given(st.integers(-(10**40), 10**40), st.integers(0, 10**6))
def test_sums_are_worked_out_as_python_does(one: int, other: int) -> None:
    assert whole(f"{one} + {other}") == one + other
    assert whole(f"{other} - {abs(one)}") == other - abs(one)
    assert whole(f"{other}*{abs(one)}") == other * abs(one)


def test_special_values_are_made() -> None:
    made = decoded({"a": {"$float": "-inf"}, "b": {"$bytes": "aGk="}, "c": {"$set": [1]}, "d": {"$repeat": ["ab", 2]}})
    assert made == {"a": -math.inf, "b": b"hi", "c": {1}, "d": "abab"}
    assert decoded({"$repeat": [[1], 2]}) == [[1], [1]]
    assert decoded({"$object": {"x": 1}}).x == 1
    assert isinstance(decoded({"$object": None}), Unsavable)
    assert decoded({"$arg": "x"}, in_body=True) == Arg("x")
    with pytest.raises(TypeError):
        copy.deepcopy(Unsavable())


@pytest.mark.parametrize("value", [{"$ref": "x"}, {"$gt": 5}, {"$in": []}, {"$schema": "x"}, {"$set": {"a": 1}, "$inc": {}}, "$float"])
def test_what_only_looks_special_is_an_ordinary_value(value: Any) -> None:
    assert decoded(value) == value


def test_templates_are_filled_in() -> None:
    names = {"turn": 3, "query": "q", "args": {"x": 5, "s": "t", "l": [1, {"k": 2}]}, "n": 2}
    assert filled("c${turn}: ${query} ${n}", names) == "c3: q 2"
    assert filled(["${args.x}", {"${args.s}": "${args.l.1.k}"}], names) == ["5", {"t": "2"}]
    assert filled("${HOME} $ {turn} ${}", names) == "${HOME} $ {turn} ${}"
    assert filled("${args.none}!", names) == "!"
    assert filled(Arg("l"), names) == [1, {"k": 2}]
    assert filled(Arg("none"), names) is None
    assert filled("${args.l}", names) == '[1, {"k": 2}]'


@pytest.mark.parametrize(
    ("wants", "value"),
    [
        (None, "5"),
        ({"type": "string"}, "5"),
        ({"type": "integer"}, 5),
        ({"type": "number"}, 5),
        ({"type": ["string", "integer"]}, 5),
        ({"type": "boolean"}, "5"),
    ],
)
def test_a_text_that_is_one_template_gets_the_type_that_the_contract_asks_for(wants: Any, value: Any) -> None:
    names = {"args": {"x": 5}}
    assert filled("${args.x}", names, wants) == value
    assert filled({"a": ["${args.x}"]}, names, {"properties": {"a": {"items": wants}}}) == {"a": [value]}
    assert filled("is ${args.x}", names, wants) == "is 5"


SEARCH: dict[str, Any] = {"tools": {"search": {"args": {"q": {"type": "str"}}}}}


def said_of(**keys: Any) -> str:
    """What is wrong with a scenario of one tool, or an empty text."""
    try:
        scenario_of({**SEARCH, **keys}, "x")
    except ScenarioError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("expect", "said"),
    [
        ({"events_none": ["call_starte"]}, "expect/events_none: there is no event 'call_starte'; did you mean 'call_started'?"),
        ({"events_none": "call_started|eror"}, "there is no event 'eror'"),
        ({"events": ["...", "call_finished|call_starte"]}, "there is no event 'call_starte'"),
        ({"events_once": ["nothing"]}, "there is no event 'nothing'"),
        ({"events_once": ["..."]}, "there is no event '...'"),
        ({"events_none": ["state_entered:verfy"]}, "did you mean 'state_entered:verify'?"),
        ({"events_none": ["answer:max_turn"]}, "did you mean 'answer:max_turns'?"),
        ({"stop_reason": ["answerd", "max_turns"]}, "expect/stop_reason: nobody says 'answerd'; did you mean 'answered'?"),
        ({"status": ["fialed", "partial"]}, "did you mean 'failed'?"),
        ({"state": ["finall", "gather"]}, "did you mean 'final'?"),
        ({"max_active": {"serch": {"max": 1}}}, "expect/max_active: there is no tool 'serch'; did you mean 'search'?"),
        ({"distinct_args": {"serch": 0}}, "expect/distinct_args: there is no tool 'serch'"),
        ({"distinct_args": {"other": True}}, "expect/distinct_args: there is no tool 'other'"),
        ({"tool_args": {"serch": []}}, "expect/tool_args: there is no tool 'serch'"),
        ({"tool_args_in": {"serch": {"q": ["a"]}}}, "expect/tool_args_in: there is no tool 'serch'"),
        ({"tool_runs": {"serch": {"max": 2}}}, "expect/tool_runs: there is no tool 'serch'"),
    ],
)
def test_a_word_that_would_hold_by_being_mistyped_is_refused(expect: dict[str, Any], said: str) -> None:
    assert said in said_of(expect=expect)
    assert f"ops/0/{said}" in said_of(ops=[{"run": {}, "expect": expect}]) or "expect/" not in said
    assert said in said_of(ops=[{"together": [[{"run": {}}, {"resume": {}, "expect": expect}]]}])


@pytest.mark.parametrize(
    "expect",
    [
        {"events": ["run_started", "...", "call_reused|call_finished:c1", "state_entered:verify", "answer:ok"]},
        {"events_none": ["call_retried", "judged", "observer_failed", "state_entered:somewhere"]},
        {"events": ["...", "answer|run_finished", "call_failed|call_finished:c1"]},
        {"stop_reason": ["refusal", "content_filter", None], "status": ["ok", None]},
        {"stop_reason": ["max_tool_calls", "max_same_tool_calls"]},
        {"tool_runs": {"serch": 0, "other": {"max": 0}}, "tool_args": {"other": []}, "distinct_args": {"other": 0}},
        {"max_active": {"min": 1, "max": 2}},
        {"max_active": {"search": 1}},
    ],
)
def test_a_word_that_may_be_meant_is_left_alone(expect: dict[str, Any]) -> None:
    assert said_of(expect=expect) == ""


@pytest.mark.parametrize("text", ["${trun}", "${n}", "${args.q}", "a ${ qeury }"])
def test_a_template_that_a_turn_does_not_have_is_refused(text: str) -> None:
    for turn in ({"final": text}, {"calls": [{"args": {"a": [text]}}]}, {"raw": {text: 1}}, {"raise": "X", "message": text}):
        assert "model/0: the template" in said_of(model=[turn])
        assert "model/gather/0: the template" in said_of(model={"gather": [turn]})
        assert "ops/0/run/model/0: the template" in said_of(ops=[{"run": {"model": [turn]}}])
    assert said_of(model=[{"final": "${turn} ${query} ${HOME} ${} ${jndi:ldap://x} $n"}]) == ""


@pytest.mark.parametrize("text", ["${trun}", "${turn}", "${query}", "${arg.q}"])
def test_a_template_that_a_body_does_not_have_is_refused(text: str) -> None:
    for value in (text, [{"a": text}], {text: 1}, {"$object": {"a": text}}):
        assert "tools/search/does: the template" in said_of(tools={"search": {"does": [{"return": value}]}})
    assert said_of(tools={"search": {"does": {"return": "${n} ${args.q.0} ${HOME}"}}}) == ""
