"""The machine of seed 002, every row of it: plan, fetch, synth, verify, done."""

from __future__ import annotations

from fsm_agent.core.guards import enough_evidence, gather_rounds_left, may_redecide, verify_rounds_left, within_limits
from fsm_agent.core.limits import Limits
from fsm_agent.core.table import Row, State, Table

AUTOGPT = Table(
    name="autogpt",
    limits=Limits.autogpt(),
    initial="plan",
    states=(
        State("plan", work="plan"),
        State("fetch", work="gather", tools=None),
        State("synth", work="synthesize"),
        State("verify", work="verify"),
        State("done", work="answer"),
    ),
    rows=(
        Row("plan", "rejected", "done"),
        Row("plan", "planned", "fetch"),
        Row("plan", "called", "plan", (within_limits,)),
        Row("plan", "called", "done"),
        Row("plan", "failed", "plan", (may_redecide, within_limits), spends=("turns",)),
        Row("plan", "failed", "done"),
        Row("plan", "stopped", "done"),
        Row("fetch", "called", "synth", (enough_evidence,)),
        Row("fetch", "called", "fetch", (within_limits,)),
        Row("fetch", "called", "done"),
        Row("fetch", "failed", "fetch", (may_redecide, within_limits), spends=("turns",)),
        Row("fetch", "failed", "done"),
        Row("fetch", "no_progress", "verify"),
        Row("fetch", "proposed", "verify"),
        Row("fetch", "stopped", "done"),
        Row("synth", "written", "verify"),
        Row("synth", "stopped", "done"),
        Row("verify", "passed", "done"),
        Row(
            "verify",
            "insufficient",
            "fetch",
            (verify_rounds_left, gather_rounds_left, within_limits),
            spends=("gather_rounds",),
        ),
        Row("verify", "insufficient", "done"),
        Row("verify", "stopped", "done"),
    ),
)
