"""What clients of a cluster see is right while servers, nodes, network, disks and clocks fail."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from tests.cluster_proof.campaign import play

OPERATIONS: Final = int(os.environ.get("HOLDFAST_CLUSTER_OPERATIONS", "0"))
"""How many operations are judged in all. A round takes two minutes, so the suite runs none."""
ROUND: Final = 20_000
LEADER_KILLS: Final = 10
"""How many times the leader is killed in a round, at the least."""
SEED: Final = int(os.environ.get("HOLDFAST_CLUSTER_SEED", "1"))
FOLDER: Final = Path(os.environ.get("HOLDFAST_CLUSTER_HISTORIES", ".dev/cluster-histories"))
"""Where the histories of all rounds are kept."""


@pytest.mark.skipif(not OPERATIONS, reason="a round takes two minutes: ./dev soak cluster runs it")
@pytest.mark.parametrize("seed", range(SEED, SEED + max(1, OPERATIONS // ROUND)))
async def test_nothing_is_lost_doubled_or_stale(seed: int) -> None:
    """No checker finds a violation, and at the end all replicas are equal by hash."""
    one = await play(
        FOLDER.absolute() / f"seed-{seed}",
        seed=seed,
        operations=min(OPERATIONS, ROUND),
        leader_kills=LEADER_KILLS,
    )
    print(f"\n{one}\n  histories: {FOLDER.absolute() / f'seed-{seed}'}")
    assert not one.figures.violations, one
