"""`holdfast table`: tables, their indexes and their items.

Text becomes the type that the table's definition gives, and nothing is guessed: the key 7 is a number where
keys are numbers, and text where they are text. Verbs without a function here have the commands that
`holdfast.edges.cli.verbs` makes of their declarations.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final, Literal, get_args

import msgspec
from cyclopts import App, Parameter

import holdfast
from holdfast.declare import Declaration
from holdfast.edges.cli.app import register_verbs
from holdfast.edges.cli.options import (
    OWNER,
    UNNAMED,
    Everything,
    Long,
    MaybeWhole,
    Owner,
    Paging,
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
from holdfast.edges.cli.output import (
    OK,
    answer,
    document,
    field_rows,
    item_document,
    line,
    rows,
    say,
    value,
)
from holdfast.edges.cli.verbs import Family, Spelling
from holdfast.errors import DatabaseError
from holdfast.handles.tables import Tables
from holdfast.tables.commands import VERBS
from holdfast.tables.forms import KeyDefinitionFields

Table = Annotated[str, Parameter(help="The table.")]
Index = Annotated[str, Parameter(help="The index.")]
PartitionKey = Annotated[
    str, Parameter(allow_leading_hyphen=True, help="The partition key; a binary one as base64.")
]
SortKey = Annotated[
    str | None, Parameter(allow_leading_hyphen=True, help="The sort key, if the table has one.")
]
ItemVersion = Annotated[
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
Item = Annotated[
    str,
    Parameter(
        allow_leading_hyphen=True,
        help="A JSON object that contains its key; - reads it from stdin, @FILE from a file.",
    ),
]
_DEFINITION: Final = "An attribute and its type: NAME:string, :number or :binary."
_HINT: Final = 'write an object such as \'{"user": "ada"}\', or @FILE to read it from a file'

app = App(name="table", help="Tables, their items and their indexes.")
index = App(name="index", help="Indexes on a table.")
ttl = App(name="ttl", help="Print, set or remove the time an item has left to live.")
app.command(index)
app.command(ttl)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Expected:
    """What must hold for a write of an item."""

    if_version: ItemVersion = None
    where: Condition = None

    @property
    def fields(self) -> dict[str, Any]:
        """The keyword arguments for the verbs."""
        return {"expected_version": self.if_version, "condition": json_option(self.where, field="where")}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Selection(Paging):
    """The items to print."""

    where: str | None = None
    """Only items that meet this condition, as JSON: '{"score": {"gt": 5}}'."""

    show: tuple[str, ...] = ()
    """Only this path, such as meta.tag; may be given several times."""

    reverse: bool = False
    """Reverse the order."""

    @property
    def fields(self) -> dict[str, Any]:
        """The keyword arguments for the verbs, but for the limit and the cursor."""
        return {
            "filter": json_option(self.where, field="where"),
            "projection": self.show or None,
            "reverse": self.reverse,
        }


ANYTHING: Final = Expected()
ALL: Final = Selection()


def json_option(text: str | None, *, field: str) -> Any:
    """Parse the JSON of an option."""
    if text is None:
        return None
    try:
        return parse(text)
    except holdfast.ValidationError:
        raise holdfast.ValidationError(f"--{field} is not JSON", field=field) from None


async def _typed(tables: Tables, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call, with the key of an item in the types of its table."""
    if not isinstance(fields.get("partition_key"), str):
        return fields
    described = await tables.describe_table(fields["table"])
    keys = {name: fields[name] for name in ("partition_key", "sort_key") if fields.get(name) is not None}
    return fields | {
        name: typed(text, described[name], field=name) for name, text in keys.items() if described[name]
    }


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


# The commands that are made from declarations.


def _spell(name: str, form: Any) -> Spelling | None:
    """Return how the command line has a field of a verb on tables."""
    if name == "key" or KeyDefinitionFields in get_args(form):
        kind = str if name in ("key", "partition_key") else str | None
        read = partial(_definition, field=name.replace("_", "-"))
        return Spelling(name, Annotated[kind, Parameter(help=_DEFINITION)], read)
    return _SPELLINGS.get(name)


_SPELLINGS: Final = {
    "table": Spelling("table", Table),
    "index": Spelling("index", Index),
    "partition_key": Spelling("partition_key", PartitionKey),
    "sort_key": Spelling("sort_key", SortKey),
    "item": Spelling("item", Item, partial(read_value, text=False, hint=_HINT)),
    "condition": Spelling("where", Condition, partial(json_option, field="where")),
    "expected_version": Spelling("if_version", ItemVersion),
    "ttl_seconds": Spelling("seconds", Annotated[Seconds, Parameter(help="Seconds until the item expires.")]),
}


