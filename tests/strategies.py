"""Scripted worlds that answer a run, and Hypothesis strategies for them: deciders, tools, verifiers, limits and machines.

Every answer depends on the run's own counts only, so a run that is loaded or rebuilt in the middle goes on alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import attrs
from hypothesis import strategies as st

from fsm_agent.core import guards
from fsm_agent.core.agent_table import AGENT
from fsm_agent.core.autogpt_table import AUTOGPT
from fsm_agent.core.checks import check_bounds, check_table
from fsm_agent.core.contracts import TableArguments, TableResult
from fsm_agent.core.effects import CallTools, Check, Compose, Decide, Effect, Judge, Pause, RunProgram, Wait
from fsm_agent.core.engine import Engine
from fsm_agent.core.errors import TableError
from fsm_agent.core.events import (
    Approved,
    CallEvent,
    Cancelled,
    Checked,
    CircuitOpen,
    Composed,
    ComposeFailed,
    Decided,
    DecisionFailed,
    Denied,
    Event,
    Judged,
    JudgeFailed,
    Paused,
    Raised,
    Returned,
    Reused,
    Skipped,
    Started,
    Stopped,
    Superseded,
    Waited,
)
from fsm_agent.core.guards import AllOf, Guard, Opaque
from fsm_agent.core.held_calls import APPROVAL, CLIENT
from fsm_agent.core.limits import Limits
from fsm_agent.core.run import Call, Run
from fsm_agent.core.setup import Setup, Work
from fsm_agent.core.table import KINDS, Row, State, Table
from fsm_agent.core.tools import Retry, Tool, Toolset
from fsm_agent.core.typed_answer import typed_answer
from fsm_agent.core.values import Decision, Judgement, Policy, ResultClass, ToolCall, Usage, Verdict
from fsm_agent.core.work import WORK

MOST_STEPS = 1_500


# ---- answering a run


def hit(run: Run, call: Call) -> CallEvent:
    """A body that finds something new each time."""
    return Returned(call.id, [f"hit {run.body_runs + 1}"])


def search(run: Run) -> Decided:
    """A decision that asks for something new each turn."""
    return Decided(Decision(calls=(ToolCall("look", {"q": f"v{run.turns}"}),)))


def passes(run: Run, call: Call) -> Checked:
    """A host that has nothing against a call, and asks a person where the tool says so."""
    return Checked(call.id, call.tool in ASKING)


def agrees(run: Run, call: Call) -> Event:
    """A person who lets every call run, or a client that finds something."""
    return Approved(call.id) if call.awaits == APPROVAL else Returned(call.id, [f"client hit {run.body_runs + 1}"])


@attrs.frozen(kw_only=True)
class Answers:
    """What answers each thing that a run asks for; `seconds` is how long the answer takes.

    `stop` is asked first: what it gives is told in place of an answer, as by a strategy or a host that cancels.
    """

    decide: Callable[[Run], Decided | DecisionFailed] = search
    body: Callable[[Run, Call], CallEvent] = hit
    judge: Callable[[Run], Judged | JudgeFailed] = lambda run: Judged(Judgement(decision="done"))
    close: Callable[[Run], Composed | ComposeFailed] = lambda run: Composed("closing")
    seconds: Callable[[Run], float] = lambda run: 0.0
    check: Callable[[Run, Call], Checked | Skipped] = passes
    people: Callable[[Run, Call], Event] = agrees
    stop: Callable[[Run], Event | None] = lambda run: None
    pick: Callable[[Run, list[Call]], Call] = lambda run, calls: calls[0]

    def to(self, effect: Effect) -> tuple[Event, float]:
        """The event that answers an effect, and the time that the run has then spent."""
        run, now = effect.run, effect.run.spent_s + self.seconds(effect.run)
        if (stop := self.stop(run)) is not None:
            return stop, now
        if isinstance(effect, Wait):
            return Waited(), effect.until_s
        if isinstance(effect, Decide):
            return self.decide(run), now
        if isinstance(effect, Check):
            return self.check(run, self.pick(run, effect.calls)), now
        if isinstance(effect, Pause):
            # A run spends nothing while people think.
            return (self.people(run, self.pick(run, effect.calls)) if run.paused else Paused()), run.spent_s
        if isinstance(effect, Judge):
            return self.judge(run), now
        if isinstance(effect, Compose):
            return self.close(run), now
        if isinstance(effect, RunProgram):
            return Returned(effect.call.id, ["ran"]), now
        assert isinstance(effect, CallTools)
        begun = [call for call in effect.calls if call.started]
        if not begun:
            return Started(tuple(call.id for call in effect.calls)), now
        return self.body(run, self.pick(run, begun)), now


def step(engine: Engine, run: Run, answers: Answers) -> bool:
    """Answer one thing that the run asks for; false when it asks for nothing."""
    effect = engine.ask(run)
    if effect is None:
        return False
    event, now = answers.to(effect)
    engine.tell(run, event, now)
    return True


def play(engine: Engine, run: Run, answers: Answers) -> Run:
    """Answer a run until it is over."""
    for _ in range(MOST_STEPS):
        if not step(engine, run, answers):
            return run
    raise AssertionError(f"the run goes on after {MOST_STEPS} answers: {run.path[-20:]}, {run.steps} steps, {run.turns} turns")


# ---- setups


def _never(**args: Any) -> None:
    raise AssertionError("no body runs here; the world answers in its place")


def _text(**more: Any) -> dict[str, Any]:
    return {"q": {"type": "str", "required": False}, "n": {"type": "int", "required": False, "min": 1, "max": 3}, **more}


def a_tool(name: str, **declared: Any) -> Tool:
    """A tool whose body never runs, with two optional arguments: q, a text, and n, from 1 to 3."""
    return Tool(**{"name": name, "fn": _never, "args": TableArguments(_text()), "effect": "pure", **declared})


def the_tools() -> Toolset:
    """One tool of each sort that the engine tells apart."""
    return Toolset(
        [
            a_tool("look"),
            a_tool("fetch", retry=Retry(attempts=3, backoff_s=0.5), source="archive"),
            a_tool("send", effect="at_most_once"),
            a_tool("note", effect="undeclared", retry=Retry(attempts=2, backoff_s=(0.0, 1.0))),
            a_tool("store", effect="idempotent", exclusive=True),
            a_tool("poll", polling=True),
            a_tool("list", constant=True, empty_ok=True),
            a_tool("count", returns=TableResult({"rows": {"type": "list", "max_len": 2}})),
            a_tool("pay", effect="at_most_once", approval=True),
            a_tool("ask", approval=True),
            a_tool("maybe", approval=lambda **args: True),
            a_tool("paste", where="client"),
            a_tool("sign", where="client", approval=True, effect="idempotent"),
            a_tool("pin", effect="undeclared", approval=True, secret=("q",)),
        ]
    )


NAMES = ("look", "fetch", "send", "note", "store", "poll", "list", "count")
# These wait for a person, a client or both before anything of their turn begins.
HELD = ("pay", "ask", "maybe", "paste", "sign", "pin")
ASKING = frozenset(HELD) - {"paste"}


def _smaller(tool: str, args: Any, run: Run) -> tuple[str, Any] | None:
    return tool, {**args, "n": 3}


def _elsewhere(tool: str, args: Any, run: Run) -> tuple[str, Any] | None:
    return None if tool == "look" else ("look", args)


REPAIRS = {"args:range:n": ("n", _smaller), "raised:ValueError": ("tool", _elsewhere), "result:too_big": ("tool", _elsewhere)}


def a_setup(**parts: Any) -> Setup:
    """The default machine over the tools above, with the closing turn on; any part may be given in another way."""
    return Setup(**{"table": AGENT, "box": the_tools(), "work": WORK, "composes": True, **parts})


def an_engine(**parts: Any) -> Engine:
    """An engine over `a_setup`."""
    return Engine(a_setup(**parts))


def off(**named: Any) -> Limits:
    """Every limit off but the named ones, and enough steps for any test to end."""
    return Limits.off(**{"max_steps": 200, **named})


# ---- worlds by Hypothesis


@attrs.frozen(kw_only=True)
class World:
    """Turns, outcomes of bodies, verdicts and waits in lists that are gone through again and again."""

    turns: list[tuple[Any, ...]]
    outcomes: list[tuple[Any, ...]]
    verdicts: list[tuple[Any, ...]]
    closing: tuple[Any, ...]
    seconds: list[float]
    checks: list[tuple[Any, ...]]
    people: list[tuple[Any, ...]]
    stop: tuple[int, Event] | None = None

    def answers(self) -> Answers:
        """The world as what answers a run."""
        return Answers(
            decide=lambda run: _decided(self.turns[run.turns % len(self.turns)], run),
            body=lambda run, call: _outcome(self.outcomes[len(run.journal) % len(self.outcomes)], call),
            judge=lambda run: _verdict(self.verdicts[run.verify_rounds % len(self.verdicts)]),
            check=lambda run, call: _checked(self.checks[len(run.journal) % len(self.checks)], call),
            people=lambda run, call: _word(self.people[len(run.journal) % len(self.people)], call),
            stop=lambda run: self.stop[1] if self.stop is not None and self.stop[0] == len(run.journal) else None,
            close=lambda run: Composed(self.closing[1]) if self.closing[0] == "text" else ComposeFailed("OSError", "no answer"),
            seconds=lambda run: self.seconds[len(run.journal) % len(self.seconds)],
            pick=lambda run, calls: calls[len(run.journal) % len(calls)],
        )


def _decided(turn: tuple[Any, ...], run: Run) -> Decided | DecisionFailed:
    what, *rest = turn
    if what in ("error", "malformed", "passing"):
        return DecisionFailed("ValueError", "no decision", what, *rest)
    if what == "calls":
        made = tuple(ToolCall(tool, _fresh(args, run), id, intent) for tool, args, id, intent in rest[0])
        return Decided(Decision(calls=made, text=rest[1], finish=rest[2], usage=rest[3]))
    return Decided(Decision(text=rest[0], question=rest[1], citations=rest[2], finish=rest[3]))


def _fresh(args: Any, run: Run) -> Any:
    return {**args, "q": f"v{run.turns}"} if isinstance(args, dict) and args.get("q") == "new" else args


def _outcome(outcome: tuple[Any, ...], call: Call) -> CallEvent:
    what, *rest = outcome
    if what == "return":
        return Returned(call.id, *rest)
    if what == "raise":
        return Raised(call.id, *rest)
    if what == "open":
        return CircuitOpen(call.id, *rest)
    return Reused(call.id, *rest) if what == "reuse" else Skipped(call.id, *rest)


def _verdict(verdict: tuple[Any, ...]) -> Judged | JudgeFailed:
    if verdict[0] == "raise":
        return JudgeFailed("ValueError", "no verdict")
    action = ToolCall(*verdict[1]) if verdict[1] else None
    return Judged(Judgement(decision=verdict[0], reason="because", next_action=action))


def _checked(check: tuple[Any, ...], call: Call) -> Checked | Skipped:
    if check[0] == "skip":
        return Skipped(call.id, *check[1:])
    return Checked(call.id, check[0] == "ask" or call.tool in ASKING)


def _word(word: tuple[Any, ...], call: Call) -> Event:
    """What a person says of a call that waits for one; of any other, what its client does."""
    what, *rest = word
    if what == "message":
        return Superseded(*rest)
    if call.awaits == CLIENT:
        return Raised(call.id, *rest) if what == "raise" else Returned(call.id, *rest) if what == "return" else Returned(call.id, [what])
    if what == "deny":
        return Denied(call.id, *rest)
    return Approved(call.id, *rest, True) if what == "edit" else Approved(call.id)


# Most of the time of a law goes into drawing, and it grows with the number of choices: what is finite is one choice.
arguments = st.sampled_from(
    [
        *[{"q": "new"}] * 7,
        *[{"q": q} for q in "aabbcc"],
        *[{"n": n} for n in range(-1, 6)],
        *[{}, None, "", '{"q": "a"}', "not json", 7, [1], {"z": 1}],
    ]
)
tool_calls = st.tuples(
    st.sampled_from([*NAMES, *NAMES, *HELD, "nowhere", ""]),
    arguments,
    st.sampled_from(["", "", "c1", "c2", "call-2", "verify-1"]),
    st.sampled_from(["", "find"]),
)
usages = st.none() | st.builds(Usage, input_tokens=st.integers(0, 50), output_tokens=st.integers(0, 50), cost=st.floats(0, 1))
_called = st.tuples(
    st.just("calls"),
    st.lists(tool_calls, min_size=1, max_size=4).map(tuple),
    st.sampled_from([None, None, "so far"]),
    st.sampled_from([*[""] * 12, "stop", "length", "content_filter"]),
    usages,
)
_final = st.tuples(
    st.just("final"),
    st.sampled_from(["done", '{"n": 1}', "done", None, " "]),
    st.sampled_from([None, None, None, "which one?"]),
    st.sampled_from([(), (), ("look",), ("nowhere",)]),
    st.sampled_from(["", "", "", "stop", "length"]),
)
_no_turn = st.sampled_from([("malformed",), ("malformed",), ("error",), ("passing",), ("passing", 3.0), ("passing", 90.0)])
# Of ten turns about eight ask for calls, so that runs come further than their first turn.
turns = st.sampled_from([_called] * 8 + [_final, _no_turn]).flatmap(lambda kind: kind)
values = st.sampled_from(
    [["hit"], ["hit"], ["other"], [], None, "", "text", {"found": False, "items": []}, {"rows": [1, 2, 3]}, {"rows": []}, 5, {1, 2}]
) | st.integers(0, 10**6)
result_classes = st.sampled_from([*[kind for kind in ResultClass if kind is not ResultClass.FATAL] * 2, ResultClass.FATAL])
verdicts_of_tools = st.builds(
    Verdict, result_class=result_classes, reason=st.sampled_from(["", "why"]), retry_after_s=st.sampled_from([None, 0.0, 1.0, 100.0])
)
outcomes = st.one_of(
    st.tuples(st.just("return"), values),
    st.tuples(st.just("return"), values, verdicts_of_tools),
    st.sampled_from([("raise", error, "broken") for error in ("ValueError", "TimeoutError", "KeyError")]),
    st.tuples(st.just("raise"), st.just("OSError"), st.just(""), verdicts_of_tools, st.booleans()),
    st.sampled_from([("open", 0.0), ("open", 5.0)]),
    st.tuples(st.just("reuse"), values),
    st.just(("reuse", None, "raised:ValueError")),
    st.just(("skip", "hook", None)),
)
verdicts = st.one_of(
    st.just(("done", None)),
    st.just(("need_more", None)),
    st.tuples(st.just("need_more"), st.tuples(st.sampled_from([*NAMES, *HELD]), arguments)),
    st.just(("raise",)),
)
checks = st.sampled_from([("pass",), ("pass",), ("ask",), ("skip", "hook", ["skipped"])])
people = st.one_of(
    st.sampled_from([("approve",), ("approve",), ("deny",), ("deny", "no money"), ("message", "never mind"), ("raise", "OSError", "gone")]),
    st.tuples(st.just("edit"), arguments),
    st.tuples(st.just("return"), values),
    st.tuples(st.just("return"), values, verdicts_of_tools),
)
stops = st.sampled_from([Stopped("strategy", "enough"), Stopped("finish_reason", "tool_calls"), Cancelled("deploy")])
worlds = st.builds(
    World,
    turns=st.lists(turns, min_size=1, max_size=6),
    outcomes=st.lists(outcomes, min_size=1, max_size=6),
    verdicts=st.lists(verdicts, min_size=1, max_size=3),
    closing=st.sampled_from([("text", "closing"), ("text", '{"n": 2}'), ("text", " "), ("fail",)]),
    seconds=st.lists(st.sampled_from([0.0, 0.0, 0.0, 0.1, 2.0]), min_size=1, max_size=3),
    checks=st.lists(checks, min_size=1, max_size=3),
    people=st.lists(people, min_size=1, max_size=4),
    stop=st.none() | st.none() | st.none() | st.tuples(st.integers(0, 15), stops),
)


# ---- limits and policies


def _maybe(low: int, high: int) -> st.SearchStrategy[int | None]:
    """None as often as a number from the lower to the higher."""
    numbers = range(low, high + 1)
    return st.sampled_from([*[None] * len(numbers), *numbers])


limits = st.builds(
    Limits,
    max_steps=st.integers(1, 40),
    max_turns=_maybe(0, 8),
    max_tool_calls=_maybe(0, 12),
    max_same_tool_calls=st.none() | st.integers(0, 5) | st.dictionaries(st.sampled_from(NAMES), _maybe(0, 3), max_size=2),
    max_calls_per_turn=_maybe(0, 3),
    stop_after_tool_calls=_maybe(0, 12),
    max_same_call=_maybe(1, 3),
    max_same_observation=_maybe(1, 4),
    max_stale_turns=_maybe(1, 4),
    max_empty_results=_maybe(1, 3),
    max_tool_errors=_maybe(1, 5),
    max_bad_arguments=_maybe(1, 5),
    max_attempts=_maybe(1, 4),
    max_verify_rounds=_maybe(1, 4),
    max_invalid_decisions=_maybe(0, 2),
    max_parallel=_maybe(1, 3),
    max_tokens=st.none() | st.none() | st.integers(0, 500),
    max_cost=st.none() | st.none() | st.floats(0, 9),
    deadline_s=st.none() | st.none() | st.floats(0, 60),
    reserve_s=st.none() | st.floats(0, 3),
    max_wait_s=st.none() | st.floats(0, 10),
    dedup_window=_maybe(1, 4),
    min_evidence=_maybe(0, 2),
)
policies = st.builds(
    Policy,
    duplicates=st.sampled_from(["stop", "refuse", "error", "first"]),
    reserve_answer=st.booleans(),
    redecide=st.booleans(),
    on_finish=st.sampled_from([{}, {"length": "continue", "content_filter": "continue"}, {"empty": "end"}]),
    on_denied=st.sampled_from(["continue", "continue", "stop"]),
    model_attempts=st.integers(1, 3),
)
# How the engine may be built around a world: which machine, whether the host looks at each call, what form the answer has.
ways = st.fixed_dictionaries(
    {
        "table": st.sampled_from([AGENT, AGENT, AUTOGPT]),
        "checks": st.booleans(),
        "answer": st.sampled_from(
            [None, None, typed_answer({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})]
        ),
    }
)


# ---- machines

GUARDS: Mapping[str, Guard] = {
    name: guard for name, guard in vars(guards).items() if isinstance(guard, guards.Spending | Opaque | AllOf)
}
_BOUNDING = ("steps_left", "within_limits")


@st.composite
def machines(draw: st.DrawFn) -> Table:
    """A table over the built-in kinds: rows without guards lead onwards, guarded ones anywhere; it passes the checks."""
    kinds = sorted(set(KINDS) - {"answer"})
    works = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=5))
    names = [f"s{n}" for n in range(len(works))]
    states = [State(name, work=work, tools=draw(_allowed)) for name, work in zip(names, works, strict=True)]
    rows: list[Row] = []
    for n, state in enumerate(states):
        for outcome in KINDS[state.work].outcomes:
            for _ in range(draw(st.integers(0, 2))):
                chosen = draw(st.lists(st.sampled_from(sorted(GUARDS)), max_size=2))
                bound = draw(st.sampled_from([*_BOUNDING, *_BOUNDING, ""]))
                guarded = tuple(GUARDS[name] for name in dict.fromkeys([*chosen, *([bound] if bound else [])]))
                if guarded:
                    rows.append(Row(state.name, outcome, draw(st.sampled_from([*names, "end"])), guarded))
            onwards = [*names[n + 1 :], "end", "end"]
            rows.append(Row(state.name, outcome, draw(st.sampled_from(onwards))))
    return Table("drawn", names[0], [*states, State("end", work="answer")], _winning(rows))


_allowed = st.none() | st.lists(st.sampled_from(NAMES), max_size=4).map(frozenset)


def _winning(rows: list[Row]) -> list[Row]:
    """The rows without those that an earlier one keeps from ever winning."""
    kept: list[Row] = []
    for row in rows:
        mine = {guard.name for guard in row.guards}
        earlier = [r for r in kept if (r.source, r.outcome) == (row.source, row.outcome)]
        if not any({guard.name for guard in r.guards} <= mine for r in earlier):
            kept.append(row)
    return kept


def reached(table: Table) -> Table:
    """The table without the states that no row leads to."""
    seen, todo = {table.initial}, [table.initial]
    while todo:
        for row in table.rows_of(todo.pop()):
            if row.target not in seen:
                seen.add(row.target)
                todo.append(row.target)
    return attrs.evolve(
        table,
        states=[state for state in table.states if state.name in seen],
        rows=[row for row in table.rows if row.source in seen],
    )


def accepted(table: Table, bounds: Limits) -> bool:
    """Whether the checks take a machine under these limits."""
    try:
        check_table(table)
        check_bounds(table, bounds)
    except TableError:
        return False
    return True


@attrs.frozen
class Noted:
    """A kind of work that writes down each row that led to it, and what the run had spent when it was walked.

    It also gives up a run that enters states for ever without asking for anything, which no driver could stop.
    """

    work: Work
    table: Table
    seen: list[tuple[Row, dict[str, int]]] = attrs.field(factory=list)

    def enter(self, setup: Setup, run: Run) -> str | None:
        """As the work itself."""
        if run.steps > MOST_STEPS:
            raise AssertionError(f"the run goes on after {MOST_STEPS} steps: {run.path[-20:]}")
        source, outcome = run.came_by
        if source:
            # Rows that share both ends claim the same, for their claims are those of the kind of work, so any of them will do.
            row = next(row for row in self.table.rows_of(source, outcome) if row.target == run.state)
            counters = {name: getattr(run, name) for name in ("steps", "turns", "attempts", "verify_rounds", "gather_rounds")}
            self.seen.append((row, {**counters, "tries": sum(call.tries for call in run.open_calls)}))
        return self.work.enter(setup, run)

    def ask(self, setup: Setup, run: Run) -> Effect:
        """As the work itself."""
        return self.work.ask(setup, run)

    def tell(self, setup: Setup, run: Run, event: Event) -> str | None:
        """As the work itself."""
        return self.work.tell(setup, run, event)


def noted(table: Table, seen: list[tuple[Row, dict[str, int]]] | None = None) -> dict[str, Work]:
    """Every built-in kind of work, each noted in the same list."""
    rows = seen if seen is not None else []
    return {name: Noted(work, table, rows) for name, work in WORK.items()}


# ---- odd values

_zone = timezone(timedelta(hours=9))
odd_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.sampled_from([63, 64, 17_000]).map(lambda bits: 1 << bits),
        st.floats(),
        st.text(st.characters(exclude_categories=()), max_size=8),
        st.just("\ud835"),
        st.binary(max_size=5),
        st.decimals(allow_nan=False),
        st.just(Decimal("1.10")),
        st.datetimes(),
        st.just(datetime(2026, 1, 2, 3, 4, 5, 6, _zone)),
        st.complex_numbers(max_magnitude=9, allow_nan=False),
        st.frozensets(st.integers(), max_size=3),
        st.sets(st.text(max_size=2), max_size=3),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3) | st.just("$tuple"), inner, max_size=3),
        st.dictionaries(st.integers() | st.booleans(), inner, max_size=2),
    ),
    max_leaves=8,
)


def alike(one: Any, other: Any) -> bool:
    """Equal in value and in type, through and through; NaN equals NaN and 0.0 is not -0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return (one == other and math.copysign(1, one) == math.copysign(1, other)) or (one != one and other != other)
    if isinstance(one, dict):
        return len(one) == len(other) and all(map(alike, _pairs(one), _pairs(other)))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    if attrs.has(type(one)):
        names = [field.name for field in attrs.fields(type(one)) if field.eq]
        return all(alike(getattr(one, name), getattr(other, name)) for name in names)
    return bool(one == other)


def _pairs(mapping: dict[Any, Any]) -> Iterator[Any]:
    return ([key, value] for key, value in mapping.items())
