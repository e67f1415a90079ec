"""The reading half of a session: how much is read and delivered in a turn of the loop.

Law: reading takes one bounded piece per turn, so that a flood of messages leaves turns to other tasks. A
piece of small messages is short, since each message takes time. A session that rests delivers it in several
turns, with a rest after each if there is more to read. A piece of a large message is as long as what has
arrived, since a server disconnects slow readers. Messages are delivered in order.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Final

from holdfast.bus.outgoing import Outgoing
from holdfast.bus.protocol import Control, Message, Reader

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Mapping
    from typing import TypeAlias

    from holdfast.bus.protocol import Event

    Take: TypeAlias = Callable[[Message], None]

READ_BYTES: Final = 32_768
"""The number of bytes to read in a turn of the loop."""
BULK_BYTES: Final = 1024 * 1024
"""The number of bytes to read in a turn of a single message that is larger than `READ_BYTES`."""
MESSAGES: Final = 32
FEW: Final = 4
LONGEST: Final = 0.0005
"""The number of messages that a session with a rest delivers in a turn, a few at a time until they have taken
this many seconds. To refuse one takes 10 to 70 µs, so that a whole piece of 300 would hold up other tasks for
10 ms."""


class Incoming(Outgoing):
    """The reading half of a session; see the module.

    Args:
        loop: The event loop.
        takers: The functions that take the messages of each subscription.
        rest: The length of the pause after a full piece or a part of one, as a multiple of the time that it
            took. So a sender that floods this connection leaves time to the others.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, takers: Mapping[str, Take], *, rest: float) -> None:
        super().__init__(loop)
        self._takers = takers
        self._rest = rest
        self._buffer = self._piece = memoryview(bytearray(READ_BYTES))
        self._bulk: memoryview | None = None
        self._reader = Reader()
        self._undelivered: list[Event] = []

    @property
    def unreadable(self) -> int:
        """The number of messages that could not be read."""
        return self._reader.unreadable

    @abstractmethod
    def _obey(self, control: Control) -> None:
        """Handle a line that is no message."""

    @abstractmethod
    def _fail(self, error: Exception) -> None:
        """End the session because of what was read."""

    @abstractmethod
    def _complain(self, defect: Exception) -> None:
        """Handle the error of a function that takes messages."""

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next piece."""
        if self._reader.needed > READ_BYTES or self._bulk is not None:
            self._piece = self._chosen()
        return self._piece

    def _chosen(self) -> memoryview:
        """Return a buffer as large as the missing part of a large message, or the usual buffer."""
        missing = self._reader.missing
        if missing <= READ_BYTES:
            self._bulk = None
            return self._buffer
        size = min(missing, BULK_BYTES)
        if self._bulk is None or len(self._bulk) < size:
            self._bulk = memoryview(bytearray(size))
        return self._bulk[:size]

    def _receive(self, data: bytes, *, full: bool) -> None:
        """Deliver the messages of a piece. If the piece is full, there may be more to read."""
        began = time.perf_counter() if full else 0.0
        events = self._reader.feed(data)
        if self._rest and len(events) > MESSAGES:
            self._deliver_slowly(events, full=full)
            return
        self._deliver(events)
        if full and not self.over:
            self._pause(time.perf_counter() - began)
        if not self._pushing:
            # Tasks that these messages wake run before this callback, so that it sends their output, too.
            self._pushing = True
            self._loop.call_soon(self._push)

    def _deliver(self, events: Iterable[Event]) -> None:
        takers = self._takers
        for event in events:
            if isinstance(event, Message):
                take = takers.get(event.sid)
                if take is not None:
                    try:
                        take(event)
                    except Exception as defect:  # reading must continue
                        self._complain(defect)
            elif isinstance(event, Control):
                self._obey(event)
                if self.over:
                    return
            else:
                self._fail(event)
                return

    def _deliver_slowly(self, events: list[Event], *, full: bool) -> None:
        """Deliver a few messages in each turn, and read nothing meanwhile."""
        assert self._transport is not None
        self._transport.pause_reading()
        self._undelivered = events
        self._deliver_next(self._rest if full else 0.0)

    def _deliver_next(self, rest: float) -> None:
        """Deliver the next messages, and after a rest those that follow."""
        if self.over:
            self._undelivered = []
            return
        began, took, count = time.perf_counter(), 0.0, 0
        events = self._undelivered
        while count < MESSAGES and took < LONGEST and not self.over:
            self._deliver(events[count : count + FEW])
            count += FEW
            took = time.perf_counter() - began
        self._undelivered = events[count:]
        pause = rest * took
        if self._undelivered:
            self._after(pause, partial(self._deliver_next, rest))
        else:
            self._after(pause, self._resume)
        if not self._pushing:
            self._pushing = True
            self._loop.call_soon(self._push)

    def _pause(self, took: float) -> None:
        """Continue reading in a later turn. Some loops would otherwise read many times in this one."""
        assert self._transport is not None
        self._transport.pause_reading()
        self._after(self._rest * took, self._resume)

    def _after(self, seconds: float, call: Callable[[], None]) -> None:
        if seconds:
            self._loop.call_later(seconds, call)
        else:
            self._loop.call_soon(call)

    def _resume(self) -> None:
        if self._transport is not None and not self.over and not self._transport.is_closing():
            self._transport.resume_reading()
