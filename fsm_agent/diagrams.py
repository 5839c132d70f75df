"""State diagrams of a machine, drawn from the rows of its table and from nothing else: Mermaid and DOT text, SVG and PNG.

All rows between two states share one arrow, one line a row, so no row is dropped and no two labels lie on each other. A row
that is open when the guarded ones before it are closed is marked ``[else]``.
"""

from __future__ import annotations

import re
import subprocess
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import attrs

from fsm_agent.core.errors import BuildError, MissingExtra, TableError
from fsm_agent.core.short_text import printable
from fsm_agent.core.table import Row, State, Table

IMAGES = ("svg", "png")
"""The formats that `render` and `image` can make."""

_FONT = "Helvetica,Arial,sans-serif"
# The drawing program knows the widths of one font only by its bare name, and browsers need the others behind it.
_MEASURED_FONT = "Helvetica"
_WIDTH = 30
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
_NAMED_ENTITIES = {'"': "quot", "<": "lt", ">": "gt", "&": "amp"}
_PLAIN_MARKS = frozenset(" _,()[]")
# Markdown takes underscores around a word for emphasis, those inside a word for what they are.
_OUTER_UNDERSCORE = re.compile(r"(?<![^\W_])_|_(?![^\W_])")
# Wherever these words stand in a line, Mermaid takes the whole line for an order to turn the diagram.
_DIRECTION = re.compile(r"(d)(irection\s)", re.IGNORECASE)
_SECONDS = 60
_RANK_SPACING = 50


@attrs.frozen(kw_only=True)
class _Node:
    """One state as it is drawn; `about` and `tools` are empty where there is nothing to say."""

    id: str
    name: str
    about: str
    tools: str
    final: bool


@attrs.frozen(kw_only=True)
class _Arrow:
    """All rows from one state to another, as (outcome, guards) texts in the order of the table."""

    source: str
    target: str
    rows: tuple[tuple[str, str], ...]


@attrs.frozen(kw_only=True)
class _Drawing:
    nodes: tuple[_Node, ...]
    arrows: tuple[_Arrow, ...]
    initial: str


def mermaid(machine: Any, *, labels: bool = True) -> str:
    """Return the machine as a Mermaid state diagram (``stateDiagram-v2``), for a README or any Mermaid reader.

    `machine` is a Table, or anything with a `table` (a compiled machine, a setup, a desk). Without `labels` only the names
    of states remain, the same states connected. The text is the same for the same table. Raises TableError for what has no
    table.
    """
    drawing = _drawn(table_of(machine), labels)
    lines = ["stateDiagram-v2", *_mermaid_spacing(drawing), "    direction TB"]
    for node in drawing.nodes:
        lines.append(f'    state "{_mermaid_text(node.name)}" as {node.id}')
        body = "<br/>".join(_mermaid_text(line) for line in (node.about, *_wrapped(node.tools)) if line)
        lines += [f"    {node.id} : {body}"] if body else []
    lines.append(f"    [*] --> {drawing.initial}")
    for arrow in drawing.arrows:
        label = "<br/>".join(_mermaid_text(_line(outcome, guards)) for outcome, guards in arrow.rows)
        lines.append(f"    {arrow.source} --> {arrow.target}" + (f" : {label}" if label else ""))
    lines += [f"    {node.id} --> [*]" for node in drawing.nodes if node.final]
    return "\n".join(lines) + "\n"


def dot(machine: Any, *, labels: bool = True) -> str:
    """Return the machine as DOT text, for Graphviz; final states have a double border.

    Arguments and errors as those of `mermaid`.
    """
    return _dot(_drawn(table_of(machine), labels), _FONT)


