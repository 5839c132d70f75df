"""Performing one call: memory first, then the breaker, then the body in its time; every outcome is an event.

The same steps serve threads and tasks: `before` and `after` do no waiting, and only the body in between differs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from threading import Lock
from typing import Any

import attrs

from fsm_agent.core.errors import PASSES
from fsm_agent.core.events import CallEvent, CircuitOpen, Raised, Returned, Reused
from fsm_agent.core.exact_values import exact_verdict
from fsm_agent.core.figures import finite_seconds
from fsm_agent.core.generated import maker
from fsm_agent.core.keys import call_key, key_args
from fsm_agent.core.plain import plain_copy
from fsm_agent.core.redact import memory_form, redacted
from fsm_agent.core.run import Call, Run
from fsm_agent.core.secret_seals import former_secrets
from fsm_agent.core.tools import Outcome, Tool
from fsm_agent.core.values import OK, PURE, Verdict
from fsm_agent.host.clock import SystemClock
from fsm_agent.host.logs import log_raised
from fsm_agent.host.memory import new_remembered
from fsm_agent.host.ports import Host, ToolContext

_SYSTEM = SystemClock()
_NO_ARGS: dict[str, Any] = {}
_FOREVER = float("inf")
_MOST_SAID = 2000
# About three years: no clock of a platform counts the seconds of a longer wait, and no body is waited for so long.
_LONGEST_S = 1e8
# A secret is looked for in more than is told, or one that stands at the cut would be told in part.
_MOST_READ = 200_000
_SCALARS = frozenset({str, int, float, bool, type(None), bytes})


@attrs.define(slots=True)
class Performance:
    """One call on its way: the tool as it was when the call began, its memory key, its breaker ticket.

    Where the body has to run, `args` are the arguments it gets, `seconds` the time it has (None: no limit) and `turn`
    the lock that an exclusive body holds while it runs. `repaired` are the repairs that the call had when it began; `event` is
    set once it has its answer.
    """

    call: Call
    tool: Tool
    args: dict[str, Any] = _NO_ARGS
    seconds: float | None = None
    turn: Lock | None = None
    key: str = ""
    scope: str = ""
    ticket: Any = None
    repaired: tuple[str, ...] = ()
    event: CallEvent | None = None


_new_performance = maker(Performance, "call", "tool", "seconds", "repaired")


def reentered(call: Call) -> CallEvent:
    """The event of an exclusive call that was made inside of an exclusive body: it would wait for that for good."""
    why = f"{call.tool!r} is exclusive and was called inside of an exclusive tool of the same agent, for which it would wait for good"
    return Raised(call.id, "RuntimeError", f"{why}; call it after that, or give it to an agent of its own", None, False)


def before(
    host: Host, run: Run, call: Call, tool: Tool, seconds: float | None = None, context: Any = None
) -> Performance:
    """Consult memory and breaker, and make the arguments of the body, which has so many seconds.

    The performance has its event already where memory or the breaker answers for the body, or its arguments cannot be made.
    """
    performance = _new_performance(call, tool, seconds, call.repaired)
    memory = host.memory
    if memory is not None and (key := _memory_key(host, run, tool, call)):
        performance.key = key
        scope = performance.scope = run.scope or run.id
        known = memory.get(key, scope, 0.0 if host.clock is None else host.clock.wall())
        if known is not None:
            performance.event = Reused(call.id, known.value, known.error, known.detail)
            return performance
    if host.breakers is not None and tool.breaker is not None:
        admission = host.breakers.admit(tool.name, tool.breaker, _now(host))
        if admission.open:
            performance.event = CircuitOpen(call.id, admission.retry_after_s)
            return performance
        performance.ticket = admission.ticket
    try:
        performance.args = arguments(tool, call, run, seconds, context)
    except Exception as error:
        performance.event = raised(tool, call, error, ran=False)
    except BaseException:
        release(host, (performance,))
        raise
    return performance


def peek(host: Host, run: Run, call: Call, tool: Tool) -> CallEvent | None:
    """What memory or an open circuit says of a call that a person or a client would be asked about, or None; nothing changes."""
    if host.memory is not None and (key := _memory_key(host, run, tool, call)):
        known = host.memory.get(key, run.scope or run.id, _wall(host))
        if known is not None:
            return Reused(call.id, known.value, known.error, known.detail)
    if host.breakers is not None and tool.breaker is not None:
        shut = host.breakers.shut_for(tool.name, tool.breaker, _now(host))
        if shut is not None:
            return CircuitOpen(call.id, shut)
    return None


def _memory_key(host: Host, run: Run, tool: Tool, call: Call) -> str:
    """The key that a result is remembered under, defaults filled in and unicode as it is; empty where it is not remembered."""
    ttl = tool.cache_ttl_s
    if tool.effect is not PURE or ttl == 0:
        return ""
    # Whoever polls wants to know how it is now.
    if ttl is None and (tool.polling or not (host.ttl_s or tool.negative_ttl_s or host.negative_ttl_s)):
        return ""
    # Nor is it where an argument is told apart by its identity alone: another object may come to have the same.
    plain = not tool.defaults and tool.identity is None and not tool.secret and not call.secret
    return call_key(tool.name, call.args, True) if plain else memory_key(tool, call.args, former_secrets(run, call), call.secret)


def memory_key(tool: Tool, args: Any, former: Collection[str] = (), more: Collection[str] = ()) -> str:
    """The key by which a tool's result is remembered; empty where an argument is told apart by its identity alone."""
    plain = not tool.defaults and tool.identity is None and not tool.secret and not more
    return call_key(tool.name, args if plain else telling(tool, args, former, more), True)


