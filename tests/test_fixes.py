"""What a host gave for an agent: its kinds, its functions, and the names of its repairs."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from fsm_agent import Limits, Policy, Run
from fsm_agent.core.effects import OwnEffect
from fsm_agent.core.errors import BuildError
from fsm_agent.host.fixes import check_callables, check_kinds, check_own, named_repairs

RUN = Run(id="r", request="go", state="s", limits=Limits())


def trim(tool: str, args: Any) -> tuple[str, Any]:
    return tool, {"trimmed": args}


def test_what_is_there_and_of_its_kind_is_let_through_and_so_is_what_is_left_out() -> None:
    check_kinds(limits=(Limits(), Limits), policy=(None, Policy))
    check_callables(close=print, verify=None, normalizer=partial(int, base=2))


@pytest.mark.parametrize("value", [5, "x", Limits, {}, 0, ""], ids=repr)
def test_a_part_of_another_kind_is_named_with_the_kind_that_would_do(value: Any) -> None:
    with pytest.raises(BuildError, match=r"^policy is .*; give a Policy, or leave it out$"):
        check_kinds(limits=(Limits(), Limits), policy=(value, Policy))


@pytest.mark.parametrize("value", [5, "x", (), 0, Limits()], ids=repr)
def test_a_part_that_is_no_function_is_named(value: Any) -> None:
    with pytest.raises(BuildError, match=r"^close is .*; give a function$"):
        check_callables(normalizer=print, close=value)


class Closer:
    def __call__(self, ask: Any) -> str:
        return "done"


@pytest.mark.parametrize("name", ["model", "verify", "close"])
def test_a_class_stands_for_no_function_that_answers(name: str) -> None:
    with pytest.raises(BuildError, match=rf"^{name} is the class Closer; give an instance of it, Closer\(...\), or a function$"):
        check_callables(**{name: Closer})
    check_callables(normalizer=str)


@pytest.mark.parametrize("key", [int, "effect", 5], ids=repr)
def test_only_an_effect_of_ones_own_has_a_performer(key: Any) -> None:
    with pytest.raises(BuildError, match=r"^effects has the key .*; give classes derived from OwnEffect$"):
        check_own(None, {key: print})
    check_own(None, {type("Mine", (OwnEffect,), {}): print})


async def trim_later(tool: str, args: Any) -> tuple[str, Any]:
    return tool, args


def test_a_repair_that_has_to_be_awaited_is_refused() -> None:
    fix: Any = trim_later
    with pytest.raises(BuildError, match=r"^the repair of 'args:range:n' is a coroutine function; give a plain function"):
        named_repairs({"args:range:n": fix})


def test_repairs_have_names_of_their_own_and_take_no_run() -> None:
    made = named_repairs({"args:length": trim, "args:extra": trim, "args:type": lambda tool, args: None, "args:range": partial(trim)})
    assert {error: name for error, (name, _) in made.items()} == {
        "args:length": "trim", "args:extra": "trim", "args:type": "args:type", "args:range": "args:range",
    }  # fmt: skip
    assert made["args:length"][1]("t", 1, RUN) == ("t", {"trimmed": 1})
    assert made["args:type"][1]("t", 1, RUN) is None


def test_two_functions_of_one_name_are_two_repairs() -> None:
    def another() -> Any:
        def trim(tool: str, args: Any) -> None:
            return None

        return trim

    made = named_repairs({"args:length": trim, "args:extra": another()})
    assert [name for name, _ in made.values()] == ["trim", "args:extra"]


@pytest.mark.parametrize("fix", [None, 5, "trim", ("t", {})], ids=repr)
def test_a_repair_is_a_function(fix: Any) -> None:
    with pytest.raises(BuildError, match=r"the repair of 'args:length' is .*; give a function of tool and arguments"):
        named_repairs({"args:length": fix})


@pytest.mark.parametrize("reason", ["range:limit", "too_big", "TimeoutError", "", "argsrange:limit", 5, None])
def test_a_reason_that_no_call_fails_with_is_refused_with_one_that_would_do(reason: Any) -> None:
    """A repair under it would never be tried, and nobody would be told."""
    with pytest.raises(BuildError, match=r"with which no call fails; give one like 'args:range:limit', 'result:too_big' or 'raised:"):
        named_repairs({reason: trim})


@pytest.mark.parametrize(
    "reason", ["args:unknown_tool", "result:fatal", "raised:OSError", "refused:circuit_open", "skipped:hook", "denied:no", "superseded"]
)
def test_whatever_a_call_can_fail_with_may_have_a_repair(reason: str) -> None:
    assert list(named_repairs({reason: trim})) == [reason]
