"""All the bugs there are, and the fast part of the suite, which looks for those that their own tests miss.

Law: the fast part leaves out what kills processes, measures, or reads the documentation.
"""

from __future__ import annotations

from typing import Final

from tests.mutate import (
    blobs,
    bus,
    deadlines,
    decide,
    doors,
    engines,
    flow,
    grants,
    http,
    mcp,
    recipes,
    records,
    servers,
    sync,
)
from tests.mutate.plant import Plant

PLANTS: Final[tuple[Plant, ...]] = (
    *decide.PLANTS,
    *deadlines.PLANTS,
    *records.PLANTS,
    *flow.PLANTS,
    *engines.PLANTS,
    *servers.PLANTS,
    *recipes.PLANTS,
    *sync.PLANTS,
    *bus.PLANTS,
    *doors.PLANTS,
    *http.PLANTS,
    *mcp.PLANTS,
    *grants.PLANTS,
    *blobs.PLANTS,
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
