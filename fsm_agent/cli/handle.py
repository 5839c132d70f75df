"""``fsm-agent handle``: orders in, answers out."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import IO, TYPE_CHECKING, Any

import attrs
import click

from fsm_agent.cli.exits import INTERRUPTED, NO_ORDER, OK, SOME_FAILED, WRONG, failed
from fsm_agent.cli.lines import Line, read_lines
from fsm_agent.cli.tally import Tally

if TYPE_CHECKING:
    from fsm_agent.cli.terminal import Screen
    from fsm_agent.core.run import Run
    from fsm_agent.desk import ToolDesk


@click.command("handle", short_help="Handle orders of the lab, one JSON object a line.")
@click.argument("file", required=False)
@click.option("--order", metavar="JSON", help="Handle this one order.")
@click.option("--samples", is_flag=True, help="Handle the sample orders of the package; they show every path.")
@click.option("--naive", is_flag=True, help='Handle each order without repair too: {"order", "naive", "repaired"}.')
@click.option("--table", "as_table", is_flag=True, help="Print a table to read instead of JSON lines.")
@click.option("--trace", is_flag=True, help="Print the path of each order on stderr, as indented lines.")
@click.option("-q", "--quiet", is_flag=True, help="No progress bar and no summary.")
@click.pass_context
def command(
    ctx: click.Context, file: str | None, order: str | None, samples: bool, naive: bool, as_table: bool, trace: bool, quiet: bool
) -> int:
    """Handle orders of the lab, one JSON object a line, from FILE or stdin (-).

    One answer a line goes to stdout, as JSON; a summary goes to stderr. What
    JSON cannot hold is written as in saved runs: {"$int": "0x..."}. A line
    that is no order is told on stderr and answered with its "line" and
    "error"; the rest goes on. Exit codes: 0 all answered, 1 an order gave up,
    2 wrong usage or an unreadable file, 3 a line was no order. Of the samples
    some fail on purpose, which is 0 too.

    \b
    Examples:
      fsm-agent handle --samples --naive --table
      fsm-agent handle --order '{"sku": "A-1001", "region": "mars", "limit": 9}'
      cat orders.jsonl | fsm-agent handle - > answers.jsonl
    """
    if sum((file is not None, order is not None, samples)) > 1:
        raise click.UsageError("give one of FILE, --order and --samples", ctx)
    if file is None and order is None and not samples and sys.stdin.isatty():
        click.echo(ctx.get_help())
        return WRONG
    from fsm_agent.cli.terminal import Screen

    with _opened(file, order, samples) as stream:
        screen = Screen(quiet=quiet, as_table=as_table, naive=naive, size=_size_of(stream))
        code = _Handling(screen=screen, naive=naive, trace=trace).serve(stream)
    return OK if samples and code in (SOME_FAILED, NO_ORDER) else code


@contextmanager
def _opened(file: str | None, order: str | None, samples: bool) -> Iterator[IO[bytes]]:
    if order is not None:
        # One order may be spread over lines; between its values all white space is alike.
        yield io.BytesIO(order.replace("\n", " ").replace("\r", " ").encode("utf-8", "surrogateescape"))
    elif samples:
        with files("fsm_agent.lab").joinpath("orders.jsonl").open("rb") as stream:
            yield stream
    elif file is None or file == "-":
        yield sys.stdin.buffer
    else:
        with open(file, "rb") as stream:
            yield stream


def _size_of(stream: IO[bytes]) -> int | None:
    try:
        return os.fstat(stream.fileno()).st_size or None
    except (OSError, ValueError, AttributeError):
        return None


@attrs.frozen(kw_only=True)
class _Handling:
    """Where orders are handed in and answers handed out."""

    screen: Screen
    naive: bool
    trace: bool
    tally: Tally = attrs.field(factory=Tally)

    def serve(self, stream: IO[bytes]) -> int:
        """Handle every line of a stream; returns the exit code."""
        from fsm_agent import adapter

        desk = adapter.desk()
        # Without a memory of its own the one would answer from what the other found out.
        beside = attrs.evolve(desk, cache={}) if self.naive else None
        with self.screen:
            try:
                for line in read_lines(stream):
                    self._handle(desk, beside, line)
                    self.screen.advance(line.size)
            except KeyboardInterrupt:
                self.screen.close()
                return failed(f"stopped by Ctrl-C; {self.tally.handled} orders were handled", INTERRUPTED)
        self.screen.summary(self.tally)
        return self.tally.exit_code

    def _handle(self, desk: ToolDesk, beside: ToolDesk | None, line: Line) -> None:
        if line.error:
            self.tally.bad_lines += 1
            self.screen.note(f"fsm-agent: line {line.number}: {line.error}")
        if not line.is_json:
            self.screen.answered(line, _unread(line))
            return
        naive = None
        if beside is not None:
            run = beside.run(line.order, naive=True)
            naive = {**beside.answer(run), "path": run.path}
            self._trace(run, line, ", naive")
        run = desk.run(line.order)
        answer = desk.answer(run)
        self._trace(run, line, ", with repair" if self.naive else "")
        if line.error:
            answer = {**answer, "line": line.number, "error": line.error}
        else:
            self.tally.add(run, answer)
            if naive is not None:
                self.tally.add_naive(naive["ok"])
        self.screen.answered(line, answer, naive)

    def _trace(self, run: Run, line: Line, how: str) -> None:
        if self.trace:
            from fsm_agent.cli.trace import trace_lines

            self.screen.note(f"line {line.number}{how}")
            for text in trace_lines(run):
                self.screen.note(text)


def _unread(line: Line) -> dict[str, Any]:
    word = "line:no_json"
    return {
        "ok": False,
        "answer": f"gave up: {word}",
        "rows": [],
        "errors": [word],
        "fixes": [],
        "attempts": 0,
        "calls": [],
        "tool_runs": 0,
        "line": line.number,
        "error": line.error,
    }
