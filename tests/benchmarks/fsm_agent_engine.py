"""The peer benchmark's engine file: the lab through the whole engine, over the benchmark's own tools and data.

It belongs into the benchmark's `engines` folder. What the adapter answers is mapped to the benchmark's form inside the timed part.
"""

from __future__ import annotations

import lab

from fsm_agent.core.agent_table import AGENT
from fsm_agent.core.engine import Engine
from fsm_agent.core.limits import Limits
from fsm_agent.core.setup import Setup
from fsm_agent.core.tools import Tool, Toolset
from fsm_agent.core.values import ToolCall
from fsm_agent.core.work import WORK
from fsm_agent.desk import ToolDesk
from fsm_agent.host.drivers import Driver

NAME = "fsm_agent: the whole engine"
DISTS = ["transitions", "attrs"]
IMPORT = "import fsm_agent"

_NOTES = {"region": f"region:{lab.FALLBACK_REGION}", "limit": f"limit:{lab.MAX_ROWS}", "tool": "tool:stock_lookup"}
_FIXES = {
    "region": lambda tool, args: (tool, {**args, "region": lab.FALLBACK_REGION}),
    "limit": lambda tool, args: (tool, {**args, "limit": lab.MAX_ROWS}),
    "tool": lambda tool, args: ("stock_lookup", args),
}


def build():
    return ToolDesk(
        tools=lab.TOOLS, default_tool="stock_lookup", repairs=lab.REPAIRS, fixes=_FIXES, cache=lab.CACHE, max_attempts=lab.MAX_ATTEMPTS
    )


def _form(answer):
    rows = answer["rows"]
    return {
        "ok": answer["ok"],
        "answer": answer["answer"],
        "rows": rows,
        "errors": answer["errors"],
        "fixes": [_NOTES[name] for name in answer["fixes"]],
        "attempts": answer["attempts"],
        "calls": [call["tool"] for call in answer["calls"]],
        "tool_runs": answer["tool_runs"],
    }


def handle(desk, order):
    return _form(desk.handle(order))


def _slow_entry(name):
    async def fn(sku, region, limit):
        if lab.DELAY:
            await lab.asyncio.sleep(lab.DELAY)
        if lab.HOLD is not None:
            await lab.HOLD.wait()
        return lab.TOOLS[name]["fn"](sku=sku, region=region, limit=limit)

    return {**lab.TOOLS[name], "fn": fn}


class _Switched(dict):
    """The benchmark's cache, which it switches off where many runs of one order are in flight at once."""

    def get(self, key, default=None):
        return lab.CACHE.get(key, default) if lab.CACHE_ON else default

    def __setitem__(self, key, value):
        lab.CACHE[key] = value


def build_async():
    return ToolDesk(
        tools={name: _slow_entry(name) for name in lab.TOOLS},
        default_tool="stock_lookup",
        repairs=lab.REPAIRS,
        fixes=_FIXES,
        cache=_Switched(),
        max_attempts=lab.MAX_ATTEMPTS,
    )


async def ahandle(desk, order):
    return _form(await desk.ahandle(order))


def live(desk, order):
    return desk.engine().start(order, limits=desk.limits())


def build_loop(log=False):
    seen = []

    def work(n):
        if log:
            seen.append(n)
        return n

    def decide(ask):
        turns = ask.run.turns
        return ToolCall("work", {"n": turns}) if turns < int(ask.run.request) else "done"

    tool = Tool(name="work", fn=work, effect="pure", breaker=None)
    return Driver(
        engine=Engine(Setup(table=AGENT, box=Toolset([tool]), work=WORK, limits=Limits(), offers=False)),
        decide=decide,
    )


def loop(driver, n):
    """One run of n steps, each a whole turn: decided, admitted, run, measured, folded, with all guards on."""
    limits = Limits(
        max_steps=n + 10, max_turns=n + 10, max_tool_calls=n, max_same_tool_calls=n, max_same_observation=n, deadline_s=None
    )
    run = driver.engine.start(str(n), limits=limits)
    driver.drive(run)
    return run.tool_calls
