"""The agent: tools, a decider and limits in one object, run to an answer in a thread or a task."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from typing import Any, cast

from fsm_agent.code_mode import CodeMode, Sandbox
from fsm_agent.core.agent_table import AGENT
from fsm_agent.core.answers import Answer, answer_of, paused_answer
from fsm_agent.core.effects import OwnEffect
from fsm_agent.core.engine import Engine
from fsm_agent.core.errors import RunError
from fsm_agent.core.exact_values import word
from fsm_agent.core.instructions import Prompts
from fsm_agent.core.limits import Limits
from fsm_agent.core.messages import Message
from fsm_agent.core.plain import short
from fsm_agent.core.replay import replay
from fsm_agent.core.run import Run
from fsm_agent.core.saving import load, save
from fsm_agent.core.setup import Setup, Work
from fsm_agent.core.strategies import Strategy
from fsm_agent.core.table import Table
from fsm_agent.core.tools import Tool, Toolset
from fsm_agent.core.transcript import as_plain, has_messages, transcript
from fsm_agent.core.typed_answer import typed_answer
from fsm_agent.core.values import OF_ITSELF, Policy
from fsm_agent.core.work import WORK
from fsm_agent.host.breaker import Breakers
from fsm_agent.host.clock import Clock, SystemClock
from fsm_agent.host.drivers import Driver, check_run
from fsm_agent.host.fixes import (
    Fix,
    check_allows,
    check_callables,
    check_kinds,
    check_machine,
    check_mappings,
    check_own,
    check_text,
    named_repairs,
    own_kinds,
)
from fsm_agent.host.guide import Guide
from fsm_agent.host.hooks import Hooks
from fsm_agent.host.memory import Memory, TtlMemory
from fsm_agent.host.model import Model
from fsm_agent.host.model_decider import ModelDecider, ModelVerifier, callable_tools, is_model
from fsm_agent.host.ports import Closer, Decider, Host, Performer, Verifier
from fsm_agent.host.tool_forms import toolset
from fsm_agent.host.tool_verifier import tool_verifier, verifier_of
from fsm_agent.people import People, taken
from fsm_agent.streaming import Streams


class Agent(People, Streams):
    """A machine over the host's tools and decider; it holds no run and may be shared between threads and tasks.

    `tools` are Tools, typed functions, or a mapping of name to one of these or to a table entry. `model` is a model (an
    object with `reply`, one of `fsm_agent.models` or the host's own), or a function: it is asked what to do next with a
    `Decide` and answers with a Decision, a ToolCall, several, or a final text; its method `close`, if it has one, or
    `close` gives the closing answer of a run that was stopped. Without it (None) runs are driven by hand, through `engine`.
    `machine` is the table that is walked, under `limits` (default: its own, else `Limits()`) and `policy`; `allowed` narrows the
    tools of its states. `normalizer` makes the request that is worked with, or refuses it by raising. `repairs` maps an error
    word to a function of tool and arguments that gives the pair of both for the next try. `required` names tools whose evidence
    an answer needs, `verify` (a function of a `Judge`, a model, or a tool of seed 002's four inputs; default: the tool that
    alone is allowed where answers are verified) is asked whether it suffices. With `ttl_s` (or a tool's own TTL) pure tools are
    remembered, with `negative_ttl_s` their failures too, in `memory` (default: one of this agent's own); both are seconds of
    `clock` (default: the system's). `strategy` and `hooks` are seed 004's.
    A model is told `instructions`, and behind them the generated texts that `prompts` chooses (by default the agent policy alone).
    `answer` is the form of a typed answer: a JSON Schema, an attrs or Pydantic class, or an annotation. `work` gives kinds of work
    of the user's own, `effects` what performs the effects they ask for (a class derived from OwnEffect to a function of it). With
    `code_mode` the model may answer with programs that call the tools.

    Raises BuildError when any of these is wrong, naming the mend.
    """

    def __init__(
        self,
        tools: Iterable[Any] | Mapping[str, Any],
        model: Model | Decider | None,
        *,
        limits: Limits | None = None,
        machine: Table = AGENT,
        allowed: Mapping[str, Iterable[str] | None] | None = None,
        policy: Policy | None = None,
        repairs: Mapping[str, Fix] | None = None,
        required: Collection[str] = (),
        normalizer: Callable[[Any], Any] | None = None,
        verify: Model | Verifier | Tool | None = None,
        close: Closer | None = None,
        memory: Memory | None = None,
        ttl_s: float | None = None,
        negative_ttl_s: float | None = None,
        clock: Clock | None = None,
        work: Mapping[str, Work] | None = None,
        effects: Mapping[type[OwnEffect], Performer] | None = None,
        strategy: Iterable[Strategy] = (),
        hooks: Hooks | Sequence[Hooks] | None = None,
        instructions: str = "",
        prompts: Prompts | None = None,
        answer: Any = None,
        code_mode: CodeMode | None = None,
    ) -> None:
        judges = is_model(verify) or isinstance(verify, Tool)
        check_callables(model=None if is_model(model) else model, verify=None if judges else verify)
        check_callables(normalizer=normalizer, close=close)
        check_machine("machine", machine)
        check_mappings(allowed=allowed, repairs=repairs)
        check_text(instructions=instructions)
        check_kinds(limits=(limits, Limits), policy=(policy, Policy), prompts=(prompts, Prompts))
        check_kinds(memory=(memory, Memory), clock=(clock, Clock), code_mode=(code_mode, CodeMode))
        check_own(work, effects)
        guide = Guide(strategy, hooks)
        box = _with_programs(toolset(tools), code_mode)
        self.typed = typed_answer(answer) if answer is not None else None
        closer = close if close is not None else _closer_of(model)
        table = own_kinds(machine, work).allowing(allowed or {})
        check_allows(machine, table, box)
        verify = verify if verify is not None else verifier_of(table, box)
        setup = Setup(
            table=table,
            box=box,
            work={**WORK, **(work or {})},
            limits=limits if limits is not None else machine.limits,
            policy=policy if policy is not None else Policy(),
            repairs=named_repairs(repairs or {}),
            required=required,
            normalizer=normalizer,
            answer=self.typed,
            verifies=verify is not None,
            composes=is_model(model) or closer is not None,
            checks=guide.checks,
            peeks=True,
            runs_programs=code_mode is not None,
        )
        self.engine = Engine(setup)
        decide: Any = model
        if is_model(model):
            decide = ModelDecider(cast(Model, model), setup, instructions=instructions, told=prompts)
            closer = close if close is not None else decide.close
        host = _host(box, clock, memory, ttl_s, negative_ttl_s, Sandbox(code_mode, box) if code_mode is not None else None)
        Streams.__init__(self)
        self.driver = Driver(
            engine=self.engine, decide=decide, host=host, verify=_judge(verify, setup), close=closer, guide=guide,
            performers=effects or {},
        )  # fmt: skip

    def run(self, request: Any, *, context: Any = None, **start: Any) -> Answer:
        """Run a request to its answer in this thread; `start` takes limits, run_id, scope, seed and fields."""
        return self.drive(self._started(request, start), context=context)

    async def arun(self, request: Any, *, context: Any = None, **start: Any) -> Answer:
        """Run a request to its answer inside the running event loop; see `run`."""
        # Not by `adrive`: of many runs that wait at once each would keep one coroutine more.
        run = self._started(request, start)
        await self.driver.adrive(run, context, self._watch(run))
        return self.answer(run)

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
        for what, text in (("run_id", name), ("scope", scope)):
            if not isinstance(text, str):
                raise RunError(f"{what} is {short(text, 60)}; give a text, or leave it out")
        if seed is not None and type(seed) is not int:
            raise RunError(f"seed is {short(seed, 60)}; give a whole number, or leave it out")
        if fields is not None and not isinstance(fields, Mapping):
            raise RunError(f"fields is {short(fields, 60)}; give a mapping of names to values, or leave it out")
        check_kinds(limits=(limits, Limits))
        if has_messages(request):
            request = as_plain(request)
        elif type(request) is not str and issubclass(type(request), str):
            # A text of another class has no form in a saved run.
            request = word(request)
        number = seed if seed is not None else zlib.crc32(name.encode(errors="backslashreplace"))
        return self.engine.start(request, run_id=name, limits=limits, scope=scope, seed=number, fields=fields)

    def drive(self, run: Run, *, context: Any = None) -> Answer:
        """Drive a run to its answer, or to a pause (`Answer.pending` says whom it waits for).

        Raises RunBusy while another driver has it, and RunError where only `adrive` will do.
        """
        self.driver.drive(run, context, self._watch(run))
        return self.answer(run)

    async def adrive(self, run: Run, *, context: Any = None) -> Answer:
        """Drive a run to its answer inside the running event loop; cancelling leaves it stopped and resumable."""
        await self.driver.adrive(run, context, self._watch(run))
        return self.answer(run)

    def resume(self, run: Run, *, context: Any = None, **raises: Any) -> Answer:
        """Let a stopped or paused run go on with the limits named raised, to its next answer.

        Raises CannotResume, the run unchanged, when it cannot, RunBusy while another driver has it, and RunError like `drive`.
        """
        self._take_up(run, raises)
        return self.drive(run, context=context)

    async def aresume(self, run: Run, *, context: Any = None, **raises: Any) -> Answer:
        """`resume` inside the running event loop."""
        self._take_up(run, raises, in_loop=True)
        return await self.adrive(run, context=context)

    def _take_up(self, run: Run, raises: Mapping[str, Any], in_loop: bool = False) -> None:
        with taken(run):
            # What a person said to a paused run may have stopped it; its closing turn is owed all the same.
            if raises or not run.closing:
                try:
                    self.driver.check(in_loop=in_loop)
                except RunError:
                    # Of a run that could not go on anyway that is said.
                    self.engine.resume(copy(run), raises)
                    raise
                self.engine.resume(run, raises)

    def history(self, run: Run) -> list[Message]:
        """The run's messages so far, valid for any provider: what a new run may be started with to go on talking."""
        check_run(run)
        return list(transcript(run, self.engine.setup.box))

    def save(self, run: Run) -> str:
        """A run at any step as strict JSON text; raises SavedRunError for a value that cannot be saved."""
        check_run(run)
        return save(run)

    def load(self, text: object) -> Run:
        """A saved run, ready to go on; raises SavedRunError for what is no saved run of this agent's machine."""
        return load(text, self.engine.setup)

    def replay(self, run: Run, steps: int | None = None) -> Run:
        """The run rebuilt from its journal, whole or up to so many events, without asking anybody."""
        check_run(run)
        if steps is not None and (type(steps) is not int or steps < 0):
            raise RunError(f"steps is {short(steps, 60)}; give a whole number from 0, or None for the whole journal")
        return replay(self.engine, run, steps)

    def answer(self, run: Run) -> Answer:
        """The answer of a run that is over, or what a paused one waits for; raises RunError for one that has to be driven on."""
        check_run(run)
        value = None
        if self.typed is not None and run.answer is not None and run.stop is not None and run.stop.reason in OF_ITSELF:
            value = self.typed.made(run.answer)
        answer = answer_of(run, value, run)
        if answer is None and run.paused:
            answer = paused_answer(run, run)
        if answer is None:
            if self.engine.ask(run) is None:
                raise RunError(f"the work of state {run.state!r} asks run {run.id!r} for nothing; let its `ask` return an effect")
            raise RunError(f"run {run.id!r} stands still in state {run.state!r} without an answer; drive it on")
        return answer


def _judge(verify: Any, setup: Setup) -> Verifier | None:
    """Who is asked whether the evidence suffices, as a function."""
    if isinstance(verify, Tool):
        return tool_verifier(verify)
    return ModelVerifier(verify, setup.required, callable_tools(setup)) if is_model(verify) else cast("Verifier | None", verify)


def _with_programs(box: Toolset, code_mode: CodeMode | None) -> Toolset:
    """The tools, and the one that runs programs where there is code mode."""
    if code_mode is None:
        return box
    return Toolset([*box, code_mode.tool()])


def _host(
    box: Toolset, clock: Clock | None, memory: Memory | None, ttl_s: float | None, negative_ttl_s: float | None,
    programs: Sandbox | None,
) -> Host:
    if memory is None and (ttl_s or negative_ttl_s or _remembers(box)):
        # Who says how long something is remembered wants it remembered.
        memory = TtlMemory()
    return Host(
        clock=clock if clock is not None else SystemClock(),
        memory=memory,
        ttl_s=ttl_s,
        negative_ttl_s=negative_ttl_s,
        breakers=Breakers(),
        programs=programs,
    )


def _remembers(box: Toolset) -> bool:
    """Whether a tool says for how long it is remembered."""
    return any(tool.cache_ttl_s or tool.negative_ttl_s for tool in box)


def _closer_of(decide: Any) -> Closer | None:
    close = getattr(decide, "close", None)
    return close if callable(close) else None
