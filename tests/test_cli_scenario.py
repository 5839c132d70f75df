"""``fsm-agent scenario``: one line each, and the exit code says whether all hold."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from fsm_agent.cli.app import run
from fsm_agent.core.agent_table import AGENT
from fsm_agent.scenario import reading

GOOD: dict[str, Any] = {
    "id": "good",
    "limits": {"*": None, "max_turns": 3, "max_steps": 50},
    "model": [{"final": "a\nb"}],
    "expect": {"status": "ok", "text": "a\nb", "model_turns": {"max": 1}},
}
BAD: dict[str, Any] = {**GOOD, "id": "bad", "expect": {"status": ["partial", "failed"]}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "good.json").write_text(json.dumps(GOOD))
    (tmp_path / "in" / "good.toml").write_text('id = "toml"\nmode = "async"\n[limits]\nmin_evidence = 0\n[[model]]\nfinal = "x"\n')
    return tmp_path


def test_all_that_hold_is_nought(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["scenario", str(folder)]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert [line.split(" expected ")[0] for line in lines] == ["ok good [sync]", "ok good [async]", "ok toml [async]"]
    assert lines[0] == (
        "ok good [sync] expected status ok, text 'a\\nb', model_turns at most 1; came status ok, text 'a\\nb', model_turns 1"
    )
    assert err == "3 of 3 hold\n"


def test_one_that_does_not_hold_is_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "bad.json").write_text(json.dumps(BAD))
    assert run(["scenario", str(folder), "--mode", "sync"]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "FAIL bad [sync] status: expected partial or failed, came ok"
    assert err == "1 of 2 hold\n"
    assert run(["scenario", "-q", str(folder)]) == 1
    out, err = capsys.readouterr()
    assert [line.split()[:2] for line in out.splitlines()] == [["FAIL", "bad"], ["FAIL", "bad"]]
    assert err == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [('{"tols": {}}', "unknown key 'tols'; did you mean 'tools'?"), ("{", "no JSON"), ("[]", "expected object")],
)
def test_a_file_that_is_no_scenario_is_two_and_the_rest_is_run(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    (folder / "odd.json").write_text(text)
    assert run(["scenario", str(folder)]) == 2
    out, err = capsys.readouterr()
    bad = [line for line in out.splitlines() if line.startswith("BAD ")]
    assert len(bad) == 1
    assert str(folder / "odd.json") in bad[0]
    assert said in bad[0]
    assert err == "3 of 3 hold; 1 could not be read\n"


def test_a_place_that_is_not_there_and_an_empty_folder_are_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["scenario", str(tmp_path), str(tmp_path / "none.json")]) == 2
    out = capsys.readouterr().out
    assert "the folder holds no scenario" in out
    assert "there is no such file or folder" in out
    assert run(["scenario"]) == 2


def test_without_what_measures_them_the_command_says_what_to_install(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reading._validator.cache_clear()
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    assert run(["scenario", str(folder)]) == 2
    assert capsys.readouterr().err == (
        "fsm-agent: a scenario file needs the package 'jsonschema': pip install \"fsm-agent[jsonschema]\"\n"
    )


def test_two_files_of_one_id_are_told_of_and_both_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "good2.json").write_text((folder / "good.json").read_text())
    assert run(["scenario", "-q", str(folder), str(folder / "good.json")]) == 0
    err = capsys.readouterr().err
    assert err == f"warning: {folder / 'good.json'} and {folder / 'good2.json'} have the same id 'good'\n"


def test_lines_of_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "bad.json").write_text(json.dumps(BAD))
    (folder / "odd.json").write_text("{")
    assert run(["scenario", "--json", str(folder)]) == 2
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    good = next(one for one in told if one.get("id") == "good" and one["mode"] == "sync")
    assert good == {
        "id": "good",
        "file": str(folder / "good.json"),
        "mode": "sync",
        "holds": True,
        "expected": {"status": "ok", "text": "a\nb", "model_turns": {"max": 1}},
        "came": {"status": "ok", "text": "a\nb", "model_turns": 1},
        "faults": [],
        "refusals": [],
    }
    bad = next(one for one in told if one.get("id") == "bad")
    assert (bad["holds"], bad["faults"]) == (False, ["status: expected partial or failed, came ok"])
    assert sum("error" in one for one in told) == 1


def test_what_json_cannot_hold_is_told_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    value = {"a": {"$float": "nan"}, "b": {"$int": "2**70"}, "c": {"$bytes": "aGk="}, "d": {"$repeat": ["x", 9999]}, "e": 1.5}
    tools = {"s": {"args": {}, "does": [{"return": value}]}}
    model = [{"calls": [{"id": "a", "tool": "s"}]}, {"final": "\ud835 x"}]
    document = {**GOOD, "tools": tools, "model": model, "expect": {"results": [{"call": "a", "value": value}]}}
    (tmp_path / "x.json").write_text(json.dumps(document))
    for how in ([], ["--json"]):
        assert run(["scenario", str(tmp_path), *how]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(json.loads(line)["holds"] for line in lines[2:])
    assert all(line.isascii() for line in lines[2:])
    assert len(lines) == 4


def test_the_edges_that_no_file_walked_are_told_when_asked_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["scenario", str(folder), "--edges"]) == 0
    err = capsys.readouterr().err.splitlines()
    assert err[:2] == ["3 of 3 hold", f"machine 'agent': 3 of {len(AGENT.rows)} edges walked"]
    never = [str(row) for row in AGENT.rows if row.outcome not in ("ready", "proposed", "passed")]
    assert err[2:] == [f"  never: {row}" for row in never]
