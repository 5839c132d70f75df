"""The gate: who is let in, in which order the reasons are looked for, and what is counted."""

from __future__ import annotations

import itertools
import unicodedata
from collections import Counter
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import attrs
import pytest
from by_hand import Hand, a_tool, off, says, taking
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.core.effects import Decide
from fsm_agent.core.events import DecisionFailed
from fsm_agent.core.gate import admit_turn, allowed_now, fault_list, fault_text, refuse
from fsm_agent.core.keys import loop_key
from fsm_agent.core.limits import Limits
from fsm_agent.core.replay import replay
from fsm_agent.core.run import Call, ClosedGuard, Run
from fsm_agent.core.saving import load, save
from fsm_agent.core.tools import Retry, Toolset
from fsm_agent.core.values import Policy, StopReason, ToolCall

X = {"q": "x"}


def a_run(limits: Limits | None = None, **more: Any) -> Run:
    return Run(id="r", request="", state="gather", limits=limits or off(), **more)


def a_call(tool: str = "look", args: Any = None, call_id: str = "c1") -> Call:
    return Call(id=call_id, tool=tool, args=X if args is None else args)


# ---- the order: of two checks that both refuse, the earlier names the reason

ORDER: list[tuple[str, str]] = [
    ("stopping", "skipped:fatal"),
    ("unknown", "args:unknown_tool"),
    ("not allowed", "refused:not_allowed"),
    ("arguments", "args:type:q"),
    ("turn", "skipped:max_calls_per_turn"),
    ("tool", "refused:budget:max_same_tool_calls"),
    ("run", "skipped:max_tool_calls"),
    ("time", "skipped:deadline"),
    ("repeated", "refused:duplicate"),
]
WORDS = dict(ORDER)


def refused_by(checks: set[str]) -> Call:
    """A call that each of these checks would refuse, after it has passed the gate."""
    box = Toolset([] if "unknown" in checks else [a_tool(args=taking(q={"type": "str"}))])
    args = {"q": 7} if "arguments" in checks else X
    run = a_run(
        off(
            max_calls_per_turn=0 if "turn" in checks else None,
            max_same_tool_calls={"look": 0} if "tool" in checks else None,
            max_tool_calls=0 if "run" in checks else None,
            deadline_s=10.0,
            reserve_s=1.0,
            max_same_call=1,
        ),
        spent_s=9.5 if "time" in checks else 0.0,
        requests={loop_key("look", args): 1} if "repeated" in checks else {},
    )
    if "stopping" in checks:
        reason = StopReason.FATAL
        run.closed = [ClosedGuard(guard="g", limit="max_turns", allowed=1, used=1, opens_at=2, reason=reason)]
    run.open_calls = [a_call(args=args)]
    admit_turn(run, box, frozenset() if "not allowed" in checks else None, Policy())
    return run.open_calls[0]


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations([name for name, _ in ORDER], 2)))
def test_of_two_checks_that_refuse_the_earlier_names_the_reason(first: str, second: str) -> None:
    call = refused_by({first, second})
    assert (call.ok, call.error, call.admitted) == (False, WORDS[first], False)


@pytest.mark.parametrize("check", WORDS)
def test_each_check_refuses_alone(check: str) -> None:
    assert refused_by({check}).error == WORDS[check]


def test_all_checks_at_once_name_the_first_and_none_lets_in() -> None:
    for n in range(len(ORDER)):
        assert refused_by({name for name, _ in ORDER[n:]}).error == ORDER[n][1]
    call = refused_by(set())
    assert (call.ok, call.error, call.admitted) == (None, "", True)


@pytest.mark.parametrize("check", WORDS)
def test_a_refused_call_has_its_one_result_and_asks_for_no_body(check: str) -> None:
    call = refused_by({check})
    assert call.ok is False
    assert call.value is None
    assert call.tries == 1
    assert not call.started


# ---- known and allowed


@pytest.mark.parametrize("allowed", [c for n in range(4) for c in itertools.combinations(("a", "b", "c"), n)])
@pytest.mark.parametrize("asked", ["a", "b", "c", "ghost", ""])
def test_the_states_set_decides_and_both_refusals_name_what_is_allowed(allowed: tuple[str, ...], asked: str) -> None:
    hand = Hand(*map(a_tool, "abc"), allowed=allowed)
    hand.decides(ToolCall("a" if asked == "" else asked, {}), ToolCall(asked, {}, "it"))
    word = "open" if asked in allowed else "refused:not_allowed" if asked in ("a", "b", "c") else "args:unknown_tool"
    call = hand.call("it")
    assert (call.error or "open") == word
    if word != "open":
        assert call.detail == f"tools allowed in state gather: {', '.join(allowed) or 'none'}"


def test_without_a_set_every_tool_is_allowed() -> None:
    hand = Hand(*map(a_tool, "abc")).asks("a", "b", "c")
    assert hand.batch == ["c1", "c2", "c3"]


