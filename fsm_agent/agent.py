"""The agent: tools, a decider and limits in one object, run to an answer in a thread or a task."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import attrs

from fsm_agent.core.agent_table import AGENT
from fsm_agent.core.answers import Answer, answer_of
from fsm_agent.core.engine import Engine
from fsm_agent.core.errors import BuildError, RunError
from fsm_agent.core.limits import Limits
from fsm_agent.core.plain import short
from fsm_agent.core.replay import replay
from fsm_agent.core.run import Run
from fsm_agent.core.saving import load, save
from fsm_agent.core.setup import Setup, Work
from fsm_agent.core.table import Table
from fsm_agent.core.turn import Repair
from fsm_agent.core.values import Policy
from fsm_agent.core.work import WORK
from fsm_agent.host.breaker import Breakers
from fsm_agent.host.clock import Clock, SystemClock
from fsm_agent.host.drivers import Driver, take
from fsm_agent.host.memory import Memory
from fsm_agent.host.ports import Closer, Decider, Host, Verifier
from fsm_agent.host.tool_forms import toolset

Fix = Callable[[str, Any], "tuple[str, Any] | None"]


class Agent:
    """A machine over the host's tools and decider; it holds no run and may be shared between threads and tasks.

    `tools` are Tools, typed functions, or a mapping of name to one of these or to a table entry. `decide` is asked what
    to do next with a `Decide` and answers with a Decision, a ToolCall, several, or a final text; its method `close`, if
    it has one, or `close` gives the closing answer of a run that was stopped. Without it (None) runs are driven by
    hand, through `engine`. `allowed` narrows the tools of states.
    `repairs` maps an error word to a function of tool and arguments. `required` names tools whose evidence an answer
    needs, `verify` is asked whether it suffices. `memory` with `ttl_s` (or a tool's own TTL) remembers pure tools.

    Raises BuildError when any of these is wrong, naming the mend.
    """

    def __init__(
        self,
        tools: Iterable[Any] | Mapping[str, Any],
        decide: Decider | None,
        *,
        limits: Limits | None = None,
        machine: Table = AGENT,
        allowed: Mapping[str, Iterable[str] | None] | None = None,
        policy: Policy | None = None,
        repairs: Mapping[str, Fix] | None = None,
        required: Collection[str] = (),
        normalizer: Callable[[Any], Any] | None = None,
        verify: Verifier | None = None,
        close: Closer | None = None,
        memory: Memory | None = None,
        ttl_s: float | None = None,
        negative_ttl_s: float | None = None,
        clock: Clock | None = None,
        work: Mapping[str, Work] | None = None,
    ) -> None:
        closer = close if close is not None else _closer_of(decide)
        _check_callable(decide=decide, normalizer=normalizer, verify=verify, close=close)
        _check_kind(limits=(limits, Limits), policy=(policy, Policy), machine=(machine, Table))
        _check_kind(memory=(memory, Memory), clock=(clock, Clock))
        if memory is None and (ttl_s or negative_ttl_s):
            raise BuildError("a TTL is given and no memory; pass memory=TtlMemory(), or leave the TTL out")
        self.engine = Engine(
            Setup(
                table=machine.allowing(allowed) if allowed else machine,
                box=toolset(tools),
                work={**WORK, **(work or {})},
                limits=limits if limits is not None else Limits(),
                policy=policy if policy is not None else Policy(),
                repairs=_named_repairs(repairs or {}),
                required=required,
                normalizer=normalizer,
                verifies=verify is not None,
                composes=closer is not None,
            )
        )
        host = Host(
            clock=clock if clock is not None else SystemClock(),
            memory=memory,
            ttl_s=ttl_s,
            negative_ttl_s=negative_ttl_s,
            breakers=Breakers(),
        )
        self.driver = Driver(engine=self.engine, decide=decide, host=host, verify=verify, close=closer)

    def run(self, request: Any, *, context: Any = None, **start: Any) -> Answer:
        """Run a request to its answer in this thread; `start` takes limits, run_id, scope, seed and fields."""
        return self.drive(self.start(request, **start), context=context)

    async def arun(self, request: Any, *, context: Any = None, **start: Any) -> Answer:
        """Run a request to its answer inside the running event loop; see `run`."""
        return await self.adrive(self.start(request, **start), context=context)

    def start(
        self,
        request: Any,
        *,
        limits: Limits | None = None,
        run_id: str | None = None,
        scope: str = "",
        seed: int | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> Run:
        """A new run that has not been driven yet; `scope` is the tenant or user whose memory it shares (its own)."""
        name = run_id if run_id is not None else uuid.uuid4().hex
        if not isinstance(name, str):
            raise RunError(f"run_id is {short(name, 60)}; give a text, or leave it out")
        _check_kind(limits=(limits, Limits))
        number = seed if seed is not None else zlib.crc32(name.encode(errors="backslashreplace"))
        return self.engine.start(request, run_id=name, limits=limits, scope=scope, seed=number, fields=fields)

    def drive(self, run: Run, *, context: Any = None) -> Answer:
        """Drive a run to its answer.

        Raises RunBusy while another driver has it, and RunError where only `adrive` will do.
        """
        self.driver.drive(run, context)
        return self._answer(run)

    async def adrive(self, run: Run, *, context: Any = None) -> Answer:
        """Drive a run to its answer inside the running event loop; cancelling leaves it stopped and resumable."""
        await self.driver.adrive(run, context)
        return self._answer(run)

    def resume(self, run: Run, *, context: Any = None, **raises: Any) -> Answer:
        """Let a stopped run go on with the limits named raised, to its next answer.

        Raises CannotResume, the run unchanged, when it cannot, and RunBusy while another driver has it.
        """
        self._take_up(run, raises)
        return self.drive(run, context=context)

    async def aresume(self, run: Run, *, context: Any = None, **raises: Any) -> Answer:
        """`resume` inside the running event loop."""
        self._take_up(run, raises)
        return await self.adrive(run, context=context)

    def _take_up(self, run: Run, raises: Mapping[str, Any]) -> None:
        take(run)
        try:
            self.engine.resume(run, raises)
        finally:
            run.driven = False

    def save(self, run: Run) -> str:
        """A run at any step as strict JSON text; raises SavedRunError for a value that cannot be saved."""
        return save(run)

    def load(self, text: object) -> Run:
        """A saved run, ready to go on; raises SavedRunError for what is no saved run of this agent's machine."""
        return load(text, self.engine.setup)

    def replay(self, run: Run, steps: int | None = None) -> Run:
        """The run rebuilt from its journal, whole or up to so many events, without asking anybody."""
        return replay(self.engine, run, steps)

    def _answer(self, run: Run) -> Answer:
        answer = answer_of(run)
        if answer is None:
            raise RunError(f"run {run.id!r} stands still in state {run.state!r} without an answer; drive it on")
        return attrs.evolve(answer, run=run)


def _closer_of(decide: Any) -> Closer | None:
    close = getattr(decide, "close", None)
    return close if callable(close) else None


def _check_kind(**parts: tuple[Any, type]) -> None:
    for name, (part, kind) in parts.items():
        if part is not None and not isinstance(part, kind):
            raise BuildError(f"{name} is {short(part, 60)}; give a {kind.__name__}, or leave it out")


def _check_callable(**parts: Any) -> None:
    for name, part in parts.items():
        if part is not None and not callable(part):
            raise BuildError(f"{name} is {short(part, 60)}; give a function")


def _named_repairs(repairs: Mapping[str, Fix]) -> dict[str, tuple[str, Repair]]:
    """Repairs by error word, each under a name of its own; the same function under two words is the same repair."""
    named: dict[str, tuple[str, Repair]] = {}
    taken: dict[str, Fix] = {}
    for error, fix in repairs.items():
        if not callable(fix):
            what = f"the repair of {short(error, 60)} is {short(fix, 60)}"
            raise BuildError(f"{what}; give a function of tool and arguments")
        name = getattr(fix, "__name__", "<lambda>")
        if name == "<lambda>" or taken.setdefault(name, fix) is not fix:
            name = error
        named[error] = (name, _repair(fix))
    return named


def _repair(fix: Fix) -> Repair:
    def repair(tool: str, args: Any, run: Run) -> tuple[str, Any] | None:
        return fix(tool, args)

    return repair
