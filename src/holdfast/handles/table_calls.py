"""The verbs on tables: each takes the fields of a call and returns the fields of the reply.

Law: the embedded handle and the NATS service both call tables here, so that they answer alike. A call that
writes submits its command before it waits for anything, and a call that reads opens its view at that point.
So calls take effect in the order in which they begin.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast import rules
from holdfast.bounded import Bounded
from holdfast.decide.schemas import defined, schema_address
from holdfast.errors import TtlNotConfigured, Unsupported, ValidationError, ValueTooLarge
from holdfast.handles.reveals import revealed
from holdfast.handles.table_fields import (
    change_fields,
    got_fields,
    items_fields,
    page_fields,
    table_fields,
    written_fields,
)
from holdfast.handles.table_pages import PageOptions, cursor_key, page_of_index, page_of_items
from holdfast.handles.table_reads import AT_ONCE, schema_at, tables_at
from holdfast.handles.table_upkeep import check_index, fill_index, sweep
from holdfast.pace import in_turns
from holdfast.pipeline.watch import records_after
from holdfast.rows import Address
from holdfast.stored import item_of, stored_item
from holdfast.tables.commands import ItemDone
from holdfast.tables.images import table_prefix
from holdfast.tables.items import named_key, partition_of
from holdfast.tables.projection import project, projection_of
from holdfast.tables.ranges import Range, beginning_with, sort_range
from holdfast.tables.schema import index_name, stream_view, table_name, with_index
from holdfast.tables.ttl import seconds_left
from holdfast.verbs.fields import as_object, required, several
from holdfast.verbs.tables import WRITES, TableVerbs, legal_key, optional_condition
from holdfast.work import Work

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from holdfast.commands import Result
    from holdfast.handles.table_reads import Shown
    from holdfast.pipeline.pipeline import Pipeline, View
    from holdfast.rows import Row
    from holdfast.tables.schema import Index, TableSchema

_EVERYTHING: Final = Range(b"", None)
KNOWN_TABLES: Final = 64
"""Number of tables per namespace whose definitions are cached."""


class TableCalls:
    """The tables of one namespace.

    Args:
        store: The store that holds them.
        verbs: Builds commands for the namespace, in the name of the caller.
        purge: Removes what is left of dropped tables and indexes in a namespace.
    """

    def __init__(self, store: Pipeline, verbs: TableVerbs, purge: Callable[[str], Awaitable[None]]) -> None:
        self._store = store
        self._purge = purge
        self._verbs = verbs
        self._namespace = verbs.namespace
        self._known: Bounded[str, TableSchema] = Bounded(KNOWN_TABLES)

    async def call(self, verb: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a call of one of `VERBS`."""
        if verb not in WRITES:  # the store counts writes itself
            self._store.admit(self._namespace)
        return await VERBS[verb](self, fields)

    async def create_table(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Create a table."""
        done = await self._execute(self._verbs.create_table(fields))
        return table_fields(done.schema) | {"version": done.version}

    async def drop_table(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Drop a table. It is gone at once; its rows are removed after that."""
        done = await self._execute(self._verbs.drop_table(fields))
        await self._purge(self._namespace)
        return {"dropped": True, "version": done.version}

    async def describe_table(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Describe a table."""
        async with self._view() as view:
            return table_fields(await self._schema(view, fields))

    async def list_tables(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """List the names of all tables."""
        async with self._view() as view:
            return {"tables": [schema.name for schema in await tables_at(view.scan, self._namespace)]}

    async def put_item(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Put an item."""
        command = self._verbs.put_item(fields)
        return written_fields(command, await self._execute(command))

    async def update_item(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Change attributes of an item."""
        command = self._verbs.update_item(fields)
        return written_fields(command, await self._execute(command))

    async def delete_item(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Remove an item."""
        command = self._verbs.delete_item(fields)
        return written_fields(command, await self._execute(command))

    async def get_item(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Get an item by its key."""
        chosen = fields.get("projection")
        projection = None if chosen is None else projection_of(chosen)
        async with self._view() as view:
            row = await self._row(view, fields)
        if row is None or projection is None:
            return got_fields(None if row is None else stored_item(row))
        work = Work()
        work.read(row)
        item = item_of(row)
        return got_fields(msgspec.structs.replace(item, value=project(item.value, projection, work=work)))

    async def reveal_item(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Get an item for a person, who says why."""
        command = self._verbs.reveal_item(fields)
        parts = (command.partition_key, command.sort_key)
        key = json.dumps([part for part in parts if part is not None])
        row = await revealed(self._store.call, command, f"{command.table} {key}")
        return got_fields(None if row is None else stored_item(row))

    async def query(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Get items of a partition, in the order of their sort keys."""
        async with self._view() as view:
            schema = await self._schema(view, fields)
            keys, wanted = _partition(schema, fields), _wanted(fields, schema.id)
            return page_fields(await page_of_items(view, self._namespace, schema, keys, wanted))

    async def scan(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Get all items of a table."""
        async with self._view() as view:
            schema = await self._schema(view, fields)
            wanted = _wanted(fields, schema.id)
            return page_fields(await page_of_items(view, self._namespace, schema, _EVERYTHING, wanted))

    async def create_index(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Create an index and backfill it. Called again, it continues where it was interrupted.

        The reply shows the table as this call left it. So a call that is repeated later, when the index may
        be filled or dropped, gets the same reply and fills nothing.
        """
        command = self._verbs.create_index(fields)
        done = await self._execute(command)
        made = done.schema.index(command.index)
        if await self._unfilled(command.table, made):
            await fill_index(self._store, self._namespace, done.schema, made)
        filled = with_index(done.schema, msgspec.structs.replace(made, state="ready"))
        return table_fields(filled) | {"version": done.version}

    async def drop_index(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Drop an index."""
        done = await self._execute(self._verbs.drop_index(fields))
        await self._purge(self._namespace)
        return {"dropped": True, "version": done.version}

    async def query_index(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Get items by the value of their indexed attribute."""
        key_value = legal_key(required(fields, "key_value"), field="key_value")
        async with self._view() as view:
            schema = await self._schema(view, fields)
            index = schema.index(index_name(required(fields, "index")))
            wanted = _wanted(fields, index.id)
            page = await page_of_index(
                view, self._namespace, schema, index, key_value=key_value, wanted=wanted
            )
        return page_fields(page)

    async def check_index(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Check that an index agrees with the items. Writes continue meanwhile."""
        schema = await self._schema(self._store, fields)
        index = schema.index(index_name(required(fields, "index")))
        return await check_index(self._store, self._namespace, schema, index)

    async def batch_get_item(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Get items by their keys, by position; None for each that does not exist."""
        async with self._view() as view:
            schema = await self._schema(view, fields)
            keys = [_key(schema, given) for given in several(required(fields, "keys"), field="keys")]
            places = [Address(self._namespace, schema.item_space, key) for key in keys]
            rows: list[Row | None] = []
            for start in range(0, len(places), AT_ONCE):
                rows += await view.rows(places[start : start + AT_ONCE])
                _check_transfer(rows)
        return items_fields([None if row is None else stored_item(row) for row in rows])

    async def batch_write_item(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Put and remove items, each on its own. Returns the outcome of each, by position."""
        command, writes = self._verbs.batch_write_item(fields)
        done = (await self._execute(command)).items if command.writes else ()
        shown = [
            written_fields(write, found) if isinstance(found, ItemDone) else found
            for write, found in zip(command.writes, done, strict=True)
        ]
        return {"results": writes.merge(shown)}

    async def transact_write(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Perform all of the writes or none. Returns their versions, by position."""
        done = await self._execute(self._verbs.transact_write(fields))
        return {"versions": [item.version for item in done.items]}

    async def set_ttl(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Set the deadline of an item."""
        command = self._verbs.set_ttl(fields)
        return written_fields(command, await self._execute(command))

    async def remove_ttl(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Remove the deadline of an item."""
        command = self._verbs.remove_ttl(fields)
        return written_fields(command, await self._execute(command))

    async def get_ttl(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Get the seconds until an item expires; None if it never does, 0 if there is no item."""
        async with self._view() as view:
            schema = await self._with_ttl(view, fields)
            row = await self._row(view, fields, schema)
        return {"ttl": 0 if row is None else seconds_left(row.expires_at, self._store.now())}

    async def sweep_expired_ttl(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Remove at most 100 expired items."""
        schema = await self._with_ttl(self._store, fields)
        return {"removed": await sweep(self._store, self._namespace, schema)}

    async def changes(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Read the changes of a table, with images of the items on request."""
        images = "keys" if fields.get("view") is None else stream_view(fields["view"], field="view")
        since, limit = rules.version(fields.get("since", 0), field="since"), rules.limit(fields.get("limit"))
        async with self._view() as view:
            schema = await self._schema(view, fields)
            if images not in ("keys", schema.stream) and schema.stream != "both":
                raise Unsupported(
                    f"table {schema.name!r} keeps only the images {schema.stream!r}", field="view"
                )
            # Records that a dropped table of this name left in the journal are older than this table.
            prefix, since = table_prefix(schema.name), max(since, schema.id)
            found = await records_after(
                view, self._namespace, prefix, since, limit, max_bytes=rules.MAX_TRANSFER_BYTES
            )
        records = [record for record in found.records if record.version > schema.id]
        return {
            "changes": await in_turns(lambda record: change_fields(record, images), records),
            "next": found.next,
            "gap": found.gap,
            "oldest": found.oldest,
        }

    async def _execute(self, command: Any) -> Any:
        result: Result = await self._store.call(command)
        return result

    def _view(self) -> AbstractAsyncContextManager[View]:
        """Open the view for a call that only reads. It sees every write before it, and none after it."""
        return self._store.view(self._namespace)

    async def _schema(self, source: Shown, fields: Mapping[str, Any]) -> TableSchema:
        return await schema_at(source, self._namespace, table_name(required(fields, "table")))

    async def _unfilled(self, table: str, made: Index) -> bool:
        """Return True if an index exists and still has to be filled."""
        [row] = await self._store.rows([schema_address(self._namespace, table)])
        there = () if row is None else defined(row, table).indexes
        return any(index.id == made.id and index.state == "building" for index in there)

    async def _with_ttl(self, source: Shown, fields: Mapping[str, Any]) -> TableSchema:
        schema = await self._schema(source, fields)
        if schema.ttl_attribute is None:
            raise TtlNotConfigured(f"table {schema.name!r} has no ttl_attribute", field="table")
        return schema

    async def _row(
        self, source: Shown, fields: Mapping[str, Any], schema: TableSchema | None = None
    ) -> Row | None:
        """Read the row of an item together with the table's definition, to detect an outdated cache."""
        table = table_name(required(fields, "table"))
        seen = schema or self._known.get(table)
        place = schema_address(self._namespace, table)
        while True:
            wanted = [place] if seen is None else [place, self._address(seen, fields)]
            definition, *found = await source.rows(wanted)
            now = defined(definition, table)
            self._known.keep(table, now)
            if seen is not None and now == seen:
                return found[0]
            seen = now

    def _address(self, schema: TableSchema, fields: Mapping[str, Any]) -> Address:
        return Address(self._namespace, schema.item_space, _key(schema, fields))


def _check_transfer(rows: Sequence[Row | None]) -> None:
    size = sum(row.size for row in rows if row is not None)
    if size > rules.MAX_TRANSFER_BYTES:
        raise ValueTooLarge(
            f"the first {len(rows)} items have {size} bytes; an answer holds at most "
            f"{rules.MAX_TRANSFER_BYTES}",
            field="keys",
        )


def _partition(schema: TableSchema, fields: Mapping[str, Any]) -> Range:
    """Return the range of keys that a query covers."""
    partition = partition_of(schema, legal_key(required(fields, "partition_key"), field="partition_key"))
    condition = fields.get("sort_key_condition")
    if condition is None:
        return beginning_with(partition)
    if schema.sort_key is None:
        raise ValidationError(f"table {schema.name!r} has no sort key", field="sort_key_condition")
    return sort_range(partition, schema.sort_key.type, condition)


def _key(schema: TableSchema, given: object) -> bytes:
    fields = as_object(given, field="keys")
    key, _ = named_key(
        schema,
        legal_key(required(fields, "partition_key"), field="partition_key"),
        legal_key(fields.get("sort_key"), field="sort_key"),
    )
    return key


def _wanted(fields: Mapping[str, Any], owner: int) -> PageOptions:
    reverse, projection = fields.get("reverse"), fields.get("projection")
    if reverse is not None and not isinstance(reverse, bool):
        raise ValidationError("reverse must be true or false", field="reverse")
    return PageOptions(
        limit=rules.limit(fields.get("limit")),
        after=cursor_key(fields.get("cursor"), owner),
        reverse=bool(reverse),
        filter=optional_condition(fields, "filter"),
        projection=None if projection is None else projection_of(projection),
    )


VERBS: Final[dict[str, Callable[[TableCalls, Mapping[str, Any]], Awaitable[dict[str, Any]]]]] = {
    verb.__name__: verb
    for verb in (
        *(TableCalls.create_table, TableCalls.drop_table, TableCalls.describe_table, TableCalls.list_tables),
        *(TableCalls.put_item, TableCalls.get_item, TableCalls.reveal_item, TableCalls.update_item),
        TableCalls.delete_item,
        *(TableCalls.query, TableCalls.scan, TableCalls.create_index, TableCalls.drop_index),
        *(TableCalls.query_index, TableCalls.check_index, TableCalls.batch_get_item),
        *(TableCalls.batch_write_item, TableCalls.transact_write, TableCalls.set_ttl, TableCalls.remove_ttl),
        *(TableCalls.get_ttl, TableCalls.sweep_expired_ttl, TableCalls.changes),
    )
}
"""Every verb on tables, by name."""
