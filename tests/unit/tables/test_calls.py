"""Tables through a store in memory: interrupted work, indexes that are wrong, calls of odd form."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest

import holdfast
from holdfast.clock import ManualClock
from holdfast.commands import Removed
from holdfast.decide.schemas import schema_of
from holdfast.engine import Scan
from holdfast.errors import Busy, DatabaseError, Unavailable, ValidationError, ValueTooLarge
from holdfast.handles import table_walks
from holdfast.handles.tables import Tables as HandleOnTables
from holdfast.rows import DROPPED, Address
from holdfast.tables.commands import VERBS, ExpireItems, FillIndex
from holdfast.tables.schema import KeyAttribute
from holdfast.verbs.fields import Provenance, Viewing
from holdfast.verbs.tables import Expecting, Walk
from tests.verbs import TableVerbs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from holdfast.engines.memory import MemoryEngine
    from holdfast.handles.tables import Tables
    from holdfast.model import ItemPage
    from holdfast.rows import Row
    from holdfast.store import Store

NAME = "table/p"


@pytest.fixture
def clock() -> ManualClock:
    """The store's time."""
    return ManualClock()


@pytest.fixture
async def store(clock: ManualClock) -> AsyncIterator[Store]:
    """A store in memory."""
    async with holdfast.open("memory://", clock=clock, reap=False) as store:
        yield store


@pytest.fixture
async def tables(store: Store) -> Tables:
    """A plugin with a table of ten items."""
    tables = store.tables("p")
    await tables.create_table(
        "t", partition_key=KeyAttribute("p", "string"), sort_key=("s", "number"), ttl_attribute="e"
    )
    for number in range(10):
        await tables.put_item("t", {"p": "a", "s": number, "tag": "x"})
    return tables


@pytest.fixture
def verbs(store: Store) -> TableVerbs:
    """What makes commands for the plugin."""
    return TableVerbs(store.pipeline.verbs(NAME))


def engine_of(store: Store) -> MemoryEngine:
    """Where the rows are."""
    engine: Any = store._engine
    return engine  # type: ignore[no-any-return]


async def leftovers(store: Store, space: str) -> int:
    """How many rows a space has."""
    found = await store.pipeline.scan(
        Scan(namespace=NAME, space=space, start=b"", limit=1000, max_bytes=1 << 20)
    )
    return len(found.keys)


async def test_an_index_that_was_begun_is_gone_on_with(
    store: Store, tables: Tables, verbs: TableVerbs
) -> None:
    """An index that nobody filled answers BUSY and is not whole; the same call makes it so."""
    fields = {"table": "t", "index": "by", "index_key": {"name": "tag", "type": "string"}}
    begun: Any = await store.pipeline.execute(verbs.create_index(fields))
    await tables.put_item("t", {"p": "b", "s": 0, "tag": "x"})
    with pytest.raises(Busy):
        await tables.query_index("t", "by", "x")
    checked = await tables.check_index("t", "by")
    assert (checked["consistent"], checked["missing"], checked["entries"]) == (False, 10, 1)
    with pytest.raises(ValidationError):
        await tables.create_index("t", "by", key=("tag", "number"))
    made = await tables.create_index("t", "by", key=("tag", "string"))
    assert made["indexes"][0]["state"] == "ready"
    assert len((await tables.query_index("t", "by", "x")).items) == 11
    assert (await tables.check_index("t", "by"))["consistent"] is True
    assert begun.schema.index("by").id < made["version"]


