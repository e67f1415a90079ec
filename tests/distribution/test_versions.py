"""This version and the one before it work together, as docs/explanation/stability.md promises.

The other version is the wheel of its commit, installed into an environment of its own.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import tarfile
from typing import TYPE_CHECKING, Final

import pytest

from tests.distribution.environments import ROOT, Environment, build
from tests.distribution.test_installed import UpOf
from tests.jetstream import Servers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.distribution.conftest import Install
    from tests.distribution.environments import Uv

pytestmark = pytest.mark.unmeasured

OTHER: Final = "04acd774988a0f657556464432a36d59104e317b"
"""The commit of the other version. No release came before 0.1, so this is a commit on the way to it."""

WRITE: Final = """
import asyncio, holdfast
async def main():
    async with holdfast.open({url!r}, audit_key={key!r}) as store:
        kv = store.kv("jobs")
        entry = await kv.set("k", [1], ttl=5000, semantics={{"purpose": "config"}}, request_id="r1")
        await kv.batch(checks=[{{"key": "k", "version": entry.version}}], writes=[{{"key": "n", "incr": 2}}])
        tables = store.tables("jobs")
        await tables.create_table("t", partition_key=("id", "string"))
        await tables.create_index("t", "by_score", key=("score", "number"))
        await tables.put_item("t", {{"id": "a", "score": 7}})
        await store.blobs("jobs").put("b", b"x" * 300_000)
        await store.set_policy("kv/audited", {{"audit": True}})
        await store.kv("audited").set("k", 1)
        async with kv.lock("l", ttl=30) as lock:
            await kv.set("fenced", 1, fence=lock.fence)
        print("written")
asyncio.run(main())
"""
READ: Final = """
import asyncio, holdfast
async def main():
    async with holdfast.open({url!r}, audit_key={key!r}) as store:
        kv = store.kv("jobs")
        entry = await kv.get("k")
        again = await kv.set("k", [1], ttl=5000, semantics={{"purpose": "config"}}, request_id="r1")
        assert again.version == entry.version
        assert (entry.value, entry.semantics.purpose, (await kv.get("n")).value) == ([1], "config", 2)
        [item] = (await store.tables("jobs").query_index("t", "by_score", 7)).items
        assert item.value["id"] == "a"
        reader = await store.blobs("jobs").get("b")
        assert b"".join([part async for part in reader]) == b"x" * 300_000
        assert (await store.audit("kv/audited").verify()).whole
        changes = await kv.changes(0)
        await kv.incr("n", expected_version=(await kv.get("n")).version)
        print("read", [change.op for change in changes.changes][:2])
asyncio.run(main())
"""
COUNT: Final = """
import asyncio, holdfast, os
async def add(kv, number):
    while True:
        try:
            return await kv.incr("n", request_id=f"{{os.getpid()}}-{{number}}")
        except holdfast.OutcomeUnknown:  # the node that had the call has ended
            pass
async def main():
    async with holdfast.open({url!r}, audit_key={key!r}) as store:
        for number in range(50):
            entry = await add(store.kv("jobs"), number)
        print(entry.value)
asyncio.run(main())
"""
"""Adds 50 to a number that began at 2 and was raised once by a reader."""
KEY: Final = "0123456789abcdef0123456789abcdef"
"""The audit key that the nodes of a cluster share."""
READ_PRINTS: Final = "read ['set', 'set']"


@pytest.fixture(scope="module")
def other(uv: Uv, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the other version and its service."""
    folder = tmp_path_factory.mktemp("other")
    archive = folder / "source.tar"
    command = ["git", "archive", "--output", str(archive), OTHER]
    if subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode:
        pytest.skip("the commit of the other version is not in this clone")
    source = folder / "source"
    source.mkdir()
    with tarfile.open(archive) as files:
        files.extractall(source)
    [wheel] = build(source, folder / "built", "wheel")
    return uv.environment(folder / "environment", wheel, "server")


