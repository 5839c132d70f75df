"""Importing the package: what comes with it, and what it leaves alone."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import fsm_agent

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


LOADING = ["fsm_agent.adapter", "fsm_agent.agent", "fsm_agent.desk", "fsm_agent.core.engine"]
each = pytest.mark.parametrize("module", ["fsm_agent", *LOADING])


def below(module: str) -> str:
    """What the module stands on: the package itself loads nothing before it is used."""
    return "sys" if module == "fsm_agent" else "transitions"


def tops(module: str) -> set[str]:
    return {name.split(".")[0] for name in imported(module)["modules"]}


@each
def test_nothing_foreign_comes_along_but_what_it_stands_on(module: str) -> None:
    foreign = tops(module) - set(sys.stdlib_module_names) - {"fsm_agent"}
    assert sorted(foreign - {"transitions", "six", "attr", "attrs"}) == []
    assert ("transitions" in foreign) is (module in LOADING)
    assert [name for name in imported(module)["modules"] if name.startswith("transitions.extensions")] == []


@each
@pytest.mark.parametrize("unused", ["click", "rich", "jsonschema", "graphviz", "unittest"])
def test_nothing_is_loaded_before_it_is_used(module: str, unused: str) -> None:
    assert [name for name in imported(module)["modules"] if name.split(".")[0] == unused] == []


@pytest.mark.parametrize("module", ["fsm_agent", "fsm_agent.core.engine"])
@pytest.mark.parametrize("world", ["asyncio", "socket", "subprocess"])
def test_neither_the_package_nor_its_core_loads_the_world(module: str, world: str) -> None:
    assert [name for name in imported(module)["modules"] if name.split(".")[0] == world] == []


@each
def test_the_command_line_is_not_loaded_by_the_library(module: str) -> None:
    assert [name for name in imported(module)["modules"] if name.startswith(("fsm_agent.cli", "fsm_agent.__main__"))] == []


@each
def test_importing_says_nothing(module: str) -> None:
    assert (imported(module)["said"], imported(module)["complained"]) == ([], "")


@each
@pytest.mark.parametrize("kept", ["filters", "threads", "handlers", "levels", "root", "hooks", "recursion", "digits"])
def test_importing_leaves_the_interpreter_as_the_library_below_does(module: str, kept: str) -> None:
    assert imported(module)[kept] == imported(below(module))[kept]


@each
def test_nothing_runs_beside_the_main_thread(module: str) -> None:
    assert imported(module)["threads"] == 1


# ---- names of the package


def test_every_name_of_the_package_is_found_where_it_lives() -> None:
    for name in fsm_agent.__all__:
        thing = getattr(fsm_agent, name)
        assert thing is getattr(fsm_agent, name)
        if name != "__version__":
            assert thing.__module__.startswith("fsm_agent.")
    assert sorted(set(fsm_agent.__all__) - set(dir(fsm_agent))) == []
    assert len(set(fsm_agent.__all__)) == len(fsm_agent.__all__)


def test_what_a_type_checker_sees_is_what_there_is() -> None:
    seen = {
        alias.asname or alias.name: node.module
        for node in ast.walk(ast.parse(Path(fsm_agent.__file__).read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fsm_agent")
        for alias in node.names
    }
    assert sorted(seen) == sorted(fsm_agent.__all__)
    for name, module in seen.items():
        assert getattr(importlib.import_module(module or ""), name) is getattr(fsm_agent, name)


@pytest.mark.parametrize("name", ["Agnet", "", "os", "import_module_", "\ud800"])
def test_a_name_that_the_package_lacks_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError):
        getattr(fsm_agent, name)
