"""The page about sensitive data tells the truth about where copies of a value are kept.

What is kept is looked up with SQL, behind the store's back, and compared with what the page says.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from typing import TYPE_CHECKING, Any, Final

import holdfast
from tests.docs.test_reference import read, section

if TYPE_CHECKING:
    from pathlib import Path

SECRET: Final = 8_675_309
"""A value that is nowhere else: not in a version, a size or a time."""


def kept(path: Path, query: str) -> list[tuple[Any, ...]]:
    """What a query finds in the file of a store."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def told() -> tuple[set[str], set[str]]:
    """The verbs whose remembered replies have the value, and those whose replies have none, by the page."""
    page = section(read("howto/sensitive-data.md"), "Where copies are kept")
    [row] = re.findall(r"^\| remembered requests \| (.*?) \|", page, re.MULTILINE)
    found = re.search(r"has the value for (.*) It has no value for (.*)", row)
    assert found is not None
    return set(re.findall(r"`(\w+)`", found[1])), set(re.findall(r"`(\w+)`", found[2]))


async def write_with_every_verb(store: holdfast.Store) -> None:
    """Have each verb write the secret, under a request id that is the verb's name."""
    kv, tables = store.kv("p"), store.tables("p")
    await kv.set("a", SECRET, semantics={"purpose": "note"}, request_id="set")
    await kv.set_ttl("a", 50, request_id="set_ttl")
    await kv.touch("a", 50, request_id="touch")
    await kv.remove_ttl("a", request_id="remove_ttl")
    await kv.delete("a", request_id="delete")
    await kv.restore("a", request_id="restore")
    await kv.incr("n", SECRET, request_id="incr")
    await kv.set_many([{"key": "b", "value": SECRET}], request_id="set_many")
    await kv.batch(writes=[{"key": "b", "value": SECRET}], request_id="batch")
    item = {"id": "1", "secret": SECRET}
    await tables.put_item("t", item, request_id="put_item")
    await tables.update_item("t", "1", set={"secret": SECRET}, request_id="update_item")
    await tables.delete_item("t", "1", request_id="delete_item")
    await tables.transact_write([{"put": {"table": "t", "item": item}}], request_id="transact_write")


async def test_remembered_requests_keep_the_values_that_the_page_names(tmp_path: Path) -> None:
    """Who repeats a request safely can look up whether the value stays behind for a day."""
    path = tmp_path / "state.db"
    async with holdfast.open(path) as store:
        await store.tables("p").create_table("t", partition_key=("id", "string"))
        await write_with_every_verb(store)
    query = "SELECT CAST(key AS TEXT), value FROM holdfast_rows WHERE space = 'request'"
    remembered = {name: str(SECRET) in value for name, value in kept(path, query)}
    values, none = told()
    assert {name for name, there in remembered.items() if there} == values
    assert {name for name, there in remembered.items() if not there} == none


async def test_journals_keep_the_values_that_the_page_names(tmp_path: Path) -> None:
    """The journal has images of items, unless the table's stream is `keys`, and never the value of a key."""
    path = tmp_path / "state.db"
    async with holdfast.open(path) as store:
        await store.kv("p").set("a", SECRET)
        images, bare = store.tables("images"), store.tables("bare")
        await images.create_table("t", partition_key=("id", "string"))
        await bare.create_table("t", partition_key=("id", "string"), stream="keys")
        for tables in (images, bare):
            await tables.put_item("t", {"id": "1", "secret": SECRET})
            await tables.delete_item("t", "1")
    rows = kept(path, "SELECT * FROM holdfast_journal")
    assert {row[0] for row in rows} == {"kv/p", "table/images", "table/bare"}
    assert {row[0] for row in rows if str(SECRET) in str(row)} == {"table/images"}