@pytest.fixture(scope="module")
def this(install: Install) -> Environment:
    """An environment with this version and its service."""
    return install("server")


@pytest.fixture(params=["this writes", "other writes"])
def sides(
    request: pytest.FixtureRequest, this: Environment, other: Environment
) -> tuple[Environment, Environment]:
    """The version that writes or serves, and the one that reads or calls."""
    return (this, other) if request.param == "this writes" else (other, this)


async def does(environment: Environment, code: str, where: Path) -> str:
    """Run a program of an environment that must succeed; what it prints."""
    return await asyncio.to_thread(environment.does, code, where=where)


@pytest.fixture
async def service(sides: tuple[Environment, Environment], tmp_path: Path) -> AsyncIterator[UpOf]:
    """A service of the version that serves."""
    up = UpOf(tmp_path / "home", (), {})
    up.environment = sides[0]
    await up.start()
    yield up
    assert await up.stop() == 0


@pytest.mark.parametrize("door", ["nats", "http"])
async def test_client_and_service(
    service: UpOf, sides: tuple[Environment, Environment], door: str, tmp_path: Path
) -> None:
    """A client of either version calls a service of the other."""
    url = service.url if door == "nats" else f"http://127.0.0.1:{service.http_port}"
    assert await does(sides[1], WRITE.format(url=url, key=None), tmp_path) == "written"
    assert await does(sides[1], READ.format(url=url, key=None), tmp_path) == READ_PRINTS


async def test_this_version_opens_a_file_of_the_other(
    this: Environment, other: Environment, tmp_path: Path
) -> None:
    """What the other version stored is there, and can be changed."""
    assert await does(other, WRITE.format(url="state.db", key=None), tmp_path) == "written"
    assert await does(this, READ.format(url="state.db", key=None), tmp_path) == READ_PRINTS


async def test_the_other_version_leaves_a_file_of_this_alone(
    this: Environment, other: Environment, tmp_path: Path
) -> None:
    """An older Holdfast reads a newer file, or refuses it and changes nothing."""
    assert await does(this, WRITE.format(url="state.db", key=None), tmp_path) == "written"
    opened = await asyncio.to_thread(
        other.run, "python", "-c", READ.format(url="state.db", key=None), where=tmp_path
    )
    if opened.returncode:
        assert re.search(r"holdfast.errors.(Unsupported|DatabaseError)", opened.stderr), opened.stderr
        assert await does(this, READ.format(url="state.db", key=None), tmp_path) == READ_PRINTS


async def test_this_version_restores_a_backup_of_the_other(
    this: Environment, other: Environment, tmp_path: Path
) -> None:
    """A backup of the other version becomes a store of this one."""
    assert await does(other, WRITE.format(url="state.db", key=None), tmp_path) == "written"
    made = other.run("holdfast", "backup", "file", "--with-key", "--url", "state.db", where=tmp_path)
    assert made.returncode == 0, made.stderr
    restored = this.run("holdfast", "restore", "file", "--url", "new.db", where=tmp_path)
    assert restored.returncode == 0, restored.stderr
    assert await does(this, READ.format(url="new.db", key=None), tmp_path) == READ_PRINTS


async def test_nodes_of_both_versions_share_a_cluster(
    sides: tuple[Environment, Environment], tmp_path: Path
) -> None:
    """While a cluster is updated one node after the other, each sees what the other writes."""
    servers = Servers(tmp_path / "servers", 1)
    await servers.start()
    try:
        first, second = (servers.url("shared", tmp_path / name) for name in ("one", "two"))
        assert await does(sides[0], WRITE.format(url=first, key=KEY), tmp_path) == "written"
        assert await does(sides[1], READ.format(url=second, key=KEY), tmp_path) == READ_PRINTS
        counted = await asyncio.gather(
            *(
                does(side, COUNT.format(url=url, key=KEY), tmp_path)
                for side, url in zip(sides, (first, second), strict=True)
            )
        )
        assert max(map(int, counted)) == 103
    finally:
        await servers.stop()
