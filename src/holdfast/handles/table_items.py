"""The verbs on items by key, as Python calls.

Law: as in `holdfast.handles.table_handle`. `return_values` decides which type a write returns.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from holdfast.errors import HoldfastError
from holdfast.handles import table_fields
from holdfast.handles.table_handle import TableHandle
from holdfast.tables.updates import plain
from holdfast.verbs.unknown import refuse_unknown_writes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.handles.table_fields import Expecting, Key, Paths, Values
    from holdfast.model import Item
    from holdfast.verbs.fields import Provenance, Viewing


class TableItems(TableHandle):
    """The verbs that read and write items by their keys; see `holdfast.Tables`."""

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
        fields = table_fields.put(item) | {"return_values": return_values}
        return _returned(await self._call("put_item", table, fields, expecting), return_values)

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
        fields = table_fields.keyed(partition_key, sort_key) | {"projection": projection}
        answer = await self._call("get_item", table, fields)
        return None if answer["item"] is None else table_fields.item_of(answer)

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
        fields = table_fields.keyed(partition_key, sort_key) | {"why": why}
        answer = await self._call("reveal_item", table, fields, viewing)
        return None if answer["item"] is None else table_fields.item_of(answer)

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
        changes = {"set": plain(set), "remove": plain(remove), "add": plain(add)}
        fields = table_fields.keyed(partition_key, sort_key) | changes | {"return_values": return_values}
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
        fields = table_fields.keyed(partition_key, sort_key) | {"return_values": return_values}
        answer = await self._call("delete_item", table, fields, expecting)
        return table_fields.old_item_of(answer) if return_values == "old" else bool(answer["deleted"])

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
        fields = {"keys": [table_fields.key(key) for key in keys]}
        return table_fields.items_of(await self._call("batch_get_item", table, fields))

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
        refuse_unknown_writes(writes, field="writes")
        fields = {"writes": [table_fields.write(write) for write in writes]}
        answer = await self._call("batch_write_item", table, fields, provenance)
        return [table_fields.result_of(result) for result in answer["results"]]

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
        refuse_unknown_writes(writes, field="writes")
        fields = {"writes": [table_fields.write(write) for write in writes]}
        answer = await self._ask("transact_write", fields | table_fields.options(provenance))
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
        fields = table_fields.keyed(partition_key, sort_key)
        if ttl_seconds is not None:
            fields["ttl_seconds"] = ttl_seconds
        return await self._moved("set_ttl", table, fields, expecting)

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
        return await self._moved("remove_ttl", table, table_fields.keyed(partition_key, sort_key), expecting)

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
        answer = await self._call("get_ttl", table, table_fields.keyed(partition_key, sort_key))
        seconds: int | None = answer["ttl"]
        return seconds

    async def _moved(
        self, verb: str, table: str, fields: dict[str, Any], expecting: Mapping[str, Any]
    ) -> Item:
        return table_fields.item_of(
            await self._call(verb, table, fields | {"return_values": "new"}, expecting)
        )


def _returned(answer: Mapping[str, Any], return_values: str) -> Item | None:
    """Return the item that a write returns."""
    if return_values == "new":
        return table_fields.item_of(answer)
    return table_fields.old_item_of(answer) if return_values == "old" else None
