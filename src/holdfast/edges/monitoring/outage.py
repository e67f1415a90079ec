"""Looks after the storage of a service: an outage is noticed though nobody writes, and operators are told.

Law: what an outage is, and when there is an alert, is known to `holdfast.pipeline.outage`. Here the storage
is asked every few seconds, and an alert is kept until NATS has taken it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.pipeline.outage import Alert
    from holdfast.store import Store

INTERVAL: Final = 5.0
"""Every how many seconds the storage is asked."""
PATIENCE: Final = 5.0
"""For how many seconds it may think about it."""
SUBJECT: Final = "event.service.unavailable"
"""Where operators are told, after the prefix."""


class OutageWatch:
    """Asks a store whether it takes writes, and passes alerts on.

    Args:
        store: What is asked.
        send: Hands a message to NATS; whether that could be done. None if nothing is to be sent.
        prefix: What the subjects of events begin with.
    """

    def __init__(self, store: Store, send: Callable[[str, bytes], bool] | None, *, prefix: str) -> None:
        self._store = store
        self._send = send
        self._subject = f"{prefix}.{SUBJECT}"
        self._unsent: list[Alert] = []
        store.outage.alerted = self._unsent.append

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(INTERVAL)

    async def look(self) -> None:
        """Ask the storage, and send what is to be sent."""
        try:
            async with asyncio.timeout(PATIENCE):
                await self._store.ready()
        except TimeoutError:
            self._store.outage.failed(f"it did not answer within {PATIENCE:g} s")
        except HoldfastError:
            pass  # the store has told of it
        while self._unsent and self._sent(self._unsent[0]):
            del self._unsent[0]

    def _sent(self, alert: Alert) -> bool:
        return self._send is None or self._send(self._subject, msgspec.json.encode(alert))
