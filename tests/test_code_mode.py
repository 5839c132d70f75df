"""Code mode with the real sandbox: programs that call tools, what they cannot reach, what bounds them, and what outlives a process."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from uuid import UUID

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsm_agent import Agent, Decision, Limits, Policy, Run, ToolCall, tool
from fsm_agent.code_mode import CodeMode
from fsm_agent.core.agent_table import AGENT
from fsm_agent.core.answers import Answer
from fsm_agent.core.errors import BuildError, ContractError, RunError
from fsm_agent.core.events import ProgramCalled
from fsm_agent.core.messages import Role
from fsm_agent.core.tools import BreakerPolicy
from fsm_agent.core.trace import trace_of
from fsm_agent.core.transcript import transcript
from fsm_agent.host.clock import ScriptedClock
from fsm_agent.host.hooks import Hooks, Skip
from fsm_agent.host.memory import TtlMemory
from tests.test_programs import TWO_STEPS

ROOT = Path(__file__).parent.parent
FREE = Limits.off(max_steps=500, max_turns=20)
QUICK = CodeMode(limit_s=0.2)


@tool(effect="pure")
def read(k: str) -> str:
    """Read a value."""
    return f"v{k}"


class Ledger:
    """A tool with effects that writes down each of its runs."""

    def __init__(self, **declared: Any) -> None:
        self.paid: list[int] = []

        def pay(x: int) -> str:
            """Pay."""
            self.paid.append(x)
            return f"paid {x}"

        self.tool = tool(effect="at_most_once", **declared)(pay)


def script(*turns: Any) -> Callable[[Any], Any]:
    """A decider: a text in the script is a program, then the run is done."""

    def decide(ask: Any) -> Any:
        if ask.run.turns >= len(turns):
            return "done"
        turn = turns[ask.run.turns]
        return ToolCall("run_program", {"program": turn}, f"p{ask.run.turns}") if isinstance(turn, str) else turn

    return decide


def agent(*programs: Any, tools: Any = (read,), **more: Any) -> Agent:
    given_parts = {"limits": FREE, "clock": ScriptedClock(), "code_mode": QUICK, **more}
    return Agent(tools, script(*programs), **given_parts)


def go(one: Agent, **start: Any) -> Run:
    """The run that an agent drives to its answer or a pause."""
    run = one.start("go", **start)
    one.drive(run)
    return run


def ran(source: str, **more: Any) -> Any:
    """The call of a program that was run alone."""
    return go(agent(source, **more)).calls[0]


def sync(one: Agent, run: Run) -> Answer:
    return one.drive(run)


def tasks(one: Agent, run: Run) -> Answer:
    return asyncio.run(one.adrive(run))


both = pytest.mark.parametrize("drive", [sync, tasks])


def words(run: Run | None) -> list[tuple[str, str]]:
    assert run is not None
    return [(call.id, call.error or "ok") for call in run.calls]


# ---- what a program does


SUM = """
found = []
for n in range(3):
    found.append(read(k=str(n)))
try:
    read(k=5)
except RuntimeError as error:
    print("no:", error)
