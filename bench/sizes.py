"""What things take up: bytes on disk for each, and memory for each connection.

A size on disk is the difference between two compacted copies of a file, one with and one without the things,
divided by their number. The value is 100 bytes of JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import nats

import holdfast
from bench.machine import resident
from tests.edges.running import started_up

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.run import Run

COUNT: Final = 5_000
CONNECTIONS: Final = 200
VALUE: Final = "v" * 98
BLOB_BYTES: Final = 4 * 1024 * 1024
BLOBS: Final = 4


async def sizes(run: Run) -> None:
    """Bytes on disk of what a store keeps, and memory of a service and its connections."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        path = Path(folder)
        key = await _bytes(path / "key.db", _keys, journal=False)
        change = await _bytes(path / "change.db", _overwrites)
        request = await _bytes(path / "request.db", _overwrites_with_ids)
        audited = await _bytes(path / "audited.db", _audited_overwrites)
        trashed = await _bytes(path / "trash.db", _deletes, journal=False)
        blob = await _bytes(path / "blob.db", _blobs, journal=False, count=BLOBS)
    for name, size in (
        ("key", key),
        ("change", change),
        ("request-id", request - change),
        ("audit-record", audited - change),
        ("trash-entry", trashed),
        ("blob-overhead-per-mb", (blob - BLOB_BYTES) * 1024 * 1024 / BLOB_BYTES),
    ):
        run.book.add(f"sizes.{name}", "holdfast", size, unit="bytes")
    await _memory(run)


async def _bytes(
    path: Path, fill: Callable[[holdfast.Store], Awaitable[None]], *, journal: bool = True, count: int = COUNT
) -> float:
    """Bytes that one of `count` things takes up in a compacted file."""
    async with holdfast.open(path, reap=False) as store:
        await store.kv("bench").set("first", VALUE)
    empty = _compacted(path, journal=journal)
    async with holdfast.open(path, reap=False) as store:
        await fill(store)
    return (_compacted(path, journal=journal) - empty) / count


def _compacted(path: Path, *, journal: bool) -> int:
    copy = path.with_suffix(".copy")
    copy.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("VACUUM INTO ?", (str(copy),))
    with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        if not journal:
            connection.execute("DELETE FROM holdfast_journal")
            connection.execute("VACUUM")
    return copy.stat().st_size


async def _keys(store: holdfast.Store) -> None:
    kv = store.kv("bench")
    await asyncio.gather(*(kv.set(f"user:{number:08}", VALUE, ttl=86400) for number in range(COUNT)))


async def _overwrites(store: holdfast.Store) -> None:
    kv = store.kv("bench")
    await asyncio.gather(*(kv.set("user:00000001", f"{number:098}") for number in range(COUNT)))


async def _overwrites_with_ids(store: holdfast.Store) -> None:
    kv = store.kv("bench")
    await asyncio.gather(
        *(
            kv.set("user:00000001", f"{number:098}", request_id=f"request-{number:08}")
            for number in range(COUNT)
        )
    )


async def _audited_overwrites(store: holdfast.Store) -> None:
    await store.set_policy("kv/bench", {"audit": True})
    await _overwrites(store)


async def _deletes(store: holdfast.Store) -> None:
    kv = store.kv("bench")
    names = [f"user:{number:08}" for number in range(COUNT)]
    await asyncio.gather(*(kv.set(name, VALUE, semantics={"purpose": "profile"}) for name in names))
    await asyncio.gather(*(kv.delete(name) for name in names))


async def _blobs(store: holdfast.Store) -> None:
    blobs = store.blobs("bench")
    for number in range(BLOBS):
        await blobs.put(f"blob:{number}", bytes(BLOB_BYTES))


async def _memory(run: Run) -> None:
    """Memory of `holdfast up` when it is idle, and of each connection that has made a request."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        async with started_up(Path(folder)) as up:
            async with holdfast.open(up.url) as store:
                await store.kv("bench").set("first", VALUE)
            service, server = up.pid, up.server_pid()
            run.book.add("sizes.idle", "holdfast", resident(service), unit="MB")
            run.book.add("sizes.idle", "its nats-server", resident(server), unit="MB")
            before = resident(service) + resident(server)
            clients = [await nats.connect(up.url) for _ in range(CONNECTIONS)]
            for client in clients:
                await client.request("db.kv.bench.get", b'{"key": "first"}')
            run.book.add("sizes.connection", "nats", _each(service, server, before), unit="KB")
            for client in clients:
                await client.close()
            before = resident(service) + resident(server)
            streams = [await asyncio.open_connection("127.0.0.1", up.http_port) for _ in range(CONNECTIONS)]
            for reader, writer in streams:
                writer.write(b"GET /v1/kv/bench/first HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                await reader.readuntil(b"\r\n\r\n")
            run.book.add("sizes.connection", "http", _each(service, server, before), unit="KB")
            for _, writer in streams:
                writer.close()


def _each(service: int, server: int, before: float) -> float:
    """Kilobytes that one of the connections has added to the service and its nats-server."""
    return (resident(service) + resident(server) - before) * 1024 / CONNECTIONS
