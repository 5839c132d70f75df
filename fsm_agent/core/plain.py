"""Plain values: copies of them, the form in which they live in a run, and a lossless JSON text of that form.

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

import base64
import copy
import dataclasses
import json
import re
from collections import deque
from collections.abc import Callable, Mapping, MappingView
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from itertools import islice
from math import isfinite, isinf
from numbers import Complex, Integral, Real
from pathlib import PurePath, PurePosixPath
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Final
from uuid import UUID

from fsm_agent.core.errors import SavedRunError

CYCLE: Final = "<cycle>"
TOO_DEEP: Final = "<too deep>"
TOO_LARGE: Final = "<too large>"
OPAQUE: Final = object()
"""What `unwrap` returns for a value that has no plain form."""

_MAX_DEPTH: Final = 200
# A run puts a stored value some levels down in a larger whole, which must still be saved.
_MAX_SAVED_DEPTH: Final = 240
# Values met again through another reference are written out each time, so forty nested pairs would make 2**40 of them.
# Each item met anew earns ten items that were met before.
_FREE_SHARED: Final = 100_000
_SHARED_FOR_NEW: Final = 10
_NO_STACK: Final = "nests deeper than the stack allows from here"
# An object may make up what it holds anew at each look, without end.
_MAX_OBJECTS: Final = 200_000
# At ten for a container and one for an item no more than 181 containers, so none below 200 levels.
_SMALL: Final = 2000


class EnumName(str):
    """The text ``module.Class.NAME`` that stands for an enum member after a run was loaded; its key is the member's."""

    __slots__ = ()


LEAVES: Final = frozenset(
    {type(None), bool, int, float, complex, str, bytes, EnumName, Decimal, Fraction, UUID, date, timedelta, range}
    | {PurePosixPath}
)
"""The exact types that are plain, immutable and hold no other value."""
CONTAINERS: Final = frozenset({list, tuple, set, frozenset, dict})


# -- names and texts -------------------------------------------------------------------------------------------------


def type_name(named: object) -> str:
    """Return ``module.QualName`` of a class or function as printable text, or ``unknown`` where it does not say."""
    try:
        return _printable(f"{named.__module__ or 'builtins'}.{named.__qualname__}"[:200])  # type: ignore[attr-defined]
    except Exception:
        return "unknown"


def opaque_text(value: object) -> str:
    """Return ``<module.QualName>``, the text that replaces a value without a plain form; it holds no address."""
    named = issubclass(type(value), type | FunctionType | MethodType | BuiltinFunctionType)
    return f"<{type_name(value if named else type(value))}>"


def enum_name(member: Enum) -> EnumName:
    """Return ``module.Class.NAME`` of an enum member; an unnamed combination of flags is named by its value."""
    return EnumName(f"{type_name(type(member))}.{member._name_ or short(member._value_)}")


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def short(value: object, limit: int = 200) -> str:
    """Return a one-line description of any value in at most `limit` printable characters; never raises."""
    try:
        room = max(limit, 0) + 1
        text = _printable(_brief(value, room, 4)[:room])
    except Exception:
        text = opaque_text(value)
    return text if len(text) <= limit else text[: max(limit - 1, 0)] + "…"[:limit]


_BRACKETS: Final = ((dict, "{", "}"), (list, "[", "]"), (tuple, "(", ")"), (set, "{", "}"), (frozenset, "{", "}"))


