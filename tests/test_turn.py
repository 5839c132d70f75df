"""One turn: which calls run beside each other, what a result does to its call, and what a turn does to its run."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
from by_hand import Hand, a_tool, off, says, taking
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.core.contracts import TableResult
from fsm_agent.core.effects import CallTools, Decide, Judge, Wait
from fsm_agent.core.engine import Engine
from fsm_agent.core.errors import WrongEvent
from fsm_agent.core.events import CircuitOpen, Event, Gone, Lost, Raised, Returned, Reused, Skipped
from fsm_agent.core.guards import turns_left
from fsm_agent.core.limits import Limits
from fsm_agent.core.messages import Role
from fsm_agent.core.replay import replay
from fsm_agent.core.results import backoff_s
from fsm_agent.core.run import Run
from fsm_agent.core.setup import Setup
from fsm_agent.core.storable import storable
from fsm_agent.core.table import Row, State, Table
from fsm_agent.core.tools import Retry, Tool, Toolset
from fsm_agent.core.transcript import transcript
from fsm_agent.core.values import ResultClass, StopReason, ToolCall
from fsm_agent.core.work import WORK

EFFECTS = ["pure", "idempotent", "at_most_once", "undeclared"]

# ---- what runs beside what

LETTERS: dict[str, Tool] = {
    "p": a_tool("p"),
    "x": a_tool("x", exclusive=True),
    "i": a_tool("i", effect="idempotent"),
    "e": a_tool("e", effect="at_most_once", exclusive=True),
    "u": a_tool("u", effect="undeclared"),
}


LETTERED = Hand(*LETTERS.values()).engine
PARALLEL = {most: off(max_parallel=most) for most in (None, 1, 2, 3)}


def batches(letters: str, most: int | None = None) -> list[list[int]]:
    """The places of a turn's calls as they were performed beside each other."""
    hand = Hand(engine=LETTERED, limits=PARALLEL[most]).asks(*letters)
    made: list[list[int]] = []
    while hand.batch:
        made.append([int(call_id[1:]) - 1 for call_id in hand.batch])
        hand.begins()
        for place in made[-1]:
            hand.gives(f"c{place + 1}")
    return made


@pytest.mark.parametrize("most", [None, 1, 2, 3])
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_pure_calls_run_together_and_calls_with_effects_alone_and_in_order(n: int, most: int | None) -> None:
    for letters in map("".join, itertools.product(LETTERS, repeat=n)):
        made = batches(letters, most)
        assert sorted(place for batch in made for place in batch) == list(range(n)), letters
        when = {place: number for number, batch in enumerate(made) for place in batch}
        for place, letter in enumerate(letters):
            if letter not in "px":
                assert made[when[place]] == [place], letters
                assert all((when[other] < when[place]) is (other < place) for other in range(n) if other != place), letters
        assert all(sum(letters[place] == "x" for place in batch) <= 1 for batch in made), letters
        assert all(len(batch) <= (most or n) for batch in made), letters
        if most is None:
            stretches = "".join(letter if letter in "px" else "|" for letter in letters).split("|")
            least = sum(max(1, stretch.count("x")) for stretch in stretches if stretch)
            assert len(made) == least + sum(letter not in "px" for letter in letters), letters


@pytest.mark.parametrize(
    ("letters", "most", "made"),
    [
        ("ppp", None, [[0, 1, 2]]),
        ("ppp", 2, [[0, 1], [2]]),
        ("ppp", 1, [[0], [1], [2]]),
        ("pip", None, [[0], [1], [2]]),
        ("ppipp", None, [[0, 1], [2], [3, 4]]),
        ("iue", None, [[0], [1], [2]]),
        ("xxp", None, [[0, 2], [1]]),
        ("xpx", 2, [[0, 1], [2]]),
        ("xxx", None, [[0], [1], [2]]),
    ],
)
def test_the_batches_of_a_turn(letters: str, most: int | None, made: list[list[int]]) -> None:
    assert batches(letters, most) == made


def test_refused_calls_and_followers_take_no_place() -> None:
    hand = Hand(a_tool("p"), a_tool("i", effect="idempotent"), limits=off(max_parallel=2))
    same = {"q": "same"}
    hand.decides(
        ToolCall("p", same, "p1"), ToolCall("p", same, "p2"), ToolCall("ghost"), ToolCall("p", {}, "p3"), ToolCall("i", {}, "i"),
    )  # fmt: skip
    assert hand.batch == ["p1", "p3"]
    hand.gives("p1").gives("p3")
    assert hand.batch == ["i"]


def test_a_tool_that_was_removed_meanwhile_is_performed_alone() -> None:
    class Box(Toolset):
        gone = False

        def get(self, name: Any) -> Tool | None:
            return None if self.gone and name == "b" else super().get(name)

    box = Box([a_tool("a"), a_tool("b")])
    hand = Hand(box=box, work=WORK).asks("a", "b", "a")
    box.gone = True
    assert hand.batch == ["c1"]
    assert hand.gives("c1").batch == ["c2"]
    hand.tell(Gone("c2"))
    assert hand.batch == ["c3"]
    hand.gives("c3")
    assert hand.words == ["ok", "args:unknown_tool", "ok"]
    assert (hand.call("c2").body_runs, hand.run.tool_errors, hand.run.bad_arguments) == (0, 0, 1)
    box.gone = False
    hand.asks("b")
    box.gone = True
    hand.gives("c4", {1, 2})
    assert hand.call("c4").value == {1, 2}


# ---- waiting inside a turn


def waiting(letters: str, *waits: tuple[int, float]) -> Hand:
    """A turn in which the calls at these places came back at once and asked for so many seconds."""
    tools = [a_tool(letter, effect=EFFECTS["pi".index(letter)], retry=Retry(attempts=9)) for letter in "pi"]
    hand = Hand(*tools).asks(*letters)
    for place, seconds in waits:
        hand.gives(f"c{place + 1}", None, says("RATE_LIMITED", retry_after_s=seconds))
    return hand


