"""Canonical keys: one text for one call, one result, one fact; `canonical` says what the text is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from operator import itemgetter
from typing import Any, Final

from fsm_agent.core.canonical import (
    FOLD_OVER,
    SMALL,
    WORDS,
    NotSmall,
    Quote,
    Writer,
    folded,
    integer,
    nfc_quoted,
    small_text,
)
from fsm_agent.core.plain import CONTAINERS, LEAVES, unwrap

_SHORT: Final = 64
_MAX_LEAVES: Final = 10_000
_MAX_PATH: Final = 100
# At ten for a container, no more than 90 of them inside each other, and so no path of over 100 steps.
_SMALL_DEEP: Final = 1000
# What is longer is folded by itself before it is part of a leaf.
_SMALL_TEXT: Final = 600
_STEP: Final = itemgetter(0)


def call_key(tool: object, args: object, by_content: bool = False) -> str:
    """Return the canonical key of a call: one for the same call in any order of keys, another for any other call.

    `tool` may be anything a model invents, `args` anything at all; a top-level mapping counts by its items, whatever
    its class. ASCII, at most 1210 characters. Never raises. With `by_content` it is an empty text where the arguments hold
    an object that only its identity tells apart: the result of such a call is nobody else's, and is neither remembered nor
    shared. Spec: the `cache_key` of the adapter; 03, section 2.5.
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
                elif kind is int or kind in WORDS:
                    text = f"{text}{name!a}:{value},"
                else:
                    break
            else:
                # An integer too long to print on some machine is too long here on all.
                if len(text) <= 500 and len(tool) <= 100:
                    return f"{tool!a}{{{text}}}"
        except Exception:
            pass
    return _call_text(tool, args, ascii, _content_key if by_content else call_key, by_content)


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
    return _call_text(tool, args, nfc_quoted, loop_key)


def _content_key(tool: object, args: object) -> str:
    return call_key(tool, args, True)


def _call_text(
    tool: object, args: object, quote: Quote, again: Callable[[object, object], str], by_content: bool = False
) -> str:
    exact_tool = unwrap(tool) if issubclass(type(tool), str) and type(tool) is not str else tool
    exact_args = _exact_mapping(args)
    if exact_tool is not tool or exact_args is not args:
        return again(exact_tool, exact_args)
    writer = Writer(quote)
    text = writer.text(tool)
    text = f"{text if type(tool) is str else f'<tool {text}>'}{writer.text(args)}"
    return "" if by_content and writer.by_identity else text


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
    if type(value) is dict or type(value) is list:
        try:
            return folded(small_text(value, nfc_quoted, [SMALL]), _SHORT)
        except Exception:
            pass
    return folded(Writer(nfc_quoted).text(value), _SHORT)


def leaves(value: object) -> Iterator[str]:
    """Yield the facts of a result, each a canonical (path, value) text of at most 64 characters.

    Indexes are no part of a path, so a list in another order holds no new fact; an empty container is a fact. A path of
    over 100 steps ends in the whole value there, and what lies beyond 10,000 leaves is one leaf together. One leaf may
    come several times. Never raises.
    """
    if value and (type(value) is dict or type(value) is list):
        found: list[str] = []
        try:
            _small_both(value, "", found, [_SMALL_DEEP])
            return iter(found)
        except Exception:
            pass
    return _all_leaves(value)


def observed(value: object) -> tuple[str, Iterator[str]]:
    """Return `observation_key` and `leaves` of a result, in one walk of it where it is small. Never raises."""
    if value and (type(value) is dict or type(value) is list):
        found: list[str] = []
        try:
            return folded(_small_both(value, "", found, [_SMALL_DEEP]), _SHORT), iter(found)
        except Exception:
            pass
    whole = Writer(nfc_quoted).text(value)
    return folded(whole, _SHORT), _all_leaves(value, whole)


def _small_both(value: Any, path: str, found: list[str], room: list[int]) -> str:
    """Return what `small_text` would, and find what `_all_leaves` would in dicts and lists of JSON, in its order.

    NotSmall for any other value and what is too large.
    """
    room[0] -= len(value) + 10
    if room[0] < 0:
        raise NotSmall
    paired = type(value) is dict
    if paired:
        steps = []
        for key, item in value.items():
            if type(key) is not str:
                raise NotSmall
            steps.append((f"{key!a}" if key.isascii() else nfc_quoted(key), item))
        steps.sort(key=_STEP)
    else:
        steps = [("", item) for item in value]
    texts = []
    for name, item in steps:
        step = f"{path}.{name}" if paired else f"{path}[]"
        if len(step) > _SHORT:
            step = folded(step, _SHORT)
        kind = type(item)
        if kind is str:
            text = f"{item!a}" if item.isascii() else nfc_quoted(item)
        elif kind is int:
            text = integer(item)
        elif kind in WORDS:
            text = f"{item}"
        elif (kind is not dict and kind is not list) or len(name) >= _SMALL_TEXT:
            raise NotSmall
        elif item:
            text = _small_both(item, step, found, room)
            texts.append(f"{name}:{text}," if paired else f"{text},")
            continue
        else:
            text = "{}" if kind is dict else "[]"
        if len(text) + len(name) >= _SMALL_TEXT:
            raise NotSmall
        texts.append(f"{name}:{text}," if paired else f"{text},")
        fact = f"{step}={text}"
        found.append(fact if len(fact) <= _SHORT else folded(fact, _SHORT))
    if paired:
        # Keys that NFC makes equal stand by their values.
        texts.sort()
    body = "".join(texts)
    body = f"{{{body}}}" if paired else f"[{body}]"
    return body if len(body) <= FOLD_OVER else folded(body, FOLD_OVER)


def _all_leaves(value: object, whole: str = "") -> Iterator[str]:
    writer = Writer(nfc_quoted)
    stack: list[tuple[str, Any, int]] = [("", value, 0)]
    for _ in range(_MAX_LEAVES):
        steps: list[tuple[str, Any]] = []
        while stack:
            path, item, depth = stack.pop()
            steps = _steps(item, writer) if depth < _MAX_PATH else []
            if not steps:
                yield folded(f"{path}={writer.text(item)}", _SHORT)
                break
            # Each step leads to a leaf at least, so more of them than leaves are never reached.
            for step, child in reversed(steps[: _MAX_LEAVES + 1]):
                stack.append((folded(path + step, _SHORT), child, depth + 1))
        else:
            return
    if stack:
        yield folded(f"the rest of {whole or Writer(nfc_quoted).text(value)}", 0)


def _steps(value: Any, writer: Writer) -> list[tuple[str, Any]]:
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
        return sorted([(f".{writer.text(key)}", item) for key, item in value.items()], key=_STEP)
    return [("[]", item) for item in value] if type(value) in CONTAINERS else []
