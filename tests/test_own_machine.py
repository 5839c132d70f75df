"""A machine of one's own, end to end: states, rows, guards, a kind of work with its own effect, run fields and observers."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from fsm_agent import Agent, Limits, Row, Run, Setup, State, StopReason, Table, ToolCall, diagrams
from fsm_agent.core.answers import Answer
from fsm_agent.core.checks import check_bounds, check_table
from fsm_agent.core.effects import CallTools, Decide, OwnEffect
from fsm_agent.core.errors import BuildError, CannotResume, RunError, SavedRunError, TableError, WrongEvent
from fsm_agent.core.events import Decided, Event, Performed, PerformFailed, Returned
from fsm_agent.core.guards import Opaque, Spending, calls_below_stop, steps_left, turns_left
from fsm_agent.core.table import Kind
from fsm_agent.core.values import Decision
from fsm_agent.core.work import Gather
from fsm_agent.host.clock import ScriptedClock
from fsm_agent.host.model import ModelRequest
from fsm_agent.host.tool_forms import make_tool
from fsm_agent.testing import paths

ROOT = Path(__file__).parent.parent


# ---- the machine: a rate is asked for before anything is bought


@attrs.define
class Rate(OwnEffect):
    """What is a unit of this currency worth?"""

    currency: str


class Quote:
    """Asks for the rate; a failure is reported, and the table says whether it is asked again."""

    def enter(self, setup: Any, run: Run) -> str | None:
        run.fields["tries"] = run.fields.get("tries", 0) + 1
        return None

    def ask(self, setup: Any, run: Run) -> Rate:
        return Rate(run, run.fields["currency"])

    def tell(self, setup: Any, run: Run, event: Event) -> str:
        if isinstance(event, Performed):
            run.fields["rate"] = event.value
            return "quoted"
        if isinstance(event, PerformFailed):
            run.note = f"no rate: {event.error}: {event.message}"
            return "failed"
        raise WrongEvent(f"run {run.id!r} waits for a rate and was told {type(event).__name__}")


def coming(run: Run) -> None:
    run.fields["walk"] = [*run.fields.get("walk", []), f"+{run.state}"]


def going(run: Run) -> None:
    run.fields["walk"] = [*run.fields["walk"], f"-{run.state}"]


tries_left = Spending("tries_left", "tries", "max_attempts", StopReason.MAX_ATTEMPTS)
cheap = Opaque("cheap", lambda run: run.fields["rate"] < 2000)

SHOP = Table(
    name="shop",
    initial="quote",
    states=(
        State("quote", work="quote", on_enter=coming, on_leave=going),
        State("think", work="decide", on_enter=coming, on_leave=going),
        State("buy", work="call", tools={"buy"}, on_enter=coming, on_leave=going),
        State("end", work="answer", on_enter=coming, on_leave=going),
    ),
    rows=(
        Row("quote", "quoted", "think", (cheap,)),
        Row("quote", "quoted", "end"),
        Row("quote", "failed", "quote", (tries_left,)),
        Row("quote", "failed", "end"),
        Row("think", "decided", "buy"),
        *(Row("think", outcome, "end") for outcome in ("proposed", "failed", "stopped")),
        Row("buy", "called", "think", (turns_left,)),
        *(Row("buy", outcome, "end") for outcome in ("called", "failed", "no_progress", "stopped")),
    ),
    kinds={"quote": Kind(name="quote", outcomes={"quoted": ("tries",), "failed": ("tries",)}, about="asks for the rate")},
)
TOOLS = {"buy": {"fn": lambda n: f"bought {n}", "args": {"n": {"type": "int"}}}}
LIMITS = Limits.off(max_turns=4, max_attempts=3)


def decide(ask: Decide) -> Any:
    run = ask.run
    return ToolCall("buy", {"n": 3}) if not run.calls else f"{run.calls[-1].value} at {run.fields['rate']}"


def shop(performer: Any = lambda effect: 1500, **more: Any) -> Agent:
    parts = {
        "machine": SHOP, "work": {"quote": Quote()}, "effects": {} if performer is None else {Rate: performer}, "limits": LIMITS,
        "clock": ScriptedClock(), **more,
    }  # fmt: skip
    return Agent(TOOLS, decide, **parts)


def started(one: Agent) -> Run:
    return one.start("three of them", run_id="shop", fields={"currency": "won"})


def sync(one: Agent, run: Run) -> Answer:
    return one.drive(run)


def tasks(one: Agent, run: Run) -> Answer:
    return asyncio.run(one.adrive(run))


async def later(effect: Rate) -> int:
    await asyncio.sleep(0)
    return 1500


both = pytest.mark.parametrize("drive", [sync, tasks])


class Buyer:
    """A model that buys what it is offered to buy."""

    def __init__(self) -> None:
        self.offered: list[tuple[str, list[str]]] = []

    def reply(self, request: ModelRequest) -> Decision:
        self.offered.append((request.state, [tool.name for tool in request.tools]))
        assert f"now in the state {request.state!r}: buy" in request.instructions
        if request.messages[-1].calls or request.messages[-1].tool:
            return Decision(text=request.messages[-1].text, finish="stop")
        return Decision(calls=(ToolCall("buy", {"n": 3}),), finish="tool_calls")


@both
def test_a_model_that_decides_in_one_state_is_offered_what_the_next_one_calls(drive: Any) -> None:
    model = Buyer()
    one = Agent(TOOLS, model, machine=SHOP, work={"quote": Quote()}, effects={Rate: lambda effect: 1500}, limits=LIMITS)
    assert drive(one, started(one)).text == "bought 3"
    assert model.offered == [("think", ["buy"])] * 2


class Failing:
    """A performer that fails so many times before it gives a rate."""

    def __init__(self, times: int, error: BaseException | None = None) -> None:
        self.times, self.asked = times, 0
        self.error = error if error is not None else OSError("the bank is closed")

    def __call__(self, effect: Rate) -> int:
        self.asked += 1
        if self.asked <= self.times:
            raise self.error
        return 1500


# ---- end to end


@pytest.mark.parametrize(("drive", "performer"), [(sync, lambda effect: 1500), (tasks, lambda effect: 1500), (tasks, later)])
def test_a_machine_of_ones_own_runs_from_its_effect_to_its_answer(drive: Any, performer: Any) -> None:
    one = shop(performer)
    run = started(one)
    answer = drive(one, run)

    assert (answer.status, answer.stop_reason, answer.text) == ("ok", "answered", "bought 3 at 1500")
    assert answer.path == ("quote", "think", "buy", "think", "end")
    assert run.fields == {
        "currency": "won", "tries": 1, "rate": 1500,
        "walk": ["+quote", "-quote", "+think", "-think", "+buy", "-buy", "+think", "-think", "+end"],
    }  # fmt: skip
    assert one.replay(run) == run
    assert one.load(one.save(run)) == run


def test_both_drivers_leave_equal_runs() -> None:
    runs = []
    for drive, performer in ((sync, Failing(1)), (tasks, Failing(1))):
        one = shop(performer)
        run = started(one)
        drive(one, run)
        runs.append(run)

    assert runs[0] == runs[1]
    assert runs[0].path == ["quote", "think", "buy", "think", "end"]
    assert runs[0].fields["tries"] == 2


def test_a_guard_of_ones_own_over_a_field_decides_the_row() -> None:
    answer = shop(lambda effect: 2500).drive(started(shop()))

    assert answer.path == ("quote", "end")


def test_the_performer_is_given_the_effect_and_what_it_gives_becomes_plain() -> None:
    seen: list[Any] = []

    @attrs.frozen
    class Price:
        amount: int

    def perform(effect: Rate) -> Any:
        seen.append((type(effect), effect.currency, effect.run.id))
        return {"price": Price(3), "of": (1, {2})}

    ends = Table(
        name="quoter",
        initial="quote",
        states=(State("quote", work="quote"), State("end", work="answer")),
        rows=(Row("quote", "quoted", "end"), Row("quote", "failed", "end")),
        kinds=SHOP.kinds,
    )
    one = shop(perform, machine=ends)
    run = started(one)
    one.drive(run)

    assert seen == [(Rate, "won", "shop")]
    assert run.fields["rate"] == {"price": {"amount": 3}, "of": (1, {2})}
    assert one.load(one.save(run)) == run


# ---- a run is data at every step


def by_hand(one: Agent, run: Run, answers: dict[type[Any], list[Event]], look: Callable[[Run], Run]) -> Run:
    """Drive a run by hand; `look` may put another in its place before each step."""
    run = look(run)
    while (effect := one.engine.ask(run)) is not None:
        one.engine.tell(run, answers[type(effect)].pop(0))
        run = look(run)
    return run


def told() -> dict[type[Any], list[Event]]:
    return {
        Rate: [PerformFailed("OSError", "closed"), Performed(1500)],
        Decide: [Decided(Decision(calls=(ToolCall("buy", {"n": 3}, "b"),))), Decided(Decision(text="done"))],
        CallTools: [Returned("b", "bought 3")],
    }


def test_a_run_is_the_same_saved_loaded_and_replayed_at_every_step() -> None:
    one, seen = shop(), []

    def again(run: Run) -> Run:
        loaded = one.load(one.save(run))
        assert loaded == run == one.replay(run) == one.replay(loaded)
        seen.append(run.state)
        return loaded

    through = by_hand(one, started(one), told(), again)
    straight = by_hand(one, started(one), told(), lambda run: run)

    assert through == straight
    assert seen == ["quote", "quote", "think", "buy", "think", "end"]
    for steps in range(len(straight.journal) + 1):
        assert one.replay(straight, steps).journal == straight.journal[:steps]


def test_a_replay_begins_with_the_fields_of_the_start_whatever_the_work_did_to_them() -> None:
    class Appending(Quote):
        def tell(self, setup: Any, run: Run, event: Event) -> str:
            run.fields["seen"].append(run.state)
            return super().tell(setup, run, event)

    given = {"currency": "won", "seen": ["start"]}
    one = shop(Failing(1), work={"quote": Appending()})
    run = one.start("go", fields=given)
    one.drive(run)

    assert run.fields["seen"] == ["start", "quote", "quote"]
    assert given == run.first_fields == {"currency": "won", "seen": ["start"]}
    assert one.replay(run) == run == one.replay(run)


def test_a_run_of_another_machine_is_not_loaded_and_observers_are_no_part_of_one() -> None:
    text = shop().save(started(shop()))
    silent = attrs.evolve(SHOP, states=[attrs.evolve(state, on_enter=None, on_leave=None) for state in SHOP.states])

    assert silent.hash() == SHOP.hash()
    assert shop(machine=silent).load(text).state == "quote"
    with pytest.raises(SavedRunError, match="was saved on machine"):
        shop(machine=attrs.evolve(SHOP, name="other")).load(text)


def test_a_field_that_cannot_be_saved_is_named() -> None:
    one = shop()
    run = started(one)
    run.fields["open"] = object()

    with pytest.raises(SavedRunError, match="run/fields/open"):
        one.save(run)


# ---- effects that fail


@both
def test_an_effect_that_fails_is_asked_for_again_as_the_table_says(drive: Any) -> None:
    performer = Failing(2)
    one = shop(performer)
    answer = drive(one, started(one))

    assert (answer.stop_reason, performer.asked) == ("answered", 3)


@both
def test_an_effect_that_keeps_failing_ends_the_run_which_a_raise_lets_go_on(drive: Any) -> None:
    performer = Failing(3)
    one = shop(performer)
    run = started(one)
    answer = drive(one, run)

    assert (answer.status, answer.stop_reason, performer.asked) == ("failed", "max_attempts", 3)
    assert answer.stop is not None
    assert answer.stop.closed[0].guard == "tries_left"
    assert "no rate: OSError: the bank is closed" in str(answer.stop)
    assert answer.text
    assert one.resume(one.load(one.save(run)), **answer.stop.raise_to).text == "bought 3 at 1500"


@both
def test_an_effect_that_nobody_performs_is_a_clear_failure_and_the_run_ends(drive: Any) -> None:
    one = shop(None)
    run = started(one)
    answer = drive(one, run)

    assert (answer.status, answer.stop_reason) == ("failed", "max_attempts")
    assert run.note == "no rate: LookupError: nobody performs Rate; give effects={...} to the agent (it has none)"
    assert [event for _, event in run.journal] == 3 * [run.journal[0][1]]


def test_a_performer_of_another_class_is_not_taken_for_it() -> None:
    @attrs.define
    class DailyRate(Rate):
        """Another effect, though of that kind."""

    run = started(shop())
    shop(effects={DailyRate: lambda effect: 1}).drive(run)

    assert "it has DailyRate" in run.note


def test_a_performer_that_has_to_be_awaited_is_refused_by_the_sync_driver_before_anything_is_asked() -> None:
    one = shop(later)
    run = started(one)
    before = one.save(run)
    with pytest.raises(RunError, match=r"effects\[Rate\] is a coroutine function; await arun or adrive instead"):
        one.drive(run)

    assert one.save(run) == before
    assert not run.driven


def test_a_plain_function_that_gives_an_awaitable_fails_in_the_sync_driver_and_works_in_a_task() -> None:
    one = shop(lambda effect: later(effect))
    run = started(one)
    one.drive(run)

    assert run.note == "no rate: TypeError: the answer has to be awaited; await arun or adrive instead, or give a plain function"
    assert asyncio.run(one.adrive(started(one))).text == "bought 3 at 1500"


@both
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_what_passes_through_a_performer_leaves_the_run_resumable(drive: Any, error: Any) -> None:
    one = shop(Failing(1, error()))
    run = started(one)
    with pytest.raises(error):
        drive(one, run)

    assert run.stop is not None
    assert run.stop.reason is StopReason.CANCELLED
    assert one.resume(one.load(one.save(run))).text == "bought 3 at 1500"


@both
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("at", ["quote on_leave", "think on_enter", "think on_leave", "buy on_enter", "buy on_leave"])
def test_who_is_interrupted_while_looking_on_holds_up_no_step(drive: Any, error: Any, at: str) -> None:
    where, when = at.split()
    interrupted: list[str] = []

    def looks(run: Run) -> None:
        if run.state == where and not interrupted:
            interrupted.append(where)
            raise error

    one = shop(machine=attrs.evolve(SHOP, states=[attrs.evolve(state, **{when: looks}) for state in SHOP.states]))
    run = started(one)
    with pytest.raises(error):
        drive(one, run)

    assert run.stop is not None
    assert run.stop.reason is StopReason.CANCELLED
    assert one.replay(run) == run
    run = one.load(one.save(run))
    one.engine.resume(run)
    assert drive(one, run).text == "bought 3 at 1500"
    assert one.replay(run) == run


@both
def test_work_that_is_broken_passes_through_and_leaves_the_run_resumable(drive: Any) -> None:
    class Broken(Quote):
        def tell(self, setup: Any, run: Run, event: Event) -> str:
            raise ZeroDivisionError("in the work itself")

    broken = shop(work={"quote": Broken()})
    run = started(broken)
    with pytest.raises(ZeroDivisionError, match="in the work itself"):
        drive(broken, run)

    assert not run.driven
    assert shop().resume(run).text == "bought 3 at 1500"


@both
def test_work_that_asks_for_nothing_is_named(drive: Any) -> None:
    class Forgetful(Quote):
        def ask(self, setup: Any, run: Run) -> Any:
            super().ask(setup, run)

    forgetful = shop(work={"quote": Forgetful()})
    run = started(forgetful)
    with pytest.raises(RunError, match=r"the work of state 'quote' asks run 'shop' for nothing; let its `ask` return an effect"):
        drive(forgetful, run)

    assert shop().drive(run).text == "bought 3 at 1500"


def test_work_may_refuse_an_event_and_the_run_stays_as_it_was() -> None:
    one = shop()
    run = started(one)
    before = one.save(run)
    with pytest.raises(WrongEvent, match="waits for a rate and was told Returned"):
        one.engine.tell(run, Returned("b", 1), 5.0)

    assert one.save(run) == before


def test_a_run_that_ended_of_itself_is_not_resumed() -> None:
    one = shop()
    run = started(one)
    one.drive(run)

    with pytest.raises(CannotResume):
        one.resume(run)


# ---- observers


def test_observers_are_called_in_order_and_see_the_state_they_are_about() -> None:
    seen: list[tuple[str, str, int]] = []

    def looks(when: str) -> Callable[[Run], None]:
        return lambda run: seen.append((when, run.state, run.steps))

    states = [attrs.evolve(state, on_enter=looks("enter"), on_leave=looks("leave")) for state in SHOP.states]
    one = shop(Failing(1), machine=attrs.evolve(SHOP, states=states))
    run = started(one)
    assert seen == [("enter", "quote", 1)]
    one.drive(run)

    assert seen == [
        ("enter", "quote", 1), ("leave", "quote", 1),
        ("enter", "quote", 2), ("leave", "quote", 2),
        ("enter", "think", 3), ("leave", "think", 3),
        ("enter", "buy", 4), ("leave", "buy", 4),
        ("enter", "think", 5), ("leave", "think", 5),
        ("enter", "end", 6),
    ]  # fmt: skip


@both
@pytest.mark.parametrize("error", [ValueError("no"), RecursionError("deep"), StopIteration()])
def test_an_observer_that_raises_is_noted_and_nothing_else_changes(drive: Any, error: Exception) -> None:
    def breaks(run: Run) -> None:
        raise error

    states = [attrs.evolve(state, on_enter=breaks, on_leave=breaks) for state in SHOP.states]
    silent = [attrs.evolve(state, on_enter=None, on_leave=None) for state in SHOP.states]
    loud, quiet = (shop(Failing(1), machine=attrs.evolve(SHOP, states=some)) for some in (states, silent))
    one, other = started(loud), started(quiet)
    answers = drive(loud, one), drive(quiet, other)
    noted = [row for row in one.trace if row[0] == "observer_failed"]

    assert len(noted) == 11
    assert noted[0] == ("observer_failed", 0.0, "quote", f"on_enter raised {type(error).__name__}: {error}".removesuffix(": "))
    assert [row for row in one.trace if row[0] != "observer_failed"] == other.trace
    assert attrs.evolve(one, flat_trace=[]) == attrs.evolve(other, flat_trace=[])
    assert answers[0].text == answers[1].text
    assert loud.replay(one) == one


def test_an_observer_may_look_at_built_in_states_alone() -> None:
    machine = attrs.evolve(SHOP, states=[*SHOP.states[:1], attrs.evolve(SHOP.states[1], on_leave=None), *SHOP.states[2:]])
    run = started(shop())
    shop(machine=machine).drive(run)

    assert run.fields["walk"].count("+think") == 2
    assert "-think" not in run.fields["walk"]


# ---- checks, diagrams, paths


def test_the_machine_is_checked_drawn_and_walked_like_a_built_in_one() -> None:
    check_table(SHOP)
    check_bounds(SHOP, LIMITS)
    drawn = diagrams.mermaid(SHOP)

    assert "quote : asks for the rate" in drawn
    assert "quote --> quote : failed [tries_left]" in drawn
    assert "cheap" in diagrams.dot(SHOP)
    assert sorted(str(row) for row, _ in paths(SHOP)) == sorted(map(str, SHOP.rows))


@pytest.mark.parametrize(
    ("command", "says"),
    [("check", "shop: 4 states, 13 rows"), ("diagram", "stateDiagram-v2")],
)
def test_the_command_line_takes_it_too(command: str, says: str) -> None:
    call = f"import sys; from fsm_agent.cli import main; sys.exit(main(['{command}', '--machine', 'tests.test_own_machine:SHOP']))"
    done = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, cwd=ROOT, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert says in done.stdout


def test_without_a_limit_its_loop_is_refused_and_the_mend_is_named() -> None:
    with pytest.raises(TableError, match="no limit in force bounds the cycle quote -> quote; set one of max_attempts"):
        shop(limits=Limits.off(max_turns=4))


# ---- a kind that promises what it does not keep


GATHERS = ("failed", "no_progress", "proposed", "stopped")


class Spinning:
    """Work that reports the same for ever and spends nothing, whatever its kind says."""

    def enter(self, setup: Any, run: Run) -> str:
        assert run.steps < 1000, "the run has no end"
        return "again"

    def ask(self, setup: Any, run: Run) -> Any:
        """Never asked."""

    def tell(self, setup: Any, run: Run, event: Event) -> Any:
        """Never told."""


def spinning(*guards: Any, spends: tuple[str, ...] = ("turns",)) -> Table:
    return Table(
        name="spinner",
        initial="spin",
        states=(State("spin", work="spin"), State("end", work="answer")),
        rows=(Row("spin", "again", "spin", guards), Row("spin", "again", "end")),
        kinds={"spin": Kind(name="spin", outcomes={"again": spends})},
    )


def test_a_kind_that_claims_nothing_is_not_believed_to_spend_turns() -> None:
    with pytest.raises(TableError, match="no limit in force bounds the cycle spin -> spin"):
        Agent([], None, machine=spinning(turns_left, spends=()), work={"spin": Spinning()}, limits=Limits.off(max_turns=3))


def test_a_kind_that_lies_about_what_it_spends_is_stopped_by_the_steps_which_nobody_can_fake() -> None:
    limits = Limits.off(max_turns=3, max_steps=20)
    one = Agent([], None, machine=spinning(turns_left, steps_left), work={"spin": Spinning()}, limits=limits)
    run = one.start("go")

    assert run.stop is not None
    assert (run.stop.reason, run.steps, run.turns) == (StopReason.MAX_STEPS, 21, 0)


@pytest.mark.parametrize("limits", [Limits.off(max_turns=3), Limits.off(max_turns=3, max_steps=20)])
def test_a_kind_that_lies_is_stopped_also_where_no_row_looks_at_the_steps(limits: Limits) -> None:
    one = Agent([], None, machine=spinning(turns_left), work={"spin": Spinning()}, limits=limits)
    run = one.start("go")

    assert run.stop is not None
    assert (run.stop.reason, run.turns) == (StopReason.FATAL, 0)
    assert "row spin --again--> spin is sure to spend 'turns', says the machine, and has not" in run.stop.detail
    assert one.answer(run).text
    assert one.load(one.save(run)) == run
    with pytest.raises(CannotResume, match="ended by 'fatal'"):
        one.resume(run, max_turns=99)


def test_a_row_that_lies_about_what_it_spends_is_stopped_too() -> None:
    table = attrs.evolve(
        spinning(spends=()), rows=(Row("spin", "again", "spin", (turns_left,), spends=("turns",)), Row("spin", "again", "end"))
    )
    run = Agent([], None, machine=table, work={"spin": Spinning()}, limits=Limits.off(max_turns=3)).start("go")

    assert run.stop is not None
    assert run.stop.reason is StopReason.FATAL


@both
def test_a_run_that_was_cut_off_goes_on_over_a_row_that_claims_what_only_its_work_spends(drive: Any) -> None:
    rows = (Row("gather", outcome, "gather", (turns_left,), spends=("turns",)) for outcome in ("called", "failed"))
    table = Table(
        "claims", "gather", [State("gather", work="gather", tools=None), State("end", work="answer")],
        [*rows, *(Row("gather", outcome, "end") for outcome in ("called", *GATHERS))],
    )  # fmt: skip
    asked = iter([ToolCall("look"), *[KeyboardInterrupt] * 2, ToolCall("look"), "done"])

    def decide(ask: Any) -> Any:
        said = next(asked)
        if said is KeyboardInterrupt:
            raise said
        return said

    agent = Agent([make_tool(lambda: 1, name="look")], decide, machine=table, limits=Limits.off(max_turns=9))
    run = agent.start("go")
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            drive(agent, run)
        assert agent.replay(agent.load(agent.save(run))) == run
        agent.engine.resume(run)
    answer = drive(agent, run)

    assert (answer.stop_reason, answer.text, run.turns) == ("answered", "done", 3)
    assert agent.replay(run) == run


class Honest(Spinning):
    """Work that spends what its kind says."""

    def enter(self, setup: Any, run: Run) -> str:
        run.turns += 1
        return "again"


def test_a_kind_that_keeps_its_word_is_stopped_by_its_limit() -> None:
    run = Agent([], None, machine=spinning(turns_left), work={"spin": Honest()}, limits=Limits.off(max_turns=3)).start("go")

    assert run.stop is not None
    assert (run.stop.reason, run.turns) == (StopReason.MAX_TURNS, 3)


class Deaf(Gather):
    """A host's own way of gathering, which asks nobody and spends no turn."""

    def enter(self, setup: Any, run: Run) -> str:
        return "called"


