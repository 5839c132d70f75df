"""``fsm-agent check``: the proofs of a machine, one line each."""

from __future__ import annotations

import textwrap

import click

from fsm_agent.cli.exits import OK, SOME_FAILED
from fsm_agent.cli.machines import NAMES, machine_help, machine_of
from fsm_agent.core.errors import TableError
from fsm_agent.core.short_text import one_line


@click.command("check", short_help="Check that every run of a machine can end.")
@click.option("--machine", metavar="NAME", default="agent", show_default=True, help=machine_help(*NAMES))
def command(machine: str) -> int:
    """Check a machine: that every run of it can end, and every row is of use.

    One line a check; the first that fails is explained, with the mend, and
    those that rely on it are not made. Exit codes: 0 all hold, 1 one fails.

    \b
    Examples:
      fsm-agent check
      fsm-agent check --machine my_package.tables:REFUNDS
    """
    from fsm_agent.core.checks import CHECKS, check_bounds
    from fsm_agent.core.limits import Limits

    found = machine_of(machine, *NAMES)
    table, limits = found.table, found.limits or Limits()
    click.echo(f"{one_line(table.name, 40)}: {len(table.states)} states, {len(table.rows)} rows, machine hash {table.hash()}")
    checks = [*CHECKS, ("every cycle is bounded by a limit in force", lambda table: check_bounds(table, limits))]
    failed = False
    for sentence, check in checks:
        if failed:
            click.echo(f"--    {sentence}")
            continue
        try:
            check(table)
        except TableError as error:
            failed = True
            click.echo(f"FAIL  {sentence}")
            click.echo(textwrap.fill(one_line(error, 2000), 80, initial_indent=" " * 6, subsequent_indent=" " * 6))
        else:
            click.echo(f"ok    {sentence}")
    return SOME_FAILED if failed else OK
