"""A request at any door of a service, and what is known of it before it starts: its size and its deadline."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from holdfast import rules
from holdfast.edges.calls import Verb
from holdfast.errors import HoldfastError, Timeout, ValidationError, ValueTooLarge
from holdfast.tracing import OpenSpan, Trace
from holdfast.wire.subjects import Route

Answer: TypeAlias = tuple[dict[str, Any], HoldfastError | None]
Back: TypeAlias = Callable[[Any, dict[str, Any], HoldfastError | None], HoldfastError | None]

LONG: Final = 16_384
"""Size in bytes above which a payload is long: decoding it takes milliseconds of the event loop."""
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
FARTHEST: Final = rules.MAX_TTL * 1000
"""Largest allowed distance from receipt to deadline, in milliseconds. Every engine can store that time."""


class Endpoint(msgspec.Struct, kw_only=True):
    """The counters of one door, or of one subject over NATS, in the form of the NATS services framework."""

    name: str
    subject: str = ""
    queue_group: str = ""
    num_requests: int = 0
    num_errors: int = 0
    last_error: str = ""
    processing_time: int = 0
    average_processing_time: int = 0

    def count(self, seconds: float, error: str | None) -> None:
        """Count a request."""
        self.num_requests += 1
        self.processing_time += int(seconds * 1e9)
        if error is not None:
            self.num_errors += 1
            self.last_error = error


class Request(msgspec.Struct, gc=False):
    """A message that asks for something. `received` is the store's time, `began` a monotonic time.

    `queue` is the plugin or project in whose queue it waits. `verb` is None if no verb has that name.
    `writes` means that earlier requests must have done their lookups before this one starts. `replayed` means
    that the request was executed before and gets the same answer again. `user` is the user of the caller's
    connection, or its token. `back` takes the request, the fields of its answer and the error, and returns
    the error that the caller receives; it is None if nobody waits for an answer. `head` are the headers of a
    NATS message, kept where fields may be in them. `trace` is the trace that the request belongs to, and
    `span` its span, if spans are recorded.
    """

    queue: str
    route: Route
    payload: bytes
    received: int
    began: float
    endpoint: Endpoint
    verb: Verb | None = None
    writes: bool = False
    key: str = ""
    wait: float = 0.0
    replayed: bool = False
    user: str = ""
    warning: str = ""
    back: Back | None = None
    head: bytes = b""
    trace: Trace | UnsetType = UNSET
    span: OpenSpan | None = None


def hand_back(
    answer: asyncio.Future[Answer], request: Request, fields: dict[str, Any], error: HoldfastError | None
) -> HoldfastError | None:
    """Give the answer of a request to the task that waits for it. This is a `Request.back`."""
    # An error leads to the request by way of its traceback: nothing may lead from there to the error, since
    # requests are not garbage-collected.
    request.back = None
    if not answer.done():  # it is cancelled if the client has gone
        answer.set_result((fields, error))
    return error


def deadline_of(request: Request, deadline: object, allowed: object, now: int, usual: int) -> int:
    """Return the deadline of a request, in milliseconds since 1970. A write carries it to its commit.

    Args:
        request: The request.
        deadline: The time that the caller gave as `deadline`, if any.
        allowed: The milliseconds that the caller gave as `deadline_ms`, if any.
        now: The store's time.
        usual: The milliseconds that a request has if the caller gives neither.

    Raises:
        Timeout: The deadline has passed.
        ValidationError: The caller's deadline is not a valid time.
    """
    if deadline is None:
        if allowed is None:
            allowed = usual
        if type(allowed) is not int or allowed < 0:
            raise ValidationError("deadline_ms must be a whole number from 0", field="deadline_ms")
        deadline = request.received + allowed
    elif type(deadline) is not int:
        raise ValidationError("deadline must be in whole milliseconds since 1970", field="deadline")
    if now > deadline:
        raise Timeout("the deadline passed before the request started: nothing was done")
    farthest = request.received + FARTHEST
    return deadline if deadline < farthest else farthest


def require_fitting(request: Request) -> None:
    """Refuse a request that is too large for its verb, before it is decoded.

    Raises:
        ValueTooLarge: The request is too large for one about a single key, or for one that reads items.
    """
    route, size = request.route, len(request.payload)
    if size <= MOST_READING:
        return
    if route.family == "table" and route.verb in READING_ITEMS:
        raise ValueTooLarge(
            f"the request has {size} bytes; one that reads items has at most {MOST_READING}", field="filter"
        )
    if size > MOST_SINGLE and route.family not in ("table", "admin") and route.verb not in SEVERAL:
        raise ValueTooLarge(
            f"the request has {size} bytes; one about a single key has at most {MOST_SINGLE}", field="value"
        )


@contextmanager
def uncollected() -> Iterator[None]:
    """Decode a long payload within this context: without garbage collection.

    A value of 64 KB may hold 20,000 lists. None of them is garbage before the request has been started, and
    looking for garbage while they are made doubles the time.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
