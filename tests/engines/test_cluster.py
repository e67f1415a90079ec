"""The cluster engine: nodes that share one log, what they refuse to run on, and what becomes of a bad day."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import time
from contextlib import AsyncExitStack, closing
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.clock import SystemClock
from holdfast.errors import (
    DatabaseError,
    HoldfastError,
    OutcomeUnknown,
    StorageFull,
    Unavailable,
    Unsupported,
)
from holdfast.testing import AUDIT_KEY
from tests.cluster import Nodes, at_one_place, engine_of, equal, lose_node, tables
from tests.jetstream import lasting_servers, older, servers_running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.store import Store
    from tests.jetstream import Servers


@pytest.fixture(scope="module")
def server() -> Iterator[Servers]:
    """A server with JetStream that accepts messages of 64 KB."""
    with lasting_servers(1, max_payload=65_536) as servers:
        yield servers


@pytest.fixture
async def nodes(server: Servers, tmp_path: Path) -> Any:
    """The nodes of a new store."""
    async with AsyncExitStack() as stack:
        yield Nodes(server, tmp_path, stack)


async def test_a_write_on_one_node_is_read_on_every_other(nodes: Nodes) -> None:
    """A get that begins after a write was acknowledged sees it, whichever nodes are called."""
    stores = [await nodes.open(number) for number in range(3)]
    for number in range(30):
        await stores[number % 3].kv("trivia").set("key", number)
        for store in stores:
            entry = await store.kv("trivia").get("key")
            assert entry is not None
            assert entry.value == number


async def test_a_killed_node_goes_on_from_its_time(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that is started after a kill, with its clock set back, has no earlier time than before."""
    store = await nodes.open(0)
    await store.kv("trivia").set("key", 1)
    last = store.now()
    shutil.copytree(nodes.folder / "0", nodes.folder / "killed")
    await store.aclose()
    clock = SystemClock(wall=lambda: time.time() - 3600)
    url = nodes._servers.url(nodes.name, nodes.folder / "killed")
    async with holdfast.open(url, reap=False, audit_key=AUDIT_KEY, clock=clock) as again:
        assert last <= again.now()
        kept = await engine_of(again)._first.kept_line()
        assert kept is not None
        assert kept.counts_for(clock)
        monkeypatch.setattr("holdfast.seams.this_machine", lambda: "another one")
        elsewhere = await engine_of(again).kept_line()
        assert elsewhere is not None
        assert elsewhere.earliest(0, clock, 0) == kept.at  # further ahead, it would not agree with others
    assert json.loads(dict(_meta(nodes.folder / "killed" / "shard-0.db"))["clock_line"])["open"] is False


async def test_a_killed_node_is_not_further_ahead_than_the_others(nodes: Nodes) -> None:
    """A node that is started after a kill begins no later than the latest time that it knows of any node."""
    store = await nodes.open(0)
    ahead = SystemClock(wall=lambda: time.time() + 30)
    url = nodes._servers.url(nodes.name, nodes.folder / "1")
    async with holdfast.open(url, reap=False, audit_key=AUDIT_KEY, clock=ahead) as other:
        await other.kv("trivia").set("key", 1)
        latest = other.now()
        assert await store.kv("trivia").get("key") is not None
    shutil.copytree(nodes.folder / "0", nodes.folder / "killed")
    await store.aclose()
    clock = SystemClock()
    began = clock.ticks()
    url = nodes._servers.url(nodes.name, nodes.folder / "killed")
    async with holdfast.open(url, reap=False, audit_key=AUDIT_KEY, clock=clock) as again:
        assert again.now() <= latest + (clock.ticks() - began) * 1000


