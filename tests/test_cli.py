"""The command line, driven as its users drive it: in a process of its own, on pipes and on terminals."""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import IO, Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab_world import sample_orders

import fsm_agent.__main__
from fsm_agent import Agent, __version__, adapter, diagrams
from fsm_agent.cli import app, main
from fsm_agent.cli.lines import Line, read_lines
from fsm_agent.cli.machines import breaker_table
from fsm_agent.core.agent_table import AGENT
from fsm_agent.core.checks import CHECKS
from fsm_agent.core.limits import Limits
from fsm_agent.core.plain import dumps, from_json
from fsm_agent.core.table import Row, State, Table
from fsm_agent.core.tools import Outcome, Retry
from fsm_agent.core.values import Verdict
from fsm_agent.lab.report import measure
from fsm_agent.lab.tables import DESK, NAIVE

ROOT = Path(__file__).parents[1]
GOOD = {"sku": "A-1001", "region": "seoul", "limit": 2}
GOOD_LINE = json.dumps(GOOD)
KEYS = ["ok", "answer", "rows", "errors", "fixes", "attempts", "calls", "tool_runs"]
MODULE = [sys.executable, "-m", "fsm_agent"]
# Written as most users have it: Python holds back what it writes to a pipe.
ENV = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    adapter.CACHE.clear()
    yield
    adapter.CACHE.clear()


@pytest.fixture
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


@attrs.frozen
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def answers(self) -> list[Any]:
        return [json.loads(line, parse_constant=refuse_constant) for line in self.out.splitlines()]


def refuse_constant(name: str) -> None:
    raise AssertionError(f"{name} is no strict JSON")


def run(*arguments: str, stdin: bytes = b"", **environment: str) -> Done:
    """Run a command in a process of its own."""
    env = {**ENV, **environment}
    done = subprocess.run([*MODULE, *arguments], input=stdin, capture_output=True, cwd=ROOT, env=env, check=False, timeout=60)
    assert b"Traceback" not in done.stderr
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture
def call(capsysbinary: pytest.CaptureFixture[bytes]) -> Any:
    """Run a command in this process, which is faster."""

    def called(*arguments: str) -> Done:
        capsysbinary.readouterr()
        code = main(arguments)
        out, err = capsysbinary.readouterr()
        assert b"Traceback" not in err
        return Done(code, out.decode(), err.decode())

    return called


@pytest.fixture
def orders(tmp_path: Path) -> Any:
    """Write bytes to a file and return its name."""

    def written(content: bytes) -> str:
        path = tmp_path / "orders.jsonl"
        path.write_bytes(content)
        return str(path)

    return written


# ---- handle: answers


def test_the_answers_of_the_samples_are_those_of_the_adapter() -> None:
    done = run("handle", "--samples")

    expected = [adapter.handle(order) for order in sample_orders()]
    assert [{key: from_json(a[key]) for key in KEYS} for a in done.answers] == expected


def test_samples_that_fail_on_purpose_are_no_failure_of_the_command(call: Any, orders: Any) -> None:
    samples = files("fsm_agent.lab").joinpath("orders.jsonl").read_bytes()

    assert call("handle", "--samples", "-q").code == 0
    assert call("handle", orders(samples), "-q").code == 3


@pytest.mark.parametrize(
    ("order", "code"),
    [
        (GOOD, 0),
        ({**GOOD, "region": "mars", "limit": 9}, 0),
        ({**GOOD, "region": "jeju"}, 1),
        ({}, 1),
        ({**GOOD, "prefer": "nothing"}, 1),
        ([1], 3),
        ("text", 3),
        (None, 3),
        (7, 3),
    ],
)
def test_one_order_gets_one_answer_and_an_exit_code(call: Any, order: Any, code: int) -> None:
    done = call("handle", "--order", json.dumps(order), "-q")

    (answer,) = done.answers
    adapter.CACHE.clear()
    assert {key: answer[key] for key in KEYS} == adapter.handle(order)
    assert (answer.get("line"), "error" in answer) == ((1, True) if code == 3 else (None, False))
    assert done.code == code
    assert (done.err == "") is (code != 3)


BAD = {
    b"{": "Expecting property name",
    b"{bad}": "at column 2",
    b"{} {}": "Extra data at column 4",
    b'{"a": NaN}': "NaN is no JSON number",
    b'{"a": -Infinity}': "-Infinity is no JSON number",
    b'{"a": 1e999}': "the number 1e999 is too large",
    b'{"a": ' + b"9" * 5000 + b"}": "a number of 5000 digits is too long",
    b'{"a": 1, "a": 2}': "the key 'a' stands twice",
    b'{"a": "\x01"}': "Invalid control character",
    b'{"sku": "\xff"}': "byte 0xff at position 9 is not UTF-8",
    b"\xff\xfe{\x00": "it looks like UTF-16, save it as UTF-8",
    b"[" * 100_000: "it nests too deep",
    b'{"a":' * 100_000: "it nests too deep",
    b"[1]": "no order: expected an object such as {\"sku\": ...}, got [1]",
    b'"\\u001b[31m"': 'got "\\u001b[31m"',
}