@pytest.mark.parametrize("letters", ["".join(made) for n in range(1, 5) for made in itertools.product("pi", repeat=n)])
def test_nothing_passes_a_call_with_effects_while_what_stands_before_it_waits(letters: str) -> None:
    hand = waiting(letters)
    finished: list[str] = []
    while isinstance(hand.effect, CallTools | Wait):
        if isinstance(hand.effect, Wait):
            assert hand.effect.seconds > 0
            hand.waits()
            continue
        for call_id in hand.batch:
            if hand.call(call_id).body_runs == 0:
                hand.gives(call_id, None, says("RETRYABLE", retry_after_s=float(call_id[1:])))
                continue
            finished.append(call_id)
            place = int(call_id[1:]) - 1
            earlier = [f"c{n + 1}" for n in range(place) if letters[place] == "i" or letters[n] == "i"]
            assert all(one in finished for one in earlier)
            hand.gives(call_id)
    assert hand.words == ["ok"] * len(letters)


@pytest.mark.parametrize(
    ("letters", "waits", "until", "then"),
    [
        ("p", [(0, 5.0)], 5.0, ["c1"]),
        ("pp", [(0, 5.0), (1, 3.0)], 3.0, ["c2"]),
        ("ppi", [(0, 5.0), (1, 3.0)], 3.0, ["c2"]),
        ("ip", [(0, 5.0)], 5.0, ["c1"]),
        ("ii", [(0, 5.0)], 5.0, ["c1"]),
        ("ppp", [(0, 3.0), (1, 3.0), (2, 4.0)], 3.0, ["c1", "c2"]),
    ],
)
def test_the_run_asks_to_wait_for_the_first_that_may_go_on(letters: str, waits: Any, until: float, then: list[str]) -> None:
    hand = waiting(letters, *waits)
    assert isinstance(hand.effect, Wait)
    assert hand.effect.until_s == until
    assert hand.waits().batch == then
    assert (hand.run.spent_s, hand.run.waited_s) == (until, until)


def test_those_that_need_not_wait_go_on_beside_the_one_that_does() -> None:
    hand = waiting("pp", (0, 5.0))
    assert hand.batch == ["c2"]
    assert hand.gives("c2").effect.until_s == 5.0


# ---- tries


@pytest.mark.parametrize("attempts", [1, 2, 3, 5])
@pytest.mark.parametrize("most", [None, 1, 2, 3])
@pytest.mark.parametrize("effect", ["pure", "idempotent", "undeclared"])
@pytest.mark.parametrize("how", ["returned", "raised"])
def test_a_call_is_tried_as_often_as_its_contract_and_the_run_allow(
    attempts: int, most: int | None, effect: str, how: str
) -> None:
    tool = a_tool(effect=effect, retry=Retry(attempts=attempts, backoff_s=[1.0]))
    hand = Hand(tool, limits=off(max_attempts=most, max_turns=9)).asks("look")
    tries = 0
    while hand.run.open_calls:
        if isinstance(hand.effect, Wait):
            hand.waits()
        tries += 1
        verdict = says("RETRYABLE")
        hand.gives("c1", None, verdict) if how == "returned" else hand.fails("c1", "TimeoutError", verdict)
    assert tries == min(attempts, most or attempts)
    assert hand.words == ["result:retryable" if how == "returned" else "raised:TimeoutError"]
    assert (hand.run.body_runs, hand.call("c1").tries, hand.run.tool_calls, hand.run.tool_errors) == (tries, tries, 1, 1)
    assert len(hand.run.tried) == tries
    assert hand.run.errors == hand.words * tries


@pytest.mark.parametrize("said", [None, *ResultClass])
@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("error", ["ValueError", "TimeoutError"])
def test_who_is_tried_again_after_an_exception(said: ResultClass | None, effect: str, error: str) -> None:
    attempts = 1 if effect == "at_most_once" else 2
    hand = Hand(a_tool(effect=effect, retry=Retry(attempts=attempts, backoff_s=[0.0])), limits=off(max_turns=9)).asks("look")
    hand.fails("c1", error, None if said is None else says(said))
    by_type = said is None and error == "TimeoutError" and effect in ("pure", "idempotent")
    again = effect != "at_most_once" and (by_type or said in (ResultClass.RETRYABLE, ResultClass.RATE_LIMITED))
    assert hand.batch == (["c1"] if again else [])


@pytest.mark.parametrize("error", ["TimeoutError", "ValueError", "ConnectionError"])
@pytest.mark.parametrize("said", [None, *ResultClass])
def test_an_at_most_once_body_that_began_and_gave_no_result_is_an_unknown_outcome(error: str, said: ResultClass | None) -> None:
    hand = Hand(a_tool(effect="at_most_once"), limits=off(max_turns=9)).asks("look").begins()
    hand.fails("c1", error, None if said is None else says(said), message="after 5 s")
    assert hand.words == ["unknown_outcome"]
    assert hand.call("c1").detail == f"{error}: after 5 s"
    assert (hand.run.body_runs, hand.run.tool_errors) == (1, 1)
    assert hand.reason is (StopReason.FATAL if said is ResultClass.FATAL else None)


def test_an_at_most_once_body_that_never_began_failed_plainly() -> None:
    hand = Hand(a_tool(effect="at_most_once"), limits=off(max_turns=9)).asks("look")
    hand.fails("c1", "TimeoutError", ran=False, message="could not begin")
    assert (hand.words, hand.run.body_runs) == (["raised:TimeoutError"], 0)


@pytest.mark.parametrize("said", ["RETRYABLE", "RATE_LIMITED"])
def test_an_at_most_once_result_that_asks_to_be_tried_again_is_not(said: str) -> None:
    paid = a_tool(effect="at_most_once", retry=Retry(attempts=3))
    hand = Hand(paid, limits=off(max_turns=9)).asks("look").gives("c1", None, says(said))
    assert (hand.words, hand.run.body_runs) == ([f"result:{said.lower()}"], 1)


