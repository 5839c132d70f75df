"""The peer benchmark's second engine file: the lab as an agent whose model is a script that reads the messages.

It does what the files of the agent SDKs do: the model sees the history, chooses the next call, repairs by the reason in the last
result, and answers. Copied into the benchmark's `engines` folder as `fsm_agent_model_.py`.
"""

from __future__ import annotations

import asyncio
import json

import lab

from fsm_agent.agent import Agent
from fsm_agent.core.limits import Limits
from fsm_agent.core.values import Decision, EffectClass, Policy, ToolCall
from fsm_agent.host.memory import DictMemory
from fsm_agent.host.tool_forms import make_tool

NAME = "fsm_agent: an agent with a scripted model"
DISTS = ["transitions", "attrs"]
IMPORT = "from fsm_agent import Agent"
_LIMITS = Limits(max_empty_results=None, max_same_call=None, deadline_s=None, min_evidence=0, max_attempts=lab.MAX_ATTEMPTS)


class Script:
    """The model: rules over the messages, as in the files of the SDKs."""

    def reply(self, request):
        messages = request.messages
        if len(messages) == 1:
            return _call(*lab.choose(json.loads(messages[0].text)))
        last = messages[-1]
        if not last.error:
            value = json.loads(last.text.removeprefix("(reused) "))
            return Decision(text=lab.say_ok(value["sku"], value["rows"]), finish="stop")
        if not lab.can_repair(last.error, len(messages) // 2):
            return Decision(text=lab.say_fail([last.error]), finish="stop")
        call = messages[-2].calls[-1]
        tool, args, _ = lab.fix(last.error, call.tool, call.args)
        return _call(tool, args)


def _call(tool, args):
    return Decision(calls=(ToolCall(tool, args),), finish="tool_calls")


def _agent(tools, cache):
    return Agent(tools, Script(), limits=_LIMITS, policy=Policy(reserve_answer=False), memory=DictMemory(cache), ttl_s=float("inf"))


def _tool(name, fn, contract):
    return make_tool(
        fn, name=name, args=contract["args"], returns=contract["returns"], effect=EffectClass.PURE, breaker=None
    )


def build():
    return _agent([_tool(name, entry["fn"], entry) for name, entry in lab.TOOLS.items()], lab.CACHE)


def build_async():
    return _agent([_tool(name, _slow(name), entry) for name, entry in lab.TOOLS.items()], _Switched())


def handle(agent, order):
    return _form(agent.run(json.dumps(order), run_id="order"))


async def ahandle(agent, order):
    return _form(await agent.arun(json.dumps(order), run_id="order"))


def _form(answer):
    run = answer.run
    last = run.last
    errors = list(run.errors)
    return {
        "ok": bool(last.ok),
        "answer": answer.text,
        "rows": [dict(row) for row in last.value["rows"]] if last.ok else [],
        "errors": errors,
        "fixes": [lab.fix(error, "", {})[2] for error in errors[: run.tool_calls + run.bad_arguments - 1]],
        "attempts": len(run.calls),
        "calls": [call.tool for call in run.calls],
        "tool_runs": run.body_runs,
    }


def _slow(name):
    async def fn(sku, region, limit):
        if lab.DELAY:
            await asyncio.sleep(lab.DELAY)
        if lab.HOLD is not None:
            await lab.HOLD.wait()
        return lab.TOOLS[name]["fn"](sku=sku, region=region, limit=limit)

    return fn


class _Switched(dict):
    """The benchmark's cache, which it switches off where many runs of one order are in flight at once."""

    def get(self, key, default=None):
        return lab.CACHE.get(key, default) if lab.CACHE_ON else default

    def __setitem__(self, key, value):
        lab.CACHE[key] = value


class _Loop:
    """A model that asks for the one tool so many times."""

    def __init__(self):
        self.left = 0

    def reply(self, request):
        if not self.left:
            return Decision(text="done", finish="stop")
        self.left -= 1
        return _call("work", {"n": self.left})


def build_loop(log=False):
    model = _Loop()
    tool = make_tool(lambda n: n, name="work", args={"n": {"type": "int", "required": True}}, effect="pure", breaker=None)
    return model, Agent([tool], model, limits=Limits.off(max_steps=10**9))


def loop(engine, n):
    """One run of n model turns, each with one call."""
    model, agent = engine
    model.left = n
    return agent.run("go").run.tool_calls