@pytest.mark.parametrize("odd", [None, 7, ["look"], b"look", "\ud800", "look ", "LOOK", "x" * 10_000], ids=range(8))
def test_a_name_that_is_no_tool_is_an_unknown_tool(odd: Any) -> None:
    hand = Hand().decides(ToolCall("look", X, "c1"), ToolCall(odd, X, "c2"))
    assert hand.words == ["open", "args:unknown_tool"]


def test_where_nobody_decides_again_the_reason_alone_is_enough() -> None:
    quiet = Policy(redecide=False)
    hand = Hand(a_tool(args=taking(q={"type": "str"})), policy=quiet)
    hand.decides(ToolCall("ghost"), ToolCall("look", {}))
    assert [(call.error, call.detail) for call in hand.calls] == [("args:unknown_tool", ""), ("args:missing:q", "")]


def test_spent_tools_are_refused_no_longer_offered_and_no_longer_named() -> None:
    hand = Hand(*map(a_tool, "ab"), limits=off(max_same_tool_calls=1))
    assert hand.effect.tools == ("a", "b")
    hand.asks("a").plays()
    assert hand.effect.tools == ("b",)
    hand.asks("a", "ghost")
    assert hand.words == ["ok", "refused:budget:max_same_tool_calls", "args:unknown_tool"]
    assert hand.call("c2").detail == "a may be called 1 times in a run"
    assert hand.call("c3").detail == "tools allowed in state gather: b"
    assert isinstance(hand.effect, Decide)


@pytest.mark.parametrize("most", [None, 0, 1, 2, {"a": 0}, {"a": 1, "b": None}, {"a": 2, "b": 1}])
@pytest.mark.parametrize("run_most", [None, 1, 2])
@pytest.mark.parametrize("allowed", [None, ("a",), ("b", "ghost"), ()])
def test_what_is_offered_is_allowed_and_has_budget(most: Any, run_most: int | None, allowed: tuple[str, ...] | None) -> None:
    box = Toolset(map(a_tool, ("b", "a")))
    run = a_run(off(max_same_tool_calls=most, max_tool_calls=run_most), tool_calls=1, tool_counts={"a": 1})
    left = {name: (most.get(name) if isinstance(most, dict) else most) for name in "ab"}
    offered = [n for n in ("b", "a") if (allowed is None or n in allowed) and (left[n] is None or (n == "a") < left[n])]
    assert allowed_now(run, box, allowed) == tuple(offered if run_most != 1 else ())


# ---- arguments


CONTRACT = taking(
    a={"type": "int", "min": 1, "max": 3},
    b={"type": "str", "allowed": ["x", "y"], "required": False},
    c={"type": "str", "pattern": "^k", "min_len": 2, "required": False},
)


@pytest.mark.parametrize(
    ("args", "first", "reasons"),
    [
        ({}, "missing:a", ["missing:a"]),
        ({"z": 1}, "missing:a", ["missing:a", "extra:z"]),
        ({"a": "7", "z": 1}, "extra:z", ["extra:z", "type:a"]),
        ({"a": "1"}, "type:a", ["type:a"]),
        ({"a": True}, "type:a", ["type:a"]),
        ({"a": 9, "b": "q"}, "range:a", ["range:a", "allowed:b"]),
        ({"a": 1, "b": "q", "c": "z"}, "allowed:b", ["allowed:b", "length:c", "pattern:c"]),
        ({"a": 1, "c": "zz"}, "pattern:c", ["pattern:c"]),
        ([], "type:args", ["type:args"]),
        ("not json", "type:args", ["type:args"]),
    ],
)
def test_the_first_reason_is_the_word_and_the_message_lists_every_fault(args: Any, first: str, reasons: list[str]) -> None:
    hand = Hand(a_tool(args=CONTRACT)).decides(ToolCall("look", args, "c1"))
    call = hand.call("c1")
    assert call.error == f"args:{first}"
    assert [part.partition(" ")[0] for part in call.detail.split("; ") if ":" in part.partition(" ")[0]] == reasons


@pytest.mark.parametrize("args", [[], 7, True, "text", None, "", (1, 2)])
def test_a_tool_without_a_contract_still_takes_only_an_object(args: Any) -> None:
    hand = Hand(a_tool()).decides(ToolCall("look", args, "c1"))
    call = hand.call("c1")
    if args in (None, ""):
        assert hand.words == ["open"]
        assert call.args == {}
    else:
        assert (call.error, call.detail) == ("args:type:args", "arguments must be an object")


def test_a_mapping_of_another_class_is_an_object() -> None:
    hand = Hand(a_tool()).decides(ToolCall("look", MappingProxyType(X), "c1"))
    assert hand.words == ["open"]


def test_bad_arguments_fault_their_call_alone() -> None:
    tool = a_tool(args=taking(q={"type": "str"}))
    hand = Hand(tool).decides(*(ToolCall("look", args, f"c{n}") for n, args in enumerate(({"q": 1}, X, "{", '{"q": "y"}'))))
    assert hand.words == ["args:type:q", "open", "args:type:args", "open"]
    assert hand.call("c3").args == {"q": "y"}
    assert hand.batch == ["c1", "c3"]


