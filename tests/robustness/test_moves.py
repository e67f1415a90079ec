"""A store moves from engine to engine while it is written to, and the mover is killed at any instant."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import pytest

import holdfast
from tests.forking import completed, fork
from tests.jetstream import lasting_servers
from tests.moves.contents import differing, fill

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KILLS: Final = int(os.environ.get("HOLDFAST_MOVE_KILLS", "0"))
"""How often the copy is killed in each move of the campaign. In the suite it is killed once in all."""
RATE: Final = int(os.environ.get("HOLDFAST_MOVE_RATE", "50"))
PAUSE: Final = float(os.environ.get("HOLDFAST_MOVE_PAUSE", "0"))
"""The longest pause of writes that a client may see, in seconds; 0 if it is not checked."""

LATEST: Final = 2.2 if KILLS else 0.9
"""The latest instant of a kill, in seconds after the start of a copy."""

pytestmark = pytest.mark.unmeasured


def copied(*arguments: object, timeout: float) -> str:
    """Run `holdfast copy` to its end; what it printed."""
    words = ("copy", *map(str, arguments), "--json")
    done = completed("holdfast", *words, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return done.stdout


def killed(*arguments: object, after: float) -> None:
    """Run `holdfast copy` for so many seconds and kill it."""
    words = ("copy", *map(str, arguments), "--json")
    with open(os.devnull, "r+b") as nothing:
        streams = (nothing.fileno(), nothing.fileno(), nothing.fileno())
        mover = fork("holdfast", words, env=os.environ, streams=streams)
    time.sleep(after)
    mover.kill()
    mover.wait()


def switched(source: str, target: str, draw: random.Random, kills: int) -> dict[str, Any]:
    """Kill the copy at random instants, half of them during the switch, and complete it in the end."""
    for kill in range(kills):
        mode = "--follow" if kill % 2 else "--switch"
        killed(source, target, "--yes", mode, after=draw.uniform(0.05, LATEST))
    result: dict[str, Any] = json.loads(copied(source, target, "--yes", "--switch", timeout=1800))
    return result


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """The address of a cluster that holds nothing yet; three servers keep its log in the campaign."""
    with lasting_servers(3 if KILLS else 1) as servers:
        yield servers.url("moves", tmp_path / "node", shards=2)


@pytest.fixture
def places(tmp_path: Path, cluster: str, request: pytest.FixtureRequest) -> list[str]:
    """The places to which the store moves one after the other; in the campaign PostgreSQL is among them."""
    between = [request.getfixturevalue("pg_store_url")] if KILLS else []
    return [str(tmp_path / "one.db"), *between, cluster, *between, str(tmp_path / "two.db")]


@pytest.fixture
def load(places: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that counts at each of the places in turn."""
    asyncio.run(fill(places[0]))
    command = [sys.executable, "-m", "tests.robustness.moving_process", str(RATE), *places]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        yield process
        process.kill()


async def alike(cluster: str, folder: Path) -> bool:
    """Whether a node that has just joined and the one that is written to hold the same at one instant."""
    async with holdfast.open(cluster.replace("/node&", "/other&"), reap=False):
        command = ["cluster", "verify", "--wait", "120", "--json", "--url", cluster]
        asked = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "holdfast", *command),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
        )
        out, err = await asked.communicate()
    assert out, err.decode()
    told = json.loads(out)
    return bool(told["equal"]) and len({one["node"] for one in told["contents"]}) > 1


async def counted(place: str) -> tuple[int, int]:
    """The sum of the counters, and the number of keys that stand for an increment each."""
    total = keys = 0
    async with holdfast.open(place, reap=False) as store:
        kv = store.kv("load")
        for number in range(64):
            found = await kv.get(f"c{number}")
            total += 0 if found is None else found.value
        cursor = None
        while True:
            page = await kv.list(prefix="of/", limit=1000, cursor=cursor)
            keys += page.count
            cursor = page.cursor
            if cursor is None:
                return total, keys


def test_a_store_moves_under_load(
    load: subprocess.Popen[str], places: list[str], cluster: str, tmp_path: Path
) -> None:
    """Nothing acknowledged is lost and nothing is done twice, however often the copy is killed."""
    seed = int(os.environ.get("HOLDFAST_MOVE_SEED", "0")) or random.randrange(10**6)
    print(f"HOLDFAST_MOVE_SEED={seed}")
    draw = random.Random(seed)
    moves = []
    for number, (source, target) in enumerate(pairwise(places)):
        moves.append(switched(source, target, draw, KILLS or int(number == 0)))
        time.sleep(1 if KILLS else 0.2)
        if KILLS and target == cluster:
            assert asyncio.run(alike(cluster, tmp_path))
    out, _ = load.communicate("", timeout=120)
    told = json.loads(out)
    paused = [move["paused"] for move in moves]
    print(f"{told}, seconds in which the source of each move refused writes: {paused}")
    assert asyncio.run(counted(places[-1])) == (told["done"], told["done"])
    if KILLS:
        back_where_it_began(places)
    if PAUSE:
        # A copy that was killed after its switch tells nothing, but clients see its pause too.
        assert max(told["gap"], *(one for one in paused if one is not None)) < PAUSE
        assert told["writes_per_second"] > 0.99 * RATE


def back_where_it_began(places: list[str]) -> None:
    """Move the store that nothing writes to any more to its first place, and compare the two."""
    copied(places[-1], places[0], "--yes", "--switch", timeout=300)
    assert asyncio.run(differing(places[-1], places[0])) == []
