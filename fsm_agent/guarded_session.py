"""One conversation of a loop that somebody else drives: a living run that makes one call at a time.

The engine asks for a decision only while a call is waiting to be made, so a driver's drive ends between two calls; all
that is between, from the gate to the result, is the drivers' and the engine's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import attrs

from fsm_agent.core.effects import Decide, Effect
from fsm_agent.core.engine import Engine
from fsm_agent.core.errors import RunError
from fsm_agent.core.plain import short
from fsm_agent.core.run import Call, Run, Stop
from fsm_agent.core.tools import Tool
from fsm_agent.core.transcript import told_result
from fsm_agent.core.values import Decision, StopReason, ToolCall
from fsm_agent.guarded_queue import Queue
from fsm_agent.host.drivers import Driver

if TYPE_CHECKING:
    from fsm_agent.agent import Agent

# The drives that the present code runs inside of, so that a body which calls its own session is told and does not wait.
_INSIDE: ContextVar[tuple[object, ...]] = ContextVar("fsm_agent_inside", default=())


@attrs.frozen(kw_only=True)
class Result:
    """What became of one call: `value`, or `error` (a stable word) with its `detail`; `text` is for the model.

    Beside an agent's words there are ``stopped:<reason>`` (the session is stopped and no body ran) and ``paused`` (this
    call, or one before it, waits for a person). A call that was not made has no `call_id`.
    """

    ok: bool
    value: Any = None
    error: str = ""
    detail: str = ""
    text: str = ""
    tool: str = ""
    call_id: str = ""


@attrs.frozen(eq=False)
class OneCall(Engine):
    """An engine that needs nothing while no call is `waiting` to be made and none is open."""

    waiting: list[ToolCall] = attrs.field(factory=list)

    def ask(self, run: Run) -> Effect | None:
        """What the run needs for its call, or None where there is none."""
        return super().ask(run) if self.waiting or run.open_calls else None

    def decide(self, ask: Decide) -> Decision:
        """The call that waits, as a decision."""
        return Decision(calls=(self.waiting.pop(),))


@attrs.define(eq=False)
class _Drive:
    """One drive of a session: the tool asked for, how many calls there were before (or the id of the one call that is
    gone on with), and what became of it."""

    tool: str
    before: int = 0
    call_id: str = ""
    result: Result | None = None

    def outcome(self) -> Result:
        """What became of it, once the drive is over."""
        assert self.result is not None
        return self.result


class Session:
    """The calls of one conversation, made one at a time in the order of their coming; safe between threads and tasks.

    Made by `Guarded.session`. `run` is the living run, with its calls, counters and trace.
    """

    def __init__(self, agent: Agent, run: Run, context: Any = None) -> None:
        self.run, self.context = run, context
        self._agent = agent
        self._engine = OneCall(agent.engine.setup)
        self._driver: Driver = attrs.evolve(agent.driver, engine=self._engine, decide=self._engine.decide)
        self._queue = Queue()
        self._drive: _Drive | None = None
        # The id of the call that was told as paused and whose result nobody has had yet.
        self._held = run.open_calls[-1].id if run.open_calls else ""

    @property
    def stop(self) -> Stop | None:
        """Why no further call is made, and the raise that would change it; None while the session goes on."""
        stop = self.run.stop
        return None if stop is None or stop.reason is StopReason.CANCELLED else stop

    @property
    def tools(self) -> list[Tool]:
        """The tools that the session can call, in the order they were given."""
        box = self._engine.setup.box
        return [tool for name in box.names() if (tool := box.get(name)) is not None]

    def call(self, tool: str, args: Any = None, *, call_id: str = "", intent: str = "") -> Result:
        """Make one call and wait for it in this thread; `args` is a mapping or its JSON text, `intent` what is looked for.

        What interrupts it ends this call alone. Raises RunError inside one of the session's own tools, and in an event
        loop that has a call of the session under way: await `acall` there.
        """
        self._refuse_inside()
        with self._queue.taken(), self._calling(tool, args, call_id, intent) as drive:
            if drive.result is None:
                self._driver.drive(self.run, self.context)
        return drive.outcome()

    async def acall(self, tool: str, args: Any = None, *, call_id: str = "", intent: str = "") -> Result:
        """`call` inside the running event loop; cancelling the task ends this call alone."""
        self._refuse_inside()
        async with self._queue.ataken():
            with self._calling(tool, args, call_id, intent) as drive:
                if drive.result is None:
                    await self._driver.adrive(self.run, self.context)
        return drive.outcome()

    def proceed(self) -> Result:
        """Go on with a ``paused`` call once the agent of the guard was told about it: its result, or ``paused`` again.

        Raises RunError when no call was paused.
        """
        self._refuse_inside()
        with self._queue.taken(), self._proceeding() as drive:
            self._driver.drive(self.run, self.context)
        return drive.outcome()

    async def aproceed(self) -> Result:
        """`proceed` inside the running event loop."""
        self._refuse_inside()
        async with self._queue.ataken():
            with self._proceeding() as drive:
                await self._driver.adrive(self.run, self.context)
        return drive.outcome()

    def resume(self, **raises: Any) -> None:
        """Let a stopped session go on with the limits named raised; raises CannotResume, nothing changed, when it cannot."""
        self._refuse_inside()
        with self._queue.taken():
            self._engine.resume(self.run, raises)

    def save(self) -> str:
        """The session between two calls as strict JSON text; raises SavedRunError for a value that cannot be saved."""
        self._refuse_inside()
        with self._queue.taken():
            return self._agent.save(self.run)

    def as_functions(self, *, asynchronous: bool = False) -> list[Callable[..., Any]]:
        """The tools as typed functions that return a text (coroutine functions with `asynchronous`), for any loop."""
        from fsm_agent.guarded_functions import functions

        return functions(self, asynchronous)

    def for_pydantic_ai(self) -> list[Any]:
        """The tools as ``pydantic_ai.Tool``; raises MissingExtra without the package ``pydantic-ai-slim``."""
        from fsm_agent.guarded_adapters import pydantic_ai_tools

        return pydantic_ai_tools(self)

    def for_openai_agents(self) -> list[Any]:
        """The tools as ``agents.FunctionTool``; raises MissingExtra without the package ``openai-agents``."""
        from fsm_agent.guarded_adapters import openai_agents_tools

        return openai_agents_tools(self)

    def for_langchain(self) -> list[Any]:
        """The tools as LangChain's ``StructuredTool``; raises MissingExtra without the package ``langchain-core``."""
        from fsm_agent.guarded_adapters import langchain_tools

        return langchain_tools(self)

    def _refuse_inside(self) -> None:
        if self._drive is not None and self._drive in _INSIDE.get():
            raise RunError("a tool of this session called the session, which waits for that tool; use a session of its own")

    @contextmanager
    def _calling(self, tool: Any, args: Any, call_id: str, intent: str) -> Iterator[_Drive]:
        name = tool if isinstance(tool, str) and tool else f"<{short(tool, 60)}>"
        with self._driving(name) as drive:
            drive.result = self._refusal(name)
            if drive.result is None:
                self._engine.waiting.append(ToolCall(name, args, call_id, intent))
            drive.before = len(self.run.calls)
            try:
                yield drive
            finally:
                self._engine.waiting.clear()

    @contextmanager
    def _proceeding(self) -> Iterator[_Drive]:
        held = self._call_of(self._held)
        if held is None:
            raise RunError("no call of this session waits for anything; make one with call")
        with self._driving(held.tool) as drive:
            drive.call_id = held.id
            yield drive

    def _call_of(self, call_id: str) -> Call | None:
        known = (call for call in [*self.run.open_calls, *reversed(self.run.calls)] if call.id == call_id)
        return next(known, None)

    @contextmanager
    def _driving(self, tool: str) -> Iterator[_Drive]:
        self._drive = drive = _Drive(tool)
        token = _INSIDE.set((*_INSIDE.get(), drive))
        try:
            yield drive
            # Still in turn, or the calls of others would stand behind this one.
            if drive.result is None:
                drive.result = self._result(drive)
        finally:
            _INSIDE.reset(token)
            self._drive = None

    def _refusal(self, tool: str) -> Result | None:
        """Why no call can be made now; a session that a cancelled call left standing is taken up again."""
        run = self.run
        if run.stop is not None and run.stop.reason is StopReason.CANCELLED:
            self._engine.resume(run, again=False)
        if run.stop is not None:
            return _stopped(tool, run.stop)
        return _behind(tool, run.open_calls[-1]) if run.open_calls else None

    def _result(self, drive: _Drive) -> Result:
        run, box = self.run, self._engine.setup.box
        made = [*run.calls[drive.before :], *run.open_calls]
        call = self._call_of(drive.call_id) if drive.call_id else made[-1] if made else None
        if call is None:
            assert run.stop is not None
            return _stopped(drive.tool, run.stop)
        self._held = "" if call.ok is not None else call.id
        if call.ok is None:
            return _paused(call)
        return Result(
            ok=bool(call.ok),
            value=call.value,
            error=call.error,
            detail=call.detail,
            text=told_result(box, call),
            tool=call.tool,
            call_id=call.id,
        )


def _stopped(tool: str, stop: Stop) -> Result:
    error = f"stopped:{stop.reason.value}"
    why = "; ".join(map(str, stop.closed)) or stop.detail or stop.reason.value
    text = f"{error} (no further call is made: {why}); answer with what is known"
    return Result(ok=False, error=error, detail=str(stop), text=text, tool=tool)


def _paused(call: Call) -> Result:
    detail = _waits(call)
    return Result(ok=False, error="paused", detail=detail, text=f"paused ({detail})", tool=call.tool, call_id=call.id)


def _behind(tool: str, held: Call) -> Result:
    """The result of a call that is not made; with the id of the held one, who decides by results would approve another call."""
    detail = f"not made; {_waits(held)}"
    return Result(ok=False, error="paused", detail=detail, text=f"paused ({detail})", tool=tool)


def _waits(call: Call) -> str:
    return f"the call {call.id} of {call.tool} waits for a decision about it"
