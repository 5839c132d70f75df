"""The guards as an add-on: a host's tools behind the gate and the engine, for loops that somebody else drives.

    guard = Guarded([search, fetch], limits=Limits(max_tool_calls=8, max_turns=None))
    session = guard.session()
    result = session.call("search", {"query": "shoes"})

Every call passes what an agent's call passes (contract, budgets, repetitions, memory, breaker, timeout, result), and a
failure is a value. Once a guard of the whole session has closed, calls get ``stopped:<reason>`` and reach no body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fsm_agent.agent import Agent
from fsm_agent.core.guards import attempts_left, has_repair, may_redecide, within_limits
from fsm_agent.core.limits import Limits
from fsm_agent.core.table import Row, State, Table
from fsm_agent.core.tools import Tool
from fsm_agent.core.values import Policy
from fsm_agent.guarded_session import Result, Session
from fsm_agent.host.clock import Clock
from fsm_agent.host.memory import Memory

__all__ = ["GUARDED", "Guarded", "Result", "Session"]

GUARDED = Table(
    name="guarded",
    initial="gather",
    states=(
        State("gather", work="gather", tools=None),
        State("repair", work="repair"),
        State("final", work="answer"),
    ),
    rows=(
        Row("gather", "called", "gather", (within_limits,)),
        Row("gather", "called", "final"),
        Row("gather", "no_progress", "gather", (within_limits,)),
        Row("gather", "no_progress", "final"),
        Row("gather", "failed", "repair", (has_repair, attempts_left), spends=("attempts",)),
        Row("gather", "failed", "gather", (may_redecide, within_limits), spends=("turns",)),
        Row("gather", "failed", "final"),
        Row("gather", "proposed", "final"),
        Row("gather", "stopped", "final"),
        Row("repair", "repaired", "gather", (attempts_left, within_limits)),
        Row("repair", "repaired", "final"),
        Row("repair", "exhausted", "final"),
    ),
)
"""The agent's machine without request, verification and answer, which belong to the loop that drives a session."""


class Guarded:
    """A host's tools behind guards, shared by any number of sessions; it holds no run.

    `limits` bound one session. A call is a turn here, so `max_turns` is off where no limits are given, and the deadline
    counts the time inside calls alone. The rest is as for an `Agent`; memory, breakers and the turns of exclusive tools
    are shared by all sessions. Raises BuildError when any of these is wrong, naming the mend.
    """

    def __init__(
        self,
        tools: Iterable[Any] | Mapping[str, Any],
        *,
        limits: Limits | None = None,
        policy: Policy | None = None,
        repairs: Mapping[str, Callable[[str, Any], tuple[str, Any] | None]] | None = None,
        memory: Memory | None = None,
        ttl_s: float | None = None,
        negative_ttl_s: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.agent = Agent(
            tools,
            None,
            limits=limits if limits is not None else Limits(max_turns=None),
            machine=GUARDED,
            policy=policy,
            repairs=repairs,
            memory=memory,
            ttl_s=ttl_s,
            negative_ttl_s=negative_ttl_s,
            clock=clock,
        )

    @property
    def tools(self) -> list[Tool]:
        """The tools, in the order they were given."""
        box = self.agent.engine.setup.box
        return [tool for name in box.names() if (tool := box.get(name)) is not None]

    def session(self, *, context: Any = None, **start: Any) -> Session:
        """A new conversation; `start` takes limits, run_id, scope and seed, `context` reaches the tools' bodies."""
        return Session(self.agent, self.agent._started("session", start), context)

    def load(self, text: object, *, context: Any = None) -> Session:
        """A saved session, ready to go on; raises SavedRunError for what is no session of this machine."""
        return Session(self.agent, self.agent.load(text), context)
