"""Saving: a run comes back equal from its text at every step, and a text that is no run of this machine says why."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import attrs
import by_hand
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import (
    NAMES,
    REPAIRS,
    Answers,
    World,
    a_setup,
    a_tool,
    alike,
    an_engine,
    limits,
    odd_values,
    off,
    play,
    policies,
    step,
    the_tools,
    ways,
    worlds,
)

from fsm_agent import Agent
from fsm_agent.core import events
from fsm_agent.core.agent_table import AGENT
from fsm_agent.core.answers import answer_of
from fsm_agent.core.effects import Effect, OwnEffect, Wait
from fsm_agent.core.engine import Engine
from fsm_agent.core.errors import RunError, SavedRunError
from fsm_agent.core.events import (
    Approved,
    Cancelled,
    Checked,
    CircuitOpen,
    Composed,
    ComposeFailed,
    Decided,
    DecisionFailed,
    Denied,
    Event,
    Gone,
    Judged,
    JudgeFailed,
    Lost,
    Paused,
    Performed,
    PerformFailed,
    ProgramCalled,
    Raised,
    Resumed,
    Returned,
    Reused,
    Skipped,
    Started,
    Stopped,
    Superseded,
    Waited,
)
from fsm_agent.core.limits import Limits
from fsm_agent.core.run import Call, ClosedGuard, Run
from fsm_agent.core.saving import FORMAT, VERSION, load, save
from fsm_agent.core.setup import Setup
from fsm_agent.core.table import Kind, Row, State, Table
from fsm_agent.core.tools import Retry, Toolset
from fsm_agent.core.values import Decision, Judgement, Policy, ResultClass, StopReason, ToolCall, Usage, Verdict
from fsm_agent.core.work import WORK
from fsm_agent.testing import ScriptedClock, ScriptedDecider


def _no_constant(name: str) -> Any:
    raise AssertionError(f"{name} is no strict JSON")


def strict(text: str) -> Any:
    """The text as strict JSON, written as UTF-8."""
    return json.loads(text.encode("utf-8").decode("utf-8"), parse_constant=_no_constant)


# ---- there and back


@settings(max_examples=60)
@given(worlds, limits, policies, ways, st.booleans())
def test_a_run_comes_back_equal_at_every_step_and_goes_on_to_an_equal_end(
    world: World, bounds: Limits, policy: Policy, way: Mapping[str, Any], verifies: bool
) -> None:
    engine = an_engine(policy=policy, verifies=verifies, repairs=REPAIRS, **way)
    run, answers = engine.start(" x ", limits=attrs.evolve(bounds, max_attempts=3), fields={"a": (1,)}), world.answers()
    stages: list[Run] = []
    while True:
        text = save(run)
        strict(text)
        again = load(text, engine.setup)
        assert alike(again, run)
        assert again == run
        assert save(again) == text
        stages.append(again)
        if not step(engine, run, answers):
            break
    for stage in (stages[0], stages[len(stages) // 2], stages[-1]):
        assert alike(play(engine, stage, answers), run)


@settings(max_examples=40)
@given(worlds, limits, policies, ways)
def test_saving_between_any_two_steps_changes_nothing(
    world: World, bounds: Limits, policy: Policy, way: Mapping[str, Any]
) -> None:
    engine = an_engine(policy=policy, repairs=REPAIRS, **way)
    bounds, answers = attrs.evolve(bounds, max_attempts=3), world.answers()
    run = play(engine, engine.start("x", limits=bounds), answers)
    other = engine.start("x", limits=bounds)
    while step(engine, other, answers):
        other = load(save(other), engine.setup)
    assert alike(other, run)
    for _ in range(2):
        if run.stop is None or not run.stop.raise_to:
            return
        other, raises = load(save(other), engine.setup), run.stop.raise_to
        for each in (run, other):
            engine.resume(each, raises)
        other = load(save(other), engine.setup)
        assert alike(play(engine, other, answers), play(engine, run, answers))


@settings(max_examples=80)
@given(odd_values, odd_values)
def test_odd_values_come_back_equal_and_of_their_types(value: Any, other: Any) -> None:
    engine = an_engine()
    run = engine.start("x", fields={"odd": other})
    engine.tell(run, Decided(Decision(calls=(ToolCall("look", {}, "c1"),))))
    engine.tell(run, Returned("c1", value))
    text = save(run)
    strict(text)
    again = load(text, engine.setup)
    assert alike(again.calls[0].value, run.calls[0].value)
    assert alike(again.fields, {"odd": other})
    assert save(again) == text


@pytest.mark.parametrize(
    "value",
    [
        float("nan"), float("inf"), -0.0, "\ud835", "\x00", 10**5000, -(2**63) - 1, (1, (2,)), {1, 2}, frozenset({"a"}), b"\xff",
        Decimal("1.10"), datetime(2026, 1, 2, tzinfo=UTC), {"$tuple": [1]}, {1: "a", "1": "b"}, {(1, 2): 3}, 1 + 2j,
        {"": None}, [[], {}], True, 2.0, 2,
    ],
    ids=range(22),
)  # fmt: skip
@pytest.mark.parametrize("where", ["request", "fields", "arguments", "value", "draft", "nowhere"])
def test_a_value_that_json_has_not_comes_back_wherever_it_stood(value: Any, where: str) -> None:
    engine = an_engine(box=Toolset([a_tool("look", args=None)]))
    history = [{"role": "user", "text": "x", "odd": value}]
    run = engine.start(history if where == "request" else "x", fields={"odd": value} if where == "fields" else None)
    args = {"odd": value} if where == "arguments" else {}
    engine.tell(run, Decided(Decision(calls=(ToolCall("look", args, "c1"),))))
    engine.tell(run, Returned("c1", value if where == "value" else 1))
    if where == "draft":
        run.draft = Decision(text="so", citations=(value,))
    again = load(save(run), engine.setup)
    assert alike(again, run)


def test_one_text_loaded_twice_is_two_runs() -> None:
    engine = an_engine(limits=off(max_turns=3))
    text = save(engine.start("x"))
    one, other = load(text, engine.setup), load(text, engine.setup)
    play(engine, one, Answers())
    assert save(other) == text
    assert alike(play(engine, other, Answers()), one)
    for name in ("calls", "trace", "journal", "fields", "facts"):
        assert getattr(one, name) is not getattr(other, name)


def test_who_drives_a_run_is_not_saved() -> None:
    engine = an_engine()
    run = engine.start("x")
    run.driven = True
    assert load(save(run), engine.setup).driven is False
    assert "driven" not in strict(save(run))["run"]


def test_the_text_is_one_line_with_the_format_and_its_version() -> None:
    text = save(an_engine().start("ü\n"))
    assert list(strict(text)) == ["format", "version", "run"]
    assert (strict(text)["format"], strict(text)["version"]) == (FORMAT, VERSION) == ("fsm_agent.run", 1)
    assert "\n" not in text
    assert "ü" in text


# ---- every record that a run may hold


def _rich() -> tuple[Setup, Run]:
    """A run in the middle of a turn that has a bit of everything behind it."""
    bounds = off(max_turns=9, max_tool_calls=20, max_cost=9.0, max_same_tool_calls={"poll": 3}, max_wait_s=60.0, max_verify_rounds=1)
    engine = an_engine(limits=bounds, verifies=True, repairs=REPAIRS)
    run = engine.start("x", fields={"a": [1]}, scope="tenant", seed=3)
    slow = Verdict(result_class=ResultClass.RATE_LIMITED, reason="slow down", retry_after_s=1.0)
    wanted = (ToolCall("look", {"n": 9}, "c1", "find", "because", "all"), ToolCall("poll", {}, "c2"), ToolCall("fetch", {}, "c3"))
    told: list[Any] = [
        Decided(Decision(calls=wanted, usage=Usage(input_tokens=3, cost=0.5))),
        Reused("c2", ["y"]),
        Raised("c3", "OSError", "down", slow),
        Waited(),
        Started(("c3",)),
        Lost("c3"),
        Returned("c3", (1, 2), Verdict(result_class=ResultClass.OK)),
        Returned("c1", ["hit"]),
        Decided(Decision(text="so", citations=("look",))),
        JudgeFailed("OSError", "down"),
        Composed("closing"),
    ]
    for event in told:
        engine.tell(run, event, run.spent_s + 0.5)
    engine.resume(run, {"max_verify_rounds": 3})
    more: list[Any] = [
        DecisionFailed("ValueError", "no JSON", "malformed"),
        Decided(Decision(text="so", citations=("c1",))),
        Judged(Judgement(decision="need_more", reason="too little", next_action=ToolCall("look", {"q": "z"}))),
        CircuitOpen("verify-2", 3.0),
        Decided(Decision(calls=(ToolCall("look", {"q": "s"}, "c4"),))),
        Skipped("c4", "hook", "no"),
        Decided(Decision(calls=(ToolCall("look", {"q": "g"}, "c7"),))),
        Gone("c7"),
        Decided(Decision(calls=(ToolCall("note", {}, "c5"), ToolCall("look", {"q": "y"}, "c6")))),
        Started(("c5",)),
    ]
    for event in more:
        engine.tell(run, event, run.spent_s + 0.5)
    return engine.setup, run


def _stopped() -> tuple[Setup, Run]:
    """A run that was stopped by two guards at once, with its last answer failed."""
    engine = an_engine(limits=off(max_tool_errors=1, stop_after_tool_calls=1))
    run = engine.start("x")
    engine.tell(run, Decided(Decision(calls=(ToolCall("look", {}, "c1"),))))
    engine.tell(run, Raised("c1", "OSError"))
    engine.tell(run, ComposeFailed("OSError"))
    return engine.setup, run


def _held() -> tuple[Setup, Run]:
    """A run that is paused: of its calls one was checked, edited and let run, one denied, one is a client's, one waits behind them."""
    engine = an_engine(limits=off(max_turns=9), checks=True)
    run = engine.start("x")
    told: list[Any] = [
        Decided(Decision(calls=(ToolCall("pay", {"q": "a"}, "c1"),))),
        Checked("c1", True),
        Paused(),
        Superseded("never mind"),
        Decided(Decision(calls=tuple(ToolCall(tool, {"q": tool}, f"d-{tool}") for tool in ("pay", "ask", "paste", "look")))),
        Checked("d-pay", True),
        Checked("d-ask", True),
        Checked("d-paste"),
        Skipped("d-look", "hook", ["skipped"]),
        Paused(99.0),
        Approved("d-pay", {"q": "less"}, True),
        Denied("d-ask", "no money"),
    ]
    for event in told:
        engine.tell(run, event, run.spent_s)
    return engine.setup, run


