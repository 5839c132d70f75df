"""Laws of every run: it ends, keeps its budgets, answers every call once, runs nothing that its state forbids, and is the same again."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from strategies import (
    HELD,
    MOST_STEPS,
    NAMES,
    REPAIRS,
    Answers,
    World,
    accepted,
    alike,
    an_engine,
    hit,
    limits,
    machines,
    noted,
    off,
    play,
    policies,
    reached,
    step,
    the_tools,
    ways,
    worlds,
)

from fsm_agent.agent import Agent
from fsm_agent.core.agent_table import AGENT
from fsm_agent.core.answers import answer_of
from fsm_agent.core.autogpt_table import AUTOGPT
from fsm_agent.core.effects import CallTools, Decide, Effect, Judge, Wait
from fsm_agent.core.engine import Engine
from fsm_agent.core.events import (
    CallEvent,
    Composed,
    ComposeFailed,
    Decided,
    DecisionFailed,
    Judged,
    Raised,
    Returned,
    Started,
)
from fsm_agent.core.guards import attempts_left, has_repair, turns_left
from fsm_agent.core.limits import Limits
from fsm_agent.core.run import Call, Run
from fsm_agent.core.saving import load, save
from fsm_agent.core.strategies import max_iterations
from fsm_agent.core.table import KINDS, Row, State, Table
from fsm_agent.core.tools import BreakerPolicy, Outcome, Retry
from fsm_agent.core.values import (
    Decision,
    EffectClass,
    Judgement,
    Policy,
    ResultClass,
    StopReason,
    ToolCall,
    Usage,
    Verdict,
)
from fsm_agent.host.hooks import HookCall, HookContext, Hooks, Skip
from fsm_agent.host.model import ModelFailed
from fsm_agent.lab.tables import DESK, NAIVE
from fsm_agent.testing import ScriptedClock, ScriptedDecider


def bounded(bounds: Limits) -> Limits:
    """Limits under which every machine drawn here may be built."""
    return attrs.evolve(bounds, max_attempts=bounds.max_attempts or 3)


@attrs.frozen
class Asked:
    """One thing that a run asked for, and what it had spent then."""

    effect: Effect
    state: str
    calls: tuple[tuple[str, str, bool], ...]
    spent_s: float
    turns: int
    emitted: int
    tokens: int
    cost: float


def watched(engine: Engine, run: Run, answers: Answers) -> list[Asked]:
    """Play a run to its end and note all that it asked for."""
    asked: list[Asked] = []
    while (effect := engine.ask(run)) is not None:
        calls = tuple((call.id, call.tool, call.started) for call in effect.calls) if isinstance(effect, CallTools) else ()
        asked.append(Asked(effect, run.state, calls, run.spent_s, *_recounted(run)))
        assert len(asked) < MOST_STEPS
        step(engine, run, answers)
    return asked


def _recounted(run: Run) -> tuple[int, int, int, float]:
    """Turns, calls emitted, tokens and money, counted from what the run was told."""
    decisions = [told.decision for _, told in run.journal if isinstance(told, Decided)]
    kinds = (Decided, DecisionFailed, Composed, ComposeFailed)
    usages = [decision.usage or Usage() for decision in decisions]
    return (
        sum(isinstance(told, kinds) for _, told in run.journal),
        sum(len(decision.calls) for decision in decisions),
        sum(usage.input_tokens + usage.output_tokens for usage in usages),
        sum(usage.cost for usage in usages),
    )


def asked_for(call: Call) -> tuple[str, tuple[tuple[str, Any], ...]]:
    """A call as it was when the gate let it in, before a person gave it other arguments."""
    return call.tool, tuple(sorted((call.args if call.edited is None else call.edited).items()))


def may_be_tried_again(call: Call) -> bool:
    """Whether a call's result asked for another try, which is no repetition of it (seed 002)."""
    return call.result_class in ("RETRYABLE", "RATE_LIMITED")


def admitted(run: Run) -> list[tuple[str, str]]:
    return [(subject, detail) for kind, _, subject, detail in run.trace if kind == "call_admitted"]


