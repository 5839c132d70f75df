"""The agent as its users meet it: runs, what they share, resuming, saving, and wrong configuration."""

from __future__ import annotations

import asyncio
import functools
import gc
import math
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fsm_agent import Agent, CallTools, Decision, Limits, Policy, Retry, Row, Run, State, Table, ToolCall, Verdict
from fsm_agent.core.answers import Answer
from fsm_agent.core.errors import (
    BuildError,
    CannotResume,
    ContractError,
    LimitsError,
    RunBusy,
    RunError,
    SavedRunError,
    TableError,
)
from fsm_agent.core.events import Decided
from fsm_agent.core.messages import Message, Role
from fsm_agent.core.tools import BreakerPolicy, Outcome, Tool
from fsm_agent.host.breaker import BreakerState
from fsm_agent.host.clock import ScriptedClock, SystemClock
from fsm_agent.host.memory import TtlMemory
from fsm_agent.testing import ScriptedDecider

LONG = 20.0


def off(**named: Any) -> Limits:
    """Nothing but steps and turns bounds a run, and what is named."""
    return Limits.off(**{"max_steps": 999, "max_turns": 99, **named})


def tool(name: str, fn: Callable[..., Any], **fields: Any) -> Tool:
    return Tool(**{"name": name, "fn": fn, "effect": "pure", **fields})


def script(*turns: Any) -> Callable[[Any], Any]:
    return lambda ask: turns[ask.run.turns] if ask.run.turns < len(turns) else "done"


def agent(*tools: Tool, decide: Any = None, **more: Any) -> Agent:
    return Agent(tools, decide or script(ToolCall("t")), **{"limits": off(), "clock": ScriptedClock(), **more})


def calls_of(answer: Answer) -> list[tuple[str, Any]]:
    assert answer.run is not None
    return [(call.tool, call.value if call.ok else call.error) for call in answer.run.calls]


def reused_in(answer: Answer) -> list[bool]:
    assert answer.run is not None
    return [call.reused for call in answer.run.calls]


def look_up(sku: str, limit: int = 1) -> dict[str, Any]:
    """Find an item."""
    return {"sku": sku, "limit": limit}


# -- runs ------------------------------------------------------------------------------------------------------------


def test_a_request_is_run_to_its_answer() -> None:
    answer = Agent([look_up], script(ToolCall("look_up", {"sku": "A"}))).run("find A")

    assert (answer.ok, answer.text, answer.stop_reason) == (True, "done", "answered")
    assert [piece.value for piece in answer.evidence] == [{"sku": "A", "limit": 1}]
    assert answer.path == ("normalize", "gather", "verify", "final")
    assert (answer.usage["turns"], answer.usage["tool_calls"], answer.usage["body_runs"]) == (2, 1, 1)
    assert answer.run is not None
    assert answer.run.request == "find A"


def test_the_same_in_a_running_loop() -> None:
    one = agent(tool("t", lambda: 1))

    assert asyncio.run(one.arun("go")).text == one.run("go").text == "done"


def test_one_agent_serves_threads_and_tasks_at_once() -> None:
    one = Agent(
        [look_up], lambda ask: "done" if ask.run.calls else ToolCall("look_up", {"sku": ask.run.request}), limits=off()
    )

    async def many(names: range) -> list[Answer]:
        return list(await asyncio.gather(*(one.arun(f"s{n}") for n in names)))

    with ThreadPoolExecutor(4) as pool:
        parts = pool.map(
            lambda k: (
                asyncio.run(many(range(k * 50, k * 50 + 50)))
                if k % 2
                else [one.run(f"s{n}") for n in range(k * 50, k * 50 + 50)]
            ),
            range(4),
        )
        answers = [answer for part in parts for answer in part]

    assert [answer.evidence[0].value["sku"] for answer in answers] == [f"s{n}" for n in range(200)]
    assert len({answer.run.id for answer in answers}) == 200  # type: ignore[union-attr]


