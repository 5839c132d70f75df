"""Plain values: copies share nothing, storable values come back from JSON equal and typed, bad texts say where."""

from __future__ import annotations

import inspect
import json
import math
import socket
import sys
import threading
from collections import OrderedDict, UserDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from fractions import Fraction
from pathlib import PurePosixPath, PureWindowsPath
from types import MappingProxyType
from typing import Any, ClassVar
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsm_agent.core.errors import SavedRunError
from fsm_agent.core.plain import (
    EnumName,
    cut,
    dumps,
    from_json,
    loads,
    plain_copy,
    short,
    storable,
    to_json,
)


class Colour(Enum):
    RED = "r"
    BLUE = ("b", 2)


class Word(StrEnum):
    YES = "yes"


class Level(IntEnum):
    LOW = 1


class Access(Flag):
    READ = 1
    WRITE = 2


@dataclass
class Point:
    x: int
    y: Any = None


@dataclass
class WithConstant:
    constant: ClassVar[int] = 5
    x: int = 1


@attrs.define
class Row:
    name: str
    _inner: Any = None


@attrs.define
class HalfMade:
    here: int
    gone: int = attrs.field(init=False)


class Modelled:
    def model_dump(self) -> dict[str, Any]:
        return {"kind": "modelled", "point": Point(1)}


class BadModel:
    def model_dump(self) -> dict[str, Any]:
        raise OSError("no")


class Hostile:
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise OSError("eq")

    def __repr__(self) -> str:
        raise OSError("repr")

    def __deepcopy__(self, memo: object) -> Any:
        raise OSError("deepcopy")


class Proxy:
    @property
    def __class__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("unbound")

    def __reduce_ex__(self, protocol: object) -> Any:
        raise RuntimeError("unbound")


class NoHash(type):
    def __eq__(cls, other: object) -> bool:
        return True


class OfNoHash(metaclass=NoHash):
    pass


class Text(str):
    pass


class Whole(int):
    pass


class OddZone(tzinfo):
    def utcoffset(self, when: datetime | None) -> timedelta:
        return timedelta(hours=3, minutes=30)

    def dst(self, when: datetime | None) -> None:
        return None

    def tzname(self, when: datetime | None) -> str:
        return "odd"


class BrokenZone(OddZone):
    def utcoffset(self, when: datetime | None) -> timedelta:
        raise OSError("no zone")


Pair = namedtuple("Pair", "left right")


def nested(depth: int, wrap: Callable[[Any], Any] = lambda inner: [inner]) -> Any:
    value: Any = "bottom"
    for _ in range(depth):
        value = wrap(value)
    return value


def holding_itself() -> Any:
    value: list[Any] = [1]
    value += [value, {"again": value}]
    return value


def tuple_holding_itself() -> Any:
    value: tuple[Any, ...] = ([],)
    value[0].append(value)
    return value


def shared(levels: int) -> Any:
    value: Any = [1]
    for _ in range(levels):
        value = [value, value]
    return value


def same(one: Any, other: Any) -> bool:
    """Equal in value and type, at every depth; NaN is NaN and -0.0 is not 0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return repr(one) == repr(other)
    if isinstance(one, complex):
        return same(one.real, other.real) and same(one.imag, other.imag)
    if isinstance(one, Decimal):
        return str(one) == str(other)
    if isinstance(one, datetime | time):
        return one.isoformat() == other.isoformat() and one.fold == other.fold and same_zone(one, other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, set | frozenset):
        return same(sorted(map(ordered, one)), sorted(map(ordered, other)))
    if isinstance(one, dict):
        return same(list(one), list(other)) and same(list(one.values()), list(other.values()))
    return bool(one == other)


def same_zone(one: Any, other: Any) -> bool:
    return getattr(one.tzinfo, "key", None) == getattr(other.tzinfo, "key", None)


def ordered(item: Any) -> str:
    """Return a text of a set's item that equal items share."""
    if isinstance(item, tuple):
        return f"({', '.join(map(ordered, item))})"
    return f"{{{', '.join(sorted(map(ordered, item)))}}}" if isinstance(item, frozenset) else f"{type(item)} {item!r}"


