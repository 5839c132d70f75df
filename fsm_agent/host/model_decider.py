"""A model as decider, closer and verifier: requests made from the run, replies handed on as they are."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from fsm_agent.core import prompts
from fsm_agent.core.effects import Compose, Decide, Judge
from fsm_agent.core.instructions import Prompts
from fsm_agent.core.limits import Limits
from fsm_agent.core.messages import History, Message, Purpose, Role, ToolOffer
from fsm_agent.core.run import Run
from fsm_agent.core.setup import Setup
from fsm_agent.core.tools import Tool, Toolset
from fsm_agent.core.transcript import transcript
from fsm_agent.host.bodies import is_async
from fsm_agent.host.model import Model, ModelRequest

_ANY_OBJECT: Mapping[str, Any] = {"type": "object"}


class ModelDecider:
    """Asks a model with the run's history, the tools that the state allows and have budget left, and the rules in force.

    `instructions` are the host's own and stand before the generated ones, which `told` chooses.
    """

    is_model = True

    def __init__(self, model: Model, setup: Setup, *, instructions: str = "", told: Prompts | None = None) -> None:
        self.model, self.setup, self.instructions = model, setup, instructions
        self.told = told if told is not None else Prompts()
        self.schema = setup.answer.schema if setup.answer is not None else None
        self.needs_loop = is_async(model.reply)
        self.in_loop = self.needs_loop or bool(getattr(model, "in_loop", False))
        # What was made once is not made again: offers by the names they are for, texts by limits, state and names.
        self._offered: dict[tuple[str, ...], tuple[ToolOffer, ...]] = {}
        self._texts: dict[tuple[Any, ...], tuple[Limits, str]] = {}

    def __call__(self, effect: Decide) -> Any:
        """The model's next decision, or an awaitable of it."""
        run = effect.run
        messages = transcript(run, self.setup.box)
        return self.model.reply(
            ModelRequest(
                run_id=run.id,
                state=run.state,
                instructions=self._instructions(run, effect.tools),
                # What is made of it for one request is no part of the history.
                messages=History(messages),
                tools=self._offers(effect.tools),
                schema=self.schema,
                summary=prompts.state_summary(run, messages) if run.calls else "",
                left=prompts.left_of(run),
                seconds_left=_seconds_left(run, run.limits.work_until_s),
                attempt=run.failed_requests + 1,
                on_delta=effect.on_delta,
            )
        )

    def close(self, effect: Compose) -> Any:
        """The model's text without tools, or an awaitable of it: a stopped run's last answer, or one from the evidence."""
        run = effect.run
        purpose = Purpose.CLOSE if effect.closing else Purpose.SYNTHESIZE
        asked = prompts.closing_prompt(run) if effect.closing else prompts.synthesis_prompt(run)
        return self.model.reply(
            ModelRequest(
                run_id=run.id,
                state=run.state,
                purpose=purpose,
                instructions=self.told.writing(self.instructions),
                messages=[*transcript(run, self.setup.box), Message(role=Role.USER, text=asked)],
                schema=self.schema,
                left=prompts.left_of(run),
                seconds_left=_seconds_left(run, run.limits.deadline_s if effect.closing else run.limits.work_until_s),
                on_delta=effect.on_delta,
            )
        )

    def _instructions(self, run: Run, tools: tuple[str, ...]) -> str:
        limits = run.limits
        known = self._texts.get((id(limits), run.state, tools))
        # An id may be another object's by now; the one that it was made for is kept beside the text.
        if known is not None and known[0] is limits:
            return known[1]
        made = self.told.deciding(self.instructions, limits, self.setup.policy, tools, run.state)
        if len(self._texts) >= _MOST_KNOWN:
            self._texts.clear()
        self._texts[id(limits), run.state, tools] = (limits, made)
        return made

    def _offers(self, names: tuple[str, ...]) -> tuple[ToolOffer, ...]:
        fixed = type(self.setup.box) is Toolset
        known = self._offered.get(names) if fixed else None
        if known is not None:
            return known
        made = tuple([offer for name in names if (offer := self._offer(name, names)) is not None])
        if fixed and len(self._offered) < _MOST_KNOWN:
            self._offered[names] = made
        return made

    def _offer(self, name: str, names: tuple[str, ...]) -> ToolOffer | None:
        tool = self.setup.box.get(name)
        if tool is None:
            return None
        if tool.where == "program":
            return self._program_offer(tool, names)
        schema = tool.args.json_schema() if tool.args is not None else _ANY_OBJECT
        return ToolOffer(name=name, description=tool.description, schema=schema)

    def _program_offer(self, tool: Tool, names: tuple[str, ...]) -> ToolOffer:
        """The tool for programs, with what a program may call now."""
        others = [other for name in names if (other := self.setup.box.get(name)) is not None and other is not tool]
        assert tool.args is not None
        about = f"{tool.description}\n{prompts.stubs(others)}"
        return ToolOffer(name=tool.name, description=about, schema=tool.args.json_schema())


class ModelVerifier:
    """Asks a model whether the evidence suffices (seed 002); its JSON verdict is read by the driver."""

    is_model = True

    def __init__(self, model: Model, required: Collection[str] = ()) -> None:
        self.model, self.required = model, required
        self.needs_loop = is_async(model.reply)
        self.in_loop = self.needs_loop or bool(getattr(model, "in_loop", False))

    def __call__(self, effect: Judge) -> Any:
        """The model's reply, or an awaitable of it."""
        run = effect.run
        return self.model.reply(
            ModelRequest(
                run_id=run.id,
                state=run.state,
                purpose=Purpose.VERIFY,
                messages=[Message(role=Role.USER, text=prompts.verifier_prompt(run, self.required))],
                schema=VERDICT,
                left=prompts.left_of(run),
                seconds_left=_seconds_left(run, run.limits.work_until_s),
            )
        )


def is_model(value: Any) -> bool:
    """True for an object with a method `reply`; a class of such objects is none, for there is nobody to ask yet."""
    return not isinstance(value, type) and callable(getattr(value, "reply", None))


def _seconds_left(run: Run, until: float | None) -> float | None:
    return None if until is None else max(0.0, until - run.spent_s)


_MOST_KNOWN = 256
VERDICT: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "decision": {"enum": ["done", "need_more"]},
        "reason": {"type": "string"},
        "next_action": {
            "anyOf": [
                {"type": "null"},
                {
                    "type": "object",
                    "properties": {"tool": {"type": "string"}, "args": {"type": "object"}},
                    "required": ["tool", "args"],
                    "additionalProperties": False,
                },
            ]
        },
    },
    "required": ["decision", "reason", "next_action"],
    "additionalProperties": False,
}
"""The JSON Schema of a verifying model's answer."""
