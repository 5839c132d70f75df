"""What a command line names as ``module:attribute``, and whatever its module does when it is read."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fsm_agent.core.errors import BuildError, FsmAgentError
from fsm_agent.core.short_text import one_line


def attribute_named(name: str) -> Any:
    """What stands under ``module:attribute``; raises BuildError where it cannot be had."""
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise BuildError(f"{name!r} names nothing; write module:attribute")
    # A script installed elsewhere does not see the modules of the directory it is called in.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    with reading(f"{name!r}: importing {module_name!r} failed"):
        found: Any = importlib.import_module(module_name)
    with reading(repr(name)):
        for part in path.split("."):
            found = getattr(found, part)
    return found


@contextmanager
def reading(where: str) -> Iterator[None]:
    """Let what a user's object raises, a module that exits too, be a BuildError that says where."""
    try:
        yield
    except FsmAgentError:
        raise
    except (Exception, SystemExit) as error:
        raise BuildError(f"{where}: {type(error).__name__}: {one_line(error)}") from error
