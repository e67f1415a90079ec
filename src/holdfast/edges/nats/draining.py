"""The end of a service: reading what was already sent, and sending what was answered.

Law: nothing here waits longer than the grace period for any connection.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from holdfast.bus.errors import Lost

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from holdfast.bus.connection import Connection, Subscription

_log = logging.getLogger("holdfast.service")

GRACE: Final = 5.0
"""Seconds for which a stopping service continues to read requests that were already sent."""


async def drain(subscriptions: Collection[list[Subscription]]) -> None:
    """Unsubscribe and read the requests already sent; in a flood, as many as the grace period allows.

    Args:
        subscriptions: The subscriptions of each connection.
    """
    drains = [asyncio.create_task(_drained(one)) for one in subscriptions]
    _, late = await asyncio.wait(drains, timeout=GRACE) if drains else ((), ())
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    if late:
        _log.warning(
            "stopping before reading every request of %d connections that are flooding the service",
            len(late),
        )
    for subscription in (one for some in subscriptions for one in some):
        subscription.cancel()


async def flush(clients: Iterable[Connection]) -> None:
    """Wait until all replies are sent, except on connections that are lost or time out."""
    flushing = (asyncio.wait_for(client.flush(), GRACE) for client in clients)
    for failure in await asyncio.gather(*flushing, return_exceptions=True):
        if isinstance(failure, BaseException) and not isinstance(failure, (Lost, TimeoutError)):
            raise failure


async def _drained(subscriptions: Iterable[Subscription]) -> None:
    """Drain the subscriptions of one connection."""
    for subscription in subscriptions:
        await subscription.drain()
