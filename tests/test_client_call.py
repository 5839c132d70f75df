"""A client: what is checked of it when a model is made, and asking it: its time, its failures, its streams closed."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import attrs
import openai
import pytest

from fsm_agent.core.errors import BuildError
from fsm_agent.core.values import Decision, Usage
from fsm_agent.host.model import FailureKind, ModelFailed, ModelRequest
from fsm_agent.models.anthropic_messages import AnthropicMessages
from fsm_agent.models.client_call import ask, creator, free_options, takes
from fsm_agent.models.openai_chat import OpenAIChat

DONE = Decision(text="done")
LISTENED = ModelRequest(on_delta=print)


class Stream:
    """Pieces, sync and async, that are closed once."""

    def __init__(self, *pieces: Any) -> None:
        self.pieces, self.closed = pieces, 0

    def _each(self) -> Any:
        for piece in self.pieces:
            if isinstance(piece, BaseException):
                raise piece
            yield piece

    def __iter__(self) -> Any:
        return self._each()

    async def __aiter__(self) -> Any:
        for piece in self._each():
            yield piece

    def close(self) -> Any:
        self.closed += 1
        return asyncio.sleep(0) if isinstance(self, Later) else None


class Later(Stream):
    """The same of an async client."""


class Taken:
    """A reader that keeps what it takes and raises what it is told to."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.pieces: list[Any] = []
        self.error = error

    def take(self, piece: Any) -> str:
        if self.error is not None:
            raise self.error
        self.pieces.append(piece)
        return "told"

    def decision(self) -> Decision:
        return DONE

    def usage(self) -> Usage | None:
        return Usage(input_tokens=3) if self.pieces else None


def answer(stream: Stream, reader: Any, request: ModelRequest = LISTENED) -> Any:
    """Ask a client whose reply is that stream, sync or async by the stream's kind."""

    async def later() -> Any:
        return stream

    async def wait(reply: Any) -> Any:
        return await reply

    later_too = isinstance(stream, Later)
    reply = ask(lambda **body: later() if later_too else stream, {}, request, lambda whole: DONE, reader)
    return asyncio.run(wait(reply)) if later_too else reply


each_kind = pytest.mark.parametrize("kind", [Stream, Later])


@each_kind
def test_a_stream_is_read_to_its_end_and_closed(kind: Any) -> None:
    stream, reader = kind(1, 2), Taken()

    assert answer(stream, reader) == DONE
    assert (reader.pieces, stream.closed) == ([1, 2], 1)


@each_kind
@pytest.mark.parametrize("error", [ZeroDivisionError(), ModelFailed(FailureKind.RATE_LIMITED), KeyboardInterrupt()])
def test_what_a_reader_raises_is_its_own_and_the_stream_is_closed(kind: Any, error: BaseException) -> None:
    stream = kind(1, 2)
    with pytest.raises(type(error)) as raised:
        answer(stream, Taken(error))

    assert (raised.value, stream.closed) == (error, 1)


@each_kind
@pytest.mark.parametrize("error", [AttributeError("choices"), TypeError(), KeyError("text")])
def test_a_piece_that_cannot_be_read_is_a_failure_of_the_server(kind: Any, error: Exception) -> None:
    stream = kind(1, 2)
    with pytest.raises(ModelFailed) as raised:
        answer(stream, Taken(error))

    assert (raised.value.kind, stream.closed) == (FailureKind.SERVER_ERROR, 1)


@each_kind
def test_what_a_listener_raises_is_its_own(kind: Any) -> None:
    error = AttributeError("log")

    def listener(text: str) -> None:
        raise error

    stream = kind(1, 2)
    with pytest.raises(AttributeError) as raised:
        answer(stream, Taken(), ModelRequest(on_delta=listener))

    assert (raised.value, stream.closed) == (error, 1)


@each_kind
@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (ValueError(), FailureKind.CONNECTION),
        (TimeoutError(), FailureKind.TIMEOUT),
        (ModelFailed(FailureKind.RATE_LIMITED), FailureKind.RATE_LIMITED),
    ],
)
def test_what_a_stream_raises_is_a_failure_and_it_is_closed(kind: Any, error: Exception, kept: FailureKind) -> None:
    stream = kind(1, error)
    with pytest.raises(ModelFailed) as failed:
        answer(stream, Taken())

    assert (failed.value.kind, stream.closed) == (kept, 1)


@each_kind
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit()])
def test_an_interrupt_passes_through_a_stream(kind: Any, error: BaseException) -> None:
    stream = kind(error)
    with pytest.raises(type(error)):
        answer(stream, Taken())

    assert stream.closed == 1


def test_a_cancelled_request_is_no_failure() -> None:
    async def never(**body: Any) -> Any:
        await asyncio.Event().wait()

    async def cancelled() -> None:
        task = asyncio.ensure_future(ask(never, {}, ModelRequest(), lambda whole: DONE, Taken()))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())


@pytest.mark.parametrize(
    ("own", "left", "sent"),
    [
        (None, None, {}),
        (9.0, None, {"timeout": 9.0}),
        (None, 2.5, {"timeout": 2.5}),
        (9.0, 2.5, {"timeout": 2.5}),
        (1, 2.5, {"timeout": 1}),
        ("odd", 2.5, {"timeout": 2.5}),
    ],
)
def test_the_time_left_bounds_the_clients_own(own: Any, left: float | None, sent: Any) -> None:
    bodies: list[Any] = []
    body = {} if own is None else {"timeout": own}
    ask(lambda **got: bodies.append(got), body, ModelRequest(seconds_left=left), lambda whole: DONE, Taken())

    assert bodies == [sent]


