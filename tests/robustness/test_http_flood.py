"""A plugin that floods the HTTP door from processes of its own harms nobody on NATS, nor on HTTP.

The suite floods for a moment; `./dev soak attacks` floods for longer.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import TYPE_CHECKING, Final

import httpx
from nats.errors import Error as NatsError

from tests.edges.running import Up, ask, holdfast_up, plain_client
from tests.robustness.flooding_http import KINDS, flooding
from tests.security.test_malformed import resident

if TYPE_CHECKING:
    from pathlib import Path

SECONDS: Final = float(os.environ.get("HOLDFAST_FLOOD_SECONDS", "0.3"))
PROCESSES: Final = 2
PATIENCE: Final = 30
"""For how many seconds an answer is waited for: a busy machine is no error."""
GROWTH: Final = 128 * 1024 * 1024
"""By how many bytes the service may grow. Each of 200 connections may have 256 KB that are not parsed yet;
all bodies that are held have 16 MB at the most, and requests of one plugin that wait have 16 MB."""


class Quiet:
    """A plugin that asks a little, at both doors: what went wrong, and how long it took in milliseconds."""

    def __init__(self, up: Up) -> None:
        self._up = up
        self.errors: list[str] = []
        self.took: list[float] = []

    async def ask_while(self, working: asyncio.Future[list[int]]) -> None:
        """Ask until something else is done."""
        url = f"http://127.0.0.1:{self._up.http_port}"
        async with (
            plain_client(self._up.url) as client,
            httpx.AsyncClient(base_url=url, timeout=PATIENCE) as web,
        ):
            number = 0
            while not working.done() or number < 4:
                number += 1
                fields = {"key": "k", "value": number, "deadline_ms": PATIENCE * 1000}
                began = time.perf_counter()
                try:
                    verb = "set" if number % 2 else "get"
                    payload = json.dumps(fields).encode()
                    reply = await client.request(f"db.kv.quiet.{verb}", payload, timeout=PATIENCE)
                    if not (answer := json.loads(reply.data))["success"]:
                        self.errors.append(answer["error_code"])
                except NatsError as error:
                    self.errors.append(type(error).__name__)
                self.took.append((time.perf_counter() - began) * 1000)
                if number % 4 == 0:
                    headers = {"Holdfast-Deadline-Ms": str(PATIENCE * 1000)}
                    answered = await web.get("/v1/kv/quiet/k", headers=headers)
                    if answered.status_code != 200:
                        self.errors.append(answered.text)
                await asyncio.sleep(0.004)

    def __str__(self) -> str:
        took = sorted(self.took)
        return (
            f"{len(took)} asked, {len(self.errors)} errors, p50 {took[len(took) // 2]:.1f} ms, "
            f"p99 {took[len(took) * 99 // 100]:.1f} ms"
        )


async def test_a_flood_over_http_harms_nobody(tmp_path: Path) -> None:
    """Beside each flood over HTTP every request of another plugin is answered, and memory is bounded."""
    async with holdfast_up(tmp_path / "home") as up, plain_client(up.url) as client:
        assert (await ask(client, "db.kv.quiet.set", key="k", value=0))["success"]
        before = resident(up.pid)
        for kind in KINDS:
            floods = (flooding(up.http_port, "flood", kind, SECONDS) for _ in range(PROCESSES))
            working = asyncio.gather(*floods)
            quiet = Quiet(up)
            await quiet.ask_while(working)
            grown = resident(up.pid) - before
            rate = sum(working.result()) / SECONDS / 1e6
            print(f"http, {kind}, {rate:.1f} MB/s: {quiet}, grown by {grown / 1e6:.0f} MB", flush=True)
            assert quiet.errors == [], kind
            assert min(working.result()) > 0, kind
            assert grown < GROWTH, kind
        assert (await up.http("/readyz"))[0] == 200
        await up.kill()
