"""`holdfast table create`, `drop`, `list`, `describe`, `index` and `sweep`: tables and their indexes.

Law: a command turns its arguments into calls of a verb and prints the answer.
"""

from __future__ import annotations

from typing import Literal

from holdfast.edges.cli.asking import Yes, destroys, require_yes
from holdfast.edges.cli.options import UNNAMED, WriteOptions
from holdfast.edges.cli.output import document, line, rows
from holdfast.edges.cli.tables import HERE, Definition, Everything, Owner, Table, definition, print_described
from holdfast.errors import DatabaseError


async def create(
    table: Table,
    /,
    *,
    partition_key: Definition,
    sort_key: Definition | None = None,
    ttl_attribute: str | None = None,
    stream: Literal["keys", "new", "old", "both"] = "both",
    origin: WriteOptions = UNNAMED,
    owner: Owner = HERE,
) -> None:
    """Create a table, and print its description.

    Parameters
    ----------
    ttl_attribute
        The attribute that holds an item's expiry time, in seconds since 1970.
    stream
        Item images that changes can show.
    """
    keys = definition(partition_key, field="partition-key")
    sort = None if sort_key is None else definition(sort_key, field="sort-key")
    async with owner.open() as store:
        made = await owner.tables(store).create_table(
            table,
            partition_key=keys,
            sort_key=sort,
            ttl_attribute=ttl_attribute,
            stream=stream,
            **origin.fields,
        )
    print_described(made, owner)


@destroys
async def drop(
    table: Table, /, *, yes: Yes = False, origin: WriteOptions = UNNAMED, owner: Owner = HERE
) -> None:
    """Drop a table with all its items."""
    require_yes(f"table {table!a} goes with all its items", yes=yes)
    async with owner.open() as store:
        await owner.tables(store).drop_table(table, **origin.fields)
    _dropped(owner)


async def list_tables(*, owner: Owner = HERE) -> None:
    """List the names of all tables of a plugin."""
    async with owner.look() as store:
        names = await owner.tables(store).list_tables()
    if owner.json:
        document({"tables": names})
        return
    for name in names:
        line(name)


async def describe(table: Table, /, *, owner: Owner = HERE) -> None:
    """Print the keys, the ttl attribute and the indexes of a table."""
    async with owner.look() as store:
        described = await owner.tables(store).describe_table(table)
    print_described(described, owner)


async def sweep(table: Table, /, *, everything: Everything = False, owner: Owner = HERE) -> None:
    """Delete expired items, and print how many: at most a hundred, or all of them with --all."""
    async with owner.open() as store:
        tables = owner.tables(store)
        removed = swept = await tables.sweep_expired_ttl(table)
        while everything and swept:
            swept = await tables.sweep_expired_ttl(table)
            removed += swept
    if owner.json:
        document({"removed": removed})
    else:
        line(removed)


async def create_index(
    table: Table, index: str, /, *, key: Definition, origin: WriteOptions = UNNAMED, owner: Owner = HERE
) -> None:
    """Create an index on one attribute, backfill it, and print the table's description.

    Parameters
    ----------
    index
        The index.
    """
    attribute = definition(key, field="key")
    async with owner.open() as store:
        made = await owner.tables(store).create_index(table, index, key=attribute, **origin.fields)
    print_described(made, owner)


@destroys
async def drop_index(
    table: Table, index: str, /, *, yes: Yes = False, origin: WriteOptions = UNNAMED, owner: Owner = HERE
) -> None:
    """Drop an index.

    Parameters
    ----------
    index
        The index.
    """
    require_yes(f"index {index!a} of table {table!a} goes; its items stay", yes=yes)
    async with owner.open() as store:
        await owner.tables(store).drop_index(table, index, **origin.fields)
    _dropped(owner)


async def check_index(table: Table, index: str, /, *, owner: Owner = HERE) -> None:
    """Check that an index matches the items exactly; if not, the exit code is 1.

    Parameters
    ----------
    index
        The index.
    """
    async with owner.look() as store:
        found = await owner.tables(store).check_index(table, index)
    if owner.json:
        document(found)
    else:
        names = ("items", "entries", "missing", "extra")
        rows(names, [[found[name] for name in names]])
    if not found["consistent"]:
        raise DatabaseError(f"index {index!r} does not match the items: drop it and create it again")


def _dropped(owner: Owner) -> None:
    if owner.json:
        document({"dropped": True})
    else:
        line("dropped")
