"""``python -m fsm_agent`` is the command line."""

from __future__ import annotations

import sys

from fsm_agent.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
