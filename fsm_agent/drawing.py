"""What is drawn of a machine, before it is put into a language: states, arrows, and on them the run that walked them.

All rows between two states share one arrow, one line a row, so no row is dropped and no two labels lie on each other. A row
that is open when the guarded ones before it are closed is marked ``[else]``.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from fsm_agent.core.run import Run
from fsm_agent.core.short_text import printable
from fsm_agent.core.table import Row, State, Table
from fsm_agent.core.walked import walked

LINE_WIDTH = 30
_BODY_WIDTH = 36
# Words of the two grammars, and names that Mermaid's own objects already have.
_RESERVED = frozenset(
    {
        "accdescr", "acctitle", "as", "bt", "choice", "class", "classdef", "click", "default", "digraph",
        "direction", "edge", "end", "fork", "graph", "hide", "href", "join", "left", "lr", "node", "note", "of",
        "rl", "right", "root", "rootend", "rootstart", "scale", "state", "statediagram", "strict", "style",
        "subgraph", "tb", "title", "constructor", "hasownproperty", "isprototypeof", "propertyisenumerable",
        "proto", "tolocalestring", "tostring", "valueof",
    }
)


@attrs.frozen(kw_only=True)
class Node:
    """One state as it is drawn; texts are empty where there is nothing to say, `visits` is how often a run entered it."""

    id: str
    name: str
    about: str
    tools: str
    final: bool
    visits: int = 0
    here: str = ""


@attrs.frozen(kw_only=True)
class Line:
    """One row on its arrow: the outcome, its guards in brackets, and how often a run walked it."""

    outcome: str
    guards: str
    times: int = 0

    @property
    def marks(self) -> str:
        """What follows the outcome."""
        return " ".join(part for part in (self.guards, f"\u00d7{self.times}" if self.times else "") if part)

    def __str__(self) -> str:
        return f"{self.outcome} {self.marks}".rstrip()


@attrs.frozen(kw_only=True)
class Arrow:
    """All rows from one state to another, in the order of the table; `times` is how often a run went this way."""

    source: str
    target: str
    lines: tuple[Line, ...]
    times: int = 0


@attrs.frozen(kw_only=True)
class Drawing:
    """States and arrows, and the state in which a run begins."""

    nodes: tuple[Node, ...]
    arrows: tuple[Arrow, ...]
    initial: str


def drawn(table: Table, labels: bool, run: Run | None = None) -> Drawing:
    """What there is to draw of a table, and of a run that walked it; raises RunError for a run of another machine."""
    # A table need not be sound to be drawn: whoever looks for its fault wants to see every row of it.
    states = {state.name: state for state in reversed(table.states)}
    names = [*(state.name for state in table.states), table.initial]
    names += [name for row in table.rows for name in (row.source, row.target)]
    ids = identifiers(names)
    calls_tools = any(state.tools is None or state.tools for state in table.states)
    nodes = [_node(name, ids[name], states.get(name), table, labels, calls_tools) for name in ids]
    times: Counter[int] = Counter()
    if run is not None:
        # Rows that are equal are walked by the first of them: it is the one that wins.
        times.update(table.rows.index(row) for row in walked(table, run))
        nodes = [_visited(node, run) for node in nodes]
    return Drawing(nodes=tuple(nodes), arrows=_arrows(table.rows, ids, labels, times), initial=ids[table.initial])


def _visited(node: Node, run: Run) -> Node:
    visits = sum(kind == "state_entered" and subject == node.name for kind, _, subject, _ in run.trace)
    here = ""
    if run.state == node.name:
        here = f"ended: {run.stop.reason.value}" if run.stop is not None else "paused here" if run.paused else "is here"
    return attrs.evolve(node, visits=visits, here=here)


def identifiers(names: Iterable[str]) -> dict[str, str]:
    """Return for each name, in order, an identifier: an ASCII word of its own, reserved in neither Mermaid nor DOT."""
    ids: dict[str, str] = {}
    taken: set[str] = set()
    for name in dict.fromkeys(names):
        folded = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
        word = "_".join("".join(c if c.isalnum() else " " for c in folded).split())
        if not word or word[0].isdigit() or _is_reserved(word):
            word = f"s_{word}" if word else "s"
        one, count = word, 1
        while one.lower() in taken:
            count += 1
            one = f"{word}_{count}"
        taken.add(one.lower())
        ids[name] = one
    return ids


def _is_reserved(word: str) -> bool:
    return word.replace("_", "").lower() in _RESERVED


def _node(name: str, id: str, state: State | None, table: Table, labels: bool, calls_tools: bool) -> Node:
    if state is None or not labels:
        return Node(id=id, name=name, about="", tools="", final=state is not None and state.final)
    kind = table.kinds.get(state.work)
    about = (kind.about if kind is not None else "") or ("" if state.work == name else state.work)
    tools = "all" if state.tools is None else ", ".join(sorted(state.tools)) or "none"
    return Node(id=id, name=name, about=about, tools=f"tools: {tools}" if calls_tools else "", final=state.final)


def _arrows(rows: Sequence[Row], ids: Mapping[str, str], labels: bool, times: Mapping[int, int]) -> tuple[Arrow, ...]:
    pairs: dict[tuple[str, str], list[Line]] = {}
    walks: Counter[tuple[str, str]] = Counter()
    guarded: set[tuple[str, str]] = set()
    for number, row in enumerate(rows):
        ends = ids[row.source], ids[row.target]
        pair = pairs.setdefault(ends, [])
        walks[ends] += times.get(number, 0)
        guards = ", ".join(_guard_name(guard) for guard in row.guards)
        marks = f"[{guards}]" if guards else "[else]" if (row.source, row.outcome) in guarded else ""
        if row.guards:
            guarded.add((row.source, row.outcome))
        if labels:
            pair.append(Line(outcome=row.outcome, guards=marks, times=times.get(number, 0)))
    return tuple(Arrow(source=a, target=b, lines=_named(found), times=walks[a, b]) for (a, b), found in pairs.items())


def _named(lines: list[Line]) -> tuple[Line, ...]:
    """The rows of one arrow; an outcome without a name gets one where it stands beside others."""
    if len(lines) == 1 and not str(lines[0]):
        return ()
    return tuple(attrs.evolve(line, outcome=line.outcome or "(no name)") for line in lines)


def _guard_name(guard: Any) -> str:
    return str(getattr(guard, "name", None) or getattr(guard, "__name__", None) or type(guard).__name__)


def details(node: Node) -> list[str]:
    """The lines under a state's name."""
    return [*wrapped(node.about), *wrapped(node.tools), *wrapped(node.here)]


def wrapped(text: str) -> list[str]:
    """A text in lines that fit a state."""
    return textwrap.wrap(text, _BODY_WIDTH, break_long_words=False, break_on_hyphens=False)


def broken(line: Line) -> list[str]:
    """One row's label in lines of about `LINE_WIDTH` characters, broken between guards only."""
    whole, marks = str(line), line.marks
    if len(whole) <= LINE_WIDTH or not marks:
        return [whole]
    return [line.outcome, *marks.replace(", ", ",\n").split("\n")] if len(marks) > LINE_WIDTH else [line.outcome, marks]


def visible(text: str) -> str:
    """The text with what cannot be seen or written (control characters, lone surrogates) as escapes; line ends stay."""
    return text if text.isprintable() else "\n".join(printable(line) for line in text.split("\n"))
