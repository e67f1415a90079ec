"""A watch over the storage of a service: it detects outages even without writes, and alerts operators.

`holdfast.pipeline.outage` defines what an outage is and when to alert. This module probes the storage every
few seconds and keeps an alert until NATS has accepted it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from holdfast.errors import HoldfastError
from holdfast.pipeline.outage import Alert
from holdfast.store import Store

INTERVAL: Final = 5.0
"""Seconds between two probes of the storage."""
PATIENCE: Final = 5.0
"""Seconds that the storage may take to answer a probe."""
SUBJECT: Final = "event.service.unavailable"
"""The subject of alerts, without the prefix."""


class OutageWatch:
    """Probes whether a store accepts writes, and forwards alerts.

    Args:
        store: The store to probe.
        send: Passes a message to NATS and returns whether that succeeded. None to send nothing.
        prefix: The prefix of event subjects.
    """

    def __init__(self, store: Store, send: Callable[[str, bytes], bool] | None, *, prefix: str) -> None:
        self._store = store
        self._send = send
        self._subject = f"{prefix}.{SUBJECT}"
        self._unsent: list[Alert] = []
        store.outage.alerted = self._unsent.append

    async def run(self) -> None:
        """Probe repeatedly until cancelled."""
        while True:
            await self.probe()
            await asyncio.sleep(INTERVAL)

    async def probe(self) -> None:
        """Probe the storage and send pending alerts."""
        try:
            async with asyncio.timeout(PATIENCE):
                await self._store.ready()
        except TimeoutError:
            self._store.outage.failed(f"it did not answer within {PATIENCE:g} s")
        except HoldfastError:
            pass  # the store has logged it
        while self._unsent and self._sent(self._unsent[0]):
            del self._unsent[0]

    def _sent(self, alert: Alert) -> bool:
        return self._send is None or self._send(self._subject, msgspec.json.encode(alert))
