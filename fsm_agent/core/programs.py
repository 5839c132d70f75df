"""Code mode (the tip of seed 004): a program that calls tools, one at a time, through the same gate as any call.

The program is itself a call of the turn. It stands still at each call that it makes, as a snapshot in the run, so that it can
be saved, paused and resumed there like anything else. It has no effect of its own, so it is never begun in the sense that a
body is: what is lost of it is run again from its last snapshot.

A tripwire that ordinary calls reach within a turn is looked at when the turn is over. A program decides between its calls,
so it is ended at the n-th instead.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from fsm_agent.core.effects import RunProgram
from fsm_agent.core.errors import WrongEvent
from fsm_agent.core.events import CallEvent, ProgramCalled, Raised, Returned
from fsm_agent.core.gate import Toolbox, refuse, same_key
from fsm_agent.core.keys import observation_key
from fsm_agent.core.observing import compare_first
from fsm_agent.core.plain import short, storable
from fsm_agent.core.redact import MARK, marked, sealed, secret_texts, without_secrets
from fsm_agent.core.results import says_nothing
from fsm_agent.core.run import Call, Program, Run
from fsm_agent.core.tools import Tool
from fsm_agent.core.turn import next_batch, settle
from fsm_agent.core.values import Policy, ResultClass, StopReason

PROGRAM = "program"


def is_program(box: Toolbox, call: Call) -> bool:
    """True for a call whose body is a program."""
    tool = box.get(call.tool)
    return tool is not None and tool.where == PROGRAM


def program_step(run: Run, call: Call) -> RunProgram:
    """What has to be run next of a program: it begins, or goes on with the result of the call it made."""
    program = run.program
    if program is None or program.call_id != call.id:
        return RunProgram(run, call)
    return RunProgram(run, call, program.snapshot, program.printed, run.waiting_for())


def open_program_call(run: Run, box: Toolbox, policy: Policy, event: ProgramCalled) -> Call | None:
    """Open the call that a program makes, to be passed through the gate; None where the program is ended instead.

    A program is ended that has made too many calls or has reached a tripwire. Raises WrongEvent, the run unchanged, where it is
    not this program's turn.
    """
    batch = next_batch(run, box)
    if len(batch) != 1 or batch[0].id != event.call_id or not is_program(box, batch[0]):
        raise WrongEvent(f"run {run.id!r} has no program {short(event.call_id, 60)} that is running")
    call = batch[0]
    program = run.program if run.program is not None and run.program.call_id == call.id else Program(call_id=call.id)
    # The journal keeps what the run keeps.
    event.args = args = storable(event.args)
    if program.asked >= policy.program_calls:
        _end(run, box, call, "refused:budget:program_calls", f"a program may make {policy.program_calls} calls")
        return None
    if (reason := _tripped(run, box)) is not None:
        _end(run, box, call, f"skipped:{reason.value}", "the program was ended where the run is going to be")
        return None
    number = program.asked + 1
    while (name := f"{call.id}.{number}") in run.call_ids:
        number += 1
    run.call_ids[name] = True
    run.emitted_calls += 1
    run.last_emitted += 1
    made = Call(id=name, tool=event.tool if isinstance(event.tool, str) else "", args=args, turn=call.turn, parent=call.id)
    run.open_calls.append(made)
    tool = box.get(made.tool)
    if tool is not None and (why := _unfit(tool)):
        if tool.secret:
            program.hides = True
            program.texts += secret_texts(args, tool.secret)
            call.secret = (PROGRAM,)
        event.args = made.args = without_secrets(args, tool.secret)
        refuse(run, made, "refused:not_allowed", why)
    program.snapshot, program.printed, program.waits_for = event.snapshot, event.printed, name
    program.asked += 1
    run.program = program
    return made


def settle_call(run: Run, box: Toolbox, event: CallEvent, explain: bool) -> Call | None:
    """`settle`, also for a program; raises WrongEvent, the run unchanged, for the end of one that waits for a call it made.

    Where a program stood is forgotten with its end: one that is repaired begins anew.
    """
    program = run.program
    if program is None:
        return settle(run, box, event, explain)
    made = run.waiting_for()
    if made is not None and made.ok is None and program.call_id == event.call_id:
        raise WrongEvent(f"the program {short(event.call_id, 60)} of run {run.id!r} waits for its call {made.id!r}")
    if program.hides and program.call_id == event.call_id and not run.replaying:
        _mark(event, program.texts)
    call = settle(run, box, event, explain)
    if call is not None and call.id == program.call_id:
        run.program = None
        _forget(run, box, call, program)
    return call


def tend_program(run: Run, box: Toolbox) -> None:
    """End the open program once the run is stopping; a resume takes it up again where it stands, unless it told a secret.

    The call that it waits for shares no other call's run: that one is behind the program, and waits for it.
    """
    program = run.program
    if program is None:
        return
    made = run.waiting_for()
    if made is not None:
        made.leader = ""
    for call in run.open_calls if run.closed else ():
        if call.id == program.call_id and call.ok is None:
            refuse(run, call, f"skipped:{run.closed[0].reason.value}", "the program was stopped where the run was")
            if program.hides:
                run.program = None
                _forget(run, box, call, program)


def _end(run: Run, box: Toolbox, call: Call, error: str, detail: str) -> None:
    program, run.program = run.program, None
    refuse(run, call, error, detail)
    if program is not None:
        _forget(run, box, call, program)


def _mark(event: CallEvent, texts: list[str]) -> None:
    """Take what a program was not to tell out of what it gave or raised; all of it where the texts are not known any more."""
    if isinstance(event, Returned):
        event.value = _without(storable(event.value), texts)
    elif isinstance(event, Raised):
        event.message = _without(event.message, texts)


def _without(value: Any, texts: list[str]) -> Any:
    if isinstance(value, str):
        return marked(value, texts) if texts else value and MARK
    if isinstance(value, dict):
        return {_without(key, texts) if texts else key: _without(item, texts) for key, item in value.items()}
    return type(value)(_without(item, texts) for item in value) if isinstance(value, list | tuple | set | frozenset) else value


def _forget(run: Run, box: Toolbox, call: Call, program: Program) -> None:
    """Once a program that told a secret has ended, keep of it what can be kept: no snapshot, and of its text the seal.

    Its text is sealed with the turn; the key by which repetitions are told is made of the seal at once, as a replay makes it.
    """
    if not program.hides:
        return
    # A replay finds them taken out already.
    for _, event in () if run.replaying else run.journal:
        if isinstance(event, ProgramCalled) and event.call_id == call.id:
            event.snapshot, event.printed = b"", _without(event.printed, program.texts)
    if call.key:
        known, call.key = call.key, same_key(run, box.get(call.tool), sealed(call.args, call.secret, run.id))
        if known in run.requests:
            count = run.requests.pop(known)
            run.requests[call.key] = run.requests.get(call.key, 0) + count
        run.window = [call.key if key == known else key for key in run.window]


def _unfit(tool: Tool) -> str:
    """Why no program may call this tool, or an empty text."""
    if tool.where == PROGRAM:
        return "a program cannot run another one; call the tools themselves"
    if tool.secret:
        return f"{tool.name} takes secrets, which the text of a program would keep; call it outside of a program"
    return ""


def _tripped(run: Run, box: Toolbox) -> StopReason | None:
    """The tripwire that the results of this turn have reached, counted as they will be when the turn is over."""
    limits = run.limits
    if run.only_observation:
        compare_first(run)
    fresh = [call for call in run.open_calls if call.ok is not None and not (call.counted or call.leader)]
    errors = sum(call.error.startswith(_FAILED) and call.error != "result:empty" for call in fresh)
    bad = sum(call.error.startswith("args:") for call in fresh)
    empty: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    for call in fresh:
        tool = box.get(call.tool)
        empty_ok = tool is not None and tool.empty_ok
        if call.result_class is ResultClass.EMPTY and not empty_ok:
            empty[call.intent or call.tool] += 1
        exempt = tool is not None and (tool.polling or tool.constant)
        if call.ok and limits.max_same_observation is not None and not exempt and not (empty_ok and says_nothing(call.value)):
            seen[observation_key(call.value)] += 1
    reached = (
        (StopReason.MAX_TOOL_ERRORS, limits.max_tool_errors, run.tool_errors + errors),
        (StopReason.MAX_BAD_ARGUMENTS, limits.max_bad_arguments, run.bad_arguments + bad),
        (StopReason.EMPTY_RESULTS, limits.max_empty_results, max((run.empties.get(k, 0) + n for k, n in empty.items()), default=0)),
        (
            StopReason.REPEATED_OBSERVATION,
            limits.max_same_observation,
            max((run.observations.get(k, 0) + n for k, n in seen.items()), default=0),
        ),
    )
    return next((reason for reason, most, count in reached if most is not None and count >= most), None)


_FAILED = ("raised:", "result:", "unknown_outcome")
