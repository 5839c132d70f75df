"""Expectations of calls: how often bodies ran and with what, what their results were, and that each call has one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from fsm_agent.core.events import Decided
from fsm_agent.core.messages import Message, Role
from fsm_agent.scenario.came import Came, Check, Looked, Result
from fsm_agent.scenario.matching import (
    equal,
    error_fits,
    figure_fits,
    figure_words,
    figures_off,
    lacking,
    listed,
    shown,
    standing,
    word_fits,
)
from fsm_agent.scenario.track import Track

_RANGE = {"min", "max"}
# Errors of calls that did not fail themselves.
_NOT_RUN = ("skipped:", "cancelled", "superseded")


def _seen(came: Came, tool: str) -> list[dict[str, Any]]:
    return came.world.tools[tool].seen if tool in came.world.tools else []


def _tool_runs(wanted: Mapping[str, Any], came: Came) -> Looked:
    runs = {tool: len(_seen(came, tool)) for tool in wanted}
    return runs, figures_off(wanted, runs)


def _tool_args(wanted: Mapping[str, Any], came: Came) -> Looked:
    seen = {tool: _seen(came, tool) for tool in wanted}
    faults = []
    for tool, args in wanted.items():
        if not equal(listed(args), seen[tool]):
            faults.append(f"{tool}: expected {shown(listed(args))}, came {shown(seen[tool])}")
    return seen, faults


def _tool_args_in(wanted: Mapping[str, Any], came: Came) -> Looked:
    seen = {tool: _seen(came, tool) for tool in wanted}
    faults = []
    for tool, accepted in wanted.items():
        if isinstance(accepted, list) and accepted and all(isinstance(one, list) for one in accepted):
            wrong: list[Any] = [] if any(equal(one, seen[tool]) for one in accepted) else [seen[tool]]
        else:
            wrong = [args for args in seen[tool] if not _accepted(accepted, args)]
        faults += [f"{tool}: {shown(args)} is none of {shown(accepted)}" for args in wrong]
    return seen, faults


def _accepted(accepted: Any, args: Mapping[str, Any]) -> bool:
    """One of a list of arguments, or of a mapping of argument to the values that it may have."""
    if isinstance(accepted, list):
        return any(equal(one, args) for one in accepted)
    return all(name in args and any(equal(one, args[name]) for one in listed(values)) for name, values in accepted.items())


def _distinct_args(wanted: Mapping[str, Any], came: Came) -> Looked:
    counts, faults = {}, []
    for tool, one in wanted.items():
        seen = _seen(came, tool)
        distinct: list[Any] = []
        for args in seen:
            if not any(equal(args, other) for other in distinct):
                distinct.append(args)
        counts[tool] = len(distinct)
        fits = (len(distinct) == len(seen)) is one if isinstance(one, bool) else figure_fits(one, len(distinct))
        if not fits:
            what = f"expected {'no repetition' if one is True else 'a repetition' if one is False else figure_words(one)}"
            faults.append(f"{tool}: {what}, came {len(distinct)} in {len(seen)} runs")
    return counts, faults


def _max_active(wanted: Any, came: Came) -> Looked:
    if isinstance(wanted, Mapping) and not wanted.keys() <= _RANGE:
        most = {tool: came.world.tools[tool].most_active if tool in came.world.tools else 0 for tool in wanted}
        return most, figures_off(wanted, most)
    active = came.world.most_active
    return active, [] if figure_fits(wanted, active) else [f"expected {figure_words(wanted)}, came {active}"]


# ---- results


def _results(wanted: list[Mapping[str, Any]], came: Came) -> Looked:
    results = came.results()
    at, faults = 0, []
    for one in wanted:
        found = _find(one, results, at)
        if found is None:
            what = f"call {one['call']}" if "call" in one else shown(dict(one))
            had = ", ".join(result.call for result in results) or "none"
            behind = f" behind {results[at - 1].call}" if at else ""
            faults.append(f"there is no result of {what}{behind}; results are of {had}")
            continue
        at = found + 1
        faults += [f"{results[found].call}: {fault}" for fault in _result_faults(one, results[found])]
    return [{"call": one.call, "ok": one.ok, "error": one.error or None, "value": one.value} for one in results], faults


def _find(wanted: Mapping[str, Any], results: list[Result], at: int) -> int | None:
    for place, one in enumerate(results[at:], at):
        if one.call == wanted["call"] if "call" in wanted else not _result_faults(wanted, one):
            return place
    return None


def _result_faults(wanted: Mapping[str, Any], came: Result) -> list[str]:
    return [f"{key}: {fault}" for key, one in wanted.items() if (fault := _RESULT_CHECKS[key](one, came))]


def _same(look: Callable[[Result], Any]) -> Callable[[Any, Result], str]:
    return lambda wanted, came: "" if equal(wanted, look(came)) else f"expected {shown(wanted)}, came {shown(look(came))}"


def _error(wanted: Any, came: Result) -> str:
    return "" if error_fits(wanted, came.error) else f"expected {shown(wanted)}, came {shown(came.error)}"


def _class(wanted: Any, came: Result) -> str:
    return "" if word_fits(wanted, came.kind) else f"expected {shown(wanted)}, came {came.kind}"


def _has(wanted: Any, came: Result) -> str:
    return "; ".join(f"{shown(one)} does not stand in {shown(came.text)}" for one in lacking(wanted, came.text))


def _lacks(wanted: Any, came: Result) -> str:
    return "; ".join(f"{shown(one)} stands in {shown(came.text)}" for one in standing(wanted, came.text))


def _chars(wanted: Any, came: Result) -> str:
    return "" if figure_fits(wanted, len(came.text)) else f"expected {figure_words(wanted)}, came {len(came.text)}"


_RESULT_CHECKS: Mapping[str, Callable[[Any, Result], str]] = {
    "call": _same(lambda came: came.call),
    "tool": _same(lambda came: came.tool),
    "ok": _same(lambda came: came.ok),
    "value": _same(lambda came: came.value),
    "reused": _same(lambda came: came.reused),
    "error": _error,
    "class": _class,
    "has": _has,
    "lacks": _lacks,
    "chars": _chars,
}


def _errors(wanted: Any, came: Came) -> Looked:
    """The error words of all tries, or of the results, with or without those of calls that did not run, in order."""
    results = [one.error for one in came.results() if one.error]
    views = [list(came.run.errors) if came.run is not None else [], results]
    views += [[word for word in view if not word.startswith(_NOT_RUN)] for view in list(views)]
    if not isinstance(wanted, list) or any(isinstance(one, int | float | Mapping) for one in wanted):
        fits = any(figure_fits(wanted, len(view)) for view in views)
        return views[0], [] if fits else [f"expected {figure_words(wanted)}, came {len(views[0])} ({shown(views[0])})"]
    fits = any(len(view) == len(wanted) and all(map(error_fits, wanted, view)) for view in views)
    return views[0], [] if fits else [f"expected {shown(wanted)}, came {shown(views[0])}"]


def _pending(wanted: Mapping[str, str], came: Came) -> Looked:
    pending = came.track.agent.pending(came.track.run) if came.track is not None else ()
    waiting = {one.call_id: str(one.kind) for one in pending}
    return waiting, [] if waiting == dict(wanted) else [f"expected {shown(dict(wanted))}, came {shown(waiting)}"]


# ---- one result each


def _every_call(wanted: bool, came: Came) -> Looked:
    faults = ["there is no run"] if came.track is None else _unanswered(came.track)
    if not wanted:
        return not faults, [] if faults else ["expected some call without exactly one result"]
    return not faults, faults


def _unanswered(track: Track) -> list[str]:
    run = track.run
    ids = Counter(call.id for call in [*run.calls, *run.open_calls])
    faults = [f"{one} has {number} records" for one, number in ids.items() if number != 1]
    waiting = {call.id for call in run.open_calls if call.ok is None} if not run.done else set()
    open_ids = [call.id for call in [*run.calls, *run.open_calls] if call.ok is None and call.id not in waiting]
    faults += [f"{one} has no result" for one in open_ids]
    own = [call.id for call in (*run.calls, *run.open_calls) if not call.by_verifier and not call.parent]
    asked = [event.decision.calls or () for _, event in run.journal if isinstance(event, Decided)]
    # A decision none of whose calls names a tool was no decision.
    emitted = sum(len(calls) for calls in asked if any(call.tool for call in calls))
    if len(own) < emitted:
        faults.append(f"the model asked for {emitted} calls and {len(own)} are known")
    return faults + _unpaired(track.agent.history(run))


def _unpaired(messages: list[Message]) -> list[str]:
    asked = Counter(call.id for message in messages if message.role is Role.ASSISTANT for call in message.calls)
    told = Counter(message.call_id for message in messages if message.role is Role.TOOL)
    return [
        f"in the history {one} is asked for {asked[one]} times and has {told[one]} results"
        for one in sorted({*asked, *told})
        if not asked[one] == told[one] == 1
    ]


CALL_CHECKS: Mapping[str, Check] = {
    "tool_runs": _tool_runs,
    "tool_args": _tool_args,
    "tool_args_in": _tool_args_in,
    "distinct_args": _distinct_args,
    "max_active": _max_active,
    "results": _results,
    "errors": _errors,
    "pending": _pending,
    "every_call_has_one_result": _every_call,
}