def _programmed() -> tuple[Setup, Run]:
    """A run whose program stands still at a call that it made."""
    box = Toolset([a_tool("code", where="program", effect="undeclared", args=None), a_tool("look")])
    engine = an_engine(box=box, limits=off(max_turns=9), runs_programs=True)
    run = engine.start("x")
    engine.tell(run, Decided(Decision(calls=(ToolCall("code", {"program": "look(q='a')"}, "c1"),))))
    engine.tell(run, ProgramCalled("c1", "look", {"q": "a"}, b"here", "so far"))
    return engine.setup, run


class Sketching:
    """Work of a machine's own: it asks for an effect of its own until that is performed."""

    def enter(self, setup: Setup, run: Run) -> str | None:
        return None

    def ask(self, setup: Setup, run: Run) -> Effect:
        return OwnEffect(run)

    def tell(self, setup: Setup, run: Run, event: Event) -> str | None:
        return "sketched" if isinstance(event, Performed | Cancelled) else None


def _sketched() -> tuple[Setup, Run]:
    """A run of a machine with work of its own, which was performed at the second attempt."""
    kind = Kind(name="sketch", outcomes={"sketched": ()})
    table = Table(
        "sketches", "draw", [State("draw", work="sketch"), State("end", work="answer")], [Row("draw", "sketched", "end")], {"sketch": kind}
    )
    engine = an_engine(table=table, work={**WORK, "sketch": Sketching()})
    run = engine.start("x")
    engine.tell(run, PerformFailed("OSError", "no ink"))
    engine.tell(run, Performed({"lines": 3}))
    return engine.setup, run


