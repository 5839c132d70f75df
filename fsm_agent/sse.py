"""A run as Server-Sent Events, for any HTTP server (WHATWG HTML, "Server-sent events"); it needs no package.

    with closing(sse(agent.stream(run), answer=run)) as chunks:
        for chunk in chunks:
            response.write(chunk)

Each line of the trace is an event named by its kind, with its number as the id; pieces of text (``text_delta``), discarded
pieces (``deltas_discarded``) and gaps (``gap``) have no id, so that the id that a client comes back with is always a line's.
The data is one line of JSON: the fields of the event, in the form that `fsm_agent.core.plain.dumps` writes and `loads` reads.
A value that JSON lacks stands there as an object of one key, its tag, and so does a text with a lone surrogate.

The response is `CONTENT_TYPE`. A heartbeat is `comment()`, sent when the host sees fit.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from typing import Any, Final

import attrs

from fsm_agent.core.answers import Answer, answer_of, paused_answer
from fsm_agent.core.errors import RunError
from fsm_agent.core.plain import dumps, storable
from fsm_agent.core.run import Run
from fsm_agent.core.stream_events import StreamEvent
from fsm_agent.core.trace import TraceEvent
from fsm_agent.stream_encoding import aencoded, encoded, told_failure

CONTENT_TYPE: Final = "text/event-stream"
ANSWER: Final = "answer"
"""The name of the last event; with a ``status`` in its data it is the answer, without one a line of the trace."""
FAILED: Final = "failed"
"""The name of the event that says that the stream raised; a client's own word for a lost connection is ``error``."""

Answering = Run | Callable[[], Answer] | None


def sse(
    events: Iterable[StreamEvent], *, answer: Answering = None, since: str | int | None = None, missed: Iterable[TraceEvent] = ()
) -> Iterator[bytes]:
    """A stream (or observer, or trace) as chunks of an event stream, one event each, at the reader's pace.

    With `answer`, the run or a function that gives its Answer, the last event is ``answer``: the line of that name, if there is
    one, with the `answer_record` in its data. `since` is the Last-Event-ID that a client came back with: lines up to it are left
    out, and any other text counts as none. `missed` are lines from before this stream, such as ``trace_of(run)``; those after
    `since` are sent first, and none twice. Both are for the stream of one run.

    Leaving the iterator closes the stream, which cancels a run that is driven by it. What the stream raises is told as a
    ``failed`` event and then raised.
    """
    return encoded(events, _Chunks(answer, since, missed))


def asse(
    events: AsyncIterable[StreamEvent],
    *,
    answer: Answering = None,
    since: str | int | None = None,
    missed: Iterable[TraceEvent] = (),
) -> AsyncIterator[bytes]:
    """`sse` inside the running event loop."""
    return aencoded(events, _Chunks(answer, since, missed))


def encode_event(event: StreamEvent) -> bytes:
    """One event as a chunk."""
    return _line(event) if isinstance(event, TraceEvent) else _frame(event.kind, _fields(event))


def comment(text: str = "") -> bytes:
    """A chunk that every client ignores; it keeps a connection open while the run is busy."""
    return "".join([*(f": {line}\n" for line in _lines(text)), "\n"]).encode("utf-8", "backslashreplace")


def answer_record(answer: Answer) -> dict[str, Any]:
    """What a client is told of an answer, as plain values: its status, text, reason, what it lacks, and whom it waits for.

    `why` is the stop as a text and `raise_to` the limits that would let the run go on.
    """
    stop = answer.stop
    record: dict[str, Any] = storable(
        {
            "status": answer.status.value,
            "text": answer.text,
            "stop_reason": answer.stop_reason.value if answer.stop_reason is not None else None,
            "why": str(stop) if stop is not None else "",
            "raise_to": stop.raise_to if stop is not None else {},
            "value": answer.value,
            "citations": list(answer.citations),
            "unknowns": list(answer.unknowns),
            "next_questions": list(answer.next_questions),
            "usage": answer.usage,
            "pending": [_fields(one) for one in answer.pending],
        }
    )
    return record


def _fields(record: Any) -> dict[str, Any]:
    return attrs.asdict(record, recurse=False)


def _line(event: TraceEvent, more: dict[str, Any] | None = None) -> bytes:
    return _frame(event.kind, {**_fields(event), **(more or {})}, event.number)


def _frame(name: str, content: dict[str, Any], number: int | None = None) -> bytes:
    made = [f"event: {' '.join(_lines(name))}\n"]
    if number is not None:
        made.append(f"id: {number}\n")
    made += [f"data: {line}\n" for line in _lines(dumps(storable(content)))]
    return "".join([*made, "\n"]).encode("utf-8", "backslashreplace")


def _lines(text: str) -> list[str]:
    """The text at its line ends, which are these three and no others (`str.splitlines` knows more)."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _known(since: str | int | None) -> int:
    """The number of the last line that a client has, or -1; what is no number of a line is no id of this library's."""
    text = str(since) if type(since) is int else since
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= 18 else -1


@attrs.define(eq=False)
class _Chunks:
    """One stream on its way: the last line that the client has, and the ``answer`` line while it may still be the last."""

    answer: Answering
    since: str | int | None
    missed: Iterable[TraceEvent]
    _last: int = -1
    _held: TraceEvent | None = None

    def start(self) -> Iterator[bytes]:
        """The lines from before the stream that the client does not have."""
        missed = list(self.missed)
        self._last = _known(self.since)
        if missed and self._last > missed[-1].number:
            # An id that this run has not come to is another run's.
            self._last = -1
        for event in missed:
            yield from self.of(event)
            self._last = max(self._last, event.number)

    def of(self, event: StreamEvent) -> Iterator[bytes]:
        """The event, unless the client has it; an ``answer`` line is kept back until it is known whether it is the last."""
        if isinstance(event, TraceEvent) and event.number <= self._last:
            return
        yield from self._release()
        if isinstance(event, TraceEvent) and event.kind == ANSWER and self.answer is not None:
            self._held = event
        else:
            yield encode_event(event)

    def end(self) -> Iterator[bytes]:
        """The answer, where one is wanted."""
        if self.answer is None:
            return
        record = answer_record(self._answer())
        held, self._held = self._held, None
        yield _line(held, record) if held is not None else _frame(ANSWER, record)

    def failed(self, error: Exception) -> Iterator[bytes]:
        """That the stream raised."""
        yield from self._release()
        name, message = told_failure(error)
        yield _frame(FAILED, {"error": name, "message": message})

    def _release(self) -> Iterator[bytes]:
        held, self._held = self._held, None
        if held is not None:
            yield encode_event(held)

    def _answer(self) -> Answer:
        if not isinstance(self.answer, Run):
            assert self.answer is not None
            return self.answer()
        run = self.answer
        answer = answer_of(run)
        if answer is None and run.paused:
            answer = paused_answer(run)
        if answer is None:
            raise RunError(f"run {run.id!r} stands still in state {run.state!r} without an answer; drive it on")
        return attrs.evolve(answer, run=run)
