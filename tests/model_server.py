"""A small HTTP server on loopback that speaks the protocols of model providers and refuses what they would refuse."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import attrs
import model_speech
import pytest
from model_speech import Said


@attrs.frozen(kw_only=True)
class Fails:
    """An HTTP answer as it stands: a failure, or what no provider should say."""

    status: int
    body: Any = None
    headers: dict[str, str] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Breaks:
    """A streamed reply that ends after so many events: with the connection cut, or as if that were all."""

    said: Said
    events: int
    clean: bool = False
    error: dict[str, Any] | None = None


@attrs.frozen(kw_only=True)
class Drips:
    """A streamed reply that waits before each event until the server is told to go on, so many seconds at most."""

    said: Said
    seconds: float


class Hangs:
    """No answer at all, until the server is closed."""


class ModelServer:
    """Answers each request with the next of what it was told to say, and keeps what it received."""

    def __init__(self) -> None:
        self.replies: list[Any] = []
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.closing = threading.Event()
        handler = type("Handler", (_Handler,), {"owner": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def say(self, *replies: Any) -> None:
        """What to answer next: Said, Fails, Breaks, Drips or Hangs."""
        self.replies += replies

    @property
    def body(self) -> dict[str, Any]:
        """The body that was received last."""
        return self.bodies[-1]

    def close(self) -> None:
        """Let hanging requests go and stop."""
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    owner: ModelServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is written."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])).decode("utf-8"))
        owner = self.owner
        owner.bodies.append(body)
        owner.paths.append(self.path)
        owner.headers.append({name.lower(): value for name, value in self.headers.items()})
        speech = model_speech.of_path(self.path)
        if fault := speech.refuses(body):
            self._json(400, {"error": {"type": "invalid_request_error", "code": None, "message": fault}}, {})
            return
        reply = owner.replies.pop(0) if owner.replies else Fails(status=418, body={"error": {"message": "nothing to say"}})
        if isinstance(reply, Hangs):
            owner.closing.wait(30)
            self.close_connection = True
        elif isinstance(reply, Fails):
            self._json(reply.status, reply.body, reply.headers)
        elif body.get("stream"):
            self._stream(speech, reply, body)
        else:
            self._json(200, speech.whole(reply, body), {})

    def _json(self, status: int, body: Any, headers: dict[str, str]) -> None:
        raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers, "Content-Length": str(len(raw))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw)

    def date_time_string(self, timestamp: float | None = None) -> str:
        """The server's clock stands still, so that dates in headers mean the same in each run."""
        return "Wed, 21 Oct 2015 07:28:00 GMT"

    def _stream(self, speech: Any, reply: Any, body: dict[str, Any]) -> None:
        said = reply if isinstance(reply, Said) else reply.said
        events: list[tuple[str, Any]] = list(speech.events(said, body))
        if isinstance(reply, Breaks):
            events = events[: reply.events]
            if reply.error is not None:
                events.append(("error", reply.error))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for name, data in events:
            if isinstance(reply, Drips) and self.owner.closing.wait(reply.seconds):
                break
            line = data if isinstance(data, str) else json.dumps(data)
            self._chunk((f"event: {name}\n" if name else "") + f"data: {line}\n\n")
        if not isinstance(reply, Breaks) or reply.clean or reply.error is not None:
            self._chunk("")
        self.close_connection = True

    def _chunk(self, text: str) -> None:
        raw = text.encode()
        try:
            self.wfile.write(f"{len(raw):x}\r\n".encode() + raw + b"\r\n")
            self.wfile.flush()
        except OSError:
            # The client has gone.
            self.close_connection = True


@pytest.fixture
def server() -> Iterator[ModelServer]:
    """A server for one test."""
    own = ModelServer()
    yield own
    own.close()
