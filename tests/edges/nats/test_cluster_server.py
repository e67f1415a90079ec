"""`holdfast up --cluster`: the settings of a machine in a cluster, and one that runs alone."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.edges.nats import server
from holdfast.edges.nats.cluster_server import (
    MONITOR_OFFSET,
    cluster_config,
    in_cluster,
    login_file,
    monitor_port,
    node_password,
    require_new_server,
    server_name,
)
from holdfast.edges.served_store import open_in_time, opened
from holdfast.edges.settings.read import read_config
from holdfast.engines.cluster.address import cluster_address
from holdfast.engines.cluster.servers import require_sync
from holdfast.errors import Unavailable, Unsupported, ValidationError
from tests.edges.nats.ground import until
from tests.forking import ForkedProcess
from tests.jetstream import servers_running
from tests.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "0123456789abcdef"


@pytest.mark.parametrize(
    ("flags", "field"),
    [
        ({"peers": "h2,h3"}, "peers"),
        ({"cluster": "a", "peers": "h2"}, "peers"),
        ({"cluster": "a", "nats": "nats://h"}, "cluster"),
        ({"cluster": "a", "peers": "h2,h3"}, "cluster_secret"),
        ({"cluster": "a", "peers": "h2,h3", "cluster_secret": SECRET}, "cluster_tls_cert"),
        ({"cluster": "a b"}, "cluster"),
        ({"allow_lazy_sync": True}, "allow_lazy_sync"),
        ({"cluster": "a", "cluster_secret": "short"}, "cluster_secret"),
    ],
)
def test_settings_that_can_not_work_are_refused(flags: dict[str, str], field: str) -> None:
    """A cluster needs a name, two or four peers, a secret, and TLS over a network; the setting is named."""
    with pytest.raises(ValidationError) as refusal:
        in_cluster(read_config(environment={}, **flags))
    assert refusal.value.field == field


def test_the_server_syncs_and_admits_only_with_secret_and_tls(tmp_path: Path) -> None:
    """The configuration syncs every write, demands the secret and certificates, and keeps the name."""
    files = {f"cluster_tls_{name}": str(tmp_path / name) for name in ("ca", "cert", "key")}
    config = in_cluster(
        read_config(
            environment={},
            cluster="a",
            peers="h2,h3:7000",
            cluster_secret=SECRET,
            data_dir=str(tmp_path),
            **files,
        )
    )
    text = cluster_config(config, tmp_path / "nats", None)
    assert "sync_interval: always" in text
    assert f'"nats://holdfast:{SECRET}@h2:6222", "nats://holdfast:{SECRET}@h3:7000"' in text
    assert f'password: "{SECRET}"' in text
    assert "verify: true" in text
    assert SECRET not in config.db
    assert "replicas=3&peers=tls://h2:6222,tls://h3:7000" in config.db
    assert "allow_lazy_sync" not in config.db
    name = server_name(config, tmp_path / "nats")
    assert name.startswith("a-")
    assert server_name(config, tmp_path / "nats") == name


def test_a_node_trusts_what_the_service_trusts(tmp_path: Path) -> None:
    """With a configuration that encrypts, the node uses the certificates that the settings name."""
    given: dict[str, Any] = {"cluster": "a", "data_dir": str(tmp_path)}
    given |= {"nats_tls_ca": "/c a", "nats_tls_first": True}
    assert "tls_" not in in_cluster(read_config(environment={}, **given)).db
    url = in_cluster(read_config(environment={}, **given, nats_config="bus.conf")).db
    address = cluster_address(url).remote
    assert (address.tls_ca, address.tls_first) == ("/c a", True)
    assert address.login_file == str(tmp_path / "nats" / "node.login")


async def test_a_machine_alone_keeps_its_data_across_restarts(tmp_path: Path) -> None:
    """One machine makes a cluster of one, which has what was written after a restart.

    With --allow-lazy-sync its server does not wait for the disk, and the risk is printed.
    """
    port = free_port(apart=MONITOR_OFFSET)
    monitor = monitor_port(read_config(environment={}, nats_port=port))
    for life, flags in enumerate((["--allow-lazy-sync"], [])):
        words = ("up", "--cluster", "alone", "--data-dir", str(tmp_path), "--nats-port", str(port))
        quiet = {**os.environ, "HOLDFAST_LOG_LEVEL": "ERROR"}
        process = await ForkedProcess.start("holdfast", *words, "--http-port", "0", *flags, env=quiet)
        try:
            said = b""
            async with asyncio.timeout(60):
                while b"Ctrl-C stops" not in (line := await process.stdout.readline()):
                    assert line, "holdfast up has ended"
                    said += line
            assert (b"are lost if all machines lose power at once" in said) is bool(flags)
            async with holdfast.open(f"nats://127.0.0.1:{port}") as store:
                assert (await store.kv("trivia").incr("lives")).value == life + 1
            url = f"cluster://127.0.0.1:{port}/alone?monitor={monitor}"
            with pytest.raises(Unsupported, match="--allow-lazy-sync") if flags else nullcontext():
                await require_sync(cluster_address(url))
        finally:
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 0


async def test_servers_of_others_are_accepted_with_the_flag_alone(tmp_path: Path) -> None:
    """`holdfast up --db cluster://...` refuses servers that do not wait for the disk, but for the flag."""
    async with servers_running(1, lazy=True) as servers:
        url = servers.url("lazy", tmp_path / "1")
        nats = servers.servers[0].url
        for flag, refused in ((None, True), (True, False)):
            config = in_cluster(read_config(environment={}, db=url, nats=nats, allow_lazy_sync=flag))
            with pytest.raises(Unsupported, match="--allow-lazy-sync") if refused else nullcontext():
                async with opened(config, print, asyncio.Event()) as store:
                    assert (await store.kv("trivia").set("key", 1)).version == 1


def test_a_program_that_is_too_old_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A nats-server before 2.15 is refused before it touches the log, and the message names the program."""
    program = tmp_path / "nats-server"
    program.write_text("#!/bin/sh\necho 'nats-server: v2.14.6'\n")
    program.chmod(0o700)
    monkeypatch.setattr(server, "find", lambda: program)
    with pytest.raises(Unsupported, match=rf"2\.15 or newer; the one at {program} is 2\.14\.6"):
        require_new_server()


