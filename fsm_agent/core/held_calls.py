"""Calls that may not begin yet: what the host checks first, whom the run waits for, and what their word does.

Nothing of a turn begins while one of its calls waits. A call is checked once, then a person is asked where that is due,
then a client is waited for where the body runs there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from fsm_agent.core.decoding import decoded
from fsm_agent.core.effects import Check, Pause
from fsm_agent.core.errors import WrongEvent
from fsm_agent.core.events import (
    Approved,
    CallEvent,
    Checked,
    CircuitOpen,
    Denied,
    Event,
    Lost,
    Paused,
    Raised,
    Returned,
    Reused,
    Skipped,
    Superseded,
)
from fsm_agent.core.exact_values import exact_args
from fsm_agent.core.gate import Toolbox, call_fault, count_edited, fault_list, refuse, share
from fsm_agent.core.keys import call_key
from fsm_agent.core.plain import short, storable
from fsm_agent.core.redact import MARK, redacted, without_secrets
from fsm_agent.core.run import Call, Run
from fsm_agent.core.secret_seals import keep_former, noted_fault
from fsm_agent.core.tools import Tool
from fsm_agent.core.values import Policy, StopReason

_PEOPLE = frozenset({Checked, Paused, Approved, Denied, Superseded})
CHECK, APPROVAL, CLIENT = "check", "approval", "client"


def held_calls(run: Run) -> list[Call]:
    """The open calls of the turn that wait for a check, a person or a client, in order."""
    return [call for call in run.open_calls if call.ok is None and call.awaits]


def ask_held(run: Run) -> Check | Pause:
    """What the run needs while calls of it are held: the host's checks first, then people."""
    calls = held_calls(run)
    checks = [call for call in calls if call.awaits == CHECK]
    return Check(run, checks) if checks else Pause(run, calls)


def is_people_event(event: Event) -> bool:
    """True for what a person says, or the host says of a call before it begins."""
    return type(event) in _PEOPLE


def may_settle(run: Run, event: CallEvent) -> bool:
    """Whether a held call may have this answer.

    While it is checked that is a hook's skip, memory's word or the breaker's; while a client is due, the client's result.
    """
    call = next((call for call in held_calls(run) if call.id == event.call_id), None)
    if call is None:
        return False
    if call.awaits == CHECK:
        return isinstance(event, Skipped | Reused | CircuitOpen)
    return call.awaits == CLIENT and isinstance(event, Returned | Raised | Lost)


def tell_held(run: Run, box: Toolbox, policy: Policy, event: Event) -> None:
    """Fold in one word about held calls; raises WrongEvent where no call waits for it."""
    if isinstance(event, Paused):
        if any(call.awaits == CHECK for call in held_calls(run)):
            raise WrongEvent(f"run {run.id!r} was told Paused and waits for checks first; tell Checked or Skipped")
        _pause(run, event)
    elif isinstance(event, Superseded):
        for call in run.open_calls:
            if call.ok is None:
                refuse(run, call, "superseded", "the user said something new before the call was begun")
        run.flat_trace.extend(("message", run.spent_s, run.id, event.message))
    elif isinstance(event, Checked):
        call = _waiting(run, event.call_id, CHECK)
        _next(run, box.get(call.tool), call, APPROVAL if event.approval else "")
    elif isinstance(event, Approved):
        call = _waiting(run, event.call_id, APPROVAL)
        tool = box.get(call.tool)
        if event.edited:
            event.args = _edit(run, tool, policy, call, event.args)
        if call.ok is None:
            _next(run, tool, call, "")
    else:
        assert isinstance(event, Denied)
        call = _waiting(run, event.call_id, APPROVAL)
        event.reason = redacted(event.reason, call.secret, call.args)
        _deny(run, policy, call, event.reason)


def release(run: Run, box: Toolbox) -> bool:
    """Count the calls that are held; true when none is and the turn goes on."""
    run.held = len(held_calls(run))
    if run.held:
        return False
    if run.paused:
        run.paused = False
        run.flat_trace.extend(("resumed", run.spent_s, run.id, None))
    share(run, box)
    return True


def approval_token(run: Run, call: Call) -> str:
    """A short text that two calls share only when tool, arguments, machine and state are the same: what was approved."""
    exact = call_key("approval", (run.id, call.id, run.machine, run.state, call.tool, storable(call.args)))
    return hashlib.blake2b(exact.encode("utf-8", "backslashreplace"), digest_size=8).hexdigest()


def _pause(run: Run, event: Paused) -> None:
    calls = held_calls(run)
    for call in calls:
        if call.awaits == APPROVAL and call.expires_at is None:
            call.expires_at = event.expires_at
    if not run.paused and calls:
        run.paused = True
        run.flat_trace.extend(("paused", run.spent_s, calls[0].id, {call.id: call.awaits for call in calls}))


def _next(run: Run, tool: Tool | None, call: Call, awaits: str) -> None:
    call.awaits = awaits or (CLIENT if tool is not None and tool.where == CLIENT else "")


def _edit(run: Run, tool: Tool | None, policy: Policy, call: Call, args: Any) -> Any:
    """Take a person's arguments in place of the decider's, and return them; they are measured and counted like any.

    What was shown with a mark in place of a secret and still stands there as it was shown keeps its value.
    """
    before, after = decoded(call.args), decoded(exact_args(args))
    if tool is not None and tool.secret and isinstance(before, Mapping) and isinstance(after, Mapping):
        shown = without_secrets(before, tool.secret)
        kept = {name for name, value in after.items() if type(value) is str and MARK in value and shown.get(name) == value}
        after = {name: before[name] if name in kept else value for name, value in after.items()}
    if call.secret:
        keep_former(run, call)
    call.edited, call.args = storable(before), after
    if tool is None:
        return after
    repeats = count_edited(run, call, tool, policy)
    fault = call_fault(tool, call.args)
    if call.secret:
        fault = noted_fault(run, call, fault)
    if fault:
        refuse(run, call, f"args:{fault}", fault_list(tool, call.args))
    elif repeats:
        refuse(run, call, "refused:duplicate", "the same call was made before and is not run again")
        if run.closed:
            _skip_behind(run, call)
    return after


def _skip_behind(run: Run, call: Call) -> None:
    """Where a call ends the run, nothing behind it begins any more, and nobody is asked about it."""
    for other in run.open_calls[run.open_calls.index(call) + 1 :]:
        if other.ok is None:
            refuse(run, other, f"skipped:{run.closed[0].reason.value}", "the run is stopping")


def _deny(run: Run, policy: Policy, call: Call, reason: Any) -> None:
    why = short(reason, 300)[1:-1] if isinstance(reason, str) and reason.strip() else ""
    refuse(run, call, f"denied:{reason.strip()[:300]}" if why else "denied", "a person did not let the call run")
    if policy.on_denied == "stop":
        run.stopping, run.note = StopReason.DENIED, f"the call {call.id} of {call.tool} was denied{why and ': '}{why}"
        for other in run.open_calls:
            if other.ok is None:
                refuse(run, other, "skipped:denied", "a call of the turn was denied")


def _waiting(run: Run, call_id: Any, awaits: str) -> Call:
    calls = held_calls(run)
    for call in calls:
        if call.id == call_id and call.awaits == awaits:
            return call
    waiting = ", ".join(f"{call.id!r} ({call.awaits})" for call in calls) or "nothing"
    raise WrongEvent(f"run {run.id!r} has no call {short(call_id, 60)} that waits for {awaits}; it waits for {waiting}")
