"""Reports about what can be saved, each under the id that it has in the scenarios' README."""

from __future__ import annotations

import datetime
import enum
import json
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any

import pytest

from fsm_agent import Agent, Limits, SavedRunError, Tool, ToolCall
from fsm_agent.core.keys import call_key
from fsm_agent.host.clock import ScriptedClock
from fsm_agent.testing import ScriptedDecider


def off(**named: Any) -> Limits:
    """Every limit off but steps and those named."""
    return Limits.off(**{"max_steps": 500, "max_turns": 50, **named})


def tool(name: str, fn: Callable[..., Any], **fields: Any) -> Tool:
    return Tool(**{"name": name, "fn": fn, "effect": "pure", **fields})


def agent(*tools: Tool, turns: Any, then: str = "fail", **more: Any) -> Agent:
    decider = ScriptedDecider(turns, then=then)
    return Agent(tools, decider, **{"limits": off(), "clock": ScriptedClock(), **more})


class Locked:
    def __init__(self) -> None:
        self.lock = threading.Lock()


def test_br_093_what_cannot_be_saved_is_kept_as_a_text_that_names_its_type() -> None:
    kept = Locked()
    calls = [ToolCall("get", {}, "a"), ToolCall("obj", {}, "b")]
    one = agent(tool("get", lambda: dict), tool("obj", lambda: kept), turns=[calls, "done"])
    answer = one.run("go")
    assert answer.run is not None

    assert answer.stop_reason == "answered"
    for call, kind in zip(answer.run.calls, ("dict", "Locked"), strict=True):
        assert kind in str(call.value if call.ok else call.detail)
    assert one.load(one.save(answer.run)) == answer.run


class Colour(enum.Enum):
    RED = 1


ODD: dict[str, Any] = {
    "decimal": Decimal("1.10"),
    "uuid": uuid.UUID(int=5),
    "aware": datetime.datetime(2025, 1, 2, 3, 4, tzinfo=datetime.UTC),
    "date": datetime.date(2025, 1, 2),
    "delta": datetime.timedelta(seconds=1.5),
    "bytes": b"hi",
    "set": {1, 2, 3},
    "frozenset": frozenset({1, 2}),
    "tuple": (1, 2),
    "fraction": Fraction(1, 3),
    "complex": complex(1, 2),
    "big": 2**80,
    "range": range(0, 10, 2),
    "path": PurePosixPath("/a"),
    "none": None,
}


def test_br_130_values_come_back_equal_and_of_their_type_in_strict_json() -> None:
    one = agent(tool("vals", lambda: {**ODD, "member": Colour.RED}), turns=[ToolCall("vals", {}, "a"), "done"])
    answer = one.run("go")
    assert answer.run is not None
    text = one.save(answer.run)
    again = one.load(text)
    (call,) = again.calls

    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert {name: call.value[name] for name in ODD} == ODD
    assert {name: type(call.value[name]) for name in ODD} == {name: type(value) for name, value in ODD.items()}
    assert "RED" in str(call.value["member"])
    assert call_key("vals", call.value) == call_key("vals", answer.run.calls[0].value)


def test_br_132_a_value_that_cannot_be_saved_is_named_with_its_place_and_the_run_stays_usable() -> None:
    one = agent(turns=["done"])
    notes = {"outer": {"level1": [1, {"bad": threading.Lock()}]}}
    run = one.start("go", fields=notes)
    with pytest.raises(SavedRunError, match=r"outer.*level1.*1.*bad.*lock"):
        one.save(run)

    assert list(run.fields) == ["outer"]
    assert one.drive(run).stop_reason == "answered"
    run.fields["outer"]["level1"][1]["bad"] = "mended"
    run.first_fields["outer"]["level1"][1]["bad"] = "mended"
    assert one.load(one.save(run)).fields == run.fields


BUILD = """
import sys
from fsm_agent import Agent, Limits, Tool
from fsm_agent.testing import ScriptedClock, ScriptedDecider
def verifier(ask):
    return True
tools = [Tool(name=name, fn=lambda n: f"ran {n}", approval=lambda n: n > 0) for name in sys.argv[1:]]
limits = Limits.off(max_steps=500, max_turns=50)
one = Agent(tools, ScriptedDecider(["unused", "done"]), limits=limits, verify=verifier, clock=ScriptedClock())
run = one.load(sys.stdin.read())
one.approve(run, "a")
print(one.drive(run).evidence[0].value)
"""


def test_br_133_the_text_holds_data_only_and_functions_are_found_again_by_the_name_of_their_tool() -> None:
    held = Tool(name="t", fn=lambda n: "unused", approval=lambda n: n > 0)
    answer = agent(held, turns=[ToolCall("t", {"n": 1}, "a")], verify=lambda ask: True).run("go")
    assert answer.run is not None
    text = agent(held, turns=[]).save(answer.run)
    json.loads(text)
    assert answer.status == "paused"
    for word in ("lambda", "pickle", "function", "<locals>"):
        assert word not in text

    def elsewhere(*names: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", BUILD, *names], input=text, capture_output=True, text=True, check=False)

    assert elsewhere("t").stdout == "ran 1\n"
    assert "waits for the tool 't', which is not among other" in elsewhere("other").stderr
