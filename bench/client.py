"""A process that asks one side, and who started it as seen from there.

It says `ready` once it is connected. For every line with a `Task` that it reads it works for so long, and
answers with one line: a `Window` as JSON. It ends with its input.

It knows doors and not sides. Every side has the same keys, values, seeds and order of work.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import uvloop

from bench.doors import DOORS, KEYS, key_of
from bench.measure import Window, closed_loop, merged, open_loop

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator

    from bench.doors import Door


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Whom to ask: a side's address, as so many plugins."""

    door: str
    url: str
    plugins: list[str]
    keys: int = KEYS
    seed: int = 1


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What to do: `gets` is the share of gets; at a rate, or else with so many requests in flight.

    With `fill` every key is written once instead, so that gets find something.
    """

    gets: float
    seconds: float
    in_flight: int = 1
    per_second: float | None = None
    fill: bool = False


class Asker:
    """Asks through a door, as each of its plugins in turn."""

    def __init__(self, plan: Plan, door: Door) -> None:
        self._plan = plan
        self._door = door
        self._random = random.Random(plan.seed)
        self._sets = 0

    async def work(self, task: Task) -> Window:
        """Do a task."""
        if task.fill:
            return await self._fill(task.in_flight)

        async def ask(number: int) -> None:
            plugin, key = number % len(self._plan.plugins), key_of(self._random.randrange(self._plan.keys))
            if self._random.random() < task.gets:
                await self._door.get(plugin, key)
            else:
                self._sets += 1
                await self._door.set(plugin, key, self._sets)

        if task.per_second is not None:
            return await open_loop(ask, per_second=task.per_second, seconds=task.seconds)
        return await closed_loop(ask, in_flight=task.in_flight, seconds=task.seconds)

    async def _fill(self, in_flight: int) -> Window:
        gate = asyncio.Semaphore(in_flight)

        async def put(plugin: int, key: int) -> None:
            async with gate:
                await self._door.set(plugin, key_of(key), 0)

        plugins = range(len(self._plan.plugins))
        await asyncio.gather(*(put(plugin, key) for plugin in plugins for key in range(self._plan.keys)))
        return Window()


class ClientProcess:
    """Such a process, as seen by who started it."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.pid = process.pid

    async def work(self, task: Task) -> Window:
        """Have it do a task."""
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(task) + b"\n")
        return msgspec.json.decode(await self._line(), type=Window)

    async def ready(self) -> None:
        """Wait until it is connected."""
        if await self._line() != b"ready\n":
            raise RuntimeError("a client did not start")

    async def end(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def _line(self) -> bytes:
        assert self._process.stdout is not None
        return await self._process.stdout.readline()


class Clients:
    """Several such processes that ask the same side at the same time."""

    def __init__(self, processes: list[ClientProcess]) -> None:
        self._processes = processes

    async def work(self, task: Task) -> Window:
        """Share a task's requests among them."""
        return merged(await self.each(task))

    async def each(self, task: Task) -> list[Window]:
        """Share a task's requests among them, and return what came of each."""
        share = 1 / len(self._processes)
        each = msgspec.structs.replace(
            task,
            in_flight=max(1, round(task.in_flight * share)),
            per_second=None if task.per_second is None else task.per_second * share,
        )
        return await asyncio.gather(*(process.work(each) for process in self._processes))


@contextlib.asynccontextmanager
async def client_process(plan: Plan) -> AsyncIterator[ClientProcess]:
    """A client in a process of its own for the length of a block."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.client", msgspec.json.encode(plan).decode()),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        limit=256 * 1024 * 1024,
    )
    client = ClientProcess(process)
    try:
        await client.ready()
        yield client
    finally:
        await client.end()


@contextlib.asynccontextmanager
async def clients(plan: Plan, *, processes: int = 1) -> AsyncIterator[Clients]:
    """So many of them for the length of a block, each with another seed."""
    async with contextlib.AsyncExitStack() as stack:
        plans = [msgspec.structs.replace(plan, seed=number + 1) for number in range(processes)]
        yield Clients([await stack.enter_async_context(client_process(each)) for each in plans])


async def main(plan: Plan) -> None:
    """Work whenever told to."""
    door = DOORS[plan.door]()
    await door.open(plan.url, plan.plugins)
    asker = Asker(plan, door)
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        window = await asker.work(msgspec.json.decode(line, type=Task))
        print(msgspec.json.encode(window).decode(), flush=True)
    await door.close()


if __name__ == "__main__":
    uvloop.run(main(msgspec.json.decode(sys.argv[1], type=Plan)))