def played(world: World, bounds: Limits, policy: Policy, way: Mapping[str, Any], **parts: Any) -> tuple[Engine, Run, list[Asked]]:
    engine = an_engine(**{"policy": policy, "verifies": True, "repairs": REPAIRS, **way, **parts})
    run = engine.start("x", limits=bounded(bounds))
    asked = watched(engine, run, world.answers())
    event(f"ended by {run.stop.reason.value}" if run.stop else "goes on")
    return engine, run, asked


# ---- every run ends


@settings(max_examples=250)
@given(machines(), worlds, limits, policies, st.booleans(), st.booleans())
def test_a_machine_that_passes_the_checks_ends_whatever_happens(
    table: Table, world: World, bounds: Limits, policy: Policy, verifies: bool, composes: bool
) -> None:
    table, bounds = reached(table), bounded(bounds)
    if not accepted(table, bounds):
        event("refused")
        return
    engine = an_engine(
        table=table, work=noted(table), limits=bounds, policy=policy, verifies=verifies, composes=composes, repairs=REPAIRS
    )
    run = play(engine, engine.start("x"), world.answers())
    event(f"ended by {run.stop.reason.value}" if run.stop else "goes on")
    answer = answer_of(run)
    assert answer is not None
    assert answer.text.strip()
    assert run.state in engine.setup.finals
    assert all(call.ok is not None for call in run.calls)
    assert not run.open_calls


def _rows(name: str, kind: str, **special: Sequence[tuple[Any, ...]]) -> list[Row]:
    """The rows of a state: the special ones of an outcome, and a last one to the end where all of those are guarded."""
    made: list[Row] = []
    for outcome in KINDS[kind].outcomes:
        rows = special.get(outcome, ())
        made += [Row(name, outcome, *row) for row in rows]
        if not rows or len(rows[-1]) > 1:
            made.append(Row(name, outcome, "end"))
    return made


VERIFYING = Table(
    "verifying",
    "gather",
    (State("gather", work="gather", tools=None), State("check", work="verify"), State("end", work="answer")),
    [
        *_rows("gather", "gather", called=[("check", (turns_left,))], proposed=[("check", (turns_left,))]),
        *_rows("check", "verify", insufficient=[("gather",)]),
    ],
)
FAILING = Table(
    "failing",
    "pick",
    (
        State("pick", work="decide"),
        State("fetch", work="call", tools=None),
        State("mend", work="repair"),
        State("check", work="verify"),
        State("end", work="answer"),
    ),
    [
        *_rows("pick", "decide", decided=[("fetch",)]),
        *_rows(
            "fetch", "call",
            called=[("pick", (turns_left,))],
            failed=[("mend", (has_repair, turns_left)), ("check", (attempts_left, turns_left))],
        ),
        *_rows("mend", "repair"),
        *_rows("check", "verify", insufficient=[("fetch",)]),
    ],
)  # fmt: skip

HOLDING = Table(
    "holding",
    "pick",
    (
        State("pick", work="decide"),
        State("fetch", work="call", tools=None),
        State("mend", work="repair"),
        State("end", work="answer"),
    ),
    [
        *_rows("pick", "decide", decided=[("fetch",)]),
        *_rows(
            "fetch", "call",
            called=[("pick", (turns_left,))],
            no_progress=[("mend",)],
            failed=[("fetch", (has_repair, attempts_left, turns_left))],
        ),
        *_rows("mend", "repair"),
    ],
)  # fmt: skip

STOPPING = Table(
    "stopping",
    "pick",
    (State("pick", work="decide"), State("check", work="verify"), State("end", work="answer")),
    [
        *_rows("pick", "decide", proposed=[("check",)], stopped=[("check",)]),
        *_rows("check", "verify", insufficient=[("pick", (turns_left,))]),
    ],
)


WRITING = Table(
    "writing",
    "gather",
    (
        State("gather", work="gather", tools=None),
        State("write", work="synthesize"),
        State("check", work="verify"),
        State("end", work="answer"),
    ),
    [
        *_rows("gather", "gather", called=[("write", (turns_left,))]),
        *_rows("write", "synthesize", written=[("check",)]),
        *_rows("check", "verify", insufficient=[("gather",)]),
    ],
)


