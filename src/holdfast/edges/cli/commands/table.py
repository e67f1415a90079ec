"""`holdfast table`: tables, their indexes and their items.

Text becomes the type that the table's definition gives, and nothing is guessed: the key 7 is a number where
keys are numbers, and text where they are text.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final, Literal, NoReturn

import msgspec
from cyclopts import Parameter

import holdfast
from holdfast.edges.cli.options import (
    OWNER,
    UNNAMED,
    Long,
    Owner,
    Seconds,
    Viewer,
    Whole,
    Why,
    WriteOptions,
    Yes,
    destroys,
    number,
    parse,
    read_value,
    require_yes,
)
from holdfast.edges.cli.output import answer, document, item_document, line, rows, say, shown_time, value
from holdfast.errors import DatabaseError
from holdfast.handles.tables import Tables

Hyphened: Final = Parameter(allow_leading_hyphen=True)

Table = Annotated[str, Parameter(help="The table.")]
PartitionKey = Annotated[
    str, Parameter(allow_leading_hyphen=True, help="The partition key; a binary one as base64.")
]
SortKey = Annotated[
    str | None, Parameter(allow_leading_hyphen=True, help="The sort key, if the table has one.")
]
Definition = Annotated[str, Parameter(help="An attribute and its type: NAME:string, :number or :binary.")]
IfVersion = Annotated[
    int | None,
    Parameter(
        converter=number, help="Write only if the item has this version; 0 means that it must not exist."
    ),
]
Condition = Annotated[
    str | None,
    Parameter(
        help='Write only if the existing item meets this condition, as JSON: \'{"score": {"gt": 5}}\'.'
    ),
]
Filter = Annotated[
    str | None, Parameter(help='Only items that meet this condition, as JSON: \'{"score": {"gt": 5}}\'.')
]
Limit = Annotated[
    int | None,
    Parameter(
        converter=number,
        help="Return at most this many, 1 to 10000; 1000 if not given. With --all, the size of a page.",
    ),
]
Everything = Annotated[bool, Parameter(name="--all", help="All of them, page by page.")]


def definition(text: str, *, field: str) -> tuple[str, str]:
    """Split an attribute of a key from its type, which follows the last colon."""
    name, colon, kind = text.rpartition(":")
    if not colon:
        raise holdfast.ValidationError(
            f"--{field} is an attribute and its type, such as user:string", field=field
        )
    return name, kind


def json_option(text: str | None, *, field: str) -> Any:
    """Parse the JSON of an option."""
    if text is None:
        return None
    try:
        return parse(text)
    except holdfast.ValidationError:
        raise holdfast.ValidationError(f"--{field} is not JSON", field=field) from None


async def key_of(tables: Tables, table: str, partition_key: str, sort_key: str | None) -> tuple[Any, Any]:
    """Return the key of an item, converted to the types of its table."""
    described = await tables.describe_table(table)
    sort = described["sort_key"]
    return (
        typed(partition_key, described["partition_key"], field="partition_key"),
        sort_key if sort_key is None or sort is None else typed(sort_key, sort, field="sort_key"),
    )


def typed(text: str, attribute: dict[str, Any], *, field: str) -> Any:
    """Return the value of a key attribute."""
    if attribute["type"] != "number":
        return text
    try:
        key = msgspec.json.decode(text)
    except msgspec.DecodeError:
        key = None
    if isinstance(key, bool) or not isinstance(key, (int, float)):
        raise holdfast.ValidationError(f"{attribute['name']} is a number, not {text!a}", field=field)
    return key


def no_item(table: str) -> NoReturn:
    """Raise the error for a missing item, which has its own exit code."""
    raise holdfast.ItemNotFound(f"table {table!r} has no such item", field="partition_key")


def print_version(item: holdfast.Item, owner: Owner) -> None:
    """Print the version that a write of an item returns."""
    answer(owner.json, {"version": item.version, "expires_at": item.expires_at}, item.version)


def print_described(described: dict[str, Any], owner: Owner) -> None:
    """Print the description of a table."""
    if owner.json:
        document(described)
        return
    shown: list[tuple[str, str | None]] = [
        ("table", described["table"]),
        ("partition_key", _attribute(described["partition_key"])),
        ("sort_key", _attribute(described["sort_key"])),
        ("ttl_attribute", described["ttl_attribute"]),
        ("stream", described["stream"]),
        ("created_at", _time(described["created_at"])),
    ]
    shown += [
        ("index", f"{index['name']} {_attribute(index['key'])} {index['state']}")
        for index in described["indexes"]
    ]
    rows(("field", "content"), shown)


def _attribute(described: dict[str, Any] | None) -> str | None:
    return None if described is None else f"{described['name']}:{described['type']}"


def _time(moment: Any) -> str:
    return moment if isinstance(moment, str) else shown_time(moment)


async def create(
    table: Table,
    /,
    *,
    partition_key: Definition,
    sort_key: Definition | None = None,
    ttl_attribute: str | None = None,
    stream: Literal["keys", "new", "old", "both"] = "both",
    origin: WriteOptions = UNNAMED,
    owner: Owner = OWNER,
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
        made = await store.tables(owner.plugin_name).create_table(
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
    table: Table, /, *, yes: Yes = False, origin: WriteOptions = UNNAMED, owner: Owner = OWNER
) -> None:
    """Drop a table with all its items."""
    require_yes(f"table {table!a} goes with all its items", yes=yes)
    async with owner.open() as store:
        await store.tables(owner.plugin_name).drop_table(table, **origin.fields)
    _dropped(owner)


async def list_tables(*, owner: Owner = OWNER) -> None:
    """List the names of all tables of a plugin."""
    async with owner.look() as store:
        names = await store.tables(owner.plugin_name).list_tables()
    if owner.json:
        document({"tables": names})
        return
    for name in names:
        line(name)


async def describe(table: Table, /, *, owner: Owner = OWNER) -> None:
    """Print the keys, the ttl attribute and the indexes of a table."""
    async with owner.look() as store:
        described = await store.tables(owner.plugin_name).describe_table(table)
    print_described(described, owner)


async def sweep(table: Table, /, *, everything: Everything = False, owner: Owner = OWNER) -> None:
    """Delete expired items, and print how many: at most a hundred, or all of them with --all."""
    async with owner.open() as store:
        tables = store.tables(owner.plugin_name)
        removed = swept = await tables.sweep_expired_ttl(table)
        while everything and swept:
            swept = await tables.sweep_expired_ttl(table)
            removed += swept
    answer(owner.json, {"removed": removed}, removed)


async def index_create(
    table: Table, index: str, /, *, key: Definition, origin: WriteOptions = UNNAMED, owner: Owner = OWNER
) -> None:
    """Create an index on one attribute, backfill it, and print the table's description.

    Parameters
    ----------
    index
        The index.
    """
    attribute = definition(key, field="key")
    async with owner.open() as store:
        tables = store.tables(owner.plugin_name)
        made = await tables.create_index(table, index, key=attribute, **origin.fields)
    print_described(made, owner)


@destroys
async def index_drop(
    table: Table, index: str, /, *, yes: Yes = False, origin: WriteOptions = UNNAMED, owner: Owner = OWNER
) -> None:
    """Drop an index.

    Parameters
    ----------
    index
        The index.
    """
    require_yes(f"index {index!a} of table {table!a} goes; its items stay", yes=yes)
    async with owner.open() as store:
        await store.tables(owner.plugin_name).drop_index(table, index, **origin.fields)
    _dropped(owner)


async def index_check(table: Table, index: str, /, *, owner: Owner = OWNER) -> None:
    """Check that an index matches the items exactly; if not, the exit code is 1.

    Parameters
    ----------
    index
        The index.
    """
    async with owner.look() as store:
        found = await store.tables(owner.plugin_name).check_index(table, index)
    if owner.json:
        document(found)
    else:
        names = ("items", "entries", "missing", "extra")
        rows(names, [[found[name] for name in names]])
    if not found["consistent"]:
        raise DatabaseError(f"index {index!r} does not match the items: drop it and create it again")


def _dropped(owner: Owner) -> None:
    answer(owner.json, {"dropped": True}, "dropped")


_HINT: Final = 'write an object such as \'{"user": "ada"}\', or @FILE to read it from a file'


async def put(
    table: Table,
    item: Annotated[str, Hyphened],
    /,
    *,
    if_version: IfVersion = None,
    where: Condition = None,
    origin: WriteOptions = UNNAMED,
    owner: Owner = OWNER,
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
        done = await store.tables(owner.plugin_name).put_item(
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
    owner: Owner = OWNER,
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
        tables = store.tables(owner.plugin_name)
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


async def reveal(
    table: Table,
    partition_key: PartitionKey,
    sort_key: SortKey = None,
    /,
    *,
    why: Why = None,
    writer: Viewer = None,
    long: Annotated[bool, Long] = False,
    owner: Owner = OWNER,
) -> None:
    """Print an item as JSON; an audit records who looked at it and why.

    Parameters
    ----------
    long
        Print its version and deadline too.
    """
    async with owner.open() as store:
        tables = store.tables(owner.plugin_name)
        key = await key_of(tables, table, partition_key, sort_key)
        item = await tables.reveal_item(table, *key, why=why, writer=writer)
    print_item(table, item, owner, long=long)


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
    owner: Owner = OWNER,
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
        tables = store.tables(owner.plugin_name)
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
    owner: Owner = OWNER,
) -> None:
    """Delete an item. An item that does not exist is no error."""
    condition = json_option(where, field="where")
    item = ", ".join(ascii(part) for part in (partition_key, sort_key) if part is not None)
    require_yes(f"item {item} of table {table!a} of plugin {owner.plugin_name} is deleted", yes=yes)
    async with owner.open() as store:
        tables = store.tables(owner.plugin_name)
        key = await key_of(tables, table, partition_key, sort_key)
        deleted = await tables.delete_item(
            table, *key, expected_version=if_version, condition=condition, **origin.fields
        )
    answer(owner.json, {"deleted": deleted}, "deleted" if deleted else "not there")


async def ttl_get(
    table: Table, partition_key: PartitionKey, sort_key: SortKey = None, /, *, owner: Owner = OWNER
) -> None:
    """Print the seconds left: never for an item without a deadline, 0 if it does not exist."""
    async with owner.look() as store:
        tables = store.tables(owner.plugin_name)
        left = await tables.get_ttl(table, *await key_of(tables, table, partition_key, sort_key))
    answer(owner.json, {"ttl": left}, "never" if left is None else left)


async def ttl_set(
    table: Table,
    partition_key: PartitionKey,
    sort_key: SortKey = None,
    /,
    *,
    seconds: Seconds,
    origin: WriteOptions = UNNAMED,
    owner: Owner = OWNER,
) -> None:
    """Expire an item after this many seconds, and print its new version.

    Parameters
    ----------
    seconds
        Seconds until the item expires.
    """
    async with owner.open() as store:
        tables = store.tables(owner.plugin_name)
        key = await key_of(tables, table, partition_key, sort_key)
        item = await tables.set_ttl(table, *key, seconds, **origin.fields)
    print_version(item, owner)


async def ttl_remove(
    table: Table,
    partition_key: PartitionKey,
    sort_key: SortKey = None,
    /,
    *,
    origin: WriteOptions = UNNAMED,
    owner: Owner = OWNER,
) -> None:
    """Remove an item's deadline, and print its new version."""
    async with owner.open() as store:
        tables = store.tables(owner.plugin_name)
        key = await key_of(tables, table, partition_key, sort_key)
        item = await tables.remove_ttl(table, *key, **origin.fields)
    print_version(item, owner)


