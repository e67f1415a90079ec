"""The semantics of the verbs on items.

An item and its index entries change together. An item that has reached its deadline does not exist: the
command that finds it records its expiry first. A write's expectations are checked before anything is written.

A condition is evaluated once per row, and an update is computed once, in slices if they take long. Results
and counts are the same in slices as in one piece. A command that has changed nothing yet is paused by undoing
it, and applied again later: the results found by then are kept.

Index entries are written and removed without loading the existing ones, except where an index is newer than
the item and may not have its entry yet.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, TypeAlias

from msgspec import UNSET

from holdfast.commands import Removed
from holdfast.decide.audit import audit
from holdfast.decide.draft import Account, Draft, Loaded, Needs, Paused
from holdfast.decide.schemas import schema_address, schema_of, table_of
from holdfast.decide.weights import envelope
from holdfast.errors import (
    ConditionFailed,
    ItemNotFound,
    TooExpensive,
    TtlNotConfigured,
    ValidationError,
    VersionConflict,
)
from holdfast.model import ItemConflict
from holdfast.origin import Origin
from holdfast.rows import Address, Record, Row
from holdfast.tables.commands import (
    CheckItem,
    DeleteItem,
    ExpireItems,
    ItemDone,
    ItemsDone,
    PutItem,
    RevealItem,
    SetItemTtl,
    Transacted,
    TransactWrite,
    UpdateItem,
    WriteItems,
)
from holdfast.tables.conditions import Condition, comparisons_in, holds, judged
from holdfast.tables.indexes import (
    IndexEntry,
    entry_changes,
    entry_of,
    entry_places,
    entry_weight,
    young_spaces,
)
from holdfast.tables.items import (
    Images,
    attribute_for,
    deadline_of,
    encode_item,
    item_name,
    keyed_item,
    known_part,
    named_key,
    require_binary,
)
from holdfast.tables.schema import TableSchema
from holdfast.tables.updates import Update, actions_in, update_of, updated, updating
from holdfast.work import SLICE, TEST

ItemWrite: TypeAlias = PutItem | UpdateItem | DeleteItem | SetItemTtl | CheckItem
OnItem: TypeAlias = ItemWrite | RevealItem
_SINGLE: Final = (PutItem, UpdateItem, DeleteItem, SetItemTtl, CheckItem)


class ItemSlot:
    """The item of a command: its table, its address, and the existing row."""

    def __init__(self, draft: Draft, command: OnItem) -> None:
        self.schema: TableSchema = table_of(draft, command.table)
        self.key: bytes
        self.named: dict[str, Any]
        self.key, self.named = _named(self.schema, command, draft.named)
        self.address: Address = Address(draft.name, self.schema.item_space, self.key)
        self.row: Row | None = _live(draft, self.schema, self.address)
        self._draft = draft

    @property
    def item(self) -> dict[str, Any] | None:
        """The existing item. Do not modify it.

        Raises:
            TooExpensive: Reading it takes more work than the command may do.
        """
        if self.row is None:
            return None
        self._draft.account.read(self.row)
        return self._draft.items.attributes(self.row)

    @property
    def indexed(self) -> tuple[Row, dict[str, Any]] | None:
        """The existing row, and the attributes of its item that the indexes use."""
        return None if self.row is None else (self.row, known_part(self.row, self.schema))


def _put(draft: Draft, command: PutItem) -> ItemDone:
    place = ItemSlot(draft, command)
    if command.binary is not UNSET:
        require_binary(place.schema, command.binary)
    _expect(draft, place, command)
    return _store(draft, command, place, place.named, text=(command.item, command.size))


def _update(draft: Draft, command: UpdateItem) -> ItemDone:
    place = ItemSlot(draft, command)
    update = _update_of(draft, command, place.schema)
    _expect(draft, place, command)
    if place.row is None:
        after = updated(place.named, update, work=draft.account)
    else:
        after = changed(draft, command, place.row, update)
    return _store(draft, command, place, after)


def _update_of(draft: Draft, command: UpdateItem, schema: TableSchema) -> Update:
    """Return the update of a command, decoded once however many slices the command takes."""
    if (known := draft.updates.get(id(command))) is None:
        update = update_of(schema, set=command.set, remove=command.remove, add=command.add)
        known = draft.updates[id(command)] = command, update
    read: Update = known[1]
    return read


def _set_ttl(draft: Draft, command: SetItemTtl) -> ItemDone:
    place = ItemSlot(draft, command)
    attribute = place.schema.ttl_attribute
    if attribute is None:
        raise TtlNotConfigured(f"table {command.table!r} has no ttl_attribute", field="table")
    _expect(draft, place, command)
    item = place.item
    if item is None:
        raise ItemNotFound(f"table {command.table!r} has no such item", field="partition_key")
    until = 0 if command.ttl is None else attribute_for(command.ttl, draft.now)
    return _store(draft, command, place, item | {attribute: until})


def _delete(draft: Draft, command: DeleteItem) -> ItemDone:
    place = ItemSlot(draft, command)
    _expect(draft, place, command)
    if place.row is None:
        return ItemDone(None)
    _remove(draft, place.schema, place.address, place.row)
    version = draft.version()
    _record(draft, "deleted", place, version=version, origin=command.origin, after=None)
    return ItemDone(version, old=place.row if command.returns == "old" else None)


def _check(draft: Draft, command: CheckItem) -> ItemDone:
    _expect(draft, ItemSlot(draft, command), command)
    return ItemDone(None)


def _transact(draft: Draft, command: TransactWrite) -> Transacted:
    """Check all parts against the state before any of them, then apply them."""
    places = [ItemSlot(draft, write) for write in command.writes]
    seen: dict[Address, int] = {}
    for position, place in enumerate(places):
        if seen.setdefault(place.address, position) != position:
            raise ValidationError(
                f"writes {seen[place.address]} and {position} are about the same item", field="writes"
            )
    failed = [
        ItemConflict(position=position, current=_seen(draft, place))
        for position, (write, place) in enumerate(zip(command.writes, places, strict=True))
        if not _of_version(place, write) or not _meets(draft, place, write)
    ]
    if failed:
        named = ", ".join(str(conflict.position) for conflict in failed[:5])
        raise ConditionFailed(
            f"{len(failed)} of {len(places)} writes did not find what they expect: {named}",
            current=failed[0].current,
            conflicts=failed,
        )
    return Transacted(tuple(APPLY[type(write)](draft, write) for write in command.writes))


def _write_items(draft: Draft, command: WriteItems) -> ItemsDone:
    items: list[Any] = [draft.attempt(APPLY[type(write)], write) for write in command.writes]
    return ItemsDone(tuple(items))


def _expire(draft: Draft, command: ExpireItems) -> Removed:
    schema = table_of(draft, command.table)
    count = 0
    for key in command.keys if schema.item_space == command.space else ():
        address = Address(draft.name, command.space, key)
        row = draft.row(address)
        if row is not None and not row.alive(draft.now):
            _expired(draft, schema, address, row)
            count += 1
    return Removed(count)


def count_item(draft: Draft, key: bytes | str, row: Row, *, adds: int) -> None:
    """Update the namespace's counters, which cover the items of all its tables."""
    namespace = draft.namespace
    namespace.keys += adds
    namespace.bytes += adds * (len(key) + row.size)
    namespace.envelope_bytes += adds * envelope(row)


