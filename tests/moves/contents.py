"""A store with something in every section, and the comparison of two stores, for tests of moves."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import holdfast
from holdfast.clock import ManualClock
from holdfast.engine import Movable
from holdfast.engine.raw import Section
from holdfast.registry import engine_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from holdfast.engine.raw import RawSnapshot


KEY: Final = "a-secret-for-the-tests"


async def fill(url: str | Path) -> None:
    """Write entries with envelopes, deadlines, trash, an audit, locks, a table, a blob, a letter, a token."""
    clock = ManualClock()
    async with holdfast.open(url, clock=clock, reap=False, audit_key=KEY) as store:
        await store.set_policy("kv/trivia", {"trash": True, "audit": True, "quota_bytes": 10_000_000})
        kv = store.kv("trivia")
        for number in range(40):
            await kv.set(
                f"k{number}", {"n": number, "text": "grüße\u0001 \U0001f600"}, request_id=f"r{number}"
            )
        await kv.set("soon", 1, ttl=60, writer="me", spec_ref="adr/1")
        await kv.delete("k1")
        async with kv.lock("one"):
            await kv.set("fenced", True)
        await store.kv("plain").set("k", [1, 2.5, None])
        clock.advance(120)
        meant = store.semantic("acme", "web")
        await meant.set(
            "tenant/acme/project/web/plan", {"a": 1}, semantics=holdfast.Semantics(purpose="why"), ttl=3600
        )
        await fill_table(store)
        blobs = store.blobs("media")
        await blobs.put("big", bytes(range(256)) * 2_000)
        await store.tokens().create(plugin="trivia", verbs=["get"], ttl=86_400)


async def fill_table(store: holdfast.Store) -> None:
    """Make a table with an index and items."""
    tables = store.tables("shop")
    await tables.create_table("orders", partition_key=("customer", "string"), sort_key=("number", "number"))
    await tables.create_index("orders", "by-total", key=("total", "number"))
    for number in range(30):
        await tables.put_item(
            "orders", {"customer": f"c{number % 3}", "number": number, "total": number * 1.5}
        )


@asynccontextmanager
async def looked_at(url: str | Path) -> AsyncIterator[RawSnapshot]:
    """Everything that a store holds, whether it is complete or not."""
    engine = engine_for(url)
    assert isinstance(engine, Movable)
    engine.open_unfinished()
    engine.open_read_only()
    await engine.start()
    try:
        async with engine.snapshot() as snapshot:
            yield snapshot
    finally:
        await engine.aclose()


async def differing(one: str | Path, other: str | Path) -> list[str]:
    """The names of the namespaces in which two stores differ."""
    async with looked_at(one) as ours, looked_at(other) as theirs:
        mine, yours = await _whole(ours), await _whole(theirs)
    return sorted(name for name in mine.keys() | yours.keys() if mine.get(name) != yours.get(name))


async def _whole(snapshot: RawSnapshot) -> dict[str, list[object]]:
    """Everything by namespace, read without the code that is tested."""
    held: dict[str, list[object]] = {one.name: [one] for one in await snapshot.namespaces()}
    for name in await snapshot.names():
        for section in Section:
            held.setdefault(name, []).append(await snapshot.page(name, section, after=None, limit=10**6))
    return held
