"""How a scenario drives a run: to its end, up to a body that is held, step by step, or until the reader leaves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fsm_agent.core.answers import Answer
from fsm_agent.core.run import Run
from fsm_agent.scenario.stage import Drive, Stage
from fsm_agent.scenario.track import DRIVEN, Hold, Track

GoOn = Callable[[], Awaitable[Answer]]


class NeverHeld(AssertionError):
    """The body that a step waits for never became active."""


class SavedOtherwise(AssertionError):
    """A run that was saved and loaded is not the run that it was."""


class Driving:
    """Drives the runs of a scenario on its stage."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    async def drive(self, track: Track, go_on: GoOn, keys: Mapping[str, Any]) -> None:
        """Drive a run as a step says: `until` a body is active, saved at each step, or until so many events were taken."""
        steps = self._steps(track, go_on, keys)
        track.hold = self._hold(keys)
        if track.hold is None:
            await steps()
            return
        track.drive = Drive(self.stage.flag(), self.stage.flag())
        self.stage.begin(track.drive, steps)
        await self._news(track)

    async def let_go(self, track: Track, keys: Mapping[str, Any]) -> None:
        """Let a held body go on, and its drive, to its end or to the next body that is held."""
        drive, hold = track.drive, track.hold
        assert drive is not None
        track.since = track.run.row_count
        drive.news = self.stage.flag()
        track.hold = self._hold(keys)
        if hold is not None:
            hold.let_go.set()
        if track.hold is None:
            await drive.done.wait()
            self._raise(drive)
        else:
            await self._news(track)

    async def cancelled(self, track: Track) -> None:
        """Wait until a cancelled drive has ended; the body that it held goes on alone."""
        drive, hold = track.drive, track.hold
        if drive is not None and not drive.dead:
            await drive.done.wait()
        track.drive = track.hold = None
        if hold is not None:
            hold.let_go.set()
        if drive is not None:
            self._raise(drive)

    async def die(self, track: Track) -> None:
        """End a drive as if its process were gone; the body that it held never comes back."""
        drive, hold = track.drive, track.hold
        track.drive = track.hold = None
        if drive is not None:
            await self.stage.end(drive, hold.place if hold is not None else None)

    def _hold(self, keys: Mapping[str, Any]) -> Hold | None:
        until = keys.get("until")
        return None if until is None else Hold(until["started"], self.stage.flag())

    async def _news(self, track: Track) -> None:
        drive, hold = track.drive, track.hold
        assert drive is not None
        assert hold is not None
        await drive.news.wait()
        if hold.reached and not drive.done.on:
            return
        self._raise(drive)
        if not hold.reached:
            raise NeverHeld(f"the body of {hold.call!r} never became active; the run went on without it")

    def _raise(self, drive: Drive) -> None:
        if drive.error is not None and not drive.dead:
            error, drive.error = drive.error, None
            raise error

    def _steps(self, track: Track, go_on: GoOn, keys: Mapping[str, Any]) -> Callable[[], Any]:
        async def steps() -> None:
            token, track.place = DRIVEN.set(track), self.stage.place()
            try:
                track.answer = await (self._read(track, keys) if reads(keys) else go_on())
            finally:
                track.told, track.place = track.run.row_count, None
                DRIVEN.reset(token)

        return steps

    async def _read(self, track: Track, keys: Mapping[str, Any]) -> Answer:
        """Drive by reading events; saved at each step, or left after so many."""
        run, most, taken = track.run, keys.get("take_events"), 0

        def happened(event: Any) -> bool:
            nonlocal taken
            taken += 1
            if keys.get("save") == "each-step":
                self._save(track, run)
            return most is None or taken < most

        await self.stage.events(track.agent, run, happened)
        return track.agent.answer(run)

    def _save(self, track: Track, run: Run) -> None:
        text = track.agent.save(run)
        again = track.agent.save(track.agent.load(text))
        if again != text:
            raise SavedOtherwise(f"run {run.id!r} in state {run.state!r} is another one after it was saved and loaded")


def reads(keys: Mapping[str, Any]) -> bool:
    """Whether a run is driven by reading its events: saved at each step, or left after so many."""
    return "take_events" in keys or "save" in keys
