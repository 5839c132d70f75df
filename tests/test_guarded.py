from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import attrs
import pytest

from fsm_agent import Limits, Policy
from fsm_agent.core.errors import BuildError, CannotResume, ContractError, RunError, SavedRunError
from fsm_agent.core.tools import BreakerPolicy, Tool
from fsm_agent.core.values import ResultClass, StopReason, Verdict
from fsm_agent.guarded import Guarded, Result, Session
from fsm_agent.host.clock import ScriptedClock
from fsm_agent.host.memory import TtlMemory
from fsm_agent.host.ports import ToolContext
from fsm_agent.host.tool_forms import tool


@attrs.define
class Shop:
    """Bodies that note what reached them."""

    calls: list[Any] = attrs.field(factory=list)

    def find(self, word: str, limit: int = 5) -> list[str]:
        """Find things."""
        self.calls.append((word, limit))
        return [f"{word} {number}" for number in range(limit)]

    async def afind(self, word: str) -> str:
        self.calls.append(word)
        await asyncio.sleep(0)
        return f"a {word}"

    def fail(self, n: int) -> int:
        self.calls.append(n)
        raise ValueError(f"no {n}")

    def guard(self, **options: Any) -> Guarded:
        return Guarded([self.find, self.afind, self.fail], **options)


def words(results: list[Result]) -> list[str]:
    return [result.error or "ok" for result in results]


def test_a_hand_written_loop_gets_results_as_values_until_the_session_is_stopped() -> None:
    shop = Shop()
    session = shop.guard().session()
    wanted = [("find", {"word": "a"}), ("find", '{"word": "a"}'), ("find", {"word": "a", "limit": 5}), ("find", {"word": "b"})]
    results = [session.call(tool, args) for tool, args in wanted]
    assert words(results) == ["ok", "ok", "refused:duplicate", "stopped:duplicate_call"]
    assert results[0].value == ["a 0", "a 1", "a 2", "a 3", "a 4"]
    assert results[0].text == '["a 0","a 1","a 2","a 3","a 4"]'
    assert shop.calls == [("a", 5), ("a", 5)]
    assert session.stop is not None
    assert session.stop.raise_to == {"max_same_call": 4}
    assert "max_same_call is 2, 3 used, used by call-1, call-2, call-3" in results[3].text


def test_a_repetition_that_is_only_refused_lets_the_session_go_on() -> None:
    shop = Shop()
    session = shop.guard(policy=Policy(duplicates="refuse"), limits=Limits(max_turns=None, max_same_call=1)).session()
    results = [session.call("find", {"word": word}) for word in ("a", "a", "b")]
    assert words(results) == ["ok", "refused:duplicate", "ok"]
    assert session.stop is None


def test_empty_results_are_counted_by_the_intent_that_the_loop_names() -> None:
    """Seed 001's loop has an intent with each call."""
    nothing = {"look": {"fn": lambda n: [], "args": {"n": {"type": "int"}}, "effect": "pure"}}

    async def called(session: Session) -> list[Result]:
        return [await session.acall("look", {"n": n}, intent=intent) for n, intent in enumerate("aba")]

    for drive in (
        lambda session: [session.call("look", {"n": n}, intent=intent) for n, intent in enumerate("aba")],
        lambda session: asyncio.run(called(session)),
    ):
        session = Guarded(nothing, limits=Limits.react()).session()
        assert words(drive(session)) == ["ok"] * 3
        assert str(session.stop).startswith("empty_results; finds_something: max_empty_results is 2, 2 used, used by call-1, call-3")


@pytest.mark.parametrize(
    ("name", "args", "error"),
    [
        ("find", {}, "args:missing:word"),
        ("find", {"word": "a", "x": 1}, "args:extra:x"),
        ("find", {"word": 3}, "args:type:word"),
        ("find", "not json", "args:type:args"),
        ("find", None, "args:missing:word"),
        ("nothing", {}, "args:unknown_tool"),
        ("", {}, "args:unknown_tool"),
        (7, {}, "args:unknown_tool"),
    ],
)
def test_bad_calls_give_our_reason_and_reach_no_body(name: Any, args: Any, error: str) -> None:
    shop = Shop()
    session = shop.guard().session()
    result = session.call(name, args)
    assert (result.ok, result.error, shop.calls, session.stop) == (False, error, [], None)
    assert result.text.startswith(error)
    assert session.call("find", {"word": "a"}).ok


