"""A tool-calling agent loop as an explicit finite state machine that always ends and says why.

Each name is loaded from its module when it is first used, so importing the package does nothing and costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fsm_agent._version import __version__

if TYPE_CHECKING:
    from fsm_agent.agent import Agent
    from fsm_agent.core.answers import Answer, Evidence
    from fsm_agent.core.autogpt_table import AUTOGPT
    from fsm_agent.core.contracts import Length, Pattern, Range
    from fsm_agent.core.effects import (
        CallTools,
        Compose,
        Decide,
        Judge,
        Wait,
    )
    from fsm_agent.core.engine import Engine
    from fsm_agent.core.errors import (
        BuildError,
        CannotDecide,
        CannotResume,
        FsmAgentError,
        MissingExtra,
        RunBusy,
        RunError,
        SavedRunError,
    )
    from fsm_agent.core.instructions import Prompts, TaskPolicy
    from fsm_agent.core.limits import Limits
    from fsm_agent.core.run import Call, Run, Stop
    from fsm_agent.core.setup import Setup
    from fsm_agent.core.strategies import combine, max_iterations, until_finish_reason
    from fsm_agent.core.table import Row, State, Table
    from fsm_agent.core.tools import BreakerPolicy, Outcome, Retry, Tool
    from fsm_agent.core.values import (
        Decision,
        EffectClass,
        Judgement,
        Policy,
        ResultClass,
        Status,
        StopReason,
        ToolCall,
        Usage,
        Verdict,
    )
    from fsm_agent.desk import ToolDesk
    from fsm_agent.host.hooks import Hooks, Skip
    from fsm_agent.host.ports import ToolContext
    from fsm_agent.host.tool_forms import tool

_HOMES = {
    "fsm_agent.agent": "Agent",
    "fsm_agent.core.answers": "Answer Evidence",
    "fsm_agent.core.autogpt_table": "AUTOGPT",
    "fsm_agent.core.contracts": "Length Pattern Range",
    "fsm_agent.core.effects": "CallTools Compose Decide Judge Wait",
    "fsm_agent.core.engine": "Engine",
    "fsm_agent.core.errors": "BuildError CannotDecide CannotResume FsmAgentError MissingExtra RunBusy RunError SavedRunError",
    "fsm_agent.core.instructions": "Prompts TaskPolicy",
    "fsm_agent.core.limits": "Limits",
    "fsm_agent.core.run": "Call Run Stop",
    "fsm_agent.core.setup": "Setup",
    "fsm_agent.core.strategies": "combine max_iterations until_finish_reason",
    "fsm_agent.core.table": "Row State Table",
    "fsm_agent.core.tools": "BreakerPolicy Outcome Retry Tool",
    "fsm_agent.core.values": "Decision EffectClass Judgement Policy ResultClass Status StopReason ToolCall Usage Verdict",
    "fsm_agent.desk": "ToolDesk",
    "fsm_agent.host.hooks": "Hooks Skip",
    "fsm_agent.host.ports": "ToolContext",
    "fsm_agent.host.tool_forms": "tool",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "AUTOGPT",
    "Agent",
    "Answer",
    "BreakerPolicy",
    "BuildError",
    "Call",
    "CallTools",
    "CannotDecide",
    "CannotResume",
    "Compose",
    "Decide",
    "Decision",
    "EffectClass",
    "Engine",
    "Evidence",
    "FsmAgentError",
    "Hooks",
    "Judge",
    "Judgement",
    "Length",
    "Limits",
    "MissingExtra",
    "Outcome",
    "Pattern",
    "Policy",
    "Prompts",
    "Range",
    "ResultClass",
    "Retry",
    "Row",
    "Run",
    "RunBusy",
    "RunError",
    "SavedRunError",
    "Setup",
    "Skip",
    "State",
    "Status",
    "Stop",
    "StopReason",
    "Table",
    "TaskPolicy",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolDesk",
    "Usage",
    "Verdict",
    "Wait",
    "__version__",
    "combine",
    "max_iterations",
    "tool",
    "until_finish_reason",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'fsm_agent' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
