"""One run of a scenario as its steps see it: the run, its script, how it is driven, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import attrs

from fsm_agent.agent import Agent
from fsm_agent.core.answers import Answer
from fsm_agent.core.messages import Message
from fsm_agent.core.plain import dumps, storable
from fsm_agent.core.run import Run
from fsm_agent.scenario.script import Script
from fsm_agent.scenario.stage import Drive, Flag
from fsm_agent.scenario.virtual_clock import Place


@attrs.frozen(eq=False)
class Seen:
    """What a model had in front of it at one request."""

    instructions: str
    messages: Sequence[Message]
    tools: Sequence[str]
    summary: str = ""

    def texts(self) -> list[str]:
        """Every text of it: instructions, messages, arguments of calls, error words, names of the tools offered."""
        found = [self.instructions, self.summary, *self.tools]
        for message in self.messages:
            found += [message.text, message.tool, message.error, message.call_id]
            found += [f"{call.tool} {call.id} {dumps(storable(call.args))}" for call in message.calls]
        return [text for text in found if text]


@attrs.define(eq=False)
class Hold:
    """A body that a step waits for: once it is active it is held until `let_go` is set."""

    call: str
    let_go: Flag
    reached: bool = False
    place: Any = None


@attrs.define(eq=False)
class Track:
    """A run with the script that answers it.

    `since` is the number of trace lines before the last run or resume, and `told` that at the end of the last drive: what
    people decide in between belongs to the resume that follows. `drive` is set while the run is driven beside the steps, `place`
    is where threads drive it.
    """

    agent: Agent
    script: Script
    run: Run
    answer: Answer | None = None
    since: int = 0
    told: int = 0
    hold: Hold | None = None
    drive: Drive | None = None
    place: Place | None = None
    seen: Seen | None = None

    def standing_answer(self) -> Answer | None:
        """The answer of a run that is over or paused, else None."""
        return self.agent.answer(self.run) if self.run.done or self.run.paused else None


# The run that the present thread or task drives; bodies inherit it.
DRIVEN: ContextVar[Track | None] = ContextVar("DRIVEN", default=None)
