"""A machine that kept a log alone becomes one of three: its streams are brought, and the others wait."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import holdfast
from holdfast.edges.nats import cluster_server
from holdfast.edges.nats.cluster_server import (
    ASIDE,
    BROUGHT,
    ClusterBootstrap,
    MachineAnswer,
    in_cluster,
    set_aside,
)
from holdfast.edges.settings.read import read_config
from holdfast.engines.cluster import reports
from holdfast.engines.cluster.address import cluster_address
from holdfast.engines.cluster.membership import export_log
from holdfast.engines.cluster.operators import ClusterOperator
from holdfast.engines.cluster.replica import Differs
from holdfast.errors import Unavailable
from tests.jetstream import servers_running
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

RUNS: Final = "HOLDFAST_CLUSTER_OPERATIONS" in os.environ
SECRET: Final = "0123456789abcdef"


async def test_log_and_snapshots_are_brought_with_their_sequences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log and the snapshots arrive with their sequences, so a replica of the old log follows the new one.

    What was brought is not brought again, and no other store of that name is touched.
    """
    monkeypatch.setattr(reports, "ANSWER_SECONDS", 0.3)
    async with servers_running(1) as lone, servers_running(1) as target:
        here = lone.url("shop", tmp_path / "1")
        there = cluster_address(target.url("shop", tmp_path / "1"))
        assert not await export_log(cluster_address(here), there)
        async with holdfast.open(here, reap=False) as store:
            for number in range(50):
                await store.kv("trivia").set(f"key-{number}", "x" * 10_000)
            async with ClusterOperator(cluster_address(here)) as operator:
                await operator.snapshot(seconds=20)
        async with ClusterOperator(cluster_address(here)) as operator:
            before = await operator.status()
        for _ in range(2):
            assert await export_log(cluster_address(here), there)
        async with ClusterOperator(there) as operator:
            after = await operator.status()
        assert (after.log.epoch, after.log.last) == (before.log.epoch, before.log.last)
        assert after.snapshots == before.snapshots
        for number in (1, 2):
            async with holdfast.open(target.url("shop", tmp_path / str(number)), reap=False) as store:
                assert (await store.kv("trivia").set("key-49", number)).version == 50 + number
        assert await export_log(cluster_address(here), there)
        other = cluster_address(target.url("shop", tmp_path / "3"))
        async with servers_running(1) as third:
            async with holdfast.open(third.url("shop", tmp_path / "4"), reap=False) as store:
                await store.kv("trivia").set("key", 1)
            with pytest.raises(Differs, match="another store of that name"):
                await export_log(cluster_address(third.url("shop", tmp_path / "4")), other)
        with pytest.raises(Unavailable, match="could not be brought"):
            await export_log(cluster_address(f"cluster://127.0.0.1:{free_port()}/shop"), there)


def test_only_the_files_of_a_lone_server_are_set_aside(tmp_path: Path) -> None:
    """Files of a server that is part of a cluster stay where they are, and so do all without peers."""
    alone = read_config(environment={}, cluster="shop", data_dir=str(tmp_path))
    peers = read_config(environment={}, cluster="shop", data_dir=str(tmp_path), peers="h2,h3")
    store = tmp_path / "jetstream" / "jetstream"
    assert not set_aside(peers, tmp_path)
    (store / "$G" / "streams" / "HF_shop").mkdir(parents=True)
    assert not set_aside(alone, tmp_path)
    meta = store / "$SYS" / "_js_" / "_meta_"
    meta.mkdir(parents=True)
    assert not set_aside(peers, tmp_path)
    meta.rmdir()
    for _ in range(2):
        assert set_aside(peers, tmp_path)
        assert (tmp_path / ASIDE / "jetstream" / "$G").exists()
        assert not store.exists()


async def test_a_new_machine_waits_until_no_other_brings_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on when all machines have said that they bring none."""
    monkeypatch.setattr(cluster_server, "ANSWER_SECONDS", 0.2)
    async with servers_running(1) as servers, contextlib.AsyncExitStack() as stack:
        said: list[str] = []

        async def machine(number: int, *, brings: bool = False) -> ClusterBootstrap:
            given = {"cluster": "shop", "peers": "127.0.0.1:1,127.0.0.1:2", "cluster_secret": SECRET}
            folder = str(tmp_path / str(number))
            port = servers.servers[0].port
            config = in_cluster(read_config(environment={}, **given, data_dir=folder, nats_port=port))
            return await stack.enter_async_context(
                ClusterBootstrap(
                    config, Path(folder) / "nats", brings=brings, say=said.append, stop=asyncio.Event()
                )
            )

        first, bringing = await machine(1), await machine(2, brings=True)
        waiting = asyncio.create_task(first.end())
        await _until(lambda: any("which brings the log of shop" in line for line in said))
        bringing._brings = False
        await _until(lambda: any("2 of 3 have answered" in line for line in said))
        assert not waiting.done()
        await machine(3)
        await asyncio.wait_for(waiting, 60)
        assert MachineAnswer(server=bringing._server, brings=False) in await first._ask(3)


async def _until(true: Any) -> None:
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110 - what is said has no event
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def machines(folder: Path, ports: list[tuple[int, int]], numbers: list[int]) -> AsyncIterator[None]:
    """Run `holdfast up --cluster` on some of three machines, with peers if it is on all."""
    processes = []
    for number in numbers:
        client, route = ports[number]
        others = ",".join(f"127.0.0.1:{ports[other][1]}" for other in numbers if other != number)
        flags = (
            ["--peers", others, "--cluster-host", "127.0.0.1", "--cluster-port", str(route)] if others else []
        )
        processes.append(
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "holdfast", "up", "--cluster", "shop", *flags, "--http-port", "0"),
                *("--data-dir", str(folder / str(number)), "--nats-port", str(client)),
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, "HOLDFAST_CLUSTER_SECRET": SECRET, "HOLDFAST_LOG_LEVEL": "ERROR"},
            )
        )
    try:
        async with asyncio.timeout(120):
            for process in processes:
                assert process.stdout is not None
                while b"Ctrl-C stops" not in (line := await process.stdout.readline()):
                    assert line, "holdfast up has ended"
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGINT)
        assert [await process.wait() for process in processes] == [0] * len(processes)


@pytest.mark.skipif(not RUNS, reason="three machines take seconds to elect: ./dev soak cluster runs it")
async def test_one_machine_becomes_three(tmp_path: Path) -> None:
    """What a machine kept alone is there on three with all versions, after a restart with peers."""
    ports = [(free_port(), free_port()) for _ in range(3)]
    async with machines(tmp_path, ports, [0]), holdfast.open(f"nats://127.0.0.1:{ports[0][0]}") as store:
        for number in range(300):
            await store.kv("trivia").set(f"key-{number}", number)
    for _ in range(2):
        async with machines(tmp_path, ports, [1, 2, 0]):
            for client, _route in ports:
                async with holdfast.open(f"nats://127.0.0.1:{client}") as store:
                    found = await store.kv("trivia").get("key-299")
                    assert found is not None
                    assert (found.value, found.version) == (299, 300)
            login = tmp_path / "0" / "nats" / "node.login"
            url = f"cluster://127.0.0.1:{ports[0][0]}/shop?monitor={ports[0][0] + 4000}&login={login}"
            async with ClusterOperator(cluster_address(url)) as operator:
                assert len((await operator.status()).log.followers) == 2
                assert len((await operator.verify(seconds=20)).contents) == 3
    assert (tmp_path / "0" / "nats" / BROUGHT).exists()
