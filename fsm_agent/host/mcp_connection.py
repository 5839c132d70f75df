"""One open connection to an MCP server, owned by one event loop; calls from other threads and loops are routed to it.

This is the one file that knows the package ``mcp`` (2 or later).
"""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any

import attrs

from fsm_agent.core.errors import BuildError, MissingExtra, RunError
from fsm_agent.core.plain import cut, short

# How long another loop waits for the owner to answer at all; one that is blocked by the caller never will.
_PATIENCE_S = 2.0
_MOST_PAGES = 1000
_CLOSED_STREAMS = frozenset({"ClosedResourceError", "BrokenResourceError", "EndOfStream"})


class McpToolError(Exception):
    """A tool of the server reported an error, or the server answered a call with one; the text is the server's."""


class McpServerGone(Exception):
    """The server cannot be reached, or is no longer there, so the call has no answer."""


def library() -> Any:
    """The package ``mcp``; MissingExtra where it is not installed or older than 2."""
    try:
        mcp = importlib.import_module("mcp")
    except ImportError:
        raise MissingExtra("mcp>=2", "mcp", "tools of an MCP server") from None
    if not hasattr(mcp, "Client"):
        raise MissingExtra("mcp>=2", "mcp", "tools of an MCP server (the version installed is older)")
    return mcp


