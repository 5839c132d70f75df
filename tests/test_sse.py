"""Runs as Server-Sent Events: read by a real client over HTTP, taken up again by an id, and cancelled by leaving."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import alike, odd_values

from fsm_agent import Agent, Decision, Limits, Run, Tool, ToolCall
from fsm_agent.core.answers import paused_answer
from fsm_agent.core.errors import RunBusy, RunError
from fsm_agent.core.plain import dumps, loads, storable
from fsm_agent.core.stream_events import DeltasDiscarded, Gap, StreamEvent, TextDelta
from fsm_agent.core.trace import TraceEvent, trace_of
from fsm_agent.host.clock import ScriptedClock
from fsm_agent.host.model import ModelFailed, ModelRequest
from fsm_agent.people import taken
from fsm_agent.sse import CONTENT_TYPE, answer_record, asse, comment, encode_event, sse

MOST_S = 20


@attrs.frozen
class Received:
    """One event as a client dispatches it, with the id that the client would come back with."""

    name: str
    id: str
    text: str

    @property
    def content(self) -> Any:
        """The data as the value it stands for."""
        return loads(self.text)


class Client:
    """The algorithm of the standard: lines are gathered until an empty one; `at` is the last event id."""

    def __init__(self) -> None:
        self.at = ""
        self._name, self._content = "", []  # type: tuple[str, list[str]]

    def line(self, line: str) -> Received | None:
        """Take in one line; returns the event that it ends."""
        if line:
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "event":
                self._name = value
            elif field == "data":
                self._content.append(value)
            elif field == "id" and "\0" not in value:
                self.at = value
            return None
        made = Received(self._name or "message", self.at, "\n".join(self._content)) if self._content else None
        self._name, self._content = "", []
        return made

    def read(self, chunks: bytes) -> list[Received]:
        """Every event of a whole body."""
        text = chunks.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
        return [made for line in text.split("\n") if (made := self.line(line)) is not None]


def received(chunks: Iterator[bytes]) -> list[Received]:
    return Client().read(b"".join(chunks))


def tools(ran: list[Any], **more: Any) -> list[Tool]:
    return [
        Tool(name="look", fn=lambda q: ran.append(q) or f"found {q}", effect="pure"),
        Tool(name="pay", fn=lambda sum, pin: ran.append(sum) or "paid", effect="at_most_once", approval=True, secret={"pin"}),
        *more.values(),
    ]


class Scripted:
    """A model that goes through its turns; a text is spoken in two pieces where somebody listens."""

    def __init__(self, *turns: Decision | Exception) -> None:
        self.turns = list(turns)

    def reply(self, request: ModelRequest) -> Decision:
        turn = self.turns.pop(0)
        if request.on_delta is not None:
            text = "lost" if isinstance(turn, Exception) else turn.text or ""
            for piece in (text[:2], text[2:]):
                if piece:
                    request.on_delta(piece)
        if isinstance(turn, Exception):
            raise turn
        return turn


def calls(*asked: tuple[str, str, dict[str, Any]], text: str | None = None) -> Decision:
    return Decision(calls=tuple(ToolCall(tool, args, id) for id, tool, args in asked), text=text, finish="tool_calls")


def agent(ran: list[Any], *turns: Decision | Exception) -> Agent:
    return Agent(tools(ran), Scripted(*turns), limits=Limits.off(max_steps=50, max_turns=9), clock=ScriptedClock(wall_start=1e9))


DONE = Decision(text="done", finish="stop")


# ---- the form


def test_an_event_is_its_kind_its_number_and_one_line_of_json() -> None:
    chunk = encode_event(TraceEvent("r", 3, 0.5, "call_started", "c", "look", 12.0))

    assert chunk == (
        b"event: call_started\nid: 3\n"
        b'data: {"run_id":"r","number":3,"at_s":0.5,"kind":"call_started","subject":"c","detail":"look","time":12.0}\n\n'
    )


def test_pieces_of_text_and_gaps_have_no_id_so_that_a_client_comes_back_with_that_of_a_line() -> None:
    line = TraceEvent("r", 7, 0.0, "waiting", "r")
    chunks = sse([line, TextDelta("r", 7, "hel"), DeltasDiscarded("r", 7), Gap(2)])

    assert [(one.name, one.id, one.content) for one in received(chunks)][1:] == [
        ("text_delta", "7", {"run_id": "r", "after": 7, "text": "hel"}),
        ("deltas_discarded", "7", {"run_id": "r", "after": 7}),
        ("gap", "7", {"missed": 2}),
    ]


ODD_TEXTS = [
    "a\nb\r\nc\rd",
    "\u2028\u2029\x85\x0b\x0c",
    "\x00\x07",
    "data: x\n\nevent: fake",
    "\ufeffbom",
    "\U0001d518 \U0001f469\u200d\U0001f467 e\u0301 \u05e9",
    "\ud835",
    "",
]


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_no_text_breaks_the_frame(text: str) -> None:
    [delta, line] = received(sse([TextDelta("r", 0, text), TraceEvent(text, 1, 0.0, "message", text, text)]))

    assert delta.content["text"] == text
    assert (line.name, line.id) == ("message", "1")
    assert [line.content[name] for name in ("run_id", "subject", "detail")] == [text] * 3


@given(odd_values, st.text(st.characters(exclude_categories=())))
def test_any_detail_comes_back_as_the_run_would_store_it(detail: Any, subject: str) -> None:
    [one] = received(sse([TraceEvent("r", 1, float("nan"), "judged", subject, detail)]))

    json.loads(one.text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert alike(one.content["detail"], loads(dumps(storable(detail))))
    assert one.content["subject"] == subject


class Opaque:
    """Nothing of it can be looked at."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("no")


