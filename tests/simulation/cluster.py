"""Three nodes of a cluster: three NATS servers keep the log, and each node has its rows in a file.

In half of the worlds two of the nodes are not services, but programs that open the cluster themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from holdfast.engines.cluster import snapshots
from holdfast.engines.cluster.log import trim
from tests.simulation import faults
from tests.simulation.jetstream import JetStream, headers_of
from tests.simulation.network import HOST
from tests.simulation.subject import Finding
from tests.simulation.target import Target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.network import Message, Wire
    from tests.simulation.workload import Limits
    from tests.simulation.world import Host, Machine, World

PLACE: Final = "SELECT value FROM holdfast_meta WHERE name = 'log'"
"""How far in the log a file is."""
TABLES: Final = (
    "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' "
    "AND name <> 'holdfast_meta' ORDER BY name"
)


class Cluster(Target):
    """Three services on a cluster of three NATS servers."""

    kinds = (*faults.COMMON, *faults.CLUSTER)
    jumps = (-600.0, -5.0, 5.0, 600.0)
    jumps_stay = False
    skew = 1000
    paces = (0.2, 0.5, 1.2)
    nodes = nats = 3
    alone = False

    def __init__(self, world: World, folder: str, limits: Limits) -> None:
        self._embedded = 2 if Random(f"nodes {world.seed}").random() < 0.5 else 0
        """How many of the clients are nodes themselves."""
        self.nodes = 3 - self._embedded
        self._timeouts = Random(f"timeouts {world.seed}").choices((1, 1, 2, 5), k=3)
        """The seconds after which a write of a node gives up without an answer."""
        self._snapshot_every = self._draw_snapshots(Random(f"snapshots {world.seed}"))
        super().__init__(world, folder, limits)
        self._jetstream = JetStream(self.network, self.servers)
        self._jetstream.stored_for = self._stored
        self._awaited: dict[str, asyncio.Future[tuple[Wire, float]]] = {}
        self._last_holder = ""

    def _draw_snapshots(self, chance: Random) -> int:
        """Let nodes of two thirds of the worlds make snapshots all the time.

        Returns:
            After how many messages of the log they do.
        """
        every = chance.choice((20, 50, 0))
        if every:
            snapshots.LOOK_SECONDS = 0.5  # type: ignore[misc]
            snapshots.FAR = chance.choice((30, 20_000))  # type: ignore[misc]
            snapshots.trim = partial(trim, margin=30)  # type: ignore[attr-defined]
        return every

    @property
    def writers(self) -> list[Machine]:
        """The machines that write to a disk."""
        return [*self.services, *self.clients[: self._embedded]]

    def client_url(self, number: int) -> str:
        """What a client opens."""
        if number < self._embedded:
            return self.store_url(self.clients[number])
        return super().client_url(number)

    def store_url(self, machine: Machine) -> str:
        """What a service serves."""
        number = self.writers.index(machine)
        servers = ",".join(f"{HOST}:{port}" for port in self.ports(number))
        return (
            f"cluster://{servers}/store?data={self.folder}/{machine.name}&allow_lazy_sync=true"
            f"&timeout={self._timeouts[number]}&snapshot_every={self._snapshot_every}"
        )

    def client_of(self, service: Machine) -> int:
        """The client that calls a node, or that is one itself."""
        if service in self.clients:
            return self.clients.index(service)
        return self.services.index(service) if self.nodes == 3 else self._embedded

    def folders(self, host: Host) -> list[Path]:
        """Where a machine has its files. The audit's key is no one's: all nodes have got it."""
        return [Path(self.folder, one.name) for one in self.writers if one.host is host]

    def step_down(self) -> None:
        """Let the leader of the log step down."""
        self._jetstream.step_down()

    @contextlib.contextmanager
    def losing_acks(self, share: float) -> Iterator[None]:
        """Lose acknowledgements of the log."""
        self._jetstream.losing_acks += share
        yield
        self._jetstream.losing_acks = max(0.0, self._jetstream.losing_acks - share)

    @contextlib.contextmanager
    def skipping(self, share: float) -> Iterator[None]:
        """Let consumers of the log skip messages."""
        self._jetstream.skipping += share
        yield
        self._jetstream.skipping = max(0.0, self._jetstream.skipping - share)

    async def holder(self, what: str) -> tuple[Wire, float]:
        """Wait until a message does something to a lease, or takes groups. See `Target.holder`."""
        if what not in self._awaited:
            self._awaited[what] = asyncio.get_running_loop().create_future()
        return await asyncio.shield(self._awaited[what])

    def _stored(self, message: Message, wires: list[Wire]) -> None:
        headers = headers_of(message)
        if "Hf-Lease" not in headers:  # no message of a shard, such as a snapshot
            return
        seconds, last = int(headers["Hf-Lease"]) / 1000, self._last_holder
        self._last_holder = headers["Hf-Node"] if seconds else ""
        happened = []
        if seconds:
            happened = ["grants"] if len(message.body) > message.head else ["grants", "renews"]
        elif last == headers["Hf-Node"]:
            happened = ["ends"]
        if "Hf-Forwarded" in headers:
            happened.append("takes")
        for what in happened:
            if wires and what in self._awaited:
                self._awaited.pop(what).set_result((wires[0], seconds))

    def compare(self) -> Iterator[Finding]:
        """Files of services that are at the same place of the log must have the same rows."""
        copies: dict[object, tuple[str, dict[str, list[str]]]] = {}
        for machine in self.writers:
            self.world.disk.here = machine.number
            try:
                place, rows = _rows(Path(self.folder, machine.name, "shard-0.db"))
            except sqlite3.Error as error:
                self.world.note(machine.name, f"its file can't be read: {error}")
                continue
            name, others = copies.setdefault(place, (machine.name, rows))
            for table in rows:
                if rows[table] != others[table]:
                    odd = sorted(set(rows[table]) ^ set(others[table]))[:4]
                    text = f"{name} and {machine.name} differ at {place!r} in {table}: {odd}"
                    yield Finding("replicas differ", text)


def _rows(path: Path) -> tuple[object, dict[str, list[str]]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        place = connection.execute(PLACE).fetchone()
        tables = [name for (name,) in connection.execute(TABLES)]
        return place, {
            name: sorted(map(repr, connection.execute(f"SELECT * FROM {name}"))) for name in tables
        }