found.append(pay(7))
found
"""


@both
def test_a_program_calls_tools_and_gives_its_last_expression(drive: Any) -> None:
    ledger = Ledger()
    one = agent(SUM, tools=(read, ledger.tool))
    run = one.start("go")
    answer = drive(one, run)

    assert (answer.stop_reason, answer.text, ledger.paid) == ("answered", "done", [7])
    assert run.calls[0].value == {
        "result": ["v0", "v1", "v2", "paid 7"],
        "printed": "no: args:type:k (type:k at k (expected str; got 5))\n",
    }
    assert words(run)[1:] == [("p0.1", "ok"), ("p0.2", "ok"), ("p0.3", "ok"), ("p0.4", "args:type:k"), ("p0.5", "ok")]
    assert one.replay(run) == run
    assert one.load(one.save(run)) == run


def test_both_drivers_leave_the_same_trace() -> None:
    traces = []
    for drive in (sync, tasks):
        one = agent(SUM, "1/0", "while True: pass", tools=(read, Ledger().tool))
        run = one.start("go", run_id="same")
        drive(one, run)
        traces.append([attrs.astuple(line) for line in trace_of(run)])

    assert traces[0] == traces[1]
    assert [line[3] for line in traces[0]].count("call_finished") == 7


@pytest.mark.parametrize(
    ("call", "args", "value"),
    [
        ('join("x", "y")', {"a": "x", "b": "y"}, "xy"),
        ('join("x", b="y")', {"a": "x", "b": "y"}, "xy"),
        ('join(b="y", a="x")', {"a": "x", "b": "y"}, "xy"),
        ('join(*["x"], **{"b": "y"})', {"a": "x", "b": "y"}, "xy"),
        ('join("x", a="z")', {"a": "z", "argument_1": "x"}, "args:missing:b"),
        ('join("x", "y", "z")', {"a": "x", "b": "y", "argument_3": "z"}, "args:extra:argument_3"),
        ("nowhere(1, b=2)", {"argument_1": 1, "b": 2}, "args:unknown_tool"),
        ("join()", {}, "args:missing:a"),
    ],
)
def test_positional_arguments_take_the_names_of_the_contract(call: str, args: Any, value: str) -> None:
    @tool(effect="pure")
    def join(a: str, b: str) -> str:
        return a + b

    run = go(agent(call, tools=(join,)))
    made = run.calls[1]

    assert (made.args, made.value if made.ok else made.error) == (args, value)


def test_a_refusal_tells_the_program_every_reason() -> None:
    @tool(effect="pure")
    def join(a: str, b: str) -> str:
        return a + b

    call = ran("try:\n    join(1, c=2)\nexcept RuntimeError as error:\n    said = str(error)\nsaid", tools=(join,))

    assert call.value.startswith("args:missing:b (missing:b at b")
    assert "; extra:c at c" in call.value
    assert "; type:a at a (expected str; got 1)" in call.value


def test_a_program_draws_the_same_random_numbers_for_the_same_seed() -> None:
    one = agent(*["import random\n[random.random(), read('a'), random.random()]"], tools=(read,))
    first, again, other = (go(one, seed=seed) for seed in (1, 1, 2))

    assert first.calls[0].value == again.calls[0].value != other.calls[0].value


# ---- what a program cannot reach


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ('open("/etc/passwd").read()', "raised:PermissionError"),
        ('open("/tmp/x", "w").write("x")', "raised:PermissionError"),
        ('from pathlib import Path\nPath("/etc/passwd").read_text()', "raised:PermissionError"),
        ('import os\nos.listdir("/")', "raised:PermissionError"),
        ('import os\nos.environ["PATH"]', None),
        ('import os\nos.getenv("PATH")', None),
        ('import os\nos.system("true")', "raised:AttributeError"),
        ('__import__("os").system("true")', "raised:RuntimeError"),
        ("import socket", "raised:ModuleNotFoundError"),
        ("import subprocess", "raised:ModuleNotFoundError"),
        ("import urllib.request", "raised:ModuleNotFoundError"),
        ("import fsm_agent", "raised:ModuleNotFoundError"),
        ('exec("import socket")', "raised:ModuleNotFoundError"),
        ("eval(\"open('/etc/passwd')\")", "raised:PermissionError"),
        ("().__class__.__bases__[0].__subclasses__()", "raised:AttributeError"),
        ("read.__globals__", "raised:NameError"),
        ("(lambda: 0).__globals__", "raised:AttributeError"),
        ("(lambda: 0).__code__", "raised:AttributeError"),
        ('getattr((), "__class__")', None),
        ("import time\ntime.time()", "raised:RuntimeError"),
        ("import time\ntime.sleep(60)", "raised:RuntimeError"),
        ("import asyncio\nawait asyncio.sleep(60)", "raised:RuntimeError"),
        ("import datetime\ndatetime.datetime.now()", "raised:RuntimeError"),
        ("input()", "raised:RuntimeError"),
        ("x = (", "raised:SyntaxError"),
        ("1/0", "raised:ZeroDivisionError"),
        ("raise KeyboardInterrupt", "raised:KeyboardInterrupt"),
        ("raise SystemExit", "raised:SystemExit"),
        ("read", "raised:NameError"),
        ("await read(k='1')", "raised:TypeError"),
    ],
)
def test_the_world_is_out_of_reach(source: str, error: str | None, capfd: Any) -> None:
    call = ran(source)

    assert call.ok is False
    assert call.error == error if error is not None else call.error.startswith("raised:")
    assert "Traceback" not in call.detail
    assert capfd.readouterr() == ("", "")


def test_what_only_computes_may_be_imported() -> None:
    assert ran("import json, math, re\n[json.loads('[1]'), math.floor(2.5), re.sub('a', 'b', 'cat')]").value == [[1], 2, "cbt"]


def test_what_is_printed_is_kept_across_calls_and_lookups() -> None:
    call = ran("print('a')\ntry:\n  nowhere\nexcept NameError:\n  print('b')\nread('x')\nprint('c')\n7")

    assert call.value == {"result": 7, "printed": "a\nb\nc\n"}


def test_a_failure_names_the_line_and_not_its_exception_twice() -> None:
    assert ran("def f():\n    return 1/0\n\nf()").detail == "division by zero (line 2)"


# ---- what bounds a program


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("while True: pass", "raised:TimeoutError"),
        ("while True:\n  try:\n    while True: pass\n  except BaseException: pass", "raised:TimeoutError"),
        ("sum(range(10**12))", "raised:TimeoutError"),
        ("'a' * 10**10", "raised:MemoryError"),
        ("10 ** 10**8", "raised:MemoryError"),
        ("x = []\nwhile True: x.append('a' * 10**7)", "raised:MemoryError"),
        ("while True:\n  try:\n    x = [0] * 10**8\n  except BaseException: pass", "raised:MemoryError"),
        ("def f(n): return f(n + 1)\nf(0)", "raised:RecursionError"),
        ("x = []\nfor _ in range(10**5): x = [x]\nx", None),
        ("while True:\n  try:\n    nowhere\n  except NameError: pass", "raised:RuntimeError"),
    ],
)
def test_a_program_has_its_time_memory_and_depth(source: str, error: str | None) -> None:
    began = time.monotonic()
    call = ran(source, code_mode=CodeMode(limit_s=0.2 if error == "raised:TimeoutError" else 10.0))

    assert call.error == error if error is not None else call.ok or call.error
    assert time.monotonic() - began < 10


def test_a_program_that_prints_for_ever_is_ended() -> None:
    # Which of the two it runs into first depends on the machine.
    assert ran("while True: print('x' * 10**5)", code_mode=CodeMode(limit_s=0.5)).error in ("raised:MemoryError", "raised:TimeoutError")


def test_the_time_of_a_program_is_counted_over_all_of_it() -> None:
    call = ran("n = 0\nwhile True:\n  for i in range(500_000): n += i\n  read(str(n))", code_mode=CodeMode(limit_s=0.3))

    assert call.error == "raised:TimeoutError"


FOR_EVER = "n = 0\nwhile True:\n  n += 1\n  try:\n    {call}\n  except BaseException:\n    pass"


@pytest.mark.parametrize(
    ("call", "limits", "policy", "made", "error", "reason"),
    [
        ("read(str(n))", {}, {"program_calls": 12}, 12, "refused:budget:program_calls", "answered"),
        ("nowhere()", {}, {"program_calls": 12}, 12, "refused:budget:program_calls", "answered"),
        ("read(str(n))", {"max_tool_calls": 5}, {}, 5, "skipped:max_tool_calls", "max_tool_calls"),
        ("read(k=n)", {"max_bad_arguments": 4}, {}, 4, "skipped:max_bad_arguments", "max_bad_arguments"),
        ("fail(n)", {"max_tool_errors": 4}, {}, 4, "skipped:max_tool_errors", "max_tool_errors"),
        ("read('a')", {"max_same_call": 3}, {}, 4, "skipped:duplicate_call", "duplicate_call"),
        ("read('a')", {"max_same_call": 3}, {"duplicates": "refuse", "program_calls": 9}, 9, "refused:budget:program_calls", "answered"),
        ("read(str(n))", {"max_same_tool_calls": 3}, {"program_calls": 9}, 9, "refused:budget:program_calls", "answered"),
        ("read(str(n))", {"max_calls_per_turn": 3}, {"program_calls": 9}, 9, "refused:budget:program_calls", "answered"),
        ("tick(n)", {"deadline_s": 3.0, "reserve_s": 0.0}, {}, 3, "skipped:deadline", "deadline"),
    ],
)
def test_a_program_that_catches_everything_and_calls_for_ever_is_bounded(
    call: str, limits: Any, policy: Any, made: int, error: str, reason: str
) -> None:
    clock, bodies = ScriptedClock(), []

    @tool(effect="pure", breaker=None)
    def fail(n: int) -> str:
        raise ValueError(f"no {n}")

    @tool(effect="pure")
    def tick(n: int) -> int:
        bodies.append(n)
        clock.advance(1.0)
        return n

    one = agent(
        FOR_EVER.format(call=call), tools=(read, fail, tick), clock=clock, policy=Policy(**policy),
        limits=Limits.off(max_steps=500, max_turns=5, **limits), code_mode=CodeMode(limit_s=5.0),
    )  # fmt: skip
    answer = one.run("go")
    run = answer.run
    assert run is not None

    assert (len([one for one in run.calls if one.parent]), run.calls[0].error, answer.stop_reason) == (made, error, reason)
    assert answer.text
    assert len(bodies) == (3 if call == "tick(n)" else 0)


def test_a_program_that_computes_at_the_deadline_is_ended_there() -> None:
    began = time.monotonic()
    limits = Limits.off(max_steps=500, max_turns=5, deadline_s=0.3, reserve_s=0.1)
    answer = Agent([read], script("while True: pass"), limits=limits, code_mode=CodeMode(limit_s=30.0)).run("go")

    assert answer.stop_reason == "deadline"
    assert time.monotonic() - began < 5


def test_what_a_program_holds_at_a_call_has_an_end() -> None:
    assert ran("x = 'a' * 3_000_000\nread('a')").error == "raised:MemoryError"
    assert ran("x = 'a' * 1_000_000\nread('a')\nlen(x)").value == 1_000_000


def test_long_output_is_cut_with_a_mark_and_a_long_result_is_shown_cut() -> None:
    one = agent("for n in range(5000): print('line', n)\nread('a')\nprint('end' * 9000)", "'r' * 200_000", code_mode=CodeMode())
    run = go(one)
    shown = [message.text for message in transcript(run, one.engine.setup.box) if message.role is Role.TOOL]

    assert len(run.calls[0].value["printed"]) == 20_000
    assert "… [cut: " in run.calls[0].value["printed"][-60:]
    assert len(run.calls[2].value) == 200_000
    assert len(shown[1]) == 65_536
    assert shown[1].endswith("[cut: 200000 bytes in all]")


# ---- values


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("float('nan')", "nan"),
        ("[float('inf'), -0.0]", "[inf, -0.0]"),
        ("{1, 2}", "{1, 2}"),
        ("frozenset([(1, 2)])", "frozenset({(1, 2)})"),
        ("{1: 'a', (2, 3): None, None: b'\\xff'}", "{1: 'a', (2, 3): None, None: b'\\xff'}"),
        ("2 ** 200", str(2**200)),
        ("'\\ud800'", "'\ufffd'"),
        ("'\U0001f600'", "'\U0001f600'"),
        ("None", "None"),
        ("x = 1", "None"),
    ],
)
def test_odd_results_are_kept_saved_and_replayed(source: str, value: str) -> None:
    one = agent(source)
    run = go(one)

    assert repr(run.calls[0].value) == value
    assert repr(one.load(one.save(run)).calls[0].value) == value
    assert repr(one.replay(run).calls[0].value) == value


@pytest.mark.parametrize(
    "source", ["class A:\n  x = 1\nA()", "class A: pass\nA", "lambda: 0", "print", "ValueError('x')", "range(3)", "..."]
)
def test_what_is_no_plain_value_becomes_one(source: str) -> None:
    one = agent(source)
    run = go(one)

    assert run.calls[0].ok
    assert one.load(one.save(run)) == run


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ("a\ud800b", "'a?b'"),
        ({"k\ud800": ["\ud800"]}, "{'k?': ['?']}"),
        (2**200, repr(2**200)),
        ({"a": [(1, 2), {3}, frozenset([4])]}, "{'a': [(1, 2), {3}, frozenset({4})]}"),
        (b"\xff", "b'\\xff'"),
        (Decimal("1.50"), "Decimal('1.50')"),
        (datetime.date(2020, 1, 2), "datetime.date(2020, 1, 2)"),
        (datetime.timedelta(1), "datetime.timedelta(days=1)"),
        (UUID(int=5), "'00000000-0000-0000-0000-000000000005'"),
        ([Fraction(1, 2)], "['1/2']"),
        (range(3), "'range(0, 3)'"),
        (1j, "1j"),
        (None, "None"),
        (object, "'<builtins.object>'"),
    ],
)
def test_whatever_a_tool_gives_reaches_the_program(value: Any, seen: str) -> None:
    @tool(effect="pure")
    def give() -> Any:
        return value

    assert ran("repr(give())", tools=(give,)).value == seen


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8")) | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3),
    max_leaves=8,
)
ECHO: dict[str, Any] = {}


@given(PLAIN)
@settings(max_examples=25)
def test_a_value_comes_through_a_program_and_a_call_of_it_as_it_was(value: Any) -> None:
    if not ECHO:
        ECHO["agent"] = agent("echo(give())", tools={"give": lambda: ECHO["value"], "echo": {"fn": lambda x: x}})
    ECHO["value"] = value
    run = ECHO["agent"].run("go").run

    assert [call.value for call in run.calls] == [value, value, value]
    assert run.calls[2].args in ({"argument_1": value}, {"x": value})


# ---- one gate: memory, breaker, effects, hooks


def test_memory_answers_a_call_of_a_program() -> None:
    bodies = []

    @tool(effect="pure", cache_ttl_s=60.0)
    def slow(k: str) -> str:
        bodies.append(k)
        return f"v{k}"

    run = go(agent("[slow('a'), slow('a'), slow('b')]", tools=(slow,), memory=TtlMemory()))

    assert (bodies, [call.reused for call in run.calls]) == (["a", "b"], [False, False, True, False])


def test_an_open_circuit_is_raised_in_the_program() -> None:
    bodies = []

    @tool(effect="pure", breaker=BreakerPolicy(failures=2, open_s=30.0))
    def fail(n: int) -> str:
        bodies.append(n)
        raise ValueError("no")

    source = "said = []\nfor n in range(4):\n  try:\n    fail(n)\n  except RuntimeError as error:\n    said.append(str(error))\nsaid"
    call = ran(source, tools=(fail,))

    assert bodies == [0, 1]
    assert [said.split()[0] for said in call.value] == 2 * ["raised:ValueError"] + 2 * ["refused:circuit_open"]


def test_a_payment_that_failed_is_not_known_and_not_made_again() -> None:
    paid = []

    @tool(effect="at_most_once")
    def pay(x: int) -> str:
        paid.append(x)
        raise ConnectionError("lost")

    call = ran("try:\n  pay(1)\nexcept RuntimeError as error:\n  said = str(error)\nsaid", tools=(pay,))

    assert (paid, call.value) == ([1], "unknown_outcome (ConnectionError: lost)")


def test_a_hook_answers_a_call_of_a_program_in_its_place() -> None:
    ledger = Ledger()
    seen = []

    def before(about: Any, call: Any) -> Any:
        seen.append(call.tool)
        return Skip("nothing", why="not today") if call.tool == "pay" else None

    source = "try:\n  pay(1)\nexcept RuntimeError as error:\n  said = str(error)\n[said, read('a')]"
    call = ran(source, tools=(read, ledger.tool), hooks=Hooks(before_tool_call=before))

    assert (seen, ledger.paid) == (["run_program", "pay", "read"], [])
    assert call.value == ["skipped:not today", "va"]


def test_an_approval_function_is_asked_about_each_call() -> None:
    ledger = Ledger(approval=lambda x: x > 5)
    one = agent("[pay(1), pay(9), pay(2)]", tools=(ledger.tool,))
    answer = one.run("go")
    assert answer.run is not None

    assert ([wait.args for wait in answer.pending], ledger.paid) == ([{"x": 9}], [1])
    one.approve(answer.run, "p0.2")
    assert (one.drive(answer.run).text, ledger.paid) == ("done", [1, 9, 2])


@both
def test_programs_and_calls_of_one_turn_run_in_order(drive: Any) -> None:
    order: list[str] = []

    @tool(effect="pure")
    def look(k: str) -> str:
        order.append(k)
        return k

    @tool(effect="undeclared")
    def write(k: str) -> str:
        order.append(k)
        return k

    def program(*names: str) -> ToolCall:
        return ToolCall("run_program", {"program": "\n".join(f"look({name!r})" for name in names)}, names[0])

    turn = Decision(calls=(program("a1", "a2"), ToolCall("look", {"k": "b"}), program("c1", "c2"), ToolCall("write", {"k": "d"})))
    one = agent(turn, tools=(look, write))
    drive(one, one.start("go"))

    assert order == ["a1", "a2", "b", "c1", "c2", "d"]


def test_one_agent_runs_programs_of_many_runs_at_once() -> None:
    one = agent("[read(str(n)) for n in range(5)]", clock=None)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: one.run("go"), range(8)))

    assert [answer.run.calls[0].value for answer in answers if answer.run] == [["v0", "v1", "v2", "v3", "v4"]] * 8


# ---- pauses, cancellations and other processes


ELSEWHERE = """
import json, sys
from fsm_agent import Agent, Limits, ToolCall, tool
from fsm_agent.code_mode import CodeMode