@pytest.mark.parametrize(("line", "why"), BAD.items(), ids=[*map(str, range(len(BAD)))])
def test_a_bad_line_is_told_and_answered_and_the_rest_goes_on(call: Any, orders: Any, line: bytes, why: str) -> None:
    done = call("handle", orders(b"\n".join([GOOD_LINE.encode(), b"", line, GOOD_LINE.encode(), b""])), "-q")

    first, bad, last = done.answers
    assert (first["ok"], bad["ok"], last["ok"]) == (True, False, True)
    assert (first["tool_runs"], last["tool_runs"]) == (1, 0)
    assert (bad["line"], why in bad["error"], [*bad][:8]) == (3, True, KEYS)
    assert done.err == f"fsm-agent: line 3: {bad['error']}\n"
    assert done.code == 3


CONTENTS = {
    "lines": f"{GOOD_LINE}\n{GOOD_LINE}\n",
    "crlf": f"{GOOD_LINE}\r\n{GOOD_LINE}\r\n",
    "no last line end": f"{GOOD_LINE}\n{GOOD_LINE}",
    "byte order mark": f"\ufeff{GOOD_LINE}\n{GOOD_LINE}\n",
    "blank lines": f"\n  \n{GOOD_LINE}\n\t\n\r\n{GOOD_LINE}\n\n",
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_a_file_is_read_whatever_its_line_ends(call: Any, orders: Any, content: str) -> None:
    done = call("handle", orders(content.encode()), "-q")

    assert [answer["ok"] for answer in done.answers] == [True, True]
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize("arguments", [["-"], []], ids=["-", "nothing"])
def test_orders_come_from_stdin(arguments: list[str]) -> None:
    done = run("handle", "-q", *arguments, stdin=CONTENTS["byte order mark"].encode())

    assert [answer["tool_runs"] for answer in done.answers] == [1, 0]
    assert done.code == 0


def test_an_empty_input_is_no_error(call: Any, orders: Any) -> None:
    assert call("handle", orders(b""), "-q") == Done(0, "", "")


def test_an_order_may_be_spread_over_lines(call: Any) -> None:
    assert call("handle", "--order", json.dumps(GOOD, indent=2), "-q").answers[0]["ok"]


def test_a_line_of_ten_megabytes_is_handled(call: Any, orders: Any) -> None:
    long = json.dumps({**GOOD, "sku": "x" * 10_000_000})

    done = call("handle", orders(f"{long}\n{GOOD_LINE}\n".encode()), "-q")

    assert [answer["errors"] for answer in done.answers] == [["result:empty"], []]


@pytest.mark.parametrize(
    "sku",
    ["\ud800", "\x1b[31mred", "[bold]x[/bold]", "\u202e", 10**300, 10**4000, -0.0, 1e308, {"$int": "0x1"}, {"$gt": ""}, [[[]]]],
    ids=ascii,
)
@pytest.mark.parametrize("options", [[], ["--naive"], ["--trace"], ["--table"], ["--naive", "--table", "--trace"]])
def test_odd_values_are_answered_in_strict_json_or_shown(call: Any, sku: Any, options: list[str]) -> None:
    done = call("handle", "--order", json.dumps({**GOOD, "sku": sku}), *options)

    assert done.code == 1
    assert "\x1b" not in done.out + done.err
    if "--table" not in options:
        (answer,) = done.answers
        told = answer["repaired"] if "--naive" in options else answer
        assert from_json(told["calls"][0]["args"]["sku"]) == sku


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


@pytest.mark.parametrize("depth", [100, 239, 300, 900])
def test_what_nests_deep_is_answered_all_the_same(call: Any, depth: int) -> None:
    (answer,) = call("handle", "--order", f'{{"sku": {nested(depth)}, "region": "seoul", "limit": 1}}', "-q").answers

    assert answer["errors"] in (["args:type:sku"], ["line:no_json"])


@settings(max_examples=30)
@given(st.lists(st.one_of(st.binary(max_size=40), st.text(max_size=20).map(str.encode), st.just(GOOD_LINE.encode())), max_size=8))
def test_any_bytes_give_one_strict_answer_a_line(lines: list[bytes]) -> None:
    content = b"\n".join(lines)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "orders.jsonl")
        path.write_bytes(content)
        raw = io.BytesIO()
        out = io.TextIOWrapper(raw, write_through=True)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            code = main(["handle", str(path), "-q"])
    answers = Done(code, raw.getvalue().decode(), "").answers

    rest = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    assert len(answers) == sum(bool(line.strip()) for line in rest)
    assert code == (3 if any("error" in answer for answer in answers) else int(not all(answer["ok"] for answer in answers)))


# ---- handle: reading as it comes


class Counted(io.BytesIO):
    """A stream that knows how many lines were asked of it."""

    asked = 0

    def readline(self, size: int | None = -1, /) -> bytes:
        self.asked += 1
        return super().readline(size)


def test_lines_are_read_one_by_one() -> None:
    stream = Counted(b'{"a": 1}\n' * 100)

    lines = read_lines(stream)

    assert [next(lines).number, stream.asked] == [1, 1]
    assert [next(lines).number, stream.asked] == [2, 2]


@pytest.mark.parametrize("end", [b"\n", b""])
def test_a_line_that_is_too_long_is_told_and_skipped_without_being_held(end: bytes) -> None:
    stream: IO[bytes] = io.BytesIO(b"{" + b"x" * 1000 + end + (b'{"a": 1}' if end else b""))

    first, *rest = read_lines(stream, 100)

    assert first == Line(number=1, size=1001 + len(end), error="the line is longer than 100 bytes")
    assert [line.order for line in rest] == ([{"a": 1}] if end else [])


