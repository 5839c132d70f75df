"""What a host may bring: its decider, verifier, closing answer, and the places where things are kept."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import attrs

from fsm_agent.core.decoding import decoded
from fsm_agent.core.effects import Compose, Decide, Judge, RunProgram
from fsm_agent.core.errors import BuildError
from fsm_agent.core.figures import finite_seconds
from fsm_agent.core.plain import short
from fsm_agent.core.tool_check import is_kind
from fsm_agent.core.values import Decision, Judgement, ToolCall
from fsm_agent.host.breaker import Breakers
from fsm_agent.host.clock import Clock
from fsm_agent.host.memory import Memory

# A decider may answer with a decision, one call, several, or the final text.
Proposal = Decision | ToolCall | Sequence[ToolCall] | str | None
Decider = Callable[[Decide], "Proposal | Awaitable[Proposal]"]
Verifier = Callable[[Judge], Any]
Closer = Callable[[Compose], Any]
# What performs an effect of the user's own kind of work; it gives plain data, or an awaitable of it.
Performer = Callable[[Any], Any]


@attrs.frozen(kw_only=True)
class ToolContext:
    """What a body may ask for beside its arguments, through a parameter annotated with this type.

    `run_id`, `call_id`, `tool` and `attempt` (from 1) say which call it is; `idempotency_key` is the same for every try of it.
    `left_s` are the seconds the body has, or None. `context` is the caller's own object; it never reaches the decider or a
    saved run.
    """

    run_id: str
    call_id: str
    tool: str
    attempt: int
    idempotency_key: str
    left_s: float | None = None
    context: Any = None


@runtime_checkable
class Programs(Protocol):
    """What runs programs from call to call (code mode)."""

    def step(self, effect: RunProgram, seconds_left: float | None = None) -> Any:
        """The event of what the program did: it called a tool, returned, or raised. It never raises itself."""
        ...


@attrs.frozen(kw_only=True, eq=False)
class Host:
    """The parts of the outside world that calls pass through; shared by runs and safe between threads.

    `memory` is opt-in: without it, or without a TTL of the tool or of the host (`ttl_s`, `negative_ttl_s`), nothing is
    remembered. `programs` runs those of code mode. Without `breakers` no circuit ever opens. Without a `clock` no time
    passes. Raises BuildError for a TTL that is no number of seconds.
    """

    clock: Clock | None = None
    memory: Memory | None = None
    ttl_s: float | None = None
    negative_ttl_s: float | None = None
    breakers: Breakers | None = None
    programs: Programs | None = None

    def __attrs_post_init__(self) -> None:
        for name, kind in (("clock", Clock), ("memory", Memory), ("breakers", Breakers), ("programs", Programs)):
            part = getattr(self, name)
            if part is not None and not is_kind(part, kind):
                raise BuildError(f"Host({name}=) is {short(part, 60)}; give a {kind.__name__}, or None")
        for name, seconds in (("ttl_s", self.ttl_s), ("negative_ttl_s", self.negative_ttl_s)):
            if seconds is None or (type(seconds) is float and seconds == math.inf):
                continue
            if finite_seconds(seconds, name) < 0:
                raise BuildError(f"{name} is {seconds:g}; give seconds from 0, math.inf for good, or None")


def as_decision(proposal: Any) -> Decision:
    """A decider's answer as a decision; raises TypeError, with the kinds that are understood, for anything else."""
    if isinstance(proposal, Decision):
        return proposal
    if proposal is None:
        return Decision()
    if isinstance(proposal, str):
        return Decision(text=proposal)
    if isinstance(proposal, ToolCall):
        return Decision(calls=(proposal,))
    if isinstance(proposal, list | tuple) and all(isinstance(call, ToolCall) for call in proposal):
        return Decision(calls=tuple(proposal))
    raise TypeError(
        f"a decider answered with a {type(proposal).__name__};"
        " it may give a Decision, a ToolCall, a list of them, a text or None"
    )


def as_judgement(verdict: Any) -> Judgement:
    """A verifier's answer as a judgement; raises TypeError or ValueError when it gives no verdict.

    Understood are a Judgement, true or false, and seed 002's mapping of decision, reason and next_action, also as JSON text.
    """
    if type(verdict) is str:
        verdict = decoded(verdict)
    if isinstance(verdict, Judgement):
        made = verdict
    elif isinstance(verdict, bool):
        return Judgement(decision="done" if verdict else "need_more", reason="" if verdict else "the verifier said no")
    elif isinstance(verdict, Mapping):
        made = Judgement(
            decision=str(verdict.get("decision")),
            reason=str(verdict.get("reason") or ""),
            next_action=_action(verdict.get("next_action")),
        )
    else:
        what = type(verdict).__name__
        raise TypeError(f"a verifier answered with a {what}; it may give a Judgement, a bool or a mapping, also as JSON text")
    if made.decision not in ("done", "need_more"):
        raise ValueError(f"a verifier's decision is {made.decision!r:.40}; it may be 'done' or 'need_more'")
    return made


def judgement_of_text(text: str) -> Judgement:
    """A verifying model's JSON object as a judgement (seed 002); raises TypeError or ValueError when it gives no verdict."""
    verdict = decoded(text)
    if not isinstance(verdict, Mapping):
        raise ValueError(f"the verifying model wrote {short(text, 80)}; it may write {{\"decision\": \"done\" or \"need_more\", ...}}")
    return as_judgement(verdict)


def _action(action: Any) -> ToolCall | None:
    if isinstance(action, Mapping):
        named = next((action[key] for key in _TOOL_KEYS if isinstance(action.get(key), str)), None)
        return ToolCall(tool=named, args=action.get("args")) if named is not None else None
    return action if isinstance(action, ToolCall) else None


# Seeds 000 and 002 name the tool of an action by words of their own.
_TOOL_KEYS = ("tool", "tool_name", "toolName")
