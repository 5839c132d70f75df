"""The door: one call outside any run, measured before and after, and remembered."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from itertools import count
from threading import Lock
from typing import Any

import attrs

from fsm_agent.core.events import CallEvent, Returned
from fsm_agent.core.gate import Toolbox, call_fault
from fsm_agent.core.keys import call_key
from fsm_agent.core.limits import Limits
from fsm_agent.core.results import read_value
from fsm_agent.core.run import Call, Run
from fsm_agent.core.tools import Tool
from fsm_agent.host.bodies import run_here, run_in_threads
from fsm_agent.host.breaker import Breakers
from fsm_agent.host.memory import DictMemory, Remembered
from fsm_agent.host.perform import (
    Performance,
    admit,
    arguments,
    memory_key,
    raised,
    release,
    report,
    says_success,
    telling,
)
from fsm_agent.host.ports import Host


@attrs.frozen(eq=False)
class Door:
    """Calls the tools of a box one by one; successes of pure ones are remembered in `memory`, where runs find them too.

    `turn` is the lock that exclusive bodies hold; `host` has the circuits of tools that declare a breaker. `numbered` gives
    each call a name of its own, which idempotency keys are made of.
    """

    box: Toolbox
    memory: DictMemory
    turn: Lock = attrs.field(factory=Lock)
    host: Host = attrs.field(factory=lambda: Host(breakers=Breakers()))
    _name: str = attrs.field(init=False, repr=False, factory=lambda: uuid.uuid4().hex)
    _numbers: count[int] = attrs.field(init=False, repr=False, factory=count)

    def numbered(self) -> str:
        """A name that nothing else has."""
        return f"{self._name}-{next(self._numbers)}"

    def validate_args(self, name: object, args: object) -> str:
        """An empty text, or the first reason why the arguments break the tool's contract."""
        tool = self.box.get(name)
        return "unknown_tool" if tool is None else call_fault(tool, args)

    def validate_result(self, name: object, value: object) -> str:
        """An empty text, or shape, empty, too_big or range."""
        tool = self.box.get(name)
        if tool is None:
            return "unknown_tool"
        return tool.returns.first_fault(value) if tool.returns is not None else ""

    def cache_key(self, name: object, args: object) -> str:
        """The key of a call: that of its memory, where there is such a tool."""
        tool = self.box.get(name)
        try:
            return call_key(name, args) if tool is None else call_key(tool.name, telling(tool, args))
        except Exception:  # arguments that cannot be read have no defaults
            return call_key(name, args)

    def call_tool(self, name: object, args: object) -> dict[str, Any]:
        """One call: ``{"ok", "value", "error"}``.

        It never raises, and bad arguments never reach the body; KeyboardInterrupt and SystemExit pass through.
        """
        given = args
        if type(args) is not dict:
            try:
                # What is measured is what the body gets: a mapping of another class may answer otherwise the next time.
                given = dict(args.items()) if isinstance(args, Mapping) else None
            except Exception:
                given = None
        # Looked up once: what is measured, run and remembered is one tool, whoever changes the table meanwhile.
        tool = self.box.get(name)
        fault = "unknown_tool" if tool is None else call_fault(tool, given)
        if fault or tool is None:
            return _refused(f"args:{fault}")
        key = memory_key(tool, given) if _remembers(tool) else ""
        known = self.memory.get(key, "", 0.0) if key else None
        if known is not None:
            return {"ok": True, "value": known.value, "error": ""}
        job = Performance(Call(id="call", tool=tool.name, args=given), tool, seconds=tool.timeout_s)
        if tool.breaker is not None and not admit(self.host, job):
            return _refused("refused:circuit_open")
        try:
            event = self._run_body(job)
        except BaseException:
            release(self.host, (job,))
            raise
        # The reason is all that is told of a fault here.
        reading = read_value(tool, event.value, event.verdict, explain=False) if isinstance(event, Returned) else None
        if job.ticket is not None:
            report(self.host, job, event, reading is not None and not reading.ok and reading.error != "result:empty")
        if reading is None:
            return _refused(f"raised:{getattr(event, 'error', 'Exception')}")
        if not reading.ok:
            return _refused(reading.error)
        if key and says_success(event):
            self.memory.put(key, "", Remembered(ok=True, value=reading.value, stored_at=0.0))
        return {"ok": True, "value": reading.value, "error": ""}

    def _run_body(self, job: Performance) -> CallEvent:
        tool = job.tool
        job.turn = self.turn if tool.exclusive else None
        run = Run(id=self.numbered(), request=None, state="", limits=_NO_LIMITS)
        try:
            job.args = arguments(tool, job.call, run, job.seconds, None)
        except Exception as error:
            return raised(tool, job.call, error, ran=False)
        if job.seconds is None:
            return run_here(job)
        events: list[CallEvent] = []
        run_in_threads([job], lambda position, event: events.append(event))
        return events[0]


def _remembers(tool: Tool) -> bool:
    """Whether a success of the tool may be handed back; whoever polls wants to know how it is now."""
    ttl = tool.cache_ttl_s
    return tool.pure and ttl != 0 and not (ttl is None and tool.polling)


def _refused(error: str) -> dict[str, Any]:
    return {"ok": False, "value": None, "error": error}


_NO_LIMITS = Limits.off()
