"""Canonical keys: one text for one call in any order of its keys, another for any other call; facts of a result."""

from __future__ import annotations

import inspect
import json
import math
import re
import subprocess
import sys
import threading
import unicodedata
from collections import OrderedDict, UserDict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal, localcontext
from enum import Enum, Flag, IntEnum, StrEnum
from fractions import Fraction
from pathlib import PurePosixPath, PureWindowsPath
from types import MappingProxyType
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fsm_agent.core.canonical import Writer, folded, nfc_quoted
from fsm_agent.core.keys import _all_leaves, call_key, key_args, leaves, loop_key, observation_key, observed
from fsm_agent.core.plain import EnumName, dumps, loads


class Colour(Enum):
    RED = 1
    BLUE = 2


class OtherColour(Enum):
    RED = 1


class Word(StrEnum):
    ONE = "1"


class Level(IntEnum):
    ONE = 1


class Access(Flag):
    READ = 1
    WRITE = 2


@dataclass
class Point:
    x: Any
    y: Any = None


@dataclass
class OtherPoint:
    x: Any
    y: Any = None


@attrs.define
class Row:
    x: Any
    y: Any = None


@attrs.define
class HalfMade:
    gone: int = attrs.field(init=False)


class Modelled:
    def __init__(self, x: object) -> None:
        self.x = x

    def model_dump(self) -> dict[str, Any]:
        return {"x": self.x}