def test_an_opaque_value_is_its_types_name() -> None:
    [one] = received(sse([TraceEvent("r", 1, 0.0, "judged", "x", {"it": Opaque()})]))

    assert "Opaque" in one.content["detail"]["it"]


def test_a_kind_of_ones_own_cannot_begin_another_field() -> None:
    [one] = received(sse([TraceEvent("r", 1, 0.0, "own\nid: 99\r\rdata: x", "x")]))

    assert (one.name, one.id) == ("own id: 99  data: x", "1")


@pytest.mark.parametrize("text", ["", "still here", "two\nlines\r\ndata: x\n\n"])
def test_a_comment_is_no_event(text: str) -> None:
    chunk = comment(text)

    assert chunk.startswith(b":")
    assert chunk.endswith(b"\n\n")
    assert Client().read(chunk + encode_event(Gap(1)))[0].name == "gap"
    assert len(Client().read(chunk + encode_event(Gap(1)))) == 1


# ---- the answer


def test_the_last_event_is_the_answer_with_its_line() -> None:
    one = agent([], calls(("c", "look", {"q": 1})), DONE)
    run = one.start("go")
    events = received(sse(one.stream(run), answer=run))

    assert [event.name for event in events].count("answer") == 1
    last = events[-1].content
    assert events[-1].id == str(len(run.trace) - 1) == str(last["number"])
    assert (last["kind"], last["status"], last["text"], last["stop_reason"], last["pending"]) == ("answer", "ok", "done", "answered", [])
    assert [event.content["text"] for event in events if event.name == "text_delta"] == ["do", "ne"]
    assert [int(event.id) for event in events if event.name != "text_delta"] == list(range(len(run.trace)))


def test_without_answer_the_stream_ends_with_its_last_line() -> None:
    one = agent([], DONE)
    events = received(sse(one.stream("go")))

    assert (events[-1].name, "status" in events[-1].content) == ("answer", False)


def test_a_paused_run_says_whom_it_waits_for_and_shows_no_secret() -> None:
    one = agent([], calls(("c", "pay", {"sum": 5, "pin": "s3cret"})))
    run = one.start("go")
    chunks = b"".join(sse(one.stream(run), answer=lambda: one.answer(run)))
    events = Client().read(chunks)

    assert [event.name for event in events[-2:]] == ["paused", "answer"]
    last = events[-1].content
    assert (last["status"], last["stop_reason"], "number" in last) == ("paused", None, False)
    [waiting] = last["pending"]
    token = one.pending(run)[0].token
    assert (waiting["call_id"], waiting["kind"], waiting["args"], waiting["token"]) == (
        "c", "approval", {"sum": 5, "pin": "[redacted]"}, token,
    )
    assert b"s3cret" not in chunks