def telling(tool: Tool, args: Any, former: Collection[str] = (), more: Collection[str] = ()) -> Any:
    """The arguments that tell two calls of a tool apart: those that its contract names, with defaults, and no secret in clear.

    `more` names the arguments that were secret where the call was made for another tool, before a repair.
    """
    form = key_args(tool.filled(args), tool.identity)
    return memory_form(form, tool.secret.union(more), former) if tool.secret or more else form


def arguments(tool: Tool, call: Call, run: Run, left_s: float | None, context: Any) -> dict[str, Any]:
    """The body's own copy of the arguments, so that nothing it does to them reaches the run."""
    given = call.args
    args: dict[str, Any] = given.copy() if type(given) is dict else dict(given)
    for value in args.values():
        if type(value) not in _SCALARS:
            args = plain_copy(args)
            break
    if tool.build is not None:
        args = tool.build(args)
    if tool.context_parameter is not None:
        args[tool.context_parameter] = ToolContext(
            run_id=run.id,
            call_id=call.id,
            tool=tool.name,
            attempt=call.tries,
            idempotency_key=f"{run.id}:{call.id}",
            left_s=left_s,
            context=context,
        )
    return args


def started(job: Performance) -> Any:
    """What a body returns; where that is to be awaited, the arguments are its own from now on and kept by nobody else."""
    args, job.args = job.args, _NO_ARGS
    return job.tool.fn(**args)


def returned(tool: Tool, call: Call, value: Any) -> CallEvent:
    """The event of a body that came back."""
    return Returned(call.id, value, _classified(tool, Outcome(value=value)) if tool.classify is not None else None, None, tool)


def raised(tool: Tool, call: Call, error: BaseException, *, ran: bool = True) -> CallEvent:
    """The event of a body that raised; its message is capped, and secret arguments are redacted from it."""
    if type(error) is RuntimeError and isinstance(error.__cause__, StopIteration | StopAsyncIteration):
        # A coroutine may not raise these; Python wraps them, and what the body raised is meant.
        error = error.__cause__
    log_raised(f"the tool {tool.name}", error)
    name = name_of(error)
    message = redacted(message_of(error, _MOST_READ), tool.secret, tool.filled(call.args))[:_MOST_SAID]
    verdict = None
    if tool.classify is not None and ran:
        verdict = _classified(tool, Outcome(error=name, message=message))
    return Raised(call.id, name, message, verdict, ran, tool)


def name_of(error: BaseException) -> str:
    """The name of an exception's type."""
    try:
        return str.__str__(type(error).__name__)
    except BaseException:  # a class may make up its own name, and fail at it
        return "Exception"


def late(call: Call, seconds: float, *, ran: bool) -> CallEvent:
    """The event of a body that was given up when its time was over."""
    what = "did not end" if ran else "could not begin"
    return Raised(call.id, "TimeoutError", f"the body {what} in {seconds:g} s", None, ran)


def after(host: Host, run: Run, performance: Performance) -> None:
    """Let memory and breaker know how the call ended, once the run has read its result."""
    call, kind = performance.call, type(performance.event)
    if kind is not Returned and kind is not Raised:
        return
    # What a repair has changed since says nothing of this body any more.
    word = _word_of(performance.event) if not call.ok and call.repaired != performance.repaired else None
    if performance.ticket is not None and host.breakers is not None:
        error = call.error if word is None else word
        report(host, performance, performance.event, error != "result:empty" and (bool(error) or call.ok is None))
    memory = host.memory
    if memory is None or (call.ok is None and word is None):
        return
    if performance.key:
        # A body that never began says nothing of its call: at another time it may be able to.
        if kind is Returned or performance.event.ran:  # type: ignore[union-attr]
            _remember(host, run, performance, word)
    elif call.ok and performance.tool.effect is not PURE:
        # What was read before may have changed with this effect.
        memory.forget(run.scope or run.id)


