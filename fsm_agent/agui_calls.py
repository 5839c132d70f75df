"""The calls of one run as tool calls of the Agent User Interaction Protocol: each begun once, each with one result."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from fsm_agent.agui_resume import METADATA, unicode_text
from fsm_agent.core.decoding import decoded
from fsm_agent.core.events import Composed, ComposeFailed, Decided, DecisionFailed
from fsm_agent.core.plain import dumps, storable
from fsm_agent.core.redact import without_secrets
from fsm_agent.core.run import Call, Run, TraceRow
from fsm_agent.core.trace import result_text
from fsm_agent.core.values import Decision, ToolCall

if TYPE_CHECKING:
    from fsm_agent.agent import Agent

_TURNS: Final = (Decided, DecisionFailed, Composed, ComposeFailed)
_BEGAN: Final = ("call_admitted", "call_refused")
_TRIES: Final = 20


class Calls:
    """The calls that a stream tells of.

    `protocol` is the package's module of event types, `name` stands before the ids of messages. Of a call only a reference is
    kept; the driver may be at work in another thread, up to the line after the one that is read.
    """

    def __init__(self, protocol: Any, agent: Agent, run: Run, name: str) -> None:
        self._ag, self._run, self._name = protocol, run, name
        self._box, self._repairs = agent.engine.setup.box, agent.engine.setup.repairs
        self._known: dict[str, Call] = {}
        self._of_turn: dict[int, dict[str, Call]] = {}
        self._seen = 0
        self._asked: dict[str, ToolCall] = {}
        self._parents: dict[str, str] = {}
        self._begun: set[str] = set()
        self._answered: set[str] = set()
        self._due: dict[str, Call] = {}
        self._decision: Decision | None = None
        self._events = self._turn = 0

    def start(self) -> None:
        """Look at the run before it is driven: a failed call of an open turn may be mended yet, and nobody was told its result."""
        self.learn()
        self._due = {call.id: call for call in self._run.open_calls if call.ok is False and self._may_be_mended(call)}

    def begun_before(self, rows: Sequence[TraceRow]) -> None:
        """Leave out the beginnings of calls that lines before this stream tell of."""
        self._begun |= {str(subject) for kind, _, subject, _ in rows if kind in _BEGAN}

    def learn(self) -> None:
        """Take in the calls that are new."""
        run = self._run
        for call in (*run.calls[self._seen :], *run.open_calls):
            self._known[call.id] = call
            if not call.parent:
                self._of_turn.setdefault(call.turn, {})[call.id] = call
        self._seen = len(run.calls)

    def decision(self, turn: int) -> Decision | None:
        """The decision of a turn, from the journal; None where that turn had none."""
        journal = self._run.flat_journal
        while self._turn < turn and 2 * self._events < len(journal):
            event = journal[2 * self._events + 1]
            self._events += 1
            if isinstance(event, _TURNS):
                self._turn += 1
                self._decision = event.decision if isinstance(event, Decided) else None
        return self._decision if self._turn == turn else None

    def decided(self, turn: int, decision: Decision, message: str) -> None:
        """Take in what a decision asked for, before a repair or a person changes it, and the message that holds its calls."""
        self.learn()
        # A turn's first calls are its decision's; what a verifier asks for comes behind them.
        for wanted, call_id in zip(decision.calls or (), self._of_turn.pop(turn, ()), strict=False):
            self._asked[call_id], self._parents[call_id] = wanted, message

    def begin(self, call_id: str, at: int | None) -> Iterator[Any]:
        """A call and its arguments as they were asked for; once for each id, in whichever stream it was begun."""
        call = self._call(call_id)
        if call is None or call.id in self._begun:
            return
        self._begun.add(call.id)
        name, args = call.tool, call.args
        if (asked := self._asked.pop(call.id, None)) is not None:
            name, args = asked.tool if isinstance(asked.tool, str) else "", decoded(asked.args)
        secret = {one for known in (name, call.tool) if (tool := self._box.get(known)) is not None for one in tool.secret}
        tool_call = unicode_text(call.id)
        parent = self._parents.get(call.parent or call.id, f"{self._name}:call:{tool_call}")
        yield self._ag.ToolCallStartEvent(
            tool_call_id=tool_call, tool_call_name=unicode_text(name), parent_message_id=parent, timestamp=at
        )
        text = dumps(storable(without_secrets(args, secret.union(call.secret))))
        yield self._ag.ToolCallArgsEvent(tool_call_id=tool_call, delta=text, timestamp=at)
        yield self._ag.ToolCallEndEvent(tool_call_id=tool_call, timestamp=at)

    def settled(self, call_id: str) -> None:
        """A call has a result."""
        if (call := self._call(call_id)) is not None:
            self._due[call.id] = call

    def repaired(self, call_id: str) -> None:
        """A failed call was changed and is open again; there is no result of it yet."""
        self._due.pop(call_id, None)

    def results(self, at: int | None) -> Iterator[Any]:
        """The results that are final: of a call that failed and has a repair, once its turn is over."""
        for call in list(self._due.values()):
            if self._may_be_mended(call):
                continue
            del self._due[call.id]
            if call.id not in self._answered:
                self._answered.add(call.id)
                yield self._result(call, at)

    def _may_be_mended(self, call: Call) -> bool:
        if call.ok or self._run.done:
            return False
        if call.ok is None:
            # The driver is a step ahead of the reader, and has opened it again.
            return True
        return self._repairs.get(call.error) is not None and any(one is call for one in self._run.open_calls)

    def _result(self, call: Call, at: int | None) -> Any:
        again = f":{self._run.resumed}" if self._run.resumed else ""
        tool_call = unicode_text(call.id)
        return self._ag.ToolCallResultEvent(
            message_id=f"{self._name}:result:{tool_call}{again}",
            tool_call_id=tool_call,
            content=unicode_text(result_text(call, self._box)),
            role="tool",
            metadata=None if call.ok else {METADATA: {"error": unicode_text(call.error)}},
            timestamp=at,
        )

    def _call(self, call_id: str) -> Call | None:
        """The call of that id, or None for one that the run does not have."""
        for _ in range(_TRIES):
            if (call := self._known.get(call_id)) is not None:
                return call
            self.learn()
            if call_id not in self._known and not self._run.driven:
                return None
            if call_id not in self._known:
                # A call on its way from the open ones to the record is in neither list for a moment.
                time.sleep(0.001)
        return None