@pytest.mark.parametrize("run_id", ["r1", "", "\ud800", "x" * 10_000])
def test_a_run_takes_its_own_name_seed_fields_scope_and_limits(run_id: str) -> None:
    one = agent(tool("t", lambda: 1))
    run = one.start("go", run_id=run_id, seed=7, scope="me", fields={"mine": 1}, limits=off(max_turns=3))

    assert (run.id, run.seed, run.scope, run.fields, run.limits.max_turns) == (run_id, 7, "me", {"mine": 1}, 3)
    assert one.drive(run).ok
    assert one.start("go", run_id=run_id).seed == one.start("go", run_id=run_id).seed


@pytest.mark.parametrize("run_id", [5, b"r1", [], object()])
def test_a_run_goes_by_a_text(run_id: Any) -> None:
    with pytest.raises(RunError, match=r"run_id is .*; give a text, or leave it out"):
        agent().start("go", run_id=run_id)


@pytest.mark.parametrize("request_", [None, "", "  ", [], {}, ()])
def test_an_empty_request_is_answered_with_a_reason(request_: Any) -> None:
    answer = agent().run(request_)

    assert (answer.status, answer.stop_reason) == ("failed", "invalid_request")


def test_a_run_that_was_not_driven_has_no_answer() -> None:
    one = agent()
    run = one.start("go")

    with pytest.raises(RunError, match=r"stands still in state 'gather' without an answer; drive it on"):
        one.answer(run)


def test_a_history_goes_on_with_a_message_written_as_a_mapping() -> None:
    host = agent(tool("look_up", look_up), decide=script(ToolCall("look_up", {"sku": "A"}), "seven"))
    said = host.history(host.run("how many A?").run)
    answer = host.run([*said, {"role": "user", "content": "and B?"}])

    assert (answer.status, answer.text) == ("ok", "seven")
    assert host.history(answer.run)[: len(said) + 1] == [*said, Message(role=Role.USER, text="and B?")]


def test_an_agent_without_a_decider_is_driven_by_hand() -> None:
    one = Agent([look_up], None)
    run = one.start("go")
    for drive in (lambda: one.drive(run), lambda: asyncio.run(one.adrive(run))):
        with pytest.raises(RunError, match="there is no decider; give the agent a model or a function, or drive the engine by hand"):
            drive()
    one.engine.tell(run, Decided(Decision(calls=(ToolCall("look_up", {"sku": "A"}),))))

    assert type(one.engine.ask(run)) is CallTools


@pytest.mark.parametrize("given", [True, False])
def test_the_closing_answer_comes_from_the_deciders_own_method_or_the_one_that_is_given(given: bool) -> None:
    decider = ScriptedDecider([ToolCall("t")], then="repeat-last", closing="by the decider")
    one = agent(
        tool("t", lambda: 1),
        decide=decider,
        limits=off(max_tool_calls=1),
        **({"close": lambda ask: "by the host"} if given else {}),
    )

    assert one.run("go").text.startswith("by the host" if given else "by the decider")
    assert decider.closed == (not given)


def test_something_called_close_that_cannot_be_called_closes_nothing() -> None:
    decider = ScriptedDecider([ToolCall("t")], then="repeat-last")
    decider.close = "no"  # type: ignore[method-assign, assignment]

    assert (
        agent(tool("t", lambda: 1), decide=decider, limits=off(max_tool_calls=1)).run("go").stop_reason
        == "max_tool_calls"
    )


def test_states_may_be_narrowed_to_some_tools() -> None:
    one = agent(
        tool("t", lambda: 1),
        tool("u", lambda: 2),
        decide=script([ToolCall("t"), ToolCall("u")]),
        allowed={"gather": ["u"]},
    )

    assert calls_of(one.run("go")) == [("t", "refused:not_allowed"), ("u", 2)]


def test_required_tools_and_a_verifier_decide_what_suffices() -> None:
    one = agent(
        tool("t", lambda: 1),
        tool("u", lambda: 2),
        decide=script("too soon", ToolCall("u"), "now"),
        required=["u"],
        verify=lambda ask: len(ask.run.calls) == 1,
    )

    assert one.run("go").text == "now"


def test_a_normalizer_is_asked_first() -> None:
    assert agent(normalizer=str.upper).run(" go ").run.request == "GO"  # type: ignore[union-attr]
    assert agent(normalizer=lambda request: 1 / 0).run("go").stop_reason == "invalid_request"


