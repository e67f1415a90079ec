"""Several processes write to one store while some of them are killed and stopped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import holdfast
from tests.robustness.test_kill import lost
from tests.robustness.writing_process import LOG, SPREAD, plugin_of

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = int(os.environ.get("HOLDFAST_SHARED_ROUNDS", "3"))
PROCESSES = 4
APPENDING = 10
LINES = 200
PATIENCE = 60.0 if ROUNDS <= 3 else 600.0
"""Seconds without progress after which a process counts as hung; a campaign may meet a very busy machine."""


class Writer:
    """A `writing_process`, and what it has said."""

    def __init__(self, path: Path | str, life: str, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.robustness.writing_process", str(path), life, *words],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.acknowledged: dict[str, int] = {}
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):
                key, version = line.split()
                self.acknowledged[key] = int(version)

    def kill(self) -> None:
        """Kill it, and read what it has said before."""
        self.process.kill()
        self.process.wait(PATIENCE)
        self._thread.join(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()


async def test_every_acknowledged_write_survives_kills_and_stops(tmp_path: Path) -> None:
    """What any process was told is there, once, whichever of them were killed or stopped meanwhile."""
    path = tmp_path / "store.db"
    chance = random.Random(13)
    acknowledged: dict[str, int] = {}
    async with holdfast.open(path):
        pass
    for number in range(ROUNDS):
        writers = [Writer(path, f"{number}-{process}") for process in range(PROCESSES)]
        _disturb(writers, chance)
        said: dict[str, int] = {}
        for writer in writers:
            writer.kill()
            said |= writer.acknowledged
        assert await lost(path, said) == {}
        acknowledged |= said
    assert await lost(path, acknowledged) == {}
    assert len(set(acknowledged.values())) == len(acknowledged)
    assert len(acknowledged) >= ROUNDS * LINES
    print(f"{ROUNDS} rounds, {len(acknowledged)} acknowledged writes, none lost")


async def test_namespaces_that_processes_share_on_postgresql_lose_nothing_to_kills_and_stops(
    pg_store_url: str,
) -> None:
    """What a process was told is there, once, in each of the namespaces whose transactions it shares."""
    chance = random.Random(17)
    acknowledged: dict[str, int] = {}
    for number in range(ROUNDS):
        writers = [Writer(pg_store_url, f"{number}-{process}", "spread") for process in range(PROCESSES)]
        _disturb(writers, chance)
        for writer in writers:
            writer.kill()
            acknowledged |= writer.acknowledged
    async with holdfast.open(pg_store_url, reap=False) as store:
        for plugin in SPREAD:
            kv = store.kv(plugin)
            # Every key is new, so each version belongs to one of them.
            page = await kv.list(limit=10_000, values=True)
            versions = {entry.key: entry.version for entry in page.entries or ()}
            while page.cursor is not None:
                page = await kv.list(limit=10_000, values=True, cursor=page.cursor)
                versions |= {entry.key: entry.version for entry in page.entries or ()}
            assert sorted(versions.values()) == list(range(1, len(versions) + 1))
            told = {key: version for key, version in acknowledged.items() if plugin_of(key) == plugin}
            assert told.items() <= versions.items()
            assert (await store.stats(f"kv/{plugin}")).keys == len(versions)
    assert len(acknowledged) >= ROUNDS * LINES
    print(f"{ROUNDS} rounds, {len(acknowledged)} acknowledged writes, none lost")


async def test_readers_of_a_log_see_no_gap_while_writers_are_killed_and_stopped(tmp_path: Path) -> None:
    """Whoever reads on from the last item has seen every earlier one, however many processes append."""
    path = tmp_path / "store.db"
    async with holdfast.open(path) as store:
        log, seen = store.kv("crash"), list[str]()

        async def follow() -> None:
            for key in (await log.list(f"{LOG}/", after=len(seen))).keys:
                seen.append(key)
                assert key == f"{LOG}/{len(seen):012}"

        async def follow_on() -> None:
            while True:
                await follow()

        writers = [Writer(path, f"{process}", "append") for process in range(APPENDING)]
        following = asyncio.create_task(follow_on())
        await asyncio.to_thread(_disturb, writers, random.Random(7))
        for writer in writers:
            await asyncio.to_thread(writer.kill)
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
        while (await log.list(f"{LOG}/", after=len(seen), limit=1)).keys:
            await follow()
    acknowledged = [key for writer in writers for key in writer.acknowledged]
    assert len(set(acknowledged)) == len(acknowledged) >= APPENDING * LINES
    assert set(acknowledged) <= set(seen)


def _disturb(writers: list[Writer], chance: random.Random) -> None:
    """Stop and continue one process, kill another in between, and let all of them get on before and after."""
    _until_said(writers, LINES // 2)
    stopped, killed = chance.sample(writers, 2)
    stopped.process.send_signal(signal.SIGSTOP)
    time.sleep(chance.uniform(0, 0.2))
    killed.process.kill()
    time.sleep(chance.uniform(0, 0.2))
    stopped.process.send_signal(signal.SIGCONT)
    _until_said([writer for writer in writers if writer is not killed], LINES)


def _until_said(writers: list[Writer], lines: int) -> None:
    until = time.monotonic() + PATIENCE
    while any(len(writer.acknowledged) < lines for writer in writers):
        assert time.monotonic() < until
        time.sleep(0.005)
