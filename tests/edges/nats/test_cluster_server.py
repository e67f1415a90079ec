"""`holdfast up --cluster`: the settings of a machine in a cluster, and one that runs alone."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.edges.nats.cluster_server import cluster_config, in_cluster, server_name
from holdfast.edges.settings.read import read_config
from holdfast.errors import ValidationError
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
    name = server_name(config, tmp_path / "nats")
    assert name.startswith("a-")
    assert server_name(config, tmp_path / "nats") == name


async def test_a_machine_alone_keeps_its_data_across_restarts(tmp_path: Path) -> None:
    """One machine makes a cluster of one: it serves at once, and has what was written after a restart."""
    port = free_port()
    for life in range(2):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "holdfast", "up", "--cluster", "alone", "--data-dir", str(tmp_path)),
            *("--nats-port", str(port), "--http-port", "0"),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "HOLDFAST_LOG_LEVEL": "ERROR"},
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(60):
                while b"Holdfast is up" not in (line := await process.stdout.readline()):
                    assert line, "holdfast up has ended"
            async with holdfast.open(f"nats://127.0.0.1:{port}") as store:
                assert (await store.kv("trivia").incr("lives")).value == life + 1
        finally:
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 0
