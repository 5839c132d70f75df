"""How any encoder reads a stream: one walk for threads and one for tasks, which closes the stream whenever it is left."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import Any, Final, Protocol, TypeVar

from fsm_agent.core.errors import FsmAgentError
from fsm_agent.core.stream_events import StreamEvent

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")
_END: Final = object()


class Encoder(Protocol[T_co]):
    """What a stream becomes, piece by piece; it is asked for `start`, then for each event, then for `end` or `failed`."""

    def start(self) -> Iterable[T_co]:
        """What comes before the first event."""
        ...

    def of(self, event: StreamEvent) -> Iterable[T_co]:
        """What one event becomes."""
        ...

    def end(self) -> Iterable[T_co]:
        """What comes once the stream has ended of itself."""
        ...

    def failed(self, error: Exception) -> Iterable[T_co]:
        """What comes in place of the end when the stream, or the encoder, raised."""
        ...


def encoded(events: Iterable[StreamEvent], encoder: Encoder[T]) -> Iterator[T]:
    """Read a stream at the reader's pace; what it raises is told by the encoder first, and then raised.

    Leaving the iterator (break, close, an exception) closes the stream under it.
    """
    iterator: Iterator[Any] = iter(events)
    try:
        yield from encoder.start()
        while True:
            try:
                event: Any = next(iterator, _END)
                made = list(encoder.end() if event is _END else encoder.of(event))
            except Exception as error:
                yield from encoder.failed(error)
                raise
            yield from made
            if event is _END:
                return
    finally:
        close(iterator)
        if iterator is not events:
            close(events)


async def aencoded(events: AsyncIterable[StreamEvent], encoder: Encoder[T]) -> AsyncIterator[T]:
    """`encoded` inside the running event loop."""
    iterator: AsyncIterator[Any] = aiter(events)
    try:
        for piece in encoder.start():
            yield piece
        while True:
            try:
                event: Any = await anext(iterator, _END)
                made = list(encoder.end() if event is _END else encoder.of(event))
            except Exception as error:
                for piece in encoder.failed(error):
                    yield piece
                raise
            for piece in made:
                yield piece
            if event is _END:
                return
    finally:
        await aclose(iterator)
        if iterator is not events:
            # An observer is read asynchronously and closed at once.
            close(events)


def close(events: object) -> None:
    """Close a stream or an observer; a list has nothing to close."""
    if callable(end := getattr(events, "close", None)):
        end()


async def aclose(events: object) -> None:
    """Close an asynchronous stream."""
    if callable(end := getattr(events, "aclose", None)):
        await end()


def told_failure(error: Exception) -> tuple[str, str]:
    """The name of an error and what a client may read of it: only the library's own texts are known to be fit for that."""
    return type(error).__name__, str(error) if isinstance(error, FsmAgentError) else "the run could not be driven on"
