"""`holdfast up --cluster`: the settings of a machine in a cluster, and one that runs alone."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.edges.nats import server
from holdfast.edges.nats.cluster_server import (
    cluster_config,
    in_cluster,
    monitor_port,
    require_new_server,
    server_name,
)
from holdfast.edges.opening import opened
from holdfast.edges.settings.read import read_config
from holdfast.engines.cluster.address import cluster_address
from holdfast.engines.cluster.servers import require_sync
from holdfast.errors import Unsupported, ValidationError
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


async def test_a_machine_alone_keeps_its_data_across_restarts(tmp_path: Path) -> None:
    """One machine makes a cluster of one, which has what was written after a restart.

    With --allow-lazy-sync its server does not wait for the disk, and the risk is printed.
    """
    port = free_port()
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
