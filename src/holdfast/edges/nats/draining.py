"""The end of a service: reading what was already sent, answering it, and sending the answers.

Law: nothing here waits longer than the grace period for any connection, and requests that wait for longer
than that are refused, so that a service which is being flooded ends in time.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from holdfast.bus.errors import Lost
from holdfast.errors import HoldfastError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from holdfast.bus.connection import Connection, Subscription
    from holdfast.edges.intake.lines import Intake, Request

_log = logging.getLogger("holdfast.service")

GRACE: Final = 5.0
"""Seconds for which a stopping service continues to read requests that were already sent."""
ANSWERING: Final = 10.0
"""Seconds for which it then continues to start requests that are waiting. With `GRACE` for reading and for
sending, a service ends within the 30 seconds that orchestrators usually give it."""


async def drain(subscriptions: Mapping[Connection, list[Subscription]]) -> set[Connection]:
    """Unsubscribe and read the requests already sent; in a flood, as many as the grace period allows.

    Args:
        subscriptions: The subscriptions of each connection.

    Returns:
        The connections on which more requests have been sent than could be read.
    """
    drains = {asyncio.create_task(_drained(some)): client for client, some in subscriptions.items()}
    _, late = await asyncio.wait(drains, timeout=GRACE) if drains else ((), ())
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    if late:
        _log.warning(
            "stopping before reading every request of %d connections that are flooding the service",
            len(late),
        )
    for subscription in (one for some in subscriptions.values() for one in some):
        subscription.cancel()
    return {drains[task] for task in late}


async def answered(intake: Intake, refuse: Callable[[Request, HoldfastError], None]) -> None:
    """Wait until every accepted request is answered. Those that still wait after a while are refused.

    Args:
        intake: The queues of requests.
        refuse: Answers a request with an error.
    """
    drained = asyncio.create_task(intake.drained())
    await asyncio.wait([drained], timeout=ANSWERING)
    if not drained.done():
        late = intake.withdraw()
        _log.warning("stopping before executing %d requests that are waiting; they are refused", len(late))
        for request in late:
            refuse(request, Unavailable("the service is stopping: nothing was done; try again"))
    await drained


async def flush(clients: Iterable[Connection]) -> None:
    """Wait until all replies are sent, except on connections that are lost or time out."""
    for failure in await asyncio.gather(*map(_flushed, clients), return_exceptions=True):
        if isinstance(failure, BaseException) and not isinstance(failure, (Lost, TimeoutError)):
            raise failure


async def _flushed(client: Connection) -> None:
    async with asyncio.timeout(GRACE):
        await client.flush()


async def _drained(subscriptions: Iterable[Subscription]) -> None:
    """Drain the subscriptions of one connection."""
    for subscription in subscriptions:
        await subscription.drain()
