"""What the scripted parts of a scenario have around them: virtual time, bodies that are held, and what is counted of them."""

from __future__ import annotations

from typing import Any

from fsm_agent.host.ports import ToolContext
from fsm_agent.scenario.stage import Stage
from fsm_agent.scenario.track import DRIVEN


class Surroundings:
    """The world as its tools and its model see it; `violations` are sentences about scripts that were left.

    `argument_schemas` has the JSON Schema of each tool's arguments, `active` and `most_active` count the bodies of all tools.
    """

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.violations: list[str] = []
        self.argument_schemas: dict[str, Any] = {}
        self.active = self.most_active = 0

    async def hold(self, tool: str, context: ToolContext | None) -> None:
        """Hold a body where a step waits for it."""
        track = DRIVEN.get()
        hold = track.hold if track is not None else None
        if track is None or hold is None or hold.reached or context is None or hold.call not in (context.call_id, tool):
            return
        hold.reached, hold.place = True, self.stage.place()
        if track.drive is not None:
            track.drive.news.set()
        await hold.let_go.wait()

    def body_began(self) -> None:
        """A body has begun."""
        self.active += 1
        self.most_active = max(self.most_active, self.active)

    def body_ended(self) -> None:
        """A body has ended, however."""
        self.active -= 1
