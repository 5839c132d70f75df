"""Names of tools and states that nobody has: refused where they are given, with the one that is probably meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from fsm_agent import Agent, BuildError, Limits, State, Table, ToolDesk
from fsm_agent.core.agent_table import AGENT
from fsm_agent.core.autogpt_table import AUTOGPT
from fsm_agent.core.errors import CannotResume, LimitsError, TableError
from fsm_agent.core.known_names import mend
from fsm_agent.lab.tables import DESK
from fsm_agent.scenario.reading import ScenarioError, scenario_of
from fsm_agent.scenario.runner import run_scenario


def search(q: str) -> str:
    return q


def fetch(q: str) -> str:
    return q


def narrowed(table: Table, *names: str) -> Table:
    """The machine whose first state that allows every tool allows these."""
    state = next(state for state in table.states if state.tools is None)
    return table.allowing({state.name: names})


Unknown = tuple[dict[str, Any], type[BuildError], str]
NOT_THERE = "which is not there; did you mean"
UNKNOWN: dict[str, Unknown] = {
    "required": ({"required": ["serch"]}, BuildError, "required names the tool 'serch', which is not there; did you mean 'search'?"),
    "required, nothing near": ({"required": ["zzz"]}, BuildError, "'zzz', which is not there; there are search, fetch"),
    "required as text": ({"required": "search"}, BuildError, "required is 'search'; give a list of the names of tools"),
    "allowed": ({"allowed": {"gather": ["fetchh"]}}, TableError, f"state 'gather' allows the tool 'fetchh', {NOT_THERE}"),
    "allowed, a state": ({"allowed": {"gahter": ["fetch"]}}, TableError, r"no state 'gahter'; did you mean 'gather'\? it has normalize"),
    "a state of a machine": ({"machine": narrowed(AGENT, "search", "looks")}, TableError, "state 'gather' allows the tool 'looks'"),
    "a state of autogpt": ({"machine": narrowed(AUTOGPT, "ftch")}, TableError, "'fetch' allows the tool 'ftch'.*did you mean 'fetch'"),
    "a limit": ({"limits": Limits(max_same_tool_calls={"serch": 2})}, LimitsError, "max_same_tool_calls names the tool 'serch'"),
    "no tools at all": ({"tools": [], "required": ["search"]}, BuildError, "which is not there; there are none"),
}  # fmt: skip


@pytest.mark.parametrize(("more", "error", "words"), UNKNOWN.values(), ids=UNKNOWN)
def test_a_name_that_no_tool_or_state_has_is_refused_at_build_with_those_there_are(
    more: dict[str, Any], error: type[BuildError], words: str
) -> None:
    given = {"tools": [search, fetch], **more}
    with pytest.raises(error, match=words):
        Agent(given.pop("tools"), lambda ask: "done", **given)


def test_every_name_that_is_there_is_accepted() -> None:
    limits = Limits(max_same_tool_calls={"search": 2, "*": 3})
    agent = Agent([search, fetch], lambda ask: "done", required=["search"], allowed={"gather": ["fetch", "search"]}, limits=limits)

    assert agent.engine.setup.allowed["gather"] == {"search", "fetch"}


def test_a_runs_own_limits_and_a_raise_are_looked_at_too() -> None:
    agent = Agent([search], lambda ask: "done")
    with pytest.raises(LimitsError, match="did you mean 'search'"):
        agent.run("go", limits=Limits(max_same_tool_calls={"serch": 2}))
    run = agent.start("go", limits=Limits(max_turns=0))
    agent.drive(run)
    with pytest.raises(CannotResume, match="did you mean 'search'"):
        agent.resume(run, max_turns=5, max_same_tool_calls={"serch": 9})


def test_a_live_table_may_get_its_tools_later() -> None:
    tools: dict[str, Any] = {}
    desk = ToolDesk(tools=tools, default_tool="search", table=narrowed(DESK, "search"))
    assert desk.handle({"q": "x"})["errors"] == ["args:unknown_tool"]

    tools["search"] = {"fn": search, "args": {"q": {"type": "str"}}}
    assert desk.handle({"q": "x"})["tool_runs"] == 1


@pytest.mark.parametrize("name", ["gahter", 5, None, b"gather"])
def test_the_near_name_is_told_only_where_there_is_one(name: object) -> None:
    told = mend(name, ["gather", "verify"])

    assert told == ("did you mean 'gather'? there are gather, verify" if name == "gahter" else "there are gather, verify")


def test_of_very_many_names_the_first_are_told_and_the_rest_is_counted() -> None:
    assert mend("x", range(1000)).endswith("38, 39 and 960 more")


BASE: dict[str, Any] = {"id": "x", "tools": {"search": {"does": [{"return": 1}]}}, "expect": {}}
MODELS: dict[str, tuple[dict[str, Any], str]] = {
    "of the file": ({"model": {"gahter": []}}, "model: the machine has no state 'gahter'; did you mean 'gather'"),
    "of autogpt": ({"machine": "autogpt", "model": {"gather": []}}, "model: the machine has no state 'gather'; it has plan, fetch"),
    "of a step": ({"ops": [{"run": {"model": {"x": []}}}]}, "ops/0/run/model: the machine has no state 'x'"),
    "of a step beside others": (
        {"ops": [{"together": [[{"run": {}}], [{"run": {"model": {"x": []}}}]]}]},
        "ops/0/together/1/0/run/model: the machine has no state 'x'",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("keys", "words"), MODELS.values(), ids=MODELS)
def test_a_scenario_whose_model_has_turns_for_an_unknown_state_is_no_scenario(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match=f"^file: {words}"):
        scenario_of({**BASE, **keys}, Path("file"))


@pytest.mark.parametrize("allowed", [{"gather": ["serch"]}, {"gahter": ["search"]}])
def test_a_scenario_that_allows_what_is_not_there_fails_and_says_so(allowed: dict[str, Any]) -> None:
    verdict = run_scenario(scenario_of({**BASE, "model": [{"final": "done"}], "allowed": allowed}), "sync")

    assert not verdict.holds
    assert "TableError" in verdict.faults[0]
    assert "did you mean" in verdict.faults[0]


def test_a_state_may_still_name_its_tools_before_there_is_an_agent() -> None:
    table = attrs.evolve(AGENT, states=[attrs.evolve(state, tools=["later"]) for state in AGENT.states])

    assert all(state.tools == {"later"} for state in table.states if isinstance(state, State))