def _next(run: Run) -> Judged:
    return Judged(Judgement(decision="need_more", next_action=ToolCall("look", {"q": f"{run.verify_rounds}"})))


BODIES: dict[str, Callable[[Run, Call], CallEvent]] = {
    "finds": hit,
    "fails": lambda run, call: Raised(call.id, "OSError"),
    "gets nowhere": lambda run, call: Returned(call.id, run.body_runs, Verdict(result_class=ResultClass.NO_PROGRESS)),
}


ROUND = [(table, body) for table in (VERIFYING, FAILING, HOLDING, STOPPING, WRITING, AGENT, AUTOGPT, DESK, NAIVE) for body in BODIES]


@pytest.mark.parametrize(
    ("table", "body"),
    [
        pytest.param(table, body, id=f"{table.name}, {body}") for table, body in ROUND
    ],
)
def test_no_way_round_that_spends_nothing_passes_the_checks(table: Table, body: str) -> None:
    """A verifier's next actions spend no turns, nor does a turn without a budget; a repair that is not made is no attempt."""
    for bounds in (Limits.off(max_turns=3, max_attempts=3), Limits.off(max_turns=3, max_attempts=3, max_tokens=0, min_evidence=1)):
        if not accepted(table, bounds):
            continue
        mend = {"raised:OSError": ("other", lambda tool, args, run: ("look", {"q": "other"}))}
        for composes in (True, False):
            engine = an_engine(table=table, work=noted(table), limits=bounds, verifies=True, composes=composes, repairs=mend)
            play(engine, engine.start("x"), Answers(judge=_next, body=BODIES[body]))


# ---- budgets, counted again from the trace and the journal


@settings(max_examples=80)
@given(worlds, limits, policies, ways)
def test_no_turn_begins_without_a_budget_for_it(world: World, bounds: Limits, policy: Policy, way: Mapping[str, Any]) -> None:
    _, run, asked = played(world, bounds, policy, way)
    until = run.limits.work_until_s
    for one in asked:
        if isinstance(one.effect, Decide):
            assert run.limits.max_turns is None or one.turns < run.limits.max_turns
            assert run.limits.max_tokens is None or one.tokens < run.limits.max_tokens
            assert run.limits.max_cost is None or one.cost < run.limits.max_cost
            assert until is None or one.spent_s < until
            first = one is asked[0]
            assert first or run.limits.stop_after_tool_calls is None or one.emitted < run.limits.stop_after_tool_calls
    turns, emitted, tokens, cost = _recounted(run)
    assert (run.turns, run.emitted_calls, run.tokens) == (turns, emitted, tokens)
    assert run.cost == pytest.approx(cost)
    assert run.limits.max_turns is None or turns <= run.limits.max_turns


@settings(max_examples=80)
@given(worlds, limits, policies, ways)
def test_no_call_is_admitted_without_a_budget_for_it(world: World, bounds: Limits, policy: Policy, way: Mapping[str, Any]) -> None:
    _, run, asked = played(world, bounds, policy, way)
    own = run.limits
    through = admitted(run)
    assert own.max_tool_calls is None or len(through) <= own.max_tool_calls
    for tool, count in Counter(tool for _, tool in through).items():
        most = own.for_tool(tool)
        assert most is None or count <= most
    assert run.tool_calls == len(through)
    assert dict(run.tool_counts) == dict(Counter(tool for _, tool in through))
    if own.max_calls_per_turn is not None and not run.fixes:
        assert max(map(len, _batches(run))) <= own.max_calls_per_turn
    until = own.work_until_s
    for one in asked:
        assert until is None or one.spent_s < until or all(started for _, _, started in one.calls)


def _batches(run: Run) -> list[set[str]]:
    """The ids of the calls admitted in each turn; what a verifier asks for is a turn of its own."""
    batches: list[set[str]] = [set()]
    for kind, _, subject, _ in run.trace:
        if kind in ("decision", "judged"):
            batches.append(set())
        elif kind == "call_admitted":
            batches[-1].add(subject)
    return batches


