"""The store that a service serves: how it is opened, and followed to the place to which it moves.

A service starts only with a store that accepts writes and in which no corruption was found. When the store
moves, the next one is opened before the present one is let go, and only once it accepts writes. If the switch
fails, the present one accepts writes again and the service stays there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from shlex import quote
from typing import Final, NamedTuple

import msgspec

import holdfast
from holdfast import private
from holdfast.audit.keyring import FileKeyring
from holdfast.edges.settings.read import keys_of, shown
from holdfast.edges.settings.table import Config
from holdfast.engine.raw import UNFINISHED
from holdfast.engines.cluster.address import cluster_address
from holdfast.engines.cluster.jetstream import NoMajority, Unreached
from holdfast.engines.cluster.servers import missing_of
from holdfast.errors import DatabaseError, HoldfastError, Unavailable, ValidationError
from holdfast.masking import MASK
from holdfast.model import Policy
from holdfast.moves.transfers import place_in
from holdfast.pipeline.caller import Service
from holdfast.registry import backend_for
from holdfast.store import Store

PAUSE: Final = 1.0
"""Seconds between two looks whether a load into the store is complete."""

QUOTA_BYTES: Final = 1_000_000_000
RATE_LIMIT: Final = 5_000
"""The default quota and rate of a namespace, where the NATS server isolates plugins."""

_log = logging.getLogger("holdfast.serve")


@contextlib.asynccontextmanager
async def opened(
    config: Config, say: Callable[[str], None], stop: asyncio.Event
) -> AsyncIterator[holdfast.Store]:
    """Open the store that a service is to serve, and check that it accepts writes and is not corrupt."""
    if "://" not in config.db:
        _make_folder(Path(config.db).parent)
    engine = backend_for(config.db, keys_of(config))
    if isinstance(engine, Service):
        raise ValidationError(f"db: {shown(config.db)} is a running service, not a store", field="db")
    if isinstance(engine.keys, FileKeyring):
        engine.keys.tell = say
    interval, defaults = config.kv_cleanup_interval_seconds, defaults_of(config)
    async with Store(
        engine, sweep_interval=interval, defaults=defaults, cache_bytes=config.cache_bytes
    ) as store:
        store.may_move(backend_for)
        await loaded(store, say, stop)
        await _require_sound(store, config)
        _log.info("cleanup of expired entries started")
        yield store
    _log.info("cleanup of expired entries stopped")


async def loaded(store: holdfast.Store, say: Callable[[str], None], stop: asyncio.Event) -> None:
    """Check that the store accepts writes. While a load into a cluster is under way, wait for its end.

    Its nodes have to stay, because the load goes through them.

    Raises:
        HoldfastError: The store accepts no writes, or Holdfast is to stop before the end of the load.
    """
    said = False
    while True:
        try:
            await store.ready()
            return
        except Unavailable as error:
            place = place_in(error.message)
            if place is not None:
                raise Unavailable(
                    f"{error.message}. Start Holdfast with the store there: --db {quote(place)}, or db in "
                    "its settings"
                ) from None
            if UNFINISHED not in error.message or stop.is_set():
                raise
            if not said:
                say(f"Waiting: {error.message}")
            said = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PAUSE):
                await stop.wait()


async def _require_sound(store: holdfast.Store, config: Config) -> None:
    """Check for corruption within the configured time, and refuse to serve a corrupt store."""
    seconds, where = config.startup_check_seconds, shown(config.db)
    examined = await store.examine(seconds=seconds) if seconds else None
    if examined is None:
        return
    if examined.troubles:
        raise DatabaseError(
            f"{where} is corrupt: {examined.troubles[0]}. Run holdfast doctor --deep --url {quote(where)} to "
            "see all that is wrong, and restore a backup. To serve it as is, set startup_check_seconds to 0"
        )
    if not examined.complete:
        _log.info(
            "checked %s for %g s and skipped the rest; holdfast doctor --deep checks all of it",
            where,
            seconds,
        )


def _make_folder(folder: Path) -> None:
    try:
        private.make_folder(folder)
    except OSError as error:
        reason = (error.strerror or "it can't be used").lower()
        raise ValidationError(f"db: the folder {folder} can't be created: {reason}", field="db") from None


INTERVAL: Final = 0.5
"""Seconds between two looks whether the store has moved, or whether the next one can be used."""


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
    said = ""
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
                if (words := await _with_missing(error, config.db)) != said:
                    said = words
                    say(f"Waiting for the servers of the cluster: {said}")
                    _log.warning("waiting for the servers of the cluster: %s", said)
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
        self.announced: str | None = None
        """The place of which the person was told."""
        self.next: ServedStore | None = None

    async def wait(self) -> None:
        """Return when the service is to stop, or when `next` is open."""
        while not self._stop.is_set() and self.next is None:
            place = await self._place()
            if place is None:
                self.announced = None
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
        if self.announced != place:
            self.announced = place
            self._say(line)


def defaults_of(config: Config) -> Policy | None:
    """Return the default limits for policies that set none; by default no limits in open mode."""
    apart = config.reply_mode != "open"
    quota, rate = config.default_quota_bytes, config.default_rate_limit
    if quota is None and apart:
        quota = QUOTA_BYTES
    if rate is None and apart:
        rate = RATE_LIMIT
    if not quota and not rate:
        return None
    return Policy(quota_bytes=quota or None, rate_limit=rate or None)
