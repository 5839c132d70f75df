"""What is written out in code when a program runs: records made field by field, containers made when read, measures of one table.

attrs' own constructor looks every absent keyword up and calls a factory for every container; of what is made at every run and
every call that is most of the cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import attrs

T = TypeVar("T")
_LITERALS = (type(None), bool, int, float, str)
_FACTORIES = {list: "[]", dict: "{}"}
_WRITABLE = {"__slots__": (), "__setattr__": object.__setattr__, "__delattr__": object.__delattr__}


class Later:
    """Base of a record with slots some of whose containers are made when they are first read, and kept beside the slots."""

    __slots__ = ("__dict__",)

    def noted(self, name: str) -> Any:
        """What such a container holds; nothing, and no container made for it, where it was never read."""
        return self.__dict__.get(name, ())


class MadeWhenRead:
    """A container that is made when it is first read, since most records never hold anything there."""

    __slots__ = ("_make", "_name")

    def __init__(self, name: str, make: Callable[..., Any]) -> None:
        self._name, self._make = name, make

    def __get__(self, record: Any, kind: type[Any] | None = None) -> Any:
        # Once it was made, or set, Python finds it in the record itself and does not come here any more.
        if record is None:
            return self
        # In one step: of several threads that read it first, each gets the same.
        return record.__dict__.setdefault(self._name, self._make())


def made_when_read(kind: type[Later], *names: str) -> None:
    """Let these fields of a record be empty until they are read; each needs a factory."""
    for field in attrs.fields(kind):  # type: ignore[arg-type]
        if field.name in names:
            setattr(kind, field.name, MadeWhenRead(field.name, field.default.factory))


def maker(kind: type[T], *given: str) -> Callable[..., T]:
    """A function that takes these fields of a record, by position, and makes what the class itself would with the rest left out.

    What is given has to be as the record keeps it. Raises TypeError for a record whose fields are validated, that converts more
    than is given, or that needs more.
    """
    names: dict[str, Any] = {"_kind": kind, "_new": object.__new__}
    values: dict[str, str] = {}
    for field in attrs.fields(kind):  # type: ignore[arg-type]
        name, default = field.name, field.default
        absent = name not in given
        if field.validator is not None or (absent and (field.converter is not None or default is attrs.NOTHING)):
            raise TypeError(f"{kind.__name__}.{name} cannot be set as it is; make the record by its class")
        if not absent:
            values[name] = name
        elif isinstance(vars(kind).get(name), MadeWhenRead):
            continue
        elif isinstance(default, attrs.Factory):  # type: ignore[arg-type]
            values[name] = _FACTORIES[default.factory]
        elif type(default) in _LITERALS:
            values[name] = repr(default)
        else:
            values[name], names[f"_default_{name}"] = f"_default_{name}", default
    lines = [f" made.{name} = {value}" for name, value in values.items()]
    if kind.__setattr__ is not object.__setattr__:
        # A frozen record is filled while it is of a class of the same shape that is not: else each field costs ten times as much.
        names |= {"_kind": _writable(kind), "_closed": kind}
        lines.append(" made.__class__ = _closed")
    exec("\n".join([f"def make({', '.join(given)}):", " made = _new(_kind)", *lines, " return made"]), names)
    make: Callable[..., T] = names["make"]
    return make


def _writable(kind: type[Any]) -> type[Any]:
    """A class of the same shape as a frozen record's, with fields that can be set."""
    return type(f"_Open{kind.__name__}", (kind,), _WRITABLE)


def quickly_made(kind: type[T]) -> type[T]:
    """Let the constructor of a frozen record, which says what attrs' own says, set its fields as `maker` does.

    For records that whoever is asked makes at every turn. No field of theirs may be validated or converted.
    """
    fields, own = attrs.fields(kind), kind.__init__  # type: ignore[arg-type]
    names: dict[str, Any] = {"_kind": kind, "_open": _writable(kind), "_set": object.__setattr__, "_own": own, "_absent": attrs.NOTHING}
    given, lines = ["self", *(["*"] if fields[0].kw_only else [])], []
    for field in fields:
        name, default, value = field.name, field.default, field.name
        if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
            value, default = f"{_FACTORIES[default.factory]} if {name} is _absent else {name}", attrs.NOTHING
        names[f"_default_{name}"] = default
        given.append(name if field.default is attrs.NOTHING else f"{name}=_default_{name}")
        lines.append(f"  self.{name} = {value}")
    named = ", ".join(f"{field.name}={field.name}" for field in fields)
    exec("\n".join([
        f"def __init__({', '.join(given)}):",
        " if type(self) is _kind:", "  _set(self, '__class__', _open)", *lines, "  self.__class__ = _kind",
        " else:", f"  _own(self, {named})",
    ]), names)  # fmt: skip
    made = names["__init__"]
    made.__qualname__, made.__annotations__, made.__doc__ = own.__qualname__, own.__annotations__, own.__doc__
    setattr(kind, "__init__", made)  # noqa: B010  mypy knows the constructor
    return kind


def written(head: str, lines: Iterable[str], names: Mapping[str, Any]) -> Callable[..., Any]:
    """The function of this head, whose body are these lines, each further in by a space at least; `names` are what they mean by theirs."""
    made = dict(names)
    exec("\n".join([f"def function{head}:", *lines]), made)
    function: Callable[..., Any] = made["function"]
    return function


def all_below(spent: Iterable[tuple[str, str, str]]) -> Callable[[Any], bool]:
    """A function of a record of counters that has its limits under ``limits``: true while each counter is below its figure.

    `spent` are names of fields, (counter, limit, figure). A limit that is None bounds nothing; `figure`, where it is another name, is
    what is made of the limit and compared with. All are compared in one function, for a call for each would cost more than that.
    """
    lines = ["def below(run):", " limits = run.limits"]
    for counter, limit, figure in spent:
        closed = f"if most is not None and not run.{counter} < most: return False"
        made = [] if figure == limit else [" if most is not None:", f"  most = limits.{figure}"]
        lines += [f" most = limits.{limit}", *made, f" {' ' * bool(made)}{closed}"]
    names: dict[str, Any] = {}
    exec("\n".join([*lines, " return True"]), names)
    below: Callable[[Any], bool] = names["below"]
    return below