def _ended(event: Any) -> tuple[Setup, Run]:
    engine = an_engine()
    run = engine.start("x")
    engine.tell(run, event)
    return engine.setup, run


SAVED = {
    "rich": _rich(),
    "stopped": _stopped(),
    "cancelled": _ended(Cancelled("deploy")),
    "told to stop": _ended(Stopped("strategy", "enough")),
    "held": _held(),
    "programmed": _programmed(),
    "sketched": _sketched(),
}


def test_every_kind_of_event_is_saved_in_these_runs() -> None:
    told = {type(event) for _, run in SAVED.values() for _, event in run.journal}
    assert told == set(events.Event.__args__)
    assert Resumed in told


@pytest.mark.parametrize("name", SAVED)
def test_these_runs_come_back_equal(name: str) -> None:
    setup, run = SAVED[name]
    assert alike(load(save(run), setup), run)


# ---- what cannot be saved


class Own:
    """A value that nobody else knows."""


@attrs.define
class OwnEvent:
    """An event of a machine's own."""

    value: int = 1


@attrs.frozen(kw_only=True)
class OwnDecision(Decision):
    """A decision that holds more than the run would know."""

    more: int = 1


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda run: run.fields.update(odd=Own()), "run/fields/odd: a Own cannot be saved"),
        (lambda run: run.fields.update(odd=[1, {"deep": Own()}]), "run/fields/odd/1/deep: a Own cannot be saved"),
        (lambda run: setattr(run, "request", Own()), "run/request: a Own cannot be saved"),
        (lambda run: run.calls.append(Call(id="c1", tool="look", args={"q": Own()})), "run/calls/0/args/q: a Own"),
        (lambda run: run.flat_trace.extend(("own", 0.0, "x", Own())), "run/trace/3/3: a Own"),
        (lambda run: run.flat_journal.extend((0.0, OwnEvent())), "run/journal/0: a OwnEvent cannot be saved"),
        (lambda run: run.flat_journal.extend((0.0, Decided(OwnDecision()))), "run/journal/0/decision: a OwnDecision cannot be saved"),
        (lambda run: run.flat_journal.extend((0.0, Decided(Decision(calls=5)))), "run/journal/0/decision/calls: a int cannot be saved"),
        (lambda run: run.flat_journal.extend((0.0, Decided(Decision(calls=(5,))))), "run/journal/0/decision/calls/0: a int cannot be"),
        (lambda run: setattr(run, "draft", "so"), "run/draft: a str cannot be saved"),
    ],
)
def test_what_cannot_be_saved_is_named_with_its_place(change: Any, place: str) -> None:
    run = an_engine().start("x")
    change(run)
    before = copy.deepcopy(run.trace)
    with pytest.raises(SavedRunError, match=place):
        save(run)
    assert len(run.trace) == len(before)


