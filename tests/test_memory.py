"""Memory: what is remembered comes back as it was, in its scope, until its time is over."""

from __future__ import annotations

import math
import sys
import threading
from collections import UserDict
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fsm_agent.core.errors import BuildError
from fsm_agent.host.memory import DictMemory, Memory, Remembered, TtlMemory

NO_TIME: list[Any] = [None, "1", True, math.nan, math.inf, 10**5000]


def ok(value: Any = "v", stored_at: float = 0.0, ttl_s: float | None = None) -> Remembered:
    return Remembered(ok=True, value=value, stored_at=stored_at, ttl_s=ttl_s)


def failed(ttl_s: float | None, stored_at: float = 0.0) -> Remembered:
    return Remembered(ok=False, error="raised:OSError", stored_at=stored_at, ttl_s=ttl_s, run_id="r1", tool="t")


def value_of(memory: Memory, key: str = "k", scope: str = "s", now: float = 0.0) -> Any:
    found = memory.get(key, scope, now)
    assert found is not None
    return found.value


class NotPlain:
    """What no saved run could hold, and nobody can copy, hash or compare."""

    def __deepcopy__(self, memo: object) -> NotPlain:
        raise RuntimeError("cannot be copied")

    def __reduce_ex__(self, protocol: object) -> str:
        raise RuntimeError("cannot be pickled")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("cannot be compared")

    def __hash__(self) -> int:
        raise RuntimeError("cannot be hashed")


# ---- the record


def test_both_memories_fit_the_port() -> None:
    assert isinstance(TtlMemory(), Memory)
    assert isinstance(DictMemory({}), Memory)


@pytest.mark.parametrize("stored_at", [*NO_TIME, -math.inf], ids=lambda v: type(v).__name__)
def test_a_result_is_stored_at_a_time(stored_at: Any) -> None:
    with pytest.raises(BuildError, match="stored_at"):
        ok(stored_at=stored_at)


@pytest.mark.parametrize("ttl_s", ["1", True, math.nan, -math.inf, -1, -1e-9, 10**5000], ids=lambda v: type(v).__name__)
def test_a_ttl_is_a_time_from_nothing_up(ttl_s: Any) -> None:
    with pytest.raises(BuildError, match="ttl_s"):
        ok(ttl_s=ttl_s)


def test_a_record_can_be_printed_whatever_it_holds() -> None:
    assert "value" not in repr(ok(10**5000))
    assert "raised:OSError" in repr(failed(60.0))


# ---- time to live

AGES = [
    # ttl_s, age, whether it may still be used
    (None, 0.0, True),
    (None, 1e12, True),
    (None, -1e12, True),
    (math.inf, 0.0, True),
    (math.inf, 1e12, True),
    (0, 0.0, False),
    (0.0, 0.0, False),
    (0.0, 1.0, False),
    (0.0, -1.0, False),
    (60, 0.0, True),
    (60.0, 59.0, True),
    (60.0, 59.75, True),
    (60.0, 60.0, False),
    (60.0, 60.25, False),
    (60.0, 1e12, False),
    # the wall clock was set back, or another process's runs ahead
    (60.0, -1.0, True),
    (60.0, -59.75, True),
    (60.0, -60.0, False),
    (60.0, -1e12, False),
]


@pytest.mark.parametrize("make", [ok, lambda **times: failed(**times)], ids=["success", "failure"])
@pytest.mark.parametrize("stored_at", [0.0, -100, 1_790_000_000.0])
@pytest.mark.parametrize(("ttl_s", "age", "usable"), AGES)
def test_a_result_may_be_used_before_its_ttl_and_not_at_it(
    make: Callable[..., Remembered], stored_at: float, ttl_s: float | None, age: float, usable: bool
) -> None:
    """0 is a time like any other; a failure is never kept without a TTL."""
    memory, value = TtlMemory(), make(stored_at=stored_at, ttl_s=ttl_s)
    assert value.usable(stored_at + age) is usable
    memory.put("k", "s", value)
    assert memory.get("k", "s", stored_at + age) == (value if usable and (value.ok or ttl_s is not None) else None)


def test_what_is_expired_is_gone_and_takes_no_room() -> None:
    memory = TtlMemory()
    memory.put("k", "s", ok(ttl_s=10.0))
    assert memory.get("k", "s", 10.0) is None
    assert len(memory) == 0
    assert memory.get("k", "s", 0.0) is None