@attrs.define(eq=False)
class Connection:
    """A session with `target`, opened by `open` or `open_in_thread` and owned by the loop it was opened in.

    `target` is a server object, StdioServerParameters, a URL, a transport, a client, or an open client or session, which
    stays open. Connecting and listing may take `start_s` seconds.
    """

    target: Any
    start_s: float = 30.0
    _owner: asyncio.AbstractEventLoop | None = attrs.field(init=False, default=None)
    _session: Any = attrs.field(init=False, default=None)
    _closing: asyncio.Event | None = attrs.field(init=False, default=None)
    _ended: asyncio.Future[None] | None = attrs.field(init=False, default=None)
    _serving: asyncio.Task[None] | threading.Thread | None = attrs.field(init=False, default=None)

    async def open(self) -> list[Any]:
        """Connect inside the running loop and list the server's tools.

        Raises McpServerGone when that fails, and RunError for a connection that is open already.
        """
        ready = self._begin()
        # A task of its own, so that a session which dies takes nothing of the caller's with it.
        self._serving = task = asyncio.create_task(self._serve(ready))
        try:
            return await asyncio.wrap_future(ready)
        except BaseException:
            task.cancel()
            await asyncio.wait({task})
            self._serving = None
            raise

    async def close(self) -> None:
        """Close the connection; calls that are under way end with McpServerGone."""
        task, self._serving = self._serving, None
        if isinstance(task, asyncio.Task) and self._closing is not None:
            self._closing.set()
            await asyncio.wait({task})

    def open_in_thread(self) -> list[Any]:
        """`open` in a thread with a loop of its own, for callers without one; an open session cannot be moved there."""
        mcp = library()
        if isinstance(self.target, mcp.ClientSession) or _is_open(self.target, mcp):
            raise BuildError("an open session belongs to its own event loop; open the tools there, with 'async with'")
        ready = self._begin()
        self._serving = thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)), name="mcp server", daemon=True)
        thread.start()
        try:
            return ready.result()
        except BaseException:
            self.close_thread()
            raise

    def close_thread(self) -> None:
        """`close` for `open_in_thread`; it waits for the end of the thread."""
        thread, self._serving = self._serving, None
        if isinstance(thread, threading.Thread):
            if self._owner is not None and self._closing is not None:
                self._signal(self._owner, self._closing)
            thread.join()

    async def call(self, tool: str, args: dict[str, Any], left_s: float | None) -> Any:
        """The server's result of one call, from any loop; `left_s` are the seconds it may take, None for no limit.

        Raises TimeoutError, McpServerGone, McpToolError for an answer that is an error, and RunError where the owning
        loop is blocked by whoever waits for this call.
        """
        owner = self._owner
        if owner is None or owner.is_closed() or self._session is None:
            raise McpServerGone(_GONE)
        if owner is asyncio.get_running_loop():
            return await self._call(tool, args, left_s)
        await self._answers(owner)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._call(tool, args, left_s), owner))

    def _begin(self) -> Future[list[Any]]:
        if self._serving is not None:
            raise RunError("these tools are open already; open them once, or make them anew with mcp_tools")
        self._owner = self._closing = None
        ready: Future[list[Any]] = Future()
        # From here on nobody who stops waiting for it can cancel it.
        ready.set_running_or_notify_cancel()
        return ready

    async def _serve(self, ready: Future[list[Any]]) -> None:
        """Hold the session from its opening to its end, in one task as the package demands."""
        self._owner, self._closing = asyncio.get_running_loop(), asyncio.Event()
        self._ended = ended = self._owner.create_future()
        try:
            async with asyncio.timeout(self.start_s) as limit, _opened(self.target, library()) as session:
                tools = await _listed(session)
                limit.reschedule(None)
                self._session = session
                ready.set_result(tools)
                await self._closing.wait()
        except BaseException as error:
            # Once it was open, every call says so itself.
            if not ready.done():
                ready.set_exception(self._unreached(error))
            if not isinstance(error, Exception):
                raise
        finally:
            self._session = None
            if not ended.done():
                ended.set_result(None)

    def _unreached(self, error: BaseException) -> BaseException:
        if isinstance(error, BuildError):
            return error
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        if isinstance(error, TimeoutError):
            return McpServerGone(f"the MCP server did not answer in {self.start_s:g} s; give start_s= a longer time")
        gone = McpServerGone(f"the MCP server could not be reached: {type(error).__name__}: {cut(str(error), 300)}")
        gone.__cause__ = error
        return gone

    async def _call(self, tool: str, args: dict[str, Any], left_s: float | None) -> Any:
        session, ended = self._session, self._ended
        if session is None or ended is None:
            raise McpServerGone(_GONE)
        asked = asyncio.ensure_future(session.call_tool(tool, args))
        asked.add_done_callback(_seen)
        try:
            async with asyncio.timeout(left_s):
                await asyncio.wait({asked, ended}, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            raise TimeoutError(f"the MCP server did not answer in {left_s:g} s") from None
        finally:
            asked.cancel()
        if not asked.done() or asked.cancelled():
            raise McpServerGone(_GONE)
        error = asked.exception()
        if error is not None:
            raise _told(error) from error
        return asked.result()

    async def _answers(self, owner: asyncio.AbstractEventLoop) -> None:
        here = asyncio.get_running_loop()
        alive = asyncio.Event()
        try:
            owner.call_soon_threadsafe(self._signal, here, alive)
        except RuntimeError:
            raise McpServerGone(_GONE) from None
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await alive.wait()
        except TimeoutError:
            raise RunError(
                "the event loop that owns the MCP session is blocked, as by a sync run inside it;"
                " await arun there, or open the tools with a plain 'with'"
            ) from None

    @staticmethod
    def _signal(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
        try:
            loop.call_soon_threadsafe(event.set)
        except RuntimeError:
            # That loop has ended in the meantime, and whoever waited in it.
            return


_GONE = "the connection to the MCP server is closed"


def _is_open(target: Any, mcp: Any) -> bool:
    if not isinstance(target, mcp.Client):
        return False
    try:
        return target.session is not None
    except RuntimeError:
        return False


@asynccontextmanager
async def _opened(target: Any, mcp: Any) -> AsyncIterator[Any]:
    """A client or session to call; what was open already stays open."""
    if isinstance(target, mcp.ClientSession) or _is_open(target, mcp):
        yield target
        return
    if isinstance(target, str) and "://" not in target:
        raise BuildError(f"{short(target, 80)} is no URL; for a command give mcp.StdioServerParameters(command=...)")
    client = target if isinstance(target, mcp.Client) else _client(target, mcp)
    async with client as opened:
        yield opened


def _client(target: Any, mcp: Any) -> Any:
    servers = importlib.import_module("mcp.server")
    known = (str, mcp.StdioServerParameters, servers.Server, servers.MCPServer)
    if not isinstance(target, known) and not hasattr(target, "__aenter__"):
        raise BuildError(
            f"{short(target, 80)} is no MCP server; give a server object, StdioServerParameters, a URL or an open client"
        )
    return mcp.Client(target)


async def _listed(session: Any) -> list[Any]:
    """Every tool of the server, page by page."""
    tools: list[Any] = []
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        if hasattr(session, "session"):
            page = await session.list_tools(cursor=cursor)
        else:
            types = importlib.import_module("mcp.types")
            page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
        tools += page.tools
        if page.next_cursor is None or page.next_cursor == cursor:
            return tools
        cursor = page.next_cursor
    raise McpServerGone(f"the MCP server's list of tools has more than {_MOST_PAGES} pages")


def _told(error: BaseException) -> BaseException:
    """The exception of a call as it is told: who is gone, what took too long, or what the server said."""
    types = importlib.import_module("mcp.types")
    code = getattr(error, "code", None)
    text = cut(str(error), 2000) or type(error).__name__
    if code == types.CONNECTION_CLOSED or type(error).__name__ in _CLOSED_STREAMS:
        return McpServerGone(f"{_GONE} ({text})")
    if code == types.REQUEST_TIMEOUT or isinstance(error, TimeoutError):
        return TimeoutError(text)
    if isinstance(error, ConnectionError):
        return McpServerGone(f"{_GONE} ({type(error).__name__}: {text})")
    return McpToolError(text) if isinstance(error, Exception) else error


def _seen(asked: asyncio.Future[Any]) -> None:
    # An answer that nobody waits for any more is dropped, whatever it was.
    if not asked.cancelled():
        asked.exception()