def _definition(text: str | None, *, field: str) -> tuple[str, str] | None:
    """Split an attribute of a key from its type, which follows the last colon."""
    if text is None:
        return None
    name, colon, kind = text.rpartition(":")
    if not colon:
        raise holdfast.ValidationError(
            f"--{field} is an attribute and its type, such as user:string", field=field
        )
    return name, kind


def _show(declaration: Declaration, fields: dict[str, Any], result: Any, owner: Owner) -> int:
    """Print what a verb has returned."""
    if isinstance(result, holdfast.Item):
        answer(owner.json, {"version": result.version, "expires_at": result.expires_at}, result.version)
    elif isinstance(result, dict) and "indexes" in result and not owner.json:
        _print_described(result)
    elif declaration.name == "get_ttl":
        answer(owner.json, {"ttl": result}, "never" if result is None else result)
    elif result is None:
        answer(owner.json, {"dropped": True}, "dropped")
    elif declaration.name == "list_tables":
        if owner.json:
            document({"tables": result})
        for name in () if owner.json else result:
            line(name)
    elif declaration.name == "batch_get_item":
        for item in result:
            document(None if item is None else item_document(item) if owner.json else item.value)
    elif declaration.name == "check_index":
        if owner.json:
            document(result)
        else:
            names = ("items", "entries", "missing", "extra")
            rows(names, [[result[name] for name in names]])
        if not result["consistent"]:
            raise DatabaseError(
                f"index {fields['index']!r} does not match the items: drop it and create it again"
            )
    else:
        document(result)
    return OK


def _print_described(described: dict[str, Any]) -> None:
    names = ("table", "partition_key", "sort_key", "ttl_attribute", "stream", "created_at")
    fields = {name: described[name] for name in names}
    fields |= {name: _attribute(described[name]) for name in ("partition_key", "sort_key")}
    indexes = (f"{one['name']} {_attribute(one['key'])} {one['state']}" for one in described["indexes"])
    rows(("field", "content"), [*fields.items(), *(("index", one) for one in indexes)])


def _attribute(described: dict[str, Any] | None) -> str | None:
    return None if described is None else f"{described['name']}:{described['type']}"


FAMILY: Final = Family(
    verbs=VERBS,
    handle=Tables,
    opened=lambda owner, store: store.tables(owner.plugin_name),
    place=OWNER,
    spell=_spell,
    owner=lambda owner: f"plugin {owner.plugin_name}",
    show=_show,
    prints={
        "indexes": "Prints its description.",
        "old_version": "Prints its new version.",
        "consistent": "If they do not match, the exit code is 1.",
    },
    keywords=("expected_version", "condition"),
    hidden=("return_values", "binary"),
    complete=_typed,
)


# The commands that are written by hand.


@asynccontextmanager
async def _item(
    owner: Owner, table: str, partition_key: str, sort_key: str | None, *, writes: bool = False
) -> AsyncIterator[tuple[Tables, dict[str, Any]]]:
    """Open the store, and yield the handle and the key of an item in the types of its table."""
    async with owner.open() if writes else owner.look() as store:
        tables = store.tables(owner.plugin_name)
        yield (
            tables,
            await _typed(tables, {"table": table, "partition_key": partition_key, "sort_key": sort_key}),
        )


@app.command
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
    async with _item(owner, table, partition_key, sort_key) as (tables, key):
        item = await tables.get_item(**key, projection=show or None)
    _print_item(table, item, owner, long=long)


@app.command
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
    async with _item(owner, table, partition_key, sort_key, writes=True) as (tables, key):
        item = await tables.reveal_item(**key, why=why, writer=writer)
    _print_item(table, item, owner, long=long)


def _print_item(table: str, item: holdfast.Item | None, owner: Owner, *, long: bool) -> None:
    """Print an item in the form that the options ask for."""
    if item is None:
        raise holdfast.ItemNotFound(f"table {table!r} has no such item", field="partition_key")
    if owner.json:
        document(item_document(item) if long else item.value)
    elif not long:
        value(item.value)
    else:
        text = msgspec.json.encode(item.value).decode()
        field_rows({"item": text, "version": item.version, "expires_at": item.expires_at})


