"""Background work on tables: resuming interrupted backfills and, on request, removing expired items.

A failure is logged, and the work is retried. The reaper removes what is left of a drop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from holdfast import seams
from holdfast.errors import Defect, HoldfastError, Refused, TableNotFound
from holdfast.families import has_tables
from holdfast.handles.table_walks import fill_index, sweep, tables_at
from holdfast.pipeline.pipeline import Pipeline
from holdfast.pipeline.timekeeper import BEAT
from holdfast.upkeep.reaper import LONGEST_PAUSE, SLOW_SWEEP

_log = logging.getLogger("holdfast.reaper")


async def finish_indexes(pipeline: Pipeline) -> None:
    """Resume the unfinished backfills of indexes, in all namespaces.

    Several processes may do this at once, which is redundant but harmless.
    """

    async def finish(namespace: str) -> None:
        for schema in await tables_at(pipeline.scan, namespace):
            for index in schema.indexes:
                if index.state == "building":
                    _log.debug(
                        "resuming the backfill of index %s of %s in %s", index.name, schema.name, namespace
                    )
                    await fill_index(pipeline, namespace, schema, index)

    await _in_each(await _namespaces(pipeline), finish)


async def sweep_tables(pipeline: Pipeline) -> int:
    """Remove all expired items of every table that has a ttl attribute. Returns the number removed."""
    removed = 0

    async def sweep_all(namespace: str) -> None:
        nonlocal removed
        for schema in await tables_at(pipeline.scan, namespace):
            if schema.ttl_attribute is None:
                continue
            with contextlib.suppress(TableNotFound):  # dropped meanwhile
                while count := await sweep(pipeline, namespace, schema):
                    removed += count

    await _in_each(await _namespaces(pipeline), sweep_all)
    return removed


async def _in_each(namespaces: list[str], work: Callable[[str], Awaitable[None]]) -> None:
    """Do work in each namespace. One that refuses it, be it for its quota, keeps no other waiting."""
    failed: HoldfastError | None = None
    for namespace in namespaces:
        try:
            await work(namespace)
        except (Refused, Defect) as error:
            failed = failed or error
    if failed is not None:
        raise failed


async def keep_finishing(pipeline: Pipeline, interval: float) -> None:
    """Resume unfinished backfills of indexes, now and every interval, until cancelled."""
    while True:
        try:
            await finish_indexes(pipeline)
        except HoldfastError as error:
            _log.warning("backfilling indexes failed; retrying: %s", error.message)
        except Exception as error:
            _log.error("backfilling indexes failed", exc_info=error)
        await asyncio.sleep(interval)


async def reap_tables(pipeline: Pipeline, interval: float) -> None:
    """Remove expired items, now and every interval, until cancelled."""
    _log.info("cleanup of expired items started")
    try:
        while True:
            while not pipeline.timekeeper.steady:  # noqa: ASYNC110 - a clock has no event
                await asyncio.sleep(BEAT)
            try:
                await _reap_once(pipeline)
            except Exception as error:
                _log.error("sweeping tables failed; retrying after a pause: %s", error, exc_info=error)
                await asyncio.sleep(min(interval, LONGEST_PAUSE))
            else:
                await asyncio.sleep(interval)
    finally:
        _log.info("cleanup of expired items stopped")


async def _reap_once(pipeline: Pipeline) -> None:
    began = seams.monotonic()
    removed = await sweep_tables(pipeline)
    seconds = seams.monotonic() - began
    if seconds > SLOW_SWEEP:
        _log.warning("a sweep of tables took %.1f s for %d expired items", seconds, removed)
    level = logging.INFO if removed else logging.DEBUG
    _log.log(level, "removed %d expired items in %.0f ms", removed, seconds * 1000)


async def _namespaces(pipeline: Pipeline) -> list[str]:
    names = [totals.namespace.name for totals in await pipeline.require_engine().totals(pipeline.now())]
    return [name for name in names if has_tables(name)]
