"""Running scenarios: the steps one after the other, what was expected after each, and the verdict."""

from __future__ import annotations

import gc
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from fsm_agent.core.errors import BuildError, FsmAgentError
from fsm_agent.scenario.came import Came
from fsm_agent.scenario.driving import NeverHeld, SavedOtherwise
from fsm_agent.scenario.expecting import OF_A_RUN, Outcome, always, check
from fsm_agent.scenario.matching import listed, shown
from fsm_agent.scenario.named_errors import names_of
from fsm_agent.scenario.ops import Current, Player, StepFailed
from fsm_agent.scenario.reading import Scenario
from fsm_agent.scenario.stage import Stage
from fsm_agent.scenario.steps import DRIVES
from fsm_agent.scenario.task_stage import Tasks
from fsm_agent.scenario.thread_stage import Threads
from fsm_agent.scenario.virtual_clock import StandsStill
from fsm_agent.scenario.world import World

_WRONG = (StepFailed, NeverHeld, SavedOtherwise, StandsStill)


@attrs.frozen(kw_only=True)
class Verdict:
    """How one scenario went in one mode: every expectation, and every fault in words; it holds where there is none.

    `refusals` are the library's own errors that the file allows for, and what was not looked at for their sake.
    """

    scenario: Scenario
    mode: str
    outcomes: tuple[Outcome, ...]
    faults: tuple[str, ...]
    refusals: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """True when everything that was expected came, and nothing else."""
        return not self.faults


def run_scenario(scenario: Scenario, mode: str) -> Verdict:
    """Run one scenario in one mode, ``sync`` or ``async``; never raises for what the library or the scenario does."""
    stage: Stage = Tasks() if mode == "async" else Threads()
    showing = _Showing(World(scenario, stage))
    try:
        stage.play(showing.whole)
    except StandsStill as error:
        showing.faults.append(str(error))
    except Exception as error:
        # One scenario that goes wrong in a way of its own must not keep the others from being shown.
        showing.faults.append(f"the scenario broke off: {type(error).__name__}: {shown(str(error), 300)}")
    # What generators and coroutines leave behind says so now, and not in the middle of the next scenario.
    gc.collect()
    return Verdict(
        scenario=scenario,
        mode=mode,
        outcomes=tuple(showing.outcomes),
        faults=tuple(dict.fromkeys(showing.faults)),
        refusals=tuple(dict.fromkeys(showing.refusals)),
    )


