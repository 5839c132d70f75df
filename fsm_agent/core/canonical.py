"""Canonical text: one text for one value, whatever the order of its keys.

The keys of seeds 000 and 001 drop what is nested, so that different calls collide; these keep every value with its
type: ``1``, ``1.0``, ``True`` and ``"1"`` differ, a list is no tuple, ``{1: x}`` is not ``{"1": x}``. The order of
mapping keys and of set items does not count, the order of lists does. NaN equals NaN.

The text is ASCII. Every text in it is quoted and every item ends with a comma, so no two values share one; what grows
over 600 characters stands as ``#`` and its BLAKE2b digest. Enum members, attrs and dataclass instances and subclasses
of builtin types carry the name of their type. Any other object is told apart by its `repr` where its type has an
equality, a hash and a `repr` of its own, else by its identity: that text is another object's once this one is gone, and
stays the same when it changes, so it may count repetitions of what is alive and must never be remembered (`Writer.by_identity`).
Containers of any depth are walked without recursion; a value inside itself is marked ``<cycle type>`` there.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from hashlib import blake2b
from itertools import chain
from pathlib import PurePosixPath
from types import BuiltinFunctionType, MethodType
from typing import Any, Final
from uuid import UUID

from fsm_agent.core.plain import CONTAINERS, OPAQUE, EnumName, enum_name, type_name, unwrap

FOLD_OVER: Final = 600
# At ten for a container and one for an item, no more than 181 containers.
SMALL: Final = 2000
_SHORT_INT: Final = 10**18
# An object may make up what it holds anew at each look, without end; below these figures it counts as opaque.
_MAX_OBJECTS_DEEP: Final = 1000
_MAX_OBJECTS: Final = 100_000
WORDS: Final = frozenset({bool, float, type(None)})
Quote = Callable[[str], str]

# Each type with the simpler values that make it up; `repr` would not do for integers beyond Python's digit limit.
_PARTS: Final[Mapping[type, Callable[[Any], tuple[Any, ...]]]] = {
    complex: lambda value: (value.real, value.imag),
    bytearray: lambda value: (bytes(value),),
    # Whether the exponent is an e or an E depends on the thread's context.
    Decimal: lambda value: (str(value).upper(),),
    Fraction: lambda value: (value.numerator, value.denominator),
    UUID: lambda value: (value.int,),
    datetime: lambda value: (value.isoformat(), value.fold, getattr(value.tzinfo, "key", None)),
    date: lambda value: (value.isoformat(),),
    time: lambda value: (value.isoformat(), value.fold, getattr(value.tzinfo, "key", None)),
    timedelta: lambda value: (value.days, value.seconds, value.microseconds),
    range: lambda value: (value.start, value.stop, value.step),
    PurePosixPath: lambda value: (str(value),),
    re.Pattern: lambda value: (value.pattern, value.flags),
}


def folded(text: str, over: int) -> str:
    """The text, or its digest where it is longer than `over` characters."""
    if len(text) <= over:
        return text
    return f"#{blake2b(text.encode('ascii'), digest_size=31).hexdigest()}"


def integer(value: int) -> str:
    """An integer in digits, or in hexadecimal ones where it has very many."""
    return repr(value) if value.bit_length() <= 2000 else hex(value)


# Runs of what may be combining marks: all else below stands alone in Unicode and ends a run.
_MARKS: Final = re.compile("[^\x00-\u02ff\u3400-\u9fff]{256}")


def nfc(text: str) -> str:
    """Return the NFC form; a text with over 256 combining marks in a row stays as it is: NFC is quadratic in them."""
    if len(text) > 256 and _MARKS.search(text):
        run = 0
        for character in text:
            run = run + 1 if unicodedata.combining(character) else 0
            if run > 256:
                return text
    return unicodedata.normalize("NFC", text)


def nfc_quoted(text: str) -> str:
    """The text in its NFC form, quoted in ASCII."""
    return ascii(text) if text.isascii() else ascii(nfc(text))


class NotSmall(Exception):
    """A value is no small JSON value; it takes the slower way."""


def small_text(value: Any, quote: Quote, room: list[int]) -> str:
    """Return what `Writer` would write for dicts and lists of JSON; `room` bounds depth, cycles and sharing alike.

    Raises NotSmall for any other. A quote leaves ASCII texts as `ascii` does.
    """
    room[0] -= len(value) + 10
    if room[0] < 0:
        raise NotSmall
    texts = []
    paired = type(value) is dict
    for item in value:
        key = ""
        if paired:
            if type(item) is not str:
                raise NotSmall
            key = f"{item!a}:" if item.isascii() else f"{quote(item)}:"
            item = value[item]
        kind = type(item)
        if kind is str:
            texts.append(f"{key}{item!a}," if item.isascii() else f"{key}{quote(item)},")
        elif kind is int:
            texts.append(f"{key}{item}," if -_SHORT_INT < item < _SHORT_INT else f"{key}{integer(item)},")
        elif kind in WORDS:
            texts.append(f"{key}{item},")
        elif kind is dict or kind is list:
            texts.append(f"{key}{small_text(item, quote, room)},")
        else:
            raise NotSmall
    if paired:
        texts.sort()
    body = "".join(texts)
    body = f"{{{body}}}" if paired else f"[{body}]"
    return body if len(body) <= FOLD_OVER else folded(body, FOLD_OVER)


class _Open:
    """A container whose items are being written."""

    __slots__ = ("head", "known", "order", "rest", "tail", "texts")

    def __init__(self, known: int, head: str, tail: str, rest: Iterable[Any], order: str = "") -> None:
        self.known, self.head, self.tail, self.rest, self.order = known, head, tail, iter(rest), order
        self.texts: list[str] = []

    def text(self) -> str:
        texts = self.texts
        if self.order == "pairs":
            texts = [f"{key}:{item}" for key, item in zip(texts[::2], texts[1::2], strict=True)]
        texts = [f"{text}," for text in texts]
        if self.order:
            texts.sort()
        body = "".join(texts)
        return folded(f"{self.head}{body}{self.tail}", FOLD_OVER)


class Writer:
    """Writes values as canonical text; what it has written once it knows, so shared references cost nothing.

    `by_identity` is true once something was written that only its identity tells apart.
    """

    __slots__ = ("active", "by_identity", "kept", "known", "quote")

    def __init__(self, quote: Quote) -> None:
        self.quote = quote
        self.by_identity = False
        self.known: dict[int, str] = {}
        self.active: set[int] = set()
        # What is unwrapped must live as long as `known`, which goes by identity.
        self.kept: list[Any] = []

    def text(self, value: Any) -> str:
        """The canonical text of a value, folded where it is long."""
        kind: Any = type(value)
        if kind is str:
            return folded(self.quote(value), FOLD_OVER)
        if kind is int:
            return folded(integer(value), FOLD_OVER)
        if kind is dict or kind is list:
            try:
                return small_text(value, self.quote, [SMALL])
            except Exception:
                pass
        return self.long_text(value)

    def long_text(self, value: Any) -> str:
        """`text` of a value of any size and shape, without recursion."""
        quote = self.quote
        stack = [_Open(0, "", "", (value,))]
        while True:
            top = stack[-1]
            texts = top.texts
            for item in top.rest:
                kind = type(item)
                if kind is str:
                    texts.append(quote(item))
                elif kind is int:
                    texts.append(integer(item))
                elif kind is float or kind is bool or item is None:
                    texts.append(repr(item))
                else:
                    entered = self.enter(item)
                    if type(entered) is _Open:
                        stack.append(entered)
                        break
                    texts.append(entered)  # type: ignore[arg-type]
            else:
                if len(stack) == 1:
                    return folded(texts[0], FOLD_OVER)
                text = stack.pop().text()
                self.active.discard(top.known)
                self.known[top.known] = text
                stack[-1].texts.append(text)

    def enter(self, value: Any) -> str | _Open:
        """The text of what holds nothing or was written before, else the container opened."""
        known = id(value)
        if known in self.known:
            return self.known[known]
        if known in self.active:
            return f"<cycle {type_name(type(value))!a}>"
        kind: Any = type(value)
        if kind is bytes:
            return folded(repr(value), FOLD_OVER)
        if kind is EnumName or issubclass(kind, Enum):
            return f"<enum {self.quote(value if kind is EnumName else enum_name(value))}>"
        try:
            opened = self.opened(value, kind, known)
        except RecursionError:
            raise
        except Exception:
            opened = None
        if opened is None:
            told = _own_text(value, kind)
            if not told or _ADDRESS.search(told):
                self.by_identity = True
            told = told or hex(id(value))
            return folded(f"<{type_name(kind)!a} {told!a}>", FOLD_OVER)
        self.active.add(known)
        return opened

    def opened(self, value: Any, kind: type, known: int) -> _Open | None:
        """A container, or an object with a plain form, with its parts still to be written; None for any other object."""
        if kind is list:
            return _Open(known, "[", "]", value)
        if kind is dict:
            # In a set order, so that a value that holds itself is written the same whatever the order of its keys.
            items = sorted(value.items()) if _are_texts(value) else list(value.items())
            return _Open(known, "{", "}", chain.from_iterable(items), "pairs")
        if kind is tuple:
            return _Open(known, "(", ")", value)
        if kind in CONTAINERS:
            return _Open(known, f"{kind.__name__}(", ")", tuple(value), "any")
        parts = _PARTS.get(kind)
        if parts is not None:
            plain = parts(value)
        elif len(self.active) > _MAX_OBJECTS_DEEP or len(self.kept) > _MAX_OBJECTS or (form := unwrap(value)) is OPAQUE:
            return None
        else:
            plain = (form,)
            self.kept.append(form)
        return _Open(known, f"<{type_name(kind)!a} ", ">", plain)


def _are_texts(keys: Iterable[Any]) -> bool:
    return all(type(key) is str for key in keys)


# In the text of a bound method, for one, stands whatever object it is bound to.
_ADDRESS: Final = re.compile("0x[0-9a-fA-F]{4}")


def _own_text(value: object, kind: Any) -> str:
    """Return what an object without a plain form says of its value, if its type says what that is, or an empty text."""
    try:
        own = kind.__eq__ is not object.__eq__ and kind.__hash__ not in (None, object.__hash__)
        # Two built-in functions of one name have one text, and so may methods of two objects.
        own = own and kind.__repr__ is not object.__repr__ and kind is not BuiltinFunctionType and kind is not MethodType
        return str.__str__(repr(value)) if own else ""
    except Exception:
        return ""