paid = []

@tool(effect="pure")
def read(k: str) -> str:
    return f"v{k}"

@tool(effect="at_most_once", approval=True)
def pay(x: int) -> str:
    paid.append(x)
    return f"paid {x}"

@tool(where="client")
def ask(what: str) -> str:
    raise AssertionError("it runs at the client's")

def decide(ask):
    return "done" if ask.run.turns else ToolCall("run_program", {"program": source}, "p0")

source, text, *said = json.loads(sys.stdin.read())
agent = Agent([read, pay, ask], decide, limits=Limits.off(max_steps=99, max_turns=9), code_mode=CodeMode())
run = agent.load(text) if text else agent.start("go", run_id="far")
for word, call_id, value in said:
    getattr(agent, word)(run, call_id, *value)
answer = agent.drive(run)
print(json.dumps({
    "status": answer.status, "text": answer.text, "pending": [[one.call_id, one.kind, one.args] for one in answer.pending],
    "paid": paid, "saved": agent.save(run), "replays": agent.replay(run) == run, "results": [c.value for c in run.calls if not c.parent],
}))
"""
STEPS = """
seen = [read(k="1")]
seen.append(pay(x=5))
def inner(n):
    return [ask(what=f"q{n}"), n]
seen.append(inner(3))
try:
    pay(x=6)
except RuntimeError as error:
    seen.append(str(error))
print("all", len(seen))
seen
"""


def elsewhere(text: str, *said: Any) -> dict[str, Any]:
    """What a process of its own makes of a saved run, or of a new one, after these words."""
    told = json.dumps([STEPS, text, *said])
    command = [sys.executable, "-W", "error", "-c", ELSEWHERE]
    done = subprocess.run(command, input=told, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.stderr == ""
    made: dict[str, Any] = json.loads(done.stdout)
    return made


def test_a_program_goes_on_in_another_process_after_each_pause() -> None:
    first = elsewhere("")
    assert (first["status"], first["pending"], first["paid"]) == ("paused", [["p0.2", "approval", {"x": 5}]], [])

    second = elsewhere(first["saved"], ["approve", "p0.2", []])
    assert (second["pending"], second["paid"]) == ([["p0.3", "client", {"what": "q3"}]], [5])

    third = elsewhere(second["saved"], ["deliver", "p0.3", ["yes"]])
    assert (third["pending"], third["paid"]) == ([["p0.4", "approval", {"x": 6}]], [])

    last = elsewhere(third["saved"], ["deny", "p0.4", ["enough"]])
    assert (last["status"], last["text"], last["paid"], last["replays"]) == ("ok", "done", [], True)
    assert last["results"] == [
        {
            "result": ["v1", "paid 5", ["yes", 3], "denied:enough (a person did not let the call run)"],
            "printed": "all 4\n",
        }
    ]


@pytest.mark.parametrize(
    "spoiled",
    [
        lambda good: b"junk",
        lambda good: zlib.compress(b"junk"),
        lambda good: zlib.compress(bytes(3_000_000)),
        lambda good: good[:-10],
        lambda good: good + b"x",
        lambda good: bytes(len(good)),
        lambda good: b"\xff" * 99,
    ],
    ids=["junk", "packed junk", "too long", "cut", "longer", "zeros", "ones"],
)
def test_a_snapshot_that_is_none_is_a_clear_failed_call(spoiled: Any) -> None:
    ledger = Ledger(approval=True)
    one = agent("pay(1)\n'end'", tools=(ledger.tool,))
    run = go(one)
    assert run.program is not None
    run.program.snapshot = spoiled(run.program.snapshot)
    run = one.load(one.save(run))
    one.approve(run, "p0.1")
    answer = one.drive(run)

    assert (answer.text, ledger.paid) == ("done", [1])
    assert run.calls[0].error == "raised:RuntimeError"
    assert "session" in run.calls[0].detail or "cannot be read" in run.calls[0].detail
    assert "Traceback" not in run.calls[0].detail


def test_where_a_program_stood_is_kept_small_and_for_every_step() -> None:
    ledger = Ledger()
    one = agent("for n in range(4):\n    pay(n + 1)\n'end'", tools=(ledger.tool,))
    run = go(one)
    kept = [(number, event.snapshot) for number, (_, event) in enumerate(run.journal, 1) if isinstance(event, ProgramCalled)]

    assert len(kept) == 4
    for number, snapshot in kept:
        assert 0 < len(snapshot) < 0.75 * len(zlib.decompress(snapshot))
        again = one.replay(run, number)
        assert again.program is not None
        assert again.program.snapshot == snapshot


def test_a_run_that_lost_its_snapshot_does_not_begin_the_program_again() -> None:
    ledger = Ledger(approval=True)
    one = agent("pay(1)\npay(2)", tools=(ledger.tool,))
    run = go(one)
    assert run.program is not None
    run.program.snapshot = b""
    one.approve(run, "p0.1")
    answer = one.drive(run)

    assert (answer.status, ledger.paid) == ("ok", [1])
    assert words(run) == [("p0", "raised:RuntimeError"), ("p0.1", "ok")]


@both
@pytest.mark.parametrize("machine", [AGENT, TWO_STEPS], ids=["agent", "two steps"])
def test_a_run_that_is_cancelled_in_a_program_goes_on_from_its_last_call(drive: Any, machine: Any) -> None:
    ledger = Ledger()

    @tool(effect="pure")
    def stop() -> str:
        if not stopped:
            stopped.append(1)
            one.cancel(run)
        return "now"

    stopped: list[int] = []
    one = agent("[pay(1), stop(), pay(3)]", tools=(ledger.tool, stop), machine=machine)
    run = one.start("go")
    assert drive(one, run).stop_reason == "cancelled"
    assert (run.calls[0].error, ledger.paid) == ("cancelled", [1])
    run = one.load(one.save(run))
    answer = one.resume(run) if drive is sync else asyncio.run(one.aresume(run))

    assert (answer.stop_reason, ledger.paid) == ("answered", [1, 3])
    assert run.calls[0].value == ["paid 1", "now", "paid 3"]
    assert one.replay(run) == run


def test_a_task_is_cancelled_while_a_program_computes() -> None:
    one = agent("read('a')\nwhile True: pass", clock=None, code_mode=CodeMode(limit_s=0.3))
    run = one.start("go")

    async def main() -> None:
        task = asyncio.ensure_future(one.adrive(run))
        while run.program is None:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())

    assert run.stop is not None
    assert (run.stop.reason, words(run)[0]) == ("cancelled", ("p0", "cancelled"))


def test_the_event_loop_goes_on_while_a_program_computes() -> None:
    one = agent("while True: pass", clock=None, code_mode=CodeMode(limit_s=0.2))
    ticks = 0

    async def main() -> None:
        nonlocal ticks
        task = asyncio.ensure_future(one.arun("go"))
        while not task.done():
            await asyncio.sleep(0.005)
            ticks += 1

    asyncio.run(main())

    assert ticks >= 5


# ---- the workers


def workers() -> set[int]:
    """The processes of this one that are sandboxes, zombies too."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                name, _, rest = (entry / "stat").read_text(encoding="utf-8").partition("(")[2].rpartition(")")
            except OSError:
                continue
            if int(rest.split()[1]) == os.getpid() and name == "monty":
                found.add(int(entry.name))
    return found


proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def soon(test: Callable[[], bool]) -> bool:
    until = time.monotonic() + 5
    while not test() and time.monotonic() < until:
        time.sleep(0.005)
    return test()


@proc
def test_an_agent_that_is_dropped_leaves_no_process_behind() -> None:
    gc.collect()
    before = workers()
    one = agent("read('a')")
    assert workers() == before
    one.run("go")
    mine = workers() - before
    assert len(mine) == 1
    del one
    gc.collect()

    assert soon(lambda: not workers() & mine)


@proc
def test_a_process_that_ends_leaves_no_worker_behind() -> None:
    source = (
        "import os\n"
        "from fsm_agent import Agent, ToolCall\n"
        "from fsm_agent.code_mode import CodeMode\n"
        "turns = [ToolCall('run_program', {'program': '1/0'}), 'done']\n"
        "one = Agent([], lambda ask: turns[ask.run.turns], code_mode=CodeMode())\n"
        "one.run('go')\n"
        "print(*open(f'/proc/self/task/{os.getpid()}/children').read().split())\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, cwd=ROOT, check=True)
    pids = [int(pid) for pid in done.stdout.split()]

    assert (len(pids), done.stderr) == (1, "")
    assert soon(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in pids))


@proc
def test_a_closed_sandbox_lets_its_workers_go_and_starts_new_ones() -> None:
    gc.collect()
    before = workers()
    one = agent("read('a')")
    sandbox: Any = one.driver.host.programs
    for _ in range(2):
        assert go(one).calls[0].ok
        assert len(workers() - before) == 1
        sandbox.close()
        assert soon(lambda: not workers() - before)
    sandbox.close()


