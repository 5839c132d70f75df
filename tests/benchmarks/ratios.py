"""What the machine costs, as ratios taken in one run: ``python tests/benchmarks/ratios.py``.

Every ratio is the median of blocks measured in turn (plain, ours, plain, ...), each ours over the mean of its neighbours.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import plain  # noqa: E402

from fsm_agent import Agent, Limits, ToolCall, adapter  # noqa: E402
from fsm_agent.core.tools import Tool  # noqa: E402


def blocks(floor, ours, pairs=9):
    floor(), ours()
    floors, ratios = [floor()], []
    for _ in range(pairs):
        middle = ours()
        floors.append(floor())
        ratios.append(2 * middle / (floors[-2] + floors[-1]))
    return statistics.median(ratios)


def timed(work, times):
    def block():
        begun = time.perf_counter()
        for _ in range(times):
            work()
        return (time.perf_counter() - begun) / times

    return block


def orders(handle, cache, which):
    def work():
        cache.clear()
        for order in which:
            handle(order)

    return work


def lab_cost():
    same = [plain.handle(order) == adapter.handle(order) for order in plain.ORDERS]
    assert all(same), same
    for name, which in (("mixed orders", plain.ORDERS), ("happy order", plain.ORDERS[:1])):
        times = 2400 // len(which)
        ratio = blocks(
            timed(orders(plain.handle, plain.CACHE, which), times),
            timed(orders(adapter.handle, adapter.CACHE, which), times),
        )
        print(f"one order, {name}: {ratio:.2f} times the plain loop")


def step_cost():
    tool = Tool(name="work", fn=lambda n: n, effect="pure", breaker=None)
    agent = Agent([tool], lambda ask: ToolCall("work", {"n": ask.run.turns}) if ask.run.turns < int(ask.run.request) else "done")

    def steps(n):
        limits = Limits(
            max_steps=n + 10, max_turns=n + 10, max_tool_calls=n, max_same_tool_calls=n, max_same_observation=n, deadline_s=None
        )
        begun = time.perf_counter()
        assert agent.run(str(n), limits=limits).usage["tool_calls"] == n
        return (time.perf_counter() - begun) / n

    def short():
        return statistics.median(steps(100) for _ in range(40))

    short()
    ratios = []
    for _ in range(5):
        before = short()
        ratios.append(2 * steps(10_000) / (before + short()))
    print(f"a step of a run of 10,000 steps: {statistics.median(ratios):.2f} times a step of a run of 100")


def memory():
    engine, limits = adapter.desk().engine(), adapter.desk().limits()
    keep = [engine.start(plain.ORDERS[0], limits=limits) for _ in range(20)]
    gc.collect()
    tracemalloc.start()
    base = tracemalloc.get_traced_memory()[0]
    keep += [engine.start(plain.ORDERS[0], limits=limits) for _ in range(10_000)]
    gc.collect()
    print(f"a live run: {(tracemalloc.get_traced_memory()[0] - base) / 10_000:,.0f} bytes")
    tracemalloc.stop()


def concurrency():
    async def body(n: int) -> int:
        await asyncio.sleep(0.01)
        return n

    async def by_hand(n):
        calls, found = [], []
        for turn in (0,):
            calls.append({"n": n + turn})
            found.append(await body(n + turn))
        return found

    agent = Agent(
        {"body": {"fn": body, "args": {"n": {"type": "int"}}, "effect": "pure"}},
        lambda ask: "done" if ask.run.calls else ToolCall("body", {"n": int(ask.run.request)}),
    )

    async def together(one, n):
        begun = time.perf_counter()
        await asyncio.gather(*[one(k) for k in range(1, n + 1)])
        return time.perf_counter() - begun

    for n in (1_000, 10_000):
        ratio = blocks(
            lambda n=n: asyncio.run(together(by_hand, n)), lambda n=n: asyncio.run(together(lambda k: agent.arun(str(k)), n)), pairs=3
        )
        print(f"{n:,} whole agent runs at once: {ratio:.2f} times a bare gather of their tool calls")


def imports():
    def once(what):
        code = f"import time; t = time.perf_counter(); import {what}; print(time.perf_counter() - t)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        return float(done.stdout)

    ratio = blocks(lambda: once("transitions, attrs"), lambda: once("fsm_agent"), pairs=11)
    print(f"import fsm_agent: {ratio:.2f} times import transitions, attrs")


if __name__ == "__main__":
    lab_cost()
    step_cost()
    memory()
    imports()
    concurrency()
