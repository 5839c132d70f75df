"""Tools looked up in a live table: entries may be replaced, edited, added and removed while runs go on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from fsm_agent.core.errors import FsmAgentError
from fsm_agent.core.tools import Tool
from fsm_agent.host.tool_forms import DECLARED, arguments_form, result_form


class LiveTools:
    """A toolbox over ``{name: {"fn", "args", "returns", ...}}``; contracts in table form are read anew at each call.

    An entry that makes no tool (no mapping, no function, contradictions) is no tool: its name is unknown. Tools are pure
    unless their entry declares an effect.
    """

    def __init__(self, entries: Mapping[str, Any]) -> None:
        self._entries = entries
        self._made: dict[str, tuple[Any, Any, Any, Any, Tool | None]] = {}

    def get(self, name: Any) -> Tool | None:
        """The tool of that name as its entry stands now, or None."""
        if type(name) is not str:
            return None
        entry = self._entries.get(name)
        if type(entry) is not dict and not isinstance(entry, Mapping):
            return None
        get = entry.get
        made, fn, args, returns = self._made.get(name), get("fn"), get("args"), get("returns")
        if made is not None and made[1] is fn and made[2] is args and made[3] is returns and made[0] is entry:
            return made[4]
        tool = _tool_of(name, entry)
        self._made[name] = (entry, fn, args, returns, tool)
        return tool

    def names(self) -> Collection[str]:
        """The names of the entries."""
        return [name for name in self._entries if isinstance(name, str)]

    def argument_names(self, name: Any) -> Iterable[str] | None:
        """The arguments that a tool's contract knows, or None when there is no such tool or it has no contract."""
        entry = self._entries.get(name) if type(name) is str else None
        args = entry.get("args") if isinstance(entry, dict) else None
        if not isinstance(args, dict):
            return None
        if isinstance(args.get("type"), str):
            return list(args.get("properties") or ())
        return args


def _tool_of(name: str, entry: Mapping[str, Any]) -> Tool | None:
    declared = {key: value for key, value in entry.items() if key in DECLARED}
    try:
        return Tool(
            name=name,
            fn=entry.get("fn"),  # type: ignore[arg-type]
            args=arguments_form(entry.get("args")),
            returns=result_form(entry.get("returns")),
            **{"effect": "pure", "breaker": None, **declared},
        )
    except (FsmAgentError, TypeError, ValueError):
        return None

