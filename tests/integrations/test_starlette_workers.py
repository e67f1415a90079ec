"""Two processes that serve the same visitors from one store."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, TypeAlias

import httpx
import pytest

from tests.conformance.database import empty
from tests.forking import ForkedProcess
from tests.integrations.grounds import Ground
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.integrations.conftest import Places

Worker: TypeAlias = tuple[ForkedProcess, str]

pytestmark = pytest.mark.unmeasured  # the lines of the middleware are covered by its other tests


async def started(url: str) -> Worker:
    """Start a worker, and return it once it answers."""
    port = free_port()
    process = await ForkedProcess.start("tests.integrations.web_worker", url, str(port), near=True)
    for _ in range(3_000):
        assert process.returncode is None, "the worker has ended"
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            break
        await asyncio.sleep(0.02)
    return process, f"http://127.0.0.1:{port}"


@contextlib.asynccontextmanager
async def workers(url: str) -> AsyncIterator[tuple[Worker, Worker]]:
    """Two workers, each with its address."""
    both = await asyncio.gather(started(url), started(url))
    try:
        yield both
    finally:
        for process, _ in both:
            if process.returncode is None:
                process.terminate()
            await process.wait()


@pytest.mark.parametrize("kind_and_places", ["postgresql", "nats"], indirect=True)
@pytest.mark.timeout(240)
async def test_two_workers(kind_and_places: Places) -> None:
    """A session and a key are one at both workers; a worker that is killed leaves no request behind."""
    kind, storage, bus = kind_and_places
    if kind == "postgresql":
        await empty(storage)
    async with (
        Ground(kind, storage, bus, None) as ground,
        workers(ground.url) as ((process, one), (_, two)),
        httpx.AsyncClient(timeout=60) as client,
    ):
        await client.get(f"{one}/note?name=ada")
        assert (await client.get(f"{two}/note?city=Ulm")).json() == {"name": "ada", "city": "Ulm"}
        visits = await asyncio.gather(*(client.get(f"{each}/visit") for each in (one, two) * 6))
        assert sorted(visit.json() for visit in visits) == list(range(1, 13))

        key = {"Idempotency-Key": "1"}
        crowd = await asyncio.gather(*(client.post(f"{each}/order", headers=key) for each in (one, two) * 4))
        assert {answer.status_code for answer in crowd} <= {200, 409}
        assert {answer.text for answer in crowd if answer.status_code == 200} == {"1"}
        assert (await client.post(f"{two}/order", headers=key)).text == "1"

        hanging = {"Idempotency-Key": "2"}
        dying = asyncio.create_task(client.post(f"{one}/order?hang=1", headers=hanging))
        async with asyncio.timeout(60), ground.open() as store:
            orders = (change async for change in store.kv("web").watch("orders", since=0))
            assert [(await anext(orders)).op for _ in range(2)] == ["set", "set"]
            await orders.aclose()
        assert (await client.post(f"{two}/order?hang=1", headers=hanging)).status_code == 409
        process.kill()
        with pytest.raises(httpx.TransportError):
            await dying
        for _ in range(300):
            late = await client.post(f"{two}/order?hang=1", headers=hanging)
            if late.status_code != 409:
                break
            await asyncio.sleep(0.1)
        assert late.text == "3"
