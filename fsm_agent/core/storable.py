"""Plain values: copies of them, and the form in which they live in a run.

A value is *storable* when it is built of the types below and nests at most 200 deep. `storable` makes any value so:

- kept: None, bool, int, float, complex, str, bytes, bytearray, Decimal, Fraction, UUID, datetime, date, time,
  timedelta, range, PurePosixPath, enum members, and list, tuple, set, frozenset, dict of such;
- subclasses of these become the type itself (a named tuple a tuple, a ``StrEnum`` member its str), another path its
  text, a number of another library int, float or complex, a zone of another library the offset it has there;
- attrs and dataclass instances, objects with ``model_dump()`` and other mappings become dicts; a deque and the views
  of a mapping become lists, and so does a set whose items became dicts or lists;
- anything else becomes the text ``<module.QualName>``: of itself if it is a class or function, else of its type.

In JSON a type that JSON lacks is an object of one key, the tag: ``{"$tuple": [1, 2]}``. A dict that could be taken for
one, or has keys that are no text, is ``{"$dict": [key, value, key, value, ...]}``. An enum member comes back as
`EnumName`, since a file must not choose code to import.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import deque
from collections.abc import Callable, Mapping, MappingView
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from numbers import Complex, Integral, Real
from pathlib import PurePath, PurePosixPath
from typing import Any, Final
from uuid import UUID

from fsm_agent.core.short_text import EnumName, enum_name, opaque_text, short
from fsm_agent.core.tree_copy import tree_copy

CYCLE: Final = "<cycle>"
TOO_DEEP: Final = "<too deep>"
TOO_LARGE: Final = "<too large>"
OPAQUE: Final = object()
"""What `unwrap` returns for a value that has no plain form."""

_MAX_DEPTH: Final = 200
# Values met again through another reference are written out each time, so forty nested pairs would make 2**40 of them.
# Each item met anew earns ten items that were met before.
FREE_SHARED: Final = 100_000
SHARED_FOR_NEW: Final = 10
# An object may make up what it holds anew at each look, without end.
_MAX_OBJECTS: Final = 200_000
# At ten for a container and one for an item no more than 181 containers, so none below 200 levels.
SMALL: Final = 2000


LEAVES: Final = frozenset(
    {type(None), bool, int, float, complex, str, bytes, EnumName, Decimal, Fraction, UUID, date, timedelta, range}
    | {PurePosixPath}
)
"""The exact types that are plain, immutable and hold no other value."""
CONTAINERS: Final = frozenset({list, tuple, set, frozenset, dict})


def plain_copy(value: Any) -> Any:
    """Return a deep copy that shares nothing mutable with `value`; never raises.

    Builtin containers are copied here, other objects by `copy.deepcopy`; one that cannot be copied stands in the copy
    itself. Keys of dicts and items of sets are shared, being immutable. What nests too deep gets `storable`'s form.
    """
    kind = type(value)
    try:
        return value if kind in LEAVES else small_copy(value, [SMALL])
    except Exception:
        pass
    try:
        return _copied(value, {})
    except Exception:
        pass
    try:
        return copy.deepcopy(value)
    except Exception:
        return storable(value) if any(kind is container for container in CONTAINERS) else value


def own_args(args: Any) -> Any:
    """Return a copy of arguments that shares no container with them; a dict of leaves is copied at once. Never raises."""
    if type(args) is not dict:
        return plain_copy(args)
    try:
        for value in args.values():
            if type(value) not in LEAVES:
                return {name: plain_copy(value) for name, value in args.items()}
    except Exception:
        # A metaclass may make its classes unhashable.
        return plain_copy(args)
    return args.copy()


class NotSmall(Exception):
    """A value is no small JSON value; it takes the slower way."""


def small_copy(value: Any, room: list[int]) -> Any:
    """Copy dicts with text keys and lists of leaves; what is left of `room` bounds depth, cycles and sharing alike."""
    kind = type(value)
    if kind is dict:
        left = room[0] = room[0] - len(value) - 10
        if left < 0:
            raise NotSmall
        made = value.copy()
        for key, item in made.items():
            if type(key) is not str:
                raise NotSmall
            if type(item) not in LEAVES:
                made[key] = small_copy(item, room)
        return made
    if kind is not list:
        raise NotSmall
    left = room[0] = room[0] - len(value) - 10
    if left < 0:
        raise NotSmall
    items: list[Any] = []
    for item in value:
        items.append(item if type(item) in LEAVES else small_copy(item, room))
    return items


def _copied(value: Any, done: dict[int, Any]) -> Any:
    kind = type(value)
    made: Any
    if kind is dict or kind is list:
        made = done.get(id(value))
        if made is None:
            done[id(value)] = made = value.copy()
            for place, item in made.items() if kind is dict else enumerate(made):
                if type(item) not in LEAVES:
                    made[place] = _copied(item, done)
        return made
    if kind is tuple:
        made = done.get(id(value))
        if made is None:
            made = tuple([item if type(item) in LEAVES else _copied(item, done) for item in value])
            # One that holds itself through a list was made meanwhile, and that list holds it.
            made = done.setdefault(id(value), made)
        return made
    if kind is set or kind is frozenset or kind is bytearray:
        return value.copy()
    try:
        return copy.deepcopy(value)
    except Exception:
        return value


def _plain_zone(value: Any) -> Any:
    """Return a datetime or time whose zone is none, a fixed offset or a named one, so that it can be written."""
    zone = value.tzinfo
    if zone is not None and type(zone) is not timezone and not zone_key(zone):
        offset = value.utcoffset()
        zone = None if offset is None else timezone(offset)
    if issubclass(type(value), datetime):
        return datetime.combine(date(value.year, value.month, value.day), _clock(value, zone))
    return _clock(value, zone)


def _clock(value: Any, zone: tzinfo | None) -> time:
    return time(value.hour, value.minute, value.second, value.microsecond, zone, fold=value.fold)


def zone_key(zone: tzinfo | None) -> str | None:
    """Return the key of a `zoneinfo.ZoneInfo`, known by its type's name so that nothing need be imported."""
    kind = type(zone)
    key = getattr(zone, "key", None) if kind.__name__ == "ZoneInfo" and kind.__module__ == "zoneinfo" else None
    return key if type(key) is str else None


