"""What results say again: equal ones are counted, and what in them is new is told from what was known."""

from __future__ import annotations

from collections.abc import Sequence

from fsm_agent.core.keys import leaves, observation_key, observed
from fsm_agent.core.results import says_nothing
from fsm_agent.core.run import Call, Run
from fsm_agent.core.tools import Tool


def observe(run: Run, call: Call, tool: Tool | None, turn: Sequence[Call]) -> bool:
    """Count an observation and its facts; true when one of them is new. `turn` are the calls that are folded with it."""
    most = run.limits.max_same_observation
    empty_is_normal = tool is not None and tool.empty_ok and says_nothing(call.value)
    if run.only_observation:
        compare_first(run, turn)
    elif not (empty_is_normal or run.observations or run.facts or (most is not None and most < 2)):
        # Many runs have no second one that it could be compared with; its facts are new in any case.
        run.only_observation = call.id
        run.same_observation = int(most is not None)
        return True
    return _compare(run, call, empty_is_normal)


def compare_first(run: Run, turn: Sequence[Call] = ()) -> None:
    """Count the run's only observation so far, which is put off until another one is compared with it."""
    first, run.only_observation = run.only_observation, ""
    for call in (*run.calls, *run.open_calls, *turn):
        if call.id == first:
            _compare(run, call, False)


def _compare(run: Run, call: Call, empty_is_normal: bool) -> bool:
    limits = run.limits
    facts_count, found = limits.max_stale_turns is not None, None
    if limits.max_same_observation is not None and not empty_is_normal:
        key, found = observed(call.value) if facts_count else (observation_key(call.value), None)
        call.observation = key
        count = run.observations[key] = run.observations.get(key, 0) + 1
        run.same_observation = max(run.same_observation, count)
    if not facts_count:
        return True
    facts = run.facts
    before = len(facts)
    for leaf in leaves(call.value) if found is None else found:
        facts[leaf] = True
    return len(facts) > before or empty_is_normal