def _described(item: holdfast.Item) -> list[tuple[str, Any]]:
    return [
        ("item", msgspec.json.encode(item.value).decode()),
        ("version", str(item.version)),
        ("expires_at", None if item.expires_at is None else shown_time(item.expires_at)),
    ]


Cursor = Annotated[str | None, Parameter(help="Continue after an earlier page; the cursor is in its JSON.")]
Show = Annotated[
    tuple[str, ...], Parameter(help="Only this path, such as meta.tag; may be given several times.")
]
Reverse = Annotated[bool, Parameter(help="Reverse the order.")]


async def query(
    table: Table,
    partition_key: PartitionKey,
    /,
    *,
    sort_key: str | None = None,
    where: Filter = None,
    show: Show = (),
    limit: Limit = None,
    cursor: Cursor = None,
    everything: Everything = False,
    reverse: Reverse = False,
    owner: Owner = OWNER,
) -> None:
    """Print the items of a partition in the order of their sort keys, one line of JSON each.

    Parameters
    ----------
    sort_key
        Condition on the sort key, as JSON: '{"between": [1, 9]}'; eq lt lte gt gte between begins_with.
    """
    condition, wanted = json_option(sort_key, field="sort-key"), _wanted(where, show, limit, reverse=reverse)
    async with owner.look() as store:
        tables = store.tables(owner.plugin_name)
        described = await tables.describe_table(table)
        key = typed(partition_key, described["partition_key"], field="partition_key")

        async def page(cursor: str | None) -> holdfast.ItemPage:
            return await tables.query(table, key, sk=condition, cursor=cursor, **wanted)

        await _print_pages(page, cursor, owner, everything=everything)


