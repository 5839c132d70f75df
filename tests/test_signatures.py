"""Contracts read from typed functions: rules, reasons, schemas, building arguments back, and what is refused."""

from __future__ import annotations

import enum
import functools
import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NewType, Optional, TypeVar, Union

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.core.contracts import Length, Pattern, Range, ResultContract
from fsm_agent.core.errors import ContractError
from fsm_agent.core.signatures import (
    argument_builder,
    argument_descriptions,
    arguments_of,
    context_parameter,
    description_of,
    result_of,
)

if TYPE_CHECKING:
    import decimal  # noqa: F401

    from fsm_agent.host import ports
    from fsm_agent.host.ports import ToolContext


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Odd(enum.Enum):
    PAIR = (1, 2)


Sku = NewType("Sku", str)
T = TypeVar("T")


@attrs.frozen
class Point:
    x: int
    y: Annotated[float, Range(0, 10), "how high"] = 2.0


@attrs.define
class Route:
    _name: str
    points: list[Point]
    colors: tuple[Color, ...] = (Color.RED,)
    notes: list[str] = attrs.field(factory=list)
    length: int = attrs.field(init=False, default=0)


@attrs.frozen
class Tree:
    left: Tree | None = None


@attrs.frozen
class Ping:
    pong: list[Pong]


@attrs.frozen
class Pong:
    ping: Ping | None


class Bound:
    """A bound of somebody else's, known by its attributes."""

    def __init__(self, **limits: Any) -> None:
        self.__dict__.update(limits)


