"""Replaying a journal: the same events told again rebuild the same run, on any machine, without a decider or a tool."""

from __future__ import annotations

from fsm_agent.core.engine import Engine
from fsm_agent.core.events import Resumed
from fsm_agent.core.run import Run


def replay(engine: Engine, run: Run, steps: int | None = None) -> Run:
    """A run rebuilt from the journal of another, whole or up to so many events; the other is left as it is.

    The rebuilt run equals the other at that step. Raises RunError where the engine's machine takes the events otherwise.
    """
    first = next((event for _, event in run.journal if isinstance(event, Resumed)), None)
    limits = first.before if first is not None else run.limits
    again = engine.start(
        run.given, run_id=run.id, limits=limits, scope=run.scope, seed=run.seed, fields=run.first_fields
    )
    # Where the journal holds the seal of a secret, its contract was measured when it was told the first time.
    again.replaying = run
    for at, event in run.journal[:steps]:
        if isinstance(event, Resumed):
            engine.go_on(again, event.limits, event.again)
        else:
            engine.tell(again, event, at)
    again.replaying = None
    return again
