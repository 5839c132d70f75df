"""The gate: admit a call, or say why not. It looks at the run and the contract and nothing else.

The order is the specification's: the tool is known, the state allows it, the arguments keep the contract, the budgets have
room, the call is no forbidden repetition. Memory, breaker and body come after it and belong to the driver.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

import attrs

from fsm_agent.core.decoding import decoded
from fsm_agent.core.exact_values import exact_args
from fsm_agent.core.keys import call_key, key_args, loop_key
from fsm_agent.core.limits import Limits
from fsm_agent.core.plain import cut
from fsm_agent.core.redact import MARK, key_form, marked, redacted
from fsm_agent.core.run import Call, ClosedGuard, Run, deadline_after, reserve_of
from fsm_agent.core.secret_seals import former_secrets, noted_fault
from fsm_agent.core.tools import Tool
from fsm_agent.core.values import Fault, Policy, ResultClass, StopReason

_MOST_FAULTS = 100
_MOST_CHARACTERS = 8000
_TO_TRY_AGAIN = (ResultClass.RETRYABLE, ResultClass.RATE_LIMITED)


class Toolbox(Protocol):
    """Where tools are looked up by name; it may change while runs go on."""

    def get(self, name: Any) -> Tool | None:
        """The tool of that name, or None, whatever a decider made of the name."""

    def names(self) -> Collection[str]:
        """The names there are now, in order."""


def allowed_now(run: Run, box: Toolbox, allowed: Collection[str] | None) -> tuple[str, ...]:
    """The tools that the state allows and that have budget left, in the order of the toolbox."""
    limits, counts = run.limits, run.tool_counts
    if limits.max_tool_calls is not None and run.tool_calls >= limits.max_tool_calls:
        return ()
    names = tuple(box.names()) if allowed is None else tuple([name for name in box.names() if name in allowed])
    same = limits.max_same_tool_calls
    # No tool was called more often than all of them together.
    if same is None or (type(same) is int and run.tool_calls < same):
        return names
    return tuple(name for name in names if (most := limits.for_tool(name)) is None or counts.get(name, 0) < most)


def admit_turn(
    run: Run, box: Toolbox, allowed: Collection[str] | None, policy: Policy, checks: bool = False, peeks: bool = False
) -> None:
    """Pass every open call that was not admitted yet through the gate, in order.

    A refused call is settled with its reason. A closed run-wide guard is noted in `run.closed`; the calls behind it are
    skipped, those before it stay admitted. A call that needs a person or a client is held, and with `checks` every call is, for
    the host's hooks; with `peeks` those are that would be held anyway, for memory and breakers come before people.
    """
    calls = run.open_calls
    admitted = 0
    for call in calls:
        # Those that were folded in before the run was stopped and taken up again are no part of the batch that is resumed.
        admitted += call.admitted and not call.counted
    for call in calls:
        if call.ok is None and not call.admitted:
            admit(run, call, box, allowed, policy, admitted, checks, peeks)
            admitted += call.admitted
    if admitted > 1 and not run.held:
        share(run, box)


def admit(
    run: Run,
    call: Call,
    box: Toolbox,
    allowed: Collection[str] | None,
    policy: Policy,
    admitted_before: int,
    checks: bool,
    peeks: bool,
) -> None:
    """Pass one open call through the gate; see `admit_turn`. `admitted_before` are the calls of its turn that passed already."""
    call.tries += 1
    tool = box.get(call.tool)
    if tool is not None and tool.secret:
        # Also of what is refused before it is measured: what a run keeps of it is its seal.
        know_secrets(call, tool)
    if run.closed:
        refuse(run, call, f"skipped:{run.closed[0].reason.value}", "the run is stopping")
        return
    args = call.args
    if type(args) is not dict:
        args = call.args = decoded(exact_args(args))
    if tool is None:
        _refuse_request(run, call, None, policy, "args:unknown_tool", _menu(run, box, allowed, policy))
        return
    if allowed is not None and call.tool not in allowed:
        _refuse_request(run, call, tool, policy, "refused:not_allowed", _menu(run, box, allowed, policy))
        return
    fault = tool.args.first_fault(args) if tool.args is not None else call_fault(tool, args)
    if call.secret:
        fault = noted_fault(run, call, fault)
    if fault:
        # What would have worked is for whoever decides again; where nobody does, the reason alone is enough.
        detail = fault_list(tool, args) if policy.redecide else ""
        _refuse_request(run, call, tool, policy, f"args:{fault}", detail)
        return
    limits = run.limits
    if limits.max_calls_per_turn is not None and admitted_before >= limits.max_calls_per_turn:
        refuse(run, call, "skipped:max_calls_per_turn", f"at most {limits.max_calls_per_turn} calls run in one turn")
        return
    called = run.tool_counts.get(call.tool, 0)
    if limits.max_same_tool_calls is not None and (most := limits.for_tool(call.tool)) is not None and called >= most:
        refuse(run, call, "refused:budget:max_same_tool_calls", f"{call.tool} may be called {most} times in a run")
        return
    if limits.max_tool_calls is not None and run.tool_calls >= limits.max_tool_calls:
        _close(run, "calls_left", "max_tool_calls", limits.max_tool_calls, run.tool_calls, StopReason.MAX_TOOL_CALLS)
        refuse(run, call, "skipped:max_tool_calls", f"at most {limits.max_tool_calls} calls run")
        return
    if limits.deadline_s is not None and (until := limits.work_until_s) is not None and run.spent_s >= until:
        _close(run, "time_left", "deadline_s", until, run.spent_s, StopReason.DEADLINE)
        refuse(run, call, "skipped:deadline", "the time for calls is used up")
        return
    if _watches(limits, policy) and _repeats(run, call, tool, policy):
        refuse(run, call, "refused:duplicate", "the same call was made before and is not run again")
        return
    call.admitted = True
    run.tried.append((call.tool, args))
    call.source = tool.source
    if tool.where == "program":
        call.program = True
    run.tool_calls += 1
    run.tool_counts[call.tool] = called + 1
    if limits.dedup_window is not None:
        run.window.append(call.key)
        del run.window[: -limits.dedup_window]
    run.flat_trace.extend(("call_admitted", run.spent_s, call.id, call.tool))
    if checks or tool.held:
        call.awaits = "check" if checks or peeks or callable(tool.approval) else "approval" if tool.approval else tool.where
        run.held += 1


def know_secrets(call: Call, tool: Tool) -> None:
    """Note which arguments of a call are secret, so that they are sealed once it is settled."""
    call.secret = tuple(sorted(tool.secret))
    call.args = decoded(exact_args(call.args))


def learn_secrets(box: Toolbox, call: Call) -> bool:
    """`know_secrets` of a call that never came to the gate; true where there are any."""
    tool = box.get(call.tool)
    if tool is None or not tool.secret:
        return False
    know_secrets(call, tool)
    return True


def call_fault(tool: Tool, args: Any) -> str:
    """The first reason for which the arguments break the tool's contract, or an empty text."""
    return tool.args.first_fault(args) if tool.args is not None else "" if isinstance(args, Mapping) else "type:args"


