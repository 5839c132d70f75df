"""``fsm-agent ask`` and ``fsm-agent bound``: a question with the tools of a module, and the most that it can cost."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from model_server import ModelServer
from model_server import server as server
from model_speech import Said

from fsm_agent.cli.app import run

WORLD = '''
"""A shop."""

from fsm_agent import Decision, Table, ToolCall, Usage, tool
from fsm_agent.core.agent_table import AGENT
from fsm_agent.core.values import Judgement


@tool(effect="pure")
def price(item: str) -> int:
    """What an item costs."""
    return {"tea": 3}[item]


@tool(effect="at_most_once", approval=True)
def buy(item: str, pin: str = "") -> str:
    """Buy an item."""
    return f"bought {item}"


TOOLS = [price, buy]
FOR_BUYING = [buy]
NO_TOOLS = 7
SHOP = AGENT.allowing({"gather": {"price"}})


def prices(ask):
    if not ask.run.calls:
        return ToolCall("price", {"item": ask.run.request})
    return f"It costs {ask.run.last.value}." if ask.run.last.ok else f"\\x1b[31mNobody\\ud800 knows: {ask.run.last.error}"


class Buyer:
    """A model that buys what it is asked for, and was told how to."""

    def reply(self, request):
        if len(request.messages) == 1:
            return Decision(calls=(ToolCall("buy", {"item": request.instructions.splitlines()[0]}, id="b1"),), usage=Usage(input_tokens=5))
        return Decision(text=request.messages[-1].text, finish="stop")


def broken(ask):
    raise RuntimeError("\\x1b[31mno\\nmodel [/]")


def again(ask):
    return ToolCall("price", {"item": "tea"})


def program(ask):
    if ask.run.calls:
        return f"In all {ask.run.calls[0].value}."
    return ToolCall("run_program", {"program": "price(item='tea') * 2"})
'''
Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Ask:
    """Run a command where a module named `shop` is; its exit code, stdout and stderr."""
    (tmp_path / "shop.py").write_text(WORLD, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    monkeypatch.delitem(sys.modules, "shop", raising=False)

    def asked(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = run(arguments)
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return asked


def test_the_run_is_shown_and_the_answer_comes_with_its_stop_reason(ask: Ask) -> None:
    code, out, err = ask("ask", "tea", "--model", "shop:prices", "--tools", "shop:TOOLS")

    assert (code, out) == (0, "It costs 3.\n")
    assert err.splitlines() == [
        "normalize", "gather", "  turn 1: 1 call", '  > price(item="tea")', "  < price: 3", "gather", "  turn 2: answers", "verify",
        "final", "[ok: answered]",
    ]  # fmt: skip


def test_quietly_only_the_answer_and_its_reason_are_told(ask: Ask) -> None:
    assert ask("ask", "tea", "--model", "shop:prices", "--tools", "shop:price", "-q") == (0, "It costs 3.\n", "[ok: answered]\n")


def test_a_question_may_come_from_stdin_and_an_empty_one_is_refused(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("tea\n"))
    assert ask("ask", "-", "--model", "shop:prices", "--tools", "shop:TOOLS", "-q")[:2] == (0, "It costs 3.\n")
    code, _, err = ask("ask", "-", "--model", "shop:prices", "--tools", "shop:TOOLS", "-q")
    assert (code, err) == (1, "[failed: invalid_request]\n")


def test_a_question_that_is_no_text_is_refused(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9"), encoding="utf-8"))
    code, _, err = ask("ask", "-", "-q")
    assert (code, err) == (2, "fsm-agent: the question is no utf-8 text: unexpected end of data at byte 3 (see fsm-agent ask --help)\n")


def test_as_json_the_answer_is_one_object_with_all_that_an_answer_has(ask: Ask) -> None:
    code, out, _ = ask("ask", "tea", "--model", "shop:again", "--tools", "shop:TOOLS", "--limit", "max_same_call=1", "--json", "-q")

    assert code == 1
    answer = json.loads(out)
    assert (answer["status"], answer["stop_reason"]) == ("partial", "duplicate_call")
    assert "max_same_call is 1" in answer["stop"]
    assert answer["evidence"] == [{"call": "call-1", "tool": "price", "value": 3}]
    assert (answer["usage"]["tool_calls"], answer["path"]) == (1, ["normalize", "gather", "final"])
    assert set(answer) == {
        "status", "text", "stop_reason", "stop", "evidence", "assumptions", "unknowns", "next_questions", "citations", "pending", "usage",
        "path",
    }  # fmt: skip


def test_a_model_that_fails_is_shown_in_one_line_that_no_terminal_obeys(ask: Ask) -> None:
    code, _, err = ask("ask", "tea", "--model", "shop:broken", "--tools", "shop:TOOLS")

    assert (code, "\x1b" in err) == (1, False)
    assert r"  failed: RuntimeError: \x1b[31mno\nmodel [/]" in err.splitlines()


def test_a_failed_call_and_odd_text_are_shown_without_a_traceback(ask: Ask) -> None:
    code, out, err = ask("ask", "milk", "--model", "shop:prices", "--tools", "shop:TOOLS", "--limit", "min_evidence=0")

    assert code == 0
    assert out == "\\x1b[31mNobody\\ud800 knows: raised:KeyError\n"
    assert "  < price: raised:KeyError 'milk'" in err.splitlines()


@pytest.mark.parametrize(("why", "line"), [("down", "  failed: RuntimeError: down"), ("", "  failed: RuntimeError")])
def test_a_model_that_fails_is_named_as_what_failed(ask: Ask, monkeypatch: pytest.MonkeyPatch, why: str, line: str) -> None:
    assert ask("ask", "tea", "--model", "shop:prices", "--tools", "shop:TOOLS")[0] == 0

    def fails(_: Any) -> Any:
        raise RuntimeError(why)

    monkeypatch.setattr(sys.modules["shop"], "prices", fails)
    code, _, err = ask("ask", "tea", "--model", "shop:prices", "--tools", "shop:TOOLS")

    assert (code, err.splitlines()) == (1, ["normalize", "gather", line, "final", "[failed: model_error]"])


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [((), 1, "[paused]"), (("--yes",), 0, "[ok: answered]")],
    ids=["nobody says yes", "yes to all"],
)
def test_a_call_that_needs_a_person_waits_unless_all_are_approved(ask: Ask, how: tuple[str, ...], code: int, said: str) -> None:
    whole = ask("ask", "please", "--model", "shop:Buyer", "--tools", "shop:FOR_BUYING", "--instructions", "tea", *how)

    assert (whole[0], whole[2].splitlines()[-1]) == (code, said)
    assert ("bought tea" in whole[1]) is (code == 0)
    paused = json.loads(ask("ask", "x", "--model", "shop:Buyer", "--tools", "shop:FOR_BUYING", "--instructions", "tea", "--json")[1])
    assert paused["pending"] == [{"call": "b1", "kind": "approval", "tool": "buy", "args": {"item": "tea"}}]


@pytest.mark.parametrize(("word", "ran"), [("y\n", True), ("n\n", False)])
def test_on_a_terminal_a_person_is_asked(ask: Ask, monkeypatch: pytest.MonkeyPatch, word: str, ran: bool) -> None:
    terminal = io.StringIO(word)
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdin", terminal)

    buying = ["--model", "shop:Buyer", "--tools", "shop:FOR_BUYING", "--instructions", "tea"]
    code, out, err = ask("ask", "please", *buying, "--limit", "min_evidence=0")

    assert "Let buy run with {'item': 'tea'}?" in err
    assert (code, "bought tea" in out, "denied:no" in out) == (0, ran, not ran)


@pytest.mark.parametrize("terminal", [True, False], ids=["the person leaves", "no terminal"])
def test_where_nobody_approves_the_answer_waits_and_what_would_approve_is_said(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    stdin = io.StringIO("")
    stdin.isatty = lambda: terminal  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdin", stdin)

    code, out, err = ask("ask", "please", "--model", "shop:Buyer", "--tools", "shop:FOR_BUYING", "--instructions", "tea")

    assert (code, out) == (1, "Paused: waits for buy (b1, approval).\n")
    assert err.splitlines()[-2:] == ["fsm-agent: nobody is there to approve buy; --yes approves every call", "[paused]"]


def test_ctrl_c_at_the_question_stops_the_command(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> str:
        raise KeyboardInterrupt

    stdin = io.StringIO("")
    stdin.isatty = lambda: True  # type: ignore[method-assign]
    stdin.readline = interrupted  # type: ignore[method-assign,assignment]
    monkeypatch.setattr(sys, "stdin", stdin)

    code, _, err = ask("ask", "please", "--model", "shop:Buyer", "--tools", "shop:FOR_BUYING", "--instructions", "tea")

    assert (code, err.splitlines()[-1].rpartition("fsm-agent: ")[2]) == (130, "stopped by Ctrl-C")


def test_a_machine_of_ones_own_may_be_named(ask: Ask) -> None:
    code, _, err = ask("ask", "x", "--model", "shop:Buyer", "--tools", "shop:TOOLS", "--instructions", "tea", "--machine", "shop:SHOP")

    assert code == 1
    assert "  < buy: refused:not_allowed tools allowed in state gather: price" in err.splitlines()


@pytest.mark.parametrize("kind", ["openai", "responses", "anthropic"])
def test_a_provider_is_named_with_its_model_and_where_it_listens(
    ask: Ask, server: ModelServer, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "none")
    server.say(Said(calls=(("c1", "price", '{"item": "tea"}'),)), Said(text="Three."))
    url = server.url if kind == "anthropic" else f"{server.url}/v1"

    code, out, err = ask("ask", "tea?", "--model", f"{kind}:tiny", "--base-url", url, "--tools", "shop:TOOLS")

    assert (code, out) == (0, "Three.\n"), err
    assert "  < price: 3" in err.splitlines()
    assert {body["model"] for body in server.bodies} == {"tiny"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model", "nobody"], "there is no model 'nobody'; take offline, openai:NAME"),
        (["--model", "shop:NO_TOOLS"], "a model has a method reply"),
        (["--model", "shop:prices", "--tools", "shop:nothing"], "no attribute 'nothing'"),
        (["--model", "shop:prices", "--tools", "shop:NO_TOOLS"], "tool"),
        (["--model", "shop:prices", "--limit", "max_turn=1"], "write NAME=FIGURE; did you mean 'max_turns'? the limits are max_steps"),
        (["--model", "shop:prices", "--limit", "max_turns=many"], "'many' is no number"),
        (["--model", "shop:prices", "--limit", "max_steps=none", "--limit", "max_turns=none"], "no limit in force bounds the cycle"),
        (["--model", "shop:prices", "--machine", "nowhere"], "nowhere"),
    ],
)
def test_what_cannot_be_asked_is_one_line_that_says_what_would_do(ask: Ask, arguments: list[str], said: str) -> None:
    code, out, err = ask("ask", "tea", *arguments)

    assert (code, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1


def test_programs_of_the_model_are_run_where_that_is_asked_for(ask: Ask) -> None:
    code, out, _ = ask("ask", "two teas", "--model", "shop:program", "--tools", "shop:TOOLS", "--code-mode", "-q")

    assert (code, out) == (0, "In all 6.\n")


def test_the_most_that_a_run_can_spend_is_told_before_anything_is_called(ask: Ask) -> None:
    limits = [part for one in ("max_turns=4", "max_same_tool_calls=5", "deadline_s=9.5") for part in ("--limit", one)]
    code, out, _ = ask("bound", "--tools", "shop:TOOLS", *limits)

    told = dict(line.rsplit(maxsplit=1) for line in out.splitlines())
    assert code == 0
    assert told == {
        "model_turns": "4", "tool_calls": "20", "tool_runs": "10", "repair_rounds": "14", "verify_rounds": "3", "wait_s": "9.5",
        "seconds": "9.5", "runs of price": "5", "runs of buy": "5",
    }  # fmt: skip
    figures: dict[str, Any] = json.loads(ask("bound", "--tools", "shop:TOOLS", "--limit", "max_turns=4", "--json")[1])
    assert (figures["model_turns"], figures["per_tool"]) == (4, {"price": 6, "buy": 6})


def test_what_is_unbounded_is_said_to_be_and_the_exit_code_tells(ask: Ask) -> None:
    code, out, _ = ask("bound", "--tools", "shop:price", "--limit", "deadline_s=none", "--limit", "max_wait_s=none")

    assert code == 1
    assert [line.split() for line in out.splitlines() if "unbounded" in line] == [["wait_s", "unbounded"], ["seconds", "unbounded"]]
    assert ask("bound", "--machine", "nowhere")[0] == 2


def test_limits_under_which_no_agent_would_be_built_have_no_worst_case(ask: Ask) -> None:
    code, out, err = ask("bound", "--limit", "max_steps=none", "--limit", "max_turns=none", "--limit", "deadline_s=none")
    assert (code, out) == (2, "")
    assert "no limit in force bounds the cycle gather -> gather; set one of max_steps, max_turns" in err