def test_a_machine_of_ones_own_with_work_of_ones_own() -> None:
    class Shout:
        def enter(self, setup: Any, run: Run) -> str:
            run.fields["loud"] = str(run.request).upper()
            return "ready"

        def ask(self, setup: Any, run: Run) -> Any:
            """Never asked."""

        def tell(self, setup: Any, run: Run, event: Any) -> Any:
            """Never told."""

    table = Table(
        "short",
        "shout",
        [State("shout", work="normalize"), State("think", work="decide"), State("end", work="answer")],
        [
            Row("shout", "ready", "think"),
            Row("shout", "rejected", "end"),
            Row("think", "decided", "end"),
            Row("think", "proposed", "end"),
            Row("think", "failed", "end"),
            Row("think", "stopped", "end"),
        ],
    )
    answer = Agent([], script("hi"), machine=table, work={"normalize": Shout()}, limits=off()).run("go")

    assert (answer.text, answer.path) == ("hi", ("shout", "think", "end"))
    assert answer.run is not None
    assert answer.run.fields == {"loud": "GO"}


# -- repairs ---------------------------------------------------------------------------------------------------------


def lower(name: str, args: Any) -> Any:
    return name, {**args, "limit": 2}


def spell(name: str, args: Any) -> Any:
    return name, {**args, "sku": "B"}


class Spelling:
    def __call__(self, name: str, args: Any) -> Any:
        return spell(name, args)


@pytest.mark.parametrize(
    ("repairs", "fixes"),
    [
        ({"args:range:limit": lower, "args:allowed:sku": spell}, ["spell", "lower"]),
        (
            {"args:range:limit": lambda n, a: lower(n, a), "args:allowed:sku": lambda n, a: spell(n, a)},
            ["args:allowed:sku", "args:range:limit"],
        ),
        (
            {"args:range:limit": functools.partial(lower), "args:allowed:sku": Spelling()},
            ["args:allowed:sku", "args:range:limit"],
        ),
        (
            {
                "args:range:limit": lower,
                "args:allowed:sku": type("X", (), {"__name__": "lower", "__call__": Spelling.__call__})(),
            },
            ["args:allowed:sku", "lower"],
        ),
    ],
    ids=["functions", "lambdas", "objects", "one name"],
)
def test_every_repair_has_a_name_of_its_own_and_is_tried(repairs: Any, fixes: list[str]) -> None:
    spec = {"sku": {"type": "str", "allowed": ["B"]}, "limit": {"type": "int", "max": 2}}
    one = Agent(
        {"t": {"fn": look_up, "args": spec}},
        script(ToolCall("t", {"sku": "A", "limit": 9})),
        limits=off(max_attempts=3),
        repairs=repairs,
    )
    answer = one.run("go")

    assert calls_of(answer) == [("t", {"sku": "B", "limit": 2})]
    assert answer.run is not None
    assert answer.run.fixes == fixes


def test_one_function_under_two_words_is_one_repair() -> None:
    def shrink(name: str, args: Any) -> Any:
        return name, {"n": args["n"] - 1}

    one = Agent(
        {"t": {"fn": lambda n: n, "args": {"n": {"type": "int", "max": 8}}, "returns": {"type": "int", "max": 7}}},
        script(ToolCall("t", {"n": 9})),
        limits=off(max_attempts=3),
        repairs={"args:range:n": shrink, "result:range": shrink},
        policy=Policy(redecide=False),
    )
    answer = one.run("go")
    assert answer.run is not None
    assert (answer.run.fixes, calls_of(answer)) == (["shrink"], [("t", "result:range")])


# -- memory ----------------------------------------------------------------------------------------------------------


def remembering(clock: ScriptedClock | None = None, **more: Any) -> tuple[Agent, list[int]]:
    ran: list[int] = []
    fields = more.pop("fields", {})
    one = agent(
        tool("t", lambda: ran.append(1) or len(ran), **fields),
        tool("w", lambda: "written", effect="idempotent"),
        tool("bad", lambda: 1 / 0),
        **{"memory": TtlMemory(), "ttl_s": 60.0, "clock": clock or ScriptedClock(), **more},
    )
    return one, ran


