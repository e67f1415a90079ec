"""Requests and their replies over a connection to NATS.

Law: a request is sent once. What to do about one that was not sent, or that no reply came to, is its sender's
decision, so the two raise different errors.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast.bus.errors import Lost, NoResponders

if TYPE_CHECKING:
    from holdfast.bus.connection import Connection
    from holdfast.bus.protocol import Message


class Requester:
    """Sends requests over one connection and delivers the replies.

    Args:
        connection: The connection. It must not be closed before the last request has ended.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._inbox = connection.new_inbox()
        self._number = 0
        self._pending: dict[str, asyncio.Future[Message]] = {}
        connection.listen(f"{self._inbox}.*", self._take)

    async def ask(self, subject: str, payload: bytes = b"", *, seconds: float, head: bytes = b"") -> Message:
        """Send a request and wait for the reply.

        Args:
            subject: The subject, which must be legal.
            payload: The body, no larger than the server accepts.
            seconds: The timeout.
            head: The headers; see `protocol.block`.

        Raises:
            Lost: There is no connection: nothing was sent.
            NoResponders: The server says that no one listens to the subject.
            TimeoutError: No reply came in time. The request may have been received.
        """
        self._number += 1
        token = str(self._number)
        reply: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._pending[token] = reply
        try:
            if not self._connection.send(subject, payload, reply=f"{self._inbox}.{token}", head=head):
                raise Lost("there is no connection, or it is congested")
            async with asyncio.timeout(seconds):
                message = await reply
        finally:
            del self._pending[token]
        if message.status == "503":
            raise NoResponders(f"no one listens to {subject}")
        return message

    def _take(self, message: Message) -> None:
        reply = self._pending.get(message.subject.rpartition(".")[2])
        if reply is not None and not reply.done():
            reply.set_result(message)
