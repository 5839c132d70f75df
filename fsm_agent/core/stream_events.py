"""What a reader of a run hears beside the lines of its trace: text as it is written, and what was missed."""

from __future__ import annotations

from typing import ClassVar

import attrs

from fsm_agent.core.trace import TraceEvent


@attrs.frozen
class TextDelta:
    """A piece of the model's text, between the line `after` of the trace and the next; it is no part of the run."""

    kind: ClassVar[str] = "text_delta"
    run_id: str
    after: int
    text: str

    @property
    def subject(self) -> str:
        """The text, so that a reader may ask any event for its kind and its subject."""
        return self.text


@attrs.frozen
class DeltasDiscarded:
    """The pieces since the line `after` are void: the request failed, and may be made again."""

    kind: ClassVar[str] = "deltas_discarded"
    run_id: str
    after: int

    @property
    def subject(self) -> str:
        """The line's number."""
        return str(self.after)


@attrs.frozen
class Gap:
    """An observer was too slow, and so many events before the next one were dropped."""

    kind: ClassVar[str] = "gap"
    missed: int

    @property
    def subject(self) -> str:
        """How many were missed."""
        return str(self.missed)


StreamEvent = TraceEvent | TextDelta | DeltasDiscarded | Gap
