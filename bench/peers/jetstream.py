"""JetStream's key-value buckets: the nats-server keeps them in files.

Two of them, as the server comes and with every write synced before it is answered.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.edges.nats.server import NatsServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

DURABILITY: Final = {
    "jetstream": "file storage as it comes: answered from memory, synced every two minutes",
    "jetstream-sync": "file storage with sync_interval: always, synced before it is answered",
}


@contextlib.asynccontextmanager
async def jetstream(folder: Path, *, sync: bool) -> AsyncIterator[str]:
    """A nats-server with JetStream, and its address."""
    data = folder / ("jetstream-sync" if sync else "jetstream")
    always = "  sync_interval: always\n" if sync else ""
    config = f'jetstream {{\n  store_dir: "{data / "store"}"\n{always}}}\n'
    async with NatsServer(data, port=None, config=config) as server:
        yield server.url