@pytest.mark.parametrize("room", [0, 1, 2])
def test_a_line_of_just_the_longest_length_is_read(room: int) -> None:
    (line,) = read_lines(io.BytesIO(b'{"a": 1}'), 8 + room)

    assert line.order == {"a": 1}


@pytest.fixture
def waiting() -> Iterator[subprocess.Popen[bytes]]:
    """A command that waits for orders on stdin."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [*MODULE, "handle", "-"], stdin=pipe, stdout=pipe, stderr=pipe, cwd=ROOT, env=ENV, preexec_fn=_hear_ctrl_c
    )
    with process:
        yield process
        process.kill()


def _hear_ctrl_c() -> None:
    # Whoever runs the tests in the background may have them, and their children, ignore it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def ask(process: subprocess.Popen[bytes], line: str) -> Any:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{line}\n".encode())
    process.stdin.flush()
    assert select.select([process.stdout], [], [], 30)[0], "no answer came"
    return json.loads(process.stdout.readline())


def test_an_answer_comes_before_the_next_order_is_given(waiting: subprocess.Popen[bytes]) -> None:
    assert [ask(waiting, GOOD_LINE)["tool_runs"], ask(waiting, GOOD_LINE)["tool_runs"], ask(waiting, "{}")["ok"]] == [1, 0, False]


def test_ctrl_c_ends_in_one_line_with_what_was_handled_already_out(waiting: subprocess.Popen[bytes]) -> None:
    assert ask(waiting, GOOD_LINE)["ok"]

    waiting.send_signal(signal.SIGINT)
    out, err = waiting.communicate(timeout=30)

    assert (out, err) == (b"", b"fsm-agent: stopped by Ctrl-C; 1 orders were handled\n")
    assert waiting.returncode == 130


def test_a_reader_who_leaves_ends_the_command_quietly(tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"
    path.write_text(f"{GOOD_LINE}\n" * 2000)
    process = subprocess.Popen([*MODULE, "handle", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, env=ENV)
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()

    assert (process.returncode, err) == (141, b"")


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["handle", "--help"]])
def test_a_reader_who_left_before_the_help_was_written_is_told_apart(arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*MODULE, *arguments], stdout=write, stderr=subprocess.PIPE, cwd=ROOT, env=ENV, check=False)
    os.close(write)

    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(("arguments", "code"), [(["handle"], 0), (["handle", "-"], 0), (["ask", "-"], 1)])
def test_a_closed_input_is_an_empty_one(arguments: list[str], code: int, capfd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)

    assert main(arguments) == code
    assert "unexpected" not in capfd.readouterr().err


def test_what_went_wrong_is_never_told_among_the_answers(capfd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)

    assert main(["nothing"]) == 2
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no device that is always full")
def test_where_nobody_can_be_told_the_code_still_tells() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*MODULE, "nothing"], stdout=subprocess.PIPE, stderr=full, cwd=ROOT, env=ENV, check=False)

    assert (done.returncode, done.stdout) == (2, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no device that is always full")
@pytest.mark.parametrize("command", [["handle", "--samples", "--trace"], ["handle", "--samples"]])
def test_notes_that_cannot_be_written_keep_no_answer_back(command: list[str]) -> None:
    told = subprocess.run([*MODULE, *command], capture_output=True, cwd=ROOT, env=ENV, check=False)
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*MODULE, *command], stdout=subprocess.PIPE, stderr=full, cwd=ROOT, env=ENV, check=False)

    assert told.stderr
    assert (done.returncode, done.stdout) == (told.returncode, told.stdout)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no device that is always full")
def test_answers_that_cannot_be_written_are_one_line() -> None:
    with open("/dev/full", "wb") as full:
        command = [*MODULE, "handle", "--samples", "-q"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, cwd=ROOT, env=ENV, check=False)

    assert done.returncode == 2
    assert done.stderr.decode().splitlines()[-1] == "fsm-agent: cannot read or write: No space left on device"


# ---- handle: naive, trace, table, summary


def test_naive_stands_beside_repaired_for_each_order(call: Any) -> None:
    done = call("handle", "--samples", "--naive", "-q")

    pairs = [answer for answer in done.answers if "line" not in answer]
    good = [order for order in sample_orders() if isinstance(order, dict)]
    assert [from_json(pair["order"]) for pair in pairs] == good
    for order, pair in zip(good, pairs, strict=True):
        assert [*pair["naive"]] == [*KEYS, "path"]
        assert pair["naive"]["fixes"] == []
        assert pair["naive"]["errors"] == pair["repaired"]["errors"][:1]
        assert pair["naive"]["path"] == ["pick", "fetch", "reply" if pair["naive"]["ok"] else "giveup"], order
    assert [answer["line"] for answer in done.answers if "line" in answer] == [23, 24]


def test_neither_of_the_two_answers_from_the_memory_of_the_other(call: Any) -> None:
    (pair,) = call("handle", "--order", GOOD_LINE, "--naive", "-q").answers

    assert (pair["naive"]["tool_runs"], pair["repaired"]["tool_runs"]) == (1, 1)


def test_the_trace_is_the_path_with_its_calls_and_reasons(call: Any) -> None:
    done = call("handle", "--order", json.dumps({**GOOD, "region": "mars", "prefer": "legacy_stock"}), "--trace", "-q")

    assert done.err.splitlines() == [
        "line 1",
        "  pick",
        "  fetch   legacy_stock(sku='A-1001', region='mars', limit=2)",
        "          refused: args:allowed:region",
        "  repair  changed: region",
        "  fetch   legacy_stock(sku='A-1001', region='seoul', limit=2)",
        "          ran: result:too_big",
        "  repair  changed: tool",
        "  fetch   stock_lookup(sku='A-1001', region='seoul', limit=2)",
        "          ran: ok",
        "  reply   answered",
    ]


def test_the_trace_tells_memory_and_what_was_no_order(call: Any, orders: Any) -> None:
    done = call("handle", orders(f"{GOOD_LINE}\n{GOOD_LINE}\n[1]\n".encode()), "--trace", "-q")

    assert "         from memory: ok" in done.err.splitlines()
    assert any("OrderFault args:type:order" in line for line in done.err.splitlines())


def test_a_trace_beside_the_naive_one_says_which_is_which(call: Any) -> None:
    done = call("handle", "--order", GOOD_LINE, "--trace", "--naive", "-q")

    assert [line for line in done.err.splitlines() if not line.startswith(" ")] == ["line 1, naive", "line 1, with repair"]


def test_the_trace_of_an_order_without_tries_left_says_what_would_let_it_go_on(call: Any) -> None:
    faults = {"sku": "A-1001", "region": "mars", "limit": 9, "prefer": "legacy_stock"}

    lines = call("handle", "--order", json.dumps(faults), "--trace", "-q").err.splitlines()

    assert [line.split()[0] for line in lines if re.match(r"  \w", line)] == ["pick", *["fetch", "repair"] * 2, "fetch", "giveup"]
    assert "attempts_left: max_attempts is 3, 3 used" in " ".join(" ".join(lines).split())
    assert max(map(len, lines)) <= 80


def test_a_retry_is_in_the_trace_with_the_call_that_followed(call: Any) -> None:
    entry, answers = adapter.TOOLS["stock_lookup"], iter([ConnectionError("busy"), {"sku": "A-1001", "rows": []}])

    def flaky(**args: Any) -> Any:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def classify(outcome: Outcome) -> Verdict | None:
        return Verdict(result_class="RETRYABLE") if outcome.error else None

    adapter.TOOLS["stock_lookup"] = {**entry, "fn": flaky, "classify": classify, "retry": Retry(attempts=2, backoff_s=0.0)}
    try:
        done = call("handle", "--order", GOOD_LINE, "--trace", "-q")
    finally:
        adapter.TOOLS["stock_lookup"] = entry

    assert [line.strip() for line in done.err.splitlines()][2:6] == [
        "fetch   stock_lookup(sku='A-1001', region='seoul', limit=2)",
        "ran: raised:ConnectionError; tried again",
        "stock_lookup(sku='A-1001', region='seoul', limit=2)",
        "ran: result:empty",
    ]


def test_a_secret_argument_is_not_in_the_trace(call: Any) -> None:
    entry = adapter.TOOLS["stock_lookup"]
    adapter.TOOLS["stock_lookup"] = {**entry, "secret": ["sku"]}
    try:
        done = call("handle", "--order", GOOD_LINE, "--trace", "-q")
    finally:
        adapter.TOOLS["stock_lookup"] = entry

    assert "A-1001" not in done.err
    assert "region='seoul'" in done.err


@pytest.mark.usefixtures("eighty_columns")
@pytest.mark.parametrize("options", [[], ["--naive"]])
def test_a_table_has_a_row_for_each_line_in_eighty_columns(call: Any, options: list[str]) -> None:
    lines = call("handle", "--samples", "--table", "-q", *options).out.splitlines()

    assert [int(found[1]) for line in lines if (found := re.match(r" *(\d+)  \S", line))] == list(range(1, 25))
    assert max(map(len, lines)) <= 80
    names = "line order naive with repair fixes" if options else "line order answer fixes tries runs"
    assert " ".join(lines[0].split()) == names
    assert sum("  region limit" in line for line in lines) == 2


@pytest.mark.usefixtures("eighty_columns")
def test_a_row_says_which_order_it_is_of(call: Any, orders: Any) -> None:
    given = b'{"sku": "A-1001", "region": "mars", "limit": 9}\n{}\n5\n{'
    rows = call("handle", orders(given), "--table", "-q").out.splitlines()

    assert [re.split(r"\s{2,}", row.strip())[1] for row in rows if row.strip()[:1].isdigit()] == ["A-1001 mars 9", "{}", "5", "(no JSON)"]


def test_the_summary_counts_what_the_answers_say(call: Any) -> None:
    done = call("handle", "--samples")

    told = dict(re.findall(r"^(.*?) +(\d+) *$", done.err, re.MULTILINE))
    answers = [answer for answer in done.answers if "line" not in answer]
    good = [answer for answer in answers if answer["ok"]]
    gave_up = Counter(answer["errors"][-1] for answer in answers if not answer["ok"])
    fixes = Counter(fix for answer in good for fix in answer["fixes"])
    assert {name.strip(): int(count) for name, count in told.items()} == {
        "orders handled": len(answers),
        "ok": len(good),
        **{f"repaired: {fix}": count for fix, count in fixes.items()},
        "from memory": sum(answer["tool_runs"] == 0 for answer in good),
        "gave up": gave_up.total(),
        **gave_up,
        "bad lines": 2,
        "body runs": sum(answer["tool_runs"] for answer in answers),
    }


def test_an_answer_from_memory_counts_as_such_also_after_a_repair(call: Any, orders: Any) -> None:
    done = call("handle", orders(f"{GOOD_LINE}\n{json.dumps({**GOOD, 'prefer': 'legacy_stock'})}\n".encode()))

    assert re.search(r"^  from memory +1 *$", done.err, re.MULTILINE)
    assert re.search(r"^body runs +2 *$", done.err, re.MULTILINE)


def test_many_reasons_are_summed_up(call: Any, orders: Any) -> None:
    content = "\n".join(json.dumps({**GOOD, "prefer": "x", "sku": n}) for n in range(3))
    entry = adapter.TOOLS["stock_lookup"]
    args = {**entry["args"], **{f"needs_{n}": {"type": "int", "required": True} for n in range(20)}}
    names = [json.dumps({**GOOD, **{f"needs_{m}": 1 for m in range(n)}}) for n in range(20)]
    adapter.TOOLS["stock_lookup"] = {**entry, "args": args}
    try:
        done = call("handle", orders("\n".join([content, *names]).encode()))
    finally:
        adapter.TOOLS["stock_lookup"] = entry

    assert re.search(r"^  args:unknown_tool +3 *$", done.err, re.MULTILINE)
    assert re.search(r"^  others +9 *$", done.err, re.MULTILINE)


# ---- handle: usage


def test_two_sources_are_one_too_many(call: Any) -> None:
    done = call("handle", "--samples", "--order", "{}")

    assert done == Done(2, "", "fsm-agent: give one of FILE, --order and --samples (see fsm-agent handle --help)\n")


@pytest.mark.parametrize(("name", "why"), [("no/such/file", "No such file or directory"), (".", "Is a directory")])
def test_a_file_that_cannot_be_read_is_one_line(call: Any, name: str, why: str) -> None:
    assert call("handle", name) == Done(2, "", f"fsm-agent: {name}: {why}\n")


# ---- on a terminal


def on_terminal(*arguments: str, out_too: bool, columns: int = 80) -> tuple[int, str, bytes]:
    """Run a command whose stdin and stderr, and stdout if asked for, are a terminal; what the terminal got, and stdout."""
    ours, theirs = os.openpty()
    env = {**ENV, "TERM": "xterm", "COLUMNS": str(columns)}
    process = subprocess.Popen(
        [*MODULE, *arguments], stdin=theirs, stderr=theirs, stdout=theirs if out_too else subprocess.PIPE, cwd=ROOT, env=env
    )
    os.close(theirs)
    seen, piped = b"", b""
    sources = [ours] if process.stdout is None else [ours, process.stdout.fileno()]
    while sources:
        for source in select.select(sources, [], [], 60)[0]:
            try:
                chunk = os.read(source, 65536)
            except OSError:
                chunk = b""
            if not chunk:
                sources.remove(source)
            elif source == ours:
                seen += chunk
            else:
                piped += chunk
    code = process.wait(timeout=60)
    os.close(ours)
    if process.stdout is not None:
        process.stdout.close()
    return code, seen.decode(), piped


def test_a_bar_is_drawn_on_a_terminal_while_the_answers_go_elsewhere() -> None:
    code, seen, piped = on_terminal("handle", "--samples", out_too=False)

    assert "orders handled" in seen
    assert re.search(r"\d+ orders", seen)
    assert len(piped.splitlines()) == len(sample_orders())
    assert b"\x1b" not in piped
    assert code == 0


def test_no_bar_is_drawn_among_the_answers() -> None:
    _, seen, _ = on_terminal("handle", "--order", GOOD_LINE, out_too=True)

    assert not re.search(r"\d orders", seen)
    assert json.loads(seen.splitlines()[0])["ok"]


def test_without_anything_to_read_a_terminal_gets_the_help() -> None:
    code, seen, _ = on_terminal("handle", out_too=True)

    assert seen.startswith("Usage: fsm-agent handle [OPTIONS] [FILE]")
    assert code == 2


def test_a_png_is_not_printed_on_a_terminal() -> None:
    code, seen, _ = on_terminal("diagram", "--format", "png", out_too=True)

    assert (code, "a PNG is no text to print; give --out FILE" in seen) == (2, True)


@pytest.mark.parametrize("options", [["--naive", "--table"], []])
def test_a_terminal_that_knows_only_ascii_is_no_reason_to_fail(options: list[str]) -> None:
    done = run("handle", "--samples", *options, PYTHONIOENCODING="ascii", LC_ALL="C")

    assert done.code == 0
    assert done.out.isascii()


# ---- check


def test_every_check_of_the_core_is_a_line(call: Any) -> None:
    sentences = [*(sentence for sentence, _ in CHECKS), "every cycle is bounded by a limit in force"]
    for name, table in (("agent", AGENT), ("desk", DESK), ("naive", NAIVE)):
        first, *lines = call("check", "--machine", name).out.splitlines()

        assert first == f"{table.name}: {len(table.states)} states, {len(table.rows)} rows, machine hash {table.hash()}"
        assert lines == [f"ok    {sentence}" for sentence in sentences]


_A, _B = State("a", work="call"), State("b", work="answer")
_OUT = [Row("a", outcome, "b") for outcome in ("called", "failed", "no_progress", "stopped")]
_SPIN = [Row("a", "called", "a"), *_OUT[1:]]


class _RaisesWhenRead:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("read on")


RAISING = _RaisesWhenRead()


class RaisesWhenMade:
    """A model whose making fails."""

    def __init__(self) -> None:
        raise ValueError("no server")


class WithTable:
    """Something of a user's own that has a table."""

    table = Table(name="mine", initial="a", states=[_A, _B], rows=_OUT)
    limits = Limits.off()


