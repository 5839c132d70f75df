"""The lab's report: its figures are those of the run that wrote it."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fsm_agent import adapter
from fsm_agent.core.plain import to_json
from fsm_agent.lab.report import markdown, measure, write

PARTS = ("arguments", "results", "memory", "repairs", "attempts", "naive")
CALLS = ("arguments", "results", "memory")


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    return measure()


@pytest.fixture
def lab() -> Iterator[None]:
    """The lab as it was, after a test has changed it."""
    tools, most, repairs = copy.copy(adapter.TOOLS), adapter.MAX_ATTEMPTS, adapter.REPAIRS
    yield
    adapter.TOOLS.clear()
    adapter.TOOLS.update(tools)
    adapter.MAX_ATTEMPTS, adapter.REPAIRS = most, repairs


def test_everything_comes_back_as_promised(report: dict[str, Any]) -> None:
    otherwise = [probe for part in PARTS for probe in report[part] if not probe["as_promised"]]

    assert otherwise == []
    assert report["as_promised"] == report["probes"] == sum(len(report[part]) for part in PARTS)


def test_the_written_figures_are_measured_again(report: dict[str, Any], tmp_path: Path) -> None:
    as_json, as_text = write(report, tmp_path / "made" / "for it")

    assert json.loads(as_json.read_text(encoding="utf-8")) == measure()
    assert as_text.read_text(encoding="utf-8") == markdown(measure())


def test_every_reason_of_the_contract_has_a_probe(report: dict[str, Any]) -> None:
    kinds = {":".join(probe["reason"].split(":")[:2]) for part in ("arguments", "results") for probe in report[part]}

    assert kinds == {
        "args:unknown_tool",
        *(f"args:{kind}" for kind in ("missing", "extra", "type", "allowed", "range")),
        *(f"result:{kind}" for kind in ("shape", "empty", "too_big", "range")),
        "raised:ConnectionError",
    }


def test_no_refused_argument_reached_a_body_and_every_refused_result_came_from_one(report: dict[str, Any]) -> None:
    assert {probe["body_ran"] for probe in report["arguments"]} == {False}
    assert {probe["body_ran"] for probe in report["results"]} == {True}


@pytest.mark.parametrize("part", ["arguments", "results"])
def test_a_probe_of_the_lab_s_own_tools_can_be_made_again_by_hand(report: dict[str, Any], part: str) -> None:
    known = {*adapter.TOOLS, "no_such_tool"}
    probes = [probe for probe in report[part] if probe["probe"]["tool"] in known]

    again = [to_json(adapter.call_tool(**{"name": p["probe"]["tool"], "args": p["probe"]["args"]})) for p in probes]

    assert again == [probe["came_back"] for probe in probes]
    assert again


def test_a_cache_hit_is_told_by_the_body_that_did_not_run(report: dict[str, Any]) -> None:
    hits = [probe["what"] for probe in report["memory"] if probe["came_back"]["ok"] and not probe["body_ran"]]

    assert hits == [
        "the same call is answered from memory",
        "so it is with its keys in another order",
        "a caller who changes the answer does not change the memory",
    ]


def test_each_repair_is_measured_by_the_reason_that_calls_for_it(report: dict[str, Any]) -> None:
    by_reason = {probe["reason"]: probe["answer"]["fixes"] for probe in report["repairs"]}

    assert {reason: by_reason[reason] for reason in adapter.REPAIRS} == {
        reason: [fix] for reason, fix in adapter.REPAIRS.items()
    }


def test_the_cap_is_that_in_force(report: dict[str, Any]) -> None:
    (probe,) = report["attempts"]

    assert probe["max_attempts"] == probe["answer"]["attempts"] == adapter.MAX_ATTEMPTS
    assert not probe["answer"]["ok"]


@pytest.mark.usefixtures("lab")
@pytest.mark.parametrize("most", [1, 2, 3, 4, 9])
def test_another_cap_is_measured_as_such(most: int) -> None:
    adapter.MAX_ATTEMPTS = most

    report = measure()
    (probe,) = report["attempts"]

    assert probe["answer"]["attempts"] == min(most, 4)
    assert report["as_promised"] == report["probes"]


def test_measuring_leaves_the_lab_as_it_was() -> None:
    key = adapter.cache_key("stock_lookup", {"sku": "A-1001", "region": "seoul", "limit": 2})
    adapter.CACHE.clear()
    before = copy.deepcopy((adapter.REPAIRS, adapter.STOCK, adapter.REGIONS))
    tools = {name: (entry, entry["fn"]) for name, entry in adapter.TOOLS.items()}

    measure()

    assert {name: (entry, entry["fn"]) for name, entry in adapter.TOOLS.items()} == tools
    assert before == (adapter.REPAIRS, adapter.STOCK, adapter.REGIONS)
    assert key not in adapter.CACHE


@pytest.mark.usefixtures("lab")
def test_a_contract_that_lets_everything_pass_is_found_out() -> None:
    loose: dict[str, Any] = {name: {} for name in adapter.TOOLS["stock_lookup"]["args"]}
    adapter.TOOLS["stock_lookup"] = {**adapter.TOOLS["stock_lookup"], "args": loose}

    report = measure()

    assert report["as_promised"] < report["probes"]
    assert "args:allowed:region" in {p["reason"] for p in report["arguments"] if not p["as_promised"]}
    assert "**no**" in markdown(report)


@pytest.mark.usefixtures("lab")
def test_a_repair_that_is_missing_is_found_out() -> None:
    adapter.REPAIRS = {}

    assert [p["reason"] for p in measure()["repairs"] if not p["as_promised"]] == [
        "args:allowed:region",
        "args:range:limit",
        "result:too_big",
        "two in a row",
    ]


def test_the_text_has_a_row_for_every_probe_in_a_table_that_holds_together(report: dict[str, Any]) -> None:
    text = markdown(report)
    tables = [table.splitlines() for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)]

    assert [len(table) - 2 for table in tables] == [len(report[part]) for part in PARTS]
    for table in tables:
        assert len({row.count("|") for row in table}) == 1
    assert f"{report['as_promised']} of {report['probes']} probes" in text
