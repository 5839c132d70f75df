"""Making a record quickly: its fields set one by one, or all at once, without a keyword argument for each.

attrs' own constructor looks every absent keyword up and calls a factory for every container; of what is made at every run and
every call that is most of the cost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import attrs

T = TypeVar("T")
_LITERALS = (type(None), bool, int, float, str)
_FACTORIES = {list: "[]", dict: "{}"}


def maker(kind: type[T], *given: str) -> Callable[..., T]:
    """A function that takes these fields of a record, by position, and makes what the class itself would with the rest left out.

    Raises TypeError for a record whose fields are converted or validated, or that needs more than is given.
    """
    names: dict[str, Any] = {"_kind": kind, "_new": object.__new__, "_set": object.__setattr__}
    values: dict[str, str] = {}
    for field in attrs.fields(kind):  # type: ignore[arg-type]
        name, default = field.name, field.default
        if field.validator is not None or field.converter is not None or (default is attrs.NOTHING and name not in given):
            raise TypeError(f"{kind.__name__}.{name} cannot be set as it is; make the record by its class")
        if name in given:
            values[name] = name
        elif isinstance(default, attrs.Factory):  # type: ignore[arg-type]
            values[name] = _FACTORIES[default.factory]
        elif type(default) in _LITERALS:
            values[name] = repr(default)
        else:
            values[name], names[f"_{name}"] = f"_{name}", default
    if "__slots__" in vars(kind):
        lines = [f" made.{name} = {value}" for name, value in values.items()]
    else:
        # A frozen record without slots has all of its fields in one dict.
        lines = [f" _set(made, '__dict__', {{{', '.join(f'{name!r}: {value}' for name, value in values.items())}}})"]
    exec("\n".join([f"def make({', '.join(given)}):", " made = _new(_kind)", *lines, " return made"]), names)
    make: Callable[..., T] = names["make"]
    return make