@pytest.mark.parametrize("n", [1, 20, 99, 100, 101, 250])
def test_the_message_names_a_hundred_faults_and_counts_the_rest(n: int) -> None:
    tool = a_tool(args=taking(**{f"a{i}": {"type": "str"} for i in range(n)}))
    text = fault_list(tool, {})
    assert [f"missing:a{i} " in text for i in range(n)] == [i < 100 for i in range(n)]
    assert text.endswith(f"; and {n - 100} more") is (n > 100)


def test_what_the_decider_is_told_is_the_word_and_what_would_have_worked() -> None:
    call = attrs.evolve(a_call(), ok=False, error="args:missing:q")
    assert fault_text(call) == "args:missing:q"
    assert fault_text(attrs.evolve(call, detail="expected str")) == "args:missing:q (expected str)"
    assert len(fault_text(attrs.evolve(call, detail="x" * 100_000))) < 9000


SECRETS: list[Any] = [
    "hunter2", "it's\n\"quoted\" ü", "s3" * 300, {"user": "root", "keys": ["hunter2", "other"]}, ["hunter2"], 123456, 1.5e10,
]  # fmt: skip


@pytest.mark.parametrize("value", SECRETS, ids=range(len(SECRETS)))
def test_the_message_never_shows_a_secret_that_broke_its_contract(value: Any) -> None:
    tool = a_tool(args=taking(key={"type": "bool"}, q={"type": "str"}), secret=["key"])
    for args in ({"key": value, "q": 7}, {"key": value, "q": value}, [value], repr({"key": value}), "{" + str(value)):
        text = fault_list(tool, args)
        for part in ("hunter2", "quoted", "s3s3s3", "root", "123456", "1500000"):
            assert part not in text, args
    assert "expected str; got 7" in fault_list(tool, {"key": value, "q": 7})


# ---- budgets: n are let in and the n + 1-th is not, also inside a turn


def split(names: str, turns: int) -> list[list[str]]:
    """The calls as so many turns: all in one, or one each."""
    return [list(names)] if turns == 1 else [[name] for name in names]


@pytest.mark.parametrize("n", range(5))
@pytest.mark.parametrize("asked", range(1, 7))
def test_of_one_turn_the_fitting_prefix_runs_and_the_rest_is_skipped(n: int, asked: int) -> None:
    hand = Hand(limits=off(max_calls_per_turn=n)).asks(*["look"] * asked)
    hand.plays()
    assert hand.words == ["ok"] * min(n, asked) + ["skipped:max_calls_per_turn"] * (asked - min(n, asked))
    assert isinstance(hand.effect, Decide)
    hand.asks("look").plays()
    assert hand.words[-1] == ("ok" if n else "skipped:max_calls_per_turn")


@pytest.mark.parametrize("n", range(4))
@pytest.mark.parametrize("turns", [1, 6])
@pytest.mark.parametrize("form", ["number", "mapping"])
def test_of_one_tool_n_calls_run_the_rest_is_refused_and_the_run_goes_on(n: int, turns: int, form: str) -> None:
    most: Any = n if form == "number" else {"look": n}
    hand = Hand(a_tool("look"), a_tool("fetch"), limits=off(max_same_tool_calls=most))
    for names in split("llflll", turns):
        hand.asks(*({"l": "look", "f": "fetch"}[name] for name in names)).plays()
    looks = [call for call in hand.calls if call.tool == "look"]
    assert [call.error for call in looks] == ([""] * n + ["refused:budget:max_same_tool_calls"] * 5)[:5]
    assert next(call.error for call in hand.calls if call.tool == "fetch") == ("" if n or form == "mapping" else looks[0].error)
    assert hand.run.tool_counts.get("look", 0) == n
    assert isinstance(hand.effect, Decide)


@pytest.mark.parametrize("n", range(5))
@pytest.mark.parametrize("turns", [1, 6])
def test_of_the_run_n_calls_run_and_the_next_one_that_is_asked_for_ends_it(n: int, turns: int) -> None:
    hand = Hand(limits=off(max_tool_calls=n))
    for names in split("l" * 6, turns):
        if hand.reason is None:
            hand.asks(*["look"] * len(names)).plays()
    skipped = 6 - n if turns == 1 else 1
    assert hand.words == ["ok"] * n + ["skipped:max_tool_calls"] * skipped
    assert hand.run.tool_calls == n
    assert hand.reason is StopReason.MAX_TOOL_CALLS
    stop = hand.run.stop
    assert stop is not None
    (closed,) = stop.closed
    assert (closed.guard, closed.limit, closed.allowed, closed.used) == ("calls_left", "max_tool_calls", n, n)
    assert stop.raise_to == {"max_tool_calls": n + 1}
    assert closed.calls == tuple(f"c{i}" for i in range(1, n + 1))


def test_the_nth_call_closes_nothing() -> None:
    hand = Hand(limits=off(max_tool_calls=2, max_same_tool_calls=2, max_calls_per_turn=2)).asks("look", "look").plays()
    assert hand.words == ["ok", "ok"]
    assert isinstance(hand.effect, Decide)
    assert hand.effect.tools == ()


