"""Requests with long payloads, whose decoding takes milliseconds of the event loop.

Law: a request that is too large for its verb is refused before it is decoded. None of the objects that a
payload is decoded to is garbage before the request has been started, so none is looked for.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from holdfast import rules
from holdfast.errors import ValueTooLarge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.edges.intake.lines import Request

LONG: Final = 16_384
"""Size in bytes above which a payload is long."""
MOST_SINGLE: Final = rules.MAX_RAISED_VALUE_BYTES + 131_072
"""Maximum size of a request about a single key. A value at its limit fits in any encoding."""
MOST_READING: Final = 131_072
"""Maximum size of a request that reads items of a table. A condition that long would be too expensive."""
READING_ITEMS: Final = frozenset(
    {"get_item", "reveal_item", "query", "query_index", "scan", "changes", "get_ttl"}
)
"""The verbs of tables that `MOST_READING` is about."""
SEVERAL: Final = frozenset({"batch", "delete_many", "escalate", "get_many", "set_many"})
"""The verbs of keys whose requests may be larger."""


@contextmanager
def starting(request: Request) -> Iterator[None]:
    """Start a request with a long payload within this context: without garbage collection.

    A value of 64 KB may hold 20,000 lists. Collecting garbage while they are made doubles the time.

    Raises:
        ValueTooLarge: The request is too large for one about a single key, or for one that reads items.
    """
    if len(request.payload) > MOST_READING:
        _require_fitting(request)
    with uncollected():
        yield


@contextmanager
def uncollected() -> Iterator[None]:
    """Decode a long payload within this context: without garbage collection."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _require_fitting(request: Request) -> None:
    route, size = request.route, len(request.payload)
    if route.family == "table" and route.verb in READING_ITEMS:
        raise ValueTooLarge(
            f"the request has {size} bytes; one that reads items has at most {MOST_READING}", field="filter"
        )
    if size > MOST_SINGLE and route.family not in ("table", "admin") and route.verb not in SEVERAL:
        raise ValueTooLarge(
            f"the request has {size} bytes; one about a single key has at most {MOST_SINGLE}", field="value"
        )
