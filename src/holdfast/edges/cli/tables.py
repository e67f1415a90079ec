"""Parts that commands about tables share: the plugin, typed keys, and the output of items.

Law: as in `holdfast.edges.cli.target`. Text becomes the type that the table's definition gives, and nothing
is guessed: the key 7 is a number where keys are numbers, and text where they are text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final, NoReturn

import msgspec
from cyclopts import Parameter

import holdfast
from holdfast.edges.cli.options import WHERE, number
from holdfast.edges.cli.output import document, line, rows, shown_time
from holdfast.edges.cli.target import Place
from holdfast.edges.cli.values import parse
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


@Parameter(name="*", group=WHERE)
@dataclass(frozen=True, kw_only=True)
class Owner(Place):
    """The tables of a plugin."""

    plugin: Annotated[str | None, Parameter(alias="-p")] = None
    """The plugin whose tables are meant. If not given: $HOLDFAST_PLUGIN."""

    def tables(self, store: holdfast.Store) -> Tables:
        """Return the handle on the tables."""
        return store.tables(self.plugin_name)

    @property
    def plugin_name(self) -> str:
        """The name of the plugin, from the option, a variable or a context."""
        plugin = self._spoken().plugin if self.plugin is None else self.plugin
        if not plugin:
            raise holdfast.MissingField(
                "whose tables? Give --plugin NAME (or set HOLDFAST_PLUGIN)", field="plugin"
            )
        return plugin


HERE: Final = Owner()


def definition(given: str, *, field: str) -> tuple[str, str]:
    """Split an attribute of a key from its type, which follows the last colon."""
    name, colon, kind = given.rpartition(":")
    if not colon:
        raise holdfast.ValidationError(
            f"--{field} is an attribute and its type, such as user:string", field=field
        )
    return name, kind


def json_option(given: str | None, *, field: str) -> Any:
    """Parse the JSON of an option."""
    if given is None:
        return None
    try:
        return parse(given)
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


def typed(given: str, attribute: dict[str, Any], *, field: str) -> Any:
    """Return the value of a key attribute."""
    if attribute["type"] != "number":
        return given
    try:
        found = msgspec.json.decode(given)
    except msgspec.DecodeError:
        found = None
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise holdfast.ValidationError(f"{attribute['name']} is a number, not {given!a}", field=field)
    return found


def no_item(table: str) -> NoReturn:
    """Raise the error for a missing item, which has its own exit code."""
    raise holdfast.ItemNotFound(f"table {table!r} has no such item", field="partition_key")


def print_version(item: holdfast.Item, owner: Owner) -> None:
    """Print the version that a write of an item returns."""
    if owner.json:
        document({"version": item.version, "expires_at": item.expires_at})
    else:
        line(item.version)


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