@proc
@pytest.mark.parametrize("after_s", [0.0, 0.05])
def test_a_worker_that_is_killed_costs_nothing_but_time(after_s: float) -> None:
    gc.collect()
    before = workers()

    def kill() -> None:
        for pid in workers() - before:
            os.kill(pid, signal.SIGKILL)

    @tool(effect="pure")
    def strike() -> str:
        """Kill the worker, between two stretches of the program or soon within the next."""
        timer = threading.Timer(after_s, kill)
        timer.start()
        if not after_s:
            timer.join()
        return "struck"

    busy = "n = 0\nfor i in range(1_000_000): n += i\n7"
    one = agent(f"strike()\n{busy}", "[read('a')]", tools=(read, strike), code_mode=CodeMode(limit_s=30.0))
    run = go(one)

    assert [call.value for call in run.calls] == [7, "struck", ["va"], "va"]


@proc
def test_a_program_that_loses_every_worker_fails_clearly() -> None:
    gc.collect()
    before = workers()
    over = threading.Event()

    def kill() -> None:
        while not over.is_set():
            for pid in workers() - before:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        call = ran("while True: pass", code_mode=CodeMode(limit_s=30.0))
    finally:
        over.set()
        thread.join()

    # Whether it is killed while it works or before depends on chance.
    assert call.error in ("raised:MontyCrashedError", "raised:RuntimeError", "raised:OSError")
    assert "Traceback" not in call.detail


