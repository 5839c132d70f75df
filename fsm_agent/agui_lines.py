"""One run's events as those of the Agent User Interaction Protocol; what maps to what stands in `fsm_agent.agui`."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from fsm_agent.agui_calls import Calls
from fsm_agent.agui_resume import METADATA, interrupt_fields, unicode_text
from fsm_agent.core.answers import Answer
from fsm_agent.core.plain import storable, to_json
from fsm_agent.core.stream_events import DeltasDiscarded, Gap, StreamEvent, TextDelta
from fsm_agent.core.trace import TraceEvent
from fsm_agent.core.values import StopReason
from fsm_agent.sse import answer_record
from fsm_agent.stream_encoding import told_failure

if TYPE_CHECKING:
    from fsm_agent.agent import Agent
    from fsm_agent.core.run import Run

FAILURES: Final = frozenset(
    {
        StopReason.FATAL,
        StopReason.INVALID_REQUEST,
        StopReason.MODEL_ERROR,
        StopReason.MODEL_EMPTY,
        StopReason.INVALID_DECISION,
        StopReason.TRUNCATED,
        StopReason.CONTENT_FILTER,
        StopReason.FINISH_REASON,
    }
)
"""The reasons by which a run failed; by any other that is no answer it was stopped, by a limit, a person or the host."""

_ENTERED, _SETTLED = "state_entered", frozenset({"call_refused", "call_finished", "call_reused"})
# What other events say in the protocol's own words.
_SAID_OTHERWISE: Final = frozenset({"run_started", "call_started", "call_finished", "call_reused", "paused", "answer"})
_MOST: Final = 2**53 - 1


class Translation:
    """One stream on its way, with the step and the message that are open; `protocol` is the package's module of event types."""

    def __init__(self, protocol: Any, agent: Agent, run: Run, thread_id: str, run_id: str) -> None:
        self._ag, self._agent, self._run = protocol, agent, run
        self._ids = {"thread_id": unicode_text(thread_id), "run_id": unicode_text(run_id)}
        self._name = unicode_text(run.id)
        self._calls = Calls(protocol, agent, run, self._name)
        # The message that is open, the last one that is not, and what was said in whichever came last.
        self._step = self._message = self._spoken = self._text = ""
        self._messages = self._tokens = 0
        self._line: TraceEvent | None = None

    def start(self) -> Iterator[Any]:
        """RUN_STARTED, whatever the stream begins with."""
        self._tokens = self._run.tokens
        self._calls.start()
        yield self._ag.RunStartedEvent(**self._ids, protocol_version=self._ag.PROTOCOL_VERSION)

    def of(self, event: StreamEvent) -> Iterator[Any]:
        """What one event becomes; those of another run are left out."""
        if isinstance(event, Gap):
            yield self._custom("gap", {"missed": event.missed})
        elif event.run_id != self._run.id:
            return
        elif isinstance(event, TextDelta):
            yield from self._delta(event)
        elif isinstance(event, DeltasDiscarded):
            void = self._message
            yield from self._close_message()
            self._spoken = self._text = ""
            yield self._custom("deltas_discarded", {"messageId": void or None})
        else:
            yield from self._close_message()
            yield from self._of_line(event)
            yield from self._calls.results(self._at())

    def end(self) -> Iterator[Any]:
        """Everything closed, and the one event that ends the run; raises RunError for a run that has to be driven on."""
        answer = self._agent.answer(self._run)
        yield from self._close_message()
        yield from self._calls.results(self._at())
        if answer.pending:
            asked = [self._ag.Interrupt(**interrupt_fields(self._agent, one)) for one in answer.pending]
            yield from self._close_step()
            yield self._finished(outcome=self._ag.RunFinishedInterruptOutcome(interrupts=asked))
            return
        yield from self._rest_of(answer.text)
        yield from self._close_step()
        yield from self._ending(answer)

    def failed(self, error: Exception) -> Iterator[Any]:
        """Everything closed, and RUN_ERROR with the error's name as its code."""
        yield from self._close_message()
        yield from self._close_step()
        name, message = told_failure(error)
        yield self._ag.RunErrorEvent(code=name, message=unicode_text(message), usage=self._usage(), timestamp=self._at())

    def _ending(self, answer: Answer) -> Iterator[Any]:
        record = to_json(answer_record(answer))
        if answer.ok:
            yield self._finished(result=record, outcome=self._ag.RunFinishedSuccessOutcome())
            return
        # Neither a cancelled run nor a failed one has a result in the protocol, and this library's always has an answer.
        yield self._custom("answer", record)
        if answer.stop_reason in FAILURES:
            why = unicode_text(str(answer.stop))
            yield self._ag.RunErrorEvent(code=answer.stop_reason, message=why, usage=self._usage(), timestamp=self._at())
        else:
            yield self._finished(outcome=self._ag.RunFinishedCancelledOutcome())

    def _of_line(self, line: TraceEvent) -> Iterator[Any]:
        first, self._line = self._line is None, line
        kind, calls, at = line.kind, self._calls, self._at()
        if first:
            yield from self._take_up(line)
        if kind == _ENTERED:
            yield from self._close_step()
            self._step = unicode_text(line.subject)
            yield self._ag.StepStartedEvent(step_name=self._step, timestamp=at)
        elif kind == "decision":
            yield from self._decision(line)
        elif kind in ("call_admitted", "call_refused"):
            yield from calls.begin(line.subject, at)
        elif kind not in _SAID_OTHERWISE:
            told = {"number": line.number, "at_s": line.at_s, "subject": line.subject, "detail": line.detail}
            yield self._custom(kind, to_json(storable(told)))
        if kind in _SETTLED:
            calls.settled(line.subject)
        elif kind == "call_repaired":
            calls.repaired(line.subject)
        elif kind == "judged":
            calls.learn()

    def _take_up(self, line: TraceEvent) -> Iterator[Any]:
        """Begin in the middle of a run: the state it is in is an open step, and its calls were begun in an earlier stream."""
        before = self._run.trace[: line.number]
        self._calls.begun_before(before)
        state = next((str(subject) for kind, _, subject, _ in reversed(before) if kind == _ENTERED), "")
        if state and line.kind != _ENTERED:
            self._step = unicode_text(state)
            yield self._ag.StepStartedEvent(step_name=self._step, timestamp=self._at())

    def _decision(self, line: TraceEvent) -> Iterator[Any]:
        """A decision that asks for calls is one message of theirs and its text, if that was not streamed already."""
        turn = int(line.subject)
        decision = self._calls.decision(turn) if line.detail else None
        if decision is None:
            return
        text = decision.text.strip() if isinstance(decision.text, str) else ""
        if text and text != self._text.strip():
            yield from self._say(text)
        self._calls.decided(turn, decision, self._spoken or f"{self._name}:turn:{turn}")
        self._spoken = ""

    # ---- texts

    def _delta(self, piece: TextDelta) -> Iterator[Any]:
        if not piece.text:
            return
        if not self._message:
            yield from self._open_message(piece.after)
        self._text += piece.text
        yield self._content(piece.text)

    def _open_message(self, after: int) -> Iterator[Any]:
        self._messages += 1
        self._message, self._text = f"{self._name}:text:{after}.{self._messages}", ""
        yield self._ag.TextMessageStartEvent(message_id=self._message, role="assistant", timestamp=self._at())

    def _content(self, text: str) -> Any:
        return self._ag.TextMessageContentEvent(message_id=self._message, delta=unicode_text(text), timestamp=self._at())

    def _close_message(self) -> Iterator[Any]:
        if self._message:
            self._spoken, self._message = self._message, ""
            yield self._ag.TextMessageEndEvent(message_id=self._spoken, timestamp=self._at())

    def _rest_of(self, text: str) -> Iterator[Any]:
        """The answer's text, without what the reader has just seen of it in pieces."""
        said = self._text.strip()
        if said and (text.strip() == said or text.startswith(f"{said}\n\n")):
            text = text.strip()[len(said) :].strip()
        if text:
            yield from self._say(text)

    def _say(self, text: str) -> Iterator[Any]:
        yield from self._open_message(self._line.number if self._line is not None else -1)
        self._text = text
        yield self._content(text)
        yield from self._close_message()

    # ---- the run

    def _close_step(self) -> Iterator[Any]:
        if self._step:
            step, self._step = self._step, ""
            yield self._ag.StepFinishedEvent(step_name=step, timestamp=self._at())

    def _custom(self, name: str, value: Any) -> Any:
        return self._ag.CustomEvent(name=unicode_text(f"{METADATA}:{name}"), value=value, timestamp=self._at())

    def _finished(self, **more: Any) -> Any:
        return self._ag.RunFinishedEvent(**self._ids, usage=self._usage(), timestamp=self._at(), **more)

    def _usage(self) -> list[Any] | None:
        """The tokens of this stream alone, of which no more is known than their sum; None where nobody reported any."""
        spent = self._run.tokens - self._tokens
        return [self._ag.TokenUsage(total_tokens=min(spent, _MOST))] if spent > 0 else None

    def _at(self) -> int | None:
        """The milliseconds since the epoch at which the last line was heard of; None where nobody listened."""
        seconds = self._line.time if self._line is not None else None
        if seconds is None or not isfinite(seconds) or abs(seconds) * 1000 > _MOST:
            return None
        return int(seconds * 1000)
