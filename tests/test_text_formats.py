"""The formats of JSON Schema that are checked here."""

from __future__ import annotations

import pytest

from fsm_agent.core.text_formats import FORMATS

TEXTS: list[tuple[str, str, bool]] = [
    ("date-time", "2020-01-31T23:59:59Z", True),
    ("date-time", "2020-01-31t23:59:59.123456789+09:00", True),
    ("date-time", "2016-12-31T23:59:60Z", True),
    ("date-time", "2020-02-30T00:00:00Z", False),
    ("date-time", "2020-01-31T24:00:00Z", False),
    ("date-time", "2020-01-31T23:59:59", False),
    ("date-time", "2020-01-31", False),
    ("date-time", "\uff12020-01-31T23:59:59Z", False),
    ("date-time", "2020-01-31T23:59:59Z\n", False),
    ("date-time", "", False),
    ("time", "23:59:59Z", True),
    ("time", "23:59:59", False),
    ("time", "25:00:00Z", False),
    ("duration", "P1DT12H", True),
    ("duration", "P3W", True),
    ("duration", "PT", False),
    ("duration", "P", False),
    ("duration", "P1H", False),
    ("hostname", "example.com", True),
    ("hostname", "a-b.c1", True),
    ("hostname", "-a.com", False),
    ("hostname", "a..b", False),
    ("hostname", "a" * 64, False),
    ("hostname", ".".join(["a"] * 127), True),
    ("hostname", ".".join(["a"] * 128), False),
    ("hostname", "\ud800", False),
    ("uri", "https://example.com/a?b=c#d", True),
    ("uri", "urn:isbn:1", True),
    ("uri", "example.com", False),
    ("uri", "http://a b", False),
    ("uri", "http://a/%zz", False),
    ("uri", "http://\ud800", False),
]


@pytest.mark.parametrize(("name", "text", "well"), TEXTS)
def test_a_text_is_well_formed_or_not(name: str, text: str, well: bool) -> None:
    assert FORMATS[name](text) is well


@pytest.mark.parametrize("name", FORMATS)
def test_a_long_text_takes_no_long_time(name: str) -> None:
    assert FORMATS[name]("a:" * 500_000) in (True, False)
