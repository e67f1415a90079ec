"""Services as processes whose wall clocks jump: nothing goes early, and nothing comes back.

`HOLDFAST_CLOCK_ROUNDS` says how often each is tried, and `HOLDFAST_CLOCK_SECONDS` how long a jump lasts. In
large this is the campaign `clocks` of `./dev soak`, which prints what it has counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

import holdfast
import holdfast.clock
from holdfast.errors import HoldfastError, VersionConflict
from tests.clocks.skewed_process import Skew, skewed_process
from tests.forking import ForkedProcess
from tests.robustness.serving_process import kill

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from holdfast.edges.nats.server import NatsServer

ROUNDS: Final = int(os.environ.get("HOLDFAST_CLOCK_ROUNDS", "1"))
SECONDS: Final = float(os.environ.get("HOLDFAST_CLOCK_SECONDS", "0.5"))
"""For how long a jump lasts, and for how long its effects are looked for afterwards."""
ENTRIES: Final = 100
TTL: Final = 1800
JUMPS: Final = (3600.0, -3600.0, 7200.0, -86_400.0, 10.0, -10.0)


class Count(NamedTuple):
    """What was found: entries that went early or came back, and calls that did not agree."""

    early: int = 0
    back: int = 0
    disagree: int = 0

    def __add__(self, other: object) -> Count:
        assert isinstance(other, Count)
        return Count(*(one + more for one, more in zip(self, other, strict=True)))


@contextlib.asynccontextmanager
async def client(url: str, prefix: str) -> AsyncIterator[holdfast.KV]:
    """The keys of a plugin, through a service."""
    async with holdfast.open(f"{url}?prefix={prefix}&timeout=60") as store:
        yield store.kv("trivia")


async def fill(kv: holdfast.KV) -> None:
    """Entries with half an hour left, and one that is gone in a second."""
    for key in (await kv.list(limit=1000)).keys:
        await kv.delete(key)
    await kv.set_many([{"key": f"k{n}", "value": n, "ttl": TTL} for n in range(ENTRIES)])


async def gone(kv: holdfast.KV) -> None:
    """Write an entry and wait until it is gone."""
    await kv.set("gone", 1, ttl=1)
    async with asyncio.timeout(60):
        while await kv.get("gone") is not None:  # noqa: ASYNC110 - time has no event
            await asyncio.sleep(0.05)


async def count(kv: holdfast.KV) -> Count:
    """Look at the entries that should be there, and with a read and a write at the one that should not."""
    there = [entry for entry in await kv.get_many([f"k{n}" for n in range(ENTRIES)]) if entry is not None]
    back = int(await kv.get("gone") is not None)
    disagree = 0
    try:
        await kv.set("gone", 2, expected_version=0, ttl=TTL)
        await kv.delete("gone")
    except VersionConflict:
        disagree = 1 - back
    return Count(ENTRIES - len(there), back, disagree)


async def lasts(kv: holdfast.KV, other: holdfast.KV) -> Count:
    """A ttl of two seconds through one service, as it is seen through another."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    await kv.set("brief", 1, ttl=2)
    written = loop.time()
    seen = await other.get("brief") is not None or loop.time() - began > 2
    while await other.get("brief") is not None:
        if loop.time() - written > 60:
            return Count(disagree=1)
        await asyncio.sleep(0.05)
    early = int(not seen or loop.time() - began < 1.95)
    return Count(early=early)


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
async def test_entries_survive_jumps_of_the_wall_clock_under_services(
    nats_server: NatsServer, tmp_path: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    """Of 100 entries with 30 minutes left all survive each jump, and a ttl lasts as long as it says."""
    storage = str(tmp_path / "store.db") if engine == "sqlite" else request.getfixturevalue("pg_store_url")
    steady, jumping = Skew(tmp_path / "steady"), Skew(tmp_path / "jumping")
    steady.set(0)
    jumping.set(0)
    url, total = nats_server.url, Count()
    async with contextlib.AsyncExitStack() as running:
        await running.enter_async_context(skewed_process(url, storage, jumping, prefix="jumping"))
        kv = other = await running.enter_async_context(client(url, "jumping"))
        if engine == "postgresql":  # where a second instance is possible, its clock is right
            await running.enter_async_context(skewed_process(url, storage, steady, prefix="steady"))
            other = await running.enter_async_context(client(url, "steady"))
        await fill(kv)
        await gone(kv)
        for number in range(ROUNDS):
            jump = JUMPS[number % len(JUMPS)]
            jumping.set(jump)
            await asyncio.sleep(SECONDS)
            jumping.set(0 if number % 2 == 0 else jump)  # every other jump stays
            await asyncio.sleep(SECONDS)
            total += await count(kv) + await count(other)
            if number % 5 == 0:
                total += await lasts(kv, other)
    print(f"\nclocks: {engine}: {ROUNDS} jumps under running services: {total}")
    assert total == Count()


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
async def test_expired_entries_stay_gone_after_a_restart_with_the_clock_set_back(
    nats_server: NatsServer, tmp_path: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    """What was gone before a restart stays gone after it, whatever the wall clock says by then."""
    storage = str(tmp_path / "store.db") if engine == "sqlite" else request.getfixturevalue("pg_store_url")
    skew, dice, total = Skew(tmp_path / "skew"), random.Random(1), Count()
    skew.set(0)
    for number in range(ROUNDS):
        async with skewed_process(nats_server.url, storage, skew), client(nats_server.url, "db") as kv:
            if number == 0:
                await fill(kv)
            await gone(kv)
        skew.set(-3600 * dice.random() * (number + 1))
        async with skewed_process(nats_server.url, storage, skew), client(nats_server.url, "db") as kv:
            total += await count(kv) + await lasts(kv, kv)
    print(f"\nclocks: {engine}: {2 * ROUNDS} restarts with the clock set back: {total}")
    assert total == Count()


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
async def test_expired_entries_stay_gone_after_a_kill_with_the_clock_set_back(
    tmp_path: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    """What a program saw gone before it was killed stays gone for the next; its versions match nothing."""
    storage = str(tmp_path / "store.db") if engine == "sqlite" else request.getfixturevalue("pg_store_url")
    skew, back, matched = Skew(tmp_path / "skew"), 0, 0
    for number in range(2 * ROUNDS):
        skew.set(-3600 * number)
        process = await ForkedProcess.start(
            "tests.clocks.expiring_process", storage, str(skew.path), str(ENTRIES)
        )
        try:
            async with asyncio.timeout(60):
                versions: dict[str, int] = json.loads(await process.stdout.readline())
        finally:
            await kill(process)
        skew.set(-3600 * (number + 1))
        async with holdfast.open(storage, clock=holdfast.clock.SystemClock(wall=skew.wall)) as store:
            kv = store.kv("trivia")
            back += sum(entry is not None for entry in await kv.get_many([*versions]))
            for key, version in versions.items():
                with contextlib.suppress(VersionConflict):
                    await kv.set(key, 2, expected_version=version)
                    matched += 1
    print(f"\nclocks: {engine}: {2 * ROUNDS} kills with the clock set back: {back} back, {matched} matched")
    assert (back, matched) == (0, 0)


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
async def test_entries_survive_jumps_of_the_wall_clock_under_programs(
    tmp_path: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    """A program that has the store open itself sees no entry go early, and none come back."""
    storage = str(tmp_path / "store.db") if engine == "sqlite" else request.getfixturevalue("pg_store_url")
    skew, total = Skew(tmp_path / "skew"), Count()
    skew.set(0)
    for number in range(ROUNDS):
        clock = holdfast.clock.SystemClock(wall=skew.wall)
        async with holdfast.open(storage, clock=clock, sweep_interval=0.1) as store:
            kv = store.kv("trivia")
            if number == 0:
                await fill(kv)
                await gone(kv)
            total += await count(kv)
            skew.set(JUMPS[number % len(JUMPS)])
            await asyncio.sleep(SECONDS)
            with contextlib.suppress(HoldfastError):
                await store.sweep()
            total += await count(kv)
        # What follows is opened with the clock set back; one that is ahead at opening is believed.
        skew.set(-abs(JUMPS[number % len(JUMPS)]))
    print(f"\nclocks: {engine}: {ROUNDS} jumps and restarts under programs: {total}")
    assert total == Count()
