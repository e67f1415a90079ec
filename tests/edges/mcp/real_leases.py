"""Agents on one PostgreSQL, each with a store in its own server, and with leases that end by the time of day.

No file of the suite's, since it waits for every lease. `./dev soak agents` runs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import holdfast
from tests.edges.mcp.test_lease_processes import contest, over_stdio, require_order

if TYPE_CHECKING:
    from pathlib import Path


async def test_agents_on_one_database(tmp_path: Path, pg_url: str) -> None:
    """No two agents hold a lock at a time, and one that was stopped past its lease writes nothing more."""
    async with holdfast.open(pg_url) as store:
        require_order(await contest(store.kv("trivia"), over_stdio(pg_url), tmp_path, clock=None))
