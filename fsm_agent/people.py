"""What people say to a run: approvals, denials, a client's results, a new message, and stop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fsm_agent.core.engine import Engine
from fsm_agent.core.errors import CannotDecide
from fsm_agent.core.events import Approved, Cancelled, Denied, Event, Raised, Returned, Superseded
from fsm_agent.core.exact_values import word
from fsm_agent.core.held_calls import APPROVAL, CLIENT
from fsm_agent.core.normalizing import canonical_text
from fsm_agent.core.pending import Pending, decidable, pending_of
from fsm_agent.core.plain import plain_copy, short
from fsm_agent.core.run import Run
from fsm_agent.host.clock import SystemClock
from fsm_agent.host.drivers import Driver, check_run, take
from fsm_agent.host.perform import after, delivery


@contextmanager
def taken(run: Run) -> Iterator[None]:
    """Keep other drivers and deciders off a run for a moment."""
    take(run)
    try:
        yield
    finally:
        run.driven = False


class People:
    """The part of an agent that people speak to; a run is driven on afterwards."""

    engine: Engine
    driver: Driver

    def pending(self, run: Run) -> tuple[Pending, ...]:
        """The calls that a paused run waits for, each for a person or a client."""
        check_run(run)
        return pending_of(run)

    def approve(self, run: Run, call_id: str, args: Any = None, *, token: str | None = None) -> None:
        """Let a held call run when the run is driven on; `args` replace its arguments and are measured like any.

        Raises CannotDecide, the run unchanged, for a call that waits for no approval, has expired, or is not the one that
        `token` was shown for.
        """
        # What the caller does to its own object afterwards was not approved.
        self._decide(run, call_id, APPROVAL, token, Approved(call_id, plain_copy(args), args is not None), self._wall())

    def deny(self, run: Run, call_id: str, reason: str = "", *, token: str | None = None) -> None:
        """Settle a held call as denied; it never runs. Raises CannotDecide like `approve`, but never for a late one."""
        (reason,) = _texts(reason=reason)
        self._decide(run, call_id, APPROVAL, token, Denied(call_id, reason), None)

    def deliver(self, run: Run, call_id: str, value: Any) -> None:
        """Give a client's result of a held call; it is measured like any. Raises CannotDecide."""
        self._decide(run, call_id, CLIENT, None, Returned(call_id, value), None)

    def deliver_error(self, run: Run, call_id: str, error: str, message: str = "") -> None:
        """Say that a client's call failed, by its error's name (a text). Raises CannotDecide."""
        error, message = _texts(error=error, message=message)
        if not error.strip():
            raise CannotDecide("a client's error has no name; give one, like 'TimeoutError'")
        self._decide(run, call_id, CLIENT, None, Raised(call_id, error, message), None)

    def message(self, run: Run, text: str) -> None:
        """Say something new to a paused run: the calls that wait are superseded and will not run. Raises CannotDecide."""
        text = canonical_text(word(text))
        if not text:
            raise CannotDecide("a new message is a text that says something")
        with taken(run):
            if not pending_of(run):
                raise CannotDecide(f"run {run.id!r} is not paused; start a run with its history to go on talking")
            self.engine.tell(run, Superseded(text))

    def cancel(self, run: Run) -> None:
        """Stop a run: one that is driven elsewhere is interrupted there, any other is cancelled at once.

        A body in the driver's own thread is let come to its end. A cancelled run can be resumed; one that is over is left as it is.
        """
        check_run(run)
        interrupt = run.interrupt
        if interrupt is not None:
            interrupt.ask()
            if run.interrupt is interrupt:
                return
            # The drive ended at that very moment, perhaps with a pause.
        if not run.done:
            with taken(run):
                self.engine.tell(run, Cancelled("the run was cancelled"))

    def _decide(self, run: Run, call_id: str, kind: str, token: str | None, event: Event, wall: float | None) -> None:
        with taken(run):
            decidable(run, call_id, kind, token, wall)
            call = next(call for call in run.open_calls if call.id == call_id)
            host, tool = self.driver.host, self.engine.setup.box.get(call.tool) if kind == CLIENT else None
            answer = delivery(host, run, call, tool, event) if tool is not None and isinstance(event, Returned | Raised) else None
            self.engine.tell(run, event)
            if answer is not None:
                after(host, run, answer)

    def _wall(self) -> float:
        return (self.driver.host.clock or SystemClock()).wall()


def _texts(**words: Any) -> list[str]:
    """The words as exact texts; raises CannotDecide for what is none."""
    for name, said in words.items():
        if not issubclass(type(said), str):
            raise CannotDecide(f"{name} is {short(said, 60)}; give a text")
    return [word(said) for said in words.values()]