zones = st.none() | st.timezones() | st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23)))
texts = st.text(st.characters(), max_size=6) | st.sampled_from(["$", "$int", "$tuple", "\ud835", "\\ud835", "a\\"])
hashable_leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**63, -(2**63), 2**63 - 1, 10**500, -(10**500)])
    | st.floats()
    | st.complex_numbers()
    | texts
    | st.binary(max_size=5)
    | st.decimals(allow_nan=False)
    | st.fractions()
    | st.uuids()
    | st.datetimes(timezones=zones)
    | st.dates()
    | st.times(timezones=zones)
    | st.timedeltas()
    | st.builds(range, st.integers(), st.integers(), st.integers(min_value=1))
    | st.builds(PurePosixPath, texts.filter(lambda text: "\0" not in text))
    | st.builds(EnumName, texts)
)
odd_decimals = st.sampled_from([Decimal("NaN"), Decimal("-Infinity")])
leaves = hashable_leaves | st.binary(max_size=5).map(bytearray) | odd_decimals
hashables = st.recursive(
    hashable_leaves, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=4
)
storables = st.recursive(
    leaves | st.sets(hashables, max_size=3) | st.frozensets(hashables, max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(texts, inner, max_size=4)
        | st.dictionaries(hashables, inner, max_size=3)
    ),
    max_leaves=12,
)
ODD: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "NaN": lambda: math.nan,
    "huge int": lambda: 10**5000,
    "lone surrogate": lambda: "a\udc00",
    "100,000 lists": lambda: nested(100_000),
    "100,000 dicts": lambda: nested(100_000, lambda inner: {"a": inner}),
    "100,000 tuples": lambda: nested(100_000, lambda inner: (inner,)),
    "holds itself": holding_itself,
    "tuple holds itself": tuple_holding_itself,
    "shared 2**60 times": lambda: shared(60),
    "hostile": Hostile,
    "hostile inside": lambda: {"a": [Hostile(), {1: Hostile()}]},
    "proxy": Proxy,
    "no hash": OfNoHash,
    "no hash inside": lambda: [{"a": OfNoHash()}, 1],
    "lock": threading.Lock,
    "class": lambda: dict,
    "function": lambda: nested,
    "module": lambda: json,
    "iterator": lambda: iter([1]),
    "generator": lambda: (n for n in [1]),
    "exception": lambda: ValueError("x"),
    "bad model": BadModel,
    "broken zone": lambda: datetime(2020, 1, 1, tzinfo=BrokenZone()),
    "deep in a model": lambda: Row("a", nested(5000)),
    "surrogate key": lambda: {"\ud800": 1, Text("\ud800b"): 2},
}
odd = pytest.mark.parametrize("make", ODD.values(), ids=ODD.keys())


# -- copies


COPIED: list[Callable[[], Any]] = [
    lambda: {"a": [{"b": 1}, {"c": [2]}]},
    lambda: [({"a": [1]}, {1, 2}, bytearray(b"x"))],
    lambda: {"a": [{"b": [0] * 3000}], 1: [2]},
]


@pytest.mark.parametrize("make", COPIED, ids=range(len(COPIED)))
def test_a_changed_copy_leaves_the_original(make: Callable[[], Any]) -> None:
    original = make()
    copied = plain_copy(original)
    assert same(copied, original)

    def change(value: Any) -> None:
        for item in list(value.values() if isinstance(value, dict) else value):
            if isinstance(item, dict | list | tuple):
                change(item)
        if isinstance(value, dict):
            value["new"] = 1
        elif isinstance(value, list):
            value.append(1)
        for item in value:
            if isinstance(item, set):
                item.add("new")
            elif isinstance(item, bytearray):
                item.append(0)

    change(copied)
    assert same(original, make())


@given(storables)
def test_a_copy_is_the_same(value: Any) -> None:
    assert same(plain_copy(value), value)


@odd
def test_a_copy_of_anything_is_made(make: Callable[[], Any]) -> None:
    value = make()
    copied = plain_copy(value)
    assert type(copied) in (type(value), str)


def test_objects_inside_are_copied_and_what_cannot_be_copied_is_kept() -> None:
    row, lock = Row("a", [1]), threading.Lock()
    copied = plain_copy({"rows": [row], "lock": lock})
    copied["rows"][0]._inner.append(2)
    assert row == Row("a", [1])
    assert copied["lock"] is lock