def test_a_value_that_nests_without_end_is_refused_with_its_place() -> None:
    run = an_engine().start("x")
    endless: list[Any] = []
    endless.append(endless)
    run.fields["odd"] = endless
    with pytest.raises(SavedRunError, match=r"run/fields/odd.*nests deeper than"):
        save(run)


def _down(levels: int, at_the_bottom: Any) -> Any:
    return at_the_bottom() if not levels else _down(levels - 1, at_the_bottom)


def test_a_run_is_saved_or_refused_however_deep_the_stack_stands() -> None:
    """Near the end of the stack the encoder may have no room; that is an error of the library too."""
    setup, run = SAVED["rich"]
    text = save(run)
    for levels in range(600, 980, 4):
        try:
            assert _down(levels, lambda: save(run)) == text
        except SavedRunError as error:
            assert "deep" in str(error)  # noqa: PT017
        except RecursionError:
            # The way down itself, or a part of the library that has no stack left to say so.
            break
    assert alike(load(text, setup), run)


# ---- what is no saved run


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*path, index))


def at(tree: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def changed(text: str, path: tuple[Any, ...], value: Any) -> str:
    """The text with another value at a place, or with the key left out where the value is `...`."""
    tree = json.loads(text)
    holder = at(tree, path[:-1])
    if value is ...:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return json.dumps(tree)


def general(path: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple("*" if isinstance(key, int) else key for key in path)


def one_of_each(text: str) -> list[tuple[Any, ...]]:
    """One place of every kind in a saved run."""
    return list({general(path): path for path in places(json.loads(text))}.values())


PLAIN = {
    "request", "given", "args", "value", "fields", "first_fields", "empties", "note", "intent", "reason", "changed", "text", "citations",
    "question", "finish", "usage", "detail", "answer", "edited", "why", "kept",
}  # fmt: skip
# Fields that hold plain data or what others said are read as they are; these are the others that may also be null.
NULLABLE = {
    "ok", "result_class", "fault", "verdict", "draft", "judgement", "next_action", "stop", "stopping", "repair", "usage", "allowed",
    "program",
}  # fmt: skip
SAID = {"tool", "id", "decision"}


def may_hold(path: tuple[Any, ...], old: Any, value: Any) -> bool:
    """Whether a run could have that value at that place, so that it need not be refused."""
    names = [key for key in path if isinstance(key, str)]
    if PLAIN & set(names) or "tried" in names or "trace" in names or "raise_to" in names:
        return True
    if {"journal", "judgement", "next_action"} & set(names) and names[-1] in SAID:
        return True
    if names[-2:] == ["verdict", "retry_after_s"]:
        return True
    if names in (["run", "unsealed"], ["run", "faults"], ["run", "former"], ["run", "claimed"]):
        return value is None or value == {}
    if names[-1] in ("expires_at", "retry_after_s"):
        return value is None or type(value) in (int, float)
    if value is None and names[-2:] in (["decision", "calls"], ["draft", "calls"]):
        # What a decision gave as its calls may have been none.
        return True
    if value is None or names[-1] == "ok":
        return names[-1] in NULLABLE or "limits" in names or "before" in names
    numbers = (int, float)
    return (type(old) in numbers and type(value) in numbers) or "limits" in names or "before" in names


OTHERS: list[Any] = [None, True, -1, 1.5, "x", [], [1], {}, {"$float": "nan"}, {"$tuple": []}, {"$dict": [1, 2]}, {"$bytes": ""}]


def _places_to_change() -> dict[str, list[tuple[Any, ...]]]:
    """The places of each saved run: all of its own fields, and of those within its records each once for each type found there.

    A record is read the same whichever run holds it, so what an earlier run showed of it is not shown again.
    """
    found: dict[str, list[tuple[Any, ...]]] = {}
    seen: set[tuple[Any, ...]] = set()
    for name, (_, run) in SAVED.items():
        text = save(run)
        kinds = {path: (general(path), type(at(json.loads(text), path))) for path in one_of_each(text)}
        found[name] = [path for path, kind in kinds.items() if len(path) < 3 or kind not in seen]
        seen.update(kinds.values())
    return found


@pytest.mark.parametrize(("name", "paths"), _places_to_change().items(), ids=SAVED)
def test_a_value_of_another_type_is_refused_with_its_place(name: str, paths: list[tuple[Any, ...]]) -> None:
    setup, run = SAVED[name]
    tree = json.loads(save(run))
    refused = 0
    for path in paths:
        holder, old = at(tree, path[:-1]), at(tree, path)
        for value in OTHERS:
            if type(value) is type(old):
                continue
            holder[path[-1]] = value
            text = json.dumps(tree)
            holder[path[-1]] = old
            try:
                again = load(text, setup)
            except SavedRunError as error:
                refused += 1
                message = str(error)
                assert message.isprintable()
                assert len(message) < 1000
                if path[0] == "run" and len(path) > 1:
                    assert str(path[1]) in message or "cannot go on" in message or "is in state" in message
            else:
                assert may_hold(path, old, value), (path, value)
                _goes_on_or_says_why(Engine(setup), again)
    assert refused > 150


def _goes_on_or_says_why(engine: Engine, run: Run) -> None:
    try:
        play(engine, run, Answers())
    except RunError:
        return
    answer = answer_of(run)
    assert answer is not None
    assert answer.text


@pytest.mark.parametrize("name", SAVED)
def test_a_key_that_is_missing_is_named(name: str) -> None:
    setup, run = SAVED[name]
    text = save(run)
    for path in one_of_each(text):
        tree = json.loads(text)
        if not isinstance(at(tree, path[:-1]), dict) or str(path[-1]).startswith("$"):
            continue
        try:
            load(changed(text, path, ...), setup)
        except SavedRunError as error:
            names = {"format": "no saved run", "version": "version", "run": "expected an object"}
            assert names.get(path[0] if len(path) == 1 else "", f"missing key '{path[-1]}'") in str(error)  # noqa: PT017
        else:
            held = [key for key in path[:-1] if isinstance(key, str)]
            data = {
                "max_same_tool_calls", "tool_counts", "requests", "observations", "facts", "call_ids", "raise_to", "unsealed", "tried",
                "trace", "claimed", "faults", "former",
            }  # fmt: skip
            assert (PLAIN | data) & set(held), path


def test_a_key_too_many_is_named() -> None:
    setup, run = SAVED["rich"]
    text = save(run)
    for path in (("run", "more"), ("run", "limits", "more"), ("run", "journal", 0, 2, "more"), ("run", "calls", 0, "more")):
        with pytest.raises(SavedRunError, match="unknown key 'more'"):
            load(changed(text, path, 1), setup)


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        (("format",), "other", "the text is no saved run"),
        (("version",), 2, "has version 2; this library reads version 1"),
        (("version",), True, "has version True"),
        (("version",), 1.0, "has version 1.0"),
        (("run",), [], "run: expected an object"),
        (("run", "machine"), "0" * 16, "was saved on machine '0{16}'; this one is '[0-9a-f]{16}' \\(agent\\)"),
        (("run", "state"), "limbo", "is in state 'limbo', which machine 'agent' does not have"),
        (("run", "state"), "normalize", "cannot go on in state 'normalize'"),
        (("run", "state"), "final", "run/stop: run 'run' is at its end in state 'final' and does not say why"),
        (("run", "closing"), True, "run/stop: run 'run' is at its end"),
        (("run", "limits", "max_turns"), -1, "run/limits: Limits.max_turns is -1; give a whole number"),
        (("run", "limits"), None, "run/limits: expected Limits"),
        (("run", "spent_s"), {"$float": "nan"}, "run/spent_s: expected float, got nan"),
        (("run", "spent_s"), {"$float": "inf"}, "run/spent_s: expected float, got inf"),
        (("run", "stopping"), "weather", "run/stopping: 'weather' is no StopReason"),
        (("run", "calls", 0, "result_class"), "GOOD", "run/calls/0/result_class: 'GOOD' is no ResultClass"),
        (("run", "calls", 0, "result_class"), [], "run/calls/0/result_class: \\[\\] is no ResultClass"),
        (("run", "open_calls", 0, "leader"), "c99", "run/open_calls/0/leader: there is no open call 'c99'"),
        (("run", "journal", 0), ["now", "Decided"], "run/journal/0: expected \\[time, event, fields\\]"),
        (("run", "journal", 0, 1), "Guessed", "run/journal/0: expected \\[time, event, fields\\]"),
        (("run", "journal", 0, 1), [], "run/journal/0: expected \\[time, event, fields\\]"),
        (("run", "journal", 0, 0), "noon", "run/journal/0/0: expected seconds, got 'noon'"),
        (("run", "journal"), {}, "run/journal: expected a list"),
        (("run", "calls"), {}, "run/calls: expected a list"),
        (("run", "calls", 0), {"$dict": [1, 2, "x", 3]}, "run/calls/0: (unknown|missing) key"),
        (("run", "came_by"), {"$tuple": ["gather"]}, "run/came_by: expected tuple\\[str, str\\]"),
        (("run", "window"), [7], "run/window: expected list\\[str\\]"),
        (("run", "requests"), {"a": "b"}, "run/requests: expected dict\\[str, int\\]"),
        (("run", "trace", 0), {"$tuple": ["a", 1, 2, 3]}, "run/trace: expected list"),
        (("run", "calls", 0, "value"), {"$nothing": 1}, "run/calls/0/value/\\$nothing: unknown tag"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(path: tuple[Any, ...], value: Any, why: str) -> None:
    setup, run = SAVED["rich"]
    with pytest.raises(SavedRunError, match=why):
        load(changed(save(run), path, value), setup)


@pytest.mark.parametrize("turn", ["", "x", "-1", "1.5", "9" * 5000])
def test_a_decision_of_no_turn_is_refused_with_its_place(turn: str) -> None:
    setup, run = SAVED["rich"]
    at = next(n for n, row in enumerate(run.trace) if row[0] == "decision")
    with pytest.raises(SavedRunError, match=f"run/trace/{at}: a decision is told with the number of its turn"):
        load(changed(save(run), ("run", "trace", at, "$tuple", 2), turn), setup)


def test_a_state_that_was_entered_by_no_word_is_refused_with_its_place() -> None:
    setup, run = SAVED["rich"]
    at = next(n for n, row in enumerate(run.trace) if row[0] == "state_entered")
    with pytest.raises(SavedRunError, match=f"run/trace/{at}: state_entered is told with a word"):
        load(changed(save(run), ("run", "trace", at, "$tuple", 3), ["ready"]), setup)


@pytest.mark.parametrize(("seconds", "why"), [(60.0, "and deadline_s ends"), (1e300, "seconds are no time"), (-1.0, "seconds are no time")])
def test_a_wait_that_no_run_would_wait_is_refused(seconds: float, why: str) -> None:
    """Nobody sleeps for years over a text that somebody has changed."""
    tool = by_hand.a_tool(retry=Retry(attempts=2, backoff_s=[2.0]))
    hand = by_hand.Hand(tool, limits=Limits()).asks("look").begins().gives("c1", None, by_hand.says("RETRYABLE"))
    assert isinstance(hand.effect, Wait)
    text = save(hand.run)

    assert load(text, hand.engine.setup) == hand.run
    with pytest.raises(SavedRunError, match=why):
        load(changed(text, ("run", "open_calls", 0, "not_before_s"), seconds), hand.engine.setup)


def test_a_wait_for_a_model_that_no_run_would_wait_is_refused() -> None:
    hand = by_hand.Hand(limits=Limits())
    with pytest.raises(SavedRunError, match="run 'run' waits until 60 s, and deadline_s ends a run that would wait so long"):
        load(changed(save(hand.run), ("run", "not_before_s"), 60.0), hand.engine.setup)


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        (("state",), "limbo", "it goes on in state 'limbo' by 'failed', which machine 'agent' does not have"),
        (("outcome",), "passed", "it goes on in state 'gather' by 'passed', which machine 'agent' does not have"),
        (("closed", 0, "limit"), "max_turnips", "'max_turnips' is no limit"),
        (("raise_to",), {"max_turnips": 3}, "'max_turnips' is no limit"),
        (("raise_to",), [], "run/stop/raise_to: expected dict"),
        (("raise_to",), {"max_turns": "many"}, "run/stop/raise_to: Limits.max_turns is 'many'; give a whole number"),
        (("closed", 0, "used"), {"$float": "inf"}, "run/stop/closed/0/used: expected float, got inf"),
    ],
)
def test_a_stop_from_which_no_run_goes_on_is_refused(path: tuple[Any, ...], value: Any, why: str) -> None:
    setup, run = SAVED["stopped"]
    with pytest.raises(SavedRunError, match=why):
        load(changed(save(run), ("run", "stop", *path), value), setup)


def test_a_stop_whose_detail_is_no_text_is_told_without_it() -> None:
    setup, run = SAVED["stopped"]
    stop = load(changed(save(run), ("run", "stop", "detail"), {"a": 1}), setup).stop
    assert stop is not None
    assert str(stop).startswith("max_tool_errors; ")


@pytest.mark.parametrize("name", ["spent_s", "not_before_s"])
@pytest.mark.parametrize("seconds", [-1, -0.5, 1e12, 10**400], ids=range(4))
def test_a_time_that_no_run_can_spend_is_refused(name: str, seconds: float) -> None:
    setup, run = SAVED["rich"]
    text = changed(save(run), ("run", name), {"$int": hex(seconds)} if isinstance(seconds, int) else seconds)
    with pytest.raises(SavedRunError, match=f"run/{name}: .* seconds are no time"):
        load(text, setup)


def test_a_tool_that_the_run_waits_for_must_be_there() -> None:
    setup, run = SAVED["rich"]
    others = Toolset([a_tool(name) for name in NAMES if name != "note"])
    with pytest.raises(SavedRunError, match="waits for the tool 'note', which is not among look, fetch"):
        load(save(run), attrs.evolve(setup, box=others))
    with pytest.raises(SavedRunError, match="which is not among no tools"):
        load(save(run), attrs.evolve(setup, box=Toolset(), limits=off()))


def test_a_tool_that_nobody_waits_for_need_not_be_there() -> None:
    setup, run = SAVED["stopped"]
    assert load(save(run), attrs.evolve(setup, box=Toolset(), limits=off())) == run


@pytest.mark.parametrize(
    "table",
    [
        AGENT.allowing({"gather": ["look"]}),
        attrs.evolve(AGENT, name="other"),
        Table(
            "gather", "gather", [State("gather", work="gather"), State("final", work="answer")],
            [Row("gather", outcome, "final") for outcome in ("called", "failed", "no_progress", "proposed", "stopped")],
        ),
    ],
)  # fmt: skip
def test_a_run_of_another_machine_is_refused(table: Table) -> None:
    _, run = SAVED["rich"]
    with pytest.raises(SavedRunError, match="so its states, rows, guards or allowed tools differ; load it with the machine"):
        load(save(run), a_setup(table=table))


def test_a_run_is_taken_by_another_engine_of_the_same_machine() -> None:
    _, run = SAVED["rich"]
    assert load(save(run), a_setup(box=the_tools(), limits=off(max_turns=1))) == run


@pytest.mark.parametrize("text", [None, 5, b"{}", {}, [], object(), bytearray(b"{}"), memoryview(b"{}")], ids=lambda t: type(t).__name__)
def test_what_is_no_text_is_no_saved_run(text: Any) -> None:
    with pytest.raises(SavedRunError, match="a saved value is a text"):
        load(text, SAVED["rich"][0])


@pytest.mark.parametrize(
    "text",
    ["", " ", "{", "null", "1", '"x"', "[]", "{}", "NaN", "{}{}", '{"format": 1}', "\ud835", "\x00", '{"a": 1, "a": 2}', "1" * 9999],
)
def test_a_text_that_is_no_saved_run_says_so(text: str) -> None:
    with pytest.raises(SavedRunError):
        load(text, SAVED["rich"][0])


@pytest.mark.parametrize("depth", [300, 1_000, 100_000])
@pytest.mark.parametrize("opening", ["[", '{"a":', '{"$tuple":['])
def test_a_text_that_nests_too_deep_says_so(depth: int, opening: str) -> None:
    setup, run = SAVED["rich"]
    for text in (opening * depth, save(run).replace('"given":"x"', f'"given":{opening * depth}1{"]}" * depth}')):
        with pytest.raises(SavedRunError):
            load(text, setup)


@pytest.mark.parametrize("name", SAVED)
def test_a_text_that_was_cut_off_is_refused(name: str) -> None:
    setup, run = SAVED[name]
    text = save(run)
    for length in range(0, len(text), 17):
        with pytest.raises(SavedRunError):
            load(text[:length], setup)


def test_a_text_with_a_letter_changed_is_a_run_or_says_why() -> None:
    setup, run = SAVED["rich"]
    text = save(run)
    drawn = random.Random(7)
    for _ in range(1_500):
        place = drawn.randrange(len(text))
        again = text[:place] + drawn.choice('{}[]",:0x\\\ud835') + text[place + drawn.randrange(2) :]
        try:
            assert isinstance(load(again, setup), Run)
        except SavedRunError:
            continue


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=4) | st.sampled_from(["format", "run"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=150)
@given(json_values, st.data())
def test_any_json_is_no_saved_run_nor_is_one_with_any_json_within(value: Any, data: st.DataObject) -> None:
    setup, run = SAVED["rich"]
    with pytest.raises(SavedRunError):
        load(json.dumps(value), setup)
    text = save(run)
    path = data.draw(st.sampled_from(one_of_each(text)))
    try:
        assert isinstance(load(changed(text, path, value), setup), Run)
    except SavedRunError as error:
        assert str(error)  # noqa: PT017


@given(st.binary(max_size=60), st.text(st.characters(exclude_categories=()), max_size=60))
def test_random_bytes_and_texts_are_no_saved_runs(blob: bytes, text: str) -> None:
    for odd in (blob, text, blob.decode("latin-1")):
        with pytest.raises(SavedRunError):
            load(odd, SAVED["rich"][0])


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        (("held",), 0, "run/held: 1 calls of run 'run' wait to begin, and the text says 0"),
        (("held",), 2, "run/held: 1 calls of run 'run' wait to begin, and the text says 2"),
        (("open_calls", 2, "awaits"), "", "run/held: 0 calls of run 'run' wait to begin, and the text says 1"),
        (("open_calls", 2, "awaits"), "weather", "run/open_calls/2/awaits: 'weather' is nothing that a call waits for"),
        (("open_calls", 2, "ok"), True, "run/held: 0 calls"),
    ],
)
def test_no_text_lets_a_call_begin_that_waits_for_somebody(path: tuple[Any, ...], value: Any, why: str) -> None:
    setup, run = SAVED["held"]
    with pytest.raises(SavedRunError, match=why):
        load(changed(save(run), ("run", *path), value), setup)


