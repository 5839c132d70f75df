"""The drivers: loops that ask a run what it needs, get it, and tell it; one for threads and one for tasks.

Nothing below them knows whether it is awaited. A run belongs to one driver at a time.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

import attrs

from fsm_agent.core.effects import CallTools, Check, Compose, Decide, Effect, Pause, RunProgram, Wait
from fsm_agent.core.engine import Engine
from fsm_agent.core.errors import RunBusy, RunError
from fsm_agent.core.events import CallEvent, Cancelled, Checked, Decided, Event, Lost, Paused, Stopped
from fsm_agent.core.held_calls import CHECK
from fsm_agent.core.plain import short
from fsm_agent.core.run import ROW, Call, Run, reserve_of
from fsm_agent.host import perform
from fsm_agent.host.answering import Answerer
from fsm_agent.host.bodies import Left, is_async
from fsm_agent.host.calling import Caller
from fsm_agent.host.clock import SystemClock
from fsm_agent.host.guide import Guide, unseen_calls
from fsm_agent.host.interrupt import Interrupt, Interrupted
from fsm_agent.host.pace import began
from fsm_agent.host.ports import Closer, Decider, Host, Performer, Verifier, as_decision
from fsm_agent.host.resolve import ONLY_ASYNC, Questions, aresolve, resolve
from fsm_agent.host.watching import Watch

_TAKING = threading.Lock()
# What belongs to the calls of a turn, of which the hooks hear when all of them have their results.
_OF_A_TURN = frozenset({CallTools, RunProgram, Check, Pause})


def check_run(run: Any) -> None:
    """Raise RunError for what is no run, before anything is looked up in it."""
    if not isinstance(run, Run):
        raise RunError(f"{short(run, 60)} is no run; give one that `start` or `load` made, or an answer's `run`")


def take(run: Run) -> None:
    """Take a run for one driver; raises RunBusy while another has it, RunError for what is no run."""
    if type(run) is not Run:
        check_run(run)
    with _TAKING:
        if run.driven:
            raise RunBusy(f"run {run.id!r} is being driven already; wait for that driver, or start a run of its own")
        run.driven = True


@attrs.frozen(kw_only=True, eq=False)
class Driver:
    """An engine with the host that answers it: decider, verifier, closing answer, hooks, tools' surroundings.

    `context` is given anew at each drive and reaches tools and hooks only. Sync deciders, verifiers and tools work in both
    drivers; async ones need `adrive`, but for tools, which `drive` runs in a thread with a loop of its own.
    """

    engine: Engine
    decide: Decider | None
    host: Host = attrs.field(factory=Host)
    verify: Verifier | None = None
    close: Closer | None = None
    guide: Guide = attrs.field(factory=Guide)
    performers: Mapping[type[Any], Performer] = attrs.field(factory=dict)
    turn: threading.Lock = attrs.field(factory=threading.Lock)
    _caller: Caller = attrs.field(init=False, repr=False)
    _needs_loop: str = attrs.field(init=False, repr=False)
    _answerer: Answerer = attrs.field(init=False, repr=False)

    @_caller.default
    def _calling(self) -> Caller:
        return Caller(engine=self.engine, host=self.host, turn=self.turn)

    @_needs_loop.default
    def _async_part(self) -> str:
        parts: dict[str, Any] = {"decide": self.decide, "verify": self.verify, "close": self.close}
        parts |= {f"effects[{kind.__name__}]": performer for kind, performer in self.performers.items()}
        needs = (name for name, part in parts.items() if is_async(part) or getattr(part, "needs_loop", False))
        return next(needs, self.guide.needs_loop)

    @_answerer.default
    def _answering(self) -> Answerer:
        return Answerer(host=self.host, decide=self.decide, verify=self.verify, close=self.close, performers=self.performers)

    def check(self, *, in_loop: bool = False) -> None:
        """Raise RunError where no run can be driven, in this thread or inside an event loop; nothing is asked of anybody."""
        if self._needs_loop and not in_loop:
            raise RunError(f"{self._needs_loop} is a coroutine function; {ONLY_ASYNC}")
        if self.decide is None:
            raise RunError(_BY_HAND)

    def drive(self, run: Run, context: Any = None, watch: Watch | None = None) -> None:
        """Drive a run until it is over or pauses; what passes through leaves it stopped and resumable.

        Raises RunBusy while another driver has the run, RunError where there is no decider, or decider, verifier, closer, a
        hook, a strategy or a performer is a coroutine function.
        """
        self.check()
        engine, clock, caller, answerer = self.engine, self.host.clock, self._caller, self._answerer
        take(run)
        # Where no time runs out, whoever decides is asked here, function or model.
        decides_here = watch is None and run.limits.deadline_s is None
        interrupt = run.interrupt = Interrupt()
        looks = self.guide.looks
        phase = unseen_calls(run) if looks else -1
        try:
            origin = 0.0 if clock is None else began(clock.now() - run.spent_s, None if watch is None else watch.pace)
            if run.open_calls:
                self._recover(run)
            if watch is not None:
                _told(run, watch)
            while (effect := engine.ask(run)) is not None:
                if interrupt.asked:
                    raise Interrupted
                kind = type(effect)
                if looks and phase < 0 and kind in _OF_A_TURN:
                    phase = len(run.calls)
                if kind is CallTools:
                    caller.call(run, effect, context, origin, interrupt, watch)  # type: ignore[arg-type]
                elif kind is RunProgram:
                    engine.tell(run, self._program(run, effect), None if clock is None else clock.now() - origin)  # type: ignore[arg-type]
                elif kind is Check or kind is Pause:
                    if resolve(self._hold(run, effect, context)):
                        if watch is not None:
                            watch.happened(run)
                        break
                else:
                    stop = resolve(self._between(run, effect, phase, context)) if looks else None
                    phase = -1
                    if stop is None:
                        event: Event
                        if decides_here and kind is Decide:
                            event = answerer.decided(run, effect, None)  # type: ignore[arg-type]
                        else:
                            event = answerer.answer(run, effect, interrupt, watch)
                        now = None if clock is None else clock.now() - origin
                        # A wait that has ended was long enough, whatever the clock says, or there is none.
                        engine.tell(run, event, max(now or 0.0, effect.until_s) if kind is Wait else now)  # type: ignore[union-attr]
                    else:
                        engine.tell(run, stop, None if clock is None else clock.now() - origin)
                if watch is not None:
                    _told(run, watch)
            if phase >= 0 and not run.open_calls:
                resolve(self.guide.after_calls(run, run.calls[phase:], context))
            if interrupt.asked:
                raise Interrupted
        except Interrupted:
            self._cut_off(run, watch, "the run was cancelled")
        except BaseException:
            self._cut_off(run, watch)
            raise
        finally:
            self._over(run, interrupt)

    async def adrive(self, run: Run, context: Any = None, watch: Watch | None = None) -> None:
        """Drive a run inside the running event loop; cancelling the task leaves it stopped and resumable.

        Raises RunBusy while another driver has the run.
        """
        self.check(in_loop=True)
        engine, clock, caller, answerer = self.engine, self.host.clock, self._caller, self._answerer
        take(run)
        # Where no time runs out, a decider that is asked in the loop is awaited here and no deeper.
        decides_here = watch is None and run.limits.deadline_s is None and answerer.decides_in_loop
        interrupt = run.interrupt = Interrupt()
        interrupt.in_task()
        looks = self.guide.looks
        phase = unseen_calls(run) if looks else -1
        try:
            origin = 0.0 if clock is None else began(clock.now() - run.spent_s, None if watch is None else watch.pace)
            if run.open_calls:
                self._recover(run)
            if watch is not None:
                await _heard(run, watch)
            while (effect := engine.ask(run)) is not None:
                if interrupt.asked:
                    raise Interrupted
                kind = type(effect)
                if looks and phase < 0 and kind in _OF_A_TURN:
                    phase = len(run.calls)
                if kind is CallTools:
                    if (tool := caller.to_await(run, effect)) is None:  # type: ignore[arg-type]
                        await caller.in_loop(run, effect, context, origin, watch)  # type: ignore[arg-type]
                    elif (job := caller.begin(run, effect, tool, context, origin, watch)) is not None:  # type: ignore[arg-type]
                        effect = None  # Awaited here and no deeper, and nothing kept that is not needed, for many runs may wait.
                        try:
                            word: CallEvent = perform.returned(tool, job.call, await perform.started(job))
                        except BaseException as error:
                            word = caller.failed(job, error, interrupt.task)
                        caller.end(run, job, word, origin)
                elif kind is RunProgram:
                    event = await asyncio.to_thread(self._program, run, effect)  # type: ignore[arg-type]
                    engine.tell(run, event, None if clock is None else clock.now() - origin)
                elif kind is Check or kind is Pause:
                    if await aresolve(self._hold(run, effect, context), partial(self._left, run, origin)):
                        if watch is not None:
                            await _heard(run, watch)
                        break
                else:
                    stop = None
                    if looks:
                        # Not kept by a name: of many runs that wait at once each would hold it.
                        stop = await aresolve(self._between(run, effect, phase, context), partial(self._left, run, origin))
                    phase = -1
                    if stop is None:
                        if not (decides_here and kind is Decide):
                            event = await answerer.aanswer(run, effect, watch)
                        elif type(said := answerer.decided_or_left(run, effect, interrupt.task)) is Left:  # type: ignore[arg-type]
                            try:
                                event = Decided(as_decision(await said.awaitable))
                            except BaseException as error:
                                event = answerer.failed(run, effect, error, interrupt.task)  # type: ignore[arg-type]
                        else:
                            event = said  # type: ignore[assignment]
                        now = None if clock is None else clock.now() - origin
                        # A wait that has ended was long enough, whatever the clock says, or there is none.
                        engine.tell(run, event, max(now or 0.0, effect.until_s) if kind is Wait else now)  # type: ignore[union-attr]
                    else:
                        engine.tell(run, stop, None if clock is None else clock.now() - origin)
                if watch is not None:
                    await _heard(run, watch)
            if phase >= 0 and not run.open_calls:
                await aresolve(self.guide.after_calls(run, run.calls[phase:], context), partial(self._left, run, origin))
            if interrupt.asked:
                raise Interrupted
        except BaseException as error:
            if not (isinstance(error, Interrupted) or interrupt.took(error)):
                self._cut_off(run, watch)
                raise
            self._cut_off(run, watch, "the run was cancelled")
        finally:
            interrupt.over()
            self._over(run, interrupt)

    def _left(self, run: Run, origin: float) -> float | None:
        """How many seconds a hook may be awaited: what is left of the deadline, and never less than what is kept for the answer."""
        limits, clock = run.limits, self.host.clock
        if limits.deadline_s is None or clock is None:
            return None
        return max(limits.deadline_s - (clock.now() - origin), reserve_of(run))

    def _recover(self, run: Run) -> None:
        """Say of every call that an earlier driver began and left without a result that it is lost."""
        for call in list(run.open_calls):
            if call.started and call.ok is None:
                self.engine.tell(run, Lost(call.id))

    def _cut_off(self, run: Run, watch: Watch | None, why: str = "the drive was interrupted") -> None:
        """Leave a run stopped, and let those who still listen hear of it."""
        if not run.done:
            self.engine.tell(run, Cancelled(why))
        if watch is not None:
            try:
                watch.discarded(run)
                watch.happened(run)
            except BaseException:
                # A reader who has left says so only now; those who look on hear how it ends.
                watch.happened(run)
                raise

    def _over(self, run: Run, interrupt: Interrupt) -> None:
        run.interrupt, run.heard = None, len(run.flat_trace) // ROW
        if interrupt.asked and not run.done:
            # Whoever cancelled it saw it driven, and it only paused.
            self.engine.tell(run, Cancelled("the run was cancelled"))
        run.driven = False

    def _between(self, run: Run, effect: Effect, phase: int, context: Any) -> Questions[Stopped | None]:
        """What the host says between the calls of a turn and the next thing that is asked."""
        if phase >= 0 and not run.open_calls:
            stop = yield from self.guide.after_calls(run, run.calls[phase:], context)
            if stop is not None and not run.closing:
                return stop
        # A text that is written from the evidence is a model turn too; the last one of a run is its answer.
        if isinstance(effect, Decide) or (isinstance(effect, Compose) and not effect.closing):
            return (yield from self.guide.before_turn(run, self.engine.setup.box, context))
        return None

    def _program(self, run: Run, effect: RunProgram) -> Event:
        """Run a program to its next call or its end, in what is left of the time for work."""
        assert self.host.programs is not None
        until = run.limits.work_until_s
        event: Event = self.host.programs.step(effect, None if until is None else until - run.spent_s)
        return event

    def _hold(self, run: Run, effect: Any, context: Any) -> Questions[bool]:
        """Check the calls that are held, and tell what is said of each; true when the run pauses for people."""
        if isinstance(effect, Pause):
            self.engine.tell(run, self._pause())
            return True
        for call in effect.calls:
            if call.ok is not None or call.awaits != CHECK:
                # What was said of a call before it has settled this one too.
                continue
            word = yield from self.guide.check(run, self.engine.setup.box, call, context)
            self.engine.tell(run, self._before_people(run, call, word))
        return False

    def _before_people(self, run: Run, call: Call, word: Event) -> Event:
        """The word on a call, or memory's or the breaker's where those would be asked before the person or client."""
        tool = self.engine.setup.box.get(call.tool)
        if tool is None or not isinstance(word, Checked) or not (word.approval or tool.where == "client"):
            return word
        return perform.peek(self.host, run, call, tool) or word

    def _pause(self) -> Paused:
        ttl = self.engine.setup.policy.approval_ttl_s
        clock = self.host.clock or SystemClock()
        return Paused(None if ttl is None else clock.wall() + ttl)


_BY_HAND = "there is no decider; give the agent a model or a function, or drive the engine by hand with ask and tell"


def _told(run: Run, watch: Watch) -> None:
    watch.happened(run)
    if not run.done:
        # What comes next is done once it is asked for, so that who leaves now has begun no call.
        watch.wanted()


async def _heard(run: Run, watch: Watch) -> None:
    watch.happened(run)
    if watch.turn is not None:
        await watch.turn()