@pytest.mark.parametrize("copy", [plain_copy, storable])
def test_a_large_json_value_is_copied_whole_and_shares_nothing(copy: Any) -> None:
    rows = [{"name": f"n{n}", "parts": [n, {"deep": None}]} for n in range(1000)]
    made = copy({"rows": rows})

    assert made == {"rows": rows}
    assert made["rows"] is not rows
    assert all(one is not other and one["parts"] is not other["parts"] for one, other in zip(made["rows"], rows, strict=True))


@pytest.mark.parametrize("odd", [(1, 2), {1: 2}, object(), "held twice"])
def test_a_large_value_with_one_odd_part_takes_the_slower_way_and_comes_out_the_same(odd: Any) -> None:
    rows: list[Any] = [{"n": n} for n in range(1000)]
    rows.append(rows[0] if odd == "held twice" else odd)

    assert storable(rows)[:1000] == rows[:1000]
    assert storable(rows)[1000] == storable(rows[1000])
    assert (plain_copy(rows)[1000] is plain_copy(rows)[0]) is False
    copied = plain_copy(rows)
    assert (copied[1000] is copied[0]) is (odd == "held twice")


def test_a_copy_keeps_what_is_shared_inside() -> None:
    row = {"n": [0] * 3000}
    copied = plain_copy([row, row, (row,)])
    assert copied[0] is copied[1] is copied[2][0] is not row


def test_a_copy_of_a_value_that_holds_itself_holds_itself() -> None:
    for copied in (plain_copy(holding_itself()), plain_copy([tuple_holding_itself()])[0]):
        inner = copied[1] if isinstance(copied, list) else copied[0][0]
        assert inner is copied


# -- the storable form

HERE = __name__
STORED: list[tuple[Any, Any]] = [
    (Row("a", Point(1, {2})), {"name": "a", "_inner": {"x": 1, "y": {2}}}),
    (HalfMade(1), {"here": 1}),
    (WithConstant(), {"x": 1}),
    (Modelled(), {"kind": "modelled", "point": {"x": 1, "y": None}}),
    (BadModel(), f"<{HERE}.BadModel>"),
    (Row, f"<{HERE}.Row>"),
    (nested, f"<{HERE}.nested>"),
    (len, "<builtins.len>"),
    (Modelled().model_dump, f"<{HERE}.Modelled.model_dump>"),
    ([].append, "<builtins.list.append>"),
    (dict, "<builtins.dict>"),
    (threading.Lock(), "<_thread.lock>"),
    (json, "<builtins.module>"),
    (ValueError("x"), "<builtins.ValueError>"),
    (Hostile(), f"<{HERE}.Hostile>"),
    (Proxy(), f"<{HERE}.Proxy>"),
    (OfNoHash(), f"<{HERE}.OfNoHash>"),
    ({"a": OfNoHash()}, {"a": f"<{HERE}.OfNoHash>"}),
    (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
    (defaultdict(list, a=[1]), {"a": [1]}),
    (MappingProxyType({"a": 1}), {"a": 1}),
    (UserDict({"a": 1}), {"a": 1}),
    (deque([1, 2]), [1, 2]),
    ({"a": 1}.keys(), ["a"]),
    ({"a": 1}.values(), [1]),
    ({"a": 1}.items(), [("a", 1)]),
    (Pair(1, [2]), (1, [2])),
    (Text("x"), "x"),
    (Whole(3), 3),
    (Word.YES, "yes"),
    (Level.LOW, 1),
    (Colour.RED, Colour.RED),
    (memoryview(b"ab"), b"ab"),
    (PureWindowsPath("C:/a"), "C:\\a"),
    (type("Sub", (PurePosixPath,), {})("/a"), PurePosixPath("/a")),
    (datetime(2020, 1, 1, tzinfo=OddZone()), datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=3, minutes=30)))),
    (time(1, tzinfo=OddZone()), time(1, tzinfo=timezone(timedelta(hours=3, minutes=30)))),
    (datetime(2020, 1, 1, tzinfo=BrokenZone()), "<datetime.datetime>"),
    ({1: "a", "1": "b", (1, "x"): "c"}, {1: "a", "1": "b", (1, "x"): "c"}),
    ({Text("k"): 1}, {"k": 1}),
    ({dict: 1, "<builtins.dict>": 2}, {"<builtins.dict> #2": 1, "<builtins.dict>": 2}),
    ({attrs.make_class("K", ["a"], frozen=True)(1): 1}, {f"<{HERE}.K>": 1}),
    ({Colour.RED: 1, f"{HERE}.Colour.RED": 2}, {f"{HERE}.Colour.RED #2": 1, f"{HERE}.Colour.RED": 2}),
    ({(len, 1), (len, 2)}, {("<builtins.len>", 1), ("<builtins.len>", 2)}),
    ({attrs.make_class("K", ["a"], frozen=True)(1)}, [{"a": 1}]),
]