POINT: dict[str, Any] = {
    "type": "object",
    "fields": {
        "x": {"type": "int"},
        "y": {"type": "float", "min": 0, "max": 10, "description": "how high", "required": False, "default": 2.0},
    },
}
# An annotation and its rule.
RULES: list[tuple[Any, dict[str, Any]]] = [
    (str, {"type": "str"}),
    (int, {"type": "int"}),
    (float, {"type": "float"}),
    (bool, {"type": "bool"}),
    (None, {"type": "null"}),
    (Any, {"type": "any"}),
    (object, {"type": "any"}),
    (list, {"type": "list"}),
    (list[Any], {"type": "list"}),
    (list[int], {"type": "list", "item": {"type": "int"}}),
    (Sequence[int], {"type": "list", "item": {"type": "int"}}),
    (Iterable[int], {"type": "list", "item": {"type": "int"}}),
    (tuple[int, ...], {"type": "list", "item": {"type": "int"}}),
    (tuple, {"type": "list"}),
    (list[list[str]], {"type": "list", "item": {"type": "list", "item": {"type": "str"}}}),
    (dict, {"type": "object"}),
    (dict[str, Any], {"type": "object"}),
    (Mapping[str, int], {"type": "object", "values": {"type": "int"}}),
    (int | None, {"type": ["int", "null"]}),
    (Optional[list[int]], {"type": ["list", "null"], "item": {"type": "int"}}),  # noqa: UP045
    (Union[int, str], {"type": ["int", "str"]}),  # noqa: UP007
    (int | Any, {"type": "any"}),
    (Annotated[int, Range(1, 5)] | None, {"type": ["int", "null"], "min": 1, "max": 5}),
    (Annotated[int, "how many"] | None, {"type": ["int", "null"], "description": "how many"}),
    (Literal["a", "b"], {"type": "str", "allowed": ["a", "b"]}),
    (Literal[1, True, None], {"type": ["int", "bool", "null"], "allowed": [1, True, None]}),
    (Literal["a"] | None, {"type": ["str", "null"], "allowed": ["a", None]}),
    (Literal[Color.RED], {"type": "str", "allowed": ["red"]}),
    (Color, {"type": "str", "allowed": ["red", "blue"]}),
    (Level, {"type": "int", "allowed": [1, 2]}),
    (Color | None, {"type": ["str", "null"], "allowed": ["red", "blue", None]}),
    (Sku, {"type": "str"}),
    (Annotated[str, Length(1, 8), Pattern("^A"), "the item"],
     {"type": "str", "min_len": 1, "max_len": 8, "pattern": "^A", "description": "the item"}),
    (Annotated[int, Range(min=1)], {"type": "int", "min": 1}),
    (Annotated[list[int], Length(max=2)], {"type": "list", "item": {"type": "int"}, "max_len": 2}),
    (Annotated[int, Bound(ge=1, le=5)], {"type": "int", "min": 1, "max": 5}),
    (Annotated[float, Bound(gt=0, lt=None)], {"type": "float", "exclusive_min": 0}),
    (Annotated[float, Bound(lt=1)], {"type": "float", "exclusive_max": 1}),
    (Annotated[str, Bound(min_length=1, max_length=3)], {"type": "str", "min_len": 1, "max_len": 3}),
    (Annotated[str, 5, object()], {"type": "str"}),
    (Annotated[Any, "whatever"], {"type": "any", "description": "whatever"}),
    (Point, POINT),
    (Point | None, POINT | {"type": ["object", "null"]}),
    (list[Point], {"type": "list", "item": POINT}),
    (dict[str, Point], {"type": "object", "values": POINT}),
    ("int", {"type": "int"}),
    ("list['Point']", {"type": "list", "item": POINT}),
]  # fmt: skip
# An annotation that no rule can say, and a word of the mend.
REFUSED: list[tuple[Any, str]] = [
    (bytes, "use str"),
    (set[int], "use str"),
    (complex, "use str"),
    (Bound, "attrs class"),
    (T, "use str"),
    (5, "use str"),
    ([int], "use str"),
    (type[int], "use str"),
    (list[bytes], "use str"),
    (int | bytes, "use str"),
    (tuple[int, str], "tuple[T, ...]"),
    (tuple[()], "tuple[T, ...]"),
    (dict[int, str], "dict[str, T]"),
    (Odd, "choices"),
    (Literal[b"x"], "choices"),
    (enum.Enum, "choice"),
    (Tree, "a contract ends"),
    (Ping, "a contract ends"),
    (Point | Route, "the union"),
    (list[int] | list[str], "the union"),
    (Annotated[int, Range(1)] | float, "the union"),
    (Literal["a"] | int, "choices alone"),
    ("decimal.Decimal", "TYPE_CHECKING"),
    ("no_such_name", "TYPE_CHECKING"),
    ("not an annotation", "TYPE_CHECKING"),
    (Annotated[int, Range(5, 1)], "swap"),
    (Annotated[str, Range(1, 5)], "leave it out"),
    (Annotated[str, Pattern("(")], "re.escape"),
    (Annotated[int, Range("a")], "give a number"),  # type: ignore[arg-type]
]


def taking(annotation: Any, **default: Any) -> Any:
    """A function with one parameter `x` of the annotation."""

    def tool(**kwargs: Any) -> None: ...

    one = inspect.Parameter("x", inspect.Parameter.KEYWORD_ONLY, annotation=annotation, **default)
    tool.__signature__ = inspect.Signature([one])  # type: ignore[attr-defined]
    return tool


def search(
    sku: Annotated[str, Length(1, 8)],
    region: Literal["seoul", "busan"],
    limit: Annotated[int, Range(1, 2)] = 2,
    *,
    color: Color = Color.RED,
    at: Point | None = None,
    route: Route = Route("r", [Point(1)]),  # noqa: B008
    context: ToolContext,
) -> list[Point]:
    """Find where an item is.

    It looks everywhere.

    Args:
        sku (str): The item
            to look for.
        region: where: one of two

        limit: How many.

    Returns:
        points: what was found
    """
    return []


@pytest.mark.parametrize(("annotation", "rule"), RULES, ids=range(len(RULES)))
def test_an_annotation_is_a_rule(annotation: Any, rule: dict[str, Any]) -> None:
    contract = arguments_of(taking(annotation))
    assert contract.spec == {"x": rule}
    json.dumps(contract.json_schema())


