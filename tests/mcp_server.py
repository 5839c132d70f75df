"""A small MCP server for the tests: in memory as `server()`, as a process over its pipes, or over HTTP at a given port."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from mcp.server import MCPServer
from mcp.types import ToolAnnotations
from mcp_types import CallToolResult, ImageContent, TextContent
from pydantic import BaseModel


class Item(BaseModel):
    sku: str
    count: int = 1


def server(calls: list[Any] | None = None) -> MCPServer[Any]:
    """A server whose tools note in `calls` what reached them."""
    reached = calls if calls is not None else []
    made = MCPServer("shop", log_level="CRITICAL")

    @made.tool(annotations=ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int = 3) -> int:
        """Add two whole numbers."""
        reached.append(("add", a, b))
        return a + b

    @made.tool(annotations=ToolAnnotations(idempotent_hint=True))
    def put(item: Item) -> Item:
        """Put an item into the cart."""
        reached.append(("put", item))
        return item

    @made.tool()
    def find(word: str) -> list[str]:
        """Find what has the word in its name."""
        reached.append(("find", word))
        return [one for one in ("red shoe", "blue shoe") if word in one]

    @made.tool()
    def broken() -> CallToolResult:
        return CallToolResult(content=[TextContent(text="no such order"), TextContent(text="try 7")], is_error=True)

    @made.tool()
    def silent() -> CallToolResult:
        return CallToolResult(content=[], is_error=True)

    @made.tool(structured_output=False)
    def texts(count: int) -> list[Any]:
        return [f"text {number}" for number in range(count)]

    @made.tool()
    def picture() -> CallToolResult:
        return CallToolResult(content=[TextContent(text="a dot"), ImageContent(data="aGk=", mime_type="image/png")])

    @made.tool()
    async def slow(seconds: float) -> str:
        reached.append(("slow", "begun"))
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            reached.append(("slow", "cancelled"))
            raise
        return "done"

    @made.tool()
    def process() -> int:
        return os.getpid()

    @made.tool()
    def die() -> None:
        os._exit(3)

    return made


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server().run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server().run()