@pytest.mark.parametrize(
    "more",
    [
        {"memory": None, "ttl_s": None},
        {"ttl_s": None},
        {"ttl_s": 0},
        {"fields": {"cache_ttl_s": 0}},
        {"fields": {"effect": "idempotent"}},
    ],
)
def test_memory_is_opt_in(more: dict[str, Any]) -> None:
    one, ran = remembering(**more)
    for _ in range(3):
        one.run("go", scope="me")

    assert len(ran) == 3


@pytest.mark.parametrize("more", [{}, {"ttl_s": None, "fields": {"cache_ttl_s": 60.0}}, {"ttl_s": math.inf}])
def test_a_remembered_success_is_handed_back_marked_and_counted_as_a_call(more: dict[str, Any]) -> None:
    one, ran = remembering(**more)
    first, second = one.run("go", scope="me"), one.run("go", scope="me")

    assert (calls_of(first), reused_in(first)) == ([("t", 1)], [False])
    assert (calls_of(second), reused_in(second), len(ran)) == ([("t", 1)], [True], 1)
    assert (second.usage["tool_calls"], second.usage["body_runs"]) == (1, 0)
    assert asyncio.run(one.arun("go", scope="me")).usage["body_runs"] == 0


@pytest.mark.parametrize(
    "more", [{}, {"ttl_s": None, "fields": {"cache_ttl_s": 60.0}}, {"ttl_s": None, "fields": {"negative_ttl_s": 60.0}}]
)
def test_whoever_says_how_long_gets_a_memory_that_runs_of_one_scope_share(more: dict[str, Any]) -> None:
    one, ran = remembering(memory=None, **more)
    reused = [reused_in(one.run("go", scope=scope)) for scope in ("me", "me", "you", "", "")]

    only_failures = "fields" in more and "negative_ttl_s" in more["fields"]
    assert reused == [[False], [not only_failures], [False], [False], [False]]
    assert len(ran) == (5 if only_failures else 4)


def test_agents_share_no_memory_that_nobody_gave_them() -> None:
    ran: list[int] = []
    look = tool("t", lambda: ran.append(1) or len(ran), cache_ttl_s=60.0)
    for _ in range(2):
        agent(look).run("go", scope="me")

    assert len(ran) == 2


def test_a_failure_is_remembered_without_a_memory_of_the_hosts() -> None:
    one = agent(tool("bad", lambda: 1 / 0, negative_ttl_s=60.0), decide=script(ToolCall("bad"), ToolCall("bad"), "done"))
    answer = one.run("go")

    assert calls_of(answer) == [("bad", "raised:ZeroDivisionError")] * 2
    assert reused_in(answer) == [False, True]