def test_budgets_hold_in_a_session_and_the_calls_within_them_succeed() -> None:
    shop = Shop()
    session = shop.guard(limits=Limits(max_turns=None, max_tool_calls=3)).session()
    results = [session.call("find", {"word": str(n)}) for n in range(6)]
    assert words(results) == ["ok"] * 3 + ["skipped:max_tool_calls", "stopped:max_tool_calls", "stopped:max_tool_calls"]
    assert len(shop.calls) == 3


def test_a_spent_tool_is_refused_while_others_go_on() -> None:
    shop = Shop()
    session = shop.guard(limits=Limits(max_turns=None, max_same_tool_calls=1)).session()
    results = [session.call(tool, {"word": word}) for tool, word in (("find", "a"), ("find", "b"), ("afind", "c"))]
    assert words(results) == ["ok", "refused:budget:max_same_tool_calls", "ok"]


def test_a_body_that_raises_is_a_value_and_too_many_stop_the_session() -> None:
    shop = Shop()
    session = shop.guard(limits=Limits(max_turns=None, max_tool_errors=2)).session()
    results = [session.call("fail", {"n": n}) for n in range(3)]
    assert words(results) == ["raised:ValueError", "raised:ValueError", "stopped:max_tool_errors"]
    assert (results[0].detail, results[0].text) == ("no 0", "raised:ValueError (no 0)")


def test_a_stopped_session_goes_on_with_the_raise_that_its_stop_names() -> None:
    shop = Shop()
    session = shop.guard(limits=Limits(max_turns=None, max_tool_calls=1)).session()
    assert words([session.call("find", {"word": word}) for word in "abc"])[1:] == ["skipped:max_tool_calls", "stopped:max_tool_calls"]
    with pytest.raises(CannotResume, match="max_tool_calls"):
        session.resume(max_same_call=3)
    assert session.stop is not None
    session.resume(**{**session.stop.raise_to, "max_tool_calls": 5})
    assert session.stop is None
    assert session.call("find", {"word": "d"}).ok


def test_counters_belong_to_the_session_and_memory_to_the_guard() -> None:
    calls: list[int] = []

    @tool(effect="pure", cache_ttl_s=60)
    def look(n: int) -> int:
        calls.append(n)
        return n + 1

    guard = Guarded([look], memory=TtlMemory())
    first, second = guard.session(scope="shop"), guard.session(scope="shop")
    results = [first.call("look", {"n": 1}), first.call("look", {"n": 1}), second.call("look", {"n": 1})]
    assert [result.value for result in results] == [2, 2, 2]
    assert [result.text for result in results] == ["2", "(reused) 2", "(reused) 2"]
    assert calls == [1]
    assert (first.run.tool_calls, second.run.tool_calls) == (2, 1)


def test_a_breaker_is_shared_by_sessions() -> None:
    clock = ScriptedClock()

    def flaky(n: int) -> int:
        raise OSError("down")

    guard = Guarded([tool(flaky, breaker=BreakerPolicy(failures=2, open_s=30))], clock=clock)
    results = [guard.session().call("flaky", {"n": n}) for n in range(3)]
    assert words(results) == ["raised:OSError", "raised:OSError", "refused:circuit_open"]
    clock.advance(31)
    assert guard.session().call("flaky", {"n": 9}).error == "raised:OSError"


def test_a_result_without_progress_does_not_end_a_session() -> None:
    def check(n: int) -> str:
        return f"nothing new {n}"

    judged = tool(check, classify=lambda outcome: Verdict(result_class=ResultClass.NO_PROGRESS))
    session = Guarded([judged]).session()
    assert words([session.call("check", {"n": n}) for n in range(3)]) == ["ok"] * 3
    assert session.stop is None