@pytest.mark.parametrize(("value", "stored"), STORED, ids=range(len(STORED)))
def test_a_value_of_each_kind_has_its_storable_form(value: Any, stored: Any) -> None:
    assert same(storable(value), stored)


def test_keys_that_become_the_same_text_are_all_kept() -> None:
    stored = storable({object(): n for n in range(2000)})
    assert sorted(stored.values()) == list(range(2000))
    assert list(stored)[:3] == ["<builtins.object>", "<builtins.object> #2", "<builtins.object> #3"]


def test_what_holds_itself_or_nests_too_deep_is_marked_at_its_place() -> None:
    assert storable(holding_itself()) == [1, "<cycle>", {"again": "<cycle>"}]
    assert storable(tuple_holding_itself()) == (["<cycle>"],)
    wraps: list[Callable[[Any], Any]] = [
        lambda inner: [inner],
        lambda inner: {"a": inner},
        lambda inner: (inner,),
        Point,
    ]
    for wrap in wraps:
        assert dumps(storable(nested(199, wrap))).count("bottom") == 1
        assert dumps(storable(nested(201, wrap))).count("<too deep>") == 1
    assert "<too large>" in dumps(storable(shared(60)))


def test_a_row_that_comes_again_and_again_is_written_each_time() -> None:
    row = (1, 2, 3, 4, 5)
    assert loads(dumps(storable([row] * 100_000))) == [row] * 100_000


@pytest.mark.parametrize("count", [10, 3000])
def test_a_value_met_twice_is_no_cycle(count: int) -> None:
    row = {"n": [0] * count}
    assert storable([row, (row,), row]) == [row, (row,), row]


@odd
def test_the_storable_form_of_anything_can_be_saved(make: Callable[[], Any]) -> None:
    stored = storable(make())
    assert same(loads(dumps(stored)), stored)


@given(storables)
def test_what_is_storable_stays_as_it_is(value: Any) -> None:
    assert same(storable(value), value)


def test_a_stored_value_does_not_change_with_its_source() -> None:
    inner: dict[str, Any] = {"b": [1], "c": bytearray(b"x"), "d": {1}}
    for source in ([inner, {"a": inner}], {1: (inner,)}, Row("n", inner), deque([inner])):
        stored = storable(source)
        before = dumps(stored)
        inner["b"].append(2)
        inner["c"].append(0)
        inner["d"].add(dumps(inner["b"]))
        inner[before] = 1
        assert dumps(stored) == before


def with_frames_left(frames: int, call: Callable[[], Any]) -> Any:
    """Call with so many frames left on the stack."""

    def below(more: int) -> Any:
        return below(more - 1) if more > 0 else call()

    return below(sys.getrecursionlimit() - len(inspect.stack()) - frames)


def test_with_little_of_the_stack_left_values_are_cut_short_or_refused() -> None:
    deep, text = nested(150), dumps(nested(150))
    stored = with_frames_left(60, lambda: storable(deep))
    assert "<too deep>" in dumps(stored)
    assert "<too deep>" in dumps(with_frames_left(60, lambda: plain_copy(deep)))
    encoded = to_json(deep)
    for call in (lambda: to_json(deep), lambda: dumps(deep), lambda: from_json(encoded), lambda: loads(text)):
        with pytest.raises(SavedRunError, match="nests deeper than the stack allows"):
            with_frames_left(60, call)


# -- JSON


def strict(text: str) -> Any:
    """Read as a strict parser does: UTF-8, no constants beyond JSON, no key twice, no integer beyond 64 bits."""

    def refuse(name: str) -> None:
        raise AssertionError(name)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({key for key, _ in pairs}) == len(pairs)
        return dict(pairs)

    def small(digits: str) -> int:
        assert -(2**63) <= int(digits) < 2**63
        return int(digits)

    return json.loads(text.encode("utf-8"), parse_constant=refuse, object_pairs_hook=unique, parse_int=small)


@settings(max_examples=120)
@given(storables)
def test_what_is_saved_comes_back_equal_and_of_its_type(value: Any) -> None:
    text = dumps(value)
    strict(text)
    assert same(loads(text), value)
    assert same(from_json(to_json(value)), value)
    assert dumps(loads(text)) == text


