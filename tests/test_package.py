"""The front door: each name it promises is there, said once in every place that names it."""

from __future__ import annotations

import ast
import inspect
import re
from configparser import ConfigParser
from importlib import import_module
from pathlib import Path

import pytest

import fsm_agent

ROOT = Path(__file__).parent.parent
SETUP = ConfigParser()
SETUP.read(ROOT / "setup.cfg", encoding="utf-8")
EXTRAS = {name: set(text.split()) for name, text in SETUP["options.extras_require"].items()}


@pytest.mark.parametrize("name", fsm_agent.__all__)
def test_a_promised_name_is_there(name: str) -> None:
    assert getattr(fsm_agent, name) is not None
    assert name in dir(fsm_agent)


def test_the_names_for_type_checkers_are_those_that_are_loaded() -> None:
    tree = ast.parse(Path(fsm_agent.__file__).read_text(encoding="utf-8"))
    checked = next(node for node in tree.body if isinstance(node, ast.If))
    homes = {
        alias.name: node.module for node in checked.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }

    assert homes == fsm_agent._HOME_OF
    assert sorted(fsm_agent.__all__) == sorted([*homes, "__version__"])


def test_a_name_is_the_one_of_its_module() -> None:
    for name, home in fsm_agent._HOME_OF.items():
        assert getattr(fsm_agent, name) is getattr(import_module(home), name)


def test_each_name_is_listed_once_also_when_it_has_been_used() -> None:
    assert fsm_agent.Agent is not None
    assert len(dir(fsm_agent)) == len(set(dir(fsm_agent)))


@pytest.mark.parametrize("error", ["CannotDecide", "CannotResume", "RunBusy"])
def test_what_a_host_catches_while_it_serves_is_the_package_s_own(error: str) -> None:
    assert issubclass(getattr(fsm_agent, error), fsm_agent.RunError)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = fsm_agent.no_such_name


def test_it_stands_on_two_libraries_and_every_other_one_is_an_extra() -> None:
    needed = {re.split("[<>=]", line)[0] for line in SETUP["options"]["install_requires"].split()}
    single = {name: packages for name, packages in EXTRAS.items() if name not in ("all", "test")}

    assert needed == {"transitions", "attrs"}
    assert EXTRAS["all"] == set().union(*single.values())
    assert EXTRAS["all"] <= EXTRAS["test"]


def test_the_readme_names_every_extra_and_no_other() -> None:
    told = re.search(r"^Extras: (.*?)\n\n", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)

    assert told is not None
    names = re.findall(r"`(.+?)`", re.sub(r"\(.*?\)", "", told.group(1), flags=re.DOTALL))
    assert sorted(names) == sorted(EXTRAS.keys() - {"test"})


def test_what_the_package_needs_beside_its_modules_travels_with_it() -> None:
    package = Path(fsm_agent.__file__).parent

    patterns = SETUP["options.package_data"]["fsm_agent"].split()
    assert [pattern for pattern in patterns if not list(package.glob(pattern))] == []
    suffixes = {pattern.rpartition(".")[2] for pattern in patterns}
    other = {path.suffix[1:] for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts} - {"py"}
    assert other == suffixes
    assert (ROOT / "LICENSE").read_text(encoding="utf-8").startswith("MIT License")


MADE_BY_USERS = ["Agent", "Limits", "Policy", "Prompts", "Setup", "TaskPolicy", "Tool", "ToolCall", "ToolContext", "Verdict"]


@pytest.mark.parametrize("name", MADE_BY_USERS)
def test_each_parameter_of_what_users_make_is_told_of_in_its_documentation(name: str) -> None:
    told, kind = inspect.getdoc(getattr(fsm_agent, name)) or "", getattr(fsm_agent, name)

    parameters = [one for one in inspect.signature(kind).parameters if not re.search(rf"\b{one}\b", told)]
    assert parameters == []
