"""The handle on the tables of a plugin: definitions, items, walks over items, and their expiry.

Law: as in `holdfast.handles.table_handle`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Unpack

from holdfast.errors import ValidationError
from holdfast.handles import table_fields
from holdfast.handles.table_definitions import TableDefinitions
from holdfast.handles.table_items import TableItems
from holdfast.handles.table_reaper import ReaperHandle, reap
from holdfast.tables.keys import json_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.handles.table_fields import Key, Walk
    from holdfast.model import ItemChanges, ItemPage
    from holdfast.tables.schema import Stream


class Tables(TableDefinitions, TableItems):
    """The tables of one plugin. Get one with `store.tables(plugin)`.

    Every write takes `request_id`, `writer`, `spec_ref`, `fence` and `timeout`, as the verbs of `KV` do. A
    write of an item also takes:

    - `expected_version`, the version that the item must have; 0 if there must be no item.
    - `condition`, what the item that is there must meet: `attr("score").gt(5)`, or the same as JSON.

    A walk over items takes:

    - `filter`, a condition that items must meet.
    - `projection`, the paths to return of each item.
    - `limit`, the largest number of items in a page, from 1 to 10,000; 1,000 if not given.
    - `cursor`, which continues after the page that has it.
    - `reverse`, whether to begin at the end.

    A page ends at its limit or at 512 KB and may hold fewer items, or none, and still have a cursor.

    Besides the errors of its own, every verb on a table that does not exist raises `TableNotFound`. Any verb
    may raise `ValidationError` for an argument that breaks its rule, `TooExpensive` if it would examine more
    than one request may, and a `Transient` error. A write may raise what the writing verbs of `KV` may.

    Args:
        namespace: The namespace that the handle is bound to.
        ask: Performs a call and returns its reply.
        own: Takes charge of a task for as long as the store is open.
    """

    async def query(
        self,
        table: str,
        partition_key: Key,
        *,
        sk: Mapping[str, Any] | None = None,
        **walk: Unpack[Walk],
    ) -> ItemPage:
        """Get items of a partition in the order of their sort keys, a page at a time.

        Args:
            table: The table.
            partition_key: The partition.
            sk: What the sort key must meet: one or more of `eq`, `lt`, `lte`, `gt`, `gte`, `between` and
                `begins_with`.
            **walk: `filter`, `projection`, `limit`, `cursor` and `reverse`; see `Tables`.

        Returns:
            A page of items. It is the last one if its cursor is None.

        Example:
            `page = await tables.query("scores", "alice", sk={"between": [1, 9]}, limit=50)`
        """
        fields = {
            "partition_key": json_key(partition_key),
            "sort_key_condition": table_fields.sort_condition(sk),
        }
        return table_fields.page_of(await self._call("query", table, fields, walk))

    async def scan(self, table: str, **walk: Unpack[Walk]) -> ItemPage:
        """Get all items of a table in the order of their keys, a page at a time.

        Args:
            table: The table.
            **walk: `filter`, `projection`, `limit`, `cursor` and `reverse`; see `Tables`.

        Returns:
            A page of items. It is the last one if its cursor is None.
        """
        return table_fields.page_of(await self._call("scan", table, {}, walk))

    async def query_index(self, table: str, index: str, key_value: Key, **walk: Unpack[Walk]) -> ItemPage:
        """Get the items whose indexed attribute has a value, in the order of their keys, a page at a time.

        Args:
            table: The table.
            index: The index.
            key_value: The value of the indexed attribute.
            **walk: `filter`, `projection`, `limit`, `cursor` and `reverse`; see `Tables`.

        Returns:
            A page of items. It is the last one if its cursor is None.

        Raises:
            IndexNotFound: There is no such index.
            Busy: The index is still being filled.

        Example:
            `page = await tables.query_index("scores", "by-points", 3)`
        """
        fields = {"index": index, "key_value": json_key(key_value)}
        return table_fields.page_of(await self._call("query_index", table, fields, walk))

    async def changes(
        self, table: str, since: int = 0, *, limit: int | None = None, view: Stream = "keys"
    ) -> ItemChanges:
        """Read what changed in a table.

        Args:
            table: The table.
            since: The version after which to begin, such as the `next` of an earlier call.
            limit: Largest number of changes, from 1 to 10,000; 1,000 if not given.
            view: The images of items to return: `keys` for none, `new`, `old` or `both`.

        Returns:
            Changes, the oldest first.

        Raises:
            Unsupported: The table's stream does not keep these images.
        """
        fields = {"since": since, "limit": limit, "view": view}
        return table_fields.changes_of(await self._call("changes", table, fields))

    async def sweep_expired_ttl(self, table: str) -> int:
        """Remove at most 100 items that have expired.

        Args:
            table: The table.

        Returns:
            The number of items removed.

        Raises:
            TtlNotConfigured: The table has no ttl attribute.
        """
        return int((await self._call("sweep_expired_ttl", table))["removed"])

    def start_reaper(self, interval: float = 3600) -> ReaperHandle:
        """Start a task that repeatedly removes expired items of every table with a ttl attribute.

        Args:
            interval: Seconds to sleep after nothing is left to remove.

        Returns:
            A handle on the task, which ends with `stop()` or when the store is closed.

        Raises:
            ValidationError: The interval is not a positive number of seconds.
        """
        if not interval > 0:
            raise ValidationError("interval must be a positive number of seconds", field="interval")
        stopping = asyncio.Event()
        task = asyncio.create_task(
            reap(self, interval, stopping), name=f"holdfast reaper of {self.namespace}"
        )
        self._own(task)
        return ReaperHandle(task, stopping)