def _named(
    schema: TableSchema, command: OnItem, known: dict[int, tuple[Any, ...]]
) -> tuple[bytes, dict[str, Any]]:
    """Return the key of a command's item, and the attributes it gives that the table uses.

    `known` caches that, with the command, so that no other gets its identity, and with the table.
    """
    cached = known.get(id(command))
    if cached is not None and cached[0] is command and cached[1] is schema:
        return cached[2], cached[3]
    if isinstance(command, PutItem):
        key, item = keyed_item(known_part(command.item, schema), schema)
    else:
        key, item = named_key(schema, command.partition_key, command.sort_key)
    known[id(command)] = command, schema, key, item
    return key, item


def _live(draft: Draft, schema: TableSchema, address: Address) -> Row | None:
    row = draft.row(address)
    if row is None or row.alive(draft.now):
        return row
    _expired(draft, schema, address, row)
    return None


def _expired(draft: Draft, schema: TableSchema, address: Address, row: Row) -> None:
    item = _remove(draft, schema, address, row)
    record = Record(
        namespace=draft.name,
        version=draft.version(),
        op="expired",
        key=item_name(schema, item),
        at=draft.now,
        last_writer=row.last_writer,
        lag_ms=draft.now - (draft.now if row.expires_at is None else row.expires_at),
        expired_version=row.version,
        detail=Images.of(schema, row, None),
    )
    draft.record(record)
    audit(draft, record, row, None, spec_ref=row.spec_ref)


def _expect(draft: Draft, place: ItemSlot, command: ItemWrite) -> None:
    """Refuse a command whose expectations are not met."""
    row = place.row
    if not _of_version(place, command):
        there = "does not exist" if row is None else f"is at version {row.version}"
        expected = f"version {command.expected}" if command.expected else "no item"
        raise VersionConflict(f"the item {there}, but {expected} was expected", item=_seen(draft, place))
    if not _meets(draft, place, command):
        raise ConditionFailed(
            "the item does not meet the condition", field="condition", current=_seen(draft, place)
        )


