"""What a run did, line by line, and what a decider is shown of its results."""

from __future__ import annotations

from typing import Any

import attrs

from fsm_agent.core.gate import Toolbox, fault_text
from fsm_agent.core.plain import dumps
from fsm_agent.core.run import Call, Run


@attrs.frozen
class TraceEvent:
    """One line of a run's trace.

    `kind` is one of run_started, state_entered, decision, decision_failed, malformed, call_admitted, call_refused,
    call_started, call_reused, call_retried, call_finished, call_repaired, judged, guard_closed, guard_failed, waiting, paused,
    message, resumed, composed, compose_failed, observer_failed, repair_failed, answer. `at_s` is the time the run had spent, `subject` a
    state, tool, call id, guard, stop reason or the number of a turn. `time` is the UTC second at which it was heard of, where somebody
    listened.
    """

    run_id: str
    number: int
    at_s: float
    kind: str
    subject: str
    detail: Any = None
    time: float | None = None

    def __str__(self) -> str:
        detail = "" if self.detail in (None, "") else f" {self.detail}"
        return f"{self.number:4d} {self.at_s:9.3f} {self.kind:<14} {self.subject}{detail}"


def trace_of(run: Run, since: int = 0, time: float | None = None) -> list[TraceEvent]:
    """The lines of a run's trace in order, from the given number on; `time` is the UTC second of those who listen."""
    return [
        TraceEvent(run.id, number, at, kind, str(subject), detail, time)
        for number, (kind, at, subject, detail) in enumerate(run.rows(since), since)
    ]


def result_text(call: Call, box: Toolbox) -> str:
    """What a decider is shown of a settled call: its value as JSON text, cut at the tool's size cap, or why it failed."""
    if not call.ok and call.value is None:
        return fault_text(call)
    text = call.value if isinstance(call.value, str) else dumps(call.value)
    tool = box.get(call.tool)
    most = tool.max_result_bytes if tool is not None else None
    shown = text if most is None else _capped(text, most)
    if not call.ok:
        # A hook answered in the body's place.
        return f"{fault_text(call)}: {shown}"
    return f"(reused) {shown}" if call.reused else shown


def _capped(text: str, most: int) -> str:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size <= most:
        return text
    mark = f" [cut: {size} bytes in all]"
    return text.encode("utf-8", "surrogatepass")[: max(0, most - len(mark))].decode("utf-8", "ignore") + mark


