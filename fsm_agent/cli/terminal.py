"""What a command that handles orders shows: answers on stdout; notes, progress and the summary on stderr."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, Self

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from fsm_agent.cli.exits import if_told
from fsm_agent.cli.lines import Line
from fsm_agent.cli.tally import Tally
from fsm_agent.core.errors import SavedRunError
from fsm_agent.core.plain import dumps
from fsm_agent.core.short_text import one_line, short
from fsm_agent.core.storable import storable

__all__ = ["Screen", "write_line"]

_ORDER_KEYS = ("sku", "region", "limit", "prefer")


def write_line(value: Any, *, flush: bool) -> None:
    """Write a value to stdout as one line of strict JSON in UTF-8, whatever the terminal's own encoding is."""
    try:
        text = dumps(value)
    except SavedRunError:
        text = dumps(storable(value))
    raw = getattr(sys.stdout, "buffer", None)
    if raw is None:
        sys.stdout.write(f"{text}\n")
    else:
        raw.write(f"{text}\n".encode())
    if flush:
        sys.stdout.flush()


class Screen:
    """Shows answers as JSON lines, or collects them for a table; the bar is drawn only where it disturbs no answer.

    `size` is that of the whole input in bytes, or None for a stream, whose answers are then written out one by one.
    """

    def __init__(self, *, quiet: bool, as_table: bool, naive: bool, size: int | None) -> None:
        self._quiet, self._as_table, self._naive = quiet, as_table, naive
        self._notes = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._flush = size is None
        self._rows: list[tuple[str, ...]] = []
        self._bar: Progress | None = None
        if self._notes.is_terminal and not quiet and (as_table or not sys.stdout.isatty()):
            self._bar = Progress(
                TextColumn("{task.fields[orders]} orders"),
                BarColumn(),
                TaskProgressColumn(),
                TimeElapsedColumn(),
                console=self._notes,
                transient=True,
            )
            self._task = self._bar.add_task("", total=size, orders=0)
        self._orders = 0

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Take the bar away and write out what was handled."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        rows, self._rows = self._rows, []
        if rows:
            console = Console(highlight=False, markup=False, emoji=False)
            console.print(self._table(rows, console.width))
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """Print one line on stderr, above the bar."""
        with if_told():
            self._notes.print(Text(text), soft_wrap=True)

    def advance(self, size: int) -> None:
        """One more line of so many bytes is done."""
        self._orders += 1
        if self._bar is not None:
            self._bar.update(self._task, advance=size, orders=self._orders)

    def answered(self, line: Line, answer: dict[str, Any], naive: dict[str, Any] | None = None) -> None:
        """Show one answer, that of an order beside the one without repair where there is one."""
        if self._as_table:
            self._rows.append(self._row(line, answer, naive))
        elif naive is not None and not line.error:
            write_line({"order": line.order, "naive": naive, "repaired": answer}, flush=self._flush)
        else:
            write_line(answer, flush=self._flush)

    def summary(self, tally: Tally) -> None:
        """Print the counts on stderr."""
        if self._quiet:
            return
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, show_header=False, pad_edge=False)
        table.add_column()
        table.add_column(justify="right")
        for name, count in tally.rows():
            table.add_row(Text(name), str(count))
        with if_told():
            self._notes.print(table)

    def _row(self, line: Line, answer: dict[str, Any], naive: dict[str, Any] | None) -> tuple[str, ...]:
        fixes = " ".join(answer["fixes"])
        said = _said(answer)
        order = _order_words(line)
        if self._naive:
            return (str(line.number), order, _said(naive) if naive is not None else "", said, fixes)
        return (str(line.number), order, said, fixes, str(answer["attempts"]), str(answer["tool_runs"]))

    def _table(self, rows: list[tuple[str, ...]], room: int) -> Table:
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        names = ("naive", "with repair", "fixes") if self._naive else ("answer", "fixes", "tries", "runs")
        for name in ("line", "order", *names):
            figure = name in ("line", "tries", "runs")
            # Wide enough for the longest reasons; what is narrow wraps the order, which the reader knows.
            width = 21 if name in ("naive", "with repair", "answer") else None
            # Two answers leave the order what is beside them; a wider one would push the fixes out at the right.
            most = max(room - 66, 14) if name == "order" and self._naive else None
            table.add_column(name, justify="right" if figure else "left", overflow="fold", min_width=width, max_width=most)
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        return table


def _said(answer: dict[str, Any]) -> str:
    return one_line(answer["answer"], 60) if answer["ok"] else f"! {one_line(answer['errors'][-1], 60)}"


def _order_words(line: Line) -> str:
    if not line.is_json:
        return "(no JSON)"
    if not isinstance(line.order, dict):
        return short(line.order, 30)
    values = [line.order[key] for key in _ORDER_KEYS if line.order.get(key) is not None]
    bare = (one_line(value, 16) if isinstance(value, str) and value[:1].isalpha() else short(value, 16) for value in values)
    return " ".join(bare) or "{}"
