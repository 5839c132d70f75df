"""What a model is told of the rules, made from the machine, the tools and the limits in force.

The words are never kept beside the figures, so they cannot disagree with them. Sources: the stop contract of seed 000, the
agent policy and the task policy of seed 001, the verifier of seed 002.
"""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from fsm_agent.core.limits import OTHERS, Limits
from fsm_agent.core.messages import Message, Role
from fsm_agent.core.plain import cut, dumps, storable
from fsm_agent.core.run import Call, Run
from fsm_agent.core.tools import Tool
from fsm_agent.core.values import Policy, ResultClass

QUESTION = "Question:"
"""How the last line of a text begins that asks the user something, for models whose answers are nothing but text."""
_PIECE = 300
_LAST = 5
_SHORT = 80


def stop_contract(limits: Limits, policy: Policy) -> str:
    """When to call a tool and when to end (seed 000), with the number of identical calls that is in force."""
    return "\n".join(
        [
            "Rules:",
            "1) Call a tool only when it is really needed.",
            f"2) {_same_call(limits, policy)}",
            "3) When the results do not suffice, ask the user exactly one question as your final answer,"
            f' in a last line that begins with "{QUESTION}".',
            "4) Give the final answer as soon as you can.",
        ]
    )


def agent_policy(limits: Limits, policy: Policy, tools: Collection[str] | None = None, state: str = "") -> str:
    """The policy of seed 001 with the figures in force: hard limits, repetitions, stop conditions, fallback, discipline."""
    lines = ["[Agent policy]", "- You may call tools to gather facts."]
    hard = _hard_limits(limits)
    if hard:
        lines += ["- Hard limits:", *(f"  - {line}" for line in hard)]
    lines += ["- Repetitions:", f"  - {_same_call(limits, policy)}"]
    lines += ["  - If you must call a tool again, say what changed and why it can give new facts."]
    lines += ["- Stop at once and answer when:", *(f"  {n}) {line}" for n, line in enumerate(_stop_conditions(limits), 1))]
    lines += ["- When facts stay missing within the limits, give the best answer you can, with:"]
    lines += ["  - assumptions", "  - unknowns", "  - next questions for the user"]
    lines += ["- Each call must add something new; otherwise answer."]
    if tools is not None:
        where = f" in the state {state!r}" if state else ""
        lines.append(f"- Tools you may call now{where}: {', '.join(tools) or 'none; answer in text'}")
    return "\n".join(lines)


def task_policy(
    goal: str, done: Sequence[str] = (), output: str = "", tool_rules: Sequence[str] = ()
) -> str:
    """The task in four parts (the last block of seed 001): goal, conditions of being done, output format, rules for tools."""
    parts = [f"Goal: {goal}"]
    if done:
        parts += ["Done when:", *(f"- {line}" for line in done)]
    if output:
        parts.append(f"Output: {output}")
    if tool_rules:
        parts += ["Rules for tools:", *(f"- {line}" for line in tool_rules)]
    return "\n".join(parts)


def verifier_prompt(run: Run, required: Collection[str] = (), tools: Sequence[Tool] = ()) -> str:
    """What a verifying model is asked (seed 002): its inputs, the checklist, the JSON to answer with, and what a next action may call."""
    least = run.limits.min_evidence or 0
    given = verifier_inputs(run)
    last = [call for call in run.calls if call.admitted][-_LAST:]
    lines = [
        "You check the result of an agent. Answer with one JSON object and nothing else:",
        '{"decision": "done" or "need_more", "reason": at most two sentences,'
        ' "next_action": null or {"tool": name, "args": object}}',
        "Checklist:",
        f"1) Does the answer hold everything that the goal asks for{_from(required)}?",
        f"2) Are there at least {least} pieces of evidence, independent of each other?",
        f"3) Were the last {_LAST} calls repeated or without progress?",
        "4) Is a budget of calls, turns, time or money about to be exceeded?",
        f"goal: {given['goal']}",
        f"current_answer: {given['current_answer']}",
        "evidence_summaries:",
        *(f"- {piece}" for piece in given["evidence_summaries"]),
        f"tool_call_stats: {dumps(storable(given['tool_call_stats']))}",
        "last_calls:",
        *(f"- {call.tool} {_piece(call.args)} -> {_outcome(call)}" for call in last),
        f"left: {_left(run)}",
    ]
    may_call = stubs(tools)
    return "\n".join([*lines, "next_action may call:", may_call] if may_call else lines)