def test_a_fatal_result_ends_a_session() -> None:
    judged = tool(Shop().fail, classify=lambda outcome: Verdict(result_class=ResultClass.FATAL))
    session = Guarded([judged]).session()
    assert words([session.call("fail", {"n": n}) for n in range(2)]) == ["raised:ValueError", "stopped:fatal"]


def test_a_repair_mends_a_call_before_its_result_is_told() -> None:
    def mend(tool: str, args: Any) -> tuple[str, Any]:
        return tool, {**args, "limit": 2}

    shop = Shop()
    session = shop.guard(repairs={"args:type:limit": mend}).session()
    result = session.call("find", {"word": "a", "limit": "two"})
    assert (result.ok, result.value, shop.calls) == (True, ["a 0", "a 1"], [("a", 2)])
    assert result.text == '(the call was repaired to find {"word":"a","limit":2}) ["a 0","a 1"]'


def test_the_wait_that_a_limited_tool_asks_for_is_kept_before_the_next_call() -> None:
    clock = ScriptedClock()
    verdicts = [Verdict(result_class=ResultClass.RATE_LIMITED, retry_after_s=7.0), None]
    judged = tool(Shop().find, classify=lambda outcome: verdicts.pop(0))
    session = Guarded([judged], clock=clock).session()
    began = clock.now()
    assert session.call("find", {"word": "a"}).error == "result:rate_limited"
    assert clock.now() == began
    assert session.call("find", {"word": "a"}).ok
    assert clock.now() - began == 7.0


def test_a_session_whose_time_runs_out_during_a_wait_makes_no_call() -> None:
    class Oversleeps(ScriptedClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds + 100)

    verdict = Verdict(result_class=ResultClass.RATE_LIMITED, retry_after_s=7.0)
    judged = tool(Shop().find, classify=lambda outcome: verdict)
    session = Guarded([judged], clock=Oversleeps()).session()
    assert words([session.call("find", {"word": "a"}) for _ in range(2)]) == ["result:rate_limited", "stopped:deadline"]
    assert len(session.run.calls) == 1


def test_the_deadline_counts_the_time_inside_calls_alone() -> None:
    clock = ScriptedClock()

    def slow(n: int) -> int:
        clock.advance(6)
        return n

    session = Guarded([slow], clock=clock, limits=Limits(max_turns=None, deadline_s=10, reserve_s=0)).session()
    assert session.call("slow", {"n": 1}).ok
    clock.advance(1000)
    assert session.call("slow", {"n": 2}).ok
    assert session.call("slow", {"n": 3}).error == "stopped:deadline"


def test_async_calls_run_in_the_callers_loop() -> None:
    loops: list[Any] = []

    async def where() -> str:
        loops.append(asyncio.get_running_loop())
        return "here"

    async def main() -> Any:
        session = Guarded([where]).session()
        assert (await session.acall("where")).value == "here"
        return asyncio.get_running_loop()

    assert loops == [asyncio.run(main())]


def test_a_sync_call_inside_a_running_loop_works() -> None:
    async def main() -> Result:
        return Shop().guard().session().call("afind", {"word": "b"})

    assert asyncio.run(main()).value == "a b"


def test_parallel_tasks_take_turns_in_the_order_of_their_coming() -> None:
    shop = Shop()

    async def main() -> list[Result]:
        session = shop.guard().session()
        return list(await asyncio.gather(*(session.acall("afind", {"word": word}) for word in "abcde")))

    assert [result.value for result in asyncio.run(main())] == ["a a", "a b", "a c", "a d", "a e"]
    assert shop.calls == list("abcde")