# ---- building


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"limit_s": 0}, "expected seconds above 0"),
        ({"limit_s": -1.0}, "expected seconds above 0"),
        ({"limit_s": float("nan")}, "limit_s"),
        ({"limit_s": float("inf")}, "limit_s"),
        ({"limit_s": "1"}, "limit_s"),
        ({"max_bytes": 999_999}, "expected at least 1000000"),
        ({"max_bytes": 2e9}, "expected at least 1000000"),
        ({"max_bytes": True}, "expected at least 1000000"),
    ],
)
def test_figures_that_are_none_are_refused(parts: Any, why: str) -> None:
    with pytest.raises(BuildError, match=why):
        CodeMode(**parts)


def test_a_name_that_is_taken_or_none_is_refused() -> None:
    with pytest.raises(ContractError, match="two tools are named 'read'"):
        agent("1", code_mode=CodeMode(name="read"))
    with pytest.raises(ContractError, match="a tool's name"):
        agent("1", code_mode=CodeMode(name=""))


@pytest.mark.parametrize("wrong", [True, "run_program", {}, CodeMode])
def test_what_is_no_code_mode_is_refused(wrong: Any) -> None:
    with pytest.raises(BuildError, match="code_mode is"):
        agent("1", code_mode=wrong)


def test_a_state_that_does_not_allow_programs_refuses_them() -> None:
    assert ran("1", allowed={"gather": ["read"]}).error == "refused:not_allowed"