def test_budgets_count_admitted_calls_only() -> None:
    tool = a_tool(args=taking(q={"type": "str"}))
    hand = Hand(tool, limits=off(max_tool_calls=2, max_calls_per_turn=2, max_same_tool_calls=2))
    calls = [("look", {}), ("ghost", X), ("look", X), ("look", {"q": 1}), ("look", {"q": "y"})]
    hand.decides(*(ToolCall(name, args) for name, args in calls))
    assert hand.words == ["args:missing:q", "args:unknown_tool", "open", "args:type:q", "open"]
    assert (hand.run.tool_calls, hand.run.tool_counts, hand.run.emitted_calls) == (2, {"look": 2}, 5)


def test_a_call_with_a_spent_tool_leaves_room_for_those_behind_it() -> None:
    hand = Hand(a_tool("a"), a_tool("b"), limits=off(max_same_tool_calls={"a": 1}, max_calls_per_turn=2, max_tool_calls=2))
    hand.asks("a", "a", "b", "b").plays()
    assert hand.words == ["ok", "refused:budget:max_same_tool_calls", "ok", "skipped:max_calls_per_turn"]
    assert hand.reason is None


@pytest.mark.parametrize("at", [0.0, 8.9, 9.0, 9.5, 11.0])
def test_no_call_begins_once_the_time_for_work_is_up(at: float) -> None:
    hand = Hand(limits=off(deadline_s=10.0, reserve_s=1.0)).asks("look", now=at)
    if at < 9.0:
        assert hand.batch == ["c1"]
        return
    assert hand.words == ["skipped:deadline"]
    assert hand.reason is StopReason.DEADLINE
    stop = hand.run.stop
    assert stop is not None
    assert stop.closed[0].allowed == 9.0
    hand.engine.resume(hand.run, stop.raise_to)
    # What a limit kept from running is the decider's to ask for again.
    assert isinstance(hand.effect, Decide)


def test_a_deadline_of_nothing_lets_no_turn_begin_and_can_be_raised() -> None:
    hand = Hand(limits=off(deadline_s=0.0))
    stop = hand.run.stop
    assert stop is not None
    assert stop.reason is StopReason.DEADLINE
    hand.engine.resume(hand.run, stop.raise_to)
    assert isinstance(hand.effect, Decide)


# ---- repetitions


def many(hand: Hand, *letters: str, each: Callable[[Hand], object] = Hand.plays) -> Hand:
    """One turn for each letter, all of the same tool."""
    for letter in letters:
        if hand.reason is None:
            hand.decides(ToolCall("look", {"q": letter}))
            each(hand)
    return hand


@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize("policy", ["stop", "refuse", "error", "first"])
def test_of_one_call_n_are_run_and_the_next_goes_by_the_policy(most: int, policy: str) -> None:
    hand = many(Hand(limits=off(max_same_call=most), policy=Policy(duplicates=policy)), *"xxxxx")
    run = 1 if policy == "first" else most
    ends = policy in ("stop", "first")
    assert hand.words == ["ok"] * run + ["refused:duplicate"] * (1 if ends else 5 - run)
    assert hand.reason is (StopReason.DUPLICATE_CALL if ends else None)
    assert hand.run.body_runs == run
    if ends:
        stop = hand.run.stop
        assert stop is not None
        (closed,) = stop.closed
        assert (closed.guard, closed.limit, closed.allowed, closed.used) == ("call_is_new", "max_same_call", run, run + 1)
        assert closed.calls == tuple(call.id for call in hand.calls)


def test_the_third_stops_by_default() -> None:
    hand = many(Hand(limits=Limits()), *"xxx")
    assert (hand.words, hand.reason) == (["ok", "ok", "refused:duplicate"], StopReason.DUPLICATE_CALL)


def test_with_a_window_and_nothing_else_the_first_repetition_inside_it_counts() -> None:
    hand = many(Hand(limits=Limits.autogpt(min_evidence=0)), *"ax")
    many(hand, "a")
    assert hand.words == ["ok", "ok", "refused:duplicate"]
    stop = hand.run.stop
    assert stop is not None
    assert stop.reason is StopReason.DUPLICATE_CALL
    assert (stop.closed[0].limit, stop.raise_to) == ("dedup_window", {"dedup_window": None})


@pytest.mark.parametrize("policy", ["stop", "refuse", "error"])
def test_with_neither_limit_nothing_is_a_repetition(policy: str) -> None:
    hand = many(Hand(limits=off(), policy=Policy(duplicates=policy)), *"xxxxx")
    assert hand.words == ["ok"] * 5


def test_the_policy_of_the_first_repetition_needs_no_figure() -> None:
    hand = many(Hand(limits=off(), policy=Policy(duplicates="first")), *"xyx")
    assert hand.words == ["ok", "ok", "refused:duplicate"]
    stop = hand.run.stop
    assert stop is not None
    assert (stop.reason, stop.closed[0].allowed, stop.raise_to) == (StopReason.DUPLICATE_CALL, 1, {"max_same_call": None})
    hand.engine.resume(load(save(hand.run), hand.engine.setup), stop.raise_to)


