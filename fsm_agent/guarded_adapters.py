"""A session's tools as the tool objects of other frameworks, each with the contract's own JSON Schema.

A framework is imported when its adapter is used. Whatever becomes of a call is handed on as a text and never raised, so
the framework's own retries do not hide it; ``stopped:<reason>`` tells its model that no further call is made.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from typing import Any

from fsm_agent.core.errors import MissingExtra
from fsm_agent.core.tools import Tool
from fsm_agent.guarded_functions import Calls


def pydantic_ai_tools(session: Calls) -> list[Any]:
    """The tools for ``pydantic_ai.Agent(tools=...)``; MissingExtra without the package."""
    library = _library("pydantic_ai", "pydantic-ai-slim", "pydantic-ai", "a session's tools for Pydantic AI")

    def made(tool: Tool) -> Any:
        return library.Tool.from_schema(
            _by_name(session, tool.name), name=tool.name, description=tool.description, json_schema=tool.argument_schema()
        )

    return [made(tool) for tool in session.tools]


def openai_agents_tools(session: Calls) -> list[Any]:
    """The tools for the ``tools`` of an agent of the OpenAI Agents SDK; MissingExtra without the package."""
    library = _library("agents", "openai-agents", "openai-agents", "a session's tools for the OpenAI Agents SDK")

    def made(tool: Tool) -> Any:
        async def invoke(_: Any, text: str) -> str:
            return (await session.acall(tool.name, text)).text

        return library.FunctionTool(
            name=tool.name,
            description=tool.description,
            params_json_schema=tool.argument_schema(),
            on_invoke_tool=invoke,
            # The strict mode of that provider would rewrite the schema, and what it refuses is refused here anyway.
            strict_json_schema=False,
        )

    return [made(tool) for tool in session.tools]


def langchain_tools(session: Calls) -> list[Any]:
    """The tools for ``bind_tools`` and agents of LangChain; MissingExtra without the package."""
    library = _library("langchain_core.tools", "langchain-core", "langchain", "a session's tools for LangChain")

    def made(tool: Tool) -> Any:
        def call(**args: Any) -> str:
            return session.call(tool.name, args).text

        return library.StructuredTool(
            name=tool.name,
            description=tool.description,
            args_schema=tool.argument_schema(),
            func=call,
            coroutine=_by_name(session, tool.name),
        )

    return [made(tool) for tool in session.tools]


def _by_name(session: Calls, name: str) -> Callable[..., Awaitable[str]]:
    async def call(**args: Any) -> str:
        return (await session.acall(name, args)).text

    return call


def _library(module: str, package: str, extra: str, purpose: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtra(package, extra, purpose) from None
