"""What the host's strategies, hooks and approval functions make of a run: stops and checks, told like any event."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from fsm_agent.core.errors import BuildError
from fsm_agent.core.events import Checked, Skipped, Stopped
from fsm_agent.core.gate import Toolbox
from fsm_agent.core.plain import plain_copy, short
from fsm_agent.core.run import Call, Run
from fsm_agent.core.strategies import LoopState, Strategy, name_of, parts_of
from fsm_agent.core.transcript import transcript
from fsm_agent.host.hooks import HookCall, HookContext, Hooks, Skip
from fsm_agent.host.perform import message_of
from fsm_agent.host.perform import name_of as error_name
from fsm_agent.host.resolve import Questions


class Guide:
    """Strategies and hooks of one host, asked in the order in which they were given; it holds no run."""

    def __init__(self, strategies: Iterable[Strategy] = (), hooks: Hooks | Sequence[Hooks] | None = None) -> None:
        self.strategies = parts_of([strategies] if callable(strategies) else strategies)
        self.hooks = [hooks] if isinstance(hooks, Hooks) else list(hooks or ())
        for strategy in self.strategies:
            if not callable(strategy):
                raise BuildError(f"{short(strategy, 60)} is no strategy; give functions of a LoopState")
        for one in self.hooks:
            if not isinstance(one, Hooks):
                raise BuildError(f"{short(one, 60)} is no set of hooks; give Hooks(...), or a list of them")
        self.checks = any(one.before_tool_call is not None for one in self.hooks)
        self.looks = bool(self.strategies or self.hooks)

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
                reason = str(getattr(strategy, "stop_reason", "strategy"))
                stop = yield from _may_go_on(partial(strategy, state), name_of(strategy), reason)
                if stop is not None:
                    return stop
        for one in self.hooks:
            if one.on_iteration is not None:
                try:
                    yield partial(one.on_iteration, about)
                except Exception as error:
                    return _raised("on_iteration", error)
        return None

    def check(self, run: Run, box: Toolbox, call: Call, context: Any) -> Questions[Checked | Skipped]:
        """Ask the hooks and the tool's approval function about one call."""
        about = _about(run, context)
        for one in self.hooks:
            if one.before_tool_call is None:
                continue
            try:
                word = yield partial(one.before_tool_call, about, _seen(call))
            except Exception as error:
                why = f"before_tool_call raised {error_name(error)}"
                return Skipped(call.id, why, message_of(error) or None)
            if word is not None:
                return _skipped(call, word)
        tool = box.get(call.tool)
        approval = tool.approval if tool is not None else False
        if not callable(approval):
            return Checked(call.id, bool(approval))
        try:
            needed = yield partial(approval, **plain_copy(dict(call.args)))
        except Exception:
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
                except Exception as error:
                    return _raised("after_tool_phase", error)
        return None


def loop_state(run: Run, box: Toolbox) -> LoopState:
    """The run as strategies look at it."""
    return LoopState(
        iteration_count=run.turns,
        finish_reason=run.finish,
        messages=transcript(run, box),
        tool_call_count=run.emitted_calls,
        last_turn_tool_call_count=run.last_emitted,
    )


def _may_go_on(question: Any, name: str, reason: str) -> Questions[Stopped | None]:
    try:
        word = yield question
    except Exception as error:
        return _raised(name, error)
    return None if word is None or word else Stopped(reason, f"{name} said stop")


def _raised(name: str, error: Exception) -> Stopped:
    return Stopped("strategy", f"{name} raised {error_name(error)}: {message_of(error)}".rstrip(": "))


def _skipped(call: Call, word: Any) -> Skipped:
    if isinstance(word, Skip):
        return Skipped(call.id, word.why, word.result)
    # Anything else that is said is no abstention; running the body would pass it over.
    return Skipped(call.id, "hook", word)


def _about(run: Run, context: Any) -> HookContext:
    return HookContext(run_id=run.id, state=run.state, iteration_count=run.turns, context=context)


def _seen(call: Call) -> HookCall:
    return HookCall(
        id=call.id, tool=call.tool, args=plain_copy(call.args), ok=call.ok, value=plain_copy(call.value), error=call.error
    )
