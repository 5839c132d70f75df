"""Tools looked up in a live table: entries may be replaced, edited, added and removed while runs go on."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Any

import attrs

from fsm_agent.core.contracts import ArgumentsContract
from fsm_agent.core.errors import FsmAgentError
from fsm_agent.core.tools import Tool
from fsm_agent.host.tool_forms import DECLARED, arguments_form, is_schema, result_form

_ALL = ("fn", "args", "returns")


@attrs.frozen
class _Made:
    """A tool with what it was made of.

    `looks` are the keys of its entry and the identities of what stood under them; `held` is that itself, for an identity says
    something of what lives alone. `rest` is a copy of what may be edited in its place and is not read anew at each call. `usual` is
    true of an entry of a function and two tables and nothing else, which is looked at more quickly.
    """

    looks: tuple[Any, ...]
    held: list[Any]
    rest: Any
    tool: Tool | None
    usual: bool


class LiveTools:
    """A toolbox over ``{name: {"fn", "args", "returns", ...}}``; contracts in table form are read anew at each call.

    A machine over it may name tools that are not there yet: no name is refused when it is built.

    An entry that makes no tool (no mapping, one that cannot be read, contradictions) is no tool: its name is unknown. One
    without a function is measured like any other and fails when it is called. Tools are pure unless their entry declares an
    effect.
    """

    def __init__(self, entries: Mapping[str, Any]) -> None:
        self._entries = entries
        self._made: dict[str, _Made] = {}

    def get(self, name: Any) -> Tool | None:
        """The tool of that name as its entry stands now, or None; never raises."""
        try:
            if type(name) is not str and (name := _text(name)) is None:
                return None
            entry: Any = self._entries.get(name)
            made = self._made.get(name)
            if made is not None and made.usual and len(entry) == 3:
                fn, args, returns = made.held
                if entry.get("fn") is fn and entry.get("args") is args and entry.get("returns") is returns:
                    return made.tool
            if made is None or made.looks != (*entry, *map(id, entry.values())):
                return self._make(name, entry)
            return made.tool if made.rest is None or _same(made.rest, entry) else self._make(name, entry)
        except Exception:
            # A table or an entry that cannot be read holds no tool.
            return None

    def _make(self, name: str, entry: Any) -> Tool | None:
        if type(entry) is not dict and not isinstance(entry, Mapping):
            return None
        held, rest = [*entry.values()], _rest(entry)
        usual = type(entry) is dict and (*entry,) == _ALL and all(part is not None for part in held) and rest is None
        made = self._made[name] = _Made((*entry, *map(id, held)), held, rest, _tool_of(name, entry), usual)
        return made.tool

    def names(self) -> Collection[str]:
        """The names of the entries; none where they cannot be read."""
        try:
            return [text for name in self._entries if (text := _text(name)) is not None]
        except Exception:
            return []

    def argument_names(self, name: Any) -> list[str] | None:
        """The arguments that a tool's contract knows, or None when there is no such tool or it has no contract."""
        try:
            if type(name) is not str and (name := _text(name)) is None:
                return None
            entry: Any = self._entries.get(name)
            if entry is None:
                return None
            args = entry.get("args") if type(entry) is dict or isinstance(entry, Mapping) else None
            if type(args) is not dict and not isinstance(args, Mapping):
                if not isinstance(args, ArgumentsContract):
                    return None
                args = args.json_schema()
            # A copy: the contract may be edited while somebody goes through its names.
            return list(args.get("properties") or ()) if type(args.get("type")) is str else list(args)
        except Exception:
            return None


def _text(name: object) -> str | None:
    """The text of a name, also of one of a class of its own, such as a member of an enum; None for what is no text."""
    return str.__str__(name) if issubclass(type(name), str) else None


def _rest(entry: Mapping[str, Any]) -> Any:
    """A copy of what an entry holds that may be edited in its place, its function and tables aside; None where that is nothing."""
    schemas = [form for form in (entry.get("args"), entry.get("returns")) if is_schema(form)]
    declared = {key: value.copy() for key, value in entry.items() if key not in _ALL and isinstance(value, list | set | dict)}
    return (declared, copy.deepcopy(schemas)) if declared or schemas else None


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