@pytest.mark.parametrize(("annotation", "mend"), REFUSED, ids=range(len(REFUSED)))
def test_an_annotation_that_no_rule_can_say_is_refused_with_the_mend(annotation: Any, mend: str) -> None:
    with pytest.raises(ContractError) as caught:
        arguments_of(taking(annotation))
    assert "tool" in str(caught.value)
    assert "'x'" in str(caught.value)
    assert mend in str(caught.value)


def test_a_parameter_without_annotation_takes_anything() -> None:
    assert arguments_of(lambda x, y=1: None).spec == {
        "x": {"type": "any"},
        "y": {"type": "any", "required": False, "default": 1},
    }


def test_a_whole_function_is_a_table() -> None:
    spec: Any = arguments_of(search).spec
    assert list(spec) == ["sku", "region", "limit", "color", "at", "route"]
    assert spec["sku"] == {"description": "The item to look for.", "type": "str", "min_len": 1, "max_len": 8}
    assert spec["region"]["description"] == "where: one of two"
    assert spec["limit"] == {
        "description": "How many.", "type": "int", "min": 1, "max": 2, "required": False, "default": 2,
    }  # fmt: skip
    assert spec["color"]["default"] == "red"
    assert spec["at"]["default"] is None
    assert spec["route"]["default"] == {
        "name": "r", "points": [{"x": 1, "y": 2.0}], "colors": ["red"], "notes": [],
    }  # fmt: skip
    assert spec["route"]["fields"]["notes"] == {"type": "list", "item": {"type": "str"}, "required": False}
    assert "length" not in spec["route"]["fields"]


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ({"sku": "a", "region": "seoul"}, ""),
        ({"region": "seoul"}, "missing:sku"),
        ({"sku": "a", "region": "seoul", "context": 1}, "extra:context"),
        ({"sku": "a", "region": "jeju"}, "allowed:region"),
        ({"sku": "", "region": "seoul"}, "length:sku"),
        ({"sku": "a", "region": "seoul", "limit": True}, "type:limit"),
        ({"sku": "a", "region": "seoul", "limit": 3}, "range:limit"),
        ({"sku": "a", "region": "seoul", "color": "green"}, "allowed:color"),
        ({"sku": "a", "region": "seoul", "at": {"x": 1, "y": 11}}, "range:at"),
        ({"sku": "a", "region": "seoul", "at": {}}, "missing:at"),
        ({"sku": "a", "region": "seoul", "at": None}, ""),
        ({"sku": "a", "region": "seoul", "route": {"name": "n", "points": [{"x": "1"}]}}, "type:route"),
        ({"sku": "a", "region": "seoul", "route": {"_name": "n", "points": []}}, "missing:route"),
    ],
)
def test_a_function_measures_its_arguments(args: dict[str, Any], reason: str) -> None:
    assert arguments_of(search).first_fault(args) == reason


def test_plain_arguments_are_built_into_what_the_function_takes() -> None:
    args = {"sku": "a", "region": "seoul", "color": "blue", "at": {"x": 1}}
    filled = arguments_of(search).with_defaults(args)
    assert argument_builder(search)(filled) == {
        "sku": "a",
        "region": "seoul",
        "limit": 2,
        "color": Color.BLUE,
        "at": Point(1, 2.0),
        "route": Route("r", [Point(1)]),
    }
    assert argument_builder(search)(args) == {"sku": "a", "region": "seoul", "color": Color.BLUE, "at": Point(1)}
    assert args == {"sku": "a", "region": "seoul", "color": "blue", "at": {"x": 1}}


