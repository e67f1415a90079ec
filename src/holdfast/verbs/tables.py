"""Making callers' commands on tables from the fields of a call.

Law: as in `holdfast.verbs`. Rules that depend on a table's schema are applied where the schema is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast import rules
from holdfast.errors import ValidationError, ValueTooLarge
from holdfast.tables.commands import (
    CheckItem,
    CreateIndex,
    CreateTable,
    DeleteItem,
    DropIndex,
    DropTable,
    PutItem,
    Returns,
    RevealItem,
    SetItemTtl,
    TransactWrite,
    UpdateItem,
    WriteItems,
)
from holdfast.tables.condition_json import condition_of
from holdfast.tables.items import MAX_ITEM_BYTES, encode_item
from holdfast.tables.keys import json_key
from holdfast.tables.schema import index_name, key_attribute, table_name, table_schema
from holdfast.tables.updates import plain
from holdfast.verbs.fields import Several, as_object, required, several

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.origin import Origin
    from holdfast.tables.conditions import Condition

_PROVENANCE: Final = {
    "request_id": "request_id",
    "last_writer": "writer",
    "spec_ref": "spec_ref",
    "fence": "fence",
    "timeout": "timeout",
    "deadline": "deadline",
}

REVEALING: Final = ("last_writer", "timeout", "deadline")
"""The fields of provenance that a reveal has: it is a read, so it has no request id and needs no lock."""


class TableVerbs:
    """The verbs that change tables of one namespace.

    Args:
        namespace: The namespace of every command made.
        origin: Makes the origin of a command from its provenance.
    """

    def __init__(self, namespace: str, origin: Callable[..., Origin]) -> None:
        self.namespace = namespace
        self._origin_of = origin

    def create_table(self, fields: Mapping[str, Any]) -> CreateTable:
        """Make a command that creates a table."""
        schema = table_schema(
            required(fields, "table"),
            partition_key=required(fields, "partition_key"),
            sort_key=fields.get("sort_key"),
            ttl_attribute=fields.get("ttl_attribute"),
            stream=fields.get("stream"),
        )
        return CreateTable(**self._common(fields), schema=schema)

    def drop_table(self, fields: Mapping[str, Any]) -> DropTable:
        """Make a command that drops a table."""
        return DropTable(**self._common(fields))

    def create_index(self, fields: Mapping[str, Any]) -> CreateIndex:
        """Make a command that begins an index."""
        return CreateIndex(
            **self._common(fields),
            index=index_name(required(fields, "index")),
            key=key_attribute(required(fields, "index_key"), field="index_key"),
        )

    def drop_index(self, fields: Mapping[str, Any]) -> DropIndex:
        """Make a command that drops an index."""
        return DropIndex(**self._common(fields), index=index_name(required(fields, "index")))

    def put_item(self, fields: Mapping[str, Any]) -> PutItem:
        """Make a command that stores an item."""
        return self._put(self._origin(fields), fields)

    def update_item(self, fields: Mapping[str, Any]) -> UpdateItem:
        """Make a command that changes attributes of an item."""
        return self._update(self._origin(fields), fields)

    def delete_item(self, fields: Mapping[str, Any]) -> DeleteItem:
        """Make a command that removes an item."""
        return self._delete(self._origin(fields), fields)

    def set_ttl(self, fields: Mapping[str, Any]) -> SetItemTtl:
        """Make a command that sets the deadline of an item."""
        seconds = rules.required_ttl(required(fields, "ttl_seconds"), field="ttl_seconds")
        return SetItemTtl(**self._keyed(self._origin(fields), fields), ttl=seconds)

    def remove_ttl(self, fields: Mapping[str, Any]) -> SetItemTtl:
        """Make a command that removes the deadline of an item."""
        return SetItemTtl(**self._keyed(self._origin(fields), fields), ttl=None)

    def reveal_item(self, fields: Mapping[str, Any]) -> RevealItem:
        """Make a command that reads an item for a person, who says why. Its reply is never remembered."""
        return RevealItem(
            namespace=self.namespace,
            origin=self._origin({name: fields.get(name) for name in REVEALING}),
            table=table_name(required(fields, "table")),
            why=rules.why(fields.get("why")),
            **_key_of(fields),
        )

    def batch_write_item(self, fields: Mapping[str, Any]) -> tuple[WriteItems, Several[Any]]:
        """Make a command that stores and removes items, each on its own."""
        origin = self._origin(fields)
        kinds = {"put": self._put, "delete": self._delete}
        given = several(required(fields, "writes"), field="writes")
        part = origin.asked
        writes = Several.of(partial(self._part, part, kinds, fields), given)
        command = WriteItems(namespace=self.namespace, origin=origin, writes=tuple(writes.legal))
        _fits(command.cost, "batch_write_item")
        return command, writes

    def transact_write(self, fields: Mapping[str, Any]) -> TransactWrite:
        """Make a command that executes all of its writes or none."""
        origin = self._origin(fields)
        kinds = {"put": self._put, "update": self._update, "delete": self._delete, "check": self._check}
        given = several(required(fields, "writes"), field="writes")
        part = origin.asked
        writes = tuple(self._part(part, kinds, fields, write) for write in given)
        command = TransactWrite(namespace=self.namespace, origin=origin, writes=writes)
        _fits(command.cost, "transact_write")
        return command

    def _part(
        self,
        origin: Origin,
        kinds: Mapping[str, Callable[[Origin, Mapping[str, Any]], Any]],
        fields: Mapping[str, Any],
        write: object,
    ) -> Any:
        """Make one of several writes from an object with one member, which names its kind.

        The table may be shared.
        """
        members = as_object(write, field="writes")
        if len(members) != 1 or next(iter(members)) not in kinds:
            raise ValidationError(f"a write has exactly one of {', '.join(kinds)}", field="writes")
        [(kind, body)] = members.items()
        own = as_object(body, field="writes")
        if "table" not in own and "table" in fields:
            own = {**own, "table": fields["table"]}
        return kinds[kind](origin, own)

    def _put(self, origin: Origin, fields: Mapping[str, Any]) -> PutItem:
        given = required(fields, "item")
        if not isinstance(given, Mapping):
            raise ValidationError(f"item must be an object, not {rules.kind_of(given)}", field="item")
        text, size = encode_item(dict(given))
        return PutItem(
            **self._expecting(origin, fields), item=text, size=size, binary=_binary(fields.get("binary"))
        )

    def _update(self, origin: Origin, fields: Mapping[str, Any]) -> UpdateItem:
        given = {name: plain(fields.get(name)) for name in ("set", "remove", "add")}
        size = sum(
            rules.encode_value(value, most=2 * MAX_ITEM_BYTES, field=name)[1] for name, value in given.items()
        )
        return UpdateItem(**self._keyed(origin, fields), **given, size=size)

    def _delete(self, origin: Origin, fields: Mapping[str, Any]) -> DeleteItem:
        return DeleteItem(**self._keyed(origin, fields))

    def _check(self, origin: Origin, fields: Mapping[str, Any]) -> CheckItem:
        return CheckItem(**self._keyed(origin, fields))

    def _keyed(self, origin: Origin, fields: Mapping[str, Any]) -> dict[str, Any]:
        return self._expecting(origin, fields) | _key_of(fields)

    def _expecting(self, origin: Origin, fields: Mapping[str, Any]) -> dict[str, Any]:
        expected = fields.get("expected_version")
        return {
            "namespace": self.namespace,
            "origin": origin,
            "table": table_name(required(fields, "table")),
            "expected": None if expected is None else rules.version(expected),
            "condition": optional_condition(fields, "condition"),
            "returns": _returns(fields.get("return_values")),
        }

    def _common(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "namespace": self.namespace,
            "origin": self._origin(fields),
            "table": table_name(required(fields, "table")),
        }

    def _origin(self, fields: Mapping[str, Any]) -> Origin:
        given = {name: fields.get(field) for field, name in _PROVENANCE.items()}
        return self._origin_of(**given)


WRITES: Final = frozenset(name for name in vars(TableVerbs) if not name.startswith("_"))
"""The verbs that write. If their reply is lost, the outcome is unknown."""


def _key_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the key of an item that a call names."""
    return {
        "partition_key": legal_key(required(fields, "partition_key"), field="partition_key"),
        "sort_key": legal_key(fields.get("sort_key"), field="sort_key"),
    }