def test_work_in_place_of_a_built_in_kind_is_not_believed_to_spend_what_that_spends() -> None:
    rows = (Row("gather", "called", "gather", (turns_left,)), *(Row("gather", o, "end") for o in ("called", *GATHERS)))
    table = Table(name="own", initial="gather", states=(State("gather", work="gather"), State("end", work="answer")), rows=rows)
    limits = Limits.off(max_turns=3)
    Agent([], lambda ask: "done", machine=table, limits=limits)
    with pytest.raises(TableError, match="no limit in force bounds the cycle gather -> gather"):
        Agent([], lambda ask: "done", machine=table, limits=limits, work={"gather": Deaf()})


# ---- building


class NoTell:
    enter = ask = Quote.enter


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"work": None}, "state 'quote' does 'quote', for which no work was given; pass work="),
        ({"work": {}}, "state 'quote' does 'quote', for which no work was given"),
        ({"work": [Quote()]}, "work is .*; give a mapping"),
        ({"work": {"quote": Quote}}, r"work\['quote'\] is .*; give an object with the methods enter, ask and tell"),
        ({"work": {"quote": NoTell()}}, r"work\['quote'\] is .*; give an object with the methods enter, ask and tell"),
        ({"work": {"quote": print}}, r"work\['quote'\] is .*; give an object with"),
        ({"work": {"quote": Quote(), "verfy": Quote()}}, "work has 'verfy', which is no kind .* 'shop'; did you mean 'verify'"),
        ({"effects": [Rate]}, "effects is .*; give a mapping"),
        ({"effects": {"Rate": print}}, "effects has the key 'Rate'; give classes derived from OwnEffect"),
        ({"effects": {Decide: print}}, "effects has the key .*Decide.*; give classes derived from OwnEffect"),
        ({"effects": {int: print}}, "effects has the key .*int.*; give classes derived from OwnEffect"),
        ({"effects": {Rate: 1500}}, r"effects\[Rate\] is 1500; give a function of the effect"),
        ({"effects": {Rate: None}}, r"effects\[Rate\] is None; give a function of the effect"),
        ({"machine": attrs.evolve(SHOP, kinds={})}, "state 'quote' does 'quote', which is no kind of work; there are"),
        ({"machine": "shop"}, "machine is 'shop'; give a Table"),
    ],
)
def test_parts_that_cannot_work_are_refused_when_the_agent_is_built(parts: Any, why: str) -> None:
    with pytest.raises(BuildError, match=why):
        shop(**parts)


