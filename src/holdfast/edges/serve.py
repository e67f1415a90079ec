"""The composition root: opens what the configuration names, and runs it until it is told to stop.

Law: parts are put together here and nowhere else.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.edges.config import Config


async def serve(config: Config, *, say: Callable[[str], None] = print) -> None:
    """Open the store, keep it swept, and close it cleanly on SIGINT or SIGTERM.

    Raises:
        HoldfastError: The store can't be opened, or another process writes to it.
    """
    logging.basicConfig(level=config.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if "://" not in config.db:
        Path(config.db).parent.mkdir(parents=True, exist_ok=True)
    stop = _stop_signal()
    async with holdfast.open(config.db) as store:
        await store.ready()
        namespaces = await store.namespaces()
        keys = sum(stats.keys for stats in namespaces)
        say(f"Holdfast keeps {keys} keys in {len(namespaces)} namespaces at {shown(config.db)}")
        say("Expired entries are removed as they fall due. Ctrl-C stops.")
        await stop.wait()
    say("Holdfast has stopped.")


def shown(db: str) -> str:
    """Where a store is, without a password."""
    scheme, separator, rest = db.partition("://")
    if not separator:
        return str(Path(db).absolute())
    credentials, at, place = rest.rpartition("@")
    return f"{scheme}://{credentials.partition(':')[0]}{at}{place}"


def _stop_signal() -> asyncio.Event:
    """An event that SIGINT or SIGTERM sets; from now on neither ends the process by itself."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop
