"""An agent that remembers, and a follower that keeps an index of its memories in step.

    python examples/memory_follower.py
    HOLDFAST_URL=nats://127.0.0.1:4222 python examples/memory_follower.py

The first run prints

    following from the beginning
    set memory/ada/visits
    set memory/ada/visit-1
    index: visit-1 = 'talked about tea', visits = 1

and the second, whose follower goes on where the first one stopped,

    following from version 2
    set memory/ada/visits
    deleted memory/ada/visit-1
    set memory/ada/visit-2
    index: visit-2 = 'talked about tea', visits = 2
"""

import asyncio
import os

import holdfast

WHY = {"purpose": "memory", "producer": "assistant"}


async def think(memory: holdfast.KV) -> int:
    """The agent: note a visit, forget the one before. Returns the version of its last change."""
    visits = await memory.update("memory/ada/visits", lambda count: count + 1, default=0, semantics=WHY)
    if visits.value > 1:
        await memory.delete(f"memory/ada/visit-{visits.value - 1}", writer="assistant:forget")
    key = f"memory/ada/visit-{visits.value}"
    visit = await memory.set(key, "talked about tea", semantics=WHY, writer="assistant:chat")
    return visit.version


async def follow(memory: holdfast.KV, index: holdfast.KV, until: int) -> None:
    """The follower: apply every change behind its cursor. A change that was not finished comes again."""
    cursor = index.cursor("memories")
    entry = await cursor.load()
    print(f"following from version {entry.value}" if entry else "following from the beginning")
    async for change in memory.watch("memory/", since=entry.value if entry else 0):
        if change.op == "gap":
            await rebuild(memory, index)
        else:
            await apply(memory, index, change)
        await cursor.advance(change.version)
        if change.version >= until:  # a real follower goes on for ever
            return


async def apply(memory: holdfast.KV, index: holdfast.KV, change: holdfast.Change) -> None:
    """Bring the index in step with one key. A change names the key, and what counts is its value now."""
    print(change.op, change.key)
    entry = await memory.get(change.key)
    if entry is None:
        await index.delete(change.key)
    else:
        await index.set(change.key, entry.value)


async def rebuild(memory: holdfast.KV, index: holdfast.KV) -> None:
    """Make the index anew, for a follower that was away for longer than the journal reaches back."""
    while (await index.delete_prefix("memory/")).truncated:
        pass
    cursor = None
    while True:
        page = await memory.list("memory/", values=True, cursor=cursor)
        await asyncio.gather(*(index.set(entry.key, entry.value) for entry in page.entries or []))
        if (cursor := page.cursor) is None:
            return


async def main() -> None:
    """Let the agent think, then let the follower catch up."""
    async with holdfast.open(os.environ.get("HOLDFAST_URL", "memory_follower.db")) as store:
        memory, index = store.kv("assistant"), store.kv("memory-index")
        await follow(memory, index, until=await think(memory))
        page = await index.list("memory/ada/", values=True)
        print("index:", ", ".join(f"{entry.key[11:]} = {entry.value!r}" for entry in page.entries or []))


if __name__ == "__main__":
    asyncio.run(main())
