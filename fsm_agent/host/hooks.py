"""Hooks (seed 004): what a host may see and say between the steps of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from fsm_agent.core.callables import function_of, wrong_manner
from fsm_agent.core.errors import BuildError
from fsm_agent.core.plain import short
from fsm_agent.core.strategies import LoopState


@attrs.frozen(kw_only=True)
class HookContext:
    """Where a hook is called: the run, its state, the number of model turns so far, and the caller's own `context`."""

    run_id: str
    state: str
    iteration_count: int
    context: Any = None


@attrs.frozen(kw_only=True)
class HookCall:
    """A call as a hook sees it, with copies of arguments and value; `ok` is None before it has run."""

    id: str
    tool: str
    args: Any
    ok: bool | None = None
    value: Any = None
    error: str = ""


@attrs.frozen
class Skip:
    """A hook's word that the body does not run; `result` is shown in its place, under the error ``skipped:<why>``."""

    result: Any = None
    why: str = "hook"


@attrs.frozen(kw_only=True)
class Hooks:
    """What a host is called for; each may be a coroutine function where the run is driven by a task. None abstains.

    `on_iteration` comes before each model turn. `before_tool_call` comes once for each admitted call, before memory, person and
    body; it may give a Skip. `after_tool_phase` comes when the calls of a turn have their results. `should_continue` comes
    between turns; false ends the run (`strategy`). One that raises refuses its call, or ends the run with its name; so does a
    coroutine that has not answered when the deadline is over. A plain function is called where the run is driven, and waited for.
    """

    on_iteration: Callable[[HookContext], Any] | None = None
    before_tool_call: Callable[[HookContext, HookCall], Any] | None = None
    after_tool_phase: Callable[[HookContext, tuple[HookCall, ...]], Any] | None = None
    should_continue: Callable[[HookContext, LoopState], Any] | None = None

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(Hooks):
            hook = getattr(self, field.name)
            if hook is not None and (isinstance(hook, type) or not callable(hook)):
                raise BuildError(f"Hooks.{field.name} is {short(hook, 60)}; give a function, or leave it out")
            given = _CALLED_WITH[field.name]
            if manner := wrong_manner(hook, awaited=True, given=given):
                raise BuildError(f"Hooks.{field.name} is {manner}; {function_of(given)}")


_CALLED_WITH = {
    "on_iteration": ("context",),
    "before_tool_call": ("context", "call"),
    "after_tool_phase": ("context", "calls"),
    "should_continue": ("context", "state"),
}
