"""The machine: the lean classes move a run as the library's own do, and one machine serves all runs."""

from __future__ import annotations

import gc
import itertools
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from enum import Enum, IntEnum, StrEnum
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transitions.core import Event

from fsm_agent.core._machine import Machine
from fsm_agent.core.agent_table import AGENT
from fsm_agent.core.autogpt_table import AUTOGPT
from fsm_agent.core.checks import check_table
from fsm_agent.core.errors import NoRow, RunError, TableError
from fsm_agent.core.guards import Guard, Opaque, steps_left
from fsm_agent.core.limits import Limits
from fsm_agent.core.run import Call, Run
from fsm_agent.core.short_text import said_by
from fsm_agent.core.table import Kind, Row, State, Table
from fsm_agent.lab.tables import DESK, NAIVE

TABLES = [AGENT, AUTOGPT, DESK, NAIVE]
LIMITS = Limits.off(max_steps=3, max_tokens=3, max_attempts=3, max_verify_rounds=3)
# Guard -> the field that decides it, with a value that opens and one that closes it.
SWITCHES: dict[str, tuple[str, Any, Any]] = {
    "steps_left": ("steps", 2, 3),
    "within_limits": ("tokens", 2, 3),
    "attempts_left": ("attempts", 2, 3),
    "gather_rounds_left": ("gather_rounds", 2, 3),
    "verify_rounds_left": ("verify_rounds", 2, 3),
    "has_repair": ("repair_due", True, False),
    "may_redecide": ("redecide", True, False),
    "enough_evidence": ("calls", [Call(id="c1", tool="look", args={}, ok=True, value=1)], []),
}


def switched(table: Table, is_open: Callable[[str], bool]) -> dict[str, Any]:
    """The fields of a run in which the guards of a table are open or closed as asked."""
    names = {guard.name for row in table.rows for guard in row.guards}
    return {SWITCHES[name][0]: SWITCHES[name][1 if is_open(name) else 2] for name in names}


both = pytest.mark.parametrize("stock", [False, True], ids=["lean", "stock"])


def a_run(state: str, limits: Limits = LIMITS, **values: Any) -> Run:
    return Run(id="r", request="", state=state, limits=limits, **values)


@attrs.frozen
class Fired:
    """All that firing did: where the run is, which guards were closed, or which error came."""

    state: Any
    closed: tuple[str, ...] | None
    error: str = ""


def fire(machine: Machine, run: Run, outcome: str) -> Fired:
    try:
        closed = machine.fire(run, outcome)
    except NoRow as error:
        return Fired(run.state, None, str(error))
    return Fired(run.state, tuple(guard.name for guard in closed))


def by_the_table(table: Table, state: str, outcome: str, is_open: Callable[[Guard], bool]) -> Fired:
    """What a reader of the rows would do: the first open row, asking each row's guards until one is closed."""
    closed: list[str] = []
    for row in table.rows_of(state, outcome):
        shut = next((guard for guard in row.guards if not is_open(guard)), None)
        if shut is None:
            return Fired(row.target, tuple(closed))
        closed.append(shut.name)
    takes = tuple(o for o in dict.fromkeys(row.outcome for row in table.rows) if table.rows_of(state, o))
    return Fired(state, None, str(NoRow(state, outcome, takes, tuple(closed))))


def cells() -> Iterator[tuple[Table, str, str, tuple[str, ...]]]:
    """Every table, state and outcome of any table, with the guards of that cell."""
    outcomes = dict.fromkeys(row.outcome for table in TABLES for row in table.rows)
    for table in TABLES:
        for state, outcome in itertools.product(table.states, [*outcomes, "never", ""]):
            names = dict.fromkeys(guard.name for row in table.rows_of(state.name, outcome) for guard in row.guards)
            yield table, state.name, outcome, tuple(names)


CELLS = list(cells())
COMPILED = {table.name: (Machine(table), Machine(table, stock=True)) for table in TABLES}


# ---- both kinds of classes, beside the table


