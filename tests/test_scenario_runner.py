"""Scenarios played: the scripted world, its time, its people, its steps, alike in threads and in tasks."""

from __future__ import annotations

import copy
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsm_agent.core.limits import Limits
from fsm_agent.core.saving import load
from fsm_agent.scenario.named_errors import exception_named, names_of
from fsm_agent.scenario.reading import read_file, scenario_of
from fsm_agent.scenario.runner import Verdict, run_scenario
from fsm_agent.scenario.script import Script, decision_of, step_of, usage_of
from fsm_agent.scenario.verdict_lines import line
from fsm_agent.scenario.world import limits_of

OFF: dict[str, Any] = {"*": None, "max_turns": 20, "max_steps": 200}
both = pytest.mark.parametrize("mode", ["sync", "async"])


def tool(**keys: Any) -> dict[str, Any]:
    return {"args": {"q": {"type": "str"}}, "effect": "pure", **keys}


def asks(*ids: str, tool: str = "s", **args: Any) -> dict[str, Any]:
    return {"calls": [{"id": one, "tool": tool, "args": args or {"q": one}} for one in ids]}


DONE: dict[str, Any] = {"final": "done"}
ONE_CALL: dict[str, Any] = {"tools": {"s": tool()}, "model": [asks("a"), DONE]}


def play(mode: str, **document: Any) -> Verdict:
    return run_scenario(scenario_of(copy.deepcopy({"limits": OFF, **document}), "x.json"), mode)


def holds(mode: str, **document: Any) -> None:
    assert play(mode, **document).faults == ()


# ---- time


@both
def test_bodies_of_one_turn_sleep_beside_each_other(mode: str) -> None:
    did = [{"return": "a", "sleep_s": 2}, {"return": "b", "sleep_s": 3}]
    holds(
        mode, tools={"s": tool(does=did)}, model=[asks("a", "b"), DONE], limits={**OFF, "deadline_s": 100},
        expect={"usage": {"spent_s": 3}, "max_active": 2, "results": [{"call": "a", "value": "a"}, {"call": "b", "value": "b"}]},
    )  # fmt: skip


@both
def test_no_real_time_passes(mode: str) -> None:
    began = time.monotonic()
    holds(mode, tools={"s": tool(does=[{"return": 1, "sleep_s": 86400}])}, model=[asks("a"), DONE], expect={"usage": {"spent_s": 86400}})
    assert time.monotonic() - began < 5


@both
def test_a_body_that_outlives_its_timeout_is_given_up_and_one_that_ends_with_it_is_not(mode: str) -> None:
    late = tool(timeout_s=1, effect="idempotent", does=[{"return": "late", "sleep_s": 3}], breaker=None)
    holds(
        mode, tools={"s": late}, model=[asks("a"), {**DONE, "sleep_s": 9}],
        expect={"status": "ok", "results": [{"call": "a", "error": "raised:TimeoutError"}], "text_lacks": ["late"]},
    )  # fmt: skip
    timely = tool(timeout_s=1, does=[{"return": "timely", "sleep_s": 1}])
    holds(mode, tools={"s": timely}, model=[asks("a"), DONE], expect={"results": [{"call": "a", "value": "timely"}]})


@both
def test_the_deadline_is_one_of_virtual_time(mode: str) -> None:
    turn = {"calls": [{"id": "c${turn}", "tool": "s", "args": {"q": "${turn}"}}]}
    holds(
        mode, tools={"s": tool(does=[{"return": "r", "sleep_s": 4}])}, limits={**OFF, "deadline_s": 11}, model=[turn],
        model_then="repeat-last",
        expect={"stop_reason": "deadline", "tool_runs": {"s": 3}, "results": [{"call": "c2", "ok": True}, {"call": "c3", "ok": False}]},
    )  # fmt: skip


@both
def test_waits_between_tries_are_counted(mode: str) -> None:
    did = [{"raise": "E", "class": "RETRYABLE"}, {"raise": "E", "class": "RATE_LIMITED", "retry_after_s": 5}, {"return": "ok"}]
    holds(
        mode, tools={"s": tool(retry={"attempts": 3, "backoff_s": [1, 2, 4]}, does=did)}, model=[asks("a"), DONE],
        expect={"waited_s": 6, "tool_runs": {"s": 3}, "results": [{"call": "a", "ok": True}]},
    )  # fmt: skip


@both
def test_exclusive_bodies_wait_for_each_other_in_virtual_time(mode: str) -> None:
    tools = {"s": tool(exclusive=True, does=[{"return": 1, "sleep_s": 3}])}
    holds(
        mode, tools=tools, model=[asks("a"), DONE], ops=[{"together": [[{"run": {}}], [{"run": {}}]]}],
        expect={"max_active": 1, "usage": {"spent_s": [3, 6]}},
    )  # fmt: skip


@both
def test_a_model_takes_its_time_too(mode: str) -> None:
    holds(mode, model=[{**DONE, "sleep_s": 7}], expect={"usage": {"spent_s": 7}, "waited_s": 0})


# ---- bodies


@both
def test_a_raise_without_a_class_is_a_plain_failure_whatever_its_name(mode: str) -> None:
    holds(
        mode, tools={"s": tool(retry={"attempts": 3}, does=[{"raise": "ConnectionError", "message": "${args.q} is down"}])},
        model=[asks("a"), DONE],
        expect={"waited_s": 0, "tool_runs": {"s": 1}, "results": [{"error": "raised:ConnectionError", "class": None, "has": "a is down"}]},
    )  # fmt: skip


@both
@pytest.mark.parametrize("name", ["ValueError", "ToolError", "asyncio.CancelledError", "UnicodeDecodeError", "ExceptionGroup", "print"])
def test_what_a_body_raises_has_the_name_that_is_written(mode: str, name: str) -> None:
    word = f"raised:{name.rpartition('.')[2]}"
    holds(mode, tools={"s": tool(does=[{"raise": name}])}, model=[asks("a"), DONE], expect={"results": [{"call": "a", "error": word}]})


