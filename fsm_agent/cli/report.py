"""``fsm-agent report``: the lab's report, measured now."""

from __future__ import annotations

from pathlib import Path

import click

from fsm_agent.cli.exits import OK, SOME_FAILED


@click.command("report", short_help="Measure the lab's tools and write a report.")
@click.option(
    "--dir", "directory", metavar="DIR", type=click.Path(path_type=Path), default=".", show_default=True,
    help="Where to write; made if need be.",
)  # fmt: skip
def command(directory: Path) -> int:
    """Measure the lab's tools and write tool_report.json and tool_report.md.

    Every reason is provoked by a call made now: what was asked, what came
    back, and whether a body ran; memory, repairs and the cap on attempts too.
    Exit codes: 0 all as promised, 1 a probe came back otherwise.

    \b
    Example:
      fsm-agent report --dir reports
    """
    from fsm_agent.lab.report import measure, write

    report = measure()
    for path in write(report, directory):
        click.echo(f"wrote {path}")
    click.echo(f"{report['as_promised']} of {report['probes']} probes came back as promised")
    return OK if report["as_promised"] == report["probes"] else SOME_FAILED
