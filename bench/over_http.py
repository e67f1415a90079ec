"""`holdfast up` over HTTP beside a bare Starlette echo on the same uvicorn, with 128 requests in flight.

Law: servers and client are processes of their own, and the sides are measured in turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.book import HOLDFAST
from bench.machine import package
from bench.over_nats import turned
from bench.peers import http_echo
from bench.sides import OWN_DURABILITY
from tests.edges.running import holdfast_up
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bench.run import Run

ECHO: Final = "starlette echo"
IN_FLIGHT: Final = 128


async def http(run: Run) -> None:
    """Gets and durable sets over HTTP, as ratios of a bare echo."""
    run.book.durability |= {HOLDFAST: OWN_DURABILITY[HOLDFAST], ECHO: http_echo.DURABILITY}
    for name in ("uvicorn", "starlette", "httptools"):
        run.book.versions.setdefault(name, package(name))
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        async with holdfast_up(Path(folder)) as up, _echo() as echo:
            ports = {HOLDFAST: up.http_port, ECHO: echo}
            for port in ports.values():
                await _load(port, "set", 2.0)  # every key is there before it is read
            for number in run.rounds():
                for verb in ("get", "set"):
                    for side in turned(list(ports), number):
                        rate = await _load(ports[side], verb, run.seconds)
                        run.book.add(f"http.{verb}.{IN_FLIGHT}", side, rate, unit="/s")


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


async def _load(port: int, verb: str, seconds: float) -> float:
    """Answers per second."""
    arguments = (str(port), verb, str(IN_FLIGHT), str(seconds))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.peers.http_load", *arguments, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"the client failed with {process.returncode}")
    return float(out)
