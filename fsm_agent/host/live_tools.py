"""Tools looked up in a live table: entries may be replaced, edited, added and removed while runs go on."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import attrs

from fsm_agent.core.contracts import ArgumentsContract
from fsm_agent.core.errors import FsmAgentError
from fsm_agent.core.tools import Tool
from fsm_agent.host.tool_forms import DECLARED, arguments_form, is_schema, result_form

_ALL = frozenset({"fn", "args", "returns"})


@attrs.frozen
class _Made:
    """A tool with what it was made of; `plain` says of a dict that nothing but the three commonest keys counts."""

    entry: Any
    fn: Any
    args: Any
    returns: Any
    size: int
    plain: bool
    rest: Any
    tool: Tool | None


class LiveTools:
    """A toolbox over ``{name: {"fn", "args", "returns", ...}}``; contracts in table form are read anew at each call.

    A machine over it may name tools that are not there yet: no name is refused when it is built.

    An entry that makes no tool (no mapping, contradictions) is no tool: its name is unknown. One without a function is
    measured like any other and fails when it is called. Tools are pure unless their entry declares an effect.
    """

    def __init__(self, entries: Mapping[str, Any]) -> None:
        self._entries = entries
        self._made: dict[str, _Made] = {}

    def get(self, name: Any) -> Tool | None:
        """The tool of that name as its entry stands now, or None."""
        if type(name) is not str:
            return None
        entry, made = self._entries.get(name), self._made.get(name)
        if made is not None and made.plain and made.entry is entry and len(entry) == 3:
            try:
                if entry["fn"] is made.fn and entry["args"] is made.args and entry["returns"] is made.returns:
                    return made.tool
            except KeyError:
                pass
        if type(entry) is not dict and not isinstance(entry, Mapping):
            return None
        get = entry.get
        fn, args, returns = get("fn"), get("args"), get("returns")
        if (
            made is not None
            and made.fn is fn
            and made.args is args
            and made.returns is returns
            and made.entry is entry
            and made.size == len(entry)
            and (made.rest is None or _same(made.rest, entry))
        ):
            return made.tool
        tool, rest = _tool_of(name, entry), _rest(entry)
        self._made[name] = _Made(entry, fn, args, returns, len(entry), type(entry) is dict and rest is None, rest, tool)
        return tool

    def names(self) -> Collection[str]:
        """The names of the entries."""
        return [name for name in self._entries if isinstance(name, str)]

    def argument_names(self, name: Any) -> Iterable[str] | None:
        """The arguments that a tool's contract knows, or None when there is no such tool or it has no contract."""
        entry = self._entries.get(name) if type(name) is str else None
        if entry is None:
            return None
        args = entry.get("args") if type(entry) is dict or isinstance(entry, Mapping) else None
        if type(args) is not dict and not isinstance(args, Mapping):
            if not isinstance(args, ArgumentsContract):
                return None
            args = args.json_schema()
        if type(args.get("type")) is str:
            return list(args.get("properties") or ())
        return args


def _rest(entry: Mapping[str, Any]) -> Any:
    """A copy of what an entry is made of beside its function and tables; None where there is nothing else."""
    schemas = [form for form in (entry.get("args"), entry.get("returns")) if is_schema(form)]
    if not schemas and entry.keys() == _ALL:
        return None
    declared = {key: value for key, value in entry.items() if key not in _ALL}
    for key, value in declared.items():
        if isinstance(value, list | set | dict):
            declared[key] = value.copy()
    return declared, copy.deepcopy(schemas)


def _same(rest: Any, entry: Mapping[str, Any]) -> bool:
    try:
        return bool(rest == _rest(entry))
    except Exception:
        # What cannot be compared is made anew.
        return False


def _tool_of(name: str, entry: Mapping[str, Any]) -> Tool | None:
    declared = {key: value for key, value in entry.items() if key in DECLARED}
    fn = entry.get("fn")
    if not callable(fn):
        fn = declared["build"] = _no_function
    try:
        return Tool(
            name=name,
            fn=fn,
            args=arguments_form(entry.get("args")),
            returns=result_form(entry.get("returns"), empty_ok=bool(entry.get("empty_ok", False))),
            **{"effect": "pure", "breaker": None, **declared},
        )
    except (FsmAgentError, TypeError, ValueError, AttributeError):
        return None


def _no_function(args: Any) -> Any:
    raise TypeError("the tool's entry has no function under 'fn'")