def delivery(host: Host, run: Run, call: Call, tool: Tool, event: Returned | Raised) -> Performance:
    """What a client answered, for `after`, like the result of any body, and classified like one.

    Made before the run is told, while its arguments are open.
    """
    if tool.classify is not None:
        came = Outcome(value=event.value) if isinstance(event, Returned) else Outcome(error=event.error, message=event.message)
        event.verdict = _classified(tool, came)
    key = "" if host.memory is None else _memory_key(host, run, tool, call)
    return Performance(call, tool, key=key, scope=run.scope or run.id, event=event, repaired=call.repaired)


def release(host: Host, performances: Iterable[Performance]) -> None:
    """Give back the breaker tickets of calls that will have no answer, so that the place of a probe is free at once."""
    for performance in performances:
        if performance.ticket is not None and host.breakers is not None:
            host.breakers.release(performance.tool.name, performance.ticket, _now(host))


def _word_of(event: CallEvent | None) -> str:
    """The error word of a body that failed."""
    return f"raised:{event.error}" if isinstance(event, Raised) else (event.fault or "") if isinstance(event, Returned) else ""


def report(host: Host, performance: Performance, event: CallEvent | None, failed: bool) -> None:
    """Let the breaker know what became of a body that it let through."""
    assert host.breakers is not None
    name, ticket, now = performance.tool.name, performance.ticket, _now(host)
    if isinstance(event, Raised) and not event.ran:
        host.breakers.release(name, ticket, now)
    elif isinstance(event, Raised) or failed:
        host.breakers.fail(name, ticket, now)
    else:
        host.breakers.succeed(name, ticket, now)


def admit(host: Host, performance: Performance) -> bool:
    """Ask the breaker of a call outside any run; false where its circuit is open."""
    tool = performance.tool
    if host.breakers is None or tool.breaker is None:
        return True
    admission = host.breakers.admit(tool.name, tool.breaker, _now(host))
    performance.ticket = admission.ticket
    return not admission.open


def _remember(host: Host, run: Run, performance: Performance, word: str | None) -> None:
    """Remember what came of a body; `word` is its error word where a repair has changed its call since."""
    call, tool, memory = performance.call, performance.tool, host.memory
    assert memory is not None
    event: Any = performance.event
    if not call.ok:
        # One that may be tried again has used up its tries by now.
        ttl = tool.negative_ttl_s if tool.negative_ttl_s is not None else host.negative_ttl_s
    elif event.verdict is None or says_success(event):
        ttl = tool.cache_ttl_s if tool.cache_ttl_s is not None else host.ttl_s
    else:
        return
    if not ttl:
        return
    stored_at = 0.0 if host.clock is None else finite_seconds(host.clock.wall(), "Clock.wall()")
    ttl_s = None if ttl == _FOREVER else ttl
    if word is None:
        kept = new_remembered(bool(call.ok), call.value, call.error, call.detail, stored_at, ttl_s, run.id, call.tool)
    else:
        kept = new_remembered(False, None, word, getattr(event, "message", ""), stored_at, ttl_s, run.id, tool.name)
    memory.put(performance.key, performance.scope, kept)


def says_success(event: CallEvent | None) -> bool:
    """True for a value that nobody classified, or as OK; another class would be lost with a remembered value."""
    verdict = event.verdict if isinstance(event, Returned) else None
    return verdict is None or verdict.result_class is OK


def _classified(tool: Tool, outcome: Outcome) -> Verdict | None:
    assert tool.classify is not None
    try:
        verdict: Any = tool.classify(outcome)
        if issubclass(type(verdict), Verdict):
            return exact_verdict(verdict)
        # Its class alone says enough; what is none has said nothing.
        return Verdict(result_class=verdict) if issubclass(type(verdict), str) else None
    except PASSES:
        raise
    except BaseException:
        # A classifier that fails has said nothing; the result is read as if there were none.
        return None


def message_of(error: BaseException, most: int = _MOST_SAID) -> str:
    """The text of an exception, capped; one that cannot be read is said to be so."""
    try:
        return str.__str__(str(error)[:most])
    except BaseException:  # the exception's own text is at fault, and whatever it raises is no word of the host's
        return f"(the message of the {name_of(error)} could not be read)"


def _now(host: Host) -> float:
    # For circuits alone: where a host measures nothing else, an open one must still close again.
    return host.clock.now() if host.clock is not None else _SYSTEM.now()


def _wall(host: Host) -> float:
    return host.clock.wall() if host.clock is not None else 0.0


def seconds_left(tool: Tool, run: Run) -> float | None:
    """How long the body may run: its own timeout and what is left of the time for work, whichever is less."""
    until = run.limits.work_until_s
    left = tool.timeout_s
    if until is not None:
        rest = max(0.0, until - run.spent_s)
        left = rest if left is None else min(left, rest)
    return left if left is None else min(left, _LONGEST_S)
