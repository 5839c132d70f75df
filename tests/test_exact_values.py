"""What is said in a run is made exact: no value raises out of it, and a run of whatever was said can be saved."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from enum import Enum, StrEnum
from typing import Any

import attrs
import pytest
from by_hand import Hand

from fsm_agent import Agent, Decision, Judgement, Limits, RunError, Tool, ToolCall, ToolDesk, Usage, Verdict
from fsm_agent.core.autogpt_table import AUTOGPT
from fsm_agent.core.errors import SavedRunError
from fsm_agent.core.events import Decided
from fsm_agent.core.exact_values import exact_args, exact_decision, exact_usage, exact_verdict, seen_exact, word
from fsm_agent.core.run import Run
from fsm_agent.core.saving import load, save
from fsm_agent.guarded import Guarded
from fsm_agent.host.clock import ScriptedClock
from fsm_agent.host.hooks import Hooks, Skip
from fsm_agent.host.memory import TtlMemory
from fsm_agent.host.model import ModelFailed
from fsm_agent.host.tool_forms import make_tool


class Boom(Exception):
    """What no run may let escape."""


def boom(self: object, *args: object, **named: object) -> Any:
    raise Boom


def hostile(base: type[Any], hook: str) -> Any:
    """An instance that raises wherever this is asked of it."""
    parts: dict[str, Any] = {hook: property(boom) if hook == "__class__" else boom}
    if hook == "__eq__":
        parts["__hash__"] = lambda self: 1
    given = {str: ("q",), int: (5,), float: (5.5,), tuple: (("q",),), bytes: (b"q",)}.get(base, ())
    made = base.__new__(type("Odd", (base,), parts), *given)
    if base is dict:
        dict.__setitem__(made, "q", 1)
    if base is list:
        list.append(made, "q")
    return made


class OddMeta(type):
    __eq__ = __hash__ = __repr__ = __instancecheck__ = __subclasscheck__ = boom  # type: ignore[assignment]

    def __getattribute__(cls, name: str) -> Any:
        return type.__getattribute__(cls, name) if name == "__mro__" else boom(cls)


class Shifting(Mapping[str, Any]):
    """A mapping that cannot be read."""

    def __getitem__(self, key: str) -> Any:
        raise Boom

    def __iter__(self) -> Iterator[str]:
        return iter(["q"])

    def __len__(self) -> int:
        return 1


HOOKS = ("__class__", "__eq__", "__hash__", "__len__", "__iter__", "__repr__", "__bool__", "__str__", "__getattribute__")
MORE = ("__getattr__", "__contains__", "__getitem__", "__deepcopy__", "__reduce_ex__", "__format__", "__await__", "__index__", "__float__")
VALUES: dict[str, Any] = {f"object{hook}": hostile(object, hook) for hook in (*HOOKS, *MORE)}
VALUES |= {f"{base.__name__}{hook}": hostile(base, hook) for base in (dict, list, str) for hook in HOOKS[:5]}
VALUES |= {f"{base.__name__}__class__": hostile(base, "__class__") for base in (int, tuple)}
VALUES |= {"a class of classes": OddMeta("Odd", (), {})(), "a mapping": Shifting(), "an object": object(), "a set": {1}}


def fails(value: Any) -> Any:
    class Odd(Exception):
        def __str__(self) -> str:
            return value

    raise Odd(value)


def body(value: Any = 1, **declared: Any) -> Any:
    return make_tool(lambda q="x": value, **{"name": "look", "args": {"q": {"type": "any", "default": 1}}, **declared})


def one(ask: Any) -> Any:
    return ToolCall("look", {"q": "x"}, "c") if ask.run.turns == 0 else "done"


def first(value: Any) -> Callable[[Any], Any]:
    return lambda ask: value if ask.run.turns == 0 else "done"


def driven(tool: Any, decide: Any = one, *, context: Any = None, request: Any = "go", **more: Any) -> Run:
    """A run driven to its end, answered, saved, loaded and replayed; only arguments and requests may be of what has no saved form."""
    agent = Agent([tool], decide, clock=ScriptedClock(), memory=TtlMemory(), **more)
    run = agent.start(request)
    agent.drive(run, context=context)
    assert agent.answer(run).text
    agent.history(run)
    try:
        text = agent.save(run)
    except SavedRunError as error:
        said = str(error)
        assert "/args" in said or "/request" in said
    else:
        again = agent.load(text)
        assert agent.replay(again) == again
    return run


def desk(value: Any, **entry: Any) -> ToolDesk:
    fn = {"fn": lambda q: value, "args": {"q": {"type": "any"}}, **entry}
    return ToolDesk(tools={"look": fn}, default_tool="look")


def held(value: Any, order: str, *args: Any, **declared: Any) -> None:
    agent = Agent([body(**declared)], one, clock=ScriptedClock())
    run = agent.start("go")
    agent.drive(run)
    getattr(agent, order)(run, "c", *args, value)
    agent.drive(run)


def spent(who: str, usage: Usage) -> Run:
    """A run in which a part of the host fails and says what that has cost."""

    def fails_at_a_price(ask: Any) -> Any:
        raise ModelFailed("invalid_request", "no", usage=usage)

    if who == "closer":
        return driven(body(), lambda ask: ToolCall("look"), close=fails_at_a_price, limits=Limits(max_tool_calls=1))
    return driven(body(), **({"verify": fails_at_a_price} if who == "verifier" else {"decide": fails_at_a_price}))


def summarized(decision: Decision) -> Run:
    """A run of seed 002's machine that found enough, and whose summary is this first, then a text."""

    def decide(ask: Any) -> Any:
        return "plan" if ask.run.state == "plan" else ToolCall("look")

    replies = iter([decision])
    return driven(
        body(), decide, close=lambda ask: next(replies, "said"), machine=AUTOGPT, limits=attrs.evolve(AUTOGPT.limits, min_evidence=1)
    )


