"""The ways to ask a model: sync and async, whole and streamed; and what is asked in most tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import attrs
import pytest
from model_server import ModelServer

from fsm_agent.core.messages import Message, Role, ToolOffer
from fsm_agent.host.model import ModelRequest

ADD = ToolOffer(
    name="add", description="Adds.", schema={"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
)
DOTTED = ToolOffer(name="web.search")
ASKED = ModelRequest(instructions="Be brief.", messages=[Message(role=Role.USER, text="2+2?")], tools=(ADD, DOTTED))
Ask = Callable[..., Any]


class Ways(NamedTuple):
    """Marks that give a test `ask(server, request, **options)`: in each way, streamed, whole."""

    each_way: Any
    each_stream: Any
    each_whole: Any

    @property
    def sync(self) -> Ask:
        """The plain sync way."""
        ask: Ask = self.each_way.args[1][0]
        return ask


def a_client(sdk: Any, name: str, server: ModelServer, *, later: bool, path: str = "") -> Any:
    """A client of an SDK, sync or async, that never reads the certificates of the world: most of the time of a test would go there."""
    kind, http = ("Async" + name, sdk.DefaultAsyncHttpxClient) if later else (name, sdk.DefaultHttpxClient)
    return getattr(sdk, kind)(base_url=f"{server.url}{path}", api_key="x", max_retries=0, http_client=http(verify=False))


def ways(sdk: Any, name: str, model: Any, path: str = "") -> Ways:
    """The ways to ask one kind of model through its SDK's clients."""

    def sync_reply(server: ModelServer, request: ModelRequest = ASKED, **options: Any) -> Any:
        with a_client(sdk, name, server, later=False, path=path) as own:
            return model(own, "m", **options).reply(request)

    def async_reply(server: ModelServer, request: ModelRequest = ASKED, **options: Any) -> Any:
        async def ask() -> Any:
            async with a_client(sdk, name, server, later=True, path=path) as own:
                return await model(own, "m", **options).reply(request)

        return asyncio.run(ask())

    whole, names = [sync_reply, async_reply], ["sync", "async"]
    streamed = [_streamed(ask) for ask in whole]
    return Ways(
        pytest.mark.parametrize("ask", whole + streamed, ids=names + [f"{name} streamed" for name in names]),
        pytest.mark.parametrize("ask", streamed, ids=names),
        pytest.mark.parametrize("ask", whole, ids=names),
    )


def _streamed(ask: Ask) -> Ask:
    """The same, streamed: what the pieces told must be the decision's text."""

    def reply(server: ModelServer, request: ModelRequest = ASKED, **options: Any) -> Any:
        told: list[str] = []

        def listener(text: str) -> None:
            told.append(text)
            if request.on_delta is not None:
                request.on_delta(text)

        decision = ask(server, attrs.evolve(request, on_delta=listener), **options)
        assert "".join(told) == (decision.text or "")
        assert server.body["stream"] is True
        return decision

    return reply
