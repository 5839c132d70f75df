"""The front door: each name it promises is there, said once in every place that names it."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

import fsm_agent


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


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = fsm_agent.no_such_name
