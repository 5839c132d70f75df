from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import attrs
import pytest

from fsm_agent import Agent, Limits, ToolCall
from fsm_agent.core.errors import BuildError, ContractError, MissingExtra, RunError
from fsm_agent.core.run import Call
from fsm_agent.core.saving import load, save
from fsm_agent.core.tools import Tool
from fsm_agent.core.values import EffectClass, ResultClass
from fsm_agent.host import mcp_connection
from fsm_agent.host.mcp_connection import Connection
from fsm_agent.mcp_tools import McpServerGone, McpToolError, join_tools, mcp_tools, read_result

mcp = pytest.importorskip("mcp", reason='no MCP SDK; pip install "fsm-agent[mcp]"')
pytest.importorskip("jsonschema", reason='no JSON Schema; pip install "fsm-agent[jsonschema]"')

from mcp_server import server  # noqa: E402

COMMAND = [sys.executable, str(Path(__file__).with_name("mcp_server.py"))]
STDIO = mcp.StdioServerParameters(command=COMMAND[0], args=COMMAND[1:])


def calling(*calls: tuple[str, dict[str, Any]]) -> Any:
    """A decider that makes these calls, one a turn, and then ends."""
    left = [ToolCall(tool, args) for tool, args in calls]
    return lambda ask: left.pop(0) if left else "done"


def calls_of(answer: Any) -> list[Call]:
    assert answer.run is not None
    return list(answer.run.calls)


def only_call(tools: list[Tool], tool: str, args: dict[str, Any], **more: Any) -> Call:
    return calls_of(Agent(tools, calling((tool, args)), **more).run("go"))[0]


async def aonly_call(tools: list[Tool], tool: str, args: dict[str, Any], **more: Any) -> Call:
    return calls_of(await Agent(tools, calling((tool, args)), **more).arun("go"))[0]


def named(tools: list[Tool], name: str) -> Tool:
    return next(tool for tool in tools if tool.name == name)


def test_a_server_in_memory_gives_tools_that_an_async_run_uses() -> None:
    calls: list[Any] = []

    async def main() -> Any:
        async with mcp_tools(server(calls)) as tools:
            assert named(tools, "add").description == "Add two whole numbers."
            return await Agent(tools, calling(("add", {"a": 1}), ("find", {"word": "red"}))).arun("go")

    answer = asyncio.run(main())
    assert [call.value for call in calls_of(answer)] == [{"result": 4}, {"result": ["red shoe"]}]
    assert calls == [("add", 1, 3), ("find", "red")]
    assert answer.text == "done"


def test_a_server_in_memory_serves_sync_runs_under_a_plain_with() -> None:
    with mcp_tools(server()) as tools:
        assert only_call(tools, "add", {"a": 2, "b": 2}).value == {"result": 4}
        assert asyncio.run(aonly_call(tools, "add", {"a": 1, "b": 1})).value == {"result": 2}


def test_a_real_process_serves_both_kinds_of_runs() -> None:
    with mcp_tools(STDIO) as tools:
        first = only_call(tools, "process", {}).value["result"]
        assert first != os.getpid()
        assert asyncio.run(aonly_call(tools, "process", {})).value == {"result": first}
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)


def test_a_run_over_a_real_process_can_be_saved_and_loaded() -> None:
    async def main() -> None:
        async with mcp_tools(STDIO) as tools:
            agent = Agent(tools, calling(("put", {"item": {"sku": "a"}}), ("picture", {})))
            answer = await agent.arun("go")
            assert answer.run is not None
            again = load(save(answer.run), agent.engine.setup)
            assert [call.value for call in again.calls] == [call.value for call in answer.run.calls]
            assert again.calls[0].value == {"sku": "a", "count": 1}

    asyncio.run(main())


@pytest.mark.parametrize(
    ("tool", "args", "reason"),
    [
        ("add", {"a": 1, "c": 2}, "args:extra:c"),
        ("add", {"a": "1"}, "args:type:a"),
        ("add", {"a": 1.0}, "args:type:a"),
        ("add", {}, "args:missing:a"),
        ("put", {"item": {"sku": "a", "price": 2}}, "args:extra:item"),
    ],
)
def test_what_the_schema_does_not_take_never_reaches_the_server(tool: str, args: dict[str, Any], reason: str) -> None:
    calls: list[Any] = []
    with mcp_tools(server(calls)) as tools:
        call = only_call(tools, tool, args)
    assert (call.error, call.body_runs, calls) == (reason, 0, [])


def test_a_tool_that_reports_an_error_is_a_failed_body_with_the_servers_text() -> None:
    with mcp_tools(server()) as tools:
        call = only_call(tools, "broken", {})
        assert (call.error, call.detail, call.body_runs) == ("raised:McpToolError", "no such order\ntry 7", 1)
        assert only_call(tools, "silent", {}).detail == "the tool reported an error without a text"