def render(machine: Any, format: str, *, labels: bool = True) -> bytes:
    """Return the machine drawn as ``svg`` or ``png``; the same bytes for the same table.

    Raises MissingExtra when the extra ``diagram`` is not installed, BuildError for another format or when drawing fails.
    """
    if format not in IMAGES:
        raise BuildError(f"a diagram cannot be drawn as {format!r}; take {' or '.join(IMAGES)}")
    text = _dot(_drawn(table_of(machine), labels), _MEASURED_FONT)
    program = _program()
    try:
        done = subprocess.run(
            [str(program), f"-T{format}"], input=text.encode(), capture_output=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise BuildError(f"{program.name} could not draw the diagram: {error}") from error
    if done.returncode or not done.stdout:
        said = done.stderr.decode("utf-8", "replace").strip() or f"it ended with {done.returncode}"
        raise BuildError(f"{program.name} could not draw the diagram: {said.splitlines()[0]}")
    if format == "png":
        return done.stdout
    drawn = re.sub(rf'font-family="{_MEASURED_FONT}[^"]*"', f'font-family="{_FONT}"', done.stdout.decode())
    # A viewer finds an arrow by its title, which should not say where on the state it begins.
    return re.sub(r"<title>(\w+):nw&#45;&gt;\1:w</title>", r"<title>\1&#45;&gt;\1</title>", drawn).encode()


def image(machine: Any, path: str | Path, *, labels: bool = True) -> Path:
    """Write the machine drawn to a file, as the file's name says: ``.svg`` or ``.png``; returns its path.

    Raises as `render` does, and OSError when the file cannot be written.
    """
    path = Path(path)
    format = path.suffix.lower().removeprefix(".")
    if format not in IMAGES:
        raise BuildError(f"the name of {str(path)!r} does not say how to draw; let it end in .svg or .png")
    drawn = render(machine, format, labels=labels)
    path.write_bytes(drawn)
    return path


def table_of(machine: Any) -> Table:
    """Return the table of a machine: itself, its `table`, or that of its `setup`; raises TableError when it has none."""
    for found in (machine, getattr(machine, "table", None), getattr(getattr(machine, "setup", None), "table", None)):
        if isinstance(found, Table):
            return found
    raise TableError(f"a {type(machine).__name__} has no table of states and rows; give a Table, or what has one as .table")


def _program() -> Path:
    """The drawing program of the package graphviz-pure, wherever its installer put it."""
    from importlib import metadata

    try:
        package = metadata.distribution("graphviz-pure")
    except metadata.PackageNotFoundError:
        raise MissingExtra("graphviz-pure", "diagram", "drawing SVG and PNG") from None
    for file in package.files or ():
        if file.stem == "graphviz-pure" and file.suffix in ("", ".exe"):
            found = Path(str(package.locate_file(file))).resolve()
            if found.is_file():
                return found
    raise MissingExtra("graphviz-pure", "diagram", "drawing SVG and PNG")


# -- what is drawn, in either language ---------------------------------------------------------------------------------


def _drawn(table: Table, labels: bool) -> _Drawing:
    # A table need not be sound to be drawn: whoever looks for its fault wants to see every row of it.
    states = {state.name: state for state in reversed(table.states)}
    names = [*(state.name for state in table.states), table.initial]
    names += [name for row in table.rows for name in (row.source, row.target)]
    ids = identifiers(names)
    calls_tools = any(state.tools is None or state.tools for state in table.states)
    return _Drawing(
        nodes=tuple(_node(name, ids[name], states.get(name), table, labels, calls_tools) for name in ids),
        arrows=_arrows(table.rows, ids, labels),
        initial=ids[table.initial],
    )


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


def _node(name: str, id: str, state: State | None, table: Table, labels: bool, calls_tools: bool) -> _Node:
    if state is None or not labels:
        return _Node(id=id, name=name, about="", tools="", final=state is not None and state.final)
    kind = table.kinds.get(state.work)
    about = (kind.about if kind is not None else "") or ("" if state.work == name else state.work)
    tools = "all" if state.tools is None else ", ".join(sorted(state.tools)) or "none"
    return _Node(id=id, name=name, about=about, tools=f"tools: {tools}" if calls_tools else "", final=state.final)


def _arrows(rows: Sequence[Row], ids: Mapping[str, str], labels: bool) -> tuple[_Arrow, ...]:
    pairs: dict[tuple[str, str], list[tuple[str, str]]] = {}
    guarded: set[tuple[str, str]] = set()
    for row in rows:
        pair = pairs.setdefault((ids[row.source], ids[row.target]), [])
        guards = ", ".join(_guard_name(guard) for guard in row.guards)
        marks = f"[{guards}]" if guards else "[else]" if (row.source, row.outcome) in guarded else ""
        if row.guards:
            guarded.add((row.source, row.outcome))
        if labels:
            pair.append((row.outcome, marks))
    return tuple(_Arrow(source=a, target=b, rows=_named(found)) for (a, b), found in pairs.items())


def _named(rows: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The rows of one arrow; an outcome without a name gets one where it stands beside others."""
    if rows == [("", "")]:
        return ()
    return tuple((outcome or "(no name)", guards) for outcome, guards in rows)


def _guard_name(guard: Any) -> str:
    return str(getattr(guard, "name", None) or getattr(guard, "__name__", None) or type(guard).__name__)


def _details(node: _Node) -> list[str]:
    return [*_wrapped(node.about), *_wrapped(node.tools)]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _BODY_WIDTH, break_long_words=False, break_on_hyphens=False)


def _line(outcome: str, guards: str) -> str:
    return f"{outcome} {guards}" if guards else outcome


def _broken(outcome: str, guards: str) -> list[str]:
    """One row's label in lines of about `_WIDTH` characters, broken between guards only."""
    whole = _line(outcome, guards)
    if len(whole) <= _WIDTH or not guards:
        return [whole]
    return [outcome, *guards.replace(", ", ",\n").split("\n")] if len(guards) > _WIDTH else [outcome, guards]


# -- the two languages -------------------------------------------------------------------------------------------------


def _visible(text: str) -> str:
    """The text with what cannot be seen or written (control characters, lone surrogates) as escapes; line ends stay."""
    return text if text.isprintable() else "\n".join(printable(line) for line in text.split("\n"))


def _mermaid_spacing(drawing: _Drawing) -> list[str]:
    # Mermaid leaves no room for the label of an arrow from a state to itself; the room between ranks has to hold it.
    loops = [arrow.rows for arrow in drawing.arrows if arrow.source == arrow.target]
    lines = max((sum(1 + len(f"{outcome} {guards}") // _WIDTH for outcome, guards in rows) for rows in loops), default=0)
    spacing = 23 * lines
    return [f'    %%{{init: {{"flowchart": {{"rankSpacing": {spacing}}}}}}}%%'] if spacing > _RANK_SPACING else []


def _mermaid_text(text: str) -> str:
    # Whatever could end a label, begin a directive or be taken for markup goes in as an entity.
    text = _visible(text)
    marked = "".join(map(_mermaid_mark, text)).replace("[[", "#91;#91;")
    return _OUTER_UNDERSCORE.sub("#95;", _DIRECTION.sub(lambda found: f"#{ord(found[1])};{found[2]}", marked))


def _mermaid_mark(c: str) -> str:
    if c.isalnum() or c in _PLAIN_MARKS or not c.isascii():
        return c
    return "<br/>" if c == "\n" else f"#{_NAMED_ENTITIES.get(c) or ord(c)};"


def _dot(drawing: _Drawing, font: str) -> str:
    finals = {node.id for node in drawing.nodes if node.final}
    return "\n".join(
        [
            "digraph machine {",
            f'    graph [rankdir=TB, nodesep=0.6, ranksep=0.55, pad=0.2, bgcolor=white, fontname="{font}"]',
            f'    node [shape=box, style="rounded,filled", fillcolor="#eef2fb", color="#44536b", fontname="{font}",'
            ' fontsize=13, margin="0.18,0.1"]',
            f'    edge [color="#44536b", fontcolor="#1f2937", fontname="{font}", fontsize=11, arrowsize=0.8]',
            '    _start [shape=circle, style=filled, width=0.16, color="#1f2937", fillcolor="#1f2937", label=""]',
            *(f"    {node.id} [{_dot_node(node)}]" for node in drawing.nodes),
            f"    _start -> {drawing.initial}",
            *(_dot_arrow(arrow, arrow.target in finals) for arrow in drawing.arrows),
            "}\n",
        ]
    )


def _dot_arrow(arrow: _Arrow, ends: bool) -> str:
    lines = [line for outcome, guards in arrow.rows for line in _broken(outcome, guards)]
    # A space at either side of a label keeps it off its arrow.
    parts = ['label="' + "\\n".join(f" {_dot_text(line)} " for line in lines) + '"'] if lines else []
    if arrow.source == arrow.target:
        # On the right stand the labels of the arrows that go down.
        parts += ["tailport=nw", "headport=w"]
    elif ends:
        # Ways out must not pull the way that a good run takes out of its straight line.
        parts += ["weight=0"]
    return f"    {arrow.source} -> {arrow.target}" + (f" [{', '.join(parts)}]" if parts else "")


def _dot_text(text: str) -> str:
    text = _visible(text).replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')
    return text.replace("\n", "\\n")


def _dot_node(node: _Node) -> str:
    cells = [f"<b>{_html(node.name)}</b>"]
    cells += [f'<font point-size="10" color="#4b5563">{_html(line)}</font>' for line in _details(node)]
    rows = "".join(f"<tr><td>{cell}</td></tr>" for cell in cells)
    final = ', peripheries=2, fillcolor="#e9f5ec"' if node.final else ""
    return f'label=<<table border="0" cellborder="0" cellspacing="0" cellpadding="1">{rows}</table>>{final}'


def _html(text: str) -> str:
    return escape(_visible(text)).replace("\n", "<br/>")