class Endless(WithTable):
    """A machine that its own limits do not bound."""

    table = AGENT


BROKEN = {
    "twice": (Table(name="t", initial="a", states=[_A, _A, _B], rows=_OUT), 0, "has the state 'a' twice"),
    "nowhere": (Table(name="t", initial="x", states=[_A, _B], rows=_OUT), 1, "starts in 'x'"),
    "no_work": (Table(name="t", initial="a", states=[State("a", work="nap"), _B], rows=_OUT), 1, "does 'nap'"),
    "no_row": (Table(name="t", initial="a", states=[_A, _B], rows=_OUT[:-1]), 3, "may report 'stopped'"),
    "shadowed": (Table(name="t", initial="a", states=[_A, _B], rows=[*_OUT, Row("a", "called", "b")]), 2, "can never win"),
    "alone": (Table(name="t", initial="a", states=[_A, _B, State("c", work="answer")], rows=_OUT), 4, "cannot be reached"),
    "spin": (Table(name="t", initial="a", states=[_A, _B], rows=_SPIN), 5, "no limit in force bounds the cycle a -> a"),
}
TWICE, NOWHERE, NO_WORK, NO_ROW, SHADOWED, ALONE, SPIN = (table for table, _, _ in BROKEN.values())


@pytest.mark.parametrize(("name", "fault"), BROKEN.items(), ids=BROKEN)
def test_a_failing_check_is_explained_and_those_that_rely_on_it_are_not_made(call: Any, name: str, fault: Any) -> None:
    _, place, why = fault

    done = call("check", "--machine", f"{__name__}:{name.upper()}")

    lines = done.out.splitlines()[1:]
    marks = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert marks == ["ok"] * place + ["FAIL"] + ["--"] * (len(CHECKS) - place)
    assert why in " ".join(done.out.split())
    assert max(map(len, lines)) <= 80
    assert (done.code, done.err) == (1, "")


