"""The state machine on a cluster: every call goes to another node, and nodes are lost between steps.

As in `tests.machine`. With HOLDFAST_CLUSTER_SEEDS a long run, different each time.
"""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant, run_state_machine_as_test

import holdfast
from holdfast.testing import AUDIT_KEY
from tests.cluster import at_one_place, equal, lose_node
from tests.jetstream import lasting_servers
from tests.machine.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.clock import Clock
    from holdfast.store import Store
    from tests.jetstream import Servers

ROUNDS: Final = int(os.environ.get("HOLDFAST_CLUSTER_SEEDS", "0"))
NODES: Final = 3
STEPS: Final = 4
"""After how many steps a node is lost."""


@pytest.fixture(scope="module")
def server() -> Iterator[Servers]:
    """A server with JetStream."""
    with lasting_servers(1) as servers:
        yield servers


class NextNode:
    """A store that hands every use to the next node of a cluster."""

    def __init__(self, nodes: ClusterNodes) -> None:
        self._nodes = nodes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._nodes.next(), name)

    async def aclose(self) -> None:
        """Close all nodes, and compare their replicas."""
        await self._nodes.close()


class ClusterNodes:
    """Three nodes of a new store for each run; see `tests.machine.targets.Target`."""

    def __init__(self, servers: Servers, folder: Path) -> None:
        self._servers = servers
        self._root = folder
        self._name = ""
        self._stores: list[Store] = []
        self._turn = 0
        self.lost = 0

    async def fresh(self, clock: Clock) -> Any:
        """See `Target.fresh`."""
        self._name = secrets.token_hex(6)
        self._stores = [await self._opened(number, clock) for number in range(NODES)]
        return NextNode(self)

    async def again(self, store: Any, clock: Clock) -> Any:
        """See `Target.again`: close all nodes, one after the other, before the first one is opened again."""
        await self.close()
        self._stores = [await self._opened(number, clock) for number in range(NODES)]
        return store

    async def lose(self, number: int, clock: Clock, *, files: bool) -> None:
        """Lose a node, with its files or without, and start it again."""
        await lose_node(self._stores[number])
        if files:
            shutil.rmtree(self._root / self._name / str(number))
        self._stores[number] = await self._opened(number, clock)
        self.lost += 1

    def next(self) -> Store:
        """Return the next node."""
        self._turn += 1
        return self._stores[self._turn % NODES]

    async def close(self) -> None:
        """Close all nodes, and compare their replicas."""
        await at_one_place(self._stores)
        async with AsyncExitStack() as stack:
            for store in self._stores:
                stack.push_async_callback(store.aclose)
        equal(self._root / self._name, [str(number) for number in range(NODES)])

    async def _opened(self, number: int, clock: Clock) -> Store:
        url = self._servers.url(self._name, self._root / self._name / str(number))
        store = holdfast.open(url, clock=clock, reap=False, audit_key=AUDIT_KEY)
        await store.start()
        return store


class ClusterMachine(Machine):
    """The machine, with a node that is lost after every few steps."""

    def __init__(self) -> None:
        super().__init__()
        self._steps = 0

    @invariant()
    def a_node_is_lost(self) -> None:
        """Lose the nodes in turn, every second time with the files, and start them again."""
        self._steps += 1
        round_, left = divmod(self._steps, STEPS)
        for target in self.targets if not left else ():
            assert isinstance(target, ClusterNodes)
            self.run(target.lose(round_ % NODES, self.clock, files=bool(round_ % 2)))


@pytest.mark.timeout(0 if ROUNDS else 120)
def test_a_cluster_answers_like_the_model(server: Servers, tmp_path: Path) -> None:
    """Whichever nodes are called and lost, answers, versions, errors and orders are those of the model."""
    target = ClusterNodes(server, tmp_path)
    settled = settings(
        max_examples=ROUNDS or 2,
        stateful_step_count=50 if ROUNDS else 12,
        derandomize=not ROUNDS,
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(type("Driven", (ClusterMachine,), {"targets": [target]}), settings=settled)
    print(f"cluster: the machine lost {target.lost} nodes")
    assert target.lost