async def scan(
    table: Table,
    /,
    *,
    where: Filter = None,
    show: Show = (),
    limit: Limit = None,
    cursor: Cursor = None,
    everything: Everything = False,
    reverse: Reverse = False,
    owner: Owner = OWNER,
) -> None:
    """Print the items of a table in the order of their keys, one line of JSON each."""
    wanted = _wanted(where, show, limit, reverse=reverse)
    async with owner.look() as store:
        tables = store.tables(owner.plugin_name)

        async def page(cursor: str | None) -> holdfast.ItemPage:
            return await tables.scan(table, cursor=cursor, **wanted)

        await _print_pages(page, cursor, owner, everything=everything)


async def index_query(
    table: Table,
    index: str,
    value: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    where: Filter = None,
    show: Show = (),
    limit: Limit = None,
    cursor: Cursor = None,
    everything: Everything = False,
    reverse: Reverse = False,
    owner: Owner = OWNER,
) -> None:
    """Print the items whose indexed attribute has a value, one line of JSON each.

    Parameters
    ----------
    index
        The index.
    value
        Value of the attribute; a binary one as base64.
    """
    wanted = _wanted(where, show, limit, reverse=reverse)
    async with owner.look() as store:
        tables = store.tables(owner.plugin_name)
        keys = {one["name"]: one["key"] for one in (await tables.describe_table(table))["indexes"]}
        given = typed(value, keys[index], field="value") if index in keys else value

        async def page(cursor: str | None) -> holdfast.ItemPage:
            return await tables.query_index(table, index, given, cursor=cursor, **wanted)

        await _print_pages(page, cursor, owner, everything=everything)


