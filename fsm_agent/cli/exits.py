"""How a command ends: its exit codes, and the one line on stderr that says why."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TextIO

OK, SOME_FAILED, WRONG, NO_ORDER, INTERRUPTED, READER_LEFT = 0, 1, 2, 3, 130, 141


def failed(why: str, code: int = WRONG) -> int:
    """Say in one line on stderr what went wrong; returns the exit code."""
    # What has no stderr is not told on stdout, among the answers.
    if sys.stderr is not None:
        with if_told():
            print(f"fsm-agent: {' '.join(why.split())}", file=sys.stderr, flush=True)
    return code


@contextlib.contextmanager
def if_told() -> Iterator[None]:
    """Around what is said on stderr: where nobody can be told, the answers and the exit code come all the same."""
    try:
        yield
    except OSError:
        _discard(sys.stderr)


def discard_stdout() -> None:
    """Send what is still to be written to stdout nowhere, so that the interpreter does not complain of it at exit."""
    _discard(sys.stdout)


def _discard(stream: TextIO) -> None:
    try:
        target = stream.fileno()
    except (OSError, ValueError, AttributeError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, target)
    os.close(nowhere)
