"""The Rosey plugin's client: the plugin's own keys, over a NATS connection that it already has.

The client uses only `request` of the connection, which may be one of nats-py. Errors are raised as
`BotDatabase` raises them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, NoReturn, Protocol

import msgspec

from holdfast import rules
from holdfast.bus.connection import Connection, Subscription
from holdfast.bus.errors import Lost
from holdfast.bus.protocol import Message, block
from holdfast.engines.sql.orm import builtin_errors, json_text
from holdfast.errors import HoldfastError, OutcomeUnknown, Unavailable, ValidationError, ValueTooLarge
from holdfast.verbs.fields import ttl_field
from holdfast.wire.dialects import PLUGIN
from holdfast.wire.errors import error_of

NO_RESPONDERS: Final = "503"
"""The server's status for a request without listeners."""

_log = logging.getLogger("holdfast.compat")


_NO_RESPONDERS_ERRORS: Final = frozenset({"NoRespondersError", "ConnectionError"})
"""Names of the errors by which connections report that no service is listening.

One is that of nats-py, which need not be installed; the other is ours.
"""
_READS: Final = frozenset({"get", "list", "get_ttl"})


class BotMessage:
    """A message as a callback gets it."""

    def __init__(self, connection: BotConnection, message: Message) -> None:
        self._connection = connection
        self.subject: str = message.subject
        self.reply: str = message.reply
        self.data: bytes = message.data
        self.headers: dict[str, str] | None = _headers(message.head)

    async def respond(self, data: bytes) -> None:
        """Reply to the message, if it asks for a reply."""
        if self.reply:
            await self._connection.publish(self.reply, data)


class BotSubscription:
    """Messages of a subject, in order: passed to a callback one after the other, or read by `next_msg`."""

    def __init__(self, callback: Callable[[BotMessage], Awaitable[Any]] | None) -> None:
        self.waiting: asyncio.Queue[BotMessage] = asyncio.Queue()
        self._callback = callback
        self._inner: Subscription | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self, inner: Subscription) -> None:
        """Start receiving messages."""
        self._inner = inner
        if self._callback is not None:
            self._task = asyncio.create_task(self._call_back(), name="holdfast compat subscription")

    async def next_msg(self, timeout: float = 1.0) -> BotMessage:  # noqa: ASYNC109 - as in nats-py
        """Return the next message.

        Raises:
            TimeoutError: No message came in time.
        """
        async with asyncio.timeout(timeout):
            return await self.waiting.get()

    @property
    async def messages(self) -> AsyncIterator[BotMessage]:
        """Every message, for as long as the iteration continues."""
        while True:
            yield await self.waiting.get()

    async def unsubscribe(self) -> None:
        """Stop receiving messages."""
        if self._inner is not None:
            self._inner.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _call_back(self) -> None:
        assert self._callback is not None
        while True:
            message = await self.waiting.get()
            try:
                await self._callback(message)
            except Exception as error:
                _log.error("a callback for %s failed: %s", message.subject, error, exc_info=error)


class BotConnection(Connection):
    """The connection of a `DatabaseService`, which its program may use as well."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._bots: list[BotSubscription] = []

    async def publish(
        self, subject: str, payload: bytes = b"", reply: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a message.

        Raises:
            ConnectionError: There is no connection now.
            ValueError: The subject contains a space or is empty.
        """
        head = b"" if headers is None else block(headers)
        if not self.send(_subject(subject), payload, reply=reply, head=head):
            raise ConnectionError(f"there is no connection to NATS: nothing was sent to {subject}")

    async def subscribe(
        self, subject: str, queue: str = "", cb: Callable[[BotMessage], Awaitable[Any]] | None = None
    ) -> BotSubscription:
        """Subscribe to a subject. Without a callback, read messages with `next_msg` or `messages`.

        If the connection is lost meanwhile, it subscribes again when it is back.
        """
        made = BotSubscription(cb)
        put = made.waiting.put_nowait
        made.begin(
            self.listen(_subject(subject), lambda message: put(BotMessage(self, message)), queue=queue)
        )
        self._bots.append(made)
        with contextlib.suppress(Lost):
            await self.flush()
        return made

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        timeout: float = 0.5,  # noqa: ASYNC109 - as in nats-py
        headers: Mapping[str, str] | None = None,
    ) -> BotMessage:
        """Send a request, and return the first reply.

        Raises:
            TimeoutError: No reply came in time.
            ConnectionError: There is no connection now, or the subject has no listener.
        """
        reply: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        inbox = self.new_inbox()

        def take(message: Message) -> None:
            if not reply.done():
                reply.set_result(message)

        listening = self.listen(inbox, take)
        try:
            await self.publish(subject, payload, reply=inbox, headers=headers)
            async with asyncio.timeout(timeout):
                message = await reply
        finally:
            listening.cancel()
        if message.status == NO_RESPONDERS:
            raise ConnectionError(f"nobody listens at {subject}")
        return BotMessage(self, message)

    async def close(self) -> None:
        """Disconnect, and end the program's subscriptions."""
        bots, self._bots = self._bots, []
        for subscription in bots:
            await subscription.unsubscribe()
        await super().close()