def _meta(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT name, value FROM holdfast_meta").fetchall()


async def test_no_increment_is_lost_or_doubled(nodes: Nodes) -> None:
    """Nodes that increment one counter at the same time arrive at the sum, on all of them."""
    stores = [await nodes.open(number) for number in range(3)]

    async def add(store: Store) -> None:
        for _ in range(20):
            await store.kv("trivia").incr("sum")

    await asyncio.gather(*(add(store) for store in stores for _ in range(2)))
    for store in stores:
        entry = await store.kv("trivia").get("sum")
        assert entry is not None
        assert entry.value == 120


async def test_a_watch_on_another_node_is_woken_by_the_log(nodes: Nodes) -> None:
    """A watch yields changes that were made on another node, once and in order."""
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").set("a", 1)
    seen = []
    async for change in other.kv("trivia").watch(since=0):
        seen.append(change.key)
        if len(seen) == 2:
            break
        await one.kv("trivia").set("b", 2)
    assert seen == ["a", "b"]


async def test_reads_local_answers_from_the_replica_without_asking(nodes: Nodes) -> None:
    """With reads=local a node answers from its replica as it is, without a message to the others."""
    one, other = await nodes.open(1), await nodes.open(2, reads="local")
    assert await other.kv("trivia").get("key") is None
    await one.kv("trivia").set("key", 1)
    await at_one_place([one, other])
    before = engine_of(other)._shards[0].replica.at
    entry = await other.kv("trivia").get("key")
    assert entry is not None
    assert (await other.kv("trivia").list()).keys == ["key"]
    assert engine_of(other)._shards[0].replica.at == before


async def test_a_new_node_makes_the_same_file_from_the_log(nodes: Nodes) -> None:
    """A replica that was lost is made again from the log, equal in every table."""
    one = await nodes.open(1, shards=2)
    for number in range(20):
        await one.kv(f"plugin-{number % 4}").set(
            f"key-{number}", {"n": number}, ttl=60 if number % 2 else None
        )
    await one.tables("trivia").create_table("scores", partition_key=("id", "string"))
    await one.tables("trivia").put_item("scores", {"id": "a", "points": 3})
    await one.kv("plugin-0").delete("key-0")
    other = await nodes.open(2)
    await at_one_place([one, other])
    assert (await other.kv("plugin-1").list()).keys != []
    await other.aclose()
    await one.aclose()
    assert sorted(path.name for path in (nodes.folder / "1").glob("*.db")) == ["shard-0.db", "shard-1.db"]
    equal(nodes.folder, ["1", "2"])


async def test_a_lock_in_another_shard_is_no_fence(nodes: Nodes) -> None:
    """A fence whose lock is in another shard is refused as unsupported, and writes beside it are not."""
    store = await nodes.open(1, shards=3)
    engine, refused = engine_of(store), 0
    for number in range(8):
        plugin = f"plugin-{number}"
        [token] = (await store.kv(plugin).batch(writes=[{"guard": "a"}])).versions
        blobs, fence = store.blobs(plugin), {"lock": "a", "token": token}
        apart = engine.shard_of(f"kv/{plugin}") != engine.shard_of(f"blob/{plugin}")
        await blobs.put("b", b"")
        fenced, plain = await asyncio.gather(
            blobs.set_ttl("b", 60, fence=fence), blobs.copy("b", "c"), return_exceptions=True
        )
        assert isinstance(fenced, holdfast.Unsupported) is apart
        assert not isinstance(plain, BaseException)
        refused += apart
    assert 0 < refused < 8


async def test_a_node_that_vanishes_does_not_stop_the_others(nodes: Nodes) -> None:
    """When the node that holds the lease dies, another one writes as soon as the lease has ended."""
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").set("key", 1)
    await lose_node(one)
    entry = await other.kv("trivia").set("key", 2, expected_version=1)
    assert entry.version == 2


async def test_a_returning_node_applies_what_it_missed_once(nodes: Nodes) -> None:
    """A replica that was left behind applies what it missed, once."""
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").incr("sum")
    await lose_node(one)
    await other.kv("trivia").incr("sum")
    again = await nodes.open(1)
    entry = await again.kv("trivia").incr("sum")
    assert entry.value == 3


@pytest.mark.parametrize("count", [1, 40], ids=["one write", "a group"])
async def test_a_write_larger_than_a_message_is_stored_whole(nodes: Nodes, count: int) -> None:
    """A write that the server would not accept as one message goes as a batch; a group is divided."""
    one, other = await nodes.open(1), await nodes.open(2)
    value = "x" * (200_000 if count == 1 else 5_000)
    kv = one.kv("trivia")
    if count == 1:
        blob = await one.blobs("trivia").put("big", value.encode())
        assert blob.size == len(value)
        reader = await other.blobs("trivia").get("big")
        assert reader is not None
        assert await reader.read() == value.encode()
    await asyncio.gather(*(kv.set(f"key-{number}", value[:60_000]) for number in range(count)))
    for number in range(count):
        entry = await other.kv("trivia").get(f"key-{number}")
        assert entry is not None
        assert entry.value == value[:60_000]
    await other.kv("trivia").set("after", 1)
    await at_one_place([one, other])
    await other.aclose()
    await one.aclose()
    equal(nodes.folder, ["1", "2"])
    shutil.rmtree(nodes.folder / "1")
    again = await nodes.open(1)
    assert await again.kv("trivia").get("after") is not None


async def test_a_second_node_on_the_same_folder_is_refused(nodes: Nodes) -> None:
    """A second node on the same files is refused, with the process that has them."""
    await nodes.open(1)
    with pytest.raises(Unavailable, match="process"):
        await nodes.open(1)


async def test_a_replica_of_another_store_is_refused(nodes: Nodes, server: Servers) -> None:
    """A folder of another store is not overwritten, and both stores are named by their epochs."""
    one = await nodes.open(1)
    await one.kv("trivia").set("key", 1)
    await one.aclose()
    other = holdfast.open(server.url("another", nodes.folder / "1"))
    with pytest.raises(DatabaseError, match="epoch"):
        await other.start()
    again = await nodes.open(1)
    assert await again.kv("trivia").get("key") is not None


@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
async def test_no_second_cluster_takes_the_name_of_a_lost_one(nodes: Nodes, replaced: bool) -> None:
    """A node with a replica makes no new log, and refuses the log of another store; it keeps its rows."""
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").set("key", 1)
    await other.aclose()
    engine = engine_of(one)
    await engine._jetstream.api(f"STREAM.DELETE.HF_{nodes.name}", seconds=5)
    engine._shards[0].lease.give_up()
    if replaced:
        await nodes.open(3)
    words = "another store" if replaced else "have no log of this name"
    with pytest.raises(DatabaseError, match=words):
        await one.ready()
    await lose_node(one)
    before = tables(nodes.folder / "1" / "shard-0.db")
    with pytest.raises(DatabaseError, match=words) as refusal:
        await nodes.open(1)
    assert str(nodes.folder / "1") in refusal.value.message
    assert tables(nodes.folder / "1" / "shard-0.db") == before


async def test_a_replica_that_differs_from_the_log_stops_and_keeps_its_file(nodes: Nodes) -> None:
    """A node whose last message is not the one in the log names both, serves nothing, and keeps its rows."""
    one = await nodes.open(1)
    await one.kv("trivia").set("key", 1)
    await one.aclose()
    path = nodes.folder / "1" / "shard-0.db"
    with sqlite3.connect(path) as connection:
        [(kept,)] = connection.execute("SELECT value FROM holdfast_meta WHERE name = 'log'")
        seq, _, name = kept.partition(" ")
        connection.execute("UPDATE holdfast_meta SET value = ? WHERE name = 'log'", [f"{seq} forged"])
    connection.close()
    before = tables(path)
    with pytest.raises(DatabaseError) as refusal:
        await nodes.open(1)
    assert f"{seq} (forged)" in refusal.value.message
    assert f"{seq} ({name})" in refusal.value.message
    assert tables(path) == before


async def test_another_writer_on_the_file_stops_the_replica(nodes: Nodes) -> None:
    """Rows that another program wrote to a replica are in no log: the node stops and says so."""
    one = await nodes.open(1)
    await one.kv("trivia").set("key", 1)
    connection = sqlite3.connect(nodes.folder / "1" / "shard-0.db")
    with connection:
        connection.execute("DELETE FROM plugin_kv_storage")
    connection.close()
    with pytest.raises(OutcomeUnknown, match="another program has written"):
        await one.kv("trivia").set("key", 2)


async def test_a_full_disk_takes_out_one_node_and_no_more(nodes: Nodes) -> None:
    """A node whose replica has no room refuses calls, the others go on, and it catches up later."""
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").set("key", 1)
    await at_one_place([one, other])
    writer = engine_of(one)._shards[0].replica.file._writer

    def bound_pages(most: int | None) -> None:
        assert writer._connection is not None
        [pages] = writer._connection.execute("PRAGMA page_count").fetchone()
        writer._connection.execute(f"PRAGMA max_page_count = {pages if most is None else most}")

    await writer.run(partial(bound_pages, None))
    with pytest.raises((Unavailable, OutcomeUnknown)):
        await asyncio.gather(*(one.kv("trivia").set(f"large-{number}", "x" * 30_000) for number in range(40)))
    entry = await other.kv("trivia").set("key", 2)
    for call in (one.kv("trivia").set("key", 3), one.kv("trivia").get("key")):
        with pytest.raises(Unavailable, match="can't follow"):
            await call
    assert (await other.kv("trivia").set("key", 3, expected_version=entry.version)).value == 3
    await writer.run(partial(bound_pages, 1_073_741_823))
    await at_one_place([one, other])
    found = await one.kv("trivia").get("key")
    assert found is not None
    assert found.value == 3


async def test_a_disk_that_fails_for_a_while_takes_out_one_node_and_no_more(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A node that can't read its replica refuses calls and tries again; nobody has to restart it.

    It is back only once it has applied what it could not.
    """
    one, other = await nodes.open(1), await nodes.open(2)
    await other.kv("trivia").set("key", 1)
    await at_one_place([one, other])

    def fail(*given: object, **more: object) -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_IOERR_READ, "SQLITE_IOERR_READ"
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(engine_of(one)._shards[0].replica.file._writer, "_attempt", fail)
        await other.kv("trivia").set("key", 2)
        async with asyncio.timeout(60):
            while caplog.text.count("retrying") < 2:  # noqa: ASYNC110 - a node tells no one
                await asyncio.sleep(0.05)
        with pytest.raises(Unavailable, match=r"can't follow.*SQLITE_IOERR_READ"):
            await one.kv("trivia").get("key")
        assert "follows" not in caplog.text
    await at_one_place([one, other])
    found = await one.kv("trivia").get("key")
    assert found is not None
    assert found.value == 2


async def test_servers_that_do_not_wait_for_the_disk_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without sync_interval: always a node does not start, unless its URL accepts the risk."""
    async with servers_running(1, lazy=True) as servers:
        with pytest.raises(Unsupported, match="allow_lazy_sync=true"):
            await holdfast.open(servers.url("lazy", tmp_path / "1")).start()
        servers.monitors = [1]
        with pytest.raises(Unsupported, match="monitor=PORT"):
            await holdfast.open(servers.url("lazy", tmp_path / "1")).start()
        async with holdfast.open(servers.url("lazy", tmp_path / "1", allow_lazy_sync="true")) as store:
            await store.kv("trivia").set("key", 1)
    assert "acknowledged are lost if all machines lose power at once" in caplog.text


async def test_a_server_that_is_too_old_is_refused(tmp_path: Path) -> None:
    """A node leaves a server whose greeting names an older version, and so it does with allow_lazy_sync."""
    async with servers_running(1) as running:
        [server] = running.servers
        async with older(server.port) as old, older(running.monitors[0]) as monitor:
            where = f"cluster://127.0.0.1:{old}/old?data={tmp_path}"
            for more in (f"&monitor={monitor}", "&allow_lazy_sync=true"):
                with pytest.raises(Unsupported, match=r"needs nats-server 2\.15 or newer; .* is 2\.14\."):
                    await holdfast.open(f"{where}{more}").start()
            url = f"cluster://127.0.0.1:{server.port}/old?data={tmp_path}&monitor={monitor}"
            for more in ("", "&allow_lazy_sync=true"):
                with pytest.raises(Unsupported, match=r"needs nats-server 2\.15 or newer"):
                    await holdfast.open(f"{url}{more}").start()


async def test_without_a_server_nothing_is_written_and_the_missing_one_is_named(tmp_path: Path) -> None:
    """While its server is down, a node refuses writes and reads, names the server, and then goes on."""
    async with servers_running(1) as servers, AsyncExitStack() as stack:
        url = servers.url("down", tmp_path / "1", timeout=1)
        store = await stack.enter_async_context(holdfast.open(url, reap=False))
        await store.kv("trivia").set("key", 1)
        servers.kill(0)
        with pytest.raises((Unavailable, OutcomeUnknown), match=str(servers.servers[0].port)):
            await store.kv("trivia").set("key", 2)
        with pytest.raises(Unavailable, match=str(servers.servers[0].port)):
            await store.kv("trivia").set("key", 3)
        with pytest.raises(Unavailable, match=str(servers.servers[0].port)):
            await store.kv("trivia").get("key")
        with pytest.raises(Unavailable, match=str(servers.servers[0].port)):
            await store.ready()
        await servers.start_again(0)
        await _until_written(store)
        await store.ready()
    with pytest.raises(Unavailable, match="no NATS server can be reached"):
        await holdfast.open(url).start()


async def _until_written(store: Store) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await store.kv("trivia").set("key", 4)
            except (Unavailable, OutcomeUnknown, StorageFull):
                await asyncio.sleep(0.1)
            else:
                return


async def test_keys_of_the_audit_are_known_to_all_nodes(nodes: Nodes) -> None:
    """An audit that one node has begun is continued and verified on another, with the same keys."""
    one, other = await nodes.open(1), await nodes.open(2)
    await one.set_policy("kv/trivia", holdfast.Policy(audit=True))
    await one.kv("trivia").set("key", 1)
    await other.kv("trivia").set("key", 2)
    assert await engine_of(other).kept_keys() == await engine_of(one).kept_keys() != []
    assert (await other.audit("kv/trivia").verify()).whole


def _refused(url: str) -> str:
    with pytest.raises(HoldfastError) as refusal:
        holdfast.open(url)
    return refusal.value.message


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("cluster://", "no NATS server"),
        ("cluster://h1,h2,h3", "name the store"),
        ("cluster://h1/a.b", "name the store"),
        ("cluster://h1/a?colour=red", "unknown option 'colour'"),
        ("cluster://h1/a?reads=stale", "reads in url must be lease or local"),
        ("cluster://h1/a?shards=0", "shards in url"),
        ("cluster://h1/a?timeout=never", "timeout in url"),
        ("cluster://h1,h2,h3/a?monitor=1,2", "one for each server"),
        ("cluster://h1/a?allow_lazy_sync=1", "allow_lazy_sync in url must be false or true"),
    ],
)
def test_a_wrong_url_is_refused_and_its_mistake_named(url: str, words: str) -> None:
    """Every mistake in a cluster's URL is refused before anything is opened, in words that name it."""
    assert words in _refused(url)
