"""A quota of bytes bounds all that a namespace keeps, whatever a plugin does."""

from __future__ import annotations

import os

import pytest

import holdfast
from holdfast.clock import ManualClock
from tests.robustness.quota_ground import ATTACKS, stored_bytes

QUOTA = 200_000
SPARE = 65_536
"""A full namespace may have a journal of that size."""
ROUNDS = int(os.environ.get("HOLDFAST_QUOTA_ROUNDS", "10"))
"""How many requests of about 60 KB an attack sends, or a few more of smaller ones."""


@pytest.mark.parametrize("attack", ATTACKS)
async def test_nothing_gets_past_a_quota_of_bytes(storage: str, attack: str) -> None:
    """Journal, trash, letters, requests, locks, indexes and envelopes count: the database holds no more."""
    refused = done = 0
    async with holdfast.open(storage, clock=ManualClock(), reap=False) as store:
        for name in ("kv/p", "table/p"):
            await store.set_policy(name, {"quota_bytes": QUOTA})
        async for call in ATTACKS[attack](store, ROUNDS):
            try:
                await call
                done += 1
            except holdfast.QuotaExceeded:
                refused += 1
        kept = [await store.stats(name) for name in ("kv/p", "table/p")]
        assert all(one.kept_bytes == one.parts.counted for one in kept)
        assert [await store.recount(name) for name in ("kv/p", "table/p")] == [0, 0]
    held = await stored_bytes(storage)
    print(f"{attack}: {done} done, {refused} refused, {held} bytes in the database, {kept}")
    assert held <= sum(one.kept_bytes for one in kept), "what is counted is never less than what is there"
    assert all(one.kept_bytes <= QUOTA + SPARE for one in kept)
