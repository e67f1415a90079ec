"""The answers to commands on tables that need more than to be executed.

The pipeline of a store has them answered here, for handles and doors alike. A call that writes submits its
command before it waits for anything, and a call that reads opens its view at that point. So calls take effect
in the order in which they begin.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec

from holdfast import rules
from holdfast.bounded import Bounded
from holdfast.commands import Command, WriteCommand
from holdfast.decide.schemas import defined, schema_address
from holdfast.errors import HoldfastError, TtlNotConfigured, Unsupported, ValidationError, ValueTooLarge
from holdfast.handles.table_walks import (
    ALL,
    AT_ONCE,
    Shown,
    check_index,
    fill_index,
    page_of_index,
    page_of_items,
    schema_at,
    sweep,
    tables_at,
)
from holdfast.model import Item, ItemPage
from holdfast.pace import in_turns
from holdfast.pipeline.pipeline import Pipeline, View, revealed
from holdfast.pipeline.watch import records_after
from holdfast.rows import Address, Row
from holdfast.stored import item_of, stored_item
from holdfast.tables.commands import (
    CheckIndex,
    CreateIndex,
    CreateTable,
    DescribeTable,
    DropIndex,
    DropTable,
    GetItem,
    GetItems,
    GetItemTtl,
    ItemDone,
    ListTables,
    Query,
    QueryIndex,
    ReadItemChanges,
    RevealItem,
    ScanItems,
    SweepItems,
    TransactWrite,
    WriteItems,
)
from holdfast.tables.items import named_key, partition_of, seconds_left, table_prefix
from holdfast.tables.keys import beginning_with, sort_range
from holdfast.tables.paths import compiled, project
from holdfast.tables.schema import Index, TableSchema, with_index
from holdfast.wire.tables import change_fields, table_fields, written_fields
from holdfast.work import Work

KNOWN_TABLES: Final = 4_096
"""Number of tables whose definitions are cached."""
Fields: TypeAlias = dict[str, Any]
"""The fields of a reply, where they are what a caller wants to know."""


class TableAnswers:
    """Answers commands on tables that need more than to be executed.

    Args:
        store: The pipeline of the store that has the tables.
        purge: Removes what is left of dropped tables and indexes in a namespace.
    """

    def __init__(self, store: Pipeline, purge: Callable[[str], Awaitable[None]]) -> None:
        self._store = store
        self._purge = purge
        self._known: Bounded[tuple[str, str], TableSchema] = Bounded(KNOWN_TABLES)

    def all(self) -> Mapping[type[Command], Callable[[Any], Awaitable[Any]]]:
        """Return the answers by the class of the command."""
        return {kind: partial(self._answer, answer) for kind, answer in _ANSWERS.items()}

    def _answer(
        self, answer: Callable[[TableAnswers, Any], Awaitable[Any]], command: Command
    ) -> Awaitable[Any]:
        if not isinstance(command, WriteCommand):  # the store counts writes itself
            self._store.admit(command.namespace)
        return answer(self, command)

    async def _create_table(self, command: CreateTable) -> Fields:
        done = await self._store.execute(command)
        return table_fields(done.schema) | {"version": done.version}

    async def _drop(self, command: DropTable | DropIndex) -> Fields:
        """Drop a table or an index. It is gone at once; its rows are removed after that."""
        done = await self._store.execute(command)
        await self._purge(command.namespace)
        return {"dropped": True, "version": done.version}

    async def _create_index(self, command: CreateIndex) -> Fields:
        """Create an index and backfill it. Called again, it continues where it was interrupted.

        The reply shows the table as this call left it. So a call that is repeated later, when the index may
        be filled or dropped, gets the same reply and fills nothing.
        """
        done = await self._store.execute(command)
        made = done.schema.index(command.index)
        if await self._unfilled(command, made):
            await fill_index(self._store, command.namespace, done.schema, made)
        filled = with_index(done.schema, msgspec.structs.replace(made, state="ready"))
        return table_fields(filled) | {"version": done.version}

    async def _write_items(self, command: WriteItems) -> list[Fields | HoldfastError]:
        """Return the outcome of each of several writes, by position."""
        done = (await self._store.execute(command)).items
        return [
            written_fields(write, outcome) if isinstance(outcome, ItemDone) else outcome
            for write, outcome in zip(command.writes, done, strict=True)
        ]

    async def _transact(self, command: TransactWrite) -> Fields:
        done = await self._store.execute(command)
        return {"versions": [item.version for item in done.items]}

    async def _reveal(self, command: RevealItem) -> Row | None:
        parts = (command.partition_key, command.sort_key)
        key = json.dumps([part for part in parts if part is not None])
        return await revealed(self._store.execute, command, f"{command.table} {key}")

    async def _describe(self, command: DescribeTable) -> Fields:
        async with self._view(command) as view:
            return table_fields(await self._schema(view, command))

    async def _list(self, command: ListTables) -> Fields:
        async with self._view(command) as view:
            return {"tables": [schema.name for schema in await tables_at(view.scan, command.namespace)]}

    async def _get(self, command: GetItem) -> Row | Item | None:
        async with self._view(command) as view:
            row = await self._row(view, command)
        if row is None or command.projection is None:
            return row
        work = Work()
        work.read(row)
        item = item_of(row)
        value = project(item.value, compiled(command.projection), work=work)
        return msgspec.structs.replace(item, value=value)

    async def _get_items(self, command: GetItems) -> list[Item | None]:
        async with self._view(command) as view:
            schema = await self._schema(view, command)
            places = [
                Address(command.namespace, schema.item_space, named_key(schema, *key)[0])
                for key in command.keys
            ]
            rows: list[Row | None] = []
            for start in range(0, len(places), AT_ONCE):
                rows += await view.rows(places[start : start + AT_ONCE])
                _check_transfer(rows)
        return [None if row is None else stored_item(row) for row in rows]

    async def _get_ttl(self, command: GetItemTtl) -> Fields:
        """Return the seconds until an item expires; None if it never does, 0 if there is no item."""
        async with self._view(command) as view:
            schema = await self._with_ttl(view, command)
            row = await self._row(view, command, schema)
        return {"ttl": 0 if row is None else seconds_left(row.expires_at, self._store.now())}

    async def _query(self, command: Query) -> ItemPage:
        async with self._view(command) as view:
            schema = await self._schema(view, command)
            keys = beginning_with(partition := partition_of(schema, command.partition_key))
            if command.sort_key_condition is not None:
                if schema.sort_key is None:
                    raise ValidationError(
                        f"table {schema.name!r} has no sort key", field="sort_key_condition"
                    )
                keys = sort_range(partition, schema.sort_key.type, command.sort_key_condition)
            return await page_of_items(view, command, schema, keys)

    async def _scan(self, command: ScanItems) -> ItemPage:
        async with self._view(command) as view:
            return await page_of_items(view, command, await self._schema(view, command), ALL)

    async def _query_index(self, command: QueryIndex) -> ItemPage:
        async with self._view(command) as view:
            return await page_of_index(view, command, await self._schema(view, command))

    async def _check_index(self, command: CheckIndex) -> Fields:
        """Check that an index agrees with the items. Writes continue meanwhile."""
        schema = await self._schema(self._store, command)
        return await check_index(self._store, command.namespace, schema, schema.index(command.index))

    async def _sweep(self, command: SweepItems) -> Fields:
        schema = await self._with_ttl(self._store, command)
        return {"removed": await sweep(self._store, command.namespace, schema)}

    async def _changes(self, command: ReadItemChanges) -> Fields:
        """Read the changes of a table, with images of the items on request."""
        view, limit = command.view, rules.limit(command.limit)
        async with self._view(command) as source:
            schema = await self._schema(source, command)
            if view not in ("keys", schema.stream) and schema.stream != "both":
                raise Unsupported(
                    f"table {schema.name!r} keeps only the images {schema.stream!r}", field="view"
                )
            # Records that a dropped table of this name left in the journal are older than this table.
            prefix, since = table_prefix(schema.name), max(command.since, schema.id)
            page = await records_after(
                source, command.namespace, prefix, since, limit, max_bytes=rules.MAX_TRANSFER_BYTES
            )
        records = [record for record in page.records if record.version > schema.id]
        return {
            "changes": await in_turns(lambda record: change_fields(record, view), records),
            "next": page.next,
            "gap": page.gap,
            "oldest": page.oldest,
        }

    def _view(self, command: Command) -> AbstractAsyncContextManager[View]:
        """Open the view for a call that only reads. It sees every write before it, and none after it."""
        return self._store.view(command.namespace)

    async def _schema(self, source: Shown, command: Any) -> TableSchema:
        return await schema_at(source, command.namespace, command.table)

    async def _unfilled(self, command: CreateIndex, made: Index) -> bool:
        """Return True if an index exists and still has to be filled."""
        table = command.table
        [row] = await self._store.rows([schema_address(command.namespace, table)])
        there = () if row is None else defined(row, table).indexes
        return any(index.id == made.id and index.state == "building" for index in there)

    async def _with_ttl(self, source: Shown, command: Any) -> TableSchema:
        schema = await self._schema(source, command)
        if schema.ttl_attribute is None:
            raise TtlNotConfigured(f"table {schema.name!r} has no ttl_attribute", field="table")
        return schema

    async def _row(
        self, source: Shown, command: GetItem | GetItemTtl, schema: TableSchema | None = None
    ) -> Row | None:
        """Read the row of an item together with the table's definition, to detect an outdated cache."""
        table, namespace = command.table, command.namespace
        seen = schema or self._known.get((namespace, table))
        place = schema_address(namespace, table)
        while True:
            places, refusal = [place], None
            if seen is not None:
                try:
                    key, _ = named_key(seen, command.partition_key, command.sort_key)
                    places.append(Address(namespace, seen.item_space, key))
                except ValidationError as error:  # the table may have another key by now
                    refusal = error
            definition, *rows = await source.rows(places)
            now = defined(definition, table)
            self._known.keep((namespace, table), now)
            if seen is not None and now == seen:
                if refusal is not None:
                    raise refusal
                return rows[0]
            seen = now


