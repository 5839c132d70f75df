"""What a host remembers of earlier calls: the port, a bounded memory with expiry, and a face for a plain dict.

A memory never fails a call: what cannot be kept or copied is simply not remembered. What goes in and what comes out
are copies, so neither the tool nor the caller can change what is remembered.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import MutableMapping
from copy import deepcopy
from typing import Any, Protocol, runtime_checkable

import attrs

from fsm_agent.core.errors import BuildError
from fsm_agent.core.generated import maker
from fsm_agent.core.storable import CONTAINERS, LEAVES, SMALL, plain_copy, small_copy
from fsm_agent.core.tree_copy import tree_copy
from fsm_agent.host.clock import finite_seconds

__all__ = ["DictMemory", "Memory", "Remembered", "TtlMemory"]

_ABSENT = object()
# How deep `plain_copy` is sure to copy whole; below that it may have to cut.
_MAX_DEPTH = 200


@attrs.frozen(kw_only=True, slots=False)
class Remembered:
    """One result as it is remembered.

    `value` is plain data; `error` is the stable word of a failure, "" when `ok`, and `detail` what was said of it.
    `stored_at` is in wall seconds (UTC), since processes may share a memory; `ttl_s` is how long it may be used from then
    on (None or infinity: no expiry, 0: never). `run_id` and `tool` say where it came from. Raises `BuildError` for a time
    that is no number or NaN, and for a negative `ttl_s`.
    """

    ok: bool
    # A value may be huge, secret, or unprintable, and a record ends up in logs.
    value: Any = attrs.field(default=None, repr=False)
    error: str = ""
    detail: str = attrs.field(default="", repr=False)
    stored_at: float
    ttl_s: float | None = None
    run_id: str = ""
    tool: str = ""

    def __attrs_post_init__(self) -> None:
        if self.ttl_s is None and type(self.stored_at) is float and self.stored_at - self.stored_at == 0.0:
            return
        finite_seconds(self.stored_at, "Remembered(stored_at=)")
        if self.ttl_s is None or (type(self.ttl_s) is float and self.ttl_s == math.inf):
            return
        if finite_seconds(self.ttl_s, "Remembered(ttl_s=)") < 0:
            mend = "expected at least 0 seconds, or None for no expiry"
            raise BuildError(f"Remembered(ttl_s=): {mend}, got {self.ttl_s:g}")

    def usable(self, now: float) -> bool:
        """Say whether this may still be handed back at `now` (wall seconds); exactly at its `ttl_s` it may not.

        Where the wall clock was set back it is held to be new, but no further than its `ttl_s`, so a clock that
        jumps cannot keep it alive for longer than twice that.
        """
        return self.ttl_s is None or abs(now - self.stored_at) < self.ttl_s


# For what is known to be as the class itself would check it.
new_remembered = maker(Remembered, "ok", "value", "error", "detail", "stored_at", "ttl_s", "run_id", "tool")


@runtime_checkable
class Memory(Protocol):
    """Where a host keeps results between calls and runs; safe under threads, and no value makes it raise."""

    def get(self, key: str, scope: str, now: float) -> Remembered | None:
        """Return a copy of what is kept under `key` in `scope` and not expired at `now` (wall seconds), or None."""
        ...

    def put(self, key: str, scope: str, value: Remembered) -> None:
        """Remember a copy of `value` under `key` in `scope`; the last one put stands."""
        ...

    def forget(self, scope: str) -> None:
        """Forget everything remembered in `scope`."""
        ...


class TtlMemory:
    """A memory in this process: bounded, the least recently used goes first, expiry by the `now` that is given.

    Scopes share nothing. A failure is kept only with a `ttl_s` (seed 000: 60 s), and its error comes back with it.
    """

    __slots__ = ("_kept", "_lock", "_max_entries")

    def __init__(self, max_entries: int = 1024) -> None:
        """Keep at most `max_entries` results of all scopes together; `BuildError` below 1."""
        if type(max_entries) is not int or max_entries < 1:
            mend = "to remember nothing, give the tools no cache_ttl_s"
            raise BuildError(f"TtlMemory(max_entries=): expected an int of at least 1; {mend}")
        self._max_entries = max_entries
        self._kept: OrderedDict[tuple[str, str], Remembered] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return how many results are kept, the expired ones that nobody asked for since included."""
        with self._lock:
            return len(self._kept)

    def get(self, key: str, scope: str, now: float) -> Remembered | None:
        """Return a copy of what is kept under `key` in `scope`, or None; `BuildError` if `now` is no finite number."""
        now = finite_seconds(now, "TtlMemory.get(now=)")
        place = (scope, key)
        if not _hashable(place):
            return None
        with self._lock:
            kept = self._kept.get(place)
            if kept is None:
                return None
            if not kept.usable(now):
                del self._kept[place]
                return None
            self._kept.move_to_end(place)
        # Copied outside the lock: what is kept is never changed, and a large value must not hold up other runs.
        return attrs.evolve(kept, value=plain_copy(kept.value))

    def put(self, key: str, scope: str, value: Remembered) -> None:
        """Remember a copy of `value`; one that may not be reused or cannot be copied only removes what was there."""
        place = (scope, key)
        if not _hashable(place) or (not value.ok and value.ttl_s is None):
            return
        copy = _ABSENT if value.ttl_s == 0 else _first_copy(value.value)
        kept = None if copy is _ABSENT else attrs.evolve(value, value=copy)
        with self._lock:
            if kept is None:
                self._kept.pop(place, None)
                return
            self._kept[place] = kept
            self._kept.move_to_end(place)
            if len(self._kept) > self._max_entries:
                self._kept.popitem(last=False)

    def forget(self, scope: str) -> None:
        """Forget everything remembered in `scope`, and nothing else."""
        with self._lock:
            for place in [place for place in self._kept if place[0] == scope]:
                del self._kept[place]


