"""A node of a campaign as a process of its own, with its clients.

It says `ready` once its store is open, and then, a line each time, how many operations have ended. On
SIGTERM its clients finish what they have begun, and it says `done`; on the next it closes and ends with 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import uvloop

import holdfast
from holdfast.clock import SystemClock
from holdfast.engines.cluster import snapshots
from holdfast.engines.cluster.log import trim
from holdfast.errors import HoldfastError
from holdfast.testing import AUDIT_KEY
from tests.cluster_proof.clients import AUDITED, Clients
from tests.cluster_proof.plants import PLANTS, Patch
from tests.cluster_proof.turns import TimedTurns

REPORT_SECONDS: Final = 0.2
STOP_SECONDS: Final = 60.0
SETTLE_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 2.0
"""How often a node looks whether a snapshot is due."""
MARGIN: Final = 200
"""The number of messages that stay although no snapshot needs them: few, since the log is short."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a node is to do: see `Clients`. The plant is the name of a bug, or empty."""

    url: str
    folder: str
    number: int
    nodes: int
    life: str
    seed: int
    pace: float
    start: int
    plant: str = ""
    ahead: float = 0.0
    """By how many seconds the wall clock is ahead."""


async def run(plan: Plan) -> None:
    """Be a node until told to stop."""
    if plan.plant:
        PLANTS[plan.plant](Patch(), random.Random(f"{plan.seed} {plan.life}"))
    Patch().setattr(snapshots, "trim", partial(trim, margin=MARGIN))
    Patch().setattr(snapshots, "LOOK_SECONDS", LOOK_SECONDS)
    stop, leave = asyncio.Event(), asyncio.Event()

    def asked() -> None:
        (leave if stop.is_set() else stop).set()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked)
    clock = SystemClock(wall=lambda: time.time() + plan.ahead)
    async with holdfast.open(plan.url, clock=clock, audit_key=AUDIT_KEY) as store:
        await _settle(store)
        clients = Clients(
            store,
            Path(plan.folder),
            number=plan.number,
            life=plan.life,
            seed=plan.seed,
            pace=plan.pace,
            start=plan.start,
            turns=TimedTurns(plan.nodes, plan.start),
        )
        print("ready", flush=True)
        async with asyncio.TaskGroup() as group:
            clients.start(group)
            while not stop.is_set():
                print(clients.ended, flush=True)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), REPORT_SECONDS)
            clients.stopping = True
            await _last_change(store)
        print(clients.ended, "done", sep="\n", flush=True)
        clients.close()
        await leave.wait()


async def _settle(store: holdfast.Store) -> None:
    """Have the audited namespace audited. The first node does it, however long the servers take."""
    async with asyncio.timeout(SETTLE_SECONDS):
        while True:
            try:
                await store.set_policy(f"kv/{AUDITED}", holdfast.Policy(audit=True))
            except HoldfastError:
                await asyncio.sleep(0.2)
            else:
                return


async def _last_change(store: holdfast.Store) -> None:
    """Make a change that wakes the watch, so that it notices that it is over."""
    async with asyncio.timeout(STOP_SECONDS):
        while True:
            try:
                await store.kv("counters").set("last", 1)
            except HoldfastError:
                await asyncio.sleep(0.2)
            else:
                return


if __name__ == "__main__":
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
    uvloop.run(run(msgspec.json.decode(sys.argv[1], type=Plan)))
