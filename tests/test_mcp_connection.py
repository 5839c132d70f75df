from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from fsm_agent.core.errors import BuildError, RunError
from fsm_agent.host import mcp_connection
from fsm_agent.host.mcp_connection import Connection, McpServerGone, McpToolError
from fsm_agent.mcp_tools import mcp_tools

mcp = pytest.importorskip("mcp", reason='no MCP SDK; pip install "fsm-agent[mcp]"')
pytest.importorskip("jsonschema", reason='no JSON Schema; pip install "fsm-agent[jsonschema]"')

from mcp.server import Server  # noqa: E402
from mcp.types import CallToolResult, ListToolsResult, TextContent, Tool  # noqa: E402
from mcp_server import server  # noqa: E402

PAGES = {None: (["a", "b"], "1"), "1": (["c"], "2"), "2": (["d"], None)}


def listed(name: str, **more: Any) -> Tool:
    return Tool(name=name, input_schema={"type": "object"}, **more)


def paged(pages: Any = PAGES) -> Server[Any]:
    async def list_tools(_: Any, params: Any) -> ListToolsResult:
        names, following = pages(params.cursor) if callable(pages) else pages[params.cursor if params else None]
        return ListToolsResult(tools=[listed(name) for name in names], next_cursor=following)

    return Server("paged", on_list_tools=list_tools)


def answering(result: Any, **more: Any) -> Server[Any]:
    async def list_tools(_: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[listed("t", **more)])

    async def call_tool(_: Any, params: Any) -> Any:
        return await result() if callable(result) else result

    return Server("answering", on_list_tools=list_tools, on_call_tool=call_tool)


def called(target: Any, left_s: float | None = 5.0) -> Any:
    async def main() -> Any:
        connection = Connection(target)
        await connection.open()
        try:
            return await connection.call("t", {}, left_s)
        finally:
            await connection.close()

    return asyncio.run(main())


def test_every_page_of_the_list_is_read_by_a_client_and_by_a_session() -> None:
    async def main() -> None:
        async with mcp.Client(paged()) as client:
            for target in (client, client.session):
                connection = Connection(target)
                assert [tool.name for tool in await connection.open()] == ["a", "b", "c", "d"]
                await connection.close()

    asyncio.run(main())


def test_a_list_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_connection, "_MOST_PAGES", 5)
    endless = paged(lambda cursor: (["a"], str(int(cursor or 0) + 1)))
    with pytest.raises(McpServerGone, match="more than 5 pages"):
        asyncio.run(Connection(endless).open())


def test_a_page_that_names_itself_as_the_next_is_the_last() -> None:
    again = paged(lambda cursor: (["a"], "same"))
    assert len(asyncio.run(Connection(again).open())) == 2


def test_an_address_where_nobody_listens_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(McpServerGone, match="could not be reached"), mcp_tools(f"http://127.0.0.1:{port}/mcp"):
        pytest.fail("it was opened")  # pragma: no cover


def test_wrong_options_close_an_async_connection_again() -> None:
    async def main() -> None:
        tools = mcp_tools(server(), only=["ad"])
        for _ in range(2):
            with pytest.raises(BuildError, match="only names 'ad'"):
                async with tools:
                    pytest.fail("it was opened")  # pragma: no cover
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


def test_stopping_to_wait_for_the_opening_leaves_nothing_behind() -> None:
    async def never(_: Any, params: Any) -> ListToolsResult:
        await asyncio.sleep(60)
        raise AssertionError  # pragma: no cover

    async def main() -> None:
        connection = Connection(Server("slow", on_list_tools=never))
        opening = asyncio.create_task(connection.open())
        await asyncio.sleep(0.01)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_a_result_that_breaks_the_servers_own_schema_is_an_error_of_the_tool() -> None:
    broken = CallToolResult(content=[], structured_content={"n": "one"})
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    with pytest.raises(McpToolError, match="one"):
        called(answering(broken, output_schema=schema))


def test_a_timeout_of_the_clients_own_is_a_timeout() -> None:
    async def slow() -> Any:
        await asyncio.sleep(60)

    with pytest.raises(TimeoutError):
        called(mcp.Client(answering(slow), read_timeout_seconds=0.05))
    with pytest.raises(TimeoutError, match=r"did not answer in 0\.05 s"):
        called(answering(slow), 0.05)


def test_a_connection_that_breaks_during_a_call_is_gone() -> None:
    class Broken(mcp.Client):  # type: ignore[name-defined, misc]
        async def call_tool(self, *_: Any, **__: Any) -> Any:
            raise ConnectionResetError("reset by peer")

    with pytest.raises(McpServerGone, match="ConnectionResetError: reset by peer"):
        called(Broken(answering(CallToolResult(content=[]))))


def test_an_error_without_a_text_is_told_by_its_name() -> None:
    class Broken(mcp.Client):  # type: ignore[name-defined, misc]
        async def call_tool(self, *_: Any, **__: Any) -> Any:
            raise KeyError

    with pytest.raises(McpToolError, match="KeyError"):
        called(Broken(answering(CallToolResult(content=[]))))


def test_a_connection_is_opened_once_and_closed_as_often_as_one_likes() -> None:
    async def main() -> None:
        connection = Connection(answering(CallToolResult(content=[TextContent(text="hi")])))
        await connection.close()
        await connection.open()
        with pytest.raises(RunError, match="open already"):
            await connection.open()
        assert (await connection.call("t", {}, None)).content[0].text == "hi"
        await connection.close()
        await connection.close()
        connection.close_thread()
        with pytest.raises(McpServerGone):
            await connection.call("t", {}, None)

    asyncio.run(main())
