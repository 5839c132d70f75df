"""Whatever is given in place of an argument: a result, or an error of the library's own that names the place and the mend."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import attrs
import pytest

from fsm_agent import (
    Agent,
    BreakerPolicy,
    BuildError,
    Limits,
    Policy,
    Retry,
    Row,
    RunError,
    State,
    StopReason,
    Table,
    Tool,
    ToolCall,
    ToolDesk,
    Verdict,
    tool,
)
from fsm_agent.code_mode import CodeMode
from fsm_agent.core.agent_table import AGENT
from fsm_agent.core.errors import FsmAgentError
from fsm_agent.core.guards import AllOf, Opaque, Spending
from fsm_agent.core.messages import Message
from fsm_agent.core.run import Run
from fsm_agent.core.strategies import combine, max_iterations, until_finish_reason
from fsm_agent.core.table import Kind
from fsm_agent.guarded import Guarded
from fsm_agent.host.clock import ScriptedClock
from fsm_agent.host.definitions import tool_from_schema
from fsm_agent.host.hooks import Hooks
from fsm_agent.host.memory import DictMemory, TtlMemory
from fsm_agent.host.ports import Host
from fsm_agent.host.tool_forms import make_tool


class Some:
    """A class, which is neither a function nor an instance of anything wanted."""


ODD: Mapping[str, Any] = {
    "None": None, "a number": 5, "below 0": -1, "a bool": True, "a text": "x", "bytes": b"", "an object": object(), "a list": [],
    "a list of numbers": [5], "a list of None": [None], "a list of texts": ["x"], "a mapping": {}, "a mapping of numbers": {5: 5},
    "a mapping of texts": {"x": "x"}, "a class": Some, "nan": math.nan, "inf": math.inf, "huge": 10**400,
    "a function": lambda *args, **named: None,
}  # fmt: skip


def look_up(q: str) -> str:
    return q


def calls(ask: Any) -> Any:
    return ToolCall("look_up", {"q": "x"}) if ask.run.turns == 0 else "done"


def agent(**given: Any) -> Agent:
    return Agent(**{"tools": [look_up], "model": calls, "clock": ScriptedClock(), **given})


def table(**given: Any) -> Table:
    return Table(**{"name": "own", "initial": AGENT.initial, "states": AGENT.states, "rows": AGENT.rows, **given})


def with_rows(*rows: Row) -> Any:
    return agent(machine=table(rows=[*rows, *AGENT.rows])).run("go")


def with_guard(guard: Any) -> Any:
    return with_rows(Row("gather", "called", "final", (guard,)))


def gathering(name: str, value: Any) -> Any:
    def made(state: State) -> State:
        fields = {"name": state.name, "work": state.work, "tools": state.tools}
        return State(**{**fields, **({name: value} if state.name == "gather" else {})})

    return agent(machine=table(states=[made(state) for state in AGENT.states])).run("go")


def desk(**given: Any) -> ToolDesk:
    entry = {"fn": look_up, "args": {"q": {"type": "str"}}}
    return ToolDesk(**{"tools": {"look_up": entry}, "default_tool": "look_up", **given})


def paused(order: str, *args: Any, **named: Any) -> Any:
    """Say something to a run that waits for a person (k) and a client (j), save it, and drive it on."""
    held = [Tool(name="ask", fn=look_up, approval=True), Tool(name="far", fn=look_up, where="client")]
    asked = [ToolCall("ask", {"q": "x"}, "k"), ToolCall("far", {"q": "x"}, "j")]
    host = agent(tools=held, model=lambda ask: asked if ask.run.turns == 0 else "done")
    run = host.start("go")
    host.drive(run)
    getattr(host, order)(run, *args, **named)
    host.save(run)
    return host.drive(run)


def stopped() -> tuple[Agent, Run]:
    host = agent(model=lambda ask: ToolCall("look_up", {"q": "x"}), limits=Limits(max_turns=1))
    run = host.start("go")
    host.drive(run)
    return host, run


def resumed(name: str, value: Any) -> Any:
    host, run = stopped()
    return host.resume(run, **{name: value})


async def astreamed(**given: Any) -> list[Any]:
    return [event async for event in agent().astream(**given)]


Give = Callable[[Any], Any]
PLACES: dict[str, Give] = {}


def fields_of(kind: type[Any], give: Callable[[str, Any], Any], where: str = "") -> None:
    for field in attrs.fields(kind):
        if field.init:
            PLACES[f"{where or kind.__name__}({field.name}=)"] = partial(give, field.name)


def parameters_of(function: Any, give: Callable[[str, Any], Any], where: str) -> None:
    for name in list(inspect.signature(function).parameters)[1:]:
        PLACES[f"{where}({name}=)"] = partial(give, name)


parameters_of(Agent.__init__, lambda name, value: agent(**{name: value}).run("go"), "Agent")
parameters_of(Guarded.__init__, lambda name, value: Guarded(**{"tools": [look_up], name: value}).session().call("look_up"), "Guarded")
fields_of(ToolDesk, lambda name, value: desk(**{name: value}).handle({"q": "x"}))
fields_of(Limits, lambda name, value: agent(limits=Limits(**{name: value})).run("go"))
fields_of(Policy, lambda name, value: agent(policy=Policy(**{name: value})).run("go"))
fields_of(Tool, lambda name, value: agent(tools=[Tool(**{"name": "look_up", "fn": look_up, name: value})]).run("go"))
fields_of(Tool, lambda name, value: agent(tools=[tool(**{name: value})(look_up)]).run("go") if name != "fn" else tool(value), "tool")
fields_of(Tool, lambda name, value: agent(tools={"look_up": {"fn": look_up, name: value}}).run("go"), "entry")
fields_of(Tool, lambda name, value: desk(tools={"look_up": {"fn": look_up, name: value}}).handle({"q": "x"}), "live entry")
fields_of(Retry, lambda name, value: Retry(**{name: value}))
fields_of(BreakerPolicy, lambda name, value: BreakerPolicy(**{name: value}))
fields_of(Verdict, lambda name, value: Verdict(**{"result_class": "OK", name: value}))
fields_of(Table, lambda name, value: agent(machine=table(**{name: value})).run("go"))
fields_of(State, gathering)
fields_of(Row, lambda name, value: with_rows(Row(**{"source": "gather", "outcome": "called", "target": "final", name: value})))
fields_of(Kind, lambda name, value: agent(machine=table(kinds={"k": Kind(**{"name": "k", "outcomes": {}, name: value})})).run("go"))
SPENDING = {"name": "s", "counter": "turns", "limit": "max_turns", "reason": StopReason.MAX_TURNS}
fields_of(Spending, lambda name, value: with_guard(Spending(**{**SPENDING, name: value})))
fields_of(Opaque, lambda name, value: with_guard(Opaque(**{"name": "o", "test": lambda run: False, name: value})))
fields_of(AllOf, lambda name, value: with_guard(AllOf(**{"name": "a", "guards": (), name: value})) if name[0] != "_" else None)
fields_of(Hooks, lambda name, value: agent(hooks=Hooks(**{name: value})).run("go"))
fields_of(Host, lambda name, value: Host(**{name: value}))
fields_of(CodeMode, lambda name, value: CodeMode(**{name: value}).tool())
fields_of(Message, lambda name, value: agent().run([Message(**{"role": "user", "text": "go", name: value})]))
parameters_of(Agent.start, lambda name, value: agent().run(**{"request": "go", name: value}), "run")
parameters_of(Agent.start, lambda name, value: asyncio.run(agent().arun(**{"request": "go", name: value})), "arun")
parameters_of(Agent.start, lambda name, value: list(agent().stream(**{"request": "go", name: value})), "stream")
parameters_of(Agent.start, lambda name, value: asyncio.run(astreamed(**{"request": "go", name: value})), "astream")
parameters_of(Agent.start, lambda name, value: Guarded([look_up]).session(**{name: value}) if name != "request" else None, "session")
PLACES |= {
    "run(seeds=)": lambda value: agent().run("go", seeds=value),
    "observe(buffer)": lambda value: agent().observe(value).close(),
    "max_iterations": max_iterations,
    "until_finish_reason": until_finish_reason,
    "combine": combine,
    "TtlMemory(max_entries=)": TtlMemory,
    "DictMemory(mapping=)": DictMemory,
    "Limits.raised": Limits().raised,
    "make_tool(fn)": make_tool,
    "tool_from_schema": lambda value: tool_from_schema(value, look_up),
    "approve(call_id)": lambda value: paused("approve", value),
    "approve(args)": lambda value: paused("approve", "k", value),
    "approve(token)": lambda value: paused("approve", "k", token=value),
    "deny(call_id)": lambda value: paused("deny", value),
    "deny(reason)": lambda value: paused("deny", "k", value),
    "deny(token)": lambda value: paused("deny", "k", token=value),
    "deliver(call_id)": lambda value: paused("deliver", value, 1),
    "deliver(value)": lambda value: paused("deliver", "j", value),
    "deliver_error(call_id)": lambda value: paused("deliver_error", value, "Gone"),
    "deliver_error(error)": lambda value: paused("deliver_error", "j", value),
    "deliver_error(message)": lambda value: paused("deliver_error", "j", "Gone", value),
    "message(text)": lambda value: paused("message", value),
    "replay(steps)": lambda value: (lambda host, run: host.replay(run, value))(*stopped()),
    "resume(max_turns=)": lambda value: resumed("max_turns", value),
    "resume(max_turn=)": lambda value: resumed("max_turn", value),
    "resume(deadline_s=)": lambda value: resumed("deadline_s", value),
    "resume(max_same_tool_calls=)": lambda value: resumed("max_same_tool_calls", value),
    "session.call(tool)": lambda value: Guarded([look_up]).session().call(value),
    "session.call(args)": lambda value: Guarded([look_up]).session().call("look_up", value),
    "Guarded.load": Guarded([look_up]).load,
    "load": agent().load,
}
for order, args in {
    "approve": ["k"], "deny": ["k"], "deliver": ["k", 1], "deliver_error": ["k", "Gone"], "message": ["more"], "cancel": [], "pending": [],
    "save": [], "replay": [], "answer": [], "history": [], "drive": [], "resume": [],
}.items():  # fmt: skip
    PLACES[f"{order}(run)"] = lambda value, order=order, args=args: getattr(agent(), order)(value, *args)
PLACES["adrive(run)"] = lambda value: asyncio.run(agent().adrive(value))
PLACES["aresume(run)"] = lambda value: asyncio.run(agent().aresume(value))



# What would have worked, in the words in which the library says it.
MENDS = (
    "give", "may be", "there are", "it has", "it takes", "it maps", "it goes on with", "expected", "did you mean", "add a", "waits",
    "a raise is", "leave", "save its", "a saved value is", "never reports", "as a text", "cannot name", "make it", "nothing",
    "the machine has", "JSON", "the types are", "the keys are", "mend it", "drop", "look at it again", "a new message is", "needs",
    "make its", "a list", "name it", "use str", "import what",
)  # fmt: skip
# Where the message must name the very argument.
NAMED = ("Limits(", "Policy(", "Retry(", "BreakerPolicy(", "Host(", "Hooks(", "run(", "stream(")


@pytest.mark.parametrize("place", PLACES)
def test_odd_values_give_a_result_or_an_error_of_the_library_that_names_the_mend(place: str) -> None:
    for what, value in ODD.items():
        try:
            PLACES[place](value)
        except (BuildError, RunError) as error:
            said = str(error)
            assert 10 < len(said) < 1500, (what, said)
            assert any(word in said for word in MENDS), (what, said)
            if place.startswith(NAMED) and place.endswith("=)"):
                assert place[place.index("(") + 1 : -2] in said, (what, said)
        except FsmAgentError as error:  # neither family
            raise AssertionError(what) from error
        except BaseException as error:
            raise AssertionError(f"{place} with {what}: {type(error).__name__}: {error}") from error


@pytest.mark.parametrize("given", [{"max_turn": 5}, {"max_turns": "5"}, {}, []])
def test_limits_that_are_no_limits_are_told_what_they_are(given: Any) -> None:
    with pytest.raises(BuildError, match=r"^limits is .*; give a Limits, or leave it out$"):
        agent(limits=given)


class Echo:
    """A model, as a class that nobody has made an instance of."""

    def reply(self, request: Any) -> Any:
        return request


@pytest.mark.parametrize("part", ["model", "verify"])
def test_a_class_of_models_is_no_model_yet(part: str) -> None:
    with pytest.raises(BuildError, match=rf"^{part} is the class Echo; give an instance of it, Echo\(\.\.\.\), or a function$"):
        agent(**{part: Echo})


@pytest.mark.parametrize(("part", "kind"), [("memory", TtlMemory), ("clock", ScriptedClock), ("limits", Limits), ("policy", Policy)])
def test_a_class_in_place_of_its_instance_is_refused_and_told_so(part: str, kind: type[Any]) -> None:
    with pytest.raises(BuildError, match=rf"^{part} is .*; give an instance of it, {kind.__name__}\(\.\.\.\), or leave it out$"):
        agent(**{part: kind})


def test_a_word_that_starts_no_run_is_told_with_the_one_that_is_meant() -> None:
    with pytest.raises(RunError, match=r"^a run is started with no 'seeds'; did you mean 'seed'\? it takes limits, run_id"):
        agent().run("go", seeds=5)
    with pytest.raises(RunError, match=r"^seed is '5'; give a whole number"):
        agent().run("go", seed="5")
    with pytest.raises(RunError, match=r"^scope is 5; give a text"):
        agent().run("go", scope=5)