@pytest.mark.parametrize(("name", "fault"), BROKEN.items(), ids=BROKEN)
def test_a_machine_that_no_run_can_use_has_no_worst_case(call: Any, name: str, fault: Any) -> None:
    done = call("bound", "--machine", f"{__name__}:{name.upper()}")

    assert fault[2] in done.err
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("command", ["check", "diagram"])
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nothing", "there is no machine 'nothing'; take agent, autogpt, desk, naive"),
        ("no_such_module:x", "importing 'no_such_module' failed: ModuleNotFoundError"),
        ("click.nothing:x", "importing 'click.nothing' failed"),
        (":x", "':x' names nothing; write module:attribute"),
        ("os:no_such_thing", "AttributeError: module 'os' has no attribute 'no_such_thing'"),
        ("os:path", "'os:path' is a module, which has no table of states and rows"),
        ("os:", "'os:' names nothing; write module:attribute"),
        ("..:x", "importing '..' failed: TypeError"),
        (f"{__name__}:RAISING", f"'{__name__}:RAISING': RuntimeError: read on"),
    ],
)
def test_a_machine_that_is_none_is_one_line(call: Any, command: str, name: str, why: str) -> None:
    done = call(command, "--machine", name)

    assert why in done.err
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)


def test_a_machine_of_the_user_s_own_is_found_beside_them(tmp_path: Path) -> None:
    (tmp_path / "my_tables.py").write_text(
        "from fsm_agent.core.table import Row, State, Table\n"
        "class Box:\n"
        "    table = Table(name='mine', initial='a', states=[State('a', work='repair'), State('b', work='answer')],\n"
        "                  rows=[Row('a', 'repaired', 'b'), Row('a', 'exhausted', 'b')])\n"
    )
    code = "import sys; sys.path.pop(0); from fsm_agent.cli import main; sys.exit(main(['check', '--machine', 'my_tables:Box']))"
    env = {**ENV, "PYTHONPATH": str(ROOT)}

    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("mine: 2 states, 2 rows")