def test_the_cells_cover_every_row_and_every_guard() -> None:
    assert len(CELLS) == sum(len(table.states) for table in TABLES) * 16
    rows = {id(row) for table, state, outcome, _ in CELLS for row in table.rows_of(state, outcome)}
    assert len(rows) == sum(len(table.rows) for table in TABLES)
    assert {name for *_, names in CELLS for name in names} == set(SWITCHES)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_lean_and_stock_agree_with_the_table_in_every_cell_for_every_truth_of_its_guards(table: Table) -> None:
    moved = 0
    for _, state, outcome, names in (cell for cell in CELLS if cell[0] is table):
        for truths in itertools.product([True, False], repeat=len(names)):
            truth = dict(zip(names, truths, strict=True))
            values = switched(table, lambda name, truth=truth: truth.get(name, False))  # type: ignore[misc]
            expected = by_the_table(table, state, outcome, lambda guard, truth=truth: truth[guard.name])  # type: ignore[misc]
            lean, stock = (fire(machine, a_run(state, **values), outcome) for machine in COMPILED[table.name])
            assert lean == stock == expected, (state, outcome, truth)
            moved += expected.closed is not None
    assert moved >= len(table.rows)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
@both
def test_every_row_is_walked_by_some_run(table: Table, stock: bool) -> None:
    machine = Machine(table, stock=stock)
    for row in table.rows:
        rows = table.rows_of(row.source, row.outcome)
        earlier = rows[: rows.index(row)]
        needed = {guard.name for guard in row.guards}
        run = a_run(row.source, **switched(table, needed.__contains__))
        closed = machine.fire(run, row.outcome)
        assert run.state == row.target
        assert len(closed) == len(earlier)
        assert all(guard in other.guards and guard.name not in needed for guard, other in zip(closed, earlier, strict=True))


@given(
    table=st.sampled_from(TABLES),
    steps=st.lists(st.tuples(st.integers(0, 9), st.fixed_dictionaries(dict.fromkeys(SWITCHES, st.booleans()))), max_size=30),
)
def test_lean_and_stock_walk_the_same_way(table: Table, steps: list[tuple[int, dict[str, bool]]]) -> None:
    lean, stock = COMPILED[table.name]
    runs = a_run(table.initial), a_run(table.initial)
    outcomes = [*dict.fromkeys(row.outcome for row in table.rows), "never"]
    for choice, truth in steps:
        takes = lean.outcomes(runs[0].state)
        # Mostly an outcome that the state takes, so that a walk goes on; now and then any other.
        outcome = takes[choice % len(takes)] if takes and choice < 8 else outcomes[choice % len(outcomes)]
        for run, (field, value) in itertools.product(runs, switched(table, truth.__getitem__).items()):
            setattr(run, field, value)
        before = runs[0].state
        seen = [fire(machine, run, outcome) for machine, run in zip((lean, stock), runs, strict=True)]
        assert seen[0] == seen[1] == by_the_table(table, before, outcome, lambda guard, truth=truth: truth[guard.name])  # type: ignore[misc]
        assert runs[0] == runs[1]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
@both
def test_a_state_takes_the_outcomes_that_it_has_rows_for(table: Table, stock: bool) -> None:
    machine = Machine(table, stock=stock)
    for state in table.states:
        takes = machine.outcomes(state.name)
        assert sorted(takes) == sorted({row.outcome for row in table.rows_of(state.name)})
    assert machine.outcomes("nowhere") == ()
    assert machine.table is table


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
@both
def test_a_cell_without_a_row_leaves_the_run_unmoved_and_names_what_the_state_takes(table: Table, stock: bool) -> None:
    machine = Machine(table, stock=stock)
    for _, state, outcome, _ in (cell for cell in CELLS if cell[0] is table and not table.rows_of(cell[1], cell[2])):
        run, before = a_run(state), a_run(state)
        with pytest.raises(NoRow) as refused:
            machine.fire(run, outcome)
        assert run == before
        error = refused.value
        assert (error.state, error.outcome, error.takes, error.closed) == (state, outcome, machine.outcomes(state), ())
        assert [o for o in error.takes if o not in str(error)] == []


