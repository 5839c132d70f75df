"""Secrets that a contract declares: marked where people read, sealed where a run is written down."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from by_hand import Hand, a_tool, off, says, taking
from hypothesis import given
from hypothesis import strategies as st

import fsm_agent
from fsm_agent.core.redact import MARK, is_sealed, key_form, redacted, sealed, without_secrets
from fsm_agent.core.replay import replay
from fsm_agent.core.saving import save
from fsm_agent.core.values import Policy, StopReason, ToolCall

# ---- texts


@pytest.mark.parametrize(
    ("text", "args", "told"),
    [
        ("key is hunter2!", {"key": "hunter2"}, f"key is {MARK}!"),
        ("hunter2hunter2", {"key": "hunter2"}, MARK * 2),
        ("HUNTER2", {"key": "hunter2"}, "HUNTER2"),
        ("pin 1234", {"key": 1234}, f"pin {MARK}"),
        ("rate 12.5", {"key": 12.5}, f"rate {MARK}"),
        ("rate nan", {"key": float("nan")}, f"rate {MARK}"),
        ("b'\\x00\\x01k'", {"key": b"\x00\x01k"}, f"b'{MARK}'"),
        ("at hunter2, as root", {"key": {"pass": "hunter2", "user": ["root"]}}, f"at {MARK}, as {MARK}"),
        ("no user", {"key": {"user": "xyz"}}, f"no {MARK}"),
        ("it's \"so\"", {"key": 'it\'s "so"'}, MARK),
        (repr("line\nit's"), {"key": "line\nit's"}, f'"{MARK}"'),
        (json.dumps("ü\n"), {"key": "ü\nä"}, json.dumps("ü\n")),
        (json.dumps("ü\nä"), {"key": "ü\nä"}, f'"{MARK}"'),
        ("nothing", {"key": "hunter2"}, "nothing"),
        ("nothing", {}, "nothing"),
        ("", {"key": "hunter2"}, ""),
        ("True None", {"key": [True, None]}, "True None"),
    ],
)
def test_every_spelling_of_a_secret_is_marked(text: str, args: dict[str, Any], told: str) -> None:
    assert redacted(text, {"key"}, args) == told


@pytest.mark.parametrize("value", ["", "a", b"\x01"[:0], "ab", 1, 12, b"", b"ab"])
def test_what_has_fewer_than_three_characters_says_nothing_and_stays(value: Any) -> None:
    text = f"a ab 1 12 {value}"
    assert redacted(text, {"key"}, {"key": value}) == text


def test_only_declared_arguments_are_secret() -> None:
    assert redacted("hunter2 and swordfish", {"key"}, {"key": "hunter2", "other": "swordfish"}) == f"{MARK} and swordfish"
    assert redacted("hunter2", (), {"key": "hunter2"}) == "hunter2"
    assert redacted("hunter2", {"absent"}, {"key": "hunter2"}) == "hunter2"


@pytest.mark.parametrize("order", list(itertools.permutations(["abcdef", "abc", "cde", "red"])))
def test_no_rest_of_a_longer_secret_stays_and_no_mark_is_touched(order: tuple[str, ...]) -> None:
    args = dict(zip("pqrs", order, strict=True))
    assert redacted("abcdef abc cde red", tuple(args), args) == " ".join([MARK] * 4)


def test_the_same_text_is_marked_alike_in_every_process() -> None:
    code = (
        "from fsm_agent.core.redact import redacted;"
        "print(redacted('abcdef bcd efg', {'a','b','c'}, {'a': 'abcd', 'b': 'bcdef', 'c': 'efg'}))"
    )
    path = str(Path(fsm_agent.__file__).parent.parent)
    runs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert runs == {f"{MARK}ef bcd {MARK}\n"}


class Broken(Mapping[str, Any]):
    def __getitem__(self, name: str) -> Any:
        raise RuntimeError("no reading")

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 1


def holding_itself() -> dict[str, Any]:
    value: dict[str, Any] = {"pass": "hunter2"}
    value["self"] = value
    return value


@pytest.mark.parametrize("args", [None, 7, "hunter2", ["hunter2"], Broken()], ids=["none", "int", "text", "list", "broken"])
def test_arguments_that_cannot_be_looked_at_leave_the_text(args: Any) -> None:
    assert redacted("hunter2", {"key"}, args) == "hunter2"


ODD = [10**5000, -(10**5000), float("inf"), holding_itself(), {1: {2: "hunter2"}}, {"hunter2": 1}, object()]


@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
def test_odd_secrets_are_looked_through_and_never_raise(value: Any) -> None:
    assert redacted("x", {"key"}, {"key": value}) == "x"
    if isinstance(value, dict):
        assert redacted("hunter2", {"key"}, {"key": value}) == MARK


@given(
    secret=st.text(min_size=3, max_size=10),
    around=st.lists(st.text(alphabet="xyz ", max_size=5), min_size=2, max_size=4),
    dress=st.sampled_from([str, repr, json.dumps]),
)
def test_no_secret_stays_in_a_text_that_held_it(secret: str, around: list[str], dress: Any) -> None:
    told = redacted(dress(secret).join(around), {"key"}, {"key": secret})
    assert not any(secret in piece for piece in told.split(MARK))


# ---- arguments


@pytest.mark.parametrize("secret", [(), ("a",), ("b",), ("a", "b"), ("z",)])
def test_secret_arguments_are_marked_and_the_others_stay(secret: tuple[str, ...]) -> None:
    args = {"a": 1, "b": {"deep": 2}}
    assert without_secrets(args, secret) == {name: MARK if name in secret else value for name, value in args.items()}
    assert args == {"a": 1, "b": {"deep": 2}}


@pytest.mark.parametrize("args", [None, 7, '{"key": "hunter2"', ["hunter2"]])
def test_arguments_that_are_no_mapping_are_marked_as_a_whole(args: Any) -> None:
    assert without_secrets(args, {"key"}) == MARK
    assert without_secrets(args, ()) == args


# ---- seals


def test_equal_secrets_of_one_run_have_equal_seals_and_nothing_else_does() -> None:
    one, same, other = (sealed({"key": value, "q": "x"}, {"key"}, "run") for value in ("hunter2", "hunter2", "hunter3"))
    assert one == same != other
    assert one["q"] == "x"
    assert is_sealed(one["key"])
    assert "hunter2" not in str(one)
    assert sealed({"key": "hunter2"}, {"key"}, "another run") != {"key": one["key"]}
    assert sealed({"key": 1}, {"key"}, "run") != sealed({"key": "1"}, {"key"}, "run")


def test_a_seal_is_sealed_already_and_what_holds_no_secret_stays() -> None:
    once = sealed({"key": "hunter2"}, {"key"}, "run")
    assert sealed(once, {"key"}, "run") == once
    assert is_sealed(sealed("text", {"key"}, "run"))
    assert sealed({"key": "hunter2"}, (), "run") == {"key": "hunter2"}


def test_a_repetition_is_told_by_seals() -> None:
    args = {"key": "hunter2", "q": "use hunter2", "deep": [{"q": "hunter2"}], "n": 7}
    forms = [key_form(form, {"key"}, "run") for form in (args, sealed(args, {"key"}, "run"))]
    assert forms[0] == forms[1]
    assert (forms[0]["q"], forms[0]["n"]) == (f"use {MARK}", 7)
    assert is_sealed(forms[0]["deep"])
    assert key_form("text", {"key"}, "run") == sealed("text", {"key"}, "run")


# ---- runs


SECRET = a_tool("pay", effect="idempotent", args=taking(key={"type": "str", "min_len": 5}, q={"type": "str"}), secret=["key"])


def paying(key: Any, q: Any = "x", call_id: str = "") -> ToolCall:
    return ToolCall("pay", {"key": key, "q": q}, call_id)


def test_a_settled_call_holds_no_secret_anywhere_in_the_saved_run() -> None:
    hand = Hand(SECRET, limits=off(max_turns=20, max_same_call=2), policy=Policy(duplicates="refuse"))
    hand.decides(paying("hunter2"), paying('hunter2"\n'), now=1.0)
    hand.gives("call-1", {"ok": True}).fails("call-2", "ValueError", message="not with 'hunter2\"\\n'")
    hand.decides(paying("hunter2", 7), paying("hunt"), ToolCall("pay", '{"key": "hunter2", "q": "y"}'))
    hand.gives("call-5", None, says("EMPTY", reason="hunter2 found nothing"))
    hand.decides(text="done")
    assert hand.words == ["ok", "raised:ValueError", "args:type:q", "args:length:key", "ok"]
    assert "hunt" not in save(hand.run)
    assert hand.call("call-2").detail == f"not with '{MARK}'"


def test_the_secret_is_there_until_the_call_is_settled() -> None:
    hand = Hand(SECRET).decides(paying("hunter2", call_id="c1"))
    assert hand.effect.calls[0].args["key"] == "hunter2"
    hand.gives("c1")
    assert is_sealed(hand.call("c1").args["key"])


@pytest.mark.parametrize("keys", list(itertools.product(["hunter2", "swordfish", "no"], repeat=3)))
@pytest.mark.parametrize("turns", [1, 3])
def test_sealed_secrets_are_told_apart_like_open_ones_and_replay_alike(keys: tuple[str, ...], turns: int) -> None:
    hand = Hand(SECRET, limits=off(max_turns=20, max_same_call=1), policy=Policy(duplicates="refuse"))
    for part in [keys] if turns == 1 else [[key] for key in keys]:
        hand.decides(*map(paying, part)).plays()
    words = []
    for n, key in enumerate(keys):
        words.append("args:length:key" if key == "no" else "refused:duplicate" if key in keys[:n] else "ok")
    assert hand.words == words
    again = replay(hand.engine, hand.run)
    assert again == hand.run
    assert [call.error or "ok" for call in again.calls] == words


def test_a_replay_of_a_run_with_other_faults_beside_a_sealed_one_goes_alike() -> None:
    hand = Hand(SECRET, limits=off(max_turns=20, max_bad_arguments=4))
    hand.decides(paying("hunter2", 7)).decides(paying("no", 7)).decides(ToolCall("pay", {"key": 7})).decides(ToolCall("pay", "{"))
    assert hand.words == ["args:type:q", "args:type:q", "args:missing:q", "args:type:args"] or hand.words[1] == "args:length:key"
    assert hand.reason is StopReason.MAX_BAD_ARGUMENTS
    assert replay(hand.engine, hand.run) == hand.run


SKIPS: list[dict[str, Any]] = [
    {"finish": "length"},
    {"finish": "content_filter", "text": "so far"},
    {"finish": "stop", "text": "done"},
]


@pytest.mark.parametrize("decision", SKIPS, ids=[skip["finish"] for skip in SKIPS])
@pytest.mark.parametrize("args", [{"key": "hunter2"}, '{"key": "hunter2"}', '"{\\"key\\": \\"hunter2\\"}"'])
def test_calls_that_were_never_taken_keep_no_secret_either(decision: dict[str, Any], args: Any) -> None:
    hand = Hand(SECRET, a_tool(), limits=off()).decides(ToolCall("look", {"q": 1}), ToolCall("pay", args), **decision)
    assert [call.error.partition(":")[0] for call in hand.calls] == ["skipped", "skipped"]
    assert "hunter2" not in save(hand.run)
    assert hand.calls[0].args == {"q": 1}
    assert replay(hand.engine, hand.run) == hand.run


def test_a_repaired_call_leaves_no_secret_in_what_was_tried() -> None:
    def elsewhere(tool: str, args: Any, run: Any) -> tuple[str, Any]:
        return "look", {"q": "public"}

    hand = Hand(SECRET, a_tool(), limits=off(max_attempts=3), repairs={"raised:ValueError": ("tool", elsewhere)})
    hand.decides(paying("hunter2", call_id="c1")).fails("c1").gives("c1")
    assert hand.words == ["ok"]
    assert [tool for tool, _ in hand.run.tried] == ["pay", "look"]
    assert "hunter2" not in save(hand.run)


def test_a_verifiers_next_action_leaves_no_secret_either() -> None:
    hand = Hand(SECRET, limits=off(max_verify_rounds=3), verifies=True).decides(text="done")
    action = paying("hunter2")
    hand.judges("need_more", next_action=action)
    assert hand.effect.calls[0].args == action.args
    hand.gives("verify-1")
    assert "hunter2" not in save(hand.run)
    assert replay(hand.engine, hand.run) == hand.run


def test_a_plain_call_beside_a_secret_one_stays_as_it_is() -> None:
    hand = Hand(SECRET, a_tool(), limits=off())
    hand.decides(ToolCall("look", {"q": "hunter2"}), paying("hunter2"), ToolCall("", {"q": "x"})).plays()
    assert [call.args.get("q") for call in hand.calls] == ["hunter2", "x", "x"]
    assert hand.run.journal[0][1].decision.calls[0].args == {"q": "hunter2"}
    assert is_sealed(hand.run.journal[0][1].decision.calls[1].args["key"])


@pytest.mark.parametrize("redecide", [True, False])
def test_a_repair_that_was_still_due_is_given_up_with_the_secret(redecide: bool) -> None:
    def other(tool: str, args: Any, run: Any) -> tuple[str, Any]:
        return tool, {**args, "q": "changed"}

    limits = off(max_attempts=1, max_turns=9)
    hand = Hand(SECRET, limits=limits, repairs={"raised:ValueError": ("other", other)}, policy=Policy(redecide=redecide))
    hand.decides(paying("hunter2", call_id="c1")).fails("c1")
    assert "hunter2" not in save(hand.run)
    assert hand.calls[0].repair is None
    assert not hand.run.repair_due
    assert (hand.reason is None) is redecide
    assert replay(hand.engine, hand.run) == hand.run


def test_a_repair_that_was_still_due_stays_for_a_call_without_secrets() -> None:
    def other(tool: str, args: Any, run: Any) -> tuple[str, Any]:
        return tool, {"q": "changed"}

    limits = off(max_attempts=1, max_turns=9)
    hand = Hand(a_tool(), limits=limits, repairs={"raised:ValueError": ("other", other)}, policy=Policy(redecide=False))
    hand.decides(ToolCall("look", {"q": "x"}, "c1")).fails("c1")
    assert hand.run.repair_due
    assert hand.reason is StopReason.MAX_ATTEMPTS
