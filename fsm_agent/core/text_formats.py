"""The ``format`` words of JSON Schema that the package ``jsonschema`` leaves unchecked without further packages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime

# The hour 24, which Python has taken since 3.14, is none there.
_DATE_TIME = re.compile(r"(\d{4}-\d{2}-\d{2})[Tt ]((?!24)\d{2}:\d{2}):(\d{2})(\.\d+)?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)
_DURATION = re.compile(r"P(?!$)(\d+W|(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+S)?)?)", re.ASCII)
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*")


def is_date_time(text: str) -> bool:
    """True for a date and time with its offset (RFC 3339, section 5.6); the second may be a leap second."""
    found = _DATE_TIME.fullmatch(text)
    if found is None:
        return False
    day, minute, second, _, zone = found.groups()
    try:
        datetime.fromisoformat(f"{day}T{minute}:{'59' if second == '60' else second}{zone.upper()}")
    except ValueError:
        return False
    return True


def is_time(text: str) -> bool:
    """True for a time of day with its offset (RFC 3339, section 5.6)."""
    return is_date_time(f"2000-01-01T{text}")


def is_duration(text: str) -> bool:
    """True for a duration such as P1DT12H (RFC 3339, appendix A)."""
    return _DURATION.fullmatch(text) is not None


def is_hostname(text: str) -> bool:
    """True for a host name of ASCII labels (RFC 1123, section 2.1), at most 253 characters."""
    return len(text) <= 253 and all(_LABEL.fullmatch(label) for label in text.split("."))


def is_uri(text: str) -> bool:
    """True for an absolute URI: a scheme, then only characters that a URI may hold (RFC 3986)."""
    return _URI.fullmatch(text) is not None


FORMATS: Mapping[str, Callable[[str], bool]] = {
    "date-time": is_date_time,
    "time": is_time,
    "duration": is_duration,
    "hostname": is_hostname,
    "uri": is_uri,
}
