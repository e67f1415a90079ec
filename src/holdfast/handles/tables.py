"""The handle on the tables of a plugin: definitions, items, walks over items, and their expiry.

A handle is bound to one namespace and cannot leave it. It makes the command of a call, which a store or a
service executes, and gives the result its Python form. `return_values` decides which type a write returns.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Unpack, overload

from msgspec import UNSET

from holdfast.clock import instant
from holdfast.errors import HoldfastError, TableNotFound, TtlNotConfigured, ValidationError
from holdfast.model import Item, ItemChange, ItemChanges, ItemPage
from holdfast.pipeline.caller import Caller
from holdfast.rows import Row
from holdfast.stored import item_of, made
from holdfast.tables.commands import VERBS, ItemDone
from holdfast.tables.schema import Stream
from holdfast.verbs.fields import Provenance, Viewing
from holdfast.verbs.tables import (
    Expecting,
    Key,
    KeyDefinition,
    Paths,
    TableVerbs,
    Values,
    Walk,
    refuse_unknown_writes,
)

_log = logging.getLogger("holdfast.tables")


class ReaperHandle:
    """A reaper that runs until it is stopped, or until the store is closed."""

    def __init__(self, task: asyncio.Task[None], stopping: asyncio.Event) -> None:
        self._task = task
        self._stopping = stopping

    async def stop(self) -> None:
        """Stop the reaper, and wait until a running sweep has ended."""
        self._stopping.set()
        await asyncio.wait([self._task])


class Tables:
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
        store: What executes commands.
        verbs: The caller, who makes them.
        own: Takes charge of a task for as long as the store is open.
    """

    def __init__(self, store: Caller, verbs: TableVerbs, own: Callable[[asyncio.Task[None]], None]) -> None:
        self.namespace = verbs.namespace
        self.store = store
        self.verbs = verbs
        self._own = own

    async def create_table(
        self,
        table: str,
        *,
        partition_key: KeyDefinition,
        sort_key: KeyDefinition | None = None,
        ttl_attribute: str | None = None,
        stream: Stream = "both",
        **provenance: Unpack[Provenance],
    ) -> dict[str, Any]:
        """Create a table.

        Args:
            table: Name of 1 to 100 of the characters A-Z, a-z, 0-9, `_`, `.` and `-`.
            partition_key: The attribute that items are found by, and its type: `("user", "string")`. Types
                are `string`, `number` and `binary`.
            sort_key: The attribute that orders the items of a partition, and its type.
            ttl_attribute: The attribute that holds an item's deadline, in seconds since 1970.
            stream: The images of items that `changes` can show: `both`, `new`, `old` or `keys`.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `Tables`.

        Returns:
            The description of the table, as `describe_table` returns it.

        Raises:
            TableExists: There is a table of that name.

        Example:
            `await tables.create_table("events", partition_key=("user", "string"), sort_key=("at", "number"))`
        """
        described: dict[str, Any] = await self._call(
            "create_table",
            table=table,
            partition_key=partition_key,
            sort_key=sort_key,
            ttl_attribute=ttl_attribute,
            stream=stream,
            **provenance,
        )
        return described

    async def drop_table(self, table: str, **provenance: Unpack[Provenance]) -> None:
        """Drop a table with all its items.

        Args:
            table: The table.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `Tables`.

        Raises:
            TableNotFound: There is no such table.
        """
        await self._call("drop_table", table=table, **provenance)

    async def describe_table(self, table: str) -> dict[str, Any]:
        """Describe a table.

        Args:
            table: The table.

        Returns:
            Its keys, its ttl attribute, its stream and its indexes.

        Raises:
            TableNotFound: There is no such table.
        """
        described: dict[str, Any] = await self._call("describe_table", table=table)
        return described

    async def list_tables(self) -> builtins.list[str]:
        """List the names of all tables, in order."""
        names: builtins.list[str] = (await self._call("list_tables"))["tables"]
        return names

    async def create_index(
        self, table: str, index: str, *, key: KeyDefinition, **provenance: Unpack[Provenance]
    ) -> dict[str, Any]:
        """Create an index on one attribute and backfill it. Writes continue meanwhile.

        If a call was interrupted, the same call continues it.

        Args:
            table: The table.
            index: Name of the index, as that of a table.
            key: The attribute and its type: `("points", "number")`.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `Tables`.

        Returns:
            The description of the table, as `describe_table` returns it.

        Raises:
            TableNotFound: There is no such table.
            ValidationError: The table has an index of that name already, or it has 20 indexes.

        Example:
            `await tables.create_index("scores", "by-won", key=("won", "string"))`
        """
        described: dict[str, Any] = await self._call(
            "create_index", table=table, index=index, index_key=key, **provenance
        )
        return described

    async def drop_index(self, table: str, index: str, **provenance: Unpack[Provenance]) -> None:
        """Drop an index.

        Args:
            table: The table.
            index: The index.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `Tables`.

        Raises:
            IndexNotFound: There is no such index.
        """
        await self._call("drop_index", table=table, index=index, **provenance)

    async def check_index(self, table: str, index: str) -> dict[str, Any]:
        """Check that an index has exactly the entries that the items call for.

        Args:
            table: The table.
            index: The index.

        Returns:
            `consistent`, and the numbers of `items`, `entries`, `missing` and `extra` entries.

        Raises:
            IndexNotFound: There is no such index.
        """
        numbers: dict[str, Any] = await self._call("check_index", table=table, index=index)
        return numbers

    @overload
    async def put_item(
        self,
        table: str,
        item: Mapping[str, Any],
        *,
        return_values: Literal["new"] = "new",
        **expecting: Unpack[Expecting],
    ) -> Item: ...
    @overload
    async def put_item(
        self,
        table: str,
        item: Mapping[str, Any],
        *,
        return_values: Literal["old", "none"],
        **expecting: Unpack[Expecting],
    ) -> Item | None: ...
    async def put_item(
        self,
        table: str,
        item: Mapping[str, Any],
        *,
        return_values: str = "new",
        **expecting: Unpack[Expecting],
    ) -> Item | None:
        """Put an item, replacing the one with the same key.

        Args:
            table: The table.
            item: A JSON object of at most 409,600 bytes with the attributes of the key. Only a key of the
                type binary may be bytes.
            return_values: The item to return: `new`, `old` or `none`.
            **expecting: `expected_version`, `condition` and what every write takes; see `Tables`.

        Returns:
            The new item, the item that it replaced, or None.

        Raises:
            VersionConflict: The item does not have the expected version; `item` is what is there.
            ConditionFailed: The item does not meet the condition; `current` is what is there.
            ValueTooLarge: The item has more than 409,600 bytes.

        Example:
            `await tables.put_item("scores", {"user": "bob", "at": 1}, expected_version=0)`
        """
        done = self._call("put_item", table=table, item=item, return_values=return_values, **expecting)
        return _returned(await done, return_values)

    async def get_item(
        self, table: str, partition_key: Key, sort_key: Key | None = None, *, projection: Paths | None = None
    ) -> Item | None:
        """Get an item by its key.

        Args:
            table: The table.
            partition_key: The item's partition key.
            sort_key: The item's sort key, if the table has one.
            projection: The paths to return of the item; all of it if not given.

        Returns:
            The item, or None if there is none or it has expired.

        Example:
            `item = await tables.get_item("scores", "alice", 7, projection=["points"])`
        """
        return _item(
            await self._call(
                "get_item",
                table=table,
                partition_key=partition_key,
                sort_key=sort_key,
                projection=projection,
            )
        )

    async def reveal_item(
        self,
        table: str,
        partition_key: Key,
        sort_key: Key | None = None,
        *,
        why: str | None = None,
        **viewing: Unpack[Viewing],
    ) -> Item | None:
        """Get an item for a person; `KV.reveal` explains when they have to say why.

        Args:
            table: The table.
            partition_key: The item's partition key.
            sort_key: The item's sort key, if the table has one.
            why: The reason, with 3 letters or digits, to 500 characters. The policy `open` needs none.
            **viewing: `writer`, the name of the person, and `timeout` in seconds.

        Returns:
            The item, or None if there is none or it has expired.

        Raises:
            MissingField: There is no reason, and the policy wants one.
            PermissionDenied: The policy never reveals values.

        Example:
            `item = await tables.reveal_item("scores", "alice", 7, why="OPS-12: a player complains")`
        """
        return _item(
            await self._call(
                "reveal_item",
                table=table,
                partition_key=partition_key,
                sort_key=sort_key,
                why=why,
                **viewing,
            )
        )

    @overload
    async def update_item(
        self,
        table: str,
        partition_key: Key,
        sort_key: Key | None = None,
        *,
        set: Values | None = None,
        remove: Paths | None = None,
        add: Values | None = None,
        return_values: Literal["new"] = "new",
        **expecting: Unpack[Expecting],
    ) -> Item: ...
    @overload
    async def update_item(
        self,
        table: str,
        partition_key: Key,
        sort_key: Key | None = None,
        *,
        set: Values | None = None,
        remove: Paths | None = None,
        add: Values | None = None,
        return_values: Literal["old", "none"],
        **expecting: Unpack[Expecting],
    ) -> Item | None: ...
    async def update_item(
        self,
        table: str,
        partition_key: Key,
        sort_key: Key | None = None,
        *,
        set: Values | None = None,
        remove: Paths | None = None,
        add: Values | None = None,
        return_values: str = "new",
        **expecting: Unpack[Expecting],
    ) -> Item | None:
        """Change attributes of an item in one step. An item that does not exist is created.

        Args:
            table: The table.
            partition_key: The item's partition key.
            sort_key: The item's sort key, if the table has one.
            set: Values by path, such as `{"meta.tag": "x", "list[0]": 1}`. `if_not_exists(value)` is set only
                where there is no value.
            remove: Paths to remove.
            add: Numbers to add to numbers, and lists of texts or numbers to add to such lists as sets.
            return_values: The item to return: `new`, `old` or `none`.
            **expecting: `expected_version`, `condition` and what every write takes; see `Tables`.

        Returns:
            The item after the change, the item before it, or None.

        Raises:
            VersionConflict: The item does not have the expected version; `item` is what is there.
            ConditionFailed: The item does not meet the condition; `current` is what is there.
            ValueTooLarge: The item would have more than 409,600 bytes.

        Example:
            `await tables.update_item("scores", "alice", 7, set={"won": True}, add={"points": 2})`
        """
        done = self._call(
            "update_item",
            table=table,
            partition_key=partition_key,
            sort_key=sort_key,
            set=set,
            remove=remove,
            add=add,
            return_values=return_values,
            **expecting,
        )
        return _returned(await done, return_values)

    @overload
    async def delete_item(
        self,
        table: str,
        partition_key: Key,
        sort_key: Key | None = None,
        *,
        return_values: Literal["none"] = "none",
        **expecting: Unpack[Expecting],
    ) -> bool: ...
    @overload
    async def delete_item(
        self,
        table: str,
        partition_key: Key,
        sort_key: Key | None = None,
        *,
        return_values: Literal["old"],
        **expecting: Unpack[Expecting],
    ) -> Item | None: ...
    async def delete_item(
        self,
        table: str,
        partition_key: Key,
        sort_key: Key | None = None,
        *,
        return_values: str = "none",
        **expecting: Unpack[Expecting],
    ) -> bool | Item | None:
        """Remove an item.

        Args:
            table: The table.
            partition_key: The item's partition key.
            sort_key: The item's sort key, if the table has one.
            return_values: `old` to return the item that was removed, `none` to return whether there was one.
            **expecting: `expected_version`, `condition` and what every write takes; see `Tables`.

        Returns:
            Whether the item was there; with `return_values="old"`, the item or None.

        Raises:
            VersionConflict: The item does not have the expected version; `item` is what is there.
            ConditionFailed: The item does not meet the condition; `current` is what is there.
        """
        done: ItemDone = await self._call(
            "delete_item",
            table=table,
            partition_key=partition_key,
            sort_key=sort_key,
            return_values=return_values,
            **expecting,
        )
        return _item(done.old) if return_values == "old" else done.version is not None

    async def batch_get_item(self, table: str, keys: Sequence[Any]) -> builtins.list[Item | None]:
        """Get several items by their keys.

        Args:
            table: The table.
            keys: At most 1,000 keys. Each is a partition key, a pair of a partition key and a sort key, or an
                object with the fields `partition_key` and `sort_key`.

        Returns:
            For each key, by position, its item, or None if there is none.

        Raises:
            ValueTooLarge: The items have more than 524,288 bytes together.

        Example:
            `items = await tables.batch_get_item("scores", [("alice", 7), ("bob", 1)])`
        """
        items = await self._call("batch_get_item", table=table, keys=builtins.list(map(_key, keys)))
        return builtins.list(map(_item, items))

    async def batch_write_item(
        self, table: str, writes: Sequence[Mapping[str, Any]], **provenance: Unpack[Provenance]
    ) -> builtins.list[dict[str, Any] | HoldfastError]:
        """Put and remove several items. Each write succeeds or fails on its own.

        Args:
            table: The table.
            writes: At most 1,000 of `{"put": {"item": …}}` and `{"delete": {"partition_key": …, "sort_key":
                …}}`, each optionally with `condition` and `expected_version`.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `Tables`.

        Returns:
            For each write, by position, the fields of its reply, or the error that refused it.

        Raises:
            ValueTooLarge: The writes have more than 524,288 bytes together.
            ValidationError: A write has an unknown field, such as `conditions`; nothing is written.
        """
        refuse_unknown_writes(writes)
        verbs = self.verbs
        command, several = VERBS["batch_write_item"].call(verbs, table=table, writes=writes, **provenance)
        results = await self.store.call(command) if several.legal else ()
        return [_result(result) for result in several.merge(results)]

    async def transact_write(
        self, writes: Sequence[Mapping[str, Any]], **provenance: Unpack[Provenance]
    ) -> builtins.list[int | None]:
        """Perform all of several writes, also to several tables, or none of them.

        Args:
            writes: At most 1,000 objects with one of `put`, `update`, `delete` and `check`, which holds the
                fields of that verb and its `table`. A `check` has a `condition` or an `expected_version` and
                writes nothing.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `Tables`.

        Returns:
            The version of each write, by position; None where nothing was changed.

        Raises:
            ConditionFailed: `conflicts` lists every write that did not find what it expects.
            ValidationError: Two writes are about the same item, or a write has an unknown field.
            ValueTooLarge: The writes have more than 524,288 bytes together.

        Example:
            `await tables.transact_write([{"put": {"table": "scores", "item": {"user": "carol", "at": 1}}}])`
        """
        refuse_unknown_writes(writes)
        done = await self._call("transact_write", writes=writes, **provenance)
        versions: builtins.list[int | None] = done["versions"]
        return versions

    async def set_ttl(
        self,
        table: str,
        partition_key: Key,
        sort_key: Key | None = None,
        ttl_seconds: int | None = None,
        **expecting: Unpack[Expecting],
    ) -> Item:
        """Expire an item a number of seconds from now.

        Args:
            table: The table.
            partition_key: The item's partition key.
            sort_key: The item's sort key, if the table has one.
            ttl_seconds: Whole seconds, from 1. It is required; give it by name if there is no sort key.
            **expecting: `expected_version`, `condition` and what every write takes; see `Tables`.

        Returns:
            The item with its new version.

        Raises:
            MissingField: There is no `ttl_seconds`.
            TtlNotConfigured: The table has no ttl attribute.
            ItemNotFound: There is no such item.
        """
        done: ItemDone = await self._call(
            "set_ttl",
            table=table,
            partition_key=partition_key,
            sort_key=sort_key,
            ttl_seconds=UNSET if ttl_seconds is None else ttl_seconds,
            return_values="new",
            **expecting,
        )
        return item_of(_there(done.row))

    async def remove_ttl(
        self, table: str, partition_key: Key, sort_key: Key | None = None, **expecting: Unpack[Expecting]
    ) -> Item:
        """Remove an item's deadline, so that it never expires.

        Args:
            table: The table.
            partition_key: The item's partition key.
            sort_key: The item's sort key, if the table has one.
            **expecting: `expected_version`, `condition` and what every write takes; see `Tables`.

        Returns:
            The item with its new version.

        Raises:
            TtlNotConfigured: The table has no ttl attribute.
            ItemNotFound: There is no such item.
        """
        done: ItemDone = await self._call(
            "remove_ttl",
            table=table,
            partition_key=partition_key,
            sort_key=sort_key,
            return_values="new",
            **expecting,
        )
        return item_of(_there(done.row))

    async def get_ttl(self, table: str, partition_key: Key, sort_key: Key | None = None) -> int | None:
        """Get the time that an item has left.

        Args:
            table: The table.
            partition_key: The item's partition key.
            sort_key: The item's sort key, if the table has one.

        Returns:
            Whole seconds, at least 1 while the item lives; None if it never expires; 0 if there is no item.

        Raises:
            TtlNotConfigured: The table has no ttl attribute.
        """
        left = await self._call("get_ttl", table=table, partition_key=partition_key, sort_key=sort_key)
        seconds: int | None = left["ttl"]
        return seconds

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
        page = self._call("query", table=table, partition_key=partition_key, sort_key_condition=sk, **walk)
        return _page(await page)

    async def scan(self, table: str, **walk: Unpack[Walk]) -> ItemPage:
        """Get all items of a table in the order of their keys, a page at a time.

        Args:
            table: The table.
            **walk: `filter`, `projection`, `limit`, `cursor` and `reverse`; see `Tables`.

        Returns:
            A page of items. It is the last one if its cursor is None.
        """
        return _page(await self._call("scan", table=table, **walk))

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
        return _page(await self._call("query_index", table=table, index=index, key_value=key_value, **walk))

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
        return _changes(await self._call("changes", table=table, since=since, limit=limit, view=view))

    async def sweep_expired_ttl(self, table: str) -> int:
        """Remove at most 100 items that have expired.

        Args:
            table: The table.

        Returns:
            The number of items removed.

        Raises:
            TtlNotConfigured: The table has no ttl attribute.
        """
        return int((await self._call("sweep_expired_ttl", table=table))["removed"])

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
            _reap(self, interval, stopping), name=f"holdfast reaper of {self.namespace}"
        )
        self._own(task)
        return ReaperHandle(task, stopping)

    async def _call(self, verb: str, **arguments: Any) -> Any:
        """Make the command of a call, and return its result."""
        return await self.store.call(VERBS[verb].call(self.verbs, **arguments))