@both
@pytest.mark.parametrize("name", ["KeyboardInterrupt", "SystemExit"])
def test_what_passes_through_is_expected_by_name(mode: str, name: str) -> None:
    world = {"tools": {"s": tool(does=[{"raise": name}])}, "model": [asks("a"), DONE]}
    holds(mode, **world, expect={"raises": name, "stop_reason": "cancelled", "model_turns": 1})
    assert play(mode, **world, expect={"model_turns": 1}).faults == (f"this escaped: {name}: ''",)
    assert not play(mode, **world, expect={"raises": [None, "ValueError"]}).holds


@both
@pytest.mark.parametrize(("then", "values"), [("repeat-last", [1, 2, 2, 2]), ("repeat-all", [1, 2, 1, 2])])
def test_a_body_whose_script_has_ended_goes_on_as_written(mode: str, then: str, values: list[int]) -> None:
    turns = [asks(one) for one in "abcd"]
    results = [{"call": one, "value": value} for one, value in zip("abcd", values, strict=True)]
    holds(mode, tools={"s": tool(does=[{"return": 1}, {"return": 2}], then=then)}, model=[*turns, DONE], expect={"results": results})


@both
def test_a_body_that_must_not_run_again_fails_the_scenario(mode: str) -> None:
    verdict = play(mode, tools={"s": tool(does=[{"return": 1}], then="fail")}, model=[asks("a"), asks("b"), DONE])
    assert verdict.faults == ("the body of s ran 2 times and its script has 1 steps",)


@both
def test_values_that_json_cannot_hold_come_and_go(mode: str) -> None:
    value = {
        "a": {"$float": "nan"}, "b": {"$int": "2**64"}, "c": {"$bytes": "aGk="}, "d": {"$set": [1]}, "e": {"$object": {"x": 1}},
        "f": {"$repeat": ["ab", 3]},
    }  # fmt: skip
    gave = {**value, "g": {"$arg": "q"}, "h": "${n} ${args.q}"}
    wanted = {**value, "g": "a", "h": "1 a"}
    holds(mode, tools={"s": tool(does=[{"return": gave}])}, model=[asks("a"), DONE], expect={"results": [{"call": "a", "value": wanted}]})


@both
def test_templates_take_the_type_that_the_contract_asks_for(mode: str) -> None:
    count = {"args": {"n": {"type": "int"}}, "returns": {"n": {"type": "int"}}, "does": [{"return": {"n": "${args.n}"}}]}
    holds(
        mode, tools={"s": count}, model=[asks("a", n="${turn}"), DONE],
        expect={"tool_args": {"s": [{"n": 1}]}, "results": [{"call": "a", "value": {"n": 1}}]},
    )  # fmt: skip


@both
def test_a_body_sleeps_as_long_as_its_argument_says(mode: str) -> None:
    wait = {"args": {"s": {"type": "int"}}, "does": [{"return": "ok", "sleep_s": {"$arg": "s"}}]}
    holds(mode, tools={"wait": wait}, model=[asks("a", tool="wait", s=31), DONE], expect={"usage": {"spent_s": 31}})


@both
def test_an_argument_that_a_body_asks_for_and_nobody_has_is_a_fault(mode: str) -> None:
    optional = {"q": {"type": "str", "required": True}, "more": {"type": "str", "required": False}}
    holds(
        mode, tools={"s": tool(args=optional, does=[{"return": ["${args.more}!", {"$arg": "more"}]}])}, model=[asks("a"), DONE],
        expect={"results": [{"call": "a", "value": ["!", None]}]},
    )  # fmt: skip
    thing = {"$object": {"a": "${args.z}"}}
    for value, name in (("x ${args.qq}", "qq"), ({"$arg": "mor"}, "mor"), ([{"${args.x.y}": 1}], "x"), (thing, "z")):
        verdict = play(mode, tools={"s": tool(args=optional, does=[{"return": value}])}, model=[asks("a"), DONE])
        assert len(verdict.faults) == 1
        assert verdict.faults[0].startswith(f"tools/s/does: the call has no argument {name!r}; ")
    # Without a contract the arguments are those of the call.
    assert play(mode, tools={"s": {"does": [{"return": "${args.q}"}]}}, model=[asks("a"), DONE]).holds
    assert not play(mode, tools={"s": {"does": [{"return": "${args.p}"}]}}, model=[asks("a"), DONE]).holds


@both
@pytest.mark.parametrize("name", ["self", "args", "context", "the call's own context"])
def test_an_argument_of_any_name_reaches_the_body(mode: str, name: str) -> None:
    named = tool(args={name: {"type": "str", "required": True}}, approval=[False], does=[{"return": {"$arg": name}}])
    call = {"calls": [{"id": "a", "tool": "s", "args": {name: "1"}}]}
    expect = {"results": [{"call": "a", "value": "1"}], "tool_args": {"s": [{name: "1"}]}}
    holds(mode, tools={"s": named}, model=[call, DONE], expect=expect)


@both
def test_a_post_condition_is_a_schema(mode: str) -> None:
    small = tool(post={"small": {"type": "integer", "maximum": 1}}, does=[{"return": 1}, {"return": 2}])
    results = [{"call": "a", "ok": True}, {"call": "b", "error": "result:small"}]
    holds(mode, tools={"s": small}, model=[asks("a"), asks("b"), DONE], expect={"results": results})


# ---- the model


@both
def test_a_turn_that_comes_again_gets_fresh_ids(mode: str) -> None:
    turns = [{**asks("a"), "times": 2}, asks("b")]
    results = [{"call": one} for one in ("a", "a-2", "b", "a-3", "a-4", "b-2")]
    limits = {**OFF, "max_tool_calls": 6}
    expect = {"results": results, "tool_runs": {"s": 6}}
    holds(mode, tools={"s": tool()}, limits=limits, model=turns, model_then="repeat-all", expect=expect)


@both
def test_a_script_that_has_ended_fails_the_scenario_unless_that_is_expected(mode: str) -> None:
    world = {"tools": {"s": tool()}, "model": [asks("a")], "model_then": "fail"}
    assert play(mode, **world).faults == ("the model was asked for turn 2 and its script has 1",)
    holds(mode, **world, expect={"stop_reason": "model_error", "model_turns": 1})