@pytest.mark.parametrize("mended", [2, "no number"], ids=repr)
def test_a_failure_that_a_repair_followed_is_remembered_as_what_it_was(mended: Any) -> None:
    ran: list[int] = []

    def look(n: int) -> list[int]:
        ran.append(n)
        return [5] * n if n < 4 else [1 // 0]

    declared = {"fn": look, "args": {"n": {"type": "int"}}, "returns": {"type": "list", "max_len": 2}, "effect": "pure"}
    asks = [ToolCall("look", {"n": n}) for n in (3, 4, 3, 4)]
    repairs = {word: lambda tool, args: (tool, {"n": mended}) for word in ("result:too_big", "raised:ZeroDivisionError")}
    limits = Limits.off(max_turns=9, max_attempts=3)
    one = Agent({"look": declared}, script(*asks), negative_ttl_s=60.0, repairs=repairs, limits=limits)
    answer = one.run("go", scope="me")

    assert answer.run is not None
    assert [n for n in ran if n > 2] == [3, 4]
    assert [word for word in answer.run.errors if word in repairs] == ["result:too_big", "raised:ZeroDivisionError"] * 2


def test_nothing_found_is_no_failure_of_the_body_to_its_breaker_where_a_repair_follows_either() -> None:
    declared = {
        "fn": lambda n: [5] * n, "args": {"n": {"type": "int"}}, "returns": {"type": "list"}, "breaker": BreakerPolicy(failures=1),
    }  # fmt: skip
    repairs = {"result:empty": lambda tool, args: (tool, {"n": 1})}
    answer = Agent({"look": declared}, script(ToolCall("look", {"n": 0})), repairs=repairs).run("go")
    assert calls_of(answer) == [("look", [5])]


def test_memory_expires_by_the_hosts_wall_clock() -> None:
    clock = ScriptedClock(wall_start=1e9)
    one, ran = remembering(clock)
    one.run("go", scope="me")
    clock.advance(59.9)
    assert reused_in(one.run("go", scope="me")) == [True]
    clock.advance(0.1)
    assert reused_in(one.run("go", scope="me")) == [False]
    assert len(ran) == 2


def test_a_run_without_a_scope_remembers_for_itself_only() -> None:
    one, ran = remembering(decide=script(ToolCall("t"), ToolCall("t")))
    for _ in range(2):
        assert reused_in(one.run("go")) == [False, True]
    assert reused_in(one.run("go", scope="other")) == [False, True]
    assert len(ran) == 3


def test_scopes_share_nothing() -> None:
    one, ran = remembering()
    for scope in ("a", "b", "a", "b"):
        one.run("go", scope=scope)
    assert len(ran) == 2


def test_failures_are_remembered_only_with_a_time_to_live_and_replayed_and_counted() -> None:
    for more, runs in [({}, 2), ({"negative_ttl_s": 60.0}, 1)]:
        one, _ = remembering(decide=script(ToolCall("bad"), ToolCall("bad")), **more)
        answer = one.run("go", scope="me")
        assert answer.run is not None
        assert calls_of(answer) == [("bad", "raised:ZeroDivisionError")] * 2
        assert (answer.run.tool_errors, answer.usage["body_runs"]) == (2, runs)


def test_a_success_with_effects_forgets_what_the_scope_has_read() -> None:
    one, ran = remembering(decide=script(ToolCall("t"), ToolCall("w"), ToolCall("t")))
    one.run("go", scope="other")
    answer = one.run("go", scope="me")

    assert reused_in(answer) == [False, False, False]
    assert len(ran) == 4


# -- circuits --------------------------------------------------------------------------------------------------------


def breaking(clock: ScriptedClock, decide: Any = None, **fields: Any) -> tuple[Agent, list[int]]:
    ran: list[int] = []

    def body() -> str:
        ran.append(1)
        if len(ran) <= 3:
            raise ValueError
        return "well"

    return agent(
        tool("t", body, breaker=BreakerPolicy(failures=3, open_s=30.0), **fields), clock=clock, decide=decide
    ), ran


def test_three_failures_in_a_row_open_the_circuit_for_all_runs_until_a_probe_succeeds() -> None:
    clock = ScriptedClock()
    one, ran = breaking(clock)
    for _ in range(3):
        assert calls_of(one.run("go")) == [("t", "raised:ValueError")]
    clock.advance(10.0)
    for answer in (one.run("go"), asyncio.run(one.arun("go"))):
        assert calls_of(answer) == [("t", "refused:circuit_open")]
        assert answer.run is not None
        assert "20 s" in answer.run.calls[0].detail
        assert answer.run.tool_errors == 0
    clock.advance(20.0)
    assert calls_of(one.run("go")) == [("t", "well")]
    assert calls_of(one.run("go")) == [("t", "well")]
    assert len(ran) == 5


def test_the_tries_of_one_call_count_each_for_the_circuit() -> None:
    def classify(outcome: Outcome) -> Verdict | None:
        return Verdict(result_class="RETRYABLE") if outcome.error else None

    one, ran = breaking(ScriptedClock(), retry=Retry(attempts=3, backoff_s=(0.0,)), classify=classify)
    answer = one.run("go")

    assert len(ran) == 3
    assert calls_of(answer) == [("t", "raised:ValueError")]
    assert calls_of(one.run("go")) == [("t", "refused:circuit_open")]


def test_one_probe_at_a_time_whoever_asks() -> None:
    clock = ScriptedClock()
    began, release = threading.Event(), threading.Event()
    states: list[str] = ["fail"]

    def body() -> str:
        if states == ["fail"]:
            raise ValueError
        began.set()
        release.wait(LONG)
        return "well"

    one = agent(tool("t", body, breaker=BreakerPolicy(failures=1, open_s=5.0)), clock=clock)
    one.run("go")
    clock.advance(5.0)
    states.clear()
    with ThreadPoolExecutor(1) as pool:
        probe = pool.submit(one.run, "go")
        assert began.wait(LONG)
        assert calls_of(one.run("go")) == [("t", "refused:circuit_open")]
        assert one.driver.host.breakers is not None
        assert one.driver.host.breakers.snapshot()["t"].state is BreakerState.HALF_OPEN
        release.set()
        assert calls_of(probe.result()) == [("t", "well")]


def test_two_agents_have_circuits_of_their_own() -> None:
    clock = ScriptedClock()
    broken, _ = breaking(clock)
    for _ in range(4):
        broken.run("go")
    other, ran = breaking(clock)
    other.run("go")
    assert len(ran) == 1


# -- resuming, saving, replaying -------------------------------------------------------------------------------------


def stopped(**more: Any) -> tuple[Agent, Run]:
    decide = lambda ask: ToolCall("t", {"n": ask.run.turns}) if ask.run.turns < 5 else "done"  # noqa: E731
    one = agent(tool("t", lambda n: n), decide=decide, limits=off(max_turns=3), **more)
    run = one.start("go")
    assert one.drive(run).stop_reason == "max_turns"
    return one, run


def test_a_stopped_run_goes_on_with_the_raise_it_names() -> None:
    one, run = stopped()
    assert run.stop is not None
    answer = one.resume(run, **{name: value + 9 for name, value in run.stop.raise_to.items()})

    assert (answer.ok, len(calls_of(answer)), run.resumed) == (True, 5, 1)
    assert one.replay(run) == run


def test_the_callers_context_is_given_anew_each_time_a_run_is_taken_up() -> None:
    seen: list[Any] = []
    look = tool("t", lambda n, context: seen.append(context.context) or n, context_parameter="context")
    one = agent(look, decide=lambda ask: ToolCall("t", {"n": ask.run.turns}), limits=off(max_turns=1))
    run = one.run("go", context="run").run
    assert run is not None
    for turns, word in ((2, "resumed"), (3, None)):
        run = one.resume(one.load(one.save(run)), max_turns=turns, context=word).run
        assert run is not None
    asyncio.run(one.aresume(run, max_turns=4, context="in a task"))
    one.engine.resume(run, {"max_turns": 5})
    for _ in one.stream(run, context="read"):
        pass
    asyncio.run(one.arun("go", context="arun"))

    assert seen == ["run", "resumed", None, "in a task", "read", "arun"]


def test_the_same_in_a_running_loop_and_after_a_saving() -> None:
    one, run = stopped()
    again = one.load(one.save(run))
    answer = asyncio.run(one.aresume(again, max_turns=9))

    assert (answer.ok, answer.run is again, len(calls_of(answer))) == (True, True, 5)


@pytest.mark.parametrize(
    ("raises", "error", "words"),
    [
        ({}, CannotResume, "stays closed by max_turns; it goes on with max_turns=4"),
        ({"max_turns": 3}, CannotResume, "stays closed by max_turns"),
        ({"max_turns": 2}, CannotResume, "would fall from 3 to 2"),
        ({"turns": 9}, CannotResume, r"Limits has no field 'turns'; did you mean 'max_turns'\? it has max_steps, "),
        ({"max_turns": "9"}, CannotResume, "Limits.max_turns is '9'"),
    ],
)
def test_a_run_that_cannot_go_on_is_left_as_it_was(raises: dict[str, Any], error: type[Exception], words: str) -> None:
    one, run = stopped()
    before = one.save(run)
    with pytest.raises(error, match=words):
        one.resume(run, **raises)
    with pytest.raises(error, match=words):
        asyncio.run(one.aresume(run, **raises))

    assert (one.save(run), run.driven) == (before, False)
    assert one.resume(run, max_turns=9).ok


def test_a_run_that_is_being_driven_cannot_be_resumed_by_another() -> None:
    one, run = stopped()
    run.driven = True
    with pytest.raises(RunBusy):
        one.resume(run, max_turns=9)
    run.driven = False
    assert one.resume(run, max_turns=9).ok


def test_of_many_that_resume_a_run_at_once_one_goes_on() -> None:
    one, run = stopped()
    begin = threading.Barrier(8, timeout=LONG)

    def resume(_: int) -> bool:
        begin.wait()
        try:
            return one.resume(run, max_turns=9).ok
        except (CannotResume, RunBusy):
            return False

    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(resume, range(8)))
    # Whoever took it up may find it taken on the way to drive it; then it stands still and is driven on.
    if not any(done):
        assert one.drive(run).ok
    assert (run.resumed, len(run.calls)) == (1, 5)