def verifier_inputs(run: Run) -> dict[str, Any]:
    """What a verifier judges by (seed 002): `goal` and `current_answer` as text, `evidence_summaries` as a list of texts, the last
    20, and `tool_call_stats`, the number of calls by tool.
    """
    draft = run.draft.text if run.draft is not None and isinstance(run.draft.text, str) else ""
    return {
        "goal": cut(_text(run.request), 4000),
        "current_answer": cut(draft, 4000),
        "evidence_summaries": [f"{call.id} {call.tool}: {_piece(call.value)}" for call in run.evidence()[-20:]],
        "tool_call_stats": dict(run.tool_counts),
    }


def planning_prompt(tools: Sequence[Tool]) -> str:
    """What a model is told where a plan is wanted (seed 002's `plan`): that it is no answer, and the tools that come later."""
    lines = ["Write a plan now, not the answer: what has to be found out, with which tool, in which order. Nothing can be called yet."]
    return "\n".join([*lines, "Tools you may call afterwards:", *map(_offered, tools)] if tools else lines)


def _offered(tool: Tool) -> str:
    about = tool.description.strip()
    return f"- {tool.name}: {about.splitlines()[0]}" if about else f"- {tool.name}"


def closing_prompt(run: Run) -> str:
    """What a model is asked for when the run was stopped: the best answer out of what there is, without tools."""
    why = run.stop.reason.value if run.stop is not None else "stopped"
    return (
        f"No further tool can be called ({why}). Give the best answer that the results so far allow,"
        " and name assumptions, unknowns and next questions."
    )


def synthesis_prompt(run: Run) -> str:
    """What a model is asked for once there is evidence enough: the answer, from the evidence alone."""
    lines = ["Write the answer from this evidence alone; cite the ids of what you use.", "Evidence:"]
    return "\n".join([*lines, *(f"- {call.id} {call.tool}: {_piece(call.value)}" for call in run.evidence()[-50:])])


class Standing(NamedTuple):
    """The figures of a run that a model is told, as they stood at one moment."""

    limits: Limits
    turns: int
    tool_calls: int
    steps: int
    tokens: int
    cost: float
    spent_s: float


def state_summary(run: Run | Standing, messages: Sequence[Message]) -> str:
    """One short paragraph after each tool result (seed 001): what is left, what is known, what failed.

    `messages` is the run's history; its last results are what is known.
    """
    known: list[str] = []
    failed: list[str] = []
    for message in messages[-2 * _LAST :]:
        if message.role is Role.TOOL:
            if message.error:
                failed.append(f"{message.tool}: {message.error}")
            else:
                known.append(f"{message.tool}: {message.text if len(message.text) <= _SHORT else cut(message.text, _SHORT)}")
    parts = [f"Left: {_left(run)}.", f"Known: {'; '.join(known)}." if known else "Known: nothing yet."]
    if failed:
        parts.append(f"Failed: {'; '.join(failed)}.")
    return " ".join(parts)


def left_of(run: Run | Standing) -> dict[str, float | None]:
    """What is left of the run's budgets, by the limit's name; None where there is no limit."""
    limits = run.limits
    return {
        "max_turns": _rest(limits.max_turns, run.turns),
        "max_tool_calls": _rest(limits.max_tool_calls, run.tool_calls),
        "max_steps": _rest(limits.max_steps, run.steps),
        "max_tokens": _rest(limits.max_tokens, run.tokens),
        "max_cost": _rest(limits.max_cost, run.cost),
        "deadline_s": _rest(limits.deadline_s, run.spent_s),
    }


def _rest(limit: float | None, spent: float) -> float | None:
    return None if limit is None else limit - spent if limit > spent else 0


def _left(run: Run | Standing) -> str:
    limits, said = run.limits, []
    if limits.max_tool_calls is not None:
        said.append(_counted(_rest(limits.max_tool_calls, run.tool_calls), "call"))
    if limits.max_turns is not None:
        said.append(_counted(_rest(limits.max_turns, run.turns), "turn"))
    if limits.deadline_s is not None:
        said.append(f"{_rest(limits.deadline_s, run.spent_s):.4g} seconds")
    if limits.max_tokens is not None:
        said.append(f"{_rest(limits.max_tokens, run.tokens)} tokens")
    if limits.max_cost is not None:
        said.append(f"{_rest(limits.max_cost, run.cost):.4g} cost")
    return ", ".join(said) or "no limit"


