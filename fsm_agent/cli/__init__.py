"""The command line, one file a command. Importing it imports neither click nor rich."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fsm_agent.core.errors import MissingExtra


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command (default: that of this process) and return its exit code; never raises, never prints a traceback.

    0 all went well, 1 something failed, 2 wrong usage or what cannot be read or written, 3 some line was no order, 130
    stopped by Ctrl-C, 141 whoever read the answers has left.
    """
    try:
        from fsm_agent.cli.app import run

        return run(arguments)
    except ModuleNotFoundError as error:
        # Theirs as well as those that they need themselves: the extra brings them all.
        package = (error.name or "").partition(".")[0]
        print(f"fsm-agent: {MissingExtra(package, 'cli', 'the command line')}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("fsm-agent: stopped by Ctrl-C", file=sys.stderr)
        return 130
