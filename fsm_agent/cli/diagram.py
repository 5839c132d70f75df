"""``fsm-agent diagram``: a machine drawn from its table."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from fsm_agent.cli.exits import OK
from fsm_agent.cli.machines import DRAWN, machine_help, machine_of
from fsm_agent.core.run import Run

_FORMATS = {"mermaid": ".mmd", "dot": ".dot", "svg": ".svg", "png": ".png"}


@click.command("diagram", short_help="Draw a machine as Mermaid, DOT, SVG or PNG.")
@click.option("--machine", metavar="NAME", default="agent", show_default=True, help=machine_help(*DRAWN))
@click.option("--format", "form", type=click.Choice(list(_FORMATS)), help="Default: as --out ends (.mmd .dot .svg .png), else mermaid.")
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path), help="Write here instead of stdout.")
@click.option("--run", "saved", metavar="FILE", type=click.Path(path_type=Path), help="A saved run of that machine, drawn on top of it.")
@click.option("--no-labels", is_flag=True, help="States and arrows alone.")
def command(machine: str, form: str | None, out: Path | None, saved: Path | None, no_labels: bool) -> int:
    """Draw a machine as Mermaid or DOT text, or as an SVG or PNG image.

    Images need the extra "diagram": pip install "fsm-agent[diagram]".

    \b
    Examples:
      fsm-agent diagram
      fsm-agent diagram --machine desk --out desk.svg
      fsm-agent diagram --run run.json --out run.svg
    """
    from fsm_agent import diagrams

    table = machine_of(machine, *DRAWN).table
    form = form or _format_of(out)
    if form == "png" and out is None and sys.stdout.isatty():
        raise click.UsageError("a PNG is no text to print; give --out FILE")
    run = _read(saved) if saved is not None else None
    if form in diagrams.IMAGES:
        drawn = diagrams.render(table, form, labels=not no_labels, run=run)
    else:
        draw = diagrams.dot if form == "dot" else diagrams.mermaid
        drawn = draw(table, labels=not no_labels, run=run).encode()
    if out is not None:
        out.write_bytes(drawn)
    else:
        sys.stdout.buffer.write(drawn)
        sys.stdout.buffer.flush()
    return OK


def _read(path: Path) -> Run:
    from fsm_agent.core.saving import read

    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{path} is no UTF-8 text: {error.reason} at byte {error.start}") from None
    return read(text)


def _format_of(out: Path | None) -> str:
    if out is None:
        return "mermaid"
    named = {ending: form for form, ending in _FORMATS.items()}
    if out.suffix.lower() not in named:
        raise click.UsageError(f"the ending of {out.name!r} is none of {' '.join(named)}; give --format")
    return named[out.suffix.lower()]