EXACT: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**80, 10**5000, 1.0, -0.0, 1e308, 5e-324),
    *(math.nan, math.inf, -math.inf, "", "\ud835", "\ud835\udc00", "\U0001d400", "\\ud835", "\x00", "é", "e\u0301"),
    *([], (), {}, set(), frozenset(), b"", bytearray(), b"\xff", bytearray(b"\xff"), [[]], ([],), {"a": {}}, {1, 2}),
    *({"$int": "0x1"}, {"$dict": []}, {"$": 1}, {"$a": 1, "b": 2}, {"a$": 1}, {"\ud800": 1}, {"\ud800": 1, "a": 2}),
    *({1: "a", "1": "b", None: "c", (1, 2): "d", 2.5: "e"}, {frozenset({1}): 1}, {(1, (2, "$")): {"$set": 1}}),
    *(Decimal("1.10"), Decimal("-0"), Decimal("sNaN12"), Decimal("1E+999999"), Fraction(1, 3), Fraction(10**5000, 7)),
    *(complex(1, 2), complex(-0.0, -0.0), complex(math.nan, math.inf), UUID(int=7), range(0, 10, 2), range(10**30)),
    *(date(1, 1, 1), date.max, timedelta(-1, 1, 1), timedelta.max, timedelta.min, time(1, 2, 3, 4), time(1, fold=1)),
    *(datetime.min, datetime.max, datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 1, fold=1)),
    datetime(2020, 1, 1, tzinfo=timezone(-timedelta(hours=3, seconds=1, microseconds=5))),
    datetime(2020, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Paris")),
    *(time(1, tzinfo=ZoneInfo("Europe/Paris")), time(1, tzinfo=timezone(timedelta(hours=5, minutes=45)))),
    *(PurePosixPath("/a"), PurePosixPath("a\udcff"), PurePosixPath("//a"), EnumName("a.B.C")),
    [{"a": (1, {2, frozenset({3})}, b"x")}, ({"b": [Decimal(1)]},)],
]


WRAPS: list[Callable[[Any], Any]] = [lambda v: v, lambda v: [v], lambda v: {"a": v}, lambda v: (v,)]


@pytest.mark.parametrize("wrap", WRAPS, ids=["alone", "list", "dict", "tuple"])
@pytest.mark.parametrize("value", EXACT, ids=range(len(EXACT)))
def test_each_type_comes_back(value: Any, wrap: Callable[[Any], Any]) -> None:
    text = dumps(wrap(value))
    strict(text)
    assert same(loads(text), wrap(value))


@pytest.mark.parametrize("member", [*Colour, *Access, Access.READ | Access.WRITE, Access(0)])
def test_an_enum_member_comes_back_as_its_name(member: Enum) -> None:
    read = loads(dumps([member, {member: 1}]))[0]
    assert type(read) is EnumName
    assert read == f"{HERE}.{type(member).__name__}.{member.name or member.value}"
    assert dumps(read) == dumps(member)


@pytest.mark.parametrize("member", [Word.YES, Level.LOW])
def test_an_enum_member_that_is_a_text_or_number_comes_back_as_its_equal(member: Any) -> None:
    read = loads(dumps([member]))[0]
    assert type(read) is type(member.value)
    assert read == member


def test_equal_sets_have_one_text() -> None:
    items = [f"k{n}" for n in range(50)]
    backwards = items[::-1]
    assert dumps(set(items)) == dumps(set(backwards))
    assert dumps({frozenset(items)}) == dumps({frozenset(backwards)})


def test_an_unknown_zone_leaves_the_offset() -> None:
    read = loads('{"$datetime":["2020-01-01T00:00:00+01:00","Nowhere/Land",0]}')
    assert read == datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=1)))


def test_what_cannot_be_saved_is_told_with_its_place_and_type() -> None:
    with socket.socket() as closed:
        value = {"level1": [1, {"bad": closed}]}
        with pytest.raises(SavedRunError, match=r"^outer/level1/1/bad: a socket cannot be saved \(.*socket\.socket\)"):
            to_json(value, "outer")
        assert value == {"level1": [1, {"bad": closed}]}