def test_a_body_that_can_never_begin_is_not_tried_for_ever() -> None:
    hand = Hand(a_tool(exclusive=True, retry=Retry(attempts=3, backoff_s=[2.0, 5.0])), limits=off(max_turns=9)).asks("look")
    waits = []
    while hand.run.open_calls:
        hand.fails("c1", "TimeoutError", ran=False)
        if isinstance(hand.effect, Wait):
            waits.append(hand.effect.seconds)
            hand.waits()
    assert (waits, hand.run.body_runs, hand.words) == ([2.0, 5.0, 5.0], 0, ["raised:TimeoutError"])


def test_a_try_that_succeeds_leaves_no_failure_behind() -> None:
    hand = Hand(a_tool(retry=Retry(attempts=3, backoff_s=[0.0])), limits=off(max_tool_errors=1)).asks("look")
    hand.gives("c1", None, says("RETRYABLE")).gives("c1", None, says("RATE_LIMITED")).gives("c1")
    assert (hand.words, hand.run.tool_errors, hand.run.body_runs) == (["ok"], 0, 3)
    assert hand.run.errors == ["result:retryable", "result:rate_limited"]
    assert [row[0] for row in hand.run.trace if row[0].startswith("call_")] == [
        "call_admitted", "call_retried", "call_retried", "call_finished",
    ]  # fmt: skip


@pytest.mark.parametrize("effect", EFFECTS)
def test_a_call_that_was_lost_in_a_crash_is_begun_again_only_where_that_is_safe(effect: str) -> None:
    hand = Hand(a_tool(effect=effect), limits=off(max_turns=9)).asks("look").begins().tell(Lost("c1"))
    if effect in ("pure", "idempotent"):
        assert hand.batch == ["c1"]
        assert hand.call("c1").started is False
    else:
        assert hand.words == ["unknown_outcome"]
    assert hand.run.body_runs == 1, "the body was begun, whatever became of it"


# ---- backoff


@pytest.mark.parametrize("seed", [0, 7])
def test_the_waits_between_tries_are_exact_and_come_from_the_runs_seed(seed: int) -> None:
    tool = a_tool(retry=Retry(attempts=5, backoff_s=1.0, most_s=3.0))
    hand = Hand(tool, seed=seed).asks("look")
    waits = []
    for _ in range(4):
        hand.gives("c1", None, says("RETRYABLE"))
        waits.append(hand.effect.seconds)
        hand.waits()
    hand.gives("c1")
    at = [backoff_s(tool, seed, "c1", n, None) for n in range(1, 5)]
    assert waits == pytest.approx(at)
    assert [math.floor(math.log2(wait)) for wait in at[:2]] <= [0, 1]
    assert all(full / 2 <= wait <= full for wait, full in zip(at, [1.0, 2.0, 3.0, 3.0], strict=True))
    assert hand.run.waited_s == pytest.approx(sum(at))
    assert replay(hand.engine, hand.run) == hand.run


@pytest.mark.parametrize("attempts", [1, 3])
def test_declared_waits_are_kept_exactly(attempts: int) -> None:
    hand = Hand(a_tool(retry=Retry(attempts=4, backoff_s=[0.5, 2.0, 4.0]))).asks("look")
    for wait in (0.5, 2.0, 4.0):
        hand.gives("c1", None, says("RETRYABLE"))
        assert hand.effect.seconds == wait
        hand.waits()
    assert hand.run.waited_s == 6.5


@pytest.mark.parametrize("attempts", [1, 2])
@pytest.mark.parametrize("said", ["RETRYABLE", "RATE_LIMITED"])
def test_the_wait_is_kept_before_the_next_turn_when_the_call_is_not_tried_again(attempts: int, said: str) -> None:
    hand = Hand(a_tool(retry=Retry(attempts=attempts, backoff_s=[0.0])), limits=off(max_turns=9)).asks("look", now=1.0)
    for _ in range(attempts):
        hand.gives("c1", None, says(said, retry_after_s=7.0 if hand.call("c1").body_runs + 1 == attempts else 0.0))
    assert isinstance(hand.effect, Wait)
    assert hand.effect.until_s == 8.0
    assert isinstance(hand.waits().effect, Decide)
    assert hand.run.waited_s == 7.0


def test_of_several_waits_before_the_next_turn_the_longest_is_kept() -> None:
    hand = Hand(limits=off(max_turns=9)).asks("look", "look", "look").begins()
    for n, seconds in ((2, 9.0), (1, 3.0), (3, 1.0)):
        hand.gives(f"c{n}", None, says("RETRYABLE", retry_after_s=seconds))
    assert hand.effect.until_s == 9.0


@pytest.mark.parametrize("attempts", [1, 2])
@pytest.mark.parametrize(
    ("limits", "wait", "reason", "raises"),
    [
        (off(deadline_s=10.0), 9.999, None, {}),
        (off(deadline_s=10.0), 10.0, StopReason.DEADLINE, {"deadline_s": 12.5}),
        (off(deadline_s=10.0, reserve_s=1.0), 9.0, StopReason.DEADLINE, {"deadline_s": 12.25}),
        (off(deadline_s=10.0, reserve_s=1.0), 8.9, None, {}),
        (off(max_wait_s=5.0), 5.0, None, {}),
        (off(max_wait_s=5.0), 5.5, StopReason.MAX_WAIT, {"max_wait_s": 5.5}),
        (off(max_wait_s=0.0), 0.0, None, {}),
        (off(max_wait_s=0.0), 0.1, StopReason.MAX_WAIT, {"max_wait_s": 0.1}),
        (off(deadline_s=5.0, max_wait_s=1.0), 9.0, StopReason.DEADLINE, {"deadline_s": 11.25}),
    ],
)
def test_a_wait_that_would_outlive_the_deadline_or_the_wait_budget_ends_the_run_now(
    attempts: int, limits: Limits, wait: float, reason: StopReason | None, raises: dict[str, float]
) -> None:
    hand = Hand(a_tool(retry=Retry(attempts=attempts)), limits=limits).asks("look")
    hand.gives("c1", None, says("RATE_LIMITED", retry_after_s=wait))
    assert hand.reason is reason
    if reason is None:
        assert hand.effect is not None
        return
    stop = hand.run.stop
    assert stop is not None
    assert hand.run.spent_s == 0.0
    assert hand.words == ["result:rate_limited"]
    assert stop.closed[0].calls == ("c1",)
    assert {name: value for name, value in stop.raise_to.items() if name in raises} == raises
    hand.engine.resume(hand.run, stop.raise_to)
    assert isinstance(hand.effect, Wait)
    assert hand.effect.until_s == wait
    assert isinstance(hand.waits().effect, Decide)


