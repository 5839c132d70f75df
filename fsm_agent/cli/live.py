"""A run as it happens, line by line on stderr: states, decisions, calls with their results, guards, waits."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from fsm_agent.cli.exits import if_told
from fsm_agent.core.plain import dumps, short
from fsm_agent.core.redact import without_secrets
from fsm_agent.core.run import Call, Run
from fsm_agent.core.short_text import one_line
from fsm_agent.core.storable import storable
from fsm_agent.core.stream_events import StreamEvent
from fsm_agent.core.trace import TraceEvent

_WIDTH = 100


class Live:
    """Shows the events of one run; quiet, it shows none."""

    def __init__(self, run: Run, *, quiet: bool) -> None:
        self._run, self._quiet = run, quiet
        self._console = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)

    def show(self, event: StreamEvent) -> None:
        """Show one event, where it says something to a reader."""
        if self._quiet or not isinstance(event, TraceEvent):
            return
        line = self._line(event)
        if line:
            with if_told():
                self._console.print(line)

    def _line(self, event: TraceEvent) -> str:
        about = escape(one_line(event.subject))
        if event.kind == "state_entered":
            return f"[bold cyan]{about}[/]"
        if event.kind == "decision":
            return f"  turn {about}: {event.detail} call{'' if event.detail == 1 else 's'}" if event.detail else f"  turn {about}: answers"
        if event.kind in ("decision_failed", "malformed"):
            what = f"failed: {about}" if event.kind == "decision_failed" else f"turn {about}"
            return f"  {what}: [yellow]{escape(_cut(one_line(event.detail)))}[/]" if event.detail else f"  [yellow]{what}[/]"
        call = self._call(event.subject)
        if event.kind == "call_started" and call is not None:
            return f"  > {escape(one_line(call.tool))}({escape(_args(call))})"
        if event.kind in ("call_finished", "call_refused", "call_reused") and call is not None:
            return f"  < {escape(one_line(call.tool))}: {_result(call)}"
        if event.kind == "guard_closed":
            return f"  [red]closed: {about}[/] ({escape(one_line(str(event.detail)))})"
        if event.kind == "waiting":
            return f"  waited {event.detail:.2f} s"
        if event.kind == "paused":
            return f"  [magenta]paused[/] for {escape(one_line(', '.join(event.detail or {})))}"
        return ""

    def _call(self, call_id: str) -> Call | None:
        return next((call for call in (*self._run.open_calls, *reversed(self._run.calls)) if call.id == call_id), None)


def _args(call: Call) -> str:
    args = without_secrets(call.args, call.secret)
    if not isinstance(args, dict):
        return _cut(one_line(short(args, _WIDTH)))
    return _cut(", ".join(f"{name}={_text(value)}" for name, value in args.items()))


def _result(call: Call) -> str:
    if call.error:
        return f"[red]{escape(_cut(one_line(call.error)))}[/]" + (f" {escape(_cut(one_line(call.detail)))}" if call.detail else "")
    return f"[green]{escape(_cut(_text(call.value)))}[/]" + (" (reused)" if call.reused else "")


def _text(value: object) -> str:
    return one_line(dumps(storable(value)))


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."
