"""What a paused run waits for: exact calls, each for a person or a client."""

from __future__ import annotations

from typing import Any

import attrs

from fsm_agent.core.errors import CannotDecide
from fsm_agent.core.held_calls import APPROVAL, CHECK, approval_token, held_calls
from fsm_agent.core.plain import plain_copy, short
from fsm_agent.core.redact import without_secrets
from fsm_agent.core.run import Call, Run


@attrs.frozen(kw_only=True)
class Pending:
    """One call that a paused run waits for.

    `kind` is ``approval`` or ``client``. `token` stands for the exact call (tool, arguments, machine, state): a decision
    that carries it is refused once any of these has changed. In `args` a mark stands for each secret. `expires_at` is the
    UTC second after which no approval is taken.
    """

    call_id: str
    kind: str
    tool: str
    args: Any
    token: str
    intent: str = ""
    reason: str = ""
    expires_at: float | None = None


def pending_of(run: Run) -> tuple[Pending, ...]:
    """The calls that people have to decide about or clients to answer, in order; empty while the run is not paused."""
    if not run.held:
        return ()
    return tuple(
        Pending(
            call_id=call.id,
            kind=call.awaits,
            tool=call.tool,
            args=without_secrets(plain_copy(call.args), call.secret) if call.secret else plain_copy(call.args),
            token=approval_token(run, call),
            intent=call.intent,
            reason=call.reason,
            expires_at=call.expires_at,
        )
        for call in held_calls(run)
        if call.awaits != CHECK
    )


def decidable(run: Run, call_id: str, kind: str, token: str | None, wall: float | None = None) -> Call:
    """The held call that a decision is about; raises CannotDecide, naming what the run waits for, where there is none.

    `wall` is the present UTC second, for a decision that may come too late.
    """
    if run.stop is not None and not run.closing:
        raise CannotDecide(f"run {run.id!r} is over ({run.stop.reason.value}); nothing of it is left to decide")
    held = [call for call in held_calls(run) if call.awaits != CHECK]
    for call in held:
        if call.id != call_id:
            continue
        if call.awaits != kind:
            raise CannotDecide(f"the call {call_id!r} of run {run.id!r} waits for {_for(call.awaits)}, not for {_for(kind)}")
        if token is not None and token != approval_token(run, call):
            raise CannotDecide(f"the call {call_id!r} of run {run.id!r} is not the one that was shown; look at it again")
        if wall is not None and call.expires_at is not None and wall > call.expires_at:
            mend = "deny it, or say something new; Policy(approval_ttl_s=) lets one wait longer"
            raise CannotDecide(f"the approval of call {call_id!r} has expired; {mend}")
        return call
    known = next((call for call in (*run.calls, *run.open_calls) if call.id == call_id), None)
    if known is not None:
        raise CannotDecide(f"the call {call_id!r} of run {run.id!r} is decided already ({known.error or 'it may run'})")
    waiting = ", ".join(repr(call.id) for call in held) or "nobody"
    raise CannotDecide(f"run {run.id!r} has no call {short(call_id, 60)}; it waits for {waiting}")


def _for(kind: str) -> str:
    return "a person's approval" if kind == APPROVAL else "a client's answer"