@both
@pytest.mark.parametrize("outcome", [None, 0, True, "", " called", "on called", "called ", "\ud800", ("called",)], ids=range(9))
def test_what_is_no_outcome_has_no_row(outcome: Any, stock: bool) -> None:
    run = a_run("gather")
    with pytest.raises(NoRow, match="this state takes: called, failed"):
        Machine(AGENT, stock=stock).fire(run, outcome)
    assert run.state == "gather"


@both
@pytest.mark.parametrize("state", ["nowhere", "", "Gather", None, 0], ids=range(5))
@pytest.mark.parametrize("outcome", ["called", "never"])
def test_a_run_in_no_state_of_the_machine_is_refused_and_unmoved(state: Any, outcome: str, stock: bool) -> None:
    run = a_run(state)
    with pytest.raises(RunError):
        Machine(AGENT, stock=stock).fire(run, outcome)
    assert run.state == state


# ---- guards


def asked_table(*rows: list[Guard]) -> Table:
    """A state with one outcome, a row for each list of guards, each to a state of its own."""
    names = [f"t{at}" for at in range(len(rows))]
    written = [Row("s", "go", name, guards) for name, guards in zip(names, rows, strict=True)]
    return Table("asked", "s", [State("s", work="call"), *(State(name, work="answer") for name in names)], written)


@both
@pytest.mark.parametrize("truths", list(itertools.product([True, False], repeat=5)))
def test_guards_are_asked_in_the_order_written_until_one_is_closed(truths: tuple[bool, ...], stock: bool) -> None:
    log: list[int] = []

    def guard(at: int) -> Opaque:
        def test(run: Run) -> bool:
            log.append(at)
            return truths[at]

        return Opaque(f"g{at}", test)

    g = [guard(at) for at in range(5)]
    run = a_run("s")
    closed = Machine(asked_table([g[0], g[1], g[2]], [g[3], g[4]], []), stock=stock).fire(run, "go")
    first = 3 if all(truths[:3]) else truths[:3].index(False) + 1
    asked, shut, state = list(range(first)), [], "t0"
    if not all(truths[:3]):
        shut, state = [g[first - 1]], "t1"
        asked += [3, 4] if truths[3] else [3]
        if not (truths[3] and truths[4]):
            shut, state = [*shut, g[asked[-1]]], "t2"
    assert (log, closed, run.state) == (asked, shut, state)


class Shy:
    """Neither true nor false."""

    def __bool__(self) -> bool:
        raise ValueError("it will not say")

    def __eq__(self, other: object) -> bool:
        raise ValueError("it will not compare")

    __hash__ = None  # type: ignore[assignment]


@attrs.frozen(eq=False)
class Says:
    """A guard of the user's own, which answers anything."""

    answer: Any
    name: str = "says"

    def __call__(self, run: Run) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


YES: list[Any] = [True, 1, 2, -1, 0.5, "yes", "False", ["x"], (0,), {"a": 1}, object(), float("nan"), Says]
NO: list[Any] = [False, 0, 0.0, "", [], (), {}, None, Shy()]
RAISED = [ValueError("no"), LookupError(), RecursionError(), AssertionError(), StopIteration(), MemoryError(), TypeError(b"\xff")]
PASSING = [KeyboardInterrupt(), SystemExit(3), GeneratorExit()]


@both
@pytest.mark.parametrize("answer", YES, ids=range(len(YES)))
def test_a_guard_that_says_anything_true_is_open(answer: Any, stock: bool) -> None:
    run = a_run("s")
    assert Machine(asked_table([Says(answer)], []), stock=stock).fire(run, "go") == []
    assert run.state == "t0"


