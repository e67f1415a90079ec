"""A NATS connection with the calls that programs of the Rosey bot make on theirs.

Law: `publish`, `subscribe` and `request` take the arguments that those of nats-py take. Everything else is
the connection that Holdfast itself uses. A callback that fails is logged and ends nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final

from holdfast.bus.connection import Connection
from holdfast.bus.errors import Lost
from holdfast.bus.protocol import block

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from holdfast.bus.connection import Subscription
    from holdfast.bus.protocol import Message

NOBODY: Final = "503"
"""The server's status for a request without listeners."""

_log = logging.getLogger("holdfast.compat")


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
        if message.status == NOBODY:
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
    found = (line.partition(":") for line in lines if line)
    return {name: value.strip() for name, _, value in found} or None