def test_of_several_waits_that_end_the_run_the_longest_says_what_lets_it_go_on() -> None:
    for order in itertools.permutations(((1, 20.0), (2, 40.0), (3, 30.0))):
        hand = Hand(limits=off(max_wait_s=9.0, max_turns=9)).asks("look", "look", "look").begins()
        for n, seconds in order:
            hand.gives(f"c{n}", None, says("RATE_LIMITED", retry_after_s=seconds))
        stop = hand.run.stop
        assert stop is not None
        (closed,) = stop.closed
        assert (closed.calls, stop.raise_to) == (("c2",), {"max_wait_s": 40.0})


def test_waits_add_up_to_the_budget_over_the_run() -> None:
    hand = Hand(a_tool(retry=Retry(attempts=9, backoff_s=[2.0])), limits=off(max_wait_s=5.0)).asks("look")
    for _ in range(2):
        hand.gives("c1", None, says("RETRYABLE")).waits()
    hand.gives("c1", None, says("RETRYABLE"))
    assert (hand.reason, hand.run.waited_s) == (StopReason.MAX_WAIT, 4.0)


def test_where_a_wait_ends_the_run_what_has_not_begun_is_skipped_and_what_runs_is_heard() -> None:
    slow, write = a_tool("slow", retry=Retry(attempts=2)), a_tool("write", effect="idempotent")
    hand = Hand(slow, write, limits=off(max_wait_s=1.0)).asks("slow", "slow", "slow", "write").begins()
    hand.gives("c1", None, says("RETRYABLE", retry_after_s=0.5))
    hand.gives("c2", None, says("RETRYABLE", retry_after_s=9.0))
    assert (hand.words, hand.batch) == (["open", "result:retryable", "open", "open"], ["c3"])
    hand.gives("c3")
    assert hand.words == ["skipped:max_wait", "result:retryable", "ok", "skipped:max_wait"]
    assert hand.reason is StopReason.MAX_WAIT


# ---- results


def test_memorys_answer_is_marked_and_runs_no_body() -> None:
    hand = Hand(limits=off(max_same_call=1)).asks("look").tell(Reused("c1", {"a": 1}))
    call = hand.call("c1")
    assert (call.ok, call.value, call.reused, call.result_class) == (True, {"a": 1}, True, ResultClass.OK)
    assert (hand.run.body_runs, hand.run.tool_calls, len(hand.run.requests)) == (0, 1, 1)
    assert hand.run.trace[-2][0] == "call_reused"
    assert [call.tool for call in hand.run.evidence()] == ["look"]


@pytest.mark.parametrize("value", [None, "", [], {"found": False}])
@pytest.mark.parametrize("empty_ok", [True, False])
def test_a_remembered_result_has_its_class_again(value: Any, empty_ok: bool) -> None:
    hand = Hand(a_tool(empty_ok=empty_ok)).asks("look").tell(Reused("c1", value))
    assert hand.call("c1").result_class is (ResultClass.OK if empty_ok else ResultClass.EMPTY)


@pytest.mark.parametrize("error", ["raised:ValueError", "result:shape", "result:empty", "result:fatal"])
def test_a_remembered_failure_is_replayed_and_counted(error: str) -> None:
    hand = Hand(limits=off(max_turns=9)).asks("look").tell(Reused("c1", None, error))
    assert hand.words == [error]
    assert hand.run.tool_errors == (error != "result:empty")
    assert hand.run.empty_results == (error == "result:empty")
    assert (hand.reason is StopReason.FATAL) is (error == "result:fatal")


@pytest.mark.parametrize("seconds", [0.0, 12.5, 30.0])
def test_an_open_circuit_is_a_refusal_with_the_time_until_a_probe(seconds: float) -> None:
    hand = Hand(limits=off(max_tool_errors=1)).asks("look").tell(CircuitOpen("c1", seconds))
    assert hand.words == ["refused:circuit_open"]
    assert [kind for kind, _, subject, _ in hand.run.trace if subject == "c1"] == ["call_admitted", "call_refused"]
    assert f"{seconds:g} s" in hand.call("c1").detail
    assert (hand.run.body_runs, hand.run.tool_errors) == (0, 0)
    assert isinstance(hand.effect, Decide)


@pytest.mark.parametrize("value", [None, {"a": {1, 2}}, "instead"])
def test_a_hook_that_skips_a_call_gives_its_result_in_the_bodys_place(value: Any) -> None:
    hand = Hand(limits=off(max_tool_errors=1)).asks("look").tell(Skipped("c1", "quiet_hours", value))
    call = hand.call("c1")
    assert (call.ok, call.error, call.value, hand.run.body_runs) == (False, "skipped:quiet_hours", value, 0)
    assert call.value is not value or not isinstance(value, dict)
    assert hand.reason is None


def test_the_reason_a_host_gives_shows_no_secret() -> None:
    tool = a_tool(args=taking(q={"type": "str"}), secret=["q"], returns=TableResult({"a": {"type": "int"}}))
    hand = Hand(tool, limits=off(max_turns=9)).decides(*(ToolCall("look", {"q": f"hunter{n}"}, f"c{n}") for n in range(3)))
    hand.gives("c0", {"a": "hunter0"}).fails("c1", message="no hunter1").gives("c2", {"a": 1}, says("FATAL", reason="hunter2"))
    assert [call.detail for call in hand.calls] == ["shape at a (expected int; got '[redacted]')", "no [redacted]", "[redacted]"]


class Liar:
    """Says that it is a text."""

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        return str


