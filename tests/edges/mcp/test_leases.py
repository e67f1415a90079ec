"""Two agents share a lock; one of them is stopped past its lease at random. Nothing goes wrong.

`./dev soak agents` does a thousand holdings at each door.
"""

from __future__ import annotations

import os
import random
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

import holdfast
from tests.edges.http.ground import served
from tests.edges.mcp import agents, http_agents
from tests.edges.mcp.leases import Referee, Worker, contest
from tests.nats import nats_server

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.clock import ManualClock
    from holdfast.store import Store

ROUNDS = int(os.environ.get("HOLDFAST_AGENT_ROUNDS", "12"))
ENOUGH = 100
"""Holdings after which chance must have stopped an agent and cost it the lock."""
SEED = int(os.environ.get("HOLDFAST_AGENT_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)


async def shared(
    store: Store, clock: ManualClock, *, rounds: int, mode: str = agents.MODERN, careless: bool = False
) -> Referee:
    """Have two agents with servers of their own share a lock of a store."""
    referee, chance = Referee(store.kv("trivia")), random.Random(SEED)
    async with (
        agents.agent(store, mode=mode) as one,
        agents.agent(store, mode=mode) as two,
    ):
        workers = [
            Worker(name, client, referee=referee, clock=clock, chance=chance, careless=careless)
            for name, client in {"one": one, "two": two}.items()
        ]
        await contest(workers, referee, rounds=rounds)
    return referee


def judge(referee: Referee, rounds: int) -> None:
    """Require that nothing went wrong, and in a long contest that agents were stopped and refused."""
    told = f"seed {SEED}: {referee.rounds} holdings, {referee.stops} stops, {referee.refused} refused"
    print(told)
    assert (referee.doubles, referee.stale) == ([], []), told
    assert referee.rounds >= rounds, told
    assert rounds < ENOUGH or min(referee.stops, referee.refused) > 0, told


@pytest.mark.unmeasured
@pytest.mark.parametrize("mode", agents.REVISIONS)
async def test_agents_on_a_file(clock: ManualClock, tmp_path: Path, mode: str) -> None:
    """No two agents hold a lock at a time, and an agent that has lost it writes nothing more."""
    async with holdfast.open(tmp_path / "state.db", clock=clock, reap=False) as store:
        judge(await shared(store, clock, rounds=ROUNDS, mode=mode), ROUNDS)


@pytest.mark.unmeasured
async def test_agents_on_postgresql(clock: ManualClock, pg_url: str) -> None:
    """The same on PostgreSQL."""
    async with holdfast.open(pg_url, clock=clock, reap=False) as store:
        judge(await shared(store, clock, rounds=ROUNDS), ROUNDS)


@pytest.mark.unmeasured
async def test_agents_over_http(clock: ManualClock, tmp_path: Path) -> None:
    """The same with two tokens at the door of a service."""
    async with (
        nats_server() as bus,
        served(tmp_path / "state.db", bus.url, clock=clock, open_mode=False) as here,
        AsyncExitStack() as stack,
    ):
        referee, chance = Referee(here.store.kv("trivia")), random.Random(SEED)
        workers = []
        for name in ("one", "two"):
            token = await http_agents.token_for(here)
            client = await stack.enter_async_context(http_agents.agent(here, token))
            workers.append(Worker(name, client, referee=referee, clock=clock, chance=chance))
        rounds = ROUNDS if ROUNDS >= ENOUGH else ROUNDS // 2
        await contest(workers, referee, rounds=rounds)
        judge(referee, rounds)


async def test_the_referee_detects_stale_writes(store: Store, clock: ManualClock) -> None:
    """Agents that do not give their tokens to their writes do write late: the fence is what prevents it."""
    referee = await shared(store, clock, rounds=40, careless=True)
    assert referee.stale, f"seed {SEED}"
