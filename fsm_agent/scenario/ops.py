"""The steps of a scenario: each verb, what it does to the current run, and the people who answer where no steps are written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from itertools import count
from typing import Any

import attrs

from fsm_agent.agent import Agent
from fsm_agent.core.answers import Answer
from fsm_agent.core.run import Run
from fsm_agent.core.values import Status
from fsm_agent.scenario.driving import Driving, reads
from fsm_agent.scenario.track import Track
from fsm_agent.scenario.world import SCOPE, World, base_limits, limits_of

Keys = Mapping[str, Any]
# Who answers for what a call waits for.
_ANSWERS = {"approval": "person", "client": "client"}


class StepFailed(AssertionError):
    """A step could not be done as it is written, which is no word of the library's."""


@attrs.frozen
class Saved:
    """A saved run with what must be equal once it is loaded, how far its script was, and how much of its trace was told by a drive."""

    text: str
    facts: Mapping[str, Any]
    position: Any
    script: Any
    told: int


@attrs.define(eq=False)
class Current:
    """The run that steps act on; lists that are played at once may share one or have their own."""

    track: Track | None = None
    outer: Current | None = None

    def take(self, track: Track) -> None:
        """Act on this run from now on; so do those who act on whatever is current."""
        self.track = track
        if self.outer is not None:
            self.outer.take(track)


