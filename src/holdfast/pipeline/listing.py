"""Listing by envelope: the entries of a range that match a purpose, a producer, a writer or a deadline.

An engine knows keys and rows, but not what an envelope means. So a walk over its rows picks the matches, with
a bounded amount of work per page. A page may therefore hold few keys, or none, although more pages follow.

Nothing is written here. `rules` says what a filter may hold; only this module says which rows match it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from holdfast.engine import Engine, Filter, Scan, Selected, row_size
from holdfast.rows import Row
from holdfast.stored import semantics_of

STEP: Final = 1_000
"""Number of rows read in one scan."""
STEPS: Final = 5
"""Largest number of scans per page. Each reads `STEP` rows, or as much as a page may hold.

Writes submitted to the namespace after the listing wait until it ends, so it must end soon.
"""


async def select(engine: Engine, query: Scan, wanted: Filter | None, now: Callable[[], int]) -> Selected:
    """Return a page of the entries that match a filter, or of all entries."""
    if wanted is not None:
        return await _picked(engine, query, wanted, now)
    found = await engine.scan(query, now())
    return Selected(keys=found.keys, rows=found.rows, last=found.keys[-1] if found.more else None)


async def _picked(engine: Engine, query: Scan, wanted: Filter, now: Callable[[], int]) -> Selected:
    picked = Selected(keys=[], rows=[], last=query.after)
    room = query.max_bytes
    for _ in range(STEPS):
        step = msgspec.structs.replace(query, after=picked.last, limit=STEP, values=True)
        found = await engine.scan(step, now())
        for key, row in zip(found.keys, found.rows, strict=True):
            if _fits(row, wanted):
                room -= row_size(key, row if query.values else None)
                if len(picked.keys) == query.limit or (picked.keys and room < 0):
                    return picked
                picked.keys.append(key)
                picked.rows.append(row)
            picked.last = key
        if not found.more:
            picked.last = None
            break
    return picked


def _fits(row: Row, wanted: Filter) -> bool:
    return (
        wanted.writer in (None, row.last_writer)
        and wanted.spec_ref in (None, row.spec_ref)
        and (wanted.expires_before is None or _ends(row, wanted.expires_before))
        and ((wanted.purpose is None and wanted.producer is None) or _means(row, wanted))
    )


def _ends(row: Row, before: int) -> bool:
    return row.expires_at is not None and row.expires_at < before


def _means(row: Row, wanted: Filter) -> bool:
    meaning: Any = semantics_of(row.semantics)
    return (
        meaning is not None
        and wanted.purpose in (None, meaning.purpose)
        and wanted.producer in (None, meaning.producer)
    )
