"""The sample orders that travel in the package: between them they walk every path of the lab's desk."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import IO, Any


def open_samples() -> IO[bytes]:
    """Open the sample orders, one JSON value a line in UTF-8; the caller closes the stream."""
    return files("fsm_agent.lab").joinpath("orders.jsonl").open("rb")


def sample_orders() -> list[Any]:
    """Return the sample orders in order, each fresh; what an order shows is its ``about``. The last two are no orders."""
    with open_samples() as stream:
        return [json.loads(line) for line in stream]
