"""Entries as resources: their URIs, lists and contents, and subscriptions to them.

    holdfast://trivia/                 the keys of the plugin trivia
    holdfast://trivia/game:42          its entry game:42
    holdfast://acme/web/docs/cursor    the entry docs/cursor of the tenant acme's project web

A URI leads only into the caller's own plugin or project; any other names nothing, whether it exists or not. A
key has exactly one URI.

Subscriptions are driven by the journal. Clients of the protocol's revision 2026-07-28 hold a stream open, and
the SDK's `ListenHandler` serves it. Clients of earlier revisions subscribe to one resource at a time, and
notifications go to their connection. One watch follows a namespace for all its subscribers, from before the
first subscription is confirmed until the last one ends. An event says that something changed, never what: a
client reads it again and is judged again.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec
from mcp.server import ServerRequestContext
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
)
from mcp_types import SubscriptionsListenRequestParams, SubscriptionsListenResult

from holdfast import rules
from holdfast.edges.mcp.callers import ToolCaller
from holdfast.edges.mcp.tools import PAGE
from holdfast.errors import Busy, HoldfastError
from holdfast.handles.kv import KV
from holdfast.model import Change

SCHEME: Final = "holdfast"
MIME: Final = "application/json"
_PLAIN: Final = "/:@!$&'()*+,;=-._~"
"""Characters of a key that stand for themselves in a URI."""
MOST_STREAMS: Final = 64
"""Maximum number of streams and of subscribed connections of one plugin or project."""
MOST_URIS: Final = 1_000
"""Maximum number of resources that one connection or stream is subscribed to."""
_STATE: Final = "holdfast.subscriptions"

_log = logging.getLogger("holdfast.mcp")


class ResourceUris:
    """The URIs of one plugin or project.

    Args:
        kv: The handle on its keys.
    """

    def __init__(self, kv: KV) -> None:
        self._key_root = rules.semantic_root(kv.namespace) or ""
        self.root = f"{SCHEME}://{kv.namespace.partition('/')[2]}/"
        self.template = self.root + "{+key}"

    def uri(self, key: str) -> str:
        """Return the URI of a key."""
        return self.root + quote(key.removeprefix(self._key_root), safe=_PLAIN)

    def key(self, uri: str) -> str | None:
        """Return the key of a URI; empty for the list of keys, None if it is no URI of this namespace."""
        if not uri.startswith(self.root):
            return None
        try:
            return unquote(uri[len(self.root) :], errors="strict")
        except UnicodeDecodeError:
            return None

    def canonical(self, uri: str) -> str | None:
        """Return the one URI of what a URI names; None if it is no URI of this namespace."""
        key = self.key(uri)
        if key is None:
            return None
        return self.uri(key) if key else self.root


async def page_of(caller: ToolCaller, cursor: str | None) -> tuple[list[str], str | None]:
    """Return a page of keys, and the cursor of the next page."""
    fields: dict[str, Any] = {"limit": PAGE} | ({} if cursor is None else {"cursor": cursor})
    page = await caller.call("list", fields)
    return page["keys"], page["cursor"]


async def content_of(caller: ToolCaller, uri: str) -> str | None:
    """Return a resource as JSON: an entry, or the first page of keys; None if it is not there."""
    key = ResourceUris(caller.kv).key(uri)
    if key is None:
        return None
    if not key:
        return _json(await caller.ask("list", b'{"limit": %d}' % PAGE))
    entry = await caller.ask("get", json.dumps({"key": key}).encode())
    if not entry.pop("exists"):
        return None
    return _json({"key": key, **entry})


def _json(fields: dict[str, Any]) -> str:
    return msgspec.json.encode(fields).decode()


class Followed:
    """A namespace that is followed for its subscribers.

    Args:
        kv: The handle on its keys.
    """

    def __init__(self, kv: KV) -> None:
        self._kv = kv
        self.uris = ResourceUris(kv)
        self.bus = InMemorySubscriptionBus()
        self.listen = ListenHandler(self.bus, max_subscriptions=MOST_STREAMS)
        self.users = 0
        self._uris: Counter[str] = Counter()
        self._task: asyncio.Task[None] | None = None

    @property
    def over(self) -> bool:
        """Whether the journal is not followed any more, although there may be subscribers."""
        return self._task is not None and self._task.done()

    @asynccontextmanager
    async def following(self, since: int, uris: Iterable[str] = ()) -> AsyncIterator[None]:
        """Follow the journal within an `async with` block, at the latest from a version on.

        Raises:
            Busy: There are too many subscribers.
        """
        if self.users >= MOST_STREAMS:
            raise Busy("too many subscriptions of this plugin or project are open", retry_after=5.0)
        self.users += 1
        self._uris.update(uris)
        if self._task is None:
            self._task = asyncio.create_task(self._follow(since), name="holdfast mcp subscriptions")
        try:
            yield
        finally:
            self.users -= 1
            self._uris.subtract(uris)
            if not self.users:
                task, self._task = self._task, None
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _follow(self, since: int) -> None:
        try:
            async for change in self._kv.watch(since=since):
                for event in self._events(change):
                    await self.bus.publish(event)
        except HoldfastError as error:
            _log.error("subscriptions of %s ended: %s", self._kv.namespace, error.message)
        self.listen.close()  # clients see that their streams have ended, and subscribe again

    def _events(self, change: Change) -> Iterator[ServerEvent]:
        """Yield what a change means to subscribers. After a gap anything may have changed."""
        if change.op == "gap":
            yield from map(ResourceUpdated, [uri for uri, count in self._uris.items() if count > 0])
        else:
            yield ResourceUpdated(self.uris.uri(change.key))
        yield ResourceUpdated(self.uris.root)
        yield ResourcesListChanged()


class Subscriptions:
    """The subscriptions of a server, by namespace."""

    def __init__(self) -> None:
        self._followed: dict[str, Followed] = {}

    def close(self) -> None:
        """End every stream."""
        for followed in self._followed.values():
            followed.listen.close()

    def _of(self, caller: ToolCaller) -> Followed:
        unused = [name for name, followed in self._followed.items() if not followed.users or followed.over]
        for name in unused:
            del self._followed[name]
        return self._followed.setdefault(caller.kv.namespace, Followed(caller.kv))

    async def listen(
        self,
        caller: ToolCaller,
        ctx: ServerRequestContext[Any, Any],
        params: SubscriptionsListenRequestParams,
    ) -> SubscriptionsListenResult:
        """Serve a stream of events until its client goes."""
        head = await _head(caller)
        followed = self._of(caller)
        requested = params.notifications.resource_subscriptions or []
        uris = [uri for one in requested[:MOST_URIS] if (uri := followed.uris.canonical(one)) is not None]
        known = params.notifications.model_copy(update={"resource_subscriptions": uris})
        async with followed.following(head, uris):
            return await followed.listen(ctx, params.model_copy(update={"notifications": known}))

    async def subscribe(self, caller: ToolCaller, ctx: ServerRequestContext[Any, Any], uri: str) -> bool:
        """Subscribe a connection to a resource. Returns False if it is not one of this namespace.

        Raises:
            Busy: The connection has too many subscriptions.
        """
        connection = ctx.session._connection  # the SDK keeps its `state` and `exit_stack` for this
        head = await _head(caller)
        followed = self._of(caller)
        known = followed.uris.canonical(uri)
        if known is None:
            return False
        mine: Delivery | None = connection.state.get(_STATE)
        if mine is None:
            mine = Delivery(ctx)
            await connection.exit_stack.enter_async_context(mine.running(followed, head))
            connection.state[_STATE] = mine  # not before: it may be refused
        if len(mine.uris) >= MOST_URIS:
            raise Busy(f"a connection may subscribe to at most {MOST_URIS} resources")
        mine.uris[known] = uri
        return True

    def unsubscribe(self, caller: ToolCaller, ctx: ServerRequestContext[Any, Any], uri: str) -> None:
        """End the subscription of a connection to a resource."""
        mine: Delivery | None = ctx.session._connection.state.get(_STATE)
        known = ResourceUris(caller.kv).canonical(uri)
        if mine is not None and known is not None:
            mine.uris.pop(known, None)


class Delivery:
    """The subscriptions of one connection of an earlier revision, and what it has yet to be told.

    Args:
        ctx: The request that subscribed first; its session leads to the connection.
    """

    def __init__(self, ctx: ServerRequestContext[Any, Any]) -> None:
        self._session = ctx.session
        self.uris: dict[str, str] = {}
        """The URIs as the client spells them, by canonical URI."""
        self._pending: dict[str, None] = {}
        self._wake = asyncio.Event()

    @asynccontextmanager
    async def running(self, followed: Followed, since: int) -> AsyncIterator[None]:
        """Deliver events within an `async with` block."""
        async with followed.following(since):
            stop = followed.bus.subscribe(self._take)
            sender = asyncio.create_task(self._send(), name="holdfast mcp notifications")
            try:
                yield
            finally:
                stop()
                sender.cancel()
                await asyncio.gather(sender, return_exceptions=True)

    def _take(self, event: ServerEvent) -> None:
        if isinstance(event, ResourceUpdated) and event.uri in self.uris:
            self._pending[self.uris[event.uri]] = None
            self._wake.set()

    async def _send(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                uri = next(iter(self._pending))
                del self._pending[uri]
                await self._session.send_resource_updated(uri)


async def _head(caller: ToolCaller) -> int:
    """Return the newest version of the namespace: a call like any other, so that it is judged and counted."""
    head: int = (await caller.call("changes", {"limit": 1}))["head"]
    return head
