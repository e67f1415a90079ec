"""Several processes of one machine on one SQLite file.

They share the file through the simulated disk, with the index of its log in memory that all of them have
mapped. A process that is killed frees its locks and leaves the others running; a power cut ends all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.simulation import faults
from tests.simulation.target import CLIENTS, Target
from tests.simulation.world import Host

if TYPE_CHECKING:
    from tests.simulation.world import Machine

EMBEDDED: Final = 2
"""How many of the clients open the file themselves."""


class Processes(Target):
    """Two services and two programs of one machine on one SQLite file, and a client of the services."""

    kinds = faults.COMMON
    nodes = 2
    alone = False

    def _services(self) -> list[Machine]:
        self._host = Host("machine", len(self.world.machines))
        return [self.world.machine(f"service{number}", self._host) for number in range(self.nodes)]

    def _clients(self) -> list[Machine]:
        return [
            self.world.machine(f"client{number}", self._host if number < EMBEDDED else None)
            for number in range(CLIENTS)
        ]

    @property
    def writers(self) -> list[Machine]:
        """The machines that write to the disk."""
        return [*self.services, *self.clients[:EMBEDDED]]

    def client_url(self, number: int) -> str:
        """What a client opens."""
        return self.store_url(self.clients[number]) if number < EMBEDDED else super().client_url(number)