async def test_a_node_waits_until_most_servers_are_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After a power failure the servers come back one by one, and a service that is first waits for them.

    It says for which it waits, and ends at once if it is told to stop.
    """
    said: list[str] = []
    async with servers_running(3) as servers:
        url = servers.url("shop", tmp_path / "1", timeout=1)
        async with holdfast.open(url.replace("timeout=1", "timeout=60"), reap=False) as store:
            await store.kv("trivia").set("key", 1)
        config = read_config(environment={}, db=url, startup_check_seconds=0)
        for position in (0, 1):
            servers.kill(position)
        stop = asyncio.Event()
        stopping = asyncio.create_task(open_in_time(config, said.append, stop))
        await until(lambda: bool(said))
        assert all(f"127.0.0.1:{server.port}" in said[0] for server in servers.servers[:2]), said
        assert said[0].lower() in [record.getMessage().lower() for record in caplog.records]
        stop.set()
        async with asyncio.timeout(60):
            assert await stopping is None
        opening = asyncio.create_task(open_in_time(config, said.append, asyncio.Event()))
        await asyncio.wait([opening], timeout=3)
        assert not opening.done()
        for position in (0, 1):
            await servers.start_again(position)
        async with asyncio.timeout(60):
            served = await opening
        assert served is not None
        async with served.stack:
            found = await served.store.kv("trivia").get("key")
            assert found is not None
            assert found.value == 1


async def test_a_machine_that_waits_for_others_stops_when_told_to(tmp_path: Path) -> None:
    """SIGTERM ends `holdfast up --cluster` while it waits for the other machines: that is no failure."""
    peers = f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    words = ("up", "--cluster", "shop", "--peers", peers, "--cluster-host", "127.0.0.1", "--http-port", "0")
    ports = ("--cluster-port", str(free_port()), "--nats-port", str(free_port()))
    env = {**os.environ, "HOLDFAST_LOG_LEVEL": "ERROR", "HOLDFAST_CLUSTER_SECRET": SECRET}
    process = await ForkedProcess.start("holdfast", *words, *ports, "--data-dir", str(tmp_path), env=env)
    async with asyncio.timeout(60):
        assert b"Waiting for the other machines of shop" in await process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def test_a_store_without_servers_is_refused_at_once(tmp_path: Path) -> None:
    """A URL that leads nowhere is a mistake, unless Holdfast runs the server itself and starts it again."""
    port = free_port()
    given: dict[str, Any] = {"data_dir": str(tmp_path), "nats_port": port, "startup_check_seconds": 0}
    stop, said = asyncio.Event(), list[str]()
    with pytest.raises(Unavailable, match="no NATS server can be reached"):
        await open_in_time(
            read_config(environment={}, db=f"cluster://127.0.0.1:{port}/shop", **given), said.append, stop
        )
    assert not said
    own = in_cluster(read_config(environment={}, cluster="shop", **given))
    node_password(login_file(own).parent)
    waiting = asyncio.create_task(open_in_time(own, said.append, stop))
    await until(lambda: bool(said))
    assert "no NATS server can be reached" in said[0]
    stop.set()
    async with asyncio.timeout(60):
        assert await waiting is None
