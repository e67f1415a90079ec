"""What clients see is linearizable while services are killed and paused and the NATS server is restarted."""

from __future__ import annotations

import collections
import os
import random
import tempfile
from typing import TYPE_CHECKING, Final

import pytest

from tests.linear import planting
from tests.linear.checker import judge
from tests.linear.faults import FAULTS
from tests.linear.history import by_key
from tests.linear.round import Round, play

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.linear.history import Operation
    from tests.postgres_stores import Stores

OPERATIONS: Final = int(os.environ.get("HOLDFAST_LINEAR_OPERATIONS", "1000"))
"""How many operations are judged: a third each on SQLite, on a shared SQLite file and on PostgreSQL."""
ROUND: Final = 25_000
"""How many of them make a round, which has each of its faults once."""
SEED: Final = int(os.environ.get("HOLDFAST_LINEAR_SEED", "1"))
WANTED: Final = os.environ.get("HOLDFAST_LINEAR_FAULTS", ",".join(FAULTS)).split(",")
"""The faults of a round, by their names with commas between; one may be named several times."""
PAUSE: Final = (0.3, 3.0) if OPERATIONS > ROUND else (0.7, 1.2)
"""For how many seconds a service is paused: also past the time after which clients give up."""
PLANTED: Final = 60
MAY_REFUSE: Final = {"UNAVAILABLE", "TIMEOUT", "BUSY"}


@pytest.fixture(scope="module")
def totals() -> Iterator[collections.Counter[str]]:
    """What all rounds of this run came to; it is printed at the end."""
    found: collections.Counter[str] = collections.Counter()
    yield found
    print(f"\nlinear: in all {_shown(found)}")


async def test_one_service_on_sqlite(tmp_path: Path, totals: collections.Counter[str]) -> None:
    """Every operation on a key took effect once, between its call and its end, and as it was answered."""
    last = None
    for number, operations in enumerate(_rounds(OPERATIONS // 3)):
        with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
            last = await _play(f"{folder}/store.db", operations, number)
        _look_at(last, number, totals)
    assert last is not None
    assert _caught(last.history) == PLANTED


async def test_two_services_on_one_file(tmp_path: Path, totals: collections.Counter[str]) -> None:
    """The same holds for services that share a SQLite file, of which one is killed or paused."""
    for number, operations in enumerate(_rounds(OPERATIONS // 3)):
        with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
            one = await _play(f"{folder}/store.db", operations, number, services=2)
        _look_at(one, number, totals)


async def test_two_services_on_postgresql(pg_stores: Stores, totals: collections.Counter[str]) -> None:
    """The same holds for services that share a PostgreSQL, of which one is killed or paused."""
    for number, operations in enumerate(_rounds(OPERATIONS // 3)):
        storage = pg_stores.take()
        try:
            one = await _play(storage, operations, number, services=2)
        finally:
            pg_stores.give_back(storage)
        _look_at(one, number, totals)


async def _play(storage: str, operations: int, number: int, *, services: int = 1) -> Round:
    faults = [FAULTS[FAULTS.index(name)] for name in WANTED]
    seed = SEED + number
    return await play(
        storage, operations=operations, seed=seed, services=services, faults=faults, pause=PAUSE
    )


def _rounds(operations: int) -> list[int]:
    """Of how many operations each round is."""
    whole, rest = divmod(operations, ROUND)
    return [ROUND] * whole + [rest] * (rest > 0)


def _look_at(one: Round, number: int, totals: collections.Counter[str]) -> None:
    """Print what came of a round, and see that nothing is wrong with it."""
    figures = one.figures()
    totals.update(figures)
    print(f"linear: {one.name} round {number + 1}: {_shown(figures)} in {one.seconds:.1f} s")
    assert not one.verdict.violations, one.explain()
    assert one.codes().keys() <= MAY_REFUSE, one.codes()


def _shown(figures: collections.Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in figures.items())


def _caught(history: list[Operation]) -> int:
    """How many of 60 certain faults are found that are planted in what was recorded."""
    busiest = sorted(by_key(history).values(), key=len)[-8:]
    recorded = [operation for operations in busiest for operation in operations]
    found = 0
    for seed in range(PLANTED):
        plant = planting.KINDS[seed % len(planting.KINDS)]
        found += bool(judge(plant(recorded, random.Random(seed))).violations)
    print(f"linear: {found} of {PLANTED} planted faults were found")
    return found
