"""What a provider wants back with a turn and nobody else can read: taken from a reply in its place, and put there again.

It travels as plain JSON (`Decision.kept`, `Message.kept`): who made it, and the reply's parts in their order. Of a text only the
length is noted and of a call only that it stood there, so that neither is kept twice and no secret argument is kept at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

import attrs

from fsm_agent.core.short_text import paired
from fsm_agent.models.wire_history import Group
from fsm_agent.models.wire_values import wire_value

_IN_PIECES: Final = ("text", "summary", "data")


class Kind(StrEnum):
    """What a part of a reply is."""

    TEXT = "text"
    CALL = "call"
    OPAQUE = "opaque"


@attrs.frozen
class Part:
    """One part of a reply: its text, its call, or what is kept as it is; `more` is what a text or call has to have again."""

    kind: Kind
    value: Any
    more: Mapping[str, Any] = attrs.field(factory=dict)


def text_of(parts: Iterable[Part]) -> str:
    """The text of a reply's parts; some servers send a character in two halves."""
    return paired("".join(part.value for part in parts if part.kind is Kind.TEXT))


def kept_of(by: str, parts: Iterable[Part]) -> dict[str, Any] | None:
    """What has to go back with the turn to whoever is named `by`; None where the parts hold nothing of the sort."""
    noted = [_noted(part) for part in parts]
    worth = any("opaque" in one or "more" in one for one in noted)
    return {"by": by, "parts": noted} if worth else None


def _noted(part: Part) -> dict[str, Any]:
    value = part.value if part.kind is Kind.OPAQUE else len(part.value) if part.kind is Kind.TEXT else True
    return {part.kind.value: value, **({"more": dict(part.more)} if part.more else {})}


def placed(by: str, group: Group) -> list[Part]:
    """A turn's text and calls (`Answered`) with what was kept of it between them; without that, the text comes first.

    Another provider's is left out, and so is what has no such form.
    """
    rest, calls = group.text, list(group.answered)
    noted = _parts(group.kept, by)
    texts = sum(Kind.TEXT in one for one in noted)
    made: list[Part] = []
    for one in noted:
        said = one.get("more")
        more: Mapping[str, Any] = wire_value(said) if isinstance(said, Mapping) else {}
        if Kind.OPAQUE in one:
            made.append(Part(Kind.OPAQUE, wire_value(one["opaque"])))
        elif Kind.TEXT in one:
            texts -= 1
            length = one["text"] if texts and type(one["text"]) is int else len(rest)
            made.append(Part(Kind.TEXT, rest[:length], more))
            rest = rest[length:]
        elif calls:
            made.append(Part(Kind.CALL, calls.pop(0), more))
    if rest:
        # Where no text stood, it goes before the first call.
        at = next((n for n, part in enumerate(made) if part.kind is Kind.CALL), len(made))
        made.insert(at, Part(Kind.TEXT, rest))
    made += (Part(Kind.CALL, call) for call in calls)
    return [part for part in made if part.kind is not Kind.TEXT or part.value.strip()]


def _parts(kept: Any, by: str) -> list[Mapping[str, Any]]:
    """The parts that were noted, where they are this provider's; a history may hold anything in their place."""
    if not isinstance(kept, Mapping) or kept.get("by") != by or not isinstance(kept.get("parts"), list | tuple):
        return []
    return [
        one for one in kept["parts"]
        if isinstance(one, Mapping) and (isinstance(one.get("opaque"), Mapping) or Kind.TEXT in one or Kind.CALL in one)
    ]  # fmt: skip


def api_form(item: Any) -> dict[str, Any]:
    """An SDK's object as the JSON that it came as; what a server did not send is not in it."""
    whole = getattr(item, "to_dict", None)
    if callable(whole):
        made: dict[str, Any] = whole(mode="json", warnings=False)
        return made
    return dict(item) if isinstance(item, Mapping) else dict(vars(item))


def grown(pieces: Iterable[Mapping[str, Any]], texts: Collection[str] = _IN_PIECES) -> dict[str, Any]:
    """A streamed mapping, of all its pieces: items of lists are told apart by ``index`` and ``type``.

    The texts of these names come in pieces, any other value comes whole.
    """
    came: dict[str, list[Any]] = {}
    for piece in pieces:
        for name, value in piece.items():
            came.setdefault(name, []).append(value)
    return {name: _whole(values, name in texts) for name, values in came.items()}


def _whole(values: list[Any], in_pieces: bool) -> Any:
    """One value of what came of it, which is of the kind that came last."""
    last: Any = next((value for value in reversed(values) if value is not None), None)
    alike = [value for value in values if isinstance(value, type(last))]
    if isinstance(last, list):
        return _items([item for value in alike for item in value])
    if isinstance(last, dict):
        return grown(alike)
    return "".join(alike) if isinstance(last, str) and in_pieces else last


def _items(pieces: list[Any]) -> list[Any]:
    made: list[list[Any]] = []
    for piece in pieces:
        known = next((one for one in made if _same_item(one[0], piece)), None)
        if known is None:
            made.append([piece])
        else:
            known.append(piece)
    return [grown(one) if len(one) > 1 else one[0] for one in made]


def _same_item(one: Any, piece: Any) -> bool:
    if not (isinstance(one, Mapping) and isinstance(piece, Mapping)) or piece.get("index") is None:
        return False
    return all(one.get(name) == piece.get(name) for name in ("index", "type"))
