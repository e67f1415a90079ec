"""Background work on tables: resuming interrupted backfills and, on request, removing expired items.

Law: as for `holdfast.upkeep.reaper`. A failure is logged, and the work is retried. The reaper removes what is
left of a drop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, Protocol

from holdfast.errors import HoldfastError, TableNotFound
from holdfast.families import has_tables
from holdfast.handles.table_reads import tables_at
from holdfast.handles.table_upkeep import Source, fill_index, sweep
from holdfast.pipeline.timekeeper import BEAT
from holdfast.upkeep.reaper import LONGEST_PAUSE, SLOW_SWEEP

if TYPE_CHECKING:
    from holdfast.model import Stats
    from holdfast.pipeline.timekeeper import Timekeeper

_log = logging.getLogger("holdfast.reaper")


class UpkeepStore(Source, Protocol):
    """The parts of a store that upkeep uses."""

    @property
    def timekeeper(self) -> Timekeeper:
        """The timekeeper, which knows whether the time is certain."""
        ...

    async def namespaces(self) -> list[Stats]:
        """List the numbers of every namespace."""
        ...


async def finish_indexes(store: UpkeepStore) -> None:
    """Resume the unfinished backfills of indexes, in all namespaces.

    Several processes may do this at once, which is redundant but harmless.
    """
    for namespace in await _namespaces(store):
        for schema in await tables_at(store.scan, namespace):
            for index in schema.indexes:
                if index.state == "building":
                    _log.debug(
                        "resuming the backfill of index %s of %s in %s", index.name, schema.name, namespace
                    )
                    await fill_index(store, namespace, schema, index)


async def sweep_tables(store: UpkeepStore) -> int:
    """Remove all expired items of every table that has a ttl attribute. Returns the number removed."""
    removed = 0
    for namespace in await _namespaces(store):
        for schema in await tables_at(store.scan, namespace):
            if schema.ttl_attribute is None:
                continue
            with contextlib.suppress(TableNotFound):  # dropped meanwhile
                while count := await sweep(store, namespace, schema):
                    removed += count
    return removed


async def keep_finishing(store: UpkeepStore, interval: float) -> None:
    """Resume unfinished backfills of indexes, now and every interval, until cancelled."""
    while True:
        try:
            await finish_indexes(store)
        except HoldfastError as error:
            _log.warning("backfilling indexes failed; retrying: %s", error.message)
        except Exception as error:
            _log.error("backfilling indexes failed", exc_info=error)
        await asyncio.sleep(interval)


async def reap_tables(store: UpkeepStore, interval: float) -> None:
    """Remove expired items, now and every interval, until cancelled."""
    _log.info("cleanup of expired items started")
    try:
        while True:
            while not store.timekeeper.steady:  # noqa: ASYNC110 - a clock has no event
                await asyncio.sleep(BEAT)
            try:
                await _reap_once(store)
            except Exception as error:
                _log.error("sweeping tables failed; retrying after a pause: %s", error, exc_info=error)
                await asyncio.sleep(min(interval, LONGEST_PAUSE))
            else:
                await asyncio.sleep(interval)
    finally:
        _log.info("cleanup of expired items stopped")


async def _reap_once(store: UpkeepStore) -> None:
    began = time.monotonic()
    removed = await sweep_tables(store)
    seconds = time.monotonic() - began
    if seconds > SLOW_SWEEP:
        _log.warning("a sweep of tables took %.1f s for %d expired items", seconds, removed)
    level = logging.INFO if removed else logging.DEBUG
    _log.log(level, "removed %d expired items in %.0f ms", removed, seconds * 1000)


async def _namespaces(store: UpkeepStore) -> list[str]:
    return [stats.namespace for stats in await store.namespaces() if has_tables(stats.namespace)]
