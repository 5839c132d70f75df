"""How long a drive was held up by its reader: time that it has not spent."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from fsm_agent.host.clock import Clock


class Pace:
    """The waits of one drive for its reader, one at a time, by the host's clock and by the machine's."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.waited_s = 0.0
        # By the machine's clock: the seconds of the waits that are over, and when the present one began.
        self._held: tuple[float, float | None] = (0.0, None)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A wait for the reader, from here to the end of the block."""
        before, (held, _), since = self._clock.now(), self._held, time.monotonic()
        self._held = (held, since)
        try:
            yield
        finally:
            self._held = (held + time.monotonic() - since, None)
            self.waited_s += self._clock.now() - before

    def held(self) -> float:
        """Seconds of the machine's clock so far, a wait that goes on included; safe under threads."""
        held, since = self._held
        return held if since is None else held + time.monotonic() - since


def began(at: float, pace: Pace | None) -> float:
    """The instant at which a drive began, as whoever reads it sets the pace."""
    return at if pace is None else Began(at, pace)


class Began(float):
    """The instant at which a drive began; to whoever reckons from it, it moves on with each wait for the reader."""

    pace: Pace

    def __new__(cls, at: float, pace: Pace) -> Began:
        """An instant of the clock that `pace` reads."""
        made = super().__new__(cls, at)
        made.pace = pace
        return made

    def __rsub__(self, now: float) -> float:
        """The seconds that are spent by then."""
        return now - float(self) - self.pace.waited_s