def _check_transfer(rows: Sequence[Row | None]) -> None:
    size = sum(row.size for row in rows if row is not None)
    if size > rules.MAX_TRANSFER_BYTES:
        raise ValueTooLarge(
            f"the first {len(rows)} items have {size} bytes; an answer holds at most "
            f"{rules.MAX_TRANSFER_BYTES}",
            field="keys",
        )


_ANSWERS: Final[Mapping[type[Command], Callable[[TableAnswers, Any], Awaitable[Any]]]] = {
    CreateTable: TableAnswers._create_table,
    DropTable: TableAnswers._drop,
    CreateIndex: TableAnswers._create_index,
    DropIndex: TableAnswers._drop,
    WriteItems: TableAnswers._write_items,
    TransactWrite: TableAnswers._transact,
    RevealItem: TableAnswers._reveal,
    DescribeTable: TableAnswers._describe,
    ListTables: TableAnswers._list,
    GetItem: TableAnswers._get,
    GetItems: TableAnswers._get_items,
    GetItemTtl: TableAnswers._get_ttl,
    Query: TableAnswers._query,
    ScanItems: TableAnswers._scan,
    QueryIndex: TableAnswers._query_index,
    CheckIndex: TableAnswers._check_index,
    SweepItems: TableAnswers._sweep,
    ReadItemChanges: TableAnswers._changes,
}
"""How commands are answered that need more than to be executed."""