def test_a_program_may_only_call_what_its_state_allows() -> None:
    ledger = Ledger()
    call = ran("pay(1)", tools=(read, ledger.tool), allowed={"gather": ["read", "run_program"]})

    assert (call.error, ledger.paid) == ("raised:RuntimeError", [])
    assert call.detail.startswith("refused:not_allowed (tools allowed in state gather: read, run_program)")


@pytest.mark.parametrize("given_args", [{}, {"program": ""}, {"program": 1}, {"program": "1", "more": 1}, {"program": "x" * 100_001}])
def test_a_program_is_measured_like_any_argument(given_args: Any) -> None:
    run = go(agent(ToolCall("run_program", given_args, "p")))

    assert run.calls[0].error.startswith("args:")


class Shown:
    """A model that keeps the requests it was given."""

    def __init__(self) -> None:
        self.requests: list[Any] = []

    def reply(self, request: Any) -> Decision:
        self.requests.append(request)
        return Decision(text="done", finish="stop")


def test_a_model_is_offered_programs_with_what_they_can_call() -> None:
    @tool(effect="pure", secret=["token"])
    def login(token: str) -> str:
        return token

    model = Shown()
    ledger = Ledger()
    allowed = {"gather": ["read", "login", "run_program"]}
    Agent([read, ledger.tool, login], model, limits=FREE, code_mode=CodeMode(), allowed=allowed).run("go")
    offers = {offer.name: offer for offer in model.requests[0].tools}

    assert list(offers) == ["read", "login", "run_program"]
    assert offers["run_program"].description.splitlines()[1:] == ["def read(k: str): ...  # Read a value."]
    assert offers["run_program"].schema["required"] == ["program"]


NO_SANDBOX = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pydantic_monty":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
from fsm_agent import Agent
from fsm_agent.code_mode import CodeMode
from fsm_agent.core.errors import MissingExtra

mode = CodeMode()
Agent([], lambda ask: "done")
try:
    Agent([], lambda ask: "done", code_mode=mode)
except MissingExtra as error:
    print(error.extra, "|", error)
"""


def test_without_its_package_code_mode_names_the_extra() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", NO_SANDBOX], capture_output=True, text=True, cwd=ROOT, check=False)

    assert done.stderr == ""
    assert done.stdout == 'code | code mode needs the package \'pydantic-monty\': pip install "fsm-agent[code]"\n'


def test_a_program_runs_in_a_sync_drive_inside_a_loop_too() -> None:
    one = agent("read('a')")

    async def main() -> Any:
        try:
            return one.run("go").text
        except RunError as error:
            return str(error)

    assert asyncio.run(main()) == "done"
