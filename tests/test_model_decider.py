"""A model that decides, closes and verifies: what it is asked, what its failures cost, and that its words never end a run badly."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from fsm_agent import Agent, Decision, Limits, Policy, Prompts, Run, TaskPolicy, Tool, ToolCall, Usage
from fsm_agent.core.agent_table import AGENT
from fsm_agent.core.answers import Answer
from fsm_agent.core.autogpt_table import AUTOGPT
from fsm_agent.core.contracts import TableArguments
from fsm_agent.core.effects import Decide
from fsm_agent.core.engine import Engine
from fsm_agent.core.errors import RunError
from fsm_agent.core.messages import Message, Purpose, Role
from fsm_agent.core.prompts import agent_policy, stop_contract
from fsm_agent.core.schemas import SchemaResult
from fsm_agent.core.setup import Setup
from fsm_agent.core.work import WORK
from fsm_agent.host.clock import ScriptedClock
from fsm_agent.host.live_tools import LiveTools
from fsm_agent.host.model import FailureKind, MalformedDecision, ModelFailed, ModelRequest
from fsm_agent.host.model_decider import VERDICT, ModelDecider, is_model, with_question

FREE = Limits.off(max_steps=500, max_turns=30)
USAGE = Usage(input_tokens=10, output_tokens=5, cost=0.25)


class Scripted:
    """A model that gives its turns by purpose, in order, and keeps what it was asked; a turn may be an exception."""

    def __init__(self, *turns: Any, **other: Any) -> None:
        self.turns = {"decide": list(turns)} | {purpose: list(one) for purpose, one in other.items()}
        self.asked: list[ModelRequest] = []

    def reply(self, request: ModelRequest) -> Decision:
        # The history is the run's own and goes on growing; what is kept here is what it was.
        self.asked.append(attrs.evolve(request, messages=tuple(request.messages)))
        turns = self.turns.get(request.purpose.value) or [Decision(text=f"{request.purpose.value} text", finish="stop")]
        turn = turns.pop(0) if len(turns) > 1 else turns[0]
        if isinstance(turn, BaseException):
            raise turn
        return turn(request) if callable(turn) else turn

    def of(self, purpose: str) -> list[ModelRequest]:
        return [request for request in self.asked if request.purpose == purpose]


class Later(Scripted):
    """The same as a coroutine function."""

    async def reply(self, request: ModelRequest) -> Decision:  # type: ignore[override]
        await asyncio.sleep(0)
        return super().reply(request)


class Awaited(Scripted):
    """The same as a plain function whose answer has to be awaited."""

    def reply(self, request: ModelRequest) -> Any:
        async def later() -> Decision:
            return Scripted.reply(self, request)

        return later()


def sync(agent: Agent, run: Run) -> Answer:
    return agent.drive(run)


def tasks(agent: Agent, run: Run) -> Answer:
    return asyncio.run(agent.adrive(run))


Way = tuple[type[Scripted], Callable[[Agent, Run], Answer]]
ways = pytest.mark.parametrize("way", [(Scripted, sync), (Scripted, tasks), (Later, tasks), (Awaited, tasks)], ids=["ss", "sa", "aa", "wa"])


def calls(*made: tuple[str, str, Any], **more: Any) -> Decision:
    return Decision(calls=tuple(ToolCall(name, args, call_id) for call_id, name, args in made), finish="tool_calls", **more)


DONE = Decision(text="done", finish="stop", usage=USAGE)


def tools() -> list[Tool]:
    return [
        Tool(name="read", fn=lambda k: {"k": k}, effect="pure", description="Read k.", args=TableArguments({"k": {"type": "int"}})),
        Tool(name="pay", fn=lambda x: "paid"),
    ]


def ran(way: Way, *turns: Any, other: dict[str, Any] | None = None, **more: Any) -> tuple[Answer, Scripted]:
    model = way[0](*turns, **(other or {}))
    agent = Agent(more.pop("tools", tools()), model, **{"limits": FREE, "clock": ScriptedClock(), **more})
    run = agent.start("find k", run_id="r")
    answer = way[1](agent, run)
    assert agent.replay(run) == run
    assert agent.load(agent.save(run)) == run
    return answer, model


def run_of(answer: Answer) -> Run:
    assert answer.run is not None
    return answer.run


# -- what it is asked ------------------------------------------------------------------------------------------------


@ways
def test_a_request_says_where_the_run_stands(way: Way) -> None:
    limits = Limits.off(max_steps=50, max_turns=10, max_tool_calls=5, deadline_s=25.0, reserve_s=2.0, max_tokens=1000)
    first = calls(("a", "read", {"k": 1}), ("b", "pay", {"x": "?"}), usage=USAGE)
    answer, model = ran(way, first, DONE, limits=limits, instructions="Be brief.")
    one, two = model.asked

    assert answer.text == "done"
    assert (one.run_id, one.state, one.purpose, one.attempt, one.schema, one.on_delta) == ("r", "gather", "decide", 1, None, None)
    assert one.instructions.startswith("Be brief.\n\n[Agent policy]")
    assert one.messages == (Message(role=Role.USER, text="find k"),)
    assert (one.summary, one.seconds_left) == ("", 23.0)
    assert one.left == {
        "max_turns": 10, "max_tool_calls": 5, "max_steps": 48, "max_tokens": 1000, "max_cost": None, "deadline_s": 25.0,
    }  # fmt: skip
    assert two.left["max_turns"] == 9
    assert two.left["max_tool_calls"] == 3
    assert two.left["max_tokens"] == 985
    assert "Left: 3 calls, 9 turns" in two.summary
    assert 'Known: read: {"k":1}; pay: paid.' in two.summary
    assert [(message.role, message.call_id) for message in two.messages] == [
        ("user", ""), ("assistant", ""), ("tool", "a"), ("tool", "b"),
    ]  # fmt: skip
    assert not any(two.summary in message.text for message in two.messages)


@ways
def test_a_request_is_what_it_was_whenever_it_is_read(way: Way) -> None:
    kept: list[ModelRequest] = []

    class Keeper(way[0]):  # type: ignore[misc,name-defined]
        def reply(self, request: ModelRequest) -> Any:
            kept.append(request)
            return super().reply(request)

    turns = (calls(("a", "read", {"k": 1}), usage=USAGE), calls(("b", "pay", {"x": 1}), usage=USAGE), DONE)
    limits = Limits.off(max_steps=50, max_turns=10, max_tool_calls=5, max_tokens=1000, max_cost=9.0, deadline_s=25.0)
    _, model = ran((Keeper, way[1]), *turns, limits=limits, instructions="Be brief.")

    assert len(kept) == 3
    # The first reading of the one was at once, of the other only now.
    fresh = [read_now(request) for request in kept]
    assert fresh == model.asked
    assert [request.left["max_turns"] for request in fresh] == [10, 9, 8]
    assert [bool(request.summary) for request in fresh] == [False, True, True]
    assert [repr(read_now(request)) for request in kept] == [repr(attrs.evolve(request)) for request in kept]
    assert pickle.loads(pickle.dumps(fresh[1])) == fresh[1] == copy.copy(fresh[1])
    assert fresh[1] != fresh[2]


def read_now(request: ModelRequest) -> ModelRequest:
    """The same request, as if nobody had read it yet."""
    assert all(hasattr(request, field.name) for field in attrs.fields(ModelRequest) if field.name not in ("left", "summary"))
    other = copy.copy(request)
    for name in ("left", "summary"):
        if name == "left" or request.summary:
            vars(other).pop(name, None)
    return other


def test_a_tool_is_offered_with_its_words_and_the_schema_of_its_arguments() -> None:
    _, model = ran((Scripted, sync), DONE)
    read, pay = model.asked[0].tools

    assert (read.name, read.description) == ("read", "Read k.")
    assert read.schema["properties"]["k"] == {"type": "integer"}
    assert (read.schema["required"], read.schema["additionalProperties"]) == (["k"], False)
    assert (pay.name, pay.description, pay.schema) == ("pay", "", {"type": "object"})


@ways
def test_only_tools_that_may_be_called_now_are_offered(way: Way) -> None:
    limits = Limits.off(max_steps=50, max_turns=9, max_same_tool_calls={"read": 1})
    turns = (calls(("a", "read", {"k": 1})), calls(("b", "pay", {"x": 1})), DONE)
    _, model = ran(way, *turns, limits=limits)
    assert [[offer.name for offer in request.tools] for request in model.asked] == [["read", "pay"], ["pay"], ["pay"]]
    assert "Tools you may call now in the state 'gather': read, pay" in model.asked[0].instructions
    assert "Tools you may call now in the state 'gather': pay" in model.asked[1].instructions

    _, model = ran(way, *turns, limits=FREE, allowed={"gather": ["pay"]})
    assert [[offer.name for offer in request.tools] for request in model.asked] == [["pay"]] * 3

    _, model = ran(way, *turns, limits=Limits.off(max_steps=50, max_turns=9, max_tool_calls=1))
    assert [len(request.tools) for request in model.of("decide")] == [2, 0]


def test_tools_that_are_exchanged_while_runs_go_on_are_offered_as_they_are() -> None:
    entries: dict[str, Any] = {"read": {"fn": print, "args": {"k": {"type": "int"}}, "description": "One."}}
    setup = Setup(table=AGENT, box=LiveTools(entries), work=WORK, limits=FREE)
    model = Scripted(DONE)
    decider, ask = ModelDecider(model, setup), Decide(Engine(setup).start("go"), ("read", "gone"))
    decider(ask)
    entries["read"] = {"fn": print, "args": {"n": {"type": "str"}}, "description": "Another."}
    decider(ask)
    del entries["read"]
    decider(ask)

    assert [[(offer.description, *offer.schema["properties"]) for offer in request.tools] for request in model.asked] == [
        [("One.", "k")], [("Another.", "n")], [],
    ]  # fmt: skip


@ways
def test_what_a_model_does_to_its_request_stays_with_it(way: Way) -> None:
    def spoils(request: ModelRequest) -> Decision:
        with pytest.raises((AttributeError, TypeError)):
            kept[-1].messages.clear()  # type: ignore[attr-defined]
        kept[-1].messages[:].clear()  # type: ignore[attr-defined]
        return calls((f"c{len(kept)}", "read", {"k": len(kept)})) if len(kept) < 3 else DONE

    kept: list[ModelRequest] = []

    class Spoiler(way[0]):  # type: ignore[misc,name-defined]
        def reply(self, request: ModelRequest) -> Any:
            kept.append(request)
            return super().reply(request)

    answer, model = ran((Spoiler, way[1]), spoils)
    assert [len(request.messages) for request in model.asked] == [1, 3, 5]
    assert answer.text == "done"


@ways
def test_a_typed_answer_asks_for_its_schema_and_is_fed_back_until_it_fits(way: Way) -> None:
    form = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    answer, model = ran(way, Decision(text='{"n": "x"}', finish="stop"), Decision(text='{"n": 5}', finish="stop"), answer=form)

    assert (answer.value, answer.stop_reason) == ({"n": 5}, "answered")
    assert all(request.schema is not None and request.schema["required"] == ["n"] for request in model.asked)
    assert "not of the form that was asked for" in model.asked[1].messages[-1].text


def test_limits_that_cannot_be_a_key_are_no_hindrance() -> None:
    limits = Limits.off(max_steps=50, max_turns=9, max_same_tool_calls={"read": 2})
    model = Scripted(calls(("a", "read", {"k": 1})), DONE)
    agent = Agent(tools(), model, limits=limits)
    assert agent.run("go").text == agent.run("go").text == "done"
    assert "Calls of one tool: read: 2" in model.asked[0].instructions


def test_the_texts_that_are_kept_do_not_grow_without_end() -> None:
    agent = Agent(tools(), Scripted(DONE), limits=FREE)
    decider: Any = agent.driver.decide
    for most in range(1, 700):
        agent.run("go", limits=Limits.off(max_steps=500, max_turns=most))
    assert 0 < len(decider._known) <= 256


TASK = TaskPolicy(goal="Find k.", done=["k is known"], output="one line", tool_rules=["read first"])


def test_without_a_policy_the_hosts_words_stand_alone() -> None:
    _, model = ran((Scripted, sync), DONE, instructions="Mine.", prompts=Prompts(agent_policy=False))
    assert model.asked[0].instructions == "Mine."


@ways
def test_the_host_chooses_which_generated_prompts_are_told(way: Way) -> None:
    chosen = Prompts(task=TASK, stop_contract=True)
    limits = Limits.off(max_steps=50, max_turns=9, max_tool_calls=1, max_same_call=2)
    turns = (calls(("a", "read", {"k": 1})), calls(("b", "read", {"k": 2})))
    _, model = ran(way, *turns, limits=limits, instructions="Be brief.", prompts=chosen)
    first, last = model.asked[0].instructions, model.asked[-1]

    assert first.startswith(f"Be brief.\n\n{TASK}\n\n{stop_contract(limits, Policy())}\n\n[Agent policy]")
    assert (last.purpose, last.instructions) == ("close", f"Be brief.\n\n{TASK}")


@ways
def test_what_is_told_is_what_is_in_force_at_each_request(way: Way) -> None:
    limits = Limits.off(max_steps=60, max_turns=9, max_same_call=1, max_same_tool_calls={"read": 1}, max_tool_calls=5)
    policy = Policy(duplicates="refuse")
    agent = Agent(tools(), model := way[0](calls(("a", "read", {"k": 1})), calls(("b", "pay", {"x": 1})), DONE),
                  limits=FREE, policy=policy, prompts=Prompts(stop_contract=True), allowed={"gather": ["read", "pay"]})  # fmt: skip
    run = agent.start("find k", limits=limits)
    way[1](agent, run)
    for request in model.asked:
        offered = [offer.name for offer in request.tools]
        wanted = f"{stop_contract(limits, policy)}\n\n{agent_policy(limits, policy, offered, request.state)}"
        assert request.instructions == wanted
    assert [[offer.name for offer in request.tools] for request in model.asked] == [["read", "pay"], ["pay"], ["pay"]]

    model.turns["decide"] = [calls(("c", "pay", {"x": 1})), calls(("d", "pay", {"x": 2})), DONE]
    stopped = agent.start("find k", limits=attrs.evolve(limits, max_tool_calls=1))
    way[1](agent, stopped)
    seen = len(model.asked)
    agent.engine.resume(stopped, {"max_tool_calls": 4})
    way[1](agent, stopped)
    assert all("Tool calls in all: 4" in request.instructions for request in model.asked[seen:])
    assert len(model.asked) > seen


# -- when it fails ---------------------------------------------------------------------------------------------------


@ways
@pytest.mark.parametrize("kind", FailureKind)
def test_a_failure_of_any_kind_is_made_again_or_ends_the_run_with_an_answer(way: Way, kind: FailureKind) -> None:
    answer, model = ran(way, calls(("a", "read", {"k": 1})), ModelFailed(kind, "words"), DONE)
    attempts = [request.attempt for request in model.of("decide")]

    if kind.passes:
        assert (answer.text, attempts) == ("done", [1, 1, 2])
        return
    assert attempts == [1, 1]
    assert (answer.stop_reason, answer.status) == ("model_error", "partial")
    assert "words" in answer.text
    assert answer.evidence[0].value == {"k": 1}


@ways
@pytest.mark.parametrize("most", [1, 2, 4])
def test_no_more_requests_are_made_than_the_policy_says(way: Way, most: int) -> None:
    policy = Policy(model_attempts=most, model_backoff_s=1.0)
    answer, model = ran(way, ModelFailed("server_error", "down"), policy=policy)

    assert [request.attempt for request in model.of("decide")] == list(range(1, most + 1))
    assert (answer.stop_reason, answer.status) == ("model_error", "failed")
    assert "server_error: down" in answer.text
    # One second, then two, then four, each with the second half of it by chance.
    assert 0.5 * (2 ** (most - 1) - 1) <= answer.usage["waited_s"] <= 2 ** (most - 1) - 1
    assert (answer.usage["waited_s"] > 0) is (most > 1)


@ways
def test_a_success_begins_the_count_anew(way: Way) -> None:
    fails = ModelFailed("timeout")
    turns = (fails, fails, calls(("a", "read", {"k": 1})), fails, fails, DONE)
    answer, model = ran(way, *turns, policy=Policy(model_attempts=3))

    assert answer.text == "done"
    assert [request.attempt for request in model.asked] == [1, 2, 3, 1, 2, 3]


@ways
@pytest.mark.parametrize("retry_after_s", [0.0, 7.5, float("nan"), float("inf"), -3.0])
def test_a_retry_after_is_honoured_where_it_is_one(way: Way, retry_after_s: float) -> None:
    answer, _ = ran(way, ModelFailed("rate_limited", "", retry_after_s), DONE, policy=Policy(model_backoff_s=1.0))

    assert answer.text == "done"
    if retry_after_s in (0.0, 7.5, -3.0):
        assert answer.usage["waited_s"] == max(0.0, retry_after_s)
    else:
        assert 0.5 <= answer.usage["waited_s"] <= 1.0


@ways
@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits.off(max_steps=50, max_turns=9, deadline_s=10.0), "deadline"),
        (Limits.off(max_steps=50, max_turns=9, max_wait_s=10.0), "max_wait"),
    ],
)
def test_a_wait_that_would_outlive_the_time_ends_the_run_now(way: Way, limits: Limits, reason: str) -> None:
    answer, model = ran(way, ModelFailed("rate_limited", "", 60.0), DONE, limits=limits)

    assert (answer.stop_reason, answer.usage["spent_s"], answer.usage["waited_s"]) == (reason, 0.0, 0.0)
    assert [request.purpose for request in model.asked] == ["decide", "close"]
    assert "close text" in answer.text


@ways
def test_a_run_whose_requests_failed_can_be_resumed(way: Way) -> None:
    model = way[0](ModelFailed("connection"), ModelFailed("connection"), DONE)
    agent = Agent(tools(), model, limits=FREE, clock=ScriptedClock(), policy=Policy(model_attempts=2))
    run = agent.start("go")
    assert way[1](agent, run).stop_reason == "model_error"
    agent.engine.resume(run)
    assert way[1](agent, run).text == "done"
    assert agent.replay(run) == run


@ways
def test_a_resumed_run_has_all_its_attempts_again(way: Way) -> None:
    fails = ModelFailed("connection")
    model = way[0](fails, fails, fails, DONE)
    agent = Agent(tools(), model, limits=FREE, clock=ScriptedClock(), policy=Policy(model_attempts=2))
    run = agent.start("go")
    way[1](agent, run)
    agent.engine.resume(run)

    assert way[1](agent, run).text == "done"
    assert [request.attempt for request in model.asked] == [1, 2, 1, 2]


@ways
@pytest.mark.parametrize(
    ("error", "again"),
    [(TimeoutError("slow"), True), (ConnectionResetError("cut"), True), (ValueError("odd"), False), (KeyError("k"), False),
     (asyncio.CancelledError("own"), False)],
    ids=repr,
)  # fmt: skip
def test_what_a_model_raises_of_its_own_is_made_again_or_ends_the_run_with_its_name(way: Way, error: Any, again: bool) -> None:
    answer, model = ran(way, error, DONE)

    assert len(model.of("decide")) == 1 + again
    assert (answer.text == "done") is again
    if not again:
        assert answer.stop_reason == "model_error"
        assert type(error).__name__ in answer.text


@ways
@pytest.mark.parametrize("nonsense", [5, {"text": "x"}, object(), [1], b"x"], ids=lambda one: type(one).__name__)
def test_a_reply_that_is_no_decision_ends_the_run_with_an_answer(way: Way, nonsense: Any) -> None:
    answer, _ = ran(way, nonsense)
    assert answer.stop_reason == "model_error"
    assert "it may give a Decision" in answer.text


@ways
def test_a_malformed_reply_is_fed_back_so_many_times(way: Way) -> None:
    limits = attrs.evolve(FREE, max_invalid_decisions=2)
    answer, model = ran(way, MalformedDecision("no JSON"), MalformedDecision("still none"), DONE, limits=limits)
    assert answer.text == "done"
    assert "no JSON" in model.asked[1].messages[-1].text
    assert "still none" in model.asked[2].messages[-1].text

    answer, model = ran(way, MalformedDecision("no JSON"), limits=limits)
    assert (answer.stop_reason, len(model.asked)) == ("invalid_decision", 3)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)], ids=repr)
@pytest.mark.parametrize("way", [(Scripted, sync), (Scripted, tasks), (Later, tasks)], ids=["ss", "sa", "aa"])
def test_an_interrupt_passes_through_a_model(way: Way, error: BaseException) -> None:
    model = way[0](error, DONE)
    agent = Agent(tools(), model, limits=FREE)
    run = agent.start("go")
    with pytest.raises(type(error)):
        way[1](agent, run)
    assert agent.answer(run).stop_reason == "cancelled"


# -- closing, writing, verifying -------------------------------------------------------------------------------------


@ways
def test_a_stopped_run_is_closed_by_the_model_without_tools_and_that_costs(way: Way) -> None:
    closing = Decision(text="as far as I know", finish="stop", usage=USAGE)
    limits = Limits.off(max_steps=50, max_turns=9, max_tool_calls=1, deadline_s=25.0, reserve_s=2.0)
    read = calls(("a", "read", {"k": 1}), usage=USAGE)
    again = calls(("b", "read", {"k": 2}), usage=USAGE)
    answer, model = ran(way, read, again, other={"close": [closing]}, limits=limits, instructions="Be brief.")
    request = model.asked[-1]

    assert answer.text.startswith("as far as I know")
    assert (answer.stop_reason, answer.status) == ("max_tool_calls", "partial")
    assert (answer.usage["turns"], answer.usage["tokens"], answer.usage["cost"]) == (3, 45, 0.75)
    assert (request.purpose, request.tools, request.instructions, request.seconds_left) == ("close", (), "Be brief.", 25.0)
    assert "max_tool_calls" in request.messages[-1].text
    assert [message.call_id for message in request.messages if message.role is Role.TOOL] == ["a", "b"]


@ways
@pytest.mark.parametrize(
    "closing", [ModelFailed("timeout"), MalformedDecision("x"), ValueError("x"), Decision(), Decision(text=" "), calls(("z", "read", {}))]
)
def test_a_closing_text_that_cannot_be_had_is_asked_for_once_and_made_from_the_evidence(way: Way, closing: Any) -> None:
    limits = Limits.off(max_steps=50, max_turns=9, max_tool_calls=1)
    read, again = calls(("a", "read", {"k": 1})), calls(("b", "read", {"k": 2}))
    answer, model = ran(way, read, again, other={"close": [closing]}, limits=limits)

    assert len(model.of("close")) == 1
    assert '- read: {"k":1}' in answer.text
    assert (answer.stop_reason, answer.status) == ("max_tool_calls", "partial")


@ways
def test_the_machine_of_seed_002_has_its_answer_written_from_the_evidence(way: Way) -> None:
    turns = (Decision(text="my plan", usage=USAGE), calls(*((f"c{n}", "read", {"k": n}) for n in range(3)), usage=USAGE))
    written = Decision(text="all of it", finish="stop", usage=USAGE)
    answer, model = ran(way, *turns, other={"synthesize": [written]}, machine=AUTOGPT, limits=Limits.autogpt())

    assert (answer.text, answer.stop_reason) == ("all of it", "answered")
    assert [request.purpose for request in model.asked] == ["decide", "decide", "synthesize"]
    assert answer.usage["tokens"] == 45
    assert all(f"c{n} read" in model.asked[-1].messages[-1].text for n in range(3))


@ways
def test_where_a_plan_is_wanted_a_model_is_told_so_and_which_tools_come_later(way: Way) -> None:
    turns = (Decision(text="my plan"), calls(*((f"c{n}", "read", {"k": n}) for n in range(3))))
    box = [*tools(), Tool(name="judge", fn=lambda x: x)]
    narrow = {"fetch": ["read"], "verify": ["judge"]}
    for prompts in (Prompts(), Prompts(agent_policy=False)):
        _, model = ran(way, *turns, tools=box, machine=AUTOGPT, allowed=narrow, verify=lambda judge: True, prompts=prompts)
        planning, deciding = (request.instructions for request in model.of("decide"))
        assert planning.endswith("Nothing can be called yet.\nTools you may call afterwards:\n- read: Read k.")
        assert "Write a plan now, not the answer" in planning
        assert "plan" not in deciding


@ways
def test_a_plan_is_not_asked_for_in_the_form_of_the_answer(way: Way) -> None:
    turns = (Decision(text="my plan"), calls(*((f"c{n}", "read", {"k": n}) for n in range(3))))
    answer, model = ran(way, *turns, other={"synthesize": [Decision(text="[1]")]}, machine=AUTOGPT, answer=list[int])
    assert (answer.value, answer.status) == ([1], "ok")
    assert [request.schema is not None for request in model.asked] == [False, True, True]


def test_a_plan_without_any_tool_is_asked_for_all_the_same() -> None:
    _, model = ran((Scripted, sync), Decision(text="my plan"), tools=[], machine=AUTOGPT)
    assert model.asked[0].instructions.endswith("Nothing can be called yet.")


@pytest.mark.parametrize(
    ("allowed", "named"), [({"gather": ["read"]}, ["read"]), ({"verify": ["pay"], "gather": ["read", "pay"]}, ["read", "pay"])]
)
def test_a_verifying_model_is_told_the_tools_that_its_next_action_may_name_and_no_other(allowed: Any, named: list[str]) -> None:
    verifier = Scripted(verify=[verdict('{"decision": "done", "reason": "", "next_action": null}')])
    ran((Scripted, sync), DONE, verify=verifier, allowed=allowed)
    told = verifier.asked[0].messages[0].text.partition("next_action may call:\n")[2]
    assert [line.partition("(")[0] for line in told.splitlines()] == [f"def {name}" for name in named]


def test_without_a_tool_no_next_action_is_spoken_of() -> None:
    verifier = Scripted(verify=[verdict('{"decision": "done", "reason": "", "next_action": null}')])
    ran((Scripted, sync), DONE, tools=[], verify=verifier)
    assert "next_action may call" not in verifier.asked[0].messages[0].text


def verdict(text: str) -> Decision:
    return Decision(text=text, usage=USAGE)


@ways
def test_a_verifying_model_says_what_is_missing_and_what_it_costs_is_counted(way: Way) -> None:
    more = '{"decision": "need_more", "reason": "k is missing", "next_action": {"tool": "read", "args": {"k": 7}}}'
    verifier = way[0](verify=[verdict(more), verdict('{"decision": "done", "reason": "", "next_action": null}')])
    answer, model = ran(way, DONE, verify=verifier)
    asked = verifier.asked

    assert (answer.text, answer.stop_reason) == ("done", "answered")
    assert [request.purpose for request in asked] == [Purpose.VERIFY] * 2
    assert all((request.schema, request.tools, request.instructions) == (VERDICT, (), "") for request in asked)
    assert "current_answer: done" in asked[0].messages[0].text
    assert asked[0].messages[0].text.endswith("next_action may call:\ndef read(k: int): ...  # Read k.\ndef pay(): ...")
    assert [call.args for call in run_of(answer).calls] == [{"k": 7}]
    assert "k is missing" in str(model.asked[-1].messages)
    # Two answers and two verdicts.
    assert answer.usage["tokens"] == 60
    assert answer.usage["cost"] == 1.0


@ways
@pytest.mark.parametrize("text", ["yes, fine", '{"decision": "maybe"}', "[]", ""])
def test_a_verdict_that_cannot_be_read_said_no_and_is_counted(way: Way, text: str) -> None:
    limits = attrs.evolve(FREE, max_verify_rounds=1)
    answer, _ = ran(way, DONE, verify=way[0](verify=[verdict(text)]), limits=limits)

    assert answer.stop_reason == "unverified"
    assert "the verifier gave no verdict" in str(answer.unknowns)
    assert answer.usage["tokens"] >= 30


@ways
@pytest.mark.parametrize("error", [ModelFailed("rate_limited", "slow"), MalformedDecision("no JSON"), ValueError("x")], ids=repr)
def test_a_verifying_model_that_fails_said_no(way: Way, error: BaseException) -> None:
    limits = attrs.evolve(FREE, max_verify_rounds=1)
    answer, _ = ran(way, DONE, verify=way[0](verify=[error]), limits=limits)
    assert answer.stop_reason == "unverified"


def test_the_form_of_a_verdict_names_every_key_that_it_has() -> None:
    form, action = SchemaResult(VERDICT), {"tool": "look", "args": {"q": 1}}
    verdict = {"decision": "need_more", "reason": "one source", "next_action": action}
    for whole in (verdict, {**verdict, "next_action": None}, {**verdict, "decision": "done"}):
        assert form.first_fault(whole) == ""
    for named in ({**verdict, "score": 1}, {**verdict, "next_action": {**action, "id": "c1"}}, {**verdict, "decision": "maybe"}):
        assert form.first_fault(named) == "shape"
    for name in verdict:
        assert form.first_fault({key: value for key, value in verdict.items() if key != name}) == "shape"
    for name in action:
        assert form.first_fault({**verdict, "next_action": {key: value for key, value in action.items() if key != name}}) == "shape"


# -- sync and async --------------------------------------------------------------------------------------------------


def test_a_sync_run_works_inside_a_running_loop() -> None:
    async def main() -> Answer:
        async def body(k: int) -> int:
            await asyncio.sleep(0)
            return k

        box = [Tool(name="read", fn=body, effect="pure"), Tool(name="slow", fn=body, effect="pure", timeout_s=5.0)]
        model = Scripted(calls(("a", "read", {"k": 1})), calls(("b", "slow", {"k": 2}), ("c", "read", {"k": 3})), DONE)
        return Agent(box, model, limits=FREE).run("go")

    answer = asyncio.run(main())
    assert (answer.text, [piece.value for piece in answer.evidence]) == ("done", [1, 2, 3])


@pytest.mark.parametrize("inside", [False, True], ids=["outside a loop", "inside a loop"])
@pytest.mark.parametrize("part", ["decide", "verify"])
def test_a_model_that_has_to_be_awaited_is_named_before_anything_is_called(part: str, inside: bool) -> None:
    later, quick = Later(DONE, verify=[verdict("{}")]), Scripted(DONE)
    agent = Agent(tools(), later, limits=FREE) if part == "decide" else Agent(tools(), quick, verify=later, limits=FREE)
    run = agent.start("go")
    before = agent.save(run)

    async def main() -> None:
        agent.drive(run)

    with pytest.raises(RunError, match=f"^{part} is a coroutine function; await arun or adrive instead"):
        asyncio.run(main()) if inside else agent.drive(run)
    assert (later.asked, quick.asked, run.driven, agent.save(run)) == ([], [], False, before)


def test_a_reply_that_turns_out_to_have_to_be_awaited_ends_a_sync_run_with_the_way_out() -> None:
    answer = Agent(tools(), Awaited(DONE), limits=FREE).run("go")
    assert answer.stop_reason == "model_error"
    assert "await arun or adrive instead" in answer.text


def test_sync_tools_and_models_serve_in_a_task() -> None:
    answer, _ = ran((Scripted, tasks), calls(("a", "read", {"k": 1})), DONE)
    assert answer.evidence[0].value == {"k": 1}


@pytest.mark.parametrize("kind", ["body", "request"])
def test_a_timeout_around_a_run_leaves_it_whole_and_resumable(kind: str) -> None:
    async def main() -> tuple[Agent, Run]:
        hangs = [True]

        async def slow(k: int = 0) -> int:
            if hangs:
                hangs.clear()
                await asyncio.sleep(20)
            return k

        class Slow(Later):
            async def reply(self, request: ModelRequest) -> Decision:  # type: ignore[override]
                if len(self.asked) == 1 and kind == "request":
                    self.asked.append(request)
                    await slow()
                return await super().reply(request)

        box = [Tool(name="read", fn=slow if kind == "body" else lambda k: k, effect="pure")]
        if kind == "request":
            assert hangs
        agent = Agent(box, Slow(calls(("a", "read", {"k": 1})), DONE), limits=FREE)
        run = agent.start("go")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await agent.adrive(run)
        assert agent.replay(run) == run
        assert agent.load(agent.save(run)) == run
        answer = await agent.aresume(run)
        assert answer.text == "done"
        return agent, run

    agent, run = asyncio.run(main())
    assert [call.value for call in run.calls] == [1]
    assert agent.replay(run) == run


def test_whatever_replies_is_a_model() -> None:
    assert is_model(Scripted())
    assert not is_model(lambda ask: None)
    assert not is_model(None)
    assert not is_model(type("Odd", (), {"reply": 5})())


ASKS = {
    "Question: Which archive?": ("", "Which archive?"),
    "Two were found.\n\n  question: Which one? \n": ("Two were found.", "Which one?"),
}
ASKS_NOT = ["Which archive?", "Question:", "Question: Which archive?\nThe first.", "A Question: which?", ""]


@pytest.mark.parametrize("kind", [Scripted, Later])
@pytest.mark.parametrize("text", ASKS)
def test_a_model_that_asks_as_the_stop_contract_says_ends_with_its_question(text: str, kind: type[Scripted]) -> None:
    model = kind(Decision(text=text, finish="stop"))
    answer = asyncio.run(Agent([reader()], model, prompts=Prompts(stop_contract=True)).arun("go"))

    said, question = ASKS[text]
    assert (answer.status, answer.stop_reason, answer.usage["turns"]) == ("ok", "question", 1)
    assert (answer.text, answer.next_questions) == ("\n".join(part for part in (said, question) if part), (question,))


@pytest.mark.parametrize("text", ASKS_NOT)
def test_any_other_text_is_an_answer(text: str) -> None:
    reply = Decision(text=text, finish="stop")
    assert with_question(reply) is reply


def test_what_is_no_text_alone_stays_as_it_is() -> None:
    asking = Decision(text="Question: x?")
    for reply in (None, 5, asking.text, attrs.evolve(asking, question="y?"), attrs.evolve(asking, calls=(ToolCall("t"),))):
        assert with_question(reply) is reply


def test_without_the_stop_contract_no_line_is_a_question() -> None:
    answer = Agent([reader()], Scripted(Decision(text="Question: Which?", finish="stop")), limits=Limits(min_evidence=0)).run("go")
    assert (answer.stop_reason, answer.text) == ("answered", "Question: Which?")


def reader() -> Tool:
    """A tool that nobody calls."""
    return Tool(name="read", fn=lambda: "read", effect="pure")
