"""What is said in turn: scripts that go forward one step at a time, and what follows the last step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from fsm_agent.core.values import Decision, ToolCall, Usage
from fsm_agent.scenario.values import filled

FAIL, REPEAT_LAST = "fail", "repeat-last"
INPUT = ("input_tokens", "prompt_tokens", "input")
OUTPUT = ("output_tokens", "completion_tokens", "output")
TOTAL = ("total_tokens", "tokens")
"""What providers call the tokens that they were given, that they made, and all of them."""
# What holds for a model where nothing is written: the last turn again, but a model that failed is not made to fail for ever.
GO_ON = ""
# A run that asks so often will never end.
MOST_REQUESTS = 10_000


class ScriptEnded(AssertionError):
    """A script was asked for more than it has."""


@attrs.frozen
class Step:
    """One step of a script: what stands there, its place from 0, and how often it came before."""

    value: Any
    place: int
    before: int = 0


def step_of(steps: Sequence[Any], number: int, then: str) -> Step | None:
    """The step with this number from 0, where the script has come to; None where it has ended."""
    if number < len(steps):
        return Step(steps[number], number)
    if then == FAIL or not steps:
        return None
    over = number - len(steps)
    if then == REPEAT_LAST:
        return Step(steps[-1], len(steps) - 1, over + 1)
    return Step(steps[over % len(steps)], over % len(steps), over // len(steps) + 1)


def spread(turns: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], int]]:
    """Turns with those that come several `times` written out as far as any run comes, each with how often it came before."""
    return [(turn, n) for turn in turns for n in range(min(int(turn.get("times", 1)), MOST_REQUESTS))]


@attrs.define(eq=False)
class Script:
    """The turns of one run's model, for all states or by state, and how far the run has come in them.

    `requests` counts the requests of the run, closing ones included; `by_state` those answered by turns.
    """

    turns: Mapping[str, list[tuple[Mapping[str, Any], int]]]
    then: str
    closing: Any = "closing"
    requests: int = 0
    by_state: dict[str, int] = attrs.field(factory=dict)

    @classmethod
    def of(cls, model: Any, then: str, closing: Any) -> Script:
        """The script of a file's `model`: a list of turns for every state, or state to turns."""
        turns = {"": spread(model)} if isinstance(model, list) else {state: spread(of) for state, of in (model or {}).items()}
        return cls(turns, then, closing)

    def next(self, state: str) -> tuple[Mapping[str, Any], int] | None:
        """The turn for the next request in a state, and how often it came before; None where there is none."""
        key = "" if "" in self.turns else state
        number = self.by_state.get(key, 0)
        self.by_state[key] = number + 1
        turns = self.turns.get(key, ())
        step = step_of(turns, number, self._then(turns))
        if step is None:
            return None
        turn, before = step.value
        # A turn that comes several times in a row is as often a new one whenever the script comes round.
        return turn, before + step.before * int(turn.get("times", 1))

    def _then(self, turns: Sequence[tuple[Mapping[str, Any], int]]) -> str:
        if self.then != GO_ON:
            return self.then
        return FAIL if turns and "raise" in turns[-1][0] else REPEAT_LAST

    def position(self) -> tuple[int, dict[str, int]]:
        """How far the run has come, to go on from there after a load."""
        return self.requests, dict(self.by_state)

    def set_back(self, position: tuple[int, dict[str, int]]) -> None:
        """Stand where the run stood when it was saved."""
        self.requests, self.by_state = position[0], dict(position[1])


def decision_of(turn: Mapping[str, Any], names: Mapping[str, Any], before: int, argument_schemas: Mapping[str, Any]) -> Decision:
    """The decision that a turn is, its templates filled in; ids of a turn that comes again are made fresh."""
    final = turn.get("final")
    final = {"text": final} if not isinstance(final, Mapping) else final
    text = final.get("text", final.get("answer")) if "final" in turn else turn.get("text")
    calls = tuple(_call(call, names, before, argument_schemas) for call in turn.get("calls") or ())
    question = final.get("question")
    return Decision(
        calls=calls,
        text=filled(text, names),
        citations=tuple(filled(list(final.get("citations", ())), names)),
        question=None if question is None else filled(question, names),
        finish=finish_of(turn, bool(calls)),
        usage=usage_of(turn.get("usage")),
    )


def finish_of(turn: Mapping[str, Any], calls: bool) -> str:
    """The finish reason of a turn: as it is written, else what a provider gives."""
    finish = turn.get("finish")
    return str(finish) if finish is not None else "tool_calls" if calls else "stop"


def usage_of(usage: Mapping[str, Any] | None) -> Usage | None:
    """The usage of a turn in any of the words that providers have for it."""
    if usage is None:
        return None
    given, made, total = (next((usage[word] for word in words if word in usage), None) for words in (INPUT, OUTPUT, TOTAL))
    if total is not None and (given is None or made is None):
        given, made = (total - (made or 0), made or 0) if given is None else (given, total - given)
    return Usage(input_tokens=given or 0, output_tokens=made or 0, cost=usage.get("cost", 0.0))


def _call(call: Mapping[str, Any], names: Mapping[str, Any], before: int, schemas: Mapping[str, Any]) -> ToolCall:
    wanted = call.get("id", "")
    tool = filled(call.get("tool", ""), names)
    fresh = f"{wanted}-{before + 1}" if before and wanted and "${turn}" not in wanted else filled(wanted, names)
    schema = schemas.get(tool) if isinstance(tool, str) else None
    args = filled(call["args_raw"], names) if "args_raw" in call else filled(call.get("args"), names, schema)
    return ToolCall(
        tool=tool if isinstance(tool, str) else "",
        args=args,
        id=fresh,
        intent=filled(call.get("intent", ""), names),
        reason=filled(call.get("reason", ""), names),
        changed=filled(call.get("changed", ""), names),
    )