def with_kinds(kinds: Any) -> Table:
    return attrs.evolve(SHOP, kinds=kinds)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: State("a", work="b", on_enter=1), r"State\(on_enter=\) is 1; give a plain function"),  # type: ignore[arg-type]
        (lambda: State("a", work="b", on_leave="x"), r"State\(on_leave=\) is 'x'"),  # type: ignore[arg-type]
        (lambda: State("a", work="b", on_enter=later), r"State\(on_enter=\) is a coroutine function"),  # type: ignore[arg-type]
        (lambda: with_kinds(None), "the kinds of a machine are None; give a mapping"),
        (lambda: with_kinds({"quote": ["quoted"]}), "the kind 'quote' is .*; give a Kind"),
    ],
)
def test_what_no_machine_can_be_made_of_is_refused_at_once(make: Callable[[], Any], why: str) -> None:
    with pytest.raises(TableError, match=why):
        make()


def test_an_outcome_that_the_kind_does_not_have_is_refused() -> None:
    with pytest.raises(TableError, match="'quote' work never reports 'lost'; it reports quoted, failed"):
        shop(machine=attrs.evolve(SHOP, rows=[*SHOP.rows, Row("quote", "lost", "end")]))


def test_work_of_ones_own_may_take_the_place_of_a_built_in_kind() -> None:
    class Polite:
        def enter(self, setup: Any, run: Run) -> str:
            run.fields["asked"] = f"please: {run.request}"
            return "ready"

        def ask(self, setup: Any, run: Run) -> Any:
            """Never asked."""

        def tell(self, setup: Any, run: Run, event: Event) -> Any:
            """Never told."""

    table = Table(
        name="polite",
        initial="in",
        states=(State("in", work="normalize"), State("think", work="decide"), State("end", work="answer")),
        rows=(
            *(Row("in", outcome, target) for outcome, target in (("ready", "think"), ("rejected", "end"))),
            *(Row("think", outcome, "end") for outcome in ("decided", "proposed", "failed", "stopped")),
        ),
    )
    answer = Agent([], lambda ask: json.dumps(ask.run.fields), machine=table, work={"normalize": Polite()}).run("tea")

    assert answer.text == '{"asked": "please: tea"}'


