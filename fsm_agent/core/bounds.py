"""The worst case of a run, computed from its limits and tools before the first call (01: it always ends)."""

from __future__ import annotations

from collections.abc import Collection

import attrs

from fsm_agent.core.gate import Toolbox
from fsm_agent.core.limits import Limits
from fsm_agent.core.table import Table
from fsm_agent.core.tools import Tool
from fsm_agent.core.values import EffectClass, Policy

_ASKING = ("decide", "gather", "plan")
_CALLING = ("call", "gather")


@attrs.frozen(kw_only=True)
class WorstCase:
    """The most that one run can spend, each figure None where nothing bounds it.

    `model_turns` counts requests to the model, failed and closing ones included. `tool_calls` counts admitted calls, `tool_runs`
    bodies (one call may be tried more than once), `per_tool` the bodies of each tool. `repair_rounds` counts how often failed
    calls of a turn are changed and tried again, `verify_rounds` how often an answer is judged. `wait_s` is the time spent waiting
    between tries, `seconds` all time in which something is begun. What an operator adds by raising a limit is not in it.
    """

    model_turns: int | None
    tool_calls: int | None
    tool_runs: int | None
    per_tool: dict[str, int | None]
    repair_rounds: int | None
    verify_rounds: int | None
    wait_s: float | None
    seconds: float | None


def worst_case(
    table: Table, limits: Limits, box: Toolbox, policy: Policy | None = None, repairs: Collection[str] | None = ()
) -> WorstCase:
    """The worst case of any run of this machine under these limits; `repairs` names the repairs that there are (None: nobody knows)."""
    policy = policy if policy is not None else Policy()
    works = {state.work for state in table.states}
    turns = _turns(limits, policy) if works & {*_ASKING, "synthesize"} or policy.reserve_answer else 0
    verifies = _verify_rounds(limits) if "verify" in works else 0
    calls = _calls(limits, turns, verifies) if works & {*_CALLING} else 0
    tools = {name: box.get(name) for name in box.names()}
    per_tool = {
        name: _runs_of(tool, limits, calls) if any(state.tools is None or name in state.tools for state in table.states) else 0
        for name, tool in tools.items()
        if tool is not None
    }
    tries = max((_tries(tool, limits) for tool in tools.values() if tool is not None), default=0)
    rounds: int | None = 0
    if "repair" in works and (repairs is None or repairs):
        each = _least(None if repairs is None else len(set(repairs)), None if limits.max_attempts is None else limits.max_attempts - 1)
        rounds = None if turns is None or verifies is None or each is None else (turns + verifies) * each
    deadline, waits = limits.deadline_s, limits.max_wait_s
    return WorstCase(
        model_turns=turns,
        tool_calls=calls,
        tool_runs=_least(_times(calls, tries), _sum(per_tool.values())),
        per_tool=per_tool,
        repair_rounds=rounds,
        verify_rounds=verifies,
        wait_s=min((one for one in (deadline, waits) if one is not None), default=None),
        seconds=deadline,
    )


def _turns(limits: Limits, policy: Policy) -> int | None:
    if limits.max_turns is not None:
        # The closing turn is one of them: none is made where they are used up.
        return limits.max_turns
    if limits.max_steps is None:
        return None
    # A state is entered for each turn, but for a request that is made again because it failed.
    return limits.max_steps * policy.model_attempts + 1


def _verify_rounds(limits: Limits) -> int | None:
    # Each round after the first one follows a no that was let go on.
    return _least(limits.max_verify_rounds, None if limits.max_attempts is None else limits.max_attempts + 1, limits.max_steps)


def _calls(limits: Limits, turns: int | None, verifies: int | None) -> int | None:
    each = limits.max_calls_per_turn
    by_turn = None
    if turns is not None and verifies is not None and each is not None:
        # A verifier's next action is a turn of its own for the gate; repaired calls pass it again.
        by_turn = _times(turns + verifies, each * (limits.max_attempts or 1)) if limits.max_attempts is not None else None
    return _least(limits.max_tool_calls, by_turn)


def _tries(tool: Tool, limits: Limits) -> int:
    if tool.effect is EffectClass.AT_MOST_ONCE:
        return 1
    return tool.retry.attempts if limits.max_attempts is None else max(1, min(tool.retry.attempts, limits.max_attempts))


def _runs_of(tool: Tool, limits: Limits, calls: int | None) -> int | None:
    if tool.where == "client":
        return 0
    return _times(_least(limits.for_tool(tool.name), calls), _tries(tool, limits))


def _least(*figures: int | None) -> int | None:
    return min((figure for figure in figures if figure is not None), default=None)


def _times(one: int | None, other: int) -> int | None:
    return None if one is None else one * other


def _sum(figures: Collection[int | None]) -> int | None:
    found = [figure for figure in figures if figure is not None]
    return sum(found) if len(found) == len(figures) else None
