"""A service that goes on at the place to which its store has moved.

Law: the next store is opened before the present one is let go, and only once it accepts writes. If the switch
fails, the present one accepts writes again and the service stays there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from holdfast.edges.opening import opened
from holdfast.engines.cluster.address import cluster_address
from holdfast.engines.cluster.jetstream import NoMajority, Unreached
from holdfast.engines.cluster.servers import missing_of
from holdfast.errors import HoldfastError, Unavailable
from holdfast.masking import MASK
from holdfast.moves.transfers import place_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.edges.settings.table import Config
    from holdfast.store import Store

INTERVAL: Final = 0.5
"""Seconds between two looks whether the store has moved, or whether the next one can be used."""

_log = logging.getLogger("holdfast.serve")


class ServedStore(NamedTuple):
    """A store that is open to be served, the settings that name it, and what closes it."""

    config: Config
    store: Store
    stack: contextlib.AsyncExitStack


async def open_served(config: Config, say: Callable[[str], None], stop: asyncio.Event) -> ServedStore:
    """Open the store that the settings name.

    Raises:
        HoldfastError: It can't be served.
    """
    stack = contextlib.AsyncExitStack()
    return ServedStore(config, await stack.enter_async_context(opened(config, say, stop)), stack)


async def open_in_time(config: Config, say: Callable[[str], None], stop: asyncio.Event) -> ServedStore | None:
    """Open the store that the settings name. For that of a cluster, wait until most of its servers are there.

    After a power failure the machines come back one by one, so that none of them may give up.

    Returns:
        The store; None if Holdfast is to stop before it can be opened.

    Raises:
        HoldfastError: It can't be served.
    """
    told = ""
    stopping = asyncio.create_task(stop.wait())
    try:
        while True:
            opening = asyncio.create_task(open_served(config, say, stop))
            try:
                if config.db.startswith("cluster://"):  # opening any other store is not interrupted
                    await asyncio.wait([opening, stopping], return_when=asyncio.FIRST_COMPLETED)
                    if not opening.done():
                        return None
                return await opening
            except Unavailable as error:
                if stop.is_set():
                    return None
                if not isinstance(error, NoMajority) or (isinstance(error, Unreached) and not config.cluster):
                    raise
                if (words := await _with_missing(error, config.db)) != told:
                    told = words
                    say(f"Waiting for the servers of the cluster: {told}")
                    _log.warning("waiting for the servers of the cluster: %s", told)
            finally:
                opening.cancel()
                await asyncio.gather(opening, return_exceptions=True)
            await asyncio.wait([stopping], timeout=INTERVAL)
    finally:
        stopping.cancel()


async def _with_missing(error: HoldfastError, url: str) -> str:
    """Return the message of an error, with the servers of a cluster that do not answer."""
    gone = await missing_of(cluster_address(url))
    if not gone or any(server in error.message for server in gone):
        return error.message
    return f"{error.message}; no answer from {', '.join(gone)}"


class MovesFollower:
    """Waits until a store has moved and the next one is open.

    Args:
        served: The present store.
        say: Prints a line for the person who started the service.
        stop: Set when the service is to stop.
    """

    def __init__(self, served: ServedStore, say: Callable[[str], None], stop: asyncio.Event) -> None:
        self._served = served
        self._say = say
        self._stop = stop
        self.told: str | None = None
        """The place of which the person was told."""
        self.next: ServedStore | None = None

    async def wait(self) -> None:
        """Return when the service is to stop, or when `next` is open."""
        while not self._stop.is_set() and self.next is None:
            place = await self._place()
            if place is None:
                self.told = None
            elif MASK in place:
                self._tell(place, f"The store has moved to {place}. Start Holdfast again with that URL.")
            else:
                self._tell(place, f"The store has moved to {place}. Holdfast follows.")
                self.next = await self._opened(place)
            if self.next is None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(INTERVAL):
                        await self._stop.wait()

    async def _place(self) -> str | None:
        """Return the place to which the store has moved, or is moving; None if it is where it was."""
        try:
            await self._served.store.ready()
        except Unavailable as error:
            return place_in(error.message)
        except HoldfastError:
            return None
        return None

    async def _opened(self, place: str) -> ServedStore | None:
        """Open the next store, unless it can't be used yet."""
        config = msgspec.structs.replace(self._served.config, db=place)
        try:
            return await open_served(config, self._say, self._stop)
        except HoldfastError as error:
            _log.info("%s can't be served yet: %s", place, error.message)
            return None

    def _tell(self, place: str, line: str) -> None:
        if self.told != place:
            self.told = place
            self._say(line)