@app.command
async def update(
    table: Table,
    partition_key: PartitionKey,
    sort_key: SortKey = None,
    /,
    *,
    set_values: Annotated[str | None, Parameter(name="--set")] = None,
    add: str | None = None,
    remove: tuple[str, ...] = (),
    expected: Expected = ANYTHING,
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
    fields = {**changes, "remove": remove or None, **expected.fields, **origin.fields}
    async with _item(owner, table, partition_key, sort_key, writes=True) as (tables, key):
        item = await tables.update_item(**key, **fields)
    document(item_document(item) if owner.json else item.value)


@app.command
@destroys
async def delete(
    table: Table,
    partition_key: PartitionKey,
    sort_key: SortKey = None,
    /,
    *,
    yes: Yes = False,
    expected: Expected = ANYTHING,
    origin: WriteOptions = UNNAMED,
    owner: Owner = OWNER,
) -> None:
    """Delete an item. An item that does not exist is no error."""
    fields = {**expected.fields, **origin.fields}
    item = ", ".join(ascii(part) for part in (partition_key, sort_key) if part is not None)
    require_yes(f"item {item} of table {table!a} of plugin {owner.plugin_name} is deleted", yes=yes)
    async with _item(owner, table, partition_key, sort_key, writes=True) as (tables, key):
        deleted = await tables.delete_item(**key, **fields)
    answer(owner.json, {"deleted": deleted}, "deleted" if deleted else "not there")


@app.command
async def sweep(table: Table, /, *, everything: Everything = False, owner: Owner = OWNER) -> None:
    """Delete expired items, and print how many: at most a hundred, or all of them with --all."""
    async with owner.open() as store:
        tables = store.tables(owner.plugin_name)
        removed = swept = await tables.sweep_expired_ttl(table)
        while everything and swept:
            swept = await tables.sweep_expired_ttl(table)
            removed += swept
    answer(owner.json, {"removed": removed}, removed)


@app.command
async def query(
    table: Table,
    partition_key: PartitionKey,
    /,
    *,
    sort_key: str | None = None,
    selection: Selection = ALL,
    owner: Owner = OWNER,
) -> None:
    """Print the items of a partition in the order of their sort keys, one line of JSON each.

    Parameters
    ----------
    sort_key
        Condition on the sort key, as JSON: '{"between": [1, 9]}'; eq lt lte gt gte between begins_with.
    """
    condition, fields = json_option(sort_key, field="sort-key"), selection.fields
    async with _item(owner, table, partition_key, None) as (tables, key):
        page = partial(tables.query, table, key["partition_key"], sk=condition, **fields)
        await _print_pages(page, selection, owner)


@app.command
async def scan(table: Table, /, *, selection: Selection = ALL, owner: Owner = OWNER) -> None:
    """Print the items of a table in the order of their keys, one line of JSON each."""
    fields = selection.fields
    async with owner.look() as store:
        tables = store.tables(owner.plugin_name)
        await _print_pages(partial(tables.scan, table, **fields), selection, owner)


@index.command(name="query")
async def index_query(
    table: Table,
    index: Index,
    value: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    selection: Selection = ALL,
    owner: Owner = OWNER,
) -> None:
    """Print the items whose indexed attribute has a value, one line of JSON each.

    Parameters
    ----------
    value
        Value of the attribute; a binary one as base64.
    """
    fields = selection.fields
    async with owner.look() as store:
        tables = store.tables(owner.plugin_name)
        keys = {one["name"]: one["key"] for one in (await tables.describe_table(table))["indexes"]}
        key = typed(value, keys[index], field="value") if index in keys else value
        await _print_pages(partial(tables.query_index, table, index, key, **fields), selection, owner)


async def _print_pages(
    read: Callable[..., Awaitable[holdfast.ItemPage]], selection: Selection, owner: Owner
) -> None:
    async for page in selection.pages(read):
        if owner.json and not selection.everything:
            items = [item_document(item) for item in page.items]
            count = {"count": page.count, "truncated": page.truncated}
            document({"items": items, **count, "cursor": page.cursor})
            return
        for item in page.items:
            document(item_document(item) if owner.json else item.value)
    if page.cursor is not None:
        say(f"there may be more items: --all lists them, --cursor {page.cursor} continues")


@app.command
async def changes(
    table: Table,
    /,
    *,
    since: Whole = 0,
    view: Literal["keys", "new", "old", "both"] = "keys",
    limit: MaybeWhole = None,
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
    limit
        Return at most this many, 1 to 10000; 1000 if not given. With --all, the size of a page.
    """
    async with owner.look() as store:
        tables = store.tables(owner.plugin_name)
        while True:
            page = await tables.changes(table, since, limit=limit, view=view)
            if owner.json:
                for content in page.changes if everything else (page,):
                    document(content)
            else:
                rows(("time", "op", "version", "key", "writer"), map(_cells, page.changes))
            if page.gap:
                say(f"what changed before version {page.oldest} is not known any more")
            if not everything or not page.changes:
                return
            since = page.next


def _cells(change: holdfast.ItemChange) -> tuple[Any, ...]:
    key = [change.partition_key] if change.sort_key is None else [change.partition_key, change.sort_key]
    return change.at, change.op, change.version, msgspec.json.encode(key).decode(), change.last_writer


register_verbs(
    app,
    VERBS,
    Tables,
    __name__,
    nouns=("table", "tables", "item"),
    without=("sweep_expired_ttl",),  # `sweep` does it
)


def __getattr__(name: str) -> Callable[..., Any]:
    """Return the command of a verb. The parser asks for it by name when the command is called."""
    if name not in VERBS:
        raise AttributeError(name)
    return FAMILY.command(name)
