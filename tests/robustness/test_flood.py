"""A plugin that publishes as fast as it can harms nobody for longer than it lasts, and is named."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from typing import TYPE_CHECKING, Any

from nats.errors import Error as NatsError

from tests.edges.running import Up, ask, holdfast_up, plain_client
from tests.robustness.flooding_process import flooding
from tests.security.test_malformed import resident

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

MESSAGES = int(os.environ.get("HOLDFAST_FLOOD_MESSAGES", "25000"))
TRIES = 60
GROWTH = 48 * 1024 * 1024
"""By how many bytes the service may grow: 16 MB of a plugin's requests may wait, and 16 MB of replies; 4,096
requests have objects of their own; the rest is what SQLite and Python keep of a busy time."""


async def flood(up: Up) -> None:
    """Flood the service from two processes."""
    ends = await asyncio.gather(*(flooding(up.url, MESSAGES, kind, "flood") for kind in ("sets", "rubbish")))
    assert ends == [0, 0]


@contextlib.asynccontextmanager
async def growth_bounded(up: Up) -> AsyncIterator[None]:
    """See that the service's memory stays within its bound, all the time that the block takes."""
    before, most = resident(up.pid), 0

    async def look() -> None:
        nonlocal most
        while True:
            most = max(most, resident(up.pid) - before)
            await asyncio.sleep(0.05)

    looking = asyncio.create_task(look())
    try:
        yield
    finally:
        looking.cancel()
    print(f"grew by {most / 1e6:.0f} MB")
    assert most < GROWTH


async def asked_again(up: Up, subject: str, **fields: Any) -> dict[str, Any]:
    """The first good reply to a request that is made again and again, a bounded number of times."""
    async with plain_client(up.url) as client:
        for _ in range(TRIES):
            with contextlib.suppress(NatsError, TimeoutError):
                async with asyncio.timeout(2):
                    reply = await ask(client, subject, **fields)
                if reply["success"]:
                    return reply
            await asyncio.sleep(0.1)
    raise AssertionError(f"no good reply in {TRIES} tries")


async def counted(up: Up) -> dict[str, float]:
    """How many of the flood's requests were refused, by code."""
    _, text = await up.http("/metrics")
    found = re.findall(
        r'^holdfast_kv_errors_total\{error_code="(\w+)",plugin="flood"\} (\S+)$', text, re.MULTILINE
    )
    return {code: float(count) for code, count in found}


async def test_a_service_survives_a_flood_with_bounded_memory(tmp_path: Path) -> None:
    """The service outlives a flood of sets and rubbish: bounded memory and log, counted, others served."""
    async with holdfast_up(tmp_path, HOLDFAST_DEADLINE_MS="1000") as up:
        assert (await asked_again(up, "db.kv.quiet.set", key="k", value=1))["version"] == 1
        async with growth_bounded(up):
            await flood(up)
            assert (await asked_again(up, "db.kv.quiet.get", key="k"))["value"] == 1
            assert (await asked_again(up, "db.kv.quiet.set", key="k", value=2))["version"] == 2
            assert (await asked_again(up, "db.kv.flood.set", key="k", value=1))["version"] > 0
        count, log = await counted(up), up.log
    print(f"refused {count}, {len(log)} lines")
    assert count["BUSY"] > 0
    assert any("BUSY too many requests of flood" in line["message"] for line in log)
    assert any("of them about flood" in line["message"] for line in log)
    assert len(log) < count["BUSY"] / 5
    assert not [line for line in log if "exception" in line]


async def test_a_flood_over_a_connection_of_its_own_harms_nobody(tmp_path: Path) -> None:
    """While a plugin floods the connection that an operator gave it, every request of another is served."""
    settings = {"HOLDFAST_DEADLINE_MS": "1000", "HOLDFAST_OWN_CONNECTION": "flood"}
    async with holdfast_up(tmp_path, **settings) as up, plain_client(up.url) as client:
        await ask(client, "db.kv.quiet.set", key="n", value=0)
        flooding = asyncio.create_task(flood(up))
        asked = 0
        async with growth_bounded(up):
            while not flooding.done() or "BUSY" not in await counted(up):
                for asked in range(asked + 1, asked + 11):  # noqa: B020 - it goes on where it was
                    reply = await ask(client, "db.kv.quiet.incr", key="n", deadline_ms=60_000)
                    assert reply["value"] == asked
        await flooding
    print(f"asked {asked} times meanwhile")