@both
def test_where_nothing_is_written_the_last_turn_comes_again_unless_it_raises(mode: str) -> None:
    holds(mode, tools={"s": tool()}, model=[asks("a")], expect={"stop_reason": "max_turns", "tool_runs": {"s": 20}})
    expect = {"stop_reason": "model_error", "model_turns": 2, "tool_runs": {"s": 1}}
    holds(mode, tools={"s": tool()}, model=[asks("a"), {"raise": "ConnectionError"}], expect=expect)
    assert play(mode, tools={"s": tool()}).faults == ("the model was asked for turn 1 and its script has 0",)


@both
def test_turns_may_be_written_by_state(mode: str) -> None:
    holds(mode, tools={"s": tool()}, model={"gather": [asks("a"), DONE]}, expect={"status": "ok", "tool_runs": {"s": 1}})


@both
@pytest.mark.parametrize(
    ("closing", "text"),
    [({}, "closing"), ({"closing": "bye"}, "bye"), ({"closing": None}, "the next"), ({"closing": {"final": "turn"}}, "turn")],
)
def test_the_last_request_is_answered_apart(mode: str, closing: dict[str, Any], text: str) -> None:
    turns = [asks("a"), asks("b"), {"final": "the next"}]
    expect = {"stop_reason": "max_tool_calls", "text_has": [text], "model_turns": 3}
    holds(mode, tools={"s": tool()}, limits={**OFF, "max_tool_calls": 1}, model=turns, **closing, expect=expect)


@both
def test_a_closing_answer_that_cannot_be_had_is_no_fault(mode: str) -> None:
    expect = {"stop_reason": "max_tool_calls", "text_has": ["Found so far"]}
    holds(mode, tools={"s": tool()}, limits={**OFF, "max_tool_calls": 1}, model=[asks("a"), asks("b")], closing=None, expect=expect)


@both
def test_a_model_may_write_json_decisions(mode: str) -> None:
    raw = {"type": "tool", "toolName": "s", "args": {"q": "x"}}
    turns = [{"raw": "nonsense"}, {"raw": raw}, {"raw": '{"type": "final", "finalAnswer": "${query}"}'}]
    holds(mode, query=" what ", tools={"s": tool()}, model=turns, expect={"status": "ok", "text": "what", "tool_runs": {"s": 1}})


@both
@pytest.mark.parametrize(
    ("finish", "reason"), [("length", "truncated"), ("content_filter", "content_filter"), ("refusal", "content_filter")]
)
def test_a_json_decision_that_was_cut_off_is_not_one_that_is_written_badly(mode: str, finish: str, reason: str) -> None:
    half = {"raw": '{"type": "tool", "toolName": "s", "args": {"q": ', "finish": finish}
    holds(mode, tools={"s": tool()}, model=[half], expect={"stop_reason": reason, "finish_reason": finish, "model_turns": 1})


@both
def test_a_json_model_says_nothing_or_closes_in_words(mode: str) -> None:
    nothing = {"limits": {**OFF, "max_invalid_decisions": 2}, "model": [{"raw": " "}], "model_then": "repeat-last"}
    holds(mode, **nothing, expect={"stop_reason": "model_empty", "model_turns": 3})
    turns = [asks("a"), asks("b"), {"raw": "what I found"}]
    expect = {"stop_reason": "max_tool_calls", "text_has": ["what I found"], "model_turns": 3}
    holds(mode, tools={"s": tool()}, limits={**OFF, "max_tool_calls": 1}, model=turns, closing=None, expect=expect)


@both
@pytest.mark.parametrize(
    "turn",
    [
        {"raw": {"type": "tool", "toolName": "s", "args": {"q": "x"}}},
        {"raw": "nonsense"},
        {"raise": "server_error"},
        {"raise": "TimeoutError", "retry_after_s": 1},
    ],
    ids=["a decision", "no decision", "a failure", "a failure that says when"],
)
def test_what_a_turn_costs_is_counted_whatever_became_of_it(mode: str, turn: dict[str, Any]) -> None:
    turns = [{**turn, "usage": {"input_tokens": 5, "output_tokens": 2}}, {**DONE, "usage": {"input_tokens": 1, "output_tokens": 1}}]
    expect = {"status": "ok", "usage": {"tokens": 9, "input_tokens": 6, "output_tokens": 3}}
    holds(mode, tools={"s": tool()}, model=turns, expect=expect)


@both
def test_a_body_without_steps_returns_nothing(mode: str) -> None:
    holds(mode, **{**ONE_CALL, "tools": {"s": tool(does=[])}}, expect={"results": [{"call": "a", "ok": True, "value": None}]})


@both
def test_what_a_client_answers_is_not_classified_by_what_a_body_said_before(mode: str) -> None:
    busy = tool(effect="undeclared", does=[{"return": "x", "class": "RETRYABLE"}])
    client = {**tool(does=[{"class": "FATAL"}]), "where": "client"}
    turns = [asks("a"), {"calls": [{"id": "u", "tool": "ui", "args": {"q": "x"}}]}, DONE]
    expect = {"status": "ok", "results": [{"call": "a", "ok": False}, {"call": "u", "ok": True, "value": "clicked"}]}
    holds(mode, tools={"s": busy, "ui": client}, model=turns, client=[{"call": "u", "return": "clicked"}], expect=expect)


@both
def test_a_model_may_raise(mode: str) -> None:
    holds(mode, model=[{"raise": "ValueError", "message": "no"}], expect={"stop_reason": "model_error", "raises": None})
    holds(mode, model=[{"raise": "rate_limited", "retry_after_s": 4}, DONE], expect={"status": "ok", "waited_s": 4, "model_turns": 2})