ROWS = {"rows": {"type": "list", "max_len": 3, "item": {"q": {"type": "int", "min": 0}}}}
LOOSE = {"q": {"type": "any", "allowed": [1, 2], "min": 1, "max_len": 3, "pattern": "x"}}
N = {"args": {"q": {"type": "int"}}}
PATHS: dict[str, Callable[[Any], Any]] = {
    "result": lambda v: driven(body(v)),
    "result of a table": lambda v: driven(body(v, returns={"q": {"type": "int"}})),
    "result of loose rules": lambda v: driven(body({"q": v}, returns=LOOSE)),
    "result of one rule": lambda v: driven(body(v, returns={"type": "list", "item": {"type": "str"}})),
    "result of a schema": lambda v: driven(body(v, returns={"type": "object", "properties": {"q": {"type": "integer"}}})),
    "result decoded": lambda v: driven(body(v, decode_json=True)),
    "result with a condition": lambda v: driven(body(v, post={"holds": lambda value: value})),
    "result remembered": lambda v: driven(body(v, effect="pure", cache_ttl_s=5)),
    "result in rows": lambda v: driven(body({"rows": [{"q": v}]}, returns=ROWS)),
    "result awaited": lambda v: asyncio.run(Agent([body(v)], one).arun("go")),
    "decision": lambda v: driven(body(), first(v)),
    "decision in a list": lambda v: driven(body(), first([v])),
    "decision awaited": lambda v: asyncio.run(Agent([body()], first(v)).arun("go")),
    **{f"decision of {name}": lambda v, name=name: driven(body(), first(Decision(**{name: v})))
       for name in ("calls", "text", "citations", "question", "finish", "usage")},
    **{f"decision of calls and {name}": lambda v, name=name: driven(body(), first(Decision(**{"calls": (ToolCall("look"),), name: v})))
       for name in ("text", "citations", "question", "finish", "usage")},
    "one of the calls": lambda v: driven(body(), first(Decision(calls=(ToolCall("look"), v)))),
    "one of the citations": lambda v: driven(body(), first(Decision(text="x", citations=(v,)))),
    **{f"usage of {name}": lambda v, name=name: driven(body(), first(Decision(text="x", usage=Usage(**{name: v}))))
       for name in ("input_tokens", "output_tokens", "cost")},
    **{f"call of {name}": lambda v, name=name: driven(body(), first(ToolCall(**{"tool": "look", name: v})))
       for name in ("tool", "args", "id", "intent", "reason", "changed")},
    **{f"usage of {name} of a {who} that fails": lambda v, name=name, who=who: spent(who, Usage(**{name: v}))
       for name in ("input_tokens", "output_tokens", "cost") for who in ("decider", "verifier", "closer")},
    **{f"{name} of a summary": lambda v, name=name: summarized(Decision(**{"calls": (ToolCall("look"),), name: v}))
       for name in ("calls", "text", "question", "usage")},
    **{f"{name} of a call of a summary": lambda v, name=name: summarized(Decision(calls=(ToolCall(**{"tool": "look", name: v}),)))
       for name in ("tool", "args", "id", "reason")},
    "an argument": lambda v: driven(body(), first(ToolCall("look", {"q": v}))),
    "an argument of a number": lambda v: driven(body(**N), first(ToolCall("look", {"q": v}))),
    "an argument of loose rules": lambda v: driven(body(args=LOOSE), first(ToolCall("look", {"q": v}))),
    "an argument that is secret": lambda v: driven(body(secret=["q"]), first(ToolCall("look", {"q": v}))),
    "context": lambda v: driven(body(), context=v, hooks=Hooks(on_iteration=lambda about: None)),
    "request": lambda v: driven(body(), request=v),
    "normalized request": lambda v: driven(body(), normalizer=lambda request: v),
    "hook before a call": lambda v: driven(body(), hooks=Hooks(before_tool_call=lambda about, call: v)),
    "skip": lambda v: driven(body(), hooks=Hooks(before_tool_call=lambda about, call: Skip(v))),
    "why of a skip": lambda v: driven(body(), hooks=Hooks(before_tool_call=lambda about, call: Skip(1, v))),
    "hook between turns": lambda v: driven(body(), hooks=Hooks(should_continue=lambda about, state: v)),
    "strategy": lambda v: driven(body(), strategy=[lambda state: v]),
    "verdict of a verifier": lambda v: driven(body(), verify=lambda ask: v),
    **{f"judgement of {name}": lambda v, name=name: driven(body(), verify=lambda ask: Judgement(**{"decision": "need_more", name: v}))
       for name in ("decision", "reason", "next_action")},
    "closing text": lambda v: driven(body(), lambda ask: ToolCall("look"), close=lambda ask: v, limits=Limits(max_tool_calls=1)),
    "repair": lambda v: driven(body(**N), repairs={"args:type:q": lambda tool, args: v}),
    "repair's tool": lambda v: driven(body(**N), repairs={"args:type:q": lambda tool, args: (v, args)}),
    "repair's arguments": lambda v: driven(body(**N), repairs={"args:type:q": lambda tool, args: (tool, v)}),
    "repair's argument": lambda v: driven(body(**N), repairs={"args:type:q": lambda tool, args: (tool, {"q": v})}),
    "classifier": lambda v: driven(body(classify=lambda outcome: v)),
    **{f"verdict of {name}": lambda v, name=name: driven(body(classify=lambda outcome: Verdict(**{"result_class": "OK", name: v})))
       for name in ("reason", "retry_after_s")},
    "what a body raises": lambda v: driven(make_tool(lambda q=1: fails(v), name="look")),
    "what a decider raises": lambda v: driven(body(), lambda ask: fails(v)),
    "what a hook raises": lambda v: driven(body(), hooks=Hooks(before_tool_call=lambda about, call: fails(v))),
    "what a strategy raises": lambda v: driven(body(), strategy=[lambda state: fails(v)]),
    "what a verifier raises": lambda v: driven(body(), verify=lambda ask: fails(v)),
    "what a normalizer raises": lambda v: driven(body(), normalizer=lambda request: fails(v)),
    "what a repair raises": lambda v: driven(body(**N), repairs={"args:type:q": lambda tool, args: fails(v)}),
    "validate_result": lambda v: desk(1, returns={"q": {"type": "int"}, **ROWS}).validate_result("look", v),
    "validate_result of rows": lambda v: desk(1, returns=ROWS).validate_result("look", {"rows": v}),
    "validate_result of a row": lambda v: desk(1, returns=ROWS).validate_result("look", {"rows": [v, {"q": v}]}),
    "validate_args": lambda v: (desk(1).validate_args("look", v), desk(1).validate_args("look", {"q": v}), desk(1).validate_args(v, {})),
    "call_tool": lambda v: (desk(1).call_tool("look", v), desk(v).call_tool("look", {"q": v}), desk(1).call_tool(v, {})),
    "order": lambda v: (desk(v).handle(v), desk(v).handle({"q": v}), desk(v).handle({"prefer": v}), desk(1, returns=ROWS).handle({"q": v})),
    "rows of an order": lambda v: (desk({"rows": v}).handle({"q": 1}), desk({"rows": [v], "sku": v}).run_naive({"q": 1})),
    "session": lambda v: (Guarded([body(v)]).session().call("look", v), Guarded([body(v)]).session().call("look", {"q": v})),
    "what a client delivers": lambda v: held(v, "deliver", where="client"),
    "what a client's error is called": lambda v: held(v, "deliver_error", where="client"),
    "what a client's error says": lambda v: held(v, "deliver_error", "Gone", where="client"),
    "edited arguments": lambda v: held(v, "approve", approval=True),
    "reason of a denial": lambda v: held(v, "deny", approval=True),
}  # fmt: skip


