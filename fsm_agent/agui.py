"""A run as events of the Agent User Interaction Protocol, version 1; needs the extra ``agui`` (ag-ui-protocol 1 or later).

    apply_resume(agent, run, request.resume)
    for chunk in encode(agui_events(agent.stream(run), thread_id=request.thread_id, run=run, agent=agent, run_id=request.run_id)):
        response.write(chunk)

One stream is one run of the protocol. RUN_STARTED comes first; exactly one of RUN_FINISHED and RUN_ERROR comes last. Between:

- A state is a step: STEP_STARTED when it is entered, STEP_FINISHED when it is left or the stream ends.
- A call is TOOL_CALL_START, ARGS and END when it has passed the gate or was refused there, and one TOOL_CALL_RESULT once it is
  settled, also when it was refused, denied or skipped: its content is what the decider is shown, its metadata holds the error
  word. A failure that a repair may mend is held back. Secret arguments are marked. The calls of one turn share a parent message,
  which is the text before them where there is one.
- Pieces of text are a text message. Pieces that are void end their message, and a CUSTOM ``fsm_agent:deltas_discarded`` names it.
  A text before calls that did not come in pieces is a text message too.
- The answer's text is a text message of its own, less what was just streamed of it.
- Any other line of the trace is a CUSTOM event ``fsm_agent:<kind>`` with its number, at_s, subject and detail; a gap says how
  many events were ``missed``.

How it ends:

- A run that answered, or asked its question: RUN_FINISHED with the success outcome and `fsm_agent.sse.answer_record` as result.
- A paused run: RUN_FINISHED with one interrupt for each call that waits (`fsm_agent.agui_resume`), answered by `apply_resume`. A
  tool of the client is the agent's own and no tool of the request's list, so it is asked for in the same way. The next
  stream begins no call again; it gives their results.
- A run that was stopped, by a limit, a person, a strategy or the reader: RUN_FINISHED with the cancelled outcome, which is no
  error and has no result in the protocol; the answer is a CUSTOM event ``fsm_agent:answer`` before it. Its status does not matter.
- A run that failed (`FAILURES`: the model, the request, or a fatal result of a tool): the same, with RUN_ERROR and the stop
  reason as its code.
- A stream that raises: RUN_ERROR with the error's name, and then the error itself is raised.

A lone surrogate is spelled out as ``\\udXXX``. The protocol's transport has no way to go on with a stream that broke off.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from fsm_agent.agui_lines import FAILURES, Translation
from fsm_agent.agui_resume import apply_resume
from fsm_agent.core.errors import BuildError, MissingExtra
from fsm_agent.core.plain import short
from fsm_agent.core.run import Run
from fsm_agent.core.stream_events import StreamEvent
from fsm_agent.stream_encoding import aclose, aencoded, close, encoded

if TYPE_CHECKING:
    from fsm_agent.agent import Agent

__all__ = ["FAILURES", "aagui_events", "aencode", "agui_events", "apply_resume", "encode"]


def agui_events(
    events: Iterable[StreamEvent], *, thread_id: str, run: Run, agent: Agent, run_id: str | None = None
) -> Iterator[Any]:
    """A stream (or observer, or trace) of one run as the protocol's event objects, at the reader's pace.

    `run_id` is the request's own (default: the run's), since the protocol has a run for each request. Leaving the iterator
    closes the stream, which cancels a run that is driven by it. Raises MissingExtra, and BuildError for ids that are no text.
    """
    return encoded(events, _translation(thread_id, run, agent, run_id))


def aagui_events(
    events: AsyncIterable[StreamEvent], *, thread_id: str, run: Run, agent: Agent, run_id: str | None = None
) -> AsyncIterator[Any]:
    """`agui_events` inside the running event loop."""
    return aencoded(events, _translation(thread_id, run, agent, run_id))


def encode(events: Iterable[Any]) -> Iterator[bytes]:
    """The protocol's event objects as chunks of an event stream, by its own encoder; leaving the iterator closes `events`."""
    encoder = _part("ag_ui.encoder").EventEncoder()
    return _encoded(events, encoder)


def aencode(events: AsyncIterable[Any]) -> AsyncIterator[bytes]:
    """`encode` inside the running event loop."""
    encoder = _part("ag_ui.encoder").EventEncoder()
    return _aencoded(events, encoder)


def _encoded(events: Iterable[Any], encoder: Any) -> Iterator[bytes]:
    try:
        for event in events:
            yield encoder.encode(event).encode("utf-8")
    finally:
        close(events)


async def _aencoded(events: AsyncIterable[Any], encoder: Any) -> AsyncIterator[bytes]:
    try:
        async for event in events:
            yield encoder.encode(event).encode("utf-8")
    finally:
        await aclose(events)


def _translation(thread_id: str, run: Run, agent: Agent, run_id: str | None) -> Translation:
    for name, given in (("thread_id", thread_id), ("run_id", run.id if run_id is None else run_id)):
        if not isinstance(given, str):
            raise BuildError(f"{name} is {short(given, 60)}; give the request's, a text")
    return Translation(_part("ag_ui.core"), agent, run, thread_id, run.id if run_id is None else run_id)


def _part(name: str) -> Any:
    """A module of the package; MissingExtra where it is not installed or older than 1."""
    try:
        part, core = importlib.import_module(name), importlib.import_module("ag_ui.core")
    except ImportError:
        raise MissingExtra("ag-ui-protocol>=1", "agui", "events of the Agent User Interaction Protocol") from None
    if not hasattr(core, "RunFinishedCancelledOutcome"):
        raise MissingExtra("ag-ui-protocol>=1", "agui", "events of that protocol (the version installed is older)")
    return part