def test_a_machine_with_limits_of_its_own_is_checked_under_them(call: Any) -> None:
    assert call("check", "--machine", f"{__name__}:WithTable").code == 0
    done = call("check", "--machine", f"{__name__}:Endless")
    assert done.code == 1
    assert "no limit in force bounds the cycle gather -> gather" in " ".join(done.out.split())


WITH_A_TOOL = Agent({"look_here": lambda: 1}, lambda ask: "done")
OF_ITS_TOOL = attrs.evolve(AGENT, states=[attrs.evolve(one, tools={"look_here"}) for one in AGENT.states])
TWO_TURNS = Agent([], lambda ask: "done", limits=Limits(max_turns=2))
ITS_ENGINE = TWO_TURNS.engine


@pytest.mark.parametrize(("name", "turns"), [("TWO_TURNS", 2), ("ITS_ENGINE", 2), ("AGENT", 10)])
def test_the_worst_case_of_an_agent_or_its_engine_is_that_under_its_own_limits(call: Any, name: str, turns: int) -> None:
    done = call("bound", "--machine", f"{__name__}:{name}", "--json")

    assert (done.code, json.loads(done.out)["model_turns"]) == (0, turns)


def test_the_worst_case_of_an_agent_counts_its_own_tools_unless_others_are_given(call: Any) -> None:
    done = call("bound", "--machine", f"{__name__}:WITH_A_TOOL", "--json")
    assert json.loads(done.out)["per_tool"] == {"look_here": 6}
    done = call("bound", "--machine", f"{__name__}:WITH_A_TOOL", "--tools", "fsm_agent.lab.warehouse:TOOLS", "--json")
    assert "look_here" not in json.loads(done.out)["per_tool"]


