"""Bugs that are planted in the nodes of a cluster are found in the histories of their clients."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Final

import pytest

from tests.cluster_proof.plants import PLANTS
from tests.cluster_proof.small import small_round
from tests.jetstream import lasting_servers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.jetstream import Servers

SEEDS: Final = int(os.environ.get("HOLDFAST_CLUSTER_SEEDS", "1"))
"""From how many seeds each bug is planted."""
TRIES: Final = 1 if SEEDS > 1 else 3
"""The number of rounds in which a bug has to be found. On a busy machine a short round may pass by a write
past a lease; in the campaign each round has to find it."""
FINDERS: Final = {
    "stale-read": {"linearizability"},
    "lost-ack": {"linearizability", "sums", "list-append"},
    "double-apply": {"sums"},
    "past-lease": {"linearizability"},
}
"""The checkers that have to find each bug. In a short round one of them is enough."""


@pytest.fixture(scope="module")
def server() -> Iterator[Servers]:
    """A server with JetStream."""
    with lasting_servers(1) as servers:
        yield servers


async def test_right_nodes_are_not_blamed(server: Servers, tmp_path: Path) -> None:
    """Nothing is found in what the clients of three right nodes saw, and the replicas are equal."""
    figures = await small_round(server, tmp_path, seed=1)
    assert figures.violations == []
    assert figures.replicas == 4


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
@pytest.mark.parametrize("plant", PLANTS)
async def test_a_planted_bug_of_the_cluster_is_found(
    server: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: str, seed: int
) -> None:
    """A stale read, a lost acknowledgement, a double effect and a write past a lease are each found."""
    PLANTS[plant](monkeypatch, random.Random(seed))
    rounds = []
    for number in range(TRIES):
        figures = await small_round(server, tmp_path / str(number), seed=seed + number)
        if FINDERS[plant] & {violation.partition(":")[0] for violation in figures.violations}:
            return
        rounds.append(figures)
    pytest.fail(f"{plant} was not found: {rounds}")
