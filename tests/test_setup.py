"""Setups: what is refused when an engine is built, what is worked out once, and limits that are examined once."""

from __future__ import annotations

import threading
from typing import Any

import attrs
import pytest
from strategies import REPAIRS, a_setup, a_tool, off, the_tools

from fsm_agent.core.agent_table import AGENT
from fsm_agent.core.engine import Engine
from fsm_agent.core.errors import BuildError, TableError
from fsm_agent.core.guards import has_repair
from fsm_agent.core.limits import Limits
from fsm_agent.core.run import Run
from fsm_agent.core.setup import Setup
from fsm_agent.core.table import KINDS, Kind, Row, State, Table
from fsm_agent.core.tools import Tool, Toolset
from fsm_agent.core.values import Policy
from fsm_agent.core.work import WORK
from fsm_agent.desk import ToolDesk
from fsm_agent.host.door import Door
from fsm_agent.host.drivers import Driver

LOOSE = Limits.off(max_turns=3)


def test_a_setup_works_out_what_every_run_needs() -> None:
    setup = a_setup(table=AGENT.allowing({"gather": ["look"]}))
    assert setup.works == {state.name: WORK[state.work] for state in AGENT.states}
    assert setup.allowed == {**{state.name: state.tools for state in AGENT.states}, "gather": frozenset({"look"})}
    assert (setup.finals, setup.mends) == (frozenset({"final"}), True)
    assert setup.hash == setup.table.hash() != AGENT.hash()
    assert setup.machine.table is setup.table


@pytest.mark.parametrize(
    ("think", "acts", "offered"),
    [
        (frozenset(), [{"look"}], {"look"}),
        (frozenset(), [{"look"}, {"find"}], {"look", "find"}),
        (frozenset(), [{"look"}, None], None),
        (frozenset(), [set()], set()),
        ({"find"}, [{"look", "find"}], {"find"}),
        (None, [{"look"}], None),
    ],
)
def test_where_calls_are_only_decided_on_those_are_offered_that_the_next_state_allows(think: Any, acts: Any, offered: Any) -> None:
    names = [f"act {number}" for number in range(len(acts))]
    leads = [Row("think", "decided", name, () if name == names[-1] else (has_repair,)) for name in names]
    table = Table(
        "two steps",
        "think",
        [State("think", "decide", think), *map(State, names, ["call"] * len(names), acts), State("end", "answer")],
        [*leads, *(Row("think", outcome, "end") for outcome in KINDS["decide"].outcomes if outcome != "decided")]
        + [Row(name, outcome, "end") for name in names for outcome in KINDS["call"].outcomes],
    )
    setup = a_setup(table=table, box=Toolset([a_tool("look"), a_tool("find")]))
    assert setup.offered["think"] == (None if offered is None else frozenset(offered))
    assert {name: setup.offered[name] for name in names} == {name: setup.allowed[name] for name in names}


def test_a_setup_has_defaults_for_all_but_table_tools_and_work() -> None:
    setup = Setup(table=AGENT, box=Toolset(), work=WORK)
    assert (setup.limits, setup.policy, setup.repairs, setup.required) == (Limits(), Policy(), {}, ())
    assert (setup.normalizer, setup.verifies, setup.composes, setup.offers) == (None, False, False, True)
    assert {field.name for field in attrs.fields(Setup) if field.init and field.default is attrs.NOTHING} == {
        "table",
        "box",
        "work",
    }


def test_a_machine_without_repair_mends_nothing() -> None:
    states = (State("gather", work="gather"), State("end", work="answer"))
    rows = [Row("gather", outcome, "end") for outcome in KINDS["gather"].outcomes]
    assert a_setup(table=Table("short", "gather", states, rows)).mends is False


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"table": attrs.evolve(AGENT, initial="nowhere")}, "starts in 'nowhere'"),
        ({"table": attrs.evolve(AGENT, rows=AGENT.rows[:-1])}, "may report 'exhausted' and it has no row"),
        ({"limits": Limits.off()}, "no limit in force bounds the cycle"),
        ({"work": {}}, "does 'normalize', for which no work was given; pass work="),
        ({"work": {name: work for name, work in WORK.items() if name != "verify"}}, "state 'verify' does 'verify', for which"),
    ],
)
def test_a_setup_that_no_run_could_use_is_refused(parts: dict[str, Any], why: str) -> None:
    with pytest.raises(TableError, match=why):
        a_setup(**parts)


def test_a_kind_of_work_of_ones_own_needs_its_work() -> None:
    kinds = {"sketch": Kind(name="sketch", outcomes={"good": ()})}
    table = Table(
        "sketcher", "sketch", (State("sketch", work="sketch"), State("end", work="answer")), [Row("sketch", "good", "end")], kinds
    )
    with pytest.raises(TableError, match="state 'sketch' does 'sketch', for which no work was given"):
        Setup(table=table, box=Toolset(), work=WORK)


def test_what_is_wrong_with_a_setup_is_a_build_error() -> None:
    with pytest.raises(BuildError):
        a_setup(limits=Limits.off())


def test_limits_are_examined_once() -> None:
    setup = a_setup()
    own, other = off(max_turns=3), off(max_turns=4)
    for each in (own, other, own):
        setup.check_limits(each)
    assert list(setup._bounded.values()) == [own, other]


def test_limits_that_leave_a_machine_unbounded_are_refused_each_time() -> None:
    setup = a_setup(repairs=REPAIRS)
    for _ in range(2):
        with pytest.raises(TableError, match="no limit in force bounds the cycle"):
            setup.check_limits(LOOSE)
    assert setup._bounded == {}


def test_where_there_is_no_repair_none_has_to_be_bounded() -> None:
    a_setup().check_limits(LOOSE)


def test_only_so_many_limits_are_remembered() -> None:
    setup = a_setup()
    many = [off(max_turns=n) for n in range(200)]
    for own in many:
        setup.check_limits(own)
        assert setup._bounded[id(own)] is own
        assert len(setup._bounded) <= 64


def test_a_limit_may_name_a_tool_that_a_live_table_gets_later() -> None:
    class Live:
        def get(self, name: Any) -> None:
            return None

        def names(self) -> tuple[str, ...]:
            return ()

    own = off(max_turns=3, max_same_tool_calls={"later": 2})
    a_setup(box=Live()).check_limits(own)
    with pytest.raises(BuildError, match="later"):
        a_setup().check_limits(own)


def test_threads_may_examine_limits_at_once() -> None:
    setup = a_setup()
    failed: list[BaseException] = []

    def examine() -> None:
        try:
            for n in range(100):
                setup.check_limits(off(max_turns=n))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=examine) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(setup._bounded) <= 64


def test_a_setup_holds_no_run() -> None:
    setup = a_setup(box=Toolset([a_tool("look")]))
    before = {field.name: getattr(setup, field.name) for field in attrs.fields(Setup)}
    engine = Engine(setup)
    runs = [engine.start("x", run_id=str(n)) for n in range(3)]
    assert all(isinstance(run, Run) for run in runs)
    assert {name: getattr(setup, name) for name in before} == before


def test_two_setups_are_two_even_where_all_is_equal() -> None:
    box = the_tools()
    assert a_setup(box=box) != a_setup(box=box)


@pytest.mark.parametrize("made", [Setup, Driver, Door, Tool, ToolDesk])
def test_what_is_printed_is_what_was_given_and_not_what_was_worked_out(made: type) -> None:
    assert [field.name for field in attrs.fields(made) if field.repr and not field.init] == []


def test_a_desk_fits_on_a_screen() -> None:
    assert len(repr(ToolDesk(tools={}, default_tool="look"))) < 300
