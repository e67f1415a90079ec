"""`holdfast restore` and `copy` into a cluster and out of it, while other nodes have it open."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.edges import served_store
from holdfast.engine import JournalQuery
from holdfast.engines.cluster import moves
from tests.cluster import Nodes, at_one_place, engine_of, equal
from tests.jetstream import lasting_servers
from tests.moves.contents import KEY, differing, fill, looked_at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.edges.cli.conftest import Cli, Outcome
    from tests.jetstream import Servers


@pytest.fixture(scope="module")
def server() -> Iterator[Servers]:
    """A server with JetStream that accepts messages of 64 KB, so that loads go in several."""
    with lasting_servers(1, max_payload=65_536) as servers:
        yield servers


@pytest.fixture
async def nodes(server: Servers, tmp_path: Path) -> AsyncIterator[Nodes]:
    """The nodes of a new store."""
    async with AsyncExitStack() as stack:
        yield Nodes(server, tmp_path, stack)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with something in every section, to be copied."""
    path = tmp_path_factory.mktemp("template") / "full.db"
    asyncio.run(fill(path))
    return path


@pytest.fixture
def full(template: Path, tmp_path: Path) -> Path:
    """A store with something in every section."""
    return Path(shutil.copy(template, tmp_path))


async def run(cli: Cli, *arguments: object) -> Outcome:
    """Run a command while this process serves nodes."""
    return await asyncio.to_thread(cli, *arguments)


async def epoch(url: str | Path) -> str:
    """The epoch of a store."""
    async with looked_at(url) as snapshot:
        return (await snapshot.facts()).epoch


async def test_a_backup_is_restored_into_a_cluster(cli: Cli, nodes: Nodes, full: Path) -> None:
    """Every node then holds the same as the source, in every section of every shard, and goes on writing."""
    stores = [await nodes.open(number, shards=2) for number in (1, 2)]
    await stores[0].kv("lost").set("k", 1)
    url = nodes.url(0)
    assert (await run(cli, "backup", "b", "--url", full, "--json")).code == 0
    refused = await run(cli, "restore", "b", "--url", url)
    assert (refused.code, "kv/lost" in refused.err, "--yes" in refused.err) == (2, True, True)
    done = await run(cli, "restore", "b", "--url", url, "--yes", "--json")
    assert (done.code, done.json["namespaces"]) == (0, 6), done.err
    same = await run(cli, "diff", full, url, "--json")
    assert same.json == {"equal": True, "namespaces": []}
    found = await stores[1].kv("plain").get("k")
    assert (found and found.value, await stores[0].kv("lost").get("k")) == ([1, 2.5, None], None)
    assert (await stores[1].kv("plain").set("k", 2)).version == 2
    assert (await stores[0].kv("lost").set("k", 2)).version == 1
    verified = await run(cli, "cluster", "verify", "--url", url, "--json")
    assert (verified.code, verified.json["equal"], len(verified.json["contents"])) == (0, True, 4)
    await at_one_place(stores)
    for store in stores:
        await store.aclose()
    equal(nodes.folder, ["1", "2"])


async def test_a_copy_into_a_cluster_that_is_interrupted(
    cli: Cli, nodes: Nodes, full: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the same command has completed it, no node reads or writes; then all sections are equal."""
    monkeypatch.setattr(served_store, "PAUSE", 0.1)
    one = await nodes.open(1, shards=2)
    url = nodes.url(0)
    with monkeypatch.context() as patch:
        patch.setattr(moves, "BYTES", 1_000)
        load = moves.ClusterLoader.flush
        count = 0

        async def flush(self: moves.ClusterLoader) -> None:
            nonlocal count
            count += 1
            if count > 12:
                raise holdfast.Unavailable("killed")
            await load(self)

        patch.setattr(moves.ClusterLoader, "flush", flush)
        killed = await run(cli, "copy", full, url)
        assert (killed.code, "killed" in killed.err) == (5, True)
    for call in (one.kv("plain").get("k"), one.kv("plain").set("k", 1), one.ready()):
        with pytest.raises(holdfast.Unavailable, match="a copy into this store is not complete"):
            await call
    late = await nodes.open(2)
    with pytest.raises(holdfast.Unavailable, match="run holdfast copy again"):
        await late.kv("plain").get("k")
    said: list[str] = []
    waiting = asyncio.create_task(served_store.loaded(late, said.append, asyncio.Event()))
    stopped = asyncio.Event()
    stopped.set()
    with pytest.raises(holdfast.Unavailable, match="not complete"):
        await served_store.loaded(late, said.append, stopped)
    again = await run(cli, "copy", full, url, "--json")
    assert (again.code, again.json["complete"]) == (0, True), again.err
    assert await differing(full, url) == []
    found = await late.kv("plain").get("k")
    assert found is not None
    assert found.value == [1, 2.5, None]
    await one.kv("plain").set("k", 1)
    await asyncio.wait_for(waiting, 30)  # a service that has started meanwhile
    assert (len(said), said[0].startswith("Waiting: ")) == (1, True)


async def test_a_switch_to_a_cluster_and_back(cli: Cli, nodes: Nodes, full: Path, tmp_path: Path) -> None:
    """The source refuses writes and names the target; versions, epoch and audit go on there, and back."""
    one = await nodes.open(1, shards=2)
    url, back = nodes.url(0), tmp_path / "back.db"
    done = await run(cli, "copy", full, url, "--switch", "--json")
    assert (done.code, done.json["switched"], done.json["paused"] < 5) == (0, True, True), done.err
    refused = await run(cli, "set", "k", "2", "-p", "plain", "--url", full)
    assert (refused.code, "has moved to cluster://" in refused.err) == (5, True)
    assert (await one.kv("plain").set("k", 2)).version == 2
    again = await run(cli, "copy", full, url, "--switch")
    assert again.code == 0, again.err  # it has moved already
    done = await run(cli, "copy", url, back, "--switch", "--json")
    assert (done.code, done.json["switched"]) == (0, True), done.err
    with pytest.raises(holdfast.Unavailable, match=f"has moved to {back}"):
        await one.kv("plain").set("k", 3)
    found = await one.kv("plain").get("k")
    assert found is not None
    assert found.value == 2
    async with holdfast.open(back, reap=False, audit_key=KEY) as store:
        assert (await store.kv("plain").set("k", 3)).version == 3
        assert (await store.audit("kv/trivia").verify()).broken_at is None
    assert await epoch(url) == await epoch(back) == await epoch(full)
    page = await engine_of(one).journal(JournalQuery(namespace="kv/plain", since=0, limit=1))
    assert page.epoch == await epoch(full)
    cancelled = await run(cli, "copy", url, back, "--cancel")
    assert cancelled.code == 2
