"""A tool as verifier (seed 002): it is given the goal, the answer so far, the evidence in short and how often each tool was called."""

from __future__ import annotations

from typing import Any

from fsm_agent.core import prompts
from fsm_agent.core.effects import Judge
from fsm_agent.core.errors import BuildError
from fsm_agent.core.table import Table
from fsm_agent.core.tools import Tool, Toolset
from fsm_agent.host.bodies import is_async
from fsm_agent.host.ports import Verifier

INPUTS = ("goal", "current_answer", "evidence_summaries", "tool_call_stats")
"""What a verifier tool may take; see `fsm_agent.core.prompts.verifier_inputs`."""


def tool_verifier(tool: Tool) -> Verifier:
    """The tool as a verifier: called with those of `INPUTS` that its contract names, outside of the gate and of all counts but rounds.

    Raises BuildError for one that needs anything else, that has no body here, or that a person has to be asked about.
    """
    if tool.where != "host" or tool.approval:
        what = f"runs at the {tool.where}" if tool.where != "host" else "asks for approval"
        raise BuildError(f"verify is the tool {tool.name!r}, which {what}; nobody is asked between, so give one that the host may just run")
    if more := _further(tool):
        raise BuildError(f"verify is the tool {tool.name!r}, which needs {more[0]!r}; a verifier is given {', '.join(INPUTS)}")
    named = tool.argument_schema().get("properties", INPUTS)
    names = [name for name in INPUTS if name in named]

    def verify(judge: Judge) -> Any:
        given = prompts.verifier_inputs(judge.run)
        return tool.fn(**{name: given[name] for name in names})

    async def averify(judge: Judge) -> Any:
        return await verify(judge)

    return averify if is_async(tool.fn) else verify


def verifier_of(table: Table, box: Toolset) -> Tool | None:
    """The tool that alone is allowed where answers are verified (seed 002's table), if it takes what a verifier is given and no more."""
    names = {name for state in table.states if state.work == "verify" and state.tools is not None for name in state.tools}
    tool = box.get(names.pop()) if len(names) == 1 else None
    if tool is None or tool.where != "host" or _further(tool) or not set(INPUTS) & set(tool.argument_schema().get("properties", ())):
        return None
    return tool


def _further(tool: Tool) -> list[str]:
    """What the tool needs and no verifier is given."""
    return [name for name in tool.argument_schema().get("required", ()) if name not in INPUTS]