class DictMemory:
    """A memory over a plain dict that others read, fill and clear at any moment: canonical key -> the bare value.

    Successes only, no expiry and no scopes: everybody who has the dict shares it. With `lends` a value is kept and given as it
    is, uncopied, for whoever changes none and copies what goes further.
    """

    __slots__ = ("_lends", "_mapping")

    def __init__(self, mapping: MutableMapping[str, Any], *, lends: bool = False) -> None:
        """Read and fill `mapping` itself, never a copy; `BuildError` if it is no mutable mapping."""
        if not isinstance(mapping, MutableMapping):
            got = type(mapping).__name__
            raise BuildError(f"DictMemory(mapping=): expected a dict or another mutable mapping, got {got}")
        self._mapping, self._lends = mapping, lends

    def get(self, key: str, scope: str, now: float) -> Remembered | None:
        """Return a copy of the value under `key` as a success stored at `now`, or None; `scope` makes no difference."""
        if type(now) is not float or now - now != 0.0:
            now = finite_seconds(now, "DictMemory.get(now=)")
        try:
            # One lookup: between a test for the key and the reading of it somebody may have cleared the dict.
            value = self._mapping.get(key, _ABSENT)
            if value is _ABSENT:
                return None
            return new_remembered(True, value if self._lends else plain_copy(value), "", "", now, None, "", "")
        except Exception:
            return None

    def put(self, key: str, scope: str, value: Remembered) -> None:
        """Keep a copy of a success's bare value; one that may not be reused or cannot be copied removes the old one."""
        if not value.ok:
            return
        try:
            copy = _ABSENT if value.ttl_s == 0 else value.value if self._lends else _first_copy(value.value)
            if copy is _ABSENT:
                self._mapping.pop(key, None)
            else:
                self._mapping[key] = copy
        except Exception:
            # The dict belongs to others too; one that cannot be written to remembers nothing.
            return

    def forget(self, scope: str) -> None:
        """Clear the dict: without scopes, what an effect may have made stale can be anything in it."""
        self._mapping.clear()


def _first_copy(value: Any) -> Any:
    """Return a copy that shares nothing mutable with `value`, or `_ABSENT` where there is none."""
    try:
        return value if type(value) in LEAVES else small_copy(value, [SMALL])
    except Exception:
        pass
    try:
        return tree_copy(value, LEAVES, _MAX_DEPTH)
    except Exception:  # no JSON value; the slower way tells what can be copied
        pass
    try:
        # `plain_copy` always gives something, be it the object itself; a generator handed back twice would be empty.
        return plain_copy(value) if is_plain(value) else deepcopy(value)
    except Exception:
        return _ABSENT


def is_plain(value: object) -> bool:
    """Say whether `value` is containers and leaves throughout; RecursionError for what nests too deep to copy whole."""
    met: set[int] = set()
    level = [value]
    for _ in range(_MAX_DEPTH):
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind in LEAVES:
                continue
            if kind not in CONTAINERS:
                return False
            if id(item) not in met:
                met.add(id(item))
                inner: Any = item
                below += inner.values() if kind is dict else inner
        if not below:
            return True
        level = below
    raise RecursionError


def _hashable(place: object) -> bool:
    try:
        hash(place)
    except Exception:
        return False
    return True
