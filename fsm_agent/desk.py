"""A desk for orders over any table of tools: one call an order, measured, remembered, repaired by its reason.

Seed 003's lab is one desk (`fsm_agent.adapter`); a host makes another over its own tools, repairs and limits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

import attrs

from fsm_agent.core.answers import Answer, answer_of
from fsm_agent.core.effects import Decide
from fsm_agent.core.engine import Engine
from fsm_agent.core.errors import LimitsError
from fsm_agent.core.limits import Limits
from fsm_agent.core.plain import short
from fsm_agent.core.repairing import same_args
from fsm_agent.core.run import Run
from fsm_agent.core.setup import Setup
from fsm_agent.core.storable import own_args
from fsm_agent.core.table import Table
from fsm_agent.core.turn import Repair
from fsm_agent.core.values import Decision, Policy, new_decision, new_tool_call
from fsm_agent.core.work import WORK
from fsm_agent.desk_answers import as_asked, found_text, no_name, rows_of, unhandled
from fsm_agent.host.door import Door
from fsm_agent.host.drivers import Driver
from fsm_agent.host.fixes import check_fix, check_machine, check_mappings, check_text
from fsm_agent.host.live_tools import LiveTools
from fsm_agent.host.memory import DictMemory
from fsm_agent.host.ports import Host
from fsm_agent.host.tool_forms import check_entries
from fsm_agent.lab.tables import DESK, NAIVE

Fix = Callable[[str, Any], "tuple[str, Any]"]
_FOREVER = float("inf")


class OrderFault(ValueError):
    """An order that no call can be made of; its text is the reason."""


@attrs.frozen
class Repairs:
    """Repairs looked up when they are needed: `names` maps error words to names, `fixes` names to functions."""

    names: Mapping[str, str]
    fixes: Mapping[str, Fix]
    _made: dict[str, tuple[Fix, tuple[str, Repair]]] = attrs.field(init=False, repr=False, factory=dict)

    def get(self, error: str) -> tuple[str, Repair] | None:
        """The repair of an error word, or None when there is none, it cannot be looked up or its name means nothing; never raises."""
        try:
            name: Any = self.names.get(error)
            if type(name) is not str:
                if not issubclass(type(name), str):
                    return None
                name = str.__str__(name)
            fix = self.fixes.get(name)
        except Exception:
            return None
        if fix is None:
            return None
        made = self._made.get(name)
        if made is None or made[0] is not fix:
            made = self._made[name] = (fix, (name, lambda tool, args, run: fix(tool, args)))
        return made[1]


@attrs.define(kw_only=True, eq=False)
class ToolDesk:
    """Handles orders: picks a tool and its arguments, makes the call, and repairs it by the reason of its failure.

    `tools` is the live table ``{name: {"fn", "args", "returns", ...}}`` (further keys are fields of `Tool`); what is
    changed in it takes effect at once. Its tools may come later, so the names of tools in `table` are not checked; contracts that
    contradict themselves (ContractError) and fixes that are no function of tool and arguments (BuildError) are refused when the
    desk is made.
    `repairs` maps error words to the names of `fixes`, each a function of tool and arguments that gives the pair of both
    for the next try. `default_tool` serves orders that prefer none. `cache` remembers successes by `cache_key`.
    `naive_table` and `table` are the machines without and with repair. `max_attempts` is how often an order is tried at
    most (None: no cap; the first try is always made, so what is below 1 is as good as 1); it may be changed at any time,
    the rest may not.
    """

    tools: Mapping[str, Any] = attrs.field(on_setattr=attrs.setters.frozen)
    default_tool: str
    repairs: Mapping[str, str] = attrs.field(factory=dict, on_setattr=attrs.setters.frozen)
    fixes: Mapping[str, Fix] = attrs.field(factory=dict, on_setattr=attrs.setters.frozen)
    cache: MutableMapping[str, Any] = attrs.field(factory=dict, on_setattr=attrs.setters.frozen)
    max_attempts: int | None = 3
    table: Table = attrs.field(default=DESK, on_setattr=attrs.setters.frozen)
    naive_table: Table = attrs.field(default=NAIVE, on_setattr=attrs.setters.frozen)
    _box: LiveTools = attrs.field(init=False, repr=False)
    _door: Door = attrs.field(init=False, repr=False)
    _repairs: Repairs = attrs.field(init=False, repr=False)
    _drivers: dict[bool, Driver] = attrs.field(init=False, repr=False)
    _handler: Driver = attrs.field(init=False, repr=False)
    _limits: dict[Any, Limits] = attrs.field(init=False, repr=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        for name in ("table", "naive_table"):
            check_machine(name, getattr(self, name))
        check_text(default_tool=self.default_tool)
        check_mappings(tools=self.tools, repairs=self.repairs, fixes=self.fixes)
        # A mapping of the host's own may be read when a repair is needed, and not before.
        for name, fix in self.fixes.items() if type(self.fixes) is dict else ():
            check_fix(f"fixes[{short(name, 60)}]", fix)
        check_entries(self.tools)
        self._box = LiveTools(self.tools)
        self._door = Door(self._box, DictMemory(self.cache))
        host = Host(memory=self._door.memory, ttl_s=_FOREVER, breakers=self._door.host.breakers)
        repairs = self._repairs = Repairs(self.repairs, self.fixes)
        self._drivers = {
            naive: Driver(
                engine=Engine(
                    Setup(
                        table=self.naive_table if naive else self.table,
                        box=self._box,
                        work=WORK,
                        limits=Limits.lab(),
                        repairs=repairs,
                        policy=Policy(redecide=False),
                        offers=False,
                    )
                ),
                decide=self.pick,
                host=host,
                turn=self._door.turn,
            )
            for naive in (False, True)
        }
        # Nobody gets the runs of this one, so what they find need not be theirs alone: the answer has copies of it.
        lent = attrs.evolve(host, memory=DictMemory(self.cache, lends=True))
        self._handler = attrs.evolve(self._drivers[False], host=lent)

    def handle(self, order: object) -> dict[str, Any]:
        """Handle one order with repair; see `answer` for what comes back.

        Attempts that are neither an int nor None end it with the reason ``limits:MAX_ATTEMPTS`` before anything is tried.
        """
        try:
            limits = self.limits()
        except LimitsError as error:
            return unhandled("limits:MAX_ATTEMPTS", error)
        driver = self._handler
        run = driver.engine.start(order, run_id=self._door.numbered(), limits=limits)
        driver.drive(run)
        return self.answer(run)

    async def ahandle(self, order: object) -> dict[str, Any]:
        """`handle` inside a running event loop; bodies may be coroutine functions."""
        try:
            limits = self.limits()
        except LimitsError as error:
            return unhandled("limits:MAX_ATTEMPTS", error)
        driver = self._handler
        run = driver.engine.start(order, run_id=self._door.numbered(), limits=limits)
        await driver.adrive(run)
        return self.answer(run)

    def run_naive(self, order: object) -> dict[str, Any]:
        """Handle one order without repair, whatever the attempts; the answer has `path` too, the states walked."""
        run = self.run(order, naive=True)
        return {**self.answer(run), "path": run.path}

    def run(self, order: object, *, naive: bool = False) -> Run:
        """Drive one order to its end; the run holds its trace, counters and explained stop.

        Raises LimitsError, where there is repair, for attempts that are neither an int nor None.
        """
        driver = self._drivers[naive]
        run = driver.engine.start(order, run_id=self._door.numbered(), limits=None if naive else self.limits())
        driver.drive(run)
        return run

    def explain(self, run: Run) -> Answer | None:
        """The run's full answer: status, stop reason, evidence, what is unknown."""
        return answer_of(run)

    def engine(self, *, naive: bool = False) -> Engine:
        """The engine that handles orders, for whoever drives runs step by step."""
        return self._drivers[naive].engine

    def pick(self, ask: Decide) -> Decision:
        """Choose the tool and the arguments of an order, as a model would; raises OrderFault for what is no order."""
        tool, args = self.choose(ask.run.request)
        return new_decision((new_tool_call(tool, args),))

    def choose(self, order: object) -> tuple[Any, dict[str, Any]]:
        """The tool that an order names, else the default one, and those keys of the order that its contract knows."""
        try:
            if type(order) is not dict and not isinstance(order, Mapping):
                raise OrderFault("args:type:order")
            preferred = order.get("prefer")
            tool = self.default_tool if preferred is None else preferred
            if type(tool) is not str:
                tool = str.__str__(tool) if issubclass(type(tool), str) else no_name(tool)
            tool = tool or self.default_tool
            names = self._box.argument_names(tool)
            if names is None:
                names = self._box.argument_names(self.default_tool) or []
            args = {}
            for name in names:
                if name in order:
                    args[name] = order[name]
            return tool, args
        except Exception as error:
            raise OrderFault("args:type:order") from error

    def limits(self) -> Limits:
        """The limits of one order, with the attempts in force now; raises LimitsError when they are no whole number."""
        most = self.max_attempts
        if type(most) is not int:
            most = self._most_tries()
        known = self._limits.get(most)
        if known is None:
            tries = None if most is None else max(1, most)
            # A try is at most two steps, and the end one.
            known = self._limits[most] = Limits.lab(max_attempts=tries, max_steps=max(64, 2 * (tries or 0) + 2))
        return known

    def _most_tries(self) -> int | None:
        most = self.max_attempts
        if most is None or type(most) is int:
            return most
        if type(most) is bool or not issubclass(type(most), int):
            raise LimitsError(f"max_attempts is {short(most, 60)}; give a whole number from 1, or None")
        return int.__int__(most)

    def answer(self, run: Run) -> dict[str, Any]:
        """What an order gets back, as plain data of its own.

        Its keys are ok, answer, rows, errors, fixes, attempts, calls, tool_runs.
        """
        last = run.calls[-1] if run.calls else None
        ok = last is not None and bool(last.ok)
        errors = run.noted("errors")
        if not errors and not ok:
            errors = [run.note.removeprefix("OrderFault: ") or "stopped"]
        rows: list[Any] = []
        if last is not None and ok:
            rows = rows_of(last.value)
            text = found_text(last.value, rows)
        else:
            text = self.giveup(errors)
        calls = []
        for tool, args in run.tried:
            calls.append({"tool": as_asked(run.request, tool) if tool.startswith("<") else tool, "args": own_args(args)})
        return {
            "ok": ok,
            "answer": text,
            "rows": rows,
            "errors": list(errors),
            "fixes": list(run.noted("fixes")),
            "attempts": len(calls),
            "calls": calls,
            "tool_runs": run.body_runs,
        }

    def reply(self, value: Any) -> str:
        """The answer in words; it claims nothing that is not in the rows."""
        return found_text(value, rows_of(value))

    def giveup(self, errors: Sequence[str]) -> str:
        """The answer in words when nothing could be had."""
        return f"gave up: {errors[-1]}"

    def validate_args(self, name: object, args: object) -> str:
        """An empty text, or the first reason why the arguments break the tool's contract."""
        return self._door.validate_args(name, args)

    def validate_result(self, name: object, value: object) -> str:
        """An empty text, or shape, empty, too_big or range."""
        return self._door.validate_result(name, value)

    def cache_key(self, name: object, args: object) -> str:
        """The key of a call in `cache`: the same for the same call whatever the order of its keys, different for different calls.

        Where the tool's contract has defaults they count as given, and where it names what tells calls apart that alone counts.
        A call with an object that only its identity tells apart has a key, but is never remembered.
        """
        return self._door.cache_key(name, args)

    def call_tool(self, name: object, args: object) -> dict[str, Any]:
        """One call through the door: ``{"ok", "value", "error"}``; see `Door.call_tool`."""
        return self._door.call_tool(name, args)

    def can_repair(self, state: object = None, attempts: int | None = None, *, reason: object = None) -> bool:
        """True while the last reason has a repair, attempts are left, and that repair has not been tried.

        Takes a state (``errors``, ``attempts``, ``fixes``; absent means empty), or a reason, in its place or by its name, and
        the attempts so far. What is neither has no repair, and with attempts that are no number there is none.
        """
        try:
            if isinstance(state, Mapping):
                errors, fixes = state.get("errors") or (), state.get("fixes") or ()
                last, tried = (errors[-1] if errors else ""), state.get("attempts") or 0
            else:
                last, tried, fixes = state if reason is None else reason, attempts or 0, ()
            most, repair = self._most_tries(), self._repairs.get(last) if isinstance(last, str) else None
            return repair is not None and repair[0] not in fixes and bool(most is None or tried < most)
        except Exception:
            return False

    def repaired(self, reason: object, tool: Any, args: Any) -> tuple[str, str, Any] | None:
        """The repair of a reason, and the tool and arguments as it changes them; None where none does or it fails."""
        try:
            name = self._repairs.get(reason)[0]  # type: ignore[arg-type,index]
            mended, changed = self.fixes[name](tool, args)
            return None if mended == tool and same_args(tool, changed, args) else (name, mended, changed)
        except Exception:
            return None