@given(
    asked=st.lists(st.sampled_from("abc"), max_size=12),
    most=st.none() | st.integers(1, 3),
    window=st.none() | st.integers(1, 4),
    policy=st.sampled_from(["refuse", "error", "stop", "first"]),
)
def test_repetitions_are_counted_over_the_run_or_the_last_admitted_calls(
    asked: list[str], most: int | None, window: int | None, policy: str
) -> None:
    hand = many(Hand(limits=off(max_same_call=most, dedup_window=window), policy=Policy(duplicates=policy)), *asked)
    requests: Counter[str] = Counter()
    admitted: list[str] = []
    words: list[str] = []
    for letter in asked:
        before = admitted[-window:].count(letter) if window is not None else requests[letter]
        requests[letter] += 1
        allowed = 1 if most is None or policy == "first" else most
        if (most is None and window is None and policy != "first") or before < allowed:
            admitted.append(letter)
            words.append("ok")
            continue
        words.append("refused:duplicate")
        if policy in ("stop", "first"):
            break
    assert hand.words == words


@pytest.mark.parametrize("turns", [1, 3])
def test_inside_one_turn_too_the_third_is_not_run(turns: int) -> None:
    hand = Hand(a_tool(effect="undeclared"), limits=off(max_same_call=2))
    for names in split("xxx", turns):
        hand.decides(*(ToolCall("look", X) for _ in names)).plays()
    assert hand.words == ["ok", "ok", "refused:duplicate"]
    assert hand.reason is StopReason.DUPLICATE_CALL


def test_behind_a_repetition_that_stops_the_rest_is_skipped_and_the_prefix_runs() -> None:
    hand = Hand(limits=off(max_same_call=1))
    hand.decides(ToolCall("look", {"q": "a"}), ToolCall("look", {"q": "a"}), ToolCall("look", {"q": "b"}), ToolCall("ghost"))
    assert hand.words == ["open", "refused:duplicate", "skipped:duplicate_call", "skipped:duplicate_call"]
    assert hand.plays().reason is StopReason.DUPLICATE_CALL


SAME = [
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ({"a": {"x": 1, "y": [{"p": 1, "q": 2}]}}, {"a": {"y": [{"q": 2, "p": 1}], "x": 1}}),
    ({"a": unicodedata.normalize("NFC", "é")}, {"a": unicodedata.normalize("NFD", "é")}),
    ({}, None),
    ({"a": 1}, '{"a": 1}'),
    ({"a": 1}, '"{\\"a\\": 1}"'),
]
OTHER = [
    ({"a": 1}, {"a": "1"}),
    ({"a": 1}, {"a": 1.0}),
    ({"a": 1}, {"a": True}),
    ({"a": {"b": 1}}, {"a": {"b": 2}}),
    ({"a": {"b": {"c": 1}}}, {"a": {"b": {"d": 1}}}),
    ({"a": [1, 2]}, {"a": [2, 1]}),
    ({"a": None}, {}),
    ({"a": "x"}, {"a": "x "}),
    ({"a": "x"}, {"a": "X"}),
]


@pytest.mark.parametrize(("one", "other"), SAME, ids=range(len(SAME)))
def test_the_same_call_in_other_spelling_is_the_same_call(one: Any, other: Any) -> None:
    hand = Hand(limits=off(max_same_call=1)).decides(ToolCall("look", one)).plays().decides(ToolCall("look", other))
    assert hand.words == ["ok", "refused:duplicate"]


@pytest.mark.parametrize(("one", "other"), OTHER, ids=range(len(OTHER)))
def test_other_arguments_make_another_call_nested_ones_too(one: Any, other: Any) -> None:
    """The keys of seeds 000 and 001 dropped what is nested."""
    hand = Hand(limits=off(max_same_call=1)).decides(ToolCall("look", one)).plays().decides(ToolCall("look", other))
    assert hand.words == ["ok", "open"]


def test_another_tool_makes_another_call() -> None:
    hand = Hand(a_tool("a"), a_tool("b"), limits=off(max_same_call=1)).decides(ToolCall("a", X), ToolCall("b", X))
    assert hand.words == ["open", "open"]


def test_the_body_gets_the_text_as_it_was_written() -> None:
    spelt = unicodedata.normalize("NFD", "é")
    hand = Hand(limits=off(max_same_call=1)).decides(ToolCall("look", {"q": spelt}))
    assert hand.effect.calls[0].args == {"q": spelt}


DEFAULTS = taking(q={"type": "str"}, n={"type": "int", "required": False, "default": 5})


def test_defaults_are_filled_in_before_calls_are_compared_and_not_for_the_body() -> None:
    hand = Hand(a_tool(args=DEFAULTS), limits=off(max_same_call=1)).decides(ToolCall("look", X))
    assert hand.effect.calls[0].args == X
    hand.plays().decides(ToolCall("look", {**X, "n": 5}), ToolCall("look", {**X, "n": 6}))
    assert hand.words == ["ok", "refused:duplicate", "skipped:duplicate_call"]
    again = Hand(a_tool(args=DEFAULTS), limits=off(max_same_call=1)).decides(ToolCall("look", X), ToolCall("look", {**X, "n": 6}))
    assert again.words == ["open", "open"]


