"""A drawing as Mermaid text (``stateDiagram-v2``)."""

from __future__ import annotations

import re

from fsm_agent.drawing import LINE_WIDTH, Drawing, visible, wrapped

_NAMED_ENTITIES = {'"': "quot", "<": "lt", ">": "gt", "&": "amp"}
_PLAIN_MARKS = frozenset(" _,()[]")
# Markdown takes underscores around a word for emphasis, those inside a word for what they are.
_OUTER_UNDERSCORE = re.compile(r"(?<![^\W_])_|_(?![^\W_])")
# Wherever these words stand in a line, Mermaid takes the whole line for an order to turn the diagram.
_DIRECTION = re.compile(r"(d)(irection\s)", re.IGNORECASE)
_RANK_SPACING = 50


# The colours of a state that a run was in.
_WALKED = "fill:#fff3d6,stroke:#b7791f,stroke-width:2px"


def mermaid_text(drawing: Drawing) -> str:
    """The drawing in Mermaid's words; the text is the same for the same drawing."""
    lines = ["stateDiagram-v2", *_spacing(drawing), "    direction TB"]
    for node in drawing.nodes:
        lines.append(f'    state "{_text(node.name)}" as {node.id}')
        body = "<br/>".join(_text(part) for part in (node.about, *wrapped(node.tools), node.here) if part)
        lines += [f"    {node.id} : {body}"] if body else []
    lines.append(f"    [*] --> {drawing.initial}")
    for arrow in drawing.arrows:
        label = "<br/>".join(_text(str(line)) for line in arrow.lines)
        lines.append(f"    {arrow.source} --> {arrow.target}" + (f" : {label}" if label else ""))
    lines += [f"    {node.id} --> [*]" for node in drawing.nodes if node.final]
    if visited := [node.id for node in drawing.nodes if node.visits]:
        lines += [f"    classDef walked {_WALKED}", f"    class {','.join(visited)} walked"]
    return "\n".join(lines) + "\n"


def _spacing(drawing: Drawing) -> list[str]:
    # Mermaid leaves no room for the label of an arrow from a state to itself; the room between ranks has to hold it.
    loops = [arrow.lines for arrow in drawing.arrows if arrow.source == arrow.target]
    high = max((sum(1 + len(f"{line.outcome} {line.marks}") // LINE_WIDTH for line in lines) for lines in loops), default=0)
    spacing = 23 * high
    return [f'    %%{{init: {{"flowchart": {{"rankSpacing": {spacing}}}}}}}%%'] if spacing > _RANK_SPACING else []


def _text(text: str) -> str:
    # Whatever could end a label, begin a directive or be taken for markup goes in as an entity.
    text = visible(text)
    marked = "".join(map(_mark, text)).replace("[[", "#91;#91;")
    return _OUTER_UNDERSCORE.sub("#95;", _DIRECTION.sub(lambda found: f"#{ord(found[1])};{found[2]}", marked))


def _mark(c: str) -> str:
    if c.isalnum() or c in _PLAIN_MARKS or not c.isascii():
        return c
    return "<br/>" if c == "\n" else f"#{_NAMED_ENTITIES.get(c) or ord(c)};"