def same_key(run: Run, tool: Tool | None, args: Any, call: Call | None = None) -> str:
    """The key that repetitions of a call are counted by."""
    name = tool.name if tool is not None else ""
    return loop_key(name, _same_args(run, tool, args, call))


def _menu(run: Run, box: Toolbox, allowed: Collection[str] | None, policy: Policy) -> str:
    if not policy.redecide:
        return ""
    return f"tools allowed in state {run.state}: {', '.join(allowed_now(run, box, allowed)) or 'none'}"


def fault_list(tool: Tool, args: Any) -> str:
    """Every fault of the arguments, with its place and what was expected, secrets redacted; beyond 100 they are counted."""
    if tool.args is None:
        return "arguments must be an object"
    faults = tool.args.faults(args)
    told = [str(_hidden(fault, tool, args) if tool.secret else fault) for fault in faults[:_MOST_FAULTS]]
    if len(faults) > _MOST_FAULTS:
        told.append(f"and {len(faults) - _MOST_FAULTS} more")
    return redacted("; ".join(told), tool.secret, args)


def _hidden(fault: Fault, tool: Tool, args: Any) -> Fault:
    # What came is told shortened, and the rest of a secret would not be found in it again.
    whole = not isinstance(args, Mapping) or not fault.path
    return attrs.evolve(fault, got=MARK) if whole or fault.path[0] in tool.secret else fault


def refuse(run: Run, call: Call, error: str, detail: str = "") -> None:
    """Settle a call without running it; `error` is its stable word. One that is skipped was not tried."""
    if run.former is not None:
        detail = marked(detail, former_secrets(run, call))
    call.ok, call.error, call.detail = False, error, detail
    if not error.startswith("skipped:"):
        run.tried.append((call.tool, call.args))
    run.errors.append(error)
    run.flat_trace.extend(("call_refused", run.spent_s, call.id, error))


def _refuse_request(run: Run, call: Call, tool: Tool | None, policy: Policy, error: str, detail: str) -> None:
    # A call that never reached its body is a request of its key too: asking for it again is a repetition.
    if _watches(run.limits, policy):
        _repeats(run, call, tool, policy)
    refuse(run, call, error, detail)


def _watches(limits: Limits, policy: Policy) -> bool:
    """Whether requests of a key are counted; the policy `first` (001) has a figure of its own."""
    return limits.max_same_call is not None or limits.dedup_window is not None or policy.duplicates == "first"