class _Showing:
    """One scenario while it is shown: its player, and what has come so far."""

    def __init__(self, world: World) -> None:
        self.world, self.keys = world, world.keys
        self.player = Player(world)
        self.outcomes: list[Outcome] = []
        self.faults: list[str] = []
        self.refusals: list[str] = []
        self.escaped: BaseException | None = None
        self.refused: FsmAgentError | None = None
        self.over = False

    async def whole(self) -> None:
        """Play everything and look at what must hold at the end."""
        current = Current()
        try:
            if "ops" in self.keys:
                await self.steps(self.keys["ops"], current, "ops")
            else:
                await self._one(partial(self.player.whole, current), {}, current, "")
        finally:
            self._end(current)

    async def steps(self, steps: Sequence[Mapping[str, Any]], current: Current, place: str) -> None:
        """Play steps in order; the first that goes wrong is the last."""
        for number, step in enumerate(steps):
            if self.over:
                return
            here = f"{place}/{number}"
            verb = next(verb for verb in (*self.player.verbs, "together") if verb in step)
            if verb == "together":
                await self._one(partial(self._together, step[verb], current, here), step, current, here)
            else:
                await self._one(partial(self.player.do, current, verb, step[verb]), step, current, here)

    async def _one(self, play: Any, step: Mapping[str, Any], current: Current, place: str) -> None:
        raised: BaseException | None = None
        before = current.track
        try:
            await play()
        except BaseException as error:
            if not _is_of_the_scenario(error):
                raise
            raised = error
        came = Came(world=self.world, track=current.track, raised=raised)
        faults = self._escaped(raised, step)
        if any(verb in step for verb in DRIVES) or not place:
            faults += always(came)
        if place:
            nothing_new = raised is not None and current.track is before and before is None
            outcomes = check(step.get("expect", {}), came, self._left_out(raised, step, place) if nothing_new else ())
            self.outcomes += [attrs.evolve(one, key=f"{place}/{one.key}") for one in outcomes]
            faults += [fault for outcome in outcomes for fault in outcome.faults]
            faults = [f"{place}: {fault}" for fault in faults]
        self._note(raised, step, place)
        self.faults += faults
        self.over = self.over or bool(faults)

    def _escaped(self, raised: BaseException | None, step: Mapping[str, Any]) -> list[str]:
        if raised is None:
            return []
        if isinstance(raised, _WRONG):
            return [str(raised)]
        if "raises" in step.get("expect", {}) or self._accepts(raised) or self._may_be(raised, step):
            return []
        what = "the library refused" if isinstance(raised, FsmAgentError) else "this escaped"
        return [f"{what}: {_said(raised)}"]

    def _may_be(self, raised: BaseException, step: Mapping[str, Any]) -> bool:
        return isinstance(raised, FsmAgentError) and bool(step.get("may_refuse") or self.keys.get("may_refuse"))

    def _note(self, raised: BaseException | None, step: Mapping[str, Any], place: str) -> None:
        """Keep what escaped for the end, unless the step itself expects it or the library may refuse there."""
        if raised is None or "raises" in step.get("expect", {}):
            return
        if isinstance(raised, FsmAgentError):
            self.refused = self.refused or raised
        if self._accepts(raised) or not self._may_be(raised, step):
            self.escaped = raised
        else:
            self.refusals.append(f"{place}{': ' if place else ''}refused: {_said(raised)}")

    def _left_out(self, refusal: BaseException | None, step: Mapping[str, Any], place: str) -> Collection[str]:
        """What is not looked at where no run was begun: what is said of runs, but not where the file has a typing error."""
        expect = step.get("expect", {})
        if refusal is None:
            return ()
        if _is_mistyped(refusal) and "raises" not in expect:
            # The file is at fault; only that each call of none has its result is true all the same.
            return ("every_call_has_one_result",)
        if left := [key for key in expect if key in OF_A_RUN]:
            self.refusals.append(f"{place}{': ' if place else ''}not looked at, there is no run: {', '.join(left)}")
        return OF_A_RUN

    def _accepts(self, raised: BaseException) -> bool:
        accepted = listed(self.keys.get("expect", {}).get("raises"))
        return any(name in accepted for name in names_of(raised))

    async def _together(self, lists: Sequence[Sequence[Mapping[str, Any]]], current: Current, place: str) -> None:
        own = [any("run" in step or "load" in step for step in steps) for steps in lists]
        currents = [Current(current.track, current) if has else current for has in own]
        # Lists that act on the current run may mean one that another list begins or loads.
        order = sorted(range(len(lists)), key=lambda number: not own[number])
        plays = [partial(self.steps, lists[number], currents[number], f"{place}/{number}") for number in order]
        errors = await self.world.stage.beside(plays)
        if any(own):
            current.track = next(one.track for one in reversed(currents) if one is not current)
        for error in errors:
            if error is not None:
                raise error

    def _end(self, current: Current) -> None:
        came = Came(world=self.world, track=current.track, raised=self.escaped)
        outcomes = check(self.keys.get("expect", {}), came, self._left_out(self.refused, self.keys, "") if current.track is None else ())
        self.outcomes += outcomes
        self.faults += [fault for outcome in outcomes for fault in outcome.faults]
        if not self._accepts_ended_script():
            self.faults += self.world.violations

    def _accepts_ended_script(self) -> bool:
        """Whether the file itself expects that its model's script ends too early."""
        return "model_error" in listed(self.keys.get("expect", {}).get("stop_reason"))


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {shown(str(error), 300)}"


def _is_mistyped(error: BaseException) -> bool:
    """Whether what the library refused to build names something that nobody has, which it then says in one of two ways."""
    return isinstance(error, BuildError) and ("did you mean" in str(error) or "is unknown" in str(error))


def _is_of_the_scenario(error: BaseException) -> bool:
    """Whether an error belongs to what is shown, and is no interrupt from outside."""
    return isinstance(error, Exception) or getattr(error, "of_scenario", False)
