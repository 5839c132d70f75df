"""The tools of a scenario: bodies by script, counted, held where a step waits for them, and classified as written."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextvars import ContextVar
from typing import Any

from fsm_agent.core.known_names import mend
from fsm_agent.core.plain import plain_copy
from fsm_agent.core.results import TRANSIENT
from fsm_agent.core.tools import BreakerPolicy, Outcome, Retry, Tool
from fsm_agent.core.values import Verdict
from fsm_agent.host.ports import ToolContext
from fsm_agent.host.tool_forms import arguments_form, result_form
from fsm_agent.scenario.named_errors import exception_named
from fsm_agent.scenario.script import REPEAT_LAST, ScriptEnded, step_of
from fsm_agent.scenario.stage import at_once
from fsm_agent.scenario.surroundings import Surroundings
from fsm_agent.scenario.values import arguments_in, filled

# Hardly an argument has this name; where one does, the name gets longer.
CONTEXT = "the call's own context"
_SAID: ContextVar[Verdict | None] = ContextVar("_SAID", default=None)
_AS_DECLARED = (
    "effect", "description", "timeout_s", "cache_ttl_s", "negative_ttl_s", "identity", "polling", "constant", "empty_ok",
    "exclusive", "max_result_bytes", "decode_json", "secret", "source", "where",
)  # fmt: skip


class ScriptedTool:
    """One tool of the world: its steps, how often its body ran, with what arguments, and how many of them are active."""

    def __init__(self, name: str, keys: Mapping[str, Any], world: Surroundings) -> None:
        self.name, self.keys, self.world = name, keys, world
        does = keys.get("does", [{"return": "ok"}])
        self.steps: list[Mapping[str, Any]] = [does] if isinstance(does, Mapping) else list(does)
        self.runs = self.active = self.most_active = self.asked = 0
        self.seen: list[dict[str, Any]] = []
        self.result_schema: Any = None
        self.context_name, self.declared = CONTEXT, frozenset[str]()
        self.asked_for = [arguments_in(step) for step in self.steps]
        self._lock = threading.Lock()

    def tool(self) -> Tool:
        """The tool for an agent; raises ContractError where its declarations contradict each other."""
        keys = self.keys
        declared: dict[str, Any] = {key: keys[key] for key in _AS_DECLARED if key in keys}
        if declared.get("effect", "undeclared") != "pure":
            # Memory is for pure tools only (03.2); a file may say so by giving another one a TTL that then does nothing.
            declared = {key: value for key, value in declared.items() if key not in ("cache_ttl_s", "negative_ttl_s")}
        if "retry" in keys:
            declared["retry"] = Retry(**keys["retry"])
        if "breaker" in keys:
            declared["breaker"] = BreakerPolicy(**keys["breaker"]) if keys["breaker"] is not None else None
        if "post" in keys:
            declared["post"] = {name: _holds(schema, self.name) for name, schema in keys["post"].items()}
        approval = keys.get("approval", False)
        returns = result_form(keys.get("returns"), self.name, empty_ok=bool(keys.get("empty_ok", False)))
        self.result_schema = returns.json_schema() if returns is not None else None
        args = arguments_form(keys.get("args"), self.name)
        self.declared = frozenset(args.json_schema().get("properties", ())) if args is not None else frozenset()
        while self.context_name in self.declared:
            self.context_name += "."
        return Tool(
            name=self.name,
            fn=self._abody if self.world.stage.asynchronous else self._body,
            args=args,
            returns=returns,
            # What a client answers no body has said anything of.
            classify=_classify if self.keys.get("where") != "client" and any(map(_is_classified, self.steps)) else None,
            context_parameter=self.context_name,
            approval=self._approval if isinstance(approval, list) else approval,
            **declared,
        )

    def _approval(self, /, **args: Any) -> Any:
        answers = self.keys["approval"]
        with self._lock:
            answer = answers[min(self.asked, len(answers) - 1)]
            self.asked += 1
        if isinstance(answer, Mapping) and "raise" in answer:
            raise exception_named(answer["raise"], answer.get("message", ""))
        return answer

    # ---- bodies

    def _body(self, /, **args: Any) -> Any:
        step, names, meanwhile = self._begin(args)
        try:
            at_once(meanwhile)
            return self._end(step, names)
        finally:
            self._leave()

    async def _abody(self, /, **args: Any) -> Any:
        step, names, meanwhile = self._begin(args)
        try:
            await meanwhile
            return self._end(step, names)
        finally:
            self._leave()

    def _begin(self, args: dict[str, Any]) -> tuple[Mapping[str, Any], dict[str, Any], Coroutine[Any, Any, None]]:
        """The step of a body, the names that its templates know, and what is awaited before it ends."""
        context = args.pop(self.context_name, None)
        _SAID.set(None)
        with self._lock:
            self.runs += 1
            number = self.runs
            self.seen.append(plain_copy(args))
            self.active += 1
            self.most_active = max(self.most_active, self.active)
        self.world.body_began()
        step = step_of(self.steps, number - 1, self.keys.get("then", REPEAT_LAST))
        if step is None and self.steps:
            self._leave()
            what = f"the body of {self.name} ran {number} times and its script has {len(self.steps)} steps"
            self.world.violations.append(what)
            raise ScriptEnded(what)
        if step is not None:
            self._look_for(self.asked_for[step.place], args)
        value, names = (step.value if step is not None else {}), {"n": number, "args": args}
        return value, names, self._meanwhile(context, _seconds(value, names))

    async def _meanwhile(self, context: ToolContext | None, seconds: float) -> None:
        await self.world.hold(self.name, context)
        if seconds:
            await self.world.stage.sleep(seconds)

    def _look_for(self, asked_for: frozenset[str], args: Mapping[str, Any]) -> None:
        """Tell of arguments that a step asks for and that neither the call nor the contract has."""
        known = sorted({*args, *self.declared})
        for name in sorted(asked_for.difference(known)):
            what = f"tools/{self.name}/does: the call has no argument {name!r}; {mend(name, known, 'it has')}"
            if what not in self.world.violations:
                self.world.violations.append(what)

    def _end(self, step: Mapping[str, Any], names: Mapping[str, Any]) -> Any:
        message = filled(step.get("message", ""), names)
        if "class" in step:
            seconds = filled(step.get("retry_after_s"), names)
            _SAID.set(Verdict(result_class=step["class"], reason=message, retry_after_s=seconds))
        elif "raise" in step:
            # Without a class a raise is a plain failure, whatever its type says elsewhere.
            _SAID.set(Verdict(result_class="OK"))
        if "raise" in step:
            raise exception_named(filled(step["raise"], names), message)
        return filled(plain_copy(step.get("return")), names, self.result_schema)

    def _leave(self) -> None:
        with self._lock:
            self.active -= 1
        self.world.body_ended()


def _is_classified(step: Mapping[str, Any]) -> bool:
    raised = str(step.get("raise", "")).rpartition(".")[2]
    return "class" in step or raised in TRANSIENT or "$" in raised


def _classify(outcome: Outcome) -> Verdict | None:
    return _SAID.get()


def _seconds(step: Mapping[str, Any], names: Mapping[str, Any]) -> float:
    seconds = filled(step.get("sleep_s", 0), names)
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool) and math.isfinite(seconds)
    return float(seconds) if number and seconds > 0 else 0.0


def _holds(schema: Any, tool: str) -> Callable[[Any], bool]:
    from fsm_agent.core.schema_check import compile_schema

    compiled = compile_schema(schema, f"tool {tool!r}, a post-condition")
    return lambda value: not compiled.unmet(value)
