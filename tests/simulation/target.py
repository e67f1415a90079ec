"""What is simulated: a service on a SQLite file, with its NATS server and its clients."""

from __future__ import annotations

import contextlib
import sqlite3
import traceback
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from holdfast.engines.sql.layout import SCHEMA_REVISION, VERSION_TABLE
from holdfast.engines.sql.migrate import downgrade_sqlite
from holdfast.engines.sqlite import errors
from holdfast.errors import (
    DatabaseError,
    HoldfastError,
    InternalError,
    InvalidJson,
    InvalidPluginName,
    InvalidSubject,
    MissingField,
    PermissionDenied,
    ValueTooLarge,
)
from tests.simulation import faults, seams
from tests.simulation.files import SmallFiles, share_files
from tests.simulation.network import HOST, NatsServer, Network
from tests.simulation.subject import TIMEOUT, Finding
from tests.simulation.workload import Limits, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.network import Wire
    from tests.simulation.world import Host, Machine, World

CHANGED: Final = "SELECT count(*), coalesce(sum(revision), 0) FROM holdfast_namespaces"
"""What every write to a store changes."""
CLIENTS: Final = 3
CACHES: Final = (33_554_432, 33_554_432, 0, 0, 5_000, 16_000)
"""How large the cache of rows is. Small ones drop and refuse rows all the time."""
DRIFT: Final = 200e-6
"""By how much the clock of a machine may be too fast or too slow."""
NEVER: Final = (PermissionDenied, InvalidSubject, InvalidJson, MissingField, InvalidPluginName, ValueTooLarge)
"""The refusals that nothing in a world explains."""
LATEST: Final = 2.0
"""The seconds after which a machine that was switched off is switched on again, if no fault has done it."""
OWN_FAULTS: Final = {
    *(0, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_INTERNAL, sqlite3.SQLITE_CONSTRAINT),
    *(sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_MISUSE, sqlite3.SQLITE_RANGE, sqlite3.SQLITE_INTERRUPT),
}
"""The codes of SQLite's errors of calls that are wrong, in a wrong order, or interrupted for no reason."""
AGAIN: Final = 0.3
"""The seconds until a service that has stopped is started again."""


