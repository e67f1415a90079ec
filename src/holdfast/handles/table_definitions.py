"""The verbs that define tables and their indexes, as Python calls.

Law: as in `holdfast.handles.table_handle`.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any, Unpack

from holdfast.handles import table_fields
from holdfast.handles.table_handle import TableHandle

if TYPE_CHECKING:
    from holdfast.handles.table_fields import KeyDefinition
    from holdfast.tables.schema import Stream
    from holdfast.verbs.fields import Provenance


class TableDefinitions(TableHandle):
    """The verbs on tables and indexes as wholes; see `holdfast.Tables`."""

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
        fields = {
            "partition_key": table_fields.definition(partition_key),
            "sort_key": None if sort_key is None else table_fields.definition(sort_key),
            "ttl_attribute": ttl_attribute,
            "stream": stream,
        }
        return await self._call("create_table", table, fields, provenance)

    async def drop_table(self, table: str, **provenance: Unpack[Provenance]) -> None:
        """Drop a table with all its items.

        Args:
            table: The table.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `Tables`.

        Raises:
            TableNotFound: There is no such table.
        """
        await self._call("drop_table", table, {}, provenance)

    async def describe_table(self, table: str) -> dict[str, Any]:
        """Describe a table.

        Args:
            table: The table.

        Returns:
            Its keys, its ttl attribute, its stream and its indexes.

        Raises:
            TableNotFound: There is no such table.
        """
        return await self._call("describe_table", table)

    async def list_tables(self) -> builtins.list[str]:
        """List the names of all tables, in order."""
        names: builtins.list[str] = (await self._ask("list_tables", {}))["tables"]
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
        fields = {"index": index, "index_key": table_fields.definition(key)}
        return await self._call("create_index", table, fields, provenance)

    async def drop_index(self, table: str, index: str, **provenance: Unpack[Provenance]) -> None:
        """Drop an index.

        Args:
            table: The table.
            index: The index.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `Tables`.

        Raises:
            IndexNotFound: There is no such index.
        """
        await self._call("drop_index", table, {"index": index}, provenance)

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
        return await self._call("check_index", table, {"index": index})
