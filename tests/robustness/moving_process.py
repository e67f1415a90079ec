"""A process that counts at a steady rate while its store moves from place to place.

It gives every increment a request id and repeats it until it is acknowledged, at the next place once
this one says that it has moved. So the counters add up to what it reports, or the move has lost or doubled
something. It ends when its standard input does, after the last acknowledgement.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time

import holdfast

COUNTERS = 64
WRITES = 2
"""The number of writes of one increment: the counter, and a key that stands for it."""
WORKERS = 16


class Load:
    """Increments, by request id, at the store's current place."""

    def __init__(self, places: list[str], rate: int) -> None:
        self._places = places
        self._pause = WORKERS * WRITES / rate
        self._place = 0
        self._stack = contextlib.AsyncExitStack()
        self._store: holdfast.Store | None = None
        self._opening = asyncio.Lock()
        self.done = 0
        self.ended = asyncio.Event()
        self.last = time.monotonic()
        self.gap = 0.0

    async def work(self, number: int) -> None:
        """Increment counters until the end, sooner after a pause, so that the rate is what was asked for."""
        turn, due = 0, time.monotonic()
        while not self.ended.is_set():
            due += self._pause
            turn += 1
            await self._increment(f"c{(number * 7 + turn) % COUNTERS}", f"{number}-{turn}")
            self.done += 1
            now = time.monotonic()
            self.gap = max(self.gap, now - self.last)
            self.last = now
            await asyncio.sleep(max(0.0, due - now))

    async def _increment(self, key: str, request_id: str) -> None:
        while True:
            place = self._place
            try:
                store = await self._opened()
                await store.kv("load").incr(key, request_id=request_id)
                await store.kv("load").set(f"of/{request_id}", {"n": request_id}, request_id=f"s{request_id}")
                return
            except holdfast.HoldfastError as error:
                if "has moved to" in error.message:
                    await self._next(place)
                else:
                    await asyncio.sleep(0.02)

    async def _opened(self) -> holdfast.Store:
        async with self._opening:
            if self._store is None:
                opened = holdfast.open(self._places[self._place], reap=False)
                self._store = await self._stack.enter_async_context(opened)
            return self._store

    async def _next(self, place: int) -> None:
        async with self._opening:
            if self._place == place:
                self._place += 1
                self._store = None

    async def run(self) -> None:
        """Work until standard input ends."""
        began = time.monotonic()
        async with self._stack:
            workers = [asyncio.create_task(self.work(number)) for number in range(WORKERS)]
            print("started", flush=True)
            await asyncio.to_thread(sys.stdin.read)
            self.ended.set()
            await asyncio.gather(*workers)
            rate = self.done * WRITES / (time.monotonic() - began)
        print(json.dumps({"done": self.done, "gap": self.gap, "writes_per_second": rate}), flush=True)


if __name__ == "__main__":
    asyncio.run(Load(sys.argv[2:], int(sys.argv[1])).run())