class Target:
    """A service on a SQLite file.

    Attributes:
        kinds: The faults that may strike it.
        paces: The average seconds between two faults, one of which a seed chooses.
        jumps: The seconds by which a wall clock may jump.
        jumps_stay: Whether a wall clock may stay wrong.
        skew: By how many milliseconds services may disagree about the time.
        services: The machines of the services.
        servers: The NATS servers.
        clients: The machines of the clients.
        broken: What was found to be wrong with the service itself.
    """

    kinds: tuple[str, ...] = (*faults.COMMON, *faults.ALONE)
    jumps: tuple[float, ...] = (-3600, -5, 5, 3600)
    jumps_stay = True
    skew = 0
    paces: tuple[float, ...] = (0.05, 0.15, 0.4)
    nodes = 1
    """How many services there are."""
    alone = True
    """Whether one service serves all clients."""
    nats = 1
    """How many NATS servers there are."""

    def __init__(self, world: World, folder: str, limits: Limits) -> None:
        self.world = world
        self.folder = folder
        self._file = Path(folder, "store.db")
        self.network = Network(world)
        self.broken: list[Finding] = []
        self.starts = 0
        self.stopped = 0
        """How often a service has stopped because it was told to."""
        self._cache_bytes = Random(f"cache {world.seed}").choice(CACHES)
        self._look_out_for_defects()
        peers: list[NatsServer] = []
        self.servers = [
            NatsServer(self.network, world.machine(name), 4222 + number, peers)
            for number, name in enumerate(_names("nats", self.nats))
        ]
        self.services = self._services()
        self.clients = self._clients()
        share_files(world)
        self._small_files = SmallFiles(world.seed)
        world.after_power_cut = self._lose_small_files
        chance = Random(f"clocks {world.seed}")
        for machine in (*self.services, *self.clients):
            machine.host.rate = 1.0 + chance.uniform(-DRIFT, DRIFT)
            machine.host.wall_offset = chance.uniform(-0.1, 0.1)
            machine.after_crash = partial(world.after, world.outside, LATEST, self.start, machine)
        self.workload = Workload(
            world,
            self.clients,
            [self.client_url(number) for number in range(CLIENTS)],
            limits,
            alone=self.alone,
            skew=self.skew,
        )
        del self.clients[limits.clients :]

    def _look_out_for_defects(self) -> None:
        """Whatever fails around it, a service has no defect of its own."""
        for kind in (InternalError, DatabaseError, *NEVER):
            self._never(kind)
        code_of = errors.primary_code

        def judged(error: sqlite3.Error) -> int:
            code = code_of(error)
            if code in OWN_FAULTS:
                text = f"{self.world.here.name}: {error!r}, which no failing disk explains"
                self.broken.append(Finding("wrong statement", text))
            return code

        errors.primary_code = judged

    def _never(self, kind: type[HoldfastError]) -> None:
        """An error of this kind is a finding, wherever it is made."""
        made, name = kind.__init__, "internal error" if kind is InternalError else "refused"

        def wrong(error: HoldfastError, *args: Any, **fields: Any) -> None:
            made(error, *args, **fields)
            if kind is DatabaseError and "can't be read" not in error.message:
                return  # a disk that fails
            text = f"{self.world.here.name}: {error.message}\n{''.join(traceback.format_stack(limit=8))}"
            self.broken.append(Finding(name, text))

        kind.__init__ = wrong  # type: ignore[assignment, method-assign]

    def _services(self) -> list[Machine]:
        return [self.world.machine(name) for name in _names("service", self.nodes)]

    def _clients(self) -> list[Machine]:
        return [self.world.machine(f"client{number}") for number in range(CLIENTS)]

    @property
    def writers(self) -> list[Machine]:
        """The machines that write to a disk."""
        return self.services

    def folders(self, host: Host) -> list[Path]:
        """Where a machine has its files."""
        return [Path(self.folder)] if host is self.services[0].host else []

    def _lose_small_files(self, host: Host) -> None:
        for folder in self.folders(host):
            if lost := self._small_files.lose_power(folder):
                self.world.fault("small files", host.name, ", ".join(lost))

    def client_url(self, number: int) -> str:
        """What a client opens."""
        servers = ",".join(f"nats://{HOST}:{port}" for port in self.ports(number))
        return f"{servers}?timeout={TIMEOUT if self.alone else 2 * TIMEOUT:g}"

    def ports(self, number: int) -> list[int]:
        """The ports of the NATS servers. Each service and each client begins with another one."""
        count = len(self.servers)
        return [self.servers[(number + step) % count].port for step in range(count)]

    def store_url(self, machine: Machine) -> str:
        """What a service serves."""
        return f"sqlite:///{self.folder}/store.db"

    def begin(self) -> None:
        """Start everything."""
        for service in self.services:
            self.start(service, first=True)
        for client in self.clients:
            self.world.after(client, 0.2, self.workload.start, client)

    def start(self, machine: Machine, *, first: bool = False) -> None:
        """Start the process of a machine, unless it runs."""
        if machine.up and not first:
            return
        machine.up = True
        if machine in self.clients:
            self.workload.start(machine)
        elif machine in self.services:
            self.starts += 1
            self.world.note(machine.name, f"starts, life {machine.life}")
            machine.spawn(self._serve(machine), name="serve")

    async def _serve(self, machine: Machine) -> None:
        life, place = machine.life, self.services.index(machine)
        nats = ",".join(f"nats://{HOST}:{port}" for port in self.ports(place))
        try:
            await seams.serve(
                self.store_url(machine), nats=nats, folder=self.folder, cache_bytes=self._cache_bytes
            )
            self.world.note(machine.name, "has stopped")
            self.stopped += machine.life == life
        except HoldfastError as error:
            self.world.note(machine.name, f"does not start: {error.code} {error.message}")
            if "corrupt" in error.message or isinstance(error, InternalError):
                self.broken.append(Finding("does not start", f"{machine.name}: {error.message}"))
        except Exception as error:
            text = f"{machine.name}: {error!r}\n{traceback.format_exc()}"
            self.broken.append(Finding("service failed", text))
        if machine.life == life:
            machine.life += 1
            machine.up = False
            self.world.disk.kill(machine.number)
            machine.doom = machine.cut = machine.sync_cut = machine.halt = machine.stall = None
            machine.stopping = None
            self.world.after(self.world.outside, AGAIN, self.start, machine)

    @property
    def whole(self) -> bool:
        """Whether every machine is up and none stands still."""
        machines = (*self.services, *self.clients, *(one.machine for one in self.servers))
        return all(one.up and one.paused_until <= self.world.now for one in machines)

    def client_of(self, service: Machine) -> int:
        """The client that calls a service, or that is one itself."""
        return 0

    def downgrade(self, revision: str) -> bool:
        """Give the store an older schema, unless it is not there or open; whether that was done."""
        try:
            with contextlib.closing(sqlite3.connect(self._file, timeout=0)) as connection:
                current = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()
                if current != (SCHEMA_REVISION,):  # another fault has changed it
                    return False
                downgrade_sqlite(connection, revision)
        except sqlite3.Error:
            return False
        return True

    def stamp(self, revision: str, before: tuple[str, int, int] | None = None) -> tuple[str, int, int] | None:
        """Let the store have another revision and return what was there; None if it can't be written to.

        `before` is what was there before another revision was stamped: meanwhile nothing may have changed.
        """
        try:
            with contextlib.closing(sqlite3.connect(self._file, timeout=0)) as connection:
                connection.execute("BEGIN IMMEDIATE")
                [current] = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()
                if current == revision:  # another fault has done it
                    return None
                changed: tuple[int, int] = connection.execute(CHANGED).fetchone()
                connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = ?", [revision])
                connection.commit()
        except sqlite3.Error:
            return None
        if before is not None and (current, changed) != ("9999", before[1:]):
            text = f"a store of a newer version had {before} and now has {current} {changed}"
            self.broken.append(Finding("newer schema", text))
        return current, *changed

    def step_down(self) -> None:
        """Let the leader of the log step down."""
        raise NotImplementedError

    async def holder(self, what: str) -> tuple[Wire, float]:
        """Wait until a message `grants` a lease, `renews` it for readers, `ends` it, or `takes` groups.

        Returns:
            The connection by which it hears, and the seconds for which the lease lasts.
        """
        raise NotImplementedError

    def losing_acks(self, share: float) -> contextlib.AbstractContextManager[None]:
        """Lose acknowledgements of the log."""
        raise NotImplementedError

    def skipping(self, share: float) -> contextlib.AbstractContextManager[None]:
        """Let consumers of the log skip messages."""
        raise NotImplementedError

    def compare(self) -> Iterator[Finding]:
        """Look at the services' files after the run."""
        return iter(())


def _names(kind: str, count: int) -> list[str]:
    return [kind] if count == 1 else [f"{kind}{number}" for number in range(count)]
