"""The scripted world of one scenario: tools, model, verifier, strategies, and what is counted of them over all its runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from fsm_agent.agent import Agent
from fsm_agent.core.effects import Judge
from fsm_agent.core.errors import BuildError, LimitsError
from fsm_agent.core.known_names import mend
from fsm_agent.core.limits import Limits
from fsm_agent.core.plain import plain_copy
from fsm_agent.core.strategies import LoopState, Strategy, max_iterations, until_finish_reason
from fsm_agent.core.values import Policy
from fsm_agent.host.memory import TtlMemory
from fsm_agent.scenario.matching import listed
from fsm_agent.scenario.named_errors import exception_named
from fsm_agent.scenario.reading import Scenario, machine_named
from fsm_agent.scenario.script import GO_ON, Script
from fsm_agent.scenario.scripted_model import ScriptedModel
from fsm_agent.scenario.scripted_tools import ScriptedTool
from fsm_agent.scenario.stage import Stage
from fsm_agent.scenario.surroundings import Surroundings

SCOPE = "scenario"


class World(Surroundings):
    """Everything around the runs of one scenario in one mode; `agent` builds a host of it, as a new process would.

    What is counted here, the scripts' places and the clock outlive a process; memory and breakers of a host do not.
    """

    def __init__(self, scenario: Scenario, stage: Stage) -> None:
        super().__init__(stage)
        self.keys = scenario.keys
        self.tools = {name: ScriptedTool(name, keys, self) for name, keys in self.keys.get("tools", {}).items()}
        self.model = ScriptedModel(self)
        self.strategy_saw: list[dict[str, Any]] = []
        self.verifier_runs = 0

    # ---- hosts and runs

    def agent(self) -> Agent:
        """A host of this world; raises BuildError for what the file declares wrongly."""
        keys = self.keys
        memory = keys.get("memory", {})
        tools = [tool.tool() for tool in self.tools.values()]
        self.argument_schemas = {tool.name: tool.argument_schema() for tool in tools}
        duplicates = {"duplicates": memory["duplicates"]} if "duplicates" in memory else {}
        return Agent(
            tools,
            self.model,
            limits=self.limits(keys.get("limits", {}), base_limits(keys)),
            machine=machine_named(keys.get("machine", "agent")),
            allowed=keys.get("allowed"),
            policy=Policy(on_finish=keys.get("on_finish", {}), **duplicates),
            verify=self._verify if "verifier" in keys else None,
            memory=TtlMemory(),
            ttl_s=memory.get("ttl_s"),
            negative_ttl_s=memory.get("negative_ttl_s"),
            clock=self.stage.clock,
            strategy=[self._strategy(one) for one in keys.get("strategy", ())],
        )

    def limits(self, named: Mapping[str, Any], base: Limits) -> Limits:
        """The limits that a file names, on those they stand on; raises LimitsError for a tool that is not there."""
        return limits_of(self.named(named), base)

    def named(self, limits: Mapping[str, Any]) -> Mapping[str, Any]:
        """Limits as they are written; raises LimitsError where one is for a tool that is not there."""
        by_tool = limits.get("max_same_tool_calls")
        for tool in by_tool if isinstance(by_tool, Mapping) else ():
            if tool not in self.tools:
                raise LimitsError(f"Limits.max_same_tool_calls: there is no tool {tool!r}; {mend(tool, self.tools)}")
        return limits

    def script(self, keys: Mapping[str, Any]) -> Script:
        """A new run's script: its own where `keys` has one, else the file's."""
        found = {name: keys[name] if name in keys else self.keys.get(name, default) for name, default in _SCRIPT.items()}
        return Script.of(found["model"], found["model_then"], found["closing"])

    # ---- verifier and strategies

    def _verify(self, ask: Judge) -> Any:
        verdicts = self.keys["verifier"]
        self.verifier_runs += 1
        if not verdicts:
            return True
        verdict = plain_copy(verdicts[min(self.verifier_runs, len(verdicts)) - 1])
        if isinstance(verdict, Mapping) and "raise" in verdict:
            raise exception_named(str(verdict["raise"]), str(verdict.get("message", "")))
        return verdict

    def _strategy(self, keys: Mapping[str, Any]) -> Strategy:
        if "max_iterations" in keys:
            return max_iterations(keys["max_iterations"])
        if "until_finish_reason" in keys:
            return until_finish_reason(listed(keys["until_finish_reason"]))
        if "messages_below" in keys:
            most = keys["messages_below"]
            return _named(lambda state: len(state.messages) < most, f"messages_below({most})")
        if "raise" in keys:
            return _named(lambda state: _raise(keys), f"raise({keys['raise']})")
        if "record" in keys:
            return _named(lambda state: self._record(state), "record")
        raise BuildError("an entry of strategy has one of max_iterations, until_finish_reason, messages_below, record, raise")

    def _record(self, state: LoopState) -> bool | None:
        self.strategy_saw.append(
            {
                "iteration_count": state.iteration_count,
                "finish_reason": state.finish_reason,
                "messages": len(state.messages),
                "tool_call_count": state.tool_call_count,
                "last_turn_tool_call_count": state.last_turn_tool_call_count,
            }
        )
        return None


_SCRIPT: Mapping[str, Any] = {"model": [], "model_then": GO_ON, "closing": "closing"}


def base_limits(keys: Mapping[str, Any]) -> Limits:
    """The limits that a file's own stand on: the defaults, and for seed 002's machine its three pieces of evidence."""
    return Limits(min_evidence=3) if keys.get("machine") == "autogpt" else Limits()


def limits_of(named: Mapping[str, Any], base: Limits) -> Limits:
    """Limits as a file names them; ``"*": null`` turns off what it does not name (the reserve for the answer is no limit)."""
    figures = {name: value for name, value in named.items() if name != "*"}
    if "*" in named:
        return Limits.off(**{"reserve_s": base.reserve_s, **figures})
    return attrs.evolve(base, **figures)


def _raise(keys: Mapping[str, Any]) -> bool:
    raise exception_named(keys["raise"], keys.get("message", ""))


def _named(strategy: Callable[[LoopState], bool | None], name: str) -> Strategy:
    strategy.__name__ = name
    return strategy