async def test_a_repeated_call_fills_an_index_only_if_nobody_did(
    store: Store, tables: Tables, verbs: TableVerbs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its request id the call goes on where it was interrupted, and then fills nothing again."""
    execute, fills = store.pipeline.call, list[FillIndex]()

    async def counted(command: Any) -> Any:
        if isinstance(command, FillIndex):
            fills.append(command)
        return await execute(command)

    monkeypatch.setattr(store.pipeline, "call", counted)
    fields = {"table": "t", "index": "by", "index_key": {"name": "tag", "type": "string"}, "request_id": "r"}
    begun: Any = await store.pipeline.execute(verbs.create_index(fields))
    made = await tables.create_index("t", "by", key=("tag", "string"), request_id="r")
    assert (made["version"], made["indexes"][0]["state"], len(fills)) == (begun.version, "ready", 1)
    assert (await tables.check_index("t", "by"))["consistent"] is True
    assert await tables.create_index("t", "by", key=("tag", "string"), request_id="r") == made
    await tables.drop_table("t")
    assert await tables.create_index("t", "by", key=("tag", "string"), request_id="r") == made
    assert len(fills) == 1


async def test_backfilling_a_filled_index_changes_nothing(store: Store, tables: Tables) -> None:
    """If two callers fill an index at once, the second one uses no version."""
    made = await tables.create_index("t", "by", key=("tag", "string"))
    before = await store.stats(NAME)
    fill = FillIndex(namespace=NAME, table="t", space="item/1", index_id=made["version"], keys=(), last=True)
    assert await store.pipeline.call(fill) == Removed(0)
    assert await store.stats(NAME) == before


@pytest.mark.parametrize("verb", ["drop_table", "drop_index"])
async def test_next_upkeep_finishes_an_interrupted_drop(
    store: Store, tables: Tables, verbs: TableVerbs, clock: ManualClock, verb: str
) -> None:
    """A drop that was interrupted is ended by upkeep, with rows that have expired, and counted right."""
    await tables.create_index("t", "by", key=("tag", "string"))
    await tables.set_ttl("t", "a", 3, 5)
    clock.advance(5)
    done: Any = await store.pipeline.execute(getattr(verbs, verb)({"table": "t", "index": "by"}))
    space = done.schema.item_space if verb == "drop_table" else f"index/{done.schema.id}/12"
    assert await leftovers(store, space) == 9
    assert (await store.stats(NAME)).keys == 10
    await store.upkeep()
    assert await leftovers(store, space) == 0
    assert await leftovers(store, DROPPED) == 0
    rows = [address for address in engine_of(store)._rows if address.space == space]
    assert rows == []
    assert (await store.stats(NAME)).keys == (0 if verb == "drop_table" else 10)


async def test_check_index_counts_what_is_wrong(store: Store, tables: Tables) -> None:
    """An entry that is missing and one that nobody asked for are found, whatever else is right."""
    await tables.create_index("t", "by", key=("tag", "string"))
    engine = engine_of(store)
    entries = [address for address in engine._rows if address.space.startswith("index/")]
    moved = engine._rows[entries[0]]
    engine._put(entries[0], None)
    engine._put(Address(NAME, entries[0].space, b"zz"), moved)
    assert await tables.check_index("t", "by") == {
        "consistent": False,
        "items": 10,
        "entries": 10,
        "missing": 1,
        "extra": 1,
    }


async def test_an_entry_of_no_item_shows_nothing(store: Store, tables: Tables) -> None:
    """A query of an index gives items that are there, whatever an entry says."""
    await tables.create_index("t", "by", key=("tag", "string"))
    engine = engine_of(store)
    [item] = [address for address in engine._rows if address.space == "item/1"][:1]
    engine._put(item, None)
    found = await tables.query_index("t", "by", "x", limit=3)
    assert [one.value["s"] for one in found.items] == [1, 2, 3]
    assert (await tables.check_index("t", "by"))["extra"] == 1


async def test_an_index_that_was_dropped_gets_no_entries(store: Store, tables: Tables) -> None:
    """Whoever still fills an index that is gone, or that of a table that is gone, leaves nothing behind."""
    made = await tables.create_index("t", "by", key=("tag", "string"))
    [*keys] = [address.key for address in engine_of(store)._rows if address.space == "item/1"]
    fill = FillIndex(
        namespace=NAME,
        table="t",
        space="item/1",
        index_id=made["version"],
        keys=tuple(keys),  # type: ignore[arg-type]
        last=True,
    )
    await tables.drop_index("t", "by")
    assert await store.pipeline.call(fill) == Removed(0)
    await tables.drop_table("t")
    assert await store.pipeline.call(fill) == Removed(0)
    assert [address for address in engine_of(store)._rows if address.space.startswith("index/")] == []


@pytest.mark.parametrize("at", [2, 3])
async def test_check_index_is_not_fooled_by_a_write(
    store: Store, tables: Tables, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """A write between the look at the items and that at the entries, or the other way round, is no fault."""
    await tables.create_index("t", "by", key=("tag", "string"))
    rows, looks = store.pipeline.rows, 0

    async def interrupted(addresses: Sequence[Address]) -> list[Row | None]:
        nonlocal looks
        looks += 1
        if looks == at:
            await tables.update_item("t", "a", 4, set={"tag": "y"})
        return await rows(addresses)

    monkeypatch.setattr(store.pipeline, "rows", interrupted)
    checked = await tables.check_index("t", "by")
    assert (checked["consistent"], looks) == (True, 4), checked


async def test_a_query_of_an_index_finds_items_as_they_are_now(store: Store, tables: Tables) -> None:
    """An item that changed after its entry was read is shown if it still has the value, and only then."""
    await tables.create_index("t", "by", key=("tag", "string"))
    await tables.put_item("t", {"p": "z", "s": 1, "tag": "w", "n": 0})
    await tables.put_item("t", {"p": "z", "s": 2, "tag": "w", "n": 0})
    await tables.update_item("t", "z", 1, add={"n": 1})  # its entry stays as it is
    assert [item.value["n"] for item in (await tables.query_index("t", "by", "w")).items] == [1, 0]
    rows = engine_of(store)._rows
    [moved] = [at for at, row in rows.items() if '"s":2,"tag":"w"' in (row.value or "")]
    changed = (rows[moved].value or "").replace('"w"', '"v"')
    rows[moved] = msgspec.structs.replace(rows[moved], value=changed, version=rows[moved].version + 100)
    assert [item.value["s"] for item in (await tables.query_index("t", "by", "w")).items] == [1]


async def test_a_page_that_finds_little_is_short(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page looks at so much and no more; its cursor goes on where it stopped, also if it is empty."""
    await tables.create_index("t", "by", key=("tag", "string"))
    monkeypatch.setattr(table_walks, "STEP", 4)
    monkeypatch.setattr(table_walks, "PART", 4 * table_walks.LEAST)
    walks: list[Callable[..., Awaitable[ItemPage]]] = [
        partial(tables.query, "t", "a"),
        partial(tables.query_index, "t", "by", "x"),
    ]
    for walk in walks:
        found, pages, cursor = [], 0, None
        while pages == 0 or cursor is not None:
            page = await walk(filter={"s": {"gt": 8}}, cursor=cursor)
            found += [item.value["s"] for item in page.items]
            pages, cursor = pages + 1, page.cursor
        assert (found, pages) == ([9], 3)


async def test_a_sweep_removes_nothing_early(store: Store, tables: Tables) -> None:
    """Whoever says that an item has expired is not believed: each is looked at again."""
    [*keys] = [address.key for address in engine_of(store)._rows if address.space.startswith("item/")]
    for space, some in (("item/1", tuple(keys)), ("item/1", (b"nothing",)), ("item/99", tuple(keys))):
        command = ExpireItems(namespace=NAME, table="t", space=space, keys=some)  # type: ignore[arg-type]
        assert await store.pipeline.call(command) == Removed(0)
    assert len((await tables.scan("t")).items) == 10


async def test_several_items_must_fit_into_an_answer(tables: Tables) -> None:
    """A batch of items that an answer could not hold is refused, by the name of the field."""
    for number in range(2):
        await tables.put_item("t", {"p": "big", "s": number, "pad": "x" * 300_000})
    with pytest.raises(ValueTooLarge) as caught:
        await tables.batch_get_item("t", [("big", 0), ("big", 1)])
    assert caught.value.field == "keys"


async def test_stream_keys_keeps_no_images(tables: Tables) -> None:
    """With the stream `keys` the journal says which items changed and nothing of what they were."""
    await tables.create_table("u", partition_key=("id", "binary"), stream="keys")
    await tables.put_item("u", {"id": b"\x00\xff", "x": 1})
    [found] = await tables.batch_get_item("u", [b"\x00\xff"])
    assert found is not None
    [change] = (await tables.changes("u")).changes
    assert (change.partition_key, change.sort_key, change.old, change.new) == ("AP8=", None, None, None)


async def test_calls_of_odd_form_are_refused(tables: Tables) -> None:
    """What is no item, no write, no condition and no key is named by its field, and nothing defects."""
    odd: Any = [1]
    deep: Any = []
    for _ in range(80):
        deep = [deep]
    for call, field in (
        (tables.put_item("t", odd), "item"),
        (tables.query("t", "a", sk=odd), "sort_key_condition"),
        (tables.transact_write([odd]), "writes"),
        (tables.transact_write([{"put": odd}]), "writes"),
        (tables.transact_write([{"put": {}, "delete": {}}]), "writes"),
        (tables.get_item("t", odd, 1), "partition_key"),
        (tables.update_item("t", "a", 1, set={"x": deep}), "set"),
        (tables.create_table("u", partition_key=odd), "partition_key"),
    ):
        with pytest.raises(ValidationError) as caught:
            await call
        assert caught.value.field == field
    big = {"p": "a", "s": 1, "pad": "x" * 300_000}
    for several in (
        tables.transact_write([{"put": {"table": "t", "item": big | {"s": number}}} for number in (1, 2)]),
        tables.batch_write_item("t", [{"put": {"item": big | {"s": number}}} for number in (1, 2)]),
    ):
        with pytest.raises(ValueTooLarge):
            await several


def test_a_definition_that_cannot_be_read_is_told() -> None:
    """A stored definition that is none is an error of the database, not a defect."""
    with pytest.raises(DatabaseError):
        schema_of('{"name": 1}')


async def test_a_reaper_outlives_an_error(
    tables: Tables, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A sweep that fails is logged, and the next one does its work."""
    await tables.put_item("t", {"p": "a", "s": 1, "e": clock.now() // 1000 - 1})
    listed, swept, calls = tables.list_tables, asyncio.Event(), 0

    async def failing() -> list[str]:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise Unavailable("not now")
        if calls == 3:
            swept.set()
        return ["dropped", *await listed()]

    monkeypatch.setattr(tables, "list_tables", failing)
    with caplog.at_level(logging.ERROR, "holdfast.tables"):
        reaper = tables.start_reaper(interval=0.001)
        async with asyncio.timeout(60):
            await swept.wait()
        await reaper.stop()
    assert [record.getMessage() for record in caplog.records] == [
        "sweeping the tables of table/p failed: not now"
    ]
    assert [change.op for change in (await tables.changes("t")).changes][-1] == "expired"


OPTIONS: Final[dict[str, Any]] = {
    "Provenance": Provenance,
    "Expecting": Expecting,
    "Viewing": Viewing,
    "Walk": Walk,
}
NAMED: Final = {"sk": "sort_key_condition", "key": "index_key", "writer": "last_writer"}
"""Arguments of handles that have another name in messages."""
APART: Final = {"timeout", "deadline", "deadline_ms", "binary"}
"""What a message says otherwise than a program: when the caller gives up, and which values are bytes."""


@pytest.mark.parametrize("verb", VERBS)
def test_a_program_can_give_what_a_request_can(verb: str) -> None:
    """A method of the handle has the arguments that its verb declares, and no others."""
    arguments: set[str] = set()
    for name, parameter in inspect.signature(getattr(HandleOnTables, verb)).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            [group] = re.findall(r"Unpack\[(\w+)\]", str(parameter.annotation))
            arguments |= OPTIONS[group].__annotations__.keys()
        elif name != "self":
            arguments.add(name)
    given = {NAMED.get(name, name) for name in arguments}
    unlike = {"table"} if verb == "transact_write" else {"return_values"} if verb.endswith("_ttl") else set()
    assert given - APART == VERBS[verb].names - APART - unlike
