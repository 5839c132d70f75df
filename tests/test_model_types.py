from __future__ import annotations

import datetime
import enum
import subprocess
import sys
import types
import uuid
from decimal import Decimal
from typing import Annotated, Any, Literal

import attrs
import pytest

from fsm_agent import Agent, Limits, ToolCall
from fsm_agent.core.contracts import ArgumentsContract, Length, Range
from fsm_agent.core.errors import ContractError, MissingExtra
from fsm_agent.core.model_types import ModelForm, ModelResult, holds_model, is_model
from fsm_agent.core.run import Call
from fsm_agent.core.signatures import argument_builder, arguments_of, result_of
from fsm_agent.core.values import ResultClass
from fsm_agent.host.tool_forms import make_tool

pydantic = pytest.importorskip("pydantic", reason="no Pydantic; pip install pydantic")
pytest.importorskip("jsonschema", reason='no JSON Schema; pip install "fsm-agent[jsonschema]"')

from pydantic import BaseModel, ConfigDict, Field, RootModel, field_validator  # noqa: E402


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


class Item(BaseModel):
    """One thing to send."""

    sku: str = Field(min_length=1, pattern="^[a-z]+$")
    count: int = Field(1, ge=1, le=9)
    size: Size = Size.SMALL


class Order(BaseModel):
    items: list[Item] = Field(min_length=1)
    day: datetime.date
    id: uuid.UUID | None = None
    gift: Item | None = None

    @field_validator("day")
    @classmethod
    def _no_past(cls, value: datetime.date) -> datetime.date:
        if value.year < 2000:
            raise ValueError("that day is over")
        return value


class Node(BaseModel):
    name: str
    children: list[Node] = []


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    at: datetime.datetime
    price: Decimal


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: list[str]


class Renamed(BaseModel):
    from_: str = Field(alias="from")


class Tags(RootModel[list[str]]):
    pass


class Careless(BaseModel):
    n: int = None  # type: ignore[assignment]


@pydantic.dataclasses.dataclass
class Spot:
    x: int
    y: int = 0


GOOD: dict[str, Any] = {"items": [{"sku": "a", "count": 2}], "day": "2026-01-02"}


def send(order: Order, urgent: bool = False) -> str:
    """Send an order.

    Args:
        order: what is sent
    """
    return f"{type(order).__name__} of {order.items[0].count} for {order.day.year}, {urgent}"


def only_call(fn: Any, args: Any) -> Call:
    left = [ToolCall(getattr(fn, "name", None) or fn.__name__, args)]
    answer = Agent([fn], lambda ask: left.pop() if left else "done", limits=Limits(deadline_s=None)).run("go")
    assert answer.run is not None
    return answer.run.calls[0]


def taking(annotation: Any, **default: Any) -> Any:
    def tool(x: Any) -> Any:
        return x

    if default:
        tool.__defaults__ = (default["default"],)
    tool.__annotations__ = {"x": annotation}
    return tool


def reasons(contract: ArgumentsContract, args: Any) -> list[str]:
    return [fault.reason for fault in contract.faults(args)]


def test_the_body_gets_a_real_instance() -> None:
    call = only_call(send, {"order": GOOD})
    assert (call.value, call.args) == ("Order of 2 for 2026, False", {"order": GOOD})


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        ({}, "missing:order"),
        ({"items": []} | {"day": "2026-01-02"}, "length:order"),
        (GOOD | {"colour": "red"}, "extra:order"),
        (GOOD | {"items": [{"sku": "a", "colour": "red"}]}, "extra:order"),
        (GOOD | {"items": [{"sku": "a", "count": "2"}]}, "type:order"),
        (GOOD | {"items": [{"sku": "a", "count": 2.0}]}, "type:order"),
        (GOOD | {"items": [{"sku": "a", "count": True}]}, "type:order"),
        (GOOD | {"items": [{"sku": "a", "count": 10}]}, "range:order"),
        (GOOD | {"items": [{"sku": "A"}]}, "pattern:order"),
        (GOOD | {"items": [{"sku": "a", "size": "m"}]}, "allowed:order"),
        (GOOD | {"day": "tomorrow"}, "pattern:order"),
        (GOOD | {"id": "1"}, "pattern:order"),
        ("an order", "type:order"),
        (None, "type:order"),
    ],
)
def test_a_model_is_measured_strictly_before_the_body(order: Any, reason: str) -> None:
    call = only_call(send, {"order": order})
    assert (call.error, call.body_runs) == (f"args:{reason}", 0)


