"""Code mode (the tip of seed 004): a program that calls tools, one at a time, through the same gate as any call.

The program is itself a call of the turn. It stands still at each call that it makes, as a snapshot in the run, so that it can
be saved, paused and resumed there like anything else. It has no effect of its own, so it is never begun in the sense that a
body is: what is lost of it is run again from its last snapshot.
"""

from __future__ import annotations

from fsm_agent.core.effects import RunProgram
from fsm_agent.core.errors import WrongEvent
from fsm_agent.core.events import ProgramCalled
from fsm_agent.core.gate import Toolbox, refuse
from fsm_agent.core.plain import short, storable
from fsm_agent.core.run import Call, Program, Run
from fsm_agent.core.turn import waiting_for
from fsm_agent.core.values import Policy

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
    made = next((one for one in run.open_calls if one.id == program.waits_for), None)
    return RunProgram(run, call, program.snapshot, program.printed, made)


def open_program_call(run: Run, policy: Policy, event: ProgramCalled) -> Call | None:
    """Open the call that a program makes; None where it has made too many, and is refused itself."""
    call = next((one for one in run.open_calls if one.id == event.call_id and one.ok is None), None)
    made = waiting_for(run)
    if call is None or (made is not None and made.ok is None):
        raise WrongEvent(f"run {run.id!r} has no program {short(event.call_id, 60)} that is running")
    asked = run.program.asked if run.program is not None and run.program.call_id == call.id else 0
    if asked >= policy.program_calls:
        run.program = None
        refuse(run, call, "refused:budget:program_calls", f"a program may make {policy.program_calls} calls")
        return None
    number = asked + 1
    while (name := f"{call.id}.{number}") in run.call_ids:
        number += 1
    run.call_ids[name] = True
    run.emitted_calls += 1
    made = Call(
        id=name, tool=event.tool if isinstance(event.tool, str) else "", args=storable(event.args), turn=call.turn, parent=call.id
    )
    run.open_calls.append(made)
    run.program = Program(
        call_id=call.id, snapshot=event.snapshot, printed=event.printed, waits_for=name, asked=asked + 1
    )
    return made


def stop_program(run: Run) -> None:
    """End an open program once a guard of the run is closed: it would only be refused from here on."""
    program = run.program
    if program is None or not run.closed:
        return
    for call in run.open_calls:
        if call.id == program.call_id and call.ok is None:
            refuse(run, call, f"skipped:{run.closed[0].reason.value}", "the program was stopped where the run was")
            run.program = None