def test_an_answer_that_does_not_know_its_run_shows_no_secret_either() -> None:
    one = agent([], calls(("c", "pay", {"sum": 5, "pin": "s3cret"})))
    run = one.start("go")
    one.drive(run)

    assert answer_record(paused_answer(run))["pending"][0]["args"] == {"sum": 5, "pin": "[redacted]"}


def test_a_stop_says_what_would_let_the_run_go_on() -> None:
    one = Agent(tools([]), lambda ask: ToolCall("look", {"q": ask.run.turns}), limits=Limits.off(max_turns=2, max_steps=50))
    run = one.start("go")
    last = received(sse(one.stream(run), answer=run))[-1].content

    assert (last["status"], last["stop_reason"]) == ("partial", "max_turns")
    assert last["raise_to"] == one.answer(run).stop.raise_to  # type: ignore[union-attr]
    assert last["raise_to"]
    assert "max_turns" in last["why"]


def test_an_answer_line_that_is_not_the_last_is_sent_as_it_is() -> None:
    one = agent([], calls(("c", "look", {"q": 1})), DONE)
    run = one.start("go")
    events = iter(one.stream(run))
    next(events)
    events.close()  # type: ignore[attr-defined]
    stopped = [line.kind for line in trace_of(run)]
    one.resume(run)
    sent = received(sse(trace_of(run), answer=run))

    assert stopped[-1] == "answer"
    assert [(event.name, "status" in event.content) for event in sent if event.name == "answer"] == [("answer", False), ("answer", True)]


# ---- coming back


def whole(run: Run) -> list[str]:
    return [str(line.number) for line in trace_of(run)]


def a_run() -> tuple[Agent, Run]:
    one = agent([], calls(("c", "look", {"q": 1})), DONE)
    run = one.start("go")
    one.drive(run)
    return one, run


@pytest.mark.parametrize("since", ["4", 4, "004"])
def test_lines_that_a_client_has_are_left_out(since: str | int) -> None:
    _, run = a_run()

    assert [event.id for event in received(sse(trace_of(run), since=since))] == whole(run)[5:]


@pytest.mark.parametrize("since", [None, "", "abc", "-1", "1e3", "٣", "9" * 5000, " 4", True, 4.0])
def test_what_is_no_number_of_a_line_leaves_nothing_out(since: Any) -> None:
    _, run = a_run()

    assert [event.id for event in received(sse(trace_of(run), since=since))] == whole(run)


def test_an_id_of_another_run_leaves_nothing_out_where_the_lines_are_known() -> None:
    _, run = a_run()

    assert [event.id for event in received(sse([], missed=trace_of(run), since="400"))] == whole(run)


def test_a_client_that_comes_back_hears_every_line_once() -> None:
    ran: list[Any] = []
    one = agent(ran, calls(("a", "look", {"q": 1}), ("b", "look", {"q": 2})), DONE)
    run = one.start("go")
    client = Client()
    heard: list[Received] = []
    with closing(sse(one.stream(run), answer=run)) as chunks:  # type: ignore[type-var]
        for chunk in chunks:
            heard += client.read(chunk)
            if heard[-1].name == "call_finished":
                break
    with taken(run):
        one.engine.resume(run)
    heard += client.read(b"".join(sse(one.stream(run), answer=run, since=client.at, missed=trace_of(run))))

    lines = [event.id for event in heard if event.name != "text_delta"]
    assert lines == whole(run)
    assert heard[-1].content["status"] == "ok"


# ---- failing and leaving


def gather(chunks: Iterator[bytes], heard: list[bytes]) -> None:
    for chunk in chunks:
        heard.append(chunk)