@pytest.mark.parametrize("value", [Liar(), [Liar()], {"a": (1, {2})}, type("L", (list,), {"__len__": None})([1])], ids=range(4))
def test_what_a_memory_gives_back_is_kept_as_a_run_keeps_values(value: Any) -> None:
    hand = Hand().asks("look").tell(Reused("c1", value))

    assert hand.call("c1").value == hand.run.journal[-1][1].value == storable(value)
    assert (hand.call("c1").reused, hand.words) == (True, ["ok"])


STRAY = [Returned("c9", 1), Raised("c9", "E"), Reused("c9"), CircuitOpen("c9"), Gone("c9"), Lost("c9"), Skipped("c9", "w")]


@pytest.mark.parametrize("event", STRAY, ids=lambda event: type(event).__name__)
def test_an_answer_about_a_call_that_is_not_open_is_refused_and_changes_nothing(event: Event) -> None:
    hand = Hand().asks("look")
    before = copy.deepcopy(hand.run)
    with pytest.raises(WrongEvent, match=r"no open call 'c9'; it waits for 'c1'"):
        hand.tell(event)
    assert hand.run == before


def test_each_call_has_exactly_one_result() -> None:
    hand = Hand().asks("look", "look").gives("c1")
    with pytest.raises(WrongEvent):
        hand.gives("c1", "again")
    assert hand.gives("c2").words == ["ok", "ok"]


# ---- outcomes of a turn

MENU: dict[str, Callable[[str], Event | None]] = {
    "ok": lambda call_id: Returned(call_id, f"hit {call_id}"),
    "failed": lambda call_id: Raised(call_id, "ValueError"),
    "stale": lambda call_id: Returned(call_id, f"hit {call_id}", says("NO_PROGRESS")),
    "fatal": lambda call_id: Returned(call_id, None, says("FATAL", reason="account closed")),
    "waits": lambda call_id: Returned(call_id, None, says("RETRYABLE", retry_after_s=99.0)),
    "open": lambda call_id: CircuitOpen(call_id, 1.0),
}
RANKS = ["fatal", "waits", "failed", "stale", "ok", "open"]
LEADS_TO: dict[str, Any] = {
    "fatal": StopReason.FATAL, "waits": StopReason.MAX_WAIT, "failed": Decide, "stale": Judge, "ok": Decide, "open": Decide,
}  # fmt: skip


@pytest.mark.parametrize("kinds", [made for n in (1, 2, 3) for made in itertools.combinations_with_replacement(MENU, n)])
def test_of_a_turns_results_the_weightiest_names_the_outcome_whatever_their_order(kinds: tuple[str, ...]) -> None:
    first = min(kinds, key=RANKS.index)
    for order in set(itertools.permutations(kinds)):
        hand = Hand(limits=off(max_wait_s=1.0, max_turns=9), verifies=True).asks(*["look"] * len(order)).begins()
        for n, kind in enumerate(order, 1):
            event = MENU[kind](f"c{n}")
            assert event is not None
            hand.tell(event)
        wanted = LEADS_TO[first]
        if isinstance(wanted, StopReason):
            assert hand.reason is wanted, order
        else:
            assert isinstance(hand.effect, wanted), order


def test_a_fatal_result_ends_the_run_says_whose_it_was_and_lets_nothing_more_begin() -> None:
    pay, look = a_tool("pay", effect="idempotent"), a_tool("look")
    hand = Hand(pay, look, limits=off(max_tool_calls=3, max_turns=9), composes=True).asks("look", "pay", "look", "look")
    hand.gives("c1").gives("c2", None, says("FATAL", reason="account closed"))
    assert hand.words == ["ok", "result:fatal", "skipped:fatal", "skipped:max_tool_calls"]
    stop = hand.run.stop
    assert stop is not None
    assert (stop.reason, stop.closed, stop.raise_to) == (StopReason.FATAL, (), {})
    assert stop.detail == "pay reported a fatal result: result:fatal (account closed)"
    assert hand.effect is None


def test_what_runs_beside_a_fatal_call_is_heard() -> None:
    hand = Hand(limits=off()).asks("look", "look").begins().gives("c1", None, says("FATAL"))
    assert hand.reason is None
    assert hand.gives("c2").words == ["result:fatal", "ok"]
    assert hand.reason is StopReason.FATAL


@pytest.mark.parametrize("first", ["c1", "c2"])
def test_after_a_fatal_result_there_is_no_other_try(first: str) -> None:
    hand = Hand(a_tool(retry=Retry(attempts=3, backoff_s=[0.0])), limits=off()).asks("look", "look").begins()
    for call_id in (first, "c2" if first == "c1" else "c1"):
        hand.gives(call_id, None, says("FATAL" if call_id == "c1" else "RETRYABLE"))
    assert hand.words == ["result:fatal", "skipped:fatal"]
    assert (hand.reason, hand.run.body_runs) == (StopReason.FATAL, 2)


def test_followers_of_a_fatal_call_share_its_end() -> None:
    hand = Hand(limits=off()).decides(*[ToolCall("look", {})] * 2).begins().gives("call-1", None, says("FATAL"))
    assert hand.words == ["result:fatal", "result:fatal"]
    assert hand.reason is StopReason.FATAL


# ---- tripwires: open below the n-th, closed by it


def one_each(hand: Hand, values: list[Any], name: str = "look", **call: Any) -> Hand:
    """One turn for each value, as long as the run goes on."""
    for value in values:
        if hand.reason is not None:
            break
        call_id = f"c{len(hand.run.call_ids) + 1}"
        hand.decides(ToolCall(name, {"q": call_id}, call_id, **call))
        if isinstance(value, Exception):
            hand.fails(call_id, type(value).__name__)
        elif isinstance(value, str) and value.startswith("result:"):
            hand.gives(call_id, None, says(value.removeprefix("result:").upper(), retry_after_s=0.0))
        else:
            hand.gives(call_id, value)
    return hand


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("value", ["same", None, "", [], {"a": [1]}, {"found": False}])
def test_the_nth_equal_observation_ends_the_run_also_an_empty_one(n: int, value: Any) -> None:
    """Seed 000 never counted its empty observations."""
    hand = one_each(Hand(limits=off(max_same_observation=n)), [value] * 6)
    assert (len(hand.calls), hand.reason) == (n, StopReason.REPEATED_OBSERVATION)
    stop = hand.run.stop
    assert stop is not None
    assert stop.closed[0].calls == tuple(call.id for call in hand.calls)


