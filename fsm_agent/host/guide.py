"""What the host's strategies, hooks and approval functions make of a run: stops and checks, told like any event."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import attrs

from fsm_agent.core.callables import function_of, wrong_manner
from fsm_agent.core.errors import BuildError
from fsm_agent.core.events import Checked, Skipped, Stopped
from fsm_agent.core.exact_values import word as exact_word
from fsm_agent.core.gate import Toolbox
from fsm_agent.core.plain import plain_copy, short, storable
from fsm_agent.core.redact import redacted
from fsm_agent.core.run import Call, Run
from fsm_agent.core.strategies import LoopState, Strategy, name_of, parts_of
from fsm_agent.core.tools import Tool
from fsm_agent.core.transcript import transcript
from fsm_agent.core.values import StopReason
from fsm_agent.host.bodies import is_async
from fsm_agent.host.hooks import HookCall, HookContext, Hooks, Skip
from fsm_agent.host.logs import log_raised
from fsm_agent.host.perform import message_of
from fsm_agent.host.perform import name_of as error_name
from fsm_agent.host.resolve import FAILURES, Questions


class Guide:
    """Strategies and hooks of one host, asked in the order in which they were given; it holds no run."""

    def __init__(self, strategies: Iterable[Strategy] = (), hooks: Hooks | Sequence[Hooks] | None = None) -> None:
        given = [strategies] if callable(strategies) else _listed(strategies, "strategy", "functions of a LoopState")
        self.strategies = parts_of(given)
        several = () if hooks is None else hooks
        self.hooks = [hooks] if isinstance(hooks, Hooks) else _listed(several, "hooks", "Hooks(...), or a list of them")
        for strategy in self.strategies:
            if isinstance(strategy, type) or not callable(strategy):
                raise BuildError(f"{short(strategy, 60)} is no strategy; give functions of a LoopState")
            if manner := wrong_manner(strategy, awaited=True, given=("state",)):
                raise BuildError(f"the strategy {name_of(strategy)} is {manner}; {function_of(('state',))}")
            if _stop_reason(strategy) not in _STOP_REASONS:
                reason = short(_stop_reason(strategy), 60)
                raise BuildError(f"the strategy {name_of(strategy)} has the stop_reason {reason}; give a StopReason")
        for one in self.hooks:
            if not isinstance(one, Hooks):
                raise BuildError(f"{short(one, 60)} is no set of hooks; give Hooks(...), or a list of them")
        self.checks = any(one.before_tool_call is not None for one in self.hooks)
        self.looks = bool(self.strategies or self.hooks)
        named = [(f"Hooks.{name}", hook) for one in self.hooks for name, hook in attrs.asdict(one, recurse=False).items()]
        named += [(f"the strategy {name_of(strategy)}", strategy) for strategy in self.strategies]
        # The name of the first that only a task can await.
        self.needs_loop = next((name for name, part in named if is_async(part)), "")

    def before_turn(self, run: Run, box: Toolbox, context: Any) -> Questions[Stopped | None]:
        """Ask whether another model turn may begin, and let the hooks know that it does."""
        about = _about(run, context)
        if run.turns:
            state = loop_state(run, box)
            for one in self.hooks:
                if one.should_continue is not None:
                    stop = yield from _may_go_on(partial(one.should_continue, about, state), "should_continue", "strategy")
                    if stop is not None:
                        return stop
            for strategy in self.strategies:
                stop = yield from _may_go_on(partial(strategy, state), name_of(strategy), _stop_reason(strategy))
                if stop is not None:
                    return stop
        for one in self.hooks:
            if one.on_iteration is not None:
                try:
                    yield partial(one.on_iteration, about)
                except FAILURES as error:
                    return _raised("on_iteration", error)
        return None

    def check(self, run: Run, box: Toolbox, call: Call, context: Any) -> Questions[Checked | Skipped]:
        """Ask the hooks and the tool's approval function about one call."""
        about, tool = _about(run, context), box.get(call.tool)
        for one in self.hooks:
            if one.before_tool_call is None:
                continue
            try:
                word = yield partial(one.before_tool_call, about, _seen(call))
            except FAILURES as error:
                log_raised("before_tool_call", error)
                why = f"before_tool_call raised {error_name(error)}"
                return Skipped(call.id, why, _said(error, call, tool) or None)
            if word is not None:
                return _skipped(call, tool, word)
        approval = tool.approval if tool is not None else False
        if not callable(approval):
            return Checked(call.id, bool(approval))
        try:
            needed = yield partial(approval, **plain_copy(dict(call.args)))
        except FAILURES as error:
            log_raised(f"the approval function of {call.tool}", error)
            # Who cannot say whether a person has to be asked has not said that none has.
            needed = True
        return Checked(call.id, needed is not False)

    def after_calls(self, run: Run, calls: Sequence[Call], context: Any) -> Questions[Stopped | None]:
        """Let the hooks know that the calls of a turn have their results."""
        seen = tuple(_seen(call) for call in calls)
        for one in self.hooks:
            if one.after_tool_phase is not None:
                try:
                    yield partial(one.after_tool_phase, _about(run, context), seen)
                except FAILURES as error:
                    return _raised("after_tool_phase", error)
        return None