Plain = Callable[[Any], Any]
# Before its base stands what is derived from it: datetime before date.
_EXACT: Final[tuple[tuple[type, Plain], ...]] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (complex, complex.__complex__),
    (dict, lambda value: dict(dict.items(value))),
    (list, lambda value: list(list.__iter__(value))),
    (tuple, lambda value: tuple(tuple.__iter__(value))),
    (set, lambda value: set(set.__iter__(value))),
    (frozenset, lambda value: frozenset(frozenset.__iter__(value))),
    (bytes, lambda value: bytes(memoryview(value))),
    (bytearray, lambda value: bytearray(memoryview(value))),
    (memoryview, lambda value: value.tobytes()),
    (Enum, lambda value: value),
    (Decimal, Decimal),
    (Fraction, lambda value: Fraction(value.numerator, value.denominator)),
    (UUID, lambda value: UUID(int=value.int)),
    (datetime, _plain_zone),
    (time, _plain_zone),
    (date, lambda value: date(value.year, value.month, value.day)),
    (timedelta, lambda value: timedelta(value.days, value.seconds, value.microseconds)),
    (PurePosixPath, lambda value: PurePosixPath(str(value))),
    (PurePath, str),
    (Integral, int),
    (Real, float),
    (Complex, complex),
    (deque, list),
    (MappingView, list),
)