@both
@pytest.mark.parametrize("name", ["RateLimitError", "ConnectionError", "TimeoutError", "rate_limited", "server_error"])
def test_a_model_that_says_when_to_ask_again_is_asked_again_then(mode: str, name: str) -> None:
    turns = [{"raise": name, "message": "slow down", "retry_after_s": 5}, asks("a"), DONE]
    holds(mode, tools={"s": tool()}, model=turns, expect={"status": "ok", "waited_s": {"min": 5, "max": 10}, "model_turns": 3})
    late = [{"raise": name, "retry_after_s": 500}, DONE]
    expect = {"stop_reason": ["deadline", "max_wait"], "model_turns": {"max": 2}, "waited_s": 0}
    holds(mode, model=late, limits={"max_wait_s": 60}, expect=expect)


@both
def test_a_wait_does_not_keep_an_interrupt_from_passing_through(mode: str) -> None:
    if mode == "sync":
        holds(mode, model=[{"raise": "SystemExit", "retry_after_s": 5}], expect={"raises": "SystemExit"})


def test_usage_in_the_words_of_any_provider() -> None:
    for words in ({"input_tokens": 7, "output_tokens": 3}, {"prompt_tokens": 7, "total_tokens": 10}, {"output": 3, "tokens": 10}):
        made = usage_of(words)
        assert made is not None
        assert (made.input_tokens, made.output_tokens) == (7, 3)
    assert usage_of(None) is None


# ---- people


@both
def test_without_steps_people_answer_at_each_pause(mode: str) -> None:
    person = [{"call": "a", "approve": True}, {"call": "b", "approve": False, "reason": "no"}, {"call": "c", "edit": {"q": "z"}}]
    results = [{"call": "a", "ok": True}, {"call": "b", "error": "denied:no"}, {"call": "c", "ok": True}]
    holds(
        mode, tools={"s": tool(approval=True)}, model=[asks("a"), asks("b", "c"), DONE], person=person,
        expect={"status": "ok", "results": results, "tool_args": {"s": [{"q": "a"}, {"q": "z"}]}, "pending": {}},
    )  # fmt: skip


@both
def test_a_client_answers_with_a_value_or_an_error(mode: str) -> None:
    client = [{"call": "a", "return": {"$set": [5]}}, {"call": "b", "raise": "Boom", "message": "hm"}]
    results = [{"call": "a", "value": {"$set": [5]}}, {"call": "b", "error": "raised:Boom", "has": "hm"}]
    expect = {"status": "ok", "results": results, "tool_runs": {"s": 0}}
    holds(mode, tools={"s": tool(where="client")}, model=[asks("a", "b"), DONE], client=client, expect=expect)


@both
def test_who_is_not_answered_is_waited_for(mode: str) -> None:
    world = {"tools": {"s": tool(approval=True)}, "model": [asks("a", "b"), DONE]}
    expect = {"status": "paused", "pending": {"b": "approval"}, "tool_runs": {"s": 0}}
    holds(mode, **world, person=[{"call": "a", "approve": True}], expect=expect)
    verdict = play(mode, **world, person=[{"call": "a", "approve": True}, {"call": "bb", "approve": True}], expect=expect)
    assert verdict.faults == ("the person entry for call bb was never used; the run waits for b",)
    # A word about a call that was made, and that nobody had to decide, is no typing error.
    holds(mode, tools={"s": tool()}, model=[asks("a"), DONE], person=[{"call": "a", "approve": True}], expect={"status": "ok"})


@both
def test_an_approval_function_gives_its_answers_in_order(mode: str) -> None:
    asked = tool(approval=[False, {"raise": "X"}, True])
    ops = [{"run": {}}, {"person": {"call": "b", "approve": True}}, {"resume": {}}]
    holds(
        mode, tools={"s": asked}, model=[asks("a"), asks("b"), DONE], ops=ops,
        expect={"status": "ok", "tool_runs": {"s": 2}},
    )  # fmt: skip


@both
def test_a_new_message_supersedes_what_waits_and_a_late_word_may_be_refused(mode: str) -> None:
    ops = [{"run": {}}, {"message": "new words"}, {"person": {"call": "a", "approve": True}, "may_refuse": True}, {"resume": {}}]
    expect = {"status": "ok", "results": [{"call": "a", "error": "superseded"}], "model_saw": ["new words"]}
    holds(mode, tools={"s": tool(approval=True)}, model=[asks("a"), DONE], ops=ops, expect=expect)
    holds(mode, tools={"s": tool(approval=True)}, model=[asks("a"), DONE], ops=ops, expect={"raises": None})
    holds(mode, tools={"s": tool(approval=True)}, model=[asks("a"), DONE], ops=ops, expect={"raises": ["CannotDecide"]})
    ops[2] = {"person": {"call": "a", "approve": True}}
    verdict = play(mode, tools={"s": tool(approval=True)}, model=[asks("a"), DONE], ops=ops)
    assert len(verdict.faults) == 1
    assert verdict.faults[0].startswith("ops/2: the library refused: CannotDecide: ")


# ---- steps


@both
def test_runs_share_one_host_and_have_their_own_scripts(mode: str) -> None:
    remembers = {"s": tool(cache_ttl_s=10, does=[{"return": "v${n}"}])}
    ops = [
        {"run": {}},
        {"run": {"query": "other", "model": [asks("b", q="a"), {"final": "${query}"}]}, "expect": {"text": "other", "tool_runs": {"s": 1}}},
        {"advance_s": 11},
        {"run": {}, "expect": {"events_none": ["call_reused"]}},
    ]
    holds(mode, tools=remembers, model=[asks("a"), DONE], ops=ops, expect={"tool_runs": {"s": 2}, "model_turns": 6})


@both
def test_a_fresh_process_remembers_nothing_and_goes_on_where_the_script_stood(mode: str) -> None:
    asked = {"calls": [{"id": "p", "tool": "gate", "args": {"q": "x"}}]}
    world = {"tools": {"s": tool(cache_ttl_s=99), "gate": tool(approval=True)}, "model": [asks("a", q="1"), asked, asks("b", q="1"), DONE]}
    for process, runs in (("fresh", 2), ("same", 1)):
        person = {"call": "p", "approve": True}
        ops = [{"run": {}}, {"save": "S"}, {"load": {"name": "S", "process": process}}, {"person": person}, {"resume": {}}]
        holds(mode, **world, ops=ops, expect={"status": "ok", "tool_runs": {"s": runs, "gate": 1}, "model_turns": 4})


