"""A process that puts, copies, deletes and reads blobs without pause.

A line on standard output means that the call had returned before. It is to be killed at any moment.
"""

from __future__ import annotations

import asyncio
import random
import sys
from hashlib import sha256
from typing import TYPE_CHECKING

import holdfast
from holdfast.blobs.manifest import PART_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.handles.blobs import Blobs

NAMES = ("a", "b", "c", "d")
TORN = "torn"


def content(seed: int) -> bytes:
    """The bytes of a seed, which they name at their beginning; every block differs from all others."""
    return b"".join(pieces(seed))


def pieces(seed: int) -> Iterator[bytes]:
    """The same in pieces of odd sizes."""
    size = random.Random(seed).randrange(8, 9 * PART_BYTES)
    left, number = size - 8, 0
    yield seed.to_bytes(8, "big")
    while left:
        block = sha256(f"{seed} {number}".encode()).digest() * 3_001
        yield block[:left]
        left -= min(left, len(block))
        number += 1


def seed_of(data: bytes) -> int | None:
    """The seed of bytes; None if they are not those of any."""
    seed = int.from_bytes(data[:8], "big")
    return seed if len(data) >= 8 and content(seed) == data else None


async def main(url: str, life: int) -> None:
    """Write and read until killed."""
    async with holdfast.open(url, reap=False) as store:
        blobs = store.blobs("crash")
        await asyncio.gather(reading(blobs), *(writing(blobs, name, life) for name in NAMES))


async def writing(blobs: Blobs, name: str, life: int) -> None:
    """Put a blob, copy it and delete it now and then, and say so."""
    count = 0
    while True:
        seed = life * 1_000_000 + count * 10 + NAMES.index(name)
        blob = await blobs.put(name, pieces(seed))
        say(name, seed, blob.version)
        if count % 3 == 1:
            copy = await blobs.copy(name, f"{name}-copy")
            say(f"{name}-copy", seed, copy.version)
        if count % 5 == 4:
            await blobs.delete(f"{name}-copy")
            say(f"{name}-copy", 0, 0)
        count += 1


async def reading(blobs: Blobs) -> None:
    """Read what is there, and say if it is nothing that was put."""
    while True:
        for name in NAMES:
            reader = await blobs.get(name)
            data = None if reader is None else await reader.read()
            if data is not None and await asyncio.to_thread(seed_of, data) is None:
                say(TORN, 0, 0)
            await asyncio.sleep(0.005)


def say(name: str, seed: int, version: int) -> None:
    """Write a line at once."""
    sys.stdout.write(f"{name} {seed} {version}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
