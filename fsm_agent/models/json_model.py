"""Any model made to write its decisions as JSON (seed 000): for models that call no tools by themselves."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from typing import Any, Final

import attrs

from fsm_agent.core.errors import BuildError
from fsm_agent.core.json_decisions import decision_of_json
from fsm_agent.core.messages import Message, Purpose, Role, ToolOffer
from fsm_agent.core.plain import short
from fsm_agent.core.values import Decision
from fsm_agent.host.model import MalformedDecision, Model, ModelRequest
from fsm_agent.host.model_decider import is_model
from fsm_agent.models.bounded_schema import MAX_TEXT, decision_schema
from fsm_agent.models.wire_history import Group, WireHistory
from fsm_agent.models.wire_values import arguments_object, wire_json

CONTRACT: Final = """Write each decision as one JSON object and nothing around it. It is one of:
{"type": "tool", "toolName": "<a tool's name>", "args": {<its arguments>}, "reason": "<why>"}
{"type": "final", "finalAnswer": "<the answer>", "citations": ["<a tool whose result it stands on, or an address in it>"]}
A tool decision may add "intent" (what is looked for) and "changed" (why a repeated call is worth it); a final one may add
"question" (the one thing to ask the user). "citations" may be left out."""
"""What a model is told of the form of its decisions (seed 000)."""

# A reply that was stopped is no decision that was written badly; it keeps its own reason.
_STOPPED: Final = frozenset({"length", "content_filter", "refusal"})


class JsonDecisions:
    """Wraps a model: it is told the contract and the tools in words, offered no tools, and its text is read as a decision.

    The history goes to it as text too: its calls and answers as the JSON that it wrote, their results as a user's words. Closing texts,
    answers from evidence and verdicts are asked for as they are; a text that is a decision in JSON all the same, as those before it
    were, is read as one. No decision is streamed: pieces of JSON are no text to show.
    With `constrained` the model is also given the JSON Schema of a decision, in which every text and list is bounded
    (texts by `max_text` characters): for servers that hold their model to a schema.
    """

    def __init__(self, model: Model, *, constrained: bool = False, max_text: int = MAX_TEXT) -> None:
        if not is_model(model):
            raise BuildError(f"JsonDecisions(model=) is {short(model, 60)}; give a model (an object with reply)")
        self.model, self.constrained, self.max_text = model, constrained, max_text
        self.in_loop = bool(getattr(model, "in_loop", False))
        self._history = WireHistory(_add)

    def reply(self, request: ModelRequest) -> Decision | Awaitable[Decision]:
        """The decision that the model's text holds, awaitable where the model's is.

        Raises MalformedDecision with what is wrong where it holds none, and ModelFailed as the model does.
        """
        decides = request.purpose is Purpose.DECIDE
        asked = attrs.evolve(
            request,
            messages=self._history.of(request.messages),
            instructions=_instructions(request) if decides else request.instructions,
            tools=(),
            schema=self._schema(request) if decides else request.schema,
            on_delta=None if decides else request.on_delta,
        )
        reply = self.model.reply(asked)
        if inspect.isawaitable(reply):
            return _later(reply, request.purpose)
        return taken(reply, request.purpose)

    def _schema(self, request: ModelRequest) -> dict[str, Any] | None:
        return decision_schema(request.tools, self.max_text) if self.constrained else None


async def _later(reply: Awaitable[Decision], purpose: Purpose) -> Decision:
    return taken(await reply, purpose)


def taken(reply: Decision, purpose: Purpose) -> Decision:
    """What the text of a reply says, by what it was asked for; MalformedDecision where it should be a decision and is none."""
    if purpose is Purpose.DECIDE:
        return _read(reply)
    return reply if purpose is Purpose.VERIFY else _unwrapped(reply, purpose)


def _unwrapped(reply: Decision, purpose: Purpose) -> Decision:
    """A text as it is, or what a decision in its place says: JSON is no text for a user, and a call is none at all."""
    if reply.calls or not isinstance(reply.text, str):
        return reply
    try:
        decision = decision_of_json(reply.text)
    except ValueError:
        return reply
    if purpose is Purpose.SYNTHESIZE:
        return attrs.evolve(decision, finish=reply.finish, usage=reply.usage, kept=reply.kept)
    said = "\n".join(part for part in (decision.text, decision.question) if part)
    return attrs.evolve(reply, text=said or None, calls=decision.calls)


def _read(reply: Decision) -> Decision:
    text = reply.text if isinstance(reply.text, str) else ""
    if reply.calls or not text.strip():
        return reply
    try:
        decision = decision_of_json(text)
    except ValueError as error:
        if reply.finish in _STOPPED:
            # Half a JSON object is no text for a user; a refusal is.
            return attrs.evolve(reply, text=text if reply.finish == "refusal" else None)
        raise MalformedDecision(str(error), reply.usage) from error
    return attrs.evolve(decision, finish=reply.finish, usage=reply.usage, kept=reply.kept)


def _instructions(request: ModelRequest) -> str:
    parts = [request.instructions, CONTRACT, _tools(request.tools)]
    if request.schema is not None:
        parts.append(f'"finalAnswer" is the JSON text of a value of this JSON Schema: {wire_json(dict(request.schema))}')
    return "\n\n".join(part for part in parts if part)


def _tools(tools: tuple[ToolOffer, ...]) -> str:
    if not tools:
        return "No tool may be called now; decide for a final answer."
    lines = [f"- {tool.name}: {tool.description or 'no description'}; args: {wire_json(dict(tool.schema))}" for tool in tools]
    return "\n".join(["Tools that may be called now, with the JSON Schema of their args:", *lines])


def _add(made: list[Message], group: Group) -> None:
    """Put a group behind the messages made so far, its calls and results as text."""
    if not group.answered:
        if group.text:
            # An answer that was not taken is shown as the decision that it was, or the next one is plain text too.
            final = wire_json({"type": "final", "finalAnswer": group.text})
            made.append(Message(role=group.role, text=final if group.role is Role.ASSISTANT else group.text, kept=group.kept))
        return
    lines = [group.text] if group.text else []
    for one in group.answered:
        decision = {"type": "tool", "toolName": one.call.tool, "args": arguments_object(one.call.args)}
        lines.append(wire_json({**decision, "reason": one.call.reason} if one.call.reason else decision))
    results = [f"{'Error' if one.failed else 'Result'} of {one.call.tool}: {one.text}" for one in group.answered]
    made += Message(role=Role.ASSISTANT, text="\n".join(lines), kept=group.kept), Message(role=Role.USER, text="\n".join(results))