def test_a_machine_that_allows_no_tool_anywhere_is_refused_where_the_agent_has_tools() -> None:
    def machine(tools: Any) -> Table:
        acting = State("act", work="call") if tools == "left out" else State("act", work="call", tools=tools)
        return Table(
            name="closed", initial="think", states=(State("think", work="decide"), acting, State("end", work="answer")),
            rows=(
                Row("think", "decided", "act"), *(Row("think", outcome, "end") for outcome in ("proposed", "failed", "stopped")),
                *(Row("act", outcome, "end") for outcome in ("called", "failed", "no_progress", "stopped")),
            ),
        )  # fmt: skip

    def decide(ask: Any) -> Any:
        return ToolCall("buy", {"n": 1})

    for tools in ("left out", ()):
        with pytest.raises(BuildError, match=r"allows no tool in any state; .*State\('act', tools=\{'buy'\}\), or give tools=None"):
            Agent(TOOLS, decide, machine=machine(tools))
        Agent({}, decide, machine=machine(tools))
        assert Agent(TOOLS, decide, machine=machine(tools), allowed={"act": ["buy"]}).run("go").run.calls[0].ok  # type: ignore[union-attr]
    for tools in (None, ["buy"]):
        assert Agent(TOOLS, decide, machine=machine(tools)).run("go").run.calls[0].ok  # type: ignore[union-attr]
        assert Agent(TOOLS, decide, machine=machine(tools), allowed={"act": []}).run("go").run.calls[0].error == "refused:not_allowed"  # type: ignore[union-attr]


