"""Opening the store that a service serves.

Law: a service starts only with a store that accepts writes and in which no corruption was found.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final

from holdfast import private
from holdfast.audit.keyring import FileKeyring
from holdfast.edges.configured import defaults_of
from holdfast.edges.settings.read import keys_of, shown
from holdfast.engine.raw import UNFINISHED
from holdfast.errors import DatabaseError, Unavailable, ValidationError
from holdfast.moves.transfers import place_in
from holdfast.registry import engine_for
from holdfast.store import Store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import holdfast
    from holdfast.edges.settings.table import Config

PAUSE: Final = 1.0
"""Seconds between two looks whether a load into the store is complete."""

_log = logging.getLogger("holdfast.serve")


@contextlib.asynccontextmanager
async def opened(
    config: Config, say: Callable[[str], None], stop: asyncio.Event
) -> AsyncIterator[holdfast.Store]:
    """Open the store that a service is to serve, and check that it accepts writes and is not corrupt."""
    if "://" not in config.db:
        _make_folder(Path(config.db).parent)
    engine = engine_for(config.db, keys_of(config))
    if isinstance(engine.keys, FileKeyring):
        engine.keys.tell = say
    interval, defaults = config.kv_cleanup_interval_seconds, defaults_of(config)
    async with Store(engine, sweep_interval=interval, defaults=defaults) as store:
        store.may_move(engine_for)
        if not store.capabilities.batching:
            raise ValidationError(f"db: {shown(config.db)} is a running service, not a store", field="db")
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
    told = False
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
            if not told:
                say(f"Waiting: {error.message}")
            told = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PAUSE):
                await stop.wait()


async def _require_sound(store: holdfast.Store, config: Config) -> None:
    """Check for corruption within the configured time, and refuse to serve a corrupt store."""
    seconds, where = config.startup_check_seconds, shown(config.db)
    found = await store.examine(seconds=seconds) if seconds else None
    if found is None:
        return
    if found.troubles:
        raise DatabaseError(
            f"{where} is corrupt: {found.troubles[0]}. Run holdfast doctor --deep --url {quote(where)} to "
            "see all that is wrong, and restore a backup. To serve it as is, set startup_check_seconds to 0"
        )
    if not found.complete:
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
