"""Why a client's call failed, told from what its exception carries: status code, error code, name, headers.

It knows no client: the exceptions of official SDKs, of HTTP libraries and of Python are told apart by what they have in
common.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from fsm_agent.core.plain import cut
from fsm_agent.host.model import FailureKind, ModelFailed

_LONGEST = 500
_STATUS: Final = {
    401: FailureKind.AUTHENTICATION,
    402: FailureKind.AUTHENTICATION,
    403: FailureKind.AUTHENTICATION,
    407: FailureKind.AUTHENTICATION,
    408: FailureKind.TIMEOUT,
    409: FailureKind.SERVER_ERROR,
    413: FailureKind.CONTEXT_LENGTH,
    425: FailureKind.SERVER_ERROR,
    429: FailureKind.RATE_LIMITED,
    499: FailureKind.CONNECTION,
    501: FailureKind.INVALID_REQUEST,
    504: FailureKind.TIMEOUT,
}
# The words that providers put into the `code` or `type` of an error; an account without money is no limit that passes.
_CODES: Final = {
    "context_length_exceeded": FailureKind.CONTEXT_LENGTH,
    "exceed_context_size_error": FailureKind.CONTEXT_LENGTH,
    "request_too_large": FailureKind.CONTEXT_LENGTH,
    "string_above_max_length": FailureKind.CONTEXT_LENGTH,
    "insufficient_quota": FailureKind.AUTHENTICATION,
    "billing_error": FailureKind.AUTHENTICATION,
    "billing_not_active": FailureKind.AUTHENTICATION,
    "authentication_error": FailureKind.AUTHENTICATION,
    "permission_error": FailureKind.AUTHENTICATION,
    "invalid_api_key": FailureKind.AUTHENTICATION,
    "rate_limit_error": FailureKind.RATE_LIMITED,
    "rate_limit_exceeded": FailureKind.RATE_LIMITED,
    "overloaded_error": FailureKind.SERVER_ERROR,
    "api_error": FailureKind.SERVER_ERROR,
    "server_error": FailureKind.SERVER_ERROR,
    "internal_server_error": FailureKind.SERVER_ERROR,
    "timeout_error": FailureKind.TIMEOUT,
    "invalid_request_error": FailureKind.INVALID_REQUEST,
    "not_found_error": FailureKind.INVALID_REQUEST,
    "invalid_prompt": FailureKind.INVALID_REQUEST,
}
_TOO_LONG: Final = re.compile(
    r"context.{0,20}(length|window|size|limit)|maximum context|prompt is too long|input.{0,20}too long|too many (input )?tokens"
    r"|exceeds?.{0,40}(token limit|max_model_len)|reduce the length",
    re.IGNORECASE | re.DOTALL,
)
# In this order: a connection that timed out is a timeout.
_NAMES: Final = (
    (re.compile(r"Timeout|DeadlineExceeded"), FailureKind.TIMEOUT),
    (
        re.compile(r"Connect|^(ReadError|WriteError|NetworkError|TransportError|ProtocolError|RemoteProtocolError|IncompleteRead"
                   r"|ChunkedEncodingError|gaierror|SSLError|BrokenPipeError|BadStatusLine|ClosedResourceError)$"),
        FailureKind.CONNECTION,
    ),
    # A reply that cannot be read.
    (re.compile(r"ResponseValidation|JSONDecode|UnicodeDecode|^RecursionError$"), FailureKind.SERVER_ERROR),
    (re.compile(r"Credentials|Authentication"), FailureKind.AUTHENTICATION),
    (re.compile(r"RateLimit"), FailureKind.RATE_LIMITED),
)


def failure_of(error: BaseException, *, otherwise: FailureKind = FailureKind.UNKNOWN) -> ModelFailed:
    """The failure that a client's exception means; `otherwise` is its kind where nothing about it is known.

    Where the exception says nothing, the one that caused it is asked. The message names the exception and is capped.
    """
    if isinstance(error, ModelFailed):
        return error
    kind, source = next(((kind, one) for one in _causes(error) if (kind := _kind(one)) is not None), (otherwise, error))
    said = cut(f"{type(error).__name__}: {_text(error)}", _LONGEST)
    return ModelFailed(kind, said, retry_after_s(_headers(source)))


def failure_of_body(body: object, message: str) -> ModelFailed:
    """The failure that an error in the body of a reply means; a server error where its code is unknown."""
    words = list(_words(body))
    status = _status_of(_part(body, "error"))
    kind = _kind_of_code(words) or _too_long(words) or (_kind_of_status(status) if status is not None else FailureKind.SERVER_ERROR)
    return ModelFailed(kind, cut(message, _LONGEST))


def retry_after_s(headers: Mapping[str, Any]) -> float | None:
    """Seconds until the same may be asked again, by the header Retry-After: seconds, or a date beside the reply's own date.

    None where there is none, or a date alone: without the server's clock it says nothing.
    """
    if (wait := _number(headers.get("retry-after-ms"))) is not None:
        return wait / 1000
    said = headers.get("retry-after")
    if (wait := _number(said)) is not None:
        return wait
    until, now = _date(said), _date(headers.get("date"))
    return max(0.0, (until - now).total_seconds()) if until is not None and now is not None else None


def _causes(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    for _ in range(6):
        if one is None:
            return
        yield one
        one = one.__cause__


def _kind(error: BaseException) -> FailureKind | None:
    status = _status(error)
    words = [*_words(getattr(error, "body", None)), *_words(error)]
    if status is None or status < 400:
        return _kind_of_code(words) or _kind_of_name(error)
    if status in (400, 422, 500) and (kind := _too_long([*words, _text(error)])):
        return kind
    coded = _kind_of_code(words)
    if coded in (FailureKind.CONTEXT_LENGTH, FailureKind.AUTHENTICATION):
        return coded
    return _kind_of_status(status)


def _kind_of_status(status: int) -> FailureKind:
    return _STATUS.get(status) or (FailureKind.INVALID_REQUEST if 400 <= status < 500 else FailureKind.SERVER_ERROR)


def _kind_of_code(words: list[str]) -> FailureKind | None:
    return next((_CODES[word] for word in words if word in _CODES), None)


def _too_long(words: list[str]) -> FailureKind | None:
    long = any(_CODES.get(word) is FailureKind.CONTEXT_LENGTH or _TOO_LONG.search(word) for word in words)
    return FailureKind.CONTEXT_LENGTH if long else None


def _kind_of_name(error: BaseException) -> FailureKind | None:
    names = [cls.__name__ for cls in type(error).__mro__]
    return next((kind for pattern, kind in _NAMES if any(pattern.search(name) for name in names)), None)


def _status(error: BaseException) -> int | None:
    status = _status_of(error)
    return status if status is not None else _status_of(getattr(error, "response", None))


def _status_of(owner: object) -> int | None:
    for name in ("status_code", "status", "code"):
        value = _part(owner, name)
        if type(value) is int and 100 <= value <= 599:
            return value
    return None


def _words(body: object) -> Iterator[str]:
    """The code, type and message of an error, the most telling first, wherever the provider puts them."""
    inner = _part(body, "error")
    for owner in (inner, body):
        for name in ("code", "type", "message"):
            if isinstance(word := _part(owner, name), str):
                yield word


def _part(owner: object, name: str) -> object:
    return owner.get(name) if isinstance(owner, Mapping) else getattr(owner, name, None)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(it cannot be shown)"


def _headers(error: BaseException) -> Mapping[str, Any]:
    headers = getattr(getattr(error, "response", None), "headers", None) or getattr(error, "headers", None) or {}
    try:
        return {str(name).lower(): value for name, value in headers.items()}
    except (AttributeError, TypeError, ValueError):
        return {}


def _number(value: object) -> float | None:
    try:
        number = float(value) if isinstance(value, str | int | float) else math.nan
    except ValueError:
        return None
    return max(0.0, number) if math.isfinite(number) else None


def _date(value: object) -> datetime | None:
    try:
        moment = parsedate_to_datetime(value) if isinstance(value, str) else None
    except (TypeError, ValueError):
        return None
    return moment if moment is not None and moment.tzinfo is not None else None
