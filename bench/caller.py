"""A process that asks a running service: at a rate, or with so many requests in flight.

It says `ready` once it is connected. For every line with a number of seconds that it reads, it asks for that
long and answers with one line: a `Window` as JSON. It ends with its input.

It is a plugin like any other: plain NATS requests and nothing of Holdfast's own client. At a rate, the
latency of a request counts from when it was due, so a stall counts for all that it delays.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec
import nats
import uvloop

from bench.doors import KEYS, key_of, value

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator

    from nats.aio.client import Client
    from nats.aio.msg import Msg

PATIENCE: Final = 10.0
"""For how many seconds the last replies of a window are waited for."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to ask: as so many plugins, at a rate, or else with so many requests in flight."""

    url: str
    plugins: list[str]
    per_second: float | None = None
    in_flight: int = 1
    gets: float = 0.7


class Window(msgspec.Struct, kw_only=True):
    """What came of it: milliseconds by verb, and how many requests were refused, by code."""

    seconds: float = 0.0
    latencies: dict[str, list[float]] = {}
    errors: dict[str, int] = {}

    @property
    def all(self) -> list[float]:
        """The milliseconds of every request."""
        return [taken for verb in self.latencies.values() for taken in verb]

    @property
    def error_rate(self) -> float:
        """The share of requests that were refused or had no reply."""
        refused = sum(self.errors.values())
        return refused / max(1, refused + len(self.all))


class _Reply(msgspec.Struct):
    success: bool = True  # what only echoes says nothing of it
    error_code: str = ""


_REPLY: Final = msgspec.json.Decoder(_Reply)


class Asker:
    """Asks as each of its plugins in turn, and keeps the books."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._random = random.Random(1)
        self._clients: list[tuple[Client, str, str]] = []
        self._waiting: dict[str, tuple[str, float]] = {}
        self._number = 0
        self._window = Window()
        self._end = 0.0
        self._answered = asyncio.Event()

    async def connect(self) -> None:
        """Give every plugin a connection of its own."""
        for plugin in self._plan.plugins:
            client = await nats.connect(self._plan.url)
            inbox = client.new_inbox()
            await client.subscribe(f"{inbox}.*", cb=self._hear)
            await client.flush()
            self._clients.append((client, plugin, inbox))

    async def close(self) -> None:
        """Disconnect."""
        for client, _, _ in self._clients:
            await client.close()

    async def ask(self, seconds: float) -> Window:
        """Ask for so long, and wait for what is still to come."""
        self._window = Window()
        self._answered.clear()
        began = time.perf_counter()
        self._end = began + seconds
        await (self._at_a_rate(began, seconds) if self._plan.per_second else self._in_flight())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while self._waiting:
                    self._answered.clear()
                    await self._answered.wait()
        if self._waiting:
            self._window.errors["NO_REPLY"] = len(self._waiting)
            self._waiting.clear()
        self._window.seconds = time.perf_counter() - began
        return self._window

    async def _at_a_rate(self, began: float, seconds: float) -> None:
        rate = self._plan.per_second
        assert rate is not None
        for number in range(int(rate * seconds)):
            due = began + number / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            await self._send(due)

    async def _in_flight(self) -> None:
        for _ in range(self._plan.in_flight):
            await self._send(time.perf_counter())
        await asyncio.sleep(max(0.0, self._end - time.perf_counter()))

    async def _send(self, due: float) -> None:
        self._number += 1
        client, plugin, inbox = self._clients[self._number % len(self._clients)]
        verb = "get" if self._random.random() < self._plan.gets else "set"
        fields: dict[str, Any] = {"key": key_of(self._random.randrange(KEYS))}
        if verb == "set":
            fields["value"] = value(self._number)
        reply = f"{inbox}.{self._number}"
        self._waiting[reply] = verb, due
        await client.publish(f"db.kv.{plugin}.{verb}", msgspec.json.encode(fields), reply=reply)

    async def _hear(self, message: Msg) -> None:
        verb, due = self._waiting.pop(message.subject, ("", 0.0))
        if not verb:
            return  # it came after its window
        now = time.perf_counter()
        reply = _REPLY.decode(message.data or b'{"success":false,"error_code":"NO_RESPONDERS"}')
        if reply.success:
            self._window.latencies.setdefault(verb, []).append((now - due) * 1000)
        else:
            self._window.errors[reply.error_code] = self._window.errors.get(reply.error_code, 0) + 1
        if self._plan.per_second is None and now < self._end:
            await self._send(now)
        elif not self._waiting:
            self._answered.set()


class CallerProcess:
    """Such a process, as seen by who started it."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def ask(self, seconds: float) -> Window:
        """Have it ask for so long."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n".encode())
        return msgspec.json.decode(await self._line(), type=Window)

    async def ready(self) -> None:
        """Wait until it is connected."""
        if await self._line() != b"ready\n":
            raise RuntimeError("a caller did not start")

    async def end(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def _line(self) -> bytes:
        assert self._process.stdout is not None
        return await self._process.stdout.readline()


@contextlib.asynccontextmanager
async def calling(plan: Plan) -> AsyncIterator[CallerProcess]:
    """A caller in a process of its own for the length of a block."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.caller", msgspec.json.encode(plan).decode()),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        limit=64 * 1024 * 1024,
    )
    caller = CallerProcess(process)
    try:
        await caller.ready()
        yield caller
    finally:
        await caller.end()


async def main(plan: Plan) -> None:
    """Ask whenever told to."""
    asker = Asker(plan)
    await asker.connect()
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        window = await asker.ask(float(line))
        print(msgspec.json.encode(window).decode(), flush=True)
    await asker.close()


if __name__ == "__main__":
    uvloop.run(main(msgspec.json.decode(sys.argv[1], type=Plan)))
