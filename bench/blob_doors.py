"""Blobs of 16 MB over NATS, over HTTP and on PostgreSQL, beside a store like S3 that keeps them in memory.

Each service is a process of its own. The two that are asked over HTTP are asked by the same client in
the same way. No bar holds here: the others are not durable, or not the same way in.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx

import holdfast
from bench.machine import package
from bench.measure import closed_loop
from bench.over_nats import told, turned
from bench.peers import s3
from bench.sides import OWN_DURABILITY
from tests.edges.running import started_up
from tests.postgres import postgres_server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.run import Run
    from holdfast import Blobs

    Side = dict[str, Callable[[int], Awaitable[object]]]

HTTP, NATS, POSTGRES, S3 = "holdfast http", "holdfast nats", "holdfast postgres", "s3 in memory"
PATIENCE: Final = 60.0


async def doors(run: Run, data: bytes) -> None:
    """Megabytes a second of putting and getting a blob through each door."""
    run.book.durability |= {HTTP: OWN_DURABILITY["holdfast"], NATS: OWN_DURABILITY["holdfast"]}
    run.book.durability |= {POSTGRES: OWN_DURABILITY["holdfast-postgres"]}
    async with contextlib.AsyncExitStack() as stack:
        sides = await _started(stack, run, data)
        for number in run.rounds():
            for verb in ("put", "get"):
                scenario = f"blobs.doors.{verb}.megabytes"
                for side in turned(list(sides), number):
                    window = await closed_loop(sides[side][verb], in_flight=1, seconds=run.seconds)
                    told(run.book, window, scenario, side)
                    run.book.add(scenario, side, window.per_second * len(data) / 1024**2, unit="/s")


async def _started(stack: contextlib.AsyncExitStack, run: Run, data: bytes) -> dict[str, Side]:
    """Start all services, and say how each is asked."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-")))
    up = await stack.enter_async_context(started_up(folder))
    client = await stack.enter_async_context(httpx.AsyncClient(timeout=PATIENCE))
    address = f"http://127.0.0.1:{up.http_port}/v1/blob/bench/blob"
    sides = {HTTP: _asked(client, address, data)}
    if s3.found():
        run.book.durability[S3] = s3.DURABILITY
        bucket = f"{await stack.enter_async_context(s3.s3_server())}/bench"
        known = httpx.AsyncClient(timeout=PATIENCE, headers=s3.CREDENTIALS)
        await stack.enter_async_context(known)
        (await known.put(bucket)).raise_for_status()
        sides[S3] = _asked(known, f"{bucket}/blob", data)
    else:
        run.book.left_out[S3] = s3.LACKING
    database = stack.enter_context(postgres_server()).create_database()
    for name, url in {NATS: up.url, POSTGRES: database}.items():
        store = await stack.enter_async_context(holdfast.open(url))
        sides[name] = _called(store.blobs("bench"), data)
    run.book.versions.setdefault("httpx", package("httpx"))
    return sides


def _asked(client: httpx.AsyncClient, address: str, data: bytes) -> Side:
    """Return the calls of a service that is asked over HTTP."""

    async def put(number: int) -> None:
        (await client.put(address, content=data)).raise_for_status()

    async def get(number: int) -> None:
        async with client.stream("GET", address) as response:
            response.raise_for_status()
            assert sum([len(piece) async for piece in response.aiter_raw()]) == len(data)

    return {"put": put, "get": get}


def _called(blobs: Blobs, data: bytes) -> Side:
    """Return the calls of a store."""

    async def put(number: int) -> None:
        await blobs.put("blob", data)

    async def get(number: int) -> None:
        reader = await blobs.get("blob")
        assert reader is not None
        assert sum([len(piece) async for piece in reader]) == len(data)

    return {"put": put, "get": get}
