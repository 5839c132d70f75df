"""``fsm-agent scenario``: runs written down as tests."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import click

from fsm_agent.cli.exits import OK, SOME_FAILED, WRONG


@click.command("scenario", short_help="Run scenario files: runs written down as tests.")
@click.argument("places", metavar="FILE_OR_FOLDER...", nargs=-1, required=True)
@click.option("--mode", type=click.Choice(["sync", "async"]), help="Run each in this mode only.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
@click.option("--edges", "with_edges", is_flag=True, help="Say which edges of the machines none of the files walked (stderr).")
@click.option("-q", "--quiet", is_flag=True, help="Print only what fails, and no summary.")
def command(places: tuple[str, ...], mode: str | None, as_json: bool, with_edges: bool, quiet: bool) -> int:
    """Run scenario files (JSON or TOML), and those in folders, however deep.

    A file scripts the model, the tools, the people and the clock, and says
    what must come out; its keys are in fsm_agent/scenario/format.json. One
    line each goes to stdout: what was expected, what came. No real time
    passes. Exit codes: 0 all hold, 1 some do not, 2 a file cannot be read or
    is no scenario.

    It needs the extra "jsonschema": pip install "fsm-agent[cli,jsonschema]".

    \b
    Examples:
      fsm-agent scenario tests/scenarios
      fsm-agent scenario bug-report.json --mode async --json
    """
    from fsm_agent.edges import recorded_edges

    with recorded_edges() if with_edges else nullcontext() as edges:
        held, ran, unread = _run_all(places, mode, as_json, quiet)
    if not quiet:
        bad = f"; {unread} could not be read" if unread else ""
        click.echo(f"{held} of {ran} hold{bad}", err=True)
    for said in edges.report() if edges is not None else ():
        click.echo(said, err=True)
    return WRONG if unread else OK if held == ran else SOME_FAILED


def _run_all(places: tuple[str, ...], mode: str | None, as_json: bool, quiet: bool) -> tuple[int, int, int]:
    """How many held, ran, and could not be read; each has its line by then."""
    from fsm_agent.core.short_text import short
    from fsm_agent.scenario.reading import ScenarioError, files_in, read_file
    from fsm_agent.scenario.runner import run_scenario
    from fsm_agent.scenario.verdict_lines import line, report

    held = ran = unread = 0
    named: dict[str, Path] = {}
    for place in places:
        try:
            paths = files_in([place])
        except ScenarioError as error:
            unread += 1
            _unreadable(Path(place), error, as_json)
            continue
        for path in paths:
            try:
                scenario = read_file(path)
            except ScenarioError as error:
                unread += 1
                _unreadable(path, error, as_json)
                continue
            if named.setdefault(scenario.id, path).resolve() != path.resolve():
                click.echo(f"warning: {named[scenario.id]} and {path} have the same id {short(scenario.id, 60)}", err=True)
            # A mode that is asked for is left out where the file is written for the other one.
            for one in scenario.modes if mode is None else [mode] if mode in scenario.modes else []:
                verdict = run_scenario(scenario, one)
                ran, held = ran + 1, held + verdict.holds
                if not (quiet and verdict.holds):
                    click.echo(report(verdict) if as_json else line(verdict))
    return held, ran, unread


def _unreadable(path: Path, error: Exception, as_json: bool) -> None:
    why = " ".join(str(error).split())
    if as_json:
        click.echo(json.dumps({"file": str(path), "error": why}))
    else:
        click.echo(f"BAD  {why}")