def test_a_tool_that_the_server_lost_is_a_failed_body() -> None:
    made = server()
    with mcp_tools(made) as tools:
        made.remove_tool("add")
        call = only_call(tools, "add", {"a": 1})
    assert (call.error, "add" in call.detail) == ("raised:McpToolError", True)


def test_several_texts_are_a_list_one_is_a_text_and_none_is_null() -> None:
    with mcp_tools(server()) as tools:
        values = [only_call(tools, "texts", {"count": count}).value for count in (0, 1, 2)]
    assert values == [None, "text 0", ["text 0", "text 1"]]


def test_an_image_is_a_plain_mapping() -> None:
    with mcp_tools(server()) as tools:
        value = only_call(tools, "picture", {}).value
    assert value == ["a dot", {"type": "image", "mime_type": "image/png", "data": "aGk="}]
    assert json.loads(json.dumps(value)) == value


def test_a_resource_and_a_link_are_plain_mappings() -> None:
    from mcp.types import BlobResourceContents, CallToolResult, EmbeddedResource, ResourceLink

    blob = BlobResourceContents(uri="file:///a", blob="aGk=", mime_type="text/plain")
    link = ResourceLink(uri="file:///b", name="b")
    assert read_result(CallToolResult(content=[EmbeddedResource(resource=blob), link])) == [
        {"type": "resource", "resource": {"uri": "file:///a", "blob": "aGk=", "mime_type": "text/plain"}},
        {"type": "resource_link", "uri": "file:///b", "name": "b"},
    ]


def test_an_empty_list_in_its_wrapping_is_an_empty_result() -> None:
    with mcp_tools(server()) as tools:
        call = only_call(tools, "find", {"word": "green"})
        assert (call.ok, call.value, call.result_class) == (True, {"result": []}, ResultClass.EMPTY)
        assert only_call(tools, "find", {"word": "red"}).result_class is ResultClass.OK


def test_the_servers_hints_are_the_effects_unless_they_are_not_trusted_or_declared_otherwise() -> None:
    def effects(**options: Any) -> list[str]:
        with mcp_tools(server(), only=["add", "put", "find"], **options) as tools:
            return [tool.effect.value for tool in tools]

    assert effects() == ["pure", "idempotent", "undeclared"]
    assert effects(trust_hints=False) == ["undeclared", "undeclared", "undeclared"]
    declared = {"add": {"effect": "at_most_once"}, "find": {"effect": EffectClass.PURE, "timeout_s": 5}}
    assert effects(declare=declared) == ["at_most_once", "idempotent", "pure"]


def test_declared_fields_reach_the_tool() -> None:
    own = {"a": {"type": "int", "max": 5}}
    declare = {"add": {"timeout_s": 5, "name": "plus", "args": own, "description": "Adds."}}
    with mcp_tools(server(), prefix="shop_", only=["add", "put"], declare=declare) as tools:
        assert [tool.name for tool in tools] == ["plus", "shop_put"]
        assert (tools[0].timeout_s, tools[0].description) == (5, "Adds.")
        assert only_call(tools, "plus", {"a": 6}).error == "args:range:a"
        assert only_call(tools, "plus", {"a": 5}).value == {"result": 8}
        assert only_call(tools, "shop_put", {"item": {"sku": "b"}}).value == {"sku": "b", "count": 1}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"only": ["ad"]}, "only names 'ad', which is no tool of the server; it has add, put"),
        ({"declare": {"ad": {}}}, "declare names 'ad'"),
        ({"declare": {"add": {"effekt": "pure"}}}, "there is no field 'effekt'"),
        ({"declare": {"add": 3}}, "give a mapping of fields of Tool"),
        ({"only": "add"}, "give a list of tool names"),
        ({"prefix": 3}, "prefix is 3; give a text"),
    ],
)
def test_wrong_options_are_refused_with_what_would_do(options: dict[str, Any], told: str) -> None:
    with pytest.raises(BuildError, match=told), mcp_tools(server(), **options):
        pytest.fail("it was opened")  # pragma: no cover


@pytest.mark.parametrize("target", ["uvx shop", 7, None])
def test_what_is_no_server_is_refused_with_what_would_do(target: Any) -> None:
    with pytest.raises(BuildError, match="StdioServerParameters"), mcp_tools(target):
        pytest.fail("it was opened")  # pragma: no cover


def test_a_server_that_cannot_be_reached_is_told_once() -> None:
    nobody = mcp.StdioServerParameters(command="/nowhere/to/be/found")
    with pytest.raises(McpServerGone, match="could not be reached"), mcp_tools(nobody):
        pytest.fail("it was opened")  # pragma: no cover