UNSAVABLE: list[tuple[Any, str]] = [
    (object(), "value: a object"),
    ([1, object()], "value/1: a object"),
    ((1, {"a": object()}), "value/1/a: a object"),
    ({("k", 1): object()}, "value/('k', 1): a object"),
    ({len: 1}, "value/<built-in function len>: a builtin_function_or_method"),
    ({"a": {object()}}, "value/a/0: a object"),
    (Row("a"), "value: a Row"),
    (Text("a"), "value: a Text"),
    (OrderedDict(a=1), "value: a OrderedDict"),
    ([OfNoHash()], "value: "),
    ({"a": [datetime(2020, 1, 1, tzinfo=BrokenZone())]}, "value/a/0: this datetime cannot be saved (OSError)"),
    ({"\ud800\n": object()}, "value/\\ud800\\n: a object"),
    (holding_itself(), "value/1/1/1/"),
    (tuple_holding_itself(), "value/0/0/0/"),
    (nested(300), "value/0/0/0/"),
    (nested(100_000, lambda inner: {"a": inner}), "value/a/a/a/"),
    (shared(60), "value/0/0/0/"),
]


def test_what_is_shared_less_than_ten_times_is_saved_however_much_it_is() -> None:
    rows = [[0] * 1000 for _ in range(20)]
    assert loads(dumps([rows] * 10)) == [rows] * 10


@pytest.mark.parametrize(("value", "start"), UNSAVABLE, ids=[start for _, start in UNSAVABLE])
def test_the_error_leads_to_what_cannot_be_saved(value: Any, start: str) -> None:
    with pytest.raises(SavedRunError) as caught:
        dumps(value)
    assert str(caught.value).startswith(start)
    assert len(str(caught.value)) < 600
    str(caught.value).encode("utf-8")


BAD_TEXTS: list[tuple[Any, str]] = [
    (None, "value: a saved value is a text"),
    (b"{}", "value: a saved value is a text (str), not a bytes"),
    ("", "value: no JSON text"),
    ("{", "value: no JSON text"),
    ("[1,]", "value: no JSON text"),
    ("1 2", "value: no JSON text: Extra data: line 1 column 3"),
    ("\ufeff1", "value: no JSON text"),
    ("\ud800", "value: no JSON text"),
    ("NaN", "value: NaN is no JSON"),
    ('{"a":[1,-Infinity]}', "value/a/1: -Infinity is no JSON"),
    ("[1e999]", "value/0: the number 1e999 is too large"),
    ("[" + "1" * 5000 + "]", "value/0: a number of 5000 digits is too long"),
    ('{"a":{"b":1,"c":2,"b":3}}', "value/a: the key 'b' stands twice"),
    ('[{"$nope":1}]', "value/0/$nope: unknown tag; known are $str $int"),
    ('[{"$int":"0x1","b":1}]', "value/0/$int: a tag stands alone"),
    ('[{"b":1,"$int":"0x1"}]', "value/0/$int: a tag stands alone"),
    ('{"$int":5}', "value/$int: 5 is no content of $int"),
    ('{"$int":"five"}', "value/$int: 'five' is no content of $int"),
    ('{"$float":"1.0"}', "value/$float: '1.0' is no content"),
    ('{"$tuple":"ab"}', "value/$tuple: 'ab' is no content"),
    ('{"$set":[[]]}', "value/$set: [[]] is no content"),
    ('{"$set":{"a":1}}', "value/$set: {'a': 1} is no content"),
    ('{"$dict":[1]}', "value/$dict: [1] is no content"),
    ('{"$dict":[1,2,1,3]}', "value/$dict: [1, 2, 1, 3] is no content"),
    ('{"$dict":[[],2]}', "value/$dict: [[], 2] is no content"),
    ('{"$bytes":"?"}', "value/$bytes: '?' is no content"),
    ('{"$decimal":"1,5"}', "value/$decimal: '1,5' is no content"),
    ('{"$fraction":[1,0]}', "value/$fraction: [1, 0] is no content"),
    ('{"$complex":["a",0]}', "value/$complex: ['a', 0] is no content"),
    ('{"$uuid":"7"}', "value/$uuid: '7' is no content"),
    ('{"$datetime":["soon",null,0]}', "value/$datetime: ['soon', None, 0] is no content"),
    ('{"$datetime":[]}', "value/$datetime: [] is no content"),
    ('{"$datetime":["2020-01-01",5,0]}', "value/$datetime: ['2020-01-01', 5, 0] is no content"),
    ('{"$date":"2020-13-01"}', "value/$date: '2020-13-01' is no content"),
    ('{"$time":["1",null,2]}', "value/$time: ['1', None, 2] is no content"),
    ('{"$timedelta":[1e300]}', "value/$timedelta: [1e+300] is no content"),
    ('{"$range":[0,1,0]}', "value/$range: [0, 1, 0] is no content"),
    ('{"$path":[1]}', "value/$path: [1] is no content"),
    ('{"$enum":1}', "value/$enum: 1 is no content"),
    ('{"$str":{"$str":{"$str":1}}}', "value/$str/$str/$str: 1 is no content"),
    ("[" * 600 + "]" * 600, "value/0/0/0"),
    ('{"a":' * 600 + "1" + "}" * 600, "value/a/a/a"),
    ('{"$str":' * 600 + "1" + "}" * 600, "value/$str/$str"),
    ('["[", ' * 100_000, "value: the text nests too deep, at character "),
    ("[" * 100_000, "value: the text nests too deep, at character 480"),
    ("[" + '{"]":[1]},' * 50 + "[" * 100_000, "value: the text nests too deep, at character 980"),
]


