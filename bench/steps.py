"""How many bytecodes and Python functions a call takes: nearly the same on every machine, however busy.

All threads of this process are counted, and asyncio with them; C code is not, of which SQLite is the most.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import holdfast
from bench.doors import value
from bench.embedded import fill, key
from bench.peers import diskcache

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import FrameType

    from bench.run import Run

CALLS: Final = 64
"""The calls of a count, after as many that fill caches."""
KEYS: Final = 256


class Counter:
    """Counts what Python executes, in this thread and in those that are started later."""

    def __init__(self) -> None:
        self.bytecodes = self.functions = 0

    def trace(self, frame: FrameType, event: str, _: object) -> Any:
        """Count an event, as `sys.settrace` has it."""
        if event == "opcode":
            self.bytecodes += 1
        elif event == "call":
            self.functions += 1
            frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return self.trace

    async def count(self, work: Callable[[], Coroutine[Any, Any, object]]) -> tuple[float, float]:
        """Return the bytecodes and the functions of each of the calls of some work, which does it twice."""
        await work()
        self.bytecodes = self.functions = 0
        sys.settrace(self.trace)
        try:
            await asyncio.create_task(work())  # a task has frames of its own, which are traced
        finally:
            sys.settrace(None)
        return self.bytecodes / CALLS, self.functions / CALLS


async def steps(run: Run) -> None:
    """Bytecodes and functions of lone calls on an embedded store, and of sets of 64 tasks."""
    counter = Counter()
    threading.settrace(counter.trace)  # the writer's thread is started below
    try:
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            async with holdfast.open(Path(folder) / "store.db", reap=False) as store:
                kv = store.kv("bench")
                await fill(kv, KEYS)
                with diskcache.DiskCache(Path(folder) / "cache") as cache:
                    await _count(run, counter, kv, cache)
    finally:
        threading.settrace(None)


async def _count(run: Run, counter: Counter, kv: holdfast.KV, cache: diskcache.DiskCache) -> None:
    numbers = iter(range(10**9))

    def lone(call: Callable[[int], Any]) -> Callable[[], Coroutine[Any, Any, None]]:
        async def work() -> None:
            for _ in range(CALLS):
                await call(next(numbers))

        return work

    async def together() -> None:
        await asyncio.gather(*(kv.set(key(number), value(next(numbers))) for number in range(CALLS)))

    works = {
        "get": lone(lambda number: kv.get(key(number % KEYS))),
        "set": lone(lambda number: kv.set(key(number % KEYS), value(number))),
        "append": lone(lambda number: kv.append("log", value(number))),
        "append, once": lone(lambda number: kv.append("log", value(number), once=f"o{number}")),
        f"set of {CALLS} tasks": together,
        "get of diskcache": lone(lambda number: cache.get(key(number % KEYS))),
        "set of diskcache": lone(lambda number: cache.set(key(number % KEYS), value(number))),
    }
    for name, work in works.items():
        bytecodes, functions = await counter.count(work)
        run.book.add("steps.bytecodes", name, bytecodes, unit="bytecodes")
        run.book.add("steps.functions", name, functions, unit="functions")