def test_equal_observations_count_across_tools_and_need_not_follow_each_other() -> None:
    hand = Hand(a_tool("a"), a_tool("b"), a_tool("c"), limits=off(max_same_observation=3))
    for name, value in [("a", "x"), ("b", "y"), ("b", "x"), ("c", "z"), ("c", "x")]:
        one_each(hand, [value], name)
    assert hand.reason is StopReason.REPEATED_OBSERVATION


def test_values_of_other_types_are_other_observations() -> None:
    hand = one_each(Hand(limits=off(max_same_observation=2)), [1, 1.0, True, "1", [1], (1,), {"1": 1}])
    assert hand.reason is None


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_nth_turn_without_a_new_fact_ends_the_run(n: int) -> None:
    hand = one_each(Hand(limits=off(max_stale_turns=n)), [{"a": 1, "b": 2}] + [{"a": 1}, {"b": 2}, {"b": 2, "a": 1}] * 2)
    assert (len(hand.calls), hand.reason) == (n + 1, StopReason.NO_PROGRESS)


def test_a_new_fact_anywhere_in_a_turn_starts_the_count_anew() -> None:
    hand = one_each(Hand(limits=off(max_stale_turns=2)), ["a", "a", "b", "b", "a", "c"])
    assert hand.words == ["ok"] * 5
    assert hand.reason is StopReason.NO_PROGRESS
    hand = one_each(Hand(limits=off(max_stale_turns=2)), ["a", "a"])
    hand.asks("look", "look").gives("c3", "a").gives("c4", "new")
    assert (hand.reason, hand.run.stale_turns) == (None, 0)


@pytest.mark.parametrize("value", [{"a": 2}, {"b": 1}, {"a": {"a": 1}}, [1], 1, "1", {"a": 1.0}])
def test_a_fact_is_a_path_with_a_value(value: Any) -> None:
    hand = one_each(Hand(limits=off(max_stale_turns=1)), [{"a": 1}, value])
    assert hand.reason is None


@pytest.mark.parametrize("value", [ValueError(), "result:rate_limited"])
def test_turns_of_failures_bring_no_new_fact(value: Any) -> None:
    hand = one_each(Hand(limits=off(max_stale_turns=2, max_turns=9)), [value] * 4)
    assert (len(hand.calls), hand.reason) == (2, StopReason.NO_PROGRESS)


def test_refused_calls_bring_no_new_fact_either() -> None:
    hand = Hand(limits=off(max_stale_turns=2, max_turns=9)).asks("ghost").asks("look", "ghost").gives("c2").asks("ghost")
    assert hand.reason is None
    assert hand.asks("ghost").reason is StopReason.NO_PROGRESS


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("value", [None, "", [], {"found": False, "items": [1]}, "result:empty"])
def test_the_nth_empty_result_of_one_intent_ends_the_run(n: int, value: Any) -> None:
    hand = one_each(Hand(limits=off(max_empty_results=n)), [value] * 5)
    assert (len(hand.calls), hand.reason) == (n, StopReason.EMPTY_RESULTS)


def test_an_empty_result_that_broke_its_contract_is_empty_and_no_error() -> None:
    rows = TableResult({"rows": {"type": "list"}})
    limits = off(max_empty_results=2, max_tool_errors=1, max_turns=9)
    hand = one_each(Hand(a_tool(returns=rows), limits=limits), [{"rows": []}] * 3)
    assert hand.words == ["result:empty"] * 2
    assert (hand.reason, hand.run.tool_errors) == (StopReason.EMPTY_RESULTS, 0)


def test_empties_are_counted_by_intent_and_by_tool_where_there_is_none() -> None:
    hand = Hand(a_tool("a"), a_tool("b"), limits=off(max_empty_results=2))
    for name, intent in (("a", "find x"), ("b", "find y"), ("a", ""), ("b", "")):
        one_each(hand, [None], name, intent=intent)
    assert hand.reason is None
    assert hand.run.empties == {"find x": 1, "find y": 1, "a": 1, "b": 1}
    one_each(hand, [None], "b", intent="find x")
    assert hand.reason is StopReason.EMPTY_RESULTS
    stop = hand.run.stop
    assert stop is not None
    assert stop.closed[0].calls == ("c1", "c5")


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_nth_failed_body_ends_the_run(n: int) -> None:
    hand = Hand(a_tool(returns=TableResult({"a": {"type": "int"}})), limits=off(max_tool_errors=n, max_turns=20))
    one_each(hand, [{"a": 1}, ValueError(), {"a": 1}, {"a": "x"}, "result:retryable", KeyError()])
    assert hand.reason is StopReason.MAX_TOOL_ERRORS
    assert hand.run.tool_errors == n
    failed = [call.id for call in hand.calls if call.error]
    stop = hand.run.stop
    assert stop is not None
    assert (len(failed), stop.closed[0].calls) == (n, tuple(failed))


def test_a_bodys_own_cancellation_is_a_failure() -> None:
    hand = Hand(limits=off(max_tool_errors=1, max_turns=9)).asks("look").fails("c1", "CancelledError")
    assert (hand.words, hand.reason) == (["raised:CancelledError"], StopReason.MAX_TOOL_ERRORS)


REFUSED: list[tuple[str, Callable[[Hand], Hand]]] = [
    ("refused:not_allowed", lambda hand: hand.asks("other")),
    ("refused:budget:max_same_tool_calls", lambda hand: hand.asks("spent")),
    ("skipped:max_calls_per_turn", lambda hand: hand.asks("look", "look").plays()),
    ("refused:circuit_open", lambda hand: hand.asks("look").tell(CircuitOpen("c1"))),
    ("skipped:hook", lambda hand: hand.asks("look").tell(Skipped("c1", "hook"))),
]


