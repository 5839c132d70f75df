"""What is checked when a model is made around a host's client: that it has the method, and that the method takes the options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fsm_agent.core.errors import BuildError
from fsm_agent.core.plain import short


def creator(client: Any, path: str) -> Callable[..., Any]:
    """The client's method at a dotted path; raises BuildError where it has none."""
    found = client
    for name in path.split("."):
        found = getattr(found, name, None)
    if not callable(found):
        raise BuildError(f"the client is {short(client, 60)}, which has no {path}(); give the SDK's client object itself")
    method: Callable[..., Any] = found
    return method


def awaits(create: Callable[..., Any]) -> bool:
    """True for a coroutine function, also behind wrappers that say what they wrap."""
    return inspect.iscoroutinefunction(inspect.unwrap(create))


def takes(create: Callable[..., Any], name: str) -> bool:
    """True where a method has a parameter of that name, takes any, or does not say what it takes."""
    try:
        parameters = inspect.signature(create).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(one.name == name or one.kind is one.VAR_KEYWORD for one in parameters)


def free_options(create: Callable[..., Any], options: Mapping[str, Any], ours: Iterable[str]) -> dict[str, Any]:
    """The options as a dict; raises BuildError for one that each request sets by itself, and for one that nobody takes."""
    for name in options:
        if name in ours:
            raise BuildError(f"the option {name!r} is set by each request; leave it out")
        if not takes(create, name):
            raise BuildError(f"the client's create() takes no {name!r}; leave it out, or give extra_body={{{name!r}: ...}}")
    return dict(options)