TEXTS_ONLY = ("what a client's error is called", "what a client's error says", "reason of a denial")


@pytest.mark.parametrize("path", PATHS)
def test_no_value_raises_out_of_a_run_and_the_run_can_be_saved(path: str) -> None:
    # Every other one: each value goes down half of the paths, and each path is gone by half of the values.
    for name in list(VALUES)[list(PATHS).index(path) % 2 :: 2]:
        try:
            PATHS[path](VALUES[name])
        except RunError:
            assert path in TEXTS_ONLY, name
        except Boom as error:
            raise AssertionError(name) from error


class Tone(StrEnum):
    LOUD = "loud"


class Colour(Enum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "exact"),
    [
        ("x", "x"),
        (Tone.LOUD, "loud"),
        (hostile(str, "__str__"), "q"),
        (hostile(str, "__class__"), "q"),
        (Colour.RED, ""),
        (5, ""),
        (None, ""),
    ],
    ids=range(7),
)
def test_a_text_of_another_class_is_that_text_and_what_is_none_is_empty(value: Any, exact: str) -> None:
    assert word(value) == exact
    assert type(word(value)) is str


@pytest.mark.parametrize("args", [{}, {"q": 1}, "{}", None, [1], 5, b"x", (1,)])
def test_plain_arguments_stay_as_they_are(args: Any) -> None:
    assert exact_args(args) is args


