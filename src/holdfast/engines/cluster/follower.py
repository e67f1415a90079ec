"""Following the log of a shard: the consumer, and starting it again when it falls silent or leaves a gap.

Law: messages are passed on in the order of the log, each at least once. What the replica makes of them, and
whether they fit, is not decided here.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from holdfast.bus.errors import BusError
from holdfast.engines.cluster.jetstream import HEARTBEAT_SECONDS, ApiRefusal, pending_of
from holdfast.engines.cluster.messages import Assembler

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from holdfast.bus.connection import Connection
    from holdfast.bus.protocol import Message
    from holdfast.engines.cluster.jetstream import JetStream
    from holdfast.engines.cluster.messages import Logged

SILENCE_SECONDS: Final = 3 * HEARTBEAT_SECONDS
"""How long a consumer may send nothing, not even a heartbeat."""
LACKING_SECONDS: Final = 15.0
"""How long the log may lack messages. An election takes a few seconds."""
PAUSE_SECONDS: Final = 0.1
ANSWER_SECONDS: Final = 2.0

_log = logging.getLogger("holdfast.cluster")


class Follower:
    """A consumer of one shard's log that is replaced as often as needed.

    Args:
        connection: The connection.
        jetstream: JetStream over that connection.
        stream: The name of the stream.
        subject: The subject of the shard's log.
        start: Returns the sequence of the last message that was applied. Delivery begins with that message.
        take: Applies an entry. Returns False if a message before it is missing.
        about: What the consumer says about this node to those who list the consumers.
        lost: Makes the error to raise if the log keeps lacking messages that were applied, or come next.
    """

    def __init__(
        self,
        connection: Connection,
        jetstream: JetStream,
        *,
        stream: str,
        subject: str,
        start: Callable[[], int],
        take: Callable[[Logged], Awaitable[bool]],
        lost: Callable[[], Exception],
        about: Mapping[str, str],
    ) -> None:
        self._connection = connection
        self._jetstream = jetstream
        self._stream = stream
        self._subject = subject
        self._start = start
        self._take = take
        self._lost = lost
        self._about = about
        self._lacking: tuple[int, float] | None = None
        self._latest: Message | None = None
        self._again = asyncio.Event()
        self.caught_up = asyncio.Event()
        """Set once everything was applied that the log held when this node began to follow it."""

    @property
    def behind(self) -> int:
        """How many messages the log had beyond the last one that was delivered."""
        return 0 if self._latest is None else pending_of(self._latest)

    def restart(self) -> None:
        """Start a new consumer at once: the connection was lost."""
        self._again.set()

    async def run(self) -> None:
        """Follow the log until cancelled, or until `take` raises an error."""
        while True:
            inbox = self._connection.new_inbox()
            messages: asyncio.Queue[Message] = asyncio.Queue()
            subscription = self._connection.listen(inbox, messages.put_nowait)
            self._again.clear()
            try:
                await self._follow(inbox, messages)
            except (TimeoutError, BusError, ApiRefusal) as error:
                _log.debug("following %s is interrupted: %r", self._subject, error)
                await asyncio.sleep(PAUSE_SECONDS)
            finally:
                subscription.cancel()

    async def _follow(self, inbox: str, messages: asyncio.Queue[Message]) -> None:
        """Apply what one consumer delivers, until it leaves a gap or falls silent."""
        start = self._start()
        left = await self._jetstream.consume(
            self._stream,
            self._subject,
            start=start,
            inbox=inbox,
            seconds=ANSWER_SECONDS,
            about=self._about,
        )
        if not left and start:  # delivery begins with a message that was applied
            await self._lack(start)
            return
        if not left:
            self.caught_up.set()
        assembler = Assembler()
        while not self._again.is_set():
            message = await _next(messages)
            if message.status:
                if self._answer(message) and messages.empty() and left > 0:
                    return  # the server has sent everything, but not all of it came
                continue
            left -= 1
            self._latest = message
            entry = assembler.add(message)
            if entry is not None and not await self._take(entry):
                await self._lack(self._start())
                return
            if left == 0:
                self.caught_up.set()

    async def _lack(self, start: int) -> None:
        """Pause before the log is asked again. Servers that have just started may not know all of it yet."""
        now = asyncio.get_running_loop().time()
        if self._lacking is None or self._lacking[0] != start:
            self._lacking = (start, now)
        if now - self._lacking[1] > LACKING_SECONDS:
            raise self._lost()
        await asyncio.sleep(PAUSE_SECONDS)

    def _answer(self, message: Message) -> bool:
        """Answer the server's flow control. Return True if the message says that nothing is left to send."""
        answer = message.reply or message.header("Nats-Consumer-Stalled")
        if answer:
            self._connection.send(answer, b"")
        return not answer


async def _next(messages: asyncio.Queue[Message]) -> Message:
    if not messages.empty():
        return messages.get_nowait()
    async with asyncio.timeout(SILENCE_SECONDS):
        return await messages.get()