@pytest.mark.parametrize(
    ("annotation", "plain", "built"),
    [
        (int, 1, 1),
        (Level, 2, Level.HIGH),
        (Literal[Color.RED, "red2"], "red", Color.RED),
        (tuple[int, ...], [1, 2], (1, 2)),
        (tuple, [1], (1,)),
        (list[Color], ["red"], [Color.RED]),
        (tuple[Point, ...], [{"x": 1}], (Point(1),)),
        (dict[str, Point], {"a": {"x": 1}}, {"a": Point(1)}),
        (Point | str | None, {"x": 1}, Point(1)),
        (Point | str | None, "x", "x"),
        (Point | str | None, None, None),
        (Color | None, "red", Color.RED),
        (Color | None, None, None),
        (Route, {"name": "n", "points": [{"x": 1}], "colors": ["blue"]}, Route("n", [Point(1)], (Color.BLUE,))),
        (Any, {"x": 1}, {"x": 1}),
    ],
)
def test_a_plain_value_becomes_what_its_annotation_names(annotation: Any, plain: Any, built: Any) -> None:
    tool = taking(annotation)
    assert arguments_of(tool).first_fault({"x": plain}) == ""
    made = argument_builder(tool)({"x": plain})["x"]
    assert made == built
    assert type(made) is type(built)


def test_what_a_class_itself_refuses_is_its_own_exception() -> None:
    @attrs.frozen
    class Even:
        n: int = attrs.field(validator=attrs.validators.ge(0))

    tool = taking(Even)
    with pytest.raises(ValueError, match="n"):
        argument_builder(tool)({"x": {"n": -1}})


@pytest.mark.parametrize(
    ("annotation", "default", "rule"),
    [
        (int, 5, {"type": "int", "required": False, "default": 5}),
        (int | None, None, {"type": ["int", "null"], "required": False, "default": None}),
        (tuple[int, ...], (1,), {"type": "list", "item": {"type": "int"}, "required": False, "default": [1]}),
        (int, object(), {"type": "int", "required": False}),
        (Any, Color.RED, {"type": "any", "required": False}),
        (Any, (1, 2), {"type": "any", "required": False, "default": (1, 2)}),
        (list, [1], {"type": "list", "required": False, "default": [1]}),
    ],
)
def test_a_default_makes_an_argument_optional(annotation: Any, default: Any, rule: dict[str, Any]) -> None:
    assert arguments_of(taking(annotation, default=default)).spec == {"x": rule}


@pytest.mark.parametrize(
    ("annotation", "default"), [(int, None), (int, "5"), (Literal["a"], "b"), (Annotated[int, Range(1)], 0)]
)
def test_a_default_that_breaks_its_own_annotation_is_refused(annotation: Any, default: Any) -> None:
    with pytest.raises(ContractError, match=r"'x'.*default.*add 'null'"):
        arguments_of(taking(annotation, default=default))


def test_parameters_that_no_call_can_name_are_refused() -> None:
    def stars(*args: int) -> None: ...
    def double_stars(**kwargs: int) -> None: ...
    def positional(x: int, /) -> None: ...

    for fn, name, mend in (
        (stars, "'args'", "name each argument"),
        (double_stars, "'kwargs'", "name each argument"),
        (positional, "'x'", "take the / out"),
    ):
        with pytest.raises(ContractError) as caught:
            arguments_of(fn)
        assert fn.__qualname__ in str(caught.value)
        assert name in str(caught.value)
        assert mend in str(caught.value)


@pytest.mark.parametrize("fn", [5, None, "search", type, max, dict.get], ids=repr)
def test_what_has_no_readable_signature_is_refused(fn: Any) -> None:
    with pytest.raises(ContractError, match=f"function '{getattr(fn, '__qualname__', type(fn).__name__)}'"):
        arguments_of(fn)


class Service:
    """A service."""

    def __call__(self, x: Color) -> int:
        """Call it."""
        return 1

    def method(self, x: Color) -> int:
        """Do it."""
        return 1

    @classmethod
    def of(cls, x: Color) -> int:
        """Make it."""
        return 1

    @staticmethod
    def static(x: Color) -> int:
        """Be it."""
        return 1


class Maker:
    """Make one."""

    def __init__(self, x: Color) -> None:
        self.x = x


class Heir(Maker):
    """Make one like it."""


async def later(x: Color) -> int:
    """Wait for it."""
    return 1


@functools.wraps(later)
def wrapped(*args: Any, **kwargs: Any) -> Any:
    return later(*args, **kwargs)