async def changes(
    table: Table,
    /,
    *,
    since: Whole = 0,
    view: Literal["keys", "new", "old", "both"] = "keys",
    limit: Limit = None,
    everything: Everything = False,
    owner: Owner = OWNER,
) -> None:
    """Print the changes of a table: time, operation, version, key and writer.

    Parameters
    ----------
    since
        Start after this version; 0 starts with the oldest change in the journal.
    view
        Item images to include; only with --json.
    """
    async with owner.look() as store:
        tables = store.tables(owner.plugin_name)
        while True:
            page = await tables.changes(table, since, limit=limit, view=view)
            if owner.json and not everything:
                document(page)
            elif owner.json:
                for change in page.changes:
                    document(change)
            else:
                rows(("time", "op", "version", "key", "writer"), map(_cells, page.changes))
            if page.gap:
                say(f"what changed before version {page.oldest} is not known any more")
            if not everything or not page.changes:
                return
            since = page.next


def _wanted(where: str | None, show: tuple[str, ...], limit: int | None, *, reverse: bool) -> dict[str, Any]:
    return {
        "filter": json_option(where, field="where"),
        "projection": show or None,
        "limit": limit,
        "reverse": reverse,
    }


async def _print_pages(
    page_after: Callable[[str | None], Awaitable[holdfast.ItemPage]],
    cursor: str | None,
    owner: Owner,
    *,
    everything: bool,
) -> None:
    while True:
        page = await page_after(cursor)
        cursor = page.cursor
        if owner.json and not everything:
            document(_page_document(page))
            return
        for item in page.items:
            document(item_document(item) if owner.json else item.value)
        if cursor is None:
            return
        if not everything:
            say(f"there may be more items: --all lists them, --cursor {cursor} goes on")
            return


def _page_document(page: holdfast.ItemPage) -> dict[str, Any]:
    items = [item_document(item) for item in page.items]
    return {"items": items, "count": page.count, "truncated": page.truncated, "cursor": page.cursor}


def _cells(change: holdfast.ItemChange) -> tuple[Any, ...]:
    key = [change.partition_key] if change.sort_key is None else [change.partition_key, change.sort_key]
    shown = msgspec.json.encode(key).decode()
    return shown_time(change.at), change.op, change.version, shown, change.last_writer
