"""Export and import of a plugin's tables: their definitions in the header, then one item per line.

Law: an item is written as a call would write it, so it gets a new version. A table that exists must have the
same keys. Putting an item again changes nothing but its version, so an import can be repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.errors import HoldfastError, TableNotFound, ValidationError
from holdfast.rules import MAX_BATCH, MAX_TRANSFER_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.handles.tables import Tables

_PAGE: Final = 1_000
_MARGIN: Final = 256
"""Bytes that a line counts in addition to its length."""
_DEFINING: Final = ("partition_key", "sort_key", "ttl_attribute", "stream")


class ItemLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line: an item and its table. The version is that at the time of the export."""

    table: str
    item: dict[str, Any]
    version: int


class _Attribute(msgspec.Struct):
    name: str
    type: str


class _Index(msgspec.Struct):
    name: str
    key: _Attribute


class _Definition(msgspec.Struct):
    """What a header must say about a table."""

    table: str
    partition_key: _Attribute
    sort_key: _Attribute | None
    ttl_attribute: str | None
    stream: str | None
    indexes: list[_Index]


def require_definitions(described: object) -> None:
    """Check the definitions of tables in a header.

    Raises:
        ValidationError: They are not what an export has.
    """
    try:
        msgspec.convert(described, list[_Definition])
    except msgspec.ValidationError as error:
        raise ValidationError(f"line 1 does not define tables: {error}", field="line") from None


class TableCounts(msgspec.Struct, kw_only=True):
    """Counts of an import: the tables that it made and the items that it put."""

    namespace: str
    dry_run: bool
    tables: int = 0
    written: int = 0
    policy_set: bool = False


async def definitions(tables: Tables) -> list[dict[str, Any]]:
    """Return the descriptions of all tables, by name."""
    return [await tables.describe_table(name) for name in await tables.list_tables()]


async def item_lines(tables: Tables, described: list[dict[str, Any]]) -> AsyncIterator[list[bytes]]:
    """Yield the lines of all items, page by page, table by table."""
    for one in described:
        name, cursor = one["table"], None
        while True:
            page = await tables.scan(name, limit=_PAGE, cursor=cursor)
            yield [_line(name, item.value, item.version) for item in page.items]
            cursor = page.cursor
            if cursor is None:
                break


class TableImporter:
    """Takes the lines of an export of tables, in their order."""

    def __init__(self, tables: Tables, described: list[dict[str, Any]], tally: TableCounts) -> None:
        self._tables = tables
        self._described = {one["table"]: one for one in described}
        self.tally = tally
        self._chunk: list[tuple[int, ItemLine]] = []
        self._room = MAX_TRANSFER_BYTES

    async def begin(self) -> None:
        """Make the tables that do not exist.

        Raises:
            ValidationError: A table exists and has other keys.
        """
        for name, wanted in self._described.items():
            found = await self._found(name)
            if found is not None and any(found[part] != wanted[part] for part in _DEFINING):
                raise ValidationError(
                    f"table {name!r} exists and has another definition: import into another plugin, or drop "
                    "the table first",
                    field="table",
                )
            if found is None:
                self.tally.tables += 1
                if not self.tally.dry_run:
                    await self._make(wanted)

    async def take(self, number: int, line: bytes) -> None:
        """Take a line.

        Raises:
            ValidationError: The line holds no item of a table of this export.
        """
        one = self._read(number, line)
        size = len(line) + _MARGIN
        last = self._chunk[-1][1].table if self._chunk else one.table
        if size > self._room or len(self._chunk) == MAX_BATCH or one.table != last:
            await self._write()
        self._chunk.append((number, one))
        self._room -= size

    async def finish(self) -> None:
        """Write the last items, then make the indexes, which fill themselves."""
        await self._write()
        for name, wanted in self._described.items():
            found = None if self.tally.dry_run else await self._found(name)
            known = {index["name"] for index in found["indexes"]} if found is not None else set()
            for index in wanted["indexes"]:
                if found is not None and index["name"] not in known:
                    await self._tables.create_index(name, index["name"], key=_attribute(index["key"]))

    def _read(self, number: int, line: bytes) -> ItemLine:
        try:
            one = msgspec.json.decode(line, type=ItemLine)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ValidationError(f"line {number}: this is not an item: {error}", field="line") from None
        if one.table not in self._described:
            raise ValidationError(f"line {number}: the header has no table {one.table!r}", field="line")
        return one

    async def _write(self) -> None:
        chunk, self._chunk, self._room = self._chunk, [], MAX_TRANSFER_BYTES
        self.tally.written += len(chunk)
        if not chunk or self.tally.dry_run:
            return
        puts = [{"put": {"item": one.item}} for _, one in chunk]
        done = await self._tables.batch_write_item(chunk[0][1].table, puts)
        for (number, _), result in zip(chunk, done, strict=True):
            if isinstance(result, HoldfastError):
                raise ValidationError(f"line {number}: {result.message}", field="line")

    async def _found(self, name: str) -> dict[str, Any] | None:
        try:
            return await self._tables.describe_table(name)
        except TableNotFound:
            return None

    async def _make(self, wanted: dict[str, Any]) -> None:
        sort = wanted["sort_key"]
        await self._tables.create_table(
            wanted["table"],
            partition_key=_attribute(wanted["partition_key"]),
            sort_key=None if sort is None else _attribute(sort),
            ttl_attribute=wanted["ttl_attribute"],
            stream=wanted["stream"],
        )


def _line(table: str, item: Any, version: int) -> bytes:
    return msgspec.json.encode({"table": table, "item": item, "version": version}) + b"\n"


def _attribute(described: dict[str, Any]) -> tuple[str, Any]:
    return described["name"], described["type"]