class ByValue:
    """Has an equality, a hash and a repr of its own, as a number of another library does."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByValue) and self.n == other.n

    def __hash__(self) -> int:
        return hash(self.n)

    def __repr__(self) -> str:
        return f"ByValue({self.n}, '\ud800')"


class AllAlike:
    """Its repr tells nothing and it has no equality of its own."""

    def __repr__(self) -> str:
        return "AllAlike()"


class Hostile:
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise OSError("eq")

    def __repr__(self) -> str:
        raise OSError("repr")


class HostileByValue:
    def __eq__(self, other: object) -> bool:
        raise OSError("eq")

    def __hash__(self) -> int:
        raise OSError("hash")

    def __repr__(self) -> str:
        raise OSError("repr")


class Proxy:
    @property
    def __class__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("unbound")


class NoHash(type):
    def __eq__(cls, other: object) -> bool:
        return True


class OfNoHash(metaclass=NoHash):
    pass


class Endless(Mapping[str, Any]):
    """Makes up what it holds at each look."""

    def __getitem__(self, key: str) -> Any:
        return Endless()

    def __iter__(self) -> Iterator[str]:
        return iter(["a", "b"])

    def __len__(self) -> int:
        return 2


class BadMapping(Endless):
    def __iter__(self) -> Iterator[str]:
        raise OSError("no keys")


class Text(str):
    pass


class Whole(int):
    pass


class Items(list[Any]):
    pass


def nested(depth: int, wrap: Callable[[Any], Any] = lambda inner: [inner], bottom: object = "bottom") -> Any:
    value: Any = bottom
    for _ in range(depth):
        value = wrap(value)
    return value


def holding_itself(*more: object) -> Any:
    value: dict[str, Any] = {"more": [*more]}
    value["self"] = value
    value["more"] += [value, (value,)]
    return value


def shared(levels: int) -> Any:
    value: Any = [1]
    for _ in range(levels):
        value = [value, value]
    return value


# Each of these is another value than every other.
DISTINCT: list[Any] = [
    *(None, True, False, 0, 1, -1, 10**700, 10**700 + 1, 10**5000, 10**5000 + 1, 1.0, 0.0, 1e16, 10**16, math.inf),
    *(-math.inf, math.nan, "", "1", "1.0", "True", "None", "nan", "a", "A", "é", "e\u0301", "\\xe9", "\ud800"),
    "\\ud800",
    *("\U0001d400", "\ud835\udc00", "\x00", "\n", "'", '"', "a,b", "a',", "x" * 700, "x" * 701, "y" * 700),
    *(b"", b"1", b"a", bytearray(b"a"), memoryview(b"a"), [], (), {}, set(), frozenset(), [1], (1,), {1}, {1: 1}),
    *(frozenset({1}), [1.0], [True], ["1"], [[1]], [(1,)], [1, 2], [2, 1], [1, [2]], [[1], 2], [None], [[]], [{}]),
    *([1] * 700, [1] * 701, [["x" * 700]], [["x" * 701]], ["a", "b"], ["a,b"], ["a','b"], ["'a'", "b"]),
    *({"1": 1}, {1.0: "1"}, {"a": 1}, {"a": "1"}, {"a": {"b": 1}}, {"a": {"b": 2}}, {"a": {"c": 1}}, {"a": [1]}),
    *({"a": None}, {"a": {}}, {"a": 1, "b": 2}, {"a": 2, "b": 1}, {"a:1,b": 2}, {"a": "1,'b':2"}, {None: 1}, {(1,): 1}),
    *([("a", 1)], [["a", 1]], {("a", 1)}, {"a": [{"b": [1]}]}, {"a": [{"b": [2]}]}, {"a": ({"b": 1},)}),
    *(Colour.RED, Colour.BLUE, OtherColour.RED, Word.ONE, Level.ONE, Access.READ, Access.WRITE, Access(3), Access(0)),
    *(Text("1"), Whole(1), Items([1]), OrderedDict(a=1), deque([1]), {"a": 1}.keys(), MappingProxyType({"a": 1})),
    *(Decimal("1"), Decimal("1.0"), Decimal("1E+5"), Decimal("NaN"), Fraction(1), Fraction(1, 3)),
    Fraction(10**5000, 7),
    *(complex(1), complex(1, 2), complex(0, math.nan), UUID(int=1), UUID(int=2), range(1), range(0, 2), range(0, 2, 2)),
    *(range(10**5000), date(2020, 1, 1), datetime(2020, 1, 1), datetime(2020, 1, 1, fold=1), time(1), time(1, fold=1)),
    *(datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=1))), timedelta(1)),
    *(datetime(2020, 1, 1, tzinfo=ZoneInfo("Europe/Paris")), time(1, tzinfo=ZoneInfo("Europe/Paris")), timedelta(0, 1)),
    *(PurePosixPath("/a"), PurePosixPath("/b"), PureWindowsPath("/a"), re.compile("a"), re.compile("a", re.IGNORECASE)),
    *(re.compile("a" * 300), re.compile("a" * 301), Point(1), Point(2), OtherPoint(1), Row(1), Row("1"), Row(1, [2])),
    *(Modelled(1), Modelled(2), ByValue(1), ByValue(2), AllAlike(), AllAlike(), Hostile(), Hostile(), HostileByValue()),
    *(object(), object(), Proxy(), OfNoHash(), OfNoHash(), len, dict, list, lambda: 1, lambda: 1, threading.Lock()),
    *(nested(99), nested(100), nested(101), nested(3000), nested(3000, bottom="other")),
    *(holding_itself(), holding_itself(1), [shared(3)], shared(60), HalfMade(), ValueError("a"), ValueError("b")),
    *({"a": nested(300, lambda inner: {"b": inner})}, {"a": nested(300, lambda inner: {"b": inner}, "other")}),
]
PLACES: dict[str, Callable[[Any], Any]] = {
    "arguments": lambda value: value,
    "argument": lambda value: {"a": value},
    "second argument": lambda value: {"b": value, "a": 1},
    "nested": lambda value: {"a": [{"b": (value,)}]},
    "in an object": lambda value: {"a": Row(value)},
}


def is_decomposed(value: object) -> bool:
    """True for the one value that is not alone in NFC."""
    return type(value) is str and value == "e\u0301"


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
@pytest.mark.parametrize("key", [call_key, loop_key])
def test_different_values_have_different_keys(
    key: Callable[[object, object], str], place: Callable[[Any], Any]
) -> None:
    known: dict[str, int] = {}
    for number, value in enumerate(DISTINCT):
        if key is loop_key and is_decomposed(value):
            continue
        if place(value) is value and type(value) in (OrderedDict, MappingProxyType):
            continue
        first = known.setdefault(key("t", place(value)), number)
        assert first == number, (type(DISTINCT[first]), type(value), first, number)


@pytest.mark.parametrize("key", [call_key, loop_key])
def test_different_tools_have_different_keys(key: Callable[[object, object], str]) -> None:
    names = [*DISTINCT, "t", "t'", "t{", "t{}", "t'{'a':1,}", "<tool 1>"]
    names = [name for name in names if not issubclass(type(name), Text | Word) and not is_decomposed(name)]
    assert len({key(name, args) for name in names for args in ({}, {"a": 1}, [1], "a", 2, 12)}) == 6 * len(names)


def test_a_tool_and_its_arguments_do_not_run_into_each_other() -> None:
    pairs = [(1, 2), (12, {}), ("1", 2), ("a", "b"), ("a'", "b"), ("a''b", {}), ("a", "'b"), (None, None), ("", "")]
    assert len({call_key(*pair) for pair in pairs}) == len(pairs)


def reordered(value: Any) -> Any:
    """An equal value, with dicts and sets made in the other order and no part shared."""
    if isinstance(value, dict):
        return {reordered(key): reordered(item) for key, item in reversed(value.items())}
    if isinstance(value, list | tuple | set | frozenset):
        items = [reordered(item) for item in value]
        return type(value)(items if isinstance(value, list | tuple) else items[::-1])
    return value


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return repr(one) == repr(other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        left, right = list(one.items()), list(other.items())
        return len(left) == len(right) and all(any(same(pair, wanted) for wanted in right) for pair in left)
    if isinstance(one, frozenset):
        return len(one) == len(other) and all(any(same(item, wanted) for wanted in other) for item in one)
    return bool(one == other)


few = st.sampled_from([None, True, False, 0, 1, 2, 0.0, 1.0, math.nan, "", "1", "a", "a,", "'", "é", b"a", "\ud800"])
values = st.recursive(
    few | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.tuples(inner)
        | st.dictionaries(st.sampled_from(["a", "b", "1", "é", 1, 2.5, None]), inner, max_size=3)
        | st.frozensets(few, max_size=2)
    ),
    max_leaves=5,
)


@settings(max_examples=120)
@given(values, values)
def test_keys_are_equal_exactly_for_equal_calls(one: Any, other: Any) -> None:
    for left, right in ((one, other), ({"x": one, "y": 1}, {"y": 1, "x": other})):
        assert (call_key("t", left) == call_key("t", right)) is same(left, right)


@given(values, st.integers(0, 3))
def test_neither_order_nor_sharing_nor_size_makes_another_key(value: Any, wide: int) -> None:
    args = {"n": [value, value, 1], "z": "x" * (700 * wide), "é": value}
    other = dict(reversed([(key, reordered(item)) for key, item in args.items()]))
    assert call_key("t", args) == call_key("t", other)
    assert loop_key("t", args) == loop_key("t", other)
    assert observation_key(args) == observation_key(other)
    assert set(leaves(args)) == set(leaves(other))


@example({"]": None, "\x80": None}, "")
@given(st.dictionaries(st.text(max_size=3), values, max_size=3), st.text(max_size=4))
def test_a_loop_key_is_the_key_of_the_normal_form(args: dict[str, Any], tool: str) -> None:
    assert loop_key(tool, args) == loop_key(normal(tool), normal(args))
    # Each is compared with its own kind alone, so they may differ in the order of names whose quoted texts sort otherwise.
    if same(args, normal(args)) and tool == normal(tool) and sorted(args) == sorted(args, key=ascii):
        assert loop_key(tool, args) == call_key(tool, args)


def normal(value: Any) -> Any:
    if isinstance(value, str):
        return unicodedata.normalize("NFC", value)
    if isinstance(value, dict):
        return {normal(key): normal(item) for key, item in value.items()}
    return type(value)(map(normal, value)) if isinstance(value, list | tuple | frozenset) else value


SPELLINGS = [("\u00e9", "e\u0301"), ("\uac00", "\u1100\u1161"), ("\u1e69", "s\u0307\u0323"), ("\u212b", "\u00c5")]
SPELLED: dict[str, Callable[[str], tuple[Any, Any]]] = {
    "tool": lambda text: (text, {"a": 1}),
    "argument": lambda text: ("t", {"a": text}),
    "name": lambda text: ("t", {"z": 1, text: 1}),
    "nested": lambda text: ("t", {"a": [{text: (text, {text})}]}),
    "object": lambda text: ("t", {"a": Row(text), "b": PurePosixPath(text), "c": Text(text)}),
    "long": lambda text: ("t", {"a": text * 5000}),
    "bare": lambda text: ("t", text),
}


@pytest.mark.parametrize(("composed", "decomposed"), SPELLINGS)
@pytest.mark.parametrize("spell", SPELLED.values(), ids=SPELLED.keys())
def test_two_spellings_of_a_text_are_one_for_loops_only(
    composed: str, decomposed: str, spell: Callable[[str], tuple[Any, Any]]
) -> None:
    assert loop_key(*spell(composed)) == loop_key(*spell(decomposed))
    assert call_key(*spell(composed)) != call_key(*spell(decomposed))
    assert observation_key(spell(composed)) == observation_key(spell(decomposed))
    assert set(leaves(spell(composed))) == set(leaves(spell(decomposed)))


EQUAL: list[tuple[Any, Any]] = [
    ({"a": math.nan}, {"a": -float("nan")}),
    ({"a": 1, "b": {"c": 1, "d": 2}}, {"b": {"d": 2, "c": 1}, "a": 1}),
    ({1: "a", "1": "b"}, {"1": "b", 1: "a"}),
    ({"a": {3, 1, 2}}, {"a": {1, 2, 3}}),
    ({"a": 1}, OrderedDict(a=1)),
    ({"a": 1}, MappingProxyType({"a": 1})),
    ({"a": 1}, UserDict(a=1)),
    ({"a": (1, [2])}, MappingProxyType({"a": (1, [2])})),
    ({"a": Point(1, [2])}, {"a": Point(1, [2])}),
    ({"a": Row(1, {"b": 2, "c": 3})}, {"a": Row(1, {"c": 3, "b": 2})}),
    ({"a": Modelled(1)}, {"a": Modelled(1)}),
    ({"a": ByValue(1)}, {"a": ByValue(1)}),
    ({"a": Decimal("1.10")}, {"a": Decimal("1.10")}),
    ({"a": OrderedDict(b=1, c=2)}, {"a": OrderedDict(c=2, b=1)}),
    ({"a": Colour.RED}, {"a": EnumName(f"{__name__}.Colour.RED")}),
    ({"a": holding_itself(1)}, {"a": holding_itself(1)}),
    ({"a": nested(3000)}, {"a": nested(3000)}),
    ({"a": 10**5000}, {"a": 10**5000}),
    ({"a": shared(10)}, {"a": json.loads(json.dumps(shared(10)))}),
]


@pytest.mark.parametrize(("one", "other"), EQUAL, ids=range(len(EQUAL)))
@pytest.mark.parametrize("key", [call_key, loop_key])
def test_the_same_call_made_anew_has_the_same_key(
    key: Callable[[object, object], str], one: object, other: object
) -> None:
    assert key("t", one) == key("t", other)


def test_a_tool_name_of_a_text_type_is_its_text() -> None:
    assert call_key(Word.ONE, {"a": 1}) == call_key(Text("1"), {"a": 1}) == call_key("1", {"a": 1})


def test_an_object_is_the_same_as_itself_only() -> None:
    for value in (AllAlike(), Hostile(), object(), len, dict, threading.Lock()):
        assert call_key("t", {"a": value}) == call_key("t", {"a": value})


def bound() -> Any:
    return AllAlike().__repr__


BY_IDENTITY: list[Any] = [AllAlike(), Hostile(), HostileByValue(), object(), threading.Lock(), bound(), dict, len, bound]


@pytest.mark.parametrize("value", BY_IDENTITY, ids=range(len(BY_IDENTITY)))
@pytest.mark.parametrize("wrap", [lambda one: {"a": one}, lambda one: {"a": [{"b": (one,)}]}, lambda one: one])
def test_what_only_its_identity_tells_apart_has_no_key_by_content(value: Any, wrap: Callable[[Any], Any]) -> None:
    assert call_key("t", wrap(value), True) == call_key(Text("t"), wrap(value), True) == ""


def test_what_is_told_apart_by_content_has_the_same_key_either_way() -> None:
    for args in ({"a": 1, "b": "x"}, {"a": [Point(1), ByValue(2), {3}, Word.ONE]}, UserDict(a=b"x"), {"a": "0x7f00aa"}, [], None):
        assert call_key("t", args, True) == call_key("t", args) != ""


def test_the_order_of_keys_does_not_count_in_a_value_that_holds_itself() -> None:
    def made(*names: str) -> Any:
        value: dict[str, Any] = {}
        parts = {"x": [value], "y": [[value], value], "z": value}
        value.update({name: parts[name] for name in names})
        return value

    assert call_key("t", made("x", "y", "z")) == call_key("t", made("z", "y", "x"))


@pytest.mark.parametrize("capitals", [0, 1])
def test_a_decimal_does_not_depend_on_the_context(capitals: int) -> None:
    with localcontext() as context:
        context.capitals, context.prec = capitals, 2
        assert call_key("t", {"a": Decimal("1.2345E+9")}) == "'t'{'a':<'decimal.Decimal' '1.2345E+9',>,}"


def test_the_key_can_be_read() -> None:
    assert call_key("t", {"b": "x", "a": [1, {"c": None}]}) == "'t'{'a':[1,{'c':None,},],'b':'x',}"


LISTED: list[Any] = [
    *(Decimal("1.10"), UUID(int=7), datetime(2020, 1, 1, tzinfo=UTC), date(2020, 1, 1), time(1), timedelta(1), b"x"),
    *({1, 2}, frozenset({1}), (1, [2]), Fraction(1, 3), complex(1, 2), 2**80, range(0, 10, 2), PurePosixPath("/a")),
    *(Colour.RED, Access(3), None, math.nan, "\ud800", bytearray(b"x"), {1: 2}, 10**5000, [1.0, 1, True, "1"]),
    datetime(2020, 1, 1, tzinfo=ZoneInfo("Europe/Paris")),
]


@pytest.mark.parametrize("value", LISTED, ids=range(len(LISTED)))
def test_a_key_is_the_same_before_saving_and_after_loading(value: object) -> None:
    args = {"a": value, "b": [value]}
    assert call_key("t", loads(dumps(args))) == call_key("t", args)
    assert observation_key(loads(dumps(args))) == observation_key(args)


def test_a_key_is_the_same_in_another_process() -> None:
    program = (
        "from fsm_agent.core.keys import *; from fractions import Fraction; import re;"
        "value = {'a': {'x', 'y', 'z', 1}, 'b': [Fraction(1, 3), re.compile('a'), 'é'], 'c': {('k', 1): None, 'd': 2}};"
        "print(call_key('t', value), observation_key(value), sorted(leaves(value)))"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, cwd=".", capture_output=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(seen) == 1


ODD = [*DISTINCT, BadMapping(), nested(3000, lambda inner: {"a": inner}), nested(3000, Row), "é" * 10**6]
ODD += ["a" + "\u0301\u0316" * 100_000, {"a" + "\u0301\u0316" * 50_000: 1}, [[n] for n in range(12_000)], Endless]


@pytest.mark.parametrize("number", range(len(ODD)))
def test_anything_has_keys_of_a_bounded_length_that_can_be_written(number: int) -> None:
    value = ODD[number]
    for key in (call_key, loop_key):
        for tool, args in (("t", value), ("t", {"a": value}), (value, {}), (value, [value])):
            text = key(tool, args)
            assert len(text) <= 1210
            assert text.isascii()
    assert len(observation_key(value)) <= 64
    facts = list(leaves(value))
    assert 1 <= len(facts) <= 10_001
    assert all(len(fact) <= 64 and fact.isascii() for fact in facts)


@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: {"a": inner}, lambda inner: (inner,)])
def test_twenty_thousand_levels_are_all_told_apart(wrap: Callable[[Any], Any]) -> None:
    one, other = (nested(20_000, wrap, bottom) for bottom in ("one", "other"))
    assert call_key("t", {"a": one}) != call_key("t", {"a": other})
    assert set(leaves(one)) != set(leaves(other))


def test_a_value_without_end_has_a_key() -> None:
    assert call_key("t", {"a": Endless()})
    assert len(list(leaves(Endless()))) == 10_001


def test_with_little_of_the_stack_left_a_key_stays_the_same() -> None:
    value = {"a": [{"b": (1, [{"c": Row([1])}])}] * 3, "d": nested(150)}

    def below(frames: int) -> tuple[str, str, int]:
        if frames:
            return below(frames - 1)
        return call_key("t", value), observation_key(value), len(list(leaves(value)))

    assert below(sys.getrecursionlimit() - len(inspect.stack()) - 30) == below(0)


# -- arguments that count


@pytest.mark.parametrize(
    ("args", "identity", "picked"),
    [
        ({"a": 1, "b": 2}, None, {"a": 1, "b": 2}),
        ({"a": 1, "b": 2}, ("a",), {"a": 1}),
        ({"a": 1, "b": 2}, (), {}),
        ({"a": 1}, ("b",), {}),
        ({"a": None, "b": 2}, ("b", "a"), {"a": None, "b": 2}),
        (MappingProxyType({"a": 1, "b": 2}), ("b",), {"b": 2}),
        ([1], ("a",), [1]),
        (None, ("a",), None),
    ],
)
def test_only_the_arguments_that_a_contract_names_count(
    args: object, identity: tuple[str, ...] | None, picked: object
) -> None:
    assert key_args(args, identity) == picked


def test_a_mapping_that_cannot_be_read_counts_as_it_is() -> None:
    bad = BadMapping()
    assert key_args(bad, ("a",)) is bad


# -- observations and facts


def test_a_short_observation_is_its_text_and_a_long_one_a_digest() -> None:
    assert observation_key({"b": 1, "a": [None]}) == "{'a':[None,],'b':1,}"
    assert re.fullmatch("#[0-9a-f]{62}", observation_key("x" * 63))
    assert observation_key("x" * 10**6) != observation_key("x" * (10**6 - 1) + "y")


def test_different_observations_have_different_keys() -> None:
    known = [value for value in DISTINCT if not is_decomposed(value)]
    assert len({observation_key(value) for value in known}) == len(known)


FACTS: list[tuple[Any, set[str]]] = [
    (None, {"=None"}),
    ("x", {"='x'"}),
    ([], {"=[]"}),
    ({}, {"={}"}),
    ({"a": 1, "b": {"c": "x"}}, {".'a'=1", ".'b'.'c'='x'"}),
    ([1, 2, 1], {"[]=1", "[]=2"}),
    ((1, [2]), {"[]=1", "[][]=2"}),
    ({1, "1"}, {"[]=1", "[]='1'"}),
    ([{"a": 1}, {"a": 2}, {"a": 1}], {"[].'a'=1", "[].'a'=2"}),
    ({1: 2, "1": 2}, {".1=2", ".'1'=2"}),
    ({"a": [], "b": {}}, {".'a'=[]", ".'b'={}"}),
    ({"a.b": 1, "a'": 2}, {".'a.b'=1", '."a\'"=2'}),
    (Row(1, Point(2)), {".'x'=1", ".'y'.'x'=2", ".'y'.'y'=None"}),
    ([True, 1, 1.0], {"[]=True", "[]=1", "[]=1.0"}),
    ({"a": Colour.RED}, {f".'a'=<enum '{__name__}.Colour.RED'>"}),
]


@pytest.mark.parametrize(("value", "facts"), FACTS, ids=range(len(FACTS)))
def test_a_result_has_these_facts(value: object, facts: set[str]) -> None:
    assert set(leaves(value)) == facts


wide = st.sampled_from([
    2**64, 10**700, "x" * 70, "é" * 70, "x" * 700, {}, [], nested(95), nested(120), {"k" * 700: 1}, {"k" * 700: [1]}, {"k" * 70: 1},
])  # fmt: skip


@settings(max_examples=200)
@given(st.recursive(values | wide, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)))
def test_what_is_small_has_the_keys_that_the_way_for_everything_gives(value: Any) -> None:
    assert list(leaves(value)) == list(_all_leaves(value))
    assert observation_key(value) == folded(Writer(nfc_quoted).long_text(value), 64)
    key, facts = observed(value)
    assert (key, list(facts)) == (observation_key(value), list(leaves(value)))


@given(st.lists(values, max_size=4), values)
def test_a_list_in_another_order_holds_no_new_fact_and_a_longer_one_no_fewer(items: list[Any], more: Any) -> None:
    assert set(leaves(items)) == set(leaves(items[::-1]))
    if items:
        assert set(leaves(items)) <= set(leaves([*items, more]))


def test_a_changed_leaf_is_a_new_fact_wherever_it_is() -> None:
    for depth in (1, 99, 100, 101, 300, 5000):
        for wrap in (lambda inner: [inner], lambda inner: {"key": inner}, lambda inner: (0, inner), Row):
            one, other = (set(leaves(nested(depth, wrap, bottom))) for bottom in ("one", "other"))
            assert one != other
            assert other - one


def test_beyond_ten_thousand_leaves_the_rest_is_one_fact() -> None:
    exactly = list(leaves(list(range(10_000))))
    assert len(set(exactly)) == 10_000
    more, changed = (list(leaves([*range(10_001 + extra)])) for extra in (0, 1))
    assert more[:10_000] == changed[:10_000] == exactly
    assert len(more) == len(changed) == 10_001
    assert more[-1] != changed[-1]
    assert len(list(leaves({"a": list(range(10_000)), "b": 1}))) == 10_001


@pytest.mark.parametrize("wide", [1, 3000])
def test_keys_that_are_two_spellings_of_one_text_hold_the_facts_of_both(wide: int) -> None:
    spelled = {unicodedata.normalize(form, "é"): {"a": n, "b": [n] * wide} for n, form in enumerate(("NFC", "NFD"), 1)}
    assert {f".{'é'!a}.'a'={n}" for n in (1, 2)} < set(leaves(spelled))
    assert set(leaves(spelled)) == set(leaves(dict(reversed(spelled.items()))))


def test_the_keys_of_a_large_dict_may_come_in_any_order() -> None:
    large = {f"k{n}": n for n in range(12_000)}
    assert set(leaves(large)) == set(leaves(dict(reversed(large.items()))))


@pytest.mark.parametrize("arg", [object(), [object()], {"a": (1, object())}, lambda: None, object().__repr__])
def test_what_only_its_identity_tells_apart_has_a_key_for_counting_and_none_for_keeping(arg: Any) -> None:
    assert call_key("look", {"a": arg}) == call_key("look", {"a": arg}) != ""
    assert call_key("look", {"a": arg}, True) == ""


@pytest.mark.parametrize("arg", [None, 1, 2.5, "x", b"x", [1, {"a": ()}], {1, 2}, ByValue(1), [ByValue(2)]])
def test_what_is_told_apart_by_its_content_has_one_key(arg: Any) -> None:
    assert call_key("look", {"a": arg}, True) == call_key("look", {"a": arg})
