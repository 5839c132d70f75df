"""Which generated prompts a model is told beside the host's own instructions, and the task that one of them is made from."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import attrs

from fsm_agent.core.errors import BuildError
from fsm_agent.core.limits import Limits
from fsm_agent.core.plain import short
from fsm_agent.core.prompts import agent_policy, stop_contract, task_policy
from fsm_agent.core.values import Policy


def _text(record: Any, attribute: Any, value: Any) -> None:
    if not isinstance(value, str) or (attribute.name == "goal" and not value.strip()):
        raise BuildError(f"{type(record).__name__}.{attribute.name} is {short(value, 60)}; give a text")


def _lines(value: Any) -> Any:
    # A text is a sequence of its letters, and nobody means those.
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes) else value


def _all_texts(record: Any, attribute: Any, value: Any) -> None:
    if not isinstance(value, tuple) or not all(isinstance(line, str) for line in value):
        raise BuildError(f"{type(record).__name__}.{attribute.name} is {short(value, 60)}; give a list of texts")


@attrs.frozen(kw_only=True)
class TaskPolicy:
    """A task in four parts (the last block of seed 001): its `goal`, when it is `done`, the form of the
    answer (`output`) and `tool_rules`.

    Raises BuildError for an empty goal and for anything but texts.
    """

    goal: str = attrs.field(validator=_text)
    done: tuple[str, ...] = attrs.field(default=(), converter=_lines, validator=_all_texts)
    output: str = attrs.field(default="", validator=_text)
    tool_rules: tuple[str, ...] = attrs.field(default=(), converter=_lines, validator=_all_texts)

    def __str__(self) -> str:
        return task_policy(self.goal, self.done, self.output, self.tool_rules)


def _task(_: object, __: object, value: Any) -> None:
    if value is not None and not isinstance(value, TaskPolicy):
        raise BuildError(f"Prompts.task is {short(value, 60)}; give a TaskPolicy")


def _switch(_: object, attribute: Any, value: Any) -> None:
    if not isinstance(value, bool):
        raise BuildError(f"Prompts.{attribute.name} is {short(value, 60)}; give True or False")


@attrs.frozen(kw_only=True)
class Prompts:
    """The generated prompts that go into a model's instructions, in this order behind the host's own.

    `task` is the task policy of seed 001, `stop_contract` the rules of seed 000 (with it a text whose last line begins with
    ``Question:`` asks the user, and needs no evidence), `agent_policy` the policy of seed 001. The last two are made anew from
    the limits, the policy and the tools in force whenever these change. Where a plan is wanted (seed 002) that is told behind them,
    whatever is chosen here. Raises BuildError for anything else.
    """

    task: TaskPolicy | None = attrs.field(default=None, validator=_task)
    stop_contract: bool = attrs.field(default=False, validator=_switch)
    agent_policy: bool = attrs.field(default=True, validator=_switch)

    def deciding(self, own: str, limits: Limits, policy: Policy, tools: Collection[str], state: str) -> str:
        """What is told with each request for a decision."""
        contract = stop_contract(limits, policy) if self.stop_contract else ""
        rules = agent_policy(limits, policy, tools, state) if self.agent_policy else ""
        return _joined(self.writing(own), contract, rules)

    def writing(self, own: str) -> str:
        """What is told where no tool can be called and a text is wanted: the rules for calls are left out."""
        return _joined(own, str(self.task)) if self.task is not None else own


def _joined(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part).strip()
