"""A program without asyncio, which the type checker reads in strict mode and a test runs.

It makes every kind of call once. `assert_type` says what a program may rely on.
"""

from __future__ import annotations

import sys
from typing import Any, assert_type

import holdfast.sync
from holdfast import Blob, Change, Entry, Item, Page
from holdfast.sync.blobs import BlobReader
from holdfast.sync.kv import KV


def play(kv: KV) -> None:
    """Use keys, and recipes on keys."""
    entry = kv.set("round", {"turn": "ada"}, ttl=60, writer="sample")
    assert_type(entry, Entry)
    assert_type(kv.get("round"), Entry | None)
    assert_type(kv.exists("round"), bool)
    assert_type(kv.list("r", limit=10), Page)
    with kv.watch(since=0) as changes:
        assert_type(next(changes), Change)
    with kv.lock("board", ttl=5) as lock:
        assert_type(lock.token, int)
        kv.set("board", 1, fence=lock.fence)
    dark = kv.flag("dark", default=False)
    assert_type(dark.get(), bool)
    with dark.cached() as cached:
        assert_type(cached.value, bool)
    with kv.mirror("r") as mirror:
        assert_type(mirror.get("round"), Any | None)
    assert_type(kv.counter("visits").add(), int | float)
    assert_type(kv.retry.incr("n"), Entry)
    assert_type(kv.update("n", lambda number: number + 1, default=0), Entry)


def main(url: str) -> None:
    """Use a store."""
    with holdfast.sync.open(url) as store:
        play(store.kv("sample"))
        play(store.semantic("acme", "web"))
        tables = store.tables("sample")
        tables.create_table("events", partition_key=("user", "string"))
        assert_type(tables.put_item("events", {"user": "ada"}), Item)
        assert_type(tables.put_item("events", {"user": "ada"}, return_values="old"), Item | None)
        assert_type(tables.get_item("events", "ada"), Item | None)
        blobs = store.blobs("sample")
        assert_type(blobs.put("map", iter([b"north", b"south"]), content_type="text/plain"), Blob)
        reader = blobs.get("map", start=5)
        assert_type(reader, BlobReader | None)
        if reader is not None:
            print(assert_type(b"".join(reader), bytes))
        reaper = tables.start_reaper()
        reaper.stop()
        print(store.stats("kv/sample").keys, [item.value for item in tables.scan("events").items])


if __name__ == "__main__":
    main(sys.argv[1])
