"""A host's client: checked when a model is made around it, and asked, sync or async, whole or piece by piece.

What it raises becomes a ModelFailed, and its time is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, Protocol

from fsm_agent.core.errors import BuildError
from fsm_agent.core.plain import short
from fsm_agent.core.values import Decision, Usage
from fsm_agent.host.model import FailureKind, ModelFailed, ModelRequest
from fsm_agent.models.failures import failure_of


def creator(client: Any, path: str) -> Callable[..., Any]:
    """The client's method at a dotted path; raises BuildError where it has none."""
    found = client
    for name in path.split("."):
        found = getattr(found, name, None)
    if not callable(found):
        raise BuildError(f"the client is {short(client, 60)}, which has no {path}(); give the SDK's client object itself")
    method: Callable[..., Any] = found
    return method


def awaits(create: Callable[..., Any]) -> bool:
    """True for a coroutine function, also behind wrappers that say what they wrap."""
    return inspect.iscoroutinefunction(inspect.unwrap(create))


def takes(create: Callable[..., Any], name: str) -> bool:
    """True where a method has a parameter of that name, takes any, or does not say what it takes."""
    try:
        parameters = inspect.signature(create).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(one.name == name or one.kind is one.VAR_KEYWORD for one in parameters)


def free_options(create: Callable[..., Any], options: Mapping[str, Any], ours: Iterable[str]) -> dict[str, Any]:
    """The options as a dict; raises BuildError for one that each request sets by itself, and for one that nobody takes."""
    for name in options:
        if name in ours:
            raise BuildError(f"the option {name!r} is set by each request; leave it out")
        if not takes(create, name):
            raise BuildError(f"the client's create() takes no {name!r}; leave it out, or give extra_body={{{name!r}: ...}}")
    return dict(options)


class Reader(Protocol):
    """What puts a streamed reply together: pieces go in, and in the end it is the decision that the whole reply would be."""

    def take(self, piece: Any) -> str:
        """Take one piece in; returns the text that it tells."""
        ...

    def decision(self) -> Decision:
        """The decision; raises ModelFailed(CONNECTION) where the end of the reply is missing."""
        ...

    def usage(self) -> Usage | None:
        """What the reply has cost as far as it came, where that was told."""
        ...


def ask(
    create: Callable[..., Any], body: Mapping[str, Any], request: ModelRequest, whole: Callable[[Any], Decision], reader: Reader
) -> Decision | Awaitable[Decision]:
    """Call `create` with the body and read its reply, streamed where somebody listens; awaitable for an async client.

    `seconds_left` becomes the client's timeout, no longer than the host's own in `body`, and bounds a stream as a whole.
    A sync stream that falls silent is given up after as long again. Raises ModelFailed, at once or when awaited.
    """
    until = _until(request)
    body = {**body, **_timeout(body.get("timeout"), request)}
    if request.on_delta is not None:
        body["stream"] = True
    try:
        reply = create(**body)
    except Exception as error:
        raise failure_of(error) from error
    if inspect.isawaitable(reply):
        return _later(_heard(reply, request, whole, reader, until), until)
    if request.on_delta is None:
        return _read(whole, reply)
    with _paid_for(reader):
        with contextlib.closing(_pieces(reply, until)) as pieces:
            for piece in pieces:
                _take(reader, piece, request.on_delta)
        with _of_this_api():
            return reader.decision()


@contextlib.contextmanager
def _paid_for(reader: Reader) -> Iterator[None]:
    """Let a failure in the middle of a reply say what the reply has cost."""
    try:
        yield
    except ModelFailed as error:
        if error.usage is None:
            error.usage = reader.usage()
        raise


async def _later(decision: Awaitable[Decision], until: float | None) -> Decision:
    try:
        async with asyncio.timeout(None if until is None else until - time.monotonic()) as limit:
            return await decision
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise ModelFailed(FailureKind.TIMEOUT, "the reply did not come in its time") from error


async def _heard(
    reply: Awaitable[Any], request: ModelRequest, whole: Callable[[Any], Decision], reader: Reader, until: float | None
) -> Decision:
    try:
        held = await reply
    except Exception as error:
        raise failure_of(error) from error
    if request.on_delta is None:
        return _read(whole, held)
    with _paid_for(reader):
        async with contextlib.aclosing(_later_pieces(held, until)) as pieces:
            async for piece in pieces:
                _take(reader, piece, request.on_delta)
        with _of_this_api():
            return reader.decision()


def _read(whole: Callable[[Any], Decision], reply: Any) -> Decision:
    with _of_this_api():
        return whole(reply)


def _take(reader: Reader, piece: Any, tell: Callable[[str], None]) -> None:
    # What a listener raises is its own.
    with _of_this_api():
        text = reader.take(piece)
    if isinstance(text, str) and text:
        tell(text)


@contextlib.contextmanager
def _of_this_api() -> Iterator[None]:
    """Let what cannot be read be a failure of the server's."""
    try:
        yield
    except (AttributeError, TypeError, LookupError) as error:
        # A server that speaks another protocol, or a page of a proxy.
        said = f"the reply is no reply of this API: {type(error).__name__}: {error}"
        raise ModelFailed(FailureKind.SERVER_ERROR, said) from error


def _pieces(stream: Any, until: float | None) -> Generator[Any, None, None]:
    try:
        for piece in stream:
            before = time.monotonic()
            yield piece
            # What the reader of a piece takes for it is none of the reply's time.
            until = None if until is None else until + time.monotonic() - before
            _check_time(until)
    except ModelFailed:
        raise
    except Exception as error:
        raise failure_of(error, otherwise=FailureKind.CONNECTION) from error
    finally:
        if callable(close := getattr(stream, "close", None)):
            close()


async def _later_pieces(stream: Any, until: float | None) -> AsyncGenerator[Any, None]:
    try:
        async for piece in stream:
            yield piece
            _check_time(until)
    except ModelFailed:
        raise
    except Exception as error:
        raise failure_of(error, otherwise=FailureKind.CONNECTION) from error
    finally:
        if callable(close := getattr(stream, "close", None)):
            closing = close()
            if inspect.isawaitable(closing):
                await closing


def _until(request: ModelRequest) -> float | None:
    if request.seconds_left is None:
        return None
    if request.seconds_left <= 0:
        raise ModelFailed(FailureKind.TIMEOUT, "no time is left for a request")
    return time.monotonic() + request.seconds_left


def _check_time(until: float | None) -> None:
    if until is not None and time.monotonic() > until:
        raise ModelFailed(FailureKind.TIMEOUT, "the reply was still arriving when its time was over")


def _timeout(own: object, request: ModelRequest) -> dict[str, Any]:
    if request.seconds_left is None:
        return {}
    return {"timeout": min(own, request.seconds_left) if isinstance(own, int | float) else request.seconds_left}