def _repeats(run: Run, call: Call, tool: Tool | None, policy: Policy) -> bool:
    """Count one request of the call's key; true when the policy does not let it run again."""
    most, window = run.limits.max_same_call, run.limits.dedup_window
    call.key = loop_key(call.tool, _same_args(run, tool, call.args, call))
    before = run.requests.get(call.key, 0)
    run.requests[call.key] = before + 1
    if tool is not None and tool.polling:
        return False
    if window is not None:
        before = run.window.count(call.key)
    allowed = 1 if most is None or policy.duplicates == "first" else most
    if before < allowed or (before := before - _failed_for_now(run, call.key, window)) < allowed:
        return False
    if policy.duplicates in ("stop", "first"):
        limit = "max_same_call"
        calls = [*(c.id for c in run.calls if c.key == call.key), *(c.id for c in run.open_calls if c.key == call.key)]
        if most is None and window is not None:
            # Those that the window has passed by do not count.
            limit, allowed, calls = "dedup_window", window, calls[-before - 1 :]
        # Where the first repetition ends the run whatever the figure, only a figure above the present one is a raise.
        least = most or 0 if policy.duplicates == "first" else 0
        _close(run, "call_is_new", limit, allowed, before + 1, StopReason.DUPLICATE_CALL, tuple(calls), least)
    return True


def count_edited(run: Run, call: Call, tool: Tool | None, policy: Policy) -> bool:
    """Count an admitted call under the key of the arguments that a person gave it; true when the policy does not let it run.

    The decider's own request stays counted; what a person left the same call is no request more.
    """
    before, key = call.key, same_key(run, tool, call.args, call)
    if not _watches(run.limits, policy) or key == before:
        call.key = key
        return False
    if before in run.window:
        # It is this call's place in the window: what the decider asked for does not run.
        del run.window[len(run.window) - 1 - run.window[::-1].index(before)]
    repeats = _repeats(run, call, tool, policy)
    if not repeats and run.limits.dedup_window is not None:
        run.window.append(key)
    return repeats


def _same_args(run: Run, tool: Tool | None, args: Any, call: Call | None = None) -> object:
    """The arguments that make two calls the same: defaults filled in, or those that the contract names as identity."""
    if tool is None:
        return args
    if tool.args is not None and isinstance(args, Mapping):
        args = tool.args.with_defaults(args)
    former = () if run.former is None or call is None else former_secrets(run, call)
    # A call that a repair has given to this tool keeps the secrets of the tool before.
    secret = tool.secret.union(call.secret) if call is not None and call.secret else tool.secret
    if secret or former:
        args = key_form(args, secret, run.id, former)
    return key_args(args, tool.identity)


def _failed_for_now(run: Run, key: str, window: int | None) -> int:
    """How many of the earlier calls of this key asked to be tried again: the next one is a retry, no repetition (002)."""
    calls = run.calls if window is None else [call for call in run.calls if call.admitted][-window:]
    return sum(call.key == key and call.result_class in _TO_TRY_AGAIN for call in calls)


def _close(
    run: Run,
    guard: str,
    limit: str,
    allowed: float,
    used: float,
    reason: StopReason,
    calls: tuple[str, ...] = (),
    least: float = 0,
) -> None:
    timed = limit == "deadline_s"
    opens_at = deadline_after(run, used) if timed else max(used, least) + 1
    reserve = reserve_of(run) if timed else 0.0
    closed = ClosedGuard(
        guard=guard, limit=limit, allowed=allowed, used=used, opens_at=opens_at, reason=reason, calls=calls, reserve=reserve
    )
    run.close(closed)


def share(run: Run, box: Toolbox) -> None:
    """Let identical pure calls of the turn share the run of the first of them, up to the next call with effects.

    That run may be over: a repair can make a call the same as one that has its result.
    """
    leaders: dict[tuple[int, str], str] = {}
    unbegun: list[tuple[int, str, Call]] = []
    effects = 0
    for call in run.open_calls:
        if not call.admitted or call.started:
            continue
        tool = box.get(call.tool)
        if tool is None or not tool.pure:
            # What was read before this call may be different after it.
            effects += 1
            continue
        if call.ok is False or tool.polling or tool.cache_ttl_s == 0:
            continue
        key = call_key(call.tool, _same_args(run, tool, call.args, call), True)
        if call.ok is None:
            unbegun.append((effects, key, call))
        else:
            leaders[effects, key] = call.id
    for place, key, call in unbegun:
        leader = leaders.setdefault((place, key), call.id) if key else call.id
        call.leader = "" if leader == call.id else leader


def fault_text(call: Call) -> str:
    """What the decider is told about a call that failed: the stable word, and what would have worked."""
    return f"{call.error} ({cut(call.detail, _MOST_CHARACTERS)})" if call.detail else call.error