@pytest.mark.parametrize("in_task", [False, True])
def test_a_batch_that_is_resumed_has_the_calls_of_one_turn_anew(in_task: bool) -> None:
    ends = [(name, outcome) for name in ("call", "think") for outcome in ("failed", "stopped")]
    ends += [("call", "called"), ("call", "no_progress"), ("think", "proposed")]
    table = Table(
        name="two",
        initial="think",
        states=(State("think", work="decide"), State("call", work="call", tools=None), State("end", work="answer")),
        rows=(Row("think", "decided", "call"), Row("call", "called", "think", (turns_left,)), *(Row(*end, "end") for end in ends)),
    )
    ran: list[int] = []

    def look(n: int) -> int:
        ran.append(n)
        return n

    def five(ask: Decide) -> Any:
        return "done" if ask.run.turns else [ToolCall("look", {"n": n}) for n in range(5)]

    agent = Agent([make_tool(look, effect="pure")], five, machine=table, limits=Limits(max_calls_per_turn=3, max_tool_calls=2))
    stopped = agent.run("go")
    assert (stopped.stop_reason, ran) == (StopReason.MAX_TOOL_CALLS, [0, 1])
    assert stopped.run is not None
    run = agent.load(agent.save(stopped.run))
    answer = asyncio.run(agent.aresume(run, max_tool_calls=20)) if in_task else agent.resume(run, max_tool_calls=20)
    assert (answer.stop_reason, ran) == (StopReason.ANSWERED, [0, 1, 2, 3, 4])


