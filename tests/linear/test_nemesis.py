"""What clients of a cluster see is linearizable while its nodes and servers are killed and paused."""

from __future__ import annotations

import os
from typing import Final

import pytest

from tests.linear.nemesis import CLUSTER_FAULTS, play_on_cluster

OPERATIONS: Final = int(os.environ.get("HOLDFAST_CLUSTER_OPERATIONS", "0"))
"""How many operations are judged in all. A round takes half a minute, so the suite runs none."""
ROUND: Final = 10_000
SEED: Final = int(os.environ.get("HOLDFAST_CLUSTER_SEED", "1"))
MAY_REFUSE: Final = {"UNAVAILABLE", "TIMEOUT", "BUSY"}


@pytest.mark.skipif(not OPERATIONS, reason="a round takes half a minute: ./dev soak cluster runs it")
@pytest.mark.parametrize("number", range(max(1, OPERATIONS // ROUND)))
async def test_three_nodes_on_three_servers(number: int) -> None:
    """Every operation took effect once, between its call and its end; at the end all replicas are equal."""
    one = await play_on_cluster(
        operations=min(OPERATIONS, ROUND), seed=SEED + number, faults=CLUSTER_FAULTS * 2, pause=(0.3, 6.0)
    )
    figures = ", ".join(f"{name} {count}" for name, count in one.figures().items())
    print(f"cluster: round {number + 1}: {figures}; {dict(one.faults)} in {one.seconds:.1f} s")
    assert not one.verdict.violations, one.explain()
    assert one.codes().keys() <= MAY_REFUSE, one.codes()