def test_a_repaired_call_takes_a_place_in_its_turn() -> None:
    engine = an_engine(limits=off(max_calls_per_turn=2), repairs=REPAIRS)
    run = engine.start("x")
    wanted = (ToolCall("look", {}, "c1"), ToolCall("look", {"n": 9}, "c2"), ToolCall("poll", {}, "c3"))
    engine.tell(run, Decided(Decision(calls=wanted)))
    engine.tell(run, Returned("c1", 1))
    engine.tell(run, Returned("c3", 3))
    assert [call.error for call in run.calls] == ["", "skipped:max_calls_per_turn", ""]


@settings(max_examples=80)
@given(worlds, limits, policies, ways)
def test_no_call_is_admitted_more_often_than_the_policy_lets_it_be_repeated(
    world: World, bounds: Limits, policy: Policy, way: Mapping[str, Any]
) -> None:
    _, run, _ = played(world, attrs.evolve(bounds, dedup_window=None), policy, way)
    if run.limits.max_same_call is None:
        return
    most = 1 if policy.duplicates == "first" else run.limits.max_same_call
    made = Counter(asked_for(call) for call in run.calls if call.admitted and call.tool != "poll" and not may_be_tried_again(call))
    assert max(made.values(), default=0) <= most


@settings(max_examples=60)
@given(worlds, limits, policies, ways, st.integers(1, 4))
def test_no_call_is_admitted_again_within_the_window(
    world: World, bounds: Limits, policy: Policy, way: Mapping[str, Any], window: int
) -> None:
    """Calls are told apart by what they became, so repaired ones, which were others when they were admitted, are left out."""
    engine = an_engine(policy=policy, **way)
    run = play(engine, engine.start("x", limits=attrs.evolve(bounded(bounds), dedup_window=window, max_same_call=None)), world.answers())
    made = {call.id: call for call in run.calls if call.admitted}
    order = [made[call_id] for call_id, _ in admitted(run)]
    for number, call in enumerate(order):
        before = [asked_for(one) for one in order[max(0, number - window) : number] if not may_be_tried_again(one)]
        assert call.tool == "poll" or asked_for(call) not in before


@settings(max_examples=80)
@given(worlds, limits, policies, ways)
def test_no_state_is_entered_again_without_a_step_for_it(world: World, bounds: Limits, policy: Policy, way: Mapping[str, Any]) -> None:
    _, run, _ = played(world, bounds, policy, way)
    entered = [subject for kind, _, subject, _ in run.trace if kind == "state_entered"]
    most = run.limits.max_steps
    for number, state in enumerate(entered):
        if state in ("gather", "plan", "fetch") and state in entered[:number]:
            assert most is None or number < most
    assert most is None or len(entered) <= most + 3


@settings(max_examples=80)
@given(worlds, limits, policies, ways)
def test_rounds_tries_waits_and_faults_keep_their_figures(world: World, bounds: Limits, policy: Policy, way: Mapping[str, Any]) -> None:
    _, run, asked = played(world, bounds, policy, way)
    own = run.limits
    judged = sum(isinstance(one.effect, Judge) for one in asked)
    assert own.max_verify_rounds is None or judged <= own.max_verify_rounds
    waits = sum(detail for kind, _, _, detail in run.trace if kind == "waiting")
    assert run.waited_s == pytest.approx(waits)
    assert own.max_wait_s is None or waits <= own.max_wait_s + 1e-6
    assert own.max_attempts is None or max((call.tries for call in run.calls), default=0) <= own.max_attempts
    in_a_row = longest = 0
    for kind, *_ in run.trace:
        in_a_row = in_a_row + 1 if kind == "malformed" else 0 if kind == "call_admitted" else in_a_row
        longest = max(longest, in_a_row)
    most = own.max_invalid_decisions
    assert most is None or run.invalid_decisions <= most + 1


# ---- calls


