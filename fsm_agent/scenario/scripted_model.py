"""The model of a scenario: each request is answered by the next turn of its run's script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from fsm_agent.core.messages import Purpose
from fsm_agent.core.plain import dumps
from fsm_agent.core.values import Decision
from fsm_agent.host.model import FailureKind, ModelFailed, ModelRequest
from fsm_agent.models.json_model import taken
from fsm_agent.scenario.named_errors import exception_named
from fsm_agent.scenario.script import MOST_REQUESTS, ScriptEnded, decision_of, finish_of, usage_of
from fsm_agent.scenario.stage import at_once
from fsm_agent.scenario.surroundings import Surroundings
from fsm_agent.scenario.track import DRIVEN, Seen, Track
from fsm_agent.scenario.values import filled

_KINDS: Mapping[type[Exception], FailureKind] = {TimeoutError: FailureKind.TIMEOUT, ConnectionError: FailureKind.CONNECTION}


class ScriptedModel:
    """Answers requests by script; `turns` counts them over all runs, closing ones included."""

    def __init__(self, world: Surroundings) -> None:
        self.world = world
        self.turns = 0
        self.seen: Seen | None = None

    def reply(self, request: ModelRequest) -> Any:
        """The decision of the next turn, or an awaitable of it."""
        track = DRIVEN.get()
        if track is None:
            raise RuntimeError("a scenario's model was asked outside the scenario")
        offered = [offer.name for offer in request.tools]
        self.seen = track.seen = Seen(request.instructions, tuple(request.messages), offered, request.summary)
        track.script.requests += 1
        turn, before = self._turn(track, request)
        # A request that the script has no answer for is a fault of its own, and no turn.
        self.turns += 1
        seconds = float(turn.get("sleep_s", 0))
        if self.world.stage.asynchronous:
            return self._later(turn, before, track, request, seconds)
        if seconds:
            at_once(self.world.stage.sleep(seconds))
        return self._said(turn, before, track, request)

    async def _later(self, turn: Mapping[str, Any], before: int, track: Track, request: ModelRequest, seconds: float) -> Decision:
        if seconds:
            await self.world.stage.sleep(seconds)
        return self._said(turn, before, track, request)

    def _turn(self, track: Track, request: ModelRequest) -> tuple[Mapping[str, Any], int]:
        closing = track.script.closing
        if request.purpose is Purpose.CLOSE and closing is not None:
            return (closing if isinstance(closing, Mapping) else {"final": closing}), 0
        found = track.script.next(request.state)
        if found is not None and self.turns < MOST_REQUESTS:
            return found
        number = sum(map(len, track.script.turns.values()))
        what = f"the model was asked for turn {track.script.requests} and its script has {number}"
        if request.purpose is Purpose.CLOSE:
            # A last request that cannot be answered is what the template is for.
            self.turns += 1
        elif track.script.then or not number:
            self.world.violations.append(what)
        raise ScriptEnded(what)

    def _said(self, turn: Mapping[str, Any], before: int, track: Track, request: ModelRequest) -> Decision:
        names = {"turn": track.script.requests, "query": track.run.request}
        for piece in turn.get("deltas", ()):
            if request.on_delta is not None:
                request.on_delta(filled(piece, names))
        if "raise" in turn:
            raise _failure(turn, names)
        if "raw" in turn:
            return _read(turn, filled(turn["raw"], names), request.purpose)
        return decision_of(turn, names, before, self.world.argument_schemas)


def _failure(turn: Mapping[str, Any], names: Mapping[str, Any]) -> BaseException:
    name, message = turn["raise"], filled(turn.get("message", ""), names)
    retry_after_s, usage = turn.get("retry_after_s"), usage_of(turn.get("usage"))
    if name in set(FailureKind):
        return ModelFailed(name, message, retry_after_s, usage)
    error = exception_named(name, message)
    if retry_after_s is None or not isinstance(error, Exception):
        return error
    # A provider's file would have read its header the same way: whoever says when to ask again is asked again then.
    kind = next((kind for known, kind in _KINDS.items() if isinstance(error, known)), FailureKind.RATE_LIMITED)
    return ModelFailed(kind, f"{name}: {message}" if message else name, retry_after_s, usage)


def _read(turn: Mapping[str, Any], raw: Any, purpose: Purpose) -> Decision:
    """What a model that writes JSON decisions is taken to say: the same as behind `JsonDecisions`, cut-off replies among it."""
    text = raw if isinstance(raw, str) else dumps(raw)
    decision = taken(Decision(text=text, finish=str(turn.get("finish") or ""), usage=usage_of(turn.get("usage"))), purpose)
    return attrs.evolve(decision, finish=finish_of(turn, bool(decision.calls)))