def test_a_server_that_never_answers_is_given_up_in_time() -> None:
    mute = mcp.StdioServerParameters(command=sys.executable, args=["-c", "import sys; sys.stdin.read()"])

    async def main() -> None:
        with pytest.raises(McpServerGone, match=r"did not answer in 0\.3 s; give start_s="):
            async with mcp_tools(mute, start_s=0.3):
                pytest.fail("it was opened")  # pragma: no cover

    asyncio.run(main())


def test_a_process_killed_in_the_middle_is_a_failed_call_and_not_a_hang() -> None:
    async def main() -> Call:
        async with mcp_tools(STDIO) as tools:
            known = await aonly_call(tools, "process", {})
            begun = asyncio.create_task(aonly_call(tools, "slow", {"seconds": 60}))
            await asyncio.sleep(0.005)
            os.kill(known.value["result"], signal.SIGKILL)
            lost = await asyncio.wait_for(begun, 10)
            assert (await aonly_call(tools, "add", {"a": 1})).error == "raised:McpServerGone"
            return lost

    assert asyncio.run(main()).error == "raised:McpServerGone"


def test_a_process_that_ends_during_its_own_call_is_a_failed_call_in_a_sync_run() -> None:
    began = time.monotonic()
    with mcp_tools(STDIO) as tools:
        assert only_call(tools, "die", {}).error == "raised:McpServerGone"
    assert time.monotonic() - began < 15


def test_a_url_is_served_over_http_and_a_server_that_is_killed_there_is_a_failed_call() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen([*COMMAND, str(port)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(2000):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.005)
        with mcp_tools(f"http://127.0.0.1:{port}/mcp") as tools:
            assert only_call(tools, "add", {"a": 1}).value == {"result": 4}
            process.kill()
            process.wait()
            call = only_call(tools, "add", {"a": 1})
    finally:
        process.kill()
        process.wait()
    assert call.error == "raised:McpServerGone"


def test_a_call_after_the_connection_was_closed_is_a_failed_call() -> None:
    with mcp_tools(server()) as tools:
        pass
    assert only_call(tools, "add", {"a": 1}).error == "raised:McpServerGone"

    async def main() -> Call:
        async with mcp_tools(server()) as tools:
            pass
        return await aonly_call(tools, "add", {"a": 1})

    assert asyncio.run(main()).error == "raised:McpServerGone"


def test_closing_ends_the_calls_that_are_under_way() -> None:
    calls: list[Any] = []

    async def main() -> Call:
        async with mcp_tools(server(calls)) as tools:
            begun = asyncio.create_task(aonly_call(tools, "slow", {"seconds": 60}))
            while not calls:
                await asyncio.sleep(0.001)
        return await asyncio.wait_for(begun, 5)

    assert asyncio.run(main()).error == "raised:McpServerGone"


def test_a_timeout_ends_the_call_at_the_server_too() -> None:
    calls: list[Any] = []
    declare = {"slow": {"timeout_s": 0.05}}
    with mcp_tools(server(calls), declare=declare) as tools:
        assert only_call(tools, "slow", {"seconds": 60}).error == "raised:TimeoutError"
        for _ in range(1000):
            if ("slow", "cancelled") in calls:
                break
            time.sleep(0.002)
    assert calls == [("slow", "begun"), ("slow", "cancelled")]


def test_cancelling_the_run_cancels_the_call_and_leaves_the_run_resumable() -> None:
    calls: list[Any] = []

    async def main() -> None:
        async with mcp_tools(server(calls)) as tools:
            agent = Agent(tools, calling(("slow", {"seconds": 60})), limits=Limits(deadline_s=None))
            run = agent.start("go")
            driving = asyncio.create_task(agent.adrive(run))
            while not calls:
                await asyncio.sleep(0.001)
            driving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await driving
            await asyncio.sleep(0.01)
            assert run.stop is not None
            assert run.stop.reason == "cancelled"

    asyncio.run(main())
    assert calls == [("slow", "begun"), ("slow", "cancelled")]


def test_an_open_client_is_used_and_left_open() -> None:
    async def main() -> None:
        async with mcp.Client(server()) as client:
            async with mcp_tools(client) as tools:
                assert (await aonly_call(tools, "add", {"a": 1})).value == {"result": 4}
            assert (await client.call_tool("add", {"a": 1})).structured_content == {"result": 4}
            async with mcp_tools(client.session, only=["add"]) as tools:
                assert (await aonly_call(tools, "add", {"a": 1})).value == {"result": 4}
            with pytest.raises(BuildError, match="open session belongs to its own event loop"), mcp_tools(client):
                pytest.fail("it was opened")  # pragma: no cover

    asyncio.run(main())


def test_a_client_that_is_not_open_is_opened_and_closed() -> None:
    client = mcp.Client(server())
    with mcp_tools(client) as tools:
        assert only_call(tools, "add", {"a": 1}).value == {"result": 4}
    with pytest.raises(RuntimeError):
        _ = client.session


def test_a_sync_run_in_another_thread_is_routed_to_the_loop_that_owns_the_session() -> None:
    async def main() -> Call:
        async with mcp_tools(server()) as tools:
            return await asyncio.to_thread(only_call, tools, "add", {"a": 1})

    assert asyncio.run(main()).value == {"result": 4}


def test_a_sync_run_that_blocks_the_owning_loop_is_told_what_to_await(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_connection, "_PATIENCE_S", 0.05)
    calls: list[Any] = []

    async def main() -> Call:
        async with mcp_tools(server(calls)) as tools:
            return only_call(tools, "add", {"a": 1})

    call = asyncio.run(main())
    assert call.error == f"raised:{RunError.__name__}"
    assert "await arun there, or open the tools with a plain 'with'" in call.detail
    assert calls == []


def test_calls_of_one_turn_from_several_threads_share_one_connection() -> None:
    with mcp_tools(server()) as tools:
        values: list[Any] = []
        threads = [
            threading.Thread(target=lambda n=n: values.append(only_call(tools, "add", {"a": n, "b": 0}).value["result"]))
            for n in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(values) == list(range(8))


def test_tools_are_opened_once_at_a_time() -> None:
    opened = mcp_tools(server())
    with opened as tools, pytest.raises(RunError, match="open already"), opened:
        pytest.fail("it was opened twice")  # pragma: no cover
    with opened as again:
        assert [tool.name for tool in again] == [tool.name for tool in tools]


def test_two_servers_tools_join_unless_two_have_one_name() -> None:
    with mcp_tools(server(), only=["add", "put"]) as shop, mcp_tools(server(), only=["add"], prefix="b_") as bank:
        assert [tool.name for tool in join_tools({"shop": shop, "bank": bank})] == ["add", "put", "b_add"]
        with pytest.raises(BuildError, match="the servers 'shop' and 'bank' both have a tool 'add'"):
            join_tools({"shop": shop, "bank": [attrs.evolve(bank[0], name="add")]})


@attrs.frozen
class Listed:
    name: str
    input_schema: dict[str, Any]
    title: str = ""
    description: str = ""
    annotations: Any = None
    output_schema: Any = None


def tool_of(schema: dict[str, Any], **options: Any) -> Tool:
    tools = mcp_tools("http://nowhere.invalid/mcp", **options)._tools([Listed("t", schema)])
    return tools[0]


def test_a_default_that_breaks_its_own_schema_is_left_to_the_server() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "default": None}}}
    contract = tool_of(schema).args
    assert contract is not None
    assert contract.with_defaults({}) == {}
    assert contract.first_fault({"n": None}) == "type:n"
    kept = tool_of({"type": "object", "properties": {"n": {"type": "integer", "default": 3}}}).args
    assert kept is not None
    assert kept.with_defaults({}) == {"n": 3}