class Player:
    """Plays the steps of one scenario in its world."""

    def __init__(self, world: World) -> None:
        self.world, self.stage = world, world.stage
        self.agent: Agent | None = None
        self.saved: dict[str, Saved] = {}
        self.driving = Driving(world.stage)
        self.tracks: list[Track] = []
        self._numbers = count(1)
        self.verbs: Mapping[str, Callable[[Current, Any], Awaitable[None]]] = {
            "run": self.run,
            "resume": self.resume,
            "person": self.person,
            "client": self.client,
            "message": self.message,
            "save": self.save,
            "load": self.load,
            "advance_s": self.advance,
            "cancel": self.cancel,
            "crash": self.crash,
        }

    def host(self, *, fresh: bool = False) -> Agent:
        """The host that runs share, or a new one as a new process would build it."""
        if self.agent is None or fresh:
            self.agent = self.world.agent()
        return self.agent

    async def do(self, current: Current, verb: str, keys: Any) -> None:
        """Do one step but for `together`; raises what the library or a body raised."""
        await self.verbs[verb](current, keys)

    async def whole(self, current: Current) -> None:
        """What a scenario without steps is: one run, in which the people answer at each pause."""
        await self.run(current, {})
        people = [("person", keys) for keys in self.world.keys.get("person", ())]
        people += [("client", keys) for keys in self.world.keys.get("client", ())]
        track = self._track(current)
        while track.answer is not None and track.answer.status is Status.PAUSED:
            waiting = {one.call_id: _ANSWERS.get(one.kind) for one in track.answer.pending}
            answers = {keys["call"]: (kind, keys) for kind, keys in reversed(people) if waiting.get(keys["call"]) == kind}
            if not answers:
                self._unused(people, track)
                return
            for call in waiting:
                if call in answers:
                    people.remove(answers[call])
                    await self.do(current, *answers[call])
            await self.driving.drive(track, self._go_on(track), {})

    def _unused(self, people: list[tuple[str, Keys]], track: Track) -> None:
        """Tell of words about calls that the run never made, while it waits for a word about another."""
        known = [call.id for call in (*track.run.calls, *track.run.open_calls)]
        for kind, keys in people:
            if keys["call"] not in known and not self.world.keys.get("may_refuse"):
                waiting = ", ".join(one.call_id for one in track.agent.pending(track.run))
                self.world.violations.append(f"the {kind} entry for call {keys['call']} was never used; the run waits for {waiting}")

    # ---- running

    async def run(self, current: Current, keys: Keys | None) -> None:
        """Start a run and drive it."""
        keys, agent, file = keys or {}, self.host(), self.world.keys
        base = limits_of(file.get("limits", {}), base_limits(file))
        limits = self.world.limits(keys["limits"], base) if "limits" in keys else None
        query = keys.get("query", file.get("query", "go"))
        run = agent.start(query, run_id=f"run-{next(self._numbers)}", scope=SCOPE, limits=limits)
        current.take(track := Track(agent, self.world.script(keys), run))
        self.tracks.append(track)
        await self.driving.drive(track, self._go_on(track), keys)

    async def resume(self, current: Current, keys: Keys | None) -> None:
        """Let the current run go on: a held body, a run that stands, or one that was stopped, with its limits raised."""
        keys, track = keys or {}, self._track(current)
        if track.drive is not None and not track.drive.done.on and not track.drive.dead:
            await self.driving.let_go(track, keys)
            return
        if keys.get("process") == "fresh":
            self._load(track, track.agent.save(track.run), self.host(fresh=True), track.told)
        track.since, run = track.told, track.run
        if (run.done or "limits" in keys) and not run.driven:
            agent, raises = track.agent, raises_of(self.world.named(keys.get("limits", {})), run)
            if reads(keys):
                # Who reads events drives a run that stands; this one has stopped.
                agent._take_up(run, raises, in_loop=self.stage.asynchronous)
            go_on: Callable[[], Awaitable[Answer]] = partial(self.stage.resume, agent, run, raises)
        else:
            go_on = self._go_on(track)
        await self.driving.drive(track, go_on, keys)

    def _go_on(self, track: Track) -> Callable[[], Awaitable[Answer]]:
        return partial(self.stage.drive, track.agent, track.run)

    async def cancel(self, current: Current, keys: Keys | None) -> None:
        """Cancel the current run, and wait until whoever drives it has heard."""
        track = self._track(current)
        run = track.run
        track.agent.cancel(run)
        self.stage.interrupt(track.place)
        await self.driving.cancelled(track)
        await self.stage.undriven(run)
        if run.done and not run.driven:
            track.answer = track.agent.answer(run)

    async def crash(self, current: Current, keys: Keys | None) -> None:
        """Let the process that drives the current run die; what was saved of the run is all that is left."""
        track = self._track(current)
        text, told = track.agent.save(track.run), self._told(track)
        await self.driving.die(track)
        self._load(track, text, track.agent, told)

    # ---- people

    async def person(self, current: Current, keys: Keys) -> None:
        """Take one decision of a person."""
        track = self._track(current)
        run, call = track.run, keys["call"]
        if not keys.get("approve", True):
            track.agent.deny(run, call, keys.get("reason", ""))
        elif "edit" in keys:
            track.agent.approve(run, call, keys["edit"])
        else:
            track.agent.approve(run, call)

    async def client(self, current: Current, keys: Keys) -> None:
        """Take one answer of a client."""
        track = self._track(current)
        if "raise" in keys:
            track.agent.deliver_error(track.run, keys["call"], keys["raise"].rpartition(".")[2], keys.get("message", ""))
        else:
            track.agent.deliver(track.run, keys["call"], keys.get("return"))

    async def message(self, current: Current, text: Any) -> None:
        """Say something new."""
        text = text["text"] if isinstance(text, Mapping) else text
        track = self._track(current)
        track.agent.message(track.run, text)

    # ---- saving

    async def save(self, current: Current, name: Any) -> None:
        """Save the current run under a name."""
        name = name["name"] if isinstance(name, Mapping) else name
        track = self._track(current)
        text = track.agent.save(track.run)
        self.saved[name] = Saved(text, facts_of(track.run), track.script.position(), track.script, self._told(track))

    async def load(self, current: Current, keys: Any) -> None:
        """Load a saved run, which is the current one from now on; it must stand where it stood."""
        keys = {"name": keys} if isinstance(keys, str) else keys
        saved = self.saved.get(keys["name"])
        if saved is None:
            raise StepFailed(f"nothing was saved as {keys['name']!r}; saved are {', '.join(self.saved) or 'none'}")
        before = self._track(current)
        agent = self.host(fresh=keys.get("process") == "fresh")
        script = attrs.evolve(saved.script, requests=0, by_state={})
        track = Track(agent, script, before.run, seen=before.seen)
        script.set_back(saved.position)
        self._load(track, saved.text, agent, saved.told)
        for name, value in facts_of(track.run).items():
            if value != saved.facts[name]:
                raise StepFailed(f"after the load {name} is {value!r}; it was {saved.facts[name]!r} when it was saved")
        current.take(track)
        self.tracks.append(track)

    def _told(self, track: Track) -> int:
        """How many lines of a run's trace a drive has told; of one that is driven, all there are."""
        return track.run.row_count if track.run.driven else track.told

    def _load(self, track: Track, text: str, agent: Agent, told: int) -> None:
        track.run, track.agent, track.drive, track.hold = agent.load(text), agent, None, None
        track.answer = track.standing_answer()
        # What people said since the last drive is told by the next one.
        track.since = track.told = told

    # ---- time

    async def advance(self, current: Current, seconds: float) -> None:
        """Let time pass."""
        await self.stage.sleep(seconds)

    def _track(self, current: Current) -> Track:
        if current.track is None:
            raise StepFailed("there is no run yet; begin with a step 'run'")
        return current.track


def facts_of(run: Run) -> dict[str, Any]:
    """The state, counts and pending calls of a run, which a load may not change."""
    counts = {field.name: getattr(run, field.name) for field in attrs.fields(Run) if isinstance(getattr(run, field.name), int | float)}
    pending = [(call.id, call.awaits) for call in run.open_calls if call.ok is None]
    return {**counts, "driven": False, "state": run.state, "pending": pending, "calls": [call.id for call in run.calls]}


def raises_of(named: Mapping[str, Any], run: Run) -> dict[str, Any]:
    """The raises that a step asks for; ``"*": null`` switches off every limit that it does not name."""
    raises = {name: value for name, value in named.items() if name != "*"}
    if "*" in named:
        kept = ("reserve_s", "min_evidence")
        names = [field.name for field in attrs.fields(type(run.limits)) if field.name not in kept]
        raises = {**dict.fromkeys(names), **raises}
    return raises