@settings(max_examples=80)
@given(worlds, limits, policies, ways)
def test_every_call_has_exactly_one_result(world: World, bounds: Limits, policy: Policy, way: Mapping[str, Any]) -> None:
    _, run, _ = played(world, bounds, policy, way)
    ids = [call.id for call in run.calls]
    assert len(ids) == len(set(ids))
    assert not run.open_calls
    wanted = sum(len(told.decision.calls) for _, told in run.journal if isinstance(told, Decided))
    actions = sum(
        told.judgement.decision != "done" and told.judgement.next_action is not None
        for _, told in run.journal
        if isinstance(told, Judged)
    )
    assert len(ids) == wanted + actions
    assert {call_id for call_id, _ in admitted(run)} <= set(ids)
    for call in run.calls:
        assert (call.ok, bool(call.error)) in ((True, False), (False, True))
        assert call.ok or call.value is None or call.error.startswith("skipped:")


@settings(max_examples=80)
@given(worlds, limits, policies, ways, st.none() | st.lists(st.sampled_from([*NAMES, *HELD]), max_size=4))
def test_no_tool_outside_the_set_of_its_state_ever_runs(
    world: World, bounds: Limits, policy: Policy, way: Mapping[str, Any], allowed: Sequence[str] | None
) -> None:
    table = way["table"]
    _, run, asked = played(world, bounds, policy, way, table=table.allowing({_gathering(table): allowed}))
    may = {*NAMES, *HELD} if allowed is None else set(allowed)
    assert {tool for one in asked for _, tool, _ in one.calls} <= may
    assert {tool for _, tool in admitted(run)} <= may
    for one in asked:
        if isinstance(one.effect, Decide):
            assert set(one.effect.tools) <= (may if one.state == _gathering(table) else set())
        assert one.state == _gathering(table) or not one.calls


def _gathering(table: Table) -> str:
    return next(state.name for state in table.states if state.work == "gather")


@settings(max_examples=80)
@given(worlds, limits, policies, ways)
def test_bodies_run_beside_each_other_and_again_only_where_their_contracts_let_them(
    world: World, bounds: Limits, policy: Policy, way: Mapping[str, Any]
) -> None:
    _, run, asked = played(world, bounds, policy, way)
    box = the_tools()
    for one in asked:
        tools = [box.get(tool) for _, tool, _ in one.calls]
        assert len(tools) == 1 or all(tool is not None and tool.effect is EffectClass.PURE for tool in tools)
        assert run.limits.max_parallel is None or len(tools) <= run.limits.max_parallel
        assert sum(tool is not None and tool.exclusive for tool in tools) <= 1
    begun = Counter(call_id for _, told in run.journal if isinstance(told, Started) for call_id in told.call_ids)
    for call in run.calls:
        tool = box.get(call.tool)
        if tool is not None and not call.tried_repairs:
            assert begun[call.id] <= (tool.retry.attempts if tool.where == "host" else 0)


# ---- the same run again


@settings(max_examples=40)
@given(machines(), worlds, limits, policies, ways, st.integers(0, 40))
def test_saving_and_loading_between_steps_changes_no_run_of_any_machine(
    table: Table, world: World, bounds: Limits, policy: Policy, way: Mapping[str, Any], every: int
) -> None:
    table, bounds = reached(table), bounded(bounds)
    if not accepted(table, bounds):
        return
    way = {**way, "table": table, "work": noted(table), "limits": bounds}
    engine = an_engine(policy=policy, verifies=True, repairs=REPAIRS, **way)
    answers = world.answers()
    run = play(engine, engine.start("x"), answers)
    other, number = engine.start("x"), 0
    while step(engine, other, answers):
        if number % (every + 1) == 0:
            other = load(save(other), engine.setup)
        number += 1
    assert alike(other, run)


# ---- claims of what a row spends


def _broken_claims(
    table: Table, seen: Sequence[tuple[Row, dict[str, int]]], too_much: Callable[[Row], set[str]] = lambda row: set()
) -> set[tuple[str, str]]:
    """The claims of rows that did not hold between two walks, as (row, counter), those known to be too much left out."""
    last: dict[str, dict[str, int]] = {}
    broken: set[tuple[str, str]] = set()
    for row, counters in seen:
        claims = {"steps", *row.spends, *table.kinds[table.state(row.source).work].outcomes.get(row.outcome, ())}
        before = last.get(str(row))
        if before is not None:
            broken |= {(str(row), name) for name in claims - too_much(row) if not _rose(name, before, counters)}
        last[str(row)] = counters
    return broken


