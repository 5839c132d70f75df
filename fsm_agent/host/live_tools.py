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

_ALL = frozenset({"fn", "args", "returns"})


@attrs.frozen
class _Made:
    """A tool with what it was made of."""

    entry: Any
    fn: Any
    args: Any
    returns: Any
    size: int
    rest: Any
    tool: Tool | None


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
        # The tools of entries in which nothing but the three commonest keys counts, with the entry and what it held.
        self._plain: dict[str, tuple[dict[str, Any], Any, Any, Any, Tool | None]] = {}

    def get(self, name: Any) -> Tool | None:
        """The tool of that name as its entry stands now, or None; never raises."""
        try:
            if type(name) is not str and (name := _text(name)) is None:
                return None
            entry, known = self._entries.get(name), self._plain.get(name)
            if known is not None:
                plain, fn, args, returns, tool = known
                if entry is plain and len(plain) == 3:
                    try:
                        if plain["fn"] is fn and plain["args"] is args and plain["returns"] is returns:
                            return tool
                    except KeyError:
                        pass
            return self._looked_at(name, entry, self._made.get(name))
        except Exception:
            # A table or an entry that cannot be read holds no tool.
            return None

    def _looked_at(self, name: str, entry: Any, made: _Made | None) -> Tool | None:
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
        self._made[name] = _Made(entry, fn, args, returns, len(entry), rest, tool)
        if type(entry) is dict and rest is None:
            self._plain[name] = (entry, fn, args, returns, tool)
        else:
            self._plain.pop(name, None)
        return tool

    def names(self) -> Collection[str]:
        """The names of the entries; none where they cannot be read."""
        try:
            return [text for name in self._entries if (text := _text(name)) is not None]
        except Exception:
            return []

    def argument_names(self, name: Any) -> list[str] | None:
        """The arguments that a tool's contract knows, or None when there is no such tool or it has no contract."""
        try:
            text = name if type(name) is str else _text(name)
            entry = None if text is None else self._entries.get(text)
            # A copy: the contract may be edited while somebody goes through its names.
            return None if entry is None else _argument_names(entry)
        except Exception:
            return None


def _text(name: object) -> str | None:
    """The text of a name, also of one of a class of its own, such as a member of an enum; None for what is no text."""
    return str.__str__(name) if issubclass(type(name), str) else None


def _argument_names(entry: Any) -> list[str] | None:
    args = entry.get("args") if type(entry) is dict or isinstance(entry, Mapping) else None
    if type(args) is not dict and not isinstance(args, Mapping):
        if not isinstance(args, ArgumentsContract):
            return None
        args = args.json_schema()
    return list(args.get("properties") or ()) if type(args.get("type")) is str else list(args)


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
