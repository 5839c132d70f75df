"""What is refused when a tool is made: fields of the wrong kind, and fields that contradict each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fsm_agent.core.callables import wrong_manner
from fsm_agent.core.contracts import ArgumentsContract, ResultContract
from fsm_agent.core.known_names import mend
from fsm_agent.core.plain import short

Problem = tuple[str, str]
_PLACES = ("host", "client", "program")
_PLAIN = "give a plain function of one argument, for its answer is needed at once"
_FLAGS = ("polling", "constant", "empty_ok", "exclusive", "decode_json")


def is_kind(value: object, kind: Any) -> bool:
    """True for an instance of a class or protocol; a class that has the protocol's methods is none."""
    return not isinstance(value, type) and isinstance(value, kind)


def wrong_kinds(tool: Any, records: Mapping[str, tuple[type, bool]]) -> Iterator[Problem]:
    """Every field that is of the wrong kind, with what would be right; `records` are fields of one class, and whether None will do."""
    for name, kind in (("args", ArgumentsContract), ("returns", ResultContract)):
        value = getattr(tool, name)
        if value is not None and not is_kind(value, kind):
            told = "make_tool, or a mapping of tools, takes a table or JSON Schema"
            yield f"{name} is {short(value, 60)}", f"give a contract, or None for anything ({told})"
    for name, (record, optional) in records.items():
        value = getattr(tool, name)
        if not isinstance(value, record) and not (optional and value is None):
            yield f"{name} is {short(value, 60)}", f"give a {record.__name__}(...){', or None for none' * optional}"
    for name in _FLAGS:
        if not isinstance(getattr(tool, name), bool):
            yield f"{name} is {short(getattr(tool, name), 60)}", "give True or False"
    for name in ("description", "source"):
        if not isinstance(getattr(tool, name), str):
            yield f"{name} is {short(getattr(tool, name), 60)}", "give a text"
    if not isinstance(tool.context_parameter, str | None):
        yield f"context_parameter is {short(tool.context_parameter, 60)}", "give the name of a parameter, or None"
    if tool.build is not None and not callable(tool.build):
        yield f"build is {short(tool.build, 60)}", "give a function, or None"
    if tool.classify is not None and (isinstance(tool.classify, type) or not callable(tool.classify)):
        yield f"classify is {short(tool.classify, 60)}", "give a function of the outcome, or None"
    if not isinstance(tool.approval, bool) and not callable(tool.approval):
        yield f"approval is a {type(tool.approval).__name__}", "give True, False or a function of the arguments"
    for name, given in (("build", "args"), ("classify", "outcome")):
        if manner := wrong_manner(getattr(tool, name), given=(given,)):
            yield f"{name} is {manner}", _PLAIN
    if manner := wrong_manner(tool.approval, awaited=True):
        yield f"approval is {manner}", "give True, False or a function of the arguments"
    if tool.where not in _PLACES:
        yield f"where is {short(tool.where, 40)}", f"give {', '.join(map(repr, _PLACES[:-1]))} or {_PLACES[-1]!r}"
    yield from _wrong_conditions(tool.post)
    yield from _wrong_figures(tool)


def _wrong_conditions(post: Any) -> Iterator[Problem]:
    if not isinstance(post, Mapping):
        yield f"post is {short(post, 60)}", "give a mapping of names to functions of the result"
        return
    for name, holds in post.items():
        if not isinstance(name, str) or not name or not callable(holds):
            yield f"post has {short(name, 40)}: {short(holds, 40)}", "give a name and a function of the result"
        elif manner := wrong_manner(holds, given=("value",)):
            yield f"post has {short(name, 40)}, which is {manner}", _PLAIN


def _wrong_figures(tool: Any) -> Iterator[Problem]:
    checks: tuple[tuple[str, str, Callable[[float], bool]], ...] = (
        ("timeout_s", "a number above 0", lambda value: value > 0 and math.isfinite(value)),
        ("max_result_bytes", "a number above 0", lambda value: value > 0 and math.isfinite(value)),
        ("cache_ttl_s", "seconds from 0", lambda value: value >= 0),
        ("negative_ttl_s", "seconds from 0", lambda value: value >= 0),
    )
    for name, wanted, holds in checks:
        value: Any = getattr(tool, name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not _holds(holds, value):
            yield f"{name} is {short(value, 40)}", f"give {wanted}, or None"


def _holds(holds: Callable[[float], bool], value: float) -> bool:
    try:
        return holds(float(value))
    except OverflowError:
        return False


def contradictions(tool: Any) -> Iterator[Problem]:
    """Fields that are of the right kind and do not go together, or say what no tool can be."""
    if not isinstance(tool.name, str) or not tool.name:
        yield "a tool's name must be a non-empty text", "give it one"
    if not callable(tool.fn):
        yield f"its body is a {type(tool.fn).__name__}", "give a function"
    yield from _unknown_names(tool)
    if (tool.cache_ttl_s or tool.negative_ttl_s) and not tool.pure:
        yield f"memory is for pure tools and this one is {tool.effect.value}", "declare effect='pure' or leave the TTL out"


def _unknown_names(tool: Any) -> Iterator[Problem]:
    """Names that secret and identity give and the contract does not have: a typo would protect nothing."""
    try:
        schema = tool.argument_schema()
        known = list(schema.get("properties", {})) if schema.get("additionalProperties") is False else None
    except Exception:
        known = None
    for what, names in (("secret", sorted(tool.secret)), ("identity", tool.identity or ())):
        for name in names:
            if known is not None and name not in known:
                yield f"{what} names the argument {short(name, 60)}, which its contract does not have", mend(name, known, "it has")