@both
@pytest.mark.parametrize("answer", [*NO, *RAISED], ids=range(len(NO) + len(RAISED)))
def test_a_guard_that_says_anything_false_or_raises_is_closed(answer: Any, stock: bool) -> None:
    shut, after = Says(answer), Says(True)
    run = a_run("s")
    assert Machine(asked_table([after, shut, Says(KeyboardInterrupt())], []), stock=stock).fire(run, "go") == [shut]
    assert run.state == "t1"


@both
@pytest.mark.parametrize("error", [*RAISED, NO[-1]], ids=lambda error: type(error).__name__)
def test_why_a_guard_could_not_be_asked_stands_in_the_trace(error: Any, stock: bool) -> None:
    run = a_run("s")
    run.spent_s = 2.5
    before = run.trace
    Machine(asked_table([Says(True), Says(error, "typo")], []), stock=stock).fire(run, "go")
    why = said_by(error) if isinstance(error, Exception) else "ValueError: it will not say"
    assert run.trace == [*before, ("guard_failed", 2.5, "typo", why)]


@both
@pytest.mark.parametrize("error", PASSING, ids=lambda error: type(error).__name__)
def test_an_interruption_passes_through_and_leaves_the_run_where_it_was(error: BaseException, stock: bool) -> None:
    run = a_run("s")
    machine = Machine(asked_table([Says(True), Says(error)], []), stock=stock)
    with pytest.raises(type(error)):
        machine.fire(run, "go")
    assert run.state == "s"
    assert Machine(asked_table([]), stock=stock).fire(run, "go") == []


@both
def test_a_state_whose_rows_are_all_closed_names_the_guards_that_were(stock: bool) -> None:
    table = asked_table([Says(True, "a"), Says(False, "b"), Says(False, "c")], [Says(ValueError(), "d")])
    run = a_run("s")
    with pytest.raises(NoRow) as refused:
        Machine(table, stock=stock).fire(run, "go")
    assert (refused.value.closed, refused.value.takes, run.state) == (("b", "d"), ("go",), "s")


@both
def test_a_guard_without_a_plain_name_is_taken_as_it_is(stock: bool) -> None:
    run = a_run("s")
    shut = Says(False, "gather_rounds left: 3/3 \n 状態")
    assert Machine(asked_table([shut], []), stock=stock).fire(run, "go") == [shut]


# ---- names

NAMES = [
    "state", "trigger", "model", "models", "initial", "run", "events", "states", "machine", "to_gather", "may_go", "is_a",
    "on_enter_a", "before_go", "after", "__init__", "__class__", "状態", "a b", "on go", "a.b", "os.getcwd", "0", " ", "None",
    "*", "=", "\ud800", "a" * 1000, "a↦b", "a_b", "\n",
]


def named(name: str) -> Table:
    """A machine that has the name for its initial state and for an outcome."""
    kind = Kind(name="w", outcomes={name: (), "back": ()})
    rows = [
        Row(name, name, "middle"),
        Row(name, "back", "end"),
        Row("middle", name, "end"),
        Row("middle", "back", name, (steps_left,)),
        Row("middle", "back", "end"),
    ]
    table = Table(name, name, [State(name, "w"), State("middle", "w"), State("end", "answer")], rows, {"w": kind})
    check_table(table)
    return table


@both
@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_any_text_names_a_state_and_an_outcome(name: str, stock: bool) -> None:
    table = named(name)
    machine, run = Machine(table, stock=stock), a_run(name)
    assert [machine.outcomes(state) for state in (name, "middle", "end")] == [(name, "back"), (name, "back"), ()]
    path = []
    for outcome in (name, "back", name, name):
        assert machine.fire(run, outcome) == []
        path.append(run.state)
    assert path == ["middle", name, "middle", "end"]
    with pytest.raises(NoRow):
        machine.fire(run, name)