@pytest.mark.parametrize(("word", "refuses"), REFUSED, ids=[word for word, _ in REFUSED])
def test_refusals_by_policy_budget_breaker_or_hook_count_in_no_error_limit(word: str, refuses: Callable[[Hand], Hand]) -> None:
    errors = {"max_tool_errors": 1, "max_bad_arguments": 1, "max_empty_results": 1}
    limits = off(**errors, max_same_tool_calls={"spent": 0}, max_calls_per_turn=1)
    hand = refuses(Hand(a_tool(), a_tool("other"), a_tool("spent"), limits=limits, allowed=["look", "spent"]))
    assert hand.words[-1] == word
    assert (hand.reason, hand.run.tool_errors, hand.run.bad_arguments) == (None, 0, 0)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_nth_call_refused_for_its_arguments_ends_the_run(n: int) -> None:
    hand = Hand(a_tool(args=taking(q={"type": "int"})), limits=off(max_bad_arguments=n, max_tool_errors=1, max_turns=9))
    for name in ("look", "ghost", "look", "look"):
        if hand.reason is None:
            hand.asks(name)
    assert hand.words == ["args:type:q", "args:unknown_tool", "args:type:q"][:n]
    assert (hand.reason, hand.run.tool_errors) == (StopReason.MAX_BAD_ARGUMENTS, 0)
    stop = hand.run.stop
    assert stop is not None
    assert len(stop.closed[0].calls) == n


def test_a_turn_that_holds_more_than_the_nth_still_counts_them_all() -> None:
    hand = Hand(limits=off(max_bad_arguments=2, max_turns=9)).asks("ghost", "ghost", "ghost")
    assert (hand.run.bad_arguments, hand.reason) == (3, StopReason.MAX_BAD_ARGUMENTS)


EXEMPT: list[tuple[str, dict[str, Any], str, Any, set[str]]] = [
    ("polling", {"polling": True}, "max_same_observation", "same", {"exempt"}),
    ("polling", {"polling": True}, "max_stale_turns", "same", {"exempt"}),
    ("constant", {"constant": True}, "max_same_observation", "same", {"exempt"}),
    ("constant", {"constant": True}, "max_stale_turns", "same", {"exempt"}),
    ("constant", {"constant": True}, "max_empty_results", [], set()),
    *[
        ("empty_ok", {"empty_ok": True}, limit, value, {"exempt"})
        for limit in ("max_same_observation", "max_stale_turns", "max_empty_results")
        for value in (None, "", [], {"found": False}, ())
    ],
    ("empty_ok", {"empty_ok": True}, "max_same_observation", "same", set()),
    ("empty_ok", {"empty_ok": True}, "max_stale_turns", "same", set()),
    *[("none", {}, limit, [], set()) for limit in ("max_same_observation", "max_stale_turns", "max_empty_results")],
    *[("polling", {"polling": True}, "max_tool_errors", ValueError(), set())],
]


@pytest.mark.parametrize(("contract", "declared", "limit", "value", "exempt"), EXEMPT, ids=range(len(EXEMPT)))
def test_what_a_contract_calls_normal_trips_no_wire_and_nothing_else_is_exempt(
    contract: str, declared: dict[str, Any], limit: str, value: Any, exempt: set[str]
) -> None:
    hand = one_each(Hand(a_tool(**declared), limits=off(**{limit: 2, "max_turns": 20})), [value] * 8)
    assert (hand.reason is None) is bool(exempt)
    assert len(hand.calls) == (8 if exempt else 3 if limit == "max_stale_turns" else 2)


def test_where_nothing_found_is_fine_a_classifier_that_says_so_trips_nothing_either() -> None:
    hand = Hand(a_tool(empty_ok=True), limits=off(max_empty_results=2, max_turns=9))
    for n in range(1, 4):
        hand.asks("look").gives(f"c{n}", {"count": 0}, says("EMPTY"))
    assert (hand.reason, hand.run.empty_results) == (None, 0)


def test_an_exempt_call_does_not_make_a_stale_turn_fresh() -> None:
    hand = Hand(a_tool("poll", polling=True), a_tool("look"), limits=off(max_stale_turns=2))
    one_each(hand, ["a"])
    for n in (2, 4):
        hand.asks("poll", "look").gives(f"c{n}", f"tick {n}").gives(f"c{n + 1}", "a")
    assert hand.reason is StopReason.NO_PROGRESS


def test_what_a_follower_shares_counts_once() -> None:
    tools = a_tool("a"), a_tool("b")
    limits = off(max_empty_results=2, max_same_observation=2, max_tool_errors=2, max_turns=9)
    hand = Hand(*tools, limits=limits).decides(*[ToolCall("a", {"q": 1})] * 3).gives("call-1", None)
    hand.decides(*[ToolCall("b", {"q": 1})] * 3).fails("call-4")
    assert hand.reason is None
    assert (hand.run.empty_results, hand.run.same_observation, hand.run.tool_errors) == (1, 1, 1)


def test_without_limits_nothing_is_watched() -> None:
    hand = one_each(Hand(limits=off()), ["same"] * 5 + [None] * 5 + [ValueError()] * 5)
    assert hand.reason is None
    assert (hand.run.observations, hand.run.facts) == ({}, {})


@pytest.mark.parametrize("limits", [off(max_same_observation=9), off(max_stale_turns=9)], ids=["observations", "facts"])
def test_each_watch_keeps_its_own_record(limits: Limits) -> None:
    hand = one_each(Hand(limits=limits), ["a", "a", "b"])
    assert sorted(hand.run.observations.values()) == ([1, 2] if limits.max_same_observation else [])
    assert len(hand.run.facts) == (2 if limits.max_stale_turns else 0)
    assert hand.run.stale_turns == 0


def test_no_progress_results_are_no_evidence_and_lead_to_verify() -> None:
    hand = Hand(limits=off(), verifies=True).asks("look", "look").gives("c1").gives("c2", "hint", says("NO_PROGRESS"))
    assert isinstance(hand.effect, Judge)
    assert [call.id for call in hand.run.evidence()] == ["c1"]
    assert hand.call("c2").value == "hint"


# ---- a run is the same whatever order its results arrive in

