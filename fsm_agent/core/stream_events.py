"""What a reader of a run hears beside the lines of its trace: text as it is written, and what was missed."""

from __future__ import annotations

import attrs

from fsm_agent.core.trace import TraceEvent


@attrs.frozen
class TextDelta:
    """A piece of the model's text, between the line `after` of the trace and the next; it is no part of the run."""

    run_id: str
    after: int
    text: str


@attrs.frozen
class DeltasDiscarded:
    """The pieces since the line `after` are void: the request failed, and may be made again."""

    run_id: str
    after: int


@attrs.frozen
class Gap:
    """An observer was too slow, and so many events before the next one were dropped."""

    missed: int


StreamEvent = TraceEvent | TextDelta | DeltasDiscarded | Gap