def test_a_run_that_ended_of_itself_has_nothing_to_go_on_with() -> None:
    one = agent(tool("t", lambda: 1))
    answer = one.run("go")
    assert answer.run is not None
    with pytest.raises(CannotResume):
        one.resume(answer.run, max_turns=999)
    with pytest.raises(CannotResume):
        one.resume(one.start("go"))


@pytest.mark.parametrize("text", [None, 5, "", "{}", "no json", "[]", '{"format": "fsm_agent.run", "version": 1}'])
def test_what_is_no_saved_run_is_refused(text: Any) -> None:
    with pytest.raises(SavedRunError):
        agent().load(text)


def test_a_run_is_saved_at_every_step_and_goes_on_alike_on_another_agent() -> None:
    one, run = stopped()
    other, _ = stopped()
    for steps in range(len(run.journal) + 1):
        part = other.load(other.save(one.replay(run, steps)))
        answer = other.drive(part)
        assert (answer.stop_reason, len(part.calls)) == ("max_turns", len(run.calls))


# -- nothing is left behind ------------------------------------------------------------------------------------------


def test_runs_die_after_use() -> None:
    one = Agent([look_up], lambda ask: "done" if ask.run.calls else ToolCall("look_up", {"sku": "A"}))
    left: list[weakref.ref[Any]] = []

    async def arun() -> None:
        left.append(weakref.ref((await one.arun("go")).run))

    for _ in range(20):
        left.append(weakref.ref(one.run("go").run))
        asyncio.run(arun())
    failed = Agent([look_up], lambda ask: 1 / 0)
    left += [weakref.ref(failed.run("go").run) for _ in range(5)]
    gc.collect()

    assert [ref() for ref in left] == [None] * 45