def test_parallel_threads_get_each_their_own_result_and_no_budget_is_overrun() -> None:
    inside: list[int] = []

    def body(n: int) -> int:
        inside.append(n)
        assert len(inside) == 1
        time.sleep(0.0005)
        inside.remove(n)
        return n

    limits = Limits(max_turns=None, max_tool_calls=12, max_same_tool_calls=None)
    session = Guarded([body], limits=limits).session()
    results: dict[int, Result] = {}

    def call(n: int) -> None:
        results[n] = session.call("body", {"n": n})

    threads = [threading.Thread(target=call, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(result.ok for result in results.values()) == 12
    assert all(result.value == n for n, result in results.items() if result.ok)
    assert sorted(words(list(results.values())))[12:] == ["skipped:max_tool_calls"] + ["stopped:max_tool_calls"] * 3


def test_threads_and_tasks_share_one_session() -> None:
    shop = Shop()

    async def main() -> set[str]:
        session = shop.guard().session()
        calls = [session.acall("afind", {"word": "t1"}), session.acall("afind", {"word": "t2"})]
        threads = [asyncio.to_thread(session.call, "afind", {"word": f"u{n}"}) for n in range(3)]
        return {result.value for result in await asyncio.gather(*calls, *threads)}

    assert asyncio.run(main()) == {"a t1", "a t2", "a u0", "a u1", "a u2"}


def test_a_sync_call_that_would_block_the_loop_which_has_to_end_the_other_one_is_refused() -> None:
    async def main() -> None:
        session: Session

        async def wait() -> str:
            await asyncio.sleep(60)
            return "never"  # pragma: no cover

        session = Guarded([wait]).session()
        under_way = asyncio.create_task(session.acall("wait"))
        await asyncio.sleep(0)
        with pytest.raises(RunError, match="await acall here"):
            session.call("wait")
        under_way.cancel()
        with pytest.raises(asyncio.CancelledError):
            await under_way

    asyncio.run(main())


def test_a_tool_that_calls_its_own_session_is_told_so_and_nothing_waits_for_ever() -> None:
    sessions: list[Session] = []

    def again(n: int) -> str:
        return sessions[0].call("again", {"n": n + 1}).text

    def other(n: int) -> str:
        return sessions[1].call("other", {"n": n}).text if n else "deep"

    guard = Guarded([again, other])
    sessions += [guard.session(), guard.session()]
    result = sessions[0].call("again", {"n": 1})
    assert result.error == "raised:RunError"
    assert "use a session of its own" in result.detail
    assert sessions[0].call("other", {"n": 0}).value == "deep"


def test_a_tool_may_call_another_session() -> None:
    inner = Guarded([Shop().find]).session()

    def ask(word: str) -> str:
        return inner.call("find", {"word": word, "limit": 1}).text

    assert Guarded([ask]).session().call("ask", {"word": "a"}).value == '["a 0"]'


def test_a_cancelled_call_ends_alone_and_the_session_goes_on_without_it() -> None:
    begun: list[str] = []

    @tool(effect="pure")
    async def wait(word: str) -> str:
        begun.append(word)
        await asyncio.sleep(60 if word == "long" else 0)
        return word

    async def main() -> None:
        session = Guarded([wait]).session()
        task = asyncio.create_task(session.acall("wait", {"word": "long"}))
        queued = asyncio.create_task(session.acall("wait", {"word": "queued"}))
        while not begun:
            await asyncio.sleep(0)
        queued.cancel()
        task.cancel()
        for one in (task, queued):
            with pytest.raises(asyncio.CancelledError):
                await one
        assert session.stop is None
        assert (await session.acall("wait", {"word": "short"})).value == "short"
        assert [call.error for call in session.run.calls] == ["cancelled", ""]

    asyncio.run(main())
    assert begun == ["long", "short"]


def test_an_interrupted_call_ends_alone_and_the_session_goes_on() -> None:
    def stop(n: int) -> int:
        if n == 1:
            raise KeyboardInterrupt
        return n

    session = Guarded([stop]).session()
    with pytest.raises(KeyboardInterrupt):
        session.call("stop", {"n": 1})
    assert session.call("stop", {"n": 2}).value == 2


def test_a_saved_session_goes_on_with_its_counters() -> None:
    shop = Shop()
    guard = shop.guard()
    session = guard.session(run_id="one")
    for _ in range(2):
        session.call("find", {"word": "a"})
    again = guard.load(session.save())
    assert again.run.id == "one"
    assert again.call("find", {"word": "a"}).error == "refused:duplicate"
    assert session.stop is None
    assert again.stop is not None
    assert again.stop.reason is StopReason.DUPLICATE_CALL
    with pytest.raises(SavedRunError):
        guard.load("{}")


def test_the_context_of_a_session_reaches_its_bodies() -> None:
    def who(context: ToolContext) -> Any:
        return context.context

    guard = Guarded([who])
    assert guard.session(context="ann").call("who").value == "ann"
    assert guard.load(guard.session().save(), context="bob").call("who").value == "bob"


def test_ids_of_calls_are_the_callers_where_they_are_new() -> None:
    session = Shop().guard().session()
    ids = [session.call("find", {"word": word}, call_id="x").call_id for word in "ab"]
    assert ids == ["x", "call-2"]


def test_secrets_do_not_reach_what_is_told() -> None:
    def login(key: str) -> str:
        raise ValueError(f"bad key {key}")

    result = Guarded([tool(login, secret=["key"])]).session().call("login", {"key": "hunter2"})
    assert result.error == "raised:ValueError"
    assert "hunter2" not in result.text + result.detail


def paying() -> tuple[list[int], Guarded]:
    paid: list[int] = []

    @tool(approval=True)
    def pay(n: int) -> str:
        paid.append(n)
        return f"paid {n}"

    return paid, Guarded([pay, Shop().find])


def test_a_call_that_needs_a_person_is_paused_and_holds_the_session() -> None:
    paid, guard = paying()
    session = guard.session()
    held = session.call("pay", {"n": 3})
    assert (held.ok, held.error, held.call_id) == (False, "paused", "call-1")
    behind = session.call("find", {"word": "a"})
    assert (behind.error, behind.tool, behind.call_id) == ("paused", "find", "")
    assert behind.text == "paused (not made; the call call-1 of pay waits for a decision about it)"
    assert session.proceed().error == "paused"
    guard.agent.approve(session.run, held.call_id)
    assert paid == []
    assert (session.proceed().value, paid) == ("paid 3", [3])
    assert session.call("find", {"word": "a"}).ok
    with pytest.raises(RunError, match="no call of this session waits"):
        session.proceed()


def test_a_denied_call_has_its_result_and_the_session_goes_on() -> None:
    paid, guard = paying()
    session = guard.session()
    held = session.call("pay", {"n": 3})
    guard.agent.deny(session.run, held.call_id, "too much")
    assert asyncio.run(session.aproceed()).error == "denied:too much"
    assert session.call("find", {"word": "a"}).ok
    assert paid == []


def test_a_paused_session_is_saved_and_goes_on_elsewhere() -> None:
    paid, guard = paying()
    session = guard.session()
    held = session.call("pay", {"n": 3})
    again = guard.load(session.save())
    guard.agent.approve(again.run, held.call_id)
    assert asyncio.run(again.aproceed()).value == "paid 3"
    assert paid == [3]
    assert session.proceed().error == "paused"


def test_proceeding_with_nothing_open_is_refused() -> None:
    session = Shop().guard().session()
    with pytest.raises(RunError, match="no call of this session waits"):
        session.proceed()
    with pytest.raises(RunError, match="no call of this session waits"):
        asyncio.run(session.aproceed())


def test_a_guard_is_built_like_an_agent() -> None:
    with pytest.raises(ContractError, match="two tools are named"):
        Guarded([Shop().find, Shop().find])
    with pytest.raises(BuildError, match="limits is 3"):
        Guarded([Shop().find], limits=3)  # type: ignore[arg-type]
    with pytest.raises(BuildError, match="no limit in force bounds the cycle"):
        Guarded([Shop().find], limits=Limits.off())
    assert [one.name for one in Guarded({"look": Shop().find}).tools] == ["look"]
    assert isinstance(Shop().guard().session().tools[0], Tool)


def test_limits_of_one_session_are_its_own() -> None:
    guard = Shop().guard()
    small = guard.session(limits=Limits(max_turns=None, max_tool_calls=0))
    assert small.call("find", {"word": "a"}).error == "skipped:max_tool_calls"
    assert guard.session().call("find", {"word": "a"}).ok
