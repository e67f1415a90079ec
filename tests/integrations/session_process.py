"""A program that adds to and pops from a session of the OpenAI Agents SDK, as a process of its own.

    python -m tests.integrations.session_process URL NAME

It prints a line once it is ready, begins when a line comes, and prints the items that it popped.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

import holdfast
from holdfast.integrations.openai_agents import HoldfastSession

if TYPE_CHECKING:
    from holdfast.store import Store

TURNS = 8


async def talk(store: Store, name: str) -> list[Any]:
    """Add items in pairs, and pop one after every fourth pair. Returns what was popped."""
    session, popped = HoldfastSession("shared", store.kv("desk")), []
    for number in range(TURNS):
        await session.add_items([{"role": "user", "content": f"{name} {number}{half}"} for half in "ab"])
        if number % 4 == 3:
            popped.append(await session.pop_item())
    return popped


async def main(url: str, name: str) -> None:
    """Take part when told to."""
    async with holdfast.open(url) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        print(json.dumps(await talk(store, name)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