@pytest.mark.parametrize(("text", "start"), BAD_TEXTS, ids=range(len(BAD_TEXTS)))
def test_a_bad_text_is_refused_with_its_place(text: Any, start: str) -> None:
    with pytest.raises(SavedRunError) as caught:
        loads(text)
    assert str(caught.value).startswith(start)
    assert len(str(caught.value)) < 700
    str(caught.value).encode("utf-8")


@pytest.mark.parametrize("value", [{1: 2}, math.nan, (1,), b"x", {"a": [object()]}, {"a": {"b": {1}}}], ids=range(6))
def test_data_that_json_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(SavedRunError, match="no JSON"):
        from_json(value, "file")


@given(st.text(st.sampled_from('[]{}":,1eE.-+$intuple \\"nulltrue'), max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        value = loads(text)
    except SavedRunError:
        return
    assert same(loads(dumps(value)), value)


def test_nothing_named_in_a_file_is_imported() -> None:
    assert type(loads('{"$enum":"no_such_module.Class.NAME"}')) is EnumName


# -- descriptions


@odd
@pytest.mark.parametrize("limit", [-1, 0, 1, 20, 200])
def test_anything_has_a_short_description_of_one_line(make: Callable[[], Any], limit: int) -> None:
    text = short(make(), limit)
    assert len(text) <= max(limit, 0)
    assert text.isprintable()
    text.encode("utf-8")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("it's\n", '"it\'s\\n"'),
        ("x" * 300, "'" + "x" * 198 + "…"),
        ([1, (2,), {"a": {3}}, frozenset({4})], "[1, (2), {'a': {3}}, {4}]"),
        (b"x" * 10**6, "b'" + "x" * 197 + "…"),
        (list(range(10**6)), "[" + ", ".join(map(str, range(54))) + ", …"),
        (10**5000, "<int of 16610 bits>"),
        (nested, "<function nested>"),
        (object(), "<object object>"),
        (Hostile(), f"<{HERE}.Hostile>"),
        ([[[[[1]]]]], "[[[[[…]]]]]"),
        ("é\ud800", "'é\\ud800'"),
        (Row("a"), "Row(name='a', _inner=None)"),
    ],
    ids=range(12),
)
def test_a_short_description_says_what_is_there(value: Any, text: str) -> None:
    assert short(value) == text if len(text) < 200 else short(value)[:180] == text[:180]
    assert len(short(value)) <= 200


@pytest.mark.parametrize("size", [0, 1, 35, 36, 100, 5000])
@pytest.mark.parametrize("limit", [-1, 0, 1, 34, 35, 100, 4999, 5000])
def test_a_cut_text_says_its_full_size(size: int, limit: int) -> None:
    text = "".join(chr(97 + n % 26) for n in range(size))
    got = cut(text, limit)
    if size <= limit:
        assert got == text
        return
    head, mark = got[: got.index("…")], got[got.index("…") :]
    assert f"{size} characters" in mark
    assert text.startswith(head)
    assert len(got) == max(limit, len(mark))


def counted() -> Iterator[int]:
    yield from range(3)


def test_an_iterator_is_not_used_up() -> None:
    source = counted()
    storable([source])
    plain_copy([source])
    short(source)
    assert list(source) == [0, 1, 2]