@both
def test_one_text_loaded_twice_is_two_runs_that_each_get_their_own_next_turn(mode: str) -> None:
    ops = [
        {"run": {}}, {"save": "S"},
        {"load": "S"}, {"person": {"call": "a", "approve": False}}, {"resume": {}, "expect": {"text": "done", "tool_runs": {"s": 0}}},
        {"resume": {}, "may_refuse": True},
        {"load": "S"}, {"person": {"call": "a", "approve": True}}, {"resume": {}, "expect": {"text": "done", "tool_runs": {"s": 1}}},
    ]  # fmt: skip
    holds(mode, tools={"s": tool(approval=True)}, model=[asks("a"), DONE], ops=ops)


@both
def test_lists_that_each_load_act_each_on_the_run_that_it_loaded(mode: str) -> None:
    lists = [
        [
            {"load": "S"}, {"person": {"call": "a", "approve": says}},
            {"resume": {}, "expect": {"text": "done", "errors": [] if says else ["denied"]}},
        ]
        for says in (True, False)
    ]  # fmt: skip
    world = {"tools": {"s": tool(approval=True, does=[{"return": 1, "sleep_s": 1}])}, "model": [asks("a"), DONE]}
    for order in (lists, lists[::-1]):
        holds(mode, **world, ops=[{"run": {}}, {"save": "S"}, {"together": order}], expect={"tool_runs": {"s": 1}, "model_turns": 3})


@both
def test_a_list_that_acts_on_the_current_run_acts_on_the_one_that_another_loads(mode: str) -> None:
    together = [[{"load": "S"}, {"resume": {}}], [{"advance_s": 1}, {"cancel": {}, "expect": {"stop_reason": "cancelled"}}]]
    ops = [{"run": {}}, {"person": {"call": "a", "approve": True}}, {"save": "S"}, {"together": together}]
    slow = tool(approval=True, does=[{"return": 1, "sleep_s": 5}])
    holds(mode, tools={"s": slow}, model=[asks("a"), DONE], ops=ops, expect={"stop_reason": "cancelled"})


@both
@pytest.mark.parametrize("fresh", [{}, {"process": "fresh"}])
@pytest.mark.parametrize("decided_before", [True, False])
def test_the_events_of_a_resume_hold_what_people_said_before_it_wherever_the_run_was_saved(
    mode: str, fresh: dict[str, Any], decided_before: bool
) -> None:
    person, saved = {"person": {"call": "a", "approve": True}}, [{"save": "S"}, {"load": {"name": "S", **fresh}}]
    ops = [{"run": {}}, *([person, *saved] if decided_before else [*saved, person]), {"resume": fresh}]
    expect = {"events_once": ["resumed", "call_started:a"], "events_none": ["paused", "run_started"]}
    holds(mode, tools={"s": tool(approval=True)}, model=[asks("a"), DONE], ops=ops, expect=expect)


@both
def test_a_body_may_be_held_and_let_go_and_held_again(mode: str) -> None:
    ops = [
        {"run": {"until": {"started": "a"}}, "expect": {"tool_runs": {"s": 1}, "status": "running", "state": "gather"}},
        {"resume": {"until": {"started": "b"}}, "expect": {"tool_runs": {"s": 2}, "model_turns": 2}},
        {"resume": {}},
    ]
    holds(mode, tools={"s": tool()}, model=[asks("a"), asks("b"), DONE], ops=ops, expect={"status": "ok"})


@both
def test_a_body_that_never_begins_is_a_fault(mode: str) -> None:
    verdict = play(mode, model=[DONE], ops=[{"run": {"until": {"started": "a"}}}])
    assert verdict.faults == ("ops/0: the body of 'a' never became active; the run went on without it",)


@both
def test_a_cancelled_run_says_so_and_its_body_is_dropped(mode: str) -> None:
    expect = {"stop_reason": "cancelled", "results": [{"call": "a", "error": "cancelled"}], "every_call_has_one_result": True}
    holds(mode, **ONE_CALL, ops=[{"run": {"until": {"started": "a"}}}, {"cancel": {}}, {"advance_s": 9}], expect=expect)
    slow = {"tools": {"s": tool(does=[{"return": 1, "sleep_s": 10}])}, "model": [asks("a"), DONE]}
    together = [[{"run": {}}], [{"advance_s": 1}, {"cancel": {}, "expect": {"stop_reason": "cancelled"}}]]
    holds(mode, **slow, ops=[{"together": together}], expect={**expect, "usage": {"spent_s": {"max": 1}}})
    holds(mode, **slow, ops=[{"together": together[::-1]}], expect=expect)


@both
def test_a_crash_leaves_what_was_saved(mode: str) -> None:
    ops = [{"run": {"until": {"started": "a"}, "save": "each-step"}}, {"crash": {}}, {"advance_s": 99}, {"resume": {"process": "fresh"}}]
    holds(mode, **ONE_CALL, ops=ops, expect={"status": "ok", "tool_runs": {"s": 2}, "results": [{"call": "a", "ok": True}]})
    once = {"tools": {"s": tool(effect="at_most_once")}, "model": [asks("a"), DONE]}
    expect = {"tool_runs": {"s": 1}, "results": [{"call": "a", "error": "unknown_outcome"}], "fields": {"next_questions": {"min": 1}}}
    holds(mode, **once, ops=ops, expect=expect)


@both
def test_who_drove_before_a_crash_never_goes_on(mode: str) -> None:
    ops = [{"run": {"until": {"started": "a"}}}, {"crash": {}}, {"advance_s": 99}]
    holds(mode, **{**ONE_CALL, "tools": {"s": tool(timeout_s=1)}}, ops=ops, expect={"model_turns": 1, "tool_runs": {"s": 1}})


@both
def test_a_reader_who_leaves_cancels_the_run(mode: str) -> None:
    holds(mode, **ONE_CALL, ops=[{"run": {"take_events": 3}}], expect={"stop_reason": "cancelled", "tool_runs": {"s": 0}})
    holds(mode, **ONE_CALL, ops=[{"run": {"take_events": 500, "save": "each-step"}}], expect={"status": "ok", "tool_runs": {"s": 1}})


