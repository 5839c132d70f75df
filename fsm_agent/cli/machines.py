"""The machines that a command can name."""

from __future__ import annotations

import attrs

from fsm_agent.cli.named import attribute_named, reading
from fsm_agent.core.errors import BuildError
from fsm_agent.core.gate import Toolbox
from fsm_agent.core.limits import Limits
from fsm_agent.core.setup import Setup
from fsm_agent.core.table import Kind, State, Table

NAMES = ("agent", "autogpt", "desk", "naive")
DRAWN = (*NAMES, "breaker")


@attrs.frozen
class Machine:
    """A table with the limits that it is run under, where it is run at all, and the tools of the agent that runs it."""

    table: Table
    limits: Limits | None
    box: Toolbox | None = None


def machine_help(*names: str) -> str:
    """What the option ``--machine`` takes, in words."""
    return f"{', '.join(names)}, or module:attribute of your own: a Table, or what has one as .table."


def machine_of(name: str, *names: str) -> Machine:
    """The machine of a name; raises BuildError, naming what there is, when there is none."""
    if ":" in name:
        return _imported(name)
    if name not in names:
        raise BuildError(f"there is no machine {name!r}; take {', '.join(names)} or module:attribute")
    if name == "breaker":
        return Machine(breaker_table(), None)
    if name == "agent":
        from fsm_agent.core.agent_table import AGENT

        return Machine(AGENT, Limits())
    if name == "autogpt":
        from fsm_agent.core.autogpt_table import AUTOGPT

        return Machine(AUTOGPT, AUTOGPT.limits)
    from fsm_agent.lab.tables import DESK, NAIVE

    return Machine(DESK if name == "desk" else NAIVE, Limits.lab())


def breaker_table() -> Table:
    """The circuit breaker's rows as a table that can be drawn; it never ends, so no run can use it."""
    from fsm_agent.host.breaker import BreakerState, rows

    about = {
        BreakerState.CLOSED: "takes every call",
        BreakerState.OPEN: "takes no call",
        BreakerState.HALF_OPEN: "takes one probe at a time",
    }
    table = rows()
    kinds = {
        state.value: Kind(name=state.value, about=says, outcomes={str(row.outcome): () for row in table if row.source == state})
        for state, says in about.items()
    }
    return Table(
        name="breaker",
        initial=BreakerState.CLOSED,
        states=[State(state, work=state.value) for state in about],
        rows=table,
        kinds=kinds,
    )


def _imported(name: str) -> Machine:
    from fsm_agent.diagrams import table_of

    found = attribute_named(name)
    with reading(repr(name)):
        engine = getattr(found, "engine", None)
        setups = (found, getattr(found, "setup", None), getattr(engine, "setup", None))
        own = (getattr(one, "limits", None) for one in setups)
        limits = next((one for one in own if isinstance(one, Limits)), Limits())
        box = next((one.box for one in setups if isinstance(one, Setup)), None)
        try:
            return Machine(table_of(found), limits, box)
        except BuildError:
            raise BuildError(f"{name!r} is a {type(found).__name__:.60}, which has no table of states and rows") from None
