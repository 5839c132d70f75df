"""Importing the package: what comes with it, and what it leaves alone."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

PROBE = """
import json, sys, threading, warnings
before = set(sys.modules)
import {module}
import logging
loggers = [logging.getLogger()] + [l for l in logging.Logger.manager.loggerDict.values() if isinstance(l, logging.Logger)]
print(json.dumps({{
    "modules": sorted(set(sys.modules) - before),
    "filters": [repr(f) for f in warnings.filters],
    "threads": len(threading.enumerate()),
    "handlers": {{l.name: [repr(type(h)) for h in l.handlers] for l in loggers if l.handlers}},
    "levels": {{l.name: l.level for l in loggers if l.level and l.name != "root"}},
    "root": logging.getLogger().level,
    "hooks": [sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__, sys.gettrace() is None],
    "recursion": sys.getrecursionlimit(),
    "digits": sys.get_int_max_str_digits(),
}}), file=sys.__stdout__)
"""


@cache
def imported(module: str) -> dict[str, Any]:
    """What a fresh interpreter is like after importing a module, and what it wrote besides."""
    ran = subprocess.run(
        [sys.executable, "-c", PROBE.format(module=module)],
        env={"PYTHONPATH": ":".join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, check=True,
    )
    *said, last = ran.stdout.splitlines()
    seen: dict[str, Any] = json.loads(last)
    return {**seen, "said": said, "complained": ran.stderr}


OURS = ["fsm_agent", "fsm_agent.adapter", "fsm_agent.core.engine"]
each = pytest.mark.parametrize("module", OURS)


def tops(module: str) -> set[str]:
    return {name.split(".")[0] for name in imported(module)["modules"]}


@each
def test_nothing_foreign_comes_along_but_what_it_stands_on(module: str) -> None:
    foreign = tops(module) - set(sys.stdlib_module_names) - {"fsm_agent"}
    assert sorted(foreign - {"transitions", "six", "attr", "attrs"}) == []
    assert "transitions" in foreign
    assert [name for name in imported(module)["modules"] if name.startswith("transitions.extensions")] == []


@each
@pytest.mark.parametrize("unused", ["asyncio", "click", "rich", "jsonschema", "graphviz", "unittest"])
def test_nothing_is_loaded_before_it_is_used(module: str, unused: str) -> None:
    assert [name for name in imported(module)["modules"] if name.split(".")[0] == unused] == []


@each
def test_the_command_line_is_not_loaded_by_the_library(module: str) -> None:
    assert [name for name in imported(module)["modules"] if name.startswith(("fsm_agent.cli", "fsm_agent.__main__"))] == []


@each
def test_importing_says_nothing(module: str) -> None:
    assert (imported(module)["said"], imported(module)["complained"]) == ([], "")


@each
@pytest.mark.parametrize("kept", ["filters", "threads", "handlers", "levels", "root", "hooks", "recursion", "digits"])
def test_importing_leaves_the_interpreter_as_the_library_below_does(module: str, kept: str) -> None:
    assert imported(module)[kept] == imported("transitions")[kept]


def test_nothing_runs_beside_the_main_thread() -> None:
    assert imported("fsm_agent")["threads"] == 1
