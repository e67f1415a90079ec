"""Bad days of a cluster of three servers: one is missing, two are missing, and they come back."""

from __future__ import annotations

import asyncio
import os
import secrets
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import pytest

import holdfast
from holdfast.errors import OutcomeUnknown, Unavailable
from tests.cluster import at_one_place, equal
from tests.jetstream import servers_running

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.store import Store

RUNS: Final = "HOLDFAST_CLUSTER_OPERATIONS" in os.environ
ELECTION_SECONDS: Final = 60


@pytest.mark.skipif(not RUNS, reason="three servers take seconds to elect: ./dev soak cluster runs it")
async def test_two_servers_of_three_go_on_and_one_alone_refuses(tmp_path: Path) -> None:
    """With a majority everything works; without one, calls say which servers are missing; then it goes on."""
    async with servers_running(3) as servers, AsyncExitStack() as stack:
        urls = [servers.url("bad", tmp_path / str(number), timeout=5) for number in range(2)]
        stores = [await stack.enter_async_context(holdfast.open(url, reap=False)) for url in urls]
        await stores[0].kv("trivia").incr("sum")
        servers.kill(0)
        done = 1 + await _incremented(stores[1])
        servers.kill(1)
        missing = [str(servers.servers[number].port) for number in (0, 1)]
        with pytest.raises((Unavailable, OutcomeUnknown)) as first:
            await stores[0].kv("trivia").set("lost", 1)
        assert all(port in first.value.message for port in missing), first.value.message
        with pytest.raises(Unavailable) as second:
            await stores[0].kv("trivia").incr("sum")
        assert all(port in second.value.message for port in missing), second.value.message
        with pytest.raises(Unavailable):
            await stores[1].kv("trivia").get("sum")
        await servers.start_again(0)
        await servers.start_again(1)
        done += await _incremented(stores[0])
        for store in stores:
            entry = await store.kv("trivia").get("sum")
            assert entry is not None
            assert entry.value == done
        await at_one_place(stores)
    equal(tmp_path, ["0", "1"])


async def _incremented(store: Store) -> int:
    """Increment once, through all refusals and doubts; the request id sees to it that it is done once."""
    name = secrets.token_hex(8)
    async with asyncio.timeout(ELECTION_SECONDS):
        while True:
            try:
                await store.kv("trivia").incr("sum", request_id=name)
            except (Unavailable, OutcomeUnknown):
                await asyncio.sleep(0.2)
            else:
                return 1