def test_every_fault_has_its_place_inside_the_model() -> None:
    order = {"items": [{"sku": "a", "count": 0}, {"count": 1}], "day": 3}
    faults = arguments_of(send).faults({"order": order, "urgent": "no"})
    assert [(fault.reason, fault.path) for fault in faults] == [
        ("missing:order", ("order", "items", 1, "sku")),
        ("type:order", ("order", "day")),
        ("range:order", ("order", "items", 0, "count")),
        ("type:urgent", ("urgent",)),
    ]


def test_other_arguments_keep_their_own_rules_beside_a_model() -> None:
    def both(order: Order, n: Annotated[int, Range(1, 3)], word: str = "a") -> None: ...

    contract = arguments_of(both)
    assert reasons(contract, {"order": GOOD, "n": 4}) == ["range:n"]
    assert reasons(contract, {"n": "1", "more": 1}) == ["missing:order", "extra:more", "type:n"]
    assert contract.with_defaults({"order": GOOD, "n": 1}) == {"order": GOOD, "n": 1, "word": "a"}


def test_the_schema_for_providers_is_the_models_own_with_its_definitions_at_the_top() -> None:
    schema = arguments_of(send).json_schema()
    assert (schema["required"], schema["additionalProperties"]) == (["order"], False)
    assert set(schema["$defs"]) == {"Item", "Size"}
    order = schema["properties"]["order"]
    assert (order["description"], order["additionalProperties"]) == ("what is sent", False)
    assert order["properties"]["items"] == {"items": {"$ref": "#/$defs/Item"}, "minItems": 1, "title": "Items", "type": "array"}
    assert schema["$defs"]["Item"]["description"] == "One thing to send."


def test_one_class_behind_two_arguments_is_defined_once() -> None:
    def send_both(first: Order, second: Order) -> Any:
        return first, second

    schema = arguments_of(send_both).json_schema()
    assert set(schema["$defs"]) == {"Item", "Size"}
    assert schema["properties"]["first"] == schema["properties"]["second"]


def test_two_classes_of_one_name_are_told_apart() -> None:
    def other_item() -> Any:
        class Item(BaseModel):
            weight: float

        class Parcel(BaseModel):
            item: Item

        return Parcel

    def ship(order: Order, parcel: Any) -> Any:
        return order, parcel

    ship.__annotations__["parcel"] = other_item()
    contract = arguments_of(ship)
    assert set(contract.json_schema()["$defs"]) == {"Item", "Size", "parcel.Item"}
    assert contract.first_fault({"order": GOOD, "parcel": {"item": {"weight": 1.5}}}) == ""
    assert contract.first_fault({"order": GOOD, "parcel": {"item": {"sku": "a"}}}) == "missing:parcel"


