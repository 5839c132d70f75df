"""One secret through every path that a call can take: nothing that is kept, told, drawn or logged of the run holds it in clear."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from fsm_agent import Agent, Decision, Judgement, Limits, Policy, Retry, ToolCall, ToolDesk, Verdict
from fsm_agent.agui import agui_events
from fsm_agent.cli.live import Live
from fsm_agent.cli.trace import trace_lines
from fsm_agent.code_mode import CodeMode
from fsm_agent.core.autogpt_table import AUTOGPT
from fsm_agent.core.events import Decided
from fsm_agent.core.guards import turns_left
from fsm_agent.core.run import Run
from fsm_agent.core.table import Row, State, Table
from fsm_agent.core.trace import trace_of
from fsm_agent.core.values import StopReason
from fsm_agent.diagrams import dot, mermaid
from fsm_agent.guarded import Guarded
from fsm_agent.host.clock import ScriptedClock
from fsm_agent.host.hooks import Hooks, Skip
from fsm_agent.host.memory import TtlMemory
from fsm_agent.host.tool_forms import make_tool

CANARY = "canary-0b5e7a"
SAID = {"type": "str", "required": False, "default": CANARY}
ARGS = {"key": {"type": "str", "max_len": 40}, "n": {"type": "int", "max": 3, "default": 1}}


def fails(key: str, n: int = 1, note: Any = None) -> Any:
    raise ValueError(f"the key {key} is not known")


def pay(fn: Callable[..., Any] = lambda key, n=1: {"paid": n}, **declared: Any) -> Any:
    return make_tool(fn, **{"name": "pay", "args": ARGS, "secret": ["key"], "effect": "idempotent", "breaker": None, **declared})


def look(**declared: Any) -> Any:
    return make_tool(lambda n=1: n, name="look", args={"n": {"type": "int", "default": 1}}, **declared)


def call(args: Any = None, **more: Any) -> ToolCall:
    given = {"key": CANARY} if args is None else args
    return ToolCall(**{"tool": "pay", "args": given, "reason": f"pays with {CANARY}", "intent": f"use {CANARY}", "changed": CANARY, **more})


def turns(*said: Any) -> Callable[[Any], Any]:
    return lambda ask: said[ask.run.turns] if ask.run.turns < len(said) else "done"


def agent(*said: Any, tool: Any = None, **more: Any) -> Agent:
    tools = [tool if tool is not None else pay(), look()]
    return Agent(tools, turns(*said), **{"clock": ScriptedClock(), "memory": TtlMemory(), "limits": Limits(min_evidence=0), **more})


def settled(made: Agent, then: Callable[[Agent, Run], Any] | None = None) -> tuple[Agent, Run, list[Any]]:
    """A run driven to its end, or to what is done with it where it pauses; with all that was heard of it."""
    run = made.start("go")
    heard: list[Any] = list(made.stream(run))
    if then is not None:
        then(made, run)
        heard += list(made.stream(run))
    return made, run, heard


def decides(order: str, *args: Any, **named: Any) -> Callable[[Agent, Run], Any]:
    return lambda made, run: getattr(made, order)(run, "c", *args, **named)


def says(result_class: Any) -> Callable[[Any], Verdict]:
    return lambda outcome: Verdict(result_class=result_class, reason=f"because of {CANARY}")


def cancels(made: Agent, run: Run) -> None:
    made.cancel(run)
    made.resume(run)


ASKED = {"tool": pay(approval=True)}
FAR = {"tool": pay(where="client")}
ONE = call(id="c")


def note(fn: Any = lambda key, note: 1, **rule: Any) -> Any:
    """A tool that takes a note beside its secret, which is measured too."""
    declared = {name: rule.pop(name) for name in ("approval", "effect", "cache_ttl_s", "negative_ttl_s") if name in rule}
    rule = rule or {"pattern": "^pays with [a-z]"}
    return pay(fn, args={"key": ARGS["key"], "note": {"type": "str", **rule}}, **declared)


def noted(words: Any) -> ToolCall:
    return call({"key": CANARY, "note": words}, id="c")


def replies(*said: Any) -> Callable[[Any], Any]:
    left = iter(said)
    return lambda ask: next(left, "done")


def telling(*words: Any, **more: Any) -> Any:
    raise RuntimeError(f"it fails at {words} {more}")


# Where no turn is left, what was decided never comes to the state that calls.
PICKING = Table(
    "picking",
    "pick",
    (State("pick", work="decide"), State("do", work="call", tools=None), State("end", work="answer")),
    (
        Row("pick", "decided", "do", (turns_left,)),
        *(Row("pick", outcome, "end") for outcome in ("decided", "proposed", "failed", "stopped")),
        *(Row("do", outcome, "end") for outcome in ("called", "failed", "no_progress", "stopped")),
    ),
)


PATHS: dict[str, Callable[[], Any]] = {
    "a call": lambda: settled(agent(ONE)),
    "a call as text": lambda: settled(agent(call(json.dumps({"key": CANARY}), id="c"))),
    "a call with a text beside it": lambda: settled(agent(Decision(calls=(ONE,), text=f"I pay with {CANARY}"))),
    "a call with a question beside it": lambda: settled(agent(Decision(calls=(ONE,), question=f"is it {CANARY}?"))),
    **{
        f"a call of {kind} with a text beside it": lambda args=args: settled(  # type: ignore[misc]
            agent(Decision(calls=(call(args, id="c"),), text=f"I pay with {CANARY}", question=f"{CANARY}?", citations=(CANARY,)))
        )
        for kind, args in (("a list", [CANARY]), ("broken text", '{"key": "' + CANARY))
    },
    "a verdict whose next action cannot be read": lambda: settled(
        agent("done", verify=asking(Judgement(decision="need_more", reason=f"try {CANARY}", next_action=call([CANARY]))))
    ),
    "a final answer that cites the secret": lambda: settled(
        agent(Decision(calls=(ONE,), text="done", citations=(f"of {CANARY}",), question=f"is it {CANARY}?", finish="stop"))
    ),
    "arguments of broken text": lambda: settled(agent(call('{"key": "' + CANARY, id="c"))),
    "arguments that are a list": lambda: settled(agent(call([CANARY], id="c"))),
    "arguments that are a text of a list": lambda: settled(agent(call(json.dumps([CANARY]), id="c"))),
    "a secret of the wrong type": lambda: settled(agent(call({"key": [CANARY]}, id="c"))),
    "a secret that is too long": lambda: settled(agent(ToolCall("pay", {"key": CANARY * 4}, "c"))),
    "another argument at fault": lambda: settled(agent(call({"key": CANARY, "n": 9}, id="c"))),
    "the secret under another name": lambda: settled(agent(call({"key": CANARY, "keys": CANARY}, id="c"))),
    "the secret in a text that is measured": lambda: settled(agent(noted(f"pays with {CANARY}"), tool=note())),
    "the secret in a text that is too long": lambda: settled(agent(noted(f"pays with {CANARY}"), tool=note(max_len=20))),
    "the secret in a text of another pattern": lambda: settled(agent(noted(f"takes {CANARY}"), tool=note())),
    "the secret deep in another argument": lambda: settled(agent(noted({"head": ["Bearer " + CANARY]}), tool=note(type="any"))),
    "the secret deep in an argument at fault": lambda: settled(agent(noted([CANARY]), tool=note())),
    "a remembered call that repeats the secret": lambda: settled(
        agent(*[noted(f"pays with {CANARY}")] * 2, tool=note(effect="pure", cache_ttl_s=9))
    ),
    "a failure that repeats the secret deep": lambda: settled(
        agent(*[noted([CANARY])] * 2, tool=note(fails, type="any", effect="pure", negative_ttl_s=9))
    ),
    "edited arguments that repeat what was edited": lambda: settled(
        agent(noted(f"pays with {CANARY}"), tool=note(fails, approval=True)),
        decides("approve", {"key": "other", "note": f"pays with {CANARY}"}),
    ),
    "edited arguments at fault that repeat what was edited": lambda: settled(
        agent(noted(f"pays with {CANARY}"), tool=note(approval=True)),
        decides("approve", {"key": "other", "note": f"takes {CANARY}"}),
    ),
    "repaired arguments that repeat what was repaired": lambda: settled(
        agent(
            *[ToolCall("pay", {"key": CANARY * 4, "note": f"pays with {CANARY * 4}"})] * 2,
            tool=note(fails, effect="pure", negative_ttl_s=9),
            repairs={"args:length:key": lambda tool, args: (tool, {**args, "key": "other"})},
        )
    ),
    "another tool that a repair gives the secret to": lambda: settled(
        agent(
            noted(f"pays with {CANARY}"), tool=note(fails),
            repairs={"raised:ValueError": lambda tool, args: ("look", {"n": args["note"]})},
        )
    ),
    "a summary that calls a tool": lambda: settled(
        agent(
            "plan", *[ToolCall("look", {"n": n}) for n in range(3)],
            machine=AUTOGPT, limits=AUTOGPT.limits, close=replies(Decision(calls=(ONE,), text=f"pays with {CANARY}")),
        )
    ),
    "a repair": lambda: settled(
        agent(call({"key": CANARY, "n": 9}), repairs={"args:range:n": lambda tool, args: (tool, {**args, "n": 1})})
    ),
    "a repair that fails": lambda: settled(agent(call({"key": CANARY, "n": 9}), repairs={"args:range:n": telling})),
    "repairs without end": lambda: settled(
        agent(call({"key": CANARY, "n": 9}), repairs={"args:range:n": lambda tool, args: (tool, {**args, "n": args["n"] + 1})})
    ),
    "a tool that the state does not allow": lambda: settled(agent(ONE, allowed={"gather": ["look"]})),
    "more calls than a turn may have": lambda: settled(agent([ToolCall("look"), ONE], limits=Limits(max_calls_per_turn=1, min_evidence=0))),
    "no call left": lambda: settled(agent([ToolCall("look"), ONE, call()], limits=Limits(max_tool_calls=1))),
    "no call of the tool left": lambda: settled(
        agent([ONE, call({"key": CANARY, "n": 2})], limits=Limits(max_same_tool_calls=1, min_evidence=0))
    ),
    "the same call again": lambda: settled(agent(ONE, call(), call())),
    "the same call again, refused": lambda: settled(agent(ONE, call(), call(), policy=Policy(duplicates="refuse"))),
    "a body that raises": lambda: settled(agent(ONE, tool=pay(fails))),
    "a body that raises with the default of its secret": lambda: settled(
        agent(ToolCall("pay", {}, "c"), tool=pay(lambda key=CANARY: fails(key), args={"key": SAID}))
    ),
    "a body that raises and is tried again": lambda: settled(
        agent(ONE, tool=pay(fails, retry=Retry(attempts=2, backoff_s=0), classify=says("RETRYABLE")))
    ),
    "a body that raises once and for all": lambda: settled(agent(ONE, tool=pay(fails, effect="at_most_once"))),
    "a fatal result": lambda: settled(agent([ONE, call()], tool=pay(classify=says("FATAL")))),
    "a result of another shape": lambda: settled(agent(ONE, tool=pay(returns={"n": {"type": "int"}}))),
    "a remembered call": lambda: settled(agent(ONE, call(), tool=pay(effect="pure", cache_ttl_s=9))),
    "a remembered failure": lambda: settled(agent(ONE, call(), tool=pay(fails, effect="pure", negative_ttl_s=9))),
    "two calls that share a run": lambda: settled(agent([ONE, call()], tool=pay(effect="pure"))),
    "a final answer beside it": lambda: settled(agent(Decision(calls=(ONE,), text="done", finish="stop"))),
    "a reply that was cut off": lambda: settled(agent(Decision(calls=(ONE,), finish="length"))),
    "a hook that raises": lambda: settled(agent(ONE, hooks=Hooks(before_tool_call=telling))),
    "a hook that answers": lambda: settled(agent(ONE, hooks=Hooks(before_tool_call=lambda about, one: Skip(1, f"not {one.args}")))),
    "an approval": lambda: settled(agent(ONE, **ASKED), decides("approve")),
    "an approval with the mark": lambda: settled(agent(ONE, **ASKED), decides("approve", {"key": "[redacted]", "n": 2})),
    "edited arguments": lambda: settled(agent(ONE, **ASKED), decides("approve", {"key": f"{CANARY}-2", "n": 2})),
    "edited arguments at fault": lambda: settled(agent(ONE, **ASKED), decides("approve", {"key": CANARY * 4})),
    "edited arguments that are none": lambda: settled(agent(ONE, **ASKED), decides("approve", [CANARY])),
    "edited arguments of text": lambda: settled(agent(ONE, **ASKED), decides("approve", json.dumps({"key": CANARY}))),
    "a denial": lambda: settled(agent(ONE, **ASKED), decides("deny", f"not with {CANARY}")),
    "a denial that stops": lambda: settled(
        agent([ONE, call()], policy=Policy(on_denied="stop"), **ASKED), decides("deny", f"not {CANARY}")
    ),
    "a new message": lambda: settled(agent(ONE, **ASKED), lambda made, run: made.message(run, "never mind")),
    "a client's result": lambda: settled(agent(ONE, **FAR), decides("deliver", {"paid": 1})),
    "a client's error": lambda: settled(agent(ONE, **FAR), decides("deliver_error", "Refused", f"{CANARY} is not known")),
    "a cancelled pause": lambda: settled(agent(ONE, **ASKED), cancels),
    "what a verifier asks for": lambda: settled(
        agent("done", verify=asking(Judgement(decision="need_more", reason=f"try {CANARY}", next_action=ONE)))
    ),
    "time that is up": lambda: settled(agent([ToolCall("look"), ONE], limits=Limits(deadline_s=0.0))),
    "a call that never comes to the state that calls": lambda: settled(
        agent(ONE, machine=PICKING, limits=Limits(max_turns=1, min_evidence=0))
    ),
    "arguments that are a list, and what its provider wants back": lambda: settled(
        agent(Decision(calls=(call([CANARY], id="c"),), kept={"said": [CANARY]}))
    ),
    "a state that only decides": lambda: settled(agent(ONE, limits=Limits(max_turns=1, min_evidence=0))),
}  # fmt: skip


def asking(judgement: Judgement) -> Callable[[Any], Any]:
    return lambda ask: judgement if ask.run.verify_rounds == 1 else True


def outputs(made: Agent, run: Run, heard: list[Any]) -> dict[str, str]:
    """Everything that is kept or told of a settled run, as text."""
    saved = made.save(run)
    loaded = made.load(saved)
    answer = made.answer(run)
    return {
        "saved run": saved,
        "the run itself": repr(run),
        "journal": repr(run.journal),
        "trace": "\n".join(map(str, trace_of(run))),
        "path in words": "\n".join(trace_lines(run)),
        "events as they came": repr(heard),
        "events for a page": repr([list(agui_events(trace_of(run), thread_id="t", run=run, agent=made))]),
        "answer": repr(attrs.evolve(answer, run=None)) + answer.text + str(answer.stop),
        "history": repr(made.history(run)),
        "loaded and replayed": repr(made.replay(loaded)),
        "diagrams": mermaid(made.engine.setup.table) + dot(made.engine.setup.table),
        "memory": repr([*vars_of(made.driver.host.memory)]),
    }


def vars_of(memory: Any) -> list[Any]:
    return [*memory._kept.items()]


@pytest.mark.parametrize("path", PATHS)
def test_what_is_declared_secret_is_nowhere_in_clear_once_its_call_is_settled(path: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        made, run, heard = PATHS[path]()
    assert run.done
    for name, text in outputs(made, run, heard).items():
        assert CANARY not in text, (name, text[max(0, text.index(CANARY) - 200) : text.index(CANARY) + 60])
    assert CANARY not in caplog.text
    assert made.replay(run) == run
    assert made.load(made.save(run)) == run


@pytest.mark.parametrize("path", [path for path in PATHS if path not in ("time that is up",)])
def test_each_of_these_paths_is_about_the_secret(path: str) -> None:
    _, run, _ = PATHS[path]()

    assert "[redacted" in repr(run.calls)
    assert run.stop is not None
    assert run.stop.reason is not StopReason.MODEL_ERROR


@pytest.mark.parametrize(("secret", "raises"), [(["key"], {}), ([], {"max_attempts": 2})])
def test_no_raise_is_proposed_for_a_repair_of_arguments_of_which_only_a_seal_is_left(secret: list[str], raises: Any) -> None:
    paid: list[Any] = []
    repairs = {"args:range:n": lambda tool, args: (tool, {**args, "n": 1})}
    tool = pay(lambda key, n=1: paid.append(key), secret=secret)
    limits = Limits(max_attempts=1, min_evidence=0)
    made, run, _ = settled(agent(call({"key": CANARY, "n": 9}), tool=tool, repairs=repairs, limits=limits, policy=Policy(redecide=False)))
    assert run.stop is not None
    assert run.stop.raise_to == raises
    if raises:
        made.resume(run, **raises)
    assert paid == ([CANARY] if raises else [])


def test_a_pause_shows_marks() -> None:
    made = agent(ONE, **ASKED)
    run = made.start("go")
    made.drive(run)

    assert CANARY not in repr(made.pending(run))
    assert CANARY not in made.answer(run).text


def test_a_desk_and_a_session_keep_no_secret() -> None:
    desk = ToolDesk(tools={"pay": {"fn": lambda key, n=1: n, "args": ARGS, "secret": ["key"]}}, default_tool="pay")
    kept = [desk.call_tool("pay", {"key": CANARY}), desk.run({"prefer": "pay", "key": CANARY}).calls, desk.cache]
    session = Guarded([pay()]).session()
    kept += [session.call("pay", args) for args in ({"key": CANARY, "n": 9}, [CANARY], {"key": CANARY})]
    kept.append(session.save())

    assert CANARY not in repr(kept)
    assert desk.call_tool("pay", {"key": CANARY})["ok"]


PROGRAMS = {
    "refused and caught": f"a = look(n=2)\ntry:\n    pay(key='{CANARY}')\nexcept RuntimeError as error:\n    print(error)\na",
    "refused and not caught": f"look(n=2)\npay(key='{CANARY}')",
    "by position": f"pay('{CANARY}', 2)",
    "printed before": f"print('{CANARY}')\npay(key='{CANARY}')",
    "asked more than once": f"for n in [1, 2]:\n    try:\n        pay(key='{CANARY}')\n    except RuntimeError:\n        look(n=n)\n1",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_that_names_a_secret_leaves_none_in_its_text_its_snapshots_and_what_it_printed(program: str) -> None:
    made = agent(ToolCall("run_program", {"program": PROGRAMS[program]}, "p"), code_mode=CodeMode())
    made, run, heard = settled(made)

    assert run.done
    for name, text in outputs(made, run, heard).items():
        if name != "events as they came":
            assert CANARY not in text, (name, text[max(0, text.index(CANARY) - 200) : text.index(CANARY) + 60])
    assert not [event for _, event in run.journal if CANARY.encode() in getattr(event, "snapshot", b"")]
    assert made.replay(run) == run
    assert made.load(made.save(run)) == run


def test_a_program_that_was_loaded_in_between_tells_nothing_at_all_of_what_it_said() -> None:
    program = f"try:\n    pay(key='{CANARY}')\nexcept RuntimeError:\n    print('{CANARY}')\nask()\n'{CANARY}'"
    ask = make_tool(lambda: 1, name="ask", approval=True)
    made = Agent([pay(), ask], turns(ToolCall("run_program", {"program": program}, "p")), code_mode=CodeMode(), clock=ScriptedClock())
    run = made.start("go")
    made.drive(run)
    assert run.paused
    run = made.load(made.save(run))
    made.approve(run, run.open_calls[-1].id)
    made.drive(run)

    assert run.calls[0].value == {"result": "[redacted]", "printed": "[redacted]"}
    assert CANARY not in made.save(run)
    assert made.replay(run) == run


@pytest.mark.parametrize("fault", ["", " length", " type:n", " no fault at all"])
@pytest.mark.parametrize(
    ("rule", "n", "error"),
    [({}, 1, ""), ({"max_len": 5}, 1, "args:length:key"), ({"pattern": "^c"}, 1, "args:pattern:key"), ({}, "1", "args:type:n")],
)
def test_a_seal_that_a_decider_copies_is_measured_like_any_text_and_replays_alike(fault: str, rule: Any, n: Any, error: str) -> None:
    seal = f"[redacted 1a2b3c4d{fault}]"
    tool = pay(args={"key": {"type": "str", **rule}, "n": {"type": "int"}})
    made, run, _ = settled(agent(*[ToolCall("pay", {"key": seal, "n": n})] * 2, tool=tool))

    assert [one.error for one in run.calls] == [error, error]
    assert made.replay(run) == run
    assert made.load(made.save(run)) == run


def test_what_a_client_answers_for_a_secret_is_remembered_for_that_secret_alone() -> None:
    said = [ToolCall("pay", {"key": key}, name) for name, key in zip("abc", (CANARY, CANARY, "another"), strict=True)]
    made = agent(*said, tool=pay(where="client", effect="pure", cache_ttl_s=9))
    run = made.start("go")
    made.drive(run)
    made.deliver(run, "a", {"paid": 1})
    made.drive(run)

    assert [one.call_id for one in made.pending(run)] == ["c"]
    assert [(one.id, one.value, one.reused) for one in run.calls] == [("a", {"paid": 1}, False), ("b", {"paid": 1}, True)]
    assert CANARY not in repr(vars_of(made.driver.host.memory))


NONE_LEFT = {"max_same_tool_calls": {"pay": 0}, "max_tool_calls": 1, "max_steps": 3}


@pytest.mark.parametrize("limits", [Limits(), *(Limits(**{name: most}) for name, most in NONE_LEFT.items())])
@pytest.mark.parametrize("given", ["x", 7])
def test_a_call_that_a_repair_gives_to_a_tool_with_secrets_replays_alike(limits: Limits, given: Any) -> None:
    look = make_tool(fails, name="look", args={"key": {"type": "str", "max_len": 3}})
    repairs = {error: lambda tool, args: ("pay", {"key": args["key"]}) for error in ("raised:ValueError", "args:type:key")}
    made = Agent([pay(), look], turns(ToolCall("look", {"key": given}), "done"), repairs=repairs, limits=limits)
    run = made.start("go")
    made.drive(run)

    assert run.calls[0].tool == "pay"
    assert made.replay(run) == run
    assert made.load(made.save(run)) == run


@pytest.mark.parametrize("name", ["key", "code"])
@pytest.mark.parametrize("key", [CANARY, 98765432, 9876.5432, CANARY.encode(), [98765432]], ids=str)
def test_a_secret_that_a_repair_gives_to_a_tool_without_secrets_is_kept_nowhere_and_replays_alike(key: Any, name: str) -> None:
    before = pay(fails, args={"key": {"type": "any"}})
    after = make_tool(lambda **given: "in", name="after", args={name: {"type": "any"}}, effect="pure", cache_ttl_s=9)
    mends = {"raised:ValueError": lambda tool, args: ("after", {name: args["key"]})}
    made = Agent([before, after], turns(call({"key": key}, reason="")), repairs=mends, clock=ScriptedClock(), memory=TtlMemory())
    _, run, heard = settled(made)

    assert run.calls[0].tool == "after"
    assert run.calls[0].ok
    assert not [where for where, text in outputs(made, run, heard).items() if str(key).strip("[]b'") in text]
    assert made.replay(run) == run


@pytest.mark.parametrize("key", [98765432, 9876.5432, CANARY.encode()], ids=str)
def test_a_secret_that_is_no_text_is_sealed_under_another_name_too(key: Any) -> None:
    tool = pay(args={"key": {"type": "any"}, "note": {"type": "any"}}, fn=lambda key, note: 1)
    made, run, heard = settled(agent(call({"key": key, "note": key}, reason=""), tool=tool))

    assert run.calls[0].ok
    assert not [where for where, text in outputs(made, run, heard).items() if str(key).strip("b'") in text]
    assert made.replay(run) == run


def test_the_default_of_a_secret_is_shown_to_nobody() -> None:
    given = {"key": SAID, "n": {"type": "int", "default": 1}}
    tables = [given, {"type": "object", "properties": {"key": {"type": "string", "default": CANARY}, "n": {"default": 1}}}]
    for tool in [pay(lambda key=CANARY, n=1: n, args=args) for args in tables]:
        parts = tool.argument_schema()["properties"]
        assert ("default" in parts["key"], parts["n"]["default"]) == (False, 1)
        assert tool.filled({"n": 2}) == {"n": 2, "key": CANARY}


@pytest.mark.parametrize("said", [ONE, "done"], ids=["by a decision", "by a verdict"])
def test_a_saved_run_whose_journal_has_lost_what_was_asked_for_goes_on(said: Any) -> None:
    made = agent(said, verify=asking(Judgement(decision="need_more", next_action=ONE)), **ASKED)
    run = made.start("go")
    made.drive(run)
    saved = json.loads(made.save(run))
    saved["run"]["journal"] = []
    run = made.load(json.dumps(saved))
    made.approve(run, run.open_calls[0].id)
    made.drive(run)

    assert run.calls[0].ok
    assert CANARY not in repr(run.calls)


def test_what_is_decided_after_a_resume_is_not_sealed_for_the_calls_that_were_taken_up_again() -> None:
    see = make_tool(lambda key: f"seen {key}", name="see", args={"key": {"type": "str"}})
    first = [call({"key": CANARY, "n": 9}, id="c"), ToolCall("look", {"n": "many"})]
    made = Agent(
        [pay(), look(), see], turns(first, ToolCall("see", {"key": "open"}), "done"), clock=ScriptedClock(),
        repairs={"args:type:n": lambda tool, args: (tool, {"n": 1})},
        limits=Limits(max_attempts=1, stop_after_tool_calls=2, max_same_tool_calls={"look": 0}),
    )  # fmt: skip
    run = made.start("go")
    made.drive(run)
    made.resume(run, max_attempts=2, stop_after_tool_calls=9)

    assert [(one.tool, one.value) for one in run.calls if one.ok] == [("see", "seen open")]
    assert run.calls[-1].args == {"key": "open"}
    asked = [one for _, event in run.journal if isinstance(event, Decided) for one in event.decision.calls]
    assert asked[-1].args == {"key": "open"}
    assert made.replay(run) == run


@pytest.mark.parametrize("words", [CANARY, f"pays with {CANARY}", {"head": ["Bearer " + CANARY]}], ids=str)
def test_what_repeats_a_secret_is_shown_with_a_mark_while_its_call_waits_and_keeps_its_value(words: Any) -> None:
    paid: list[Any] = []
    made = agent(noted(words), tool=note(lambda key, note: paid.append((key, note)), type="any", approval=True))
    run = made.start("go")
    told = repr(list(agui_events(made.stream(run), thread_id="t", run=run, agent=made)))
    (pending,) = made.answer(run).pending
    assert not [text for text in (told, repr(pending), "\n".join(trace_lines(run))) if CANARY in text]

    made.approve(run, "c", args=pending.args)
    made.drive(run)
    assert paid == [(CANARY, words)]
    assert made.replay(run) == run


def test_a_call_that_runs_is_printed_without_its_secret(capsys: pytest.CaptureFixture[str]) -> None:
    made = agent(noted(f"pays with {CANARY}"), tool=note())
    run = made.start("go")
    live = Live(run, quiet=False)
    for event in made.stream(run):
        live.show(event)

    told = capsys.readouterr().err
    assert CANARY not in told
    assert '> pay(key="[redacted]", note="pays with [redacted]")' in told