@pytest.mark.parametrize(
    ("fn", "about"),
    [
        (Service(), "Call it."),
        (Service().method, "Do it."),
        (Service.of, "Make it."),
        (Service.static, "Be it."),
        (later, "Wait for it."),
        (wrapped, "Wait for it."),
        (functools.partial(later), "Wait for it."),
        (functools.partial(functools.partial(Service().method)), "Do it."),
    ],
    ids=["instance", "method", "classmethod", "static", "async", "wrapped", "partial", "partial of partial"],
)
def test_every_kind_of_callable_is_read(fn: Any, about: str) -> None:
    assert arguments_of(fn).spec == {"x": {"type": "str", "allowed": ["red", "blue"]}}
    assert argument_builder(fn)({"x": "red"}) == {"x": Color.RED}
    assert description_of(fn) == about
    result = result_of(fn)
    assert result is not None
    assert result.first_fault("1") == "shape"
    assert context_parameter(fn) is None


@pytest.mark.parametrize(("made", "about"), [(Maker, "Make one."), (Heir, "Make one like it.")])
def test_a_class_is_read_by_how_it_is_made_also_where_it_has_that_from_another(made: type[Maker], about: str) -> None:
    assert arguments_of(made).spec == {"x": {"type": "str", "allowed": ["red", "blue"]}}
    assert argument_builder(made)({"x": "red"}) == {"x": Color.RED}
    assert description_of(made) == about


def test_what_partial_binds_is_the_hosts_and_no_argument() -> None:
    assert list(arguments_of(functools.partial(search, sku="secret")).spec or ()) == [
        "region", "limit", "color", "at", "route",
    ]  # fmt: skip
    assert list(arguments_of(functools.partial(search, "secret")).spec or ()) == [
        "region", "limit", "color", "at", "route",
    ]  # fmt: skip


def test_the_context_is_no_argument_and_its_name_is_known() -> None:
    def dotted(x: int, ctx: ports.ToolContext) -> None: ...
    def optional(x: int, ctx: ToolContext | None = None) -> None: ...
    def annotated(x: int, ctx: Annotated[ToolContext, "host"]) -> None: ...
    def quoted(x: int, ctx: ports.ToolContext | None = None) -> None: ...
    def plain(x: int, context: int) -> None: ...

    for fn in (dotted, optional, annotated, quoted):
        assert list(arguments_of(fn).spec or ()) == ["x"]
        assert context_parameter(fn) == "ctx"
    assert context_parameter(search) == "context"
    assert context_parameter(plain) is None
    assert list(arguments_of(plain).spec or ()) == ["x", "context"]


def test_a_description_is_the_first_paragraph() -> None:
    def none() -> None: ...
    def two_lines() -> None:
        """Find it
        at once.

        More.
        """

    class Quiet:
        """A quiet one."""

        def __call__(self) -> None: ...

    assert description_of(search) == "Find where an item is."
    assert description_of(none) == ""
    assert description_of(two_lines) == "Find it at once."
    assert description_of(Quiet()) == "A quiet one."


def test_sphinx_docstrings_tell_of_arguments() -> None:
    def tool(a: int, b: int, c: int) -> None:
        """Do it.

        :param a: the first
            of all
        :param int b: the second
        :keyword c: the third
        :returns: nothing: at all
        """

    assert argument_descriptions(tool) == {"a": "the first of all", "b": "the second", "c": "the third"}


def test_google_docstrings_end_where_the_section_ends() -> None:
    assert argument_descriptions(search) == {
        "sku": "The item to look for.",
        "region": "where: one of two",
        "limit": "How many.",
    }


def test_a_line_that_is_deeper_than_the_entries_belongs_to_the_one_above_it_whatever_it_looks_like() -> None:
    def tool(limit: int, region: str) -> None:
        """Do it.

        Args:
            limit: How many rows,
                note: at most ten.
            region: Where.
        """

    assert argument_descriptions(tool) == {"limit": "How many rows, note: at most ten.", "region": "Where."}


