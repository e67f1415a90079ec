"""The limit: a service that sends every request back, in Python, with the library that plugins use.

It does nothing but answer. `python -m bench.peers.echo URL` runs it.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import nats
import uvloop

if TYPE_CHECKING:
    from nats.aio.msg import Msg

DURABILITY = "keeps nothing: the limit of the bus"


async def main(url: str) -> None:
    """Answer until ended."""
    client = await nats.connect(url)

    async def answer(message: Msg) -> None:
        await client.publish(message.reply, message.data)

    await client.subscribe("db.kv.*.*", queue="echo", cb=answer)
    await client.flush()
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
