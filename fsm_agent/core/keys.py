"""Canonical keys: one text for one call, one result, one fact.

The keys of seeds 000 and 001 drop what is nested, so that different calls collide; these keep every value with its
type: ``1``, ``1.0``, ``True`` and ``"1"`` differ, a list is no tuple, ``{1: x}`` is not ``{"1": x}``. The order of
mapping keys and of set items does not count, the order of lists does. NaN equals NaN.

The text is ASCII. Every text in it is quoted and every item ends with a comma, so no two values share one; what grows
over 600 characters stands as ``#`` and its BLAKE2b digest. Enum members, attrs and dataclass instances and subclasses
of builtin types carry the name of their type. Any other object is told apart by its `repr` where its type has an
equality, a hash and a `repr` of its own, else by its identity (so only within one process). Containers of any depth are
walked without recursion; a value inside itself is marked ``<cycle type>`` there.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from hashlib import blake2b
from itertools import chain
from operator import itemgetter
from pathlib import PurePosixPath
from typing import Any, Final
from uuid import UUID

from fsm_agent.core.plain import CONTAINERS, LEAVES, OPAQUE, EnumName, enum_name, type_name, unwrap

_FOLD_OVER: Final = 600
_SHORT: Final = 64
_MAX_LEAVES: Final = 10_000
_MAX_PATH: Final = 100
# At ten for a container and one for an item, no more than 181 containers.
_SMALL: Final = 2000
# An object may make up what it holds anew at each look, without end; below these figures it counts as opaque.
_MAX_OBJECTS_DEEP: Final = 1000
_MAX_OBJECTS: Final = 100_000
_WORDS: Final = frozenset({bool, float, type(None)})
_Quote = Callable[[str], str]

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


def _folded(text: str, over: int) -> str:
    if len(text) <= over:
        return text
    return f"#{blake2b(text.encode('ascii'), digest_size=31).hexdigest()}"


def _integer(value: int) -> str:
    return repr(value) if value.bit_length() <= 2000 else hex(value)


# Runs of what may be combining marks: all else below stands alone in Unicode and ends a run.
_MARKS: Final = re.compile("[^\x00-\u02ff\u3400-\u9fff]{256}")


def _nfc(text: str) -> str:
    """Return the NFC form; a text with over 256 combining marks in a row stays as it is: NFC is quadratic in them."""
    if len(text) > 256 and _MARKS.search(text):
        run = 0
        for character in text:
            run = run + 1 if unicodedata.combining(character) else 0
            if run > 256:
                return text
    return unicodedata.normalize("NFC", text)


def _nfc_quoted(text: str) -> str:
    return ascii(text) if text.isascii() else ascii(_nfc(text))


class _NotSmall(Exception):
    """A value is no small JSON value; it takes the slower way."""


def _small_text(value: Any, quote: _Quote, room: list[int]) -> str:
    """Return what `_Writer` would write for dicts and lists of JSON; `room` bounds depth, cycles and sharing alike."""
    room[0] -= len(value) + 10
    if room[0] < 0:
        raise _NotSmall
    texts = []
    paired = type(value) is dict
    for item in value:
        key = ""
        if paired:
            if type(item) is not str:
                raise _NotSmall
            key = f"{quote(item)}:"
            item = value[item]
        kind = type(item)
        if kind is str:
            texts.append(f"{key}{quote(item)},")
        elif kind is int:
            texts.append(f"{key}{_integer(item)},")
        elif kind in _WORDS:
            texts.append(f"{key}{item},")
        elif kind is dict or kind is list:
            texts.append(f"{key}{_small_text(item, quote, room)},")
        else:
            raise _NotSmall
    if paired:
        texts.sort()
    body = "".join(texts)
    return _folded(f"{{{body}}}" if paired else f"[{body}]", _FOLD_OVER)


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
        return _folded(f"{self.head}{body}{self.tail}", _FOLD_OVER)


class _Writer:
    """Writes values as canonical text; what it has written once it knows, so shared references cost nothing."""

    __slots__ = ("active", "kept", "known", "quote")

    def __init__(self, quote: _Quote) -> None:
        self.quote = quote
        self.known: dict[int, str] = {}
        self.active: set[int] = set()
        # What is unwrapped must live as long as `known`, which goes by identity.
        self.kept: list[Any] = []

    def text(self, value: Any) -> str:
        kind: Any = type(value)
        if kind is str:
            return _folded(self.quote(value), _FOLD_OVER)
        if kind is int:
            return _folded(_integer(value), _FOLD_OVER)
        if kind is dict or kind is list:
            try:
                return _small_text(value, self.quote, [_SMALL])
            except Exception:
                pass
        return self.long_text(value)

    def long_text(self, value: Any) -> str:
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
                    texts.append(_integer(item))
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
                    return _folded(texts[0], _FOLD_OVER)
                text = stack.pop().text()
                self.active.discard(top.known)
                self.known[top.known] = text
                stack[-1].texts.append(text)

    def enter(self, value: Any) -> str | _Open:
        known = id(value)
        if known in self.known:
            return self.known[known]
        if known in self.active:
            return f"<cycle {type_name(type(value))!a}>"
        kind: Any = type(value)
        if kind is bytes:
            return _folded(repr(value), _FOLD_OVER)
        if kind is EnumName or issubclass(kind, Enum):
            return f"<enum {self.quote(value if kind is EnumName else enum_name(value))}>"
        try:
            opened = self.opened(value, kind, known)
        except RecursionError:
            raise
        except Exception:
            opened = None
        if opened is None:
            return _told_apart(value, kind)
        self.active.add(known)
        return opened

    def opened(self, value: Any, kind: type, known: int) -> _Open | None:
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


def _told_apart(value: object, kind: Any) -> str:
    """Return the text of an object without a plain form: by value if its type says what that is, else by identity."""
    told = hex(id(value))
    try:
        own = kind.__eq__ is not object.__eq__ and kind.__hash__ not in (None, object.__hash__)
        if own and kind.__repr__ is not object.__repr__:
            told = str.__str__(repr(value))
    except Exception:
        told = hex(id(value))
    return _folded(f"<{type_name(kind)!a} {told!a}>", _FOLD_OVER)


def call_key(tool: object, args: object) -> str:
    """Return the canonical key of a call: one for the same call in any order of keys, another for any other call.

    `tool` may be anything a model invents, `args` anything at all; a top-level mapping counts by its items, whatever
    its class. ASCII, at most 1210 characters. Never raises. Spec: the `cache_key` of the adapter; 03, section 2.5.
    """
    if type(args) is dict and type(tool) is str:
        text = ""
        try:
            for name in sorted(args):
                value = args[name]
                kind = type(value)
                if type(name) is not str:
                    break
                if kind is str:
                    text = f"{text}{name!a}:{value!a},"
                elif kind is int or kind in _WORDS:
                    text = f"{text}{name!a}:{value},"
                else:
                    break
            else:
                # An integer too long to print on some machine is too long here on all.
                if len(text) <= 500 and len(tool) <= 100:
                    return f"{tool!a}{{{text}}}"
        except Exception:
            pass
    return _call_text(tool, args, ascii, call_key)


def loop_key(tool: object, args: object) -> str:
    """Return the key by which repetitions are counted: as `call_key`, but texts that NFC makes equal are equal.

    For counters only, never for memory: a body may tell the two spellings apart.
    """
    if type(args) is dict and type(tool) is str and tool.isascii():
        for name, value in args.items():
            kind = type(value)
            if type(name) is not str or not name.isascii():
                break
            if kind is str:
                if not value.isascii():
                    break
            elif kind is not int and kind is not float and kind is not bool and value is not None:
                break
        else:
            return call_key(tool, args)
    return _call_text(tool, args, _nfc_quoted, loop_key)


def _call_text(tool: object, args: object, quote: _Quote, again: Callable[[object, object], str]) -> str:
    exact_tool = unwrap(tool) if issubclass(type(tool), str) and type(tool) is not str else tool
    exact_args = _exact_mapping(args)
    if exact_tool is not tool or exact_args is not args:
        return again(exact_tool, exact_args)
    writer = _Writer(quote)
    text = writer.text(tool)
    return f"{text if type(tool) is str else f'<tool {text}>'}{writer.text(args)}"


def _exact_mapping(args: object) -> object:
    """Return the dict of a mapping of another class, and anything else as it is."""
    try:
        form = unwrap(args) if type(args) is not dict and issubclass(type(args), Mapping) else args
    except Exception:
        return args
    return form if type(form) is dict else args


def key_args(args: object, identity: tuple[str, ...] | None) -> object:
    """Return the arguments that make two calls the same: those a contract names in `identity`, all if it names none.

    Arguments that are no mapping, or one that cannot be read, come back as they are.
    """
    if identity is None:
        return args
    form = _exact_mapping(args)
    return {name: form[name] for name in identity if name in form} if type(form) is dict else args


def observation_key(value: object) -> str:
    """Return the canonical text of a result, as a digest when it is over 64 characters; NFC-equal texts are equal.

    Never raises.
    """
    return _folded(_Writer(_nfc_quoted).text(value), _SHORT)


def leaves(value: object) -> Iterator[str]:
    """Yield the facts of a result, each a canonical (path, value) text of at most 64 characters.

    Indexes are no part of a path, so a list in another order holds no new fact; an empty container is a fact. A path of
    over 100 steps ends in the whole value there, and what lies beyond 10,000 leaves is one leaf together. One leaf may
    come several times. Never raises.
    """
    writer = _Writer(_nfc_quoted)
    stack: list[tuple[str, Any, int]] = [("", value, 0)]
    for _ in range(_MAX_LEAVES):
        steps: list[tuple[str, Any]] = []
        while stack:
            path, item, depth = stack.pop()
            steps = _steps(item, writer) if depth < _MAX_PATH else []
            if not steps:
                yield _folded(f"{path}={writer.text(item)}", _SHORT)
                break
            # Each step leads to a leaf at least, so more of them than leaves are never reached.
            for step, child in reversed(steps[: _MAX_LEAVES + 1]):
                stack.append((_folded(path + step, _SHORT), child, depth + 1))
        else:
            return
    if stack:
        yield _folded(f"the rest of {writer.text(value)}", 0)


def _steps(value: Any, writer: _Writer) -> list[tuple[str, Any]]:
    """Return what a value holds, each with its step; nothing for what is a leaf itself."""
    try:
        if type(value) not in CONTAINERS:
            if type(value) in LEAVES or issubclass(type(value), Enum):
                return []
            value = unwrap(value)
            writer.kept.append(value)
    except TypeError:
        return []
    if type(value) is dict:
        return sorted([(f".{writer.text(key)}", item) for key, item in value.items()], key=itemgetter(0))
    return [("[]", item) for item in value] if type(value) in CONTAINERS else []
