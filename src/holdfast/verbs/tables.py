"""The caller of commands on tables: the arguments of its calls, and how several writes become a command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, TypedDict

from msgspec import UNSET

from holdfast import rules
from holdfast.declare import missing
from holdfast.errors import ValidationError, ValueTooLarge
from holdfast.origin import Origin
from holdfast.tables.commands import PARTS, CheckItem, DeleteItem, ItemWrite, PutItem, UpdateItem, legal_key
from holdfast.tables.conditions import Condition
from holdfast.tables.schema import KeyAttribute
from holdfast.verbs.caller import NamespaceCaller
from holdfast.verbs.fields import Provenance, Several, required
from holdfast.verbs.unknown import refuse_unknown_names

Key: TypeAlias = str | int | float | bytes
KeyDefinition: TypeAlias = tuple[str, str] | Mapping[str, str] | KeyAttribute
Where: TypeAlias = Condition | Mapping[str, Any]
Paths: TypeAlias = Sequence[str | Sequence[str | int]]
Values: TypeAlias = Mapping[str, Any] | Sequence[tuple[Any, Any]]


class Walk(TypedDict, total=False):
    """The options of every walk over items.

    `filter` is the condition that items must meet, and `projection` the paths to show of each. `limit` is 1
    to 10,000, 1,000 if not given. `cursor` continues after the page that returned it. `reverse` begins at the
    end.
    """

    filter: Where | None
    projection: Paths | None
    limit: int | None
    cursor: str | None
    reverse: bool


class Expecting(Provenance, total=False):
    """The options of every write of an item.

    `expected_version` is the version that the item must have, 0 for no item. `condition` is what the existing
    item must meet.
    """

    expected_version: int | None
    condition: Where | None


class TableVerbs:
    """One caller of the tables of one namespace.

    Args:
        caller: The caller, who knows where its commands come from.
    """

    def __init__(self, caller: NamespaceCaller) -> None:
        self.namespace = caller.namespace
        self.deadline = caller.deadline
        self.origin_by = caller.origin_by
        self.origin_of = caller.origin_of

    def item_writes(self, writes: object, table: object, origin: Origin) -> Several[PutItem | DeleteItem]:
        """Return the writes of `batch_write_item`, each of which may be refused."""
        make = partial(self._part, ("put", "delete"), table, origin.asked)
        made: Several[PutItem | DeleteItem] = Several.of(make, _listed(writes))
        _fits(made.legal, "batch_write_item")
        return made

    def transaction(
        self, writes: object, table: object, origin: Origin
    ) -> tuple[PutItem | UpdateItem | DeleteItem | CheckItem, ...]:
        """Return the writes of `transact_write`."""
        make = partial(self._part, ("put", "update", "delete", "check"), table, origin.asked)
        made = tuple(map(make, _listed(writes)))
        _fits(made, "transact_write")
        return made

    def item_keys(self, keys: object) -> tuple[tuple[Any, Any], ...]:
        """Return the keys of several items, each a partition key and a sort key or None."""
        return tuple(map(_key, rules.several(keys, field="keys")))

    def _part(self, kinds: tuple[str, ...], table: object, origin: Origin, write: object) -> Any:
        """Make one of several writes from an object with one member, which names its kind.

        The table may be shared.
        """
        members = rules.as_object(write, field="writes")
        if len(members) != 1 or next(iter(members)) not in kinds:
            raise ValidationError(f"a write has exactly one of {', '.join(kinds)}", field="writes")
        [(kind, body)] = members.items()
        fields = rules.as_object(body, field="writes")
        if "table" not in fields and table is not None:
            fields = {**fields, "table": table}
        declaration = PARTS[kind].declaration
        assert declaration is not None
        return declaration.make_part(self, declaration.of_fields(fields), origin)


def refuse_unknown_writes(writes: object) -> None:
    """Refuse an unknown name in any of several writes of items.

    Raises:
        ValidationError: The message names the closest known field.
    """
    if isinstance(writes, Sequence):
        for position, write in enumerate(writes):
            if isinstance(write, Mapping):
                for kind in write.keys() & PARTS.keys():
                    known = frozenset(PARTS[kind].declaration.own)  # type: ignore[union-attr]
                    refuse_unknown_names(write[kind], known, f"writes[{position}].{kind}")


def _listed(writes: object) -> Sequence[Any]:
    if writes is UNSET:
        raise missing("writes")
    return rules.several(writes, field="writes")


def _key(key: object) -> tuple[Any, Any]:
    fields = rules.as_object(key, field="keys")
    return (
        legal_key(required(fields, "partition_key"), field="partition_key"),
        legal_key(fields.get("sort_key"), field="sort_key"),
    )


def _fits(writes: Sequence[ItemWrite], verb: str) -> None:
    size = sum(write.cost for write in writes)
    if size > rules.MAX_TRANSFER_BYTES:
        raise ValueTooLarge(f"{verb} holds {size} bytes; at most {rules.MAX_TRANSFER_BYTES} are allowed")