def test_a_machine_of_tools_that_are_not_there_has_no_worst_case(call: Any) -> None:
    done = call("bound", "--machine", f"{__name__}:OF_ITS_TOOL")

    assert (done.code, done.out) == (2, "")
    assert "allows the tool 'look_here', which is not there; " in done.err


def test_a_module_that_breaks_while_it_is_imported_is_one_line(
    tmp_path: Path, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "breaks.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)

    done = call("check", "--machine", "breaks:x")

    assert done.err == "fsm-agent: 'breaks:x': importing 'breaks' failed: ZeroDivisionError: division by zero\n"


@pytest.mark.parametrize("asked", [("check", "--machine", "leaves:x"), ("ask", "q", "--model", "leaves:x")])
def test_a_module_that_exits_while_it_is_imported_is_one_line(
    tmp_path: Path, call: Any, monkeypatch: pytest.MonkeyPatch, asked: tuple[str, ...]
) -> None:
    (tmp_path / "leaves.py").write_text("raise SystemExit('no key')\n")
    monkeypatch.syspath_prepend(tmp_path)

    done = call(*asked)

    assert (done.code, done.err) == (2, "fsm-agent: 'leaves:x': importing 'leaves' failed: SystemExit: no key\n")


def test_an_object_that_raises_when_it_is_looked_at_is_one_line(call: Any) -> None:
    done = call("ask", "q", "--model", f"{__name__}:RaisesWhenMade")

    assert (done.code, done.err) == (2, f"fsm-agent: '{__name__}:RaisesWhenMade': ValueError: no server\n")


@pytest.mark.parametrize("arguments", [("--help",), ("ask", "--help"), ("bound",)])
def test_an_output_that_takes_nothing_is_one_line(arguments: tuple[str, ...], capfd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sys, "stdout", Full())

    assert main(arguments) == 2
    assert capfd.readouterr().err == "fsm-agent: cannot read or write: No space left on device\n"


def test_without_an_output_the_commands_say_so(capfd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)

    assert main(["handle", "--samples"]) == 2
    assert capfd.readouterr().err == "fsm-agent: there is no standard output to write to; open it, or send it to a file\n"


# ---- diagram


MACHINES = {"agent": AGENT, "desk": DESK, "naive": NAIVE, "breaker": breaker_table()}


@pytest.mark.parametrize(("name", "table"), MACHINES.items(), ids=MACHINES)
@pytest.mark.parametrize("bare", [False, True])
def test_a_diagram_is_that_of_the_library(call: Any, name: str, table: Table, bare: bool) -> None:
    options = ["--no-labels"] if bare else []

    assert call("diagram", "--machine", name, *options) == Done(0, diagrams.mermaid(table, labels=not bare), "")
    assert call("diagram", "--machine", name, "--format", "dot", *options).out == diagrams.dot(table, labels=not bare)


@pytest.mark.parametrize(
    ("ending", "start"), [("mmd", b"stateDiagram-v2"), ("dot", b"digraph"), ("svg", b"<?xml"), ("PNG", b"\x89PNG")]
)
def test_the_ending_of_the_file_says_how_to_draw(call: Any, tmp_path: Path, ending: str, start: bytes) -> None:
    path = tmp_path / f"machine.{ending}"

    assert call("diagram", "--out", str(path)) == Done(0, "", "")
    assert path.read_bytes().startswith(start)


def test_a_format_counts_more_than_the_ending(call: Any, tmp_path: Path) -> None:
    call("diagram", "--out", str(tmp_path / "machine.txt"), "--format", "dot")

    assert (tmp_path / "machine.txt").read_text() == diagrams.dot(AGENT)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--out", "machine.txt"], "the ending of 'machine.txt' is none of .mmd .dot .svg .png; give --format"),
        (["--format", "pdf"], "'pdf' is not one of"),
        (["--out", "no/such/folder/x.dot"], "no/such/folder/x.dot: No such file or directory"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(call: Any, options: list[str], why: str) -> None:
    done = call("diagram", *options)

    assert why in done.err
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)


# ---- report


def test_the_report_is_written_and_says_so(call: Any, tmp_path: Path) -> None:
    done = call("report", "--dir", str(tmp_path / "there"))

    written = json.loads((tmp_path / "there" / "tool_report.json").read_text(encoding="utf-8"))
    assert written == measure()
    assert done.out.splitlines() == [
        f"wrote {tmp_path / 'there' / 'tool_report.json'}",
        f"wrote {tmp_path / 'there' / 'tool_report.md'}",
        f"{written['as_promised']} of {written['probes']} probes came back as promised",
    ]
    assert done.code == 0


def test_a_probe_that_came_back_otherwise_is_told_by_the_exit_code(call: Any, tmp_path: Path) -> None:
    repairs = dict(adapter.REPAIRS)
    adapter.REPAIRS.clear()
    try:
        assert call("report", "--dir", str(tmp_path)).code == 1
    finally:
        adapter.REPAIRS.update(repairs)


def test_a_folder_that_cannot_be_made_is_one_line(call: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    done = call("report", "--dir", str(tmp_path / "file"))

    assert (done.code, done.err) == (2, f"fsm-agent: {tmp_path / 'file'}: File exists\n")


# ---- the whole


COMMANDS = sorted(app.commands.commands)


@pytest.mark.usefixtures("eighty_columns")
@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_each_help_fits_eighty_columns_and_has_an_example(call: Any, command: str) -> None:
    done = call(*([command] if command else []), "--help")

    assert max(map(len, done.out.splitlines())) <= 80
    assert re.search(rf"^ .*fsm-agent {command or '[a-z]+'}", done.out, re.MULTILINE)
    assert (done.code, done.err) == (0, "")


def test_the_commands_are_in_the_help(call: Any) -> None:
    listed = call("-h").out

    assert [name for name in COMMANDS if f"\n  {name} " not in listed] == []


def test_no_command_gets_the_help(call: Any) -> None:
    done = call()

    assert (done.code, done.out, done.err) == (2, call("--help").out, "")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["nothing"], "No such command 'nothing'"),
        (["handle", "--nothing"], "No such option"),
        (["handle", "--order"], "requires an argument"),
        (["check", "more"], "unexpected extra argument"),
    ],
)
def test_wrong_usage_is_one_line_and_names_the_help(call: Any, arguments: list[str], why: str) -> None:
    done = call(*arguments)

    assert why in done.err
    assert done.err.endswith("--help)\n")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)