def until(error: type[Exception], chunks: Iterator[bytes]) -> list[Received]:
    """What is sent before the stream raises such an error."""
    heard: list[bytes] = []
    with pytest.raises(error):
        gather(chunks, heard)
    return Client().read(b"".join(heard))


def test_what_the_stream_raises_is_told_and_then_raised() -> None:
    one = agent([], DONE)
    run = one.start("go")
    with taken(run):
        [last] = until(RunBusy, sse(one.stream(run), answer=run))

    assert (last.name, last.content["error"]) == ("failed", "RunBusy")
    assert run.id in last.content["message"]


def test_the_text_of_a_foreign_error_is_not_told() -> None:
    def broken() -> Iterator[StreamEvent]:
        yield Gap(1)
        raise ValueError("password")

    [_, last] = until(ValueError, sse(broken()))

    assert (last.name, last.content["error"]) == ("failed", "ValueError")
    assert "password" not in last.text


def test_a_stream_that_ends_before_its_run_has_no_answer_to_give() -> None:
    one = agent([], DONE)
    run = one.start("go")
    last = until(RunError, sse(trace_of(run), answer=run))[-1]

    assert (last.name, "drive it on" in last.content["message"]) == ("failed", True)


def test_closing_the_encoder_cancels_the_run() -> None:
    ran: list[Any] = []
    one = agent(ran, calls(("a", "look", {"q": 1})), calls(("b", "look", {"q": 2})), DONE)
    run = one.start("go")
    with closing(sse(one.stream(run), answer=run)) as chunks:  # type: ignore[type-var]
        while not next(chunks).startswith(b"event: call_finished"):
            pass

    assert one.answer(run).stop_reason == "cancelled"
    assert (ran, run.driven) == ([1], False)
    assert one.resume(run).text == "done"


def test_closing_the_encoder_closes_an_observer() -> None:
    one = agent([], DONE, DONE)
    observer = one.observe()
    one.run("go")
    chunks = sse(observer)
    first = next(chunks)
    chunks.close()  # type: ignore[attr-defined]
    before = observer.seen
    one.run("go")

    assert first.startswith(b"event: run_started")
    assert observer.seen == before


# ---- in a task


def test_tasks_are_sent_the_same() -> None:
    def sent(way: Callable[[Agent, Run], list[bytes]]) -> list[tuple[str, str, Any]]:
        one = agent([], calls(("c", "look", {"q": 1})), ModelFailed("rate_limited", "slow", 0.01), DONE)
        run = one.start("go", run_id="r")
        return [(event.name, event.id, event.content) for event in Client().read(b"".join(way(one, run)))]

    def threads(one: Agent, run: Run) -> list[bytes]:
        return list(sse(one.stream(run), answer=run))

    def task(one: Agent, run: Run) -> list[bytes]:
        async def main() -> list[bytes]:
            return [chunk async for chunk in asse(one.astream(run), answer=run)]

        return asyncio.run(main())

    names = [name for name, _, _ in sent(threads)]
    assert sent(threads) == sent(task)
    assert names.count("deltas_discarded") == 1
    assert names[-1] == "answer"


def test_leaving_in_a_task_cancels_the_run() -> None:
    one = agent([], calls(("a", "look", {"q": 1})), DONE)
    run = one.start("go")

    async def main() -> None:
        chunks: Any = asse(one.astream(run), answer=run)
        async for chunk in chunks:
            if chunk.startswith(b"event: decision"):
                break
        await chunks.aclose()

    asyncio.run(main())

    assert (one.answer(run).stop_reason, run.driven) == ("cancelled", False)


def test_in_a_task_too_what_the_stream_raises_is_told_and_then_raised() -> None:
    async def broken() -> AsyncIterator[StreamEvent]:
        yield Gap(1)
        raise RunError("no more")

    heard: list[bytes] = []

    async def main() -> None:
        async for chunk in asse(broken()):
            heard.append(chunk)

    with pytest.raises(RunError, match="no more"):
        asyncio.run(main())
    assert Client().read(b"".join(heard))[-1].content == {"error": "RunError", "message": "no more"}