def _counted(number: float | None, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _hard_limits(limits: Limits) -> list[str]:
    lines = []
    if limits.max_tool_calls is not None:
        lines.append(f"Tool calls in all: {limits.max_tool_calls}")
    if limits.max_turns is not None:
        lines.append(f"Turns: {limits.max_turns}")
    elif limits.max_steps is not None:
        lines.append(f"Steps, each turn being one: {limits.max_steps}")
    if limits.max_calls_per_turn is not None:
        lines.append(f"Tool calls in one turn: {limits.max_calls_per_turn}")
    if isinstance(limits.max_same_tool_calls, int):
        lines.append(f"Calls of one tool: {limits.max_same_tool_calls}")
    elif limits.max_same_tool_calls:
        named = {"any other" if tool == OTHERS else tool: figure for tool, figure in limits.max_same_tool_calls.items()}
        most = [f"{tool}: {figure}" for tool, figure in named.items() if figure is not None]
        lines += [f"Calls of one tool: {', '.join(most)}"] if most else []
    if limits.stop_after_tool_calls is not None:
        lines.append(f"Tool calls asked for after which no turn begins: {limits.stop_after_tool_calls}")
    if limits.deadline_s is not None:
        lines.append(f"Time: {limits.deadline_s:g} s")
    return lines


def _same_call(limits: Limits, policy: Policy) -> str:
    most = limits.max_same_call
    if most is None and limits.dedup_window is None:
        return "Do not repeat a call with the same arguments unless its result can have changed."
    if most is None:
        return f"Do not repeat any of the last {limits.dedup_window} calls with the same arguments."
    often = "once" if most == 1 or policy.duplicates == "first" else _counted(most, "time")
    among = f" among the last {limits.dedup_window} calls" if limits.dedup_window is not None else ""
    return f"Do not call the same tool with the same arguments more than {often}{among}."


def _stop_conditions(limits: Limits) -> list[str]:
    lines = ["You have what the final answer needs."]
    if limits.max_empty_results is not None:
        lines.append(f"A tool finds nothing {_counted(limits.max_empty_results, 'time')} for the same intent.")
    if limits.max_tool_errors is not None:
        lines.append(f"Tools have failed {_counted(limits.max_tool_errors, 'time')} in all.")
    if limits.max_tool_calls is not None:
        lines.append("No tool call is left.")
    return lines


def _from(required: Collection[str]) -> str:
    return f", with evidence from {', '.join(required)}" if required else ""


def _outcome(call: Call) -> str:
    if call.error:
        return call.error
    return "nothing" if call.result_class is ResultClass.EMPTY else "found something"


def _piece(value: object) -> str:
    return cut(_text(value), _PIECE)


def _text(value: object) -> str:
    return value if isinstance(value, str) else dumps(storable(value))


def stubs(tools: Sequence[Tool]) -> str:
    """The tools as Python signatures, for the model that writes the program; those that no program can call are left out."""
    return "\n".join(_stub(tool) for tool in tools if _is_name(tool.name) and not (tool.secret or tool.where == "program"))


def _stub(tool: Tool) -> str:
    schema = tool.argument_schema()
    required = schema.get("required", ())
    given = [(name, _type(part), name in required) for name, part in schema.get("properties", {}).items()]
    parts = [f"{name}: {kind}" + ("" if needed else " = ...") for name, kind, needed in given if _is_word(name)]
    parts += [f"**{{{name!r}: {kind}}}" for name, kind, _ in given if not _is_word(name)]
    about = f"  # {tool.description.splitlines()[0]}" if tool.description.strip() else ""
    return f"def {tool.name}({', '.join(parts)}): ...{about}"


def _is_word(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name)


def _is_name(name: str) -> bool:
    # A built-in function of the same name would be called instead.
    return _is_word(name) and not hasattr(builtins, name)


def _type(part: Any) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    return _TYPES.get(kind, "Any") if isinstance(kind, str) else "Any"


_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "array": "list", "object": "dict", "null": "None"}
