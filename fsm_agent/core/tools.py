"""A tool: a function of the host with the contract that its calls are measured by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import attrs

from fsm_agent.core.contracts import ArgumentsContract, ResultContract
from fsm_agent.core.errors import BuildError, ContractError
from fsm_agent.core.figures import finite_seconds
from fsm_agent.core.plain import short
from fsm_agent.core.tool_check import contradictions, wrong_kinds
from fsm_agent.core.values import EffectClass, ResultClass, Verdict


@attrs.frozen(kw_only=True)
class Retry:
    """How often one call may be tried when its result is RETRYABLE or RATE_LIMITED, and how long to wait between.

    Which results are is for the tool's `classify` to say; where that says nothing, a pure or idempotent tool's timeout and
    Python's own connection errors are RETRYABLE, and no other failure is. `attempts` counts the first try. `backoff_s` is the
    first wait, doubled each time with jitter from the run's seed, or the waits themselves in order (then without jitter).
    `most_s` caps one wait.
    """

    attempts: int = 1
    backoff_s: float | Sequence[float] = 0.5
    most_s: float = 30.0

    def __attrs_post_init__(self) -> None:
        if type(self.attempts) is not int:
            raise BuildError(f"Retry(attempts=): expected a whole number from 1, got a {type(self.attempts).__name__}")
        if self.attempts < 1:
            raise BuildError(f"Retry(attempts=): expected a whole number from 1, got {short(self.attempts, 40)}")
        waits = [self.backoff_s] if isinstance(self.backoff_s, int | float) else self.backoff_s
        if isinstance(waits, str | bytes) or not isinstance(waits, Sequence):
            raise BuildError(f"Retry(backoff_s=): expected seconds or a list of them, got a {type(waits).__name__}")
        for name, seconds in (*(("backoff_s", wait) for wait in waits), ("most_s", self.most_s)):
            if finite_seconds(seconds, f"Retry({name}=)") < 0:
                raise BuildError(f"Retry({name}=): expected seconds from 0, got {seconds:g}")



_NO_BREAKER = "for a tool without a breaker leave the policy out (None)"


@attrs.frozen(kw_only=True)
class BreakerPolicy:
    """When a tool's breaker opens, and for how long.

    `failures` in a row open it (int, at least 1) [3]; after `open_s` seconds (above 0) [30] it takes one probe at a
    time, and a probe that is not heard of again is given up after the same time. Raises `BuildError`. Source: seed 000.
    """

    failures: int = 3
    open_s: float = 30.0

    def __attrs_post_init__(self) -> None:
        if type(self.failures) is not int:
            got = type(self.failures).__name__
            raise BuildError(f"BreakerPolicy(failures=): expected an int of at least 1, got {got}")
        if self.failures < 1:
            raise BuildError(f"BreakerPolicy(failures=): expected an int of at least 1; {_NO_BREAKER}")
        if finite_seconds(self.open_s, "BreakerPolicy(open_s=)") <= 0:
            raise BuildError(f"BreakerPolicy(open_s=): expected seconds above 0, got {self.open_s:g}; {_NO_BREAKER}")


Classifier = Callable[["Outcome"], "Verdict | ResultClass | None"]


@attrs.frozen(kw_only=True)
class Outcome:
    """What a body did, as a classifier sees it: a `value`, or the `error` it raised (its type's name and message)."""

    value: Any = None
    error: str = ""
    message: str = ""


def _names(value: Iterable[str]) -> frozenset[str]:
    names = [None] if isinstance(value, str | bytes) or not isinstance(value, Iterable) else list(value)
    if not all(isinstance(name, str) for name in names):
        raise ContractError(f"secret is {short(value, 60)}; give a list of argument names")
    return frozenset(value)


def _effect(value: EffectClass | str) -> EffectClass:
    try:
        return EffectClass(value)
    except ValueError:
        raise ContractError(f"effect is {short(value, 60)}; it may be {', '.join(EffectClass)}") from None


def _identity(value: Sequence[str] | None) -> tuple[str, ...] | None:
    if value is None or (isinstance(value, tuple | list) and all(isinstance(name, str) for name in value)):
        return None if value is None else tuple(value)
    raise ContractError(f"identity is {short(value, 60)}; give a tuple of argument names, or None for all")


@attrs.define(kw_only=True, eq=False)
class Tool:
    """One tool: its name, body (`fn`), `description`, contract of arguments and result, effect class, and what is normal for it.

    `args` and `returns` measure (None: anything goes). `timeout_s`, `retry`, `breaker` and `max_result_bytes` bound one call.
    `secret` names arguments that are redacted; `identity` names the arguments that tell two calls apart (None: all). `polling`
    (the same call may be repeated), `constant` (equal results are normal) and `empty_ok` (nothing found is an answer) exempt
    the tool from the loop guards they name. `exclusive` bodies never overlap. `cache_ttl_s` (None: not remembered, 0: never
    reused, `math.inf`: for good) and `negative_ttl_s` are memory, for pure tools only. `post` are named conditions over the
    result, which `decode_json` reads from JSON text first. `build` makes of measured arguments what `fn` takes. `classify` reads
    a body's Outcome and says its Verdict, its ResultClass alone, or None. `source` tells evidence apart (default: the tool).
    `context_parameter` names the parameter that gets the call's ToolContext. `approval` (true, or a function of the arguments
    that says whether) has a person asked before the body runs; of a tool `where` the ``client`` is, the body runs elsewhere and
    its answer is delivered; where it is ``program``, its argument of that name is run in a sandbox.

    Raises ContractError when these contradict each other.
    """

    name: str
    fn: Callable[..., Any]
    description: str = ""
    args: ArgumentsContract | None = None
    returns: ResultContract | None = None
    effect: EffectClass = attrs.field(default=EffectClass.UNDECLARED, converter=_effect)
    timeout_s: float | None = None
    retry: Retry = attrs.field(factory=Retry)
    breaker: BreakerPolicy | None = attrs.field(factory=BreakerPolicy)
    max_result_bytes: int | None = 65_536
    secret: frozenset[str] = attrs.field(default=frozenset(), converter=_names)
    identity: tuple[str, ...] | None = attrs.field(default=None, converter=_identity)
    polling: bool = False
    constant: bool = False
    empty_ok: bool = False
    exclusive: bool = False
    cache_ttl_s: float | None = None
    negative_ttl_s: float | None = None
    decode_json: bool = False
    post: Mapping[str, Callable[[Any], bool]] = attrs.field(factory=dict)
    classify: Classifier | None = None
    source: str = ""
    context_parameter: str | None = None
    build: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    approval: bool | Callable[..., bool] = False
    where: str = "host"
    held: bool = attrs.field(init=False, repr=False)
    defaults: bool = attrs.field(init=False, repr=False)

    @held.default
    def _is_held(self) -> bool:
        """True when a call waits for a person or a client before anything runs."""
        return self.approval is not False or self.where == "client"

    @defaults.default
    def _has_defaults(self) -> bool:
        """True when absent arguments have declared values."""
        try:
            return self.args is not None and bool(self.args.with_defaults({}))
        except Exception:
            return False

    def __attrs_post_init__(self) -> None:
        for problem, mend in chain(wrong_kinds(self, _RECORDS), contradictions(self)):
            raise ContractError(f"tool {short(self.name, 60)}: {problem}; {mend}")

    def argument_schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments; any object for a tool without a contract. It is shown, so a secret has no default in it."""
        schema: dict[str, Any] = self.args.json_schema() if self.args is not None else {"type": "object"}
        parts: Any = schema.get("properties", {})
        for name in self.secret:
            if isinstance(part := parts.get(name), dict) and "default" in part:
                parts[name] = {key: value for key, value in part.items() if key != "default"}
        return schema

    def filled(self, args: Any) -> Any:
        """The arguments with the declared values of those that are absent; as they are where they are no mapping."""
        if self.defaults and self.args is not None and issubclass(type(args), Mapping):
            return self.args.with_defaults(args)
        return args

    @property
    def pure(self) -> bool:
        """True when the tool may be repeated, shared and run beside others."""
        return self.effect is EffectClass.PURE


_RECORDS: Mapping[str, tuple[type, bool]] = {"retry": (Retry, False), "breaker": (BreakerPolicy, True)}


class Toolset:
    """Tools by name, in the order they were given; raises ContractError for two of one name."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            if tool.name in self._tools:
                raise ContractError(f"two tools are named {tool.name!r}; give each its own name")
            self._tools[tool.name] = tool
        self._names = tuple(self._tools)

    def get(self, name: Any) -> Tool | None:
        """The tool of that name, or None, whatever a decider made of the name."""
        if type(name) is not str:
            if not issubclass(type(name), str):
                return None
            # A text of a class of its own, such as a member of an enum, names what its text names.
            name = str.__str__(name)
        return self._tools.get(name)

    def names(self) -> tuple[str, ...]:
        """The names, in order."""
        return self._names

    def __iter__(self) -> Iterator[Tool]:
        """The tools, in order."""
        return iter(self._tools.values())