def test_nothing_in_an_agent_grows_over_two_thousand_runs() -> None:
    one = agent(
        tool("t", lambda n: n),
        tool("bad", lambda: 1 / 0),
        memory=TtlMemory(max_entries=50),
        ttl_s=60.0,
        negative_ttl_s=60.0,
        decide=lambda ask: "done" if ask.run.turns else [ToolCall("t", {"n": ask.run.request}), ToolCall("bad")],
    )

    def some(start: int, count: int) -> None:
        for n in range(start, start + count):
            one.run(str(n), limits=off(max_turns=5 + n % 90))

    some(0, 300)
    gc.collect()
    before = sys.getallocatedblocks()
    some(300, 2000)
    gc.collect()

    # One block kept for each run would be 2000.
    assert sys.getallocatedblocks() - before < 1000
    assert len(one.driver.host.memory) == 50  # type: ignore[arg-type]


# -- wrong configuration ---------------------------------------------------------------------------------------------

WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "tools": ({"tools": 5}, ContractError, "5 is no set of tools"),
    "two of a name": ({"tools": [look_up, look_up]}, ContractError, "two tools are named 'look_up'"),
    "model": ({"model": 5}, BuildError, r"model is 5; give a model \(an object with reply\) or a function"),
    "model text": ({"model": "gpt"}, BuildError, r"model is 'gpt'; give a model \(an object with reply\) or a function"),
    "verify": ({"verify": True}, BuildError, r"verify is True; give a model \(an object with reply\) or a function"),
    "close": ({"close": "bye"}, BuildError, "close is 'bye'; give a function"),
    "normalizer": ({"normalizer": 5}, BuildError, "normalizer is 5; give a function"),
    "limits": ({"limits": 5}, BuildError, "limits is 5; give a Limits, or leave it out"),
    "limits dict": ({"limits": {"max_turns": 5}}, BuildError, "give a Limits"),
    "policy": ({"policy": "stop"}, BuildError, "policy is 'stop'; give a Policy"),
    "machine": ({"machine": "agent"}, BuildError, "machine is 'agent'; give a Table"),
    "memory": ({"memory": 5}, BuildError, "memory is 5; give a Memory"),
    "clock": ({"clock": 5}, BuildError, "clock is 5; give a Clock"),
    "ttl": ({"ttl_s": -1.0}, BuildError, "ttl_s is -1; give seconds from 0"),
    "ttl below 0": (
        {"ttl_s": -1.0, "memory": TtlMemory()},
        BuildError,
        "ttl_s is -1; give seconds from 0, math.inf for good, or None",
    ),
    "ttl text": ({"ttl_s": "5", "memory": TtlMemory()}, BuildError, "ttl_s: expected a number of seconds"),
    "ttl nan": (
        {"negative_ttl_s": math.nan, "memory": TtlMemory()},
        BuildError,
        "negative_ttl_s: expected a finite number",
    ),
    "repair": (
        {"repairs": {"args:range:n": "limit"}},
        BuildError,
        "the repair of 'args:range:n' is 'limit'; give a function",
    ),
    "state": ({"allowed": {"nowhere": []}}, TableError, "has no state 'nowhere'"),
    "unbounded": ({"limits": Limits.off()}, TableError, "no limit in force bounds the cycle"),
}