def test_a_ttl_of_nothing_also_forgets_what_was_there() -> None:
    memory = TtlMemory()
    memory.put("k", "s", ok("old"))
    memory.put("k", "s", ok("new", ttl_s=0))
    assert memory.get("k", "s", 0.0) is None


@pytest.mark.parametrize("now", NO_TIME, ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("memory", [TtlMemory(), DictMemory({})], ids=["ttl", "dict"])
def test_a_clock_that_tells_no_time_is_named(memory: Memory, now: Any) -> None:
    with pytest.raises(BuildError, match="now"):
        memory.get("k", "s", now)


# ---- what comes back


@pytest.mark.parametrize("value", [None, False, 0, "", [], {}, "text", 1.5, {"rows": [{"a": [1, None]}]}], ids=repr)
def test_every_plain_value_comes_back_equal_and_of_its_type(value: Any) -> None:
    memory = TtlMemory()
    memory.put("k", "s", ok(value))
    found = value_of(memory)
    assert (found, type(found)) == (value, type(value))


def test_a_failure_comes_back_with_its_error_and_where_it_came_from() -> None:
    memory = TtlMemory()
    memory.put("k", "s", failed(60.0))
    found = memory.get("k", "s", 59.0)
    assert found == failed(60.0)
    assert found is not None
    assert (found.ok, found.error, found.run_id, found.tool) == (False, "raised:OSError", "r1", "t")


def test_a_failure_without_a_ttl_leaves_what_was_there() -> None:
    memory = TtlMemory()
    memory.put("k", "s", ok("old"))
    memory.put("k", "s", failed(None))
    assert value_of(memory) == "old"


def test_the_last_one_put_stands() -> None:
    memory = TtlMemory()
    for value in (ok("old"), failed(60.0), ok("new")):
        memory.put("k", "s", value)
        assert memory.get("k", "s", 0.0) == value
    assert len(memory) == 1


@pytest.mark.parametrize("memory", [TtlMemory(), DictMemory({})], ids=["ttl", "dict"])
def test_nobody_can_change_what_is_remembered(memory: Memory) -> None:
    value = {"rows": [{"sku": "a"}]}
    memory.put("k", "s", ok(value))
    value["rows"].append({"sku": "the tool's"})
    value["rows"][0]["sku"] = "changed"
    first = value_of(memory)
    assert first == {"rows": [{"sku": "a"}]}
    first["rows"][0]["sku"] = "the caller's"
    first["rows"].clear()
    assert value_of(memory) == {"rows": [{"sku": "a"}]}


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


UNCOPIED: dict[str, Callable[[], Any]] = {
    "object": NotPlain,
    "object inside": lambda: {"rows": [NotPlain()]},
    "generator": lambda: (n for n in range(3)),
    "generator inside": lambda: [1, (n for n in range(3))],
    "lock": threading.Lock,
    "250 deep": lambda: deep(250),
    "100,000 deep": lambda: deep(100_000),
}


@pytest.mark.parametrize("make", UNCOPIED.values(), ids=UNCOPIED)
@pytest.mark.parametrize("memory", [TtlMemory(), DictMemory({})], ids=["ttl", "dict"])
def test_what_cannot_be_copied_whole_is_not_remembered_and_the_older_result_goes(
    memory: Memory, make: Callable[[], Any]
) -> None:
    """A generator handed back twice would be empty the second time."""
    memory.put("k", "s", ok("old"))
    memory.put("k", "s", ok(make()))
    assert memory.get("k", "s", 0.0) is None


@pytest.mark.parametrize("memory", [TtlMemory(), DictMemory({})], ids=["ttl", "dict"])
def test_a_value_inside_itself_comes_back_as_another_such(memory: Memory) -> None:
    value: list[Any] = [1]
    value.append(value)
    memory.put("k", "s", ok(value))
    value[0] = 2
    found = value_of(memory)
    assert found[0] == 1
    assert found[1] is found
    assert found is not value


@pytest.mark.parametrize("memory", [TtlMemory(), DictMemory({})], ids=["ttl", "dict"])
def test_an_object_that_can_be_copied_comes_back_as_a_copy(memory: Memory) -> None:
    @attrs.define
    class Row:
        counts: list[int]

    row = Row([1])
    memory.put("k", "s", ok([row]))
    row.counts.append(2)
    value_of(memory)[0].counts.append(3)
    assert value_of(memory) == [Row([1])]


@pytest.mark.parametrize("memory", [TtlMemory(), DictMemory({})], ids=["ttl", "dict"])
def test_two_hundred_levels_are_remembered_whole(memory: Memory) -> None:
    memory.put("k", "s", ok(deep(200)))
    assert value_of(memory) == deep(200)


def test_what_others_put_into_the_dict_comes_back_whatever_it_is() -> None:
    kept: dict[str, Any] = {"object": NotPlain(), "deep": deep(100_000)}
    memory = DictMemory(kept)
    assert type(value_of(memory, "object")) is NotPlain
    assert type(value_of(memory, "deep")) is list


@pytest.mark.parametrize("key", [[], {}, NotPlain()], ids=["list", "dict", "hostile"])
@pytest.mark.parametrize("memory", [TtlMemory(), DictMemory({})], ids=["ttl", "dict"])
def test_a_key_that_cannot_be_hashed_remembers_nothing(memory: Memory, key: Any) -> None:
    memory.put(key, "s", ok())
    assert memory.get(key, "s", 0.0) is None


@pytest.mark.parametrize("text", ["", "\ud800", "é", "e\u0301", "k" * 100_000], ids=["", "lone", "nfc", "nfd", "long"])
def test_any_text_is_a_key_and_a_scope_as_it_stands(text: str) -> None:
    memory = TtlMemory()
    memory.put(text, text, ok(text))
    assert value_of(memory, text, text) == text
    assert len(memory) == 1
    assert memory.get("e\u0301" if text == "é" else "é", text, 0.0) is None or text == "é"


# ---- scopes


def test_scopes_share_nothing() -> None:
    memory = TtlMemory()
    memory.put("k", "one", ok("of one"))
    assert memory.get("k", "two", 0.0) is None
    memory.put("k", "two", ok("of two"))
    assert (value_of(memory, scope="one"), value_of(memory, scope="two")) == ("of one", "of two")


@given(st.text(max_size=3), st.text(max_size=3), st.text(max_size=3), st.text(max_size=3))
def test_two_pairs_of_key_and_scope_are_never_one(key: str, scope: str, other_key: str, other_scope: str) -> None:
    memory = TtlMemory()
    memory.put(key, scope, ok())
    assert (memory.get(other_key, other_scope, 0.0) is not None) == ((key, scope) == (other_key, other_scope))


def test_forgetting_a_scope_leaves_the_others() -> None:
    memory = TtlMemory()
    for scope in ("one", "two"):
        for key in ("a", "b"):
            memory.put(key, scope, ok(scope + key))
    memory.forget("one")
    memory.forget("never seen")
    assert [memory.get(key, "one", 0.0) for key in ("a", "b")] == [None, None]
    assert [value_of(memory, key, "two") for key in ("a", "b")] == ["twoa", "twob"]


# ---- the bound


@pytest.mark.parametrize("max_entries", [0, -1, True, 1.0, "1", None, math.nan], ids=repr)
def test_the_bound_is_a_whole_number_of_at_least_one(max_entries: Any) -> None:
    with pytest.raises(BuildError, match=r"max_entries.*cache_ttl_s"):
        TtlMemory(max_entries)


@pytest.mark.parametrize("max_entries", [1, 2, 3, 7])
def test_beyond_the_bound_the_oldest_goes(max_entries: int) -> None:
    memory = TtlMemory(max_entries)
    for index in range(10):
        memory.put(str(index), "s", ok(index))
        assert len(memory) == min(index + 1, max_entries)
    assert [index for index in range(10) if memory.get(str(index), "s", 0.0)] == list(range(10 - max_entries, 10))


@pytest.mark.parametrize("use", ["get", "put"])
def test_what_was_used_last_stays(use: str) -> None:
    memory = TtlMemory(2)
    memory.put("a", "s", ok())
    memory.put("b", "s", ok())
    if use == "get":
        memory.get("a", "s", 0.0)
    else:
        memory.put("a", "s", ok("again"))
    memory.put("c", "s", ok())
    assert [key for key in "abc" if memory.get(key, "s", 0.0)] == ["a", "c"]


def test_the_bound_holds_over_all_scopes_and_a_thousand_entries_are_kept_by_default() -> None:
    memory = TtlMemory()
    for index in range(1100):
        memory.put("k", str(index), ok(index))
    assert len(memory) == 1024
    assert memory.get("k", "75", 0.0) is None
    assert value_of(memory, scope="76") == 76


class MemoryModel(RuleBasedStateMachine):
    """The memory against a plain list of what was put, newest use last."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = TtlMemory(3)
        self.now = 0.0
        self.uses: list[tuple[str, str, Remembered]] = []

    def take(self, key: str, scope: str) -> Remembered | None:
        for use in self.uses:
            if use[:2] == (key, scope):
                self.uses.remove(use)
                return use[2]
        return None

    @rule(seconds=st.sampled_from([0.0, 1.0, 5.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(
        key=st.sampled_from("ab"),
        scope=st.sampled_from("xyz"),
        success=st.booleans(),
        ttl_s=st.sampled_from([None, 0.0, 1.0, 5.0]),
        value=st.integers(),
    )
    def put(self, key: str, scope: str, success: bool, ttl_s: float | None, value: int) -> None:
        record = Remembered(ok=success, value=value, stored_at=self.now, ttl_s=ttl_s)
        self.memory.put(key, scope, record)
        if success or ttl_s is not None:
            self.take(key, scope)
            self.uses += [(key, scope, record)] if ttl_s != 0.0 else []
            self.uses = self.uses[-3:]

    @rule(key=st.sampled_from("ab"), scope=st.sampled_from("xyz"))
    def get(self, key: str, scope: str) -> None:
        record = self.take(key, scope)
        if record is not None and record.ttl_s is not None and self.now >= record.stored_at + record.ttl_s:
            record = None
        assert self.memory.get(key, scope, self.now) == record
        if record is not None:
            self.uses.append((key, scope, record))

    @rule(scope=st.sampled_from("xyz"))
    def forget(self, scope: str) -> None:
        self.memory.forget(scope)
        self.uses = [use for use in self.uses if use[1] != scope]

    @invariant()
    def they_keep_as_many(self) -> None:
        assert len(self.memory) == len(self.uses)


TestMemoryModel = MemoryModel.TestCase


# ---- the lab's dict


def test_the_dict_holds_the_bare_values_and_is_read_live() -> None:
    kept: dict[str, Any] = {}
    memory = DictMemory(kept)
    memory.put("k", "s", ok({"rows": [1]}))
    assert kept == {"k": {"rows": [1]}}
    kept["other"] = None
    assert memory.get("other", "s", 7.0) == Remembered(ok=True, value=None, stored_at=7.0)
    kept.clear()
    assert memory.get("k", "s", 0.0) is None


@pytest.mark.parametrize("there", [False, True])
def test_the_dict_is_looked_up_once_so_a_clearing_cannot_come_between(there: bool) -> None:
    class Counted(dict[str, Any]):
        looked = 0

        def __contains__(self, key: object) -> bool:
            self.looked += 1
            return super().__contains__(key)

        def __getitem__(self, key: str) -> Any:
            self.looked += 1
            return super().__getitem__(key)

        def get(self, key: str, default: Any = None) -> Any:
            self.looked += 1
            return super().get(key, default)

    kept = Counted(k="v") if there else Counted()
    assert (DictMemory(kept).get("k", "s", 0.0) is not None) is there
    assert kept.looked == 1


def test_the_dict_knows_no_scopes_and_no_expiry() -> None:
    memory = DictMemory({})
    memory.put("k", "one", ok("v", ttl_s=5.0))
    assert value_of(memory, scope="two", now=1e12) == "v"


@pytest.mark.parametrize("value", [failed(None), failed(60.0), ok(ttl_s=0)], ids=["failed", "failed with ttl", "ttl 0"])
def test_the_dict_keeps_successes_that_may_be_reused_only(value: Remembered) -> None:
    kept: dict[str, Any] = {}
    DictMemory(kept).put("k", "s", value)
    assert kept == {}


def test_forgetting_clears_the_dict() -> None:
    kept: dict[str, Any] = {"a": 1}
    DictMemory(kept).forget("any")
    assert kept == {}


@pytest.mark.parametrize("mapping", [None, [], (), "k", 1, object()], ids=lambda v: type(v).__name__)
def test_only_a_mapping_can_be_wrapped(mapping: Any) -> None:
    with pytest.raises(BuildError, match="mutable mapping"):
        DictMemory(mapping)


def test_a_mapping_that_fails_remembers_nothing() -> None:
    class Broken(UserDict[str, Any]):
        def __getitem__(self, key: str) -> Any:
            raise OSError("away")

        def __setitem__(self, key: str, item: Any) -> None:
            raise OSError("away")

    memory = DictMemory(Broken())
    memory.put("k", "s", ok())
    assert memory.get("k", "s", 0.0) is None


# ---- threads

@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Let threads change places between almost any two steps, so that a missing lock shows."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def together(*works: Callable[[], None]) -> None:
    """Run every work in a thread of its own, begun at once, and raise what one of them raised."""
    barrier = threading.Barrier(len(works))
    raised: list[Exception] = []

    def run(work: Callable[[], None]) -> None:
        barrier.wait()
        try:
            work()
        except Exception as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


@pytest.mark.usefixtures("eager_threads")
def test_a_dict_cleared_at_any_moment_never_breaks_a_reader() -> None:
    kept: dict[str, Any] = {}
    memory = DictMemory(kept)

    def read_and_write() -> None:
        for _ in range(2000):
            memory.put("k", "s", ok({"rows": [1, 2]}))
            found = memory.get("k", "s", 0.0)
            assert found is None or found.value == {"rows": [1, 2]}

    def clear() -> None:
        for _ in range(4000):
            kept.clear()

    together(read_and_write, read_and_write, clear, clear)


@pytest.mark.usefixtures("eager_threads")
def test_threads_that_put_get_and_forget_keep_the_bound_and_the_values() -> None:
    memory = TtlMemory(8)

    def work(scope: str) -> Callable[[], None]:
        def run() -> None:
            for index in range(1000):
                key = str(index % 5)
                memory.put(key, scope, ok([scope, key], ttl_s=5.0))
                found = memory.get(key, scope, index % 7)
                assert found is None or found.value == [scope, key]
                assert len(memory) <= 8
                if index % 50 == 0:
                    memory.forget(scope)

        return run

    together(*(work(str(number)) for number in range(6)))


class Interruption:
    """Lets another thread in, if nothing holds it up, and never twice at once."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._threads: list[threading.Thread] = []

    def __call__(self) -> None:
        if not any(thread.is_alive() for thread in self._threads) and threading.current_thread() not in self._threads:
            self._threads.append(threading.Thread(target=self._work))
            self._threads[-1].start()
            self._threads[-1].join(0.05)

    def join(self) -> None:
        assert self._threads, "nothing was interrupted"
        for thread in self._threads:
            thread.join()


@attrs.frozen(kw_only=True)
class InterruptedResult(Remembered):
    interruption: Interruption

    def usable(self, now: float) -> bool:
        self.interruption()
        return super().usable(now)


class InterruptedText(str):
    """A text that is interrupted whenever it is hashed or compared."""

    interruption: Interruption | None = None

    def _interrupt(self) -> None:
        if self.interruption is not None:
            self.interruption()

    def __hash__(self) -> int:
        self._interrupt()
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        self._interrupt()
        return super().__eq__(other)


@pytest.mark.parametrize("now", [0.0, 10.0], ids=["fresh", "expired"])
def test_what_is_forgotten_while_it_is_read_was_read_before(now: float) -> None:
    memory = TtlMemory()
    interruption = Interruption(lambda: memory.forget("s"))
    memory.put("k", "s", InterruptedResult(ok=True, value=1, stored_at=0.0, ttl_s=10.0, interruption=interruption))
    assert (memory.get("k", "s", now) is None) is (now == 10.0)
    interruption.join()
    assert len(memory) == 0


def test_what_is_forgotten_while_it_is_put_was_put_before() -> None:
    memory, key = TtlMemory(), InterruptedText("k")
    key.interruption = Interruption(lambda: memory.forget("s"))
    memory.put(key, "s", ok())
    key.interruption.join()
    assert len(memory) == 0


def test_what_is_put_while_a_scope_is_forgotten_is_put_after_it() -> None:
    memory, scope = TtlMemory(), InterruptedText("s")
    for key in "ab":
        memory.put(key, "s", ok())
    scope.interruption = Interruption(lambda: memory.put("c", "s", ok()))
    memory.forget(scope)
    scope.interruption.join()
    assert [key for key in "abc" if memory.get(key, "s", 0.0)] == ["c"]


def test_a_dict_that_lends_keeps_and_gives_the_very_value_of_those_that_may_be_reused() -> None:
    kept: dict[str, Any] = {}
    memory, value = DictMemory(kept, lends=True), {"rows": [1]}
    memory.put("k", "s", ok(value))
    assert kept["k"] is value
    assert value_of(memory) is value
    memory.put("k", "s", failed(60.0))
    assert value_of(memory) is value, "a failure leaves what was there"
    memory.put("k", "s", ok(value, ttl_s=0.0))
    assert kept == {}