def test_a_contracts_identity_says_which_arguments_tell_two_calls_apart() -> None:
    tool = a_tool(identity=("q",))
    hand = Hand(tool, limits=off(max_same_call=1)).decides(ToolCall("look", {"q": "x", "trace": 1})).plays()
    hand.decides(ToolCall("look", {"q": "x", "trace": 2}))
    assert hand.words == ["ok", "refused:duplicate"]
    other = Hand(tool, limits=off(max_same_call=1)).decides(ToolCall("look", {"q": "x"}), ToolCall("look", {"q": "y"}))
    assert other.words == ["open", "open"]


def test_a_polling_contract_repeats_the_same_call_under_every_policy() -> None:
    for policy, limits in itertools.product(["stop", "refuse", "first"], [off(max_same_call=1), off(dedup_window=3)]):
        hand = many(Hand(a_tool(polling=True), limits=limits, policy=Policy(duplicates=policy)), *"xxxxxx")
        assert hand.words == ["ok"] * 6


REFUSALS: list[tuple[str, Any, tuple[str, ...] | None]] = [
    ("args:unknown_tool", ToolCall("ghost", X), None),
    ("refused:not_allowed", ToolCall("look", X), ()),
    ("args:type:q", ToolCall("look", {"q": 1}), None),
    ("args:type:args", ToolCall("look", "{"), None),
]


@pytest.mark.parametrize(("word", "call", "allowed"), REFUSALS, ids=[word for word, *_ in REFUSALS])
@pytest.mark.parametrize("policy", ["stop", "refuse", "first"])
def test_refused_calls_are_requests_of_their_key_too(word: str, call: ToolCall, allowed: Any, policy: str) -> None:
    tool = a_tool(args=taking(q={"type": "str"}))
    hand = Hand(tool, limits=off(max_same_call=2, max_turns=20), allowed=allowed, policy=Policy(duplicates=policy))
    for _ in range(4):
        if hand.reason is None:
            hand.decides(call)
    ends = {"stop": 3, "first": 2, "refuse": 4}[policy]
    assert hand.words == [word] * ends
    assert hand.reason is (None if policy == "refuse" else StopReason.DUPLICATE_CALL)


def test_a_refused_request_is_counted_before_one_that_would_run() -> None:
    tool = a_tool(args=taking(q={"type": "str"}))
    hand = Hand(tool, limits=off(max_same_call=1, max_turns=9), policy=Policy(duplicates="refuse"))
    run = hand.run
    run.requests[loop_key("look", X)] = 1
    assert hand.decides(ToolCall("look", X)).words == ["refused:duplicate"]


@pytest.mark.parametrize("said", ["RETRYABLE", "RATE_LIMITED"])
@pytest.mark.parametrize("limits", [off(max_same_call=1), off(max_same_call=None, dedup_window=12)], ids=["calls", "window"])
@pytest.mark.parametrize("how", ["returned", "raised"])
def test_asking_again_for_what_asked_to_be_tried_again_is_no_repetition(said: str, limits: Limits, how: str) -> None:
    """Seed 002 threw its own retries as duplicates."""
    hand = Hand(limits=limits)

    def fails(hand: Hand) -> None:
        call_id = hand.batch[0]
        verdict = says(said, retry_after_s=0.0)
        hand.gives(call_id, None, verdict) if how == "returned" else hand.fails(call_id, verdict=verdict)

    many(hand, *"xxx", each=fails)
    many(hand, *"xx")
    word = f"result:{said.lower()}" if how == "returned" else "raised:ValueError"
    assert hand.words == [word] * 3 + ["ok", "refused:duplicate"]


def test_a_transient_exception_asked_to_be_tried_again() -> None:
    hand = Hand(limits=off(max_same_call=1))
    many(hand, "x", each=lambda hand: hand.fails(hand.batch[0], "ConnectionError").waits())
    many(hand, "x")
    assert hand.words == ["raised:ConnectionError", "ok"]


def test_a_plain_failure_asked_for_nothing() -> None:
    hand = many(Hand(limits=off(max_same_call=1, max_turns=9)), "x", each=lambda hand: hand.fails(hand.batch[0]))
    assert many(hand, "x").words == ["raised:ValueError", "refused:duplicate"]


def test_tries_inside_one_call_are_no_requests() -> None:
    tool = a_tool(retry=Retry(attempts=4, backoff_s=[0.0]))
    hand = Hand(tool, limits=off(max_same_call=1))
    hand.decides(ToolCall("look", X, "c1"))
    for _ in range(3):
        hand.gives("c1", None, says("RETRYABLE"))
    hand.gives("c1")
    assert (hand.words, hand.run.requests, hand.run.tool_calls) == (["ok"], {loop_key("look", X): 1}, 1)


