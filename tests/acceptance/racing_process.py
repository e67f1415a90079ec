"""A worker with nothing but the plain NATS library: it reads an entry, waits for the start, and writes to it.

It speaks to its parent in lines. It says the version that it has read, is told to go, and says the reply
that it got, as it came; then it begins again, until its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import nats

PATIENCE = 60.0


async def race(url: str, subject: str, key: str, name: str) -> None:
    """Race for an entry as often as the parent says so."""
    client = await nats.connect(url)

    async def ask(verb: str, **fields: Any) -> dict[str, Any]:
        payload = json.dumps({"key": key, "deadlineMs": 60_000, **fields}).encode()
        reply = await client.request(f"{subject}.{verb}", payload, timeout=PATIENCE)
        answer: dict[str, Any] = json.loads(reply.data)
        return answer

    found = await ask("get")
    say({"version": found.get("version", 0)})
    while await asyncio.to_thread(sys.stdin.readline):
        version = found.get("version", 0)
        value = {"by": name, "after": version}
        semantics = {"purpose": "checkpoint", "producer": name}
        writer = f"{name}:race"
        say(await ask("put", value=value, expectedVersion=version, lastWriter=writer, semantics=semantics))
        found = await ask("get")
        say({"version": found["version"]})
    await client.close()


def say(content: object) -> None:
    """Tell the parent."""
    sys.stdout.write(json.dumps(content) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(race(*sys.argv[1:]))