def test_without_time_nobody_is_asked() -> None:
    with pytest.raises(ModelFailed, match="no time is left"):
        ask(lambda **body: pytest.fail("asked"), {}, ModelRequest(seconds_left=-1.0), lambda whole: DONE, Taken())


@each_kind
def test_a_stream_is_over_with_its_time(kind: Any) -> None:
    stream = kind(*range(10**6))
    with pytest.raises(ModelFailed) as failed:
        answer(stream, Taken(), attrs.evolve(LISTENED, seconds_left=0.02))

    assert (failed.value.kind, stream.closed) == (FailureKind.TIMEOUT, 1)


def test_an_async_reply_is_over_with_its_time_even_where_the_client_does_not_look_at_it() -> None:
    async def never(**body: Any) -> Any:
        await asyncio.Event().wait()

    async def wait() -> Any:
        return await ask(never, {}, ModelRequest(seconds_left=0.01), lambda whole: DONE, Taken())  # type: ignore[misc]

    with pytest.raises(ModelFailed, match="did not come in its time") as failed:
        asyncio.run(wait())
    assert failed.value.kind is FailureKind.TIMEOUT


@pytest.mark.parametrize("left", [None, 9.0])
def test_a_readers_own_timeout_is_its_own(left: float | None) -> None:
    with pytest.raises(TimeoutError):
        answer(Later(1), Taken(TimeoutError()), attrs.evolve(LISTENED, seconds_left=left))


def test_a_stream_that_cannot_be_closed_is_read() -> None:
    assert ask(lambda **body: iter([1]), {}, LISTENED, lambda whole: DONE, Taken()) == DONE


# ---- when a model is made


def create(*, model: str, temperature: float = 0.0) -> None:
    """A method with named parameters."""


def anything(**options: Any) -> None:
    """A method that takes whatever it gets."""


class Opaque:
    """A callable that does not say what it takes."""

    @property
    def __signature__(self) -> Any:
        raise ValueError

    def __call__(self, **options: Any) -> None:
        """Nothing."""


def test_the_method_is_found_at_its_path() -> None:
    assert creator(SimpleNamespace(chat=SimpleNamespace(create=create)), "chat.create") is create


WRONG = [None, "gpt", SimpleNamespace(), SimpleNamespace(chat=None), SimpleNamespace(chat=SimpleNamespace(create=4))]


@pytest.mark.parametrize("client", WRONG)
def test_a_client_without_it_is_refused(client: Any) -> None:
    with pytest.raises(BuildError, match=r"which has no chat\.create\(\); give the SDK's client object itself"):
        creator(client, "chat.create")


@pytest.mark.parametrize(
    ("method", "name", "does"),
    [(create, "model", True), (create, "odd", False), (anything, "odd", True), (Opaque(), "odd", True), (4, "odd", True)],
)
def test_a_method_takes_what_it_says(method: Any, name: str, does: bool) -> None:
    assert takes(method, name) is does


def test_an_sdks_overloaded_method_says_what_it_takes() -> None:
    with openai.OpenAI(api_key="x") as client:
        assert takes(client.chat.completions.create, "temperature")
        assert not takes(client.chat.completions.create, "odd")


def test_options_are_the_hosts_own() -> None:
    given = {"temperature": 1.0}
    free = free_options(create, given, ("model",))

    assert free == given
    assert free is not given
    with pytest.raises(BuildError, match="the option 'model' is set by each request"):
        free_options(create, {"model": "m"}, ("model",))
    with pytest.raises(BuildError, match=r"takes no 'odd'; leave it out, or give extra_body=\{'odd': \.\.\.\}"):
        free_options(create, {"odd": 1}, ("model",))


_PIECES = 100_000
_LONG = "abcd" * 16


def _chunk(**delta: Any) -> Any:
    return SimpleNamespace(choices=[SimpleNamespace(index=0, finish_reason="stop", delta=SimpleNamespace(**delta))])


_CALL_PIECE = SimpleNamespace(index=0, id="c1", function=SimpleNamespace(name="add", arguments=_LONG), reasoning_details=None)
_DETAIL = {"index": 0, "type": "reasoning.text", "text": _LONG}


@pytest.mark.parametrize(
    ("kind", "begin", "piece"),
    [
        (OpenAIChat, [], _chunk(content=_LONG, tool_calls=None)),
        (OpenAIChat, [], _chunk(content=None, tool_calls=None, refusal=_LONG)),
        (OpenAIChat, [], _chunk(content=None, tool_calls=[_CALL_PIECE])),
        (OpenAIChat, [], _chunk(content=None, tool_calls=None, reasoning_details=[_DETAIL])),
        (
            AnthropicMessages,
            [SimpleNamespace(type="content_block_start", index=0, content_block={"type": "text", "text": ""})],
            SimpleNamespace(type="content_block_delta", index=0, delta={"type": "text_delta", "text": _LONG}),
        ),
    ],
    ids=["text", "refusal", "call", "reasoning", "messages"],
)
def test_a_long_reply_costs_what_its_length_is_and_no_more(kind: Any, begin: list[Any], piece: Any) -> None:
    """Were what came copied with each piece, this would take many times as long."""
    def client_reply(**body: Any) -> Any:
        return Stream(*begin, *[piece] * _PIECES, SimpleNamespace(type="message_stop", choices=()))

    create = SimpleNamespace(create=client_reply)
    client = SimpleNamespace(chat=SimpleNamespace(completions=create), messages=create)
    before = time.process_time()
    decision = kind(client, "m").reply(ModelRequest(on_delta=lambda text: None))

    assert time.process_time() - before < 3
    whole = _LONG * _PIECES
    kept = decision.kept["parts"][0].get("opaque", {}) if decision.kept else {}
    told = (decision.text, decision.calls and decision.calls[0].args, kept and kept["reasoning_details"][0]["text"])
    assert whole in told
