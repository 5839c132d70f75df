"""Failures told from what an exception carries, whatever client it comes from."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import urllib.error
from email.message import Message
from typing import Any

import httpx
import pytest

from fsm_agent.host.model import FailureKind, ModelFailed
from fsm_agent.models.failures import failure_of, failure_of_body, retry_after_s

K = FailureKind


class Failed(Exception):
    """An exception with whatever a client puts on it."""

    def __init__(self, message: str = "", **fields: Any) -> None:
        super().__init__(message)
        self.__dict__.update(fields)


class OwnTimeoutError(Exception):
    """Of a client nobody knows."""


class Response:
    def __init__(self, status_code: int, **headers: str) -> None:
        self.status_code, self.headers = status_code, {name.replace("_", "-").title(): value for name, value in headers.items()}


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Failed(status_code=429), K.RATE_LIMITED),
        (Failed(status=429), K.RATE_LIMITED),
        (Failed(response=Response(503)), K.SERVER_ERROR),
        (Failed(status_code=500), K.SERVER_ERROR),
        (Failed(status_code=529), K.SERVER_ERROR),
        (Failed(status_code=501), K.INVALID_REQUEST),
        (Failed(status_code=504), K.TIMEOUT),
        (Failed(status_code=408), K.TIMEOUT),
        (Failed(status_code=409), K.SERVER_ERROR),
        (Failed(status_code=402), K.AUTHENTICATION),
        (Failed(status_code=403), K.AUTHENTICATION),
        (Failed(status_code=404), K.INVALID_REQUEST),
        (Failed(status_code=413), K.CONTEXT_LENGTH),
        (Failed(status_code=422), K.INVALID_REQUEST),
        (Failed(status_code=99), K.UNKNOWN),
        (Failed(status_code=True), K.UNKNOWN),
        (Failed(status_code=400, code="context_length_exceeded"), K.CONTEXT_LENGTH),
        (Failed("the prompt is too long: 9 tokens", status_code=400), K.CONTEXT_LENGTH),
        (Failed("the request exceeds the available context size", status_code=400), K.CONTEXT_LENGTH),
        (Failed("Please reduce the length of the messages", status_code=400), K.CONTEXT_LENGTH),
        (Failed("input is too long for requested model", status_code=400), K.CONTEXT_LENGTH),
        (Failed("the context of this tool is odd", status_code=400), K.INVALID_REQUEST),
        (Failed(status_code=429, body={"error": {"type": "insufficient_quota"}}), K.AUTHENTICATION),
        (Failed(status_code=429, body={"code": "rate_limit_exceeded"}), K.RATE_LIMITED),
        (Failed(status_code=200, body={"type": "error", "error": {"type": "overloaded_error"}}), K.SERVER_ERROR),
        (Failed(body={"code": "rate_limit_exceeded"}), K.RATE_LIMITED),
        (Failed(code="server_error"), K.SERVER_ERROR),
        (urllib.error.HTTPError("u", 429, "m", Message(), None), K.RATE_LIMITED),
        (httpx.ReadTimeout("x"), K.TIMEOUT),
        (httpx.ConnectTimeout("x"), K.TIMEOUT),
        (httpx.ConnectError("x"), K.CONNECTION),
        (httpx.RemoteProtocolError("x"), K.CONNECTION),
        (TimeoutError(), K.TIMEOUT),
        (ConnectionResetError(), K.CONNECTION),
        (BrokenPipeError(), K.CONNECTION),
        (socket.gaierror(), K.CONNECTION),
        (ssl.SSLError(), K.CONNECTION),
        (http.client.IncompleteRead(b""), K.CONNECTION),
        (http.client.RemoteDisconnected(), K.CONNECTION),
        (OwnTimeoutError(), K.TIMEOUT),
        (json.JSONDecodeError("x", "y", 0), K.SERVER_ERROR),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x"), K.SERVER_ERROR),
        (RecursionError("while decoding a JSON array"), K.SERVER_ERROR),
        (FileNotFoundError(), K.UNKNOWN),
        (TypeError("no such option"), K.UNKNOWN),
        (ValueError(), K.UNKNOWN),
        (caused(Failed("wrapped"), Failed(status_code=429)), K.RATE_LIMITED),
        (caused(Failed("wrapped"), caused(Failed(), ConnectionResetError())), K.CONNECTION),
    ],
    ids=repr,
)
def test_the_kind_is_told_from_status_code_or_name(error: Exception, kind: FailureKind) -> None:
    failure = failure_of(error)

    assert failure.kind is kind
    assert str(failure).startswith(type(error).__name__)


def test_what_nobody_knows_has_the_kind_that_its_place_gives_it() -> None:
    assert failure_of(ValueError("x"), otherwise=K.CONNECTION).kind is K.CONNECTION
    assert failure_of(TimeoutError(), otherwise=K.CONNECTION).kind is K.TIMEOUT


def test_a_failure_stays_itself() -> None:
    failed = ModelFailed(K.TIMEOUT)

    assert failure_of(failed) is failed


def test_a_chain_without_end_is_given_up() -> None:
    error = Failed()
    error.__cause__ = error

    assert failure_of(error).kind is K.UNKNOWN


def test_a_message_is_capped_and_need_not_be_readable() -> None:
    class Unreadable(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert len(str(failure_of(ValueError("x" * 10_000)))) <= 500
    assert str(failure_of(Unreadable())) == "Unreadable: (it cannot be shown)"


DATE = "Wed, 21 Oct 2015 07:28:00 GMT"


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": 7}, 7.0),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "x", "retry-after": "9"}, 9.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:29:30 GMT", "date": DATE}, 90.0),
        ({"retry-after": "Wed, 21 Oct 2015 09:29:30 +0200", "date": DATE}, 90.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:00:00 GMT", "date": DATE}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:29:30 GMT"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:29:30", "date": DATE}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:29:30 GMT", "date": "today"}, None),
        ({"retry-after": "Wed, 99 Oct 2015 07:29:30 GMT", "date": DATE}, None),
    ],
)
def test_the_wait_is_told_in_seconds_or_as_a_date_beside_the_servers_own(headers: Any, wait: float | None) -> None:
    assert retry_after_s(headers) == wait


def test_headers_are_found_whatever_their_case_and_owner() -> None:
    assert failure_of(Failed(response=Response(429, retry_after="7"))).retry_after_s == 7.0
    assert failure_of(Failed(status=429, headers={"RETRY-AFTER": "7"})).retry_after_s == 7.0
    assert failure_of(caused(Failed(), Failed(response=Response(503, retry_after="7")))).retry_after_s == 7.0
    assert failure_of(Failed(status=429, headers=[("Retry-After", "7")])).retry_after_s is None


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"error": {"code": "rate_limit_exceeded"}}, K.RATE_LIMITED),
        ({"error": {"code": "odd", "type": "invalid_request_error"}}, K.INVALID_REQUEST),
        ({"error": {"message": "maximum context length is 5"}}, K.CONTEXT_LENGTH),
        ({"error": {"code": 429, "message": "slow"}}, K.RATE_LIMITED),
        ({"error": {"code": 404}}, K.INVALID_REQUEST),
        ({"error": {"code": 200}}, K.SERVER_ERROR),
        ({"error": None}, K.SERVER_ERROR),
        (None, K.SERVER_ERROR),
    ],
)
def test_an_error_in_a_reply_is_told_by_its_code(body: Any, kind: FailureKind) -> None:
    failure = failure_of_body(body, "said")

    assert (failure.kind, str(failure)) == (kind, "said")
