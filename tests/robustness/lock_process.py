"""A holder of a lock as a process of its own, to be stopped and killed at any moment.

It does what a line on its standard input tells it to and answers each with a line: `take` with the
token, `write` with `done` or the code of the error that refused it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING

import holdfast
from tests.forking import ForkedProcess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.handles.recipes.lock import Lock

PATIENCE = 60.0
OWNER = "holder:process"


async def obey(url: str, ttl: int) -> None:
    """Take the lock and write with its fence, as told, until the orders end."""
    loop, orders = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    async with holdfast.open(url) as store:
        kv = store.kv("work")
        lock = kv.lock("job", ttl=ttl, owner=OWNER)
        while order := await orders.readline():
            if order == b"take\n":
                lock = kv.lock("job", ttl=ttl, owner=OWNER)
                await lock.acquire()
                answer = str(lock.token)
            else:
                answer = await written(kv, lock)
            sys.stdout.write(f"{answer}\n")
            sys.stdout.flush()


async def written(kv: holdfast.KV, lock: Lock) -> str:
    """Write with the fence of a lock, held or lost; how that ended."""
    try:
        await kv.set("result", "of the holder", fence=lock.fence)
    except holdfast.HoldfastError as error:
        return error.code
    return "done"


class Holder:
    """Such a process, and how to tell it what to do."""

    def __init__(self, process: ForkedProcess) -> None:
        self.process = process

    async def tell(self, order: str) -> None:
        """Give an order; it is carried out when the process runs."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{order}\n".encode())

    async def answer(self) -> str:
        """What it answered to the oldest order that it has not yet answered."""
        async with asyncio.timeout(PATIENCE):
            return (await self.process.stdout.readline()).decode().strip()

    async def ask(self, order: str) -> str:
        """Give an order and wait for the answer."""
        await self.tell(order)
        return await self.answer()


@contextlib.asynccontextmanager
async def holder_process(url: str, *, ttl: int) -> AsyncIterator[Holder]:
    """A holder in a process of its own for the length of a block."""
    process = await ForkedProcess.start("tests.robustness.lock_process", url, str(ttl), told=True)
    try:
        yield Holder(process)
    finally:
        process.kill()
        await process.communicate()


if __name__ == "__main__":
    asyncio.run(obey(sys.argv[1], int(sys.argv[2])))
