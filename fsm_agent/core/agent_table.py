"""The default machine, every row of it: normalize, gather, verify, repair, final."""

from __future__ import annotations

from fsm_agent.core.guards import (
    attempts_left,
    gather_rounds_left,
    has_repair,
    may_redecide,
    verify_rounds_left,
    within_limits,
)
from fsm_agent.core.table import Row, State, Table

AGENT = Table(
    name="agent",
    initial="normalize",
    states=(
        State("normalize", work="normalize"),
        State("gather", work="gather", tools=None),
        State("verify", work="verify"),
        State("repair", work="repair"),
        State("final", work="answer"),
    ),
    rows=(
        Row("normalize", "ready", "gather"),
        Row("normalize", "rejected", "final"),
        Row("gather", "called", "gather", (within_limits,)),
        Row("gather", "called", "final"),
        Row("gather", "failed", "repair", (has_repair, attempts_left), spends=("attempts",)),
        Row("gather", "failed", "gather", (may_redecide, within_limits), spends=("turns",)),
        Row("gather", "failed", "final"),
        Row("gather", "no_progress", "verify"),
        Row("gather", "proposed", "verify"),
        Row("gather", "stopped", "final"),
        Row("verify", "passed", "final"),
        Row(
            "verify",
            "insufficient",
            "gather",
            (verify_rounds_left, gather_rounds_left, within_limits),
            spends=("gather_rounds",),
        ),
        Row("verify", "insufficient", "final"),
        Row("verify", "stopped", "final"),
        Row("repair", "repaired", "gather", (attempts_left, within_limits)),
        Row("repair", "repaired", "final"),
        Row("repair", "exhausted", "final"),
    ),
)
