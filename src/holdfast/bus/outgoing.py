"""The sending half of a session: commands of one turn of the loop are written together at its end.

Law: nothing here waits, and the unsent data is bounded. What was given to one session is never sent on
another.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from holdfast.pace import PATIENT_TURNS

MOST_UNSENT: Final = 16 * 1024 * 1024
"""The maximum number of bytes pending for a server that does not read them."""
AT_ONCE: Final = 512 * 1024
"""The approximate number of bytes to write per turn of the loop: joining all pending data would take long."""


class Outgoing:
    """The sending half of a session; see the module. `over` is true once nothing can be sent any more."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._pushing = False
        self._hurry = False
        self._waited = 0
        self._paused = False
        self._owed = 0
        self.over = False

    def write(self, command: bytes) -> None:
        """Send a command, however much is pending."""
        self.offer(command, most=sys.maxsize)

    def offer(self, command: bytes, most: int = MOST_UNSENT, *, patient: bool = False) -> bool:
        """Send a command. Return False if more than `most` bytes would be pending or the session is over.

        A patient command is sent with the next one that is not patient, or after a few turns of the loop.
        """
        unsent = self._unsent_bytes + len(command)
        if unsent > most or self.over:
            return False
        self._unsent.append(command)
        self._unsent_bytes = unsent
        if not patient:
            self._hurry = True
        if not self._pushing:
            self._pushing = True
            self._loop.call_soon(self._push)
        return True

    def pause_writing(self) -> None:
        """Stop sending: the transport's buffer is full."""
        self._paused = True

    def resume_writing(self) -> None:
        """Send again: the transport's buffer has room."""
        self._paused = False
        self._send()

    def _push(self) -> None:
        if self._unsent and not self._hurry and self._waited < PATIENT_TURNS:
            self._waited += 1
            self._loop.call_soon(self._push)
        else:
            self._send()

    def _send(self, most: int = AT_ONCE) -> None:
        self._pushing = self._hurry = False
        self._waited = 0
        unsent, transport = self._unsent, self._transport
        if not unsent or self._paused or self.over or transport is None or transport.is_closing():
            return
        self._owed = 0
        if self._unsent_bytes > most and len(unsent) > 1:
            self._send_first(transport, most)
            return
        self._unsent = []
        transport.write(unsent[0] if len(unsent) == 1 else b"".join(unsent))
        self._unsent_bytes = transport.get_write_buffer_size()

    def _send_first(self, transport: asyncio.Transport, most: int) -> None:
        """Write the first commands, of about `most` bytes, and the others in the next turn."""
        unsent, size, number = self._unsent, 0, 0
        while size < most and number < len(unsent):
            size += len(unsent[number])
            number += 1
        self._unsent = unsent[number:]
        transport.write(b"".join(unsent[:number]))
        self._unsent_bytes = transport.get_write_buffer_size() + sum(map(len, self._unsent))
        if self._unsent and not self._paused:
            self._pushing = self._hurry = True
            self._loop.call_soon(self._push)