@pytest.mark.parametrize(
    ("annotation", "value", "built"),
    [
        (Item | None, None, None),
        (Item | None, {"sku": "a"}, Item(sku="a")),
        (list[Item], [{"sku": "a"}, {"sku": "b"}], [Item(sku="a"), Item(sku="b")]),
        (dict[str, Item], {"x": {"sku": "a"}}, {"x": Item(sku="a")}),
        (tuple[Item, ...], [{"sku": "a"}], (Item(sku="a"),)),
        (Cat | Dog, {"kind": "dog", "tricks": ["sit"]}, Dog(kind="dog", tricks=["sit"])),
        (Annotated[Cat | Dog, Field(discriminator="kind")], {"kind": "cat", "lives": 9}, Cat(kind="cat", lives=9)),
        (Node, {"name": "a", "children": [{"name": "b"}]}, Node(name="a", children=[Node(name="b")])),
        (Open, {"a": 1, "b": 2}, Open(a=1, b=2)),
        (Strict, {"at": "2026-01-02T03:04:05Z", "price": "1.50"}, None),
        (Renamed, {"from": "x"}, Renamed(**{"from": "x"})),
        (Tags, ["a"], Tags(["a"])),
        (Careless, {"n": 3}, Careless(n=3)),
        (Spot, {"x": 1}, Spot(1)),
        (list[Spot], [{"x": 1, "y": 2}], [Spot(1, 2)]),
    ],
)
def test_annotations_that_hold_models_are_measured_and_built(annotation: Any, value: Any, built: Any) -> None:
    fn = taking(annotation)
    assert reasons(arguments_of(fn), {"x": value}) == []
    made = argument_builder(fn)({"x": value})["x"]
    if annotation is Strict:
        assert made == Strict(at=datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC), price=Decimal("1.50"))
    else:
        assert (type(made), made) == (type(built), built)


@pytest.mark.parametrize(
    ("annotation", "value", "reason"),
    [
        (Item | None, {}, "missing:x"),
        (Item | None, 3, "type:x"),
        (list[Item], [{"sku": 1}], "type:x"),
        (list[Item], {"sku": "a"}, "type:x"),
        (Cat | Dog, {"kind": "cow"}, "type:x"),
        (Node, {"name": "a", "children": [{"name": "b", "age": 1}]}, "extra:x"),
        (Open, {"b": 2}, "missing:x"),
        (Renamed, {"from_": "x"}, "missing:x"),
        (Tags, [1], "type:x"),
        (Careless, {"n": None}, "type:x"),
        (Spot, {"x": 1, "z": 2}, "extra:x"),
        (Annotated[list[Item], Length(1, 2)], [], "length:x"),
        (Annotated[list[Item], Length(1, 2)], [{"sku": "a"}] * 3, "length:x"),
        (Annotated[list[Item], Field(max_length=1)], [{"sku": "a"}] * 2, "length:x"),
    ],
)
def test_annotations_that_hold_models_refuse_what_does_not_fit(annotation: Any, value: Any, reason: str) -> None:
    assert arguments_of(taking(annotation)).first_fault({"x": value}) == reason


def test_a_description_beside_a_model_is_the_arguments() -> None:
    schema = arguments_of(taking(Annotated[Item, "the thing"])).json_schema()
    assert schema["properties"]["x"]["description"] == "the thing"


def test_defaults_of_models_are_the_functions_own() -> None:
    fn = taking(Item, default=Item(sku="z"))
    contract = arguments_of(fn)
    assert (contract.first_fault({}), contract.with_defaults({})) == ("", {})
    maybe = arguments_of(taking(Item | None, default=None))
    assert (maybe.first_fault({}), maybe.with_defaults({})) == ("", {"x": None})
    call = only_call(make_tool(fn, name="t"), {})
    assert (call.ok, call.value) == (True, {"sku": "z", "count": 1, "size": Size.SMALL})


def test_what_the_models_own_validators_refuse_is_a_failed_call() -> None:
    call = only_call(send, {"order": GOOD | {"day": "1999-01-02"}})
    assert (call.error, call.body_runs) == ("raised:ValidationError", 0)
    assert "that day is over" in call.detail


def test_secret_values_are_no_part_of_what_a_validator_says() -> None:
    class Login(BaseModel):
        key: str

        @field_validator("key")
        @classmethod
        def _refuse(cls, value: str) -> str:
            raise ValueError("no")

    def enter(login: Any) -> None: ...

    enter.__annotations__["login"] = Login
    call = only_call(make_tool(enter, secret=["login"]), {"login": {"key": "hunter2"}})
    assert call.error == "raised:ValidationError"
    assert "hunter2" not in call.detail


