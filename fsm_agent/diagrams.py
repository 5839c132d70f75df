"""State diagrams of a machine, and of one run on top of it: Mermaid and DOT text, SVG and PNG.

They are drawn from the rows of the table, and from the trace of the run, and from nothing else.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

from fsm_agent.core.errors import BuildError, MissingExtra, TableError
from fsm_agent.core.run import Run
from fsm_agent.core.table import Table
from fsm_agent.dot_text import dot_text
from fsm_agent.drawing import drawn
from fsm_agent.mermaid_text import mermaid_text

IMAGES = ("svg", "png")
"""The formats that `render` and `image` can make."""

_FONT = "Helvetica,Arial,sans-serif"
# The drawing program knows the widths of one font only by its bare name, and browsers need the others behind it.
_MEASURED_FONT = "Helvetica"
_SECONDS = 60


def mermaid(machine: Any, *, labels: bool = True, run: Any = None) -> str:
    """Return the machine as a Mermaid state diagram (``stateDiagram-v2``), for a README or any Mermaid reader.

    `machine` is a Table, or anything with a `table` (a compiled machine, a setup, a desk). Without `labels` only the names
    of states remain, the same states connected. With `run` (a Run, or what has one as `.run`, such as an answer) the rows that it
    walked say how often, its states are coloured, and the last one says how it ended. The text is the same for the same table and
    run. Raises TableError for what has no table, BuildError for what is no run, RunError for a run of another machine.
    """
    return mermaid_text(drawn(table_of(machine), labels, run_of(run)))


def dot(machine: Any, *, labels: bool = True, run: Any = None) -> str:
    """Return the machine as DOT text, for Graphviz; final states have a double border, and the way of a `run` is thick.

    Arguments and errors as those of `mermaid`.
    """
    return dot_text(drawn(table_of(machine), labels, run_of(run)), _FONT)


def render(machine: Any, format: str, *, labels: bool = True, run: Any = None) -> bytes:
    """Return the machine drawn as ``svg`` or ``png``, with a `run` on it or without; the same bytes for the same table and run.

    Raises MissingExtra when the extra ``diagram`` is not installed, BuildError for another format or when drawing fails.
    """
    if format not in IMAGES:
        raise BuildError(f"a diagram cannot be drawn as {format!r}; take {' or '.join(IMAGES)}")
    text = dot_text(drawn(table_of(machine), labels, run_of(run)), _MEASURED_FONT)
    program = _program()
    try:
        done = subprocess.run(
            [str(program), f"-T{format}"], input=text.encode(), capture_output=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise BuildError(f"{program.name} could not draw the diagram: {error}") from error
    if done.returncode or not done.stdout:
        said = done.stderr.decode("utf-8", "replace").strip() or f"it ended with {done.returncode}"
        raise BuildError(f"{program.name} could not draw the diagram: {said.splitlines()[0]}")
    if format == "png":
        return done.stdout
    svg = re.sub(rf'font-family="{_MEASURED_FONT}[^"]*"', f'font-family="{_FONT}"', done.stdout.decode())
    # A viewer finds an arrow by its title, which should not say where on the state it begins.
    return re.sub(r"<title>(\w+):nw&#45;&gt;\1:w</title>", r"<title>\1&#45;&gt;\1</title>", svg).encode()


def image(machine: Any, path: str | Path, *, labels: bool = True, run: Any = None) -> Path:
    """Write the machine drawn to a file, as the file's name says: ``.svg`` or ``.png``; returns its path.

    Raises as `render` does, and OSError when the file cannot be written.
    """
    path = Path(path)
    format = path.suffix.lower().removeprefix(".")
    if format not in IMAGES:
        raise BuildError(f"the name of {str(path)!r} does not say how to draw; let it end in .svg or .png")
    path.write_bytes(render(machine, format, labels=labels, run=run))
    return path


def table_of(machine: Any) -> Table:
    """Return the table of a machine: itself, its `table`, or that of its `setup` or `engine`; raises TableError when it has none."""
    holders = machine, getattr(machine, "setup", None), getattr(getattr(machine, "engine", None), "setup", None)
    for found in (machine, *(getattr(holder, "table", None) for holder in holders)):
        if isinstance(found, Table):
            return found
    raise TableError(f"a {type(machine).__name__} has no table of states and rows; give a Table, or what has one as .table")


def run_of(run: Any) -> Run | None:
    """Return the run of what was given: itself, or its `run`; None for None; raises BuildError when it has none."""
    if run is None:
        return None
    for found in (run, getattr(run, "run", None)):
        if isinstance(found, Run):
            return found
    raise BuildError(f"a {type(run).__name__} is no run that could be drawn; give a Run, an Answer, or leave it out")


def _program() -> Path:
    """The drawing program of the package graphviz-pure, wherever its installer put it."""
    from importlib import metadata

    try:
        package = metadata.distribution("graphviz-pure")
    except metadata.PackageNotFoundError:
        raise MissingExtra("graphviz-pure", "diagram", "drawing SVG and PNG") from None
    for file in package.files or ():
        if file.stem == "graphviz-pure" and file.suffix in ("", ".exe"):
            found = Path(str(package.locate_file(file))).resolve()
            if found.is_file():
                return found
    raise MissingExtra("graphviz-pure", "diagram", "drawing SVG and PNG")
