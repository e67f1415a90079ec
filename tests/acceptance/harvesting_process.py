"""Harvesters that share one checkpoint: each takes the next unit by advancing it, and works on what it took.

It speaks to its parent in lines. It says `ready` when every task has read the checkpoint, is told to go,
and says at its end which units its tasks have worked on and how often they came too late.
"""

from __future__ import annotations

import asyncio
import json
import sys

import holdfast


class Harvester:
    """One task with a checkpoint of its own to remember where it was."""

    def __init__(self, project: holdfast.KV, name: str) -> None:
        self._checkpoint = project.checkpoint("harvest", order=int, owner=name)
        self._at = 0
        self.units: list[int] = []
        self.conflicts = 0

    async def look(self) -> None:
        """Read how far all of them have come."""
        entry = await self._checkpoint.load()
        self._at = 0 if entry is None else entry.value

    async def work(self, units: int) -> None:
        """Take one unit after the other until there is none left."""
        while self._at < units:
            try:
                entry = await self._checkpoint.advance(self._at + 1)
            except holdfast.VersionConflict:
                self.conflicts += 1
                await self.look()
            else:
                self._at = entry.value
                self.units.append(self._at)


async def harvest(url: str, name: str, tasks: int, units: int) -> None:
    """Let so many tasks work through so many units."""
    async with holdfast.open(f"{url}?timeout=600") as store:
        project = store.semantic("acme", "web")
        harvesters = [Harvester(project, f"{name}-{number}:harvest") for number in range(tasks)]
        await asyncio.gather(*(harvester.look() for harvester in harvesters))
        say("ready")
        await asyncio.to_thread(sys.stdin.readline)
        await asyncio.gather(*(harvester.work(units) for harvester in harvesters))
    done = [unit for harvester in harvesters for unit in harvester.units]
    say({"units": done, "conflicts": sum(harvester.conflicts for harvester in harvesters)})


def say(content: object) -> None:
    """Tell the parent."""
    sys.stdout.write(json.dumps(content) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(harvest(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