def unseen_calls(run: Run) -> int:
    """The place in `run.calls` of the first call whose result no hook has seen when a drive begins; -1 where there is none.

    Such calls are those of a turn that is still open, or of one that people settled while the run was paused.
    """
    if run.open_calls:
        return len(run.calls)
    for kind, *_ in run.backwards():
        if kind == "paused":
            return next((n for n, call in enumerate(run.calls) if call.turn == run.calls[-1].turn), -1)
        if kind not in _WHILE_PAUSED:
            break
    return -1


def loop_state(run: Run, box: Toolbox) -> LoopState:
    """The run as strategies look at it."""
    return LoopState(
        iteration_count=run.turns,
        finish_reason=run.finish,
        messages=tuple(transcript(run, box)),
        tool_call_count=run.emitted_calls,
        last_turn_tool_call_count=run.last_emitted,
    )


def _may_go_on(question: Any, name: str, reason: str) -> Questions[Stopped | None]:
    try:
        word = yield question
        stops = word is not None and not word
    except FAILURES as error:
        return _raised(name, error)
    return Stopped(reason, f"{name} said stop") if stops else None


def _raised(name: str, error: BaseException) -> Stopped:
    log_raised(name, error)
    return Stopped("strategy", f"{name} raised {error_name(error)}: {message_of(error)}".rstrip(": "))


def _skipped(call: Call, tool: Tool | None, word: Any) -> Skipped:
    if issubclass(type(word), Skip):
        why = exact_word(word.why).strip() or "hook"
        if tool is not None and tool.secret:
            why = redacted(why, tool.secret, call.args)
        return Skipped(call.id, why, storable(word.result))
    # Anything else that is said is no abstention; running the body would pass it over.
    return Skipped(call.id, "hook", storable(word))


def _said(error: BaseException, call: Call, tool: Tool | None) -> str:
    said = message_of(error)
    return redacted(said, tool.secret, call.args) if tool is not None and tool.secret else said


def _stop_reason(strategy: Strategy) -> str:
    return str(getattr(strategy, "stop_reason", "strategy"))


def _listed(parts: Any, name: str, mend: str) -> list[Any]:
    if isinstance(parts, str | bytes) or not isinstance(parts, Iterable):
        raise BuildError(f"{name} is {short(parts, 60)}; give {mend}")
    return list(parts)


_STOP_REASONS = frozenset(reason.value for reason in StopReason)
# The lines of a trace between a pause and the drive that goes on, where people settled the turn.
_WHILE_PAUSED = frozenset({"call_refused", "call_finished", "message", "resumed", "state_entered"})


def _about(run: Run, context: Any) -> HookContext:
    return HookContext(run_id=run.id, state=run.state, iteration_count=run.turns, context=context)


def _seen(call: Call) -> HookCall:
    return HookCall(
        id=call.id, tool=call.tool, args=plain_copy(call.args), ok=call.ok, value=plain_copy(call.value), error=call.error
    )