def test_a_run_that_waits_for_nobody_is_not_paused() -> None:
    setup, run = SAVED["rich"]
    with pytest.raises(SavedRunError, match="run/held: 0 calls of run 'run' wait to begin"):
        load(changed(save(run), ("run", "paused"), True), setup)


@pytest.mark.parametrize("event", [Denied("c1", 5), Skipped("c1", ["why"])], ids=["denied", "skipped"])  # type: ignore[arg-type]
def test_what_people_and_hooks_give_for_a_reason_is_kept_as_they_said_it(event: Any) -> None:
    engine = an_engine(checks=isinstance(event, Skipped))
    run = engine.start("x")
    engine.tell(run, Decided(Decision(calls=(ToolCall("pay", {}, "c1"),))))
    engine.tell(run, event)
    assert load(save(run), engine.setup) == run


def test_a_closed_guard_without_a_reason_is_refused() -> None:
    setup, run = SAVED["stopped"]
    with pytest.raises(SavedRunError, match="run/stop/closed/0/reason: expected StopReason, got None"):
        load(changed(save(run), ("run", "stop", "closed", 0, "reason"), None), setup)
    assert isinstance(run.closed[0], ClosedGuard)
    assert run.closed[0].reason is StopReason.MAX_TOOL_ERRORS


def test_a_call_that_the_contract_of_its_tool_here_does_not_take_is_not_taken_up() -> None:
    paid: list[int] = []

    def of(most: int) -> Agent:
        args = {"n": {"type": "int", "max": most}}
        pay = {"fn": lambda n: paid.append(n), "args": args, "approval": True}
        return Agent({"pay": pay}, ScriptedDecider([ToolCall("pay", {"n": 100}, "c"), "done"]), clock=ScriptedClock())

    before, now = of(1000), of(10)
    run = before.start("x")
    before.drive(run)
    text = before.save(run)

    with pytest.raises(SavedRunError, match=r"run/open_calls/0/args: the contract that 'pay' has here does not take them \(range:n\)"):
        now.load(text)
    run = before.load(text)
    before.approve(run, "c")
    before.drive(run)
    assert paid == [100]