def test_an_observer_is_read_in_a_task_and_closed_with_the_encoder() -> None:
    one = agent([], DONE, DONE)

    async def main() -> tuple[bytes, int, int]:
        observer = one.observe()
        await one.arun("go")
        chunks: Any = asse(observer)
        first: bytes = await anext(chunks)
        await chunks.aclose()
        before = observer.seen
        await one.arun("go")
        return first, before, observer.seen

    first, before, after = asyncio.run(main())

    assert first.startswith(b"event: run_started")
    assert before == after


# ---- over HTTP


@contextmanager
def served(answering: Callable[[str | None], Iterator[bytes]], left: threading.Event) -> Iterator[int]:
    """A server whose every response is such a stream; `left` is set once the response is over, however it ended."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                with closing(answering(self.headers.get("Last-Event-ID"))) as chunks:  # type: ignore[type-var]
                    for chunk in chunks:
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                self.wfile.write(b"0\r\n\r\n")
            except OSError:
                self.close_connection = True
            finally:
                left.set()

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join(MOST_S)


def lines(response: http.client.HTTPResponse) -> Iterator[str]:
    while line := response.readline():
        yield line.decode("utf-8").rstrip("\n")


def test_a_client_reads_a_run_line_by_line_over_http() -> None:
    asked = "odd \U0001d518 \u2028 \r\n data: 1"
    one = agent([], calls(("c", "look", {"q": asked})), Decision(text=asked, finish="stop"))
    run = one.start("go")
    with served(lambda since: sse(one.stream(run), answer=run), threading.Event()) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=MOST_S)
        with closing(connection):
            connection.request("GET", "/")
            response = connection.getresponse()
            client = Client()
            events = [made for line in lines(response) if (made := client.line(line)) is not None]

    assert response.headers["Content-Type"] == "text/event-stream"
    assert events[-1].content["text"] == asked.strip()
    assert "".join(event.content["text"] for event in events if event.name == "text_delta") == asked
    assert [event.id for event in events if event.name != "text_delta"] == whole(run)


def test_a_client_that_drops_its_connection_cancels_the_run() -> None:
    turns: list[int] = []
    begun = threading.Event()

    def decide(ask: Any) -> ToolCall:
        turns.append(ask.run.turns)
        return ToolCall("look", {"q": ask.run.turns})

    def look(q: int) -> str:
        begun.set()
        return "x" * 20_000

    one = Agent([Tool(name="look", fn=look, effect="pure")], decide, limits=Limits.off(max_turns=1_000_000, max_steps=4_000_000))
    run = one.start("go")
    left = threading.Event()

    def answering(since: str | None) -> Iterator[bytes]:
        return sse(one.stream(run), answer=run)

    with served(answering, left) as port:
        client = socket.create_connection(("127.0.0.1", port), timeout=MOST_S)
        client.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        assert begun.wait(MOST_S)
        assert client.recv(1000).startswith(b"HTTP/1.1 200")
        client.close()
        assert left.wait(MOST_S)

    assert (one.answer(run).stop_reason, run.driven) == ("cancelled", False)
    assert len(turns) < 1_000_000


def test_a_client_that_comes_back_over_http_goes_on_after_its_last_event_id() -> None:
    one = agent([], calls(("c", "pay", {"sum": 5, "pin": "1234"})), DONE)
    run = one.start("go")

    def answering(since: str | None) -> Iterator[bytes]:
        return sse(one.stream(run), answer=run, since=since, missed=trace_of(run))

    client = Client()

    def visit(port: int) -> list[Received]:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=MOST_S)) as connection:
            connection.request("GET", "/", headers={"Last-Event-ID": client.at} if client.at else {})
            return [made for line in lines(connection.getresponse()) if (made := client.line(line)) is not None]

    with served(answering, threading.Event()) as port:
        first = visit(port)
        one.approve(run, "c", token=first[-1].content["pending"][0]["token"])
        one.drive(run)
        second = visit(port)

    assert (first[-1].content["status"], second[-1].content["status"]) == ("paused", "ok")
    numbers = [event.content["number"] for event in (*first, *second) if "number" in event.content]
    assert numbers == list(range(len(run.trace)))
