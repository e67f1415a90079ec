"""Several processes that work on one store at once.

    python -m tests.integrations.crowd MODULE FUNCTION URL NAME

Each prints a line once it has the store open, begins when a line comes, and calls the function with the
store and its name.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from typing import TYPE_CHECKING

import holdfast
from tests.forking import ForkedProcess

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from holdfast.store import Store
    from tests.integrations.grounds import Ground


async def crowd(ground: Ground, names: Sequence[str], work: Callable[[Store, str], Awaitable[None]]) -> None:
    """Let a process for each name do some work, a function of a test module, all at once."""
    near = ground.kind != "sqlite"  # SQLite remembers files that it has had open, and a fork closes them
    processes = [
        await ForkedProcess.start(
            *("tests.integrations.crowd", work.__module__, work.__name__, ground.url, name),
            told=True,
            near=near,
        )
        for name in names
    ]
    async with asyncio.timeout(60):
        for process in processes:
            assert await process.stdout.readline() == b"ready\n"
        await asyncio.gather(*(process.communicate(b"\n") for process in processes))
    assert [process.returncode for process in processes] == [0] * len(names)


async def main(module: str, function: str, url: str, name: str) -> None:
    """Take part when told to."""
    work = getattr(importlib.import_module(module), function)
    async with holdfast.open(url) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        await work(store, name)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
