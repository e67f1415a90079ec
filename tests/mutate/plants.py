"""All the bugs there are, and the fast part of the suite, which looks for those that their own tests miss.

Law: the fast part leaves out what kills processes, measures, or reads the documentation.
"""

from __future__ import annotations

from typing import Final

from tests.mutate import (
    blobs,
    bus,
    cluster,
    console,
    deadlines,
    decide,
    doors,
    engines,
    flow,
    grants,
    http,
    mcp,
    moves,
    recipes,
    records,
    servers,
    survivors,
    sync,
    web,
)
from tests.mutate.plant import Plant

PLANTS: Final[tuple[Plant, ...]] = (
    *decide.PLANTS,
    *deadlines.PLANTS,
    *records.PLANTS,
    *flow.PLANTS,
    *engines.PLANTS,
    *cluster.PLANTS,
    *servers.PLANTS,
    *recipes.PLANTS,
    *sync.PLANTS,
    *bus.PLANTS,
    *doors.PLANTS,
    *http.PLANTS,
    *mcp.PLANTS,
    *console.PLANTS,
    *grants.PLANTS,
    *blobs.PLANTS,
    *web.PLANTS,
    *moves.PLANTS,
    *survivors.PLANTS,
)

FAST: Final[tuple[str, ...]] = (
    "tests/unit",
    "tests/wire",
    "tests/bus",
    "tests/conformance",
    "tests/engines",
    "tests/edges/nats",
    "tests/machine/test_machine.py",
    "tests/security/test_isolation.py",
)
