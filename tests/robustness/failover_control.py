"""The control of the failover campaign: the ledger must find what an asynchronous standby loses."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import holdfast
from tests.robustness.failover_load import RECOVERY, Ledger, under_load

if TYPE_CHECKING:
    from tests.postgres_pair import Pair


async def test_an_asynchronous_standby_loses_acknowledged_writes(pair: Pair) -> None:
    """The ledger finds acknowledged writes that a standby has not got: what the promise needs is real."""
    ledger = Ledger("lost")
    await asyncio.to_thread(pair.wait_for_standby, "")
    async with holdfast.open(pair.url) as store, under_load(store, ledger) as load:
        await load.everyone_answered(RECOVERY)
        await asyncio.to_thread(pair.standby.stop)
        await load.everyone_answered(RECOVERY, times=2)
        await asyncio.to_thread(pair.primary.kill)
        await asyncio.to_thread(pair.standby.start)
        await asyncio.to_thread(pair.standby.promote)
        pair.primary, pair.standby = pair.standby, pair.primary
        await asyncio.to_thread(pair.wait_for_standby, "")
        await load.everyone_answered(RECOVERY)
    assert any("was due" in violation for violation in ledger.violations)
    await asyncio.to_thread(pair.rebuild)
    await asyncio.to_thread(pair.wait_for_standby, "*")
