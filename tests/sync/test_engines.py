"""Handles without `await` over NATS, over HTTP and on PostgreSQL."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import holdfast.sync
from holdfast.errors import VersionConflict
from holdfast.testing.exact import present, refusal
from tests.edges.http.ground import served
from tests.edges.nats.ground import serving
from tests.postgres import postgres_server
from tests.sync.programs import run

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.edges.nats.server import NatsServer

PATIENCE = 20.0


def work(url: str) -> None:
    """Use keys, a lock, a watch, a mirror and a table."""
    with holdfast.sync.open(url, reap=False) as store:
        kv = store.kv("trivia")
        with kv.mirror("c:") as mirror:
            entry = kv.set("c:k", {"a": 1}, expected_version=0)
            assert present(kv.get("c:k")) == entry
            with refusal(VersionConflict) as caught:
                kv.set("c:k", 2, expected_version=0)
            assert caught.value.current == entry
            end = time.monotonic() + PATIENCE
            while dict(mirror.items()) != {"c:k": {"a": 1}}:
                assert time.monotonic() < end
                time.sleep(0.005)
        with kv.lock("one") as lock:
            kv.set("locked", 1, fence=lock.fence)
        with kv.watch(since=0) as changes:
            assert next(changes).key == "c:k"
        tables = store.tables("trivia")
        tables.create_table("t", partition_key=("id", "string"))
        tables.put_item("t", {"id": "a"})
        item = tables.get_item("t", "a")
        assert item is not None
        assert item.value == {"id": "a"}


def forget(url: str) -> None:
    """Run a program that leaves a store, a watch and a lock open."""
    text = """
    kv.set("k", 1)
    watch = kv.watch()
    threading.Thread(target=lambda: next(watch, None), daemon=True).start()
    kv.lock("l").acquire()
    print(kv.get("k").value)
    """
    assert run(text, url) == (0, "1\n", "")


async def test_store_over_nats(nats_server: NatsServer) -> None:
    """A program without asyncio is a client like any other, and its process ends even if it closes
    nothing.
    """
    async with serving(nats_server.url):
        await asyncio.to_thread(work, nats_server.url)
        await asyncio.to_thread(forget, nats_server.url)


async def test_store_over_http(nats_server: NatsServer, tmp_path: Path) -> None:
    """A program without asyncio can call a service over HTTP, and its process ends even if it closes
    nothing.
    """
    async with served(tmp_path / "store.db", nats_server.url) as service:
        await asyncio.to_thread(work, service.url)
        await asyncio.to_thread(forget, service.url)


def test_store_on_postgresql() -> None:
    """A program without asyncio can use a database, and its process ends even if it closes nothing."""
    with postgres_server() as server:
        url = server.create_database()
        work(url)
        forget(url)
