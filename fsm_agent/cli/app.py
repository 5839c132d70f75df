"""The group of all commands, and the one place where what goes wrong in them becomes a line and an exit code."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Any

import click

from fsm_agent._version import __version__
from fsm_agent.cli import ask, bound, check, diagram, handle, report, scenario
from fsm_agent.cli.exits import INTERRUPTED, READER_LEFT, WRONG, discard_stdout, failed
from fsm_agent.core.errors import FsmAgentError
from fsm_agent.core.short_text import one_line


class _Group(click.Group):
    def make_context(self, *args: Any, **more: Any) -> click.Context:
        try:
            return super().make_context(*args, **more)
        except BrokenPipeError:
            # Help and version are written before any command begins.
            discard_stdout()
            raise click.exceptions.Exit(READER_LEFT) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except ModuleNotFoundError as error:
            if error.name is not None and error.name.partition(".")[0] in ("click", "rich"):
                raise
            return failed(f"{error}")
        except BrokenPipeError:
            discard_stdout()
            return READER_LEFT
        except KeyboardInterrupt:
            return failed("stopped by Ctrl-C", INTERRUPTED)
        except FsmAgentError as error:
            return failed(str(error))
        except OSError:
            raise
        except Exception as error:
            return failed(f"unexpected {type(error).__name__}: {one_line(error)}")


@click.group(
    cls=_Group,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    epilog="Exit codes: 0 all went well; 1 something failed; 2 wrong usage, or a file that cannot be read or written;"
    " 3 some line was no order; 130 stopped by Ctrl-C; 141 whoever read the answers has left.",
)
@click.version_option(__version__, prog_name="fsm-agent", message="%(prog)s %(version)s")
@click.pass_context
def commands(ctx: click.Context) -> int:
    """A tool-calling agent loop as a finite state machine that always ends.

    \b
    Try it:  fsm-agent handle --samples --table
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
    return WRONG


for _command in (ask.command, bound.command, handle.command, check.command, diagram.command, report.command, scenario.command):
    commands.add_command(_command)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    # A name of any language, or half a character, must not end a command on a terminal that cannot show it.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if sys.stdin is None:
        # Closed, it is as good as empty.
        sys.stdin = io.TextIOWrapper(io.BytesIO())
    if sys.stdout is None:
        return failed("there is no standard output to write to; open it, or send it to a file")
    try:
        code = commands.main(None if arguments is None else list(arguments), prog_name="fsm-agent", standalone_mode=False)
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else "fsm-agent"
        return failed(f"{error.format_message()} (see {path} --help)")
    except click.ClickException as error:
        return failed(error.format_message())
    except click.Abort:
        return failed("stopped by Ctrl-C", INTERRUPTED)
    except OSError as error:
        # Help is written before any command begins.
        discard_stdout()
        return failed(_os_words(error))
    return code if isinstance(code, int) else 0


def _os_words(error: OSError) -> str:
    what = error.strerror or type(error).__name__
    return f"{error.filename}: {what}" if error.filename is not None else f"cannot read or write: {what}"
