"""Runs driven by hand: events are told one by one; there is no driver and no clock, and no body ever runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fsm_agent.core.agent_table import AGENT
from fsm_agent.core.contracts import TableArguments
from fsm_agent.core.effects import CallTools, Effect
from fsm_agent.core.engine import Engine
from fsm_agent.core.events import Decided, Event, Judged, Raised, Returned, Started, Waited
from fsm_agent.core.limits import Limits
from fsm_agent.core.run import Call, Run
from fsm_agent.core.setup import Setup
from fsm_agent.core.tools import Tool, Toolset
from fsm_agent.core.values import Decision, Judgement, ResultClass, StopReason, ToolCall, Verdict
from fsm_agent.core.work import WORK


def never(**args: Any) -> None:
    """A body that must not run."""
    raise AssertionError(f"a body ran with {args}")


def a_tool(name: str = "look", **declared: Any) -> Tool:
    """A tool, pure unless declared otherwise, that takes any arguments."""
    return Tool(**{"name": name, "fn": never, "effect": "pure", **declared})


def taking(**rules: Any) -> TableArguments:
    """A contract of arguments, one rule each."""
    return TableArguments(rules)


def off(**named: Any) -> Limits:
    """Every limit off but the named ones, and steps enough for any test."""
    return Limits.off(**{"max_steps": 500, **named})


def says(result_class: ResultClass | str, **more: Any) -> Verdict:
    """What a classifier says."""
    return Verdict(result_class=result_class, **more)


class Hand:
    """One run, with a word for everything that can be told to it."""

    engine: Engine
    run: Run

    def __init__(
        self,
        *tools: Tool,
        request: Any = "find x",
        limits: Limits | None = None,
        run_id: str = "run",
        seed: int = 0,
        allowed: Iterable[str] | None = None,
        engine: Engine | None = None,
        **parts: Any,
    ) -> None:
        """Start a run of a new engine over these tools and parts of a setup, or of an `engine` that is there already."""
        if engine is not None:
            self.engine = engine
            self.run = engine.start(request, run_id=run_id, seed=seed, limits=limits)
            return
        box = Toolset(tools or [a_tool()])
        table = AGENT if allowed is None else AGENT.allowing({"gather": allowed})
        self.engine = Engine(
            Setup(**{"table": table, "box": box, "work": WORK, "limits": off() if limits is None else limits, **parts})
        )
        self.run = self.engine.start(request, run_id=run_id, seed=seed)

    # ---- telling

    def tell(self, event: Event, now: float | None = None) -> Hand:
        """Tell any event."""
        self.engine.tell(self.run, event, now)
        return self

    def decides(self, *calls: ToolCall, now: float | None = None, **decision: Any) -> Hand:
        """The decider asks for these calls, or gives what `decision` says."""
        return self.tell(Decided(Decision(calls=calls, **decision)), now)

    def asks(self, *names: str, now: float | None = None) -> Hand:
        """The decider asks for one call of each of these tools, in ids c1, c2, ... of their own arguments."""
        taken = len(self.run.call_ids)
        calls = (ToolCall(name, {"q": f"v{taken + n}"}, f"c{taken + n}") for n, name in enumerate(names, 1))
        return self.decides(*calls, now=now)

    def begins(self, *ids: str, now: float | None = None) -> Hand:
        """The bodies of these calls, or of all in the batch, begin."""
        return self.tell(Started(ids or tuple(self.batch)), now)

    def gives(self, call_id: str, value: Any = "hit", verdict: Verdict | None = None, now: float | None = None) -> Hand:
        """A body returns."""
        return self.tell(Returned(call_id, value, verdict), now)

    def fails(
        self, call_id: str, error: str = "ValueError", verdict: Verdict | None = None, now: float | None = None, **more: Any
    ) -> Hand:
        """A body raises."""
        return self.tell(Raised(call_id, error, more.pop("message", "no"), verdict, **more), now)

    def waits(self) -> Hand:
        """The time that the run asks for passes."""
        return self.tell(Waited(), self.effect.until_s)

    def judges(self, decision: str, **more: Any) -> Hand:
        """The verifier gives its verdict."""
        return self.tell(Judged(Judgement(decision=decision, **more)))

    def plays(self, value: Callable[[Call], Any] = lambda call: f"hit {call.id}") -> Hand:
        """Every call that is asked for, batch after batch, returns the value made for it."""
        while self.batch:
            ids = self.batch
            self.begins(*ids)
            for call_id in ids:
                self.gives(call_id, value(self.call(call_id)))
        return self

    # ---- looking

    @property
    def effect(self) -> Any:
        """What the run asks for now."""
        effect: Effect | None = self.engine.ask(self.run)
        return effect

    @property
    def batch(self) -> list[str]:
        """The ids of the calls to perform now."""
        effect = self.effect
        return [call.id for call in effect.calls] if isinstance(effect, CallTools) else []

    @property
    def calls(self) -> list[Call]:
        """Every call of the run, in order."""
        return [*self.run.calls, *self.run.open_calls]

    def call(self, call_id: str) -> Call:
        """The call of that id."""
        return next(call for call in self.calls if call.id == call_id)

    @property
    def words(self) -> list[str]:
        """How each call ended, in order: its error word, ``ok``, or ``open``."""
        return ["open" if call.ok is None else call.error or "ok" for call in self.calls]

    @property
    def reason(self) -> StopReason | None:
        """Why the run ended, or None while it goes on."""
        return None if self.run.stop is None else self.run.stop.reason