def unwrap(value: object) -> Any:
    """Return `value` one layer nearer to plain: an exact leaf, a container of whatever it held, or `OPAQUE`.

    Never raises: a value that fails while it is looked at is opaque.
    """
    # `type` and `issubclass`, for `isinstance` asks `__class__`, which a proxy may answer by raising.
    kind = type(value)
    try:
        for base, plain in _EXACT:
            if issubclass(kind, base):
                return plain(value)
        fields = getattr(kind, "__attrs_attrs__", None)
        if fields is None and dataclasses.is_dataclass(kind):
            fields = dataclasses.fields(kind)
        if fields is not None:
            return {field.name: getattr(value, field.name) for field in fields if hasattr(value, field.name)}
        if callable(dump := getattr(kind, "model_dump", None)):
            value = dump(value)
        return dict(value.items()) if issubclass(type(value), Mapping) else OPAQUE  # type: ignore[attr-defined]
    except Exception:
        return OPAQUE


def storable(value: object) -> Any:
    """Return the form in which a tool's value lives in a run: a copy of plain types, as this module's head lists them.

    A value inside itself becomes ``<cycle>``, one below 200 levels ``<too deep>``, and what shared references would
    blow up to over ten times its size ``<too large>``. Keys follow the same rule; one that would coincide with another
    gets `` #2``, `` #3`` at its end. Never raises; what it returns `dumps` accepts.
    """
    try:
        return value if type(value) in LEAVES else small_copy(value, [SMALL])
    except Exception:
        pass
    try:
        return tree_copy(value, LEAVES, _MAX_DEPTH)
    except Exception:
        return _Storing().of(value, 0)


class _Storing:
    """One walk of `storable`: what is open above, what was met before."""

    __slots__ = ("kept", "met", "open", "shared")

    def __init__(self) -> None:
        self.open: set[int] = set()
        self.met: set[int] = set()
        self.shared = -FREE_SHARED
        # Unwrapped layers must live as long as the walk, or a later one could get the identity of an earlier.
        self.kept: list[Any] = []

    def of(self, value: Any, depth: int) -> Any:
        kind = type(value)
        try:
            if kind in LEAVES:
                return value
            form = value if kind in CONTAINERS else unwrap(value)
        except Exception:
            # A metaclass with an equality of its own makes its classes unhashable; its hash may raise anything.
            form = OPAQUE
        if form is OPAQUE:
            return opaque_text(value)
        if type(form) not in CONTAINERS:
            return form
        if form is not value:
            self.kept.append(form)
        known = id(value)
        if known in self.open:
            return CYCLE
        self.shared += len(form) if known in self.met else -SHARED_FOR_NEW * len(form)
        if depth >= _MAX_DEPTH:
            return TOO_DEEP
        if self.shared > 0 or len(self.kept) > _MAX_OBJECTS:
            return TOO_LARGE
        self.met.add(known)
        self.open.add(known)
        try:
            return self.filled(form, depth + 1)
        except RecursionError:
            return TOO_DEEP
        except Exception:
            return opaque_text(value)
        finally:
            self.open.discard(known)

    def filled(self, form: Any, depth: int) -> Any:
        kind = type(form)
        if kind is dict:
            if not all(type(key) is str for key in form):
                return self.with_odd_keys(form, depth)
            return {key: self.of(item, depth) for key, item in list(form.items())}
        made = [self.of(item, depth) for item in form]
        if kind is list:
            return made
        try:
            return kind(made)
        except TypeError:
            return made

    def with_odd_keys(self, form: dict[Any, Any], depth: int) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        taken = {key for key in form if type(key) in LEAVES}
        counts: dict[str, int] = {}
        for key, item in form.items():
            name = key if type(key) in LEAVES else self.odd_key(key, depth, taken, counts)
            made[name] = self.of(item, depth)
        return made

    def odd_key(self, key: Any, depth: int, taken: set[Any], counts: dict[str, int]) -> Any:
        name = self.of(key, depth)
        try:
            hash(name)
        except TypeError:
            name = opaque_text(key)
        # An enum member is read back as its name, which must not meet a text of that name.
        again = enum_name(name) if isinstance(name, Enum) else name
        stem = ""
        while again in taken:
            stem = stem or (str(again) if isinstance(again, str) else short(again))
            counts[stem] = counts.get(stem, 1) + 1
            again = name = f"{stem} #{counts[stem]}"
        taken.add(again)
        return name
