"""The last look at a store, when its clients have stopped and all faults are mended.

A node of its own, with a replica made from nothing, reads everything once. It changes nothing but the
log's empty messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

import holdfast
from holdfast.engines.cluster.address import cluster_address
from holdfast.engines.cluster.operators import ClusterOperator
from holdfast.errors import HoldfastError
from holdfast.model import Entry
from holdfast.testing import AUDIT_KEY
from tests.cluster_proof.clients import AUDITED, COUNTERS, LISTS
from tests.cluster_proof.watches import Written
from tests.linear.history import Operation

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

SECONDS: Final = 120.0
PAGE: Final = 5_000


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What there is at the end: see `check_sums`, `check_appends`, `check_watches` and `check_audit`."""

    registers: list[Operation]
    counters: dict[str, int]
    lists: dict[str, list[int]]
    journal: list[Written]
    audit: list[Written]
    whole: bool
    replicas: list[tuple[str, int, str]]
    """The host, the number of rows and the hash of every replica, at one place in the log."""
    unequal: list[str]
    """What is wrong with the replicas: nodes that are silent or stopped, or shards that differ."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Where to look, and for which registers."""

    url: str
    keys: list[tuple[str, str]]
    path: str


async def look(wanted: Wanted) -> Look:
    """Read everything."""
    async with asyncio.timeout(SECONDS), contextlib.AsyncExitStack() as stack:
        store = await _insist(lambda: _opened(wanted.url))
        stack.push_async_callback(store.aclose)
        counters, lists = await _all(store, COUNTERS), await _all(store, LISTS)
        counters.pop("last", None)
        verdict = await _insist(lambda: store.audit(f"kv/{AUDITED}").verify())
        replicas, unequal = await _compared(wanted.url)
        return Look(
            registers=[await _get(store, namespace, key) for namespace, key in wanted.keys],
            counters=counters,
            lists=lists,
            journal=await _journal(store),
            audit=await _audit(store),
            whole=verdict.whole,
            replicas=replicas,
            unequal=unequal,
        )


async def _opened(url: str) -> holdfast.Store:
    store = holdfast.open(url, reap=False, audit_key=AUDIT_KEY)
    await store.start()
    return store


async def _get(store: holdfast.Store, namespace: str, key: str) -> Operation:
    call = time.monotonic_ns()
    entry = await _insist(lambda: store.kv(namespace).get(key))
    return Operation(
        client=-1,
        call=call,
        end=time.monotonic_ns(),
        namespace=namespace,
        key=key,
        verb="get",
        outcome="ok",
        found=None if entry is None else entry.value,
        version=None if entry is None else entry.version,
    )


async def _all(store: holdfast.Store, plugin: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    cursor: str | None = None
    while True:
        page = await _insist(lambda cursor=cursor: store.kv(plugin).list(cursor=cursor))  # type: ignore[misc]
        entries = await _insist(lambda keys=page.keys: store.kv(plugin).get_many(keys))  # type: ignore[misc]
        for entry in entries:
            assert isinstance(entry, Entry), entry
            found[entry.key] = entry.value
        cursor = page.cursor
        if cursor is None:
            return found


async def _journal(store: holdfast.Store) -> list[Written]:
    found: list[Written] = []
    since = 0
    while True:
        page = await _insist(
            lambda since=since: store.kv(COUNTERS).changes(since=since, limit=PAGE)  # type: ignore[misc]
        )
        found += [
            Written(one.version, one.key if one.op == "set" else f"({one.op})", one.request_id)
            for one in page.changes
        ]
        if not page.changes:
            return found
        since = page.next


async def _audit(store: holdfast.Store) -> list[Written]:
    found: list[Written] = []
    after: int | None = 0
    while after is not None:
        page = await _insist(
            lambda after=after: store.audit(f"kv/{AUDITED}").log(after=after, limit=PAGE)  # type: ignore[misc]
        )
        found += [Written(one.version, one.key, one.request_id) for one in page.records]
        after = page.next
    return [one for one in found if one.request_id is not None]


async def _compared(url: str) -> tuple[list[tuple[str, int, str]], list[str]]:
    async with ClusterOperator(cluster_address(url)) as operator:
        found = await _insist(lambda: operator.verify(seconds=60))
    unequal = [f"{host} did not answer" for host in found.silent]
    unequal += [f"{host} does not serve" for host in found.stopped]
    unequal += [f"the replicas of shard {shard} differ" for shard in found.differing]
    unequal += [f"{one.host}: {one.error}" for one in found.contents if one.error]
    return [(one.node, one.rows, one.hash) for one in found.contents], unequal


async def _insist(call: Callable[[], Awaitable[T]]) -> T:
    """Call until there is an answer: the servers may still be electing."""
    while True:
        try:
            return await call()
        except HoldfastError as error:
            print(f"{error.code}: {error.message}", file=sys.stderr)
            await asyncio.sleep(0.2)


async def keep_look(wanted: Wanted) -> None:
    """Read everything, and keep it in a file."""
    found = await look(wanted)
    await asyncio.to_thread(Path(wanted.path).write_bytes, msgspec.json.encode(found))


if __name__ == "__main__":
    asyncio.run(keep_look(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Wanted)))