def test_an_annotation_wins_over_the_docstring() -> None:
    def tool(a: Annotated[int, "from the annotation"]) -> None:
        """Do it.

        Args:
            a: from the docstring
        """

    spec: Any = arguments_of(tool).spec
    assert spec["a"]["description"] == "from the annotation"


def returning(annotation: Any) -> Any:
    def tool() -> Any: ...

    tool.__annotations__["return"] = annotation
    return tool


@pytest.mark.parametrize(
    ("annotation", "value", "reason"),
    [
        (int, 1, ""),
        (int, True, "shape"),
        (None, None, ""),
        (None, 1, "shape"),
        (str, "", ""),
        (list[int], [1], ""),
        (list[int], [], "empty"),
        (list[int], (1,), ""),
        (list[int], {1}, "shape"),
        (tuple[int, ...], (1, 2), ""),
        (Annotated[list[int], Length(max=1)], [1, 2], "too_big"),
        (Annotated[list[int], Length(min=0)], [], ""),
        (Annotated[int, Range(max=1)], 2, "range"),
        (Color, Color.RED, ""),
        (Color, "red", ""),
        (Color, "green", "shape"),
        (Point, Point(1), ""),
        (Point, {"x": 1}, ""),
        (Point, Point("1"), "shape"),  # type: ignore[arg-type]
        (Point, Point(1, 11), "range"),
        (Point, 5, "shape"),
        (Route, Route("n", [], ()), "empty"),
        (Route, Route("n", []), ""),
        (Route, Route("n", [Point(1)]), ""),
        (list[Point], [Point(1), {"x": 2}], ""),
        (list[Point], [Point(1), Point(1, 99)], "range"),
        (dict[str, Point], {"a": Point(1)}, ""),
        (dict[str, Point], {"a": 1}, "shape"),
        (Point | None, None, ""),
        (dict, {"a": 1}, ""),
    ],
)
def test_a_return_annotation_measures_the_result(annotation: Any, value: Any, reason: str) -> None:
    contract = result_of(returning(annotation))
    assert isinstance(contract, ResultContract)
    assert contract.first_fault(value) == reason
    assert [fault.reason for fault in contract.faults(value)][:1] == ([reason] if reason else [])
    relaxed = result_of(returning(annotation), empty_ok=True)
    assert relaxed is not None
    assert relaxed.first_fault(value) == ("" if reason == "empty" else reason)


def test_no_return_annotation_is_no_contract() -> None:
    assert result_of(lambda: None) is None
    assert result_of(returning(Any)) is None
    result = result_of(search)
    assert result is not None
    assert result.json_schema()["items"]["properties"]["x"] == {"type": "integer"}


@pytest.mark.parametrize("annotation", [bytes, set[int], "no_such_name", Tree])
def test_a_return_annotation_that_no_rule_can_say_is_refused(annotation: Any) -> None:
    with pytest.raises(ContractError, match=r"tool.*return annotation"):
        result_of(returning(annotation))


def test_an_instance_that_holds_itself_is_measured_as_far_as_its_contract_goes() -> None:
    @attrs.define
    class Node:
        name: str
        inner: dict[str, Any]

    node = Node("n", {})
    node.inner["node"] = node
    contract = result_of(returning(Node))
    assert contract is not None
    assert contract.first_fault(node) == ""
    node.name = 5  # type: ignore[assignment]
    assert [fault.path for fault in contract.faults(node)] == [("name",)]


@given(x=st.integers(), y=st.floats(0, 10), name=st.text(max_size=5), colors=st.lists(st.sampled_from(Color)))
def test_building_what_was_made_plain_gives_it_back(x: int, y: float, name: str, colors: list[Color]) -> None:
    """For every value of the annotation: plain, measured, built again, it is the same value."""
    route = Route(name, [Point(x, y)] * 2, tuple(colors))
    tool = taking(Route, default=route)
    filled = arguments_of(tool).with_defaults({})
    assert arguments_of(tool).first_fault(filled) == ""
    assert argument_builder(tool)(filled) == {"x": route}
