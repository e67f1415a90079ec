"""What the service publishes, sent in order by one task.

Law: nobody who answers waits for the connection. What can't be sent because the connection is gone is
dropped: its caller has given up, and a watcher looks for itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from nats.errors import Error as NatsError

if TYPE_CHECKING:
    from nats.aio.client import Client


class Outbox:
    """Replies and events on their way out."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._waiting: deque[tuple[str, bytes, dict[str, str] | None]] = deque()
        self._work = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self.dropped = 0

    def put(self, subject: str, payload: bytes, headers: dict[str, str] | None = None) -> None:
        """Have a message sent."""
        self._waiting.append((subject, payload, headers))
        self._empty.clear()
        self._work.set()

    async def run(self) -> None:
        """Send what there is to send, until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._waiting:
                subject, payload, headers = self._waiting.popleft()
                try:
                    await self._client.publish(subject, payload, headers=headers)
                except NatsError:
                    self.dropped += 1
            self._empty.set()

    async def flushed(self) -> None:
        """Wait until everything has been handed to the connection."""
        await self._empty.wait()
