"""Decisions written as JSON by a model (seed 000): a tool to call, or a final answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsm_agent.core.decoding import strict_json, without_fence
from fsm_agent.core.plain import short
from fsm_agent.core.values import Decision, ToolCall


def decision_of_json(text: str) -> Decision:
    """The decision that a JSON text holds.

    ``{"type": "tool", "toolName", "args", "reason", "intent", "changed"}`` calls a tool; ``{"type": "final", "finalAnswer",
    "citations", "question"}`` answers. Only `type`, `toolName` and, of a final one, `finalAnswer` or `question` must be there.
    A code fence around the object and a JSON string that holds it are decoded; nothing else is guessed.

    Raises ValueError that says what is wrong and what would be right.
    """
    held = _object(text)
    kind = held.get("type")
    if kind == "tool":
        return Decision(calls=(_call(held),))
    if kind == "final":
        return _final(held)
    got = "no type" if kind is None else f"the type {short(kind, 40)}"
    raise ValueError(f'the decision has {got}; its type is "tool" or "final"')


def _object(text: str) -> Mapping[str, Any]:
    if not isinstance(text, str) or not text.strip():
        raise ValueError("the decision is empty; write one JSON object")
    held: Any = without_fence(text)
    for _ in range(2):
        if not isinstance(held, str):
            break
        try:
            held = strict_json(without_fence(held))
        except ValueError as error:
            raise ValueError(f"the decision is no JSON ({error}); write one JSON object and nothing around it") from None
        except RecursionError:
            raise ValueError("the decision nests too deep to be read; write one flat JSON object") from None
    if not isinstance(held, Mapping):
        raise ValueError(f"the decision is {short(held, 60)}; write one JSON object")
    return held


def _call(held: Mapping[str, Any]) -> ToolCall:
    name = held.get("toolName")
    if not isinstance(name, str) or not name.strip():
        got = "no toolName" if name is None else f"the toolName {short(name, 40)}"
        raise ValueError(f"the tool decision has {got}; name the tool to call")
    words = {key: _text(held, key) for key in ("reason", "intent", "changed")}
    return ToolCall(name, held.get("args"), **words)


def _final(held: Mapping[str, Any]) -> Decision:
    answer, question = _text(held, "finalAnswer"), _text(held, "question")
    if not answer.strip() and not question.strip():
        raise ValueError("the final decision has no finalAnswer; write the answer as text")
    citations = held.get("citations") or []
    if not isinstance(citations, list) or not all(isinstance(one, str) for one in citations):
        raise ValueError(f"the citations are {short(citations, 60)}; give a list of texts, or leave them out")
    return Decision(text=answer or None, citations=tuple(citations), question=question or None)


def _text(held: Mapping[str, Any], key: str) -> str:
    value = held.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{key} is {short(value, 60)}; give a text")
    return value