@both
def test_all_those_names_stand_beside_each_other(stock: bool) -> None:
    kind = Kind(name="w", outcomes=dict.fromkeys(NAMES, ()))
    rows = [Row(NAMES[at], outcome, NAMES[(at + 1) % len(NAMES)]) for at in range(len(NAMES)) for outcome in NAMES]
    machine = Machine(Table("many", NAMES[0], [State(name, "w") for name in NAMES], rows, {"w": kind}), stock=stock)
    run = a_run(NAMES[0])
    for at, outcome in enumerate(NAMES):
        machine.fire(run, outcome)
        assert run.state == NAMES[(at + 1) % len(NAMES)]


class Numbered(IntEnum):
    ZERO = 0
    ONE = 1
    END = 2


class Worded(StrEnum):
    ZERO = "zero"
    ONE = "one"
    END = "end"


class Mixed(str, Enum):  # noqa: UP042  the older way to write such an enum
    ZERO = "0"
    ONE = "a one"
    END = "end."


class Plain(Enum):
    ZERO = None
    ONE = ()
    END = "x"


@both
@pytest.mark.parametrize("states", [Numbered, Worded, Mixed, Plain])
def test_states_may_be_members_of_any_enum_and_a_run_holds_their_names(states: Any, stock: bool) -> None:
    zero, one, end = states
    table = Table(
        "enum",
        zero,
        [State(zero, work="normalize"), State(one, work="normalize"), State(end, work="answer")],
        [Row(zero, "ready", one), Row(zero, "rejected", end), Row(one, "ready", zero, [steps_left]), Row(one, "ready", end),
         Row(one, "rejected", end)],
    )
    check_table(table)
    names = [state.name for state in table.states]
    assert [type(name) for name in names] == [str] * 3
    machine, run = Machine(table, stock=stock), a_run(table.initial)
    seen = [run.state]
    for outcome in ("ready", "ready", "rejected"):
        machine.fire(run, outcome)
        seen.append(run.state)
    assert seen == [names[0], names[1], names[0], names[2]]
    assert [type(state) for state in seen] == [str] * 4


class Blank(str, Enum):  # noqa: UP042
    NOTHING = ""


def test_an_enum_state_without_text_is_refused() -> None:
    with pytest.raises(TableError, match="cannot name a state"):
        State(Blank.NOTHING, work="call")


# ---- one machine, many runs


def reachable(machine: Machine) -> int:
    """How many objects hang on a machine, not counting code, classes and modules."""
    apart = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType, types.FrameType)
    seen: set[int] = set()
    todo: list[Any] = [machine]
    while todo:
        thing = todo.pop()
        if id(thing) not in seen and not isinstance(thing, apart):
            seen.add(id(thing))
            todo += gc.get_referents(thing)
    return len(seen)


@both
def test_nothing_is_kept_of_a_run(stock: bool) -> None:
    machine = Machine(AGENT, stock=stock)
    run = a_run("gather")
    machine.fire(run, "called")
    before, runs = reachable(machine), []
    for _, state, outcome, _ in (cell for cell in CELLS if cell[0] is AGENT):
        run = a_run(state, attempts=3)
        fire(machine, run, outcome)
        runs.append(weakref.ref(run))
    del run
    gc.collect()
    assert [ref for ref in runs if ref() is not None] == []
    assert len(runs) > 50
    assert reachable(machine) == before


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
@both
def test_the_library_below_is_given_the_states_and_outcomes_and_nothing_else(table: Table, stock: bool) -> None:
    below = Machine(table, stock=stock)._machine
    assert list(below.states) == [state.name for state in table.states]
    assert len(below.events) == len({row.outcome for row in table.rows})
    assert (below.models, below.has_queue, below.send_event) == ([], False, True)
    assert {type(event) is Event for event in below.events.values()} == {stock}
    assert {type(event) is Event for event in Machine(table)._machine.events.values()} == {False}


@pytest.mark.parametrize("open_", [True, False])
def test_an_event_of_the_library_below_moves_a_run_without_being_asked_what_was_closed(open_: bool) -> None:
    guard = Opaque("asked", lambda run: open_)
    table = Table(
        name="two ways",
        initial="a",
        states=(State("a", work="normalize"), State("b", work="answer"), State("c", work="answer")),
        rows=(Row("a", "ready", "b", (guard,)), Row("a", "ready", "c"), Row("a", "rejected", "c")),
    )
    run = Run(id="run", request="x", state="a", limits=Limits())
    event = next(event for event in Machine(table)._machine.events.values() if len(event.transitions["a"]) == 2)
    assert event.trigger(run)
    assert run.state == ("b" if open_ else "c")