def _subject(subject: str) -> str:
    if not subject or any(character.isspace() for character in subject):
        raise ValueError(f"{subject!r} is no subject: it must be tokens with dots between them")
    return subject


def _headers(head: bytes) -> dict[str, str] | None:
    """Return the headers of a message, as nats-py shows them."""
    lines = head.decode(errors="replace").split("\r\n")[1:]
    fields = (line.partition(":") for line in lines if line)
    return {name: value.strip() for name, _, value in fields} or None


class Reply(Protocol):
    """The reply to a request."""

    @property
    def data(self) -> bytes:
        """The payload."""
        ...


class Requests(Protocol):
    """The part of a NATS connection that a client uses."""

    async def request(
        self,
        subject: str,
        payload: bytes = ...,
        timeout: float = ...,  # noqa: ASYNC109 - as in nats-py
    ) -> Reply:
        """Send a request and wait for its reply."""
        ...


class DatabaseClient:
    """The database of one plugin: `client.kv` has its keys.

    Args:
        nats: A connection, such as one of nats-py. Its owner closes it.
        plugin_name: The plugin that owns the keys.
        prefix: The beginning of the service's subjects.
        timeout: Seconds to wait for a reply.

    Raises:
        ValueError: The plugin's name is not valid.
    """

    def __init__(self, nats: Requests, plugin_name: str, *, prefix: str = "db", timeout: float = 5.0) -> None:
        with builtin_errors():
            rules.plugin_name(plugin_name)
        self.plugin_name = plugin_name
        self.kv: PluginKeys = PluginKeys(nats, f"{prefix}.kv.{plugin_name}", timeout)


class PluginKeys:
    """The keys of a plugin. Every call raises what those of `BotDatabase` raise, and also:

    Raises:
        Unavailable: No service answers; nothing was done.
        OutcomeUnknown: A write was not answered in time: it may or may not have been done.
    """

    def __init__(self, nats: Requests, subject: str, timeout: float) -> None:
        self._nats = nats
        self._subject = subject
        self._timeout = timeout

    async def set(self, key: str, value: Any, ttl_seconds: int | None = None, ttl: int | None = None) -> int:
        """Set a key to a JSON value, which expires after the ttl if one is given. Returns its version."""
        with builtin_errors():
            seconds = ttl_field({"ttl": ttl, "ttl_seconds": ttl_seconds})
            raw = msgspec.Raw(json_text(value).encode())
        reply = await self._ask("set", {"key": key, "value": raw, "ttl": seconds})
        version: int = reply["version"]
        return version

    async def get(self, key: str, default: Any = None) -> Any:
        """Get the value of a key. Returns the default if the key does not exist or has expired."""
        reply = await self._ask("get", {"key": key})
        return reply["value"] if reply["exists"] else default

    async def delete(self, key: str) -> bool:
        """Remove a key. Returns True if it was there."""
        return bool((await self._ask("delete", {"key": key}))["deleted"])

    async def list(self, prefix: str = "", limit: int = 1000) -> list[str]:
        """List the first `limit` keys that begin with a prefix, in the order of their bytes."""
        reply = await self._ask("list", {"prefix": prefix, "limit": limit})
        keys: list[str] = reply["keys"]
        while reply["cursor"] is not None and len(keys) < limit:
            more = {"prefix": prefix, "limit": limit - len(keys), "cursor": reply["cursor"]}
            reply = await self._ask("list", more)
            keys += reply["keys"]
        return keys

    async def incr(self, key: str, by: float = 1, ttl: int | None = None) -> int | float:
        """Add to a number, starting from 0 if the key does not exist. Returns the sum."""
        value: int | float = (await self._ask("incr", {"key": key, "by": by, "ttl": ttl}))["value"]
        return value

    async def _ask(self, verb: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        present = {name: field for name, field in fields.items() if field is not None}
        subject = f"{self._subject}.{verb}"
        payload = PLUGIN.request({**present, "deadline_ms": int(self._timeout * 1000)})
        try:
            reply = PLUGIN.answer((await self._nats.request(subject, payload, timeout=self._timeout)).data)
        except TimeoutError:
            raise _late(verb, subject, self._timeout) from None
        except Exception as error:
            if type(error).__name__ not in _NO_RESPONDERS_ERRORS:
                raise
            raise Unavailable(f"no Holdfast service answers at {subject}") from error
        if not reply["success"]:
            _raise(error_of(reply))
        return reply


def _raise(error: HoldfastError) -> NoReturn:
    if isinstance(error, (ValidationError, ValueTooLarge)):
        raise ValueError(error.message) from error
    raise error


def _late(verb: str, subject: str, seconds: float) -> Unavailable | OutcomeUnknown:
    if verb in _READS:
        return Unavailable(f"no reply from {subject} came within {seconds:g} s")
    return OutcomeUnknown(f"no reply to {verb} came within {seconds:g} s: it may or may not have been done")
