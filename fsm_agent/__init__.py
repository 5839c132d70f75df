"""A tool-calling agent loop as an explicit finite state machine that always ends and says why."""

from fsm_agent._version import __version__
from fsm_agent.agent import Agent
from fsm_agent.core.answers import Answer, Evidence
from fsm_agent.core.contracts import Length, Pattern, Range
from fsm_agent.core.effects import CallTools, Compose, Decide, Judge, Wait
from fsm_agent.core.engine import Engine
from fsm_agent.core.errors import BuildError, CannotResume, FsmAgentError, MissingExtra, RunError, SavedRunError
from fsm_agent.core.limits import Limits
from fsm_agent.core.run import Call, Run, Stop
from fsm_agent.core.setup import Setup
from fsm_agent.core.table import Row, State, Table
from fsm_agent.core.tools import BreakerPolicy, Retry, Tool
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
from fsm_agent.host.ports import ToolContext
from fsm_agent.host.tool_forms import tool

__all__ = [
    "Agent",
    "Answer",
    "BreakerPolicy",
    "BuildError",
    "Call",
    "CallTools",
    "CannotResume",
    "Compose",
    "Decide",
    "Decision",
    "EffectClass",
    "Engine",
    "Evidence",
    "FsmAgentError",
    "Judge",
    "Judgement",
    "Length",
    "Limits",
    "MissingExtra",
    "Pattern",
    "Policy",
    "Range",
    "ResultClass",
    "Retry",
    "Row",
    "Run",
    "RunError",
    "SavedRunError",
    "Setup",
    "State",
    "Status",
    "Stop",
    "StopReason",
    "Table",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolDesk",
    "Usage",
    "Verdict",
    "Wait",
    "__version__",
    "tool",
]