@both
@pytest.mark.parametrize("keys", [{"take_events": 500}, {"save": "each-step"}, {"take_events": 500, "process": "fresh"}])
def test_who_reads_a_resumed_run_takes_it_up_like_anyone_else(mode: str, keys: dict[str, Any]) -> None:
    more = {**keys, "limits": {"max_turns": 5}}
    done = {"status": "ok", "stop_reason": "answered", "tool_runs": {"s": 1}, "events": ["resumed", "...", "answer:answered"]}
    limits = {**OFF, "max_turns": 1}
    holds(mode, **ONE_CALL, limits=limits, ops=[{"run": {}, "expect": {"stop_reason": "max_turns"}}, {"resume": more, "expect": done}])
    holds(mode, **ONE_CALL, ops=[{"run": {"take_events": 3}}, {"resume": keys, "expect": done}])
    again = play(mode, **ONE_CALL, ops=[{"run": {}}, {"resume": keys}])
    assert [fault for fault in again.faults if "CannotResume" in fault], "what is over is refused, not read as if it went on"


@both
def test_a_second_driver_is_refused(mode: str) -> None:
    slow = {"tools": {"s": tool(does=[{"return": 1, "sleep_s": 1}])}, "model": [asks("a"), DONE]}
    person = {"person": {"call": "a", "approve": True}, "may_refuse": True}
    ops = [{"run": {"until": {"started": "a"}}}, {"together": [[{"resume": {}}], [person]]}]
    holds(mode, **slow, ops=ops, expect={"status": "ok", "tool_runs": {"s": 1}})


@both
def test_runs_go_on_beside_each_other(mode: str) -> None:
    slow = {"tools": {"s": tool(does=[{"return": 1, "sleep_s": 1}])}, "model": [asks("a"), DONE]}
    each = {"run": {}, "expect": {"status": "ok", "usage": {"tool_calls": 1, "spent_s": 1}}}
    holds(mode, **slow, ops=[{"together": [[each], [each], [each]]}], expect={"tool_runs": {"s": 3}, "max_active": 3, "model_turns": 6})


@both
def test_a_resume_raises_limits(mode: str) -> None:
    ops = [
        {"run": {"limits": {"max_tool_calls": 1}}, "expect": {"stop_reason": "max_tool_calls"}},
        {"resume": {"limits": {"max_tool_calls": 1}}, "may_refuse": True},
        {"resume": {"limits": {"*": None, "max_turns": 99, "max_steps": 999}}, "expect": {"events": ["resumed", "...", "answer:answered"]}},
    ]
    holds(mode, tools={"s": tool()}, model=[asks("a"), asks("b"), DONE], ops=ops, expect={"status": "ok"})


@both
@pytest.mark.parametrize(
    ("ops", "fault"),
    [
        ([{"resume": {}}], "ops/0: there is no run yet; begin with a step 'run'"),
        ([{"run": {}}, {"load": "S"}], "ops/1: nothing was saved as 'S'; saved are none"),
        ([{"run": {}, "expect": {"status": "partial"}}, {"resume": {}}], "ops/0: status: expected partial, came ok"),
        ([{"together": [[{"run": {}, "expect": {"status": "partial"}}]]}], "ops/0/0/0: status: expected partial, came ok"),
    ],
)
def test_the_first_step_that_goes_wrong_is_told_and_is_the_last(mode: str, ops: list[Any], fault: str) -> None:
    assert play(mode, model=[DONE], ops=ops).faults == (fault,)


# ---- hosts, strategies, limits


@both
def test_what_is_refused_at_build_is_a_fault_unless_it_may_be(mode: str) -> None:
    verdict = play(mode, limits={"*": None}, model=[DONE], expect={"status": "ok"})
    assert verdict.faults[0].startswith("the library refused: TableError: ")
    holds(mode, limits={"*": None}, model=[DONE], may_refuse=True, expect={"status": "ok", "model_turns": 0})
    holds(mode, limits={"*": None}, model=[DONE], expect={"raises": ["TableError"], "tool_runs": {"s": 0}})
    bad = {"s": tool(secret=["nothing of that name"])}
    assert "ContractError" in play(mode, tools=bad, model=[DONE]).faults[0]


@both
def test_what_may_be_refused_says_that_it_was_and_why(mode: str) -> None:
    verdict = play(mode, limits={"*": None}, model=[DONE], may_refuse=True, expect={"status": "ok", "model_turns": 0})
    assert verdict.holds
    assert verdict.refusals[0].startswith("refused: TableError: ")
    assert verdict.refusals[1:] == ("not looked at, there is no run: status",)
    assert "model_turns 0; refused: TableError: " in line(verdict)
    unbounded = play(mode, limits={"*": None}, model=[DONE], may_refuse=True)
    assert line(unbounded).startswith(f"ok {unbounded.scenario.id} [{mode}] refused: TableError: ")
    ops = [{"run": {}}, {"resume": {}, "may_refuse": True}]
    late = play(mode, model=[DONE], ops=ops, expect={"status": "ok"})
    assert late.holds
    assert late.refusals[0].startswith("ops/1: refused: CannotResume: ")
    # The run that was refused something is there, and looked at.
    assert not play(mode, model=[DONE], ops=ops, expect={"status": "failed"}).holds


@both
@pytest.mark.parametrize(
    "document",
    [
        {"tools": {"s": tool(args={"q": {"type": "str", "requird": True}})}},
        {"tools": {"s": tool(args={"q": {"type": "str", "foo": True}})}},
        {"tools": {"s": tool()}, "allowed": {"gahter": ["s"]}},
        {"tools": {"search": tool()}, "allowed": {"gather": ["serch"]}},
        {"tools": {"search": tool()}, "limits": {"max_same_tool_calls": {"serch": 1}}},
        {"tools": {"search": tool()}, "ops": [{"run": {"limits": {"max_same_tool_calls": {"serch": 1}}}}]},
    ],
)
def test_a_typing_error_does_not_pass_for_a_refusal_that_may_be(mode: str, document: dict[str, Any]) -> None:
    verdict = play(mode, model=[DONE], may_refuse=True, expect={"status": "ok"}, **document)
    assert verdict.faults == ("status: expected ok, came None",)
    assert "refused: " in verdict.refusals[0]
    # Who expects nothing but that the library refuses it gets what was expected.
    holds(mode, model=[DONE], may_refuse=True, expect={"model_turns": 0, "every_call_has_one_result": True}, **document)
    assert "the library refused" in play(mode, model=[DONE], **document).faults[0]