@pytest.mark.parametrize(("more", "error", "words"), WRONG.values(), ids=WRONG)
def test_wrong_configuration_fails_at_build_and_names_the_mend(
    more: dict[str, Any], error: type[Exception], words: str
) -> None:
    given = {"tools": [look_up], "model": script("done"), **more}
    with pytest.raises(error, match=words):
        Agent(given.pop("tools"), given.pop("model"), **given)


@pytest.mark.parametrize("limits", [5, {"max_turns": 3}, "lab"])
def test_a_run_takes_limits_and_nothing_else_for_them(limits: Any) -> None:
    with pytest.raises(BuildError, match=r"limits is .*; give a Limits"):
        agent().run("go", limits=limits)
    with pytest.raises(TableError):
        agent().run("go", limits=Limits.off())
    with pytest.raises(LimitsError):
        off(max_turns=-1)


def test_an_agent_has_a_clock_and_circuits_by_default_and_no_memory() -> None:
    host = Agent([], script("done")).driver.host

    assert isinstance(host.clock, SystemClock)
    assert host.breakers is not None
    assert host.memory is None


def test_a_decision_of_many_parts_is_taken_as_it_is() -> None:
    one = agent(
        tool("t", lambda: 1),
        decide=script(Decision(calls=(ToolCall("t", id="mine"),), text="thinking"), Decision(question="Which?")),
    )
    answer = one.run("go")

    assert (answer.stop_reason, answer.next_questions) == ("question", ("Which?",))
    assert answer.run is not None
    assert [call.id for call in answer.run.calls] == ["mine"]


@pytest.mark.parametrize("verify", [None, lambda judge: True])
@pytest.mark.parametrize("limits", [Limits(), Limits(min_evidence=0)], ids=["evidence asked for", "none asked for"])
def test_a_run_asks_what_became_of_a_call_whatever_evidence_is_asked_for(verify: Any, limits: Limits) -> None:
    def pay(n: int) -> str:
        raise OSError("the line was cut")

    def decide(ask: Any) -> Any:
        return "Sorry, it failed." if ask.run.calls else ToolCall("pay", {"n": 1}, id="p")

    agent = Agent({"pay": {"fn": pay, "effect": "at_most_once", "args": {"n": {"type": "int"}}}}, decide, limits=limits, verify=verify)
    answer = agent.run("refund")

    assert (answer.stop_reason, answer.usage["turns"]) == ("question", 2)
    assert answer.next_questions == ("Did pay (p) take effect? It was begun, and what became of it is not known.",)
    assert agent.replay(answer.run) == answer.run