def test_a_run_that_was_moved_is_freed_at_once() -> None:
    machine = Machine(AGENT)
    gc.disable()
    try:
        run = a_run("gather", tokens=99)
        machine.fire(run, "called")
        ref = weakref.ref(run)
        del run
        assert ref() is None
    finally:
        gc.enable()


@both
def test_nothing_is_put_on_a_run_but_its_state(stock: bool) -> None:
    run, before = a_run("gather"), a_run("gather")
    Machine(AGENT, stock=stock).fire(run, "called")
    assert run == attrs.evolve(before, state="gather")
    Machine(AGENT, stock=stock).fire(run, "stopped")
    assert run == attrs.evolve(before, state="final")


@both
def test_equal_runs_are_moved_each_by_itself(stock: bool) -> None:
    machine = Machine(AGENT, stock=stock)
    first, second = a_run("gather"), a_run("gather")
    assert first == second
    machine.fire(first, "proposed")
    assert (first.state, second.state) == ("verify", "gather")
    machine.fire(second, "stopped")
    assert (first.state, second.state) == ("verify", "final")


@both
def test_a_guard_may_fire_another_run_of_the_same_machine(stock: bool) -> None:
    other = a_run("s")

    def nested(run: Run) -> bool:
        return run is other or (machine.fire(other, "go") == [] and other.state == "t0")

    machine = Machine(asked_table([Opaque("nested", nested)], []), stock=stock)
    run = a_run("s")
    assert machine.fire(run, "go") == []
    assert (run.state, other.state) == ("t0", "t0")


def test_two_machines_of_one_table_do_not_know_each_other() -> None:
    one, two = Machine(DESK), Machine(NAIVE)
    run = a_run("fetch", repair_due=True)
    assert fire(one, run, "failed").state == "repair"
    run = a_run("fetch", repair_due=True)
    assert fire(two, run, "failed").state == "giveup"


THREADS, EACH = 8, 2000
WAYS = [
    (("ready", "called", "called", "stopped"), ("gather", "gather", "gather", "final"), 0),
    (("ready", "failed", "repaired", "proposed", "passed"), ("gather", "repair", "gather", "verify", "final"), 0),
    (("ready", "called"), ("gather", "final"), 3),
    (("ready", "no_progress", "insufficient"), ("gather", "verify", "final"), 3),
    (("rejected",), ("final",), 0),
]


def test_one_machine_serves_many_threads_at_once() -> None:
    machine, barrier = Machine(AGENT), threading.Barrier(THREADS)
    wrong: list[list[Any]] = [[] for _ in range(THREADS)]
    done = [0] * THREADS

    def work(me: int) -> None:
        barrier.wait()
        for at in range(EACH):
            outcomes, states, tokens = WAYS[(at + me) % len(WAYS)]
            run = a_run("normalize", repair_due=True, tokens=tokens)
            for outcome, state in zip(outcomes, states, strict=True):
                machine.fire(run, outcome)
                if run.state != state:
                    wrong[me].append((outcome, state, run.state))
            done[me] += 1

    threads = [threading.Thread(target=work, args=(me,)) for me in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [[] for _ in range(THREADS)]
    assert done == [EACH] * THREADS


# ---- rewinding


@both
def test_a_run_is_put_back_into_any_state_of_the_machine_and_no_other(stock: bool) -> None:
    machine, run = Machine(AGENT, stock=stock), a_run("final")
    for state in AGENT.states:
        machine.rewind(run, state.name)
        assert run.state == state.name
    with pytest.raises(TableError, match="no state 'nowhere'"):
        machine.rewind(run, "nowhere")
    assert run.state == "final"
