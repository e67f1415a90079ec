"""Agents that are processes share a lock; one of them is stopped past its lease at random. No harm is done.

`./dev soak agents` does a thousand holdings at each door, and stops an agent in at least one of ten.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from tests.edges.http.ground import served
from tests.edges.mcp.agent_process import TTL
from tests.edges.mcp.stopping import PATIENCE, Hand, Judge, reports, two_agents
from tests.edges.mcp.test_leases import ENOUGH, ROUNDS, SEED
from tests.edges.mcp.test_stdio import environment
from tests.machine import bugs

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.clock import ManualClock
    from holdfast.edges.nats.server import NatsServer
    from holdfast.handles.kv import KV

LARGE = ROUNDS >= ENOUGH
STOPS = ROUNDS // 10 if LARGE else 3


def over_stdio(url: str) -> list[list[str]]:
    """Servers of two agents, each a process of its own on a store."""
    return [["stdio", "mcp", "--plugin", "trivia", "--url", url]] * 2


async def contest(
    kv: KV, servers: list[list[str]], home: Path, *, clock: ManualClock | None, until_found: bool = False
) -> Judge:
    """Have two agents share the lock, and stop one after the other. Returns the judge.

    Args:
        kv: The namespace.
        servers: The arguments of each agent that name its server.
        home: A folder for the servers.
        clock: The clock of the store, or None for the time of day.
        until_found: Go on until the judge has found something wrong.
    """

    async def pass_lease() -> None:
        if clock is None:
            await asyncio.sleep(TTL * 1.1)
        else:
            clock.advance(TTL)

    judge = Judge(kv)
    async with two_agents(servers, SEED, home, env=environment(home)) as agents:
        hand = Hand(agents, judge, pass_lease=pass_lease, chance=random.Random(SEED))
        async with asyncio.timeout(None if LARGE else PATIENCE):
            while not judge.order:
                await asyncio.sleep(0.01)
                await judge.look()
            while not judge.stale if until_found else min(len(judge.order) / ROUNDS, hand.stops / STOPS) < 1:
                await hand.stop_one()
        told = [] if until_found else await reports(agents, kv, home)
    await judge.look()
    judge.compare(told)
    refused = sum(one["refused"] for one in told)
    print(f"seed {SEED}: {judge.summary}, {hand.stops} stops, {refused} holders refused")
    return judge


def require_order(judge: Judge) -> None:
    """Require that nothing went wrong, and in a long contest that leases ran out."""
    assert (judge.doubles, judge.stale) == ([], []), f"seed {SEED}"
    assert judge.expired or not LARGE


@pytest.mark.unmeasured
async def test_agents_with_a_process_each(
    clock: ManualClock, tmp_path: Path, nats_server: NatsServer
) -> None:
    """No two agents hold a lock at a time, and one that was stopped past its lease writes nothing more."""
    async with served(tmp_path / "state.db", nats_server.url, clock=clock) as here:
        kv = here.store.kv("trivia")
        require_order(await contest(kv, over_stdio(here.bus), tmp_path, clock=clock))


@pytest.mark.unmeasured
async def test_agents_of_one_service(clock: ManualClock, tmp_path: Path, nats_server: NatsServer) -> None:
    """The same with two agents that speak to the door of a service."""
    async with served(tmp_path / "state.db", nats_server.url, clock=clock) as here:
        servers = [["http", f"{here.url}/mcp/kv/trivia"]] * 2
        require_order(await contest(here.store.kv("trivia"), servers, tmp_path, clock=clock))


@pytest.mark.unmeasured
async def test_without_fences_the_judge_finds_stale_writes(
    clock: ManualClock, tmp_path: Path, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests above prove something: with the check of fences removed, a stopped agent does write late."""
    bugs.fences_ignored(monkeypatch)
    async with served(tmp_path / "state.db", nats_server.url, clock=clock) as here:
        servers = [["http", f"{here.url}/mcp/kv/trivia"]] * 2
        judge = await contest(here.store.kv("trivia"), servers, tmp_path, clock=clock, until_found=True)
        assert judge.stale
