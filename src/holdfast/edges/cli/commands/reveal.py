"""`holdfast reveal`, `table reveal` and `blob reveal`: a person reads a value, and an audit records why.

They print what `get` prints.
"""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from holdfast.edges.cli.commands.blob import HERE as BLOBS_HERE
from holdfast.edges.cli.commands.blob import BlobOwner, Name, require_output, write_blob
from holdfast.edges.cli.commands.get import print_entry, require_one_form
from holdfast.edges.cli.commands.table import HERE as TABLES_HERE
from holdfast.edges.cli.commands.table import Owner, PartitionKey, SortKey, Table, key_of, print_item
from holdfast.edges.cli.options import Long
from holdfast.edges.cli.target import HERE, Target

Why = Annotated[
    str | None, Parameter(help="Why you look at it. Required in a namespace with an audit, which records it.")
]
Viewer = Annotated[str | None, Parameter(help="Name of the person who looks; `cli` if not given.")]


async def reveal(
    key: str,
    /,
    *,
    why: Why = None,
    writer: Viewer = None,
    long: Annotated[bool, Long] = False,
    raw: bool = False,
    target: Target = HERE,
) -> None:
    """Print the value of a key; an audit records who looked at it and why.

    The policy `reveal` of the namespace decides whether a reason is needed, and may refuse.

    Parameters
    ----------
    key
        The key.
    long
        Print the whole entry: also version, times, writer and semantics.
    raw
        Print a string without JSON quotes.
    """
    require_one_form(target, long=long, raw=raw)
    async with target.open() as store:
        entry = await target.keys(store).reveal(key, why, writer=writer)
    print_entry(key, entry, target, long=long, raw=raw)


async def reveal_item(
    table: Table,
    partition_key: PartitionKey,
    sort_key: SortKey = None,
    /,
    *,
    why: Why = None,
    writer: Viewer = None,
    long: Annotated[bool, Long] = False,
    owner: Owner = TABLES_HERE,
) -> None:
    """Print an item as JSON; an audit records who looked at it and why.

    Parameters
    ----------
    long
        Print its version and deadline too.
    """
    async with owner.open() as store:
        tables = owner.tables(store)
        key = await key_of(tables, table, partition_key, sort_key)
        item = await tables.reveal_item(table, *key, why=why, writer=writer)
    print_item(table, item, owner, long=long)


async def reveal_blob(
    name: Name,
    /,
    *,
    why: Why = None,
    writer: Viewer = None,
    output: Annotated[str | None, Parameter(alias="-o")] = None,
    force: bool = False,
    owner: BlobOwner = BLOBS_HERE,
) -> None:
    """Write a blob to stdout or to a file; an audit records who looked at it and why.

    Parameters
    ----------
    output
        The file. It appears when all bytes have arrived, and only its owner can read it.
    force
        Replace the file if it exists.
    """
    require_output(output, force=force)
    async with owner.open() as store:
        reader = await owner.blobs(store).reveal(name, why, writer=writer)
        await write_blob(name, reader, output, force=force)
