"""Estimates what a load needs: cores, processes, disk and a layout, from costs in microseconds and bytes.

    python tools/capacity.py --gets 5000 --sets 500 --keys 1000000

It is arithmetic on the figures below, which docs/explanation/sizing.md explains. It knows nothing of your
disk, your network or your values, so measure before you rely on it.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from math import ceil

DOOR = 35.0
"""Microseconds of CPU that a request over NATS costs a service beside the engine: what a service takes for
it, less what a program takes that opens the file itself."""
BUS = 15.0
"""Microseconds that the NATS server spends on a request and its reply."""
SHARE = 0.5
"""How busy a core may be on average, so that bursts find room."""
KEY, CHANGE, AUDIT = 105, 74, 685
"""Bytes on disk beside key and value: of a key, of a change in the journal, of an audit record."""

JOURNAL = 1_000_000
"""The most changes that a namespace keeps by default; it keeps no more than those of one day."""


@dataclass(frozen=True)
class Engine:
    """Microseconds of CPU of a get and a set, in the service and in the database."""

    name: str
    get: float
    set: float
    database_get: float
    database_set: float
    least: int
    """The fewest services of one store."""
    most: int
    """The most services that share the gets of one store. They take turns with its sets."""


ENGINES = (
    Engine("SQLite", 25, 75, 0, 0, least=1, most=1),
    Engine("PostgreSQL", 29, 45, 7, 22, least=1, most=64),
    Engine("cluster of three", 25, 80, 0, 35, least=3, most=3),
)
"""The nodes of a cluster share the gets that may be a little behind. Its database is the log of the NATS
servers. Its figures are estimates; the others were measured, with one service."""


@dataclass(frozen=True)
class Load:
    """What programs ask for."""

    gets: float
    sets: float
    keys: int
    bytes: int
    plugins: int
    audited: bool


@dataclass(frozen=True)
class Need:
    """What an engine needs for a load."""

    engine: Engine
    cores: float
    services: int
    stores: int

    @property
    def layout(self) -> str:
        """The smallest layout that carries the load."""
        each = ceil(self.services / self.stores)
        shared = f"{each} service{'s' if each > 1 else ''}"
        if self.stores > 1:
            return f"{self.stores} stores, each with some of the plugins and {shared}"
        return f"one store, {shared}"


def need(engine: Engine, load: Load) -> Need:
    """Cores of everything together, and how many services and stores share the work."""
    reading = load.gets * (DOOR + engine.get) / 1e6
    writing = load.sets * (DOOR + engine.set) / 1e6
    beside = (load.gets * (BUS + engine.database_get) + load.sets * (BUS + engine.database_set)) / 1e6
    services = ceil((reading + writing) / SHARE)
    stores = max(1, ceil(writing / SHARE), ceil(services / engine.most))
    return Need(engine, (reading + writing + beside) / SHARE, max(stores * engine.least, services), stores)


def disk(load: Load) -> tuple[float, float]:
    """Bytes of the store with the journal that is kept by default, and of a year's audit."""
    daily = load.sets * 86_400
    journal = min(daily, JOURNAL * load.plugins) * CHANGE
    return load.keys * (KEY + load.bytes) + journal, daily * 365 * AUDIT if load.audited else 0


def main() -> None:
    """Print what a load needs."""
    parser = argparse.ArgumentParser(description="Estimate what a load needs.")
    parser.add_argument("--gets", type=float, default=500, help="reads a second")
    parser.add_argument("--sets", type=float, default=100, help="writes a second")
    parser.add_argument("--keys", type=int, default=100_000, help="keys that are stored")
    parser.add_argument("--bytes", type=int, default=200, help="bytes of a key and its value")
    parser.add_argument("--plugins", type=int, default=10, help="namespaces that share the load")
    parser.add_argument("--audited", action="store_true", help="every change leaves an audit record")
    given = parser.parse_args()
    load = Load(given.gets, given.sets, given.keys, given.bytes, given.plugins, given.audited)
    for engine in ENGINES:
        found = need(engine, load)
        print(f"{engine.name:<17} {found.cores:6.1f} cores in all, {found.layout}")
    store, audit = disk(load)
    yearly = f", and {audit / 1e9:.0f} GB of audit a year" if audit else ""
    print(f"disk              {store / 1e9:6.2f} GB{yearly}")


if __name__ == "__main__":
    main()
