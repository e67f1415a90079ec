"""The handle on the tables of a plugin.

Law: a handle is bound to one namespace and can't leave it. It gives calls their Python form; what they mean
is settled in `holdfast.table_calls`, here or at a service. It is long because a write says by `return_values`
which type it returns.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from holdfast.errors import HoldfastError, TableNotFound, TtlNotConfigured, ValidationError
from holdfast.tables import spelling

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from holdfast.model import Item, ItemChanges, ItemPage
    from holdfast.tables.schema import Stream
    from holdfast.tables.spelling import Expecting, Key, KeyDefinition, Paths, Provenance, Values, Walk

_log = logging.getLogger("holdfast.tables")


class ReaperHandle:
    """A reaper that runs until it is stopped, or until the store is closed."""

    def __init__(self, task: asyncio.Task[None], stopping: asyncio.Event) -> None:
        self._task = task
        self._stopping = stopping

    async def stop(self) -> None:
        """End it, and wait until it has ended: a sweep that is under way comes to its end first."""
        self._stopping.set()
        await asyncio.wait([self._task])


class Tables:
    """The tables of one plugin. Get one with `store.tables(plugin)`.

    Writes also take `request_id`, `writer`, `spec_ref` and `fence`, and those of an item `expected_version`
    and `condition`. One that does not find what it expects raises `VersionConflict`, with the item that is
    there in `item`, or `ConditionFailed`, with it in `current`.

    Args:
        namespace: The namespace that it is bound to.
        ask: Has a call answered.
        own: Takes charge of a task for as long as the store is open.
    """

    def __init__(
        self,
        namespace: str,
        ask: Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]],
        own: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self.namespace = namespace
        self._ask = ask
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
        """Make a table; what `describe_table` says of it.

        Args:
            table: 1 to 100 of the characters A-Z, a-z, 0-9, `_`, `.` and `-`.
            partition_key: The attribute that items are found by, and its type: `("user", "string")`. Types
                are `string`, `number` and `binary`.
            sort_key: The attribute that orders the items of a partition.
            ttl_attribute: The attribute that says, in seconds since 1970, when an item is gone.
            stream: Which images of items `changes` can show.
            **provenance: See the class.

        Raises:
            TableExists: There is one of that name.
        """
        fields = {
            "partition_key": spelling.definition(partition_key),
            "sort_key": None if sort_key is None else spelling.definition(sort_key),
            "ttl_attribute": ttl_attribute,
            "stream": stream,
        }
        return await self._call("create_table", table, fields, provenance)

    async def drop_table(self, table: str, **provenance: Unpack[Provenance]) -> None:
        """Take a table away, with all its items.

        Raises:
            TableNotFound: There is none of that name.
        """
        await self._call("drop_table", table, {}, provenance)

    async def describe_table(self, table: str) -> dict[str, Any]:
        """The keys, the ttl attribute and the indexes of a table."""
        return await self._call("describe_table", table)

    async def list_tables(self) -> builtins.list[str]:
        """The names of all tables, in their order."""
        names: builtins.list[str] = (await self._ask("list_tables", {}))["tables"]
        return names

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
        """Put an item, in place of the one with the same key; the `new`, the `old` or `none` is returned.

        The item is a JSON object of at most 409,600 bytes that has the attributes of the key. Only a key of
        type binary may be bytes.
        """
        fields = spelling.put(item) | {"return_values": return_values}
        return _returned(await self._call("put_item", table, fields, expecting), return_values)

    async def get_item(
        self, table: str, partition_key: Key, sort_key: Key | None = None, *, projection: Paths | None = None
    ) -> Item | None:
        """The item with a key, or None if it is not there or has expired."""
        fields = spelling.keyed(partition_key, sort_key) | {"projection": projection}
        answer = await self._call("get_item", table, fields)
        return None if answer["item"] is None else spelling.item_of(answer)

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
        """Change attributes of an item in one step; one that is not there is made.

        Args:
            table: The table.
            partition_key: The item's.
            sort_key: The item's, if the table has one.
            set: Values by path, such as `{"meta.tag": "x", "list[0]": 1}`; `if_not_exists(value)` is set only
                where there is none.
            remove: Paths to take away.
            add: Numbers to add to numbers, and lists of texts or numbers to add to such lists as sets.
            return_values: Which item is returned: `new`, `old` or `none`.
            **expecting: See the class.
        """
        changes = {"set": spelling.plain(set), "remove": spelling.plain(remove), "add": spelling.plain(add)}
        fields = spelling.keyed(partition_key, sort_key) | changes | {"return_values": return_values}
        return _returned(await self._call("update_item", table, fields, expecting), return_values)

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
        """Remove an item; whether it was there, or with `return_values="old"` what it was."""
        fields = spelling.keyed(partition_key, sort_key) | {"return_values": return_values}
        answer = await self._call("delete_item", table, fields, expecting)
        return spelling.old_item_of(answer) if return_values == "old" else bool(answer["deleted"])

    async def query(
        self,
        table: str,
        partition_key: Key,
        *,
        sk: Mapping[str, Any] | None = None,
        **walk: Unpack[Walk],
    ) -> ItemPage:
        """Items of a partition in the order of their sort keys.

        `sk` says what the sort key must meet: one or more of `eq lt lte gt gte between begins_with`. A page
        holds at most `limit` items or 512 KB, and may hold fewer; its cursor continues it.
        """
        key = spelling.keyed(partition_key, None)["partition_key"]
        fields = {"partition_key": key, "sort_key_condition": spelling.sort_condition(sk)}
        return spelling.page_of(await self._call("query", table, fields, walk))

    async def scan(self, table: str, **walk: Unpack[Walk]) -> ItemPage:
        """All items of a table, in the order of their keys, page by page."""
        return spelling.page_of(await self._call("scan", table, {}, walk))

    async def create_index(
        self, table: str, index: str, *, key: KeyDefinition, **provenance: Unpack[Provenance]
    ) -> dict[str, Any]:
        """Make an index by one attribute, with the items that are there; what `describe_table` says then.

        Writes go on meanwhile. If it was interrupted, the same call goes on with it.
        """
        fields = {"index": index, "index_key": spelling.definition(key)}
        return await self._call("create_index", table, fields, provenance)

    async def drop_index(self, table: str, index: str, **provenance: Unpack[Provenance]) -> None:
        """Take an index away."""
        await self._call("drop_index", table, {"index": index}, provenance)

    async def query_index(self, table: str, index: str, key_value: Key, **walk: Unpack[Walk]) -> ItemPage:
        """Items whose indexed attribute has a value, in the order of their keys, page by page."""
        key = spelling.keyed(key_value, None)["partition_key"]
        fields = {"index": index, "key_value": key}
        return spelling.page_of(await self._call("query_index", table, fields, walk))

    async def check_index(self, table: str, index: str) -> dict[str, Any]:
        """Whether an index has exactly the entries that the items ask for, and how many are wrong."""
        return await self._call("check_index", table, {"index": index})

    async def batch_get_item(self, table: str, keys: Sequence[Any]) -> builtins.list[Item | None]:
        """Items by their keys, by position; None for one that is not there.

        A key is a partition key, a pair of a partition key and a sort key, or an object with the fields
        `partition_key` and `sort_key`.
        """
        fields = {"keys": [spelling.key(key) for key in keys]}
        return spelling.items_of(await self._call("batch_get_item", table, fields))

    async def batch_write_item(
        self, table: str, writes: Sequence[Mapping[str, Any]], **provenance: Unpack[Provenance]
    ) -> builtins.list[dict[str, Any] | HoldfastError]:
        """Put and remove items, each for itself; what became of each, or its error, by position.

        A write is `{"put": {"item": …}}` or `{"delete": {"partition_key": …, "sort_key": …}}`, each with
        `condition` and `expected_version` if wanted.
        """
        fields = {"writes": [spelling.write(write) for write in writes]}
        answer = await self._call("batch_write_item", table, fields, provenance)
        return [spelling.result_of(result) for result in answer["results"]]

    async def transact_write(
        self, writes: Sequence[Mapping[str, Any]], **provenance: Unpack[Provenance]
    ) -> builtins.list[int | None]:
        """All of the writes or none; their versions by position, None where nothing was changed.

        A write has one of `put`, `update`, `delete` and `check`, which holds the fields of that verb with its
        `table`; a `check` only expects something of an item.

        Raises:
            ConditionFailed: `conflicts` lists every write that did not find what it expects.
        """
        fields = {"writes": [spelling.write(write) for write in writes]}
        answer = await self._ask("transact_write", fields | spelling.options(provenance))
        versions: builtins.list[int | None] = answer["versions"]
        return versions

    async def set_ttl(
        self,
        table: str,
        partition_key: Key,
        sort_key: Key | None = None,
        ttl_seconds: int | None = None,
        **expecting: Unpack[Expecting],
    ) -> Item:
        """Have an item expire so many seconds from now.

        Args:
            table: The table.
            partition_key: The item's.
            sort_key: The item's, if the table has one.
            ttl_seconds: A whole number from 1, which must be given; by name if there is no sort key.
            **expecting: See the class.

        Raises:
            MissingField: There is no `ttl_seconds`.
            TtlNotConfigured: The table has no ttl attribute.
            ItemNotFound: The item is gone.
        """
        fields = spelling.keyed(partition_key, sort_key)
        if ttl_seconds is not None:
            fields["ttl_seconds"] = ttl_seconds
        return await self._moved("set_ttl", table, fields, expecting)

    async def remove_ttl(
        self, table: str, partition_key: Key, sort_key: Key | None = None, **expecting: Unpack[Expecting]
    ) -> Item:
        """Have an item live for ever; see `set_ttl`."""
        return await self._moved("remove_ttl", table, spelling.keyed(partition_key, sort_key), expecting)

    async def get_ttl(self, table: str, partition_key: Key, sort_key: Key | None = None) -> int | None:
        """How many whole seconds an item has left, at least 1 while it lives; None for ever, 0 if gone."""
        answer = await self._call("get_ttl", table, spelling.keyed(partition_key, sort_key))
        seconds: int | None = answer["ttl"]
        return seconds

    async def sweep_expired_ttl(self, table: str) -> int:
        """Remove at most 100 items that have expired; how many that was."""
        return int((await self._call("sweep_expired_ttl", table))["removed"])

    async def changes(
        self, table: str, since: int = 0, *, limit: int | None = None, view: Stream = "keys"
    ) -> ItemChanges:
        """What changed in a table after a version, with images of the items as `view` says."""
        fields = {"since": since, "limit": limit, "view": view}
        return spelling.changes_of(await self._call("changes", table, fields))

    def start_reaper(self, interval: float = 3600) -> ReaperHandle:
        """Sweep every table that has a ttl attribute until nothing is left, sleep, and so on.

        It ends with `stop()`, or when the store is closed.

        Raises:
            ValidationError: The interval is not a positive number of seconds.
        """
        if not interval > 0:
            raise ValidationError("interval must be a positive number of seconds", field="interval")
        stopping = asyncio.Event()
        task = asyncio.create_task(
            self._reap(interval, stopping), name=f"holdfast reaper of {self.namespace}"
        )
        self._own(task)
        return ReaperHandle(task, stopping)

    async def _reap(self, interval: float, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            try:
                for table in await self.list_tables():
                    await self._sweep_whole(table, stopping)
            except HoldfastError as error:
                _log.error("sweeping the tables of %s failed: %s", self.namespace, error.message)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), interval)

    async def _sweep_whole(self, table: str, stopping: asyncio.Event) -> None:
        # One without a ttl attribute has nothing to sweep, and one that was dropped meanwhile neither.
        with contextlib.suppress(TtlNotConfigured, TableNotFound):
            while not stopping.is_set() and await self.sweep_expired_ttl(table):
                pass

    async def _moved(
        self, verb: str, table: str, fields: dict[str, Any], expecting: Mapping[str, Any]
    ) -> Item:
        return spelling.item_of(await self._call(verb, table, fields | {"return_values": "new"}, expecting))

    async def _call(
        self,
        verb: str,
        table: str,
        fields: Mapping[str, Any] | None = None,
        given: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        return await self._ask(verb, {"table": table, **(fields or {}), **spelling.options(given or {})})


def _returned(answer: Mapping[str, Any], return_values: str) -> Item | None:
    """The item that a write returns."""
    if return_values == "new":
        return spelling.item_of(answer)
    return spelling.old_item_of(answer) if return_values == "old" else None
