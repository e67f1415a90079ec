"""Ways to make a namespace keep more than its entries, and a look at what the database holds of it.

Everything goes through the public surface of a store; what comes of it is read with plain SQL.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import asyncpg

import holdfast
from holdfast.commands import Set

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

LARGE = "x" * 60_000
BULKY = {"purpose": "config", "ttl_reason": "x" * 500, "consumer_hints": ["h" * 100] * 16}
NAME = "n" * 200


async def overwrite_items(store: holdfast.Store, rounds: int) -> AsyncIterator[Awaitable[Any]]:
    """Put the same item again and again: the journal keeps how it was before and after."""
    tables = store.tables("p")
    await tables.create_table("t", partition_key=("id", "string"))
    for number in range(rounds):
        yield tables.put_item("t", {"id": "same", "number": number, "value": LARGE})


async def fill_the_trash(store: holdfast.Store, rounds: int) -> AsyncIterator[Awaitable[Any]]:
    """Put and delete ever new keys whose entries can be restored."""
    kv = store.kv("p")
    for number in range(rounds):
        yield kv.set(f"{number}", LARGE, semantics=BULKY)
        yield kv.delete(f"{number}")


async def have_replies_remembered(store: holdfast.Store, rounds: int) -> AsyncIterator[Awaitable[Any]]:
    """Name every request, and have large replies."""
    tables = store.tables("p")
    await tables.create_table("t", partition_key=("id", "string"), stream="keys")
    for number in range(rounds):
        fields: Any = {"request_id": f"{number:0200}", "return_values": "new"}
        yield tables.update_item("t", "same", set={"number": number, "value": LARGE}, **fields)


async def write_letters(store: holdfast.Store, rounds: int) -> AsyncIterator[Awaitable[Any]]:
    """Give up requests that are kept whole."""
    kv = store.kv("p")
    for number in range(rounds):
        given_up = kv.verbs.command(Set, key=f"{number}", value=LARGE, request_id=f"{number}")
        yield store.pipeline.call(kv.verbs.escalate(given_up, error_code="BUSY", message="", attempts=3))


async def take_locks(store: holdfast.Store, rounds: int) -> AsyncIterator[Awaitable[Any]]:
    """Take and release ever new locks, whose tokens stay."""
    kv = store.kv("p")
    for number in range(rounds * 10):
        yield kv.batch(writes=[{"guard": f"{number:0200}"}])


async def fill_indexes(store: holdfast.Store, rounds: int) -> AsyncIterator[Awaitable[Any]]:
    """Put small items that stand in many indexes under long keys."""
    tables = store.tables("p")
    await tables.create_table("t", partition_key=("id", "string"), stream="keys")
    names = [f"a{number}" for number in range(5)]
    for name in names:
        await tables.create_index("t", name, key=(name, "string"))
    for number in range(rounds * 2):
        yield tables.put_item("t", {"id": f"{number:0900}", **dict.fromkeys(names, "v" * 900)})


async def say_much_about_little(store: holdfast.Store, rounds: int) -> AsyncIterator[Awaitable[Any]]:
    """Put small values with large envelopes, and overwrite them."""
    kv = store.kv("p")
    for number in range(rounds * 10):
        yield kv.set(f"{number}", 1, semantics=BULKY, writer=NAME, request_id=f"{number:0200}", spec_ref=NAME)


ATTACKS: dict[str, Callable[[holdfast.Store, int], AsyncIterator[Awaitable[Any]]]] = {
    one.__name__: one
    for one in (
        overwrite_items,
        fill_the_trash,
        have_replies_remembered,
        write_letters,
        take_locks,
        fill_indexes,
        say_much_about_little,
    )
}

_COLUMNS = {
    "plugin_kv_storage": ("plugin_name", "key", "value_json"),
    "holdfast_rows": ("namespace", "space", "key", "value"),
    "holdfast_journal": ("namespace", "op", "key", "purpose", "detail"),
}
_TEXTS = {"holdfast_journal": ("last_writer", "request_id")}
_REST = ("last_writer", "request_id", "semantics", "spec_ref")


def _sums(size: str) -> list[str]:
    """The statements that sum up the bytes of every text in every row, whosesoever it is."""
    return [
        f"SELECT coalesce(sum({' + '.join(f'coalesce({size.format(column)}, 0)' for column in columns)}), 0) "
        f"FROM {table}"
        for table, first in _COLUMNS.items()
        for columns in [(*first, *_TEXTS.get(table, _REST))]
    ]


async def stored_bytes(url: str) -> int:
    """The bytes of all text in the database."""
    if url.startswith("postgresql"):
        connection = await asyncpg.connect(url)
        try:
            return sum([int(await connection.fetchval(one)) for one in _sums("octet_length({})")])
        finally:
            await connection.close()
    with closing(sqlite3.connect(url)) as database:
        return sum(database.execute(one).fetchone()[0] for one in _sums("length(CAST({} AS BLOB))"))
