"""A program that adds to one counter on PostgreSQL, as a process of its own.

    python -m tests.engines.counting_process URL NAMESPACE TASKS TIMES

It adds one, `TIMES` from each of `TASKS`, in groups of one and of three, and ends with code 0 when all
of them were acknowledged.
"""

from __future__ import annotations

import asyncio
import sys

from holdfast.engines.postgres import PostgresEngine
from holdfast.verbs.caller import id_maker
from tests.verbs import Verbs

NOW = 1_700_000_000_000


async def count(url: str, namespace: str, tasks: int, times: int) -> None:
    """Add so often."""
    engine = PostgresEngine(url)
    verbs = Verbs(namespace, writer="tester", new_id=id_maker(), now=lambda: 0)

    async def add() -> None:
        for _ in range(times // 4):
            await engine.transact([verbs.incr("n")], lambda: NOW)
            await engine.transact([verbs.incr("n") for _ in range(3)], lambda: NOW)

    await engine.start()
    await asyncio.gather(*(add() for _ in range(tasks)))
    await engine.aclose()


if __name__ == "__main__":
    asyncio.run(count(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