def test_a_fault_of_the_decider_between_two_calls_changes_nothing() -> None:
    hand = many(Hand(limits=off(max_same_call=1, max_turns=9)), "x")
    hand.tell(DecisionFailed("JSONDecodeError", "no", "malformed"))
    assert many(hand, "x").words == ["ok", "refused:duplicate"]


def test_a_stop_by_repetition_is_explained_and_goes_on_with_the_joint_raise() -> None:
    hand = many(Hand(limits=off(max_same_call=2)), *"xxx")
    stop = hand.run.stop
    assert stop is not None
    hand.engine.resume(hand.run, stop.raise_to)
    assert many(hand, "x").words == ["ok", "ok", "refused:duplicate", "ok"]


def test_a_closed_guard_is_one_line_of_the_trace() -> None:
    hand = many(Hand(limits=off(max_same_call=1)), *"xx")
    assert [row for row in hand.run.trace if row[0] == "guard_closed"] == [("guard_closed", 0.0, "call_is_new", "duplicate_call")]
    assert [row[2] for row in hand.run.trace if row[0] == "call_admitted"] == ["call-1"]
    assert [row[2:] for row in hand.run.trace if row[0] == "call_refused"] == [("call-2", "refused:duplicate")]


# ---- identical pure calls of one turn share one run


@pytest.mark.parametrize("effect", ["pure", "idempotent", "at_most_once", "undeclared"])
@pytest.mark.parametrize("n", [2, 3, 5])
def test_identical_pure_calls_of_one_turn_share_one_run_and_others_do_not(effect: str, n: int) -> None:
    hand = Hand(a_tool(effect=effect)).decides(*(ToolCall("look", X, f"c{i}") for i in range(n))).plays()
    assert hand.words == ["ok"] * n
    assert hand.run.body_runs == (1 if effect == "pure" else n)
    assert [call.reused for call in hand.calls] == [effect == "pure" and i > 0 for i in range(n)]
    shared = {"hit c0"} if effect == "pure" else {f"hit c{i}" for i in range(n)}
    assert {call.value for call in hand.calls} == shared
    assert hand.run.tool_calls == n


@pytest.mark.parametrize(("one", "other"), OTHER, ids=range(len(OTHER)))
def test_other_calls_share_nothing(one: Any, other: Any) -> None:
    hand = Hand().decides(ToolCall("look", one), ToolCall("look", other)).plays()
    assert hand.run.body_runs == 2


def test_texts_that_only_nfc_makes_equal_share_nothing_for_the_body_may_tell_them_apart() -> None:
    spellings = [unicodedata.normalize(form, "é") for form in ("NFC", "NFD")]
    hand = Hand().decides(*(ToolCall("look", {"q": text}) for text in spellings)).plays()
    assert hand.run.body_runs == 2


def test_calls_with_an_object_that_only_its_identity_tells_apart_share_nothing() -> None:
    one = object()
    hand = Hand().decides(ToolCall("look", {"q": one}, "c0"), ToolCall("look", {"q": one}, "c1"))

    assert hand.batch == ["c0", "c1"]


def test_defaults_and_identity_make_calls_identical_here_too() -> None:
    hand = Hand(a_tool(args=DEFAULTS)).decides(ToolCall("look", X), ToolCall("look", {**X, "n": 5})).plays()
    assert (hand.words, hand.run.body_runs) == (["ok", "ok"], 1)
    hand = Hand(a_tool(identity=("q",))).decides(ToolCall("look", {**X, "t": 1}), ToolCall("look", {**X, "t": 2})).plays()
    assert (hand.words, hand.run.body_runs) == (["ok", "ok"], 1)


@pytest.mark.parametrize("declared", [{"polling": True}, {"effect": "pure", "cache_ttl_s": 0}], ids=["polling", "no reuse"])
def test_calls_that_must_not_be_reused_each_look_for_themselves(declared: dict[str, Any]) -> None:
    hand = Hand(a_tool(**declared), limits=off(max_turns=9)).decides(*[ToolCall("look", X)] * 3).plays()
    assert hand.run.body_runs == 3


def test_nothing_is_shared_across_a_call_with_effects() -> None:
    read, write = a_tool("read"), a_tool("write", effect="idempotent")
    hand = Hand(read, write).decides(
        ToolCall("read", X, "r1"), ToolCall("read", X, "r2"), ToolCall("write", X, "w"), ToolCall("read", X, "r3"),
        ToolCall("read", X, "r4"),
    )  # fmt: skip
    hand.plays()
    assert [(call.id, call.value, call.reused) for call in hand.calls] == [
        ("r1", "hit r1", False), ("r2", "hit r1", True), ("w", "hit w", False), ("r3", "hit r3", False), ("r4", "hit r3", True),
    ]  # fmt: skip


@pytest.mark.parametrize("error", ["ValueError", "KeyError"])
def test_a_shared_failure_is_one_failed_body(error: str) -> None:
    hand = Hand(limits=off(max_tool_errors=9, max_turns=9)).decides(*[ToolCall("look", X)] * 3)
    hand.fails(hand.batch[0], error)
    assert hand.words == [f"raised:{error}"] * 3
    assert hand.run.tool_errors == 1