def test_a_mapping_of_another_class_becomes_a_dict_and_an_object_is_named() -> None:
    assert exact_args(hostile(dict, "__iter__")) == {"q": 1}
    assert exact_args(Shifting()) == "<test_exact_values.Shifting>"
    assert exact_args(hostile(object, "__getattribute__")) == "<test_exact_values.Odd>"


@pytest.mark.parametrize(
    "given",
    [
        Decision(),
        Decision(text="x"),
        Decision(calls=(ToolCall("look", {"q": 1}, "c", "why", "so", "this"),)),
        Decision(calls=(ToolCall("look", None), ToolCall("look", "{}")), text="x", finish="stop"),
    ],
)
def test_an_exact_decision_is_taken_as_it_is(given: Decision) -> None:
    assert seen_exact(given)
    assert exact_decision(given) == given


def test_an_inexact_decision_keeps_all_that_can_be_kept() -> None:
    usage: Any = Usage(input_tokens=3, output_tokens="4", cost=float("inf"))  # type: ignore[arg-type]
    odd: Any = Decision(calls=[ToolCall(Tone.LOUD, {}, 5, [1], None, b"x")], citations=["a", 7], finish=None, usage=usage)  # type: ignore[arg-type]

    assert seen_exact(odd) == 0
    assert exact_decision(odd) == Decision(
        calls=(ToolCall("loud", {}),), citations=("a", "<7>"), usage=Usage(input_tokens=3), finish=""
    )
    assert exact_usage({"input_tokens": 3}) is None
    assert exact_verdict(Verdict(result_class="OK", reason=5, retry_after_s="7")) == Verdict(result_class="OK", reason="5")  # type: ignore[arg-type]


def test_a_citation_that_is_no_text_is_not_taken_for_the_id_that_it_looks_like() -> None:
    hand = Hand().decides(ToolCall("look", {}, "7")).gives("7")
    hand.decides(text="found", citations=(7,))  # type: ignore[arg-type]

    assert "citations point at no evidence: '<7>'" in hand.run.note


@pytest.mark.parametrize("event", [Decided(5), Decided(Decision(calls="look"))])  # type: ignore[arg-type]
def test_the_engine_itself_takes_no_odd_decision_in(event: Decided) -> None:
    hand = Hand()
    hand.tell(event)

    assert hand.run.note == "the calls of the decision are no calls"
    assert load(save(hand.run), hand.engine.setup) == hand.run


def nested(levels: int, kind: type[Any] = dict) -> Any:
    value: Any = kind()
    for _ in range(levels - 1):
        value = {"x": value} if kind is dict else [value]
    return value


HOLDS_ITSELF: dict[str, Any] = {}
HOLDS_ITSELF["me"] = HOLDS_ITSELF
TOO_DEEP = {
    "dicts": nested(400), "just": nested(201), "lists": {"q": nested(300, list)}, "both": {"q": [nested(300)]}, "itself": HOLDS_ITSELF,
    "a bare list": nested(300, list),
}  # fmt: skip


@pytest.mark.parametrize("name", TOO_DEEP)
def test_arguments_that_no_saved_run_could_hold_fault_their_call_and_the_run_is_saved(name: str) -> None:
    calls = [ToolCall("t", TOO_DEEP[name], "deep"), ToolCall("t", nested(200), "fine")]
    agent = Agent([Tool(name="t", fn=lambda **given: "hi")], lambda ask: "done" if ask.run.calls else calls)
    answer = agent.run("go")

    assert [(call.id, call.ok, call.error) for call in answer.run.calls] == [("deep", False, "args:type:args"), ("fine", True, "")]
    assert agent.load(agent.save(answer.run)) == answer.run
    assert agent.replay(answer.run) == answer.run
