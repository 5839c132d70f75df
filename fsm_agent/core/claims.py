"""Claims that a proof of ending rests on and that nobody but their author vouches for, held against every run.

What a kind of work of the user's own, or a row, says that it is sure to spend cannot be proved when a machine is built. So it is
looked at each time that the row is walked; a run in which it does not hold would perhaps never end, and is ended there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from fsm_agent.core.guards import spendings
from fsm_agent.core.run import Run
from fsm_agent.core.table import KINDS, Table


@attrs.frozen
class Claim:
    """The counters that are claimed for a walk; `stepped` where a limit of steps, which nobody can fake, is looked at too."""

    counters: tuple[str, ...]
    stepped: bool


# For each state the claims for a walk by this outcome to that state.
Claims = Mapping[str, Mapping[tuple[str, str], Claim]]


def claims_of(table: Table) -> Claims:
    """What has to be looked at in runs of this machine; rows between built-in work that claim nothing themselves do not."""
    found: dict[str, dict[tuple[str, str], Claim]] = {}
    for row in table.rows:
        kind = table.kinds[table.state(row.source).work]
        own = () if kind is KINDS.get(kind.name) else kind.outcomes.get(row.outcome, ())
        claimed = {*row.spends, *own} - {"steps"}
        if claimed and not table.state(row.target).final:
            here = found.setdefault(row.source, {})
            stepped = any(part.counter == "steps" for guard in row.guards for part in spendings(guard))
            before = here.get((row.outcome, row.target))
            if before is not None:
                # Rows that differ in their guards alone are one walk: what one of them does not claim may not have been spent.
                claimed, stepped = claimed & set(before.counters), stepped and before.stepped
            here[row.outcome, row.target] = Claim(tuple(sorted(claimed)), stepped)
    return found


def restarts_of(table: Table) -> Mapping[str, str]:
    """For each counter that may start anew the one within whose one unit it counts."""
    return {part.counter: part.within for row in table.rows for guard in row.guards for part in spendings(guard) if part.within}


def broken_claim(run: Run, walked: tuple[str, str, str], counters: tuple[str, ...], restarts: Mapping[str, str]) -> str:
    """The counter that was to rise between two walks of this row and did not, or an empty text; notes how they stand."""
    key = " ".join(walked)
    names = sorted({*counters, *(restarts[name] for name in counters if name in restarts)})
    now = [_standing(run, name) for name in names]
    if run.claimed is None:
        run.claimed = {}
    before = run.claimed.get(key)
    run.claimed[key] = now
    if before is None:
        return ""
    risen = {name for name, old, new in zip(names, before, now, strict=True) if new > old}
    return next((name for name in counters if name not in risen and restarts.get(name, "") not in risen), "")


def _standing(run: Run, counter: str) -> float:
    value: Any = getattr(run, counter) if hasattr(run, counter) else run.fields.get(counter)
    # What is no figure never rises.
    return value if type(value) in (int, float) and abs(value) < 1e300 else 0