def test_the_version_is_that_of_the_package(call: Any) -> None:
    assert call("--version") == Done(0, f"fsm-agent {__version__}\n", "")


def test_the_entry_point_is_the_module_s(call: Any) -> None:
    assert fsm_agent.__main__.main is main
    assert run("--version") == call("--version")


class Breaks:
    """A machine whose table cannot even be looked at."""

    @property
    def table(self) -> Table:
        raise RuntimeError("no\ntable\x1b[31m today")


BREAKS = Breaks()


def test_what_an_object_of_the_users_raises_is_one_line_that_names_it(call: Any) -> None:
    done = call("check", "--machine", f"{__name__}:BREAKS")

    assert done == Done(2, "", f"fsm-agent: '{__name__}:BREAKS': RuntimeError: no\\ntable\\x1b[31m today\n")


def test_an_error_of_our_own_is_one_line(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*names: str) -> Any:
        raise RuntimeError("no\ntable\x1b[31m today")

    monkeypatch.setattr(importlib.import_module("fsm_agent.cli.check"), "machine_of", broken)

    assert call("check") == Done(2, "", "fsm-agent: unexpected RuntimeError: no\\ntable\\x1b[31m today\n")


# ---- without click and rich


def bare(place: Path, *present: str) -> subprocess.CompletedProcess[str]:
    """The command in an interpreter whose site has what the core needs, and of the rest what is present."""
    for found in (Path(str(importlib.import_module(name).__file__)) for name in ("attr", "attrs", "transitions", "six", *present)):
        linked = found.parent if found.name == "__init__.py" else found
        (place / linked.name).symlink_to(linked)
    (place / "fsm_agent").symlink_to(ROOT / "fsm_agent")
    return subprocess.run(
        [sys.executable, "-S", "-m", "fsm_agent", "handle", "--samples"],
        env={"PYTHONPATH": str(place)},
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(("present", "named"), [([], "click"), (["click"], "rich")])
def test_a_missing_package_is_named_with_its_extra(tmp_path: Path, present: list[str], named: str) -> None:
    done = bare(tmp_path, *present)

    assert done.stderr == f"fsm-agent: the command line needs the package '{named}': pip install \"fsm-agent[cli]\"\n"
    assert (done.returncode, done.stdout) == (2, "")


def test_a_package_that_those_of_the_extra_need_is_named_the_same_way(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("import what_click_needs.inside")
    done = bare(tmp_path)

    assert done.stderr == "fsm-agent: the command line needs the package 'what_click_needs': pip install \"fsm-agent[cli]\"\n"
    assert (done.returncode, done.stdout) == (2, "")


def test_ctrl_c_before_a_command_begins_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    class Stopped(list[str]):
        def __iter__(self) -> Any:
            raise KeyboardInterrupt

    assert main(Stopped()) == 130
    assert capsys.readouterr() == ("", "fsm-agent: stopped by Ctrl-C\n")


def test_a_value_that_dumps_writes_can_be_read_back_from_an_answer(call: Any) -> None:
    order = {**GOOD, "sku": {"$tuple": [1], "b": 10**30}}

    (answer,) = call("handle", "--order", json.dumps(order), "-q").answers

    assert dumps(from_json(answer["calls"][0]["args"])) == dumps({k: order[k] for k in ("sku", "region", "limit")})
