"""``fsm-agent bound``: the worst case of a run, before the first call."""

from __future__ import annotations

import click

from fsm_agent.cli.ask import limit_option, limits_named, tools_given, tools_named, tools_option
from fsm_agent.cli.exits import OK, SOME_FAILED
from fsm_agent.cli.machines import NAMES, machine_help, machine_of
from fsm_agent.core.limits import Limits
from fsm_agent.core.short_text import one_line


@click.command("bound", short_help="Say the most that a run can spend.")
@click.option("--machine", metavar="NAME", default="agent", show_default=True, help=machine_help(*NAMES))
@tools_option
@limit_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(machine: str, tools_name: str, limits: tuple[str, ...], as_json: bool) -> int:
    """Say the most that one run can spend: turns, calls, bodies, waits.

    It is computed from the machine's rows, the limits and the tools, before
    anything is called; each call may be repaired while it has attempts left.
    An agent given as the machine is taken with its own limits and tools.
    Exit codes: 0 all of it is bounded, 1 some is not.

    \b
    Examples:
      fsm-agent bound
      fsm-agent bound --limit max_turns=5 --limit max_tool_calls=none
    """
    import attrs

    from fsm_agent.core.bounds import worst_case
    from fsm_agent.core.checks import check_bounds, check_names, check_table
    from fsm_agent.host.tool_forms import toolset

    found = machine_of(machine, *NAMES)
    bounds = limits_named(found.limits or Limits(), limits)
    check_table(found.table)
    check_bounds(found.table, bounds)
    own = None if tools_given() else found.box
    box = toolset(tools_named(tools_name)) if own is None else own
    # A tool that is called and not counted would make the figures too low.
    check_names(found.table, bounds, (), box.names())
    worst = attrs.asdict(worst_case(found.table, bounds, box, repairs=None))
    per_tool = worst.pop("per_tool")
    if as_json:
        from fsm_agent.cli.terminal import write_line

        write_line({**worst, "per_tool": per_tool}, flush=True)
    else:
        for name, figure in {**worst, **{f"runs of {tool}": most for tool, most in per_tool.items()}}.items():
            click.echo(f"{one_line(name, 40):<32} {'unbounded' if figure is None else f'{figure:g}':>10}")
    return SOME_FAILED if None in worst.values() else OK