def legal_key(value: object, *, field: str) -> Any:
    """Return the value of a key in a form that any table could use, with bytes as base64."""
    plain = json_key(value)
    if plain is not None and (isinstance(plain, bool) or not isinstance(plain, (str, int, float))):
        raise ValidationError(
            f"{field} must be text, a number or a binary, not {rules.kind_of(value)}", field=field
        )
    rules.encode_value(plain, most=rules.MAX_VALUE_BYTES, field=field)
    return plain


def optional_condition(fields: Mapping[str, Any], name: str) -> Condition | None:
    """Return a condition that a call may contain."""
    given = fields.get(name)
    return None if given is None else condition_of(given, field=name)


def _binary(given: object) -> tuple[str, ...] | msgspec.UnsetType:
    """Return the names of attributes that a caller gave as bytes.

    They are checked where the table is known.
    """
    if given is None:
        return msgspec.UNSET
    names = several(given, field="binary")
    if not all(isinstance(name, str) for name in names):
        raise ValidationError("binary must be a list of the names of attributes", field="binary")
    return tuple(names)


def _returns(given: object) -> Returns:
    if given is None or given == "none":
        return "none"
    if given == "old":
        return "old"
    if given == "new":
        return "new"
    raise ValidationError(
        f"return_values must be none, old or new, not {rules.shown(given)}", field="return_values"
    )


def _fits(size: int, verb: str) -> None:
    if size > rules.MAX_TRANSFER_BYTES:
        raise ValueTooLarge(f"{verb} holds {size} bytes; at most {rules.MAX_TRANSFER_BYTES} are allowed")
