"""Keeping the secrets that a contract declares out of what people read and out of what is written down.

A secret argument is needed until its call is settled. Then the run keeps a seal of it: equal secrets of one run have equal
seals, so that repetitions are still told. Nothing can be read from a seal; but whoever holds a saved run can find a secret that is
one of few, such as a PIN, by trying them all.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Set
from typing import Any

import attrs

from fsm_agent.core.decoding import decoded
from fsm_agent.core.exact_values import exact_args
from fsm_agent.core.exact_values import word as exact_word
from fsm_agent.core.keys import call_key
from fsm_agent.core.plain import CONTAINERS, LEAVES, storable
from fsm_agent.core.values import ToolCall

MARK = "[redacted]"
_SEAL = re.compile(r"\[redacted [0-9a-f]{8}\]")
_SHORTEST = 3
_MOST_PARTS = 10_000


def redacted(text: str, secret: Collection[str], args: Any) -> str:
    """The text without the values of secret arguments, nested ones and their escaped spellings too.

    What has fewer than three characters stays: it says nothing.
    """
    return marked(text, secret_texts(args, secret)) if secret and text else text


def secret_texts(args: Any, secret: Collection[str]) -> list[str]:
    """Every text in which the secret arguments may be told, sorted; none where the arguments are no mapping. A seal is no secret."""
    if not isinstance(args, Mapping):
        return []
    parts = (part for name in secret for part in _parts(_value(args, name)) if not is_sealed(part))
    return sorted({spelling for part in parts for spelling in _spellings(part)})


def marked(text: str, spellings: Collection[str]) -> str:
    """The text with a mark in place of each of these."""
    if not spellings:
        return text
    # In one pass with the longest first, so that a short secret leaves no rest of a longer one and none touches a mark.
    return re.sub("|".join(map(re.escape, sorted(spellings, key=len, reverse=True))), MARK, text)


def without_secrets(args: Any, secret: Collection[str]) -> Any:
    """The arguments with the secret ones marked, and what repeats one under another name; for everything that is shown.

    Arguments that are no mapping are marked as a whole: nobody can say which part of them is the secret one.
    """
    if not secret:
        return args
    if not isinstance(args, Mapping):
        return MARK
    texts = set(secret_texts(args, secret))
    return {name: MARK if name in secret else _shown(value, texts) for name, value in args.items()}


def _shown(value: Any, texts: Set[str]) -> Any:
    if not _repeats(value, texts):
        return value
    return marked(value, texts) if type(value) is str else MARK


def _value(args: Mapping[str, Any], name: str) -> Any:
    try:
        return args.get(name)
    except Exception:
        return None


def _parts(value: Any) -> Iterator[Any]:
    """The leaves of a value, keys of its mappings included; each container is looked into once, and not without bound.

    An object is looked into as far as it has a plain form, and is told by its text too, as it would be written out.
    """
    todo, seen = [storable(value)], set()
    if (said := _text_of(value)) is not None:
        todo.append(said)
    for part in todo:
        if isinstance(part, dict | list | tuple | set | frozenset):
            if id(part) not in seen and len(todo) < _MOST_PARTS:
                seen.add(id(part))
                todo += [*part.keys(), *part.values()] if isinstance(part, dict) else part
        else:
            yield part


def _text_of(value: Any) -> str | None:
    """How an object that is not plain would be written out; None for a plain value and for one that cannot be."""
    try:
        return None if type(value) in LEAVES or type(value) in CONTAINERS else exact_word(str(value))
    except Exception:
        return None


def _spellings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if len(value) >= _SHORTEST:
            yield from (value, repr(value)[1:-1], json.dumps(value)[1:-1])
    elif isinstance(value, bytes | bytearray):
        if len(value) >= _SHORTEST:
            yield repr(bytes(value))[2:-1]
            yield bytes(value).decode("utf-8", "backslashreplace")
    elif value is not None and not isinstance(value, bool):
        try:
            text = str(value)
        except ValueError:
            # An integer beyond Python's digit limit is written out nowhere.
            return
        if len(text) >= _SHORTEST:
            yield text


def is_sealed(value: Any) -> bool:
    """True for the seal of a secret."""
    return type(value) is str and _SEAL.fullmatch(value) is not None


def key_form(args: Any, secret: Collection[str], run_id: str, former: Collection[str] = ()) -> Any:
    """The arguments as a repetition is told by: seals in place of secrets.

    Of arguments that are no mapping nobody can say which part is the secret one, so they are sealed as a whole.
    """
    return sealed(args, secret, run_id, former) if isinstance(args, Mapping) else _seal(args, run_id)


def memory_form(args: Any, secret: Collection[str], former: Collection[str] = ()) -> Any:
    """The arguments as a result is remembered by, where others may look: digests in place of secrets, too long to coincide."""
    if not isinstance(args, Mapping):
        return args
    texts = {*secret_texts(args, secret), *former}
    hidden = {name for name, value in args.items() if name in secret or _repeats(value, texts)}
    # An object that only its identity tells apart stays what it is, so that no result is remembered by it.
    known = {name for name in hidden if call_key("", (args[name],), True)}
    return {name: _digest("memory", value, 16) if name in known else value for name, value in args.items()}


def told_words(call: ToolCall, secret: Collection[str]) -> ToolCall:
    """A call whose intent, reason and change tell nothing of the secrets that it takes."""
    args = decoded(exact_args(call.args))
    words = {name: word for name in ("intent", "reason", "changed") if (word := getattr(call, name))}
    # Where nobody can say which part of the arguments is the secret one, nobody can say what tells of it.
    readable = isinstance(args, Mapping)
    return attrs.evolve(call, **{name: redacted(word, secret, args) if readable else MARK for name, word in words.items()})


def sealed(args: Any, secret: Collection[str], run_id: str, former: Collection[str] = ()) -> Any:
    """The arguments with a seal in place of each secret one; what repeats a secret under another name is marked, or sealed too.

    So is what repeats one of the `former` texts, of secrets that others have taken the place of. Arguments that are no mapping are
    sealed as a whole.
    """
    if not (secret or former) or args is None:
        return args
    if not isinstance(args, Mapping):
        return _seal(args, run_id)
    texts = {*secret_texts(args, secret), *former}
    return {
        name: _seal(value, run_id) if name in secret else _without_repeats(value, texts, run_id) for name, value in args.items()
    }


def _repeats(value: Any, texts: Set[str]) -> bool:
    """Whether a value has one of these texts somewhere in it; what is no text has it where it would be written out so."""
    parts = _parts(value) if type(value) in CONTAINERS else [value]
    return any(marked(part, texts) != part if type(part) is str else any(one in texts for one in _spellings(part)) for part in parts)


def _without_repeats(value: Any, texts: Set[str], run_id: str) -> Any:
    # What is the secret and nothing else is told by its seal under any name, as a replay has it.
    if type(value) is str and value not in texts:
        return marked(value, texts)
    return _seal(value, run_id) if _repeats(value, texts) else value


def _seal(value: Any, run_id: str) -> str:
    return str(value) if is_sealed(value) else f"[redacted {_digest(run_id, value, 4)}]"


def _digest(whose: str, value: Any, size: int) -> str:
    text = call_key(whose, (value,)).encode("utf-8", "backslashreplace")
    return hashlib.blake2b(text, digest_size=size).hexdigest()
