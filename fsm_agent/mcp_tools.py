"""The tools of MCP servers, measured, bounded and guarded like a host's own; needs the extra ``mcp`` (version 2 or later).

    async with mcp_tools("http://localhost:8000/mcp") as tools:
        answer = await Agent(tools, decide).arun("...")

Arguments are measured here by the server's own schema, so what it does not name is refused and never sent. A tool's
error is ``raised:McpToolError`` with the server's text, a server that is gone ``raised:McpServerGone``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any

import attrs

from fsm_agent.core.contracts import TableArguments
from fsm_agent.core.errors import BuildError, ContractError
from fsm_agent.core.foreign_schemas import foreign_arguments
from fsm_agent.core.plain import short
from fsm_agent.core.tools import Outcome, Tool
from fsm_agent.core.values import EffectClass, ResultClass, Verdict
from fsm_agent.host.mcp_connection import Connection, McpServerGone, McpToolError, library
from fsm_agent.host.tool_forms import make_tool

__all__ = ["McpServerGone", "McpToolError", "McpTools", "join_tools", "mcp_tools"]

# No argument can have this name by accident, so the context of a call never takes the place of one.
_CONTEXT = "(the call's context)"


def mcp_tools(
    target: Any,
    *,
    prefix: str = "",
    only: Collection[str] | None = None,
    declare: Mapping[str, Mapping[str, Any]] | None = None,
    trust_hints: bool = True,
    start_s: float = 30.0,
) -> McpTools:
    """The tools of an MCP server, for ``with`` or ``async with``, which give a list of Tools.

    `target` is a server object, ``mcp.StdioServerParameters``, a URL, or a client or session that is open already (it
    stays open). `only` names the tools to take and `declare` gives fields of `Tool` by name, both as the server names
    them; `prefix` stands before every name. A tool's effect is ``pure`` where the server says it only reads,
    ``idempotent`` where it says so, else undeclared; without `trust_hints` the server's word for it is not taken.
    Connecting may take `start_s` seconds.

    Under ``async with`` the session lives in the running event loop, for `Agent.arun`. Under ``with`` it lives in a
    thread of its own, for `Agent.run` and `arun` alike. Raises MissingExtra, and BuildError where options contradict.
    """
    library()
    if not isinstance(prefix, str):
        raise BuildError(f"prefix is {short(prefix, 60)}; give a text")
    if isinstance(only, str):
        raise BuildError(f"only is the text {only!r:.60}; give a list of tool names")
    for name, fields in (declare or {}).items():
        if not isinstance(fields, Mapping):
            raise BuildError(f"declare has {short(fields, 60)} for {name!r}; give a mapping of fields of Tool")
    return McpTools(
        Connection(target, start_s), prefix, None if only is None else frozenset(only), dict(declare or {}), trust_hints
    )


@attrs.define(eq=False)
class McpTools:
    """The tools of one server, open between entering and leaving; made by `mcp_tools`.

    Entering raises McpServerGone when the server cannot be reached, BuildError for a name in `only` or `declare` that
    the server does not have, and ContractError for a tool whose schema is none.
    """

    connection: Connection
    prefix: str = ""
    only: frozenset[str] | None = None
    declare: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)
    trust_hints: bool = True

    async def __aenter__(self) -> list[Tool]:
        listed = await self.connection.open()
        try:
            return self._tools(listed)
        except BaseException:
            await self.connection.close()
            raise

    async def __aexit__(self, *_: object) -> None:
        await self.connection.close()

    def __enter__(self) -> list[Tool]:
        listed = self.connection.open_in_thread()
        try:
            return self._tools(listed)
        except BaseException:
            self.connection.close_thread()
            raise

    def __exit__(self, *_: object) -> None:
        self.connection.close_thread()

    def _tools(self, listed: list[Any]) -> list[Tool]:
        names = [one.name for one in listed]
        for what, wanted in (("only", self.only or ()), ("declare", self.declare)):
            for name in wanted:
                if name not in names:
                    have = ", ".join(names) or "none"
                    raise BuildError(f"{what} names {name!r}, which is no tool of the server; it has {have}")
        return [self._tool(one) for one in listed if self.only is None or one.name in self.only]

    def _tool(self, listed: Any) -> Tool:
        declared = dict(self.declare.get(listed.name, {}))
        name = declared.pop("name", self.prefix + listed.name)
        fields: dict[str, Any] = {
            "description": listed.description or listed.title or "",
            "effect": self._effect(listed.annotations),
            "context_parameter": _CONTEXT,
            "classify": _says_nothing if _is_wrapped(listed.output_schema) else None,
            **declared,
        }
        if "args" in declared:
            # None would make the contract be read from the body's signature, which says nothing.
            fields["args"] = TableArguments(None) if declared["args"] is None else declared["args"]
        else:
            try:
                fields["args"] = foreign_arguments(listed.input_schema, name, deep=True)
            except ContractError as error:
                raise ContractError(
                    f"{error}; the schema is the server's: leave the tool out with only=, or give declare= its own args"
                ) from error
        return make_tool(_body(self.connection, listed.name), name=name, **fields)

    def _effect(self, hints: Any) -> EffectClass:
        if hints is None or not self.trust_hints:
            return EffectClass.UNDECLARED
        if hints.read_only_hint:
            return EffectClass.PURE
        return EffectClass.IDEMPOTENT if hints.idempotent_hint else EffectClass.UNDECLARED


def join_tools(servers: Mapping[str, Iterable[Tool]]) -> list[Tool]:
    """The tools of several servers in one list; raises BuildError, naming both servers, where two have one name."""
    owners: dict[str, str] = {}
    joined: list[Tool] = []
    for server, tools in servers.items():
        for tool in tools:
            owner = owners.setdefault(tool.name, server)
            if owner != server:
                raise BuildError(
                    f"the servers {owner!r} and {server!r} both have a tool {tool.name!r};"
                    " give one of them a prefix=, or leave it out with only="
                )
            joined.append(tool)
    return joined


def _body(connection: Connection, name: str) -> Callable[..., Awaitable[Any]]:
    async def body(**given: Any) -> Any:
        context = given.pop(_CONTEXT)
        return read_result(await connection.call(name, given, context.left_s))

    return body


def read_result(result: Any) -> Any:
    """A server's result as a plain value: its structured content, else its one text, else a list of its parts.

    Images, sounds and resources are mappings with their ``type``, ``mime_type`` and base64 ``data`` (or ``text``). A
    result without content is None. Raises McpToolError for one that is an error, with its texts.
    """
    if result.is_error:
        texts = [part.text for part in result.content if part.type == "text"]
        raise McpToolError("\n".join(texts) or "the tool reported an error without a text")
    if result.structured_content is not None:
        return result.structured_content
    parts = [_part(part) for part in result.content]
    return parts[0] if len(parts) == 1 else parts or None


def _part(part: Any) -> Any:
    if part.type == "text":
        return part.text
    return part.model_dump(mode="json", exclude_none=True, exclude={"annotations", "meta"})


def _is_wrapped(schema: Any) -> bool:
    """True where the server puts a value that is no object under the key ``result``, as the package's own do."""
    return isinstance(schema, Mapping) and list(schema.get("properties") or ()) == ["result"]


def _says_nothing(outcome: Outcome) -> Verdict | None:
    # The value itself is judged like any other: an empty list in its wrapping is an empty result.
    if outcome.error or not isinstance(outcome.value, Mapping):
        return None
    value = outcome.value.get("result")
    nothing = value is None or value == [] or (isinstance(value, str) and not value.strip())
    return Verdict(result_class=ResultClass.EMPTY, reason="the result is empty") if nothing else None