@both
def test_a_resume_may_not_raise_the_limit_of_a_tool_that_is_not_there(mode: str) -> None:
    ops = [{"run": {}}, {"resume": {"limits": {"max_same_tool_calls": {"serch": 9}}}}]
    verdict = play(mode, tools={"search": tool()}, model=[DONE], ops=ops)
    assert "there is no tool 'serch'; did you mean 'search'?" in verdict.faults[0]


@both
@pytest.mark.parametrize(
    ("strategy", "reason", "turns"),
    [
        ([{"max_iterations": 2}], "strategy", 2),
        ([{"until_finish_reason": ["tool_calls"]}], "finish_reason", 1),
        ([{"messages_below": 4}], "strategy", 2),
        ([{"record": True}, {"raise": "X"}], "strategy", 1),
        ([{"record": True}], "answered", 4),
    ],
)
def test_strategies(mode: str, strategy: list[Any], reason: str, turns: int) -> None:
    model = [asks("a"), asks("b"), asks("c"), DONE]
    holds(mode, tools={"s": tool()}, model=model, strategy=strategy, expect={"stop_reason": reason, "model_turns": turns})


@both
def test_a_verifier_says_no_when_it_is_malformed_or_raises(mode: str) -> None:
    verdicts = [{"decision": "need_more", "next_action": {"tool": "s", "args": {"q": "z"}}}, "odd", {"raise": "X"}, {"decision": "done"}]
    model = [{"final": one} for one in "abcd"]
    holds(mode, tools={"s": tool()}, verifier=verdicts, model=model, expect={"text": "d", "verifier_runs": 4, "tool_runs": {"s": 1}})


@both
def test_the_machine_of_seed_002(mode: str) -> None:
    model = {"plan": [asks("p")], "fetch": [DONE], "synth": [{"final": "sum"}]}
    verdict = play(mode, machine="autogpt", tools={"s": tool()}, model=model, model_then="repeat-last", verifier=[{"decision": "done"}])
    assert "the library refused" not in " ".join(verdict.faults)


def test_limits_stand_on_the_defaults_or_on_nothing() -> None:
    assert limits_of({}, Limits()) == Limits()
    assert limits_of({"max_turns": 3, "deadline_s": None}, Limits()) == Limits(max_turns=3, deadline_s=None)
    assert limits_of({"*": None, "max_turns": 3}, Limits()) == Limits.off(max_turns=3, reserve_s=2.0)
    assert limits_of({"*": None}, Limits()).min_evidence == 0


def test_a_run_that_waits_for_itself_is_told_and_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsm_agent.scenario.virtual_loop._REAL_S", 0.01)
    ops = [{"run": {"until": {"started": "a"}}}, {"run": {}}]
    for mode in ("sync", "async"):
        verdict = play(mode, tools={"s": tool(exclusive=True)}, model=[asks("a"), DONE], ops=ops)
        assert any("waits for another one" in fault for fault in verdict.faults)
        assert not any("broke off" in fault for fault in verdict.faults)


def test_a_library_that_ends_without_a_text_is_a_fault_that_no_key_has_to_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsm_agent.core.answers._text", lambda *_: " ")
    assert play("sync", model=[DONE]).faults == ("the final text is empty",)


@pytest.mark.parametrize(("fact", "value"), [("tool_calls", 7), ("state", "verify")])
def test_a_library_that_loads_another_run_than_was_saved_is_a_fault(monkeypatch: pytest.MonkeyPatch, fact: str, value: Any) -> None:
    def loads_amiss(text: object, setup: Any) -> Any:
        run = load(text, setup)
        setattr(run, fact, value)
        return run

    monkeypatch.setattr("fsm_agent.agent.load", loads_amiss)
    ops = [{"run": {}}, {"save": "x"}, {"load": "x"}]
    fault = f"after the load {fact} is {value!r}; it was "
    assert [one.partition(fault)[:2] for one in play("sync", **ONE_CALL, ops=ops).faults] == [("ops/2: ", fault)]


def test_nothing_of_a_scenario_stays_behind() -> None:
    before = threading.active_count()
    for _ in range(5):
        play("sync", tools={"s": tool(timeout_s=1, does=[{"return": 1, "sleep_s": 1e6}])}, model=[asks("a"), DONE])
        play("sync", **ONE_CALL, ops=[{"run": {"until": {"started": "a"}}}])
    for _ in range(200):
        if threading.active_count() <= before:
            break
        time.sleep(0.005)
    assert threading.active_count() <= before


