"""What the scripted parts of a scenario need of the world that they are in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from fsm_agent.host.ports import ToolContext


class Surroundings(Protocol):
    """The world as its tools and its model see it; `violations` are sentences about scripts that were left."""

    asynchronous: bool
    violations: list[str]

    @property
    def argument_schemas(self) -> Mapping[str, Any]:
        """The JSON Schema of each tool's arguments."""
        ...

    def pause(self, seconds: float) -> None:
        """Let virtual time pass in a thread."""
        ...

    async def apause(self, seconds: float) -> None:
        """Let virtual time pass in a task."""
        ...

    def hold(self, tool: str, context: ToolContext | None) -> None:
        """Hold a body in a thread where a step waits for it."""
        ...

    async def ahold(self, tool: str, context: ToolContext | None) -> None:
        """Hold a body in a task where a step waits for it."""
        ...

    def body_began(self) -> None:
        """A body has begun."""
        ...

    def body_ended(self) -> None:
        """A body has ended, however."""
        ...
