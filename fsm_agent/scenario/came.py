"""What came of a scenario so far, as its expectations look at it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from fsm_agent.core.answers import Answer
from fsm_agent.core.events import Decided
from fsm_agent.core.run import Call, Run
from fsm_agent.core.trace import TraceEvent, result_text, trace_of
from fsm_agent.core.values import ResultClass, Status
from fsm_agent.scenario.named_errors import names_of
from fsm_agent.scenario.script import INPUT, OUTPUT, TOTAL
from fsm_agent.scenario.track import Track
from fsm_agent.scenario.world import World


@attrs.frozen(kw_only=True)
class Result:
    """One settled call: its id, tool, value or error word, class, and its text as the model is shown it."""

    call: str
    tool: str
    ok: bool
    value: Any
    error: str
    kind: str | None
    text: str
    reused: bool


@attrs.frozen(kw_only=True)
class Came:
    """The world, the run that the last step acted on (None before the first), and what escaped from the step."""

    world: World
    track: Track | None = None
    raised: BaseException | None = None

    @property
    def run(self) -> Run | None:
        """The current run."""
        return self.track.run if self.track is not None else None

    @property
    def answer(self) -> Answer | None:
        """The current run's answer, None while it goes on."""
        return self.track.standing_answer() if self.track is not None else None

    @property
    def status(self) -> str | None:
        """The status of the current run: ``running`` while it is driven, ``paused`` where it stands still and is not over."""
        if self.track is None:
            return None
        if self.answer is not None:
            return self.answer.status.value
        drive = self.track.drive
        return "running" if self.track.run.driven or (drive is not None and not drive.done.on) else Status.PAUSED.value

    def raised_names(self) -> list[str] | None:
        """The names of what escaped, or None."""
        return names_of(self.raised) if self.raised is not None else None

    def results(self) -> list[Result]:
        """The settled calls of the current run, in order."""
        if (track := self.track) is None:
            return []
        calls = [*track.run.calls, *(call for call in track.run.open_calls if call.ok is not None)]
        return [self._result(call, track) for call in calls]

    def _result(self, call: Call, track: Track) -> Result:
        kind = call.result_class
        # A failure that nobody classified has no class.
        plain = kind is None or (not call.ok and kind is ResultClass.OK)
        return Result(
            call=call.id,
            tool=call.tool,
            ok=bool(call.ok),
            value=call.value,
            error=call.error,
            kind=None if plain or kind is None else kind.value,
            text=result_text(call, track.agent.engine.setup.box),
            reused=call.reused,
        )

    def events(self) -> list[TraceEvent]:
        """The events of the last run or resume."""
        return trace_of(self.track.run, self.track.since) if self.track is not None else []

    def orders(self) -> list[list[TraceEvent]]:
        """The orders in which those events may be told.

        What people decided at a pause comes before or after ``resumed``; a run that was in the middle of a step when its process
        ended has no such line, and a step that resumes it stands for one.
        """
        events = self.events()
        at = next((number for number, event in enumerate(events) if event.kind == "resumed"), -1)
        if at > 0:
            return [events, events[at:], [events[at], *events[:at], *events[at + 1 :]]]
        if at == 0 or self.track is None or not self.track.since:
            return [events]
        run_id = self.track.run.id
        return [events, [TraceEvent(run_id, self.track.since - 1, 0.0, "resumed", run_id), *events]]

    def usage(self) -> dict[str, float]:
        """The counters of the current run, and its tokens by kind, in the words that providers have for them."""
        run = self.run
        if run is None:
            return {}
        usages = [event.decision.usage for _, event in run.journal if isinstance(event, Decided)]
        usages += [event.usage for _, event in run.journal if not isinstance(event, Decided) and getattr(event, "usage", None)]
        given = sum(usage.input_tokens for usage in usages if usage is not None)
        made = sum(usage.output_tokens for usage in usages if usage is not None)
        counters = ("turns", "tool_calls", "body_runs", "steps", "cost", "spent_s", "waited_s")
        return {
            **{name: getattr(run, name) for name in counters},
            "model_turns": run.turns,
            **dict.fromkeys(INPUT, given),
            **dict.fromkeys(OUTPUT, made),
            **dict.fromkeys(TOTAL, run.tokens),
        }


# What a check says: what came, in a form that JSON holds or nearly, and every fault.
Looked = tuple[Any, list[str]]
Check = Callable[[Any, Came], Looked]
