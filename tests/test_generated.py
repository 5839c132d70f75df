"""Records made quickly are the records that their classes make."""

from __future__ import annotations

import copy
import math
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.core.generated import all_below, maker
from fsm_agent.core.limits import Limits
from fsm_agent.core.run import Call, Run, Stop, new_call, new_run, new_stop
from fsm_agent.core.values import Decision, Policy, StopReason, ToolCall, new_decision, new_tool_call

LIMITS = Limits()
CALL = ToolCall("look", {"n": 1})


def fields_of(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in attrs.fields(type(record))}


MADE = [
    (
        new_run("r", "ask", "given", "pick", LIMITS, "hash", "me", 7, False),
        Run(
            id="r", request="ask", given="given", state="pick", limits=LIMITS, machine="hash", scope="me", seed=7, redecide=False
        ),
    ),
    (
        new_call("c", "look", {"n": 1}, 2, "why", "so", True),
        Call(id="c", tool="look", args={"n": 1}, turn=2, intent="why", reason="so", by_verifier=True),
    ),
    (
        new_stop(StopReason.ANSWERED, "note", "pick", "decided"),
        Stop(reason=StopReason.ANSWERED, detail="note", state="pick", outcome="decided"),
    ),
    (new_tool_call("look", {"n": 1}), CALL),
    (new_decision((CALL,)), Decision(calls=(CALL,))),
]


@pytest.mark.parametrize(("quick", "own"), MADE)
def test_every_field_is_what_the_class_would_have_made_of_it(quick: Any, own: Any) -> None:
    assert type(quick) is type(own)
    assert fields_of(quick) == fields_of(own)
    assert [type(value) for value in fields_of(quick).values()] == [type(value) for value in fields_of(own).values()]
    assert quick == own
    assert repr(quick) == repr(own)


@pytest.mark.parametrize(("quick", "own"), MADE[2:])
def test_a_frozen_record_is_frozen_however_it_was_made(quick: Any, own: Any) -> None:
    name = attrs.fields(type(own))[0].name
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        setattr(quick, name, None)


def test_a_container_is_made_when_it_is_first_read_and_is_the_record_s_from_then_on() -> None:
    run, other = (new_run("r", None, None, "pick", LIMITS, "", "", 0, True) for _ in range(2))
    run.requests["look"] = 1
    assert (run.noted("requests"), other.noted("requests")) == ({"look": 1}, ())
    assert (run.requests, other.requests) == ({"look": 1}, {})
    other.requests = {"look": 1}
    assert run == other


def test_of_many_threads_that_read_a_container_first_each_gets_the_same() -> None:
    for _ in range(20):
        run = new_run("r", None, None, "pick", LIMITS, "", "", 0, True)
        with ThreadPoolExecutor(4) as pool:
            assert len({id(facts) for facts in pool.map(lambda _, run=run: run.facts, range(8))}) == 1  # type: ignore[misc]


def test_a_run_copied_has_containers_of_its_own() -> None:
    run = new_run("r", None, None, "pick", LIMITS, "", "", 0, True)
    again = copy.deepcopy(run)
    again.facts["a"] = True
    assert run.facts == {}
    assert again.facts == {"a": True}


def test_two_records_share_no_container() -> None:
    one, other = (new_run("r", None, None, "pick", LIMITS, "", "", 0, True) for _ in range(2))
    mutable = [name for name, value in fields_of(one).items() if isinstance(value, list | dict)]
    assert len(mutable) > 10
    assert not [name for name in mutable if getattr(one, name) is getattr(other, name)]
    assert new_stop(StopReason.ANSWERED, "", "", "").raise_to is not new_stop(StopReason.ANSWERED, "", "", "").raise_to


@attrs.frozen
class Converted:
    names: Any = attrs.field(default=(), converter=list)


@pytest.mark.parametrize(("kind", "given"), [(Run, ("id",)), (Policy, ()), (Converted, ())])
def test_what_its_class_has_to_look_at_is_not_made_without_it(kind: type[Any], given: tuple[str, ...]) -> None:
    with pytest.raises(TypeError, match="make the record by its class"):
        maker(kind, *given)


def made_by_attrs(kind: type[Any]) -> type[Any]:
    """The same record with attrs' own constructor."""
    fields = {field.name: attrs.field(default=field.default, kw_only=field.kw_only) for field in attrs.fields(kind)}
    return attrs.make_class(kind.__name__, fields, frozen=True, slots=True)


SAID = [
    (ToolCall, ("look",), {}),
    (ToolCall, ("look", {"n": 1}), {"id": "c"}),
    (ToolCall, (), {"tool": "look", "changed": "n"}),
    (Decision, (), {}),
    (Decision, (), {"calls": (CALL,), "finish": "stop"}),
    (ToolCall, (), {}),
    (ToolCall, ("look",), {"tool": "look"}),
    (Decision, ((CALL,),), {}),
    (Decision, (), {"word": "x"}),
]


@pytest.mark.parametrize(("kind", "given", "named"), SAID)
def test_what_a_decider_says_is_made_as_attrs_makes_it(kind: type[Any], given: tuple[Any, ...], named: dict[str, Any]) -> None:
    try:
        own = made_by_attrs(kind)(*given, **named)
    except TypeError as error:
        with pytest.raises(TypeError, match=re.escape(str(error))):
            kind(*given, **named)
        return
    said = kind(*given, **named)
    assert type(said) is kind
    assert fields_of(said) == fields_of(own)
    assert repr(said) == repr(own)
    assert [copy.deepcopy(said), pickle.loads(pickle.dumps(said)), attrs.evolve(said)] == [said] * 3
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        setattr(said, attrs.fields(kind)[0].name, None)


def test_a_class_derived_from_what_a_decider_says_is_made_too() -> None:
    class Marked(Decision):
        mark = "x"

    said = Marked(text="a")
    assert (type(said), said.text, said.calls, said.mark) == (Marked, "a", (), "x")


def test_two_calls_without_arguments_share_none() -> None:
    assert ToolCall("look").args == {}
    assert ToolCall("look").args is not ToolCall("look").args


FIGURES = st.none() | st.integers(0, 4)


@given(st.lists(st.tuples(st.integers(0, 4) | st.just(math.nan), FIGURES, FIGURES, st.booleans()), max_size=5))
def test_counters_are_compared_with_their_figures_in_one_function(spent: list[tuple[float, int | None, int | None, bool]]) -> None:
    figures = {f"l{n}": limit for n, (_, limit, _, _) in enumerate(spent)} | {f"f{n}": one for n, (_, _, one, _) in enumerate(spent)}
    counters = {f"c{n}": counter for n, (counter, *_) in enumerate(spent)}
    below = all_below((f"c{n}", f"l{n}", f"f{n}" if derived else f"l{n}") for n, (*_, derived) in enumerate(spent))
    open_ones = [
        limit is None or (figure := made if derived else limit) is None or counter < figure for counter, limit, made, derived in spent
    ]
    assert below(SimpleNamespace(limits=SimpleNamespace(**figures), **counters)) is all(open_ones)