def test_calls_refused_behind_their_leader_share_nothing() -> None:
    hand = Hand(limits=off(max_same_call=2, max_turns=9), policy=Policy(duplicates="refuse")).decides(*[ToolCall("look", X)] * 3)
    assert hand.plays().words == ["ok", "ok", "refused:duplicate"]
    assert [call.leader for call in hand.calls] == ["", "call-1", ""]


BAD, READ_AND_WRITE = {"q": 5}, (("read", "pure"), ("write", "idempotent"))
MENDS = {"args:type:q": ("word", lambda tool, args, run: (tool, X))}


@pytest.mark.parametrize(
    ("asked", "bodies"),
    [
        ([("read", X), ("read", BAD)], 1),
        ([("read", BAD), ("read", X)], 1),
        ([("read", BAD), ("read", BAD), ("read", X)], 1),
        ([("read", X), ("read", BAD), ("write", X)], 2),
        ([("read", X), ("write", X), ("read", BAD)], 3),
        ([("read", BAD), ("write", X), ("read", X)], 3),
    ],
    ids=range(6),
)
def test_a_call_that_a_repair_made_the_same_as_one_of_its_turn_shares_its_run_too(asked: list[Any], bodies: int) -> None:
    tools = [a_tool(name, effect=effect, args=taking(q={"type": "str"})) for name, effect in READ_AND_WRITE]
    hand = Hand(*tools, limits=off(max_turns=9, max_attempts=3), repairs=MENDS)
    hand.decides(*(ToolCall(name, args, f"c{n}") for n, (name, args) in enumerate(asked))).plays()
    assert set(hand.words) == {"ok"}
    assert hand.run.body_runs == bodies
    assert sum(call.reused for call in hand.calls) == len(asked) - bodies
    assert len({call.value for call in hand.calls if call.tool == "read"}) == bodies - sum(name == "write" for name, _ in asked)
    assert replay(hand.engine, hand.run) == hand.run


def test_a_call_that_a_repair_made_the_same_as_one_that_failed_runs_itself() -> None:
    hand = Hand(a_tool(args=taking(q={"type": "str"})), limits=off(max_turns=9, max_attempts=3), repairs=MENDS)
    hand.decides(ToolCall("look", X, "c0"), ToolCall("look", BAD, "c1")).fails("c0").gives("c1")
    assert hand.words == ["raised:ValueError", "ok"]


# ---- what the gate leaves behind


def test_what_was_tried_is_listed_and_what_was_skipped_is_not() -> None:
    run = a_run()
    for word in ("refused:duplicate", "args:missing:q", "skipped:deadline"):
        call = a_call(call_id=word)
        refuse(run, call, word, "why")
        assert (call.ok, call.error, call.detail) == (False, word, "why")
    assert run.tried == [("look", X), ("look", X)]
    assert run.errors == ["refused:duplicate", "args:missing:q", "skipped:deadline"]
    assert [row[0] for row in run.trace] == ["call_refused"] * 3


def test_an_admitted_call_carries_its_tools_source_and_is_admitted_once() -> None:
    hand = Hand(a_tool(source="archive")).asks("look")
    assert hand.call("c1").source == "archive"
    admit_turn(hand.run, hand.engine.setup.box, None, Policy())
    assert (hand.run.tool_calls, hand.call("c1").tries) == (1, 1)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3),
    max_leaves=6,
)


@given(tool=st.sampled_from(["look", "ghost", ""]) | values, args=values, limits=st.sampled_from([off(), Limits()]))
def test_whatever_a_decider_invents_is_admitted_or_refused_with_a_word(tool: Any, args: Any, limits: Limits) -> None:
    hand = Hand(a_tool(args=CONTRACT), limits=limits).decides(ToolCall("look", {"a": 1}), ToolCall(tool, args))
    last = hand.calls[-1]
    assert last.admitted is (last.ok is None)
    assert bool(last.error) is (last.ok is False)


class Unequal:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparing")

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        raise RuntimeError("no words")


def deep(levels: int) -> Any:
    value: Any = "end"
    for _ in range(levels):
        value = [value]
    return value


def holding_itself() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["q"] = value
    return value


ODD: list[Any] = [
    {"q": Unequal()}, Unequal(), {"q": 10**5000}, {"q": float("nan")}, {"q": deep(20_000)}, holding_itself(), {Unequal: 1},
    {"\ud800": "\ud800"},
]  # fmt: skip


@pytest.mark.parametrize("args", ODD, ids=range(len(ODD)))
@pytest.mark.parametrize("contract", [None, CONTRACT, taking(q={"type": "any"})], ids=["none", "table", "any"])
def test_odd_arguments_are_judged_and_never_raise(args: Any, contract: Any) -> None:
    hand = Hand(a_tool(args=contract), limits=off(max_same_call=2)).decides(ToolCall("look", args), ToolCall("look", args))
    assert len(hand.calls) == 2
    assert all(call.admitted is (call.ok is None) for call in hand.calls)