def test_a_file_is_run_in_its_modes(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.write_text('{"limits": {"min_evidence": 0}, "model": [{"final": "x"}], "expect": {"status": "ok"}}')
    scenario = read_file(path)
    verdicts = [run_scenario(scenario, mode) for mode in scenario.modes]
    assert [(one.mode, one.holds) for one in verdicts] == [("sync", True), ("async", True)]


# ---- the parts


def test_scripts_come_round() -> None:
    def places(then: str, steps: list[int]) -> list[Any]:
        found = [step_of(steps, number, then) for number in range(5)]
        return [None if step is None else (step.value, step.before) for step in found]

    assert places("fail", [1, 2]) == [(1, 0), (2, 0), None, None, None]
    assert places("repeat-last", [1, 2]) == [(1, 0), (2, 0), (2, 1), (2, 2), (2, 3)]
    assert places("repeat-all", [1, 2]) == [(1, 0), (2, 0), (1, 1), (2, 1), (1, 2)]
    assert places("repeat-last", []) == [None] * 5


def test_a_turn_that_comes_without_end_is_written_out_as_far_as_a_run_comes() -> None:
    script = Script.of([{"final": "a", "times": 10**15}, {"final": "b"}], "fail", None)
    assert [script.next("") for _ in range(2)] == [({"final": "a", "times": 10**15}, n) for n in range(2)]


def test_a_script_goes_on_from_where_it_was_saved() -> None:
    script = Script.of([{"final": "a"}, {"final": "b"}, {"final": "c"}], "fail", None)
    script.next("gather")
    position = script.position()
    assert script.next("gather") == ({"final": "b"}, 0)
    script.set_back(position)
    assert script.next("verify") == ({"final": "b"}, 0)


def test_ids_hold_their_template_or_are_made_fresh() -> None:
    turn = {"calls": [{"id": "a", "tool": "s"}, {"id": "c${turn}", "tool": "s"}, {"tool": "s", "args_raw": "{"}], "text": "t"}
    first, again = (decision_of(turn, {"turn": 4}, before, {}) for before in (0, 2))
    assert [call.id for call in first.calls] == ["a", "c4", ""]
    assert [call.id for call in again.calls] == ["a-3", "c4", ""]
    assert (first.text, first.finish, first.calls[2].args) == ("t", "tool_calls", "{")


def test_names_of_exceptions() -> None:
    assert type(exception_named("ValueError", "m")) is ValueError
    assert type(exception_named("lib.Odd", "m")).__name__ == "Odd"
    assert type(exception_named("Odd.")).__name__ == "Odd."
    assert type(exception_named("Odd")) is type(exception_named("Odd"))
    assert {"KeyError", "LookupError", "builtins.KeyError"} <= set(names_of(KeyError()))
    assert "asyncio.CancelledError" in names_of(exception_named("CancelledError"))


@both
@pytest.mark.parametrize("first", [True, False])
def test_of_two_entries_for_one_call_the_first_counts(mode: str, first: bool) -> None:
    people = [{"call": "a", "approve": first}, {"call": "a", "approve": not first}]
    holds(mode, **{**ONE_CALL, "tools": {"s": tool(approval=True)}}, person=people, expect={"tool_runs": {"s": int(first)}})


@both
def test_a_wait_is_cut_short_by_a_cancel(mode: str) -> None:
    cancel = [{"advance_s": 1}, {"cancel": {}}]
    waits = {"s": tool(retry={"attempts": 2, "backoff_s": [100]}, does=[{"raise": "E", "class": "RETRYABLE"}])}
    expect = {"stop_reason": "cancelled", "waited_s": 1, "usage": {"spent_s": {"max": 1}}, "every_call_has_one_result": True}
    holds(mode, tools=waits, model=[asks("a"), DONE], ops=[{"together": [[{"run": {}}], cancel]}], expect=expect)
    thinks = [{**asks("a"), "sleep_s": 50}, DONE]
    expect = {"stop_reason": "cancelled", "tool_runs": {"s": 0}, "results": [], "usage": {"spent_s": {"max": 1}}}
    holds(mode, tools={"s": tool()}, model=thinks, ops=[{"together": [[{"run": {}}], cancel]}], expect=expect)


@both
def test_a_call_may_wait_for_a_person_first_and_a_client_then(mode: str) -> None:
    person = [{"call": "a", "approve": True}, {"call": "b", "approve": False}]
    client = [{"call": "a", "return": 5}, {"call": "b", "return": 6}]
    results = [{"call": "a", "value": 5}, {"call": "b", "error": "denied"}]
    tools = {"s": tool(where="client", approval=True)}
    holds(mode, tools=tools, model=[asks("a", "b"), DONE], person=person, client=client, expect={"results": results})


STEPS = st.fixed_dictionaries(
    {"return": st.sampled_from([1, "x", "", [], {"k": "${n}"}])},
    optional={"sleep_s": st.integers(1, 5), "class": st.sampled_from(["OK", "EMPTY", "NO_PROGRESS", "RETRYABLE", "FATAL"])},
)
FAILS = st.fixed_dictionaries({"raise": st.sampled_from(["E", "ConnectionError"])}, optional={"sleep_s": st.integers(1, 5)})
TOOLS = st.fixed_dictionaries(
    {
        "args": st.just({"q": {"type": "str"}}),
        "effect": st.sampled_from(["pure", "idempotent", "at_most_once", "undeclared"]),
        "does": st.lists(STEPS | FAILS, min_size=1, max_size=3),
        "then": st.sampled_from(["repeat-last", "repeat-all"]),
    },
    optional={"approval": st.just(True)},
)
CALLS = st.lists(st.tuples(st.sampled_from(["a", "b", "none"]), st.sampled_from(["1", "2"])), min_size=1, max_size=4)
FIGURES = st.sampled_from([{}, OFF, {**OFF, "deadline_s": 7}, {**OFF, "max_tool_calls": 2}, {**OFF, "max_parallel": 1}])


@settings(max_examples=40)
@given(st.fixed_dictionaries({"a": TOOLS, "b": TOOLS}), st.lists(CALLS, max_size=4), FIGURES)
def test_threads_and_tasks_play_the_same(tools: dict[str, Any], turns: list[Any], limits: dict[str, Any]) -> None:
    numbers = iter(range(99))
    model = [{"calls": [{"id": f"c{next(numbers)}", "tool": name, "args": {"q": q}} for name, q in turn]} for turn in turns]
    person = [{"call": f"c{number}", "approve": number % 3 != 0} for number in range(next(numbers))]
    document = {"tools": tools, "model": [*model, DONE], "model_then": "repeat-last", "limits": limits, "person": person}
    looked = {"status": None, "path": [], "results": [], "errors": 0, "tool_runs": {"a": 0, "b": 0}, "waited_s": 0, "usage": {"spent_s": 0}}
    came = []
    for mode in ("sync", "async"):
        verdict = run_scenario(scenario_of({**document, "expect": {**looked, "every_call_has_one_result": True}}), mode)
        assert verdict.outcomes[-1].faults == ()
        came.append([round(one.came, 6) if one.key == "waited_s" else one.came for one in verdict.outcomes if one.key != "usage"])
    assert came[0] == came[1]
