"""Watches over HTTP: server-sent events, whose ids are versions.

A stream reads the journal only as fast as its client reads the stream, so a slow client holds nothing in
memory. A client that does not read at all is cut off; it comes back with the last id it saw and misses
nothing. A stream is over within a second of the end of what let its client in.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Final

from holdfast.edges.http.connections import STREAM, BoundedConnection, HttpLimits
from holdfast.edges.http.requests import PathOwner
from holdfast.edges.http.responses import ALWAYS, Header, encode
from holdfast.errors import Busy, ValidationError
from holdfast.handles.kv import KV
from holdfast.model import Change
from holdfast.store import Store
from holdfast.wire.replies import change_fields

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send


BEAT_SECONDS: Final = 15.0
"""Seconds of silence after which a comment shows that the stream is alive."""
READ_SECONDS: Final = 20.0
"""Seconds that a client may leave the stream unread once all buffers are full."""
BEAT: Final = b": alive\n\n"
REFUSED: Final = b": the token has expired or been revoked\n\n"
"""The last comment of a stream that ends with its token."""
_HEADERS: Final[tuple[Header, ...]] = (
    (b"content-type", b"text/event-stream"),
    (b"x-accel-buffering", b"no"),
    *ALWAYS,
)


class Watches:
    """The watches of a service.

    Args:
        store: The store.
        limits: The limits on their number.
    """

    def __init__(self, store: Store, limits: HttpLimits) -> None:
        self._store = store
        self._limits = limits
        self._of: Counter[str] = Counter()

    @contextlib.contextmanager
    def room(self, owner: str) -> Iterator[None]:
        """Count a watch of an owner within a `with` block.

        Raises:
            Busy: There are too many.
        """
        if self._of[owner] >= self._limits.watches_of_one or self._of.total() >= self._limits.watches:
            raise Busy(f"too many watches of {owner} are open", retry_after=5.0)
        self._of[owner] += 1
        try:
            yield
        finally:
            self._of[owner] -= 1
            if not self._of[owner]:
                del self._of[owner]

    async def stream(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        ended: Coroutine[Any, Any, None],
        place: PathOwner,
        prefix: str,
        since: int,
    ) -> None:
        """Send the changes of a namespace until the client goes, its token has ended or the store closes."""
        gone, refused = asyncio.create_task(_gone(receive)), asyncio.create_task(ended)
        connection: BoundedConnection = scope[STREAM]
        refused.add_done_callback(lambda one: None if one.cancelled() else connection.cut_unread())
        try:
            await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
            connection.stream()  # not before its turn: the responses before it have their time limit
            async with asyncio.timeout(READ_SECONDS):
                await send({"type": "http.response.body", "body": b": watching\n\n", "more_body": True})
            kv = KV(self._store.pipeline, self._store.pipeline.verbs(place.namespace, root=place.root))
            changes = kv.watch(prefix, since=since)
            async with contextlib.aclosing(_events(changes, gone, refused)) as events:
                async for event in events:
                    async with asyncio.timeout(READ_SECONDS):
                        await send({"type": "http.response.body", "body": event, "more_body": True})
            await send({"type": "http.response.body", "body": REFUSED if refused.done() else b""})
        except TimeoutError:
            connection.cut()
        finally:
            gone.cancel()
            refused.cancel()
            await asyncio.gather(gone, refused, return_exceptions=True)


async def _events(changes: AsyncIterator[Change], *over: asyncio.Task[None]) -> AsyncGenerator[bytes]:
    """Yield changes as events, and a comment after a silence, until one of the tasks is done."""
    waiting = asyncio.create_task(_next(changes))
    try:
        while True:
            pending: set[asyncio.Task[Any]] = {waiting, *over}
            await asyncio.wait(pending, timeout=BEAT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if any(one.done() for one in over):
                return
            if not waiting.done():
                yield BEAT
                continue
            change = waiting.result()
            if change is None:
                return
            yield _event(change)
            waiting = asyncio.create_task(_next(changes))
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def _next(changes: AsyncIterator[Change]) -> Change | None:
    return await anext(changes, None)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _event(change: Change) -> bytes:
    fields = encode(change_fields(change))
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (change.version, change.op.encode(), fields)


def start_of(query: dict[str, Any], headers: list[Header]) -> object:
    """Return the version after which a watch begins: the last one that the client saw, or what it asks for.

    Raises:
        ValidationError: The last id is not a version.
    """
    for name, said in headers:
        if name == b"last-event-id":
            if not said.isdigit() or len(said) > 19:
                raise ValidationError("Last-Event-ID must be a version", field="last_event_id")
            return int(said)
    return query.get("since")
