"""Who hears of a run while it is driven: the port between drivers and streams."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from fsm_agent.core.run import Run
from fsm_agent.host.pace import Pace


class Watch(Protocol):
    """Who hears of a run while it is driven; it may hold the driver up, and what it raises ends the drive.

    `turn`, where it is one, is awaited between the steps of a task, so that a reader can set the pace; `pace`, where there is such a
    reader, is how long it held the drive up.
    """

    pace: Pace | None
    turn: Callable[[], Awaitable[None]] | None

    def happened(self, run: Run) -> None:
        """Something was told to the run; its trace may have new lines."""
        ...

    def delta(self, run: Run, text: str) -> None:
        """A piece of text arrived from the model, between two lines of the trace."""
        ...

    def discarded(self, run: Run) -> None:
        """The pieces since the last line are void: the request failed."""
        ...
