"""A drawing as DOT text, for Graphviz."""

from __future__ import annotations

from html import escape

from fsm_agent.drawing import Arrow, Drawing, Node, broken, details, visible

# The colours of what a run was in and where it went.
_WALKED = 'color="#b7791f"'
_VISITED = 'fillcolor="#fff3d6"'


def dot_text(drawing: Drawing, font: str) -> str:
    """The drawing in Graphviz's words, in this font; the text is the same for the same drawing."""
    finals = {node.id for node in drawing.nodes if node.final}
    return "\n".join(
        [
            "digraph machine {",
            f'    graph [rankdir=TB, nodesep=0.6, ranksep=0.55, pad=0.2, bgcolor=white, fontname="{font}"]',
            f'    node [shape=box, style="rounded,filled", fillcolor="#eef2fb", color="#44536b", fontname="{font}",'
            ' fontsize=13, margin="0.18,0.1"]',
            f'    edge [color="#44536b", fontcolor="#1f2937", fontname="{font}", fontsize=11, arrowsize=0.8]',
            '    _start [shape=circle, style=filled, width=0.16, color="#1f2937", fillcolor="#1f2937", label=""]',
            *(f"    {node.id} [{_node(node)}]" for node in drawing.nodes),
            f"    _start -> {drawing.initial}",
            *(_arrow(arrow, arrow.target in finals) for arrow in drawing.arrows),
            "}\n",
        ]
    )


def _arrow(arrow: Arrow, ends: bool) -> str:
    lines = [part for line in arrow.lines for part in broken(line)]
    # A space at either side of a label keeps it off its arrow.
    parts = ['label="' + "\\n".join(f" {_text(part)} " for part in lines) + '"'] if lines else []
    if arrow.source == arrow.target:
        # On the right stand the labels of the arrows that go down.
        parts += ["tailport=nw", "headport=w"]
    elif ends:
        # Ways out must not pull the way that a good run takes out of its straight line.
        parts += ["weight=0"]
    if arrow.times:
        parts += [_WALKED, "penwidth=2.4"]
    return f"    {arrow.source} -> {arrow.target}" + (f" [{', '.join(parts)}]" if parts else "")


def _text(text: str) -> str:
    text = visible(text).replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')
    return text.replace("\n", "\\n")


def _node(node: Node) -> str:
    cells = [f"<b>{_html(node.name)}</b>"]
    cells += [f'<font point-size="10" color="#4b5563">{_html(line)}</font>' for line in details(node)]
    rows = "".join(f"<tr><td>{cell}</td></tr>" for cell in cells)
    parts = [f'label=<<table border="0" cellborder="0" cellspacing="0" cellpadding="1">{rows}</table>>']
    parts += ["peripheries=2"] if node.final else []
    parts += [_VISITED, _WALKED, "penwidth=2"] if node.visits else ['fillcolor="#e9f5ec"'] if node.final else []
    return ", ".join(parts)


def _html(text: str) -> str:
    return escape(visible(text)).replace("\n", "<br/>")