def test_a_schema_that_is_none_is_refused_with_the_way_round_it() -> None:
    with pytest.raises(ContractError, match="leave the tool out with only=, or give declare= its own args"):
        tool_of({"type": "object", "properties": {"n": {"type": "numero"}}})
    anything = tool_of({"type": 3}, declare={"t": {"args": None}}).args
    assert anything is not None
    assert anything.first_fault({"whatever": 1}) == ""


def test_the_missing_package_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(MissingExtra, match=r'pip install "fsm-agent\[mcp\]"'):
        mcp_tools(server)


def test_an_older_package_is_named_with_the_version_that_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", type(sys)("mcp"))
    with pytest.raises(MissingExtra, match="the version installed is older"):
        mcp_tools(server)


def test_a_connection_dies_with_its_loop() -> None:
    connection = Connection(server())
    asyncio.run(connection.open())
    with pytest.raises(McpServerGone):
        asyncio.run(connection.call("add", {"a": 1}, None))


def test_an_error_of_the_protocol_is_the_servers_word() -> None:
    async def main() -> None:
        made = server()

        async def refuse(name: str, arguments: Any, *_: Any) -> Any:
            raise mcp.MCPError(code=-32602, message="not today")

        client = mcp.Client(made)
        async with client, mcp_tools(client) as tools:
            made.call_tool = refuse  # type: ignore[method-assign]
            call = await aonly_call(tools, "add", {"a": 1})
            assert (call.error, call.detail) == ("raised:McpToolError", "not today")

    asyncio.run(main())
    with pytest.raises(McpToolError):
        raise McpToolError("for whoever calls bodies directly")
