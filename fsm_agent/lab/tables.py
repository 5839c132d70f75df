"""The lab's two machines, every row of them: with repair (step 7 of seed 003) and without (step 6)."""

from __future__ import annotations

from fsm_agent.core.guards import attempts_left, has_repair, steps_left
from fsm_agent.core.table import Row, State, Table

_FINALS = (State("reply", work="answer"), State("giveup", work="answer"))

NAIVE = Table(
    name="naive desk",
    initial="pick",
    states=(State("pick", work="decide"), State("fetch", work="call", tools=None), *_FINALS),
    rows=(
        Row("pick", "decided", "fetch"),
        Row("pick", "proposed", "reply"),
        Row("pick", "failed", "giveup"),
        Row("pick", "stopped", "giveup"),
        Row("fetch", "called", "reply"),
        Row("fetch", "failed", "giveup"),
        Row("fetch", "no_progress", "giveup"),
        Row("fetch", "stopped", "giveup"),
    ),
)

DESK = Table(
    name="desk",
    initial="pick",
    states=(
        State("pick", work="decide"),
        State("fetch", work="call", tools=None),
        State("repair", work="repair"),
        *_FINALS,
    ),
    rows=(
        Row("pick", "decided", "fetch"),
        Row("pick", "proposed", "reply"),
        Row("pick", "failed", "giveup"),
        Row("pick", "stopped", "giveup"),
        Row("fetch", "called", "reply"),
        Row("fetch", "failed", "repair", (has_repair, attempts_left, steps_left), spends=("attempts",)),
        Row("fetch", "failed", "giveup"),
        Row("fetch", "no_progress", "giveup"),
        Row("fetch", "stopped", "giveup"),
        Row("repair", "repaired", "fetch"),
        Row("repair", "exhausted", "giveup"),
    ),
)
