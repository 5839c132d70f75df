"""Performing a call: memory, then the breaker, then the body; and what both learn of its end."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from fsm_agent.agent import Agent
from fsm_agent.core.events import CircuitOpen, Raised, Returned, Reused, Skipped
from fsm_agent.core.limits import Limits
from fsm_agent.core.run import Call, Run
from fsm_agent.core.tools import BreakerPolicy, Outcome, Tool
from fsm_agent.core.values import EffectClass, ResultClass, ToolCall, Verdict
from fsm_agent.host import perform
from fsm_agent.host.breaker import Breakers, BreakerState
from fsm_agent.host.clock import ScriptedClock
from fsm_agent.host.memory import TtlMemory
from fsm_agent.host.perform import Performance
from fsm_agent.host.ports import Host, ToolContext

NOT_PURE = [EffectClass.IDEMPOTENT, EffectClass.AT_MOST_ONCE, EffectClass.UNDECLARED]


def tool(**fields: Any) -> Tool:
    return Tool(**{"name": "t", "fn": lambda **_: None, "effect": "pure", **fields})


def call(**fields: Any) -> Call:
    return Call(**{"id": "c1", "tool": "t", "args": {"n": 1}, **fields})


def run(**fields: Any) -> Run:
    return Run(**{"id": "r1", "request": "go", "state": "s", "limits": Limits.off(), **fields})


def host(**fields: Any) -> Host:
    return Host(**{"clock": ScriptedClock(), "memory": TtlMemory(), "ttl_s": 60.0, **fields})


def settled(by: Host, made: Performance, event: Any, *, whose: Run | None = None, **how: Any) -> None:
    """Settle the call as a run would, and let memory and breaker know."""
    made.event = event
    for name, value in {"ok": True, "value": "found", **how}.items():
        setattr(made.call, name, value)
    perform.after(by, whose or run(), made)


def asked(by: Host, whose: Run | None = None, one: Tool | None = None, **args: Any) -> Performance:
    return perform.before(by, whose or run(), call(args=args or {"n": 1}), one or tool())


# -- memory ----------------------------------------------------------------------------------------------------------


def remember(by: Host, one: Tool | None = None, whose: Run | None = None, **how: Any) -> None:
    made = asked(by, whose, one)
    event = Returned("c1", "found") if how.get("ok", True) else Raised("c1", "ValueError")
    settled(by, made, event, whose=whose, **how)


def known(by: Host, one: Tool | None = None, whose: Run | None = None, **args: Any) -> bool:
    return isinstance(asked(by, whose, one, **args).event, Reused)


@pytest.mark.parametrize("tool_ttl", [None, 0, 5.0, math.inf])
@pytest.mark.parametrize("host_ttl", [None, 0, 5.0, math.inf])
@pytest.mark.parametrize("memory", [True, False])
@pytest.mark.parametrize("effect", [EffectClass.PURE, *NOT_PURE])
def test_memory_is_opt_in_and_for_pure_tools(tool_ttl: Any, host_ttl: Any, memory: bool, effect: EffectClass) -> None:
    if tool_ttl and effect is not EffectClass.PURE:
        return
    by = host(memory=TtlMemory() if memory else None, ttl_s=host_ttl)
    one = tool(cache_ttl_s=tool_ttl, effect=effect)
    remember(by, one)

    assert known(by, one) is (
        memory and effect is EffectClass.PURE and bool(host_ttl if tool_ttl is None else tool_ttl)
    )


@pytest.mark.parametrize("own", [None, 5.0])
def test_of_what_is_polled_only_what_its_own_contract_lets_live_is_remembered(own: float | None) -> None:
    by = host(ttl_s=5.0)
    one = tool(polling=True, cache_ttl_s=own)
    remember(by, one)

    assert known(by, one) is (own is not None)


def test_a_time_to_live_of_zero_takes_nothing_that_others_remember() -> None:
    by = host()
    remember(by, tool(cache_ttl_s=5.0))

    assert known(by, tool(cache_ttl_s=5.0))
    assert not known(by, tool(cache_ttl_s=0))
    assert not known(by, tool(cache_ttl_s=0, negative_ttl_s=5.0))


def test_what_is_remembered_is_handed_back_under_the_calls_own_id() -> None:
    by = host()
    remember(by, value={"rows": [1]})
    made = perform.before(by, run(), call(id="other"), tool())

    assert made.event == Reused("other", {"rows": [1]}, "")


@pytest.mark.parametrize(
    ("tool_ttl", "host_ttl", "lives"), [(5.0, 60.0, 5.0), (None, 60.0, 60.0), (100.0, None, 100.0)]
)
def test_the_tools_own_time_to_live_comes_before_the_hosts(tool_ttl: Any, host_ttl: Any, lives: float) -> None:
    clock = ScriptedClock(wall_start=1e9)
    by, one = host(clock=clock, ttl_s=host_ttl), tool(cache_ttl_s=tool_ttl)
    remember(by, one)
    clock.advance(lives - 0.001)
    assert known(by, one)
    clock.advance(0.001)
    assert not known(by, one)


def test_what_lives_for_good_outlives_any_clock() -> None:
    clock = ScriptedClock()
    by = host(clock=clock, ttl_s=math.inf)
    remember(by)
    clock.advance(1e8)
    assert known(by)


@pytest.mark.parametrize(
    ("left", "right", "shared"), [("", "", False), ("a", "a", True), ("a", "b", False), ("r1", "", True)]
)
def test_a_scope_shares_with_nobody_else(left: str, right: str, shared: bool) -> None:
    by = host()
    remember(by, whose=run(id="r1", scope=left))

    assert known(by, whose=run(id="r1" if left == "r1" else "r2", scope=right)) is shared


def test_other_arguments_or_another_tool_are_another_call() -> None:
    by = host()
    remember(by)

    assert known(by)
    assert not known(by, n=2)
    assert not known(by, n=1.0)
    assert not known(by, tool(name="u"))


def test_identity_arguments_alone_make_two_calls_the_same() -> None:
    by, one = host(), tool(identity=("n",))
    remember(by, one)

    assert known(by, one, n=1, note="other")
    assert not known(by, one, n=2)


@pytest.mark.parametrize("tool_ttl", [None, 0, 5.0])
@pytest.mark.parametrize("host_ttl", [None, 5.0])
def test_failures_are_remembered_only_where_that_is_asked_for(tool_ttl: Any, host_ttl: Any) -> None:
    by, one = host(negative_ttl_s=host_ttl), tool(negative_ttl_s=tool_ttl)
    remember(by, one, ok=False, error="raised:ValueError", value=None)
    made = asked(by, None, one)

    wanted = bool(host_ttl if tool_ttl is None else tool_ttl)
    assert made.event == (Reused("c1", None, "raised:ValueError") if wanted else None)


@pytest.mark.parametrize("result_class", [*ResultClass, None])
def test_a_failure_of_any_class_is_remembered_once_its_tries_are_used_up(result_class: ResultClass | None) -> None:
    by = host(negative_ttl_s=5.0)
    remember(by, ok=False, error="raised:X", value=None, result_class=result_class)

    assert known(by)


@pytest.mark.parametrize("result_class", [*ResultClass, None])
def test_a_value_that_was_classified_otherwise_than_ok_is_not_remembered_as_a_success(result_class: Any) -> None:
    by, one = host(), tool()
    verdict = None if result_class is None else Verdict(result_class=result_class)
    settled(by, asked(by, None, one), Returned("c1", "found", verdict), result_class=result_class)

    assert known(by) is (result_class in (None, ResultClass.OK))


def test_failures_may_be_remembered_without_successes() -> None:
    by = host(ttl_s=None, negative_ttl_s=5.0)
    remember(by)
    assert not known(by)
    remember(by, ok=False, error="raised:X")
    assert known(by)


@pytest.mark.parametrize("effect", [EffectClass.PURE, *NOT_PURE])
@pytest.mark.parametrize("ok", [True, False])
def test_a_success_with_effects_forgets_what_its_own_scope_has_read(effect: EffectClass, ok: bool) -> None:
    by = host()
    remember(by, whose=run(scope="a"))
    remember(by, whose=run(scope="b"))
    settled(
        by, asked(by, run(scope="a"), tool(name="w", effect=effect)), Returned("c1", 1), whose=run(scope="a"), ok=ok
    )

    assert known(by, whose=run(scope="a")) is not (ok and effect is not EffectClass.PURE)
    assert known(by, whose=run(scope="b"))


@pytest.mark.parametrize("event", [Reused("c1", "x"), CircuitOpen("c1", 1.0), Skipped("c1", "hook")])
def test_what_no_body_said_is_not_remembered(event: Any) -> None:
    by = host(negative_ttl_s=5.0)
    settled(by, asked(by), event)
    assert not known(by)


@pytest.mark.parametrize("ran", [True, False])
def test_a_body_that_never_began_says_nothing_of_its_call(ran: bool) -> None:
    by = host(negative_ttl_s=5.0)
    settled(by, asked(by), Raised("c1", "TimeoutError", "", None, ran), ok=False, value=None, error="raised:TimeoutError")
    assert known(by) is ran


def test_a_call_that_will_be_tried_again_is_not_remembered_yet() -> None:
    by = host(negative_ttl_s=5.0)
    settled(by, asked(by), Raised("c1", "ConnectionError"), ok=None, value=None)
    assert not known(by)


def test_without_a_clock_everything_is_remembered_for_good() -> None:
    by = Host(memory=TtlMemory(), ttl_s=5.0)
    remember(by)
    assert known(by)


# -- the breaker -----------------------------------------------------------------------------------------------------

POLICY = BreakerPolicy(failures=2, open_s=10.0)


def guarded(**fields: Any) -> Host:
    return host(memory=None, breakers=Breakers(), **fields)


def state_of(by: Host) -> BreakerState:
    assert by.breakers is not None
    return by.breakers.snapshot()["t"].state


def test_without_breakers_or_a_policy_no_circuit_opens() -> None:
    for by, one in [(host(memory=None), tool()), (guarded(), tool(breaker=None))]:
        for _ in range(9):
            made = asked(by, None, one)
            assert (made.ticket, made.event) == (None, None)
            settled(by, made, Raised("c1", "X"), ok=False, error="raised:X")


ENDS: dict[str, tuple[Any, dict[str, Any], bool]] = {
    "raised": (Raised("c1", "X"), {"ok": False, "error": "raised:X"}, True),
    "timed out": (Raised("c1", "TimeoutError"), {"ok": False, "error": "raised:TimeoutError"}, True),
    "to be tried again": (Returned("c1", 1), {"ok": None}, True),
    "out of contract": (Returned("c1", 1), {"ok": False, "error": "result:shape"}, True),
    "empty": (Returned("c1", 1), {"ok": False, "error": "result:empty"}, False),
    "a success": (Returned("c1", 1), {"ok": True}, False),
    "never ran": (Raised("c1", "TypeError", ran=False), {"ok": False, "error": "raised:TypeError"}, False),
}


@pytest.mark.parametrize(("event", "how", "fails"), ENDS.values(), ids=ENDS)
def test_a_breaker_opens_by_failures_of_the_tool(event: Any, how: dict[str, Any], fails: bool) -> None:
    by, one = guarded(), tool(breaker=POLICY)
    for _ in range(POLICY.failures):
        settled(by, asked(by, None, one), event, **how)

    assert state_of(by) is (BreakerState.OPEN if fails else BreakerState.CLOSED)


def test_an_open_circuit_answers_with_the_time_until_a_probe() -> None:
    clock = ScriptedClock()
    by, one = guarded(clock=clock), tool(breaker=POLICY)
    for _ in range(2):
        settled(by, asked(by, None, one), Raised("c1", "X"), ok=False, error="raised:X")
    clock.advance(4.0)
    assert asked(by, None, one).event == CircuitOpen("c1", 6.0)
    clock.advance(6.0)
    probe = asked(by, None, one)
    assert probe.event is None
    assert asked(by, None, one).event == CircuitOpen("c1", 0.0)
    settled(by, probe, Returned("c1", 1))
    assert asked(by, None, one).event is None


def test_memory_answers_before_the_breaker_is_asked() -> None:
    by, one = host(breakers=Breakers()), tool(breaker=POLICY)
    remember(by, one)

    assert isinstance(asked(by, None, one).event, Reused)
    assert by.breakers is not None
    assert by.breakers.snapshot()["t"].failures == 0


def probed() -> tuple[Host, Tool, Performance]:
    """A host whose circuit is half open, with the probe on its way."""
    clock = ScriptedClock()
    by, one = guarded(clock=clock), tool(breaker=BreakerPolicy(failures=1, open_s=1.0))
    settled(by, asked(by, None, one), Raised("c1", "X"), ok=False, error="raised:X")
    clock.advance(1.0)
    return by, one, asked(by, None, one)


def test_a_ticket_that_is_given_back_frees_the_place_of_a_probe() -> None:
    by, one, probe = probed()
    assert asked(by, None, one).event == CircuitOpen("c1", 0.0)
    perform.release(by, [probe, Performance(call(), one)])
    perform.release(host(), [probe])

    assert asked(by, None, one).event is None


def test_a_probe_that_never_ran_frees_its_place_too() -> None:
    by, one, probe = probed()
    settled(by, probe, Raised("c1", "TypeError", ran=False), ok=False, error="raised:TypeError")

    assert asked(by, None, one).event is None


def test_a_ticket_is_good_for_one_word() -> None:
    by, one = guarded(), tool(breaker=POLICY)
    made = asked(by, None, one)
    settled(by, made, Raised("c1", "X"), ok=False, error="raised:X")
    settled(by, made, Raised("c1", "X"), ok=False, error="raised:X")
    perform.release(by, [made])

    assert state_of(by) is BreakerState.CLOSED


# -- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args", [{}, {"n": 1, "s": "x", "b": True, "f": 1.5, "z": None, "y": b"x"}, {"deep": [{"a": [1]}]}, {"t": (1, [2])}]
)
def test_a_body_gets_a_copy_of_its_own(args: dict[str, Any]) -> None:
    one = call(args=args)
    own = perform.arguments(tool(), one, run(), None, None)

    assert own == args
    assert own is not args
    for name, value in args.items():
        assert own[name] is not value or not isinstance(value, list | tuple)


def test_a_builder_makes_what_the_function_takes_and_a_context_comes_on_top() -> None:
    one = tool(build=lambda args: {"total": args["n"] + 1}, context_parameter="ctx")
    own = perform.arguments(one, call(tries=2), run(), 3.5, "mine")

    assert own == {
        "total": 2,
        "ctx": ToolContext(
            run_id="r1", call_id="c1", tool="t", attempt=2, idempotency_key="r1:c1", left_s=3.5, context="mine"
        ),
    }


@pytest.mark.parametrize("tries", [1, 2, 3])
def test_the_idempotency_key_of_a_call_is_the_same_for_every_try(tries: int) -> None:
    own = perform.arguments(tool(context_parameter="ctx"), call(tries=tries), run(), None, None)
    assert own["ctx"].idempotency_key == "r1:c1"


def test_arguments_that_cannot_be_read_are_the_callers_to_catch() -> None:
    with pytest.raises((TypeError, ValueError)):
        perform.arguments(tool(), call(args=5), run(), None, None)


# -- events ----------------------------------------------------------------------------------------------------------


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


def verdict(outcome: Outcome) -> Verdict:
    return Verdict(result_class=ResultClass.RETRYABLE, reason=f"{outcome.value} {outcome.error} {outcome.message}")


def confused(outcome: Outcome) -> Any:
    raise LookupError


@pytest.mark.parametrize(
    ("classify", "reason"),
    [
        (None, None),
        (verdict, "1  "),
        (confused, None),
        (lambda outcome: "RETRYABLE", ""),
        (lambda outcome: ResultClass.RETRYABLE, ""),
        (lambda outcome: "retry", None),
        (lambda outcome: {"result_class": "RETRYABLE"}, None),
        (lambda outcome: None, None),
    ],
)
def test_a_classifier_is_asked_about_a_value(classify: Callable[..., Any] | None, reason: str | None) -> None:
    event = perform.returned(tool(classify=classify), call(), 1)

    assert event == Returned(
        "c1", 1, None if reason is None else Verdict(result_class=ResultClass.RETRYABLE, reason=reason)
    )


@pytest.mark.parametrize(("classify", "reason"), [(None, None), (verdict, "None ValueError no luck"), (confused, None)])
@pytest.mark.parametrize("ran", [True, False])
def test_a_classifier_is_asked_about_an_error_of_a_body_that_ran(classify: Any, reason: str | None, ran: bool) -> None:
    event = perform.raised(tool(classify=classify), call(), ValueError("no luck"), ran=ran)

    assert isinstance(event, Raised)
    assert (event.error, event.message, event.ran) == ("ValueError", "no luck", ran)
    assert (event.verdict.reason if event.verdict else None) == (reason if ran else None)


def test_the_message_of_an_error_is_capped_and_never_fails() -> None:
    assert len(perform.message_of(ValueError("x" * 10_000))) == 2000
    for one in (tool(), tool(secret=["n"])):
        told = perform.raised(one, call(), ValueError("x" * 10_000))
        assert isinstance(told, Raised)
        assert len(told.message) == 2000
    assert perform.message_of(Unprintable()) == "(the message of the Unprintable could not be read)"
    assert perform.raised(tool(), call(), Unprintable()) == Raised(
        "c1", "Unprintable", perform.message_of(Unprintable())
    )


def test_secret_arguments_are_redacted_from_the_message_and_from_what_the_classifier_hears() -> None:
    heard: list[str] = []
    one = tool(secret=["token"], classify=lambda outcome: heard.append(outcome.message))
    event = perform.raised(one, call(args={"token": "s3cr3t", "n": 1}), ValueError("token s3cr3t is wrong"))

    assert isinstance(event, Raised)
    assert event.message == "token [redacted] is wrong"
    assert heard == [event.message]


def test_a_late_body_says_whether_it_began() -> None:
    assert perform.late(call(), 0.25, ran=True) == Raised(
        "c1", "TimeoutError", "the body did not end in 0.25 s", None, True
    )
    assert perform.late(call(), 2.0, ran=False) == Raised(
        "c1", "TimeoutError", "the body could not begin in 2 s", None, False
    )


@pytest.mark.parametrize("value", [object(), [object()], len], ids=range(3))
def test_a_call_with_an_object_that_only_its_identity_tells_apart_is_never_remembered(value: Any) -> None:
    by = host()
    for _ in range(2):
        made = asked(by, None, None, n=value)
        assert made.event is None
        settled(by, made, Returned("c1", "found"))
    assert asked(by, None, tool(identity=("m",)), n=value, m=1).key
    assert perform.peek(by, run(), call(args={"n": value}), tool()) is None


@pytest.mark.parametrize(
    ("timeout", "deadline", "spent", "left"),
    [
        (None, None, 0.0, None),
        (5.0, None, 99.0, 5.0),
        (None, 20.0, 5.0, 13.0),
        (5.0, 20.0, 5.0, 5.0),
        (5.0, 20.0, 15.0, 3.0),
        (5.0, 20.0, 99.0, 0.0),
        (None, 0.0, 0.0, 0.0),
    ],
)
def test_a_body_has_its_own_time_and_no_more_than_is_left_for_work(
    timeout: Any, deadline: Any, spent: float, left: Any
) -> None:
    limits = Limits.off(deadline_s=deadline, reserve_s=2.0)

    assert perform.seconds_left(tool(timeout_s=timeout), run(limits=limits, spent_s=spent)) == left


class _Unreadable(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise KeyboardInterrupt


class _Mute(Exception, metaclass=_Unreadable):
    def __str__(self) -> str:
        raise GeneratorExit


@pytest.mark.parametrize("timeout_s", [None, 5.0])
def test_an_exception_that_can_be_neither_named_nor_printed_is_a_failure_like_any_other(timeout_s: float | None) -> None:
    def fails() -> None:
        raise _Mute

    tool = Tool(name="fails", fn=fails, effect="pure", timeout_s=timeout_s)
    answer = Agent([tool], lambda ask: "end" if ask.run.calls else ToolCall("fails")).run("x")
    assert [call.error for call in answer.run.calls] == ["raised:Exception"]


class _Shapeless:
    @property
    def __class__(self) -> type:
        raise ValueError


@pytest.mark.parametrize("make", [_Shapeless, lambda: 5, lambda: None, lambda: "fatal?"], ids=range(4))
def test_a_classifier_that_gives_no_verdict_has_said_nothing(make: Callable[[], Any]) -> None:
    tool = Tool(name="t", fn=lambda: "found", effect="pure", classify=lambda outcome: make())
    answer = Agent([tool], lambda ask: "end" if ask.run.calls else ToolCall("t")).run("x")
    assert [call.value for call in answer.run.calls] == ["found"]


def test_a_body_whose_awaitable_fails_has_run() -> None:
    class Broken:
        def __await__(self) -> Any:
            return 5

    ran: list[int] = []

    def pays() -> Any:
        ran.append(1)
        return Broken()

    tool = Tool(name="pays", fn=pays, effect="at_most_once")
    answer = Agent([tool], lambda ask: "end" if ask.run.calls else ToolCall("pays")).run("x")
    assert (len(ran), answer.run.calls[0].error, answer.run.body_runs) == (1, "unknown_outcome", 1)


@pytest.mark.parametrize("said", [ResultClass.FATAL, "FATAL"])
def test_a_class_alone_is_a_verdict(said: str) -> None:
    tool = Tool(name="t", fn=lambda: "closed", effect="pure", classify=lambda outcome: said)
    answer = Agent([tool], lambda ask: ToolCall("t")).run("x")
    assert (answer.status, answer.stop_reason, [call.error for call in answer.run.calls]) == ("failed", "fatal", ["result:fatal"])