def _key(key: Any) -> Any:
    """Convert a key to fields. It may be given as one value, as a pair, or as the fields of a request."""
    match key:
        case Mapping():
            return key
        case (partition_key, sort_key):
            return {"partition_key": partition_key, "sort_key": sort_key}
        case _:
            return {"partition_key": key}


def _there(row: Row | None) -> Row:
    assert row is not None
    return row


def _item(found: Row | Item | None) -> Item | None:
    """Return an item with its attributes decoded."""
    if found is None:
        return None
    if isinstance(found, Row):
        return item_of(found)
    return Item(value=made(found.value), version=found.version, expires_at=found.expires_at)


def _returned(done: ItemDone, return_values: str) -> Item | None:
    """Return the item that a write returns."""
    if return_values == "new":
        return item_of(_there(done.row))
    return _item(done.old) if return_values == "old" else None


def _result(result: dict[str, Any] | HoldfastError) -> dict[str, Any] | HoldfastError:
    """Return the outcome of one of several writes."""
    if isinstance(result, dict) and "item" in result:
        return result | {"item": made(result["item"])}
    return result


def _page(page: ItemPage) -> ItemPage:
    items = [
        Item(value=made(item.value), version=item.version, expires_at=item.expires_at) for item in page.items
    ]
    return ItemPage(items=items, truncated=page.truncated, cursor=page.cursor)


def _changes(found: Mapping[str, Any]) -> ItemChanges:
    return ItemChanges(
        changes=[_change(change) for change in found["changes"]],
        next=found["next"],
        gap=found.get("gap", False),
        oldest=found.get("oldest"),
    )


def _change(change: Mapping[str, Any]) -> ItemChange:
    images = {name: made(change[name]) for name in ("old", "new") if name in change}
    return ItemChange(**dict(change) | images | {"at": instant(change["at"])})


async def _reap(tables: Tables, interval: float, stopping: asyncio.Event) -> None:
    """Sweep every table until nothing is left, sleep, and repeat until stopped."""
    while not stopping.is_set():
        try:
            for table in await tables.list_tables():
                await _sweep_whole(tables, table, stopping)
        except HoldfastError as error:
            _log.error("sweeping the tables of %s failed: %s", tables.namespace, error.message)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(interval):
                await stopping.wait()


async def _sweep_whole(tables: Tables, table: str, stopping: asyncio.Event) -> None:
    # A table without a ttl attribute has nothing to sweep, and neither has one that was dropped meanwhile.
    with contextlib.suppress(TtlNotConfigured, TableNotFound):
        while not stopping.is_set() and await tables.sweep_expired_ttl(table):
            pass
