"""What a body's outcome means: measured against the contract, classified, and put into the form that a run keeps."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from typing import Any

import attrs

from fsm_agent.core.callables import says_yes
from fsm_agent.core.contracts import TableResult
from fsm_agent.core.decoding import strict_json
from fsm_agent.core.errors import PASSES
from fsm_agent.core.plain import short, storable
from fsm_agent.core.tools import Retry, Tool
from fsm_agent.core.values import EMPTY, OK, EffectClass, ResultClass, Verdict

FAILING = frozenset({ResultClass.RETRYABLE, ResultClass.RATE_LIMITED, ResultClass.FATAL})
RETRYABLE = frozenset({ResultClass.RETRYABLE, ResultClass.RATE_LIMITED})
# The exceptions that say of themselves that another try may succeed; the rest is a plain failure.
TRANSIENT = frozenset(
    {
        "TimeoutError",
        "ConnectionError",
        "ConnectionResetError",
        "ConnectionAbortedError",
        "ConnectionRefusedError",
        "BrokenPipeError",
    }
)


_MOST_SHOWN = 300

# Thirty years: a longer wait outlives every budget, and where there is none it is no answer either.
LONGEST_S = 1e9


@attrs.define(slots=True)
class Reading:
    """How one outcome was read: a value, or an error word with its detail, and the class if it has one."""

    ok: bool
    value: Any
    error: str = ""
    detail: str = ""
    result_class: ResultClass | None = None
    retry_after_s: float | None = None


def read_value(tool: Tool, value: Any, verdict: Verdict | None = None, explain: bool = True) -> Reading:
    """Measure a returned value: JSON text decoded where the contract asks, schema, post-conditions, class.

    `explain` adds every fault with its place; the reason alone is cheaper.
    """
    if tool.decode_json and issubclass(type(value), str | bytes):
        try:
            value = strict_json(storable(value))
        except (ValueError, RecursionError):
            return _judged(Reading(False, None, "result:not_json", "the tool's contract promises JSON text"), verdict)
    returns, made = tool.returns, None
    if returns is not None:
        if type(returns) is TableResult:
            fault, made = returns.measured(value)
        else:
            fault = returns.first_fault(value)
        if fault:
            detail = "; ".join(map(str, returns.faults(value)[:20])) if explain else ""
            empty = EMPTY if fault == "empty" else None
            return _judged(Reading(False, None, f"result:{fault}", detail, empty), verdict)
    if tool.post:
        for name, holds in tool.post.items():
            if not _holds(holds, value):
                # What the tool gave often says itself what is wrong. Of a shortened text no secret could be taken out for sure.
                of = f" of {short(value, _MOST_SHOWN)}" if explain and not tool.secret else ""
                return _judged(Reading(False, None, f"result:{name}", f"the post-condition {name!r} does not hold{of}"), verdict)
    kept = storable(value) if made is None else made
    if verdict is not None:
        return _judged(Reading(True, kept), verdict)
    # Of the form that is kept, so that a replay reads the same; and of that nothing raises when it is looked at.
    return Reading(True, kept, "", "", EMPTY if not tool.empty_ok and says_nothing(kept) else OK)


def read_again(tool: Tool, value: Any, verdict: Verdict | None, fault: str) -> Reading:
    """Read a journaled value as it was read the first time, without measuring it."""
    if not fault:
        return _judged(Reading(True, value, result_class=None if verdict is not None else class_of(tool, value)), verdict)
    empty = EMPTY if fault == "result:empty" else None
    return _judged(Reading(False, None, fault, "", empty), verdict)


def read_unmeasured(value: Any, fault: str) -> Reading:
    """Read a journaled value whose tool is not there any more: as it was read when it was, where that is known."""
    if fault:
        return Reading(False, None, fault, "", EMPTY if fault == "result:empty" else None)
    return Reading(True, value, result_class=EMPTY if says_nothing(value) else OK)


def read_raised(tool: Tool, error: str, message: str, verdict: Verdict | None = None) -> Reading:
    """Read an exception: ``raised:<Name>``, RETRYABLE where its type says so and the tool may be repeated."""
    repeatable = tool.effect in (EffectClass.PURE, EffectClass.IDEMPOTENT)
    transient = ResultClass.RETRYABLE if repeatable and error in TRANSIENT else None
    return _judged(Reading(False, None, f"raised:{error}", message, transient), verdict)


def _judged(reading: Reading, verdict: Verdict | None) -> Reading:
    if verdict is None:
        return reading
    reading.result_class, reading.retry_after_s = verdict.result_class, verdict.retry_after_s
    if verdict.result_class in FAILING and reading.ok:
        reading.ok, reading.value, reading.error = False, None, f"result:{verdict.result_class.value.lower()}"
    if verdict.reason:
        reading.detail = reading.detail or verdict.reason
    return reading


def _holds(holds: Any, value: Any) -> bool:
    try:
        said = holds(value)
        return said if type(said) is bool else says_yes(said)
    except PASSES:
        raise
    except BaseException:
        return False


def class_of(tool: Tool, value: Any) -> ResultClass:
    """EMPTY for null, blank text, an empty list and seed 001's ``found: false``, unless that is normal for the tool; else OK."""
    return EMPTY if not tool.empty_ok and says_nothing(value) else OK


def says_nothing(value: Any) -> bool:
    """True for null, blank text, an empty list, and a mapping whose ``found`` is false, whatever else is in it (seed 001)."""
    if type(value) is dict:
        return value.get("found") is False
    # `type`, for whoever asks `isinstance` asks the value, and memory may hold what others put there.
    kind = type(value)
    if issubclass(kind, str):
        return not str.strip(value)
    if issubclass(kind, list | tuple):
        return not (list if issubclass(kind, list) else tuple).__len__(value)
    return value is None or (issubclass(kind, Mapping) and _not_found(value))


def _not_found(value: Mapping[Any, Any]) -> bool:
    try:
        return value.get("found") is False
    except Exception:
        return False


def backoff_s(tool: Tool, seed: int, call_id: str, tries: int, retry_after_s: float | None) -> float:
    """How long a call of a tool waits after the given number of tries, in seconds; see `wait_s`."""
    return wait_s(tool.retry, seed, call_id, tries, retry_after_s)


def wait_s(retry: Retry, seed: int, what: str, tries: int, retry_after_s: float | None) -> float:
    """How long to wait after the given number of tries, in seconds.

    A retry-after is honoured as it is; one that is no finite number says nothing. A declared list of waits is used in
    order (its last repeats). Otherwise the first wait doubles with each try up to the cap, and the second half of it is
    jitter, drawn from the run's seed so that a replay waits as long.
    """
    if retry_after_s is not None and (asked := _seconds(retry_after_s)) is not None:
        return asked
    base = retry.backoff_s
    if not isinstance(base, int | float):
        return float(base[min(tries, len(base)) - 1]) if base else 0.0
    full = min(retry.most_s, base * 2.0 ** min(tries - 1, 60))
    jitter = zlib.crc32(f"{seed}:{what}:{tries}".encode(errors="backslashreplace")) / 2**32
    return full * (0.5 + 0.5 * jitter)


def _seconds(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return max(0.0, min(float(value), LONGEST_S)) if not math.isnan(value) else None
    except OverflowError:
        return LONGEST_S if value > 0 else 0.0
