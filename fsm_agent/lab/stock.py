"""The lab's data, as seed 003 gives them."""

from __future__ import annotations

REGIONS: dict[str, list[str]] = {
    "seoul": ["gasan", "guro", "mapo"],
    "busan": ["sasang", "haeundae"],
    "jeju": ["hallim"],
}
STOCK: dict[str, dict[str, int]] = {
    "A-1001": {"gasan": 4, "guro": 2, "mapo": 7, "sasang": 1},
    "A-1002": {"guro": 5, "haeundae": 3},
    "B-2001": {"gasan": 9, "guro": 1, "mapo": 9, "hallim": 2},
    "B-2002": {"sasang": 6, "haeundae": 6},
}
MAX_ROWS = 2
MAX_ATTEMPTS = 3
FALLBACK_REGION = "seoul"
REPAIRS: dict[str, str] = {"args:allowed:region": "region", "args:range:limit": "limit", "result:too_big": "tool"}
