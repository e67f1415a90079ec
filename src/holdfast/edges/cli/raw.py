"""Engines for commands that read or load the raw contents of a whole store.

Reading creates nothing, and a command that can't reach the raw contents says which URL would.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from holdfast import masking
from holdfast.edges.cli.schema import require_store
from holdfast.edges.settings.read import keys_of, read_config
from holdfast.engine.raw import Movable
from holdfast.errors import Unsupported
from holdfast.registry import engine_for, is_service

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.audit.keyring import Keyring


@asynccontextmanager
async def reading(url: str) -> AsyncIterator[Movable]:
    """Open a store for reading, also one that another process serves or that is not complete.

    Raises:
        Unavailable: There is no store.
        Unsupported: Its raw contents can't be reached there.
    """
    await require_store(url)
    async with _opened(url, reads=True) as engine:
        yield engine


@asynccontextmanager
async def writing(url: str) -> AsyncIterator[Movable]:
    """Open a store for loading, and create it if there is none.

    Raises:
        Unavailable: Another process writes to it.
        Unsupported: Its raw contents can't be reached there.
    """
    async with _opened(url, reads=False) as engine:
        await engine.ready()
        yield engine


@asynccontextmanager
async def _opened(url: str, *, reads: bool) -> AsyncIterator[Movable]:
    engine = engine_for(url, keys_at(url))
    if not isinstance(engine, Movable):
        raise Unsupported(
            f"the whole contents of {shown(url)} can't be reached there: give the path of the store's file, "
            "or the URL of its database (postgresql://) or of its cluster (cluster://), and run this where "
            "that is. A service tells its store at its start, as db"
        )
    engine.open_unfinished()
    if reads:
        engine.open_read_only()
    await engine.start()
    try:
        yield engine
    finally:
        await engine.aclose()


def shown(url: str) -> str:
    """Return the place of a store without credentials."""
    return masking.shown(url) if "://" in url else url


def keys_at(url: str) -> Keyring | None:
    """Return the keyring that signs the audit of the store at a URL; None if the store brings its own."""
    return None if is_service(url) else keys_of(read_config(db=url, log_level=None))
