"""The simulated JetStream answers as a real server does."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from holdfast.engines.cluster.servers import elected
from tests.jetstream import servers_running
from tests.simulation.jetstream_script import converse

ROOT = Path(__file__).resolve().parents[2]


def test_a_real_server_and_the_simulated_ones_answer_alike() -> None:
    """What nodes of a cluster rely on in JetStream's answers is the same in the simulation."""
    simulated = subprocess.run(
        [sys.executable, "-m", "tests.simulation.jetstream_script"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    for answer, other in zip(json.loads(simulated.stdout), asyncio.run(_real()), strict=True):
        assert answer == other


async def _real() -> list[Any]:
    async with servers_running(3) as servers, asyncio.timeout(60):
        while not await elected(servers.monitors[0]):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.1)
        return await converse("127.0.0.1", servers.servers[0].port)