@pytest.mark.parametrize("also", [{}, {"max_turns": 3}, {"stop_after_tool_calls": 3}, {"max_steps": 6}, {"max_steps": 7}])
def test_the_stop_of_a_state_that_only_calls_names_all_that_keeps_the_run_from_going_on(also: dict[str, int]) -> None:
    ends = [(name, outcome) for name in ("call", "think") for outcome in ("failed", "stopped")]
    ends += [("call", "called"), ("call", "no_progress"), ("think", "proposed")]
    within = (turns_left, steps_left, calls_below_stop)
    table = Table(
        name="two",
        initial="think",
        states=(State("think", work="decide"), State("call", work="call", tools=None), State("end", work="answer")),
        rows=(Row("think", "decided", "call"), Row("call", "called", "think", within), *(Row(*end, "end") for end in ends)),
    )
    look = make_tool(lambda: 1, name="look", effect="pure")
    limits = Limits.off(**{"max_turns": 9, "max_same_call": 2, **also})
    agent = Agent([look], lambda ask: "done" if ask.run.turns > 2 else ToolCall("look"), machine=table, limits=limits)
    stopped = agent.run("go")
    assert stopped.stop is not None
    assert stopped.run is not None
    assert stopped.stop_reason == "duplicate_call"
    assert set(stopped.stop.raise_to) == {"max_same_call", *also}
    answer = agent.resume(agent.load(agent.save(stopped.run)), **stopped.stop.raise_to)
    assert (answer.stop_reason, answer.usage["turns"]) == ("answered", 4)


@both
@pytest.mark.parametrize(("error", "told"), [(OSError("closed"), "OSError: closed"), (ValueError(), "ValueError")])
def test_a_run_that_fails_by_an_effect_of_which_its_work_notes_nothing_says_which(drive: Any, error: Exception, told: str) -> None:
    class Silent(Quote):
        def tell(self, setup: Setup, run: Run, event: Event) -> str | None:
            return "failed" if isinstance(event, PerformFailed) else super().tell(setup, run, event)

    def fails(effect: Rate) -> int:
        raise error

    rows = [row for row in SHOP.rows if row.target != "quote"]
    one = shop(fails, work={"quote": Silent()}, machine=attrs.evolve(SHOP, rows=rows))
    answer = drive(one, started(one))

    assert (answer.stop_reason, answer.stop.detail) == (StopReason.FATAL, told)
    assert answer.text.endswith(f"Stopped: fatal ({told}).")