def _brief(value: Any, room: int, depth: int) -> str:
    kind = type(value)
    if kind is str or kind is bytes:
        return repr(value[:room])
    if kind is int and value.bit_length() > 1000:
        return f"<int of {value.bit_length()} bits>"
    for base, left, right in _BRACKETS:
        if not issubclass(kind, base):
            continue
        pieces: list[str] = []
        for item in islice(value.items() if base is dict else value, room // 2 + 1 if depth else 0):
            pieces.append(": ".join(_brief(part, room, depth - 1) for part in (item if base is dict else (item,))))
            room -= len(pieces[-1]) + 2
            if room <= 0:
                break
        return f"{left}{', '.join(pieces)}{'…' if len(pieces) < len(value) else ''}{right}"
    # An address differs from run to run and tells nobody anything.
    return re.sub(r" at 0x[0-9a-fA-F]+", "", str(repr(value)))


def cut(text: str, limit: int) -> str:
    """Cut a text to `limit` characters, the mark that says the full size included.

    A limit too small for the mark gives the mark alone: a cut is never silent.
    """
    if len(text) <= limit:
        return text
    mark = f"… [cut: {len(text)} characters in all]"
    return text[: max(limit - len(mark), 0)] + mark


# -- copies ----------------------------------------------------------------------------------------------------------


def plain_copy(value: Any) -> Any:
    """Return a deep copy that shares nothing mutable with `value`; never raises.

    Builtin containers are copied here, other objects by `copy.deepcopy`; one that cannot be copied stands in the copy
    itself. Keys of dicts and items of sets are shared, being immutable. What nests too deep gets `storable`'s form.
    """
    kind = type(value)
    try:
        return value if kind in LEAVES else _small_copy(value, [_SMALL])
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


class _NotSmall(Exception):
    """A value is no small JSON value; it takes the slower way."""


def _small_copy(value: Any, room: list[int]) -> Any:
    """Copy dicts with text keys and lists of leaves; what is left of `room` bounds depth, cycles and sharing alike."""
    kind = type(value)
    if kind is not dict and kind is not list:
        raise _NotSmall
    room[0] -= len(value) + 10
    if room[0] < 0:
        raise _NotSmall
    made = value.copy()
    if kind is dict:
        for key, item in made.items():
            if type(key) is not str:
                raise _NotSmall
            if type(item) not in LEAVES:
                made[key] = _small_copy(item, room)
        return made
    for index, item in enumerate(made):
        if type(item) not in LEAVES:
            made[index] = _small_copy(item, room)
    return made


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


# -- the storable form -----------------------------------------------------------------------------------------------


def _plain_zone(value: Any) -> Any:
    """Return a datetime or time whose zone is none, a fixed offset or a named one, so that it can be written."""
    zone = value.tzinfo
    if zone is not None and type(zone) is not timezone and not _zone_key(zone):
        offset = value.utcoffset()
        zone = None if offset is None else timezone(offset)
    if issubclass(type(value), datetime):
        return datetime.combine(date(value.year, value.month, value.day), _clock(value, zone))
    return _clock(value, zone)


def _clock(value: Any, zone: tzinfo | None) -> time:
    return time(value.hour, value.minute, value.second, value.microsecond, zone, fold=value.fold)


def _zone_key(zone: tzinfo | None) -> str | None:
    """Return the key of a `zoneinfo.ZoneInfo`, known by its type's name so that nothing need be imported."""
    kind = type(zone)
    key = getattr(zone, "key", None) if kind.__name__ == "ZoneInfo" and kind.__module__ == "zoneinfo" else None
    return key if type(key) is str else None


_Plain = Callable[[Any], Any]
# Before its base stands what is derived from it: datetime before date.
_EXACT: Final[tuple[tuple[type, _Plain], ...]] = (
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
        return value if type(value) in LEAVES else _small_copy(value, [_SMALL])
    except Exception:
        return _Storing().of(value, 0)


class _Storing:
    """One walk of `storable`: what is open above, what was met before."""

    __slots__ = ("kept", "met", "open", "shared")

    def __init__(self) -> None:
        self.open: set[int] = set()
        self.met: set[int] = set()
        self.shared = -_FREE_SHARED
        # Unwrapped layers must live as long as the walk, or a later one could get the identity of an earlier.
        self.kept: list[Any] = []

    def of(self, value: Any, depth: int) -> Any:
        kind = type(value)
        try:
            if kind in LEAVES:
                return value
            form = value if kind in CONTAINERS else unwrap(value)
        except TypeError:
            # A metaclass with an equality of its own makes its classes unhashable.
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
        self.shared += len(form) if known in self.met else -_SHARED_FOR_NEW * len(form)
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


# -- JSON ------------------------------------------------------------------------------------------------------------


class _Refused(Exception):
    """Why a value has no JSON form, or JSON no value; `steps` leads to the place, the innermost first."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps: list[str] = []

    def at(self, where: str) -> SavedRunError:
        place = "/".join([where, *reversed(self.steps)])
        return SavedRunError(f"{place if len(place) <= 300 else place[:299] + '…'}: {self.reason}")


class _Bad:
    """What the JSON reader leaves where the text is no strict JSON, so that the walk can say where it stands."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


def _step(key: object) -> str:
    return _printable(key[:60]) if type(key) is str else short(key, 60)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").encode("utf-8", "backslashreplace").decode("utf-8")


def _unescaped(text: str) -> str:
    return re.sub(r"\\(?:u([0-9a-f]{4})|\\)", lambda found: chr(int(found[1], 16)) if found[1] else "\\", text)


def _moment(value: Any) -> list[Any]:
    """Return a datetime or time as its ISO 8601 text, the key of its zone if it has one, and its fold."""
    return [value.isoformat(), _zone_key(value.tzinfo), value.fold]


def _placed(value: Any, key: str | None, fold: int) -> Any:
    value = value.replace(fold=fold)
    if key is None:
        return value
    from zoneinfo import ZoneInfo

    try:
        return value.replace(tzinfo=ZoneInfo(key))
    except (LookupError, ValueError, OSError):
        # This machine does not know the zone; the instant is right by its offset.
        return value


def _paired(items: list[Any]) -> dict[Any, Any]:
    made = dict(zip(items[::2], items[1::2], strict=True))
    if 2 * len(made) != len(items):
        raise ValueError("a key stands twice")
    return made


_ENCODED: Final[Mapping[type, tuple[str, _Plain]]] = {
    bytes: ("$bytes", lambda value: base64.b64encode(value).decode("ascii")),
    bytearray: ("$bytearray", lambda value: base64.b64encode(value).decode("ascii")),
    EnumName: ("$enum", str),
    Decimal: ("$decimal", str),
    Fraction: ("$fraction", lambda value: [value.numerator, value.denominator]),
    complex: ("$complex", lambda value: [value.real, value.imag]),
    UUID: ("$uuid", str),
    datetime: ("$datetime", _moment),
    date: ("$date", date.isoformat),
    time: ("$time", _moment),
    timedelta: ("$timedelta", lambda value: [value.days, value.seconds, value.microseconds]),
    range: ("$range", lambda value: [value.start, value.stop, value.step]),
    PurePosixPath: ("$path", str),
}
_DECODED: Final[Mapping[str, tuple[type, _Plain]]] = {
    "$str": (str, _unescaped),
    "$int": (str, lambda text: int(text, 16)),
    "$float": (str, {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}.__getitem__),
    "$tuple": (list, tuple),
    "$set": (list, set),
    "$frozenset": (list, frozenset),
    "$dict": (list, _paired),
    "$bytes": (str, lambda text: base64.b64decode(text, validate=True)),
    "$bytearray": (str, lambda text: bytearray(base64.b64decode(text, validate=True))),
    "$enum": (str, EnumName),
    "$decimal": (str, Decimal),
    "$fraction": (list, lambda items: Fraction(*items)),
    "$complex": (list, lambda items: complex(*items)),
    "$uuid": (str, UUID),
    "$datetime": (list, lambda items: _placed(datetime.fromisoformat(items[0]), *items[1:])),
    "$date": (str, date.fromisoformat),
    "$time": (list, lambda items: _placed(time.fromisoformat(items[0]), *items[1:])),
    "$timedelta": (list, lambda items: timedelta(*items)),
    "$range": (list, lambda items: range(*items)),
    "$path": (str, PurePosixPath),
}


class _Encoding:
    """One walk of `to_json`."""

    __slots__ = ("met", "shared")

    def __init__(self) -> None:
        self.met: set[int] = set()
        self.shared = -_FREE_SHARED

    def of(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is str:
            return value if value.isascii() or _is_unicode(value) else {"$str": _escaped(value)}
        if value is None or kind is bool:
            return value
        if kind is int:
            # Beyond 64 bits many readers of JSON round, and Python's own refuses 4301 digits.
            return value if -(2**63) <= value < 2**63 else {"$int": hex(value)}
        if kind is float:
            return value if isfinite(value) else {"$float": repr(value)}
        if kind in CONTAINERS:
            return self.filled(value, kind, depth)
        if (row := _ENCODED.get(kind)) is not None:
            try:
                payload = row[1](value)
            except Exception as error:
                raise _Refused(f"this {kind.__name__} cannot be saved ({type(error).__name__})") from None
            return {row[0]: [self.of(x, depth) for x in payload] if type(payload) is list else self.of(payload, depth)}
        if issubclass(kind, Enum):
            plain = unwrap(value)
            return self.of(enum_name(value) if plain is value else plain, depth)
        raise _Refused(
            f"a {kind.__name__} cannot be saved (its type is {type_name(kind)}); save its storable() form, or keep it"
            " in the caller's context, which is never saved"
        )

    def filled(self, value: Any, kind: type, depth: int) -> Any:
        if depth >= _MAX_SAVED_DEPTH:
            raise _Refused(f"nests deeper than {_MAX_SAVED_DEPTH} levels or holds itself, which cannot be saved")
        self.shared += len(value) if id(value) in self.met else -_SHARED_FOR_NEW * len(value)
        if self.shared > 0:
            raise _Refused("shared references would blow this up to over ten times its size")
        self.met.add(id(value))
        if kind is dict:
            return self.entries(value, depth + 1)
        made: list[Any] = []
        try:
            for item in value:
                made.append(self.of(item, depth + 1))
        except _Refused as refused:
            refused.steps.append(str(len(made)))
            raise
        if kind is list:
            return made
        if kind is not tuple:
            # Text hashes differ from run to run; equal sets must give equal texts.
            made.sort(key=json.dumps)
        return {f"${kind.__name__}": made}

    def entries(self, value: dict[Any, Any], depth: int) -> Any:
        made: dict[str, Any] = {}
        flat: list[Any] = []
        key: Any = None
        try:
            if all(type(key) is str and key[:1] != "$" and _is_unicode(key) for key in value):
                for key, item in value.items():
                    made[key] = self.of(item, depth)
                return made
            for key, item in value.items():
                flat += self.of(key, depth), self.of(item, depth)
        except _Refused as refused:
            refused.steps.append(_step(key))
            raise
        return {"$dict": flat}


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def to_json(value: object, where: str = "value") -> Any:
    """Return a storable value as strict JSON data, from which `from_json` makes it again, equal and of its types.

    Enum members that are a str or a number are written as that. Raises SavedRunError with the place (`where`, then keys
    and indexes) and the type for what cannot be saved.
    """
    try:
        return _Encoding().of(value, 0)
    except _Refused as refused:
        raise refused.at(where) from None
    except RecursionError:
        raise SavedRunError(f"{where}: {_NO_STACK}") from None
    except Exception as error:
        raise SavedRunError(f"{where}: cannot be saved ({type(error).__name__}: {short(str(error))})") from error


def _decoded(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None or (kind is float and isfinite(value)):
        return value
    if depth > 2 * _MAX_SAVED_DEPTH:
        raise _Refused("nests too deep for a saved value")
    if kind is list:
        items: list[Any] = []
        try:
            for item in value:
                items.append(_decoded(item, depth + 1))
        except _Refused as refused:
            refused.steps.append(str(len(items)))
            raise
        return items
    if kind is not dict:
        raise _Refused(value.reason if kind is _Bad else f"{short(value)} is no JSON")
    made: dict[str, Any] = {}
    key: Any = None
    try:
        for key, item in value.items():
            if type(key) is not str:
                raise _Refused("a key that is no text is no JSON")
            if key[:1] != "$":
                made[key] = _decoded(item, depth + 1)
            elif len(value) == 1:
                return _built(key, _decoded(item, depth + 1))
            else:
                raise _Refused("a tag stands alone in its object; a dict with such a key is written as $dict")
    except _Refused as refused:
        refused.steps.append(_step(key))
        raise
    return made


def _built(tag: str, payload: Any) -> Any:
    shape, build = _DECODED.get(tag, (object, None))
    if build is None:
        raise _Refused(f"unknown tag; known are {' '.join(_DECODED)}")
    if type(payload) is shape:
        try:
            return build(payload)
        except (ValueError, TypeError, ArithmeticError, LookupError):
            pass
    raise _Refused(f"{short(payload)} is no content of {tag}")


def from_json(value: object, where: str = "value") -> Any:
    """Return the value that `to_json` wrote; nothing named in the data is imported or called.

    Raises SavedRunError with the place for an unknown tag, a tag with wrong content, and what is no JSON data.
    """
    try:
        return _decoded(value, 0)
    except _Refused as refused:
        raise refused.at(where) from None
    except RecursionError:
        raise SavedRunError(f"{where}: {_NO_STACK}") from None


def dumps(value: object, where: str = "value") -> str:
    """Return a storable value as one line of strict JSON, writable as UTF-8; raises SavedRunError as `to_json` does."""
    encoded = to_json(value, where)
    try:
        return json.dumps(encoded, ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"))
    except RecursionError:
        raise SavedRunError(f"{where}: {_NO_STACK}") from None


def _entries(pairs: list[tuple[str, Any]]) -> Any:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    names = [name for name, _ in pairs]
    return _Bad(f"the key {short(next(name for name in names if names.count(name) > 1), 60)} stands twice")


def _number(text: str) -> Any:
    try:
        number: Any = float(text) if set(text) & set(".eE") else int(text)
    except ValueError:
        return _Bad(f"a number of {len(text)} digits is too long")
    return _Bad(f"the number {text} is too large") if type(number) is float and isinf(number) else number


_READER: Final = json.JSONDecoder(
    object_pairs_hook=_entries,
    parse_constant=lambda name: _Bad(f"{name} is no JSON"),
    parse_float=_number,
    parse_int=_number,
)


def loads(text: object, where: str = "value") -> Any:
    """Return the value whose text `dumps` wrote.

    Raises SavedRunError, with the place, for a text that is no strict JSON (NaN, a key that stands twice, a number out
    of range, anything after the end), nests too deep, or holds an unknown tag.
    """
    if type(text) is not str:
        raise SavedRunError(f"{where}: a saved value is a text (str), not a {type(text).__name__}")
    try:
        read = _READER.decode(text)
    except ValueError as error:
        raise SavedRunError(f"{where}: no JSON text: {short(str(error))[1:-1]}; it begins {short(text, 40)}") from None
    except RecursionError:
        raise SavedRunError(f"{where}: {_deep_place(text)}") from None
    return from_json(read, where)


def _deep_place(text: str) -> str:
    depth = 0
    for found in re.finditer(r'"(?:[^"\\]|\\.)*"|[\[{\]}]', text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
        if depth > 2 * _MAX_SAVED_DEPTH:
            return f"the text nests too deep, at character {found.start()}"
    return _NO_STACK


def byte_size(value: object) -> int:
    """Return the size in bytes of a value's JSON text in UTF-8, if need be of its storable form; never raises."""
    try:
        text = dumps(value)
    except SavedRunError:
        text = dumps(storable(value))
    return len(text.encode("utf-8"))
