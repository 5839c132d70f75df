"""The scenario files, each in threads and in tasks: reports of other agents' failures, and rows of behaviour written as runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsm_agent.testing import run_scenario, scenario_files

FOLDER = Path(__file__).parent / "scenarios"
REPORTS = Path(__file__).parent / "scenarios" / "README.md"


@pytest.mark.parametrize(("path", "mode"), scenario_files(FOLDER))
def test_what_a_scenario_expects_comes(path: Path, mode: str) -> None:
    run_scenario(path, mode)


def test_every_report_is_listed_with_its_file_or_test() -> None:
    listed = REPORTS.read_text(encoding="utf-8")
    named = sorted(FOLDER.glob("BR-*.json"))
    assert len(named) >= 60
    for path in named:
        assert path.name.removesuffix(".json")[:6] in listed