KINDS: list[tuple[str, Callable[[str], Event]]] = [
    ("hit", lambda call_id: Returned(call_id, f"hit {call_id}")),
    ("same", lambda call_id: Returned(call_id, "same")),
    ("empty", lambda call_id: Returned(call_id, [])),
    ("raised", lambda call_id: Raised(call_id, "ValueError", "no")),
    ("transient", lambda call_id: Raised(call_id, "TimeoutError", "late")),
    ("stale", lambda call_id: Returned(call_id, "hint", says("NO_PROGRESS"))),
    ("limited", lambda call_id: Returned(call_id, None, says("RATE_LIMITED", retry_after_s=3.0))),
    ("far", lambda call_id: Returned(call_id, None, says("RETRYABLE", retry_after_s=40.0 + len(call_id) + int(call_id[1:])))),
    ("reused", lambda call_id: Reused(call_id, "same")),
    ("circuit", lambda call_id: CircuitOpen(call_id, 4.0)),
    ("skipped", lambda call_id: Skipped(call_id, "hook", 1)),
    ("fatal", lambda call_id: Returned(call_id, None, says("FATAL"))),
]


TRYING = {attempts: Hand(a_tool(retry=Retry(attempts=attempts))).engine for attempts in (1, 2)}


def arrived(kinds: list[int], order: list[int], limits: Limits, attempts: int) -> Run:
    """A turn whose results arrive in this order, driven on until it asks the decider or anybody else."""
    hand = Hand(engine=TRYING[attempts], limits=limits, seed=5).asks(*["look"] * len(kinds), now=1.0).begins()
    for place in order:
        hand.tell(KINDS[kinds[place]][1](f"c{place + 1}"), 2.0)
    while isinstance(hand.effect, CallTools | Wait):
        if isinstance(hand.effect, Wait):
            hand.waits()
            continue
        hand.begins()
        for call_id in hand.batch:
            hand.gives(call_id, f"later {call_id}")
    run = hand.run
    # The logs tell in which order things came; everything else is the same.
    run.flat_journal, run.flat_trace, run.errors, run.tried = [], [], sorted(run.errors), sorted(run.tried, key=str)
    return run


@given(
    kinds=st.lists(st.integers(0, len(KINDS) - 1), min_size=1, max_size=5),
    limits=st.sampled_from(
        [
            off(max_turns=9),
            Limits(),
            off(max_wait_s=10.0, deadline_s=45.0, max_turns=9),
            off(max_same_observation=2, max_empty_results=1, max_tool_errors=2, max_stale_turns=1),
        ]
    ),
    attempts=st.integers(1, 2),
    data=st.data(),
)
def test_results_fold_in_call_order_so_any_order_of_arrival_gives_the_same_run(
    kinds: list[int], limits: Limits, attempts: int, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(kinds))))
    assert arrived(kinds, list(order), limits, attempts) == arrived(kinds, list(range(len(kinds))), limits, attempts)


def test_what_a_machine_does_not_come_to_call_has_its_result_before_the_next_decision() -> None:
    table = Table(
        name="thinks twice",
        initial="think",
        states=(
            State("think", work="decide"), State("again", work="decide"),
            State("act", work="call", tools=None), State("end", work="answer"),
        ),
        rows=(
            Row("think", "decided", "again"), Row("again", "decided", "act"),
            *(Row(state, outcome, "end") for state in ("think", "again") for outcome in ("proposed", "failed", "stopped")),
            *(Row("act", outcome, "end") for outcome in ("called", "failed", "no_progress", "stopped")),
        ),
    )  # fmt: skip
    engine = Engine(Setup(table=table, box=Toolset([a_tool("look"), a_tool("pay")]), work=WORK, limits=off(max_steps=9)))
    hand = Hand(engine=engine).decides(ToolCall("look", {}, "first")).decides(ToolCall("pay", {}, "second")).begins().gives("second")

    assert [(call.id, call.ok, call.error) for call in hand.run.calls] == [("first", False, "skipped:not_called"), ("second", True, "")]
    told = [(message.role, message.call_id) for message in transcript(hand.run, engine.setup.box)]
    assert told[1:] == [(Role.ASSISTANT, ""), (Role.TOOL, "first"), (Role.ASSISTANT, ""), (Role.TOOL, "second")]


@pytest.mark.parametrize("kind", ["NO_PROGRESS", "OK"])
def test_a_result_that_says_it_got_no_further_makes_no_turn_fresh(kind: str) -> None:
    hand = Hand(limits=off(max_stale_turns=2, min_evidence=0))
    for n in range(3):
        if hand.run.stop is None:
            hand.asks("look").gives(f"c{n + 1}", f"hint {n}", says(kind))

    assert hand.run.stale_turns == (2 if kind == "NO_PROGRESS" else 0)
    assert hand.reason is (StopReason.NO_PROGRESS if kind == "NO_PROGRESS" else None)


def test_a_verifiers_next_action_stays_open_where_the_decider_is_asked_before_anything_is_called() -> None:
    table = Table(
        name="checks and thinks",
        initial="think",
        states=(
            State("think", work="decide"), State("act", work="call", tools=None),
            State("check", work="verify"), State("end", work="answer"),
        ),
        rows=(
            Row("think", "decided", "act"), Row("think", "proposed", "check"), *(Row("think", one, "end") for one in ("failed", "stopped")),
            Row("act", "called", "think", (turns_left,)),
            *(Row("act", one, "end") for one in ("called", "failed", "no_progress", "stopped")),
            Row("check", "insufficient", "think", (turns_left,)),
            *(Row("check", one, "end") for one in ("insufficient", "passed", "stopped")),
        ),
    )  # fmt: skip
    limits = off(max_steps=20, max_turns=9)
    engine = Engine(Setup(table=table, box=Toolset([a_tool("look"), a_tool("pay")]), work=WORK, limits=limits, verifies=True))
    hand = Hand(engine=engine).decides(text="a guess").judges("need_more", next_action=ToolCall("look", {}))
    hand.decides(ToolCall("pay", {}, "mine")).plays()

    assert [(call.id, call.ok, call.by_verifier) for call in hand.run.calls] == [("verify-1", True, True), ("mine", True, False)]