def _of_version(place: ItemSlot, command: ItemWrite) -> bool:
    there = 0 if place.row is None else place.row.version
    return command.expected is None or command.expected == there


def _meets(draft: Draft, place: ItemSlot, command: ItemWrite) -> bool:
    return command.condition is None or meets(draft, place.row, command.condition)


def _seen(draft: Draft, place: ItemSlot) -> Any:
    """Return the existing item for a refusal."""
    return None if place.row is None else draft.account.item(place.row)


def _store(
    draft: Draft,
    command: ItemWrite,
    place: ItemSlot,
    item: dict[str, Any],
    *,
    text: tuple[str, int] | None = None,
) -> ItemDone:
    """Store an item in place of the previous one. `text` is its compact form, if known."""
    if text is None:
        text = encode_item(item)
        draft.account.begin("writing the item")
        draft.account.spend(text[1] // 2)
    value, size = text
    before, origin = place.row, command.origin
    version = draft.version()
    row = Row(
        value=value,
        size=size,
        version=version,
        created_at=draft.now if before is None else before.created_at,
        updated_at=draft.now,
        expires_at=deadline_of(item, place.schema),
        last_writer=origin.writer,
        request_id=origin.request_id,
        spec_ref=origin.spec_ref,
    )
    if before is not None:
        count_item(draft, place.address.key, before, adds=-1)
    count_item(draft, place.address.key, row, adds=1)
    draft.put(place.address, row)
    if place.schema.indexes:
        update_entries(draft, place.schema, place.key, before=place.indexed, after=(row, item))
    _record(draft, "set", place, version=version, origin=origin, after=row)
    return ItemDone(version, row=row, old=before if command.returns == "old" else None)


def _remove(draft: Draft, schema: TableSchema, address: Address, row: Row) -> dict[str, Any]:
    """Remove an item and its index entries, which are removed without loading them."""
    item = known_part(row, schema)
    count_item(draft, address.key, row, adds=-1)
    draft.put(address, None)
    assert isinstance(address.key, bytes)
    remove_entries(draft, schema, address.key, before=row, item=item)
    return item


def _record(
    draft: Draft, op: str, place: ItemSlot, *, version: int, origin: Origin, after: Row | None
) -> None:
    record = Record(
        namespace=draft.name,
        version=version,
        op=op,
        key=item_name(place.schema, place.named),
        at=draft.now,
        last_writer=origin.writer,
        request_id=origin.request_id,
        detail=Images.of(place.schema, place.row, after),
    )
    draft.record(record)
    audit(draft, record, place.row, after, spec_ref=origin.spec_ref)


def remove_entries(
    draft: Draft, schema: TableSchema, item_key: bytes, *, before: Row, item: Mapping[str, Any]
) -> None:
    """Remove the entries of an item that is removed."""
    young = young_spaces(schema, before.version)
    for space, key in entry_places(item, schema, item_key):
        remove_entry(draft, Address(draft.name, space, key), item_key, sure=space not in young)


def update_entries(
    draft: Draft,
    schema: TableSchema,
    item_key: bytes,
    *,
    before: tuple[Row, Mapping[str, Any]] | None,
    after: tuple[Row, Mapping[str, Any]],
) -> None:
    """Update the entries of an item that is stored in place of another, or of none."""
    row, item = after
    changes = entry_changes(schema, None if before is None else before[1], item, item_key=item_key)
    young = set() if before is None else young_spaces(schema, before[0].version)
    for entry in changes.gone:
        at = Address(draft.name, entry.space, entry.key)
        remove_entry(draft, at, entry.item_key, sure=entry.space not in young)
    for entry in changes.put:
        if entry.space not in young:
            put_entry(draft, entry, row, there=entry in changes.moved)
    for index in schema.indexes if young else ():
        young_entry = entry_of(item, schema, index, item_key=item_key)
        if young_entry is not None and young_entry.space in young:
            put_entry(draft, young_entry, row, there=None)


def put_entry(draft: Draft, entry: IndexEntry, row: Row, *, there: bool | None) -> None:
    """Store an index entry. `there` says whether it replaces one; None if unknown."""
    address = Address(draft.name, entry.space, entry.key)
    if there is None:
        there = draft.look(address) is not None
    if not there:
        draft.namespace.index_bytes += entry_weight(entry.key, entry.item_key)
    draft.put(address, entry.row(row))


def remove_entry(draft: Draft, address: Address, item_key: bytes, *, sure: bool) -> None:
    """Remove an index entry; `sure` if it exists."""
    assert isinstance(address.key, bytes)
    if sure or draft.look(address) is not None:
        draft.namespace.index_bytes -= entry_weight(address.key, item_key)
    draft.remove_unseen(address)


class Sliced:
    """Work on a row in progress, and its result. It keeps alive the objects whose ids identify it."""

    def __init__(
        self,
        draft: Draft,
        about: tuple[object, Row],
        work: Callable[[dict[str, Any], Account], Generator[None, None, Any]],
    ) -> None:
        assert draft.command is not None
        self.about = about
        self.account: Account = Account(draft.command)
        self.account.follow(draft.account)
        self.answer: Any = None
        self._slices = self._begin(draft, about[1], work)

    def _begin(
        self,
        draft: Draft,
        row: Row,
        work: Callable[[dict[str, Any], Account], Generator[None, None, Any]],
    ) -> Generator[None, None, Any]:
        self.account.read(row)
        item: dict[str, Any] = draft.items.attributes(row)
        if self.account.pausing():
            yield
        return (yield from work(item, self.account))

    def go_on(self) -> bool:
        """Do one more slice of work if there is no answer yet. Returns whether there is one now."""
        if self.answer is None:
            try:
                next(self._slices)
            except StopIteration as end:
                self.answer = end.value
            except TooExpensive as refusal:
                self.answer = refusal
        return self.answer is not None


def meets(draft: Draft, row: Row | None, condition: Condition) -> bool:
    """Return whether a row meets a condition.

    Raises:
        TooExpensive: This takes more work than the command may do.
        Paused: The slice of work ended before the answer was known.
    """
    if row is None:
        return holds(condition, None, work=draft.account)
    if comparisons_in(condition) * (16 * TEST + row.size) <= SLICE:
        draft.account.read(row)
        return holds(condition, draft.items.attributes(row), work=draft.account)
    return _in_slices(draft, condition, row, lambda item, account: judged(condition, item, account)) is True


def changed(draft: Draft, command: UpdateItem, row: Row, update: Update) -> dict[str, Any]:
    """Return the item of a row after an update.

    Raises:
        ValidationError: See `updated`.
        TooExpensive: This takes more work than the command may do.
        Paused: The slice of work ended before the item was computed.
    """
    if actions_in(update) * (16 * TEST + row.size) <= SLICE:
        draft.account.read(row)
        return updated(draft.items.attributes(row), update, work=draft.account)
    after: dict[str, Any] = _in_slices(
        draft, command, row, lambda item, account: updating(item, update, account)
    )
    return after


def _in_slices(
    draft: Draft,
    what: object,
    row: Row,
    work: Callable[[dict[str, Any], Account], Generator[None, None, Any]],
) -> Any:
    name = id(what), id(row)
    sliced = draft.slices.get(name)
    if sliced is None:
        sliced = draft.slices[name] = Sliced(draft, (what, row), work)
    while not sliced.go_on():
        if draft.unchanged:
            raise Paused
    draft.account.follow(sliced.account)
    if isinstance(sliced.answer, TooExpensive):
        raise sliced.answer
    return sliced.answer


def needs_table(needs: Needs, command: Any) -> None:
    """Request the definition of a command's table."""
    needs.row(schema_address(command.namespace, command.table), value=True)


def _needs_tables(needs: Needs, command: TransactWrite | WriteItems) -> None:
    for write in command.writes:
        needs_table(needs, write)


def _needs_due(needs: Needs, command: ExpireItems) -> None:
    needs_table(needs, command)
    for key in command.keys:
        needs.row(Address(command.namespace, command.space, key), value=True)


def need_item(more: Needs, command: OnItem, loaded: Loaded) -> None:
    """Request the item, now that its table is known. A wrong key is reported when the command is applied."""
    row = loaded.rows.get(schema_address(command.namespace, command.table))
    if row is None:
        return
    schema = schema_of(row.value or "")
    try:
        key, _ = _named(schema, command, loaded.named)
    except ValidationError:
        return
    more.row(Address(command.namespace, schema.item_space, key), value=True)


def _need_items(more: Needs, command: TransactWrite | WriteItems, loaded: Loaded) -> None:
    for write in command.writes:
        need_item(more, write, loaded)


NEEDS: Final[dict[type, Callable[[Needs, Any], None]]] = {
    **dict.fromkeys(_SINGLE, needs_table),
    TransactWrite: _needs_tables,
    WriteItems: _needs_tables,
    ExpireItems: _needs_due,
}
FURTHER: Final[dict[type, Callable[[Needs, Any, Loaded], None]]] = {
    **dict.fromkeys(_SINGLE, need_item),
    TransactWrite: _need_items,
    WriteItems: _need_items,
}
"""Functions that request more rows, once the tables are known."""
APPLY: Final[dict[type, Callable[[Draft, Any], Any]]] = {
    PutItem: _put,
    UpdateItem: _update,
    DeleteItem: _delete,
    SetItemTtl: _set_ttl,
    CheckItem: _check,
    TransactWrite: _transact,
    WriteItems: _write_items,
    ExpireItems: _expire,
}
