"""Strategies (seed 004): functions that say between turns whether a run may go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import attrs

from fsm_agent.core.errors import BuildError
from fsm_agent.core.messages import Message
from fsm_agent.core.plain import short


@attrs.frozen(kw_only=True)
class LoopState:
    """What a strategy looks at: model turns so far, the last finish reason, the history, and calls asked for.

    `tool_call_count` counts the calls that the model emitted, skipped ones included.
    """

    iteration_count: int = 0
    finish_reason: str = ""
    messages: Sequence[Message] = ()
    tool_call_count: int = 0
    last_turn_tool_call_count: int = 0


# True to go on, false to stop, None to leave it to the others.
Strategy = Callable[[LoopState], "bool | None"]


def max_iterations(most: int) -> Strategy:
    """Go on while fewer than so many model turns were made; raises BuildError for no whole number from 0."""
    if type(most) is not int or most < 0:
        raise BuildError(f"max_iterations({short(most, 40)}): give a whole number from 0")

    def strategy(state: LoopState) -> bool:
        return state.iteration_count < most

    return _named(strategy, f"max_iterations({most})")


def until_finish_reason(reasons: Iterable[str]) -> Strategy:
    """Go on until the model ends a turn for one of these reasons; the run's stop reason is then `finish_reason`."""
    if isinstance(reasons, str | bytes) or not isinstance(reasons, Iterable):
        raise BuildError(f"until_finish_reason({short(reasons, 40)}): give a list of finish reasons")
    named = list(reasons)
    if wrong := [reason for reason in named if not isinstance(reason, str)]:
        raise BuildError(f"until_finish_reason: {short(wrong[0], 40)} is no finish reason; give texts")
    wanted = frozenset(named)

    def strategy(state: LoopState) -> bool:
        return state.finish_reason not in wanted

    strategy.stop_reason = "finish_reason"  # type: ignore[attr-defined]
    return _named(strategy, f"until_finish_reason({', '.join(sorted(wanted))})")


def combine(strategies: Iterable[Strategy]) -> Strategy:
    """Go on only while every one of these does; they are asked in order, and the first that says no decides."""
    if isinstance(strategies, str | bytes) or not isinstance(strategies, Iterable):
        raise BuildError(f"combine({short(strategies, 60)}): give a list of strategies")
    parts = tuple(strategies)
    for part in parts:
        if isinstance(part, type) or not callable(part):
            raise BuildError(f"combine: {short(part, 60)} is no strategy; give functions of a LoopState")

    def strategy(state: LoopState) -> bool:
        return all(word is None or bool(word) for word in (part(state) for part in parts))

    strategy.parts = parts  # type: ignore[attr-defined]
    return _named(strategy, f"combine({', '.join(map(name_of, parts))})")


def name_of(strategy: Strategy) -> str:
    """What a strategy is called in a stop."""
    return str(getattr(strategy, "__name__", type(strategy).__name__))


def parts_of(strategies: Iterable[Strategy]) -> list[Strategy]:
    """The single strategies, combined ones taken apart, in order: so that the one that said no can be named."""
    found: list[Strategy] = []
    for strategy in strategies:
        found += parts_of(strategy.parts) if hasattr(strategy, "parts") else [strategy]
    return found


def _named(strategy: Strategy, name: str) -> Strategy:
    strategy.__name__ = name
    return strategy
