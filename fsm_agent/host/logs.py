"""Where a function of the host's raised, told to the host's logs: a run keeps what it is called and says, and no frames."""

from __future__ import annotations

import logging
import traceback

_LOG = logging.getLogger("fsm_agent")


def log_raised(who: str, error: BaseException) -> None:
    """Say at DEBUG, under the logger ``fsm_agent``, in which frames somebody raised; the message may tell a secret and is left out."""
    if not _LOG.isEnabledFor(logging.DEBUG):
        return
    try:
        frames = "".join(traceback.format_tb(error.__traceback__))
        _LOG.debug("%s raised %s\n%s", who, type(error).__name__, frames.rstrip())
    except Exception:
        # An exception may raise where it is looked at, and a handler where it is told; neither is the run's failure.
        return
