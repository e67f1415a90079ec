"""`holdfast table put`, `get`, `update`, `delete` and `ttl`: the verbs on one item.

Law: a command turns its arguments into one call of a verb and prints the answer.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from cyclopts import Parameter

import holdfast
from holdfast.edges.cli.asking import Yes, destroys, require_yes
from holdfast.edges.cli.options import UNNAMED, Long, Seconds, WriteOptions
from holdfast.edges.cli.output import document, item_document, line, rows, shown_time, value
from holdfast.edges.cli.tables import (
    HERE,
    Condition,
    Hyphened,
    IfVersion,
    Owner,
    PartitionKey,
    SortKey,
    Table,
    json_option,
    key_of,
    no_item,
    print_version,
)
from holdfast.edges.cli.values import read_value

_HINT: Final = 'write an object such as \'{"user": "ada"}\', or @FILE to read it from a file'


async def put(
    table: Table,
    item: Annotated[str, Hyphened],
    /,
    *,
    if_version: IfVersion = None,
    where: Condition = None,
    origin: WriteOptions = UNNAMED,
    owner: Owner = HERE,
) -> None:
    """Put an item, replacing one with the same key, and print its version.

    Parameters
    ----------
    item
        A JSON object that contains its key; - reads it from stdin, @FILE from a file.
    """
    content = read_value(item, text=False, hint=_HINT)
    condition = json_option(where, field="where")
    async with owner.open() as store:
        done = await owner.tables(store).put_item(
            table, content, expected_version=if_version, condition=condition, **origin.fields
        )
    print_version(done, owner)


async def get(
    table: Table,
    partition_key: PartitionKey,
    sort_key: SortKey = None,
    /,
    *,
    show: tuple[str, ...] = (),
    long: Annotated[bool, Long] = False,
    owner: Owner = HERE,
) -> None:
    """Print an item as JSON. If it does not exist, the exit code is 3.

    Parameters
    ----------
    show
        Only this path, such as meta.tag; may be given several times.
    long
        Print its version and deadline too.
    """
    async with owner.look() as store:
        tables = owner.tables(store)
        key = await key_of(tables, table, partition_key, sort_key)
        item = await tables.get_item(table, *key, projection=show or None)
    print_item(table, item, owner, long=long)


def print_item(table: str, item: holdfast.Item | None, owner: Owner, *, long: bool) -> None:
    """Print an item in the form that the options ask for."""
    if item is None:
        no_item(table)
    if not long and not owner.json:
        value(item.value)
    elif not long:
        document(item.value)
    elif owner.json:
        document(item_document(item))
    else:
        rows(("field", "content"), _described(item))


async def update(
    table: Table,
    partition_key: PartitionKey,
    sort_key: SortKey = None,
    /,
    *,
    set_values: Annotated[str | None, Parameter(name="--set")] = None,
    add: str | None = None,
    remove: tuple[str, ...] = (),
    if_version: IfVersion = None,
    where: Condition = None,
    origin: WriteOptions = UNNAMED,
    owner: Owner = HERE,
) -> None:
    """Change attributes of an item atomically, and print the result. A missing item is created.

    Parameters
    ----------
    set_values
        Values by path, as JSON: '{"meta.tag": "x"}'.
    add
        Numbers to add by path, as JSON: '{"score": 1}'.
    remove
        A path to remove; may be given several times.
    """
    changes = {"set": json_option(set_values, field="set"), "add": json_option(add, field="add")}
    condition = json_option(where, field="where")
    async with owner.open() as store:
        tables = owner.tables(store)
        key = await key_of(tables, table, partition_key, sort_key)
        item = await tables.update_item(
            table,
            *key,
            **changes,
            remove=remove or None,
            expected_version=if_version,
            condition=condition,
            **origin.fields,
        )
    document(item_document(item) if owner.json else item.value)


@destroys
async def delete(
    table: Table,
    partition_key: PartitionKey,
    sort_key: SortKey = None,
    /,
    *,
    yes: Yes = False,
    if_version: IfVersion = None,
    where: Condition = None,
    origin: WriteOptions = UNNAMED,
    owner: Owner = HERE,
) -> None:
    """Delete an item. An item that does not exist is no error."""
    condition = json_option(where, field="where")
    item = ", ".join(ascii(part) for part in (partition_key, sort_key) if part is not None)
    require_yes(f"item {item} of table {table!a} of plugin {owner.plugin_name} is deleted", yes=yes)
    async with owner.open() as store:
        tables = owner.tables(store)
        key = await key_of(tables, table, partition_key, sort_key)
        deleted = await tables.delete_item(
            table, *key, expected_version=if_version, condition=condition, **origin.fields
        )
    if owner.json:
        document({"deleted": deleted})
    else:
        line("deleted" if deleted else "not there")


async def get_ttl(
    table: Table, partition_key: PartitionKey, sort_key: SortKey = None, /, *, owner: Owner = HERE
) -> None:
    """Print the seconds left: never for an item without a deadline, 0 if it does not exist."""
    async with owner.look() as store:
        tables = owner.tables(store)
        left = await tables.get_ttl(table, *await key_of(tables, table, partition_key, sort_key))
    if owner.json:
        document({"ttl": left})
    else:
        line("never" if left is None else left)


async def set_ttl(
    table: Table,
    partition_key: PartitionKey,
    sort_key: SortKey = None,
    /,
    *,
    seconds: Seconds,
    origin: WriteOptions = UNNAMED,
    owner: Owner = HERE,
) -> None:
    """Expire an item after this many seconds, and print its new version.

    Parameters
    ----------
    seconds
        Seconds until the item expires.
    """
    async with owner.open() as store:
        tables = owner.tables(store)
        key = await key_of(tables, table, partition_key, sort_key)
        item = await tables.set_ttl(table, *key, seconds, **origin.fields)
    print_version(item, owner)


async def remove_ttl(
    table: Table,
    partition_key: PartitionKey,
    sort_key: SortKey = None,
    /,
    *,
    origin: WriteOptions = UNNAMED,
    owner: Owner = HERE,
) -> None:
    """Remove an item's deadline, and print its new version."""
    async with owner.open() as store:
        tables = owner.tables(store)
        key = await key_of(tables, table, partition_key, sort_key)
        item = await tables.remove_ttl(table, *key, **origin.fields)
    print_version(item, owner)


def _described(item: holdfast.Item) -> list[tuple[str, Any]]:
    return [
        ("item", msgspec.json.encode(item.value).decode()),
        ("version", str(item.version)),
        ("expires_at", None if item.expires_at is None else shown_time(item.expires_at)),
    ]
