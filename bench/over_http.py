"""`holdfast up` over HTTP beside a bare Starlette echo on the same uvicorn, with 128 requests in flight.

Servers and client are processes of their own, and the sides are measured in turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx
import msgspec

from bench.book import HOLDFAST
from bench.machine import package
from bench.over_nats import turned
from bench.peers import http_echo
from bench.peers.http_load import KEYS, VALUE
from bench.sides import OWN_DURABILITY
from tests.edges.running import started_up
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bench.run import Run

ECHO: Final = "starlette echo"
IN_FLIGHT: Final = 128
CLIENTS: Final = {"bench.peers.http_load": str(IN_FLIGHT), "bench.peers.httpx_load": "httpx"}
"""The programs that ask, and the names of what they measure: bare sockets, and the httpx library."""


async def http(run: Run) -> None:
    """Gets and durable sets over HTTP, as ratios of a bare echo."""
    run.book.durability |= {HOLDFAST: OWN_DURABILITY[HOLDFAST], ECHO: http_echo.DURABILITY}
    for name in ("uvicorn", "starlette", "httptools", "httpx"):
        run.book.versions.setdefault(name, package(name))
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        async with started_up(Path(folder)) as up, _echo() as echo:
            ports = {HOLDFAST: up.http_port, ECHO: echo}
            await _fill(up.http_port)
            for number in run.rounds():
                for verb in ("get", "set"):
                    for client, name in CLIENTS.items():
                        for side in turned(list(ports), number):
                            rate = await _load(ports[side], verb, run.seconds, client=client)
                            run.book.add(f"http.{verb}.{name}", side, rate, unit="/s")


async def _fill(port: int) -> None:
    """Put every key that is read."""
    value = msgspec.json.decode(VALUE)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        for plugin in range(10):
            items = [{"key": f"key:{number:08}", "value": value} for number in range(plugin, KEYS, 10)]
            fields = {"items": items, "deadline_ms": 60_000}
            (await client.post(f"/v1/kv/plugin{plugin}:set_many", json=fields)).raise_for_status()


@contextlib.asynccontextmanager
async def _echo() -> AsyncIterator[int]:
    port = free_port()
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "bench.peers.http_echo", str(port))
    try:
        for _ in range(200):
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                break
            await asyncio.sleep(0.1)
        yield port
    finally:
        process.terminate()
        await process.wait()


async def _load(port: int, verb: str, seconds: float, *, client: str = "bench.peers.http_load") -> float:
    """Answers per second."""
    arguments = (str(port), verb, str(IN_FLIGHT), str(seconds))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", client, *arguments, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"the client failed with {process.returncode}")
    return float(out)