def test_results_are_measured_by_the_models_schema_and_kept_as_plain_data() -> None:
    def made(n: int) -> Item:
        return Item(sku="a", count=n)

    assert only_call(made, {"n": 2}).value == {"sku": "a", "count": 2, "size": Size.SMALL}

    def wrong(n: int) -> list[Item]:
        return [Item.model_construct(sku="a", count=n)]

    assert only_call(wrong, {"n": 10}).error == "result:range"
    assert only_call(wrong, {"n": 2}).ok


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ([Item(sku="a")], ""),
        ([{"sku": "a", "count": 1, "size": "s"}], ""),
        ([{"sku": "a", "count": 1, "size": "s", "more": 1}], "shape"),
        ([], ""),
        (Item(sku="a"), "shape"),
        (None, "shape"),
        (object(), "shape"),
        ([Item], "shape"),
    ],
)
def test_a_result_that_holds_models_is_measured_inside(value: Any, reason: str) -> None:
    def found() -> list[Item]: ...  # type: ignore[empty-body]

    contract = result_of(found)
    assert isinstance(contract, ModelResult)
    assert contract.first_fault(value) == reason
    assert [fault.reason for fault in contract.faults(value)][:1] == ([reason] if reason else [])
    assert contract.json_schema()["type"] == "array"


def test_an_odd_result_breaks_the_shape_and_raises_nothing() -> None:
    class Odd:
        def model_dump(self, **_: Any) -> Any:
            raise ValueError("no")

    def found() -> Item: ...  # type: ignore[empty-body]

    contract = result_of(found)
    assert contract is not None
    assert contract.first_fault(Odd()) == "shape"
    deep: list[Any] = []
    deep.append(deep)
    assert contract.first_fault(deep) == "shape"


def test_an_empty_list_of_models_is_an_empty_result() -> None:
    def none() -> list[Item]:
        return []

    assert only_call(none, {}).result_class is ResultClass.EMPTY


def test_what_cannot_be_read_is_refused_with_the_mend() -> None:
    @attrs.define
    class Holder:
        item: Item

    class Odd(BaseModel):
        call: type

    refused = {
        "make that class a model too": Holder,
        "has no JSON Schema": Odd,
        "constrain it by the model's Field": list[Annotated[Item, Length(1, 2)]],
        "take a dict": list[Item | Holder],
    }
    for mend, annotation in refused.items():
        with pytest.raises(ContractError, match="parameter 'x'") as told:
            arguments_of(taking(annotation))
        assert mend in str(told.value)


def test_classes_are_known_by_what_they_can_do() -> None:
    class Own:
        """Not of the package, and as good."""

        def __init__(self, n: int) -> None:
            self.n = n

        @classmethod
        def model_json_schema(cls, mode: str, ref_template: str) -> dict[str, Any]:
            return {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

        @classmethod
        def model_validate(cls, value: dict[str, Any]) -> Own:
            return cls(value["n"])

    assert [is_model(one) for one in (Own, Own(1), Item, Spot, int, None, list[Item])] == [True, False, True, True, False, False, False]
    assert [holds_model(one) for one in (list[Own], dict[str, Item | None], list[int], Literal["a"])] == [True, True, False, False]
    fn = taking(Own)
    assert arguments_of(fn).first_fault({"x": {"n": 1, "m": 2}}) == "extra:x"
    assert argument_builder(fn)({"x": {"n": 3}})["x"].n == 3
    assert isinstance(ModelForm(Own), ModelForm)


def test_the_missing_extra_is_named_where_a_model_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(MissingExtra, match=r'pip install "fsm-agent\[jsonschema\]"'):
        arguments_of(send)


def test_the_package_is_never_imported_by_the_library() -> None:
    code = (
        "import sys; from fsm_agent import Agent, ToolCall\n"
        "def add(a: int, b: list[int] | None = None) -> int: return a\n"
        "Agent([add], lambda ask: 'done').run('go')\n"
        "sys.exit('pydantic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_module_that_postpones_its_annotations_is_read_too() -> None:
    module = types.ModuleType("postponed")
    module.__dict__["Order"] = Order
    exec("from __future__ import annotations\ndef send(order: Order) -> str: return order.day.isoformat()", module.__dict__)
    assert only_call(module.send, {"order": GOOD}).value == "2026-01-02"
