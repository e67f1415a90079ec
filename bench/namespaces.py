"""Sets in 10 and in 1,000 namespaces of one PostgreSQL store, in turn.

Both sides have the same store, callers and keys in all; only the number of namespaces differs.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import holdfast
from bench.doors import value
from bench.embedded import in_turn
from tests.postgres import postgres_server

if TYPE_CHECKING:
    from bench.embedded import Call
    from bench.run import Run

COUNTS: Final = (10, 1_000)
IN_FLIGHT: Final = 128
_STEP: Final = 7_919
"""A prime, so that callers don't visit the namespaces in their order."""


async def namespaces(run: Run) -> None:
    """Durable sets of 128 tasks over 1, 10 and 1,000 plugins."""
    with postgres_server() as server:
        async with holdfast.open(server.create_database(), reap=False) as store:
            handles = [store.kv(f"plugin-{number}") for number in range(max(COUNTS))]
            await asyncio.gather(*(kv.set("first", 0) for kv in handles))

            def over(count: int) -> Call:
                return lambda n: handles[n * _STEP % count].set(f"key:{n % 2_000:08}", value(n))

            sides = {f"{count:,} plugins": (over(count), IN_FLIGHT) for count in COUNTS}
            await in_turn(run, "namespaces.set.128", sides | {"1 plugin": (over(1), IN_FLIGHT)})