def _rose(name: str, before: dict[str, int], after: dict[str, int]) -> bool:
    if name != "attempts":
        return after[name] > before[name]
    # Attempts are those of the call that has had most of them, so the others may catch up first; they begin anew in a turn.
    return after["turns"] > before["turns"] or after["tries"] > before["tries"]


def _walks(table: Table, world: World, bounds: Limits, policy: Policy) -> list[tuple[Row, dict[str, int]]]:
    """Every row that a run walks, in order, with what it had spent then."""
    seen: list[tuple[Row, dict[str, int]]] = []
    engine = an_engine(table=table, work=noted(table, seen), limits=bounds, policy=policy, verifies=True, repairs=REPAIRS)
    play(engine, engine.start("x"), world.answers())
    return seen


@pytest.mark.parametrize("table", [AGENT, AUTOGPT], ids=lambda table: table.name)
@settings(max_examples=80)
@given(worlds, limits, policies)
def test_the_rows_of_our_machines_spend_what_they_claim(table: Table, world: World, bounds: Limits, policy: Policy) -> None:
    assert _broken_claims(table, _walks(table, world, bounded(bounds), policy), lambda row: _known(table, row)) == set()


def _known(table: Table, row: Row) -> set[str]:
    """What a kind claims and does not keep; the tests that expect a failure above say so of each."""
    kind = table.state(row.source).work
    return {("gather", "called"): {"turns"}, ("gather", "no_progress"): {"turns"}, ("call", "failed"): {"attempts"}}.get(
        (kind, row.outcome), set()
    ) - set(row.spends)


@settings(max_examples=80)
@given(machines(), worlds, limits, policies)
def test_the_rows_of_any_machine_spend_what_their_kinds_claim(
    table: Table, world: World, bounds: Limits, policy: Policy
) -> None:
    table, bounds = reached(table), bounded(bounds)
    if accepted(table, bounds):
        assert _broken_claims(table, _walks(table, world, bounds, policy), lambda row: _known(table, row)) == set()


@pytest.mark.parametrize("body", BODIES)
def test_the_rows_spend_what_they_claim_when_a_verifier_names_next_actions(body: str) -> None:
    seen: list[tuple[Row, dict[str, int]]] = []
    engine = an_engine(work=noted(AGENT, seen), limits=off(max_verify_rounds=5), verifies=True)
    play(engine, engine.start("x"), Answers(decide=_once, judge=_next, body=BODIES[body]))
    assert _broken_claims(AGENT, seen) == set()


def _once(run: Run) -> Decided:
    return Decided(Decision(text="it is so")) if run.turns else Decided(Decision(calls=(ToolCall("look", {"q": "first"}),)))


# ---- drivers and threads


def _classified(outcome: Outcome) -> Verdict | None:
    return Verdict(result_class=ResultClass.RETRYABLE, retry_after_s=0.5) if outcome.error == "ConnectionError" else None


def _body(q: str = "") -> Any:
    if q in ("ValueError", "KeyError", "ConnectionError"):
        raise {"ValueError": ValueError, "KeyError": KeyError, "ConnectionError": ConnectionError}[q](q)
    return {"nothing": [], "odd": {1, 2}, "object": object()}.get(q, [f"hit for {q}"])


def _again(tool: str, args: Any) -> tuple[str, Any]:
    return tool, {"q": "mended"}


def an_agent(turns: Sequence[Any], **parts: Any) -> Agent:
    entry = {
        "fn": _body, "args": {"q": {"type": "str", "required": False}}, "breaker": None, "effect": "pure",
        "retry": Retry(attempts=2), "classify": _classified,
    }  # fmt: skip
    tools = {"look": entry, "send": {**entry, "effect": "idempotent"}}
    bounds = off(max_turns=6, max_tool_calls=8, max_parallel=1, max_tool_errors=4, max_same_call=2, max_wait_s=3.0)
    return Agent(
        tools, ScriptedDecider(turns, then="repeat-all"), **{"limits": bounds, "repairs": {"raised:KeyError": _again}, **parts},
        clock=ScriptedClock(),
    )  # fmt: skip


