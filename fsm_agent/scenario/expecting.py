"""Expectations: each key of `expect`, what it looks at, and the sentence for what came otherwise."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import attrs

from fsm_agent.scenario.came import Came, Check, Looked
from fsm_agent.scenario.expecting_calls import CALL_CHECKS
from fsm_agent.scenario.expecting_events import EVENT_CHECKS
from fsm_agent.scenario.matching import (
    figure_fits,
    figure_words,
    figures_off,
    lacking,
    listed,
    shown,
    standing,
    word_fits,
)


@attrs.frozen(kw_only=True)
class Outcome:
    """One expectation: its key, what was wanted, what came, and the faults, none where it holds."""

    key: str
    wanted: Any
    came: Any
    faults: tuple[str, ...] = ()


def check(expect: Mapping[str, Any], came: Came, left_out: Collection[str] = ()) -> list[Outcome]:
    """Compare every expectation with what came, but for those that are left out, where there is no run to look at."""
    outcomes: list[Outcome] = []
    for key, wanted in expect.items():
        if key in left_out:
            continue
        value, faults = CHECKS[key](wanted, came)
        outcomes.append(Outcome(key=key, wanted=wanted, came=value, faults=tuple(f"{key}: {fault}" for fault in faults)))
    return outcomes


def always(came: Came) -> list[str]:
    """What every run that was driven to its end must keep: it ended or paused, and a final text is not empty."""
    run, answer = came.run, came.answer
    if run is None or came.raised is not None:
        return []
    if answer is None:
        drive = came.track.drive if came.track is not None else None
        if drive is not None and not drive.done.on:
            return []
        return [f"the run neither ended nor paused; it stands in state {run.state!r}"]
    if run.done and not answer.text.strip():
        return ["the final text is empty"]
    return []


def _word(look: Callable[[Came], str | None]) -> Check:
    def check_word(wanted: Any, came: Came) -> Looked:
        word = look(came)
        return word, [] if word_fits(wanted, word) else [f"expected {_words(wanted)}, came {word}"]

    return check_word


def _words(wanted: Any) -> str:
    return " or ".join(map(str, listed(wanted)))


def _figure(look: Callable[[Came], float]) -> Check:
    def check_figure(wanted: Any, came: Came) -> Looked:
        figure = look(came)
        return figure, [] if figure_fits(wanted, figure) else [f"expected {figure_words(wanted)}, came {figure:g}"]

    return check_figure


def _stop_reason(came: Came) -> str | None:
    reason = came.answer.stop_reason if came.answer is not None else None
    return reason.value if reason is not None else None


def _said(came: Came) -> str:
    return came.answer.text if came.answer is not None else ""


def _text(wanted: Any, came: Came) -> Looked:
    text, accepted = _said(came), listed(wanted)
    return text, [] if text in accepted else [f"expected {' or '.join(map(shown, accepted))}, came {shown(text, 300)}"]


def _text_has(wanted: Any, came: Came) -> Looked:
    text = _said(came)
    return text, [f"{shown(one)} does not stand in {shown(text, 300)}" for one in lacking(wanted, text)]


def _text_lacks(wanted: Any, came: Came) -> Looked:
    text = _said(came)
    return text, [f"{shown(one)} stands in {shown(text, 300)}" for one in standing(wanted, text)]


def _fields(wanted: Mapping[str, Any], came: Came) -> Looked:
    answer = came.answer
    lengths = {name: len(getattr(answer, name)) if answer is not None else 0 for name in wanted}
    return lengths, figures_off(wanted, lengths)


def _usage(wanted: Mapping[str, Any], came: Came) -> Looked:
    usage = came.usage()
    figures = {name: usage.get(name, 0) for name in wanted}
    return figures, figures_off(wanted, figures)


def _raises(wanted: Any, came: Came) -> Looked:
    names, accepted = came.raised_names(), listed(wanted)
    said = f"{names[0]} ({shown(str(came.raised), 200)})" if names else "nothing"
    fits = None in accepted if names is None else any(name in accepted for name in names)
    return names[0] if names else None, [] if fits else [f"expected {_words([one or 'nothing' for one in accepted])}, came {said}"]


def _model_saw(wanted: Any, came: Came) -> Looked:
    seen = came.track.seen if came.track is not None and came.track.seen is not None else came.world.model.seen
    if seen is None:
        return None, ["the model was never asked"]
    text = "\n".join(seen.texts())
    has, lacks = (wanted.get("has", []), wanted.get("lacks", [])) if isinstance(wanted, Mapping) else (wanted, [])
    faults = [f"the last request lacks {shown(one)}" for one in lacking(has, text)]
    return shown(text, 300), faults + [f"the last request has {shown(one)}" for one in standing(lacks, text)]


CHECKS: Mapping[str, Check] = {
    "status": _word(lambda came: came.status),
    "stop_reason": _word(_stop_reason),
    "finish_reason": _word(lambda came: came.run.finish if came.run is not None else None),
    "state": _word(lambda came: came.run.state if came.run is not None else None),
    "text": _text,
    "text_has": _text_has,
    "text_lacks": _text_lacks,
    "fields": _fields,
    "usage": _usage,
    "raises": _raises,
    "model_saw": _model_saw,
    "model_turns": _figure(lambda came: came.world.model.turns),
    "verifier_runs": _figure(lambda came: came.world.verifier_runs),
    "waited_s": _figure(lambda came: came.world.stage.clock.slept_s),
    **CALL_CHECKS,
    **EVENT_CHECKS,
}
# What is looked at of a run; the others are counted over all runs of a file, also where there is none.
OF_A_RUN = CHECKS.keys() - {
    "model_turns", "verifier_runs", "waited_s", "raises", "tool_runs", "tool_args", "tool_args_in", "distinct_args", "max_active",
}  # fmt: skip
