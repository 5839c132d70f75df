"""A model as decider, closer and verifier: requests made from the run, replies handed on as they are."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Mapping, Sequence
from typing import Any

import attrs

from fsm_agent.core import prompts
from fsm_agent.core.effects import Compose, Decide, Judge
from fsm_agent.core.instructions import Prompts
from fsm_agent.core.limits import Limits
from fsm_agent.core.messages import History, Message, Purpose, Role, ToolOffer
from fsm_agent.core.run import Run
from fsm_agent.core.setup import Setup
from fsm_agent.core.tools import Tool, Toolset
from fsm_agent.core.transcript import transcript
from fsm_agent.core.values import Decision
from fsm_agent.host.bodies import awaitable, is_async
from fsm_agent.host.model import Model, ModelRequest, request_of


class ModelDecider:
    """Asks a model with the run's history, the tools that the state allows and have budget left, and the rules in force.

    `instructions` are the host's own and stand before the generated ones, which `told` chooses.
    """

    is_model = True

    def __init__(self, model: Model, setup: Setup, *, instructions: str = "", told: Prompts | None = None) -> None:
        self.model, self.setup, self.instructions = model, setup, instructions
        self.told = told if told is not None else Prompts()
        self.schema = setup.answer.schema if setup.answer is not None else None
        self.plans = frozenset(state.name for state in setup.table.states if state.work == "plan")
        self.needs_loop = is_async(model.reply)
        self.in_loop = self.needs_loop or bool(getattr(model, "in_loop", False))
        # What was made once is not made again, by the limits, the state and the names that it is for.
        self._known: dict[tuple[Any, ...], tuple[Limits, str, tuple[ToolOffer, ...] | None]] = {}

    def __call__(self, effect: Decide) -> Any:
        """The model's next decision, or an awaitable of it."""
        run, names = effect.run, effect.tools
        limits = run.limits
        known = self._known.get((id(limits), run.state, names))
        # An id may be another object's by now; the one that it was made for is kept beside it.
        if known is None or known[0] is not limits:
            known = self._told(limits, run.state, names)
        offers = known[2] if known[2] is not None else self._offers(names)
        # What a model makes of the history for one request is no part of it.
        messages = History(transcript(run, self.setup.box))
        # A plan is no answer, and has not its form.
        schema = None if run.state in self.plans else self.schema
        reply = self.model.reply(request_of(run, known[1], messages, offers, schema, effect.on_delta))
        # It was told how a question is asked.
        return with_question(reply) if self.told.stop_contract else reply

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

    def _told(self, limits: Limits, state: str, names: tuple[str, ...]) -> tuple[Limits, str, tuple[ToolOffer, ...] | None]:
        """What a model is told in this state with these tools: instructions, and offers where the tools stay as they are."""
        text = self.told.deciding(self.instructions, limits, self.setup.policy, names, state)
        if state in self.plans:
            text = f"{text}\n\n{prompts.planning_prompt(callable_tools(self.setup))}".strip()
        made = (limits, text, self._offers(names) if type(self.setup.box) is Toolset else None)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[id(limits), state, names] = made
        return made

    def _offers(self, names: tuple[str, ...]) -> tuple[ToolOffer, ...]:
        return tuple([offer for name in names if (offer := self._offer(name, names)) is not None])

    def _offer(self, name: str, names: tuple[str, ...]) -> ToolOffer | None:
        tool = self.setup.box.get(name)
        if tool is None:
            return None
        if tool.where == "program":
            return self._program_offer(tool, names)
        return ToolOffer(name=name, description=tool.description, schema=tool.argument_schema())

    def _program_offer(self, tool: Tool, names: tuple[str, ...]) -> ToolOffer:
        """The tool for programs, with what a program may call now."""
        others = [other for name in names if (other := self.setup.box.get(name)) is not None and other is not tool]
        about = f"{tool.description}\n{prompts.stubs(others)}"
        return ToolOffer(name=tool.name, description=about, schema=tool.argument_schema())


def callable_tools(setup: Setup) -> list[Tool]:
    """The tools that some state lets a decider call."""
    states = [state for state in setup.table.states if state.work != "verify"]
    some = [tool for name in setup.box.names() if (tool := setup.box.get(name)) is not None]
    return [tool for tool in some if any(state.tools is None or tool.name in state.tools for state in states)]


def with_question(reply: Any) -> Any:
    """A model's reply with the question in the last line of its text told apart (seed 000), or an awaitable of it."""
    if awaitable(reply):
        return _later(reply)
    text = reply.text if isinstance(reply, Decision) and not reply.calls and reply.question is None else None
    if not isinstance(text, str):
        return reply
    before, _, last = text.rstrip().rpartition("\n")
    if not last.strip().lower().startswith(prompts.QUESTION.lower()):
        return reply
    asked = last.strip()[len(prompts.QUESTION) :].strip()
    return attrs.evolve(reply, text=before.strip() or None, question=asked) if asked else reply


async def _later(reply: Awaitable[Any]) -> Any:
    return with_question(await reply)


class ModelVerifier:
    """Asks a model whether the evidence suffices (seed 002); its JSON verdict is read by the driver."""

    is_model = True

    def __init__(self, model: Model, required: Collection[str] = (), tools: Sequence[Tool] = ()) -> None:
        self.model, self.required, self.tools = model, required, tools
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
                messages=[Message(role=Role.USER, text=prompts.verifier_prompt(run, self.required, self.tools))],
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
