"""Which generated prompts are told: the choice, its order, and what is no choice."""

from __future__ import annotations

from typing import Any

import pytest

from fsm_agent.core.errors import BuildError
from fsm_agent.core.instructions import Prompts, TaskPolicy
from fsm_agent.core.limits import Limits
from fsm_agent.core.prompts import agent_policy, stop_contract
from fsm_agent.core.values import Policy

LIMITS, POLICY = Limits.react(), Policy()
TASK = TaskPolicy(goal="Find x.", done=["x is cited"], output="one line", tool_rules=["no guesses"])
CONTRACT, RULES = stop_contract(LIMITS, POLICY), agent_policy(LIMITS, POLICY, ["look"], "gather")


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        (Prompts(), ["Mine.", RULES]),
        (Prompts(agent_policy=False), ["Mine."]),
        (Prompts(stop_contract=True), ["Mine.", CONTRACT, RULES]),
        (Prompts(stop_contract=True, agent_policy=False), ["Mine.", CONTRACT]),
        (Prompts(task=TASK), ["Mine.", str(TASK), RULES]),
        (Prompts(task=TASK, stop_contract=True), ["Mine.", str(TASK), CONTRACT, RULES]),
    ],
)
def test_what_is_chosen_is_told_in_one_order(chosen: Prompts, told: list[str]) -> None:
    assert chosen.deciding("Mine.", LIMITS, POLICY, ["look"], "gather") == "\n\n".join(told)
    assert chosen.deciding("", LIMITS, POLICY, ["look"], "gather") == "\n\n".join(told[1:])


def test_a_text_is_written_under_the_task_and_without_rules_for_calls() -> None:
    assert Prompts(stop_contract=True).writing("Mine.") == "Mine."
    assert Prompts(task=TASK).writing("Mine.") == f"Mine.\n\n{TASK}"
    assert Prompts(task=TASK).writing("") == str(TASK)


def test_a_task_has_four_parts() -> None:
    assert str(TASK) == "Goal: Find x.\nDone when:\n- x is cited\nOutput: one line\nRules for tools:\n- no guesses"
    assert str(TaskPolicy(goal="Find x.")) == "Goal: Find x."


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: TaskPolicy(goal=" "), "TaskPolicy.goal is ' '; give a text"),
        (lambda: TaskPolicy(goal=any_of(None)), "TaskPolicy.goal is None; give a text"),
        (lambda: TaskPolicy(goal="x", output=any_of(5)), "TaskPolicy.output is 5; give a text"),
        (lambda: TaskPolicy(goal="x", done=any_of("all of it")), "TaskPolicy.done is 'all of it'; give a list of texts"),
        (lambda: TaskPolicy(goal="x", tool_rules=any_of([1])), "give a list of texts"),
        (lambda: Prompts(task=any_of("x")), "Prompts.task is 'x'; give a TaskPolicy"),
        (lambda: Prompts(agent_policy=any_of("no")), "Prompts.agent_policy is 'no'; give True or False"),
    ],
)
def test_what_is_no_choice_is_refused_with_the_mend(made: Any, said: str) -> None:
    with pytest.raises(BuildError, match=said):
        made()


def any_of(value: Any) -> Any:
    """A value that no annotation allows."""
    return value