_words = st.sampled_from(["a", "b", "nothing", "odd", "object", "ValueError", "KeyError", "ConnectionError"])
_agent_calls = st.builds(
    lambda tool, q: ToolCall(tool, {"q": q} if q else {"z": 1}), st.sampled_from(["look", "send", "nowhere"]), _words | st.just("")
)
agent_turns = st.lists(
    st.one_of(
        st.lists(_agent_calls, min_size=1, max_size=3),
        st.lists(_agent_calls, min_size=1, max_size=3),
        st.sampled_from(["it is so", None, OSError("down"), 7]),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=40)
@given(agent_turns, st.lists(st.sampled_from([True, False, {"decision": "?"}]), min_size=1, max_size=2))
def test_both_drivers_give_the_same_trace_for_the_same_answers(turns: list[Any], judged: list[Any]) -> None:
    def verify(ask: Judge) -> Any:
        return judged[ask.run.verify_rounds % len(judged)]

    one = an_agent(turns, verify=verify).run("x", run_id="r", seed=1).run
    other = asyncio.run(an_agent(turns, verify=verify).arun("x", run_id="r", seed=1)).run
    assert one is not None
    assert other is not None
    assert one.trace == other.trace
    assert alike(one, other)


# What people do about the calls that wait, one after the other; a client answers whatever is said.
_people = st.lists(st.sampled_from(["approve", "approve", "deny", "edit", "message"]), min_size=1, max_size=4)
_held_calls = st.builds(
    lambda tool, q: ToolCall(tool, {"q": q}), st.sampled_from(["look", "pay", "maybe", "paste"]), st.sampled_from(["a", "b", "ValueError"])
)
_held_turns = st.lists(
    st.one_of(
        st.lists(_held_calls, min_size=1, max_size=3),
        st.lists(_held_calls, min_size=1, max_size=3),
        st.sampled_from(
            [Decision(text="it is so", finish="stop"), Decision(text='{"n": 1}'), None, ModelFailed("rate_limited", "slow", 1.0)]
        ),
    ),
    min_size=1,
    max_size=4,
)


def a_held_agent(turns: Sequence[Any], **parts: Any) -> Agent:
    """An agent whose tools wait for people and clients, whose hooks look at each call, and whose strategy says stop."""
    entry = {"fn": _body, "args": {"q": {"type": "str"}}, "breaker": None}
    tools = {
        "look": {**entry, "effect": "pure"},
        "pay": {**entry, "effect": "at_most_once", "approval": True},
        "maybe": {**entry, "effect": "idempotent", "approval": lambda q: q == "a"},
        "paste": {**entry, "effect": "pure", "where": "client"},
    }
    return Agent(
        tools, ScriptedDecider(turns, then="repeat-all"), clock=ScriptedClock(), **{"limits": off(max_turns=6, min_evidence=1), **parts}
    )


def spoken_with(agent: Agent, words: Sequence[str], drive: Callable[[Run], Any], loaded: bool = False) -> Run:
    """A run driven to its end; at each pause one person, chosen by the run's own count, says the next word."""
    run = agent.start("x", run_id="r", seed=1)
    for _ in range(MOST_STEPS):
        drive(run)
        if run.done:
            return run
        if loaded:
            run = agent.load(agent.save(run))
        at = len(run.journal)
        one, word = agent.pending(run)[at % len(agent.pending(run))], words[at % len(words)]
        if word == "message":
            agent.message(run, "something else")
        elif one.kind == "client":
            agent.deliver(run, one.call_id, ["pasted"])
        elif word == "deny":
            agent.deny(run, one.call_id, "no", token=one.token)
        else:
            agent.approve(run, one.call_id, {"q": "edited"} if word == "edit" else None, token=one.token)
    raise AssertionError(f"the run goes on: {run.path}")


@settings(max_examples=50)
@given(_held_turns, _people, st.sampled_from([AGENT, AUTOGPT]), st.integers(1, 6), st.booleans(), st.booleans())
def test_with_people_hooks_and_strategies_too_both_drivers_give_the_same_run_and_saving_it_at_each_pause_changes_nothing(
    turns: list[Any], words: list[str], table: Table, most: int, hooked: bool, typed: bool
) -> None:
    def before(context: HookContext, call: HookCall) -> Skip | None:
        return Skip(["skipped"]) if call.args.get("q") == "b" else None

    parts: dict[str, Any] = {"machine": table, "strategy": [max_iterations(most)], "answer": {"type": "object"} if typed else None}
    parts["hooks"] = Hooks(before_tool_call=before) if hooked else None
    agents = [a_held_agent(turns, **parts) for _ in range(3)]
    one = spoken_with(agents[0], words, agents[0].drive)
    others = [
        spoken_with(agents[1], words, lambda run: asyncio.run(agents[1].adrive(run))),
        spoken_with(agents[2], words, agents[2].drive, loaded=True),
    ]
    event(f"ended by {one.stop.reason.value}" if one.stop else "goes on")
    for other in others:
        assert other.trace == one.trace
        assert alike(other, one)
    assert agents[0].replay(one) == one
    answer = agents[0].answer(one)
    assert answer.text
    assert not (typed and answer.ok and answer.stop_reason is StopReason.ANSWERED) or isinstance(answer.value, dict)


def test_a_driver_gives_the_trace_that_its_events_give_again() -> None:
    agent = an_agent([[ToolCall("look", {"q": "a"}), ToolCall("send", {"q": "KeyError"})], "it is so"])
    run = agent.run("x", run_id="r").run
    assert run is not None
    assert agent.replay(run).trace == run.trace


def test_threads_over_one_agent_share_no_counter_and_give_equal_traces() -> None:
    turns = [
        [ToolCall("look", {"q": "a"}), ToolCall("look", {"q": "KeyError"}), ToolCall("look", {"z": 1})],
        Decision(calls=(ToolCall("send", {"q": "b"}),), usage=Usage(input_tokens=3, output_tokens=2, cost=0.1)),
        "it is so",
    ]
    agent = an_agent(turns)
    first = agent.run("x", run_id="r", seed=1).run
    assert first is not None
    assert (first.turns, first.tool_calls, first.body_runs, first.bad_arguments) == (3, 4, 4, 1)
    wanted, failed = save(first), []

    def work() -> None:
        for _ in range(200):
            run = agent.run("x", run_id="r", seed=1).run
            if run is None or save(run) != wanted:
                failed.append(run)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_what_is_shared_between_runs_is_the_hosts_and_only_that() -> None:
    """A breaker that one run opens is open for the next; the counters of that one begin at nothing."""
    entry = {
        "fn": _body, "args": {"q": {"type": "str"}}, "effect": "pure", "breaker": BreakerPolicy(failures=2, open_s=30.0),
    }  # fmt: skip
    agent = Agent(
        {"look": entry}, ScriptedDecider([ToolCall("look", {"q": "ValueError"})], then="repeat-last"),
        limits=off(max_turns=2), clock=ScriptedClock(),
    )  # fmt: skip
    one, other = (agent.run("x", run_id="r").run for _ in range(2))
    assert one is not None
    assert other is not None
    assert [call.error for call in one.calls] == ["raised:ValueError"] * 2
    assert [call.error for call in other.calls] == ["refused:circuit_open"] * 2
    assert (one.tool_errors, other.tool_errors, other.turns, other.body_runs) == (2, 0, 2, 0)
    assert one.stop is not None
    assert one.stop.reason is StopReason.MAX_TURNS


def test_a_wait_is_asked_for_with_what_is_left_of_it() -> None:
    engine = an_engine(limits=off(max_turns=3))
    run = engine.start("x")
    engine.tell(run, Decided(Decision(calls=(ToolCall("look", {}, "c1"),))), 2.0)
    engine.tell(run, Returned("c1", 1, Verdict(result_class=ResultClass.RATE_LIMITED, retry_after_s=3.0)), 4.0)
    effect = engine.ask(run)
    assert isinstance(effect, Wait)
    assert (effect.until_s, effect.seconds) == (7.0, 3.0)
